//! Waiting until something is true, without missing it.
//!
//! Contract: the position in the journal is taken before the state is read, so nothing falls between; what is
//! true already ends the wait at once. A waiter performs what others left to do, so one in the background is
//! enough of a daemon. It ends with the `git` wrapper that started it.

use super::{
    agent,
    perform::{self, PerformError, Progress},
};
use crate::{
    code::{Code, exit},
    domain::{
        cursor::Since,
        ids::{PolicyId, SessionId},
        policy::{Policy, Status},
        session::{Session, Turn},
    },
    engine,
    ledger::{Ledger, Query, Seen},
    limits,
    sys::process,
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// What is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A session.
    Session(SessionId),
    /// A policy.
    Policy(PolicyId),
}

impl Target {
    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Session(id) => id.as_str(),
            Self::Policy(id) => id.as_str(),
        }
    }
}

/// What is to become true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A turn of the session ended.
    TurnEnd,
    /// The session asks something.
    AwaitingInput,
    /// The session's process is gone.
    Exited,
    /// The policy is over.
    Settled,
    /// The policy did what it was for.
    Done,
    /// The policy was answered.
    Acked,
    /// No turn of the session runs.
    Idle,
    /// Any event of the target.
    Any,
}

impl Condition {
    /// Every condition, in the order of the specification.
    pub const ALL: [Self; 8] = [
        Self::TurnEnd,
        Self::AwaitingInput,
        Self::Exited,
        Self::Settled,
        Self::Done,
        Self::Acked,
        Self::Idle,
        Self::Any,
    ];

    /// The word used on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TurnEnd => "turn-end",
            Self::AwaitingInput => "awaiting-input",
            Self::Exited => "exited",
            Self::Settled => "settled",
            Self::Done => "done",
            Self::Acked => "acked",
            Self::Idle => "idle",
            Self::Any => "any",
        }
    }
}

/// What to wait for.
#[derive(Clone, Debug)]
pub struct WaitAsk {
    /// One or more targets.
    pub targets: Vec<Target>,
    /// Conditions; the target's own default when empty.
    pub conditions: Vec<Condition>,
    /// Longest wait, milliseconds; 0 looks once.
    pub timeout_ms: u64,
    /// Events after this position count as well.
    pub since: Option<Since>,
    /// Every target must end; else the first ends the wait.
    pub all: bool,
}

/// How a wait ended.
#[derive(Clone, Debug)]
pub struct Waited {
    /// The exit code of the command.
    pub exit: u8,
    /// The condition is true.
    pub met: bool,
    /// The target that decided.
    pub target: Option<Target>,
    /// The condition that decided.
    pub condition: Option<Condition>,
    /// The last event of that target.
    pub event: Option<Seen>,
    /// The code, where the wait ended without the condition.
    pub code: Option<Code>,
}

/// How one target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Open,
    Ended { exit: u8, condition: Condition },
}

/// Waits.
///
/// # Errors
/// An unknown target or cursor; a store that cannot be read.
pub fn wait(ledger: &Ledger, ask: &WaitAsk) -> Result<Waited, PerformError> {
    let after = match &ask.since {
        Some(since) => ledger.position(since)?,
        None => ledger.tip()?.map_or(0, |t| t.seq),
    };
    let after_ms = |ms| Instant::now() + Duration::from_millis(ms);
    let end = after_ms(ask.timeout_ms);
    // An agent that is there answers at once, however little time there is.
    let sign_end = after_ms(ask.timeout_ms.max(limits::SIGN_LEAST_MS));
    let parent = process::parent();
    let mut judged_at = None;
    let mut retry_at = None;
    loop {
        let tip = ledger.tip()?.map(|t| t.id);
        let now = Instant::now();
        if judged_at != Some(tip) || retry_at.is_some_and(|at| now >= at) {
            let settled = perform_for(ledger, ask, sign_end)?;
            retry_at = (!settled).then(|| now + Duration::from_millis(limits::WAIT_RETRY_MS));
            judged_at = Some(ledger.tip()?.map(|t| t.id));
            if let Some(waited) = judge(ledger, ask, after)? {
                return Ok(waited);
            }
        }
        if Instant::now() >= end || process::parent() != parent {
            return out_of_time(ledger, ask);
        }
        thread::sleep(Duration::from_millis(limits::WAIT_POLL_MS));
    }
}

/// Does what is due for the policies waited for, and for those of the sessions waited for. False when something
/// stays due: somebody else is at it, or it cannot be done now.
fn perform_for(ledger: &Ledger, ask: &WaitAsk, sign_end: Instant) -> Result<bool, PerformError> {
    let mut settled = true;
    for target in &ask.targets {
        let policies = match target {
            Target::Policy(id) => vec![id.clone()],
            Target::Session(id) => {
                agent::look_after(ledger, id)?;
                let session = ledger.require_session(id)?;
                settled &= !engine::is_session_due(&session);
                session.policies
            }
        };
        for id in policies {
            settled &= perform::policy_until(ledger, &id, Some(sign_end))? == Progress::Settled;
            let policy = ledger.require_policy(&id)?;
            settled &= !changes_unseen(&policy) && !has_agents(ledger, &policy)?;
        }
    }
    Ok(settled)
}

/// An agent that dies with whoever holds it tells nobody: somebody has to look.
fn has_agents(ledger: &Ledger, policy: &Policy) -> Result<bool, PerformError> {
    for id in &policy.spec.session_ids {
        if engine::is_session_due(&ledger.require_session(id)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A branch that moves, a line in a note and the time leave no trace in the journal: somebody has to look.
fn changes_unseen(policy: &Policy) -> bool {
    let open = !policy.status.is_terminal();
    matches!(policy.status, Status::Signing | Status::AwaitingAck)
        || (open && policy.spec.expires.is_some())
}

fn judge(ledger: &Ledger, ask: &WaitAsk, after: u64) -> Result<Option<Waited>, PerformError> {
    let mut ended = Vec::new();
    for target in &ask.targets {
        match standing(ledger, ask, target, after)? {
            Standing::Open => {}
            Standing::Ended { exit, condition } => ended.push((target.clone(), exit, condition)),
        }
    }
    let enough = if ask.all { ended.len() == ask.targets.len() } else { !ended.is_empty() };
    if !enough {
        return Ok(None);
    }
    // The worst of several, in the order of the specification.
    let rank = |exit: u8| {
        [exit::BROKEN, exit::NO, exit::NOT_FOUND, exit::PERSON, exit::TIME, exit::DONE]
            .iter()
            .position(|e| *e == exit)
    };
    ended.sort_by_key(|(_, exit, _)| rank(*exit));
    let Some((target, exit, condition)) = ended.into_iter().next() else { return Ok(None) };
    let event = last_event(ledger, &target)?;
    let code = match exit {
        exit::NOT_FOUND => Some(Code::CanNeverBe),
        _ => None,
    };
    Ok(Some(Waited {
        exit,
        met: exit == exit::DONE,
        target: Some(target),
        condition: Some(condition),
        event,
        code,
    }))
}

fn standing(
    ledger: &Ledger,
    ask: &WaitAsk,
    target: &Target,
    after: u64,
) -> Result<Standing, PerformError> {
    match target {
        Target::Policy(id) => {
            let policy = ledger.require_policy(id)?;
            let conditions = or_default(&ask.conditions, Condition::Settled);
            Ok(first_ended(&conditions, |c| of_policy(&policy, c, after)))
        }
        Target::Session(id) => {
            let session = ledger.require_session(id)?;
            let conditions = or_default(&ask.conditions, Condition::TurnEnd);
            let ended = ended_since(ledger, ask, &session, after)?;
            Ok(first_ended(&conditions, |c| of_session(&session, c, after, ended)))
        }
    }
}

fn or_default(conditions: &[Condition], default: Condition) -> Vec<Condition> {
    if conditions.is_empty() { vec![default] } else { conditions.to_vec() }
}

/// The first condition that is true; else the first that can never be.
fn first_ended(conditions: &[Condition], of: impl Fn(Condition) -> Option<u8>) -> Standing {
    let exits: Vec<(Condition, Option<u8>)> = conditions.iter().map(|c| (*c, of(*c))).collect();
    let met = exits.iter().find(|(_, e)| *e == Some(exit::DONE));
    let no = exits.iter().find(|(_, e)| e.is_some_and(|e| e != exit::NOT_FOUND));
    let never = exits.iter().all(|(_, e)| e.is_some()).then(|| exits.first()).flatten();
    match met.or(no).or(never) {
        Some((condition, Some(exit))) => Standing::Ended { exit: *exit, condition: *condition },
        Some((_, None)) | None => Standing::Open,
    }
}

fn of_policy(policy: &Policy, condition: Condition, after: u64) -> Option<u8> {
    let over = policy.status.is_terminal();
    let outcome = match policy.status {
        Status::Done => Some(exit::DONE),
        Status::Blocked | Status::Cancelled => Some(exit::NO),
        Status::Signing | Status::AwaitingAck => Some(exit::PERSON),
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Committing => None,
    };
    match condition {
        Condition::Settled | Condition::Done => outcome,
        Condition::Acked if policy.is_answered() => Some(exit::DONE),
        Condition::Acked if over => Some(exit::NOT_FOUND),
        Condition::Acked => None,
        Condition::Any if policy.last > after => Some(exit::DONE),
        Condition::Any if over => Some(exit::NOT_FOUND),
        Condition::Any => None,
        Condition::TurnEnd | Condition::AwaitingInput | Condition::Exited | Condition::Idle => {
            Some(exit::NOT_FOUND)
        }
    }
}

fn of_session(session: &Session, condition: Condition, after: u64, ended: bool) -> Option<u8> {
    let running = session.turn_state == Turn::Running;
    let met = match condition {
        Condition::TurnEnd => ended,
        Condition::AwaitingInput => !session.open_requests.is_empty(),
        Condition::Exited => session.is_exited(),
        Condition::Idle => !running,
        Condition::Any => session.last > after,
        Condition::Settled | Condition::Done | Condition::Acked => return Some(exit::NOT_FOUND),
    };
    match (met, session.is_exited()) {
        (true, _) => Some(exit::DONE),
        (false, true) => Some(exit::NOT_FOUND),
        (false, false) => None,
    }
}

/// True when a turn ended since; without a position, when the session is idle after a turn.
fn ended_since(
    ledger: &Ledger,
    ask: &WaitAsk,
    session: &Session,
    after: u64,
) -> Result<bool, PerformError> {
    if ask.since.is_none() {
        return Ok(session.turn_end_seq() > 0);
    }
    if session.turn_end_seq() > after {
        return Ok(true);
    }
    let query = Query {
        since: Some(Since::Seq(after)),
        kinds: vec!["session:turn-end".to_owned()],
        sessions: vec![session.session_id.clone()],
        policies: vec![],
        limit: 1,
    };
    Ok(!ledger.events(&query)?.events.is_empty())
}

fn last_event(ledger: &Ledger, target: &Target) -> Result<Option<Seen>, PerformError> {
    let seq = match target {
        Target::Policy(id) => ledger.require_policy(id)?.last,
        Target::Session(id) => ledger.require_session(id)?.last,
    };
    Ok(ledger.at_seq(seq)?)
}

fn out_of_time(ledger: &Ledger, ask: &WaitAsk) -> Result<Waited, PerformError> {
    let target = ask.targets.first().cloned();
    let event = target.as_ref().map(|t| last_event(ledger, t)).transpose()?.flatten();
    Ok(Waited {
        exit: exit::TIME,
        met: false,
        target,
        condition: ask.conditions.first().copied(),
        event,
        code: Some(Code::Timeout),
    })
}

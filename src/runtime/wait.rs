//! Waiting until something is true, without missing it.
//!
//! Contract: the position in the journal is taken before the state is read, so nothing falls between; what is
//! true already ends the wait at once. A waiter performs what others left to do, so one in the background is
//! enough of a daemon; where its time was set, gates get a performer of their own, which that time does not end.
//! While nothing happens it sleeps. It ends with the `git` wrapper that started it.

mod outside;
mod table;

use super::{
    agent,
    perform::{self, Gates, PerformError},
    watch::{Watch, Woken},
};
use crate::{
    code::{Code, exit},
    domain::{
        cursor::Since,
        ids::{PolicyId, SessionId},
        session::Session,
    },
    ledger::{Ledger, Query, Seen},
    limits,
};
use outside::Outside;
use std::time::{Duration, Instant};
use table::Standing;

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
    /// Who performs the gates that are due.
    pub gates: Gates,
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

/// Waits; `say` takes a warning there may be.
///
/// # Errors
/// An unknown target or cursor; a store that cannot be read.
pub fn wait(ledger: &Ledger, ask: &WaitAsk, say: &dyn Fn(&str)) -> Result<Waited, PerformError> {
    let after = match &ask.since {
        Some(since) => ledger.position(since)?,
        None => ledger.tip()?.map_or(0, |t| t.seq),
    };
    let after_ms = |ms| Instant::now() + Duration::from_millis(ms);
    let end = after_ms(ask.timeout_ms);
    // An agent that is there answers at once, however little time there is.
    let sign_end = after_ms(ask.timeout_ms.max(limits::SIGN_LEAST_MS));
    let mut watch = Watch::begin(ledger, say);
    let mut outside = Outside::default();
    let mut judged_at = None;
    loop {
        watch.look()?;
        let tip = ledger.tip()?.map(|t| t.id);
        if judged_at != Some(tip) || outside.calls()? {
            outside = perform_for(ledger, ask, sign_end)?;
            // What is recorded from here on is looked at again, be it by ourselves.
            judged_at = Some(tip);
            if let Some(waited) = judge(ledger, ask, after, false)? {
                return Ok(waited);
            }
        }
        let until = outside.next_look().map_or(end, |at| at.min(end));
        match watch.wait(until, None)? {
            Woken::Perhaps => {}
            Woken::Time if Instant::now() < end => {}
            Woken::Time | Woken::Orphaned | Woken::Unread => {
                let waited = judge(ledger, ask, after, true)?;
                return Ok(waited.unwrap_or_else(nothing));
            }
        }
    }
}

/// Does what is due for the policies waited for, and for those of the sessions waited for. Answers what has to be looked
/// at though the journal does not change.
fn perform_for(ledger: &Ledger, ask: &WaitAsk, sign_end: Instant) -> Result<Outside, PerformError> {
    let mut outside = Outside::default();
    for target in &ask.targets {
        let policies = match target {
            Target::Policy(id) => vec![id.clone()],
            Target::Session(id) => {
                agent::look_after(ledger, id)?;
                let session = ledger.require_session(id)?;
                outside.session(ledger, &session)?;
                session.policies
            }
        };
        for id in policies {
            let progress = perform::policy_until(ledger, &id, Some(sign_end), ask.gates)?;
            let policy = ledger.require_policy(&id)?;
            outside.policy(ledger, &policy, &progress)?;
            for id in &policy.spec.session_ids {
                outside.session(ledger, &ledger.require_session(id)?)?;
            }
        }
    }
    outside.begin()?;
    Ok(outside)
}

/// How it stands; `None` when it goes on. At the end of the time those that are open count as late.
fn judge(
    ledger: &Ledger,
    ask: &WaitAsk,
    after: u64,
    at_end: bool,
) -> Result<Option<Waited>, PerformError> {
    let mut all = Vec::new();
    for target in &ask.targets {
        all.push((target, standing(ledger, ask, target, after)?));
    }
    let Some((target, exit, condition)) = table::of_several(&all, ask.all, at_end) else {
        return Ok(None);
    };
    let code = match exit {
        exit::NOT_FOUND => Some(Code::CanNeverBe),
        exit::TIME => Some(Code::Timeout),
        _ => None,
    };
    let event = last_event(ledger, target)?;
    let met = exit == exit::DONE;
    Ok(Some(Waited {
        exit,
        met,
        target: Some((*target).clone()),
        condition: Some(condition),
        event,
        code,
    }))
}

/// Nobody was waited for.
fn nothing() -> Waited {
    let code = Some(Code::Timeout);
    Waited { exit: exit::TIME, met: false, target: None, condition: None, event: None, code }
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
            Ok(table::of_conditions(&conditions, |c| table::of_policy(&policy, c, after)))
        }
        Target::Session(id) => {
            let session = ledger.require_session(id)?;
            let conditions = or_default(&ask.conditions, Condition::TurnEnd);
            let ended = ended_since(ledger, ask, &session, after)?;
            Ok(table::of_conditions(&conditions, |c| table::of_session(&session, c, after, ended)))
        }
    }
}

fn or_default(conditions: &[Condition], default: Condition) -> Vec<Condition> {
    if conditions.is_empty() { vec![default] } else { conditions.to_vec() }
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

//! Performing: what the engine asks of the world, done.
//!
//! Contract: every effect is worked out again from the journal, so nothing is lost when a performer dies. One
//! effect has one performer at a time: a kernel lock on its live file decides, and a taker first ends what a
//! dead one left behind. Notes are written last and again by every performer that touches the policy. A performer that
//! is done clears away what the dead left of effects that are over.

mod error;
mod gates;
mod hooks;
mod land;
mod notes;
mod queue;
mod sign;
mod subject;

pub use error::PerformError;
pub use sign::with_person as sign_with_person;

use crate::{
    code::Code,
    domain::{
        ids::PolicyId,
        policy::{Policy, Status},
    },
    engine::{self, Effect},
    ledger::{Ledger, Recording},
    limits,
    runtime::{agent, live},
    sys::{
        env, exec,
        spawn::{Call, SpawnError},
        trace,
    },
};
use std::{
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

/// Hidden command of a detached performer.
pub const COMMAND: &str = "__perform";

/// How far a performer got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is due any more.
    Settled,
    /// Another process performs it at this moment.
    Held {
        /// Who.
        owner: String,
    },
    /// It cannot go on now; the next performer tries again.
    Waiting {
        /// The stable code.
        code: Code,
        /// Why.
        because: String,
    },
}

/// Who runs the gates that are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gates {
    /// Who finds them due.
    Here,
    /// A performer of their own, which goes on when who found them due has no more time.
    HandedOver,
}

/// What became of one effect.
enum Step {
    /// It is done and changed no state.
    Done,
    /// The state of the policy may be another now.
    Again,
    /// As [`Progress`].
    Stop(Progress),
}

/// Does everything that is due for a policy, and for the one that follows when it is done.
///
/// # Errors
/// The store failed, or the world could not be asked. What was recorded before stays recorded.
pub fn policy(ledger: &Ledger, id: &PolicyId) -> Result<Progress, PerformError> {
    policy_until(ledger, id, None, Gates::Here)
}

/// As [`policy`], but what waits to be signed is tried only before `end`, and no longer than until then, and gates are for
/// others where that is said.
///
/// # Errors
/// As there.
pub fn policy_until(
    ledger: &Ledger,
    id: &PolicyId,
    end: Option<Instant>,
    gates: Gates,
) -> Result<Progress, PerformError> {
    finish_dead_landings(ledger, id);
    let mut looked = false;
    let mut tried = false;
    loop {
        let policy = ledger.require_policy(id)?;
        if let Some(recording) = ledger.keep_up(&policy)? {
            stop_gates(ledger, &policy, &recording)?;
            continue;
        }
        // Once a call: who keeps appending to the note keeps nobody here.
        if !std::mem::replace(&mut looked, true) && ledger.take_answers(&policy)? {
            continue;
        }
        for session in &policy.spec.session_ids {
            agent::look_after(ledger, session)?;
        }
        let mut again = false;
        for effect in engine::due(&policy) {
            // Once a call, too: a run of gates ends with a try.
            let signs = matches!(effect, Effect::Sign { .. });
            if signs && (tried || end.is_some_and(|end| Instant::now() >= end)) {
                continue;
            }
            tried |= signs || matches!(effect, Effect::RunGates { .. });
            let _step = trace::step(|| format!("perform {effect:?}"));
            let step = match one(ledger, &policy, &effect, (end, gates)) {
                // A note that cannot be written holds up no landing; the policy asks for it again when it is done.
                Err(_) if policy.status == Status::Committing && effect.is_note() => Step::Done,
                other => other?,
            };
            match step {
                Step::Done => {}
                Step::Again => again = true,
                Step::Stop(progress) => return Ok(progress),
            }
        }
        if !again {
            sweep(ledger);
            // As deep as policies are nested, at most.
            return match policy.followed_by() {
                Some(next) => policy_until(ledger, next, end, gates),
                None => Ok(Progress::Settled),
            };
        }
    }
}

/// Finishes, or takes back, what `kill -9` left of other policies' landings: the index lock of a dead one is in the way of
/// everybody, git included, and nobody may come back for that policy. What cannot be done now is its own performer's
/// to tell.
fn finish_dead_landings(ledger: &Ledger, id: &PolicyId) {
    let agent_dir = ledger.store().location().agent_dir();
    for name in live::names(&agent_dir).unwrap_or_default() {
        let other = name.strip_prefix(land::LIVE).and_then(|other| other.parse::<PolicyId>().ok());
        let Some(other) = other.filter(|other| other != id) else { continue };
        if let Ok(policy) = ledger.require_policy(&other)
            && policy.status == Status::Committing
        {
            let _ = land::land(ledger, &policy);
        }
    }
}

/// Ends the gates of a policy that ended while they ran.
fn stop_gates(ledger: &Ledger, policy: &Policy, recording: &Recording) -> Result<(), PerformError> {
    for effect in &recording.effects {
        if matches!(effect, Effect::KillGates { .. }) {
            one(ledger, policy, effect, (None, Gates::Here))?;
        }
    }
    Ok(())
}

fn one(
    ledger: &Ledger,
    policy: &Policy,
    effect: &Effect,
    (end, gates): (Option<Instant>, Gates),
) -> Result<Step, PerformError> {
    match effect {
        Effect::RunGates { attempt, .. } => match gates {
            Gates::Here => gates::run(ledger, policy, *attempt),
            Gates::HandedOver => hand_over(ledger, policy, *attempt),
        },
        Effect::Sign { attempt, .. } => sign::alone(ledger, policy, *attempt, end),
        Effect::Land { .. } => land::land(ledger, policy),
        Effect::NoteGates { .. } => notes::gates(ledger, policy),
        Effect::NoteAcks { .. } => notes::acks(ledger, policy),
        Effect::KillGates { attempt, .. } => {
            let key = engine::gate_key(&policy.policy_id, *attempt);
            live::request_cancel(&ledger.store().location().agent_dir(), &key)?;
            Ok(Step::Done)
        }
    }
}

/// Has the gates of an attempt run by a performer of their own, and returns when somebody is at them.
fn hand_over(ledger: &Ledger, policy: &Policy, attempt: u32) -> Result<Step, PerformError> {
    let agent_dir = ledger.store().location().agent_dir();
    let key = engine::gate_key(&policy.policy_id, attempt);
    let held = || live::is_held(&agent_dir, &key);
    let by = |owner: &str| Step::Stop(Progress::Held { owner: owner.to_owned() });
    if held()? {
        return Ok(by("another process"));
    }
    detach(ledger, &policy.policy_id)?;
    let end = Instant::now() + Duration::from_millis(limits::HAND_OVER_MS);
    loop {
        if held()? {
            return Ok(by("a performer of its own"));
        }
        let now = ledger.require_policy(&policy.policy_id)?;
        if now.attempt != attempt || !matches!(now.status, Status::Gating | Status::Queued) {
            return Ok(Step::Again);
        }
        if Instant::now() >= end {
            let because = "the performer that was started for its gates did not begin".to_owned();
            return Ok(Step::Stop(Progress::Waiting { code: Code::Timeout, because }));
        }
        thread::sleep(Duration::from_millis(limits::WAIT_LEAST_MS));
    }
}

/// Clears away what `kill -9` left of effects that nobody performs again: what is due is its performer's to take.
/// No reason for this policy to fail: what cannot be told or cleared is left, for `fsck` to name and `gc` to try.
fn sweep(ledger: &Ledger) {
    ledger.clear_leftovers();
    ledger.forget_places();
    let agent_dir = ledger.store().location().agent_dir();
    for name in live::names(&agent_dir).unwrap_or_default() {
        if is_over(ledger, &name) {
            let _ = live::clear_abandoned(&agent_dir, &name);
        }
    }
}

/// True when the effect of a live file is due no more. Looked at after its file was seen, so it cannot be that the
/// effect was asked for in between.
fn is_over(ledger: &Ledger, name: &str) -> bool {
    let id = name.split('.').nth(1).and_then(|id| id.parse::<PolicyId>().ok());
    let policy = id.and_then(|id| ledger.require_policy(&id).ok());
    policy.is_some_and(|policy| {
        !engine::due(&policy).iter().any(|effect| live_name(effect).as_deref() == Some(name))
    })
}

/// Names of the live files of what is due for a policy.
#[must_use]
pub fn live_names(policy: &Policy) -> Vec<String> {
    engine::due(policy).iter().filter_map(live_name).collect()
}

/// Name of the live file of an effect; notes need none.
fn live_name(effect: &Effect) -> Option<String> {
    match effect {
        Effect::RunGates { policy, attempt } | Effect::KillGates { policy, attempt } => {
            Some(engine::gate_key(policy, *attempt))
        }
        Effect::Sign { policy, attempt } => Some(engine::sign_key(policy, *attempt)),
        Effect::Land { policy } => Some(land::live_name(policy)),
        Effect::NoteGates { .. } | Effect::NoteAcks { .. } => None,
    }
}

/// True when somebody has to do something for this policy.
#[must_use]
pub fn is_due(policy: &Policy) -> bool {
    engine::due(policy)
        .iter()
        .any(|effect| matches!(effect, Effect::RunGates { .. } | Effect::Land { .. }))
}

/// Starts a performer for this policy that outlives this process.
///
/// # Errors
/// It cannot be started.
pub fn detach(ledger: &Ledger, id: &PolicyId) -> Result<(), PerformError> {
    let program = env::own_program().map_err(PerformError::OwnProgram)?;
    let call = Call {
        program,
        args: vec![COMMAND.into(), id.as_str().into()],
        cwd: cwd(ledger),
        env: ledger.env().vars().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        stdin: vec![],
        deadline_ms: 0,
    };
    exec::start_detached(&call)
        .map_err(|source| SpawnError::Start { program: call.program, source }.into())
}

fn cwd(ledger: &Ledger) -> PathBuf {
    let location = ledger.store().location();
    location.worktree.as_ref().map_or_else(|| location.common_dir.clone(), |w| w.top.clone())
}

//! Agents that we run: begun, watched, told what there is to tell, and ended.
//!
//! Contract: an agent has one holder at a time, who has its live file locked from before a turn is recorded as begun until
//! its end is recorded. So a turn that runs in the journal while nobody holds the agent is over, and how is not known; it is
//! never run a second time. One that was recorded as begun and of which its live file says that nothing was started is
//! begun again: what was to be said is said. Whoever records a prompt makes sure that somebody holds the agent; a holder
//! looks once more after it let go.

mod end;
mod host;
mod interrupt;
mod nudge;

pub use end::{end_run, kill};
pub use host::{Hosted, host, host_until_idle};
pub use interrupt::{Guard, HeldBack};

use super::{
    live::{self, Acquired, Left, Live},
    perform::PerformError,
};
use crate::{
    code::Code,
    domain::{
        ids::SessionId,
        input::AgentEnd,
        session::{Exit, Process, Session},
    },
    engine,
    ledger::{Ledger, LedgerError},
    limits,
    sys::{
        env, exec,
        process::ProcessId,
        spawn::{Call, SpawnError},
    },
};
use std::path::PathBuf;

/// Hidden command of a detached holder.
pub const COMMAND: &str = "__session";
/// Set in everything that an agent of ours starts.
const SESSION_VARIABLE: &str = "AGENTPROTO_SESSION_ID";

/// Sees to it that what is due for a session is done by somebody: a lost run is recorded as such, one that is to end is
/// ended, and a turn that is to begin gets a holder of its own, which outlives this process.
///
/// # Errors
/// The store failed, or processes cannot be looked at or started.
pub fn look_after(ledger: &Ledger, id: &SessionId) -> Result<(), PerformError> {
    let session = ledger.require_session(id)?;
    if session.launch.is_none() || session.is_exited() {
        return Ok(());
    }
    let to_begin = match session.process {
        Process::Alive => {
            let begun = !take_stock(ledger, &session)?;
            if begun && (session.stopping || session.interrupting) {
                end_run(ledger, &session, limits::AGENT_KILL_GRACE_MS, &|| false)?;
            }
            !begun && ledger.require_session(id)?.process == Process::Alive
        }
        Process::Idle => engine::is_turn_due(&session),
        Process::Unknown | Process::Exited(_) => false,
    };
    if (to_begin || is_turn_due_now(ledger, id)?) && !is_held(ledger, id)? {
        detach(ledger, id)?;
    }
    Ok(())
}

fn is_turn_due_now(ledger: &Ledger, id: &SessionId) -> Result<bool, PerformError> {
    Ok(engine::is_turn_due(&ledger.require_session(id)?))
}

/// Looks at a run that the journal knows to go on, while nobody holds it: true when it was taken for lost, or is to be begun
/// again; false when somebody is at it, be it that the agent itself asks.
fn take_stock(ledger: &Ledger, session: &Session) -> Result<bool, PerformError> {
    if ledger.env().get(SESSION_VARIABLE).is_some_and(|id| id == session.session_id.as_str()) {
        return Ok(false);
    }
    let live = match live::acquire(&agent_dir(ledger), &engine::agent_key(&session.session_id))? {
        Acquired::Mine(live) => live,
        Acquired::Busy { .. } => return Ok(false),
    };
    end_unknown(&live, session)?;
    if live.left() == Left::NothingStarted {
        live.leave();
        return Ok(true);
    }
    record_lost(ledger, &session.session_id)?;
    Ok(true)
}

/// Ends a run of which nothing is written down any more: who removes the live files of this machine leaves its agents at
/// work where nobody finds them. To be called by who holds the agent.
fn end_unknown(live: &Live, session: &Session) -> Result<(), PerformError> {
    if live.left() == Left::Nothing {
        let entry = format!("{SESSION_VARIABLE}={}", session.session_id);
        live::end_started_with(&engine::agent_key(&session.session_id), &entry)?;
    }
    Ok(())
}

/// Records that a run is over of which nobody knows how. To be called by who holds the agent.
fn record_lost(ledger: &Ledger, id: &SessionId) -> Result<(), PerformError> {
    // Whoever held it before may have told of its end.
    let session = ledger.require_session(id)?;
    if session.process != Process::Alive {
        return Ok(());
    }
    let because = Some("whoever ran it is gone, and so is it".to_owned());
    let end = AgentEnd { exit: Exit::Unknown, inferred: true, interrupted: false, because };
    told(ledger.run_ended(&session, end).map(|_| ()))
}

/// What was told by somebody else meanwhile needs not be told again.
fn told(done: Result<(), LedgerError>) -> Result<(), PerformError> {
    match done {
        Err(LedgerError::Refused(refusal)) if refusal.code == Code::Terminal => Ok(()),
        other => Ok(other?),
    }
}

/// The main process of the run of an agent at this moment; none when none is known.
#[must_use]
pub fn main_process(ledger: &Ledger, id: &SessionId) -> Option<ProcessId> {
    live::record(&agent_dir(ledger), &engine::agent_key(id))?.main
}

/// True while somebody holds the agent.
///
/// # Errors
/// Its live file cannot be looked at.
pub fn is_held(ledger: &Ledger, id: &SessionId) -> Result<bool, PerformError> {
    Ok(live::is_held(&agent_dir(ledger), &engine::agent_key(id))?)
}

/// Starts a holder that outlives this process.
///
/// # Errors
/// It cannot be started.
pub fn detach(ledger: &Ledger, id: &SessionId) -> Result<(), PerformError> {
    let location = ledger.store().location();
    let here = location.worktree.as_ref().map(|w| w.top.clone());
    let call = Call {
        program: env::own_program().map_err(PerformError::OwnProgram)?,
        args: vec![COMMAND.into(), id.as_str().into()],
        cwd: here.unwrap_or_else(|| location.common_dir.clone()),
        env: ledger.env().vars().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        stdin: vec![],
        deadline_ms: 0,
    };
    exec::start_detached(&call)
        .map_err(|source| SpawnError::Start { program: call.program, source }.into())
}

fn agent_dir(ledger: &Ledger) -> PathBuf {
    ledger.store().location().agent_dir()
}

//! Ending a run: asked first, killed when that does not help, and gone before anybody says so.

use super::{agent_dir, is_held, take_stock};
use crate::{
    domain::{
        ids::SessionId,
        session::{Process, Session},
    },
    engine,
    ledger::Ledger,
    limits,
    runtime::{live, perform::PerformError},
    sys::process::{self, Liveness, ProcessId},
};
use rustix::process::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How often it is looked whether a run is over.
const POLL: Duration = Duration::from_millis(20);

/// Ends the present turn of an agent: SIGTERM to everything that belongs to it, SIGKILL `grace_ms` later, or as soon as
/// there is a hurry. Returns when its runner is gone, and with it everything. A turn that follows is left alone.
///
/// # Errors
/// It cannot be identified, or outlives SIGKILL.
pub fn end_run(
    ledger: &Ledger,
    session: &Session,
    grace_ms: u64,
    hurry: &dyn Fn() -> bool,
) -> Result<(), PerformError> {
    let end = Instant::now() + Duration::from_millis(grace_ms);
    let Some(runner) = runner_of(ledger, session)? else { return Ok(()) };
    let (dir, key) = (agent_dir(ledger), engine::agent_key(&session.session_id));
    let lost = |source| live::LiveError::Processes { effect: key.clone(), source };
    let mut told = false;
    while Instant::now() < end && !hurry() && process::alive(&runner) == Liveness::Alive {
        if !told {
            let below = process::descendants(runner.pid).map_err(lost)?;
            told = !below.is_empty();
            for one in below {
                // What may not be signalled, or is gone by now, is the runner's to deal with. What is stopped hears nothing.
                let _ = process::send(&one, Signal::TERM);
                let _ = process::send(&one, Signal::CONT);
            }
        }
        thread::sleep(POLL);
    }
    Ok(live::end_runner(&dir, &key, &runner)?)
}

/// The runner of that very turn, also of one that is about to be started; none when the turn is over, or nobody is at it.
fn runner_of(ledger: &Ledger, session: &Session) -> Result<Option<ProcessId>, PerformError> {
    let id = &session.session_id;
    let longest = Duration::from_millis(limits::CANCEL_WAIT_MS);
    let end = Instant::now() + longest;
    loop {
        // Read before the journal is: a runner that was there while the turn ran is the one of that turn.
        let record = live::record(&agent_dir(ledger), &engine::agent_key(id));
        let now = ledger.require_session(id)?;
        if now.process != Process::Alive || now.turn != session.turn {
            return Ok(None);
        }
        let runner = record.and_then(|record| record.runner);
        if runner.is_some() || !is_held(ledger, id)? {
            return Ok(runner);
        }
        if Instant::now() >= end {
            return Err(still_running(id).into());
        }
        thread::sleep(POLL);
    }
}

fn still_running(id: &SessionId) -> live::LiveError {
    let effect = engine::agent_key(id);
    live::LiveError::StillRunning { effect, waited_ms: limits::CANCEL_WAIT_MS }
}

/// Ends a session that is to end, and returns when the journal says that it is over.
///
/// # Errors
/// As [`end_run`]; its end is not told in time.
pub fn kill(
    ledger: &Ledger,
    id: &SessionId,
    grace_ms: u64,
    hurry: &dyn Fn() -> bool,
) -> Result<Session, PerformError> {
    let longest = Duration::from_millis(limits::CANCEL_WAIT_MS);
    let mut end = None;
    loop {
        let session = ledger.require_session(id)?;
        if session.is_exited() || session.process != Process::Alive {
            return Ok(session);
        }
        // Nobody at it: then it is over, and that is recorded here.
        if take_stock(ledger, &session)? {
            continue;
        }
        let Some(end) = end else {
            end_run(ledger, &session, grace_ms, hurry)?;
            end = Some(Instant::now() + longest);
            continue;
        };
        wake_holder(ledger, id);
        if Instant::now() >= end {
            return Err(still_running(id).into());
        }
        thread::sleep(POLL);
    }
}

/// Lets a holder go on that was stopped, by a person at its terminal or by its own agent: it has an end to tell.
fn wake_holder(ledger: &Ledger, id: &SessionId) {
    let record = live::record(&agent_dir(ledger), &engine::agent_key(id));
    if let Some(record) = record {
        // One that is gone is found to be so by the next look.
        let _ = process::send(&record.owner, Signal::CONT);
    }
}

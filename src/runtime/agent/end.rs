//! Ending a run: asked first, killed when that does not help, and gone before anybody says so.

use super::{agent_dir, take_stock};
use crate::{
    domain::{
        ids::SessionId,
        session::{Process, Session},
    },
    engine,
    ledger::Ledger,
    limits,
    runtime::{
        live::{self, Cancelled},
        perform::PerformError,
    },
    sys::process::{self, Liveness},
};
use rustix::process::Signal;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How often it is looked whether a run is over.
const POLL: Duration = Duration::from_millis(20);

/// Ends the present run of an agent: SIGTERM to everything that belongs to it, SIGKILL `grace_ms` later. Returns when its
/// runner is gone, and with it everything.
///
/// # Errors
/// It cannot be identified, or outlives SIGKILL.
pub fn end_run(ledger: &Ledger, session: &Session, grace_ms: u64) -> Result<(), PerformError> {
    let (dir, key) = (agent_dir(ledger), engine::agent_key(&session.session_id));
    let end = Instant::now() + Duration::from_millis(grace_ms);
    let runner = live::record(&dir, &key).and_then(|record| record.runner);
    // A number alone may be somebody else's by now.
    if let Some(runner) = runner.filter(|runner| process::alive(runner) == Liveness::Alive) {
        let lost = |source| live::LiveError::Processes { effect: key.clone(), source };
        for one in process::descendants(runner.pid).map_err(lost)? {
            // What may not be signalled, or is gone by now, is the runner's to deal with.
            let _ = process::send(&one, Signal::TERM);
        }
        while Instant::now() < end && process::alive(&runner) == Liveness::Alive {
            thread::sleep(POLL);
        }
    }
    match live::request_cancel(&dir, &key)? {
        Cancelled::Ended | Cancelled::NotRunning => Ok(()),
    }
}

/// Ends a session that is to end, and returns when the journal says that it is over.
///
/// # Errors
/// As [`end_run`]; its end is not told in time.
pub fn kill(ledger: &Ledger, id: &SessionId, grace_ms: u64) -> Result<Session, PerformError> {
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
            end_run(ledger, &session, grace_ms)?;
            end = Some(Instant::now() + longest);
            continue;
        };
        if Instant::now() >= end {
            let effect = engine::agent_key(id);
            let waited_ms = limits::CANCEL_WAIT_MS;
            return Err(live::LiveError::StillRunning { effect, waited_ms }.into());
        }
        thread::sleep(POLL);
    }
}

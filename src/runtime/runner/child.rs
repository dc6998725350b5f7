//! The runner's side of the conversation: takes its one order, records itself, answers once.
//!
//! Contract: it answers after its last child is gone; without an owner it answers nobody, but still kills.

use super::{
    Ran, RunSpec,
    message::{LiveRef, Reply, Request},
    tree::{News, supervise},
};
use crate::{
    runtime::live,
    sys::{
        exec,
        process::{self, ProcessId},
        signals,
    },
};
use rustix::process::Signal;
use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    process::ExitCode,
};

/// Signals the runner waits for: news of its children, and every usual way to ask a process to end.
pub(super) const HEEDED: [Signal; 5] =
    [Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

/// The hidden command `__runner`: reads its order from stdin, answers on stdout.
#[must_use]
pub fn runner_main() -> ExitCode {
    let (stdin, stdout) =
        (io::stdin().as_fd().try_clone_to_owned(), io::stdout().as_fd().try_clone_to_owned());
    match (stdin, stdout) {
        (Ok(stdin), Ok(stdout)) => serve(stdin, stdout),
        (Err(_), _) | (_, Err(_)) => ExitCode::FAILURE,
    }
}

/// Serves one order read from `from`, whose end means that the owner died, and answers into `to`.
pub(super) fn serve(from: OwnedFd, to: OwnedFd) -> ExitCode {
    let reply = match serve_order(from) {
        Ok(Some(ran)) => Reply::Ran(Box::new(ran)),
        Ok(None) => return ExitCode::FAILURE,
        Err(error) => Reply::Failed(error.to_string()),
    };
    let written = serde_json::to_vec(&reply).map(|line| File::from(to).write_all(&line));
    if matches!(written, Ok(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `None` when the owner died: there is nobody to answer.
fn serve_order(from: OwnedFd) -> io::Result<Option<Ran>> {
    // Before anything is started and before the record names us: from here on nobody can be lost and
    // no request to end can hit the default action.
    process::become_subreaper()?;
    let signals = signals::receive(&HEEDED)?;
    exec::close_on_exec()?;
    let mut from = BufReader::new(File::from(from));
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    let (spec, mut live) = serde_json::from_slice::<Request>(&line)?.into_parts();
    let file = open_live(&live)?;
    let me = process::own()?;
    live.record.runner = Some(me.clone());
    live::write(&file, &live.record)?;
    let started = |main: ProcessId| {
        live.record.main = Some(main);
        live::write(&file, &live.record)
    };
    let news = News { owner: from.get_ref().as_fd(), signals: &signals };
    supervise(&with_mark(spec, &me), &news, started)
}

/// Opens the live file for writing, if the lock that was handed down is the lock on that file.
#[expect(clippy::disallowed_methods, reason = "its own record, through a lock handed down")]
fn open_live(live: &LiveRef) -> io::Result<File> {
    let file = File::options().write(true).open(live.path())?;
    let handed = fs::metadata(format!("/proc/self/fd/{}", live.fd))?;
    let there = file.metadata()?;
    if (handed.dev(), handed.ino()) == (there.dev(), there.ino()) {
        Ok(file)
    } else {
        // Recorded under a ref in the end, hence without the path.
        Err(io::Error::other("the live file is not the one that is locked"))
    }
}

fn with_mark(mut spec: RunSpec, me: &ProcessId) -> RunSpec {
    let (name, value) = live::mark(me);
    spec.env.push((name.into(), value.into()));
    spec
}

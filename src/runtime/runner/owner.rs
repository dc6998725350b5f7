//! The owner's side: starts the runner, hands it the work, waits for its one answer.
//!
//! Contract: the runner keeps the deadline of the program, the owner keeps one of its own for the runner. A
//! program can stop or kill its runner, it is its parent and of the same user: whoever gives no answer is
//! killed, with everything that was started under it, and what it ran counts as broken. An agent has no deadline worth
//! waiting for: its runner is woken again and again.

use super::{
    COMMAND, Ran, RunSpec,
    message::{LiveRef, Reply, Request},
};
use crate::{
    code::Code,
    limits,
    runtime::live::{Live, LiveError},
    sys::{
        exec,
        process::{self, ProcessId},
        spawn::Call,
        trace,
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::Signal,
};
use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, ExitStatus},
    time::{Duration, Instant},
};

/// Lowest number of the descriptor passed on: low ones are redirected by habit.
const LOCK_FD_MIN: i32 = 10;

/// How often a runner is woken whose deadline is far.
const WAKE: Duration = Duration::from_secs(1);

/// The run says nothing about the program: the machinery around it failed.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// A path that must be absolute is not.
    #[error("not an absolute path: {0}")]
    NotAbsolute(PathBuf),
    /// The runner did not start.
    #[error("cannot start the runner of {effect}: {source}")]
    Start {
        /// What it was to run.
        effect: String,
        /// Why not.
        source: io::Error,
    },
    /// Talking to the runner failed.
    #[error("lost track of the runner of {effect}: {source}")]
    Talk {
        /// What it ran.
        effect: String,
        /// Why.
        source: io::Error,
    },
    /// The runner ended without a result.
    #[error("the runner of {effect} ended without a result: {status}")]
    Died {
        /// What it ran.
        effect: String,
        /// How.
        status: ExitStatus,
    },
    /// The runner gave no answer in time and was killed.
    #[error("the runner of {effect} gave no result within {waited_ms} ms and was killed")]
    Silent {
        /// What it ran.
        effect: String,
        /// How long it was given.
        waited_ms: u64,
    },
    /// The runner is gone, and what it left may not be.
    #[error("the runner of {effect} is gone: {source}")]
    Left {
        /// What it ran.
        effect: String,
        /// What could not be cleared away; never a trouble with files.
        source: LiveError,
    },
    /// The runner gave up.
    #[error("the runner of {effect} failed: {because}")]
    Failed {
        /// What it ran.
        effect: String,
        /// Its words.
        because: String,
    },
}

impl RunnerError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NotAbsolute(_) => Code::Internal,
            Self::Start { .. }
            | Self::Talk { .. }
            | Self::Died { .. }
            | Self::Silent { .. }
            | Self::Left { .. }
            | Self::Failed { .. } => Code::RunnerFailed,
        }
    }
}

/// Runs a program to its end under a runner; returns when nothing of its tree is left.
///
/// `own_exe` is the absolute path of this binary. A program that cannot be started is a result
/// ([`super::Ended::NotStarted`]), not an error.
///
/// # Errors
/// The runner cannot be started, dies, gives no answer in time or cannot do its work: then nothing is known
/// about the program, but nothing of it is left either ([`RunnerError::Left`] if that cannot be said).
pub fn run(live: &Live, own_exe: &Path, spec: &RunSpec) -> Result<Ran, RunnerError> {
    let _step = trace::step(|| {
        let words = std::iter::once(spec.program.to_string_lossy())
            .chain(spec.args.iter().map(|arg| arg.to_string_lossy()));
        format!("under a runner: {}", shell_words::join(words))
    });
    let own = limits::GATE_KILL_GRACE_MS + limits::TREE_KILL_MS + limits::RUNNER_MARGIN_MS;
    run_within(live, own_exe, spec, spec.timeout_ms.saturating_add(own))
}

/// [`run`] with the runner's own deadline in milliseconds.
pub(super) fn run_within(
    live: &Live,
    own_exe: &Path,
    spec: &RunSpec,
    waited_ms: u64,
) -> Result<Ran, RunnerError> {
    let (mut runner, order) = start(live, own_exe, spec)?;
    // None when it died already, or cannot be looked at: then the record it wrote has to do.
    let known = process::of_pid(runner.id()).ok().flatten();
    let wakes = if spec.ring.is_some() { known.as_ref() } else { None };
    let answer = converse(&mut runner, &order, Duration::from_millis(waited_ms), wakes);
    let ran = understand(&mut runner, answer, &spec.effect, waited_ms);
    if ran.is_err() {
        clear(live, known, &mut runner, &spec.effect)?;
    }
    ran
}

fn understand(
    runner: &mut Child,
    answer: io::Result<Option<Vec<u8>>>,
    effect: &str,
    waited_ms: u64,
) -> Result<Ran, RunnerError> {
    let effect = || effect.to_owned();
    let talk = |source| RunnerError::Talk { effect: effect(), source };
    let Some(bytes) = answer.map_err(talk)? else {
        return Err(RunnerError::Silent { effect: effect(), waited_ms });
    };
    // Its answer ended because it did; only the status tells a silent death from a broken pipe.
    let status = runner.wait().map_err(talk)?;
    if bytes.is_empty() {
        return Err(RunnerError::Died { effect: effect(), status });
    }
    match serde_json::from_slice(&bytes).map_err(|error| talk(error.into()))? {
        Reply::Ran(ran) => Ok(*ran),
        Reply::Failed(because) => Err(RunnerError::Failed { effect: effect(), because }),
    }
}

/// Ends what a runner that failed may have left, and the runner itself, whatever state it is in.
fn clear(
    live: &Live,
    known: Option<ProcessId>,
    runner: &mut Child,
    effect: &str,
) -> Result<(), RunnerError> {
    // While the runner lives its descendants can be told by their ancestry: all of them first.
    let cleared = live.clear(known);
    let lost = |source| RunnerError::Talk { effect: effect.to_owned(), source };
    runner.kill().map_err(lost)?;
    runner.wait().map_err(lost)?;
    cleared.map_err(|source| RunnerError::Left { effect: effect.to_owned(), source })
}

/// Starts the runner, and says which line it waits for.
pub(super) fn start(
    live: &Live,
    own_exe: &Path,
    spec: &RunSpec,
) -> Result<(Child, Vec<u8>), RunnerError> {
    for path in [own_exe, &spec.program, &spec.cwd] {
        if !path.is_absolute() {
            return Err(RunnerError::NotAbsolute(path.to_owned()));
        }
    }
    let talk = |source| RunnerError::Talk { effect: spec.effect.clone(), source };
    let lock = rustix::io::fcntl_dupfd_cloexec(live.file(), LOCK_FD_MIN)
        .map_err(|error| talk(error.into()))?;
    let live = LiveRef::new(live.path(), lock.as_raw_fd(), live.record().clone());
    let mut order =
        serde_json::to_vec(&Request::new(spec, live)).map_err(|error| talk(error.into()))?;
    order.push(b'\n');
    let runner = exec::start_in_session(&call(own_exe), lock.as_fd())
        .map_err(|source| RunnerError::Start { effect: spec.effect.clone(), source })?;
    Ok((runner, order))
}

/// The runner needs no environment: it reads none, and its child gets the one of the specification.
fn call(own_exe: &Path) -> Call {
    Call {
        program: own_exe.to_owned(),
        args: vec![COMMAND.into()],
        cwd: PathBuf::from("/"),
        env: Vec::new(),
        stdin: Vec::new(),
        deadline_ms: 0,
    }
}

/// The whole answer; none when it did not end in time. Stdin stays open until then: its end means to the
/// runner that we died.
fn converse(
    runner: &mut Child,
    order: &[u8],
    longest: Duration,
    wakes: Option<&ProcessId>,
) -> io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + longest;
    let (Some(mut to), Some(mut from)) = (runner.stdin.take(), runner.stdout.take()) else {
        return Err(io::Error::other("the runner has no pipes"));
    };
    match to.write_all(order) {
        // It may have died, or given up with an answer that is worth reading.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    let answer = read_until(&mut from, end, wakes);
    drop(to);
    answer
}

/// Everything up to the end of the stream; none when that did not come by `end`. Whom it `wakes` goes on if it was stopped.
fn read_until(
    from: &mut ChildStdout,
    end: Instant,
    wakes: Option<&ProcessId>,
) -> io::Result<Option<Vec<u8>>> {
    let (mut answer, mut chunk) = (Vec::new(), [0; 16 * 1024]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let longest = if wakes.is_some() { left.min(WAKE) } else { left };
        let timeout = Timespec::try_from(longest).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&*from, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left.is_zero() => return Ok(None),
            Ok(0) => {
                // One that is gone ends the stream.
                let _ = wakes.map(|who| process::send(who, Signal::CONT));
            }
            Err(Errno::INTR) => {}
            Ok(_) => match from.read(&mut chunk) {
                Ok(0) => return Ok(Some(answer)),
                Ok(count) => answer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error.into()),
        }
    }
}

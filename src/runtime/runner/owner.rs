//! The owner's side: starts the runner, hands it the work, waits for its one answer.

use super::{
    COMMAND, Ran, RunSpec,
    message::{LiveRef, Reply, Request},
};
use crate::{
    code::Code,
    runtime::live::Live,
    sys::{exec, spawn::Call},
};
use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
};

/// Lowest number of the descriptor passed on: low ones are redirected by habit.
const LOCK_FD_MIN: i32 = 10;

/// The run says nothing about the program: the machinery around it failed.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// A path that must be absolute is not.
    #[error("not an absolute path: {0}")]
    NotAbsolute(PathBuf),
    /// The runner did not start.
    #[error("cannot start the runner {program}: {source}")]
    Start {
        /// The binary.
        program: PathBuf,
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
            Self::Start { .. } | Self::Talk { .. } | Self::Died { .. } | Self::Failed { .. } => {
                Code::RunnerFailed
            }
        }
    }
}

/// Runs a program to its end under a runner; returns when nothing of its tree is left.
///
/// `own_exe` is the absolute path of this binary. A program that cannot be started is a result
/// ([`super::Ended::NotStarted`]), not an error.
///
/// # Errors
/// The runner cannot be started, dies, or cannot do its work: then nothing is known about the program.
pub fn run(live: &Live, own_exe: &Path, spec: &RunSpec) -> Result<Ran, RunnerError> {
    let talk = |source| RunnerError::Talk { effect: spec.effect.clone(), source };
    let (mut runner, order) = start(live, own_exe, spec)?;
    let answer = converse(&mut runner, &order);
    // Reaped whatever was said; only the status tells a silent death from a broken pipe.
    let status = runner.wait().map_err(talk)?;
    let bytes = answer.map_err(talk)?;
    if bytes.is_empty() {
        return Err(RunnerError::Died { effect: spec.effect.clone(), status });
    }
    match serde_json::from_slice(&bytes).map_err(|error| talk(error.into()))? {
        Reply::Ran(ran) => Ok(*ran),
        Reply::Failed(because) => Err(RunnerError::Failed { effect: spec.effect.clone(), because }),
    }
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
        .map_err(|source| RunnerError::Start { program: own_exe.to_owned(), source })?;
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

/// Stdin stays open until the answer is complete: its end means to the runner that we died.
fn converse(runner: &mut Child, order: &[u8]) -> io::Result<Vec<u8>> {
    let (Some(mut to), Some(mut from)) = (runner.stdin.take(), runner.stdout.take()) else {
        return Err(io::Error::other("the runner has no pipes"));
    };
    match to.write_all(order) {
        // It may have died, or given up with an answer that is worth reading.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    let mut answer = Vec::new();
    from.read_to_end(&mut answer)?;
    drop(to);
    Ok(answer)
}

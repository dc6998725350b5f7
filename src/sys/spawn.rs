//! The one place where a program is started and waited for.
//!
//! Contract: argv only, never a shell; own process group; a deadline; both streams read to the end at
//! the same time as stdin is written. Gates do not come through here but through `runtime::runner`.

use std::{
    ffi::OsString,
    io::{Read, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// A program to run to its end.
#[derive(Clone, Debug)]
pub struct Call {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments after the program name.
    pub args: Vec<OsString>,
    /// Working directory.
    pub cwd: PathBuf,
    /// The whole environment of the child; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Bytes for stdin, which is then closed.
    pub stdin: Vec<u8>,
    /// After this many milliseconds the process group is killed.
    pub deadline_ms: u64,
}

/// How a program ended and what it printed.
#[derive(Debug)]
pub struct Done {
    /// Exit status.
    pub status: ExitStatus,
    /// All of stdout.
    pub stdout: Vec<u8>,
    /// All of stderr.
    pub stderr: Vec<u8>,
}

/// The program could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// It did not start.
    #[error("cannot start {program}: {source}")]
    Start {
        /// What was to be started.
        program: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It did not end in time and was killed.
    #[error("{program} did not end within {deadline_ms} ms and was killed")]
    Deadline {
        /// What was running.
        program: PathBuf,
        /// The limit.
        deadline_ms: u64,
    },
    /// Waiting or reading failed.
    #[error("lost track of {program}: {source}")]
    Wait {
        /// What was running.
        program: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A command with exactly the given environment and nothing decided about groups and streams. For this
/// folder only: everybody else uses [`run`].
#[expect(clippy::disallowed_methods, reason = "the one spawn point")]
pub(super) fn bare(call: &Call) -> Command {
    let mut command = Command::new(&call.program);
    command
        .args(&call.args)
        .current_dir(&call.cwd)
        .env_clear()
        .envs(call.env.iter().map(|(k, v)| (k, v)));
    command
}

/// Runs the program to its end.
///
/// # Errors
/// It cannot be started, does not end in time, or cannot be waited for.
pub fn run(call: &Call) -> Result<Done, SpawnError> {
    let mut child = bare(call)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| SpawnError::Start { program: call.program.clone(), source })?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program that ends without reading its input is judged by its exit status.
            let _ = stdin.map(|mut pipe| pipe.write_all(&call.stdin));
        });
        let out = scope.spawn(|| read_all(stdout));
        let err = scope.spawn(|| read_all(stderr));
        let status = wait(&mut child, call);
        let join = |t: std::thread::ScopedJoinHandle<'_, Vec<u8>>| t.join().unwrap_or_default();
        status.map(|status| Done { status, stdout: join(out), stderr: join(err) })
    })
}

fn read_all(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before a failure is still shown.
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

fn wait(child: &mut Child, call: &Call) -> Result<ExitStatus, SpawnError> {
    let lost = |source| SpawnError::Wait { program: call.program.clone(), source };
    let end = Instant::now() + Duration::from_millis(call.deadline_ms);
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait().map_err(lost)? {
            return Ok(status);
        }
        if Instant::now() >= end {
            kill_group(child);
            child.wait().map_err(lost)?;
            return Err(SpawnError::Deadline {
                program: call.program.clone(),
                deadline_ms: call.deadline_ms,
            });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn kill_group(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // Already gone is as good as killed.
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
    }
}

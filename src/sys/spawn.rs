//! The one place where a program is started and waited for.
//!
//! Contract: argv only, never a shell; own process group; a deadline; both streams are read at the same
//! time as stdin is written, until the program has ended and nobody holds them open, or
//! [`limits::CALL_DRAIN_MS`] later: a hook may leave something in the background. Gates do not come
//! through here but through `runtime::runner`.

use super::{
    exec,
    files::{Op, access},
    process, trace,
};
use crate::limits;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    thread,
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

impl Done {
    /// The last line of stderr that says something; none when all was said elsewhere, at a terminal say.
    #[must_use]
    pub fn last_words(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.stderr);
        let lines = text.split(['\n', '\r']).map(str::trim);
        lines.rev().find(|line| !line.is_empty()).map(str::to_owned)
    }
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
    trace::spawned(call);
    command
}

fn started(call: &Call) -> Result<Child, SpawnError> {
    let mut command = bare(call);
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    access(Op::Program, &[&call.program], || command.spawn())
        .map_err(|source| SpawnError::Start { program: call.program.clone(), source })
}

/// Runs the program to its end. What it left in the background may go on, but holds up nothing.
///
/// # Errors
/// It cannot be started, does not end in time, or cannot be waited for.
pub fn run(call: &Call) -> Result<Done, SpawnError> {
    to_its_end(call, started(call)?, end)
}

/// Whether somebody can be asked for a passphrase or a touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nobody: what asks all the same is ended at [`limits::SIGN_ALONE_MS`].
    Alone,
    /// Nobody, and it is ended after so many milliseconds if that is sooner.
    Hurried(u64),
    /// A person at the terminal, for [`limits::SIGN_PERSON_MS`].
    Person,
}

/// Whoever is asked through these sits somewhere else, or nowhere.
const ASKS_PEOPLE: [&str; 5] =
    ["DISPLAY", "WAYLAND_DISPLAY", "GPG_TTY", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE"];

/// Runs a program that may have to ask somebody, for as long as that may take; `deadline_ms` of the call does not count.
///
/// # Errors
/// As [`run`].
pub fn run_asking(mut call: Call, presence: Presence) -> Result<Done, SpawnError> {
    match presence {
        Presence::Alone => run_alone(call, limits::SIGN_ALONE_MS),
        Presence::Hurried(most_ms) => run_alone(call, most_ms.min(limits::SIGN_ALONE_MS)),
        Presence::Person => {
            call.deadline_ms = limits::SIGN_PERSON_MS;
            run_with_person(&call)
        }
    }
}

fn run_alone(mut call: Call, deadline_ms: u64) -> Result<Done, SpawnError> {
    call.env.retain(|(name, _)| !ASKS_PEOPLE.iter().any(|asks| name == asks));
    call.env.push(("SSH_ASKPASS_REQUIRE".into(), "never".into()));
    call.deadline_ms = deadline_ms;
    run_apart(&call)
}

/// As [`run`], in a session of its own: no terminal can be found to ask anybody on.
fn run_apart(call: &Call) -> Result<Done, SpawnError> {
    let child = access(Op::Program, &[&call.program], || exec::start_apart(call))
        .map_err(|source| SpawnError::Start { program: call.program.clone(), source })?;
    to_its_end(call, child, end)
}

/// As [`run`], with the caller's terminal to ask a person on: stdin and stderr are the caller's, and so is the process
/// group, for what is typed at a terminal reaches its foreground alone. At the deadline the program and everything
/// below it is killed.
fn run_with_person(call: &Call) -> Result<Done, SpawnError> {
    let mut command = bare(call);
    command.stdin(Stdio::inherit()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let child = access(Op::Program, &[&call.program], || command.spawn())
        .map_err(|source| SpawnError::Start { program: call.program.clone(), source })?;
    to_its_end(call, child, end_family)
}

/// Runs a program that shows what it is given on the caller's terminal: stdin is the text, all else the caller's. There is
/// no deadline, because a person ends it; `deadline_ms` does not count.
///
/// # Errors
/// It cannot be started or waited for.
pub fn run_to_show(call: &Call) -> Result<ExitStatus, SpawnError> {
    let mut command = bare(call);
    command.stdin(Stdio::piped()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut child = access(Op::Program, &[&call.program], || command.spawn())
        .map_err(|source| SpawnError::Start { program: call.program.clone(), source })?;
    if let Some(mut pipe) = child.stdin.take() {
        // Whoever stops reading has seen enough; how it ends is what counts.
        let _ = pipe.write_all(&call.stdin);
    }
    child.wait().map_err(|source| SpawnError::Wait { program: call.program.clone(), source })
}

fn to_its_end(
    call: &Call,
    mut child: Child,
    end: fn(&mut Child) -> io::Result<()>,
) -> Result<Done, SpawnError> {
    let lost = |source| SpawnError::Wait { program: call.program.clone(), source };
    let begun = Instant::now();
    let talked = Talk::new(&mut child, call).and_then(|talk| talk.finish(&mut child));
    let status = talked.as_ref().ok().and_then(|done| done.as_ref().map(|done| done.status));
    trace::ended(call, begun, status);
    match talked {
        Ok(Some(done)) => Ok(done),
        Ok(None) => {
            end(&mut child).map_err(lost)?;
            let (program, deadline_ms) = (call.program.clone(), call.deadline_ms);
            Err(SpawnError::Deadline { program, deadline_ms })
        }
        Err(error) => {
            // The first error is the one to report.
            let _ = end(&mut child);
            Err(lost(error))
        }
    }
}

/// A running program and the three pipes to it, none of which may block.
struct Talk<'a> {
    pidfd: OwnedFd,
    input: &'a [u8],
    stdin: Option<File>,
    stdout: Reader,
    stderr: Reader,
    end: Instant,
}

impl<'a> Talk<'a> {
    fn new(child: &mut Child, call: &'a Call) -> io::Result<Self> {
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Self {
            pidfd: pidfd_open(pid_of(child)?, PidfdFlags::empty())?,
            input: &call.stdin,
            stdin: stdin.map(|pipe| unblocked(pipe.into())).transpose()?,
            stdout: Reader::new(stdout.map(Into::into))?,
            stderr: Reader::new(stderr.map(Into::into))?,
            end: Instant::now() + Duration::from_millis(call.deadline_ms),
        })
    }

    /// `None` when the deadline passed first.
    fn finish(mut self, child: &mut Child) -> io::Result<Option<Done>> {
        let mut status = None;
        loop {
            self.write()?;
            self.stdout.read()?;
            self.stderr.read()?;
            if status.is_none() {
                status = child.try_wait()?;
                if status.is_some() {
                    self.end = Instant::now() + Duration::from_millis(limits::CALL_DRAIN_MS);
                }
            }
            let closed = self.stdout.pipe.is_none() && self.stderr.pipe.is_none();
            let over = Instant::now() >= self.end;
            match status {
                Some(status) if closed || over => {
                    let (stdout, stderr) = (self.stdout.bytes, self.stderr.bytes);
                    return Ok(Some(Done { status, stdout, stderr }));
                }
                None if over => return Ok(None),
                Some(_) | None => self.wait(status.is_some())?,
            }
        }
    }

    fn wait(&self, ended: bool) -> io::Result<()> {
        let mut fds = Vec::new();
        if !ended {
            fds.push(PollFd::new(&self.pidfd, PollFlags::IN));
            fds.extend(self.stdin.iter().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        }
        for reader in [&self.stdout, &self.stderr] {
            fds.extend(reader.pipe.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        }
        let left = self.end.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what fits; closes stdin when all is written. A program that ends without reading its
    /// input is judged by its exit status.
    fn write(&mut self) -> io::Result<()> {
        while let Some(pipe) = &mut self.stdin {
            if self.input.is_empty() {
                self.stdin = None;
                break;
            }
            match pipe.write(self.input) {
                Ok(count) => self.input = &self.input[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.stdin = None,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A program that is talked to line by line.
#[derive(Debug)]
pub struct Dialogue {
    program: PathBuf,
    deadline_ms: u64,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Reader,
    stderr: Reader,
    end: Instant,
}

impl Dialogue {
    /// Starts the program; `stdin` of the call is not used.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(call: &Call) -> Result<Self, SpawnError> {
        let mut child = started(call)?;
        let lost = |source| SpawnError::Wait { program: call.program.clone(), source };
        Ok(Self {
            program: call.program.clone(),
            deadline_ms: call.deadline_ms,
            stdin: child.stdin.take(),
            stdout: Reader::new(child.stdout.take().map(Into::into)).map_err(lost)?,
            stderr: Reader::new(child.stderr.take().map(Into::into)).map_err(lost)?,
            end: Instant::now() + Duration::from_millis(call.deadline_ms),
            child,
        })
    }

    /// Says something and waits until that many lines have been answered in all. False when it ended first.
    ///
    /// # Errors
    /// The deadline passed, or the pipes broke otherwise.
    pub fn say(&mut self, text: &str, lines: usize) -> Result<bool, SpawnError> {
        if let Some(pipe) = &mut self.stdin
            && pipe.write_all(text.as_bytes()).is_err()
        {
            // Whoever does not listen any more has ended; how, is asked below.
            self.stdin = None;
        }
        loop {
            self.stdout.read().map_err(|e| self.lost(e))?;
            self.stderr.read().map_err(|e| self.lost(e))?;
            if self.stdout.bytes.iter().filter(|b| **b == b'\n').count() >= lines {
                return Ok(true);
            }
            if self.stdout.pipe.is_none() {
                return Ok(false);
            }
            self.wait()?;
        }
    }

    /// Forgets what was answered and sets a new deadline: the next exchange begins.
    pub fn renew(&mut self) {
        self.stdout.bytes.clear();
        self.stderr.bytes.clear();
        self.end = Instant::now() + Duration::from_millis(self.deadline_ms);
    }

    /// True when nothing was answered or complained about.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.stdout.bytes.is_empty() && self.stderr.bytes.is_empty()
    }

    /// Kills it as somebody else may.
    #[cfg(test)]
    pub(crate) fn end(&mut self) {
        end(&mut self.child).unwrap();
    }

    /// Says nothing more and waits for the end.
    ///
    /// # Errors
    /// The deadline passed, or the pipes broke.
    pub fn finish(mut self) -> Result<Done, SpawnError> {
        self.stdin = None;
        while self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
            self.stdout.read().map_err(|e| self.lost(e))?;
            self.stderr.read().map_err(|e| self.lost(e))?;
            if self.stdout.pipe.is_some() || self.stderr.pipe.is_some() {
                self.wait()?;
            }
        }
        let status = self.child.wait().map_err(|e| self.lost(e))?;
        let stdout = std::mem::take(&mut self.stdout.bytes);
        Ok(Done { status, stdout, stderr: std::mem::take(&mut self.stderr.bytes) })
    }

    fn wait(&self) -> Result<(), SpawnError> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (program, deadline_ms) = (self.program.clone(), self.deadline_ms);
            return Err(SpawnError::Deadline { program, deadline_ms });
        }
        let pipes = [&self.stdout, &self.stderr].into_iter().flat_map(|r| r.pipe.iter());
        let mut fds: Vec<PollFd<'_>> = pipes.map(|p| PollFd::new(p, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(left).map_err(|e| self.lost(io::Error::other(e)))?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(self.lost(error.into())),
        }
    }

    fn lost(&self, source: io::Error) -> SpawnError {
        SpawnError::Wait { program: self.program.clone(), source }
    }
}

impl Drop for Dialogue {
    /// Hangs up, and kills what has not ended a moment later: a program that is cut off cleans up after itself.
    fn drop(&mut self) {
        self.stdin = None;
        let patience = Instant::now() + Duration::from_millis(limits::CALL_DRAIN_MS);
        while !matches!(self.child.try_wait(), Ok(Some(_))) {
            if Instant::now() >= patience {
                // Nothing more can be done about a failure here.
                let _ = end(&mut self.child);
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[derive(Debug)]
struct Reader {
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl Reader {
    fn new(pipe: Option<OwnedFd>) -> io::Result<Self> {
        Ok(Self { pipe: pipe.map(unblocked).transpose()?, bytes: Vec::new() })
    }

    /// Reads what is there.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        match pipe.read_to_end(&mut self.bytes) {
            Ok(_) => {
                self.pipe = None;
                Ok(())
            }
            // What was read before is in the vector.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn unblocked(pipe: OwnedFd) -> io::Result<File> {
    rustix::io::ioctl_fionbio(&pipe, true)?;
    Ok(File::from(pipe))
}

fn pid_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other("the program has no pid"))
}

/// Kills the program and everything below it, and reaps it.
fn end_family(child: &mut Child) -> io::Result<()> {
    for who in process::descendants(child.id())? {
        process::send(&who, Signal::KILL)?;
    }
    child.kill()?;
    child.wait().map(|_| ())
}

/// Kills the process group and reaps its leader.
fn end(child: &mut Child) -> io::Result<()> {
    match kill_process_group(pid_of(child)?, Signal::KILL) {
        // Already gone is as good as killed.
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    child.wait().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, stdin: &[u8], deadline_ms: u64) -> Result<Done, SpawnError> {
        run(&Call {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            cwd: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stdin: stdin.to_vec(),
            deadline_ms,
        })
    }

    #[test]
    fn writes_and_reads_at_the_same_time() {
        let input = vec![b'x'; 1024 * 1024];
        let done =
            sh("cat; cat /dev/null; head -c 300000 /dev/zero >&2; exit 3", &input, 60_000).unwrap();
        assert_eq!((done.stdout, done.stderr), (input, vec![0; 300_000]));
        assert_eq!(done.status.code(), Some(3));
    }

    fn call(script: &str, deadline_ms: u64) -> Call {
        Call {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            cwd: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stdin: vec![],
            deadline_ms,
        }
    }

    #[test]
    fn apart_there_is_no_terminal() {
        let done = run_apart(&call("exec 2>/dev/null; : </dev/tty && echo found", 60_000)).unwrap();
        assert_eq!((done.status.success(), done.stdout), (false, vec![]));
        let done = run_apart(&call("ps -o sid= -p $$; echo $$", 60_000)).unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        let ids: Vec<&str> = said.split_whitespace().collect();
        assert_eq!(ids[0], ids[1], "a session of its own");
    }

    #[test]
    fn who_lets_a_person_wait_too_long_is_killed_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("sleep 300 & echo $! > {0}/pid; wait", dir.path().display());
        let error = run_with_person(&call(&script, 300)).unwrap_err();
        assert!(matches!(error, SpawnError::Deadline { .. }), "{error}");
        let pid = std::fs::read_to_string(dir.path().join("pid")).unwrap();
        let gone = || process::of_pid(pid.trim().parse().unwrap()).unwrap().is_none();
        let patience = Instant::now() + Duration::from_secs(20);
        while !gone() {
            assert!(Instant::now() < patience, "{pid} still runs");
            thread::yield_now();
        }
    }

    #[test]
    fn input_nobody_reads_is_no_error() {
        let done = sh("exit 0", &vec![b'x'; 1024 * 1024], 60_000).unwrap();
        assert!(done.status.success());
    }

    #[test]
    fn a_background_process_that_holds_the_output_holds_up_nothing() {
        let begun = Instant::now();
        let done = sh("sleep 20 & echo $!", b"", 60_000).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(10));
        let pid: i32 = String::from_utf8(done.stdout).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn the_deadline_ends_the_group() {
        let begun = Instant::now();
        let error = sh("sleep 60 & sleep 60", b"", 100).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(10));
        assert_eq!(error.to_string(), "/bin/sh did not end within 100 ms and was killed");
    }

    #[test]
    fn says_what_cannot_be_started() {
        let call = Call {
            program: "/no/such/program".into(),
            args: Vec::new(),
            cwd: "/".into(),
            env: Vec::new(),
            stdin: Vec::new(),
            deadline_ms: 1,
        };
        let error = run(&call).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot start /no/such/program: No such file or directory (os error 2)"
        );
    }
}

//! One process tree: started, watched, ended, swept. One thread, one `poll`.
//!
//! Contract: [`supervise`] returns after the last child of this process is gone, whatever happened before;
//! it must therefore be the only thing in its process that has children. Deadlines are measured on the
//! monotonic clock.

use super::{Captured, Ended, Ran, RunSpec, capture::Stream};
use crate::{
    limits,
    runtime::output::Ring,
    sys::{
        exec, files,
        process::{self, ProcessId},
        signals::Signals,
        spawn::Call,
    },
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitOptions, WaitStatus},
};
use std::{
    io,
    os::fd::BorrowedFd,
    process::Child,
    time::{Duration, Instant},
};

/// Between two looks at the process table while a tree is being killed.
pub(super) const SWEEP_POLL: Duration = Duration::from_millis(5);

/// From where news reach the runner, besides the program's own output.
pub(super) struct News<'a> {
    /// Readable when the owner is gone.
    pub(super) owner: BorrowedFd<'a>,
    /// What [`super::child::HEEDED`] names.
    pub(super) signals: &'a Signals,
}

/// Runs the program to its end; `None` when the owner died meanwhile.
pub(super) fn supervise(
    spec: &RunSpec,
    news: &News<'_>,
    started: impl FnOnce(ProcessId) -> io::Result<()>,
) -> io::Result<Option<Ran>> {
    let begun = Instant::now();
    let child = match exec::start_tree(&call(spec)) {
        Ok(child) => child,
        Err(error) => return Ok(Some(not_started(spec, &error))),
    };
    let mut tree = match Tree::new(child, begun, spec) {
        Ok(tree) => tree,
        Err(error) => {
            signal_all(&process::descendants(std::process::id())?, Signal::KILL)?;
            return Err(error);
        }
    };
    let outcome = tree.note_main(started).and_then(|()| tree.watch(news));
    // Whatever went wrong: first nothing may be left, then it may be reported.
    tree.sweep(news.signals)?;
    outcome?;
    tree.finish()
}

fn call(spec: &RunSpec) -> Call {
    Call {
        program: spec.program.clone(),
        args: spec.args.clone(),
        cwd: spec.cwd.clone(),
        env: spec.env.clone(),
        stdin: spec.stdin.clone(),
        deadline_ms: spec.timeout_ms,
    }
}

/// The reason names no path: it is recorded under a ref, where nothing of one machine belongs.
fn not_started(spec: &RunSpec, error: &io::Error) -> Ran {
    let because = if files::is_dir(&spec.cwd).unwrap_or(true) {
        format!("cannot be started: {error}")
    } else {
        format!("has no directory to run in: {error}")
    };
    Ran {
        ended: Ended::NotStarted(because),
        signals: Vec::new(),
        duration_ms: 0,
        stdout: Captured::default(),
        stderr: Captured::default(),
        cancelled: false,
        left_behind: 0,
    }
}

/// Why the tree is being ended before its main process ended by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Deadline,
    Cancelled,
    OwnerGone,
}

/// What is next if nothing happens.
#[derive(Clone, Copy)]
enum Phase {
    /// At the deadline: SIGTERM.
    Running,
    /// At the end of the grace: SIGKILL.
    Grace,
    /// SIGKILL was sent; not to end now is an error.
    Killed,
}

struct Tree {
    main: Pid,
    ended: Option<(WaitStatus, Instant)>,
    stdout: Stream,
    stderr: Stream,
    ring: Option<Ring>,
    begun: Instant,
    next: Instant,
    phase: Phase,
    stop: Option<Stop>,
    signals: Vec<String>,
    left_behind: u64,
}

impl Tree {
    fn new(mut child: Child, begun: Instant, spec: &RunSpec) -> io::Result<Self> {
        let lost = || io::Error::other("the started program has no pipes or no pid");
        let main = pid_of(&child).ok_or_else(lost)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        Ok(Self {
            main,
            ended: None,
            stdout: Stream::new(stdout.ok_or_else(lost)?.into())?,
            stderr: Stream::new(stderr.ok_or_else(lost)?.into())?,
            // Where it cannot be kept it is not kept; the agent runs.
            ring: spec.ring.as_deref().and_then(|dir| Ring::open(dir).ok()),
            begun,
            next: begun + Duration::from_millis(spec.timeout_ms),
            phase: Phase::Running,
            stop: None,
            signals: Vec::new(),
            left_behind: 0,
        })
    }

    fn note_main(&self, started: impl FnOnce(ProcessId) -> io::Result<()>) -> io::Result<()> {
        let pid = u32::try_from(self.main.as_raw_pid()).map_err(io::Error::other)?;
        // Gone already: there is nothing to find later either.
        process::of_pid(pid)?.map_or(Ok(()), started)
    }

    /// Until the main process has ended, and at the deadline until its tree has ended or was killed.
    fn watch(&mut self, news: &News<'_>) -> io::Result<()> {
        loop {
            let children_left = self.reap()?;
            // The grace is the tree's, not the main process's alone: a shell dies at once of what the
            // program it started wants to tidy up after.
            let in_grace = matches!(self.phase, Phase::Grace) && children_left;
            if self.ended.is_some() && !in_grace {
                if self.stop.is_none() && children_left {
                    self.left_behind = process::descendants(std::process::id())?.len() as u64;
                }
                return Ok(());
            }
            if Instant::now() >= self.next {
                self.escalate()?;
            }
            let ready = self.wait(news)?;
            self.stdout.read(&mut self.ring)?;
            self.stderr.read(&mut self.ring)?;
            if ready.signal && asked_to_end(&news.signals.take()?) {
                self.stop_now(Stop::Cancelled)?;
            }
            if ready.owner {
                self.stop_now(Stop::OwnerGone)?;
            }
        }
    }

    fn wait(&self, news: &News<'_>) -> io::Result<Ready> {
        let mut fds = vec![PollFd::new(news.signals, PollFlags::IN)];
        // A gone owner stays gone: asking again would only spin.
        let watch_owner = self.stop != Some(Stop::OwnerGone);
        if watch_owner {
            fds.push(PollFd::from_borrowed_fd(news.owner, PollFlags::IN));
        }
        let streams = [self.stdout.waiting(), self.stderr.waiting()];
        fds.extend(
            streams.into_iter().flatten().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)),
        );
        wait_for(&mut fds, self.next.saturating_duration_since(Instant::now()))?;
        let happened = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        Ok(Ready { signal: happened(0), owner: watch_owner && happened(1) })
    }

    fn escalate(&mut self) -> io::Result<()> {
        match self.phase {
            Phase::Running => {
                self.stop = Some(Stop::Deadline);
                self.send("TERM", Signal::TERM)?;
                self.enter(Phase::Grace, limits::GATE_KILL_GRACE_MS);
            }
            Phase::Grace => {
                self.send("KILL", Signal::KILL)?;
                self.enter(Phase::Killed, limits::TREE_KILL_MS);
            }
            Phase::Killed => return Err(outlived(&[])),
        }
        Ok(())
    }

    fn stop_now(&mut self, stop: Stop) -> io::Result<()> {
        // A deadline that passed first stays the reason, unless there is nobody left to tell.
        if self.stop.is_none() || stop == Stop::OwnerGone {
            self.stop = Some(stop);
        }
        if !matches!(self.phase, Phase::Killed) {
            self.send("KILL", Signal::KILL)?;
            self.enter(Phase::Killed, limits::TREE_KILL_MS);
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase, for_ms: u64) {
        self.phase = phase;
        self.next = Instant::now() + Duration::from_millis(for_ms);
    }

    /// Signals the whole tree; at the deadline this is recorded.
    fn send(&mut self, name: &str, signal: Signal) -> io::Result<()> {
        if self.stop == Some(Stop::Deadline) && self.signals.last().is_none_or(|last| last != name)
        {
            self.signals.push(name.to_owned());
        }
        signal_all(&process::descendants(std::process::id())?, signal)
    }

    /// Kills and reaps until there are no children left.
    fn sweep(&mut self, signals: &Signals) -> io::Result<()> {
        let end = Instant::now() + Duration::from_millis(limits::TREE_KILL_MS);
        while self.reap()? {
            let left = process::descendants(std::process::id())?;
            if !left.is_empty() {
                self.send("KILL", Signal::KILL)?;
            }
            if Instant::now() >= end {
                return Err(outlived(&left));
            }
            // SIGCHLD ends the pause; the numbers don't matter, the tree is being killed already.
            wait_for(&mut [PollFd::new(signals, PollFlags::IN)], SWEEP_POLL)?;
            signals.take()?;
        }
        Ok(())
    }

    /// Collects everything that ended; whether children are left.
    fn reap(&mut self) -> io::Result<bool> {
        reap(self.main, &mut self.ended)
    }

    fn finish(mut self) -> io::Result<Option<Ran>> {
        if self.stop == Some(Stop::OwnerGone) {
            return Ok(None);
        }
        let Some((status, at)) = self.ended else {
            return Err(io::Error::other("the main process ended without a status"));
        };
        let timed_out = self.stop == Some(Stop::Deadline);
        Ok(Some(Ran {
            ended: if timed_out { Ended::TimedOut } else { ended(status)? },
            signals: self.signals,
            duration_ms: u64::try_from((at - self.begun).as_millis()).unwrap_or(u64::MAX),
            stdout: self.stdout.finish(&mut self.ring)?,
            stderr: self.stderr.finish(&mut self.ring)?,
            cancelled: self.stop == Some(Stop::Cancelled),
            left_behind: self.left_behind,
        }))
    }
}

/// Collects everything that ended, and notes it of `main`; whether children are left.
pub(super) fn reap(main: Pid, ended: &mut Option<(WaitStatus, Instant)>) -> io::Result<bool> {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == main => *ended = Some((status, Instant::now())),
            // Somebody's orphan.
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Ok(true),
            Err(rustix::io::Errno::CHILD) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

struct Ready {
    signal: bool,
    owner: bool,
}

pub(super) fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn asked_to_end(numbers: &[i32]) -> bool {
    numbers.iter().any(|number| *number != Signal::CHILD.as_raw())
}

pub(super) fn wait_for(fds: &mut [PollFd<'_>], longest: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(longest).map_err(io::Error::other)?;
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// One that may not be signalled does not keep the others alive; it shows up as a survivor.
pub(super) fn signal_all(processes: &[ProcessId], signal: Signal) -> io::Result<()> {
    for process in processes {
        match process::send(process, signal) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(super) fn outlived(left: &[ProcessId]) -> io::Error {
    let pids: Vec<u32> = left.iter().map(|process| process.pid).collect();
    io::Error::other(format!("processes outlived SIGKILL by {} ms: {pids:?}", limits::TREE_KILL_MS))
}

pub(super) fn ended(status: WaitStatus) -> io::Result<Ended> {
    if let Some(code) = status.exit_status() {
        return Ok(Ended::Exited(code));
    }
    match status.terminating_signal() {
        Some(number) => Ok(Ended::Signaled(process::signal_name(number))),
        None => Err(io::Error::other("the main process ended in an unknown way")),
    }
}

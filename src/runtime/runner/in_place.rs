//! A program run in the place of this one: with the caller's streams and terminal, and its whole tree under control.
//!
//! Contract: [`run_in_place`] returns after the last descendant is gone. Whoever asks this process to end asks the tree,
//! by the same signal; what is left of it after the grace, or at the second time, is killed. There is no runner between:
//! `kill -9` of this process takes the main process with it, but not what that had started.

use super::{
    Ended,
    child::HEEDED,
    tree::{SWEEP_POLL, ended, outlived, pid_of, reap, signal_all, wait_for},
};
use crate::{
    limits,
    sys::{
        exec, process,
        signals::{self, Signals},
        spawn::Call,
    },
};
use rustix::{
    event::{PollFd, PollFlags},
    process::{Pid, Signal, WaitStatus},
};
use std::{
    io,
    time::{Duration, Instant},
};

/// Without a deadline: how long one wait for news is, as good as any.
const LONG: Duration = Duration::from_secs(3600);

/// How such a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// How its main process ended; never at a deadline, there is none.
    pub ended: Ended,
    /// From start to the end of the main process, milliseconds.
    pub duration_ms: u64,
}

/// Runs the program to its end. From then on the signals that ask a process to end are held back from this one.
///
/// # Errors
/// The kernel refuses what control takes, or something of the tree outlives SIGKILL.
pub fn run_in_place(call: &Call, all_to_stderr: bool) -> io::Result<InPlace> {
    process::become_subreaper()?;
    let signals = signals::receive(&HEEDED)?;
    exec::close_on_exec()?;
    let begun = Instant::now();
    let child = match exec::start_in_place(call, all_to_stderr) {
        Ok(child) => child,
        Err(error) => {
            return Ok(InPlace { ended: Ended::NotStarted(error.to_string()), duration_ms: 0 });
        }
    };
    let main = pid_of(&child).ok_or_else(|| io::Error::other("the started program has no pid"))?;
    let watched = watch(main, &signals);
    // Whatever went wrong: first nothing may be left, then it may be reported.
    sweep(main, &signals)?;
    let (status, at) = watched?;
    let duration_ms = u64::try_from((at - begun).as_millis()).unwrap_or(u64::MAX);
    Ok(InPlace { ended: ended(status)?, duration_ms })
}

/// Until the main process has ended.
fn watch(main: Pid, signals: &Signals) -> io::Result<(WaitStatus, Instant)> {
    let mut over = None;
    let mut killed_at = None;
    loop {
        reap(main, &mut over)?;
        if let Some(over) = over {
            return Ok(over);
        }
        let left =
            killed_at.map_or(LONG, |at: Instant| at.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            signal_all(&process::descendants(std::process::id())?, Signal::KILL)?;
        }
        let left = if left.is_zero() { SWEEP_POLL } else { left };
        wait_for(&mut [PollFd::new(signals, PollFlags::IN)], left)?;
        for number in signals.take()? {
            let Some(asked) = HEEDED.into_iter().find(|signal| signal.as_raw() == number) else {
                continue;
            };
            if asked == Signal::CHILD {
                continue;
            }
            signal_all(&process::descendants(std::process::id())?, asked)?;
            let grace = Duration::from_millis(limits::GATE_KILL_GRACE_MS);
            let now = Instant::now();
            killed_at = Some(if killed_at.is_none() { now + grace } else { now });
        }
    }
}

/// Kills and reaps until there are no children left.
fn sweep(main: Pid, signals: &Signals) -> io::Result<()> {
    let end = Instant::now() + Duration::from_millis(limits::TREE_KILL_MS);
    let mut over = None;
    while reap(main, &mut over)? {
        let left = process::descendants(std::process::id())?;
        signal_all(&left, Signal::KILL)?;
        if Instant::now() >= end {
            return Err(outlived(&left));
        }
        wait_for(&mut [PollFd::new(signals, PollFlags::IN)], SWEEP_POLL)?;
        signals.take()?;
    }
    Ok(())
}

//! Runs one program under a small runner process and loses nothing of its process tree.
//!
//! Two processes of the same binary: the **owner** ([`run`]) wants the result, the **runner**
//! ([`runner_main`], the hidden command `__runner`) starts the program, reads its output, keeps the
//! deadline and kills the tree. The runner is the subreaper of that tree, and of nothing else: whatever the
//! program starts, with `setsid`, double forks or not, stays a descendant of the runner, and the runner
//! answers only when it has no children left. That is the mechanism on every machine; cgroups are not
//! used, they need rights most users don't have.
//!
//! What happens when somebody dies or asks:
//! - the program's main process ends → the rest of the tree is killed, the pipes are emptied, the result is
//!   written; a grandchild holding a pipe holds up nothing;
//! - the deadline passes → SIGTERM to the tree, [`limits::GATE_KILL_GRACE_MS`] later SIGKILL to what
//!   is left of it;
//! - SIGTERM, SIGINT, SIGHUP or SIGQUIT reach the runner → SIGKILL to the tree, `cancelled`;
//! - the owner dies → the pipe on the runner's stdin ends, SIGKILL to the tree;
//! - the runner dies → the kernel kills the main process; the owner kills the rest, and when it is gone
//!   too, whoever takes the effect next ([`super::live`]);
//! - the runner is stopped, or hangs → at a deadline of its own the owner kills it and all of the above.
//!
//! [`limits::GATE_KILL_GRACE_MS`]: crate::limits::GATE_KILL_GRACE_MS

mod capture;
mod child;
mod in_place;
mod message;
mod owner;
mod tree;

pub use capture::Captured;
pub use child::runner_main;
pub use in_place::{InPlace, run_in_place};
pub use owner::{RunnerError, run};

use std::{ffi::OsString, path::PathBuf};

/// The hidden command that makes the binary a runner.
pub const COMMAND: &str = "__runner";

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSpec {
    /// Effect it belongs to.
    pub effect: String,
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments after the program name.
    pub args: Vec<OsString>,
    /// Working directory, absolute.
    pub cwd: PathBuf,
    /// The whole environment; the runner adds its mark, nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Deadline, milliseconds.
    pub timeout_ms: u64,
    /// What it reads on stdin; none: the end of the file at once.
    pub stdin: Vec<u8>,
    /// Where its output is written as it comes, too ([`super::output`]).
    pub ring: Option<PathBuf>,
}

/// How the main process ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Ended {
    /// By itself, with this exit code.
    Exited(i32),
    /// By a signal nobody here sent for the deadline: `SIGSEGV`.
    Signaled(String),
    /// At the deadline, however it reacted.
    TimedOut,
    /// It could not be started; the reason, free of paths.
    NotStarted(String),
}

/// What a program did.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ran {
    /// How the main process ended.
    pub ended: Ended,
    /// Signals sent at the deadline, in order: `TERM`, `KILL`.
    pub signals: Vec<String>,
    /// From start to the end of the main process, milliseconds.
    pub duration_ms: u64,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// Somebody asked the runner to end before the program did.
    pub cancelled: bool,
    /// Processes that were there when the main process had ended by itself, and were killed.
    pub left_behind: u64,
}

#[cfg(test)]
pub(super) mod tests;

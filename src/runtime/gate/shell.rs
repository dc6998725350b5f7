//! What the end of a shell gate means. Output never decides.

use crate::{
    code::Code,
    domain::time::duration,
    runtime::runner::{Ended, Ran},
};

/// The shell's words for "found, but cannot be executed" and "not found".
const CANNOT_EXECUTE: i32 = 126;
const NOT_FOUND: i32 = 127;

/// What a finished gate said. Three outcomes, never two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It ran and said yes.
    Pass,
    /// It ran and said no.
    Fail {
        /// One sentence for people.
        because: String,
        /// It said so by not ending in time.
        timed_out: bool,
    },
    /// It could not say.
    Broken {
        /// Why, for programs.
        code: Code,
        /// Why, for people.
        because: String,
    },
}

/// Judges a run.
///
/// A cancelled run is broken whatever its exit code: it was kept from saying anything. 126 and 127 are
/// broken (case 88): the shell's way to report what would be `NotStarted` here.
#[must_use]
pub fn verdict(ran: &Ran) -> Judged {
    let fail = |because, timed_out| Judged::Fail { because, timed_out };
    let broken = |code, because| Judged::Broken { code, because };
    match &ran.ended {
        Ended::NotStarted(because) => broken(Code::GateNotRunnable, because.clone()),
        Ended::Exited(_) | Ended::Signaled(_) | Ended::TimedOut if ran.cancelled => {
            broken(Code::RunnerFailed, "the run was cancelled".to_owned())
        }
        Ended::Exited(0) => Judged::Pass,
        Ended::Exited(code @ CANNOT_EXECUTE) => {
            broken(Code::GateNotRunnable, format!("exit code {code}: a program cannot be executed"))
        }
        Ended::Exited(code @ NOT_FOUND) => {
            broken(Code::GateNotRunnable, format!("exit code {code}: a program was not found"))
        }
        Ended::Exited(code) => fail(format!("exit code {code}"), false),
        Ended::Signaled(name) => fail(format!("killed by {name}"), false),
        Ended::TimedOut => {
            let after = duration(ran.duration_ms);
            fail(format!("did not end in time, killed after {after}"), true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::runner::Captured;

    fn ran(ended: Ended, cancelled: bool) -> Ran {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        Ran {
            ended,
            signals: Vec::new(),
            duration_ms: 12,
            stdout,
            stderr,
            cancelled,
            left_behind: 0,
        }
    }

    fn check(ended: Ended, cancelled: bool, expected: &str) {
        let said = match verdict(&ran(ended, cancelled)) {
            Judged::Pass => "pass".to_owned(),
            Judged::Fail { because, timed_out } => format!("fail {timed_out}: {because}"),
            Judged::Broken { code, because } => format!("{code}: {because}"),
        };
        assert_eq!(said, expected);
    }

    #[test]
    fn three_outcomes() {
        check(Ended::Exited(0), false, "pass");
        check(Ended::Exited(1), false, "fail false: exit code 1");
        check(Ended::Signaled("SIGSEGV".into()), false, "fail false: killed by SIGSEGV");
        check(Ended::TimedOut, false, "fail true: did not end in time, killed after 12 ms");
        check(
            Ended::NotStarted("cannot start /x".into()),
            false,
            "gate-not-runnable: cannot start /x",
        );
    }

    #[test]
    fn case_88_not_found_is_broken() {
        check(
            Ended::Exited(126),
            false,
            "gate-not-runnable: exit code 126: a program cannot be executed",
        );
        check(
            Ended::Exited(127),
            false,
            "gate-not-runnable: exit code 127: a program was not found",
        );
    }

    #[test]
    fn a_cancelled_run_never_passes() {
        check(Ended::Exited(0), true, "runner-failed: the run was cancelled");
        check(Ended::Signaled("SIGKILL".into()), true, "runner-failed: the run was cancelled");
    }
}

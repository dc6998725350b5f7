//! Real process trees under a real runner: this test binary, started again, is the runner.

use super::{Captured, Ended, Ran, RunSpec, RunnerError, child, owner, run};
use crate::{
    code::Code,
    limits,
    runtime::live::{self, Acquired, Live},
    sys::{
        env::Env,
        process::{self, Liveness, ProcessId},
        signals,
    },
};
use std::{
    ffi::OsString,
    fs,
    io::Write,
    os::unix::{ffi::OsStringExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode},
    time::{Duration, Instant},
};
use tempfile::TempDir;

const ENTRY: &str = "runtime::runner::tests::serves_as_the_runner";
const ENTRY_FLAG: &str = "AGENTPROTO_TEST_RUNNER";

/// Not a test of anything: what the stand-in for the binary enters. `runner_main` is alone in its process,
/// libtest has a second thread: it is started once more with the signals blocked for all threads.
#[test]
#[ignore = "entered by the stand-in for the binary"]
fn serves_as_the_runner() {
    match Env::read().unwrap().text(ENTRY_FLAG) {
        Some("again") => {
            let from = fs::File::open("/proc/self/fd/0").unwrap();
            let to = fs::File::options().write(true).open("/proc/self/fd/3").unwrap();
            assert_eq!(child::serve(from.into(), to.into()), ExitCode::SUCCESS);
        }
        Some(_) => {
            let _blocked = signals::receive(&child::HEEDED).unwrap();
            panic!("{}", itself().env(ENTRY_FLAG, "again").exec());
        }
        None => {}
    }
}

#[expect(clippy::disallowed_methods, reason = "test set-up")]
fn itself() -> Command {
    let mut args = std::env::args_os();
    let mut command = Command::new(args.next().unwrap());
    command.args(args);
    command
}

/// A directory with a stand-in for the binary and what a gate needs.
pub(in crate::runtime) struct Lab {
    dir: TempDir,
}

impl Lab {
    pub(in crate::runtime) fn new() -> Self {
        let lab = Self { dir: tempfile::tempdir().unwrap() };
        let test_binary = std::env::current_exe().unwrap();
        lab.script(
            "runner",
            &format!(
                "exec 3>&1 >/dev/null\n{ENTRY_FLAG}=1 exec '{}' --exact {ENTRY} --ignored \
                 --test-threads=1 --nocapture",
                test_binary.display()
            ),
        );
        lab
    }

    pub(in crate::runtime) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(in crate::runtime) fn runner(&self) -> PathBuf {
        self.path().join("runner")
    }

    /// Written by another process: a writing descriptor of ours, copied by a fork of some other test,
    /// would make the file "busy" when it is executed.
    #[expect(clippy::disallowed_methods, reason = "test set-up")]
    fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path().join(name);
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut sh = Command::new("/bin/sh");
        assert!(sh.args(["-c", write, "sh"]).arg(&path).arg(body).status().unwrap().success());
        path
    }

    pub(in crate::runtime) fn spec(&self, script: &str, timeout_ms: u64) -> RunSpec {
        RunSpec {
            effect: "gate.pol.1".into(),
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            cwd: self.path().into(),
            env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
            timeout_ms,
            stdin: vec![],
            ring: None,
        }
    }

    pub(in crate::runtime) fn acquire(&self) -> Live {
        match live::acquire(self.path(), "gate.pol.1").unwrap() {
            Acquired::Mine(live) => live,
            Acquired::Busy { owner } => panic!("busy: {owner}"),
        }
    }

    /// A runner at work whose owner may die: the pipes are the caller's.
    pub(in crate::runtime) fn start(&self, live: &Live, spec: &RunSpec) -> Child {
        let (mut runner, order) = owner::start(live, &self.runner(), spec).unwrap();
        runner.stdin.as_mut().unwrap().write_all(&order).unwrap();
        runner
    }

    fn run_spec(&self, spec: &RunSpec) -> Ran {
        let live = self.acquire();
        run(&live, &self.runner(), spec).unwrap()
    }

    fn run(&self, script: &str) -> Ran {
        self.run_spec(&self.spec(script, 60_000))
    }

    /// The processes whose pids the gate wrote, one a line.
    fn recorded(&self, file: &str) -> Vec<u32> {
        let text = fs::read_to_string(self.path().join(file)).unwrap_or_default();
        text.lines().filter_map(|line| line.trim().parse().ok()).collect()
    }

    /// Fails if a process that has the lab's mark in its environment runs.
    pub(in crate::runtime) fn assert_nothing_left(&self) {
        let left = self.survivors();
        assert!(left.is_empty(), "left: {left:?}");
    }

    fn survivors(&self) -> Vec<ProcessId> {
        process::started_with(format!("LAB={}", self.path().display()).as_bytes()).unwrap()
    }

    fn marked(&self, script: &str, timeout_ms: u64) -> RunSpec {
        let mut spec = self.spec(script, timeout_ms);
        spec.env.push(("LAB".into(), self.path().into()));
        spec
    }
}

/// Waits for a condition; a test that waits in vain says so.
pub(in crate::runtime) fn until(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(stream: &Captured) -> String {
    assert_eq!(stream.omitted, 0);
    String::from_utf8([stream.head.as_slice(), &stream.tail].concat()).unwrap()
}

/// Ignores what can be ignored, leaves the group and the session, forks twice.
const ESCAPE: &str = "setsid sh -c 'trap \"\" TERM HUP INT; (sleep 300 & sleep 300) & \
                      echo $$ >> escaped; sleep 300' & ";

#[test]
fn reports_exit_codes_and_both_streams() {
    let lab = Lab::new();
    let ran = lab.run("echo out; echo err >&2; exit 3");
    assert_eq!(ran.ended, Ended::Exited(3));
    assert_eq!((text(&ran.stdout), text(&ran.stderr)), ("out\n".into(), "err\n".into()));
    assert!(ran.signals.is_empty() && !ran.cancelled);
}

#[test]
fn reports_the_signal_that_ended_it() {
    let ran = Lab::new().run("kill -SEGV $$");
    assert_eq!(ran.ended, Ended::Signaled("SIGSEGV".into()));
}

#[test]
fn case_78_a_pipe_holder_holds_up_nothing() {
    let lab = Lab::new();
    let begun = Instant::now();
    let ran = lab.run_spec(&lab.marked("sleep 300 & echo done; exit 0", 60_000));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!((ran.ended, text(&ran.stdout)), (Ended::Exited(0), "done\n".into()));
    lab.assert_nothing_left();
    let late = lab.run("(sleep 1; echo late-but-real) & wait; echo end");
    assert_eq!(text(&late.stdout), "late-but-real\nend\n");
}

#[test]
fn case_79_and_81_the_deadline_ends_the_whole_tree() {
    let lab = Lab::new();
    let script =
        format!("{ESCAPE} trap '' TERM; while :; do sleep 1; [ -e never ] && echo survived; done");
    let begun = Instant::now();
    let ran = lab.run_spec(&lab.marked(&script, 500));
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(ran.ended, Ended::TimedOut);
    assert_eq!(ran.signals, ["TERM", "KILL"]);
    assert!(ran.duration_ms >= 500 + limits::GATE_KILL_GRACE_MS);
    assert_eq!(lab.recorded("escaped").len(), 1);
    lab.assert_nothing_left();
}

#[test]
fn a_tree_that_obeys_is_not_killed() {
    let lab = Lab::new();
    let below =
        "sh -c 'trap \"sleep 0.3; echo tidy; exit 0\" TERM; echo > ready; sleep 60 & wait' & ";
    let ran = lab.run_spec(&lab.marked(&format!("{below} wait"), 500));
    assert!(lab.path().join("ready").exists());
    assert_eq!((ran.ended, text(&ran.stdout)), (Ended::TimedOut, "tidy\n".into()));
    assert_eq!(ran.signals, ["TERM"]);
    lab.assert_nothing_left();
}

#[test]
fn what_escapes_dies_at_a_normal_end_too() {
    let lab = Lab::new();
    let script =
        format!("{ESCAPE} while [ ! -s escaped ]; do sleep 0.01; done; kill -STOP $!; exit 0");
    let ran = lab.run_spec(&lab.marked(&script, 60_000));
    assert_eq!(ran.ended, Ended::Exited(0));
    assert!(ran.signals.is_empty());
    assert_eq!(lab.recorded("escaped").len(), 1);
    lab.assert_nothing_left();
}

#[test]
fn thirty_random_trees_leave_nothing() {
    let lab = Lab::new();
    let mut seed = 20_250_101_u32;
    for round in 0..30 {
        let mut script = String::new();
        for _ in 0..3 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            script.push_str(match (seed >> 24) % 6 {
                0 => "(sleep 300 &) ;",
                1 => "setsid sleep 300 & ",
                2 => "setsid sh -c 'setsid sleep 300 & exec >/dev/null 2>&1; sleep 300' & ",
                3 => "sh -c 'kill -STOP $$; sleep 300' & ",
                4 => "sh -c 'trap \"\" TERM; while :; do sleep 0.01; done' & ",
                _ => "(trap '' TERM HUP; (setsid sleep 300 &) ; exit) & ",
            });
        }
        script.push_str(if round % 10 == 0 { "wait" } else { "exit 0" });
        lab.run_spec(&lab.marked(&script, 50));
        lab.assert_nothing_left();
    }
}

#[test]
fn case_82_and_83_floods_are_counted_not_kept() {
    let lab = Lab::new();
    let half = 50 * 1024 * 1024_u64;
    let ran = lab.run(&format!(
        "head -c {half} /dev/zero >&2 & head -c {half} /dev/zero | tr '\\0' o; wait; echo fin"
    ));
    assert_eq!(ran.ended, Ended::Exited(0));
    assert_eq!((ran.stdout.total, ran.stderr.total), (half + 4, half));
    for stream in [&ran.stdout, &ran.stderr] {
        assert_eq!(stream.head.len(), limits::OUTPUT_HEAD_BYTES);
        assert_eq!(stream.tail.len(), limits::OUTPUT_TAIL_BYTES);
    }
    assert!(ran.stdout.tail.ends_with(b"ofin\n"));
}

#[test]
fn case_84_bytes_stay_bytes() {
    let ran =
        Lab::new().run("printf '\\377\\376 ok\\n'; printf '\\303'; sleep 0.1; printf '\\251\\n'");
    assert_eq!(ran.stdout.head, b"\xff\xfe ok\n\xc3\xa9\n");
}

#[test]
fn case_89_and_90_no_input_and_no_terminal() {
    let script =
        "cat; echo got-eof; { read -r x < /dev/tty; } 2>/dev/null && echo tty || echo no-tty";
    assert_eq!(text(&Lab::new().run(script).stdout), "got-eof\nno-tty\n");
}

#[test]
fn inherits_nothing_but_the_given_environment_and_three_descriptors() {
    let lab = Lab::new();
    // Besides 0, 1 and 2 `ls` sees the descriptor with which it lists.
    let ran =
        lab.run("ls /proc/self/fd | wc -l; cat /proc/self/status | grep -E '^Sig(Blk|Ign)'; env");
    let out = text(&ran.stdout);
    let mut lines = out.lines();
    assert_eq!(lines.next().map(str::trim), Some("4"));
    assert_eq!(lines.next(), Some("SigBlk:\t0000000000000000"));
    // The C library keeps signals 32 and 33 for itself and lets nobody change them.
    let ignored = lines.next().unwrap().trim_start_matches("SigIgn:\t");
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & !(0b11 << 31), 0);
    let mut names: Vec<_> = lines.filter_map(|line| line.split('=').next()).collect();
    names.sort_unstable();
    // The shell itself adds PWD, and some add more of their own.
    names.retain(|name| !matches!(*name, "PWD" | "OLDPWD" | "SHLVL" | "_"));
    assert_eq!(names, ["AGENTPROTO_RUN", "PATH"]);
}

#[test]
fn arguments_and_values_that_are_not_utf8_arrive() {
    let lab = Lab::new();
    let odd = OsString::from_vec(vec![b'a', 0xFF, b'\n']);
    let mut spec = lab.spec("printf %s \"$1$ODD\"", 60_000);
    spec.args.extend(["sh".into(), odd.clone()]);
    spec.env.push(("ODD".into(), odd));
    assert_eq!(lab.run_spec(&spec).stdout.head, b"a\xff\na\xff\n");
}

#[test]
fn case_88_what_cannot_be_executed_is_not_started() {
    let lab = Lab::new();
    let check = |program: PathBuf, expected: &str| {
        let spec = RunSpec { program, args: Vec::new(), ..lab.spec("", 1_000) };
        let because = format!("cannot be started: {expected}");
        assert_eq!(lab.run_spec(&spec).ended, Ended::NotStarted(because));
    };
    check(lab.path().join("missing"), "No such file or directory (os error 2)");
    let plain = lab.path().join("plain");
    fs::write(&plain, "#!/bin/sh\nexit 0\n").unwrap();
    check(plain, "Permission denied (os error 13)");
    let script = lab.script("no-interpreter", "");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    check(script, "No such file or directory (os error 2)");
    let empty = lab.script("empty", "");
    fs::write(&empty, "").unwrap();
    check(empty, "Exec format error (os error 8)");
    let nowhere = RunSpec { cwd: lab.path().join("missing"), ..lab.spec("exit 0", 1_000) };
    let because = "has no directory to run in: No such file or directory (os error 2)".into();
    assert_eq!(lab.run_spec(&nowhere).ended, Ended::NotStarted(because));
}

#[test]
fn the_lock_is_shared_with_the_runner_and_not_with_the_gate() {
    let lab = Lab::new();
    let script = "n=0; for fd in /proc/$$/fd/*; do case $(readlink $fd) in */live/*) n=1;; esac; done; echo $n; \
                  cp live/gate.pol.1 record";
    let ran = lab.run(script);
    assert_eq!(text(&ran.stdout), "0\n");
    let record: live::Record =
        serde_json::from_slice(&fs::read(lab.path().join("record")).unwrap()).unwrap();
    assert_eq!(record.owner, process::own().unwrap());
    for process in [record.runner.unwrap(), record.main.unwrap()] {
        assert_eq!(process::alive(&process), Liveness::Gone);
    }
    assert!(!lab.path().join("live/gate.pol.1").exists());
}

#[test]
fn a_runner_that_says_nothing_is_an_error() {
    let lab = Lab::new();
    let live = lab.acquire();
    let died = run(&live, Path::new("/bin/false"), &lab.spec("exit 0", 1_000));
    assert!(matches!(died, Err(RunnerError::Died { .. })), "{died:?}");
    let missing = run(&live, &lab.path().join("missing"), &lab.spec("exit 0", 1_000));
    assert!(matches!(missing, Err(RunnerError::Start { .. })), "{missing:?}");
    let relative = run(&live, Path::new("runner"), &lab.spec("exit 0", 1_000));
    assert!(matches!(relative, Err(RunnerError::NotAbsolute(_))), "{relative:?}");
}

/// What a gate does to its runner, and how the owner ends it all. Some of it left the tree and has the mark,
/// some is only found below the runner.
fn attacked(attack: &str, waited_ms: u64) -> RunnerError {
    let lab = Lab::new();
    let script =
        format!("{ESCAPE} while [ ! -s escaped ]; do sleep 0.01; done; {attack}; sleep 300");
    let begun = Instant::now();
    let spec = lab.marked(&script, 60_000);
    let error = owner::run_within(&lab.acquire(), &lab.runner(), &spec, waited_ms).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(lab.recorded("escaped").len(), 1);
    lab.assert_nothing_left();
    error
}

#[test]
fn a_gate_that_kills_its_runner_gets_no_result_and_leaves_nothing() {
    let error = attacked("kill -9 $PPID", 60_000);
    assert_eq!(error.code(), Code::RunnerFailed);
    let told = "the runner of gate.pol.1 ended without a result: signal: 9 (SIGKILL)";
    assert_eq!(error.to_string(), told);
}

#[test]
fn a_gate_that_stops_its_runner_meets_the_owners_deadline() {
    let error = attacked("kill -STOP $PPID", 3_000);
    assert_eq!(error.code(), Code::RunnerFailed);
    let told = "the runner of gate.pol.1 gave no result within 3000 ms and was killed";
    assert_eq!(error.to_string(), told);
}

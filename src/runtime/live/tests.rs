//! Owners and runners that die; real processes, the runner tests' lab.

use super::*;
use crate::runtime::runner::{
    Ended, run,
    tests::{Lab, until},
};
use std::fs;
use std::{
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

const EFFECT: &str = "gate.pol.1";

#[expect(clippy::disallowed_methods, reason = "test set-up")]
fn start(program: &str, args: &[&str], vars: &[(&str, &str)]) -> Child {
    let mut command = Command::new(program);
    command.args(args).envs(vars.iter().copied()).stdout(Stdio::null()).spawn().unwrap()
}

fn id(child: &Child) -> ProcessId {
    process::of_pid(child.id()).unwrap().unwrap()
}

fn dead() -> ProcessId {
    ProcessId { start: 1, ..process::own().unwrap() }
}

fn leave(dir: &Path, bytes: &[u8]) {
    fs::create_dir_all(dir.join("live")).unwrap();
    fs::write(dir.join("live").join(EFFECT), bytes).unwrap();
}

fn load_record(lab: &Lab) -> Option<Record> {
    load(&lab.path().join("live").join(EFFECT)).ok().flatten()
}

#[test]
fn busy_while_held_and_free_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    let Acquired::Mine(live) = acquire(dir.path(), EFFECT).unwrap() else { panic!("not ours") };
    let Acquired::Busy { owner } = acquire(dir.path(), EFFECT).unwrap() else { panic!("twice") };
    let expected = format!("process {} since {}", std::process::id(), live.record().started_at);
    assert_eq!(owner, expected);
    let mode = fs::metadata(live.path()).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o600);
    drop(live);
    assert!(!dir.path().join("live").join(EFFECT).exists());
    assert!(matches!(acquire(dir.path(), EFFECT).unwrap(), Acquired::Mine(_)));
}

#[test]
fn never_two_at_once_though_files_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (holders, turns) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while turns.load(Ordering::SeqCst) < 300 {
                    if let Acquired::Mine(live) = acquire(dir.path(), EFFECT).unwrap() {
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::SeqCst);
                        turns.fetch_add(1, Ordering::SeqCst);
                        drop(live);
                    }
                }
            });
        }
    });
}

#[test]
fn gives_back_only_its_own_file() {
    let dir = tempfile::tempdir().unwrap();
    let Acquired::Mine(first) = acquire(dir.path(), EFFECT).unwrap() else { panic!("not ours") };
    fs::remove_dir_all(dir.path().join("live")).unwrap();
    let Acquired::Mine(second) = acquire(dir.path(), EFFECT).unwrap() else { panic!("not ours") };
    drop(first);
    assert!(second.path().exists());
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    for bad in ["", "../lock", "a/b", ".hidden", "a b"] {
        assert!(matches!(acquire(Path::new("/"), bad), Err(LiveError::BadEffect(_))), "{bad}");
    }
}

#[test]
fn takeover_kills_what_the_dead_left_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let runner = dead();
    let (name, value) = mark(&runner);
    let mut main = start("sh", &["-c", "sleep 300 & wait"], &[]);
    let mut scattered = start("sleep", &["300"], &[(name, &value)]);
    let mut stranger = start("sleep", &["300"], &[(name, "another")]);
    let record = Record {
        owner: dead(),
        runner: Some(runner),
        main: Some(id(&main)),
        started_at: Timestamp::from_ms(0),
    };
    let below = || process::descendants(main.id()).unwrap();
    until("the main process has a child", || !below().is_empty());
    let below = below();
    leave(dir.path(), &serde_json::to_vec(&record).unwrap());
    assert!(matches!(acquire(dir.path(), EFFECT).unwrap(), Acquired::Mine(_)));
    assert!(below.iter().all(|p| process::alive(p) == Liveness::Gone));
    main.wait().unwrap();
    scattered.wait().unwrap();
    assert_eq!(process::alive(&id(&stranger)), Liveness::Alive);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn a_reused_pid_or_another_boot_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = start("sleep", &["300"], &[]);
    let now = id(&child);
    let earlier = ProcessId { start: now.start - 1, ..now.clone() };
    let other_boot = ProcessId { boot: "another".into(), ..now.clone() };
    for main in [earlier, other_boot] {
        let owner = ProcessId { start: 1, ..main.clone() };
        let record =
            Record { owner, runner: None, main: Some(main), started_at: Timestamp::from_ms(0) };
        leave(dir.path(), &serde_json::to_vec(&record).unwrap());
        assert!(matches!(acquire(dir.path(), EFFECT).unwrap(), Acquired::Mine(_)));
        assert_eq!(process::alive(&now), Liveness::Alive);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_record_nobody_understands_is_not_taken_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    leave(dir.path(), b"{\"owner\":");
    assert!(matches!(acquire(dir.path(), EFFECT), Err(LiveError::Unreadable { .. })));
    for nothing in [&b""[..], &[0; 200]] {
        leave(dir.path(), nothing);
        assert!(matches!(acquire(dir.path(), EFFECT).unwrap(), Acquired::Mine(_)));
    }
}

#[test]
fn cancel_ends_a_running_gate_and_its_tree() {
    let lab = Lab::new();
    assert_eq!(request_cancel(lab.path(), EFFECT).unwrap(), Cancelled::NotRunning);
    let live = lab.acquire();
    let spec = lab.spec("trap '' TERM; setsid sleep 300 & sleep 300", 60_000);
    let ran = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&live, &lab.runner(), &spec).unwrap());
        until("the gate runs", || load_record(&lab).is_some_and(|r| r.main.is_some()));
        assert_eq!(request_cancel(lab.path(), EFFECT).unwrap(), Cancelled::Ended);
        running.join().unwrap()
    });
    assert!(ran.cancelled);
    assert_eq!(ran.ended, Ended::Signaled("SIGKILL".into()));
    assert!(ran.duration_ms < 20_000);
}

/// Plays an owner that dies: the pipe to the runner ends, nobody reads its answer.
#[test]
fn a_dead_owner_takes_everything_with_it() {
    let lab = Lab::new();
    let live = lab.acquire();
    let spec = lab.spec("setsid sh -c 'sleep 300 & wait' & sleep 300", 60_000);
    let mut runner = lab.start(&live, &spec);
    until("the gate runs", || load_record(&lab).is_some_and(|r| r.main.is_some()));
    let record = load_record(&lab).unwrap();
    let tree = || process::descendants(record.runner.as_ref().unwrap().pid).unwrap();
    until("the tree has grown", || tree().len() >= 4);
    let tree = tree();
    drop(runner.stdin.take());
    runner.wait().unwrap();
    assert!(tree.iter().all(|p| process::alive(p) == Liveness::Gone));
}

/// The runner is killed and cannot clear away: the next taker does, by record and mark.
#[test]
fn a_killed_runner_leaves_work_for_the_next_taker() {
    let lab = Lab::new();
    let live = lab.acquire();
    let spec = lab.spec("(setsid sh -c 'sleep 300 & wait' &) ; sleep 300", 60_000);
    let mut runner = lab.start(&live, &spec);
    until("the gate runs", || load_record(&lab).is_some_and(|r| r.main.is_some()));
    let record = load_record(&lab).unwrap();
    let tree = || process::descendants(record.runner.as_ref().unwrap().pid).unwrap();
    until("the tree has grown", || tree().len() >= 4);
    let tree = tree();
    assert!(matches!(acquire(lab.path(), EFFECT).unwrap(), Acquired::Busy { .. }));
    runner.kill().unwrap();
    runner.wait().unwrap();
    let survivors = tree.iter().filter(|p| process::alive(p) == Liveness::Alive).count();
    assert!(survivors >= 2, "the escaped ones outlive their runner");
    // As at the owner's death: the lock goes, the file stays.
    live.file().unlock().unwrap();
    std::mem::forget(live);
    assert!(matches!(acquire(lab.path(), EFFECT).unwrap(), Acquired::Mine(_)));
    assert!(tree.iter().all(|p| process::alive(p) == Liveness::Gone));
}

/// The gate stops its runner: the request to end makes it go on, and it ends as asked.
#[test]
fn cancel_reaches_a_stopped_runner() {
    let lab = Lab::new();
    let live = lab.acquire();
    let spec = lab.spec("kill -STOP $PPID; echo > stopped; sleep 300", 60_000);
    let ran = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&live, &lab.runner(), &spec).unwrap());
        until("the runner is stopped", || lab.path().join("stopped").exists());
        assert_eq!(request_cancel(lab.path(), EFFECT).unwrap(), Cancelled::Ended);
        running.join().unwrap()
    });
    assert!(ran.cancelled);
}

/// Plays a runner that does not listen.
#[test]
fn cancel_kills_a_runner_that_does_not_obey() {
    let dir = tempfile::tempdir().unwrap();
    let Acquired::Mine(live) = acquire(dir.path(), EFFECT).unwrap() else { panic!("not ours") };
    let mut runner = start("sh", &["-c", "trap '' TERM; setsid sleep 300 & wait; sleep 300"], &[]);
    let runner_id = id(&runner);
    let (name, value) = mark(&runner_id);
    let mut scattered = start("sleep", &["300"], &[(name, &value)]);
    until("it does not listen", || {
        let status = fs::read_to_string(format!("/proc/{}/status", runner.id())).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(ignored.trim(), 16).unwrap() & (1 << 14) != 0
    });
    until("it has a child", || !process::descendants(runner.id()).unwrap().is_empty());
    let below = process::descendants(runner.id()).unwrap();
    let record = Record { runner: Some(runner_id), ..live.record().clone() };
    write(live.file(), &record).unwrap();
    assert_eq!(cancel_within(dir.path(), EFFECT, 200).unwrap(), Cancelled::Ended);
    assert!(below.iter().all(|p| process::alive(p) == Liveness::Gone));
    runner.wait().unwrap();
    scattered.wait().unwrap();
}

//! `kill -9` of a command at a random moment: the next performing command carries the work to its end, once.
//!
//! `AGENTPROTO_FLOOR=long` kills ten times as often.

use crate::{
    env::{TestEnv, is_long, pause, wait_for},
    house::text,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant},
};

const KILLS_OF_COMMIT: usize = 16;
const KILLS_OF_ACK: usize = 10;
const WARM_UPS: usize = 3;

/// `short` kills, or what there is time for.
fn kills(short: usize) -> usize {
    if is_long() { 10 * short } else { short }
}

/// Moments between zero and a quarter more than the command takes; the seed is told when a run fails.
struct Moments {
    state: u64,
    longest: Duration,
}

impl Moments {
    fn of(longest: Duration) -> Self {
        let state = u64::from(std::process::id()) | 0x5_0000_0000;
        Self { state, longest: longest * 5 / 4 }
    }

    fn next(&mut self) -> Duration {
        // Numerical Recipes' linear congruence; the upper half is even enough for moments.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let share = u32::try_from(self.state >> 33).unwrap();
        self.longest.mul_f64(f64::from(share) / f64::from(u32::MAX >> 1))
    }
}

/// Kills the child after `moment`; true when it was still running.
fn kill_after(mut child: Child, moment: Duration) -> bool {
    pause(moment);
    child.kill().unwrap();
    child.wait_with_output().unwrap().status.signal() == Some(9)
}

fn policies(env: &TestEnv) -> Vec<Value> {
    let answer = env.ap(&["policy", "list", "--all", "--json"]).exits(0).json();
    answer["policies"].as_array().unwrap().clone()
}

/// Carries every open policy to where it can go without a person.
fn carry_on(env: &TestEnv) {
    for policy in policies(env) {
        if !["done", "blocked", "cancelled"].contains(&text(&policy, "status").as_str()) {
            let id = text(&policy, "policyId");
            let code = env.ap(&["wait", &id, "--until", "settled", "--timeout", "60s"]).code();
            assert!(code == 0 || code == 5, "wait for {id} exits {code}");
        }
    }
}

/// How often `main` holds a commit of each policy.
fn landed(env: &TestEnv) -> BTreeMap<String, usize> {
    let format = "--format=%(trailers:key=Agentproto-Policy,valueonly,separator=)";
    let mut count = BTreeMap::new();
    for id in env.git(&["log", format, "main"]).lines().filter(|l| !l.is_empty()) {
        *count.entry(id.to_owned()).or_default() += 1;
    }
    count
}

fn assert_sound(env: &TestEnv) {
    let landed = landed(env);
    let done: BTreeMap<_, _> = policies(env)
        .iter()
        .filter(|p| text(p, "status") == "done")
        .map(|p| (text(p, "policyId"), 1))
        .collect();
    assert_eq!(landed, done, "each finished policy has exactly one commit, no other has any");
    let committed = env.kinds().iter().filter(|k| *k == "policy:committed").count();
    assert_eq!(committed, done.len(), "and exactly one event");
    for (id, _) in done {
        let policy = env.policy(&id);
        assert_eq!(policy["commitSha"], policy["candidate"], "{policy:#}");
        let commit = text(&policy, "candidate");
        assert_eq!(env.note_lines("gates", &commit, "agentproto-gate/1 pass ").len(), 1);
    }
    env.assert_no_gap();
    assert_eq!(env.strays(), Vec::<std::path::PathBuf>::new());
    assert_eq!(env.git(&["status", "--porcelain", "--untracked-files=no"]), "");
    env.git(&["fsck", "--strict"]);
}

fn timed(run: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    run();
    begin.elapsed()
}

/// The first run in a repository does more than the others, so the middle one counts.
fn middle(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

#[test]
fn a_killed_commit_is_finished_once() {
    let env = TestEnv::new();
    env.allow_no_ack();
    let args = |path: &str| {
        let words = ["commit", "--no-ack", "--json", "-m", "m", "--path", path, "--", "ls", path];
        words.map(str::to_owned)
    };
    let start = |path: &str| {
        env.write(path, &format!("{path}\n"));
        let args = args(path);
        env.binary(&args.each_ref().map(String::as_str))
    };
    let warm = |i| timed(|| drop(start(&format!("warm{i}")).done().exits(0)));
    let mut moments = Moments::of(middle((0..WARM_UPS).map(warm).collect()));
    let seed = moments.state;
    let mut killed = 0;
    let kills = kills(KILLS_OF_COMMIT);
    for round in 0..kills {
        killed += usize::from(kill_after(start(&format!("f{round}")).start(), moments.next()));
        carry_on(&env);
    }
    assert_sound(&env);
    let done = landed(&env).len();
    assert!(killed >= kills / 5, "seed {seed:#x}: only {killed} kills hit");
    assert!(done > WARM_UPS + kills / 10, "seed {seed:#x}: only {done} commits came to be");
    // And the next one needs no repair.
    start("last").done().exits(0);
    assert_sound(&env);
}

#[test]
fn a_killed_ack_is_consumed_at_most_once() {
    let env = TestEnv::new();
    let ack = |policy: &str| env.binary(&["ack", policy, "--yes"]);
    let mut took = Vec::new();
    for i in 0..WARM_UPS {
        let policy = env.awaiting(&format!("warm{i}"));
        took.push(timed(|| drop(ack(&policy).done().exits(0))));
    }
    let mut moments = Moments::of(middle(took));
    let seed = moments.state;
    let mut killed = 0;
    let kills = kills(KILLS_OF_ACK);
    for round in 0..kills {
        let policy = env.awaiting(&format!("f{round}"));
        killed += usize::from(kill_after(ack(&policy).start(), moments.next()));
        carry_on(&env);
        if text(&env.policy(&policy), "status") == "awaiting-ack" {
            env.ap(&["ack", &policy, "--yes"]).exits(0);
        }
        let shown = env.policy(&policy);
        assert_eq!(text(&shown, "status"), "done", "seed {seed:#x}: {shown:#}");
        assert_eq!(env.git(&["rev-parse", "main"]), text(&shown, "candidate"));
        let commit = text(&shown, "candidate");
        assert_eq!(env.note_lines("acks", &commit, "agentproto-ack/1 approve ").len(), 1);
    }
    assert_sound(&env);
    assert!(killed >= kills / 5, "seed {seed:#x}: only {killed} kills hit");
    let acked = env.kinds().iter().filter(|k| *k == "policy:acked").count();
    assert_eq!(acked, kills + WARM_UPS);
}

/// In tables one lock stops every change of every ref: a command that dies while git holds it for the command
/// must take it along.
#[test]
fn a_command_killed_while_git_holds_the_lock_of_all_refs_leaves_none() {
    let env = TestEnv::bare();
    env.make_repo_with("r", &["--ref-format", "reftable"]);
    env.ap(&["init", "--yes"]).exits(0);
    env.adopt("before");
    // A git that promises and keeps it to itself, so that the kill comes in between for sure.
    let real = env.run("sh", &["-c", "command -v git"]).done().exits(0).out();
    let dir = env.path("mute");
    fs::create_dir(&dir).unwrap();
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*--no-deref*) {real} \"$@\" | cat >/dev/null ;;\n*) exec {real} \"$@\" ;;\nesac\n",
        real = real.trim()
    );
    fs::write(dir.join("git"), script).unwrap();
    fs::set_permissions(dir.join("git"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", dir.display());
    let top = env.repo();
    let args = ["session", "adopt", "--label", "killed", "--cwd", top.to_str().unwrap()];
    let mut child = env.binary(&args).env("PATH", path).start();
    let lock = top.join(".git/reftable/tables.list.lock");
    wait_for("git holds the lock", Duration::from_secs(60), || lock.exists().then_some(()));
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    wait_for("git takes its lock back", Duration::from_secs(60), || (!lock.exists()).then_some(()));
    // The frame was written, so it counts: the next one brings it to the refs.
    env.adopt("after");
    env.assert_no_gap();
    let told = env.ap(&["session", "list", "--json"]).exits(0).json();
    assert_eq!(told["sessions"].as_array().unwrap().len(), 3, "{told:#}");
}

/// A live file as a kill leaves it: of a process with this number that is gone, or of nobody yet.
fn left_by_the_dead(env: &TestEnv, effect: &str, main: Option<Value>) -> PathBuf {
    let live = env.repo().join(".git/agentproto/live");
    fs::create_dir_all(&live).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let dead = json!({ "pid": std::process::id(), "start": 1, "boot": boot.trim() });
    let mut record = json!({ "owner": dead, "startedAt": "2026-01-01T00:00:00.000Z" });
    if let Some(main) = main {
        record["main"] = main;
    }
    fs::write(live.join(effect), record.to_string()).unwrap();
    live.join(effect)
}

#[track_caller]
fn fsck_on(env: &TestEnv, file: &Path, exit: i32) -> Value {
    let report = env.ap(&["fsck", "--json"]).exits(exit).json();
    let about = |f: &&Value| text(f, "subject") == file.display().to_string();
    let found = report["findings"].as_array().unwrap().iter().find(about).cloned();
    found.unwrap_or_else(|| panic!("nothing is said of {}: {report:#}", file.display()))
}

#[test]
fn what_a_kill_leaves_of_an_effect_that_is_over_goes_with_the_next_performer() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("a.txt", "a\n");
    let done = text(&env.commit(&["a.txt"], &["true"]).exits(0).json(), "policyId");
    let waiting = env.awaiting("held.txt");
    fs::remove_file(env.held_landing(&waiting)).unwrap();

    let over = left_by_the_dead(&env, &format!("land.{done}"), None);
    let begun = over.with_file_name(format!("gate.{done}.1"));
    fs::write(&begun, "").unwrap();
    let due = left_by_the_dead(&env, &format!("land.{waiting}"), None);
    let held = left_by_the_dead(&env, &format!("gate.{done}.2"), None);
    let holder = fs::File::open(&held).unwrap();
    holder.lock().unwrap();
    for file in [&over, &due, &held] {
        let found = fsck_on(&env, file, 0);
        assert_eq!(text(&found, "severity"), "note", "{found:#}");
        assert!(file.exists(), "fsck acts");
    }

    // Whoever performs anything finishes a dead landing first: its lock would be in everybody's way.
    env.write("b.txt", "b\n");
    env.commit(&["b.txt"], &["false"]).exits(1);
    assert!(!over.exists() && !begun.exists(), "what is over is still there");
    assert!(!due.exists(), "a dead landing is left to its own performer");
    assert!(held.exists(), "what is held was taken away");
    drop(holder);
    env.ap(&["wait", &waiting, "--until", "done", "--timeout", "30s"]).exits(0);
    assert_eq!(fs::read_dir(due.parent().unwrap()).unwrap().count(), 0);
    assert_sound(&env);
}

#[test]
fn what_a_kill_leaves_is_counted_and_cleared_by_gc() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("a.txt", "a\n");
    let done = text(&env.commit(&["a.txt"], &["true"]).exits(0).json(), "policyId");
    let left = left_by_the_dead(&env, &format!("gate.{done}.1"), None);
    let runs =
        |args: &[&str]| env.ap(&[&["gc", "--json"], args].concat()).exits(0).json()["runs"].clone();
    assert_eq!((runs(&["--dry-run"]), left.exists()), (json!(1), true));
    assert_eq!((runs(&[]), left.exists()), (json!(1), false));
    assert_eq!(runs(&[]), json!(0));
}

#[test]
fn a_gate_that_nobody_watches_is_a_problem_and_ends_with_the_next_performer() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("a.txt", "a\n");
    let done = text(&env.commit(&["a.txt"], &["true"]).exits(0).json(), "policyId");
    let mut gate = std::process::Command::new("sleep").arg("120").spawn().unwrap();
    let stat = fs::read_to_string(format!("/proc/{}/stat", gate.id())).unwrap();
    let start: u64 = stat.rsplit(") ").next().unwrap().split(' ').nth(19).unwrap().parse().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let main = json!({ "pid": gate.id(), "start": start, "boot": boot.trim() });
    let file = left_by_the_dead(&env, &format!("gate.{done}.1"), Some(main));
    let found = fsck_on(&env, &file, 1);
    assert!(text(&found, "what").contains(&format!("process {} still runs", gate.id())), "{found}");

    env.write("b.txt", "b\n");
    env.commit(&["b.txt"], &["true"]).exits(0);
    let ended =
        wait_for("the gate was ended", Duration::from_secs(10), || gate.try_wait().unwrap());
    assert_eq!(ended.signal(), Some(9));
    assert!(!file.exists());
    env.ap(&["fsck"]).exits(0);
}

/// A landing killed while it holds the index lock: a git that kills who asks it to move the branch.
fn killed_landing(env: &TestEnv) -> String {
    let id = env.awaiting("f.txt");
    let dir = env.path("deadly");
    fs::create_dir(&dir).unwrap();
    let git = env.run("sh", &["-c", "command -v git"]).done().exits(0).out();
    let body = format!(
        "#!/bin/sh\ncase \"$*\" in *update-ref*) kill -9 $PPID; exit 1;; esac\nexec {} \"$@\"\n",
        git.trim()
    );
    fs::write(dir.join("git"), body).unwrap();
    fs::set_permissions(dir.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", dir.display());
    env.binary(&["ack", "--yes", &id]).env("PATH", path).done().exits(128 + 9);
    assert!(env.repo().join(".git/index.lock").exists());
    id
}

#[test]
fn whoever_performs_next_finishes_a_landing_that_was_killed() {
    let env = TestEnv::new();
    env.allow_no_ack();
    let id = killed_landing(&env);
    env.write("g.txt", "another\n");
    let args = ["commit", "--no-ack", "--path=g.txt", "-m", "g", "--", "true"];
    env.ap(&args).exits(0);
    assert!(!env.repo().join(".git/index.lock").exists());
    let shown = env.ap(&["policy", "show", &id, "--json"]).exits(0).json();
    assert_eq!(shown["status"], "done", "{shown}");
    assert_eq!(env.git(&["diff", "--cached", "--name-only"]), "");
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn the_lock_of_a_killed_landing_goes_though_the_side_directory_went_first() {
    let env = TestEnv::new();
    let id = killed_landing(&env);
    fs::remove_dir_all(env.repo().join(".git/agentproto")).unwrap();
    env.ap(&["wait", &id, "--timeout", "30s"]).exits(0);
    assert!(!env.repo().join(".git/index.lock").exists());
    assert_eq!(env.git(&["diff", "--cached", "--name-only"]), "");
    env.ap(&["verify", "main~1..main"]).exits(0);
}

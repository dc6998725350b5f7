//! Failure cases about gates: deadlines, process trees, the directory and the environment they run in.

use crate::{
    env::{PATIENCE, TestEnv, command_lines, wait_for},
    house::text,
};
use serde_json::Value;
use std::path::Path;

/// Attaches a gate script with a deadline of one second, ends the turn, and tells the policy.
fn timed_out(body: &str) -> (TestEnv, Value) {
    let env = TestEnv::new();
    env.script("slow.sh", body);
    let session = env.adopt("slow");
    let policy = env.attach(&session, &["--gate-timeout", "1s", "--", "./slow.sh"]);
    env.turn_end(&session, &policy).exits(1);
    let policy = env.policy(&policy);
    (env, policy)
}

fn assert_timeout(policy: &Value) {
    assert_eq!(text(policy, "status"), "blocked", "{policy:#}");
    assert_eq!(text(policy, "reason"), "gate-red");
    let gate = &policy["lastGate"];
    assert_eq!(gate["timedOut"], Value::Bool(true), "{gate:#}");
    assert_eq!(text(gate, "verdict"), "fail");
    // One second, then two more for those who do not listen.
    assert!((1000..10_000).contains(&gate["durationMs"].as_u64().unwrap()), "{gate:#}");
}

/// An argument of `sleep` that no other process on the machine has.
fn marker(seconds: u32) -> String {
    format!("{seconds}.{:06}", std::process::id() % 1_000_000)
}

fn survivors(marker: &str) -> Vec<String> {
    command_lines().into_iter().filter(|line| line.contains(marker)).collect()
}

#[test]
fn case_079_deadline_ends_the_whole_tree() {
    let mark = marker(6079);
    let (env, policy) = timed_out(&format!(
        "(sleep {mark}; echo x >> a.txt; git commit -qam from-the-dead) &\n\
         setsid sh -c 'sleep {mark}; git commit -qam from-the-dead' &\n\
         sleep {mark}"
    ));
    assert_timeout(&policy);
    // The record says it is over, so it is: nothing can commit later because nothing is left.
    assert_eq!(survivors(&mark), Vec::<String>::new());
    assert!(!env.git(&["log", "--format=%s", "main"]).contains("from-the-dead"));
    env.ap(&["status"]).exits(0);
}

#[test]
fn case_081_deadline_kills_what_ignores_term() {
    let mark = marker(1);
    let (_env, policy) = timed_out(&format!(
        "trap '' TERM\ni=0\nwhile [ $i -lt 30 ]; do sleep {mark}; i=$((i+1)); done\necho survived"
    ));
    assert_timeout(&policy);
    assert_eq!(policy["lastGate"]["signals"], serde_json::json!(["TERM", "KILL"]));
    let tail = policy["lastGate"]["tail"].as_str().unwrap_or_default();
    assert!(!tail.contains("survived"), "{tail}");
    wait_for("the gate's processes to be gone", PATIENCE, || {
        survivors(&mark).is_empty().then_some(())
    });
}

/// Commits a change of `a.txt` from `dir`, where the file is called `path`: exit code and gate's words.
fn gated_from(env: &TestEnv, dir: &Path, path: &str, content: &str) -> (i32, String) {
    std::fs::write(dir.join(path), content).unwrap();
    let args = ["commit", "--json", "--no-ack", "-m", "m", "--path", path, "--", "./where.sh"];
    // Words about the directory that are not true must not matter.
    let out = env.tool(&args).dir(dir).env("PWD", "/").env("CDPATH", env.repo()).done();
    let tail = text(&out.json()["lastGate"], "tail");
    (out.code(), tail)
}

#[test]
fn case_091_gate_runs_in_its_own_worktree() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script("where.sh", "pwd -P\ngit rev-parse --show-toplevel\ntest ! -e flag");
    let linked = env.worktree("t1");
    let deep = linked.join("deep/er");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(linked.join("flag"), "BAD").unwrap();
    let said = |tree: &Path| format!("{0}\n{0}", tree.display());

    // Asked for from the main checkout.
    let session = env.adopt_in(&linked, "t1");
    let policy = env.attach(&session, &["--", "./where.sh"]);
    env.turn_end(&session, &policy).exits(1);
    let gate = env.policy(&policy)["lastGate"].clone();
    assert_eq!(text(&gate, "tail").trim_end(), said(&linked), "{gate:#}");

    // From below it, and from elsewhere.
    let (code, tail) = gated_from(&env, &deep, "../../a.txt", "1\n");
    assert_eq!((code, tail.trim_end()), (1, said(&linked).as_str()));
    let dir = linked.to_str().unwrap();
    let args =
        ["-C", dir, "agentproto", "commit", "--json", "--no-ack", "-m", "m", "--path", "a.txt"];
    let args: Vec<_> = args.into_iter().chain(["--", "./where.sh"]).collect();
    let out = env.run("git", &args).dir("/").done().exits(1);
    assert_eq!(text(&out.json()["lastGate"], "tail").trim_end(), said(&linked));

    // The main checkout has no flag.
    let (code, tail) = gated_from(&env, &env.repo(), "a.txt", "2\n");
    assert_eq!((code, tail.trim_end()), (0, said(&env.repo()).as_str()));
}

#[test]
fn case_093_repository_variables_do_not_leak() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script(
        "inner.sh",
        "env | grep '^GIT_' && exit 1\n\
         d=$(mktemp -d) && cd \"$d\" && git init -q && echo t > t && git add t && git commit -qm inner\n\
         git log --format=%an; rm -rf \"$d\"",
    );
    let count = || env.git(&["rev-list", "--count", "--branches"]);
    let (before, repo) = (count(), env.repo());
    let git_dir = repo.join(".git");

    env.write("a.txt", "1\n");
    let options =
        [format!("--git-dir={}", git_dir.display()), format!("--work-tree={}", repo.display())];
    let rest = [
        "agentproto",
        "commit",
        "--json",
        "--no-ack",
        "-m",
        "m",
        "--path",
        "a.txt",
        "--",
        "./inner.sh",
    ];
    let args: Vec<&str> = options.iter().map(String::as_str).chain(rest).collect();
    let out = env.run("git", &args).done().exits(0);
    assert_eq!(text(&out.json()["lastGate"], "tail").trim_end(), "Ada Example");

    // As from a git hook, with an author that is not the gate's.
    env.write("a.txt", "2\n");
    let hook = |args: &[&str]| {
        env.tool(args)
            .env("GIT_DIR", &git_dir)
            .env("GIT_INDEX_FILE", git_dir.join("index"))
            .env("GIT_PREFIX", "x/")
            .env("GIT_AUTHOR_NAME", "Hook Author")
            .env("GIT_AUTHOR_DATE", "@0 +0000")
            .env("GIT_EDITOR", ":")
    };
    let out = hook(&rest[1..]).done().exits(0);
    assert_eq!(text(&out.json()["lastGate"], "tail").trim_end(), "Ada Example");

    // Another place for objects is refused by name.
    env.write("a.txt", "3\n");
    let out = hook(&rest[1..]).env("GIT_OBJECT_DIRECTORY", git_dir.join("objects")).done().exits(6);
    assert!(out.err().contains("object-directory-unsupported"), "{out}");

    let after: u32 = count().parse().unwrap();
    assert_eq!(after, before.parse::<u32>().unwrap() + 2, "only the two governed commits came");
    assert!(!env.git(&["log", "--branches", "--format=%s"]).contains("inner\n"));
}

/// A gate is its runner's child and of the same user: it can kill it, and its work is lost, not endless.
#[test]
fn a_gate_that_kills_its_runner_is_broken() {
    let env = TestEnv::new();
    let mark = marker(6090);
    env.script("rude.sh", &format!("setsid sleep {mark} &\nkill -9 $PPID\nsleep {mark}"));
    let session = env.adopt("rude");
    let policy = env.attach(&session, &["--", "./rude.sh"]);
    env.turn_end(&session, &policy).exits(1);
    let told = env.policy(&policy);
    assert_eq!(text(&told, "status"), "blocked", "{told:#}");
    assert_eq!(text(&told, "reason"), "runner-failed", "{told:#}");
    assert_eq!(env.kinds().last().map(String::as_str), Some("policy:failed"));
    assert_eq!(survivors(&mark), Vec::<String>::new());
}

/// What a gate spoils ends its own policy, with a code: the next performer would meet the same again.
#[test]
fn a_gate_that_cuts_the_index_short_is_broken() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script("cut.sh", "head -c 40 .git/index > cut && cat cut > .git/index && rm cut");
    env.write("a.txt", "1\n");
    let head = env.git(&["rev-parse", "HEAD"]);
    let out = env.commit(&["a.txt"], &["./cut.sh"]).exits(2);
    let told = out.json();
    assert_eq!(text(&told, "status"), "blocked", "{told:#}");
    assert_eq!(text(&told, "reason"), "store-unusable", "{told:#}");
    assert_eq!(env.kinds().last().map(String::as_str), Some("policy:failed"));
    assert_eq!(env.git(&["rev-parse", "HEAD"]), head);
    env.ap(&["status"]).exits(0);
    // The next one is told so as well, instead of being started for nothing.
    assert!(env.commit(&["a.txt"], &["true"]).exits(2).err().contains("store-unusable"));
}

/// An `emit` policy counts what is beside its files before its gates run.
#[test]
fn an_index_that_cannot_be_counted_blocks_an_emit_policy() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--", "true"]);
    std::fs::write(env.repo().join(".git/index"), "DIRC").unwrap();
    env.turn_end(&session, &policy).exits(1);
    let told = env.policy(&policy);
    assert_eq!(text(&told, "reason"), "store-unusable", "{told:#}");
    let because = text(&told, "because");
    assert!(!because.contains(env.repo().to_str().unwrap()), "{because}");
}

//! What ends or holds up a policy after it was attached, and the one refusal only root can bring about.

use super::table::adopt_here;
use crate::{
    env::{Output, TestEnv, allowlist},
    house::text,
};
use git_agentproto::limits;
use serde_json::Value;
use std::fs;

/// What ends a policy that was attached: its reason, the exit code of `commit` or `wait`, and a set-up that
/// gives the policy's object.
pub(super) type Outcome = (&'static str, i32, fn(&TestEnv) -> Output);

/// A `commit --no-ack` gated by a script.
fn gated_by(env: &TestEnv, script: &str, path: &str) -> Output {
    env.write_script("gate.sh", script);
    fs::write(env.repo().join(".agentproto/allowed-commands.json"), allowlist(&["./gate.sh"]))
        .unwrap();
    env.git(&["add", "gate.sh", ".agentproto"]);
    env.git(&["commit", "-qm", "gate"]);
    env.write("a.txt", "changed\n");
    env.commit(&[path], &["./gate.sh"])
}

/// A branch `elsewhere` with a file that main lacks; main stays checked out.
fn elsewhere(env: &TestEnv) {
    env.git(&["switch", "-qc", "elsewhere"]);
    env.write("other.txt", "other\n");
    env.git(&["add", "other.txt"]);
    env.git(&["commit", "-qm", "other"]);
    env.git(&["switch", "-q", "main"]);
}

/// Attaches, lets `meanwhile` happen, ends the turn: what `wait` said, with the policy's object as stdout.
fn after(env: &TestEnv, gate: &[&str], meanwhile: impl FnOnce()) -> Output {
    let session = env.adopt("s");
    env.write("a.txt", "changed\n");
    let flags = ["--then", "commit", "--path", "a.txt", "-m", "m", "--"];
    let policy = env.attach(&session, &flags.iter().chain(gate).copied().collect::<Vec<_>>());
    meanwhile();
    let code = env.turn_end(&session, &policy).code();
    let shown = env.ap(&["policy", "show", &policy, "--json"]).exits(0);
    assert_eq!(code, 1, "wait: {shown}");
    shown
}

pub(super) const OUTCOMES: &[Outcome] = &[
    ("gate-red", 1, |e| {
        e.write("a.txt", "changed\n");
        e.commit(&["a.txt"], &["false"])
    }),
    ("gate-not-runnable", 2, |e| gated_by(e, "#!/no/such/interpreter\n", "a.txt")),
    ("output-missing", 2, |e| {
        e.write("a.txt", "changed\n");
        e.ap(&[
            "commit",
            "--json",
            "--no-ack",
            "-m",
            "m",
            "--path=a.txt",
            "--require-output=ok",
            "--",
            "true",
        ])
    }),
    ("out-of-scope", 1, |e| {
        e.write("a.txt", "changed\n");
        let args = ["commit", "--json", "--no-ack", "-m", "m", "--path=a.txt", "--scope=/src/"];
        e.ap(&args)
    }),
    ("protected-path-changed", 2, |e| {
        e.write("a.txt", "changed\n");
        e.ap(&[
            "commit",
            "--json",
            "--no-ack",
            "-m",
            "m",
            "--path=a.txt",
            "--protect=a.txt",
            "--",
            "true",
        ])
    }),
    ("tree-changed-during-gate", 2, |e| gated_by(e, "#!/bin/sh\necho more >> a.txt\n", "a.txt")),
    ("branch-switched", 0, |e| {
        elsewhere(e);
        after(e, &["true"], || {
            e.git(&["switch", "-q", "elsewhere"]);
        })
    }),
    ("branch-switched", 2, |e| {
        elsewhere(e);
        gated_by(e, "#!/bin/sh\ngit switch -q elsewhere\n", "a.txt")
    }),
    ("stale-candidate", 1, |e| {
        gated_by(e, "#!/bin/sh\ngit commit -q --allow-empty -m meanwhile\n", "a.txt")
    }),
    ("runner-failed", 2, |e| gated_by(e, "#!/bin/sh\nkill -9 $PPID\nsleep 60\n", "a.txt")),
    ("file-too-large", 2, |e| {
        let file = fs::File::create(e.repo().join("huge")).unwrap();
        file.set_len(limits::CANDIDATE_FILE_BYTES + 1).unwrap();
        e.commit(&["huge"], &["true"])
    }),
    ("file-too-large", 2, |e| {
        let names = ["one", "two", "three"];
        for name in names {
            let file = fs::File::create(e.repo().join(name)).unwrap();
            file.set_len(limits::CANDIDATE_BYTES / 3 + 1).unwrap();
        }
        e.commit(&names, &["true"])
    }),
    ("no-such-path", 2, |e| e.commit(&["nowhere.txt"], &["true"])),
    ("path-conflicts-unlisted", 2, |e| {
        fs::remove_file(e.repo().join("a.txt")).unwrap();
        e.write("a.txt/below", "x\n");
        e.commit(&["a.txt/below"], &["true"])
    }),
    ("conflict-markers", 1, |e| {
        e.write("a.txt", "<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n");
        e.commit(&["a.txt"], &["true"])
    }),
    ("commit-hook-refused", 1, |e| {
        e.write_script(".git/hooks/commit-msg", "#!/bin/sh\nexit 1\n");
        e.write("a.txt", "changed\n");
        e.commit(&["a.txt"], &["true"])
    }),
    ("hooks-changed-worktree", 2, |e| {
        e.write_script(".git/hooks/pre-commit", "#!/bin/sh\n: > beside.txt\n");
        e.write("a.txt", "changed\n");
        e.commit(&["a.txt"], &["true"])
    }),
    ("program-changed", 0, |e| {
        e.script("gate.sh", "exit 0");
        after(e, &["./gate.sh"], || e.write_script("gate.sh", "#!/bin/sh\nexit 0 # other\n"))
    }),
    ("git-operation-in-progress", 0, |e| {
        e.git(&["switch", "-qc", "side"]);
        e.git(&["commit", "-q", "--allow-empty", "-m", "side"]);
        e.git(&["switch", "-q", "main"]);
        after(e, &["true"], || {
            e.git(&["merge", "-q", "--no-ff", "--no-commit", "side"]);
        })
    }),
    ("git-operation-in-progress", 0, |e| {
        after(e, &["true"], || {
            let oid = e.git(&["rev-parse", "HEAD:a.txt"]);
            let stage = |n| format!("100644 {oid} {n}\ta.txt\n");
            let lines = format!("0 {}\ta.txt\n{}{}", "0".repeat(oid.len()), stage(2), stage(3));
            e.run("git", &["update-index", "--index-info"]).stdin(lines).done().exits(0);
        })
    }),
    ("session-failed", 0, |e| {
        let session = e.adopt("s");
        let policy = e.attach(&session, &["--", "true"]);
        e.ap(&["session", "report", &session, "turn-end", "--reason", "error"]).exits(0);
        e.ap(&["session", "report", &session, "exited", "--data", "{\"code\":1}"]).exits(0);
        e.ap(&["policy", "show", &policy, "--json"])
    }),
    ("nudge-failed", 0, |e| {
        // Told that its gate is red, it is to be run again, and is gone.
        e.write_script("agent.sh", "#!/bin/sh\nrm agent.sh\n");
        e.ap(&["run", "--label", "p", "--gate", "false", "--", "./agent.sh"]).exits(1);
        e.ap(&["policy", "show", "p", "--json"])
    }),
    ("expired", 0, |e| {
        let session = e.adopt("s");
        let policy = e.attach(&session, &["--expires", "1s", "--", "true"]);
        e.ap(&["wait", &policy, "--timeout", "30s"]).exits(1);
        e.ap(&["policy", "show", &policy, "--json"])
    }),
    ("stale-candidate", 0, |e| {
        let policy = e.awaiting_with("f.txt", &["--on-stale", "block"]);
        e.git(&["commit", "-q", "--allow-empty", "-m", "moved"]);
        e.ap(&["ack", &policy, "--yes"]).exits(6);
        e.ap(&["policy", "show", &policy, "--json"])
    }),
];

#[test]
fn every_blocked_policy_says_why_and_moves_no_branch() {
    let mut wrong = Vec::new();
    for (reason, exit, set_up) in OUTCOMES {
        let env = TestEnv::new();
        env.allow_no_ack();
        let out = set_up(&env);
        let policy: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        let told = (policy["status"].as_str(), policy["reason"].as_str());
        if (out.code(), told) != (*exit, (Some("blocked"), Some(*reason))) {
            wrong.push(format!("{reason}: {told:?}\n{out}"));
        }
        if policy["commitSha"] != Value::Null
            || env.kinds().last().map(String::as_str) == Some("policy:committed")
        {
            wrong.push(format!("{reason}: something was committed\n{out}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

#[test]
fn a_held_index_keeps_the_branch_until_it_is_free() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let before = env.git(&["rev-parse", "main"]);
    let lock = env.repo().join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    let out = env.ap(&["ack", &policy, "--yes", "--json"]).exits(2);
    assert_eq!(text(&out.json(), "status"), "committing", "{out}");
    assert!(format!("{}{}", out.out(), out.err()).contains("index-locked"), "{out}");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert!(lock.exists(), "a lock of somebody else was taken away");

    let out = env.ap(&["policy", "cancel", &policy]).exits(6);
    assert!(out.err().contains("committing"), "{out}");
    fs::remove_file(&lock).unwrap();
    env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
    assert_eq!(env.git(&["rev-parse", "main"]), text(&env.policy(&policy), "commitSha"));
}

#[test]
fn refuses_a_repository_of_another_owner() {
    // Only root can give files away; without it the situation cannot be made.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let env = TestEnv::new();
    let repo = env.repo();
    env.run("chown", &["-R", "65534:65534", repo.to_str().unwrap()]).done().exits(0);
    let listing =
        || env.run("ls", &["-lnR", "--time-style=full-iso", ".git", "."]).done().exits(0).out();
    let before = listing();
    let out = adopt_here(repo.clone()).done(&env, true).exits(128);
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(text(&error["error"], "code"), "foreign-owned-repository", "{out}");
    assert_eq!(before, listing());
}

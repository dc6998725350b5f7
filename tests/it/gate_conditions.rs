//! What a green exit alone does not prove: output that must be there, paths that must be as on the trusted ref.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use std::fs;

/// A governed commit of `a.txt` with these flags.
fn commit(env: &TestEnv, flags: &[&str], gate: &[&str]) -> Output {
    let args = ["commit", "--json", "--no-ack", "-m", "m", "--path", "a.txt"];
    let all: Vec<&str> = args.iter().chain(flags).chain(&["--"]).chain(gate).copied().collect();
    env.ap(&all)
}

/// A repository whose gate `./check.sh` runs this, with `tests/t.sh` on its trusted branch.
fn prepared(check: &str) -> TestEnv {
    let env = TestEnv::new();
    env.global("agentproto.allowNoAck", "true");
    fs::create_dir(env.repo().join("tests")).unwrap();
    env.write("tests/t.sh", "grep -q good a.txt\n");
    env.git(&["add", "tests"]);
    env.git(&["commit", "-qm", "tests"]);
    env.script("check.sh", check);
    env
}

fn assert_blocked(out: &Output, reason: &str, names: &str) {
    let policy = out.json();
    assert_eq!(out.code(), 2, "{policy:#}");
    assert_eq!(
        (text(&policy, "status"), text(&policy, "reason")),
        ("blocked".into(), reason.into())
    );
    assert_eq!(text(&policy["lastGate"], "verdict"), "broken", "{policy:#}");
    assert!(text(&policy["lastGate"], "because").contains(names), "{policy:#}");
}

#[test]
fn a_green_exit_without_the_line_that_is_asked_for_is_broken() {
    let env = prepared("cat a.txt; echo done >&2");
    let tip = env.git(&["rev-parse", "main"]);
    let wanted = "--require-output=^[1-9][0-9]* tests ran$";
    env.write("a.txt", "0 tests ran\n");
    assert_blocked(&commit(&env, &[wanted], &["./check.sh"]), "output-missing", "no line matches");
    assert_eq!(env.git(&["rev-parse", "main"]), tip);
    env.write("a.txt", "12 tests ran\n");
    let done = commit(&env, &[wanted], &["./check.sh"]).exits(0).json();
    let shown = &done["gates"][0];
    assert_eq!(text(shown, "requireOutput"), "^[1-9][0-9]* tests ran$", "{done:#}");
    let note = env.git(&["notes", "--ref=agentproto/gates", "show", "main"]);
    assert!(note.starts_with("agentproto-gate/1 pass "), "{note}");
    // Standard error is output, too; a red exit is red whatever it printed.
    env.write("a.txt", "13 tests ran\n");
    commit(&env, &["--require-output=^done$"], &["./check.sh"]).exits(0);
    env.write("a.txt", "14 tests ran\n");
    let red = commit(&env, &["--require-output=."], &["false"]).exits(1).json();
    assert_eq!(text(&red, "reason"), "gate-red");
}

#[test]
fn a_gate_whose_protected_files_were_changed_is_broken_and_does_not_run() {
    let env = prepared("touch ran; sh tests/t.sh");
    env.write(".git/info/exclude", "ran\n");
    let flags = ["--protect=/tests/", "--protect", "check.sh"];
    let run = || {
        let out = commit(&env, &flags, &["./check.sh"]);
        let ran = fs::remove_file(env.repo().join("ran")).is_ok();
        (out, ran)
    };
    env.write("a.txt", "bad\n");
    let (red, ran) = run();
    assert!(ran && red.code() == 1, "{}", red.json());
    env.write("tests/t.sh", "true\n");
    let (out, ran) = run();
    assert_blocked(&out, "protected-path-changed", "'tests/t.sh' is not as on refs/heads/main");
    assert!(!ran, "whoever changed the gate is not asked by it");
    // A commit on a branch of the agent's own does not make it trusted.
    env.git(&["switch", "-qc", "work"]);
    env.git(&["commit", "-qam", "easier tests"]);
    env.write("a.txt", "worse\n");
    assert_blocked(&run().0, "protected-path-changed", "tests/t.sh");
    env.git(&["checkout", "-q", "main", "--", "tests"]);
    env.write("tests/conftest", "new\n");
    assert_blocked(&run().0, "protected-path-changed", "tests/conftest");
    fs::remove_file(env.repo().join("tests/conftest")).unwrap();
    env.write("a.txt", "good\n");
    let (green, ran) = run();
    assert!(ran);
    assert_eq!(
        green.exits(0).json()["gates"][0]["protect"],
        serde_json::json!(["/tests/", "check.sh"])
    );
}

#[test]
fn protected_files_are_looked_at_again_when_the_gate_is_green() {
    let env = prepared("echo true > tests/t.sh");
    env.write("a.txt", "bad\n");
    let out = commit(&env, &["--protect=tests"], &["./check.sh"]);
    assert_blocked(&out, "protected-path-changed", "tests/t.sh");
    assert_eq!(env.git(&["log", "-1", "--format=%s"]), "add check.sh");
}

#[test]
fn what_the_person_ignores_everywhere_is_no_change() {
    let env = prepared("sh tests/t.sh");
    let rules = env.path("rules");
    fs::write(&rules, "*.swp\n").unwrap();
    env.global("core.excludesFile", rules.to_str().unwrap());
    env.write("tests/t.sh.swp", "editing");
    env.write("a.txt", "good\n");
    commit(&env, &["--protect=tests"], &["./check.sh"]).exits(0);
    // The repository's own configuration names another file of rules.
    let theirs = env.path("theirs");
    fs::write(&theirs, "*.swp\n").unwrap();
    env.git(&["config", "core.excludesFile", theirs.to_str().unwrap()]);
    env.write("a.txt", "good again\n");
    let out = commit(&env, &["--protect=tests"], &["./check.sh"]);
    assert_blocked(&out, "protected-path-changed", "tests/t.sh.swp");
}

#[test]
fn conditions_that_say_nothing_are_refused_before_anything_is_written() {
    let env = prepared("true");
    env.write("a.txt", "good\n");
    let session = env.adopt("s");
    let before = env.snapshot().without(&[".git/agentproto"]);
    for flags in [
        &["--require-output=("][..],
        &["--require-output="],
        &["--protect="],
        &["--protect=# words"],
        &["--protect=tests", "--require-output=*"],
    ] {
        let out = commit(&env, flags, &["./check.sh"]);
        assert_eq!(out.code(), 129, "{flags:?}: {}", out.err());
    }
    for flag in ["--require-output=x", "--protect=x"] {
        let out = env.ap(&["attach", &session, flag]);
        assert_eq!(out.code(), 129, "no gate: {}", out.err());
    }
    before
        .assert_same(&env.snapshot().without(&[".git/agentproto", "refs/agentproto"]), "refusing");
}

/// What `git stash` and `git stash pop` beside a gate do.
#[test]
fn bytes_that_were_others_while_the_gate_ran_are_not_what_was_gated() {
    let env = TestEnv::new();
    let swap =
        "cp f.txt kept\necho good > f.txt\ngrep -q good f.txt || exit 1\ncp kept f.txt\nrm kept\n";
    env.allow_no_ack();
    env.script("always.sh", swap);
    env.write("f.txt", "evil\n");
    let out = env.commit(&["f.txt"], &["./always.sh"]).exits(2).json();
    assert_eq!(text(&out, "reason"), "tree-changed-during-gate", "{out:#}");
    assert!(text(&out, "because").ends_with("holds the same again: 'f.txt'"), "{out:#}");
    // Once is an accident: it is gated once more.
    let once = format!("test -e .git/ran && exit 0\ntouch .git/ran\n{swap}");
    env.script("once.sh", &once);
    let out = env.commit(&["f.txt"], &["./once.sh"]).exits(0).json();
    assert_eq!(text(&out, "status"), "done", "{out:#}");
}

#[test]
fn a_listed_file_that_the_gate_writes_is_named_and_so_is_that_it_ran_twice() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("a.txt", "two\n");
    env.write_script("grow.sh", "#!/bin/sh\necho more >> a.txt\n");
    env.ap(&["allow", "--", "./grow.sh"]).exits(0);
    let policy = commit(&env, &[], &["./grow.sh"]).exits(2).json();
    assert_eq!(text(&policy, "reason"), "tree-changed-during-gate");
    let because = "the gate ran twice, and each time a listed file was written meanwhile: 'a.txt'";
    assert_eq!(text(&policy, "because"), because);
}

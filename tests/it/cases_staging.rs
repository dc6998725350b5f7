//! Failure cases about what is staged, gated and committed.

use crate::{
    env::TestEnv,
    house::{text, value},
};
use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt};

fn ready() -> TestEnv {
    let env = TestEnv::new();
    env.allow_no_ack();
    env
}

#[test]
fn case_048_commits_the_bytes_the_gate_saw() {
    let env = ready();
    env.script("check.sh", "! grep -q BROKEN a.txt");
    env.write("a.txt", "BROKEN\n");
    env.git(&["add", "a.txt"]);
    env.write("a.txt", "fine\n");
    let policy = env.commit(&["a.txt"], &["./check.sh"]).exits(0).json();

    assert_eq!(env.git(&["show", "main:a.txt"]), "fine");
    let tree = env.git(&["rev-parse", "main^{tree}"]);
    assert_eq!(text(&policy, "tree"), tree);
    let line = env.note_lines("gates", "main", "agentproto-gate/1 pass ").remove(0);
    assert_eq!((value(&line, "tree"), value(&line, "on")), (tree.as_str(), "candidate"));

    // The other way round: good bytes staged, broken ones on disk.
    let before = env.git(&["rev-parse", "main"]);
    env.write("a.txt", "good again\n");
    env.git(&["add", "a.txt"]);
    env.write("a.txt", "BROKEN\n");
    env.commit(&["a.txt"], &["./check.sh"]).exits(1);
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert_eq!(env.git(&["show", ":a.txt"]), "good again");
}

#[test]
fn case_051_leaves_foreign_staged_files_staged() {
    let env = ready();
    env.write("theirs", "theirs\n");
    env.git(&["add", "theirs"]);
    let staged = env.git(&["ls-files", "--stage", "theirs"]);
    env.write("mine", "mine\n");
    env.commit(&["mine"], &["ls", "mine"]).exits(0);

    assert_eq!(env.paths_of("main"), ["mine"]);
    assert_eq!(env.git(&["diff", "--cached", "--name-only"]), "theirs");
    assert_eq!(env.git(&["ls-files", "--stage", "theirs"]), staged);
    assert_eq!(env.git(&["status", "--porcelain"]), "A  theirs");
    env.git(&["fsck", "--strict"]);
}

#[test]
fn case_053_names_are_never_patterns() {
    let env = ready();
    let odd = ["a[1].txt", ":(exclude)x", ":!y", "-x", "*.txt", "qu\"ote", "new\nline", "ünï"];
    for name in odd.into_iter().chain(["a1.txt", "x.txt", "secret.txt"]) {
        env.write(name, "content\n");
    }
    env.commit(&["a[1].txt"], &["true"]).exits(0);
    assert_eq!(env.paths_of("main"), ["a[1].txt"]);
    env.commit(&[":(exclude)x", ":!y"], &["true"]).exits(0);
    assert_eq!(env.paths_of("main"), [":!y", ":(exclude)x"]);
    env.commit(&odd[3..], &["true"]).exits(0);
    let mut rest = odd[3..].to_vec();
    rest.sort_unstable();
    assert_eq!(env.paths_of("main"), rest);
    // As JSON sees them, then as the index does.
    let tracked = env.git(&["ls-files", "-z"]);
    for name in odd {
        assert!(tracked.split('\0').any(|t| t == name), "{name:?} in the index");
        assert_eq!(env.git(&["--literal-pathspecs", "status", "--porcelain", "--", name]), "");
    }
    assert_eq!(env.git(&["status", "--porcelain"]), "?? a1.txt\n?? secret.txt\n?? x.txt");
}

#[test]
fn case_077_no_change_names_no_commit() {
    let env = ready();
    env.git(&["commit", "-q", "--allow-empty", "-m", "unrelated"]);
    let head = env.git(&["rev-parse", "HEAD"]);
    let out = env.commit(&["a.txt"], &["true"]).exits(0);
    let policy = out.json();

    assert_eq!(text(&policy, "status"), "done");
    assert_eq!(text(&policy, "outcome"), "no-op");
    for field in ["commitSha", "candidate", "parent", "tree"] {
        assert!(policy[field].is_null(), "{field} of {policy:#}");
    }
    assert!(!out.out().contains(&head), "the unrelated commit is named:\n{out}");
    assert_eq!(env.git(&["rev-parse", "HEAD"]), head);
    assert!(!env.kinds().iter().any(|k| k == "policy:committed" || k == "policy:commit-ready"));
    assert_eq!(env.note_lines("gates", &head, ""), Vec::<String>::new());

    // A red gate is red even when nothing would be committed.
    env.commit(&["a.txt"], &["false"]).exits(1);
    // A touch is no change.
    let bytes = fs::read(env.repo().join("a.txt")).unwrap();
    fs::write(env.repo().join("a.txt"), bytes).unwrap();
    assert_eq!(text(&env.commit(&["a.txt"], &["true"]).exits(0).json(), "outcome"), "no-op");
}

#[test]
fn a_name_that_is_not_utf8_is_committed_byte_for_byte() {
    let env = ready();
    let name = OsString::from_vec(b"caf\xe9.txt".to_vec());
    fs::write(env.repo().join(&name), "x\n").unwrap();
    let mut flag = OsString::from("--path=");
    flag.push(&name);
    let words = ["commit", "--no-ack", "-m", "m", "--json"].map(OsString::from);
    let args: Vec<_> = words.into_iter().chain([flag, "--".into(), "true".into()]).collect();
    let policy = env.ap(&args).exits(0).json();
    assert_eq!(policy["paths"], serde_json::json!([{ "b64": "Y2Fm6S50eHQ=" }]));
    let raw = env.run("git", &["ls-tree", "-z", "--name-only", "main"]).done().exits(0).stdout;
    assert!(raw.split(|b| *b == 0).any(|n| n == b"caf\xe9.txt"));
}

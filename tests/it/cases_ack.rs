//! Failure cases about approvals.

use crate::{
    env::TestEnv,
    house::{text, value},
};
use serde_json::Value;
use std::path::Path;

/// Exit code of `verify RANGE --json` and the outcome of its first commit.
fn verdict(env: &TestEnv, dir: &Path, range: &str) -> (i32, String) {
    let out = env.ap_in(dir, &["verify", range, "--json"]);
    let answer: Value = out.json();
    (out.code(), text(&answer["commits"][0], "outcome"))
}

#[test]
fn case_127_a_copied_ack_proves_nothing() {
    let env = TestEnv::new();
    let repo = env.repo();
    let (policy, commit) = env.governed("approved.txt");
    env.write("a.txt", "evil\n");
    env.git(&["commit", "-qam", "evil"]);
    for name in ["acks", "gates"] {
        let notes = format!("--ref=agentproto/{name}");
        env.git(&["notes", &notes, "copy", &commit, "HEAD"]);
    }
    assert_eq!(verdict(&env, &repo, "HEAD^..HEAD"), (1, "ungoverned".into()));
    assert_eq!(verdict(&env, &repo, "HEAD~2..HEAD~1"), (0, "governed".into()));

    // The same tree on another parent is another commit, with or without the receipt.
    env.git(&["switch", "-qc", "elsewhere", "main~2"]);
    env.git(&["commit", "-q", "--allow-empty", "-m", "other parent"]);
    env.git(&["cherry-pick", &commit]);
    let notes = ["notes", "--ref=agentproto/acks", "copy", "-f", &commit, "HEAD"];
    env.git(&notes);
    assert_eq!(env.ap(&["verify", "HEAD^..HEAD"]).code(), 1);

    // What is signed names repository, policy, request, candidate, tree, branch and gates.
    let line = env.note_lines("acks", &commit, "agentproto-ack/1 approve ").remove(0);
    assert_eq!(
        (value(&line, "policy"), value(&line, "candidate")),
        (policy.as_str(), commit.as_str())
    );
    assert_eq!(value(&line, "tree"), env.git(&["rev-parse", &format!("{commit}^{{tree}}")]));
    assert_eq!(value(&line, "parent"), env.git(&["rev-parse", &format!("{commit}^")]));
    assert_eq!(value(&line, "branch"), "refs/heads/main");
    for key in ["repo", "request", "gates", "key", "issued", "expires"] {
        assert!(!value(&line, key).is_empty(), "{key}= of {line}");
    }

    // Notes alone, in a clone without the journal, prove nothing either.
    let clone = env.path("clone");
    env.git(&["clone", "-q", repo.to_str().unwrap(), clone.to_str().unwrap()]);
    env.git_in(&clone, &["fetch", "-q", "origin", "refs/notes/*:refs/notes/*"]);
    assert_eq!(verdict(&env, &clone, &format!("{commit}^..{commit}")), (2, "unknown".into()));
}

/// Who reviews runs nothing that the agent wrote into the repository's configuration.
#[test]
fn a_review_starts_no_program_that_the_repository_names() {
    let env = TestEnv::new();
    let policy = env.awaiting("new.txt");
    env.write_script("canary.sh", "#!/bin/sh\ntouch \"$(git rev-parse --git-common-dir)/ran\"\n");
    let canary = env.repo().join("canary.sh");
    let canary = canary.to_str().unwrap();
    for key in ["core.fsmonitor", "diff.external", "core.pager", "core.editor"] {
        env.git(&["config", key, canary]);
    }
    let ran = || std::fs::remove_file(env.repo().join(".git/ran")).is_ok();
    env.git(&["status", "--porcelain"]);
    assert!(ran(), "without care it runs");
    for words in [&["ack", "-p", &policy][..], &["ack", &policy], &["policy", "show", &policy]] {
        env.ap(words);
        assert!(!ran(), "{words:?}");
    }
}

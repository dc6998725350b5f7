//! What `fsck --repair` makes again from the journal, and what a dry run promises of it.

use crate::{
    env::TestEnv,
    fsck::{agent, findings, goes_on, repair, repairs},
    house::text,
};
use serde_json::Value;
use std::fs::{self, File};

/// The log goes, which would else prove the ref; then the ref goes.
fn lose_evidence(env: &TestEnv) -> String {
    env.ap(&["gc"]).exits(0);
    for log in ["wal", "wal2"] {
        let _ = fs::remove_file(agent(env, log));
    }
    let evidence = env.journal().replace("/journal/", "/evidence/");
    env.git(&["update-ref", "-d", &evidence]);
    evidence
}

#[test]
fn a_candidate_whose_evidence_is_gone_is_pinned_again() {
    let env = TestEnv::new();
    env.governed("landed.txt");
    let policies = ["a.rs", "b.rs"].map(|path| env.awaiting(path));
    let commits = policies.each_ref().map(|p| text(&env.policy(p), "candidate"));
    let evidence = lose_evidence(&env);
    let found = findings(&env, 1);
    assert_eq!(found.len(), 2, "{found:?}");
    for (finding, commit) in found.iter().zip(&commits) {
        assert!(text(finding, "what").contains(commit), "{found:?}");
        assert_eq!(text(finding, "repair"), format!("pin {commit} in the evidence again"));
    }
    repairs(&env, 2);
    for commit in &commits {
        env.git(&["merge-base", "--is-ancestor", commit, &evidence]);
    }
    // Git's own cleaning leaves it alone, and it lands.
    env.git(&["reflog", "expire", "--expire=now", "--all"]);
    env.git(&["gc", "-q", "--prune=now"]);
    env.ap(&["ack", &policies[0], "--yes"]).exits(0);
    goes_on(&env);
}

#[test]
fn a_candidate_that_is_gone_itself_is_told_with_the_way_out() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let commit = text(&env.policy(&policy), "candidate");
    lose_evidence(&env);
    for entry in fs::read_dir(env.repo().join(".git/objects/pack")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "keep") {
            fs::remove_file(path).unwrap();
        }
    }
    env.git(&["reflog", "expire", "--expire=now", "--all"]);
    env.git(&["gc", "-q", "--prune=now"]);
    env.run("git", &["cat-file", "-e", &commit]).done().exits(1);
    let found = findings(&env, 2);
    assert_eq!((found.len(), &found[0]["repair"]), (1, &Value::Null), "{found:?}");
    let what = text(&found[0], "what");
    assert!(what.contains(&format!("object {commit} is missing")), "{what}");
    let advice = format!("git agentproto policy cancel {policy}");
    assert!(what.contains(&advice), "{what}");
    repair(&env).exits(2);
    env.ap(&["policy", "cancel", &policy]).exits(0);
    findings(&env, 0);
    goes_on(&env);
}

#[test]
fn a_log_larger_than_anything_of_ours_is_put_aside_without_being_read_whole() {
    let env = TestEnv::new();
    env.adopt("one");
    let log = agent(&env, "wal");
    let mut bytes = fs::read(&log).unwrap();
    bytes[..8192].fill(0);
    fs::write(&log, bytes).unwrap();
    File::options().write(true).open(&log).unwrap().set_len(1 << 40).unwrap();
    findings(&env, 2);
    repairs(&env, 1);
    assert_eq!(fs::metadata(agent(&env, "damaged/wal.1")).unwrap().len(), 1 << 40);
    fs::remove_file(agent(&env, "damaged/wal.1")).unwrap();
    goes_on(&env);
}

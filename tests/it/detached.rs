//! Governed commits on a detached `HEAD`: no branch moves, and nothing but the `HEAD` that was meant.

use crate::{
    env::{Output, TestEnv},
    house::{text, value},
};
use std::path::{Path, PathBuf};

const MAIN: &str = "main-worktree/HEAD";

/// A worktree whose `HEAD` is on no branch.
struct Place {
    top: PathBuf,
    name: String,
}

fn places(env: &TestEnv) -> [Place; 2] {
    let linked = env.path("linked");
    env.git(&["worktree", "add", "-q", "--detach", linked.to_str().unwrap()]);
    env.git(&["checkout", "-q", "--detach"]);
    let main = Place { top: env.repo(), name: MAIN.to_owned() };
    [main, Place { top: linked, name: "worktrees/linked/HEAD".to_owned() }]
}

fn commit(env: &TestEnv, top: &Path, path: &str, flags: &[&str]) -> Output {
    std::fs::write(top.join(path), "governed\n").unwrap();
    let args = ["commit", "--json", "--detached-ok", "--path", path, "-m", "governed"];
    env.ap_in(top, &[&args[..], flags, &["--", "true"]].concat())
}

fn ack(env: &TestEnv, policy: &str) -> Output {
    env.ap(&["ack", policy, "--yes", "--json"])
}

#[test]
fn head_itself_moves_and_no_branch_does() {
    let env = TestEnv::new();
    let heads = || env.git(&["for-each-ref", "refs/heads"]);
    for Place { top, name } in places(&env) {
        let (before, branches) = (env.git_in(&top, &["rev-parse", "HEAD"]), heads());
        let asked = commit(&env, &top, "new.txt", &[]).exits(5).json();
        let policy = text(&asked, "policyId");
        assert_eq!(text(&asked, "branch"), name);
        assert_eq!(env.git_in(&top, &["rev-parse", "HEAD"]), before);
        let shown = env.ap_in(&top, &["policy", "show", &policy]).exits(0).out();
        assert!(shown.contains(&format!("{name}, on no branch\n")), "{shown}");
        let landed = text(&ack(&env, &policy).exits(0).json(), "commitSha");
        let ack = env.note_lines("acks", &landed, "agentproto-ack/1");
        assert_eq!(value(&ack[0], "branch"), name);
        let at = |args: &[&str]| env.git_in(&top, args);
        assert_eq!(at(&["rev-parse", "HEAD", "HEAD^"]), format!("{landed}\n{before}"));
        assert_eq!(at(&["status", "--porcelain"]), "");
        assert_eq!(at(&["branch", "--show-current"]), "");
        assert_eq!(heads(), branches);
        let reflog = at(&["reflog", "-1", "--format=%gs", "HEAD"]);
        assert_eq!(reflog, format!("agentproto: policy {policy}"));
        let verified = env.ap_in(&top, &["verify", &landed, "--json"]).exits(0);
        assert_eq!(verified.json()["commits"][0]["outcome"], "governed", "{verified}");
        env.ap_in(&top, &["verify"]).exits(0);
        // Nobody but the evidence needs to hold it.
        at(&["checkout", "-q", "main", "--ignore-other-worktrees"]);
        at(&["reflog", "expire", "--expire=now", "--all"]);
        env.git(&["gc", "-q", "--prune=now"]);
        env.git(&["cat-file", "-e", &landed]);
        env.ap(&["fsck"]).exits(0);
        at(&["checkout", "-q", "--detach", &before]);
    }
}

#[test]
fn head_that_went_away_is_stale() {
    for (away, says) in [
        (&["checkout", "-q", "main"] as &[&str], "main-worktree/HEAD is gone or on a branch"),
        (&["commit", "-q", "--allow-empty", "-m", "theirs"], "main-worktree/HEAD moved to"),
    ] {
        let env = TestEnv::new();
        env.git(&["checkout", "-q", "--detach"]);
        let asked = commit(&env, &env.repo(), "new.txt", &["--on-stale=block"]).exits(5).json();
        let policy = text(&asked, "policyId");
        env.git(away);
        let tips = || env.git(&["rev-parse", "main", "HEAD"]);
        let before = tips();
        let status = env.ap(&["status", &policy]).exits(0).out();
        let said = status.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(says), "{status}");
        let refused = ack(&env, &policy).exits(6);
        assert!(refused.err().contains("stale"), "{refused}");
        let moved = refused.err().contains("main-worktree/HEAD moved away from");
        assert_eq!(moved, says.contains("moved"), "{refused}");
        let after = env.policy(&policy);
        assert_eq!(text(&after, "reason"), "stale-candidate");
        assert_eq!(tips(), before);
        // The branch that is checked out now is not what was asked for, whatever it is at.
        assert!(!env.git(&["log", "--format=%s", "-1"]).contains("governed"));
    }
}

#[test]
fn gated_again_it_stands_on_the_new_head_or_ends_when_there_is_none() {
    let env = TestEnv::new();
    env.git(&["checkout", "-q", "--detach"]);
    let policy = text(&commit(&env, &env.repo(), "new.txt", &[]).exits(5).json(), "policyId");
    env.git(&["commit", "-q", "--allow-empty", "-m", "theirs"]);
    let theirs = env.git(&["rev-parse", "HEAD"]);
    env.ap(&["wait", &policy, "--until", "settled", "--timeout", "60s"]).exits(5);
    let landed = text(&ack(&env, &policy).exits(0).json(), "commitSha");
    assert_eq!(env.git(&["rev-parse", "HEAD", "HEAD^"]), format!("{landed}\n{theirs}"));
    let policy = text(&commit(&env, &env.repo(), "more.txt", &[]).exits(5).json(), "policyId");
    env.git(&["checkout", "-q", "main"]);
    env.ap(&["wait", &policy, "--until", "settled", "--timeout", "60s"]);
    let ended = env.policy(&policy);
    assert_eq!(text(&ended, "reason"), "stale-candidate");
    assert!(text(&ended, "nextStep").contains("--detached-ok"), "{ended}");
}

#[test]
fn without_the_flag_it_is_refused_and_with_it_a_branch_is_a_branch() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    env.write("a.txt", "two\n");
    let flags = ["--path", "a.txt", "-m", "m", "--", "true"];
    let asked = env.ap(&[&["commit", "--json", "--detached-ok"], &flags[..]].concat()).exits(5);
    assert_eq!(text(&asked.json(), "branch"), "refs/heads/main");
    env.git(&["checkout", "-q", "--detach"]);
    for command in [&["commit"] as &[&str], &["attach", &session]] {
        let refused = env.ap(&[command, &flags[..]].concat()).exits(6);
        let said = refused.err();
        assert!(said.contains("detached-head") && said.contains("--detached-ok"), "{refused}");
    }
    let attached = env.attach(&session, &[&["--detached-ok"], &flags[..]].concat());
    assert_eq!(text(&env.policy(&attached), "branch"), MAIN);
}

#[test]
fn post_commit_runs_where_head_moved_and_nowhere_else() {
    let env = TestEnv::new();
    let [main, linked] = places(&env);
    let ran = env.path("ran");
    let body = format!("#!/bin/sh\npwd >> {}\n", ran.display());
    env.write_script(".git/hooks/post-commit", &body);
    let policy = text(&commit(&env, &linked.top, "new.txt", &[]).exits(5).json(), "policyId");
    ack(&env, &policy).exits(0);
    assert_eq!(std::fs::read_to_string(ran).unwrap().trim(), linked.top.to_str().unwrap());
    assert_eq!(env.git_in(&main.top, &["status", "--porcelain"]), "");
}

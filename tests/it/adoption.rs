//! Policies that are taken over from the journal of a clone that is gone.

use crate::{env::TestEnv, house::text};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A bare repository, the repository of `env` that pushes to it, and another clone.
fn clones(env: &TestEnv) -> [PathBuf; 2] {
    let (origin, other) = (env.path("origin.git"), env.path("other"));
    env.git(&["clone", "-q", "--bare", ".", origin.to_str().unwrap()]);
    env.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    env.git(&["clone", "-q", origin.to_str().unwrap(), other.to_str().unwrap()]);
    [env.repo(), other]
}

/// The journal of `from` becomes known in `to`.
fn exchange(env: &TestEnv, from: &Path, to: &Path) {
    env.git_in(from, &["push", "-q", "origin", "refs/agentproto/journal/*"]);
    let journals = "refs/agentproto/journal/*:refs/agentproto/remotes/origin/journal/*";
    env.git_in(to, &["fetch", "-q", "origin", journals]);
}

#[test]
fn what_waited_for_an_answer_there_is_gated_and_asked_again_here() {
    let env = TestEnv::new();
    let [a, b] = clones(&env);
    env.write("f.txt", "there\n");
    let args = ["commit", "--path=f.txt", "--label", "fix", "-m", "m", "--json", "--", "true"];
    let asked = env.ap(&args).exits(5).json();
    let policy = text(&asked, "policyId");
    // An answer that was given there, and not seen there any more.
    let answer = env.git(&["rev-parse", "refs/heads/main"]);
    exchange(&env, &a, &b);

    fs::write(b.join("f.txt"), "here\n").unwrap();
    let out = env.ap_in(&b, &["policy", "adopt", "fix", "--json"]).exits(0).json();
    assert_eq!(
        (text(&out, "policyId"), text(&out, "status")),
        (policy.clone(), "awaiting-ack".into())
    );
    assert_eq!((&out["attempt"], &out["generation"]), (&2.into(), &1.into()));
    assert_ne!(out["candidate"], asked["candidate"], "what is asked about is what is here");
    let log = env.ap_in(&b, &["log", &policy]).exits(0).out();
    assert!(log.contains("taken over from journal "), "{log}");

    let ours = env.ap_in(&b, &["policy", "adopt", &policy]).exits(0);
    assert!(ours.err().contains("is this clone's already"), "{ours}");
    env.ap_in(&b, &["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.git_in(&b, &["show", "HEAD:f.txt"]), "here");
    env.ap_in(&b, &["verify", &format!("{answer}..HEAD")]).exits(0);
    env.ap_in(&b, &["fsck"]).exits(0);
    let sessions = env.ap_in(&b, &["session", "list", "--json"]).exits(0).json();
    assert_eq!(sessions["sessions"], serde_json::json!([]), "made for it alone, and over with it");
}

#[test]
fn an_unfinished_session_is_waited_for_and_goes_on_here() {
    let env = TestEnv::new();
    let [a, b] = clones(&env);
    env.ap(&["session", "adopt", "--label", "s"]).exits(0);
    env.ap(&["session", "report", "s", "turn-start"]).exits(0);
    let policy =
        text(&env.ap(&["attach", "s", "--json", "--", "true"]).exits(0).json(), "policyId");
    exchange(&env, &a, &b);
    let out = env.ap_in(&b, &["policy", "adopt", &policy, "--json"]).exits(0).json();
    assert_eq!(text(&out, "status"), "watching");
    env.ap_in(&b, &["session", "report", "s", "turn-end"]).exits(0);
    let out = env.ap_in(&b, &["policy", "show", &policy, "--json"]).exits(0).json();
    assert_eq!((text(&out, "status"), &out["attempt"]), ("done".into(), &1.into()));
    env.ap_in(&b, &["fsck"]).exits(0);
}

#[test]
fn what_cannot_be_taken_over_is_refused_and_nothing_is_written() {
    let env = TestEnv::new();
    let [a, b] = clones(&env);
    env.write("f.txt", "1\n");
    let commit = |label: &str| {
        let args = ["commit", "--path=f.txt", "--label", label, "-m", "m", "--json", "--", "true"];
        text(&env.ap(&args).exits(5).json(), "policyId")
    };
    let over = commit("over");
    env.ap(&["policy", "cancel", &over]).exits(0);
    commit("twice");
    commit("twice");
    env.ap(&["session", "adopt", "--label", "s"]).exits(0);
    env.ap(&["allow", "--", "printf"]).exits(0);
    env.ap(&["attach", "s", "--label", "listing", "--", "printf", "x"]).exits(0);
    exchange(&env, &a, &b);
    let allowed = env.home().join(".config/agentproto");
    let before = env.snapshot_of(&b);
    let refused = |name: &str, exit: i32, code: &str| {
        let out = env.ap_in(&b, &["policy", "adopt", name, "--json"]).exits(exit);
        let told: serde_json::Value = serde_json::from_str(out.err().trim()).unwrap();
        assert_eq!(told["error"]["code"], code, "{name}");
    };
    refused(&over, 6, "terminal");
    refused("twice", 6, "ambiguous");
    refused("pol_01arz3ndektsv4rrffq69g5fav", 4, "no-such-policy");
    // What nobody of this clone allows does not come along.
    fs::rename(&allowed, env.home().join("away")).unwrap();
    refused("listing", 6, "not-allowlisted");
    fs::rename(env.home().join("away"), &allowed).unwrap();
    let inside =
        env.tool(&["policy", "adopt", "listing"]).dir(&b).env("AGENTPROTO_SESSION_ID", "ses_x");
    inside.done().exits(6);
    before.assert_same(&env.snapshot_of(&b), "nothing was taken over");
}

#[test]
fn a_copy_takes_nothing_over_while_its_original_is_there() {
    let env = TestEnv::new();
    env.write("f.txt", "1\n");
    let args = ["commit", "--path=f.txt", "--label", "fix", "-m", "m", "--", "true"];
    env.ap(&args).exits(5);
    let copy = env.path("copy");
    env.run("cp", &["-a", env.repo().to_str().unwrap(), copy.to_str().unwrap()]).done().exits(0);
    let out = env.ap_in(&copy, &["policy", "adopt", "fix", "--json"]).exits(6);
    let told: serde_json::Value = serde_json::from_str(out.err().trim()).unwrap();
    assert_eq!(told["error"]["code"], "writer-lives");
    fs::remove_dir_all(env.repo()).unwrap();
    let out = env.ap_in(&copy, &["policy", "adopt", "fix", "--json"]).exits(0).json();
    assert_eq!(text(&out, "status"), "awaiting-ack");
}

//! Clones that share their records through one remote, as the README says.

use crate::{
    env::TestEnv,
    house::text,
    markdown::{document, groups, run, shell_blocks},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A bare repository and two clones of it: the first is the repository of `env`.
fn shared(env: &TestEnv) -> [PathBuf; 2] {
    let (origin, other) = (env.path("origin.git"), env.path("other"));
    env.git(&["clone", "-q", "--bare", ".", origin.to_str().unwrap()]);
    env.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    env.git(&["clone", "-q", origin.to_str().unwrap(), other.to_str().unwrap()]);
    [env.repo(), other]
}

/// A governed commit on top of what others pushed, pushed itself.
#[track_caller]
fn commit(env: &TestEnv, dir: &Path, name: &str) -> (String, String) {
    env.git_in(dir, &["pull", "-q", "--ff-only", "origin", "main"]);
    fs::write(dir.join(name), "1\n").unwrap();
    let path = format!("--path={name}");
    let asked = env.ap_in(dir, &["commit", &path, "-m", name, "--json", "--", "true"]).exits(5);
    let policy = text(&asked.json(), "policyId");
    env.ap_in(dir, &["ack", &policy, "--yes"]).exits(0);
    env.git_in(dir, &["push", "-q", "origin", "main"]);
    (policy, env.git_in(dir, &["rev-parse", "HEAD"]))
}

/// What the README says about sharing, in `dir`.
#[track_caller]
fn share(env: &TestEnv, dir: &Path) {
    let text = document("README.md");
    let (_, marked) = text.split_once("<!-- share -->").expect("the block is marked");
    run(env, dir, &groups(&shell_blocks(marked)[..1]));
}

#[test]
fn clones_take_turns_and_know_all_of_each_other() {
    let env = TestEnv::new();
    let [a, b] = shared(&env);
    let mut commits = Vec::new();
    for (turn, dir) in [&a, &b, &a, &a, &b].into_iter().enumerate() {
        let (_, commit) = commit(&env, dir, &format!("{turn}.txt"));
        commits.push(commit);
        share(&env, dir);
    }
    env.git_in(&a, &["pull", "-q", "--ff-only", "origin", "main"]);
    share(&env, &a);
    for dir in [&a, &b] {
        let range = format!("{}^..HEAD", commits[0]);
        env.ap_in(dir, &["verify", &range]).exits(0);
        env.ap_in(dir, &["fsck"]).exits(0);
        for (commit, name) in commits.iter().flat_map(|c| [(c, "acks"), (c, "gates")]) {
            let note = format!("--ref=agentproto/{name}");
            let note = env.git_in(dir, &["notes", &note, "show", commit]);
            assert!(note.starts_with("agentproto-"), "{name} of {commit}: {note}");
        }
    }
}

#[test]
fn verify_says_when_the_records_of_another_clone_are_missing() {
    let env = TestEnv::new();
    let [a, b] = shared(&env);
    commit(&env, &a, "a.txt");
    let (policy, theirs) = commit(&env, &b, "b.txt");
    env.git(&["pull", "-q", "--ff-only", "origin", "main"]);
    let out = env.ap(&["verify", "HEAD^..HEAD", "--json"]).exits(1);
    let told = &out.json()["commits"][0];
    assert_eq!((text(told, "sha"), text(told, "outcome")), (theirs.clone(), "ungoverned".into()));
    let why = format!(
        "no journal here names it; its message names {policy}, which may be in the journal of another clone"
    );
    assert_eq!((text(told, "reason"), text(told, "claimedPolicyId")), (why, policy));
    assert_eq!(told.get("policyId"), None, "words of a message are no evidence");
    let fetch =
        "git fetch origin 'refs/agentproto/journal/*:refs/agentproto/remotes/origin/journal/*'";
    let hint = "hint: once they are pushed, the records of the clone that made it can be fetched: ";
    let out = env.ap(&["verify", "HEAD^..HEAD"]).exits(1);
    assert!(out.err().contains(&format!("{hint}{fetch}\n")), "{out}");

    env.git_in(&b, &["push", "-q", "origin", "refs/agentproto/journal/*"]);
    env.run("bash", &["-c", fetch]).dir(&a).done().exits(0);
    let out = env.ap(&["verify", "HEAD^..HEAD"]).exits(0);
    assert!(!out.err().contains("hint"), "{out}");
}

/// Runs the command behind `lead` in what a command said, in `dir`.
#[track_caller]
fn shown_by_git(env: &TestEnv, dir: &Path, said: &str, lead: &str) -> String {
    let (_, command) = said.split_once(lead).unwrap_or_else(|| panic!("no '{lead}' in {said}"));
    let command = command.lines().next().unwrap();
    assert!(command.starts_with("git ") && !command.contains("agentproto "), "{command}");
    env.run("bash", &["-c", command]).dir(dir).done().exits(0).out()
}

#[test]
fn who_only_looks_is_told_how_git_shows_the_journals_of_others() {
    let env = TestEnv::new();
    let [a, b] = shared(&env);
    let out = env.ap_in(&b, &["log"]).exits(0);
    assert_eq!(out.err(), "nothing was recorded in this clone\n");
    env.write("f.txt", "1\n");
    let args = ["commit", "--path=f.txt", "--label", "theirs", "-m", "m", "--json", "--", "true"];
    let policy = text(&env.ap(&args).exits(5).json(), "policyId");
    share(&env, &a);
    share(&env, &b);

    let out = env.ap_in(&b, &["log"]).exits(0);
    assert!(out.stdout.is_empty(), "{out}");
    let story = shown_by_git(&env, &b, &out.err(), "is here, too: ");
    assert!(story.contains("policy:commit-ready"), "{story}");
    for name in [policy.as_str(), "theirs", &policy[..20]] {
        let out = env.ap_in(&b, &["policy", "show", name]).exits(6);
        assert!(out.err().contains("[not-owner]"), "{out}");
        let document = shown_by_git(&env, &b, &out.err(), "what was fetched of it: ");
        assert!(document.contains("awaiting-ack"), "{document}");
    }
    env.ap_in(&b, &["policy", "show", "nobody's"]).exits(4);
}

//! `doctor`: each thing that can be wrong is told under the name of its check, and nothing is written.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt};

/// State, message and hint of every finding of one check.
fn findings(answer: &Value, name: &str) -> Vec<(String, String)> {
    let checks = answer["checks"].as_array().unwrap().iter().filter(|c| c["name"] == name);
    let words =
        |c: &Value| format!("{} | {}", text(c, "message"), c["hint"].as_str().unwrap_or(""));
    checks.map(|c| (text(c, "state"), words(c))).collect()
}

/// Runs it, asserting that it wrote nothing.
fn doctor(env: &TestEnv, exit: i32) -> Value {
    let before = env.snapshot();
    let out: Output = env.ap(&["doctor", "--json"]).exits(exit);
    before.assert_same(&env.snapshot(), "doctor");
    out.json()
}

#[track_caller]
fn tells(answer: &Value, name: &str, state: &str, words: &str) {
    let found = findings(answer, name);
    let hit = found.iter().any(|(s, said)| s == state && said.contains(words));
    assert!(hit, "no {state} of {name} with '{words}': {found:#?}");
}

#[test]
fn where_everything_is_set_up_nothing_is_wrong() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let answer = doctor(&env, 0);
    assert_eq!(text(&answer, "schema"), "agentproto/doctor/1");
    assert_eq!(answer["ok"], true);
    for name in [
        "git",
        "platform",
        "repository",
        "refs",
        "trusted-ref",
        "rules",
        "settings",
        "key",
        "signers",
        "allowlist",
        "hooks",
        "store",
        "journals",
        "runs",
        "sessions",
    ] {
        let found = findings(&answer, name);
        assert!(found.iter().any(|(state, _)| state == "ok"), "{name}: {found:#?}");
    }
    let told = env.ap(&["doctor"]).exits(0).out();
    assert!(told.ends_with("nothing is wrong\n"), "{told}");
    // The side directory is not made by looking.
    let fresh = env.make_repo("fresh");
    env.ap_in(&fresh, &["doctor"]).exits(0);
    assert!(!fresh.join(".git/agentproto").exists());
}

#[test]
fn outside_of_a_repository_the_machine_is_still_judged() {
    let env = TestEnv::bare();
    let out = env.ap_in(&env.home(), &["doctor", "--json"]).exits(1);
    let answer = out.json();
    tells(&answer, "repository", "problem", "[not-a-repository]");
    tells(&answer, "platform", "ok", "child subreaper");
    assert_eq!(findings(&answer, "key"), []);
}

#[test]
fn what_a_person_fixed_and_what_became_of_it() {
    let env = TestEnv::new();
    env.write(".agentproto/allowed-commands.json", &crate::env::allowlist(&["./more.sh"]));
    env.git(&["commit", "-qam", "more may run"]);
    tells(&doctor(&env, 1), "rules", "problem", "git agentproto trust");
    env.ap(&["trust"]).exits(0);
    let answer = doctor(&env, 0);
    tells(&answer, "rules", "ok", "accepted");
    tells(&answer, "allowlist", "note", "./more.sh is allowed and could not run here");

    // The default rule would choose another branch now.
    env.git(&["branch", "trunk"]);
    env.global("init.defaultBranch", "trunk");
    tells(&doctor(&env, 0), "trusted-ref", "note", "by default it would be refs/heads/trunk now");
    env.git(&["branch", "-qm", "main", "other"]);
    let answer = doctor(&env, 1);
    tells(&answer, "trusted-ref", "problem", "refs/heads/main does not exist");
    // What hangs on it cannot be told, and the rest still is.
    tells(&answer, "rules", "unknown", "[no-trusted-ref]");
    tells(&answer, "hooks", "ok", "no commit hooks");
}

#[test]
fn settings_where_an_agent_can_write_are_told_and_have_no_effect() {
    let env = TestEnv::new();
    env.git(&["config", "user.signingKey", "x"]);
    tells(&doctor(&env, 0), "settings", "note", "user.signingKey (local) has no effect");
    env.git(&["config", "agentproto.allowNoAck", "true"]);
    tells(&doctor(&env, 1), "settings", "problem", "agentproto.allowNoAck (local) has no effect");
}

#[test]
fn a_key_that_cannot_be_used_or_does_not_count_is_a_problem() {
    let env = TestEnv::new();
    let file = env.path("ada");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    tells(&doctor(&env, 1), "key", "problem", "chmod 600");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    env.global("agentproto.signingKey", env.path("eve").to_str().unwrap());
    let answer = doctor(&env, 1);
    tells(&answer, "key", "ok", "ed25519");
    tells(&answer, "signers", "problem", "does not let your key answer");
    env.global("agentproto.signingKey", env.path("nothing").to_str().unwrap());
    tells(&doctor(&env, 1), "key", "problem", "cannot read key");
    let locked = env.key("locked", &["-t", "ed25519", "-N", "secret"]);
    env.global("agentproto.signingKey", locked.to_str().unwrap());
    env.write_signers("ada@example.invalid", "locked");
    tells(&doctor(&env, 0), "key", "note", "SSH_AUTH_SOCK is not set");
    env.unset_global("agentproto.allowedSignersFile");
    tells(&doctor(&env, 1), "signers", "problem", "git agentproto init");
}

#[test]
fn allowed_programs_that_run_anything_and_lists_that_are_none_are_told() {
    let env = TestEnv::new();
    env.ap(&["allow", "--", "bash", "-c"]).exits(0);
    tells(&doctor(&env, 0), "allowlist", "note", "bash -c runs whatever the agent wrote");
    env.write(".agentproto/allowed-commands.json", "[]");
    env.git(&["commit", "-qam", "garbage"]);
    tells(&doctor(&env, 1), "allowlist", "problem", "an object with");
}

#[test]
fn hooks_that_will_run_are_named() {
    let env = TestEnv::new();
    for name in ["pre-commit", "post-commit"] {
        let hook = env.repo().join(".git/hooks").join(name);
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let answer = doctor(&env, 0);
    tells(&answer, "hooks", "note", "the hook pre-commit runs before the gates");
    tells(&answer, "hooks", "note", "the hook post-commit runs once");
}

#[test]
fn sessions_and_worktrees_that_lost_each_other_are_told() {
    let env = TestEnv::new();
    let linked = env.path("linked");
    env.git(&["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
    tells(&doctor(&env, 0), "sessions", "note", "no session works in the worktree");
    let session = env.adopt_in(&linked, "s");
    assert_eq!(findings(&doctor(&env, 0), "sessions").len(), 1);
    fs::remove_dir_all(&linked).unwrap();
    tells(&doctor(&env, 1), "sessions", "problem", &format!("of session {session} is gone"));
}

#[test]
fn a_held_lock_a_copy_and_journals_of_others_are_told() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let lock =
        fs::File::options().write(true).open(env.repo().join(".git/agentproto/lock")).unwrap();
    lock.lock().unwrap();
    tells(&doctor(&env, 0), "store", "note", "somebody holds the lock");
    drop(lock);
    tells(&doctor(&env, 0), "store", "ok", "nobody holds the lock");

    let copy = env.path("copy");
    env.run("cp", &["-r", env.repo().to_str().unwrap(), copy.to_str().unwrap()]).done().exits(0);
    let answer = env.ap_in(&copy, &["doctor", "--json"]).json();
    tells(&answer, "journals", "note", "this repository is a copy of");

    let clone = env.path("clone");
    env.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    let refs = "refs/agentproto/journal/*:refs/agentproto/remotes/origin/journal/*";
    env.git_in(&clone, &["fetch", "-q", "origin", refs]);
    let answer = env.ap_in(&clone, &["doctor", "--json"]).json();
    tells(&answer, "journals", "note", "journals of other clones are here");
}

#[test]
fn what_the_dead_left_is_told() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let tmp = env.repo().join(".git/agentproto/tmp/hooks.left");
    fs::create_dir_all(&tmp).unwrap();
    // Old enough to be nobody's any more.
    env.run("touch", &["-d", "2 days ago", tmp.to_str().unwrap()]).done().exits(0);
    tells(&doctor(&env, 0), "runs", "note", "is left of commit hooks that were running");
}

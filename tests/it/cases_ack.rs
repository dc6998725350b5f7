//! Failure cases about approvals.

use crate::{
    ack_keys::Agent,
    answers::{append, line, model, sign_line, wait},
    env::TestEnv,
    house::{text, value},
};
use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt, path::Path};

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

/// What became of the lines in the note, oldest first, and that nothing came of them.
fn turned_down(env: &TestEnv, policy: &str) -> Vec<String> {
    let told = env.policy(policy);
    assert_eq!(told["status"], "awaiting-ack", "{told:#}");
    told["refusedAcks"].as_array().unwrap().iter().map(|r| text(r, "outcome")).collect()
}

#[test]
fn case_125_a_good_signature_of_nobody_listed_and_of_another_name_are_told_apart() {
    let env = TestEnv::new();
    let (_, old) = model(&env);
    let policy = env.awaiting("f.txt");
    let before = env.git(&["rev-parse", "main"]);
    let eve = env.path("eve").display().to_string();
    let stranger = env.ap(&["ack", &policy, "--yes", "--key", &eve]).exits(6);
    // Listed, but under another name than the line bears.
    let also = format!("other@x namespaces=\"agentproto-ack\" {}\n", env.public_key("eve"));
    let signers = fs::read_to_string(env.path("allowed")).unwrap();
    fs::write(env.path("allowed"), format!("{signers}{also}")).unwrap();
    append(&env, &text(&env.policy(&policy), "candidate"), &line(&env, &old, &policy, "eve", &[]));
    let named = wait(&env, &policy, 5);
    assert_eq!(turned_down(&env, &policy), ["unauthorized", "unauthorized"]);
    // Listed for something else.
    fs::write(env.path("allowed"), format!("{signers}{}", also.replace("agentproto-ack", "git")))
        .unwrap();
    let purpose = env.ap(&["ack", &policy, "--yes", "--key", &eve]).exits(6);
    let said = [stranger.err(), named, purpose.err()];
    for (nth, words) in said.iter().enumerate() {
        assert!(words.contains("unauthorized"), "{words}");
        let reason =
            |words: &str| words.lines().find(|l| l.contains("unauthorized")).unwrap().to_owned();
        for other in &said[nth + 1..] {
            assert_ne!(reason(words), reason(other), "two reasons in the same words");
        }
    }
    assert!(said[1].contains("ada@example.invalid") && said[1].contains("other@x"), "{}", said[1]);
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert_eq!(
        env.ap(&["verify", "main^..main", "--json"]).exits(0).json()["commits"][0]["signer"],
        "ada@example.invalid"
    );
}

#[test]
fn case_126_without_a_list_of_signers_nothing_can_be_told_and_nothing_passes() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let policy = env.awaiting("g.txt");
    let (before, events) = (env.git(&["rev-parse", "main"]), env.kinds());
    let (list, aside) = (env.path("allowed"), env.path("aside"));
    let kept = fs::read(&list).unwrap();
    fs::copy(&list, &aside).unwrap();
    let cannot_tell = |how: &str| {
        let out = env.ap(&["ack", &policy, "--yes"]);
        assert!([2, 4, 6].contains(&out.code()) && out.err().contains("[signers-"), "{how}: {out}");
        assert!(
            out.err().contains(list.to_str().unwrap()) || out.err().contains("signers"),
            "{how}: {out}"
        );
        let seen = env.ap(&["verify", "main^..main"]);
        assert_eq!(seen.code(), 2, "{how}: {seen}");
        let all = format!("{}{}", seen.out(), seen.err());
        assert!(!all.contains("unsigned") && all.contains(list.to_str().unwrap()), "{how}: {all}");
    };
    fs::remove_file(&list).unwrap();
    cannot_tell("missing");
    fs::write(&list, "").unwrap();
    cannot_tell("empty");
    fs::write(&list, "# nobody\n").unwrap();
    cannot_tell("nothing but words");
    fs::write(&list, "ada@example.invalid ssh-ed25519 nonsense\n").unwrap();
    cannot_tell("garbled");
    fs::remove_file(&list).unwrap();
    fs::create_dir(&list).unwrap();
    cannot_tell("a directory");
    fs::remove_dir(&list).unwrap();
    fs::write(&list, &kept).unwrap();
    fs::set_permissions(&list, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::read(&list).is_err() {
        cannot_tell("unreadable");
    } else {
        crate::house::skipped(
            "a list of signers that its reader may not read: this user may read everything",
        );
    }
    fs::set_permissions(&list, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert_eq!(env.kinds(), events, "something was recorded");
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    env.ap(&["verify", "main^..main"]).exits(0);
}

#[test]
fn case_132_the_key_that_was_named_signs_for_this_purpose_and_no_date_of_ones_own_helps() {
    let env = TestEnv::new();
    let (_, old) = model(&env);
    // An agent with the wrong key alone does not step in for the one that is named.
    env.global("agentproto.signingKey", &env.public_key("ada"));
    let policy = env.awaiting("f.txt");
    let candidate = text(&env.policy(&policy), "candidate");
    let good = line(&env, &old, &policy, "ada", &[]);
    let bad = Agent::holding(&env, "eve");
    let out = env.tool(&["ack", &policy, "--yes"]).env("SSH_AUTH_SOCK", &bad.socket).done();
    assert!(out.exits(5).err().contains("signing-needs-person"));
    assert_eq!(turned_down(&env, &policy), Vec::<String>::new());
    // Made for another purpose.
    append(&env, &candidate, &sign_line(&env, good.split(" sig=").next().unwrap(), "ada", "file"));
    assert!(wait(&env, &policy, 5).contains("turned down, unauthorized"));
    // The key is over: what the line says of its own time is no evidence.
    let over = "ada@example.invalid valid-before=\"20200101\",namespaces=\"agentproto-ack\"";
    env.write_signers(over, "ada");
    let dates = [("issued", "2019-06-01T00:00:00.000Z"), ("reason", "back%20then")];
    append(&env, &candidate, &line(&env, &old, &policy, "ada", &dates));
    assert!(wait(&env, &policy, 5).contains("turned down, unauthorized"));
    let ada = env.path("ada").display().to_string();
    let run = env.tool(&["ack", &policy, "--yes", "--key", &ada]);
    let out = run.env("GIT_COMMITTER_DATE", "2019-06-01T00:00:00Z").done().exits(6);
    assert!(out.err().contains("unauthorized"), "{out}");
    assert_eq!(turned_down(&env, &policy).len(), 3);
    env.write_signers("ada@example.invalid namespaces=\"agentproto-ack\"", "ada");
    // Of two keys in an agent the one that was named signs.
    let add = env.run("ssh-add", &["-q", &ada]).env("SSH_AUTH_SOCK", &bad.socket);
    add.done().exits(0);
    env.tool(&["ack", &policy, "--yes"]).env("SSH_AUTH_SOCK", &bad.socket).done().exits(0);
    let landed = env.note_lines("acks", "main", "agentproto-ack/1 approve ").pop().unwrap();
    assert_eq!(value(&landed, "key"), value(&old, "key"));
}

//! The trusted ref: how it is found, and what is read from it.

use super::{testing::Lab, *};

fn main_ref() -> String {
    "refs/heads/main".to_owned()
}

#[test]
fn an_empty_repository_has_no_commits_yet() {
    let lab = Lab::new();
    let why = default_ref(&lab.open(), &[]).unwrap_err();
    assert_eq!(why.code(), Code::NoCommitsYet);
    assert_eq!(why.to_string(), "the repository has no commit yet");
}

#[test]
fn without_a_conventional_branch_nothing_is_trusted() {
    let lab = Lab::new();
    lab.git(&["checkout", "-q", "-b", "trunk"]);
    lab.commit("a", "1");
    let why = default_ref(&lab.open(), &[]).unwrap_err();
    assert_eq!(why.code(), Code::NoTrustedRef);
    assert_eq!(
        why.to_string(),
        "no branch can be trusted by default: looked for the remote's HEAD, main, master"
    );
}

#[test]
fn the_default_branch_counts_from_global_scope_only() {
    let lab = Lab::new();
    lab.commit("a", "1");
    lab.git(&["branch", "agent"]);
    lab.git(&["branch", "trunk"]);
    lab.git(&["config", "init.defaultBranch", "agent"]);
    assert_eq!(default_ref(&lab.open(), &[]).unwrap(), main_ref());
    let repo = lab.open_with(&["init.defaultBranch=trunk"]);
    assert_eq!(default_ref(&repo, &[]).unwrap(), "refs/heads/trunk");
}

#[test]
fn the_remote_head_comes_first_and_origin_before_others() {
    let lab = Lab::new();
    lab.commit("a", "1");
    for remote in ["origin", "other"] {
        lab.git(&["remote", "add", remote, "/nowhere"]);
        let branch = format!("refs/remotes/{remote}/trunk");
        lab.git(&["update-ref", &branch, "HEAD"]);
        lab.git(&["symbolic-ref", &format!("refs/remotes/{remote}/HEAD"), &branch]);
    }
    assert_eq!(default_ref(&lab.open(), &[]).unwrap(), "refs/remotes/origin/trunk");
    lab.git(&["config", "--remove-section", "remote.origin"]);
    assert_eq!(default_ref(&lab.open(), &[]).unwrap(), "refs/remotes/other/trunk");
    lab.git(&["symbolic-ref", "refs/remotes/other/HEAD", "refs/heads/main"]);
    lab.git(&["branch", "master"]);
    let sessions = [main_ref()];
    assert_eq!(default_ref(&lab.open(), &sessions).unwrap(), "refs/heads/master");
}

#[test]
fn a_branch_of_a_session_is_trusted_only_when_it_is_the_only_one() {
    let lab = Lab::new();
    lab.commit("a", "1");
    let sessions = [main_ref()];
    assert_eq!(default_ref(&lab.open(), &sessions).unwrap(), main_ref());
    lab.git(&["branch", "master"]);
    assert_eq!(default_ref(&lab.open(), &sessions).unwrap(), "refs/heads/master");
    let both = [main_ref(), "refs/heads/master".to_owned()];
    assert_eq!(default_ref(&lab.open(), &both).unwrap_err().code(), Code::NoTrustedRef);
}

#[test]
fn a_known_path_keeps_its_id_and_ref_whatever_its_refs_say() {
    let lab = Lab::new();
    lab.commit("a", "1");
    let (env, repo_id) = (lab.env(), lab.rev("HEAD"));
    let fresh = Trust::load(&lab.open(), &env, &[]).unwrap();
    assert_eq!((fresh.repo_id, fresh.known_path), (repo_id, false));
    let known = KnownPath { repo_id, trusted_ref: main_ref() };
    known.save(&env, lab.open().common_dir()).unwrap();
    lab.git(&["checkout", "-q", "--orphan", "evil"]);
    lab.commit("b", "2");
    lab.git(&["update-ref", "refs/remotes/origin/evil", "HEAD"]);
    lab.git(&["remote", "add", "origin", "/nowhere"]);
    lab.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/evil"]);
    let trust = Trust::load(&lab.open(), &env, &[]).unwrap();
    assert_eq!((trust.repo_id, trust.known_path), (repo_id, true));
    assert_eq!(trust.trusted_ref, main_ref());
    lab.git(&["branch", "-D", "main"]);
    let why = Trust::load(&lab.open(), &env, &[]).unwrap_err();
    assert_eq!(why.to_string(), "the trusted ref refs/heads/main does not exist");
}

#[test]
fn an_unknown_path_is_not_stored_by_looking() {
    let lab = Lab::new();
    lab.commit("a", "1");
    Trust::load(&lab.open(), &lab.env(), &[]).unwrap();
    assert_eq!(std::fs::read_dir(lab.home()).unwrap().count(), 0);
}

#[test]
fn rule_files_come_from_the_ref_and_not_from_the_worktree() {
    let lab = Lab::new();
    lab.commit(".agentproto/allowed-commands.json", "committed");
    std::fs::write(lab.top().join(".agentproto/allowed-commands.json"), "edited").unwrap();
    let (repo, tip) = (lab.open(), lab.rev("HEAD"));
    let load = |path| load_rule_file(&repo, tip, path);
    assert_eq!(load(".agentproto/allowed-commands.json").unwrap().unwrap(), b"committed");
    assert_eq!(load(".agentproto/allowed_signers").unwrap(), None);
    assert!(matches!(load(".agentproto"), Err(TrustedError::NotAFile { .. })));
}

#[test]
fn a_link_in_the_place_of_a_rule_file_is_refused() {
    let lab = Lab::new();
    std::fs::create_dir(lab.top().join(".agentproto")).unwrap();
    let link = lab.top().join(".agentproto/allowed_signers");
    std::os::unix::fs::symlink("/etc/passwd", link).unwrap();
    lab.commit("a", "1");
    let why = load_rule_file(&lab.open(), lab.rev("HEAD"), ".agentproto/allowed_signers");
    assert!(matches!(why, Err(TrustedError::NotAFile { .. })));
}

#[test]
fn every_change_of_a_rule_file_changes_the_digest_and_nothing_else_does() {
    let lab = Lab::new();
    lab.commit("a", "1");
    let digest = || rules_digest(&lab.open(), lab.rev("HEAD")).unwrap();
    let mut seen = vec![digest()];
    lab.commit("src/.agentproto/x", "not a rule file");
    lab.commit("agentproto.json2", "not a rule file");
    assert_eq!(digest(), seen[0]);
    let rules = [
        (".agentproto/a", "1"),
        (".agentproto/a", "2"),
        (".agentproto/b/c", "2"),
        ("agentproto.json", "{}"),
    ];
    for (path, content) in rules {
        lab.commit(path, content);
        assert!(!seen.contains(&digest()), "{path}");
        seen.push(digest());
    }
    lab.git(&["update-index", "--chmod=+x", ".agentproto/a"]);
    lab.git(&["commit", "-q", "-m", "mode"]);
    assert!(!seen.contains(&digest()));
}

#[test]
fn a_change_of_the_rules_is_shown_until_a_person_accepts_it() {
    let lab = Lab::new();
    lab.commit(".agentproto/allowed-commands.json", "1");
    let env = lab.env();
    let load = || Trust::load(&lab.open(), &env, &[]).unwrap();
    let rules = || load().rules(&lab.open()).unwrap();
    let Rules::NeverAccepted { now } = rules() else { panic!("accepted by nobody") };
    let mut trust = load();
    trust.settings.set("agentproto.trustedRules", &now).unwrap();
    trust.settings.save().unwrap();
    assert_eq!(rules(), Rules::Accepted { now: now.clone() });
    lab.commit(".agentproto/allowed-commands.json", "2");
    assert!(
        matches!(rules(), Rules::Changed { accepted, now: new } if accepted == now && new != now)
    );
}

#[test]
fn a_replacement_does_not_put_other_rules_on_the_trusted_ref() {
    let lab = Lab::new();
    lab.commit(".agentproto/allowed_signers", "real");
    let (tip, digest) = (lab.rev("HEAD"), rules_digest(&lab.open(), lab.rev("HEAD")).unwrap());
    lab.commit(".agentproto/allowed_signers", "evil");
    lab.git(&["replace", &tip.to_string(), "HEAD"]);
    lab.git(&["replace", &format!("{tip}:.agentproto"), "HEAD:.agentproto"]);
    let repo = lab.open();
    let load = load_rule_file(&repo, tip, ".agentproto/allowed_signers").unwrap();
    assert_eq!(load.unwrap(), b"real");
    assert_eq!(rules_digest(&repo, tip).unwrap(), digest);
}

#[test]
fn a_ref_is_looked_up_by_its_full_name_only() {
    let lab = Lab::new();
    lab.commit("a", "1");
    lab.git(&["update-ref", "refs/heads/refs/heads/master", "HEAD"]);
    lab.git(&["update-ref", "refs/heads/refs/remotes/origin/main", "HEAD"]);
    lab.git(&["update-ref", "refs/remotes/origin/x/HEAD", "HEAD"]);
    let repo = lab.open();
    for name in ["refs/heads/master", "refs/remotes/origin/main", "refs/remotes/origin/x", "main"] {
        assert_eq!(tip_of(&repo, name).unwrap(), None, "{name}");
    }
    assert_eq!(tip_of(&repo, "refs/heads/main").unwrap(), Some(lab.rev("HEAD")));
}

#[test]
fn another_clone_uses_the_trusted_ref_a_person_fixed_if_it_has_it() {
    let lab = Lab::new();
    lab.commit("a", "1");
    let env = lab.env();
    let load = || Trust::load(&lab.open(), &env, &[]).unwrap();
    let mut settings = load().settings;
    settings.set("agentproto.trustedRef", "refs/heads/release").unwrap();
    settings.save().unwrap();
    assert_eq!(load().trusted_ref, main_ref());
    lab.git(&["branch", "release"]);
    lab.commit("b", "2");
    let trust = load();
    assert_eq!((trust.trusted_ref.as_str(), trust.known_path), ("refs/heads/release", false));
    assert_eq!(trust.tip, lab.rev("release"));
}

//! The user's settings of one repository, and which scopes are believed.

use super::*;
use crate::store::trusted::testing::Lab;
use std::os::unix::fs::PermissionsExt;

fn id() -> Oid {
    "1".repeat(40).parse().unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn settings_round_trip_and_keep_what_they_do_not_know() {
    let lab = Lab::new();
    let env = lab.env();
    let mut settings = RepoSettings::load(&env, id()).unwrap();
    assert!(!settings.exists());
    assert_eq!(settings.trusted_ref().unwrap(), None);
    std::fs::create_dir_all(settings.dir()).unwrap();
    let hand_made = "# mine\n[agentproto]\n\tfuture = kept\n\tpath = /old\n";
    std::fs::write(settings.dir().join("settings"), hand_made).unwrap();
    settings = RepoSettings::load(&env, id()).unwrap();
    settings.set("agentproto.trustedRef", "refs/remotes/origin/main").unwrap();
    settings.set("agentproto.path", "/a b:/c\"\\d").unwrap();
    settings.save().unwrap();
    let again = RepoSettings::load(&env, id()).unwrap();
    assert!(again.exists());
    assert_eq!(again.trusted_ref().unwrap().unwrap(), "refs/remotes/origin/main");
    assert_eq!(again.get("agentproto.path").unwrap().unwrap(), "/a b:/c\"\\d");
    assert_eq!(again.get("agentproto.future").unwrap().unwrap(), "kept");
    let file = settings.dir().join("settings");
    assert!(std::fs::read_to_string(&file).unwrap().starts_with("# mine\n"));
    assert_eq!((mode(&file), mode(settings.dir())), (0o600, 0o755));
    let read = lab.git(&["config", "-f", file.to_str().unwrap(), "agentproto.path"]);
    assert_eq!(read, "/a b:/c\"\\d\n");
}

#[test]
fn new_directories_are_private_and_no_temporary_file_stays() {
    let lab = Lab::new();
    let path = lab.home().join("x/y/file");
    write_private(&path, b"1").unwrap();
    write_private(&path, b"2").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"2");
    assert_eq!((mode(&lab.home().join("x")), mode(path.parent().unwrap())), (0o700, 0o700));
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn a_broken_file_is_an_error_and_not_empty_settings() {
    let lab = Lab::new();
    let dir = lab.home().join(".config/agentproto/repos").join(id().to_string());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("settings"), "[agentproto\n").unwrap();
    assert_eq!(RepoSettings::load(&lab.env(), id()).unwrap_err().code(), Code::BadSetting);
    std::fs::remove_file(dir.join("settings")).unwrap();
    std::fs::create_dir(dir.join("settings")).unwrap();
    assert_eq!(RepoSettings::load(&lab.env(), id()).unwrap_err().code(), Code::NotRegular);
    let homeless = Env::fixed(lab.top(), []);
    assert!(matches!(RepoSettings::load(&homeless, id()), Err(SettingsError::NoHome)));
}

#[test]
fn a_trusted_ref_must_be_the_full_name_of_a_branch() {
    let lab = Lab::new();
    let mut settings = RepoSettings::load(&lab.env(), id()).unwrap();
    for name in ["main", "HEAD", "refs/tags/v1", "refs/heads/", "refs/heads/a..b", ""] {
        settings.set("agentproto.trustedRef", name).unwrap();
        assert!(settings.trusted_ref().is_err(), "{name}");
    }
}

#[test]
fn a_path_is_known_by_its_real_name() {
    let lab = Lab::new();
    let env = lab.env();
    let git_dir = lab.top().join(".git");
    assert_eq!(KnownPath::load(&env, &git_dir).unwrap(), None);
    let known = KnownPath { repo_id: id(), trusted_ref: "refs/heads/main".into() };
    let link = lab.home().join("link");
    std::os::unix::fs::symlink(&git_dir, &link).unwrap();
    known.save(&env, &link).unwrap();
    assert_eq!(KnownPath::load(&env, &git_dir).unwrap(), Some(known));
    let paths = lab.home().join(".config/agentproto/paths");
    let file = std::fs::read_dir(&paths).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&file, "[agentproto]\n\trepoId = 12\n").unwrap();
    assert_eq!(
        KnownPath::load(&env, &git_dir).unwrap_err().to_string(),
        "'agentproto.repoId' cannot be '12': not an object id"
    );
    std::fs::write(&file, "").unwrap();
    assert!(matches!(KnownPath::load(&env, &git_dir), Err(SettingsError::Missing { .. })));
}

#[test]
fn repository_worktree_and_included_values_have_no_effect_and_are_listed() {
    let lab = Lab::new();
    lab.git(&["config", "agentproto.allowNoAck", "true"]);
    lab.git(&["config", "agentproto.allowedCommand", "sh"]);
    lab.git(&["config", "agentproto.harmless", "x"]);
    lab.git(&["config", "extensions.worktreeConfig", "true"]);
    lab.git(&["config", "--worktree", "agentproto.signingKey", "/evil"]);
    std::fs::write(lab.home().join("inc"), "[gpg \"ssh\"]\n\tallowedSignersFile = /evil\n")
        .unwrap();
    lab.git(&["config", "include.path", lab.home().join("inc").to_str().unwrap()]);
    let repo = lab.open();
    let settings = RepoSettings::load(&lab.env(), id()).unwrap();
    assert!(!protected_bool(&repo, &settings, "agentproto.allowNoAck").unwrap());
    assert_eq!(user_scope(&repo, "agentproto.signingKey").unwrap(), None);
    assert_eq!(user_scope(&repo, "gpg.ssh.allowedSignersFile").unwrap(), None);
    assert_eq!(user_scope_all(&repo, "agentproto.allowedCommand").unwrap(), Vec::<String>::new());
    let mut listed = ignored(&repo);
    listed.sort();
    assert_eq!(
        listed,
        [
            "agentproto.allowNoAck (local)",
            "agentproto.allowedCommand (local)",
            "agentproto.signingKey (worktree)",
            "gpg.ssh.allowedSignersFile (local)",
        ]
    );
}

#[test]
fn global_values_count_and_the_settings_of_the_repository_come_first() {
    let lab = Lab::new();
    lab.git(&["config", "agentproto.path", "/evil"]);
    let global = ["agentproto.path=/global", "agentproto.allowNoAck=yes"];
    let repo = lab.open_with(&global);
    let mut settings = RepoSettings::load(&lab.env(), id()).unwrap();
    let path = |settings: &RepoSettings| protected(&repo, settings, "agentproto.path").unwrap();
    assert_eq!(path(&settings).unwrap(), "/global");
    assert!(protected_bool(&repo, &settings, "agentproto.allowNoAck").unwrap());
    settings.set("agentproto.path", "/own").unwrap();
    settings.set("agentproto.allowNoAck", "off").unwrap();
    assert_eq!(path(&settings).unwrap(), "/own");
    assert!(!protected_bool(&repo, &settings, "agentproto.allowNoAck").unwrap());
    settings.set("agentproto.allowNoAck", "perhaps").unwrap();
    let why = protected_bool(&repo, &settings, "agentproto.allowNoAck").unwrap_err();
    assert_eq!(why.to_string(), "'agentproto.allowNoAck' cannot be 'perhaps': not a boolean");
}

#[test]
fn a_file_name_is_absolute_or_below_home() {
    let lab = Lab::new();
    let env = lab.env();
    let expand = |value: &str| expand_path(&env, "k", value);
    assert_eq!(expand("/a").unwrap(), Path::new("/a"));
    assert_eq!(expand("~/a").unwrap(), lab.home().join("a"));
    for value in ["a", "./a", "~", "~ada/a", ""] {
        assert!(expand(value).is_err(), "{value}");
    }
}

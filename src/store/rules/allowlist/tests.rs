//! Allowlists: sources, prefixes, and what is refused.

use super::*;
use crate::store::trusted::testing::Lab;
use std::{fs, os::unix::fs::PermissionsExt};

/// A worktree with two programs and a directory that plays the fixed PATH.
struct Bench {
    dir: tempfile::TempDir,
    path: FixedPath,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["bin/git", "bin/ls", "work/git", "work/scripts/check.sh"] {
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let bin = dir.path().join("bin").display().to_string();
        Self { path: FixedPath::new(Some(&bin), &[dir.path().join("work")]), dir }
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    fn check(&self, list: &Allowlist, argv: &[&str]) -> Result<PathBuf, Denied> {
        let argv: Vec<String> = argv.iter().map(|s| (*s).to_owned()).collect();
        let place = Place {
            trusted_ref: "refs/heads/main",
            user_file: Path::new("/home/ada/allowed.json"),
        };
        list.check(&argv, &self.dir.path().join("work"), &self.path, &place).map(|a| a.program)
    }
}

fn list(json: &str, origin: Origin) -> Result<Allowlist, AllowlistInvalid> {
    let mut list = Allowlist::default();
    list.add_file("file", json.as_bytes(), origin)?;
    Ok(list)
}

fn sample() -> Allowlist {
    let json = r#"{"version":1,"commands":
        ["ls",{"command":"git","args":["status"]},{"command":"./scripts/check.sh"}]}"#;
    list(json, Origin::TrustedRef).unwrap()
}

#[test]
fn case_98_spelling_does_not_widen_an_entry() {
    let bench = Bench::new();
    let list = sample();
    let absolute = bench.at("bin/ls");
    let denied: [&[&str]; 13] = [
        &["git"],
        &["git", "-c", "alias.x=!touch pwn", "x"],
        &["git", "-C", "/", "status"],
        &["git", "status;", "touch", "pwn"],
        &["git", "status\n"],
        &["git status"],
        &["./git", "status"],
        &["env", "git", "status"],
        &["GIT", "status"],
        &["./ls"],
        &["bin/ls"],
        &["/bin/ls"],
        &[&absolute],
    ];
    for argv in denied {
        let why = bench.check(&list, argv).unwrap_err();
        assert_eq!(why.code(), Code::NotAllowlisted, "{argv:?}");
    }
    let ls = bench.check(&list, &["ls", "-l", "x"]).unwrap();
    assert_eq!(ls.display().to_string(), absolute);
    assert!(bench.check(&list, &["git", "status", "--short"]).is_ok());
}

#[test]
fn case_106_argument_rules_hold_for_gates_as_well() {
    let bench = Bench::new();
    let list =
        list(r#"{"version":1,"commands":[{"command":"git","args":["status"]}]}"#, Origin::User);
    let list = list.unwrap();
    let program = bench.at("work/git");
    for argv in [vec![program.as_str(), "status"], vec!["git", "log"], vec!["git"]] {
        let why = bench.check(&list, &argv).unwrap_err();
        assert_eq!(why.code(), Code::NotAllowlisted, "{argv:?}");
    }
}

#[test]
fn a_path_entry_is_that_file_of_the_worktree_however_it_is_reached() {
    let bench = Bench::new();
    let work = bench.dir.path().join("work");
    std::os::unix::fs::symlink("scripts/check.sh", work.join("link.sh")).unwrap();
    std::os::unix::fs::symlink("/bin/sh", work.join("sh")).unwrap();
    let list = sample();
    for name in
        ["./scripts/check.sh", "scripts/check.sh", "./scripts/../scripts/check.sh", "./link.sh"]
    {
        assert!(bench.check(&list, &[name]).is_ok(), "{name}");
    }
    for name in ["check.sh", "./check.sh", "./sh", "../work/scripts", "./git"] {
        let why = bench.check(&list, &[name]).unwrap_err();
        assert_eq!(why.code(), Code::NotAllowlisted, "{name}");
    }
    fs::remove_file(work.join("scripts/check.sh")).unwrap();
    let gone = bench.check(&list, &["./scripts/check.sh"]).unwrap_err();
    assert_eq!(gone.code(), Code::GateNotFound, "listed, but not there");
    assert!(gone.to_string().contains("scripts/check.sh"), "{gone}");
    let other = bench.check(&list, &["scripts/check.sh"]).unwrap_err();
    assert_eq!(other.code(), Code::NotAllowlisted, "another spelling of nothing");
    std::os::unix::fs::symlink("/bin/sh", work.join("scripts/check.sh")).unwrap();
    let outside = bench.check(&list, &["./scripts/check.sh"]).unwrap_err();
    assert!(matches!(outside, Denied::Program(ProgramError::Outside { .. })), "{outside}");
}

#[test]
fn an_absolute_entry_counts_from_the_user_only_and_as_spelled() {
    let bench = Bench::new();
    let program = bench.at("bin/git");
    let json = format!(r#"{{"version":1,"commands":["{program}"]}}"#);
    let why = list(&json, Origin::TrustedRef).unwrap_err();
    assert_eq!(why.code(), Code::AllowlistInvalid);
    let list = list(&json, Origin::User).unwrap();
    assert_eq!(bench.check(&list, &[&program]).unwrap(), Path::new(&program));
    for other in [program.replace("/git", "//git"), program.replace("/git", "/./git"), "git".into()]
    {
        assert!(bench.check(&list, &[&other]).is_err(), "{other}");
    }
}

#[test]
fn a_malformed_file_is_refused_whole() {
    let bad = [
        "",
        "[]",
        "{}",
        r#"{"version":1}"#,
        r#"{"commands":[]}"#,
        r#"{"version":2,"commands":[]}"#,
        r#"{"version":1,"commands":[],"more":1}"#,
        r#"{"version":1,"commands":[],"commands":["sh"]}"#,
        r#"{"version":1,"commands":["ls",1]}"#,
        r#"{"version":1,"commands":["ls",{"command":"git","arg":["status"]}]}"#,
        r#"{"version":1,"commands":[{"args":["status"]}]}"#,
        r#"{"version":1,"commands":["ls",""]}"#,
        r#"{"version":1,"commands":["git status"]}"#,
        r#"{"version":1,"commands":["../tool"]}"#,
        r#"{"version":1,"commands":["bin/"]}"#,
        r#"{"version":1,"commands":["a\u0000b"]}"#,
        r#"{"version":1,"commands":["ls"]} x"#,
    ];
    for json in bad {
        let mut whole = sample();
        let before = whole.entries.len();
        let why = whole.add_file("the file", json.as_bytes(), Origin::User).unwrap_err();
        assert_eq!(why.code(), Code::AllowlistInvalid, "{json}");
        assert!(why.to_string().starts_with("the file: "), "{why}");
        assert_eq!(whole.entries.len(), before);
    }
    let why = list(r#"{"version":1,"commands":["ls",1]}"#, Origin::User).unwrap_err();
    assert!(why.why.starts_with("an entry is a name or an object with command and args"), "{why}");
}

#[test]
fn configuration_values_are_shell_words() {
    let bench = Bench::new();
    let mut list = Allowlist::default();
    list.add_config(&["git log 'a b'".into()]).unwrap();
    assert!(bench.check(&list, &["git", "log", "a b", "c"]).is_ok());
    assert!(bench.check(&list, &["git", "log", "a", "b"]).is_err());
    for value in ["", "  ", "git 'open", "'' x"] {
        assert!(list.add_config(&[value.into()]).is_err(), "{value:?}");
    }
}

#[test]
fn the_refusal_prints_the_line_the_file_and_the_ref() {
    let bench = Bench::new();
    let why = bench.check(&Allowlist::default(), &["cargo", "test", "a b"]).unwrap_err();
    assert_eq!(
        why.to_string(),
        "not allowlisted: cargo test 'a b'; add {\"command\":\"cargo\",\"args\":[\"test\",\"a b\"]} to \
         \"commands\" in .agentproto/allowed-commands.json and commit it on refs/heads/main, or allow it \
         for yourself with: git agentproto allow -- cargo test 'a b'"
    );
    let why = bench.check(&Allowlist::default(), &["/opt/tool"]).unwrap_err().to_string();
    assert!(
        why.contains("add \"/opt/tool\" to \"commands\" in /home/ada/allowed.json, or"),
        "{why}"
    );
}

#[test]
fn an_allowed_program_that_is_not_there_is_not_found() {
    let bench = Bench::new();
    let list = list(r#"{"version":1,"commands":["gone","./gone.sh"]}"#, Origin::User).unwrap();
    let why = bench.check(&list, &["gone"]).unwrap_err();
    assert_eq!(why.code(), Code::GateNotFound);
    assert_eq!(why.to_string(), format!("'gone' is not on the fixed PATH ({})", bench.at("bin")));
    assert_eq!(bench.check(&list, &[]).unwrap_err().code(), Code::GateRequired);
}

#[test]
fn allow_adds_one_entry_and_keeps_the_rest() {
    let argv = |words: &str| shell_words::split(words).unwrap();
    let first = with_entry("f", None, &argv("git status"), Origin::User).unwrap().unwrap();
    let both = with_entry("f", Some(first.as_bytes()), &argv("ls"), Origin::User).unwrap().unwrap();
    assert_eq!(
        both,
        "{\n  \"version\": 1,\n  \"commands\": [\n    {\"command\":\"git\",\"args\":[\"status\"]},\n    \
         \"ls\"\n  ]\n}\n"
    );
    assert_eq!(with_entry("f", Some(both.as_bytes()), &argv("ls"), Origin::User).unwrap(), None);
    assert!(with_entry("f", Some(b"{"), &argv("ls"), Origin::User).is_err());
    assert!(with_entry("f", None, &argv("/bin/ls"), Origin::TrustedRef).is_err());
    assert!(with_entry("f", None, &[], Origin::User).is_err());
}

#[test]
fn the_union_is_of_trusted_ref_user_file_and_global_scope() {
    let lab = Lab::new();
    lab.commit(RULE_FILE, r#"{"version":1,"commands":["one"]}"#);
    fs::write(lab.top().join(RULE_FILE), r#"{"version":1,"commands":["evil"]}"#).unwrap();
    lab.git(&["config", "agentproto.allowedCommand", "evil"]);
    let repo = lab.open_with(&["agentproto.allowedCommand=three x"]);
    let trust = Trust::load(&repo, &lab.env(), &[]).unwrap();
    let own = trust.settings.allowlist_file();
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    fs::write(&own, r#"{"version":1,"commands":["two"]}"#).unwrap();
    let names = |list: &Allowlist| -> Vec<String> {
        list.entries.iter().map(|(e, _)| e.command.clone()).collect()
    };
    assert_eq!(names(&Allowlist::load(&repo, &trust).unwrap()), ["one", "two", "three"]);
    fs::write(&own, "{").unwrap();
    assert_eq!(Allowlist::load(&repo, &trust).unwrap_err().code(), Code::AllowlistInvalid);
}

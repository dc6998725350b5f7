//! The team's allowlist committed by a person, seen with the real git.

use super::*;
use crate::{
    domain::input::Covers,
    ledger::{
        InitAsk,
        lab::{Lab, emit},
    },
};

fn make() -> Vec<String> {
    ["make", "-s", "check it"].map(str::to_owned).to_vec()
}

fn landed(lab: &Lab) -> AllowLanded {
    lab.ledger().allow_commit(&make()).unwrap().landed.unwrap()
}

/// Refused with this code, and refs, index and files are as before.
fn refused(lab: &Lab, code: Code) -> LedgerError {
    let look = || (lab.snapshot(), lab.repo.git(&["ls-files", "-s"]));
    let before = look();
    let error = lab.ledger().allow_commit(&make()).unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    assert_eq!(look(), before);
    error
}

#[test]
fn the_entry_is_a_commit_of_the_person_and_nothing_rides_along() {
    let lab = Lab::new();
    let parent = lab.repo.oid("main");
    lab.repo.write("theirs", b"x");
    lab.repo.git(&["add", "theirs"]);
    let done = landed(&lab);
    assert_eq!(lab.repo.oid("refs/heads/main"), done.commit);
    assert_eq!(lab.repo.oid("main^"), parent);
    assert_eq!(done.working_file, WorkingFile::Written);
    let changed = lab.repo.git(&["diff-tree", "-r", "--name-status", "main^", "main"]);
    assert_eq!(changed, format!("M\t{RULE_FILE}\n"));
    let said = lab.repo.git(&["log", "-1", "--format=%an <%ae>%n%B"]);
    let line = "agentproto: allow make -s 'check it'";
    assert_eq!(said.trim_end(), format!("Tess Tester <tess@example.invalid>\n{line}"));
    assert_eq!(lab.repo.git(&["reflog", "-1", "--format=%gs"]), "agentproto: allow\n");
    assert_eq!(lab.repo.git(&["status", "--porcelain"]), "A  theirs\n");
    lab.repo.git(&["fsck", "--strict"]);
    let text = lab.repo.git(&["show", &format!("main:{RULE_FILE}")]);
    assert!(text.contains("\"true\",\n"), "the old entries stay: {text}");
    assert!(text.contains(r#"{"command":"make","args":["-s","check it"]}"#), "{text}");
    assert!(!lab.settings().allowlist_file().exists());
}

#[test]
fn a_second_time_changes_nothing() {
    let lab = Lab::new();
    landed(&lab);
    let before = lab.snapshot();
    assert_eq!(lab.ledger().allow_commit(&make()).unwrap().landed, None);
    assert_eq!(lab.snapshot(), before);
}

#[test]
fn a_gate_may_run_it_from_then_on() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let session = lab.session(&ledger);
    let gate = emit(&["git", "log", "-1"]);
    assert!(ledger.attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &gate).is_err());
    ledger.allow_commit(&["git".to_owned(), "log".to_owned()]).unwrap();
    ledger.attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &gate).unwrap();
}

#[test]
fn the_first_entry_makes_the_file() {
    let lab = Lab::new();
    lab.repo.git(&["rm", "-q", RULE_FILE]);
    lab.repo.git(&["commit", "-qm", "no rules"]);
    assert_eq!(landed(&lab).working_file, WorkingFile::Written);
    assert_eq!(lab.repo.git(&["status", "--porcelain"]), "");
    assert!(lab.repo.top().join(RULE_FILE).is_file());
}

#[test]
fn a_working_file_with_changes_is_left_alone() {
    let lab = Lab::new();
    lab.repo.write(RULE_FILE, b"mine");
    let because = "it was not what the branch had".to_owned();
    assert_eq!(landed(&lab).working_file, WorkingFile::Kept { because });
    assert_eq!(std::fs::read(lab.repo.top().join(RULE_FILE)).unwrap(), b"mine");
    assert_eq!(lab.repo.git(&["status", "--porcelain"]), format!(" M {RULE_FILE}\n"));
}

#[test]
fn a_link_in_the_way_is_not_followed() {
    let lab = Lab::new();
    let (dir, outside) = (lab.repo.top().join(".agentproto"), lab.repo.beside("outside"));
    std::fs::rename(&dir, &outside).unwrap();
    std::os::unix::fs::symlink(&outside, &dir).unwrap();
    let before = std::fs::read(outside.join("allowed-commands.json")).unwrap();
    let WorkingFile::Kept { because } = landed(&lab).working_file else { panic!("written") };
    assert!(because.contains("symbolic link"), "{because}");
    assert_eq!(std::fs::read(outside.join("allowed-commands.json")).unwrap(), before);
}

#[test]
fn line_endings_are_those_of_the_person() {
    let lab = Lab::new();
    lab.repo.git(&["config", "core.autocrlf", "true"]);
    std::fs::remove_file(lab.repo.top().join(RULE_FILE)).unwrap();
    lab.repo.git(&["checkout", "-q", "--", RULE_FILE]);
    assert_eq!(landed(&lab).working_file, WorkingFile::Written);
    assert!(std::fs::read(lab.repo.top().join(RULE_FILE)).unwrap().ends_with(b"}\r\n"));
    assert_eq!(lab.repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn another_branch_here_keeps_its_file() {
    let lab = Lab::new();
    lab.repo.git(&["switch", "-qc", "side"]);
    let before = std::fs::read(lab.repo.top().join(RULE_FILE)).unwrap();
    assert_eq!(landed(&lab).working_file, WorkingFile::OtherBranch);
    assert_eq!(std::fs::read(lab.repo.top().join(RULE_FILE)).unwrap(), before);
    assert_eq!(lab.repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn accepted_rules_stay_accepted_and_changed_ones_stay_changed() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    ledger.init(&InitAsk::default()).unwrap();
    assert!(landed(&lab).accepted);
    assert!(matches!(ledger.rules().unwrap(), Rules::Accepted { .. }));
    lab.repo.commit_file(".agentproto/other.json", b"{}");
    let done = ledger.allow_commit(&["make".to_owned()]).unwrap().landed.unwrap();
    assert!(!done.accepted);
    assert!(matches!(ledger.rules().unwrap(), Rules::Changed { .. }));
}

#[test]
fn what_is_staged_of_the_file_is_never_lost() {
    let lab = Lab::new();
    lab.repo.write(RULE_FILE, br#"{"version":1,"commands":[]}"#);
    lab.repo.git(&["add", RULE_FILE]);
    refused(&lab, Code::RuleFileStaged);
}

#[test]
fn a_trusted_ref_of_a_remote_is_refused_and_says_where_to_commit() {
    let lab = Lab::new();
    let tip = lab.repo.oid("main").to_string();
    lab.repo.git(&["update-ref", "refs/remotes/origin/main", &tip]);
    lab.repo.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
    lab.repo.git(&["config", "remote.origin.url", "nowhere"]);
    let LedgerError::Problems(all) = refused(&lab, Code::TrustedRefRemote) else {
        panic!("no hint")
    };
    assert_eq!(
        all[0].hint.as_deref().unwrap(),
        "commit the entry to .agentproto/allowed-commands.json on origin/main and push it, or allow it \
         for yourself: git agentproto allow -- make -s 'check it'"
    );
}

#[test]
fn what_stands_in_the_way_of_a_commit_is_refused() {
    let lab = Lab::new();
    lab.repo.git(&["config", "commit.gpgSign", "true"]);
    refused(&lab, Code::CommitSigningUnsupported);
    lab.repo.git(&["config", "commit.gpgSign", "false"]);
    lab.repo.git(&["config", "user.name", ""]);
    refused(&lab, Code::IdentityMissing);
    lab.repo.git(&["config", "user.name", "Tess Tester"]);
    lab.repo.commit_file(RULE_FILE, b"{");
    refused(&lab, Code::AllowlistInvalid);
}

#[test]
fn nobody_commits_rules_from_inside_a_session() {
    let lab = Lab::new();
    let inside = lab.ledger_at(&lab.repo.top(), &[("AGENTPROTO_SESSION_ID", "")]);
    let before = lab.snapshot();
    assert_eq!(inside.allow_commit(&make()).unwrap_err().code(), Code::PersonOnly);
    assert_eq!(lab.snapshot(), before);
}

/// What a run leaves that is killed with the index prepared: record, lock and the index to be.
fn killed(lab: &Lab, candidate: Oid) -> (PathBuf, PathBuf) {
    let git_dir = lab.repo.top().join(".git");
    let tmp = git_dir.join("agentproto/tmp");
    std::fs::create_dir_all(&tmp).unwrap();
    let record = tmp.join(format!("index-lock.allow-{candidate}.."));
    let prepared = tmp.join(format!("index.allow-{candidate}.."));
    let lock = git_dir.join("index.lock");
    std::fs::write(&record, "held").unwrap();
    std::fs::hard_link(&record, &lock).unwrap();
    std::fs::copy(git_dir.join("index"), &prepared).unwrap();
    let place: [(&str, &std::path::Path); 1] = [("GIT_INDEX_FILE", &prepared)];
    lab.repo.git_at(&lab.repo.top(), &["read-tree", &candidate.to_string()], &place);
    (record, lock)
}

#[test]
fn the_next_command_finishes_or_takes_back_what_a_killed_run_left() {
    for arrived in [true, false] {
        let lab = Lab::new();
        let candidate = lab.candidate(RULE_FILE, br#"{"version":1,"commands":["make"]}"#);
        let (record, lock) = killed(&lab, candidate.commit);
        if arrived {
            let new = candidate.commit.to_string();
            lab.repo.git(&["update-ref", "refs/heads/main", &new]);
        }
        lab.ledger();
        assert!(!record.exists() && !lock.exists(), "arrived: {arrived}");
        assert_eq!(lab.repo.git(&["diff", "--cached", "--name-only"]), "", "arrived: {arrived}");
    }
}

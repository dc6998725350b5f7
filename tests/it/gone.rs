//! A journal that was taken away with our directory, though something else tells of it: nobody begins anew in silence.

use crate::{env::TestEnv, house::text};
use serde_json::Value;
use std::{fs, path::PathBuf};

/// Removes journal ref and our directory; with `objects`, what the journal was made of, too.
fn take_away(env: &TestEnv, objects: bool) -> String {
    let journal = env.journal();
    fs::remove_dir_all(env.repo().join(".git/agentproto")).unwrap();
    env.spoil_ref(&journal, None);
    if objects {
        env.git(&["reflog", "expire", "--expire=now", "--all"]);
        env.git(&["gc", "-q", "--prune=now"]);
    }
    journal
}

fn writer_of(journal: &str) -> &str {
    journal.split('/').nth(3).unwrap()
}

fn state(env: &TestEnv, name: &str) -> PathBuf {
    env.home().join(".local/state/agentproto/writers").join(name)
}

const ADOPT: [&str; 6] = ["session", "adopt", "--label", "s", "--cwd", "."];

#[track_caller]
fn findings(env: &TestEnv, exit: i32) -> Vec<Value> {
    env.ap(&["fsck", "--json"]).exits(exit).json()["findings"].as_array().unwrap().clone()
}

#[test]
fn a_journal_whose_objects_are_here_is_put_back_and_until_then_nothing_is_fine() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let tip = env.git(&["rev-parse", &env.journal()]);
    let journal = take_away(&env, false);
    let verify = env.ap(&["verify", "--json"]).exits(2).json();
    assert_eq!(text(&verify["journals"][0], "writer"), writer_of(&journal));
    assert!(text(&verify["journals"][0]["problem"], "why").starts_with("it is gone: "), "{verify}");
    let status = env.ap(&["status"]).exits(0).err();
    assert!(status.contains("git agentproto fsck puts it back"), "{status}");
    assert!(!status.contains("remove that file"), "{status}");
    let report = env.ap(&["fsck", "--json"]).exits(0).json();
    assert_eq!(report["healedRefs"], serde_json::json!([journal]));
    assert_eq!(env.git(&["rev-parse", &env.journal()]), tip);
    // An append does the same.
    take_away(&env, false);
    env.ap(&ADOPT).exits(0);
    assert_eq!(env.journal(), journal);
    env.assert_no_gap();
    env.ap(&["fsck"]).exits(0);
    env.ap(&["verify", "HEAD~1..HEAD"]).exits(0);
}

#[test]
fn a_journal_that_is_gone_for_good_is_told_by_everybody_until_a_person_gives_it_up() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let journal = take_away(&env, true);
    let writer = writer_of(&journal);
    let evidence = journal.replace("/journal/", "/evidence/");
    let witnesses = [
        ("journal-diverged", state(&env, &format!("{writer}.tip")).display().to_string()),
        ("journal-corrupt", evidence.clone()),
    ];
    for (code, witness) in witnesses {
        let refused = env.ap(&ADOPT).exits(2);
        assert!(refused.err().contains(code) && refused.err().contains(&witness), "{refused}");
        let found = findings(&env, 2);
        assert!(found.iter().any(|f| text(f, "what").contains(&witness)), "{found:?}");
        let verify = env.ap(&["verify", "--json"]).exits(2).json();
        let why = text(&verify["journals"][0]["problem"], "why");
        assert!(why.contains(&witness) || why.contains(&evidence), "{witness}: {why}");
        assert_eq!(env.git(&["for-each-ref", "refs/agentproto/journal"]), "");
        // What each says gives it up.
        if witness == evidence {
            env.git(&["update-ref", "-d", &evidence]);
        } else {
            fs::remove_file(witness).unwrap();
        }
    }
    env.ap(&ADOPT).exits(0);
    assert_ne!(env.journal(), journal);
    findings(&env, 0);
}

#[test]
fn evidence_of_a_journal_that_is_gone_is_told_beside_a_new_one() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let journal = env.journal();
    let evidence = journal.replace("/journal/", "/evidence/");
    let pin = env.git(&["rev-parse", &evidence]);
    take_away(&env, true);
    env.git(&["update-ref", "-d", &evidence]);
    fs::remove_dir_all(env.home().join(".local/state")).unwrap();
    // Whoever took all of it away is told from nobody.
    env.ap(&ADOPT).exits(0);
    env.git(&["update-ref", &evidence, &pin]);
    let found = findings(&env, 2);
    assert_eq!(text(&found[0], "subject"), writer_of(&journal));
    let verify = env.ap(&["verify", "--json"]).exits(2).json();
    assert_eq!(verify["journals"].as_array().unwrap().len(), 2, "{verify}");
}

#[test]
fn a_repository_made_anew_at_the_same_path_begins_anew() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let journal = env.journal();
    fs::remove_dir_all(env.repo()).unwrap();
    env.make_repo("r");
    let again = env.ap(&ADOPT).exits(0);
    assert!(!again.err().contains(writer_of(&journal)), "{again}");
    assert_ne!(env.journal(), journal);
    findings(&env, 0);
    // One that no time of birth was noted of cannot be told from it: that is said, and no more.
    fs::remove_file(state(&env, &format!("{}.born", writer_of(&journal)))).unwrap();
    let found = findings(&env, 0);
    assert_eq!(text(&found[0], "subject"), writer_of(&journal), "{found:?}");
    assert_eq!(text(&found[0], "severity"), "note");
}

#[test]
fn a_clone_that_fetched_the_notes_alone_is_fine() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let there = env.path("clone");
    let from = env.repo();
    env.git_in(&env.path(""), &["clone", "-q", from.to_str().unwrap(), "clone"]);
    env.git_in(&there, &["fetch", "-q", "origin", "refs/notes/*:refs/notes/*"]);
    env.ap_in(&there, &["fsck"]).exits(0);
    env.ap_in(&there, &ADOPT).exits(0);
    env.ap_in(&there, &["fsck"]).exits(0);
}

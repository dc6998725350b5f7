//! First steps in a repository: init, allow, trust.

use super::*;
use crate::{
    domain::input::Covers,
    ledger::lab::{Lab, commit_of, emit},
    sign::key,
};

fn run(ledger: &Ledger, dry_run: bool) -> InitDone {
    ledger.init(&InitAsk { dry_run, ..InitAsk::default() }).unwrap()
}

/// A machine whose person never set anything up here.
fn newcomer() -> Lab {
    let lab = Lab::new();
    std::fs::remove_dir_all(lab.home().join(".config")).unwrap();
    lab
}

fn changed(done: &InitDone) -> usize {
    done.steps.iter().filter(|(_, changed)| *changed).count()
}

#[test]
fn init_makes_everything_an_ack_needs_and_a_second_one_changes_nothing() {
    let lab = newcomer();
    let ledger = lab.ledger();
    let before = lab.snapshot();
    let planned = run(&ledger, true);
    assert_eq!(lab.snapshot(), before, "a dry run wrote something");
    let done = run(&ledger, false);
    assert_eq!(done.steps, planned.steps);
    assert_eq!((done.trusted_ref.as_str(), changed(&done)), ("refs/heads/main", 5));

    let settings = lab.settings();
    let key = key::load(done.key.as_ref()).unwrap();
    let line = std::fs::read_to_string(settings.signers_file()).unwrap();
    let words = key::public_words(key.public()).unwrap();
    assert_eq!(line, format!("tess@example.invalid namespaces=\"agentproto-ack\" {words}\n"));
    assert_eq!(done.signers, settings.signers_file().display().to_string());
    let path = settings.get(PATH_KEY).unwrap().unwrap();
    assert!(path.split(':').all(|dir| dir.starts_with('/')), "{path}");

    let after = lab.snapshot();
    assert_eq!(changed(&run(&lab.ledger(), false)), 0);
    assert_eq!(lab.snapshot(), after);
    let session = lab.session(&ledger);
    ledger
        .attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &commit_of(&["a.txt"]))
        .unwrap();
}

#[test]
fn init_leaves_signers_alone_that_accept_the_key() {
    let lab = Lab::new();
    let before = std::fs::read(lab.settings().signers_file()).unwrap();
    let done = run(&lab.ledger(), false);
    assert_eq!(done.key, lab.key("tess"));
    assert_eq!(std::fs::read(lab.settings().signers_file()).unwrap(), before);
}

#[test]
fn init_takes_the_key_it_is_told_and_keeps_the_other_signers() {
    let lab = Lab::new();
    key::make(&lab.key("second"), "second").unwrap();
    let key = Some(lab.key("second"));
    lab.ledger().init(&InitAsk { key, ..InitAsk::default() }).unwrap();
    let lines = std::fs::read_to_string(lab.settings().signers_file()).unwrap();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let set = lab.settings().get(SIGNING_KEY).unwrap();
    assert_eq!(set.as_deref(), lab.key("second").to_str());
    assert_eq!(changed(&run(&lab.ledger(), false)), 0);
}

#[test]
fn a_set_up_that_fails_writes_nothing() {
    let lab = newcomer();
    let ledger = lab.ledger();
    let before = lab.snapshot();
    let refused = |ask: &InitAsk| {
        let code = ledger.init(ask).unwrap_err().code();
        assert_eq!(lab.snapshot(), before, "{code}");
        code
    };
    let key = Some("no-such-key".into());
    assert_eq!(refused(&InitAsk { key, ..InitAsk::default() }), Code::KeyUnreadable);
    let allow = vec![vec!["make".into()], vec!["a b".into()]];
    assert_eq!(refused(&InitAsk { allow, ..InitAsk::default() }), Code::AllowlistInvalid);
    lab.repo.git(&["config", "user.email", ""]);
    assert_eq!(refused(&InitAsk::default()), Code::IdentityMissing);
}

#[test]
fn only_a_person_outside_sessions_sets_rules() {
    let lab = Lab::new();
    let inside = lab.ledger_at(&lab.repo.top(), &[("AGENTPROTO_SESSION_ID", "x")]);
    let before = lab.snapshot();
    let codes = [
        inside.init(&InitAsk::default()).unwrap_err().code(),
        inside.allow(&["make".into()]).unwrap_err().code(),
        inside.accept_rules().unwrap_err().code(),
    ];
    assert_eq!(codes, [Code::PersonOnly; 3]);
    assert_eq!(lab.snapshot(), before);
}

#[test]
fn allow_lets_a_gate_run_with_exactly_that_beginning() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let session = lab.session(&ledger);
    let words = ["git", "log", "--oneline"].map(str::to_owned);
    assert!(ledger.allow(&words).unwrap().changed);
    assert!(!ledger.allow(&words).unwrap().changed);
    assert!(lab.settings().get(PATH_KEY).unwrap().is_some());
    ledger
        .attach(
            &crate::ledger::GroupAsk::of(&session, Covers::Next),
            &emit(&["git", "log", "--oneline", "-1"]),
        )
        .unwrap();
    let error = ledger
        .attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &emit(&["git", "log"]))
        .unwrap_err();
    assert_eq!(error.code(), Code::NotAllowlisted);
}

#[test]
fn a_change_of_the_rules_shows_until_a_person_accepts_it() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    run(&ledger, false);
    assert!(matches!(ledger.rules().unwrap(), Rules::Accepted { .. }));
    lab.repo.commit_file(".agentproto/allowed-commands.json", br#"{"version":1,"commands":[]}"#);
    assert!(matches!(ledger.rules().unwrap(), Rules::Changed { .. }));
    run(&ledger, false);
    assert!(matches!(ledger.rules().unwrap(), Rules::Changed { .. }), "init accepts no change");
    assert!(ledger.accept_rules().unwrap().changed);
    assert!(matches!(ledger.rules().unwrap(), Rules::Accepted { .. }));
    assert!(!ledger.accept_rules().unwrap().changed);
}

#[test]
fn what_the_repository_is_built_with_is_proposed_until_it_is_allowed() {
    let lab = Lab::new();
    for name in ["Cargo.toml", "package.json", "yarn.lock", "Makefile"] {
        lab.repo.write(name, b"");
    }
    let ledger = lab.ledger();
    assert_eq!(run(&ledger, true).proposals, ["cargo", "yarn", "make"]);
    ledger.allow(&["yarn".into()]).unwrap();
    assert_eq!(run(&ledger, true).proposals, ["cargo", "make"]);
    lab.repo.commit_file(".agentproto/allowed-commands.json", b"{");
    assert_eq!(run(&ledger, true).proposals, ["cargo", "yarn", "make"]);
}

#[test]
fn a_trusted_ref_that_is_gone_is_chosen_again_by_init_alone() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    run(&ledger, false);
    lab.repo.git(&["branch", "-m", "main", "master"]);
    assert_eq!(ledger.allow(&["make".into()]).unwrap_err().code(), Code::NoTrustedRef);
    let done = run(&ledger, false);
    assert_eq!(done.trusted_ref, "refs/heads/master");
    let told = "rules are read from refs/heads/master instead of refs/heads/main, which is gone";
    assert_eq!(done.steps[0], (told.to_owned(), true));
    assert_eq!(ledger.trust().unwrap().trusted_ref, "refs/heads/master");
    assert_eq!(changed(&run(&ledger, false)), 0);
}

//! What a reviewer is shown.

use super::*;
use crate::{
    domain::input::{Covers, GateRun, Input, Report, RunEnd},
    domain::{
        event::Entity,
        session::{EndReason, Loose},
    },
    ledger::lab::{Lab, commit_of, emit},
};

#[test]
fn a_review_says_what_is_in_the_objects() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let (id, candidate) = lab.awaiting(&ledger);
    lab.repo.write("a.txt", b"changed afterwards\n");
    let review = ledger.review(&id).unwrap();
    assert_eq!(review.candidate, candidate);
    assert_eq!(review.author, "Tess Tester <tess@example.invalid>");
    assert_eq!(review.message, "change\n");
    let [change] = review.changes.as_slice() else { panic!("{:?}", review.changes) };
    assert_eq!((change.path.as_bytes(), change.kind), (&b"a.txt"[..], ChangeKind::Modified));
    assert_eq!(change.lines, Some(LineCounts { added: 1, deleted: 0 }));
    assert_eq!(
        change.new,
        Some((Mode::File, lab.repo.oid(&format!("{}:a.txt", candidate.commit))))
    );
    assert_eq!(review.signers.unwrap().source, "repo-user");
    assert_eq!((review.stale, review.rule_change, review.touches_rules), (None, false, false));

    lab.set("agentproto.trustedRules", "0");
    lab.repo.commit_file("b.txt", b"");
    let review = ledger.review(&id).unwrap();
    assert!(review.stale.unwrap().starts_with("refs/heads/main is at "));
    assert!(review.rule_change);
}

#[test]
fn changes_are_those_of_git_diff_tree() {
    let lab = Lab::new();
    for (name, data) in [("d/x", "1\n2\n3\n"), ("d/e/y", "y\n"), ("gone", "g\n"), ("file", "f\n")] {
        lab.repo.write(name, data.as_bytes());
    }
    let old = lab.repo.commit_file("d.b", b"\0\n");
    lab.repo.write("d/x", b"1\nzwei\n3\n4\n");
    lab.repo.write(".agentproto/new", b"");
    lab.repo.write("d.b", b"\0\0\n");
    for name in ["gone", "file"] {
        std::fs::remove_file(lab.repo.path(name)).unwrap();
    }
    lab.repo.write("file/below", b"");
    std::os::unix::fs::symlink("d", lab.repo.path("link")).unwrap();
    let new = lab.repo.commit_file("last", b"");

    let ledger = lab.ledger();
    let trees = [old, new].map(|commit| ledger.tree_of(&commit).unwrap());
    let changes = ledger.changes(&trees[0], &trees[1]).unwrap();
    let range = [old.to_string(), new.to_string()];
    let status: String =
        changes.iter().map(|c| format!("{}\t{}\n", c.kind.letter(), c.path)).collect();
    let diff = |what: &str| {
        lab.repo.git(&["diff-tree", "-r", "--no-renames", "--minimal", what, &range[0], &range[1]])
    };
    assert_eq!(status, diff("--name-status"));
    let number = |n: Option<usize>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let counts: String = changes
        .iter()
        .map(|c| {
            let added = number(c.lines.map(|l| l.added));
            format!("{added}\t{}\t{}\n", number(c.lines.map(|l| l.deleted)), c.path)
        })
        .collect();
    assert_eq!(counts, diff("--numstat"));
}

#[test]
fn a_candidate_that_changes_the_rules_is_titled_so() {
    for rule in [".agentproto/allowed-commands.json", ".AgentProto/x", "AGENTPROTO.json"] {
        let lab = Lab::new();
        let ledger = lab.ledger();
        let session = lab.session(&ledger);
        let (policy, _) = ledger
            .attach(
                &crate::ledger::GroupAsk::of(&session, Covers::LastAndNext),
                &commit_of(&[rule]),
            )
            .unwrap();
        assert_eq!(ledger.review(&policy).unwrap_err().code(), Code::NotAwaiting);
        let report =
            Report::TurnEnd { turn: None, reason: EndReason::Completed, loose: Loose::default() };
        ledger.record(Input::Reported { session, report, key: None }).unwrap();
        let candidate = lab.candidate(rule, br#"{"version":1,"commands":[]}"#);
        let (results, end) = (vec![], RunEnd::Ready(candidate));
        let run = GateRun { results, voided: 0, noted_on: None, end };
        let touched = [Entity::Policy(policy.clone())];
        let input = Input::GatesEnded { policy: policy.clone(), attempt: 1, run };
        ledger.record_with(&touched, vec![candidate.commit], |_| Ok(input)).unwrap();
        assert!(ledger.review(&policy).unwrap().touches_rules, "{rule}");
        let other = lab.session(&ledger);
        let (watching, _) =
            ledger.attach(&crate::ledger::GroupAsk::of(&other, Covers::Next), &emit(&[])).unwrap();
        assert_eq!(ledger.review(&watching).unwrap_err().code(), Code::NotAwaiting);
    }
}

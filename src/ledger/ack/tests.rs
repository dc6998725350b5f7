//! Answers to a request: given, turned down, repeated.

use super::*;
use crate::{
    ledger::lab::{Lab, oid},
    sign::key,
};

fn yes() -> AckAsk {
    AckAsk {
        decision: Decision::Approve,
        reason: String::new(),
        expires_ms: limits::ACK_EXPIRES_DEFAULT_MS,
        key: None,
        candidate: None,
        presence: Presence::Alone,
    }
}

/// The code of a refused answer and the events it left.
fn refused(lab: &Lab, ledger: &Ledger, id: &PolicyId, ask: &AckAsk) -> (Code, Vec<String>) {
    let before = lab.kinds(ledger).len();
    let code = ledger.ack(id, ask).unwrap_err().code();
    (code, lab.kinds(ledger).split_off(before))
}

#[test]
fn an_approval_is_consumed_with_everything_it_was_judged_by() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let (id, candidate) = lab.awaiting(&ledger);
    let ask = AckAsk { candidate: Some(candidate.commit), reason: "fine".into(), ..yes() };
    let given = ledger.ack(&id, &ask).unwrap();
    assert_eq!(
        (given.candidate, given.signer.as_str()),
        (candidate.commit, "tess@example.invalid")
    );
    let policy = ledger.require_policy(&id).unwrap();
    assert_eq!(policy.status, Status::Committing);
    let record = &policy.acks[0];
    assert_eq!((record.signers.as_str(), record.key.as_str()), ("repo-user", given.key.as_str()));
    let line = AckLine::parse(&record.line).unwrap();
    let request = ledger.at_seq(policy.request_seq.unwrap()).unwrap().unwrap();
    assert_eq!(request.message.kind.as_str(), "policy:commit-ready");
    assert_eq!(line.statement.request, request.id);
    assert_eq!(line.statement.reason, "fine");
    assert_eq!(refused(&lab, &ledger, &id, &yes()), (Code::NotAwaiting, vec![]));
}

#[test]
fn a_rejection_ends_the_policy() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let (id, _) = lab.awaiting(&ledger);
    ledger.ack(&id, &AckAsk { decision: Decision::Reject, ..yes() }).unwrap();
    assert_eq!(ledger.require_policy(&id).unwrap().status, Status::Cancelled);
    assert_eq!(refused(&lab, &ledger, &id, &yes()), (Code::Terminal, vec![]));
}

#[test]
fn a_strangers_answer_is_recorded_as_refused_and_changes_nothing() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let (id, _) = lab.awaiting(&ledger);
    key::make(&lab.key("eve"), "eve").unwrap();
    let ask = AckAsk { key: Some(lab.key("eve")), ..yes() };
    let recorded = vec!["ack:refused".to_owned()];
    assert_eq!(refused(&lab, &ledger, &id, &ask), (Code::Unauthorized, recorded.clone()));
    let late = AckAsk { expires_ms: 0, ..yes() };
    assert_eq!(refused(&lab, &ledger, &id, &late), (Code::Expired, recorded));
    assert_eq!(ledger.require_policy(&id).unwrap().status, Status::AwaitingAck);
}

#[test]
fn what_cannot_be_signed_is_not_recorded() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let (id, _) = lab.awaiting(&ledger);
    let none = Vec::<String>::new();
    let other = AckAsk { candidate: Some(oid("1")), ..yes() };
    assert_eq!(refused(&lab, &ledger, &id, &other), (Code::Stale, none.clone()));
    let missing = AckAsk { key: Some("no-such-key".into()), ..yes() };
    assert_eq!(refused(&lab, &ledger, &id, &missing), (Code::KeyUnreadable, none.clone()));
    let endless = AckAsk { expires_ms: u64::MAX, ..yes() };
    assert_eq!(refused(&lab, &ledger, &id, &endless), (Code::BadTime, none.clone()));
    let unknown = "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap();
    assert_eq!(refused(&lab, &ledger, &unknown, &yes()), (Code::NoSuchPolicy, none.clone()));
    let inside = lab.ledger_at(&lab.repo.top(), &[(SESSION_VARIABLE, "")]);
    assert_eq!(refused(&lab, &inside, &id, &yes()), (Code::AckFromSession, none.clone()));
    std::fs::write(lab.settings().signers_file(), "garbage\n").unwrap();
    assert_eq!(refused(&lab, &ledger, &id, &yes()), (Code::SignersInvalid, none));
}

#[test]
fn a_moved_branch_makes_every_answer_stale() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let (id, _) = lab.awaiting(&ledger);
    lab.repo.commit_file("b.txt", b"");
    let left = vec!["ack:refused".to_owned(), "policy:gating".to_owned()];
    assert_eq!(refused(&lab, &ledger, &id, &yes()), (Code::Stale, left));
    let policy = ledger.require_policy(&id).unwrap();
    assert_eq!((policy.status, policy.attempt), (Status::Gating, 2));
    assert_eq!(refused(&lab, &ledger, &id, &yes()), (Code::NotAwaiting, vec![]));
}

#[test]
fn a_policy_of_another_clone_is_named_as_such() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let (id, _) = lab.awaiting(&ledger);
    let tip = ledger.tip().unwrap().unwrap();
    let fetched = format!("refs/agentproto/remotes/origin/journal/{}/0001", tip.writer);
    let clone = Lab::new();
    clone.repo.git(&[
        "fetch",
        "-q",
        lab.repo.top().to_str().unwrap(),
        &format!("{}:{fetched}", tip.id),
    ]);
    assert_eq!(refused(&clone, &clone.ledger(), &id, &yes()), (Code::NotOwner, vec![]));
}

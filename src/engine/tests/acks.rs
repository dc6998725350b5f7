//! A signed line against the policy it is for: what is wrong with it, and what that leads to.

use super::lab::{World, at, candidate, judged, oid, pol, policy_in, statement};
use crate::domain::{
    ack::{AckOutcome, AckStatement, Decision},
    event::Body,
    input::{Input, JudgedAck, Signature},
    oid::Oid,
    policy::Status,
};

fn give(world: &mut World, ack: JudgedAck) -> String {
    world.answer(Input::AckArrived { policy: pol(1), ack: Box::new(ack) })
}

fn good() -> JudgedAck {
    judged(statement(Decision::Approve))
}

fn saying(change: impl FnOnce(&mut AckStatement)) -> JudgedAck {
    let mut said = statement(Decision::Approve);
    change(&mut said);
    judged(said)
}

fn refused(world: &World) -> AckOutcome {
    let mut outcomes = Vec::new();
    for recorded in &world.log {
        if let Body::AckRefused(event) = &recorded.event.body {
            outcomes.push(event.outcome);
        }
    }
    *outcomes.last().unwrap()
}

#[test]
fn a_good_answer_is_consumed_once() {
    for (decision, status, reason) in [
        (Decision::Approve, Status::Committing, None),
        (Decision::Reject, Status::Cancelled, Some("rejected")),
    ] {
        let mut world = policy_in("awaiting-ack");
        let ack = judged(statement(decision));
        assert_eq!(give(&mut world, ack.clone()), "policy:acked");
        let policy = world.policy(1);
        assert_eq!((policy.status, policy.reason.as_deref()), (status, reason));
        assert_eq!((policy.acks.len(), &policy.acks[0].line), (1, &ack.line));
        let again = give(&mut world, ack);
        assert_eq!(again, if decision == Decision::Approve { "not-awaiting" } else { "terminal" });
        assert_eq!(world.policy(1).acks.len(), 1);
    }
}

/// Each field of a statement made wrong: the outcome, by name.
#[test]
fn every_field_of_the_statement_counts() {
    let other = oid(0xee);
    let rows: [(&str, JudgedAck, AckOutcome); 12] = [
        ("repo", saying(|s| s.repo = "02".repeat(20)), AckOutcome::Orphan),
        ("policy", saying(|s| s.policy = pol(2)), AckOutcome::Orphan),
        ("request", saying(|s| s.request = other), AckOutcome::Orphan),
        ("candidate", saying(|s| s.candidate = other), AckOutcome::Stale),
        ("parent", saying(|s| s.parent = other), AckOutcome::Stale),
        ("tree", saying(|s| s.tree = other), AckOutcome::Stale),
        ("branch", saying(|s| s.branch = "refs/heads/other".into()), AckOutcome::Stale),
        ("gates", saying(|s| s.gates = "00".repeat(32)), AckOutcome::Stale),
        ("signer", saying(|s| s.signer = "eve@example.invalid".into()), AckOutcome::Unauthorized),
        ("key", saying(|s| s.key = "SHA256:eve".into()), AckOutcome::Unauthorized),
        ("expires", saying(|s| s.expires = at(60)), AckOutcome::Expired),
        ("expires", saying(|s| s.expires = at(-1)), AckOutcome::Expired),
    ];
    for (field, ack, outcome) in rows {
        let mut world = policy_in("awaiting-ack");
        assert_eq!(give(&mut world, ack), "ack:refused", "{field}");
        assert_eq!(refused(&world), outcome, "{field}");
        assert_eq!(world.policy(1).status, Status::AwaitingAck, "{field}");
        // Nothing is used up by it.
        assert_eq!(give(&mut world, good()), "policy:acked", "{field}");
    }
}

#[test]
fn fields_that_bind_nothing_may_be_anything() {
    let mut world = policy_in("awaiting-ack");
    let ack = saying(|s| {
        s.reason = "looks fine".into();
        s.issued = at(3599);
        s.expires = at(61);
    });
    assert_eq!(give(&mut world, ack), "policy:acked");
}

#[test]
fn what_is_known_of_the_line_counts() {
    let forged = Signature::Forged("other bytes".into());
    let stranger = Signature::Unauthorized("no such signer".into());
    let rows: [(JudgedAck, AckOutcome, &str); 5] = [
        (
            JudgedAck { statement: Err("no magic".into()), ..good() },
            AckOutcome::Malformed,
            "no magic",
        ),
        (JudgedAck { signature: forged, ..good() }, AckOutcome::Forged, "other bytes"),
        (JudgedAck { signature: stranger, ..good() }, AckOutcome::Unauthorized, "no such signer"),
        (
            JudgedAck { request: None, ..good() },
            AckOutcome::Orphan,
            "it answers a request that this policy did not make",
        ),
        (
            JudgedAck { at: at(3600), ..good() },
            AckOutcome::Expired,
            "it expired at 2023-11-14T23:13:20.000Z",
        ),
    ];
    for (ack, outcome, because) in rows {
        let mut world = policy_in("awaiting-ack");
        let line = ack.line.clone();
        assert_eq!(give(&mut world, ack), "ack:refused", "{outcome}");
        let Body::AckRefused(event) = &world.log.last().unwrap().event.body else { panic!() };
        assert_eq!((event.outcome, event.because.as_str(), &event.line), (outcome, because, &line));
        assert_eq!(world.policy(1).status, Status::AwaitingAck);
        assert!(world.policy(1).acks.is_empty());
    }
}

#[test]
fn a_line_that_was_consumed_is_replayed() {
    let mut world = policy_in("awaiting-ack");
    let ack = good();
    // Only a policy that asks again could meet its old answer; `step` has no way there in this version.
    let Signature::Good(record) = &ack.signature else { panic!() };
    world.state.policies.get_mut(&pol(1)).unwrap().acks.push(record.clone());
    assert_eq!(give(&mut world, ack), "ack:refused");
    assert_eq!(refused(&world), AckOutcome::Replayed);
}

#[test]
fn the_line_decides_not_what_is_kept_beside_it() {
    let mut world = policy_in("awaiting-ack");
    let mut ack = judged(statement(Decision::Reject));
    let Signature::Good(record) = &mut ack.signature else { panic!() };
    record.decision = Decision::Approve;
    record.line = "another".into();
    give(&mut world, ack.clone());
    assert_eq!(world.policy(1).status, Status::Cancelled);
    assert_eq!(world.policy(1).acks[0].line, ack.line);
}

#[test]
fn a_branch_that_moved_turns_the_answer_down_and_ends_the_policy() {
    let tips: [Option<Oid>; 2] = [Some(oid(0xee)), None];
    for tip in tips {
        for decision in [Decision::Approve, Decision::Reject] {
            let mut world = policy_in("awaiting-ack");
            let ack = JudgedAck { tip, ..judged(statement(decision)) };
            assert_eq!(give(&mut world, ack), "ack:refused+policy:failed");
            assert_eq!(refused(&world), AckOutcome::Stale);
            let policy = world.policy(1);
            assert_eq!(policy.status, Status::Blocked);
            assert_eq!(policy.reason.as_deref(), Some("stale-candidate"));
            assert_eq!(policy.candidate, Some(candidate()));
        }
    }
}

#[test]
fn a_stranger_cannot_end_a_policy_whose_branch_moved() {
    let mut world = policy_in("awaiting-ack");
    let signature = Signature::Unauthorized("no such signer".into());
    let ack = JudgedAck { signature, tip: Some(oid(0xee)), ..good() };
    assert_eq!(give(&mut world, ack), "ack:refused");
    assert_eq!(refused(&world), AckOutcome::Unauthorized);
    assert_eq!(world.policy(1).status, Status::AwaitingAck);
}

#[test]
fn an_answer_for_another_candidate_of_an_unmoved_branch_ends_nothing() {
    let mut world = policy_in("awaiting-ack");
    let ack = saying(|s| s.candidate = oid(0xee));
    assert_eq!(give(&mut world, ack), "ack:refused");
    let Body::AckRefused(event) = &world.log.last().unwrap().event.body else { panic!() };
    let because = format!("it is for {}, not for {}", oid(0xee), candidate().commit);
    assert_eq!(event.because, because);
}

//! A signed line against the policy it is for: what is wrong with it, and what that leads to.

use super::lab::{
    World, asked, at, candidate, end_turn, judged, oid, pol, policy_in, spec, statement,
};
use crate::{
    domain::{
        ack::{AckOutcome, AckStatement, Decision},
        event::Body,
        input::{Asked, Covers, Input, JudgedAck, RunEnd, Signature},
        oid::Oid,
        policy::{OnStale, PolicySpec, Status, Then},
        session::EndReason,
    },
    limits,
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
    let rows: [(&str, JudgedAck, AckOutcome); 13] = [
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
        ("issued", saying(|s| s.issued = at(60 + 601)), AckOutcome::Expired),
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
        s.issued = at(60 + 600);
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
            JudgedAck { asked: None, ..good() },
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
    let ack = JudgedAck { quorum: 2, ..ack };
    assert_eq!(give(&mut world, ack.clone()), "policy:acked");
    assert_eq!(give(&mut world, ack.clone()), "ack:refused");
    assert_eq!(refused(&world), AckOutcome::Replayed);
    // The same after it was asked anew: that line is used up.
    world.ask(Input::TipMoved { policy: pol(1), tip: Some(oid(0xdd)) }).unwrap();
    world.regated(0xdd);
    assert_eq!(give(&mut world, JudgedAck { tip: Some(oid(0xdd)), ..ack }), "ack:refused");
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

/// A policy that waits for an ack, attached with this said besides.
fn waiting(change: impl FnOnce(&mut PolicySpec)) -> World {
    let mut world = World::new();
    let mut spec = spec(Then::Commit, &[1]);
    change(&mut spec);
    world.attach(1, spec, Covers::LastAndNext);
    world.report(1, end_turn(EndReason::Completed));
    world.gates(1, RunEnd::Ready(candidate()));
    world
}

#[test]
fn a_branch_that_moved_turns_the_answer_down_and_the_policy_is_gated_again() {
    for decision in [Decision::Approve, Decision::Reject] {
        let mut world = policy_in("awaiting-ack");
        let ack = JudgedAck { tip: Some(oid(0xee)), ..judged(statement(decision)) };
        assert_eq!(give(&mut world, ack), "ack:refused+policy:gating");
        assert_eq!(refused(&world), AckOutcome::Stale);
        let policy = world.policy(1);
        assert_eq!((policy.status, policy.attempt, policy.regates), (Status::Gating, 2, 0));
        assert_eq!((policy.candidate, policy.request_seq), (None, None));
        assert!(policy.acks.is_empty() && policy.results.is_empty() && !policy.green);
    }
}

#[test]
fn a_branch_that_moved_turns_the_answer_down_and_ends_the_policy() {
    let tips: [Option<Oid>; 2] = [Some(oid(0xee)), None];
    for tip in tips {
        for decision in [Decision::Approve, Decision::Reject] {
            let mut world = waiting(|spec| spec.on_stale = OnStale::Block);
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

/// A good answer by another key.
fn by(name: &str, decision: Decision) -> JudgedAck {
    let key = format!("SHA256:{name}");
    let mut ack = judged(AckStatement { key: key.clone(), ..statement(decision) });
    let Signature::Good(record) = &mut ack.signature else { panic!() };
    record.key = key;
    JudgedAck { quorum: 2, ..ack }
}

#[test]
fn as_many_keys_as_it_takes_have_to_approve() {
    let mut world = waiting(|spec| spec.commit.as_mut().unwrap().ack_quorum = 3);
    // What holds is the stricter of the rule at the attach and the rule now.
    for (name, there, status) in [
        ("ada", 1, Status::AwaitingAck),
        ("bob", 2, Status::AwaitingAck),
        ("eve", 3, Status::Committing),
    ] {
        assert_eq!(give(&mut world, by(name, Decision::Approve)), "policy:acked", "{name}");
        let policy = world.policy(1);
        assert_eq!((policy.approvals(), policy.approvals_needed()), (there, 3), "{name}");
        assert_eq!(policy.status, status, "{name}");
    }
    let mut world = policy_in("awaiting-ack");
    assert_eq!(give(&mut world, by("ada", Decision::Approve)), "policy:acked");
    assert_eq!(world.policy(1).approvals_needed(), 2, "a rule that came later");
    // It was taken back: that loosens nothing for this candidate.
    let more = JudgedAck { quorum: 1, ..by("bob", Decision::Approve) };
    assert_eq!(give(&mut world, more), "policy:acked");
    assert_eq!(world.policy(1).status, Status::Committing);
}

#[test]
fn a_key_counts_once_whatever_it_is_called() {
    let mut world = policy_in("awaiting-ack");
    assert_eq!(give(&mut world, by("ada", Decision::Approve)), "policy:acked");
    let mut again = by("ada", Decision::Approve);
    again.line.push_str(" once more");
    if let (Ok(said), Signature::Good(record)) = (&mut again.statement, &mut again.signature) {
        said.signer = "alias@example.invalid".into();
        record.signer = "alias@example.invalid".into();
    }
    assert_eq!(give(&mut world, again), "ack:refused");
    assert_eq!(refused(&world), AckOutcome::Replayed);
    assert_eq!((world.policy(1).status, world.policy(1).approvals()), (Status::AwaitingAck, 1));
}

#[test]
fn a_no_wins_while_others_are_asked_and_may_come_from_who_said_yes() {
    for name in ["ada", "bob"] {
        let mut world = policy_in("awaiting-ack");
        assert_eq!(give(&mut world, by("ada", Decision::Approve)), "policy:acked");
        assert_eq!(give(&mut world, by(name, Decision::Reject)), "policy:acked", "{name}");
        let policy = world.policy(1);
        assert_eq!(policy.status, Status::Cancelled, "{name}");
        assert_eq!(policy.reason.as_deref(), Some("rejected"), "{name}");
    }
}

#[test]
fn a_line_that_was_turned_down_is_known_and_never_judged_twice() {
    let mut world = policy_in("awaiting-ack");
    let late = JudgedAck { at: at(3600), ..good() };
    let line = late.line.clone();
    assert_eq!(give(&mut world, late), "ack:refused");
    assert!(world.policy(1).knows(&line));
    assert_eq!(world.policy(1).judged[0].outcome, AckOutcome::Expired);
    // In time by the clock of whoever judges now: it was judged all the same.
    assert_eq!(give(&mut world, good()), "ack:refused");
    assert_eq!(refused(&world), AckOutcome::Replayed);
    for n in 0..2 * limits::JUDGED_LINES {
        let ack = JudgedAck { line: n.to_string(), asked: None, ..good() };
        assert_eq!(give(&mut world, ack), "ack:refused");
    }
    assert_eq!(world.policy(1).judged.len(), limits::JUDGED_LINES);
}

/// An answer to whatever policy 1 asked for in a state, and every state it may meet later: what becomes of it. Where the
/// policy waits for no answer the input is refused with a code and nothing is recorded.
#[test]
fn every_old_answer_in_every_later_state_is_denied_by_its_name() {
    let later: [(&str, &str); 9] = [
        ("awaiting-ack", "asked anew"),
        ("awaiting-ack", "asked anew, approved by one of two"),
        ("gating", "not-awaiting"),
        ("watching", "not-awaiting"),
        ("committing", "not-awaiting"),
        ("done", "terminal"),
        ("blocked", "terminal"),
        ("cancelled", "terminal"),
        ("awaiting-ack", "regated twice"),
    ];
    type Old = (&'static str, fn() -> JudgedAck, &'static str);
    let other = |answered| Some(Asked { policy: pol(2), seq: 3, answered });
    let old: [Old; 6] = [
        ("the request before", good, "stale"),
        ("the request before, a no", || judged(statement(Decision::Reject)), "stale"),
        ("another repository", || saying(|s| s.repo = "02".repeat(20)), "orphan"),
        ("a request nobody here made", || saying(|s| s.request = oid(0xee)), "orphan"),
        ("another policy that waits", || saying(|s| s.policy = pol(2)), "stale"),
        ("another policy that was answered", || saying(|s| s.policy = pol(2)), "replayed"),
    ];
    for (state, how) in later {
        for (what, make, outcome) in &old {
            let mut world = policy_in(state);
            let mut ack = make();
            if what.starts_with("another policy") {
                ack.asked = other(what.ends_with("answered"));
            }
            let rounds = match how {
                "not-awaiting" | "terminal" => 0,
                "regated twice" => 2,
                _ => 1,
            };
            for round in 0..rounds {
                let parent = 0xd0 + 2 * round;
                world.ask(Input::TipMoved { policy: pol(1), tip: Some(oid(parent)) }).unwrap();
                world.regated(parent);
                ack.tip = Some(oid(parent));
            }
            if how.ends_with("one of two") {
                let candidate = world.policy(1).candidate.unwrap();
                let seq = world.policy(1).request_seq.unwrap();
                let mut yes = by("bob", Decision::Approve);
                let Ok(said) = &mut yes.statement else { panic!() };
                (said.candidate, said.parent) = (candidate.commit, candidate.parent);
                (yes.tip, yes.asked) = (ack.tip, asked(1, seq));
                assert_eq!(give(&mut world, yes), "policy:acked", "{state} {how}");
            }
            let before = world.policy(1).clone();
            let said = give(&mut world, ack);
            if rounds == 0 {
                assert_eq!(said, how, "{state}, {what}");
                assert_eq!(*world.policy(1), before, "{state}, {what}");
                continue;
            }
            assert_eq!(said, "ack:refused", "{state} {how}, {what}");
            assert_eq!(refused(&world).as_str(), *outcome, "{state} {how}, {what}");
            let now = world.policy(1);
            assert_eq!((now.status, now.candidate), (before.status, before.candidate));
            assert_eq!((&now.acks, now.attempt), (&before.acks, before.attempt));
        }
    }
}

#[test]
fn an_answer_of_another_attempt_is_stale_whatever_it_names() {
    let mut world = policy_in("awaiting-ack");
    world.ask(Input::TipMoved { policy: pol(1), tip: Some(oid(0xd0)) }).unwrap();
    let next = world.regated(0xd0);
    // The old request with the new candidate in it: who signs that was shown something else.
    let mut ack = saying(|s| (s.candidate, s.parent) = (next.commit, next.parent));
    ack.tip = Some(next.parent);
    assert_eq!(give(&mut world, ack), "ack:refused");
    assert_eq!(refused(&world), AckOutcome::Stale);
    // The new request with the old candidate in it.
    let seq = world.policy(1).request_seq.unwrap();
    let mut ack = JudgedAck { asked: asked(1, seq), tip: Some(next.parent), ..good() };
    ack.line.push_str(" again");
    assert_eq!(give(&mut world, ack), "ack:refused");
    assert_eq!(refused(&world), AckOutcome::Stale);
}

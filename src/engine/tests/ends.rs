//! Branches that move and time that is over: what they lead to, and how often.

use super::lab::{World, ack, at, candidate, end_turn, oid, pol, policy_in, run, spec, unsigned};
use crate::{
    code::Code,
    domain::{
        ack::Decision,
        event::Body,
        input::{Covers, Input, RunEnd},
        policy::{Candidate, OnStale, PolicySpec, Status, Then},
        session::EndReason,
    },
    limits,
};

fn away(tip: u8) -> Input {
    Input::TipMoved { policy: pol(1), tip: Some(oid(tip)) }
}

fn gated(spec: PolicySpec) -> World {
    let mut world = World::new();
    world.report(1, end_turn(EndReason::Completed));
    world.attach(1, spec, Covers::LastAndNext);
    world
}

fn commit(change: impl FnOnce(&mut PolicySpec)) -> PolicySpec {
    let mut spec = spec(Then::Commit, &[1]);
    change(&mut spec);
    spec
}

fn reason(world: &World) -> Option<&str> {
    world.policy(1).reason.as_deref()
}

#[test]
fn a_branch_that_is_where_it_was_changes_nothing() {
    for state in ["signing", "awaiting-ack", "committing"] {
        let mut world = policy_in(state);
        let tip = Some(candidate().parent);
        assert_eq!(world.answer(Input::TipMoved { policy: pol(1), tip }), "terminal", "{state}");
    }
}

#[test]
fn a_moved_branch_says_where_it_is() {
    for (tip, at) in [(Some(oid(0xee)), format!("at {}", oid(0xee))), (None, "gone".to_owned())] {
        let mut world = policy_in("awaiting-ack");
        world.ask(Input::TipMoved { policy: pol(1), tip }).unwrap();
        let Body::GatingStarted(event) = &world.log.last().unwrap().event.body else { panic!() };
        let because = format!("refs/heads/main is {at}, not at {}", candidate().parent);
        assert_eq!((event.attempt, event.because.as_ref()), (2, Some(&because)));
    }
}

#[test]
fn who_asked_for_it_is_blocked_instead() {
    for (state, ack_it) in [("awaiting-ack", false), ("committing", true)] {
        let mut world = gated(commit(|spec| spec.on_stale = OnStale::Block));
        world.gates(1, RunEnd::Ready(candidate()));
        if ack_it {
            let mut yes = ack(1, Decision::Approve);
            let Input::AckArrived { ack, .. } = &mut yes else { panic!() };
            ack.asked.as_mut().unwrap().seq = world.policy(1).request_seq.unwrap();
            world.ask(yes).unwrap();
        }
        assert_eq!(world.policy(1).status.as_str(), state);
        assert_eq!(world.answer(away(0xee)), "policy:failed", "{state}");
        assert_eq!(reason(&world), Some("stale-candidate"), "{state}");
    }
}

#[test]
fn while_people_are_asked_it_is_gated_again_as_often_as_the_branch_moves() {
    let mut world = policy_in("awaiting-ack");
    for n in 0..10 {
        assert_eq!(world.answer(away(0xd0 + n)), "policy:gating", "{n}");
        let next = world.regated(0xd0 + n);
        let policy = world.policy(1);
        assert_eq!((policy.status, policy.candidate), (Status::AwaitingAck, Some(next)));
        assert_eq!((policy.attempt, policy.regates), (u32::from(n) + 2, 0));
    }
}

#[test]
fn by_itself_it_is_gated_again_five_times() {
    let mut landing = gated(commit(|s| s.commit.as_mut().unwrap().require_human_ack = false));
    landing.gates(1, RunEnd::Ready(candidate()));
    let mut running = gated(commit(|_| {}));
    for n in 0..limits::REGATES_MAX {
        let tip = 0xd0 + u8::try_from(n).unwrap();
        assert_eq!(landing.policy(1).status, Status::Committing);
        assert_eq!(landing.answer(away(tip)), "policy:gating", "{n}");
        landing.regated(tip);
        assert_eq!(running.answer(moved(n + 1)), "policy:gating", "{n}");
    }
    assert_eq!(landing.answer(away(0xee)), "policy:failed");
    assert_eq!(running.answer(moved(limits::REGATES_MAX + 1)), "policy:failed");
    for world in [landing, running] {
        assert_eq!(reason(&world), Some("stale-candidate"));
        let because = world.policy(1).because.clone().unwrap();
        assert!(because.ends_with("; it was gated again 5 times"), "{because}");
    }
}

fn moved(attempt: u32) -> Input {
    let run = run(RunEnd::Moved { because: "it moved".into() });
    Input::GatesEnded { policy: pol(1), attempt, run }
}

#[test]
fn a_branch_that_moved_under_its_gates_blocks_who_asked_for_it() {
    let mut world = gated(commit(|spec| spec.on_stale = OnStale::Block));
    assert_eq!(world.answer(moved(1)), "policy:failed");
    assert_eq!(
        (reason(&world), world.policy(1).because.as_deref()),
        (Some("stale-candidate"), Some("it moved"))
    );
}

#[test]
fn an_approval_is_spent_when_the_landing_finds_the_branch_elsewhere() {
    let mut world = policy_in("committing");
    let line = world.policy(1).acks[0].line.clone();
    world.ask(away(0xd0)).unwrap();
    assert!(world.policy(1).acks.is_empty() && world.policy(1).knows(&line));
    world.regated(0xd0);
    assert_eq!(world.policy(1).status, Status::AwaitingAck, "asked again");
}

fn ending() -> PolicySpec {
    commit(|spec| spec.expires = Some(at(100)))
}

#[test]
fn before_its_time_nothing_ends() {
    let mut world = gated(ending());
    world.now = Some(at(100).plus_ms(-1));
    assert_eq!(world.answer(Input::TimeUp { policy: pol(1) }), "terminal");
    assert_eq!(world.gates(1, RunEnd::Ready(candidate())), "policy:passed+policy:commit-ready");
}

#[test]
fn gates_that_end_too_late_say_nothing() {
    for end in [
        RunEnd::Ready(candidate()),
        RunEnd::NoChange,
        RunEnd::Red { code: Code::GateRed, because: None },
        RunEnd::Moved { because: "it moved".into() },
    ] {
        let mut world = gated(ending());
        world.now = Some(at(100));
        assert_eq!(world.gates(1, end.clone()), "policy:failed", "{end:?}");
        assert_eq!(reason(&world), Some("expired"), "{end:?}");
        assert_eq!(
            world.policy(1).because.as_deref(),
            Some("its time was over at 2023-11-14T22:15:00.000Z")
        );
        assert_eq!(world.policy(1).results.len(), 1, "what was run is kept");
    }
    // The clock of the gates said so, whatever the other one says.
    let mut world = gated(ending());
    assert_eq!(world.gates(1, RunEnd::OutOfTime), "policy:failed");
    assert_eq!(reason(&world), Some("expired"));
}

#[test]
fn a_turn_that_ends_too_late_is_not_gated() {
    let mut world = World::new();
    world.attach(1, ending(), Covers::LastAndNext);
    world.now = Some(at(100));
    assert_eq!(world.report(1, end_turn(EndReason::Completed)), "session:turn-end+policy:failed");
    assert_eq!(reason(&world), Some("expired"));
}

#[test]
fn an_answer_that_comes_too_late_is_expired_and_so_is_the_policy() {
    let mut world = gated(ending());
    world.gates(1, RunEnd::Ready(candidate()));
    let mut yes = ack(1, Decision::Approve);
    let Input::AckArrived { ack, .. } = &mut yes else { panic!() };
    ack.asked.as_mut().unwrap().seq = world.policy(1).request_seq.unwrap();
    world.now = Some(at(100));
    assert_eq!(world.answer(yes), "ack:refused+policy:failed");
    let refused = world.log.iter().rev().nth(1).unwrap();
    let Body::AckRefused(event) = &refused.event.body else { panic!() };
    assert_eq!(event.because, "the policy expired at 2023-11-14T22:15:00.000Z");
    assert_eq!(reason(&world), Some("expired"));
}

/// What has landed has landed, however late it is told.
#[test]
fn a_landing_that_is_told_late_is_done() {
    let mut world = policy_in("committing");
    world.state.policies.get_mut(&pol(1)).unwrap().spec.expires = Some(at(1));
    assert_eq!(world.answer(Input::BranchMoved { policy: pol(1) }), "policy:committed");
}

#[test]
fn what_waits_to_be_signed_is_a_candidate_once_it_is() {
    let signed =
        |waiting| Input::CommitSigned { policy: pol(1), unsigned: waiting, candidate: candidate() };
    let waiting = unsigned().candidate.commit;
    let mut world = policy_in("signing");
    assert_eq!(world.answer(signed(oid(0xee))), "terminal", "another commit");
    let elsewhere = Candidate { tree: oid(0xee), ..candidate() };
    let ask = Input::CommitSigned { policy: pol(1), unsigned: waiting, candidate: elsewhere };
    assert_eq!(world.answer(ask), "terminal", "another tree");
    assert_eq!(world.answer(signed(waiting)), "policy:commit-ready");
    let policy = world.policy(1);
    assert_eq!((policy.status, policy.candidate), (Status::AwaitingAck, Some(candidate())));
    assert_eq!((&policy.reason, &policy.because, policy.unsigned), (&None, &None, None));
    assert_eq!(world.answer(signed(waiting)), "terminal", "twice");
}

#[test]
fn without_an_ack_it_lands_once_it_is_signed() {
    let mut world = gated(commit(|s| s.commit.as_mut().unwrap().require_human_ack = false));
    world.gates(1, RunEnd::Unsigned(unsigned()));
    assert_eq!(world.policy(1).status, Status::Signing);
    let unsigned = unsigned().candidate.commit;
    world.ask(Input::CommitSigned { policy: pol(1), unsigned, candidate: candidate() }).unwrap();
    assert_eq!(world.policy(1).status, Status::Committing);
}

#[test]
fn what_waits_to_be_signed_is_gated_again_when_the_branch_moved_and_ends_in_time() {
    let mut world = policy_in("signing");
    for n in 0..10 {
        assert_eq!(world.answer(away(0xd0 + n)), "policy:gating", "{n}");
        assert_eq!((world.policy(1).unsigned, reason(&world)), (None, None));
        let (policy, attempt) = (pol(1), world.policy(1).attempt);
        let run = run(RunEnd::Unsigned(unsigned()));
        world.ask(Input::GatesEnded { policy, attempt, run }).unwrap();
        assert_eq!(world.policy(1).regates, 0, "a person is asked");
    }
    let mut world = gated(commit(|spec| spec.expires = Some(at(100))));
    world.gates(1, RunEnd::Unsigned(unsigned()));
    world.now = Some(at(100));
    let unsigned = unsigned().candidate.commit;
    let late = Input::CommitSigned { policy: pol(1), unsigned, candidate: candidate() };
    assert_eq!(world.answer(late), "policy:failed");
    assert_eq!(reason(&world), Some("expired"));
}

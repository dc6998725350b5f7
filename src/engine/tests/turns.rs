//! Which turns a policy covers, and who counts as finished (spec policies: Finished, No lost turn).

use super::lab::{World, end_turn, ses, spec};
use crate::{
    domain::{
        input::{Covers, Report},
        policy::Then,
        session::{EndReason, Exit, Loose, OpenRequest},
    },
    engine::Member,
};

const GATED: &str = "policy:attached+policy:gating";
const WATCHES: &str = "policy:attached";

fn begin() -> Report {
    Report::TurnStart { turn: None }
}

fn complete() -> Report {
    end_turn(EndReason::Completed)
}

fn exit(code: i32) -> Report {
    Report::Exited { exit: Exit::Code(code) }
}

fn asks() -> Report {
    let request = OpenRequest { id: "q".into(), kind: None, text: None, options: vec![] };
    Report::AwaitingInput { requests: vec![request] }
}

fn emit(world: &mut World, policy: usize, covers: Covers) -> String {
    world.attach(policy, spec(Then::Emit, &[1]), covers)
}

#[test]
fn only_a_completed_turn_finishes() {
    for reason in EndReason::ALL {
        let mut world = World::new();
        emit(&mut world, 1, Covers::LastAndNext);
        let said = world.report(1, end_turn(reason));
        let policy = world.policy(1);
        if reason == EndReason::Completed {
            assert_eq!(said, "session:turn-end+policy:gating");
            assert!(policy.pending.is_empty() && policy.stalled_by.is_empty());
        } else {
            assert_eq!(said, "session:turn-end", "{reason:?}");
            assert_eq!(
                (&policy.pending[..], &policy.stalled_by[..]),
                (&[ses(1)][..], &[ses(1)][..])
            );
        }
    }
}

#[test]
fn a_stalled_member_goes_on() {
    let mut world = World::new();
    emit(&mut world, 1, Covers::LastAndNext);
    assert_eq!(world.policy(1).pending, [ses(1)]);
    world.report(1, end_turn(EndReason::Interrupted));
    world.report(1, begin());
    assert_eq!(world.policy(1).stalled_by, []);
    assert_eq!(world.report(1, complete()), "session:turn-end+policy:gating");
}

#[test]
fn what_goes_on_in_the_background_and_what_is_empty_is_not_finished() {
    for loose in [Loose { background: 1, empty: false }, Loose { background: 0, empty: true }] {
        let mut world = World::new();
        emit(&mut world, 1, Covers::LastAndNext);
        let reason = EndReason::Completed;
        world.report(1, Report::TurnEnd { turn: None, reason, loose });
        assert_eq!(world.policy(1).stalled_by, [ses(1)]);
        assert_eq!(world.report(1, complete()), "session:turn-end+policy:gating");
    }
}

#[test]
fn an_inferred_end_finishes_nothing() {
    let mut world = World::new();
    emit(&mut world, 1, Covers::LastAndNext);
    world.report(1, begin());
    assert_eq!(world.report(1, begin()), "session:turn-end+session:turn-start");
    assert_eq!(world.state.standing(world.policy(1)), [(ses(1), Member::AtWork)]);
}

#[test]
fn an_open_question_holds_the_gate_until_it_is_answered() {
    let mut world = World::new();
    emit(&mut world, 1, Covers::LastAndNext);
    world.report(1, begin());
    world.report(1, asks());
    assert_eq!(world.report(1, complete()), "session:turn-end");
    assert_eq!(world.policy(1).stalled_by, [ses(1)]);
    let answered = Report::InputAnswered { id: Some("q".into()) };
    assert_eq!(world.report(1, answered), "session:input-answered+policy:gating");
}

#[test]
fn an_exit_decides_for_whom_still_waits() {
    let blocked = "policy:failed";
    let rows: [(&[Report], i32, &str); 6] = [
        (&[], 0, "policy:gating"),
        (&[], 1, blocked),
        (&[end_turn(EndReason::Error)], 1, blocked),
        (&[end_turn(EndReason::Error)], 0, "policy:gating"),
        // Who dies with a question open did not finish.
        (&[complete_asking()[0].clone(), complete_asking()[1].clone()], 1, blocked),
        (&[complete_asking()[0].clone(), complete_asking()[1].clone()], 0, "policy:gating"),
    ];
    for (before, code, follows) in rows {
        let mut world = World::new();
        emit(&mut world, 1, Covers::LastAndNext);
        for said in before {
            world.report(1, said.clone());
        }
        let said = world.report(1, exit(code));
        assert_eq!(said, format!("session:exited+{follows}"), "{before:?} {code}");
        if follows == blocked {
            assert_eq!(world.policy(1).reason.as_deref(), Some("session-failed"));
        }
    }
}

/// A turn that ends with a question open.
fn complete_asking() -> [Report; 2] {
    [asks(), complete()]
}

#[test]
fn a_running_turn_that_dies_is_not_finished_even_after_a_good_one() {
    let mut world = World::new();
    world.report(1, complete());
    emit(&mut world, 1, Covers::Next);
    world.report(1, begin());
    let said = world.report(1, exit(1));
    assert_eq!(said, "session:turn-end+session:exited+policy:failed");
}

#[test]
fn attach_before_and_after_the_turn_both_work() {
    let mut before = World::new();
    assert_eq!(emit(&mut before, 1, Covers::LastAndNext), WATCHES);
    assert_eq!(before.report(1, complete()), "session:turn-end+policy:gating");

    let mut after = World::new();
    after.report(1, complete());
    assert_eq!(emit(&mut after, 1, Covers::LastAndNext), GATED);
    // Whoever else looked at that turn.
    assert_eq!(emit(&mut after, 2, Covers::LastAndNext), GATED);
}

#[test]
fn what_is_covered_depends_on_where_the_session_is() {
    // story, covers, answer, base
    let rows: [(&[Report], Covers, &str, u64); 11] = [
        (&[], Covers::LastAndNext, WATCHES, 1),
        (&[complete()], Covers::LastAndNext, GATED, 1),
        (&[complete()], Covers::Next, WATCHES, 2),
        (&[complete()], Covers::After(1), GATED, 1),
        (&[complete()], Covers::After(2), WATCHES, 2),
        (&[complete(), begin()], Covers::LastAndNext, WATCHES, 3),
        // A cursor from before a turn that ended, and another turn runs: its end decides.
        (&[complete(), begin()], Covers::After(1), WATCHES, 1),
        (&[end_turn(EndReason::Limit)], Covers::LastAndNext, WATCHES, 1),
        (&[exit(0)], Covers::LastAndNext, GATED, 1),
        (&[complete(), exit(1)], Covers::LastAndNext, GATED, 1),
        (&[complete(), exit(0)], Covers::After(2), GATED, 2),
    ];
    for (story, covers, answer, base) in rows {
        let mut world = World::new();
        for said in story {
            world.report(1, said.clone());
        }
        assert_eq!(emit(&mut world, 1, covers), answer, "{story:?} {covers:?}");
        assert_eq!(world.policy(1).spec.base, base, "{story:?} {covers:?}");
    }
}

#[test]
fn a_session_that_is_gone_and_cannot_finish_any_more_gets_no_policy() {
    let rows: [(&[Report], Covers); 6] = [
        (&[exit(1)], Covers::LastAndNext),
        (&[end_turn(EndReason::Error), exit(1)], Covers::LastAndNext),
        (&[begin(), exit(1)], Covers::LastAndNext),
        (&[exit(0)], Covers::Next),
        (&[complete(), exit(0)], Covers::Next),
        (&[complete(), exit(1)], Covers::After(2)),
    ];
    for (story, covers) in rows {
        let mut world = World::new();
        for said in story {
            world.report(1, said.clone());
        }
        assert_eq!(emit(&mut world, 1, covers), "terminal", "{story:?} {covers:?}");
        assert!(world.state.policies.is_empty());
    }
}

#[test]
fn next_turn_waits_for_a_turn_of_its_own() {
    let mut world = World::new();
    world.report(1, complete());
    emit(&mut world, 1, Covers::Next);
    assert_eq!(world.policy(1).pending, [ses(1)]);
    assert_eq!(world.policy(1).stalled_by, []);
    assert_eq!(world.report(1, complete()), "session:turn-end+policy:gating");
}

#[test]
fn a_group_is_gated_when_its_last_member_finishes() {
    let mut world = World::new();
    world.adopt(2);
    world.attach(1, spec(Then::Emit, &[1, 2]), Covers::LastAndNext);
    assert_eq!(world.report(2, complete()), "session:turn-end");
    assert_eq!(world.policy(1).pending, [ses(1)]);
    assert_eq!(world.report(1, complete()), "session:turn-end+policy:gating");
}

#[test]
fn no_turn_of_a_group_is_lost_whoever_finished_first() {
    let mut world = World::new();
    world.adopt(2);
    world.report(1, complete());
    world.report(2, complete());
    let group = || spec(Then::Emit, &[1, 2]);
    assert_eq!(world.attach(1, group(), Covers::LastAndNext), GATED);
    // One idle and finished, one at work: only the latter is waited for.
    world.report(2, begin());
    assert_eq!(world.attach(2, group(), Covers::LastAndNext), WATCHES);
    assert_eq!(world.policy(2).pending, [ses(2)]);
    assert_eq!(world.report(2, complete()), "session:turn-end+policy:gating");
}

#[test]
fn one_member_that_failed_blocks_the_group() {
    let mut world = World::new();
    world.adopt(2);
    world.attach(1, spec(Then::Emit, &[1, 2]), Covers::LastAndNext);
    assert_eq!(world.report(2, exit(1)), "session:exited+policy:failed");
    assert!(world.session(1).policies.is_empty() && world.session(2).policies.is_empty());
}

#[test]
fn every_watching_policy_of_a_session_is_gated() {
    let mut world = World::new();
    emit(&mut world, 1, Covers::LastAndNext);
    emit(&mut world, 2, Covers::LastAndNext);
    assert_eq!(world.report(1, complete()), "session:turn-end+policy:gating+policy:gating");
}

//! A policy that is attached when the one before is done.

use super::lab::{World, end_turn, pol, ses, spec};
use crate::domain::input::Report;
use crate::domain::{
    input::{Covers, GateRun, Input, RunEnd},
    policy::{NextPolicy, PolicySpec, Status, Then},
    session::{EndReason, Exit},
};

fn followed(by: usize, next_turn: bool, then: PolicySpec) -> PolicySpec {
    let next = NextPolicy { policy_id: pol(by), next_turn, spec: then };
    PolicySpec { next: Some(Box::new(next)), ..spec(Then::Emit, &[1]) }
}

fn world(next_turn: bool) -> World {
    let mut world = World::new();
    let ask = followed(2, next_turn, spec(Then::Emit, &[1]));
    world.attach(1, ask, Covers::LastAndNext);
    world.report(1, end_turn(EndReason::Completed));
    world
}

#[test]
fn what_follows_judges_the_same_turn() {
    let mut world = world(false);
    assert_eq!(world.gates(1, RunEnd::Green), "policy:passed+policy:attached+policy:gating");
    assert_eq!(world.policy(1).followed_by(), Some(&pol(2)));
    assert_eq!(world.session(1).policies, [pol(2)]);
    assert_eq!(world.gates(2, RunEnd::Green), "policy:passed");
}

#[test]
fn what_follows_waits_for_a_further_turn_where_that_is_asked() {
    let mut world = world(true);
    assert_eq!(world.gates(1, RunEnd::Green), "policy:passed+policy:attached");
    assert_eq!(world.policy(2).status, Status::Watching);
    assert_eq!(world.policy(2).pending, [ses(1)]);
    assert_eq!(world.report(1, end_turn(EndReason::Completed)), "session:turn-end+policy:gating");
}

#[test]
fn nothing_follows_what_is_red_or_cancelled() {
    let mut world = world(false);
    let red = RunEnd::Red { code: crate::code::Code::GateRed, because: None };
    assert_eq!(world.gates(1, red), "policy:failed");
    assert_eq!(world.policy(1).followed_by(), None);
    let mut world = self::world(false);
    let cancelled = Input::CancelAsked { policy: pol(1), because: None };
    assert_eq!(world.answer(cancelled), "policy:cancelled");
    assert_eq!(world.policy(1).followed_by(), None);
    assert!(world.session(1).policies.is_empty());
}

#[test]
fn what_a_session_that_is_over_cannot_finish_any_more_is_blocked_by_name() {
    for (next_turn, told) in [
        (false, "policy:passed+policy:attached+policy:gating"),
        (true, "policy:passed+policy:attached+policy:failed"),
    ] {
        let mut world = world(next_turn);
        world.report(1, Report::Exited { exit: Exit::Code(0) });
        assert_eq!(world.gates(1, RunEnd::Green), told, "{next_turn}");
    }
}

#[test]
fn a_row_is_attached_one_by_one() {
    let mut world = World::new();
    let ask = followed(2, false, followed(3, false, spec(Then::Emit, &[1])));
    world.attach(1, ask, Covers::LastAndNext);
    world.report(1, end_turn(EndReason::Completed));
    for n in [1, 2] {
        let told = world.gates(n, RunEnd::Green);
        assert_eq!(told, "policy:passed+policy:attached+policy:gating", "{n}");
    }
    assert_eq!(world.gates(3, RunEnd::Green), "policy:passed");
    // What was told before is told of no more.
    let (results, voided, noted_on, end) = (vec![], 0, None, RunEnd::Green);
    let late = GateRun { results, voided, noted_on, end };
    let again = Input::GatesEnded { policy: pol(1), attempt: 1, run: late };
    assert_eq!(world.answer(again), "terminal");
}

//! What the world is asked to do. That every step asks only for what is due is asserted in `lab` for every
//! step of every test.

use super::lab::{World, ack, end_turn, oid, pol, policy_in, spec};
use crate::{
    domain::{
        ack::Decision,
        event::{Body, Entity, Event, PolicyCancelled, PolicyFailed},
        input::{Covers, GateRun, Input, RunEnd},
        policy::Then,
        session::EndReason,
    },
    engine::{Effect, Recovery, due, gate_key},
};

fn words(effects: &[Effect]) -> String {
    let word = |e: &Effect| match e {
        Effect::RunGates { attempt, .. } => format!("run {attempt}"),
        Effect::KillGates { attempt, .. } => format!("kill {attempt}"),
        Effect::NoteGates { .. } => "note-gates".to_owned(),
        Effect::Sign { attempt, .. } => format!("sign {attempt}"),
        Effect::Land { .. } => "land".to_owned(),
        Effect::NoteAcks { .. } => "note-acks".to_owned(),
    };
    effects.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_due_in_every_state() {
    let rows = [
        ("watching", ""),
        ("gating", "run 1"),
        ("signing", "sign 1"),
        ("awaiting-ack", "note-gates"),
        ("committing", "note-gates note-acks land"),
        ("done", "note-gates note-acks"),
        ("cancelled", "note-gates note-acks"),
        ("blocked", ""),
    ];
    for (state, effects) in rows {
        assert_eq!(words(&due(policy_in(state).policy(1))), effects, "{state}");
    }
}

#[test]
fn only_lines_that_have_a_commit_are_noted() {
    for (noted_on, effects) in [(None, ""), (Some(oid(7)), "note-gates")] {
        let mut world = World::new();
        world.report(1, end_turn(EndReason::Completed));
        world.attach(1, spec(Then::Emit, &[1]), Covers::LastAndNext);
        let run = GateRun { results: vec![], voided: 0, noted_on, end: RunEnd::Green };
        world.ask(Input::GatesEnded { policy: pol(1), attempt: 1, run }).unwrap();
        assert_eq!(words(&due(world.policy(1))), effects);
    }
}

#[test]
fn a_blocked_candidate_keeps_its_receipt_and_does_not_land() {
    let mut world = policy_in("committing");
    let because = "it moved".to_owned();
    let code = crate::code::Code::StaleCandidate;
    world.ask(Input::LandingImpossible { policy: pol(1), code, because }).unwrap();
    assert_eq!(words(&due(world.policy(1))), "note-gates note-acks");
}

#[test]
fn cancelling_kills_a_running_gate_and_nothing_else() {
    for (state, effects) in [("watching", ""), ("gating", "kill 1"), ("awaiting-ack", "note-gates")]
    {
        let (subject, sessions) = (Entity::Policy(pol(1)), vec![]);
        let body: Body = PolicyCancelled { because: None }.into();
        let stepped = policy_in(state).force(Event { subject, sessions, body }).unwrap();
        assert_eq!(words(&stepped.effects), effects, "{state}");
    }
}

#[test]
fn a_time_that_is_over_kills_a_running_gate_and_a_red_one_needs_no_killing() {
    for (reason, effects) in [("expired", "kill 1"), ("gate-red", "")] {
        let (subject, sessions) = (Entity::Policy(pol(1)), vec![]);
        let (reason, results) = (reason.to_owned(), None);
        let body: Body =
            PolicyFailed { reason, because: None, results, voided: 0, noted_on: None }.into();
        let stepped = policy_in("gating").force(Event { subject, sessions, body }).unwrap();
        assert_eq!(words(&stepped.effects), effects);
    }
}

#[test]
fn a_green_run_is_not_run_again_before_its_candidate() {
    let mut world = policy_in("gating");
    world.state.policies.get_mut(&pol(1)).unwrap().green = true;
    assert_eq!(words(&due(world.policy(1))), "");
}

#[test]
fn an_approval_asks_to_land() {
    let mut world = policy_in("awaiting-ack");
    world.ask(ack(1, Decision::Approve)).unwrap();
    assert!(due(world.policy(1)).contains(&Effect::Land { policy: pol(1) }));
}

#[test]
fn a_gate_run_is_keyed_and_the_rest_is_repeated() {
    let policy = pol(1);
    let run = Effect::RunGates { policy: policy.clone(), attempt: 3 };
    assert_eq!(run.recovery(), Recovery::Keyed);
    assert_eq!(gate_key(run.policy(), 3), format!("gate.{policy}.3"));
    for effect in [
        Effect::KillGates { policy: policy.clone(), attempt: 3 },
        Effect::NoteGates { policy: policy.clone() },
        Effect::Land { policy: policy.clone() },
        Effect::NoteAcks { policy: policy.clone() },
    ] {
        assert_eq!((effect.recovery(), effect.policy()), (Recovery::Repeat, &policy));
    }
}

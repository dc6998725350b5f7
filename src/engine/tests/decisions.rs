//! Every state against every input: the events it leads to, or the code it is refused with.

use super::lab::{
    World, ack, at, candidate, end_turn, oid, pol, policy_in, run, ses, spec, started, unsigned,
};
use crate::{
    code::Code,
    domain::{
        ack::Decision,
        event::SessionStarted,
        input::{Covers, Input, Report, RunEnd},
        policy::{PolicySpec, Status, Then},
        session::{EndReason, Exit, OpenRequest},
    },
};

const POLICY: &str = "
    state         input        leads to
    unknown       gates        no-such-policy
    unknown       ack          no-such-policy
    unknown       moved        no-such-policy
    unknown       impossible   no-such-policy
    unknown       away         no-such-policy
    unknown       late         no-such-policy
    unknown       cancel       no-such-policy
    unknown       dismiss      no-such-policy
    unknown       signed       no-such-policy
    watching      gates        terminal
    watching      ack          not-awaiting
    watching      moved        terminal
    watching      impossible   terminal
    watching      away         terminal
    watching      late         policy:failed
    watching      cancel       policy:cancelled
    watching      dismiss      not-blocked
    watching      signed       terminal
    gating        gates        policy:passed+policy:commit-ready
    gating        ack          not-awaiting
    gating        moved        terminal
    gating        impossible   terminal
    gating        away         terminal
    gating        late         policy:failed
    gating        cancel       policy:cancelled
    gating        dismiss      not-blocked
    gating        signed       terminal
    signing       gates        terminal
    signing       ack          not-awaiting
    signing       moved        terminal
    signing       impossible   terminal
    signing       away         policy:gating
    signing       late         policy:failed
    signing       cancel       policy:cancelled
    signing       signed       policy:commit-ready
    signing       dismiss      not-blocked
    awaiting-ack  gates        terminal
    awaiting-ack  ack          policy:acked
    awaiting-ack  moved        terminal
    awaiting-ack  impossible   policy:failed
    awaiting-ack  away         policy:gating
    awaiting-ack  late         policy:failed
    awaiting-ack  cancel       policy:cancelled
    awaiting-ack  dismiss      not-blocked
    awaiting-ack  signed       terminal
    committing    gates        terminal
    committing    ack          not-awaiting
    committing    moved        policy:committed
    committing    impossible   policy:failed
    committing    away         policy:gating
    committing    late         policy:failed
    committing    cancel       committing
    committing    dismiss      not-blocked
    committing    signed       terminal
    done          gates        terminal
    done          ack          terminal
    done          moved        terminal
    done          impossible   terminal
    done          away         terminal
    done          late         terminal
    done          cancel       terminal
    done          dismiss      terminal
    done          signed       terminal
    blocked       gates        terminal
    blocked       ack          terminal
    blocked       moved        terminal
    blocked       impossible   terminal
    blocked       away         terminal
    blocked       late         terminal
    blocked       cancel       terminal
    blocked       dismiss      policy:dismissed
    blocked       signed       terminal
    cancelled     gates        terminal
    cancelled     ack          terminal
    cancelled     moved        terminal
    cancelled     impossible   terminal
    cancelled     away         terminal
    cancelled     late         terminal
    cancelled     cancel       terminal
    cancelled     dismiss      terminal
    cancelled     signed       terminal
    unknown       no-slot      no-such-policy
    unknown       slot-free    no-such-policy
    watching      no-slot      terminal
    watching      slot-free    terminal
    gating        no-slot      policy:queued
    gating        slot-free    terminal
    signing       no-slot      terminal
    signing       slot-free    terminal
    awaiting-ack  no-slot      terminal
    awaiting-ack  slot-free    terminal
    committing    no-slot      terminal
    committing    slot-free    terminal
    done          no-slot      terminal
    done          slot-free    terminal
    blocked       no-slot      terminal
    blocked       slot-free    terminal
    cancelled     no-slot      terminal
    cancelled     slot-free    terminal
    queued        gates        terminal
    queued        ack          not-awaiting
    queued        moved        terminal
    queued        impossible   terminal
    queued        away         terminal
    queued        late         policy:failed
    queued        cancel       policy:cancelled
    queued        dismiss      not-blocked
    queued        signed       terminal
    queued        no-slot      terminal
    queued        slot-free    policy:gating
    nudging       gates        terminal
    nudging       ack          not-awaiting
    nudging       moved        terminal
    nudging       impossible   terminal
    nudging       away         terminal
    nudging       late         policy:failed+session:exited
    nudging       cancel       policy:cancelled+session:exited
    nudging       dismiss      not-blocked
    nudging       signed       terminal
    nudging       no-slot      terminal
    nudging       slot-free    terminal
";

const SESSION: &str = "
    state    input           leads to
    unknown  turn-start      no-such-session
    unknown  turn-end        no-such-session
    unknown  awaiting-input  no-such-session
    unknown  input-answered  no-such-session
    unknown  exited          no-such-session
    unknown  command-done    no-such-session
    unknown  attach          no-such-session
    none     turn-start      session:turn-start
    none     turn-end        session:turn-end
    none     awaiting-input  session:awaiting-input
    none     input-answered  no-such-request
    none     exited          session:exited
    none     command-done    session:command-done
    none     attach          policy:attached
    running  turn-start      session:turn-end+session:turn-start
    running  turn-end        session:turn-end
    running  awaiting-input  session:awaiting-input
    running  input-answered  no-such-request
    running  exited          session:turn-end+session:exited
    running  command-done    session:command-done
    running  attach          policy:attached
    ended    turn-start      session:turn-start
    ended    turn-end        session:turn-end
    ended    awaiting-input  session:awaiting-input
    ended    input-answered  no-such-request
    ended    exited          session:exited
    ended    command-done    session:command-done
    ended    attach          policy:attached+policy:gating
    asking   turn-start      session:turn-start
    asking   turn-end        session:turn-end
    asking   awaiting-input  session:awaiting-input
    asking   input-answered  session:input-answered
    asking   exited          session:exited
    asking   command-done    session:command-done
    asking   attach          policy:attached
    failed   turn-start      terminal
    failed   turn-end        terminal
    failed   awaiting-input  terminal
    failed   input-answered  terminal
    failed   exited          terminal
    failed   command-done    terminal
    failed   attach          terminal
    gone     turn-start      terminal
    gone     turn-end        terminal
    gone     awaiting-input  terminal
    gone     input-answered  terminal
    gone     exited          terminal
    gone     command-done    terminal
    gone     attach          policy:attached+policy:gating
";

fn rows(table: &'static str) -> Vec<[&'static str; 3]> {
    let lines = table.lines().filter(|l| !l.trim().is_empty()).skip(1);
    lines
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.try_into().unwrap()
        })
        .collect()
}

fn policy_input(word: &str) -> Input {
    let policy = pol(1);
    match word {
        "gates" => Input::GatesEnded { policy, attempt: 1, run: run(RunEnd::Ready(candidate())) },
        "ack" => ack(1, Decision::Approve),
        "moved" => Input::BranchMoved { policy },
        "impossible" => {
            let because = "it moved".to_owned();
            Input::LandingImpossible { policy, code: Code::StaleCandidate, because }
        }
        "away" => Input::TipMoved { policy, tip: Some(oid(0xee)) },
        "signed" => {
            let unsigned = unsigned().candidate.commit;
            Input::CommitSigned { policy, unsigned, candidate: candidate() }
        }
        "no-slot" => Input::NoSlot { policy, attempt: 1 },
        "slot-free" => Input::SlotFree { policy },
        "late" => Input::TimeUp { policy },
        "cancel" => Input::CancelAsked { policy, because: None },
        "dismiss" => Input::DismissAsked { policy, because: None },
        other => panic!("no input {other}"),
    }
}

fn session_input(word: &str) -> Input {
    let report = match word {
        "attach" => {
            let (policy, spec) = (pol(9), spec(Then::Emit, &[1]));
            return Input::PolicyAsked { policy, spec, covers: Covers::LastAndNext };
        }
        "turn-start" => Report::TurnStart { turn: None },
        "turn-end" => end_turn(EndReason::Completed),
        "awaiting-input" => question("q"),
        "input-answered" => Report::InputAnswered { id: None },
        "exited" => Report::Exited { exit: Exit::Code(1) },
        "command-done" => Report::CommandDone { argv: vec!["ls".into()], code: Some(0) },
        other => panic!("no report {other}"),
    };
    Input::Reported { session: ses(1), report, key: None }
}

fn question(id: &str) -> Report {
    let request = OpenRequest { id: id.into(), kind: None, text: None, options: vec![] };
    Report::AwaitingInput { requests: vec![request] }
}

fn session_in(state: &str) -> World {
    let mut world = World::default();
    if state == "unknown" {
        return world;
    }
    world.adopt(1);
    let said = match state {
        "none" => vec![],
        "running" => vec![Report::TurnStart { turn: None }],
        "ended" => vec![end_turn(EndReason::Completed)],
        "asking" => vec![end_turn(EndReason::Completed), question("q")],
        "failed" => vec![end_turn(EndReason::Error), Report::Exited { exit: Exit::Code(1) }],
        "gone" => vec![Report::Exited { exit: Exit::Code(0) }],
        other => panic!("no state {other}"),
    };
    for report in said {
        world.report(1, report);
    }
    world
}

#[test]
fn every_policy_state_against_every_input() {
    let rows = rows(POLICY);
    assert_eq!(rows.len(), (Status::ALL.len() + 1) * 11);
    for [state, word, expected] in rows {
        let mut world = policy_in(state);
        if word == "late" {
            // What every state knows the same of: it was to end by now.
            if let Some(policy) = world.state.policies.get_mut(&pol(1)) {
                policy.spec.expires = Some(at(60));
            }
        }
        let before = world.state.clone();
        assert_eq!(world.answer(policy_input(word)), expected, "{state} {word}");
        assert_eq!(world.state == before, !expected.contains(':'), "{state} {word}");
    }
}

#[test]
fn every_session_state_against_every_input() {
    let rows = rows(SESSION);
    assert_eq!(rows.len(), 7 * 7);
    for [state, word, expected] in rows {
        let mut world = session_in(state);
        let before = world.state.clone();
        assert_eq!(world.answer(session_input(word)), expected, "{state} {word}");
        assert_eq!(world.state == before, !expected.contains(':'), "{state} {word}");
    }
}

#[test]
fn a_refusal_names_whom_it_concerns_and_why() {
    let now = crate::engine::Now { at: super::lab::at(0), next_seq: 1 };
    let input = Input::CancelAsked { policy: pol(1), because: None };
    let refusal = crate::engine::decide(&policy_in("committing").state, input, now).unwrap_err();
    let said = format!("{}: it was approved and is being landed", pol(1));
    assert_eq!((refusal.code, refusal.to_string()), (Code::Committing, said));
}

#[test]
fn what_is_dismissed_stays_blocked_and_is_dismissed_once() {
    let mut world = policy_in("blocked");
    let dismiss = || Input::DismissAsked { policy: pol(1), because: Some("seen".into()) };
    world.ask(dismiss()).unwrap();
    let dismissed = world.state.policies[&pol(1)].clone();
    assert_eq!((dismissed.status, dismissed.dismissed), (Status::Blocked, true));
    let now = crate::engine::Now { at: at(70), next_seq: world.last_seq() + 1 };
    let again = crate::engine::decide(&world.state, dismiss(), now);
    assert_eq!(again, Ok(crate::engine::Decision::Already(world.last_seq())));
}

#[test]
fn an_id_is_used_once() {
    let mut world = policy_in("watching");
    let again = Input::SessionAdopted { session: ses(1), started: started() };
    assert_eq!(world.answer(again), "internal-error");
    let spec = spec(Then::Emit, &[1]);
    assert_eq!(world.attach(1, spec, Covers::Next), "internal-error");
}

#[test]
fn commit_is_a_session_a_turn_and_a_policy_at_once() {
    let mut world = World::default();
    let asked = |spec: PolicySpec| Input::CommitAsked {
        session: ses(1),
        started: SessionStarted { own: true, ..started() },
        policy: pol(1),
        spec,
    };
    let batch = "session:started+session:turn-end+policy:attached+policy:gating";
    assert_eq!(world.answer(asked(spec(Then::Commit, &[1]))), batch);
    world.gates(1, RunEnd::Ready(candidate()));
    assert!(!world.session(1).is_exited());
    world.ask(ack(1, Decision::Approve)).unwrap();
    assert!(!world.session(1).is_exited());
    world.ask(Input::BranchMoved { policy: pol(1) }).unwrap();
    let session = world.session(1);
    assert!(session.is_exited() && session.policies.is_empty());
    assert_eq!(session.exit_seq, world.last_seq());
    assert_eq!(world.report(1, Report::TurnStart { turn: None }), "terminal");
}

#[test]
fn a_session_of_its_own_keeps_the_exit_it_reported() {
    let mut world = World::default();
    let started = SessionStarted { own: true, ..started() };
    let spec = spec(Then::Commit, &[1]);
    world.ask(Input::CommitAsked { session: ses(1), started, policy: pol(1), spec }).unwrap();
    world.report(1, Report::Exited { exit: Exit::Code(3) });
    let told = world.session(1).clone();
    world.ask(Input::CancelAsked { policy: pol(1), because: None }).unwrap();
    assert_eq!(world.session(1).process, told.process);
    assert_eq!(world.session(1).exit_seq, told.exit_seq);
}

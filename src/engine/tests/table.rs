//! Every state against every kind of event. What a table does not list cannot happen.

use super::lab::{
    BRANCH, World, candidate, end_turn, oid, pol, policy_in, result, ses, spec, started, unsigned,
};
use crate::{
    domain::{
        ack::{AckOutcome, Decision},
        event::{
            AckRefused, Body, CommandDone, CommitReady, Committed, Entity, Event, GatePassed,
            GatingQueued, GatingStarted, InputAnswered, InputAwaited, Kind, Nudged, PolicyAcked,
            PolicyAdopted, PolicyAttached, PolicyCancelled, PolicyDismissed, PolicyFailed,
            Prompted, SessionExited, Stopping, TurnEnded, TurnStarted,
        },
        gate::Verdict,
        input::Report,
        policy::{AckRecord, Candidate, OnFail, Outcome, Then},
        session::{EndReason, Exit, Loose, Prompt},
    },
    engine::{Illegal, State},
};
use std::collections::BTreeMap;

const POLICY: &str = "
    unknown       policy:attached      watching
    unknown       policy:adopted       watching
    watching      policy:gating        gating
    watching      policy:failed        blocked
    watching      policy:cancelled     cancelled
    gating        policy:gating        gating
    gating        policy:queued        queued
    gating        policy:nudged        nudging
    gating        policy:passed        green
    gating        policy:failed        blocked
    gating        policy:cancelled     cancelled
    queued        policy:gating        gating
    queued        policy:failed        blocked
    queued        policy:cancelled     cancelled
    nudging       policy:failed        blocked
    nudging       policy:cancelled     cancelled
    green         policy:commit-ready  awaiting-ack
    signing       policy:gating        gating
    signing       policy:commit-ready  awaiting-ack
    signing       policy:failed        blocked
    signing       policy:cancelled     cancelled
    awaiting-ack  policy:gating        gating
    awaiting-ack  policy:acked         committing
    awaiting-ack  ack:refused          awaiting-ack
    awaiting-ack  policy:failed        blocked
    awaiting-ack  policy:cancelled     cancelled
    committing    policy:gating        gating
    committing    policy:committed     done
    committing    policy:failed        blocked
    blocked       policy:dismissed     blocked
";

const POLICY_STATES: [&str; 12] = [
    "unknown",
    "watching",
    "queued",
    "gating",
    "nudging",
    "green",
    "signing",
    "awaiting-ack",
    "committing",
    "done",
    "blocked",
    "cancelled",
];

const SESSION: &str = "
    unknown  session:started         none
    none     session:turn-start      running
    none     session:turn-end        ended
    none     session:awaiting-input  none
    none     session:input-answered  none
    none     session:command-done    none
    none     session:exited          exited
    running  session:turn-end        ended
    running  session:awaiting-input  running
    running  session:input-answered  running
    running  session:command-done    running
    running  session:exited          exited
    ended    session:turn-start      running
    ended    session:turn-end        ended
    ended    session:awaiting-input  ended
    ended    session:input-answered  ended
    ended    session:command-done    ended
    ended    session:exited          exited
";

/// The same of an agent that we start: what it is told waits, and it can be stopped.
const LAUNCHED: &str = "
    none     session:turn-start      running
    none     session:turn-end        ended
    none     session:awaiting-input  none
    none     session:input-answered  none
    none     session:prompted        none
    none     session:stopping        none
    none     session:command-done    none
    none     session:exited          exited
    running  session:turn-end        ended
    running  session:awaiting-input  running
    running  session:input-answered  running
    running  session:prompted        running
    running  session:stopping        running
    running  session:command-done    running
    running  session:exited          exited
    ended    session:turn-start      running
    ended    session:turn-end        ended
    ended    session:awaiting-input  ended
    ended    session:input-answered  ended
    ended    session:prompted        ended
    ended    session:stopping        ended
    ended    session:command-done    ended
    ended    session:exited          exited
";

const SESSION_STATES: [&str; 5] = ["unknown", "none", "running", "ended", "exited"];

fn rows(table: &'static str) -> BTreeMap<(&'static str, &'static str), &'static str> {
    let mut rows = BTreeMap::new();
    for line in table.lines().filter(|l| !l.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [from, kind, to] = words[..] else { panic!("three words: {line}") };
        assert!(Kind::parse(kind).is_some(), "{kind}");
        assert_eq!(rows.insert((from, kind), to), None, "{line}");
    }
    rows
}

/// An event of each kind that fits the first turn, this gate run and the candidate of `lab`.
fn body(kind: Kind, turn: u64, attempt: u32) -> Body {
    let key = None;
    match kind {
        Kind::SessionStarted => started().into(),
        Kind::TurnStarted => TurnStarted { turn, prompt: None, key }.into(),
        Kind::TurnEnded => {
            let (reason, loose) = (EndReason::Completed, Loose::default());
            TurnEnded { turn, reason, inferred: false, awaiting_input: false, loose, key }.into()
        }
        Kind::InputAwaited => InputAwaited { requests: vec![], key }.into(),
        Kind::InputAnswered => InputAnswered { id: None, key }.into(),
        Kind::Prompted => {
            let prompt = Prompt::Text("go on".into());
            Prompted { prompt, interrupt: false, key }.into()
        }
        Kind::Stopping => Stopping { because: None }.into(),
        Kind::SessionExited => {
            let (exit, inferred, because) = (Exit::Code(0), false, None);
            SessionExited { exit, inferred, because, key }.into()
        }
        Kind::CommandDone => CommandDone { argv: vec![], code: None, key }.into(),
        Kind::PolicyAttached => PolicyAttached { spec: spec(Then::Commit, &[1]) }.into(),
        Kind::PolicyAdopted => adopted().into(),
        Kind::GatingStarted => gating(attempt).into(),
        Kind::GatingQueued => GatingQueued { attempt }.into(),
        Kind::Nudged => told_of_red(attempt).into(),
        Kind::GatePassed => passed(1, None).into(),
        Kind::PolicyFailed => failed().into(),
        Kind::CommitReady => CommitReady { candidate: candidate(), ack: true }.into(),
        Kind::PolicyAcked => acked(Decision::Approve).into(),
        Kind::Committed => landed().into(),
        Kind::PolicyCancelled => PolicyCancelled { because: None }.into(),
        Kind::PolicyDismissed => PolicyDismissed { because: None }.into(),
        Kind::AckRefused => {
            let (outcome, because) = (AckOutcome::Expired, String::new());
            AckRefused { outcome, because, line: "x".into() }.into()
        }
    }
}

fn adopted() -> PolicyAdopted {
    let writer = "abcdefghij12".parse().unwrap();
    let (spec, members) = (spec(Then::Commit, &[1]), vec![with_session("none").session(1).clone()]);
    PolicyAdopted { writer, entry: oid(0xad), attempt: 0, spec, members }
}

fn gating(attempt: u32) -> GatingStarted {
    GatingStarted { attempt, because: None }
}

fn passed(attempt: u32, outcome: Option<Outcome>) -> GatePassed {
    let results = vec![result(Verdict::Pass)];
    GatePassed { attempt, results, voided: 0, outcome, noted_on: None, unsigned: None }
}

fn told_of_red(attempt: u32) -> Nudged {
    let (reason, results) = ("gate-red".to_owned(), vec![result(Verdict::Fail)]);
    let sessions = vec![ses(1)];
    Nudged { attempt, sessions, reason, because: None, results, voided: 0, noted_on: None }
}

fn failed() -> PolicyFailed {
    let reason = "gate-red".to_owned();
    PolicyFailed { reason, because: None, results: None, voided: 0, noted_on: None }
}

fn landed() -> Committed {
    Committed { commit: candidate().commit, branch: BRANCH.into() }
}

fn acked(decision: Decision) -> PolicyAcked {
    let ack = AckRecord {
        decision,
        line: "a line".into(),
        signer: "ada@example.invalid".into(),
        key: "SHA256:ada".into(),
        signers: "global".into(),
        signers_digest: String::new(),
        at: super::lab::at(1),
    };
    PolicyAcked { ack, quorum: 1 }
}

fn of_policy(body: impl Into<Body>) -> Event {
    Event { subject: Entity::Policy(pol(1)), sessions: vec![ses(1)], body: body.into() }
}

fn of_session(body: impl Into<Body>) -> Event {
    Event { subject: Entity::Session(ses(1)), sessions: vec![ses(1)], body: body.into() }
}

/// A world with policy 1 in this state; `green` is the half batch that only `step` can see.
fn with_policy(state: &str) -> World {
    if state != "green" {
        let mut world = policy_in(state);
        let retries = Some(OnFail { nudge: None, max_retries: 2, reprompt: false });
        if let Some(policy) = world.state.policies.get_mut(&pol(1)) {
            policy.spec.on_fail = retries;
        }
        return world;
    }
    let mut world = policy_in("gating");
    world.state = world.force(of_policy(passed(1, None))).unwrap().state;
    world
}

fn with_session(state: &str) -> World {
    let mut world = World::default();
    if state == "unknown" {
        return world;
    }
    world.adopt(1);
    let said = match state {
        "none" => return world,
        "running" => Report::TurnStart { turn: None },
        "ended" => end_turn(EndReason::Completed),
        "exited" => Report::Exited { exit: Exit::Code(0) },
        other => panic!("no state {other}"),
    };
    world.report(1, said);
    world
}

fn policy_word(state: &State) -> &str {
    let policy = &state.policies[&pol(1)];
    if policy.status.as_str() == "gating" && policy.green {
        "green"
    } else {
        policy.status.as_str()
    }
}

fn session_word(state: &State) -> &'static str {
    use crate::domain::session::{Process, Turn};
    let session = &state.sessions[&ses(1)];
    match (&session.process, &session.turn_state) {
        (Process::Exited(_), _) => "exited",
        (_, Turn::None) => "none",
        (_, Turn::Running) => "running",
        (_, Turn::Ended { .. }) => "ended",
    }
}

#[test]
fn every_policy_state_against_every_kind() {
    let mut rows = rows(POLICY);
    for state in POLICY_STATES {
        let world = with_policy(state);
        for kind in Kind::ALL {
            // A gate run that begins is the next one, a gate run that ends the present one.
            let present = world.state.policies.get(&pol(1)).map_or(0, |p| p.attempt);
            // One that waited for its turn is the present one.
            let next = kind == Kind::GatingStarted && state != "queued";
            let attempt = if next { present + 1 } else { present.max(1) };
            let stepped = world.force(of_policy(body(kind, 1, attempt)));
            match (rows.remove(&(state, kind.as_str())), stepped) {
                (Some(to), Ok(stepped)) => {
                    assert_eq!(policy_word(&stepped.state), to, "{state} {kind:?}");
                    assert!(stepped.touched.contains(&Entity::Policy(pol(1))), "{state} {kind:?}");
                }
                (None, Err(illegal)) => {
                    let state = if state == "green" { "gating" } else { state };
                    assert_eq!(
                        illegal,
                        Illegal { kind, subject: pol(1).to_string(), state: state.into() }
                    );
                }
                (wanted, got) => panic!("{state} {kind:?}: wanted {wanted:?}, got {got:?}"),
            }
        }
    }
    assert!(rows.is_empty(), "no such state: {rows:?}");
}

#[test]
fn every_session_state_against_every_kind() {
    check_sessions(SESSION, &SESSION_STATES, with_session);
}

#[test]
fn every_state_of_an_agent_that_we_start_against_every_kind() {
    check_sessions(LAUNCHED, &SESSION_STATES[1..], with_agent);
}

fn with_agent(state: &str) -> World {
    let mut world = World::default();
    world.launch(1, None);
    let steps: &[Kind] = match state {
        "none" => &[],
        "running" => &[Kind::TurnStarted],
        "ended" => &[Kind::TurnStarted, Kind::TurnEnded],
        "exited" => &[Kind::SessionExited],
        other => panic!("no state {other}"),
    };
    for kind in steps {
        world.state = world.force(of_session(body(*kind, 1, 1))).unwrap().state;
    }
    world
}

fn check_sessions(table: &'static str, states: &[&'static str], make: fn(&str) -> World) {
    let mut rows = rows(table);
    for state in states.iter().copied() {
        let world = make(state);
        let running = state == "running";
        for kind in Kind::ALL {
            let present = world.state.sessions.get(&ses(1)).map_or(0, |s| s.turn);
            let ends_present = running && kind == Kind::TurnEnded;
            let turn = if ends_present { present } else { present + 1 };
            let stepped = world.force(of_session(body(kind, turn, 1)));
            match (rows.remove(&(state, kind.as_str())), stepped) {
                (Some(to), Ok(stepped)) => {
                    assert_eq!(session_word(&stepped.state), to, "{state} {kind:?}");
                    assert_eq!(stepped.touched, [Entity::Session(ses(1))], "{state} {kind:?}");
                }
                (None, Err(illegal)) => {
                    assert_eq!((illegal.kind, illegal.subject), (kind, ses(1).to_string()))
                }
                (wanted, got) => panic!("{state} {kind:?}: wanted {wanted:?}, got {got:?}"),
            }
        }
    }
    assert!(rows.is_empty(), "no such state: {rows:?}");
}

#[test]
fn an_illegal_event_names_itself_and_the_state_it_met() {
    let illegal = policy_in("done").force(of_policy(failed())).unwrap_err();
    let said = format!("policy:failed cannot happen to {} while it is done", pol(1));
    assert_eq!(illegal.to_string(), said);
}

/// What else an event says decides as well.
#[test]
fn what_an_event_says_leads_on_or_is_illegal() {
    let other = Candidate { commit: oid(0xee), ..candidate() };
    let not_gated = Candidate { tree: oid(0xee), ..candidate() };
    let elsewhere = Candidate { parent: oid(0xee), ..candidate() };
    let waits = |outcome| GatePassed { unsigned: Some(unsigned()), ..passed(1, outcome) };
    let rows: [(&str, Event, &str); 29] = [
        ("watching", of_policy(gating(2)), "illegal"),
        ("watching", of_policy(gating(0)), "illegal"),
        ("gating", of_policy(gating(1)), "illegal"),
        ("gating", of_policy(gating(3)), "illegal"),
        ("green", of_policy(gating(2)), "illegal"),
        ("awaiting-ack", of_policy(gating(1)), "illegal"),
        ("committing", of_policy(gating(1)), "illegal"),
        ("committing", of_policy(gating(2)), "gating"),
        ("gating", of_policy(passed(1, Some(Outcome::NoOp))), "done"),
        ("gating", of_policy(passed(1, Some(Outcome::Passed))), "illegal"),
        ("gating", of_policy(passed(1, Some(Outcome::Committed))), "illegal"),
        ("gating", of_policy(passed(2, None)), "illegal"),
        ("green", of_policy(passed(1, Some(Outcome::NoOp))), "illegal"),
        ("gating", of_policy(waits(None)), "signing"),
        ("gating", of_policy(waits(Some(Outcome::NoOp))), "illegal"),
        ("signing", of_policy(CommitReady { candidate: candidate(), ack: false }), "illegal"),
        ("signing", of_policy(CommitReady { candidate: not_gated, ack: true }), "illegal"),
        ("signing", of_policy(CommitReady { candidate: elsewhere, ack: true }), "illegal"),
        ("signing", of_policy(CommitReady { candidate: other, ack: true }), "awaiting-ack"),
        ("green", of_policy(CommitReady { candidate: candidate(), ack: false }), "illegal"),
        ("green", of_policy(CommitReady { candidate: other, ack: true }), "awaiting-ack"),
        ("green", of_policy(failed()), "illegal"),
        ("green", of_policy(PolicyCancelled { because: None }), "illegal"),
        ("awaiting-ack", of_policy(acked(Decision::Approve)), "committing"),
        ("awaiting-ack", of_policy(acked(Decision::Reject)), "cancelled"),
        ("committing", of_policy(Committed { commit: oid(0xee), ..landed() }), "illegal"),
        (
            "committing",
            of_policy(Committed { branch: "refs/heads/x".into(), ..landed() }),
            "illegal",
        ),
        ("committing", of_policy(landed()), "done"),
        ("unknown", of_policy(PolicyAttached { spec: spec(Then::Emit, &[1]) }), "watching"),
    ];
    for (state, event, to) in rows {
        let stepped = with_policy(state).force(event.clone());
        let got = stepped.as_ref().map_or("illegal", |s| policy_word(&s.state));
        assert_eq!(got, to, "{state}: {event:?}");
    }
}

#[test]
fn turns_are_counted_without_gap_or_repeat() {
    // state, present turn, event, the one number that fits
    let rows = [
        ("none", 0, Kind::TurnStarted, 1),
        ("none", 0, Kind::TurnEnded, 1),
        ("running", 1, Kind::TurnEnded, 1),
        ("ended", 1, Kind::TurnStarted, 2),
        ("ended", 1, Kind::TurnEnded, 2),
    ];
    for (state, present, kind, fits) in rows {
        let world = with_session(state);
        assert_eq!(world.session(1).turn, present);
        for turn in 0..=present + 3 {
            let stepped = world.force(of_session(body(kind, turn, 1)));
            assert_eq!(stepped.is_ok(), turn == fits, "{state} {kind:?} {turn}");
        }
    }
}

//! `session report` told twice, told late and told wrong (decisions 20).

use super::lab::{World, end_turn, ses};
use crate::{
    domain::{
        event::{Body, TurnEnded},
        input::Report,
        session::{EndReason, Exit, Loose, OpenRequest, Process, Turn},
    },
    limits::KEYS_PER_SESSION,
};

fn start(turn: u64) -> Report {
    Report::TurnStart { turn: Some(turn) }
}

fn end(turn: u64) -> Report {
    Report::TurnEnd { turn: Some(turn), reason: EndReason::Completed, loose: Loose::default() }
}

fn asks(ids: &[&str]) -> Report {
    let request = |id: &&str| OpenRequest {
        id: (*id).into(),
        kind: Some("question".into()),
        text: None,
        options: vec![],
    };
    Report::AwaitingInput { requests: ids.iter().map(request).collect() }
}

fn open(world: &World) -> Vec<&str> {
    world.session(1).open_requests.iter().map(|r| r.id.as_str()).collect()
}

#[test]
fn the_same_key_gives_the_same_answer() {
    let mut world = World::new();
    assert_eq!(world.keyed(Report::TurnStart { turn: None }, "k"), "session:turn-start");
    let first = world.last_seq();
    world.report(1, asks(&["q"]));
    assert_eq!(world.keyed(Report::TurnStart { turn: None }, "k"), format!("already {first}"));
    // Whatever else is said with it: the key is the identity of the call.
    assert_eq!(world.keyed(end_turn(EndReason::Error), "k"), format!("already {first}"));
    assert_eq!(world.keyed(end_turn(EndReason::Error), "other"), "session:turn-end");
}

#[test]
fn a_key_names_the_reported_event_not_what_was_inferred_with_it() {
    let mut world = World::new();
    world.report(1, Report::TurnStart { turn: None });
    let exited = Report::Exited { exit: Exit::Code(0) };
    assert_eq!(world.keyed(exited.clone(), "bye"), "session:turn-end+session:exited");
    let seq = world.last_seq();
    // The answer of a call that was recorded outlives the session.
    assert_eq!(world.keyed(exited, "bye"), format!("already {seq}"));
}

#[test]
fn the_last_64_keys_are_remembered() {
    let mut world = World::new();
    let done = || Report::CommandDone { argv: vec![], code: None };
    let keys: Vec<String> = (0..=KEYS_PER_SESSION).map(|n| format!("k{n}")).collect();
    for key in &keys {
        assert_eq!(world.keyed(done(), key), "session:command-done");
    }
    assert_eq!(world.session(1).keys.len(), 64);
    assert_eq!(world.keyed(done(), "k1"), "already 3");
    assert_eq!(world.keyed(done(), "k0"), "session:command-done");
    assert_eq!(world.keyed(done(), "k1"), "session:command-done");
}

#[test]
fn a_turn_told_by_number_counts_once() {
    let rows: [(&[Report], Report, &str); 14] = [
        (&[], start(1), "session:turn-start"),
        (&[], start(2), "turn-gap"),
        (&[], start(0), "turn-over"),
        (&[], end(1), "session:turn-end"),
        (&[], end(2), "turn-gap"),
        (&[], end(0), "turn-over"),
        (&[start(1), asks(&["q"])], start(1), "already 2"),
        (&[start(1)], start(2), "session:turn-end+session:turn-start"),
        (&[start(1), end(1), asks(&["q"])], end(1), "already 3"),
        (&[start(1), end(1)], start(1), "already 2"),
        // Only its end was told: that is all there is to answer.
        (&[end(1)], start(1), "already 2"),
        // The next turn runs already.
        (&[end(1), start(2)], end(1), "already 2"),
        (&[end(1), end(2), start(3)], end(1), "turn-over"),
        (&[end(1), end(2)], start(1), "turn-over"),
    ];
    for (before, report, expected) in rows {
        let mut world = World::new();
        for said in before {
            world.report(1, said.clone());
        }
        let shown = format!("{before:?} {report:?}");
        assert_eq!(world.report(1, report), expected, "{shown}");
    }
}

#[test]
fn a_number_no_turn_can_have_is_a_gap() {
    let mut world = World::new();
    assert_eq!(world.report(1, end(u64::MAX)), "turn-gap");
    assert_eq!(world.report(1, start(u64::MAX)), "turn-gap");
}

#[test]
fn an_end_without_a_beginning_is_a_turn() {
    let mut world = World::new();
    world.report(1, end_turn(EndReason::Completed));
    world.report(1, end_turn(EndReason::Limit));
    let session = world.session(1);
    let ended =
        Turn::Ended { reason: EndReason::Limit, inferred: false, loose: Loose::default(), seq: 3 };
    assert_eq!((session.turn, &session.turn_state), (2, &ended));
}

#[test]
fn a_new_turn_and_an_exit_end_an_open_one_as_inferred() {
    for report in [Report::TurnStart { turn: None }, Report::Exited { exit: Exit::Code(0) }] {
        let mut world = World::new();
        world.report(1, start(1));
        world.report(1, report);
        let ended = TurnEnded {
            turn: 1,
            reason: EndReason::Unknown,
            inferred: true,
            awaiting_input: false,
            loose: Loose::default(),
            key: None,
        };
        assert_eq!(world.log[2].event.body, Body::TurnEnded(ended));
    }
}

#[test]
fn nothing_is_reported_of_a_session_that_is_gone() {
    for exit in [Exit::Code(0), Exit::Code(7), Exit::Signal("SIGKILL".into()), Exit::Unknown] {
        let mut world = World::new();
        world.report(1, Report::Exited { exit: exit.clone() });
        assert_eq!(world.session(1).process, Process::Exited(exit));
        for report in [start(1), end(1), asks(&["q"]), Report::InputAnswered { id: None }] {
            assert_eq!(world.report(1, report), "terminal");
        }
        assert_eq!(world.report(1, Report::Exited { exit: Exit::Unknown }), "terminal");
        assert_eq!(world.last_seq(), 2);
    }
}

#[test]
fn questions_open_and_close_by_name() {
    let mut world = World::new();
    world.report(1, asks(&["a", "b"]));
    world.report(1, asks(&["c", "a"]));
    assert_eq!(open(&world), ["b", "c", "a"]);
    let answered = |id: Option<&str>| Report::InputAnswered { id: id.map(str::to_owned) };
    assert_eq!(world.report(1, answered(Some("x"))), "no-such-request");
    assert_eq!(world.report(1, answered(Some("c"))), "session:input-answered");
    assert_eq!(open(&world), ["b", "a"]);
    assert_eq!(world.report(1, answered(None)), "session:input-answered");
    assert_eq!(world.report(1, answered(None)), "no-such-request");
    assert!(open(&world).is_empty());
}

#[test]
fn a_new_turn_closes_old_questions_its_end_does_not() {
    let mut world = World::new();
    world.report(1, asks(&["a"]));
    world.report(1, end_turn(EndReason::Completed));
    assert_eq!(open(&world), ["a"]);
    world.report(1, Report::TurnStart { turn: None });
    assert!(open(&world).is_empty());
}

#[test]
fn other_sessions_are_left_alone() {
    let mut world = World::new();
    world.adopt(2);
    let before = world.session(2).clone();
    world.report(1, start(1));
    assert_eq!(*world.session(2), before);
    assert_eq!(world.log[2].event.sessions, [ses(1)]);
}

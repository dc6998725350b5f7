//! Agents that we start: runs, prompts, red gates told, and what ends with what.

use super::lab::{World, candidate, end_turn, pol, run, ses, spec, started};
use crate::{
    code::Code,
    domain::{
        input::{AgentEnd, Covers, Input, Report, RunEnd, WhenBusy},
        policy::{OnEnd, OnFail, PolicySpec, Then},
        session::{EndReason, Exit, Process, Prompt, Turn},
    },
};

fn begin(world: &mut World, session: usize) -> String {
    world.answer(Input::TurnBegun { session: ses(session) })
}

fn prompt(world: &mut World, text: &str, when_busy: WhenBusy) -> String {
    let key = None;
    world.answer(Input::PromptAsked { session: ses(1), text: text.into(), when_busy, key })
}

fn stop(world: &mut World) -> String {
    world.answer(Input::StopAsked { session: ses(1), because: None })
}

fn red(world: &mut World) -> String {
    let attempt = world.policy(1).attempt;
    let end = RunEnd::Red { code: Code::GateRed, because: None };
    world.answer(Input::GatesEnded { policy: pol(1), attempt, run: run(end) })
}

fn green(world: &mut World) -> String {
    let attempt = world.policy(1).attempt;
    world.answer(Input::GatesEnded { policy: pol(1), attempt, run: run(RunEnd::Green) })
}

/// A policy that tells its session of red gates, twice at most, and ends it.
fn retrying() -> PolicySpec {
    let on_fail = Some(OnFail { nudge: None, max_retries: 2, reprompt: true });
    PolicySpec { on_fail, end_session: true, ..spec(Then::Emit, &[1]) }
}

fn reason(world: &World) -> EndReason {
    match world.session(1).turn_state {
        Turn::Ended { reason, .. } => reason,
        Turn::None | Turn::Running => panic!("no turn ended"),
    }
}

#[test]
fn one_run_is_one_turn_and_the_whole_session() {
    let mut world = World::default();
    assert_eq!(world.launch(1, None), "session:started");
    assert_eq!(world.session(1).process, Process::Idle);
    assert_eq!(
        world.run_of(1, Exit::Code(0)),
        "session:turn-start; session:turn-end+session:exited"
    );
    assert_eq!(reason(&world), EndReason::Completed);
    assert_eq!(begin(&mut world, 1), "terminal", "over is over");
}

#[test]
fn an_end_that_is_none_is_told_by_its_name() {
    for (exit, want) in [
        (Exit::Code(3), EndReason::Error),
        (Exit::Signal("SIGSEGV".into()), EndReason::Error),
        (Exit::NotStarted, EndReason::Error),
        (Exit::Unknown, EndReason::Unknown),
    ] {
        let mut world = World::default();
        world.launch(1, None);
        world.run_of(1, exit);
        assert_eq!(reason(&world), want);
        assert!(world.session(1).is_exited());
    }
}

#[test]
fn what_a_person_did_outweighs_the_exit_code() {
    let mut world = World::default();
    world.launch(1, None);
    begin(&mut world, 1);
    assert_eq!(stop(&mut world), "session:stopping");
    assert_eq!(stop(&mut world), "already 3", "it is on its way");
    assert_eq!(world.ended(1, Exit::Code(0)), "session:turn-end+session:exited");
    assert_eq!(reason(&world), EndReason::Cancelled);

    let mut world = World::default();
    world.launch(1, None);
    begin(&mut world, 1);
    let end = AgentEnd { exit: Exit::Code(0), inferred: false, interrupted: true, because: None };
    world.ask(Input::RunEnded { session: ses(1), turn: 1, end }).unwrap();
    assert_eq!(reason(&world), EndReason::Interrupted);
    assert!(world.session(1).is_exited());
}

#[test]
fn a_run_that_is_over_is_not_over_twice() {
    let mut world = World::default();
    world.launch(1, None);
    assert_eq!(world.ended(1, Exit::Code(0)), "terminal", "it has not begun");
    world.run_of(1, Exit::Code(0));
    assert_eq!(world.ended(1, Exit::Code(0)), "terminal");
}

#[test]
fn where_somebody_is_at_work_nobody_else_is_started() {
    let mut world = World::default();
    let refused = world.ask(Input::SessionLaunched {
        session: ses(1),
        started: started(),
        prompt: None,
        busy: vec![ses(2)],
        policy: None,
    });
    assert_eq!(refused, Err(Code::WorktreeBusy));
}

#[test]
fn prompts_wait_or_interrupt_and_are_said_once_each() {
    let mut world = World::default();
    world.launch(1, None);
    assert_eq!(prompt(&mut world, "early", WhenBusy::Refuse), "mid-turn", "its first turn is due");
    begin(&mut world, 1);
    assert_eq!(prompt(&mut world, "now", WhenBusy::Refuse), "mid-turn");
    assert_eq!(prompt(&mut world, "later", WhenBusy::Queue), "session:prompted");
    assert_eq!(prompt(&mut world, "stop it", WhenBusy::Interrupt), "session:prompted");
    assert!(world.session(1).interrupting);
    assert_eq!(world.ended(1, Exit::Signal("SIGTERM".into())), "session:turn-end");
    assert_eq!(reason(&world), EndReason::Interrupted);
    for words in ["stop it", "later"] {
        begin(&mut world, 1);
        assert_eq!(world.session(1).prompt, Some(Prompt::Text(words.into())));
        world.ended(1, Exit::Code(0));
    }
    assert!(world.session(1).is_exited(), "nothing is left to say");
    assert_eq!(prompt(&mut world, "more", WhenBusy::Queue), "terminal");
}

#[test]
fn the_same_prompt_twice_is_said_once() {
    let mut world = World::default();
    world.launch(1, None);
    let ask = || Input::PromptAsked {
        session: ses(1),
        text: "x".into(),
        when_busy: WhenBusy::Queue,
        key: Some("k".into()),
    };
    assert_eq!(world.answer(ask()), "session:prompted");
    assert_eq!(world.answer(ask()), "already 2");
    assert_eq!(world.session(1).queue.len(), 1);
}

#[test]
fn nobody_else_tells_of_the_turns_of_an_agent_that_we_start() {
    let mut world = World::default();
    world.launch(1, None);
    for report in [
        Report::TurnStart { turn: None },
        end_turn(EndReason::Completed),
        Report::Exited { exit: Exit::Code(0) },
    ] {
        assert_eq!(world.report(1, report), "session-owned");
    }
    let done = Report::CommandDone { argv: vec![], code: Some(0) };
    assert_eq!(world.report(1, done), "session:command-done");
    world.adopt(2);
    let of_two = |session| Input::StopAsked { session, because: None };
    assert_eq!(world.answer(of_two(ses(2))), "not-launched");
    let (when_busy, key) = (WhenBusy::Queue, None);
    let said = Input::PromptAsked { session: ses(2), text: "x".into(), when_busy, key };
    assert_eq!(world.answer(said), "not-promptable");
}

#[test]
fn red_gates_are_told_as_often_as_was_asked_for_and_the_next_turn_is_gated() {
    let mut world = World::default();
    assert_eq!(world.launch(1, Some(retrying())), "session:started+policy:attached");
    assert_eq!(
        world.run_of(1, Exit::Code(0)),
        "session:turn-start; session:turn-end+policy:gating",
        "it is kept: it may be told something"
    );
    for attempt in 1..=2 {
        assert_eq!(red(&mut world), "policy:nudged+session:prompted");
        assert_eq!(world.policy(1).status.as_str(), "nudging");
        begin(&mut world, 1);
        let nudge = Prompt::Nudge { policy: pol(1), attempt };
        assert_eq!(world.session(1).prompt, Some(nudge));
        assert_eq!(world.policy(1).status.as_str(), "watching");
        assert_eq!(world.policy(1).pending, [ses(1)]);
        assert_eq!(world.ended(1, Exit::Code(0)), "session:turn-end+policy:gating");
    }
    assert_eq!(red(&mut world), "policy:failed+session:stopping+session:exited");
    assert_eq!(world.policy(1).reason.as_deref(), Some("gate-red"));
}

#[test]
fn green_after_red_is_green_and_ends_the_session() {
    let mut world = World::default();
    world.launch(1, Some(retrying()));
    world.run_of(1, Exit::Code(0));
    red(&mut world);
    world.run_of(1, Exit::Code(0));
    assert_eq!(green(&mut world), "policy:passed+session:stopping+session:exited");
    assert_eq!(world.policy(1).status.as_str(), "done");
}

#[test]
fn broken_gates_are_nobodys_fault_and_not_told() {
    let mut world = World::default();
    world.launch(1, Some(retrying()));
    world.run_of(1, Exit::Code(0));
    let end = RunEnd::Broken { code: Code::GateNotRunnable, because: None };
    let ended = Input::GatesEnded { policy: pol(1), attempt: 1, run: run(end) };
    assert_eq!(world.answer(ended), "policy:failed+session:stopping+session:exited");
}

#[test]
fn who_cannot_be_told_any_more_is_not_waited_for() {
    // It fails while it works on what it was told.
    let mut world = World::default();
    world.launch(1, Some(retrying()));
    world.run_of(1, Exit::Code(0));
    red(&mut world);
    let lost = world.run_of(1, Exit::Code(1));
    assert_eq!(lost, "session:turn-start; session:turn-end+session:exited+policy:failed");
    assert_eq!(world.policy(1).reason.as_deref(), Some("session-failed"));
    // It cannot be run again.
    let mut world = World::default();
    world.launch(1, Some(retrying()));
    world.run_of(1, Exit::Code(0));
    red(&mut world);
    world.run_of(1, Exit::NotStarted);
    assert_eq!(world.policy(1).reason.as_deref(), Some("nudge-failed"));
    // It is ended before it is told.
    let mut world = World::default();
    world.launch(1, Some(retrying()));
    world.run_of(1, Exit::Code(0));
    red(&mut world);
    assert_eq!(stop(&mut world), "session:stopping+policy:failed+session:exited");
    assert_eq!(world.policy(1).reason.as_deref(), Some("nudge-failed"));
}

#[test]
fn of_a_group_those_are_told_who_can_be_and_only_they_are_waited_for() {
    let on_fail = Some(OnFail { nudge: None, max_retries: 1, reprompt: true });
    let mut world = World::default();
    world.launch(1, None);
    world.adopt(2);
    world.attach(1, PolicySpec { on_fail, ..spec(Then::Emit, &[1, 2]) }, Covers::LastAndNext);
    world.run_of(1, Exit::Code(0));
    assert_eq!(world.report(2, end_turn(EndReason::Completed)), "session:turn-end+policy:gating");
    assert_eq!(red(&mut world), "policy:nudged+session:prompted");
    assert_eq!(world.policy(1).nudged, [ses(1)]);
    assert_eq!(
        world.run_of(1, Exit::Code(0)),
        "session:turn-start; session:turn-end+policy:gating"
    );
}

#[test]
fn every_end_counts_where_that_was_asked_for_and_a_person_is_asked_then() {
    for (exit, kind) in [(Exit::Code(3), "policy:gating"), (Exit::NotStarted, "policy:failed")] {
        let mut commits = PolicySpec { on_end: OnEnd::Gate, ..spec(Then::Commit, &[1]) };
        commits.commit.as_mut().unwrap().require_human_ack = false;
        let mut world = World::default();
        world.launch(1, Some(commits));
        assert!(world.run_of(1, exit).ends_with(kind), "{kind}");
        if kind == "policy:gating" {
            world.gates(1, RunEnd::Ready(candidate()));
            assert_eq!(world.policy(1).status.as_str(), "awaiting-ack");
        }
    }
    let mut world = World::new();
    world.attach(1, PolicySpec { on_end: OnEnd::Gate, ..spec(Then::Emit, &[1]) }, Covers::Next);
    assert_eq!(world.report(1, end_turn(EndReason::Limit)), "session:turn-end+policy:gating");
}

#[test]
fn what_follows_goes_on_with_the_session_and_the_last_ends_it() {
    let mut first = spec(Then::Emit, &[1]);
    let next = PolicySpec { end_session: true, ..spec(Then::Emit, &[1]) };
    first.end_session = true;
    first.next = Some(Box::new(crate::domain::policy::NextPolicy {
        policy_id: pol(2),
        next_turn: false,
        spec: next,
    }));
    first.on_fail = Some(OnFail { nudge: None, max_retries: 1, reprompt: true });
    let mut world = World::default();
    world.launch(1, Some(first));
    world.run_of(1, Exit::Code(0));
    assert_eq!(
        green(&mut world),
        "policy:passed+policy:attached+policy:gating+session:exited",
        "the turn that is over is judged by both"
    );
}

#[test]
fn gates_that_wait_for_their_turn_are_the_same_run_when_it_comes() {
    let mut world = World::new();
    world.attach(1, spec(Then::Emit, &[1]), Covers::LastAndNext);
    world.report(1, end_turn(EndReason::Completed));
    let no_slot = |attempt| Input::NoSlot { policy: pol(1), attempt };
    assert_eq!(world.answer(no_slot(2)), "terminal");
    assert_eq!(world.answer(no_slot(1)), "policy:queued");
    assert_eq!(world.answer(no_slot(1)), "terminal");
    assert_eq!(world.answer(Input::SlotFree { policy: pol(1) }), "policy:gating");
    assert_eq!(world.policy(1).attempt, 1);
    assert_eq!(green(&mut world), "policy:passed");
}

//! What the end of a gate run leads to.

use super::lab::{World, candidate, end_turn, oid, pol, policy_in, result, run, spec};
use crate::{
    code::Code,
    domain::{
        event::Body,
        gate::Verdict,
        input::{Covers, GateRun, Input, RunEnd},
        path::RepoPath,
        policy::{Outcome, PolicySpec, Status, Then},
        session::EndReason,
    },
};

fn gating(spec: PolicySpec) -> World {
    let mut world = World::new();
    world.report(1, end_turn(EndReason::Completed));
    world.attach(1, spec, Covers::LastAndNext);
    world
}

fn commit(ack: bool, path: &str) -> PolicySpec {
    let mut spec = spec(Then::Commit, &[1]);
    let commit = spec.commit.as_mut().unwrap();
    commit.require_human_ack = ack;
    commit.paths = vec![RepoPath::new(path.as_bytes()).unwrap()];
    spec
}

fn end(word: &str) -> RunEnd {
    let because = Some("it says so".to_owned());
    match word {
        "green" => RunEnd::Green,
        "no-change" => RunEnd::NoChange,
        "ready" => RunEnd::Ready(candidate()),
        "red" => RunEnd::Red { code: Code::GateRed, because },
        "broken" => RunEnd::Broken { code: Code::ProgramChanged, because },
        other => panic!("no end {other}"),
    }
}

#[test]
fn every_end_for_every_kind_of_policy() {
    let kinds = [
        ("emit", spec(Then::Emit, &[1])),
        ("commit", commit(true, "a.txt")),
        ("no-ack", commit(false, "a.txt")),
        ("rules", commit(false, ".agentproto/allowed-commands.json")),
    ];
    let table = "
        emit    green      policy:passed                       done
        emit    no-change  internal-error                      gating
        emit    ready      internal-error                      gating
        emit    red        policy:failed                       blocked
        emit    broken     policy:failed                       blocked
        commit  green      internal-error                      gating
        commit  no-change  policy:passed                       done
        commit  ready      policy:passed+policy:commit-ready   awaiting-ack
        commit  red        policy:failed                       blocked
        commit  broken     policy:failed                       blocked
        no-ack  green      internal-error                      gating
        no-ack  no-change  policy:passed                       done
        no-ack  ready      policy:passed+policy:commit-ready   committing
        no-ack  red        policy:failed                       blocked
        no-ack  broken     policy:failed                       blocked
        rules   green      internal-error                      gating
        rules   no-change  policy:passed                       done
        rules   ready      policy:passed+policy:commit-ready   awaiting-ack
        rules   red        policy:failed                       blocked
        rules   broken     policy:failed                       blocked
    ";
    let rows: Vec<&str> = table.lines().filter(|l| !l.trim().is_empty()).collect();
    assert_eq!(rows.len(), kinds.len() * 5);
    for row in rows {
        let words: Vec<&str> = row.split_whitespace().collect();
        let [kind, word, said, status] = words[..] else { panic!("four words: {row}") };
        let (_, spec) = kinds.iter().find(|(name, _)| *name == kind).unwrap();
        let mut world = gating(spec.clone());
        assert_eq!(world.gates(1, end(word)), said, "{row}");
        assert_eq!(world.policy(1).status.as_str(), status, "{row}");
    }
}

#[test]
fn what_the_gates_said_is_kept() {
    let mut world = gating(spec(Then::Emit, &[1]));
    let results = vec![result(Verdict::Pass), result(Verdict::Fail)];
    let end = end("red");
    let run = GateRun { results: results.clone(), voided: 1, noted_on: Some(oid(7)), end };
    world.ask(Input::GatesEnded { policy: pol(1), attempt: 1, run }).unwrap();
    let policy = world.policy(1);
    assert_eq!((&policy.results, policy.noted_on), (&results, Some(oid(7))));
    assert_eq!(policy.verdict(), Some(Verdict::Fail));
    assert_eq!(policy.reason.as_deref(), Some("gate-red"));
    assert_eq!(policy.because.as_deref(), Some("it says so"));
    let Body::PolicyFailed(event) = &world.log.last().unwrap().event.body else { panic!() };
    assert_eq!(event.voided, 1);
}

#[test]
fn a_candidate_waits_under_the_number_of_its_request() {
    let world = policy_in("awaiting-ack");
    let policy = world.policy(1);
    assert_eq!(policy.candidate, Some(candidate()));
    assert_eq!(policy.request_seq, Some(world.last_seq()));
    assert_eq!(policy.outcome, None);
}

#[test]
fn nothing_to_commit_leaves_no_candidate() {
    let mut world = gating(commit(true, "a.txt"));
    world.gates(1, RunEnd::NoChange);
    let policy = world.policy(1);
    assert_eq!((policy.candidate, policy.commit_sha), (None, None));
    assert_eq!(policy.outcome, Some(Outcome::NoOp));
}

#[test]
fn a_run_that_nobody_waits_for_says_nothing() {
    let mut world = policy_in("gating");
    for attempt in [0, 2] {
        let input = Input::GatesEnded { policy: pol(1), attempt, run: run(end("red")) };
        assert_eq!(world.answer(input), "terminal", "{attempt}");
    }
    world.ask(Input::CancelAsked { policy: pol(1), because: None }).unwrap();
    assert_eq!(world.gates(1, end("ready")), "terminal");
    assert_eq!(world.policy(1).status, Status::Cancelled);
}

#[test]
fn a_later_turn_changes_nothing_for_a_running_gate() {
    let mut world = policy_in("gating");
    let before = world.policy(1).clone();
    world.report(1, end_turn(EndReason::Error));
    assert_eq!(*world.policy(1), before);
}

//! As many gates run at once as a person allows; the others wait, and are told to wait.

use crate::{
    env::{PATIENCE, TestEnv, wait_for},
    house::text,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;

/// A machine on which one gate runs at a time, and a gate that tells when it begins and ends.
fn one_at_a_time() -> TestEnv {
    let env = TestEnv::new();
    env.script(
        "gate.sh",
        &format!(
            "echo begin >> {log}; while [ -e {hold} ]; do sleep 0.02; done; sleep 0.1; echo end >> {log}",
            log = env.path("gates").display(),
            hold = env.path("hold").display(),
        ),
    );
    env.global("agentproto.gateConcurrency", "1");
    env
}

fn hold(env: &TestEnv, on: bool) {
    let file = env.path("hold");
    if on { fs::write(file, "").unwrap() } else { fs::remove_file(file).unwrap() }
}

fn gates(env: &TestEnv) -> Vec<String> {
    let text = fs::read_to_string(env.path("gates")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A policy whose turn is over and whose gates somebody else performs.
fn gated(env: &TestEnv, name: &str) -> String {
    let session = env.adopt(name);
    let policy = env.attach(&session, &["--no-wait", "--", "./gate.sh"]);
    env.ap(&["session", "report", &session, "turn-end", "--no-wait"]).exits(0);
    policy
}

#[track_caller]
fn until(env: &TestEnv, policy: &str, status: &str) -> Value {
    wait_for(&format!("{policy} is {status}"), PATIENCE, || {
        Some(env.policy(policy)).filter(|p| p["status"] == status)
    })
}

#[test]
fn at_most_one_gate_runs_and_each_has_its_turn() {
    let env = one_at_a_time();
    hold(&env, true);
    let first = gated(&env, "one");
    wait_for("a gate runs", PATIENCE, || (gates(&env).len() == 1).then_some(()));
    let others = [gated(&env, "two"), gated(&env, "three")];
    for id in &others {
        until(&env, id, "queued");
    }
    let told = env.ap(&["status"]).exits(0).out();
    assert!(told.contains("queued") || told.contains("waits"), "{told}");
    let told = env.ap(&["status", "--json"]).exits(0).json();
    assert!(told.to_string().contains("\"queued\""), "{told:#}");
    assert_eq!(gates(&env), ["begin"]);
    hold(&env, false);
    for id in [&first, &others[0], &others[1]] {
        env.ap(&["wait", id, "--until", "done", "--timeout", "60s"]).exits(0);
    }
    assert_eq!(gates(&env), ["begin", "end", "begin", "end", "begin", "end"]);
    env.assert_no_gap();
}

#[test]
fn who_is_cancelled_in_the_queue_runs_nothing() {
    let env = one_at_a_time();
    hold(&env, true);
    let first = gated(&env, "one");
    wait_for("a gate runs", PATIENCE, || (gates(&env).len() == 1).then_some(()));
    let second = gated(&env, "two");
    until(&env, &second, "queued");
    env.ap(&["policy", "cancel", &second]).exits(0);
    assert_eq!(text(&env.policy(&second), "status"), "cancelled");
    hold(&env, false);
    env.ap(&["wait", &first, "--until", "done", "--timeout", "60s"]).exits(0);
    assert_eq!(gates(&env), ["begin", "end"]);
}

#[test]
fn who_is_killed_gives_up_its_place() {
    let env = one_at_a_time();
    hold(&env, true);
    let first = gated(&env, "one");
    wait_for("a gate runs", PATIENCE, || (gates(&env).len() == 1).then_some(()));
    let second = gated(&env, "two");
    until(&env, &second, "queued");
    let file = env.repo().join(format!(".git/agentproto/live/gate.{first}.1"));
    let record: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let owner = i32::try_from(record["owner"]["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(owner).unwrap(), Signal::KILL).unwrap();
    wait_for("the other gate runs", PATIENCE, || (gates(&env).len() == 2).then_some(()));
    until(&env, &second, "gating");
    hold(&env, false);
    env.ap(&["wait", &second, "--until", "done", "--timeout", "60s"]).exits(0);
    // What was cut off is done again by whoever looks.
    env.ap(&["wait", &first, "--until", "done", "--timeout", "60s"]).exits(0);
    assert_eq!(gates(&env), ["begin", "begin", "end", "begin", "end"]);
}

#[test]
fn a_repository_does_not_say_how_many() {
    let env = one_at_a_time();
    env.git(&["config", "agentproto.gateConcurrency", "5"]);
    hold(&env, true);
    let _first = gated(&env, "one");
    wait_for("a gate runs", PATIENCE, || (gates(&env).len() == 1).then_some(()));
    let second = gated(&env, "two");
    until(&env, &second, "queued");
    let told = env.ap(&["doctor"]).out();
    assert!(told.to_lowercase().contains("agentproto.gateconcurrency"), "{told}");
    hold(&env, false);
    env.ap(&["wait", &second, "--until", "done", "--timeout", "60s"]).exits(0);
}

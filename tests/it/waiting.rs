//! Waiting: several targets at once, time that ends a wait and no gate, agents that are lost, and who stops waiting.

use crate::{
    env::{PATIENCE, TestEnv, command_lines, wait_for},
    house::text,
};
use serde_json::Value;
use std::fs;

/// A gate that tells when it began and ends when it is let go.
const HELD: &str = "dir=$(git rev-parse --git-common-dir)\necho ran >> \"$dir/ran\"\n\
                    until [ -e \"$dir/go\" ]; do sleep 0.02; done\n";

/// A policy whose gate is due, which nobody performs.
fn due(env: &TestEnv, label: &str, gate: &str) -> String {
    let session = env.adopt(label);
    let policy = env.attach(&session, &["--", gate]);
    env.ap(&["session", "report", &session, "turn-end", "--no-perform"]).exits(0);
    policy
}

fn waited(env: &TestEnv, args: &[&str], exit: i32) -> Value {
    env.ap(&[&["wait", "--json"], args].concat()).exits(exit).json()
}

fn decided(answer: &Value) -> (String, String) {
    (text(answer, "target"), text(answer, "condition"))
}

#[test]
fn one_of_several_is_enough_and_all_is_as_bad_as_the_worst() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let open = env.attach(&env.adopt("other"), &["--", "true"]);
    let green = env.attach(&session, &["--", "true"]);
    let red = env.attach(&session, &["--", "false"]);
    env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    let person = env.awaiting("f.txt");

    let any = waited(&env, &[&open, &green], 0);
    assert_eq!(decided(&any), (green.clone(), "settled".into()));
    assert_eq!(any["met"], true);
    assert_eq!(text(&any["event"], "kind"), "policy:passed");
    assert_eq!(text(&waited(&env, &["--any", &open, &red], 1), "target"), red);
    assert_eq!(text(&waited(&env, &[&open, &person], 5), "target"), person);

    let all = |targets: &[&str], exit| {
        waited(&env, &[&["--all", "--timeout", "0"], targets].concat(), exit)
    };
    assert_eq!(text(&all(&[&green, &person], 5), "target"), person);
    assert_eq!(text(&all(&[&green, &person, &red], 1), "target"), red);
    // At the end of the time: who is open is late, which is better than a no.
    let late = all(&[&green, &open], 3);
    assert_eq!(
        (decided(&late), text(&late, "code")),
        ((open.clone(), "settled".into()), "timeout".into())
    );
    assert_eq!(text(&all(&[&open, &red], 1), "target"), red);
}

#[test]
fn what_can_never_be_leaves_it_to_the_others_where_one_is_enough() {
    let env = TestEnv::new();
    let (gone, alive) = (env.adopt("gone"), env.adopt("alive"));
    env.ap(&["session", "report", &gone, "exited", "--data", r#"{"code":1}"#]).exits(0);
    let never = waited(&env, &[&gone], 4);
    assert_eq!(
        (text(&never, "code"), decided(&never)),
        ("can-never-be".into(), (gone.clone(), "turn-end".into()))
    );
    waited(&env, &[&gone, &alive, "--timeout", "0"], 3);
    assert_eq!(text(&waited(&env, &["--all", &gone, &alive, "--timeout", "0"], 4), "target"), gone);
    env.ap(&["session", "report", &alive, "turn-end"]).exits(0);
    assert_eq!(text(&waited(&env, &[&gone, &alive], 0), "target"), alive);
}

#[test]
fn a_session_that_asks_needs_a_person_before_its_turn_ends() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    env.ap(&["session", "report", &session, "turn-start"]).exits(0);
    let asks = r#"{"requests":[{"id":"q","kind":"question","text":"which?"}]}"#;
    env.ap(&["session", "report", &session, "awaiting-input", "--data", asks]).exits(0);
    assert_eq!(text(&waited(&env, &[&session], 5), "state"), "awaiting-input");
    waited(&env, &[&session, "--until", "awaiting-input"], 0);
    let both = waited(&env, &[&session, "--until", "turn-end", "--until", "awaiting-input"], 0);
    assert_eq!(text(&both, "condition"), "awaiting-input");
    env.ap(&["session", "report", &session, "input-answered", "--data", r#"{"id":"q"}"#]).exits(0);
    waited(&env, &[&session, "--timeout", "0"], 3);
}

#[test]
fn the_time_of_a_wait_ends_no_gate() {
    let env = TestEnv::new();
    env.script("held.sh", HELD);
    let policy = due(&env, "s", "./held.sh");
    let late = waited(&env, &[&policy, "--timeout", "0"], 3);
    assert_eq!((text(&late, "state"), text(&late, "code")), ("gating".into(), "timeout".into()));
    let git = env.repo().join(".git");
    let ran = || fs::read_to_string(git.join("ran")).unwrap_or_default();
    wait_for("the gate to run", PATIENCE, || (ran() == "ran\n").then_some(()));
    waited(&env, &[&policy, "--timeout", "0"], 3);
    fs::write(git.join("go"), "").unwrap();
    waited(&env, &[&policy, "--timeout", "60s"], 0);
    assert_eq!(ran(), "ran\n", "it ran again");
}

#[test]
fn an_agent_that_is_lost_is_noticed_by_who_waits_for_it() {
    let env = TestEnv::new();
    let mark = format!("{}.5", 100_000 + std::process::id());
    let start = ["session", "start", "--detach", "--json", "--", "sleep", &mark];
    let session = text(&env.ap(&start).exits(0).json(), "sessionId");
    let sleeps = format!("sleep {mark}");
    let runs = || command_lines().iter().any(|l| l.ends_with(&sleeps));
    wait_for("the agent", PATIENCE, || runs().then_some(()));
    env.script("held.sh", HELD);
    let policy = due(&env, "s", "./held.sh");
    let wait = ["wait", &session, &policy, "--until", "exited", "--timeout", "60s"];
    let mut waiter = env.tool(&wait).start();
    // It handed the gate over, so it has looked at the agent already.
    let git = env.repo().join(".git");
    wait_for("the gate to run", PATIENCE, || git.join("ran").exists().then_some(()));
    // Whoever holds it and what it runs under, at once: nobody is left to tell of it.
    let live = env.repo().join(format!(".git/agentproto/live/agent.{session}"));
    let live: Value = serde_json::from_slice(&fs::read(live).unwrap()).unwrap();
    let pids = ["owner", "runner"].map(|who| live[who]["pid"].as_u64().unwrap().to_string());
    env.run("kill", &[&["-KILL".to_owned()], &pids[..]].concat()).done().exits(0);
    let ended = wait_for("the waiter", PATIENCE, || waiter.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    wait_for("the agent to be gone", PATIENCE, || (!runs()).then_some(()));
    fs::write(git.join("go"), "").unwrap();
    waited(&env, &[&policy, "--timeout", "60s"], 0);
}

#[test]
fn a_waiter_ends_with_its_wrapper() {
    let env = TestEnv::new();
    env.script("held.sh", HELD);
    let policy = due(&env, "s", "./held.sh");
    let mark = format!("{}s", 100_000 + std::process::id());
    let mut wrapper = env.tool(&["wait", &policy, "--timeout", &mark]).start();
    // It handed the gate over, so it is waiting or about to.
    let ran = env.repo().join(".git/ran");
    wait_for("the gate to run", PATIENCE, || ran.exists().then_some(()));
    let ours = || command_lines().iter().any(|l| l.contains("git-agentproto") && l.contains(&mark));
    assert!(ours(), "it does not run");
    wrapper.kill().unwrap();
    wrapper.wait().unwrap();
    wait_for("the waiter to be gone", PATIENCE, || (!ours()).then_some(()));
    fs::write(env.repo().join(".git/go"), "").unwrap();
    waited(&env, &[&policy, "--timeout", "60s"], 0);
}

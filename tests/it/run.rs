//! `run`: the whole job with an agent, as it ends for people, programs, and those who interrupt it.

use crate::{
    agents::started_for,
    env::{PATIENCE, TestEnv, wait_for},
    nudges::policy_of,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{os::unix::process::ExitStatusExt, process::Child};

const COMMITS: [&str; 6] = ["--path", "f.txt", "-m", "f", "--gate", "./gate.sh"];

/// Sends a signal and gives the exit code, as a shell says it.
fn interrupt(mut child: Child, signal: Signal) -> i32 {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let ended = wait_for("the command ends", PATIENCE, || child.try_wait().unwrap());
    ended.code().or(ended.signal().map(|signal| 128 + signal)).unwrap()
}

/// Policy and session that there are, of each one.
#[track_caller]
fn both(env: &TestEnv) -> (Value, Value) {
    let told = env.ap(&["policy", "list", "--all", "--json"]).exits(0).json();
    let policies = told["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 1, "{told:#}");
    let session = policies[0]["sessionIds"][0].as_str().unwrap();
    (policies[0].clone(), env.session(session))
}

#[test]
fn without_a_terminal_it_ends_with_what_a_person_must_do() {
    let env = TestEnv::new();
    env.script("gate.sh", "true");
    let args = [&["run"], &COMMITS[..], &["--", "sh", "-c", "echo x > f.txt"]].concat();
    let out = env.ap(&args).exits(5);
    assert!(out.out().contains("git agentproto ack"), "{out}");
    for line in ["session:started", "session:turn-end", "policy:commit-ready"] {
        assert!(out.err().contains(line), "{line} is not told: {out}");
    }
}

#[test]
fn for_programs_every_line_is_an_object_and_the_last_one_is_the_policy() {
    let env = TestEnv::new();
    env.script("gate.sh", "true");
    let out = env.run_agent(&COMMITS, "echo x > f.txt; echo no''ise; echo no''ise >&2").exits(5);
    let lines: Vec<Value> = out.out().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let (last, events) = lines.split_last().unwrap();
    assert_eq!(
        (&last["schema"], &last["status"]),
        (&json!("agentproto/policy/1"), &json!("awaiting-ack"))
    );
    assert!(last["nextStep"].as_str().unwrap().contains("ack"), "{last:#}");
    assert!(
        !events.is_empty() && events.iter().all(|e| e["schema"] == "agentproto/event/1"),
        "{out}"
    );
    let kinds: Vec<&str> = events.iter().filter_map(|e| e["kind"].as_str()).collect();
    assert_eq!(kinds, env.kinds(), "each is told once, in order");
    assert!(!out.out().contains("noise"), "{out}");
}

#[test]
fn detached_it_comes_as_far_as_it_can_by_itself() {
    let env = TestEnv::new();
    env.script("gate.sh", "grep -q right f.txt");
    let script = "if [ $AGENTPROTO_TURN -ge 2 ]; then echo right > f.txt; fi; echo x >> log";
    let flags = [&["--detach"], &COMMITS[..]].concat();
    env.write("f.txt", "wrong\n");
    let policy = policy_of(&env.run_agent(&flags, script).exits(0));
    assert_eq!(policy["status"], "watching");
    let id = policy["policyId"].as_str().unwrap();
    let waits = || Some(env.policy(id)).filter(|p| p["status"] == "awaiting-ack");
    let policy = wait_for("it waits for a person", PATIENCE, waits);
    assert_eq!((&policy["attempt"], env.lines_of("log", 2)), (&json!(2), "x\nx\n".to_owned()));
    env.ap(&["ack", id, "--yes"]).exits(0);
    assert_eq!(both(&env).1["process"], "exited");
}

#[test]
fn who_interrupts_it_leaves_nothing_open_whatever_it_does() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        for phase in ["agent", "gate"] {
            let env = TestEnv::new();
            env.script("gate.sh", "echo gate >> log; exec sleep 600");
            let agent = "echo agent >> log; echo x > f.txt; [ $MODE = gate ] || exec sleep 600";
            let mode = format!("MODE={phase}");
            let args =
                [&["run", "--env", &mode], &COMMITS[..], &["--", "sh", "-c", agent]].concat();
            let child = env.binary(&args).start();
            env.lines_of("log", if phase == "gate" { 2 } else { 1 });
            assert_eq!(interrupt(child, signal), code, "in phase {phase}");
            let (policy, session) = both(&env);
            assert_eq!(policy["status"], "cancelled", "in phase {phase}: {policy:#}");
            assert_eq!(session["process"], "exited", "in phase {phase}: {session:#}");
            assert_eq!(started_for(session["sessionId"].as_str().unwrap()), Vec::<u32>::new());
            let root = env.repo().display().to_string();
            let runs = crate::env::command_lines().iter().any(|line| line.contains(&root));
            assert!(!runs, "in phase {phase} something of it still runs");
            env.assert_no_gap();
        }
    }
}

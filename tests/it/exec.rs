//! `exec`: an allowed command in a session's worktree, with the caller's streams and its own exit code, recorded.

use crate::{
    env::{PATIENCE, TestEnv, command_lines, wait_for},
    house::text,
};
use serde_json::{Value, json};
use std::{fs, os::unix::process::ExitStatusExt};

/// What the last event of the journal says.
fn last_event(env: &TestEnv) -> Value {
    let events = env.ap(&["events", "--json"]).exits(0).json();
    events["events"].as_array().unwrap().last().unwrap().clone()
}

#[test]
fn the_streams_are_the_callers_and_the_exit_code_is_the_commands() {
    let env = TestEnv::new();
    env.script("both.sh", "cat; echo out; echo err >&2; pwd; exit ${1:-0}");
    let linked = env.worktree("t1");
    let session = env.adopt_in(&linked, "t1");
    let args = ["exec", "t1", "--", "./both.sh", "7"];
    let out = env.tool(&args).stdin("in\n").done().exits(7);
    assert_eq!(out.out(), format!("in\nout\n{}\n", linked.display()));
    assert_eq!(out.err(), "err\n");
    let event = last_event(&env);
    assert_eq!(text(&event, "kind"), "session:command-done", "{event:#}");
    assert_eq!(text(&event, "sessionId"), session);
    assert_eq!((&event["argv"], &event["code"]), (&json!(["./both.sh", "7"]), &json!(7)));

    let out = env.ap(&["exec", "t1", "--json", "--", "./both.sh"]).exits(0);
    let told = out.json();
    assert_eq!(out.err(), format!("out\nerr\n{}\n", linked.display()), "stdout is the answer's");
    assert_eq!(text(&told, "schema"), "agentproto/exec/1");
    assert_eq!(told["argv"], json!(["./both.sh"]));
    assert_eq!((&told["code"], &told["signal"]), (&json!(0), &Value::Null), "{told:#}");
    assert!(told["durationMs"].is_u64(), "{told:#}");
    assert_eq!(told["cursor"], last_event(&env)["cursor"], "{told:#}");
}

#[test]
fn the_environment_is_that_of_a_gate_of_the_session() {
    let env = TestEnv::new();
    env.script("env.sh", "env");
    let session = env.adopt("s");
    let caller = [("LD_PRELOAD_X", "1"), ("GIT_DIR_X", "1"), ("API_TOKEN", "t"), ("PWD", "/")];
    let mut run = env.tool(&["exec", "s", "--", "./env.sh"]);
    for (name, value) in caller {
        run = run.env(name, value);
    }
    let out = run.done().exits(0).out();
    let has = |line: &str| out.lines().any(|l| l == line);
    assert!(has(&format!("AGENTPROTO_SESSION_ID={session}")), "{out}");
    assert!(has(&format!("AGENTPROTO_WORKTREE={}", env.repo().display())), "{out}");
    assert!(has(&format!("PWD={}", env.repo().display())) && has("CI=true"), "{out}");
    for absent in ["LD_", "GIT_", "API_TOKEN", "AGENTPROTO_POLICY_ID", "AGENTPROTO_ATTEMPT"] {
        assert!(!out.lines().any(|line| line.starts_with(absent)), "{absent}\n{out}");
    }
}

#[test]
fn a_command_that_a_signal_ends_is_told_as_a_shell_tells_it() {
    let env = TestEnv::new();
    env.script("die.sh", "kill -KILL $$");
    env.adopt("s");
    let told = env.ap(&["exec", "s", "--json", "--", "./die.sh"]).exits(137).json();
    assert_eq!((&told["code"], &told["signal"]), (&json!(137), &json!("SIGKILL")), "{told:#}");
    assert_eq!(last_event(&env)["code"], json!(137));
}

/// Processes with an argument that no other one on the machine has.
fn survivors(mark: &str) -> Vec<String> {
    command_lines().into_iter().filter(|line| line.contains(mark)).collect()
}

#[test]
fn whoever_interrupts_it_ends_the_whole_tree() {
    let env = TestEnv::new();
    let mark = format!("6210.{:06}", std::process::id() % 1_000_000);
    env.script(
        "tree.sh",
        &format!(
            "trap '' INT\nsetsid sleep {mark} &\n(trap '' INT TERM; sleep {mark}) &\nsleep {mark}"
        ),
    );
    env.adopt("s");
    let child = env.binary(&["exec", "s", "--", "./tree.sh"]).start();
    wait_for("the tree to stand", PATIENCE, || (survivors(&mark).len() >= 3).then_some(()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let out = child.wait_with_output().unwrap();
    // Nobody listened: it was killed after the grace.
    assert_eq!(out.status.code(), Some(137), "{:?} {:?}", out.status, out.status.signal());
    assert_eq!(survivors(&mark), Vec::<String>::new());
    let event = last_event(&env);
    assert_eq!((&event["argv"], &event["code"]), (&json!(["./tree.sh"]), &json!(137)));
}

#[test]
fn what_it_leaves_in_the_background_goes_with_it() {
    let env = TestEnv::new();
    let mark = format!("6211.{:06}", std::process::id() % 1_000_000);
    env.script("leave.sh", &format!("setsid sleep {mark} >&- 2>&- &\nexit 3"));
    env.adopt("s");
    env.ap(&["exec", "s", "--", "./leave.sh"]).exits(3);
    assert_eq!(survivors(&mark), Vec::<String>::new());
}

#[test]
fn what_may_not_or_cannot_run_is_refused_and_not_recorded() {
    let env = TestEnv::new();
    env.write_script("odd.sh", "#!/no/such/interpreter\n");
    env.script("listed.sh", "touch ran");
    let listed = crate::env::allowlist(&["./odd.sh", "./listed.sh"]);
    fs::write(env.repo().join(".agentproto/allowed-commands.json"), listed).unwrap();
    env.git(&["add", "."]);
    env.git(&["commit", "-qm", "odd"]);
    let over = env.adopt("over");
    env.ap(&["session", "report", &over, "exited"]).exits(0);
    let linked = env.worktree("t1");
    env.adopt_in(&linked, "gone");
    env.git(&["worktree", "remove", "--force", "t1"]);
    env.adopt("s");
    let long = "x".repeat(17_000);
    let before = env.kinds();
    for (session, words, code, exit) in [
        ("s", &["rm", "a.txt"][..], "not-allowlisted", 6),
        ("s", &["./odd.sh"], "gate-not-runnable", 2),
        ("s", &["true", &long], "bad-data", 129),
        ("s", &["true true"], "usage", 129),
        ("s", &[], "usage", 129),
        ("over", &["./listed.sh"], "terminal", 6),
        ("gone", &["true"], "no-such-cwd", 6),
        ("nobody", &["true"], "no-such-session", 4),
    ] {
        let all = [&["exec", session, "--"][..], words].concat();
        let out = env.ap(&all).exits(exit);
        assert!(out.stdout.is_empty() && out.err().contains(code), "{out}");
    }
    assert_eq!(env.kinds(), before);
    assert!(env.repo().join("a.txt").exists() && !env.repo().join("ran").exists());
    env.ap(&["exec", "s", "--", "./listed.sh"]).exits(0);
    assert!(env.repo().join("ran").exists());
}

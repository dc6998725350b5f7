//! How agents that we start come to their end: killed, interrupted, or with whoever held them.

use crate::{
    agents::started_for,
    env::{PATIENCE, TestEnv, wait_for},
    house::text,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::{
    fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

/// A program that does not end when it is told to, nor do those it leaves to nobody.
const STUBBORN: &str = "trap '' TERM HUP INT; \
    setsid sh -c 'trap \"\" TERM HUP INT; while :; do echo a >> live; sleep 0.05; done' & \
    (setsid sh -c 'trap \"\" TERM HUP INT; (while :; do echo b >> live; sleep 0.05; done) &' &) ; \
    echo begun >> log; while :; do sleep 0.05; done";

fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn live(env: &TestEnv, session: &str) -> PathBuf {
    env.repo().join(format!(".git/agentproto/live/agent.{session}"))
}

/// A process that the live file of a session names, once it does.
fn named(env: &TestEnv, session: &str, who: &str) -> u32 {
    let file = live(env, session);
    wait_for(&format!("{who} in {}", file.display()), PATIENCE, || {
        let record: serde_json::Value = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
        u32::try_from(record[who]["pid"].as_u64()?).ok()
    })
}

#[track_caller]
fn assert_gone(session: &str) {
    wait_for(&format!("nothing of {session} runs"), PATIENCE, || {
        started_for(session).is_empty().then_some(())
    });
}

/// Asserts that nothing is written any more: what still ran would do so twenty times a second.
#[track_caller]
fn assert_quiet(env: &TestEnv, session: &str) {
    assert_eq!(started_for(session), Vec::<u32>::new(), "something of {session} still runs");
    let size = |name: &str| fs::metadata(env.repo().join(name)).map_or(0, |meta| meta.len());
    let before = size("live");
    crate::env::pause(Duration::from_millis(300));
    assert_eq!(size("live"), before, "it still writes");
}

#[test]
fn who_is_told_to_end_may_tidy_up_first() {
    let env = TestEnv::new();
    let script = "trap 'echo tidied >> log; exit 0' TERM; echo begun >> log; \
                  while :; do sleep 0.05; done";
    let id = env.launch(&["--label", "s"], script);
    env.lines_of("log", 1);
    env.ap(&["session", "kill", "s", "-m", "not needed", "--json"]).exits(0);
    let over = env.session(&id);
    assert_eq!((&over["process"], &over["reason"]), (&json!("exited"), &json!("cancelled")));
    assert_eq!(env.lines_of("log", 2), "begun\ntidied\n");
    assert_gone(&id);
    let again = env.ap(&["session", "kill", "s", "--json"]).exits(6);
    assert!(again.err().contains("terminal"), "{again}");
    let told = env.ap(&["log"]).exits(0);
    assert!(told.out().contains("not needed"), "why it ended is not told: {told}");
}

#[test]
fn case_163_a_session_that_was_killed_is_quiet() {
    let env = TestEnv::new();
    let id = env.launch(&[], STUBBORN);
    env.lines_of("log", 1);
    env.lines_of("live", 4);
    let killed = env.ap(&["session", "kill", &id, "--grace", "300ms", "--json"]).exits(0).json();
    assert_quiet(&env, &id);
    assert_eq!((&killed["process"], &killed["reason"]), (&json!("exited"), &json!("cancelled")));
    assert_eq!(killed["exit"], json!({ "signal": "SIGKILL" }));
}

#[test]
fn of_two_who_kill_at_once_each_finds_it_over() {
    let env = TestEnv::new();
    let id = env.launch(&[], STUBBORN);
    env.lines_of("live", 2);
    let kill = || env.binary(&["session", "kill", &id, "--grace", "200ms"]).start();
    let (one, other) = (kill(), kill());
    let codes = [one, other].map(|child| child.wait_with_output().unwrap().status.code().unwrap());
    // The later one may have come when all was over.
    assert!(codes.contains(&0) && codes.iter().all(|code| [0, 6].contains(code)), "{codes:?}");
    assert_quiet(&env, &id);
    assert_eq!(env.kinds().iter().filter(|kind| *kind == "session:exited").count(), 1);
    env.assert_no_gap();
}

#[test]
fn one_that_does_nothing_is_over_at_once() {
    let env = TestEnv::new();
    let id = env.launch(&["--reprompt"], "true");
    env.until(&id, "idle", |s| s["turn"] == 1 && s["process"] == "idle");
    let over = env.ap(&["session", "kill", &id, "--json"]).exits(0).json();
    assert_eq!((&over["process"], &over["turn"]), (&json!("exited"), &json!(1)));
}

#[test]
fn case_158_what_has_ended_is_over_and_no_zombie_is_left() {
    let env = TestEnv::new();
    let id = env.launch(&[], "(exit 1) & exit 3");
    let over = env.over(&id);
    assert_eq!((&over["exit"], &over["inferred"]), (&json!({ "code": 3 }), &json!(false)));
    assert!(env.ap(&["session", "kill", &id, "--json"]).exits(6).err().contains("terminal"));
    assert_gone(&id);
}

/// How a session of which holder, runner or both are killed is told, and that it ran once.
#[track_caller]
fn assert_lost(env: &TestEnv, id: &str) {
    let waited = env.ap(&["wait", id, "--until", "exited", "--timeout", "2s"]);
    assert_eq!(waited.code(), 0, "{waited}");
    let over = env.session(id);
    assert_eq!((&over["process"], &over["inferred"]), (&json!("exited"), &json!(true)), "{over:#}");
    assert_eq!((&over["reason"], &over["turn"]), (&json!("unknown"), &json!(1)), "{over:#}");
    assert_quiet(env, id);
    assert_eq!(env.lines_of("log", 1), "begun\n", "it ran more than once");
    let kinds = env.kinds();
    let of = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
    assert_eq!((of("session:turn-start"), of("session:turn-end"), of("session:exited")), (1, 1, 1));
    env.assert_no_gap();
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn a_run_whose_holder_runner_or_both_are_killed_is_lost_and_not_repeated() {
    for whom in [&["owner"][..], &["runner"], &["owner", "runner"], &["runner", "owner"]] {
        let env = TestEnv::new();
        let id = env.launch(&["--reprompt"], STUBBORN);
        env.lines_of("log", 1);
        env.lines_of("live", 2);
        let pids: Vec<u32> = whom.iter().map(|who| named(&env, &id, who)).collect();
        for pid in pids {
            // The second may have gone with the first.
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            let _ = kill_process(pid, Signal::KILL);
        }
        assert_lost(&env, &id);
        let refused = env.ap(&["session", "prompt", &id, "more", "--json"]).exits(6);
        assert!(refused.err().contains("terminal"), "{refused}");
    }
}

#[test]
fn a_session_whose_holder_was_killed_can_be_killed() {
    let env = TestEnv::new();
    let id = env.launch(&["--reprompt"], STUBBORN);
    env.lines_of("live", 2);
    send(named(&env, &id, "owner"), Signal::KILL);
    let over = env.ap(&["session", "kill", &id, "--grace", "100ms", "--json"]).exits(0).json();
    assert_eq!(over["process"], "exited", "{over:#}");
    assert_quiet(&env, &id);
}

#[test]
fn what_was_said_to_a_holder_that_died_between_turns_is_said() {
    let env = TestEnv::new();
    let id = env.launch(&["--reprompt"], "echo \"$AGENTPROTO_TURN $AGENTPROTO_PROMPT\" >> log");
    env.until(&id, "idle", |s| s["turn"] == 1 && s["process"] == "idle");
    // A live file as it is left by a holder that is killed before it begins the next turn.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let dead = json!({ "pid": std::process::id(), "start": 1, "boot": boot.trim() });
    let record = json!({ "owner": dead, "startedAt": "2026-01-01T00:00:00.000Z" });
    wait_for("it is let go", PATIENCE, || (!live(&env, &id).exists()).then_some(()));
    fs::write(live(&env, &id), record.to_string()).unwrap();
    env.ap(&["session", "prompt", &id, "again"]).exits(0);
    env.until(&id, "told", |s| s["turn"] == 2 && s["process"] == "idle");
    assert_eq!(env.lines_of("log", 2), "1 \n2 again\n");
    env.ap(&["session", "kill", &id]).exits(0);
}

/// Kills the holder at moments spread over all of a short run, and holds that each agent ran once at most and is over.
#[test]
fn a_holder_killed_at_any_moment_leaves_a_true_journal() {
    let env = TestEnv::new();
    let script = "echo $AGENTPROTO_SESSION_ID >> log";
    let mut lost = 0;
    for round in 0..30_u64 {
        let args = ["session", "start", "--json", "--", "sh", "-c", script];
        let mut child = env.binary(&args).start();
        crate::env::pause(Duration::from_millis(round * 4));
        child.kill().unwrap();
        let status = child.wait().unwrap();
        lost += usize::from(status.signal() == Some(9));
        let told = env.ap(&["session", "list", "--all", "--json"]).exits(0).json();
        for session in told["sessions"].as_array().unwrap() {
            let id = text(session, "sessionId");
            if session["process"] != "exited" {
                let waited = env.ap(&["wait", &id, "--until", "exited", "--timeout", "20s"]);
                assert_eq!(waited.code(), 0, "round {round}: {waited}");
            }
            assert_gone(&id);
        }
    }
    assert!(lost > 3, "only {lost} kills hit");
    let ran = fs::read_to_string(env.repo().join("log")).unwrap_or_default();
    let mut ids: Vec<&str> = ran.lines().collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an agent ran twice: {ran}");
    env.assert_no_gap();
    env.ap(&["fsck"]).exits(0);
}

/// Sends a signal to a command once the agent is at work, and gives how it ended.
#[track_caller]
fn interrupted(mut child: Child, at: impl FnOnce(), signals: &[Signal]) -> (Option<i32>, Child) {
    at();
    for signal in signals {
        send(child.id(), *signal);
    }
    let ended = wait_for("the command ends", PATIENCE, || child.try_wait().unwrap());
    (ended.code().or(ended.signal().map(|signal| 128 + signal)), child)
}

fn only_session(env: &TestEnv) -> String {
    let told = env.ap(&["session", "list", "--all", "--json"]).exits(0).json();
    let sessions = told["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "{told:#}");
    text(&sessions[0], "sessionId")
}

#[test]
fn case_169_who_interrupts_a_start_ends_its_agent_and_the_exit_code_says_so() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let env = TestEnv::new();
        let script = "trap 'echo tidied >> log; exit 0' TERM; echo begun >> log; \
                      while :; do sleep 0.05; done";
        let child = env.binary(&["session", "start", "--", "sh", "-c", script]).start();
        let (ended, _) = interrupted(child, || drop(env.lines_of("log", 1)), &[signal]);
        assert_eq!(ended, Some(code));
        let id = only_session(&env);
        assert_eq!(env.session(&id)["reason"], "cancelled");
        assert_eq!(env.lines_of("log", 2), "begun\ntidied\n", "it was given no time");
        assert_gone(&id);
    }
}

#[test]
fn who_interrupts_twice_waits_no_longer() {
    let env = TestEnv::new();
    let mut child = env.binary(&["session", "start", "--", "sh", "-c", STUBBORN]).start();
    env.lines_of("live", 2);
    let id = only_session(&env);
    // The same signal twice at once is what git makes of one Ctrl-C.
    send(child.id(), Signal::INT);
    env.until(&id, "being ended", |s| s["stopping"] == true);
    send(child.id(), Signal::INT);
    let half = Duration::from_millis(900);
    crate::env::pause(half);
    assert!(child.try_wait().unwrap().is_none(), "one Ctrl-C was taken for two");
    send(child.id(), Signal::INT);
    // Far less than the grace there is without it.
    let ended = wait_for("it ends at once", Duration::from_secs(3), || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(130));
    assert_quiet(&env, &id);
}

#[test]
fn what_a_caller_ignores_does_not_end_it() {
    let env = TestEnv::new();
    let script = "echo begun >> log; while [ ! -e go ]; do sleep 0.05; done; echo over >> log";
    let words = ["nohup", env!("CARGO_BIN_EXE_git-agentproto"), "session", "start", "--"];
    let line = shell_words::join(words.into_iter().chain(["sh", "-c", script]));
    let mut child = env.run("sh", &["-c", &format!("exec {line}")]).start();
    env.lines_of("log", 1);
    send(child.id(), Signal::HUP);
    crate::env::pause(Duration::from_millis(200));
    env.write("go", "");
    let ended = wait_for("it ends", PATIENCE, || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
    assert_eq!(env.lines_of("log", 2), "begun\nover\n");
}

#[test]
fn what_was_detached_outlives_the_terminal_it_was_started_from() {
    let env = TestEnv::new();
    let line = "git agentproto session start --detach -- sh -c 'echo begun >> log; sleep 600'";
    let out = env.run("script", &["-qec", line, "/dev/null"]).done();
    if out.code() == 127 {
        return crate::house::skipped("script is not there");
    }
    out.exits(0);
    env.lines_of("log", 1);
    let id = only_session(&env);
    assert_eq!(env.session(&id)["process"], "alive");
    env.ap(&["session", "kill", &id]).exits(0);
    assert_gone(&id);
}

#[test]
fn a_holder_that_is_stopped_is_woken_to_tell_the_end() {
    let env = TestEnv::new();
    let id = env.launch(&[], "echo begun >> log; sleep 600");
    env.lines_of("log", 1);
    let owner = named(&env, &id, "owner");
    send(owner, Signal::STOP);
    let over = env.ap(&["session", "kill", &id, "--json"]).exits(0).json();
    assert_eq!((&over["process"], &over["reason"]), (&json!("exited"), &json!("cancelled")));
    assert!(!Path::new(&format!("/proc/{owner}")).exists() || started_for(&id).is_empty());
}

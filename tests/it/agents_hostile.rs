//! Agents that do their worst to whoever runs them: each ends, is told truly, and leads nobody elsewhere.

use crate::{
    agents::started_for,
    env::{Output, TestEnv},
    house::text,
};
use serde_json::json;
use std::fs;

/// Where its output is kept, as the agent finds it once it is there.
const MINE: &str =
    "d=.git/agentproto/output/$AGENTPROTO_SESSION_ID; while [ ! -d $d ]; do sleep 0.01; done;";

/// Runs an agent to its end, which comes in time and with this exit code; its session.
#[track_caller]
fn ends_with(env: &TestEnv, code: i32, script: &str) -> String {
    let exit = i32::from(code != 0);
    let over = env.launch_here(&["--json"], &format!("{script}; exit {code}")).exits(exit).json();
    assert_eq!(over["exit"], json!({ "code": code }), "{over:#}");
    let id = text(&over, "sessionId");
    assert_eq!(started_for(&id), Vec::<u32>::new());
    id
}

/// Its output, asked for in time.
fn output(env: &TestEnv, id: &str, flags: &[&str]) -> Output {
    env.ap(&[&["session", "output", id, "--json"], flags].concat())
}

#[test]
fn what_lies_in_the_place_of_its_output_is_neither_followed_nor_waited_for() {
    let env = TestEnv::new();
    let elsewhere = env.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(env.path("secret"), "not for you\n").unwrap();
    let much = "i=0; while [ $i -lt 20000 ]; do echo 'a line of a lot of output'; i=$((i+1)); done";
    for put in [
        format!("ln -s {} $d; {much}", elsewhere.display()),
        "mkfifo $d".to_owned(),
        "echo x > $d".to_owned(),
        format!("mkdir $d; ln -s {} $d/00000000000000000000", env.path("secret").display()),
        "mkdir $d; mkfifo $d/00000000000000000000".to_owned(),
        "mkdir $d; mkdir $d/00000000000000000000".to_owned(),
    ] {
        let id = ends_with(&env, 0, &format!("{MINE} rm -rf $d; {put}"));
        let refused = output(&env, &id, &[]).exits(2);
        assert!(refused.err().contains("not-a-regular-file"), "{put}: {refused}");
        assert!(output(&env, &id, &["--last", "3"]).code() != 0, "{put}");
        assert!(output(&env, &id, &["--follow"]).code() != 0, "{put}");
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "a link was followed");
    // All of it at once.
    let put = format!(
        "rm -rf .git/agentproto/output; ln -s {} .git/agentproto/output",
        elsewhere.display()
    );
    let id = ends_with(&env, 0, &format!("{put}; {much}"));
    assert!(output(&env, &id, &[]).exits(2).err().contains("not-a-regular-file"));
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "a link was followed");
    fs::remove_file(env.repo().join(".git/agentproto/output")).unwrap();
}

#[test]
fn names_and_sizes_that_it_makes_up_are_not_believed() {
    let env = TestEnv::new();
    let script = format!(
        "{MINE} mkdir -p $d; echo x > $d/18446744073709551615; truncate -s 1T $d/00000000000000000100; \
         echo y > $d/7; echo z > $d/+8; echo real"
    );
    let id = ends_with(&env, 0, &script);
    let all = output(&env, &id, &["--last", "1000000"]).exits(0);
    assert!(all.stdout.len() < 16 * 1024 * 1024, "a size was believed");
    let piece = output(&env, &id, &[]).exits(0).json();
    // It ends where the next file does not join on.
    assert_eq!((&piece["from"], &piece["output"]), (&json!(0), &json!("real\n")));
    output(&env, &id, &["--since", "18446744073709551615"]);
    // And whoever runs on after that adds nothing to a number that is the last there is.
    let id =
        env.launch(&["--reprompt"], &format!("{MINE} echo x > $d/18446744073709551615; echo on"));
    env.until(&id, "idle", |s| s["turn"] == 1 && s["process"] == "idle");
    env.ap(&["session", "prompt", &id, "more"]).exits(0);
    let session = env.until(&id, "idle", |s| s["turn"] == 2 && s["process"] != "alive");
    assert_eq!(session["reason"], "completed");
    env.ap(&["session", "kill", &id]).exits(0);
}

#[test]
fn a_hundred_megabytes_and_no_pipes_at_all_are_both_fine() {
    let env = TestEnv::new();
    let id = ends_with(&env, 0, "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last");
    assert_eq!(output(&env, &id, &["--last", "1"]).exits(0).json()["output"], "last\n");
    let dir = env.repo().join(".git/agentproto/output").join(&id);
    let kept: u64 = fs::read_dir(dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(kept < 6 * 1024 * 1024, "{kept} bytes are kept");
    ends_with(&env, 4, "exec >&- 2>&- <&-");
}

#[test]
fn an_agent_that_stops_who_runs_it_is_heard_all_the_same() {
    let env = TestEnv::new();
    ends_with(&env, 5, "kill -STOP $PPID");
    // And one that does so for ever can be ended.
    let id = env.launch(&[], "echo x >> log; while :; do kill -STOP $PPID; done");
    env.lines_of("log", 1);
    let over = env.ap(&["session", "kill", &id, "--grace", "1s", "--json"]).exits(0).json();
    assert_eq!(over["reason"], "cancelled", "{over:#}");
    assert_eq!(started_for(&id), Vec::<u32>::new());
}

#[test]
fn who_removes_what_is_known_of_it_here_is_told_truly() {
    let env = TestEnv::new();
    ends_with(&env, 6, "rm -rf .git/agentproto; echo a; sleep 0.2");
    // Nobody who holds it can be found: when somebody looks it is ended before it is called over.
    let id = env.launch(&[], "rm -rf .git/agentproto; echo x >> log; sleep 600");
    env.lines_of("log", 1);
    let over = env.over(&id);
    assert_eq!(over["process"], "exited", "{over:#}");
    assert_eq!(started_for(&id), Vec::<u32>::new(), "it is called over and runs: {over:#}");
    // It asks itself: it is not over while it can ask.
    let script = "rm -rf .git/agentproto; git agentproto wait $AGENTPROTO_SESSION_ID --until exited \
                  --timeout 300ms; echo $? >> asked; exit 7";
    let over = env.launch_here(&["--json"], script).exits(1).json();
    assert_eq!(over["exit"], json!({ "code": 7 }), "{over:#}");
    assert_eq!(env.lines_of("asked", 1), "3\n");
    env.assert_no_gap();
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn where_its_directory_led_it_is_not_run_again() {
    let env = TestEnv::new();
    let tree = env.worktree("t1");
    let cwd = tree.join("sub");
    fs::create_dir(&cwd).unwrap();
    let away = "echo $AGENTPROTO_TURN >> ../log; cd ..; mv sub gone; ln -s / sub";
    let at = ["--reprompt", "--cwd", cwd.to_str().unwrap()];
    let id = env.launch(&at, away);
    env.until(&id, "idle", |s| s["turn"] == 1 && s["process"] == "idle");
    env.ap(&["session", "prompt", &id, "again"]).exits(0);
    let over = env.until(&id, "over", |s| s["process"] == "exited");
    assert_eq!(over["exit"], json!({ "notStarted": true }), "{over:#}");
    assert_eq!(fs::read_to_string(tree.join("log")).unwrap(), "1\n");

    let tree = env.worktree("t2");
    let at = ["--reprompt", "--cwd", tree.to_str().unwrap()];
    let id = env.launch(&at, "rm -rf \"$AGENTPROTO_WORKTREE\"");
    env.until(&id, "idle", |s| s["turn"] == 1 && s["process"] == "idle");
    env.ap(&["session", "prompt", &id, "again"]).exits(0);
    let over = env.until(&id, "over", |s| s["process"] == "exited");
    assert_eq!(over["exit"], json!({ "notStarted": true }), "{over:#}");
    // Nothing of this machine is told under a ref.
    let told = env.git(&["log", "--format=%B", &env.journal()]);
    assert!(!told.contains(env.path("").to_str().unwrap()), "{told}");
}

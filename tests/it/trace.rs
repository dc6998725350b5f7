//! `GIT_AGENTPROTO_TRACE`: what is told, where, and that answers stay as they are.

use crate::env::TestEnv;
use std::fs;

const ARGS: [&str; 7] = ["commit", "--path=a.txt", "-m", "m", "--json", "--", "true"];

#[test]
fn steps_and_programs_are_told_on_stderr_and_never_on_stdout() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("a.txt", "two\n");
    let args: Vec<&str> = ["commit", "--no-ack"].iter().chain(&ARGS[1..]).copied().collect();
    let out = env
        .tool(&args)
        .env("GIT_AGENTPROTO_TRACE", "1")
        .env("AGENT_SECRET", "hush")
        .done()
        .exits(0);
    assert_eq!(out.json()["status"], "done");
    let said = out.err();
    for words in [
        "step ",
        "record: ",
        "perform RunGates",
        "perform Land",
        "run: ",
        "/git ",
        " ended ",
        " ms: ",
    ] {
        assert!(said.contains(words), "'{words}' is not in:\n{said}");
    }
    assert!(said.lines().all(|line| line.contains(" agentproto[")), "{said}");
    assert!(!said.contains("hush") && !said.contains("AGENT_SECRET"), "{said}");
    for off in ["", "0", "false"] {
        let out = env.tool(&["status"]).env("GIT_AGENTPROTO_TRACE", off).done().exits(0);
        assert!(out.stderr.is_empty(), "{out}");
    }
}

#[test]
fn a_file_is_appended_to_and_what_is_none_is_said() {
    let env = TestEnv::new();
    let file = env.path("trace");
    let look = || env.tool(&["status"]).env("GIT_AGENTPROTO_TRACE", &file).done().exits(0);
    assert!(look().stderr.is_empty());
    let once = fs::read_to_string(&file).unwrap();
    assert!(once.lines().count() >= 2 && once.ends_with("git agentproto status\n"), "{once}");
    look();
    let twice = fs::read_to_string(&file).unwrap();
    assert!(twice.starts_with(&once) && twice.len() > once.len(), "{twice}");
    let before = env.snapshot();
    for value in ["relative", env.home().to_str().unwrap()] {
        let out = env.tool(&["status"]).env("GIT_AGENTPROTO_TRACE", value).done().exits(0);
        assert!(out.err().starts_with("warning: GIT_AGENTPROTO_TRACE: "), "{out}");
        assert!(out.err().contains("nothing is traced"), "{out}");
    }
    before.assert_same(&env.snapshot(), "a trace to nowhere");
}

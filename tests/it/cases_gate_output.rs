//! Failure cases about what gates read and write: streams, their size, their bytes, and who gets to see them.

use crate::{
    env::{TestEnv, command_lines},
    house::text,
};
use git_agentproto::limits;
use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

/// Attaches a gate script, ends the turn, and tells the policy.
fn gated(body: &str) -> (TestEnv, Value) {
    let env = TestEnv::new();
    env.script("gate.sh", body);
    let told = judged(&env);
    (env, told)
}

/// What the script says of one more turn.
fn judged(env: &TestEnv) -> Value {
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--", "./gate.sh"]);
    env.turn_end(&session, &policy);
    env.policy(&policy)
}

#[track_caller]
fn assert_green(policy: &Value) {
    assert_eq!(text(policy, "status"), "done", "{policy:#}");
    assert_eq!(text(&policy["lastGate"], "verdict"), "pass", "{policy:#}");
}

/// The one output that is kept.
fn kept(env: &TestEnv) -> (PathBuf, Vec<u8>) {
    let logs = fs::read_dir(env.repo().join(".git/agentproto/logs")).unwrap();
    let files: Vec<PathBuf> = logs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let bytes = fs::read(&files[0]).unwrap();
    (files[0].clone(), bytes)
}

#[test]
fn case_078_a_background_child_holds_up_nothing_and_is_told_and_killed() {
    let mark = format!("6078.{:06}", std::process::id() % 1_000_000);
    let (env, policy) = gated(&format!("sleep {mark} &\necho done\nexit 0"));
    assert_green(&policy);
    let gate = &policy["lastGate"];
    // It ended with its main process: the child would have slept on for more than an hour.
    assert!(gate["durationMs"].as_u64().unwrap() < 6_000_000, "{gate:#}");
    assert_eq!(gate["leftBehind"], json!(1), "{gate:#}");
    let alive: Vec<_> = command_lines().into_iter().filter(|line| line.contains(&mark)).collect();
    assert_eq!(alive, Vec::<String>::new());
    let shown = env.ap(&["policy", "show", &text(&policy, "policyId")]).exits(0).out();
    assert!(shown.contains("processes left behind and killed: 1"), "{shown}");

    let (_env, policy) = gated("(sleep 0.3; echo late-but-real) &\nwait\necho end");
    assert_green(&policy);
    assert_eq!(text(&policy["lastGate"], "tail"), "late-but-real\nend\n");
    assert_eq!(policy["lastGate"]["leftBehind"], json!(0));
}

#[test]
fn case_082_output_without_end_takes_bounded_memory_and_disk() {
    for body in [
        "yes | head -c 300000000\necho the end",
        "head -c 50000000 /dev/zero | tr '\\0' x\necho the end",
    ] {
        let env = TestEnv::new();
        env.script("gate.sh", body);
        let session = env.adopt("s");
        let policy = env.attach(&session, &["--", "./gate.sh"]);
        // Less than what the gate writes.
        let command =
            format!("ulimit -v 200000 && exec git agentproto session report {session} turn-end");
        env.run("sh", &["-c", &command]).done().exits(0);
        let told = env.policy(&policy);
        assert_green(&told);
        let (_, log) = kept(&env);
        let most = limits::OUTPUT_HEAD_BYTES + limits::OUTPUT_TAIL_BYTES + 1000;
        assert!((1000..most).contains(&log.len()), "{} bytes are kept", log.len());
        assert!(log.ends_with(b"the end\n"));
        let log = String::from_utf8(log).unwrap();
        assert!(log.contains("bytes dropped"), "nobody says that something is missing");
    }
}

#[test]
fn case_083_a_full_pipe_blocks_nobody() {
    let (env, policy) = gated(
        "head -c 300000 /dev/zero | tr '\\0' e >&2\n\
         head -c 300000 /dev/zero | tr '\\0' o\necho fin",
    );
    assert_green(&policy);
    let (_, log) = kept(&env);
    let count = |byte| log.iter().filter(|b| **b == byte).count();
    let most = limits::OUTPUT_HEAD_BYTES + limits::OUTPUT_TAIL_BYTES;
    for byte in [b'e', b'o'] {
        assert!(count(byte) + 100 > most, "{} of '{}'", count(byte), char::from(byte));
    }
    assert!(String::from_utf8(log).unwrap().contains("fin\n"));
}

#[test]
fn case_084_output_that_is_no_text_is_shown_as_text_and_kept_as_it_is() {
    let (env, policy) =
        gated(r#"printf '\377\376 ok\n'; printf '\303'; sleep 0.3; printf '\251\n'"#);
    assert_green(&policy);
    assert_eq!(text(&policy["lastGate"], "tail"), "\u{fffd}\u{fffd} ok\n\u{e9}\n");
    assert_eq!(kept(&env).1, b"\xff\xfe ok\n\xc3\xa9\n");
}

#[test]
fn case_089_a_gate_eats_nobodys_input() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let gates = ["--gate", "cat", "--gate", "true", "--", "false"];
    let policy = env.attach(&session, &gates);
    let report = ["session", "report", &session, "turn-end"];
    env.tool(&report).stdin("g1\ng2\ng3\n").done().exits(0);
    let told = env.policy(&policy);
    assert_eq!(text(&told, "reason"), "gate-red", "{told:#}");
    assert_eq!(told["lastGate"]["index"], json!(2), "all three ran: {told:#}");

    let attach = format!("git agentproto attach {session} --next-turn -- cat >/dev/null");
    let turn = format!("git agentproto session report {session} turn-end >/dev/null");
    let each = format!("{attach} && {turn} && echo \"did $g\"");
    let script = format!("printf 'g1\\ng2\\n' | while read -r g; do {each}; done");
    let out = env.run("sh", &["-c", &script]).done().exits(0);
    assert_eq!(out.out(), "did g1\ndid g2\n", "{out}");
}

#[test]
fn case_090_input_that_never_ends_and_a_terminal_are_not_waited_for() {
    let env = TestEnv::new();
    env.script(
        "gate.sh",
        "cat; echo got-eof\n\
         (read -r x < /dev/tty) 2>/dev/null && echo tty || echo no-tty\n\
         set -- $(cut -d' ' -f6 /proc/$$/stat)\n[ \"$1\" = $$ ] && echo a session of its own",
    );
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--", "./gate.sh"]);
    // Open for reading, and somebody could still write.
    let report = format!("git agentproto session report {session} turn-end");
    let command = format!("mkfifo ../p && exec 3<>../p && {report} <&3");
    env.run("sh", &["-c", &command]).done().exits(0);
    let told = env.policy(&policy);
    assert_green(&told);
    assert_eq!(text(&told["lastGate"], "tail"), "got-eof\nno-tty\na session of its own\n");
}

#[test]
fn case_101_what_a_gate_prints_stays_on_the_machine_and_secrets_stay_with_the_caller() {
    const SECRET: &str = "s3cr3t-value-123456";
    let env = TestEnv::new();
    env.script("gate.sh", "echo \"token=$API_TOKEN\"; env | sort; false");
    // Plain, and as some encoding of the environment would show it.
    let reported = |session: &str| {
        let policy = env.attach(session, &["--", "./gate.sh"]);
        let report = ["session", "report", session, "turn-end"];
        env.tool(&report).env("API_TOKEN", SECRET).done().exits(0);
        env.policy(&policy)
    };
    let under_refs = || {
        let refs =
            env.git(&["for-each-ref", "--format=%(refname)", "refs/notes", "refs/agentproto"]);
        assert!(refs.lines().count() >= 2, "{refs}");
        let shown = refs.lines().map(|name| env.git(&["log", "-p", "--root", name]));
        shown.collect::<String>()
    };
    let told = reported(&env.adopt("a"));
    assert!(text(&told["lastGate"], "tail").starts_with("token=\n"), "{told:#}");
    let (_, log) = kept(&env);
    assert!(!String::from_utf8(log).unwrap().contains(SECRET), "it was not asked for");
    assert!(!under_refs().contains(SECRET));
    fs::remove_dir_all(env.repo().join(".git/agentproto/logs")).unwrap();

    // A person hands it to the gate, which prints it.
    env.global("agentproto.gateEnv", "API_TOKEN");
    let told = reported(&env.adopt("b"));
    assert!(text(&told["lastGate"], "tail").starts_with("token=s3cr3t"), "{told:#}");
    assert!(!under_refs().contains(SECRET));
    let (file, log) = kept(&env);
    assert!(String::from_utf8(log).unwrap().contains(SECRET));
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

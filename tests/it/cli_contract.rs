//! What holds for every command: help, usage errors, streams.

use crate::{env::TestEnv, house::text};
use std::{fs::File, process::Stdio};

/// Every command of this version, in the order of the help.
const COMMANDS: &[&[&str]] = &[
    &["commit"],
    &["attach"],
    &["status"],
    &["ack"],
    &["log"],
    &["events"],
    &["wait"],
    &["verify"],
    &["fsck"],
    &["gc"],
    &["policy"],
    &["policy", "attach"],
    &["policy", "list"],
    &["policy", "show"],
    &["policy", "wait"],
    &["policy", "ack"],
    &["policy", "cancel"],
    &["session"],
    &["session", "adopt"],
    &["session", "report"],
    &["session", "list"],
    &["session", "show"],
    &["allow"],
    &["trust"],
    &["init"],
    &["demo"],
];

/// Commands that only look, need no argument and answer with one object.
const READING: &[&[&str]] = &[
    &["status"],
    &["events"],
    &["policy", "list"],
    &["policy", "list", "--all"],
    &["session", "list"],
];

fn with(command: &[&'static str], more: &[&'static str]) -> Vec<&'static str> {
    command.iter().chain(more).copied().collect()
}

#[test]
fn every_command_explains_itself() {
    let env = TestEnv::bare();
    for command in COMMANDS {
        let out = env.ap(&with(command, &["-h"])).exits(0);
        assert!(out.out().contains("Usage") && out.stderr.is_empty(), "{out}");
    }
    for words in [&["-h"] as &[&str], &["help"]] {
        let out = env.ap(words).exits(0);
        for command in COMMANDS {
            assert!(out.out().contains(command[0]), "'{}' is not in:\n{out}", command[0]);
        }
    }
    // Both say that what follows `--` is the gate.
    for command in ["attach", "commit"] {
        let out = env.ap(&[command, "-h"]).exits(0);
        assert!(out.out().contains("-- GATE") || out.out().contains("-- <GATE"), "{out}");
    }
}

#[test]
fn help_is_for_programs_too() {
    let env = TestEnv::bare();
    for (word, want) in
        [("attach", "Usage"), ("exit-codes", "129  usage"), ("policy-file", "## A gate")]
    {
        let told = env.ap(&["help", word]).exits(0).out();
        let out = env.ap(&["help", word, "--json"]).exits(0).json();
        assert_eq!(text(&out, "schema"), "agentproto/help/1");
        assert_eq!(text(&out, "text"), told);
        assert!(told.contains(want), "{word}: {told}");
    }
    let out = env.ap(&["help", "stale", "--json"]).exits(0).json();
    assert_eq!((text(&out, "code"), &out["exitCode"]), ("stale".into(), &6.into()));
    assert!(!text(&out, "hint").is_empty());
}

#[test]
fn no_command_lists_the_commands() {
    let env = TestEnv::bare();
    for (words, command) in [(&[] as &[&str], "  attach "), (&["session"], "  adopt ")] {
        let out = env.ap(words).exits(129);
        assert!(out.err().contains(command) && out.stdout.is_empty(), "{out}");
    }
    let out = env.ap(&["--json"]).exits(129);
    let error: serde_json::Value = serde_json::from_str(&out.err()).unwrap();
    assert_eq!(error["error"]["code"], "usage");
}

#[test]
fn unknown_words_are_usage_errors() {
    let env = TestEnv::new();
    for command in COMMANDS {
        let out = env.ap(&with(command, &["--no-such-flag"])).exits(129);
        assert!(out.stdout.is_empty() && out.err().contains("usage"), "{out}");
    }
    for words in [&[] as &[&str], &["no-such-command"], &["policy"], &["policy", "no-such"]] {
        let out = env.ap(words).exits(129);
        assert!(out.stdout.is_empty() && !out.stderr.is_empty(), "{out}");
    }
    let out = env.ap(&["statu"]).exits(129);
    assert!(out.err().contains("status"), "no near miss named: {out}");
}

#[test]
fn flags_of_later_versions_do_not_exist_yet() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    for flag in ["--judge", "--scope", "--next", "--sandbox", "--env", "--file"] {
        env.ap(&["attach", &session, flag, "x", "--", "true"]).exits(129);
    }
    for flag in ["--clean", "--yes"] {
        let args = ["commit", flag, "--path", "a.txt", "-m", "m", "--", "true"];
        env.ap(&args).exits(129);
    }
}

#[test]
fn json_errors_are_one_object_on_stderr() {
    let env = TestEnv::new();
    for (args, code, exit) in [
        (&["policy", "show", "nothing", "--json"] as &[&str], "no-such-policy", 4),
        (&["status", "--no-such-flag", "--json"], "usage", 129),
        (&["events", "--since", &"1".repeat(40), "--json"], "no-such-cursor", 4),
    ] {
        let out = env.ap(args).exits(exit);
        assert!(out.stdout.is_empty(), "{out}");
        let error: serde_json::Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(text(&error["error"], "code"), code, "{out}");
        assert!(!text(&error["error"], "message").is_empty());
        assert!(!text(&error["error"], "hint").is_empty());
        assert!(text(&error, "schema").starts_with("agentproto/"), "{out}");
    }
}

#[test]
fn text_errors_say_code_and_next_step() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let out = env.ap(&["attach", &session, "--", "test", "-f", "a.txt"]).exits(6);
    for word in ["not-allowlisted", "test", "allowed-commands.json"] {
        assert!(out.err().contains(word), "'{word}' is not in: {out}");
    }
    assert!(out.stdout.is_empty());
}

#[test]
fn reading_commands_answer_one_object_whatever_the_user_configured() {
    let env = TestEnv::new();
    env.governed("f.txt");
    for (name, value) in [
        ("color.ui", "always"),
        ("log.showSignature", "true"),
        ("status.short", "true"),
        ("column.ui", "always"),
        ("core.abbrev", "4"),
        ("log.decorate", "full"),
        ("diff.external", "/bin/false"),
        ("log.date", "relative"),
    ] {
        env.global(name, value);
    }
    for command in READING {
        let out = env.ap(&with(command, &["--json"])).exits(0);
        assert!(text(&out.json(), "schema").starts_with("agentproto/"), "{out}");
        let plain = env.ap(&with(command, &[])).exits(0).out();
        assert!(!plain.contains('\u{1b}'), "colour in a pipe: {plain:?}");
    }
}

#[test]
fn a_closed_pipe_ends_quietly_and_a_full_device_does_not() {
    let env = TestEnv::new();
    env.governed("f.txt");
    // So that every list has something to write.
    env.awaiting("open.txt");
    for command in READING {
        for more in [&[] as &[&str], &["--json"]] {
            let mut child = env.tool(&with(command, more)).start();
            drop(child.stdout.take());
            let out = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr);
            assert!(said.is_empty(), "{command:?} with a closed pipe says: {said}");
            assert!(!matches!(out.status.code(), Some(1..=129)), "{command:?}: {}", out.status);

            let full = File::options().write(true).open("/dev/full").unwrap();
            let out = env.tool(&with(command, more)).stdout(Stdio::from(full)).done();
            assert!(out.code() != 0 && !out.stderr.is_empty(), "a full device: {out}");
            assert!(!out.err().contains("panicked"), "{out}");
        }
    }
}

#[test]
fn reading_appends_nothing() {
    let env = TestEnv::new();
    let (policy, _) = env.governed("f.txt");
    let session = env.adopt("looked at");
    let before = env.snapshot();
    for command in READING {
        env.ap(command).exits(0);
    }
    for args in [
        &["policy", "show", &policy] as &[&str],
        &["session", "show", &session],
        &["status", &policy],
        &["log"],
        &["log", &policy],
        &["verify", "main~1..main"],
        &["events", "--since", "tip"],
        &["wait", &policy, "--until", "done", "--timeout", "0s"],
    ] {
        env.ap(args).exits(0);
    }
    before.assert_same(&env.snapshot(), "reading");
}

/// Exit code and answer of `wait`.
fn wait(env: &TestEnv, args: &[&str]) -> (i32, serde_json::Value) {
    let out = env.ap(&with_wait(args));
    (out.code(), out.json())
}

fn with_wait<'a>(args: &[&'a str]) -> Vec<&'a str> {
    ["wait", "--json"].iter().chain(args).copied().collect()
}

/// Codes of answers that are no errors, each with the command that gives its exit code.
#[test]
fn wait_and_verify_answer_by_their_exit_code() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let (code, answer) = wait(&env, &[&session, "--until", "turn-end", "--timeout", "0s"]);
    assert_eq!((code, &answer["met"]), (3, &false.into()), "timeout: {answer:#}");

    let policy = env.attach(&session, &["--", "false"]);
    env.turn_end(&session, &policy).exits(1);
    let (code, answer) = wait(&env, &[&policy, "--until", "done", "--timeout", "0s"]);
    assert_eq!((code, &answer["met"]), (1, &false.into()), "gate-red: {answer:#}");

    let waiting = env.awaiting("f.txt");
    let (code, answer) = wait(&env, &[&waiting, "--timeout", "0s"]);
    assert_eq!((code, &answer["met"]), (5, &false.into()), "an ack is needed: {answer:#}");

    let idle = env.adopt("idle");
    for ended in [&session, &idle] {
        env.ap(&["session", "report", ended, "exited", "--data", "{\"code\":0}"]).exits(0);
        assert_eq!(wait(&env, &[ended, "--until", "exited", "--timeout", "0s"]).0, 0);
    }
    // One of them had finished a turn, which stays true.
    let (code, answer) = wait(&env, &[&session, "--until", "turn-end", "--timeout", "0s"]);
    assert_eq!((code, &answer["met"]), (0, &true.into()), "already true: {answer:#}");
    let (code, answer) = wait(&env, &[&idle, "--until", "turn-end", "--timeout", "5s"]);
    assert_eq!((code, &answer["met"]), (4, &false.into()), "can-never-be: {answer:#}");
    assert_eq!(text(&answer, "code"), "can-never-be");

    env.git(&["commit", "-q", "--allow-empty", "-m", "by hand"]);
    let out = env.ap(&["verify", "main~1..main", "--json"]).exits(1);
    assert_eq!(text(&out.json()["commits"][0], "outcome"), "ungoverned", "not-governed: {out}");
    // An older commit is looked at when it is named; an empty range holds nothing that is wrong.
    let out = env.ap(&["verify", "main~1", "--json"]).exits(1);
    assert_eq!(text(&out.json()["commits"][0], "outcome"), "ungoverned", "{out}");
    assert!(env.ap(&["verify", "main..main"]).exits(0).out().contains("no commit in that range"));
}

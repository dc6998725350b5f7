//! What commands say beside their answers: help for programs, errors, exit codes. What holds for every command is in `contract`.

use crate::{env::TestEnv, house::text};

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
fn flags_of_later_versions_do_not_exist_yet() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    for flag in ["--judge", "--next", "--sandbox", "--env", "--file"] {
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

//! Failure cases about what green is worth: commands that hide a failure, slip past the allowlist, or are not ours to run.

use crate::{
    env::{Output, TestEnv, allowlist},
    house::text,
};
use serde_json::{Value, json};
use std::{fs, path::Path};

/// That a command was refused with this code, and changed nothing.
#[track_caller]
fn refused(env: &TestEnv, args: &[&str], code: &str, exit: i32) {
    let before = env.snapshot();
    let out = env.ap(args).exits(exit);
    assert!(out.err().contains(code), "{code}: {out}");
    before.assert_same(&env.snapshot(), code);
}

/// What a policy of the session's next turn says.
fn judged(env: &TestEnv, session: &str, rest: &[&str]) -> Value {
    let policy = env.attach(session, &[&["--next-turn"], rest].concat());
    env.turn_end(session, &policy);
    env.policy(&policy)
}

#[test]
fn case_086_no_form_of_a_gate_hides_a_failing_step() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    for masked in ["false | cat", "false; true", "false || true", "false & true"] {
        refused(&env, &["attach", &session, "--gate", masked], "gate-needs-shell", 6);
    }
    // A shell by its name has to be allowed by a person.
    refused(&env, &["attach", &session, "--", "sh", "-c", "false; true"], "not-allowlisted", 6);
    // Of several gates each one has to be green, and each one is on record.
    let red = judged(&env, &session, &["--gate", "true", "--gate", "false", "--", "true"]);
    assert_eq!(text(&red, "reason"), "gate-red", "{red:#}");
    assert_eq!(red["lastGate"]["index"], json!(1));
    let shown = env.ap(&["policy", "show", &text(&red, "policyId")]).exits(0).out();
    let said: Vec<&str> = shown.lines().filter(|line| line.contains("  gate  ")).collect();
    assert_eq!(said.len(), 3, "{shown}");
    for (line, want) in said.iter().zip(["true: pass", "false: fail", "true: not run"]) {
        assert!(line.contains(want), "{line}");
    }
}

#[test]
fn case_088_nothing_that_tested_nothing_is_green() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script("calls.sh", "no-such-program-anywhere");
    let session = env.adopt("s");
    refused(&env, &["attach", &session, "--gate", ""], "usage", 129);
    refused(&env, &["attach", &session, "--gate", "# only a comment"], "usage", 129);
    let listed = allowlist(&["./no-such-script", "./calls.sh"]);
    fs::write(env.repo().join(".agentproto/allowed-commands.json"), listed).unwrap();
    env.git(&["commit", "-qam", "allow"]);
    refused(&env, &["attach", &session, "--", "./no-such-script"], "gate-not-found", 6);
    env.ap(&["wait", "undefined", "--until", "settled"]).exits(4);
    env.write("a.txt", "1\n");
    refused(&env, &["commit", "--path", "a.txt", "-m", "m"], "gate-required", 6);
    // It ran, but what it was to run was not there.
    let told = judged(&env, &session, &["--", "./calls.sh"]);
    assert_eq!(text(&told, "reason"), "gate-not-runnable", "{told:#}");
    assert!(text(&told, "because").contains("was not found"), "{told:#}");
    // The exit code of a run that was empty, and what it had to print.
    let told = judged(&env, &session, &["--require-output", "[1-9] passed", "--", "true"]);
    assert_eq!(text(&told, "reason"), "output-missing", "{told:#}");
    // Without a gate it says so, for ever.
    let args = ["commit", "--ungated", "--no-ack", "--json", "-m", "m", "--path", "a.txt"];
    env.ap(&args).exits(0);
    let told = env.ap(&["verify", "HEAD", "--json"]).json();
    assert_eq!(text(&told["commits"][0], "outcome"), "ungated", "{told:#}");
}

/// Every one of these has slipped past a list that compared text.
const SPELLINGS: [&[&str]; 11] = [
    &["git", "-c", "alias.x=!touch pwn", "x"],
    &["git", "-C", "/", "status"],
    &["git", "--no-pager", "status"],
    &["git", "grep", "-Otouch pwn", "a"],
    &["git", "-c", "core.pager=touch pwn", "-p", "log"],
    &["git", "help", "-c", "core.pager=x"],
    &["./git", "-c", "touch pwn"],
    &["./git", "status"],
    &["env", "X=1", "git", "status"],
    &["git", "Status"],
    &["git", "stat"],
];

/// A repository with a `git` of somebody's in it, which leaves `pwn` behind.
fn with_planted_git() -> (TestEnv, String) {
    let env = TestEnv::new();
    env.write_script("git", "#!/bin/sh\ntouch \"$(dirname \"$0\")/pwn\"\n");
    env.write(".git/info/exclude", "git\n");
    let session = env.adopt("s");
    (env, session)
}

fn assert_unharmed(env: &TestEnv) {
    for dir in [env.repo(), env.home(), env.path("")] {
        assert!(!dir.join("pwn").exists(), "{} was run in", dir.display());
    }
}

#[test]
fn case_098_no_spelling_slips_past_the_allowlist() {
    let (env, session) = with_planted_git();
    for words in SPELLINGS {
        let all = [&["exec", &session, "--"][..], words].concat();
        refused(&env, &all, "not-allowlisted", 6);
    }
    for text in ["git status; touch pwn", "git status\ntouch pwn", "git status && touch pwn"] {
        refused(&env, &["exec", &session, "--", text], "usage", 129);
        let through_a_shell = ["exec", &session, "--", "sh", "-c", text];
        refused(&env, &through_a_shell, "not-allowlisted", 6);
    }
    // What is allowed is run without a shell, and found where nobody plants anything.
    let path = format!("{}:.:/usr/bin:/bin", env.repo().display());
    let args = ["exec", &session, "--", "git", "status", "--short", "$(touch pwn)", ";touch pwn"];
    env.binary(&args).env("PATH", path).done().exits(0);
    assert_unharmed(&env);
}

#[test]
fn case_106_rules_about_arguments_hold_on_every_road() {
    let (env, session) = with_planted_git();
    env.write("a.txt", "1\n");
    let planted = env.repo().join("git");
    let planted = planted.to_str().unwrap();
    for words in SPELLINGS.into_iter().chain([&[planted, "status"][..]]) {
        refused(&env, &[&["attach", &session, "--"][..], words].concat(), "not-allowlisted", 6);
        let one = shell_words::join(words);
        refused(&env, &["attach", &session, "--gate", &one], "not-allowlisted", 6);
        let commit = ["commit", "--path", "a.txt", "-m", "m", "--"];
        refused(&env, &[&commit[..], words].concat(), "not-allowlisted", 6);
        refused(&env, &[&["exec", &session, "--"][..], words].concat(), "not-allowlisted", 6);
        let file = env.path("policy.json");
        let gate = json!({ "gate": { "command": words[0], "args": &words[1..] } });
        fs::write(&file, gate.to_string()).unwrap();
        let attach = ["attach", &session, "--file", file.to_str().unwrap()];
        refused(&env, &attach, "not-allowlisted", 6);
    }
    let told = judged(&env, &session, &["--", "git", "status", "--short"]);
    assert_eq!(text(&told, "status"), "done", "{told:#}");
    assert_unharmed(&env);
}

#[test]
fn case_100_no_configuration_of_the_repository_runs_in_our_name() {
    let env = TestEnv::new();
    let spy = env.path("spy");
    fs::write(&spy, format!("#!/bin/sh\ntouch '{}'\nexit 1\n", env.path("pwn").display())).unwrap();
    fs::set_permissions(&spy, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let hooks = env.path("hooks");
    fs::create_dir(&hooks).unwrap();
    for hook in ["reference-transaction", "post-index-change", "post-checkout"] {
        fs::copy(&spy, hooks.join(hook)).unwrap();
    }
    let spy = spy.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "core.askPass",
        "core.sshCommand",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "diff.external",
        "diff.x.textconv",
        "diff.x.command",
        "credential.helper",
        "gpg.program",
        "pager.log",
        "uploadpack.packObjectsHook",
    ] {
        env.git(&["config", key, spy]);
    }
    env.write(".git/info/attributes", "*.txt diff=x\n");
    let session = env.adopt("s");
    env.write("a.txt", "1\n");
    env.ap(&["status"]).exits(0);
    env.ap(&["exec", &session, "--", "true"]).exits(0);
    let scope = env.ap(&["attach", &session, "--next-turn", "--scope", "/a.txt", "--json"]);
    env.turn_end(&session, &text(&scope.exits(0).json(), "policyId")).exits(0);
    let policy = env.awaiting("b.txt");
    for args in [&["policy", "show", &policy][..], &["log"], &["events"], &["fsck"]] {
        env.ap(args).exits(0);
    }
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    env.ap(&["verify", "HEAD"]).exits(0);
    env.ap(&["gc"]).exits(0);
    assert_unharmed(&env);
}

/// Exit code, outcome and reason of one commit.
fn verdict(env: &TestEnv, dir: &Path) -> (i32, String, String) {
    let out: Output = env.ap_in(dir, &["verify", "HEAD^..HEAD", "--json"]);
    let told = out.json();
    let commit = &told["commits"][0];
    (out.code(), text(commit, "outcome"), commit["reason"].as_str().unwrap_or("").to_owned())
}

#[test]
fn case_102_green_is_of_one_content_and_survives_no_rebase() {
    let env = TestEnv::new();
    let linked = env.worktree("t1");
    let session = env.adopt_in(&linked, "t1");
    let policy = env.awaiting_of(&session, &linked, "f");
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    let old = env.git_in(&linked, &["rev-parse", "HEAD"]);
    assert_eq!(verdict(&env, &linked).0, 0);
    // The base moves, and the branch goes along.
    env.write("a.txt", "base\n");
    env.git(&["commit", "-qam", "base"]);
    env.git_in(&linked, &["rebase", "-q", "main"]);
    let (exit, outcome, _) = verdict(&env, &linked);
    assert_eq!((exit, outcome.as_str()), (1, "ungoverned"), "nobody gated that tree");
    // A message alone: the content is what was approved, and that is said; the commit is another one.
    env.git_in(&linked, &["reset", "-q", "--hard", &old]);
    env.git_in(&linked, &["commit", "-q", "--amend", "-m", "reworded"]);
    let (exit, outcome, reason) = verdict(&env, &linked);
    assert_eq!((exit, outcome.as_str()), (1, "ungoverned"));
    assert!(reason.contains(&old) && reason.contains(&policy), "{reason}");
    // Other content: nothing of the old result is left.
    fs::write(linked.join("f"), "2\n").unwrap();
    env.git_in(&linked, &["commit", "-q", "-a", "--amend", "--no-edit"]);
    let (exit, outcome, reason) = verdict(&env, &linked);
    assert_eq!((exit, outcome.as_str()), (1, "ungoverned"));
    assert!(!reason.contains(&old), "{reason}");
}

#[test]
fn case_104_a_neighbours_file_is_named_by_the_gate_it_turned_red() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script("tidy.sh", "! ls *.broken 2>/dev/null");
    env.write("a.txt", "1\n");
    env.write("other.broken", "");
    let red = env.commit(&["a.txt"], &["./tidy.sh"]).exits(1).json();
    let gate = &red["lastGate"];
    assert_eq!((&gate["unlistedChanges"], &gate["beside"]), (&json!(1), &json!(["other.broken"])));
    let shown = env.ap(&["policy", "show", &text(&red, "policyId")]).exits(0).out();
    assert!(shown.contains("uncommitted beside the listed files: 1 (other.broken)"), "{shown}");
    // Very many are counted, and some named.
    for n in 0..20 {
        env.write(&format!("x{n:02}.broken"), "");
    }
    let red = env.commit(&["a.txt"], &["./tidy.sh"]).exits(1).json();
    assert_eq!(red["lastGate"]["unlistedChanges"], json!(21));
    assert_eq!(red["lastGate"]["beside"].as_array().unwrap().len(), 5);
    let shown = env.ap(&["policy", "show", &text(&red, "policyId")]).exits(0).out();
    assert!(shown.contains("beside the listed files: 21 (other.broken, "), "{shown}");
    assert!(shown.contains(", …)"), "{shown}");
    // Green beside somebody's files is marked so.
    let green = env.commit(&["a.txt"], &["true"]).exits(0).json();
    assert_eq!(green["lastGate"]["unlistedChanges"], json!(21), "{green:#}");
    let note = env.git(&["notes", "--ref=agentproto/gates", "show", "HEAD"]);
    assert!(note.contains(" dirty=21 isolation=worktree "), "{note}");
}

//! Scope gates: a session may change what is inside, and whoever changes anything else is told what.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use git_agentproto::limits;
use serde_json::{Value, json};
use std::fs;

/// A repository with `src/` and `docs/`, and a session in it.
fn prepared() -> (TestEnv, String) {
    on(TestEnv::new())
}

fn on(env: TestEnv) -> (TestEnv, String) {
    for name in ["src/x", "docs/y"] {
        env.write(name, "base\n");
    }
    env.git(&["add", "."]);
    env.git(&["commit", "-qm", "files"]);
    let session = env.adopt("s");
    (env, session)
}

/// What a policy of the session's next turn says.
fn judged(env: &TestEnv, session: &str, rest: &[&str]) -> Value {
    let args = [&["--next-turn"], rest].concat();
    let policy = env.attach(session, &args);
    env.turn_end(session, &policy);
    env.policy(&policy)
}

#[track_caller]
fn assert_outside(policy: &Value, names: &str) {
    assert_eq!(text(policy, "status"), "blocked", "{policy:#}");
    assert_eq!(text(policy, "reason"), "out-of-scope", "{policy:#}");
    let gate = &policy["lastGate"];
    assert_eq!(text(gate, "verdict"), "fail", "{gate:#}");
    assert_eq!(text(gate, "because"), names, "{gate:#}");
}

#[test]
fn what_lies_outside_of_the_scope_is_red_and_named() {
    let (env, session) = prepared();
    env.write("src/x", "other\n");
    env.write("src/new", "1\n");
    let scope = ["--scope", "/src/", "--scope", "!/src/secret"];
    let green = judged(&env, &session, &scope);
    assert_eq!(text(&green, "status"), "done", "{green:#}");
    assert_eq!(green["gates"], json!([{ "scope": ["/src/", "!/src/secret"] }]));

    env.write("src/secret", "1\n");
    env.write("docs/y", "other\n");
    fs::remove_file(env.repo().join("a.txt")).unwrap();
    let red = judged(&env, &session, &scope);
    assert_outside(&red, "3 outside the scope: 'a.txt', 'docs/y', 'src/secret'");
    assert_eq!(text(&red["lastGate"], "tail"), "a.txt\ndocs/y\nsrc/secret\n");
    let shown = env.ap(&["policy", "show", &text(&red, "policyId")]).exits(0).out();
    for line in ["gate      --scope /src/ --scope !/src/secret: fail, ", "    | docs/y\n"] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    assert!(!shown.contains("not run"), "{shown}");

    // Committed is changed as well, and so it stays.
    env.git(&["add", "-A"]);
    env.git(&["commit", "-qm", "outside"]);
    let red = judged(&env, &session, &scope);
    assert_outside(&red, "3 outside the scope: 'a.txt', 'docs/y', 'src/secret'");
    env.git(&["revert", "--no-edit", "HEAD"]);
    assert_eq!(text(&judged(&env, &session, &scope), "status"), "done");
}

#[test]
fn a_scope_is_judged_before_the_other_gates() {
    let (env, session) = prepared();
    env.write("docs/y", "other\n");
    let flags = ["--gate", "true", "--scope", "/src/", "--", "false"];
    let red = judged(&env, &session, &flags);
    assert_outside(&red, "1 outside the scope: 'docs/y'");
    assert_eq!(red["lastGate"]["index"], json!(0));
    let commands: Vec<_> = red["gates"].as_array().unwrap().iter().map(|g| &g["command"]).collect();
    assert_eq!(commands, [&Value::Null, &json!("true"), &json!("false")]);
    // In a file the order is its own; the program of each gate is that gate's.
    let file = env.path("policy.json");
    let gates = json!([
        { "command": "ls" }, { "scope": ["/src/"] }, { "command": "false" },
    ]);
    fs::write(&file, json!({ "gates": gates, "nextTurn": true }).to_string()).unwrap();
    let policy = env.attach(&session, &["--file", file.to_str().unwrap()]);
    env.turn_end(&session, &policy);
    let red = env.policy(&policy);
    assert_outside(&red, "1 outside the scope: 'docs/y'");
    assert_eq!(red["lastGate"]["index"], json!(1));
    let programs: Vec<_> = red["gates"].as_array().unwrap().iter().map(|g| &g["path"]).collect();
    assert!(programs[0].as_str().unwrap().ends_with("/ls"), "{programs:?}");
    assert_eq!(programs[1], &Value::Null);
    assert!(programs[2].as_str().unwrap().ends_with("/false"), "{programs:?}");
}

#[test]
fn a_commit_within_its_scope_is_governed_and_its_gate_line_is_read() {
    for hash in ["sha1", "sha256"] {
        let (env, _) = on(TestEnv::of_hash(hash));
        env.write("src/x", "other\n");
        let args = ["commit", "--json", "-m", "m", "--path", "src/x", "--scope", "/src/"];
        let out = env.ap(&args).exits(5).json();
        let policy = text(&out, "policyId");
        env.ap(&["ack", &policy, "--yes"]).exits(0);
        let note = env.git(&["notes", "--ref=agentproto/gates", "show", "main"]);
        assert!(note.starts_with("agentproto-gate/1 pass "), "{note}");
        assert!(note.contains(" exit=- program=- argv=--scope%00/src/%00 "), "{note}");
        let told = env.ap(&["verify", "main", "--json"]).exits(0).json();
        assert_eq!(text(&told["commits"][0], "outcome"), "governed", "{told:#}");

        env.write("src/x", "third\n");
        env.write("docs/y", "other\n");
        let out = env.ap(&args).exits(1).json();
        assert_outside(&out, "1 outside the scope: 'docs/y'");
    }
}

#[test]
fn very_many_paths_outside_are_counted() {
    let (env, session) = prepared();
    for n in 0..limits::SCOPE_LISTED + 7 {
        env.write(&format!("out/{n:05}"), "");
    }
    let red = judged(&env, &session, &["--scope", "/src/"]);
    let because = text(&red["lastGate"], "because");
    let all = limits::SCOPE_LISTED + 7;
    assert!(because.starts_with(&format!("{all} outside the scope: 'out/00000', ")), "{because}");
    let more = format!("'out/00019', and {} more", all - 20);
    assert!(because.ends_with(&more), "{because}");
    assert!(text(&red["lastGate"], "tail").ends_with("out/00999\nand 7 more\n"), "{red:#}");
}

/// What cannot be judged is refused while somebody looks, and broken when nobody does.
#[test]
fn a_base_that_says_nothing_is_refused_and_one_that_is_gone_is_broken() {
    let (env, _) = prepared();
    env.write("docs/y", "somebody else's\n");
    let dirty = env.adopt("dirty");
    let told = env.ap(&["session", "show", &dirty, "--json"]).exits(0).json();
    assert_eq!(told["dirtyBase"], json!(true), "{told:#}");
    let before = env.snapshot();
    let refused = env.ap(&["attach", &dirty, "--scope", "/src/"]).exits(6);
    assert!(refused.err().contains("scope-dirty-base"), "{refused}");
    before.assert_same(&env.snapshot(), "a refused attach");
    // Whoever names the base means it.
    let adopt =
        |base: &str| -> Output { env.ap(&["session", "adopt", "--base", base, "--json"]).exits(0) };
    let named = text(&adopt("HEAD").json(), "sessionId");
    assert_outside(&judged(&env, &named, &["--scope", "/src/"]), "1 outside the scope: 'docs/y'");

    env.git(&["checkout", "-q", "docs/y"]);
    env.git(&["switch", "-q", "-c", "lost"]);
    env.git(&["commit", "-q", "--allow-empty", "-m", "lost"]);
    let session = text(&adopt("lost").json(), "sessionId");
    let lost = env.git(&["rev-parse", "lost"]);
    let policy = env.attach(&session, &["--scope", "/src/"]);
    env.git(&["switch", "-q", "main"]);
    env.git(&["branch", "-q", "-D", "lost"]);
    fs::remove_file(env.repo().join(format!(".git/objects/{}/{}", &lost[..2], &lost[2..])))
        .unwrap();
    env.turn_end(&session, &policy).exits(1);
    let told = env.policy(&policy);
    assert_eq!(text(&told, "reason"), "scope-without-base", "{told:#}");
    assert_eq!(text(&told["lastGate"], "verdict"), "broken", "{told:#}");
}

#[test]
fn a_scope_of_several_sessions_is_that_of_one_worktree() {
    let (env, session) = prepared();
    let other = env.adopt_in(&env.worktree("t1"), "other");
    let refused = env.ap(&["attach", &session, &other, "--scope", "/src/"]).exits(6);
    assert!(refused.err().contains("members-in-different-worktrees"), "{refused}");
    env.ap(&["attach", &session, &other, "--", "true"]).exits(0);
}

#[test]
fn a_scope_is_asked_again_as_it_was_typed() {
    let (env, session) = prepared();
    env.write("docs/y", "other\n");
    let red = judged(&env, &session, &["--scope", "/src/", "--scope", "!x y", "--", "true"]);
    let next = text(&red, "nextStep");
    assert!(next.contains("'--scope=/src/' '--scope=!x y' -- true"), "{next}");
    env.git(&["checkout", "-q", "docs/y"]);
    let again = env.ap(&["policy", "regate", &text(&red, "policyId"), "--json"]).exits(0).json();
    assert_eq!(text(&again, "status"), "done", "{again:#}");
    assert_eq!(again["gates"][0], json!({ "scope": ["/src/", "!x y"] }));
}

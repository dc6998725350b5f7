//! Policies of several sessions, policies that follow each other, and policies from a file.

use crate::{env::TestEnv, house::text, markdown::document};
use serde_json::{Value, json};
use std::fs;

fn file(env: &TestEnv, name: &str, value: &Value) -> String {
    let path = env.path(name);
    fs::write(&path, value.to_string()).unwrap();
    path.display().to_string()
}

fn turn_ends(env: &TestEnv, session: &str) {
    env.ap(&["session", "report", session, "turn-end"]).exits(0);
}

/// Codes and fields of everything that was in the way.
fn problems(out: &crate::env::Output) -> Vec<String> {
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    let error = &error["error"];
    let one = |p: &Value| format!("{} {}", text(p, "code"), text(p, "field"));
    match error["details"].as_array() {
        Some(all) if !all.is_empty() => all.iter().map(one).collect(),
        _ => vec![text(error, "code")],
    }
}

#[test]
fn a_group_is_gated_once_when_all_are_finished() {
    let env = TestEnv::new();
    let (one, two) = (env.adopt("one"), env.adopt("two"));
    let args = ["attach", "one", "two", &one, "--json", "--", "true"];
    let attached = env.ap(&args).exits(0).json();
    assert_eq!(attached["sessionIds"], json!([one, two]), "named twice, there once");
    let policy = text(&attached, "policyId");
    turn_ends(&env, &two);
    let shown = env.policy(&policy);
    assert_eq!((text(&shown, "status"), &shown["pending"]), ("watching".into(), &json!([one])));
    let said = env.ap(&["policy", "show", &policy]).exits(0).out();
    assert!(said.contains(&format!("{one} (awaited)\n")), "{said}");
    assert!(said.contains(&format!("{two}\n")), "{said}");
    turn_ends(&env, &one);
    assert_eq!(text(&env.policy(&policy), "status"), "done");
    let events = ["events", "--policy", &policy, "--type", "policy:gating", "--json"];
    assert_eq!(env.ap(&events).exits(0).json()["events"].as_array().unwrap().len(), 1);
}

#[test]
fn members_of_a_commit_are_in_one_worktree_and_gates_run_where_it_is_said() {
    let env = TestEnv::new();
    let tree = env.worktree("tree");
    fs::write(tree.join("only-here"), "x\n").unwrap();
    let (one, two) = (env.adopt("one"), env.adopt_in(&tree, "two"));
    let commit = ["attach", "one", "two", "--path", "a.txt", "-m", "m", "--json", "--", "true"];
    let before = env.snapshot();
    let out = env.ap(&commit).exits(6);
    before.assert_same(&env.snapshot(), "a refused attach");
    let who = format!("\"{two} is in worktree 'tree', the commit would be made in ");
    assert!(out.err().contains("members-in-different-worktrees"), "{out}");
    assert!(out.err().contains(&who), "{out}");
    let gate = ["--", "ls", "only-here"];
    let attach = |more: &[&str]| {
        let args: Vec<_> =
            ["attach", "one", "two", "--json"].iter().chain(more).chain(&gate).copied().collect();
        text(&env.ap(&args).exits(0).json(), "policyId")
    };
    let (first, second) = (attach(&[]), attach(&["--gate-session", "two"]));
    turn_ends(&env, &one);
    env.ap(&["session", "report", &two, "turn-end"]);
    assert_eq!(text(&env.policy(&first), "reason"), "gate-red");
    let shown = env.policy(&second);
    assert_eq!((text(&shown, "status"), text(&shown, "gateSession")), ("done".into(), two));
}

#[test]
fn what_follows_is_checked_beforehand_and_attached_when_the_one_before_has_landed() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let next = json!({"label": "after", "gates": [{"command": "ls", "args": ["f.txt"]}],
        "commit": {"paths": ["a.txt"], "message": "second"}});
    let next = file(&env, "next.json", &next);
    env.write("f.txt", "1\n");
    env.write("a.txt", "changed\n");
    let policy =
        env.attach(&session, &["--path", "f.txt", "-m", "first", "--next", &next, "--", "true"]);
    env.turn_end(&session, &policy).exits(5);
    assert_eq!(env.policy(&policy)["nextPolicyId"], Value::Null, "it is not there yet");
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    let second = text(&env.policy(&policy), "nextPolicyId");
    let shown = env.policy(&second);
    let found = (text(&shown, "status"), text(&shown, "label"), &shown["paths"]);
    assert_eq!(found, ("awaiting-ack".into(), "after".into(), &json!(["a.txt"])));
    assert_eq!(text(&shown, "parent"), env.git(&["rev-parse", "main"]), "on top of the first");
    env.ap(&["ack", "after", "--yes"]).exits(0);
    assert_eq!(env.git(&["log", "--format=%s", "-2", "main"]), "second\nfirst");
    env.ap(&["verify", "main~2..main"]).exits(0);
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn what_is_wrong_with_anything_that_follows_is_told_at_attach() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let before = env.snapshot();
    let tried = |next: &Value| {
        let next = file(&env, "next.json", next);
        env.ap(&["attach", &session, "--next", &next, "--json", "--", "true"])
    };
    let deep = (0..16).fold(json!({}), |inner, _| json!({ "next": inner }));
    let bad_gate = json!({"gates": [{"command": "no-such-program"}]});
    let bad_commit = json!({"next": {"then": "commit", "gates": [{"command": "true"}],
        "commit": {"paths": ["a.txt", ".git/config"], "message": "m"}}});
    let path = json!({"b64": "YS50eHQ=", "forceIgnored": true});
    let path_with_more = json!({"commit": {"paths": [path], "message": "m"}});
    for (next, exit, want) in [
        (json!({"next": {"then": "commit"}}), 129, "no-paths"),
        (bad_gate, 6, "not-allowlisted"),
        (bad_commit, 6, "path-in-git-dir"),
        (deep, 6, "too-many"),
        (json!({"sessionIds": ["s"]}), 129, "usage"),
        (json!({"since": "1"}), 129, "usage"),
        (json!({"onFail": {"retries": 1}}), 129, "unknown-field"),
        (json!({"onFail": {"nudge": "try again"}}), 129, "usage"),
        (json!({"onFail": {"maxRetries": 21}}), 129, "usage"),
        (json!({"gate": {"command": "true"}, "onFail": {}}), 6, "not-promptable"),
        (json!({"gate": {"command": "true"}, "endSession": true}), 6, "not-launched"),
        (json!({"then": "emit", "commit": {"paths": ["a.txt"], "message": "m"}}), 129, "usage"),
        (json!([]), 129, "usage"),
        (path_with_more, 129, "unknown-field"),
        (json!({"commit": {"paths": [{"b64": 1}], "message": "m"}}), 129, "usage"),
        (json!({"gate": {"command": "true\0"}}), 129, "usage"),
        (json!({"next": {"gates": [{"command": "true", "args": ["a", "b\0c"]}]}}), 129, "usage"),
    ] {
        let out = tried(&next).exits(exit);
        assert!(problems(&out).iter().any(|p| p.starts_with(want)), "{next} {out}");
    }
    before.assert_same(&env.snapshot(), "refused attaches");
}

#[test]
fn a_policy_comes_from_a_file_with_the_names_of_the_flags() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    fs::create_dir(env.repo().join("sub")).unwrap();
    env.write("sub/f.txt", "1\n");
    let policy = json!({
        "sessionId": "s", "label": "from-file", "then": "commit", "onStale": "block", "expires": "2h",
        "gate": {"command": "ls", "args": ["f.txt"], "cwd": "sub", "timeoutMs": 30_000},
        "commit": {"paths": ["sub/f.txt", {"b64": "YS50eHQ="}], "message": "of a file"},
    });
    let path = file(&env, "policy.json", &policy);
    let out =
        env.ap_in(&env.repo().join("sub"), &["attach", "--file", &path, "--json"]).exits(0).json();
    assert_eq!(out["paths"], json!(["sub/f.txt", "a.txt"]), "from the top, wherever one stands");
    let id = text(&out, "policyId");
    env.turn_end(&session, &id).exits(5);
    env.ap(&["ack", "from-file", "--yes"]).exits(0);
    assert_eq!(env.git(&["log", "--format=%s", "-1", "main"]), "of a file");
    env.ap(&["attach", "--file", &path, "s"]).exits(129);
    env.ap(&["attach", "--file", &path, "--label", "x"]).exits(129);
    env.ap(&["attach", "--file", &file(&env, "none.json", &json!({}))]).exits(129);
    env.ap(&["attach", "--file", "nowhere.json", "s"]).exits(129);
    let nul = json!({"gate": {"command": "ls", "args": ["a\0b"]},
        "commit": {"paths": ["a.txt"], "message": "of\0a file"}});
    let out = env.ap(&["attach", "--file", &file(&env, "nul.json", &nul), "s"]).exits(129);
    assert_eq!(out.err().matches("leave the NUL byte out").count(), 2, "{out}");
    assert!(!out.err().contains("answer anew"), "{out}");
    env.ap(&["attach", "--file", &file(&env, "empty.json", &json!({})), "s"]).exits(0);
}

/// The JSON behind `<!-- NAME -->` in the document about policies in files.
fn example(name: &str) -> Value {
    let text = document("docs/policy-file.md");
    let (_, marked) = text.split_once(&format!("<!-- {name} -->\n```json\n")).expect("marked");
    serde_json::from_str(marked.split_once("```").expect("a block").0).unwrap()
}

#[test]
fn the_examples_of_policies_in_files_work() {
    let env = TestEnv::new();
    let session = env.adopt("parser");
    fs::create_dir(env.repo().join("src")).unwrap();
    env.write("src/parser.rs", "// tabs\n");
    let path = file(&env, "commit.json", &example("commit.json"));
    let id = text(&env.ap(&["attach", "--file", &path, "--json"]).exits(0).json(), "policyId");
    env.turn_end(&session, &id).exits(5);
    env.ap(&["ack", "parser-fix", "--yes"]).exits(0);
    assert_eq!(env.git(&["log", "--format=%s", "-1", "main"]), "parser: accept tabs");
    let after = text(&env.policy(&id), "nextPolicyId");
    env.turn_end(&session, &after).exits(0);
    let path = file(&env, "check.json", &example("check.json"));
    let out = env.ap(&["attach", "parser", "--file", &path, "--json"]).exits(0).json();
    env.turn_end(&session, &text(&out, "policyId")).exits(0);
    env.write("src/parser.rs", "// tabs again\n");
    let flags = ["--path", "src/parser.rs", "-m", "m", "--next", &path, "--", "true"];
    env.attach(&session, &[&["--next-turn"] as &[&str], &flags].concat());
}

#[test]
fn every_field_of_a_policy_in_a_file_is_described() {
    let env = TestEnv::new();
    env.adopt("s");
    let document = document("docs/policy-file.md");
    for (policy, heading) in [
        (json!({"nothing": 1}), "## The policy"),
        (json!({"gate": {"nothing": 1}}), "## A gate"),
        (json!({"commit": {"nothing": 1}}), "## The commit"),
    ] {
        let path = file(&env, "policy.json", &policy);
        let out = env.ap(&["attach", "s", "--file", &path]).exits(129);
        assert!(out.err().contains("[unknown-field]"), "{out}");
        assert!(out.err().contains("git agentproto help policy-file"), "{out}");
        let fields = out.err();
        let (_, fields) = fields.split_once("expected one of ").expect("fields are listed");
        let fields = fields.split_once(" at line").expect("with a place").0;
        let (_, section) = document.split_once(heading).expect("a section");
        let section = section.split("\n## ").next().unwrap();
        let described = section.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next());
        let mut described: Vec<_> = described.map(|name| format!("`{name}`")).collect();
        let mut fields: Vec<_> = fields.split(", ").map(str::to_owned).collect();
        described.sort();
        fields.sort();
        assert_eq!(described, fields, "{heading}");
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_in_words_of_json() {
    let env = TestEnv::new();
    env.adopt("s");
    for (policy, want) in [
        (
            r#"{"gate": "./test.sh"}"#,
            "invalid type: string \"./test.sh\", expected a gate: an object",
        ),
        (r#"{"gates": [["ls", []]]}"#, "expected a gate: an object with \"command\" and \"args\""),
        (r#"{"commit": []}"#, "expected a commit: an object"),
        (r#"{"commit": {"paths": [1]}}"#, "expected a path: a text"),
        ("[]", "expected a policy: an object"),
        ("then: commit", "it is no JSON: "),
        ("", "it is no JSON: "),
    ] {
        fs::write(env.path("policy.json"), policy).unwrap();
        let path = env.path("policy.json");
        let out = env.ap(&["attach", "s", "--file", path.to_str().unwrap()]).exits(129);
        assert!(out.err().contains(want), "{policy}: {out}");
        assert!(!out.err().contains("Form"), "{policy}: {out}");
        assert!(out.err().contains("git agentproto help policy-file"), "{policy}: {out}");
    }
}

#[test]
fn what_is_over_is_gated_once_more_as_a_policy_of_its_own() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let next = file(&env, "next.json", &json!({"gate": {"command": "true"}}));
    let policy = env
        .attach(&session, &["--label", "l", "--next", &next, "--gate", "ls f.txt", "--", "true"]);
    env.ap(&["policy", "regate", &policy]).exits(6);
    env.turn_end(&session, &policy).exits(1);
    let step = text(&env.policy(&policy), "nextStep");
    assert_eq!(step, format!("git agentproto policy regate {policy}"), "flags could not say it");
    env.write("f.txt", "1\n");
    let again = env.ap(&["policy", "regate", &policy, "--json"]).exits(0).json();
    let found = (text(&again, "status"), &again["generation"], text(&again, "regateOf"));
    assert_eq!(found, ("done".into(), &json!(2), policy.clone()), "{again:#}");
    assert_eq!(text(&env.policy(&text(&again, "nextPolicyId")), "status"), "done");
    assert_eq!(text(&env.policy(&policy), "status"), "blocked", "what is over stays what it is");
    let third = env.ap(&["policy", "regate", &text(&again, "policyId"), "--json"]).exits(0).json();
    assert_eq!(third["generation"], json!(3));
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn a_commit_is_gated_once_more_with_all_that_was_asked() {
    let env = TestEnv::new();
    env.write("f.txt", "1\n");
    let asked = [
        "commit",
        "--path",
        "f.txt",
        "-m",
        "m",
        "--on-stale",
        "block",
        "--json",
        "--",
        "ls",
        "g.txt",
    ];
    let red = env.ap(&asked).exits(1).json();
    env.write("g.txt", "1\n");
    let again = env.ap(&["policy", "regate", &text(&red, "policyId"), "--json"]).exits(0).json();
    let named = |of: &Value| {
        (
            of["paths"].clone(),
            of["onStale"].clone(),
            of["message"].clone(),
            of["sessionIds"].clone(),
        )
    };
    assert_eq!((text(&again, "status"), named(&again)), ("awaiting-ack".into(), named(&red)));
    env.ap(&["ack", &text(&again, "policyId"), "--yes"]).exits(0);
    env.ap(&["verify", "main~1..main"]).exits(0);
    // Rules are those of now.
    env.write("f.txt", "2\n");
    fs::remove_file(env.repo().join("g.txt")).unwrap();
    let red = env.ap(&asked).exits(1).json();
    env.write(".agentproto/allowed-commands.json", "{\"version\":1,\"commands\":[]}");
    env.git(&["commit", "-qm", "rules", ".agentproto"]);
    env.ap(&["policy", "regate", &text(&red, "policyId")]).exits(6);
}

#[test]
fn where_the_sessions_are_over_the_next_step_can_be_done() {
    let env = TestEnv::new();
    let next = file(&env, "next.json", &json!({"gate": {"command": "true"}}));
    env.write("f.txt", "1\n");
    let commit = ["--then", "commit", "--path", "f.txt", "-m", "m"];
    let exited = |flags: &[&str]| {
        let session = env.adopt("s");
        let policy = env.attach(&session, &[flags, &["--", "ls", "f.txt"]].concat());
        env.ap(&["session", "report", &session, "exited"]).exits(0);
        let step = text(&env.policy(&policy), "nextStep");
        assert!(!step.contains("SESSION"), "{step}");
        (policy, step)
    };
    let adopt = "adopt a new session (git agentproto -C ";
    let (_, step) = exited(&["--label", "em"]);
    assert!(step.starts_with(adopt), "{step}");
    assert!(step.ends_with(" with: --label em -- ls f.txt"), "{step}");
    let (policy, step) = exited(&[&commit[..], &["--next", &next]].concat());
    assert!(step.starts_with(adopt), "{step}");
    assert!(step.ends_with(" session adopt), then attach to it what was asked here"), "{step}");
    env.ap(&["policy", "regate", &policy]).exits(6);
    let (_, step) = exited(&commit);
    assert!(step.contains(" commit --path f.txt -m m -- ls f.txt"), "{step}");
}

#[test]
fn turns_that_count_are_gated_once_more_though_their_session_is_over() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--", "ls", "f.txt"]);
    env.turn_end(&session, &policy).exits(1);
    env.ap(&["session", "report", &session, "exited"]).exits(0);
    let step = text(&env.policy(&policy), "nextStep");
    assert_eq!(step, format!("git agentproto policy regate {policy}"));
    env.write("f.txt", "1\n");
    env.ap(&["policy", "regate", &policy]).exits(0);
}

#[test]
fn whoever_approves_sees_what_follows() {
    let env = TestEnv::new();
    let last = json!({"gate": {"command": "ls", "args": ["x"]}});
    let next = file(&env, "next.json", &json!({"gate": {"command": "true"}, "next": last}));
    let policy = env.awaiting_with("f.txt", &["--next", &next]);
    let shown = env.ap(&["policy", "show", &policy]).exits(0).out();
    let rows = "  follows   gated by true\n  follows   gated by ls x\n";
    assert!(shown.contains(rows), "{shown}");
}

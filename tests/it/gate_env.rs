//! The environment of gates: what a definition adds, what a person keeps back, what nobody adds or takes away.

use crate::{env::TestEnv, house::text};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fs};

/// A repository whose gate `./env.sh` prints its environment.
fn prepared() -> TestEnv {
    let env = TestEnv::new();
    env.script("env.sh", "env");
    env
}

/// What the gates of an answer were given, by name.
fn given(policy: &Value) -> BTreeMap<String, String> {
    let tail = text(&policy["lastGate"], "tail");
    let pairs = tail.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The same of a policy with these flags, whose turn is reported under these variables.
fn run(env: &TestEnv, flags: &[&str], vars: &[(&str, &str)]) -> BTreeMap<String, String> {
    let session = env.adopt("s");
    let policy = env.attach(&session, &[flags, &["--", "./env.sh"]].concat());
    let mut report = env.tool(&["session", "report", &session, "turn-end"]);
    for (name, value) in vars {
        report = report.env(name, value);
    }
    report.done().exits(0);
    let told = env.policy(&policy);
    assert_eq!(text(&told, "status"), "done", "{told:#}");
    given(&told)
}

#[test]
fn a_gate_gets_what_its_definition_says() {
    let env = prepared();
    let flags = ["--gate-env", "MODE=a=b c", "--gate-env", "LANG=de", "--gate-env", "EMPTY="];
    let vars = run(&env, &flags, &[("LANG", "fr"), ("MODE", "x"), ("OTHER", "x")]);
    for (name, value) in [("MODE", "a=b c"), ("LANG", "de"), ("EMPTY", ""), ("CI", "true")] {
        assert_eq!(vars.get(name).map(String::as_str), Some(value), "{vars:#?}");
    }
    assert!(vars.contains_key("HOME") && !vars.contains_key("OTHER"), "{vars:#?}");
}

#[test]
fn a_clean_environment_holds_what_was_asked_for_and_what_is_ours() {
    let env = prepared();
    env.global("agentproto.gateEnv", "NAMED");
    let ours = ["AGENTPROTO_ATTEMPT", "AGENTPROTO_POLICY_ID", "AGENTPROTO_SESSION_ID"];
    let ours: Vec<&str> = ours.into_iter().chain(["AGENTPROTO_WORKTREE", "CI", "MODE"]).collect();
    let vars = run(&env, &["--gate-env", "MODE=x", "--gate-env-clean"], &[("NAMED", "1")]);
    // What the shell that prints it makes itself, and the mark of the runner, are nobody's to ask for.
    let shells = ["PATH", "PWD", "OLDPWD", "SHLVL", "_"];
    let odd = |name: &&str| !shells.contains(name) && !name.starts_with("AGENTPROTO_RUN");
    let names: Vec<&str> = vars.keys().map(String::as_str).filter(odd).collect();
    assert_eq!(names, ours, "{vars:#?}");
    assert_eq!(vars["PWD"], env.repo().display().to_string());
}

#[test]
fn what_a_person_calls_secret_is_not_handed_on_by_itself() {
    let env = prepared();
    let caller = [("CARGO_REGISTRY_TOKEN", "t1"), ("CARGO_HOME", "/c"), ("API_TOKEN", "t2")];
    assert!(run(&env, &[], &caller).contains_key("CARGO_REGISTRY_TOKEN"));
    env.global("agentproto.secretEnv", "*token*");
    let vars = run(&env, &[], &caller);
    assert!(!vars.contains_key("CARGO_REGISTRY_TOKEN"), "{vars:#?}");
    assert!(vars.contains_key("CARGO_HOME") && !vars.contains_key("API_TOKEN"), "{vars:#?}");
    env.global("agentproto.gateEnv", "API_TOKEN");
    let vars = run(&env, &[], &caller);
    assert_eq!(vars["API_TOKEN"], "t2", "whoever names it means it");
}

#[test]
fn a_file_gives_each_gate_its_own_variables_and_they_are_recorded() {
    let env = prepared();
    let session = env.adopt("s");
    let file = env.path("policy.json");
    let gates = json!([
        { "command": "true" },
        { "command": "./env.sh", "env": { "MODE": "strict" } },
    ]);
    let policy = json!({ "gates": gates, "gateEnvClean": true });
    fs::write(&file, policy.to_string()).unwrap();
    let policy = env.attach(&session, &["--file", file.to_str().unwrap()]);
    env.turn_end(&session, &policy).exits(0);
    let told = env.policy(&policy);
    assert_eq!(given(&told)["MODE"], "strict");
    assert_eq!(told["gates"][0].get("env"), None, "{told:#}");
    assert_eq!(told["gates"][1]["env"], json!({ "MODE": "strict" }));
    assert_eq!(told["gates"][1]["envClean"], json!(true));
    let shown = env.ap(&["policy", "show", &policy]).exits(0).out();
    for row in ["gate env  MODE=strict\n", "gate env  nothing of the environment"] {
        assert!(shown.contains(row), "{shown}");
    }
    // Another value is another gate.
    let def = |id: &str| {
        let line = env.policy(id)["lastGate"].clone();
        assert_eq!(text(&line, "verdict"), "pass");
        env.git(&["notes", "--ref=agentproto/gates", "show", "HEAD"])
            .lines()
            .find(|line| line.contains(&format!("policy={id} ")) && line.contains(" gate=0 "))
            .and_then(|line| line.split(" def=").nth(1)?.split(' ').next().map(str::to_owned))
            .unwrap()
    };
    let defs: Vec<String> = ["1", "2", "2"]
        .iter()
        .map(|value| {
            let mode = format!("MODE={value}");
            let policy = env.attach(&session, &["--next-turn", "--gate-env", &mode, "--", "true"]);
            env.turn_end(&session, &policy).exits(0);
            def(&policy)
        })
        .collect();
    assert!(defs[0] != defs[1] && defs[1] == defs[2], "{defs:?}");
}

//! What `commit` and `attach` offer to a person at a terminal when not everything is set up: one question, default no.

use crate::env::{Output, TestEnv};

/// A repository whose person has an identity and nothing else; `true` is allowed by nobody.
fn newcomer() -> TestEnv {
    let env = TestEnv::bare();
    env.unset_global("agentproto.signingKey");
    env.unset_global("agentproto.allowedSignersFile");
    env.make_repo("r");
    env.git(&["rm", "-qr", ".agentproto"]);
    env.git(&["commit", "-qm", "no rules"]);
    env.write("a.txt", "two\n");
    env
}

const COMMIT: [&str; 7] = ["commit", "--path", "a.txt", "-m", "m", "--", "true"];

fn questions(out: &Output) -> usize {
    out.out().matches("[y/N]").count()
}

#[test]
fn one_yes_sets_everything_up_and_the_commit_goes_on() {
    let env = newcomer();
    let out = env.at_terminal(&COMMIT, "y\ny\n").exits(0);
    let said = out.out();
    for step in [
        "to do  acks are signed with a new key",
        "to do  the key is listed in",
        "to do  true is allowed in",
    ] {
        assert!(said.contains(step), "'{step}' is not in:\n{said}");
    }
    // The second one is the review of the candidate.
    assert!(said.contains("Do this and go on? [y/N]"), "{said}");
    assert_eq!(env.git(&["log", "-1", "--format=%s"]), "m");
    env.ap(&["verify", "main~1..main"]).exits(0);

    env.write("a.txt", "three\n");
    let out = env.at_terminal(&COMMIT, "n\n").exits(5);
    assert!(!out.out().contains("Do this"), "asked though nothing is missing: {out}");
}

#[test]
fn anything_but_yes_does_nothing_and_the_refusal_names_the_command() {
    for typed in ["\n", "n\n", "", "maybe\n"] {
        let env = newcomer();
        let before = env.snapshot();
        let out = env.at_terminal(&COMMIT, typed).exits(6);
        before.assert_same(&env.snapshot(), "a no");
        assert_eq!(questions(&out), 1, "{out}");
        assert!(out.out().contains("git agentproto allow -- true"), "{out}");
        assert!(out.out().contains("run git agentproto init"), "{out}");
    }
}

#[test]
fn nobody_is_asked_without_a_terminal_inside_a_session_or_for_programs() {
    let env = newcomer();
    let before = env.snapshot();
    let out = env.ap(&COMMIT).exits(6);
    assert_eq!(questions(&out), 0, "{out}");
    assert!(!out.err().contains("to do"), "{out}");
    for more in ["AGENTPROTO_SESSION_ID=x", "AGENTPROTO_SESSION_ID="] {
        let words: Vec<&str> =
            ["env", more, "git", "agentproto"].into_iter().chain(COMMIT).collect();
        let line = shell_words::join(words);
        let out = env.run("script", &["-qec", &line, "/dev/null"]).stdin("y\n").done().exits(6);
        assert_eq!(questions(&out), 0, "{more}: {out}");
    }
    let json: Vec<&str> = ["--json"].into_iter().chain(COMMIT).collect();
    assert_eq!(questions(&env.at_terminal(&json, "y\n").exits(6)), 0);
    before.assert_same(&env.snapshot(), "asking nobody");
}

#[test]
fn where_only_a_gate_is_missing_exactly_that_one_is_offered() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let attach = |gate: &[&str]| -> Vec<String> {
        ["attach", &session, "--"].iter().chain(gate).map(|w| (*w).to_owned()).collect()
    };
    let run = |args: &[String], typed| {
        env.at_terminal(&args.iter().map(String::as_str).collect::<Vec<_>>(), typed)
    };
    let args = attach(&["test", "-f", "a.txt"]);
    let said = run(&args, "n\n").exits(6).out();
    assert!(
        said.contains("to do  test -f a.txt is allowed in") && !said.contains("acks are"),
        "{said}"
    );
    run(&args, "y\n").exits(0);
    // Not one word more than was typed.
    run(&attach(&["test", "-d", "a.txt"]), "n\n").exits(6);
    run(&args, "").exits(0);
}

#[test]
fn what_allowing_would_not_help_is_not_offered() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    for gate in
        [&["no-such-program-anywhere"] as &[&str], &["echo", "a", "&&", "b"], &["../outside"]]
    {
        let args: Vec<&str> = ["attach", &session, "--"].iter().chain(gate).copied().collect();
        let out = env.at_terminal(&args, "y\n").exits(6);
        assert_eq!(questions(&out), 0, "{gate:?}: {out}");
    }
}

#[test]
fn init_asks_at_a_terminal_and_a_no_writes_nothing() {
    let env = newcomer();
    let before = env.snapshot();
    let out = env.at_terminal(&["init"], "n\n").exits(5);
    assert_eq!(questions(&out), 1, "{out}");
    before.assert_same(&env.snapshot(), "a no");
    let refused = env.ap(&["init"]).exits(5);
    assert!(refused.err().contains("git agentproto init --yes"), "{refused}");
    before.assert_same(&env.snapshot(), "nobody to ask");
    env.at_terminal(&["init"], "y\n").exits(0);
    let out = env.at_terminal(&["init"], "").exits(0);
    assert_eq!(questions(&out), 0, "asked though there is nothing to do: {out}");
}

#[test]
fn init_allows_what_it_is_told_and_proposes_the_rest() {
    let env = newcomer();
    for name in ["Cargo.toml", "Makefile"] {
        env.write(name, "");
    }
    let before = env.snapshot();
    let init = ["init", "--allow", "cargo", "--allow", "make 'a b'", "--json"];
    let planned = env.ap(&[&init[..], &["--dry-run"]].concat()).exits(0).json();
    before.assert_same(&env.snapshot(), "a dry run");
    let done = env.ap(&[&init[..], &["--yes"]].concat()).exits(0).json();
    assert_eq!(done["steps"], planned["steps"]);
    for answer in [&planned, &done] {
        assert_eq!(answer["proposals"], serde_json::json!(["make"]), "{answer:#}");
    }
    let listed = env.ap(&["allow", "--json"]).exits(0).json();
    let argv: Vec<_> =
        listed["allowed"].as_array().unwrap().iter().map(|l| l["argv"].to_string()).collect();
    assert_eq!(argv, [r#"["cargo"]"#, r#"["make","a b"]"#]);
    let once = env.snapshot();
    env.ap(&[&init[..], &["--yes"]].concat()).exits(0);
    once.assert_same(&env.snapshot(), "a second init");
    let broken = env.ap(&["init", "--yes", "--allow", "make 'a"]).exits(129);
    assert!(broken.err().contains("--allow"), "{broken}");
    once.assert_same(&env.snapshot(), "a refusal");
}

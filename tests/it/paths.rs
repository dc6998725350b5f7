//! Paths from outside: directories, ignored files, submodules, lists read from a file, and names that are no text.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use serde_json::{Value, json};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
};

fn ready() -> TestEnv {
    let env = TestEnv::new();
    env.allow_no_ack();
    env
}

/// `commit` without an ack, gated by `true`, with these flags.
#[track_caller]
fn commit(env: &TestEnv, flags: &[&str]) -> Output {
    commit_fed(env, flags, "")
}

#[track_caller]
fn commit_fed(env: &TestEnv, flags: &[&str], stdin: impl Into<Vec<u8>>) -> Output {
    let args = [&["commit", "--json", "--no-ack", "-m", "m"], flags, &["--", "true"]].concat();
    env.tool(&args).stdin(stdin).done()
}

fn code(out: &Output) -> String {
    let said: Value = serde_json::from_slice(&out.stderr).unwrap();
    text(&said["error"], "code")
}

#[test]
fn a_directory_stands_for_what_git_add_would_add_of_it() {
    let env = ready();
    env.write(".gitignore", "*.o\n");
    for name in ["d/same", "d/changed", "d/gone", "d/e/deep", "other/x"] {
        env.write(name, "1\n");
    }
    env.git(&["add", "-A"]);
    env.git(&["commit", "-qm", "base"]);
    env.write("d/changed", "2\n");
    fs::remove_file(env.repo().join("d/gone")).unwrap();
    env.write("d/e/new -> x", "1\n");
    env.write("d/x.o", "1\n");
    env.write("other/y", "1\n");
    env.git(&["init", "-q", "d/inner"]);
    env.write("d/inner/file", "1\n");
    assert_eq!(code(&commit(&env, &["--path", "d"]).exits(6)), "path-is-directory");
    let policy = commit(&env, &["--recursive", "--path", "d/"]).exits(0).json();
    assert_eq!(policy["paths"], json!(["d/changed", "d/e/new -> x", "d/gone"]));
    assert_eq!(env.paths_of("main"), ["d/changed", "d/e/new -> x", "d/gone"]);
    assert_eq!(env.git(&["status", "--porcelain"]), "?? d/inner/\n?? other/y");
    let inner = "'d/inner' is a repository of its own and left out, with all that is in it";
    let left = json!([{ "kind": "left-out", "path": "d/inner", "text": inner }]);
    assert_eq!(policy["notices"], left);
    // From where one stands, and nothing of it is left.
    let dir = env.repo().join("d/e");
    let args = ["commit", "--json", "--no-ack", "-m", "m", "--recursive", "--path", ".."];
    let out = env.ap_in(&dir, &[&args[..], &["--", "true"]].concat()).exits(6);
    assert_eq!(code(&out), "nothing-to-add");
    // The top is no path, with the flag or without.
    for flags in [&["--recursive", "--path", "."][..], &["--path", "./"]] {
        let out = commit(&env, flags).exits(6);
        assert_eq!(code(&out), "path-is-directory");
        let told: serde_json::Value = serde_json::from_slice(&out.stderr).unwrap();
        let hint = "name the files and directories in it that you mean";
        assert_eq!(told["error"]["hint"], hint, "--recursive would be refused as well: {out}");
    }
    // Nothing but a repository of its own: it is named.
    let out = commit(&env, &["--recursive", "--path", "d/."]).exits(6);
    assert!(out.err().contains("'d/inner' in it is a repository of its own"), "{out}");
}

#[test]
fn the_list_of_a_directory_is_fixed_at_attach() {
    let env = ready();
    env.write("d/first", "1\n");
    let session = env.adopt("s");
    let policy = env.attach(
        &session,
        &["--recursive", "--path", "d", "--no-ack", "-m", "m", "--next-turn", "--", "true"],
    );
    assert_eq!(env.policy(&policy)["paths"], json!(["d/first"]));
    env.write("d/first", "2\n");
    env.write("d/second", "1\n");
    env.ap(&["session", "report", &session, "turn-start"]).exits(0);
    env.turn_end(&session, &policy).exits(0);
    assert_eq!(env.paths_of("main"), ["d/first"]);
    assert_eq!(env.git(&["show", "main:d/first"]), "2");
}

#[test]
fn ignored_files_are_committed_when_a_person_says_so() {
    let env = ready();
    env.write(".gitignore", "*.env\n");
    env.write("p.env", "1\n");
    env.write("d/q.env", "1\n");
    env.write("d/r", "1\n");
    assert_eq!(code(&commit(&env, &["--path", "p.env"]).exits(6)), "path-ignored");
    commit(&env, &["--force-ignored", "--path", "p.env"]).exits(0);
    assert_eq!(env.paths_of("main"), ["p.env"]);
    let policy = commit(&env, &["--recursive", "--path", "d"]).exits(0).json();
    assert_eq!(policy["paths"], json!(["d/r"]));
    let policy = commit(&env, &["--recursive", "--force-ignored", "--path", "d"]).exits(0).json();
    assert_eq!(policy["paths"], json!(["d/q.env"]));
    assert_eq!(env.git(&["ls-files", "*.env"]), "d/q.env\np.env");
}

#[test]
fn a_file_becomes_a_directory_and_a_directory_a_link() {
    let env = ready();
    for name in ["was-dir/x", "was-dir/y", "was-linked/x", "was-file"] {
        env.write(name, "1\n");
    }
    env.git(&["add", "-A"]);
    env.git(&["commit", "-qm", "base"]);
    let at = |name: &str| env.repo().join(name);
    for name in ["was-dir", "was-linked"] {
        fs::remove_dir_all(at(name)).unwrap();
    }
    fs::remove_file(at("was-file")).unwrap();
    env.write("was-dir", "2\n");
    env.write("was-file/x", "2\n");
    std::os::unix::fs::symlink("was-file", at("was-linked")).unwrap();
    let flags: Vec<&str> = ["was-dir", "was-file", "was-linked"]
        .iter()
        .flat_map(|name| ["--path", *name])
        .chain(["--recursive"])
        .collect();
    commit(&env, &flags).exits(0);
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    let tree = env.git(&["ls-tree", "-r", "--name-only", "main"]);
    let rest: Vec<&str> = tree.lines().filter(|l| l.starts_with("was")).collect();
    assert_eq!(rest, ["was-dir", "was-file/x", "was-linked"]);
}

#[test]
fn paths_are_read_from_a_file_or_from_standard_input() {
    let env = ready();
    for name in ["a b", "c\nd", "e", "\"f\""] {
        env.write(name, "1\n");
    }
    let odd = OsStr::from_bytes(b"caf\xe9");
    fs::write(env.repo().join(odd), "1\n").unwrap();
    env.write("list", "a b\r\n\"c\\nd\"\n\"caf\\351\"\n");
    let policy = commit(&env, &["--paths-from", "list"]).exits(0).json();
    assert_eq!(policy["paths"], json!(["a b", "c\nd", { "b64": "Y2Fm6Q==" }]));
    // Nothing is quoted between NULs, and a path may stand beside the list.
    let flags = ["--paths-from", "-", "-z", "--path", "list"];
    let policy = commit_fed(&env, &flags, "e\0\"f\"\0").exits(0).json();
    assert_eq!(policy["paths"], json!(["list", "e", "\"f\""]));
    assert_eq!(env.git(&["status", "--porcelain"]), "");

    for (flags, stdin, exit, want) in [
        (&["--paths-from", "-"][..], "", 129, "no-paths"),
        (&["--paths-from", "nosuch"], "", 129, "no-paths"),
        (&["--paths-from", "-"], "\"a\n", 129, "usage"),
        (&["--paths-from", "-"], "a\n\nb\n", 6, "path-empty"),
        (&["--paths-from", "-", "-F", "-"], "a\n", 129, "usage"),
    ] {
        let fixed = ["commit", "--json", "--no-ack"];
        let message = if flags.contains(&"-F") { &[][..] } else { &["-m", "m"] };
        let args = [&fixed[..], message, flags, &["--", "true"]].concat();
        let out = env.tool(&args).stdin(stdin).done().exits(exit);
        assert_eq!(code(&out), want, "{flags:?} {stdin:?}");
    }
    env.ap(&["commit", "-z", "--path", "e", "-m", "m", "--", "true"]).exits(129);
}

#[test]
fn names_that_are_no_text_are_bytes_for_programs_and_quoted_for_people() {
    let env = TestEnv::new();
    let name = OsString::from_vec(b"caf\xe9 \x1b[2J".to_vec());
    fs::write(env.repo().join(&name), "x\n").unwrap();
    let mut flag = OsString::from("--path=");
    flag.push(&name);
    let args = |json: bool| -> Vec<OsString> {
        let words = ["commit", "-m", "m"].map(OsString::from).into_iter();
        let json = json.then(|| OsString::from("--json"));
        words.chain(json).chain([flag.clone(), "--".into(), "true".into()]).collect()
    };
    let bytes = json!({ "b64": "Y2Fm6SAbWzJK" });
    let policy = env.ap(&args(true)).exits(5).json();
    let id = text(&policy, "policyId");
    assert_eq!(policy["paths"], json!([bytes]));
    assert_eq!(env.policy(&id)["paths"], json!([bytes]));
    let listed = env.ap(&["policy", "list", "--json"]).exits(0).json();
    assert!(listed.to_string().contains(&bytes.to_string()), "{listed:#}");
    let attached = env.ap(&["events", "--json"]).exits(0).out();
    assert!(attached.contains(&bytes.to_string()), "{attached}");

    let quoted = r#""caf\351 \033[2J""#;
    let screen = env.ap(&["ack", "-p", &id]).exits(5);
    let shown = env.ap(&["policy", "show", &id]).exits(0);
    assert!(shown.out().contains(quoted), "{shown}");
    assert!(screen.err().contains(r#""b/caf\351 \033[2J""#), "{screen}");
    for out in [&screen, &shown] {
        let raw = [&out.stdout[..], &out.stderr].concat();
        let control = raw.iter().any(|b| b.is_ascii_control() && *b != b'\n');
        assert!(!control && std::str::from_utf8(&raw).is_ok(), "{out}");
    }
    env.ap(&["ack", &id, "--yes"]).exits(0);
    let verified = env.ap(&["verify", "main", "--json"]).exits(0).out();
    assert!(verified.contains("governed"), "{verified}");
    // A refusal quotes, too.
    let mut outside = OsString::from("--path=../");
    outside.push(&name);
    let refused =
        env.ap(&["commit".into(), "-m".into(), "m".into(), outside, "--".into(), "true".into()]);
    assert!(refused.err().contains(r#""../caf\351 \033[2J""#), "{refused}");
}

#[test]
fn what_changes_the_rules_needs_an_ack_in_every_spelling() {
    let env = ready();
    let spellings = [
        ".agentproto/new.json",
        "agentproto.json",
        ".AgentProto/x",
        "AGENTPROTO.json",
        ".agentproto./x",
        ".agent\u{200c}proto/x",
    ];
    for name in spellings {
        env.write(name, "{}\n");
        let refused = commit(&env, &["--path", name]).exits(6);
        assert_eq!(code(&refused), "no-ack-not-allowed", "{name}");
        let args = ["commit", "--json", "-m", "m", "--path", name, "--", "true"];
        let policy = env.ap(&args).exits(5).json();
        assert_eq!(text(&policy, "status"), "awaiting-ack", "{name}");
        env.ap(&["policy", "cancel", &text(&policy, "policyId")]).exits(0);
    }
    for directory in [".agentproto", ".AgentProto"] {
        let refused = commit(&env, &["--recursive", "--path", directory]).exits(6);
        assert_eq!(code(&refused), "no-ack-not-allowed", "{directory}");
    }
    env.write("docs/agentproto.json", "{}\n");
    commit(&env, &["--path", "docs/agentproto.json"]).exits(0);
}

#[test]
fn case_190_paths_are_those_of_where_the_caller_stands() {
    let env = ready();
    let (dir, deep) = (env.repo().join("d"), env.repo().join("d/e"));
    for name in ["x", "d/x", "d/e/other"] {
        env.write(name, "1\n");
    }
    let landed = |out: Output| {
        let paths = out.exits(0).json()["paths"].clone();
        assert_eq!(json!(env.paths_of("main")), paths);
        paths
    };
    // The gate runs at the top wherever the caller stands.
    let gate = ["ls", "d/x"];
    assert_eq!(landed(env.commit_in(&dir, &["x"], &gate)), json!(["d/x"]));
    assert_eq!(landed(env.commit_in(&dir, &["../x"], &gate)), json!(["x"]));
    env.write("d/x", "2\n");
    assert_eq!(landed(env.commit_in(&dir, &["e/../x"], &gate)), json!(["d/x"]));
    env.write("x", "2\n");
    let absolute = env.repo().join("x");
    assert_eq!(landed(env.commit_in(&deep, &[absolute.to_str().unwrap()], &gate)), json!(["x"]));
    env.write("x", "3\n");
    env.write("d/x", "3\n");
    let args = ["-C", "d", "commit", "--json", "--no-ack", "-m", "m", "--path", "x", "--", "true"];
    assert_eq!(landed(env.ap(&args)), json!(["d/x"]));
    // No file of that name is here, though one is above.
    let before = env.git(&["rev-parse", "main"]);
    let out = env.commit_in(&deep, &["x"], &gate).exits(2);
    assert_eq!(out.json()["reason"], "no-such-path", "{out}");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    // What is answered does not hang on where one stands: places are absolute, files count from the top.
    let session = env.ap_in(&deep, &["session", "adopt", "--label", "s", "--cwd", ".", "--json"]);
    assert_eq!(session.exits(0).json()["cwd"], deep.to_str().unwrap());
    for words in [
        &["status", "--json"] as &[&str],
        &["policy", "list", "--all", "--json"],
        &["session", "show", "s", "--json"],
    ] {
        assert_eq!(
            env.ap_in(&deep, words).exits(0).json(),
            env.ap(words).exits(0).json(),
            "{words:?}"
        );
    }
}

//! Who is told what: answers on stdout and nothing else there, and no lie about an answer that was not delivered.

use super::scene::{ROWS, Scene};
use serde_json::Value;
use std::{fs::File, process::Stdio};

/// What people set for git that changed what other tools read of it.
const SETTINGS: [(&str, &str); 15] = [
    ("color.ui", "always"),
    ("log.showSignature", "true"),
    ("status.short", "true"),
    ("status.branch", "true"),
    ("column.ui", "always"),
    ("diff.noprefix", "true"),
    ("diff.external", "/bin/false"),
    ("core.quotePath", "false"),
    ("log.decorate", "full"),
    ("advice.statusHints", "true"),
    ("core.abbrev", "4"),
    ("pager.status", "false"),
    ("log.date", "relative"),
    ("grep.lineNumber", "true"),
    ("diff.mnemonicPrefix", "true"),
];

#[test]
fn every_command_answers_json_as_its_schema_says() {
    let scene = Scene::new();
    for row in ROWS {
        let out = scene.run(row, &["--json"]);
        let lines: Vec<Value> =
            out.out().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(lines.len() == 1 || (row.answer == "event" && lines.len() > 1), "{out}");
        let last = lines.len() - 1;
        for (at, line) in lines.iter().enumerate() {
            // What else it says is held against the schema wherever a test asks for JSON.
            let answer = if row.command == "run" && at == last { "policy" } else { row.answer };
            assert_eq!(line["schema"], format!("agentproto/{answer}/1"), "{out}");
        }
    }
}

#[test]
fn case_188_whatever_the_user_configured_stdout_holds_the_same_json_alone() {
    let scene = Scene::new();
    let looks = || ROWS.iter().filter(|row| row.looks);
    let before: Vec<_> = looks().map(|row| scene.run(row, &["--json"]).out()).collect();
    for (name, value) in SETTINGS {
        scene.env.global(name, value);
    }
    for (row, before) in looks().zip(before) {
        let words = scene.call(row, &["--json"]);
        let out =
            scene.env.tool(&words).env("GIT_TRACE", "1").env("CLICOLOR_FORCE", "1").done().exits(0);
        assert!(out.err().contains("trace: "), "git did not trace: {out}");
        assert_eq!(out.out(), before, "{out}");
        let plain = scene.run(row, &[]).out();
        assert!(!plain.contains('\u{1b}'), "colour in a pipe: {plain:?}");
    }
    // Those that act as well: the harness holds each answer against its schema.
    for row in ROWS.iter().filter(|row| !row.looks) {
        let words = scene.call(row, &["--json"]);
        scene.env.tool(&words).env("GIT_TRACE", "1").done().exits(0);
    }
    // An error is one object, too, and has a code.
    let out = scene.env.ap(&["status", "--json", "nosuch-arg"]).exits(4);
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!((&error["error"]["code"], out.stdout.len()), (&"no-such-entity".into(), 0), "{out}");
}

#[test]
fn case_186_a_closed_pipe_ends_quietly_and_a_full_device_is_told() {
    let scene = Scene::new();
    for row in ROWS {
        for more in [&[] as &[&str], &["--json"]] {
            let words = scene.call(row, more);
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let out = scene.env.tool(&words).stdout(Stdio::from(writer)).done();
            let told = out.err();
            assert!([0, 141].contains(&out.code()), "a closed pipe: {out}");
            assert!(!told.contains("panicked") && !told.contains("error"), "a closed pipe: {out}");
            assert!(!row.looks || told.is_empty(), "a closed pipe: {out}");

            // In text it says nothing itself: stdout is that of its command.
            if row.command == "exec" && more.is_empty() {
                continue;
            }
            let words = scene.call(row, more);
            let full = File::options().write(true).open("/dev/full").unwrap();
            let out = scene.env.tool(&words).stdout(Stdio::from(full)).done();
            assert_eq!(out.code(), 2, "a full device: {out}");
            let told = out.err();
            assert!(told.contains("io-error") && told.contains("cannot write the answer"), "{out}");
            assert!(!told.contains("panicked"), "{out}");
        }
    }
    // `-h` is an answer, too.
    for words in [&["-h"] as &[&str], &["commit", "-h"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let out = scene.env.tool(words).stdout(Stdio::from(full)).done();
        assert!(out.code() == 2 && out.err().contains("io-error"), "a full device: {out}");
    }
}

/// git opens `/dev/null` in the place of a stream that is closed, and so does the program where it is called itself: nothing
/// else is ever written to in its place.
#[test]
fn without_a_stdout_every_command_ends_as_with_one_and_writes_nowhere_else() {
    let scene = Scene::new();
    let name = env!("CARGO_BIN_EXE_git-agentproto");
    for row in ROWS {
        for lead in [&["git", "agentproto"] as &[&str], &[name]] {
            let script = "exec \"$@\" >&-";
            let mut words = vec!["-c".to_owned(), script.to_owned(), "sh".to_owned()];
            words.extend(lead.iter().map(|word| (*word).to_owned()));
            words.extend(scene.call(row, &[]));
            let out = scene.env.run("sh", &words).done().exits(0);
            assert!(!out.err().contains("panicked"), "{out}");
        }
    }
    assert!(scene.env.ap(&["fsck"]).exits(0).out().contains("nothing is wrong"));
    scene.env.git(&["fsck", "--strict"]);
}

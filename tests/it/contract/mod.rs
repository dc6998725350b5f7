//! What holds for every command: one contract over the whole table, which is what the program itself lists.
//!
//! Contract: `commands` walks what `-h` lists, so that a command cannot be forgotten: one without a row in `scene` fails the
//! first test here. `streams` holds what is written to whom, `terminal` what people see.

mod scene;
mod streams;
mod terminal;

use crate::env::TestEnv;
use scene::{ROWS, Scene};
use std::collections::BTreeSet;

/// Every command and subcommand that is listed, with its words; groups before what is in them.
fn commands(env: &TestEnv) -> Vec<Vec<String>> {
    let (mut all, mut open) = (Vec::new(), vec![Vec::<String>::new()]);
    while let Some(path) = open.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).chain(["-h"]).collect();
        let help = env.ap(&words).exits(0).out();
        let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let below = below.take_while(|line| !line.is_empty());
        // What a command is called is set in by two, more about it by more.
        let names = below.filter_map(|line| line.strip_prefix("  "));
        let names = names.filter(|line| !line.starts_with(' ')).filter_map(|l| l.split(' ').next());
        open.extend(names.map(|name| [path.clone(), vec![name.to_owned()]].concat()));
        all.push(path);
    }
    all.retain(|path| !path.is_empty());
    all.sort();
    all
}

fn with<'a>(command: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    command.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

#[test]
fn every_command_that_is_listed_is_held_to_the_contract() {
    let env = TestEnv::bare();
    let listed = commands(&env);
    let is_group =
        |path: &&Vec<String>| !listed.iter().any(|p| p.len() > path.len() && p.starts_with(path));
    let listed: BTreeSet<String> =
        listed.iter().filter(is_group).map(|path| path.join(" ")).collect();
    let rows: BTreeSet<String> = ROWS.iter().map(|row| row.command.to_owned()).collect();
    assert_eq!(
        listed, rows,
        "the program lists the first, the rows of the contract are the second"
    );
    assert!(listed.len() > 25 && listed.contains("policy attach"), "{listed:?}");
    for words in [&["-h"] as &[&str], &["help"]] {
        let out = env.ap(words).exits(0);
        for command in &listed {
            let name = command.split(' ').next().unwrap();
            assert!(out.out().contains(name), "'{name}' is not in:\n{out}");
        }
    }
}

#[test]
fn every_command_explains_itself_within_the_width_and_without_colour() {
    let env = TestEnv::bare();
    env.global("color.ui", "always");
    for command in commands(&env) {
        let words = with(&command, &["-h"]);
        let out = env.tool(&words).env("CLICOLOR_FORCE", "1").env("TERM", "xterm").done().exits(0);
        assert!(out.out().contains("Usage: ") && out.stderr.is_empty(), "{out}");
        assert!(!out.out().contains('\u{1b}'), "colour in a pipe: {out}");
        let shown = env.on_terminal(60, &words).exits(0);
        for line in shown.out().lines() {
            assert!(line.chars().count() <= 60, "'{line}' does not fit: {shown}");
        }
    }
    // Both say that what follows `--` is the gate.
    for command in ["attach", "commit"] {
        let out = env.ap(&[command, "-h"]).exits(0);
        assert!(out.out().contains("-- GATE") || out.out().contains("-- <GATE"), "{out}");
    }
}

#[test]
fn what_no_command_knows_is_a_usage_error() {
    let env = TestEnv::new();
    for command in commands(&env) {
        let out = env.ap(&with(&command, &["--no-such-flag"])).exits(129);
        assert!(out.stdout.is_empty() && out.err().contains("[usage]"), "{out}");
        let out = env.ap(&with(&command, &["--no-such-flag", "--json"])).exits(129);
        let error: serde_json::Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["error"]["code"], "usage", "{out}");
    }
    for words in [&[] as &[&str], &["no-such-command"], &["policy"], &["policy", "no-such"]] {
        let out = env.ap(words).exits(129);
        assert!(out.stdout.is_empty() && !out.stderr.is_empty(), "{out}");
    }
    let out = env.ap(&["statu"]).exits(129);
    assert!(out.err().contains("status"), "no near miss named: {out}");
}

#[test]
fn reading_appends_nothing() {
    let scene = Scene::new();
    let before = scene.env.snapshot();
    for row in ROWS.iter().filter(|row| row.looks) {
        scene.run(row, &[]);
        scene.run(row, &["--json"]);
    }
    before.assert_same(&scene.env.snapshot(), "reading");
}

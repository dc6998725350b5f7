//! Documents that are run: the fenced `sh` blocks of a Markdown text, and what they say they print.
//!
//! In a block, a line `# => text` is a line of the stdout of the commands since the previous such group; `…`
//! stands for anything. The lines of a group are found in this order, others may lie between them.

use crate::env::{Output, TestEnv};
use std::{fmt::Write as _, fs, path::Path};

const EXPECTS: &str = "# => ";

/// The text of a document of the project.
pub(crate) fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The contents of all fenced blocks that start with three backticks and `sh`.
pub(crate) fn shell_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines() {
        match &mut open {
            None if line == "```sh" => open = Some(String::new()),
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some(block) => writeln!(block, "{line}").unwrap(),
        }
    }
    assert!(open.is_none(), "a block is never closed");
    blocks
}

/// Commands, and the lines they have to print.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    commands: String,
    expected: Vec<String>,
}

/// Splits blocks where expectations end. Commands without any form a last group of their own.
pub(crate) fn groups(blocks: &[String]) -> Vec<Group> {
    let mut found: Vec<Group> = Vec::new();
    let mut commands = String::new();
    for line in blocks.iter().flat_map(|b| b.lines()) {
        if let Some(expected) = line.strip_prefix(EXPECTS) {
            if commands.is_empty() {
                let group = found.last_mut().expect("an expectation comes after its command");
                group.expected.push(expected.to_owned());
            } else {
                let commands = std::mem::take(&mut commands);
                found.push(Group { commands, expected: vec![expected.to_owned()] });
            }
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            writeln!(commands, "{line}").unwrap();
        }
    }
    if !commands.is_empty() {
        found.push(Group { commands, expected: Vec::new() });
    }
    found
}

/// Runs all groups in one `bash -eu` in `dir` and compares what each prints.
#[track_caller]
pub(crate) fn run(env: &TestEnv, dir: &Path, groups: &[Group]) {
    let printed = env.path("printed");
    fs::create_dir_all(&printed).unwrap();
    let mut script = String::new();
    for (n, group) in groups.iter().enumerate() {
        // Braces, not parentheses: variables and the current directory stay for the next group.
        write!(script, "{{\n{}}} > \"$PRINTED/{n}\"\n", group.commands).unwrap();
    }
    let run = env.run("bash", &["-eu", "-c", &script]).env("PRINTED", &printed).dir(dir);
    let out = run.done();
    for (n, group) in groups.iter().enumerate() {
        let said = fs::read_to_string(printed.join(n.to_string()));
        let said = said.unwrap_or_else(|_| panic!("never came to:\n{}{out}", group.commands));
        holds(group, &said, &out);
    }
    out.exits(0);
}

#[track_caller]
fn holds(group: &Group, said: &str, out: &Output) {
    let mut lines = said.lines();
    for expected in &group.expected {
        assert!(
            lines.any(|line| fits(expected, line)),
            "'{expected}' is not printed (in this order) by:\n{}it printed:\n{said}\nstderr:\n{}",
            group.commands,
            out.err()
        );
    }
}

/// True when `line` is `pattern`, where `…` stands for any text, none included.
fn fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn patterns_fit_whole_lines() {
    for (pattern, line) in
        [("a", "a"), ("a…", "a"), ("…c", "abc"), ("a…c…e", "abcde"), ("…", ""), ("…b…", "abc")]
    {
        assert!(fits(pattern, line), "{pattern} {line}");
    }
    for (pattern, line) in
        [("a", "ab"), ("…b", "abc"), ("a…a", "a"), ("a…c…b", "abc"), ("b…", "ab")]
    {
        assert!(!fits(pattern, line), "{pattern} {line}");
    }
}

#[test]
fn expectations_belong_to_the_commands_before_them() {
    let text = "x\n```sh\n# why\na\nb\n# => 1\n# => 2\n\nc\n```\n```text\nd\n```\n";
    let group = |commands: &str, expected: &[&str]| Group {
        commands: commands.to_owned(),
        expected: expected.iter().map(|e| (*e).to_owned()).collect(),
    };
    assert_eq!(groups(&shell_blocks(text)), [group("a\nb\n", &["1", "2"]), group("c\n", &[])]);
}

#[test]
#[should_panic(expected = "'two' is not printed")]
fn what_is_not_printed_is_noticed() {
    let env = TestEnv::bare();
    let blocks = ["echo one\n# => one\necho three\n# => two\n".to_owned()];
    run(&env, &env.path(""), &groups(&blocks));
}

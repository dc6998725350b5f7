//! What the front door documents promise: commands that work, links that lead somewhere, all the codes.

use crate::{
    env::TestEnv,
    markdown::{document, groups, run, shell_blocks},
};
use git_agentproto::{code::Code, enforce::Outcome};
use std::path::Path;

#[test]
fn looking_with_plain_git_works_as_written() {
    let env = TestEnv::new();
    // Most of what is over is blocked, and the last event is another's.
    env.allow_no_ack();
    for _ in 0..6 {
        env.write("a.txt", "red\n");
        env.commit(&["a.txt"], &["false"]).exits(1);
    }
    env.git(&["checkout", "-q", "a.txt"]);
    env.governed("f.txt");
    env.adopt("later");
    let text = document("README.md");
    let (_, marked) = text.split_once("<!-- inspect -->").expect("the block is marked");
    let block = shell_blocks(marked).remove(0);
    let commands: Vec<_> = block.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).collect();
    assert!(commands.len() >= 8, "{commands:?}");
    for command in &commands {
        let starts = ["git ", "journal=$(git ", "policy=$(git "];
        let git = starts.iter().any(|start| command.starts_with(start));
        assert!(git && !command.contains("git agentproto"), "not plain git: {command}");
    }
    run(&env, &env.repo(), &groups(std::slice::from_ref(&block)));

    // In another clone it works once the records are shared as the next block says.
    let share = shell_blocks(marked)[1].clone();
    let (origin, clone) = (env.path("origin.git"), env.path("clone"));
    env.git(&["clone", "-q", "--bare", ".", origin.to_str().unwrap()]);
    env.git(&["remote", "add", "origin", origin.to_str().unwrap()]);
    run(&env, &env.repo(), &groups(std::slice::from_ref(&share)));
    env.git(&["clone", "-q", origin.to_str().unwrap(), clone.to_str().unwrap()]);
    let (there, _of_here) = block.split_once("# all refs there are").expect("refs are listed last");
    run(&env, &clone, &groups(&[share, there.to_owned()]));
}

#[test]
fn links_lead_somewhere() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "docs/walkthrough.md",
        "docs/refusals.md",
        "docs/policy-file.md",
    ] {
        let text = document(name);
        let targets = text.split("](").skip(1).filter_map(|t| t.split(')').next());
        for target in targets.filter(|t| !t.starts_with("http") && !t.starts_with('#')) {
            let file = top.join(name).parent().unwrap().join(target);
            assert!(file.exists(), "{name} points to {target}, which is not there");
        }
    }
}

/// The lines of the table of `docs/refusals.md`, as they follow from the program.
fn table_of_codes() -> String {
    let rows = Code::ALL.iter().map(|c| format!("| `{c}` | {} | {} |\n", c.exit(), c.hint()));
    rows.collect()
}

#[test]
fn the_table_of_refusals_is_that_of_the_program() {
    let text = document("docs/refusals.md");
    let rows: String =
        text.lines().filter(|l| l.starts_with("| `")).map(|l| format!("{l}\n")).collect();
    let want = table_of_codes();
    assert!(rows == want, "the table of docs/refusals.md has to be:\n{want}");
}

#[test]
fn every_outcome_of_verify_is_described() {
    let text = document("README.md");
    let (_, marked) = text.split_once("<!-- outcomes -->\n").expect("the table is marked");
    let rows = marked.lines().take_while(|line| line.starts_with('|'));
    let named: Vec<_> = rows.filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(named, Outcome::ALL.map(Outcome::as_str));
}

/// What `ARCHITECTURE.md` says holds an invariant has to exist: `file::test` in backticks.
#[test]
fn tests_named_by_the_architecture_exist() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = document("ARCHITECTURE.md");
    let named: Vec<_> = text.split('`').filter_map(|word| word.split_once("::")).collect();
    assert!(named.len() > 15, "{named:?}");
    for (file, test) in named {
        let path = top.join(format!("{file}.rs"));
        let source = std::fs::read_to_string(&path)
            .unwrap_or_else(|_| panic!("{file}::{test}: no {file}.rs"));
        assert!(source.contains(&format!("fn {test}(")), "no test {test} in {file}.rs");
    }
}

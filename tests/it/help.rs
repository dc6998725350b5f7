//! What `help` explains, and what is said to who types a word that nothing is called.

use crate::{env::TestEnv, house::text};
use git_agentproto::code::Code;

#[test]
fn every_code_is_explained_and_says_what_to_do() {
    let env = TestEnv::bare();
    for code in Code::ALL {
        let out = env.ap(&["help", code.as_str()]).exits(0);
        let told = out.out();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(lines.len(), 3, "{out}");
        assert_eq!(lines[0], format!("{code} (exit code {})", code.exit()));
        assert!(lines[1].starts_with("  ") && lines[1].ends_with('.'), "{out}");
        assert_eq!(lines[2], format!("  What to do: {}", code.hint()));
    }
    let object = env.ap(&["help", "gate-red", "--json"]).exits(0).json();
    assert!(text(&object, "meaning").contains("ran to its end"), "{object}");
}

#[test]
fn help_alone_lists_commands_and_topics_and_each_topic_is_there() {
    let env = TestEnv::bare();
    let told = env.ap(&["help"]).exits(0).out();
    for line in ["  status ", "  CODE ", "  exit-codes ", "  policy-file "] {
        assert!(told.lines().any(|l| l.starts_with(line)), "'{line}' is not in:\n{told}");
    }
    assert!(!told.contains("__"), "a hidden command is listed:\n{told}");
    for topic in ["exit-codes", "policy-file"] {
        assert!(env.ap(&["help", topic]).exits(0).out().lines().count() > 5);
    }
}

#[test]
fn a_word_that_nothing_is_called_is_answered_by_what_comes_near() {
    let env = TestEnv::bare();
    for (words, near) in [
        (&["help", "statu"] as &[&str], "'status'"),
        (&["help", "not-allowlist"], "'not-allowlisted'"),
        (&["help", "exit-code"], "'exit-codes'"),
        (&["help", "policy", "lst"], "'list'"),
        (&["statu"], "'status'"),
        (&["policy", "shwo"], "'show'"),
    ] {
        let out = env.ap(words).exits(129);
        assert!(out.err().contains(&format!("did you mean {near}?")), "{out}");
        assert!(out.stdout.is_empty() && out.err().lines().count() == 2, "{out}");
        if words[0] != "help" {
            assert!(out.err().contains("usage: git agentproto "), "{out}");
        }
    }
    for words in [&["help", "xyzzy"] as &[&str], &["xyzzy"], &["help", "__perform"]] {
        let out = env.ap(words).exits(129);
        assert!(out.err().contains("git agentproto help") && !out.err().contains("mean"), "{out}");
    }
}

#[test]
fn at_a_terminal_an_error_says_where_to_read_more() {
    let env = TestEnv::new();
    env.git(&["checkout", "-q", "--detach"]);
    let args = ["commit", "--path", "a.txt", "-m", "m", "--", "true"];
    let out = env.at_terminal(&args, "").exits(6);
    // The same hint in a pipe stays as it is.
    let plain = env.ap(&args).exits(6).err();
    assert!(!plain.contains("more:"), "{plain}");
    assert!(plain.contains("[detached-head]"), "{plain}");
    let gone = env.at_terminal(&["policy", "ack", "--key", "nothing", "nothing"], "").exits(4);
    assert!(!gone.out().contains("more:"), "two commands in a hint: {gone}");
    assert!(!out.out().contains("\u{1b}"), "{out}");
    let typed = env.at_terminal(&["wait", "--timeout", "soon", "x"], "").exits(129);
    assert!(typed.out().contains("(more: git agentproto help bad-time)"), "{typed}");
}

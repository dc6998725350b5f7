//! `man`: pages for every command, and what `git agentproto --help` comes to before and after they are installed.

use crate::{
    env::TestEnv,
    house::{skipped, text},
};
use std::fs;

fn has_man(env: &TestEnv) -> bool {
    env.run("man", &["-w", "man"]).done().code() == 0
        || env.run("man", &["--version"]).done().code() == 0
}

#[test]
fn case_185_help_is_found_or_it_is_said_what_works() {
    let env = TestEnv::new();
    let prefix = env.path("prefix");
    let manpath = prefix.join("share/man");
    let shown = |args: &[&str]| {
        let run = env
            .tool(args)
            .env("MANPATH", &manpath)
            .env("MANPAGER", "cat")
            .env("MAN_DISABLE_SECCOMP", "1");
        run.done()
    };
    // Without a page git fails by itself; everything else says how it is used.
    assert_ne!(shown(&["--help"]).code(), 0);
    assert!(env.ap(&["-h"]).exits(0).out().contains("Usage: git agentproto"));
    assert!(env.ap(&["help"]).exits(0).out().contains("Usage: git agentproto"));
    assert!(env.binary(&["--help"]).done().exits(0).out().contains("Usage: git agentproto"));
    for words in [&[] as &[&str], &["nosuch"], &["statu"]] {
        let out = env.ap(words).exits(129);
        assert!(
            out.stdout.is_empty() && out.err().to_lowercase().contains("usage: git agentproto"),
            "{out}"
        );
    }
    assert!(env.ap(&["statu"]).exits(129).err().contains("did you mean 'status'?"));
    let told = |answer: &serde_json::Value| {
        let all = answer["checks"].as_array().unwrap();
        let one = all.iter().find(|c| c["name"] == "manual").unwrap();
        (text(one, "state"), one["hint"].as_str().unwrap_or_default().to_owned())
    };
    let (state, hint) = told(&shown(&["doctor", "--json"]).exits(0).json());
    assert!(state == "note" && hint.contains("git agentproto help"), "{state}: {hint}");

    let before = env.snapshot();
    let done = shown(&["man", "--install", "--prefix", prefix.to_str().unwrap(), "--json"])
        .exits(0)
        .json();
    before.assert_same(&env.snapshot(), "installing pages");
    assert_eq!(text(&done, "dir"), manpath.join("man1").display().to_string());
    for name in ["git-agentproto.1", "git-agentproto-ack.1", "git-agentproto-policy-show.1"] {
        assert!(manpath.join("man1").join(name).is_file(), "{name}");
    }
    if !has_man(&env) {
        skipped("man is not here to show the pages");
        return;
    }
    let page = shown(&["--help"]).exits(0).out();
    assert!(page.contains("EXIT STATUS") && page.contains("git agentproto"), "{page}");
    assert_eq!(told(&shown(&["doctor", "--json"]).exits(0).json()).0, "ok");
    assert!(
        done["found"].as_str().is_some_and(|file| file.ends_with("git-agentproto.1")),
        "{done}"
    );
    // Nothing in any of them is more than man understands.
    for entry in fs::read_dir(manpath.join("man1")).unwrap() {
        let file = entry.unwrap().path();
        let run =
            env.run("man", &["--warnings", "-E", "UTF-8", "-l", "-Tutf8", file.to_str().unwrap()]);
        let out = run.env("MAN_DISABLE_SECCOMP", "1").env("MANPAGER", "cat").done().exits(0);
        assert!(out.stderr.is_empty() && !out.stdout.is_empty(), "{out}");
    }
}

#[test]
fn a_page_is_text_in_a_pipe_and_shown_at_a_terminal() {
    let env = TestEnv::bare();
    let roff = env.ap(&["man", "ack"]).exits(0).out();
    assert!(roff.starts_with(".") || roff.contains("\n.TH "), "{roff}");
    assert!(
        roff.contains("CHECKING AN ANSWER WITH OPENSSH") && roff.contains("check\\-novalidate"),
        "{roff}"
    );
    assert_eq!(env.ap(&["man", "git-agentproto-ack"]).exits(0).out(), roff);
    let object = env.ap(&["man", "policy", "show", "--json"]).exits(0).json();
    assert_eq!(text(&object, "name"), "git-agentproto-policy-show");
    let refused = env.ap(&["man", "no-such"]).exits(129);
    assert!(refused.err().contains("there is no page git-agentproto-no-such"), "{refused}");
    let refused = env.ap(&["man", "--install"]).exits(129);
    assert!(refused.err().contains("--prefix DIR"), "{refused}");
    if has_man(&env) {
        let line = "MANPAGER=cat MAN_DISABLE_SECCOMP=1 git agentproto man ack";
        let shown = env.run("script", &["-qec", line, "/dev/null"]).done().exits(0).out();
        assert!(shown.contains("give a signed answer") && !shown.contains(".TH"), "{shown}");
    }
}

#[test]
fn pages_go_to_the_prefix_the_program_is_in() {
    let env = TestEnv::bare();
    let bin = env.path("own/bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("git-agentproto");
    // By another process: a file that one of ours has open for writing while it forks cannot be run.
    let copy = [env!("CARGO_BIN_EXE_git-agentproto"), program.to_str().unwrap()];
    env.run("cp", &copy).done().exits(0);
    for _ in 0..2 {
        let out = env.run(program.to_str().unwrap(), &["man", "--install"]).done().exits(0);
        assert!(out.out().contains("own/share/man/man1"), "{out}");
    }
    assert!(env.path("own/share/man/man1/git-agentproto.1").is_file());
    let file = env.path("file");
    fs::write(&file, "").unwrap();
    let out = env.ap(&["man", "--install", "--prefix", file.to_str().unwrap()]).exits(2);
    assert!(out.err().contains("--prefix ~/.local"), "{out}");
}

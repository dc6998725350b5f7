//! `completions`: the scripts really run, and complete what is fixed and what lives in this repository.

use crate::{env::TestEnv, house::skipped};

/// What bash would offer for `line`, whose last word is being typed.
fn bash(env: &TestEnv, line: &str, function: &str) -> Vec<String> {
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let at = words.len() - 1;
    let typed = words[at].clone();
    let before = words[at - 1].clone();
    words.iter_mut().for_each(|word| *word = shell_words::quote(word).into_owned());
    let script = format!(
        "source <(git agentproto completions bash) && COMP_WORDS=({}) COMP_CWORD={at} && \
         {function} {} {} {} && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words[0],
        shell_words::quote(&typed),
        shell_words::quote(&before),
    );
    let out = env.run("bash", &["-c", &script]).done().exits(0);
    assert!(out.stderr.is_empty(), "{out}");
    out.out().lines().filter(|l| !l.is_empty()).map(str::to_owned).collect()
}

/// As it is typed with and without a space behind `git`.
fn both(env: &TestEnv, rest: &str) -> Vec<String> {
    let direct = bash(env, &format!("git-agentproto {rest}"), "_agentproto_direct");
    for lead in ["git agentproto", "git -C . agentproto"] {
        assert_eq!(
            bash(env, &format!("{lead} {rest}"), "_git_agentproto"),
            direct,
            "{lead} {rest}"
        );
    }
    direct
}

#[test]
fn bash_completes_commands_options_and_what_lives_here() {
    let env = TestEnv::new();
    let session = env.adopt("planting");
    let policy = env.attach(&session, &["--next-turn", "--label", "tomatoes", "--", "true"]);
    let (over, _) = env.governed("f.txt");
    assert_eq!(both(&env, "stat"), ["status"]);
    assert_eq!(both(&env, "policy sho"), ["show"]);
    assert_eq!(both(&env, "ack --rej"), ["--reject"]);
    let shells = both(&env, "completions ");
    assert!(
        ["bash", "zsh", "fish"].iter().all(|s| shells.contains(&(*s).to_owned())),
        "{shells:?}"
    );
    assert!(!both(&env, "").iter().any(|word| word.starts_with("__")), "a hidden command");
    assert_eq!(both(&env, "policy show "), [policy.clone(), "tomatoes".to_owned()]);
    assert_eq!(both(&env, "policy show tom"), ["tomatoes"]);
    let sessions = both(&env, "attach ");
    assert!(
        sessions.contains(&session) && sessions.contains(&"planting".to_owned()),
        "{sessions:?}"
    );
    assert!(
        !sessions.iter().any(|name| name.starts_with("pol_") || name == "tomatoes"),
        "{sessions:?}"
    );
    assert_eq!(both(&env, "attach x --gate-session plan"), ["planting"]);
    let mut ids = [policy, over];
    ids.sort();
    assert_eq!(both(&env, "policy show pol_"), ids);
    assert_eq!(both(&env, "help not-allow"), ["not-allowlisted"]);
    assert_eq!(both(&env, "attach planting -- tom"), Vec::<String>::new());
}

#[test]
fn what_lives_is_told_quickly_never_fails_and_writes_nothing() {
    let env = TestEnv::new();
    env.adopt("a b; rm -rf $(x)");
    let session = env.adopt("plain");
    let before = env.snapshot();
    let ask = |words: &[&str]| {
        let out = env.ap(&[&["__complete", "--"], words].concat()).exits(0);
        assert!(out.stderr.is_empty(), "{out}");
        out.out().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let told = ask(&["session", "show", ""]);
    assert!(told.contains(&"plain".to_owned()) && told.contains(&session), "{told:?}");
    assert!(!told.iter().any(|word| word.contains("rm")), "{told:?}");
    for words in
        [&[] as &[&str], &["no-such", ""], &["-C", "/nowhere", "ack", ""], &["ack", "--key", ""]]
    {
        assert_eq!(ask(words), Vec::<String>::new(), "{words:?}");
    }
    before.assert_same(&env.snapshot(), "completing");
    let fresh = env.make_repo("fresh");
    env.ap_in(&fresh, &["__complete", "--", "ack", ""]).exits(0);
    assert!(!fresh.join(".git/agentproto").exists());
    let out = env.ap_in(&env.home(), &["__complete", "--", "ack", ""]).exits(0);
    assert!(out.stdout.is_empty() && out.stderr.is_empty(), "{out}");
}

/// True when the shell is on this machine; else it is said that this was not seen to work.
fn has(env: &TestEnv, shell: &str) -> bool {
    let found = env.run("sh", &["-c", &format!("command -v {shell}")]).done().code() == 0;
    if !found {
        skipped(&format!("{shell} is not here to run its completions"));
    }
    found
}

#[test]
fn fish_completes_both_ways() {
    let env = TestEnv::new();
    if !has(&env, "fish") {
        return;
    }
    env.adopt("planting");
    let offers = |line: &str| {
        let script = format!(
            "git agentproto completions fish | source; complete -C {}",
            shell_words::quote(line)
        );
        let out = env.run("fish", &["--no-config", "-c", &script]).done().exits(0);
        let words = out.out();
        words.lines().filter_map(|l| l.split('\t').next()).map(str::to_owned).collect::<Vec<_>>()
    };
    for lead in ["git-agentproto", "git agentproto"] {
        assert!(offers(&format!("{lead} stat")).contains(&"status".to_owned()), "{lead}");
        assert_eq!(offers(&format!("{lead} attach plan")), ["planting"], "{lead}");
        assert!(offers(&format!("{lead} policy sho")).contains(&"show".to_owned()), "{lead}");
    }
    assert!(offers("git agentpro").contains(&"agentproto".to_owned()));
}

#[test]
fn zsh_takes_the_script_and_asks_with_the_words_of_the_whole_line() {
    let env = TestEnv::new();
    if !has(&env, "zsh") {
        return;
    }
    env.adopt("planting");
    // Completion itself needs a line editor; the functions are run with what it would set.
    let run = |script: &str| {
        let lead =
            "autoload -U compinit && compinit -D -u && source <(git agentproto completions zsh)";
        env.run("zsh", &["-f", "-c", &format!("{lead}\n{script}")]).done().exits(0).out()
    };
    assert_eq!(run("print -r -- $_comps[git-agentproto]"), "_git-agentproto\n");
    let value = "compadd() { print -rl -- $live }; _default() { print files }\n";
    let live =
        "agentproto_words=(agentproto attach plan) agentproto_current=3; _git-agentproto-value";
    assert_eq!(run(&format!("{value}{live}")), "planting\n");
    let files = "agentproto_words=(agentproto attach x --file p) agentproto_current=5; _git-agentproto-value";
    assert_eq!(run(&format!("{value}{files}")), "files\n");
    let fixed = "_arguments() { print -r -- \"$#: ${(j:|:)@}\"; return 1 }; words=(git-agentproto st) CURRENT=2; _git-agentproto";
    assert!(run(&format!("{fixed}; true")).contains("--json"), "the fixed part runs");
}

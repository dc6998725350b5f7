//! The first minutes of a newcomer: `init`, `allow`, `demo`, on a machine that has nothing set up.

use crate::env::TestEnv;
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

/// A machine without keys, signers or settings; only the identity is there.
fn newcomer() -> TestEnv {
    let env = TestEnv::bare();
    env.unset_global("agentproto.signingKey");
    env.unset_global("agentproto.allowedSignersFile");
    env.make_repo("r");
    env
}

/// The user's settings of the repository, which are filed under its oldest root commit.
fn settings(env: &TestEnv) -> PathBuf {
    let root = env.git(&["rev-list", "--max-parents=0", "--first-parent", "main"]);
    env.home().join(".config/agentproto/repos").join(root)
}

#[test]
fn init_makes_a_key_and_lists_it_and_touches_nothing_of_the_repository() {
    let env = newcomer();
    let before = env.snapshot().without(&["home"]);
    env.ap(&["init", "--yes"]).exits(0);
    before.assert_same(&env.snapshot().without(&["home"]), "init");

    let key = env.home().join(".config/agentproto/ack_ed25519");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let public = fs::read_to_string(key.with_extension("pub")).unwrap();
    let public: Vec<_> = public.split(' ').take(2).collect();
    let signers = fs::read_to_string(settings(&env).join("allowed_signers")).unwrap();
    for word in ["ada@example.invalid ", "agentproto-ack", &public.join(" ")] {
        assert!(signers.contains(word), "'{word}' is not in: {signers}");
    }

    let once = env.snapshot();
    env.ap(&["init", "--yes"]).exits(0);
    once.assert_same(&env.snapshot(), "a second init");
    env.governed("f.txt");
    env.ap(&["verify", "main~1..main"]).exits(0);
}

#[test]
fn init_dry_run_only_tells() {
    let env = newcomer();
    let before = env.snapshot();
    let out = env.ap(&["init", "--dry-run"]).exits(0);
    assert!(!out.stdout.is_empty() || !out.stderr.is_empty(), "nothing is told");
    before.assert_same(&env.snapshot(), "a dry run");
}

#[test]
fn init_keeps_the_signers_in_force_when_they_list_the_key() {
    let env = TestEnv::new();
    assert!(!settings(&env).join("allowed_signers").exists());
    assert!(!env.home().join(".config/agentproto/ack_ed25519").exists());
}

#[test]
fn init_takes_the_key_it_is_told() {
    let env = newcomer();
    env.ap(&["init", "--yes", "--key", env.path("eve").to_str().unwrap()]).exits(0);
    let signers = fs::read_to_string(settings(&env).join("allowed_signers")).unwrap();
    assert!(signers.contains(&env.public_key("eve")), "{signers}");
    assert!(!signers.contains(&env.public_key("ada")), "{signers}");
}

#[test]
fn allow_adds_a_prefix_for_this_user_and_nothing_tracked() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let attach = |gate: &[&str]| {
        let args: Vec<_> = ["attach", &session, "--"].iter().chain(gate).copied().collect();
        env.ap(&args).code()
    };
    assert_eq!(attach(&["git", "log", "--oneline"]), 6);
    let before = env.snapshot().without(&["home"]);
    env.ap(&["allow", "--", "git", "log", "--oneline"]).exits(0);
    before.assert_same(&env.snapshot().without(&["home"]), "allow");
    let listed = fs::read_to_string(settings(&env).join("allowed-commands.json")).unwrap();
    assert!(listed.contains("--oneline"), "{listed}");
    assert_eq!(attach(&["git", "log", "--oneline", "-1"]), 0);
    assert_eq!(attach(&["git", "log"]), 6, "the whole prefix counts");
    assert_eq!(attach(&["git", "-c", "x.y=z", "log", "--oneline"]), 6);
}

#[test]
fn demo_does_the_whole_job_and_leaves_the_home_alone() {
    let env = TestEnv::bare();
    for name in
        ["user.name", "user.email", "agentproto.signingKey", "agentproto.allowedSignersFile"]
    {
        env.unset_global(name);
    }
    let home = env.snapshot_of(&env.path(""));
    let demo = env.path("shown");
    env.ap_in(&env.path(""), &["demo", demo.to_str().unwrap()]).exits(0);
    home.assert_same(&env.snapshot_of(&env.path("")).without(&["files/shown"]), "demo");
    let log =
        env.git_in(&demo, &["log", "--notes=agentproto/acks", "--notes=agentproto/gates", "main"]);
    for word in ["agentproto-ack/1 approve ", "agentproto-gate/1 pass ", "Agentproto-Policy: pol_"]
    {
        assert!(log.contains(word), "'{word}' is not in:\n{log}");
    }
    env.git_in(&demo, &["fsck", "--strict"]);
    assert_eq!(env.git_in(&demo, &["status", "--porcelain", "--untracked-files=no"]), "");
}

#[test]
fn allow_alone_lists_what_may_run_and_where_it_is_taken_back() {
    let env = TestEnv::new();
    env.ap(&["allow", "--", "git", "log", "a b"]).exits(0);
    env.global("agentproto.allowedCommand", "make 'x y'");
    let before = env.snapshot();
    let out = env.ap(&["allow"]).exits(0).out();
    before.assert_same(&env.snapshot(), "listing");
    let own = settings(&env).join("allowed-commands.json");
    for line in [
        ".agentproto/allowed-commands.json on refs/heads/main:",
        "  git status …",
        &format!("{}:", own.display()),
        "  git log 'a b' …",
        "agentproto.allowedCommand:",
        "  make 'x y' …",
    ] {
        assert!(out.lines().any(|l| l == line), "'{line}' is not in:\n{out}");
    }
}

#[test]
fn what_a_gate_lacks_is_told_apart() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let refused = |gate: &[&str]| {
        let args: Vec<_> = ["attach", &session, "--"].iter().chain(gate).copied().collect();
        env.ap(&args).exits(6).err()
    };
    let said = refused(&["make", "a b", "&&", "make"]);
    assert!(said.contains("run without a shell, '&&'") && said.contains(": make 'a b' "), "{said}");
    env.script("run.sh", "true");
    fs::set_permissions(env.repo().join("run.sh"), fs::Permissions::from_mode(0o644)).unwrap();
    let said = refused(&["./run.sh"]);
    assert!(said.contains("hint: it is there; make it executable: chmod +x "), "{said}");
    fs::remove_file(env.repo().join("run.sh")).unwrap();
    let said = refused(&["./run.sh"]);
    assert!(!said.contains("chmod"), "{said}");

    assert!(refused(&["./no-such.sh"]).contains("[not-allowlisted]"));
    let out = env.ap(&["allow", "--", "./no-such.sh"]).exits(0);
    assert!(out.err().contains("warning: it cannot run now: cannot find program"), "{out}");
    let said = refused(&["./no-such.sh"]);
    assert!(said.contains("no-such.sh") && said.contains("[gate-not-found]"), "{said}");
    let out = env.ap(&["allow", "--", "true", "x"]).exits(0);
    assert!(!out.err().contains("warning"), "{out}");
}

#[test]
fn a_path_that_is_not_there_yet_is_said_and_no_error() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let attach = |path: &str| {
        let flags = ["--then", "commit", "--path", path, "-m", "m", "--", "true"];
        let args: Vec<_> = ["attach", &session].iter().chain(&flags).copied().collect();
        env.ap(&args).exits(0).err()
    };
    assert!(attach("mispelt.txt").contains("warning: 'mispelt.txt' is not there yet"));
    fs::remove_file(env.repo().join("a.txt")).unwrap();
    assert!(!attach("a.txt").contains("warning"), "a deletion of what is tracked is meant");
}

#[test]
fn a_commit_of_a_path_that_is_not_there_says_how_to_go_on_and_how_to_be_done_with_it() {
    let env = TestEnv::new();
    let out = env.ap(&["commit", "--path", "zzz.txt", "-m", "m", "--", "true"]).exits(2);
    let said = format!("{out}");
    assert!(said.contains("'zzz.txt' is not there; the gate"), "{said}");
    let command = "git agentproto commit --path zzz.txt -m m -- true";
    let step =
        format!("  next      check the path, then ask again with the right --path: {command}\n");
    assert!(said.contains(&step), "{said}");
    assert!(said.contains("  then      git agentproto policy dismiss pol_"), "{said}");
}

#[test]
fn records_of_another_clone_are_fetched_as_verify_says() {
    let env = TestEnv::new();
    let out = env.ap(&["verify"]).exits(2);
    assert!(out.err().contains("nothing was ever recorded here"), "{out}");
    env.governed("f.txt");
    let clone = env.path("clone");
    env.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    let out = env.ap_in(&clone, &["verify", "main~1..main"]).exits(2);
    let (_, fetch) =
        out.err().split_once("git fetch ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let words = shell_words::split(fetch.trim()).unwrap();
    let words: Vec<&str> =
        ["fetch", "-q"].into_iter().chain(words.iter().map(String::as_str)).collect();
    env.git_in(&clone, &words);
    env.ap_in(&clone, &["verify", "main~1..main"]).exits(0);
    assert!(env.ap_in(&clone, &["status"]).out().contains("nothing is going on here"));
}

#[test]
fn where_nothing_can_be_done_yet_it_is_said_what_comes_first() {
    let env = TestEnv::bare();
    for (name, options) in [("none", None), ("unborn", Some("-q")), ("bare", Some("--bare"))] {
        let dir = env.path(name);
        std::fs::create_dir(&dir).unwrap();
        if let Some(option) = options {
            env.git_in(&dir, &["init", option]);
        }
    }
    for (name, exit, words) in [
        (
            "none",
            128,
            "hint: run it inside a git repository, or name one with -C; git init makes one",
        ),
        (
            "unborn",
            0,
            "there is no commit yet: make the first one with git, then run git agentproto init",
        ),
        (
            "bare",
            0,
            "this repository is bare: work goes on in a worktree; git worktree add DIR BRANCH",
        ),
    ] {
        let out = env.ap_in(&env.path(name), &["status"]).exits(exit);
        assert!(format!("{}{}", out.out(), out.err()).contains(words), "{out}");
        assert!(!out.out().contains("cannot be told"), "{out}");
    }
    let out = env.ap_in(&env.path("unborn"), &["verify"]).exits(6);
    assert!(out.err().contains("the current branch has no commit yet [no-commits-yet]"), "{out}");
}

#[test]
fn a_key_that_git_signs_commits_with_some_day_does_not_answer_in_place_of_the_one_init_made() {
    let env = newcomer();
    env.ap(&["init", "--yes"]).exits(0);
    env.global("gpg.format", "ssh");
    env.global("user.signingKey", env.path("eve").to_str().unwrap());
    env.governed("f.txt");
    env.ap(&["verify", "main~1..main"]).exits(0);
}

#[test]
fn a_change_of_the_rule_files_is_told_wherever_it_counts_and_accepted_only_when_it_can_be_read() {
    let env = TestEnv::new();
    env.ap(&["trust"]).exits(0);
    let id = env.awaiting("f.txt");
    env.write(".agentproto/allowed-commands.json", &crate::env::allowlist(&["./more.sh"]));
    env.git(&["commit", "-qam", "more may run"]);
    let told = |out: &crate::env::Output| out.err().contains("the rule files changed");
    let attached =
        env.ap(&["commit", "--path=a.txt", "-m", "m", "--no-wait", "--json", "--", "true"]);
    assert!(attached.out().contains("\"rules-changed\""), "{attached}");
    env.ap(&["wait", &id, "--timeout", "20s"]).exits(5);
    let given = env.ap(&["ack", "--yes", &id, "--json"]).exits(0);
    assert!(given.out().contains("\"rules-changed\""), "{given}");
    env.ap(&["trust"]).exits(0);
    let id = env.awaiting("g.txt");
    let given = env.ap(&["ack", "--yes", &id]).exits(0);
    assert!(!told(&given), "{given}");

    env.write(".agentproto/allowed-commands.json", "{\"version\":");
    env.git(&["commit", "-qam", "garbage"]);
    let refused = env.ap(&["trust"]).exits(6);
    assert!(refused.err().contains("allowlist-invalid"), "{refused}");
}

#[test]
fn what_is_typed_wrong_is_told_as_it_was_typed() {
    let env = TestEnv::new();
    env.write("a.txt", "two\n");
    let refused = |flags: &[&str], gate: &[&str], exit: i32| {
        let words = ["commit", "--path", "a.txt", "-m", "m"];
        env.ap(&[&words, flags, &["--"], gate].concat()).exits(exit).err()
    };
    for (flags, said) in [
        (["--gate-timeout", "48h"], "48h, at most 24h"),
        (["--gate-timeout", "90000s"], "25h, at most 24h"),
        (["--expires", "9999d"], "--expires: 9999d, at most 3660d"),
        (["--require-output", "a(b"], "'a(b' is no regular expression: unclosed group ["),
    ] {
        let told = refused(&flags, &["true"], if flags[0] == "--gate-timeout" { 6 } else { 129 });
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_command_in_one_word_is_no_program() {
    let env = TestEnv::new();
    env.write("a.txt", "two\n");
    let words = ["commit", "--path", "a.txt", "-m", "m", "--", "cat a.txt"];
    for (args, again) in [
        (&["allow", "--", "cat a.txt"][..], "git agentproto allow -- cat a.txt"),
        (&["allow", "--", "sh -c", "a b"], "git agentproto allow -- sh -c 'a b'"),
        (&words, "-- cat a.txt"),
        (&["allow", "--", "./t.sh a"], "git agentproto allow -- ./t.sh a"),
        (&["commit", "--path", "a.txt", "-m", "m", "--", "./t.sh a"], "-- ./t.sh a"),
    ] {
        let told = env.ap(args).exits(129).err();
        assert!(told.contains("is one word") && told.contains(again), "{told}");
    }
    // A file may be called that.
    env.write("t.sh a", "#!/bin/sh\n");
    env.ap(&["allow", "--", "./t.sh a"]).exits(0);
}

#[test]
fn an_allowlist_that_is_none_is_named_once() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("a.txt", "two\n");
    for (content, why) in [
        ("[]", "an object with \"version\" and \"commands\""),
        (r#"{"version":1,"commands":["a b"]}"#, "'a b' is not one word"),
    ] {
        env.write(".agentproto/allowed-commands.json", content);
        env.git(&["commit", "-qm", "rules", "--", ".agentproto"]);
        let told = env.commit(&["a.txt"], &["true"]).exits(6).err();
        let said: serde_json::Value = serde_json::from_str(&told).unwrap();
        let message = said["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
        assert_eq!(message.matches("allowlist").count(), 1, "{message}");
    }
}

//! Commit hooks of the repository: what they see, what they may change, and every trick they can play.

use crate::{
    env::{Output, PATIENCE, TestEnv, command_lines, wait_for},
    house::text,
};
use serde_json::Value;
use std::fs;

fn ready() -> TestEnv {
    let env = TestEnv::new();
    env.allow_no_ack();
    env
}

impl TestEnv {
    /// Installs a hook of the repository.
    fn hook(&self, name: &str, body: &str) {
        self.write_script(&format!(".git/hooks/{name}"), &format!("#!/bin/sh\n{body}\n"));
    }

    /// What a hook wrote beside the repository.
    fn seen(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Nothing of a run of hooks is left in the side directory.
    #[track_caller]
    fn assert_no_private_index(&self) {
        let tmp = self.repo().join(".git/agentproto/tmp");
        let names: Vec<_> = fs::read_dir(tmp).into_iter().flatten().map(|e| e.unwrap()).collect();
        let left = names.iter().filter(|e| e.file_name().to_string_lossy().starts_with("hooks."));
        assert_eq!(left.count(), 0, "{names:?}");
    }
}

/// The policy that a `commit --json` answered with: its reason and its sentence.
#[track_caller]
fn blocked(out: &Output) -> (String, String) {
    let policy = out.json();
    assert_eq!(policy["status"], "blocked", "{out}");
    (text(&policy, "reason"), text(&policy, "because"))
}

#[test]
fn hooks_get_what_git_gives_them_and_an_index_that_holds_the_candidate_alone() {
    let env = ready();
    let (out, here) = (env.path("seen"), env.repo());
    let told = |more: &str| {
        let out = out.display();
        format!(
            "{{ echo \"$(basename $0) $#:$2\"; pwd; echo \"$GIT_EDITOR|$GIT_AUTHOR_NAME|$GIT_AUTHOR_EMAIL\"; \
             env | grep -c -e ^GIT_DIR= -e ^GIT_WORK_TREE= -e ^GIT_OBJECT_DIRECTORY= -e ^GIT_CONFIG_COUNT=; \
             test -t 0 || wc -c; {more}; }} >> {out}"
        )
    };
    env.hook("pre-commit", &told("git diff --cached --name-status; git diff-files --name-only; git write-tree; git ls-files --stage theirs"));
    env.hook("prepare-commit-msg", &told("cat $1"));
    env.hook("commit-msg", &told("test -O $1; echo $?"));
    env.write("theirs", "theirs\n");
    env.git(&["add", "theirs"]);
    env.write("a.txt", "two\n");
    env.write("new file", "new\n");
    let flags = ["commit", "--json", "--no-ack", "-m", "title  \n\n\n\nbody  "];
    let rest = ["--path=a.txt", "--path=new file", "--", "ls"];
    let run = env.tool(&[&flags[..], &rest].concat());
    let run = run.env("GIT_INDEX_FILE", "/nowhere").env("GIT_EDITOR", "false");
    run.env("GIT_CONFIG_COUNT", "0").done().exits(0);

    let tree = env.git(&["rev-parse", "main^{tree}"]);
    let common = format!("{}\n:|Ada Example|ada@example.invalid\n0\n0\n", here.display());
    assert_eq!(
        env.seen("seen"),
        format!(
            "pre-commit 0:\n{common}M\ta.txt\nA\tnew file\n{tree}\n\
             prepare-commit-msg 2:message\n{common}title\n\nbody\n\
             commit-msg 1:\n{common}0\n"
        )
    );
    assert_eq!(env.git(&["diff", "--cached", "--name-only"]), "theirs");
    assert_eq!(env.paths_of("main"), ["a.txt", "new file"]);
    env.assert_no_private_index();
    env.git(&["fsck", "--strict"]);
}

#[test]
fn the_message_is_what_the_hooks_made_of_it() {
    let env = ready();
    env.hook("prepare-commit-msg", "printf '%s\\n\\n# kept\\nIssue: 7\\n' \"[x] $(cat $1)\" > $1");
    env.hook("commit-msg", "grep -q '^\\[x\\]' $1 && printf 'Change-Id: I0\\n\\n\\n' >> $1");
    env.write("a.txt", "two\n");
    let policy = env.commit(&["a.txt"], &["ls"]).exits(0).json();
    let message = env.git(&["log", "-1", "--format=%B", "main"]);
    let trailers = format!(
        "Agentproto-Policy: {}\nAgentproto-Session: {}",
        text(&policy, "policyId"),
        policy["sessionIds"][0].as_str().unwrap()
    );
    assert_eq!(message.trim_end(), format!("[x] m\n\n# kept\nIssue: 7\nChange-Id: I0\n{trailers}"));

    env.hook("commit-msg", ": > $1");
    env.write("a.txt", "three\n");
    let (reason, because) = blocked(&env.commit(&["a.txt"], &["ls"]).exits(1));
    assert_eq!(reason, "commit-hook-refused");
    assert_eq!(
        because,
        "the commit hooks left no message to commit with: the commit message is empty"
    );
    env.hook("commit-msg", "rm $1");
    let (reason, because) = blocked(&env.commit(&["a.txt"], &["ls"]).exits(1));
    assert_eq!(reason, "commit-hook-refused");
    assert!(!because.contains('/'), "{because}");
}

#[test]
fn case_071_a_refusing_hook_and_nothing_to_commit_are_told_apart_whatever_they_say() {
    let env = ready();
    let gate_ran = env.path("gate-ran");
    env.script("gate.sh", &format!("echo ran >> {}", gate_ran.display()));
    let before = env.git(&["rev-parse", "main"]);
    env.hook("pre-commit", "echo nothing to commit >&2; exit 1");
    // Without a change nobody is asked.
    let same = env.tool(&["commit", "--json", "--no-ack", "-m", "m", "--path=a.txt", "--", "ls"]);
    let same = same.env("LC_ALL", "de_DE.UTF-8").env("LANGUAGE", "de").done().exits(0).json();
    assert_eq!((&same["status"], &same["outcome"]), (&"done".into(), &"no-op".into()));

    env.write("a.txt", "two\n");
    let refused = env.commit(&["a.txt"], &["./gate.sh"]).exits(1);
    assert_eq!(blocked(&refused), ("commit-hook-refused".into(), "pre-commit: exit code 1".into()));
    let last = &refused.json()["lastGate"];
    assert_eq!((&last["hook"], &last["verdict"]), (&"pre-commit".into(), &"fail".into()));
    assert_eq!((&last["exitCode"], &last["tail"]), (&1.into(), &"nothing to commit\n".into()));
    assert!(!gate_ran.exists(), "the gate ran");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    let shown = env.ap(&["policy", "show", &text(&refused.json(), "policyId")]).exits(0).out();
    assert!(shown.contains("  hook      pre-commit: fail, exit code 1, "), "{shown}");
    assert!(shown.contains("  gate      ./gate.sh: not run"), "{shown}");
    assert!(shown.contains("    | nothing to commit\n"), "{shown}");

    env.hook("pre-commit", "echo nothing to commit");
    env.commit(&["a.txt"], &["./gate.sh"]).exits(0);
    assert_eq!(env.git(&["show", "main:a.txt"]), "two");
}

#[test]
fn what_a_hook_rewrites_is_what_the_gate_sees_and_what_lands() {
    let env = ready();
    let runs = env.path("runs");
    env.script("gate.sh", "grep -qx TWO a.txt && git show :a.txt | grep -qx one");
    env.write("a.txt", "one\n");
    env.git(&["add", "a.txt"]);
    env.write("a.txt", "two\n");
    let upper = "tr a-z A-Z < a.txt > .git/x && cat .git/x > a.txt && git add a.txt";
    env.hook("pre-commit", &format!("echo pre >> {}; {upper}", runs.display()));
    env.hook("commit-msg", &format!("echo msg >> {}; echo x >> $1", runs.display()));
    let policy = env.commit(&["a.txt"], &["./gate.sh"]).exits(0).json();
    assert_eq!(env.git(&["show", "main:a.txt"]), "TWO");
    assert_eq!(text(&policy, "tree"), env.git(&["rev-parse", "main^{tree}"]));
    assert_eq!(env.seen("runs"), "pre\npre\nmsg\n");
    assert_eq!(env.git(&["log", "-1", "--format=%s", "main"]), "m x");
    assert_eq!(env.git(&["status", "--porcelain"]), "");

    // The message hook changes a file, too: everything is asked once more, from the person's own words on.
    let line = "grep -q done a.txt || echo done >> a.txt";
    env.hook("pre-commit", &format!("echo pre >> {}", runs.display()));
    env.hook("commit-msg", &format!("echo msg >> {}; echo x >> $1; {line}", runs.display()));
    fs::remove_file(&runs).unwrap();
    env.write("a.txt", "three\n");
    env.commit(&["a.txt"], &["grep", "done", "a.txt"]).exits(0);
    assert_eq!(env.seen("runs"), "pre\nmsg\npre\nmsg\n");
    assert_eq!(env.git(&["show", "main:a.txt"]), "three\ndone");
    assert_eq!(env.git(&["log", "-1", "--format=%s", "main"]), "m x");
}

#[test]
fn a_hook_that_never_leaves_the_files_alone_ends_it() {
    let env = ready();
    env.hook("pre-commit", "echo more >> a.txt; git add a.txt");
    env.write("a.txt", "two\n");
    let (reason, because) = blocked(&env.commit(&["a.txt"], &["ls"]).exits(2));
    assert_eq!(reason, "hooks-changed-worktree");
    assert_eq!(because, "the commit hooks change 'a.txt' every time they run");
    // In their index alone: the gate could not see it.
    env.hook("pre-commit", "b=$(echo other | git hash-object -w --stdin); git update-index --cacheinfo 100644,$b,a.txt");
    let (reason, because) = blocked(&env.commit(&["a.txt"], &["ls"]).exits(2));
    assert_eq!(reason, "hooks-changed-worktree");
    assert_eq!(because, "the commit hooks change 'a.txt' every time they run");
    // A refusal is one, whatever it rewrote.
    env.hook("pre-commit", "echo more >> a.txt; exit 3");
    let (reason, because) = blocked(&env.commit(&["a.txt"], &["ls"]).exits(1));
    assert_eq!(reason, "commit-hook-refused");
    assert_eq!(because, "pre-commit: exit code 3; it changed 'a.txt'");
}

#[test]
fn case_072_what_a_hook_adds_beside_the_listed_files_never_rides_along() {
    let env = ready();
    let before = env.git(&["rev-parse", "main"]);
    env.hook("pre-commit", "echo gen > gen.txt; git add gen.txt");
    env.write("a.txt", "two\n");
    let (reason, because) = blocked(&env.commit(&["a.txt"], &["true"]).exits(2));
    assert_eq!(reason, "hooks-changed-worktree");
    assert_eq!(because, "files that are not listed changed while the commit hooks ran: 'gen.txt'");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    // Not undone, and no phantom in the shared index.
    assert_eq!(env.git(&["status", "--porcelain"]), " M a.txt\n?? gen.txt");

    // Listed, it is part of what is gated.
    env.commit(&["a.txt", "gen.txt"], &["cat", "gen.txt"]).exits(0);
    assert_eq!(env.paths_of("main"), ["a.txt", "gen.txt"]);
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    // One that goes through the shared index is found out as well.
    env.hook("pre-commit", "unset GIT_INDEX_FILE; echo 2 > gen.txt; git add gen.txt");
    env.write("a.txt", "three\n");
    let (reason, because) = blocked(&env.commit(&["a.txt"], &["true"]).exits(2));
    assert_eq!(reason, "hooks-changed-worktree");
    assert!(because.ends_with(": 'gen.txt'"), "{because}");
    assert_eq!(env.git(&["status", "--porcelain"]), " M a.txt\nM  gen.txt");
}

/// A trick: what the hook does, how `commit` ends, its reason, and a part of its sentence.
type Trick = (&'static str, i32, &'static str, &'static str);

#[test]
fn every_trick_of_a_hook_has_a_clear_outcome() {
    const TRICKS: &[Trick] = &[
        ("git commit -qnm mine", 1, "stale-candidate", "while the commit hooks ran"),
        ("git add -A", 2, "hooks-changed-worktree", ": 'beside.txt'"),
        (
            "git stash -q",
            2,
            "hooks-changed-worktree",
            "took back what was to be committed: 'a.txt'",
        ),
        ("git symbolic-ref HEAD refs/heads/none", 2, "branch-switched", "after the commit hooks: "),
        ("kill -9 $PPID; sleep 60", 1, "commit-hook-refused", "was killed by SIGKILL"),
        ("kill -9 $(ps -o ppid= -p $PPID); sleep 60", 2, "runner-failed", "ended without a result"),
        (
            "rm -f $GIT_INDEX_FILE; echo x > $GIT_INDEX_FILE",
            2,
            "hooks-changed-worktree",
            "cannot read",
        ),
        ("rm a.txt; mkfifo a.txt", 2, "path-special-file", "after the commit hooks"),
        ("exit 127", 1, "commit-hook-refused", "exit code 127"),
    ];
    for (body, exit, reason, part) in TRICKS {
        let env = ready();
        env.write("a.txt", "two\n");
        env.write("beside.txt", "beside\n");
        env.hook("pre-commit", body);
        let out = env.commit(&["a.txt"], &["true"]);
        assert_eq!(out.code(), *exit, "{body}: {out}");
        let (got, because) = blocked(&out);
        assert_eq!((got.as_str(), because.contains(part)), (*reason, true), "{body}: {because}");
        env.assert_no_private_index();
        env.git(&["fsck", "--strict"]);
        // What it took away can be had back, whole.
        if body.starts_with("git stash") {
            env.git(&["stash", "pop", "-q"]);
            assert_eq!(fs::read_to_string(env.repo().join("a.txt")).unwrap(), "two\n");
        }
    }
}

#[test]
fn a_hook_that_hangs_is_ended_with_all_it_started() {
    let env = ready();
    env.write("a.txt", "two\n");
    env.hook("pre-commit", "setsid sleep 3597 & exec >&- 2>&-; sleep 3598");
    let flags = ["commit", "--json", "--no-ack", "-m", "m", "--gate-timeout", "1s"];
    let out = env.ap(&[&flags[..], &["--path=a.txt", "--", "true"]].concat()).exits(1);
    let (reason, because) = blocked(&out);
    assert_eq!(reason, "commit-hook-refused");
    assert!(because.starts_with("pre-commit: did not end in time, killed after "), "{because}");
    assert_eq!(out.json()["lastGate"]["timedOut"], true);
    assert!(out.json()["lastGate"]["durationMs"].as_u64().unwrap() < 15_000, "{out}");
    let alive = || {
        command_lines().into_iter().any(|l| l.ends_with("sleep 3597") || l.ends_with("sleep 3598"))
    };
    wait_for("the end of its tree", PATIENCE, || (!alive()).then_some(()));
    env.assert_no_private_index();

    // Closed streams alone are no failure.
    env.hook("pre-commit", "exec >&- 2>&- <&-; true");
    env.commit(&["a.txt"], &["true"]).exits(0);
}

#[test]
fn a_lock_that_a_hook_leaves_holds_up_the_landing_by_name() {
    let env = ready();
    env.write("a.txt", "two\n");
    env.hook("pre-commit", ": > .git/index.lock");
    let held = env.commit(&["a.txt"], &["true"]).exits(2).json();
    assert_eq!((&held["status"], &held["reason"]), (&"committing".into(), &"index-locked".into()));
    assert!(text(&held, "because").contains("index.lock"), "{held}");
    fs::remove_file(env.repo().join(".git/index.lock")).unwrap();
    let policy = text(&held, "policyId");
    env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
    assert_eq!(env.git(&["show", "main:a.txt"]), "two");
}

#[test]
fn hooks_are_found_where_git_finds_them_and_run_again_with_a_void_run() {
    let env = ready();
    let linked = env.worktree("linked");
    let seen = env.path("seen");
    env.git(&["config", "core.hooksPath", "my hooks"]);
    fs::create_dir(linked.join("my hooks")).unwrap();
    let hook = linked.join("my hooks/pre-commit");
    let body = "git rev-parse --show-toplevel --abbrev-ref HEAD; git ls-files --stage a.txt";
    fs::write(&hook, format!("#!/bin/sh\n{{ {body}; }} >> {}\n", seen.display())).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The main worktree has none of that name.
    env.write("a.txt", "main\n");
    env.commit(&["a.txt"], &["true"]).exits(0);
    assert_eq!(env.seen("seen"), "");

    env.write_script(
        "../linked/gate.sh",
        "#!/bin/sh\ntest -f seen-once && exit 0\ntouch seen-once\necho 3 > a.txt\n",
    );
    fs::write(
        env.repo().join(".agentproto/allowed-commands.json"),
        crate::env::allowlist(&["./gate.sh"]),
    )
    .unwrap();
    env.git(&["commit", "-qm", "allow", "--", ".agentproto"]);
    fs::write(linked.join(".gitignore"), "*\n").unwrap();
    fs::write(linked.join("a.txt"), "2\n").unwrap();
    let policy = env.commit_in(&linked, &["a.txt"], &["./gate.sh"]).exits(0).json();
    assert_eq!(text(&policy, "branch"), "refs/heads/linked");
    assert_eq!(env.git(&["show", "linked:a.txt"]), "3");
    let blob = |content: &str| {
        let run = env.run("git", &["hash-object", "--stdin"]).stdin(content);
        run.done().exits(0).out().trim_end().to_owned()
    };
    let place = format!("{}\nlinked\n", linked.display());
    let both = ["2\n", "3\n"].map(|c| format!("{place}100644 {} 0\ta.txt\n", blob(c)));
    assert_eq!(env.seen("seen"), both.concat());
}

#[test]
fn an_identity_is_asked_for_before_hooks_and_signing() {
    let env = ready();
    let seen = env.path("seen");
    env.hook("pre-commit", &format!("echo ran >> {}", seen.display()));
    env.unset_global("user.name");
    env.write("a.txt", "two\n");
    let before = env.snapshot();
    let out = env.tool(&["commit", "--json", "--no-ack", "-m", "m", "--path=a.txt", "--", "true"]);
    let out = out.env("GIT_AUTHOR_NAME", "Somebody").env("EMAIL", "x@example.invalid").done();
    let error: Value = serde_json::from_slice(&out.exits(6).stderr).unwrap();
    assert_eq!(error["error"]["code"], "identity-missing");
    assert!(!seen.exists(), "a hook ran");
    before.assert_same(&env.snapshot(), "a commit without an identity");
}

#[test]
fn a_post_commit_that_hangs_ends_at_its_deadline_and_what_landed_stays_landed() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write_script(".git/hooks/post-commit", "#!/bin/sh\nsleep 1000\n");
    env.write("a.txt", "two\n");
    let args =
        ["commit", "--no-ack", "--path=a.txt", "-m", "two", "--gate-timeout=1s", "--", "true"];
    let out = env.ap(&args).exits(0);
    let said = out.err();
    assert!(said.contains("has landed, but its post-commit failed"), "{out}");
    assert!(said.contains("did not end within 1000 ms and was killed"), "{out}");
    assert_eq!(env.git(&["log", "-1", "--format=%s"]), "two");
    assert_eq!(env.git(&["status", "--porcelain", "-uno"]), "");
}

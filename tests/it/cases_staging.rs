//! Failure cases about what is staged, gated and committed.

use crate::{
    env::TestEnv,
    house::{text, value},
};
use serde_json::Value;
use std::{ffi::OsString, fs, os::unix::ffi::OsStringExt, path::Path};

fn ready() -> TestEnv {
    let env = TestEnv::new();
    env.allow_no_ack();
    env
}

#[test]
fn case_048_commits_the_bytes_the_gate_saw() {
    let env = ready();
    env.script("check.sh", "! grep -q BROKEN a.txt");
    env.write("a.txt", "BROKEN\n");
    env.git(&["add", "a.txt"]);
    env.write("a.txt", "fine\n");
    let policy = env.commit(&["a.txt"], &["./check.sh"]).exits(0).json();

    assert_eq!(env.git(&["show", "main:a.txt"]), "fine");
    let tree = env.git(&["rev-parse", "main^{tree}"]);
    assert_eq!(text(&policy, "tree"), tree);
    let line = env.note_lines("gates", "main", "agentproto-gate/1 pass ").remove(0);
    assert_eq!((value(&line, "tree"), value(&line, "on")), (tree.as_str(), "candidate"));

    // The other way round: good bytes staged, broken ones on disk.
    let before = env.git(&["rev-parse", "main"]);
    env.write("a.txt", "good again\n");
    env.git(&["add", "a.txt"]);
    env.write("a.txt", "BROKEN\n");
    env.commit(&["a.txt"], &["./check.sh"]).exits(1);
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert_eq!(env.git(&["show", ":a.txt"]), "good again");
}

#[test]
fn case_051_leaves_foreign_staged_files_staged() {
    let env = ready();
    env.write("theirs", "theirs\n");
    env.git(&["add", "theirs"]);
    let staged = env.git(&["ls-files", "--stage", "theirs"]);
    env.write("mine", "mine\n");
    env.commit(&["mine"], &["ls", "mine"]).exits(0);

    assert_eq!(env.paths_of("main"), ["mine"]);
    assert_eq!(env.git(&["diff", "--cached", "--name-only"]), "theirs");
    assert_eq!(env.git(&["ls-files", "--stage", "theirs"]), staged);
    assert_eq!(env.git(&["status", "--porcelain"]), "A  theirs");
    env.git(&["fsck", "--strict"]);
}

#[test]
fn case_053_names_are_never_patterns() {
    let env = ready();
    let odd = ["a[1].txt", ":(exclude)x", ":!y", "-x", "*.txt", "qu\"ote", "new\nline", "ünï"];
    for name in odd.into_iter().chain(["a1.txt", "x.txt", "secret.txt"]) {
        env.write(name, "content\n");
    }
    env.commit(&["a[1].txt"], &["true"]).exits(0);
    assert_eq!(env.paths_of("main"), ["a[1].txt"]);
    env.commit(&[":(exclude)x", ":!y"], &["true"]).exits(0);
    assert_eq!(env.paths_of("main"), [":!y", ":(exclude)x"]);
    env.commit(&odd[3..], &["true"]).exits(0);
    let mut rest = odd[3..].to_vec();
    rest.sort_unstable();
    assert_eq!(env.paths_of("main"), rest);
    // As JSON sees them, then as the index does.
    let tracked = env.git(&["ls-files", "-z"]);
    for name in odd {
        assert!(tracked.split('\0').any(|t| t == name), "{name:?} in the index");
        assert_eq!(env.git(&["--literal-pathspecs", "status", "--porcelain", "--", name]), "");
    }
    assert_eq!(env.git(&["status", "--porcelain"]), "?? a1.txt\n?? secret.txt\n?? x.txt");
}

/// The notices of a command: kind and path of each.
fn notices(answer: &Value) -> Vec<(String, String)> {
    let all = answer["notices"].as_array().unwrap().iter();
    all.map(|n| (text(n, "kind"), n["path"].as_str().unwrap_or_default().to_owned())).collect()
}

fn noticed(kind: &str, paths: &[&str]) -> Vec<(String, String)> {
    paths.iter().map(|p| (kind.to_owned(), (*p).to_owned())).collect()
}

/// Refused with these codes, in this order, and nothing is changed.
#[track_caller]
fn refused(env: &TestEnv, paths: &[&str], codes: &[&str]) -> Value {
    let before = env.snapshot();
    let out = env.commit(paths, &["true"]).exits(6);
    before.assert_same(&env.snapshot(), "a refused commit");
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    let details = error["error"]["details"].as_array().into_iter().flatten();
    let first = text(&error["error"], "code");
    let told: Vec<String> =
        std::iter::once(first).chain(details.map(|d| text(d, "code"))).collect();
    let mut told: Vec<&str> = told.iter().map(String::as_str).collect();
    told.dedup();
    assert_eq!(told, codes, "{error:#}");
    error
}

#[test]
fn case_055_a_partly_staged_file_is_committed_whole_and_that_is_said() {
    let env = ready();
    env.write("a.txt", "l1\n");
    env.write("b.txt", "l1\n");
    env.git(&["add", "a.txt", "b.txt"]);
    env.write("a.txt", "l1\nl2\n");
    let blob = env.git(&["rev-parse", ":a.txt"]);
    let answer = env.commit(&["a.txt", "b.txt"], &["true"]).exits(0).json();
    assert_eq!(notices(&answer), noticed("staged-differs", &["a.txt"]));
    assert!(text(&answer["notices"][0], "text").contains(&blob), "{answer:#}");
    assert_eq!(env.git(&["show", "main:a.txt"]), "l1\nl2");
    assert_eq!(fs::read_to_string(env.repo().join("a.txt")).unwrap(), "l1\nl2\n");
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    assert_eq!(env.git(&["cat-file", "-p", &blob]), "l1", "what was staged is not lost");
    // Staged and deleted again, staged and put back: what is on disk is what is meant.
    for on_disk in [None, Some("l1\nl2\n")] {
        env.write("a.txt", "staged\n");
        env.git(&["add", "a.txt"]);
        match on_disk {
            None => fs::remove_file(env.repo().join("a.txt")).unwrap(),
            Some(content) => env.write("a.txt", content),
        }
        let args = ["commit", "--no-ack", "-m", "m", "--path", "a.txt", "--", "true"];
        let out = env.ap(&args).exits(0);
        assert!(out.err().contains("warning: 'a.txt' is staged with other content"), "{out}");
        assert_eq!(env.run("git", &["show", "main:a.txt"]).done().code() == 0, on_disk.is_some());
        env.git(&["reset", "-q", "--hard", "main~1"]);
    }
}

#[test]
fn case_057_a_conflict_is_refused_while_it_stands_and_markers_are_red_afterwards() {
    for (theirs, ours, state) in
        [(Some("f\n"), Some("m\n"), "UU"), (None, Some("m\n"), "UD"), (Some("f\n"), None, "DU")]
    {
        let env = ready();
        let make = |content: Option<&str>| match content {
            Some(content) => env.write("a.txt", content),
            None => fs::remove_file(env.repo().join("a.txt")).unwrap(),
        };
        env.git(&["switch", "-qc", "f"]);
        make(theirs);
        env.git(&["commit", "-qam", "f"]);
        env.git(&["switch", "-q", "main"]);
        make(ours);
        env.git(&["commit", "-qam", "m"]);
        env.run("git", &["merge", "-q", "f"]).done().exits(1);
        env.write("other", "1\n");
        let status = format!("{state} a.txt\n?? other");
        for path in ["a.txt", "other"] {
            refused(&env, &[path], &["merge-in-progress", "unmerged-index"]);
            assert_eq!(env.git(&["status", "--porcelain"]), status);
        }
        // To add it clears the entry, not the markers.
        env.git(&["add", "-A", "a.txt"]);
        refused(&env, &["a.txt"], &["merge-in-progress"]);
    }
    // Both added; and a conflict that no operation is left of.
    let env = ready();
    env.write("n", "stashed\n");
    env.git(&["add", "n"]);
    env.git(&["stash", "-q"]);
    env.write("n", "committed\n");
    env.git(&["add", "n"]);
    env.git(&["commit", "-qm", "n"]);
    env.run("git", &["stash", "pop", "-q"]).done();
    assert!(env.git(&["status", "--porcelain"]).starts_with("AA n"));
    refused(&env, &["n"], &["unmerged-index"]);
    env.git(&["add", "n"]);
    let before = env.git(&["rev-parse", "main"]);
    env.write("n", "<<<<<<< a\n1\n=======\n2\n>>>>>>> b\n");
    let red = env.commit(&["n"], &["true"]).exits(1).json();
    assert_eq!(text(&red, "reason"), "conflict-markers");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    env.write("doc", "Title\n=======\n");
    env.commit(&["doc"], &["true"]).exits(0);
    assert_eq!(env.paths_of("main"), ["doc"]);
}

#[test]
fn case_058_odd_names_are_read_byte_for_byte_and_a_rename_has_two_sides() {
    let env = ready();
    env.git(&["config", "core.quotePath", "true"]);
    let names = [
        "sp ace",
        "qu\"ote",
        "a -> b",
        "\u{fc}n\u{ef}",
        "new\nline",
        "tab\t",
        " lead",
        "trail ",
        "back\\slash",
        "e\u{301}",
        "\u{e9}",
        "bell\u{7}",
        "-",
        "--",
        "#",
        "a/b -> c/d",
    ];
    for name in names {
        env.write(name, "1\n");
        let answer = env.commit(&[name], &["true"]).exits(0).json();
        assert_eq!(answer["paths"], serde_json::json!([name]));
        assert_eq!(env.policy(&text(&answer, "policyId"))["paths"], serde_json::json!([name]));
        assert_eq!(env.paths_of("main"), [name]);
    }
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    // A rename has both sides in the commit, staged or not.
    env.git(&["mv", "sp ace", "sp -> ace2"]);
    fs::rename(env.repo().join("new\nline"), env.repo().join("new\n -> line")).unwrap();
    let both = ["sp ace", "sp -> ace2", "new\nline", "new\n -> line"];
    let answer = env.commit(&both, &["true"]).exits(0).json();
    assert_eq!(notices(&answer), []);
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    let renamed = ["diff-tree", "-r", "-M", "--name-status", "-z", "--no-commit-id", "main"];
    let said = env.git(&renamed);
    let pairs = "R100\0new\nline\0new\n -> line\0R100\0sp ace\0sp -> ace2\0";
    assert_eq!(said, pairs);
}

#[test]
fn case_059_a_move_listed_by_its_new_name_says_what_is_left() {
    let env = ready();
    fs::rename(env.repo().join("a.txt"), env.repo().join("b.txt")).unwrap();
    let answer = env.commit(&["b.txt"], &["true"]).exits(0).json();
    assert_eq!(notices(&answer), noticed("deleted-not-listed", &["a.txt"]));
    let tree = env.git(&["ls-tree", "--name-only", "main"]);
    assert!(tree.contains("a.txt") && tree.contains("b.txt"), "{tree}");
    assert_eq!(env.git(&["status", "--porcelain"]), " D a.txt");
    // A deletion can be named, staged or not.
    let answer = env.commit(&["a.txt"], &["true"]).exits(0).json();
    assert_eq!(notices(&answer), []);
    assert_eq!(env.paths_of("main"), ["a.txt"]);
    env.git(&["mv", "b.txt", "c.txt"]);
    let args = ["commit", "--no-ack", "-m", "m", "--path", "c.txt", "--", "true"];
    let out = env.ap(&args).exits(0);
    assert!(out.err().contains("warning: 'b.txt' is deleted and not included"), "{out}");
    assert_eq!(env.git(&["status", "--porcelain"]), "D  b.txt", "what was staged stays staged");
    env.commit(&["b.txt"], &["true"]).exits(0);
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    let tree = env.git(&["ls-tree", "--name-only", "main"]);
    assert!(!tree.contains("b.txt") && tree.contains("c.txt"), "{tree}");
}

#[test]
fn case_061_what_cannot_be_committed_is_named_and_nothing_else_is_either() {
    let env = ready();
    env.write(".gitignore", "\n*.env\n");
    for name in ["in/x", "out/x"] {
        env.write(name, "1\n");
    }
    env.git(&["add", "."]);
    env.git(&["commit", "-qm", "ignore"]);
    env.write("p.env", "1\n");
    env.write("q", "2\n");
    env.run("mkfifo", &["pipe"]).done().exits(0);
    let _socket = std::os::unix::net::UnixListener::bind(env.repo().join("socket")).unwrap();
    let error = refused(&env, &["p.env", "q"], &["path-ignored"]);
    assert!(error.to_string().contains(".gitignore:2: *.env"), "{error:#}");
    let all = ["q", "pipe", "p.env", "socket"];
    refused(&env, &all, &["path-special-file", "path-ignored", "path-special-file"]);
    env.git(&["sparse-checkout", "set", "--cone", "in"]);
    refused(&env, &["q", "out/x"], &["path-outside-sparse-checkout"]);
    // When the gate starts it has to be there.
    let before = env.git(&["rev-parse", "main"]);
    let blocked = env.commit(&["q", "nosuch"], &["true"]).exits(2).json();
    assert_eq!(
        (text(&blocked, "status"), text(&blocked, "reason")),
        ("blocked".into(), "no-such-path".into())
    );
    let session = env.adopt("s");
    let args = ["attach", &session, "--path", "nosuch", "-m", "m", "--json", "--", "true"];
    let attached = env.ap(&args).exits(0).json();
    assert_eq!(notices(&attached), noticed("not-there", &["nosuch"]));
    let policy = text(&attached, "policyId");
    env.turn_end(&session, &policy).exits(1);
    assert_eq!(text(&env.policy(&policy), "reason"), "no-such-path");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert_eq!(env.git(&["diff", "--cached", "--name-only"]), "");
}

#[test]
fn case_062_an_embedded_repository_is_no_submodule_until_it_is_declared() {
    let env = ready();
    let sub = env.repo().join("sub");
    env.git(&["init", "-q", "sub"]);
    fs::write(sub.join("s"), "s\n").unwrap();
    env.git_in(&sub, &["add", "s"]);
    env.git_in(&sub, &["commit", "-qm", "s"]);
    refused(&env, &["sub"], &["path-is-submodule"]);
    refused(&env, &["sub/s"], &["path-in-submodule"]);
    refused(&env, &["sub", "sub/s"], &["path-is-submodule", "path-in-submodule"]);
    let commit = |paths: &[&str]| {
        let flags: Vec<String> = paths.iter().map(|p| format!("--path={p}")).collect();
        let mut args = vec!["commit", "--json", "--no-ack", "-m", "m", "--allow-submodule"];
        args.extend(flags.iter().map(String::as_str));
        args.extend(["--", "true"]);
        env.ap(&args)
    };
    let out = commit(&["sub"]).exits(6);
    assert!(out.err().contains("embedded repository, not a submodule"), "{out}");
    env.git(&["config", "-f", ".gitmodules", "submodule.sub.path", "sub"]);
    env.git(&["config", "-f", ".gitmodules", "submodule.sub.url", "../sub"]);
    // Declared on disk alone, a clone would not know where it comes from.
    commit(&["sub"]).exits(6);
    commit(&["sub", ".gitmodules"]).exits(0);
    let head = env.git_in(&sub, &["rev-parse", "HEAD"]);
    assert_eq!(env.git(&["ls-tree", "main", "sub"]), format!("160000 commit {head}\tsub"));
    assert_eq!(env.git(&["status", "--porcelain"]), "");
    let verified = env.ap(&["verify", "main"]);
    assert!(verified.out().starts_with("gated "), "{verified}");
    // Its next commit, and not without the word for it.
    env.git_in(&sub, &["commit", "-q", "--allow-empty", "-m", "t"]);
    refused(&env, &["sub"], &["path-is-submodule"]);
    commit(&["sub"]).exits(0);
    let head = env.git_in(&sub, &["rev-parse", "HEAD"]);
    assert_eq!(env.git(&["rev-parse", "main:sub"]), head);
    assert_eq!(env.git(&["ls-files", "-s", "sub"]), format!("160000 {head} 0\tsub"));
    env.git(&["fsck", "--strict"]);
}

#[test]
fn case_063_a_link_is_a_link_and_never_leads_out() {
    let env = ready();
    let outside = env.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x"), "secret\n").unwrap();
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, env.repo().join(name)).unwrap();
    };
    env.write(".gitignore", "node_modules/\n");
    link(outside.to_str().unwrap(), "node_modules");
    link("/etc/passwd", "leak");
    link("../outside/x", "relative");
    link("a.txt", "inside");
    link("no/such", "dangling");
    refused(&env, &[".gitignore", "node_modules"], &["path-symlink-escapes"]);
    refused(&env, &["node_modules/x"], &["path-through-symlink"]);
    refused(&env, &["leak", "inside"], &["path-symlink-escapes"]);
    refused(&env, &["relative"], &["path-symlink-escapes"]);
    env.commit(&["inside", "dangling", ".gitignore"], &["true"]).exits(0);
    let tree = env.git(&["ls-tree", "main", "inside", "dangling"]);
    assert!(tree.lines().all(|l| l.starts_with("120000 ")), "{tree}");
    assert_eq!(env.git(&["show", "main:inside"]), "a.txt");
    assert_eq!(env.git(&["show", "main:dangling"]), "no/such");
}

#[test]
fn case_065_a_long_list_of_paths_is_taken_whole_or_refused() {
    let env = ready();
    let name = |no: usize| format!("d/{}-{no}", "file-with-a-rather-long-name".repeat(7));
    let list = |most: usize| -> Vec<u8> {
        (0..most).flat_map(|no| [name(no).as_bytes(), b"\0"].concat()).collect()
    };
    for no in 0..513 {
        env.write(&name(no), "");
    }
    let commit = |most: usize| {
        let flags = ["commit", "--json", "--no-ack", "-m", "big", "--paths-from", "-", "--nul"];
        env.tool(&[&flags[..], &["--", "true"]].concat()).stdin(list(most)).done()
    };
    for most in [513, 60_000] {
        let before = env.snapshot();
        let out = commit(most).exits(6);
        before.assert_same(&env.snapshot(), "a refused commit");
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(text(&error["error"], "code"), "too-many");
        let told = format!("{most} paths, at most 512 are accepted");
        assert!(text(&error["error"], "message").contains(&told), "{error:#}");
    }
    commit(512).exits(0);
    let tree = env.git(&["ls-tree", "-r", "--name-only", "main", "d"]);
    assert_eq!(tree.lines().count(), 512);
    assert_eq!(env.git(&["status", "--porcelain", "-uall"]).lines().count(), 1);
    assert_eq!(env.note_lines("gates", "main", "agentproto-gate/1 pass ").len(), 1);
}

#[test]
fn case_074_a_lost_worktree_is_not_taken_for_the_repository_around_it() {
    let env = ready();
    let lost = env.repo().join("lost");
    env.git(&["worktree", "add", "-q", "-b", "side", "lost"]);
    let session = env.adopt_in(&lost, "s");
    let flags = ["--path", "a.txt", "--no-ack", "-m", "m", "--", "true"];
    let policy = env.attach(&session, &flags);
    fs::write(lost.join("a.txt"), "changed\n").unwrap();
    for broken in [false, true] {
        fs::remove_file(lost.join(".git")).unwrap();
        if broken {
            fs::write(lost.join(".git"), "gitdir: ../.git/worktrees/nowhere\n").unwrap();
        }
        let before = env.git(&["for-each-ref", "refs/heads"]);
        let out = env.commit_in(&lost, &["a.txt"], &["true"]).exits(128);
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(text(&error["error"], "code"), "not-a-repository");
        assert!(out.err().contains(lost.to_str().unwrap()), "{out}");
        assert_eq!(env.git(&["for-each-ref", "refs/heads"]), before);
        fs::write(lost.join(".git"), "gitdir: ../.git/worktrees/lost\n").unwrap();
    }
    fs::remove_file(lost.join(".git")).unwrap();
    // What was asked for before is not done anywhere else.
    env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    let blocked = env.policy(&policy);
    assert_eq!(text(&blocked, "status"), "blocked", "{blocked:#}");
    // A repository inside: its own, and nothing above it.
    env.git(&["init", "-q", "in2"]);
    fs::write(env.repo().join("in2/y"), "1\n").unwrap();
    env.git_in(&env.repo().join("in2"), &["commit", "-q", "--allow-empty", "-m", "in2"]);
    let inner = env.repo().join("in2");
    let out = env.commit_in(&inner, &["../a.txt"], &["true"]).exits(6);
    assert!(out.err().contains("path-outside-worktree"), "{out}");
    assert_eq!(env.git(&["status", "--porcelain", "a.txt"]), "");
}

#[test]
fn case_077_no_change_names_no_commit() {
    let env = ready();
    env.git(&["commit", "-q", "--allow-empty", "-m", "unrelated"]);
    let head = env.git(&["rev-parse", "HEAD"]);
    let out = env.commit(&["a.txt"], &["true"]).exits(0);
    let policy = out.json();

    assert_eq!(text(&policy, "status"), "done");
    assert_eq!(text(&policy, "outcome"), "no-op");
    for field in ["commitSha", "candidate", "parent", "tree"] {
        assert!(policy[field].is_null(), "{field} of {policy:#}");
    }
    assert!(!out.out().contains(&head), "the unrelated commit is named:\n{out}");
    assert_eq!(env.git(&["rev-parse", "HEAD"]), head);
    assert!(!env.kinds().iter().any(|k| k == "policy:committed" || k == "policy:commit-ready"));
    assert_eq!(env.note_lines("gates", &head, ""), Vec::<String>::new());

    // A red gate is red even when nothing would be committed.
    env.commit(&["a.txt"], &["false"]).exits(1);
    // A touch is no change.
    let bytes = fs::read(env.repo().join("a.txt")).unwrap();
    fs::write(env.repo().join("a.txt"), bytes).unwrap();
    assert_eq!(text(&env.commit(&["a.txt"], &["true"]).exits(0).json(), "outcome"), "no-op");
}

#[test]
fn a_name_that_is_not_utf8_is_committed_byte_for_byte() {
    let env = ready();
    let name = OsString::from_vec(b"caf\xe9.txt".to_vec());
    fs::write(env.repo().join(&name), "x\n").unwrap();
    let mut flag = OsString::from("--path=");
    flag.push(&name);
    let words = ["commit", "--no-ack", "-m", "m", "--json"].map(OsString::from);
    let args: Vec<_> = words.into_iter().chain([flag, "--".into(), "true".into()]).collect();
    let policy = env.ap(&args).exits(0).json();
    assert_eq!(policy["paths"], serde_json::json!([{ "b64": "Y2Fm6S50eHQ=" }]));
    let raw = env.run("git", &["ls-tree", "-z", "--name-only", "main"]).done().exits(0).stdout;
    assert!(raw.split(|b| *b == 0).any(|n| n == b"caf\xe9.txt"));
}

#[test]
fn case_067_without_an_identity_nothing_is_gated_and_none_is_invented() {
    let env = ready();
    env.script("check.sh", ": > ran");
    env.write("a.txt", "two\n");
    env.unset_global("user.name");
    env.unset_global("user.email");
    let before = env.snapshot();
    let commit =
        || env.tool(&["commit", "--no-ack", "-m", "m", "--path=a.txt", "--", "./check.sh"]);
    for (name, value) in
        [("EMAIL", ""), ("EMAIL", "x@example.invalid"), ("GIT_AUTHOR_NAME", "Outer")]
    {
        let out = commit().env(name, value).done().exits(6);
        assert!(out.err().contains("identity-missing") && out.err().contains("user.name"), "{out}");
        assert!(!env.repo().join("ran").exists(), "the gate ran");
    }
    before.assert_same(&env.snapshot(), "a commit without an identity");
    // One that is set is author and committer, whatever the commit around it goes by.
    env.git(&["config", "user.name", "Agent"]);
    env.git(&["config", "user.email", "agent@example.invalid"]);
    let outer = [
        ("GIT_AUTHOR_NAME", "Outer"),
        ("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z"),
        ("GIT_COMMITTER_EMAIL", "o@x"),
    ];
    let run = outer.iter().fold(commit(), |run, (name, value)| run.env(name, value));
    run.done().exits(0);
    let who = env.git(&["log", "-1", "--format=%an %ae %cn %ce", "main"]);
    assert_eq!(who, "Agent agent@example.invalid Agent agent@example.invalid");
    assert!(!env.git(&["log", "-1", "--format=%aI", "main"]).starts_with("2001"));
}

#[test]
fn case_068_a_passphrase_nobody_can_type_ends_in_time_and_leaves_nothing_unsigned_or_locked() {
    let env = ready();
    let key = env.key("locked", &["-t", "ed25519", "-N", "pw"]);
    let asks = env.path("asks");
    let text_of =
        format!("#!/bin/sh\necho $$ >> {}\nexec sleep 600\n", env.path("asked").display());
    fs::write(&asks, text_of).unwrap();
    fs::set_permissions(&asks, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (name, value) in [
        ("gpg.format", "ssh"),
        ("user.signingKey", key.to_str().unwrap()),
        ("commit.gpgSign", "true"),
    ] {
        env.global(name, value);
    }
    env.write("a.txt", "two\n");
    let before = env.git(&["rev-parse", "main"]);
    let begun = std::time::Instant::now();
    let asking = |args: &[&str]| {
        let run = env.tool(args).env("SSH_AUTH_SOCK", "").env("SSH_ASKPASS", &asks);
        run.env("SSH_ASKPASS_REQUIRE", "force").done()
    };
    let out =
        asking(&["commit", "--json", "--no-ack", "-m", "m", "--path=a.txt", "--", "true"]).exits(5);
    let policy = out.json();
    assert_eq!(text(&policy, "reason"), "signing-needs-person", "{out}");
    let id = text(&policy, "policyId");
    assert!(asking(&["ack", &id, "--yes"]).exits(5).err().contains("signing-needs-person"));
    assert!(begun.elapsed() < crate::env::PATIENCE, "it took {:?}", begun.elapsed());
    assert!(!env.path("asked").exists(), "somebody was asked");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    let locks: Vec<_> = env.strays().into_iter().filter(|p| p.ends_with("index.lock")).collect();
    assert!(locks.is_empty(), "{locks:?}");
    let sleeping = crate::env::command_lines()
        .into_iter()
        .filter(|l| l.contains(env.path("").to_str().unwrap()));
    assert_eq!(sleeping.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn case_069_a_lock_of_somebody_else_is_named_waited_for_a_while_and_never_taken() {
    let env = ready();
    let linked = env.worktree("t1");
    let own =
        env.git_in(&linked, &["rev-parse", "--path-format=absolute", "--git-path", "index.lock"]);
    let held = |dir: &Path, lock: &Path| {
        let branch = env.git_in(dir, &["rev-parse", "--symbolic-full-name", "HEAD"]);
        let before = env.git(&["rev-parse", &branch]);
        fs::write(dir.join("a.txt"), "two\n").unwrap();
        fs::write(lock, "").unwrap();
        let held = env.commit_in(dir, &["a.txt"], &["true"]).exits(2).json();
        assert_eq!(text(&held, "reason"), "index-locked", "{held}");
        assert!(text(&held, "because").contains(lock.to_str().unwrap()), "{held}");
        assert!(lock.exists(), "it was taken away");
        assert_eq!(env.git(&["rev-parse", &branch]), before);
        fs::remove_file(lock).unwrap();
        env.ap(&["wait", &text(&held, "policyId"), "--timeout", "30s"]).exits(0);
        assert_eq!(env.git_in(dir, &["show", "HEAD:a.txt"]), "two");
    };
    // Each worktree has a lock of its own, so both are waited for at once.
    std::thread::scope(|scope| {
        scope.spawn(|| held(&env.repo(), &env.repo().join(".git/index.lock")));
        scope.spawn(|| held(&linked, Path::new(&own)));
    });
    // Who only looks takes no lock, and nobody who stages waits for it.
    let looks: Vec<_> = (0..8).map(|_| env.binary(&["status"]).start()).collect();
    for nth in 0..20 {
        env.write("b.txt", &format!("{nth}\n"));
        env.git(&["add", "b.txt"]);
    }
    for look in looks {
        assert!(look.wait_with_output().unwrap().status.success());
    }
}

#[test]
fn case_076_words_in_a_message_are_no_evidence() {
    let env = ready();
    let (policy, _) = env.governed("f.txt");
    let claims =
        format!("Agentproto-Gate: green\nAgentproto-Policy: {policy}\nAgentproto-Session: ses_x");
    for message in [format!("s\n\n{claims}\n\nreal body"), format!("s\n\nbody\n\n{claims}")] {
        env.write("a.txt", &message);
        env.git(&["commit", "-qam", &message]);
        let seen = env.ap(&["verify", "main^..main", "--json"]).exits(1).json();
        assert_eq!(text(&seen["commits"][0], "outcome"), "ungoverned", "{seen:#}");
    }
    // In a message of one's own they are words, too: only the trailers that are added name the policy.
    env.write("a.txt", "mine\n");
    let message = format!("s\n\nbody\n\n{claims}");
    let args = ["commit", "--no-ack", "--json", "-m", &message, "--path=a.txt", "--", "true"];
    let own = text(&env.ap(&args).exits(0).json(), "policyId");
    let seen = env.ap(&["verify", "main^..main", "--json"]).exits(1).json();
    let commit = &seen["commits"][0];
    assert_eq!((text(commit, "outcome"), text(commit, "policyId")), ("gated".into(), own));
}

#[test]
fn worktrees_on_several_names_of_one_branch_keep_what_was_governed() {
    let env = ready();
    env.script("check.sh", "true");
    let linked = env.worktree("alias");
    env.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
    for (at, beside) in [(&linked, &env.repo()), (&env.repo(), &linked)] {
        let name = if *at == linked { "from-alias.txt" } else { "from-main.txt" };
        fs::write(at.join(name), "governed\n").unwrap();
        let done = env.commit_in(at, &[name], &["./check.sh"]).exits(0).json();
        let spec = env.policy(&text(&done, "policyId"));
        assert_eq!(text(&spec, "branch"), "refs/heads/main", "{spec:#}");
        let governed = env.git(&["rev-parse", "main"]);
        assert_eq!(text(&spec, "commitSha"), governed);
        env.git_in(beside, &["commit", "-q", "--allow-empty", "-m", "plain"]);
        assert_eq!(env.git(&["diff", "--name-only", &governed, "main"]), "", "taken back");
    }
    env.assert_no_gap();
}

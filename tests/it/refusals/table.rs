//! The rows, sorted by area, and the situations they need.

use super::{Row, Try, answered, row, run};
use crate::{
    env::{PATIENCE, TestEnv, wait_for},
    house::text,
};
use std::{fs, path::PathBuf};

/// `attach` of an emit policy to a new session.
fn attach(env: &TestEnv, rest: &[&str]) -> Try {
    let session = env.adopt("s");
    run(["attach", &session].iter().chain(rest))
}

/// `commit` of `a.txt`, changed, gated by `true`, with more flags.
fn commit(env: &TestEnv, more: &[&str]) -> Try {
    env.write("a.txt", "changed\n");
    let args = ["commit", "--path", "a.txt", "-m", "m"];
    run(args.iter().chain(more).chain(&["--", "true"]))
}

fn path(env: &TestEnv, path: &str) -> Try {
    let _ = env;
    run(["commit", &format!("--path={path}"), "-m", "m", "--", "true"])
}

/// A branch whose commit conflicts with `main` in `a.txt`.
fn conflicting(env: &TestEnv) {
    env.git(&["switch", "-qc", "side"]);
    env.write("a.txt", "side\n");
    env.git(&["commit", "-qam", "side"]);
    env.git(&["switch", "-q", "main"]);
    env.write("a.txt", "main\n");
    env.git(&["commit", "-qam", "main"]);
}

/// Runs a git command that stops at a conflict, and resolves the conflict without going on.
fn stopped(env: &TestEnv, args: &[&str]) {
    env.run("git", args).done().exits(1);
    env.write("a.txt", "resolved\n");
    env.git(&["add", "a.txt"]);
}

/// A linked repository below the main one, with one commit.
fn nested(env: &TestEnv, tracked: bool) {
    let sub = env.repo().join("sub");
    env.git(&["init", "-q", "sub"]);
    fs::write(sub.join("s"), "s\n").unwrap();
    env.git_in(&sub, &["add", "s"]);
    env.git_in(&sub, &["commit", "-qm", "s"]);
    if tracked {
        let oid = env.git_in(&sub, &["rev-parse", "HEAD"]);
        env.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{oid},sub")]);
        env.git(&["commit", "-qm", "link"]);
    }
}

fn cloned(env: &TestEnv, options: &[&str]) -> PathBuf {
    let source = format!("file://{}", env.repo().display());
    env.git(&["config", "uploadpack.allowFilter", "true"]);
    env.write("a.txt", "second\n");
    env.git(&["commit", "-qam", "second"]);
    let mut args = vec!["clone", "-q"];
    args.extend(options.iter().chain(&[source.as_str(), "other"]));
    env.run("git", &args).dir(env.path("")).done().exits(0);
    env.path("other")
}

/// A session of an agent that takes prompts and has nothing to do.
fn idle(env: &TestEnv) -> String {
    let words = ["session", "start", "--json", "--reprompt", "--", "true"];
    text(&env.ap(&words).exits(0).json(), "sessionId")
}

pub(super) fn adopt_here(dir: PathBuf) -> Try {
    run(["session", "adopt", "--label", "s", "--cwd", "."]).at(dir)
}

fn ack(env: &TestEnv, more: &[&str]) -> Try {
    let policy = env.awaiting("f.txt");
    run(["ack", &policy].iter().chain(more))
}

/// A command about a policy that only a fetched journal knows.
fn of_another_clone(env: &TestEnv, command: &[&str]) -> Try {
    let dir = cloned(env, &[]);
    let out = env.ap_in(&dir, &["session", "adopt", "--label", "s", "--cwd", ".", "--json"]);
    let session = text(&out.exits(0).json(), "sessionId");
    let out = env.ap_in(&dir, &["attach", &session, "--json", "--", "true"]);
    let policy = text(&out.exits(0).json(), "policyId");
    let journals = "refs/agentproto/journal/*:refs/agentproto/remotes/other/journal/*";
    env.git(&["fetch", "-q", dir.to_str().unwrap(), journals]);
    run(command.iter().copied().chain([policy.as_str()]))
}

fn ack_by(env: &TestEnv, key: &str, options: &[&str]) -> Try {
    let file = env.key(key, options);
    ack(env, &["--yes", "--key", file.to_str().unwrap()])
}

fn inside_session(env: &TestEnv, args: &[&str]) -> Try {
    let session = env.adopt("s");
    run(args).var("AGENTPROTO_SESSION_ID", session)
}

fn commit_allowlist(env: &TestEnv, content: &str) {
    env.write(".agentproto/allowed-commands.json", content);
    env.git(&["commit", "-qam", "allowlist"]);
}

/// A turn reported twice over, then one more word about it.
fn after_two_turns(env: &TestEnv, rest: &[&str]) -> Try {
    let session = env.adopt("s");
    for kind in ["turn-start", "turn-end", "turn-start", "turn-end"] {
        env.ap(&["session", "report", &session, kind]).exits(0);
    }
    run(["session", "report", &session].iter().chain(rest))
}

/// Puts another object under the journal's name, with or without the side directory.
fn moved_journal(env: &TestEnv, to: &str, forget: bool) -> Try {
    let session = env.adopt("s");
    env.git(&["update-ref", &env.journal(), to]);
    if forget {
        fs::remove_dir_all(env.repo().join(".git/agentproto")).unwrap();
    }
    run(["session", "report", &session, "command-done"])
}

/// A journal of two events as another version would have written it: each `(event, from, to)` changes a
/// trailer of one of them. The log that could prove the change is gone.
fn rewritten(env: &TestEnv, changes: &[(usize, &str, &str)]) -> Try {
    env.adopt("s");
    env.adopt("t");
    let journal = env.journal();
    let mut parent = None;
    for (at, id) in env.git(&["rev-list", "--reverse", &journal]).lines().enumerate() {
        let mut raw = env.git(&["cat-file", "commit", id]);
        if let Some((old, new)) = &parent {
            raw = raw.replace(&format!("parent {old}\n"), &format!("parent {new}\n"));
        }
        for (_, from, to) in changes.iter().filter(|(event, ..)| *event == at) {
            assert!(raw.contains(from), "no '{from}' in {raw}");
            raw = raw.replace(from, to);
        }
        let hash = env.run("git", &["hash-object", "-t", "commit", "-w", "--stdin"]);
        let hashed = hash.stdin(raw + "\n").done().exits(0).out();
        parent = Some((id.to_owned(), hashed.trim_end().to_owned()));
    }
    fs::remove_dir_all(env.repo().join(".git/agentproto")).unwrap();
    env.forget_last_event();
    env.git(&["update-ref", &journal, &parent.unwrap().1]);
    // Reading goes on.
    let events = env.ap(&["events", "--json"]).exits(0).json();
    assert_eq!(events["events"].as_array().unwrap().len(), 2, "{events:#}");
    run(["session", "adopt", "--label", "later", "--cwd", "."])
}

const USAGE: &[Row] = &[
    row("usage", 129, |e| attach(e, &["--frobnicate"])),
    row("usage", 129, |_| run(["session", "report"])),
    row("no-paths", 129, |e| attach(e, &["--then", "commit", "-m", "m", "--", "true"])),
    row("no-paths", 129, |_| run(["commit", "-m", "m", "--", "true"])),
    row("empty-message", 129, |_| run(["commit", "--path", "a.txt", "-m", " \n", "--", "true"])),
    row("ambiguous-duration", 129, |e| attach(e, &["--gate-timeout", "30", "--", "true"])),
    row("bad-time", 129, |e| attach(e, &["--gate-timeout", "soon", "--", "true"])),
    row("too-many", 6, |_| {
        let paths = (0..=512).flat_map(|i| ["--path".to_owned(), format!("f{i}")]);
        run(["commit", "-m", "m"]
            .map(str::to_owned)
            .into_iter()
            .chain(paths)
            .chain(["--".into(), "true".into()]))
    }),
    row("too-many", 6, |e| attach(e, &["--gate", "true"].repeat(17))),
    row("too-many", 6, |e| {
        e.write("a.txt", "changed\n");
        run(["commit", "--path", "a.txt", "-m", &"m".repeat(64 * 1024 + 1), "--", "true"])
    }),
];

const NOT_THERE: &[Row] = &[
    row("no-such-session", 4, |_| run(["attach", "ses_01arz3ndektsv4rrffq69g5fav", "--", "true"])),
    row("no-such-session", 4, |_| run(["session", "show", "nobody"])),
    row("no-such-session", 4, |_| run(["session", "report", "nobody", "turn-end"])),
    row("no-such-policy", 4, |_| run(["policy", "show", "pol_01arz3ndektsv4rrffq69g5fav"])),
    row("no-such-policy", 4, |_| run(["policy", "cancel", "nothing"])),
    row("no-such-policy", 4, |_| run(["ack", "nothing", "--yes"])),
    row("no-such-revision", 4, |_| run(["verify", "no-such-branch..main"])),
    row("no-such-revision", 4, |_| {
        run(["session", "adopt", "--label", "s", "--cwd", ".", "--base", "nowhere"])
    }),
    row("no-such-schema", 4, |_| run(["schema", "polcy"])),
    row("no-such-cursor", 4, |e| run(["events", "--since", &e.git(&["rev-parse", "HEAD"])])),
    row("segment-dropped", 4, |e| {
        e.adopt("s");
        e.adopt("t");
        let (first, _) = e.begin_second_segment();
        e.git(&["update-ref", "-d", &first]);
        run(["events", "--since", "0"])
    }),
    row("no-such-entity", 4, |_| run(["status", "nothing"])),
    row("no-such-entity", 4, |_| run(["log", "nothing"])),
    row("ambiguous", 6, |e| {
        e.adopt("twin");
        e.adopt("twin");
        run(["session", "show", "twin"])
    }),
];

const REPOSITORY: &[Row] = &[
    row("not-a-repository", 128, |e| {
        fs::create_dir(e.path("empty")).unwrap();
        run(["status"]).at(e.path("empty"))
    }),
    row("bare-unsupported", 6, |e| adopt_here(cloned(e, &["--bare"]))),
    row("bare-unsupported", 6, |e| {
        let bare = cloned(e, &["--bare"]);
        run(["commit", "--path", "a.txt", "-m", "m", "--", "true"]).at(bare)
    }),
    row("shallow-unsupported", 6, |e| adopt_here(cloned(e, &["--depth=1"]))),
    row("worktree-name-unsupported", 6, |e| {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};
        let odd = e.path("").join(OsStr::from_bytes(b"odd\xff"));
        let add = ["worktree", "add", "-q", "-b", "odd"].map(OsStr::new);
        e.run("git", &[&add[..], &[odd.as_os_str()]].concat()).done().exits(0);
        adopt_here(odd)
    }),
    row("partial-clone-unsupported", 6, |e| adopt_here(cloned(e, &["--filter=blob:none"]))),
    row("object-directory-unsupported", 6, |e| {
        adopt_here(e.repo()).var("GIT_OBJECT_DIRECTORY", e.repo().join(".git/objects"))
    }),
    row("namespace-unsupported", 6, |e| adopt_here(e.repo()).var("GIT_NAMESPACE", "elsewhere")),
    row("quarantine", 6, |e| {
        adopt_here(e.repo()).var("GIT_QUARANTINE_PATH", e.repo().join(".git/objects/incoming"))
    }),
    row("no-commits-yet", 6, |e| {
        e.run("git", &["init", "-q", "other"]).dir(e.path("")).done().exits(0);
        fs::write(e.path("other/a.txt"), "a\n").unwrap();
        run(["commit", "--path", "a.txt", "-m", "m", "--ungated"]).at(e.path("other"))
    }),
    row("newer-format", 2, |e| rewritten(e, &[(0, "\nFormat: 1\n", "\nFormat: 2\n")])),
    row("newer-format", 2, |e| rewritten(e, &[(1, "\nEngine: 5\n", "\nEngine: 999\n")])),
    row("journal-corrupt", 2, |e| rewritten(e, &[(0, "\nFormat: 1\n", "\n")])),
    row("journal-diverged", 2, |e| moved_journal(e, "main", false)),
    row("journal-corrupt", 2, |e| moved_journal(e, "main", true)),
];

const SESSIONS: &[Row] = &[
    row("terminal", 6, |e| {
        let session = e.adopt("s");
        e.ap(&["session", "report", &session, "exited", "--data", "{\"code\":0}"]).exits(0);
        run(["session", "report", &session, "turn-start"])
    }),
    row("terminal", 6, |e| {
        let session = e.adopt("s");
        let policy = e.attach(&session, &["--", "true"]);
        e.ap(&["policy", "cancel", &policy]).exits(0);
        run(["policy", "cancel", &policy])
    }),
    row("terminal", 6, |e| {
        let policy = e.awaiting("f.txt");
        e.ap(&["policy", "cancel", &policy]).exits(0);
        run(["policy", "dismiss", &policy])
    }),
    row("not-blocked", 6, |e| {
        let policy = e.awaiting("f.txt");
        run(["policy", "dismiss", &policy])
    }),
    row("person-only", 6, |e| {
        let policy = e.awaiting("f.txt");
        run(["policy", "dismiss", &policy]).var("AGENTPROTO_SESSION_ID", "ses_x")
    }),
    row("turn-over", 6, |e| after_two_turns(e, &["turn-end", "--turn", "1"])),
    row("turn-gap", 6, |e| after_two_turns(e, &["turn-end", "--turn", "9"])),
    row("no-such-request", 6, |e| {
        after_two_turns(e, &["input-answered", "--data", "{\"id\":\"none\"}"])
    }),
    row("bad-data", 129, |e| after_two_turns(e, &["exited", "--data", "{"])),
    row("bad-data", 129, |e| {
        let data = format!("{{\"id\":\"{}\"}}", "x".repeat(16 * 1024));
        after_two_turns(e, &["input-answered", "--data", &data])
    }),
    row("cwd-not-in-worktree", 6, |e| {
        fs::create_dir(e.path("empty")).unwrap();
        run(["session", "adopt", "--label", "s", "--cwd", e.path("empty").to_str().unwrap()])
    }),
    row("label-looks-like-id", 6, |_| run(["session", "adopt", "--label", "ses_x", "--cwd", "."])),
    row("session-owned", 6, |e| run(["session", "report", &idle(e), "turn-end"])),
    row("session-owned", 6, |e| run(["session", "report", &idle(e), "exited"])),
    row("not-launched", 6, |e| run(["session", "kill", &e.adopt("s")])),
    row("not-launched", 6, |e| run(["session", "output", &e.adopt("s")])),
    row("not-launched", 6, |e| attach(e, &["--end-session", "--", "true"])),
    row("not-promptable", 6, |e| run(["session", "prompt", &e.adopt("s"), "go on"])),
    row("not-promptable", 6, |e| attach(e, &["--max-retries", "2", "--", "true"])),
    row("mid-turn", 6, |e| {
        // It ends with this machine.
        let agent = "while test -d .git; do sleep 0.1; done";
        let words = ["session", "start", "--detach", "--label", "s", "--", "sh", "-c", agent];
        e.ap(&words).exits(0);
        let began = || e.kinds().contains(&"session:turn-start".to_owned()).then_some(());
        wait_for("its turn to begin", PATIENCE, began);
        run(["session", "prompt", "s", "go on"])
    }),
    row("worktree-busy", 6, |e| {
        e.adopt("s");
        run(["session", "start", "--", "true"])
    }),
    row("worktree-busy", 6, |e| {
        e.adopt("s");
        run(["run", "--gate", "true", "--", "true"])
    }),
    row("agent-not-found", 6, |_| run(["session", "start", "--", "no-such-agent"])),
    row("agent-not-found", 6, |_| run(["run", "--gate", "true", "--", "./a.txt"])),
    row("terminal", 6, |e| {
        let session = idle(e);
        e.ap(&["session", "kill", &session]).exits(0);
        run(["session", "prompt", &session, "go on"])
    }),
];

const ATTACH: &[Row] = &[
    row("not-allowlisted", 6, |e| attach(e, &["--", "test", "-f", "a.txt"])),
    row("not-allowlisted", 6, |e| attach(e, &["--", "git", "log"])),
    row("not-allowlisted", 6, |e| {
        e.write(".agentproto/allowed-commands.json", "{\"version\":1,\"commands\":[\"test\"]}");
        attach(e, &["--", "test", "-f", "a.txt"])
    }),
    row("allowlist-invalid", 6, |e| {
        commit_allowlist(e, "{\"version\":1,\"commands\":[\"true\"");
        attach(e, &["--", "true"])
    }),
    row("gate-required", 6, |e| attach(e, &["--then", "commit", "--path", "a.txt", "-m", "m"])),
    row("gate-needs-shell", 6, |e| attach(e, &["--gate", "true && ls"])),
    row("gate-not-found", 6, |e| {
        commit_allowlist(e, "{\"version\":1,\"commands\":[\"no-such-program\"]}");
        attach(e, &["--", "no-such-program"])
    }),
    row("gate-timeout-too-long", 6, |e| attach(e, &["--gate-timeout", "25h", "--", "true"])),
    row("cwd-escapes-worktree", 6, |e| attach(e, &["--gate-cwd", "../..", "--", "true"])),
    row("cwd-escapes-worktree", 6, |e| attach(e, &["--gate-cwd", "/", "--", "true"])),
    row("cwd-escapes-worktree", 6, |e| {
        std::os::unix::fs::symlink("/", e.repo().join("link")).unwrap();
        attach(e, &["--gate-cwd", "link/tmp", "--", "true"])
    }),
    row("history-cut", 2, |e| {
        e.governed("f.txt");
        fs::write(e.repo().join(".git/shallow"), e.git(&["rev-parse", "HEAD"]) + "\n").unwrap();
        run(["verify"])
    }),
    row("not-over", 6, |e| {
        let policy = e.attach(&e.adopt("s"), &["--", "true"]);
        run(["policy", "regate", &policy])
    }),
    row("members-in-different-worktrees", 6, |e| {
        e.adopt_in(&e.worktree("tree"), "elsewhere");
        attach(e, &["elsewhere", "--path", "a.txt", "-m", "m", "--", "true"])
    }),
    row("gate-env-denied", 6, |e| attach(e, &["--gate-env", "LD_PRELOAD=x", "--", "true"])),
    row("gate-env-denied", 6, |e| attach(e, &["--gate-env", "PATH=x", "--", "true"])),
    row("secret-env", 6, |e| {
        e.global("agentproto.secretEnv", "*password *token*");
        attach(e, &["--gate-env", "API_TOKEN=x", "--", "true"])
    }),
    row("usage", 129, |e| attach(e, &["--gate-env", "API_TOKEN", "--", "true"])),
    row("usage", 129, |e| attach(e, &["--gate-env-clean"])),
    row("scope-dirty-base", 6, |e| {
        e.write("a.txt", "changed\n");
        attach(e, &["--scope", "/src/"])
    }),
    row("scope-without-base", 2, |e| {
        e.git(&["checkout", "-q", "--orphan", "fresh"]);
        attach(e, &["--scope", "/src/"])
    }),
    row("usage", 129, |e| attach(e, &["--scope", "!/src/"])),
    row("unknown-field", 129, |e| {
        let file = e.path("policy.json");
        fs::write(&file, r#"{"onfail": {}}"#).unwrap();
        attach(e, &["--next", file.to_str().unwrap(), "--", "true"])
    }),
    row("no-such-cwd", 6, |e| attach(e, &["--gate-cwd", "nowhere", "--", "true"])),
    row("no-ack-not-allowed", 6, |e| commit(e, &["--no-ack"])),
    row("no-ack-not-allowed", 6, |e| {
        commit(e, &["--no-ack"]).with_setting("agentproto.allowNoAck=true")
    }),
    row("no-ack-not-allowed", 6, |e| {
        e.git(&["config", "agentproto.allowNoAck", "true"]);
        commit(e, &["--no-ack"])
    }),
    row("no-ack-not-allowed", 6, |e| {
        e.global("agentproto.allowNoAck", "true");
        commit(e, &["--no-ack"]).var("AGENTPROTO_SESSION_ID", "ses_x")
    }),
    row("bad-setting", 2, |e| {
        e.global("agentproto.allowNoAck", "perhaps");
        commit(e, &["--no-ack"])
    }),
    row("identity-missing", 6, |e| {
        e.unset_global("user.name");
        e.unset_global("user.email");
        commit(e, &[])
    }),
    row("signers-missing", 6, |e| {
        e.unset_global("agentproto.allowedSignersFile");
        commit(e, &[])
    }),
    row("signers-missing", 6, |e| {
        // What an agent can write does not count.
        e.unset_global("agentproto.allowedSignersFile");
        e.git(&["config", "agentproto.allowedSignersFile", e.path("allowed").to_str().unwrap()]);
        commit(e, &[])
    }),
    row("signers-invalid", 6, |e| {
        fs::write(e.path("allowed"), "ada@example.invalid not-a-key AAAA\n").unwrap();
        commit(e, &[])
    }),
    row("cert-authority-unsupported", 6, |e| {
        e.write_signers("ada@example.invalid cert-authority", "ada");
        commit(e, &[])
    }),
    row("commit-signing-unusable", 6, |e| {
        e.git(&["config", "commit.gpgSign", "true"]);
        e.global("gpg.format", "minisign");
        commit(e, &[])
    }),
];

const PATHS: &[Row] = &[
    row("path-empty", 6, |e| path(e, "")),
    row("path-is-directory", 6, |e| path(e, ".")),
    row("path-is-directory", 6, |e| path(e, ".agentproto")),
    row("path-is-directory", 6, |e| path(e, "a.txt/")),
    row("path-outside-worktree", 6, |e| path(e, "../x")),
    row("path-outside-worktree", 6, |e| path(e, "/etc/passwd")),
    row("path-in-git-dir", 6, |e| path(e, ".git/config")),
    row("path-in-git-dir", 6, |e| path(e, ".GIT/config")),
    row("path-in-git-dir", 6, |e| path(e, "git~1/config")),
    row("path-through-symlink", 6, |e| {
        fs::create_dir(e.path("outside")).unwrap();
        fs::write(e.path("outside/x"), "x\n").unwrap();
        std::os::unix::fs::symlink(e.path("outside"), e.repo().join("link")).unwrap();
        path(e, "link/x")
    }),
    row("path-in-submodule", 6, |e| {
        nested(e, true);
        path(e, "sub/s")
    }),
    row("path-in-submodule", 6, |e| {
        nested(e, false);
        path(e, "sub/s")
    }),
    row("path-is-submodule", 6, |e| {
        nested(e, true);
        path(e, "sub")
    }),
    row("path-ignored", 6, |e| {
        e.write(".gitignore", "*.env\n");
        e.write("p.env", "KEY=1\n");
        path(e, "p.env")
    }),
    row("nothing-to-add", 6, |_| {
        run(["commit", "--recursive", "--path=.agentproto", "-m", "m", "--", "true"])
    }),
    row("path-special-file", 6, |e| {
        e.run("mkfifo", &["pipe"]).done().exits(0);
        path(e, "pipe")
    }),
    row("path-symlink-escapes", 6, |e| {
        std::os::unix::fs::symlink("/etc/hostname", e.repo().join("link")).unwrap();
        path(e, "link")
    }),
    row("path-symlink-escapes", 6, |e| {
        std::os::unix::fs::symlink("../nowhere", e.repo().join("link")).unwrap();
        path(e, "link")
    }),
    row("path-outside-sparse-checkout", 6, |e| {
        e.write("in/x", "x\n");
        e.write("out/x", "x\n");
        e.git(&["add", "in", "out"]);
        e.git(&["commit", "-qm", "two directories"]);
        e.git(&["sparse-checkout", "set", "--cone", "in"]);
        path(e, "out/x")
    }),
];

const OPERATIONS: &[Row] = &[
    row("merge-in-progress", 6, |e| {
        conflicting(e);
        stopped(e, &["merge", "-q", "side"]);
        path(e, "a.txt")
    }),
    row("rebase-in-progress", 6, |e| {
        conflicting(e);
        stopped(e, &["rebase", "-q", "side"]);
        path(e, "a.txt")
    }),
    row("cherry-pick-in-progress", 6, |e| {
        conflicting(e);
        stopped(e, &["cherry-pick", "side"]);
        path(e, "a.txt")
    }),
    row("revert-in-progress", 6, |e| {
        conflicting(e);
        e.write("a.txt", "again\n");
        e.git(&["commit", "-qam", "again"]);
        stopped(e, &["revert", "--no-edit", "HEAD~1"]);
        path(e, "a.txt")
    }),
    row("bisect-in-progress", 6, |e| {
        e.git(&["bisect", "start"]);
        commit(e, &[])
    }),
    row("unmerged-index", 6, |e| {
        let oid = e.git(&["rev-parse", "HEAD:a.txt"]);
        let stage = |n| format!("100644 {oid} {n}\ta.txt\n");
        let lines = format!("0 {}\ta.txt\n{}{}", "0".repeat(oid.len()), stage(2), stage(3));
        e.run("git", &["update-index", "--index-info"]).stdin(lines).done().exits(0);
        path(e, "a.txt")
    }),
    row("detached-head", 6, |e| {
        e.git(&["checkout", "-q", "--detach"]);
        commit(e, &[])
    }),
];

const ACKS: &[Row] = &[
    row("person-only", 6, |e| inside_session(e, &["init", "--yes"])),
    row("person-only", 6, |e| inside_session(e, &["allow", "--", "test"])),
    row("person-only", 6, |e| inside_session(e, &["allow", "--commit", "--", "test"])),
    row("person-only", 6, |e| inside_session(e, &["trust"])),
    row("ack-from-session", 6, |e| {
        let session = e.adopt("s");
        ack(e, &["--yes"]).var("AGENTPROTO_SESSION_ID", session)
    }),
    row("confirmation-needed", 5, |e| ack(e, &[])),
    row("confirmation-needed", 5, |_| run(["allow", "--commit", "--", "make"])),
    row("not-owner", 6, |e| of_another_clone(e, &["ack", "--yes"])),
    row("not-owner", 6, |e| of_another_clone(e, &["policy", "cancel"])),
    row("not-owner", 6, |e| of_another_clone(e, &["policy", "show"])),
    row("not-awaiting", 6, |e| {
        let session = e.adopt("s");
        let policy = e.attach(&session, &["--", "true"]);
        run(["ack", &policy, "--yes"])
    }),
    row("no-signing-key", 6, |e| {
        e.unset_global("agentproto.signingKey");
        ack(e, &["--yes"])
    }),
    row("no-signing-key", 6, |e| {
        e.unset_global("agentproto.signingKey");
        e.git(&["config", "agentproto.signingKey", e.path("ada").to_str().unwrap()]);
        ack(e, &["--yes"])
    }),
    row("key-unreadable", 6, |e| ack(e, &["--yes", "--key", e.path("no-key").to_str().unwrap()])),
    row("signing-needs-person", 5, |e| {
        ack_by(e, "locked", &["-t", "ed25519", "-N", "a passphrase"])
    }),
    row("signing-failed", 6, |e| {
        e.global("gpg.ssh.program", "/bin/true");
        ack_by(e, "locked", &["-t", "ed25519", "-N", "a passphrase"])
    }),
    row("key-type-unsupported", 6, |e| ack_by(e, "rsa", &["-t", "rsa", "-b", "2048", "-N", ""])),
    answered("unauthorized", &["ack:refused"], |e| {
        ack(e, &["--yes", "--key", e.path("eve").to_str().unwrap()])
    }),
    answered("unauthorized", &["ack:refused"], |e| {
        let args = ack(e, &["--yes"]);
        e.write_signers("ada@example.invalid namespaces=\"git\"", "ada");
        args
    }),
    answered("unauthorized", &["ack:refused"], |e| {
        let args = ack(e, &["--yes"]);
        e.write_signers("ada@example.invalid valid-before=\"20200101\"", "ada");
        args
    }),
    answered("expired", &["ack:refused"], |e| ack(e, &["--yes", "--expires", "0s"])),
    answered("replayed", &["ack:refused"], |e| {
        e.key("bob", &["-t", "ed25519", "-N", ""]);
        let line = |key: &str| format!("{key}@example.invalid {}\n", e.public_key(key));
        fs::write(e.path("allowed"), format!("{}{}", line("ada"), line("bob"))).unwrap();
        e.global("agentproto.ackQuorum", "2");
        let args = ack(e, &["--yes"]);
        args.done(e, false).exits(5);
        args
    }),
    row("too-few-signers", 6, |e| {
        e.global("agentproto.ackQuorum", "2");
        commit(e, &[])
    }),
    row("bad-setting", 2, |e| {
        e.global("agentproto.ackQuorum", "17");
        commit(e, &[])
    }),
    answered("stale", &["ack:refused", "policy:failed"], |e| {
        let policy = e.awaiting_with("f.txt", &["--on-stale", "block"]);
        let args = run(["ack", &policy, "--yes"]);
        e.git(&["commit", "-q", "--allow-empty", "-m", "moved"]);
        args
    }),
];

const SET_UP: &[Row] = &[
    row("dir-not-empty", 6, |e| {
        fs::create_dir(e.path("demo")).unwrap();
        fs::write(e.path("demo/x"), "x").unwrap();
        run(["demo", e.path("demo").to_str().unwrap()])
    }),
    row("no-trusted-ref", 6, |e| {
        e.run("git", &["init", "-q", "-b", "trunk", "other"]).dir(e.path("")).done().exits(0);
        let other = e.path("other");
        e.git_in(&other, &["commit", "-q", "--allow-empty", "-m", "a"]);
        run(["init", "--yes"]).at(other)
    }),
];

pub(super) const AREAS: &[(&str, &[Row])] = &[
    ("usage", USAGE),
    ("not there", NOT_THERE),
    ("repository", REPOSITORY),
    ("sessions", SESSIONS),
    ("attach", ATTACH),
    ("paths", PATHS),
    ("operations", OPERATIONS),
    ("acks", ACKS),
    ("set-up", SET_UP),
];

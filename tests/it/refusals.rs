//! Every refusal a user can meet: its code, its exit code, and that nothing was written.
//!
//! One row per situation. Each is run as text (code on stderr) and with `--json` (one error object on stderr,
//! stdout empty); refs, indexes, working files and user settings are compared before and after. `OUTCOMES`
//! does the same for what ends a policy after it was attached. A last test asks for every code of the program
//! whether it is met here, so that a new one cannot be forgotten.

use crate::{
    env::{Output, TestEnv, allowlist},
    house::text,
};
use git_agentproto::code::Code;
use serde_json::Value;
use std::{
    collections::BTreeSet, ffi::OsString, fs, os::unix::ffi::OsStringExt, path::PathBuf,
    sync::Mutex,
};

/// The command of a row: where it runs, with which arguments and variables.
struct Try {
    args: Vec<OsString>,
    dir: Option<PathBuf>,
    vars: Vec<(&'static str, OsString)>,
    config: Option<&'static str>,
}

fn run<S: AsRef<str>>(args: impl IntoIterator<Item = S>) -> Try {
    let args = args.into_iter().map(|a| OsString::from(a.as_ref())).collect();
    Try { args, dir: None, vars: Vec::new(), config: None }
}

impl Try {
    fn at(mut self, dir: PathBuf) -> Self {
        self.dir = Some(dir);
        self
    }

    fn var(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.vars.push((name, value.into()));
        self
    }

    /// `git -c SETTING agentproto …`
    fn with_setting(mut self, setting: &'static str) -> Self {
        self.config = Some(setting);
        self
    }

    fn done(&self, env: &TestEnv, json: bool) -> Output {
        let mut words: Vec<OsString> = Vec::new();
        words.extend(self.config.iter().flat_map(|s| ["-c".into(), OsString::from(s)]));
        words.push("agentproto".into());
        let own = self.args.iter().position(|a| a == "--").unwrap_or(self.args.len());
        words.extend_from_slice(&self.args[..own]);
        words.extend(json.then(|| "--json".into()));
        words.extend_from_slice(&self.args[own..]);
        let mut run = env.run("git", &words);
        for (name, value) in &self.vars {
            run = run.env(name, value);
        }
        if let Some(dir) = &self.dir {
            run = run.dir(dir);
        }
        run.done()
    }
}

/// What a refused command may still write (decisions 22).
enum Writes {
    Nothing,
    /// Exactly these events.
    Events(&'static [&'static str]),
}

struct Row {
    code: &'static str,
    exit: i32,
    writes: Writes,
    set_up: fn(&TestEnv) -> Try,
}

const fn row(code: &'static str, exit: i32, set_up: fn(&TestEnv) -> Try) -> Row {
    Row { code, exit, writes: Writes::Nothing, set_up }
}

const fn answered(
    code: &'static str,
    events: &'static [&'static str],
    set_up: fn(&TestEnv) -> Try,
) -> Row {
    Row { code, exit: 6, writes: Writes::Events(events), set_up }
}

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

/// A repository of another kind beside the usual one.
fn other_repo(env: &TestEnv, options: &[&str]) -> PathBuf {
    let dir = env.path("other");
    let args = ["init", "-q"].iter().chain(options).chain(&["other"]).copied().collect::<Vec<_>>();
    env.run("git", &args).dir(env.path("")).done().exits(0);
    fs::write(dir.join("a.txt"), "a\n").unwrap();
    env.git_in(&dir, &["add", "a.txt"]);
    env.git_in(&dir, &["commit", "-qm", "a"]);
    dir
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

fn adopt_here(dir: PathBuf) -> Try {
    run(["session", "adopt", "--label", "s", "--cwd", "."]).at(dir)
}

fn ack(env: &TestEnv, more: &[&str]) -> Try {
    let policy = env.awaiting("f.txt");
    run(["ack", &policy].iter().chain(more))
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

/// A journal whose first commit says it is of a later format.
fn later_format(env: &TestEnv) -> Try {
    env.adopt("s");
    let first = env.git(&["rev-list", "--max-parents=0", &env.journal()]);
    let raw = env.git(&["cat-file", "commit", &first]).replace("\nFormat: 1\n", "\nFormat: 2\n");
    let hash =
        env.run("git", &["hash-object", "-t", "commit", "-w", "--stdin"]).stdin(raw + "\n").done();
    let journal = env.journal();
    fs::remove_dir_all(env.repo().join(".git/agentproto")).unwrap();
    env.git(&["update-ref", &journal, hash.exits(0).out().trim_end()]);
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
    row("no-such-cursor", 4, |e| run(["events", "--since", &e.git(&["rev-parse", "HEAD"])])),
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
    row("reftable-unsupported", 6, |e| adopt_here(other_repo(e, &["--ref-format=reftable"]))),
    row("sha256-unsupported", 6, |e| adopt_here(other_repo(e, &["--object-format=sha256"]))),
    row("bare-unsupported", 6, |e| adopt_here(cloned(e, &["--bare"]))),
    row("shallow-unsupported", 6, |e| adopt_here(cloned(e, &["--depth=1"]))),
    row("partial-clone-unsupported", 6, |e| adopt_here(cloned(e, &["--filter=blob:none"]))),
    row("object-directory-unsupported", 6, |e| {
        adopt_here(e.repo()).var("GIT_OBJECT_DIRECTORY", e.repo().join(".git/objects"))
    }),
    row("quarantine", 6, |e| {
        adopt_here(e.repo()).var("GIT_QUARANTINE_PATH", e.repo().join(".git/objects/incoming"))
    }),
    row("no-commits-yet", 6, |e| {
        e.run("git", &["init", "-q", "other"]).dir(e.path("")).done().exits(0);
        fs::write(e.path("other/a.txt"), "a\n").unwrap();
        run(["commit", "--path", "a.txt", "-m", "m", "--ungated"]).at(e.path("other"))
    }),
    row("newer-format", 2, later_format),
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
    row("no-such-cwd", 6, |e| attach(e, &["--gate-cwd", "nowhere", "--", "true"])),
    row("no-ack-not-allowed", 6, |e| commit(e, &["--no-ack"])),
    row("no-ack-not-allowed", 6, |e| {
        commit(e, &["--no-ack"]).with_setting("agentproto.allowNoAck=true")
    }),
    row("no-ack-not-allowed", 6, |e| {
        e.git(&["config", "agentproto.allowNoAck", "true"]);
        commit(e, &["--no-ack"])
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
    row("commit-hooks-unsupported", 6, |e| {
        e.write_script(".git/hooks/pre-commit", "#!/bin/sh\nexit 0\n");
        commit(e, &[])
    }),
    row("commit-signing-unsupported", 6, |e| {
        e.git(&["config", "commit.gpgSign", "true"]);
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
    row("path-special-file", 6, |e| {
        e.run("mkfifo", &["pipe"]).done().exits(0);
        path(e, "pipe")
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
        let lines = format!("0 {}\ta.txt\n{}{}", "0".repeat(40), stage(2), stage(3));
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
    row("person-only", 6, |e| inside_session(e, &["trust"])),
    row("ack-from-session", 6, |e| {
        let session = e.adopt("s");
        ack(e, &["--yes"]).var("AGENTPROTO_SESSION_ID", session)
    }),
    row("confirmation-needed", 5, |e| ack(e, &[])),
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
    row("key-needs-agent", 6, |e| ack_by(e, "locked", &["-t", "ed25519", "-N", "a passphrase"])),
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
    answered("stale", &["ack:refused", "policy:failed"], |e| {
        let args = ack(e, &["--yes"]);
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

const AREAS: &[(&str, &[Row])] = &[
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

/// What is wrong with one way of running a row.
fn judge(row: &Row, env: &TestEnv, command: &Try, json: bool) -> Vec<String> {
    let dir = command.dir.clone().filter(|d| *d != env.repo());
    let look = || (env.snapshot(), dir.as_deref().map(|d| env.snapshot_of(d)));
    // A moved journal is looked at with git, which does not care.
    let kinds = || match row.writes {
        Writes::Nothing => Vec::new(),
        Writes::Events(_) => env.kinds(),
    };
    let (before, told) = (look(), kinds());
    let out = command.done(env, json);
    let (after, telling) = (look(), kinds());

    let mut wrong = Vec::new();
    if out.code() != row.exit {
        wrong.push(format!("exit {} instead of {}", out.code(), row.exit));
    }
    if !out.stdout.is_empty() {
        wrong.push("stdout is not empty".to_owned());
    }
    if json {
        let code = serde_json::from_slice::<Value>(&out.stderr).map(|v| v["error"]["code"].clone());
        if code.as_ref().ok().and_then(Value::as_str) != Some(row.code) {
            wrong.push(format!("error.code is {code:?}"));
        }
    } else if !out.err().contains(row.code) {
        wrong.push("the code is not said".to_owned());
    }
    let allowed: &[&str] = match row.writes {
        Writes::Nothing => &[],
        Writes::Events(_) => &["ref refs/agentproto/journal/", "ref refs/agentproto/evidence/"],
    };
    let changed = before.0.without(allowed).differences(&after.0.without(allowed));
    wrong.extend(changed.iter().map(|line| format!("written: {line}")));
    if let (Some(before), Some(after)) = (before.1, after.1) {
        wrong
            .extend(before.differences(&after).iter().map(|line| format!("written there: {line}")));
    }
    if let Writes::Events(events) = row.writes {
        let new = telling.get(told.len()..).unwrap_or_default();
        if !new.iter().eq(events) {
            wrong.push(format!("events {new:?} instead of {events:?}"));
        }
    }
    if wrong.is_empty() { wrong } else { vec![format!("{}\n{out}", wrong.join("; "))] }
}

/// Both ways of running a row; one that writes gets a fresh machine for the second.
fn judge_both(row: &Row) -> Vec<String> {
    let env = TestEnv::new();
    let command = (row.set_up)(&env);
    let mut wrong = judge(row, &env, &command, false);
    if let Writes::Nothing = row.writes {
        wrong.extend(judge(row, &env, &command, true));
    } else {
        let env = TestEnv::new();
        let command = (row.set_up)(&env);
        wrong.extend(judge(row, &env, &command, true));
    }
    wrong
}

#[test]
fn every_refusal_says_its_code_and_writes_nothing() {
    let todo: Vec<(&str, &Row)> =
        AREAS.iter().flat_map(|(area, rows)| rows.iter().map(move |row| (*area, row))).collect();
    let next = Mutex::new(todo.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((area, row)) = next.lock().unwrap().next() else { break };
                    // A set-up that fails is one bad row, not the end of the table.
                    let found = std::panic::catch_unwind(|| judge_both(row))
                        .unwrap_or_else(|_| vec!["its set-up failed, see above".to_owned()]);
                    let found = found.into_iter().map(|w| format!("[{area}] {}: {w}", row.code));
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), 2 * todo.len(), wrong.join("\n\n"));
}

/// What ends a policy that was attached: its reason, the exit code of `commit` or `wait`, and a set-up that
/// gives the policy's object.
type Outcome = (&'static str, i32, fn(&TestEnv) -> Output);

/// A `commit --no-ack` gated by a script.
fn gated_by(env: &TestEnv, script: &str, path: &str) -> Output {
    env.write_script("gate.sh", script);
    fs::write(env.repo().join(".agentproto/allowed-commands.json"), allowlist(&["./gate.sh"]))
        .unwrap();
    env.git(&["add", "gate.sh", ".agentproto"]);
    env.git(&["commit", "-qm", "gate"]);
    env.write("a.txt", "changed\n");
    env.commit(&[path], &["./gate.sh"])
}

/// Attaches, lets `meanwhile` happen, ends the turn: what `wait` said, with the policy's object as stdout.
fn after(env: &TestEnv, gate: &[&str], meanwhile: impl FnOnce()) -> Output {
    let session = env.adopt("s");
    env.write("a.txt", "changed\n");
    let flags = ["--then", "commit", "--path", "a.txt", "-m", "m", "--"];
    let policy = env.attach(&session, &flags.iter().chain(gate).copied().collect::<Vec<_>>());
    meanwhile();
    let code = env.turn_end(&session, &policy).code();
    let shown = env.ap(&["policy", "show", &policy, "--json"]).exits(0);
    assert_eq!(code, 1, "wait: {shown}");
    shown
}

const OUTCOMES: &[Outcome] = &[
    ("gate-red", 1, |e| {
        e.write("a.txt", "changed\n");
        e.commit(&["a.txt"], &["false"])
    }),
    ("gate-not-runnable", 2, |e| gated_by(e, "#!/no/such/interpreter\n", "a.txt")),
    ("tree-changed-during-gate", 2, |e| gated_by(e, "#!/bin/sh\necho more >> a.txt\n", "a.txt")),
    ("no-such-path", 2, |e| e.commit(&["nowhere.txt"], &["true"])),
    ("path-conflicts-unlisted", 2, |e| {
        fs::remove_file(e.repo().join("a.txt")).unwrap();
        e.write("a.txt/below", "x\n");
        e.commit(&["a.txt/below"], &["true"])
    }),
    ("conflict-markers", 1, |e| {
        e.write("a.txt", "<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n");
        e.commit(&["a.txt"], &["true"])
    }),
    ("program-changed", 0, |e| {
        e.script("gate.sh", "exit 0");
        after(e, &["./gate.sh"], || e.write_script("gate.sh", "#!/bin/sh\nexit 0 # other\n"))
    }),
    ("git-operation-in-progress", 0, |e| {
        e.git(&["switch", "-qc", "side"]);
        e.git(&["commit", "-q", "--allow-empty", "-m", "side"]);
        e.git(&["switch", "-q", "main"]);
        after(e, &["true"], || {
            e.git(&["merge", "-q", "--no-ff", "--no-commit", "side"]);
        })
    }),
    ("stale-candidate", 0, |e| {
        let policy = e.awaiting("f.txt");
        e.git(&["commit", "-q", "--allow-empty", "-m", "moved"]);
        e.ap(&["ack", &policy, "--yes"]).exits(6);
        e.ap(&["policy", "show", &policy, "--json"])
    }),
];

#[test]
fn every_blocked_policy_says_why_and_moves_no_branch() {
    let mut wrong = Vec::new();
    for (reason, exit, set_up) in OUTCOMES {
        let env = TestEnv::new();
        env.allow_no_ack();
        let out = set_up(&env);
        let policy: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        let told = (policy["status"].as_str(), policy["reason"].as_str());
        if (out.code(), told) != (*exit, (Some("blocked"), Some(*reason))) {
            wrong.push(format!("{reason}: {told:?}\n{out}"));
        }
        if policy["commitSha"] != Value::Null
            || env.kinds().last().map(String::as_str) == Some("policy:committed")
        {
            wrong.push(format!("{reason}: something was committed\n{out}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}

#[test]
fn a_held_index_keeps_the_branch_until_it_is_free() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let before = env.git(&["rev-parse", "main"]);
    let lock = env.repo().join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    let out = env.ap(&["ack", &policy, "--yes", "--json"]).exits(2);
    assert_eq!(text(&out.json(), "status"), "committing", "{out}");
    assert_eq!(text(&env.policy(&policy), "reason"), "index-locked");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert!(lock.exists(), "a lock of somebody else was taken away");

    let out = env.ap(&["policy", "cancel", &policy]).exits(6);
    assert!(out.err().contains("committing"), "{out}");
    fs::remove_file(&lock).unwrap();
    env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
    assert_eq!(env.git(&["rev-parse", "main"]), text(&env.policy(&policy), "commitSha"));
}

#[test]
fn refuses_a_repository_of_another_owner() {
    // Only root can give files away; without it the situation cannot be made.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let env = TestEnv::new();
    let repo = env.repo();
    env.run("chown", &["-R", "65534:65534", repo.to_str().unwrap()]).done().exits(0);
    let listing =
        || env.run("ls", &["-lnR", "--time-style=full-iso", ".git", "."]).done().exits(0).out();
    let before = listing();
    let out = adopt_here(repo.clone()).done(&env, true).exits(128);
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(text(&error["error"], "code"), "foreign-owned-repository", "{out}");
    assert_eq!(before, listing());
}

#[test]
fn a_path_that_is_not_utf8_is_refused_or_committed_byte_for_byte() {
    let env = TestEnv::new();
    env.allow_no_ack();
    let name = OsString::from_vec(b"caf\xe9.txt".to_vec());
    fs::write(env.repo().join(&name), "x\n").unwrap();
    let mut flag = OsString::from("--path=");
    flag.push(&name);
    let words = ["commit", "--no-ack", "-m", "m", "--json"].map(OsString::from);
    let args: Vec<_> = words.into_iter().chain([flag, "--".into(), "true".into()]).collect();
    env.ap(&args).exits(0);
    let raw = env.run("git", &["ls-tree", "-z", "--name-only", "main"]).done().exits(0).stdout;
    assert!(raw.split(|b| *b == 0).any(|n| n == b"caf\xe9.txt"));
}

/// Codes this file meets outside its tables, and the test that does.
const MET_ELSEWHERE: &[(&str, &str)] = &[
    ("can-never-be", "wait_and_verify_answer_by_their_exit_code"),
    ("committing", "a_held_index_keeps_the_branch_until_it_is_free"),
    ("foreign-owned-repository", "refuses_a_repository_of_another_owner"),
    ("index-locked", "a_held_index_keeps_the_branch_until_it_is_free"),
    ("not-governed", "wait_and_verify_answer_by_their_exit_code"),
    ("timeout", "wait_and_verify_answer_by_their_exit_code"),
];

/// Codes a black box cannot bring about, and why.
const NOT_PROVOKED_HERE: &[(&str, &str)] = &[
    ("candidate-failed", "needs an object store that fails between the look and the write"),
    (
        "expired",
        "this version consumes an answer in the command that signs it; the engine's tests judge it",
    ),
    (
        "forged",
        "this version judges only what it signed itself; the tests of the signed line judge it",
    ),
    ("git-failed", "needs a git that breaks half way; the tests of the spawn point bring it about"),
    ("internal-error", "would be a defect"),
    ("io-error", "needs a device that fails"),
    ("landing-refused", "needs a race inside the landing; the store's tests bring it about"),
    ("lock-timeout", "needs a holder of the kernel lock that outlasts the wait"),
    (
        "malformed",
        "this version judges only lines it wrote itself; the tests of the signed line judge it",
    ),
    ("not-owner", "acks from another clone come with sync"),
    ("notes-contended", "needs two hundred lost races in a row"),
    ("orphan", "answers from elsewhere come with sync"),
    ("path-has-nul", "an argument cannot hold a NUL; the tests of repository paths judge it"),
    ("platform-unsupported", "this is a supported platform"),
    ("protected-setting", "such a value is ignored; the refusal it leads to has its row"),
    ("read-only", "needs a file system mounted read-only"),
    ("replayed", "this version judges only what it signed itself; the engine's tests judge it"),
    ("runner-failed", "needs a runner that is killed; the runtime's tests bring it about"),
    ("secret-env", "gates take variables only from files of definitions, which come later"),
    ("store-unusable", "needs a damaged log; the store's tests bring it about"),
    ("unknown-field", "definitions in files come later"),
];

#[test]
fn every_code_is_met_or_answered_for() {
    let rows = AREAS.iter().flat_map(|(_, rows)| rows.iter().map(|row| row.code));
    let met: BTreeSet<&str> = rows
        .chain(OUTCOMES.iter().map(|(reason, ..)| *reason))
        .chain(MET_ELSEWHERE.iter().map(|(code, _)| *code))
        .collect();
    let excused: BTreeSet<&str> = NOT_PROVOKED_HERE.iter().map(|(code, _)| *code).collect();
    let all: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let answered: BTreeSet<&str> = met.union(&excused).copied().collect();
    assert_eq!(
        all.difference(&answered).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "codes without a row"
    );
    assert_eq!(
        answered.difference(&all).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "rows without a code"
    );
    assert_eq!(
        met.intersection(&excused).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "excused but met"
    );
    assert!(met.len() >= 60, "only {} codes are met", met.len());
    let sources = [include_str!("refusals.rs"), include_str!("cli_contract.rs")].concat();
    for (code, test) in MET_ELSEWHERE {
        assert!(sources.contains(&format!("fn {test}()")), "{code} is not met by {test}");
    }
    for (code, exit) in AREAS.iter().flat_map(|(_, rows)| rows.iter().map(|r| (r.code, r.exit))) {
        assert_eq!(i32::from(code.parse::<Code>().unwrap().exit()), exit, "exit code of {code}");
    }
}

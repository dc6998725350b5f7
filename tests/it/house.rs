//! Moves that several tests share: adopt, attach, report, wait, and what plain git says of the result.

use crate::env::{Output, PATIENCE, TestEnv, allowlist, wait_for};
use serde_json::Value;
use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
};

impl TestEnv {
    /// Registers a session for the main worktree; its id.
    #[track_caller]
    pub(crate) fn adopt(&self, label: &str) -> String {
        self.adopt_in(&self.repo(), label)
    }

    #[track_caller]
    pub(crate) fn adopt_in(&self, dir: &Path, label: &str) -> String {
        let dir = dir.to_str().unwrap();
        let out = self.ap(&["session", "adopt", "--label", label, "--cwd", dir, "--json"]);
        text(&out.exits(0).json(), "sessionId")
    }

    /// Attaches a policy with the given flags and gate; its id.
    #[track_caller]
    pub(crate) fn attach(&self, session: &str, rest: &[&str]) -> String {
        let args: Vec<_> = ["attach", session, "--json"].iter().chain(rest).copied().collect();
        text(&self.ap(&args).exits(0).json(), "policyId")
    }

    /// Reports a finished turn and lets the policy settle or wait for a person.
    #[track_caller]
    pub(crate) fn turn_end(&self, session: &str, policy: &str) -> Output {
        self.ap(&["session", "report", session, "turn-end"]).exits(0);
        self.ap(&["wait", policy, "--until", "settled", "--timeout", "60s", "--json"])
    }

    /// True when the tester chose reftables, where one lock holds up every ref.
    pub(crate) fn is_reftable(&self) -> bool {
        self.repo().join(".git/reftable").is_dir()
    }

    /// The lock file that keeps everybody from changing a ref of the repository in `dir`.
    pub(crate) fn ref_lock(&self, dir: &Path, name: &str) -> PathBuf {
        let git = dir.join(".git");
        if self.is_reftable() {
            git.join("reftable/tables.list.lock")
        } else {
            git.join(format!("{name}.lock"))
        }
    }

    /// Puts `held` in the place of what a ref holds, none to remove it. In tables there is no room for anything
    /// but an id and the name of another ref: what is no id is the name of one that is not there.
    #[track_caller]
    pub(crate) fn spoil_ref(&self, name: &str, held: Option<&str>) {
        let file = self.repo().join(".git").join(name);
        match (held, self.is_reftable()) {
            (Some(held), false) => fs::write(file, held).unwrap(),
            (None, false) => fs::remove_file(file).unwrap(),
            (None, true) => drop(self.git(&["update-ref", "--no-deref", "-d", name])),
            (Some(held), true) if [40, 64].contains(&held.trim_end().len()) => {
                self.git(&["update-ref", "--no-deref", name, held.trim_end()]);
            }
            (Some(_), true) => drop(self.git(&["symbolic-ref", name, "refs/heads/nowhere"])),
        }
    }

    #[track_caller]
    pub(crate) fn policy(&self, id: &str) -> Value {
        self.ap(&["policy", "show", id, "--json"]).exits(0).json()
    }

    /// A policy that waits for an ack to commit `path`, which holds its own name.
    #[track_caller]
    pub(crate) fn awaiting(&self, path: &str) -> String {
        let session = self.adopt(&format!("session of {path}"));
        self.awaiting_of(&session, &self.repo(), path)
    }

    #[track_caller]
    pub(crate) fn awaiting_of(&self, session: &str, worktree: &Path, path: &str) -> String {
        fs::write(worktree.join(path), format!("{path}\n")).unwrap();
        let message = format!("add {path}");
        let args =
            ["attach", session, "--then", "commit", "--path", path, "-m", &message, "--json"];
        let args: Vec<_> = args.into_iter().chain(["--", "ls", path]).collect();
        let out = self.tool(&args).dir(worktree).done().exits(0);
        let policy = text(&out.json(), "policyId");
        self.turn_end(session, &policy).exits(5);
        policy
    }

    /// As [`TestEnv::awaiting`], attached with more flags.
    #[track_caller]
    pub(crate) fn awaiting_with(&self, path: &str, flags: &[&str]) -> String {
        let session = self.adopt(&format!("session of {path}"));
        self.write(path, &format!("{path}\n"));
        let args = ["--then", "commit", "--path", path, "-m", path];
        let policy = self.attach(&session, &[&args, flags, &["--", "ls", path]].concat());
        self.turn_end(&session, &policy).exits(5);
        policy
    }

    /// Approves while somebody else holds the index, and kills who waits for it: the policy is committing, nobody lands
    /// it, and the lock is there.
    #[track_caller]
    pub(crate) fn held_landing(&self, policy: &str) -> PathBuf {
        let lock = self.repo().join(".git/index.lock");
        fs::write(&lock, "").unwrap();
        let mut landing = self.binary(&["ack", policy, "--yes"]).start();
        let record = self.repo().join(format!(".git/agentproto/tmp/index-lock.{policy}.."));
        wait_for("the landing to ask for the index", PATIENCE, || record.exists().then_some(()));
        landing.kill().unwrap();
        assert_eq!(landing.wait().unwrap().signal(), Some(9), "it did not wait for the index");
        lock
    }

    /// One governed commit of `path` on `main`: policy id and commit id.
    #[track_caller]
    pub(crate) fn governed(&self, path: &str) -> (String, String) {
        let policy = self.awaiting(path);
        self.ap(&["ack", &policy, "--yes"]).exits(0);
        self.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
        let commit = text(&self.policy(&policy), "commitSha");
        assert_eq!(self.git(&["rev-parse", "main"]), commit);
        (policy, commit)
    }

    /// A person's own setting that makes acks optional.
    pub(crate) fn allow_no_ack(&self) {
        self.global("agentproto.allowNoAck", "true");
    }

    /// `git agentproto commit --no-ack --json` in `dir`: these paths, gated by `gate`.
    #[track_caller]
    pub(crate) fn commit_in(&self, dir: &Path, paths: &[&str], gate: &[&str]) -> Output {
        let flags: Vec<_> = paths.iter().map(|p| format!("--path={p}")).collect();
        let mut args = vec!["commit", "--json", "--no-ack", "-m", "m"];
        args.extend(flags.iter().map(String::as_str));
        args.push("--");
        args.extend(gate);
        self.ap_in(dir, &args)
    }

    #[track_caller]
    pub(crate) fn commit(&self, paths: &[&str], gate: &[&str]) -> Output {
        self.commit_in(&self.repo(), paths, gate)
    }

    /// Commits an executable script at the top of the repository and allows it as a gate.
    pub(crate) fn script(&self, name: &str, body: &str) {
        self.write_script(name, &format!("#!/bin/sh\n{body}\n"));
        let listed = format!("./{name}");
        fs::write(self.repo().join(".agentproto/allowed-commands.json"), allowlist(&[&listed]))
            .unwrap();
        self.git(&["add", name, ".agentproto"]);
        self.git(&["commit", "-qm", &format!("add {name}"), "--", name, ".agentproto"]);
    }

    /// Writes an executable file at the top of the repository.
    pub(crate) fn write_script(&self, name: &str, content: &str) {
        let file = self.repo().join(name);
        fs::write(&file, content).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let file = self.repo().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
    }

    /// A linked worktree beside the repository on a new branch of the same name.
    pub(crate) fn worktree(&self, name: &str) -> PathBuf {
        let dir = self.path(name);
        self.git(&["worktree", "add", "-q", "-b", name, dir.to_str().unwrap()]);
        dir
    }

    /// The one journal ref there is.
    #[track_caller]
    pub(crate) fn journal(&self) -> String {
        let refs = self.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"]);
        let names: Vec<_> = refs.lines().collect();
        assert_eq!(names.len(), 1, "journal refs: {refs}");
        names[0].to_owned()
    }

    /// Writes the journal anew as another program would have written it: `change` gets each commit, oldest first.
    /// The log that knows better goes.
    #[track_caller]
    pub(crate) fn rewrite_journal(&self, change: impl Fn(usize, String) -> String) {
        let journal = self.journal();
        let mut parent: Option<(String, String)> = None;
        for (at, id) in self.git(&["rev-list", "--reverse", &journal]).lines().enumerate() {
            let mut raw = self.git(&["cat-file", "commit", id]);
            if let Some((old, new)) = &parent {
                raw = raw.replace(&format!("parent {old}\n"), &format!("parent {new}\n"));
            }
            parent = Some((id.to_owned(), self.hash_commit(change(at, raw))));
        }
        fs::remove_dir_all(self.repo().join(".git/agentproto")).unwrap();
        self.forget_last_event();
        self.git(&["update-ref", &journal, &parent.unwrap().1]);
    }

    fn hash_commit(&self, raw: String) -> String {
        let hash = self.run("git", &["hash-object", "-t", "commit", "-w", "--stdin"]);
        hash.stdin(raw + "\n").done().exits(0).out().trim_end().to_owned()
    }

    /// Lets the last event of the journal begin a second segment, as if the first one were full. The log that knows
    /// better goes. The refs of both.
    #[track_caller]
    pub(crate) fn begin_second_segment(&self) -> (String, String) {
        let first = self.journal();
        let repo = self.trailers("Repo").swap_remove(0);
        let before = self.git(&["rev-parse", &format!("{first}^")]);
        let raw = self.git(&["cat-file", "commit", &first]);
        let raw = raw.replacen(&format!("parent {before}\n"), "", 1);
        let lines = format!("\n\nRepo: {repo}\nFormat: 1\nContinues: {before}\nSeq: ");
        let raw = raw.replacen("\n\nSeq: ", &lines, 1);
        let begun = self.hash_commit(raw);
        fs::remove_dir_all(self.repo().join(".git/agentproto")).unwrap();
        self.forget_last_event();
        let second = format!("{}2", first.strip_suffix('1').unwrap());
        self.git(&["update-ref", &first, &before]);
        self.git(&["update-ref", &second, &begun]);
        (first, second)
    }

    /// A trailer of every journal commit, oldest first.
    #[track_caller]
    pub(crate) fn trailers(&self, key: &str) -> Vec<String> {
        let format = format!("--format=%(trailers:key={key},valueonly,separator=)");
        let log = self.git(&["log", "--first-parent", "--reverse", &format, &self.journal()]);
        log.lines().map(str::to_owned).collect()
    }

    /// The kinds of the journal's events in order; none when nothing was ever appended.
    #[track_caller]
    pub(crate) fn kinds(&self) -> Vec<String> {
        let any = self.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"]);
        if any.is_empty() { Vec::new() } else { self.trailers("Kind") }
    }

    /// Asserts that the journal's numbers follow each other without a gap or a repeat.
    #[track_caller]
    pub(crate) fn assert_no_gap(&self) {
        let seqs: Vec<u64> = self.trailers("Seq").iter().map(|s| s.parse().unwrap()).collect();
        assert!(!seqs.is_empty());
        for pair in seqs.windows(2) {
            assert_eq!(pair[1], pair[0] + 1, "sequence of the journal: {seqs:?}");
        }
    }

    /// Lines of the note of `commit` under `refs/notes/agentproto/<name>` that start with `lead`.
    pub(crate) fn note_lines(&self, name: &str, commit: &str, lead: &str) -> Vec<String> {
        let shown =
            self.run("git", &["notes", &format!("--ref=agentproto/{name}"), "show", commit]).done();
        let text = if shown.code() == 0 { shown.out() } else { String::new() };
        text.lines().filter(|l| l.starts_with(lead)).map(str::to_owned).collect()
    }

    /// The paths a commit changes against its parent, byte for byte as git stores them.
    #[track_caller]
    pub(crate) fn paths_of(&self, commit: &str) -> Vec<String> {
        let args = ["diff-tree", "-r", "-z", "--name-only", "--no-commit-id", commit];
        let mut names: Vec<_> =
            self.git(&args).split('\0').filter(|n| !n.is_empty()).map(str::to_owned).collect();
        names.sort();
        names
    }

    /// Removes the notes that would tell that a journal was set back or rewritten.
    pub(crate) fn forget_last_event(&self) {
        for entry in fs::read_dir(self.home().join(".local/state/agentproto/writers")).unwrap() {
            let file = entry.unwrap().path();
            if file.extension().is_some_and(|e| e == "tip") {
                fs::remove_file(file).unwrap();
            }
        }
    }

    /// Lock and temporary files below `.git`.
    pub(crate) fn strays(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.repo().join(".git")];
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if path.is_dir() {
                    open.push(path);
                } else if name.ends_with(".lock")
                    || name.starts_with("tmp_")
                    || name.starts_with(".tmp")
                {
                    found.push(path);
                }
            }
        }
        found
    }
}

/// Says what this machine or user does not allow to be tested: it was not seen to work.
pub(crate) fn skipped(what: &str) {
    // Not by a macro: what those print is shown for failed tests only.
    std::io::Write::write_all(&mut std::io::stderr(), format!("SKIPPED: {what}\n").as_bytes())
        .unwrap();
}

/// A string field of a JSON object.
#[track_caller]
pub(crate) fn text(object: &Value, field: &str) -> String {
    object[field]
        .as_str()
        .unwrap_or_else(|| panic!("no text in '{field}' of {object:#}"))
        .to_owned()
}

/// The value of `key=` in a note line.
#[track_caller]
pub(crate) fn value<'a>(line: &'a str, key: &str) -> &'a str {
    line.split(' ')
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        .unwrap_or_else(|| panic!("no {key}= in: {line}"))
}

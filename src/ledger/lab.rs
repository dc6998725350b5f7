//! A hermetic machine for tests of this folder: a repository made by the real git, a home, a key.

use super::{AttachAsk, CommitAsk, GateAsk, Ledger};
use crate::{
    domain::{
        ids::{PolicyId, SessionId},
        input::{Covers, GateRun, Input, Report, RunEnd},
        oid::Oid,
        path::RepoPath,
        policy::{Candidate, CommitSpec},
        session::{EndReason, Loose},
    },
    sign::key,
    store::{
        settings::{RepoSettings, write_private},
        testing::Repo,
    },
    sys::env::Env,
};
use std::path::{Path, PathBuf};

pub(super) struct Lab {
    pub(super) repo: Repo,
}

impl Lab {
    /// One commit on `main` with an allowlist, and a key that the person's own signers file lists.
    pub(super) fn new() -> Self {
        let lab = Self { repo: Repo::new() };
        lab.repo.write(
            ".agentproto/allowed-commands.json",
            br#"{"version":1,"commands":["true","ls","./check.sh"]}"#,
        );
        lab.repo.commit_file("a.txt", b"hello\n");
        for (key, value) in [
            ("user.name", "Tess Tester"),
            ("user.email", "tess@example.invalid"),
            ("commit.gpgSign", "false"),
            ("core.hooksPath", ".git/hooks"),
        ] {
            lab.repo.git(&["config", key, value]);
        }
        let words = key::public_words(key::make(&lab.key("tess"), "tess").unwrap().public());
        let line =
            format!("tess@example.invalid namespaces=\"agentproto-ack\" {}\n", words.unwrap());
        lab.set("agentproto.signingKey", lab.key("tess").to_str().unwrap());
        write_private(&lab.settings().signers_file(), line.as_bytes()).unwrap();
        lab
    }

    /// The person's settings of the repository. Global configuration is no place for a test: the library reads
    /// that of whoever runs it.
    pub(super) fn settings(&self) -> RepoSettings {
        let root = self.repo.oid("main");
        let root = self.repo.git(&["rev-list", "--max-parents=0", &root.to_string()]);
        RepoSettings::load(&self.env(&self.repo.top(), &[]), root.trim().parse().unwrap()).unwrap()
    }

    pub(super) fn set(&self, key: &str, value: &str) {
        let mut settings = self.settings();
        settings.set(key, value).unwrap();
        settings.save().unwrap();
    }

    pub(super) fn home(&self) -> PathBuf {
        self.repo.beside("")
    }

    pub(super) fn key(&self, name: &str) -> PathBuf {
        self.home().join(name)
    }

    pub(super) fn ledger(&self) -> Ledger {
        self.ledger_at(&self.repo.top(), &[])
    }

    pub(super) fn ledger_at(&self, cwd: &Path, more: &[(&str, &str)]) -> Ledger {
        Ledger::open(&self.env(cwd, more), "cli").unwrap()
    }

    pub(super) fn env(&self, cwd: &Path, more: &[(&str, &str)]) -> Env {
        let more = more.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Env::fixed(cwd.to_owned(), self.repo.env_vars().into_iter().chain(more))
    }

    /// Refs and everything in the home but the repository: what a refused request must leave alone.
    pub(super) fn snapshot(&self) -> String {
        let refs = self.repo.git(&["for-each-ref"]);
        let mut files = Vec::new();
        list(&self.home(), &self.repo.top().join(".git"), &mut files);
        files.sort();
        format!("{refs}{}", files.join("\n"))
    }

    pub(super) fn session(&self, ledger: &Ledger) -> SessionId {
        let ask = super::AdoptAsk { label: None, cwd: self.repo.top(), base: None };
        ledger.adopt(&ask).unwrap().0
    }

    /// A policy that waits for an ack of a commit that changes `a.txt`.
    pub(super) fn awaiting(&self, ledger: &Ledger) -> (PolicyId, Candidate) {
        let session = self.session(ledger);
        let (policy, _) = ledger
            .attach(&super::GroupAsk::of(&session, Covers::LastAndNext), &commit_of(&["a.txt"]))
            .unwrap();
        let report =
            Report::TurnEnd { turn: None, reason: EndReason::Completed, loose: Loose::default() };
        ledger.record(Input::Reported { session, report, key: None }).unwrap();
        let candidate = self.candidate("a.txt", b"hello\nworld\n");
        let (results, voided, noted_on) = (vec![], 0, None);
        let run = GateRun { results, voided, noted_on, end: RunEnd::Ready(candidate) };
        let input = Input::GatesEnded { policy: policy.clone(), attempt: 1, run };
        let touched = [crate::domain::event::Entity::Policy(policy.clone())];
        ledger.record_with(&touched, vec![candidate.commit], |_| Ok(input)).unwrap();
        (policy, candidate)
    }

    /// A commit on top of `main` that no branch holds.
    pub(super) fn candidate(&self, name: &str, data: &[u8]) -> Candidate {
        let parent = self.repo.oid("main");
        let commit = self.repo.commit_file(name, data);
        let tree = self.repo.oid("HEAD^{tree}");
        self.repo.git(&["reset", "-q", "--hard", &parent.to_string()]);
        Candidate { commit, tree, parent }
    }

    pub(super) fn kinds(&self, ledger: &Ledger) -> Vec<String> {
        let tip = ledger.tip().unwrap();
        let seen = ledger.backwards(tip.as_ref()).unwrap();
        let seen: Vec<_> = seen.collect::<Result<_, _>>().unwrap();
        seen.iter().rev().map(|s| s.message.kind.as_str().to_owned()).collect()
    }
}

fn list(dir: &Path, except: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path == except {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            list(&path, except, files);
        } else {
            let data = std::fs::read(&path).unwrap_or_default();
            files.push(format!("{} {}", path.display(), crate::sys::digest::sha256(&data)));
        }
    }
}

pub(super) fn emit(gate: &[&str]) -> AttachAsk {
    let argv: Vec<String> = gate.iter().map(|w| (*w).to_owned()).collect();
    AttachAsk {
        label: None,
        gates: if argv.is_empty() { vec![] } else { vec![GateAsk::of(argv)] },
        gate_cwd: None,
        gate_timeout_ms: None,
        require_output: None,
        protect: vec![],
        gate_env: std::collections::BTreeMap::new(),
        gate_env_clean: false,
        ungated: false,
        commit: None,
        on_stale: None,
        expires: None,
        turns: crate::ledger::TurnsAsk::default(),
        again: None,
        next: None,
    }
}

pub(super) fn commit_of(paths: &[&str]) -> AttachAsk {
    let commit = CommitAsk {
        paths: paths.iter().map(Into::into).collect(),
        from_top: false,
        message: b"change a.txt\n".to_vec(),
        no_ack: false,
        allow_markers: false,
        recursive: false,
        force_ignored: false,
        allow_submodule: false,
        detached_ok: false,
    };
    AttachAsk { commit: Some(commit), ..emit(&["true"]) }
}

/// The commit part of a policy as it is recorded.
pub(super) fn commit_spec() -> CommitSpec {
    CommitSpec {
        paths: vec![RepoPath::new(b"a.txt").unwrap()],
        message: "change a.txt\n".into(),
        require_human_ack: true,
        branch: "refs/heads/main".into(),
        allow_markers: false,
        force_ignored: false,
        allow_submodule: false,
        detached_ok: false,
        ack_quorum: 1,
        ack_exclude: vec![],
    }
}

pub(super) fn oid(text: &str) -> Oid {
    text.repeat(40).parse().unwrap()
}

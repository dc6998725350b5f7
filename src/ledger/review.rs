//! What a person sees before an ack.
//!
//! Contract: built from git objects and from the journal, never from a working file, an index or a word of the
//! agent. The list of changes is that of the two trees, not the list of paths that was asked for. The kept
//! output of gates lies outside the repository and is not read here.

mod lines;

pub use lines::LineCounts;

use super::{Ledger, LedgerError, ack::Request};
use crate::{
    code::Code,
    domain::{
        candidate::{ChangeKind, whereabouts},
        ids::PolicyId,
        oid::Oid,
        path::RepoPath,
        policy::{Candidate, Policy},
    },
    sign::choose::{SignersInForce, SignersInForceError},
    store::{
        candidate::change_kind,
        hooks::post_commit_hook,
        object::Kind,
        tree::{self, Mode},
        trusted::Rules,
        worktree_state::is_on,
    },
};
use std::collections::BTreeMap;

/// A candidate with everything that is to be known about it.
#[derive(Debug)]
pub struct Review {
    /// The policy, its gates and their results included.
    pub policy: Policy,
    /// The repository.
    pub repo_id: Oid,
    /// The `policy:commit-ready` event that is to be answered.
    pub request: Oid,
    /// What would land.
    pub candidate: Candidate,
    /// Full name of the branch it would land on.
    pub branch: String,
    /// `Name <address>` of the candidate's author.
    pub author: String,
    /// The whole message, trailers included.
    pub message: String,
    /// Every path that differs from the parent, in path order.
    pub changes: Vec<Changed>,
    /// Why an approval would not count any more; none while the branch is at the parent.
    pub stale: Option<String>,
    /// Somebody changed the rule files on the trusted ref since a person ran `trust`.
    pub rule_change: bool,
    /// The candidate itself changes the rules.
    pub touches_rules: bool,
    /// Approvals by distinct keys that it takes.
    pub quorum: u32,
    /// Whose answer does not count: `author`, principals, fingerprints.
    pub exclude: Vec<String>,
    /// Whose answer counts; why nobody's does.
    pub signers: Result<SignersSeen, SignersInForceError>,
    /// The `post-commit` hooks that run once it has landed, one for each place that has one; for people.
    pub afterwards: Vec<String>,
}

/// One path of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The path.
    pub path: RepoPath,
    /// How it changed.
    pub kind: ChangeKind,
    /// Mode and object before; none for a new path.
    pub old: Option<(Mode, Oid)>,
    /// Mode and object after; none for a deleted path.
    pub new: Option<(Mode, Oid)>,
    /// Added and deleted lines; none for what is not text, or too large to be compared here.
    pub lines: Option<LineCounts>,
}

/// The allowed-signers file in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignersSeen {
    /// `repo-user`, `global` or `trusted-ref`.
    pub source: &'static str,
    /// File, or path and ref; for people.
    pub place: String,
    /// SHA-256 of its bytes.
    pub digest: String,
}

type Side = Option<(Mode, Oid)>;

impl Ledger {
    /// What is to be reviewed before the policy is answered.
    ///
    /// # Errors
    /// There is no such policy, it waits for no answer, or its objects cannot be read.
    pub fn review(&self, id: &PolicyId) -> Result<Review, LedgerError> {
        let policy = self.require_own(id)?;
        let Request { id: request, candidate, branch } = self.require_request(&policy)?;
        let (author, message) = self.author_and_message(&candidate.commit)?;
        let changes = self.changes(&self.tree_of(&candidate.parent)?, &candidate.tree)?;
        let (trust, repo) = (self.trust()?, self.repo()?);
        let signers = SignersInForce::load(&repo, &self.env, &trust).map(|found| SignersSeen {
            source: found.source.as_str(),
            place: found.place,
            digest: found.digest,
        });
        let mut rules = self.ack_rules(&repo, &trust)?;
        if let Some(spec) = &policy.spec.commit {
            rules = rules.with(spec);
        }
        Ok(Review {
            quorum: rules.quorum.max(policy.approvals_needed()),
            exclude: rules.exclude,
            repo_id: trust.repo_id,
            request,
            stale: self.moved(&branch, &candidate)?,
            rule_change: match trust.rules(&repo)? {
                Rules::Changed { .. } => true,
                Rules::Accepted { .. } | Rules::NeverAccepted { .. } => false,
            },
            touches_rules: changes.iter().any(|c| c.path.is_rule()),
            afterwards: self.afterwards(&branch)?,
            policy,
            candidate,
            branch,
            author,
            message,
            changes,
            signers,
        })
    }

    /// Where the branch is checked out, its landing runs the hook as a commit by hand would.
    fn afterwards(&self, branch: &str) -> Result<Vec<String>, LedgerError> {
        let mut found = Vec::new();
        for worktree in self.store.location().worktrees()? {
            let repo = self.repo_in(&worktree)?;
            let hook = if is_on(&repo, branch)? { post_commit_hook(&repo)? } else { None };
            found.extend(hook.map(|hook| hook.at).filter(|at| !found.contains(at)));
        }
        Ok(found)
    }

    fn moved(&self, branch: &str, candidate: &Candidate) -> Result<Option<String>, LedgerError> {
        let tip = self.store.tip(branch)?;
        Ok(match tip {
            Some(tip) if tip == candidate.parent => None,
            tip => Some(format!("{}, not at {}", whereabouts(branch, tip), candidate.parent)),
        })
    }

    /// Everything that differs between two trees.
    fn changes(&self, old: &Oid, new: &Oid) -> Result<Vec<Changed>, LedgerError> {
        let mut found = BTreeMap::new();
        self.compare(b"", (Some(*old), Some(*new)), &mut found)?;
        let mut changes = Vec::new();
        for (path, (old, new)) in found {
            let Some(kind) = change_kind(old, new) else { continue };
            let path = RepoPath::new(&path)
                .map_err(|e| LedgerError::Corrupt(format!("path {}: {e}", path.escape_ascii())))?;
            let lines = self.line_counts(old, new)?;
            changes.push(Changed { path, kind, old, new, lines });
        }
        Ok(changes)
    }

    fn compare(
        &self,
        above: &[u8],
        (old, new): (Option<Oid>, Option<Oid>),
        found: &mut BTreeMap<Vec<u8>, (Side, Side)>,
    ) -> Result<(), LedgerError> {
        if old == new {
            return Ok(());
        }
        let mut names: BTreeMap<Vec<u8>, (Side, Side)> = BTreeMap::new();
        for entry in self.entries(old)? {
            names.entry(entry.name).or_default().0 = Some((entry.mode, entry.id));
        }
        for entry in self.entries(new)? {
            names.entry(entry.name).or_default().1 = Some((entry.mode, entry.id));
        }
        for (name, (old, new)) in names {
            let path = [above, &name].concat();
            let (old_tree, old) = apart(old);
            let (new_tree, new) = apart(new);
            self.compare(&[&path[..], b"/"].concat(), (old_tree, new_tree), found)?;
            if old != new {
                found.insert(path, (old, new));
            }
        }
        Ok(())
    }

    fn entries(&self, id: Option<Oid>) -> Result<Vec<tree::Entry>, LedgerError> {
        let Some(id) = id else { return Ok(vec![]) };
        let data = self.read(&id, Kind::Tree)?;
        tree::parse(id.hash(), &data).map_err(|e| LedgerError::Corrupt(format!("tree {id}: {e}")))
    }

    fn line_counts(&self, old: Side, new: Side) -> Result<Option<LineCounts>, LedgerError> {
        let mut sides = [vec![], vec![]];
        for (side, data) in [old, new].into_iter().zip(&mut sides) {
            match side {
                Some((Mode::Submodule, _)) => return Ok(None),
                Some((_, id)) => *data = self.read(&id, Kind::Blob)?,
                None => {}
            }
        }
        Ok(lines::count(&sides[0], &sides[1]))
    }

    fn tree_of(&self, commit: &Oid) -> Result<Oid, LedgerError> {
        let data = self.read(commit, Kind::Commit)?;
        let line = data.strip_prefix(b"tree ").and_then(|rest| rest.split(|b| *b == b'\n').next());
        let id = line.and_then(|hex| std::str::from_utf8(hex).ok()?.parse().ok());
        id.ok_or_else(|| LedgerError::Corrupt(format!("commit {commit} names no tree")))
    }

    fn author_and_message(&self, commit: &Oid) -> Result<(String, String), LedgerError> {
        let data = self.read(commit, Kind::Commit)?;
        let text = String::from_utf8_lossy(&data);
        let lost = || LedgerError::Corrupt(format!("commit {commit} has no author or message"));
        let (headers, message) = text.split_once("\n\n").ok_or_else(lost)?;
        let author = headers.lines().find_map(|l| l.strip_prefix("author ")).ok_or_else(lost)?;
        let end = author.rfind('>').ok_or_else(lost)?;
        Ok((author[..=end].to_owned(), message.to_owned()))
    }

    fn read(&self, id: &Oid, kind: Kind) -> Result<Vec<u8>, LedgerError> {
        let object = self.store.object(id)?;
        if object.kind == kind {
            return Ok(object.data);
        }
        let because = format!("it is a {}, not a {}", object.kind.name(), kind.name());
        Err(LedgerError::refused(Code::StoreUnusable, &id.to_string(), because))
    }
}

/// A directory and what is no directory are different things under one name.
fn apart(entry: Side) -> (Option<Oid>, Side) {
    match entry {
        Some((Mode::Tree, id)) => (Some(id), None),
        other => (None, other),
    }
}

#[cfg(test)]
mod tests;

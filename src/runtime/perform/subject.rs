//! What a gate run is about: the tree of a commit policy, or the worktree as it is.
//!
//! Contract: whatever in the worktree or the repository cannot be read is a [`Trouble`] that ends the run,
//! not a failure of the performer: a gate can spoil it (an index cut short), and the next performer would
//! meet the same. Only our own journal and object writes fail the performer.

use super::{PerformError, sign};
use crate::{
    code::Code,
    domain::{
        candidate::{Identity, whereabouts},
        gate::{ScopeGate, ShellGate},
        oid::Oid,
        path::RepoPath,
        policy::{Candidate, CommitSpec, Policy, Then, Unsigned},
        time::Timestamp,
    },
    ledger::Ledger,
    limits,
    store::{
        StoreError, Worktree,
        candidate::{
            CandidateError, FixCtx, FixedTree, LoadError, commit_object, fix_tree, message,
            signing::{Signer, SigningError},
        },
        filters::Filters,
        git::Git,
        identity::identity,
        object::Object,
        paths::{self, Allow},
        protect::{self, Protected},
        scope::{self, Scope},
        stamps::Stamps,
        worktree_state::{
            Head, Operation, StateError, branch_tip, head, index_tree, is_on, is_unmerged,
            operation_in_progress, unlisted_paths,
        },
    },
};
use std::collections::BTreeSet;

/// A problem that ends the run before or after its gates: a code and a sentence. It is a clear no or a "cannot
/// tell", by the code's own exit.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) code: Code,
    pub(super) because: String,
}

pub(super) fn trouble(code: Code, because: impl Into<String>) -> Trouble {
    Trouble { code, because: because.into() }
}

impl From<StateError> for Trouble {
    /// Without the path: the sentence is recorded under a ref, where nothing of one machine belongs.
    fn from(error: StateError) -> Self {
        let because = match &error {
            StateError::Io { source, .. } => {
                format!("a file of the worktree or of git cannot be read: {source}")
            }
            StateError::Ref { what, source } => {
                let file = if let StoreError::File(e) = source.as_ref() { Some(e) } else { None };
                let why = file.map_or_else(|| source.to_string(), |e| e.source.to_string());
                format!("cannot read {what}: {why}")
            }
            StateError::Git { .. } | StateError::Setting { .. } => error.to_string(),
        };
        trouble(error.code(), because)
    }
}

/// What the gates are run on, fixed before they run.
pub(super) enum Subject {
    /// The tree that would be committed.
    Commit(Fixed),
    /// The worktree as it is; the id is the index's tree, none when unmerged.
    Worktree(Option<Oid>),
}

/// The candidate tree and where it belongs.
pub(super) struct Fixed {
    pub(super) parent: Oid,
    pub(super) tree: FixedTree,
    pub(super) unchanged: bool,
    /// Cleaned, without our trailers.
    pub(super) message: Vec<u8>,
}

/// What differs outside the listed paths of a commit.
pub(super) struct Beside {
    pub(super) count: u64,
    /// Some of it by name.
    pub(super) first: Vec<RepoPath>,
}

/// What was made of green gates.
pub(super) enum Made {
    /// The candidate.
    Ready(Candidate),
    /// The candidate but for its signature.
    Unsigned(Unsigned),
}

impl Subject {
    /// The tree named in gate lines.
    pub(super) fn tree(&self) -> Option<Oid> {
        match self {
            Self::Commit(fixed) => Some(fixed.tree.tree),
            Self::Worktree(tree) => *tree,
        }
    }
}

/// The worktree of a policy and the repository seen from it.
pub(super) struct Place<'a> {
    pub(super) ledger: &'a Ledger,
    pub(super) policy: &'a Policy,
    pub(super) worktree: Worktree,
    pub(super) repo: gix::Repository,
}

impl<'a> Place<'a> {
    /// Finds the worktree of the policy's session.
    pub(super) fn find(
        ledger: &'a Ledger,
        policy: &'a Policy,
    ) -> Result<Result<Self, Trouble>, PerformError> {
        let Some(member) = policy.spec.gate_session() else {
            return Ok(Err(trouble(Code::NoSuchSession, "the policy has no session")));
        };
        let session = ledger.require_session(member)?;
        let Some(worktree) = ledger.worktree(&session.worktree)? else {
            let because = format!("worktree {} is gone", session.worktree);
            return Ok(Err(trouble(Code::NoSuchCwd, because)));
        };
        let repo = ledger.repo_in(&worktree)?;
        Ok(Ok(Self { ledger, policy, worktree, repo }))
    }

    /// When the listed files of a commit policy were written last.
    pub(super) fn stamps(&self) -> Result<Option<Stamps>, Trouble> {
        let Some(commit) = &self.policy.spec.commit else { return Ok(None) };
        Ok(Some(Stamps::look(&self.worktree.top, &commit.paths)?))
    }

    /// That nobody wrote them since then, even if they hold the same again.
    pub(super) fn written_since(&self, before: Option<&Stamps>) -> Result<(), Trouble> {
        let (Some(before), Some(now), Some(commit)) =
            (before, self.stamps()?, &self.policy.spec.commit)
        else {
            return Ok(());
        };
        let written = now.written(before, &commit.paths);
        let Some(first) = written.first() else { return Ok(()) };
        let others = match written.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let because = format!(
            "the gate ran twice, and each time a listed file was written meanwhile and holds the same again: '{first}'{others}"
        );
        Err(trouble(Code::TreeChanged, because))
    }

    /// Fixes what the gates are about.
    pub(super) fn fix(&self, attempt: u32) -> Result<Subject, Trouble> {
        let Some(commit) = &self.policy.spec.commit else {
            return Ok(Subject::Worktree(index_tree(&self.repo)?));
        };
        if let Some(operation) = operation_in_progress(&self.repo, &self.worktree.git_dir)? {
            return Err(trouble(Code::GitBusy, operation.to_string()));
        }
        if is_unmerged(&self.repo)? {
            return Err(trouble(Code::GitBusy, Operation::Conflict.to_string()));
        }
        // Before the paths: those of another branch's commit say nothing about this one's.
        let parent = self.parent(&commit.branch)?;
        let allow = Allow { ignored: commit.force_ignored, submodules: commit.allow_submodule };
        let problems = paths::check(&self.repo, &commit.paths, allow)?;
        if let Some(problem) = problems.into_iter().next() {
            return Err(trouble(problem.code, problem.to_string()));
        }
        self.fix_commit(commit, parent, attempt).map(Subject::Commit)
    }

    /// The tip of the policy's branch, which the worktree must have checked out, under whatever name: its unlisted
    /// files are what the gates see of that commit.
    fn parent(&self, branch: &str) -> Result<Oid, Trouble> {
        let (place, at) = match head(&self.repo)? {
            // One reading for both, so that a commit made meanwhile is not taken for a switch.
            Head::Branch { name, tip } if name == branch => return Ok(tip),
            Head::Branch { name, tip } => (name, Some(tip)),
            Head::Unborn { name } => (name, None),
            Head::Detached { at } if is_on(&self.repo, branch)? => return Ok(at),
            Head::Detached { at } => ("a detached HEAD".to_owned(), Some(at)),
        };
        let Some(tip) = branch_tip(&self.repo, branch)? else {
            return Err(trouble(Code::StaleCandidate, whereabouts(branch, None)));
        };
        if at == Some(tip) {
            return Ok(tip);
        }
        let at = at.map_or_else(|| "without a commit".to_owned(), |at| format!("at {at}"));
        let because = format!("the worktree is on {place} {at}, not on {branch} at {tip}");
        Err(trouble(Code::BranchSwitched, because))
    }

    /// Does something with the worktree's files as git would store them, from the tree of a commit on.
    fn with_files<T>(
        &self,
        commit: &Oid,
        attempt: u32,
        work: impl FnOnce(FixCtx<'_>, Oid) -> Result<T, CandidateError>,
    ) -> Result<T, Trouble> {
        let store = self.ledger.store();
        let tree = store.commit_tree(commit);
        let tree =
            tree.map_err(|e| trouble(e.code(), format!("commit {commit} cannot be read")))?;
        let git = Git::new(self.ledger.env(), &self.worktree);
        let git = git.map_err(|e| trouble(e.code(), e.to_string()))?;
        let name = format!("fix.{}.{attempt}", self.policy.policy_id);
        let scratch = store.location().agent_dir().join("tmp").join(name);
        let load = |id: &Oid| -> Result<Vec<u8>, LoadError> { Ok(store.object(id)?.data) };
        let filters = Filters { repo: &self.repo, git: &git, scratch: &scratch };
        let allow_submodules = self.policy.spec.commit.as_ref().is_some_and(|c| c.allow_submodule);
        match work(FixCtx { filters, load: &load, allow_submodules }, tree) {
            Ok(done) => Ok(done),
            Err(CandidateError::Moving(path)) => {
                let because = format!("'{path}' was written while it was read");
                Err(trouble(Code::TreeChanged, because))
            }
            Err(CandidateError::State(error)) => Err(error.into()),
            Err(error) => Err(trouble(error.code(), error.to_string())),
        }
    }

    /// What a gate protects is as on the trusted ref, or why that is not so.
    pub(super) fn require_protected(
        &self,
        gate: &ShellGate,
        attempt: u32,
    ) -> Result<Result<(), Trouble>, PerformError> {
        if gate.def.protect.is_empty() {
            return Ok(Ok(()));
        }
        let trust = self.ledger.trust()?;
        let look = || {
            let protected = Protected::parse(&gate.def.protect)
                .map_err(|why| trouble(Code::ProtectedPathChanged, why))?;
            self.with_files(&trust.tip, attempt, |ctx, tree| {
                protect::changed(ctx, tree, &protected)
            })
        };
        let changed = match look() {
            Ok(changed) => changed,
            Err(why) => return Ok(Err(why)),
        };
        let Some(first) = changed.first() else { return Ok(Ok(())) };
        let others = match changed.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let because = format!("'{first}'{others} is not as on {}", trust.trusted_ref);
        Ok(Err(trouble(Code::ProtectedPathChanged, because)))
    }

    /// The paths outside of a scope that differ from the commit the session started from.
    pub(super) fn outside(
        &self,
        gate: &ScopeGate,
        attempt: u32,
    ) -> Result<Result<BTreeSet<RepoPath>, Trouble>, PerformError> {
        let Some(member) = self.policy.spec.gate_session() else {
            return Ok(Err(trouble(Code::NoSuchSession, "the policy has no session")));
        };
        let Some(base) = self.ledger.require_session(member)?.base else {
            let because = format!("{member} started from no commit");
            return Ok(Err(trouble(Code::ScopeWithoutBase, because)));
        };
        if let Err(e) = self.ledger.store().commit_tree(&base) {
            let because = format!("its base {base} cannot be read [{}]", e.code());
            return Ok(Err(trouble(Code::ScopeWithoutBase, because)));
        }
        let look = || {
            let scope = Scope::parse(&gate.scope).map_err(|why| trouble(Code::BadSetting, why))?;
            self.with_files(&base, attempt, |ctx, tree| scope::outside(ctx, tree, &scope))
        };
        Ok(look())
    }

    fn fix_commit(&self, commit: &CommitSpec, parent: Oid, attempt: u32) -> Result<Fixed, Trouble> {
        let (tree, parent_tree) = self.with_files(&parent, attempt, |ctx, parent_tree| {
            Ok((fix_tree(ctx, parent_tree, &commit.paths)?, parent_tree))
        })?;
        if !commit.allow_markers
            && let Some(path) = tree.conflict_markers().first()
        {
            let because = format!("'{path}' holds conflict markers");
            return Err(trouble(Code::ConflictMarkers, because));
        }
        let unchanged = tree.tree == parent_tree;
        Ok(Fixed { parent, tree, unchanged, message: commit.message.clone().into_bytes() })
    }

    /// Changed and untracked files outside the listed paths.
    pub(super) fn unlisted(&self) -> Result<Beside, Trouble> {
        let listed = self.policy.spec.commit.as_ref().map(|c| c.paths.as_slice());
        let (tracked, untracked) = unlisted_paths(&self.repo, listed.unwrap_or_default())?;
        let count = (tracked.len() + untracked.len()) as u64;
        let paths = tracked.iter().chain(&untracked).filter_map(|path| RepoPath::new(path).ok());
        // Without listed paths all that differs is what the gate is about.
        let most = listed.map_or(0, |_| limits::BESIDE_NAMED);
        let paths: BTreeSet<RepoPath> = paths.collect();
        Ok(Beside { count, first: paths.into_iter().take(most).collect() })
    }

    /// The commit that an `emit` policy's gate lines are noted on: `HEAD`, when nothing else could have been
    /// gated but that commit.
    pub(super) fn noted_on(&self, unlisted: u64) -> Result<Option<Oid>, Trouble> {
        if self.policy.spec.then == Then::Commit || unlisted > 0 {
            return Ok(None);
        }
        Ok(match head(&self.repo)? {
            Head::Branch { tip, .. } => Some(tip),
            Head::Detached { at } => Some(at),
            Head::Unborn { .. } => None,
        })
    }

    /// How commits made here are signed; none when they are not.
    pub(super) fn signer(&self, who: &Identity) -> Result<Option<Signer>, SigningError> {
        Signer::read(&self.repo, self.ledger.env(), &self.worktree, &who.committer.to_string())
    }

    /// Makes the commit object, has it signed if it has to be, and writes it and its tree down for good. It is pinned
    /// with the event that names it.
    pub(super) fn candidate(
        &self,
        fixed: &Fixed,
        (at, attempt): (Timestamp, u32),
    ) -> Result<Result<Made, Trouble>, PerformError> {
        let who = match identity(&self.repo) {
            Ok(who) => who,
            Err(missing) => return Ok(Err(trouble(missing.code(), missing.to_string()))),
        };
        let text = message::with_trailers(
            &fixed.message,
            &self.policy.policy_id,
            &self.policy.spec.session_ids,
        );
        let object = match commit_object(fixed.tree.tree, fixed.parent, &who, at, &text) {
            Ok(object) => object,
            Err(e) => return Ok(Err(trouble(Code::CandidateFailed, e.to_string()))),
        };
        let signer = match self.signer(&who) {
            Ok(signer) => signer,
            Err(e) => return Ok(Err(trouble(e.code(), e.to_string()))),
        };
        let candidate =
            Candidate { commit: object.id, tree: fixed.tree.tree, parent: fixed.parent };
        let store = self.ledger.store();
        let new = fixed.tree.objects.iter().cloned();
        store.write_kept_pack(&new.chain([object.clone()]).collect::<Vec<Object>>())?;
        let Some(signer) = signer else { return Ok(Ok(Made::Ready(candidate))) };
        Ok(match sign::fresh(self, &signer, &object, attempt) {
            Ok(signed) => {
                store.write_kept_pack(std::slice::from_ref(&signed))?;
                Ok(Made::Ready(Candidate { commit: signed.id, ..candidate }))
            }
            Err(e) if e.code() == Code::SigningNeedsPerson => {
                Ok(Made::Unsigned(sign::waits(self.ledger, candidate, &e)))
            }
            Err(e) => Err(trouble(e.code(), e.to_string())),
        })
    }
}

//! `session adopt`: registers a session that somebody else runs.
//!
//! Contract: nothing machine-local is recorded. The worktree goes by git's own id, the directory by its place
//! below the worktree's top, and no process is named: the caller is a person's shell, not the agent.

use super::{Ledger, LedgerError, Recording};
use crate::{
    code::Code,
    domain::{
        event::SessionStarted,
        ids::{PolicyId, SessionId},
        input::Input,
        oid::Oid,
    },
    store::{
        Worktree,
        git::Git,
        revision::{self, Revisions},
        worktree_state::{Head, Unlisted, head, unlisted_changes},
    },
    sys::{clock, files},
};
use std::path::{Path, PathBuf};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct AdoptAsk {
    /// The name a person gives it.
    pub label: Option<String>,
    /// Where the agent works, absolute.
    pub cwd: PathBuf,
    /// The revision it started from; `HEAD` of the worktree when absent.
    pub base: Option<String>,
}

impl Ledger {
    /// Registers a session.
    ///
    /// # Errors
    /// The directory is in no worktree of this repository, the label looks like an id, the revision does not
    /// exist; the journal cannot be written.
    pub fn adopt(&self, ask: &AdoptAsk) -> Result<(SessionId, Recording), LedgerError> {
        require_label(ask.label.as_deref())?;
        let (worktree, cwd) = self.place(&ask.cwd)?;
        let base = self.base(&worktree, ask.base.as_deref())?;
        let label = ask.label.clone();
        let dirty_base = self.is_dirty_base(&worktree, ask.base.as_deref())?;
        let (worktree, own, launch) = (worktree.id, false, None);
        let started = SessionStarted { label, worktree, cwd, base, dirty_base, own, launch };
        let session = clock::new_session_id();
        let input = Input::SessionAdopted { session: session.clone(), started };
        Ok((session, self.record(input)?))
    }

    /// The worktree a directory belongs to, and its place there (`.` is the top). A repository that has no
    /// worktree at all is refused as such: no directory would do.
    pub(super) fn place(&self, dir: &Path) -> Result<(Worktree, String), LedgerError> {
        let refused = |why: &str| {
            LedgerError::refused(Code::CwdNotInWorktree, &dir.display().to_string(), why)
        };
        let real = files::real(dir).map_err(|e| refused(&e.source.to_string()))?;
        let location = self.store.location();
        let Some(worktree) = location.worktree_of(&real)? else {
            if location.worktrees()?.is_empty() {
                let place = location.common_dir.display().to_string();
                let why = "the repository is bare: nobody can work in it";
                return Err(LedgerError::refused(Code::BareUnsupported, &place, why));
            }
            return Err(refused("it is in no worktree of this repository"));
        };
        let below = real.strip_prefix(&worktree.top);
        let below = below.map_err(|_| refused("it is not below the top of its worktree"))?;
        let text = below.to_str().ok_or_else(|| refused("its name is not UTF-8"))?;
        let cwd = if text.is_empty() { "." } else { text };
        Ok((worktree, cwd.to_owned()))
    }

    /// Whether what a session starts from is not all that is in its worktree: nobody named a revision, and there is more than
    /// the one that is checked out. What cannot be looked at is not clean.
    pub(super) fn is_dirty_base(
        &self,
        worktree: &Worktree,
        named: Option<&str>,
    ) -> Result<bool, LedgerError> {
        let found = unlisted_changes(&self.repo_in(worktree)?, &[]);
        Ok(named.is_none() && !found.is_ok_and(|found| found == Unlisted::default()))
    }

    /// The commit a revision names in a worktree; that of `HEAD` without one, none on an unborn branch.
    pub(super) fn base(
        &self,
        worktree: &Worktree,
        revision: Option<&str>,
    ) -> Result<Option<Oid>, LedgerError> {
        let repo = self.repo_in(worktree)?;
        let Some(name) = revision else {
            return Ok(match head(&repo)? {
                Head::Branch { tip, .. } => Some(tip),
                Head::Detached { at } => Some(at),
                Head::Unborn { .. } => None,
            });
        };
        let unknown = |why: String| LedgerError::refused(Code::NoSuchRevision, name, why);
        let git = || Ok(Git::new(&self.env, worktree)?);
        let found = match revision::by_git(&repo, git, name).map_err(unknown)? {
            None => {
                let found = revision::parse(&repo, name).map_err(|e| unknown(e.to_string()))?;
                let one = found.single();
                one.ok_or_else(|| unknown("it names more than one".to_owned()))?.detach()
            }
            Some(Revisions::One(id)) => {
                gix::ObjectId::try_from(id.as_bytes()).map_err(|e| unknown(e.to_string()))?
            }
            Some(Revisions::Set { .. }) => {
                return Err(unknown("it names more than one".to_owned()));
            }
        };
        let object = repo.find_object(found).map_err(|e| unknown(e.to_string()))?;
        let commit = object.peel_to_commit().map_err(|e| unknown(e.to_string()))?;
        Oid::from_bytes(commit.id.as_slice()).map(Some).map_err(|e| unknown(e.to_string()))
    }
}

/// A label must never be taken for an id.
pub(super) fn require_label(label: Option<&str>) -> Result<(), LedgerError> {
    let Some(label) = label else { return Ok(()) };
    let refused = |code, why: &str| Err(LedgerError::refused(code, &format!("'{label}'"), why));
    if label.trim().is_empty() || label.chars().any(char::is_control) {
        return refused(Code::Usage, "a label is a visible word");
    }
    if [SessionId::PREFIX, PolicyId::PREFIX].iter().any(|prefix| label.starts_with(prefix)) {
        return refused(Code::LabelLooksLikeId, "a label never starts as an id does");
    }
    Ok(())
}

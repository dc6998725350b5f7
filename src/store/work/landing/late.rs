//! Worktrees that come onto the branch while it moves.
//!
//! Contract: `git checkout` reads where a branch is, then writes the index, and puts `HEAD` on the branch last; whatever
//! moves the branch in between leaves that worktree with an index that takes it back. Nobody can lock a checkout out that has
//! not begun its work, so it is looked for before the move, at git's promise, and after it.

use super::{LandError, Landing, index::IndexLock};
use crate::{
    domain::oid::Oid,
    limits::OTHERS_INDEX_WAIT_MS,
    store::{
        candidate::Listed,
        worktree_state::{StateError, Worktree, exists, open_index_at},
    },
};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

impl<'a> Landing<'a> {
    /// Worktrees that are on other branches, as far as was seen.
    fn others(&self) -> impl Iterator<Item = &'a Worktree> {
        self.worktrees.iter().filter(|w| !self.with_branch.iter().any(|own| own.id == w.id))
    }

    /// A `git checkout` reads where the branch is long before it puts `HEAD` on it. Its index is locked for most of that
    /// time; it is waited for, and not kept from its work.
    pub(super) fn let_others_finish(&self) -> Result<(), StateError> {
        let most = OTHERS_INDEX_WAIT_MS.min(self.ctx.lock_wait_ms);
        let end = Instant::now() + Duration::from_millis(most);
        for worktree in self.others() {
            let lock = worktree.git_dir.join("index.lock");
            while exists(&lock)? && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(())
    }

    /// The `HEAD` of a worktree that came onto the branch since that was looked at.
    pub(super) fn joined(&self) -> Result<Option<PathBuf>, StateError> {
        for worktree in self.others() {
            if self.has_branch(worktree)? {
                return Ok(Some(worktree.git_dir.join("HEAD")));
            }
        }
        Ok(None)
    }

    /// Worktrees that a `git checkout` put onto the branch just as it moved: git wrote their index for the tip that it had
    /// read before, and their next commit would take back what landed.
    pub(super) fn bring_up_latecomers(&self) -> Result<(), LandError> {
        for worktree in self.others() {
            if !self.is_late(worktree)? {
                continue;
            }
            let lock = IndexLock::new(self.ctx.agent_dir, self.ctx.name, worktree);
            lock.record()?;
            let end = Instant::now() + Duration::from_millis(self.ctx.lock_wait_ms);
            if lock.take(end)? && self.is_late(worktree)? {
                let git = (self.ctx.git)(worktree)?;
                lock.prepare(&git, self.ctx.candidate.hash(), self.ctx.listed)?;
                lock.install(&|_| {})?;
            } else {
                lock.release()?;
            }
        }
        Ok(())
    }

    /// On the branch, which is at the candidate, with all listed entries as they were before it.
    fn is_late(&self, worktree: &Worktree) -> Result<bool, LandError> {
        if !self.has_branch(worktree)? || self.tip()? != Some(self.ctx.candidate) {
            return Ok(false);
        }
        let index = worktree.git_dir.join("index");
        let Some(index) = open_index_at(&index, self.ctx.repo.object_hash())? else {
            return Ok(false);
        };
        let is_as_before = |(path, entry): &Listed| {
            let found = index.entry_by_path(path.as_bytes().into());
            let found = found.and_then(|e| Oid::from_bytes(e.id.as_slice()).ok());
            found == entry.map(|(_, id)| id)
        };
        Ok(!self.ctx.before.is_empty() && self.ctx.before.iter().all(is_as_before))
    }
}

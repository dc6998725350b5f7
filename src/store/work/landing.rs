//! Moving a branch, or a `HEAD` that is on none, to its candidate, index first.
//!
//! Contract: in each worktree that has the branch checked out: take its `index.lock`, look again, prepare the
//! new index beside the old; let git lock the ref and compare; put the index in place; let git move the ref; make
//! that durable; drop the lock. So nobody reads the new branch beside the old index, which an agent's `git
//! commit` would make a commit that deletes the governed files (ADR 0005). Working files are never written.
//!
//! [`land`] may be called again after a kill at any point: what a dead run left is told from a foreign
//! lock by its inode, because the lock is a hard link to a record made before it. The caller sees to it
//! that one process at a time lands under a name.

mod index;
mod late;

use crate::store::{
    StoreError,
    candidate::Listed,
    git::{Git, GitError, RefChange},
    refs::RefReader,
    worktree_state::{
        Operation, StateError, Worktree, branch_tip, has_branch, is_conflicted, is_same_branch,
        open_index_at, operation_in_progress, read_optional,
    },
};
use crate::{
    code::Code,
    domain::{candidate::is_head, oid::Oid},
    limits::{INDEX_LOCK_WAIT_MS, LANDING_TRIES},
    sys::files::FileError,
};
use index::IndexLock;
use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What is to land.
#[derive(Clone, Copy)]
pub struct LandCtx<'a> {
    /// Opened on any worktree of the repository.
    pub repo: &'a gix::Repository,
    /// Binds git to a worktree.
    pub git: &'a dyn Fn(&Worktree) -> Result<Git, GitError>,
    /// Our own directory in the common directory: records and prepared indexes lie in its `tmp`.
    pub agent_dir: &'a Path,
    /// Names the landing in its lock records: the same in every attempt, and nobody else's.
    pub name: &'a str,
    /// What the reflog says about the move.
    pub reflog: &'a str,
    /// The branch, full ref name; or the `HEAD` of one worktree, as [`crate::domain::candidate::is_head`] knows it.
    pub branch: &'a str,
    /// The candidate's parent: where the branch must be.
    pub parent: Oid,
    /// The commit, already in the object database.
    pub candidate: Oid,
    /// The listed paths as the candidate has them.
    pub listed: &'a [Listed],
    /// The same paths as its parent has them.
    pub before: &'a [Listed],
    /// Longest wait for a lock of somebody else, milliseconds; [`INDEX_LOCK_WAIT_MS`] by default.
    pub lock_wait_ms: u64,
}

impl LandCtx<'_> {
    /// The usual [`LandCtx::lock_wait_ms`].
    pub const LOCK_WAIT_MS: u64 = INDEX_LOCK_WAIT_MS;
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Landed {
    /// The branch is at the candidate.
    Done,
    /// The candidate is in the branch, which has gone on since.
    Beyond {
        /// Where it is now.
        tip: Oid,
    },
    /// Somebody holds this lock; the branch was not touched.
    IndexLocked(PathBuf),
    /// The branch is somewhere else (none: it is gone); nothing was touched.
    Moved {
        /// Where it is.
        tip: Option<Oid>,
    },
    /// A worktree with the branch is in the middle of something; nothing was touched.
    GitBusy {
        /// Which worktree.
        worktree: String,
        /// Of what.
        operation: Operation,
    },
}

/// Landing failed on the way. It can be called again.
#[derive(Debug, thiserror::Error)]
pub enum LandError {
    /// git refused.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A worktree or the branch could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The refs could not be made durable.
    #[error(transparent)]
    Refs(#[from] StoreError),
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
}

impl LandError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Git(e) => e.code(),
            Self::State(e) => e.code(),
            Self::Refs(e) => e.code(),
            Self::File(e) => e.code(),
        }
    }
}

/// The points between which a kill must do no harm; tests stop at each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Settled,
    Recorded,
    Locked,
    Prepared,
    Swapped,
    Moved,
    Durable,
    Installed,
    Unlocked,
}

/// Lands the candidate on its branch in all worktrees that have it checked out. `worktrees` are all of the
/// repository's; one without a worktree directory is fine.
///
/// # Errors
/// See [`LandError`]: neither landed nor refused, call again.
pub fn land(ctx: LandCtx<'_>, worktrees: &[Worktree]) -> Result<Landed, LandError> {
    land_watched(ctx, worktrees, &|_| {})
}

/// The name of the landing that a file in `agentproto/tmp` belongs to, and the id of the worktree it is for (`.` for the
/// main one); none for every other file.
#[must_use]
pub fn left_by(file: &str) -> Option<(&str, &str)> {
    index::KINDS.iter().find_map(|kind| file.strip_prefix(kind)?.split_once('.'))
}

/// Finishes or takes back what a killed [`land`] of this very candidate left, and moves no branch: an index
/// that waits is put in place when the branch has got there, and dropped when it has not.
///
/// # Errors
/// See [`LandError`]; call again.
pub fn settle(ctx: LandCtx<'_>, worktrees: &[Worktree]) -> Result<(), LandError> {
    let landing = Landing::new(ctx, &|_| {}, worktrees);
    landing.settle_dead_run().map(drop)
}

fn land_watched(
    ctx: LandCtx<'_>,
    worktrees: &[Worktree],
    at: &dyn Fn(Step),
) -> Result<Landed, LandError> {
    let mut landing = Landing::new(ctx, at, worktrees);
    let unfinished = landing.settle_dead_run()?;
    at(Step::Settled);
    if !unfinished && let Some(end) = landing.look()? {
        return Ok(end);
    }
    for tries in 1.. {
        match landing.up_to_move() {
            Ok(Tried::Moved) => break,
            Ok(Tried::Ended(end)) => {
                landing.give_up()?;
                return Ok(end);
            }
            Ok(Tried::Joined(_)) if tries < LANDING_TRIES => landing.give_up()?,
            Ok(Tried::Joined(head)) => {
                landing.give_up()?;
                return Ok(Landed::IndexLocked(head));
            }
            // The branch may have moved all the same: only its tip can tell.
            Err(error) if landing.tip()? != Some(ctx.candidate) => {
                landing.give_up()?;
                return Err(error);
            }
            Err(_) => break,
        }
    }
    landing.make_durable()?;
    at(Step::Durable);
    landing.locks.iter().try_for_each(|lock| lock.install(at))?;
    landing.bring_up_latecomers()?;
    Ok(Landed::Done)
}

/// Runs the repository's `post-commit` hook in the worktree, for at most `deadline_ms` milliseconds. It cannot undo
/// anything: a failure is only text to be shown.
#[must_use]
pub fn post_commit(git: &Git, deadline_ms: u64) -> Option<String> {
    git.run_hook("post-commit", deadline_ms).err().map(|e| e.to_string())
}

/// What came of one try to move the branch.
enum Tried {
    /// It is at the candidate.
    Moved,
    /// It is not, and that is the answer.
    Ended(Landed),
    /// A worktree came onto the branch meanwhile: its `HEAD`.
    Joined(PathBuf),
}

struct Landing<'a> {
    ctx: LandCtx<'a>,
    at: &'a dyn Fn(Step),
    worktrees: &'a [Worktree],
    /// Those that have the branch checked out.
    with_branch: Vec<&'a Worktree>,
    /// One for each of them.
    locks: Vec<IndexLock>,
}

impl<'a> Landing<'a> {
    fn new(ctx: LandCtx<'a>, at: &'a dyn Fn(Step), worktrees: &'a [Worktree]) -> Self {
        Self { ctx, at, worktrees, with_branch: Vec::new(), locks: Vec::new() }
    }

    /// Finishes or takes back what a killed run under this name left. True if an index may still have to be
    /// brought up to date although the branch is at the candidate: a `git update-ref` outlives the
    /// process that started it, and people remove locks by hand.
    fn settle_dead_run(&self) -> Result<bool, LandError> {
        let tip = self.tip()?;
        let mut unfinished = false;
        for worktree in self.worktrees {
            let lock = IndexLock::new(self.ctx.agent_dir, self.ctx.name, worktree);
            if !lock.is_recorded()? {
                continue;
            }
            if lock.is_ours()? && self.contains_candidate(tip)? {
                self.make_durable()?;
                lock.install(self.at)?;
            } else {
                unfinished |= lock.is_ours()? || lock.is_prepared()?;
                lock.release()?;
            }
        }
        Ok(unfinished)
    }

    fn tip(&self) -> Result<Option<Oid>, StateError> {
        branch_tip(self.ctx.repo, self.ctx.branch)
    }

    /// git in the first worktree given, else in the common directory.
    fn git_in(&self, worktree: Option<&Worktree>) -> Result<Git, GitError> {
        let common = self.ctx.repo.common_dir().to_owned();
        let bare = Worktree { id: ".".to_owned(), top: common.clone(), git_dir: common };
        (self.ctx.git)(worktree.or(self.worktrees.first()).unwrap_or(&bare))
    }

    /// True if the candidate is at the tip or below it.
    fn contains_candidate(&self, tip: Option<Oid>) -> Result<bool, LandError> {
        let Some(tip) = tip else { return Ok(false) };
        if tip == self.ctx.candidate || tip == self.ctx.parent {
            return Ok(tip == self.ctx.candidate);
        }
        let (candidate, tip) = (self.ctx.candidate.to_string(), tip.to_string());
        Ok(self.git_in(None)?.ask(&["merge-base", "--is-ancestor", &candidate, &tip])?)
    }

    /// A `git checkout` just before the promise may have put `HEAD` on a branch at the same commit: git would compare
    /// that and take `HEAD` off the branch again. After the promise nobody else moves it.
    fn is_still_there(&self) -> Result<bool, LandError> {
        Ok(!is_head(self.ctx.branch) || self.tip()? == Some(self.ctx.parent))
    }

    /// Where the branch is; none = at the parent, so there is something to do.
    fn look(&self) -> Result<Option<Landed>, LandError> {
        let tip = self.tip()?;
        if tip == Some(self.ctx.parent) {
            return Ok(None);
        }
        Ok(Some(match tip {
            Some(tip) if tip == self.ctx.candidate => {
                self.make_durable()?;
                Landed::Done
            }
            Some(tip) if self.contains_candidate(Some(tip))? => Landed::Beyond { tip },
            tip => Landed::Moved { tip },
        }))
    }

    /// Everything until the branch has moved.
    fn up_to_move(&mut self) -> Result<Tried, LandError> {
        for worktree in self.worktrees {
            if self.is_rebasing_the_branch(worktree)? {
                return Ok(Tried::Ended(busy(worktree, Operation::Rebase)));
            }
            if self.has_branch(worktree)? {
                self.with_branch.push(worktree);
            }
        }
        if let Some(locked) = self.take_locks()? {
            return Ok(Tried::Ended(locked));
        }
        // Under the locks: is everything still as it was?
        for worktree in &self.with_branch {
            if let Some(operation) = conflict_or_operation(self.ctx.repo, worktree)? {
                return Ok(Tried::Ended(busy(worktree, operation)));
            }
        }
        let moved_already = match self.look()? {
            None => false,
            Some(Landed::Done) => true,
            Some(end) => return Ok(Tried::Ended(end)),
        };
        for (lock, worktree) in self.locks.iter().zip(&self.with_branch) {
            lock.prepare(&(self.ctx.git)(worktree)?, self.ctx.candidate.hash(), self.ctx.listed)?;
        }
        (self.at)(Step::Prepared);
        if moved_already {
            self.locks.iter().try_for_each(IndexLock::swap)?;
        } else {
            self.let_others_finish()?;
            let tried = self.move_branch()?;
            if !matches!(tried, Tried::Moved) {
                return Ok(tried);
            }
        }
        (self.at)(Step::Moved);
        Ok(Tried::Moved)
    }

    fn has_branch(&self, worktree: &Worktree) -> Result<bool, StateError> {
        has_branch(self.ctx.repo, &worktree.git_dir, self.ctx.branch)
    }

    fn take_locks(&mut self) -> Result<Option<Landed>, LandError> {
        let end = Instant::now() + Duration::from_millis(self.ctx.lock_wait_ms);
        for worktree in &self.with_branch {
            let lock = IndexLock::new(self.ctx.agent_dir, self.ctx.name, worktree);
            lock.record()?;
            self.locks.push(lock.clone());
            (self.at)(Step::Recorded);
            if !lock.take(end)? {
                return Ok(Some(Landed::IndexLocked(lock.path())));
            }
            (self.at)(Step::Locked);
        }
        Ok(None)
    }

    /// Swaps the index between git's promise to move the branch and its doing so. Whoever reads the new branch reads
    /// the new index; whoever read the old branch is turned down by git when it comes to move it (ADR 0005).
    fn move_branch(&self) -> Result<Tried, LandError> {
        let own_head = is_head(self.ctx.branch);
        let change = RefChange {
            // Its own worktree's git calls it so.
            name: if own_head { "HEAD" } else { self.ctx.branch },
            new: self.ctx.candidate,
            old: self.ctx.parent,
            reflog: self.ctx.reflog,
        };
        let git = self.git_in(self.with_branch.first().copied())?;
        let moved = match git.prepare_ref(&change) {
            // Dropped, the promise is taken back.
            Ok(_) if !self.is_still_there()? => {
                let end = self.look()?.unwrap_or(Landed::Moved { tip: None });
                return Ok(Tried::Ended(end));
            }
            Ok(promise) => {
                if let Some(head) = self.joined()? {
                    return Ok(Tried::Joined(head));
                }
                self.locks.iter().try_for_each(IndexLock::swap)?;
                (self.at)(Step::Swapped);
                promise.commit()
            }
            Err(refused) => Err(refused),
        };
        let Err(refused) = moved else { return Ok(Tried::Moved) };
        // A lost race is an answer; a lock that was not to be had is a failure.
        match self.look()? {
            Some(Landed::Done) => Ok(Tried::Moved),
            Some(end) => Ok(Tried::Ended(end)),
            None => Err(refused.into()),
        }
    }

    fn make_durable(&self) -> Result<(), LandError> {
        Ok(RefReader::of(self.ctx.repo)?.sync(self.ctx.branch)?)
    }

    /// Lets go of everything, so that it can be tried again.
    fn give_up(&mut self) -> Result<(), LandError> {
        self.with_branch.clear();
        self.locks.drain(..).try_for_each(|lock| lock.release())
    }

    /// During a rebase `HEAD` is detached, and the branch is set at the end by compare-and-swap.
    fn is_rebasing_the_branch(&self, worktree: &Worktree) -> Result<bool, StateError> {
        for dir in ["rebase-merge", "rebase-apply"] {
            let name = read_optional(&worktree.git_dir.join(dir).join("head-name"))?;
            let name = name.as_deref().and_then(|n| std::str::from_utf8(n.trim_ascii()).ok());
            let Some(name) = name else { continue };
            if is_same_branch(self.ctx.repo, name, self.ctx.branch)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// An entry in conflict would lose its stages to the candidate's.
fn conflict_or_operation(
    repo: &gix::Repository,
    worktree: &Worktree,
) -> Result<Option<Operation>, StateError> {
    let found = operation_in_progress(repo, &worktree.git_dir)?;
    let index = open_index_at(&worktree.git_dir.join("index"), repo.object_hash())?;
    let unmerged = index.is_some_and(|i| is_conflicted(&i));
    Ok(found.or_else(|| unmerged.then_some(Operation::Conflict)))
}

fn busy(worktree: &Worktree, operation: Operation) -> Landed {
    Landed::GitBusy { worktree: worktree.id.clone(), operation }
}

#[cfg(test)]
mod tests;

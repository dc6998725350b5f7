//! The working file of the team's allowlist, after its branch moved.
//!
//! Contract: written only where the person stands, only when it was exactly what the branch had, and by git
//! itself, which follows no link and knows filters and line endings. That it is left alone is an answer, not a
//! failure: the commit is there.

use super::{Plan, Setup, git_failed};
use crate::{
    code::Code,
    domain::{oid::Oid, path::RepoPath},
    ledger::LedgerError,
    limits,
    store::{
        allowlist::RULE_FILE,
        beneath::{LookError, OnDisk, Root},
        git::Git,
        landing,
    },
};

/// What became of a working file whose branch moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkingFile {
    /// It is as the branch has it now.
    Written,
    /// It was left alone and shows as modified.
    Kept {
        /// Why.
        because: String,
    },
    /// The branch is not checked out there.
    OtherBranch,
}

/// What is to happen to the working file once the branch moved.
pub(super) enum Intent {
    /// Bring it along if this is still what is there.
    Update(OnDisk),
    /// Nothing, for the reason the answer gives.
    Leave(WorkingFile),
}

impl Setup<'_> {
    /// Whether the working file here is what the branch has, as git sees it.
    pub(super) fn look(&self, plan: &Plan) -> Result<Intent, LedgerError> {
        if !self.has_branch(&self.worktree)? {
            return Ok(Intent::Leave(WorkingFile::OtherBranch));
        }
        let kept = |because: String| Ok(Intent::Leave(WorkingFile::Kept { because }));
        let found = match self.on_disk(&plan.listed.0) {
            Ok(found) => found,
            Err(e @ (LookError::ThroughSymlink { .. } | LookError::InRepository { .. })) => {
                return kept(e.to_string());
            }
            Err(e @ (LookError::Io { .. } | LookError::TooLarge { .. })) => {
                return Err(LedgerError::refused(e.code(), RULE_FILE, e.to_string()));
            }
        };
        let same = match &found {
            OnDisk::Absent => plan.before.is_none(),
            OnDisk::File { .. } => Some(self.hashed()?) == plan.before.map(|(_, id)| id),
            OnDisk::Symlink { .. } | OnDisk::Directory { .. } | OnDisk::Special => false,
        };
        if same {
            return Ok(Intent::Update(found));
        }
        kept("it was not what the branch had".to_owned())
    }

    fn on_disk(&self, path: &RepoPath) -> Result<OnDisk, LookError> {
        let root = Root::open(&self.worktree.top)
            .map_err(|source| LookError::Io { path: path.clone(), source })?;
        root.look(path)
    }

    /// The object the working file would be, the user's filters and line endings applied.
    fn hashed(&self) -> Result<Oid, LedgerError> {
        let said = self.git()?.call(&["hash-object", "--", RULE_FILE], b"", &[]);
        let said = said.map_err(|e| git_failed(&e))?;
        let id = std::str::from_utf8(&said).ok().and_then(|text| text.trim_end().parse().ok());
        id.ok_or_else(|| {
            LedgerError::refused(Code::GitFailed, "git hash-object", "it answers no object id")
        })
    }

    /// The working file and the `post-commit` hook, as after a commit by hand.
    pub(super) fn follow(
        &self,
        git: &Git,
        plan: &Plan,
        intent: Intent,
    ) -> (WorkingFile, Option<String>) {
        let file = match intent {
            Intent::Leave(WorkingFile::OtherBranch) => return (WorkingFile::OtherBranch, None),
            Intent::Leave(left) => left,
            Intent::Update(seen) => self.update(git, plan, &seen),
        };
        (file, landing::post_commit(git, limits::GATE_TIMEOUT_DEFAULT_MS))
    }

    /// Lets git write the file: it follows no link and knows filters and line endings.
    fn update(&self, git: &Git, plan: &Plan, seen: &OnDisk) -> WorkingFile {
        match self.on_disk(&plan.listed.0) {
            Ok(now) if now == *seen => {}
            Ok(_) | Err(_) => {
                return WorkingFile::Kept { because: "it changed meanwhile".to_owned() };
            }
        }
        let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
        let write = ["checkout-index", "--force", "--index", "--", RULE_FILE];
        let done = git.call(&[&quiet[..], &write[..]].concat(), b"", &[]);
        // The commit is there whatever happens to the file.
        match done {
            Ok(_) => WorkingFile::Written,
            Err(e) => WorkingFile::Kept { because: e.to_string() },
        }
    }
}

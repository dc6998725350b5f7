//! What processes that were killed left in `agentproto/tmp`: directories for one piece of work, and what a landing had
//! beside a worktree that is no more.
//!
//! Contract: a directory is left behind when nobody holds it and nothing changed in it for an hour; a file of a landing,
//! when its policy is over and git does not know its worktree any more: nobody comes back for either. What cannot be
//! told stays. Staged files of the store are not meant: they go under its lock.

use super::{Ledger, setup};
use crate::{
    domain::ids::PolicyId,
    limits,
    store::{StoreError, landing},
    sys::{
        clock,
        files::{self, Scratch},
    },
};
use std::path::{Path, PathBuf};

/// How the names of our directories in `tmp` begin, each with what it is for.
const SCRATCH: [(&str, &str); 4] = [
    ("ack.", "an ack that was being signed"),
    ("sign.", "a commit that was being signed"),
    ("hooks.", "commit hooks that were running"),
    ("fix.", "files that were being read for a candidate"),
];

/// Something in `tmp` that nobody comes back for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Where it is.
    pub path: PathBuf,
    /// What it was for, with an article.
    pub of: &'static str,
}

impl Ledger {
    /// Everything of that kind, sorted.
    ///
    /// # Errors
    /// The directory, or what is in it, cannot be looked at.
    pub fn leftovers(&self) -> Result<Vec<Leftover>, StoreError> {
        let tmp = self.store().location().agent_dir().join("tmp");
        let limit_ms = clock::now().ms().saturating_sub_unsigned(limits::SCRATCH_STALE_MS);
        let mut found = Vec::new();
        // What a link leads to is somebody else's.
        if files::look(&tmp)?.is_some_and(|found| found.is_symlink()) {
            return Ok(found);
        }
        for name in files::names(&tmp)? {
            let path = tmp.join(&name);
            let Some(name) = name.to_str() else { continue };
            if let Some((_, of)) = SCRATCH.iter().find(|(kind, _)| name.starts_with(kind)) {
                if Scratch::is_abandoned(&path, limit_ms) {
                    found.push(Leftover { path, of });
                }
            } else if self.is_of_no_landing(name)? && files::is_file(&path)? {
                found.push(Leftover { path, of: "a landing beside a worktree that is no more" });
            }
        }
        Ok(found)
    }

    /// Removes it; gives how much of it went. What cannot be told or removed is left for the next time.
    pub fn clear_leftovers(&self) -> u64 {
        let went = |left: &Leftover| match files::is_file(&left.path) {
            Ok(true) => files::remove_optional(&left.path).unwrap_or(false),
            Ok(false) => files::remove_tree(&left.path).is_ok(),
            Err(_) => false,
        };
        self.leftovers().unwrap_or_default().iter().filter(|left| went(left)).count() as u64
    }

    fn is_of_no_landing(&self, name: &str) -> Result<bool, StoreError> {
        let Some((landing, worktree)) = landing::left_by(name) else { return Ok(false) };
        let is_over = match landing.parse::<PolicyId>() {
            Ok(id) => self.require_policy(&id).is_ok_and(|policy| policy.status.is_terminal()),
            Err(_) => setup::is_landing(landing),
        };
        let worktree = worktree.strip_suffix(".lock").unwrap_or(worktree);
        // The main worktree has no directory there, and does not go.
        let known = self.store().location().common_dir.join("worktrees").join(worktree);
        Ok(is_over && Path::new(worktree).file_name().is_some() && !files::is_there(&known)?)
    }
}

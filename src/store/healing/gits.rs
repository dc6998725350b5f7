//! Files of git's that are no file of git's any more: `packed-refs`, and `HEAD` and `index` of every worktree.
//!
//! Contract: nothing is written and no program is started. Git itself refuses to work with such a file; we read around
//! it, so nobody else would tell.

use crate::store::{
    Store, StoreError,
    refs::{Stored, head_name_of, is_name},
    worktree_state::open_index_at,
};
use std::path::{Path, PathBuf};

/// A file of git's that git cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitFile {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong, and what makes it right.
    pub what: String,
    /// Refs are missing while it is so.
    pub hides_refs: bool,
}

impl Store {
    /// Every file of git's that is damaged.
    ///
    /// # Errors
    /// One cannot be looked at.
    pub fn damaged_git_files(&self) -> Result<Vec<GitFile>, StoreError> {
        let common = &self.location.common_dir;
        let mut found = Vec::new();
        if let Some(why) = self.refs.packed_damage()? {
            let what = format!("{why}, and git reads no packed ref: take that line out");
            found.push(GitFile { path: common.join("packed-refs"), what, hides_refs: true });
        }
        let linked = self.location.worktrees()?;
        let mut dirs: Vec<&Path> = linked.iter().map(|tree| tree.git_dir.as_path()).collect();
        if !dirs.contains(&common.as_path()) {
            dirs.push(common);
        }
        for dir in dirs {
            found.extend(self.head_damage(dir)?);
            found.extend(self.git_index_damage(dir)?);
        }
        Ok(found)
    }

    fn head_damage(&self, git_dir: &Path) -> Result<Option<GitFile>, StoreError> {
        let why = match self.refs.stored(&head_name_of(git_dir, &self.location.common_dir)?) {
            Ok(Some(Stored::Symbolic(to))) if !to.starts_with("refs/") || !is_name(&to) => {
                format!("it names '{to}', which is no ref")
            }
            Ok(_) => return Ok(None),
            Err(StoreError::BrokenRef { reason, .. }) => reason,
            Err(e) => return Err(e),
        };
        let what = format!("{why}: write the line 'ref: refs/heads/<branch>' into it");
        Ok(Some(GitFile { path: git_dir.join("HEAD"), what, hides_refs: false }))
    }

    fn git_index_damage(&self, git_dir: &Path) -> Result<Option<GitFile>, StoreError> {
        let path = git_dir.join("index");
        let hash = self.repo()?.object_hash();
        let Err(why) = open_index_at(&path, hash) else { return Ok(None) };
        let what = format!("{why}: move it away and let git reset make another");
        Ok(Some(GitFile { path, what, hides_refs: false }))
    }
}

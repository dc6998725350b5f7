//! A directory for one piece of work.

use super::{FileError, make_private_dirs, remove_tree};
use std::path::{Path, PathBuf};

/// A private directory that goes when this is dropped. What a killed process left under its name goes first.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it anew, with the directories above it.
    ///
    /// # Errors
    /// What is there cannot be removed, or the directory not be made.
    pub fn make(dir: &Path) -> Result<Self, FileError> {
        remove_tree(dir)?;
        make_private_dirs(dir)?;
        Ok(Self(dir.to_owned()))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind it is only garbage: the next one of this name, or the next recovery, clears it away.
        let _ = remove_tree(&self.0);
    }
}

//! A directory for one piece of work.
//!
//! Contract: who made it holds a kernel lock on the directory itself, which no child inherits and which goes with the
//! process: one that can be locked by somebody else was left behind.

use super::{FileError, Op, access, look, make_private_dirs, remove_tree};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A private directory that goes when this is dropped. What a killed process left under its name goes first.
#[derive(Debug)]
pub struct Scratch {
    dir: PathBuf,
    /// None on a file system that locks no directories: there nobody can take it for left behind.
    _held: Option<File>,
}

impl Scratch {
    /// Makes it anew, with the directories above it.
    ///
    /// # Errors
    /// What is there cannot be removed, or the directory not be made.
    pub fn make(dir: &Path) -> Result<Self, FileError> {
        remove_tree(dir)?;
        make_private_dirs(dir)?;
        let held = access(Op::Lock, &[dir], || locked(dir)).ok().flatten();
        Ok(Self { dir: dir.to_owned(), _held: held })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// True when nothing in it was made or removed after `limit_ms` (since the epoch) and nobody holds it; false where
    /// that cannot be told.
    #[must_use]
    pub fn is_abandoned(dir: &Path, limit_ms: i64) -> bool {
        let is_old = look(dir)
            .ok()
            .flatten()
            .is_some_and(|found| found.is_dir() && found.mtime().saturating_mul(1000) < limit_ms);
        is_old && access(Op::Lock, &[dir], || locked(dir)).is_ok_and(|held| held.is_some())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind it is only garbage: the next one of this name, or `gc`, clears it away.
        let _ = remove_tree(&self.dir);
    }
}

/// The directory, locked; none when somebody else holds it.
fn locked(dir: &Path) -> io::Result<Option<File>> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(dir)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(e)) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_held_or_young_is_not_abandoned() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("ack.x");
        let (later, before) = (i64::MAX, 0);
        let scratch = Scratch::make(&dir).unwrap();
        assert!(!Scratch::is_abandoned(&dir, later));
        std::fs::write(scratch.path().join("held"), "x").unwrap();
        drop(scratch);
        assert!(!dir.exists());
        std::fs::create_dir(&dir).unwrap();
        assert!(!Scratch::is_abandoned(&dir, before));
        assert!(Scratch::is_abandoned(&dir, later));
        let link = top.path().join("link");
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        assert!(!Scratch::is_abandoned(&link, later));
        assert!(!Scratch::is_abandoned(&top.path().join("none"), later));
    }
}

//! Whether listed files were written in between, whatever they hold by now.
//!
//! Contract: bytes that were swapped and put back leave the same tree; the kernel's own time of the last change, which nobody
//! sets, tells it. What is not told: a directory above that was swapped and put back, for its times change with every file
//! that a gate makes in it.

use super::worktree_state::StateError;
use crate::{domain::path::RepoPath, sys::files};
use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
};

/// Which file it is, of what kind and size, and when it was written and changed last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    mode: u32,
    size_bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// Those of listed files at one moment; none for one that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamps(Vec<Option<Stamp>>);

impl Stamps {
    /// Looks at the files below `top`.
    ///
    /// # Errors
    /// One cannot be looked at.
    pub fn look(top: &Path, listed: &[RepoPath]) -> Result<Self, StateError> {
        let one = |path: &RepoPath| -> Result<Option<Stamp>, StateError> {
            let found = files::look(&top.join(OsStr::from_bytes(path.as_bytes())))?;
            Ok(found.map(|meta| Stamp {
                device: meta.dev(),
                inode: meta.ino(),
                mode: meta.mode(),
                size_bytes: meta.len(),
                modified: (meta.mtime(), meta.mtime_nsec()),
                changed: (meta.ctime(), meta.ctime_nsec()),
            }))
        };
        listed.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// Those of `listed` that were written since `before`.
    #[must_use]
    pub fn written<'a>(&self, before: &Self, listed: &'a [RepoPath]) -> Vec<&'a RepoPath> {
        let pairs = self.0.iter().zip(&before.0).zip(listed);
        pairs.filter(|((now, then), _)| now != then).map(|(_, path)| path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Repo, path};

    #[test]
    fn bytes_that_are_back_are_told_from_bytes_that_never_went() {
        let repo = Repo::new();
        for name in ["kept", "rewritten", "replaced", "away", "born"] {
            repo.write(name, b"1\n");
        }
        std::fs::remove_file(repo.path("born")).unwrap();
        let listed = ["away", "born", "kept", "nowhere", "replaced", "rewritten"].map(path);
        let before = Stamps::look(&repo.top(), &listed).unwrap();
        assert_eq!(before, Stamps::look(&repo.top(), &listed).unwrap());
        // Times of files have the grain of the kernel's tick.
        while std::fs::metadata(repo.path("kept")).unwrap().modified().unwrap()
            >= std::fs::metadata({
                repo.write("tick", b"");
                repo.path("tick")
            })
            .unwrap()
            .modified()
            .unwrap()
        {}
        repo.write("rewritten", b"2\n");
        repo.write("rewritten", b"1\n");
        repo.write("other", b"1\n");
        std::fs::rename(repo.path("other"), repo.path("replaced")).unwrap();
        std::fs::rename(repo.path("away"), repo.path("aside")).unwrap();
        std::fs::rename(repo.path("aside"), repo.path("away")).unwrap();
        repo.write("born", b"1\n");
        let after = Stamps::look(&repo.top(), &listed).unwrap();
        let written: Vec<String> =
            after.written(&before, &listed).iter().map(ToString::to_string).collect();
        assert_eq!(written, ["away", "born", "replaced", "rewritten"]);
    }
}

//! What is beside the listed files, looked at before and after the hooks ran.
//!
//! Contract: content counts, not the times of a file, as far as [`limits::HOOK_WATCHED_BYTES`] reach: hooks that put
//! aside what is not staged and bring it back have changed nothing. Whatever cannot be compared counts as changed.

use crate::{
    domain::path::RepoPath,
    limits,
    store::worktree_state::{StateError, open_index, unlisted_paths},
    sys::{digest::sha256_file, files},
};
use gix::bstr::ByteSlice;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ffi::OsStr,
    fs::Metadata,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// What was at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Print {
    Gone,
    Link(PathBuf),
    Content { mode: u32, sha256: String },
    Stat { mode: u32, size: u64, inode: u64, modified: (i64, i64), changed: (i64, i64) },
}

/// An entry of the shared index without its path: mode, id, stage.
type Staged = (u32, Vec<u8>, u32);

/// Unlisted files that differ from `HEAD`, and the unlisted entries of the shared index.
#[derive(Debug)]
pub struct Watched {
    files: BTreeMap<Vec<u8>, Print>,
    staged: BTreeMap<Vec<u8>, Vec<Staged>>,
}

impl Watched {
    /// Looks at the worktree.
    ///
    /// # Errors
    /// Worktree or index cannot be read.
    pub fn look(repo: &gix::Repository, listed: &[RepoPath]) -> Result<Self, StateError> {
        let (tracked, untracked) = unlisted_paths(repo, listed)?;
        let names: BTreeSet<Vec<u8>> = tracked.into_iter().chain(untracked).collect();
        let top = repo.workdir().unwrap_or(repo.git_dir());
        let mut left = limits::HOOK_WATCHED_BYTES;
        let mut files = BTreeMap::new();
        for name in names {
            let print = print(&top.join(OsStr::from_bytes(&name)), &mut left)?;
            files.insert(name, print);
        }
        Ok(Self { files, staged: staged(repo, listed)? })
    }

    /// The paths that are another way than they were `before`.
    #[must_use]
    pub fn differing(&self, before: &Self) -> BTreeSet<Vec<u8>> {
        let files = self.files.keys().chain(before.files.keys());
        let files = files.filter(|p| self.files.get(*p) != before.files.get(*p));
        let staged = self.staged.keys().chain(before.staged.keys());
        let staged = staged.filter(|p| self.staged.get(*p) != before.staged.get(*p));
        files.chain(staged).cloned().collect()
    }
}

fn staged(
    repo: &gix::Repository,
    listed: &[RepoPath],
) -> Result<BTreeMap<Vec<u8>, Vec<Staged>>, StateError> {
    let listed: HashSet<&[u8]> = listed.iter().map(RepoPath::as_bytes).collect();
    let mut found = BTreeMap::<_, Vec<Staged>>::new();
    let Some(index) = open_index(repo)? else { return Ok(found) };
    for entry in index.entries() {
        let path = entry.path(&index).as_bytes();
        if !listed.contains(path) {
            let staged = (entry.mode.bits(), entry.id.as_bytes().to_vec(), entry.stage_raw());
            found.entry(path.to_vec()).or_default().push(staged);
        }
    }
    Ok(found)
}

fn print(path: &Path, left: &mut u64) -> Result<Print, StateError> {
    let Some(meta) = files::look(path)? else { return Ok(Print::Gone) };
    if meta.is_symlink() {
        return Ok(Print::Link(files::read_link(path)?));
    }
    if meta.is_file() && meta.len() <= *left {
        *left -= meta.len();
        // One that may not be read is known by its stat data.
        if let Ok(sha256) = sha256_file(path) {
            return Ok(Print::Content { mode: meta.mode(), sha256 });
        }
    }
    Ok(by_stat(&meta))
}

fn by_stat(meta: &Metadata) -> Print {
    Print::Stat {
        mode: meta.mode(),
        size: meta.len(),
        inode: meta.ino(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Repo, path};

    #[test]
    fn sees_every_unlisted_change_and_no_rewrite_of_the_same_bytes() {
        let repo = Repo::new();
        for name in ["clean", "dirty", "listed", ".gitignore"] {
            repo.write(name, if name == ".gitignore" { b"*.cache\n" } else { b"1\n" });
        }
        repo.commit_file("gone", b"1\n");
        repo.write("dirty", b"22\n");
        repo.write("new", b"1\n");
        let look = || Watched::look(&repo.gix(), &[path("listed")]).unwrap();
        let before = look();
        let changed = || -> Vec<String> {
            let names = look().differing(&before);
            names.iter().map(|n| String::from_utf8_lossy(n).into_owned()).collect()
        };
        for name in ["dirty", "new"] {
            let bytes = std::fs::read(repo.path(name)).unwrap();
            std::fs::remove_file(repo.path(name)).unwrap();
            repo.write(name, &bytes);
        }
        repo.write("listed", b"other\n");
        repo.git(&["add", "listed"]);
        repo.write("x.cache", b"1\n");
        assert_eq!(changed(), Vec::<String>::new());
        // Same size, and staged alone: neither may hide.
        repo.write("dirty", b"33\n");
        repo.write("more", b"1\n");
        repo.git(&["add", "new"]);
        std::fs::remove_file(repo.path("gone")).unwrap();
        repo.write("clean", b"not any more\n");
        assert_eq!(changed(), ["clean", "dirty", "gone", "more", "new"]);
    }
}

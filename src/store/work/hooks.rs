//! The repository's own commit hooks: which are in force, and the index they are shown.
//!
//! Contract: hooks are programs of the repository and may do anything, so nothing they leave behind is believed. The
//! index they get is a private one that holds exactly the candidate's tree; what they put there is compared and never
//! committed. The shared index is copied for its stat data alone and never written here.

mod watch;

pub use watch::Watched;

use crate::store::{
    git::{Git, GitError},
    worktree_state::{StateError, exists},
};
use crate::{
    domain::oid::Oid,
    sys::files::{self, FileError, Scratch},
};
use gix::bstr::ByteSlice;
use std::{
    ffi::{OsStr, OsString},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// The hooks of `git commit` that may refuse, in git's order.
pub const COMMIT_HOOKS: [&str; 3] = ["pre-commit", "prepare-commit-msg", "commit-msg"];

/// A hook that git would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// One of [`COMMIT_HOOKS`], or `post-commit`.
    pub name: &'static str,
    /// The file, or the setting that names it; for people.
    pub at: String,
}

/// The commit hooks in force, wherever the configuration as git sees it puts them.
///
/// # Errors
/// A setting or the hooks directory cannot be read.
pub fn commit_hooks(repo: &gix::Repository) -> Result<Vec<Hook>, StateError> {
    let mut found = Vec::new();
    for name in COMMIT_HOOKS {
        found.extend(effective_hook(repo, name)?.map(|at| Hook { name, at }));
    }
    Ok(found)
}

/// The hook that runs once a commit is made, and cannot undo it.
///
/// # Errors
/// As [`commit_hooks`].
pub fn post_commit_hook(repo: &gix::Repository) -> Result<Option<Hook>, StateError> {
    let name = "post-commit";
    Ok(effective_hook(repo, name)?.map(|at| Hook { name, at }))
}

fn effective_hook(repo: &gix::Repository, name: &str) -> Result<Option<String>, StateError> {
    let path = hooks_dir(repo)?.join(name);
    if files::look_through(&path)?
        .is_some_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    {
        return Ok(Some(path.display().to_string()));
    }
    // From git 2.54 on hooks can be configured without a file.
    let config = repo.config_snapshot();
    let mut sections = config.plumbing().sections_by_name("hook").into_iter().flatten();
    let configured =
        sections.find(|s| s.values("event").iter().any(|v| v.as_bytes() == name.as_bytes()));
    Ok(configured.map(|_| format!("hook.*.event = {name}")))
}

fn hooks_dir(repo: &gix::Repository) -> Result<PathBuf, StateError> {
    let bad = |why: String| StateError::Setting { key: "core.hooksPath", why };
    let config = repo.config_snapshot();
    let set = config.trusted_path("core.hooksPath").map_err(|e| bad(e.to_string()))?;
    let top = repo.workdir().unwrap_or(repo.git_dir());
    Ok(set.map_or_else(|| repo.common_dir().join("hooks"), |path| top.join(path)))
}

/// What commit hooks get could not be prepared or looked at afterwards.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The shared index cannot be looked at.
    #[error(transparent)]
    State(#[from] StateError),
    /// git refused.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// A directory for one run of the hooks: their index and their message file. It goes when this is dropped.
#[derive(Debug)]
pub struct PrivateIndex<'a> {
    git: &'a Git,
    dir: Scratch,
}

impl<'a> PrivateIndex<'a> {
    /// Makes `dir` anew, with an index that holds `tree` (whose objects are in the repository) and what the shared index
    /// knows of the files on disk, so that hooks see as changed what is changed and nothing else.
    ///
    /// # Errors
    /// The directory cannot be made, or git cannot make such an index.
    pub fn make(git: &'a Git, dir: &Path, tree: Oid) -> Result<Self, HookError> {
        let index = Self { git, dir: Scratch::make(dir)? };
        let shared = git.worktree().git_dir.join("index");
        if exists(&shared)? {
            files::copy(&shared, &index.path())?;
        }
        let tree = tree.to_string();
        let copied = index.call(&["read-tree", "-m", &tree]).is_ok()
            && index.differing(&tree).is_ok_and(|names| names.is_empty());
        if !copied {
            // One that is cut short or lies is of no use: every file is read instead.
            files::remove_optional(&index.path())?;
            index.call(&["read-tree", &tree])?;
        }
        match index.call(&["update-index", "-q", "--refresh"]) {
            // 1: some files differ from the tree, which is no failure.
            Ok(_) | Err(GitError::Failed { status: 1, .. }) => Ok(index),
            Err(error) => Err(error.into()),
        }
    }

    /// The index file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("index")
    }

    /// The file the commit message is handed over in, under the name it has in git.
    #[must_use]
    pub fn message_file(&self) -> PathBuf {
        self.dir.path().join("COMMIT_EDITMSG")
    }

    /// Paths that the index holds in another way than `tree` (a full id) does.
    ///
    /// # Errors
    /// git cannot read the index any more.
    pub fn differing(&self, tree: &str) -> Result<Vec<Vec<u8>>, GitError> {
        let args = ["diff-index", "--cached", "--name-only", "--no-renames", "-z", tree, "--"];
        let said = self.call(&args)?;
        Ok(said.split(|b| *b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn call(&self, args: &[&str]) -> Result<Vec<u8>, GitError> {
        // Programs that repository configuration names for the index have no business here.
        let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
        let plain = ["-c", "core.splitIndex=false", "-c", "core.untrackedCache=false"];
        let args: Vec<&str> = [&quiet, &plain, args].concat();
        let index = self.path();
        let extra: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", index.as_os_str())];
        self.git.call(&args, b"", &extra)
    }

    /// The environment git gives its commit hooks: this index, no editor, the author.
    ///
    /// # Errors
    /// The worktree cannot be looked at.
    pub fn env(
        &self,
        author: &crate::domain::candidate::Person,
    ) -> Result<Vec<(OsString, OsString)>, FileError> {
        let mut env = self.git.hook_env()?;
        env.extend([
            ("GIT_INDEX_FILE".into(), self.path().into_os_string()),
            ("GIT_EDITOR".into(), ":".into()),
            ("GIT_AUTHOR_NAME".into(), author.name().into()),
            ("GIT_AUTHOR_EMAIL".into(), author.email().into()),
        ]);
        Ok(env)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::Repo;

    #[test]
    fn the_private_index_holds_the_tree_and_knows_the_files_whatever_the_shared_one_holds() {
        let repo = Repo::new();
        repo.write("b", b"b\n");
        repo.commit_file("a", b"1\n");
        let tree = repo.oid("HEAD^{tree}");
        repo.write("a", b"2\n");
        repo.write("theirs", b"staged\n");
        repo.git(&["add", "-A"]);
        repo.write("a", b"3\n");
        let dir = repo.beside("private");
        let git = repo.program();
        let check = || {
            let before = std::fs::read(repo.path(".git/index")).unwrap();
            let index = PrivateIndex::make(&git, &dir, tree).unwrap();
            let file = index.path();
            let seen = |args: &[&str]| repo.git_at(&repo.top(), args, &[("GIT_INDEX_FILE", &file)]);
            assert_eq!(seen(&["write-tree"]).trim(), tree.to_string());
            // Raw, without a look at content: only what really differs has no fitting stat data.
            assert_eq!(seen(&["diff-files", "--name-only"]), "a\n");
            assert_eq!(index.differing(&tree.to_string()).unwrap(), Vec::<Vec<u8>>::new());
            seen(&["add", "theirs"]);
            assert_eq!(index.differing(&tree.to_string()).unwrap(), [b"theirs".to_vec()]);
            drop(index);
            assert!(!dir.exists());
            assert_eq!(std::fs::read(repo.path(".git/index")).unwrap(), before);
        };
        check();
        std::fs::write(repo.path(".git/index"), b"DIRC").unwrap();
        check();
    }
}

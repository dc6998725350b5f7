//! A repository opened with the person's whole configuration, for settings, identity and attributes.
//!
//! [`crate::store::Store`] itself reads objects through an isolated handle that no configuration can change. Here
//! every scope counts, and who asks for a value says which scopes it trusts.

use crate::store::{
    StoreError,
    location::{OpenError, Worktree},
};
use crate::sys::env::Env;
use gix::{open::Permissions, sec::Permission};
use std::path::Path;

/// Variables that would turn a handle to another index or worktree than the one it was opened for
/// (decisions 33: an index from outside is ignored).
const REDIRECTING: [&str; 3] = ["GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_DIR"];

/// Opens a worktree at the top this program found for it: the library does not know the directory of a separate
/// git directory, nor one that the environment named.
///
/// # Errors
/// As [`open`]; or its top is gone.
pub fn open_worktree(env: &Env, worktree: &Worktree) -> Result<gix::Repository, StoreError> {
    let mut repo = open(env, &worktree.git_dir)?;
    if repo.workdir() != Some(worktree.top.as_path()) {
        repo.set_workdir(worktree.top.clone()).map_err(|e| OpenError::Malformed {
            path: worktree.top.clone(),
            reason: e.to_string(),
        })?;
    }
    Ok(repo)
}

/// Opens the worktree whose own git directory is `git_dir` (absolute).
///
/// # Errors
/// It cannot be opened, or its configuration cannot be read.
pub fn open(env: &Env, git_dir: &Path) -> Result<gix::Repository, StoreError> {
    let mut permissions = Permissions::all();
    // A hook hands on the author of somebody else's commit: who commits is a matter of configuration alone.
    permissions.env.identity = Permission::Deny;
    if REDIRECTING.iter().any(|name| env.get(name).is_some()) {
        // The library reads them all or none; without them it still finds the person's own files.
        permissions.env.git_prefix = Permission::Deny;
    }
    let opened = gix::open::Options::default()
        .permissions(permissions)
        .with(gix::sec::Trust::Full)
        .strict_config(true)
        .open_path_as_is(true)
        // Ownership was judged by `caps`, which knows the person's safe.directory; without this the library
        // would leave out the configuration of a repository declared safe.
        .filter_config_section(|_| true)
        .config_overrides(["core.packedRefsTimeout=15000", "core.filesRefLockTimeout=3000"])
        .open(git_dir)
        .map_err(|e| OpenError::Malformed { path: git_dir.to_owned(), reason: e.to_string() })?;
    Ok(opened.to_thread_local())
}

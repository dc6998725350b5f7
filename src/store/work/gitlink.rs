//! Submodules as listed paths: a link to the commit their `HEAD` is at.
//!
//! Contract: only what `.gitmodules` declares, as the commit will have it; nothing is run in the submodule and none
//! of its files is looked at.

use crate::domain::{oid::Oid, path::RepoPath};
use crate::store::{
    object::hash_of,
    worktree_state::{Head, StateError, git_error, head},
};
use gix::bstr::ByteSlice;
use std::{collections::BTreeSet, path::Path};

/// Where `.gitmodules` lies.
pub(in crate::store) const DECLARATIONS: &[u8] = b".gitmodules";

/// The paths at which submodules are declared.
#[derive(Debug, Default)]
pub(in crate::store) struct Declared(BTreeSet<Vec<u8>>);

impl Declared {
    /// Reads the text of a `.gitmodules`; a section without a path declares nothing.
    pub(in crate::store) fn parse(text: &[u8]) -> Result<Self, StateError> {
        let bad = git_error("the declarations of submodules");
        let none = gix::config::File::default();
        let file = gix::submodule::File::from_bytes(text, None, &none);
        let file = file.map_err(|e| bad(e.to_string()))?;
        let paths = file.names().filter_map(|name| file.path(name).ok());
        Ok(Self(paths.map(Vec::from).collect()))
    }

    pub(in crate::store) fn has(&self, path: &RepoPath) -> bool {
        self.0.contains(path.as_bytes().as_bstr().as_bytes())
    }
}

/// The commit that `HEAD` of the repository in `dir` is at, or why there is none to link to.
pub(in crate::store) fn commit_of(
    outer: &gix::Repository,
    dir: &Path,
) -> Result<Result<Oid, &'static str>, StateError> {
    let bad = git_error("a submodule");
    let options = gix::open::Options::isolated();
    let inner = gix::open_opts(dir, options).map_err(|e| bad(e.to_string()))?;
    if hash_of(&inner) != hash_of(outer) {
        return Ok(Err("its objects are named by another hash"));
    }
    Ok(match head(&inner)? {
        Head::Branch { tip, .. } => Ok(tip),
        Head::Detached { at } => Ok(at),
        Head::Unborn { .. } => Err("it has no commit yet"),
    })
}

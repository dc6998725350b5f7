//! What of a worktree a governed commit leaves out or passes over, for whoever asks for it to be told.
//!
//! Contract: reads only. Nothing here decides anything.

use super::{StateError, git_error, head_tree, oid, open_index, unlisted::head_files};
use crate::{
    domain::{oid::Oid, path::RepoPath},
    store::{
        beneath::{OnDisk, Root},
        git::{Git, GitError},
    },
};
use gix::{
    bstr::{BStr, ByteSlice},
    index::entry::Flags,
};
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

/// Paths named to one call of git.
const PATHS_PER_CALL: usize = 64;

/// Listed paths that are neither on disk nor tracked, in the index or in `HEAD`.
///
/// # Errors
/// Index or `HEAD` cannot be read.
pub fn not_there(repo: &gix::Repository, listed: &[RepoPath]) -> Result<Vec<RepoPath>, StateError> {
    let top = repo.workdir().ok_or_else(|| git_error("the worktree")("there is none".into()))?;
    let root = Root::open(top).map_err(|source| StateError::Io { path: top.to_owned(), source })?;
    let (index, head) = (open_index(repo)?, head_tree(repo)?);
    let mut found = Vec::new();
    for path in listed {
        let absent = matches!(root.look(path), Ok(OnDisk::Absent));
        let staged = || {
            let entry = index.as_ref().and_then(|i| i.entry_range(path.as_bytes().as_bstr()));
            entry.is_some()
        };
        if absent && !staged() && at(head.as_ref(), path)?.is_none() {
            found.push(path.clone());
        }
    }
    Ok(found)
}

fn at(tree: Option<&gix::Tree<'_>>, path: &RepoPath) -> Result<Option<gix::ObjectId>, StateError> {
    let Some(tree) = tree else { return Ok(None) };
    let found = tree.lookup_entry(path.names());
    let found = found.map_err(|e| git_error("the tree of HEAD")(e.to_string()))?;
    Ok(found.map(|entry| entry.object_id()))
}

/// Files of `HEAD` that are gone from the worktree and not listed, while a listed path is new: it may be the other
/// half of a move, of which both halves have to be listed.
///
/// # Errors
/// Index, `HEAD` or the worktree cannot be read.
pub fn moved_away(
    repo: &gix::Repository,
    listed: &[RepoPath],
) -> Result<Vec<RepoPath>, StateError> {
    let top = repo.workdir().ok_or_else(|| git_error("the worktree")("there is none".into()))?;
    let root = Root::open(top).map_err(|source| StateError::Io { path: top.to_owned(), source })?;
    let at_head = head_files(repo)?;
    let is_new = |p: &RepoPath| {
        !at_head.contains_key(p.as_bytes())
            && matches!(root.look(p), Ok(OnDisk::File { .. } | OnDisk::Symlink { .. }))
    };
    if !listed.iter().any(is_new) {
        return Ok(Vec::new());
    }
    let listed: BTreeSet<&RepoPath> = listed.iter().collect();
    let index = open_index(repo)?;
    let skipped = |path: &[u8]| {
        let range = index.as_ref().and_then(|i| Some((i, i.entry_range(path.as_bstr())?)));
        let entry = range.and_then(|(i, range)| i.entries().get(range.start));
        entry.is_some_and(|e| e.flags.contains(Flags::SKIP_WORKTREE))
    };
    // A sparse index has no entries to tell what was left out on purpose.
    let sparse = index.as_ref().is_some_and(|i| i.is_sparse());
    let mut gone = BTreeSet::new();
    for (path, (mode, _)) in &at_head {
        let Ok(name) = RepoPath::new(path) else { continue };
        if sparse || mode.is_submodule() || listed.contains(&name) || skipped(path) {
            continue;
        }
        if matches!(root.look(&name), Ok(OnDisk::Absent)) {
            gone.insert(name);
        }
    }
    Ok(gone.into_iter().collect())
}

/// Listed paths of which something is staged that is neither in `HEAD` nor what is on disk, with the blob that is.
///
/// # Errors
/// Index or `HEAD` cannot be read, or git cannot compare them with the files.
pub fn staged_otherwise(
    repo: &gix::Repository,
    git: &Git,
    listed: &[RepoPath],
) -> Result<Vec<(RepoPath, Oid)>, StateError> {
    let staged = staged(repo, listed)?;
    let mut found = Vec::new();
    for some in staged.chunks(PATHS_PER_CALL) {
        let differ = differ_on_disk(git, some.iter().map(|(path, _)| path))
            .map_err(|e| git_error("the state of the listed files")(e.to_string()))?;
        found.extend(some.iter().filter(|(path, _)| differ.contains(path.as_bytes())).cloned());
    }
    Ok(found)
}

/// Listed paths whose entry in the index is another than in `HEAD`.
fn staged(repo: &gix::Repository, listed: &[RepoPath]) -> Result<Vec<(RepoPath, Oid)>, StateError> {
    let Some(index) = open_index(repo)? else { return Ok(Vec::new()) };
    let head = head_tree(repo)?;
    let mut found = Vec::new();
    for path in listed {
        let name: &BStr = path.as_bytes().as_bstr();
        let range = index.entry_range(name).unwrap_or_default();
        let Some(entry) = index.entries().get(range).and_then(<[_]>::first) else { continue };
        if entry.flags.contains(Flags::INTENT_TO_ADD) || entry.mode.is_submodule() {
            continue;
        }
        if at(head.as_ref(), path)? != Some(entry.id) {
            found.push((path.clone(), oid(&entry.id)?));
        }
    }
    Ok(found)
}

fn differ_on_disk<'p>(
    git: &Git,
    paths: impl Iterator<Item = &'p RepoPath>,
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let quiet = ["-c", "core.fsmonitor=false", "status", "--porcelain", "-z", "--no-renames"];
    let narrow = ["--untracked-files=no", "--ignore-submodules=all", "--"];
    let mut args: Vec<OsString> = quiet.into_iter().chain(narrow).map(OsString::from).collect();
    args.extend(paths.map(|p| OsStr::from_bytes(p.as_bytes()).to_owned()));
    let said = git.call(&args, b"", &[])?;
    let lines = said.split(|b| *b == 0).filter(|line| line.len() > 3);
    Ok(lines.filter(|line| line[1] != b' ').map(|line| line[3..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Repo, path};

    #[test]
    fn the_other_half_of_a_move_is_found_beside_something_new_only() {
        let repo = Repo::new();
        for name in ["a", "b", "kept", "sparse"] {
            repo.write(name, b"1");
        }
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "1"]);
        repo.git(&["update-index", "--skip-worktree", "sparse"]);
        for name in ["a", "b", "sparse"] {
            std::fs::remove_file(repo.path(name)).unwrap();
        }
        repo.git(&["rm", "-q", "--cached", "b"]);
        repo.write("new", b"1");
        let gone = |listed: &[&str]| -> Vec<String> {
            let listed: Vec<RepoPath> = listed.iter().map(path).collect();
            moved_away(&repo.gix(), &listed).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(gone(&["new"]), ["a", "b"]);
        assert_eq!(gone(&["new", "a", "b"]), Vec::<String>::new());
        assert_eq!(gone(&["kept"]), Vec::<String>::new());
        assert_eq!(gone(&["not there"]), Vec::<String>::new());
        let listed = ["a", "b", "kept", "new", "not there", "no/dir"].map(path);
        assert_eq!(not_there(&repo.gix(), &listed).unwrap(), ["not there", "no/dir"].map(path));
    }

    #[test]
    fn case_55_what_is_staged_is_told_when_the_file_is_another() {
        let repo = Repo::new();
        for name in ["same", "hunk", "back"] {
            repo.write(name, b"1\n");
        }
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "1"]);
        for name in ["same", "hunk", "back", "new"] {
            repo.write(name, b"2\n");
        }
        repo.git(&["add", "-A"]);
        repo.write("same", b"2\n");
        repo.write("hunk", b"2\n3\n");
        repo.write("back", b"1\n");
        std::fs::remove_file(repo.path("new")).unwrap();
        let listed = ["same", "hunk", "back", "new", "nosuch"].map(path);
        let found = staged_otherwise(&repo.gix(), &repo.program(), &listed).unwrap();
        let names: Vec<String> = found.iter().map(|(p, _)| p.to_string()).collect();
        assert_eq!(names, ["hunk", "back", "new"]);
        assert_eq!(found[0].1, repo.oid(":hunk"));
    }
}

//! Scopes: what may differ from the commit a session started from, and what differs beside it.
//!
//! Contract: whoever writes the worktree is the one who is not trusted here (see [`super::on_disk`]). Three things are
//! held against the base, each by itself, so that nothing hides behind another one: what is committed, what is in the
//! index, what is on disk. Absent files outside of a sparse checkout are no difference.

use super::on_disk::{self, Files, Question};
use crate::store::{
    beneath::{LookError, OnDisk, Root, full},
    candidate::{CandidateError, FixCtx},
    gitlink,
    tree::Mode,
    worktree_state::{StateError, git_error, head_tree, oid, open_index, unlisted_changes},
};
use crate::{
    domain::{oid::Oid, path::RepoPath},
    limits,
    sys::files,
};
use gix::{bstr::ByteSlice, glob::pattern::Case, ignore::Search, index::entry::Flags};
use std::{collections::BTreeSet, ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

/// Patterns in gitignore syntax, understood: what they match may differ.
#[derive(Debug)]
pub struct Scope {
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    matching: Search,
    lets_in: bool,
}

impl Scope {
    /// Understands patterns.
    ///
    /// # Errors
    /// One of them says nothing, none of them lets anything in, or there are too many; in words.
    pub fn parse(patterns: &[String]) -> Result<Self, String> {
        let most = limits::SCOPE_PATTERNS;
        if patterns.len() > most {
            return Err(format!("{} patterns, at most {most} are accepted", patterns.len()));
        }
        let parsed =
            patterns.iter().map(|text| Pattern::parse(text)).collect::<Result<Vec<_>, _>>()?;
        if !parsed.iter().any(|pattern| pattern.lets_in) {
            return Err("no pattern lets anything in: name first what may differ".to_owned());
        }
        Ok(Self { patterns: parsed })
    }

    /// True when a path may differ; one of a repository within the worktree has a slash at its end. The last pattern
    /// that matches it or a directory above it decides: what is once shut out by a directory stays so, other than in an
    /// ignore file, where a pattern for files would let it in again.
    #[must_use]
    pub fn allows(&self, path: &[u8]) -> bool {
        let (path, is_dir) = path.strip_suffix(b"/").map_or((path, false), |dir| (dir, true));
        let decides = self.patterns.iter().rev().find(|pattern| pattern.matches(path, is_dir));
        decides.is_some_and(|pattern| pattern.lets_in)
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let mut said = gix::ignore::parse(text.as_bytes(), false);
        match (said.next(), said.next()) {
            (Some((pattern, ..)), None) if !text.contains('\n') => {
                let parsing = gix::ignore::search::Ignore { support_precious: false };
                let matching = Search::from_overrides([text], parsing);
                Ok(Self { matching, lets_in: !pattern.is_negative() })
            }
            _ => Err(format!("'{}' is no pattern", text.escape_debug())),
        }
    }

    /// True for the path and for everything below a directory that it matches.
    fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        let one = |path: &[u8], is_dir| {
            let found = self.matching.pattern_matching_relative_path(
                path.as_bstr(),
                Some(is_dir),
                Case::Sensitive,
            );
            found.is_some()
        };
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        one(path, is_dir) || slashes.into_iter().any(|at| one(&path[..at], true))
    }
}

/// The paths outside the scope that differ from the tree of the base, in order.
///
/// # Errors
/// It cannot be told.
pub fn outside(
    ctx: FixCtx<'_>,
    base: Oid,
    scope: &Scope,
) -> Result<BTreeSet<RepoPath>, CandidateError> {
    let repo = ctx.filters.repo;
    let files = on_disk::files_of(ctx.load, base)?;
    let top = &ctx.filters.git.worktree().top;
    let mut odd = BTreeSet::new();

    let head = match head_tree(repo)? {
        Some(tree) => on_disk::files_of(ctx.load, oid(&tree.id)?)?,
        None => Files::new(),
    };
    odd.extend(apart(&files, &head).filter(|path| !scope.allows(path)));
    let index = Index::read(ctx)?;
    odd.extend(apart(&files, &index.files).filter(|path| !scope.allows(path)));
    odd.extend(index.unsettled.into_iter().filter(|path| !scope.allows(path)));

    let root = Root::open(top).map_err(|source| StateError::Io { path: top.clone(), source })?;
    let links = files.iter().filter(|(_, (mode, _))| *mode == Mode::Submodule);
    for (path, (_, id)) in links {
        let whole = [path.as_slice(), b"/"].concat();
        let (skipped, at) = (index.skipped.contains(path), on_disk::repo_path(path)?);
        if !scope.allows(&whole) && link_differs(ctx, &root, (&at, *id), skipped)? {
            odd.insert(whole);
        }
    }
    let is_apart = |path: &[u8]| {
        let is_link = files.get(path).is_some_and(|(mode, _)| *mode == Mode::Submodule);
        is_link || (index.skipped.contains(path) && is_absent(top, path))
    };
    let covers = |path: &[u8]| !scope.allows(path);
    let asked = Question { covers: &covers, apart: Some(&is_apart) };
    let mut found = on_disk::differing(ctx, (base, &files), &asked)?;
    for path in odd {
        found.insert(on_disk::repo_path(path.strip_suffix(b"/").unwrap_or(&path))?);
    }
    Ok(found)
}

/// What two lists of files do not have in common; with a slash at the end where one of them links to a repository.
fn apart<'f>(one: &'f Files, other: &'f Files) -> impl Iterator<Item = Vec<u8>> + 'f {
    let differs = |(path, held): &(&Vec<u8>, &(Mode, Oid)), in_other: &Files| {
        in_other.get(*path) != Some(*held)
    };
    let here = one.iter().filter(move |entry| differs(entry, other));
    let there = other.iter().filter(move |(path, _)| !one.contains_key(*path));
    here.chain(there).map(|(path, (mode, _))| {
        let is_link = |files: &Files| matches!(files.get(path), Some((Mode::Submodule, _)));
        let slash: &[u8] = if *mode == Mode::Submodule || is_link(other) { b"/" } else { b"" };
        [path.as_slice(), slash].concat()
    })
}

/// True when nothing at all is there.
fn is_absent(top: &Path, path: &[u8]) -> bool {
    let full = top.join(OsStr::from_bytes(path));
    // What cannot be looked at is held against the base, and told there.
    files::is_there(&full).is_ok_and(|there| !there)
}

/// The index as a list of files.
#[derive(Default)]
struct Index {
    files: Files,
    /// In conflict, or announced without content.
    unsettled: BTreeSet<Vec<u8>>,
    /// Outside of a sparse checkout.
    skipped: BTreeSet<Vec<u8>>,
}

impl Index {
    fn read(ctx: FixCtx<'_>) -> Result<Self, CandidateError> {
        let mut all = Self::default();
        let Some(index) = open_index(ctx.filters.repo)? else { return Ok(all) };
        for entry in index.entries() {
            let (path, id) = (entry.path(&index).to_vec(), oid(&entry.id)?);
            let bits = format!("{:o}", entry.mode.bits());
            let unknown = || git_error("the index")(format!("mode {bits} is unknown"));
            let mode = Mode::parse(bits.as_bytes()).ok_or_else(unknown)?;
            if entry.stage_raw() != 0 || entry.flags.contains(Flags::INTENT_TO_ADD) {
                all.unsettled.insert(path);
            } else if mode == Mode::Tree {
                // A sparse index keeps whole directories as `dir/`.
                for (below, held) in on_disk::files_of(ctx.load, id)? {
                    let path = [path.as_slice(), &below].concat();
                    all.skipped.insert(path.clone());
                    all.files.insert(path, held);
                }
            } else {
                if entry.flags.contains(Flags::SKIP_WORKTREE) {
                    all.skipped.insert(path.clone());
                }
                all.files.insert(path, (mode, id));
            }
        }
        Ok(all)
    }
}

/// Whether what is on disk for a submodule is another commit than this one, or that commit with changes.
fn link_differs(
    ctx: FixCtx<'_>,
    root: &Root,
    (path, id): (&RepoPath, Oid),
    skipped: bool,
) -> Result<bool, CandidateError> {
    let dir = full(root.top(), path);
    match root.look(path) {
        Ok(OnDisk::Absent) => return Ok(!skipped),
        Ok(OnDisk::Directory { repository: true }) => {}
        // As a clone leaves it, or with files that nobody looks after.
        Ok(OnDisk::Directory { repository: false }) => {
            return Ok(!files::names(&dir).map_err(StateError::from)?.is_empty());
        }
        Ok(OnDisk::File { .. } | OnDisk::Symlink { .. } | OnDisk::Special)
        | Err(LookError::ThroughSymlink { .. } | LookError::InRepository { .. }) => {
            return Ok(true);
        }
        Err(e @ (LookError::TooLarge { .. } | LookError::Io { .. })) => return Err(e.into()),
    }
    if gitlink::commit_of(ctx.filters.repo, &dir)? != Ok(id) {
        return Ok(true);
    }
    let inner = gix::open_opts(&dir, gix::open::Options::isolated());
    let inner = inner.map_err(|e| git_error("a submodule")(e.to_string()))?;
    let changes = unlisted_changes(&inner, &[])?;
    Ok(changes.tracked + changes.untracked > 0)
}

#[cfg(test)]
mod tests;

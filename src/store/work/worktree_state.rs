//! What a worktree is in the middle of, read without running any program.
//!
//! Contract: reads only. A probe that fails is an error, never "nothing in progress" or "clean".
//! Contents of working files are not looked at, with the one exception named at
//! [`unlisted_changes`]; nested repositories and submodules are not entered.

mod beside;
mod unlisted;

pub use beside::{moved_away, not_there, staged_otherwise};
pub(in crate::store) use unlisted::require_rules_files;
pub use unlisted::{Unlisted, unlisted_changes, unlisted_paths};

use crate::store::{
    StoreError,
    hooks::commit_hooks,
    object::{Kind, hash, hash_of},
    refs::{RefReader, Stored, head_name, head_name_of},
    tree::{self, Entry, Mode},
};
use crate::{
    code::Code,
    domain::{
        candidate::is_head,
        oid::{HashKind, Oid},
    },
    limits,
    sys::files::{self, FileError},
};
use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

pub use crate::store::location::Worktree;

/// All worktrees of the repository, the main one first if there is one; also those whose directory is gone.
///
/// # Errors
/// git's record of them cannot be read, or names one that is not UTF-8.
pub fn all_worktrees(repo: &gix::Repository) -> Result<Vec<Worktree>, StateError> {
    let bad = git_error("the list of worktrees");
    let main = repo.main_repo().map_err(|e| bad(e.to_string()))?;
    let common = files::real(main.git_dir())?;
    let mut all = Vec::new();
    if let Some(top) = main.workdir() {
        let top = files::real(top)?;
        all.push(Worktree { id: ".".to_owned(), top, git_dir: common.clone() });
    }
    let dir = common.join("worktrees");
    for name in files::names(&dir)? {
        let git_dir = dir.join(name);
        // Without it git sees no worktree either.
        let Some(link) = read_optional(&git_dir.join("gitdir"))? else { continue };
        let name = git_dir.file_name().and_then(|n| n.to_str());
        let id = name.ok_or_else(|| bad(format!("{} is not UTF-8", git_dir.display())))?;
        let dot_git = git_dir.join(OsStr::from_bytes(link.trim_ascii_end()));
        let top = dot_git.parent().unwrap_or(&dot_git).to_owned();
        let top = files::real(&top).unwrap_or(top);
        all.push(Worktree { id: id.to_owned(), top, git_dir });
    }
    Ok(all)
}

/// What `HEAD` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// A branch with a commit.
    Branch {
        /// Full name of the ref.
        name: String,
        /// Its tip.
        tip: Oid,
    },
    /// A branch without a commit.
    Unborn {
        /// Full name of the ref.
        name: String,
    },
    /// A commit, no branch.
    Detached {
        /// The commit.
        at: Oid,
    },
}

/// An operation of git that waits to be finished or aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `git merge`.
    Merge,
    /// `git rebase` or `git am`.
    Rebase,
    /// `git cherry-pick`.
    CherryPick,
    /// `git revert`.
    Revert,
    /// `git bisect`.
    Bisect,
    /// Conflicts in the index, whatever left them there (`git stash pop` names no operation).
    Conflict,
}

impl Operation {
    /// The code that refuses it.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Self::Merge => Code::MergeInProgress,
            Self::Rebase => Code::RebaseInProgress,
            Self::CherryPick => Code::CherryPickInProgress,
            Self::Revert => Code::RevertInProgress,
            Self::Bisect => Code::BisectInProgress,
            Self::Conflict => Code::UnmergedIndex,
        }
    }
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Merge => "a merge is in progress",
            Self::Rebase => "a rebase is in progress",
            Self::CherryPick => "a cherry-pick is in progress",
            Self::Revert => "a revert is in progress",
            Self::Bisect => "a bisect is in progress",
            Self::Conflict => "the index holds conflicts",
        })
    }
}

/// A probe that could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// git's files could not be understood.
    #[error("cannot read {what}: {why}")]
    Git {
        /// What was read.
        what: &'static str,
        /// The library's words.
        why: String,
    },
    /// A ref could not be read.
    #[error("cannot read {what}: {source}")]
    Ref {
        /// Which one.
        what: &'static str,
        /// Why not.
        source: Box<StoreError>,
    },
    /// A configuration value is not of its type.
    #[error("the value of {key} cannot be understood: {why}")]
    Setting {
        /// Which one.
        key: &'static str,
        /// The library's words.
        why: String,
    },
}

impl StateError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Io { source, .. } => files::code_of(source),
            Self::Git { .. } => Code::StoreUnusable,
            Self::Ref { source, .. } => source.code(),
            Self::Setting { .. } => Code::BadSetting,
        }
    }
}

fn ref_error(what: &'static str) -> impl Fn(StoreError) -> StateError {
    move |source| StateError::Ref { what, source: Box::new(source) }
}

pub(in crate::store) fn git_error(what: &'static str) -> impl Fn(String) -> StateError {
    move |why| StateError::Git { what, why }
}

impl From<FileError> for StateError {
    fn from(error: FileError) -> Self {
        Self::Io { path: error.path, source: error.source }
    }
}

pub(in crate::store) fn oid(id: &gix::hash::oid) -> Result<Oid, StateError> {
    Oid::from_bytes(id.as_bytes()).map_err(|e| git_error("an object id")(e.to_string()))
}

/// True if something is at `path`, be it a dangling link.
pub(in crate::store) fn exists(path: &Path) -> Result<bool, StateError> {
    Ok(files::is_there(path)?)
}

/// Reads `HEAD` of the worktree `repo` is opened on. A branch is named as the ref that a commit would move: where a
/// symbolic ref is checked out, that is the one it leads to.
///
/// # Errors
/// `HEAD` cannot be read, or names a branch whose name is not UTF-8.
pub fn head(repo: &gix::Repository) -> Result<Head, StateError> {
    let bad = git_error("HEAD");
    let told = ref_error("HEAD");
    let refs = RefReader::of(repo).map_err(&told)?;
    let head = head_name(repo).map_err(&told)?;
    match refs.stored(&head).map_err(&told)? {
        Some(Stored::Symbolic(name)) => {
            let name = refs.leads_to(&head).map_err(&told)?.unwrap_or(name);
            Ok(match refs.read(&head).map_err(&told)? {
                Some(tip) => Head::Branch { name, tip },
                None => Head::Unborn { name },
            })
        }
        Some(Stored::Id(at)) => Ok(Head::Detached { at }),
        None => Err(bad("it is missing".to_owned())),
    }
}

/// The tree of the commit that `HEAD` is at; none on an unborn branch.
///
/// # Errors
/// `HEAD` or its commit cannot be read.
pub(in crate::store) fn head_tree(
    repo: &gix::Repository,
) -> Result<Option<gix::Tree<'_>>, StateError> {
    let bad = git_error("the tree of HEAD");
    let at = match head(repo)? {
        Head::Unborn { .. } => return Ok(None),
        Head::Branch { tip, .. } => tip,
        Head::Detached { at } => at,
    };
    let id = gix::ObjectId::try_from(at.as_bytes()).map_err(|e| bad(e.to_string()))?;
    let commit = repo.find_commit(id).map_err(|e| bad(e.to_string()))?;
    commit.tree().map(Some).map_err(|e| bad(e.to_string()))
}

/// The tip of a branch, or of a `HEAD` that is on none: see [`RefReader::tip`].
///
/// # Errors
/// The ref cannot be read.
pub fn branch_tip(repo: &gix::Repository, branch: &str) -> Result<Option<Oid>, StateError> {
    let bad = ref_error("a branch");
    RefReader::of(repo).and_then(|refs| refs.tip(branch)).map_err(bad)
}

/// The operation in progress in the worktree with this git directory. Never [`Operation::Conflict`]: that is
/// [`is_unmerged`]'s to say.
///
/// # Errors
/// The git directory or its refs cannot be read.
pub fn operation_in_progress(
    repo: &gix::Repository,
    git_dir: &Path,
) -> Result<Option<Operation>, StateError> {
    // Always files, whatever keeps the refs; `MERGE_HEAD` may hold several ids and is none of them.
    let marks = [
        ("rebase-merge", Operation::Rebase),
        ("rebase-apply", Operation::Rebase),
        ("MERGE_HEAD", Operation::Merge),
        ("BISECT_LOG", Operation::Bisect),
    ];
    for (name, operation) in marks {
        if exists(&git_dir.join(name))? {
            return Ok(Some(operation));
        }
    }
    let refs = [("CHERRY_PICK_HEAD", Operation::CherryPick), ("REVERT_HEAD", Operation::Revert)];
    for (name, operation) in refs {
        if has_ref(repo, git_dir, name)? {
            return Ok(Some(operation));
        }
    }
    // Between two picks of a series only the to-do list is left.
    Ok(match read_optional(&git_dir.join("sequencer/todo"))? {
        Some(todo) if todo.starts_with(b"revert") => Some(Operation::Revert),
        Some(_) => Some(Operation::CherryPick),
        None => None,
    })
}

/// True if the worktree with this git directory has such a ref of its own, be it a broken one.
fn has_ref(repo: &gix::Repository, git_dir: &Path, name: &str) -> Result<bool, StateError> {
    let bad = ref_error("the refs of a worktree");
    let head = head_name_of(git_dir, repo.common_dir()).map_err(&bad)?;
    let place = head.strip_suffix("HEAD").unwrap_or(&head);
    let found = RefReader::of(repo).and_then(|refs| refs.stored(&format!("{place}{name}")));
    match found {
        Ok(found) => Ok(found.is_some()),
        Err(StoreError::BrokenRef { .. }) => Ok(true),
        Err(e) => Err(bad(e)),
    }
}

/// True if the worktree `repo` is opened on is where this branch is checked out, be it under the name of a symbolic ref
/// that leads to it, or where this `HEAD` is on none.
///
/// # Errors
/// `HEAD` cannot be read.
pub fn is_on(repo: &gix::Repository, branch: &str) -> Result<bool, StateError> {
    has_branch(repo, repo.git_dir(), branch)
}

/// As [`is_on`], for the worktree with this git directory.
///
/// # Errors
/// `HEAD` cannot be read.
pub(in crate::store) fn has_branch(
    repo: &gix::Repository,
    git_dir: &Path,
    branch: &str,
) -> Result<bool, StateError> {
    let bad = ref_error("HEAD of a worktree");
    let name = head_name_of(git_dir, repo.common_dir()).map_err(&bad)?;
    let refs = RefReader::of(repo).map_err(&bad)?;
    match refs.stored(&name).map_err(&bad)? {
        Some(Stored::Symbolic(_)) if !is_head(branch) => is_same_branch(repo, &name, branch),
        Some(Stored::Id(_)) => Ok(name == branch),
        Some(Stored::Symbolic(_)) | None => Ok(false),
    }
}

/// True if whatever moves one of these refs moves the other.
pub(in crate::store) fn is_same_branch(
    repo: &gix::Repository,
    one: &str,
    other: &str,
) -> Result<bool, StateError> {
    if one == other {
        return Ok(true);
    }
    let bad = ref_error("a branch");
    let refs = RefReader::of(repo).map_err(&bad)?;
    let end = refs.leads_to(one).map_err(&bad)?;
    Ok(end.is_some() && end == refs.leads_to(other).map_err(&bad)?)
}

pub(in crate::store) fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    Ok(files::read_optional(path, limits::SETTINGS_FILE_BYTES)?)
}

/// The worktree's index; none when it has none yet.
pub(in crate::store) fn open_index(
    repo: &gix::Repository,
) -> Result<Option<gix::index::File>, StateError> {
    open_index_at(&repo.index_path(), repo.object_hash())
}

pub(in crate::store) fn open_index_at(
    path: &Path,
    object_hash: gix::hash::Kind,
) -> Result<Option<gix::index::File>, StateError> {
    if !exists(path)? {
        return Ok(None);
    }
    let options = gix::index::decode::Options::default();
    gix::index::File::at(path, object_hash, false, options)
        .map(Some)
        .map_err(|e| git_error("the index")(e.to_string()))
}

/// True when the index holds a conflict.
///
/// # Errors
/// The index cannot be read.
pub fn is_unmerged(repo: &gix::Repository) -> Result<bool, StateError> {
    Ok(open_index(repo)?.is_some_and(|index| is_conflicted(&index)))
}

pub(in crate::store) fn is_conflicted(index: &gix::index::File) -> bool {
    index.entries().iter().any(|e| e.stage_raw() != 0)
}

/// What keeps `allow --commit` from committing in this repository: it runs no hooks and signs nothing. All reasons at
/// once, each with the name of what was found.
///
/// # Errors
/// A setting or the hooks directory cannot be read.
pub fn commit_obstacles(repo: &gix::Repository) -> Result<Vec<(Code, String)>, StateError> {
    let hooks = commit_hooks(repo)?;
    let mut found: Vec<_> =
        hooks.into_iter().map(|hook| (Code::CommitHooksUnsupported, hook.at)).collect();
    if wants_signing(repo)? {
        found.push((Code::CommitSigningUnsupported, "commit.gpgSign".to_owned()));
    }
    Ok(found)
}

/// True when commits made here are to be signed.
///
/// # Errors
/// The setting is no boolean.
pub fn wants_signing(repo: &gix::Repository) -> Result<bool, StateError> {
    let bad = |why: String| StateError::Setting { key: "commit.gpgSign", why };
    let config = repo.config_snapshot();
    Ok(config.try_boolean("commit.gpgSign").map_err(|e| bad(e.to_string()))?.unwrap_or(false))
}

/// The tree the index would make, hashed in memory and written nowhere; none when it is unmerged.
///
/// # Errors
/// The index cannot be read or holds a mode git does not know.
pub fn index_tree(repo: &gix::Repository) -> Result<Option<Oid>, StateError> {
    let Some(index) = open_index(repo)? else {
        return tree_of(hash_of(repo), &[]).map(Some);
    };
    if is_conflicted(&index) {
        return Ok(None);
    }
    let mut lines = Vec::new();
    for entry in index.entries() {
        // What `git add -N` announced has no content yet and is in no tree.
        if entry.flags.contains(gix::index::entry::Flags::INTENT_TO_ADD) {
            continue;
        }
        let path = entry.path(&index).to_vec();
        let bits = format!("{:o}", entry.mode.bits());
        let mode = Mode::parse(bits.as_bytes())
            .ok_or_else(|| git_error("the index")(format!("mode {bits} is unknown")))?;
        lines.push((path, mode, oid(&entry.id)?));
    }
    let lines: Vec<Line<'_>> = lines.iter().map(|(p, m, i)| (p.as_slice(), *m, *i)).collect();
    tree_of(hash_of(repo), &lines).map(Some)
}

type Line<'a> = (&'a [u8], Mode, Oid);

/// `lines` are in index order, in which everything below one directory stands together.
fn tree_of(of: HashKind, lines: &[Line<'_>]) -> Result<Oid, StateError> {
    let mut entries = Vec::new();
    let mut rest = lines;
    while let Some((path, mode, id)) = rest.first() {
        let slash = path.iter().position(|b| *b == b'/');
        let Some(at) = slash else {
            entries.push(Entry { mode: *mode, name: path.to_vec(), id: *id });
            rest = &rest[1..];
            continue;
        };
        let dir = &path[..=at];
        let count = rest.iter().take_while(|(p, _, _)| p.starts_with(dir)).count();
        let (inside, after) = rest.split_at(count);
        rest = after;
        // A sparse index keeps whole directories as `dir/`.
        let id = match inside {
            [(whole, Mode::Tree, id)] if *whole == dir => *id,
            _ => {
                let below: Vec<Line<'_>> =
                    inside.iter().map(|(p, m, i)| (&p[at + 1..], *m, *i)).collect();
                tree_of(of, &below)?
            }
        };
        entries.push(Entry { mode: Mode::Tree, name: path[..at].to_vec(), id });
    }
    let tree = hash(of, Kind::Tree, &tree::serialize(&entries));
    tree.map_err(|e| git_error("the index")(e.to_string()))
}

/// A boolean setting; a value that is none is an error, not the default.
pub(in crate::store) fn setting(
    repo: &gix::Repository,
    key: &'static str,
    default: bool,
) -> Result<bool, StateError> {
    let config = repo.config_snapshot();
    let found = config.try_boolean(key);
    let found = found.map_err(|e| StateError::Setting { key, why: e.to_string() })?;
    Ok(found.unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::Repo;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn head_is_a_branch_unborn_or_detached() {
        let repo = Repo::new();
        let name = "refs/heads/main".to_owned();
        assert_eq!(head(&repo.gix()).unwrap(), Head::Unborn { name: name.clone() });
        let tip = repo.commit_file("a", b"1");
        assert_eq!(head(&repo.gix()).unwrap(), Head::Branch { name, tip });
        assert_eq!(branch_tip(&repo.gix(), "refs/heads/main").unwrap(), Some(tip));
        assert_eq!(branch_tip(&repo.gix(), "refs/heads/none").unwrap(), None);
        repo.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/main"]);
        repo.git(&["symbolic-ref", "HEAD", "refs/heads/alias"]);
        let name = "refs/heads/main".to_owned();
        assert_eq!(head(&repo.gix()).unwrap(), Head::Branch { name, tip });
        for (branch, is_there) in [("main", true), ("alias", true), ("none", false)] {
            let branch = format!("refs/heads/{branch}");
            assert_eq!(is_on(&repo.gix(), &branch).unwrap(), is_there, "{branch}");
        }
        assert!(!is_on(&repo.gix(), "main-worktree/HEAD").unwrap());
        repo.git(&["checkout", "-q", "--detach"]);
        assert_eq!(head(&repo.gix()).unwrap(), Head::Detached { at: tip });
        std::fs::write(repo.head_record(), "garbage").unwrap();
        assert!(
            gix::open_opts(repo.top(), gix::open::Options::isolated())
                .map_or(true, |r| head(&r).is_err())
        );
    }

    #[test]
    fn worktrees_are_listed_from_anywhere_even_when_their_directory_is_gone() {
        let repo = Repo::new();
        repo.commit_file("a", b"1");
        let linked = repo.beside("linked");
        repo.git(&["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
        let git_dir = repo.path(".git/worktrees/linked");
        let second = Worktree { id: "linked".to_owned(), top: linked.clone(), git_dir };
        let expected = vec![repo.worktree(), second];
        let from_linked = gix::open_opts(&linked, gix::open::Options::isolated()).unwrap();
        assert_eq!(all_worktrees(&from_linked).unwrap(), expected);
        std::fs::remove_dir_all(&linked).unwrap();
        assert_eq!(all_worktrees(&repo.gix()).unwrap(), expected);
    }

    #[test]
    fn operations_made_by_git_are_seen() {
        let repo = Repo::new();
        let base = repo.commit_file("a", b"1").to_string();
        repo.git(&["switch", "-q", "-c", "side"]);
        repo.commit_file("a", b"2");
        repo.git(&["switch", "-q", "main"]);
        repo.commit_file("a", b"3");
        let git_dir = repo.path(".git");
        let none = |why: &str| {
            assert_eq!(operation_in_progress(&repo.gix(), &git_dir).unwrap(), None, "{why}");
            assert!(!is_unmerged(&repo.gix()).unwrap(), "{why}");
        };
        none("fresh");
        for (start, abort, expected) in [
            ("merge side", "merge --abort", Operation::Merge),
            ("cherry-pick side", "cherry-pick --abort", Operation::CherryPick),
            ("rebase side", "rebase --abort", Operation::Rebase),
            ("revert side", "revert --abort", Operation::Revert),
        ] {
            repo.try_git(&start.split(' ').collect::<Vec<_>>());
            assert_eq!(operation_in_progress(&repo.gix(), &git_dir).unwrap(), Some(expected));
            assert!(is_unmerged(&repo.gix()).unwrap());
            assert_eq!(index_tree(&repo.gix()).unwrap(), None);
            repo.git(&abort.split(' ').collect::<Vec<_>>());
            none(start);
        }
        repo.git(&["bisect", "start", "HEAD", &base]);
        assert_eq!(operation_in_progress(&repo.gix(), &git_dir).unwrap(), Some(Operation::Bisect));
    }

    #[test]
    fn hooks_and_signing_are_obstacles_only_when_effective() {
        let repo = Repo::new();
        let codes = |repo: &Repo| -> Vec<&'static str> {
            commit_obstacles(&repo.gix()).unwrap().iter().map(|(c, _)| c.as_str()).collect()
        };
        repo.write(".git/hooks/pre-commit", b"#!/bin/sh\n");
        repo.write(".git/hooks/post-commit", b"#!/bin/sh\n");
        let executable = |name: &str| {
            std::fs::set_permissions(repo.path(name), PermissionsExt::from_mode(0o755)).unwrap();
        };
        executable(".git/hooks/post-commit");
        assert_eq!(codes(&repo), Vec::<&str>::new());
        executable(".git/hooks/pre-commit");
        assert_eq!(codes(&repo), ["commit-hooks-unsupported"]);
        repo.write("husky/commit-msg", b"#!/bin/sh\n");
        executable("husky/commit-msg");
        repo.git(&["config", "core.hooksPath", "husky"]);
        let found = commit_obstacles(&repo.gix()).unwrap();
        assert!(found.len() == 1 && found[0].1.ends_with("husky/commit-msg"), "{found:?}");
        repo.git(&["config", "core.hooksPath", "none"]);
        repo.git(&["config", "commit.gpgSign", "yes"]);
        assert_eq!(codes(&repo), ["commit-signing-unsupported"]);
        repo.git(&["config", "hook.lint.event", "pre-commit"]);
        assert_eq!(codes(&repo), ["commit-hooks-unsupported", "commit-signing-unsupported"]);
        repo.git(&["config", "commit.gpgSign", "perhaps"]);
        assert_eq!(commit_obstacles(&repo.gix()).unwrap_err().code(), Code::BadSetting);
    }

    #[test]
    fn the_index_tree_is_that_of_write_tree() {
        let repo = Repo::new();
        assert_eq!(
            index_tree(&repo.gix()).unwrap().unwrap(),
            hash(repo.hash(), Kind::Tree, b"").unwrap()
        );
        for name in ["a", "d/x", "d/e/y", "d.b", "d0", "link"] {
            repo.write(name, name.as_bytes());
        }
        repo.git(&["add", "-A"]);
        repo.write("announced", b"1");
        repo.git(&["add", "-N", "announced"]);
        let git = repo.git(&["write-tree"]);
        assert_eq!(index_tree(&repo.gix()).unwrap().unwrap().to_string(), git.trim());
        repo.git(&["commit", "-qm", "1"]);
        repo.git(&["sparse-checkout", "set", "--cone", "--sparse-index", "nowhere"]);
        let git = repo.git(&["write-tree"]);
        assert_eq!(index_tree(&repo.gix()).unwrap().unwrap().to_string(), git.trim());
    }
}

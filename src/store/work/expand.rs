//! A directory as what `git add` would add of it now.
//!
//! Contract: reads only. git itself is asked, so that its ignore rules, its idea of a change and its look at racy
//! times count; a repository inside is left out by name. The answer is a list of files, fixed when it is
//! given: what comes into the directory later is not in it.

use crate::store::{
    beneath::{OnDisk, Root},
    git::{Git, GitError},
    paths::{Allow, PathProblem},
    worktree_state::{StateError, git_error, head_tree, open_index},
};
use crate::{code::Code, domain::path::RepoPath};
use gix::bstr::ByteSlice;
use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

/// Directories named to one call of git: their names fit into any system's argument list.
const DIRECTORIES_PER_CALL: usize = 64;

/// Directories could not be expanded.
#[derive(Debug, thiserror::Error)]
pub enum ExpandError {
    /// git could not say what it would add.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The worktree or its index could not be read.
    #[error(transparent)]
    State(#[from] StateError),
}

impl ExpandError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Git(e) => e.code(),
            Self::State(e) => e.code(),
        }
    }
}

/// What directories stand for.
#[derive(Debug, Default)]
pub struct Expanded {
    /// Every file, in path order, and what was no directory as it was.
    pub listed: Vec<RepoPath>,
    /// Directories of which git would add nothing.
    pub empty: Vec<PathProblem>,
    /// What lies in them and is no part of it, in path order.
    pub left_out: Vec<LeftOut>,
}

/// A repository below a directory that is no part of what the directory stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// Where it is.
    pub path: RepoPath,
    /// git tracks it as a submodule.
    pub is_submodule: bool,
}

/// The paths with each directory replaced by the files of it that git would add. What is no directory stays as it is;
/// repositories inside are part of it only where submodules are let through.
///
/// # Errors
/// See [`ExpandError`].
pub fn expand(
    repo: &gix::Repository,
    git: &Git,
    paths: &[RepoPath],
    allow: Allow,
) -> Result<Expanded, ExpandError> {
    let top = &git.worktree().top;
    let root = Root::open(top).map_err(|source| StateError::Io { path: top.clone(), source })?;
    let (mut listed, mut directories) = (BTreeSet::new(), Vec::new());
    for path in paths {
        if is_directory(repo, &root, path)? {
            directories.push(path);
        } else {
            listed.insert(path.clone());
        }
    }
    let (mut found, mut left_out) = (BTreeSet::new(), BTreeSet::new());
    for some in directories.chunks(DIRECTORIES_PER_CALL) {
        for (path, repository) in would_add(git, some, allow)? {
            let is_submodule = is_gitlink(repo, &path)?;
            if !allow.submodules && (repository || is_submodule) {
                left_out.insert(LeftOut { path, is_submodule });
            } else {
                found.insert(path);
            }
        }
    }
    let nothing = |dir: &&&RepoPath| {
        let inside = |p: &RepoPath| p == **dir || is_below(p.as_bytes(), dir.as_bytes());
        !found.iter().any(inside)
    };
    let problem = |dir: &&RepoPath| {
        let inside = left_out.iter().find(|out| is_below(out.path.as_bytes(), dir.as_bytes()));
        let why = match inside {
            Some(LeftOut { path, .. }) => {
                format!(
                    "git would add nothing of it, and '{path}' in it is a repository of its own"
                )
            }
            None => "git would add nothing of it".to_owned(),
        };
        let path = dir.as_bytes().to_vec();
        PathProblem { path, code: Code::NothingToAdd, why, hint: None }
    };
    let empty = directories.iter().filter(nothing).map(problem).collect();
    listed.extend(found);
    let (listed, left_out) = (listed.into_iter().collect(), left_out.into_iter().collect());
    Ok(Expanded { listed, empty, left_out })
}

/// Tracked as a submodule, in the index or in `HEAD`.
fn is_gitlink(repo: &gix::Repository, path: &RepoPath) -> Result<bool, StateError> {
    if let Some(index) = open_index(repo)?
        && let Some(range) = index.entry_range(path.as_bytes().as_bstr())
    {
        let entry = index.entries().get(range.start);
        return Ok(entry.is_some_and(|e| e.mode == gix::index::entry::Mode::COMMIT));
    }
    let Some(tree) = head_tree(repo)? else { return Ok(false) };
    let found = tree.lookup_entry(path.names());
    let found = found.map_err(|e| git_error("the tree of HEAD")(e.to_string()))?;
    Ok(found.is_some_and(|e| e.mode().is_commit()))
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with(b"/"))
}

/// A directory now, or in the index or in `HEAD`. What cannot be looked at is not: whoever checks it says why.
fn is_directory(repo: &gix::Repository, root: &Root, path: &RepoPath) -> Result<bool, StateError> {
    match root.look(path) {
        Ok(OnDisk::Directory { repository }) => return Ok(!repository),
        Ok(OnDisk::Absent | OnDisk::File { .. } | OnDisk::Symlink { .. } | OnDisk::Special) => {}
        Err(_) => return Ok(false),
    }
    let prefix = [path.as_bytes(), b"/"].concat();
    if open_index(repo)?.is_some_and(|i| i.prefixed_entries(prefix.as_bstr()).is_some()) {
        return Ok(true);
    }
    let Some(tree) = head_tree(repo)? else { return Ok(false) };
    let found = tree.lookup_entry(path.names());
    let found = found.map_err(|e| git_error("the tree of HEAD")(e.to_string()))?;
    Ok(found.is_some_and(|e| e.mode().is_tree()))
}

/// What git would add, each with whether it is a repository that git does not track.
fn would_add(
    git: &Git,
    directories: &[&RepoPath],
    allow: Allow,
) -> Result<Vec<(RepoPath, bool)>, ExpandError> {
    let mut args: Vec<OsString> = [
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.untrackedCache=false",
        "status",
        "--porcelain",
        "-z",
        "--no-renames",
        "--untracked-files=all",
    ]
    .map(OsString::from)
    .to_vec();
    args.push("--ignore-submodules=dirty".into());
    args.extend(allow.ignored.then(|| "--ignored=traditional".into()));
    args.push("--".into());
    args.extend(directories.iter().map(|d| OsStr::from_bytes(d.as_bytes()).to_owned()));
    let said = git.call(&args, b"", &[])?;
    let lines = said.split(|b| *b == 0).filter(|line| !line.is_empty());
    let mut found = Vec::new();
    for line in lines {
        let (Some(state), Some(path)) = (line.get(..2), line.get(3..)) else {
            return Err(GitError::Garbled { argv: vec!["status".to_owned()] }.into());
        };
        // Added to the index and gone again: nothing is left of it to add.
        if state == b"AD" {
            continue;
        }
        let (path, repository) = path.strip_suffix(b"/").map_or((path, false), |p| (p, true));
        let path = RepoPath::new(path).map_err(|e| git_error("a path")(e.to_string()))?;
        found.push((path, repository));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Repo, path};
    use std::os::unix::fs::symlink;

    fn expanded(repo: &Repo, paths: &[&str], allow: Allow) -> (Vec<String>, Vec<String>) {
        let paths: Vec<RepoPath> = paths.iter().map(path).collect();
        let Expanded { listed, empty, .. } =
            expand(&repo.gix(), &repo.program(), &paths, allow).unwrap();
        let names = listed.iter().map(ToString::to_string).collect();
        (names, empty.iter().map(ToString::to_string).collect())
    }

    /// What `git add` of the directories changes in an index of its own that begins as the real one.
    fn as_git_adds(repo: &Repo, paths: &[&str], force: bool) -> Vec<String> {
        let index = repo.beside("copy");
        std::fs::copy(repo.path(".git/index"), &index).unwrap();
        let run = |args: &[&str]| repo.git_at(&repo.top(), args, &[("GIT_INDEX_FILE", &index)]);
        let mut args =
            vec!["--literal-pathspecs", "-c", "advice.addEmbeddedRepo=false", "add", "-A"];
        args.extend(force.then_some("-f"));
        args.push("--");
        args.extend(paths);
        run(&args);
        let names = run(&["diff", "--cached", "--no-renames", "--name-only", "-z", "HEAD"]);
        let names = names.split('\0').filter(|n| !n.is_empty());
        let below = |n: &&str| paths.iter().any(|p| n == p || n.starts_with(&format!("{p}/")));
        names.filter(below).map(|n| path(n).to_string()).collect()
    }

    fn busy() -> Repo {
        let repo = Repo::new();
        repo.write(".gitignore", b"*.o\nbuild/\n");
        for name in ["d/same", "d/changed", "d/gone", "d/unstaged", "d/e/deep", "d/forced.o", "x/y"]
        {
            repo.write(name, b"1");
        }
        for name in ["gone/a", "gone/b", "was/a", "d/*"] {
            repo.write(name, b"1");
        }
        repo.git(&["add", "-Af"]);
        repo.git(&["commit", "-qm", "1"]);
        repo.write("d/changed", b"2");
        repo.write("d/forced.o", b"2");
        std::fs::remove_file(repo.path("d/gone")).unwrap();
        repo.git(&["rm", "-q", "--cached", "d/unstaged"]);
        repo.write("d/unstaged", b"2");
        repo.write("d/new\nline", b"1");
        repo.write("d/staged", b"1");
        repo.git(&["add", "d/staged"]);
        repo.write("d/staged and gone", b"1");
        repo.git(&["add", "d/staged and gone"]);
        std::fs::remove_file(repo.path("d/staged and gone")).unwrap();
        repo.write("d/x.o", b"1");
        repo.write("d/build/out", b"1");
        repo.write("d/:(glob)*", b"1");
        repo.write("da/other", b"1");
        symlink("changed", repo.path("d/link")).unwrap();
        std::fs::remove_dir_all(repo.path("gone")).unwrap();
        std::fs::remove_dir_all(repo.path("was")).unwrap();
        repo.write("was", b"a file now");
        repo
    }

    #[test]
    fn a_directory_is_what_git_add_would_add_of_it() {
        let repo = busy();
        for paths in [&["d"][..], &["d/e"], &["gone"], &["was"], &["d", "gone", "was"]] {
            for ignored in [false, true] {
                let allow = Allow { ignored, submodules: false };
                let (listed, empty) = expanded(&repo, paths, allow);
                assert_eq!(listed, as_git_adds(&repo, paths, ignored), "{paths:?} {ignored}");
                assert_eq!(empty.is_empty(), !listed.is_empty(), "{paths:?} {empty:?}");
            }
        }
    }

    #[test]
    fn what_is_no_directory_stays_and_what_has_nothing_is_told() {
        let repo = busy();
        let (listed, empty) = expanded(&repo, &["d/same", "nosuch", "d/e", "x"], Allow::default());
        assert_eq!(listed, ["d/same", "nosuch"]);
        assert_eq!(
            empty,
            ["'d/e': git would add nothing of it", "'x': git would add nothing of it"]
        );
    }

    #[test]
    fn repositories_inside_are_left_out() {
        let repo = busy();
        repo.git(&["init", "-q", "d/inner"]);
        repo.write("d/inner/file", b"1");
        let (listed, _) = expanded(&repo, &["d"], Allow::default());
        assert!(!listed.iter().any(|p| p.starts_with("d/inner")), "{listed:?}");
        let dirs = [path("d")];
        let left = |repo: &Repo| {
            expand(&repo.gix(), &repo.program(), &dirs, Allow::default()).unwrap().left_out
        };
        let inner = |is_submodule| [LeftOut { path: path("d/inner"), is_submodule }];
        assert_eq!(left(&repo), inner(false));
        let (listed, _) = expanded(&repo, &["d"], Allow { ignored: false, submodules: true });
        assert!(listed.contains(&"d/inner".to_owned()), "{listed:?}");
        repo.git(&["-C", "d/inner", "commit", "-q", "--allow-empty", "-m", "1"]);
        repo.git(&["-c", "advice.addEmbeddedRepo=false", "add", "d/inner"]);
        assert_eq!(left(&repo), inner(true));
    }
}

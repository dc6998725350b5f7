//! Which listed paths can be committed: the checks that need a file system.
//!
//! Contract: reads only, follows no link, answers all problems of all paths at once. Run at attach and
//! again when a gate starts, because the agent may have changed the worktree in between. A path that
//! does not exist is fine here; the candidate says so when it matters.

use crate::store::{
    beneath::{Listing, LookError, OnDisk, Root, full, link_escapes},
    filters::directories,
    gitlink::{self, DECLARATIONS, Declared},
    object::{Kind, hash},
    worktree_state::{StateError, git_error, head_tree, open_index, require_rules_files},
};
use crate::{
    code::Code,
    domain::path::{BadPath, RepoPath, quoted},
    sys::files,
};
use gix::{
    bstr::{BStr, ByteSlice},
    index::entry::{Flags, Mode},
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

/// What is refused unless a person lets it through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allow {
    /// Untracked files that an ignore rule covers.
    pub ignored: bool,
    /// Submodules that `.gitmodules` declares.
    pub submodules: bool,
}

/// A path that cannot be committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}': {why}", quoted(path))]
pub struct PathProblem {
    /// As it was typed, or from the worktree's top.
    pub path: Vec<u8>,
    /// The stable code.
    pub code: Code,
    /// The sentence.
    pub why: String,
    /// What to do, where it is not what the code says.
    pub hint: Option<&'static str>,
}

impl PathProblem {
    /// A path refused for its characters alone, as it was typed.
    #[must_use]
    pub fn of(typed: &[u8], bad: BadPath) -> Self {
        let hint =
            (bad == BadPath::Top).then_some("name the files and directories in it that you mean");
        Self { path: typed.to_vec(), code: bad_path_code(bad), why: bad.to_string(), hint }
    }
}

/// The code of a path refused for its characters alone.
#[must_use]
pub fn bad_path_code(bad: BadPath) -> Code {
    match bad {
        BadPath::Empty => Code::PathEmpty,
        BadPath::Directory | BadPath::Top => Code::PathIsDirectory,
        BadPath::Outside => Code::PathOutside,
        BadPath::GitDir => Code::PathInGitDir,
        BadPath::Nul => Code::PathHasNul,
    }
}

/// Turns what was typed in `cwd` into a path of the worktree at `top` (canonical). Relative paths count
/// from `cwd`; absolute ones are accepted inside the worktree, also when they reach it through links.
/// Names below the top are resolved as text: links there are [`check`]'s to refuse.
///
/// # Errors
/// [`PathProblem`] with what was typed.
pub fn from_typed(typed: &OsStr, cwd: &Path, top: &Path) -> Result<RepoPath, PathProblem> {
    let bytes = typed.as_bytes();
    let resolved = if bytes.starts_with(b"/") {
        relative_to_top(bytes, top).ok_or(BadPath::Outside).and_then(|below| {
            if below.is_empty() { Err(BadPath::Top) } else { RepoPath::resolve(b"", &below) }
        })
    } else {
        match files::real(cwd) {
            Ok(cwd) => match cwd.strip_prefix(top) {
                Ok(prefix) => RepoPath::resolve(prefix.as_os_str().as_bytes(), bytes),
                Err(_) => Err(BadPath::Outside),
            },
            Err(_) => Err(BadPath::Outside),
        }
    };
    resolved.map_err(|bad| PathProblem::of(bytes, bad))
}

/// The part of an absolute path below `top`: the longest ancestor that really is `top` decides.
fn relative_to_top(typed: &[u8], top: &Path) -> Option<Vec<u8>> {
    let text = Path::new(OsStr::from_bytes(typed));
    if let Ok(below) = text.strip_prefix(top) {
        return Some(keep_slash(typed, below.as_os_str().as_bytes()));
    }
    let mut ancestors: Vec<&Path> = text.ancestors().collect();
    ancestors.reverse();
    let reached = ancestors.into_iter().find(|a| files::real(a).is_ok_and(|real| real == top))?;
    let below = text.strip_prefix(reached).ok()?;
    Some(keep_slash(typed, below.as_os_str().as_bytes()))
}

/// `Path` drops a trailing slash, which says that a directory is meant.
fn keep_slash(typed: &[u8], below: &[u8]) -> Vec<u8> {
    let slash = typed.ends_with(b"/") && !below.is_empty();
    [below, if slash { b"/" } else { b"" }].concat()
}

/// Checks all paths against the worktree `repo` is opened on.
///
/// # Errors
/// A probe failed; that is no statement about any path.
pub fn check(
    repo: &gix::Repository,
    paths: &[RepoPath],
    allow: Allow,
) -> Result<Vec<PathProblem>, StateError> {
    let top = repo.workdir().ok_or_else(|| git_error("the worktree")("there is none".into()))?;
    let io = |source| StateError::Io { path: top.to_owned(), source };
    let root = Root::open(top).map_err(io)?;
    for dir in directories(paths.iter()) {
        require_rules_files(&top.join(OsStr::from_bytes(&dir)))?;
    }
    let tracked = Tracked::load(repo)?;
    let listed: Listing<'_> = paths.iter().collect();
    let declared = if allow.submodules { declared(&root, &tracked, &listed)? } else { None };
    let judge = Judge { repo, root: &root, tracked: &tracked, listed: &listed, allow, declared };
    let mut problems = Vec::new();
    for path in paths {
        if let Some((code, why)) = judge.path(path)? {
            problems.push(PathProblem { path: path.as_bytes().to_vec(), code, why, hint: None });
        }
    }
    Ok(problems)
}

type Verdict = Option<(Code, String)>;

/// What all paths are judged by.
struct Judge<'a> {
    repo: &'a gix::Repository,
    root: &'a Root,
    tracked: &'a Tracked<'a>,
    listed: &'a Listing<'a>,
    allow: Allow,
    declared: Option<Declared>,
}

impl Judge<'_> {
    fn path(&self, path: &RepoPath) -> Result<Verdict, StateError> {
        let Self { root, tracked, .. } = self;
        if let Some(at) = tracked.submodule_above(path) {
            return Ok(Some((Code::PathInSubmodule, format!("'{at}' is a submodule"))));
        }
        let kind = tracked.kind(path)?;
        let found = match root.look_among((path, kind.is_some()), self.listed) {
            Ok(found) => found,
            Err(LookError::Io { path, source }) => {
                let path = Path::new(OsStr::from_bytes(path.as_bytes())).to_owned();
                return Err(StateError::Io { path, source });
            }
            Err(
                e @ (LookError::ThroughSymlink { .. }
                | LookError::InRepository { .. }
                | LookError::TooLarge { .. }),
            ) => {
                return Ok(Some((e.code(), e.to_string())));
            }
        };
        if let Some(verdict) = self.submodule(path, kind, &found)? {
            return Ok(verdict);
        }
        Ok(match found {
            OnDisk::Absent if tracked.is_skipped(path) => {
                refuse(Code::PathOutsideSparse, "it is outside the sparse checkout")
            }
            OnDisk::Absent => None,
            OnDisk::Directory { .. } if kind.is_none() => {
                refuse(Code::PathIsDirectory, "it is a directory: list the files")
            }
            // The tracked file is gone: that can be recorded.
            OnDisk::Directory { .. } => None,
            OnDisk::Special => refuse(Code::PathSpecialFile, "it is no file and no symbolic link"),
            OnDisk::Symlink { target }
                if link_escapes(root.top(), path, &target)
                    && !tracked.is_link_to(path, &target)? =>
            {
                refuse(Code::PathSymlinkEscapes, "it is a link that points out of the worktree")
            }
            OnDisk::File { .. } | OnDisk::Symlink { .. }
                if kind.is_none() && !self.allow.ignored =>
            {
                ignored(self.repo, tracked, path)?
            }
            OnDisk::File { .. } | OnDisk::Symlink { .. } => None,
        })
    }

    /// What is to be said of a submodule and of a repository inside; none when it is neither.
    fn submodule(
        &self,
        path: &RepoPath,
        kind: Option<Mode>,
        found: &OnDisk,
    ) -> Result<Option<Verdict>, StateError> {
        let tracked = kind == Some(Mode::COMMIT);
        let inside = matches!(found, OnDisk::Directory { repository: true });
        if !tracked && !inside {
            return Ok(None);
        }
        let refused = |why: &str| Ok(Some(refuse(Code::PathIsSubmodule, why)));
        let Some(declared) = &self.declared else {
            return refused(if tracked {
                "it is a submodule"
            } else {
                "it is a repository of its own"
            });
        };
        let dir = full(self.root.top(), path);
        match found {
            OnDisk::Directory { repository: true } if !declared.has(path) => {
                refused("it is an embedded repository, not a submodule that .gitmodules declares")
            }
            OnDisk::Directory { repository: true } => match gitlink::commit_of(self.repo, &dir)? {
                Ok(_) => Ok(Some(None)),
                Err(why) => refused(why),
            },
            OnDisk::Directory { repository: false } if !files::list(&dir)?.is_empty() => {
                refused("it is a submodule, and files are in place of its repository")
            }
            // Not checked out, or given up.
            OnDisk::Directory { .. } | OnDisk::Absent => Ok(Some(None)),
            OnDisk::File { .. } | OnDisk::Symlink { .. } | OnDisk::Special => Ok(None),
        }
    }
}

/// What `.gitmodules` will declare in the commit: a listed one as it is on disk, else that of `HEAD`.
fn declared(
    root: &Root,
    tracked: &Tracked<'_>,
    listed: &Listing<'_>,
) -> Result<Option<Declared>, StateError> {
    let bad = git_error("the declarations of submodules");
    let file = RepoPath::new(DECLARATIONS).map_err(|e| bad(e.to_string()))?;
    let text = if listed.contains(&file) {
        match root.look(&file) {
            Ok(OnDisk::File { .. }) => root.read(&file).map_err(|e| bad(e.to_string()))?,
            Ok(_) | Err(_) => Vec::new(),
        }
    } else {
        tracked.blob_at_head(&file)?.unwrap_or_default()
    };
    Declared::parse(&text).map(Some)
}

#[expect(clippy::unnecessary_wraps, reason = "one shape for all arms")]
fn refuse(code: Code, why: &str) -> Verdict {
    Some((code, why.to_owned()))
}

/// Names the rule that ignores an untracked path.
fn ignored(
    repo: &gix::Repository,
    tracked: &Tracked<'_>,
    path: &RepoPath,
) -> Result<Verdict, StateError> {
    use gix::worktree::stack::state::ignore::Source;
    let bad = git_error("the ignore rules");
    let source = Source::WorktreeThenIdMappingIfNotSkipped;
    let mut stack = repo.excludes(&tracked.index, None, source).map_err(|e| bad(e.to_string()))?;
    let relative: &BStr = path.as_bytes().as_bstr();
    let platform = stack.at_entry(relative, Some(Mode::FILE)).map_err(|e| bad(e.to_string()))?;
    if !platform.is_excluded() {
        return Ok(None);
    }
    let rule = platform.matching_exclude_pattern().map_or_else(String::new, |m| {
        let file = m.source.map_or_else(String::new, |s| format!("{}:", s.display()));
        format!(" by {file}{}: {}", m.sequence_number, m.pattern)
    });
    Ok(Some((Code::PathIgnored, format!("it is ignored{rule}"))))
}

/// What index and `HEAD` know.
struct Tracked<'r> {
    index: gix::index::File,
    head: Option<gix::Tree<'r>>,
}

impl<'r> Tracked<'r> {
    fn load(repo: &'r gix::Repository) -> Result<Self, StateError> {
        let empty = || {
            let state = gix::index::State::new(repo.object_hash());
            gix::index::File::from_state(state, repo.index_path())
        };
        Ok(Self { index: open_index(repo)?.unwrap_or_else(empty), head: head_tree(repo)? })
    }

    fn entry(&self, path: &[u8]) -> Option<&gix::index::Entry> {
        let range = self.index.entry_range(path.as_bstr())?;
        self.index.entries().get(range.start)
    }

    fn is_skipped(&self, path: &RepoPath) -> bool {
        // A sparse index keeps a whole directory as one entry, `dir/`.
        let within = |dir: Vec<u8>| self.entry(&dir).is_some_and(|e| e.mode.is_sparse());
        self.entry(path.as_bytes()).is_some_and(|e| e.flags.contains(Flags::SKIP_WORKTREE))
            || directories(std::iter::once(path)).into_iter().any(within)
    }

    /// The mode the path is tracked with, in the index or in `HEAD`.
    fn kind(&self, path: &RepoPath) -> Result<Option<Mode>, StateError> {
        if let Some(entry) = self.entry(path.as_bytes()) {
            return Ok(Some(entry.mode));
        }
        let found = self.at_head(path)?;
        Ok(found.map(|e| e.mode()).filter(|m| !m.is_tree()).map(Mode::from))
    }

    /// True if `HEAD` has this very link already.
    fn is_link_to(&self, path: &RepoPath, target: &[u8]) -> Result<bool, StateError> {
        let Some(found) = self.at_head(path)?.filter(|e| e.mode().is_link()) else {
            return Ok(false);
        };
        let id = crate::store::worktree_state::oid(&found.object_id())?;
        let blob = hash(id.hash(), Kind::Blob, target);
        Ok(blob.map_err(|e| git_error("a symbolic link")(e.to_string()))? == id)
    }

    fn at_head(&self, path: &RepoPath) -> Result<Option<gix::object::tree::Entry<'_>>, StateError> {
        let Some(tree) = &self.head else { return Ok(None) };
        let found = tree.lookup_entry(path.names());
        found.map_err(|e| git_error("the tree of HEAD")(e.to_string()))
    }

    /// A file of `HEAD`.
    fn blob_at_head(&self, path: &RepoPath) -> Result<Option<Vec<u8>>, StateError> {
        let Some(found) = self.at_head(path)?.filter(|e| e.mode().is_blob()) else {
            return Ok(None);
        };
        let blob = found.object().map_err(|e| git_error("a file of HEAD")(e.to_string()))?;
        Ok(Some(blob.detach().data))
    }

    fn submodule_above(&self, path: &RepoPath) -> Option<String> {
        let bytes = path.as_bytes();
        let slashes = bytes.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        slashes
            .map(|at| &bytes[..at])
            .find(|dir| self.entry(dir).is_some_and(|e| e.mode == Mode::COMMIT))
            .map(quoted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::Repo;
    use std::os::unix::fs::symlink;

    fn codes(repo: &Repo, paths: &[&str]) -> Vec<(String, &'static str)> {
        let paths: Vec<_> = paths.iter().map(|p| RepoPath::new(p.as_bytes()).unwrap()).collect();
        let problems = check(&repo.gix(), &paths, Allow::default()).unwrap();
        problems
            .into_iter()
            .map(|p| (String::from_utf8(p.path).unwrap(), p.code.as_str()))
            .collect()
    }

    #[test]
    fn all_problems_at_once_each_with_its_code() {
        let repo = Repo::new();
        repo.write(".gitignore", b"*.env\n!keep.env\nbuild/\n");
        repo.write("build/x", b"1");
        repo.write("tracked.env", b"1");
        repo.git(&["add", "-f", ".gitignore", "tracked.env"]);
        repo.git(&["commit", "-qm", "1"]);
        repo.write("p.env", b"2");
        repo.write("keep.env", b"2");
        repo.write("d/x", b"3");
        repo.git(&["init", "-q", "inner"]);
        symlink("d", repo.path("link")).unwrap();
        symlink("/etc/passwd", repo.path("leak")).unwrap();
        symlink("/etc/hosts", repo.path("old")).unwrap();
        repo.git(&["add", "old"]);
        repo.git(&["commit", "-qm", "2"]);
        rustix::fs::mkfifoat(rustix::fs::CWD, repo.path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        let found = codes(
            &repo,
            &[
                "p.env",
                "build/x",
                "leak",
                "old",
                "keep.env",
                "tracked.env",
                "d",
                "d/x",
                "link",
                "link/x",
                "inner",
                "inner/s",
                "pipe",
                "nosuch",
                "no.env",
            ],
        );
        let expected = [
            ("p.env", "path-ignored"),
            ("build/x", "path-ignored"),
            ("leak", "path-symlink-escapes"),
            ("d", "path-is-directory"),
            ("link/x", "path-through-symlink"),
            ("inner", "path-is-submodule"),
            ("inner/s", "path-in-submodule"),
            ("pipe", "path-special-file"),
        ];
        assert_eq!(found, expected.map(|(p, c)| (p.to_owned(), c)));
    }

    #[test]
    fn the_ignoring_rule_is_named() {
        let repo = Repo::new();
        repo.write(".gitignore", b"a\n*.env\n");
        repo.write("p.env", b"2");
        let listed = [RepoPath::new(b"p.env").unwrap()];
        let problems = check(&repo.gix(), &listed, Allow::default()).unwrap();
        let text = problems[0].to_string();
        assert!(text.starts_with("'p.env': it is ignored by "), "{text}");
        assert!(text.ends_with(".gitignore:2: *.env"), "{text}");
    }

    #[test]
    fn submodules_are_known_without_a_checkout() {
        let repo = Repo::new();
        let id = repo.commit_file("a", b"1").to_string();
        repo.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{id},sub")]);
        assert_eq!(
            codes(&repo, &["sub", "sub/x"]),
            [("sub".to_owned(), "path-is-submodule"), ("sub/x".to_owned(), "path-in-submodule")]
        );
    }

    #[test]
    fn what_is_ignored_is_let_through_when_a_person_says_so() {
        let repo = Repo::new();
        repo.write(".gitignore", b"*.env\n");
        repo.write("p.env", b"2");
        let listed = [RepoPath::new(b"p.env").unwrap()];
        let force = Allow { ignored: true, submodules: false };
        assert_eq!(check(&repo.gix(), &listed, force).unwrap(), []);
    }

    #[test]
    fn case_62_a_repository_inside_needs_a_declaration_in_the_commit_and_a_commit_of_its_own() {
        let repo = Repo::new();
        repo.commit_file("a", b"1");
        repo.git(&["init", "-q", "sub"]);
        let modules = "[submodule \"s\"]\n\tpath = sub\n\turl = ../s\n";
        let told = |listed: &[&str]| -> Vec<String> {
            let listed: Vec<_> =
                listed.iter().map(|p| RepoPath::new(p.as_bytes()).unwrap()).collect();
            let allow = Allow { ignored: false, submodules: true };
            let found = check(&repo.gix(), &listed, allow).unwrap();
            found.iter().map(ToString::to_string).collect()
        };
        let embedded =
            "'sub': it is an embedded repository, not a submodule that .gitmodules declares";
        assert_eq!(told(&["sub"]), [embedded]);
        repo.write(".gitmodules", modules.as_bytes());
        // On disk alone it is not in the commit.
        assert_eq!(told(&["sub"]), [embedded]);
        assert_eq!(told(&["sub", ".gitmodules"]), ["'sub': it has no commit yet"]);
        repo.git(&["-C", "sub", "commit", "-q", "--allow-empty", "-m", "s"]);
        assert_eq!(told(&["sub", ".gitmodules"]), Vec::<String>::new());
        repo.write("sub/s", b"1");
        assert_eq!(told(&["sub/s"]), ["'sub/s': 'sub/s': 'sub' is a repository of its own"]);
        repo.git(&["add", ".gitmodules"]);
        repo.git(&["commit", "-qm", "declared"]);
        assert_eq!(told(&["sub"]), Vec::<String>::new());
        assert_eq!(codes(&repo, &["sub"]), [("sub".to_owned(), "path-is-submodule")]);
    }

    #[test]
    fn a_directory_in_place_of_a_tracked_file_can_be_recorded() {
        let repo = Repo::new();
        repo.commit_file("a", b"1");
        std::fs::remove_file(repo.path("a")).unwrap();
        repo.write("a/b", b"2");
        assert_eq!(codes(&repo, &["a", "a/b"]), []);
    }

    #[test]
    fn files_left_out_by_a_sparse_checkout_are_not_taken_for_deleted() {
        let repo = Repo::new();
        repo.write("in/a", b"1");
        repo.commit_file("out/b", b"1");
        for index in ["--no-sparse-index", "--sparse-index"] {
            repo.git(&["sparse-checkout", "set", "--cone", index, "in"]);
            assert!(!repo.path("out/b").exists());
            let expected = [("out/b".to_owned(), "path-outside-sparse-checkout")];
            assert_eq!(codes(&repo, &["in/a", "out/b"]), expected, "{index}");
        }
    }

    #[test]
    fn typed_paths_count_from_the_current_directory_or_from_the_root() {
        let repo = Repo::new();
        repo.write("d/x", b"1");
        symlink(repo.top(), repo.beside("alias")).unwrap();
        let top = repo.top();
        let typed = |text: &str, cwd: &Path| {
            from_typed(OsStr::new(text), cwd, &top)
                .map(|p| p.to_string())
                .map_err(|p| p.code.as_str())
        };
        let cwd = top.join("d");
        assert_eq!(typed("x", &cwd), Ok("d/x".to_owned()));
        assert_eq!(typed("../:(glob)*", &cwd), Ok(":(glob)*".to_owned()));
        assert_eq!(typed("../../x", &cwd), Err("path-outside-worktree"));
        assert_eq!(typed(".", &top), Err("path-is-directory"));
        assert_eq!(typed("x/", &cwd), Err("path-is-directory"));
        assert_eq!(typed("", &cwd), Err("path-empty"));
        let absolute = |p: &Path| typed(p.to_str().unwrap(), &cwd);
        assert_eq!(absolute(&top.join("d/new")), Ok("d/new".to_owned()));
        assert_eq!(absolute(&repo.beside("alias").join("d/x")), Ok("d/x".to_owned()));
        assert_eq!(absolute(&top), Err("path-is-directory"));
        assert_eq!(absolute(&top.join("../x")), Err("path-outside-worktree"));
        assert_eq!(absolute(&repo.beside("other")), Err("path-outside-worktree"));
        assert_eq!(absolute(&top.join(".git/config")), Err("path-in-git-dir"));
    }
}

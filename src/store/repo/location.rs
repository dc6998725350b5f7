//! Which repository and worktree a directory belongs to, by git's rules.
//!
//! Contract: the environment is looked at once, here. `GIT_DIR`, `GIT_WORK_TREE`, `GIT_COMMON_DIR`,
//! `GIT_CEILING_DIRECTORIES` and `GIT_DISCOVERY_ACROSS_FILESYSTEM` count, relative ones against the current
//! directory; `GIT_INDEX_FILE` is ignored; `GIT_OBJECT_DIRECTORY`, `GIT_NAMESPACE` and a receive quarantine
//! are refused.
//! Every path handed out is absolute and real. Nothing is written.

use crate::store::names::AGENT_DIR;
use crate::{
    code::Code,
    limits,
    sys::{
        env::Env,
        files::{self, FileError, Unfit},
    },
};
use std::{
    ffi::OsStr,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// A worktree of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    /// `.` for the main one, else git's own id of it.
    pub id: String,
    /// Its top directory, a real path.
    pub top: PathBuf,
    /// Its private git directory, a real path.
    pub git_dir: PathBuf,
}

/// Where a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The git directory all worktrees share, a real path.
    pub common_dir: PathBuf,
    /// The worktree of the current directory; none in a bare repository or inside a git directory.
    pub worktree: Option<Worktree>,
    /// The current directory relative to the worktree's top, no trailing slash, empty at the top.
    pub prefix: Vec<u8>,
}

/// The repository cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is none.
    #[error("no git repository in {} or above", cwd.display())]
    NotARepository {
        /// Where the search began.
        cwd: PathBuf,
    },
    /// What should lead to it does not: a `.git` that is broken or gone. Above may be another one.
    #[error("{}: {why}", path.display())]
    Lost {
        /// The directory that has or had it.
        path: PathBuf,
        /// What is wrong there.
        why: &'static str,
    },
    /// It belongs to somebody else and no `safe.directory` names it.
    #[error("{} belongs to another user", path.display())]
    NotOwned {
        /// What is foreign.
        path: PathBuf,
    },
    /// It needs something this version cannot do.
    #[error("the repository uses {what}")]
    Unsupported {
        /// What it uses.
        what: String,
        /// The code of the refusal.
        code: Code,
    },
    /// A variable this program cannot honour is set.
    #[error("{name} is set")]
    Variable {
        /// Its name.
        name: &'static str,
        /// The code of the refusal.
        code: Code,
    },
    /// A file or directory cannot be looked at.
    #[error(transparent)]
    File(#[from] FileError),
    /// git's own files are not as they should be, or the library refused.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// What.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl OpenError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NotARepository { .. } | Self::Lost { .. } => Code::NotARepository,
            Self::NotOwned { .. } => Code::NotOwned,
            Self::Unsupported { code, .. } | Self::Variable { code, .. } => *code,
            Self::File(e) if e.is_read_only() => Code::ReadOnly,
            Self::File(e) => e.code(),
            Self::Malformed { .. } => Code::StoreUnusable,
        }
    }
}

/// A git directory and the directory above its `.git`, when it was found through one.
struct Found {
    git_dir: PathBuf,
    dot_git_in: Option<PathBuf>,
}

/// Finds the repository of the current directory.
///
/// # Errors
/// There is none, or the environment asks for something refused; see [`OpenError`].
pub fn discover(env: &Env) -> Result<Location, OpenError> {
    // A quarantine comes with an object directory of its own; it is what has to be said.
    refuse_variable(env, "GIT_QUARANTINE_PATH", Code::Quarantine)?;
    refuse_variable(env, "GIT_OBJECT_DIRECTORY", Code::ObjectDirectoryUnsupported)?;
    // Under a namespace git and we would mean different refs by the same name.
    refuse_variable(env, "GIT_NAMESPACE", Code::NamespaceUnsupported)?;
    let cwd = real(env.cwd())?;
    let named = |name| env.get(name).filter(|v| !v.is_empty()).map(|v| cwd.join(v));
    let found = match named("GIT_DIR") {
        Some(dir) => {
            let git_dir = through_gitfile(&dir)?
                .filter(|d| is_git_dir(d))
                .ok_or_else(|| OpenError::NotARepository { cwd: dir.clone() })?;
            Found { git_dir, dot_git_in: None }
        }
        None => search(&cwd, env)?.ok_or_else(|| OpenError::NotARepository { cwd: cwd.clone() })?,
    };
    let git_dir = real(&found.git_dir)?;
    let common_dir = match named("GIT_COMMON_DIR") {
        Some(dir) => real(&dir)?,
        None => common_of(&git_dir)?,
    };
    let mut location = Location { common_dir, worktree: None, prefix: Vec::new() };
    if let Some(above) = &found.dot_git_in {
        location.require_nothing_lost(&cwd, above)?;
        require_not_moved(&git_dir, above)?;
    }
    let top = match (named("GIT_WORK_TREE"), found.dot_git_in) {
        (Some(top), _) => Some(top),
        (None, dot_git_in) => {
            let from_env = named("GIT_DIR").is_some();
            location.top_of(&git_dir, dot_git_in.or_else(|| from_env.then(|| cwd.clone())))?
        }
    };
    if let Some(top) = top {
        let top = real(&top)?;
        if let Ok(below) = cwd.strip_prefix(&top) {
            location.prefix = below.as_os_str().as_bytes().to_vec();
        }
        location.worktree = Some(location.worktree_at(git_dir, top)?);
    }
    Ok(location)
}

impl Location {
    /// Our own directory; it need not be there.
    #[must_use]
    pub fn agent_dir(&self) -> PathBuf {
        self.common_dir.join(AGENT_DIR)
    }

    /// The main worktree, if the repository has one, and every linked one that exists.
    ///
    /// # Errors
    /// git's administrative files cannot be read.
    pub fn worktrees(&self) -> Result<Vec<Worktree>, OpenError> {
        let all = self.with_index()?;
        Ok(all.into_iter().filter_map(|(worktree, there)| there.then_some(worktree)).collect())
    }

    /// As [`Location::worktrees`], with those whose directory is not where git keeps it: moved by hand, say, or on a disk
    /// that is away. Their index is here, and goes with their branch all the same.
    ///
    /// # Errors
    /// As there.
    pub fn worktrees_with_index(&self) -> Result<Vec<Worktree>, OpenError> {
        Ok(self.with_index()?.into_iter().map(|(worktree, _)| worktree).collect())
    }

    /// Every worktree, and whether its directory is there.
    fn with_index(&self) -> Result<Vec<(Worktree, bool)>, OpenError> {
        let above = self.common_dir.parent().filter(|_| self.common_dir.ends_with(".git"));
        let own = self.worktree.as_ref().filter(|w| w.id == ".").map(|w| w.top.clone());
        let main = match own {
            Some(top) => Some(top),
            None => self.top_of(&self.common_dir, above.map(Path::to_owned))?,
        };
        let mut list = Vec::new();
        if let Some(top) = main
            && files::is_dir(&top)?
        {
            list.push((self.worktree_at(self.common_dir.clone(), real(&top)?)?, true));
        }
        let admin = self.common_dir.join("worktrees");
        for name in files::names(&admin)? {
            let git_dir = admin.join(name);
            // One that has no id here is refused where it is used; the others do not suffer by it.
            if git_dir.file_name().and_then(OsStr::to_str).is_none() {
                continue;
            }
            let Some(top) = kept_top(&git_dir)? else { continue };
            let there = is_checkout(&top)?;
            let top = if there { real(&top)? } else { top };
            list.push((self.worktree_at(git_dir, top)?, there));
        }
        Ok(list)
    }

    /// Refuses to take the repository above for one that is gone: between `cwd` and `above`, where the search ended,
    /// lies no directory that git keeps as a worktree of this repository.
    fn require_nothing_lost(&self, cwd: &Path, above: &Path) -> Result<(), OpenError> {
        if cwd == above {
            return Ok(());
        }
        let admin = self.common_dir.join("worktrees");
        for name in files::names(&admin)? {
            let Some(data) =
                files::read_optional(&admin.join(&name).join("gitdir"), limits::SMALL_FILE_BYTES)?
            else {
                continue;
            };
            let dot_git = admin.join(&name).join(path_in(&data));
            // One that is gone altogether is not where anybody stands.
            let Some(top) = dot_git.parent().and_then(|top| files::real(top).ok()) else {
                continue;
            };
            if top != above && top.starts_with(above) && cwd.starts_with(&top) {
                let why = "it is a linked worktree without its .git: see git worktree repair";
                return Err(OpenError::Lost { path: top, why });
            }
        }
        Ok(())
    }

    /// The worktree of this repository that git would find from `dir`; none when git would find another
    /// repository, a git directory or nothing.
    ///
    /// # Errors
    /// The directory or git's files cannot be read.
    pub fn worktree_of(&self, dir: &Path) -> Result<Option<Worktree>, OpenError> {
        let from = Env::fixed(real(dir)?, []);
        let own = self.worktree.as_ref();
        match discover(&from) {
            Ok(there) if there.common_dir == self.common_dir => Ok(there.worktree),
            // A worktree tied to its git directory by the environment or core.worktree alone.
            Ok(_) => Ok(None),
            Err(OpenError::NotARepository { .. }) => {
                Ok(own.filter(|w| from.cwd().starts_with(&w.top)).cloned())
            }
            Err(e) => Err(e),
        }
    }

    /// The top directory that belongs to a git directory: `core.worktree`, nothing when bare, else `near`.
    fn top_of(&self, git_dir: &Path, near: Option<PathBuf>) -> Result<Option<PathBuf>, OpenError> {
        if git_dir != self.common_dir {
            return match near {
                Some(top) => Ok(Some(top)),
                None => linked_top(git_dir),
            };
        }
        let config = crate::store::caps::RepoConfig::load(&self.common_dir)?;
        if let Some(top) = config.text("core.worktree") {
            return Ok(Some(git_dir.join(top)));
        }
        Ok(near.filter(|_| !config.is_true("core.bare")))
    }

    fn worktree_at(&self, git_dir: PathBuf, top: PathBuf) -> Result<Worktree, OpenError> {
        let id = if git_dir == self.common_dir {
            ".".to_owned()
        } else {
            let name = git_dir.file_name().and_then(OsStr::to_str);
            name.map(str::to_owned).ok_or_else(|| OpenError::Unsupported {
                what: format!("a worktree whose name is not UTF-8: {}", git_dir.display()),
                code: Code::WorktreeNameUnsupported,
            })?
        };
        Ok(Worktree { id, top, git_dir })
    }
}

fn refuse_variable(env: &Env, name: &'static str, code: Code) -> Result<(), OpenError> {
    match env.get(name) {
        Some(value) if !value.is_empty() => Err(OpenError::Variable { name, code }),
        Some(_) | None => Ok(()),
    }
}

fn real(path: &Path) -> Result<PathBuf, OpenError> {
    Ok(files::real(path)?)
}

/// Walks up as git does: `.git` first, then the directory itself, never above a ceiling or a mount point.
fn search(cwd: &Path, env: &Env) -> Result<Option<Found>, OpenError> {
    let ceilings: Vec<PathBuf> = env
        .get("GIT_CEILING_DIRECTORIES")
        .map(|list| std::env::split_paths(list).filter(|p| p.is_absolute()).collect())
        .unwrap_or_default();
    let across = env
        .text("GIT_DISCOVERY_ACROSS_FILESYSTEM")
        .is_some_and(|v| matches!(v, "1" | "true" | "yes" | "on"));
    let device = |dir: &Path| files::look_through(dir).ok().flatten().map(|m| m.dev());
    let home = device(cwd);
    for dir in cwd.ancestors() {
        let passed = dir != cwd && ceilings.iter().any(|c| c == dir);
        if passed || (!across && device(dir) != home) {
            return Ok(None);
        }
        let dot_git = dir.join(".git");
        if let Some(git_dir) = through_gitfile(&dot_git)?.filter(|d| is_git_dir(d)) {
            return Ok(Some(Found { git_dir, dot_git_in: Some(dir.to_owned()) }));
        }
        // git looks on above a directory of that name, but not above a file.
        if files::is_file(&dot_git)? {
            let why = "its .git leads to no git directory";
            return Err(OpenError::Lost { path: dir.to_owned(), why });
        }
        if is_git_dir(dir) {
            return Ok(Some(Found { git_dir: dir.to_owned(), dot_git_in: None }));
        }
    }
    Ok(None)
}

/// The directory itself, or the one a `gitdir:` file points to.
fn through_gitfile(path: &Path) -> Result<Option<PathBuf>, OpenError> {
    if !files::is_file(path)? {
        return Ok(files::is_dir(path)?.then(|| path.to_owned()));
    }
    let data = files::read_optional(path, limits::SMALL_FILE_BYTES)?.unwrap_or_default();
    let target = data.strip_prefix(b"gitdir: ").map(path_in).ok_or_else(|| {
        OpenError::Malformed { path: path.to_owned(), reason: "no 'gitdir:' line".to_owned() }
    })?;
    Ok(Some(path.parent().unwrap_or(path).join(target)))
}

/// A path as git keeps it in a file: all of it but the end of its line. A path may hold newlines, too.
fn path_in(data: &[u8]) -> PathBuf {
    let end = data.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |at| at + 1);
    PathBuf::from(std::ffi::OsString::from_vec(data[..end].to_vec()))
}

/// Refuses what git, the library and we would wait for in the place of a file that opening reads.
///
/// # Errors
/// One of these is no regular file.
pub(in crate::store) fn require_files(git_dir: &Path, common_dir: &Path) -> Result<(), OpenError> {
    let in_common =
        ["config", "config.worktree", "packed-refs", "shallow", "info/attributes", "info/exclude"];
    let in_common = in_common.iter().map(|name| common_dir.join(name));
    let own = ["HEAD", "index", "config.worktree"].iter().map(|name| git_dir.join(name));
    let objects = common_dir.join("objects/info/alternates");
    for path in in_common.chain(own).chain([objects]) {
        // What cannot be looked at is told by whoever reads it.
        let found = files::look_through(&path).ok().flatten();
        let unfit = found.as_ref().and_then(Unfit::as_file);
        if let Some(unfit) = unfit {
            return Err(FileError::new("read", &path, std::io::Error::other(unfit)).into());
        }
    }
    Ok(())
}

fn is_git_dir(dir: &Path) -> bool {
    let is_dir = |path: &Path| files::is_dir(path).unwrap_or(false);
    let head = files::is_there(&dir.join("HEAD")).unwrap_or(false);
    head && common_of(dir).is_ok_and(|c| is_dir(&c.join("objects")) && is_dir(&c.join("refs")))
}

fn common_of(git_dir: &Path) -> Result<PathBuf, OpenError> {
    match files::read_optional(&git_dir.join("commondir"), limits::SMALL_FILE_BYTES)? {
        Some(data) => real(&git_dir.join(path_in(&data))),
        None => real(git_dir),
    }
}

/// The top directory of a linked worktree; none when its checkout is gone.
fn linked_top(git_dir: &Path) -> Result<Option<PathBuf>, OpenError> {
    let Some(top) = kept_top(git_dir)? else { return Ok(None) };
    Ok(is_checkout(&top)?.then_some(top))
}

/// Refuses a linked worktree that is not where git keeps it: git finds the repository from there, but nobody finds it
/// from the repository.
fn require_not_moved(git_dir: &Path, top: &Path) -> Result<(), OpenError> {
    match kept_top(git_dir)? {
        Some(kept) if !is_checkout(&kept)? => {
            let why = "it was moved by hand: run git worktree repair in it";
            Err(OpenError::Lost { path: top.to_owned(), why })
        }
        Some(_) | None => Ok(()),
    }
}

/// The top directory of a linked worktree as git keeps it, be it there or not.
fn kept_top(git_dir: &Path) -> Result<Option<PathBuf>, OpenError> {
    let data = files::read_optional(&git_dir.join("gitdir"), limits::SMALL_FILE_BYTES)?;
    let dot_git = data.map(|data| git_dir.join(path_in(&data)));
    Ok(dot_git.and_then(|path| path.parent().map(Path::to_owned)))
}

fn is_checkout(top: &Path) -> Result<bool, OpenError> {
    Ok(files::look_through(&top.join(".git"))?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, StoreError, testlab::TestRepo};

    fn at(repo: &TestRepo, dir: &Path) -> Location {
        discover(&repo.env_at(dir)).unwrap()
    }

    fn with(repo: &TestRepo, dir: &Path, vars: &[(&str, &str)]) -> Result<Location, OpenError> {
        let env = repo.env_at(dir);
        let own = env.vars().map(|(k, v)| (k.to_owned(), v.to_owned()));
        let more = vars.iter().map(|(k, v)| (k.into(), v.into()));
        discover(&Env::fixed(dir.to_owned(), own.chain(more)))
    }

    fn refused(repo: &TestRepo) -> Code {
        let env = repo.env();
        let open = discover(&env).map_err(StoreError::from).and_then(|l| Store::open(l, &env));
        open.err().expect("refused").code()
    }

    #[test]
    fn agrees_with_git_about_top_common_dir_and_prefix() {
        let repo = TestRepo::new();
        let top = repo.path();
        let deep = top.join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        let location = at(&repo, &deep);
        assert_eq!(location.prefix, b"a/b");
        let main = Worktree { id: ".".to_owned(), top: top.clone(), git_dir: top.join(".git") };
        assert_eq!(location.worktree, Some(main.clone()));
        assert_eq!(location.common_dir, top.join(".git"));
        let inside = at(&repo, &top.join(".git/refs"));
        assert_eq!((inside.worktree, inside.common_dir), (None, top.join(".git")));

        let linked = top.parent().unwrap().join("linked");
        repo.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
        let there = at(&repo, &linked);
        let other = Worktree {
            id: "linked".to_owned(),
            top: linked.clone(),
            git_dir: top.join(".git/worktrees/linked"),
        };
        assert_eq!((there.worktree.as_ref(), &there.common_dir), (Some(&other), &top.join(".git")));
        assert_eq!(there.worktrees().unwrap(), [main.clone(), other.clone()]);
        assert_eq!(location.worktrees().unwrap(), [main.clone(), other.clone()]);
        assert_eq!(location.worktree_of(&linked).unwrap(), Some(other));
        assert_eq!(there.worktree_of(&deep).unwrap(), Some(main.clone()));
        assert_eq!(location.worktree_of(top.parent().unwrap()).unwrap(), None);
        std::fs::remove_dir_all(&linked).unwrap();
        assert_eq!(location.worktrees().unwrap(), [main]);
    }

    #[test]
    fn a_nested_repository_is_another_one() {
        let repo = TestRepo::new();
        let inner = repo.path().join("inner");
        repo.git(&["init", "-q", inner.to_str().unwrap()]);
        assert_eq!(at(&repo, &repo.path()).worktree_of(&inner).unwrap(), None);
    }

    #[test]
    fn case_74_a_lost_worktree_is_not_taken_for_a_part_of_the_repository_around_it() {
        let repo = TestRepo::new();
        let linked = repo.path().join("linked");
        repo.git(&["worktree", "add", "-q", linked.to_str().unwrap()]);
        let deep = linked.join("a");
        std::fs::create_dir(&deep).unwrap();
        let lost = |dir: &Path| match discover(&repo.env_at(dir)) {
            Err(e @ OpenError::Lost { .. }) => e.to_string(),
            other => panic!("{other:?}"),
        };
        let place = linked.display();
        std::fs::write(linked.join(".git"), "gitdir: /nowhere\n").unwrap();
        assert_eq!(lost(&deep), format!("{place}: its .git leads to no git directory"));
        std::fs::remove_file(linked.join(".git")).unwrap();
        let gone =
            format!("{place}: it is a linked worktree without its .git: see git worktree repair");
        assert_eq!([lost(&linked), lost(&deep)], [gone.clone(), gone]);
        assert!(at(&repo, &repo.path()).worktree_of(&deep).is_err());
        // A stranger of the same place is no worktree.
        repo.git(&["worktree", "prune"]);
        assert_eq!(at(&repo, &deep).prefix, b"linked/a");
    }

    #[test]
    fn a_submodule_has_its_own_git_directory() {
        let (repo, other) = (TestRepo::new(), TestRepo::new());
        let from = other.path();
        let args = ["-c", "protocol.file.allow=always", "submodule", "add", "-q"];
        repo.git(&[&args[..], &[from.to_str().unwrap(), "sub"]].concat());
        let there = at(&repo, &repo.path().join("sub"));
        assert_eq!(there.common_dir, repo.path().join(".git/modules/sub"));
        assert_eq!(
            there.worktree.map(|w| (w.id, w.top)),
            Some((".".to_owned(), repo.path().join("sub")))
        );
    }

    #[test]
    fn a_bare_repository_opens_without_a_worktree() {
        let repo = TestRepo::new();
        let bare = repo.path().parent().unwrap().join("bare");
        repo.git(&["init", "-q", "--bare", bare.to_str().unwrap()]);
        let env = repo.env_at(&bare);
        let location = discover(&env).unwrap();
        assert_eq!((&location.worktree, &location.common_dir), (&None, &bare));
        assert_eq!(location.worktrees().unwrap(), []);
        Store::open(location, &env).unwrap();
    }

    #[test]
    fn the_environment_names_the_repository_once() {
        let repo = TestRepo::new();
        let top = repo.path();
        let above = top.parent().unwrap();
        let named = with(&repo, above, &[("GIT_DIR", "repo/.git"), ("GIT_WORK_TREE", "repo")]);
        let named = named.unwrap();
        assert_eq!(named.common_dir, top.join(".git"));
        assert_eq!(named.worktree.map(|w| w.top), Some(top.clone()));
        let shared = [("GIT_DIR", "repo/.git"), ("GIT_COMMON_DIR", "repo")];
        assert_eq!(with(&repo, above, &shared).unwrap().common_dir, top);
        let alone = with(&repo, above, &[("GIT_DIR", "repo/.git")]).unwrap();
        assert_eq!(alone.worktree.map(|w| w.top), Some(above.to_owned()));
        let index = with(&repo, &top, &[("GIT_INDEX_FILE", "/elsewhere")]).unwrap();
        assert_eq!(index, at(&repo, &top));
        let code = |vars| with(&repo, &top, vars).unwrap_err().code();
        assert_eq!(code(&[("GIT_OBJECT_DIRECTORY", "x")]), Code::ObjectDirectoryUnsupported);
        assert_eq!(code(&[("GIT_NAMESPACE", "x")]), Code::NamespaceUnsupported);
        assert_eq!(code(&[("GIT_QUARANTINE_PATH", "x")]), Code::Quarantine);
        assert_eq!(code(&[("GIT_DIR", "nowhere")]), Code::NotARepository);
        let deep = top.join("d");
        std::fs::create_dir(&deep).unwrap();
        let ceiling = with(&repo, &deep, &[("GIT_CEILING_DIRECTORIES", top.to_str().unwrap())]);
        assert_eq!(ceiling.unwrap_err().code(), Code::NotARepository);
    }

    #[test]
    fn what_would_be_silent_damage_is_refused_by_name() {
        let config = |key: &str, value: &str| {
            let repo = TestRepo::new();
            repo.git(&["config", key, value]);
            refused(&repo)
        };
        assert_eq!(config("extensions.refStorage", "cards"), Code::RefStorageUnsupported);
        assert_eq!(config("extensions.objectFormat", "md5"), Code::StoreUnusable);
        assert_eq!(config("extensions.partialClone", "origin"), Code::PartialCloneUnsupported);
        assert_eq!(config("remote.origin.promisor", "true"), Code::PartialCloneUnsupported);
    }

    #[test]
    fn a_foreign_repository_needs_the_persons_word() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let repo = TestRepo::new();
        let top = repo.path();
        std::os::unix::fs::chown(&top, Some(12_345), None).unwrap();
        assert_eq!(refused(&repo), Code::NotOwned);
        let config = repo.env().home().unwrap().join(".gitconfig");
        std::fs::create_dir_all(config.parent().unwrap()).unwrap();
        std::fs::write(&config, format!("[safe]\n\tdirectory = {}\n", top.display())).unwrap();
        let env = repo.env();
        let store = Store::open(discover(&env).unwrap(), &env).unwrap();
        assert!(store.reference("HEAD").unwrap().is_some());
    }
}

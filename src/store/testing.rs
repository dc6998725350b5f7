//! A throw-away repository made and inspected by the real git, for tests of this folder only.

use super::{
    candidate::{CandidateError, FixCtx, FixedTree, Listed, LoadError, commit_object, fix_tree},
    filters::Filters,
    git::Git,
    identity::identity,
    landing::LandCtx,
    object::{Kind, Object, hash_of},
    tree::Mode,
    worktree_state::Worktree,
};
use crate::{
    domain::{
        oid::{HashKind, Oid},
        path::RepoPath,
        time::Timestamp,
    },
    sys::{env::Env, fault::disk},
};
use gix::prelude::Write;
use std::{
    ffi::OsString,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

pub(crate) struct Repo {
    home: tempfile::TempDir,
}

#[expect(clippy::disallowed_methods, reason = "test set-up")]
fn git_in(home: &Path, dir: &Path, args: &[&str], extra: &[(&str, &Path)]) -> Output {
    Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .envs(vars(home))
        .envs(extra.iter().copied())
        .output()
        .unwrap()
}

/// What the tester chose for every repository that the tests make: `git init` itself honours these.
#[expect(clippy::disallowed_methods, reason = "the one look at the tester's choice")]
pub(crate) fn chosen() -> Vec<(OsString, OsString)> {
    let names = ["GIT_DEFAULT_HASH", "GIT_DEFAULT_REF_FORMAT"];
    names.into_iter().filter_map(|n| Some((n.into(), std::env::var_os(n)?))).collect()
}

#[expect(clippy::disallowed_methods, reason = "test set-up")]
fn vars(home: &Path) -> Vec<(OsString, OsString)> {
    let mut vars = chosen();
    vars.extend([
        ("PATH".into(), std::env::var_os("PATH").unwrap()),
        ("HOME".into(), home.into()),
        ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ("GIT_AUTHOR_DATE".into(), "@1700000000 +0000".into()),
        ("GIT_COMMITTER_DATE".into(), "@1700000000 +0000".into()),
    ]);
    vars
}

impl Repo {
    pub(crate) fn new() -> Self {
        Self::made_by(&["init", "-q"])
    }

    /// Objects named by this hash, whatever the tester chose.
    pub(crate) fn of_hash(hash: HashKind) -> Self {
        let name = match hash {
            HashKind::Sha1 => "sha1",
            HashKind::Sha256 => "sha256",
        };
        Self::made_by(&["init", "-q", "--object-format", name])
    }

    fn made_by(init: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let config = "[user]\nname = Tess Tester\nemail = tess@example.invalid\n[init]\ndefaultBranch = main\n";
        std::fs::write(home.path().join(".gitconfig"), config).unwrap();
        let repo = Self { home };
        std::fs::create_dir(repo.home.path().join("work")).unwrap();
        repo.git(init);
        repo
    }

    /// Nothing yet, in a place where an fsync costs nothing.
    pub(crate) fn empty() -> Self {
        Self { home: disk::quick_dir() }
    }

    /// The same repository once more.
    pub(crate) fn copied(&self) -> Self {
        let copy = Self::empty();
        disk::copy(self.home.path(), copy.home.path());
        copy
    }

    /// The directory above the repository: its home.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Canonical, as stores hand it down.
    pub(crate) fn top(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap().join("work")
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.top().with_file_name(name)
    }

    pub(crate) fn env_vars(&self) -> Vec<(OsString, OsString)> {
        vars(self.home.path())
    }

    pub(crate) fn worktree(&self) -> Worktree {
        Worktree { id: ".".to_owned(), top: self.top(), git_dir: self.top().join(".git") }
    }

    pub(crate) fn program(&self) -> Git {
        self.program_at(&self.worktree())
    }

    pub(crate) fn program_at(&self, worktree: &Worktree) -> Git {
        Git::new(&Env::fixed(worktree.top.clone(), self.env_vars()), worktree).unwrap()
    }

    pub(crate) fn gix(&self) -> gix::Repository {
        gix::open_opts(self.top(), gix::open::Options::isolated()).unwrap()
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_at(&self.top(), args, &[])
    }

    pub(crate) fn git_at(&self, dir: &Path, args: &[&str], extra: &[(&str, &Path)]) -> String {
        let out = git_in(self.home.path(), dir, args, extra);
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// Its stdout as it is: names need not be UTF-8. Exit code 1 is an answer.
    pub(crate) fn git_bytes(&self, args: &[&str]) -> Vec<u8> {
        let out = git_in(self.home.path(), &self.top(), args, &[]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(matches!(out.status.code(), Some(0 | 1)), "git {args:?}: {said}");
        out.stdout
    }

    /// Every object below these trees is in the repository.
    pub(crate) fn complete(&self, trees: &[Oid]) {
        let mut args = vec!["rev-list".to_owned(), "--objects".to_owned()];
        args.extend(trees.iter().map(Oid::to_string));
        if !trees.is_empty() {
            self.git(&args.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    /// With a file as stdin.
    #[expect(clippy::disallowed_methods, reason = "test set-up")]
    pub(crate) fn git_fed(&self, args: &[&str], stdin: &Path) {
        let mut git = Command::new("git");
        git.args(args).current_dir(self.top()).env_clear().envs(self.env_vars());
        let out = git.stdin(std::fs::File::open(stdin).unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "git {args:?}: {said}");
    }

    /// For calls that end in a conflict.
    pub(crate) fn try_git(&self, args: &[&str]) {
        git_in(self.home.path(), &self.top(), args, &[]);
    }

    /// The lock file that keeps everybody from moving a branch.
    pub(crate) fn branch_lock(&self, short: &str) -> PathBuf {
        let tables = self.path(".git/reftable");
        let file = self.path(format!(".git/refs/heads/{short}.lock"));
        if tables.is_dir() { tables.join("tables.list.lock") } else { file }
    }

    /// The file without which nobody can tell where `HEAD` is.
    pub(crate) fn head_record(&self) -> PathBuf {
        let list = self.path(".git/reftable/tables.list");
        if list.is_file() { list } else { self.path(".git/HEAD") }
    }

    pub(crate) fn hash(&self) -> HashKind {
        hash_of(&self.gix())
    }

    pub(crate) fn oid(&self, rev: &str) -> Oid {
        self.git(&["rev-parse", "--verify", rev]).trim().parse().unwrap()
    }

    /// The commit that `HEAD` of a repository inside is at.
    pub(crate) fn sub_head(&self, dir: &str) -> Oid {
        self.git(&["-C", dir, "rev-parse", "HEAD"]).trim().parse().unwrap()
    }

    pub(crate) fn path(&self, name: impl AsRef<[u8]>) -> PathBuf {
        self.top().join(std::ffi::OsStr::from_bytes(name.as_ref()))
    }

    pub(crate) fn write(&self, name: impl AsRef<[u8]>, data: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, data).unwrap();
    }

    pub(crate) fn commit_file(&self, name: &str, data: &[u8]) -> Oid {
        self.write(name, data);
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "change"]);
        self.oid("HEAD")
    }

    /// Builds the candidate tree over `HEAD` as the real callers do.
    pub(crate) fn fix(&self, paths: &[RepoPath]) -> Result<FixedTree, CandidateError> {
        self.fix_with(paths, false)
    }

    /// The same with a word about submodules.
    pub(crate) fn fix_with(
        &self,
        paths: &[RepoPath],
        allow_submodules: bool,
    ) -> Result<FixedTree, CandidateError> {
        let (repo, git) = (self.gix(), self.program());
        let scratch = self.beside("scratch");
        let load = |id: &Oid| load(&repo, id);
        let filters = Filters { repo: &repo, git: &git, scratch: &scratch };
        let ctx = FixCtx { filters, load: &load, allow_submodules };
        let fixed = fix_tree(ctx, self.oid("HEAD^{tree}"), paths);
        assert!(!scratch.exists(), "the private object directory is left behind");
        fixed
    }

    /// Writes objects as loose ones.
    pub(crate) fn store(&self, objects: &[Object]) {
        let repo = self.gix();
        for object in objects {
            let kind = match object.kind {
                Kind::Blob => gix::object::Kind::Blob,
                Kind::Tree => gix::object::Kind::Tree,
                Kind::Commit => gix::object::Kind::Commit,
            };
            let id = repo.write_buf(kind, &object.data).unwrap();
            assert_eq!(id.as_bytes(), object.id.as_bytes());
        }
    }
}

pub(crate) fn load(repo: &gix::Repository, id: &Oid) -> Result<Vec<u8>, LoadError> {
    let id = gix::ObjectId::try_from(id.as_bytes())?;
    Ok(repo.find_object(id).map_err(|e| e.to_string())?.detach().data)
}

pub(crate) fn path(name: impl AsRef<[u8]>) -> RepoPath {
    RepoPath::new(name.as_ref()).unwrap()
}

/// The landing of [`Ready`].
pub(crate) const LANDING: &str = "pol_01arz3ndektsv4rrffq69g5fav";

/// A candidate over `HEAD`, stored and ready to land: `a` modified, `gone` deleted, `new/n` added.
pub(crate) struct Ready {
    pub(crate) repo: Repo,
    pub(crate) parent: Oid,
    pub(crate) candidate: Oid,
    pub(crate) listed: Vec<Listed>,
    pub(crate) before: Vec<Listed>,
    pub(crate) worktrees: Vec<Worktree>,
    pub(crate) branch: &'static str,
}

impl Ready {
    /// In a repository of its own; `theirs` is staged by somebody else.
    pub(crate) fn new() -> Self {
        let repo = Repo::new();
        repo.git(&["config", "user.name", "Tess Tester"]);
        repo.git(&["config", "user.email", "tess@example.invalid"]);
        repo.write("gone", b"1\n");
        repo.write("other", b"1\n");
        repo.commit_file("a", b"1\n");
        repo.write("theirs", b"t\n");
        repo.git(&["add", "theirs"]);
        Self::over(repo)
    }

    pub(crate) fn over(repo: Repo) -> Self {
        repo.write("a", b"2\n");
        std::fs::remove_file(repo.path("gone")).unwrap();
        repo.write("new/n", b"2\n");
        let paths: Vec<RepoPath> = ["a", "gone", "new/n"].map(path).to_vec();
        let fixed = repo.fix(&paths).unwrap();
        let who = identity(&repo.gix()).unwrap();
        let at = Timestamp::from_ms(1_700_000_100_000);
        let parent = repo.oid("HEAD");
        let commit = commit_object(fixed.tree, parent, &who, at, b"governed\n").unwrap();
        repo.store(&fixed.objects);
        repo.store(std::slice::from_ref(&commit));
        let worktrees = vec![repo.worktree()];
        let branch = "refs/heads/main";
        let listed = fixed.listed;
        let before = |path: &RepoPath| {
            let found = repo.git(&["ls-tree", "--format=%(objectname)", "HEAD", &path.to_string()]);
            found.trim().parse().ok().map(|id| (Mode::File, id))
        };
        let before = listed.iter().map(|(path, _)| (path.clone(), before(path))).collect();
        Self { repo, parent, candidate: commit.id, listed, before, worktrees, branch }
    }

    /// The same on a `HEAD` that is on no branch.
    pub(crate) fn detached() -> Self {
        let ready = Self::new();
        ready.repo.git(&["checkout", "-q", "--detach"]);
        Self { branch: "main-worktree/HEAD", ..ready }
    }

    /// What is to land, in `repo`: the one it was made in, or a copy.
    pub(crate) fn with_landing<T>(&self, repo: &Repo, act: impl FnOnce(LandCtx<'_>) -> T) -> T {
        act(LandCtx {
            repo: &repo.gix(),
            git: &|worktree| Ok(repo.program_at(worktree)),
            agent_dir: &repo.path(".git/agentproto"),
            name: LANDING,
            reflog: &format!("agentproto: policy {LANDING}"),
            branch: self.branch,
            parent: self.parent,
            candidate: self.candidate,
            listed: &self.listed,
            before: &self.before,
            lock_wait_ms: 50,
        })
    }
}

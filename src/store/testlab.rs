//! A repository made by the real git, for tests of this folder.

use crate::{
    domain::oid::{HashKind, Oid},
    sys::{env::Env, fault::disk},
};
use std::{
    ffi::OsString,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A repository with one commit in a directory of its own; its home is empty.
pub(super) struct TestRepo {
    dir: tempfile::TempDir,
    first: String,
}

impl TestRepo {
    /// Of the hash that the tester chose.
    pub(super) fn new() -> Self {
        Self::made(&[])
    }

    /// Of this hash, whatever the tester chose.
    pub(super) fn of(hash: HashKind) -> Self {
        Self::made(&["--object-format", hash.name()])
    }

    /// With this ref backend, whatever the tester chose.
    pub(super) fn with_refs(format: &str) -> Self {
        Self::made(&["--ref-format", format])
    }

    /// True when its refs are in tables.
    pub(super) fn is_reftable(&self) -> bool {
        self.path().join(".git/reftable").is_dir()
    }

    /// The lock file that keeps everybody from changing a ref.
    pub(super) fn ref_lock(&self, name: &str) -> PathBuf {
        let git = self.path().join(".git");
        if self.is_reftable() {
            git.join("reftable/tables.list.lock")
        } else {
            git.join(format!("{name}.lock"))
        }
    }

    fn made(options: &[&str]) -> Self {
        Self::made_in(tempfile::tempdir().unwrap(), options)
    }

    fn made_in(dir: tempfile::TempDir, options: &[&str]) -> Self {
        let mut repo = Self { dir, first: String::new() };
        std::fs::create_dir_all(repo.path()).unwrap();
        repo.git(&[&["init", "-q", "-b", "main"], options].concat());
        repo.first = repo.commit("first");
        repo
    }

    /// In a place where an fsync costs nothing; with this ref backend, or what the tester chose.
    pub(super) fn quick(refs: Option<&str>) -> Self {
        // Sample hooks would be copied for every state that is looked at.
        let mut options = vec!["--template="];
        options.extend(refs.into_iter().flat_map(|f| ["--ref-format", f]));
        Self::made_in(disk::quick_dir(), &options)
    }

    /// The commit it was made with.
    pub(super) fn first(&self) -> Oid {
        self.first.parse().unwrap()
    }

    /// The directory of the repository and its home.
    pub(super) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn hash(&self) -> HashKind {
        let name = self.git(&["rev-parse", "--show-object-format"]);
        HashKind::ALL.into_iter().find(|h| h.name() == name).unwrap()
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("repo")
    }

    pub(super) fn env_at(&self, cwd: &Path) -> Env {
        Env::fixed(cwd.to_owned(), self.vars())
    }

    pub(super) fn env(&self) -> Env {
        self.env_at(&self.path())
    }

    fn vars(&self) -> Vec<(OsString, OsString)> {
        let home = self.dir.path().join("home").into_os_string();
        let mut vars: Vec<(OsString, OsString)> = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_AUTHOR_NAME", "Ada Tester"),
            ("GIT_AUTHOR_EMAIL", "ada@example.invalid"),
            ("GIT_COMMITTER_NAME", "Ada Tester"),
            ("GIT_COMMITTER_EMAIL", "ada@example.invalid"),
        ]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
        vars.push(("HOME".into(), home));
        vars.extend(super::testing::chosen());
        vars
    }

    #[expect(clippy::disallowed_methods, reason = "test set-up")]
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.args(args).current_dir(self.path()).env_clear().envs(self.vars());
        command
    }

    pub(super) fn git_raw(&self, args: &[&str]) -> Vec<u8> {
        let out = self.command(args).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out.stdout
    }

    pub(super) fn git(&self, args: &[&str]) -> String {
        String::from_utf8(self.git_raw(args)).unwrap().trim_end().to_owned()
    }

    /// As `git`, with something to read.
    pub(super) fn git_fed(&self, args: &[&str], input: &str) -> String {
        let mut command = self.command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{args:?}");
        String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
    }

    /// A commit on the current branch; its id.
    pub(super) fn commit(&self, message: &str) -> String {
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Nothing is missing, broken or strange.
    pub(super) fn fsck(&self) {
        let out = self.command(&["fsck", "--strict", "--full"]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let bad = |l: &&str| !l.contains("dangling") && !l.contains("Checking") && !l.is_empty();
        assert!(out.status.success() && said.lines().find(bad).is_none(), "{said}");
    }
}

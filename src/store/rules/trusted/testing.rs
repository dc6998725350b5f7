//! A hermetic home and repository for tests of what is trusted.

use crate::{domain::oid::Oid, sys::env::Env};
use std::path::{Path, PathBuf};

/// A temporary directory with a home and a repository made by the real git.
pub(crate) struct Lab {
    dir: tempfile::TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let lab = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(lab.home()).unwrap();
        std::fs::create_dir_all(lab.top()).unwrap();
        lab.git(&["init", "-q", "-b", "main"]);
        lab
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn top(&self) -> PathBuf {
        self.dir.path().join("repo")
    }

    pub(crate) fn env(&self) -> Env {
        Env::fixed(self.top(), [("HOME".into(), self.home().into_os_string())])
    }

    /// Runs a program in the repository and returns its standard output.
    #[expect(clippy::disallowed_methods, reason = "test set-up")]
    pub(crate) fn run(&self, program: &str, args: &[&str]) -> String {
        let done = std::process::Command::new(program)
            .args(args)
            .current_dir(self.top())
            .env_clear()
            .envs([
                ("PATH", "/usr/bin:/bin"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_AUTHOR_NAME", "T"),
                ("GIT_AUTHOR_EMAIL", "t@example.invalid"),
                ("GIT_COMMITTER_NAME", "T"),
                ("GIT_COMMITTER_EMAIL", "t@example.invalid"),
            ])
            .envs(crate::store::testing::chosen())
            .env("HOME", self.home())
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{program} {args:?}: {words}");
        String::from_utf8(done.stdout).unwrap()
    }

    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.run("git", args)
    }

    /// Writes a file of the worktree and commits everything.
    pub(crate) fn commit(&self, path: &str, content: &str) {
        let file = self.top().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", path]);
    }

    pub(crate) fn rev(&self, name: &str) -> Oid {
        self.git(&["rev-parse", name]).trim().parse().unwrap()
    }

    /// Opens the repository; nobody's global configuration is in it.
    pub(crate) fn open(&self) -> gix::Repository {
        let mut permissions = gix::open::Permissions::isolated();
        permissions.config.includes = true;
        let options = gix::open::Options::default().permissions(permissions);
        gix::open_opts(self.top(), options).unwrap()
    }

    /// Opens the repository with these values in global scope.
    pub(crate) fn open_with(&self, global: &[&str]) -> gix::Repository {
        let mut repo = self.open();
        let mut config = repo.config_snapshot_mut();
        config.append_config(global, gix::config::Source::User).unwrap();
        config.commit().unwrap();
        repo
    }

    /// Makes a key pair with the real ssh-keygen.
    pub(crate) fn ssh_key(&self, name: &str, args: &[&str]) -> PathBuf {
        let path = self.home().join(name);
        let file = path.to_str().unwrap().to_owned();
        let mut all = vec!["-q", "-C", "ada@example.invalid", "-f", &file];
        all.extend_from_slice(args);
        self.run("ssh-keygen", &all);
        path
    }

    /// The `type base64` words of a public key file.
    pub(crate) fn words(&self, key: &Path) -> String {
        let text = std::fs::read_to_string(key.with_extension("pub")).unwrap();
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }
}

//! The one way to the user's git program.
//!
//! Contract: argv only; the program is an absolute path, found once on `PATH` outside the worktree; the
//! environment is the caller's without any `GIT_*` that could point the call at another repository,
//! index or object directory or inject configuration; a deadline. Nobody else starts git.

mod ref_talk;

pub use ref_talk::{PreparedRef, RefChange, RefTalk};

use crate::store::worktree_state::Worktree;
use crate::{
    code::Code,
    limits::GIT_CALL_MS,
    sys::{
        env::Env,
        files::{self, FileError},
        spawn::{self, Call, Done, SpawnError},
    },
};
use std::{
    ffi::{OsStr, OsString},
    fs::Metadata,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
};

/// The only `GIT_*` variables a call keeps: they choose the user's own configuration files. A keep-list,
/// because every git release adds names that change what a call does.
const KEPT: [&str; 3] = ["GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"];
/// Would open a program, name somebody or change the language of messages.
const DROPPED: [&str; 5] = ["PAGER", "EDITOR", "VISUAL", "EMAIL", "LANGUAGE"];

/// git, bound to one worktree.
#[derive(Clone, Debug)]
pub struct Git {
    program: PathBuf,
    worktree: Worktree,
    base: Vec<(OsString, OsString)>,
}

/// A call of git that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no git outside the worktree on `PATH`.
    #[error("no git program in an absolute directory of PATH outside {}", worktree.display())]
    NoProgram {
        /// Where it was not looked for.
        worktree: PathBuf,
    },
    /// It could not be run to its end.
    #[error("git {}: {source}", argv.join(" "))]
    Spawn {
        /// Arguments.
        argv: Vec<String>,
        /// Why.
        source: SpawnError,
    },
    /// It refused.
    #[error("git {} ended with {}: {said}", argv.join(" "), ended(*status))]
    Failed {
        /// Arguments.
        argv: Vec<String>,
        /// Exit code, or the negative number of the signal.
        status: i32,
        /// Last line of its stderr.
        said: String,
    },
    /// It answered something that cannot be read.
    #[error("git {} answered what cannot be understood", argv.join(" "))]
    Garbled {
        /// Arguments.
        argv: Vec<String>,
    },
}

fn ended(status: i32) -> String {
    if status < 0 { format!("signal {}", -status) } else { format!("exit code {status}") }
}

impl GitError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NoProgram { .. }
            | Self::Spawn { .. }
            | Self::Failed { .. }
            | Self::Garbled { .. } => Code::GitFailed,
        }
    }
}

impl Git {
    /// Finds git and fixes the environment of all later calls.
    ///
    /// # Errors
    /// There is no git to be trusted on `PATH`.
    pub fn new(env: &Env, worktree: &Worktree) -> Result<Self, GitError> {
        let program = find_program(env, &[&worktree.top, &worktree.git_dir], "git")
            .ok_or_else(|| GitError::NoProgram { worktree: worktree.top.clone() })?;
        let base = env.vars().filter(|(name, _)| is_kept(name));
        let base = base.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Self { program, worktree: worktree.clone(), base })
    }

    /// The program, absolute.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The worktree calls run in.
    #[must_use]
    pub fn worktree(&self) -> &Worktree {
        &self.worktree
    }

    /// A variable as the program sees it.
    #[must_use]
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.base.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_os_str())
    }

    /// Runs git and answers its stdout. `extra` is set last.
    ///
    /// # Errors
    /// It cannot be run, takes too long, or ends with anything but 0.
    pub fn call<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        stdin: &[u8],
        extra: &[(&str, &OsStr)],
    ) -> Result<Vec<u8>, GitError> {
        let done = self.run(args, stdin, self.plumbing_env(extra))?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        Err(failed(args, &done))
    }

    /// Asks git a question it answers by exit code 0 (yes) or 1 (no).
    ///
    /// # Errors
    /// Any other end: that is no answer.
    pub fn ask<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<bool, GitError> {
        let done = self.run(args, b"", self.plumbing_env(&[]))?;
        match done.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(failed(args, &done)),
        }
    }

    /// Prepares to move a ref: git holds its lock, has compared the old value, and moves it on
    /// [`PreparedRef::commit`] alone. Dropped, or when this process dies, nothing has moved.
    ///
    /// # Errors
    /// git does not grant it: another value, or a lock that is not to be had.
    pub fn prepare_ref(&self, change: &RefChange<'_>) -> Result<PreparedRef, GitError> {
        let patience = [
            "core.packedRefsTimeout=15000",
            "core.filesRefLockTimeout=3000",
            "reftable.lockTimeout=3000",
        ];
        let RefChange { name, new, old, reflog } = change;
        let mut talk = RefTalk::start(self, &patience, &["-m", reflog])?;
        let itself = if *name == "HEAD" { "option no-deref\n" } else { "" };
        if talk.prepare(&format!("{itself}update {name} {new} {old}\n"))? {
            return Ok(PreparedRef { talk });
        }
        Err(talk.broken_off())
    }

    /// Starts a git that changes refs when it is told to, with these settings. What it does is in no reflog.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn talk_about_refs(&self, settings: &[&str]) -> Result<RefTalk, GitError> {
        RefTalk::start(self, settings, &["--no-deref"])
    }

    /// The same git, bound to another worktree.
    #[must_use]
    pub fn bound_to(&self, worktree: &Worktree) -> Self {
        Self { worktree: worktree.clone(), ..self.clone() }
    }

    /// The environment of the repository's own hooks: what the caller has without what points git at some repository,
    /// and with the place of this one where git would not find it from the worktree.
    ///
    /// # Errors
    /// The worktree cannot be looked at.
    pub fn hook_env(&self) -> Result<Vec<(OsString, OsString)>, FileError> {
        let mut env = self.base.clone();
        let Worktree { top, git_dir, .. } = &self.worktree;
        if !files::is_there(&top.join(".git"))? {
            env.push(("GIT_DIR".into(), git_dir.into()));
            env.push(("GIT_WORK_TREE".into(), top.into()));
        }
        Ok(env)
    }

    /// Runs one of the repository's own hooks if there is one. Hooks are the user's programs: they get the
    /// cleaned environment without the settings made for plumbing, which would leak into their own git calls. After
    /// `deadline_ms` milliseconds it is killed.
    ///
    /// # Errors
    /// It cannot be run, takes too long, or refuses.
    pub fn run_hook(&self, name: &str, deadline_ms: u64) -> Result<(), GitError> {
        let args = ["hook", "run", "--ignore-missing", name];
        let done = run(&Call { deadline_ms, ..self.call_of(&args, b"", self.base.clone()) })?;
        if done.status.success() { Ok(()) } else { Err(failed(&args, &done)) }
    }

    fn plumbing_env(&self, extra: &[(&str, &OsStr)]) -> Vec<(OsString, OsString)> {
        let fixed: [(&str, &OsStr); 7] = [
            ("GIT_TERMINAL_PROMPT", OsStr::new("0")),
            ("LC_ALL", OsStr::new("C")),
            ("GIT_LITERAL_PATHSPECS", OsStr::new("1")),
            ("GIT_OPTIONAL_LOCKS", OsStr::new("0")),
            ("GIT_NO_REPLACE_OBJECTS", OsStr::new("1")),
            ("GIT_DIR", self.worktree.git_dir.as_os_str()),
            ("GIT_WORK_TREE", self.worktree.top.as_os_str()),
        ];
        let mut env = self.base.clone();
        let set = fixed.iter().chain(extra);
        env.extend(set.map(|(name, value)| (OsString::from(name), (*value).to_owned())));
        env
    }

    /// A call as [`Git::call`] makes it, to be run otherwise than by it.
    pub(in crate::store) fn prepared<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        extra: &[(&str, &OsStr)],
    ) -> Call {
        self.call_of(args, b"", self.plumbing_env(extra))
    }

    fn run<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        stdin: &[u8],
        env: Vec<(OsString, OsString)>,
    ) -> Result<Done, GitError> {
        run(&self.call_of(args, stdin, env))
    }

    fn call_of<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        stdin: &[u8],
        env: Vec<(OsString, OsString)>,
    ) -> Call {
        // A linked worktree whose directory is gone still has an index.
        let Worktree { top, git_dir, .. } = &self.worktree;
        let cwd = if files::is_dir(top).unwrap_or(false) { top } else { git_dir };
        Call {
            program: self.program.clone(),
            args: args.iter().map(|a| a.as_ref().to_owned()).collect(),
            cwd: cwd.clone(),
            env,
            stdin: stdin.to_vec(),
            deadline_ms: GIT_CALL_MS,
        }
    }
}

fn run(call: &Call) -> Result<Done, GitError> {
    spawn::run(call).map_err(|source| GitError::Spawn { argv: shown(&call.args), source })
}

fn shown<S: AsRef<OsStr>>(args: &[S]) -> Vec<String> {
    args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect()
}

fn failed<S: AsRef<OsStr>>(args: &[S], done: &Done) -> GitError {
    let text = String::from_utf8_lossy(&done.stderr);
    let said = text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("(no message)");
    let signal = || done.status.signal().map_or(-1, |s| -s);
    GitError::Failed {
        argv: shown(args),
        status: done.status.code().unwrap_or_else(signal),
        said: said.trim().to_owned(),
    }
}

fn is_kept(name: &OsStr) -> bool {
    if name.as_bytes().starts_with(b"GIT_") {
        return KEPT.iter().any(|k| name == *k);
    }
    !DROPPED.iter().any(|d| name == *d)
}

/// A program of the caller's `PATH` that lies in none of these directories.
pub(crate) fn find_program(env: &Env, outside: &[&Path], name: &str) -> Option<PathBuf> {
    let dirs = std::env::split_paths(env.get("PATH")?).filter(|d| d.is_absolute());
    let inside = |p: &Path| outside.iter().any(|dir| p.starts_with(dir));
    dirs.map(|d| d.join(name)).find(|program| {
        // The real place counts, too: a link outside may lead back in.
        let runs = |m: Metadata| m.is_file() && m.permissions().mode() & 0o111 != 0;
        files::real(program).is_ok_and(|real| !inside(&real) && !inside(program))
            && files::look_through(program).is_ok_and(|found| found.is_some_and(runs))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::Repo;

    #[test]
    fn nothing_git_calls_repository_local_reaches_it() {
        let repo = Repo::new();
        let names = repo.git(&["rev-parse", "--local-env-vars"]);
        let mut names: Vec<&str> = names.lines().collect();
        names.extend(["GIT_TRACE", "GIT_AUTHOR_NAME", "GIT_COMMITTER_DATE", "GIT_GLOB_PATHSPECS"]);
        assert!(names.len() > 15, "{names:?}");
        let vars = names.iter().map(|n| ((*n).into(), "/nowhere".into()));
        let env = Env::fixed(repo.top(), vars.chain(repo.env_vars()));
        let git = Git::new(&env, &repo.worktree()).unwrap();
        for name in names {
            assert_eq!(git.var(name), None, "{name}");
        }
        let top = git.call(&["rev-parse", "--show-toplevel"], b"", &[]).unwrap();
        assert_eq!(String::from_utf8(top).unwrap().trim(), repo.top().to_str().unwrap());
    }

    #[test]
    fn a_git_inside_the_worktree_or_at_a_relative_place_is_never_used() {
        let repo = Repo::new();
        repo.write("bin/git", b"#!/bin/sh\necho evil\n");
        std::fs::set_permissions(repo.top().join("bin/git"), PermissionsExt::from_mode(0o755))
            .unwrap();
        let path = format!("{}:bin:.", repo.top().join("bin").display());
        let env = Env::fixed(repo.top(), [("PATH".into(), path.into())]);
        let error = Git::new(&env, &repo.worktree()).unwrap_err();
        assert!(matches!(error, GitError::NoProgram { .. }), "{error}");
    }

    #[test]
    fn a_failure_names_the_call_the_status_and_the_last_words() {
        let repo = Repo::new();
        let error = repo.program().call(&["rev-parse", "--verify", "nope"], b"", &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "git rev-parse --verify nope ended with exit code 128: fatal: Needed a single revision"
        );
        assert_eq!(error.code(), Code::GitFailed);
    }

    #[test]
    fn an_answer_is_yes_no_or_an_error() {
        let repo = Repo::new();
        repo.commit_file("a", b"1");
        let git = repo.program();
        assert!(git.ask(&["merge-base", "--is-ancestor", "HEAD", "HEAD"]).unwrap());
        assert!(git.ask(&["merge-base", "--is-ancestor", "HEAD", "nope"]).is_err());
    }
}

//! The place of the demonstration: directory, key, configuration, and how its programs are run.

use super::super::error::CliError;
use crate::{
    code::Code,
    limits,
    sign::key::{self, KeyError},
    store::{
        Worktree,
        git::{Git, GitError},
    },
    sys::{
        env::{self, Env},
        files::{self, Durable, FileError},
        spawn::{self, Call, Done, SpawnError},
    },
};
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

/// The person of the demonstration.
const PERSON: &str = "demo@example.invalid";

/// A directory with everything the demonstration needs.
pub(super) struct Stage {
    top: PathBuf,
    vars: Vec<(OsString, OsString)>,
    program: PathBuf,
    git: Git,
}

impl Stage {
    /// Makes the directory, the key and the configuration; `git init` comes before them, for they lie in
    /// `.git`, where they are in nobody's way.
    ///
    /// # Errors
    /// The directory holds something, or cannot be written; there is no git.
    pub(super) fn make(env: &Env, dir: &Path) -> Result<Self, CliError> {
        if !files::names(dir).map_err(|e| file(&e))?.is_empty() {
            let message = format!("{} is not empty", dir.display());
            return Err(CliError::new(Code::DirNotEmpty, message).about(dir.to_string_lossy()));
        }
        files::make_dirs(dir).map_err(|e| file(&e))?;
        let top = files::real(dir).map_err(|e| file(&e))?;
        let private = top.join(".git/demo");
        let vars = variables(env, &private);
        let worktree = Worktree { id: ".".to_owned(), top: top.clone(), git_dir: top.join(".git") };
        let git = Git::new(&Env::fixed(top.clone(), vars.clone()), &worktree)
            .map_err(|e| git_error(&e))?;
        let program = env::own_program().map_err(|e| {
            CliError::new(Code::Io, format!("cannot find this program's file: {e}"))
        })?;
        let stage = Self { top, vars, program, git };
        stage.git(&["init", "-q", "--template=", "--initial-branch=main"])?;
        stage.furnish(&private)?;
        Ok(stage)
    }

    /// The repository.
    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// Key, configuration, and a file that puts a shell into the same environment.
    fn furnish(&self, private: &Path) -> Result<(), CliError> {
        for dir in ["home", "config", "state", "cache"] {
            files::make_dirs(&private.join(dir)).map_err(|e| file(&e))?;
        }
        let file = private.join("key");
        let key = key::make(&file, PERSON).map_err(|e| key_error(&e))?;
        let words = key::public_words(key.public()).map_err(|e| key_error(&e))?;
        let key_file = file.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
        self.write(
            ".git/demo/gitconfig",
            &format!(
                "[user]\n\tname = Demo Person\n\temail = {PERSON}\n[agentproto]\n\tsigningKey = \"{key_file}\"\n"
            ),
        )?;
        let pointing_here = self.vars.iter().filter(|(name, _)| name != "PATH" && name != "TMPDIR");
        let exports: String = pointing_here.map(export).collect();
        self.write(".git/demo/env", &exports)?;
        self.write(
            ".agentproto/allowed_signers",
            &format!("{PERSON} namespaces=\"agentproto-ack\" {words}\n"),
        )
    }

    /// Writes a file below the repository, over an old one.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), CliError> {
        let path = self.top.join(name);
        if let Some(dir) = path.parent() {
            files::make_dirs(dir).map_err(|e| file(&e))?;
        }
        files::remove_optional(&path).map_err(|e| file(&e))?;
        files::write_new(&path, text.as_bytes(), 0o644, Durable::No).map_err(|e| file(&e))
    }

    /// Runs git, which has to succeed; its stdout.
    pub(super) fn git(&self, args: &[&str]) -> Result<String, CliError> {
        let stdout = self.git.call(args, b"", &[]).map_err(|e| git_error(&e))?;
        Ok(String::from_utf8_lossy(&stdout).into_owned())
    }

    /// Runs this very program.
    pub(super) fn tool(&self, args: &[&str]) -> Result<Done, CliError> {
        let call = Call {
            program: self.program.clone(),
            args: args.iter().map(OsString::from).collect(),
            cwd: self.top.clone(),
            env: self.vars.clone(),
            stdin: Vec::new(),
            deadline_ms: limits::GIT_CALL_MS,
        };
        spawn::run(&call).map_err(|e: SpawnError| CliError::new(Code::Io, e.to_string()))
    }
}

/// All that the children see: programs as the caller finds them, everything else below `private`.
fn variables(env: &Env, private: &Path) -> Vec<(OsString, OsString)> {
    let inside = |below: &str| private.join(below).into_os_string();
    let mut vars: Vec<(OsString, OsString)> = vec![
        ("HOME".into(), inside("home")),
        ("XDG_CONFIG_HOME".into(), inside("config")),
        ("XDG_STATE_HOME".into(), inside("state")),
        ("XDG_CACHE_HOME".into(), inside("cache")),
        ("GIT_CONFIG_GLOBAL".into(), inside("gitconfig")),
        ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
    ];
    let kept = ["PATH", "TMPDIR"].into_iter();
    vars.extend(kept.filter_map(|name| Some((name.into(), env.get(name)?.to_owned()))));
    vars
}

fn export((name, value): &(OsString, OsString)) -> String {
    let text = |s: &OsStr| s.to_string_lossy().into_owned();
    format!("export {}={}\n", text(name), shell_words::quote(&text(value)))
}

fn file(error: &FileError) -> CliError {
    let code = if error.is_read_only() { Code::ReadOnly } else { Code::Io };
    CliError::new(code, error.to_string())
}

fn git_error(error: &GitError) -> CliError {
    CliError::new(error.code(), error.to_string())
}

fn key_error(error: &KeyError) -> CliError {
    CliError::new(error.code(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_see_nothing_of_the_home() {
        let secret =
            [("HOME", "/home/me"), ("SSH_AUTH_SOCK", "/s"), ("PATH", "/bin"), ("GIT_DIR", "/x")];
        let env = Env::fixed("/".into(), secret.map(|(k, v)| (k.into(), v.into())));
        let vars = variables(&env, Path::new("/d"));
        let outside: Vec<_> = vars
            .iter()
            .filter(|(_, value)| !value.to_string_lossy().starts_with("/d/"))
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect();
        assert_eq!(outside, ["GIT_CONFIG_NOSYSTEM", "PATH"]);
    }

    #[test]
    fn a_shell_can_read_the_exports() {
        let pair = ("HOME".into(), "/a b/c'd".into());
        assert_eq!(shell_words::split(&export(&pair)).unwrap(), ["export", "HOME=/a b/c'd"]);
    }

    #[test]
    fn a_directory_with_anything_in_it_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), "").unwrap();
        let env = Env::fixed("/".into(), []);
        let refused = Stage::make(&env, dir.path()).err().unwrap();
        assert_eq!(refused.code, Code::DirNotEmpty);
        assert_eq!(files::names(dir.path()).unwrap(), ["x"]);
    }
}

//! Which file a program name means when a gate is to run (decisions 2).
//!
//! Contract: bare names are looked up on a fixed PATH a person set, without relative entries, entries
//! inside a worktree and git's own program directory; the caller's PATH plays no part. Names with a slash
//! are files of the gate's worktree and never lead out of it.

use crate::{code::Code, sys::files};
use std::{
    ffi::OsStr,
    fs::Metadata,
    io,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

/// Used when a person set no `agentproto.path`.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why a name means no program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No program was named.
    #[error("the command is empty")]
    Empty,
    /// Nothing of that name on the fixed PATH.
    #[error("'{name}' is not on the fixed PATH ({path})")]
    NotFound {
        /// The bare name.
        name: String,
        /// Where it was looked for.
        path: String,
    },
    /// The file leads out of the worktree.
    #[error("'{name}' is not a file of the worktree {worktree}")]
    Outside {
        /// The name as typed.
        name: String,
        /// The worktree's top.
        worktree: PathBuf,
    },
    /// The file cannot be looked at.
    #[error("cannot find program {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is there, but not a program.
    #[error("{0} is not an executable file")]
    NotExecutable(PathBuf),
}

impl ProgramError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Empty => Code::GateRequired,
            Self::NotFound { .. } | Self::Unreadable { .. } | Self::NotExecutable(_) => {
                Code::GateNotFound
            }
            Self::Outside { .. } => Code::NotAllowlisted,
        }
    }
}

/// The directories where programs of gates are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedPath(Vec<PathBuf>);

impl FixedPath {
    /// Builds it from `agentproto.path` (user scope) or, without it, from [`DEFAULT_PATH`]. `excluded` are
    /// the tops of all worktrees, the common git directory and git's program directory. What is dropped
    /// is dropped: a setting of which nothing remains finds nothing.
    #[must_use]
    pub fn new(setting: Option<&str>, excluded: &[PathBuf]) -> Self {
        // A directory that cannot be resolved cannot be excluded by what it leads to, so by its name too.
        let excluded: Vec<PathBuf> = excluded
            .iter()
            .flat_map(|dir| [Some(dir.clone()), files::real(dir).ok()])
            .flatten()
            .collect();
        let outside = |dir: &Path| {
            let real = files::real(dir);
            let clear = |d: &Path| !excluded.iter().any(|e| d.starts_with(e));
            real.is_ok_and(|real| clear(&real)) && clear(dir)
        };
        let dirs = setting.unwrap_or(DEFAULT_PATH).split(':').map(PathBuf::from);
        Self(dirs.filter(|dir| dir.is_absolute() && outside(dir)).collect())
    }

    /// The value of `PATH` in a gate's environment.
    #[must_use]
    pub fn as_variable(&self) -> String {
        let dirs: Vec<_> = self.0.iter().map(|dir| dir.to_string_lossy()).collect();
        dirs.join(":")
    }

    /// The file that the first word of a command starts: an absolute name is that file, all others are resolved.
    ///
    /// # Errors
    /// As [`FixedPath::resolve`].
    pub fn program(&self, argv0: &str, worktree: &Path) -> Result<PathBuf, ProgramError> {
        if argv0.starts_with('/') {
            require_program(Path::new(argv0))
        } else {
            self.resolve(argv0, worktree)
        }
    }

    /// The file a relative or bare name means in a worktree. Absolute path, links not resolved.
    ///
    /// # Errors
    /// There is no such program, or it is outside the worktree.
    pub fn resolve(&self, name: &str, worktree: &Path) -> Result<PathBuf, ProgramError> {
        if name.is_empty() {
            return Err(ProgramError::Empty);
        }
        if name.contains('/') {
            inside(worktree, name)?;
            return require_program(&worktree.join(name));
        }
        self.0.iter().map(|dir| dir.join(name)).find(|file| is_program(file)).ok_or_else(|| {
            ProgramError::NotFound { name: name.to_owned(), path: self.as_variable() }
        })
    }
}

/// The real file a name with a slash means in a worktree.
///
/// # Errors
/// It does not exist or leads out of the worktree; a git directory inside counts as outside.
pub(in crate::store) fn inside(worktree: &Path, name: &str) -> Result<PathBuf, ProgramError> {
    let path = worktree.join(name);
    let real = canonical(&path)?;
    let top = canonical(worktree)?;
    let below = real.strip_prefix(&top).ok().filter(|rest| {
        let is_git_dir = |name: &OsStr| name.as_bytes().eq_ignore_ascii_case(b".git");
        !rest.as_os_str().is_empty() && !rest.iter().any(is_git_dir)
    });
    match below {
        Some(_) => Ok(real),
        None => Err(ProgramError::Outside { name: name.to_owned(), worktree: worktree.to_owned() }),
    }
}

fn canonical(path: &Path) -> Result<PathBuf, ProgramError> {
    files::real(path)
        .map_err(|e| ProgramError::Unreadable { path: path.to_owned(), source: e.source })
}

/// An existing executable file.
///
/// # Errors
/// It is not there or not executable.
fn require_program(path: &Path) -> Result<PathBuf, ProgramError> {
    canonical(path)?;
    if is_program(path) {
        Ok(path.to_owned())
    } else {
        Err(ProgramError::NotExecutable(path.to_owned()))
    }
}

fn is_program(path: &Path) -> bool {
    const ANY_EXECUTE: u32 = 0o111;
    // A file that cannot be looked at is not found here; the lookup goes on as a shell's does.
    let runs = |m: Metadata| m.is_file() && m.permissions().mode() & ANY_EXECUTE != 0;
    files::look_through(path).is_ok_and(|found| found.is_some_and(runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn program(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn relative_entries_and_worktrees_are_not_on_the_fixed_path() {
        let lab = tempfile::tempdir().unwrap();
        let top = lab.path().join("work");
        let bin = lab.path().join("bin");
        program(&top.join("bin/tool"));
        program(&bin.join("tool"));
        std::os::unix::fs::symlink(top.join("bin"), lab.path().join("link")).unwrap();
        let setting = format!(
            ".::bin:{}:{}:{}/gone:{}",
            top.join("bin").display(),
            lab.path().join("link").display(),
            lab.path().display(),
            bin.display()
        );
        let path = FixedPath::new(Some(&setting), std::slice::from_ref(&top));
        assert_eq!(path.as_variable(), bin.display().to_string());
        assert_eq!(path.resolve("tool", &top).unwrap(), bin.join("tool"));
    }

    #[test]
    fn a_setting_of_which_nothing_remains_finds_nothing() {
        let path = FixedPath::new(Some("."), &[]);
        assert!(matches!(
            path.resolve("ls", Path::new("/")),
            Err(ProgramError::NotFound { name, .. }) if name == "ls"
        ));
        let default = FixedPath::new(None, &[]).resolve("ls", Path::new("/")).unwrap();
        assert!(default.ends_with("ls") && default.is_absolute());
    }

    #[test]
    fn a_slash_means_the_worktree_and_nothing_else() {
        let lab = tempfile::tempdir().unwrap();
        let top = lab.path().join("work");
        program(&top.join("check.sh"));
        program(&top.join(".git/tool"));
        program(&top.join("sub/.git/tool"));
        program(&lab.path().join("outside"));
        std::os::unix::fs::symlink("/bin/sh", top.join("sh")).unwrap();
        fs::write(top.join("data"), "").unwrap();
        let path = FixedPath::new(None, &[]);
        assert_eq!(path.resolve("./check.sh", &top).unwrap(), top.join("./check.sh"));
        for name in
            ["../outside", "./sh", "./.git/tool", "./sub/.git/tool", "/bin/sh", "./", "./../work"]
        {
            let found = path.resolve(name, &top);
            assert!(matches!(found, Err(ProgramError::Outside { .. })), "{name}: {found:?}");
        }
        assert!(matches!(path.resolve("./data", &top), Err(ProgramError::NotExecutable(_))));
        assert!(matches!(path.resolve("./gone", &top), Err(ProgramError::Unreadable { .. })));
    }

    #[test]
    fn a_directory_or_plain_file_of_that_name_is_passed_over() {
        let lab = tempfile::tempdir().unwrap();
        fs::create_dir_all(lab.path().join("a/tool")).unwrap();
        fs::create_dir_all(lab.path().join("b")).unwrap();
        fs::write(lab.path().join("b/tool"), "").unwrap();
        program(&lab.path().join("c/tool"));
        let dir = lab.path().display();
        let path = FixedPath::new(Some(&format!("{dir}/a:{dir}/b:{dir}/c")), &[]);
        assert_eq!(path.resolve("tool", lab.path()).unwrap(), lab.path().join("c/tool"));
    }
}

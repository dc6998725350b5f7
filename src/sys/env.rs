//! The one reader of the process environment.
//!
//! The environment is read once into an [`Env`] value and handed down; nothing below reads it again and
//! nothing ever writes it.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// The file of the running program, absolute.
///
/// # Errors
/// The operating system does not tell.
pub fn own_program() -> std::io::Result<PathBuf> {
    std::env::current_exe()
}

/// A snapshot of environment variables and of the current directory.
#[derive(Clone, Debug, Default)]
pub struct Env {
    vars: BTreeMap<OsString, OsString>,
    cwd: PathBuf,
}

impl Env {
    /// Reads the real environment.
    ///
    /// # Errors
    /// The current directory is gone.
    #[expect(clippy::disallowed_methods, reason = "the one environment reader")]
    pub fn read() -> std::io::Result<Self> {
        Ok(Self { vars: std::env::vars_os().collect(), cwd: std::env::current_dir()? })
    }

    /// Builds one for tests and for `demo`.
    #[must_use]
    pub fn fixed(cwd: PathBuf, vars: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        Self { vars: vars.into_iter().collect(), cwd }
    }

    /// The same environment seen from another directory.
    #[must_use]
    pub fn at(&self, cwd: PathBuf) -> Self {
        Self { vars: self.vars.clone(), cwd }
    }

    /// The current directory, absolute.
    #[must_use]
    pub fn cwd(&self) -> &std::path::Path {
        &self.cwd
    }

    /// A variable; an empty value counts as set.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.vars.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// A variable that is set, not empty and valid UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(OsStr::to_str).filter(|v| !v.is_empty())
    }

    /// All variables.
    pub fn vars(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.vars.iter().map(|(k, v)| (k.as_os_str(), v.as_os_str()))
    }

    /// `$HOME`, when it is an absolute path.
    #[must_use]
    pub fn home(&self) -> Option<PathBuf> {
        self.get("HOME").map(PathBuf::from).filter(|p| p.is_absolute())
    }

    /// `$XDG_CONFIG_HOME/agentproto`, else `~/.config/agentproto`.
    #[must_use]
    pub fn config_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_CONFIG_HOME", ".config")
    }

    /// `$XDG_STATE_HOME/agentproto`, else `~/.local/state/agentproto`.
    #[must_use]
    pub fn state_dir(&self) -> Option<PathBuf> {
        self.xdg("XDG_STATE_HOME", ".local/state")
    }

    fn xdg(&self, name: &str, below_home: &str) -> Option<PathBuf> {
        let base = self.get(name).map(PathBuf::from).filter(|p| p.is_absolute());
        base.or_else(|| Some(self.home()?.join(below_home))).map(|p| p.join("agentproto"))
    }
}

//! What a person set: per-repository user settings, known paths, and system and global git configuration.
//!
//! Contract: everything that could weaken a rule is read from here and nowhere else, so a value in
//! repository, worktree or command scope has no effect but to be listed by [`ignored`] (invariant 12).
//! Files are git-config syntax, includes are not followed, writes are atomic and 0600. Keys this version
//! doesn't know are kept.
//!
//! ```text
//! $XDG_CONFIG_HOME/agentproto/repos/<repo-id>/{settings,allowed-commands.json,allowed_signers}
//! $XDG_CONFIG_HOME/agentproto/paths/<sha256 of the common dir's real path>
//! ```

use crate::{
    code::Code,
    domain::{digest::sha256, oid::Oid, variable::is_like},
    limits,
    sys::{
        env::Env,
        files::{self, FileError},
    },
};
use gix::config::{File, Source, file::Metadata, source::Kind};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Keys that count only from system or global scope or the per-repository user settings.
pub const PROTECTED_KEYS: &[&str] = &[
    "agentproto.ackExclude",
    "agentproto.ackFrom",
    "agentproto.ackQuorum",
    "agentproto.allowNoAck",
    "agentproto.allowedCommand",
    "agentproto.allowedSignersFile",
    "agentproto.gateConcurrency",
    "agentproto.gateEnv",
    "agentproto.logRetention",
    "agentproto.path",
    "agentproto.retention",
    "agentproto.secretEnv",
    "agentproto.signingKey",
    "agentproto.trustedRef",
    "agentproto.trustedRules",
];

/// Keys of git itself that are read the same way.
const PROTECTED_GIT_KEYS: &[&str] = &[
    "gpg.format",
    "gpg.openpgp.program",
    "gpg.program",
    "gpg.ssh.allowedSignersFile",
    "gpg.ssh.defaultKeyCommand",
    "gpg.ssh.program",
    "gpg.x509.program",
    "init.defaultBranch",
    "user.signingKey",
];

/// Settings cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// No home directory, so no place for settings.
    #[error("neither HOME nor XDG_CONFIG_HOME is an absolute path")]
    NoHome,
    /// The file system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file is not git-config syntax.
    #[error("{path} is not a configuration file: {why}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A value does not fit its key.
    #[error("'{key}' cannot be '{value}': {why}")]
    Value {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A required key is missing.
    #[error("{path} has no '{key}'")]
    Missing {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
    },
}

impl SettingsError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NoHome => Code::Io,
            Self::File(e) => e.code(),
            Self::Syntax { .. } | Self::Value { .. } | Self::Missing { .. } => Code::BadSetting,
        }
    }
}

/// The user's settings for one repository. Absent files are empty settings.
#[derive(Debug)]
pub struct RepoSettings {
    dir: PathBuf,
    file: File,
    exists: bool,
}

impl RepoSettings {
    /// Loads the settings of a repository.
    ///
    /// # Errors
    /// They exist but cannot be read or understood.
    pub fn load(env: &Env, repo_id: Oid) -> Result<Self, SettingsError> {
        let dir = config_dir(env)?.join("repos").join(repo_id.to_string());
        let found = load_config(&dir.join("settings"))?;
        let exists = found.is_some();
        Ok(Self { dir, file: found.unwrap_or_else(|| File::new(Metadata::api())), exists })
    }

    /// True when a person made settings for this repository.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.exists
    }

    /// The directory of this repository's settings.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The user's allowlist of this repository.
    #[must_use]
    pub fn allowlist_file(&self) -> PathBuf {
        self.dir.join("allowed-commands.json")
    }

    /// The user's allowed-signers file of this repository.
    #[must_use]
    pub fn signers_file(&self) -> PathBuf {
        self.dir.join("allowed_signers")
    }

    /// The last value of `agentproto.<…>`.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn get(&self, key: &str) -> Result<Option<String>, SettingsError> {
        self.file.string(key).map(|value| text(key, &value)).transpose()
    }

    /// All values of `agentproto.<…>`, in order.
    ///
    /// # Errors
    /// One is not UTF-8.
    pub fn get_all(&self, key: &str) -> Result<Vec<String>, SettingsError> {
        let values = self.file.strings(key).unwrap_or_default();
        values.iter().map(|value| text(key, value)).collect()
    }

    /// The trusted ref a person fixed.
    ///
    /// # Errors
    /// It is no full ref name.
    pub fn trusted_ref(&self) -> Result<Option<String>, SettingsError> {
        self.get("agentproto.trustedRef")?.map(require_ref).transpose()
    }

    /// The digest of the rule files a person accepted with `trust`.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn trusted_rules(&self) -> Result<Option<String>, SettingsError> {
        self.get("agentproto.trustedRules")
    }

    /// Changes one value; [`RepoSettings::save`] makes it last.
    ///
    /// # Errors
    /// The key is not of the form `section.name`.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SettingsError> {
        set_value(&mut self.file, key, value)
    }

    /// Writes the settings.
    ///
    /// # Errors
    /// The file system refused; the old file is still whole.
    pub fn save(&mut self) -> Result<(), SettingsError> {
        write_private(&self.dir.join("settings"), &self.file.to_bstring())?;
        self.exists = true;
        Ok(())
    }
}

/// What this machine knows of one clone: its id and its trusted ref, whatever its refs say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPath {
    /// The repository id given to it.
    pub repo_id: Oid,
    /// Full name of its trusted ref.
    pub trusted_ref: String,
}

impl KnownPath {
    /// Looks up the clone whose common git directory this is.
    ///
    /// # Errors
    /// The directory has no real path, or the entry exists but cannot be read or understood.
    pub fn load(env: &Env, common_dir: &Path) -> Result<Option<Self>, SettingsError> {
        let path = known_path_file(env, common_dir)?;
        let Some(file) = load_config(&path)? else { return Ok(None) };
        let require = |key: &'static str| {
            let value = file.string(key);
            let missing = || SettingsError::Missing { path: path.clone(), key };
            text(key, &value.ok_or_else(missing)?)
        };
        let id = require("agentproto.repoId")?;
        let repo_id = id.parse().map_err(|_| bad("agentproto.repoId", &id, "not an object id"))?;
        let trusted_ref = require_ref(require("agentproto.trustedRef")?)?;
        Ok(Some(Self { repo_id, trusted_ref }))
    }

    /// Remembers the clone.
    ///
    /// # Errors
    /// The directory has no real path, or the file system refused.
    pub fn save(&self, env: &Env, common_dir: &Path) -> Result<(), SettingsError> {
        let mut file = File::new(Metadata::api());
        set_value(&mut file, "agentproto.repoId", &self.repo_id.to_string())?;
        set_value(&mut file, "agentproto.trustedRef", &self.trusted_ref)?;
        write_private(&known_path_file(env, common_dir)?, &file.to_bstring())
    }
}

fn known_path_file(env: &Env, common_dir: &Path) -> Result<PathBuf, SettingsError> {
    let real = files::real(common_dir)?;
    Ok(config_dir(env)?.join("paths").join(sha256(real.as_os_str().as_bytes())))
}

fn config_dir(env: &Env) -> Result<PathBuf, SettingsError> {
    env.config_dir().ok_or(SettingsError::NoHome)
}

/// The last value of `key` in system or global scope; the scopes a person owns.
///
/// # Errors
/// It is not UTF-8.
pub fn user_scope(repo: &gix::Repository, key: &str) -> Result<Option<String>, SettingsError> {
    let snapshot = repo.config_snapshot();
    let value = snapshot.plumbing().string_filter(key, is_user_scope);
    value.map(|value| text(key, &value)).transpose()
}

/// All values of `key` in system or global scope, in the order of the files.
///
/// # Errors
/// One is not UTF-8.
pub fn user_scope_all(repo: &gix::Repository, key: &str) -> Result<Vec<String>, SettingsError> {
    let snapshot = repo.config_snapshot();
    let values = snapshot.plumbing().strings_filter(key, is_user_scope).unwrap_or_default();
    values.iter().map(|value| text(key, value)).collect()
}

/// What a person says of the environment of gates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvRules {
    /// Names that gates get from their caller, too.
    pub named: Vec<String>,
    /// Patterns of names whose values are not recorded, and not handed on by themselves.
    pub secret: Vec<String>,
}

impl EnvRules {
    /// Reads `agentproto.gateEnv` and `agentproto.secretEnv`, lists of words, from system or global scope; of the latter
    /// all values there are, those of the user's settings of the repository included.
    ///
    /// # Errors
    /// One is not UTF-8.
    pub fn load(repo: &gix::Repository, settings: &RepoSettings) -> Result<Self, SettingsError> {
        let words = |texts: Vec<String>| -> Vec<String> {
            texts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect()
        };
        let (named, secret) = ("agentproto.gateEnv", "agentproto.secretEnv");
        let mut patterns = user_scope_all(repo, secret)?;
        patterns.extend(settings.get_all(secret)?);
        let named = user_scope(repo, named)?.into_iter().collect();
        Ok(Self { named: words(named), secret: words(patterns) })
    }

    /// True for a name that a person calls secret.
    #[must_use]
    pub fn is_secret(&self, name: &[u8]) -> bool {
        self.secret.iter().any(|pattern| is_like(pattern.as_bytes(), name))
    }
}

/// A boolean of system or global scope; absent is false.
///
/// # Errors
/// The value is no boolean.
pub fn user_scope_bool(repo: &gix::Repository, key: &str) -> Result<bool, SettingsError> {
    let snapshot = repo.config_snapshot();
    match snapshot.plumbing().boolean_filter(key, is_user_scope) {
        Ok(value) => Ok(value.unwrap_or(false)),
        Err(_) => {
            let value = user_scope(repo, key)?.unwrap_or_default();
            Err(bad(key, &value, "not a boolean"))
        }
    }
}

/// A value that could weaken a rule: this repository's user settings, else system or global scope.
///
/// # Errors
/// It is not UTF-8.
pub fn protected(
    repo: &gix::Repository,
    settings: &RepoSettings,
    key: &str,
) -> Result<Option<String>, SettingsError> {
    match settings.get(key)? {
        Some(value) => Ok(Some(value)),
        None => user_scope(repo, key),
    }
}

/// As [`protected`], as git reads booleans; a key without `=` is true, an absent one false.
///
/// # Errors
/// The value is no boolean: it is neither yes nor no.
pub fn protected_bool(
    repo: &gix::Repository,
    settings: &RepoSettings,
    key: &str,
) -> Result<bool, SettingsError> {
    let value = match settings.file.boolean(key) {
        Ok(None) => repo.config_snapshot().plumbing().boolean_filter(key, is_user_scope),
        own => own,
    };
    match value {
        Ok(value) => Ok(value.unwrap_or(false)),
        Err(_) => {
            let value = protected(repo, settings, key)?.unwrap_or_default();
            Err(bad(key, &value, "not a boolean"))
        }
    }
}

/// Protected values of repository, worktree or command scope, which have no effect: `key (scope)`.
#[must_use]
pub fn ignored(repo: &gix::Repository) -> Vec<String> {
    let snapshot = repo.config_snapshot();
    let mut found = Vec::new();
    for section in snapshot.plumbing().sections() {
        let Some(scope) = foreign_scope(section.meta()) else { continue };
        let subsection = section.header().subsection_name().map(|sub| format!("{sub}."));
        let prefix = format!("{}.{}", section.header().name(), subsection.unwrap_or_default());
        for name in section.value_names() {
            let key = format!("{prefix}{name}");
            let mut protected = PROTECTED_KEYS.iter().chain(PROTECTED_GIT_KEYS);
            found.extend(
                protected
                    .find(|known| known.eq_ignore_ascii_case(&key))
                    .map(|known| format!("{known} ({scope})")),
            );
        }
    }
    found.dedup();
    found
}

fn foreign_scope(meta: &Metadata) -> Option<&'static str> {
    match meta.source.kind() {
        Kind::Repository if meta.source == Source::Worktree => Some("worktree"),
        Kind::Repository => Some("local"),
        Kind::Override => Some("command"),
        Kind::GitInstallation | Kind::System | Kind::Global => None,
    }
}

/// True for what only the person writes: system and global configuration.
pub(in crate::store) fn is_user_scope(meta: &Metadata) -> bool {
    foreign_scope(meta).is_none()
}

/// A file name in a user-scope value: absolute, or below the home directory with `~/`. Relative names
/// are refused: they would mean another file in every directory.
///
/// # Errors
/// Neither of both.
pub fn expand_path(env: &Env, key: &str, value: &str) -> Result<PathBuf, SettingsError> {
    let path = match value.strip_prefix("~/") {
        Some(rest) => env.home().ok_or(SettingsError::NoHome)?.join(rest),
        None => PathBuf::from(value),
    };
    if path.is_absolute() { Ok(path) } else { Err(bad(key, value, "not an absolute path")) }
}

fn text(key: &str, value: &[u8]) -> Result<String, SettingsError> {
    std::str::from_utf8(value)
        .map(str::to_owned)
        .map_err(|_| bad(key, &String::from_utf8_lossy(value), "not UTF-8"))
}

fn require_ref(name: String) -> Result<String, SettingsError> {
    let full = name.starts_with("refs/heads/") || name.starts_with("refs/remotes/");
    if full && gix::refs::FullName::try_from(name.as_str()).is_ok() {
        Ok(name)
    } else {
        Err(bad("agentproto.trustedRef", &name, "not the full name of a branch"))
    }
}

fn bad(key: &str, value: &str, why: &'static str) -> SettingsError {
    SettingsError::Value { key: key.to_owned(), value: value.to_owned(), why }
}

fn set_value(file: &mut File, key: &str, value: &str) -> Result<(), SettingsError> {
    let (section, name) = key.split_once('.').ok_or_else(|| bad(key, value, "no section"))?;
    file.set_raw_value_by(section, None::<&gix::bstr::BStr>, name, value)
        .map_err(|_| bad(key, value, "not a key"))?;
    Ok(())
}

/// Parses a configuration file; none when it does not exist.
fn load_config(path: &Path) -> Result<Option<File>, SettingsError> {
    let Some(bytes) = read_optional(path)? else { return Ok(None) };
    let meta = Metadata::from(Source::User);
    File::from_bytes_no_includes(&bytes, meta, gix::config::file::init::Options::default())
        .map(Some)
        .map_err(|why| SettingsError::Syntax { path: path.to_owned(), why: why.to_string() })
}

/// Reads a file of the user; none when it does not exist, an error for everything else.
///
/// # Errors
/// It exists but cannot be read.
pub fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, SettingsError> {
    Ok(files::read_optional(path, limits::SETTINGS_FILE_BYTES)?)
}

/// Writes a file of the user: a new file beside it (0600), synced, renamed into place. Parent
/// directories are made (0700).
///
/// # Errors
/// The file system refused; the old file is still whole.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), SettingsError> {
    Ok(files::write_private(path, bytes)?)
}

#[cfg(test)]
mod tests;

//! Which key signs and which allowed-signers file decides.
//!
//! Contract: only what a person owns is asked: this repository's user settings, system and global git
//! configuration, the trusted ref of a clone the person introduced. Repository, worktree and command
//! scope are never read (invariant 12, decisions 4 and 7). The first source that exists decides; one that
//! exists but cannot be read or understood is an error and never a reason to ask the next.

use super::{
    key::{self, KeyError, SigningKey},
    signers::{Signers, SignersError},
};
use crate::{
    code::Code,
    store::{
        settings::{SettingsError, expand_path, read_optional, user_scope},
        trusted::{Trust, TrustedError, load_rule_file},
    },
    sys::{digest, env::Env, files},
};
use std::path::{Path, PathBuf};

/// The signers file in the tree of the trusted ref.
pub const RULE_FILE: &str = ".agentproto/allowed_signers";

/// No signers file is in force, or it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SignersInForceError {
    /// No source names a file.
    #[error(
        "no allowed-signers file is in force: run git agentproto init, or set \
         agentproto.allowedSignersFile in global configuration"
    )]
    None,
    /// A configured file is not there.
    #[error("{key} names {path}, which does not exist")]
    Gone {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be understood.
    #[error("{place}: {source}")]
    Invalid {
        /// File, or path and ref.
        place: String,
        /// What is wrong.
        source: SignersError,
    },
    /// The user's files or configuration cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The trusted ref cannot be read.
    #[error(transparent)]
    Trusted(#[from] TrustedError),
}

impl SignersInForceError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::None | Self::Gone { .. } => Code::SignersMissing,
            Self::Invalid { source, .. } => source.code(),
            // An existing file that cannot be read decides nothing and lets nobody pass.
            Self::Settings(SettingsError::File(_))
            | Self::Trusted(TrustedError::NotAFile { .. }) => Code::SignersInvalid,
            Self::Settings(why) => why.code(),
            Self::Trusted(why) => why.code(),
        }
    }
}

/// Where the file in force comes from, as it is recorded under refs (decisions 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignersSource {
    /// The user's settings of this repository.
    RepoUser,
    /// System or global configuration.
    Global,
    /// The trusted ref.
    TrustedRef,
}

impl SignersSource {
    /// The word in events and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RepoUser => "repo-user",
            Self::Global => "global",
            Self::TrustedRef => "trusted-ref",
        }
    }
}

/// The allowed-signers file that decides now.
#[derive(Clone, Debug)]
pub struct SignersInForce {
    /// Its content, understood.
    pub signers: Signers,
    /// Where it comes from.
    pub source: SignersSource,
    /// Hex SHA-256 of its bytes.
    pub digest: String,
    /// Its file name, or path and ref; for people, never stored under a ref.
    pub place: String,
}

impl SignersInForce {
    /// Finds and reads the file in force: the user's file of this repository, else
    /// `agentproto.allowedSignersFile`, else the trusted ref, else `gpg.ssh.allowedSignersFile`. A clone
    /// nobody introduced to this machine has no say itself: there the trusted ref is left out.
    ///
    /// # Errors
    /// There is none, or the first one found cannot be read or understood.
    pub fn load(
        repo: &gix::Repository,
        env: &Env,
        trust: &Trust,
    ) -> Result<Self, SignersInForceError> {
        let own = trust.settings.signers_file();
        if let Some(bytes) = read_optional(&own)? {
            return Self::parse(&bytes, SignersSource::RepoUser, own.display().to_string());
        }
        if let Some(found) = Self::configured(repo, env, "agentproto.allowedSignersFile")? {
            return Ok(found);
        }
        if trust.known_path
            && let Some(bytes) = load_rule_file(repo, trust.tip, RULE_FILE)?
        {
            let place = format!("{RULE_FILE} on {}", trust.trusted_ref);
            return Self::parse(&bytes, SignersSource::TrustedRef, place);
        }
        Self::configured(repo, env, "gpg.ssh.allowedSignersFile")?.ok_or(SignersInForceError::None)
    }

    fn configured(
        repo: &gix::Repository,
        env: &Env,
        key: &'static str,
    ) -> Result<Option<Self>, SignersInForceError> {
        let Some(value) = user_scope(repo, key)? else { return Ok(None) };
        let path = expand_path(env, key, &value)?;
        let Some(bytes) = read_optional(&path)? else {
            return Err(SignersInForceError::Gone { key, path });
        };
        Self::parse(&bytes, SignersSource::Global, path.display().to_string()).map(Some)
    }

    fn parse(
        bytes: &[u8],
        source: SignersSource,
        place: String,
    ) -> Result<Self, SignersInForceError> {
        match Signers::parse(bytes) {
            Ok(signers) => Ok(Self { signers, source, digest: digest::sha256(bytes), place }),
            Err(source) => Err(SignersInForceError::Invalid { place, source }),
        }
    }
}

/// No key signs.
#[derive(Debug, thiserror::Error)]
pub enum ChooseKeyError {
    /// Nothing names a key.
    #[error(
        "no signing key: run git agentproto init, or set agentproto.signingKey in global configuration{0}"
    )]
    None(&'static str),
    /// The named key cannot sign.
    #[error("{from}: {source}")]
    Key {
        /// What named it.
        from: &'static str,
        /// Why not.
        source: KeyError,
    },
    /// The configuration cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl ChooseKeyError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::None(_) => Code::NoSigningKey,
            Self::Key { source, .. } => source.code(),
            Self::Settings(why) => why.code(),
        }
    }
}

/// The key file `init` makes when no other key is there.
///
/// # Errors
/// There is no home directory.
pub fn own_key_file(env: &Env) -> Result<PathBuf, SettingsError> {
    env.config_dir().map(|dir| dir.join("ack_ed25519")).ok_or(SettingsError::NoHome)
}

/// Loads the key that signs: `--key`, else `agentproto.signingKey`, else git's own ssh key, else the file
/// `init` made. The first one named signs or nobody does: no other key steps in for it.
///
/// # Errors
/// None is named, or the named one cannot sign here.
pub fn load_signing_key(
    repo: &gix::Repository,
    env: &Env,
    explicit: Option<&Path>,
) -> Result<SigningKey, ChooseKeyError> {
    if let Some(path) = explicit {
        return load_file(&env.cwd().join(path), "--key");
    }
    if let Some(value) = user_scope(repo, "agentproto.signingKey")? {
        return load_value(env, "agentproto.signingKey", &value);
    }
    let format = user_scope(repo, "gpg.format")?;
    let is_ssh = format.as_deref() == Some("ssh");
    if let Some(value) = user_scope(repo, "user.signingKey")?
        && (is_ssh || key::is_literal(&value))
    {
        return load_value(env, "user.signingKey", &value);
    }
    let own = own_key_file(env)?;
    match files::look_through(&own) {
        Ok(Some(_)) => load_file(&own, "the key made by init"),
        Ok(None) if is_ssh || format.is_none() => Err(ChooseKeyError::None("")),
        Ok(None) => Err(ChooseKeyError::None(" (gpg.format is not ssh: acks need an ssh key)")),
        Err(e) => {
            let source = KeyError::Unreadable { path: own, source: e.source };
            Err(ChooseKeyError::Key { from: "the key made by init", source })
        }
    }
}

fn load_value(env: &Env, from: &'static str, value: &str) -> Result<SigningKey, ChooseKeyError> {
    if key::is_literal(value) {
        return key::load_literal(value).map_err(|source| ChooseKeyError::Key { from, source });
    }
    load_file(&expand_path(env, from, value)?, from)
}

fn load_file(path: &Path, from: &'static str) -> Result<SigningKey, ChooseKeyError> {
    key::load(path).map_err(|source| ChooseKeyError::Key { from, source })
}

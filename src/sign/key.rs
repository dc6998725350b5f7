//! SSH key files of the person who signs.
//!
//! Contract: unit 01 signs with unencrypted OpenSSH private key files of type ed25519 and ecdsa-p256;
//! every other key is refused by name. Exactly the named key signs: a public key given in place of a
//! private one selects the private file beside it and must match it. An existing file is never
//! overwritten.

use crate::{
    code::Code,
    limits,
    sys::files::{self, Durable},
};
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, LineEnding, PrivateKey, PublicKey};
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why a key cannot be used or made.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read key {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file holds no OpenSSH key.
    #[error("{path} holds no OpenSSH key: {why}")]
    NotAKey {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Only an agent or a hardware token can sign with it.
    #[error("{key} is {why}: only an ssh agent could sign with it")]
    NeedsAgent {
        /// File or public key.
        key: String,
        /// What kind of key it is.
        why: &'static str,
    },
    /// A kind of key that is not accepted.
    #[error("{key} is of type {actual}, expected ed25519 or ecdsa-p256")]
    Type {
        /// File or public key.
        key: String,
        /// Its type.
        actual: String,
    },
    /// The private file beside a public key belongs to another key.
    #[error("{path} holds key {actual}, expected {expected}")]
    Mismatch {
        /// The private file.
        path: PathBuf,
        /// Fingerprint of the public key that was named.
        expected: String,
        /// Fingerprint of the key in the file.
        actual: String,
    },
    /// The new key cannot be written, or something is there already.
    #[error("cannot create key {path}: {source}")]
    Create {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The key cannot be generated or written down.
    #[error("cannot generate or encode the key: {0}")]
    Encode(ssh_key::Error),
}

impl KeyError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Unreadable { .. } | Self::NotAKey { .. } | Self::Mismatch { .. } => {
                Code::KeyUnreadable
            }
            Self::NeedsAgent { .. } => Code::KeyNeedsAgent,
            Self::Type { .. } => Code::KeyTypeUnsupported,
            Self::Create { .. } | Self::Encode(_) => Code::Io,
        }
    }
}

/// A private key that can sign here and now.
#[derive(Debug)]
pub struct SigningKey {
    private: PrivateKey,
    path: PathBuf,
}

impl SigningKey {
    /// The file it came from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        self.private.public_key()
    }

    /// Its fingerprint, `SHA256:…`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(self.public())
    }

    pub(super) fn private(&self) -> &PrivateKey {
        &self.private
    }
}

/// The fingerprint people know, `SHA256:…`.
#[must_use]
pub fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// The `type base64` words of a public key, as they stand in an allowed-signers file.
///
/// # Errors
/// The key cannot be encoded.
pub fn public_words(key: &PublicKey) -> Result<String, KeyError> {
    let line = key.to_openssh().map_err(KeyError::Encode)?;
    Ok(line.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

/// True for the key types that count in acks.
pub(super) fn is_supported(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::Ed25519 | Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 })
}

fn is_hardware(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256)
}

/// Loads the key a person named, in the forms git knows for `user.signingKey`: a private key file, a
/// public key file, or a public key itself (`key::ssh-ed25519 AAAA…`, `ssh-ed25519 AAAA…`).
///
/// # Errors
/// See [`KeyError`].
pub fn load(path: &Path) -> Result<SigningKey, KeyError> {
    let text = read(path)?;
    match PublicKey::from_openssh(text.trim()) {
        Ok(public) => load_beside(path, &public),
        Err(_) => parse(path, &text),
    }
}

/// What a public key without a file can tell: that it needs an agent, or that no agent would help.
#[must_use]
pub fn refuse_literal(literal: &str) -> KeyError {
    let text = literal.strip_prefix("key::").unwrap_or(literal).trim();
    match PublicKey::from_openssh(text) {
        Ok(public) => {
            let key = fingerprint(&public);
            require_type(&key, &public.algorithm())
                .err()
                .unwrap_or(KeyError::NeedsAgent { key, why: "a public key without a file" })
        }
        Err(why) => KeyError::NotAKey { path: PathBuf::from(literal), why: why.to_string() },
    }
}

/// True when a `user.signingKey` value is a public key itself and not a file name.
#[must_use]
pub fn is_literal(value: &str) -> bool {
    ["key::", "ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-"].iter().any(|p| value.starts_with(p))
}

fn read(path: &Path) -> Result<String, KeyError> {
    let text =
        files::read_given(path, limits::KEY_FILE_BYTES).map_err(|e| e.source).and_then(|bytes| {
            String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
        });
    text.map_err(|source| KeyError::Unreadable { path: path.to_owned(), source })
}

fn load_beside(path: &Path, public: &PublicKey) -> Result<SigningKey, KeyError> {
    let key = path.display().to_string();
    require_type(&key, &public.algorithm())?;
    let alone = KeyError::NeedsAgent { key, why: "a public key without its private file" };
    if path.extension().is_none_or(|e| e != "pub") {
        return Err(alone);
    }
    let beside = path.with_extension("");
    match files::look_through(&beside) {
        Ok(Some(_)) => {}
        Ok(None) => return Err(alone),
        Err(e) => return Err(KeyError::Unreadable { path: beside, source: e.source }),
    }
    let private = parse(&beside, &read(&beside)?)?;
    if private.public().key_data() == public.key_data() {
        return Ok(private);
    }
    let (expected, actual) = (fingerprint(public), private.fingerprint());
    Err(KeyError::Mismatch { path: beside, expected, actual })
}

fn parse(path: &Path, text: &str) -> Result<SigningKey, KeyError> {
    let key = path.display().to_string();
    if ["BEGIN RSA PRIVATE KEY", "BEGIN DSA PRIVATE KEY"].iter().any(|head| text.contains(head)) {
        return Err(KeyError::Type { key, actual: "rsa or dsa".into() });
    }
    let private = PrivateKey::from_openssh(text)
        .map_err(|why| KeyError::NotAKey { path: path.to_owned(), why: why.to_string() })?;
    require_type(&key, &private.public_key().algorithm())?;
    if private.is_encrypted() {
        return Err(KeyError::NeedsAgent { key, why: "encrypted" });
    }
    Ok(SigningKey { private, path: path.to_owned() })
}

fn require_type(key: &str, algorithm: &Algorithm) -> Result<(), KeyError> {
    if is_supported(algorithm) {
        Ok(())
    } else if is_hardware(algorithm) {
        Err(KeyError::NeedsAgent { key: key.to_owned(), why: "a hardware key" })
    } else {
        Err(KeyError::Type { key: key.to_owned(), actual: algorithm.to_string() })
    }
}

/// Makes an ed25519 key file (0600) with its `.pub` beside it; parent directories are made (0700).
///
/// # Errors
/// Either file exists or cannot be written; nothing is overwritten.
pub fn make(path: &Path, comment: &str) -> Result<SigningKey, KeyError> {
    let mut private =
        PrivateKey::random(&mut rand_core::OsRng, Algorithm::Ed25519).map_err(KeyError::Encode)?;
    private.set_comment(comment);
    let secret = private.to_openssh(LineEnding::LF).map_err(KeyError::Encode)?;
    let public = private.public_key().to_openssh().map_err(KeyError::Encode)?;
    let public_path = public_path(path);
    if let Some(dir) = path.parent() {
        files::make_private_dirs(dir)
            .map_err(|e| KeyError::Create { path: path.to_owned(), source: e.source })?;
    }
    // The public half first: a private key that exists is always a complete pair.
    create(&public_path, 0o644, format!("{public}\n").as_bytes())?;
    create(path, 0o600, secret.as_bytes()).inspect_err(|_| {
        // The pair was not made, so its half goes too; what remains is said by the error.
        let _ = files::remove_optional(&public_path);
    })?;
    Ok(SigningKey { private, path: path.to_owned() })
}

fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    PathBuf::from(name)
}

fn create(path: &Path, mode: u32, bytes: &[u8]) -> Result<(), KeyError> {
    files::write_new(path, bytes, mode, Durable::Yes)
        .map_err(|e| KeyError::Create { path: path.to_owned(), source: e.source })
}

//! SSH key files of the person who signs.
//!
//! Contract: unencrypted OpenSSH private key files of type ed25519 and ecdsa-p256 sign by themselves. Encrypted ones, those
//! of a hardware token and public keys whose private half an agent holds sign through a program (`program`); every other
//! type is refused by name. Exactly the named key signs: a public key given in place of a private one selects the private file
//! beside it, which must match it, else the agent. An existing file is never overwritten.

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
    /// A kind of key that is not accepted.
    #[error(
        "{key} is of type {actual}, expected ed25519 or ecdsa-p256, or one of these in a hardware token"
    )]
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
            Self::Type { .. } => Code::KeyTypeUnsupported,
            Self::Create { .. } | Self::Encode(_) => Code::Io,
        }
    }
}

/// A key to sign with.
#[derive(Debug)]
pub struct SigningKey {
    public: PublicKey,
    named: Named,
    secret: Secret,
}

/// How a person named a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// By this file, of the private key or of the public one.
    File(PathBuf),
    /// By its public half itself.
    Literal,
}

#[derive(Debug)]
enum Secret {
    /// In the file, for everybody to use who can read it.
    Here(Box<PrivateKey>),
    /// Behind a passphrase, in a token or in an agent.
    Elsewhere,
}

impl SigningKey {
    /// What names it.
    #[must_use]
    pub fn named(&self) -> &Named {
        &self.named
    }

    /// Its file, else its fingerprint; for people.
    #[must_use]
    pub fn shown(&self) -> String {
        match &self.named {
            Named::File(path) => path.display().to_string(),
            Named::Literal => self.fingerprint(),
        }
    }

    /// Its public half.
    #[must_use]
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Its fingerprint, `SHA256:…`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        fingerprint(self.public())
    }

    /// True when a program has to be asked, which may ask for a passphrase or a touch.
    #[must_use]
    pub fn needs_program(&self) -> bool {
        self.private().is_none()
    }

    /// The key itself; none when a program has to be asked.
    pub(super) fn private(&self) -> Option<&PrivateKey> {
        match &self.secret {
            Secret::Here(private) => Some(private),
            Secret::Elsewhere => None,
        }
    }

    fn elsewhere(public: PublicKey, named: Named) -> Self {
        Self { public, named, secret: Secret::Elsewhere }
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
    is_hardware(algorithm)
        || matches!(
            algorithm,
            Algorithm::Ed25519 | Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 }
        )
}

/// True for those whose every use is confirmed at a token.
pub(super) fn is_hardware(algorithm: &Algorithm) -> bool {
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
        Ok(public) => load_beside(path, public),
        Err(_) => parse(path, &text),
    }
}

/// Takes a public key itself (`key::ssh-ed25519 AAAA…`, `ssh-ed25519 AAAA…`); an agent signs with it.
///
/// # Errors
/// It is none, or of a type that does not count.
pub fn load_literal(literal: &str) -> Result<SigningKey, KeyError> {
    let text = literal.strip_prefix("key::").unwrap_or(literal).trim();
    let public = PublicKey::from_openssh(text)
        .map_err(|why| KeyError::NotAKey { path: PathBuf::from(literal), why: why.to_string() })?;
    require_type(&fingerprint(&public), &public.algorithm())?;
    Ok(SigningKey::elsewhere(public, Named::Literal))
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

fn load_beside(path: &Path, public: PublicKey) -> Result<SigningKey, KeyError> {
    require_type(&path.display().to_string(), &public.algorithm())?;
    let alone = |public| Ok(SigningKey::elsewhere(public, Named::File(path.to_owned())));
    if path.extension().is_none_or(|e| e != "pub") {
        return alone(public);
    }
    let beside = path.with_extension("");
    match files::look_through(&beside) {
        Ok(Some(_)) => {}
        Ok(None) => return alone(public),
        Err(e) => return Err(KeyError::Unreadable { path: beside, source: e.source }),
    }
    let private = parse(&beside, &read(&beside)?)?;
    if private.public().key_data() == public.key_data() {
        return Ok(private);
    }
    let (expected, actual) = (fingerprint(&public), private.fingerprint());
    Err(KeyError::Mismatch { path: beside, expected, actual })
}

fn parse(path: &Path, text: &str) -> Result<SigningKey, KeyError> {
    let key = path.display().to_string();
    if ["BEGIN RSA PRIVATE KEY", "BEGIN DSA PRIVATE KEY"].iter().any(|head| text.contains(head)) {
        return Err(KeyError::Type { key, actual: "rsa or dsa".into() });
    }
    let private = PrivateKey::from_openssh(text)
        .map_err(|why| KeyError::NotAKey { path: path.to_owned(), why: why.to_string() })?;
    let public = private.public_key().clone();
    require_type(&key, &public.algorithm())?;
    let named = Named::File(path.to_owned());
    if private.is_encrypted() || is_hardware(&public.algorithm()) {
        return Ok(SigningKey::elsewhere(public, named));
    }
    Ok(SigningKey { public, named, secret: Secret::Here(Box::new(private)) })
}

fn require_type(key: &str, algorithm: &Algorithm) -> Result<(), KeyError> {
    if is_supported(algorithm) {
        return Ok(());
    }
    Err(KeyError::Type { key: key.to_owned(), actual: algorithm.to_string() })
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
    let public = private.public_key().clone();
    let named = Named::File(path.to_owned());
    Ok(SigningKey { public, named, secret: Secret::Here(Box::new(private)) })
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

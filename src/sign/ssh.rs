//! SSHSIG signatures (OpenSSH `PROTOCOL.sshsig`) as one base64 word.
//!
//! Contract: what is made here is accepted by `ssh-keygen -Y verify`, what `ssh-keygen -Y sign` makes
//! with an ed25519 or ecdsa-p256 key, in a hardware token or not, is accepted here. Always SHA-512, version 1, nothing reserved, and
//! only the one binary spelling of a signature. Who the key belongs to is not judged here.

use super::{
    NAMESPACE,
    key::{SigningKey, is_hardware, is_supported},
    program::{Program, ProgramError},
};
use crate::{code::Code, domain::ack::AckOutcome};
use ssh_key::{HashAlg, LineEnding, PublicKey, SshSig};

/// A signature could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The key does not sign.
    #[error("cannot sign with {key}: {source}")]
    Key {
        /// Its fingerprint.
        key: String,
        /// Why not.
        source: ssh_key::Error,
    },
    /// The program that would have signed does not.
    #[error("cannot sign with {key}: {source}")]
    Program {
        /// Its fingerprint.
        key: String,
        /// Why not.
        source: ProgramError,
    },
}

impl SignError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Key { .. } => Code::KeyTypeUnsupported,
            Self::Program { source, .. } => source.code(),
        }
    }
}

/// Why a signature does not count.
#[derive(Debug, thiserror::Error)]
pub enum SigError {
    /// It is no SSHSIG this version reads.
    #[error("not an ssh signature: {0}")]
    Malformed(String),
    /// It was made for another purpose.
    #[error("the signature is for namespace '{actual}', expected '{NAMESPACE}'")]
    Namespace {
        /// The namespace it was made for.
        actual: String,
    },
    /// It was made with a kind of key that is not accepted.
    #[error("the signature is by a key of type {0}, expected ed25519 or ecdsa-p256")]
    KeyType(String),
    /// A hardware token made it without anybody touching it.
    #[error("the signature was made by a hardware token that nobody touched")]
    NobodyThere,
    /// It does not fit the bytes.
    #[error("the signature does not fit what it signs")]
    Forged,
}

impl SigError {
    /// The outcome this is shown as.
    #[must_use]
    pub fn outcome(&self) -> AckOutcome {
        match self {
            Self::Malformed(_) => AckOutcome::Malformed,
            Self::Namespace { .. } | Self::KeyType(_) | Self::NobodyThere => {
                AckOutcome::Unauthorized
            }
            Self::Forged => AckOutcome::Forged,
        }
    }

    /// Its stable code, that of the outcome.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Malformed(_) => Code::Malformed,
            Self::Namespace { .. } | Self::KeyType(_) | Self::NobodyThere => Code::Unauthorized,
            Self::Forged => Code::Forged,
        }
    }
}

/// Signs `payload` for acks; the result is the binary SSHSIG in base64 without line breaks.
///
/// # Errors
/// The key cannot sign, or nobody let it.
pub fn sign(
    key: &SigningKey,
    payload: &[u8],
    program: Option<&Program<'_>>,
) -> Result<String, SignError> {
    let failed = |source| SignError::Key { key: key.fingerprint(), source };
    let sig = match key.private() {
        Some(private) => private.sign(NAMESPACE, HashAlg::Sha512, payload).map_err(failed)?,
        None => {
            let none = || Err(ProgramError::Refused("no program is asked here".to_owned()));
            let made = program.map_or_else(none, |program| program.sign(key, payload));
            made.map_err(|source| SignError::Program { key: key.fingerprint(), source })?
        }
    };
    encode(&sig).map_err(failed)
}

/// Checks a signature over `payload` and returns the key that made it.
///
/// # Errors
/// See [`SigError`]; each kind has its own outcome.
pub fn verify(sig_base64: &str, payload: &[u8]) -> Result<PublicKey, SigError> {
    let sig = decode(sig_base64)?;
    let key = PublicKey::from(sig.public_key().clone());
    if !is_supported(&key.algorithm()) {
        return Err(SigError::KeyType(key.algorithm().to_string()));
    }
    if is_hardware(&key.algorithm()) && !somebody_was_there(&sig) {
        return Err(SigError::NobodyThere);
    }
    if sig.namespace() != NAMESPACE {
        return Err(SigError::Namespace { actual: sig.namespace().to_owned() });
    }
    key.verify(NAMESPACE, payload, &sig).map_err(|_| SigError::Forged)?;
    Ok(key)
}

/// A token's signature ends with its flags and its counter (OpenSSH `PROTOCOL.u2f`); the lowest flag says that somebody
/// touched it. An ack is a person's answer, so it counts with it alone; `ssh-keygen -Y verify` does not ask.
fn somebody_was_there(sig: &SshSig) -> bool {
    const COUNTER_BYTES: usize = 4;
    const TOUCHED: u8 = 1;
    sig.signature()
        .as_bytes()
        .iter()
        .rev()
        .nth(COUNTER_BYTES)
        .is_some_and(|flags| flags & TOUCHED != 0)
}

/// OpenSSH's armour, which the library reads and writes, around the one word of ours.
pub(super) const HEAD: &str = "-----BEGIN SSH SIGNATURE-----";
pub(super) const FOOT: &str = "-----END SSH SIGNATURE-----";
const ARMOUR_COLUMNS: usize = 70;

fn encode(sig: &SshSig) -> Result<String, ssh_key::Error> {
    let pem = sig.to_pem(LineEnding::LF)?;
    Ok(pem.lines().filter(|line| *line != HEAD && *line != FOOT).collect())
}

/// The signature in the form `ssh-keygen -Y verify` reads. Only for base64, which is ASCII.
fn armour(sig_base64: &str) -> String {
    let mut pem = format!("{HEAD}\n");
    for (at, c) in sig_base64.chars().enumerate() {
        if at > 0 && at % ARMOUR_COLUMNS == 0 {
            pem.push('\n');
        }
        pem.push(c);
    }
    pem + "\n" + FOOT + "\n"
}

fn decode(sig_base64: &str) -> Result<SshSig, SigError> {
    let malformed = |why: &dyn std::fmt::Display| SigError::Malformed(why.to_string());
    let sig = SshSig::from_pem(armour(sig_base64)).map_err(|e| malformed(&e))?;
    if sig.version() != SshSig::VERSION || !sig.reserved().is_empty() {
        return Err(malformed(&"unknown version or reserved data"));
    }
    if sig.hash_alg() != HashAlg::Sha512 {
        return Err(malformed(&format!("hash {}, expected sha512", sig.hash_alg())));
    }
    let again = encode(&sig).map_err(|e| malformed(&e))?;
    if again == sig_base64 { Ok(sig) } else { Err(malformed(&"not the one spelling of it")) }
}

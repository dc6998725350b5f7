//! SSH signatures: keys, SSHSIG, allowed-signers files, and which of them are in force.
//!
//! Contract: no program is run to check anything, and only the one a person chose to sign (`program`); nothing that
//! repository, worktree or command scope says is believed (invariant 12). What cannot be evaluated is an error, never "unsigned" and never "fine".

pub mod choose;
pub mod exclude;
pub mod key;
pub mod program;
pub mod signers;
pub mod ssh;

use crate::{
    code::Code,
    domain::{
        ack::{AckOutcome, AckStatement},
        time::Timestamp,
    },
    wire::ack_line::{AckLine, payload},
};
use key::SigningKey;
use program::Program;
use signers::{Signers, Why};
use ssh::{SigError, SignError};

/// The SSHSIG namespace of acks.
pub const NAMESPACE: &str = "agentproto-ack";

/// Why a line is not a signature of an allowed signer.
#[derive(Debug, thiserror::Error)]
pub enum BadAck {
    /// The signature itself.
    #[error(transparent)]
    Signature(#[from] SigError),
    /// The line names another key than the one that signed.
    #[error("the line names key {stated}, but {actual} signed it")]
    OtherKey {
        /// The `key=` field.
        stated: String,
        /// The key in the signature.
        actual: String,
    },
    /// The allowed-signers file does not allow it.
    #[error(transparent)]
    Signer(#[from] Why),
}

impl BadAck {
    /// The outcome this is shown as.
    #[must_use]
    pub fn outcome(&self) -> AckOutcome {
        match self {
            Self::Signature(why) => why.outcome(),
            Self::OtherKey { .. } => AckOutcome::Forged,
            Self::Signer(_) => AckOutcome::Unauthorized,
        }
    }

    /// Its stable code: the outcome's, but a certificate authority is named.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Signature(why) => why.code(),
            Self::OtherKey { .. } => Code::Forged,
            Self::Signer(why) => why.code(),
        }
    }
}

/// Signs a statement; its `key` becomes the key that signs. Without a program only a key signs that needs none.
///
/// # Errors
/// The key cannot sign, or nobody let it.
pub fn sign(
    statement: AckStatement,
    key: &SigningKey,
    program: Option<&Program<'_>>,
) -> Result<AckLine, SignError> {
    let statement = AckStatement { key: key.fingerprint(), ..statement };
    let sig = ssh::sign(key, payload(&statement).as_bytes(), program)?;
    Ok(AckLine { statement, sig })
}

/// Judges signature and signer of a line at the instant of its consumption. Whether it answers this
/// request, in time and for the first time, is the policy's to say.
///
/// # Errors
/// The signature does not fit, was made with another key than it says, or its signer is not allowed.
pub fn judge(line: &AckLine, signers: &Signers, at: Timestamp) -> Result<(), BadAck> {
    let key = ssh::verify(&line.sig, payload(&line.statement).as_bytes())?;
    let (stated, actual) = (&line.statement.key, key::fingerprint(&key));
    if *stated != actual {
        return Err(BadAck::OtherKey { stated: stated.clone(), actual });
    }
    Ok(signers.authorize(&key, &line.statement.signer, NAMESPACE, at)?)
}

#[cfg(test)]
mod tests;

//! The signed answer of a person to one commit request.
//!
//! Contract: a statement names everything it approves (repository, policy, request, candidate, its
//! parent and tree, branch, gate results), who says so with which key, and until when. Whatever is not
//! named cannot be approved by it, so copying it to another commit, branch or repository proves nothing.

use super::{ids::PolicyId, oid::Oid, time::Timestamp};
use crate::{code::Code, limits};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the person said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Land the candidate.
    Approve,
    /// Do not land it.
    Reject,
}

impl Decision {
    /// The word used in lines and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Reject => "reject",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Everything an ack says, without its signature (spec commit-and-ack, Ack).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AckStatement {
    /// Approval or rejection.
    pub decision: Decision,
    /// Repository id: hex of the root commit of the trusted branch.
    pub repo: String,
    /// The policy that waits.
    pub policy: PolicyId,
    /// Journal commit of its `policy:commit-ready`; makes the answer single-use.
    pub request: Oid,
    /// The commit to land.
    pub candidate: Oid,
    /// Its parent.
    pub parent: Oid,
    /// Its tree.
    pub tree: Oid,
    /// Full name of the branch it lands on, or of a worktree's `HEAD` that is on none.
    pub branch: String,
    /// Hex SHA-256 over the gate lines of the green attempt (`wire::gate_line::gates_digest`).
    pub gates: String,
    /// Principal of the allowed-signers file.
    pub signer: String,
    /// Fingerprint of the key, `SHA256:…`.
    pub key: String,
    /// When it was signed, by the signer's clock.
    pub issued: Timestamp,
    /// When it stops counting, judged at consumption.
    pub expires: Timestamp,
    /// Why, in the person's words; empty when none was given.
    pub reason: String,
}

impl AckStatement {
    /// Why it does not count at this instant: it is over, or was issued later than a clock a little ahead explains. Either
    /// way the instant is outside of the time it names. None when it counts.
    #[must_use]
    pub fn out_of_time(&self, at: Timestamp) -> Option<String> {
        if at >= self.expires {
            return Some(format!("it expired at {}", self.expires));
        }
        let ahead = self.issued > at.plus_ms(limits::ACK_AHEAD_MS);
        ahead.then(|| format!("it says it was issued at {}, and it is {at} here", self.issued))
    }
}

/// How one ack line was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckOutcome {
    /// A verified answer to exactly this request.
    Valid,
    /// The signature does not fit the bytes.
    Forged,
    /// Principal, key or namespace is not allowed.
    Unauthorized,
    /// This line again, or its request was answered already.
    Replayed,
    /// For another candidate than the current one.
    Stale,
    /// Outside of its time: past its expiry, or before it was issued.
    Expired,
    /// The request is unknown here.
    Orphan,
    /// Not an ack line.
    Malformed,
}

impl AckOutcome {
    /// The stable code of a bad outcome; none when valid.
    #[must_use]
    pub fn code(self) -> Option<Code> {
        match self {
            Self::Valid => None,
            Self::Forged => Some(Code::Forged),
            Self::Unauthorized => Some(Code::Unauthorized),
            Self::Replayed => Some(Code::Replayed),
            Self::Stale => Some(Code::Stale),
            Self::Expired => Some(Code::Expired),
            Self::Orphan => Some(Code::Orphan),
            Self::Malformed => Some(Code::Malformed),
        }
    }

    /// The outcome as it is shown: `valid` or its code.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.code().map_or("valid", Code::as_str)
    }
}

impl fmt::Display for AckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_stored_under_the_name_they_are_shown_with() {
        let all = [
            AckOutcome::Valid,
            AckOutcome::Forged,
            AckOutcome::Unauthorized,
            AckOutcome::Replayed,
            AckOutcome::Stale,
            AckOutcome::Expired,
            AckOutcome::Orphan,
            AckOutcome::Malformed,
        ];
        for outcome in all {
            let stored = serde_json::to_string(&outcome).unwrap();
            assert_eq!(stored, format!("\"{outcome}\""));
        }
    }
}

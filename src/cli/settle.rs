//! Moving a policy on, after its part of a command is recorded.
//!
//! Contract: what is recorded stays recorded whatever happens here, so nothing here fails a command that
//! only promised to record. What stands in the way is said on stderr and given back.

use super::{cx::Cx, error::CliError};
use crate::{
    code::{Code, exit},
    domain::{
        gate::Verdict,
        ids::PolicyId,
        policy::{Policy, Status},
    },
    ledger::Ledger,
    limits,
    runtime::{
        perform::{self, Gates, Progress},
        wait::{self, Condition, Target, WaitAsk},
    },
};

use serde_json::Value;

/// Why a policy did not get as far as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The stable code.
    pub(super) code: Code,
    /// One sentence more.
    pub(super) because: String,
}

/// Does what is due for a policy and returns when nothing is any more; with `no_wait` a process of its own
/// does it. `Some` says why something is still due.
pub(super) fn settle(cx: &Cx, ledger: &Ledger, id: &PolicyId, no_wait: bool) -> Option<Held> {
    let done = if no_wait {
        perform::detach(ledger, id).map(|()| None).map_err(CliError::from)
    } else {
        carry_on(cx, ledger, id)
    };
    let held = match done {
        Ok(held) => held,
        Err(error) => Some(Held { code: error.code, because: error.message }),
    };
    if let Some(held) = &held {
        cx.note(&format!("{id}: {} [{}]", held.because, held.code));
        cx.note(&format!("hint: git agentproto wait {id}"));
    }
    held
}

fn carry_on(cx: &Cx, ledger: &Ledger, id: &PolicyId) -> Result<Option<Held>, CliError> {
    match perform::policy(ledger, id)? {
        Progress::Settled => Ok(None),
        Progress::Waiting { code, because } => Ok(Some(Held { code, because })),
        // Somebody else does it: watch until it is done.
        Progress::Held { owner: _ } => {
            let ask = WaitAsk {
                targets: vec![Target::Policy(id.clone())],
                conditions: vec![Condition::Settled],
                timeout_ms: limits::WAIT_DEFAULT_MS,
                since: None,
                all: true,
                gates: Gates::Here,
            };
            let waited = wait::wait(ledger, &ask, &|line| cx.warn(line.to_owned()))?;
            let late = waited.exit == exit::TIME;
            let because = "another process still performs it".to_owned();
            Ok(late.then_some(Held { code: Code::Timeout, because }))
        }
    }
}

/// Puts into a policy's object what holds it up, where the policy itself has no reason.
pub(super) fn tell(answer: &mut Value, held: Option<&Held>) {
    if let Some(held) = held
        && answer["reason"].is_null()
    {
        answer["reason"] = held.code.as_str().into();
        answer["because"] = held.because.as_str().into();
    }
}

/// The exit code of a command that ends by a policy's outcome (spec cli, Exit codes).
pub(super) fn exit_of(policy: &Policy) -> u8 {
    match policy.status {
        Status::Done => exit::DONE,
        Status::Cancelled => exit::NO,
        // As at the gate: a reason is a clear no or it is "cannot tell", whatever a command that is refused
        // for the same reason exits with.
        Status::Blocked => match policy.reason.as_deref().map(str::parse::<Code>) {
            Some(Ok(code)) if code.exit() == exit::NO || code == Code::Expired => exit::NO,
            Some(Ok(_)) => exit::BROKEN,
            // Other versions may have other reasons; what the gates said is left.
            Some(Err(_)) | None => match policy.verdict() {
                Some(Verdict::Broken) => exit::BROKEN,
                Some(Verdict::Pass | Verdict::Fail) | None => exit::NO,
            },
        },
        Status::Signing | Status::AwaitingAck => exit::PERSON,
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Committing => exit::BROKEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::policy;
    use serde_json::json;

    #[test]
    fn commands_end_by_the_outcome_of_their_policy() {
        for (status, reason, want) in [
            ("done", None, 0),
            ("cancelled", None, 1),
            ("blocked", Some("gate-red"), 1),
            ("blocked", Some("gate-not-runnable"), 2),
            ("blocked", Some("path-is-directory"), 2),
            ("blocked", Some("stale-candidate"), 1),
            ("blocked", Some("expired"), 1),
            ("blocked", Some("a-code-of-a-later-version"), 1),
            ("awaiting-ack", None, 5),
            ("committing", None, 2),
        ] {
            let mut policy = policy(status);
            policy.reason = reason.map(str::to_owned);
            assert_eq!(exit_of(&policy), want, "{status} {reason:?}");
        }
    }

    #[test]
    fn what_holds_a_policy_up_never_hides_its_own_reason() {
        let held = Held { code: Code::IndexLocked, because: "busy".into() };
        let mut open = json!({ "reason": null });
        tell(&mut open, Some(&held));
        assert_eq!(open, json!({ "reason": "index-locked", "because": "busy" }));
        let mut over = json!({ "reason": "gate-red" });
        tell(&mut over, Some(&held));
        assert_eq!(over, json!({ "reason": "gate-red" }));
    }
}

//! Judging a signed line against the policy it is for.

use super::{
    decide::{Draft, Refusal, refuse},
    policy::{expire, has_approved, load, moved, terminal},
};
use crate::{
    code::Code,
    domain::{
        ack::{AckOutcome, AckStatement, Decision},
        candidate::whereabouts,
        event::{AckRefused, Body, Entity, Event, PolicyAcked},
        ids::PolicyId,
        input::{Asked, JudgedAck, Signature},
        policy::{AckRecord, Policy, Status},
        time::Timestamp,
    },
};

/// What is wrong with a line.
type Bad = (AckOutcome, String);

/// Decides what an arriving line leads to: consumed, or refused and recorded. A refused line changes nothing else; but
/// a branch that moved, or a time that is over, is what any look at the policy would have found as well.
pub(super) fn arrived(draft: &mut Draft, id: &PolicyId, ack: JudgedAck) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    match policy.status {
        Status::AwaitingAck => {}
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Signing
        | Status::Committing => {
            let because = format!("the policy is {}", policy.status.as_str());
            return Err(refuse(Code::NotAwaiting, id, because));
        }
        Status::Done | Status::Blocked | Status::Cancelled => return Err(terminal(&policy)),
    }
    let at = draft.at();
    let (line, quorum) = (ack.line.clone(), ack.quorum.max(policy.approvals_needed()));
    let is_away = policy.candidate.is_some_and(|c| ack.tip != Some(c.parent));
    let (body, outcome) = match judge(&policy, ack, at) {
        Ok(record) => (Body::from(PolicyAcked { ack: record, quorum }), AckOutcome::Valid),
        Err((outcome, because)) => (AckRefused { outcome, because, line }.into(), outcome),
    };
    let sessions = policy.spec.session_ids.clone();
    draft.push(Event { subject: Entity::Policy(id.clone()), sessions, body })?;
    if policy.is_expired(at) {
        expire(draft, &policy)
    } else if is_away && outcome == AckOutcome::Stale {
        let because = "the branch is no longer at the candidate's parent".to_owned();
        moved(draft, &policy, because, false)
    } else {
        Ok(())
    }
}

/// The record of a line that counts, or what is wrong with it.
fn judge(policy: &Policy, ack: JudgedAck, now: Timestamp) -> Result<AckRecord, Bad> {
    let said = ack.statement.as_ref().map_err(|why| (AckOutcome::Malformed, why.clone()))?;
    if policy.knows(&ack.line) {
        return Err((AckOutcome::Replayed, "this line was judged before".to_owned()));
    }
    // Before anything that the line says is believed.
    if let Signature::Forged(why) = &ack.signature {
        return Err((AckOutcome::Forged, why.clone()));
    }
    answers(policy, &ack, said)?;
    let record = match &ack.signature {
        Signature::Good(record) => record.clone(),
        Signature::Forged(why) => return Err((AckOutcome::Forged, why.clone())),
        Signature::Unauthorized(why) => return Err((AckOutcome::Unauthorized, why.clone())),
    };
    if (&record.signer, &record.key) != (&said.signer, &said.key) {
        let because = format!("it names {} with {}", said.signer, said.key);
        return Err((AckOutcome::Unauthorized, because));
    }
    is_bound(policy, &ack, said)?;
    in_time(policy, &ack, said, now)?;
    if said.decision == Decision::Approve && has_approved(policy, &record.key) {
        let because = format!("{} approved it already; it takes another key", record.key);
        return Err((AckOutcome::Replayed, because));
    }
    // Only the line itself says what was decided.
    Ok(AckRecord { decision: said.decision, at: ack.at, line: ack.line, ..record })
}

/// It is the answer to the request that is open now.
fn answers(policy: &Policy, ack: &JudgedAck, said: &AckStatement) -> Result<(), Bad> {
    let stranger = || {
        let because = "it answers a request that this policy did not make".to_owned();
        Err((AckOutcome::Orphan, because))
    };
    let Some(Asked { policy: whose, seq, answered }) = &ack.asked else { return stranger() };
    if said.repo != ack.repo || said.policy != *whose {
        return stranger();
    }
    if *whose != policy.policy_id {
        let because = format!("it answers a request of {whose}");
        let outcome = if *answered { AckOutcome::Replayed } else { AckOutcome::Stale };
        return Err((outcome, because));
    }
    if Some(*seq) != policy.request_seq {
        let because = format!("it is for {}, which was gated again since", said.candidate);
        return Err((AckOutcome::Stale, because));
    }
    Ok(())
}

/// It names this candidate in every respect, and that one can still land.
fn is_bound(policy: &Policy, ack: &JudgedAck, said: &AckStatement) -> Result<(), Bad> {
    let Some(candidate) = policy.candidate else {
        return Err((AckOutcome::Orphan, "there is no candidate".to_owned()));
    };
    let branch = policy.spec.commit.as_ref().map(|c| c.branch.as_str());
    let bound = said.candidate == candidate.commit
        && said.parent == candidate.parent
        && said.tree == candidate.tree
        && said.gates == ack.gates
        && Some(said.branch.as_str()) == branch;
    if !bound {
        let because = format!("it is for {}, not for {}", said.candidate, candidate.commit);
        return Err((AckOutcome::Stale, because));
    }
    if ack.tip != Some(candidate.parent) {
        let because = match ack.tip {
            Some(_) => format!("{} moved away from {}", said.branch, candidate.parent),
            None => whereabouts(&said.branch, None),
        };
        return Err((AckOutcome::Stale, because));
    }
    Ok(())
}

fn in_time(
    policy: &Policy,
    ack: &JudgedAck,
    said: &AckStatement,
    now: Timestamp,
) -> Result<(), Bad> {
    if let Some(why) = said.out_of_time(ack.at) {
        return Err((AckOutcome::Expired, why));
    }
    match policy.spec.expires {
        Some(over) if policy.is_expired(now) => {
            Err((AckOutcome::Expired, format!("the policy expired at {over}")))
        }
        Some(_) | None => Ok(()),
    }
}

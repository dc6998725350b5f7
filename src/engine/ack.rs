//! Judging a signed line against the policy it is for.

use super::{
    decide::{Draft, Refusal, refuse},
    policy::{fail, load, terminal},
};
use crate::{
    code::Code,
    domain::{
        ack::{AckOutcome, AckStatement},
        event::{AckRefused, Body, Entity, Event, PolicyAcked},
        ids::PolicyId,
        input::{JudgedAck, Signature},
        policy::{AckRecord, Policy, Status},
    },
};

/// What a line turned out to be.
enum Judgement {
    Good(AckRecord),
    Bad(AckOutcome, String),
}

/// Decides what an arriving line leads to: consumed, or refused and recorded. A refused line changes nothing else,
/// but for a branch that moved away: then the policy is blocked as well (decisions 25).
pub(super) fn arrived(draft: &mut Draft, id: &PolicyId, ack: JudgedAck) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    match policy.status {
        Status::AwaitingAck => {}
        Status::Watching | Status::Gating | Status::Committing => {
            let because = format!("the policy is {}", policy.status.as_str());
            return Err(refuse(Code::NotAwaiting, id, because));
        }
        Status::Done | Status::Blocked | Status::Cancelled => return Err(terminal(&policy)),
    }
    let line = ack.line.clone();
    let moved = policy.candidate.is_some_and(|c| ack.tip != Some(c.parent));
    let body = match judge(&policy, ack) {
        Judgement::Good(record) => PolicyAcked { ack: record }.into(),
        Judgement::Bad(outcome, because) => Body::from(AckRefused { outcome, because, line }),
    };
    let refused_as_stale = matches!(&body, Body::AckRefused(r) if r.outcome == AckOutcome::Stale);
    let sessions = policy.spec.session_ids.clone();
    draft.push(Event { subject: Entity::Policy(id.clone()), sessions, body })?;
    if moved && refused_as_stale {
        let because = "the branch is no longer at the candidate's parent".to_owned();
        fail(draft, &policy, Code::StaleCandidate, because)?;
    }
    Ok(())
}

fn judge(policy: &Policy, ack: JudgedAck) -> Judgement {
    let said = match &ack.statement {
        Ok(said) => said,
        Err(why) => return Judgement::Bad(AckOutcome::Malformed, why.clone()),
    };
    if let Some(bad) = misdirected(policy, &ack, said) {
        return bad;
    }
    let record = match ack.signature {
        Signature::Good(record) => record,
        Signature::Forged(why) => return Judgement::Bad(AckOutcome::Forged, why),
        Signature::Unauthorized(why) => return Judgement::Bad(AckOutcome::Unauthorized, why),
    };
    if (&record.signer, &record.key) != (&said.signer, &said.key) {
        let because = format!("it names {} with {}", said.signer, said.key);
        return Judgement::Bad(AckOutcome::Unauthorized, because);
    }
    let Some(candidate) = policy.candidate else {
        return Judgement::Bad(AckOutcome::Orphan, "there is no candidate".to_owned());
    };
    let branch = policy.spec.commit.as_ref().map(|c| c.branch.as_str());
    let bound = said.candidate == candidate.commit
        && said.parent == candidate.parent
        && said.tree == candidate.tree
        && said.gates == ack.gates
        && Some(said.branch.as_str()) == branch;
    if !bound {
        let because = format!("it is for {}, not for {}", said.candidate, candidate.commit);
        return Judgement::Bad(AckOutcome::Stale, because);
    }
    if ack.tip != Some(candidate.parent) {
        let because = format!("{} moved away from {}", said.branch, candidate.parent);
        return Judgement::Bad(AckOutcome::Stale, because);
    }
    if ack.at >= said.expires {
        return Judgement::Bad(AckOutcome::Expired, format!("it expired at {}", said.expires));
    }
    // Only the line itself says what was decided.
    Judgement::Good(AckRecord { decision: said.decision, line: ack.line, at: ack.at, ..record })
}

/// A line that answers some other request.
fn misdirected(policy: &Policy, ack: &JudgedAck, said: &AckStatement) -> Option<Judgement> {
    if policy.acks.iter().any(|a| a.line == ack.line) {
        let because = "this line was consumed before".to_owned();
        return Some(Judgement::Bad(AckOutcome::Replayed, because));
    }
    let ours = said.repo == ack.repo
        && said.policy == policy.policy_id
        && Some(said.request) == ack.request;
    if ours {
        return None;
    }
    let because = "it answers a request that this policy did not make".to_owned();
    Some(Judgement::Bad(AckOutcome::Orphan, because))
}

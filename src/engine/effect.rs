//! Effects: what the world is asked to do.

use super::State;
use crate::{
    code::Code,
    domain::{
        ids::{PolicyId, SessionId},
        policy::{Policy, Status},
    },
};

/// Something for `runtime` to do. Each can be told again from the state alone, so a crash loses none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Run the gates of this attempt and report how they ended.
    RunGates {
        /// Whose.
        policy: PolicyId,
        /// Which run; the key of the effect.
        attempt: u32,
    },
    /// End a gate run that nobody wants any more.
    KillGates {
        /// Whose.
        policy: PolicyId,
        /// Which run.
        attempt: u32,
    },
    /// Have the commit signed that waits for it.
    Sign {
        /// Whose.
        policy: PolicyId,
        /// Of which run.
        attempt: u32,
    },
    /// Write the gate lines of the last attempt into the note of their commit.
    NoteGates {
        /// Whose.
        policy: PolicyId,
    },
    /// Move the branch to the candidate.
    Land {
        /// Whose.
        policy: PolicyId,
    },
    /// Write the consumed ack lines into the note of the candidate.
    NoteAcks {
        /// Whose.
        policy: PolicyId,
    },
}

/// What may be done with an effect in doubt after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Done again: the same content, or a compare-and-swap, makes the second time harmless.
    Repeat,
    /// Done again under the same key; whoever does it makes sure that the first try is over.
    Keyed,
}

impl Effect {
    /// The recovery class.
    #[must_use]
    pub fn recovery(&self) -> Recovery {
        match self {
            Self::RunGates { .. } | Self::Sign { .. } => Recovery::Keyed,
            Self::KillGates { .. }
            | Self::NoteGates { .. }
            | Self::Land { .. }
            | Self::NoteAcks { .. } => Recovery::Repeat,
        }
    }

    /// True for a projection into notes: it changes no state and can be made at any time.
    #[must_use]
    pub fn is_note(&self) -> bool {
        match self {
            Self::NoteGates { .. } | Self::NoteAcks { .. } => true,
            Self::RunGates { .. }
            | Self::KillGates { .. }
            | Self::Sign { .. }
            | Self::Land { .. } => false,
        }
    }

    /// The policy it is done for.
    #[must_use]
    pub fn policy(&self) -> &PolicyId {
        match self {
            Self::RunGates { policy, .. }
            | Self::KillGates { policy, .. }
            | Self::Sign { policy, .. }
            | Self::NoteGates { policy }
            | Self::Land { policy }
            | Self::NoteAcks { policy } => policy,
        }
    }
}

/// Name of a gate run: the key of its live file.
#[must_use]
pub fn gate_key(policy: &PolicyId, attempt: u32) -> String {
    format!("gate.{policy}.{attempt}")
}

/// Name of a signing: the key of its live file.
#[must_use]
pub fn sign_key(policy: &PolicyId, attempt: u32) -> String {
    format!("sign.{policy}.{attempt}")
}

/// Name of an agent that we run: the key of its live file.
#[must_use]
pub fn agent_key(session: &SessionId) -> String {
    format!("agent.{session}")
}

/// What is to be done for a policy in this state, whatever was done before.
#[must_use]
pub fn due(policy: &Policy) -> Vec<Effect> {
    let id = || policy.policy_id.clone();
    let note_gates = (policy.candidate.is_some() || policy.noted_on.is_some())
        .then(|| Effect::NoteGates { policy: id() });
    let note_acks = (!policy.acks.is_empty()).then(|| Effect::NoteAcks { policy: id() });
    let notes = note_gates.into_iter().chain(note_acks);
    match policy.status {
        Status::Gating if policy.green => vec![],
        Status::Gating | Status::Queued => {
            vec![Effect::RunGates { policy: id(), attempt: policy.attempt }]
        }
        Status::Signing => vec![Effect::Sign { policy: id(), attempt: policy.attempt }],
        // The receipt is written before the branch moves: once the policy is over nobody looks for it again.
        Status::Committing => notes.chain([Effect::Land { policy: id() }]).collect(),
        Status::Watching
        | Status::Nudging
        | Status::AwaitingAck
        | Status::Done
        | Status::Blocked
        | Status::Cancelled => notes.collect(),
    }
}

/// It ended whatever its gates would have said.
fn is_stopped(policy: &Policy) -> bool {
    policy.status == Status::Cancelled || policy.reason.as_deref() == Some(Code::Expired.as_str())
}

/// The effects of moving a policy from one state to another.
pub(super) fn of_change(before: Option<&Policy>, after: &State, policy: &PolicyId) -> Vec<Effect> {
    let Some(now) = after.policies.get(policy) else { return vec![] };
    let mut effects = Vec::new();
    if let Some(was) = before
        && was.status == Status::Gating
        && is_stopped(now)
    {
        effects.push(Effect::KillGates { policy: policy.clone(), attempt: was.attempt });
    }
    effects.extend(due(now));
    effects
}

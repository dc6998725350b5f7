//! What a command that performs finds of a policy before it does what is due: its time is over, its branch moved,
//! somebody put an answer into the note.
//!
//! Contract: judged under the lock, recorded like any other input, each thing once. Commands that read call none of
//! this. A line in a note is a line like that of `ack`, and a bad one changes nothing but that it is known.

use super::{Ledger, LedgerError, Recording, View};
use crate::{
    code::Code,
    domain::{
        event::{Body, Entity},
        ids::PolicyId,
        input::Input,
        oid::Oid,
        policy::{Policy, Status},
    },
    limits,
    store::NOTES_ACKS,
    sys::clock,
    wire::{ack_line, signed_line::lines_of},
};

impl Ledger {
    /// Records that the time of a policy is over, or that the branch of a waiting candidate moved. None when neither is
    /// so. A candidate that is being landed is left alone: only who lands can tell whether it has landed.
    ///
    /// # Errors
    /// The journal or the branch cannot be read, or nothing can be recorded.
    pub fn keep_up(&self, policy: &Policy) -> Result<Option<Recording>, LedgerError> {
        let id = policy.policy_id.clone();
        if policy.status != Status::Committing && policy.is_expired(clock::now()) {
            return unless_overtaken(self.record(Input::TimeUp { policy: id }));
        }
        let waits = matches!(policy.status, Status::Signing | Status::AwaitingAck);
        let waiting = policy.candidate.or(policy.unsigned).filter(|_| waits);
        let (Some(commit), Some(candidate)) = (&policy.spec.commit, waiting) else {
            return Ok(None);
        };
        if self.store.tip(&commit.branch)? == Some(candidate.parent) {
            return Ok(None);
        }
        let touches = [Entity::Policy(id.clone())];
        unless_overtaken(self.record_with(&touches, vec![], |_: &View<'_>| {
            let tip = self.store.tip(&commit.branch)?;
            Ok(Input::TipMoved { policy: id, tip })
        }))
    }

    /// Judges the lines in the acks note of a waiting candidate that the journal does not know yet. True when something
    /// was recorded.
    ///
    /// # Errors
    /// The note or the rules cannot be read, or nothing can be recorded.
    pub fn take_answers(&self, policy: &Policy) -> Result<bool, LedgerError> {
        let Some(candidate) = policy.candidate.filter(|_| policy.status == Status::AwaitingAck)
        else {
            return Ok(false);
        };
        let Some(note) = self.store.note(NOTES_ACKS, &candidate.commit)? else { return Ok(false) };
        let lines = unknown_lines(&note, policy);
        if lines.is_empty() {
            return Ok(false);
        }
        let court = self.court(policy)?;
        for line in lines {
            let recorded = self.consume(&policy.policy_id, &line, &court);
            let Some(recording) = unless_overtaken(recorded)? else { return Ok(true) };
            self.tell_refusals(&recording, &candidate.commit);
            let waits = recording.state.policies.get(&policy.policy_id).is_some_and(|p| {
                p.status == Status::AwaitingAck && p.candidate == policy.candidate
            });
            if !waits {
                break;
            }
        }
        Ok(true)
    }

    /// Nobody asked for the judgement, so nobody would hear of it.
    fn tell_refusals(&self, recording: &Recording, candidate: &Oid) {
        for (recorded, _) in &recording.events {
            if let Body::AckRefused(refused) = &recorded.event.body {
                self.store.said().add(format!(
                    "warning: a line in the acks note of {candidate} was turned down, {}: {}",
                    refused.outcome, refused.because
                ));
            }
        }
    }

    /// Records that the time of a policy that is being landed is over: for who holds the landing, after a look at
    /// the branch.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub fn give_up_landing(&self, id: &PolicyId) -> Result<Option<Recording>, LedgerError> {
        unless_overtaken(self.record(Input::TimeUp { policy: id.clone() }))
    }
}

impl Ledger {
    /// Ends a policy whose candidate can not land; none when somebody else was quicker.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    pub fn landing_impossible(
        &self,
        id: &PolicyId,
        code: Code,
        because: String,
    ) -> Result<Option<Recording>, LedgerError> {
        unless_overtaken(self.record(Input::LandingImpossible {
            policy: id.clone(),
            code,
            because,
        }))
    }
}

/// Somebody else recorded the same, or more, in the meantime.
fn unless_overtaken(
    recorded: Result<Recording, LedgerError>,
) -> Result<Option<Recording>, LedgerError> {
    match recorded {
        Ok(recording) => Ok(Some(recording)),
        Err(LedgerError::Refused(r)) if matches!(r.code, Code::Terminal | Code::NotAwaiting) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Lines that claim to be acks and were not judged yet, the first few. Other words in a note are somebody else's.
fn unknown_lines(note: &[u8], policy: &Policy) -> Vec<String> {
    let room = limits::JUDGED_LINES.saturating_sub(policy.judged.len());
    let mut found: Vec<String> = Vec::new();
    for line in lines_of(note) {
        if !line.starts_with(ack_line::FAMILY) {
            continue;
        }
        if !policy.knows(&line) && !found.contains(&line) {
            found.push(line);
        }
        if found.len() >= limits::NOTE_ACKS_PER_LOOK.min(room) {
            break;
        }
    }
    found.truncate(room);
    found
}

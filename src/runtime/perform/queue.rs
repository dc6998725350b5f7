//! Waiting for the turn of a policy's gates: as many as a person allows run at once.
//!
//! Contract: a policy that has to wait says so in the journal, and says when it need not any more. It is looked at anew each
//! time something is recorded: one that ended meanwhile waits for nothing.

use super::PerformError;
use crate::{
    code::Code,
    domain::{
        ids::PolicyId,
        input::Input,
        policy::{Policy, Status},
    },
    ledger::{Ledger, LedgerError},
    limits,
    runtime::{
        gate::slots::{self, Slot},
        live::LiveError,
    },
    sys::clock,
};
use std::{thread, time::Duration};

/// Whether its gates may run.
pub(super) enum Turn {
    /// They may; without a slot where there is none to run.
    Now(Option<Slot>),
    /// They are not to run any more.
    Over,
}

/// Waits for the turn of an attempt. To be called by who performs it.
pub(super) fn slot_for(ledger: &Ledger, id: &PolicyId, attempt: u32) -> Result<Turn, PerformError> {
    let dir = ledger.store().location().agent_dir();
    let most = ledger.gate_concurrency()?;
    let mut seen = None;
    loop {
        let tip = ledger.tip()?.map(|tip| tip.id);
        if seen.is_none() || seen != Some(tip) {
            let policy = ledger.require_policy(id)?;
            if !is_due(&policy, attempt) {
                return Ok(Turn::Over);
            }
            if policy.spec.gates.iter().all(|gate| gate.shell().is_none()) {
                return Ok(Turn::Now(None));
            }
            seen = Some(tip);
        }
        let slot = slots::take(&dir, most)
            .map_err(|e| LiveError::File { path: e.path, source: e.source })?;
        let policy = ledger.require_policy(id)?;
        match (slot, policy.status) {
            (Some(slot), Status::Gating) => return Ok(Turn::Now(Some(slot))),
            (Some(slot), Status::Queued) => {
                if tell(ledger, Input::SlotFree { policy: id.clone() })? {
                    return Ok(Turn::Now(Some(slot)));
                }
            }
            (None, Status::Gating) => {
                tell(ledger, Input::NoSlot { policy: id.clone(), attempt })?;
            }
            (
                _,
                Status::Watching
                | Status::Queued
                | Status::Nudging
                | Status::Signing
                | Status::AwaitingAck
                | Status::Committing
                | Status::Done
                | Status::Blocked
                | Status::Cancelled,
            ) => thread::sleep(Duration::from_millis(limits::SLOT_POLL_MS)),
        }
    }
}

fn is_due(policy: &Policy, attempt: u32) -> bool {
    matches!(policy.status, Status::Gating | Status::Queued)
        && policy.attempt == attempt
        && !policy.is_expired(clock::now())
}

/// True when it was recorded; false when the policy ended or went on meanwhile.
fn tell(ledger: &Ledger, input: Input) -> Result<bool, PerformError> {
    match ledger.record(input) {
        Ok(_) => Ok(true),
        Err(LedgerError::Refused(refusal)) if refusal.code == Code::Terminal => Ok(false),
        Err(error) => Err(error.into()),
    }
}

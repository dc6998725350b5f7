//! Notes: projections of gate and ack lines for people, on the commit they speak of.
//!
//! A foreign `git notes` writer may lose ours; nothing of theirs is lost by us, and ours come back the next
//! time somebody performs for the policy (decisions 26).

use super::{PerformError, Step};
use crate::{
    domain::policy::Policy,
    ledger::{Ledger, Receipt},
};

/// Writes the gate lines of the last attempt.
pub(super) fn gates(ledger: &Ledger, policy: &Policy) -> Result<Step, PerformError> {
    write(ledger, Receipt::of_gates(policy))
}

/// Writes the consumed ack lines.
pub(super) fn acks(ledger: &Ledger, policy: &Policy) -> Result<Step, PerformError> {
    write(ledger, Receipt::of_acks(policy))
}

fn write(ledger: &Ledger, receipt: Option<Receipt>) -> Result<Step, PerformError> {
    if let Some(receipt) = receipt {
        ledger.write_receipt(&receipt)?;
    }
    Ok(Step::Done)
}

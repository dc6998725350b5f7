//! Notes against the journal: that they can be read, and that every line of ours stands in them.

use super::report::Findings;
use crate::{
    enforce::chain::Chain,
    ledger::{Ledger, Receipt, Remedy},
    store::{NOTES_ACKS, NOTES_GATES},
};

/// The notes can be read as a whole.
pub(super) fn readable(ledger: &Ledger, found: &mut Findings) {
    for notes in [NOTES_GATES, NOTES_ACKS] {
        match ledger.store().notes_damage(notes) {
            Ok(None) => {}
            Ok(Some(what)) => found.repairable(notes, what, Remedy::SetNotesAside { notes }),
            Err(e) => found.store(notes, &e),
        }
    }
}

/// The lines of every policy stand in the notes of its commit.
pub(super) fn receipts(ledger: &Ledger, own: &Chain, found: &mut Findings) {
    for policy in own.state.policies.values() {
        for receipt in Receipt::all_of(policy) {
            // Notes that cannot be read are told of by name.
            let Ok(missing @ 1..) = ledger.missing_lines(&receipt) else { continue };
            let (name, target) = (receipt.notes, receipt.target);
            let what = format!("{missing} of its lines are not in {name} on {target}");
            found.repairable(policy.policy_id.as_str(), what, Remedy::WriteReceipt(receipt));
        }
    }
}

//! Notes against the journal: that they can be read, and that every line of ours stands in them.

use super::report::Findings;
use crate::{
    code::Code,
    domain::{
        ids::PolicyId,
        oid::Oid,
        policy::{Policy, Status},
    },
    enforce::chain::Chain,
    ledger::{Ledger, Receipt, Remedy},
    store::{NOTES_ACKS, NOTES_GATES},
    wire::{
        ack_line::{self, AckLine},
        gate_line::{self, GateLine},
        signed_line::lines_of,
    },
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

/// Lines that claim to be ours and that no journal here tells of. One about a policy of this clone was forged: all of
/// that policy's lines are told by its journal. Of others the journals may be elsewhere.
pub(super) fn forged(ledger: &Ledger, own: Option<&Chain>, chains: &[Chain], found: &mut Findings) {
    for notes in [NOTES_GATES, NOTES_ACKS] {
        // Notes that cannot be read are told of by name.
        let Ok(all) = ledger.store().all_notes(notes) else { continue };
        for (target, note) in all {
            for line in lines_of(&note) {
                let Some(policy) = claimed(&line).filter(|_| !is_told(&line, &target, chains))
                else {
                    continue;
                };
                let is_own = own.is_some_and(|own| is_whole(own) && told_by(own, policy.as_ref()));
                let subject = format!("{notes} on {target}");
                let shown: String = line.chars().take(LINE_SHOWN_CHARS).collect();
                if is_own {
                    let what = format!(
                        "its journal tells of no such line, somebody else wrote it: {shown}"
                    );
                    found.problem(Code::Forged, &subject, what);
                } else {
                    let what = format!("no journal here tells of this line: {shown}");
                    found.note(&subject, what);
                }
            }
        }
    }
}

/// Characters of a line that a finding shows.
const LINE_SHOWN_CHARS: usize = 120;

/// Whose line it claims to be, when it claims to be one of ours; none within where that cannot be told.
fn claimed(line: &str) -> Option<Option<PolicyId>> {
    if line.starts_with(gate_line::FAMILY) {
        return Some(GateLine::parse(line).ok().map(|line| line.policy));
    }
    let is_ack = line.starts_with(ack_line::FAMILY);
    is_ack.then(|| AckLine::parse(line).ok().map(|line| line.statement.policy))
}

fn is_whole(chain: &Chain) -> bool {
    chain.from == 1 && chain.broken.is_none()
}

fn told_by(chain: &Chain, policy: Option<&PolicyId>) -> bool {
    policy.is_some_and(|id| chain.state.policies.contains_key(id))
}

/// An event tells of the line, or one will: answers to what is open are judged by whoever performs next.
fn is_told(line: &str, target: &Oid, chains: &[Chain]) -> bool {
    let told = |chain: &Chain| chain.gate_lines.contains(line) || chain.consumed.contains_key(line);
    let judged = |policy: &Policy| {
        let is_on_it = policy.candidate.is_some_and(|c| c.commit == *target);
        let waits = is_on_it && policy.status == Status::AwaitingAck;
        policy.knows(line) || (waits && line.starts_with(ack_line::FAMILY))
    };
    // Most lines are found by the first look; the second goes through every policy.
    chains.iter().any(told) || chains.iter().any(|c| c.state.policies.values().any(judged))
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

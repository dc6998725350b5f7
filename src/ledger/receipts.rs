//! Receipts: the lines that the journal says stand in the notes of a commit.
//!
//! Contract: a projection, worked out again from the policy each time. Lines of others stay as they are; ours stand
//! once, at the end. Of gate lines a note keeps the last few, so one that is full misses none.

use super::{Ledger, LedgerError};
use crate::{
    domain::{oid::Oid, policy::Policy},
    engine::{self, Effect},
    limits,
    store::{NOTES_ACKS, NOTES_GATES},
};

const GATE_LINE: &[u8] = b"agentproto-gate/";

/// Lines that belong in one note.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receipt {
    /// Full name of the notes ref.
    pub notes: &'static str,
    /// The commit they speak of.
    pub target: Oid,
    /// In the order they were recorded.
    pub lines: Vec<String>,
}

impl Receipt {
    /// The gate lines of the last attempt; none when there is nothing to note them on.
    #[must_use]
    pub fn of_gates(policy: &Policy) -> Option<Self> {
        let target = policy.candidate.map(|c| c.commit).or(policy.noted_on)?;
        Self::some(NOTES_GATES, target, policy.gate_lines().map(str::to_owned).collect())
    }

    /// The consumed ack lines.
    #[must_use]
    pub fn of_acks(policy: &Policy) -> Option<Self> {
        let lines = policy.acks.iter().map(|a| a.line.clone()).collect();
        Self::some(NOTES_ACKS, policy.candidate?.commit, lines)
    }

    /// Everything that stands in notes once nothing is due for the policy any more.
    #[must_use]
    pub fn all_of(policy: &Policy) -> Vec<Self> {
        let of = |effect: &Effect| match effect {
            Effect::NoteGates { .. } => Self::of_gates(policy),
            Effect::NoteAcks { .. } => Self::of_acks(policy),
            Effect::RunGates { .. }
            | Effect::Sign { .. }
            | Effect::Land { .. }
            | Effect::KillGates { .. } => None,
        };
        engine::due(policy).iter().filter_map(of).collect()
    }

    fn some(notes: &'static str, target: Oid, lines: Vec<String>) -> Option<Self> {
        (!lines.is_empty()).then_some(Self { notes, target, lines })
    }

    /// How many of the lines a note misses.
    #[must_use]
    pub fn missing_in(&self, note: Option<&[u8]>) -> usize {
        let there: Vec<&[u8]> = note.unwrap_or_default().split(|b| *b == b'\n').collect();
        let missing = self.lines.iter().filter(|l| !there.contains(&l.as_bytes()));
        let gate_lines = there.iter().filter(|l| l.starts_with(GATE_LINE)).count();
        let full = gate_lines >= limits::GATE_LINES_PER_NOTE;
        missing.filter(|l| !(full && l.as_bytes().starts_with(GATE_LINE))).count()
    }
}

impl Ledger {
    /// How many lines of the receipt are not where they belong.
    ///
    /// # Errors
    /// The notes cannot be read.
    pub fn missing_lines(&self, receipt: &Receipt) -> Result<usize, LedgerError> {
        let note = self.store.note(receipt.notes, &receipt.target)?;
        Ok(receipt.missing_in(note.as_deref()))
    }

    /// Writes the lines that are missing; false when none is.
    ///
    /// # Errors
    /// The notes cannot be read or written.
    pub fn write_receipt(&self, receipt: &Receipt) -> Result<bool, LedgerError> {
        if self.missing_lines(receipt)? == 0 {
            return Ok(false);
        }
        let stamp = self.stamp()?;
        let lines: Vec<&str> = receipt.lines.iter().map(String::as_str).collect();
        let edit = |old: Option<&[u8]>| with_lines(old, &lines);
        self.store.edit_note(&stamp, receipt.notes, &receipt.target, edit)?;
        Ok(true)
    }
}

/// The note with these lines at its end, each once; of gate lines the last few stay.
fn with_lines(old: Option<&[u8]>, lines: &[&str]) -> Option<Vec<u8>> {
    let old = old.unwrap_or_default();
    let mut all: Vec<&[u8]> = old.split(|b| *b == b'\n').filter(|l| !l.is_empty()).collect();
    all.extend(
        lines.iter().map(|l| l.as_bytes()).filter(|l| !old.split(|b| *b == b'\n').any(|o| o == *l)),
    );
    let gate_lines = all.iter().filter(|l| l.starts_with(GATE_LINE)).count();
    let mut surplus = gate_lines.saturating_sub(limits::GATE_LINES_PER_NOTE);
    all.retain(|line| {
        let drop = surplus > 0 && line.starts_with(GATE_LINE);
        surplus -= usize::from(drop);
        !drop
    });
    let mut text = all.join(&b'\n');
    text.push(b'\n');
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stands_once_and_foreign_lines_stay() {
        let note = with_lines(
            Some(b"a person's words\n\nagentproto-gate/1 x\n"),
            &["agentproto-gate/1 x", "agentproto-gate/1 y"],
        );
        let text = String::from_utf8(note.unwrap()).unwrap();
        assert_eq!(text, "a person's words\nagentproto-gate/1 x\nagentproto-gate/1 y\n");
    }

    #[test]
    fn the_oldest_gate_lines_give_way_and_a_full_note_misses_none() {
        let many: Vec<String> = (0..25).map(|n| format!("agentproto-gate/1 {n}")).collect();
        let lines: Vec<&str> = many.iter().map(String::as_str).collect();
        let note = with_lines(Some(b"kept\n"), &lines).unwrap();
        let text = String::from_utf8(note.clone()).unwrap();
        assert_eq!(text.lines().count(), limits::GATE_LINES_PER_NOTE + 1);
        assert!(text.starts_with("kept\nagentproto-gate/1 5\n"));
        let target = crate::domain::oid::Oid::from_bytes(&[7; 20]).unwrap();
        let receipt = Receipt { notes: NOTES_GATES, target, lines: many };
        assert_eq!((receipt.missing_in(Some(&note)), receipt.missing_in(None)), (0, 25));
    }
}

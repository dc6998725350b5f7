//! Notes: projections of gate and ack lines for people, on the commit they speak of.
//!
//! A foreign `git notes` writer may lose ours; nothing of theirs is lost by us, and ours come back the next
//! time somebody performs for the policy (decisions 26).

use super::{PerformError, Step};
use crate::{
    domain::{oid::Oid, policy::Policy},
    ledger::Ledger,
    limits,
    store::{NOTES_ACKS, NOTES_GATES},
};

const GATE_LINE: &[u8] = b"agentproto-gate/";

/// Writes the gate lines of the last attempt.
pub(super) fn gates(ledger: &Ledger, policy: &Policy) -> Result<Step, PerformError> {
    if let Some(target) = policy.candidate.map(|c| c.commit).or(policy.noted_on) {
        let lines: Vec<&str> = policy.gate_lines().collect();
        add(ledger, NOTES_GATES, &target, &lines)?;
    }
    Ok(Step::Done)
}

/// Writes the consumed ack lines.
pub(super) fn acks(ledger: &Ledger, policy: &Policy) -> Result<Step, PerformError> {
    if let Some(candidate) = policy.candidate {
        let lines: Vec<&str> = policy.acks.iter().map(|a| a.line.as_str()).collect();
        add(ledger, NOTES_ACKS, &candidate.commit, &lines)?;
    }
    Ok(Step::Done)
}

fn add(ledger: &Ledger, notes: &str, target: &Oid, lines: &[&str]) -> Result<(), PerformError> {
    if lines.is_empty() {
        return Ok(());
    }
    let present = ledger.store().note(notes, target)?;
    if with_lines(present.as_deref(), lines) == present {
        return Ok(());
    }
    let stamp = ledger.stamp()?;
    ledger.store().edit_note(&stamp, notes, target, |old| with_lines(old, lines))?;
    Ok(())
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
    fn the_oldest_gate_lines_give_way() {
        let many: Vec<String> = (0..25).map(|n| format!("agentproto-gate/1 {n}")).collect();
        let lines: Vec<&str> = many.iter().map(String::as_str).collect();
        let note = with_lines(Some(b"kept\n"), &lines).unwrap();
        let text = String::from_utf8(note).unwrap();
        assert_eq!(text.lines().count(), limits::GATE_LINES_PER_NOTE + 1);
        assert!(text.starts_with("kept\nagentproto-gate/1 5\n"));
    }
}

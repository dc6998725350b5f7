//! `fsck`: the store mended as far as its log reaches, then everything compared with everything.
//!
//! Contract: what the write-ahead log proves is mended, as every command does it, unless the store was opened to look
//! only; all else is reported and left alone. Broken is what makes answers unreliable (2); a projection that can be restored, or a file left behind,
//! is a problem (1). What could not be looked at is a finding, never "fine". A finding names what can be done about it
//! as a value; who is asked to repair applies it.

mod branches;
mod journal;
mod notes;
mod report;
mod side;

pub use report::{Finding, FsckReport, Severity};

use super::{
    chain::Chain,
    verify::{VerifyError, read_journals},
};
use crate::{
    code::Code,
    ledger::{Ledger, Remedy},
    store::{Recovered, StoreError},
    sys::lock::LockError,
};
use report::Findings;

/// Checks the store and mends what its log proves. What is wrong is looked at twice: somebody may be at work between an
/// event and what follows from it, and only what stays is told.
///
/// # Errors
/// The journal lock cannot be had.
pub fn fsck(ledger: &Ledger) -> Result<FsckReport, VerifyError> {
    if !ledger.store().looks_only() {
        ledger.settle_dead_allows();
    }
    let mut report = look(ledger)?;
    if !report.ok {
        report.confirm(look(ledger)?);
    }
    Ok(report)
}

fn look(ledger: &Ledger) -> Result<FsckReport, VerifyError> {
    let mut found = Findings::default();
    side::misplaced(ledger, &mut found);
    side::files_of_git(ledger, &mut found);
    let before = side::staged(ledger, &mut found);
    // Readers remove an index that they find wrong, so it is looked at before anything is read.
    journal::index(ledger, &mut found);
    let healed = log(ledger, &mut found)?;
    let trust = ledger.trust().map_err(|e| {
        // Nothing can be wrong with what is not there yet.
        if e.code() == Code::NoCommitsYet {
            return found.note("the trusted ref", e.to_string());
        }
        found.problem(e.code(), "the trusted ref", e.to_string());
    });
    let chains = match read_journals(ledger, trust.as_ref().ok()) {
        Ok(chains) => chains,
        Err(e) => {
            found.store("the journals", &e);
            Vec::new()
        }
    };
    for chain in &chains {
        if let Some(broken) = &chain.broken {
            let at = broken.at.map_or_else(String::new, |at| format!("entry {at}: "));
            let what = format!("{at}{}", broken.why);
            found.add(Severity::Broken, Code::JournalCorrupt, chain.writer.as_str(), what);
        }
    }
    journal::state(ledger, &mut found);
    journal::end(ledger, &mut found);
    journal::perhaps_gone(ledger, &mut found);
    let own = own(ledger, &chains, &mut found);
    if let Some(own) = own {
        journal::candidates(ledger, own, &mut found);
        notes::receipts(ledger, own, &mut found);
        branches::landed(ledger, own, &mut found);
        side::programs(ledger, own, &mut found);
    }
    notes::forged(ledger, own, &chains, &mut found);
    notes::readable(ledger, &mut found);
    journal::finished_segments(ledger, &mut found);
    side::files_of_ours(ledger, &mut found);
    side::outputs(ledger, &mut found);
    side::runs(ledger, &mut found);
    side::packs(ledger, &mut found);
    side::merges(ledger, &mut found);
    side::refs(ledger, &mut found);
    side::leftovers(&before, ledger, own, &mut found);
    Ok(found.report(healed, &chains))
}

/// The log and what it proves.
fn log(ledger: &Ledger, found: &mut Findings) -> Result<Recovered, VerifyError> {
    if ledger.store().looks_only() {
        return would_mend(ledger, found);
    }
    match ledger.store().fsck_wal() {
        Ok(healed) => {
            if let Some(why) = &healed.pending {
                found.problem(Code::LockTimeout, "the journal", why.clone());
            }
            return Ok(healed);
        }
        Err(e) if e.code() == Code::ReadOnly => {
            let what = format!("nothing could be mended: {e}");
            found.add(Severity::Note, Code::ReadOnly, "the repository", what);
            return would_mend(ledger, found);
        }
        Err(e) => unsound(e, found)?,
    }
    Ok(Recovered::default())
}

/// The same, told and not done.
fn would_mend(ledger: &Ledger, found: &mut Findings) -> Result<Recovered, VerifyError> {
    match ledger.store().would_mend() {
        Ok(all) => {
            for (subject, what) in all {
                found.problem(Code::StoreUnusable, &subject, what);
            }
        }
        Err(e) => unsound(e, found)?,
    }
    Ok(Recovered::default())
}

/// Why the log proves nothing.
fn unsound(error: StoreError, found: &mut Findings) -> Result<(), VerifyError> {
    if matches!(error, StoreError::Lock(LockError::Held { .. })) {
        return Err(error.into());
    }
    if let StoreError::Diverged { name, actual, ours } = &error {
        let what = format!(
            "it is at {actual}, the log says {ours}, and neither leads to the other; compare them with git log \
             --graph {actual} {ours}, then keep what was answered with git update-ref {name} {ours} {actual}"
        );
        found.add(Severity::Broken, Code::JournalDiverged, name, what);
        return Ok(());
    }
    found.store("the write-ahead log", &error);
    if matches!(error, StoreError::CorruptWal { .. }) {
        found.offer(Remedy::PutLogAside);
    }
    Ok(())
}

/// This clone's own journal, as far as it holds.
fn own<'a>(ledger: &Ledger, chains: &'a [Chain], found: &mut Findings) -> Option<&'a Chain> {
    match ledger.store().writer() {
        Ok(writer) => chains.iter().find(|c| Some(&c.writer) == writer.as_ref()),
        Err(e) => {
            found.store("the writer id", &e);
            None
        }
    }
}

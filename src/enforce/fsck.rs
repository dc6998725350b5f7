//! `fsck`: the store mended as far as its log reaches, then everything compared with everything.
//!
//! Contract: what the write-ahead log proves is mended, as every command does it; all else is reported and left
//! alone. Broken is what makes answers unreliable (2); a projection that can be restored, or a file left behind,
//! is a problem (1). What could not be looked at is a finding, never "fine".

use super::{
    chain::Chain,
    commits::Objects,
    verify::{JournalReport, VerifyError, journal_report, read_journals},
};
use crate::{
    code::{Code, exit},
    domain::{
        oid::Oid,
        policy::{Candidate, Outcome, Policy},
    },
    ledger::Ledger,
    store::{
        NOTES_ACKS, NOTES_GATES, Recovered, StoreError,
        segments::{Finished, Standing},
        tree::Mode,
    },
    sys::files,
};
use std::{collections::HashSet, path::PathBuf};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Can be restored from the journal, or is only in the way.
    Problem,
    /// Answers cannot be relied upon.
    Broken,
}

impl Severity {
    /// The word in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Broken => "broken",
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The stable code.
    pub code: Code,
    /// What it concerns: a writer, policy, object or file.
    pub subject: String,
    /// What is wrong, in one sentence.
    pub what: String,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckReport {
    /// Objects written again from the write-ahead log.
    pub healed_objects: u64,
    /// Refs set again.
    pub healed_refs: Vec<String>,
    /// Files of dead processes that were removed.
    pub leftovers: u64,
    /// The journals, this clone's own first.
    pub journals: Vec<JournalReport>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// Nothing is wrong.
    pub ok: bool,
    /// The exit code.
    pub exit: u8,
}

/// Checks the store and mends what its log proves.
///
/// # Errors
/// The journal lock cannot be had.
pub fn fsck(ledger: &Ledger) -> Result<FsckReport, VerifyError> {
    let mut found = Findings::default();
    let before = staged(ledger, &mut found);
    let healed = match ledger.store().fsck_wal() {
        Ok(healed) => healed,
        Err(e) if e.code() == Code::ReadOnly => {
            let what = format!("nothing could be mended: {e}");
            found.problem(Code::ReadOnly, "the write-ahead log", what);
            Recovered::default()
        }
        Err(e @ StoreError::Lock(_)) => return Err(e.into()),
        Err(e) => {
            found.store("the write-ahead log", &e);
            Recovered::default()
        }
    };
    if let Some(why) = &healed.pending {
        found.problem(Code::LockTimeout, "the journal", why.clone());
    }
    let trust = ledger.trust().map_err(|e| found.problem(e.code(), "trusted ref", e.to_string()));
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
            found.add(Severity::Broken, Code::JournalCorrupt, chain.writer.to_string(), what);
        }
    }
    if let Some(own) = own(ledger, &chains, &mut found) {
        candidates(ledger, own, &mut found);
        notes(ledger, own, &mut found);
    }
    finished_segments(ledger, &mut found);
    leftovers(&before, ledger, &mut found);
    Ok(found.report(healed, &chains))
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

/// Every finished segment of our own journal has a ref at the entry that the segment after it continues. One that
/// was dropped is gone for good: nothing is wrong with that.
fn finished_segments(ledger: &Ledger, found: &mut Findings) {
    let store = ledger.store();
    let finished = store
        .own_tip()
        .and_then(|tip| tip.map_or(Ok(Vec::new()), |tip| store.finished_segments(&tip)));
    let finished = match finished {
        Ok(finished) => finished,
        Err(e) => return found.store("the segments of the journal", &e),
    };
    for Finished { name, last, standing, .. } in finished {
        let last = last.map_or_else(|| "an entry nobody names".to_owned(), |id| id.to_string());
        match standing {
            Standing::Whole | Standing::Dropped => {}
            Standing::Lost => {
                let what = format!(
                    "the ref is gone, its last entry is here: git update-ref {name} {last}"
                );
                found.problem(Code::StoreUnusable, &name, what);
            }
            Standing::Elsewhere { actual } => {
                let what = format!("it is at {actual}, the segment after it continues {last}");
                found.add(Severity::Broken, Code::JournalDiverged, name, what);
            }
            Standing::Unproven => {
                let what = "nothing here proves it: a segment after it is missing".to_owned();
                found.problem(Code::StoreUnusable, &name, what);
            }
        }
    }
}

/// What open policies wait for must be there whole, and kept alive by the evidence chain.
fn candidates(ledger: &Ledger, own: &Chain, found: &mut Findings) {
    let objects = Objects(ledger.store());
    let open = own.state.policies.values().filter(|p| !p.status.is_terminal());
    let open: Vec<(&Policy, Candidate)> = open.filter_map(|p| Some((p, p.candidate?))).collect();
    if open.is_empty() {
        return;
    }
    let pinned = match pins(ledger, own) {
        Ok(pinned) => pinned,
        Err(e) => {
            found.store("the evidence chain", &e);
            HashSet::new()
        }
    };
    for (policy, candidate) in open {
        let id = policy.policy_id.as_str();
        if let Err(e) = whole(objects, &candidate) {
            found.store(id, &e);
        }
        if !pinned.contains(&candidate.commit) {
            let what = format!("no evidence keeps its candidate {} alive", candidate.commit);
            found.problem(Code::StoreUnusable, id, what);
        }
    }
}

/// Every commit the evidence chain keeps alive.
fn pins(ledger: &Ledger, own: &Chain) -> Result<HashSet<Oid>, StoreError> {
    let objects = Objects(ledger.store());
    let mut pinned = HashSet::new();
    // The first pin of a segment has the pinned commit alone for a parent, so each chain ends in its segment.
    for tip in ledger.store().evidence_tips(&own.writer)? {
        let mut next = Some(tip);
        while let Some(id) = next {
            let pin = objects.commit(&id)?;
            // The pinned commit is the last parent, the pin before the first of two.
            pinned.extend(pin.parents.last().copied());
            next = pin.parents.first().copied().filter(|_| pin.parents.len() > 1);
        }
    }
    Ok(pinned)
}

/// Everything the candidate adds to its parent can be read.
fn whole(objects: Objects<'_>, candidate: &Candidate) -> Result<(), StoreError> {
    let commit = objects.commit(&candidate.commit)?;
    let parent = objects.commit(&candidate.parent)?;
    for changed in objects.changed(&parent.tree, &commit.tree)? {
        match changed.to {
            Some((Mode::Tree | Mode::Submodule, _)) | None => {}
            Some((Mode::File | Mode::Executable | Mode::Symlink | Mode::OldFile(_), id)) => {
                objects.get(&id, crate::store::object::Kind::Blob)?;
            }
        }
    }
    Ok(())
}

/// The lines of landed policies must stand in the notes.
fn notes(ledger: &Ledger, own: &Chain, found: &mut Findings) {
    let landed = own.state.policies.values().filter(|p| p.outcome == Some(Outcome::Committed));
    for policy in landed {
        let Some(commit) = policy.commit_sha else { continue };
        let gates: Vec<&str> = policy.gate_lines().collect();
        let acks: Vec<&str> = policy.acks.iter().map(|a| a.line.as_str()).collect();
        for (name, lines) in [(NOTES_GATES, gates), (NOTES_ACKS, acks)] {
            if lines.is_empty() {
                continue;
            }
            match ledger.store().note(name, &commit) {
                Ok(note) => {
                    let text = note.unwrap_or_default();
                    let there: HashSet<&[u8]> = text.split(|b| *b == b'\n').collect();
                    let missing = lines.iter().filter(|l| !there.contains(l.as_bytes())).count();
                    if missing > 0 {
                        let what = format!("{missing} of its lines are not in {name} on {commit}");
                        found.problem(Code::StoreUnusable, policy.policy_id.as_str(), what);
                    }
                }
                Err(e) => found.store(name, &e),
            }
        }
    }
}

/// Staged files of the store. Their names are used once, and only under the journal lock.
fn staged(ledger: &Ledger, found: &mut Findings) -> Vec<PathBuf> {
    let dir = ledger.store().location().agent_dir().join("tmp");
    match files::names(&dir) {
        Ok(names) => {
            let paths = names.into_iter().map(|n| dir.join(n));
            paths.filter(|p| files::is_file(p).unwrap_or(true)).collect()
        }
        Err(e) => {
            found.problem(Code::Io, "temporary files", e.to_string());
            Vec::new()
        }
    }
}

/// A staged file that was there before we had the lock, and still is, belongs to nobody alive.
fn leftovers(before: &[PathBuf], ledger: &Ledger, found: &mut Findings) {
    for path in staged(ledger, found).iter().filter(|p| before.contains(p)) {
        let path = path.display().to_string();
        found.problem(Code::StoreUnusable, &path, "a file left behind".to_owned());
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, code: Code, subject: String, what: String) {
        self.0.push(Finding { severity, code, subject, what });
    }

    fn problem(&mut self, code: Code, subject: &str, what: String) {
        self.add(Severity::Problem, code, subject.to_owned(), what);
    }

    /// Something of the store that cannot be read makes it broken.
    fn store(&mut self, subject: &str, error: &StoreError) {
        self.add(Severity::Broken, error.code(), subject.to_owned(), error.to_string());
    }

    fn report(mut self, healed: Recovered, chains: &[Chain]) -> FsckReport {
        self.0.sort_by_key(|f| std::cmp::Reverse(f.severity));
        let exit = match self.0.first().map(|f| f.severity) {
            None => exit::DONE,
            Some(Severity::Problem) => exit::NO,
            Some(Severity::Broken) => exit::BROKEN,
        };
        FsckReport {
            healed_objects: healed.objects,
            healed_refs: healed.refs,
            leftovers: healed.leftovers,
            journals: chains.iter().map(journal_report).collect(),
            ok: exit == exit::DONE,
            exit,
            findings: self.0,
        }
    }
}

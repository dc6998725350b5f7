//! What belongs to the journal: its index, its finished segments, and that what it names is there.

use super::report::{Findings, Severity};
use crate::{
    code::Code,
    domain::policy::{Candidate, Policy},
    enforce::chain::Chain,
    ledger::{Ledger, Remedy},
    store::{
        End,
        candidate::whole,
        segments::{Finished, Standing},
    },
};

/// The index of events says what the journal says.
pub(super) fn index(ledger: &Ledger, found: &mut Findings) {
    let store = ledger.store();
    let damage = store.own_tip().and_then(|tip| tip.map_or(Ok(None), |t| store.index_damage(&t)));
    match damage {
        Ok(None) => {}
        // Never synced and never believed, so a power cut may tear it: nothing that anybody is told comes from it alone.
        Ok(Some(what)) => {
            found.note("the index of events", format!("{what}; whoever reads by it makes it anew"));
            found.offer(Remedy::RebuildIndex);
        }
        // A journal that cannot be followed is told of where it is read.
        Err(e) if e.is_damage() => {}
        Err(e) => found.problem(e.code(), "the index of events", e.to_string()),
    }
}

/// The state after the last event can be read whole: what no event of late touched is looked at by nobody else.
pub(super) fn state(ledger: &Ledger, found: &mut Findings) {
    let store = ledger.store();
    // A journal whose end cannot be told is told of where it is read.
    let Ok(Some(tip)) = store.own_tip() else { return };
    match whole::tree_damage(store, &tip.id) {
        Ok(None) => {}
        Ok(Some(why)) => {
            let what = format!("not all of the state after event {} can be read: {why}", tip.seq);
            found.add(Severity::Broken, Code::JournalCorrupt, "the journal", what);
        }
        Err(e) => found.store("the journal", &e),
    }
}

/// Outside the repository can be read which event was the last.
pub(super) fn end(ledger: &Ledger, found: &mut Findings) {
    match ledger.store().end() {
        Ok(End::Untold(note)) => {
            let what = format!(
                "whether the journal was set back cannot be told: {}; the next event is noted in its place",
                note.why
            );
            found.problem(Code::StoreUnusable, &note.path.display().to_string(), what);
        }
        // A journal that was set back or cannot be read is told of where it is read.
        Ok(End::Held | End::Lost(_)) | Err(_) => {}
    }
}

/// What may be gone, and may as well be of a repository that was here before.
pub(super) fn perhaps_gone(ledger: &Ledger, found: &mut Findings) {
    match ledger.store().perhaps_gone_journals() {
        Ok(writers) => {
            for writer in writers {
                let what = "events of it were noted for a git directory at this path, and it is not here; whether \
                    the repository was made anew since cannot be told"
                    .to_owned();
                found.note(writer.as_str(), what);
            }
        }
        Err(e) => found.store("the journals", &e),
    }
}

/// Every finished segment of our own journal has a ref at the entry that the segment after it continues. One that
/// was dropped is gone for good: nothing is wrong with that.
pub(super) fn finished_segments(ledger: &Ledger, found: &mut Findings) {
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
                let repair = Remedy::RestoreSegment { name: name.clone() };
                found.repairable(&name, what, repair);
            }
            Standing::Elsewhere { actual } => {
                let what = format!("it is at {actual}, the segment after it continues {last}");
                found.add(Severity::Broken, Code::JournalDiverged, &name, what);
            }
            Standing::Unproven => {
                let what = "nothing here proves it: a segment after it is missing".to_owned();
                found.problem(Code::StoreUnusable, &name, what);
            }
        }
    }
}

/// What open policies wait for must be there whole, and kept alive by the evidence chain.
pub(super) fn candidates(ledger: &Ledger, own: &Chain, found: &mut Findings) {
    let open = own.state.policies.values().filter(|p| !p.status.is_terminal());
    let open: Vec<(&Policy, Candidate)> =
        open.filter_map(|p| Some((p, p.candidate.or(p.unsigned)?))).collect();
    if open.is_empty() {
        return;
    }
    let pinned = ledger.store().pinned(&own.writer);
    if let Err(e) = &pinned {
        found.store("the evidence chain", e);
    }
    for (policy, candidate) in open {
        let (id, commit) = (policy.policy_id.as_str(), candidate.commit);
        match whole::damage(ledger.store(), &candidate) {
            Ok(None) => {}
            Ok(Some(why)) => {
                let what = format!(
                    "its candidate {commit} is damaged: {why}; nothing here brings it back: git agentproto policy cancel \
                     {id}, and ask for the commit again"
                );
                found.add(Severity::Broken, Code::CandidateUnreadable, id, what);
                continue;
            }
            Err(e) => {
                found.store(id, &e);
                continue;
            }
        }
        // Where the chain cannot be followed, that is what is told.
        if pinned.as_ref().is_ok_and(|pinned| !pinned.contains(&commit)) {
            let what = format!("no evidence keeps its candidate {commit} alive");
            found.repairable(id, what, Remedy::PinAgain { commit });
        }
    }
}

//! What lies beside the journal: files of ours, runs, packs and refs that belong to nobody.

use super::report::{Findings, Severity};
use crate::{
    code::Code,
    domain::{
        digest::is_sha256,
        ids::{PolicyId, SessionId},
    },
    enforce::chain::Chain,
    ledger::{Ledger, Remedy},
    limits,
    store::{checks::Misplaced, gits::GitFile, landing},
    sys::{
        clock, digest, files,
        lock::KernelLock,
        process::{self, Liveness, ProcessId},
    },
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Everything of ours is of the kind that belongs at its place.
pub(super) fn misplaced(ledger: &Ledger, found: &mut Findings) {
    match ledger.store().misplaced() {
        Ok(misplaced) => {
            for Misplaced { path, unfit } in misplaced {
                found.problem(Code::NotRegular, &path.display().to_string(), unfit.to_string());
                found.offer(Remedy::PutMisplacedAside { path });
            }
        }
        Err(e) => found.store("files of agentproto", &e),
    }
    match ledger.store().misplaced_notes() {
        Ok(None) => {}
        Ok(Some(Misplaced { path, unfit })) => {
            let what = format!(
                "{unfit}: until it is moved away no copy of this repository is told from it"
            );
            found.problem(Code::NotRegular, &path.display().to_string(), what);
        }
        Err(e) => found.store("notes about journals", &e),
    }
}

/// Files that git keeps can be read by git.
pub(super) fn files_of_git(ledger: &Ledger, found: &mut Findings) {
    match ledger.store().damaged_git_files() {
        Ok(damaged) => {
            for GitFile { path, what, hides_refs } in damaged {
                let how = if hides_refs { Severity::Broken } else { Severity::Problem };
                found.add(how, Code::StoreUnusable, &path.display().to_string(), what);
            }
        }
        Err(e) => found.store("files of git", &e),
    }
}

/// The files that are told anew when they are lost hold what they should.
pub(super) fn files_of_ours(ledger: &Ledger, found: &mut Findings) {
    match ledger.store().damaged_side_files() {
        Ok(damaged) => {
            for file in damaged {
                let subject = format!("agentproto/{}", file.file_name());
                let what = "it does not hold what it should".to_owned();
                found.repairable(&subject, what, Remedy::MendSideFile(file));
            }
        }
        Err(e) => found.store("files of agentproto", &e),
    }
    match ledger.store().own_tip().and_then(|tip| {
        // Without a journal nobody needs it yet.
        Ok(tip.is_some() && ledger.store().lacks_packed_refs()?)
    }) {
        Ok(false) => {}
        Ok(true) => {
            let what = "without it a new ref can overwrite one that git packs meanwhile".to_owned();
            found.repairable("packed-refs", what, Remedy::AddPackedRefs);
        }
        // A journal that cannot be read is told of where it is read.
        Err(e) if e.is_damage() => {}
        Err(e) => found.store("packed-refs", &e),
    }
}

/// Where the programs of a policy, and that of an agent, are on this machine.
pub(super) fn programs(ledger: &Ledger, own: &Chain, found: &mut Findings) {
    for path in below(ledger, "local", found) {
        let stem = path.file_stem().and_then(|s| s.to_str());
        let policy = stem.and_then(|s| s.parse::<PolicyId>().ok());
        let session = stem.and_then(|s| s.parse::<SessionId>().ok());
        let known = policy.is_some_and(|id| own.state.policies.contains_key(&id))
            || session.as_ref().is_some_and(|id| own.state.sessions.contains_key(id));
        let sound = json(&path).is_some_and(|value| match session {
            Some(_) => value["program"].is_string() && value["env"].is_array(),
            None => value["programs"].is_array(),
        });
        // Written before the event that names either, so a lone one can be a moment old: it harms nobody.
        if known && !sound {
            let what = "it does not say where programs are".to_owned();
            let subject = path.display().to_string();
            found.repairable(&subject, what, Remedy::PutFileAside { path });
        }
    }
}

/// Kept output of gates is stored under its digest.
pub(super) fn outputs(ledger: &Ledger, found: &mut Findings) {
    for path in below(ledger, "logs", found) {
        // What a dead writer left beside them has no such name, and goes with the old ones.
        let Some(name) = path.file_name().and_then(|n| n.to_str()).filter(|n| is_sha256(n)) else {
            continue;
        };
        let what = match files::read_own(&path, limits::LOG_FILE_BYTES) {
            Ok(Some(text)) if digest::sha256(&text) == name => continue,
            Ok(Some(_)) => {
                "its digest is not its name: the output of a gate was changed".to_owned()
            }
            Ok(None) => continue,
            Err(e) => e.source.to_string(),
        };
        let subject = path.display().to_string();
        found.repairable(&subject, what, Remedy::PutFileAside { path });
    }
}

/// Runs whose owner and runner are gone. That is how a kill leaves them, and the next performer or `gc` clears it away;
/// wrong is only a gate that nobody watches any more, and what is no run at all.
pub(super) fn runs(ledger: &Ledger, found: &mut Findings) {
    for path in below(ledger, "live", found) {
        let subject = path.display().to_string();
        let Some(record) = json(&path) else {
            stray(&path, found);
            continue;
        };
        if record["owner"].is_null() {
            stray(&path, found);
            continue;
        }
        let who = |name: &str| serde_json::from_value::<ProcessId>(record[name].clone()).ok();
        let gone = |who: ProcessId| process::alive(&who) == Liveness::Gone;
        if !who("owner").is_some_and(gone) || !who("runner").is_none_or(gone) {
            continue;
        }
        match who("main").filter(|main| process::alive(main) != Liveness::Gone) {
            None => {
                let what = "its processes are gone; the next command that performs something \
                    clears it away, and so does git agentproto gc";
                found.note(&subject, what.to_owned());
            }
            Some(main) => {
                let what = format!(
                    "process {} still runs, and who watched it is gone; git agentproto gc ends it",
                    main.pid
                );
                found.problem(Code::StoreUnusable, &subject, what);
            }
        }
    }
}

/// A file among the runs that holds none: one of ours that is empty was begun this moment, or by somebody who died before
/// anything was started.
fn stray(path: &Path, found: &mut Findings) {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let whose = name.split('.').nth(1).unwrap_or_default();
    let ours = whose.parse::<PolicyId>().is_ok() || whose.parse::<SessionId>().is_ok();
    let bytes = match files::read_own(path, limits::SMALL_FILE_BYTES) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return,
        // Told of by its kind.
        Err(e) if e.code() == Code::NotRegular => return,
        Err(_) => vec![1],
    };
    if ours && bytes.iter().all(|byte| *byte == 0) {
        return;
    }
    let subject = path.display().to_string();
    match KernelLock::try_acquire(path) {
        Ok(Some(_)) => {
            let what = "it does not say who runs".to_owned();
            found.repairable(&subject, what, Remedy::PutFileAside { path: path.to_owned() });
        }
        Ok(None) => {
            let what =
                "it does not say who runs, and somebody does: whoever performs next waits for it";
            found.problem(Code::StoreUnusable, &subject, what.to_owned());
        }
        Err(e) => found.problem(e.code(), &subject, e.to_string()),
    }
}

/// Packs that no repack may drop, though nothing needs that any more.
pub(super) fn packs(ledger: &Ledger, found: &mut Findings) {
    match ledger.store().stale_orphan_packs(clock::now()) {
        Ok(names) if names.is_empty() => {}
        Ok(names) => {
            let what = "they keep out of every repack, and no list of ours names them".to_owned();
            found.repairable(&names.join(", "), what, Remedy::ReleasePacks);
        }
        Err(e) => found.store("packs", &e),
    }
}

/// Packs of ours can be read and merged: appending goes on where that fails, so nobody else would tell.
pub(super) fn merges(ledger: &Ledger, found: &mut Findings) {
    let damaged = match ledger.store().damaged_packs() {
        Ok(damaged) => damaged,
        Err(e) => return found.store("packs", &e),
    };
    for name in &damaged {
        let what = "it does not read back, and is not merged with others: git repack -a -d puts another in its place \
            if what it holds is elsewhere, too";
        found.problem(Code::StoreUnusable, name, what.to_owned());
    }
    if ledger.store().looks_only() {
        return;
    }
    match ledger.store().try_merging() {
        Ok(()) => {}
        // The log, where nothing can be written, and damaged packs were told of.
        Err(e) if e.code() == Code::ReadOnly || !damaged.is_empty() => {}
        Err(e) => found.problem(e.code(), "packs", format!("they are not merged: {e}")),
    }
}

/// Refs in our namespace that are nobody's.
pub(super) fn refs(ledger: &Ledger, found: &mut Findings) {
    match ledger.store().odd_refs() {
        Ok(odd) => {
            for (name, what) in odd {
                found.problem(Code::StoreUnusable, &name, what);
            }
        }
        Err(e) => found.store("refs of agentproto", &e),
    }
}

/// Staged files of the store. Their names are used once, and only under the journal lock.
pub(super) fn staged(ledger: &Ledger, found: &mut Findings) -> Vec<PathBuf> {
    below(ledger, "tmp", found)
}

/// A staged file that was there before we had the lock, and still is, belongs to nobody alive. What a landing left is
/// needed by whoever goes on with it.
pub(super) fn leftovers(
    before: &[PathBuf],
    ledger: &Ledger,
    own: Option<&Chain>,
    found: &mut Findings,
) {
    let dead = match ledger.leftovers() {
        Ok(dead) => dead,
        Err(e) => {
            found.store("files of agentproto", &e);
            Vec::new()
        }
    };
    for left in &dead {
        let what = format!("what is left of {}; git agentproto gc removes it", left.of);
        found.note(&left.path.display().to_string(), what);
    }
    let told = |path: &PathBuf| dead.iter().any(|left| left.path == *path);
    for path in staged(ledger, found).into_iter().filter(|p| before.contains(p) && !told(p)) {
        let subject = path.display().to_string();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let policy = landing::left_by(name).and_then(|(name, _)| name.parse::<PolicyId>().ok());
        let policy = policy.and_then(|id| own?.state.policies.get(&id));
        if policy.is_some_and(|p| !p.status.is_terminal()) {
            let what = "a landing is under way or died; the next command that performs something finishes it or takes it back";
            found.note(&subject, what.to_owned());
            continue;
        }
        let what = "a file left behind".to_owned();
        found.repairable(&subject, what, Remedy::PutFileAside { path });
    }
}

/// The files in a directory of ours.
fn below(ledger: &Ledger, dir: &str, found: &mut Findings) -> Vec<PathBuf> {
    let dir = ledger.store().location().agent_dir().join(dir);
    // What a link leads to is somebody else's.
    if files::look(&dir).is_ok_and(|found| found.is_some_and(|found| found.is_symlink())) {
        return Vec::new();
    }
    match files::names(&dir) {
        Ok(names) => {
            let paths = names.into_iter().map(|n| dir.join(n));
            // What is of another kind is told of by that.
            paths.filter(|p| files::is_file(p).unwrap_or(true)).collect()
        }
        Err(e) => {
            found.problem(e.code(), &dir.display().to_string(), e.to_string());
            Vec::new()
        }
    }
}

/// A file as JSON; none when it is gone or holds none.
fn json(path: &Path) -> Option<Value> {
    let bytes = files::read_own(path, limits::SMALL_FILE_BYTES).ok()??;
    serde_json::from_slice(&bytes).ok()
}

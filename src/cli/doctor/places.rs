//! The store, the journals here, what the dead left, and sessions beside worktrees.

use super::Findings;
use crate::{
    cli::{error::CliError, text::ago},
    domain::time::Timestamp,
    ledger::Ledger,
    limits,
    runtime::live,
    store::StoreError,
    sys::{clock, lock},
};
use std::path::Path;

const FSCK: &str = "see what is wrong and what can be done: git agentproto fsck";

fn of_store(error: &StoreError) -> CliError {
    CliError::new(error.code(), error.to_string())
}

pub(super) fn store(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let store = ledger.store();
    if let Some(damage) = store.log_damage().map_err(|e| of_store(&e))? {
        findings.problem(damage, FSCK);
    }
    let lock = store.location().agent_dir().join("lock");
    let held = lock::is_held(&lock).map_err(|e| CliError::new(e.code(), e.to_string()))?;
    if held {
        findings.note(
            format!("somebody holds the lock of the journal at this moment: {}", lock.display()),
            "it is let go when that process ends; one that stays is stopped, or hangs",
        );
    } else {
        findings.fine("nobody holds the lock of the journal");
    }
    Ok(())
}

pub(super) fn journals(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let store = ledger.store();
    match ledger.tip() {
        Ok(Some(tip)) => {
            findings.fine(format!("this clone writes journal {}: {} events", tip.writer, tip.seq))
        }
        Ok(None) => findings.fine("this clone has recorded nothing yet"),
        Err(e) => findings.problem(e.to_string(), FSCK),
    }
    if let Some((writer, home)) = store.copied_from().map_err(|e| of_store(&e))? {
        let of = home.map_or_else(|| "another repository".to_owned(), |h| h.display().to_string());
        findings.note(
            format!("this repository is a copy of {of}, where journal {writer} goes on"),
            "what is recorded here gets a journal of its own",
        );
    }
    for gone in store.gone_journals().map_err(|e| of_store(&e))? {
        findings.problem(format!("journal {} was written here and is gone", gone.writer), FSCK);
    }
    for writer in store.perhaps_gone_journals().map_err(|e| of_store(&e))? {
        let message = format!("journal {writer} was once written at this path and is not here");
        findings.note(message, "nothing has to be done if the repository was made anew since");
    }
    let others = ledger.journals_elsewhere()?;
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|tip| tip.writer.to_string()).collect();
        let message = format!("journals of other clones are here: {}", names.join(", "));
        findings.note(message, "they are read by verify, and nothing else");
    }
    Ok(())
}

pub(super) fn runs(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let left = live::abandoned(&ledger.store().location().agent_dir())?;
    for effect in &left {
        findings.note(
            format!("a killed process left this unfinished: {effect}"),
            "the next command that performs goes on with it: git agentproto supervise --once",
        );
    }
    let leftovers = ledger.leftovers().map_err(|e| of_store(&e))?;
    for leftover in &leftovers {
        findings.note(
            format!("{} is left of {}", leftover.path.display(), leftover.of),
            "git agentproto gc clears it away",
        );
    }
    if left.is_empty() && leftovers.is_empty() {
        findings.fine("no killed process left anything");
    }
    Ok(())
}

pub(super) fn sessions(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let open = ledger.open_state()?.sessions;
    let alive: Vec<_> = open.values().filter(|session| !session.is_exited()).collect();
    let worktrees = ledger.store().location().worktrees();
    let worktrees = worktrees.map_err(|e| CliError::new(e.code(), e.to_string()))?;
    findings.fine(format!("sessions: {}; worktrees: {}", alive.len(), worktrees.len()));
    let now = clock::now();
    for session in &alive {
        let id = &session.session_id;
        let is_over = format!("if it is over: git agentproto session report {id} exited");
        if !worktrees.iter().any(|worktree| worktree.id == session.worktree) {
            let gone = &session.worktree;
            findings.problem(format!("the worktree '{gone}' of session {id} is gone"), &is_over);
        }
        let last = ledger.at_seq(session.last)?.map_or(session.since, |seen| seen.message.at);
        if is_idle(last, now) {
            let since = ago(last, now);
            findings.note(format!("session {id} reported nothing since {since}"), &is_over);
        }
    }
    for worktree in worktrees.iter().filter(|w| w.id != ".") {
        if !alive.iter().any(|session| session.worktree == worktree.id) {
            let top = worktree.top.display();
            findings.note(
                format!("no session works in the worktree {top}"),
                &format!(
                    "to register one: git agentproto session adopt --cwd {}",
                    quoted(&worktree.top)
                ),
            );
        }
    }
    Ok(())
}

fn quoted(path: &Path) -> String {
    shell_words::quote(&path.display().to_string()).into_owned()
}

fn is_idle(last: Timestamp, now: Timestamp) -> bool {
    now.ms().saturating_sub(last.ms()) >= limits::SESSION_IDLE_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_idle_after_a_week_and_not_before() {
        let at = Timestamp::from_ms(1_700_000_000_000);
        let after = |ms| is_idle(at, at.plus_ms(ms));
        assert!(after(limits::SESSION_IDLE_MS));
        assert!(!after(limits::SESSION_IDLE_MS - 1));
        // A clock that was set back makes nobody idle.
        assert!(!after(-limits::SESSION_IDLE_MS));
    }
}

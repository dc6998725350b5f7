//! What a person fixed for this repository, and whether it is still so.

use super::{Findings, State};
use crate::{
    cli::error::CliError,
    ledger::{Ledger, LedgerError},
    store::{
        settings,
        trusted::{Rules, TrustedError, default_ref},
    },
};

/// That it could be opened says most.
pub(super) fn repository(ledger: &Ledger, findings: &mut Findings) {
    let (store, location) = (ledger.store(), ledger.store().location());
    let hash = store.hash().name();
    match &location.worktree {
        Some(worktree) => findings.fine(format!("{} ({hash})", worktree.top.display())),
        None => findings.note(
            format!("{} ({hash}): there is no worktree here", location.common_dir.display()),
            "gates and commits need one: git worktree add DIR BRANCH",
        ),
    }
}

pub(super) fn trusted_ref(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    const INIT: &str = "to fix it for this clone: git agentproto init";
    let trust = match ledger.trust() {
        Ok(trust) => trust,
        Err(LedgerError::Trust(gone @ TrustedError::Gone(_))) => {
            findings.problem(gone.to_string(), "to choose another one: git agentproto init");
            return Ok(());
        }
        Err(LedgerError::Trust(e @ (TrustedError::NoCommits | TrustedError::NoRef(_)))) => {
            findings.problem(e.to_string(), e.code().hint());
            return Ok(());
        }
        Err(e) => return Err(e.into()),
    };
    let name = &trust.trusted_ref;
    if !trust.known_path {
        findings.note(format!("rules are read from {name}, which nobody fixed yet"), INIT);
        return Ok(());
    }
    let fixed = trust.settings.trusted_ref().map_err(TrustedError::from);
    let fixed = fixed.map_err(LedgerError::from)?;
    if let Some(other) = fixed.filter(|fixed| fixed != name) {
        let message = format!("rules are read from {name}, and another clone fixed {other}");
        findings.note(message, "each clone keeps its own; nothing has to be done");
    }
    match default_ref(&ledger.repo()?, &[]) {
        Ok(now) if now != *name => findings.note(
            format!("rules are read from {name}, as you fixed it; by default it would be {now} now"),
            "it does not change by itself; the settings of this repository name it: agentproto.trustedRef",
        ),
        Ok(_) => findings.fine(format!("rules are read from {name}, as you fixed it")),
        Err(e) => findings.note(
            format!("rules are read from {name}, as you fixed it; by default none would be found: {e}"),
            "it does not change by itself; nothing has to be done",
        ),
    }
    Ok(())
}

pub(super) fn accepted(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    match ledger.rules()? {
        Rules::Accepted { .. } => findings.fine("the rule files are those you accepted"),
        Rules::NeverAccepted { .. } => findings.note(
            "nobody accepted the rule files of this repository yet; they are in force",
            "look at .agentproto and agentproto.json, then: git agentproto init",
        ),
        Rules::Changed { .. } => findings.problem(
            "the rule files changed since you accepted them, and are in force",
            "look at .agentproto and agentproto.json, then: git agentproto trust",
        ),
    }
    Ok(())
}

/// What stands where an agent can write it, and would weaken a rule if it counted.
pub(super) fn settings_without_effect(
    ledger: &Ledger,
    findings: &mut Findings,
) -> Result<(), CliError> {
    let mut ignored = settings::ignored(&ledger.repo()?);
    ignored.sort();
    ignored.dedup();
    if ignored.is_empty() {
        findings.fine("no setting of the repository tries to weaken a rule");
    }
    for key in &ignored {
        // git's own keys stand there for git; ours mean that somebody believes what is not so.
        let state = if key.starts_with("agentproto.") { State::Problem } else { State::Note };
        let hint = "where an agent can write it is not believed; set it with git config --global, or take it out";
        findings.add(state, format!("{key} has no effect here"), Some(hint));
    }
    Ok(())
}

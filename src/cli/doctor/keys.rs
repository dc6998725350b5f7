//! The key that answers are signed with, and whether somebody's answer counts.

use super::Findings;
use crate::{
    cli::error::CliError,
    ledger::Ledger,
    sign::{
        NAMESPACE,
        choose::SignersInForce,
        key::{Named, SigningKey},
    },
    sys::{clock, files},
};
use std::{os::unix::fs::PermissionsExt as _, path::Path};

/// Anybody but the owner.
const OTHERS: u32 = 0o077;

pub(super) fn key(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let key = match ledger.key_in_force() {
        Ok(key) => key,
        Err(e) => {
            let error = CliError::from(e);
            findings.problem(error.message, &error.hint);
            return Ok(());
        }
    };
    let name = key.shown();
    let kind = key.public().algorithm();
    if key.needs_program() {
        let agent = match ledger.env().text("SSH_AUTH_SOCK") {
            Some(_) => "an ssh agent is there and may hold it",
            None => "no ssh agent is there (SSH_AUTH_SOCK is not set)",
        };
        findings.note(
            format!("answers are signed with {name} ({kind}), which is behind a passphrase, in an agent or in a token; {agent}"),
            "answer at a terminal, where it can be asked for, or put it into an agent: ssh-add",
        );
        return Ok(());
    }
    match key.named() {
        Named::File(path) if is_open(path)? => findings.problem(
            format!("answers are signed with {name} ({kind}), which others may read or write"),
            &format!("chmod 600 {}", shell_words::quote(&name)),
        ),
        Named::File(_) | Named::Literal => {
            findings.fine(format!("answers are signed with {name} ({kind})"));
        }
    }
    Ok(())
}

fn is_open(path: &Path) -> Result<bool, CliError> {
    let found = files::look_through(path);
    let found = found.map_err(|e| CliError::new(e.code(), e.to_string()))?;
    Ok(found.is_some_and(|found| found.permissions().mode() & OTHERS != 0))
}

pub(super) fn signers(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let (repo, trust) = (ledger.repo()?, ledger.trust()?);
    let in_force = match SignersInForce::load(&repo, ledger.env(), &trust) {
        Ok(found) => found,
        Err(e) => {
            findings.problem(e.to_string(), e.code().hint());
            return Ok(());
        }
    };
    let place = &in_force.place;
    let Ok(key) = ledger.key_in_force() else {
        findings.note(
            format!("{place} says whose answer counts"),
            "no key of yours is there to hold against it",
        );
        return Ok(());
    };
    match refusal(&repo, &in_force, &key) {
        None => findings.fine(format!("{place} lets your key answer")),
        Some(why) => findings.problem(
            format!("{place} does not let your key answer: {why}"),
            "sign with a key it lists, or have yours listed there",
        ),
    }
    Ok(())
}

fn refusal(repo: &gix::Repository, found: &SignersInForce, key: &SigningKey) -> Option<String> {
    let email = repo.config_snapshot().string("user.email").map(|e| e.to_string());
    let name = found.signers.principal_for(key.public(), NAMESPACE, email.as_deref());
    let Some(name) = name else {
        return Some(format!("no line lists {}", key.fingerprint()));
    };
    let judged = found.signers.authorize(key.public(), &name, NAMESPACE, clock::now());
    judged.err().map(|why| why.to_string())
}

//! What is said beside the answer of a command that makes something: it was done, but may not be what was meant.
//!
//! Contract: what is recorded stays recorded, so nothing here fails a command. What cannot be told is said, too.

use super::{cx::Cx, error::CliError};
use crate::{
    code::Code,
    domain::{
        event::Entity,
        ids::{PolicyId, SessionId},
        path::RepoPath,
        policy::Policy,
    },
    ledger::Ledger,
    store::Worktree,
    sys::files,
};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

/// Of another living session under the label of a new one.
pub(super) fn of_session(cx: &Cx, ledger: &Ledger, id: &SessionId) {
    say(cx, || {
        let label = ledger.require_session(id)?.label;
        twins(ledger, &Entity::Session(id.clone()), label.as_deref())
    });
}

/// Of another living policy under the label of a new one, and of paths that may be misspelt.
pub(super) fn of_policy(cx: &Cx, ledger: &Ledger, id: &PolicyId) {
    say(cx, || {
        let policy = ledger.require_policy(id)?;
        let label = policy.spec.label.as_deref();
        let mut lines = twins(ledger, &Entity::Policy(id.clone()), label)?;
        lines.extend(missing(ledger, &policy)?);
        Ok(lines)
    });
}

fn say(cx: &Cx, look: impl FnOnce() -> Result<Vec<String>, CliError>) {
    let lines = look().unwrap_or_else(|error| vec![error.message]);
    lines.iter().for_each(|line| cx.note(&format!("warning: {line}")));
}

fn twins(ledger: &Ledger, made: &Entity, label: Option<&str>) -> Result<Vec<String>, CliError> {
    let Some(label) = label else { return Ok(vec![]) };
    let mut twins = ledger.living(label)?;
    twins.retain(|twin| twin.entity != *made && is_session(&twin.entity) == is_session(made));
    let line = |other: &Entity, state| {
        format!("{other} is called '{label}' too ({state}): only ids tell them apart")
    };
    Ok(twins.iter().map(|twin| line(&twin.entity, twin.state)).collect())
}

fn is_session(entity: &Entity) -> bool {
    match entity {
        Entity::Session(_) => true,
        Entity::Policy(_) => false,
    }
}

/// Listed paths that are neither on disk nor tracked: the agent may make them yet, so they are no error.
fn missing(ledger: &Ledger, policy: &Policy) -> Result<Vec<String>, CliError> {
    let Some(commit) = &policy.spec.commit else { return Ok(vec![]) };
    let mut lines = Vec::new();
    for id in &policy.spec.session_ids {
        let Some(worktree) = ledger.worktree(&ledger.require_session(id)?.worktree)? else {
            continue;
        };
        let index = ledger.repo_in(&worktree)?;
        let index = index.index_or_empty();
        let index = index.map_err(|e| CliError::new(Code::StoreUnusable, e.to_string()))?;
        let tracked = |path: &RepoPath| index.entry_by_path(path.as_bytes().into()).is_some();
        let gone = commit.paths.iter().filter(|path| is_absent(&worktree, path) && !tracked(path));
        lines
            .extend(gone.map(|p| format!("'{p}' is not there yet; the gate is broken without it")));
    }
    Ok(lines)
}

fn is_absent(worktree: &Worktree, path: &RepoPath) -> bool {
    let file = worktree.top.join(OsStr::from_bytes(path.as_bytes()));
    files::is_there(&file).is_ok_and(|there| !there)
}

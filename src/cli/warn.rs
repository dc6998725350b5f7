//! What is said beside the answer of a command that makes something: it was done, but may not be what was meant.
//!
//! Contract: what is recorded stays recorded, so nothing here fails a command. What cannot be told is said, too.

use super::{cx::Cx, error::CliError};
use crate::{
    domain::{
        event::Entity,
        ids::{PolicyId, SessionId},
        path::RepoPath,
        policy::{Policy, Status},
    },
    ledger::Ledger,
    limits,
    store::{
        candidate::signing,
        expand::LeftOut,
        git::Git,
        settings,
        trusted::Rules,
        worktree_state::{StateError, moved_away, not_there, staged_otherwise},
    },
};
use serde_json::{Value, json};

/// Something to be told beside the answer.
pub(super) struct Notice {
    kind: &'static str,
    path: Option<RepoPath>,
    text: String,
}

impl Notice {
    fn of(kind: &'static str, path: &RepoPath, text: String) -> Self {
        Self { kind, path: Some(path.clone()), text }
    }

    fn json(&self) -> Value {
        json!({ "kind": self.kind, "path": self.path, "text": self.text })
    }
}

/// Puts what was told into an answer, too.
pub(super) fn tell(answer: &mut Value, notices: &[Notice]) {
    answer["notices"] = notices.iter().map(Notice::json).collect();
}

/// Of another living session under the label of a new one, and of those that are in the same worktree.
pub(super) fn of_session(cx: &Cx, ledger: &Ledger, id: &SessionId) {
    say(cx, || {
        let session = ledger.require_session(id)?;
        let mut notices = twins(ledger, &Entity::Session(id.clone()), session.label.as_deref())?;
        notices.extend(some(&ledger.beside(&session)?, |other| {
            let text =
                format!("{other} is in this worktree, too: each may undo what the other does");
            Notice { kind: "worktree-busy", path: None, text }
        }));
        Ok(notices)
    });
}

/// Of another living policy under the label of a new one; of paths that may be misspelt, of what is staged and not
/// what will be committed, and of files that are gone and not listed.
pub(super) fn of_policy(
    cx: &Cx,
    ledger: &Ledger,
    id: &PolicyId,
    left_out: &[LeftOut],
) -> Vec<Notice> {
    say(cx, || {
        let policy = ledger.require_policy(id)?;
        let label = policy.spec.label.as_deref();
        let mut notices = twins(ledger, &Entity::Policy(id.clone()), label)?;
        notices.extend(of_rules(ledger)?);
        notices.extend(some(left_out, of_left_out));
        notices.extend(of_paths(ledger, &policy)?);
        notices.extend(of_settings(ledger, &policy)?);
        Ok(notices)
    })
}

/// Of rule files that changed since a person accepted them: they are in force, and somebody may not know.
pub(super) fn of_rules(ledger: &Ledger) -> Result<Option<Notice>, CliError> {
    let Rules::Changed { .. } = ledger.rules()? else { return Ok(None) };
    let text = "the rule files changed since a person accepted them, and are in force: \
                look at them (git agentproto status), then git agentproto trust";
    Ok(Some(Notice { kind: "rules-changed", path: None, text: text.to_owned() }))
}

fn of_left_out(out: &LeftOut) -> Notice {
    let LeftOut { path, is_submodule } = out;
    let text = if *is_submodule {
        format!("'{path}' is a submodule and left out; --allow-submodule takes the commit it is on")
    } else {
        format!("'{path}' is a repository of its own and left out, with all that is in it")
    };
    Notice::of("left-out", path, text)
}

pub(super) fn say(cx: &Cx, look: impl FnOnce() -> Result<Vec<Notice>, CliError>) -> Vec<Notice> {
    let not_told = |e: CliError| vec![Notice { kind: "not-told", path: None, text: e.message }];
    let notices = look().unwrap_or_else(not_told);
    notices.iter().for_each(|notice| cx.note(&format!("warning: {}", notice.text)));
    notices
}

fn twins(ledger: &Ledger, made: &Entity, label: Option<&str>) -> Result<Vec<Notice>, CliError> {
    let Some(label) = label else { return Ok(vec![]) };
    let mut twins = ledger.living(label)?;
    twins.retain(|twin| twin.entity != *made && is_session(&twin.entity) == is_session(made));
    let notice = |other: &Entity, state| {
        let text = format!("{other} is called '{label}' too ({state}): only ids tell them apart");
        Notice { kind: "same-label", path: None, text }
    };
    Ok(twins.iter().map(|twin| notice(&twin.entity, twin.state)).collect())
}

fn is_session(entity: &Entity) -> bool {
    match entity {
        Entity::Session(_) => true,
        Entity::Policy(_) => false,
    }
}

fn of_paths(ledger: &Ledger, policy: &Policy) -> Result<Vec<Notice>, CliError> {
    let Some(commit) = &policy.spec.commit else { return Ok(vec![]) };
    let mut notices = Vec::new();
    // All members are in one worktree.
    if let Some(id) = policy.spec.gate_session() {
        let Some(worktree) = ledger.worktree(&ledger.require_session(id)?.worktree)? else {
            return Ok(notices);
        };
        let repo = ledger.repo_in(&worktree)?;
        let failed = |e: StateError| CliError::new(e.code(), e.to_string());
        let missing = not_there(&repo, &commit.paths).map_err(failed)?;
        // What has turns to come may still make it.
        let yet = if policy.status == Status::Watching { " yet" } else { "" };
        notices.extend(some(&missing, |path| {
            let text = format!("'{path}' is not there{yet}; the gate is broken without it");
            Notice::of("not-there", path, text)
        }));
        let git = Git::new(ledger.env(), &worktree);
        let git = git.map_err(|e| CliError::new(e.code(), e.to_string()))?;
        let staged = staged_otherwise(&repo, &git, &commit.paths).map_err(failed)?;
        notices.extend(some(&staged, |(path, blob)| {
            let text = format!(
                "'{path}' is staged with other content (blob {blob}): the file as it is on disk is what is committed"
            );
            Notice::of("staged-differs", path, text)
        }));
        let gone = moved_away(&repo, &commit.paths).map_err(failed)?;
        notices.extend(some(&gone, |path| {
            let text =
                format!("'{path}' is deleted and not included: list it, too, if it was moved");
            Notice::of("deleted-not-listed", path, text)
        }));
    }
    Ok(notices)
}

/// Of settings that only a person's own scopes decide, set where an agent can write: those of this program, and what signs
/// commits where they are signed.
fn of_settings(ledger: &Ledger, policy: &Policy) -> Result<Vec<Notice>, CliError> {
    if policy.spec.commit.is_none() {
        return Ok(vec![]);
    }
    let repo = ledger.repo()?;
    let signs = signing::is_wanted(&repo).map_err(|e| CliError::new(e.code(), e.to_string()))?;
    let mut ignored = settings::ignored(&repo);
    ignored.sort();
    ignored.dedup();
    ignored.retain(|key| {
        let of_signing = key.starts_with("user.") || key.starts_with("gpg.");
        key.starts_with("agentproto.") || (signs && of_signing)
    });
    Ok(some(&ignored, |key| {
        let text = format!("{key} has no effect here: set it with git config --global");
        Notice { kind: "setting-ignored", path: None, text }
    }))
}

/// A notice for each; of very many the first, and how many more there are.
fn some<T>(of: &[T], notice: impl Fn(&T) -> Notice) -> Vec<Notice> {
    let most = limits::NOTICES_OF_A_KIND;
    let mut notices: Vec<Notice> = of.iter().take(most).map(notice).collect();
    if let (Some(kind), Some(more)) = (notices.first().map(|n| n.kind), of.len().checked_sub(most))
        && more > 0
    {
        notices.push(Notice { kind, path: None, text: format!("and {more} more like that") });
    }
    notices
}

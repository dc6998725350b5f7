//! Landing the candidate of an approved policy.

use super::{PerformError, Progress, Step};
use crate::{
    code::Code,
    domain::{
        event::Kind,
        ids::PolicyId,
        input::Input,
        policy::{Candidate, CommitSpec, Policy, Status},
    },
    ledger::{Ledger, LedgerError},
    runtime::live::{self, Acquired},
    store::{
        Worktree,
        candidate::{LoadError, listed_at},
        git::Git,
        landing::{self, LandCtx, Landed},
    },
};

/// Name of the live file of a landing.
pub(super) fn live_name(policy: &PolicyId) -> String {
    format!("land.{policy}")
}

/// Moves the branch and records it.
pub(super) fn land(ledger: &Ledger, policy: &Policy) -> Result<Step, PerformError> {
    let agent_dir = ledger.store().location().agent_dir();
    let _live = match live::acquire(&agent_dir, &live_name(&policy.policy_id))? {
        Acquired::Mine(live) => live,
        Acquired::Busy { owner } => return Ok(Step::Stop(Progress::Held { owner })),
    };
    let policy = ledger.require_policy(&policy.policy_id)?;
    let (Status::Committing, Some(commit), Some(candidate)) =
        (policy.status, &policy.spec.commit, policy.candidate)
    else {
        return Ok(Step::Again);
    };
    match move_branch(ledger, &policy, commit, candidate)? {
        Landed::Done | Landed::Beyond { .. } => committed(ledger, &policy, &commit.branch),
        Landed::Moved { tip } => {
            let at = tip.map_or_else(|| "gone".to_owned(), |t| format!("at {t}"));
            let because = format!("{} is {at}, not at {}", commit.branch, candidate.parent);
            let id = policy.policy_id.clone();
            let code = Code::StaleCandidate;
            ledger.record(Input::LandingImpossible { policy: id, code, because })?;
            Ok(Step::Again)
        }
        Landed::IndexLocked(path) => {
            let because = format!("{} is held by another process", path.display());
            Ok(Step::Stop(Progress::Waiting { code: Code::IndexLocked, because }))
        }
        Landed::GitBusy { worktree, operation } => {
            let code = operation.code();
            let because = format!("worktree {worktree}: {operation}");
            Ok(Step::Stop(Progress::Waiting { code, because }))
        }
    }
}

fn move_branch(
    ledger: &Ledger,
    policy: &Policy,
    commit: &CommitSpec,
    candidate: Candidate,
) -> Result<Landed, PerformError> {
    let repo = ledger.repo()?;
    let location = ledger.store().location();
    let agent_dir = location.agent_dir();
    let load = |id: &crate::domain::oid::Oid| -> Result<Vec<u8>, LoadError> {
        Ok(ledger.store().object(id)?.data)
    };
    let listed = listed_at(&load, candidate.tree, &commit.paths)
        .map_err(|e| LedgerError::Corrupt(format!("candidate {}: {e}", candidate.commit)))?;
    let git = |worktree: &Worktree| Git::new(ledger.env(), worktree);
    let ctx = LandCtx {
        repo: &repo,
        git: &git,
        agent_dir: &agent_dir,
        name: policy.policy_id.as_str(),
        reflog: &format!("agentproto: policy {}", policy.policy_id),
        branch: &commit.branch,
        parent: candidate.parent,
        candidate: candidate.commit,
        listed: &listed,
        lock_wait_ms: LandCtx::LOCK_WAIT_MS,
    };
    Ok(landing::land(ctx, &location.worktrees().map_err(LedgerError::from)?)?)
}

/// Records the landing; the repository's `post-commit` runs once it is recorded, and cannot undo it.
fn committed(ledger: &Ledger, policy: &Policy, branch: &str) -> Result<Step, PerformError> {
    let recording = ledger.record(Input::BranchMoved { policy: policy.policy_id.clone() })?;
    let landed = recording.events.iter().any(|(r, _)| r.event.body.kind() == Kind::Committed);
    if landed {
        for worktree in ledger.store().location().worktrees().map_err(LedgerError::from)? {
            let repo = ledger.repo_in(&worktree)?;
            let on_branch = matches!(
                crate::store::worktree_state::head(&repo)?,
                crate::store::worktree_state::Head::Branch { ref name, .. } if name == branch
            );
            if on_branch {
                // git ignores how post-commit ends, and so do we.
                let _said = landing::post_commit(&Git::new(ledger.env(), &worktree)?);
            }
        }
    }
    Ok(Step::Again)
}

//! Landing the candidate of an approved policy.

use super::{PerformError, Progress, Step, hooks};
use crate::{
    code::Code,
    domain::{
        event::Kind,
        ids::PolicyId,
        input::Input,
        oid::Oid,
        policy::{Candidate, CommitSpec, Policy, Status},
    },
    ledger::{Ledger, LedgerError},
    runtime::live::{self, Acquired},
    store::{
        Worktree,
        candidate::{Listed, LoadError, listed_at, whole},
        git::Git,
        landing::{self, LandCtx, LandError, Landed},
        worktree_state::is_on,
    },
    sys::clock,
};

/// How the names of the live files of landings begin.
pub(super) const LIVE: &str = "land.";

/// Name of the live file of a landing.
pub(super) fn live_name(policy: &PolicyId) -> String {
    format!("{LIVE}{policy}")
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
    let plan = Plan { ledger, policy: &policy, commit, candidate };
    let landed = || ledger.store().tip(&commit.branch).map(|tip| tip == Some(candidate.commit));
    if let Some(why) = whole::damage(ledger.store(), &candidate)?
        && !landed()?
    {
        // Trying again would find the same for ever. What a killed landing left is taken back first: its lock would be in
        // everybody's way.
        let _ = plan.settle();
        let because = format!("candidate {} is damaged: {why}", candidate.commit);
        ledger.landing_impossible(&policy.policy_id, Code::CandidateUnreadable, because)?;
        return Ok(Step::Again);
    }
    if policy.is_expired(clock::now()) && !plan.is_landed()? {
        ledger.give_up_landing(&policy.policy_id)?;
        return Ok(Step::Again);
    }
    match plan.land()? {
        Landed::Done | Landed::Beyond { .. } => committed(ledger, &policy, &commit.branch),
        Landed::Moved { tip } => {
            ledger.record(Input::TipMoved { policy: policy.policy_id.clone(), tip })?;
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

/// What is to land.
struct Plan<'a> {
    ledger: &'a Ledger,
    policy: &'a Policy,
    commit: &'a CommitSpec,
    candidate: Candidate,
}

impl Plan<'_> {
    fn land(&self) -> Result<Landed, PerformError> {
        let Self { ledger, commit, candidate, .. } = self;
        let load = |id: &Oid| -> Result<Vec<u8>, LoadError> { Ok(ledger.store().object(id)?.data) };
        let at = |tree: Oid| {
            listed_at(&load, tree, &commit.paths)
                .map_err(|e| LedgerError::Corrupt(format!("candidate {}: {e}", candidate.commit)))
        };
        let parent = ledger.store().commit_tree(&candidate.parent).map_err(LedgerError::from)?;
        self.with_landing((&at(candidate.tree)?, &at(parent)?), landing::land)
    }

    /// Finishes or takes back what a killed landing left, for which the candidate need not be readable.
    fn settle(&self) -> Result<(), PerformError> {
        self.with_landing((&[], &[]), landing::settle)
    }

    fn with_landing<T>(
        &self,
        (listed, before): (&[Listed], &[Listed]),
        act: impl FnOnce(LandCtx<'_>, &[Worktree]) -> Result<T, LandError>,
    ) -> Result<T, PerformError> {
        let Self { ledger, policy, commit, candidate } = self;
        let repo = ledger.repo()?;
        let location = ledger.store().location();
        let agent_dir = location.agent_dir();
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
            listed,
            before,
            lock_wait_ms: LandCtx::LOCK_WAIT_MS,
        };
        Ok(act(ctx, &location.worktrees_with_index().map_err(LedgerError::from)?)?)
    }

    /// True when the branch holds the candidate. What a killed landing left is finished or taken back before the look.
    fn is_landed(&self) -> Result<bool, PerformError> {
        self.settle()?;
        let Self { ledger, commit, candidate, .. } = self;
        let Some(tip) = ledger.store().tip(&commit.branch)? else { return Ok(false) };
        if tip == candidate.commit || tip == candidate.parent {
            return Ok(tip == candidate.commit);
        }
        let (candidate, tip) = (candidate.commit.to_string(), tip.to_string());
        let git = ledger.store().git()?;
        Ok(git.ask(&["merge-base", "--is-ancestor", &candidate, &tip])?)
    }
}

/// Records the landing; the repository's `post-commit` runs once it is recorded, and cannot undo it.
fn committed(ledger: &Ledger, policy: &Policy, branch: &str) -> Result<Step, PerformError> {
    let recording = ledger.record(Input::BranchMoved { policy: policy.policy_id.clone() })?;
    let landed = recording.events.iter().any(|(r, _)| r.event.body.kind() == Kind::Committed);
    if landed {
        for worktree in ledger.store().location().worktrees().map_err(LedgerError::from)? {
            let repo = ledger.repo_in(&worktree)?;
            if is_on(&repo, branch)? {
                let git = Git::new(ledger.env(), &worktree)?;
                if let Some(why) = landing::post_commit(&git, hooks::deadline_ms(policy)) {
                    let id = &policy.policy_id;
                    let said =
                        format!("warning: {id} has landed, but its post-commit failed: {why}");
                    ledger.store().said().add(said);
                }
            }
        }
    }
    Ok(Step::Again)
}

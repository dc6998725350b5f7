//! `allow --commit`: an entry of the team's allowlist as a commit on the local trusted branch.
//!
//! Contract: the person who asks is the author; the commit differs from the tip in the one file and is landed as
//! candidates are, index first, so nothing staged rides along and nothing staged is lost. The journal has no
//! event for it: the commit is the record. A working file is brought along only in the worktree the person
//! stands in, and only when it was exactly what the branch had. Rules that were accepted stay accepted, since
//! the change is the person's own. A run that was killed is finished or taken back by the next command that
//! opens the repository.

mod working_file;

pub use working_file::WorkingFile;

use super::Setup;
use crate::{
    code::Code,
    domain::{oid::Oid, path::RepoPath},
    ledger::{Ledger, LedgerError, Problem},
    limits::INDEX_LOCK_WAIT_MS,
    store::{
        Worktree,
        allowlist::{self, Origin, RULE_FILE, with_entry},
        candidate::{Listed, commit_object, listed_at, message},
        git::{Git, GitError},
        identity::identity,
        landing::{self, LandCtx, LandError, Landed},
        object::{HashError, Kind, Object},
        tree::{self, Mode},
        trusted::{Rules, load_rule_file, rules_digest},
        worktree_state::{commit_obstacles, is_on},
    },
    sys::{
        clock,
        files::{self, FileError},
        lock::KernelLock,
    },
};
use std::path::PathBuf;

/// What the lock records of these landings are named by, before the candidate's id.
const LANDING: &str = "allow-";

/// True for the name of a landing of this kind.
pub(in crate::ledger) fn is_landing(name: &str) -> bool {
    name.strip_prefix(LANDING).is_some_and(|candidate| candidate.parse::<Oid>().is_ok())
}

/// What `allow --commit` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowCommitted {
    /// Full name of the trusted branch.
    pub trusted_ref: String,
    /// The commit made; none when the branch had the entry before.
    pub landed: Option<AllowLanded>,
}

/// A commit of the allowlist on the trusted branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowLanded {
    /// The commit.
    pub commit: Oid,
    /// What became of the file in the worktree the person stands in.
    pub working_file: WorkingFile,
    /// The rule files count as accepted, as they did before.
    pub accepted: bool,
    /// What a failed `post-commit` hook said; it undoes nothing.
    pub hook: Option<String>,
}

/// The commit to be, nothing of it written yet.
struct Plan {
    parent: Oid,
    commit: Oid,
    objects: Vec<Object>,
    listed: Listed,
    before: Option<(Mode, Oid)>,
}

impl Ledger {
    /// Adds a command with its first arguments to the allowlist of the trusted branch and commits that.
    ///
    /// # Errors
    /// Inside a session; the trusted ref is no local branch; the command cannot be an entry or the file cannot
    /// be understood; no identity; hooks or signing of commits; a staged change of the file; a branch or index
    /// that somebody else holds: nothing was committed then. Last, settings that cannot be written.
    pub fn allow_commit(&self, argv: &[String]) -> Result<AllowCommitted, LedgerError> {
        self.require_outside(Code::PersonOnly, "allow --commit")?;
        let file_failed = |e: FileError| LedgerError::refused(Code::Io, "allow", e.to_string());
        files::make_dirs(&self.store.location().agent_dir()).map_err(file_failed)?;
        let _alone = KernelLock::acquire(&self.allow_lock(), INDEX_LOCK_WAIT_MS)
            .map_err(|e| LedgerError::refused(e.code(), "allow", e.to_string()))?;
        self.settle_allows()?;
        let mut setup = self.setup("allow", self.trust()?)?;
        let trusted_ref = setup.trust.trusted_ref.clone();
        require_local(&trusted_ref, argv)?;
        setup.fix_path()?;
        let landed = match setup.plan(argv)? {
            Some(plan) => Some(setup.carry_out(&plan)?),
            None => None,
        };
        setup.write()?;
        Ok(AllowCommitted { trusted_ref, landed })
    }

    /// Finishes or takes back what a killed `allow --commit` left, if nobody is at it. A failure is not told: the
    /// next command tries again, and whoever needs the index is told who holds it.
    pub fn settle_dead_allows(&self) {
        let dead = || -> Result<(), LedgerError> {
            if self.unsettled()?.is_empty() {
                return Ok(());
            }
            let lock = KernelLock::try_acquire(&self.allow_lock())
                .map_err(|e| LedgerError::refused(Code::Io, "allow", e.to_string()))?;
            lock.map_or(Ok(()), |_alone| self.settle_allows())
        };
        let _ = dead();
    }

    /// Needs the lock.
    fn settle_allows(&self) -> Result<(), LedgerError> {
        for candidate in self.unsettled()? {
            let branch = self.trust()?.trusted_ref;
            // The tip alone tells whether the candidate arrived: its parent does not matter here.
            self.with_landing(&branch, candidate, (candidate, &[], &[]), |ctx, worktrees| {
                landing::settle(ctx, worktrees)
            })?;
        }
        Ok(())
    }

    /// Candidates whose landing left a lock record.
    fn unsettled(&self) -> Result<Vec<Oid>, LedgerError> {
        let names = files::names(&self.store.location().agent_dir().join("tmp"))
            .map_err(|e| LedgerError::refused(Code::Io, "allow", e.to_string()))?;
        let of_record = |name: &str| {
            let rest = name.strip_prefix("index-lock.")?.strip_prefix(LANDING)?;
            rest.split_once('.')?.0.parse().ok()
        };
        let mut found: Vec<Oid> =
            names.iter().filter_map(|name| of_record(name.to_str()?)).collect();
        found.dedup();
        Ok(found)
    }

    fn allow_lock(&self) -> PathBuf {
        self.store.location().agent_dir().join("allow.lock")
    }

    fn with_landing<T>(
        &self,
        branch: &str,
        candidate: Oid,
        (parent, listed, before): (Oid, &[Listed], &[Listed]),
        act: impl FnOnce(LandCtx<'_>, &[Worktree]) -> Result<T, LandError>,
    ) -> Result<T, LedgerError> {
        let git = |worktree: &Worktree| Git::new(&self.env, worktree);
        let location = self.store.location();
        let ctx = LandCtx {
            repo: &self.repo()?,
            git: &git,
            agent_dir: &location.agent_dir(),
            name: &format!("{LANDING}{candidate}"),
            reflog: "agentproto: allow",
            branch,
            parent,
            candidate,
            listed,
            before,
            lock_wait_ms: LandCtx::LOCK_WAIT_MS,
        };
        act(ctx, &location.worktrees_with_index()?)
            .map_err(|e| LedgerError::refused(e.code(), branch, e.to_string()))
    }
}

impl Setup<'_> {
    /// The commit that adds the entry; none when the branch has it.
    fn plan(&self, argv: &[String]) -> Result<Option<Plan>, LedgerError> {
        let (repo, trust, store) = (&self.repo, &self.trust, &self.ledger.store);
        let place = format!("{RULE_FILE} on {}", trust.trusted_ref);
        let refused = |code, why: String| LedgerError::refused(code, &place, why);
        let existing = load_rule_file(repo, trust.tip, RULE_FILE)
            .map_err(allowlist::LoadError::from)
            .map_err(|e| refused(e.code(), e.to_string()))?;
        let text = with_entry(&place, existing.as_deref(), argv, Origin::TrustedRef)
            .map_err(|e| refused(e.code(), e.to_string()))?;
        let Some(text) = text else { return Ok(None) };
        let who = identity(repo).map_err(|e| refused(e.code(), e.to_string()))?;

        let root = store.commit_tree(&trust.tip)?;
        let path = rule_path()?;
        let before =
            listed_at(&|id: &Oid| Ok(store.object(id)?.data), root, std::slice::from_ref(&path))
                .map_err(|e| refused(e.code(), e.to_string()))?;
        let before = before.into_iter().find_map(|(_, entry)| entry);
        let no_id = |e: HashError| refused(Code::StoreUnusable, e.to_string());
        let blob = Object::new(root.hash(), Kind::Blob, text.into_bytes()).map_err(no_id)?;
        let entry = Some((before.map_or(Mode::File, |(mode, _)| mode), blob.id));
        let change = tree::Change { path: path.as_bytes().to_vec(), to: entry };
        let mut load = |id: &Oid| Ok(store.object(id)?.data);
        let (tree, trees) = tree::edit(root.hash(), Some(root), &[change], &mut load).map_err(
            |e: tree::TreeEditError<crate::store::StoreError>| {
                refused(e.code(crate::store::StoreError::code), e.to_string())
            },
        )?;
        let message = commit_message(argv)?;
        let commit = commit_object(tree, trust.tip, &who, clock::now(), &message).map_err(no_id)?;
        let plan = Plan {
            parent: trust.tip,
            commit: commit.id,
            objects: [vec![blob], trees, vec![commit]].concat(),
            listed: (path, entry),
            before,
        };
        Ok(Some(plan))
    }

    /// Lands the commit and what goes with it.
    fn carry_out(&mut self, plan: &Plan) -> Result<AllowLanded, LedgerError> {
        let (ledger, branch) = (self.ledger, self.trust.trusted_ref.clone());
        self.require_able(plan)?;
        let accepted = match self.trust.rules(&self.repo)? {
            Rules::Accepted { .. } => true,
            Rules::NeverAccepted { .. } | Rules::Changed { .. } => false,
        };
        let (git, intent) = (self.git()?, self.look(plan)?);
        ledger.store.write_loose(&plan.objects)?;
        if accepted {
            let digest = rules_digest(&ledger.repo()?, plan.commit)?;
            self.set("agentproto.trustedRules", &digest)?;
        }
        let (listed, before) = ([plan.listed.clone()], [(plan.listed.0.clone(), plan.before)]);
        let what = (plan.parent, &listed[..], &before[..]);
        let end = ledger.with_landing(&branch, plan.commit, what, landing::land)?;
        require_landed(end, &branch)?;
        let (working_file, hook) = self.follow(&git, plan, intent);
        Ok(AllowLanded { commit: plan.commit, working_file, accepted, hook })
    }

    /// What this version cannot do with commits, and what of the person's a landing would lose.
    fn require_able(&self, plan: &Plan) -> Result<(), LedgerError> {
        if let Some((code, what)) = commit_obstacles(&self.repo)?.into_iter().next() {
            let because = format!("the repository has {what}");
            return Err(LedgerError::refused(code, &what, because));
        }
        for worktree in self.ledger.store.location().worktrees()? {
            if !self.has_branch(&worktree)? {
                continue;
            }
            let parent = plan.parent.to_string();
            let args = ["diff-index", "--cached", "--quiet", &parent, "--", RULE_FILE];
            let same = Git::new(&self.ledger.env, &worktree).and_then(|git| git.ask(&args));
            if !same.map_err(|e| git_failed(&e))? {
                let because = format!("a change of it is staged in {}", worktree.top.display());
                return Err(LedgerError::refused(Code::RuleFileStaged, RULE_FILE, because));
            }
        }
        Ok(())
    }

    fn has_branch(&self, worktree: &Worktree) -> Result<bool, LedgerError> {
        Ok(is_on(&self.ledger.repo_in(worktree)?, &self.trust.trusted_ref)?)
    }

    fn git(&self) -> Result<Git, LedgerError> {
        Git::new(&self.ledger.env, &self.worktree).map_err(|e| git_failed(&e))
    }
}

fn git_failed(error: &GitError) -> LedgerError {
    LedgerError::refused(error.code(), "git", error.to_string())
}

fn rule_path() -> Result<RepoPath, LedgerError> {
    RepoPath::new(RULE_FILE.as_bytes())
        .map_err(|e| LedgerError::refused(Code::Internal, RULE_FILE, e.to_string()))
}

/// One line, whatever the arguments hold.
fn commit_message(argv: &[String]) -> Result<Vec<u8>, LedgerError> {
    let command = shell_words::join(argv).replace(char::is_control, " ");
    message::clean(format!("agentproto: allow {command}").as_bytes())
        .map_err(|e| LedgerError::refused(e.code(), "the commit message", e.to_string()))
}

/// A remote's branch is moved by pushing, which is not ours to do.
fn require_local(trusted_ref: &str, argv: &[String]) -> Result<(), LedgerError> {
    if trusted_ref.starts_with("refs/heads/") {
        return Ok(());
    }
    let branch = trusted_ref.strip_prefix("refs/remotes/").unwrap_or(trusted_ref);
    let why = format!("rules are read from {trusted_ref}, which is no local branch");
    let command = shell_words::join(argv);
    let hint = format!(
        "commit the entry to {RULE_FILE} on {branch} and push it, or allow it for yourself: \
         git agentproto allow -- {command}"
    );
    Err(problem(Code::TrustedRefRemote, "--commit", why, &hint))
}

fn require_landed(end: Landed, branch: &str) -> Result<(), LedgerError> {
    match end {
        Landed::Done | Landed::Beyond { .. } => Ok(()),
        Landed::IndexLocked(path) => {
            let why = format!("{} is held by another process", path.display());
            Err(problem(Code::IndexLocked, branch, why, "let that process end, then run it again"))
        }
        Landed::Moved { tip } => {
            let at = tip.map_or_else(|| "is gone".to_owned(), |tip| format!("is at {tip} now"));
            let why = format!("{branch} {at}");
            Err(problem(Code::StaleCandidate, branch, why, "run it again"))
        }
        Landed::GitBusy { worktree, operation } => {
            let why = format!("worktree {worktree}: {operation}");
            Err(LedgerError::refused(operation.code(), branch, why))
        }
    }
}

fn problem(code: Code, field: &str, why: String, hint: &str) -> LedgerError {
    let hint = Some(hint.to_owned());
    LedgerError::Problems(vec![Problem { code, field: field.to_owned(), why, hint }])
}

#[cfg(test)]
mod tests;

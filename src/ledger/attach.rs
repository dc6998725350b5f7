//! `attach` and `commit`: a policy made of what was asked, after everything that can be checked was checked.
//!
//! Contract: all problems are told at once and nothing is written when there is one ([`Problems`]). What a
//! policy is made of is fixed here: programs with their digests, the directory, the branch, the paths.

use super::{
    Ledger, LedgerError, Problem, Recording, adopt::require_label, gates::anchor,
    problems::Problems,
};
use crate::{
    code::Code,
    domain::{
        event::SessionStarted,
        gate::{Gate, GateDef},
        ids::{PolicyId, SessionId},
        input::{Covers, Input},
        policy::{CommitSpec, OnStale, PolicySpec, Then},
        time::{Timestamp, typed_duration},
        wanted::Wanted,
    },
    limits,
    store::{
        Worktree, expand::LeftOut, protect::Protected, trusted::Trust, worktree_state::not_there,
    },
    sys::clock,
};
use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// A gate as it was typed.
#[derive(Clone, Debug)]
pub struct GateAsk {
    /// Its words.
    pub argv: Vec<String>,
}

/// The commit part of a policy as it was typed.
#[derive(Clone, Debug)]
pub struct CommitAsk {
    /// Files, relative to the current directory or absolute.
    pub paths: Vec<OsString>,
    /// The message before cleanup.
    pub message: Vec<u8>,
    /// No person is asked.
    pub no_ack: bool,
    /// Conflict markers in the files are meant.
    pub allow_markers: bool,
    /// A directory stands for what `git add` would add of it now.
    pub recursive: bool,
    /// Files that an ignore rule covers are meant.
    pub force_ignored: bool,
    /// Submodules that `.gitmodules` declares are meant.
    pub allow_submodule: bool,
    /// A `HEAD` that is on no branch may be what moves.
    pub detached_ok: bool,
}

/// A policy as it was typed.
#[derive(Clone, Debug)]
pub struct AttachAsk {
    /// The name a person gives it.
    pub label: Option<String>,
    /// In the order they run.
    pub gates: Vec<GateAsk>,
    /// Where they run: relative to the worktree's top, or absolute inside it; the top when absent.
    pub gate_cwd: Option<OsString>,
    /// Their deadline, milliseconds.
    pub gate_timeout_ms: Option<u64>,
    /// A regular expression that a line of each gate's output must match.
    pub require_output: Option<String>,
    /// Paths that must be as on the trusted ref, in gitignore syntax.
    pub protect: Vec<String>,
    /// A commit policy without a gate is meant.
    pub ungated: bool,
    /// What to commit; an `emit` policy when absent.
    pub commit: Option<CommitAsk>,
    /// What becomes of a candidate whose branch moved; the default when absent.
    pub on_stale: Option<OnStale>,
    /// When it ends; never when absent.
    pub expires: Option<Timestamp>,
}

/// The worktree a policy is about.
pub(super) struct Site {
    pub(super) worktree: Worktree,
    pub(super) repo: gix::Repository,
}

/// What was asked, after all checks.
struct Checked {
    gates: Vec<(Gate, PathBuf)>,
    commit: Option<CommitSpec>,
    /// Repositories that a directory stands for no part of.
    left_out: Vec<LeftOut>,
}

impl Ledger {
    /// Attaches a policy to a session.
    ///
    /// # Errors
    /// [`LedgerError::Problems`] with everything that is in the way; the session is over; the journal cannot
    /// be written.
    pub fn attach(
        &self,
        session: &SessionId,
        ask: &AttachAsk,
        covers: Covers,
    ) -> Result<(PolicyId, Recording), LedgerError> {
        let mut problems = Problems::default();
        let site = problems.note("sessionId", self.session_site(session));
        let checked = self.check(ask, site.as_ref(), &mut problems);
        let mut checked = problems.finish(checked)?;
        let left_out = std::mem::take(&mut checked.left_out);
        let (policy, programs) = (clock::new_policy_id(), checked.programs());
        let spec = checked.into_spec(session, ask);
        let input = Input::PolicyAsked { policy: policy.clone(), spec, covers };
        let recording = Recording { left_out, ..self.record(input)? };
        self.keep_programs(&policy, &programs);
        Ok((policy, recording))
    }

    /// `commit`: a session of its own in the current worktree, its turn ended, and a policy on it.
    ///
    /// # Errors
    /// As [`Ledger::attach`]; also outside a worktree.
    pub fn commit(&self, ask: &AttachAsk) -> Result<(PolicyId, Recording), LedgerError> {
        let mut problems = Problems::default();
        let here = problems.note("cwd", self.site_here());
        if ask.commit.is_none() {
            problems.say(Code::NoPaths, "commit.paths", "there is nothing to commit");
        }
        let checked = self.check(ask, here.as_ref().map(|(site, _)| site), &mut problems);
        if let (Some(checked), Some((site, _))) = (&checked, &here) {
            require_there(checked, site, &mut problems);
        }
        let (mut checked, (_, started)) = problems.finish(checked.zip(here))?;
        let left_out = std::mem::take(&mut checked.left_out);
        let (session, policy) = (clock::new_session_id(), clock::new_policy_id());
        let programs = checked.programs();
        let spec = checked.into_spec(&session, ask);
        let input = Input::CommitAsked { session, started, policy: policy.clone(), spec };
        let recording = Recording { left_out, ..self.record(input)? };
        self.keep_programs(&policy, &programs);
        Ok((policy, recording))
    }

    fn session_site(&self, id: &SessionId) -> Result<Site, LedgerError> {
        let session = self.require_session(id)?;
        let worktree = self.worktree(&session.worktree)?.ok_or_else(|| {
            let because = format!("its worktree '{}' is gone", session.worktree);
            LedgerError::refused(Code::NoSuchCwd, id.as_str(), because)
        })?;
        let repo = self.repo_in(&worktree)?;
        Ok(Site { worktree, repo })
    }

    fn site_here(&self) -> Result<(Site, SessionStarted), LedgerError> {
        let (worktree, cwd) = self.place(self.env.cwd())?;
        let repo = self.repo_in(&worktree)?;
        let base = self.base(&worktree, None)?;
        let started =
            SessionStarted { label: None, worktree: worktree.id.clone(), cwd, base, own: true };
        Ok((Site { worktree, repo }, started))
    }

    fn check(
        &self,
        ask: &AttachAsk,
        site: Option<&Site>,
        problems: &mut Problems,
    ) -> Option<Checked> {
        problems.note("label", require_label(ask.label.as_deref()));
        check_end(ask, problems);
        let by_rules = !ask.gates.is_empty() || ask.commit.is_some();
        let trust = if by_rules { problems.note("worktree", self.trust()) } else { None };
        let mut left_out = Vec::new();
        let commit = ask.commit.as_ref().map(|commit| {
            self.commit_spec(commit, (site, trust.as_ref()), problems, &mut left_out)
        });
        let gates = self.check_gates(ask, site, trust.as_ref(), problems);
        let commit = commit.map_or(Some(None), |c| c.map(Some))?;
        Some(Checked { gates: gates?, commit, left_out })
    }

    fn check_gates(
        &self,
        ask: &AttachAsk,
        site: Option<&Site>,
        trust: Option<&Trust>,
        problems: &mut Problems,
    ) -> Option<Vec<(Gate, PathBuf)>> {
        check_number(ask, problems);
        let timeout_ms = check_timeout(ask.gate_timeout_ms, problems);
        check_conditions(ask, problems);
        let top = &site?.worktree.top;
        let cwd = ask.gate_cwd.as_deref().unwrap_or(OsStr::new("."));
        let cwd = problems.note("gate.cwd", anchor(top, cwd));
        if ask.gates.is_empty() {
            return Some(vec![]);
        }
        let worktree = &site?.worktree;
        let rules = problems.note("gate", self.gate_rules(worktree, trust?))?;
        let mut found = Vec::new();
        for (index, GateAsk { argv }) in ask.gates.iter().enumerate() {
            match rules.find(argv, worktree, &format!("gates[{index}]")) {
                Ok(program) => found.push((argv, program)),
                Err(problem) => problems.add(problem),
            }
        }
        let cwd = cwd?;
        let gate = |(argv, (path, program)): (&Vec<String>, (PathBuf, String))| {
            let (command, args) = argv.split_first()?;
            let (command, args, cwd) = (command.clone(), args.to_vec(), cwd.clone());
            let (require_output, protect) = (ask.require_output.clone(), ask.protect.clone());
            let def = GateDef { command, args, cwd, timeout_ms, require_output, protect };
            Some((Gate { def, program }, path))
        };
        found.into_iter().map(gate).collect()
    }
}

impl Checked {
    fn programs(&self) -> Vec<PathBuf> {
        self.gates.iter().map(|(_, path)| path.clone()).collect()
    }

    fn into_spec(self, session: &SessionId, ask: &AttachAsk) -> PolicySpec {
        PolicySpec {
            label: ask.label.clone(),
            session_ids: vec![session.clone()],
            then: if self.commit.is_some() { Then::Commit } else { Then::Emit },
            gates: self.gates.into_iter().map(|(gate, _)| gate).collect(),
            commit: self.commit,
            base: 0,
            on_stale: ask.on_stale.unwrap_or_default(),
            expires: ask.expires,
        }
    }
}

/// Nobody is at work who could still make a file: what is nowhere is misspelt.
fn require_there(checked: &Checked, site: &Site, problems: &mut Problems) {
    let few = |c: &&CommitSpec| c.paths.len() <= limits::PATHS_PER_POLICY;
    let Some(commit) = checked.commit.as_ref().filter(few) else { return };
    let missing = not_there(&site.repo, &commit.paths).map_err(LedgerError::from);
    for path in problems.note("commit.paths", missing).unwrap_or_default() {
        let hint = "check the spelling: --path counts from where you stand".to_owned();
        problems.add(Problem {
            code: Code::NoSuchPath,
            field: format!("commit.paths: {path}"),
            why: format!("'{path}' neither exists nor is tracked"),
            hint: Some(hint),
        });
    }
}

fn check_number(ask: &AttachAsk, problems: &mut Problems) {
    let (count, most) = (ask.gates.len(), limits::GATES_PER_POLICY);
    if count > most {
        problems.say(Code::TooMany, "gate", format!("{count} gates, at most {most} are accepted"));
    }
    if ask.ungated && count > 0 {
        problems.say(Code::Usage, "ungated", "a policy is either gated or ungated");
    }
    if ask.commit.is_some() && count == 0 && !ask.ungated {
        problems.say(Code::GateRequired, "gate", "a commit policy needs a gate");
    }
}

fn check_end(ask: &AttachAsk, problems: &mut Problems) {
    if ask.on_stale.is_some() && ask.commit.is_none() {
        problems.say(Code::Usage, "onStale", "without a commit there is no candidate");
    }
    if let Some(expires) = ask.expires.filter(|expires| *expires <= clock::now()) {
        problems.say(Code::BadTime, "expires", format!("{expires} is over"));
    }
}

fn check_timeout(asked: Option<u64>, problems: &mut Problems) -> u64 {
    let timeout_ms = asked.unwrap_or(limits::GATE_TIMEOUT_DEFAULT_MS);
    if timeout_ms > limits::GATE_TIMEOUT_MAX_MS {
        let most = typed_duration(limits::GATE_TIMEOUT_MAX_MS);
        let why = format!("{}, at most {most} is accepted", typed_duration(timeout_ms));
        problems.say(Code::GateTimeoutTooLong, "gate.timeoutMs", why);
    }
    if timeout_ms == 0 {
        problems.say(Code::Usage, "gate.timeoutMs", "a gate without any time cannot run");
    }
    timeout_ms
}

/// What a green exit alone does not prove: the words can be understood, and there is a gate they are about.
fn check_conditions(ask: &AttachAsk, problems: &mut Problems) {
    let none = ask.gates.is_empty();
    if let Some(wanted) = &ask.require_output {
        let field = "requireOutput";
        if let Err(why) = Wanted::parse(wanted) {
            problems.say(Code::Usage, field, why);
        } else if none {
            problems.say(Code::Usage, field, "there is no gate whose output could be looked at");
        }
    }
    if !ask.protect.is_empty() {
        let field = "gate.protect";
        if let Err(why) = Protected::parse(&ask.protect) {
            problems.say(Code::Usage, field, why);
        } else if none {
            problems.say(Code::Usage, field, "there is no gate to protect");
        }
    }
}

#[cfg(test)]
mod tests;

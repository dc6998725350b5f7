//! `attach` and `commit`: a policy made of what was asked, after everything that can be checked was checked.
//!
//! Contract: all problems are told at once and nothing is written when there is one ([`Problems`]). What a
//! policy is made of is fixed here: programs with their digests, the directory, the branch, the paths.

use super::{
    Ledger, LedgerError, Problem, Recording,
    adopt::require_label,
    gates::anchor,
    problems::{NO_NUL, Problems},
};
use crate::{
    code::Code,
    domain::{
        event::SessionStarted,
        gate::{Gate, GateDef, ScopeGate, ShellGate},
        ids::{PolicyId, SessionId},
        input::{Covers, Input},
        oid::Oid,
        policy::{Again, CommitSpec, NextPolicy, OnEnd, OnFail, OnStale, PolicySpec, Then},
        session::Session,
        time::{Timestamp, typed_duration},
        variable::{is_never, is_ours},
        wanted::Wanted,
    },
    limits,
    store::{
        Worktree, expand::LeftOut, protect::Protected, scope::Scope, settings::EnvRules,
        trusted::Trust,
    },
    sys::clock,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// A gate as it was typed.
#[derive(Clone, Debug)]
pub enum GateAsk {
    /// Files may differ from the session's base only where these patterns say so.
    Scope(Vec<String>),
    /// A command.
    Shell(ShellAsk),
}

impl GateAsk {
    /// The words of a command.
    pub(super) fn argv(&self) -> Option<&Vec<String>> {
        match self {
            Self::Shell(gate) => Some(&gate.argv),
            Self::Scope(_) => None,
        }
    }
}

/// A shell gate as it was typed. What it does not say of itself, the policy says for all of them.
#[derive(Clone, Debug, Default)]
pub struct ShellAsk {
    /// Its words.
    pub argv: Vec<String>,
    /// Where it runs.
    pub cwd: Option<OsString>,
    /// Its deadline, milliseconds.
    pub timeout_ms: Option<u64>,
    /// Paths that must be as on the trusted ref, beside those of the policy.
    pub protect: Vec<String>,
    /// Variables it gets, beside those of the policy.
    pub env: BTreeMap<String, String>,
}

impl GateAsk {
    /// A gate of these words.
    #[must_use]
    pub fn of(argv: Vec<String>) -> Self {
        Self::Shell(ShellAsk { argv, ..ShellAsk::default() })
    }

    /// A shell gate, which alone has a program, output and a deadline.
    fn is_shell(&self) -> bool {
        match self {
            Self::Shell(_) => true,
            Self::Scope(_) => false,
        }
    }
}

/// What the end of a turn leads to, as it was typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnsAsk {
    /// Which ends count.
    pub on_end: OnEnd,
    /// What red gates lead to; to the end when absent.
    pub on_fail: Option<OnFail>,
    /// The sessions end with the policy.
    pub end_session: bool,
}

/// The commit part of a policy as it was typed.
#[derive(Clone, Debug)]
pub struct CommitAsk {
    /// Files, relative to the current directory or absolute.
    pub paths: Vec<OsString>,
    /// They are relative to the worktree's top instead.
    pub from_top: bool,
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

/// Whose turns a policy is about.
#[derive(Clone, Debug)]
pub struct GroupAsk {
    /// The members, in order; one that is named twice counts once.
    pub members: Vec<SessionId>,
    /// Whose worktree the gates run in; that of the first member when absent.
    pub gate_session: Option<SessionId>,
    /// Which of their turns count.
    pub covers: Covers,
}

impl GroupAsk {
    /// A group of one.
    #[must_use]
    pub fn of(session: &SessionId, covers: Covers) -> Self {
        Self { members: vec![session.clone()], gate_session: None, covers }
    }
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
    /// Variables of every gate.
    pub gate_env: BTreeMap<String, String>,
    /// Gates get nothing of their caller's environment.
    pub gate_env_clean: bool,
    /// A commit policy without a gate is meant.
    pub ungated: bool,
    /// What to commit; an `emit` policy when absent.
    pub commit: Option<CommitAsk>,
    /// What becomes of a candidate whose branch moved; the default when absent.
    pub on_stale: Option<OnStale>,
    /// What the end of a turn leads to.
    pub turns: TurnsAsk,
    /// When it ends; never when absent.
    pub expires: Option<Timestamp>,
    /// The policy that is asked for once more.
    pub again: Option<Again>,
    /// What follows when it is done.
    pub next: Option<Box<NextAsk>>,
}

impl AttachAsk {
    /// Whether it, or what follows, commits something.
    fn commits(&self) -> bool {
        self.commit.is_some() || self.next.as_ref().is_some_and(|next| next.ask.commits())
    }

    /// Whether it, or what follows, has a scope.
    fn has_scope(&self) -> bool {
        self.gates.iter().any(|gate| !gate.is_shell())
            || self.next.as_ref().is_some_and(|next| next.ask.has_scope())
    }

    /// How many policies it describes.
    fn length(&self) -> usize {
        1 + self.next.as_ref().map_or(0, |next| next.ask.length())
    }
}

/// A policy that follows another one, as it was typed.
#[derive(Clone, Debug)]
pub struct NextAsk {
    /// What is asked for.
    pub ask: AttachAsk,
    /// Only turns that end from then on count.
    pub next_turn: bool,
}

/// Where the programs of policies were found.
pub(super) type Found = Vec<(PolicyId, Vec<PathBuf>)>;

/// The worktree a policy is about.
pub(super) struct Site {
    pub(super) worktree: Worktree,
    pub(super) repo: gix::Repository,
    base: Base,
}

/// What the session whose worktree it is started from.
struct Base {
    commit: Option<Oid>,
    is_dirty: bool,
}

/// What was asked, after all checks.
struct Checked {
    gates: Vec<(Gate, Option<PathBuf>)>,
    commit: Option<CommitSpec>,
    next: Option<Box<Checked>>,
    /// Repositories that a directory stands for no part of.
    left_out: Vec<LeftOut>,
}

impl Ledger {
    /// Attaches a policy to sessions.
    ///
    /// # Errors
    /// [`LedgerError::Problems`] with everything that is in the way; a session is over; the journal cannot
    /// be written.
    pub fn attach(
        &self,
        group: &GroupAsk,
        ask: &AttachAsk,
    ) -> Result<(PolicyId, Recording), LedgerError> {
        let mut problems = Problems::default();
        check_length(ask, &mut problems);
        let (group, site) = self.gather(group, ask, &mut problems);
        self.check_members(ask, &group, &mut problems);
        let checked = self.check(ask, site.as_ref(), &mut problems);
        let mut checked = problems.finish(checked)?;
        let left_out = std::mem::take(&mut checked.left_out);
        let (policy, covers) = (clock::new_policy_id(), group.covers);
        let mut programs = Vec::new();
        let spec = checked.into_spec(&policy, &group, ask, &mut programs);
        let input = Input::PolicyAsked { policy: policy.clone(), spec, covers };
        let recording = Recording { left_out, ..self.record(input)? };
        self.keep_all(&programs);
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
        let (mut checked, (_, started)) = problems.finish(checked.zip(here))?;
        let left_out = std::mem::take(&mut checked.left_out);
        let (session, policy) = (clock::new_session_id(), clock::new_policy_id());
        let mut programs = Vec::new();
        let group = GroupAsk::of(&session, Covers::LastAndNext);
        let spec = checked.into_spec(&policy, &group, ask, &mut programs);
        let input = Input::CommitAsked { session, started, policy: policy.clone(), spec };
        let recording = Recording { left_out, ..self.record(input)? };
        self.keep_all(&programs);
        Ok((policy, recording))
    }

    /// The policy on a session that is to be started in a worktree, after all checks; with where its programs were found.
    pub(super) fn policy_of_start(
        &self,
        session: &SessionId,
        (worktree, commit, is_dirty): (&Worktree, Option<Oid>, bool),
        ask: &AttachAsk,
    ) -> Result<(PolicyId, PolicySpec, Found), LedgerError> {
        let mut problems = Problems::default();
        check_length(ask, &mut problems);
        let base = Base { commit, is_dirty };
        let site = Site { repo: self.repo_in(worktree)?, worktree: worktree.clone(), base };
        let checked = self.check(ask, Some(&site), &mut problems);
        let (checked, policy) = (problems.finish(checked)?, clock::new_policy_id());
        let (mut programs, group) = (Vec::new(), GroupAsk::of(session, Covers::LastAndNext));
        let spec = checked.into_spec(&policy, &group, ask, &mut programs);
        Ok((policy, spec, programs))
    }

    pub(super) fn keep_all(&self, programs: &[(PolicyId, Vec<PathBuf>)]) {
        programs.iter().for_each(|(policy, programs)| self.keep_programs(policy, programs));
    }

    /// The group without repetitions, and where its gates run.
    fn gather(
        &self,
        group: &GroupAsk,
        ask: &AttachAsk,
        problems: &mut Problems,
    ) -> (GroupAsk, Option<Site>) {
        let mut group = group.clone();
        let mut seen = BTreeSet::new();
        group.members.retain(|member| seen.insert(member.clone()));
        let (count, most) = (group.members.len(), limits::SESSIONS_PER_POLICY);
        if count > most {
            let why = format!("{count} sessions, at most {most} are accepted");
            problems.say(Code::TooMany, "sessionIds", why);
            return (group, None);
        }
        // The first member's is said by its absence.
        let first = group.members.first().cloned();
        group.gate_session = group.gate_session.filter(|gated| Some(gated) != first.as_ref());
        let gated = group.gate_session.iter().map(|id| ("gateSession".to_owned(), id));
        let members = group.members.iter().enumerate();
        let members = members.map(|(at, id)| (format!("sessionIds[{at}]"), id));
        let mut sites = Vec::new();
        for (field, id) in gated.chain(members) {
            let site = problems.note(&field, self.session_site(id));
            sites.extend(site.map(|site| (field, id, site)));
        }
        let mut sites = sites.into_iter();
        let Some((_, _, site)) = sites.next() else { return (group, None) };
        let apart = sites.filter(|(_, _, other)| other.worktree.id != site.worktree.id);
        for (field, id, other) in apart.filter(|_| ask.commits() || ask.has_scope()) {
            let (here, there) = (&site.worktree.id, &other.worktree.id);
            let what =
                if ask.commits() { "the commit would be made" } else { "the scope is judged" };
            let why = format!("{id} is in worktree '{there}', {what} in '{here}'");
            problems.say(Code::MembersApart, &field, why);
        }
        (group, Some(site))
    }

    /// Sessions that are to be told something, or to be ended, are those that this program can talk to.
    fn check_members(&self, ask: &AttachAsk, group: &GroupAsk, problems: &mut Problems) {
        let members = group.members.iter().enumerate();
        let members = members.filter_map(|(at, id)| Some((at, self.session(id).ok()??)));
        check_launched(ask, &members.collect::<Vec<_>>(), problems);
    }

    fn session_site(&self, id: &SessionId) -> Result<Site, LedgerError> {
        self.site_of(&self.require_session(id)?)
    }

    /// Where a session works.
    fn site_of(&self, session: &Session) -> Result<Site, LedgerError> {
        let id = &session.session_id;
        let worktree = self.worktree(&session.worktree)?.ok_or_else(|| {
            let because = format!("its worktree '{}' is gone", session.worktree);
            LedgerError::refused(Code::NoSuchCwd, id.as_str(), because)
        })?;
        let repo = self.repo_in(&worktree)?;
        let base = Base { commit: session.base, is_dirty: session.dirty_base };
        Ok(Site { worktree, repo, base })
    }

    fn site_here(&self) -> Result<(Site, SessionStarted), LedgerError> {
        let (worktree, cwd) = self.place(self.env.cwd())?;
        let repo = self.repo_in(&worktree)?;
        let base = self.base(&worktree, None)?;
        // What differs from there is what is to be committed, and all of it is this session's.
        let (label, dirty_base, own, launch) = (None, false, true, None);
        let id = worktree.id.clone();
        let started = SessionStarted { label, worktree: id, cwd, base, dirty_base, own, launch };
        let base = Base { commit: base, is_dirty: false };
        Ok((Site { worktree, repo, base }, started))
    }

    fn check(
        &self,
        ask: &AttachAsk,
        site: Option<&Site>,
        problems: &mut Problems,
    ) -> Option<Checked> {
        problems.note("label", require_label(ask.label.as_deref()));
        check_end(ask, problems);
        check_turns(ask, problems);
        let by_rules = !ask.gates.is_empty() || ask.commit.is_some();
        let trust = if by_rules { problems.note("worktree", self.trust()) } else { None };
        let mut left_out = Vec::new();
        let commit = ask.commit.as_ref().map(|commit| {
            self.commit_spec(commit, (site, trust.as_ref()), problems, &mut left_out)
        });
        let gates = self.check_gates(ask, site, trust.as_ref(), problems);
        let next = match &ask.next {
            Some(next) => {
                let mut found = Problems::default();
                let checked = self.check(&next.ask, site, &mut found);
                problems.add_below("next", found);
                checked.map(|next| Some(Box::new(next)))
            }
            None => Some(None),
        };
        let commit = commit.map_or(Some(None), |c| c.map(Some))?;
        Some(Checked { gates: gates?, commit, next: next?, left_out })
    }

    fn check_gates(
        &self,
        ask: &AttachAsk,
        site: Option<&Site>,
        trust: Option<&Trust>,
        problems: &mut Problems,
    ) -> Option<Vec<(Gate, Option<PathBuf>)>> {
        check_number(ask, problems);
        check_conditions(ask, problems);
        let site = site?;
        let worktree = &site.worktree;
        // Of the policy itself, be there gates or none.
        check_timeout(ask.gate_timeout_ms, problems);
        let place = ask.gate_cwd.as_deref().unwrap_or(OsStr::new("."));
        let place = problems.note("gate.cwd", anchor(&worktree.top, place));
        let rules = if ask.gates.iter().any(GateAsk::is_shell) {
            Some(problems.note("gate", self.gate_rules(worktree, trust?))?)
        } else {
            None
        };
        let mut found = Vec::new();
        for (index, gate) in ask.gates.iter().enumerate() {
            let gate = match (gate, &rules) {
                (GateAsk::Scope(scope), _) => {
                    check_scope(scope, &site.base, &format!("gates[{index}].scope"), problems);
                    found.push((Gate::Scope(ScopeGate { scope: scope.clone() }), None));
                    continue;
                }
                (GateAsk::Shell(gate), Some(rules)) => (gate, rules),
                (GateAsk::Shell(_), None) => continue,
            };
            let (gate, rules) = gate;
            let timeout_ms = check_timeout(gate.timeout_ms.or(ask.gate_timeout_ms), problems);
            let cwd = match gate.cwd.as_deref() {
                Some(cwd) => problems.note("gate.cwd", anchor(&worktree.top, cwd)),
                None => place.clone(),
            };
            let protect = ask.protect.iter().chain(&gate.protect).cloned().collect();
            let mut env = ask.gate_env.clone();
            env.extend(gate.env.clone());
            check_env(&env, &rules.env, problems);
            let field = format!("gates[{index}]");
            if gate.argv.iter().any(|word| word.contains('\0')) {
                let why = "it holds a NUL byte, which no program can be given".to_owned();
                let hint = Some(NO_NUL.to_owned());
                problems.add(Problem { code: Code::Usage, field, why, hint });
                continue;
            }
            match rules.find(&gate.argv, worktree, &field) {
                Ok((path, program)) => {
                    let (command, args) = gate.argv.split_first()?;
                    let (command, args, cwd) = (command.clone(), args.to_vec(), cwd?);
                    let require_output = ask.require_output.clone();
                    let env_clean = ask.gate_env_clean;
                    let def = GateDef {
                        command,
                        args,
                        cwd,
                        timeout_ms,
                        require_output,
                        protect,
                        env,
                        env_clean,
                    };
                    found.push((Gate::Shell(ShellGate { def, program }), Some(path)));
                }
                Err(problem) => problems.add(problem),
            }
        }
        Some(found)
    }
}

impl Checked {
    /// What is to be recorded as `policy`; where its programs and those of what follows were found goes to `programs`.
    fn into_spec(
        self,
        policy: &PolicyId,
        group: &GroupAsk,
        ask: &AttachAsk,
        programs: &mut Vec<(PolicyId, Vec<PathBuf>)>,
    ) -> PolicySpec {
        let (gates, paths): (_, Vec<_>) = self.gates.into_iter().unzip();
        programs.push((policy.clone(), paths.into_iter().flatten().collect()));
        let next = self.next.zip(ask.next.as_ref()).map(|(checked, asked)| {
            let (policy_id, next_turn) = (clock::new_policy_id(), asked.next_turn);
            let mut spec = checked.into_spec(&policy_id, group, &asked.ask, programs);
            // What ends with one ends with the last of those that follow it.
            spec.end_session |= ask.turns.end_session;
            Box::new(NextPolicy { policy_id, next_turn, spec })
        });
        PolicySpec {
            label: ask.label.clone(),
            session_ids: group.members.clone(),
            gate_session: group.gate_session.clone(),
            then: if self.commit.is_some() { Then::Commit } else { Then::Emit },
            gates,
            commit: self.commit,
            base: 0,
            on_stale: ask.on_stale.unwrap_or_default(),
            on_end: ask.turns.on_end,
            on_fail: ask.turns.on_fail.clone(),
            end_session: ask.turns.end_session,
            expires: ask.expires,
            again: ask.again.clone(),
            next,
        }
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

fn check_length(ask: &AttachAsk, problems: &mut Problems) {
    let (length, most) = (ask.length(), limits::POLICIES_IN_A_ROW);
    if length > most {
        let why = format!("{length} policies follow each other, at most {most} may");
        problems.say(Code::TooMany, "next", why);
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

/// A policy says nothing to sessions, and ends none, that somebody else runs. Of a group it is enough that one can be told.
fn check_launched(ask: &AttachAsk, members: &[(usize, Session)], problems: &mut Problems) {
    let foreign = |session: &Session| session.launch.is_none();
    if ask.turns.on_fail.is_some() && !members.is_empty() && members.iter().all(|(_, s)| foreign(s))
    {
        let why =
            "no session of it was started by this program, which could tell none of a red gate";
        problems.say(Code::NotPromptable, "onFail", why);
    }
    if ask.turns.end_session {
        for (at, session) in members.iter().filter(|(_, s)| foreign(s)) {
            let why = format!("{} was not started by this program", session.session_id);
            problems.say(Code::NotLaunched, &format!("sessionIds[{at}]"), why);
        }
    }
    if let Some(next) = &ask.next {
        let mut found = Problems::default();
        check_launched(&next.ask, members, &mut found);
        problems.add_below("next", found);
    }
}

/// Red gates that nobody has lead to nothing, and what may not be finished is for a person to see.
fn check_turns(ask: &AttachAsk, problems: &mut Problems) {
    if ask.turns.on_fail.is_some() && ask.gates.is_empty() {
        problems.say(Code::Usage, "onFail", "without a gate nothing can be red");
    }
    if let Some(nudge) = ask.turns.on_fail.as_ref().and_then(|f| f.nudge.as_ref()) {
        if nudge.trim().is_empty() {
            problems.say(Code::Usage, "onFail.nudge", "it says nothing");
        }
        if nudge.len() > limits::NUDGE_BYTES {
            let why =
                format!("{} bytes, at most {} are accepted", nudge.len(), limits::NUDGE_BYTES);
            problems.say(Code::TooMany, "onFail.nudge", why);
        }
    }
    let no_ack = ask.commit.as_ref().is_some_and(|c| c.no_ack);
    if no_ack && ask.turns.on_end == OnEnd::Gate {
        let why = "what may not be finished is approved by a person";
        problems.say(Code::NoAckNotAllowed, "onEnd", why);
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
    let none = !ask.gates.iter().any(GateAsk::is_shell);
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
    if none && (!ask.gate_env.is_empty() || ask.gate_env_clean) {
        problems.say(Code::Usage, "gate.env", "there is no gate that runs a program");
    }
}

/// That variables can be given, are not ours to give or withhold, and may be recorded.
fn check_env(env: &BTreeMap<String, String>, rules: &EnvRules, problems: &mut Problems) {
    for (name, value) in env {
        let field = format!("gate.env.{}", name.escape_debug());
        let bytes = name.as_bytes();
        if name.is_empty() || name.contains(['=', '\0']) {
            problems.say(Code::Usage, &field, "this is no name of a variable");
        } else if value.contains('\0') {
            problems.say(Code::Usage, &field, "its value holds a NUL byte");
        } else if is_never(bytes) {
            let why = "no gate gets it: it redirects git, or loads code into programs";
            problems.say(Code::GateEnvDenied, &field, why);
        } else if is_ours(bytes) {
            problems.say(Code::GateEnvDenied, &field, "every gate gets it from us");
        } else if rules.is_secret(bytes) {
            let why = "its value would be recorded, and agentproto.secretEnv calls it secret";
            problems.say(Code::SecretEnv, &field, why);
        }
    }
}

/// That a scope can be understood, and judged.
fn check_scope(scope: &[String], base: &Base, field: &str, problems: &mut Problems) {
    if let Err(why) = Scope::parse(scope) {
        problems.say(Code::Usage, field, why);
    }
    if base.commit.is_none() {
        problems.say(Code::ScopeWithoutBase, field, "the session started from no commit");
    } else if base.is_dirty {
        let why = "files differed already when the session was adopted: which ones it changed cannot be told";
        problems.say(Code::ScopeDirtyBase, field, why);
    }
}

mod adopt;
mod again;
#[cfg(test)]
mod tests;

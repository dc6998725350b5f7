//! A run of all gates of a policy: fix the tree, run, fix it again, and only then believe the result.

use super::{
    PerformError, Progress, Step,
    hooks::{self, Stopped},
    queue::{self, Turn},
    subject::{Beside, Made, Place, Subject, Trouble, trouble},
};
use crate::{
    code::{Code, exit},
    domain::{
        gate::{Gate, GateEnd, GateResult, ScopeGate, ShellGate, Verdict},
        input::{GateRun, Input, RunEnd},
        oid::Oid,
        path::RepoPath,
        policy::{Policy, Status},
        wanted::Wanted,
    },
    engine,
    ledger::{Ledger, LedgerError},
    limits,
    runtime::{
        gate::{
            environment::{Asked, GateVars, gate_env},
            log,
            shell::{self, Judged},
        },
        live::{self, Acquired, Live},
        runner::{self, Ended, Ran, RunSpec, RunnerError},
    },
    store::{candidate::Listed, settings::EnvRules},
    sys::{clock, digest, env},
    wire::gate_line::{GateExit, GateLine, GatedOn},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    path::PathBuf,
    time::Instant,
};

/// Runs thrown away before the run counts as broken: one, so two in all.
const VOID_RUNS: u32 = 1;

/// Runs the gates of an attempt and records how they ended.
pub(super) fn run(ledger: &Ledger, policy: &Policy, attempt: u32) -> Result<Step, PerformError> {
    let agent_dir = ledger.store().location().agent_dir();
    let key = engine::gate_key(&policy.policy_id, attempt);
    let live = match live::acquire(&agent_dir, &key)? {
        Acquired::Mine(live) => live,
        Acquired::Busy { owner } => return Ok(Step::Stop(Progress::Held { owner })),
    };
    // Whoever held it before may have finished it.
    let slot = match queue::slot_for(ledger, &policy.policy_id, attempt)? {
        Turn::Now(slot) => slot,
        Turn::Over => return Ok(Step::Again),
    };
    let policy = ledger.require_policy(&policy.policy_id)?;
    if policy.status != Status::Gating || policy.attempt != attempt {
        return Ok(Step::Again);
    }
    let (run, pins) = match Place::find(ledger, &policy)? {
        Ok(place) => Session { place, live: &live, attempt }.run()?,
        Err(trouble) => (ended(trouble, vec![], 0, None), vec![]),
    };
    drop(slot);
    let touches = [crate::domain::event::Entity::Policy(policy.policy_id.clone())];
    let id = policy.policy_id.clone();
    let recorded =
        ledger.record_with(&touches, pins, |_| Ok(Input::GatesEnded { policy: id, attempt, run }));
    match recorded {
        Ok(_) => Ok(Step::Again),
        // It was cancelled meanwhile: what the gates said is of no interest any more.
        Err(LedgerError::Refused(refusal)) if refusal.code == Code::Terminal => Ok(Step::Again),
        Err(error) => Err(error.into()),
    }
}

/// How a run ends that a problem cut short: red or broken, as the code's own exit says.
fn ended(
    trouble: Trouble,
    results: Vec<GateResult>,
    voided: u32,
    noted_on: Option<Oid>,
) -> GateRun {
    let Trouble { code, because } = trouble;
    let because = Some(because);
    let end = if code.exit() == exit::NO {
        RunEnd::Red { code, because }
    } else {
        RunEnd::Broken { code, because }
    };
    GateRun { results, voided, noted_on, end }
}

/// Which listed files are others after a run. Only the last of the runs is told of, but it came after another such one.
fn written_meanwhile(before: &[Listed], after: &[Listed]) -> String {
    let mut paths = BTreeSet::new();
    paths.extend(before.iter().filter(|one| !after.contains(one)).map(|(path, _)| path));
    paths.extend(after.iter().filter(|one| !before.contains(one)).map(|(path, _)| path));
    let most = limits::NOTICES_OF_A_KIND;
    let mut names: Vec<String> = paths.iter().take(most).map(|path| format!("'{path}'")).collect();
    if paths.len() > most {
        names.push(format!("and {} more", paths.len() - most));
    }
    format!(
        "the gate ran twice, and each time a listed file was written meanwhile: {}",
        names.join(", ")
    )
}

/// One performer's run of one attempt.
struct Session<'a> {
    place: Place<'a>,
    live: &'a Live,
    attempt: u32,
}

/// What became of the subject of a commit policy while its gates ran.
enum Since {
    /// The listed files and the branch are as they were.
    Same,
    /// The listed files are others, or cannot be told: the run is void.
    Changed(Trouble),
    /// The branch alone moved: nobody wrote the files, and a repetition would be about another commit.
    Moved(String),
}

/// The gates as they may run now.
struct Allowed {
    /// By the place of their gate.
    programs: BTreeMap<usize, PathBuf>,
    path: String,
    rules: EnvRules,
    own: PathBuf,
}

impl Session<'_> {
    /// Runs, again when the listed files changed meanwhile. Answers what to record and what to pin with it.
    fn run(&self) -> Result<(GateRun, Vec<Oid>), PerformError> {
        let mut voided = 0;
        loop {
            let before = self.agreed(self.place.fix(self.attempt))?;
            let (subject, unlisted) = match before.and_then(|s| Ok((s, self.place.unlisted()?))) {
                Ok(both) => both,
                Err(Stopped { why, results }) => {
                    return Ok((ended(why, results, voided, None), vec![]));
                }
            };
            let before = match self.place.stamps() {
                Ok(before) => before,
                Err(why) => return Ok((ended(why, vec![], voided, None), vec![])),
            };
            let results = self.gates(&subject, &unlisted)?;
            let written = self.place.written_since(before.as_ref());
            if self.is_out_of_time(&results) {
                let (noted_on, end) = (None, RunEnd::OutOfTime);
                return Ok((GateRun { results, voided, noted_on, end }, vec![]));
            }
            let noted_on = match self.place.noted_on(unlisted.count) {
                Ok(noted_on) => noted_on,
                Err(why) => return Ok((ended(why, results, voided, None), vec![])),
            };
            match self.since(&subject, written) {
                Since::Same => return self.conclude(&subject, results, voided, noted_on),
                Since::Changed(_) if voided < VOID_RUNS => voided += 1,
                Since::Changed(why) => return Ok((ended(why, results, voided, None), vec![])),
                Since::Moved(because) => {
                    let end = RunEnd::Moved { because };
                    return Ok((GateRun { results, voided, noted_on: None, end }, vec![]));
                }
            }
        }
    }

    /// What is to be gated, after the repository's commit hooks had their say.
    fn agreed(
        &self,
        fixed: Result<Subject, Trouble>,
    ) -> Result<Result<Subject, Stopped>, PerformError> {
        match fixed {
            Ok(Subject::Commit(fixed)) => {
                let agreed = hooks::run(&self.place, self.live, self.attempt, fixed)?;
                Ok(agreed.map(Subject::Commit))
            }
            Ok(subject @ Subject::Worktree(_)) => Ok(Ok(subject)),
            Err(why) => Ok(Err(why.into())),
        }
    }

    /// Fixes a commit policy's tree again and compares. An `emit` run is never void.
    fn since(&self, before: &Subject, written: Result<(), Trouble>) -> Since {
        let (Subject::Commit(before), Some(spec)) = (before, &self.place.policy.spec.commit) else {
            return Since::Same;
        };
        let after = match self.place.fix(self.attempt) {
            Ok(Subject::Commit(after)) => after,
            Ok(Subject::Worktree(_)) => return Since::Same,
            // If it stays in the way, it ends the next run by its own code.
            Err(why) => return Since::Changed(why),
        };
        if after.tree.listed != before.tree.listed {
            let because = written_meanwhile(&before.tree.listed, &after.tree.listed);
            return Since::Changed(trouble(Code::TreeChanged, because));
        }
        if after.parent != before.parent {
            let (from, to) = (before.parent, after.parent);
            let because = format!("{} moved from {from} to {to} while the gate ran", spec.branch);
            return Since::Moved(because);
        }
        // The same bytes again: what the gate read may have been others.
        written.map_or_else(Since::Changed, |()| Since::Same)
    }

    fn conclude(
        &self,
        subject: &Subject,
        results: Vec<GateResult>,
        voided: u32,
        noted_on: Option<Oid>,
    ) -> Result<(GateRun, Vec<Oid>), PerformError> {
        if let Some(bad) = results.iter().find(|r| r.verdict != Verdict::Pass) {
            let code = bad.reason.as_deref().and_then(|r| r.parse().ok()).unwrap_or(Code::GateRed);
            let why = trouble(code, bad.because.clone().unwrap_or_else(|| code.hint().to_owned()));
            return Ok((ended(why, results, voided, noted_on), vec![]));
        }
        let run = |results, end| GateRun { results, voided, noted_on, end };
        let fixed = match subject {
            Subject::Worktree(_) => return Ok((run(results, RunEnd::Green), vec![])),
            Subject::Commit(fixed) if fixed.unchanged => {
                return Ok((run(results, RunEnd::NoChange), vec![]));
            }
            Subject::Commit(fixed) => fixed,
        };
        match self.place.candidate(fixed, (clock::now(), self.attempt))? {
            Ok(Made::Ready(candidate)) => {
                Ok((run(results, RunEnd::Ready(candidate)), vec![candidate.commit]))
            }
            Ok(Made::Unsigned(unsigned)) => {
                let pin = unsigned.candidate.commit;
                Ok((run(results, RunEnd::Unsigned(unsigned)), vec![pin]))
            }
            Err(why) => Ok((ended(why, results, voided, None), vec![])),
        }
    }

    /// Runs the gates in order, up to the first that does not pass.
    fn gates(&self, subject: &Subject, beside: &Beside) -> Result<Vec<GateResult>, PerformError> {
        let unlisted = beside.count;
        let gates = &self.place.policy.spec.gates;
        let mut results = Vec::new();
        let mut allowed = None;
        for (index, gate) in gates.iter().enumerate() {
            let mut result = match gate {
                Gate::Scope(gate) => self.scope(index, gate, (subject, unlisted))?,
                Gate::Shell(shell) => {
                    // All of them at once, before the first one runs.
                    let allowed = match &mut allowed {
                        Some(allowed) => allowed,
                        none => none.insert(self.allowed()?),
                    };
                    match allowed {
                        Ok(allowed) => self.shell(index, shell, allowed, (subject, unlisted))?,
                        Err(why) => not_run(index, why.clone(), unlisted),
                    }
                }
            };
            let passed = result.verdict == Verdict::Pass;
            if !passed {
                result.beside.clone_from(&beside.first);
            }
            results.push(result);
            if !passed {
                break;
            }
        }
        Ok(results)
    }

    /// How long a gate may run: no longer than its policy lives.
    fn time_left(&self, gate: &ShellGate) -> u64 {
        let Some(expires) = self.place.policy.spec.expires else { return gate.def.timeout_ms };
        let left = expires.ms().saturating_sub(clock::now().ms()).saturating_add(1);
        gate.def.timeout_ms.min(u64::try_from(left).unwrap_or(0).max(1))
    }

    /// The policy ended before its gates did: what was cut short by that is no verdict.
    fn is_out_of_time(&self, results: &[GateResult]) -> bool {
        let policy = self.place.policy;
        let last = results.last();
        let gate = last.and_then(|r| policy.spec.gates.get(r.index)).and_then(Gate::shell);
        let cut = last.zip(gate).is_some_and(|(result, gate)| {
            result.end == GateEnd::Timeout && result.duration_ms < gate.def.timeout_ms
        });
        policy.spec.expires.is_some() && (cut || policy.is_expired(clock::now()))
    }

    /// Judges the allowlist and the programs again, right before they run.
    fn allowed(&self) -> Result<Result<Allowed, Trouble>, PerformError> {
        let Place { ledger, policy, worktree, .. } = &self.place;
        let shells: Vec<_> = shells(policy).collect();
        let defs: Vec<_> = shells.iter().map(|(_, gate)| gate.def.clone()).collect();
        let found = match ledger.gate_programs(worktree, &defs) {
            Ok(found) => found,
            Err(error @ (LedgerError::Problems(_) | LedgerError::Refused(_))) => {
                return Ok(Err(trouble(error.code(), error.to_string())));
            }
            Err(error) => return Err(error.into()),
        };
        for ((_, gate), (_, sha256)) in shells.iter().zip(&found) {
            if gate.program != *sha256 {
                let because = format!("the program of '{}' is another now", gate.def.shown());
                return Ok(Err(trouble(Code::ProgramChanged, because)));
            }
        }
        let rules = match ledger.env_rules(worktree) {
            Ok(rules) => rules,
            Err(error) => {
                let because = "agentproto.gateEnv or agentproto.secretEnv cannot be read";
                return Ok(Err(trouble(error.code(), because)));
            }
        };
        Ok(Ok(Allowed {
            programs: shells.iter().zip(found).map(|((at, _), (path, _))| (*at, path)).collect(),
            path: ledger.fixed_path(worktree)?.as_variable(),
            rules,
            own: env::own_program().map_err(PerformError::OwnProgram)?,
        }))
    }

    /// Holds the worktree against the commit its session started from.
    fn scope(
        &self,
        index: usize,
        gate: &ScopeGate,
        (subject, unlisted): (&Subject, u64),
    ) -> Result<GateResult, PerformError> {
        let begun = Instant::now();
        let found = match self.place.outside(gate, self.attempt)? {
            Ok(found) => found,
            Err(why) => return Ok(not_run(index, why, unlisted)),
        };
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut result = GateResult { duration_ms, ..scoped(index, &found, unlisted) };
        if !found.is_empty() {
            let dir = self.place.ledger.store().location().agent_dir();
            result.log = Some(log::store_text(&dir, &listed_outside(&found))?);
        }
        result.line = Some(self.line(index, &Gate::Scope(gate.clone()), &result, subject.tree()));
        Ok(result)
    }

    fn shell(
        &self,
        index: usize,
        gate: &ShellGate,
        allowed: &Allowed,
        (subject, unlisted): (&Subject, u64),
    ) -> Result<GateResult, PerformError> {
        let Place { ledger, policy, worktree, .. } = &self.place;
        let cwd = match ledger.gate_dir(worktree, &gate.def) {
            Ok(cwd) => cwd,
            Err(error @ (LedgerError::Problems(_) | LedgerError::Refused(_))) => {
                let why = trouble(error.code(), error.to_string());
                return Ok(not_run(index, why, unlisted));
            }
            Err(error) => return Err(error.into()),
        };
        if let Err(why) = self.place.require_protected(gate, self.attempt)? {
            return Ok(not_run(index, why, unlisted));
        }
        let Some(program) = allowed.programs.get(&index) else {
            let why = trouble(Code::GateNotFound, "its program was not resolved");
            return Ok(not_run(index, why, unlisted));
        };
        let vars = GateVars {
            policy: Some((policy.policy_id.as_str(), self.attempt)),
            session: policy.spec.gate_session().map_or("", |s| s.as_str()),
            worktree: &worktree.top,
        };
        let def = &gate.def;
        let asked = Asked { rules: &allowed.rules, set: &def.env, clean: def.env_clean };
        let spec = RunSpec {
            effect: engine::gate_key(&policy.policy_id, self.attempt),
            program: program.clone(),
            args: gate.def.args.iter().map(Into::into).collect(),
            env: gate_env(ledger.env(), OsStr::new(&allowed.path), &asked, &vars, &cwd),
            cwd,
            timeout_ms: self.time_left(gate),
            stdin: vec![],
            ring: None,
        };
        let ran = match runner::run(self.live, &allowed.own, &spec) {
            Ok(ran) => ran,
            Err(error @ RunnerError::NotAbsolute(_)) => return Err(error.into()),
            // A gate can bring all of these about, every time anew: it must not keep the policy gating.
            Err(
                error @ (RunnerError::Start { .. }
                | RunnerError::Talk { .. }
                | RunnerError::Died { .. }
                | RunnerError::Silent { .. }
                | RunnerError::Left { .. }
                | RunnerError::Failed { .. }),
            ) => return Ok(not_run(index, trouble(error.code(), error.to_string()), unlisted)),
        };
        let mut result = judged(index, &ran, unlisted);
        if result.verdict == Verdict::Pass
            && let Err(why) = self.worth(gate, &ran)?
        {
            result = broken(result, why);
        }
        if result.end != GateEnd::NotRun {
            let dir = ledger.store().location().agent_dir();
            result.log = Some(log::store_log(&dir, &ran)?);
            // Under a setting that cannot be understood nothing goes: `gc` says what is wrong with it.
            if let Ok(kept) = ledger.retention() {
                let _ = log::remove_old_logs(&dir, kept.logs_ms);
            }
            let gate = Gate::Shell(gate.clone());
            result.line = Some(self.line(index, &gate, &result, subject.tree()));
        }
        Ok(result)
    }

    /// What a green exit does not say by itself.
    fn worth(&self, gate: &ShellGate, ran: &Ran) -> Result<Result<(), Trouble>, PerformError> {
        if let Some(wanted) = &gate.def.require_output {
            let wanted = match Wanted::parse(wanted) {
                Ok(wanted) => wanted,
                Err(why) => return Ok(Err(trouble(Code::OutputMissing, why))),
            };
            if !wanted.is_in(&log::transcript(ran)) {
                let dropped = ran.stdout.omitted + ran.stderr.omitted;
                let kept = match dropped {
                    0 => String::new(),
                    n => format!(" of what was kept ({n} bytes were dropped)"),
                };
                let asked = gate.def.require_output.as_deref().unwrap_or_default();
                let because = format!("exit code 0, but no line{kept} matches '{asked}'");
                return Ok(Err(trouble(Code::OutputMissing, because)));
            }
        }
        // Once more: who writes the worktree had all the time of the gate.
        self.place.require_protected(gate, self.attempt)
    }

    fn line(&self, index: usize, gate: &Gate, result: &GateResult, tree: Option<Oid>) -> String {
        let policy = self.place.policy;
        GateLine {
            verdict: result.verdict,
            policy: policy.policy_id.clone(),
            attempt: self.attempt,
            gate: u32::try_from(index).unwrap_or(u32::MAX),
            def: digest::sha256(gate.canonical().as_bytes()),
            on: if policy.spec.commit.is_some() { GatedOn::Candidate } else { GatedOn::Worktree },
            tree,
            dirty: Some(result.unlisted_changes),
            isolation: "worktree".to_owned(),
            exit: line_exit(&result.end),
            program: gate.program().map(str::to_owned),
            argv: gate.words().into_iter().map(str::to_owned).collect(),
            ms: result.duration_ms,
            at: clock::now(),
        }
        .encode()
    }
}

/// The shell gates of a policy with their places.
fn shells(policy: &Policy) -> impl Iterator<Item = (usize, &ShellGate)> {
    let gates = policy.spec.gates.iter().enumerate();
    gates.filter_map(|(at, gate)| gate.shell().map(|gate| (at, gate)))
}

/// What a scope gate says of the paths it found outside.
fn scoped(index: usize, found: &BTreeSet<RepoPath>, unlisted_changes: u64) -> GateResult {
    let most = limits::NOTICES_OF_A_KIND;
    let mut names: Vec<String> = found.iter().take(most).map(|path| format!("'{path}'")).collect();
    if found.len() > most {
        names.push(format!("and {} more", found.len() - most));
    }
    let (count, names) = (found.len(), names.join(", "));
    let because = format!("{count} outside the scope: {names}");
    let out = (!found.is_empty()).then_some((Code::OutOfScope.as_str().to_owned(), because));
    let (reason, because) = out.unzip();
    GateResult {
        index,
        hook: None,
        verdict: if found.is_empty() { Verdict::Pass } else { Verdict::Fail },
        reason,
        because,
        end: GateEnd::NotRun,
        signals: vec![],
        duration_ms: 0,
        log: None,
        unlisted_changes,
        beside: vec![],
        left_behind: 0,
        line: None,
    }
}

/// The same for the kept output: one path a line.
fn listed_outside(found: &BTreeSet<RepoPath>) -> Vec<u8> {
    let most = limits::SCOPE_LISTED;
    let mut text: String = found.iter().take(most).map(|path| format!("{path}\n")).collect();
    if found.len() > most {
        text.push_str(&format!("and {} more\n", found.len() - most));
    }
    text.into_bytes()
}

fn line_exit(end: &GateEnd) -> GateExit {
    match end {
        GateEnd::Exit(code) => GateExit::Status(*code),
        GateEnd::Signal(name) => {
            GateExit::Signal(name.strip_prefix("SIG").unwrap_or(name).to_owned())
        }
        GateEnd::Timeout => GateExit::Timeout,
        GateEnd::NotRun => GateExit::NotRun,
    }
}

fn not_run(index: usize, why: Trouble, unlisted_changes: u64) -> GateResult {
    GateResult {
        index,
        hook: None,
        verdict: Verdict::Broken,
        reason: Some(why.code.as_str().to_owned()),
        because: Some(why.because),
        end: GateEnd::NotRun,
        signals: vec![],
        duration_ms: 0,
        log: None,
        unlisted_changes,
        beside: vec![],
        left_behind: 0,
        line: None,
    }
}

/// A green result that says nothing.
fn broken(result: GateResult, why: Trouble) -> GateResult {
    let (reason, because) = (Some(why.code.as_str().to_owned()), Some(why.because));
    GateResult { verdict: Verdict::Broken, reason, because, ..result }
}

fn judged(index: usize, ran: &Ran, unlisted_changes: u64) -> GateResult {
    let (verdict, reason, because) = match shell::verdict(ran) {
        Judged::Pass => (Verdict::Pass, None, None),
        Judged::Fail { because, .. } => (Verdict::Fail, None, Some(because)),
        Judged::Broken { code, because } => {
            (Verdict::Broken, Some(code.as_str().to_owned()), Some(because))
        }
    };
    let end = match &ran.ended {
        Ended::Exited(code) => GateEnd::Exit(*code),
        Ended::Signaled(name) => GateEnd::Signal(name.clone()),
        Ended::TimedOut => GateEnd::Timeout,
        Ended::NotStarted(_) => GateEnd::NotRun,
    };
    GateResult {
        index,
        hook: None,
        verdict,
        reason,
        because,
        end,
        signals: ran.signals.clone(),
        duration_ms: ran.duration_ms,
        log: None,
        unlisted_changes,
        beside: vec![],
        left_behind: ran.left_behind,
        line: None,
    }
}

//! The repository's commit hooks, run before the gates on a private index; what they leave is the tree and the message
//! that are gated.
//!
//! Contract: what lands is always built from the listed files on disk, so whatever the hooks did is either in the tree
//! the gates see or ends the run by name. They run once more on what they rewrote themselves, and have to agree to it
//! as it is then. Nothing they did to the worktree, the shared index or refs is undone.

use super::{
    PerformError,
    subject::{Fixed, Place, Subject, Trouble, trouble},
};
use crate::{
    code::Code,
    domain::{
        gate::{Gate, GateEnd, GateResult, Verdict},
        path::RepoPath,
        policy::Policy,
        time::duration,
    },
    engine, limits,
    runtime::{
        gate::log,
        live::Live,
        runner::{self, Ended, Ran, RunSpec, RunnerError},
    },
    store::{
        candidate::message,
        git::Git,
        hooks::{Hook, HookError, PrivateIndex, Watched, commit_hooks},
        identity::identity,
    },
    sys::{env, files},
};
use std::{collections::BTreeSet, path::PathBuf};

/// Why the hooks end the run, with what the refusing one said.
pub(super) struct Stopped {
    pub(super) why: Trouble,
    pub(super) results: Vec<GateResult>,
}

impl From<Trouble> for Stopped {
    fn from(why: Trouble) -> Self {
        Self { why, results: vec![] }
    }
}

impl From<HookError> for Trouble {
    /// Without paths of this machine, as everything that is recorded.
    fn from(error: HookError) -> Self {
        match error {
            HookError::File(e) => {
                trouble(Code::Io, format!("the index for the commit hooks: {}", e.source))
            }
            HookError::State(e) => e.into(),
            HookError::Git(e) => trouble(e.code(), format!("the index for the commit hooks: {e}")),
        }
    }
}

/// What one run of all hooks led to.
enum Round {
    /// All agreed; the message as they left it.
    Agreed(Vec<u8>),
    /// They rewrote listed files.
    Rewrote(Box<Rewritten>),
}

/// Listed files that hooks rewrote, and the tree as it is now.
struct Rewritten {
    names: BTreeSet<Vec<u8>>,
    now: Fixed,
}

/// Has the hooks agree to what was fixed. Gives what is to be gated instead.
pub(super) fn run(
    place: &Place<'_>,
    live: &Live,
    attempt: u32,
    fixed: Fixed,
) -> Result<Result<Fixed, Stopped>, PerformError> {
    let hooks = match commit_hooks(&place.repo) {
        Ok(hooks) => hooks,
        Err(error) => return Ok(Err(Trouble::from(error).into())),
    };
    // Without a change there is no commit that they could be asked about.
    if hooks.is_empty() || fixed.unchanged {
        return Ok(Ok(fixed));
    }
    let run = Hooks { place, live, attempt, hooks };
    let rewritten = match run.round(&fixed)? {
        Ok(Round::Agreed(message)) => return Ok(Ok(Fixed { message, ..fixed })),
        Ok(Round::Rewrote(rewritten)) => rewritten.now,
        Err(stopped) => return Ok(Err(stopped)),
    };
    match run.round(&rewritten)? {
        Ok(Round::Agreed(message)) => Ok(Ok(Fixed { message, ..rewritten })),
        Ok(Round::Rewrote(again)) => {
            let because =
                format!("the commit hooks change {} every time they run", list(&again.names));
            Ok(Err(trouble(Code::HooksChanged, because).into()))
        }
        Err(stopped) => Ok(Err(stopped)),
    }
}

/// How long a hook of the repository may take, milliseconds: as long as the longest gate of the policy.
pub(super) fn deadline_ms(policy: &Policy) -> u64 {
    let gates = policy.spec.gates.iter().filter_map(Gate::shell).map(|g| g.def.timeout_ms);
    gates.max().unwrap_or(limits::GATE_TIMEOUT_DEFAULT_MS)
}

struct Hooks<'a> {
    place: &'a Place<'a>,
    live: &'a Live,
    attempt: u32,
    hooks: Vec<Hook>,
}

/// What one round works with.
struct Around<'a> {
    fixed: &'a Fixed,
    index: &'a PrivateIndex<'a>,
    before: Watched,
}

impl Hooks<'_> {
    fn round(&self, fixed: &Fixed) -> Result<Result<Round, Stopped>, PerformError> {
        let Place { ledger, policy, worktree, .. } = self.place;
        let store = ledger.store();
        // A hook may well name these from a stash or a commit of its own, so they must outlive the run.
        if !fixed.tree.objects.is_empty() {
            store.write_kept_pack(&fixed.tree.objects)?;
        }
        let git = Git::new(ledger.env(), worktree)?;
        let name = format!("hooks.{}.{}", policy.policy_id, self.attempt);
        let dir = store.location().agent_dir().join("tmp").join(name);
        let made = PrivateIndex::make(&git, &dir, fixed.tree.tree);
        let (index, before) = match (made, Watched::look(&self.place.repo, self.listed())) {
            (Ok(index), Ok(before)) => (index, before),
            (Err(error), _) => return Ok(Err(Trouble::from(error).into())),
            (_, Err(error)) => return Ok(Err(Trouble::from(error).into())),
        };
        if let Err(e) = files::write_private(&index.message_file(), &fixed.message) {
            return Ok(Err(Trouble::from(HookError::from(e)).into()));
        }
        self.run_all(&git, &Around { fixed, index: &index, before })
    }

    /// `pre-commit` first: what the others say about a tree that it changed is of no interest.
    fn run_all(
        &self,
        git: &Git,
        around: &Around<'_>,
    ) -> Result<Result<Round, Stopped>, PerformError> {
        for hook in &self.hooks {
            if let Some(stopped) = self.one(git, hook, around)? {
                return Ok(Err(stopped));
            }
            match self.look(around) {
                Ok(None) => {}
                Ok(Some(rewritten)) => return Ok(Ok(Round::Rewrote(Box::new(rewritten)))),
                Err(why) => return Ok(Err(why.into())),
            }
        }
        let said = files::read(&around.index.message_file(), limits::OBJECT_FILE_BYTES);
        let said = said.map_err(|e| e.source.to_string());
        let cleaned = said.and_then(|raw| message::clean(&raw).map_err(|e| e.to_string()));
        Ok(match cleaned {
            Ok(message) => Ok(Round::Agreed(message)),
            Err(why) => {
                let because = format!("the commit hooks left no message to commit with: {why}");
                Err(trouble(Code::CommitHookRefused, because).into())
            }
        })
    }

    /// Runs one hook; some when it stops the run.
    fn one(
        &self,
        git: &Git,
        hook: &Hook,
        around: &Around<'_>,
    ) -> Result<Option<Stopped>, PerformError> {
        let Place { ledger, policy, worktree, repo } = self.place;
        let who = match identity(repo) {
            Ok(who) => who,
            Err(missing) => return Ok(Some(trouble(missing.code(), missing.to_string()).into())),
        };
        let env = match around.index.env(&who.author) {
            Ok(env) => env,
            Err(error) => return Ok(Some(Trouble::from(HookError::from(error)).into())),
        };
        let mut args = vec!["hook".into(), "run".into(), "--ignore-missing".into()];
        args.push(hook.name.into());
        let file = around.index.message_file().into_os_string();
        match hook.name {
            "prepare-commit-msg" => args.extend(["--".into(), file, "message".into()]),
            "commit-msg" => args.extend(["--".into(), file]),
            _ => {}
        }
        let spec = RunSpec {
            effect: engine::gate_key(&policy.policy_id, self.attempt),
            program: git.program().to_owned(),
            args,
            cwd: worktree.top.clone(),
            env,
            timeout_ms: deadline_ms(self.place.policy),
            stdin: vec![],
            ring: None,
        };
        let own = env::own_program().map_err(PerformError::OwnProgram)?;
        let ran = match runner::run(self.live, &own, &spec) {
            Ok(ran) => ran,
            Err(error @ RunnerError::NotAbsolute(_)) => return Err(error.into()),
            // A hook can bring all of these about, every time anew, as a gate can.
            Err(
                error @ (RunnerError::Start { .. }
                | RunnerError::Talk { .. }
                | RunnerError::Died { .. }
                | RunnerError::Silent { .. }
                | RunnerError::Left { .. }
                | RunnerError::Failed { .. }),
            ) => return Ok(Some(trouble(error.code(), error.to_string()).into())),
        };
        let Some(why) = refused(hook.name, &ran) else { return Ok(None) };
        let dir: PathBuf = ledger.store().location().agent_dir();
        let log = Some(log::store_log(&dir, &ran)?);
        let because = self.with_traces(why.because, around);
        let result = GateResult { log, ..result(hook.name, &ran, why.code, &because) };
        Ok(Some(Stopped { why: Trouble { because, ..why }, results: vec![result] }))
    }

    /// What a refusing hook did is not undone, but said.
    fn with_traces(&self, because: String, around: &Around<'_>) -> String {
        match self.look(around) {
            Ok(None) => because,
            Ok(Some(rewritten)) => format!("{because}; it changed {}", list(&rewritten.names)),
            Err(why) => format!("{because}; {}", why.because),
        }
    }

    fn listed(&self) -> &[RepoPath] {
        self.place.policy.spec.commit.as_ref().map_or(&[], |c| &c.paths)
    }

    /// What the hooks changed: nothing, or listed files with the tree that follows. Anything else ends the run.
    fn look(&self, around: &Around<'_>) -> Result<Option<Rewritten>, Trouble> {
        let Around { fixed, index, before } = around;
        let after = match self.place.fix(self.attempt) {
            Ok(Subject::Commit(after)) => after,
            Ok(Subject::Worktree(_)) => return Ok(None),
            Err(why) => {
                let because = format!("after the commit hooks: {}", why.because);
                return Err(Trouble { because, ..why });
            }
        };
        if after.parent != fixed.parent {
            let because = format!(
                "the branch moved from {} to {} while the commit hooks ran",
                fixed.parent, after.parent
            );
            return Err(trouble(Code::StaleCandidate, because));
        }
        let staged = index.differing(&fixed.tree.tree.to_string());
        let staged = staged.map_err(|_| {
            let because = "the commit hooks left an index that git cannot read";
            trouble(Code::HooksChanged, because)
        })?;
        let now = Watched::look(&self.place.repo, self.listed())?;
        let is_listed = |name: &Vec<u8>| self.listed().iter().any(|p| p.as_bytes() == name);
        let (mut listed, mut others): (BTreeSet<_>, BTreeSet<_>) =
            staged.into_iter().partition(is_listed);
        others.extend(now.differing(before));
        if !others.is_empty() {
            let because = format!(
                "files that are not listed changed while the commit hooks ran: {}",
                list(&others)
            );
            return Err(trouble(Code::HooksChanged, because));
        }
        let was = fixed.tree.listed.iter().zip(&after.tree.listed);
        let rewritten = was.filter(|(was, is)| was != is);
        listed.extend(rewritten.map(|((path, _), _)| path.as_bytes().to_vec()));
        if listed.is_empty() {
            return Ok(None);
        }
        if after.unchanged {
            let because =
                format!("the commit hooks took back what was to be committed: {}", list(&listed));
            return Err(trouble(Code::HooksChanged, because));
        }
        Ok(Some(Rewritten { names: listed, now: after }))
    }
}

/// Why the run ends here; none when the hook agreed.
fn refused(name: &str, ran: &Ran) -> Option<Trouble> {
    let no = |because: String| Some(trouble(Code::CommitHookRefused, format!("{name}: {because}")));
    match &ran.ended {
        Ended::NotStarted(because) => Some(trouble(Code::GitFailed, because.clone())),
        Ended::Exited(_) | Ended::Signaled(_) | Ended::TimedOut if ran.cancelled => {
            Some(trouble(Code::RunnerFailed, "the run was cancelled"))
        }
        Ended::Exited(0) => None,
        Ended::Exited(code) => no(format!("exit code {code}")),
        Ended::Signaled(signal) => no(format!("git hook run was killed by {signal}")),
        Ended::TimedOut => {
            no(format!("did not end in time, killed after {}", duration(ran.duration_ms)))
        }
    }
}

fn result(name: &str, ran: &Ran, code: Code, because: &str) -> GateResult {
    let end = match &ran.ended {
        Ended::Exited(code) => GateEnd::Exit(*code),
        Ended::Signaled(name) => GateEnd::Signal(name.clone()),
        Ended::TimedOut => GateEnd::Timeout,
        Ended::NotStarted(_) => GateEnd::NotRun,
    };
    let verdict = if code == Code::CommitHookRefused { Verdict::Fail } else { Verdict::Broken };
    GateResult {
        index: 0,
        hook: Some(name.to_owned()),
        verdict,
        reason: Some(code.as_str().to_owned()),
        because: Some(because.to_owned()),
        end,
        signals: ran.signals.clone(),
        duration_ms: ran.duration_ms,
        log: None,
        unlisted_changes: 0,
        beside: vec![],
        left_behind: 0,
        line: None,
    }
}

/// Names for people, the first few of them.
fn list(names: &BTreeSet<Vec<u8>>) -> String {
    let shown = names.iter().take(limits::NAMES_SHOWN);
    let mut text: Vec<String> =
        shown.map(|n| format!("'{}'", String::from_utf8_lossy(n))).collect();
    let more = names.len().saturating_sub(limits::NAMES_SHOWN);
    text.extend((more > 0).then(|| format!("{more} more")));
    text.join(", ")
}

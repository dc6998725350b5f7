//! Holding an agent: one turn after the other, and after each what its policies make of it.

use super::{SESSION_VARIABLE, agent_dir, end_unknown, nudge, record_lost, told};
use crate::{
    code::Code,
    domain::{
        ids::{PolicyId, SessionId},
        input::AgentEnd,
        session::{Exit, Process, Prompt, Session},
    },
    engine,
    ledger::{Ledger, LedgerError},
    limits,
    runtime::{
        live::{self, Acquired, Left, Live},
        output,
        perform::{self, PerformError},
        runner::{self, Ended, Ran, RunSpec},
    },
    store::{Worktree, git::Git},
    sys::{env, files},
};
use std::{ffi::OsString, path::PathBuf, thread, time::Duration};

/// How often it is looked whether a holder is done.
const POLL: Duration = Duration::from_millis(50);

/// How far holding an agent got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosted {
    /// Nothing is due for it any more.
    Idle,
    /// Somebody else holds it.
    Held {
        /// Who.
        owner: String,
    },
}

/// Runs every turn that is due, and performs the policies of the session after each. Returns when nothing is due.
///
/// # Errors
/// The store failed, or the world could not be asked; what was recorded stays recorded.
pub fn host(ledger: &Ledger, id: &SessionId) -> Result<Hosted, PerformError> {
    loop {
        let live = match live::acquire(&agent_dir(ledger), &engine::agent_key(id))? {
            Acquired::Mine(live) => live,
            Acquired::Busy { owner } => return Ok(Hosted::Held { owner }),
        };
        hold(ledger, &live, id)?;
        drop(live);
        ledger.forget_places();
        // A prompt that came in between found the agent held.
        if !engine::is_session_due(&ledger.require_session(id)?) {
            return Ok(Hosted::Idle);
        }
    }
}

/// The same for a process that was started for it: who has it at this moment may be about to let it go.
///
/// # Errors
/// As [`host`].
pub fn host_until_idle(ledger: &Ledger, id: &SessionId) -> Result<(), PerformError> {
    while let Hosted::Held { .. } = host(ledger, id)? {
        if !engine::is_turn_due(&ledger.require_session(id)?) {
            return Ok(());
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn hold(ledger: &Ledger, live: &Live, id: &SessionId) -> Result<(), PerformError> {
    let mut left = live.left();
    loop {
        let session = ledger.require_session(id)?;
        let begun = std::mem::replace(&mut left, Left::Nothing);
        if session.process == Process::Alive {
            if begun == Left::NothingStarted {
                run_turn(ledger, live, &session)?;
            } else {
                end_unknown(live, &session)?;
                record_lost(ledger, id)?;
            }
        } else if engine::is_turn_due(&session) {
            live.renew()?;
            match ledger.begin_turn(id) {
                Ok(session) => run_turn(ledger, live, &session)?,
                // It was ended meanwhile.
                Err(LedgerError::Refused(_)) => continue,
                Err(error) => return Err(error.into()),
            }
        } else {
            return Ok(());
        }
        perform_policies(ledger, id)?;
    }
}

/// What its policies make of a turn that is over. One that cannot go on now is the next performer's, and keeps no agent.
fn perform_policies(ledger: &Ledger, id: &SessionId) -> Result<(), PerformError> {
    let mut failed = None;
    for policy in policies_of(ledger, id)? {
        failed = perform::policy(ledger, &policy).err().or(failed);
    }
    failed.map_or(Ok(()), Err)
}

/// Policies that have something due because of it: open ones, and those that its end has ended.
fn policies_of(ledger: &Ledger, id: &SessionId) -> Result<Vec<PolicyId>, PerformError> {
    let session = ledger.require_session(id)?;
    Ok(session.policies)
}

fn run_turn(ledger: &Ledger, live: &Live, session: &Session) -> Result<(), PerformError> {
    let end = match prepare(ledger, session) {
        Ok(spec) => run(live, &spec)?,
        Err(because) => AgentEnd {
            exit: Exit::NotStarted,
            inferred: false,
            interrupted: false,
            because: Some(because),
        },
    };
    told(ledger.run_ended(session, end).map(|_| ()))
}

fn run(live: &Live, spec: &RunSpec) -> Result<AgentEnd, PerformError> {
    let own = env::own_program().map_err(PerformError::OwnProgram)?;
    let end = |exit, because| AgentEnd { exit, inferred: false, interrupted: false, because };
    Ok(match runner::run(live, &own, spec) {
        Ok(Ran { ended, .. }) => match ended {
            Ended::Exited(code) => end(Exit::Code(code), None),
            Ended::Signaled(name) => end(Exit::Signal(name), None),
            Ended::TimedOut => {
                end(Exit::Signal("SIGKILL".to_owned()), Some("it ran for a month".to_owned()))
            }
            Ended::NotStarted(why) => end(Exit::NotStarted, Some(why)),
        },
        // The runner is gone, and everything it had started: the agent can have brought that about.
        Err(error) => AgentEnd { inferred: true, ..end(Exit::Unknown, Some(error.to_string())) },
    })
}

/// What is run, or why nothing can be: in words that name no place of this machine, they go under a ref.
fn prepare(ledger: &Ledger, session: &Session) -> Result<RunSpec, String> {
    let launch = session.launch.as_ref().ok_or("it is not ours to run")?;
    let worktree = ledger.worktree(&session.worktree);
    let worktree =
        worktree.map_err(|e| format!("its worktree cannot be looked at [{}]", e.code()))?;
    let worktree = worktree.ok_or("its worktree is gone")?;
    let cwd = cwd_of(&worktree, session)?;
    let place = ledger.launch_place(session);
    let place = place.map_err(|e| format!("its program is not found any more [{}]", e.code()))?;
    let prompt = words(ledger, session)?;
    let mut env = variables(ledger, &worktree)?;
    env.extend(place.env);
    env.push(("PWD".into(), cwd.clone().into()));
    env.push((SESSION_VARIABLE.into(), session.session_id.as_str().into()));
    env.push(("AGENTPROTO_WORKTREE".into(), worktree.top.clone().into()));
    env.push(("AGENTPROTO_TURN".into(), session.turn.to_string().into()));
    env.retain(|(name, _)| name != "AGENTPROTO_PROMPT");
    env.extend(prompt.as_ref().map(|text| ("AGENTPROTO_PROMPT".into(), text.into())));
    Ok(RunSpec {
        effect: engine::agent_key(&session.session_id),
        program: place.program,
        args: launch.argv.iter().skip(1).map(Into::into).collect(),
        cwd,
        env,
        timeout_ms: limits::AGENT_RUN_MAX_MS,
        stdin: prompt.map(String::into_bytes).unwrap_or_default(),
        ring: Some(output::dir_of(&agent_dir(ledger), session.session_id.as_str())),
    })
}

/// The caller's environment without what points git at some repository.
fn variables(ledger: &Ledger, worktree: &Worktree) -> Result<Vec<(OsString, OsString)>, String> {
    let failed = |code: Code| format!("its environment cannot be made [{code}]");
    let git = Git::new(ledger.env(), worktree).map_err(|e| failed(e.code()))?;
    git.hook_env().map_err(|e| failed(e.code()))
}

/// The directory it works in, looked at anew: it may have become a link that leads elsewhere.
fn cwd_of(worktree: &Worktree, session: &Session) -> Result<PathBuf, String> {
    let below = worktree.top.join(&session.cwd);
    let real = files::real(&below).map_err(|e| format!("its directory: {}", e.source))?;
    if real.starts_with(&worktree.top) {
        Ok(real)
    } else {
        Err("its directory leads out of its worktree".to_owned())
    }
}

/// What the turn is begun with, in words.
fn words(ledger: &Ledger, session: &Session) -> Result<Option<String>, String> {
    Ok(match &session.prompt {
        None => None,
        Some(Prompt::Text(text)) => Some(text.clone()),
        Some(Prompt::Nudge { policy, .. }) => {
            let policy = ledger.require_policy(policy);
            let policy = policy.map_err(|e| format!("its policy cannot be read [{}]", e.code()))?;
            Some(nudge::text(ledger, &policy))
        }
    })
}

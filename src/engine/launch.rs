//! Agents that we start: their runs, what they are told, and their end.
//!
//! Contract: a turn begins only by whoever holds the agent (`runtime::agent`), so a turn that runs without a holder is
//! known to be lost. A run that ends well leaves the session able to take another prompt as long as somebody may give it
//! one: it was started for that, a prompt waits, or a policy that is open would run it again. Every other end is the end of
//! the session: what an agent that failed was at is for a person to see.

use super::{
    State,
    decide::{Draft, Refusal, refuse},
    session::{emit, ended as turn_ended},
};
use crate::{
    code::Code,
    domain::{
        event::{Prompted, SessionExited, SessionStarted, Stopping, TurnStarted},
        ids::{PolicyId, SessionId},
        input::{AgentEnd, WhenBusy},
        policy::Policy,
        session::{EndReason, Exit, Process, Prompt, Session, Turn},
    },
    limits,
};

/// Decides to start an agent where no other one is at work.
pub(super) fn launch(
    draft: &mut Draft,
    id: &SessionId,
    (started, prompt): (SessionStarted, Option<Prompt>),
    busy: &[SessionId],
) -> Result<(), Refusal> {
    if let Some(other) = busy.first() {
        let because = format!("it is at work in worktree '{}'", started.worktree);
        return Err(refuse(Code::WorktreeBusy, other, because));
    }
    emit(draft, id, started.into())?;
    let Some(prompt) = prompt else { return Ok(()) };
    emit(draft, id, Prompted { prompt, interrupt: false, key: None }.into())
}

/// True when a run of it is to begin, and nobody began it yet.
#[must_use]
pub fn is_turn_due(session: &Session) -> bool {
    session.takes_prompts()
        && session.turn_state != Turn::Running
        && (session.turn == 0 || !session.queue.is_empty())
}

/// True when somebody has to do something for a session: begin a turn, end one, or look whether one still runs.
#[must_use]
pub fn is_session_due(session: &Session) -> bool {
    is_turn_due(session) || (session.launch.is_some() && session.process == Process::Alive)
}

/// Decides that the next turn begins.
pub(super) fn begin(draft: &mut Draft, id: &SessionId) -> Result<(), Refusal> {
    let session = load(draft, id)?;
    if !is_turn_due(&session) {
        return Err(refuse(Code::Terminal, id, "no turn of it is due"));
    }
    let prompt = session.queue.first().cloned();
    emit(draft, id, TurnStarted { turn: session.turn + 1, prompt, key: None }.into())
}

/// Decides what the end of a run leads to.
pub(super) fn ended(
    draft: &mut Draft,
    id: &SessionId,
    turn: u64,
    end: AgentEnd,
) -> Result<(), Refusal> {
    let session = load(draft, id)?;
    if session.process != Process::Alive || session.turn != turn {
        return Err(refuse(Code::Terminal, id, format!("turn {turn} does not run")));
    }
    let reason = reason_of(&session, &end);
    let inferred = end.inferred;
    emit(draft, id, turn_ended(&session, turn, reason, inferred).into())?;
    let goes_on = match reason {
        EndReason::Completed => true,
        // What interrupted it is said next.
        EndReason::Interrupted => session.interrupting && !end.interrupted,
        EndReason::Cancelled
        | EndReason::Limit
        | EndReason::MaxTokens
        | EndReason::Refusal
        | EndReason::Error
        | EndReason::Unknown => false,
    };
    if goes_on {
        return Ok(());
    }
    let AgentEnd { exit, because, .. } = end;
    emit(draft, id, SessionExited { exit, inferred, because, key: None }.into())
}

/// What a person did outweighs what the agent says: some end with 0 when they are told to end.
fn reason_of(session: &Session, end: &AgentEnd) -> EndReason {
    match end.exit {
        _ if session.stopping => EndReason::Cancelled,
        _ if end.inferred => EndReason::Unknown,
        _ if session.interrupting || end.interrupted => EndReason::Interrupted,
        Exit::Code(0) => EndReason::Completed,
        Exit::Code(_) | Exit::Signal(_) | Exit::NotStarted => EndReason::Error,
        Exit::Unknown => EndReason::Unknown,
    }
}

/// Decides that a session is told something. `Ok(Some(seq))`: it was recorded before.
pub(super) fn prompt(
    draft: &mut Draft,
    id: &SessionId,
    (text, key): (String, Option<String>),
    when_busy: WhenBusy,
) -> Result<Option<u64>, Refusal> {
    let session = load(draft, id)?;
    if let Some(seen) = session.keys.iter().find(|k| key.as_ref() == Some(&k.key)) {
        return Ok(Some(seen.seq));
    }
    if session.launch.is_none() {
        let because = "it was not started by this program, which cannot talk to its agent";
        return Err(refuse(Code::NotPromptable, id, because));
    }
    if !session.takes_prompts() {
        let because =
            if session.is_exited() { "the session has exited" } else { "it is being ended" };
        return Err(refuse(Code::Terminal, id, because));
    }
    if session.queue.len() >= limits::PROMPTS_QUEUED {
        let because = format!("{} prompts wait already", session.queue.len());
        return Err(refuse(Code::TooMany, id, because));
    }
    let busy = session.turn_state == Turn::Running || is_turn_due(&session);
    if busy && when_busy == WhenBusy::Refuse {
        return Err(refuse(
            Code::MidTurn,
            id,
            format!("its turn {} is not over", session.turn.max(1)),
        ));
    }
    let interrupt = when_busy == WhenBusy::Interrupt && session.turn_state == Turn::Running;
    emit(draft, id, Prompted { prompt: Prompt::Text(text), interrupt, key }.into())?;
    Ok(None)
}

/// Decides that a session ends. `Ok(Some(seq))`: it is on its way to already.
pub(super) fn stop(
    draft: &mut Draft,
    id: &SessionId,
    because: Option<String>,
) -> Result<Option<u64>, Refusal> {
    let session = load(draft, id)?;
    if session.launch.is_none() {
        let because = "it was not started by this program, which cannot end its agent";
        return Err(refuse(Code::NotLaunched, id, because));
    }
    if session.is_exited() {
        return Err(refuse(Code::Terminal, id, "the session has exited"));
    }
    if session.stopping {
        return Ok(Some(session.last));
    }
    emit(draft, id, Stopping { because }.into())?;
    Ok(None)
}

/// What follows by itself: sessions whose policy ends them are ended, and those that nobody may give another prompt are
/// over.
pub(super) fn follow_up(draft: &mut Draft) -> Result<(), Refusal> {
    for id in to_be_ended(draft) {
        let because = Some("its policy is over".to_owned());
        stop(draft, &id, because)?;
    }
    let over = |session: &&Session| {
        session.launch.is_some()
            && session.process == Process::Idle
            && (session.stopping || (session.turn > 0 && !may_be_told_more(draft.state(), session)))
    };
    let over: Vec<SessionId> =
        draft.state().sessions.values().filter(over).map(|s| s.session_id.clone()).collect();
    for id in over {
        let (exit, inferred, because, key) = (Exit::Code(0), false, None, None);
        emit(draft, &id, SessionExited { exit, inferred, because, key }.into())?;
    }
    Ok(())
}

/// Sessions of policies that this batch ended, and that end with them.
fn to_be_ended(draft: &Draft) -> Vec<SessionId> {
    let state = draft.state();
    let told = draft.policies_told();
    let policies = told.iter().filter_map(|id| state.policies.get(id));
    let ending = policies
        .filter(|p| p.spec.end_session && p.status.is_terminal() && p.followed_by().is_none());
    let sessions = ending.flat_map(|p| &p.spec.session_ids).filter_map(|id| state.sessions.get(id));
    sessions.filter(|s| s.takes_prompts()).map(|s| s.session_id.clone()).collect()
}

fn may_be_told_more(state: &State, session: &Session) -> bool {
    let runs_again = |policy: &Policy| {
        !policy.status.is_terminal() && policy.spec.on_fail.as_ref().is_some_and(|f| f.reprompt)
    };
    let open = session.policies.iter().filter_map(|id| state.policies.get(id));
    session.launch.as_ref().is_some_and(|launch| launch.reprompt)
        || !session.queue.is_empty()
        || open.into_iter().any(runs_again)
}

/// Whom a policy whose gates were red can tell.
pub(super) fn can_be_told(state: &State, policy: &Policy) -> Vec<SessionId> {
    let members = policy.spec.session_ids.iter().filter_map(|id| state.sessions.get(id));
    let able = members.filter(|s| s.takes_prompts() && s.queue.len() < limits::PROMPTS_QUEUED);
    able.map(|s| s.session_id.clone()).collect()
}

/// Tells a session of red gates.
pub(super) fn nudge(
    draft: &mut Draft,
    id: &SessionId,
    policy: &PolicyId,
    attempt: u32,
) -> Result<(), Refusal> {
    let prompt = Prompt::Nudge { policy: policy.clone(), attempt };
    emit(draft, id, Prompted { prompt, interrupt: false, key: None }.into())
}

fn load(draft: &Draft, id: &SessionId) -> Result<Session, Refusal> {
    let found = draft.state().sessions.get(id).cloned();
    found.ok_or_else(|| refuse(Code::NoSuchSession, id, "no session has this id here"))
}

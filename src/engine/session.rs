//! The session machine: what a report means, and what its events change. What is decided about agents that we start is in
//! [`super::launch`].

use super::{
    decide::{Draft, Refusal, refuse},
    step::Illegal,
};
use crate::{
    code::Code,
    domain::{
        event::{
            Body, CommandDone, Entity, Event, InputAnswered, InputAwaited, Prompted, Recorded,
            SessionExited, SessionStarted, TurnEnded, TurnStarted,
        },
        ids::{PolicyId, SessionId},
        input::Report,
        session::{EndReason, Exit, Loose, OpenRequest, Process, SeenKey, Session, Turn},
    },
    limits,
};

/// The session after one of its events.
pub(super) fn apply(
    before: Option<&Session>,
    id: &SessionId,
    recorded: &Recorded,
) -> Result<Session, Illegal> {
    let body = &recorded.event.body;
    let illegal = |state: &str| {
        Err(Illegal { kind: body.kind(), subject: id.to_string(), state: state.to_owned() })
    };
    let Some(before) = before else {
        let Body::SessionStarted(e) = body else { return illegal("unknown") };
        return Ok(started(id, recorded, e));
    };
    if before.is_exited() {
        return illegal("exited");
    }
    let mut session = before.clone();
    session.last = recorded.seq;
    match body {
        Body::TurnStarted(e) if before.turn_state != Turn::Running && e.turn == before.turn + 1 => {
            session.turn = e.turn;
            session.turn_state = Turn::Running;
            session.turn_began = recorded.seq;
            session.open_requests.clear();
            begin_run(&mut session, e);
        }
        Body::TurnEnded(e) if e.turn == before.turn && before.turn_state == Turn::Running => {
            end_turn(&mut session, e, recorded.seq);
        }
        Body::TurnEnded(e) if e.turn == before.turn + 1 && before.turn_state != Turn::Running => {
            session.turn_began = 0;
            end_turn(&mut session, e, recorded.seq);
        }
        Body::InputAwaited(e) => add_requests(&mut session.open_requests, &e.requests),
        Body::InputAnswered(e) => match &e.id {
            Some(id) => session.open_requests.retain(|r| r.id != *id),
            None => session.open_requests.clear(),
        },
        Body::Prompted(e) if before.takes_prompts() => queue(&mut session, e),
        Body::Stopping(_) if before.launch.is_some() && !before.stopping => {
            session.stopping = true;
            session.queue.clear();
        }
        Body::SessionExited(e) => {
            session.process = Process::Exited(e.exit.clone());
            session.exit_seq = recorded.seq;
        }
        Body::CommandDone(_) => {}
        Body::TurnStarted(_) | Body::TurnEnded(_) => return illegal("in another turn"),
        Body::SessionStarted(_) => return illegal("started"),
        Body::Prompted(_) => return illegal("none that takes prompts"),
        Body::Stopping(_) => return illegal("none that can be stopped"),
        Body::PolicyAttached(_)
        | Body::PolicyAdopted(_)
        | Body::GatingStarted(_)
        | Body::GatingQueued(_)
        | Body::Nudged(_)
        | Body::GatePassed(_)
        | Body::PolicyFailed(_)
        | Body::CommitReady(_)
        | Body::PolicyAcked(_)
        | Body::Committed(_)
        | Body::PolicyCancelled(_)
        | Body::PolicyDismissed(_)
        | Body::AckRefused(_) => return illegal("a session"),
    }
    remember(&mut session, body, recorded.seq);
    Ok(session)
}

fn started(id: &SessionId, recorded: &Recorded, event: &SessionStarted) -> Session {
    let SessionStarted { label, worktree, cwd, base, dirty_base, own, launch } = event.clone();
    let process = if launch.is_some() { Process::Idle } else { Process::Unknown };
    Session {
        session_id: id.clone(),
        label,
        worktree,
        cwd,
        base,
        dirty_base,
        own,
        launch,
        prompt: None,
        queue: vec![],
        interrupting: false,
        stopping: false,
        process,
        exit_seq: 0,
        turn: 0,
        turn_state: Turn::None,
        turn_began: 0,
        turn_ended: 0,
        open_requests: vec![],
        policies: vec![],
        keys: vec![],
        since: recorded.at,
        last: recorded.seq,
    }
}

fn end_turn(session: &mut Session, event: &TurnEnded, seq: u64) {
    session.turn = event.turn;
    let (reason, inferred, loose) = (event.reason, event.inferred, event.loose);
    session.turn_state = Turn::Ended { reason, inferred, loose, seq };
    session.turn_ended = seq;
    if session.launch.is_some() {
        session.process = Process::Idle;
        session.prompt = None;
        session.interrupting = false;
    }
}

/// A turn of an agent that we start is a run of it, and takes the first prompt that waits.
fn begin_run(session: &mut Session, event: &TurnStarted) {
    if session.launch.is_some() {
        session.process = Process::Alive;
        session.prompt.clone_from(&event.prompt);
        if event.prompt.is_some() && !session.queue.is_empty() {
            session.queue.remove(0);
        }
    }
}

/// What interrupts comes next, what does not waits for its turn.
fn queue(session: &mut Session, event: &Prompted) {
    let at = if event.interrupt { 0 } else { session.queue.len() };
    session.queue.insert(at, event.prompt.clone());
    session.interrupting |= event.interrupt && session.turn_state == Turn::Running;
}

fn add_requests(open: &mut Vec<OpenRequest>, new: &[OpenRequest]) {
    for request in new {
        open.retain(|r| r.id != request.id);
        open.push(request.clone());
    }
}

fn key_of(body: &Body) -> Option<&String> {
    match body {
        Body::TurnStarted(e) => e.key.as_ref(),
        Body::TurnEnded(e) => e.key.as_ref(),
        Body::InputAwaited(e) => e.key.as_ref(),
        Body::InputAnswered(e) => e.key.as_ref(),
        Body::Prompted(e) => e.key.as_ref(),
        Body::SessionExited(e) => e.key.as_ref(),
        Body::CommandDone(e) => e.key.as_ref(),
        Body::SessionStarted(_)
        | Body::Stopping(_)
        | Body::PolicyAttached(_)
        | Body::PolicyAdopted(_)
        | Body::GatingStarted(_)
        | Body::GatingQueued(_)
        | Body::Nudged(_)
        | Body::GatePassed(_)
        | Body::PolicyFailed(_)
        | Body::CommitReady(_)
        | Body::PolicyAcked(_)
        | Body::Committed(_)
        | Body::PolicyCancelled(_)
        | Body::PolicyDismissed(_)
        | Body::AckRefused(_) => None,
    }
}

fn remember(session: &mut Session, body: &Body, seq: u64) {
    if let Some(key) = key_of(body) {
        session.keys.push(SeenKey { key: key.clone(), seq });
        let over = session.keys.len().saturating_sub(limits::KEYS_PER_SESSION);
        session.keys.drain(..over);
    }
}

/// A policy of this session is over: forget it, and with it a session made for it alone.
pub(super) fn release(session: &mut Session, policy: &PolicyId, recorded: &Recorded) {
    session.policies.retain(|p| p != policy);
    // Nobody is told any more what it had to say.
    session.queue.retain(|prompt| prompt.policy() != Some(policy));
    if session.own && session.policies.is_empty() && !session.is_exited() {
        session.process = Process::Exited(Exit::Unknown);
        session.exit_seq = recorded.seq;
    }
}

/// Decides what a report means. `Ok(Some(seq))`: it was recorded before, as event `seq`.
pub(super) fn report(
    draft: &mut Draft,
    id: &SessionId,
    report: Report,
    key: Option<String>,
) -> Result<Option<u64>, Refusal> {
    let Some(session) = draft.state().sessions.get(id).cloned() else {
        return Err(refuse(Code::NoSuchSession, id, "no session has this id here"));
    };
    let seen = session.keys.iter().find(|k| key.as_ref() == Some(&k.key));
    if let Some(seen) = seen {
        return Ok(Some(seen.seq));
    }
    if session.is_exited() {
        return Err(refuse(Code::Terminal, id, "the session has exited"));
    }
    require_unowned(&session, &report)?;
    match report {
        Report::TurnStart { turn } => return turn_start(draft, &session, turn, key),
        Report::TurnEnd { turn, reason, loose } => {
            return turn_end(draft, &session, turn, (reason, loose, key));
        }
        Report::AwaitingInput { requests } => {
            emit(draft, id, InputAwaited { requests, key }.into())?;
        }
        Report::InputAnswered { id: request } => {
            answered(&session, request.as_deref())?;
            emit(draft, id, InputAnswered { id: request, key }.into())?;
        }
        Report::Exited { exit } => {
            if session.turn_state == Turn::Running {
                infer_end(draft, &session)?;
            }
            let (inferred, because) = (false, None);
            emit(draft, id, SessionExited { exit, inferred, because, key }.into())?;
        }
        Report::CommandDone { argv, code } => {
            emit(draft, id, CommandDone { argv, code, key }.into())?;
        }
    }
    Ok(None)
}

/// The turns of an agent that we start are its runs: nobody else tells of them.
fn require_unowned(session: &Session, report: &Report) -> Result<(), Refusal> {
    let ours = match report {
        Report::TurnStart { .. } | Report::TurnEnd { .. } | Report::Exited { .. } => true,
        Report::AwaitingInput { .. }
        | Report::InputAnswered { .. }
        | Report::CommandDone { .. } => false,
    };
    if ours && session.launch.is_some() {
        let because =
            "it was started by this program, which sees itself when its runs begin and end";
        return Err(refuse(Code::SessionOwned, &session.session_id, because));
    }
    Ok(())
}

pub(super) fn emit(draft: &mut Draft, id: &SessionId, body: Body) -> Result<(), Refusal> {
    draft.push(Event { subject: Entity::Session(id.clone()), sessions: vec![id.clone()], body })
}

fn infer_end(draft: &mut Draft, session: &Session) -> Result<(), Refusal> {
    emit(draft, &session.session_id, ended(session, session.turn, EndReason::Unknown, true).into())
}

fn answered(session: &Session, request: Option<&str>) -> Result<(), Refusal> {
    let known = match request {
        Some(id) => session.open_requests.iter().any(|r| r.id == id),
        None => !session.open_requests.is_empty(),
    };
    if known {
        return Ok(());
    }
    let because = format!("request '{}' is not open", request.unwrap_or("any"));
    Err(refuse(Code::NoSuchRequest, &session.session_id, because))
}

fn turn_start(
    draft: &mut Draft,
    session: &Session,
    turn: Option<u64>,
    key: Option<String>,
) -> Result<Option<u64>, Refusal> {
    let id = &session.session_id;
    if let Some(asked) = turn {
        if asked == session.turn && session.turn > 0 {
            let only_its_end_was_told = session.turn_began == 0;
            let seq = if only_its_end_was_told { session.turn_ended } else { session.turn_began };
            return Ok(Some(seq));
        }
        check_turn(session, asked, session.turn + 1)?;
    }
    if session.turn_state == Turn::Running {
        infer_end(draft, session)?;
    }
    emit(draft, id, TurnStarted { turn: session.turn + 1, prompt: None, key }.into())?;
    Ok(None)
}

fn turn_end(
    draft: &mut Draft,
    session: &Session,
    turn: Option<u64>,
    (reason, loose, key): (EndReason, Loose, Option<String>),
) -> Result<Option<u64>, Refusal> {
    let open = match session.turn_state {
        Turn::Running => session.turn,
        Turn::None | Turn::Ended { .. } => session.turn + 1,
    };
    if let Some(asked) = turn {
        if asked == open - 1 && session.turn_ended > 0 {
            return Ok(Some(session.turn_ended));
        }
        check_turn(session, asked, open)?;
    }
    let ended = TurnEnded { loose, key, ..ended(session, open, reason, false) };
    emit(draft, &session.session_id, ended.into())?;
    Ok(None)
}

/// The end of a turn of which nothing more is known.
pub(super) fn ended(session: &Session, turn: u64, reason: EndReason, inferred: bool) -> TurnEnded {
    let awaiting_input = !session.open_requests.is_empty();
    TurnEnded { turn, reason, inferred, awaiting_input, loose: Loose::default(), key: None }
}

fn check_turn(session: &Session, asked: u64, expected: u64) -> Result<(), Refusal> {
    let id = &session.session_id;
    match asked.cmp(&expected) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(refuse(
            Code::TurnOver,
            id,
            format!("turn {asked} is over, turn {expected} is next"),
        )),
        std::cmp::Ordering::Greater => Err(refuse(
            Code::TurnGap,
            id,
            format!("turn {asked} has not begun, turn {expected} is next"),
        )),
    }
}

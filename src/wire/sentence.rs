//! The plain sentence of an event, for the subject line of its journal commit.

use super::ack_line::AckLine;
use crate::domain::{
    ack::Decision,
    event::{Body, PolicyFailed, SessionExited, SessionStarted},
    policy::{AckRecord, Outcome, Then},
    session::{Exit, Loose, Prompt},
};

/// Says what happened, in one line without control characters.
#[must_use]
pub fn sentence(body: &Body) -> String {
    one_line(&match body {
        Body::SessionStarted(e) => started(e),
        Body::TurnStarted(e) => match &e.prompt {
            Some(prompt) => format!("turn {} began with {}", e.turn, said(prompt)),
            None => format!("turn {} began", e.turn),
        },
        Body::TurnEnded(e) => {
            let how = if e.inferred { ", nobody said so" } else { "" };
            let rest = left_open(e.loose);
            format!("turn {} ended: {}{how}{rest}", e.turn, e.reason.as_str())
        }
        Body::InputAwaited(e) => format!("waits for an answer ({} open)", e.requests.len()),
        Body::InputAnswered(_) => "got its answer".to_owned(),
        Body::Prompted(e) if e.interrupt => format!("is interrupted by {}", said(&e.prompt)),
        Body::Prompted(e) => format!("is to be given {}", said(&e.prompt)),
        Body::Stopping(e) => because("is to end", e.because.as_deref()),
        Body::SessionExited(e) => exited(e),
        Body::CommandDone(e) => match e.code {
            Some(code) => format!("command ended with {code}: {}", e.argv.join(" ")),
            None => format!("command ended: {}", e.argv.join(" ")),
        },
        Body::PolicyAdopted(e) => format!("taken over from journal {}", e.writer),
        Body::PolicyAttached(e) => attached(e.spec.then, e.spec.gates.len()),
        Body::GatingStarted(e) => match &e.because {
            Some(because) => format!("gate run {} began: {because}", e.attempt),
            None => format!("gate run {} began", e.attempt),
        },
        Body::GatingQueued(e) => {
            format!("gate run {} waits: as many gates run as may at once", e.attempt)
        }
        Body::Nudged(e) => {
            let told =
                because(&format!("gate run {} is {}", e.attempt, e.reason), e.because.as_deref());
            format!("{told}; {} told of it", e.sessions.len())
        }
        Body::GatePassed(e) => match e.outcome {
            Some(Outcome::NoOp) => "gates green, nothing to commit".to_owned(),
            Some(Outcome::Passed | Outcome::Committed) => "gates green".to_owned(),
            None => match &e.unsigned {
                Some(unsigned) => format!("gates green, not signed yet: {}", unsigned.because),
                None => "gates green".to_owned(),
            },
        },
        Body::PolicyFailed(e) => failed(e),
        Body::CommitReady(e) if e.ack => format!("{} waits for an ack", e.candidate.commit),
        Body::CommitReady(e) => format!("{} may land", e.candidate.commit),
        Body::PolicyAcked(e) => acked(&e.ack),
        Body::Committed(e) => format!("{} is on {}", e.commit, e.branch),
        Body::PolicyCancelled(_) => "cancelled".to_owned(),
        Body::PolicyDismissed(e) => match &e.because {
            Some(because) => format!("dismissed: {because}"),
            None => "dismissed".to_owned(),
        },
        Body::AckRefused(e) => format!("{}: {}", e.outcome, e.because),
    })
}

fn started(event: &SessionStarted) -> String {
    let what = match &event.launch {
        Some(launch) => format!("started, {}", launch.argv.first().map_or("", String::as_str)),
        None => "registered".to_owned(),
    };
    match &event.label {
        Some(label) => format!("{what} as {label}"),
        None => what,
    }
}

/// What of a turn is not finished though it ended.
#[must_use]
pub fn left_open(loose: Loose) -> String {
    let background = match loose.background {
        0 => String::new(),
        n => format!(", {n} at work in the background"),
    };
    let empty = if loose.empty { ", empty" } else { "" };
    format!("{background}{empty}")
}

/// What a prompt is; what a person said may be long, and is in the data.
fn said(prompt: &Prompt) -> String {
    match prompt {
        Prompt::Text(_) => "a prompt".to_owned(),
        Prompt::Nudge { policy, attempt } => format!("what gate run {attempt} of {policy} said"),
    }
}

fn exited(event: &SessionExited) -> String {
    let how = match &event.exit {
        Exit::Code(code) => format!("exited with {code}"),
        Exit::Signal(name) => format!("killed by {name}"),
        Exit::NotStarted => "was not started".to_owned(),
        Exit::Unknown => "is gone".to_owned(),
    };
    because(&how, event.because.as_deref())
}

fn because(what: &str, because: Option<&str>) -> String {
    because.map_or_else(|| what.to_owned(), |why| format!("{what}: {why}"))
}

fn attached(then: Then, gates: usize) -> String {
    let what = match then {
        Then::Emit => "says so when green",
        Then::Commit => "commits when green",
    };
    match gates {
        1 => format!("attached, 1 gate, {what}"),
        n => format!("attached, {n} gates, {what}"),
    }
}

/// The reason of a no is what the agent has to know; it is part of what was signed and kept nowhere else.
fn acked(ack: &AckRecord) -> String {
    let signer = &ack.signer;
    match (ack.decision, AckLine::parse(&ack.line).map(|line| line.statement.reason)) {
        (Decision::Approve, _) => format!("approved by {signer}"),
        (Decision::Reject, Ok(why)) if !why.is_empty() => format!("rejected by {signer}: {why}"),
        (Decision::Reject, Ok(_) | Err(_)) => format!("rejected by {signer}"),
    }
}

fn failed(event: &PolicyFailed) -> String {
    match &event.because {
        Some(because) => format!("blocked, {}: {because}", event.reason),
        None => format!("blocked, {}", event.reason),
    }
}

/// Longest sentence kept, characters.
const SENTENCE_CHARS: usize = 160;

fn one_line(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = clean.take(SENTENCE_CHARS + 1).collect();
    if line.chars().count() > SENTENCE_CHARS {
        line.pop();
        line.push('…');
    }
    line.trim_end().to_owned()
}

//! The plain sentence of an event, for the subject line of its journal commit.

use super::ack_line::AckLine;
use crate::domain::{
    ack::Decision,
    event::{Body, PolicyFailed},
    policy::{AckRecord, Outcome, Then},
    session::Exit,
};

/// Says what happened, in one line without control characters.
#[must_use]
pub fn sentence(body: &Body) -> String {
    one_line(&match body {
        Body::SessionStarted(e) => match &e.label {
            Some(label) => format!("registered as {label}"),
            None => "registered".to_owned(),
        },
        Body::TurnStarted(e) => format!("turn {} began", e.turn),
        Body::TurnEnded(e) => {
            let how = if e.inferred { ", nobody said so" } else { "" };
            format!("turn {} ended: {}{how}", e.turn, e.reason.as_str())
        }
        Body::InputAwaited(e) => format!("waits for an answer ({} open)", e.requests.len()),
        Body::InputAnswered(_) => "got its answer".to_owned(),
        Body::SessionExited(e) => match &e.exit {
            Exit::Code(code) => format!("exited with {code}"),
            Exit::Signal(name) => format!("killed by {name}"),
            Exit::Unknown => "is gone".to_owned(),
        },
        Body::CommandDone(e) => match e.code {
            Some(code) => format!("command ended with {code}: {}", e.argv.join(" ")),
            None => format!("command ended: {}", e.argv.join(" ")),
        },
        Body::PolicyAttached(e) => attached(e.spec.then, e.spec.gates.len()),
        Body::GatingStarted(e) => match &e.because {
            Some(because) => format!("gate run {} began: {because}", e.attempt),
            None => format!("gate run {} began", e.attempt),
        },
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

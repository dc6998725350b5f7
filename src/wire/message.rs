//! Journal commit messages: an event as text that plain `git log` shows and this program reads back.
//!
//! Contract: the subject line and the prose are for people; the trailers are the event. `Data` is one line of
//! JSON with what the trailers do not say. Kinds this version does not know stay readable as [`Message`].

use super::sentence::sentence;
use crate::domain::{
    event::{Body, Entity, Event, Kind, Recorded},
    gate::Verdict,
    ids::{PolicyId, SessionId},
    oid::Oid,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::str::FromStr;

/// Version of the journal format, in the first commit of a segment.
pub const FORMAT: u64 = 1;

/// A journal message as it was read, whether or not its kind is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// First line.
    pub subject: String,
    /// Event number.
    pub seq: u64,
    /// `family:name`.
    pub kind: String,
    /// Sessions concerned.
    pub sessions: Vec<SessionId>,
    /// Policy concerned.
    pub policy: Option<PolicyId>,
    /// Previous event of the same entity.
    pub prev: Option<u64>,
    /// When.
    pub at: Timestamp,
    /// Who recorded it.
    pub actor: String,
    /// Version of the state machine.
    pub engine: u32,
    /// Repository id, in the first commit of a segment.
    pub repo: Option<String>,
    /// Format version, in the first commit of a segment.
    pub format: Option<u64>,
    /// Last commit of the segment before, in the first commit of a segment that is not the first.
    pub continues: Option<Oid>,
    /// A recovery this entry tells of.
    pub mended: Option<Mended>,
    /// Everything else the event says, trailers included.
    pub data: Map<String, Value>,
}

/// A commit message that is no journal message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// Not text.
    #[error("not UTF-8")]
    Text,
    /// A trailer is missing.
    #[error("no {0} trailer")]
    Missing(&'static str),
    /// A trailer says nothing sensible.
    #[error("{0} trailer cannot be read: '{1}'")]
    Bad(&'static str, String),
    /// A trailer stands twice.
    #[error("{0} trailer twice")]
    Twice(&'static str),
    /// The data do not fit the kind.
    #[error("the data do not fit {kind}: {why}")]
    Data {
        /// The kind.
        kind: String,
        /// What the reader says.
        why: String,
    },
}

/// What a recovery had to mend. The next entry tells of it: reading appends nothing (decisions 12).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    /// Objects written again.
    pub objects: u64,
    /// Full names of the refs set again.
    pub refs: Vec<String>,
}

impl FromStr for Mended {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// What an entry says beside its event.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside<'a> {
    /// Repository id, in the first entry of a segment.
    pub repo: Option<&'a str>,
    /// Last commit of the segment before, in the first entry of a later segment.
    pub continues: Option<Oid>,
    /// A recovery that no entry told of before.
    pub mended: Option<&'a Mended>,
}

/// Writes the message of an event.
///
/// # Errors
/// The event cannot be written as JSON.
pub fn encode(recorded: &Recorded, beside: Beside<'_>) -> Result<Vec<u8>, BadMessage> {
    let body = &recorded.event.body;
    let kind = body.kind().as_str();
    let mut data = data_of(body)?;
    let mut text = format!("{kind} {}: {}\n\n", recorded.event.subject, sentence(body));
    let mut trailer = |name: &str, value: &dyn std::fmt::Display| {
        text.push_str(&format!("{name}: {value}\n"));
    };
    if let Some(repo) = beside.repo {
        trailer("Repo", &repo);
        trailer("Format", &FORMAT);
    }
    if let Some(continues) = &beside.continues {
        trailer("Continues", continues);
    }
    trailer("Seq", &recorded.seq);
    trailer("Kind", &kind);
    for session in &recorded.event.sessions {
        trailer("Session", session);
    }
    if let Entity::Policy(policy) = &recorded.event.subject {
        trailer("Policy", policy);
    }
    if let Some(turn) = data.shift_remove("turn") {
        trailer("Turn", &turn);
    }
    if let Some(verdict) = verdict_of(body) {
        trailer("Verdict", &verdict.as_str());
    }
    if names_candidate(body)
        && let Some(Value::String(candidate)) = data.shift_remove("commit")
    {
        trailer("Candidate", &candidate);
    }
    if let Some(prev) = recorded.prev {
        trailer("Prev", &prev);
    }
    trailer("At", &recorded.at);
    trailer("Actor", &recorded.actor);
    trailer("Engine", &recorded.engine);
    if let Some(mended) = beside.mended {
        trailer("Recovered", &serde_json::json!(mended));
    }
    trailer("Data", &Value::Object(data));
    Ok(text.into_bytes())
}

fn data_of(body: &Body) -> Result<Map<String, Value>, BadMessage> {
    let bad = |why: String| BadMessage::Data { kind: body.kind().as_str().to_owned(), why };
    let value = serde_json::to_value(body).map_err(|e| bad(e.to_string()))?;
    value.as_object().cloned().ok_or_else(|| bad(format!("not an object: {value}")))
}

fn names_candidate(body: &Body) -> bool {
    matches!(body, Body::CommitReady(_) | Body::Committed(_))
}

fn verdict_of(body: &Body) -> Option<Verdict> {
    match body {
        Body::GatePassed(_) => Some(Verdict::Pass),
        Body::PolicyFailed(e) => e.results.as_ref()?.last().map(|r| r.verdict),
        Body::Nudged(e) => e.results.last().map(|r| r.verdict),
        Body::Prompted(_)
        | Body::Stopping(_)
        | Body::GatingQueued(_)
        | Body::SessionStarted(_)
        | Body::TurnStarted(_)
        | Body::TurnEnded(_)
        | Body::InputAwaited(_)
        | Body::InputAnswered(_)
        | Body::SessionExited(_)
        | Body::CommandDone(_)
        | Body::PolicyAttached(_)
        | Body::PolicyAdopted(_)
        | Body::GatingStarted(_)
        | Body::CommitReady(_)
        | Body::PolicyAcked(_)
        | Body::Committed(_)
        | Body::PolicyCancelled(_)
        | Body::PolicyDismissed(_)
        | Body::AckRefused(_) => None,
    }
}

/// Reads a message of any kind.
///
/// # Errors
/// [`BadMessage`] names the first trailer that is wrong.
pub fn decode(bytes: &[u8]) -> Result<Message, BadMessage> {
    let text = std::str::from_utf8(bytes).map_err(|_| BadMessage::Text)?;
    let (head, block) =
        text.trim_end_matches('\n').rsplit_once("\n\n").ok_or(BadMessage::Missing("Seq"))?;
    // Not `lines`: a value may end with a carriage return.
    let fields = Fields(block.split('\n').filter_map(|l| l.split_once(": ")).collect());
    let mut data = match fields.one("Data")? {
        Some(json) => serde_json::from_str(json)
            .map_err(|_| BadMessage::Bad("Data", json.chars().take(80).collect()))?,
        None => Map::new(),
    };
    if let Some(turn) = fields.parsed::<u64>("Turn")? {
        data.insert("turn".to_owned(), turn.into());
    }
    if let Some(candidate) = fields.one("Candidate")? {
        data.insert("commit".to_owned(), candidate.into());
    }
    let sessions: Result<Vec<SessionId>, BadMessage> = fields
        .all("Session")
        .map(|s| s.parse().map_err(|_| BadMessage::Bad("Session", s.to_owned())))
        .collect();
    Ok(Message {
        subject: head.split('\n').next().unwrap_or_default().to_owned(),
        seq: fields.required("Seq")?,
        kind: fields.required("Kind")?,
        sessions: sessions?,
        policy: fields.parsed("Policy")?,
        prev: fields.parsed("Prev")?,
        at: fields.required("At")?,
        actor: fields.required("Actor")?,
        engine: fields.required("Engine")?,
        repo: fields.one("Repo")?.map(str::to_owned),
        format: fields.parsed("Format")?,
        continues: fields.parsed("Continues")?,
        mended: fields.parsed("Recovered")?,
        data,
    })
}

/// Trailers in the order they stand.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn all(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| *n == name).map(|(_, v)| *v)
    }

    fn one(&self, name: &'static str) -> Result<Option<&'a str>, BadMessage> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(BadMessage::Twice(name)),
        }
    }

    fn parsed<T: std::str::FromStr>(&self, name: &'static str) -> Result<Option<T>, BadMessage> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| BadMessage::Bad(name, text.to_owned()))
    }

    fn required<T: std::str::FromStr>(&self, name: &'static str) -> Result<T, BadMessage> {
        self.parsed(name)?.ok_or(BadMessage::Missing(name))
    }
}

impl Message {
    /// What it says beside its event.
    #[must_use]
    pub fn beside(&self) -> Beside<'_> {
        Beside {
            repo: self.repo.as_deref(),
            continues: self.continues,
            mended: self.mended.as_ref(),
        }
    }

    /// The event, when this version knows its kind.
    ///
    /// # Errors
    /// The data do not fit the kind.
    pub fn recorded(&self) -> Result<Option<Recorded>, BadMessage> {
        let Some(kind) = Kind::parse(&self.kind) else { return Ok(None) };
        let body = body_of(kind, Value::Object(self.data.clone()))
            .map_err(|e| BadMessage::Data { kind: self.kind.clone(), why: e.to_string() })?;
        let subject = match (&self.policy, self.sessions.first(), kind) {
            (Some(policy), _, _) => Entity::Policy(policy.clone()),
            (None, Some(session), _) => Entity::Session(session.clone()),
            (None, None, _) => return Err(BadMessage::Missing("Session")),
        };
        let event = Event { subject, sessions: self.sessions.clone(), body };
        Ok(Some(Recorded {
            seq: self.seq,
            at: self.at,
            actor: self.actor.clone(),
            prev: self.prev,
            engine: self.engine,
            event,
        }))
    }
}

fn body_of(kind: Kind, data: Value) -> Result<Body, serde_json::Error> {
    Ok(match kind {
        Kind::SessionStarted => Body::SessionStarted(serde_json::from_value(data)?),
        Kind::TurnStarted => Body::TurnStarted(serde_json::from_value(data)?),
        Kind::TurnEnded => Body::TurnEnded(serde_json::from_value(data)?),
        Kind::InputAwaited => Body::InputAwaited(serde_json::from_value(data)?),
        Kind::InputAnswered => Body::InputAnswered(serde_json::from_value(data)?),
        Kind::Prompted => Body::Prompted(serde_json::from_value(data)?),
        Kind::Stopping => Body::Stopping(serde_json::from_value(data)?),
        Kind::SessionExited => Body::SessionExited(serde_json::from_value(data)?),
        Kind::CommandDone => Body::CommandDone(serde_json::from_value(data)?),
        Kind::PolicyAdopted => Body::PolicyAdopted(serde_json::from_value(data)?),
        Kind::PolicyAttached => Body::PolicyAttached(serde_json::from_value(data)?),
        Kind::GatingStarted => Body::GatingStarted(serde_json::from_value(data)?),
        Kind::GatingQueued => Body::GatingQueued(serde_json::from_value(data)?),
        Kind::Nudged => Body::Nudged(serde_json::from_value(data)?),
        Kind::GatePassed => Body::GatePassed(serde_json::from_value(data)?),
        Kind::PolicyFailed => Body::PolicyFailed(serde_json::from_value(data)?),
        Kind::CommitReady => Body::CommitReady(serde_json::from_value(data)?),
        Kind::PolicyAcked => Body::PolicyAcked(serde_json::from_value(data)?),
        Kind::Committed => Body::Committed(serde_json::from_value(data)?),
        Kind::PolicyCancelled => Body::PolicyCancelled(serde_json::from_value(data)?),
        Kind::PolicyDismissed => Body::PolicyDismissed(serde_json::from_value(data)?),
        Kind::AckRefused => Body::AckRefused(serde_json::from_value(data)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        event::{Committed, TurnEnded},
        session::{EndReason, Loose},
    };

    fn turn_ended() -> TurnEnded {
        TurnEnded {
            turn: 2,
            reason: EndReason::Completed,
            inferred: false,
            awaiting_input: false,
            loose: Loose::default(),
            key: None,
        }
    }

    fn recorded(subject: Entity, body: Body) -> Recorded {
        Recorded {
            seq: 7,
            at: Timestamp::from_ms(1_700_000_000_000),
            actor: "cli".into(),
            prev: Some(3),
            engine: 1,
            event: Event {
                subject,
                sessions: vec!["ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap()],
                body,
            },
        }
    }

    #[test]
    fn a_turn_end_reads_as_a_story_and_reads_back() {
        let body = turn_ended();
        let event = recorded(
            Entity::Session("ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap()),
            body.into(),
        );
        let bytes = encode(&event, Beside { repo: Some("abc"), ..Beside::default() }).unwrap();
        assert_eq!(
            String::from_utf8(bytes.clone()).unwrap(),
            "session:turn-end ses_01arz3ndektsv4rrffq69g5fav: turn 2 ended: completed\n\n\
             Repo: abc\nFormat: 1\nSeq: 7\nKind: session:turn-end\n\
             Session: ses_01arz3ndektsv4rrffq69g5fav\nTurn: 2\nPrev: 3\n\
             At: 2023-11-14T22:13:20.000Z\nActor: cli\nEngine: 1\nData: {\"reason\":\"completed\"}\n"
        );
        let message = decode(&bytes).unwrap();
        assert_eq!(message.repo.as_deref(), Some("abc"));
        assert_eq!(message.recorded().unwrap(), Some(event));
    }

    #[test]
    fn a_candidate_is_a_trailer() {
        let commit = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
        let body = Committed { commit, branch: "refs/heads/main".into() };
        let event = recorded(
            Entity::Policy("pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap()),
            body.into(),
        );
        let bytes = encode(&event, Beside::default()).unwrap();
        assert!(String::from_utf8_lossy(&bytes).contains(&format!("\nCandidate: {commit}\n")));
        assert_eq!(decode(&bytes).unwrap().recorded().unwrap(), Some(event));
    }

    #[test]
    fn the_first_entry_of_a_later_segment_names_the_last_one_before() {
        let body = turn_ended();
        let subject = Entity::Session("ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap());
        let event = recorded(subject, body.into());
        let last = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
        let beside = Beside { repo: Some("abc"), continues: Some(last), mended: None };
        let bytes = encode(&event, beside).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let lines = format!("\n\nRepo: abc\nFormat: 1\nContinues: {last}\nSeq: 7\n");
        assert!(text.contains(&lines), "{text}");
        let message = decode(&bytes).unwrap();
        assert_eq!((message.continues, message.beside().continues), (Some(last), Some(last)));
        assert_eq!(message.recorded().unwrap(), Some(event));
    }

    #[test]
    fn an_entry_tells_of_a_recovery_before_it() {
        let commit = "0123456789abcdef0123456789abcdef01234567".parse().unwrap();
        let body = Committed { commit, branch: "refs/heads/main".into() };
        let event = recorded(
            Entity::Policy("pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap()),
            body.into(),
        );
        let mended = Mended { objects: 3, refs: vec!["refs/x".into()] };
        let bytes = encode(&event, Beside { mended: Some(&mended), ..Beside::default() }).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("\nRecovered: {\"objects\":3,\"refs\":[\"refs/x\"]}\n"), "{text}");
        let message = decode(&bytes).unwrap();
        assert_eq!(message.mended, Some(mended));
        assert_eq!(message.recorded().unwrap(), Some(event));
    }

    #[test]
    fn a_line_ends_with_a_newline_and_nothing_else() {
        let body = turn_ended();
        let subject = Entity::Session("ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap());
        let mut event = recorded(subject, body.into());
        for odd in ["cli\r", "\rcli", "c\u{b}l\u{2028}i"] {
            event.actor = odd.into();
            let beside = Beside { repo: Some("abc\r"), ..Beside::default() };
            let bytes = encode(&event, beside).unwrap();
            let message = decode(&bytes).unwrap();
            assert_eq!((message.actor.as_str(), message.repo.as_deref()), (odd, Some("abc\r")));
            assert_eq!(message.recorded().unwrap().as_ref(), Some(&event));
            assert_eq!(encode(&event, message.beside()).unwrap(), bytes);
        }
        let text = b"x:y z: w\r\n\nSeq: 1\r\nKind: x:y\nAt: 2023-11-14T22:13:20.000Z\nActor: cli\nEngine: 9\n";
        assert_eq!(decode(text), Err(BadMessage::Bad("Seq", "1\r".into())));
        let text = b"x:y z: w\r\n\nSeq: 1\nKind: x:y\nAt: 2023-11-14T22:13:20.000Z\nActor: cli\nEngine: 9\n";
        assert_eq!(decode(text).unwrap().subject, "x:y z: w\r");
    }

    #[test]
    fn an_unknown_kind_stays_readable() {
        let text = b"x:y z: w\n\nSeq: 1\nKind: x:y\nAt: 2023-11-14T22:13:20.000Z\nActor: cli\nEngine: 9\nData: {\"a\":1}\n";
        let message = decode(text).unwrap();
        assert_eq!(message.kind, "x:y");
        assert_eq!(message.recorded(), Ok(None));
    }

    #[test]
    fn doubled_and_missing_trailers_are_refused() {
        let twice = b"x:y z: w\n\nSeq: 1\nSeq: 2\nKind: x:y\nAt: 2023-11-14T22:13:20.000Z\nActor: cli\nEngine: 1\n";
        assert_eq!(decode(twice), Err(BadMessage::Twice("Seq")));
        let missing = b"x:y z: w\n\nSeq: 1\n";
        assert_eq!(decode(missing), Err(BadMessage::Missing("Kind")));
    }
}

//! A journal entry as it is shown: one JSON object for programs, one line for people.

use super::{
    cx::Cx,
    names::Names,
    text::{Paint, ago, cut, short_oid, shown},
};
use crate::{
    domain::{event::Kind, time::Timestamp},
    ledger::Seen,
    wire::message::Message,
};
use serde_json::{Map, Value, json};

/// Name and version of the object.
pub(super) const SCHEMA: &str = "agentproto/event/1";

/// Width of the column that holds times.
const AGO_COLUMNS: usize = 10;
/// Width of the column that holds kinds: `session:awaiting-input` fits.
const KIND_COLUMNS: usize = 22;
/// Width of the column that holds ids.
const ID_COLUMNS: usize = 30;

/// The object of an entry: the fields every event has, then what this one says. A field of the data never
/// takes the place of one of ours.
pub(super) fn object(seen: &Seen) -> Map<String, Value> {
    let message = &seen.message;
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    set("cursor", seen.id.to_string().into());
    set("seq", message.seq.into());
    set("kind", message.kind.as_str().into());
    set("at", message.at.to_string().into());
    if let Some(session) = message.sessions.first() {
        set("sessionId", session.as_str().into());
    }
    if message.sessions.len() > 1 {
        set("sessionIds", message.sessions.iter().map(|s| s.as_str()).collect());
    }
    if let Some(policy) = &message.policy {
        set("policyId", policy.as_str().into());
    }
    set("source", message.actor.as_str().into());
    if let Some(verdict) = verdict(message) {
        set("verdict", verdict);
    }
    for (name, value) in &message.data {
        fields.entry(name).or_insert_with(|| value.clone());
    }
    fields
}

/// The object with its schema, for streams.
pub(super) fn stream_object(seen: &Seen) -> Value {
    let mut fields = object(seen);
    fields.shift_insert(0, "schema".to_owned(), SCHEMA.into());
    Value::Object(fields)
}

/// The warning about an event that is earlier by its time than one before it.
pub(super) fn set_back(seq: u64) -> String {
    format!(
        "warning: the clock was set back before event {seq} was recorded: numbers tell the order, times do not"
    )
}

/// What the last gate said; a policy without gates passes too.
fn verdict(message: &Message) -> Option<Value> {
    let last = || message.data.get("results")?.as_array()?.last()?.get("verdict").cloned();
    let passed = || (message.kind == Kind::GatePassed.as_str()).then(|| json!("pass"));
    last().or_else(passed)
}

/// The line of an entry with its number and exact time, for `events`.
pub(super) fn exact_line(seen: &Seen) -> String {
    let message = &seen.message;
    format!("{:>6}  {}  {}\n", message.seq, message.at, shown(&message.subject))
}

/// The line of an entry with its age, for `log`. On a terminal it never wraps: ids are short there, and where
/// even that leaves no room the sentence alone says what happened.
pub(super) fn story_line(seen: &Seen, now: Timestamp, cx: &Cx, names: &Names) -> String {
    let message = &seen.message;
    let (head, sentence) = message.subject.split_once(": ").unwrap_or(("", &message.subject));
    let id = shown(&names.short(head.split_once(' ').map_or("", |(_, id)| id)));
    let (ago, kind) = (ago(message.at, now), shown(&message.kind));
    let lead = match cx.columns {
        Some(columns) if columns < WIDE_COLUMNS => format!("{ago:>AGO_COLUMNS$}  {id}  "),
        Some(_) => format!("{ago:>AGO_COLUMNS$}  {kind:<KIND_COLUMNS$}  {id}  "),
        None => format!("{ago:>AGO_COLUMNS$}  {kind:<KIND_COLUMNS$}  {id:<ID_COLUMNS$}  "),
    };
    let room = cx.columns.map(|columns| columns.saturating_sub(lead.chars().count()));
    let sentence = shown(sentence);
    let fitted = |room| {
        let words: Vec<&str> = sentence.split(' ').map(short_oid).collect();
        cut(&words.join(" "), room)
    };
    let sentence = room.map_or_else(|| sentence.clone(), fitted);
    format!("{lead}{}\n", painted(message, &sentence, cx.paint))
}

/// Columns from which the kind has room beside the sentence.
const WIDE_COLUMNS: usize = 100;

fn painted(message: &Message, sentence: &str, paint: Paint) -> String {
    match Kind::parse(&message.kind) {
        Some(Kind::PolicyFailed | Kind::Nudged | Kind::AckRefused | Kind::InputAwaited) => {
            paint.warn(sentence)
        }
        Some(Kind::CommitReady | Kind::Committed) => paint.bold(sentence),
        Some(
            Kind::SessionStarted
            | Kind::TurnStarted
            | Kind::TurnEnded
            | Kind::InputAnswered
            | Kind::Prompted
            | Kind::Stopping
            | Kind::GatingQueued
            | Kind::SessionExited
            | Kind::CommandDone
            | Kind::PolicyAttached
            | Kind::PolicyAdopted
            | Kind::GatingStarted
            | Kind::GatePassed
            | Kind::PolicyAcked
            | Kind::PolicyCancelled
            | Kind::PolicyDismissed,
        )
        | None => sentence.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::testing, wire::message};

    fn seen(kind: &str, data: &str) -> Seen {
        let text = format!(
            "{kind} pol_01arz3ndektsv4rrffq69g5fav: blocked, gate-red \u{1b}[31m\n\nSeq: 7\n\
             Kind: {kind}\nSession: ses_01arz3ndektsv4rrffq69g5fav\n\
             Policy: pol_01arz3ndektsv4rrffq69g5fav\nAt: 2023-11-14T22:13:20.000Z\nActor: cli\n\
             Engine: 1\nData: {data}\n"
        );
        let id = "1".repeat(40).parse().unwrap();
        Seen {
            id,
            writer: "0123456789ab".parse().unwrap(),
            tree: id,
            message: message::decode(text.as_bytes()).unwrap(),
        }
    }

    #[test]
    fn an_event_says_its_own_fields_and_never_overwrites_ours() {
        let data =
            r#"{"reason":"gate-red","seq":99,"results":[{"verdict":"pass"},{"verdict":"fail"}]}"#;
        let object = stream_object(&seen("policy:failed", data));
        for (field, want) in [
            ("schema", "agentproto/event/1"),
            ("kind", "policy:failed"),
            ("at", "2023-11-14T22:13:20.000Z"),
            ("sessionId", "ses_01arz3ndektsv4rrffq69g5fav"),
            ("policyId", "pol_01arz3ndektsv4rrffq69g5fav"),
            ("source", "cli"),
            ("verdict", "fail"),
            ("reason", "gate-red"),
        ] {
            assert_eq!(object[field], want, "{field}");
        }
        assert_eq!(object["seq"], 7);
        assert_eq!(object.as_object().unwrap().keys().next().unwrap(), "schema");
    }

    #[test]
    fn passing_without_gates_is_a_pass_and_unknown_kinds_are_shown_raw() {
        assert_eq!(
            object(&seen("policy:passed", r#"{"attempt":1,"results":[]}"#))["verdict"],
            "pass"
        );
        let unknown = object(&seen("weather:rain", r#"{"mm":3}"#));
        assert_eq!((&unknown["kind"], &unknown["mm"]), (&json!("weather:rain"), &json!(3)));
        assert_eq!(unknown.get("verdict"), None);
    }

    #[test]
    fn lines_hide_no_escape_and_fit_the_terminal() {
        let entry = seen("policy:failed", "{}");
        let now = entry.message.at.plus_ms(120_000);
        let mut cx = testing::cx(&[]);
        let mut names = Names::default();
        assert_eq!(
            story_line(&entry, now, &cx, &names),
            " 2 min ago  policy:failed           pol_01arz3ndektsv4rrffq69g5fav  \
             blocked, gate-red \\x1b[31m\n"
        );
        names.short = true;
        for columns in [40, 60, 100] {
            cx.columns = Some(columns);
            let line = story_line(&entry, now, &cx, &names);
            assert!(line.trim_end().chars().count() <= columns, "{line}");
        }
        assert!(
            exact_line(&entry).starts_with("     7  2023-11-14T22:13:20.000Z  policy:failed pol_")
        );
    }
}

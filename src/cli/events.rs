//! `events`: the journal for programs, page by page or as a stream.
//!
//! Contract: a page ends with the position of the last entry examined, shown or not, so that the next page
//! begins where this one ended and nothing is lost or told twice.

use super::{args, cx::Cx, doubt, error::CliError, follow::follow, seen, text};
use crate::{
    code::exit,
    domain::event::Kind,
    ledger::{Ledger, Page, Query},
    limits,
    sys::clock,
};
use serde_json::{Value, json};

/// Which events.
#[derive(clap::Args)]
pub(super) struct EventsArgs {
    /// After this point: a cursor, WRITER@SEQ, SEQ, `tip`, an RFC 3339 time, or a duration ago
    #[arg(long, value_name = "POINT")]
    since: Option<String>,
    /// Only this kind: full name, short name (turn-end), or FAMILY:*
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only events that concern this session
    #[arg(long = "session", value_name = "ID")]
    sessions: Vec<String>,
    /// Only events that concern this policy
    #[arg(long = "policy", value_name = "ID")]
    policies: Vec<String>,
    /// At most N events (a page without it: 200)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Go on with what comes, one event a line
    #[arg(long)]
    follow: bool,
}

pub(super) fn run(cx: &Cx, args: &EventsArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let doubts = doubt::say(cx, &ledger);
    let limit = args.limit.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let query = query(&ledger, args, limit.unwrap_or(limits::EVENTS_LIMIT_DEFAULT))?;
    for kind in args.types.iter().filter(|kind| !names_a_kind(kind)) {
        cx.note(&format!("warning: this version records no event '{kind}'"));
    }
    if args.follow {
        follow(cx, &ledger, query, limit, |event| match cx.json {
            true => text::json_line(&seen::stream_object(event)),
            false => text::wrapped(&seen::exact_line(event), cx.columns),
        })?;
    } else {
        let page = ledger.events(&query)?;
        if let Some(seq) = page.set_back {
            cx.note(&seen::set_back(seq));
        }
        let mut answer = object(&page);
        doubt::tell(&mut answer, &doubts);
        cx.answer(&answer, &text(&page))?;
    }
    Ok(exit::DONE)
}

fn query(ledger: &Ledger, args: &EventsArgs, limit: usize) -> Result<Query, CliError> {
    let since = args.since.as_ref().map(|text| args::since(text, clock::now())).transpose()?;
    let sessions = args.sessions.iter().map(|id| ledger.find_session(id));
    let policies = args.policies.iter().map(|id| ledger.find_policy(id));
    Ok(Query {
        since,
        kinds: args.types.clone(),
        sessions: sessions.collect::<Result<_, _>>()?,
        policies: policies.collect::<Result<_, _>>()?,
        limit,
    })
}

/// True when `--type` names something this version writes; others may come from a newer one.
fn names_a_kind(text: &str) -> bool {
    Kind::ALL.iter().any(|kind| {
        let (family, short) = kind.as_str().split_once(':').unwrap_or(("", kind.as_str()));
        text == kind.as_str() || text == short || text.strip_suffix(":*") == Some(family)
    })
}

fn object(page: &Page) -> Value {
    let events: Vec<Value> = page.events.iter().map(|e| Value::Object(seen::object(e))).collect();
    let mut object = json!({
        "schema": "agentproto/events/1",
        "events": events,
        "next": page.next.map(|id| id.to_string()),
        "more": page.more,
    });
    if let Some(seq) = page.set_back {
        object["clockSetBackAt"] = seq.into();
    }
    object
}

fn text(page: &Page) -> String {
    let mut text: String = page.events.iter().map(seen::exact_line).collect();
    let next = page.next.map_or_else(|| "(the journal is empty)".to_owned(), |id| id.to_string());
    text.push_str(&format!("next: {next}{}\n", if page.more { " (there is more)" } else { "" }));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_named_in_full_in_short_or_by_family() {
        for name in ["session:turn-end", "turn-end", "session:*", "policy:*", "policy:committed"] {
            assert!(names_a_kind(name), "{name}");
        }
        for name in ["turnend", "session", "session:", "workflow:*", ""] {
            assert!(!names_a_kind(name), "{name}");
        }
    }

    #[test]
    fn an_empty_journal_has_no_next() {
        let page = Page { events: vec![], next: None, more: false, set_back: None };
        assert_eq!(
            object(&page).to_string(),
            r#"{"schema":"agentproto/events/1","events":[],"next":null,"more":false}"#
        );
    }
}

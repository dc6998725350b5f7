//! `wait`: blocks until something is true of sessions and policies, and does meanwhile what others left to do.

use super::{again::tool, args, cx::Cx, error::CliError, seen, text::shown};
use crate::{
    code::Code,
    domain::{
        event::Entity,
        policy::Status,
        session::{Session, Turn},
    },
    ledger::Ledger,
    limits,
    runtime::{
        perform::Gates,
        wait::{self, Condition, Target, WaitAsk, Waited},
    },
    sys::clock,
};
use serde_json::{Value, json};

/// What is waited for.
#[derive(clap::Args)]
pub(super) struct WaitArgs {
    /// Sessions and policies: id, beginning of an id, or label; none: every open policy
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// turn-end, awaiting-input, exited, settled, done, acked, idle or any; several: the first of them.
    /// Without it: settled for policies, turn-end for sessions
    #[arg(long, value_name = "COND", value_parser = condition)]
    until: Vec<Condition>,
    /// One target is enough (this is the default)
    #[arg(long, conflicts_with = "all")]
    any: bool,
    /// Wait for all targets
    #[arg(long)]
    all: bool,
    /// At most this long, 0s looks once; gates that are due go on in a process of their own [default: 1h]
    #[arg(long, value_name = "D")]
    timeout: Option<String>,
    /// What happened after this point counts, too
    #[arg(long, value_name = "POINT")]
    since: Option<String>,
}

fn condition(text: &str) -> Result<Condition, String> {
    Condition::ALL.into_iter().find(|c| c.as_str() == text).ok_or_else(|| {
        let all = Condition::ALL.map(Condition::as_str).join(", ");
        format!("no condition of this name; there are {all}")
    })
}

pub(super) fn run(cx: &Cx, args: WaitArgs) -> Result<u8, CliError> {
    // Who set a time gets the answer by then: gates go on without this process.
    let gates = if args.timeout.is_some() { Gates::HandedOver } else { Gates::Here };
    let timeout_ms = match args.timeout.as_deref() {
        None => limits::WAIT_DEFAULT_MS,
        // Nothing is ambiguous about no time at all.
        Some("0") => 0,
        Some(text) => args::duration_ms("--timeout", text)?,
    };
    let since = args.since.as_ref().map(|text| args::since(text, clock::now())).transpose()?;
    let ledger = cx.ledger()?;
    let targets = targets(&ledger, &args.targets)?;
    let ask = WaitAsk { targets, conditions: args.until, timeout_ms, since, all: args.all, gates };
    let waited = wait::wait(&ledger, &ask, &|line| cx.warn(line.to_owned()))?;
    let state = waited.target.as_ref().map(|t| state_of(&ledger, t)).transpose()?;
    let mut answer = object(&waited, state.as_deref());
    let tool = tool(cx, &ledger);
    let mut told = text(&tool, &waited, state.as_deref());
    if ask.all {
        let standing = |target: &Target| Ok((target.clone(), state_of(&ledger, target)?));
        let all = ask.targets.iter().map(standing).collect::<Result<Vec<_>, CliError>>()?;
        answer["targets"] = all.iter().map(target_object).collect();
        let others = all.iter().filter(|(target, _)| Some(target) != waited.target.as_ref());
        told.extend(others.map(|(target, state)| state_lines(&tool, target.as_str(), state)));
    }
    cx.answer(&answer, &told)?;
    Ok(waited.exit)
}

fn target_object((target, state): &(Target, String)) -> Value {
    json!({ "target": target.as_str(), "state": state })
}

fn targets(ledger: &Ledger, typed: &[String]) -> Result<Vec<Target>, CliError> {
    let mut targets = Vec::new();
    for text in typed {
        match ledger.find(text)? {
            Entity::Session(id) => targets.push(Target::Session(id)),
            Entity::Policy(id) => targets.push(Target::Policy(id)),
        }
    }
    if typed.is_empty() {
        let open = ledger.policies(false)?;
        targets.extend(open.into_iter().map(|p| Target::Policy(p.policy_id)));
    }
    if targets.is_empty() {
        return Err(CliError::new(Code::CanNeverBe, "no policy is open, nothing will become true")
            .with_hint("name a session or policy, or make one: git agentproto attach"));
    }
    Ok(targets)
}

/// The state of a target in one word.
fn state_of(ledger: &Ledger, target: &Target) -> Result<String, CliError> {
    Ok(match target {
        Target::Policy(id) => ledger.require_policy(id)?.status.as_str().to_owned(),
        Target::Session(id) => session_state(&ledger.require_session(id)?).to_owned(),
    })
}

fn session_state(session: &Session) -> &'static str {
    if session.is_exited() {
        return "exited";
    }
    if !session.open_requests.is_empty() {
        return "awaiting-input";
    }
    match session.turn_state {
        Turn::Running => "running",
        Turn::None | Turn::Ended { .. } => "idle",
    }
}

fn object(waited: &Waited, state: Option<&str>) -> Value {
    json!({
        "schema": "agentproto/wait/1",
        "met": waited.met,
        "target": waited.target.as_ref().map(Target::as_str),
        "condition": waited.condition.map(Condition::as_str),
        "event": waited.event.as_ref().map(seen::object),
        "state": state,
        "code": waited.code.map(Code::as_str),
    })
}

fn text(tool: &str, waited: &Waited, state: Option<&str>) -> String {
    let target = waited.target.as_ref().map_or("nothing", Target::as_str);
    let state = state.unwrap_or("unknown");
    let mut text = format!("{target} is {state}\n");
    if let Some(code) = waited.code {
        text.push_str(&format!("{code}: {}\n", code.hint()));
    }
    if let Some(event) = &waited.event {
        text.push_str(&seen::exact_line(event));
    }
    text + &next_line(tool, target, state)
}

/// How one of several stands.
fn state_lines(tool: &str, target: &str, state: &str) -> String {
    format!("{target} is {state}\n{}", next_line(tool, target, state))
}

/// What to do about a policy that is blocked; nothing about others.
fn next_line(tool: &str, target: &str, state: &str) -> String {
    if state == Status::Blocked.as_str() {
        format!("next: {} policy show {target}\n", shown(tool))
    } else {
        String::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::exit;

    #[test]
    fn conditions_are_named_as_documented() {
        assert_eq!(condition("settled"), Ok(Condition::Settled));
        assert!(condition("finished").unwrap_err().contains("turn-end, awaiting-input"));
    }

    #[test]
    fn an_answer_has_all_fields_even_when_nothing_is_known() {
        let waited = Waited {
            exit: exit::TIME,
            met: false,
            target: None,
            condition: None,
            event: None,
            code: Some(Code::Timeout),
        };
        assert_eq!(
            object(&waited, None).to_string(),
            r#"{"schema":"agentproto/wait/1","met":false,"target":null,"condition":null,"event":null,"state":null,"code":"timeout"}"#
        );
        assert_eq!(
            text("git agentproto", &waited, Some("watching")),
            "nothing is watching\ntimeout: wait longer with --timeout\n"
        );
    }
}

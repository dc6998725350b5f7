//! What sessions are told of red gates.
//!
//! Contract: made when it is delivered, from what the journal says and from the kept output of this machine. Every place
//! is filled as often as it stands; what is filled in is not looked at again.

use crate::{
    domain::{
        gate::{Gate, GateResult},
        policy::Policy,
    },
    ledger::Ledger,
    limits,
    runtime::gate::log,
};

/// What is said when a person said nothing else.
const OURS: &str = "The check `{gate}` did not pass (attempt {attempt}, {verdict}, exit {code}). \
Your work is not finished before it does: find out why, correct it, and end your turn again. You have {max} tries in all.\n\n\
The end of its output:\n{tail}\n";

/// The words for a red attempt of a policy.
#[must_use]
pub(super) fn text(ledger: &Ledger, policy: &Policy) -> String {
    let given = policy.spec.on_fail.as_ref().and_then(|f| f.nudge.as_deref());
    let last = policy.results.last();
    let max = policy.spec.on_fail.as_ref().map_or(0, |f| f.max_retries);
    let fill = |name: &str| match name {
        "code" => Some(exit_of(last)),
        "verdict" => Some(last.map_or("fail", |r| r.verdict.as_str()).to_owned()),
        "gate" => Some(gate_of(policy, last)),
        "attempt" => Some(policy.attempt.to_string()),
        "max" => Some((max + 1).to_string()),
        "tail" => Some(tail_of(ledger, policy, last)),
        _ => None,
    };
    let mut text = filled(given.unwrap_or(OURS), fill);
    if text.len() > limits::PROMPT_FILLED_BYTES {
        let end = (0..=limits::PROMPT_FILLED_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}

fn exit_of(last: Option<&GateResult>) -> String {
    use crate::domain::gate::GateEnd;
    match last.map(|r| &r.end) {
        Some(GateEnd::Exit(code)) => code.to_string(),
        Some(GateEnd::Signal(name)) => name.clone(),
        Some(GateEnd::Timeout) => "timeout".to_owned(),
        Some(GateEnd::NotRun) | None => "none".to_owned(),
    }
}

fn gate_of(policy: &Policy, last: Option<&GateResult>) -> String {
    match last {
        Some(GateResult { hook: Some(hook), .. }) => hook.clone(),
        Some(result) => policy.spec.gates.get(result.index).map_or_else(String::new, Gate::shown),
        None => String::new(),
    }
}

/// The end of what the gate wrote, without what no argument can hold; why it is red where it wrote nothing.
fn tail_of(ledger: &Ledger, policy: &Policy, last: Option<&GateResult>) -> String {
    let why = last.and_then(|r| r.because.clone()).or_else(|| policy.because.clone());
    let kept = last.and_then(|r| r.log.as_ref());
    let dir = ledger.store().location().agent_dir();
    let tail = kept.and_then(|kept| log::load_log(&dir, &kept.sha256).ok().flatten());
    let tail = tail.map(|log| log::tail_of(&log)).filter(|tail| !tail.trim().is_empty());
    tail.or(why).unwrap_or_else(|| "(none)".to_owned()).replace('\0', "")
}

/// The template with every place filled; what is no place stays as it is.
fn filled(template: &str, fill: impl Fn(&str) -> Option<String>) -> String {
    let (mut text, mut rest) = (String::new(), template);
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let place = from.find('}').and_then(|end| Some((fill(&from[1..end])?, end)));
        match place {
            Some((value, end)) => {
                text.push_str(&value);
                rest = &from[end + 1..];
            }
            None => {
                text.push('{');
                rest = &from[1..];
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_filled_as_often_as_it_stands_and_nothing_else() {
        let fill = |name: &str| match name {
            "code" => Some("3".to_owned()),
            "tail" => Some("{code} {x".to_owned()),
            _ => None,
        };
        for (template, want) in [
            ("", ""),
            ("{code}{code} }", "33 }"),
            ("a {tail} b {code}", "a {code} {x b 3"),
            ("{unknown} {code", "{unknown} {code"),
            ("{{code}}", "{3}"),
            ("é{code}ü", "é3ü"),
        ] {
            assert_eq!(filled(template, fill), want, "{template}");
        }
    }
}

//! `doctor`: whether this machine, this repository and what a person set up are fit for work, a line a check.
//!
//! Contract: looks and never writes. Each check stands alone: one that fails says that it could not tell, which is
//! never "fine", and the others go on. What is wrong with journals and notes is for `fsck` to judge; here it is
//! said where that is due.

mod gates;
mod keys;
pub(super) mod machine;
mod places;
mod rules;

use super::{cx::Cx, error::CliError, text::shown};
use crate::{code::exit, ledger::Ledger};
use serde_json::{Value, json};

/// Nothing to choose.
#[derive(clap::Args)]
pub(super) struct DoctorArgs {}

/// How a check went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// As it should be.
    Fine,
    /// Worth to know; nothing is wrong with it.
    Note,
    /// In the way of work, or not what somebody may believe it is.
    Problem,
    /// It could not be told.
    Unknown,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
            Self::Unknown => "unknown",
        }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    name: &'static str,
    state: State,
    message: String,
    hint: Option<String>,
}

/// What one check has to say, as it goes.
struct Findings {
    name: &'static str,
    found: Vec<Check>,
}

impl Findings {
    fn add(&mut self, state: State, message: impl Into<String>, hint: Option<&str>) {
        let hint = hint.map(str::to_owned);
        self.found.push(Check { name: self.name, state, message: message.into(), hint });
    }

    fn fine(&mut self, message: impl Into<String>) {
        self.add(State::Fine, message, None);
    }

    fn note(&mut self, message: impl Into<String>, hint: &str) {
        self.add(State::Note, message, Some(hint));
    }

    fn problem(&mut self, message: impl Into<String>, hint: &str) {
        self.add(State::Problem, message, Some(hint));
    }
}

/// A check of the machine.
type OfMachine = fn(&Cx, &mut Findings) -> Result<(), CliError>;
/// A check of the repository.
type OfRepository = fn(&Ledger, &mut Findings) -> Result<(), CliError>;

const OF_MACHINE: [(&str, OfMachine); 4] = [
    ("git", machine::git),
    ("platform", machine::platform),
    ("deadlines", machine::deadlines),
    ("manual", machine::manual),
];

const OF_REPOSITORY: [(&str, OfRepository); 12] = [
    ("refs", machine::refs),
    ("trusted-ref", rules::trusted_ref),
    ("rules", rules::accepted),
    ("settings", rules::settings_without_effect),
    ("key", keys::key),
    ("signers", keys::signers),
    ("allowlist", gates::allowlist),
    ("hooks", gates::hooks),
    ("store", places::store),
    ("journals", places::journals),
    ("runs", places::runs),
    ("sessions", places::sessions),
];

pub(super) fn run(cx: &Cx, _args: &DoctorArgs) -> Result<u8, CliError> {
    let checks = checks(cx);
    let exit = exit_of(&checks);
    cx.answer(&object(&checks), &text(&checks))?;
    Ok(exit)
}

fn checks(cx: &Cx) -> Vec<Check> {
    let mut all = Vec::new();
    for (name, check) in OF_MACHINE {
        all.extend(alone(name, |findings| check(cx, findings)));
    }
    let mut opened = None;
    all.extend(alone("repository", |findings| {
        let ledger = cx.ledger_to_look()?;
        rules::repository(&ledger, findings);
        opened = Some(ledger);
        Ok(())
    }));
    let Some(ledger) = opened else {
        // It cannot be opened, which is no lack of knowledge but what is wrong.
        if let Some(check) = all.last_mut() {
            check.state = State::Problem;
        }
        return all;
    };
    for (name, check) in OF_REPOSITORY {
        all.extend(alone(name, |findings| check(&ledger, findings)));
    }
    all
}

/// Runs one check. What it found before it failed counts, too.
fn alone(
    name: &'static str,
    check: impl FnOnce(&mut Findings) -> Result<(), CliError>,
) -> Vec<Check> {
    let mut findings = Findings { name, found: vec![] };
    if let Err(error) = check(&mut findings) {
        let message = format!("{} [{}]", error.message, error.code);
        findings.add(State::Unknown, message, Some(&error.hint));
    }
    findings.found
}

fn exit_of(checks: &[Check]) -> u8 {
    let any = |state| checks.iter().any(|check| check.state == state);
    if any(State::Problem) {
        exit::NO
    } else if any(State::Unknown) {
        exit::BROKEN
    } else {
        exit::DONE
    }
}

fn object(checks: &[Check]) -> Value {
    let each = checks.iter().map(|check| {
        json!({
            "name": check.name,
            "state": check.state.as_str(),
            "message": check.message,
            "hint": check.hint,
        })
    });
    json!({
        "schema": "agentproto/doctor/1",
        "ok": exit_of(checks) == exit::DONE,
        "checks": each.collect::<Vec<_>>(),
    })
}

fn text(checks: &[Check]) -> String {
    let mut text = String::new();
    for Check { name, state, message, hint } in checks {
        text.push_str(&format!("{:<8} {name:<12} {}\n", state.as_str(), shown(message)));
        if let Some(hint) = hint {
            text.push_str(&format!("{:<21} {}\n", "", shown(hint)));
        }
    }
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    text.push_str(&match (count(State::Problem), count(State::Unknown)) {
        (0, 0) => "nothing is wrong\n".to_owned(),
        (problems, 0) => format!("problems: {problems}\n"),
        (problems, unknown) => format!("problems: {problems}; could not be told: {unknown}\n"),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;

    #[test]
    fn a_check_that_fails_could_not_tell_and_keeps_what_it_found() {
        let found = alone("x", |findings| {
            findings.note("seen", "look");
            Err(CliError::new(Code::Io, "a\u{1b}b"))
        });
        let states: Vec<State> = found.iter().map(|check| check.state).collect();
        assert_eq!(states, [State::Note, State::Unknown]);
        assert_eq!(exit_of(&found), 2);
        assert_eq!(
            text(&found),
            "note     x            seen\n                      look\n\
             unknown  x            a\\x1bb [io-error]\n                      \
             mend what the operating system names, then try again\n\
             problems: 0; could not be told: 1\n"
        );
        assert_eq!(object(&found)["checks"][1]["state"], "unknown");
        assert_eq!(object(&found)["ok"], false);
    }

    #[test]
    fn what_is_wrong_decides_before_what_is_not_known() {
        let check = |state| Check { name: "x", state, message: String::new(), hint: None };
        let exit =
            |states: &[State]| exit_of(&states.iter().map(|s| check(*s)).collect::<Vec<_>>());
        assert_eq!(exit(&[State::Fine, State::Note]), 0);
        assert_eq!(exit(&[State::Unknown, State::Fine]), 2);
        assert_eq!(exit(&[State::Unknown, State::Problem]), 1);
    }
}

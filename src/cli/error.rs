//! The one shape of an error at the edge: code, message, hint, and how it is reported.
//!
//! Contract: as text one or two lines a problem on stderr; with `--json` one object on stderr and nothing on
//! stdout. The exit code is that of the first problem. A closed pipe is no error: nobody is left to tell.

use super::text::{ago, json_line, shown, wrapped};
use crate::{
    code::Code,
    domain::{
        ids::{PolicyId, SessionId},
        time::Timestamp,
    },
    ledger::{LedgerError, Meant, Problem},
    runtime::{
        collect::CollectError, gate::log::LogError, live::LiveError, perform::PerformError,
        watch::WatchError,
    },
    sys::{clock, files::FileError},
};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use serde_json::{Value, json};
use std::io::{self, Write as _};

/// How git's own commands end when their reader goes away: 128 + SIGPIPE.
const CLOSED_PIPE_EXIT: u8 = 141;

/// What stands for an id in the hint of a code.
const A_POLICY: &str = "POLICY";
const A_SESSION: &str = "SESSION";

/// Why a command did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CliError {
    /// The stable code.
    pub(super) code: Code,
    /// What is wrong, as a fragment.
    pub(super) message: String,
    /// What to do next.
    pub(super) hint: String,
    /// The thing it concerns.
    pub(super) subject: Option<String>,
    /// Every problem, when there are several.
    pub(super) details: Vec<Problem>,
    closed_pipe: bool,
}

impl CliError {
    /// An error with the hint of its code.
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: code.hint().to_owned(),
            subject: None,
            details: vec![],
            closed_pipe: false,
        }
    }

    /// The same with a better hint.
    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The same with the thing it concerns, which the commands of the hint name as well.
    pub(super) fn about(mut self, subject: impl Into<String>) -> Self {
        let subject = subject.into();
        self.hint = named(&self.hint, &subject);
        self.subject = Some(subject);
        self
    }

    /// What the argument parser found: its first line, and its tip as the hint.
    pub(super) fn usage(error: &clap::Error) -> Self {
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Self::no_command(error);
        }
        if error.kind() == ErrorKind::InvalidSubcommand {
            return Self::unknown_command(error);
        }
        let rendered = error.render().to_string();
        let mut lines = rendered.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or("the arguments cannot be understood");
        let message = first.strip_prefix("error: ").unwrap_or(first).trim_end_matches(':');
        let rest: Vec<&str> = lines.collect();
        // What is missing or possible stands on the lines up to the usage.
        let over = |l: &&&str| ["Usage", "tip:", "For more"].iter().any(|end| l.starts_with(end));
        let listed = rest.iter().take_while(|l| !over(l));
        let listed: Vec<&str> = listed.copied().collect();
        let message = if listed.is_empty() {
            message.to_owned()
        } else {
            format!("{message}: {}", listed.join(" "))
        };
        let made = Self::new(Code::Usage, message);
        match rest.iter().find_map(|l| l.strip_prefix("tip: ")) {
            Some(tip) => made.with_hint(tip),
            None => match rest.iter().find_map(|l| l.strip_prefix("Usage: ")) {
                Some(usage) => made.with_hint(format!("usage: {usage}")),
                None => made,
            },
        }
    }

    /// A command group was named without a command of it.
    fn no_command(error: &clap::Error) -> Self {
        let help = error.render().to_string();
        let usage = help.lines().find_map(|line| line.strip_prefix("Usage: "));
        let made = Self::new(Code::Usage, "no command is given");
        match usage {
            Some(usage) => made.with_hint(format!("usage: {usage}")),
            None => made,
        }
    }

    /// A word in the place of a command is none.
    fn unknown_command(error: &clap::Error) -> Self {
        let named = |kind| match error.get(kind) {
            Some(ContextValue::String(one)) => vec![one.clone()],
            Some(ContextValue::Strings(all)) => all.clone(),
            Some(_) | None => vec![],
        };
        let typed = named(ContextKind::InvalidSubcommand).join(" ");
        let near = named(ContextKind::SuggestedSubcommand);
        let near: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
        let rendered = error.render().to_string();
        let usage = rendered.lines().find(|line| line.starts_with("Usage: "));
        let usage = usage.unwrap_or("Usage: git agentproto COMMAND").replace("Usage: ", "usage: ");
        let hint = match near.as_slice() {
            [] => format!("{usage}; the commands: git agentproto help"),
            near => format!("did you mean {}? {usage}", near.join(" or ")),
        };
        Self::new(Code::Usage, format!("'{typed}' is no command")).with_hint(hint)
    }

    /// Standard output could not be written.
    pub(super) fn output(error: &io::Error) -> Self {
        let closed_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        Self { closed_pipe, ..Self::new(Code::Io, format!("cannot write the answer: {error}")) }
    }

    /// Says it on stderr and gives the exit code.
    pub(super) fn report(&self, json: bool, columns: Option<usize>) -> u8 {
        if self.closed_pipe {
            return CLOSED_PIPE_EXIT;
        }
        let text = if json {
            json_line(&self.to_json())
        } else {
            wrapped(&self.with_more(columns).to_text(), columns)
        };
        // When stderr is gone as well, the exit code is all that is left to say it with.
        let _ = io::stderr().lock().write_all(text.as_bytes());
        self.code.exit()
    }

    /// The same with where to read more, for people at a terminal and where the hint has room for it and names no
    /// command itself.
    fn with_more(&self, columns: Option<usize>) -> Self {
        let hint = format!("{} (more: git agentproto help {})", self.hint, self.code);
        let fits = columns.is_some_and(|columns| "hint: ".len() + hint.chars().count() <= columns);
        let is_simple = self.code != Code::Usage && self.details.len() < 2 && !names_command(self);
        if fits && is_simple { self.clone().with_hint(hint) } else { self.clone() }
    }

    /// The lines for people.
    pub(super) fn to_text(&self) -> String {
        if self.details.len() < 2 {
            return problem_lines(&self.message, self.code, &self.hint);
        }
        let mut text = String::new();
        for problem in &self.details {
            // Each sentence names its thing; the field is for programs.
            text.push_str(&problem_lines(&problem.why, problem.code, hint_of(problem)));
        }
        text
    }

    /// The object for programs.
    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({
            "code": self.code.as_str(),
            "message": self.message,
            "hint": self.hint,
        });
        if let Some(subject) = &self.subject {
            error["subject"] = subject.as_str().into();
        }
        if self.details.len() > 1 {
            error["details"] = self.details.iter().map(detail).collect();
        }
        json!({ "schema": "agentproto/error/1", "error": error })
    }
}

/// A hint whose commands name the thing itself, where that is a policy or a session.
fn named(hint: &str, subject: &str) -> String {
    if subject.parse::<PolicyId>().is_ok() {
        return hint.replace(A_POLICY, subject);
    }
    if subject.parse::<SessionId>().is_ok() {
        return hint.replace(A_SESSION, subject);
    }
    hint.to_owned()
}

fn names_command(error: &CliError) -> bool {
    error.hint.contains("git ")
}

fn problem_lines(message: &str, code: Code, hint: &str) -> String {
    format!("error: {} [{code}]\nhint: {}\n", shown(message), shown(hint))
}

fn hint_of(problem: &Problem) -> &str {
    problem.hint.as_deref().unwrap_or_else(|| problem.code.hint())
}

fn detail(problem: &Problem) -> Value {
    json!({
        "code": problem.code.as_str(),
        "field": problem.field,
        "message": problem.why,
        "hint": hint_of(problem),
    })
}

impl From<LedgerError> for CliError {
    fn from(error: LedgerError) -> Self {
        let made = Self::new(error.code(), error.to_string());
        match error {
            LedgerError::Refused(refusal) => made.about(refusal.subject),
            LedgerError::Problems(details) => match details.first().cloned() {
                Some(first) => Self {
                    hint: hint_of(&first).to_owned(),
                    subject: Some(first.field),
                    details,
                    ..made
                },
                None => made,
            },
            LedgerError::Ambiguous { label, meant } => {
                let message = format!("{}: {}", made.message, candidates(&meant, clock::now()));
                Self { message, ..made }.about(label)
            }
            LedgerError::Open(_)
            | LedgerError::Store(_)
            | LedgerError::Trust(_)
            | LedgerError::Worktree(_)
            | LedgerError::Illegal(_)
            | LedgerError::Message { .. }
            | LedgerError::Unwritable(_)
            | LedgerError::Document { .. }
            | LedgerError::Corrupt(_) => made,
        }
    }
}

/// Each thing a label could mean: id, state and age.
fn candidates(meant: &[Meant], now: Timestamp) -> String {
    let one = |m: &Meant| format!("{} ({}, {})", m.entity, m.state, ago(m.since, now));
    meant.iter().map(one).collect::<Vec<_>>().join(", ")
}

macro_rules! from_coded {
    ($($error:ty),*) => {$(
        impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                Self::new(error.code(), error.to_string())
            }
        }
    )*};
}

from_coded!(PerformError, WatchError, CollectError, LiveError, LogError, FileError);

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(code: Code, field: &str) -> Problem {
        Problem { code, field: field.into(), why: "it does not do".into(), hint: None }
    }

    #[test]
    fn a_single_error_is_two_lines_and_hides_no_escape() {
        let error = CliError::new(Code::NoSuchPolicy, "a\u{1b}[31mb").with_hint("look\nagain");
        assert_eq!(error.to_text(), "error: a\\x1b[31mb [no-such-policy]\nhint: look\\nagain\n");
    }

    #[test]
    fn several_problems_are_all_told_and_the_first_gives_the_code() {
        let all = vec![problem(Code::NoPaths, "--path"), problem(Code::GateRequired, "gates")];
        let error = CliError::from(LedgerError::Problems(all));
        assert_eq!(error.code.exit(), 129);
        assert_eq!(
            error.to_text(),
            "error: it does not do [no-paths]\n\
             hint: name the files to commit with --path\n\
             error: it does not do [gate-required]\n\
             hint: name a gate after --, or say --ungated\n"
        );
        let told = error.to_json();
        assert_eq!(told["schema"], "agentproto/error/1");
        assert_eq!(told["error"]["code"], "no-paths");
        assert_eq!(told["error"]["details"][1]["code"], "gate-required");
    }

    #[test]
    fn a_hint_names_the_thing_it_concerns() {
        let id = "pol_01arz3ndektsv4rrffq69g5fav";
        let hint = |code, subject: &str| CliError::new(code, "no").about(subject).hint;
        let shows = format!("see where it stands: git agentproto policy show {id}");
        assert_eq!(hint(Code::NotAwaiting, id), shows);
        assert!(hint(Code::NotAwaiting, "nightly").ends_with(" show POLICY"));
        let id = "ses_01arz3ndektsv4rrffq69g5fav";
        assert!(hint(Code::NoSuchRequest, id).ends_with(&format!(" session show {id}")));
    }

    #[test]
    fn where_to_read_more_is_said_where_there_is_room() {
        let text = |error: &CliError, columns| error.with_more(columns).to_text();
        let error = CliError::new(Code::NoSuchCwd, "no");
        let more = "hint: look again (more: git agentproto help no-such-cwd)\n";
        let short = error.clone().with_hint("look again");
        assert_eq!(text(&short, Some(80)), format!("error: no [no-such-cwd]\n{more}"));
        assert_eq!(text(&short, Some(more.len() - 1)), text(&short, Some(80)));
        for columns in [None, Some(more.len() - 2)] {
            assert_eq!(text(&short, columns), "error: no [no-such-cwd]\nhint: look again\n");
        }
        let command = error.with_hint("git init makes one");
        assert_eq!(text(&command, Some(200)), command.to_text());
    }

    #[test]
    fn a_closed_pipe_is_not_told() {
        let broken = CliError::output(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(broken.report(false, None), 141);
        let full = CliError::output(&io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.code, Code::Io);
        assert!(!full.closed_pipe, "a full device has to be told");
    }
}

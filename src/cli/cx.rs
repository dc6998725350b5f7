//! What every command is given: the environment, the streams, and whether people or programs read.

use super::{
    error::CliError,
    text::{self, Paint, shown},
};
use crate::{
    code::Code,
    ledger::Ledger,
    store::Said,
    sys::{env::Env, files},
};
use serde_json::Value;
use std::{
    cell::RefCell,
    io::{self, BufRead as _, IsTerminal as _, Write as _},
    path::Path,
};

/// Set in everything that a supervised session starts.
const SESSION_VARIABLE: &str = "AGENTPROTO_SESSION_ID";

/// Who records what a command of this program does (decisions 12).
const ACTOR: &str = "cli";

/// The surroundings of one command.
pub(super) struct Cx {
    /// Environment and current directory.
    pub(super) env: Env,
    /// Programs read the answer.
    pub(super) json: bool,
    /// Colours for stdout; none in a pipe.
    pub(super) paint: Paint,
    /// Columns of the terminal that stdout is; none in a pipe, where nothing is cut.
    pub(super) columns: Option<usize>,
    /// What the store has to tell beside the answer of the command.
    said: RefCell<Vec<Said>>,
    /// What programs hear once it is known that no error comes, which stays alone on stderr.
    held_back: RefCell<Vec<String>>,
}

impl Cx {
    pub(super) fn new(env: Env, json: bool) -> Self {
        let terminal = io::stdout().is_terminal() && !json;
        let plain = env.get("NO_COLOR").is_some_and(|v| !v.is_empty())
            || env.text("TERM").is_none_or(|t| t == "dumb");
        let paint = Paint { on: terminal && !plain };
        let columns = terminal.then(|| text::columns(&env));
        Self { env, json, paint, columns, said: RefCell::default(), held_back: RefCell::default() }
    }

    /// Opens the repository of the current directory.
    pub(super) fn ledger(&self) -> Result<Ledger, CliError> {
        let ledger = Ledger::open(&self.env, ACTOR)?;
        self.said.borrow_mut().push(ledger.store().said());
        Ok(ledger)
    }

    /// The same as it is, whatever is wrong with its journal.
    pub(super) fn ledger_as_it_is(&self) -> Result<Ledger, CliError> {
        let ledger = Ledger::open_as_it_is(&self.env, ACTOR)?;
        self.said.borrow_mut().push(ledger.store().said());
        Ok(ledger)
    }

    /// The same for a look that changes nothing.
    pub(super) fn ledger_to_look(&self) -> Result<Ledger, CliError> {
        let ledger = Ledger::open_to_look(&self.env, ACTOR)?;
        self.said.borrow_mut().push(ledger.store().said());
        Ok(ledger)
    }

    /// Warns of something that was found before the answer is made: people at once, programs with the answer.
    pub(super) fn warn(&self, line: String) {
        if self.json { self.held_back.borrow_mut().push(line) } else { self.say(&line) }
    }

    /// Says what was found, and what the store had to tell, while the command ran.
    pub(super) fn say_what_was_found(&self) {
        self.held_back.take().iter().for_each(|line| self.say(line));
        for said in self.said.borrow().iter() {
            said.take().iter().for_each(|line| self.say(line));
        }
    }

    /// Writes text to stdout as it is, all of it or an error.
    pub(super) fn out(&self, text: &str) -> Result<(), CliError> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        written.map_err(|e| CliError::output(&e))
    }

    /// Writes one JSON value as one line to stdout.
    pub(super) fn line(&self, value: &Value) -> Result<(), CliError> {
        self.out(&text::json_line(value))
    }

    /// Answers: the object for programs, the text for people.
    pub(super) fn answer(&self, value: &Value, text: &str) -> Result<(), CliError> {
        if self.json { self.line(value) } else { self.out(&text::wrapped(text, self.columns)) }
    }

    /// Narrates one line on stderr, for people only.
    pub(super) fn note(&self, line: &str) {
        if !self.json {
            self.say(line);
        }
    }

    /// Says one line on stderr to people and programs alike.
    pub(super) fn say(&self, line: &str) {
        // Narration nobody can read is not worth a failure.
        let line = text::wrapped(&shown(line), text::columns_of_stderr(&self.env));
        let _ = writeln!(io::stderr().lock(), "{line}");
    }

    /// Shows something on the terminal that a question follows; not an answer, so never on stdout.
    pub(super) fn screen(&self, text: &str) -> Result<(), CliError> {
        let shown = io::stderr().lock().write_all(text.as_bytes());
        shown.map_err(|e| CliError::output(&e))
    }

    /// True when a person sits in front of it: questions can be asked and answered.
    pub(super) fn is_interactive(&self) -> bool {
        !self.json && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a question on the terminal; anything but a clear yes is no.
    pub(super) fn confirm(&self, question: &str) -> Result<bool, CliError> {
        Ok(is_yes(&self.ask(&format!("{question} [y/N]"))?))
    }

    /// Asks a question on the terminal and gives back the line that was typed; the end of input is an empty one.
    pub(super) fn ask(&self, question: &str) -> Result<String, CliError> {
        let asked = write!(io::stderr().lock(), "{} ", shown(question));
        asked.map_err(|e| CliError::output(&e))?;
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        read.map_err(|e| CliError::new(Code::Io, format!("cannot read the answer: {e}")))?;
        Ok(line.trim().to_owned())
    }

    /// The session this command runs inside of, by the only test of this version (decisions 6).
    pub(super) fn inside_session(&self) -> Option<&str> {
        // Set but unreadable or empty counts as inside: the rule is never loosened by an odd value.
        self.env.get(SESSION_VARIABLE).map(|id| id.to_str().unwrap_or(""))
    }

    /// Refuses what only a person may do when called from inside a session.
    pub(super) fn require_person(&self, code: Code, what: &str) -> Result<(), CliError> {
        match self.inside_session() {
            None => Ok(()),
            Some(session) => {
                let message = format!(
                    "{what} is for a person, outside the session ({SESSION_VARIABLE} is set here)"
                );
                Err(CliError::new(code, message).about(session))
            }
        }
    }
}

/// A clear yes, and nothing else.
pub(super) fn is_yes(typed: &str) -> bool {
    matches!(typed, "y" | "Y" | "yes" | "Yes" | "YES")
}

/// The environment seen from another directory, which has to be one.
pub(super) fn moved_to(env: &Env, dir: &Path) -> Result<Env, CliError> {
    let target = env.cwd().join(dir);
    let why = match files::real(&target).and_then(|real| files::is_dir(&real)) {
        Ok(true) => return Ok(env.at(target)),
        Ok(false) => "it is no directory".to_owned(),
        Err(e) => e.source.to_string(),
    };
    let message = format!("cannot change to '{}': {why}", dir.display());
    Err(CliError::new(Code::NotARepository, message).with_hint("name a directory after -C"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn cx(vars: &[(&str, &str)]) -> Cx {
        let vars = vars.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
        Cx::new(Env::fixed("/".into(), vars), true)
    }

    #[test]
    fn a_session_id_however_odd_makes_it_no_person() {
        for value in ["ses_01arz3ndektsv4rrffq69g5fav", "", "x"] {
            let inside = cx(&[("AGENTPROTO_SESSION_ID", value)]);
            let refused = inside.require_person(Code::PersonOnly, "trust").unwrap_err();
            assert_eq!(refused.code, Code::PersonOnly);
        }
        assert_eq!(cx(&[]).require_person(Code::PersonOnly, "trust"), Ok(()));
    }

    #[test]
    fn a_directory_to_run_in_has_to_be_one() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env::fixed(dir.path().to_owned(), []);
        assert_eq!(moved_to(&env, Path::new(".")).unwrap().cwd(), dir.path().join("."));
        let missing = moved_to(&env, Path::new("gone")).unwrap_err();
        assert_eq!(missing.code.exit(), 128);
    }
}

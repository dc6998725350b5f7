//! Talking to one `git update-ref --stdin`, transaction after transaction.
//!
//! Contract: hooks never run. git locks and compares at [`RefTalk::prepare`] and changes refs at
//! [`RefTalk::commit`] alone. When the talk is dropped in between, or this process dies, its end of the pipe
//! closes: git takes its promise back, and its locks with it.

use super::{Git, GitError, failed, shown};
use crate::{
    domain::oid::Oid,
    sys::spawn::{Dialogue, Done},
};

/// git answers each of `start` and `prepare` with one line, and `commit` with another.
const LINES_PROMISED: usize = 2;
const LINES_DONE: usize = 3;

/// A git that changes refs when it is told to.
#[derive(Debug)]
pub struct RefTalk {
    talk: Dialogue,
    argv: Vec<String>,
}

impl RefTalk {
    pub(super) fn start(git: &Git, settings: &[&str], more: &[&str]) -> Result<Self, GitError> {
        let always = ["core.hooksPath=/dev/null", "core.fsync=reference"];
        let settings = always.iter().chain(settings).flat_map(|s| ["-c", *s]);
        let args: Vec<&str> =
            settings.chain(["update-ref"]).chain(more.iter().copied()).chain(["--stdin"]).collect();
        let argv = shown(&args);
        let call = git.call_of(&args, b"", git.plumbing_env(&[]));
        match Dialogue::start(&call) {
            Ok(talk) => Ok(Self { talk, argv }),
            Err(source) => Err(GitError::Spawn { argv, source }),
        }
    }

    /// Asks for these changes (lines as `update-ref --stdin` takes them). False when git ended instead of
    /// promising them.
    ///
    /// # Errors
    /// No answer came in time.
    pub fn prepare(&mut self, changes: &str) -> Result<bool, GitError> {
        self.talk.renew();
        self.say(&format!("start\n{changes}prepare\n"), LINES_PROMISED)
    }

    /// Has what was promised done. False when git ended without saying so.
    ///
    /// # Errors
    /// No answer came in time.
    pub fn commit(&mut self) -> Result<bool, GitError> {
        self.say("commit\n", LINES_DONE)
    }

    /// True when git said nothing at all to what it was asked last.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.talk.is_silent()
    }

    /// Waits for the end of a talk that broke off, and says how that was.
    pub fn broken_off(self) -> GitError {
        let argv = self.argv;
        match self.talk.finish() {
            Ok(done) => failed(&argv, &done),
            Err(source) => GitError::Spawn { argv, source },
        }
    }

    /// Ends git as somebody else may.
    #[cfg(test)]
    pub(crate) fn end(&mut self) {
        self.talk.end();
    }

    /// Says nothing more and waits for the end.
    fn hang_up(self) -> Result<(), GitError> {
        let argv = self.argv;
        let done: Done =
            self.talk.finish().map_err(|source| GitError::Spawn { argv: argv.clone(), source })?;
        if done.status.success() { Ok(()) } else { Err(failed(&argv, &done)) }
    }

    fn say(&mut self, text: &str, lines: usize) -> Result<bool, GitError> {
        let said = self.talk.say(text, lines);
        said.map_err(|source| GitError::Spawn { argv: self.argv.clone(), source })
    }
}

/// A move of one ref.
#[derive(Clone, Copy, Debug)]
pub struct RefChange<'a> {
    /// Full name; `HEAD` is that of the worktree itself, wherever it leads.
    pub name: &'a str,
    /// Where it goes.
    pub new: Oid,
    /// Where it must be.
    pub old: Oid,
    /// What the reflogs say, that of `HEAD` too where it follows the ref.
    pub reflog: &'a str,
}

/// A ref that git holds locked, ready to move.
#[derive(Debug)]
pub struct PreparedRef {
    pub(super) talk: RefTalk,
}

impl PreparedRef {
    /// Moves it.
    ///
    /// # Errors
    /// git says that it did not; or nothing can be said: look at the ref.
    pub fn commit(mut self) -> Result<(), GitError> {
        self.talk.commit()?;
        self.talk.hang_up()
    }
}

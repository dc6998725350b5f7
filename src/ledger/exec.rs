//! `exec`: what a command that a session runs is, by the rules of gates.
//!
//! Contract: the same allowlist, the same fixed `PATH` and the same judgement as for a gate; only of a session that is
//! not over, in its own worktree.

use super::{Ledger, LedgerError};
use crate::{code::Code, domain::ids::SessionId, store::Worktree};
use std::path::PathBuf;

/// A command that may run.
#[derive(Clone, Debug)]
pub struct Runnable {
    /// The file it starts.
    pub program: PathBuf,
    /// Where it runs.
    pub worktree: Worktree,
}

impl Ledger {
    /// The program of a command in a session's worktree.
    ///
    /// # Errors
    /// The session is unknown or over, its worktree is gone, the command is not allowed or not there.
    pub fn runnable(&self, id: &SessionId, argv: &[String]) -> Result<Runnable, LedgerError> {
        let session = self.require_session(id)?;
        if session.is_exited() {
            return Err(LedgerError::refused(Code::Terminal, id.as_str(), "the session is over"));
        }
        let worktree = self.worktree(&session.worktree)?.ok_or_else(|| {
            let because = format!("its worktree '{}' is gone", session.worktree);
            LedgerError::refused(Code::NoSuchCwd, id.as_str(), because)
        })?;
        let rules = self.gate_rules(&worktree, &self.trust()?)?;
        let found = rules.find(argv, &worktree, "command");
        let (program, _) = found.map_err(|problem| LedgerError::Problems(vec![problem]))?;
        Ok(Runnable { program, worktree })
    }
}

//! How performing fails.

use crate::{
    code::Code,
    ledger::LedgerError,
    runtime::{gate::log::LogError, live::LiveError, runner::RunnerError, watch::WatchError},
    store::{StoreError, git::GitError, landing::LandError, worktree_state::StateError},
    sys::spawn::SpawnError,
};

/// An effect could not be done to its end. It stays due.
#[derive(Debug, thiserror::Error)]
pub enum PerformError {
    /// Journal or rules.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Objects, refs or notes.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The state of a worktree.
    #[error(transparent)]
    Worktree(#[from] StateError),
    /// The live file of the effect.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The runner.
    #[error(transparent)]
    Runner(#[from] RunnerError),
    /// The kept output.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The user's git.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The landing.
    #[error(transparent)]
    Land(#[from] LandError),
    /// A process of ours.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Waiting.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// This program cannot find itself.
    #[error("cannot find this program's own file: {0}")]
    OwnProgram(std::io::Error),
}

impl PerformError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Ledger(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::Worktree(e) => e.code(),
            Self::Live(e) => e.code(),
            Self::Runner(e) => e.code(),
            Self::Log(e) => e.code(),
            Self::Git(e) => e.code(),
            Self::Land(e) => e.code(),
            Self::Watch(e) => e.code(),
            Self::Spawn(_) | Self::OwnProgram(_) => Code::Io,
        }
    }
}

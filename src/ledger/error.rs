//! How the ledger fails.

use super::query::Meant;
use crate::{
    code::Code,
    domain::oid::Oid,
    engine::{Illegal, Refusal},
    store::{StoreError, location::OpenError, trusted::TrustedError, worktree_state::StateError},
    wire::{document::BadDocument, message::BadMessage},
};

/// A problem of one field of what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// The field or thing it concerns.
    pub field: String,
    /// Why, in one sentence.
    pub why: String,
    /// What to do, where it is more exact than the code's own hint.
    pub hint: Option<String>,
}

/// What was asked could not be done; nothing was recorded unless the message says so.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The repository cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Trusted ref or user settings cannot be told.
    #[error(transparent)]
    Trust(#[from] TrustedError),
    /// The state of a worktree cannot be told.
    #[error(transparent)]
    Worktree(#[from] StateError),
    /// A rule is in the way.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Several rules are in the way, all of them found before anything was written.
    #[error("{}", .0.first().map_or("refused", |p| p.why.as_str()))]
    Problems(Vec<Problem>),
    /// A label means several living things.
    #[error("the label '{label}' means {} things", meant.len())]
    Ambiguous {
        /// What was typed.
        label: String,
        /// What it could mean.
        meant: Vec<Meant>,
    },
    /// The journal holds an event that this machine would never have written.
    #[error(transparent)]
    Illegal(#[from] Illegal),
    /// A journal message cannot be read.
    #[error("journal entry {id}: {source}")]
    Message {
        /// The entry.
        id: Oid,
        /// Why.
        source: BadMessage,
    },
    /// A journal message cannot be written.
    #[error("the event cannot be written: {0}")]
    Unwritable(BadMessage),
    /// A state document cannot be read or written.
    #[error("{path}: {source}")]
    Document {
        /// Where it lies in the state tree.
        path: String,
        /// Why.
        source: BadDocument,
    },
    /// The journal's own pointers contradict each other.
    #[error("the journal does not hold together: {0}")]
    Corrupt(String),
}

impl LedgerError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Open(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::Trust(e) => e.code(),
            Self::Worktree(e) => e.code(),
            Self::Refused(e) => e.code,
            Self::Problems(all) => all.first().map_or(Code::Internal, |p| p.code),
            Self::Ambiguous { .. } => Code::Ambiguous,
            Self::Illegal(_) | Self::Message { .. } | Self::Corrupt(_) => Code::JournalCorrupt,
            Self::Unwritable(_) => Code::Internal,
            Self::Document { source, .. } => source.code(),
        }
    }

    /// A single refusal.
    #[must_use]
    pub fn refused(code: Code, subject: &str, because: impl Into<String>) -> Self {
        Self::Refused(Refusal { code, subject: subject.to_owned(), because: because.into() })
    }
}

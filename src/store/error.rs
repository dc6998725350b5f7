//! How the store fails.

use super::{git::GitError, location::OpenError, object::HashError, tree::TreeEditError};
use crate::{
    code::Code,
    domain::{ids::WriterId, oid::Oid},
    sys::{files::FileError, lock::LockError},
};
use std::{path::PathBuf, sync::Arc};

/// The store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The repository cannot be worked with.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The operating system refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// The user's git did not do what it was asked.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Another process kept the journal lock.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// What shall be stored has no id.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// An object that must be there is not.
    #[error("object {id} is missing")]
    Missing {
        /// Its id.
        id: Oid,
    },
    /// An object is there and cannot be read.
    #[error("object {id} cannot be read: {reason}")]
    Unreadable {
        /// Its id.
        id: Oid,
        /// Why.
        reason: String,
    },
    /// An object has another type than its place demands.
    #[error("object {id} is no {expected}: {reason}")]
    WrongObject {
        /// Its id.
        id: Oid,
        /// What it should be.
        expected: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A commit of a journal that is no entry of one.
    #[error("object {id} is no journal entry: {reason}")]
    NotAnEntry {
        /// Its id.
        id: Oid,
        /// What is wrong with it.
        reason: String,
    },
    /// The journal was begun by a version whose format this one does not know.
    #[error("the journal has format {found}, this version writes {known}")]
    NewerFormat {
        /// What its first commit says.
        found: u64,
        /// What this version writes.
        known: u64,
    },
    /// A ref is there and holds no object id.
    #[error("ref {name} is broken: {reason}")]
    BrokenRef {
        /// Full name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The refs of the repository, or of one worktree, cannot be told.
    #[error("refs cannot be read: {}: {reason}", path.display())]
    RefsUnreadable {
        /// The file that cannot be understood.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A ref held another value than the one expected.
    #[error("ref {name} is at {}, expected {}", shown(*actual), shown(*expected))]
    RefMoved {
        /// Full name.
        name: String,
        /// What it should have held.
        expected: Option<Oid>,
        /// What it holds.
        actual: Option<Oid>,
    },
    /// Another program kept the lock of a ref.
    #[error("{} was held by another program for {waited_ms} ms", path.display())]
    RefLocked {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited_ms: u64,
    },
    /// A ref of ours is neither behind nor ahead of what we wrote.
    #[error("ref {name} is at {actual}, which is not on one line with our last entry {ours}")]
    Diverged {
        /// Full name.
        name: String,
        /// What it holds.
        actual: Oid,
        /// What we wrote last.
        ours: Oid,
    },
    /// What is asked for was in a segment that is not kept any more.
    #[error(
        "event {seq} is in a segment that is not here any more, what is kept begins at {first}"
    )]
    SegmentDropped {
        /// The number asked for.
        seq: u64,
        /// The first one kept.
        first: u64,
    },
    /// Our journal ends before the event that was noted as its last one.
    #[error(
        "ref {name} was set back: event {seq} ({seen}), noted as its last one, is neither in it nor in the repository; \
         remove {} to give it up",
        note.display()
    )]
    SetBack {
        /// Full name.
        name: String,
        /// Number of the event.
        seq: u64,
        /// Its commit.
        seen: Oid,
        /// The file that notes it.
        note: PathBuf,
    },
    /// Something here tells of a journal of ours, and nothing of that is here.
    #[error("journal {writer} is gone: {witness}")]
    JournalGone {
        /// Whose.
        writer: WriterId,
        /// What tells of it, and how to give it up, as a sentence.
        witness: String,
    },
    /// The write-ahead log does not hold together.
    #[error("{}: {reason}", path.display())]
    CorruptWal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A pack did not read back as it was written.
    #[error("{name} did not read back as it was written")]
    PackDamaged {
        /// Its name, without extension.
        name: String,
    },
    /// The caller's entry does not fit the journal.
    #[error("journal entry refused: {reason}")]
    BadEntry {
        /// What is wrong with it.
        reason: String,
    },
    /// The caller asked for more than one frame or pack holds.
    #[error("{what} has {actual} bytes, at most {limit} fit")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        actual: u64,
        /// The limit.
        limit: u64,
    },
    /// Somebody moved the notes ref at every try.
    #[error("{name} was moved by somebody else {tries} times in a row")]
    NotesContended {
        /// Full name.
        name: String,
        /// How often it was tried.
        tries: u32,
    },
    /// A state or notes tree could not be edited.
    #[error("cannot edit tree: {0}")]
    Tree(String),
    /// The thread decides about an append and asked for the journal lock, which it has.
    #[error("this thread decides about an append and cannot take the journal lock again")]
    Deciding,
    /// What others appended together with this failed, and nothing of it is there.
    #[error(transparent)]
    OfGroup(Arc<Self>),
    /// The thread that wrote the entries for this one ended before it said what came of them.
    #[error("whether the entries were recorded is not known: the thread that wrote them died")]
    Unanswered,
    /// A test stopped the protocol here.
    #[cfg(test)]
    #[error("stopped by a test")]
    Stopped,
}

fn shown(id: Option<Oid>) -> String {
    id.map_or_else(|| "nothing".to_owned(), |id| id.to_string())
}

impl StoreError {
    /// True when something that is stored is missing or not what it should be; false when it could not be looked at.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::WrongObject { .. }
            | Self::NotAnEntry { .. }
            | Self::BrokenRef { .. } => true,
            Self::OfGroup(e) => e.is_damage(),
            Self::Open(_)
            | Self::File(_)
            | Self::Git(_)
            | Self::Lock(_)
            | Self::Hash(_)
            | Self::NewerFormat { .. }
            | Self::RefsUnreadable { .. }
            | Self::Deciding
            | Self::Unanswered
            | Self::RefMoved { .. }
            | Self::RefLocked { .. }
            | Self::Diverged { .. }
            | Self::SetBack { .. }
            | Self::SegmentDropped { .. }
            | Self::JournalGone { .. }
            | Self::CorruptWal { .. }
            | Self::PackDamaged { .. }
            | Self::BadEntry { .. }
            | Self::TooLarge { .. }
            | Self::NotesContended { .. }
            | Self::Tree(_) => false,
            #[cfg(test)]
            Self::Stopped => false,
        }
    }

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Open(e) => e.code(),
            Self::File(e) if e.is_read_only() => Code::ReadOnly,
            Self::File(e) => e.code(),
            Self::Lock(e) => e.code(),
            Self::Git(e) => e.code(),
            Self::RefLocked { .. } => Code::LockTimeout,
            Self::Diverged { .. } | Self::SetBack { .. } => Code::JournalDiverged,
            Self::CorruptWal { .. } | Self::NotAnEntry { .. } | Self::JournalGone { .. } => {
                Code::JournalCorrupt
            }
            Self::NewerFormat { .. } => Code::NewerFormat,
            Self::SegmentDropped { .. } => Code::SegmentDropped,
            Self::TooLarge { .. } => Code::TooMany,
            Self::NotesContended { .. } => Code::NotesContended,
            Self::OfGroup(e) => e.code(),
            Self::BadEntry { .. } | Self::Deciding | Self::Unanswered => Code::Internal,
            Self::Hash(_)
            | Self::Missing { .. }
            | Self::Unreadable { .. }
            | Self::WrongObject { .. }
            | Self::BrokenRef { .. }
            | Self::RefsUnreadable { .. }
            | Self::RefMoved { .. }
            | Self::PackDamaged { .. }
            | Self::Tree(_) => Code::StoreUnusable,
            #[cfg(test)]
            Self::Stopped => Code::Internal,
        }
    }
}

impl From<TreeEditError<Self>> for StoreError {
    fn from(error: TreeEditError<Self>) -> Self {
        match error {
            TreeEditError::Load(e) => e,
            TreeEditError::Hash(e) => Self::Hash(e),
            other @ (TreeEditError::Malformed { .. }
            | TreeEditError::OtherHash { .. }
            | TreeEditError::BadPath { .. }
            | TreeEditError::Conflict { .. }) => Self::Tree(other.to_string()),
        }
    }
}

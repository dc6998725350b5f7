//! Positions in a journal.

use super::{ids::WriterId, oid::Oid, time::Timestamp};

/// Where a reader starts: after which event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Since {
    /// After the event with this journal commit id.
    Commit(Oid),
    /// After event `seq` of this writer (`<writer>@<seq>`).
    WriterSeq(WriterId, u64),
    /// After event number `seq` of this clone's own journal.
    Seq(u64),
    /// After everything that happened up to this instant.
    Time(Timestamp),
    /// After the last event there is now.
    Tip,
}

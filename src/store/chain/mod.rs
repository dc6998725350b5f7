//! The journal as a chain of commits: building entries, appending them alone or in groups, segments, seeking, whose it is.
//!
//! Contract: what was answered is durable, numbers have no gap and no repeat, and reading appends nothing.

pub(super) mod batch;
pub(super) mod building;
pub(super) mod commit;
pub(super) mod group;
pub mod journal;
pub(super) mod line;
pub(super) mod locking;
pub(super) mod notes;
pub(super) mod place;
pub mod reading;
pub(super) mod seek;
pub mod segments;
pub(super) mod state;
pub(super) mod writer;

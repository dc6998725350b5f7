//! The write-ahead log: its frames, its two files that take turns, and what a damaged one still holds.
//!
//! Nothing here knows of git. One frame and one `fdatasync` make entries durable; everything else is a view of them.

pub(super) mod log_content;
pub(super) mod salvage;
pub(super) mod wal;
pub(super) mod wal_file;
pub(super) mod wal_frame;

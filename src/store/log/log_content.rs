//! What one file of a write-ahead log says, for somebody who looks at the file by itself: no repository, no lock, no change.

use crate::domain::oid::HashKind;
use crate::store::{
    error::StoreError,
    wal_file::{LogFile, Tail},
};
use std::path::Path;

/// What a log file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogContent {
    /// Number of the last journal entry once all frames are in.
    pub seq: u64,
    /// Frames since the last checkpoint.
    pub frames: usize,
    /// Every frame is byte for byte what this version would write for what it says.
    pub is_as_written: bool,
}

/// Reads the log file of a repository of this hash to its end; none when there is no such file. Nothing is written:
/// a torn last frame stays where it is.
///
/// # Errors
/// The file cannot be read, has no valid head, or its frames do not hold together.
pub fn read_log(path: &Path, hash: HashKind) -> Result<Option<LogContent>, StoreError> {
    let Some(mut file) = LogFile::open(path, hash)? else { return Ok(None) };
    file.catch_up(Tail::MayBeTorn)?;
    let is_as_written = file.is_as_written()?;
    Ok(Some(LogContent { seq: file.seq(), frames: file.frame_count(), is_as_written }))
}

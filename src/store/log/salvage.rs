//! What a damaged file of the log still holds.
//!
//! Contract: nothing is written, and no more is held than a frame and a piece of the file. So far behind the last
//! frame as no write of ours reaches the search ends, and so it does where too much looks like frames and is none: that
//! is said, for what lies behind is not known.

use crate::store::{
    error::StoreError,
    wal_file::{ALIGN, START},
    wal_frame::{self, Frame, HEADER_BYTES, Header},
};
use crate::{domain::oid::HashKind, limits, sys::files::Log};
use std::path::Path;

/// Bytes that are read at once, at least.
const PIECE_BYTES: usize = 4 * 1024 * 1024;

/// What was found in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store) struct Salvaged {
    /// Every frame that its own checksum proves, whatever else is damaged, with its epoch; in order.
    pub(in crate::store) frames: Vec<(u32, Frame)>,
    /// Where the search ended, bytes; none when it came to the end.
    pub(in crate::store) ended_at: Option<u64>,
}

/// Looks through a file of the log; one that is not there holds nothing.
pub(in crate::store) fn salvaged(path: &Path, hash: HashKind) -> Result<Salvaged, StoreError> {
    let Some(file) = Log::open(path)? else { return Ok(Salvaged::default()) };
    let size = file.size_bytes()?;
    let mut pieces = Pieces { file, size, pos: 0, bytes: Vec::new() };
    let mut found = Salvaged::default();
    let (mut at, mut searched_to) = (START, START.saturating_add(limits::WAL_SEARCH_BYTES));
    let mut in_vain_bytes = limits::WAL_SEARCH_BYTES;
    while let Some(header) = pieces.get(at, HEADER_BYTES)?.map(Header::read) {
        let payload = match header {
            Some(header) => pieces.payload(at, header)?,
            None => None,
        };
        let fits = header.zip(payload).filter(|(header, payload)| header.fits(payload));
        let frame =
            fits.and_then(|(header, payload)| Some((header, wal_frame::decode(payload, hash)?)));
        if let Some((header, frame)) = frame {
            at += header.frame_bytes();
            searched_to = at.saturating_add(limits::WAL_SEARCH_BYTES);
            found.frames.push((header.epoch, frame));
            continue;
        }
        let claimed = header.zip(payload).map_or(0, |(header, _)| header.length.into());
        let left_bytes = in_vain_bytes.checked_sub(claimed);
        at += ALIGN as u64;
        match left_bytes.filter(|_| at < searched_to) {
            Some(left_bytes) => in_vain_bytes = left_bytes,
            None => {
                found.ended_at = Some(at);
                break;
            }
        }
    }
    Ok(found)
}

/// A file, read piece by piece.
struct Pieces {
    file: Log,
    size: u64,
    /// Where the piece begins that is held.
    pos: u64,
    bytes: Vec<u8>,
}

impl Pieces {
    /// None where the file ends before.
    fn get(&mut self, at: u64, length: usize) -> Result<Option<&[u8]>, StoreError> {
        let left = usize::try_from(self.size.saturating_sub(at)).unwrap_or(usize::MAX);
        if left < length {
            return Ok(None);
        }
        let within = |pos: u64, held: usize| {
            let from = usize::try_from(at.checked_sub(pos)?).ok()?;
            Some(from..from.checked_add(length).filter(|end| *end <= held)?)
        };
        if within(self.pos, self.bytes.len()).is_none() {
            self.bytes.resize(length.max(PIECE_BYTES).min(left), 0);
            self.pos = at;
            if !self.file.read_at(&mut self.bytes, at)? {
                self.bytes.clear();
                return Ok(None);
            }
        }
        Ok(within(self.pos, self.bytes.len()).and_then(|range| self.bytes.get(range)))
    }

    fn payload(&mut self, at: u64, header: Header) -> Result<Option<&[u8]>, StoreError> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        self.get(at + HEADER_BYTES as u64, length)
    }
}

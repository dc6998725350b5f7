//! Output of a program in bounded memory: the head, the tail, and how much was between.
//!
//! Contract: bytes are kept as they came, never decoded; `total` counts every byte, those too that were
//! dropped; at most [`limits::OUTPUT_HEAD_BYTES`] and [`limits::OUTPUT_TAIL_BYTES`] are held.

use super::message::Raw;
use crate::{limits, runtime::output::Ring};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

const CHUNK_BYTES: usize = 64 * 1024;

/// What is kept of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Captured {
    /// The first bytes.
    pub head: Vec<u8>,
    /// The last bytes of what did not fit into the head.
    pub tail: Vec<u8>,
    /// Bytes dropped between head and tail.
    pub omitted: u64,
    /// All bytes the program wrote.
    pub total: u64,
}

#[derive(Serialize, Deserialize)]
struct Wire {
    head: Raw,
    tail: Raw,
    omitted: u64,
    total: u64,
}

impl From<Captured> for Wire {
    fn from(c: Captured) -> Self {
        Self { head: Raw(c.head), tail: Raw(c.tail), omitted: c.omitted, total: c.total }
    }
}

impl From<Wire> for Captured {
    fn from(w: Wire) -> Self {
        Self { head: w.head.0, tail: w.tail.0, omitted: w.omitted, total: w.total }
    }
}

/// One stream of a running program.
pub(super) struct Stream {
    pipe: Option<File>,
    chunk: Vec<u8>,
    kept: Keeper,
}

impl Stream {
    /// Takes over the reading end of a pipe, without waiting from now on.
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        let chunk = vec![0; CHUNK_BYTES];
        Ok(Self { pipe: Some(File::from(pipe)), chunk, kept: Keeper::default() })
    }

    /// What to poll; `None` after the end of the stream.
    pub(super) fn waiting(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(File::as_fd)
    }

    /// Reads once, and passes it on; the number of bytes, 0 when there is nothing now or never again.
    pub(super) fn read(&mut self, ring: &mut Option<Ring>) -> io::Result<usize> {
        let Some(pipe) = &mut self.pipe else { return Ok(0) };
        match pipe.read(&mut self.chunk) {
            Ok(0) => {
                self.pipe = None;
                Ok(0)
            }
            Ok(count) => {
                self.kept.add(&self.chunk[..count]);
                pass_on(ring, &self.chunk[..count]);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Reads what is in the pipe and closes it. Bounded, since a descriptor can have been passed to a
    /// process outside the tree that goes on writing.
    pub(super) fn finish(mut self, ring: &mut Option<Ring>) -> io::Result<Captured> {
        let mut left = limits::OUTPUT_DRAIN_BYTES;
        while left > 0 {
            match self.read(ring)? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok(self.kept.finish())
    }
}

/// A full disk ends no agent: from then on its output is kept in memory alone.
fn pass_on(ring: &mut Option<Ring>, bytes: &[u8]) {
    if ring.as_mut().is_some_and(|ring| ring.append(bytes).is_err()) {
        *ring = None;
    }
}

#[derive(Default)]
struct Keeper {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    omitted: u64,
}

impl Keeper {
    fn add(&mut self, bytes: &[u8]) {
        self.total = self.total.saturating_add(len(bytes));
        let room = limits::OUTPUT_HEAD_BYTES - self.head.len();
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(first);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(limits::OUTPUT_TAIL_BYTES);
        self.omitted = self.omitted.saturating_add(u64::try_from(excess).unwrap_or(u64::MAX));
        self.tail.drain(..excess);
    }

    fn finish(self) -> Captured {
        Captured {
            head: self.head,
            tail: self.tail.into(),
            omitted: self.omitted,
            total: self.total,
        }
    }
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_both_ends_and_counts_the_middle() {
        let mut keeper = Keeper::default();
        let bytes: Vec<u8> = (0..1_000_003_u32).map(|n| n.to_le_bytes()[0]).collect();
        for chunk in bytes.chunks(4093) {
            keeper.add(chunk);
        }
        let kept = keeper.finish();
        assert_eq!(kept.head, bytes[..limits::OUTPUT_HEAD_BYTES]);
        assert_eq!(kept.tail, bytes[bytes.len() - limits::OUTPUT_TAIL_BYTES..]);
        assert_eq!(kept.total, 1_000_003);
        let held = limits::OUTPUT_HEAD_BYTES + limits::OUTPUT_TAIL_BYTES;
        assert_eq!(kept.omitted, 1_000_003 - u64::try_from(held).unwrap());
    }

    #[test]
    fn short_output_is_head_only() {
        let mut keeper = Keeper::default();
        keeper.add(b"one ");
        keeper.add(b"two");
        let kept = keeper.finish();
        assert_eq!((kept.head.as_slice(), kept.tail.len()), (&b"one two"[..], 0));
        assert_eq!((kept.total, kept.omitted), (7, 0));
    }
}

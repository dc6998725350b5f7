//! One table of the reftable format (versions 1 and 2), read where it lies.
//!
//! Contract: reads only what a question needs: the footer, blocks of the index, one block of refs. Whatever
//! is not as the format says is an error, never a missing ref. Logs and the index by object are not looked
//! at.
//!
//! A table is blocks of records in the order of their names, then a footer. A block is its type, its length
//! (in the first block of the file counted from the start of the file), records, and the places of records
//! whose names stand whole. Names of the others go on from the name before.

use super::Stored;
use crate::{
    domain::oid::{HashKind, Oid},
    store::error::StoreError,
    sys::files::Slots,
};
use std::path::{Path, PathBuf};

const MAGIC: &[u8] = b"REFT";
/// Header and footer of the two versions, bytes.
const SIZES: [(u8, usize, usize); 2] = [(1, 24, 68), (2, 28, 72)];
/// Type and length before the records of a block, bytes.
const BLOCK_HEAD: usize = 4;
/// Read at once where the table names no block size, bytes.
const GUESSED_BLOCK: usize = 4096;
/// Levels of an index: more than any table that fits on a disk has.
const INDEX_DEPTH: u32 = 16;
const REFS: u8 = b'r';
const INDEX: u8 = b'i';

/// What a table says about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It holds this.
    Stored(Stored),
    /// It was deleted.
    Deleted,
}

/// An open table.
pub(super) struct Table {
    path: PathBuf,
    file: Slots,
    /// Where the footer begins.
    end: u64,
    head: usize,
    block_size: usize,
    hash: HashKind,
    /// Where the index of refs begins; none when there is none.
    index: Option<u64>,
}

impl Table {
    /// Opens a table; none when there is no such file.
    ///
    /// # Errors
    /// It cannot be read or is no table of a known version for this hash.
    pub(super) fn open(path: PathBuf, hash: HashKind) -> Result<Option<Self>, StoreError> {
        let Some(file) = Slots::open(&path)? else { return Ok(None) };
        let size = file.size_bytes()?;
        let bad = |reason: &str| unreadable(&path, reason);
        let start = file.read_at(0, 5)?;
        let [m @ .., version] = start.as_slice() else { return Err(bad("it is cut off")) };
        if m != MAGIC {
            return Err(bad("it is no reftable"));
        }
        let known = SIZES.iter().find(|(v, _, _)| v == version);
        let (_, head, foot) = *known.ok_or_else(|| bad("its version is not known"))?;
        let end = size.checked_sub(foot as u64).filter(|end| *end >= head as u64);
        let end = end.ok_or_else(|| bad("it is cut off"))?;
        let (header, footer) = (file.read_at(0, head)?, file.read_at(end, foot)?);
        if footer.len() < foot {
            return Err(bad("it is cut off"));
        }
        let (body, sum) = footer.split_at(foot - 4);
        if !footer.starts_with(&header) || number(sum) != u64::from(crc32fast::hash(body)) {
            return Err(bad("its footer is damaged"));
        }
        let fits = match header.get(24..) {
            Some(b"" | b"sha1") => hash == HashKind::Sha1,
            Some(b"s256") => hash == HashKind::Sha256,
            Some(_) | None => false,
        };
        if !fits {
            return Err(bad("its object ids are of another kind"));
        }
        let index = Some(number(&footer[head..head + 8])).filter(|at| *at != 0);
        let block_size = small(&header[5..8]);
        Ok(Some(Self { path, file, end, head, block_size, hash, index }))
    }

    /// What it says about a name; none when it says nothing.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn get(&self, name: &str) -> Result<Option<Said>, StoreError> {
        let mut next = self.place_of(name.as_bytes())?;
        while let Some(block) = next.map_or(Ok(None), |at| self.block(at, REFS))? {
            let mut records = self.records(&block);
            while let Some((found, said)) = records.next_ref()? {
                match found.as_slice().cmp(name.as_bytes()) {
                    std::cmp::Ordering::Less => {}
                    std::cmp::Ordering::Equal => return Ok(Some(said)),
                    std::cmp::Ordering::Greater => return Ok(None),
                }
            }
            next = Some(block.next);
        }
        Ok(None)
    }

    /// Everything it says about names that begin with `prefix`, in order.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn below(&self, prefix: &str) -> Result<Vec<(String, Said)>, StoreError> {
        let mut all = Vec::new();
        let mut next = self.place_of(prefix.as_bytes())?;
        while let Some(block) = next.map_or(Ok(None), |at| self.block(at, REFS))? {
            let mut records = self.records(&block);
            while let Some((name, said)) = records.next_ref()? {
                if name.starts_with(prefix.as_bytes()) {
                    let name = String::from_utf8(name);
                    // Whatever its name is, it is none of those asked for by text.
                    all.extend(name.ok().map(|name| (name, said)));
                } else if name.as_slice() > prefix.as_bytes() {
                    return Ok(all);
                }
            }
            next = Some(block.next);
        }
        Ok(all)
    }

    /// The block of refs where `name` stands if it stands anywhere; none when it is beyond the last.
    fn place_of(&self, name: &[u8]) -> Result<Option<u64>, StoreError> {
        let Some(mut at) = self.index else { return Ok(Some(0)) };
        for _ in 0..INDEX_DEPTH {
            if self.kind_at(at)? == REFS {
                return Ok(Some(at));
            }
            match self.index_entry(at, name)? {
                Some(lower) => at = lower,
                None => return Ok(None),
            }
        }
        Err(self.bad("its index has no end"))
    }

    /// The first place in the level of the index at `at` whose last name is not before `name`.
    fn index_entry(&self, at: u64, name: &[u8]) -> Result<Option<u64>, StoreError> {
        let mut next = at;
        while let Some(block) = self.block(next, INDEX)? {
            let mut records = self.records(&block);
            while let Some((last, place)) = records.next_place()? {
                if last.as_slice() >= name {
                    return Ok(Some(place));
                }
            }
            next = block.next;
        }
        Ok(None)
    }

    fn head_at(&self, at: u64) -> usize {
        if at == 0 { self.head } else { 0 }
    }

    fn kind_at(&self, at: u64) -> Result<u8, StoreError> {
        let bytes = self.piece(at.saturating_add(self.head_at(at) as u64), 1)?;
        bytes.first().copied().ok_or_else(|| self.bad("its index points beyond its end"))
    }

    /// The block at a place; none when no block of this kind begins there.
    fn block(&self, at: u64, kind: u8) -> Result<Option<Block>, StoreError> {
        let head = self.head_at(at);
        let guess = if self.block_size == 0 { GUESSED_BLOCK } else { self.block_size };
        let mut bytes = self.piece(at, guess)?;
        match bytes.get(head) {
            Some(k) if *k == kind => {}
            Some(b'r' | b'o' | b'g' | b'i') | None => return Ok(None),
            Some(_) => return Err(self.bad("it holds a block of no known kind")),
        }
        let length = bytes.get(head + 1..head + BLOCK_HEAD).map_or(0, small);
        if length > bytes.len() {
            bytes = self.piece(at, length)?;
        }
        let tail = bytes.get(..length).and_then(|b| b.last_chunk::<2>());
        let whole = tail.map(|t| usize::from(u16::from_be_bytes(*t)) * 3 + 2);
        let end = whole.and_then(|t| length.checked_sub(t)).filter(|e| *e >= head + BLOCK_HEAD);
        let end = end.ok_or_else(|| self.bad("one of its blocks is cut off"))?;
        // Aligned blocks are padded; what is not padding is the next block.
        let padded = bytes.get(length).is_none_or(|byte| *byte == 0);
        let step = if self.block_size > length && padded { self.block_size } else { length };
        bytes.truncate(end);
        Ok(Some(Block { bytes, start: head + BLOCK_HEAD, next: at + step as u64 }))
    }

    fn records<'a>(&'a self, block: &'a Block) -> Records<'a> {
        Records { table: self, rest: block.bytes.get(block.start..).unwrap_or(&[]), name: vec![] }
    }

    /// Up to `length` bytes at a place before the footer.
    fn piece(&self, at: u64, length: usize) -> Result<Vec<u8>, StoreError> {
        let there = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        Ok(self.file.read_at(at, length.min(there))?)
    }

    fn bad(&self, reason: &str) -> StoreError {
        unreadable(&self.path, reason)
    }
}

/// A block without what stands after its records.
struct Block {
    bytes: Vec<u8>,
    /// Where the records begin.
    start: usize,
    /// Where the block after it begins in the file.
    next: u64,
}

/// Reads record after record.
struct Records<'a> {
    table: &'a Table,
    rest: &'a [u8],
    name: Vec<u8>,
}

impl<'a> Records<'a> {
    fn next_ref(&mut self) -> Result<Option<(Vec<u8>, Said)>, StoreError> {
        let Some(kind) = self.next_name()? else { return Ok(None) };
        // How much later than the table's first update: of no use to a reader.
        self.varint()?;
        let said = match kind {
            0 => Said::Deleted,
            1 => Said::Stored(Stored::Id(self.id()?)),
            2 => {
                let id = self.id()?;
                // What an annotated tag leads to.
                self.id()?;
                Said::Stored(Stored::Id(id))
            }
            3 => {
                let length = self.length()?;
                let target = self.take(length)?.to_vec();
                let text = String::from_utf8(target);
                let text = text.map_err(|_| self.table.bad("a symbolic ref is not text"))?;
                Said::Stored(Stored::Symbolic(text))
            }
            _ => return Err(self.table.bad("a ref is of no known kind")),
        };
        Ok(Some((self.name.clone(), said)))
    }

    fn next_place(&mut self) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        let Some(_kind) = self.next_name()? else { return Ok(None) };
        let place = self.varint()?;
        Ok(Some((self.name.clone(), place)))
    }

    /// Reads the name of the next record into `self.name` and answers the three bits that go with it.
    fn next_name(&mut self) -> Result<Option<u64>, StoreError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let shared = self.length()?;
        let code = self.varint()?;
        let length = self.as_length(code >> 3)?;
        let own = self.take(length)?;
        if shared > self.name.len() {
            return Err(self.cut_off());
        }
        self.name.truncate(shared);
        self.name.extend_from_slice(own);
        Ok(Some(code & 7))
    }

    fn id(&mut self) -> Result<Oid, StoreError> {
        let bytes = self.take(self.table.hash.id_bytes())?;
        Oid::from_bytes(bytes).map_err(|e| self.table.bad(&e.to_string()))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], StoreError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.cut_off())?;
        self.rest = rest;
        Ok(taken)
    }

    fn length(&mut self) -> Result<usize, StoreError> {
        let value = self.varint()?;
        self.as_length(value)
    }

    fn as_length(&self, value: u64) -> Result<usize, StoreError> {
        usize::try_from(value).map_err(|_| self.cut_off())
    }

    /// Seven bits a byte, the highest first; each further byte counts from where the shorter ones ended.
    fn varint(&mut self) -> Result<u64, StoreError> {
        let mut value: u64 = 0;
        loop {
            let [byte] = self.take(1)? else { return Err(self.cut_off()) };
            value |= u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            let more = value.checked_add(1).and_then(|v| v.checked_mul(128));
            value = more.ok_or_else(|| self.cut_off())?;
        }
    }

    fn cut_off(&self) -> StoreError {
        self.table.bad("one of its records is cut off")
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| (value << 8) | u64::from(*byte))
}

/// Three bytes.
fn small(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |value, byte| (value << 8) | usize::from(*byte))
}

pub(super) fn unreadable(path: &Path, reason: &str) -> StoreError {
    StoreError::RefsUnreadable { path: path.to_owned(), reason: reason.to_owned() }
}

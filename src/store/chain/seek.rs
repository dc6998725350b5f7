//! Events by number: where each commit of a journal is, kept in a local file.
//!
//! ```text
//! agentproto/seek/<writer> = magic 8 | bytes of an id u32 | writer 12 | zeros 8 | id of event 1 | id of event 2 | …
//! ```
//! An append writes the new ids, unsynced; a reader that had to walk writes what it met. Zeros stand for what
//! nobody met yet.
//!
//! Contract: the file is a cache and never believed. An answer counts when the id at the end of a segment is
//! the one its ref holds, the commit it names bears the number asked for, and the entry after it has that commit
//! before it; a page counts when every link of it holds, and that to the end where it reaches the end. Whatever does
//! not fit removes the file, and parents are followed instead. A wrong file costs time, one that is missing or
//! cannot be written too; no more.

mod check;

use crate::store::{
    Store,
    commit::Entry,
    error::StoreError,
    journal::{Tip, Written},
    names::Segment,
};
use crate::{
    domain::{ids::WriterId, oid::Oid},
    limits,
    sys::files::{self, FileError, Slots},
};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"apseek\x01\n";
const HEADER_BYTES: usize = 32;

/// Where the index of a writer lies.
fn index_path(agent: &Path, writer: &WriterId) -> PathBuf {
    agent.join("seek").join(writer.as_str())
}

fn header(writer: &WriterId, width: usize) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&u32::try_from(width).unwrap_or(0).to_le_bytes());
    let name = writer.as_str().as_bytes();
    let length = name.len().min(12);
    header[12..12 + length].copy_from_slice(&name[..length]);
    header
}

fn place_of(seq: u64, width: usize) -> u64 {
    HEADER_BYTES as u64 + seq.saturating_sub(1).saturating_mul(width as u64)
}

/// The file as one reader sees it.
struct Index {
    path: PathBuf,
    writer: WriterId,
    /// Bytes of an id.
    width: usize,
    /// None when there is no file that could be of use.
    file: Option<Slots>,
    /// It is read, and neither filled nor removed.
    is_fixed: bool,
}

impl Index {
    fn open(path: PathBuf, writer: &WriterId, (width, is_fixed): (usize, bool)) -> Self {
        let mut index = Self { path, writer: writer.clone(), width, file: None, is_fixed };
        let Ok(Some(file)) = Slots::open(&index.path) else { return index };
        match file.read_at(0, HEADER_BYTES) {
            Ok(found) if found == header(writer, width) => index.file = Some(file),
            Ok(_) => index.discard(),
            Err(_) => {}
        }
        index
    }

    /// The ids of `count` events, as far as they are known.
    fn ids(&self, seq: u64, count: usize) -> Vec<Option<Oid>> {
        let place = place_of(seq, self.width);
        let read = self.file.as_ref().map(|f| f.read_at(place, count * self.width));
        let bytes = match read {
            Some(Ok(bytes)) => bytes,
            Some(Err(_)) | None => Vec::new(),
        };
        let known = bytes.chunks_exact(self.width).map(|b| Oid::from_bytes(b).ok());
        let mut ids: Vec<_> = known.map(|id| id.filter(|id| !id.is_null())).collect();
        ids.resize(count, None);
        ids
    }

    fn id(&self, seq: u64) -> Option<Oid> {
        self.ids(seq, 1).pop().flatten()
    }

    /// A number above `floor` and at most `seq` from which on the ids are known, where that of `seq` is: the lowest
    /// if none between is missing.
    fn known_down_to(&self, seq: u64, floor: u64) -> u64 {
        let (mut missing, mut known) = (floor, seq);
        while known - missing > 1 {
            let middle = missing + (known - missing) / 2;
            if self.id(middle).is_some() {
                known = middle;
            } else {
                missing = middle;
            }
        }
        known
    }

    /// Writes ids down, if that can be done: `newest_first` ends at event `seq`.
    fn fill(&mut self, seq: u64, newest_first: &[Oid]) {
        let bytes: Vec<u8> = newest_first.iter().rev().flat_map(Oid::as_bytes).copied().collect();
        // What cannot be written is walked to again.
        if !self.is_fixed && !bytes.is_empty() && write(self, seq, &bytes).is_ok() {
            self.file = Slots::open(&self.path).ok().flatten();
        }
    }

    /// Removes a file that proved wrong.
    fn discard(&mut self) {
        self.file = None;
        if self.is_fixed {
            return;
        }
        // Where it cannot be removed, the next reader finds it wrong as well.
        let _ = files::remove_optional(&self.path);
    }
}

/// Writes ids from event `seq` on. Makes the file, and its directory below ours, but never ours: where that is
/// missing nobody appended yet, and reading makes nothing.
fn write(index: &Index, seq: u64, ids: &[u8]) -> Result<Slots, FileError> {
    let path = index.path.as_path();
    if let Some(dir) = path.parent()
        && let Some(ours) = dir.parent()
        && files::is_dir(ours)?
    {
        files::make_dirs(dir)?;
    }
    let file = Slots::open_or_make(path)?;
    if file.size_bytes()? < HEADER_BYTES as u64 {
        file.write_at(&header(&index.writer, index.width), 0)?;
    }
    file.write_at(ids, place_of(seq, index.width))?;
    Ok(file)
}

/// Looks for events of one journal.
struct Seeker<'a> {
    store: &'a Store,
    tip: &'a Tip,
    index: Index,
}

/// A page as the index has it.
enum Page {
    /// Every link holds.
    Whole(Vec<Entry>),
    /// Something in it is not known.
    Gap,
    /// Something in it does not fit.
    Wrong,
}

impl Store {
    /// Event number `seq` of the journal that ends at `tip`; none when it has no such event.
    ///
    /// # Errors
    /// [`StoreError::SegmentDropped`]; an entry cannot be read.
    pub fn seek_in(&self, tip: &Tip, seq: u64) -> Result<Option<Entry>, StoreError> {
        if seq == 0 || seq > tip.seq {
            return Ok(None);
        }
        let mut seeker = self.seeker(tip);
        seeker.require_kept(seq)?;
        seeker.find(seq).map(Some)
    }

    /// Event number `seq` of a writer, of this clone or fetched; of several copies the longest journal is asked.
    /// None when there is no such event here.
    ///
    /// # Errors
    /// As [`Store::seek_in`]; the journals cannot be listed.
    pub fn seek(&self, writer: &WriterId, seq: u64) -> Result<Option<Entry>, StoreError> {
        let tip = match self.own_tip()?.filter(|tip| tip.writer == *writer) {
            Some(tip) => Some(tip),
            None => {
                let tips = self.journals()?.tips.into_iter();
                tips.filter(|tip| tip.writer == *writer).max_by_key(|tip| tip.seq)
            }
        };
        tip.map_or(Ok(None), |tip| self.seek_in(&tip, seq))
    }

    /// At most `most` entries from event number `seq` on, in order.
    ///
    /// # Errors
    /// As [`Store::seek_in`].
    pub fn entries_from(&self, tip: &Tip, seq: u64, most: usize) -> Result<Vec<Entry>, StoreError> {
        let count = u64::try_from(most).unwrap_or(u64::MAX);
        let end = seq.saturating_add(count).saturating_sub(1).min(tip.seq);
        if seq == 0 || count == 0 || seq > end {
            return Ok(Vec::new());
        }
        let mut seeker = self.seeker(tip);
        seeker.require_kept(seq)?;
        match seeker.page(seq, end)? {
            Page::Whole(entries) => return Ok(entries),
            Page::Gap => {}
            Page::Wrong => seeker.index.discard(),
        }
        seeker.walked_page(seq, end)
    }

    /// The entries of a journal from the newest back to the first that is kept.
    ///
    /// # Errors
    /// The refs cannot be read; each item can fail by itself, which ends the walk.
    pub fn newest_first<'a>(
        &'a self,
        tip: &'a Tip,
    ) -> Result<impl Iterator<Item = Result<Entry, StoreError>> + use<'a>, StoreError> {
        let (oldest, mut segment) = (self.oldest_kept(tip)?, tip.segment);
        let mut next = Some(self.entry(&tip.id));
        Ok(std::iter::from_fn(move || {
            let item = next.take()?;
            if let Ok(at) = &item {
                if at.parent.is_none() && at.continues.is_some() {
                    next = segment.before().filter(|before| *before >= oldest).map(|before| {
                        segment = before;
                        self.entry_before(at)
                    });
                } else if at.parent.is_some() {
                    next = Some(self.entry_before(at));
                }
            }
            Some(item)
        }))
    }

    /// The entry before another, in whatever segment.
    fn entry_before(&self, at: &Entry) -> Result<Entry, StoreError> {
        let not_an_entry =
            |id, reason: &str| StoreError::NotAnEntry { id, reason: reason.to_owned() };
        let before = at.before().ok_or_else(|| not_an_entry(at.id, "nothing is before it"))?;
        let entry = self.entry(&before)?;
        if Some(entry.seq) == at.seq.checked_sub(1) {
            return Ok(entry);
        }
        Err(not_an_entry(before, &format!("its Seq is {}, after it comes {}", entry.seq, at.seq)))
    }

    /// Number of the first event that is kept of a journal.
    ///
    /// # Errors
    /// An entry cannot be read.
    pub fn first_kept(&self, tip: &Tip) -> Result<u64, StoreError> {
        self.seeker(tip).first_kept()
    }

    /// The first entry of the segment that ends at `end`.
    pub(in crate::store) fn first_of(&self, end: &Tip) -> Result<Entry, StoreError> {
        self.seeker(end).first_of(end.segment, self.entry(&end.id)?)
    }

    /// Tells the index where new entries of our own are. It is only a cache: a failure is nobody's concern.
    pub(in crate::store) fn note_positions(&self, writer: &WriterId, written: &[Written]) {
        let (Some(first), Some(last)) = (written.first(), written.last()) else { return };
        let ids: Vec<u8> = written.iter().flat_map(|w| w.id.as_bytes()).copied().collect();
        let (path, width) = (index_path(&self.agent, writer), last.id.as_bytes().len());
        let index = Index { path, writer: writer.clone(), width, file: None, is_fixed: false };
        let end = place_of(last.seq.saturating_add(1), width);
        if let Ok(file) = write(&index, first.seq, &ids)
            && file.size_bytes().is_ok_and(|size| size > end)
        {
            // Positions beyond the last event are of a journal that was put back.
            let _ = file.end_at(end);
        }
    }

    fn seeker<'a>(&'a self, tip: &'a Tip) -> Seeker<'a> {
        let path = index_path(&self.agent, &tip.writer);
        let index = Index::open(path, &tip.writer, (tip.id.as_bytes().len(), self.looks_only()));
        Seeker { store: self, tip, index }
    }
}

impl Seeker<'_> {
    /// Refuses an event of a segment that is not kept any more.
    fn require_kept(&mut self, seq: u64) -> Result<(), StoreError> {
        let oldest = self.store.oldest_kept(self.tip)?;
        if oldest == Segment::FIRST || Segment::of(seq, self.store.segment_events) > oldest {
            return Ok(());
        }
        // It may be the rest of a batch that the segment before ran over by.
        let first = self.first_kept()?;
        if seq < first { Err(StoreError::SegmentDropped { seq, first }) } else { Ok(()) }
    }

    fn first_kept(&mut self) -> Result<u64, StoreError> {
        let oldest = self.store.oldest_kept(self.tip)?;
        if oldest == Segment::FIRST {
            return Ok(1);
        }
        let end = self.end_of(oldest)?;
        Ok(self.first_of(oldest, end)?.seq)
    }

    /// The last entry of a segment that is kept.
    fn end_of(&self, segment: Segment) -> Result<Entry, StoreError> {
        let name = self.tip.name_of(segment);
        let id = if segment == self.tip.segment {
            self.tip.id
        } else {
            self.store.own_value(&name)?.ok_or_else(|| StoreError::BrokenRef {
                name,
                reason: "it was removed meanwhile".to_owned(),
            })?
        };
        self.store.entry(&id)
    }

    /// The first entry of a segment. It has the lowest number the segment can have, or one not much higher when
    /// the segment before ran over.
    fn first_of(&mut self, segment: Segment, end: Entry) -> Result<Entry, StoreError> {
        let lowest = segment.first_seq(self.store.segment_events);
        for (seq, id) in (lowest..end.seq).zip(self.index.ids(lowest, limits::SEEK_OVERRUN_EVENTS))
        {
            if let Some(entry) = id.and_then(|id| self.store.entry(&id).ok())
                && entry.seq == seq
                && entry.parent.is_none()
                && self.precedes(&entry, None) == Some(true)
            {
                return Ok(entry);
            }
        }
        let (mut walked, mut at) = (vec![end.id], end);
        while at.parent.is_some() {
            at = self.store.entry_before(&at)?;
            walked.push(at.id);
        }
        self.index.fill(at.seq, &walked);
        Ok(at)
    }

    /// The entry with this number, which the journal has and keeps.
    fn find(&mut self, seq: u64) -> Result<Entry, StoreError> {
        let mut at = self.anchor(seq)?;
        let mut walked = Vec::new();
        loop {
            walked.push(at.id);
            if at.seq == seq {
                self.index.fill(seq, &walked);
                return Ok(at);
            }
            match self.index.id(at.seq) {
                Some(id) if id == at.id => {
                    if let Some(lower) = self.jump(&at, seq) {
                        let above = at.seq;
                        walked.pop();
                        self.index.fill(above + 1, &walked);
                        walked.clear();
                        if lower.seq == seq {
                            return Ok(lower);
                        }
                        at = lower;
                        continue;
                    }
                }
                Some(_) => self.index.discard(),
                None => {}
            }
            at = self.store.entry_before(&at)?;
        }
    }

    /// The nearest end of a segment at or after this number.
    fn anchor(&self, seq: u64) -> Result<Entry, StoreError> {
        let likely = Segment::of(seq, self.store.segment_events);
        if likely.before().unwrap_or(likely) < self.tip.segment {
            let oldest = self.store.oldest_kept(self.tip)?;
            let older = likely.before().into_iter().chain([likely]);
            for segment in older.filter(|s| *s >= oldest && *s < self.tip.segment) {
                let end = self.end_of(segment)?;
                if end.seq >= seq {
                    return Ok(end);
                }
            }
        }
        self.end_of(self.tip.segment)
    }

    /// From an entry that the index agrees with down to `seq`, or as near to it as the index knows the way.
    fn jump(&mut self, at: &Entry, seq: u64) -> Option<Entry> {
        let low = match self.index.id(seq) {
            Some(_) => seq,
            None => self.index.known_down_to(at.seq, seq),
        };
        if low >= at.seq {
            return None;
        }
        let id = self.index.id(low)?;
        let entry = self.store.entry(&id).ok().filter(|e| e.seq == low);
        match entry.as_ref().map(|e| self.precedes(e, Some(at))) {
            Some(Some(true)) => entry,
            // Walking fills the gap above it.
            Some(None) => None,
            Some(Some(false)) | None => {
                self.index.discard();
                None
            }
        }
    }

    /// Whether the entry after this one has it before it; none when the index does not know that entry.
    fn precedes(&self, entry: &Entry, above: Option<&Entry>) -> Option<bool> {
        if let Some(above) = above.filter(|a| a.seq == entry.seq + 1) {
            return Some(above.before() == Some(entry.id));
        }
        let next = self.store.entry(&self.index.id(entry.seq + 1)?).ok();
        Some(next.is_some_and(|n| n.seq == entry.seq + 1 && n.before() == Some(entry.id)))
    }

    /// The entries from `seq` to `end`, read where the index says they are.
    fn page(&mut self, seq: u64, end: u64) -> Result<Page, StoreError> {
        let mut entries = vec![self.find(seq)?];
        let rest = usize::try_from(end - seq).unwrap_or(0);
        for id in self.index.ids(seq + 1, rest) {
            let (Some(id), Some(last)) = (id, entries.last()) else { return Ok(Page::Gap) };
            match self.store.entry(&id) {
                Ok(e) if e.seq == last.seq + 1 && e.before() == Some(last.id) => entries.push(e),
                Ok(_) | Err(_) => return Ok(Page::Wrong),
            }
        }
        let at_end = entries.last().filter(|e| e.seq == self.tip.seq);
        if at_end.is_some_and(|e| e.id != self.tip.id) {
            return Ok(Page::Wrong);
        }
        Ok(Page::Whole(entries))
    }

    /// The same by following parents from `end` on.
    fn walked_page(&mut self, seq: u64, end: u64) -> Result<Vec<Entry>, StoreError> {
        let mut entries = vec![self.find(end)?];
        while let Some(at) = entries.last().filter(|e| e.seq > seq) {
            entries.push(self.store.entry_before(at)?);
        }
        let ids: Vec<Oid> = entries.iter().map(|e| e.id).collect();
        self.index.fill(seq, &ids);
        entries.reverse();
        Ok(entries)
    }
}

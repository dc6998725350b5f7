//! One file of the write-ahead log: preallocated, two head slots, then the frames of one epoch (storage W).
//!
//! Contract: a frame is durable when [`LogFile::push`] returns. Each head goes into the slot that does not hold the
//! best one, and is synced: one valid head is there whenever the power goes, so a file without any is damaged.
//! A torn last frame of the file that is written to was never acknowledged; behind a valid frame of a sealed
//! file nothing is torn, and a valid frame behind an invalid one is damage in both.

use crate::store::{
    batch,
    error::StoreError,
    object::Object,
    wal_frame::{self, Frame, HEADER_BYTES, Head, Header, SLOT_BYTES, Step},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
    sys::files::{self, Log},
};
use std::{cell::OnceCell, collections::BTreeMap, path::Path};

/// Where frames begin: after two slots.
pub(in crate::store) const START: u64 = 2 * SLOT_BYTES as u64;
/// Alignment of frames.
pub(in crate::store) const ALIGN: usize = 8;

/// What may stand behind the last valid frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Tail {
    /// A frame that a dead process began.
    MayBeTorn,
    /// Nothing: frames were valid to the end when the file was sealed.
    Whole,
}

/// An open file of the log and how far it was read.
pub(in crate::store) struct LogFile {
    file: Log,
    head: Head,
    slot: u64,
    end: u64,
    frames: Vec<Framed>,
    loose: u64,
    batches: u64,
    torn: bool,
    seq: u64,
    tips: BTreeMap<String, Oid>,
    passed: BTreeMap<String, Vec<Oid>>,
}

/// A frame in the file. Hashing its objects costs more than reading it: done when somebody asks.
struct Framed {
    pos: u64,
    /// The pack that shows it to git.
    batch: Option<String>,
    ids: OnceCell<Vec<Oid>>,
}

/// What is at one place of the file.
enum At {
    Frame(Vec<u8>, u64),
    End,
    Bad,
}

impl LogFile {
    /// Makes a file that starts from this head. It appears as a whole or not at all.
    pub(in crate::store) fn create(
        path: &Path,
        staged: &Path,
        head: &Head,
    ) -> Result<(), StoreError> {
        files::remove_optional(staged)?;
        let file = Log::create_new(staged, 0o600)?;
        let zeros = vec![0; SLOT_BYTES];
        let slots = (START + limits::WAL_PREALLOCATED_BYTES) / SLOT_BYTES as u64;
        // Real zeros, not a hole: only then does a later fdatasync leave the file's metadata alone.
        for slot in 0..slots {
            file.write_at(&zeros, slot * SLOT_BYTES as u64)?;
        }
        file.write_at(&head.encode()?, 0)?;
        file.sync_all()?;
        files::rename(staged, path)?;
        Ok(path.parent().map_or(Ok(()), files::sync_dir)?)
    }

    /// Opens the file of a repository of this hash and reads its head, no frames yet; none when there is no file.
    pub(in crate::store) fn open(path: &Path, hash: HashKind) -> Result<Option<Self>, StoreError> {
        let Some(file) = Log::open(path)? else { return Ok(None) };
        let (slot, head) = read_head(&file, hash)?;
        let seq = head.seq;
        let tips = head.refs.clone();
        Ok(Some(Self {
            file,
            head,
            slot,
            end: START,
            frames: Vec::new(),
            loose: 0,
            batches: 0,
            torn: false,
            seq,
            tips,
            passed: BTreeMap::new(),
        }))
    }

    /// True while the path still names this file.
    pub(in crate::store) fn is_current(&self) -> bool {
        self.file.is_current().unwrap_or(false)
    }

    /// Reads the head again; frames of an earlier epoch are forgotten.
    pub(in crate::store) fn look(&mut self) -> Result<(), StoreError> {
        let (slot, head) = read_head(&self.file, self.head.hash)?;
        self.slot = slot;
        if head.epoch == self.head.epoch {
            self.head = head;
        } else {
            self.restart(head);
        }
        Ok(())
    }

    /// Reads the frames that others appended since.
    pub(in crate::store) fn catch_up(&mut self, tail: Tail) -> Result<(), StoreError> {
        self.torn = false;
        loop {
            match self.at(self.end)? {
                At::Frame(payload, next) => {
                    let (step, objects) = wal_frame::decode_step(&payload, self.head.hash)
                        .ok_or_else(|| self.corrupt("a frame does not decode"))?;
                    self.count(&step, objects, next);
                }
                At::End => return Ok(()),
                At::Bad if tail == Tail::Whole => {
                    let reason = format!("the sealed frame at byte {} is damaged", self.end);
                    return Err(self.corrupt(&reason));
                }
                At::Bad => {
                    self.torn = true;
                    return self.nothing_valid_after(self.end);
                }
            }
        }
    }

    fn restart(&mut self, head: Head) {
        self.end = START;
        self.frames.clear();
        self.loose = 0;
        self.batches = 0;
        self.torn = false;
        self.seq = head.seq;
        self.tips = head.refs.clone();
        self.passed = BTreeMap::new();
        self.head = head;
    }

    fn count(&mut self, step: &Step, objects: u32, next: u64) {
        let batch = batch::pack_name(step);
        match batch {
            Some(_) => self.batches += 1,
            None => self.loose += u64::from(objects),
        }
        self.frames.push(Framed { pos: self.end, batch, ids: OnceCell::new() });
        for m in &step.moves {
            let passed = self.passed.entry(m.name.clone()).or_default();
            passed.extend(m.old);
            passed.extend(self.tips.insert(m.name.clone(), m.new));
        }
        self.seq = step.seq;
        self.end = next;
    }

    fn at(&self, pos: u64) -> Result<At, StoreError> {
        let Some(first) = self.bytes(pos, HEADER_BYTES)? else { return Ok(At::End) };
        if first == [0; HEADER_BYTES] {
            return Ok(At::End);
        }
        let Some(header) = Header::read(&first) else { return Ok(At::Bad) };
        if header.epoch < self.head.epoch {
            return Ok(At::End);
        }
        match self.payload(pos, header)? {
            None => Ok(At::Bad),
            Some(_) if header.epoch > self.head.epoch => {
                Err(self.corrupt("a frame is of a later epoch than any head"))
            }
            Some(payload) => Ok(At::Frame(payload, pos + header.frame_bytes())),
        }
    }

    /// The payload when its checksum fits.
    fn payload(&self, pos: u64, header: Header) -> Result<Option<Vec<u8>>, StoreError> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let payload = self.bytes(pos + HEADER_BYTES as u64, length)?;
        Ok(payload.filter(|p| header.fits(p)))
    }

    /// None where the file ends.
    fn bytes(&self, pos: u64, length: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let mut bytes = vec![0; length];
        Ok(self.file.read_at(&mut bytes, pos)?.then_some(bytes))
    }

    /// A write torn by a crash leaves nothing valid behind it; damage to an acknowledged frame may.
    fn nothing_valid_after(&self, bad: u64) -> Result<(), StoreError> {
        let behind = self.file.size_bytes()?.saturating_sub(bad);
        let too_long = || self.corrupt(&format!("what follows byte {bad} is no torn write"));
        if behind > limits::WAL_SEARCH_BYTES {
            return Err(too_long());
        }
        let behind = usize::try_from(behind).map_err(|_| too_long())?;
        let rest = self.bytes(bad, behind)?.unwrap_or_default();
        let mut search = Search::new();
        for at in (ALIGN..rest.len()).step_by(ALIGN) {
            let Some(header) = Header::read(&rest[at..]) else { continue };
            if header.epoch < self.head.epoch {
                continue;
            }
            if search.payload(header, &rest[at..]).map_err(|TooMany| too_long())?.is_some() {
                let reason = format!("an invalid frame at byte {bad} is followed by a valid one");
                return Err(self.corrupt(&reason));
            }
        }
        Ok(())
    }

    /// The error that names this file.
    pub(in crate::store) fn corrupt(&self, reason: &str) -> StoreError {
        StoreError::CorruptWal { path: self.path().to_owned(), reason: reason.to_owned() }
    }

    /// Refuses a file whose first frame is later than `epoch`: its newest head is lost, and the frames would be, too.
    pub(in crate::store) fn require_no_frame_after(&self, epoch: u32) -> Result<(), StoreError> {
        let Some(first) = self.bytes(START, HEADER_BYTES)? else { return Ok(()) };
        let Some(header) = Header::read(&first).filter(|h| h.epoch > epoch) else { return Ok(()) };
        if self.payload(START, header)?.is_some() {
            return Err(self.corrupt("a frame is of a later epoch than any head"));
        }
        Ok(())
    }

    /// Overwrites the start of a torn frame. Needs the kernel lock.
    pub(in crate::store) fn cut_torn(&mut self) -> Result<(), StoreError> {
        if self.torn {
            self.write(&[0; HEADER_BYTES], self.end)?;
            self.torn = false;
        }
        Ok(())
    }

    /// Appends a frame; it is durable on return. On failure it is taken back as far as possible. Needs the
    /// kernel lock and a log that is caught up.
    pub(in crate::store) fn push(&mut self, frame: &Frame) -> Result<(), StoreError> {
        let mut bytes = wal_frame::encode(frame, self.head.hash, self.head.epoch)?;
        let next = self.end + bytes.len() as u64;
        // Ends the log whatever an earlier epoch left here.
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        if let Err(e) = self.write(&bytes, self.end) {
            self.write(&[0; HEADER_BYTES], self.end)?;
            return Err(e);
        }
        let objects = u32::try_from(frame.objects.len()).unwrap_or(u32::MAX);
        self.count(&frame.step, objects, next);
        if let Some(framed) = self.frames.last() {
            framed.ids.get_or_init(|| frame.objects.iter().map(|o| o.id).collect());
        }
        Ok(())
    }

    /// Writes a head, durable on return. Needs the kernel lock. With a new epoch the file starts anew: nothing in
    /// it may count any more.
    pub(in crate::store) fn set_head(&mut self, head: Head) -> Result<(), StoreError> {
        if head.epoch != self.head.epoch {
            // One huge frame must not keep its place for ever.
            let most = START + limits::WAL_PREALLOCATED_BYTES;
            if self.file.size_bytes()? > most {
                self.file.cut(most)?;
            }
        }
        let slot = 1 - self.slot;
        self.write(&head.encode()?, slot * SLOT_BYTES as u64)?;
        self.slot = slot;
        if head.epoch == self.head.epoch {
            self.head = head;
        } else {
            self.restart(head);
        }
        Ok(())
    }

    fn write(&self, bytes: &[u8], pos: u64) -> Result<(), StoreError> {
        self.file.write_at(bytes, pos)?;
        Ok(self.file.sync_data()?)
    }

    /// All frames with their objects.
    pub(in crate::store) fn frames(&self) -> Result<Vec<Frame>, StoreError> {
        self.frames.iter().map(|framed| self.frame(framed.pos)).collect()
    }

    fn frame(&self, pos: u64) -> Result<Frame, StoreError> {
        let At::Frame(payload, _) = self.at(pos)? else {
            return Err(self.corrupt(&format!("the frame at byte {pos} is damaged")));
        };
        wal_frame::decode(&payload, self.head.hash)
            .ok_or_else(|| self.corrupt("a frame does not decode"))
    }

    /// True when every frame is byte for byte what would be written for what it says. What fills up to the next frame
    /// is never read and does not count.
    pub(in crate::store) fn is_as_written(&self) -> Result<bool, StoreError> {
        for framed in &self.frames {
            let frame = self.frame(framed.pos)?;
            let written = wal_frame::encode(&frame, self.head.hash, self.head.epoch)?;
            let length = Header::read(&written).map_or(0, |h| HEADER_BYTES + h.length as usize);
            if self.bytes(framed.pos, length)?.as_deref() != written.get(..length) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The ids of the objects in the frame at this place of the row.
    pub(in crate::store) fn ids(&self, index: usize) -> Result<&[Oid], StoreError> {
        let Some(framed) = self.frames.get(index) else { return Ok(&[]) };
        if let Some(ids) = framed.ids.get() {
            return Ok(ids);
        }
        let ids = self.frame(framed.pos)?.objects.iter().map(|o| o.id).collect();
        Ok(framed.ids.get_or_init(|| ids))
    }

    /// An object of some frame.
    pub(in crate::store) fn find(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        for (index, framed) in self.frames.iter().enumerate() {
            if self.ids(index)?.contains(id) {
                return Ok(self.frame(framed.pos)?.objects.into_iter().find(|o| o.id == *id));
            }
        }
        Ok(None)
    }

    /// What the frames start from.
    pub(in crate::store) fn head(&self) -> &Head {
        &self.head
    }

    /// Where the file lies.
    pub(in crate::store) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Number of the last journal entry.
    pub(in crate::store) fn seq(&self) -> u64 {
        self.seq
    }

    /// Frames read so far.
    pub(in crate::store) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Bytes of these frames.
    pub(in crate::store) fn frame_bytes(&self) -> u64 {
        self.end - START
    }

    /// Objects in these frames that git sees as loose ones.
    pub(in crate::store) fn loose_count(&self) -> u64 {
        self.loose
    }

    /// How many of these frames git sees as packs.
    pub(in crate::store) fn batch_count(&self) -> u64 {
        self.batches
    }

    /// The pack that shows the frame at this place of the row to git; none when its objects are loose.
    pub(in crate::store) fn batch(&self, index: usize) -> Option<&str> {
        self.frames.get(index)?.batch.as_deref()
    }

    /// What our refs must hold after the last frame.
    pub(in crate::store) fn tips(&self) -> &BTreeMap<String, Oid> {
        &self.tips
    }

    /// True when a frame here moved the ref away from this value.
    pub(in crate::store) fn has_passed(&self, name: &str, id: &Oid) -> bool {
        self.passed.get(name).is_some_and(|ids| ids.contains(id))
    }
}

/// Looks for frames at places where none need be. Headers that nobody wrote could each name all that follows.
struct Search {
    left_bytes: u64,
}

/// So many bytes were in no frame that no crash explains them.
struct TooMany;

impl Search {
    fn new() -> Self {
        Self { left_bytes: limits::WAL_SEARCH_BYTES }
    }

    /// The payload behind a header at the start of `bytes`, when its checksum fits.
    fn payload<'a>(
        &mut self,
        header: Header,
        bytes: &'a [u8],
    ) -> Result<Option<&'a [u8]>, TooMany> {
        let length = usize::try_from(header.length).unwrap_or(usize::MAX);
        let Some(payload) = bytes.get(HEADER_BYTES..).and_then(|rest| rest.get(..length)) else {
            return Ok(None);
        };
        if header.fits(payload) {
            return Ok(Some(payload));
        }
        self.left_bytes = self.left_bytes.checked_sub(header.length.into()).ok_or(TooMany)?;
        Ok(None)
    }
}

/// The best head, and in which slot it lies.
fn read_head(file: &Log, hash: HashKind) -> Result<(u64, Head), StoreError> {
    let mut slots = vec![0; 2 * SLOT_BYTES];
    // A log cut short lost frames, whatever is left of its heads: that is no head to go by.
    let whole = file.read_at(&mut slots, 0)?;
    let heads = (0..).zip(slots.chunks_exact(SLOT_BYTES));
    let heads = heads.filter_map(|(slot, bytes)| Some((slot, Head::decode(bytes)?)));
    let corrupt = |reason: String| StoreError::CorruptWal { path: file.path().to_owned(), reason };
    let best = heads.max_by_key(|(_, head)| head.rank()).filter(|_| whole);
    let (slot, head) = best.ok_or_else(|| corrupt("no valid head".to_owned()))?;
    if head.hash == hash {
        return Ok((slot, head));
    }
    let (found, known) = (head.hash.name(), hash.name());
    Err(corrupt(format!("it holds {found} ids, the repository {known} ids")))
}

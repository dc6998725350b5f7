//! The write-ahead log: a preallocated file of two head slots and the frames since the last checkpoint.
//!
//! Contract: a frame is durable when [`Wal::push`] returns. Everything that writes needs the kernel lock;
//! reading does not (a frame being written is not there yet). A torn last frame was never acknowledged
//! and is cut off by the next writer; a valid frame behind an invalid one is corruption and reported.

use super::{
    error::StoreError,
    object::Object,
    wal_frame::{self, Frame, HEADER_BYTES, Head, Header, SLOT_BYTES, Step},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
    sys::files::{self, Log},
};
use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
};

/// Where frames begin: after two slots.
const START: u64 = 2 * SLOT_BYTES as u64;
/// Alignment of frames.
const ALIGN: usize = 8;

/// An open log and how far it was read.
pub(super) struct Wal {
    file: Log,
    head: Head,
    end: u64,
    frames: u64,
    /// Where the last frames begin.
    recent: VecDeque<u64>,
    torn: bool,
    seq: u64,
    tips: BTreeMap<String, Oid>,
    passed: BTreeMap<String, Vec<Oid>>,
}

/// What is at one place of the file.
enum At {
    Frame(Vec<u8>, u64),
    End,
    Bad,
}

impl Wal {
    /// Makes a log that starts from these refs. It appears as a whole or not at all.
    pub(super) fn create(path: &Path, staged: &Path, head: &Head) -> Result<(), StoreError> {
        files::remove_optional(staged)?;
        let file = Log::create_new(staged, 0o600)?;
        let zeros = vec![0; SLOT_BYTES];
        let slots = (START + limits::WAL_PREALLOCATED_BYTES) / SLOT_BYTES as u64;
        // Real zeros, not a hole: only then does a later fdatasync leave the file's metadata alone.
        for slot in 0..slots {
            file.write_at(&zeros, slot * SLOT_BYTES as u64)?;
        }
        file.write_at(&head.encode()?, slot_of(head.epoch))?;
        file.sync_all()?;
        files::rename(staged, path)?;
        Ok(path.parent().map_or(Ok(()), files::sync_dir)?)
    }

    /// Opens the log of a repository of this hash and reads it to its end; none when there is none.
    pub(super) fn open(path: &Path, hash: HashKind) -> Result<Option<Self>, StoreError> {
        let Some(file) = Log::open(path)? else { return Ok(None) };
        let head = read_head(&file, hash)?;
        let mut wal = Self {
            file,
            end: START,
            frames: 0,
            recent: VecDeque::new(),
            torn: false,
            seq: head.seq,
            tips: head.refs.clone(),
            passed: BTreeMap::new(),
            head,
        };
        wal.catch_up()?;
        Ok(Some(wal))
    }

    /// True while the path still names this file.
    pub(super) fn is_current(&self) -> bool {
        self.file.is_current().unwrap_or(false)
    }

    /// Reads what others appended or checkpointed since.
    pub(super) fn catch_up(&mut self) -> Result<(), StoreError> {
        let head = read_head(&self.file, self.head.hash)?;
        if head != self.head {
            self.restart(head);
        }
        self.torn = false;
        loop {
            match self.at(self.end)? {
                At::Frame(payload, next) => {
                    let step = wal_frame::decode_step(&payload, self.head.hash)
                        .ok_or_else(|| self.corrupt("a frame does not decode"))?;
                    self.count(&step, next);
                }
                At::End => return Ok(()),
                At::Bad => {
                    self.torn = true;
                    return self.nothing_valid_after(self.end);
                }
            }
        }
    }

    fn restart(&mut self, head: Head) {
        self.end = START;
        self.frames = 0;
        self.recent.clear();
        self.seq = head.seq;
        self.tips = head.refs.clone();
        self.passed = BTreeMap::new();
        self.head = head;
    }

    fn count(&mut self, step: &Step, next: u64) {
        self.recent.push_back(self.end);
        if self.recent.len() > limits::HEAL_FRAMES {
            self.recent.pop_front();
        }
        for m in &step.moves {
            let passed = self.passed.entry(m.name.clone()).or_default();
            passed.extend(m.old);
            passed.extend(self.tips.insert(m.name.clone(), m.new));
        }
        self.seq = step.seq;
        self.end = next;
        self.frames += 1;
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
            Some(payload) => Ok(At::Frame(payload, pos + header.frame_bytes())),
            None => Ok(At::Bad),
        }
    }

    fn payload(&self, pos: u64, header: Header) -> Result<Option<Vec<u8>>, StoreError> {
        if header.epoch != self.head.epoch {
            return Ok(None);
        }
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
        let length = self.file.size_bytes()?;
        let rest = usize::try_from(length.saturating_sub(bad)).unwrap_or(usize::MAX);
        let rest = self.bytes(bad, rest)?.unwrap_or_default();
        for at in (ALIGN..rest.len()).step_by(ALIGN) {
            let Some(header) = Header::read(&rest[at..]) else { continue };
            if self.payload(bad + at as u64, header)?.is_some() {
                let reason = format!("an invalid frame at byte {bad} is followed by a valid one");
                return Err(self.corrupt(&reason));
            }
        }
        Ok(())
    }

    fn corrupt(&self, reason: &str) -> StoreError {
        StoreError::CorruptWal { path: self.file.path().to_owned(), reason: reason.to_owned() }
    }

    /// Overwrites the start of a torn frame. Needs the kernel lock.
    pub(super) fn cut_torn(&mut self) -> Result<(), StoreError> {
        if self.torn {
            self.write(&[0; HEADER_BYTES], self.end)?;
            self.torn = false;
        }
        Ok(())
    }

    /// Appends a frame; it is durable on return. On failure it is taken back as far as possible. Needs the
    /// kernel lock and a log that is caught up.
    pub(super) fn push(&mut self, frame: &Frame) -> Result<(), StoreError> {
        let mut bytes = wal_frame::encode(frame, self.head.hash, self.head.epoch)?;
        let next = self.end + bytes.len() as u64;
        // Ends the log whatever an earlier epoch left here.
        bytes.extend_from_slice(&[0; HEADER_BYTES]);
        if let Err(e) = self.write(&bytes, self.end) {
            self.write(&[0; HEADER_BYTES], self.end)?;
            return Err(e);
        }
        self.count(&frame.step, next);
        Ok(())
    }

    /// Starts a new epoch from these values: all frames are packed. Needs the kernel lock.
    pub(super) fn reset(
        &mut self,
        seq: u64,
        refs: BTreeMap<String, Oid>,
    ) -> Result<(), StoreError> {
        let epoch =
            self.head.epoch.checked_add(1).ok_or_else(|| self.corrupt("epochs are used up"))?;
        let head = Head { hash: self.head.hash, epoch, seq, boot: files::boot_id(), refs };
        self.write(&head.encode()?, slot_of(epoch))?;
        self.restart(head);
        Ok(())
    }

    fn write(&self, bytes: &[u8], pos: u64) -> Result<(), StoreError> {
        self.file.write_at(bytes, pos)?;
        Ok(self.file.sync_data()?)
    }

    /// All frames with their objects.
    pub(super) fn frames(&self) -> Result<Vec<Frame>, StoreError> {
        let mut frames = Vec::new();
        let mut pos = START;
        while pos < self.end {
            let (frame, next) = self.frame(pos)?;
            frames.push(frame);
            pos = next;
        }
        Ok(frames)
    }

    /// The last [`limits::HEAL_FRAMES`] frames with their objects.
    pub(super) fn recent_frames(&self) -> Result<Vec<Frame>, StoreError> {
        self.recent.iter().map(|pos| Ok(self.frame(*pos)?.0)).collect()
    }

    fn frame(&self, pos: u64) -> Result<(Frame, u64), StoreError> {
        let At::Frame(payload, next) = self.at(pos)? else {
            return Err(self.corrupt(&format!("the frame at byte {pos} is damaged")));
        };
        let frame = wal_frame::decode(&payload, self.head.hash);
        Ok((frame.ok_or_else(|| self.corrupt("a frame does not decode"))?, next))
    }

    /// An object of some frame.
    pub(super) fn find(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        let frames = self.frames()?;
        Ok(frames.into_iter().flat_map(|f| f.objects).find(|o| o.id == *id))
    }

    /// Number of the last journal entry.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Frames since the last checkpoint.
    pub(super) fn frame_count(&self) -> u64 {
        self.frames
    }

    /// Bytes of frames since the last checkpoint.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.end - START
    }

    /// What our refs must hold.
    pub(super) fn tips(&self) -> &BTreeMap<String, Oid> {
        &self.tips
    }

    /// True when the ref held this value within the present epoch and has been moved on since.
    pub(super) fn has_passed(&self, name: &str, id: &Oid) -> bool {
        self.passed.get(name).is_some_and(|ids| ids.contains(id))
    }

    /// True when it is certain that no reboot happened since the first frame was written.
    pub(super) fn is_same_boot(&self) -> bool {
        self.head.boot.is_some() && self.head.boot == files::boot_id()
    }
}

fn slot_of(epoch: u32) -> u64 {
    u64::from(epoch % 2) * SLOT_BYTES as u64
}

fn read_head(file: &Log, hash: HashKind) -> Result<Head, StoreError> {
    let mut slots = vec![0; 2 * SLOT_BYTES];
    // A log cut short has no valid head, which is what is said below.
    file.read_at(&mut slots, 0)?;
    let heads = slots.chunks_exact(SLOT_BYTES).filter_map(Head::decode);
    let corrupt = |reason: &str| StoreError::CorruptWal {
        path: file.path().to_owned(),
        reason: reason.to_owned(),
    };
    let head = heads.max_by_key(|h| h.epoch).ok_or_else(|| corrupt("no valid head"))?;
    if head.hash == hash {
        Ok(head)
    } else {
        Err(corrupt(&format!(
            "it holds {} ids, the repository {} ids",
            head.hash.name(),
            hash.name()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{object::Kind, wal_frame::Move};

    const NAME: &str = "refs/agentproto/x";
    const HASH: HashKind = HashKind::Sha256;

    fn id(n: u64) -> Oid {
        Object::new(HASH, Kind::Blob, n.to_string().into_bytes()).unwrap().id
    }

    fn frame(n: u64) -> Frame {
        let old = (n > 1).then(|| id(n - 1));
        let moves = vec![Move { name: NAME.to_owned(), old, new: id(n) }];
        let objects = vec![Object::new(HASH, Kind::Blob, n.to_string().into_bytes()).unwrap()];
        Frame { step: Step { seq: n, entries: 1, moves }, objects }
    }

    fn fresh(dir: &Path) -> Wal {
        let path = dir.join("wal");
        let head =
            Head { hash: HASH, epoch: 1, seq: 0, boot: files::boot_id(), refs: BTreeMap::new() };
        Wal::create(&path, &dir.join("staged"), &head).unwrap();
        Wal::open(&path, HASH).unwrap().unwrap()
    }

    fn reopened(dir: &Path) -> Result<Wal, StoreError> {
        Wal::open(&dir.join("wal"), HASH).map(Option::unwrap)
    }

    #[test]
    fn frames_are_read_back_by_others_and_after_a_reset_no_more() {
        let dir = tempfile::tempdir().unwrap();
        let mut wal = fresh(dir.path());
        let mut other = reopened(dir.path()).unwrap();
        (1..=3).for_each(|n| wal.push(&frame(n)).unwrap());
        other.catch_up().unwrap();
        assert_eq!((other.seq(), other.frame_count(), other.tips()[NAME]), (3, 3, id(3)));
        assert!(other.has_passed(NAME, &id(2)) && !other.has_passed(NAME, &id(3)));
        assert_eq!(other.frames().unwrap(), [frame(1), frame(2), frame(3)]);
        assert_eq!(other.find(&id(2)).unwrap(), Some(frame(2).objects.remove(0)));
        wal.reset(3, wal.tips().clone()).unwrap();
        wal.push(&frame(4)).unwrap();
        other.catch_up().unwrap();
        assert_eq!((other.seq(), other.frame_count()), (4, 1));
        assert_eq!(other.frames().unwrap(), [frame(4)]);
    }

    #[test]
    fn a_torn_tail_is_cut_wherever_it_tore() {
        let dir = tempfile::tempdir().unwrap();
        let mut wal = fresh(dir.path());
        wal.push(&frame(1)).unwrap();
        let bytes = wal_frame::encode(&frame(2), HASH, 1).unwrap();
        for kept in (1..bytes.len() - ALIGN).step_by(7) {
            wal.file.write_at(&vec![0; bytes.len()], wal.end).unwrap();
            wal.file.write_at(&bytes[..kept], wal.end).unwrap();
            let mut again = reopened(dir.path()).unwrap();
            assert_eq!(again.seq(), 1, "{kept} bytes kept");
            again.cut_torn().unwrap();
            assert!(!reopened(dir.path()).unwrap().torn, "{kept} bytes kept");
            again.push(&frame(2)).unwrap();
            assert_eq!(reopened(dir.path()).unwrap().frames().unwrap(), [frame(1), frame(2)]);
        }
    }

    #[test]
    fn a_valid_frame_behind_a_damaged_one_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let mut wal = fresh(dir.path());
        (1..=3).for_each(|n| wal.push(&frame(n)).unwrap());
        let second = START + wal_frame::encode(&frame(1), HASH, 1).unwrap().len() as u64;
        for at in [second, second + 20] {
            let mut byte = [0];
            wal.file.read_at(&mut byte, at).unwrap();
            wal.file.write_at(&[byte[0] ^ 0x40], at).unwrap();
            let error = reopened(dir.path()).err().expect("damage is noticed");
            assert_eq!(error.code(), crate::code::Code::JournalCorrupt);
            wal.file.write_at(&byte, at).unwrap();
        }
        assert_eq!(reopened(dir.path()).unwrap().seq(), 3);
    }

    #[test]
    fn one_damaged_head_slot_is_survived_two_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let mut wal = fresh(dir.path());
        wal.push(&frame(1)).unwrap();
        wal.reset(1, wal.tips().clone()).unwrap();
        wal.file.write_at(&[0xff; 64], slot_of(1)).unwrap();
        assert_eq!(reopened(dir.path()).unwrap().seq(), 1);
        wal.file.write_at(&[0xff; 64], slot_of(2)).unwrap();
        let error = reopened(dir.path()).err().expect("damage is noticed");
        assert!(error.to_string().ends_with("no valid head"), "{error}");
        std::fs::File::options()
            .write(true)
            .open(dir.path().join("wal"))
            .unwrap()
            .set_len(100)
            .unwrap();
        let error = reopened(dir.path()).err().expect("damage is noticed");
        assert_eq!(error.code(), crate::code::Code::JournalCorrupt);
    }

    #[test]
    fn a_log_of_another_hash_is_corrupt_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut wal = fresh(dir.path());
        wal.push(&frame(1)).unwrap();
        let path = dir.path().join("wal");
        let before = std::fs::read(&path).unwrap();
        let error = Wal::open(&path, HashKind::Sha1).err().expect("the width is noticed");
        assert_eq!(error.code(), crate::code::Code::JournalCorrupt);
        assert!(
            error.to_string().ends_with("it holds sha256 ids, the repository sha1 ids"),
            "{error}"
        );
        let mut other = frame(2);
        other.step.moves[0].new = Oid::from_sha1([1; 20]);
        assert!(wal.push(&other).unwrap_err().to_string().contains("another hash"));
        assert!(std::fs::read(&path).unwrap() == before);
    }
}

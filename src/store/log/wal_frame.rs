//! The bytes of the write-ahead log: frames and head slots (storage W).
//!
//! ```text
//! frame   = magic u32 | length u32 | crc32c u32 | epoch u32 | payload | zeros to a multiple of 8
//! payload = seq u64 | entries u32 | moves u32 | objects u32 | move* | object*
//! move    = length u16 | ref name | old id | new id              (all zeros: did not exist)
//! object  = kind u8 | length u32 | content
//! head    = magic u32 | length u32 | crc32c u32 | epoch u32 | seq u64 | boot | refs u32 | (name | id)* | sealed u8
//! ```
//! Integers are little-endian. Ids have the width of the repository's hash, which the head's magic names: frames
//! of another width are never read. The checksum of a frame is seeded with its epoch, so what an earlier epoch
//! left behind is never taken for a frame. A frame holds every object of the new commits that is not
//! reachable from the old ones: what "exists already" in the object store may be gone a moment later.
//! A head under the first magic ends before `sealed`: it is from the time of one log file, which sealed nothing.

use crate::store::{
    error::StoreError,
    object::{Kind, Object},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
};
use std::collections::BTreeMap;

/// Bytes before a payload.
pub(in crate::store) const HEADER_BYTES: usize = 16;
/// Bytes of a head slot.
pub(in crate::store) const SLOT_BYTES: usize = 4096;
const FRAME_MAGIC: u32 = 0x5746_5041;
/// Of heads that say whether the epoch before is sealed.
const fn head_magic(hash: HashKind) -> u32 {
    match hash {
        HashKind::Sha1 => 0x4957_5041,
        HashKind::Sha256 => 0x3357_5041,
    }
}
/// Of heads from the time of one log file.
const fn first_head_magic(hash: HashKind) -> u32 {
    match hash {
        HashKind::Sha1 => 0x4857_5041,
        HashKind::Sha256 => 0x3257_5041,
    }
}
const ALIGN: usize = 8;

/// One ref that moves with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Move {
    /// Full name.
    pub(in crate::store) name: String,
    /// Value before; none when the ref did not exist.
    pub(in crate::store) old: Option<Oid>,
    /// Value after.
    pub(in crate::store) new: Oid,
}

/// What one frame says, objects apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Step {
    /// Number of the last journal entry once this frame is in.
    pub(in crate::store) seq: u64,
    /// Journal entries in the frame; none when it only keeps objects safe.
    pub(in crate::store) entries: u32,
    /// Refs it moves.
    pub(in crate::store) moves: Vec<Move>,
}

/// One batch, as it is made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Frame {
    pub(in crate::store) step: Step,
    pub(in crate::store) objects: Vec<Object>,
}

/// What a frame's first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Header {
    pub(in crate::store) length: u32,
    pub(in crate::store) crc: u32,
    pub(in crate::store) epoch: u32,
}

impl Header {
    /// None when these are no frame's first bytes.
    pub(in crate::store) fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader { rest: bytes, hash: HashKind::Sha1 };
        let magic = r.u32()?;
        let header = Self { length: r.u32()?, crc: r.u32()?, epoch: r.u32()? };
        let fits = u64::from(header.length) <= limits::WAL_FRAME_BYTES;
        (magic == FRAME_MAGIC && fits).then_some(header)
    }

    /// Bytes from the start of this frame to the start of the next.
    pub(in crate::store) fn frame_bytes(self) -> u64 {
        let aligned = u64::from(self.length).next_multiple_of(ALIGN as u64);
        aligned + HEADER_BYTES as u64
    }

    /// True when the payload is the one that was written.
    pub(in crate::store) fn fits(self, payload: &[u8]) -> bool {
        crc32c::crc32c_append(self.epoch, payload) == self.crc
    }
}

/// The bytes of a frame for a log of this hash, or how large it would be.
pub(in crate::store) fn encode(
    frame: &Frame,
    hash: HashKind,
    epoch: u32,
) -> Result<Vec<u8>, StoreError> {
    let content: usize = frame.objects.iter().map(|o| o.data.len()).sum();
    let mut out = vec![0; HEADER_BYTES];
    out.reserve(content);
    out.extend_from_slice(&frame.step.seq.to_le_bytes());
    out.extend_from_slice(&frame.step.entries.to_le_bytes());
    out.extend_from_slice(&length32("frame", frame.step.moves.len())?.to_le_bytes());
    out.extend_from_slice(&length32("frame", frame.objects.len())?.to_le_bytes());
    for m in &frame.step.moves {
        put_name(&mut out, &m.name)?;
        put_id(&mut out, hash, &m.old.unwrap_or(Oid::null(hash)))?;
        put_id(&mut out, hash, &m.new)?;
    }
    for object in &frame.objects {
        out.push(kind_byte(object.kind));
        out.extend_from_slice(&length32("object", object.data.len())?.to_le_bytes());
        out.extend_from_slice(&object.data);
    }
    seal(&mut out, FRAME_MAGIC, epoch)?;
    out.resize(out.len().next_multiple_of(ALIGN), 0);
    Ok(out)
}

fn seal(out: &mut [u8], magic: u32, epoch: u32) -> Result<(), StoreError> {
    let payload = &out[HEADER_BYTES..];
    let length = length32("frame", payload.len())?;
    let crc = crc32c::crc32c_append(epoch, payload);
    for (at, value) in [magic, length, crc, epoch].into_iter().enumerate() {
        out[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }
    Ok(())
}

fn length32(what: &'static str, actual: usize) -> Result<u32, StoreError> {
    let (actual, limit) = (actual as u64, limits::WAL_FRAME_BYTES);
    match u32::try_from(actual) {
        Ok(length) if actual <= limit => Ok(length),
        Ok(_) | Err(_) => Err(StoreError::TooLarge { what, actual, limit }),
    }
}

fn put_name(out: &mut Vec<u8>, name: &str) -> Result<(), StoreError> {
    let actual = name.len() as u64;
    let length = u16::try_from(actual).map_err(|_| StoreError::TooLarge {
        what: "ref name",
        actual,
        limit: u64::from(u16::MAX),
    })?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(name.as_bytes());
    Ok(())
}

fn put_id(out: &mut Vec<u8>, hash: HashKind, id: &Oid) -> Result<(), StoreError> {
    if id.hash() != hash {
        return Err(StoreError::BadEntry { reason: format!("{id} is an id of another hash") });
    }
    out.extend_from_slice(id.as_bytes());
    Ok(())
}

fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::Commit => 1,
        Kind::Tree => 2,
        Kind::Blob => 3,
    }
}

fn kind_of(byte: u8) -> Option<Kind> {
    [Kind::Commit, Kind::Tree, Kind::Blob].into_iter().find(|k| kind_byte(*k) == byte)
}

/// Reads the refs and numbers of a payload whose checksum fits, and how many objects it holds.
pub(in crate::store) fn decode_step(payload: &[u8], hash: HashKind) -> Option<(Step, u32)> {
    Reader { rest: payload, hash }.step()
}

/// Reads a whole payload whose checksum fits; ids of objects are computed, not believed.
pub(in crate::store) fn decode(payload: &[u8], hash: HashKind) -> Option<Frame> {
    let mut r = Reader { rest: payload, hash };
    let (step, count) = r.step()?;
    let objects = (0..count).map(|_| r.object()).collect::<Option<Vec<_>>>()?;
    r.rest.is_empty().then_some(Frame { step, objects })
}

/// What a log file starts from: everything before it is in packs, or in the sealed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Head {
    /// The hash of every id in the log.
    pub(in crate::store) hash: HashKind,
    /// Frames of this epoch count; the valid head with the highest one wins.
    pub(in crate::store) epoch: u32,
    /// Number of the last journal entry before the first frame.
    pub(in crate::store) seq: u64,
    /// Kernel boot under which all frames of this epoch are written; none where it cannot be told.
    pub(in crate::store) boot: Option<String>,
    /// Values of our refs before the first frame.
    pub(in crate::store) refs: BTreeMap<String, Oid>,
    /// True while the frames of the epoch before count as well: they lie in the other file, sealed and not yet packed.
    pub(in crate::store) sealed: bool,
}

impl Head {
    /// The higher one wins. Of two with one epoch the later says that the sealed frames are packed.
    pub(in crate::store) fn rank(&self) -> (u32, bool) {
        (self.epoch, !self.sealed)
    }

    /// The bytes of its slot.
    pub(in crate::store) fn encode(&self) -> Result<Vec<u8>, StoreError> {
        let mut out = vec![0; HEADER_BYTES];
        out.extend_from_slice(&self.seq.to_le_bytes());
        put_name(&mut out, self.boot.as_deref().unwrap_or_default())?;
        out.extend_from_slice(&length32("head", self.refs.len())?.to_le_bytes());
        for (name, id) in &self.refs {
            put_name(&mut out, name)?;
            put_id(&mut out, self.hash, id)?;
        }
        out.push(u8::from(self.sealed));
        seal(&mut out, head_magic(self.hash), self.epoch)?;
        let (actual, limit) = (out.len() as u64, SLOT_BYTES as u64);
        if actual > limit {
            return Err(StoreError::TooLarge { what: "head", actual, limit });
        }
        out.resize(SLOT_BYTES, 0);
        Ok(out)
    }

    /// None when the slot holds no valid head.
    pub(in crate::store) fn decode(slot: &[u8]) -> Option<Self> {
        let mut r = Reader { rest: slot, hash: HashKind::Sha1 };
        let (magic, length, crc, epoch) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let payload = r.take(usize::try_from(length).ok()?)?;
        let hash = HashKind::ALL
            .into_iter()
            .find(|h| head_magic(*h) == magic || first_head_magic(*h) == magic)?;
        if crc32c::crc32c_append(epoch, payload) != crc {
            return None;
        }
        let mut r = Reader { rest: payload, hash };
        let seq = r.u64()?;
        let boot = Some(r.name()?).filter(|b| !b.is_empty());
        let count = r.u32()?;
        let refs = (0..count).map(|_| Some((r.name()?, r.id()?))).collect::<Option<_>>()?;
        let sealed = head_magic(hash) == magic && r.take(1)? == [1];
        Some(Self { hash, epoch, seq, boot, refs, sealed })
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    hash: HashKind,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn id(&mut self) -> Option<Oid> {
        Oid::from_bytes(self.take(self.hash.id_bytes())?).ok()
    }

    fn name(&mut self) -> Option<String> {
        let length = self.u16()?;
        String::from_utf8(self.take(usize::from(length))?.to_vec()).ok()
    }

    fn step(&mut self) -> Option<(Step, u32)> {
        let (seq, entries, moves, objects) = (self.u64()?, self.u32()?, self.u32()?, self.u32()?);
        let moves = (0..moves).map(|_| self.moved()).collect::<Option<_>>()?;
        Some((Step { seq, entries, moves }, objects))
    }

    fn moved(&mut self) -> Option<Move> {
        let name = self.name()?;
        let old = Some(self.id()?).filter(|id| !id.is_null());
        Some(Move { name, old, new: self.id()? })
    }

    fn object(&mut self) -> Option<Object> {
        let kind = kind_of(self.take(1)?[0])?;
        let length = usize::try_from(self.u32()?).ok()?;
        Object::new(self.hash, kind, self.take(length)?.to_vec()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(hash: HashKind, n: u8) -> Oid {
        Oid::from_bytes(&vec![n; hash.id_bytes()]).unwrap()
    }

    fn any_hash() -> impl Strategy<Value = HashKind> {
        prop::sample::select(&HashKind::ALL[..])
    }

    fn frame(hash: HashKind, seq: u64, blobs: Vec<Vec<u8>>) -> Frame {
        let (old, new) = (id(hash, 7), id(hash, 8));
        let moves = vec![
            Move { name: "refs/a".to_owned(), old: None, new: old },
            Move { name: "refs/b".to_owned(), old: Some(old), new },
        ];
        let objects =
            blobs.into_iter().map(|b| Object::new(hash, Kind::Blob, b).unwrap()).collect();
        Frame { step: Step { seq, entries: 1, moves }, objects }
    }

    proptest! {
        #[test]
        fn frames_round_trip_and_any_flipped_bit_is_noticed(
            seq: u64, epoch: u32, flip: prop::sample::Index, hash in any_hash(),
            blobs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..5),
        ) {
            let frame = frame(hash, seq, blobs);
            let mut bytes = encode(&frame, hash, epoch).unwrap();
            let header = Header::read(&bytes).unwrap();
            prop_assert_eq!(header.frame_bytes(), bytes.len() as u64);
            let end = HEADER_BYTES + usize::try_from(header.length).unwrap();
            prop_assert!(header.fits(&bytes[HEADER_BYTES..end]));
            let objects = u32::try_from(frame.objects.len()).unwrap();
            let step = Some((frame.step.clone(), objects));
            prop_assert_eq!(decode_step(&bytes[HEADER_BYTES..end], hash), step);
            prop_assert_eq!(decode(&bytes[HEADER_BYTES..end], hash), Some(frame));
            let at = HEADER_BYTES + flip.index(end - HEADER_BYTES);
            bytes[at] ^= 1;
            prop_assert!(!header.fits(&bytes[HEADER_BYTES..end]));
        }

        #[test]
        fn heads_round_trip(
            epoch: u32, seq: u64, sealed: bool, boot in prop::option::of("[a-f0-9-]{1,36}"),
            hash in any_hash(),
        ) {
            let refs = BTreeMap::from([("refs/x".to_owned(), id(hash, 3))]);
            let head = Head { hash, epoch, seq, boot, refs, sealed };
            let mut slot = head.encode().unwrap();
            prop_assert_eq!(Head::decode(&slot), Some(head));
            slot[20] ^= 1;
            prop_assert_eq!(Head::decode(&slot), None);
        }
    }

    fn head(hash: HashKind, epoch: u32, sealed: bool) -> Head {
        Head { hash, epoch, seq: 9, boot: None, refs: BTreeMap::new(), sealed }
    }

    /// A log that an earlier version left is taken over as it is.
    #[test]
    fn a_head_of_the_first_format_sealed_nothing() {
        for hash in HashKind::ALL {
            let mut slot = head(hash, 4, true).encode().unwrap();
            let length = u32::from_le_bytes(slot[4..8].try_into().unwrap());
            let end = HEADER_BYTES + usize::try_from(length).unwrap();
            let mut first = slot[..end - 1].to_vec();
            seal(&mut first, first_head_magic(hash), 4).unwrap();
            slot.fill(0);
            slot[..first.len()].copy_from_slice(&first);
            assert_eq!(Head::decode(&slot), Some(head(hash, 4, false)));
        }
    }

    #[test]
    fn of_two_heads_the_higher_epoch_wins_and_then_the_one_that_packed() {
        let rank = |epoch, sealed| head(HashKind::Sha1, epoch, sealed).rank();
        assert!(rank(2, true) > rank(1, false));
        assert!(rank(2, false) > rank(2, true));
    }

    #[test]
    fn a_payload_of_another_epoch_does_not_fit() {
        let bytes =
            encode(&frame(HashKind::Sha1, 1, vec![b"x".to_vec()]), HashKind::Sha1, 5).unwrap();
        let header = Header::read(&bytes).unwrap();
        let end = HEADER_BYTES + usize::try_from(header.length).unwrap();
        assert!(!Header { epoch: 6, ..header }.fits(&bytes[HEADER_BYTES..end]));
    }

    #[test]
    fn too_large_is_refused_before_anything_is_written() {
        let mut frame = frame(HashKind::Sha1, 1, vec![vec![]]);
        // Its id does not count here, and hashing as much takes long.
        frame.objects[0].data = vec![0; usize::try_from(limits::WAL_FRAME_BYTES).unwrap() + 1];
        let e = encode(&frame, HashKind::Sha1, 1).unwrap_err();
        assert!(matches!(e, StoreError::TooLarge { .. }), "{e}");
    }
}

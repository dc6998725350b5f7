//! Reading packs of ours entry by entry, without the library (storage P).
//!
//! Contract: pure, and nothing is believed: an index counts when its own checksum fits, the bytes of an entry when
//! their checksum in the index does. Whatever does not add up is "not readable", never half an answer.

use crate::domain::oid::{HashKind, Oid};
use crate::store::{
    loose::inflate,
    object::{Kind, digest},
    pack::{IDX_MAGIC, OFS_DELTA, type_of},
};

const FANOUT_BYTES: usize = 256 * 4;

/// An object in a pack, as the index tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Indexed {
    /// Which object.
    pub(in crate::store) id: Oid,
    /// Where its entry begins.
    pub(in crate::store) offset: u64,
    /// CRC-32 of the entry's bytes.
    pub(in crate::store) crc: u32,
}

/// What an index of version 2 lists, sorted by id; none when it is not whole or lists offsets that only its large
/// table holds.
pub(in crate::store) fn index_entries(hash: HashKind, idx: &[u8]) -> Option<Vec<Indexed>> {
    let rest = idx.strip_prefix(IDX_MAGIC)?;
    let (fanout, rest) = rest.split_at_checked(FANOUT_BYTES)?;
    let count = usize::try_from(u32_at(fanout, FANOUT_BYTES - 4)?).ok()?;
    let (ids, rest) = rest.split_at_checked(count.checked_mul(hash.id_bytes())?)?;
    let (crcs, rest) = rest.split_at_checked(count.checked_mul(4)?)?;
    let (offsets, _) = rest.split_at_checked(count.checked_mul(4)?)?;
    let body = idx.len().checked_sub(hash.id_bytes())?;
    if digest(hash, &[&idx[..body]]).ok()?.as_bytes() != &idx[body..] {
        return None;
    }
    let entry = |(at, id): (usize, &[u8])| {
        let offset = u32_at(offsets, at * 4)?;
        let large = offset & 0x8000_0000 != 0;
        let crc = u32_at(crcs, at * 4)?;
        (!large).then_some(Indexed { id: Oid::from_bytes(id).ok()?, offset: offset.into(), crc })
    };
    ids.chunks_exact(hash.id_bytes()).enumerate().map(entry).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// How an entry of a pack is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Stored {
    /// Whole.
    Whole(Kind),
    /// As a difference to the entry that begins so many bytes before.
    Delta(u64),
}

/// An entry taken apart.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct Entry<'a> {
    /// How it is stored.
    pub(in crate::store) stored: Stored,
    /// Type and size as they stand there.
    pub(in crate::store) head: &'a [u8],
    /// The compressed bytes.
    pub(in crate::store) body: &'a [u8],
}

/// Takes an entry apart; none when it is of a kind that we never write.
pub(in crate::store) fn entry(raw: &[u8]) -> Option<Entry<'_>> {
    let end = raw.iter().position(|b| b & 0x80 == 0)? + 1;
    let (head, rest) = raw.split_at_checked(end)?;
    let kind = head[0] >> 4 & 7;
    if kind == OFS_DELTA {
        let (back, used) = distance(rest)?;
        return Some(Entry { stored: Stored::Delta(back), head, body: rest.get(used..)? });
    }
    let kind = [Kind::Commit, Kind::Tree, Kind::Blob].into_iter().find(|k| type_of(*k) == kind)?;
    Some(Entry { stored: Stored::Whole(kind), head, body: rest })
}

/// The distance to a base, and the bytes it takes.
fn distance(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0_u64;
    for (at, byte) in bytes.iter().enumerate() {
        value = value.checked_mul(128)?.checked_add(u64::from(byte & 0x7f))?;
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
        value += 1;
    }
    None
}

/// The object whose entry begins at `offset` of the pack so far; none when it cannot be read.
pub(in crate::store) fn object_at(pack: &[u8], offset: u64) -> Option<(Kind, Vec<u8>)> {
    let mut deltas = Vec::new();
    let mut at = offset;
    let (kind, mut data) = loop {
        let entry = entry(pack.get(usize::try_from(at).ok()?..)?)?;
        let bytes = inflate(entry.body)?;
        match entry.stored {
            Stored::Whole(kind) => break (kind, bytes),
            Stored::Delta(back) => {
                deltas.push(bytes);
                at = at.checked_sub(back).filter(|base| *base < at)?;
            }
        }
    };
    while let Some(delta) = deltas.pop() {
        data = applied(&data, &delta)?;
    }
    Some((kind, data))
}

/// What a delta makes of its base.
pub(in crate::store) fn applied(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut rest = delta;
    if size(&mut rest)? != base.len() {
        return None;
    }
    let length = size(&mut rest)?;
    let mut out = Vec::with_capacity(length.min(base.len() + delta.len()));
    while let Some((op, after)) = rest.split_first() {
        rest = after;
        if op & 0x80 == 0 {
            let (data, after) = rest.split_at_checked(usize::from(*op)).filter(|_| *op != 0)?;
            out.extend_from_slice(data);
            rest = after;
        } else {
            let from = operand(&mut rest, *op & 0x0f)?;
            let most = operand(&mut rest, *op >> 4 & 0x07)?;
            let most = if most == 0 { 0x1_0000 } else { most };
            out.extend_from_slice(base.get(from..from.checked_add(most)?)?);
        }
        if out.len() > length {
            return None;
        }
    }
    (out.len() == length).then_some(out)
}

/// Little-endian number of which only the bytes named in `mask` stand there.
fn operand(rest: &mut &[u8], mask: u8) -> Option<usize> {
    let mut value = 0;
    for bit in 0..4 {
        if mask & 1 << bit != 0 {
            let (byte, after) = rest.split_first()?;
            value |= usize::from(*byte) << (8 * bit);
            *rest = after;
        }
    }
    Some(value)
}

fn size(rest: &mut &[u8]) -> Option<usize> {
    let mut value = 0_usize;
    for shift in (0..usize::BITS - 7).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

//! Packs and their indices as bytes (storage P).
//!
//! Contract: pure. The library's writer makes no deltas and `git gc` never repairs that, hence this one: each object may
//! be a delta of one before it that is likely an earlier state of the same (`kin`), as long as chains stay short; a
//! delta copies blocks from wherever they stand in its base (`delta`). First states are whole: merging packs
//! makes them differences to earlier packs' states (`pack_merge`). Packs of batches are gone soon and have neither
//! deltas nor compression. Objects keep their order, so deltas point back.

use crate::store::{
    delta::delta,
    error::StoreError,
    kin::{Kin, Mark, marks},
    loose::deflate,
    object::{Kind, Object, digest},
    pack_read::{Indexed, index_entries},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
};
use std::collections::HashSet;

/// Offsets beyond need the index's large table, which nothing we write comes near.
const MAX_PACK_BYTES: u64 = 0x7fff_ffff;
/// What naming its base and both sizes adds to a delta.
const DELTA_HEAD_BYTES: usize = 8;
/// Type of an entry that is a difference to one before it.
pub(in crate::store) const OFS_DELTA: u8 = 6;
/// What a pack of version 2 begins with.
const MAGIC: &[u8] = b"PACK\0\0\0\x02";
/// What an index of version 2 begins with.
pub(in crate::store) const IDX_MAGIC: &[u8] = b"\xfftOc\0\0\0\x02";

/// A pack, ready to be written.
pub(in crate::store) struct Built {
    /// `pack-<checksum>`, without extension.
    pub(in crate::store) name: String,
    pub(in crate::store) pack: Vec<u8>,
    pub(in crate::store) idx: Vec<u8>,
}

struct Placed<'a> {
    object: &'a Object,
    offset: u64,
    crc: u32,
    depth: u8,
    /// What it is a difference to.
    base: Option<usize>,
}

/// Packs the objects, all of this hash; repeated ones once.
pub(in crate::store) fn build(hash: HashKind, objects: &[Object]) -> Result<Built, StoreError> {
    if let Some(other) = objects.iter().find(|o| o.id.hash() != hash) {
        let reason = format!("object {} is of another hash", other.id);
        return Err(StoreError::BadEntry { reason });
    }
    let mut seen = HashSet::new();
    let unique: Vec<&Object> = objects.iter().filter(|o| seen.insert(o.id)).collect();
    let mut packer = Packer { out: begun(), placed: Vec::new(), kin: Kin::new() };
    for object in unique {
        packer.add(object)?;
    }
    let Packer { out, placed, .. } = packer;
    let entry = |p: &Placed<'_>| Indexed { id: p.object.id, offset: p.offset, crc: p.crc };
    finish(hash, out, placed.iter().map(entry).collect())
}

/// As [`build`], in the shortest time: nothing is compressed and nothing is a delta. For packs that are gone soon.
pub(in crate::store) fn build_quickly(
    hash: HashKind,
    objects: &[Object],
) -> Result<Built, StoreError> {
    let (mut out, mut entries) = (begun(), Vec::with_capacity(objects.len()));
    for object in objects {
        let start = out.len();
        put_header(&mut out, type_of(object.kind), object.data.len());
        out.extend_from_slice(&deflate(&[&object.data], gix::zlib::Compression::NONE)?);
        if out.len() as u64 > MAX_PACK_BYTES {
            return Err(too_large(out.len() as u64));
        }
        let crc = crc32fast::hash(&out[start..]);
        entries.push(Indexed { id: object.id, offset: start as u64, crc });
    }
    finish(hash, out, entries)
}

/// How a pack begins; its count comes last.
pub(in crate::store) fn begun() -> Vec<u8> {
    [MAGIC, &[0; 4]].concat()
}

/// Gives a pack that was begun so its count, checksum and index.
pub(in crate::store) fn finish(
    hash: HashKind,
    mut pack: Vec<u8>,
    mut entries: Vec<Indexed>,
) -> Result<Built, StoreError> {
    let count = u32::try_from(entries.len()).map_err(|_| too_large(entries.len() as u64))?;
    pack.splice(MAGIC.len()..MAGIC.len() + 4, count.to_be_bytes());
    let checksum = digest(hash, &[&pack])?;
    pack.extend_from_slice(checksum.as_bytes());
    entries.sort_by_key(|e| e.id);
    let idx = index(&entries, &checksum)?;
    Ok(Built { name: format!("pack-{checksum}"), pack, idx })
}

fn too_large(actual: u64) -> StoreError {
    StoreError::TooLarge { what: "pack", actual, limit: MAX_PACK_BYTES }
}

struct Packer<'a> {
    out: Vec<u8>,
    placed: Vec<Placed<'a>>,
    kin: Kin<usize>,
}

impl<'a> Packer<'a> {
    fn add(&mut self, object: &'a Object) -> Result<(), StoreError> {
        let start = self.out.len();
        let offset = start as u64;
        if offset + object.data.len() as u64 > MAX_PACK_BYTES {
            return Err(too_large(offset + object.data.len() as u64));
        }
        let marks = marks(object.id.hash(), object.kind, &object.data);
        let found = self.delta_of(object, &marks);
        let (base, depth) = match found {
            Some((base, delta)) => {
                put_header(&mut self.out, OFS_DELTA, delta.len());
                put_offset(&mut self.out, offset - self.placed[base].offset);
                self.compressed(&delta)?;
                (Some(base), self.placed[base].depth + 1)
            }
            None => {
                put_header(&mut self.out, type_of(object.kind), object.data.len());
                self.compressed(&object.data)?;
                (None, 0)
            }
        };
        let crc = crc32fast::hash(&self.out[start..]);
        self.kin.note(&marks, self.placed.len());
        self.placed.push(Placed { object, offset, crc, depth, base });
        Ok(())
    }

    fn compressed(&mut self, data: &[u8]) -> Result<(), StoreError> {
        self.out.extend_from_slice(&deflate(&[data], gix::zlib::Compression::DEFAULT)?);
        Ok(())
    }

    fn delta_of(&self, object: &Object, marks: &[Mark]) -> Option<(usize, Vec<u8>)> {
        let mut base = self.kin.closest(marks)?;
        if self.placed[base].object.kind != object.kind {
            return None;
        }
        let most = limits::PACK_DELTA_DEPTH;
        if self.placed[base].depth >= most {
            // An older one, from which a new branch of the chain grows.
            while self.placed[base].depth > most / 2 {
                base = self.placed[base].base?;
            }
        }
        let delta = delta(
            &self.placed[base].object.data,
            &object.data,
            worth(object.kind, object.data.len()),
        )?;
        Some((base, delta))
    }
}

/// How long a delta may be to take less than the object whole: text compresses by half, the ids in trees not at all.
pub(in crate::store) fn worth(kind: Kind, size: usize) -> usize {
    match kind {
        Kind::Blob | Kind::Commit => size / 2,
        Kind::Tree => size.saturating_sub(DELTA_HEAD_BYTES),
    }
}

pub(in crate::store) fn type_of(kind: Kind) -> u8 {
    match kind {
        Kind::Commit => 1,
        Kind::Tree => 2,
        Kind::Blob => 3,
    }
}

/// The lowest byte of a number.
fn low(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// Type and size: four bits of size in the first byte, then seven a byte, least significant first.
pub(in crate::store) fn put_header(out: &mut Vec<u8>, kind: u8, size: usize) {
    let mut rest = size as u64;
    let mut byte = kind << 4 | (low(rest) & 0x0f);
    rest >>= 4;
    while rest > 0 {
        out.push(byte | 0x80);
        byte = low(rest) & 0x7f;
        rest >>= 7;
    }
    out.push(byte);
}

/// Distance to the base: seven bits a byte, most significant first, each continuation counting one more.
pub(in crate::store) fn put_offset(out: &mut Vec<u8>, distance: u64) {
    let mut bytes = vec![low(distance) & 0x7f];
    let mut rest = distance >> 7;
    while rest > 0 {
        rest -= 1;
        bytes.push(low(rest) & 0x7f | 0x80);
        rest >>= 7;
    }
    out.extend(bytes.iter().rev());
}

/// An index of version 2 over entries sorted by id.
fn index(entries: &[Indexed], checksum: &Oid) -> Result<Vec<u8>, StoreError> {
    let mut out = IDX_MAGIC.to_vec();
    for byte in 0..=u8::MAX {
        let up_to = entries.partition_point(|e| e.id.as_bytes()[0] <= byte);
        let count = u32::try_from(up_to).map_err(|_| too_large(up_to as u64))?;
        out.extend_from_slice(&count.to_be_bytes());
    }
    entries.iter().for_each(|e| out.extend_from_slice(e.id.as_bytes()));
    entries.iter().for_each(|e| out.extend_from_slice(&e.crc.to_be_bytes()));
    for e in entries {
        let offset = u32::try_from(e.offset).map_err(|_| too_large(e.offset))?;
        out.extend_from_slice(&offset.to_be_bytes());
    }
    out.extend_from_slice(checksum.as_bytes());
    let own = digest(checksum.hash(), &[&out])?;
    out.extend_from_slice(own.as_bytes());
    Ok(out)
}

/// The sorted ids in an index; none when the bytes are no whole index of version 2.
pub(in crate::store) fn index_ids(hash: HashKind, idx: &[u8]) -> Option<Vec<Oid>> {
    Some(index_entries(hash, idx)?.into_iter().map(|e| e.id).collect())
}

/// True when the bytes are a pack whose checksum fits.
pub(in crate::store) fn is_whole(hash: HashKind, pack: &[u8]) -> bool {
    let body = pack.len().checked_sub(hash.id_bytes());
    body.is_some_and(|n| digest(hash, &[&pack[..n]]).is_ok_and(|id| id.as_bytes() == &pack[n..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testlab::TestRepo;
    use crate::store::tree::{Entry as TreeEntry, Mode, serialize};

    #[test]
    fn git_reads_what_was_packed_and_deltas_are_small() {
        let repo = TestRepo::new();
        let hash = repo.hash();
        let object = |kind, data| Object::new(hash, kind, data).unwrap();
        let mut objects = Vec::new();
        for n in 0..100 {
            let text = format!(
                "{{\"id\":\"{}\",\"n\":{n},\"tail\":\"{}\"}}",
                "x".repeat(80),
                "y".repeat(300)
            );
            objects.push(object(Kind::Blob, text.into_bytes()));
        }
        objects.push(object(Kind::Blob, vec![]));
        objects.push(object(Kind::Blob, (0..300_000u32).flat_map(u32::to_le_bytes).collect()));
        let mut edited = objects[101].data.clone();
        edited[700_000] ^= 1;
        objects.push(object(Kind::Blob, edited));
        objects.push(objects[0].clone());
        let built = build(hash, &objects).unwrap();
        let dir = repo.path().join(".git/objects/pack");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{}.pack", built.name)), &built.pack).unwrap();
        std::fs::write(dir.join(format!("{}.idx", built.name)), &built.idx).unwrap();
        repo.git(&["verify-pack", &format!(".git/objects/pack/{}.idx", built.name)]);
        for object in &objects {
            assert_eq!(repo.git_raw(&["cat-file", "blob", &object.id.to_string()]), object.data);
        }
        let small: usize = objects[..100].iter().map(|o| o.data.len()).sum();
        let pack = build(hash, &objects[..100]).unwrap().pack.len();
        assert!(pack < small / 10, "{pack} of {small} bytes");
        let ids = index_ids(hash, &built.idx).unwrap();
        assert_eq!(ids.len(), 103);
        assert!(is_whole(hash, &built.pack) && !is_whole(hash, &built.pack[1..]));
        assert_eq!(index_ids(hash, &built.idx[..built.idx.len() - 1]), None);
    }

    /// The evidence chain has the empty tree in every commit: a delta of two bytes would be its shortest form,
    /// and git refuses to apply one.
    #[test]
    fn the_empty_tree_after_other_trees_is_one_that_git_unpacks() {
        let repo = TestRepo::new();
        let hash = repo.hash();
        let object = |kind, data| Object::new(hash, kind, data).unwrap();
        let blob = object(Kind::Blob, b"x".to_vec());
        let entry = TreeEntry { mode: Mode::File, name: b"a".to_vec(), id: blob.id };
        let tree = object(Kind::Tree, serialize(&[entry]));
        let built = build(hash, &[blob, tree, object(Kind::Tree, vec![])]).unwrap();
        let dir = repo.path().join(".git/objects/pack");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{}.pack", built.name)), &built.pack).unwrap();
        std::fs::write(dir.join(format!("{}.idx", built.name)), &built.idx).unwrap();
        repo.git(&["index-pack", "--strict", &format!(".git/objects/pack/{}.pack", built.name)]);
        repo.git(&["fsck", "--strict", "--full"]);
    }
}

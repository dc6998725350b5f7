//! Several packs of ours made one (storage P, C5).
//!
//! Contract: pure. Entries are copied as they are, compressed; only the distance of a delta to its base is written
//! anew. What is in several packs is written once. The first state that a pack holds of a document, and the first
//! tree of a directory, had nothing to be a difference to: here they become differences to what an earlier
//! pack holds of the same. A pack that does not read to the last entry is an error: then nothing is merged.

use super::{
    error::StoreError,
    loose::{deflate, inflate},
    object::Kind,
    pack::{self, Built, OFS_DELTA, put_header, put_offset},
    pack_read::{self, Indexed, Stored},
    tree,
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
};
use std::collections::HashMap;

/// First bytes of a blob that make it a state of one document.
const BLOB_CLASS_BYTES: usize = 64;

/// A pack to be merged.
pub(super) struct Source {
    /// Its name, without extension.
    pub(super) name: String,
    /// Its bytes.
    pub(super) pack: Vec<u8>,
    /// Its index.
    pub(super) idx: Vec<u8>,
}

/// Where an object went.
#[derive(Clone, Copy)]
struct Placed {
    offset: u64,
    crc: u32,
    depth: u8,
}

struct Merger {
    hash: HashKind,
    out: Vec<u8>,
    placed: HashMap<Oid, Placed>,
    /// By what they are states of: the object that new first states become differences to.
    anchors: HashMap<Vec<u8>, Oid>,
}

/// Merges packs of this hash, the oldest first.
pub(super) fn merge(hash: HashKind, sources: &[Source]) -> Result<Built, StoreError> {
    let (out, placed, anchors) = (pack::begun(), HashMap::new(), HashMap::new());
    let mut merger = Merger { hash, out, placed, anchors };
    for source in sources {
        let damaged = || StoreError::PackDamaged { name: source.name.clone() };
        let entries = pack_read::index_entries(hash, &source.idx).ok_or_else(damaged)?;
        merger.add(source, entries)?.ok_or_else(damaged)?;
    }
    let placed = merger.placed.iter();
    let entry = |(id, p): (&Oid, &Placed)| Indexed { id: *id, offset: p.offset, crc: p.crc };
    pack::finish(hash, merger.out, placed.map(entry).collect())
}

impl Merger {
    /// None when the pack cannot be read.
    fn add(
        &mut self,
        source: &Source,
        mut entries: Vec<Indexed>,
    ) -> Result<Option<()>, StoreError> {
        entries.sort_by_key(|e| e.offset);
        let Some(end) = source.pack.len().checked_sub(self.hash.id_bytes()) else {
            return Ok(None);
        };
        let ends = entries.iter().skip(1).map(|e| e.offset).chain([end as u64]);
        for (indexed, end) in entries.iter().zip(ends.collect::<Vec<_>>()) {
            if self.placed.contains_key(&indexed.id) {
                continue;
            }
            let Some(raw) = slice(&source.pack, indexed.offset, end) else { return Ok(None) };
            if crc32fast::hash(raw) != indexed.crc {
                return Ok(None);
            }
            let base_of = |back: u64| {
                let at = indexed.offset.checked_sub(back)?;
                let found = entries.binary_search_by_key(&at, |e| e.offset).ok()?;
                Some(entries[found].id)
            };
            if self.copy(indexed.id, raw, base_of)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn copy(
        &mut self,
        id: Oid,
        raw: &[u8],
        base_of: impl Fn(u64) -> Option<Oid>,
    ) -> Result<Option<()>, StoreError> {
        let Some(entry) = pack_read::entry(raw) else { return Ok(None) };
        match entry.stored {
            Stored::Whole(Kind::Commit) => self.put(id, 0, &[raw])?,
            Stored::Whole(kind) => {
                let Some(data) = inflate(entry.body) else { return Ok(None) };
                self.first_state(id, kind, &data, raw)?;
            }
            Stored::Delta(back) => {
                let base = base_of(back).and_then(|base| self.placed.get(&base).copied());
                let Some(base) = base else { return Ok(None) };
                if base.depth >= limits::PACK_MERGED_DEPTH {
                    // Copies of one object in several packs can lengthen chains: this one begins anew.
                    return self.whole(id, base, entry.body);
                }
                let mut distance = Vec::new();
                put_offset(&mut distance, self.out.len() as u64 - base.offset);
                self.put(id, base.depth + 1, &[entry.head, &distance, entry.body])?;
            }
        }
        Ok(Some(()))
    }

    fn put(&mut self, id: Oid, depth: u8, parts: &[&[u8]]) -> Result<(), StoreError> {
        let offset = self.out.len();
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
        let crc = crc32fast::hash(&self.out[offset..]);
        self.placed.insert(id, Placed { offset: offset as u64, crc, depth });
        Ok(())
    }

    /// Stores as a difference what an earlier pack knows an older state of.
    fn first_state(
        &mut self,
        id: Oid,
        kind: Kind,
        data: &[u8],
        raw: &[u8],
    ) -> Result<(), StoreError> {
        let class = class(self.hash, kind, data);
        let anchor = self.anchors.get(&class).and_then(|id| self.placed.get(id)).copied();
        let found = anchor.filter(|a| a.depth < limits::PACK_ANCHOR_DEPTH).and_then(|anchor| {
            let (_, base) = pack_read::object_at(&self.out, anchor.offset)?;
            Some((anchor, pack::delta(&base, data)?))
        });
        if let Some((anchor, delta)) = found {
            let body = deflate(&[&delta], gix::zlib::Compression::DEFAULT)?;
            if body.len() < raw.len() / 2 {
                let mut head = Vec::new();
                put_header(&mut head, OFS_DELTA, delta.len());
                put_offset(&mut head, self.out.len() as u64 - anchor.offset);
                return self.put(id, anchor.depth + 1, &[&head, &body]);
            }
        }
        self.anchors.insert(class, id);
        self.put(id, 0, &[raw])
    }

    /// Stores an object whole that its pack has as a difference to `base`.
    fn whole(&mut self, id: Oid, base: Placed, delta: &[u8]) -> Result<Option<()>, StoreError> {
        let Some((kind, data)) = pack_read::object_at(&self.out, base.offset)
            .and_then(|(kind, base)| Some((kind, pack_read::applied(&base, &inflate(delta)?)?)))
        else {
            return Ok(None);
        };
        let mut head = Vec::new();
        put_header(&mut head, pack::type_of(kind), data.len());
        let body = deflate(&[&data], gix::zlib::Compression::DEFAULT)?;
        self.put(id, 0, &[&head, &body]).map(Some)
    }
}

/// What an object is a state of: a document by its first bytes, a directory by its first and last name.
fn class(hash: HashKind, kind: Kind, data: &[u8]) -> Vec<u8> {
    let mut class = vec![pack::type_of(kind)];
    if kind == Kind::Tree {
        let entries = tree::parse(hash, data).unwrap_or_default();
        for name in [entries.first(), entries.last()].into_iter().flatten().map(|e| &e.name) {
            class.extend_from_slice(name);
            class.push(0);
        }
    } else {
        class.extend_from_slice(&data[..data.len().min(BLOB_CLASS_BYTES)]);
    }
    class
}

fn slice(bytes: &[u8], from: u64, to: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        object::{Object, hash},
        testlab::TestRepo,
        tree::{Entry as TreeEntry, Mode, serialize},
    };
    use proptest::prelude::*;
    use std::collections::HashSet;

    const HASH: HashKind = HashKind::Sha256;

    fn source(objects: &[Object]) -> Source {
        let Built { name, pack, idx } = pack::build(HASH, objects).unwrap();
        Source { name, pack, idx }
    }

    /// A state of a document: the same beginning and end, another middle.
    fn document(which: u8, state: u16) -> Object {
        // Nothing that compresses by itself: what is gained is gained by the difference.
        let noise = |n: u8| hash(HASH, Kind::Blob, &[which, n]).unwrap().to_string();
        let (head, tail) = (noise(0) + &noise(1), noise(2) + &noise(3) + &noise(4));
        Object::new(HASH, Kind::Blob, format!("{head} state {state} {tail}").into_bytes()).unwrap()
    }

    fn directory(documents: &[Object]) -> Object {
        let entry = |(n, o): (usize, &Object)| TreeEntry {
            mode: Mode::File,
            name: format!("{n:03}.json").into_bytes(),
            id: o.id,
        };
        let entries: Vec<TreeEntry> = documents.iter().enumerate().map(entry).collect();
        Object::new(HASH, Kind::Tree, serialize(&entries)).unwrap()
    }

    fn assert_holds(built: &Built, objects: &[Object]) {
        let entries = pack_read::index_entries(HASH, &built.idx).unwrap();
        let all: HashSet<Oid> = objects.iter().map(|o| o.id).collect();
        assert_eq!(entries.len(), all.len());
        for object in objects {
            let at = entries[entries.binary_search_by_key(&object.id, |e| e.id).unwrap()].offset;
            let read = pack_read::object_at(&built.pack, at);
            assert_eq!(read, Some((object.kind, object.data.clone())));
        }
    }

    /// What git says of it: the pack is sound, and so is the repository that holds it alone.
    fn assert_git_agrees(built: &Built, objects: &[Object]) {
        let repo = TestRepo::of(HASH);
        let dir = repo.path().join(".git/objects/pack");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{}.pack", built.name)), &built.pack).unwrap();
        std::fs::write(dir.join(format!("{}.idx", built.name)), &built.idx).unwrap();
        repo.git(&["verify-pack", &format!(".git/objects/pack/{}.idx", built.name)]);
        repo.git(&["index-pack", "--strict", &format!(".git/objects/pack/{}.pack", built.name)]);
        let indexed = std::fs::read(dir.join(format!("{}.idx", built.name))).unwrap();
        assert_eq!(indexed, built.idx, "git makes the same index");
        repo.fsck();
        for object in objects.iter().take(20) {
            let name = object.id.to_string();
            assert_eq!(repo.git_raw(&["cat-file", object.kind.name(), &name]), object.data);
        }
    }

    /// Histories of a few documents, cut into packs that overlap.
    fn packs() -> impl Strategy<Value = Vec<Vec<Object>>> {
        let edits = prop::collection::vec((0..5_u8, any::<u16>(), any::<bool>()), 1..60);
        (edits, 1..6_usize).prop_map(|(edits, packs)| {
            let mut now: Vec<Object> = (0..5).map(|which| document(which, 0)).collect();
            let mut objects = [now.clone(), vec![directory(&now)]].concat();
            let mut cut = Vec::new();
            let per_pack = edits.len().div_ceil(packs);
            for (n, (which, state, again)) in edits.into_iter().enumerate() {
                if n % per_pack == 0 && n > 0 {
                    let kept =
                        if again { objects.split_off(objects.len() / 2) } else { Vec::new() };
                    objects.extend(kept.iter().cloned());
                    cut.push(std::mem::replace(&mut objects, kept));
                }
                now[usize::from(which)] = document(which, state % 20);
                objects.push(now[usize::from(which)].clone());
                objects.push(directory(&now));
            }
            cut.push(objects);
            cut
        })
    }

    proptest! {
        #[test]
        fn merged_packs_read_back_object_by_object(packs in packs()) {
            let sources: Vec<Source> = packs.iter().map(|objects| source(objects)).collect();
            let merged = merge(HASH, &sources).unwrap();
            let all = packs.concat();
            assert_holds(&merged, &all);
            // Merged ones merge as well.
            let half = packs.len() / 2;
            let parts = [&sources[..half], &sources[half..]].map(|part| {
                let Built { name, pack, idx } = merge(HASH, part).unwrap();
                Source { name, pack, idx }
            });
            assert_holds(&merge(HASH, &parts).unwrap(), &all);
        }

        #[test]
        fn a_damaged_pack_is_never_merged(packs in packs(), which: prop::sample::Index, at: prop::sample::Index) {
            let mut sources: Vec<Source> = packs.iter().map(|objects| source(objects)).collect();
            let last = sources.len() - 1;
            let hurt = &mut sources[which.index(last + 1)];
            // Between head and checksum: entries alone.
            let at = 12 + at.index(hurt.pack.len() - 12 - HASH.id_bytes());
            hurt.pack[at] ^= 1;
            match merge(HASH, &sources) {
                Err(e) => {
                    let damaged = matches!(e, StoreError::PackDamaged { .. });
                    prop_assert!(damaged, "{e}");
                }
                // The entry stands in an earlier pack, too, and was taken from there.
                Ok(merged) => assert_holds(&merged, &packs.concat()),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn git_agrees_with_merged_packs(packs in packs()) {
            let sources: Vec<Source> = packs.iter().map(|objects| source(objects)).collect();
            assert_git_agrees(&merge(HASH, &sources).unwrap(), &packs.concat());
        }
    }

    #[test]
    fn first_states_become_differences_to_earlier_packs() {
        let state = |n: u16| (0..50).map(|which| document(which, n)).collect::<Vec<_>>();
        let packs: Vec<Source> = (0..20).map(|n| source(&state(n))).collect();
        let apart: usize = packs.iter().map(|s| s.pack.len()).sum();
        let merged = merge(HASH, &packs).unwrap();
        assert!(merged.pack.len() < apart / 2, "{} of {apart} bytes", merged.pack.len());
        assert_holds(&merged, &(0..20).flat_map(state).collect::<Vec<_>>());
    }

    /// An object that is whole in one pack and deep in the chain of another would pile chain upon chain.
    #[test]
    fn chains_stay_short_however_packs_overlap() {
        let states = |from: u16, to: u16| (from..to).map(|n| document(1, n)).collect::<Vec<_>>();
        let step = u16::from(limits::PACK_DELTA_DEPTH);
        let packs: Vec<Source> =
            (0..6).map(|n| source(&states(n * step, (n + 1) * step + 1))).collect();
        let merged = merge(HASH, &packs).unwrap();
        assert_holds(&merged, &states(0, 6 * step + 1));
        let repo = TestRepo::of(HASH);
        let idx = repo.path().join("merged.idx");
        std::fs::write(&idx, &merged.idx).unwrap();
        std::fs::write(idx.with_extension("pack"), &merged.pack).unwrap();
        let said = repo.git(&["verify-pack", "-v", "merged.idx"]);
        let chains = said.lines().filter_map(|l| l.strip_prefix("chain length = "));
        let longest = chains.filter_map(|l| l.split(':').next()?.parse::<u8>().ok()).max();
        let most = limits::PACK_MERGED_DEPTH;
        assert!(longest.is_some_and(|n| n > limits::PACK_DELTA_DEPTH && n <= most), "{longest:?}");
    }
}

//! Several packs of ours made one (storage P, C5).
//!
//! Contract: pure. Entries are copied as they are, compressed; only the distance of a delta to its base is written
//! anew. What is in several packs is written once. The first state that a pack holds of a document or a directory
//! had nothing to be a difference to: here it becomes one to the last state in an earlier pack that leaves
//! room for what hangs on it already. A pack that does not read to the last entry is an error: then nothing is
//! merged.

use crate::store::{
    delta::delta,
    error::StoreError,
    kin::{Kin, Mark, marks},
    loose::{deflate, inflate},
    object::Kind,
    pack::{self, Built, OFS_DELTA, put_header, put_offset},
    pack_read::{self, Indexed, Stored},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
};
use std::collections::HashMap;

/// A pack to be merged.
pub(in crate::store) struct Source {
    /// Its name, without extension.
    pub(in crate::store) name: String,
    /// Its bytes.
    pub(in crate::store) pack: Vec<u8>,
    /// Its index.
    pub(in crate::store) idx: Vec<u8>,
}

/// Where an object went.
#[derive(Clone, Copy)]
struct Placed {
    offset: u64,
    crc: u32,
    depth: u8,
    /// What it is a state of.
    line: usize,
}

/// The states of one document or directory: each with its depth and offset, the depths rising.
/// Those that a later one is not deeper than are left out.
struct Line {
    kind: Kind,
    states: Vec<(u8, u64)>,
}

struct Merger {
    hash: HashKind,
    out: Vec<u8>,
    placed: HashMap<Oid, Placed>,
    lines: Vec<Line>,
    kin: Kin<usize>,
}

/// An entry to be taken over.
struct Given<'a> {
    id: Oid,
    raw: &'a [u8],
    /// How long the longest chain is that hangs on it.
    height: u8,
}

/// Merges packs of this hash, the oldest first.
pub(in crate::store) fn merge(hash: HashKind, sources: &[Source]) -> Result<Built, StoreError> {
    let (out, placed, lines) = (pack::begun(), HashMap::new(), Vec::new());
    let mut merger = Merger { hash, out, placed, lines, kin: Kin::new() };
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
        let Some(raws) = slices(source, &entries, self.hash) else { return Ok(None) };
        let bases = bases(&entries, &raws);
        let heights = heights(&bases);
        for (at, (indexed, raw)) in entries.iter().zip(raws).enumerate() {
            if self.placed.contains_key(&indexed.id) {
                continue;
            }
            if crc32fast::hash(raw) != indexed.crc {
                return Ok(None);
            }
            let given = Given { id: indexed.id, raw, height: heights[at] };
            let base = bases[at].map(|base| entries[base].id);
            if self.take(&given, base)?.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    }

    fn take(&mut self, given: &Given<'_>, base: Option<Oid>) -> Result<Option<()>, StoreError> {
        let Some(entry) = pack_read::entry(given.raw) else { return Ok(None) };
        match entry.stored {
            Stored::Whole(Kind::Commit) => self.begin(given.id, Kind::Commit, &[], &[given.raw]),
            Stored::Whole(kind) => {
                let Some(data) = inflate(entry.body) else { return Ok(None) };
                self.first_state(given, kind, &data, Some(given.raw))?;
            }
            Stored::Delta(_) => {
                let base = base.and_then(|base| self.placed.get(&base).copied());
                let Some(base) = base else { return Ok(None) };
                if base.depth >= limits::PACK_MERGED_DEPTH {
                    // Copies of one object in several packs can lengthen chains: this one begins anew.
                    let read = pack_read::object_at(&self.out, base.offset);
                    let made = read.and_then(|(kind, base)| {
                        Some((kind, pack_read::applied(&base, &inflate(entry.body)?)?))
                    });
                    let Some((kind, data)) = made else { return Ok(None) };
                    self.first_state(given, kind, &data, None)?;
                } else {
                    let mut distance = Vec::new();
                    put_offset(&mut distance, self.out.len() as u64 - base.offset);
                    let parts = [entry.head, &distance, entry.body];
                    self.put(given.id, base.line, base.depth + 1, &parts);
                }
            }
        }
        Ok(Some(()))
    }

    fn put(&mut self, id: Oid, line: usize, depth: u8, parts: &[&[u8]]) {
        let begin = self.out.len();
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
        let (offset, crc) = (begin as u64, crc32fast::hash(&self.out[begin..]));
        self.placed.insert(id, Placed { offset, crc, depth, line });
        let states = &mut self.lines[line].states;
        while states.last().is_some_and(|(other, _)| *other >= depth) {
            states.pop();
        }
        states.push((depth, offset));
    }

    /// Stores as a difference what an earlier pack knows an older state of, else whole: as it is, if it is whole.
    fn first_state(
        &mut self,
        given: &Given<'_>,
        kind: Kind,
        data: &[u8],
        whole: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let marks = marks(self.hash, kind, data);
        let compressed = |data: &[u8]| deflate(&[data], gix::zlib::Compression::DEFAULT);
        let mut head = Vec::new();
        if let Some(older) = self.older(&marks, given.height, kind, data) {
            put_header(&mut head, OFS_DELTA, older.delta.len());
            put_offset(&mut head, self.out.len() as u64 - older.offset);
            self.kin.note(&marks, older.line);
            let body = compressed(&older.delta)?;
            self.put(given.id, older.line, older.depth + 1, &[&head, &body]);
            return Ok(());
        }
        if let Some(raw) = whole {
            self.begin(given.id, kind, &marks, &[raw]);
        } else {
            put_header(&mut head, pack::type_of(kind), data.len());
            self.begin(given.id, kind, &marks, &[&head, &compressed(data)?]);
        }
        Ok(())
    }

    /// Writes an object whole, as the first of its line.
    fn begin(&mut self, id: Oid, kind: Kind, marks: &[Mark], parts: &[&[u8]]) {
        let line = self.lines.len();
        self.lines.push(Line { kind, states: Vec::new() });
        self.kin.note(marks, line);
        self.put(id, line, 0, parts);
    }

    /// The last state that leaves room for a chain of this height, if a difference to it is worth it.
    fn older(&self, marks: &[Mark], height: u8, kind: Kind, data: &[u8]) -> Option<Older> {
        let line = self.kin.closest(marks).filter(|line| self.lines[*line].kind == kind)?;
        let most = limits::PACK_MERGED_DEPTH.checked_sub(height.checked_add(1)?)?;
        let (depth, offset) = *self.lines[line].states.iter().rfind(|(depth, _)| *depth <= most)?;
        let (_, base) = pack_read::object_at(&self.out, offset)?;
        let delta = delta(&base, data, pack::worth(kind, data.len()))?;
        Some(Older { line, depth, offset, delta })
    }
}

/// An older state, and what makes the new one of it.
struct Older {
    line: usize,
    depth: u8,
    offset: u64,
    delta: Vec<u8>,
}

/// The bytes of each entry, in the order of their offsets; none when they are not all there.
fn slices<'a>(source: &'a Source, entries: &[Indexed], hash: HashKind) -> Option<Vec<&'a [u8]>> {
    let end = source.pack.len().checked_sub(hash.id_bytes())? as u64;
    let ends = entries.iter().skip(1).map(|e| e.offset).chain([end]);
    entries.iter().zip(ends).map(|(e, end)| slice(&source.pack, e.offset, end)).collect()
}

/// For each entry, which one it is a difference to.
fn bases(entries: &[Indexed], raws: &[&[u8]]) -> Vec<Option<usize>> {
    let base = |(indexed, raw): (&Indexed, &&[u8])| match pack_read::entry(raw)?.stored {
        Stored::Whole(_) => None,
        Stored::Delta(back) => {
            let at = indexed.offset.checked_sub(back)?;
            entries.binary_search_by_key(&at, |e| e.offset).ok()
        }
    };
    entries.iter().zip(raws).map(base).collect()
}

/// For each entry, how long the longest chain is that hangs on it.
fn heights(bases: &[Option<usize>]) -> Vec<u8> {
    let mut heights = vec![0_u8; bases.len()];
    for (at, base) in bases.iter().enumerate().rev() {
        if let Some(base) = base {
            heights[*base] = heights[*base].max(heights[at].saturating_add(1));
        }
    }
    heights
}

fn slice(bytes: &[u8], from: u64, to: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::time::Timestamp,
        store::{
            commit::{self, Stamp},
            object::{Object, hash},
            testlab::TestRepo,
            tree::{Entry as TreeEntry, Mode, serialize},
        },
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

    fn event(seq: u16, parent: Option<&Object>, tree: &Object) -> Object {
        let parents: Vec<Oid> = parent.iter().map(|p| p.id).collect();
        let at = Timestamp::from_ms(1_700_000_000_000);
        let who = Stamp { name: "Ada".into(), email: "ada@example.invalid".into(), at };
        let message = format!("session:command-done ses_a: it ended\n\nSeq: {seq}\nKind: a\n");
        commit::encode(&tree.id, &parents, &who, message.as_bytes()).unwrap()
    }

    /// How deep each object lies in its chain, as git counts.
    fn depths(built: &Built) -> Vec<(Kind, u8)> {
        let repo = TestRepo::of(HASH);
        let idx = repo.path().join("merged.idx");
        std::fs::write(&idx, &built.idx).unwrap();
        std::fs::write(idx.with_extension("pack"), &built.pack).unwrap();
        let said = repo.git(&["verify-pack", "-v", "merged.idx"]);
        let depth = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let kind = [Kind::Blob, Kind::Tree, Kind::Commit];
            let kind = kind.into_iter().find(|k| words.get(1) == Some(&k.name()))?;
            Some((kind, words.get(5).map_or(0, |depth| depth.parse().unwrap())))
        };
        said.lines().filter_map(depth).collect()
    }

    /// Packs merged as they come, again and again: differences to earlier packs all the way, and no chain too long.
    #[test]
    fn a_long_history_stays_small_and_shallow() {
        const DOCUMENTS: u16 = 30;
        let mut now: Vec<Object> = (0..30).map(|which| document(which, 0)).collect();
        let mut tip = None;
        let mut all = Vec::new();
        let (mut merged, mut waiting): (Vec<Source>, Vec<Source>) = (Vec::new(), Vec::new());
        for pack in 0..40_u16 {
            let mut objects = if pack == 0 { now.clone() } else { Vec::new() };
            for event_of_pack in 0..10_u16 {
                let n = pack * 10 + event_of_pack;
                let which = n * 7 % DOCUMENTS;
                now[usize::from(which)] = document(u8::try_from(which).unwrap(), n + 1);
                let tree = directory(&now);
                let commit = event(n, tip.as_ref(), &tree);
                tip = Some(commit.clone());
                objects.extend([now[usize::from(which)].clone(), tree, commit]);
            }
            waiting.push(source(&objects));
            all.extend(objects);
            if waiting.len() == 5 {
                merged.append(&mut waiting);
                let Built { name, pack, idx } = merge(HASH, &merged).unwrap();
                merged = vec![Source { name, pack, idx }];
            }
        }
        let Source { name, pack, idx } = merged.remove(0);
        let built = Built { name, pack, idx };
        assert_holds(&built, &all);
        let deepest =
            |kind| depths(&built).into_iter().filter(|(k, _)| *k == kind).map(|d| d.1).max();
        assert!(deepest(Kind::Tree).is_some_and(|n| n <= limits::PACK_MERGED_DEPTH));
        assert!(deepest(Kind::Blob).is_some_and(|n| n <= limits::PACK_MERGED_DEPTH));
        assert_eq!(deepest(Kind::Commit), Some(0));
        let each = built.pack.len() / 400;
        assert!(each < 400, "{each} bytes an event");
        assert_git_agrees(&built, &all);
    }
}

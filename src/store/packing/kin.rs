//! Which object another one is likely to be a later state of (storage P).
//!
//! Contract: pure, and only a guess: whoever uses it compares the bytes. A document is known by its first bytes, which
//! hold its id; a directory by the entries it still has in common with an earlier state, else by its first or last
//! name. A commit is like none before it: as differences they would take less space, and a page of the journal four
//! times as long to read.

use crate::domain::oid::HashKind;
use crate::store::{object::Kind, tree};
use std::{
    collections::{HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

/// First bytes of a blob that make it a state of one document.
const DOCUMENT_BYTES: usize = 64;
/// Entries by which a directory is known: of a larger one those with the lowest marks, which are mostly the same in
/// both states.
const ENTRIES: usize = 64;

/// Something that states of the same have in common, and how much it says.
pub(in crate::store) struct Mark {
    key: u64,
    weight: u32,
}

impl Mark {
    fn new(kind: Kind, weight: u32, what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        (kind, weight, what).hash(&mut hasher);
        Self { key: hasher.finish(), weight }
    }
}

/// The marks of an object.
pub(in crate::store) fn marks(hash: HashKind, kind: Kind, data: &[u8]) -> Vec<Mark> {
    match kind {
        Kind::Blob => vec![Mark::new(kind, 1, &data[..data.len().min(DOCUMENT_BYTES)])],
        Kind::Tree => of_tree(&tree::parse(hash, data).unwrap_or_default()),
        Kind::Commit => Vec::new(),
    }
}

fn of_tree(entries: &[tree::Entry]) -> Vec<Mark> {
    // One entry that is the same says more than both names.
    let child = |e: &tree::Entry| Mark::new(Kind::Tree, 4, (&e.name, e.id.as_bytes()));
    let mut marks: Vec<Mark> = entries.iter().map(child).collect();
    if marks.len() > ENTRIES {
        marks.sort_unstable_by_key(|m| m.key);
        marks.truncate(ENTRIES);
    }
    marks.extend(entries.first().map(|e| Mark::new(Kind::Tree, 2, &e.name)));
    marks.extend(entries.last().map(|e| Mark::new(Kind::Tree, 1, &e.name)));
    marks
}

/// What was last seen with each mark.
pub(in crate::store) struct Kin<T> {
    last: HashMap<u64, T>,
}

impl<T: Copy + Ord> Kin<T> {
    pub(in crate::store) fn new() -> Self {
        Self { last: HashMap::new() }
    }

    /// The one that has most in common with these marks, the latest of several.
    pub(in crate::store) fn closest(&self, marks: &[Mark]) -> Option<T> {
        let mut found: Vec<(T, u32)> =
            marks.iter().filter_map(|m| Some((*self.last.get(&m.key)?, m.weight))).collect();
        found.sort_unstable();
        let groups = found.chunk_by(|(a, _), (b, _)| a == b);
        let votes = groups.map(|g| (g.iter().map(|(_, weight)| weight).sum::<u32>(), g[0].0));
        votes.max().map(|(_, which)| which)
    }

    /// From now on these marks are those of `which`.
    pub(in crate::store) fn note(&mut self, marks: &[Mark], which: T) {
        self.last.extend(marks.iter().map(|m| (m.key, which)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::oid::Oid,
        store::tree::{Entry, Mode, serialize},
    };

    const HASH: HashKind = HashKind::Sha1;

    /// A directory of which the `n`th file is as it was at `at[n]`.
    fn directory(names: &[&str], of: u8, at: &[u8]) -> Vec<u8> {
        let entry = |(name, at): (&&str, &u8)| {
            let mut id = [of; 20];
            id[0] = *at;
            Entry { mode: Mode::File, name: name.as_bytes().to_vec(), id: Oid::from_sha1(id) }
        };
        serialize(&names.iter().zip(at).map(entry).collect::<Vec<_>>())
    }

    /// Notes each of these, and gives the place of the one that `data` is told to be a state of.
    fn closest(kind: Kind, noted: &[&[u8]], data: &[u8]) -> Option<usize> {
        let mut kin = Kin::new();
        for (at, data) in noted.iter().enumerate() {
            kin.note(&marks(HASH, kind, data), at);
        }
        kin.closest(&marks(HASH, kind, data))
    }

    #[test]
    fn a_directory_is_known_by_what_is_still_in_it() {
        let names = ["0", "1", "2"];
        let open = directory(&names, 1, &[1, 1, 1]);
        let closed = directory(&names, 2, &[1, 1, 1]);
        let later = directory(&names, 1, &[2, 1, 2]);
        // The names fit both, and the last one noted is the other.
        assert_eq!(closest(Kind::Tree, &[&open, &closed], &later), Some(0));
        let all_new = directory(&["a.json", "b.json"], 1, &[2, 2]);
        let older = directory(&["a.json"], 1, &[1]);
        assert_eq!(closest(Kind::Tree, &[&older, &open], &all_new), Some(0));
        assert_eq!(closest(Kind::Tree, &[&open], &older), None);
        assert_eq!(closest(Kind::Tree, &[&open, b"no tree"], b"no tree either"), None);
    }

    #[test]
    fn of_a_large_directory_a_part_is_looked_at_and_it_is_the_same_one() {
        let names: Vec<String> = (0..5_000).map(|n| format!("{n:04}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let before = directory(&names[100..4_900], 1, &[1; 5_000]);
        let after = directory(&names, 1, &[1; 5_000]);
        assert!(marks(HASH, Kind::Tree, &after).len() <= ENTRIES + 2);
        let other = directory(&names, 2, &[1; 5_000]);
        assert_eq!(closest(Kind::Tree, &[&before, &other], &after), Some(0));
    }

    #[test]
    fn an_event_has_no_kin() {
        let event = b"tree x\nauthor y\n\nsession:command-done ses_a: it ended\n";
        assert_eq!(closest(Kind::Commit, &[event, event], event), None);
    }

    #[test]
    fn a_document_is_known_by_its_beginning() {
        let state =
            |id: &str, n: u32| format!("{{\"id\": \"{id:064}\", \"last\": {n}}}").into_bytes();
        let noted = [state("a", 1), state("b", 1), state("a", 2)];
        let noted: Vec<&[u8]> = noted.iter().map(Vec::as_slice).collect();
        assert_eq!(closest(Kind::Blob, &noted, &state("a", 3)), Some(2));
        assert_eq!(closest(Kind::Blob, &noted, &state("c", 3)), None);
        assert_eq!(closest(Kind::Blob, &noted, b""), None);
    }
}

//! Building the objects of a batch in memory: entries, state trees, pins.
//!
//! Contract: every object that the new commits need and the old ones do not hold is in the frame, whether or
//! not the object database has it already: what exists there may be gone a moment later (storage W).

use super::{
    Store,
    commit::{self, Stamp},
    error::StoreError,
    journal::{Batch, Edit, NewEntry, Place, Snapshot, Written},
    names::{evidence_ref, journal_ref},
    object::{Kind, Object},
    tree::{self, Change, Mode},
    wal_frame::{Frame, Move, Step},
};
use crate::domain::{ids::WriterId, oid::Oid};
use std::collections::{HashMap, HashSet};

/// A batch as objects.
pub(super) struct Built {
    pub(super) frame: Frame,
    pub(super) written: Vec<Written>,
}

impl Store {
    /// Builds every object of the batch in memory.
    pub(super) fn build(
        &self,
        who: &Stamp,
        writer: &WriterId,
        snapshot: &Snapshot<'_>,
        batch: Batch,
    ) -> Result<Built, StoreError> {
        let mut made = Made { store: self, who, objects: Vec::new(), trees: HashMap::new() };
        let name = journal_ref(writer, snapshot.segment);
        self.require_place(&name, snapshot, &batch)?;
        // Evidence first: git never sees an event without its pin.
        let evidence = evidence_ref(writer, snapshot.segment);
        let mut moves = Vec::from_iter(made.pins(evidence, &batch.pins)?);
        let old = match snapshot.place {
            Place::Within => snapshot.tip.as_ref().map(|t| t.id),
            Place::First | Place::Continues { .. } => None,
        };
        let (mut tip, mut root) = (old, snapshot.tip.as_ref().map(|t| t.tree));
        let mut written = Vec::new();
        for (seq, entry) in (snapshot.next_seq..).zip(batch.entries) {
            let (id, tree) = made.entry(seq, tip, root, entry)?;
            (tip, root) = (Some(id), Some(tree));
            written.push(Written { seq, id });
        }
        let seq = written.last().map_or(snapshot.next_seq - 1, |w| w.seq);
        moves.extend(tip.map(|new| Move { name, old, new }));
        let entries = u32::try_from(written.len()).unwrap_or(u32::MAX);
        let mut seen = HashSet::new();
        let objects = made.objects.into_iter().filter(|o| seen.insert(o.id)).collect();
        Ok(Built { frame: Frame { step: Step { seq, entries, moves }, objects }, written })
    }
}

impl Store {
    /// A segment begins where nothing is yet, its first entry says what it continues and no other does; no batch
    /// is longer than a segment, or a number would be skipped.
    fn require_place(
        &self,
        name: &str,
        snapshot: &Snapshot<'_>,
        batch: &Batch,
    ) -> Result<(), StoreError> {
        let refuse = |reason: String| Err(StoreError::BadEntry { reason });
        let entries = u64::try_from(batch.entries.len()).unwrap_or(u64::MAX);
        if entries > self.segment_events {
            return refuse(format!("{entries} at once, a segment has {}", self.segment_events));
        }
        let expected = match snapshot.place {
            Place::Continues { last, .. } => {
                if let Some(actual) = self.refs.read_sound(name)? {
                    let name = name.to_owned();
                    return Err(StoreError::Diverged { name, actual, ours: last });
                }
                Some(last)
            }
            Place::First | Place::Within => None,
        };
        let mut said = batch.entries.iter().map(|e| commit::continues_in(&e.message));
        if said.next().flatten() != expected || said.any(|c| c.is_some()) {
            return refuse("its Continues trailer is not that of its place".to_owned());
        }
        Ok(())
    }
}

/// Objects of a batch while it is built.
struct Made<'a> {
    store: &'a Store,
    who: &'a Stamp,
    objects: Vec<Object>,
    trees: HashMap<Oid, Vec<u8>>,
}

impl Made<'_> {
    fn keep(&mut self, object: Object) -> Oid {
        let id = object.id;
        self.objects.push(object);
        id
    }

    fn entry(
        &mut self,
        seq: u64,
        parent: Option<Oid>,
        root: Option<Oid>,
        entry: NewEntry,
    ) -> Result<(Oid, Oid), StoreError> {
        let refuse = |reason: String| Err(StoreError::BadEntry { reason });
        let said = commit::seq_in(&entry.message);
        if said != Some(seq) {
            return refuse(format!("its Seq trailer says {said:?}, its number is {seq}"));
        }
        if entry.message.contains(&0) {
            return refuse("its message holds a NUL byte".to_owned());
        }
        let mut changes = Vec::new();
        for edit in entry.edits {
            let (path, to) = match edit {
                Edit::Put { path, data } => {
                    let blob = Object::new(self.store.hash, Kind::Blob, data)?;
                    (path, Some((Mode::File, self.keep(blob))))
                }
                Edit::Remove { path } => (path, None),
            };
            changes.push(Change { path: path.into_bytes(), to });
        }
        let tree = self.edited(root, &changes)?;
        let parents: Vec<Oid> = parent.into_iter().collect();
        let id = self.keep(commit::encode(&tree, &parents, self.who, &entry.message)?);
        Ok((id, tree))
    }

    fn edited(&mut self, root: Option<Oid>, changes: &[Change]) -> Result<Oid, StoreError> {
        let (store, trees) = (self.store, &self.trees);
        let mut load = |id: &Oid| match trees.get(id) {
            Some(data) => Ok(data.clone()),
            None => store.require(id, Kind::Tree),
        };
        let (id, made) = tree::edit(store.hash, root, changes, &mut load)?;
        for object in made {
            self.trees.insert(object.id, object.data.clone());
            self.objects.push(object);
        }
        Ok(id)
    }

    /// One commit per pin; none when there is nothing to pin.
    fn pins(&mut self, name: String, pins: &[Oid]) -> Result<Option<Move>, StoreError> {
        if pins.is_empty() {
            return Ok(None);
        }
        let old = self.store.own_value(&name)?;
        let empty = Object::new(self.store.hash, Kind::Tree, Vec::new())?;
        let tree = empty.id;
        if old.is_none() {
            self.objects.push(empty);
        }
        let mut last = old;
        for pin in pins {
            self.store.require(pin, Kind::Commit)?;
            let parents: Vec<Oid> = last.into_iter().chain([*pin]).collect();
            let message = format!("pin {pin}\n");
            let commit = commit::encode(&tree, &parents, self.who, message.as_bytes())?;
            last = Some(self.keep(commit));
        }
        Ok(last.map(|new| Move { name, old, new }))
    }
}

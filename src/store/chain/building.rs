//! Building the objects of a batch in memory: entries, state trees, pins.
//!
//! Contract: every object that the new commits need and the old ones do not hold is in the frame, whether or
//! not the object database has it already: what exists there may be gone a moment later (storage W).

use crate::store::{
    commit::{self, Stamp},
    error::StoreError,
    group::Sight,
    journal::{Batch, Edit, NewEntry, Place, Tip, Written},
    names::{evidence_ref, journal_dir, journal_ref},
    object::{Kind, Object},
    tree::{self, Change, Mode},
};
use crate::{
    domain::{ids::WriterId, oid::Oid},
    limits,
};
use std::collections::HashMap;

/// A batch as objects, made on the tip of its group.
pub(in crate::store) struct Built {
    pub(in crate::store) objects: Vec<Object>,
    pub(in crate::store) written: Vec<Written>,
    /// The last entry once this batch is in.
    pub(in crate::store) tip: Option<Tip>,
    /// End of the evidence chain before the group and after this batch, when it or one before it pins.
    pub(in crate::store) evidence: Option<(Option<Oid>, Oid)>,
}

/// Builds every object of the batch in memory.
pub(in crate::store) fn build(
    sight: Sight<'_>,
    who: &Stamp,
    writer: &WriterId,
    batch: Batch,
) -> Result<Built, StoreError> {
    require_size(&batch)?;
    let mut made = Made { sight, who, objects: Vec::new(), trees: HashMap::new() };
    let segment = sight.group.segment;
    let name = journal_ref(writer, segment);
    require_place(sight, &name, &batch)?;
    let evidence = made.pins(&evidence_ref(writer, segment), &batch.pins)?;
    let (mut parent, mut root) = (sight.group.parent(), sight.group.tip.as_ref().map(|t| t.tree));
    let mut tip = sight.group.tip.clone();
    let mut written = Vec::new();
    for (seq, entry) in (sight.group.next_seq()..).zip(batch.entries) {
        let (id, tree) = made.entry(seq, parent, root, entry)?;
        (parent, root) = (Some(id), Some(tree));
        let (writer, dir) = (writer.clone(), journal_dir(writer));
        tip = Some(Tip { writer, dir, segment, seq, id, tree });
        written.push(Written { seq, id });
    }
    Ok(Built { objects: made.objects, written, tip, evidence })
}

/// Refuses what no frame holds before any time is spent on it: others wait.
fn require_size(batch: &Batch) -> Result<(), StoreError> {
    let of_edit = |edit: &Edit| match edit {
        Edit::Put { data, .. } => data.len() as u64,
        Edit::Remove { .. } => 0,
    };
    let of_entry = |e: &NewEntry| e.message.len() as u64 + e.edits.iter().map(of_edit).sum::<u64>();
    let (actual, limit) = (batch.entries.iter().map(of_entry).sum(), limits::WAL_FRAME_BYTES);
    if actual > limit {
        return Err(StoreError::TooLarge { what: "frame", actual, limit });
    }
    Ok(())
}

/// A segment begins where nothing is yet, its first entry says what it continues and no other does; no batch
/// is longer than a segment, or a number would be skipped.
fn require_place(sight: Sight<'_>, name: &str, batch: &Batch) -> Result<(), StoreError> {
    let refuse = |reason: String| Err(StoreError::BadEntry { reason });
    let entries = u64::try_from(batch.entries.len()).unwrap_or(u64::MAX);
    if entries > sight.store.segment_events {
        return refuse(format!("{entries} at once, a segment has {}", sight.store.segment_events));
    }
    let expected = match sight.group.place {
        Place::Continues { last, .. } => {
            if let Some(actual) = sight.store.refs.read_sound(name)? {
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

/// Objects of a batch while it is built.
struct Made<'a> {
    sight: Sight<'a>,
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
                    let blob = Object::new(self.sight.store.hash, Kind::Blob, data)?;
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
        let (sight, trees) = (self.sight, &self.trees);
        let mut load = |id: &Oid| match trees.get(id) {
            Some(data) => Ok(data.clone()),
            None => sight.require(id, Kind::Tree),
        };
        let (id, made) = tree::edit(sight.store.hash, root, changes, &mut load)?;
        for object in made {
            self.trees.insert(object.id, object.data.clone());
            self.objects.push(object);
        }
        Ok(id)
    }

    /// One commit per pin on the chain as the group has it; none when nobody pinned anything.
    fn pins(&mut self, name: &str, pins: &[Oid]) -> Result<Option<(Option<Oid>, Oid)>, StoreError> {
        let Some(first) = pins.first() else { return Ok(self.sight.group.evidence) };
        let (old, mut last) = match self.sight.group.evidence {
            Some((old, last)) => (old, Some(last)),
            None => {
                let old = self.sight.store.own_value(name)?;
                (old, old)
            }
        };
        let empty = Object::new(self.sight.store.hash, Kind::Tree, Vec::new())?;
        let tree = empty.id;
        if old.is_none() {
            self.objects.push(empty);
        }
        let mut new = *first;
        for pin in pins {
            self.sight.require(pin, Kind::Commit)?;
            new = self.keep(pin_of(pin, last, &tree, self.who)?);
            last = Some(new);
        }
        Ok(Some((old, new)))
    }
}

/// A commit that keeps another one alive, behind the pins before it; `empty` is the tree of nothing.
pub(in crate::store) fn pin_of(
    pinned: &Oid,
    last: Option<Oid>,
    empty: &Oid,
    who: &Stamp,
) -> Result<Object, StoreError> {
    let parents: Vec<Oid> = last.into_iter().chain([*pinned]).collect();
    Ok(commit::encode(empty, &parents, who, format!("pin {pinned}\n").as_bytes())?)
}

//! Notes: lines for people on commits, in git's own layout (decisions 11, 26).
//!
//! Contract: `git notes add` has no compare-and-swap, so notes are written here: read, edit, move the ref
//! only from the value that was read, and again. Nothing of a foreign writer is lost by us. A projection
//! of the journal, yet its objects pass through the log: `git gc` may run between object and ref.

use crate::store::{
    Store,
    commit::{self, Stamp},
    error::StoreError,
    object::{Kind, Object},
    tree::{Change, Entry, Mode, edit},
    wal::Look,
    wal_frame::{Frame, Step},
};
use crate::{domain::oid::Oid, limits, sys::files::Durable};
use rand_core::{OsRng, RngCore};
use std::time::Duration;

/// Longest pause between two tries, microseconds.
const JITTER_US: u32 = 2_000;
const MESSAGE: &[u8] = b"Notes written by git agentproto\n";

/// Where the note of one object is, or belongs.
struct Place {
    path: Vec<u8>,
    blob: Option<Oid>,
    /// Moves of other notes that make room: a directory that grew too wide is split.
    split: Vec<Change>,
}

impl Store {
    /// The note on `target`.
    ///
    /// # Errors
    /// The notes cannot be read.
    pub fn note(&self, notes_ref: &str, target: &Oid) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(tip) = self.refs.read(notes_ref)? else { return Ok(None) };
        let root = self.notes_root(&tip)?;
        match self.place(Some(root), target)?.blob {
            Some(id) => self.require(&id, Kind::Blob).map(Some),
            None => Ok(None),
        }
    }

    /// Changes the note on `target`: `edit` gets the present note and gives the new one, none to remove
    /// it. It may be called several times. A note that stays as it is writes nothing.
    ///
    /// # Errors
    /// The notes cannot be read or written, or somebody moves the ref at every try.
    pub fn edit_note(
        &self,
        who: &Stamp,
        notes_ref: &str,
        target: &Oid,
        edit: impl Fn(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let lock = self.lock()?;
        self.refs.sweep()?;
        self.refs.ensure_packed()?;
        for _ in 0..limits::NOTES_CAS_TRIES {
            // Emptied by a power cut: the journal restores the rest (decisions 11).
            let tip = self.refs.read_sound(notes_ref)?;
            let Some(objects) = self.noted(who, tip, target, &edit)? else { return Ok(()) };
            let Some(new) = objects.last().map(|o| o.id) else { return Ok(()) };
            self.keep_safe(objects)?;
            match self.swap_logged(notes_ref, tip, &new, self.ref_wait_ms) {
                Ok(()) => {
                    let sealing = self.seal_if_due(&lock, Look::InTurn);
                    drop(lock);
                    // The note is written; what cannot be packed now is packed after the next append.
                    let _ = sealing.and_then(|sealing| self.pack_after(sealing));
                    return Ok(());
                }
                Err(StoreError::RefMoved { .. }) => {
                    let pause = OsRng.next_u32() % JITTER_US;
                    std::thread::sleep(Duration::from_micros(u64::from(pause)));
                }
                Err(e) => return Err(e),
            }
        }
        let tries = limits::NOTES_CAS_TRIES;
        Err(StoreError::NotesContended { name: notes_ref.to_owned(), tries })
    }

    fn notes_root(&self, tip: &Oid) -> Result<Oid, StoreError> {
        let data = self.require(tip, Kind::Commit)?;
        let parsed = commit::parse(self.hash, &data).map(|c| c.tree);
        parsed.ok_or_else(|| StoreError::WrongObject {
            id: *tip,
            expected: "commit",
            reason: "it is malformed".to_owned(),
        })
    }

    /// The objects of the edited notes, the commit last; none when nothing changes.
    fn noted(
        &self,
        who: &Stamp,
        tip: Option<Oid>,
        target: &Oid,
        edit_note: &impl Fn(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<Object>>, StoreError> {
        let root = tip.map(|t| self.notes_root(&t)).transpose()?;
        let place = self.place(root, target)?;
        let old = place.blob.map(|id| self.require(&id, Kind::Blob)).transpose()?;
        let new = edit_note(old.as_deref());
        if new == old {
            return Ok(None);
        }
        let blob = new.map(|data| Object::new(self.hash, Kind::Blob, data)).transpose()?;
        let mut changes = place.split;
        let to = blob.as_ref().map(|b| (Mode::File, b.id));
        changes.push(Change { path: place.path, to });
        let (tree, trees) =
            edit(self.hash, root, &changes, &mut |id| self.require(id, Kind::Tree))?;
        let parents: Vec<Oid> = tip.into_iter().collect();
        let commit = commit::encode(&tree, &parents, who, MESSAGE)?;
        Ok(Some(blob.into_iter().chain(trees).chain([commit]).collect()))
    }

    /// Finds the note at any depth of fan-out, else the place where it fits what is there.
    fn place(&self, root: Option<Oid>, target: &Oid) -> Result<Place, StoreError> {
        let hex = target.to_string();
        let (mut above, mut rest) = (String::new(), hex.as_str());
        let mut next = root;
        loop {
            let entries = next.map_or(Ok(Vec::new()), |id| self.tree(&id))?;
            let path = format!("{above}{rest}").into_bytes();
            if let Some(leaf) =
                entries.iter().find(|e| e.name == rest.as_bytes() && e.mode != Mode::Tree)
            {
                return Ok(Place { path, blob: Some(leaf.id), split: Vec::new() });
            }
            let (dir, below) = rest.split_at(2);
            let found = entries.iter().find(|e| e.name == dir.as_bytes() && e.mode == Mode::Tree);
            let leaves: Vec<&Entry> = entries
                .iter()
                .filter(|e| e.name.len() == rest.len() && e.mode != Mode::Tree)
                .collect();
            let fanned = entries.iter().any(|e| e.name.len() == 2 && e.mode == Mode::Tree);
            let full = leaves.len() >= limits::NOTES_PER_DIRECTORY;
            if found.is_none() && !full && (!leaves.is_empty() || !fanned) {
                return Ok(Place { path, blob: None, split: Vec::new() });
            }
            let Some(found) = found else {
                let path = format!("{above}{dir}/{below}").into_bytes();
                let split = if full { split(&above, &leaves) } else { Vec::new() };
                return Ok(Place { path, blob: None, split });
            };
            next = Some(found.id);
            above = format!("{above}{dir}/");
            rest = below;
        }
    }

    /// Through the log where there is one, so that no prune gets between object and ref.
    fn keep_safe(&self, objects: Vec<Object>) -> Result<(), StoreError> {
        let seq = self.with_wal(|wal| Ok(wal.map(|w| w.seq())))?;
        let durable = if seq.is_some() { Durable::No } else { Durable::Yes };
        let step = |seq| Step { seq, entries: 0, moves: Vec::new() };
        let frame = Frame { step: step(seq.unwrap_or(0)), objects };
        if seq.is_some() {
            self.push(&frame)?;
        }
        frame.objects.iter().try_for_each(|o| self.loose.write(o, durable))
    }
}

/// Moves every note of a directory one level down.
fn split(above: &str, leaves: &[&Entry]) -> Vec<Change> {
    let mut changes = Vec::new();
    for leaf in leaves {
        let (dir, below) = leaf.name.split_at(2);
        let from = [above.as_bytes(), &leaf.name].concat();
        let to = [above.as_bytes(), dir, b"/", below].concat();
        changes.push(Change { path: from, to: None });
        changes.push(Change { path: to, to: Some((leaf.mode, leaf.id)) });
    }
    changes
}

//! Mending what the store by itself only reports: for a person who asks for it.
//!
//! Contract: nothing is deleted but a `.keep` of ours. A damaged log is put aside under a name that is kept, and only
//! when everything that can still be read of it is in the object store, and every entry that our refs name can
//! be read without it.

use crate::store::{
    Store, batch, commit,
    error::StoreError,
    names::{chain_parts, evidence_dir, journal_dir},
    object::Kind,
    recovery::Depth,
    salvage::salvaged,
    wal_frame::{Frame, Move},
};
use crate::{
    domain::time::Timestamp,
    sys::files::{self, Durable},
};
use std::path::{Path, PathBuf};

/// What became of a damaged log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutAside {
    /// Where its files are now.
    pub files: Vec<PathBuf>,
    /// Objects that only the log had.
    pub objects: u64,
    /// Refs that were behind what could still be read of it.
    pub refs: Vec<String>,
    /// Files, as they were called, of which nothing behind so many bytes was looked at: no write of ours reaches there.
    pub unsearched: Vec<(PathBuf, u64)>,
}

impl Store {
    /// Puts a damaged write-ahead log aside, so that the next append begins a new one from what the refs hold; none
    /// when the log is sound. What can still be read of it is made visible to git first.
    ///
    /// # Errors
    /// An entry that our refs name cannot be read without the log, or something cannot be written: then the log
    /// is where it was.
    pub fn put_log_aside(&self) -> Result<Option<PutAside>, StoreError> {
        let _packing = self.require_pack_lock()?;
        let _journal = self.lock()?;
        if self.log_damage()?.is_none() {
            return Ok(None);
        }
        let mut done = PutAside::default();
        let own = self.writer()?;
        let mut frames = Vec::new();
        for path in &self.wal_paths.files {
            let found = salvaged(path, self.hash)?;
            done.unsearched.extend(found.ended_at.map(|at| (path.clone(), at)));
            frames.extend(found.frames);
        }
        frames.sort_by_key(|(epoch, _)| *epoch);
        let batches: Vec<String> =
            frames.iter().filter_map(|(_, frame)| batch::own_name(&frame.step)).collect();
        for (_, frame) in frames {
            // Of another clone's log nothing belongs here.
            let foreign = |m: &Move| chain_parts(&m.name).map(|(writer, _)| writer) != own;
            if own.is_none() || !frame.step.moves.iter().any(foreign) {
                self.make_visible(&frame, &mut done)?;
            }
        }
        self.require_readable()?;
        // What the log can no longer prove must not be in the page cache alone.
        self.loose.sync_all()?;
        self.packs.sync_all(&batches)?;
        let dir = self.agent.join("damaged");
        files::make_dirs(&dir)?;
        for path in &self.wal_paths.files {
            if files::is_there(path)? {
                let kept = free_name(&dir, path)?;
                files::rename(path, &kept)?;
                done.files.push(kept);
            }
        }
        files::sync_dir(&dir)?;
        files::sync_dir(&self.agent)?;
        Ok(Some(done))
    }

    fn make_visible(&self, frame: &Frame, done: &mut PutAside) -> Result<(), StoreError> {
        for object in &frame.objects {
            if !matches!(self.odb.find(&object.id), Ok(Some(there)) if there == *object) {
                self.loose.write(object, Durable::No)?;
                done.objects += 1;
            }
        }
        for m in &frame.step.moves {
            // Others are older news, or belong behind a frame that cannot be read.
            if self.refs.read_sound(&m.name)? == m.old {
                self.refs.swap(&m.name, m.old, &m.new, self.ref_wait_ms)?;
                done.refs.push(m.name.clone());
            }
        }
        Ok(())
    }

    /// Every entry and pin of ours can be read from the object store, and so can the state at the end; the refs that
    /// name them are synced.
    fn require_readable(&self) -> Result<(), StoreError> {
        let Some(writer) = self.writer()? else { return Ok(()) };
        for name in self.refs.names(&journal_dir(&writer))? {
            let mut next = self.refs.read(&name)?;
            if let Some(tip) = next {
                self.documents(&self.entry(&tip)?.tree, "")?;
            }
            while let Some(id) = next {
                let entry = self.entry(&id)?;
                self.tree(&entry.tree)?;
                next = entry.parent;
            }
            self.refs.sync(&name)?;
        }
        for name in self.refs.names(&evidence_dir(&writer))? {
            let mut next = self.refs.read(&name)?;
            while let Some(id) = next {
                let pin = self.require(&id, Kind::Commit)?;
                let parents = commit::parse(self.hash, &pin).map(|c| c.parents).unwrap_or_default();
                next = parents.first().copied().filter(|_| parents.len() > 1);
            }
            self.refs.sync(&name)?;
        }
        Ok(())
    }

    /// Finishes what dead processes left to be packed, and merges; gives the number of packs that were merged.
    ///
    /// # Errors
    /// Somebody packs all the time, or a step fails.
    pub fn finish_packs(&self) -> Result<u64, StoreError> {
        let packing = self.require_pack_lock()?;
        self.pack_sealed(&packing)?;
        drop(packing);
        self.merge_packs()
    }

    /// Packs that keep out of every repack although no list of ours names them any more: `agentproto/` was removed
    /// meanwhile.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn orphan_packs(&self) -> Result<Vec<String>, StoreError> {
        let listed = self.packs.kept()?;
        let mut names = self.packs.with_our_keep()?;
        names.retain(|name| !listed.contains(name));
        Ok(names)
    }

    /// Lets repacks have packs that were kept for a pin and are older than `age_ms`, listed or orphaned: either the pin
    /// never came, or git has seen it long since. Only their `.keep` goes: what nothing reaches is git's to
    /// remove. Gives their names: none while git does not show all pins yet.
    ///
    /// # Errors
    /// They cannot be listed, or a file cannot be removed.
    pub fn release_stale_packs(
        &self,
        now: Timestamp,
        age_ms: u64,
    ) -> Result<Vec<String>, StoreError> {
        let journal = self.lock()?;
        let due = self.recover(&journal, Depth::Due, self.ref_wait_ms)?;
        if due.pending.is_some() {
            return Ok(Vec::new());
        }
        let mut names = self.packs.kept()?;
        names.extend(self.orphan_packs()?);
        let names = self.packs.kept_before(names, now, age_ms);
        self.packs.release(&names)?;
        Ok(names)
    }
}

/// A name in `dir` that nothing has, after that of a file elsewhere.
pub(in crate::store) fn free_name(dir: &Path, path: &Path) -> Result<PathBuf, StoreError> {
    let stem = path.file_name().unwrap_or_default().to_string_lossy();
    let mut number = 1_u64;
    loop {
        let name = dir.join(format!("{stem}.{number}"));
        if !files::is_there(&name)? {
            return Ok(name);
        }
        number += 1;
    }
}

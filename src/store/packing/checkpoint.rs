//! Checkpoints: the only thing that ever empties the write-ahead log (storage C, H).
//!
//! Contract: sealing happens under the journal lock and only while our refs show the last frame; packing happens
//! outside it, under the packing lock, from the log's own bytes, never from what lies in the object store. Sealed
//! frames count until their pack is synced, so whoever dies at whatever step leaves work that the next one
//! finds and does again. The locks are taken in the order merging, packing, journal; nobody waits for one while holding a later one. No failure here concerns an entry: they are recorded before.

use crate::store::{
    Store, batch, commit,
    error::StoreError,
    object::{Kind, Object},
    pack,
    wal::Look,
    wal_frame::Frame,
};
use crate::{
    domain::oid::Oid,
    limits,
    sys::{
        files,
        lock::{KernelLock, LockError},
    },
};
use std::{collections::HashSet, path::PathBuf};

/// What became of a wish to seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what was sealed must be packed"]
pub(in crate::store) enum Sealing {
    /// There was no reason, or git does not show the last frame yet.
    NotDue,
    /// The frames so far wait for their pack.
    Done,
    /// It is due, and the frames sealed before still wait for theirs.
    Blocked,
}

impl Store {
    /// Seals when enough frames came together or git lost objects of some.
    pub(in crate::store) fn seal_if_due(
        &self,
        lock: &KernelLock,
        look: Look,
    ) -> Result<Sealing, StoreError> {
        let (full, sure) = self
            .with_wal(|wal| Ok(wal.map_or((false, false), |w| (w.is_full(), w.is_same_boot()))))?;
        // The next epoch is one of this boot: what a power cut may have hurt must have been mended before.
        let mended = sure || files::boot_id().is_none();
        if !mended {
            return Ok(Sealing::NotDue);
        }
        let lost = match self.has_lost(look) {
            // A log that is full is sealed whether this can be told or not.
            Err(_) if full => false,
            other => other?,
        };
        let healed = lost && self.show_again().unwrap_or(false);
        if !full && !lost {
            return Ok(Sealing::NotDue);
        }
        let sealing = self.seal(lock)?;
        // What is shown again can wait for its checkpoint while another one is made; a log that is full cannot.
        let waits = sealing == Sealing::Blocked && healed && !full;
        Ok(if waits { Sealing::NotDue } else { sealing })
    }

    /// Seals, if git shows all of it.
    pub(in crate::store) fn seal(&self, _lock: &KernelLock) -> Result<Sealing, StoreError> {
        let tips = self.with_wal(|wal| Ok(wal.map(|w| w.tips().clone())))?;
        let Some(tips) = tips else { return Ok(Sealing::NotDue) };
        if !self.behind(&tips)?.is_empty() {
            return Ok(Sealing::NotDue);
        }
        let tips = self.without_finished(tips)?;
        let sealed = self.with_wal(|wal| wal.map_or(Ok(false), |w| w.seal(tips)))?;
        crate::store::failpoint::reached("sealed")?;
        Ok(if sealed { Sealing::Done } else { Sealing::Blocked })
    }

    /// True when git no longer has an object of the log. A `git prune` that read the refs before they moved takes
    /// what was written meanwhile, and until that is mended git's own `gc` fails. Writing them loose again
    /// would not do: the same prune takes them again. A pack it leaves alone.
    pub(in crate::store) fn has_lost(&self, look: Look) -> Result<bool, StoreError> {
        let seen = |pack: &str| self.packs.is_seen(pack);
        let ids =
            self.with_wal(|wal| wal.map_or(Ok(Vec::new()), |w| w.ids_to_look_for(look, seen)))?;
        for id in &ids {
            if self.is_gone(id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// True when git has this object neither loose nor packed.
    pub(in crate::store) fn is_gone(&self, id: &Oid) -> Result<bool, StoreError> {
        Ok(!self.loose.is_there(id) && !self.odb.has(id)?)
    }

    /// Packs what is sealed, whoever sealed it, and then what is to be sealed next, if that had to wait. What dead
    /// packers left goes. Call it without the journal lock. Somebody else who is at it is left to it.
    ///
    /// # Errors
    /// Nothing is lost: the frames stay in the log.
    pub(in crate::store) fn pack_after(&self, sealing: Sealing) -> Result<(), StoreError> {
        let blocked = sealing == Sealing::Blocked;
        if !blocked && !self.has_sealed()? && !self.packs.has_staged()? {
            return Ok(());
        }
        let wait_ms = if blocked { limits::PACK_LOCK_WAIT_MS } else { 0 };
        let Some(packing) = self.pack_lock(wait_ms)? else { return Ok(()) };
        self.pack_sealed(&packing)?;
        if blocked {
            let journal = self.lock()?;
            let sealing = self.seal_if_due(&journal, Look::InTurn)?;
            drop(journal);
            if sealing == Sealing::Done {
                self.pack_sealed(&packing)?;
            }
        }
        drop(packing);
        // Merging saves space and nothing else: what fails now is tried again after the next pack, and `fsck` tells
        // what fails always.
        let _ = self.merge_packs();
        Ok(())
    }

    fn has_sealed(&self) -> Result<bool, StoreError> {
        self.with_wal(|wal| Ok(wal.is_some_and(|w| w.sealed_epoch().is_some())))
    }

    /// None when somebody else held it all the time.
    pub(in crate::store) fn pack_lock(
        &self,
        wait_ms: u64,
    ) -> Result<Option<KernelLock>, StoreError> {
        files::make_dirs(&self.agent.join("packing"))?;
        match KernelLock::acquire(&self.pack_lock_path(), wait_ms) {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::Held { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    pub(in crate::store) fn pack_lock_path(&self) -> PathBuf {
        self.agent.join("packing/lock")
    }

    /// The packing lock, which somebody else may keep for too long.
    pub(in crate::store) fn require_pack_lock(&self) -> Result<KernelLock, StoreError> {
        let waited_ms = limits::PACK_LOCK_WAIT_MS;
        let held = || LockError::Held { path: self.pack_lock_path(), waited_ms };
        Ok(self.pack_lock(waited_ms)?.ok_or_else(held)?)
    }

    /// Packs the sealed frames, if there are any, and says that they count no more.
    pub(in crate::store) fn pack_sealed(&self, packing: &KernelLock) -> Result<(), StoreError> {
        self.packs.sweep_packing()?;
        let sealed = self.with_wal(|wal| {
            let Some(wal) = wal else { return Ok(None) };
            Ok(wal.sealed_epoch().zip(Some(wal.sealed_frames()?)))
        })?;
        let Some((epoch, frames)) = sealed else { return Ok(()) };
        let pinned = self.pack(packing, frames)?;
        let _journal = self.lock()?;
        self.packs.release(&pinned)?;
        self.packs.sweep_unindexed()?;
        crate::store::failpoint::reached("released")?;
        self.with_wal(|wal| wal.map_or(Ok(()), |w| w.retire(epoch)))?;
        crate::store::failpoint::reached("retired")
    }

    /// Makes the pack and removes the copies, loose and of batches; gives the kept packs that it pins something of. The
    /// copies go before the frames cease to count: a kill in between is made good by doing all of it again.
    fn pack(&self, _packing: &KernelLock, frames: Vec<Frame>) -> Result<Vec<String>, StoreError> {
        let batches = batch::pack_names(&frames);
        let objects = each_once(frames);
        if !objects.is_empty() {
            self.packs.place(&pack::build(self.hash, &objects)?)?;
            crate::store::failpoint::reached("packed")?;
        }
        for object in &objects {
            self.loose.remove(&object.id)?;
            crate::store::failpoint::reached("copy removed")?;
        }
        self.packs.remove_unsynced(&batches)?;
        self.packs.kept_with(&parents_in(&objects))
    }

    /// Packs all frames, sealed or not, for a log that ends. Nobody is waited for, as the journal lock is held.
    pub(in crate::store) fn pack_all(&self, _journal: &KernelLock) -> Result<(), StoreError> {
        let held = || LockError::Held { path: self.pack_lock_path(), waited_ms: 0 };
        let packing = self.pack_lock(0)?.ok_or_else(held)?;
        self.packs.sweep_packing()?;
        let frames = self.logged()?;
        let pinned = self.pack(&packing, frames)?;
        self.packs.release(&pinned)
    }
}

/// Objects of the frames, each once, in order.
pub(in crate::store) fn each_once(frames: Vec<Frame>) -> Vec<Object> {
    let mut seen = HashSet::new();
    frames.into_iter().flat_map(|f| f.objects).filter(|o| seen.insert(o.id)).collect()
}

/// What the commits among these objects name as parents: the pinned ones are among them.
fn parents_in(objects: &[Object]) -> HashSet<Oid> {
    let commits = objects.iter().filter(|o| o.kind == Kind::Commit);
    commits.filter_map(|o| commit::parse(o.id.hash(), &o.data)).flat_map(|c| c.parents).collect()
}

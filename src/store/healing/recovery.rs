//! Making git's view agree with the write-ahead log again (storage R).
//!
//! Contract: only under the journal lock. Every step can be interrupted and done again. A ref that was
//! only behind is moved forward, one that is ahead is kept; anything else is diverged: nothing is touched.
//! The log is emptied by checkpoints alone. A log that is damaged stops whoever writes; readers go by the refs.

use crate::store::{
    Store,
    checkpoint::{Sealing, each_once},
    commit,
    error::StoreError,
    git::GitError,
    loose::LooseState,
    names::journal_parts,
    object::{Kind, Object},
    wal::Look,
    wal_frame::{Frame, Move, Step},
    writer,
};
use crate::{
    domain::oid::Oid,
    limits,
    sys::{
        files::{self, Durable},
        lock::KernelLock,
    },
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// Objects written again from the log.
    pub objects: u64,
    /// Refs moved to where the log says.
    pub refs: Vec<String>,
    /// Files that dead processes had left.
    pub leftovers: u64,
    /// A ref that could not be moved yet because another program holds its lock.
    pub pending: Option<String>,
}

impl Recovered {
    /// True when something was lost from git's view that a journal reader should hear of.
    #[must_use]
    pub fn is_notable(&self) -> bool {
        self.objects > 0 || !self.refs.is_empty()
    }

    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        self.refs.extend(other.refs);
        self.leftovers += other.leftovers;
        self.pending = other.pending;
    }
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Depth {
    /// Only what the refs and the boot id call for.
    Due,
    /// Everything.
    Full,
}

/// What the log says, taken out of it.
struct Known {
    seq: u64,
    tips: BTreeMap<String, Oid>,
    same_boot: bool,
}

impl Store {
    /// Takes the journal lock and checks every frame and ref; packs what waits for it.
    ///
    /// # Errors
    /// The journal is diverged or corrupt, or something cannot be written.
    pub fn fsck_wal(&self) -> Result<Recovered, StoreError> {
        let lock = self.lock()?;
        let mut done = self.recover(&lock, Depth::Full, self.ref_wait_ms)?;
        let tip = self.own_tip()?;
        let whole = writer::require_whole(self, &lock, tip.clone())?;
        if let Some(back) = whole.filter(|t| Some(t) != tip.as_ref()) {
            done.refs.push(back.name());
        }
        drop(lock);
        self.pack_after(Sealing::NotDue)?;
        Ok(done)
    }

    pub(in crate::store) fn recover_if_free(&self) -> Result<(), StoreError> {
        if !self.wal_paths.any()? {
            return Ok(());
        }
        match self.try_recover() {
            // Where nothing can be written, what is there is read as it is, and beside a damaged log the refs are: who
            // appends is told.
            Err(StoreError::File(e)) if e.is_read_only() || e.is_no_space() => Ok(()),
            Err(StoreError::CorruptWal { .. }) => Ok(()),
            other => other,
        }
    }

    fn try_recover(&self) -> Result<(), StoreError> {
        files::make_dirs(&self.agent.join("tmp"))?;
        let Some(lock) = KernelLock::try_acquire(&self.agent.join("lock"))? else { return Ok(()) };
        self.recover(&lock, Depth::Due, 0)?;
        drop(lock);
        // The entries are safe in the log; a reader must not fail because they could not be packed.
        let _ = self.pack_after(Sealing::NotDue);
        Ok(())
    }

    /// Recovers, remembering what was done until an append records it. What it sealed is packed by whoever lets go of
    /// the lock.
    pub(in crate::store) fn recover(
        &self,
        lock: &KernelLock,
        depth: Depth,
        wait_ms: u64,
    ) -> Result<Recovered, StoreError> {
        // Temporary files are written under the lock alone: whoever left one is dead. A kill while a note was
        // written leaves no ref behind its place, so this cannot wait for a reason to recover.
        let leftovers = self.refs.sweep()? + self.packs.sweep_staged()?;
        let mut done = Recovered { leftovers, ..Recovered::default() };
        let Some(known) = self.known()? else { return Ok(done) };
        let thorough = depth == Depth::Full || !known.same_boot;
        let behind = self.behind(&known.tips)?;
        if !thorough && behind.is_empty() {
            // Git's view alone is at stake: what fails here is done by the next who looks.
            if self.has_lost(Look::Recent).is_ok_and(|lost| lost) {
                let _ = self.show_again();
                let _ = self.seal(lock);
            }
            return Ok(done);
        }
        done.leftovers += self.packs.sweep_unindexed()?;
        if thorough {
            self.drop_ghosts()?;
        }
        let frames = self.logged()?;
        done.leftovers += self.drop_broken_batches(&frames)?;
        done.objects = self.rewrite_objects(frames)?;
        crate::store::failpoint::reached("objects recovered")?;
        let mut tips = known.tips.clone();
        for name in behind {
            self.settle(&name, &mut tips, wait_ms, &mut done)?;
        }
        self.go_on_from(&known, &tips)?;
        let new_boot = !known.same_boot && files::boot_id().is_some();
        if done.pending.is_none() && (new_boot || done.objects > 0) {
            let _ = self.seal(lock)?;
        }
        self.remember(&done)?;
        Ok(done)
    }

    /// Takes over newer values that refs of ours have got elsewhere: a frame that only tells of the move.
    fn go_on_from(&self, known: &Known, tips: &BTreeMap<String, Oid>) -> Result<(), StoreError> {
        let newer = tips.iter().filter(|(name, id)| known.tips.get(*name) != Some(id));
        let moves: Vec<Move> = newer
            .map(|(name, new)| {
                let old = known.tips.get(name).copied();
                Move { name: name.clone(), old, new: *new }
            })
            .collect();
        if moves.is_empty() {
            return Ok(());
        }
        let seq = self.seq_at(tips)?.unwrap_or(known.seq);
        self.push(&Frame { step: Step { seq, entries: 0, moves }, objects: Vec::new() })
    }

    fn known(&self) -> Result<Option<Known>, StoreError> {
        self.with_wal(|wal| {
            let Some(wal) = wal else { return Ok(None) };
            wal.cut_torn()?;
            let (seq, tips) = (wal.seq(), wal.tips().clone());
            Ok(Some(Known { seq, tips, same_boot: wal.is_same_boot() }))
        })
    }

    /// Refs that do not show what the log says.
    pub(in crate::store) fn behind(
        &self,
        tips: &BTreeMap<String, Oid>,
    ) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for (name, tip) in tips {
            if self.refs.read_sound(name)? != Some(*tip) {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    /// After a power cut loose copies may be empty and shadow the good ones in our packs.
    fn drop_ghosts(&self) -> Result<(), StoreError> {
        let packed = self.packs.own_ids()?;
        for id in self.loose.ids()?.iter().filter(|id| packed.contains(id)) {
            if self.loose.state(id)? == LooseState::Broken {
                self.loose.remove(id)?;
            }
        }
        Ok(())
    }

    /// All frames that count.
    pub(in crate::store) fn logged(&self) -> Result<Vec<Frame>, StoreError> {
        self.with_wal(|wal| wal.map_or(Ok(Vec::new()), |w| w.frames()))
    }

    fn rewrite_objects(&self, frames: Vec<Frame>) -> Result<u64, StoreError> {
        let mut written = 0;
        for object in each_once(frames) {
            if !self.has_good(&object)? {
                self.loose.write(&object, Durable::No)?;
                written += 1;
            }
        }
        Ok(written)
    }

    /// True when git has a copy of it that can be read.
    pub(super) fn has_good(&self, object: &Object) -> Result<bool, StoreError> {
        Ok(match self.loose.state(&object.id)? {
            LooseState::Intact => true,
            LooseState::Broken => false,
            LooseState::Absent => {
                matches!(self.odb.find(&object.id), Ok(Some(found)) if found == *object)
            }
        })
    }

    /// Moves a ref to what the log holds. git refuses an object that is not there, and a prune may take one away
    /// between our writing it and git's look: it is written again, as nothing else is wrong.
    pub(in crate::store) fn swap_logged(
        &self,
        name: &str,
        old: Option<Oid>,
        new: &Oid,
        wait_ms: u64,
    ) -> Result<(), StoreError> {
        let mut tries = 1;
        loop {
            match self.refs.swap(name, old, new, wait_ms) {
                Err(StoreError::Git(GitError::Failed { .. }))
                    if tries < limits::SHOW_TRIES && self.rewrite_objects(self.logged()?)? > 0 => {}
                other => return other,
            }
            tries += 1;
        }
    }

    /// Moves one ref to where the log says, or takes over a newer value into `tips`.
    fn settle(
        &self,
        name: &str,
        tips: &mut BTreeMap<String, Oid>,
        wait_ms: u64,
        done: &mut Recovered,
    ) -> Result<(), StoreError> {
        let Some(ours) = tips.get(name).copied() else { return Ok(()) };
        let actual = self.refs.read_sound(name)?;
        if let Some(actual) = actual
            && !self.is_older(name, &actual, &ours)?
        {
            require_further(self, name, actual, ours)?;
            tips.insert(name.to_owned(), actual);
            return Ok(());
        }
        match self.swap_logged(name, actual, &ours, wait_ms) {
            Ok(()) => done.refs.push(name.to_owned()),
            Err(e @ StoreError::RefLocked { .. }) => done.pending = Some(e.to_string()),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    pub(super) fn is_older(
        &self,
        name: &str,
        actual: &Oid,
        ours: &Oid,
    ) -> Result<bool, StoreError> {
        let passed = self.with_wal(|w| Ok(w.is_some_and(|w| w.has_passed(name, actual))))?;
        Ok(passed || self.is_ancestor(actual, ours)?)
    }

    /// True when following first parents, and from segment to segment, from `tip` meets `wanted`. A tip that is
    /// not here leads nowhere.
    pub(in crate::store) fn is_ancestor(
        &self,
        wanted: &Oid,
        tip: &Oid,
    ) -> Result<bool, StoreError> {
        let mut next = Some(*tip);
        while let Some(id) = next {
            if id == *wanted {
                return Ok(true);
            }
            let Some(object) = self.find_object(&id)? else { return Ok(false) };
            let parsed = (object.kind == Kind::Commit)
                .then(|| commit::parse(id.hash(), &object.data))
                .flatten();
            let before = |p: commit::Parsed<'_>| match p.parents.first() {
                Some(parent) => Some(*parent),
                None => commit::continues_in(p.message),
            };
            next = parsed.and_then(before);
        }
        Ok(false)
    }

    fn seq_at(&self, tips: &BTreeMap<String, Oid>) -> Result<Option<u64>, StoreError> {
        let journals = tips.iter().filter_map(|(name, id)| Some((journal_parts(name)?.1, id)));
        journals.max().map(|(_, id)| Ok(self.entry(id)?.seq)).transpose()
    }

    /// Ends the log of an id that this repository, a copy, does not go on with: all it holds is shown by refs and
    /// packed first.
    pub(in crate::store) fn retire_log(&self, lock: &KernelLock) -> Result<(), StoreError> {
        let Some(known) = self.known()? else { return Ok(()) };
        for name in self.behind(&known.tips)? {
            let Some(ours) = known.tips.get(&name) else { continue };
            // Recovery left only refs behind whose lock another program holds.
            let actual = self.refs.read_sound(&name)?;
            self.swap_logged(&name, actual, ours, self.ref_wait_ms)?;
        }
        self.pack_all(lock)?;
        for path in self.with_wal(|wal| Ok(wal.map(|w| w.newest_first())))?.unwrap_or_default() {
            files::remove_optional(&path)?;
        }
        Ok(files::sync_dir(&self.agent)?)
    }

    fn remember(&self, done: &Recovered) -> Result<(), StoreError> {
        if !done.is_notable() {
            return Ok(());
        }
        let mut all = self.unrecorded()?.unwrap_or_default();
        all.add(done.clone());
        let text = serde_json::to_vec(&all).unwrap_or_default();
        let staged = self
            .agent
            .join("tmp")
            .join(crate::store::loose::fresh_name(crate::store::names::TMP_PREFIX));
        Ok(files::replace(&self.agent.join("recovered"), &staged, &text)?)
    }

    /// What recoveries did that no journal entry tells of yet. A damaged memory is none.
    pub(in crate::store) fn unrecorded(&self) -> Result<Option<Recovered>, StoreError> {
        let data = files::read_own(&self.agent.join("recovered"), limits::SMALL_FILE_BYTES)?;
        Ok(data.and_then(|d| serde_json::from_slice(&d).ok()))
    }

    pub(in crate::store) fn forget_recorded(&self) -> Result<(), StoreError> {
        files::remove_optional(&self.agent.join("recovered"))?;
        Ok(())
    }
}

/// Refuses a ref that is elsewhere than further along from what the log says.
pub(super) fn require_further(
    store: &Store,
    name: &str,
    actual: Oid,
    ours: Oid,
) -> Result<(), StoreError> {
    if store.is_ancestor(&ours, &actual)? {
        return Ok(());
    }
    Err(StoreError::Diverged { name: name.to_owned(), actual, ours })
}

//! Letting go of what is old: everything in the log into packs, whole segments from the oldest on.
//!
//! Contract: the newest segment stays, and so does one that the log still proves: recovery would bring it back. That a
//! segment goes is written down before its ref goes, so that nobody takes it for lost; the journal's ref goes before the
//! evidence, so that nothing that is still named is ever without what keeps it alive. Interrupted anywhere, the rest is
//! done the next time. Objects are git's to remove.

use crate::store::{
    Store,
    checkpoint::Sealing,
    checks::SideFile,
    error::StoreError,
    journal::Tip,
    names::{Segment, chain_parts, evidence_dir, evidence_ref, journal_parts},
    recovery::Depth,
};
use crate::{
    domain::{ids::WriterId, oid::Oid, time::Timestamp},
    limits,
    sys::files,
};

/// A segment that is kept, and its last event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Which.
    pub segment: Segment,
    /// Full name of its ref.
    pub name: String,
    /// Number of its last event.
    pub seq: u64,
    /// When that was recorded, whole seconds.
    pub at: Timestamp,
}

/// How much of ours lies on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Packs of ours that are there.
    pub packs: u64,
    /// Their size, bytes.
    pub pack_bytes: u64,
    /// Frames that wait for a pack.
    pub frames: u64,
}

/// Which segment of which journal was let go last, as the file says.
pub(in crate::store) fn dropped_in(data: &[u8]) -> Option<(WriterId, Segment)> {
    journal_parts(std::str::from_utf8(data).ok()?.strip_suffix('\n')?)
}

impl Store {
    /// The newest segment of this journal that was let go; a damaged memory is none.
    pub(in crate::store) fn dropped_through(
        &self,
        writer: &WriterId,
    ) -> Result<Option<Segment>, StoreError> {
        let data = files::read_own(&self.side_file(SideFile::Dropped), limits::SMALL_FILE_BYTES)?;
        let dropped = data.and_then(|data| dropped_in(&data));
        Ok(dropped.filter(|(of, _)| of == writer).map(|(_, segment)| segment))
    }

    /// Packs everything that the log holds, and merges packs; gives the number of packs that were merged.
    ///
    /// # Errors
    /// The log cannot be used, or somebody packs all the time.
    pub fn checkpoint(&self) -> Result<u64, StoreError> {
        // What was sealed before goes first: only one file can wait for its pack.
        self.finish_packs()?;
        let lock = self.lock()?;
        let due = self.recover(&lock, Depth::Due, self.ref_wait_ms)?;
        let sealing = if due.pending.is_some() { Sealing::NotDue } else { self.seal(&lock)? };
        drop(lock);
        self.pack_after(sealing)?;
        self.finish_packs()
    }

    /// The segments of our own journal with their ends, oldest first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn segment_ends(&self, tip: &Tip) -> Result<Vec<SegmentEnd>, StoreError> {
        let mut ends = Vec::new();
        for kept in self.kept_segments(tip)? {
            let (segment, name) = (kept.segment, tip.name_of(kept.segment));
            let entry = self.entry(&kept.last)?;
            ends.push(SegmentEnd { segment, name, seq: entry.seq, at: entry.time });
        }
        Ok(ends)
    }

    /// Lets go of every segment of our own journal up to this one, with its evidence; gives the names of the refs
    /// that went. None go while the log still has to prove one of them.
    ///
    /// # Errors
    /// The newest segment was named, or a ref cannot be deleted: those before it are gone.
    pub fn drop_segments(&self, through: Segment) -> Result<Vec<String>, StoreError> {
        let _lock = self.lock()?;
        let Some(tip) = self.own_tip()? else { return Ok(Vec::new()) };
        if through >= tip.segment {
            return Err(StoreError::BadEntry { reason: "the newest segment stays".to_owned() });
        }
        let proved = self.with_wal(|wal| {
            let names = wal.iter().flat_map(|w| w.tips().keys());
            Ok(names.filter_map(|n| chain_parts(n)).any(|(_, segment)| segment <= through))
        })?;
        if proved {
            return Ok(Vec::new());
        }
        let going: Vec<_> =
            self.kept_segments(&tip)?.into_iter().filter(|k| k.segment <= through).collect();
        if !going.is_empty() {
            let mark = format!("{}\n", tip.name_of(through));
            let (file, staged) = (self.side_file(SideFile::Dropped), self.staged_name());
            files::replace(&file, &staged, mark.as_bytes())?;
            crate::store::failpoint::reached("drop noted")?;
        }
        let mut gone = Vec::new();
        for kept in going {
            self.let_go(tip.name_of(kept.segment), kept.last, &mut gone)?;
        }
        for (name, at) in self.unneeded_evidence(&tip)? {
            self.let_go(name, at, &mut gone)?;
        }
        Ok(gone)
    }

    fn let_go(&self, name: String, at: Oid, gone: &mut Vec<String>) -> Result<(), StoreError> {
        self.refs.delete(&name, at, self.ref_wait_ms)?;
        gone.push(name);
        crate::store::failpoint::reached("segment let go")
    }

    /// Evidence of segments that were let go, which an interruption may have left.
    fn unneeded_evidence(&self, tip: &Tip) -> Result<Vec<(String, Oid)>, StoreError> {
        let Some(dropped) = self.dropped_through(&tip.writer)? else { return Ok(Vec::new()) };
        let oldest = self.oldest_kept(tip)?;
        let mut found = Vec::new();
        for name in self.refs.names(&evidence_dir(&tip.writer))? {
            let unneeded = chain_parts(&name).is_some_and(|(_, s)| s <= dropped && s < oldest);
            if unneeded && let Some(at) = self.refs.read(&name)? {
                found.push((name, at));
            }
        }
        Ok(found)
    }

    /// Finishes what an interrupted [`Store::drop_segments`] left: evidence of segments that are gone. Gives the names
    /// of the refs that went.
    ///
    /// # Errors
    /// A ref cannot be deleted.
    pub fn finish_dropping(&self) -> Result<Vec<String>, StoreError> {
        let _lock = self.lock()?;
        let Some(tip) = self.own_tip()? else { return Ok(Vec::new()) };
        let mut gone = Vec::new();
        for (name, at) in self.unneeded_evidence(&tip)? {
            self.let_go(name, at, &mut gone)?;
        }
        Ok(gone)
    }

    /// Names of the refs that [`Store::drop_segments`] would delete.
    ///
    /// # Errors
    /// The refs cannot be read.
    pub fn refs_through(&self, tip: &Tip, through: Segment) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for kept in self.kept_segments(tip)?.into_iter().filter(|k| k.segment <= through) {
            names.push(tip.name_of(kept.segment));
            let evidence = evidence_ref(&tip.writer, kept.segment);
            names.extend(self.refs.read(&evidence)?.map(|_| evidence));
        }
        names.sort();
        Ok(names)
    }

    /// What of ours lies on the disk.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn footprint(&self) -> Result<Footprint, StoreError> {
        let sizes = self.packs.sizes_bytes()?;
        let frames = self.with_sound_wal(|wal| Ok(wal.map_or(0, |w| w.frame_count())))?;
        let count = u64::try_from(sizes.len()).unwrap_or(u64::MAX);
        Ok(Footprint { packs: count, pack_bytes: sizes.iter().sum(), frames })
    }
}

//! The write-ahead log: two files that take turns, so that a full one can be packed outside the journal lock.
//!
//! Contract: the file whose head has the highest epoch is written to. [`Wal::seal`] turns to the other file; the
//! frames of the sealed one go on counting (for reads, tips and recovery) until [`Wal::retire`] says that their
//! pack is safe. Whether they count is said by the head of the file written to, and by nothing else. Sealing,
//! retiring and pushing need the journal lock; reading needs none: what looks damaged while the heads
//! change is read again. A file that should be there and is not, or has no valid head, is damage and
//! reported, never guessed around.

use crate::store::{
    error::StoreError,
    object::Object,
    wal_file::{LogFile, Tail},
    wal_frame::{Frame, Head},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
    sys::files,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Times a log that looks damaged is read: its files may have taken turns meanwhile.
const READ_TRIES: u32 = 3;

/// Where the files of a log are.
#[derive(Clone, Debug)]
pub(in crate::store) struct WalPaths {
    /// The two that take turns.
    pub(in crate::store) files: [PathBuf; 2],
    staged: PathBuf,
}

impl WalPaths {
    /// Below our directory.
    pub(in crate::store) fn new(agent: &Path) -> Self {
        let files = [agent.join("wal"), agent.join("wal2")];
        Self { files, staged: agent.join("tmp/tmp_wal") }
    }

    /// True when there is one of them.
    pub(in crate::store) fn any(&self) -> Result<bool, StoreError> {
        Ok(files::is_there(&self.files[0])? || files::is_there(&self.files[1])?)
    }
}

/// Which frames a look for lost objects covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Look {
    /// The last few.
    Recent,
    /// The last few and those whose turn it is.
    InTurn,
}

/// An open log and how far it was read.
pub(in crate::store) struct Wal {
    paths: WalPaths,
    /// Written to.
    active: LogFile,
    /// Sealed while the active head says so, else waiting for its turn.
    other: Option<LogFile>,
}

impl Wal {
    /// Makes a log that starts from this head.
    pub(in crate::store) fn create(paths: &WalPaths, head: &Head) -> Result<(), StoreError> {
        LogFile::create(&paths.files[0], &paths.staged, head)
    }

    /// Opens the log of a repository of this hash and reads it to its end; none when there is none.
    pub(in crate::store) fn open(
        paths: &WalPaths,
        hash: HashKind,
    ) -> Result<Option<Self>, StoreError> {
        for _ in 1..READ_TRIES {
            match Self::read(paths, hash, Vec::new()) {
                Err(StoreError::CorruptWal { .. }) => {}
                other => return other,
            }
        }
        Self::read(paths, hash, Vec::new())
    }

    /// The log as it is now, whatever others did to it since; none when there is none any more.
    pub(in crate::store) fn caught_up(self) -> Result<Option<Self>, StoreError> {
        let Self { paths, active, other } = self;
        let hash = active.head().hash;
        match Self::read(&paths, hash, [Some(active), other].into_iter().flatten().collect()) {
            Err(StoreError::CorruptWal { .. }) => Self::open(&paths, hash),
            other => other,
        }
    }

    /// Reads both files, going on from where `open` ones were read to.
    fn read(
        paths: &WalPaths,
        hash: HashKind,
        mut open: Vec<LogFile>,
    ) -> Result<Option<Self>, StoreError> {
        open.retain(LogFile::is_current);
        let mut files = Vec::new();
        for path in &paths.files {
            match open.iter().position(|f| f.path() == path) {
                Some(at) => {
                    let mut file = open.swap_remove(at);
                    file.look()?;
                    files.push(file);
                }
                None => files.extend(LogFile::open(path, hash)?),
            }
        }
        files.sort_by_key(|f| f.head().epoch);
        let Some(mut active) = files.pop() else { return Ok(None) };
        let mut other = files.pop();
        active.catch_up(Tail::MayBeTorn)?;
        match &mut other {
            Some(other) => check_beside(other, &active)?,
            None if active.head().sealed => {
                return Err(active.corrupt("the sealed file that it goes on from is missing"));
            }
            None => {}
        }
        Ok(Some(Self { paths: paths.clone(), active, other }))
    }

    /// The file whose frames wait for their pack.
    fn sealed(&self) -> Option<&LogFile> {
        self.other.as_ref().filter(|_| self.active.head().sealed)
    }

    fn live(&self) -> impl Iterator<Item = &LogFile> {
        self.sealed().into_iter().chain([&self.active])
    }

    /// Overwrites the start of a torn frame. Needs the journal lock.
    pub(in crate::store) fn cut_torn(&mut self) -> Result<(), StoreError> {
        self.active.cut_torn()
    }

    /// Appends a frame; it is durable on return. Needs the journal lock.
    pub(in crate::store) fn push(&mut self, frame: &Frame) -> Result<(), StoreError> {
        self.active.push(frame)
    }

    /// Turns to the other file, so that the frames of this one can be packed; false when others still wait for that.
    /// What our refs must hold from now on is `refs`. Needs the journal lock and refs that show the last frame.
    pub(in crate::store) fn seal(
        &mut self,
        refs: BTreeMap<String, Oid>,
    ) -> Result<bool, StoreError> {
        if self.sealed().is_some() {
            return Ok(false);
        }
        let active = &self.active;
        let epoch = active.head().epoch.checked_add(1);
        let head = Head {
            hash: active.head().hash,
            epoch: epoch.ok_or_else(|| active.corrupt("epochs are used up"))?,
            seq: active.seq(),
            boot: files::boot_id(),
            refs,
            sealed: active.frame_count() > 0,
        };
        let mut next = match self.other.take() {
            Some(mut other) => {
                other.set_head(head)?;
                other
            }
            None => self.made_beside(&head)?,
        };
        std::mem::swap(&mut self.active, &mut next);
        self.other = Some(next);
        Ok(true)
    }

    fn made_beside(&self, head: &Head) -> Result<LogFile, StoreError> {
        let [one, two] = &self.paths.files;
        let path = if self.active.path() == one { two } else { one };
        LogFile::create(path, &self.paths.staged, head)?;
        LogFile::open(path, head.hash)?
            .ok_or_else(|| self.active.corrupt("the file beside it was removed"))
    }

    /// Says that the frames sealed in this epoch are in a safe pack; they count no more. Needs the journal lock.
    pub(in crate::store) fn retire(&mut self, epoch: u32) -> Result<(), StoreError> {
        if self.sealed_epoch() != Some(epoch) {
            return Ok(());
        }
        let head = Head { sealed: false, ..self.active.head().clone() };
        self.active.set_head(head)
    }

    /// Epoch of the frames that wait for their pack.
    pub(in crate::store) fn sealed_epoch(&self) -> Option<u32> {
        self.sealed().map(|f| f.head().epoch)
    }

    /// The frames that wait for their pack, with their objects.
    pub(in crate::store) fn sealed_frames(&self) -> Result<Vec<Frame>, StoreError> {
        self.sealed().map_or(Ok(Vec::new()), LogFile::frames)
    }

    /// The frames that are not sealed, with their objects.
    pub(in crate::store) fn active_frames(&self) -> Result<Vec<Frame>, StoreError> {
        self.active.frames()
    }

    /// All frames that count, with their objects.
    pub(in crate::store) fn frames(&self) -> Result<Vec<Frame>, StoreError> {
        let mut frames = self.sealed_frames()?;
        frames.extend(self.active_frames()?);
        Ok(frames)
    }

    /// The objects to look for. Every frame has its turn within [`limits::HEAL_TURNS`] appends: most often the
    /// process that looks knows nothing of those that looked before, so the turn follows from the log.
    /// A batch has all of them in one pack, so it is enough that this one is `seen`.
    pub(in crate::store) fn ids_to_look_for(
        &self,
        look: Look,
        seen: impl Fn(&str) -> bool,
    ) -> Result<Vec<Oid>, StoreError> {
        let turn = self.active.frame_count() % limits::HEAL_TURNS;
        let mut ids = Vec::new();
        for file in self.live() {
            let count = file.frame_count();
            let recent = if file.path() == self.active.path() { limits::HEAL_RECENT } else { 0 };
            for at in 0..count {
                let in_turn = look == Look::InTurn && at % limits::HEAL_TURNS == turn;
                let due = in_turn || at + recent >= count;
                if due && !file.batch(at).is_some_and(&seen) {
                    ids.extend_from_slice(file.ids(at)?);
                }
            }
        }
        Ok(ids)
    }

    /// How many frames count.
    pub(in crate::store) fn frame_count(&self) -> u64 {
        self.live().map(|file| file.frame_count() as u64).sum()
    }

    /// An object of some frame.
    pub(in crate::store) fn find(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        let found = self.active.find(id)?;
        found.map_or_else(|| self.sealed().map_or(Ok(None), |f| f.find(id)), |o| Ok(Some(o)))
    }

    /// Its files, in an order in which they can be removed: what is left meanwhile is an earlier log.
    pub(in crate::store) fn newest_first(&self) -> Vec<PathBuf> {
        let files = [Some(&self.active), self.other.as_ref()];
        files.into_iter().flatten().map(|f| f.path().to_owned()).collect()
    }

    /// Number of the last journal entry.
    pub(in crate::store) fn seq(&self) -> u64 {
        self.active.seq()
    }

    /// True when the file written to holds as much as one pack should.
    pub(in crate::store) fn is_full(&self) -> bool {
        let most = if self.sealed().is_some() {
            limits::CHECKPOINT_OBJECTS_BESIDE
        } else {
            limits::CHECKPOINT_OBJECTS
        };
        self.active.frame_count() >= limits::CHECKPOINT_FRAMES
            || self.active.frame_bytes() >= limits::CHECKPOINT_BYTES
            || self.active.loose_count() >= most
            || self.active.batch_count() >= limits::CHECKPOINT_BATCHES
    }

    /// What our refs must hold.
    pub(in crate::store) fn tips(&self) -> &BTreeMap<String, Oid> {
        self.active.tips()
    }

    /// True when a frame that counts moved the ref away from this value.
    pub(in crate::store) fn has_passed(&self, name: &str, id: &Oid) -> bool {
        self.live().any(|f| f.has_passed(name, id))
    }

    /// True when it is certain that no reboot happened since this epoch began.
    pub(in crate::store) fn is_same_boot(&self) -> bool {
        let boot = &self.active.head().boot;
        boot.is_some() && *boot == files::boot_id()
    }
}

/// Reads the sealed frames, all of which must be there; of a file that waits for its turn nothing may be newer.
fn check_beside(other: &mut LogFile, active: &LogFile) -> Result<(), StoreError> {
    let head = active.head();
    if other.head().epoch == head.epoch {
        return Err(active.corrupt("both files have one epoch"));
    }
    if !head.sealed {
        return other.require_no_frame_after(head.epoch);
    }
    if other.head().epoch + 1 != head.epoch {
        return Err(other.corrupt("its epoch is not the one that was sealed"));
    }
    other.catch_up(Tail::Whole)?;
    // Refs of finished segments are in the sealed frames only.
    let agrees = |(name, id): (&String, &Oid)| other.tips().get(name) == Some(id);
    if other.seq() != head.seq || !head.refs.iter().all(agrees) {
        return Err(other.corrupt("frames at its end are missing"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! Putting right what the journal proves, one thing at a time, for a person who asks for it.
//!
//! Contract: what is wrong is worked out again under the lock, so that a plan that is old by now does nothing. What is
//! replaced is kept under `agentproto/damaged` first. The journal itself is never written.

use crate::store::{
    Store,
    building::pin_of,
    checks::SideFile,
    commit::Stamp,
    error::StoreError,
    loose::fresh_name,
    names::{NOTES_ASIDE, TMP_PREFIX, evidence_ref},
    object::{Kind, Object},
    recovery::Depth,
    repair::free_name,
    segments::Standing,
    writer,
};
use crate::{
    code::Code,
    domain::oid::Oid,
    sys::files::{self, Durable, FileError, Unfit},
};
use std::path::{Path, PathBuf};

impl Store {
    /// Puts a file of ours right; false when nothing is wrong with it any more.
    ///
    /// # Errors
    /// It cannot be moved or written.
    pub fn mend_side_file(&self, file: SideFile) -> Result<bool, StoreError> {
        let _packing = self.require_pack_lock()?;
        let lock = self.lock()?;
        if !self.damaged_side_files()?.contains(&file) {
            return Ok(false);
        }
        match file {
            // What is too large to be read has no lines to be kept.
            SideFile::Packs | SideFile::Kept if self.packs.listed_in(file).is_err() => {
                self.put_aside(&self.side_file(file))?;
            }
            SideFile::Packs | SideFile::Kept => {
                self.keep_copy(&self.side_file(file))?;
                self.packs.tidy_lists()?;
            }
            SideFile::Writer => {
                self.put_aside(&self.side_file(file))?;
                if writer::find(self)?.is_some() {
                    writer::require(self, &lock)?;
                }
            }
            SideFile::Recovered | SideFile::Dropped => {
                self.put_aside(&self.side_file(file))?;
            }
        }
        Ok(true)
    }

    /// Moves a file of our directory to where damaged ones are kept; none when it is gone.
    ///
    /// # Errors
    /// It cannot be moved.
    pub fn put_file_aside(&self, path: &Path) -> Result<Option<PathBuf>, StoreError> {
        let _lock = self.lock()?;
        if !path.starts_with(&self.agent) || !files::is_file(path)? {
            return Ok(None);
        }
        self.put_aside(path).map(Some)
    }

    /// Moves what is of another kind than belongs at its place, in our directory or among our refs, to where what is
    /// damaged is kept; none when all is well there. The lock itself may be what is misplaced: then nobody else can have it either.
    ///
    /// # Errors
    /// It cannot be moved.
    pub fn put_misplaced_aside(&self, path: &Path) -> Result<Option<PathBuf>, StoreError> {
        let _lock = match self.lock() {
            Ok(lock) => Some(lock),
            Err(e) if e.code() == Code::NotRegular => None,
            Err(e) => return Err(e),
        };
        if !self.misplaced()?.iter().any(|m| m.path == path) {
            return Ok(None);
        }
        let damaged = self.agent.join("damaged");
        if !path.starts_with(&self.agent) {
            // A ref: its whole name tells more than the last part.
            let name = path.strip_prefix(&self.location.common_dir).unwrap_or(path);
            let stem = name.to_string_lossy().replace('/', "-");
            let kept = free_name(&self.damaged_dir()?, Path::new(&stem))?;
            files::rename(path, &kept)?;
            return Ok(Some(kept));
        }
        if !damaged.starts_with(path) {
            return self.put_aside(path).map(Some);
        }
        // It is in the way of the directory it is to be kept in.
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}", fresh_name(TMP_PREFIX)));
        let beside = PathBuf::from(beside);
        files::rename(path, &beside)?;
        let kept = free_name(&self.damaged_dir()?, path)?;
        files::rename(&beside, &kept)?;
        Ok(Some(kept))
    }

    fn put_aside(&self, path: &Path) -> Result<PathBuf, StoreError> {
        let kept = free_name(&self.damaged_dir()?, path)?;
        files::rename(path, &kept)?;
        Ok(kept)
    }

    fn keep_copy(&self, path: &Path) -> Result<(), StoreError> {
        let kept = free_name(&self.damaged_dir()?, path)?;
        Ok(files::copy(path, &kept)?)
    }

    fn damaged_dir(&self) -> Result<PathBuf, StoreError> {
        let dir = self.agent.join("damaged");
        if let Some(unfit) = files::look(&dir)?.as_ref().and_then(Unfit::as_directory) {
            return Err(FileError::new("use", &dir, std::io::Error::other(unfit)).into());
        }
        files::make_dirs(&dir)?;
        Ok(dir)
    }

    /// Sets the lost ref of a finished segment to the entry that the segment after it continues; false when it is not
    /// lost any more.
    ///
    /// # Errors
    /// The journal cannot be read, or the ref not be set.
    pub fn restore_segment(&self, name: &str) -> Result<bool, StoreError> {
        let _lock = self.lock()?;
        let Some(tip) = self.own_tip()? else { return Ok(false) };
        let finished = self.finished_segments(&tip)?;
        let lost = finished.into_iter().find(|f| f.name == name && f.standing == Standing::Lost);
        let Some(last) = lost.and_then(|f| f.last) else { return Ok(false) };
        self.refs.swap(name, None, &last, self.ref_wait_ms)?;
        self.refs.sync(name)?;
        Ok(true)
    }

    /// Keeps a commit alive again that the journal names and no evidence of ours holds; false when one does.
    ///
    /// # Errors
    /// There is no journal of ours or no such commit, or the evidence cannot be read or written.
    pub fn pin_again(&self, who: &Stamp, pinned: &Oid) -> Result<bool, StoreError> {
        let lock = self.lock()?;
        self.recover(&lock, Depth::Due, self.ref_wait_ms)?;
        let Some(tip) = self.own_tip()? else { return Ok(false) };
        if self.pinned(&tip.writer)?.contains(pinned) {
            return Ok(false);
        }
        self.require(pinned, Kind::Commit)?;
        let name = evidence_ref(&tip.writer, tip.segment);
        let last = self.own_value(&name)?;
        let empty = Object::new(self.hash, Kind::Tree, Vec::new())?;
        let pin = pin_of(pinned, last, &empty.id, who)?;
        for object in [&empty, &pin] {
            self.loose.write_for_ref(object)?;
        }
        self.refs.swap(&name, last, &pin.id, self.ref_wait_ms)?;
        self.refs.sync(&name)?;
        Ok(true)
    }

    /// Makes the file that [`Store::lacks_packed_refs`] misses.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add_packed_refs(&self) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        self.refs.ensure_packed()
    }

    /// Keeps what a notes ref that cannot be read holds, and begins the notes anew; gives where it is kept, none when
    /// the notes can be read after all. What of it can be read stays alive by a ref.
    ///
    /// # Errors
    /// It cannot be kept, or the ref not be moved.
    pub fn set_notes_aside(
        &self,
        who: &Stamp,
        notes_ref: &str,
    ) -> Result<Option<PathBuf>, StoreError> {
        let _lock = self.lock()?;
        self.refs.ensure_packed()?;
        if self.notes_damage(notes_ref)?.is_none() {
            return Ok(None);
        }
        let tip = self.refs.read_sound(notes_ref)?;
        let leaf = notes_ref.rsplit('/').next().unwrap_or("notes");
        let kept = free_name(&self.damaged_dir()?, Path::new(&format!("notes-{leaf}")))?;
        let held = match tip {
            Some(tip) => format!("{tip}\n").into_bytes(),
            None => self.refs.bytes(notes_ref)?,
        };
        files::write_new(&kept, &held, 0o600, Durable::Yes)?;
        if let Some(tip) = tip.filter(|tip| matches!(self.odb.has(tip), Ok(true))) {
            let number = kept.extension().unwrap_or_default().to_string_lossy().into_owned();
            let name = format!("{NOTES_ASIDE}{leaf}.{number}");
            if self.refs.read(&name)?.is_none() {
                self.refs.swap(&name, None, &tip, self.ref_wait_ms)?;
            }
        }
        let begun = self.empty_notes(who)?;
        self.refs.swap(notes_ref, tip, &begun, self.ref_wait_ms)?;
        Ok(Some(kept))
    }

    fn empty_notes(&self, who: &Stamp) -> Result<Oid, StoreError> {
        let tree = Object::new(self.hash, Kind::Tree, Vec::new())?;
        let message = b"Notes begun anew by git agentproto\n";
        let commit = crate::store::commit::encode(&tree.id, &[], who, message)?;
        for object in [&tree, &commit] {
            self.loose.write_for_ref(object)?;
        }
        Ok(commit.id)
    }

    /// Where a file is staged under the journal lock.
    pub(in crate::store) fn staged_name(&self) -> PathBuf {
        self.agent.join("tmp").join(fresh_name(TMP_PREFIX))
    }
}

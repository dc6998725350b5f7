//! The pack that shows a batch to git (storage A), or shows again what a prune took (storage H).
//!
//! Contract: a frame of many entries becomes one pack, two files instead of hundreds of loose objects. It is never synced
//! and proves nothing, its frame does. It bears the name of the last commit in the frame: whoever has the frame
//! knows the files, and nobody else's are ever touched. It goes at the checkpoint of its frame, before that
//! frame ceases to count; what a kill or a power cut left of it goes in recovery.
//!
//! What git lost of frames in loose copies becomes one such pack under the lock, at once: the pack of a checkpoint
//! takes longer, and git does not get past what is missing.

use crate::limits;
use crate::store::{
    Store,
    checkpoint::each_once,
    error::StoreError,
    names::journal_parts,
    object::Object,
    pack,
    wal::Wal,
    wal_frame::{Frame, Step},
};

/// The name of the pack of this frame, without extension; none when its objects are written loose.
pub(in crate::store) fn pack_name(step: &Step) -> Option<String> {
    if step.entries < limits::BATCH_ENTRIES {
        return None;
    }
    own_name(step)
}

/// The one name that belongs to this frame alone; none when it moves no journal.
pub(in crate::store) fn own_name(step: &Step) -> Option<String> {
    let journal = step.moves.iter().rfind(|m| journal_parts(&m.name).is_some());
    journal.map(|m| format!("pack-{}", m.new))
}

/// The names of the packs that these frames have, or had, or may get.
pub(in crate::store) fn pack_names(frames: &[Frame]) -> Vec<String> {
    frames.iter().filter_map(|f| own_name(&f.step)).collect()
}

impl Store {
    /// Lets git see the objects of a frame of this name. Needs the journal lock.
    pub(in crate::store) fn show_as_pack(
        &self,
        name: &str,
        objects: &[Object],
    ) -> Result<(), StoreError> {
        let mut built = pack::build_quickly(self.hash, objects)?;
        name.clone_into(&mut built.name);
        self.packs.place_unsynced(&built)
    }

    /// Shows again, at once, whatever git lost of the log; false when there is no name for the pack, so that only a
    /// checkpoint helps. Needs the journal lock.
    ///
    /// The pack is named after a frame that is not sealed: whoever packs the sealed ones meanwhile knows nothing of
    /// it, and would leave it for ever.
    pub(in crate::store) fn show_again(&self) -> Result<bool, StoreError> {
        let frames = |wal: &mut Wal| Ok((wal.sealed_frames()?, wal.active_frames()?));
        let Some((sealed, active)) = self.with_wal(|wal| wal.map(frames).transpose())? else {
            return Ok(true);
        };
        let name = self.free_name(&active)?;
        let mut lost = Vec::new();
        for frame in sealed {
            lost.extend(self.is_lost(&frame)?.then_some(frame));
        }
        for frame in active {
            match pack_name(&frame.step) {
                _ if !self.is_lost(&frame)? => {}
                Some(batch) => self.show_as_pack(&batch, &frame.objects)?,
                None => lost.push(frame),
            }
        }
        match name {
            _ if lost.is_empty() => {}
            Some(name) => self.show_as_pack(&name, &each_once(lost))?,
            None => return Ok(false),
        }
        Ok(true)
    }

    /// The name of the last of these frames that is in loose copies and has no pack.
    fn free_name(&self, frames: &[Frame]) -> Result<Option<String>, StoreError> {
        for frame in frames.iter().rev().filter(|f| pack_name(&f.step).is_none()) {
            let Some(name) = own_name(&frame.step) else { continue };
            if !self.packs.is_there(&name)? {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    fn is_lost(&self, frame: &Frame) -> Result<bool, StoreError> {
        for object in &frame.objects {
            if self.is_gone(&object.id)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes packs of batches of which a kill or a power cut left only a part, and gives how many; their objects
    /// are to be written again. Needs the journal lock.
    pub(in crate::store) fn drop_broken_batches(
        &self,
        frames: &[Frame],
    ) -> Result<u64, StoreError> {
        let mut dropped = 0;
        for name in pack_names(frames) {
            dropped += u64::from(self.packs.drop_unless_whole(&name)?);
        }
        Ok(dropped)
    }
}

//! The pack that shows a batch to git (storage A).
//!
//! Contract: a frame of many entries becomes one pack, two files instead of hundreds of loose objects. It is never synced
//! and proves nothing, its frame does. It bears the name of the last commit in the frame: whoever has the frame
//! knows the files, and nobody else's are ever touched. It goes at the checkpoint of its frame, before that
//! frame ceases to count; what a kill or a power cut left of it goes in recovery.

use crate::limits;
use crate::store::{
    Store,
    error::StoreError,
    names::journal_parts,
    object::Object,
    pack,
    wal_frame::{Frame, Step},
};

/// The name of the pack of this frame, without extension; none when its objects are written loose.
pub(in crate::store) fn pack_name(step: &Step) -> Option<String> {
    if step.entries < limits::BATCH_ENTRIES {
        return None;
    }
    let journal = step.moves.iter().rfind(|m| journal_parts(&m.name).is_some());
    journal.map(|m| format!("pack-{}", m.new))
}

/// The names of the packs that these frames have, or had, or may get.
pub(in crate::store) fn pack_names(frames: &[Frame]) -> Vec<String> {
    frames.iter().filter_map(|f| pack_name(&f.step)).collect()
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

//! The index of events against the journal, as a whole.
//!
//! Contract: the look writes nothing. The journal is followed from its end, so it costs what the journal is long.

use super::{HEADER_BYTES, Index, header, index_path};
use crate::{
    domain::oid::Oid,
    store::{Store, StoreError, Tip},
    sys::files::Slots,
};

impl Store {
    /// What is wrong with the index of the journal that ends at `tip`; none when every position that is filled in is
    /// right. A missing index is right.
    ///
    /// # Errors
    /// The journal or the index cannot be read.
    pub fn index_damage(&self, tip: &Tip) -> Result<Option<String>, StoreError> {
        let width = tip.id.as_bytes().len();
        let path = index_path(&self.agent, &tip.writer);
        let Some(file) = Slots::open(&path)? else { return Ok(None) };
        if file.read_at(0, HEADER_BYTES)? != header(&tip.writer, width) {
            return Ok(Some("its head is not that of an index of this journal".to_owned()));
        }
        let index =
            Index { path, writer: tip.writer.clone(), width, file: Some(file), is_fixed: false };
        for entry in self.newest_first(tip)? {
            let entry = entry?;
            if let Some(known) = index.id(entry.seq).filter(|known| *known != entry.id) {
                let what =
                    format!("it says {known} for event {}, which is {}", entry.seq, entry.id);
                return Ok(Some(what));
            }
        }
        Ok(None)
    }

    /// Makes the index of the journal that ends at `tip` anew.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn rebuild_index(&self, tip: &Tip) -> Result<(), StoreError> {
        let newest_first: Vec<Oid> =
            self.newest_first(tip)?.map(|entry| entry.map(|e| e.id)).collect::<Result<_, _>>()?;
        let path = index_path(&self.agent, &tip.writer);
        let width = tip.id.as_bytes().len();
        let mut index =
            Index { path, writer: tip.writer.clone(), width, file: None, is_fixed: false };
        index.discard();
        let first = tip.seq.saturating_sub(newest_first.len() as u64 - 1);
        index.fill(first, &newest_first);
        Ok(())
    }
}

//! Merging our packs on disk, so that there are always few of them (storage C5).
//!
//! Contract: one at a time, under the merging lock, and nobody waits for it. Beside it packs go on being made: only the
//! moment of renaming needs the packing lock. What others have an eye on (a `.keep`, a bitmap, a multi-pack index) is left alone.
//! The old packs go after the new one is synced and has been read back with every id of theirs. A foreign
//! repack may take any of them away at any moment: then nothing is merged.

use crate::store::{
    Store,
    error::StoreError,
    pack::{self, Built},
    pack_merge::{Source, merge},
};
use crate::{
    domain::oid::HashKind,
    limits,
    sys::{files, lock::KernelLock},
};
use std::collections::HashSet;

impl Store {
    /// Merges until each of our packs is large enough beside all smaller ones; gives the number of packs that went.
    ///
    /// # Errors
    /// Nothing is lost: packs that were to be merged are still there.
    pub(in crate::store) fn merge_packs(&self) -> Result<u64, StoreError> {
        let dir = self.agent.join("merging");
        files::make_dirs(&dir)?;
        let Some(_merging) = KernelLock::try_acquire(&dir.join("lock"))? else { return Ok(0) };
        self.packs.sweep_merging()?;
        let sizes = self.packs.mergeable()?;
        let chosen = chosen(&sizes);
        if chosen.len() < 2 {
            return Ok(0);
        }
        let Some(sources) = self.packs.sources(&chosen)? else { return Ok(0) };
        let built = merge(self.hash, &sources)?;
        require_all(self.hash, &sources, &built)?;
        let staged = self.packs.stage_merged(&built)?;
        let Some(_packing) = self.pack_lock(limits::PACK_LOCK_WAIT_MS)? else { return Ok(0) };
        let still = self.packs.mergeable()?;
        if chosen.iter().any(|name| still.iter().all(|(there, _)| there != name)) {
            return Ok(0);
        }
        self.packs.replace(&chosen, &built, &staged)?;
        Ok(chosen.len() as u64)
    }
}

impl Store {
    /// Merges what is due, for who wants to know whether that can be done.
    ///
    /// # Errors
    /// It cannot. Nothing is lost: packs that were to be merged are still there.
    pub fn try_merging(&self) -> Result<(), StoreError> {
        // Where nothing was recorded yet, looking makes nothing.
        if files::is_dir(&self.agent)? { self.merge_packs().map(drop) } else { Ok(()) }
    }

    /// Names of our packs that do not read to the last entry: those of checkpoints, and those that hold candidates.
    ///
    /// # Errors
    /// One is there and cannot be opened.
    pub fn damaged_packs(&self) -> Result<Vec<String>, StoreError> {
        let mut damaged = Vec::new();
        for name in self.packs.listed()?.into_iter().chain(self.packs.kept()?) {
            // A foreign repack may have taken it away.
            let Some(source) = self.packs.sources(std::slice::from_ref(&name))? else { continue };
            let whole = source.iter().all(|s| pack::is_whole(self.hash, &s.pack));
            match merge(self.hash, &source) {
                Ok(_) if whole => {}
                Ok(_) | Err(StoreError::PackDamaged { .. }) => damaged.push(name),
                Err(e) => return Err(e),
            }
        }
        Ok(damaged)
    }
}

/// The packs to make one of, in the order given (the oldest first): the smallest ones, as many as it takes until
/// each that stays is [`limits::PACK_MERGE_FACTOR`] times as large as all smaller ones together.
fn chosen(sizes: &[(String, u64)]) -> Vec<String> {
    let mut small: Vec<&(String, u64)> = sizes.iter().collect();
    small.sort_by_key(|(_, size)| *size);
    let (mut below, mut take) = (0, 0);
    for (at, (_, size)) in small.iter().enumerate() {
        if below + size > limits::PACK_MERGED_BYTES {
            break;
        }
        if at > 0 && *size < limits::PACK_MERGE_FACTOR * below {
            take = at + 1;
        }
        below += size;
    }
    let names: HashSet<&String> = small.into_iter().take(take).map(|(name, _)| name).collect();
    sizes.iter().map(|(name, _)| name).filter(|name| names.contains(name)).cloned().collect()
}

fn require_all(hash: HashKind, sources: &[Source], built: &Built) -> Result<(), StoreError> {
    let damaged = || StoreError::PackDamaged { name: built.name.clone() };
    let there: HashSet<_> =
        pack::index_ids(hash, &built.idx).ok_or_else(damaged)?.into_iter().collect();
    let all = |s: &Source| {
        pack::index_ids(hash, &s.idx).is_some_and(|ids| ids.iter().all(|id| there.contains(id)))
    };
    if sources.iter().all(all) { Ok(()) } else { Err(damaged()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(list: &[u64]) -> Vec<(String, u64)> {
        list.iter().enumerate().map(|(n, size)| (n.to_string(), *size)).collect()
    }

    fn check(list: &[u64], expected: &[&str]) {
        assert_eq!(chosen(&sizes(list)), expected, "{list:?}");
    }

    #[test]
    fn the_smallest_are_merged_until_each_is_large_beside_all_smaller_ones() {
        check(&[], &[]);
        check(&[7], &[]);
        check(&[7, 7], &["0", "1"]);
        check(&[28, 7], &[]);
        check(&[27, 7], &["0", "1"]);
        check(&[400, 36, 4, 5], &["2", "3"]);
        check(&[400, 35, 4, 5], &["1", "2", "3"]);
        check(&[175, 35, 4, 5], &["0", "1", "2", "3"]);
        check(&[1000, 100, 20, 1, 2], &["3", "4"]);
    }

    #[test]
    fn what_is_too_large_to_hold_is_left_as_it_is() {
        let most = limits::PACK_MERGED_BYTES;
        check(&[most, most], &[]);
        check(&[most / 2 + 1, most / 2 + 1], &[]);
        check(&[most, most - 4, 2, 2], &["2", "3"]);
    }

    /// However many packs come: few are there, each geometric beside the rest.
    #[test]
    fn packs_of_one_size_stay_few() {
        let mut list: Vec<u64> = Vec::new();
        for _ in 0..5_000 {
            list.push(150_000);
            let names = chosen(&sizes(&list));
            if names.len() > 1 {
                let at: HashSet<usize> = names.iter().map(|n| n.parse().unwrap()).collect();
                let sum = at.iter().map(|n| list[*n]).sum();
                list = (0..list.len()).filter(|n| !at.contains(n)).map(|n| list[n]).collect();
                list.push(sum);
            }
            let full = list.iter().filter(|s| **s > limits::PACK_MERGED_BYTES / 2).count();
            assert!(list.len() - full <= 6, "{list:?}");
        }
    }
}

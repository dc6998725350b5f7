//! Packs of ours: writing them with deltas, reading their entries, merging them, and the checkpoint that frees the log.
//!
//! Contract: a pack is made from the bytes of the log alone, never from what git may take away, and a pack that was
//! merged goes only after the new one proved to hold all of it.

pub(super) mod checkpoint;
#[cfg(test)]
mod checkpoint_tests;
pub(super) mod delta;
pub(super) mod kin;
pub(super) mod merging;
pub(super) mod midx;
pub(super) mod pack;
pub(super) mod pack_merge;
pub(super) mod pack_read;
pub(super) mod packs;

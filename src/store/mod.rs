//! Everything that touches git: objects, refs, journal, WAL, notes, candidates, landing, trusted rules.

pub mod beneath;
pub mod candidate;
pub mod filters;
pub mod git;
pub mod identity;
pub mod object;
pub mod paths;
#[cfg(test)]
pub(crate) mod testing;
pub mod tree;
pub mod worktree_state;

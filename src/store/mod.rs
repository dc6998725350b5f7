//! Everything that touches git: objects, refs, journal, WAL, notes, candidates, landing, trusted rules.

pub mod allowlist;
pub mod beneath;
pub mod candidate;
pub mod filters;
pub mod git;
pub mod identity;
pub mod landing;
pub mod object;
pub mod paths;
pub mod program;
pub mod repo_id;
pub mod settings;
#[cfg(test)]
pub(crate) mod testing;
pub mod tree;
pub mod trusted;
pub mod worktree_state;

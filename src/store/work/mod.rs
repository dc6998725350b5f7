//! A session's worktree: listed paths, the candidate built of them, the repository's commit hooks, landing.
//!
//! Contract: working files are read, never written; the index is changed by git alone, on a copy.

pub mod candidate;
pub mod expand;
pub mod filters;
pub(super) mod gitlink;
pub mod hooks;
pub mod identity;
pub mod landing;
pub mod paths;
pub mod stamps;
pub mod worktree_state;

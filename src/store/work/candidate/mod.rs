//! The candidate: what a policy would commit, made before anybody approves it.
//!
//! Contract: the tree is the parent's tree with the listed paths as they are on disk, nothing else; the
//! shared index is not consulted, so nothing staged rides along. Nothing is written: new objects are
//! handed back to whoever makes them durable.

pub mod commit;
mod markers;
pub mod message;
pub mod signing;
mod tree;
pub mod whole;
#[cfg(test)]
mod zoo;

pub use commit::commit_object;
pub use tree::{
    CandidateError, Change, FixCtx, FixedTree, Listed, Load, LoadError, change_kind, fix_tree,
    listed_at,
};

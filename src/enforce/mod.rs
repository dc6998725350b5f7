//! Showing what is governed: `verify` for commits, `fsck` for the store.
//!
//! Contract: evidence is content found in the journals, never a note or its position. Nothing is believed that
//! can be worked out again: ids are hashed, every event is stepped again, every state tree is built again, every
//! signature is judged with the signers in force now. No network, no spawned program; `verify` writes nothing.

mod chain;
mod commits;
pub mod fsck;
mod judge;
mod kept;
mod replay;
#[cfg(test)]
mod tests;
pub mod verify;

pub use judge::Outcome;

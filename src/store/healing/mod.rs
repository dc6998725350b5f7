//! What puts things right: recovery from the log, findings and repairs, letting go of what is too old.
//!
//! Contract: only what the log or the journal proves is restored; what is damaged is kept; contradictions are reported.

pub mod checks;
pub mod gits;
pub(super) mod mending;
mod preview;
pub mod recovery;
pub mod repair;
pub mod retention;

//! The state machine: what an input leads to, and what an event changes.
//!
//! Contract: pure and synchronous. No I/O, no clock, no randomness; the same arguments give the same
//! answer for ever, which is what lets `verify` run history again. What may not happen is a value
//! ([`Refusal`] for inputs, [`Illegal`] for events), never a panic.

mod ack;
mod adopt;
mod decide;
mod effect;
mod launch;
mod policy;
mod session;
mod state;
mod step;
#[cfg(test)]
mod tests;

pub use decide::{Decision, Now, Refusal, decide};
pub use effect::{Effect, Recovery, agent_key, due, gate_key, sign_key};
pub use launch::{is_session_due, is_turn_due};
pub use state::{Member, State};
pub use step::{Illegal, Stepped, step};

/// Version of the state machine, in every event. A change that makes old events step differently, or
/// that adds states, raises it (decisions 23).
pub const ENGINE: u32 = 5;

/// The oldest version whose events this machine steps as they were stepped then.
pub const OLDEST_ENGINE: u32 = 1;

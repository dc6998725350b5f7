//! Plain values: what everything else talks about.
//!
//! Contract: no I/O, no clock, no randomness. A value that exists is valid: every type here is
//! parsed at the border and never checked again. Types derive `serde` so that `wire` can turn
//! documents into bytes without a mirror of every struct (docs/adr/0001).

pub mod ack;
pub mod candidate;
pub mod cursor;
pub mod digest;
pub mod event;
pub mod gate;
pub mod ids;
pub mod input;
pub mod oid;
pub mod path;
pub mod policy;
pub mod session;
pub mod time;
pub mod variable;
pub mod wanted;

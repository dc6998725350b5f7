//! Ambient authority and nothing else: environment, clock, ids, files, kernel locks, processes.
//!
//! Contract: no decisions, no git, no formats. Everything the operating system can refuse comes back as a
//! typed error; nothing here retries for ever.

pub mod clock;
pub mod digest;
pub mod env;
pub mod exec;
#[cfg(test)]
pub(crate) mod fault;
pub mod files;
pub mod lock;
pub mod process;
pub mod signals;
pub mod spawn;
pub mod trace;
pub mod watch;

//! Rules that a person made and an agent cannot loosen: allowed commands, settings, the trusted ref, protected paths,
//! the scope of a session.

pub mod allowlist;
pub mod configured;
mod on_disk;
pub mod protect;
pub mod scope;
pub mod settings;
pub mod trusted;

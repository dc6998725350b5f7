//! Rules that a person made and an agent cannot loosen: allowed commands, settings, the trusted ref, protected paths.

pub mod allowlist;
pub mod configured;
pub mod protect;
pub mod settings;
pub mod trusted;

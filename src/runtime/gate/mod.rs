//! Gates: what they see, what their end means, and where their output is kept.

pub mod environment;
pub mod log;
pub mod shell;
pub mod slots;

//! Bytes ↔ values: journal messages, state documents, signed lines. Versioned, strict on reading.

pub mod ack_line;
pub mod document;
pub mod gate_line;
pub mod message;
pub mod sentence;
pub mod signed_line;
#[cfg(test)]
mod tests;

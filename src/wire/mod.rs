//! Bytes ↔ values: journal messages, documents, signed lines. Versioned, strict on reading.

pub mod ack_line;
pub mod gate_line;
pub mod signed_line;

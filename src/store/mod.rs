//! Everything that touches git: objects, refs, journal, WAL, notes, candidates, landing, trusted rules.

pub mod object;
pub mod tree;

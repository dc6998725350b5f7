//! Performs effects: supervised processes and gates.

pub mod collect;
pub mod gate;
pub mod live;
pub mod perform;
pub mod runner;
pub mod wait;

//! Performs effects: supervised processes and gates.

pub mod agent;
pub mod collect;
pub mod gate;
pub mod live;
pub mod output;
pub mod perform;
pub mod runner;
pub mod wait;
pub mod watch;

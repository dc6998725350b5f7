//! The machine held to tables written by hand, to the specification's sentences and to random stories.

mod acks;
mod decisions;
mod effects;
mod ends;
mod gates;
mod lab;
mod launch;
mod next;
mod random;
mod reports;
mod table;
mod turns;

//! The integration tests: the binary seen from outside, on real repositories made with the user's git.
//!
//! One binary, so that everything links once. `env` is the hermetic machine every test stands on, `house`
//! the moves several tests share; `schemas` holds every JSON answer of any test against its schema; `tidy` and `cases_doc` hold the sources and documents to their rules.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::disallowed_methods, reason = "tests look at the world as it is")]

mod ack_keys;
mod ack_lines;
mod adoption;
mod adversary;
mod agents;
mod agents_end;
mod agents_hostile;
mod answers;
mod cases_ack;
mod cases_doc;
mod cases_gate;
mod cases_gate_output;
mod cases_gate_trust;
mod cases_journal;
mod cases_staging;
mod cases_store;
mod cli_contract;
mod completions;
mod contract;
mod copies;
mod corpus;
mod detached;
mod doctor;
mod doubt;
mod env;
mod events;
mod exec;
mod first_run;
mod first_steps;
mod fsck;
mod gate_conditions;
mod gate_env;
mod gate_queue;
mod gc;
mod gone;
mod groups;
mod help;
mod hooks;
mod hostile;
mod house;
mod inspect;
mod kill;
mod leftovers;
mod manual;
mod markdown;
mod mended;
mod nudges;
mod paths;
mod planted;
mod policies;
mod policy_file;
mod readme;
mod refusals;
mod repositories;
mod run;
mod schemas;
mod scope;
mod screens;
mod sharing;
mod signing;
mod supervise;
mod tidy;
mod trace;
mod waiting;
mod walkthrough;

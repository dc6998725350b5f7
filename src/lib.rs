//! `git agentproto`: a supervisor for coding agents that lives inside the repository.
//!
//! The folders are floors, each may use only those above it in this list:
//! [`domain`] plain values · [`wire`] bytes ↔ values · [`engine`] decisions, no I/O ·
//! [`sys`] ambient authority · [`store`] git · [`sign`] ssh signatures · [`ledger`] the one way in ·
//! [`enforce`] verify · [`runtime`] performs effects · [`cli`] the front door.
//! `tests/it/tidy.rs` holds the arrows; `ARCHITECTURE.md` says why.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        reason = "tests look at the world as it is; what ships is held to the list"
    )
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "git-agentproto is built for Linux only: gates run under a child subreaper, pidfd and signalfd, and nothing else \
     is known here to end a whole process tree"
);

pub mod code;
pub mod limits;

pub mod domain;
pub mod wire;

pub mod engine;
pub mod sys;

pub mod store;

pub mod sign;

pub mod ledger;

pub mod enforce;
pub mod runtime;

pub mod cli;

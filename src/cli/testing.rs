//! What tests of several commands share: a context without a terminal, a policy with everything set.

use super::cx::Cx;
use crate::{
    domain::{oid::Oid, policy::Policy},
    sys::env::Env,
};
use serde_json::json;
use std::ffi::OsString;

/// A context with these variables alone.
pub(super) fn cx(vars: &[(&str, &str)]) -> Cx {
    let vars = vars.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
    Cx::new(Env::fixed("/".into(), vars), false)
}

/// An id of one digit.
pub(super) fn oid(digit: char) -> Oid {
    digit.to_string().repeat(40).parse().unwrap()
}

/// A commit policy in this state.
pub(super) fn policy(status: &str) -> Policy {
    serde_json::from_value(json!({
        "policyId": "pol_01arz3ndektsv4rrffq69g5fav",
        "label": "nightly",
        "sessionIds": ["ses_01arz3ndektsv4rrffq69g5fav"],
        "then": "commit",
        "gates": [
            { "command": "ls", "args": ["a b"], "cwd": "sub", "timeoutMs": 2000, "program": "00" },
        ],
        "commit": {
            "paths": ["a b"],
            "message": "add it\n",
            "requireHumanAck": true,
            "branch": "refs/heads/main",
        },
        "base": 1,
        "status": status,
        "generation": 1,
        "attempt": 1,
        "results": [{
            "index": 0,
            "verdict": "pass",
            "end": { "exit": 0 },
            "durationMs": 12,
            "log": { "sha256": "0".repeat(64), "sizeBytes": 1 },
            "unlistedChanges": 0,
        }],
        "since": "2026-01-31T12:00:00.000Z",
        "last": 7,
    }))
    .unwrap()
}

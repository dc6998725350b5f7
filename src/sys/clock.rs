//! The one clock and the one source of fresh ids.

use crate::domain::{
    ids::{PolicyId, SessionId, WriterId},
    time::Timestamp,
};
use std::time::{SystemTime, UNIX_EPOCH};

/// Wall clock, UTC, millisecond resolution. A clock before 1970 counts as 1970.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one clock")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn ulid() -> String {
    ulid::Ulid::new().to_string().to_lowercase()
}

/// A fresh session id.
#[must_use]
pub fn new_session_id() -> SessionId {
    loop {
        if let Ok(id) = SessionId::from_ulid(&ulid()) {
            return id;
        }
    }
}

/// A fresh policy id.
#[must_use]
pub fn new_policy_id() -> PolicyId {
    loop {
        if let Ok(id) = PolicyId::from_ulid(&ulid()) {
            return id;
        }
    }
}

/// A fresh writer id: the random part of a ULID.
#[must_use]
pub fn new_writer_id() -> WriterId {
    loop {
        let text = ulid();
        if let Ok(id) = text[text.len() - WriterId::LEN..].parse() {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_fresh() {
        assert_ne!(new_session_id(), new_session_id());
        assert_ne!(new_writer_id(), new_writer_id());
        assert!(new_policy_id().as_str().starts_with("pol_"));
    }
}

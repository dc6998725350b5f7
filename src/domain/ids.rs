//! Identifiers of sessions, policies and writers.

use super::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// The text is no identifier of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind} id: '{text}'")]
pub struct BadId {
    kind: &'static str,
    text: String,
}

/// Length of a ULID in Crockford base 32.
const ULID_CHARS: usize = 26;

fn is_ulid(text: &str) -> bool {
    text.len() == ULID_CHARS
        && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'z') && !b"ilou".contains(&c))
}

/// Characters of a ULID that hold its time, five bits each.
const ULID_TIME_CHARS: usize = 10;

fn minted(ulid: &str) -> Timestamp {
    const DIGITS: &str = "0123456789abcdefghjkmnpqrstvwxyz";
    let digits = ulid.chars().take(ULID_TIME_CHARS).filter_map(|c| DIGITS.find(c));
    let ms = digits.fold(0_i64, |ms, digit| ms * 32 + i64::try_from(digit).unwrap_or(0));
    Timestamp::from_ms(ms)
}

macro_rules! entity_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// What every id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// Makes the id from a lower-case ULID.
            ///
            /// # Errors
            /// The text is not 26 characters of lower-case Crockford base 32.
            pub fn from_ulid(ulid: &str) -> Result<Self, BadId> {
                format!("{}{ulid}", $prefix).parse()
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// When the id was minted, by that machine's clock: for people, never to decide an order.
            #[must_use]
            pub fn minted(&self) -> Timestamp {
                minted(&self.0[$prefix.len()..])
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                match text.strip_prefix($prefix) {
                    Some(rest) if is_ulid(rest) => Ok(Self(text.to_owned())),
                    _ => Err(BadId { kind: $kind, text: text.to_owned() }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

entity_id!(
    /// One agent at work in one worktree.
    SessionId, "session", "ses_"
);
entity_id!(
    /// What happens when a session's turn ends.
    PolicyId, "policy", "pol_"
);

/// One clone's journal identity: 12 characters of `[0-9a-z]`, minted at random at the first append.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterId(String);

impl WriterId {
    /// Characters in a writer id.
    pub const LEN: usize = 12;

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WriterId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let fits = text.len() == Self::LEN
            && text.bytes().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase());
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadId { kind: "writer", text: text.to_owned() })
        }
    }
}

impl fmt::Display for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for WriterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for WriterId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for WriterId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_when_it_was_minted() {
        // The example of the ULID specification.
        let id: PolicyId = "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap();
        assert_eq!(id.minted(), Timestamp::from_ms(1_469_922_850_259));
    }

    #[test]
    fn an_id_needs_its_prefix_and_a_ulid() {
        let good = "ses_01arz3ndektsv4rrffq69g5fav";
        assert_eq!(good.parse::<SessionId>().unwrap().as_str(), good);
        for bad in ["", "ses_", "pol_01arz3ndektsv4rrffq69g5fav", "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV"]
        {
            assert!(bad.parse::<SessionId>().is_err(), "{bad}");
        }
    }
}

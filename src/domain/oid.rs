//! Object ids as plain values, independent of the git library in use.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// A full git object id: 20 bytes (SHA-1) or 32 bytes (SHA-256).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid {
    bytes: [u8; 32],
    len: u8,
}

/// The text or bytes are no full object id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a full object id: '{0}'")]
pub struct BadOid(pub String);

impl Oid {
    /// Takes 20 or 32 raw bytes.
    ///
    /// # Errors
    /// Any other length.
    pub fn from_bytes(raw: &[u8]) -> Result<Self, BadOid> {
        let len = match raw.len() {
            20 => 20,
            32 => 32,
            n => return Err(BadOid(format!("{n} bytes"))),
        };
        let mut bytes = [0; 32];
        bytes[..raw.len()].copy_from_slice(raw);
        Ok(Self { bytes, len })
    }

    /// Takes the 20 raw bytes of a SHA-1 id.
    #[must_use]
    pub fn from_sha1(raw: [u8; 20]) -> Self {
        let mut bytes = [0; 32];
        bytes[..20].copy_from_slice(&raw);
        Self { bytes, len: 20 }
    }

    /// Raw bytes, 20 or 32 of them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// True for the all-zero id, git's "no object".
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.bytes == [0; 32]
    }

    /// The first `n` hex digits, for people.
    #[must_use]
    pub fn short(&self, n: usize) -> String {
        let mut text = self.to_string();
        text.truncate(n);
        text
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Oid({self})")
    }
}

impl FromStr for Oid {
    type Err = BadOid;

    fn from_str(text: &str) -> Result<Self, BadOid> {
        let bad = || BadOid(text.to_owned());
        let hex = text.as_bytes();
        if !matches!(hex.len(), 40 | 64) {
            return Err(bad());
        }
        let digit = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(bad()),
        };
        let mut raw = [0; 32];
        for (byte, pair) in raw.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Self::from_bytes(&raw[..hex.len() / 2])
    }
}

impl Serialize for Oid {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Oid {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_both_hash_lengths() {
        for text in ["0123456789abcdef0123456789abcdef01234567", &"a9".repeat(32)] {
            assert_eq!(text.parse::<Oid>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn refuses_abbreviations_upper_case_and_garbage() {
        for text in ["", "abc", &"A".repeat(40), &"g".repeat(40), &"a".repeat(41)] {
            assert!(text.parse::<Oid>().is_err(), "{text}");
        }
    }
}

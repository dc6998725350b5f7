//! Object ids as plain values, independent of the git library in use.
//!
//! Contract: an id knows which hash made it. Ids of different hashes are never equal, whatever digits they
//! share; a text is an id only with all the digits of one of them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};

/// The hash a repository names its objects by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HashKind {
    /// 20 bytes, 40 digits.
    Sha1,
    /// 32 bytes, 64 digits.
    Sha256,
}

impl HashKind {
    /// Every hash there is.
    pub const ALL: [Self; 2] = [Self::Sha1, Self::Sha256];

    /// Bytes of an id.
    #[must_use]
    pub const fn id_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Hex digits of an id.
    #[must_use]
    pub const fn id_digits(self) -> usize {
        2 * self.id_bytes()
    }

    /// What git calls it in `extensions.objectFormat`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }
}

/// A full git object id: 20 bytes (SHA-1) or 32 bytes (SHA-256).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid {
    bytes: [u8; 32],
    hash: HashKind,
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
        let hash = HashKind::ALL.into_iter().find(|h| h.id_bytes() == raw.len());
        let hash = hash.ok_or_else(|| BadOid(format!("{} bytes", raw.len())))?;
        let mut bytes = [0; 32];
        bytes[..raw.len()].copy_from_slice(raw);
        Ok(Self { bytes, hash })
    }

    /// Takes the 20 raw bytes of a SHA-1 id.
    #[must_use]
    pub fn from_sha1(raw: [u8; 20]) -> Self {
        let mut bytes = [0; 32];
        bytes[..20].copy_from_slice(&raw);
        Self { bytes, hash: HashKind::Sha1 }
    }

    /// The all-zero id of this hash, git's "no object".
    #[must_use]
    pub const fn null(hash: HashKind) -> Self {
        Self { bytes: [0; 32], hash }
    }

    /// The hash that made it.
    #[must_use]
    pub const fn hash(&self) -> HashKind {
        self.hash
    }

    /// Raw bytes, 20 or 32 of them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.hash.id_bytes()]
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
        if !HashKind::ALL.iter().any(|h| h.id_digits() == hex.len()) {
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
        for hash in HashKind::ALL {
            let text = "a9".repeat(hash.id_bytes());
            let id: Oid = text.parse().unwrap();
            assert_eq!((id.to_string(), id.hash()), (text, hash));
            assert_eq!(Oid::from_bytes(id.as_bytes()), Ok(id));
        }
    }

    #[test]
    fn refuses_abbreviations_upper_case_and_garbage() {
        for text in ["", "abc", &"A".repeat(40), &"g".repeat(40), &"a".repeat(41), &"a".repeat(63)]
        {
            assert!(text.parse::<Oid>().is_err(), "{text}");
        }
    }

    #[test]
    fn ids_of_two_hashes_are_never_the_same() {
        let short: Oid = "a9".repeat(20).parse().unwrap();
        let padded = format!("{short}{}", "0".repeat(24)).parse().unwrap();
        assert_ne!(short, padded);
        assert_ne!(Oid::null(HashKind::Sha1), Oid::null(HashKind::Sha256));
        assert!(HashKind::ALL.iter().all(|h| Oid::null(*h).is_null()));
    }
}

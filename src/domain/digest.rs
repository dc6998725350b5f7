//! SHA-256 written as lower-case hex: how everything outside git's own object ids is named.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Lower-case hex SHA-256 of some bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// True for 64 lower-case hex digits.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_published_vector() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
        assert!(is_sha256(abc));
        for other in ["", &abc[1..], &abc.to_uppercase(), &abc.replace('b', "g")] {
            assert!(!is_sha256(other), "{other}");
        }
    }
}

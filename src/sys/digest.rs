//! SHA-256 of bytes and of files, written as lower-case hex.

use sha2::{Digest, Sha256};
use std::{fs::File, io, path::Path};

/// Of bytes in memory.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Of a file's content, symlinks followed.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(hex(&hasher.finalize()))
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let nibbles = bytes.iter().flat_map(|b| [b >> 4, b & 15]);
    nibbles.map(|n| char::from(DIGITS[usize::from(n)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_published_vector() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), abc);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(sha256_file(&file).unwrap(), abc);
        assert!(sha256_file(&dir.path().join("missing")).is_err());
    }
}

//! SHA-256 of files, beside that of bytes in memory.

pub use crate::domain::digest::sha256;

use super::files;
use crate::domain::digest::hex;
use sha2::{Digest, Sha256};
use std::{io, path::Path};

/// Of a file's content, symlinks followed.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut files::open_regular(path).map_err(|e| e.source)?, &mut hasher)?;
    Ok(hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_hashes_as_its_bytes() {
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(sha256_file(&file).unwrap(), abc);
        assert!(sha256_file(&dir.path().join("missing")).is_err());
    }
}

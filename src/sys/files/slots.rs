//! A file of a cache, read and overwritten in parts.
//!
//! Contract: nothing in it is ever durable, and no part of it is believed for being there. Where a part is not
//! there yet, fewer bytes are an answer.

use super::{FileError, Op, access, regular, written};
use std::{
    fs::{File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// An open file and the name it was opened by.
#[derive(Debug)]
pub struct Slots {
    file: File,
    path: PathBuf,
}

impl Slots {
    /// Opens a file for reading; none when there is none.
    ///
    /// # Errors
    /// It is there and cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>, FileError> {
        match access(Op::Read, &[path], || regular(OpenOptions::new().read(true), 0, path)) {
            Ok((file, _)) => Ok(Some(Self { file, path: path.to_owned() })),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(FileError::new("open", path, e)),
        }
    }

    /// Opens a file for writing in place; it is made when missing (0600).
    ///
    /// # Errors
    /// It cannot be opened or made.
    pub fn open_or_make(path: &Path) -> Result<Self, FileError> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).mode(0o600);
        // What a link leads to is somebody else's.
        let file = access(Op::Create, &[path], || regular(&mut how, libc::O_NOFOLLOW, path));
        let (file, _) = file.map_err(|e| FileError::new("open", path, e))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// At most `length` bytes from a position on, fewer where the file ends.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_at(&self, pos: u64, length: usize) -> Result<Vec<u8>, FileError> {
        access(Op::Read, &[&self.path], || read_up_to(&self.file, pos, length))
            .map_err(|e| FileError::new("read", &self.path, e))
    }

    /// Writes all of `bytes` at a position, which may lie beyond the end.
    ///
    /// # Errors
    /// Some of them may then be there.
    pub fn write_at(&self, bytes: &[u8], pos: u64) -> Result<(), FileError> {
        written(Op::WriteAt, &self.path, bytes, |part| self.file.write_all_at(part, pos))
            .map_err(|e| FileError::new("write", &self.path, e))
    }

    /// Size, bytes.
    ///
    /// # Errors
    /// `fstat` failed.
    pub fn size_bytes(&self) -> Result<u64, FileError> {
        access(Op::Read, &[&self.path], || self.file.metadata())
            .map(|m| m.len())
            .map_err(|e| FileError::new("look at", &self.path, e))
    }

    /// Lets the file end at a position.
    ///
    /// # Errors
    /// It is as long as before.
    pub fn end_at(&self, pos: u64) -> Result<(), FileError> {
        access(Op::WriteAt, &[&self.path], || self.file.set_len(pos))
            .map_err(|e| FileError::new("shorten", &self.path, e))
    }
}

fn read_up_to(file: &File, pos: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], pos + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_far_as_the_file_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        assert!(Slots::open(&path).unwrap().is_none());
        Slots::open_or_make(&path).unwrap().write_at(b"4567", 4).unwrap();
        Slots::open_or_make(&path).unwrap().write_at(b"01", 0).unwrap();
        let file = Slots::open(&path).unwrap().unwrap();
        assert_eq!(file.read_at(0, 5).unwrap(), b"01\0\x004");
        Slots::open_or_make(&path).unwrap().end_at(6).unwrap();
        assert_eq!((file.read_at(5, 4).unwrap(), file.size_bytes().unwrap()), (b"5".to_vec(), 6));
        assert_eq!(file.read_at(9, 4).unwrap(), b"");
    }
}

//! A file that is written in place.
//!
//! Contract: nothing is durable before [`Log::sync_data`]; a write may be torn anywhere by a crash. Where a
//! position is beyond the end is an answer, not an error.

use super::{FileError, FileId, Op, access, regular, written};
use std::{
    fs::{File, Metadata, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// An open file and the name it was opened by.
#[derive(Debug)]
pub struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Makes a file that must not exist yet, with these permissions.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    pub fn create_new(path: &Path, mode: u32) -> Result<Self, FileError> {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create_new(true).mode(mode);
        Self::opened(path, access(Op::Create, &[path], || regular(&mut how, 0, path)), "write")
    }

    /// Opens a file for reading and writing, for reading alone where nothing can be written; none when there
    /// is none.
    ///
    /// # Errors
    /// It is there and cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>, FileError> {
        let open = |write| {
            let mut how = OpenOptions::new();
            how.read(true).write(write);
            let file = access(Op::Read, &[path], || regular(&mut how, 0, path));
            Self::opened(path, file, "open")
        };
        match open(true).or_else(|e| if e.is_read_only() { open(false) } else { Err(e) }) {
            Ok(log) => Ok(Some(log)),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn opened(
        path: &Path,
        file: io::Result<(File, Metadata)>,
        what: &'static str,
    ) -> Result<Self, FileError> {
        let (file, _) = file.map_err(|e| FileError::new(what, path, e))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// By which name it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `bytes` from a position; false where the file ends before they are full.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_at(&self, bytes: &mut [u8], pos: u64) -> Result<bool, FileError> {
        match access(Op::Read, &[&self.path], || self.file.read_exact_at(bytes, pos)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(e) => Err(FileError::new("read", &self.path, e)),
        }
    }

    /// Writes all of `bytes` at a position.
    ///
    /// # Errors
    /// Some of them may then be there.
    pub fn write_at(&self, bytes: &[u8], pos: u64) -> Result<(), FileError> {
        written(Op::WriteAt, &self.path, bytes, |part| self.file.write_all_at(part, pos))
            .map_err(|e| FileError::new("write", &self.path, e))
    }

    /// Takes off what is beyond a size, bytes.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn cut(&self, size_bytes: u64) -> Result<(), FileError> {
        access(Op::WriteAt, &[&self.path], || self.file.set_len(size_bytes))
            .map_err(|e| FileError::new("cut", &self.path, e))
    }

    /// Makes the bytes survive a power cut.
    ///
    /// # Errors
    /// Nothing is known about what was written since the last time.
    pub fn sync_data(&self) -> Result<(), FileError> {
        access(Op::SyncData, &[&self.path], || self.file.sync_data())
            .map_err(|e| FileError::new("sync", &self.path, e))
    }

    /// As [`Log::sync_data`], with size and permissions.
    ///
    /// # Errors
    /// Nothing is known about what was written since the last time.
    pub fn sync_all(&self) -> Result<(), FileError> {
        access(Op::Sync, &[&self.path], || self.file.sync_all())
            .map_err(|e| FileError::new("sync", &self.path, e))
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

    /// Whether the name still leads to this file.
    ///
    /// # Errors
    /// That cannot be told.
    pub fn is_current(&self) -> Result<bool, FileError> {
        let ours = FileId::of(&self.file).map_err(|e| FileError::new("look at", &self.path, e))?;
        Ok(FileId::at(&self.path)? == Some(ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_beyond_the_end_is_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(Log::open(&path).unwrap().is_none());
        let log = Log::create_new(&path, 0o600).unwrap();
        assert!(Log::create_new(&path, 0o600).unwrap_err().is_taken());
        log.write_at(b"abcd", 2).unwrap();
        let mut bytes = [1; 4];
        assert!(log.read_at(&mut bytes, 1).unwrap());
        assert_eq!((&bytes, log.size_bytes().unwrap()), (b"\0abc", 6));
        assert!(!log.read_at(&mut bytes, 3).unwrap());
    }

    #[test]
    fn a_replaced_file_is_not_current() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = Log::create_new(&path, 0o600).unwrap();
        assert!(log.is_current().unwrap());
        std::fs::write(dir.path().join("other"), "").unwrap();
        std::fs::rename(dir.path().join("other"), &path).unwrap();
        assert!(!log.is_current().unwrap());
    }
}

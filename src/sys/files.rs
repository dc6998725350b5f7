//! The one writer of files: atomic replacement, fsync, and errors that name the path.
//!
//! Contract: a missing file is an answer ([`read_optional`] says none), an unreadable one is an error.
//! Whatever must survive a power cut is synced before its name appears, and its directory after.

use super::clock;
use std::{
    ffi::OsString,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The operating system refused something about a path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct FileError {
    /// What was tried, as a verb.
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

impl FileError {
    /// Ties an error of the operating system to its path.
    #[must_use]
    pub fn new(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self { action, path: path.to_owned(), source }
    }

    /// True when nothing can be written there: read-only file system or no permission.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
    }

    /// True when the path or its directory is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.source.kind() == ErrorKind::NotFound
    }
}

/// Whether bytes must have reached the disk before a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// fsync before the name appears.
    Yes,
    /// The page cache will do: the bytes can be made again.
    No,
}

/// Device and inode: the identity of a file whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(u64, u64);

impl FileId {
    /// Of an open file.
    ///
    /// # Errors
    /// `fstat` failed.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|m| Self(m.dev(), m.ino()))
    }

    /// Of a path, links not followed; none when nothing is there.
    ///
    /// # Errors
    /// The path cannot be looked at.
    pub fn at(path: &Path) -> Result<Option<Self>, FileError> {
        match std::fs::symlink_metadata(path) {
            Ok(m) => Ok(Some(Self(m.dev(), m.ino()))),
            Err(e) if absent(&e) => Ok(None),
            Err(e) => Err(FileError::new("look at", path, e)),
        }
    }
}

fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The whole file, none when there is none.
///
/// # Errors
/// It is there and cannot be read.
pub fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match std::fs::read(path) {
        Ok(data) => Ok(Some(data)),
        Err(e) if absent(&e) => Ok(None),
        Err(e) => Err(FileError::new("read", path, e)),
    }
}

/// Writes a file that must not exist yet, with these permissions.
///
/// # Errors
/// It exists, or cannot be written (or synced).
pub fn write_new(path: &Path, data: &[u8], mode: u32, durable: Durable) -> Result<(), FileError> {
    let fail = |e| FileError::new("write", path, e);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(fail)?;
    file.write_all(data).map_err(fail)?;
    match durable {
        Durable::Yes => file.sync_all().map_err(fail),
        Durable::No => Ok(()),
    }
}

/// Replaces a file as a whole: readers see the old or the new bytes, a power cut too. `staged` is a
/// name on the same file system that nobody else uses.
///
/// # Errors
/// Any step failed; the old file is then untouched.
pub fn replace(path: &Path, staged: &Path, data: &[u8]) -> Result<(), FileError> {
    remove_optional(staged)?;
    write_new(staged, data, 0o644, Durable::Yes)?;
    rename(staged, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Writes a file that only its owner may read: a new file beside it (0600), synced and renamed into place.
/// Missing directories are made (0700).
///
/// # Errors
/// Any step failed; the old file is then still whole.
pub fn write_private(path: &Path, data: &[u8]) -> Result<(), FileError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| FileError::new("make directory", dir, e))?;
    let mut staged = path.as_os_str().to_owned();
    // Random, as a pid comes back and would meet what a dead process left.
    staged.push(format!(".{}.new", clock::new_writer_id()));
    let staged = PathBuf::from(staged);
    let done = write_new(&staged, data, 0o600, Durable::Yes)
        .and_then(|()| rename(&staged, path))
        .and_then(|()| sync_dir(dir));
    if done.is_err() {
        // Nothing half-written stays; the failure itself is reported.
        let _ = std::fs::remove_file(&staged);
    }
    done
}

/// Renames, replacing what is there.
///
/// # Errors
/// The operating system refused.
pub fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    std::fs::rename(from, to).map_err(|e| FileError::new("rename to", to, e))
}

/// Makes names in a directory survive a power cut.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> Result<(), FileError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| FileError::new("sync", dir, e))
}

/// Makes a directory and those above it.
///
/// # Errors
/// The operating system refused.
pub fn make_dirs(dir: &Path) -> Result<(), FileError> {
    std::fs::create_dir_all(dir).map_err(|e| FileError::new("make directory", dir, e))
}

/// Removes a file; false when there was none.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove_optional(path: &Path) -> Result<bool, FileError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if absent(&e) => Ok(false),
        Err(e) => Err(FileError::new("remove", path, e)),
    }
}

/// Names in a directory, sorted; none in one that is not there.
///
/// # Errors
/// It is there and cannot be listed.
pub fn names(dir: &Path) -> Result<Vec<OsString>, FileError> {
    let fail = |e| FileError::new("list", dir, e);
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if absent(&e) => return Ok(Vec::new()),
        Err(e) => return Err(fail(e)),
    };
    let mut names =
        entries.map(|e| e.map(|e| e.file_name())).collect::<io::Result<Vec<_>>>().map_err(fail)?;
    names.sort();
    Ok(names)
}

/// The kernel's name for the time since the last boot; none where it cannot be read.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_an_answer_and_an_unreadable_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_optional(&dir.path().join("no/such")).unwrap(), None);
        assert!(read_optional(dir.path()).is_err());
        assert!(!remove_optional(&dir.path().join("none")).unwrap());
        assert_eq!(names(&dir.path().join("none")).unwrap(), Vec::<OsString>::new());
    }

    #[test]
    fn replacing_leaves_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let (path, staged) = (dir.path().join("f"), dir.path().join("f.new"));
        std::fs::write(&staged, "left over by a killed process").unwrap();
        replace(&path, &staged, b"one").unwrap();
        replace(&path, &staged, b"two").unwrap();
        assert_eq!(read_optional(&path).unwrap().unwrap(), b"two");
        assert_eq!(names(dir.path()).unwrap(), ["f"]);
        assert!(write_new(&path, b"x", 0o644, Durable::No).is_err());
    }
}

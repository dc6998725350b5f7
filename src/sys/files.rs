//! The one way to files: atomic replacement, fsync, and errors that name the path.
//!
//! Contract: a missing file is an answer ([`read_optional`] says none), an unreadable one is an error.
//! Whatever must survive a power cut is synced before its name appears, and its directory after. Every call
//! of the operating system is made inside [`access`] or [`written`], where the tests let it fail.

#![expect(clippy::disallowed_methods, reason = "the one place that touches files")]

mod at;
mod log;
mod regular;
mod scratch;
mod slots;

pub use at::{Held, Opened};
pub use log::Log;
pub use regular::{
    Unfit, code_of, open_own, open_record, open_regular, read, read_given, read_optional, read_own,
};
pub use scratch::Scratch;
pub use slots::Slots;

pub(in crate::sys) use regular::regular;

use super::clock;
use crate::{code::Code, limits};
use std::{
    ffi::OsString,
    fs::{DirBuilder, File, Metadata, OpenOptions},
    io::{self, ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

/// What a call does to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::sys) enum Op {
    /// Makes a file, or opens one that may be new.
    Create,
    /// Writes at the end of a new file, or copies one.
    Write,
    /// Writes at a position.
    WriteAt,
    /// fsync of a file.
    Sync,
    /// fdatasync of a file.
    SyncData,
    /// fsync of a directory.
    SyncDir,
    /// Gives a file another name.
    Rename,
    /// Gives a file a second name.
    Link,
    /// Removes a name.
    Unlink,
    /// Makes a directory.
    MakeDir,
    /// Takes a kernel lock.
    Lock,
    /// Starts a program or tells a running one to act.
    Program,
    /// Changes nothing.
    Read,
}

/// Where every call passes through. In a shipped binary: nothing but the call.
#[cfg(not(test))]
pub(in crate::sys) fn access<T>(
    _op: Op,
    _paths: &[&Path],
    run: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    run()
}

/// As [`access`], for calls that write bytes: a test may let only some of them through.
#[cfg(not(test))]
fn written(
    _op: Op,
    _path: &Path,
    data: &[u8],
    run: impl FnOnce(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    run(data)
}

#[cfg(test)]
pub(in crate::sys) use super::fault::access;
#[cfg(test)]
use super::fault::written;

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

    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        code_of(&self.source)
    }

    /// True when nothing can be written there: read-only file system or no permission.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
    }

    /// True when it would fit if something else were removed: full disk, quota.
    #[must_use]
    pub fn is_no_space(&self) -> bool {
        matches!(self.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    }

    /// True when the path or its directory is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.source.kind() == ErrorKind::NotFound
    }

    /// True when something has that name already.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.source.kind() == ErrorKind::AlreadyExists
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
        access(Op::Read, &[], || file.metadata()).map(|m| Self::from(&m))
    }

    /// Of a path, links not followed; none when nothing is there.
    ///
    /// # Errors
    /// The path cannot be looked at.
    pub fn at(path: &Path) -> Result<Option<Self>, FileError> {
        Ok(look(path)?.as_ref().map(Self::from))
    }
}

impl From<&Metadata> for FileId {
    fn from(found: &Metadata) -> Self {
        Self(found.dev(), found.ino())
    }
}

fn absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What is at a path, links not followed; none when nothing is there.
///
/// # Errors
/// The path cannot be looked at.
pub fn look(path: &Path) -> Result<Option<Metadata>, FileError> {
    seen(path, access(Op::Read, &[path], || std::fs::symlink_metadata(path)))
}

/// What a path leads to, links followed; none when nothing is there.
///
/// # Errors
/// The path cannot be looked at.
pub fn look_through(path: &Path) -> Result<Option<Metadata>, FileError> {
    seen(path, access(Op::Read, &[path], || std::fs::metadata(path)))
}

/// True for a symbolic link that leads to nothing, or round.
///
/// # Errors
/// The path cannot be looked at.
pub fn is_dead_link(path: &Path) -> Result<bool, FileError> {
    if !look(path)?.is_some_and(|found| found.is_symlink()) {
        return Ok(false);
    }
    match look_through(path) {
        Ok(found) => Ok(found.is_none()),
        Err(e) if e.source.raw_os_error() == Some(libc::ELOOP) => Ok(true),
        Err(e) => Err(e),
    }
}

fn seen(path: &Path, found: io::Result<Metadata>) -> Result<Option<Metadata>, FileError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if absent(&e) => Ok(None),
        Err(e) => Err(FileError::new("look at", path, e)),
    }
}

/// When what a path leads to was made, as a number that is the same as long as it is there, whatever its name is then;
/// none when nothing is there or the file system does not keep that time.
///
/// # Errors
/// The path cannot be looked at.
pub fn born(path: &Path) -> Result<Option<u128>, FileError> {
    let made = look_through(path)?.and_then(|found| found.created().ok());
    Ok(made.and_then(|made| made.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_nanos()))
}

/// Whether something is at a path, be it a dangling link.
///
/// # Errors
/// That cannot be told.
pub fn is_there(path: &Path) -> Result<bool, FileError> {
    Ok(look(path)?.is_some())
}

/// Whether a path leads to a directory.
///
/// # Errors
/// That cannot be told.
pub fn is_dir(path: &Path) -> Result<bool, FileError> {
    Ok(look_through(path)?.is_some_and(|m| m.is_dir()))
}

/// Whether a path leads to a regular file.
///
/// # Errors
/// That cannot be told.
pub fn is_file(path: &Path) -> Result<bool, FileError> {
    Ok(look_through(path)?.is_some_and(|m| m.is_file()))
}

/// True when this user may write there as things are. Nothing is written to find out; what cannot be looked at is
/// not writable.
#[must_use]
pub fn is_writable(path: &Path) -> bool {
    access(Op::Read, &[path], || Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?))
        .is_ok()
}

/// The absolute path without links that names the same file.
///
/// # Errors
/// It is not there, or cannot be resolved.
pub fn real(path: &Path) -> Result<PathBuf, FileError> {
    access(Op::Read, &[path], || std::fs::canonicalize(path))
        .map_err(|e| FileError::new("resolve", path, e))
}

/// The text of a symbolic link.
///
/// # Errors
/// It is none, or cannot be read.
pub fn read_link(path: &Path) -> Result<PathBuf, FileError> {
    access(Op::Read, &[path], || std::fs::read_link(path))
        .map_err(|e| FileError::new("read", path, e))
}

/// A file that a person named, opened for reading from its start. It may be a pipe, and is waited for.
///
/// # Errors
/// It is not there or cannot be opened.
pub fn open_given(path: &Path) -> Result<File, FileError> {
    access(Op::Read, &[path], || File::open(path)).map_err(|e| FileError::new("open", path, e))
}

/// Writes a file that must not exist yet, with these permissions.
///
/// # Errors
/// It exists, or cannot be written (or synced).
pub fn write_new(path: &Path, data: &[u8], mode: u32, durable: Durable) -> Result<(), FileError> {
    fill(path, OpenOptions::new().write(true).create_new(true).mode(mode), 0, data, durable)
}

/// Writes a file, or writes it anew in its place.
///
/// # Errors
/// It cannot be written (or synced).
pub fn write(path: &Path, data: &[u8], durable: Durable) -> Result<(), FileError> {
    fill(path, OpenOptions::new().write(true).create(true).truncate(true), 0, data, durable)
}

fn fill(
    path: &Path,
    how: &mut OpenOptions,
    flags: i32,
    data: &[u8],
    durable: Durable,
) -> Result<(), FileError> {
    let fail = |e| FileError::new("write", path, e);
    let mut file = access(Op::Create, &[path], || regular(how, flags, path)).map_err(fail)?.0;
    if !data.is_empty() {
        written(Op::Write, path, data, |part| file.write_all(part)).map_err(fail)?;
    }
    match durable {
        Durable::Yes => access(Op::Sync, &[path], || file.sync_all()).map_err(fail),
        Durable::No => Ok(()),
    }
}

/// Copies a file with its permissions to a name that may be taken.
///
/// # Errors
/// One cannot be read or the other not written.
pub fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    let copied = || {
        let (mut source, found) = regular(OpenOptions::new().read(true), 0, from)?;
        let mut how = OpenOptions::new();
        let (mut copy, _) = regular(how.write(true).create(true).truncate(true), 0, to)?;
        io::copy(&mut source, &mut copy)?;
        copy.set_permissions(found.permissions())
    };
    access(Op::Write, &[to], copied).map_err(|e| FileError::new("copy", from, e))
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
    make_private_dirs(dir)?;
    let mut staged = path.as_os_str().to_owned();
    // Random, as a pid comes back and would meet what a dead process left.
    staged.push(format!(".{}.new", clock::new_writer_id()));
    let staged = PathBuf::from(staged);
    let done = write_new(&staged, data, 0o600, Durable::Yes)
        .and_then(|()| rename(&staged, path))
        .and_then(|()| sync_dir(dir));
    if done.is_err() {
        // Nothing half-written stays; the failure itself is reported.
        let _ = remove_optional(&staged);
    }
    done
}

/// Writes over the beginning of a file, which is made (0600) where it is missing. Not durable by itself. A link is
/// refused: what it leads to is somebody else's.
///
/// # Errors
/// It cannot be opened or written.
pub fn overwrite(path: &Path, data: &[u8]) -> Result<(), FileError> {
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(false).mode(0o600);
    fill(path, &mut how, libc::O_NOFOLLOW, data, Durable::No)
}

/// Renames, replacing what is there.
///
/// # Errors
/// The operating system refused.
pub fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    access(Op::Rename, &[from, to], || std::fs::rename(from, to))
        .map_err(|e| FileError::new("rename to", to, e))
}

/// Gives a file a second name, which must be free ([`FileError::is_taken`]).
///
/// # Errors
/// The operating system refused.
pub fn link(from: &Path, to: &Path) -> Result<(), FileError> {
    access(Op::Link, &[from, to], || std::fs::hard_link(from, to))
        .map_err(|e| FileError::new("link", to, e))
}

/// Makes names in a directory survive a power cut.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> Result<(), FileError> {
    let mut how = OpenOptions::new();
    how.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK);
    access(Op::SyncDir, &[dir], || how.open(dir)?.sync_all())
        .map_err(|e| FileError::new("sync", dir, e))
}

/// Makes the bytes of a file that somebody else wrote survive a power cut, or the names in a directory.
///
/// # Errors
/// It is neither, or cannot be opened or synced.
pub fn sync_file(path: &Path) -> Result<(), FileError> {
    let sync = || {
        let mut how = OpenOptions::new();
        let file = how.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        let found = file.metadata()?;
        match Unfit::as_file(&found).filter(|_| !found.is_dir()) {
            None => file.sync_all(),
            Some(unfit) => Err(io::Error::other(unfit)),
        }
    };
    access(Op::Sync, &[path], sync).map_err(|e| FileError::new("sync", path, e))
}

/// Makes a directory and those above it.
///
/// # Errors
/// The operating system refused.
pub fn make_dirs(dir: &Path) -> Result<(), FileError> {
    make_dirs_as(dir, 0o777)
}

/// Makes a directory and those above it, new ones for their owner alone (0700).
///
/// # Errors
/// The operating system refused.
pub fn make_private_dirs(dir: &Path) -> Result<(), FileError> {
    make_dirs_as(dir, 0o700)
}

fn make_dirs_as(dir: &Path, mode: u32) -> Result<(), FileError> {
    if is_dir(dir)? {
        return Ok(());
    }
    let make = || access(Op::MakeDir, &[dir], || DirBuilder::new().mode(mode).create(dir));
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    let made = match (make(), above) {
        (Err(e), Some(above)) if e.kind() == ErrorKind::NotFound => {
            make_dirs_as(above, mode)?;
            make()
        }
        (made, _) => made,
    };
    match made {
        // Somebody else was quicker.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => match look_through(dir)? {
            Some(found) => match Unfit::as_directory(&found) {
                None => Ok(()),
                Some(unfit) => Err(FileError::new("use", dir, io::Error::other(unfit))),
            },
            // A link that leads nowhere.
            None => Err(match look(dir)?.as_ref().and_then(Unfit::as_directory) {
                Some(unfit) => FileError::new("use", dir, io::Error::other(unfit)),
                None => FileError::new("make directory", dir, e),
            }),
        },
        made => made.map_err(|e| FileError::new("make directory", dir, e)),
    }
}

/// Removes a file; false when there was none.
///
/// # Errors
/// It is there and cannot be removed.
pub fn remove_optional(path: &Path) -> Result<bool, FileError> {
    match access(Op::Unlink, &[path], || std::fs::remove_file(path)) {
        Ok(()) => Ok(true),
        Err(e) if absent(&e) => Ok(false),
        Err(e) => Err(FileError::new("remove", path, e)),
    }
}

/// Removes a directory with everything in it; one that is not there is fine.
///
/// # Errors
/// Something in it cannot be removed.
pub fn remove_tree(dir: &Path) -> Result<(), FileError> {
    match access(Op::Unlink, &[dir], || std::fs::remove_dir_all(dir)) {
        Err(e) if !absent(&e) => Err(FileError::new("remove", dir, e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Names in a directory, sorted; none in one that is not there.
///
/// # Errors
/// It is there and cannot be listed.
pub fn names(dir: &Path) -> Result<Vec<OsString>, FileError> {
    match list(dir) {
        Err(e) if absent(&e.source) => Ok(Vec::new()),
        listed => listed,
    }
}

/// Names in a directory that must be there, sorted.
///
/// # Errors
/// It is not there or cannot be listed.
pub fn list(dir: &Path) -> Result<Vec<OsString>, FileError> {
    let read = || std::fs::read_dir(dir)?.map(|e| e.map(|e| e.file_name())).collect();
    let mut names: Vec<OsString> =
        access(Op::Read, &[dir], read).map_err(|e| FileError::new("list", dir, e))?;
    names.sort();
    Ok(names)
}

/// Where Linux tells which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The kernel's name for the time since the last boot; none where it cannot be read.
#[must_use]
pub fn boot_id() -> Option<String> {
    #[cfg(test)]
    if let Some(id) = super::fault::boot_id() {
        return Some(id);
    }
    let text = String::from_utf8(read(Path::new(BOOT_ID), limits::PROC_FILE_BYTES).ok()?).ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_an_answer_and_an_unreadable_one_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read_optional(&dir.path().join("no/such"), 9).unwrap(), None);
        assert!(read_optional(dir.path(), 9).is_err());
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
        assert_eq!(read_optional(&path, 3).unwrap().unwrap(), b"two");
        assert_eq!(names(dir.path()).unwrap(), ["f"]);
        assert!(write_new(&path, b"x", 0o644, Durable::No).is_err());
    }
}

//! The one way to open what must be a regular file, and to read it whole.
//!
//! Contract: nothing is waited for. A fifo in the place of a file would hold whoever opens it until somebody comes to
//! its other end, a device may never end, and a file of any size would be taken into memory: what is no regular file is
//! refused by name ([`Unfit`]), and whoever reads says how much at most. What a person named ([`read_given`]) may be a
//! pipe.

use super::{FileError, Op, absent, access, open_given};
use crate::{code::Code, limits};
use std::{
    fs::{File, FileType, Metadata, OpenOptions},
    io::{self, Read},
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

/// What is at a path cannot be what belongs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is of another kind.
    #[error("it is {is}, not {belongs}")]
    Kind {
        /// What it is.
        is: &'static str,
        /// What belongs there.
        belongs: &'static str,
    },
    /// It is larger than such a file ever is.
    #[error("it holds more than the {most} bytes that are read of such a file")]
    Larger {
        /// The bound, bytes.
        most: u64,
    },
}

impl Unfit {
    /// What is found where a regular file belongs; none when it is one.
    #[must_use]
    pub fn as_file(found: &Metadata) -> Option<Self> {
        let belongs = "a regular file";
        (!found.is_file()).then(|| Self::Kind { is: word(found.file_type()), belongs })
    }

    /// What is found where a ref of git belongs; none when that can be one.
    #[must_use]
    pub fn as_ref(found: &Metadata) -> Option<Self> {
        let most = limits::SMALL_FILE_BYTES;
        Self::as_file(found).or_else(|| (found.len() > most).then_some(Self::Larger { most }))
    }

    /// What is found where a directory belongs; none when it is one.
    #[must_use]
    pub fn as_directory(found: &Metadata) -> Option<Self> {
        let belongs = "a directory";
        (!found.is_dir()).then(|| Self::Kind { is: word(found.file_type()), belongs })
    }
}

fn word(kind: FileType) -> &'static str {
    match () {
        () if kind.is_file() => "a regular file",
        () if kind.is_dir() => "a directory",
        () if kind.is_symlink() => "a symbolic link",
        () if kind.is_fifo() => "a fifo",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// The stable code of an error of this module or of the operating system.
#[must_use]
pub fn code_of(error: &io::Error) -> Code {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Unfit>()) {
        Some(Unfit::Kind { .. }) => Code::NotRegular,
        Some(Unfit::Larger { .. }) => Code::OverLimit,
        // A file lies where a directory belongs above the path.
        None if error.kind() == io::ErrorKind::NotADirectory => Code::NotRegular,
        None => Code::Io,
    }
}

/// Opens a regular file as `how` says with these further flags of open(2), waiting for nobody.
pub(in crate::sys) fn regular(
    how: &mut OpenOptions,
    flags: i32,
    path: &Path,
) -> io::Result<(File, Metadata)> {
    let file = match how.custom_flags(flags | libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(e) => return Err(unfit_instead(e, flags, path)),
    };
    let found = file.metadata()?;
    match Unfit::as_file(&found) {
        None => Ok((file, found)),
        Some(unfit) => Err(io::Error::other(unfit)),
    }
}

/// Sockets, fifos nobody reads, directories and links fail to be opened, each by a number that names none of them.
fn unfit_instead(error: io::Error, flags: i32, path: &Path) -> io::Error {
    if !matches!(error.raw_os_error(), Some(libc::ENXIO | libc::EISDIR | libc::ELOOP)) {
        return error;
    }
    let follow = flags & libc::O_NOFOLLOW == 0;
    let look = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
    look.ok().as_ref().and_then(Unfit::as_file).map_or(error, io::Error::other)
}

fn whole(path: &Path, flags: i32, most: u64) -> io::Result<Vec<u8>> {
    let (file, found) = regular(OpenOptions::new().read(true), flags, path)?;
    let size = usize::try_from(found.len()).unwrap_or(usize::MAX);
    bounded(file, most, if found.len() > most { None } else { Some(size) })
}

/// All of it; `size` as far as it is known, bytes, none when it is known to be too much.
fn bounded(from: impl Read, most: u64, size: Option<usize>) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::other(Unfit::Larger { most });
    let mut bytes = Vec::with_capacity(size.ok_or_else(too_large)?);
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    // It may have grown since, and files of the kernel tell no size.
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

/// The whole file, which must be there, links followed.
///
/// # Errors
/// It is not there, is no regular file, has more than `most` bytes, or cannot be read.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    access(Op::Read, &[path], || whole(path, 0, most)).map_err(|e| FileError::new("read", path, e))
}

/// As [`read`]; none when there is none.
///
/// # Errors
/// It is there and is no regular file, has more than `most` bytes, or cannot be read.
pub fn read_optional(path: &Path, most: u64) -> Result<Option<Vec<u8>>, FileError> {
    present(read(path, most))
}

/// As [`read_optional`], for a file that this program alone writes: it is never a link, so a link is refused.
///
/// # Errors
/// It is there and is no regular file, has more than `most` bytes, or cannot be read.
pub fn read_own(path: &Path, most: u64) -> Result<Option<Vec<u8>>, FileError> {
    let read = access(Op::Read, &[path], || whole(path, libc::O_NOFOLLOW, most));
    present(read.map_err(|e| FileError::new("read", path, e)))
}

fn present(read: Result<Vec<u8>, FileError>) -> Result<Option<Vec<u8>>, FileError> {
    match read {
        Ok(data) => Ok(Some(data)),
        Err(e) if absent(&e.source) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The whole of what a person named, be it a pipe, which is waited for.
///
/// # Errors
/// It is not there, has more than `most` bytes, or cannot be read.
pub fn read_given(path: &Path, most: u64) -> Result<Vec<u8>, FileError> {
    let file = open_given(path)?;
    access(Op::Read, &[path], || bounded(file, most, Some(0)))
        .map_err(|e| FileError::new("read", path, e))
}

/// A regular file, opened for reading from its start, links followed.
///
/// # Errors
/// It is not there, is no regular file, or cannot be opened.
pub fn open_regular(path: &Path) -> Result<File, FileError> {
    let opened = access(Op::Read, &[path], || regular(OpenOptions::new().read(true), 0, path));
    opened.map(|(file, _)| file).map_err(|e| FileError::new("open", path, e))
}

/// As [`open_regular`], for a file that this program alone writes: a link is refused.
///
/// # Errors
/// It is not there, is no regular file, or cannot be opened.
pub fn open_own(path: &Path) -> Result<File, FileError> {
    let mut how = OpenOptions::new();
    let how = how.read(true);
    let opened = access(Op::Read, &[path], || regular(how, libc::O_NOFOLLOW, path));
    opened.map(|(file, _)| file).map_err(|e| FileError::new("open", path, e))
}

/// A regular file of ours for reading and writing, made (0600) where it is missing; a link is refused.
///
/// # Errors
/// It is no regular file, or cannot be opened or made.
pub fn open_record(path: &Path) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(true).truncate(false).mode(0o600);
    access(Op::Create, &[path], || regular(&mut how, libc::O_NOFOLLOW, path)).map(|(file, _)| file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{
        files::{self, Durable, Log, Slots},
        lock::KernelLock,
    };
    use std::path::PathBuf;

    fn fifo(dir: &Path) -> PathBuf {
        let path = dir.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }

    #[test]
    fn whatever_is_opened_waits_for_no_fifo_and_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = &fifo(dir.path());
        let new = dir.path().join("new");
        let tried = [
            files::read(path, 9).map(drop),
            files::read_optional(path, 9).map(drop),
            files::read_own(path, 9).map(drop),
            files::open_regular(path).map(drop),
            files::write(path, b"x", Durable::No),
            files::overwrite(path, b"x"),
            files::copy(path, &new),
            files::sync_file(path),
            files::open_record(path).map(drop).map_err(|e| FileError::new("open", path, e)),
            Log::open(path).map(drop),
            Slots::open(path).map(drop),
            Slots::open_or_make(path).map(drop),
            KernelLock::try_acquire(path).map(drop),
        ];
        for (at, tried) in tried.into_iter().enumerate() {
            let e = tried.unwrap_err();
            assert_eq!(e.code(), Code::NotRegular, "{at}: {e}");
            let told = e.to_string();
            assert!(told.ends_with("/fifo: it is a fifo, not a regular file"), "{at}: {told}");
        }
        assert!(files::sync_dir(path).is_err());
        assert!(!new.exists());
    }

    #[test]
    fn what_is_larger_than_such_a_file_may_be_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let huge = File::create(&path).unwrap();
        huge.set_len(1 << 40).unwrap();
        let e = read(&path, 9).unwrap_err();
        assert_eq!(e.code(), Code::OverLimit);
        assert!(
            e.to_string().ends_with("it holds more than the 9 bytes that are read of such a file"),
            "{e}"
        );
        assert_eq!(read_given(&path, 9).unwrap_err().code(), Code::OverLimit);
        huge.set_len(9).unwrap();
        assert_eq!((read(&path, 9).unwrap().len(), read_given(&path, 9).unwrap().len()), (9, 9));
        // A file of the kernel has no size before it is read.
        assert!(read(Path::new("/proc/self/stat"), 4096).is_ok_and(|all| !all.is_empty()));
        assert_eq!(read(Path::new("/proc/self/stat"), 9).unwrap_err().code(), Code::OverLimit);
    }

    #[test]
    fn links_are_followed_but_for_files_of_ours_and_directories_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("link"));
        std::fs::write(&path, "one").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(read_optional(&link, 9).unwrap().unwrap(), b"one");
        let told = |e: FileError| (e.code(), e.source.to_string());
        let not = |what: &str| (Code::NotRegular, format!("it is {what}, not a regular file"));
        assert_eq!(told(read_own(&link, 9).unwrap_err()), not("a symbolic link"));
        assert_eq!(told(read(dir.path(), 9).unwrap_err()), not("a directory"));
        assert_eq!(told(files::overwrite(dir.path(), b"x").unwrap_err()), not("a directory"));
        assert_eq!(told(read(Path::new("/dev/zero"), 9).unwrap_err()), not("a device"));
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        assert_eq!(told(read(&dir.path().join("s"), 9).unwrap_err()), not("a socket"));
    }
}

//! Directories held open, and names looked at inside them without following links.
//!
//! Contract: reading only. A name is one name, no path: who climbs down step by step cannot be led elsewhere by a
//! directory that is swapped for a link meanwhile.

use super::{Op, access};
use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat, openat, readlinkat, statat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::{File, Metadata},
    io::{self, Read},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::Path,
};

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory.
#[derive(Debug)]
pub struct Held(OwnedFd);

/// A file opened for reading.
#[derive(Debug)]
pub struct Opened(File);

/// Errors are numbers of the operating system here; what has none is an input/output error.
fn reading<T>(name: &[u8], run: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let path = Path::new(OsStr::from_bytes(name));
    let done = access(Op::Read, &[path], || run().map_err(io::Error::from));
    done.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))
}

impl Held {
    /// Opens a directory by its path, links followed.
    ///
    /// # Errors
    /// The operating system refused, or it is no directory.
    pub fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let bytes = path.as_os_str().as_bytes();
        reading(bytes, || rustix::fs::open(path, flags, Mode::empty())).map(Self)
    }

    /// Opens a directory in this one; a link is refused.
    ///
    /// # Errors
    /// The operating system refused.
    pub fn dir(&self, name: &[u8]) -> Result<Self, Errno> {
        reading(name, || openat(&self.0, name, DIRECTORY, Mode::empty())).map(Self)
    }

    /// Opens a file in this directory for reading, without waiting for whoever is at the other end of it.
    ///
    /// # Errors
    /// The operating system refused; a link is refused.
    pub fn file(&self, name: &[u8]) -> Result<Opened, Errno> {
        let fd = reading(name, || openat(&self.0, name, FILE, Mode::empty()))?;
        Ok(Opened(File::from(fd)))
    }

    /// What is at a name, a link itself.
    ///
    /// # Errors
    /// Nothing is there, or the operating system refused.
    pub fn stat(&self, name: &[u8]) -> Result<Stat, Errno> {
        reading(name, || statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// The text of a link.
    ///
    /// # Errors
    /// It is none, or the operating system refused.
    pub fn link(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        Ok(reading(name, || readlinkat(&self.0, name, Vec::new()))?.into_bytes())
    }
}

impl Opened {
    /// Kind, size and times.
    ///
    /// # Errors
    /// `fstat` failed.
    pub fn look(&self) -> io::Result<Metadata> {
        access(Op::Read, &[], || self.0.metadata())
    }

    /// Reads from where the last read ended, `most` bytes at most.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_up_to(&mut self, most: u64) -> io::Result<Vec<u8>> {
        let file = &mut self.0;
        access(Op::Read, &[], || {
            let mut bytes = Vec::new();
            file.take(most).read_to_end(&mut bytes)?;
            Ok(bytes)
        })
    }
}

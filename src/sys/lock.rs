//! Kernel locks: held by an open file, released by the kernel when its process dies.
//!
//! Contract: one lock file = one lock, between processes and between threads of one process (each
//! acquisition opens the file anew). The file is close-on-exec, so no child outlives its parent with it.
//! A lock file that was removed or replaced while we waited guards nothing: it is opened again.

use super::files::{FileError, FileId, Op, access, regular};
use crate::code::Code;
use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub struct KernelLock {
    file: File,
}

impl Drop for KernelLock {
    /// Lets go by name: closing alone leaves the lock with a child that another thread has forked and that
    /// has not come to its exec yet.
    #[expect(clippy::disallowed_methods, reason = "a dead process lets go as well")]
    fn drop(&mut self) {
        // Were it refused, closing the file lets go as well, only perhaps later.
        let _ = self.file.unlock();
    }
}

/// The lock was not to be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// The lock file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Somebody held it all the time.
    #[error("{} was held by another process for {waited_ms} ms", path.display())]
    Held {
        /// The lock file.
        path: PathBuf,
        /// How long was waited.
        waited_ms: u64,
    },
}

impl LockError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::File(e) if e.is_read_only() => Code::ReadOnly,
            Self::File(e) => e.code(),
            Self::Held { .. } => Code::LockTimeout,
        }
    }
}

impl KernelLock {
    /// Takes the lock if nobody holds it; makes the file if need be.
    ///
    /// # Errors
    /// The file cannot be opened or locked.
    pub fn try_acquire(path: &Path) -> Result<Option<Self>, FileError> {
        loop {
            let fail = |action| move |e| FileError::new(action, path, e);
            let file = access(Op::Create, &[path], || open(path)).map_err(fail("open"))?;
            if !access(Op::Lock, &[path], || try_lock(&file)).map_err(fail("lock"))? {
                return Ok(None);
            }
            let ours = FileId::of(&file).map_err(fail("look at"))?;
            if FileId::at(path)? == Some(ours) {
                return Ok(Some(Self { file }));
            }
        }
    }

    /// Takes the lock, waiting up to `wait_ms`.
    ///
    /// # Errors
    /// The file cannot be locked, or somebody holds it all the time.
    pub fn acquire(path: &Path, wait_ms: u64) -> Result<Self, LockError> {
        let end = Instant::now() + Duration::from_millis(wait_ms);
        let mut pause = Duration::from_micros(50);
        loop {
            if let Some(lock) = Self::try_acquire(path)? {
                return Ok(lock);
            }
            if Instant::now() >= end {
                return Err(LockError::Held { path: path.to_owned(), waited_ms: wait_ms });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(2));
        }
    }
}

/// True while somebody holds the lock. Nothing is made to find out; a free lock is held for that moment, which
/// whoever wants it waits for.
///
/// # Errors
/// The file is there and cannot be opened or locked.
pub fn is_held(path: &Path) -> Result<bool, FileError> {
    let fail = |action| move |e| FileError::new(action, path, e);
    let mut how = OpenOptions::new();
    how.read(true);
    let file = match access(Op::Read, &[path], || regular(&mut how, libc::O_NOFOLLOW, path)) {
        Ok((file, _)) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(fail("open")(e)),
    };
    Ok(!access(Op::Lock, &[path], || try_lock(&file)).map_err(fail("lock"))?)
}

fn open(path: &Path) -> io::Result<File> {
    // What a link leads to is no lock of ours, and is not to be made by us.
    let mut how = OpenOptions::new();
    how.create(true).truncate(false).write(true);
    Ok(regular(&mut how, libc::O_NOFOLLOW, path)?.0)
}

/// False when somebody else holds it.
#[expect(clippy::disallowed_methods, reason = "the one place that locks files")]
fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letting_go_does_not_wait_for_a_copy_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = KernelLock::try_acquire(&path).unwrap().unwrap();
        // What a forked child holds until its exec.
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(KernelLock::try_acquire(&path).unwrap().is_some());
        drop(copy);
    }

    #[test]
    fn a_look_tells_who_holds_it_and_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!is_held(&path).unwrap());
        assert!(!path.exists());
        let held = KernelLock::try_acquire(&path).unwrap().unwrap();
        assert!(is_held(&path).unwrap());
        drop(held);
        assert!(!is_held(&path).unwrap());
        assert!(KernelLock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn one_holder_at_a_time_even_within_a_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = KernelLock::try_acquire(&path).unwrap().unwrap();
        assert!(KernelLock::try_acquire(&path).unwrap().is_none());
        assert!(matches!(KernelLock::acquire(&path, 5), Err(LockError::Held { .. })));
        drop(held);
        assert!(KernelLock::try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn a_removed_lock_file_guards_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let _old = KernelLock::try_acquire(&path).unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        let _new = KernelLock::try_acquire(&path).unwrap().unwrap();
        assert!(KernelLock::try_acquire(&path).unwrap().is_none());
    }
}

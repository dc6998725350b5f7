//! Files as something to wait for: one directory watched by the kernel, the end of a process, and nobody reading any more.
//!
//! Contract: [`pause`] returns at its time at the latest. A bell that rings says only that it is worth a look, and one that does
//! not ring proves nothing: who waits looks by itself now and then. Nothing rings because somebody reads.

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, getppid, pidfd_open},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

/// Most bytes taken out of the pipe at once; each stands for a ring.
const RINGS_TAKEN: usize = 256;

/// Rings when a name or the bytes of a file in one directory change; files in directories below it do not count.
#[derive(Debug)]
pub struct Bell {
    #[expect(dead_code, reason = "held because it watches no longer when dropped")]
    watcher: RecommendedWatcher,
    rings: OwnedFd,
}

impl Bell {
    /// Watches a directory.
    ///
    /// # Errors
    /// It is not there, or the kernel watches no more for this person.
    pub fn of(dir: &Path) -> io::Result<Self> {
        let (rings, rope) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let is_read = matches!(event, Ok(Event { kind: EventKind::Access(_), .. }));
            if !is_read {
                // A full pipe rings already.
                let _ = rustix::io::write(&rope, b"!");
            }
        })
        .map_err(told)?;
        watcher.watch(dir, RecursiveMode::NonRecursive).map_err(told)?;
        Ok(Self { watcher, rings })
    }

    /// Takes what rang, so that only what comes rings.
    fn hush(&self) {
        let mut taken = [0; RINGS_TAKEN];
        while rustix::io::read(&self.rings, &mut taken).is_ok_and(|n| n == RINGS_TAKEN) {}
    }
}

/// What the library made of what the kernel said, as the kernel said it.
fn told(error: notify::Error) -> io::Error {
    match error.kind {
        notify::ErrorKind::Io(source) => source,
        notify::ErrorKind::MaxFilesWatch => Errno::NOSPC.into(),
        notify::ErrorKind::PathNotFound => io::ErrorKind::NotFound.into(),
        notify::ErrorKind::Generic(_)
        | notify::ErrorKind::WatchNotFound
        | notify::ErrorKind::InvalidConfig(_) => io::Error::other(error),
    }
}

/// The process that started this one.
#[derive(Debug)]
pub struct Parent {
    pid: Option<Pid>,
    /// None where the kernel tells of no ends.
    end: Option<OwnedFd>,
}

impl Parent {
    /// The present one.
    #[must_use]
    pub fn present() -> Self {
        let pid = getppid();
        let end = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        Self { pid, end }
    }

    /// True when it ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        getppid() != self.pid
    }
}

/// What is waited for besides the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends<'a> {
    /// A bell.
    pub bell: Option<&'a Bell>,
    /// A process that may end.
    pub parent: Option<&'a Parent>,
    /// What this process writes to.
    pub reader: Option<BorrowedFd<'a>>,
}

/// What ended a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The bell, the end of the parent, or a signal.
    Called,
    /// The time.
    Time,
    /// Nobody reads any more.
    Unread,
}

/// Waits for any of them, no longer than `time`.
///
/// # Errors
/// The kernel refuses.
pub fn pause(ends: Ends<'_>, time: Duration) -> io::Result<Woken> {
    let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
    let mut fds = Vec::with_capacity(3);
    // Asking for no event at all still tells of a closed pipe.
    fds.extend(ends.reader.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty())));
    let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
    fds.extend(ends.bell.map(|bell| readable(bell.rings.as_fd())));
    fds.extend(ends.parent.and_then(|parent| parent.end.as_ref()).map(|end| readable(end.as_fd())));
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) => return Ok(Woken::Time),
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Woken::Called),
        Err(error) => return Err(error.into()),
    }
    if ends.reader.is_some() && fds.first().is_some_and(|fd| !fd.revents().is_empty()) {
        return Ok(Woken::Unread);
    }
    if let Some(bell) = ends.bell {
        bell.hush();
    }
    Ok(Woken::Called)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const NEVER: Duration = Duration::from_secs(60);

    fn ends(bell: &Bell) -> Ends<'_> {
        Ends { bell: Some(bell), ..Ends::default() }
    }

    #[test]
    fn a_bell_rings_for_what_is_written_and_not_for_what_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "a").unwrap();
        let bell = Bell::of(dir.path()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"a");
        assert_eq!(pause(ends(&bell), Duration::ZERO).unwrap(), Woken::Time);
        fs::write(&file, "b").unwrap();
        assert_eq!(pause(ends(&bell), NEVER).unwrap(), Woken::Called);
        let missing = Bell::of(&dir.path().join("not there")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_reader_that_is_gone_ends_a_pause_and_one_that_is_there_does_not() {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let unread = Ends { reader: Some(writer.as_fd()), ..Ends::default() };
        assert_eq!(pause(unread, Duration::ZERO).unwrap(), Woken::Time);
        drop(reader);
        assert_eq!(pause(unread, NEVER).unwrap(), Woken::Unread);
    }
}

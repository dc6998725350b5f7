//! Waiting for the next event without asking for it again and again.
//!
//! Contract: who looked at the journal after [`Watch::look`] misses nothing that comes after: [`Watch::wait`] returns when a file
//! that shows appends is another one. The kernel says when it is worth to compare them; besides they are compared by
//! themselves, rarely where the kernel watches, oftener where it does not. Comparing opens nothing. It watches the
//! repository and no process but the one that started this program.
//!
//! Limits of the kernel (128 watchers a person, by default) are no error: who gets none says so once, and compares.

use crate::{
    code::Code,
    ledger::Ledger,
    limits,
    store::StoreError,
    sys::{
        clock,
        files::{self, FileError, FileId},
        watch::{self, Bell, Ends, Parent},
    },
};
use std::{
    io,
    os::{fd::BorrowedFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Why waiting failed.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The journal cannot be looked at.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file cannot be looked at.
    #[error(transparent)]
    File(#[from] FileError),
    /// The kernel refuses to wait.
    #[error("cannot wait: {0}")]
    Pause(#[source] io::Error),
}

impl WatchError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Store(e) => e.code(),
            Self::File(e) => e.code(),
            Self::Pause(_) => Code::Io,
        }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// Perhaps something was recorded.
    Perhaps,
    /// The time is over.
    Time,
    /// The process that started this one is gone.
    Orphaned,
    /// Nobody reads any more.
    Unread,
}

/// Which file it is, how large, and when it was written and changed last.
type Stamp = (FileId, u64, (i64, i64), (i64, i64));

/// Files at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps(Vec<(PathBuf, Option<Stamp>)>);

impl Stamps {
    /// Looks at files.
    ///
    /// # Errors
    /// One cannot be looked at.
    pub fn of(paths: Vec<PathBuf>) -> Result<Self, FileError> {
        let one = |path: PathBuf| {
            let found = files::look(&path)?.map(|meta| {
                let written = (meta.mtime(), meta.mtime_nsec());
                (FileId::from(&meta), meta.len(), written, (meta.ctime(), meta.ctime_nsec()))
            });
            Ok((path, found))
        };
        paths.into_iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    /// True when there are no files at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when they are others now.
    ///
    /// # Errors
    /// As [`Stamps::of`].
    pub fn differ(&self) -> Result<bool, FileError> {
        Ok(Self::of(self.0.iter().map(|(path, _)| path.clone()).collect())? != *self)
    }

    /// True when one was written so short a while ago that the next writing may bear the same time.
    fn are_fresh(&self) -> bool {
        let now = clock::now().ms();
        self.0.iter().filter_map(|(_, stamp)| stamp.as_ref()).any(|(_, _, (s, ns), _)| {
            let written_ms = s.saturating_mul(1000).saturating_add(ns / 1_000_000);
            now.saturating_sub(written_ms).abs() < limits::STAMP_FRESH_MS
        })
    }
}

/// Whether the kernel watches.
enum Eyes {
    /// There is nothing to watch yet.
    NotYet,
    /// It watches this directory.
    Open(Bell, FileId),
    /// It does not, and that was said.
    Shut,
}

/// A look at one journal that goes on.
pub struct Watch<'a> {
    ledger: &'a Ledger,
    say: &'a dyn Fn(&str),
    open: fn(&Path) -> io::Result<Bell>,
    eyes: Eyes,
    parent: Parent,
    seen: Stamps,
    /// The last time that anything happened.
    moved: Instant,
    looked: Instant,
}

impl<'a> Watch<'a> {
    /// Begins; `say` takes the one warning there may be.
    #[must_use]
    pub fn begin(ledger: &'a Ledger, say: &'a dyn Fn(&str)) -> Self {
        let (parent, now) = (Parent::present(), Instant::now());
        let seen = Stamps::default();
        Self {
            ledger,
            say,
            open: Bell::of,
            eyes: Eyes::NotYet,
            parent,
            seen,
            moved: now,
            looked: now,
        }
    }

    /// To be called each time before the journal is looked at: what is appended from here on ends the next wait.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn look(&mut self) -> Result<(), WatchError> {
        self.open_eyes()?;
        let seen = Stamps::of(self.ledger.store().journal_shows_in()?)?;
        if seen != self.seen {
            self.moved = Instant::now();
        }
        self.seen = seen;
        self.looked = Instant::now();
        Ok(())
    }

    /// True when the process that started this one is gone.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        self.parent.is_gone()
    }

    /// Waits until something may have been recorded, no longer than until `end`; with `reader`, as long as somebody reads.
    ///
    /// # Errors
    /// The kernel refuses, or a file cannot be looked at.
    pub fn wait(&self, end: Instant, reader: Option<BorrowedFd<'_>>) -> Result<Woken, WatchError> {
        let bell = match &self.eyes {
            Eyes::Open(bell, _) => Some(bell),
            Eyes::NotYet | Eyes::Shut => None,
        };
        let ends = Ends { bell, parent: Some(&self.parent), reader };
        let anyway = self.looked + Duration::from_millis(limits::WAIT_ANYWAY_MS);
        loop {
            if self.is_orphaned() {
                return Ok(Woken::Orphaned);
            }
            let now = Instant::now();
            if now >= end {
                return Ok(Woken::Time);
            }
            let time = self.pace(bell.is_some()).min(end.saturating_duration_since(now));
            match watch::pause(ends, time).map_err(WatchError::Pause)? {
                watch::Woken::Unread => return Ok(Woken::Unread),
                watch::Woken::Called | watch::Woken::Time => {}
            }
            if self.seen.are_fresh() || Instant::now() >= anyway || self.seen.differ()? {
                return Ok(Woken::Perhaps);
            }
        }
    }

    /// How long until the files are compared again: the rarer the longer nothing happened.
    fn pace(&self, watched: bool) -> Duration {
        let (part, longest_ms) = if watched {
            (limits::WAIT_PART_WATCHED, limits::WAIT_LONGEST_WATCHED_MS)
        } else {
            (limits::WAIT_PART, limits::WAIT_LONGEST_MS)
        };
        let [least, most] = [limits::WAIT_LEAST_MS, longest_ms].map(Duration::from_millis);
        (self.moved.elapsed() / part).clamp(least, most)
    }

    /// Has the directory of the log watched, which is made with the first event and may be made anew.
    fn open_eyes(&mut self) -> Result<(), WatchError> {
        let dir = self.ledger.store().location().agent_dir();
        let there = FileId::at(&dir)?;
        match (&self.eyes, there) {
            (Eyes::Shut, _) => return Ok(()),
            (Eyes::Open(_, id), Some(there)) if *id == there => return Ok(()),
            (Eyes::NotYet | Eyes::Open(..), _) => {}
        }
        self.eyes = match there.map(|there| ((self.open)(&dir), there)) {
            None => Eyes::NotYet,
            Some((Ok(bell), there)) => Eyes::Open(bell, there),
            Some((Err(error), _)) if error.kind() == io::ErrorKind::NotFound => Eyes::NotYet,
            Some((Err(error), _)) => {
                (self.say)(&format!(
                    "warning: the kernel watches no more files ({error}); looking again and again instead"
                ));
                Eyes::Shut
            }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::AdoptAsk, store::testing::Repo, sys::env::Env};
    use std::cell::RefCell;

    const FAR: Duration = Duration::from_secs(60);

    fn none_left(_: &Path) -> io::Result<Bell> {
        Err(io::Error::from_raw_os_error(libc::ENOSPC))
    }

    /// Whether what is recorded after the look ends the wait; what was said.
    fn told(open: fn(&Path) -> io::Result<Bell>) -> Vec<String> {
        let repo = Repo::new();
        repo.commit_file("a.txt", b"hello\n");
        let ledger = Ledger::open(&Env::fixed(repo.top(), repo.env_vars()), "cli").unwrap();
        let said = RefCell::new(vec![]);
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let mut watch = Watch { open, ..Watch::begin(&ledger, &say) };
        for label in ["one", "two", "three"] {
            watch.look().unwrap();
            let tip = ledger.tip().unwrap().map(|t| t.id);
            let label = Some(label.to_owned());
            ledger.adopt(&AdoptAsk { label, cwd: repo.top(), base: None }).unwrap();
            assert_eq!(watch.wait(Instant::now() + FAR, None).unwrap(), Woken::Perhaps);
            assert_ne!(ledger.tip().unwrap().map(|t| t.id), tip);
        }
        assert_eq!(watch.wait(Instant::now(), None).unwrap(), Woken::Time);
        said.take()
    }

    #[test]
    fn what_is_recorded_after_a_look_ends_the_wait() {
        assert!(told(Bell::of).is_empty());
    }

    #[test]
    fn case_173_where_the_kernel_watches_no_more_it_is_said_once_and_nothing_is_missed() {
        let said = told(none_left);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("warning: the kernel watches no more files ("), "{said:?}");
    }
}

//! One worktree's `index.lock`, held over a kill, and the index prepared under it.
//!
//! The record `tmp/index-lock.<name>.<worktree>` exists before the lock, which is a hard link to it: same
//! inode = ours, whoever finds it. The prepared index lies beside the record until it is renamed.

use super::{LandError, Step};
use crate::{
    domain::oid::HashKind,
    limits,
    store::{
        candidate::Listed,
        filters::info_line,
        git::Git,
        worktree_state::{Worktree, exists},
    },
    sys::files::{self, Durable},
};
use std::{
    ffi::OsStr,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// The lock of one worktree's index for one landing.
#[derive(Clone, Debug)]
pub(super) struct IndexLock {
    record: PathBuf,
    prepared: PathBuf,
    /// The index that was there before, while the branch may still not move.
    replaced: PathBuf,
    git_dir: PathBuf,
    holder: String,
}

/// How the files of a landing begin; its name and the worktree's id follow, a dot between them.
pub(super) const KINDS: [&str; 3] = ["index-lock.", "index.", "index-old."];

fn remove(path: &Path) -> Result<(), LandError> {
    files::remove_optional(path)?;
    Ok(())
}

fn meta(path: &Path) -> Result<Option<Metadata>, LandError> {
    Ok(files::look(path)?)
}

impl IndexLock {
    pub(super) fn new(agent_dir: &Path, name: &str, worktree: &Worktree) -> Self {
        let [record, prepared, replaced] =
            KINDS.map(|kind| agent_dir.join("tmp").join(format!("{kind}{name}.{}", worktree.id)));
        Self {
            record,
            prepared,
            replaced,
            git_dir: worktree.git_dir.clone(),
            holder: format!("held by git agentproto for {name}\n"),
        }
    }

    /// Where the lock is.
    pub(super) fn path(&self) -> PathBuf {
        self.git_dir.join("index.lock")
    }

    pub(super) fn is_recorded(&self) -> Result<bool, LandError> {
        Ok(exists(&self.record)?)
    }

    /// True if an index waits to be put in place.
    pub(super) fn is_prepared(&self) -> Result<bool, LandError> {
        Ok(exists(&self.prepared)?)
    }

    /// True if there is a lock and it is the one recorded.
    pub(super) fn is_ours(&self) -> Result<bool, LandError> {
        let (record, lock) = (meta(&self.record)?, meta(&self.path())?);
        Ok(record.zip(lock).is_some_and(|(r, l)| (r.dev(), r.ino()) == (l.dev(), l.ino())))
    }

    /// Makes the record, durable before any lock exists.
    pub(super) fn record(&self) -> Result<(), LandError> {
        let tmp = self.record.parent().unwrap_or(&self.git_dir);
        files::make_dirs(tmp)?;
        files::write(&self.record, self.holder.as_bytes(), Durable::Yes)?;
        Ok(files::sync_dir(tmp)?)
    }

    /// Takes the lock, waiting for others until `end`; false = they still have it.
    pub(super) fn take(&self, end: Instant) -> Result<bool, LandError> {
        let lock = self.path();
        self.drop_orphan()?;
        let mut pause = Duration::from_millis(2);
        loop {
            match files::link(&self.record, &lock) {
                Ok(()) => return Ok(true),
                Err(e) if e.is_taken() => {}
                Err(e) => return Err(e.into()),
            }
            let now = Instant::now();
            if now >= end {
                return Ok(false);
            }
            std::thread::sleep(pause.min(end - now));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Removes a lock that says it is ours and whose record is gone with the side directory. Whoever lands for this name
    /// holds the kernel lock of that effect, so its maker is dead.
    fn drop_orphan(&self) -> Result<(), LandError> {
        let lock = self.path();
        if !exists(&lock)? || self.is_ours()? {
            return Ok(());
        }
        let found = files::read_own(&lock, limits::SMALL_FILE_BYTES)?;
        if found.is_some_and(|text| text == self.holder.as_bytes()) {
            remove(&lock)?;
        }
        Ok(())
    }

    /// Writes the index to be: a copy of the present one with the listed entries as the candidate has
    /// them, without stat data, so that git looks at the files again. Durable when it returns.
    pub(super) fn prepare(
        &self,
        git: &Git,
        of: HashKind,
        listed: &[Listed],
    ) -> Result<(), LandError> {
        let index = self.git_dir.join("index");
        remove(&self.prepared)?;
        remove(&self.prepared_lock())?;
        if exists(&index)? {
            files::copy(&index, &self.prepared)?;
        }
        // What gives way goes first: a directory where a file was, or the other way round.
        let (gone, there): (Vec<&Listed>, Vec<&Listed>) =
            listed.iter().partition(|(_, entry)| entry.is_none());
        let lines = gone.into_iter().chain(there);
        let lines: Vec<u8> = lines.flat_map(|(path, entry)| info_line(of, path, *entry)).collect();
        let args = [
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
            "update-index",
            "-z",
            "--index-info",
        ];
        let place: [(&str, &OsStr); 1] = [("GIT_INDEX_FILE", self.prepared.as_os_str())];
        git.call(&args, &lines, &place)?;
        if exists(&self.prepared)? {
            files::sync_file(&self.prepared)?;
        }
        Ok(files::sync_dir(self.prepared.parent().unwrap_or(&self.git_dir))?)
    }

    /// Puts the prepared index in place, if that has not happened yet, and keeps the one it replaces until
    /// [`IndexLock::install`] or [`IndexLock::release`].
    pub(super) fn swap(&self) -> Result<(), LandError> {
        if !exists(&self.prepared)? {
            return Ok(());
        }
        let index = self.git_dir.join("index");
        remove(&self.replaced)?;
        match files::link(&index, &self.replaced) {
            // An empty file stands for no index at all.
            Err(e) if e.is_missing() => files::write(&self.replaced, b"", Durable::No)?,
            kept => kept?,
        }
        Ok(files::rename(&self.prepared, &index)?)
    }

    /// Puts the prepared index in place for good, and lets go.
    pub(super) fn install(&self, at: &dyn Fn(Step)) -> Result<(), LandError> {
        self.swap()?;
        files::sync_dir(&self.git_dir)?;
        at(Step::Installed);
        remove(&self.replaced)?;
        self.unlock()?;
        at(Step::Unlocked);
        remove(&self.record)
    }

    /// Puts back the index that was replaced. Only under our own lock: without it somebody may have written since.
    fn put_back(&self) -> Result<(), LandError> {
        let Some(kept) = meta(&self.replaced)? else { return Ok(()) };
        if !self.is_ours()? {
            return remove(&self.replaced);
        }
        let index = self.git_dir.join("index");
        if kept.len() > 0 {
            return Ok(files::rename(&self.replaced, &index)?);
        }
        remove(&index)?;
        remove(&self.replaced)
    }

    /// Lets go without having changed anything.
    pub(super) fn release(&self) -> Result<(), LandError> {
        self.put_back()?;
        self.unlock()?;
        remove(&self.prepared)?;
        remove(&self.prepared_lock())?;
        remove(&self.record)
    }

    /// What a killed `git update-index` leaves beside the prepared index.
    fn prepared_lock(&self) -> PathBuf {
        let mut path = self.prepared.clone().into_os_string();
        path.push(".lock");
        path.into()
    }

    fn unlock(&self) -> Result<(), LandError> {
        if self.is_ours()? { remove(&self.path()) } else { Ok(()) }
    }
}

//! The files backend: reading as git does, moving by compare-and-swap (storage L).
//!
//! Contract: a lock is a hard link to a file of ours in `agentproto`, so it can be proved to be ours
//! without any record: same inode. Moving happens under the kernel lock only, hence a lock linked to one
//! of our files that a later lock holder finds was left by a dead process. A foreign lock is waited for
//! and left alone. Nothing here starts a program.

use super::{Stored, broken, is_name};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
    store::{
        error::StoreError,
        failpoint,
        loose::fresh_name,
        names::{AGENT_DIR, Belongs, OURS, REF_TMP_PREFIX},
    },
    sys::files::{self, Durable, FileId, Unfit},
};
use std::{
    collections::BTreeMap,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What git writes when no ref is packed yet; without the file a create-only update can overwrite a ref
/// that is packed meanwhile.
const EMPTY_PACKED_REFS: &[u8] = b"# pack-refs with: peeled fully-peeled sorted \n";

/// Ref files below one common git directory.
#[derive(Clone, Debug)]
pub(super) struct RefFiles {
    common: PathBuf,
    hash: HashKind,
}

impl RefFiles {
    pub(super) fn new(common: PathBuf, hash: HashKind) -> Self {
        Self { common, hash }
    }

    /// What is stored under a name, loose or packed; none when there is nothing.
    pub(super) fn stored(&self, name: &str) -> Result<Option<Stored>, StoreError> {
        if let Some(found) = self.loose(name)? {
            return Ok(Some(found));
        }
        if let Some(id) = self.packed(|n| n == name)?.remove(name) {
            return Ok(Some(Stored::Id(id)));
        }
        // It may have been created between the two looks.
        self.loose(name)
    }

    fn loose(&self, name: &str) -> Result<Option<Stored>, StoreError> {
        let name_in = name.strip_prefix("main-worktree/").unwrap_or(name);
        let path = self.common.join(name_in);
        if files::is_dir(&path)? {
            return Ok(None);
        }
        let Some(data) = files::read_optional(&path, limits::SMALL_FILE_BYTES)? else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&data).map_err(|_| broken(name, "it is not text"))?;
        if let Some(target) = text.strip_prefix("ref:") {
            return Ok(Some(Stored::Symbolic(target.trim().to_owned())));
        }
        let id = self.id(text.trim_end()).ok_or_else(|| broken(name, "it holds no object id"))?;
        Ok(Some(Stored::Id(id)))
    }

    /// An id of another hash names nothing here.
    fn id(&self, text: &str) -> Option<Oid> {
        text.parse().ok().filter(|id: &Oid| id.hash() == self.hash)
    }

    fn packed(&self, wanted: impl Fn(&str) -> bool) -> Result<BTreeMap<String, Oid>, StoreError> {
        let data =
            files::read_optional(&self.common.join("packed-refs"), limits::PACKED_REFS_BYTES)?
                .unwrap_or_default();
        let text = String::from_utf8_lossy(&data);
        let lines = text.lines().filter(|l| !l.starts_with(['#', '^']));
        Ok(lines
            .filter_map(|line| line.split_once(' '))
            .filter(|(_, name)| wanted(name))
            .filter_map(|(id, name)| Some((name.to_owned(), self.id(id)?)))
            .collect())
    }

    /// The name of every ref below `prefix` (which ends in a slash), sorted.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        self.loose_names(prefix.trim_end_matches('/'), &mut names)?;
        names.extend(self.packed(|name| name.starts_with(prefix))?.into_keys());
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn loose_names(&self, below: &str, into: &mut Vec<String>) -> Result<(), StoreError> {
        for name in files::names(&self.common.join(below))? {
            let Some(name) = name.to_str().filter(|n| !n.ends_with(".lock")) else { continue };
            let full = format!("{below}/{name}");
            if files::is_dir(&self.common.join(&full))? {
                self.loose_names(&full, into)?;
            } else {
                into.push(full);
            }
        }
        Ok(())
    }

    /// True when there is no `packed-refs` file.
    pub(super) fn lacks_packed(&self) -> Result<bool, StoreError> {
        Ok(FileId::at(&self.common.join("packed-refs"))?.is_none())
    }

    /// Why git takes `packed-refs` for damaged; none when it does not, or there is none.
    pub(super) fn packed_damage(&self) -> Result<Option<String>, StoreError> {
        let path = self.common.join("packed-refs");
        let Some(data) = files::read_optional(&path, limits::PACKED_REFS_BYTES)? else {
            return Ok(None);
        };
        let mut lines = (1..).zip(data.split_inclusive(|b| *b == b'\n'));
        let bad = lines.find(|(number, line)| {
            let line = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
            let is_head = |line: &str| *number == 1 && line.starts_with('#');
            !line.is_some_and(|line| is_head(line) || self.is_packed(line))
        });
        Ok(bad.map(|(number, _)| format!("line {number} names no ref")))
    }

    /// True for a line that git writes there.
    fn is_packed(&self, line: &str) -> bool {
        if let Some(peeled) = line.strip_prefix('^') {
            return self.id(peeled).is_some();
        }
        line.split_once(' ').is_some_and(|(id, name)| self.id(id).is_some() && is_name(name))
    }

    /// What lies in the place of a ref of ours, or of a directory of such, and cannot be one.
    pub(super) fn unfit(&self) -> Result<Vec<(PathBuf, Unfit)>, StoreError> {
        let mut found = Vec::new();
        for top in OURS {
            self.unfit_at(top.trim_end_matches('/'), &mut found)?;
        }
        Ok(found)
    }

    fn unfit_at(&self, name: &str, found: &mut Vec<(PathBuf, Unfit)>) -> Result<(), StoreError> {
        let path = self.common.join(name);
        let belongs = Belongs::at(name);
        if belongs == Belongs::Directory && files::is_dead_link(&path)? {
            // Nobody makes a directory there, so no ref below it either.
            let dead = files::look(&path)?.as_ref().and_then(Unfit::as_directory);
            found.extend(dead.map(|unfit| (path, unfit)));
            return Ok(());
        }
        // As git, through links; one that leads nowhere is no ref.
        let Some(there) = files::look_through(&path)? else { return Ok(()) };
        let unfit = match belongs {
            Belongs::Directory => Unfit::as_directory(&there),
            // What git emptied goes by itself.
            Belongs::Ref if there.is_dir() && !holds_file(&path)? => None,
            Belongs::Ref => Unfit::as_ref(&there),
            Belongs::Either if there.is_dir() => None,
            Belongs::Either => Unfit::as_ref(&there),
        };
        if let Some(unfit) = unfit {
            found.push((path, unfit));
        } else if there.is_dir() && belongs != Belongs::Ref {
            for below in files::names(&path)? {
                if let Some(below) = below.to_str().filter(|name| !name.ends_with(".lock")) {
                    self.unfit_at(&format!("{name}/{below}"), found)?;
                }
            }
        }
        Ok(())
    }

    /// What the file of a loose ref holds.
    pub(super) fn bytes(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        Ok(files::read_optional(&self.common.join(name), limits::SMALL_FILE_BYTES)?
            .unwrap_or_default())
    }

    /// Makes sure that there is a `packed-refs` file.
    pub(super) fn ensure_packed(&self) -> Result<(), StoreError> {
        let path = self.common.join("packed-refs");
        if FileId::at(&path)?.is_some() {
            return Ok(());
        }
        let staged = self.common.join(AGENT_DIR).join(fresh_name(REF_TMP_PREFIX));
        files::write_new(&staged, EMPTY_PACKED_REFS, 0o644, Durable::Yes)?;
        // A link never replaces what git may write there at the same time.
        let linked = files::link(&staged, &path);
        files::remove_optional(&staged)?;
        match linked {
            Err(e) if !e.is_taken() => Err(e.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Moves a ref from `old` to `new`, waiting up to `wait_ms` for a foreign lock. The caller holds the
    /// kernel lock. `now` tells the value while the lock is held.
    pub(super) fn swap(
        &self,
        name: &str,
        old: Option<Oid>,
        new: &Oid,
        wait_ms: u64,
        now: impl FnOnce() -> Result<Option<Oid>, StoreError>,
    ) -> Result<(), StoreError> {
        let staged = self.common.join(AGENT_DIR).join(fresh_name(REF_TMP_PREFIX));
        files::write_new(&staged, format!("{new}\n").as_bytes(), 0o644, durability(name))?;
        let path = self.common.join(name);
        let lock = lock_path(&path);
        let mut still_locked = false;
        let done = self.link(&staged, &lock, wait_ms).and_then(|()| {
            failpoint::reached("ref locked")?;
            let moved = match now() {
                Ok(actual) if actual == old => files::rename(&lock, &path).map_err(Into::into),
                Ok(actual) => {
                    Err(StoreError::RefMoved { name: name.to_owned(), expected: old, actual })
                }
                Err(e) => Err(e),
            };
            moved.inspect_err(|_| still_locked = files::remove_optional(&lock).is_err())
        });
        failpoint::reached("ref moved")?;
        // While the lock is there, this file proves that it is ours.
        if !still_locked {
            files::remove_optional(&staged)?;
        }
        done
    }

    /// The lock files that can keep git from changing this ref.
    pub(super) fn locks(&self, name: &str) -> [PathBuf; 2] {
        [name, "packed-refs"].map(|file| lock_path(&self.common.join(file)))
    }

    /// The files of which one is another whenever the ref is.
    pub(super) fn shows_in(&self, name: &str) -> Vec<PathBuf> {
        let name = name.strip_prefix("main-worktree/").unwrap_or(name);
        [name, "packed-refs"].map(|file| self.common.join(file)).to_vec()
    }

    /// What must reach the disk for a move of this ref by git to survive a power cut: git syncs the ref
    /// file, but no directory, and neither when it packs refs.
    pub(super) fn places(&self, name: &str) -> Vec<PathBuf> {
        let name = name.strip_prefix("main-worktree/").unwrap_or(name);
        let above = Path::new(name).ancestors().map(|below| self.common.join(below));
        above.chain([self.common.join("packed-refs")]).collect()
    }

    fn link(&self, staged: &Path, lock: &Path, wait_ms: u64) -> Result<(), StoreError> {
        let end = Instant::now() + Duration::from_millis(wait_ms);
        let mut pause = Duration::from_millis(1);
        loop {
            let error = match files::link(staged, lock) {
                Ok(()) => return Ok(()),
                Err(e) => e,
            };
            if error.is_missing() {
                // pack-refs removes directories it emptied.
                files::make_dirs(lock.parent().unwrap_or(&self.common))?;
            } else if !error.is_taken() {
                return Err(error.into());
            } else if Instant::now() < end {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            } else {
                return Err(StoreError::RefLocked { path: lock.to_owned(), waited_ms: wait_ms });
            }
        }
    }

    /// Removes what dead processes left: our staged files and locks linked to them. The caller holds the
    /// kernel lock.
    pub(super) fn sweep(&self) -> Result<u64, StoreError> {
        let agent = self.common.join(AGENT_DIR);
        let staged: Vec<PathBuf> = files::names(&agent)?
            .into_iter()
            .filter(|n| n.as_bytes().starts_with(REF_TMP_PREFIX.as_bytes()))
            .map(|n| agent.join(n))
            .collect();
        if staged.is_empty() {
            return Ok(0);
        }
        let mut locks = Vec::new();
        for below in ["refs/agentproto", "refs/notes"] {
            locks_below(&self.common.join(below), &mut locks)?;
        }
        let mut removed = 0;
        for file in staged {
            let id = FileId::at(&file)?;
            for lock in &locks {
                if id.is_some() && FileId::at(lock)? == id {
                    files::remove_optional(lock)?;
                    removed += 1;
                }
            }
            files::remove_optional(&file)?;
        }
        Ok(removed)
    }
}

/// True when a file is in the directory or below it.
fn holds_file(dir: &Path) -> Result<bool, StoreError> {
    for name in files::names(dir)? {
        let path = dir.join(name);
        if !files::look(&path)?.is_some_and(|found| found.is_dir()) || holds_file(&path)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn locks_below(dir: &Path, into: &mut Vec<PathBuf>) -> Result<(), StoreError> {
    for name in files::names(dir)? {
        let path = dir.join(&name);
        if name.as_bytes().ends_with(b".lock") {
            into.push(path);
        } else if files::is_dir(&path)? {
            locks_below(&path, into)?;
        }
    }
    Ok(())
}

/// Our own refs need no sync, recovery restores them from the WAL. Notes refs are shared with others.
fn durability(name: &str) -> Durable {
    if name.starts_with("refs/notes/") { Durable::Yes } else { Durable::No }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

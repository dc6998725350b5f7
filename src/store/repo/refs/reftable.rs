//! The reftable backend: a stack of tables for all refs, and one more for each linked worktree.
//!
//! Contract: reading starts no program and takes no lock. `tables.list` names the tables, the newest last;
//! what it says counts, so a table that is gone means that the list is a new one by now: read again. Nothing
//! is written here: git does that, as it alone knows how to lock, compact and log. What a dead git left is
//! git's, too: one `tables.list.lock` of a dead process stops every change of every ref, and cannot be told from
//! one of a living process.
//!
//! Reading by ourselves (ADR 0008): a `git` for one question costs milliseconds, and a command asks up to ten. A
//! wrong answer could not move a ref to a wrong place, as git compares under its own lock.

use super::{
    Stored,
    files::RefFiles,
    table::{Said, Table, unreadable},
};
use crate::{
    domain::oid::HashKind, limits, limits::REFTABLE_RELOAD_MS, store::error::StoreError, sys::files,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const LIST: &str = "tables.list";

/// The stacks below one common git directory.
#[derive(Clone, Debug)]
pub(super) struct RefTables {
    common: PathBuf,
    hash: HashKind,
}

impl RefTables {
    pub(super) fn new(common: PathBuf, hash: HashKind) -> Self {
        Self { common, hash }
    }

    /// The same repository as it was before its refs moved to tables.
    pub(super) fn as_files(&self) -> RefFiles {
        RefFiles::new(self.common.clone(), self.hash)
    }

    /// What is stored under a name; none when there is nothing.
    pub(super) fn stored(&self, name: &str) -> Result<Option<Stored>, StoreError> {
        let (dir, name) = self.stack_of(name);
        for table in tables(&dir, self.hash)?.iter().rev() {
            match table.get(name)? {
                Some(Said::Stored(stored)) => return Ok(Some(stored)),
                Some(Said::Deleted) => return Ok(None),
                None => {}
            }
        }
        Ok(None)
    }

    /// The name of every ref below `prefix` (which ends in a slash), sorted.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let mut all = BTreeMap::new();
        for table in tables(&self.main(), self.hash)? {
            all.extend(table.below(prefix)?);
        }
        Ok(all.into_iter().filter(|(_, said)| *said != Said::Deleted).map(|(n, _)| n).collect())
    }

    /// The lock files that can keep git from changing a ref.
    pub(super) fn locks(&self, name: &str) -> Vec<PathBuf> {
        vec![self.stack_of(name).0.join(format!("{LIST}.lock"))]
    }

    /// The file that is another whenever the ref is.
    pub(super) fn shows_in(&self, name: &str) -> PathBuf {
        self.stack_of(name).0.join(LIST)
    }

    /// What must reach the disk for a move of a ref by git to survive a power cut. A table that is merged
    /// into another one meanwhile need not.
    pub(super) fn places(&self, name: &str) -> Result<Vec<PathBuf>, StoreError> {
        let dir = self.stack_of(name).0;
        let tables = list(&dir)?.into_iter().map(|table| dir.join(table));
        Ok(tables.chain([dir.join(LIST), dir.clone()]).collect())
    }

    fn main(&self) -> PathBuf {
        self.common.join("reftable")
    }

    /// The directory of the stack that holds a name, and the name in there.
    fn stack_of<'n>(&self, name: &'n str) -> (PathBuf, &'n str) {
        if let Some(own) = name.strip_prefix("main-worktree/") {
            return (self.main(), own);
        }
        match name.strip_prefix("worktrees/").and_then(|rest| rest.split_once('/')) {
            Some((id, own)) => (self.common.join("worktrees").join(id).join("reftable"), own),
            None => (self.main(), name),
        }
    }
}

/// All tables of a stack, the oldest first, as they belong together.
fn tables(dir: &Path, hash: HashKind) -> Result<Vec<Table>, StoreError> {
    let end = Instant::now() + Duration::from_millis(REFTABLE_RELOAD_MS);
    loop {
        let names = list(dir)?;
        let tables = names.iter().map(|name| Table::open(dir.join(name), hash));
        let tables = tables.collect::<Result<Option<Vec<_>>, _>>()?;
        if let Some(tables) = tables {
            return Ok(tables);
        }
        if Instant::now() >= end {
            return Err(unreadable(&dir.join(LIST), "it names tables that are not there"));
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The names of the tables, the oldest first.
fn list(dir: &Path) -> Result<Vec<String>, StoreError> {
    let path = dir.join(LIST);
    let data = files::read_optional(&path, limits::SMALL_FILE_BYTES)?
        .ok_or_else(|| unreadable(&path, "it is missing"))?;
    let text = String::from_utf8(data).map_err(|_| unreadable(&path, "it is not text"))?;
    let names = text.lines().map(str::to_owned).collect::<Vec<_>>();
    let is_name = |name: &String| !name.is_empty() && !name.contains('/');
    if names.iter().all(is_name) { Ok(names) } else { Err(unreadable(&path, "it is damaged")) }
}

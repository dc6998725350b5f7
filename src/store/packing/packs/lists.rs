//! Which packs are ours: two lists in `agentproto/`, each a line a pack.
//!
//! Contract: caches that may be lost. A line that is no name of a pack is passed over. The list of checkpoint packs belongs
//! to whoever holds the packing lock, the list of kept ones to whoever holds the journal lock.

use super::Packs;
use crate::store::{checks::SideFile, error::StoreError};
use crate::{domain::oid::Oid, limits, sys::files};

/// The lists of our packs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Packs made at checkpoints.
    Packs,
    /// Packs that have a `.keep` of ours.
    Kept,
}

impl List {
    fn file_name(self) -> &'static str {
        match self {
            Self::Packs => "packs",
            Self::Kept => "kept",
        }
    }
}

impl Packs {
    /// What a list of ours names, as its file.
    pub(in crate::store) fn listed_in(&self, file: SideFile) -> Result<Vec<String>, StoreError> {
        match file {
            SideFile::Kept => self.list(List::Kept),
            SideFile::Packs => self.list(List::Packs),
            SideFile::Writer | SideFile::Recovered | SideFile::Dropped => Ok(Vec::new()),
        }
    }

    /// Our checkpoint packs, as listed.
    pub(in crate::store) fn listed(&self) -> Result<Vec<String>, StoreError> {
        self.list(List::Packs)
    }

    /// Packs that have a `.keep` of ours, as listed.
    pub(in crate::store) fn kept(&self) -> Result<Vec<String>, StoreError> {
        self.list(List::Kept)
    }

    pub(super) fn list(&self, list: List) -> Result<Vec<String>, StoreError> {
        let path = self.agent.join(list.file_name());
        let data = files::read_own(&path, limits::PACK_LIST_BYTES)?.unwrap_or_default();
        let names = String::from_utf8_lossy(&data).lines().map(str::to_owned).collect::<Vec<_>>();
        Ok(names.into_iter().filter(|n| is_pack_name(n)).collect())
    }

    /// A pack is listed before its first file appears and until its last one is gone for good: what a power cut
    /// leaves of it is swept.
    pub(super) fn list_set(&self, list: List, names: &[String]) -> Result<(), StoreError> {
        let forgotten = self.list(list)?.iter().any(|name| !names.contains(name));
        if forgotten && files::is_dir(&self.dir)? {
            files::sync_dir(&self.dir)?;
        }
        let text: String = names.iter().map(|n| format!("{n}\n")).collect();
        let path = self.agent.join(list.file_name());
        Ok(files::replace(&path, &self.staged(list), text.as_bytes())?)
    }

    /// Writes both lists anew with what can be understood of them. Needs both locks.
    pub(in crate::store) fn tidy_lists(&self) -> Result<(), StoreError> {
        files::make_dirs(&self.packing)?;
        for list in [List::Packs, List::Kept] {
            let names = self.list(list)?;
            if !names.is_empty() || files::is_there(&self.agent.join(list.file_name()))? {
                self.list_set(list, &names)?;
            }
        }
        Ok(())
    }

    pub(super) fn list_add(&self, list: List, name: &str) -> Result<(), StoreError> {
        let names = self.list(list)?;
        if names.iter().any(|n| n == name) {
            // Whoever wrote the list may have died before its name was durable.
            return Ok(files::sync_dir(&self.agent)?);
        }
        // Forgets packs that a foreign repack took away, so the list does not grow for ever.
        let mut left = Vec::new();
        for name in names {
            if self.is_there(&name)? {
                left.push(name);
            }
        }
        left.push(name.to_owned());
        self.list_set(list, &left)
    }
}

/// True when every line is the name of a pack.
pub(in crate::store) fn is_list(data: &[u8]) -> bool {
    std::str::from_utf8(data).is_ok_and(|text| text.lines().all(is_pack_name))
}

/// Only such a name is ever joined to a path.
pub(super) fn is_pack_name(name: &str) -> bool {
    name.strip_prefix("pack-").is_some_and(|hex| hex.parse::<Oid>().is_ok())
}

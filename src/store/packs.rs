//! Our packs on disk, and which of them are kept against a foreign repack (storage C, E).
//!
//! Contract: a pack is invisible until its index appears; both are synced before their names. The lists
//! in `agentproto/` are caches: `git gc` may take our packs away at any time, and that is normal.

use super::{
    error::StoreError,
    loose::fresh_name,
    names::TMP_PREFIX,
    pack::{self, Built},
};
use crate::{
    domain::oid::{HashKind, Oid},
    sys::files::{self, Durable},
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// Names of packs made at checkpoints.
const PACK_LIST: &str = "packs";
/// Names of packs that have a `.keep` of ours.
const KEPT_LIST: &str = "kept";
const KEEP_TEXT: &[u8] = b"git agentproto: until the journal names it\n";

/// Writes and finds our packs.
#[derive(Clone, Debug)]
pub(super) struct Packs {
    dir: PathBuf,
    agent: PathBuf,
    tmp: PathBuf,
    hash: HashKind,
}

impl Packs {
    pub(super) fn new(common: &Path, agent: &Path, hash: HashKind) -> Self {
        let (dir, tmp) = (common.join("objects/pack"), agent.join("tmp"));
        Self { dir, agent: agent.to_owned(), tmp, hash }
    }

    /// Makes a pack of ours visible and durable. Needs the kernel lock.
    pub(super) fn place(&self, built: &Built) -> Result<(), StoreError> {
        files::make_dirs(&self.dir)?;
        self.list_add(PACK_LIST, &built.name)?;
        self.put(built)
    }

    /// As [`Packs::place`], and no repack may drop the pack until [`Packs::release`].
    pub(super) fn place_kept(&self, built: &Built) -> Result<(), StoreError> {
        files::make_dirs(&self.dir)?;
        self.list_add(KEPT_LIST, &built.name)?;
        let keep = self.file(&built.name, "keep");
        files::replace(&keep, &self.tmp.join(fresh_name(TMP_PREFIX)), KEEP_TEXT)?;
        let there = self.is_whole(&built.name)?;
        if !there {
            self.put(built)?;
        }
        if self.is_whole(&built.name)? {
            Ok(())
        } else {
            Err(StoreError::PackDamaged { name: built.name.clone() })
        }
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.dir.join(format!("{name}.{extension}"))
    }

    fn put(&self, built: &Built) -> Result<(), StoreError> {
        let mut staged = Vec::new();
        for (extension, data) in [("pack", &built.pack), ("idx", &built.idx)] {
            let path = self.tmp.join(fresh_name(&format!("{TMP_PREFIX}{extension}_")));
            files::write_new(&path, data, 0o444, Durable::Yes)?;
            staged.push((path, self.file(&built.name, extension)));
        }
        super::failpoint::reached("pack staged")?;
        for (from, to) in &staged {
            files::rename(from, to)?;
            super::failpoint::reached("pack renamed")?;
        }
        Ok(files::sync_dir(&self.dir)?)
    }

    fn is_there(&self, name: &str) -> Result<bool, StoreError> {
        Ok(files::is_there(&self.file(name, "pack"))? || files::is_there(&self.file(name, "idx"))?)
    }

    fn is_whole(&self, name: &str) -> Result<bool, StoreError> {
        let pack = files::read_optional(&self.file(name, "pack"))?;
        let idx = files::read_optional(&self.file(name, "idx"))?;
        Ok(pack.is_some_and(|p| pack::is_whole(self.hash, &p))
            && idx.is_some_and(|i| pack::index_ids(self.hash, &i).is_some()))
    }

    fn ids(&self, name: &str) -> Result<Option<Vec<Oid>>, StoreError> {
        let idx = files::read_optional(&self.file(name, "idx"))?;
        Ok(idx.and_then(|i| pack::index_ids(self.hash, &i)))
    }

    /// Removes `.keep` of packs that hold one of the pinned objects: their pins are durable.
    pub(super) fn release(&self, pinned: &HashSet<Oid>) -> Result<(), StoreError> {
        let kept = self.list(KEPT_LIST)?;
        let mut left = Vec::new();
        for name in &kept {
            let ids = self.ids(name)?;
            match ids {
                Some(ids) if ids.iter().any(|id| pinned.contains(id)) => {
                    files::remove_optional(&self.file(name, "keep"))?;
                }
                Some(_) | None => left.push(name.clone()),
            }
        }
        if left.len() < kept.len() { self.list_set(KEPT_LIST, &left) } else { Ok(()) }
    }

    /// Everything that our own checkpoint packs hold. Those are synced before anything relies on them.
    pub(super) fn own_ids(&self) -> Result<HashSet<Oid>, StoreError> {
        let mut all = HashSet::new();
        for name in self.list(PACK_LIST)? {
            if files::is_there(&self.file(&name, "pack"))? {
                all.extend(self.ids(&name)?.into_iter().flatten());
            }
        }
        Ok(all)
    }

    /// Removes staged files. Needs the kernel lock, under which alone they are written.
    pub(super) fn sweep_staged(&self) -> Result<u64, StoreError> {
        let mut removed = 0;
        for name in files::names(&self.tmp)? {
            let path = self.tmp.join(&name);
            if name.to_string_lossy().starts_with(TMP_PREFIX) && files::is_file(&path)? {
                removed += u64::from(files::remove_optional(&path)?);
            }
        }
        Ok(removed)
    }

    /// Removes listed packs that never got their index. Needs the kernel lock.
    pub(super) fn sweep_unindexed(&self) -> Result<u64, StoreError> {
        let mut removed = 0;
        for name in self.list(PACK_LIST)?.into_iter().chain(self.list(KEPT_LIST)?) {
            let (pack, idx) = (self.file(&name, "pack"), self.file(&name, "idx"));
            if !files::is_there(&idx)? && files::remove_optional(&pack)? {
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn list(&self, list: &str) -> Result<Vec<String>, StoreError> {
        let data = files::read_optional(&self.agent.join(list))?.unwrap_or_default();
        let names = String::from_utf8_lossy(&data).lines().map(str::to_owned).collect::<Vec<_>>();
        Ok(names.into_iter().filter(|n| is_pack_name(n)).collect())
    }

    fn list_set(&self, list: &str, names: &[String]) -> Result<(), StoreError> {
        let text: String = names.iter().map(|n| format!("{n}\n")).collect();
        let staged = self.tmp.join(fresh_name(TMP_PREFIX));
        Ok(files::replace(&self.agent.join(list), &staged, text.as_bytes())?)
    }

    fn list_add(&self, list: &str, name: &str) -> Result<(), StoreError> {
        let names = self.list(list)?;
        if names.iter().any(|n| n == name) {
            return Ok(());
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

/// Only such a name is ever joined to a path.
fn is_pack_name(name: &str) -> bool {
    name.strip_prefix("pack-").is_some_and(|hex| hex.parse::<Oid>().is_ok())
}

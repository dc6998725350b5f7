//! Our packs on disk, and which of them are kept against a foreign repack (storage C, E).
//!
//! Contract: a pack is invisible until its index appears; both are synced before their names. The lists
//! in `agentproto/` are caches: `git gc` may take our packs away at any time, and that is normal. The list of
//! checkpoint packs and what is staged in `agentproto/packing` belong to whoever holds the packing lock, the
//! list of kept packs and `agentproto/tmp` to whoever holds the journal lock, what is staged in `agentproto/merging` to
//! whoever holds the merging lock: none sweeps another's.

mod lists;

pub(in crate::store) use lists::is_list;

use crate::store::{
    error::StoreError,
    loose::fresh_name,
    midx,
    names::TMP_PREFIX,
    pack::{self, Built},
    pack_merge::Source,
};
use crate::{
    domain::{
        oid::{HashKind, Oid},
        time::Timestamp,
    },
    limits,
    sys::files::{self, Durable},
};
use lists::{List, is_pack_name};
use std::{
    collections::HashSet,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

const KEEP_TEXT: &[u8] = b"git agentproto: until the journal names it\n";

/// Files of a pack that are written, and what they are to be called.
pub(in crate::store) type Staged = Vec<(PathBuf, PathBuf)>;

/// Writes and finds our packs.
#[derive(Clone, Debug)]
pub(in crate::store) struct Packs {
    dir: PathBuf,
    agent: PathBuf,
    tmp: PathBuf,
    packing: PathBuf,
    merging: PathBuf,
    hash: HashKind,
}

impl Packs {
    pub(in crate::store) fn new(common: &Path, agent: &Path, hash: HashKind) -> Self {
        Self {
            dir: common.join("objects/pack"),
            agent: agent.to_owned(),
            tmp: agent.join("tmp"),
            packing: agent.join("packing"),
            merging: agent.join("merging"),
            hash,
        }
    }

    /// Makes a pack of ours visible and durable. Needs the packing lock.
    pub(in crate::store) fn place(&self, built: &Built) -> Result<(), StoreError> {
        files::make_dirs(&self.dir)?;
        files::make_dirs(&self.packing)?;
        self.list_add(List::Packs, &built.name)?;
        self.put(built, List::Packs)
    }

    /// As [`Packs::place`], and no repack may drop the pack until [`Packs::release`]. Needs the journal lock.
    pub(in crate::store) fn place_kept(&self, built: &Built) -> Result<(), StoreError> {
        files::make_dirs(&self.dir)?;
        self.list_add(List::Kept, &built.name)?;
        let keep = self.file(&built.name, "keep");
        files::replace(&keep, &self.tmp.join(fresh_name(TMP_PREFIX)), KEEP_TEXT)?;
        let there = self.is_whole(&built.name)?;
        if !there {
            self.put(built, List::Kept)?;
        }
        if self.is_whole(&built.name)? {
            Ok(())
        } else {
            Err(StoreError::PackDamaged { name: built.name.clone() })
        }
    }

    /// Makes a pack visible, durable or not: what it holds is proved elsewhere. Needs the journal lock.
    pub(in crate::store) fn place_unsynced(&self, built: &Built) -> Result<(), StoreError> {
        files::make_dirs(&self.dir)?;
        let staged = self.stage(built, || self.tmp.join(fresh_name(TMP_PREFIX)), Durable::No)?;
        Self::rename_all(&staged)
    }

    /// Removes such a pack, or what is left of one, unless it is whole. True when something was removed.
    pub(in crate::store) fn drop_unless_whole(&self, name: &str) -> Result<bool, StoreError> {
        let gone = self.is_there(name)? && !self.is_whole(name)?;
        if gone {
            self.remove(name)?;
        }
        Ok(gone)
    }

    /// Removes such packs, so that no power cut brings them back; one that somebody else has an eye on is made durable
    /// and becomes a pack like all others. Needs the packing lock.
    pub(in crate::store) fn remove_unsynced(&self, names: &[String]) -> Result<(), StoreError> {
        let mut there = Vec::new();
        for name in names {
            there.extend(self.is_there(name)?.then_some(name));
        }
        if there.is_empty() {
            return Ok(());
        }
        let indexed = midx::packs_named_in(&self.dir)?;
        for name in there {
            let free = indexed.as_ref().is_some_and(|all| !all.contains(name));
            if free && !self.is_watched(name)? {
                self.remove(name)?;
            } else if self.sync(name)? {
                self.list_add(List::Packs, name)?;
            }
            crate::store::failpoint::reached("batch removed")?;
        }
        Ok(files::sync_dir(&self.dir)?)
    }

    /// Makes the files of a pack durable; false when it went away.
    fn sync(&self, name: &str) -> Result<bool, StoreError> {
        for extension in ["pack", "idx"] {
            match files::sync_file(&self.file(name, extension)) {
                Err(e) if e.is_missing() => return Ok(false),
                other => other?,
            }
        }
        Ok(true)
    }

    /// Makes every pack that is there durable, whosever it is, and lists those of `ours` among our own: for a moment
    /// when nothing else proves them. Needs the packing lock.
    pub(in crate::store) fn sync_all(&self, ours: &[String]) -> Result<(), StoreError> {
        for file in files::names(&self.dir)? {
            let name = file.to_str().and_then(|f| f.strip_suffix(".pack"));
            let Some(name) = name.filter(|n| is_pack_name(n)) else { continue };
            if self.sync(name)? && ours.iter().any(|our| our == name) {
                files::make_dirs(&self.packing)?;
                self.list_add(List::Packs, name)?;
            }
        }
        if files::is_dir(&self.dir)? { Ok(files::sync_dir(&self.dir)?) } else { Ok(()) }
    }

    /// The index first: from then on nobody looks for the pack.
    fn remove(&self, name: &str) -> Result<(), StoreError> {
        for extension in ["idx", "pack", "rev"] {
            files::remove_optional(&self.file(name, extension))?;
            crate::store::failpoint::reached("pack removed")?;
        }
        Ok(())
    }

    /// True when the pack can be seen: whether it is sound is not looked at.
    pub(in crate::store) fn is_seen(&self, name: &str) -> bool {
        let there = |extension| files::is_there(&self.file(name, extension)).unwrap_or(false);
        there("pack") && there("idx")
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.dir.join(format!("{name}.{extension}"))
    }

    fn staged(&self, list: List) -> PathBuf {
        let dir = match list {
            List::Packs => &self.packing,
            List::Kept => &self.tmp,
        };
        dir.join(fresh_name(TMP_PREFIX))
    }

    fn put(&self, built: &Built, list: List) -> Result<(), StoreError> {
        let staged = self.stage(built, || self.staged(list), Durable::Yes)?;
        self.show(&staged)
    }

    /// Writes pack and index under staged names; what to rename to what.
    fn stage(
        &self,
        built: &Built,
        name: impl Fn() -> PathBuf,
        durable: Durable,
    ) -> Result<Staged, StoreError> {
        let mut staged = Vec::new();
        for (extension, data) in [("pack", &built.pack), ("idx", &built.idx)] {
            let path = name();
            files::write_new(&path, data, 0o444, durable)?;
            staged.push((path, self.file(&built.name, extension)));
        }
        crate::store::failpoint::reached("pack staged")?;
        Ok(staged)
    }

    fn show(&self, staged: &Staged) -> Result<(), StoreError> {
        Self::rename_all(staged)?;
        Ok(files::sync_dir(&self.dir)?)
    }

    fn rename_all(staged: &Staged) -> Result<(), StoreError> {
        for (from, to) in staged {
            files::rename(from, to)?;
            crate::store::failpoint::reached("pack renamed")?;
        }
        Ok(())
    }

    /// True when a pack of this name is there, or half of one.
    pub(in crate::store) fn is_there(&self, name: &str) -> Result<bool, StoreError> {
        Ok(files::is_there(&self.file(name, "pack"))? || files::is_there(&self.file(name, "idx"))?)
    }

    /// Our checkpoint packs that nobody else has an eye on, with their sizes in bytes, the oldest first.
    pub(in crate::store) fn mergeable(&self) -> Result<Vec<(String, u64)>, StoreError> {
        let Some(indexed) = midx::packs_named_in(&self.dir)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for name in self.list(List::Packs)? {
            let Some(pack) = files::look(&self.file(&name, "pack"))? else { continue };
            let free = !indexed.contains(&name) && !self.is_watched(&name)?;
            if free && files::is_there(&self.file(&name, "idx"))? {
                found.push((name, pack.len()));
            }
        }
        Ok(found)
    }

    /// Sizes of the packs of ours that are there, in bytes.
    pub(in crate::store) fn sizes_bytes(&self) -> Result<Vec<u64>, StoreError> {
        let mut names = self.list(List::Packs)?;
        names.extend(self.list(List::Kept)?);
        let mut sizes = Vec::new();
        for name in names {
            sizes.extend(files::look(&self.file(&name, "pack"))?.map(|pack| pack.len()));
        }
        Ok(sizes)
    }

    fn is_watched(&self, name: &str) -> Result<bool, StoreError> {
        for extension in ["keep", "bitmap", "promisor", "mtimes"] {
            if files::is_there(&self.file(name, extension))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Packs read as a whole; none when one of them went away.
    pub(in crate::store) fn sources(
        &self,
        names: &[String],
    ) -> Result<Option<Vec<Source>>, StoreError> {
        let mut sources = Vec::new();
        for name in names {
            let pack = files::read_optional(&self.file(name, "pack"), limits::OBJECT_FILE_BYTES)?;
            let idx = files::read_optional(&self.file(name, "idx"), limits::OBJECT_FILE_BYTES)?;
            let Some((pack, idx)) = pack.zip(idx) else { return Ok(None) };
            sources.push(Source { name: name.clone(), pack, idx });
        }
        Ok(Some(sources))
    }

    /// Writes a merged pack under names that nobody else uses. Needs the merging lock.
    pub(in crate::store) fn stage_merged(&self, built: &Built) -> Result<Staged, StoreError> {
        self.stage(built, || self.merging.join(fresh_name(TMP_PREFIX)), Durable::Yes)
    }

    /// Puts the staged pack in the place of those it was made of. Needs both locks.
    pub(in crate::store) fn replace(
        &self,
        old: &[String],
        built: &Built,
        staged: &Staged,
    ) -> Result<(), StoreError> {
        let mut names = self.list(List::Packs)?;
        let place = names.iter().position(|n| old.contains(n)).unwrap_or(names.len());
        if !names.contains(&built.name) {
            names.insert(place, built.name.clone());
        }
        self.list_set(List::Packs, &names)?;
        self.show(staged)?;
        if !self.is_whole(&built.name)? {
            return Err(StoreError::PackDamaged { name: built.name.clone() });
        }
        // Whoever finds this finishes what a kill leaves half removed.
        let begun = self.merging.join(fresh_name(TMP_PREFIX));
        files::write_new(&begun, b"", 0o600, Durable::No)?;
        let gone = |name: &String| old.contains(name) && *name != built.name;
        for name in names.iter().filter(|n| gone(n)) {
            self.remove(name)?;
        }
        names.retain(|n| !gone(n));
        self.list_set(List::Packs, &names)?;
        files::remove_optional(&begun)?;
        Ok(())
    }

    fn is_whole(&self, name: &str) -> Result<bool, StoreError> {
        let pack = files::read_optional(&self.file(name, "pack"), limits::OBJECT_FILE_BYTES)?;
        let idx = files::read_optional(&self.file(name, "idx"), limits::OBJECT_FILE_BYTES)?;
        Ok(pack.is_some_and(|p| pack::is_whole(self.hash, &p))
            && idx.is_some_and(|i| pack::index_ids(self.hash, &i).is_some()))
    }

    fn ids(&self, name: &str) -> Result<Option<Vec<Oid>>, StoreError> {
        let idx = files::read_optional(&self.file(name, "idx"), limits::OBJECT_FILE_BYTES)?;
        Ok(idx.and_then(|i| pack::index_ids(self.hash, &i)))
    }

    /// Packs whose `.keep` says that it is ours, listed or not.
    pub(in crate::store) fn with_our_keep(&self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for file in files::names(&self.dir)? {
            let name = file.to_str().and_then(|f| f.strip_suffix(".keep"));
            let Some(name) = name.filter(|n| is_pack_name(n)) else { continue };
            let text = files::read_optional(&self.dir.join(&file), limits::SMALL_FILE_BYTES)?;
            found.extend((text.as_deref() == Some(KEEP_TEXT)).then(|| name.to_owned()));
        }
        Ok(found)
    }

    /// Those of the packs whose `.keep` was written more than `age_ms` ago. One whose age cannot be told is young.
    pub(in crate::store) fn kept_before(
        &self,
        mut names: Vec<String>,
        now: Timestamp,
        age_ms: u64,
    ) -> Vec<String> {
        let limit = now.ms().saturating_sub_unsigned(age_ms);
        names.retain(|name| {
            let keep = files::look(&self.file(name, "keep")).ok().flatten();
            keep.is_some_and(|k| k.mtime() * 1000 < limit)
        });
        names
    }

    /// Kept packs that hold one of these objects.
    pub(in crate::store) fn kept_with(
        &self,
        pinned: &HashSet<Oid>,
    ) -> Result<Vec<String>, StoreError> {
        let mut names = Vec::new();
        for name in self.list(List::Kept)? {
            let ids = self.ids(&name)?;
            if ids.is_some_and(|ids| ids.iter().any(|id| pinned.contains(id))) {
                names.push(name);
            }
        }
        Ok(names)
    }

    /// Lets repacks have these packs: pins of what they hold are durable. Needs the journal lock.
    pub(in crate::store) fn release(&self, names: &[String]) -> Result<(), StoreError> {
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            files::remove_optional(&self.file(name, "keep"))?;
        }
        let mut kept = self.list(List::Kept)?;
        kept.retain(|name| !names.contains(name));
        self.list_set(List::Kept, &kept)
    }

    /// Everything that our own checkpoint packs hold. Those are synced before anything relies on them.
    pub(in crate::store) fn own_ids(&self) -> Result<HashSet<Oid>, StoreError> {
        let mut all = HashSet::new();
        for name in self.list(List::Packs)? {
            if files::is_there(&self.file(&name, "pack"))? {
                all.extend(self.ids(&name)?.into_iter().flatten());
            }
        }
        Ok(all)
    }

    /// Removes staged files. Needs the journal lock, under which alone they are written.
    pub(in crate::store) fn sweep_staged(&self) -> Result<u64, StoreError> {
        swept(&self.tmp)
    }

    /// Removes halves of kept packs. Needs the journal lock.
    pub(in crate::store) fn sweep_unindexed(&self) -> Result<u64, StoreError> {
        self.sweep_listed(List::Kept)
    }

    /// Removes what a dead packer left: staged files, and halves of listed packs. Needs the packing lock.
    pub(in crate::store) fn sweep_packing(&self) -> Result<u64, StoreError> {
        Ok(swept(&self.packing)? + self.sweep_listed(List::Packs)?)
    }

    /// Removes what a dead merger left staged. Needs the merging lock.
    pub(in crate::store) fn sweep_merging(&self) -> Result<u64, StoreError> {
        swept(&self.merging)
    }

    /// True when a packer or merger has something staged, or died with it.
    pub(in crate::store) fn has_staged(&self) -> Result<bool, StoreError> {
        let mut staged = files::names(&self.packing)?;
        staged.extend(files::names(&self.merging)?);
        Ok(staged.iter().any(|name| name.to_string_lossy().starts_with(TMP_PREFIX)))
    }

    /// Half of a pack is none, whichever half it is.
    fn sweep_listed(&self, list: List) -> Result<u64, StoreError> {
        let mut removed = 0;
        for name in self.list(list)? {
            let (pack, idx) = (self.file(&name, "pack"), self.file(&name, "idx"));
            if files::is_there(&idx)? != files::is_there(&pack)? {
                removed += u64::from(files::remove_optional(&idx)?);
                removed += u64::from(files::remove_optional(&pack)?);
            }
        }
        Ok(removed)
    }
}

/// Removes our temporary files in a directory.
fn swept(dir: &Path) -> Result<u64, StoreError> {
    let mut removed = 0;
    for name in files::names(dir)? {
        let path = dir.join(&name);
        if name.to_string_lossy().starts_with(TMP_PREFIX) && files::is_file(&path)? {
            removed += u64::from(files::remove_optional(&path)?);
        }
    }
    Ok(removed)
}

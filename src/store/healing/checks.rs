//! Looking at what lies beside the journal: files of ours, refs that are nobody's, notes, packs.
//!
//! Contract: nothing is written. What can be read and is wrong is an answer; what cannot be read is an error, but
//! where the question is just that: whether notes can be read.

use crate::store::{
    Store, commit,
    error::StoreError,
    names::{self, AGENT_DIR, EVIDENCE, JOURNALS, chain_parts},
    object::Kind,
    place::{Local, Noted},
    recovery::Recovered,
    refs::RefFormat,
    tree::Mode,
};
use crate::{
    code::Code,
    domain::{ids::WriterId, oid::Oid, time::Timestamp},
    limits,
    sys::files::{self, Unfit},
};
use std::path::{Path, PathBuf};

/// A file of ours that tells what could be told without it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SideFile {
    /// Which journal this clone writes.
    Writer,
    /// What recoveries did that no entry tells of yet.
    Recovered,
    /// Packs made at checkpoints.
    Packs,
    /// Packs kept until the journal names what is in them.
    Kept,
    /// Which segments were let go.
    Dropped,
}

/// Directories in ours; everything else there is a file.
pub(in crate::store) const DIRECTORIES: [&str; 10] =
    ["tmp", "packing", "merging", "seek", "live", "logs", "local", "slots", "output", "damaged"];

/// Something in our directory or among our refs that is not of the kind that belongs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Where it is.
    pub path: PathBuf,
    /// What it is, and what belongs there.
    pub unfit: Unfit,
}

fn within(dir: &Path, directories_too: bool, found: &mut Vec<Misplaced>) -> Result<(), StoreError> {
    for name in files::names(dir)? {
        let path = dir.join(name);
        let Some(there) = files::look(&path)? else { continue };
        if directories_too && there.is_dir() {
            continue;
        }
        found.extend(Unfit::as_file(&there).map(|unfit| Misplaced { path, unfit }));
    }
    Ok(())
}

/// The same where everything is a directory of files.
fn within_each(dir: &Path, found: &mut Vec<Misplaced>) -> Result<(), StoreError> {
    for name in files::names(dir)? {
        let path = dir.join(name);
        let Some(there) = files::look(&path)? else { continue };
        match Unfit::as_directory(&there) {
            Some(unfit) => found.push(Misplaced { path, unfit }),
            None => within(&path, false, found)?,
        }
    }
    Ok(())
}

impl SideFile {
    /// Each of them.
    pub const ALL: [Self; 5] =
        [Self::Writer, Self::Recovered, Self::Packs, Self::Kept, Self::Dropped];

    /// The most that is read of it, bytes.
    fn most_bytes(self) -> u64 {
        match self {
            Self::Writer | Self::Recovered | Self::Dropped => limits::SMALL_FILE_BYTES,
            Self::Packs | Self::Kept => limits::PACK_LIST_BYTES,
        }
    }

    /// Its name in our directory.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Recovered => "recovered",
            Self::Packs => "packs",
            Self::Kept => "kept",
            Self::Dropped => "dropped",
        }
    }
}

impl Store {
    /// Where a file of ours lies.
    pub(in crate::store) fn side_file(&self, file: SideFile) -> PathBuf {
        self.agent.join(file.file_name())
    }

    /// The files of ours that hold something else than they should.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn damaged_side_files(&self) -> Result<Vec<SideFile>, StoreError> {
        let mut damaged = Vec::new();
        for file in SideFile::ALL {
            let data = match files::read_own(&self.side_file(file), file.most_bytes()) {
                Ok(Some(data)) => data,
                Ok(None) => continue,
                Err(e) if e.code() == Code::OverLimit => {
                    damaged.push(file);
                    continue;
                }
                // Told of by its kind.
                Err(e) if e.code() == Code::NotRegular => continue,
                Err(e) => return Err(e.into()),
            };
            let sound = match file {
                SideFile::Writer => Local::load(&self.location.common_dir)?.is_some(),
                SideFile::Recovered => serde_json::from_slice::<Recovered>(&data).is_ok(),
                SideFile::Packs | SideFile::Kept => crate::store::packs::is_list(&data),
                SideFile::Dropped => crate::store::retention::dropped_in(&data).is_some(),
            };
            if !sound {
                damaged.push(file);
            }
        }
        Ok(damaged)
    }

    /// What lies in our directory, or among our refs, and is of another kind than belongs there. Everything we make is a
    /// regular file in a directory; in `tmp` a directory may be made for a run, and in `output` each agent has one.
    ///
    /// # Errors
    /// The directory cannot be looked into.
    pub fn misplaced(&self) -> Result<Vec<Misplaced>, StoreError> {
        let mut found = Vec::new();
        let whole = files::look(&self.agent)?;
        if let Some(unfit) = whole.as_ref().and_then(Unfit::as_directory) {
            return Ok(vec![Misplaced { path: self.agent.clone(), unfit }]);
        }
        for (path, unfit) in self.refs.unfit()? {
            found.push(Misplaced { path, unfit });
        }
        match self.dead_chains() {
            Ok(dead) => found.extend(dead),
            // What is in the way may lead round: what lies below is looked at once that is gone.
            Err(_) if !found.is_empty() => {}
            Err(e) => return Err(e),
        }
        for name in files::names(&self.agent)? {
            let path = self.agent.join(&name);
            let Some(there) = files::look(&path)? else { continue };
            let dir = DIRECTORIES.iter().find(|dir| name == **dir);
            let unfit = match dir {
                Some(_) => Unfit::as_directory(&there),
                None => Unfit::as_file(&there),
            };
            match (unfit, dir) {
                (Some(unfit), _) => found.push(Misplaced { path, unfit }),
                // Whatever was damaged is kept as it was.
                (None, Some(&"damaged") | None) => {}
                (None, Some(&"output")) => within_each(&path, &mut found)?,
                (None, Some(dir)) => within(&path, *dir == "tmp", &mut found)?,
            }
        }
        Ok(found)
    }

    /// Refs of ours that name no commit, that the log does not prove and that can be made again without it: evidence, and
    /// a journal whose last event was noted and is here. Others with a log are set again by whoever looks.
    fn dead_chains(&self) -> Result<Vec<Misplaced>, StoreError> {
        let mut found = Vec::new();
        if self.refs.format() != RefFormat::Files {
            return Ok(found);
        }
        for chains in [JOURNALS, EVIDENCE] {
            for name in self.refs.names(chains)? {
                let Some((writer, _)) = chain_parts(&name) else { continue };
                let is_dead = matches!(self.own_value(&name), Err(StoreError::BrokenRef { .. }));
                if is_dead && (chains == EVIDENCE || self.has_noted_end(&writer)?) {
                    let unfit = Unfit::Kind { is: "a file that names no commit", belongs: "a ref" };
                    found.push(Misplaced { path: self.location.common_dir.join(&name), unfit });
                }
            }
        }
        Ok(found)
    }

    fn has_noted_end(&self, writer: &WriterId) -> Result<bool, StoreError> {
        match self.homes.seen(writer) {
            Noted::Event(seen) => Ok(self.find_object(&seen.id)?.is_some()),
            Noted::Nothing | Noted::Unreadable(_) => Ok(false),
        }
    }

    /// Something that is no directory in the place of the user's notes about journals, outside of the repository: without
    /// these no copy of it is told from it, and no journal that was set back is missed.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn misplaced_notes(&self) -> Result<Option<Misplaced>, StoreError> {
        Ok(self.homes.misplaced()?.map(|(path, unfit)| Misplaced { path, unfit }))
    }

    /// Refs in our namespace that nothing of ours knows what to do with, each with what is wrong.
    ///
    /// # Errors
    /// The refs cannot be listed.
    pub fn odd_refs(&self) -> Result<Vec<(String, String)>, StoreError> {
        let mut odd = Vec::new();
        for name in self.refs.names(&format!("refs/{AGENT_DIR}/"))? {
            if !names::is_known(&name) {
                odd.push((name, "no ref of this program has such a name".to_owned()));
                continue;
            }
            match self.refs.read(&name) {
                Err(e @ StoreError::BrokenRef { .. }) => odd.push((name, e.to_string())),
                Ok(_) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(odd)
    }

    /// True when the file is missing without which a new ref could overwrite one that git packs at that moment.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn lacks_packed_refs(&self) -> Result<bool, StoreError> {
        self.refs.lacks_packed()
    }

    /// Why notes cannot be read; none when all of them can, or there are none.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn notes_damage(&self, notes_ref: &str) -> Result<Option<String>, StoreError> {
        let read = self.refs.read_leading(notes_ref).and_then(|tip| {
            let Some(tip) = tip else { return Ok(()) };
            let commit = self.require(&tip, Kind::Commit)?;
            let tree = commit::parse(self.hash, &commit).map(|c| c.tree);
            let malformed = || StoreError::WrongObject {
                id: tip,
                expected: "commit",
                reason: "it is malformed".to_owned(),
            };
            self.require_notes_below(&tree.ok_or_else(malformed)?)
        });
        match read {
            Ok(()) => Ok(None),
            Err(e) if e.is_damage() => Ok(Some(e.to_string())),
            Err(e) => Err(e),
        }
    }

    /// Every note, by the commit it is on.
    ///
    /// # Errors
    /// The notes cannot be read.
    pub fn all_notes(&self, notes_ref: &str) -> Result<Vec<(Oid, Vec<u8>)>, StoreError> {
        let Some(tip) = self.refs.read_leading(notes_ref)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        self.notes_below(&self.commit_tree(&tip)?, "", &mut found)?;
        Ok(found)
    }

    fn notes_below(
        &self,
        tree: &Oid,
        above: &str,
        found: &mut Vec<(Oid, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        for entry in self.tree(tree)? {
            // What has no such name is no note.
            let Ok(name) = std::str::from_utf8(&entry.name) else { continue };
            let hex = format!("{above}{name}");
            match entry.mode {
                Mode::Tree => self.notes_below(&entry.id, &hex, found)?,
                Mode::Submodule => {}
                Mode::File | Mode::Executable | Mode::Symlink | Mode::OldFile(_) => {
                    if let Ok(target) = hex.parse() {
                        found.push((target, self.require(&entry.id, Kind::Blob)?));
                    }
                }
            }
        }
        Ok(())
    }

    fn require_notes_below(&self, tree: &Oid) -> Result<(), StoreError> {
        for entry in self.tree(tree)? {
            match entry.mode {
                Mode::Tree => self.require_notes_below(&entry.id)?,
                Mode::Submodule => {}
                Mode::File | Mode::Executable | Mode::Symlink | Mode::OldFile(_) => {
                    self.require(&entry.id, Kind::Blob)?;
                }
            }
        }
        Ok(())
    }

    /// Packs that keep out of every repack, that no list names and that are older than what is under way.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn stale_orphan_packs(&self, now: Timestamp) -> Result<Vec<String>, StoreError> {
        Ok(self.packs.kept_before(self.orphan_packs()?, now, limits::PACK_STALE_MS))
    }
}

//! Everything that touches git: objects, refs, journal, WAL, notes, candidates, landing, trusted rules.
//!
//! [`Store`] is one repository as this program sees it. Contract: what [`Store::append`] answers is
//! durable; reading never appends, never mints a writer and needs no lock; what cannot be read is an
//! error, never "nothing". The rooms, from the ground up: `repo` (the repository as it is), `log` (write-ahead
//! frames), `packing` (what frees the log), `chain` (the journal), `healing` (recovery, repair, retention), `rules`
//! (what a person fixed), `work` (listed paths, candidates, landing). What others need of them is named here.

mod chain;
pub mod error;
mod failpoint;
mod healing;
mod log;
pub mod names;
mod packing;
mod repo;
mod rules;
#[cfg(test)]
mod sweep;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod testlab;
#[cfg(test)]
mod tests;
mod work;

use chain::{batch, building, commit, group, line, locking, place, state, writer};
pub use chain::{journal, reading, segments};
pub use commit::{Entry, Stamp};
pub use error::StoreError;
pub use healing::{checks, gits, recovery, repair, retention};
pub use journal::{
    AppendError, Appended, Batch, Edit, GitView, NewEntry, Place, Snapshot, Tip, Written,
};
pub use location::{Location, OpenError, Worktree, discover};
use log::{log_content, salvage, wal, wal_file, wal_frame};
pub use log_content::{LogContent, read_log};
pub use names::{NOTES_ACKS, NOTES_GATES, Segment, evidence_ref, journal_ref};
use packing::{checkpoint, delta, kin, midx, pack, pack_merge, pack_read, packs};
pub use place::{BadNote, End, Seen};
pub use recovery::Recovered;
pub use repo::{beneath, git, location, object, program, refs, repo_id, revision, tree};
use repo::{caps, loose, odb};
pub use rules::{allowlist, configured, protect, scope, settings, trusted};
use work::gitlink;
pub use work::{
    candidate, expand, filters, hooks, identity, landing, paths, stamps, worktree_state,
};
pub use writer::{Gone, Witness};

use crate::{
    domain::{
        ids::WriterId,
        oid::{HashKind, Oid},
    },
    limits,
    sys::{
        env::Env,
        files::{self, FileError, Unfit},
    },
};
use group::Group;
use line::Line;
use object::{Kind, Object};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};
use wal::{Wal, WalPaths};

/// One repository.
pub struct Store {
    location: Location,
    agent: PathBuf,
    homes: place::Homes,
    said: Said,
    hash: HashKind,
    odb: odb::Odb,
    refs: refs::Refs,
    loose: loose::LooseStore,
    packs: packs::Packs,
    wal_paths: WalPaths,
    wal: Mutex<Option<Wal>>,
    /// Events of one segment: [`limits::SEGMENT_EVENTS`] but in tests.
    segment_events: u64,
    /// Longest wait for a ref lock of somebody else: [`limits::REF_LOCK_WAIT_MS`] but in tests.
    ref_wait_ms: u64,
    line: Line<Group>,
    /// Nothing is written, caches included.
    looks_only: bool,
    /// No link lay in the place of a directory of ours when it was opened.
    has_own_directories: bool,
}

/// Sentences for a person, each to be said once.
#[derive(Clone, Debug, Default)]
pub struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    /// Takes what was not said yet, one line each.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a sentence, once.
    pub(crate) fn add(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
}

/// A pack that no repack drops before the journal names what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPack {
    /// `pack-<checksum>`, without extension.
    pub name: String,
}

/// Refuses links in the place of our directories: we remove what lies in some of them, and what a link leads to is
/// somebody else's.
fn require_own_directories(agent: &Path) -> Result<(), StoreError> {
    let below = checks::DIRECTORIES.iter().map(|name| agent.join(name));
    for dir in std::iter::once(agent.to_owned()).chain(below) {
        let link = files::look(&dir)?.filter(std::fs::Metadata::is_symlink);
        if let Some(unfit) = link.as_ref().and_then(Unfit::as_directory) {
            return Err(FileError::new("use", &dir, std::io::Error::other(unfit)).into());
        }
    }
    Ok(())
}

impl Store {
    /// Opens the repository, refusing by name what cannot be worked with, and does a due recovery when
    /// the journal lock is free at once; else, or where nothing can be written, reads what is there.
    ///
    /// # Errors
    /// The repository cannot be worked with, or its journal is diverged or corrupt.
    pub fn open(location: Location, env: &Env) -> Result<Self, StoreError> {
        let mut store = Self::open_as_it_is(location, env)?;
        require_own_directories(&store.agent)?;
        store.has_own_directories = true;
        store.recover_if_free()?;
        Ok(store)
    }

    /// The same without any recovery, for whoever looks at what is wrong: links in the place of our directories are
    /// refused by whoever takes the lock.
    ///
    /// # Errors
    /// The repository cannot be worked with.
    pub fn open_as_it_is(location: Location, env: &Env) -> Result<Self, StoreError> {
        let caps::Probed { owner, hash, refs } = caps::probe(&location, env)?;
        let (common, agent) = (location.common_dir.clone(), location.agent_dir());
        let own = location.worktree.as_ref().map_or(&location.common_dir, |w| &w.git_dir);
        location::require_files(own, &location.common_dir)?;
        Ok(Self {
            hash,
            odb: odb::Odb::open(&location, owner)?,
            refs: refs::Refs::new(&location, hash, refs, env),
            loose: loose::LooseStore::new(common.join("objects"), agent.join("tmp")),
            packs: packs::Packs::new(&common, &agent, hash),
            homes: place::Homes::of(env),
            said: Said::default(),
            wal_paths: WalPaths::new(&agent),
            wal: Mutex::new(None),
            segment_events: limits::SEGMENT_EVENTS,
            ref_wait_ms: limits::REF_LOCK_WAIT_MS,
            line: Line::new(),
            looks_only: false,
            has_own_directories: false,
            location,
            agent,
        })
    }

    /// The same for who promised to change nothing: caches are read and neither filled nor dropped.
    #[must_use]
    pub fn looking_only(mut self) -> Self {
        self.looks_only = true;
        self
    }

    /// True where nothing may be changed: it was promised, or a directory of ours leads to somebody else's.
    #[must_use]
    pub fn looks_only(&self) -> bool {
        self.looks_only || self.require_own_directories().is_err()
    }

    fn require_own_directories(&self) -> Result<(), StoreError> {
        if self.has_own_directories { Ok(()) } else { require_own_directories(&self.agent) }
    }

    /// The same repository with small segments.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn with_segments_of(mut self, events: u64) -> Self {
        self.segment_events = events;
        self
    }

    /// The same repository for those who have a ref lock held and no time.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn waiting_for_refs(mut self, wait_ms: u64) -> Self {
        self.ref_wait_ms = wait_ms;
        self
    }

    /// Where the repository is.
    #[must_use]
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// The hash of every object here.
    #[must_use]
    pub fn hash(&self) -> HashKind {
        self.hash
    }

    /// A library handle that has seen the packs as they are now. Use it and drop it.
    ///
    /// # Errors
    /// The library refuses to open the repository.
    pub fn repo(&self) -> Result<gix::Repository, StoreError> {
        Ok(self.odb.repo()?)
    }

    /// The object, from the object database or else from the write-ahead log; none when nobody has it.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn find_object(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        if let Some(object) = self.odb.find_at_once(id)? {
            return Ok(Some(object));
        }
        // The log has at once what a crash damaged; the database is given time to become readable.
        if let Some(object) = self.in_wal(id)? {
            return Ok(Some(object));
        }
        // It may have been packed, and left the log, between the two looks.
        self.odb.find(id)
    }

    fn in_wal(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        self.with_sound_wal(|wal| wal.map_or(Ok(None), |w| w.find(id)))
    }

    /// The object, which must be there.
    ///
    /// # Errors
    /// It is missing or cannot be read.
    pub fn object(&self, id: &Oid) -> Result<Object, StoreError> {
        self.find_object(id)?.ok_or(StoreError::Missing { id: *id })
    }

    /// The tree of a commit.
    ///
    /// # Errors
    /// There is no such commit, or it cannot be read.
    pub fn commit_tree(&self, id: &Oid) -> Result<Oid, StoreError> {
        let data = self.require(id, Kind::Commit)?;
        let line = data.strip_prefix(b"tree ").and_then(|rest| rest.split(|b| *b == b'\n').next());
        let tree = line.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|t| t.parse().ok());
        tree.filter(|tree: &Oid| tree.hash() == self.hash).ok_or_else(|| StoreError::WrongObject {
            id: *id,
            expected: "commit",
            reason: "it names no tree".to_owned(),
        })
    }

    fn require(&self, id: &Oid, kind: Kind) -> Result<Vec<u8>, StoreError> {
        of_kind(self.object(id)?, kind)
    }

    /// The value of a ref by its full name, symbolic refs followed; `worktrees/<id>/HEAD` works, too.
    ///
    /// # Errors
    /// The ref is there and holds no object id.
    pub fn reference(&self, full_name: &str) -> Result<Option<Oid>, StoreError> {
        self.refs.read(full_name)
    }

    /// Where a branch, or a `HEAD` that is on none, is: see [`refs::RefReader::tip`].
    ///
    /// # Errors
    /// As [`Store::reference`].
    pub fn tip(&self, full_name: &str) -> Result<Option<Oid>, StoreError> {
        self.refs.tip(full_name)
    }

    /// The user's git in the current worktree, or in the git directory where there is none.
    ///
    /// # Errors
    /// There is none to be trusted.
    pub fn git(&self) -> Result<git::Git, StoreError> {
        self.refs.git()
    }

    /// Deletes a ref of ours that is at `old`.
    ///
    /// # Errors
    /// It holds another value, its lock was not to be had, or git fails.
    pub fn delete_reference(&self, full_name: &str, old: Oid) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        self.refs.delete(full_name, old, self.ref_wait_ms)
    }

    /// This clone's journal identity; none before the first append.
    ///
    /// # Errors
    /// What names it cannot be read.
    pub fn writer(&self) -> Result<Option<WriterId>, StoreError> {
        writer::find(self)
    }

    /// The journal that this repository names while another one goes on with it, and the git directory of that one,
    /// if it is known: this one is a copy, and has recorded nothing of its own yet.
    ///
    /// # Errors
    /// What names it cannot be read.
    pub fn copied_from(&self) -> Result<Option<(WriterId, Option<PathBuf>)>, StoreError> {
        writer::copied_from(self)
    }

    /// What was found and done here that a person should hear of. The handle outlives the store.
    #[must_use]
    pub fn said(&self) -> Said {
        self.said.clone()
    }

    /// Makes the objects durable in one pack that no repack drops until a pin of one of them is in the
    /// journal and checkpointed. Call it before the append that pins.
    ///
    /// # Errors
    /// There is nothing to pack, it does not fit, or it did not read back.
    pub fn write_kept_pack(&self, objects: &[Object]) -> Result<KeptPack, StoreError> {
        if objects.is_empty() {
            return Err(StoreError::BadEntry { reason: "a pack of nothing".to_owned() });
        }
        let built = pack::build(self.hash, objects)?;
        let _lock = self.lock()?;
        self.packs.place_kept(&built)?;
        Ok(KeptPack { name: built.name })
    }

    /// Makes a few objects durable as loose ones, for a ref that is moved to them next and that no event
    /// names: nothing but that ref keeps them from a prune.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write_loose(&self, objects: &[Object]) -> Result<(), StoreError> {
        // Under the lock alone nobody sweeps staged files.
        let _lock = self.lock()?;
        objects.iter().try_for_each(|object| self.loose.write_for_ref(object))
    }

    /// Why the write-ahead log cannot be used; none when it can, or when there is none. Beside a damaged log readers
    /// go by what the refs show, which may be less than what was recorded.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn log_damage(&self) -> Result<Option<String>, StoreError> {
        match self.with_wal(|_| Ok(())) {
            Ok(()) => Ok(None),
            Err(e @ StoreError::CorruptWal { .. }) => Ok(Some(e.to_string())),
            Err(e) => Err(e),
        }
    }

    /// Runs `f` on the log as it is now, none when there is none. `f` must not come back here.
    fn with_wal<T>(
        &self,
        f: impl FnOnce(Option<&mut Wal>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut held = self.wal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wal = match held.take() {
            Some(wal) => wal.caught_up()?,
            None => self.opened_log()?,
        };
        let done = f(wal.as_mut());
        // After a failure nothing is known about it: read anew next time.
        *held = wal.filter(|_| done.is_ok());
        done
    }

    /// The log, which must be the one of the journal that this clone writes: one put here from elsewhere would make
    /// refs of another journal.
    fn opened_log(&self) -> Result<Option<Wal>, StoreError> {
        let Some(wal) = Wal::open(&self.wal_paths, self.hash)? else { return Ok(None) };
        let logged = wal.tips().keys().find_map(|name| names::journal_writer(name));
        let here = place::Local::load(&self.location.common_dir)?.map(|local| local.writer);
        match (logged, here) {
            (Some(logged), Some(here)) if logged != here => Err(StoreError::CorruptWal {
                path: self.agent.join("wal"),
                reason: format!("it is the log of journal {logged}, this clone writes {here}"),
            }),
            _ => Ok(Some(wal)),
        }
    }

    /// As `with_wal`, for readers: a damaged log is as none, the refs count.
    fn with_sound_wal<T>(
        &self,
        f: impl Fn(Option<&mut Wal>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self.with_wal(&f) {
            Err(StoreError::CorruptWal { .. }) => f(None),
            other => other,
        }
    }
}

fn of_kind(object: Object, kind: Kind) -> Result<Vec<u8>, StoreError> {
    if object.kind == kind {
        return Ok(object.data);
    }
    let reason = format!("it is a {}", object.kind.name());
    Err(StoreError::WrongObject { id: object.id, expected: kind.name(), reason })
}

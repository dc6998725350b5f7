//! The journal: one linear chain per writer, read by anybody, appended under the journal lock.
//!
//! Contract of [`Store::append`] (storage A): lock, recover, show the caller the tip, build all objects in
//! memory, one frame and one `fdatasync`, from then on the entries **are** there; writing loose objects and
//! moving refs makes git see them and may lag behind, which is no error or a retry would write them twice.
//! Threads that ask meanwhile share the lock, the frame and the `fdatasync` (`group`).

use crate::store::{
    Store, batch,
    building::{self, Built},
    checkpoint::Sealing,
    commit::{self, Entry, Stamp},
    error::StoreError,
    group::{self, Deciding, Group, Sight},
    names::{Segment, evidence_ref},
    recovery::{Depth, Recovered},
    wal::{Look, Wal},
    wal_frame::{Frame, Head},
};
use crate::{
    code::Code,
    domain::{ids::WriterId, oid::Oid},
    sys::{
        files::{self, Durable},
        lock::KernelLock,
    },
    wire::message::FORMAT,
};
use std::{
    any::Any,
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// The end of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Whose journal.
    pub writer: WriterId,
    /// Below which its segments lie, with a slash at the end: our own namespace, or what was fetched from somewhere.
    pub dir: String,
    /// Its newest segment.
    pub segment: Segment,
    /// Number of its last entry.
    pub seq: u64,
    /// Commit of its last entry.
    pub id: Oid,
    /// The state after it.
    pub tree: Oid,
}

/// A change of the state tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Stores a document.
    Put {
        /// Path in the state tree.
        path: String,
        /// Its bytes.
        data: Vec<u8>,
    },
    /// Removes a document; one that is not there is fine.
    Remove {
        /// Path in the state tree.
        path: String,
    },
}

/// An entry to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The whole commit message; its `Seq` trailer must be the number the entry gets.
    pub message: Vec<u8>,
    /// What it changes in the state.
    pub edits: Vec<Edit>,
}

/// Entries that become durable together, and the commits they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// In order; none = nothing is appended.
    pub entries: Vec<NewEntry>,
    /// Commits that must stay alive because the entries name them. They are durable already.
    pub pins: Vec<Oid>,
}

/// What a caller decides upon: the state as it is while the lock is held.
pub struct Snapshot<'a> {
    /// Last entry of our own journal; none before the first.
    pub tip: Option<Tip>,
    /// Number the next entry gets.
    pub next_seq: u64,
    /// Whether that one is the first of its segment, and of what.
    pub place: Place,
    /// What recoveries did that no entry tells of yet. Appending counts as having told.
    pub recovered: Option<Recovered>,
    sight: Sight<'a>,
}

/// Where the next entry goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It begins the journal: it names repository and format.
    First,
    /// It begins a later segment: it names repository and format as the journal did until now, and what it continues.
    Continues {
        /// Last entry of the segment before: what `Continues` says.
        last: Oid,
        /// First entry of the segment before, which names the repository.
        first: Oid,
    },
    /// It has the entry before as its parent.
    Within,
}

impl Snapshot<'_> {
    /// The last entry of our own journal as it was written; none before the first. Ask here and not the store:
    /// it may not be on disk yet.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn last_entry(&self) -> Result<Option<Entry>, StoreError> {
        self.tip.as_ref().map(|tip| commit::entry(&self.sight.object(&tip.id)?)).transpose()
    }

    /// As [`Store::document`], of our own state.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn document(&self, path: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.tip.as_ref().map_or(Ok(None), |tip| self.sight.document(&tip.tree, path))
    }

    /// As [`Store::documents`], of our own state.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn documents(&self, dir: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.tip.as_ref().map_or(Ok(Vec::new()), |tip| self.sight.documents(&tip.tree, dir))
    }
}

/// One appended entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its number.
    pub seq: u64,
    /// Its commit.
    pub id: Oid,
}

/// Whether plain git sees what was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitView {
    /// It does.
    Shown,
    /// Not yet, and why. The entries are recorded all the same; the next command shows them.
    Pending(String),
}

/// The outcome of an append: durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The entries, in order.
    pub written: Vec<Written>,
    /// Whether plain git sees them.
    pub git_view: GitView,
    /// Why the log could not be checkpointed although it was due. Nothing is lost by that.
    pub checkpoint_failed: Option<String>,
}

/// Nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError<E> {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The caller decided against it.
    #[error("{0}")]
    Decide(E),
}

impl<E> AppendError<E> {
    /// The stable code; `of_decide` names the one of the caller's refusal.
    pub fn code(&self, of_decide: impl FnOnce(&E) -> Code) -> Code {
        match self {
            Self::Store(e) => e.code(),
            Self::Decide(e) => of_decide(e),
        }
    }
}

/// What a member of a group made of its turn.
enum Decided<E> {
    Entries(Box<Built>),
    Nothing,
    Against(AppendError<E>),
    Panicked(Box<dyn Any + Send>),
}

impl Store {
    /// Appends what `decide` makes of the present state; nobody else appends in between. When `decide`
    /// refuses or gives no entries, nothing is written. `who` is author and committer.
    ///
    /// Threads that ask at the same time become durable together. `decide` runs on the calling thread and sees
    /// the state after everything before it, which may be in memory only: it reads through its [`Snapshot`].
    /// It may read other things of the store, and takes no journal lock: appending or pinning from inside is
    /// refused.
    ///
    /// # Errors
    /// Then nothing was appended, but for [`StoreError::Unanswered`], which says that this is not known.
    pub fn append<E>(
        &self,
        who: &Stamp,
        decide: impl FnOnce(&Snapshot<'_>) -> Result<Batch, E>,
    ) -> Result<Appended, AppendError<E>> {
        let (turn, mut group) = self.group_in_turn()?;
        let said = match self.decided(&mut group, who, decide) {
            Decided::Entries(built) => {
                group = self.with_room_for(group, &built)?;
                Ok(group.add(built))
            }
            Decided::Nothing => Ok(Vec::new()),
            Decided::Against(e) => Err(e),
            Decided::Panicked(cause) => {
                // The members are answered; packing is the next one's, too.
                let _ = self.pass_on(turn, group);
                resume_unwind(cause)
            }
        };
        // Whatever was decided upon entries of the group holds only once they are there.
        let told = (!group.is_empty()).then(|| group.subscribe());
        let unchanged = group.unchanged();
        let packed = self.pass_on(turn, group);
        let git_view = match told {
            Some(told) => group::heard(&told)?,
            None => unchanged,
        };
        if let (GitView::Pending(why), Ok([_, ..])) = (&git_view, said.as_deref()) {
            self.said.add(format!("recorded, but git does not show it yet: {why}"));
        }
        let checkpoint_failed = packed.err().map(|e| e.to_string());
        said.map(|written| Appended { written, git_view, checkpoint_failed })
    }

    fn decided<E>(
        &self,
        group: &mut Group,
        who: &Stamp,
        decide: impl FnOnce(&Snapshot<'_>) -> Result<Batch, E>,
    ) -> Decided<E> {
        let batch = {
            let sight = Sight { store: self, group };
            let (tip, recovered) = (group.tip.clone(), group.recovered.clone());
            let (next_seq, place) = (group.next_seq(), group.place);
            let snapshot = Snapshot { tip, place, next_seq, recovered, sight };
            let _deciding = Deciding::about(&self.agent);
            catch_unwind(AssertUnwindSafe(|| decide(&snapshot)))
        };
        match batch {
            Ok(Ok(batch)) if batch.entries.is_empty() => Decided::Nothing,
            Ok(Ok(batch)) => self
                .writer_of(group)
                .and_then(|writer| {
                    building::build(Sight { store: self, group }, who, &writer, batch)
                })
                .map_or_else(
                    |e| Decided::Against(e.into()),
                    |built| Decided::Entries(Box::new(built)),
                ),
            Ok(Err(e)) => Decided::Against(AppendError::Decide(e)),
            Err(cause) => Decided::Panicked(cause),
        }
    }

    /// Refuses to continue a journal of a format that is not ours. Asked where there is no log yet: one of our
    /// own making means that we wrote the journal, too.
    pub(in crate::store) fn require_known_format(
        &self,
        tip: Option<&Tip>,
    ) -> Result<(), StoreError> {
        let Some(tip) = tip else { return Ok(()) };
        if self.with_wal(|wal| Ok(wal.is_some()))? {
            return Ok(());
        }
        let mut first = self.entry(&tip.id)?;
        while let Some(parent) = first.parent {
            first = self.entry(&parent)?;
        }
        let found = commit::format_in(&first.message).ok_or_else(|| StoreError::NotAnEntry {
            id: first.id,
            reason: "it has no parent and no Format trailer".to_owned(),
        })?;
        if found == FORMAT { Ok(()) } else { Err(StoreError::NewerFormat { found, known: FORMAT }) }
    }

    /// The tip with its entry and tree readable; an unreadable one calls for the full recovery.
    pub(in crate::store) fn readable_tip(
        &self,
        lock: &KernelLock,
    ) -> Result<Option<Tip>, StoreError> {
        let read = || {
            let tip = self.own_tip()?;
            tip.as_ref().map(|t| self.tree(&t.tree)).transpose()?;
            Ok(tip)
        };
        match read() {
            Err(StoreError::Missing { .. } | StoreError::Unreadable { .. }) => {
                self.recover(lock, Depth::Full, self.ref_wait_ms)?;
                read()
            }
            other => other,
        }
    }

    pub(in crate::store) fn push(&self, frame: &Frame) -> Result<(), StoreError> {
        self.with_wal(|wal| match wal {
            Some(wal) => wal.push(frame),
            None => Err(StoreError::CorruptWal {
                path: self.agent.clone(),
                reason: "it was removed meanwhile".to_owned(),
            }),
        })
    }

    /// Shows what is recorded, and seals the log where that is due. From here on nothing is an error any more.
    pub(in crate::store) fn after_the_frame(
        &self,
        lock: &KernelLock,
        frame: &Frame,
        locked: bool,
    ) -> (GitView, Result<Sealing, StoreError>) {
        let wait_ms = if locked { 0 } else { self.ref_wait_ms };
        match self.show(frame, wait_ms) {
            Ok(()) => (GitView::Shown, self.seal_if_due(lock, Look::InTurn)),
            Err(e) => (GitView::Pending(e.to_string()), Ok(Sealing::NotDue)),
        }
    }

    /// Lets git see a frame.
    fn show(&self, frame: &Frame, wait_ms: u64) -> Result<(), StoreError> {
        crate::store::failpoint::reached("frame written")?;
        self.forget_recorded()?;
        if let Some(name) = batch::pack_name(&frame.step) {
            self.show_as_pack(&name, &frame.objects)?;
        } else {
            for object in &frame.objects {
                self.loose.write(object, Durable::No)?;
                crate::store::failpoint::reached("object written")?;
            }
        }
        for m in &frame.step.moves {
            self.swap_logged(&m.name, m.old, &m.new, wait_ms)?;
        }
        Ok(())
    }

    /// Makes the log where there is none, starting at what our refs hold.
    pub(in crate::store) fn ensure_wal(
        &self,
        writer: &WriterId,
        tip: Option<&Tip>,
    ) -> Result<(), StoreError> {
        self.refs.ensure_packed()?;
        if self.with_wal(|wal| Ok(wal.is_some()))? {
            return Ok(());
        }
        let mut refs = BTreeMap::new();
        refs.extend(tip.map(|t| (t.name(), t.id)));
        let evidence = evidence_ref(writer, tip.map_or(Segment::FIRST, |t| t.segment));
        refs.extend(self.refs.read(&evidence)?.map(|id| (evidence, id)));
        let seq = tip.map_or(0, |t| t.seq);
        let head =
            Head { hash: self.hash, epoch: 1, seq, boot: files::boot_id(), refs, sealed: false };
        // Our directory may be as new as the log: without its name a power cut takes all of it.
        files::sync_dir(&self.location.common_dir)?;
        Wal::create(&self.wal_paths, &head)
    }
}

//! Appends of several threads that become durable together: one frame, one `fdatasync`, one move of the refs.
//!
//! Contract: the members come one by one, each sees what those before it made, and what one of them does
//! wrong is its own failure. Until the frame is durable nothing is there and an error is everybody's;
//! afterwards it is there for everybody. Who decided upon something of the group that never came to be
//! gets the group's error, be it a refusal that it would have answered.

use crate::store::{
    Store,
    building::Built,
    checkpoint::Sealing,
    error::StoreError,
    journal::{GitView, Place, Tip, Written},
    line::Turn,
    names::{Segment, evidence_ref, journal_ref},
    object::{Kind, Object},
    place::Seen,
    recovery::{Depth, Recovered},
    state,
    wal_frame::{Frame, Move, Step},
    writer,
};
use crate::{
    domain::{ids::WriterId, oid::Oid},
    limits,
    sys::lock::KernelLock,
};
use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
};

/// What came of a group, as its members are told.
pub(in crate::store) type Outcome = Result<GitView, StoreError>;

/// An open group; whoever has it has the journal lock.
pub(in crate::store) struct Group {
    lock: KernelLock,
    /// What a foreign lock kept recovery from showing.
    pub(in crate::store) pending: Option<String>,
    pub(in crate::store) recovered: Option<Recovered>,
    pub(in crate::store) writer: Option<WriterId>,
    /// The last entry that is durable.
    base: Option<Tip>,
    /// The segment of all its entries: one that begins the next one begins a group, too.
    pub(in crate::store) segment: Segment,
    /// Where the first entry goes, and where the next one does.
    first: Place,
    pub(in crate::store) place: Place,
    /// The last entry, in memory or durable.
    pub(in crate::store) tip: Option<Tip>,
    /// End of the evidence chain before the group and now, once a member pinned something.
    pub(in crate::store) evidence: Option<(Option<Oid>, Oid)>,
    objects: Vec<Object>,
    places: HashMap<Oid, usize>,
    written: Vec<Written>,
    bytes: u64,
    members: Vec<Sender<Outcome>>,
}

/// Objects as a member of the group sees them.
#[derive(Clone, Copy)]
pub(in crate::store) struct Sight<'a> {
    pub(in crate::store) store: &'a Store,
    pub(in crate::store) group: &'a Group,
}

impl Sight<'_> {
    pub(in crate::store) fn object(&self, id: &Oid) -> Result<Object, StoreError> {
        self.group.object(id).map_or_else(|| self.store.object(id), |o| Ok(o.clone()))
    }

    pub(in crate::store) fn require(&self, id: &Oid, kind: Kind) -> Result<Vec<u8>, StoreError> {
        crate::store::of_kind(self.object(id)?, kind)
    }

    pub(in crate::store) fn document(
        &self,
        tree: &Oid,
        path: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        state::document(&|id, kind| self.require(id, kind), tree, path)
    }

    pub(in crate::store) fn documents(
        &self,
        tree: &Oid,
        dir: &str,
    ) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        state::documents(&|id, kind| self.require(id, kind), tree, dir)
    }
}

impl Group {
    fn object(&self, id: &Oid) -> Option<&Object> {
        self.places.get(id).and_then(|at| self.objects.get(*at))
    }

    /// Number the next entry gets.
    pub(in crate::store) fn next_seq(&self) -> u64 {
        self.tip.as_ref().map_or(1, |t| t.seq + 1)
    }

    /// What the next entry has as its parent; none where it begins a segment.
    pub(in crate::store) fn parent(&self) -> Option<Oid> {
        match self.place {
            Place::Within => self.tip.as_ref().map(|t| t.id),
            Place::First | Place::Continues { .. } => None,
        }
    }

    /// True while nothing would be written.
    pub(in crate::store) fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// True when it takes nobody any more.
    pub(in crate::store) fn is_full(&self) -> bool {
        self.members.len() >= limits::GROUP_MEMBERS
            || self.written.len() >= limits::GROUP_ENTRIES
            || self.bytes >= limits::GROUP_BYTES
    }

    /// True when this belongs into the group after it.
    pub(in crate::store) fn has_no_room_for(&self, built: &Built) -> bool {
        let entries = self.written.len() + built.written.len();
        let bytes = self.bytes + bytes_of(&built.objects);
        !self.is_empty() && (entries > limits::GROUP_ENTRIES || bytes > limits::GROUP_BYTES)
    }

    /// What a member is told that changed nothing and saw nothing of the group.
    pub(in crate::store) fn unchanged(&self) -> GitView {
        self.pending.clone().map_or(GitView::Shown, GitView::Pending)
    }

    /// Takes what a member built on the present tip.
    pub(in crate::store) fn add(&mut self, built: Box<Built>) -> Vec<Written> {
        self.bytes += bytes_of(&built.objects);
        self.written.extend(&built.written);
        self.place = Place::Within;
        for object in built.objects {
            if !self.places.contains_key(&object.id) {
                self.places.insert(object.id, self.objects.len());
                self.objects.push(object);
            }
        }
        self.tip = built.tip;
        self.evidence = built.evidence;
        // Whoever appends first tells of the recovery.
        self.recovered = None;
        built.written
    }

    /// Where a member will hear what came of the group.
    pub(in crate::store) fn subscribe(&mut self) -> Receiver<Outcome> {
        let (tell, told) = channel();
        self.members.push(tell);
        told
    }

    fn frame(&mut self, writer: &WriterId) -> Frame {
        let mut moves = Vec::new();
        // Evidence first: git never sees an event without its pin.
        if let Some((old, new)) = self.evidence {
            moves.push(Move { name: evidence_ref(writer, self.segment), old, new });
        }
        let name = journal_ref(writer, self.segment);
        let old = match self.first {
            Place::Within => self.base.as_ref().map(|t| t.id),
            Place::First | Place::Continues { .. } => None,
        };
        let new = self.tip.as_ref().map(|t| t.id);
        moves.extend(new.map(|new| Move { name, old, new }));
        let seq = self.next_seq() - 1;
        let entries = u32::try_from(self.written.len()).unwrap_or(u32::MAX);
        let objects = std::mem::take(&mut self.objects);
        Frame { step: Step { seq, entries, moves }, objects }
    }
}

/// What the objects take in a frame, each with its kind and length.
fn bytes_of(objects: &[Object]) -> u64 {
    const BESIDE_BYTES: u64 = 5;
    objects.iter().map(|o| o.data.len() as u64 + BESIDE_BYTES).sum()
}

/// What the members of a group that is over will be told.
pub(in crate::store) struct Answers {
    members: Vec<Sender<Outcome>>,
    outcome: Outcome,
}

impl Answers {
    pub(in crate::store) fn tell(self) {
        let Self { mut members, outcome } = self;
        // The only one gets the error itself.
        let last = members.pop();
        let outcome = match members.as_slice() {
            [] => outcome,
            [..] => {
                let shared = outcome.map_err(Arc::new);
                let copy = || shared.clone().map_err(StoreError::OfGroup);
                members.iter().for_each(|member| told(member, copy()));
                copy()
            }
        };
        if let Some(last) = last {
            told(&last, outcome);
        }
    }
}

/// Waits for what came of the group. Whoever closes it answers, come what may.
pub(in crate::store) fn heard(told: &Receiver<Outcome>) -> Outcome {
    told.recv().unwrap_or(Err(StoreError::Unanswered))
}

fn told(member: &Sender<Outcome>, outcome: Outcome) {
    // Who does not listen any more has unwound.
    let _ = member.send(outcome);
}

impl Store {
    /// Waits for the turn and takes over the open group, or opens one under the journal lock.
    pub(in crate::store) fn group_in_turn(&self) -> Result<(Turn<'_, Group>, Group), StoreError> {
        let until = self.lock_deadline()?;
        let turn = self.turn(until)?;
        let group = match turn.take() {
            Some(group) if self.begins_segment(&group) => {
                // What is sealed here is packed by the one who lets go of the lock.
                let (lock, answers, _sealing) = self.close_group(group);
                answers.tell();
                self.open_group(lock)?
            }
            Some(group) => group,
            None => self.open_group(self.kernel_lock(&turn, until)?)?,
        };
        Ok((turn, group))
    }

    /// Opens a group on the state as it is, mended where that is due.
    fn open_group(&self, lock: KernelLock) -> Result<Group, StoreError> {
        let due = self.recover(&lock, Depth::Due, self.ref_wait_ms)?;
        writer::settle(self, &lock)?;
        let tip = self.readable_tip(&lock)?;
        let tip = writer::require_whole(self, &lock, tip)?;
        self.require_known_format(tip.as_ref())?;
        let (segment, place) = self.next_place(tip.as_ref())?;
        Ok(Group {
            lock,
            pending: due.pending,
            recovered: self.unrecorded()?,
            writer: None,
            base: tip.clone(),
            tip,
            segment,
            first: place,
            place,
            evidence: None,
            objects: Vec::new(),
            places: HashMap::new(),
            written: Vec::new(),
            bytes: 0,
            members: Vec::new(),
        })
    }

    /// True when the next entry begins a segment other than that of the group.
    fn begins_segment(&self, group: &Group) -> bool {
        Segment::of(group.next_seq(), self.segment_events) > group.segment
    }

    pub(in crate::store) fn writer_of(&self, group: &mut Group) -> Result<WriterId, StoreError> {
        if let Some(writer) = &group.writer {
            return Ok(writer.clone());
        }
        let writer = writer::require(self, &group.lock)?;
        group.writer = Some(writer.clone());
        Ok(writer)
    }

    /// The group, or the one after it when these entries do not fit in: what they were built on is durable then.
    pub(in crate::store) fn with_room_for(
        &self,
        mut group: Group,
        built: &Built,
    ) -> Result<Group, StoreError> {
        if !group.has_no_room_for(built) {
            return Ok(group);
        }
        let (writer, tip) = (group.writer.clone(), group.tip.clone());
        let told = group.subscribe();
        let (lock, answers, _sealing) = self.close_group(group);
        answers.tell();
        heard(&told)?;
        let mut next = self.open_group(lock)?;
        if let (Some(writer), true) = (&writer, next.tip != tip) {
            let (expected, actual) = (tip.map(|t| t.id), next.tip.map(|t| t.id));
            let name = journal_ref(writer, next.segment);
            return Err(StoreError::RefMoved { name, expected, actual });
        }
        next.writer = writer;
        Ok(next)
    }

    /// Ends a turn: the next in line goes on with the group, or it is closed here and what is sealed is packed,
    /// while others append.
    ///
    /// # Errors
    /// Packing failed, which concerns no entry.
    pub(in crate::store) fn pass_on(
        &self,
        turn: Turn<'_, Group>,
        group: Group,
    ) -> Result<(), StoreError> {
        let left = if group.is_full() { Err((turn, group)) } else { turn.leave(group) };
        let Err((turn, group)) = left else { return Ok(()) };
        let (lock, answers, sealing) = self.close_group(group);
        drop(lock);
        drop(turn);
        answers.tell();
        self.pack_after(sealing?)
    }

    /// Makes the group durable and shows it to git.
    pub(in crate::store) fn close_group(
        &self,
        mut group: Group,
    ) -> (KernelLock, Answers, Result<Sealing, StoreError>) {
        let done = match group.writer.clone() {
            Some(writer) if !group.is_empty() => self.commit_group(&mut group, &writer),
            Some(_) | None => Ok((group.unchanged(), Ok(Sealing::NotDue))),
        };
        let (outcome, sealing) = match done {
            Ok((git_view, sealing)) => (Ok(git_view), sealing),
            Err(e) => (Err(e), Ok(Sealing::NotDue)),
        };
        (group.lock, Answers { members: group.members, outcome }, sealing)
    }

    fn commit_group(
        &self,
        group: &mut Group,
        writer: &WriterId,
    ) -> Result<(GitView, Result<Sealing, StoreError>), StoreError> {
        self.ensure_wal(writer, group.base.as_ref())?;
        let frame = group.frame(writer);
        crate::store::failpoint::reached("before the frame")?;
        self.push(&frame)?;
        self.note_positions(writer, &group.written);
        if let Some(last) = group.written.last() {
            self.homes.note_seen(writer, &Seen { seq: last.seq, id: last.id });
        }
        Ok(self.after_the_frame(&group.lock, &frame, group.pending.is_some()))
    }
}

thread_local! {
    /// Stores about whose appends this thread decides, by their directory.
    static DECIDING: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
}

/// Marks this thread as one that decides, until dropped.
pub(in crate::store) struct Deciding(());

impl Deciding {
    pub(in crate::store) fn about(store: &Path) -> Self {
        DECIDING.with_borrow_mut(|all| all.push(store.to_owned()));
        Self(())
    }

    /// Refuses what would wait for this very thread.
    pub(in crate::store) fn refuse_again(store: &Path) -> Result<(), StoreError> {
        let inside = DECIDING.with_borrow(|all| all.iter().any(|s| s == store));
        if inside { Err(StoreError::Deciding) } else { Ok(()) }
    }
}

impl Drop for Deciding {
    fn drop(&mut self) {
        DECIDING.with_borrow_mut(Vec::pop);
    }
}

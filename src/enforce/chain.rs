//! What a journal says, as `verify` and `fsck` ask for it.
//!
//! Contract: the first thing that does not fit makes the whole journal worth nothing as evidence; whether it was set back,
//! is gone or belongs to another repository is held against it from outside. How it is read stands in `replay`.

use crate::{
    domain::{
        ack::AckOutcome,
        ids::{PolicyId, WriterId},
        oid::Oid,
        policy::Policy,
        time::Timestamp,
    },
    engine::State,
    store::{End, Gone, reading::Unreadable},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Where a journal says that governance began: the base of its first session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Began {
    /// No session is told of.
    NotYet,
    /// On an unborn branch.
    BeforeTheFirstCommit,
    /// When this commit was checked out.
    At(Oid),
}

/// The first thing in a journal that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// The entry it was found at; none when not even the end of the journal can be told.
    pub(super) at: Option<Oid>,
    pub(super) why: String,
}

impl Broken {
    pub(super) fn at(id: Oid, why: String) -> Self {
        Self { at: Some(id), why }
    }
}

/// What the events of one policy say, and which they are.
#[derive(Debug)]
pub(super) struct Story {
    /// It is told from the beginning; else some of it was in a segment that is not here any more.
    pub(super) whole: bool,
    /// Its first event.
    pub(super) attached: Oid,
    pub(super) passed: Option<Oid>,
    pub(super) ready: Option<Ready>,
    /// Acks consumed for the present request, in order.
    pub(super) acked: Vec<Acked>,
    /// Candidates that were gated again instead of landing, and whether somebody had approved them.
    pub(super) former: Vec<(Oid, bool)>,
    /// The last line that was turned down.
    pub(super) refused: Option<(AckOutcome, String)>,
    /// The event, and the commit it names.
    pub(super) committed: Option<(Oid, Oid)>,
}

/// The `policy:commit-ready` event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) id: Oid,
    pub(super) ack: bool,
    pub(super) candidate: Oid,
}

impl Story {
    /// Gated again: what was said before is about another candidate.
    pub(super) fn begin_again(&mut self) {
        if let Some(ready) = self.ready.take() {
            self.former.push((ready.candidate, !self.acked.is_empty()));
        }
        self.passed = None;
        self.refused = None;
        self.acked.clear();
    }
}

/// A `policy:acked` event.
#[derive(Clone, Debug)]
pub(super) struct Acked {
    pub(super) id: Oid,
    pub(super) at: Timestamp,
}

/// A journal that was read.
pub(super) struct Chain {
    pub(super) writer: WriterId,
    /// None when it cannot be told.
    pub(super) tip: Option<Oid>,
    /// Number of the first event that is here; 1 unless older segments were dropped.
    pub(super) from: u64,
    /// Number of the last event that holds.
    pub(super) events: u64,
    /// The repository it says it belongs to.
    pub(super) repo: Option<String>,
    pub(super) broken: Option<Broken>,
    /// Why it cannot be told whether it was set back: what is here holds all the same.
    pub(super) untold: Option<Broken>,
    pub(super) began: Began,
    pub(super) state: State,
    pub(super) stories: BTreeMap<PolicyId, Story>,
    /// The event that consumed a line first.
    pub(super) consumed: HashMap<String, Oid>,
    /// Gate lines of every attempt.
    pub(super) gate_lines: HashSet<String>,
}

impl Chain {
    pub(super) fn empty(writer: WriterId, tip: Option<Oid>) -> Self {
        Self {
            writer,
            tip,
            from: 1,
            events: 0,
            repo: None,
            broken: None,
            untold: None,
            began: Began::NotYet,
            state: State::default(),
            stories: BTreeMap::new(),
            consumed: HashMap::new(),
            gate_lines: HashSet::new(),
        }
    }

    /// A journal whose end cannot be read: it holds nothing and is nothing worth.
    pub(super) fn unreadable(journal: &Unreadable) -> Self {
        let mut chain = Self::empty(journal.writer.clone(), journal.id);
        let why = format!("{}: {}", journal.name, journal.why);
        chain.broken = Some(Broken { at: journal.id, why });
        chain
    }

    /// A journal that is not here though something tells of it.
    pub(super) fn gone(gone: &Gone) -> Self {
        let mut chain = Self::empty(gone.writer.clone(), None);
        chain.broken = Some(Broken { at: None, why: format!("it is gone: {}", gone.witness) });
        chain
    }

    /// A policy with its story.
    pub(super) fn policy(&self, id: &PolicyId) -> Option<(&Policy, &Story)> {
        Some((self.state.policies.get(id)?, self.stories.get(id)?))
    }

    /// A journal that does not hold its own last event was set back.
    pub(super) fn require_end(&mut self, end: &End) {
        let at = self.tip;
        match end {
            End::Lost(seen) if self.broken.is_none() => {
                let why = format!(
                    "event {} ({}), noted as its last one, is not in it",
                    seen.seq, seen.id
                );
                self.broken = Some(Broken { at, why });
            }
            End::Untold(note) => {
                let why = format!("{note}: whether it was set back cannot be told");
                self.untold = Some(Broken { at, why });
            }
            End::Held | End::Lost(_) => {}
        }
    }

    /// A journal of another repository is broken here.
    pub(super) fn require_repo(&mut self, ours: Option<&str>) {
        if let (Some(ours), Some(theirs), None) = (ours, &self.repo, &self.broken)
            && ours != theirs
        {
            let why = format!("it belongs to repository {theirs}, this one is {ours}");
            self.broken = Some(Broken { at: self.tip, why });
            self.began = Began::NotYet;
        }
    }
}

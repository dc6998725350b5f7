//! Segments: a journal is a row of refs, of which only the newest grows.
//!
//! Contract: the first entry of a segment has no parent and names the last one of the segment before
//! (`Continues`). While the log holds the end of a finished segment, the log proves it; afterwards only the
//! segment after it does. Segments are dropped from the oldest on, so the first one that is missing ends what is
//! kept: whatever refs lie before it belong to nothing.

use crate::domain::{ids::WriterId, oid::Oid};
use crate::store::{
    Store, commit,
    error::StoreError,
    journal::{Place, Tip},
    names::{Segment, chain_parts, evidence_dir, journal_parts},
    object::Kind,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A segment that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Which.
    pub segment: Segment,
    /// Its last entry.
    pub last: Oid,
}

/// A segment that is finished, and what is known of its ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which.
    pub segment: Segment,
    /// Full name of its ref.
    pub name: String,
    /// Its last entry as the segment after it says; none when that one is not here.
    pub last: Option<Oid>,
    /// How the ref stands.
    pub standing: Standing,
}

/// How the ref of a finished segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// At the entry that the segment after it continues.
    Whole,
    /// It is gone or holds no id, and that entry is here: it can be set again.
    Lost,
    /// It is gone, and so is that entry, or it was let go by us.
    Dropped,
    /// At something else.
    Elsewhere {
        /// What it holds.
        actual: Oid,
    },
    /// It is there, and nothing that is here says where it should be.
    Unproven,
}

impl Tip {
    /// Full name of the ref that ends here.
    #[must_use]
    pub fn name(&self) -> String {
        self.name_of(self.segment)
    }

    /// Full name of the ref of a segment of the same journal.
    #[must_use]
    pub fn name_of(&self, segment: Segment) -> String {
        format!("{}{segment}", self.dir)
    }
}

impl Store {
    /// The segment of the next entry, and its place there.
    pub(in crate::store) fn next_place(
        &self,
        tip: Option<&Tip>,
    ) -> Result<(Segment, Place), StoreError> {
        let Some(tip) = tip else { return Ok((Segment::FIRST, Place::First)) };
        let due = Segment::of(tip.seq + 1, self.segment_events);
        if due <= tip.segment {
            return Ok((tip.segment, Place::Within));
        }
        let first = self.first_of(tip)?.id;
        Ok((due, Place::Continues { last: tip.id, first }))
    }

    /// The segments of a journal that are kept, oldest first.
    ///
    /// # Errors
    /// The refs cannot be read.
    pub fn kept_segments(&self, tip: &Tip) -> Result<Vec<Kept>, StoreError> {
        let numbers = self.segments_there(tip)?;
        let mut kept = vec![Kept { segment: tip.segment, last: tip.id }];
        let mut next = tip.segment.before();
        while let Some(segment) = next.filter(|s| numbers.contains(s)) {
            let Some(last) = self.own_value(&tip.name_of(segment))? else { break };
            kept.push(Kept { segment, last });
            next = segment.before();
        }
        kept.reverse();
        Ok(kept)
    }

    /// The oldest segment that is kept, told from names alone.
    pub(in crate::store) fn oldest_kept(&self, tip: &Tip) -> Result<Segment, StoreError> {
        let mut oldest = tip.segment;
        if oldest == Segment::FIRST {
            return Ok(oldest);
        }
        let numbers = self.segments_there(tip)?;
        while let Some(before) = oldest.before().filter(|s| numbers.contains(s)) {
            oldest = before;
        }
        Ok(oldest)
    }

    /// Numbers of the segments that have a ref, or are to have one as the log says.
    fn segments_there(&self, tip: &Tip) -> Result<BTreeSet<Segment>, StoreError> {
        let mut names = self.refs.names(&tip.dir)?;
        let logged = self.with_sound_wal(|wal| {
            Ok(wal.iter().flat_map(|w| w.tips().keys()).cloned().collect::<Vec<_>>())
        })?;
        names.extend(logged);
        let ours = names.iter().filter(|name| name.starts_with(&tip.dir));
        Ok(ours.filter_map(|name| journal_parts(name)).map(|(_, segment)| segment).collect())
    }

    /// What is known of every finished segment of a journal, newest first.
    ///
    /// # Errors
    /// An entry that is needed cannot be read.
    pub fn finished_segments(&self, tip: &Tip) -> Result<Vec<Finished>, StoreError> {
        let there = self.segments_there(tip)?;
        let dropped = self.dropped_through(&tip.writer)?;
        let mut found = Vec::new();
        // The end of the segment whose first entry tells of the one before.
        let mut above = Some(tip.clone());
        let mut next = tip.segment.before();
        while let Some(segment) = next {
            let name = tip.name_of(segment);
            let last = match &above {
                Some(above) => self.first_of(above)?.continues,
                None => None,
            };
            above = self.end_at(tip, segment, last)?;
            let actual = match self.own_value(&name) {
                Ok(actual) => actual.filter(|_| there.contains(&segment)),
                Err(StoreError::BrokenRef { .. }) => None,
                Err(e) => return Err(e),
            };
            let standing = match (last, actual) {
                (Some(last), Some(actual)) if last == actual => Standing::Whole,
                (Some(_), Some(actual)) => Standing::Elsewhere { actual },
                (None, Some(_)) => Standing::Unproven,
                (_, None) if dropped.is_some_and(|d| segment <= d) => Standing::Dropped,
                (_, None) if above.is_some() => Standing::Lost,
                (_, None) => Standing::Dropped,
            };
            found.push(Finished { segment, name, last, standing });
            next = segment.before();
        }
        Ok(found)
    }

    /// The end of an older segment; none when its last entry is not here.
    fn end_at(
        &self,
        tip: &Tip,
        segment: Segment,
        last: Option<Oid>,
    ) -> Result<Option<Tip>, StoreError> {
        let Some(id) = last else { return Ok(None) };
        if self.find_object(&id)?.is_none() {
            return Ok(None);
        }
        let entry = self.entry(&id)?;
        let (seq, tree) = (entry.seq, entry.tree);
        Ok(Some(Tip { segment, seq, id, tree, ..tip.clone() }))
    }

    /// What the log has to go on proving. A finished segment leaves it when its ref shows its end for good: from
    /// then on the segment after it proves it, and it may be dropped.
    pub(in crate::store) fn without_finished(
        &self,
        tips: BTreeMap<String, Oid>,
    ) -> Result<BTreeMap<String, Oid>, StoreError> {
        let newest = tips.keys().filter_map(|n| journal_parts(n)).max_by_key(|(_, s)| *s);
        let Some((writer, newest)) = newest else { return Ok(tips) };
        let mut kept = BTreeMap::new();
        for (name, tip) in tips {
            let finished = chain_parts(&name).is_some_and(|(w, s)| w == writer && s < newest);
            if finished && self.refs.read_sound(&name)? == Some(tip) {
                self.refs.sync(&name)?;
            } else {
                kept.insert(name, tip);
            }
        }
        Ok(kept)
    }

    /// Every commit that the evidence of a writer of this clone keeps alive.
    ///
    /// # Errors
    /// The refs or a pin cannot be read.
    pub fn pinned(&self, writer: &WriterId) -> Result<HashSet<Oid>, StoreError> {
        let mut pinned = HashSet::new();
        // The first pin of a segment has the pinned commit alone for a parent, so each chain ends in its segment.
        for tip in self.evidence_tips(writer)? {
            let mut next = Some(tip);
            while let Some(id) = next {
                let pin = self.require(&id, Kind::Commit)?;
                let parents = commit::parse(self.hash, &pin).map(|c| c.parents);
                let parents = parents.ok_or_else(|| StoreError::WrongObject {
                    id,
                    expected: "pin",
                    reason: "it is malformed".to_owned(),
                })?;
                // The pinned commit is the last parent, the pin before the first of two.
                pinned.extend(parents.last().copied());
                next = parents.first().copied().filter(|_| parents.len() > 1);
            }
        }
        Ok(pinned)
    }
    /// The ends of the chains that keep alive what the events of a writer of this clone name, oldest first; the log may
    /// know of one that has no ref any more.
    pub(in crate::store) fn evidence_tips(
        &self,
        writer: &WriterId,
    ) -> Result<Vec<Oid>, StoreError> {
        let dir = evidence_dir(writer);
        let logged = self.with_sound_wal(|wal| {
            Ok(wal.map(|wal| wal.tips().keys().cloned().collect::<Vec<_>>()).unwrap_or_default())
        })?;
        let mut names: BTreeSet<String> = self.refs.names(&dir)?.into_iter().collect();
        names.extend(logged.into_iter().filter(|name| name.starts_with(&dir)));
        let mut tips = Vec::new();
        for name in names.iter().filter(|name| chain_parts(name).is_some()) {
            tips.extend(self.own_value(name)?);
        }
        Ok(tips)
    }
}

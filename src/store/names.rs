//! Names of our refs, files and directories: the only place that spells them.

use crate::domain::ids::WriterId;
use std::fmt;

/// Notes for people: one line per gate result, on the gated commit.
pub const NOTES_GATES: &str = "refs/notes/agentproto/gates";
/// Notes for people: one line per ack, on the acked commit.
pub const NOTES_ACKS: &str = "refs/notes/agentproto/acks";

/// Journals written in this clone.
pub(super) const JOURNALS: &str = "refs/agentproto/journal/";
/// What was fetched from other clones.
pub(super) const REMOTES: &str = "refs/agentproto/remotes/";
/// Pins of writers.
pub(super) const EVIDENCE: &str = "refs/agentproto/evidence/";

/// Candidates offered to other clones.
const REQUESTS: &str = "refs/agentproto/requests/";
/// Work saved before a worktree is removed.
const SALVAGE: &str = "refs/agentproto/salvage/";
/// Where notes are kept that could not be read as a whole.
pub(super) const NOTES_ASIDE: &str = "refs/notes/agentproto/damaged/";

/// Our directory below the common git directory.
pub(super) const AGENT_DIR: &str = "agentproto";
/// What our temporary files in `agentproto/tmp` start with; whoever holds the kernel lock may remove them.
pub(super) const TMP_PREFIX: &str = "tmp_";
/// What our ref lock files in `agentproto` start with (storage L).
pub(super) const REF_TMP_PREFIX: &str = "ref.";

/// Number of a segment, from 1 on: the last part of the name of its ref.
///
/// A journal and its evidence chain begin a new ref now and then, so that what is finished stays as it is. A batch
/// belongs to segment `(number of its first event - 1) / events per segment + 1` and is never split, so a segment
/// may run over by the rest of its last batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment(u64);

impl Segment {
    /// Where every journal begins.
    pub const FIRST: Self = Self(1);

    /// The segment that a batch belongs to whose first event has this number.
    #[must_use]
    pub fn of(first_seq: u64, segment_events: u64) -> Self {
        Self(first_seq.saturating_sub(1) / segment_events.max(1) + 1)
    }

    /// The one before; none before the first.
    #[must_use]
    pub fn before(self) -> Option<Self> {
        (self.0 > 1).then(|| Self(self.0 - 1))
    }

    /// The lowest number its first event can have.
    #[must_use]
    pub fn first_seq(self, segment_events: u64) -> u64 {
        (self.0 - 1).saturating_mul(segment_events).saturating_add(1)
    }

    /// Reads the last part of a ref's name, in the one way it is written.
    fn parse(text: &str) -> Option<Self> {
        let number = text.parse().ok().filter(|n| *n > 0).map(Self)?;
        (number.to_string() == text).then_some(number)
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}", self.0)
    }
}

/// A segment of the journal of a writer, in this clone's own namespace.
#[must_use]
pub fn journal_ref(writer: &WriterId, segment: Segment) -> String {
    format!("{JOURNALS}{writer}/{segment}")
}

/// Where the segments of the journal of a writer lie, in this clone's own namespace.
pub(super) fn journal_dir(writer: &WriterId) -> String {
    format!("{JOURNALS}{writer}/")
}

/// The chain that keeps alive what a writer's events of one segment name.
#[must_use]
pub fn evidence_ref(writer: &WriterId, segment: Segment) -> String {
    format!("{EVIDENCE}{writer}/{segment}")
}

/// Where the evidence chains of a writer lie.
pub(super) fn evidence_dir(writer: &WriterId) -> String {
    format!("{EVIDENCE}{writer}/")
}

/// The writer a journal ref belongs to, own or fetched; none for any other ref.
#[must_use]
pub fn journal_writer(full_name: &str) -> Option<WriterId> {
    journal_parts(full_name).map(|(writer, _)| writer)
}

/// Writer and segment of a journal ref, own or fetched; none for any other ref.
#[must_use]
pub fn journal_parts(full_name: &str) -> Option<(WriterId, Segment)> {
    let own = full_name.strip_prefix(JOURNALS);
    let fetched = || full_name.strip_prefix(REMOTES)?.split_once("/journal/").map(|(_, rest)| rest);
    parts(own.or_else(fetched)?)
}

/// Writer and segment of one of our chains: journal or evidence, of this clone's own namespace.
pub(super) fn chain_parts(full_name: &str) -> Option<(WriterId, Segment)> {
    parts(full_name.strip_prefix(JOURNALS).or_else(|| full_name.strip_prefix(EVIDENCE))?)
}

/// The namespaces of ours.
pub(super) const OURS: [&str; 2] = ["refs/agentproto/", "refs/notes/agentproto/"];

/// What belongs at a name in a namespace of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Belongs {
    /// Refs below it.
    Directory,
    /// A ref of ours.
    Ref,
    /// Either.
    Either,
}

impl Belongs {
    /// By the full name, without a slash at its end.
    pub(super) fn at(full_name: &str) -> Self {
        if chain_parts(full_name).is_some() || [NOTES_GATES, NOTES_ACKS].contains(&full_name) {
            return Self::Ref;
        }
        let dir = format!("{full_name}/");
        let chain = [JOURNALS, EVIDENCE].iter().find_map(|chains| dir.strip_prefix(chains));
        let of_writer = chain
            .and_then(|rest| rest.strip_suffix('/'))
            .is_some_and(|w| w.parse::<WriterId>().is_ok());
        let above = OURS.iter().chain(&[JOURNALS, EVIDENCE]).any(|known| dir == **known);
        if of_writer || above { Self::Directory } else { Self::Either }
    }
}

/// True for the names of refs that this program makes or fetches, or that a later version of it makes.
pub(super) fn is_known(full_name: &str) -> bool {
    let later = [REQUESTS, SALVAGE];
    journal_parts(full_name).is_some()
        || chain_parts(full_name).is_some()
        || later.iter().any(|dir| full_name.starts_with(dir))
}

fn parts(rest: &str) -> Option<(WriterId, Segment)> {
    let (writer, segment) = rest.split_once('/')?;
    Some((writer.parse().ok()?, Segment::parse(segment)?))
}

/// What `git fetch REMOTE` takes to bring the journals of others to where they are looked for, never over our own.
#[must_use]
pub fn fetch_spec(remote: &str) -> String {
    format!("{JOURNALS}*:{REMOTES}{remote}/journal/*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_ref_names_its_writer_and_segment() {
        let writer: WriterId = "0123456789ab".parse().unwrap();
        for number in [1, 2, 9_999, 10_000] {
            let segment = Segment(number);
            let parts = Some((writer.clone(), segment));
            assert_eq!(journal_parts(&journal_ref(&writer, segment)), parts);
            assert_eq!(chain_parts(&evidence_ref(&writer, segment)), parts);
            let fetched = format!("refs/agentproto/remotes/origin/journal/{writer}/{segment}");
            assert_eq!((journal_parts(&fetched), chain_parts(&fetched)), (parts, None));
        }
        assert_eq!(journal_writer(&evidence_ref(&writer, Segment::FIRST)), None);
        for last in ["1", "00001", "0000", "+001", "0001/x", "", "18446744073709551616"] {
            assert_eq!(journal_writer(&format!("{JOURNALS}{writer}/{last}")), None, "{last}");
        }
    }

    #[test]
    fn a_batch_belongs_where_its_first_event_does() {
        let of = |seq| Segment::of(seq, 8).0;
        assert_eq!([1, 8, 9, 16, 17].map(of), [1, 1, 2, 2, 3]);
        assert_eq!(Segment(3).first_seq(8), 17);
        assert_eq!(Segment::of(Segment(3).first_seq(8), 8), Segment(3));
        assert_eq!((Segment(2).before(), Segment::FIRST.before()), (Some(Segment::FIRST), None));
    }
}

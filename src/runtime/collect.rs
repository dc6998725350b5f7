//! `gc`: what the log holds into packs, few packs, and away with what is old or belongs to the dead.
//!
//! Contract: a segment goes whole, from the oldest on, when its last event is older than a person set and nothing open has
//! an event in it; the newest stays. Each step can be interrupted and done again. Git's own `gc` is never run: objects
//! that nothing keeps any more are git's to remove, when it likes. A dry run writes nothing.

use super::{
    gate::log::{self, LogError},
    live::{self, LiveError},
    output,
};
use crate::{
    code::Code,
    domain::{event::Entity, time::Timestamp},
    ledger::{Ledger, LedgerError, NeededBy, Retention},
    limits,
    store::{
        Segment, StoreError, Tip,
        retention::{Footprint, SegmentEnd},
    },
    sys::{clock, files},
};
use std::path::PathBuf;

/// Why a segment stays that is old enough to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stays {
    /// Something open has an event in it, or in one before it.
    Needed(Entity),
    /// The log still proves its end; the next time it may go.
    InTheLog,
}

/// What was done, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Events that were kept before, and after.
    pub events: (u64, u64),
    /// Segments before, and after.
    pub segments: (u64, u64),
    /// What lay on the disk before, and after.
    pub footprint: (Footprint, Footprint),
    /// Names of the refs that went.
    pub refs: Vec<String>,
    /// The oldest segment that is old enough and stays, and why.
    pub stays: Option<(Segment, Stays)>,
    /// Kept outputs that went: of gates a file each, of agents a session each.
    pub logs: u64,
    /// Packs that git's repack may have from now on.
    pub packs_released: u64,
    /// Runs of dead processes that were cleared away.
    pub runs: u64,
    /// What killed processes left in `agentproto/tmp` and was removed.
    pub leftovers: u64,
}

/// It could not be done to its end.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Journal or settings.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Packs and refs.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Logs of gate output.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Runs of dead processes.
    #[error(transparent)]
    Live(#[from] LiveError),
}

impl CollectError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Ledger(e) => e.code(),
            Self::Store(e) => e.code(),
            Self::Log(e) => e.code(),
            Self::Live(e) => e.code(),
        }
    }
}

/// How much of the journal there is.
struct Extent {
    first: u64,
    last: u64,
    ends: Vec<SegmentEnd>,
}

impl Extent {
    fn load(ledger: &Ledger, tip: Option<&Tip>) -> Result<Self, StoreError> {
        let Some(tip) = tip else { return Ok(Self { first: 1, last: 0, ends: Vec::new() }) };
        let store = ledger.store();
        Ok(Self { first: store.first_kept(tip)?, last: tip.seq, ends: store.segment_ends(tip)? })
    }

    fn events(&self) -> u64 {
        (self.last + 1).saturating_sub(self.first)
    }

    fn segments(&self) -> u64 {
        self.ends.len() as u64
    }
}

/// Which segments go.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    through: Option<Segment>,
    stays: Option<(Segment, Stays)>,
}

/// From the oldest on: those that are finished before `limit` and before the first event that is needed. `ends`
/// holds the newest one last.
fn plan(ends: &[SegmentEnd], limit: Timestamp, needed: Option<&NeededBy>) -> Plan {
    let mut plan = Plan { through: None, stays: None };
    let finished = ends.split_last().map_or(&[][..], |(_, finished)| finished);
    for end in finished.iter().take_while(|end| end.at < limit) {
        if let Some(needed) = needed.filter(|needed| needed.seq <= end.seq) {
            plan.stays = Some((end.segment, Stays::Needed(needed.entity.clone())));
            break;
        }
        plan.through = Some(end.segment);
    }
    plan
}

/// Says what would be done, and does none of it.
///
/// # Errors
/// Journal, settings or files cannot be read.
pub fn preview(ledger: &Ledger) -> Result<Collected, CollectError> {
    let retention = ledger.retention()?;
    let (store, agent) = (ledger.store(), ledger.store().location().agent_dir());
    let tip = store.own_tip()?;
    let extent = Extent::load(ledger, tip.as_ref())?;
    let plan = planned(ledger, &extent, retention)?;
    let refs = match (plan.through, &tip) {
        (Some(through), Some(tip)) => store.refs_through(tip, through)?,
        (None, _) | (_, None) => Vec::new(),
    };
    let goes = |end: &&SegmentEnd| plan.through.is_some_and(|through| end.segment <= through);
    let last_gone = extent.ends.iter().filter(goes).map(|end| end.seq).next_back();
    let kept = last_gone.map_or(extent.events(), |gone| extent.last.saturating_sub(gone));
    let segments = extent.segments();
    let gone = extent.ends.iter().filter(goes).count() as u64;
    let footprint = store.footprint()?;
    Ok(Collected {
        events: (extent.events(), kept),
        segments: (segments, segments - gone),
        footprint: (footprint, footprint),
        refs,
        stays: plan.stays,
        logs: (log::old_logs(&agent, retention.logs_ms)?.len()
            + old_outputs(ledger, retention.logs_ms)?.len()) as u64,
        packs_released: store.stale_orphan_packs(clock::now())?.len() as u64,
        runs: live::abandoned(&agent)?.len() as u64,
        leftovers: ledger.leftovers()?.len() as u64,
    })
}

/// Does it.
///
/// # Errors
/// A step fails; what was done before it stays done.
pub fn collect(ledger: &Ledger) -> Result<Collected, CollectError> {
    let retention = ledger.retention()?;
    let (store, agent) = (ledger.store(), ledger.store().location().agent_dir());
    let before = Extent::load(ledger, store.own_tip()?.as_ref())?;
    let footprint = store.footprint()?;
    let mut runs = 0;
    for effect in live::abandoned(&agent)? {
        runs += u64::from(live::clear_abandoned(&agent, &effect)?);
    }
    store.checkpoint()?;
    let mut plan = planned(ledger, &before, retention)?;
    let mut refs = store.finish_dropping()?;
    if let Some(through) = plan.through {
        let gone = store.drop_segments(through)?;
        if gone.is_empty() {
            plan.stays = before.ends.first().map(|end| (end.segment, Stays::InTheLog));
        }
        refs.extend(gone);
    }
    let packs_released = store.release_stale_packs(clock::now(), limits::PACK_STALE_MS)?;
    let after = Extent::load(ledger, store.own_tip()?.as_ref())?;
    Ok(Collected {
        events: (before.events(), after.events()),
        segments: (before.segments(), after.segments()),
        footprint: (footprint, store.footprint()?),
        refs,
        stays: plan.stays,
        logs: log::remove_old_logs(&agent, retention.logs_ms)? + remove_outputs(ledger, retention)?,
        packs_released: packs_released.len() as u64,
        runs,
        leftovers: ledger.clear_leftovers(),
    })
}

/// Output of agents whose session is over.
fn old_outputs(ledger: &Ledger, keep_ms: u64) -> Result<Vec<PathBuf>, CollectError> {
    let is_over = |name: &str| {
        let session = name.parse().ok().and_then(|id| ledger.session(&id).ok().flatten());
        session.is_some_and(|session| session.is_exited())
    };
    let agent = ledger.store().location().agent_dir();
    let old = output::old(&agent, keep_ms, is_over);
    Ok(old.map_err(|e| LogError::File { path: e.path, source: e.source })?)
}

fn remove_outputs(ledger: &Ledger, kept: Retention) -> Result<u64, CollectError> {
    let old = old_outputs(ledger, kept.logs_ms)?;
    Ok(old.iter().filter(|dir| files::remove_tree(dir).is_ok()).count() as u64)
}

fn planned(ledger: &Ledger, extent: &Extent, kept: Retention) -> Result<Plan, LedgerError> {
    let Some(age_ms) = kept.events_ms.filter(|_| extent.ends.len() > 1) else {
        return Ok(Plan { through: None, stays: None });
    };
    let needed = ledger.first_needed()?;
    let age_ms = i64::try_from(age_ms).unwrap_or(i64::MAX);
    Ok(plan(&extent.ends, clock::now().plus_ms(age_ms.saturating_neg()), needed.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of segments of ten events each, a second apart, the newest unfinished.
    fn ends(count: u64) -> Vec<SegmentEnd> {
        let end = |n: u64| SegmentEnd {
            segment: Segment::of(n * 10, 10),
            name: format!("refs/x/{n:04}"),
            seq: n * 10,
            at: Timestamp::from_ms(i64::try_from(n).unwrap() * 1000),
        };
        (1..=count).map(end).collect()
    }

    fn check(limit_ms: i64, needed: Option<u64>, through: Option<u64>, stays: Option<u64>) {
        let entity = Entity::Policy(format!("pol_{}", "0".repeat(26)).parse().unwrap());
        let needed = needed.map(|seq| NeededBy { seq, entity: entity.clone() });
        let found = plan(&ends(4), Timestamp::from_ms(limit_ms), needed.as_ref());
        let segment = |n: u64| Segment::of(n * 10, 10);
        let stays = stays.map(|n| (segment(n), Stays::Needed(entity)));
        assert_eq!(found, Plan { through: through.map(segment), stays }, "{limit_ms} {needed:?}");
    }

    #[test]
    fn segments_go_from_the_oldest_on_and_the_newest_stays() {
        check(0, None, None, None);
        check(1000, None, None, None);
        check(1001, None, Some(1), None);
        check(2500, None, Some(2), None);
        check(99_000, None, Some(3), None);
    }

    #[test]
    fn what_is_open_keeps_everything_from_its_first_event_on() {
        check(99_000, Some(1), None, Some(1));
        check(99_000, Some(10), None, Some(1));
        check(99_000, Some(11), Some(1), Some(2));
        check(99_000, Some(31), Some(3), None);
        check(1001, Some(15), Some(1), None);
    }
}

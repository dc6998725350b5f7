//! What a suite is asked for and what it answers.

use crate::scribe::Outcome;

/// Problems of one suite that are printed; the rest is counted.
pub(crate) const SHOWN: usize = 20;
const SEED: u64 = 0x5eed_a9e2_7050_1e57;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// A few of everything: part of the ordinary tests.
    Brief,
    /// Every check of the whole project.
    Short,
    /// A night.
    Long,
}

/// What all suites are given.
pub(crate) struct Cx {
    pub(crate) floor: Floor,
    pub(crate) seed: u64,
}

impl Cx {
    /// As the tester's environment says.
    pub(crate) fn read() -> Outcome<Self> {
        let floor = match std::env::var("AGENTPROTO_FLOOR").as_deref() {
            Err(_) | Ok("") => Floor::Brief,
            Ok("short") => Floor::Short,
            Ok("long") => Floor::Long,
            Ok(other) => return Err(format!("AGENTPROTO_FLOOR={other}: short or long").into()),
        };
        let seed = match std::env::var("AGENTPROTO_SEED") {
            Ok(text) => u64::from_str_radix(text.trim_start_matches("0x"), 16)?,
            Err(_) => SEED,
        };
        Ok(Self { floor, seed })
    }

    /// The number for this floor.
    pub(crate) fn pick(&self, brief: u64, short: u64, long: u64) -> u64 {
        match self.floor {
            Floor::Brief => brief,
            Floor::Short => short,
            Floor::Long => long,
        }
    }
}

/// What a suite found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    counts: Vec<(&'static str, u64)>,
    pub(crate) problems: Vec<String>,
    pub(crate) skipped: Option<String>,
}

impl Report {
    /// It could not run, and why.
    pub(crate) fn skipped(why: impl Into<String>) -> Self {
        Self { skipped: Some(why.into()), ..Self::default() }
    }

    /// Adds to a total.
    pub(crate) fn count(&mut self, what: &'static str, more: u64) {
        match self.counts.iter_mut().find(|(name, _)| *name == what) {
            Some((_, total)) => *total += more,
            None => self.counts.push((what, more)),
        }
    }

    /// Takes over what another part of the suite found.
    pub(crate) fn add(&mut self, other: Self) {
        other.counts.into_iter().for_each(|(what, more)| self.count(what, more));
        self.problems.extend(other.problems);
    }

    /// A total.
    pub(crate) fn total(&self, what: &str) -> u64 {
        self.counts.iter().find(|(name, _)| *name == what).map_or(0, |(_, total)| *total)
    }

    /// Fails the suite when a total stayed below this.
    pub(crate) fn require(&mut self, what: &'static str, least: u64) {
        let found = self.total(what);
        if found < least {
            self.problems.push(format!("below the floor: {what} {found}, at least {least}"));
        }
    }

    /// Takes a problem, saying where it was.
    pub(crate) fn problem(&mut self, place: &str, what: &str) {
        self.problems.push(if place.is_empty() {
            what.to_owned()
        } else {
            format!("{what} (at {place})")
        });
    }

    /// All totals in one line.
    pub(crate) fn totals(&self) -> String {
        let each = self.counts.iter().map(|(name, total)| format!("{name} {total}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

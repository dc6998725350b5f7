//! How long things are kept: what a person set, and what is still needed whatever was set.
//!
//! Contract: how long is set in system or global scope or in the per-repository user settings, never by the repository.
//! Nothing set keeps every event for ever. Whatever the age, everything from the first event of an open session or policy
//! on is needed: its history has to be provable until it is over.

use super::{Ledger, LedgerError, gates::settings_error};
use crate::{
    domain::{event::Entity, time::parse_duration_ms},
    limits,
    store::settings::{RepoSettings, SettingsError, protected},
};

/// How long events are kept.
const EVENTS_KEY: &str = "agentproto.retention";
/// How long the output of gates is kept.
const LOGS_KEY: &str = "agentproto.logRetention";

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Age at which a segment of the journal may go, milliseconds; none = never.
    pub events_ms: Option<u64>,
    /// Age at which kept output of gates goes, milliseconds.
    pub logs_ms: u64,
}

/// The first event that is still needed, and for what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededBy {
    /// Its number.
    pub seq: u64,
    /// What is open since then.
    pub entity: Entity,
}

impl Ledger {
    /// What is set here.
    ///
    /// # Errors
    /// The settings cannot be read, or one is no duration.
    pub fn retention(&self) -> Result<Retention, LedgerError> {
        let repo = self.repo()?;
        let settings = RepoSettings::load(&self.env, self.repo_id()?).map_err(settings_error)?;
        let read = |key: &'static str| -> Result<Option<u64>, LedgerError> {
            let text = protected(&repo, &settings, key).map_err(settings_error)?;
            text.map(|text| duration_ms(key, text)).transpose().map_err(settings_error)
        };
        let logs_ms = read(LOGS_KEY)?.unwrap_or(limits::LOG_RETENTION_MS);
        Ok(Retention { events_ms: read(EVENTS_KEY)?, logs_ms })
    }

    /// The first event that an open session or policy needs; none when nothing is open.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn first_needed(&self) -> Result<Option<NeededBy>, LedgerError> {
        let state = self.open_state()?;
        let sessions =
            state.sessions.values().map(|s| (Entity::Session(s.session_id.clone()), s.last));
        let policies =
            state.policies.values().map(|p| (Entity::Policy(p.policy_id.clone()), p.last));
        let mut first: Option<NeededBy> = None;
        for (entity, last) in sessions.chain(policies) {
            let seq = self.first_event(last)?;
            if first.as_ref().is_none_or(|f| seq < f.seq) {
                first = Some(NeededBy { seq, entity });
            }
        }
        Ok(first)
    }

    /// The first event of the entity whose last one this is, as far as it is kept.
    fn first_event(&self, last: u64) -> Result<u64, LedgerError> {
        let mut seq = last;
        while let Some(prev) = self.at_seq(seq)?.and_then(|seen| seen.message.prev) {
            seq = prev;
        }
        Ok(seq)
    }
}

fn duration_ms(key: &str, text: String) -> Result<u64, SettingsError> {
    let why = "not a duration such as 90d";
    parse_duration_ms(&text).map_err(|_| SettingsError::Value {
        key: key.to_owned(),
        value: text,
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::{
            input::{Input, Report},
            session::{EndReason, Exit, Loose},
        },
        ledger::lab::Lab,
    };

    #[test]
    fn the_first_event_of_what_is_open_is_needed_however_long_it_goes_on() {
        let lab = Lab::new();
        let ledger = lab.ledger();
        assert_eq!(ledger.first_needed().unwrap(), None);
        let first = lab.session(&ledger);
        let second = lab.session(&ledger);
        let report = |session: &crate::domain::ids::SessionId, report| {
            ledger.record(Input::Reported { session: session.clone(), report, key: None }).unwrap();
        };
        // The last events stand in another order than the first ones.
        report(&second, Report::TurnStart { turn: None });
        report(&first, Report::TurnStart { turn: None });
        let needed = |seq, entity| Some(NeededBy { seq, entity });
        let expected = needed(1, Entity::Session(first.clone()));
        assert_eq!(ledger.first_needed().unwrap(), expected);
        report(
            &first,
            Report::TurnEnd { turn: None, reason: EndReason::Completed, loose: Loose::default() },
        );
        report(&first, Report::Exited { exit: Exit::Code(0) });
        assert_eq!(ledger.first_needed().unwrap(), needed(2, Entity::Session(second.clone())));
        report(&second, Report::Exited { exit: Exit::Code(0) });
        assert_eq!(ledger.first_needed().unwrap(), None);
    }
}

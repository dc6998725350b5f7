//! Recording: decide under the lock, step, write.

use super::{
    Ledger, LedgerError,
    load::{self, Loaded},
};
use crate::{
    code::Code,
    domain::{
        event::{Entity, Event, Recorded},
        input::Input,
        oid::Oid,
        time::Timestamp,
    },
    engine::{Decision, ENGINE, Effect, Now, State, decide, step},
    store::{AppendError, Batch, Entry, NewEntry, Place, Snapshot, Stamp, expand::LeftOut},
    wire::message::{self, Beside, Mended},
};

/// What was recorded.
#[derive(Debug)]
pub struct Recording {
    /// The events, in order, with the ids of their journal commits: the cursors.
    pub events: Vec<(Recorded, Oid)>,
    /// Set when nothing was recorded, because this event number recorded it before.
    pub already: Option<u64>,
    /// What the world is asked to do now.
    pub effects: Vec<Effect>,
    /// The entities touched, as they are now.
    pub state: State,
    /// Repositories that no part of a directory's list stands for; of an attach with `--recursive` alone.
    pub left_out: Vec<LeftOut>,
}

/// What is true at the instant of deciding, under the lock.
pub struct View<'a> {
    /// The entities loaded.
    pub state: &'a State,
    /// The journal as it is.
    pub snapshot: &'a Snapshot<'a>,
}

impl Ledger {
    /// Decides and records an input.
    ///
    /// # Errors
    /// A refusal, or a store that cannot be written; nothing was recorded then.
    pub fn record(&self, input: Input) -> Result<Recording, LedgerError> {
        let touches = touches(&input);
        self.record_with(&touches, vec![], |_| Ok(input))
    }

    /// Records an input that can only be told under the lock. `pins` are commits the events name: they are kept
    /// alive by the evidence chain from the same instant on.
    ///
    /// # Errors
    /// As [`Ledger::record`]; also what `make` returns.
    pub fn record_with(
        &self,
        touches: &[Entity],
        pins: Vec<Oid>,
        make: impl FnOnce(&View<'_>) -> Result<Input, LedgerError>,
    ) -> Result<Recording, LedgerError> {
        let _step = crate::sys::trace::step(|| "record: wait for the lock, decide, append");
        let stamp = self.stamp()?;
        require_time(stamp.at)?;
        let mut made = None;
        let appended = self.store.append(&stamp, |snapshot| {
            require_known_engine(snapshot)?;
            let read = |path: &str| snapshot.document(path).map_err(LedgerError::from);
            let loaded = load::load(touches, &read)?;
            let input = make(&View { state: &loaded.state, snapshot })?;
            let now = Now { at: stamp.at, next_seq: snapshot.next_seq };
            let events = match decide(&loaded.state, input, now)? {
                Decision::Append(events) => events,
                Decision::Already(seq) => {
                    made = Some(Made::already(loaded.state, seq));
                    return Ok(Batch { entries: vec![], pins: vec![] });
                }
            };
            let (batch, done) = self.build(&loaded, events, snapshot, &stamp)?;
            made = Some(done);
            Ok::<_, LedgerError>(Batch { entries: batch, pins })
        });
        let appended = appended.map_err(|e| match e {
            AppendError::Decide(e) => e,
            AppendError::Store(e) => LedgerError::Store(e),
        })?;
        let made = made.ok_or_else(|| LedgerError::Corrupt("nothing was decided".into()))?;
        let ids = appended.written.iter().map(|w| w.id);
        Ok(Recording {
            events: made.events.into_iter().zip(ids).collect(),
            already: made.already,
            effects: made.effects,
            state: made.state,
            left_out: vec![],
        })
    }

    /// The repository that the first entry of a segment names.
    fn repo_named_by(&self, first: &Oid) -> Result<String, LedgerError> {
        let message = said_by(&self.store.entry(first)?)?;
        message.repo.ok_or_else(|| {
            LedgerError::Corrupt(format!("entry {first} begins a segment and names no repository"))
        })
    }

    /// Steps every event and writes down what it changed.
    fn build(
        &self,
        loaded: &Loaded,
        events: Vec<Event>,
        snapshot: &Snapshot<'_>,
        stamp: &Stamp,
    ) -> Result<(Vec<NewEntry>, Made), LedgerError> {
        let mut made = Made { state: loaded.state.clone(), ..Made::default() };
        let (mut repo, mut continues) = match snapshot.place {
            Place::Within => (None, None),
            Place::First => (Some(self.repo_id()?.to_string()), None),
            // The journal stays that of one repository, whatever became of the trusted ref since.
            Place::Continues { last, first } => (Some(self.repo_named_by(&first)?), Some(last)),
        };
        let mut entries = Vec::new();
        let first = snapshot.next_seq;
        let mut mended = snapshot
            .recovered
            .as_ref()
            .map(|r| Mended { objects: r.objects, refs: r.refs.clone() });
        for (seq, event) in (first..).zip(events) {
            let recorded = Recorded {
                seq,
                at: stamp.at,
                actor: self.actor.clone(),
                prev: last_of(&made.state, &event.subject),
                engine: ENGINE,
                event,
            };
            let stepped = step(&made.state, &recorded)?;
            let mut edits = Vec::new();
            for entity in &stepped.touched {
                edits.extend(loaded.edits(&stepped.state, entity)?);
            }
            let (repo, mended) = (repo.take(), mended.take());
            let continues = continues.take();
            let beside = Beside { repo: repo.as_deref(), continues, mended: mended.as_ref() };
            let message = message::encode(&recorded, beside).map_err(LedgerError::Unwritable)?;
            entries.push(NewEntry { message, edits });
            made.state = stepped.state;
            made.effects.extend(stepped.effects);
            made.events.push(recorded);
        }
        Ok((entries, made))
    }
}

/// What an entry says.
fn said_by(entry: &Entry) -> Result<message::Message, LedgerError> {
    message::decode(&entry.message).map_err(|source| LedgerError::Message { id: entry.id, source })
}

/// A journal that a newer state machine has written is read, but never continued by this one.
fn require_known_engine(snapshot: &Snapshot<'_>) -> Result<(), LedgerError> {
    let Some(last) = snapshot.last_entry()? else { return Ok(()) };
    let message = said_by(&last)?;
    if message.engine <= ENGINE {
        return Ok(());
    }
    let because = format!(
        "event {} was recorded by state machine {}, this version knows {ENGINE}",
        last.seq, message.engine
    );
    Err(LedgerError::refused(Code::NewerFormat, "the journal", because))
}

#[derive(Default)]
struct Made {
    events: Vec<Recorded>,
    already: Option<u64>,
    effects: Vec<Effect>,
    state: State,
}

impl Made {
    fn already(state: State, seq: u64) -> Self {
        Self { already: Some(seq), state, ..Self::default() }
    }
}

/// What is appended has to be readable: a clock beyond what can be written down is refused.
fn require_time(at: Timestamp) -> Result<(), LedgerError> {
    match at.to_string().parse::<Timestamp>() {
        Ok(_) => Ok(()),
        Err(_) => {
            let because = format!("the clock says {at}, which no event can be dated with");
            Err(LedgerError::refused(Code::BadTime, "the clock", because))
        }
    }
}

fn last_of(state: &State, entity: &Entity) -> Option<u64> {
    match entity {
        Entity::Session(id) => state.sessions.get(id).map(|s| s.last),
        Entity::Policy(id) => state.policies.get(id).map(|p| p.last),
    }
}

/// The entities an input names.
fn touches(input: &Input) -> Vec<Entity> {
    match input {
        Input::SessionAdopted { .. }
        | Input::SessionLaunched { .. }
        | Input::CommitAsked { .. } => vec![],
        Input::Reported { session, .. }
        | Input::TurnBegun { session }
        | Input::RunEnded { session, .. }
        | Input::PromptAsked { session, .. }
        | Input::StopAsked { session, .. } => vec![Entity::Session(session.clone())],
        Input::PolicyAsked { spec, .. } => {
            let before = spec.again.iter().map(|again| Entity::Policy(again.of.clone()));
            spec.session_ids.iter().cloned().map(Entity::Session).chain(before).collect()
        }
        Input::PolicyAdopted { policy, adopted } => {
            let sessions = adopted.spec.session_ids.iter().cloned().map(Entity::Session);
            sessions.chain([Entity::Policy(policy.clone())]).collect()
        }
        Input::GatesEnded { policy, .. }
        | Input::NoSlot { policy, .. }
        | Input::SlotFree { policy }
        | Input::CommitSigned { policy, .. }
        | Input::AckArrived { policy, .. }
        | Input::BranchMoved { policy }
        | Input::TipMoved { policy, .. }
        | Input::TimeUp { policy }
        | Input::LandingImpossible { policy, .. }
        | Input::CancelAsked { policy, .. }
        | Input::DismissAsked { policy, .. } => vec![Entity::Policy(policy.clone())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_that_cannot_be_read_again_is_not_recorded() {
        let far = "9999-12-30T00:00:00Z".parse::<Timestamp>().unwrap();
        for at in [Timestamp::from_ms(0), Timestamp::from_ms(-62_135_596_800_000), far] {
            require_time(at).unwrap();
        }
        for ms in [far.ms() + 10 * 24 * 3_600_000, i64::MAX, i64::MIN] {
            let refused = require_time(Timestamp::from_ms(ms)).unwrap_err();
            assert_eq!(refused.code(), Code::BadTime, "{ms}");
        }
    }
}

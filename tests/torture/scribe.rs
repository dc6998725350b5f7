//! Appends through the store, as the ledger does it: decide under the lock, step, write the documents.
//!
//! Contract: every event is a real one, decided by the engine, so that `fsck` and `verify` can live the whole
//! journal through again. What the ledger does not offer is here: several events in one batch, and events as
//! heavy as a test needs to make the log fill up early. The first event of a journal is left to the program.

use git_agentproto::{
    domain::{
        event::{Entity, Recorded},
        ids::SessionId,
        input::{Input, Report},
        oid::Oid,
        session::Session,
    },
    engine::{Decision, ENGINE, Now, State, decide, step},
    store::{Appended, Batch, Edit, NewEntry, Place, Snapshot, Stamp, Store, discover},
    sys::{clock, env::Env},
    wire::{
        document::{self, Document, open_path},
        message::{self, Beside, Mended},
    },
};
use std::{collections::BTreeMap, error::Error, fmt::Display};

/// Tests and benchmarks fail with whatever came up.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// One event to be written.
pub(crate) struct Line {
    /// What happened.
    pub(crate) input: Input,
    /// Who says so: an `Actor` trailer of its own tells one event from all others.
    pub(crate) actor: String,
}

impl Line {
    /// A `session:command-done` with `pad` bytes of argument.
    pub(crate) fn command_done(session: &SessionId, actor: String, pad: usize) -> Self {
        let argv = if pad == 0 { vec![] } else { vec!["x".repeat(pad)] };
        let report = Report::CommandDone { argv, code: Some(0) };
        Self { input: Input::Reported { session: session.clone(), report, key: None }, actor }
    }

    fn session(&self) -> Outcome<&SessionId> {
        match &self.input {
            Input::SessionAdopted { session, .. }
            | Input::Reported { session, .. }
            | Input::SessionLaunched { session, .. }
            | Input::TurnBegun { session }
            | Input::RunEnded { session, .. }
            | Input::PromptAsked { session, .. }
            | Input::StopAsked { session, .. } => Ok(session),
            Input::PolicyAsked { .. }
            | Input::CommitAsked { .. }
            | Input::PolicyAdopted { .. }
            | Input::NoSlot { .. }
            | Input::SlotFree { .. }
            | Input::GatesEnded { .. }
            | Input::CommitSigned { .. }
            | Input::AckArrived { .. }
            | Input::BranchMoved { .. }
            | Input::TipMoved { .. }
            | Input::TimeUp { .. }
            | Input::LandingImpossible { .. }
            | Input::CancelAsked { .. }
            | Input::DismissAsked { .. } => Err("no event of a session alone".into()),
        }
    }
}

/// Opens the store of the repository that `env` stands in.
pub(crate) fn open(env: &Env) -> Outcome<Store> {
    Ok(Store::open(discover(env)?, env)?)
}

/// Appends all lines as one batch.
pub(crate) fn append(store: &Store, lines: &[Line]) -> Outcome<Appended> {
    let who =
        Stamp { name: "Ada Example".into(), email: "ada@example.invalid".into(), at: clock::now() };
    let decided = |snapshot: &Snapshot<'_>| {
        let draft = Draft::new(store, snapshot, &who);
        let entries = draft.and_then(|draft| draft.entries(lines));
        entries.map(|entries| Batch { entries, pins: vec![] }).map_err(|e| e.to_string())
    };
    Ok(store.append(&who, decided)?)
}

/// A batch being made over the state at the tip.
struct Draft<'a> {
    snapshot: &'a Snapshot<'a>,
    who: &'a Stamp,
    sessions: BTreeMap<SessionId, Document<Session>>,
    /// What the first entry of a segment says, taken by it.
    repo: Option<String>,
    continues: Option<Oid>,
    /// What the first entry after a recovery says, taken by it.
    mended: Option<Mended>,
}

impl<'a> Draft<'a> {
    fn new(store: &Store, snapshot: &'a Snapshot<'a>, who: &'a Stamp) -> Outcome<Self> {
        let (repo, continues) = match snapshot.place {
            Place::First => return Err("the program itself begins a journal".into()),
            Place::Within => (None, None),
            Place::Continues { last, first } => {
                (message::decode(&store.entry(&first)?.message)?.repo, Some(last))
            }
        };
        let recovered = snapshot.recovered.as_ref();
        let mended = recovered.map(|r| Mended { objects: r.objects, refs: r.refs.clone() });
        Ok(Self { snapshot, who, sessions: BTreeMap::new(), repo, continues, mended })
    }

    fn entries(mut self, lines: &[Line]) -> Outcome<Vec<NewEntry>> {
        let mut entries = Vec::new();
        for line in lines {
            let next = self.snapshot.next_seq + entries.len() as u64;
            entries.extend(self.of_line(line, next)?);
        }
        Ok(entries)
    }

    fn of_line(&mut self, line: &Line, next_seq: u64) -> Outcome<Vec<NewEntry>> {
        let id = line.session()?;
        self.load(id)?;
        let mut state = State::default();
        state.sessions.extend(self.sessions.get(id).map(|d| (id.clone(), d.value.clone())));
        let now = Now { at: self.who.at, next_seq };
        let Decision::Append(events) = decide(&state, line.input.clone(), now)? else {
            return Err("nothing to append".into());
        };
        let mut entries = Vec::new();
        for (seq, event) in (next_seq..).zip(events) {
            let prev = state.sessions.get(id).map(|s| s.last);
            let actor = line.actor.clone();
            let recorded = Recorded { seq, at: self.who.at, actor, prev, engine: ENGINE, event };
            state = step(&state, &recorded)?.state;
            let session = state.sessions.get(id).ok_or("the event made no session")?.clone();
            let edits = vec![self.put(id, session)?];
            let (repo, mended) = (self.repo.take(), self.mended.take());
            let continues = self.continues.take();
            let beside = Beside { repo: repo.as_deref(), continues, mended: mended.as_ref() };
            entries.push(NewEntry { message: message::encode(&recorded, beside)?, edits });
        }
        Ok(entries)
    }

    /// Reads the document of a session once.
    fn load(&mut self, id: &SessionId) -> Outcome {
        if self.sessions.contains_key(id) {
            return Ok(());
        }
        if let Some(bytes) = self.snapshot.document(&open_path(&Entity::Session(id.clone())))? {
            self.sessions.insert(id.clone(), document::decode(&bytes).map_err(told)?);
        }
        Ok(())
    }

    fn put(&mut self, id: &SessionId, value: Session) -> Outcome<Edit> {
        let extra = self.sessions.get(id).map(|d| d.extra.clone()).unwrap_or_default();
        let document = Document { value, extra };
        let data = document::encode(&document).map_err(told)?;
        self.sessions.insert(id.clone(), document);
        Ok(Edit::Put { path: open_path(&Entity::Session(id.clone())), data })
    }
}

fn told(error: impl Display) -> Box<dyn Error> {
    error.to_string().into()
}

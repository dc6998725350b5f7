//! One journal, read from its first event to its last and lived through again.
//!
//! Contract: every commit is hashed; `Seq` has no gap and no repeat; `Prev` is right; the first event names
//! repository and format; each event is stepped by this version's machine from the empty state, and the state
//! tree after it must be exactly the one that follows. The first thing that does not fit ends the reading and
//! makes the whole journal worth nothing as evidence. An event of another machine version cannot be checked,
//! which is no better.
//!
//! A journal whose oldest segments are not here any more begins with a state that nothing proves. It is taken as it
//! is, and what follows has to fit it: nothing that began before can be proved by it.

use super::{
    chain::{Acked, Began, Broken, Chain, Ready, Story},
    commits::Objects,
    kept,
};
use crate::{
    domain::{
        event::{Body, Entity, Event, Recorded},
        ids::{PolicyId, SessionId},
        oid::Oid,
        policy::Policy,
        session::Session,
    },
    engine::{ENGINE, OLDEST_ENGINE, State, step},
    store::{
        Segment, StoreError, Tip,
        object::{Kind, Object, hash},
        segments::Kept,
        tree::{self, Change, Mode},
    },
    wire::{
        document::{self, Document, closed_path, open_path},
        message::{self, Beside, Message},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Map;
use std::collections::HashMap;

/// Trees kept in memory while a journal is read; older ones are read again.
const TREES_KEPT: usize = 1024;

/// Reads a whole journal, as far as it is kept.
pub(super) fn read(objects: Objects<'_>, tip: &Tip) -> Chain {
    let chain = Chain::empty(tip.writer.clone(), Some(tip.id));
    let mut replay = Replay { objects, root: None, trees: HashMap::new(), chain };
    replay.chain.broken = replay.segments(tip).err();
    replay.chain
}

/// A journal commit as its bytes say it.
struct Entry {
    id: Oid,
    tree: Oid,
    message: Vec<u8>,
}

/// What an entry begins.
#[derive(Clone, Copy, Debug)]
enum Begins {
    Nothing,
    TheJournal,
    /// What is kept of it: the segments before are not here.
    WhatIsKept,
    /// A segment after the one that ends here.
    SegmentAfter(Oid),
}

/// The entries of the segment that ends at `last`, newest first.
fn entries(objects: Objects<'_>, last: Oid) -> Result<Vec<Entry>, Broken> {
    let mut entries = Vec::new();
    let mut next = Some(last);
    while let Some(id) = next {
        let commit = objects.commit(&id).map_err(|e| Broken::at(id, e.to_string()))?;
        if commit.parents.len() > 1 {
            return Err(Broken::at(id, "an entry has more than one parent".to_owned()));
        }
        next = commit.parents.first().copied();
        entries.push(Entry { id, tree: commit.tree, message: commit.message });
    }
    Ok(entries)
}

struct Replay<'a> {
    objects: Objects<'a>,
    /// The state tree so far.
    root: Option<Oid>,
    trees: HashMap<Oid, Vec<u8>>,
    chain: Chain,
}

impl Replay<'_> {
    fn segments(&mut self, tip: &Tip) -> Result<(), Broken> {
        let kept = self.objects.0.kept_segments(tip);
        let kept = kept.map_err(|e| Broken::at(tip.id, e.to_string()))?;
        let mut ended = None;
        for Kept { segment, last } in kept {
            let mut begins = match ended.replace(last) {
                Some(before) => Begins::SegmentAfter(before),
                None if segment == Segment::FIRST => Begins::TheJournal,
                None => Begins::WhatIsKept,
            };
            for entry in entries(self.objects, last)?.iter().rev() {
                self.entry(entry, begins).map_err(|why| Broken::at(entry.id, why))?;
                begins = Begins::Nothing;
            }
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, begins: Begins) -> Result<(), String> {
        let recorded = self.decode(entry, begins)?;
        match begins {
            Begins::WhatIsKept => return self.take_as_it_is(entry, &recorded),
            Begins::Nothing | Begins::TheJournal | Begins::SegmentAfter(_) => {}
        }
        let before = self.around(&recorded.event);
        let prev = last_of(&before, &recorded.event.subject);
        if recorded.prev != prev {
            return Err(format!("Prev is {}, expected {}", or_none(recorded.prev), or_none(prev)));
        }
        let stepped = step(&before, &recorded).map_err(|e| e.to_string())?;
        self.chain.state.sessions.extend(stepped.state.sessions);
        self.chain.state.policies.extend(stepped.state.policies);
        self.same_members(&recorded.event)?;
        self.same_tree(&stepped.touched, &entry.tree)?;
        self.remember(entry.id, &recorded);
        self.chain.events = recorded.seq;
        Ok(())
    }

    /// The state after the first event that is kept: nothing here proves it.
    fn take_as_it_is(&mut self, entry: &Entry, recorded: &Recorded) -> Result<(), String> {
        self.chain.state = kept::state_at(self.objects, &entry.tree)?;
        let oldest = self.chain.state.sessions.values().min_by_key(|s| s.since);
        self.chain.began = match oldest {
            None => Began::NotYet,
            Some(session) => session.base.map_or(Began::BeforeTheFirstCommit, Began::At),
        };
        self.root = Some(entry.tree);
        (self.chain.from, self.chain.events) = (recorded.seq, recorded.seq);
        Ok(())
    }

    fn decode(&mut self, entry: &Entry, begins: Begins) -> Result<Recorded, String> {
        let message = message::decode(&entry.message).map_err(|e| e.to_string())?;
        let expected = match begins {
            Begins::WhatIsKept => message.seq,
            Begins::Nothing | Begins::TheJournal | Begins::SegmentAfter(_) => self.chain.events + 1,
        };
        if message.seq != expected {
            return Err(format!("Seq is {}, expected {expected}", message.seq));
        }
        self.begins(&message, begins)?;
        if !(OLDEST_ENGINE..=ENGINE).contains(&message.engine) {
            let engine = message.engine;
            let known = format!("{OLDEST_ENGINE} to {ENGINE}");
            return Err(format!("engine {engine} made it, this version can only check {known}"));
        }
        let recorded = message.recorded().map_err(|e| e.to_string())?;
        let recorded = recorded.ok_or_else(|| format!("the kind {} is not known", message.kind))?;
        reads_as(&recorded, message.beside(), &entry.message)?;
        Ok(recorded)
    }

    /// Repository, format and what it continues stand in the first entry of each segment and nowhere else, and all
    /// segments are of one repository.
    fn begins(&mut self, message: &Message, begins: Begins) -> Result<(), String> {
        let (repo, format, continues) = (&message.repo, message.format, message.continues);
        let continued = match begins {
            Begins::Nothing if repo.is_none() && format.is_none() && continues.is_none() => {
                return Ok(());
            }
            Begins::Nothing => {
                return Err("repository and format stand in a later event".to_owned());
            }
            Begins::TheJournal => None,
            Begins::WhatIsKept => continues,
            Begins::SegmentAfter(last) => Some(last),
        };
        let (Some(repo), Some(format)) = (repo, format) else {
            return Err("the first event names no repository and format".to_owned());
        };
        if format != message::FORMAT {
            return Err(format!("journal format {format} is not known"));
        }
        if continues != continued {
            let text =
                |id: Option<Oid>| id.map_or_else(|| "nothing".to_owned(), |id| id.to_string());
            let (said, expected) = (text(continues), text(continued));
            return Err(format!("it continues {said}, what is before it ends at {expected}"));
        }
        if let Some(other) = self.chain.repo.as_ref().filter(|known| *known != repo) {
            return Err(format!("it belongs to repository {repo}, what is before it to {other}"));
        }
        self.chain.repo = Some(repo.clone());
        Ok(())
    }

    /// The entities `step` looks at for this event: small, or each step would copy the whole state.
    fn around(&self, event: &Event) -> State {
        let mut state = State::default();
        match &event.subject {
            Entity::Session(id) => {
                let policies = self.chain.state.sessions.get(id).map(|s| s.policies.as_slice());
                self.add_sessions(&mut state, std::slice::from_ref(id));
                for policy in policies.unwrap_or_default() {
                    self.add_policy(&mut state, policy);
                }
            }
            Entity::Policy(id) => {
                self.add_policy(&mut state, id);
                self.add_sessions(&mut state, &event.sessions);
            }
        }
        state
    }

    fn add_policy(&self, state: &mut State, id: &PolicyId) {
        if let Some(policy) = self.chain.state.policies.get(id) {
            self.add_sessions(state, &policy.spec.session_ids);
            state.policies.insert(id.clone(), policy.clone());
        }
    }

    fn add_sessions(&self, state: &mut State, ids: &[SessionId]) {
        for id in ids {
            if let Some(session) = self.chain.state.sessions.get(id) {
                state.sessions.insert(id.clone(), session.clone());
            }
        }
    }

    /// The `Session` trailers name the session itself, or the members of the policy, all of them known.
    fn same_members(&self, event: &Event) -> Result<(), String> {
        let state = &self.chain.state;
        let members = match &event.subject {
            Entity::Session(id) => std::slice::from_ref(id),
            Entity::Policy(id) => {
                state.policies.get(id).map(|p| p.spec.session_ids.as_slice()).unwrap_or_default()
            }
        };
        if members == event.sessions && members.iter().all(|s| state.sessions.contains_key(s)) {
            return Ok(());
        }
        Err(format!("it names other sessions than those of {}", event.subject))
    }

    fn same_tree(&mut self, touched: &[Entity], actual: &Oid) -> Result<(), String> {
        let mut files = Vec::new();
        for entity in touched {
            files.extend(self.file_of(entity)?);
        }
        let mut expected = self.edited(&files)?;
        if expected != *actual {
            // Fields of a later version lie in documents, too; what this version knows must be equal.
            for file in &mut files {
                file.data = self.as_written(actual, file)?;
            }
            expected = self.edited(&files)?;
        }
        if expected != *actual {
            return Err(format!("its state tree is {actual}, its events lead to {expected}"));
        }
        self.root = Some(expected);
        Ok(())
    }

    fn file_of(&self, entity: &Entity) -> Result<Option<File>, String> {
        let state = &self.chain.state;
        match entity {
            Entity::Session(id) => state.sessions.get(id).map(|s| {
                File::of(entity, s, s.is_exited() && s.policies.is_empty(), same_as::<Session>)
            }),
            Entity::Policy(id) => state
                .policies
                .get(id)
                .map(|p| File::of(entity, p, p.status.is_terminal(), same_as::<Policy>)),
        }
        .transpose()
    }

    /// The tree after these files were written into the present one.
    fn edited(&mut self, files: &[File]) -> Result<Oid, String> {
        let mut changes = Vec::new();
        for file in files {
            let gone = file.gone.as_ref().map(|path| Change { path: path.clone(), to: None });
            let blob = hash(self.objects.0.hash(), Kind::Blob, &file.data);
            let blob = blob.map_err(|e| e.to_string())?;
            let put = Change { path: file.path.clone(), to: Some((Mode::File, blob)) };
            changes.extend(gone.into_iter().chain([put]));
        }
        let (trees, objects) = (&self.trees, self.objects);
        let mut load = |id: &Oid| -> Result<Vec<u8>, StoreError> {
            trees.get(id).map_or_else(|| objects.get(id, Kind::Tree), |data| Ok(data.clone()))
        };
        let made = tree::edit(self.objects.0.hash(), self.root, &changes, &mut load);
        let (id, made) = made.map_err(|e| e.to_string())?;
        if self.trees.len() > TREES_KEPT {
            self.trees.clear();
        }
        self.trees.extend(made.into_iter().map(|Object { id, data, .. }| (id, data)));
        Ok(id)
    }

    /// The document as the journal has it, if it says the same.
    fn as_written(&self, root: &Oid, file: &File) -> Result<Vec<u8>, String> {
        let path = String::from_utf8_lossy(&file.path);
        let found = self.objects.0.document(root, &path).map_err(|e| e.to_string())?;
        match found {
            Some(data) if (file.same)(&data, &file.data) => Ok(data),
            Some(_) => Err(format!("{path} is not what the events lead to")),
            None => Err(format!("{path} is not in the state tree")),
        }
    }

    fn remember(&mut self, id: Oid, recorded: &Recorded) {
        let Entity::Policy(policy) = &recorded.event.subject else {
            if let (Body::SessionStarted(e), Began::NotYet) =
                (&recorded.event.body, self.chain.began)
            {
                self.chain.began = e.base.map_or(Began::BeforeTheFirstCommit, Began::At);
            }
            return;
        };
        if let (Body::PolicyAdopted(e), Began::NotYet) = (&recorded.event.body, self.chain.began) {
            let base = e.members.iter().find_map(|member| member.base);
            self.chain.began = base.map_or(Began::BeforeTheFirstCommit, Began::At);
        }
        let lines = self.chain.state.policies.get(policy).into_iter().flat_map(Policy::gate_lines);
        self.chain.gate_lines.extend(lines.map(str::to_owned));
        let story = self.chain.stories.entry(policy.clone()).or_insert_with(|| Story {
            whole: matches!(recorded.event.body, Body::PolicyAttached(_) | Body::PolicyAdopted(_)),
            attached: id,
            passed: None,
            ready: None,
            acked: Vec::new(),
            former: Vec::new(),
            refused: None,
            committed: None,
        });
        match &recorded.event.body {
            Body::GatePassed(_) => story.passed = Some(id),
            Body::CommitReady(e) => {
                story.ready = Some(Ready { id, ack: e.ack, candidate: e.candidate.commit });
            }
            Body::PolicyAcked(e) => {
                story.acked.push(Acked { id, at: recorded.at });
                self.chain.consumed.entry(e.ack.line.clone()).or_insert(id);
            }
            Body::GatingStarted(_) => story.begin_again(),
            Body::AckRefused(e) => story.refused = Some((e.outcome, e.because.clone())),
            Body::Committed(e) => story.committed = Some((id, e.commit)),
            Body::SessionStarted(_)
            | Body::Prompted(_)
            | Body::Stopping(_)
            | Body::GatingQueued(_)
            | Body::Nudged(_)
            | Body::TurnStarted(_)
            | Body::TurnEnded(_)
            | Body::InputAwaited(_)
            | Body::InputAnswered(_)
            | Body::SessionExited(_)
            | Body::CommandDone(_)
            | Body::PolicyAttached(_)
            | Body::PolicyAdopted(_)
            | Body::PolicyFailed(_)
            | Body::PolicyCancelled(_)
            | Body::PolicyDismissed(_) => {}
        }
    }
}

/// What people and plain git read of an entry is what the machine reads. `Data` may say more in a later version,
/// and the sentence may be worded otherwise.
fn reads_as(recorded: &Recorded, beside: Beside<'_>, actual: &[u8]) -> Result<(), String> {
    let expected = message::encode(recorded, beside).map_err(|e| e.to_string())?;
    let (expected, actual) = (String::from_utf8_lossy(&expected), String::from_utf8_lossy(actual));
    let event = &recorded.event;
    if !actual.starts_with(&format!("{} {}: ", event.body.kind().as_str(), event.subject)) {
        return Err("its first line tells of another event".to_owned());
    }
    if trailers(&expected).eq(trailers(&actual)) {
        return Ok(());
    }
    Err("its trailers and its data contradict each other".to_owned())
}

/// Lines of the last paragraph that this version writes, but for `Data`.
fn trailers(message: &str) -> impl Iterator<Item = &str> {
    const NAMES: [&str; 14] = [
        "Repo",
        "Format",
        "Continues",
        "Seq",
        "Kind",
        "Session",
        "Policy",
        "Turn",
        "Verdict",
        "Candidate",
        "Prev",
        "At",
        "Actor",
        "Engine",
    ];
    let block = message.trim_end().rsplit("\n\n").next().unwrap_or_default();
    block.lines().filter(|l| l.split_once(": ").is_some_and(|(name, _)| NAMES.contains(&name)))
}

/// A state document as it should be.
struct File {
    path: Vec<u8>,
    /// Where it lay while the entity was alive.
    gone: Option<Vec<u8>>,
    data: Vec<u8>,
    same: fn(&[u8], &[u8]) -> bool,
}

impl File {
    fn of<T: Serialize + Clone>(
        entity: &Entity,
        value: &T,
        over: bool,
        same: fn(&[u8], &[u8]) -> bool,
    ) -> Result<Self, String> {
        let (open, closed) = (open_path(entity).into_bytes(), closed_path(entity).into_bytes());
        let (path, gone) = if over { (closed, Some(open)) } else { (open, None) };
        let data = document::encode(&Document { value: value.clone(), extra: Map::new() })
            .map_err(|e| e.to_string())?;
        Ok(Self { path, gone, data, same })
    }
}

/// Two documents say the same as far as this version understands them.
fn same_as<T: DeserializeOwned + Serialize + PartialEq>(actual: &[u8], expected: &[u8]) -> bool {
    match (document::decode::<T>(actual), document::decode::<T>(expected)) {
        (Ok(actual), Ok(expected)) => actual.value == expected.value,
        (_, _) => false,
    }
}

fn last_of(state: &State, entity: &Entity) -> Option<u64> {
    match entity {
        Entity::Session(id) => state.sessions.get(id).map(|s| s.last),
        Entity::Policy(id) => state.policies.get(id).map(|p| p.last),
    }
}

fn or_none(seq: Option<u64>) -> String {
    seq.map_or_else(|| "none".to_owned(), |n| n.to_string())
}

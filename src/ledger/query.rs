//! Reading: entities by id, prefix or label, and the journal as a list. Nothing here writes.

mod elsewhere;

pub use elsewhere::Elsewhere;

use super::{Ledger, LedgerError, load};
use crate::{
    code::Code,
    domain::{
        cursor::Since,
        event::Entity,
        ids::{PolicyId, SessionId, WriterId},
        oid::Oid,
        policy::Policy,
        session::Session,
        time::Timestamp,
    },
    engine::State,
    limits,
    store::{Entry, StoreError, Tip, tree},
    wire::message::{self, Message},
};

/// A journal entry that was read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its journal commit: the cursor after it.
    pub id: Oid,
    /// Whose journal.
    pub writer: WriterId,
    /// State tree after it.
    pub tree: Oid,
    /// What it says.
    pub message: Message,
}

/// What to list of the journal.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Where to begin; from the first kept event when absent.
    pub since: Option<Since>,
    /// Full names, short names or `family:*`; all when empty.
    pub kinds: Vec<String>,
    /// Only events concerning one of these sessions; all when empty.
    pub sessions: Vec<SessionId>,
    /// Only events concerning one of these policies; all when empty.
    pub policies: Vec<PolicyId>,
    /// At most this many events.
    pub limit: usize,
}

/// A page of the journal.
#[derive(Clone, Debug)]
pub struct Page {
    /// The events, oldest first.
    pub events: Vec<Seen>,
    /// Cursor of the last event examined; `None` for an empty journal.
    pub next: Option<Oid>,
    /// The limit cut the page.
    pub more: bool,
    /// Number of the first event examined before which the clock was set back; `None` when it was not, or when the
    /// event before the page is not kept.
    pub set_back: Option<u64>,
}

impl Seen {
    /// True when the clock was set back between an event of that time and this later one: by more than writers that
    /// wait for each other explain.
    #[must_use]
    pub fn is_set_back_from(&self, before: Timestamp) -> bool {
        self.message.at.plus_ms(limits::CLOCK_STEP_MS) <= before
    }
}

/// One of several things a label could mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// The thing.
    pub entity: Entity,
    /// Its state in one word.
    pub state: &'static str,
    /// In that state, or registered, since.
    pub since: Timestamp,
}

/// Every entity of one kind, alive first, each in id order.
pub type Listed<T> = Vec<T>;

impl Ledger {
    /// The tip of this clone's own journal.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn tip(&self) -> Result<Option<Tip>, LedgerError> {
        Ok(self.store.own_tip()?)
    }

    /// A policy, alive or over.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn policy(&self, id: &PolicyId) -> Result<Option<Policy>, LedgerError> {
        self.entity(&Entity::Policy(id.clone()))
    }

    /// A session, alive or over.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn session(&self, id: &SessionId) -> Result<Option<Session>, LedgerError> {
        self.entity(&Entity::Session(id.clone()))
    }

    /// A policy that must be there.
    ///
    /// # Errors
    /// `no-such-policy`; the journal cannot be read.
    pub fn require_policy(&self, id: &PolicyId) -> Result<Policy, LedgerError> {
        self.policy(id)?.ok_or_else(|| {
            LedgerError::refused(Code::NoSuchPolicy, id.as_str(), "no policy has this id here")
        })
    }

    /// A session that must be there.
    ///
    /// # Errors
    /// `no-such-session`; the journal cannot be read.
    pub fn require_session(&self, id: &SessionId) -> Result<Session, LedgerError> {
        self.session(id)?.ok_or_else(|| {
            LedgerError::refused(Code::NoSuchSession, id.as_str(), "no session has this id here")
        })
    }

    fn entity<T: serde::de::DeserializeOwned + serde::Serialize>(
        &self,
        entity: &Entity,
    ) -> Result<Option<T>, LedgerError> {
        let Some(tip) = self.tip()? else { return Ok(None) };
        let read = |path: &str| self.store.document(&tip.tree, path).map_err(LedgerError::from);
        Ok(load::load_one(entity, &read)?.map(|d| d.value))
    }

    /// Everything alive.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn open_state(&self) -> Result<State, LedgerError> {
        let mut state = State::default();
        for policy in self.list::<Policy>("open", PolicyId::PREFIX)? {
            state.policies.insert(policy.policy_id.clone(), policy);
        }
        for session in self.list::<Session>("open", SessionId::PREFIX)? {
            state.sessions.insert(session.session_id.clone(), session);
        }
        Ok(state)
    }

    /// Living sessions of agents that are in the worktree of this one, too.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn beside(&self, session: &Session) -> Result<Vec<SessionId>, LedgerError> {
        let mut others = self.list::<Session>("open", SessionId::PREFIX)?;
        others.retain(|o| {
            let other = o.session_id != session.session_id && o.worktree == session.worktree;
            other && !o.is_exited() && !o.own
        });
        Ok(others.into_iter().map(|o| o.session_id).collect())
    }

    /// All policies: alive first, then those that are over when `all`.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn policies(&self, all: bool) -> Result<Listed<Policy>, LedgerError> {
        let mut listed = self.list("open", PolicyId::PREFIX)?;
        if all {
            listed.extend(self.list("closed", PolicyId::PREFIX)?);
        }
        Ok(listed)
    }

    /// All sessions: alive first, then those that are over when `all`.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn sessions(&self, all: bool) -> Result<Listed<Session>, LedgerError> {
        let mut listed = self.list("open", SessionId::PREFIX)?;
        if all {
            listed.extend(self.list("closed", SessionId::PREFIX)?);
        }
        Ok(listed)
    }

    fn list<T: serde::de::DeserializeOwned + serde::Serialize>(
        &self,
        dir: &str,
        prefix: &str,
    ) -> Result<Vec<T>, LedgerError> {
        let Some(tip) = self.tip()? else { return Ok(vec![]) };
        let mut found = self.store.documents(&tip.tree, dir)?;
        found.retain(|(path, _)| file_name(path).starts_with(prefix));
        found.sort_by(|(a, _), (b, _)| file_name(a).cmp(file_name(b)));
        found.iter().map(|(path, bytes)| Ok(load::decode(path, bytes)?.value)).collect()
    }

    /// The entity a person means: an id, a unique prefix of one, or the label of one living thing; when no
    /// living thing has it, of the newest that is over.
    ///
    /// # Errors
    /// Nothing or more than one thing is meant.
    pub fn find(&self, text: &str) -> Result<Entity, LedgerError> {
        self.find_among(text, Code::NoSuchEntity, &[PolicyId::PREFIX, SessionId::PREFIX])
    }

    /// The policy a person means.
    ///
    /// # Errors
    /// As [`Ledger::find`]; `not-owner` for an id that only another clone's journal knows.
    pub fn find_policy(&self, text: &str) -> Result<PolicyId, LedgerError> {
        let found = self.find_among(text, Code::NoSuchPolicy, &[PolicyId::PREFIX]);
        if found.as_ref().is_err_and(|e| e.code() == Code::NoSuchPolicy)
            && let Ok(id) = text.parse()
        {
            self.require_not_foreign(&id)?;
        }
        match found? {
            Entity::Policy(id) => Ok(id),
            Entity::Session(_) => {
                Err(LedgerError::refused(Code::NoSuchPolicy, text, "that is no policy"))
            }
        }
    }

    /// Refuses a policy that another clone's journal tells of: only its owner answers for it.
    pub(super) fn require_not_foreign(&self, id: &PolicyId) -> Result<(), LedgerError> {
        let own = self.tip()?.map(|tip| tip.writer);
        // A journal that cannot be read tells of no policy: `verify` and `fsck` tell of it.
        for tip in self.store.journals()?.tips {
            let read = |path: &str| self.store.document(&tip.tree, path).map_err(LedgerError::from);
            let foreign = Some(&tip.writer) != own.as_ref();
            if foreign && load::load_one::<Policy>(&Entity::Policy(id.clone()), &read)?.is_some() {
                let because = format!("it belongs to writer {}", tip.writer);
                return Err(LedgerError::refused(Code::NotOwner, id.as_str(), because));
            }
        }
        Ok(())
    }

    /// The session a person means.
    ///
    /// # Errors
    /// As [`Ledger::find`].
    pub fn find_session(&self, text: &str) -> Result<SessionId, LedgerError> {
        match self.find_among(text, Code::NoSuchSession, &[SessionId::PREFIX])? {
            Entity::Session(id) => Ok(id),
            Entity::Policy(_) => {
                Err(LedgerError::refused(Code::NoSuchSession, text, "that is no session"))
            }
        }
    }

    fn find_among(
        &self,
        text: &str,
        absent: Code,
        prefixes: &[&str],
    ) -> Result<Entity, LedgerError> {
        let none = || LedgerError::refused(absent, text, "nothing here has this id or label");
        // A label never starts as an id does, so one of the two is meant and never both.
        if !prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            return self.find_label(text, prefixes)?.ok_or_else(none);
        }
        let names = self.ids()?;
        if let Some(exact) = names.iter().find(|name| *name == text) {
            return entity_of(exact).ok_or_else(none);
        }
        let hits: Vec<&str> =
            names.iter().map(String::as_str).filter(|n| n.starts_with(text)).collect();
        match hits.as_slice() {
            [] => Err(none()),
            [one] => entity_of(one).ok_or_else(none),
            many => {
                let shown = many.iter().take(5).copied().collect::<Vec<_>>().join(", ");
                let because = format!("{} ids begin like this: {shown}", many.len());
                Err(LedgerError::refused(Code::Ambiguous, text, because))
            }
        }
    }

    /// The entity with this label: the one that lives, else the newest that is over.
    fn find_label(&self, label: &str, prefixes: &[&str]) -> Result<Option<Entity>, LedgerError> {
        let mut living = self.labelled("open", label, prefixes)?;
        if living.len() > 1 {
            return Err(LedgerError::Ambiguous { label: label.to_owned(), meant: living });
        }
        if let Some(one) = living.pop() {
            return Ok(Some(one.entity));
        }
        // Asking for the same again gives the same label to another one, so the last is meant.
        let over = self.labelled("closed", label, prefixes)?;
        let newest = over.into_iter().max_by_key(|m| (m.entity.minted(), m.entity.to_string()));
        Ok(newest.map(|meant| meant.entity))
    }

    /// Everything alive with this label.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn living(&self, label: &str) -> Result<Vec<Meant>, LedgerError> {
        self.labelled("open", label, &[PolicyId::PREFIX, SessionId::PREFIX])
    }

    fn labelled(
        &self,
        dir: &str,
        label: &str,
        prefixes: &[&str],
    ) -> Result<Vec<Meant>, LedgerError> {
        let mut found = Vec::new();
        if prefixes.contains(&PolicyId::PREFIX) {
            let all = self.list::<Policy>(dir, PolicyId::PREFIX)?;
            let ours = all.into_iter().filter(|p| p.spec.label.as_deref() == Some(label));
            found.extend(ours.map(|p| Meant {
                entity: Entity::Policy(p.policy_id),
                state: p.status.as_str(),
                since: p.since,
            }));
        }
        if prefixes.contains(&SessionId::PREFIX) {
            let all = self.list::<Session>(dir, SessionId::PREFIX)?;
            let ours = all.into_iter().filter(|s| s.label.as_deref() == Some(label));
            found.extend(ours.map(|s| Meant {
                state: if s.is_exited() { "exited" } else { "alive" },
                entity: Entity::Session(s.session_id),
                since: s.since,
            }));
        }
        Ok(found)
    }

    /// The labels of everything alive, one each time it is used.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn living_labels(&self) -> Result<Vec<String>, LedgerError> {
        let State { policies, sessions } = self.open_state()?;
        let policies = policies.into_values().filter_map(|p| p.spec.label);
        Ok(policies.chain(sessions.into_values().filter_map(|s| s.label)).collect())
    }

    /// The ids of every entity in the state, read from trees alone, in order.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn ids(&self) -> Result<Vec<String>, LedgerError> {
        let Some(tip) = self.tip()? else { return Ok(vec![]) };
        let mut names = Vec::new();
        let mut queue = vec![tip.tree];
        while let Some(id) = queue.pop() {
            let raw = self.store.object(&id)?.data;
            let entries = tree::parse(id.hash(), &raw)
                .map_err(|e| LedgerError::Corrupt(format!("state tree {id}: {e}")))?;
            for entry in entries {
                if entry.mode == tree::Mode::Tree {
                    queue.push(entry.id);
                } else if let Some(name) = entry.name.strip_suffix(b".json") {
                    names.push(String::from_utf8_lossy(name).into_owned());
                }
            }
        }
        names.sort();
        Ok(names)
    }

    /// Entries of this clone's journal from the newest back to the oldest that is kept.
    ///
    /// # Errors
    /// The journal cannot be opened; each item can fail by itself.
    pub fn backwards<'a>(
        &'a self,
        tip: Option<&'a Tip>,
    ) -> Result<impl Iterator<Item = Result<Seen, LedgerError>> + use<'a>, LedgerError> {
        let entries = tip.map(|tip| self.store.newest_first(tip)).transpose()?;
        let writer = tip.map(|tip| &tip.writer);
        Ok(entries.into_iter().flatten().filter_map(move |entry| {
            let writer = writer?;
            Some(entry.map_err(LedgerError::from).and_then(|entry| seen(writer, &entry)))
        }))
    }

    /// The story of one entity as of `tip`: its last event, the one before it of the same entity, and so on as far
    /// as they are kept.
    ///
    /// # Errors
    /// The state cannot be read; each item can fail by itself, which ends the story.
    pub fn story<'a>(
        &'a self,
        tip: Option<&'a Tip>,
        entity: &Entity,
    ) -> Result<impl Iterator<Item = Result<Seen, LedgerError>> + use<'a>, LedgerError> {
        let mut next = tip.map(|tip| self.last_event_of(tip, entity)).transpose()?.flatten();
        Ok(std::iter::from_fn(move || {
            let seq = next.take()?;
            let found = self.kept_at(tip?, seq).transpose()?;
            Some(found.and_then(|seen| match seen.message.prev {
                Some(prev) if prev >= seq => {
                    let why = format!("event {seq} names {prev} as the one before it");
                    Err(LedgerError::Corrupt(why))
                }
                prev => {
                    next = prev;
                    Ok(seen)
                }
            }))
        }))
    }

    /// Number of the last event of an entity, none when the state at `tip` does not know it.
    fn last_event_of(&self, tip: &Tip, entity: &Entity) -> Result<Option<u64>, LedgerError> {
        let read = |path: &str| self.store.document(&tip.tree, path).map_err(LedgerError::from);
        Ok(match entity {
            Entity::Session(_) => load::load_one::<Session>(entity, &read)?.map(|d| d.value.last),
            Entity::Policy(_) => load::load_one::<Policy>(entity, &read)?.map(|d| d.value.last),
        })
    }

    /// The entry of event number `seq`, when the journal has and keeps it.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn at_seq(&self, seq: u64) -> Result<Option<Seen>, LedgerError> {
        self.tip()?.map_or(Ok(None), |tip| self.kept_at(&tip, seq))
    }

    fn kept_at(&self, tip: &Tip, seq: u64) -> Result<Option<Seen>, LedgerError> {
        match self.store.seek_in(tip, seq) {
            Ok(entry) => entry.map(|entry| seen(&tip.writer, &entry)).transpose(),
            Err(StoreError::SegmentDropped { .. }) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Number of the event a cursor stands after.
    ///
    /// # Errors
    /// `no-such-cursor` for one that is not of this journal, `segment-dropped` for one before what is kept.
    pub fn position(&self, since: &Since) -> Result<u64, LedgerError> {
        self.position_in(self.tip()?.as_ref(), since)
    }

    fn position_in(&self, tip: Option<&Tip>, since: &Since) -> Result<u64, LedgerError> {
        let last = tip.map_or(0, |t| t.seq);
        match since {
            Since::Tip => Ok(last),
            Since::Seq(seq) if *seq <= last => self.require_kept_after(tip, *seq),
            Since::Seq(seq) => Err(unknown_cursor(&seq.to_string())),
            Since::WriterSeq(writer, seq) => match tip {
                Some(own) if own.writer == *writer && *seq <= last => {
                    self.require_kept_after(tip, *seq)
                }
                Some(_) | None => Err(unknown_cursor(&format!("{writer}@{seq}"))),
            },
            Since::Commit(id) => match tip {
                Some(tip) => self.position_of(tip, id),
                None => Err(unknown_cursor(&id.to_string())),
            },
            Since::Time(at) => tip.map_or(Ok(0), |tip| self.position_at(tip, *at)),
        }
    }

    /// Refuses a position after which something is not kept any more.
    fn require_kept_after(&self, tip: Option<&Tip>, seq: u64) -> Result<u64, LedgerError> {
        let first = tip.map_or(Ok(1), |tip| self.store.first_kept(tip))?;
        if seq + 1 >= first {
            return Ok(seq);
        }
        Err(StoreError::SegmentDropped { seq: seq + 1, first }.into())
    }

    fn position_of(&self, tip: &Tip, id: &Oid) -> Result<u64, LedgerError> {
        let here = match self.store.find_object(id)? {
            Some(_) => self.store.entry(id).ok(),
            None => None,
        };
        let Some(entry) = here else {
            let first = self.store.first_kept(tip)?;
            if first == 1 {
                return Err(unknown_cursor(&id.to_string()));
            }
            // It cannot be told any more whether it ever was one.
            let because = format!("it is not among what is kept, which begins at event {first}");
            return Err(LedgerError::refused(Code::SegmentDropped, &id.to_string(), because));
        };
        match self.store.seek_in(tip, entry.seq)? {
            Some(found) if found.id == *id => Ok(entry.seq),
            Some(_) | None => Err(unknown_cursor(&id.to_string())),
        }
    }

    /// The position from which on everything is told that is later than `at`: before the first event of a later
    /// time. As times may go back, that event is not found by halves alone: these lead to an event so old that no
    /// clock that was set back by at most [`limits::CLOCK_SET_BACK_MS`] can have given anything before it a later
    /// time, and from there on every time is looked at. Where the first event that is kept is later, so may be some
    /// that are not: that is refused, as it is by number.
    fn position_at(&self, tip: &Tip, at: Timestamp) -> Result<u64, LedgerError> {
        let surely_before = at.ms().saturating_sub(limits::CLOCK_SET_BACK_MS);
        let first = self.store.first_kept(tip)?;
        let (mut before, mut beyond) = (first - 1, tip.seq + 1);
        while beyond - before > 1 {
            let middle = before + (beyond - before) / 2;
            let lost = || LedgerError::Corrupt(format!("event {middle} is not in the journal"));
            let seen = self.kept_at(tip, middle)?.ok_or_else(lost)?;
            if seen.message.at.ms() <= surely_before {
                before = middle;
            } else {
                beyond = middle;
            }
        }
        loop {
            let entries = self.store.entries_from(tip, before + 1, limits::PAGE_CHUNK_EVENTS)?;
            if entries.is_empty() {
                return Ok(before);
            }
            for entry in entries {
                let seen = seen(&tip.writer, &entry)?;
                if seen.message.at > at {
                    let position = seen.message.seq - 1;
                    if position > 0 && position < first {
                        return Err(StoreError::SegmentDropped { seq: position, first }.into());
                    }
                    return Ok(position);
                }
                before = seen.message.seq;
            }
        }
    }

    /// A page of the journal.
    ///
    /// # Errors
    /// An unknown cursor; the journal cannot be read.
    pub fn events(&self, query: &Query) -> Result<Page, LedgerError> {
        let tip = self.tip()?;
        let after = match &query.since {
            Some(since) => self.position_in(tip.as_ref(), since)?,
            None => tip.as_ref().map_or(Ok(1), |tip| self.store.first_kept(tip))? - 1,
        };
        let mut page = Page { events: vec![], next: None, more: false, set_back: None };
        let Some(tip) = tip else { return Ok(page) };
        let mut seq = after + 1;
        // When this event cannot be read, the page that ends with it fails; this one need not.
        let mut before = self.kept_at(&tip, after).ok().flatten().map(|seen| seen.message.at);
        let mut chunk = query.limit.saturating_add(1).min(limits::PAGE_CHUNK_EVENTS);
        while seq <= tip.seq {
            let entries = self.store.entries_from(&tip, seq, chunk)?;
            // Where filters drop most, there is more to read than was asked for.
            chunk = (chunk * 2).min(limits::PAGE_CHUNK_EVENTS);
            for entry in entries {
                if page.events.len() >= query.limit {
                    page.more = true;
                    break;
                }
                (page.next, seq) = (Some(entry.id), entry.seq + 1);
                let seen = seen(&tip.writer, &entry)?;
                if page.set_back.is_none() && before.is_some_and(|b| seen.is_set_back_from(b)) {
                    page.set_back = Some(seen.message.seq);
                }
                before = Some(seen.message.at);
                if query.matches(&seen.message) {
                    page.events.push(seen);
                }
            }
            if page.more {
                break;
            }
        }
        if page.next.is_none() {
            // Nothing was examined, so the reader is where it began.
            page.next = self.store.seek_in(&tip, after)?.map(|entry| entry.id);
        }
        Ok(page)
    }
}

fn unknown_cursor(text: &str) -> LedgerError {
    LedgerError::refused(Code::NoSuchCursor, text, "the cursor is not of this journal")
}

/// A journal entry as what it says.
fn seen(writer: &WriterId, entry: &Entry) -> Result<Seen, LedgerError> {
    let message = message::decode(&entry.message)
        .map_err(|source| LedgerError::Message { id: entry.id, source })?;
    Ok(Seen { id: entry.id, writer: writer.clone(), tree: entry.tree, message })
}

impl Query {
    /// True when the filters let this message through.
    #[must_use]
    pub fn matches(&self, message: &Message) -> bool {
        let kind = message.kind.as_str();
        let (family, short) = kind.split_once(':').unwrap_or((kind, kind));
        let of_kind = |wanted: &String| {
            wanted == kind
                || wanted == short
                || wanted.strip_suffix(":*").is_some_and(|f| f == family)
        };
        let any = |empty: bool, hit: bool| empty || hit;
        any(self.kinds.is_empty(), self.kinds.iter().any(of_kind))
            && any(
                self.sessions.is_empty(),
                message.sessions.iter().any(|s| self.sessions.contains(s)),
            )
            && any(
                self.policies.is_empty(),
                message.policy.as_ref().is_some_and(|p| self.policies.contains(p)),
            )
    }
}

fn entity_of(id: &str) -> Option<Entity> {
    if id.starts_with(PolicyId::PREFIX) {
        id.parse().ok().map(Entity::Policy)
    } else {
        id.parse().ok().map(Entity::Session)
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;

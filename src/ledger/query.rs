//! Reading: entities by id, prefix or label, and the journal as a list. Nothing here writes.

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
    store::{Tip, tree},
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
    /// Previous entry.
    pub parent: Option<Oid>,
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
        for tip in self.store.journals()? {
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

    /// The journal entry with this id.
    ///
    /// # Errors
    /// It is missing or no journal entry.
    pub fn seen(&self, writer: &WriterId, id: &Oid) -> Result<Seen, LedgerError> {
        let entry = self.store.entry(id)?;
        let message = message::decode(&entry.message)
            .map_err(|source| LedgerError::Message { id: *id, source })?;
        Ok(Seen {
            id: *id,
            writer: writer.clone(),
            tree: entry.tree,
            parent: entry.parent,
            message,
        })
    }

    /// Entries of this clone's journal from the newest back to the oldest.
    ///
    /// # Errors
    /// The journal cannot be opened; each item can fail by itself.
    pub fn backwards(
        &self,
    ) -> Result<impl Iterator<Item = Result<Seen, LedgerError>> + '_, LedgerError> {
        let tip = self.tip()?;
        let writer = tip.as_ref().map(|t| t.writer.clone());
        let mut next = tip.map(|t| t.id);
        Ok(std::iter::from_fn(move || {
            let id = next.take()?;
            let seen = self.seen(writer.as_ref()?, &id);
            next = seen.as_ref().ok().and_then(|s| s.parent);
            Some(seen)
        }))
    }

    /// The entry of event number `seq`, when the journal has it.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn at_seq(&self, seq: u64) -> Result<Option<Seen>, LedgerError> {
        for seen in self.backwards()? {
            let seen = seen?;
            if seen.message.seq <= seq {
                return Ok((seen.message.seq == seq).then_some(seen));
            }
        }
        Ok(None)
    }

    /// Number of the event a cursor stands after.
    ///
    /// # Errors
    /// `no-such-cursor` for one that is not of this journal.
    pub fn position(&self, since: &Since) -> Result<u64, LedgerError> {
        let tip = self.tip()?;
        let last = tip.as_ref().map_or(0, |t| t.seq);
        let unknown = |text: String| {
            LedgerError::refused(Code::NoSuchCursor, &text, "the cursor is not of this journal")
        };
        match since {
            Since::Tip => Ok(last),
            Since::Seq(seq) if *seq <= last => Ok(*seq),
            Since::Seq(seq) => Err(unknown(seq.to_string())),
            Since::WriterSeq(writer, seq) => match tip {
                Some(tip) if tip.writer == *writer && *seq <= last => Ok(*seq),
                _ => Err(unknown(format!("{writer}@{seq}"))),
            },
            Since::Commit(id) => {
                let found = match self.store.find_object(id)? {
                    Some(_) => self.store.entry(id).ok().map(|e| e.seq),
                    None => None,
                };
                let on_chain = match found {
                    Some(seq) => self.at_seq(seq)?.filter(|s| s.id == *id),
                    None => None,
                };
                on_chain.map(|s| s.message.seq).ok_or_else(|| unknown(id.to_string()))
            }
            Since::Time(at) => {
                for seen in self.backwards()? {
                    let seen = seen?;
                    if seen.message.at <= *at {
                        return Ok(seen.message.seq);
                    }
                }
                Ok(0)
            }
        }
    }

    /// A page of the journal.
    ///
    /// # Errors
    /// An unknown cursor; the journal cannot be read.
    pub fn events(&self, query: &Query) -> Result<Page, LedgerError> {
        let after = match &query.since {
            Some(since) => self.position(since)?,
            None => 0,
        };
        let mut ids = Vec::new();
        let mut next = None;
        for seen in self.backwards()? {
            let seen = seen?;
            if seen.message.seq <= after {
                next = Some(seen.id);
                break;
            }
            ids.push((seen.writer, seen.id));
        }
        let mut page = Page { events: vec![], next, more: false };
        for (writer, id) in ids.iter().rev() {
            if page.events.len() == query.limit {
                page.more = true;
                break;
            }
            let seen = self.seen(writer, id)?;
            page.next = Some(seen.id);
            if query.matches(&seen.message) {
                page.events.push(seen);
            }
        }
        Ok(page)
    }
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

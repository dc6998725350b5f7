//! State documents in and out of a state tree.

use super::LedgerError;
use crate::{
    domain::{event::Entity, policy::Policy, session::Session},
    engine::State,
    store::Edit,
    wire::document::{self, Document, closed_path, open_path},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Reads the bytes at a path of the state tree.
pub(super) type Reader<'a> = &'a dyn Fn(&str) -> Result<Option<Vec<u8>>, LedgerError>;

/// Entities with the fields of their documents that this version does not know.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) state: State,
    extra: BTreeMap<Entity, Map<String, Value>>,
}

/// Loads the named entities and, through them, the sessions of their policies and the living policies of their
/// sessions. What does not exist is left out: the engine says so by its own code.
pub(super) fn load(wanted: &[Entity], read: Reader<'_>) -> Result<Loaded, LedgerError> {
    let mut loaded = Loaded::default();
    let mut queue: Vec<Entity> = wanted.to_vec();
    while let Some(entity) = queue.pop() {
        match &entity {
            Entity::Session(id) if !loaded.state.sessions.contains_key(id) => {
                let Some(found) = load_one::<Session>(&entity, read)? else { continue };
                queue.extend(found.value.policies.iter().cloned().map(Entity::Policy));
                loaded.state.sessions.insert(id.clone(), found.value);
                loaded.extra.insert(entity, found.extra);
            }
            Entity::Policy(id) if !loaded.state.policies.contains_key(id) => {
                let Some(found) = load_one::<Policy>(&entity, read)? else { continue };
                queue.extend(found.value.spec.session_ids.iter().cloned().map(Entity::Session));
                loaded.state.policies.insert(id.clone(), found.value);
                loaded.extra.insert(entity, found.extra);
            }
            Entity::Session(_) | Entity::Policy(_) => {}
        }
    }
    Ok(loaded)
}

/// Loads one entity, alive or over.
pub(super) fn load_one<T: DeserializeOwned + Serialize>(
    entity: &Entity,
    read: Reader<'_>,
) -> Result<Option<Document<T>>, LedgerError> {
    for path in [open_path(entity), closed_path(entity)] {
        if let Some(bytes) = read(&path)? {
            return decode(&path, &bytes).map(Some);
        }
    }
    Ok(None)
}

/// Reads a document found at `path`.
pub(super) fn decode<T: DeserializeOwned + Serialize>(
    path: &str,
    bytes: &[u8],
) -> Result<Document<T>, LedgerError> {
    document::decode(bytes)
        .map_err(|source| LedgerError::Document { path: path.to_owned(), source })
}

impl Loaded {
    /// The edits that bring the document of an entity up to date with `state`.
    pub(super) fn edits(&self, state: &State, entity: &Entity) -> Result<Vec<Edit>, LedgerError> {
        match entity {
            Entity::Session(id) => match state.sessions.get(id) {
                Some(session) => {
                    let over = session.is_exited() && session.policies.is_empty();
                    self.edits_of(entity, session, over)
                }
                None => Ok(vec![]),
            },
            Entity::Policy(id) => match state.policies.get(id) {
                Some(policy) => self.edits_of(entity, policy, policy.status.is_terminal()),
                None => Ok(vec![]),
            },
        }
    }

    fn edits_of<T: Serialize + Clone>(
        &self,
        entity: &Entity,
        value: &T,
        over: bool,
    ) -> Result<Vec<Edit>, LedgerError> {
        let (open, closed) = (open_path(entity), closed_path(entity));
        let (path, gone) = if over { (closed, Some(open)) } else { (open, None) };
        let extra = self.extra.get(entity).cloned().unwrap_or_default();
        let data = document::encode(&Document { value: value.clone(), extra })
            .map_err(|source| LedgerError::Document { path: path.clone(), source })?;
        let put = Edit::Put { path, data };
        Ok(gone.map(|path| Edit::Remove { path }).into_iter().chain([put]).collect())
    }
}

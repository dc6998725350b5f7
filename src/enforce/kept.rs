//! The state that a journal begins with when its oldest segments are not here any more.
//!
//! Contract: every tree and document is hashed, and lies where an entity in its state has to lie. Whether its
//! events led there cannot be told.

use super::commits::Objects;
use crate::{
    domain::{
        event::Entity,
        ids::{PolicyId, SessionId},
        oid::Oid,
        policy::Policy,
        session::Session,
    },
    engine::State,
    store::object::Kind,
    wire::document::{self, closed_path, open_path},
};
use serde::{Serialize, de::DeserializeOwned};

/// Every session and policy in a state tree. What else lies there is of a later version.
pub(super) fn state_at(objects: Objects<'_>, tree: &Oid) -> Result<State, String> {
    let mut state = State::default();
    for file in objects.files(tree).map_err(|e| e.to_string())? {
        let Some((_, blob)) = file.to else { continue };
        let path = String::from_utf8_lossy(&file.path).into_owned();
        let name = path.rsplit('/').next().and_then(|n| n.strip_suffix(".json")).unwrap_or("");
        if let Ok(id) = name.parse::<PolicyId>() {
            let policy: Policy = read(objects, &path, &blob)?;
            let over = policy.status.is_terminal();
            require(
                policy.policy_id == id && lies_at(&path, &Entity::Policy(id.clone()), over),
                &path,
            )?;
            state.policies.insert(id, policy);
        } else if let Ok(id) = name.parse::<SessionId>() {
            let session: Session = read(objects, &path, &blob)?;
            let over = session.is_exited() && session.policies.is_empty();
            require(
                session.session_id == id && lies_at(&path, &Entity::Session(id.clone()), over),
                &path,
            )?;
            state.sessions.insert(id, session);
        }
    }
    Ok(state)
}

fn read<T: DeserializeOwned + Serialize>(
    objects: Objects<'_>,
    path: &str,
    blob: &Oid,
) -> Result<T, String> {
    let data = objects.get(blob, Kind::Blob).map_err(|e| e.to_string())?;
    Ok(document::decode::<T>(&data).map_err(|e| format!("{path}: {e}"))?.value)
}

fn lies_at(path: &str, entity: &Entity, over: bool) -> bool {
    path == if over { closed_path(entity) } else { open_path(entity) }
}

fn require(holds: bool, path: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{path} is not where its entity lies")) }
}

//! Whether everything is there that a candidate brings.
//!
//! Contract: every object that the candidate adds to its parent is read and hashed again; what it shares with its parent
//! must be there. Damage is an answer; what could not be looked at is an error.

use crate::domain::{oid::Oid, policy::Candidate};
use crate::store::{
    Store, StoreError,
    object::{Kind, hash},
    tree::{self, Mode},
};
use std::collections::HashMap;

/// Why a candidate cannot be relied upon; none when it can.
///
/// # Errors
/// It could not be looked at.
pub fn damage(store: &Store, candidate: &Candidate) -> Result<Option<String>, StoreError> {
    match require(store, candidate) {
        Ok(()) => Ok(None),
        Err(e) if e.is_damage() => Ok(Some(e.to_string())),
        Err(e) => Err(e),
    }
}

/// Why not all of what a commit holds can be read; none when it can.
///
/// # Errors
/// It could not be looked at.
pub fn tree_damage(store: &Store, commit: &Oid) -> Result<Option<String>, StoreError> {
    match store.commit_tree(commit).and_then(|tree| require_tree(store, None, &tree)) {
        Ok(()) => Ok(None),
        Err(e) if e.is_damage() => Ok(Some(e.to_string())),
        Err(e) => Err(e),
    }
}

fn require(store: &Store, candidate: &Candidate) -> Result<(), StoreError> {
    sound(store, &candidate.commit, Kind::Commit)?;
    let tree = store.commit_tree(&candidate.commit)?;
    if tree != candidate.tree {
        return Err(StoreError::WrongObject {
            id: candidate.commit,
            expected: "candidate",
            reason: format!("its tree is {tree}, not {}", candidate.tree),
        });
    }
    let parent = store.commit_tree(&candidate.parent)?;
    require_tree(store, Some(&parent), &tree)
}

fn require_tree(store: &Store, before: Option<&Oid>, now: &Oid) -> Result<(), StoreError> {
    if before == Some(now) {
        return there(store, now);
    }
    let mut was = HashMap::new();
    for entry in before.map_or(Ok(Vec::new()), |id| entries(store, id))? {
        was.insert(entry.name, (entry.mode, entry.id));
    }
    for entry in entries(store, now)? {
        let old = was.get(&entry.name);
        if old == Some(&(entry.mode, entry.id)) {
            if entry.mode != Mode::Submodule {
                there(store, &entry.id)?;
            }
            continue;
        }
        match entry.mode {
            Mode::Tree => {
                let old = old.filter(|(mode, _)| *mode == Mode::Tree).map(|(_, id)| id);
                require_tree(store, old, &entry.id)?;
            }
            // A commit of another repository.
            Mode::Submodule => {}
            Mode::File | Mode::Executable | Mode::Symlink | Mode::OldFile(_) => {
                sound(store, &entry.id, Kind::Blob)?;
            }
        }
    }
    Ok(())
}

fn entries(store: &Store, id: &Oid) -> Result<Vec<tree::Entry>, StoreError> {
    let data = sound(store, id, Kind::Tree)?;
    tree::parse(id.hash(), &data)
        .map_err(|e| StoreError::Unreadable { id: *id, reason: e.to_string() })
}

/// The object's bytes, which must be those that its id names.
fn sound(store: &Store, id: &Oid, kind: Kind) -> Result<Vec<u8>, StoreError> {
    let data = store.require(id, kind)?;
    let actual = hash(id.hash(), kind, &data)?;
    if actual == *id {
        return Ok(data);
    }
    Err(StoreError::Unreadable { id: *id, reason: format!("its bytes are those of {actual}") })
}

fn there(store: &Store, id: &Oid) -> Result<(), StoreError> {
    if store.odb.has(id)? { Ok(()) } else { Err(StoreError::Missing { id: *id }) }
}

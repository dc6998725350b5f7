//! Documents of a state tree, whoever has its objects.
//!
//! Contract: nothing but the given [`Load`] is asked, so what is only in memory reads as what is on disk.

use crate::domain::oid::Oid;
use crate::store::{
    error::StoreError,
    object::Kind,
    tree::{self, Mode},
};

/// Fetches the bytes of an object that must be there and of this kind.
pub(in crate::store) type Load<'a> = &'a dyn Fn(&Oid, Kind) -> Result<Vec<u8>, StoreError>;

/// The document at a path; none when nothing is there or something else than a file is on the way.
pub(in crate::store) fn document(
    load: Load<'_>,
    tree: &Oid,
    path: &str,
) -> Result<Option<Vec<u8>>, StoreError> {
    match at_path(load, tree, path)? {
        Some((_, id)) => load(&id, Kind::Blob).map(Some),
        None => Ok(None),
    }
}

/// All documents below a directory (`""` = all), in path order.
pub(in crate::store) fn documents(
    load: Load<'_>,
    tree: &Oid,
    dir: &str,
) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let dir = dir.trim_end_matches('/');
    let mut found = Vec::new();
    let (root, above) = if dir.is_empty() {
        (*tree, String::new())
    } else {
        match at_path(load, tree, dir)? {
            Some((Mode::Tree, id)) => (id, format!("{dir}/")),
            Some(_) | None => return Ok(found),
        }
    };
    collect(load, &root, &above, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(
    load: Load<'_>,
    tree: &Oid,
    above: &str,
    into: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), StoreError> {
    for entry in entries(load, tree)? {
        let path = format!("{above}{}", String::from_utf8_lossy(&entry.name));
        if entry.mode == Mode::Tree {
            collect(load, &entry.id, &format!("{path}/"), into)?;
        } else {
            into.push((path, load(&entry.id, Kind::Blob)?));
        }
    }
    Ok(())
}

fn at_path(load: Load<'_>, tree: &Oid, path: &str) -> Result<Option<(Mode, Oid)>, StoreError> {
    let mut at = (Mode::Tree, *tree);
    for name in path.split('/') {
        if at.0 != Mode::Tree {
            return Ok(None);
        }
        let entries = entries(load, &at.1)?;
        match entries.into_iter().find(|e| e.name == name.as_bytes()) {
            Some(entry) => at = (entry.mode, entry.id),
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Reads a tree.
pub(in crate::store) fn entries(load: Load<'_>, id: &Oid) -> Result<Vec<tree::Entry>, StoreError> {
    let data = load(id, Kind::Tree)?;
    tree::parse(id.hash(), &data).map_err(|e| StoreError::WrongObject {
        id: *id,
        expected: "tree",
        reason: e.to_string(),
    })
}

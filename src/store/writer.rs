//! This clone's journal identity (design 3.3).
//!
//! Contract: minted at random by the first append, never by reading. It is kept in `agentproto/writer` and
//! noted in the user's state directory under the hash of the repository's path; a lost local file is
//! restored from the log, the note or the only local journal. A note counts only while its journal
//! exists, so a new repository at an old path does not inherit a stranger's name.

use super::{
    Store,
    error::StoreError,
    loose::fresh_name,
    names::{JOURNALS, TMP_PREFIX, journal_ref, journal_writer},
};
use crate::{
    domain::{digest::sha256, ids::WriterId},
    sys::{clock, env::Env, files, lock::KernelLock},
};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Where the note about this repository lies; none when the user has no state directory.
pub(super) fn note_path(env: &Env, common_dir: &Path) -> Option<PathBuf> {
    let name = sha256(common_dir.as_os_str().as_bytes());
    Some(env.state_dir()?.join("writers").join(name))
}

/// The writer of this clone, if it has one.
pub(super) fn find(store: &Store) -> Result<Option<WriterId>, StoreError> {
    if let Some(writer) = read(&store.agent.join("writer"))? {
        return Ok(Some(writer));
    }
    let in_wal = store.with_wal(|wal| {
        Ok(wal.and_then(|w| w.tips().keys().find_map(|name| journal_writer(name))))
    })?;
    if in_wal.is_some() {
        return Ok(in_wal);
    }
    let local: Vec<WriterId> =
        store.refs.names(JOURNALS)?.iter().filter_map(|name| journal_writer(name)).collect();
    let noted = store.note.as_deref().map(read).transpose()?.flatten();
    Ok(match (noted, local.as_slice()) {
        (Some(writer), _) if local.contains(&writer) => Some(writer),
        (_, [only]) => Some(only.clone()),
        _ => None,
    })
}

fn read(path: &Path) -> Result<Option<WriterId>, StoreError> {
    let data = files::read_optional(path)?;
    // An empty or damaged file is a lost one: there are other witnesses.
    Ok(data.and_then(|d| String::from_utf8(d).ok()?.trim().parse().ok()))
}

/// The writer of this clone, minted if it has none, and written down.
pub(super) fn require(store: &Store, _lock: &KernelLock) -> Result<WriterId, StoreError> {
    let file = store.agent.join("writer");
    if let Some(writer) = read(&file)? {
        return Ok(writer);
    }
    let writer = match find(store)? {
        Some(writer) => writer,
        None => mint(store)?,
    };
    let staged = store.agent.join("tmp").join(fresh_name(TMP_PREFIX));
    files::replace(&file, &staged, format!("{writer}\n").as_bytes())?;
    if let Some(note) = &store.note {
        // The note is a second witness; without it the journal ref is one.
        let _ = write_note(note, &writer);
    }
    Ok(writer)
}

fn mint(store: &Store) -> Result<WriterId, StoreError> {
    loop {
        let writer = clock::new_writer_id();
        if store.refs.read(&journal_ref(&writer))?.is_none() {
            return Ok(writer);
        }
    }
}

fn write_note(note: &Path, writer: &WriterId) -> Result<(), StoreError> {
    let dir = note.parent().unwrap_or(note);
    files::make_dirs(dir)?;
    let staged = dir.join(fresh_name(TMP_PREFIX));
    Ok(files::replace(note, &staged, format!("{writer}\n").as_bytes())?)
}

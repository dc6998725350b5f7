//! This clone's journal identity (design 3.3).
//!
//! Contract: minted at random by the first append, never by reading. It is kept in `agentproto/writer`, with the
//! path it is used at, and noted in the user's state directory. A lost local file is restored from the log,
//! or from the journal that a note says is ours: a journal alone proves nothing, a mirror has it too. An id that
//! another git directory uses (this one is a copy) is nobody's here: its journal is read and never written.

use crate::store::{
    Store,
    error::StoreError,
    journal::Tip,
    names::{EVIDENCE, JOURNALS, Segment, chain_parts, journal_ref, journal_writer},
    place::{self, End, Local, Noted, Seen, Standing},
    recovery::Depth,
};
use crate::{
    domain::ids::WriterId,
    sys::{clock, lock::KernelLock},
};
use std::{collections::HashSet, path::PathBuf};

/// The writer of this clone, if it has one.
pub(in crate::store) fn find(store: &Store) -> Result<Option<WriterId>, StoreError> {
    let writer = match written_down(store)? {
        Some(writer) => writer,
        // Nobody is to begin anew in the place of a journal that was taken away.
        None => match gone(store)?.into_iter().next() {
            Some(gone) => gone.writer,
            None => return Ok(None),
        },
    };
    match store.homes.standing(&store.location.common_dir, &writer)? {
        Standing::Ours | Standing::Moved => Ok(Some(writer)),
        Standing::Copy => Ok(None),
    }
}

/// The journal this directory names, and the git directory that goes on with it, where another one does.
pub(in crate::store) fn copied_from(
    store: &Store,
) -> Result<Option<(WriterId, Option<PathBuf>)>, StoreError> {
    let here = &store.location.common_dir;
    let Some(writer) = written_down(store)? else { return Ok(None) };
    match store.homes.standing(here, &writer)? {
        Standing::Ours | Standing::Moved => Ok(None),
        Standing::Copy => {
            let noted = store.homes.noted(&writer)?;
            let local = Local::load(here)?.filter(|l| l.writer == writer).and_then(|l| l.path);
            Ok(Some((writer, noted.or(local))))
        }
    }
}

/// The writer this directory names, whoever uses it.
fn written_down(store: &Store) -> Result<Option<WriterId>, StoreError> {
    let here = &store.location.common_dir;
    if let Some(local) = Local::load(here)? {
        return Ok(Some(local.writer));
    }
    let in_log = store.with_sound_wal(|wal| {
        Ok(wal.and_then(|w| w.tips().keys().find_map(|name| journal_writer(name))))
    })?;
    if in_log.is_some() {
        return Ok(in_log);
    }
    from_journals(store)
}

/// A journal that is not here, though it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Whose.
    pub writer: WriterId,
    /// What tells of it.
    pub witness: Witness,
}

/// What tells of a journal that is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Witness {
    /// An evidence ref: it is made with the journal and never goes before it.
    Evidence(String),
    /// The note of its last event outside, for this very git directory.
    Noted {
        /// Where it is.
        path: PathBuf,
        /// The event that it names can be read, so the journal can be put back.
        is_here: bool,
    },
}

impl std::fmt::Display for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Evidence(name) => {
                write!(f, "{name} keeps alive what it named; git update-ref -d {name} gives it up")
            }
            Self::Noted { path, is_here } => {
                write!(f, "{} notes an event of it in this git directory; ", path.display())?;
                f.write_str(if *is_here {
                    "git agentproto fsck puts it back"
                } else {
                    "git agentproto fsck finds nothing of it to put back: remove that file to give it up"
                })
            }
        }
    }
}

/// Journals that were written here and of which no ref is here, each told of once.
pub(in crate::store) fn gone(store: &Store) -> Result<Vec<Gone>, StoreError> {
    let used = store.homes.used_here(&store.location.common_dir)?.certain;
    let noted = used.into_iter().map(|writer| {
        let is_here = match store.homes.seen(&writer) {
            Noted::Event(seen) => matches!(store.find_object(&seen.id), Ok(Some(_))),
            Noted::Nothing | Noted::Unreadable(_) => false,
        };
        let path = store.homes.seen_file(&writer).unwrap_or_default();
        Gone { writer, witness: Witness::Noted { path, is_here } }
    });
    let evidence = store.refs.names(EVIDENCE)?.into_iter().filter_map(|name| {
        let (writer, _) = chain_parts(&name)?;
        Some(Gone { writer, witness: Witness::Evidence(name) })
    });
    let mut told: Vec<Gone> = noted.chain(evidence).collect();
    if told.is_empty() {
        return Ok(told);
    }
    let names = store.refs.names(JOURNALS)?;
    let mut here: HashSet<WriterId> = names.iter().filter_map(|n| journal_writer(n)).collect();
    here.extend(store.with_sound_wal(|wal| {
        let names = wal.iter().flat_map(|w| w.tips().keys());
        Ok(names.filter_map(|name| journal_writer(name)).collect::<Vec<_>>())
    })?);
    told.retain(|gone| here.insert(gone.writer.clone()));
    Ok(told)
}

/// The id whose journal is here and that the user's notes know: the one at home here, else the only one that moved,
/// else any that is another's.
fn from_journals(store: &Store) -> Result<Option<WriterId>, StoreError> {
    let here = &store.location.common_dir;
    let (mut moved, mut copied) = (Vec::new(), None);
    let names = store.refs.names(JOURNALS)?;
    let mut writers: Vec<WriterId> = names.iter().filter_map(|name| journal_writer(name)).collect();
    // Names are sorted, so the segments of one journal stand together.
    writers.dedup();
    for writer in writers {
        if store.homes.noted(&writer)?.is_none() {
            continue;
        }
        match store.homes.standing(here, &writer)? {
            Standing::Ours => return Ok(Some(writer)),
            Standing::Moved => moved.push(writer),
            Standing::Copy => copied = Some(writer),
        }
    }
    Ok(match moved.as_slice() {
        [only] => Some(only.clone()),
        _ => copied,
    })
}

/// Makes sure, before anything is decided, that no other git directory goes on under the id this one names.
pub(in crate::store) fn settle(store: &Store, _lock: &KernelLock) -> Result<(), StoreError> {
    let here = &store.location.common_dir;
    let Some(writer) = written_down(store)? else { return Ok(()) };
    match store.homes.standing(here, &writer)? {
        Standing::Moved => store.homes.claim(here, &writer).map(drop),
        Standing::Ours | Standing::Copy => Ok(()),
    }
}

/// The writer of this clone, minted if it has none, and written down.
pub(in crate::store) fn require(store: &Store, lock: &KernelLock) -> Result<WriterId, StoreError> {
    let here = &store.location.common_dir;
    if let Some(writer) = find(store)? {
        let known = Local::load(here)?.is_some_and(|l| l.writer == writer);
        if !known || store.homes.noted(&writer)?.is_none() {
            store.homes.claim(here, &writer)?;
        }
        return Ok(writer);
    }
    let copied = written_down(store)?;
    if copied.is_some() {
        store.retire_log(lock)?;
    }
    let writer = mint(store)?;
    // The local file first: a note without it would keep the id from nobody, but stay for ever.
    place::write_local(here, &writer)?;
    store.homes.claim(here, &writer)?;
    if let Some(of) = copied {
        store.said.add(format!(
            "note: this repository is a copy of one that writes journal {of}: it goes on as {writer}, and reads {of} as another clone's"
        ));
    }
    Ok(writer)
}

/// Refuses to go on where the end of our journal that this user's machine noted last is no longer in it; where its
/// objects are still here, the journal is put back first.
pub(in crate::store) fn require_whole(
    store: &Store,
    lock: &KernelLock,
    tip: Option<Tip>,
) -> Result<Option<Tip>, StoreError> {
    let Some(writer) = find(store)? else { return Ok(tip) };
    let seen = match end(store, store.homes.seen(&writer), tip.as_ref())? {
        End::Held | End::Untold(_) if tip.is_none() => {
            return match gone(store)?.into_iter().find(|gone| gone.writer == writer) {
                None => Ok(tip),
                Some(Gone { writer, witness }) => {
                    Err(StoreError::JournalGone { writer, witness: witness.to_string() })
                }
            };
        }
        End::Held => return Ok(tip),
        // The next entry is noted in its place, and then nobody would hear of it.
        End::Untold(note) => {
            store.said.add(format!("note: of journal {writer}, {note}: it may have been set back"));
            return Ok(tip);
        }
        End::Lost(seen) => seen,
    };
    require_on_line(store, &writer, &seen, tip.as_ref())?;
    let name = journal_ref(&writer, segment_of(store, &seen, tip.as_ref())?);
    let actual = store.refs.read_sound(&name)?;
    store.refs.swap(&name, actual, &seen.id, store.ref_wait_ms)?;
    // A log that begins before it takes the newer value over.
    store.recover(lock, Depth::Due, store.ref_wait_ms)?;
    store.own_tip()
}

/// Refuses a noted end that the journal cannot be moved to: its objects are gone, or it is on another line.
pub(in crate::store) fn require_on_line(
    store: &Store,
    writer: &WriterId,
    seen: &Seen,
    tip: Option<&Tip>,
) -> Result<(), StoreError> {
    let there = store.find_object(&seen.id)?.is_some();
    let on_line = match tip {
        Some(tip) => there && store.is_ancestor(&tip.id, &seen.id)?,
        None => there,
    };
    if on_line {
        return Ok(());
    }
    Err(StoreError::SetBack {
        name: journal_ref(writer, Segment::of(seen.seq, store.segment_events)),
        seq: seen.seq,
        seen: seen.id,
        note: store.homes.seen_file(writer).unwrap_or_default(),
    })
}

/// The segment of an entry that comes after `tip`. A batch may have run over the end of one, so its number alone does
/// not tell.
pub(in crate::store) fn segment_of(
    store: &Store,
    seen: &Seen,
    tip: Option<&Tip>,
) -> Result<Segment, StoreError> {
    let mut at = store.entry(&seen.id)?;
    while let Some(parent) = at.parent {
        if let Some(tip) = tip.filter(|tip| tip.id == parent) {
            return Ok(tip.segment);
        }
        at = store.entry(&parent)?;
    }
    Ok(Segment::of(at.seq, store.segment_events))
}

/// The end of our journal against what was noted of it.
pub(in crate::store) fn end(
    store: &Store,
    noted: Noted,
    tip: Option<&Tip>,
) -> Result<End, StoreError> {
    let seen = match noted {
        Noted::Nothing => return Ok(End::Held),
        Noted::Event(seen) => seen,
        Noted::Unreadable(note) => return Ok(End::Untold(note)),
    };
    let holds = match tip {
        Some(tip) if tip.seq < seen.seq => false,
        Some(tip) => {
            tip.id == seen.id
                || store.is_ancestor(&seen.id, &tip.id)?
                // Of a segment that was let go nobody expects anything.
                || seen.seq < store.first_kept(tip)?
        }
        None => false,
    };
    Ok(if holds { End::Held } else { End::Lost(seen) })
}

fn mint(store: &Store) -> Result<WriterId, StoreError> {
    loop {
        let writer = clock::new_writer_id();
        if store.refs.read(&journal_ref(&writer, Segment::FIRST))?.is_none() {
            return Ok(writer);
        }
    }
}

//! Loose objects: written by us, checked by content, removed only at a checkpoint.
//!
//! Contract: an existing file proves nothing (after a power cut it may be empty and shadow a good pack),
//! so a write always replaces. Temporary files lie in `agentproto/tmp`, where git's prune does not look.

use crate::store::{
    error::StoreError,
    names::TMP_PREFIX,
    object::{Kind, Object, hash},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
    sys::files::{self, Durable, FileError},
};
use gix::zlib::{
    Status,
    stream::deflate::{Compress, FlushCompress},
};
use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Times a fan-out directory may vanish under one write (`git gc` removes empty ones).
const WRITE_TRIES: u32 = 8;

/// What is at the place of a loose object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum LooseState {
    /// Nothing.
    Absent,
    /// The object.
    Intact,
    /// Something else: empty, cut short, other content.
    Broken,
}

/// The two directories loose objects need.
#[derive(Clone, Debug)]
pub(in crate::store) struct LooseStore {
    objects: PathBuf,
    tmp: PathBuf,
}

/// A file name nobody else uses: processes differ by pid, calls of one process by number.
pub(in crate::store) fn fresh_name(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl LooseStore {
    /// Over `objects` and `tmp`, which are on one file system.
    pub(in crate::store) fn new(objects: PathBuf, tmp: PathBuf) -> Self {
        Self { objects, tmp }
    }

    fn path(&self, id: &Oid) -> PathBuf {
        let hex = id.to_string();
        self.objects.join(&hex[..2]).join(&hex[2..])
    }

    /// Writes the object whether or not something is there.
    pub(in crate::store) fn write(
        &self,
        object: &Object,
        durable: Durable,
    ) -> Result<(), StoreError> {
        let path = self.path(&object.id);
        let staged = self.tmp.join(fresh_name(&format!("{TMP_PREFIX}obj_")));
        files::write_new(&staged, &deflated(object)?, 0o444, durable)?;
        let mut last = None;
        for _ in 0..WRITE_TRIES {
            match files::rename(&staged, &path) {
                Ok(()) => return Ok(()),
                Err(e) if e.is_missing() => {
                    files::make_dirs(path.parent().unwrap_or(&self.objects))?;
                    last = Some(e);
                }
                Err(e) => return Err(e.into()),
            }
        }
        files::remove_optional(&staged)?;
        last.map_or(Ok(()), |e| Err(e.into()))
    }

    /// Writes the object so that neither bytes nor name can be lost: what a ref will point to next.
    pub(in crate::store) fn write_for_ref(&self, object: &Object) -> Result<(), StoreError> {
        self.write(object, Durable::Yes)?;
        let path = self.path(&object.id);
        files::sync_dir(path.parent().unwrap_or(&self.objects))?;
        Ok(files::sync_dir(&self.objects)?)
    }

    /// True when a file with some content is there; what it holds is not looked at.
    pub(in crate::store) fn is_there(&self, id: &Oid) -> bool {
        let found = files::look(&self.path(id));
        found.is_ok_and(|file| file.is_some_and(|f| f.len() > 0))
    }

    /// Reads what is there and hashes it.
    pub(in crate::store) fn state(&self, id: &Oid) -> Result<LooseState, StoreError> {
        let Some(data) = files::read_optional(&self.path(id), limits::OBJECT_FILE_BYTES)? else {
            return Ok(LooseState::Absent);
        };
        let hashed = inflate(&data).and_then(|raw| hash_raw(id.hash(), &raw));
        Ok(if hashed == Some(*id) { LooseState::Intact } else { LooseState::Broken })
    }

    /// Removes the file.
    pub(in crate::store) fn remove(&self, id: &Oid) -> Result<(), StoreError> {
        files::remove_optional(&self.path(id))?;
        Ok(())
    }

    /// Makes every loose object survive a power cut, for a moment when nothing else proves them.
    pub(in crate::store) fn sync_all(&self) -> Result<(), StoreError> {
        for id in self.ids()? {
            match files::sync_file(&self.path(&id)) {
                Err(e) if !e.is_missing() => return Err(e.into()),
                // Packed and pruned meanwhile.
                Ok(()) | Err(_) => {}
            }
        }
        for byte in 0..=u8::MAX {
            let dir = self.objects.join(format!("{byte:02x}"));
            if files::is_dir(&dir)? {
                files::sync_dir(&dir)?;
            }
        }
        Ok(files::sync_dir(&self.objects)?)
    }

    /// The ids of all loose objects.
    pub(in crate::store) fn ids(&self) -> Result<Vec<Oid>, StoreError> {
        let mut ids = Vec::new();
        for byte in 0..=u8::MAX {
            let dir = format!("{byte:02x}");
            for name in files::names(&self.objects.join(&dir))? {
                ids.extend(
                    name.to_str().and_then(|rest| format!("{dir}{rest}").parse::<Oid>().ok()),
                );
            }
        }
        Ok(ids)
    }
}

fn deflated(object: &Object) -> Result<Vec<u8>, StoreError> {
    let header = format!("{} {}\0", object.kind.name(), object.data.len());
    deflate(&[header.as_bytes(), &object.data], gix::zlib::Compression::BEST_SPEED)
}

thread_local! {
    /// Compressors already set up, by level: making one costs more than compressing an entry's object with it.
    static COMPRESSORS: RefCell<Vec<(i32, Compress)>> = const { RefCell::new(Vec::new()) };
}

/// Compresses the parts as one zlib stream.
pub(in crate::store) fn deflate(
    parts: &[&[u8]],
    level: gix::zlib::Compression,
) -> Result<Vec<u8>, StoreError> {
    let kept = COMPRESSORS.with_borrow_mut(|all| {
        all.iter().position(|(of, _)| *of == level.level()).map(|at| all.swap_remove(at).1)
    });
    let mut state = kept.unwrap_or_else(|| Compress::new(level));
    state.reset();
    let mut out = Vec::new();
    for part in parts {
        feed(&mut state, part, FlushCompress::None, &mut out)?;
    }
    feed(&mut state, &[], FlushCompress::Finish, &mut out)?;
    COMPRESSORS.with_borrow_mut(|all| all.push((level.level(), state)));
    Ok(out)
}

/// Compresses all of `rest`; with `Finish` to the end of the stream.
fn feed(
    state: &mut Compress,
    mut rest: &[u8],
    flush: FlushCompress,
    out: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let failed = |e: std::io::Error| FileError::new("compress", Path::new("object"), e);
    let mut chunk = [0; 16 * 1024];
    loop {
        let (taken, given) = (state.total_in(), state.total_out());
        let status = state
            .compress(rest, &mut chunk, flush)
            .map_err(|e| failed(std::io::Error::other(e.to_string())))?;
        let since = |now: u64, then: u64| usize::try_from(now - then).unwrap_or(usize::MAX);
        let (took, gave) = (since(state.total_in(), taken), since(state.total_out(), given));
        out.extend_from_slice(chunk.get(..gave).unwrap_or_default());
        rest = rest.get(took..).unwrap_or_default();
        let to_the_end = matches!(flush, FlushCompress::Finish);
        let done = if to_the_end { matches!(status, Status::StreamEnd) } else { rest.is_empty() };
        if done {
            return Ok(());
        }
        if took == 0 && gave == 0 {
            return Err(failed(std::io::ErrorKind::WriteZero.into()).into());
        }
    }
}

/// Takes a whole zlib stream apart; none when it is cut short or damaged.
pub(in crate::store) fn inflate(mut data: &[u8]) -> Option<Vec<u8>> {
    let mut state = gix::zlib::Decompress::new();
    let mut out = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match gix::zlib::stream::inflate::read(&mut data, &mut state, &mut chunk) {
            Ok(0) => return Some(out),
            Ok(n) => out.extend_from_slice(&chunk[..n]),
            Err(_) => return None,
        }
    }
}

fn hash_raw(of: HashKind, raw: &[u8]) -> Option<Oid> {
    let end = raw.iter().position(|b| *b == 0)?;
    let (name, size) = std::str::from_utf8(&raw[..end]).ok()?.split_once(' ')?;
    let kind = [Kind::Blob, Kind::Tree, Kind::Commit].into_iter().find(|k| k.name() == name)?;
    let data = &raw[end + 1..];
    // What gets no id is not the object that was asked for.
    (size.parse() == Ok(data.len())).then(|| hash(of, kind, data).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ghost_is_seen_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (objects, tmp) = (dir.path().join("objects"), dir.path().join("tmp"));
        std::fs::create_dir_all(&tmp).unwrap();
        let store = LooseStore::new(objects, tmp.clone());
        let object = Object::new(HashKind::Sha256, Kind::Blob, b"hello\n".repeat(2000)).unwrap();
        assert_eq!(store.state(&object.id).unwrap(), LooseState::Absent);
        store.write(&object, Durable::No).unwrap();
        assert_eq!(store.state(&object.id).unwrap(), LooseState::Intact);
        let path = store.path(&object.id);
        let whole = std::fs::read(&path).unwrap();
        for ghost in [&b""[..], b"x", &whole[..whole.len() / 2]] {
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, ghost).unwrap();
            assert_eq!(store.state(&object.id).unwrap(), LooseState::Broken);
            store.write(&object, Durable::Yes).unwrap();
            assert_eq!(store.state(&object.id).unwrap(), LooseState::Intact);
        }
        assert_eq!(store.ids().unwrap(), [object.id]);
        assert_eq!(files::names(&tmp).unwrap().len(), 0);
    }
}

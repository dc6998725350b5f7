//! Reading objects through the library, under its guards (storage G).
//!
//! Contract: a handle is never used after `objects/pack` changed, a panic of the library ends at this
//! edge, and one failed read is no answer: foreign repacks swap packs under every reader, so a miss or
//! failure counts only after reopening.

use crate::store::{
    caps::Owner,
    error::StoreError,
    location::{Location, OpenError},
    object::{Kind, Object},
};
use crate::{domain::oid::Oid, sys::files};
use std::{
    os::unix::fs::MetadataExt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Memory for decoded objects per handle, bytes: without it every listing decodes the same delta bases.
const OBJECT_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Reads of one object before a failure counts.
const READ_TRIES: u32 = 6;

/// When `objects/pack` was last changed; none when it cannot be told.
type PackStamp = Option<(i64, i64)>;

/// Reader of the object database.
pub(in crate::store) struct Odb {
    owner: Owner,
    git_dir: PathBuf,
    packs: PathBuf,
    handle: Mutex<Option<(PackStamp, gix::Repository)>>,
}

impl Odb {
    /// Opens the repository once, to be refused early.
    pub(in crate::store) fn open(location: &Location, owner: Owner) -> Result<Self, OpenError> {
        let odb = Self {
            owner,
            git_dir: location
                .worktree
                .as_ref()
                .map_or_else(|| location.common_dir.clone(), |w| w.git_dir.clone()),
            packs: location.common_dir.join("objects/pack"),
            handle: Mutex::new(None),
        };
        odb.reopened()?;
        Ok(odb)
    }

    /// A handle that has seen the packs as they are now.
    pub(in crate::store) fn repo(&self) -> Result<gix::Repository, OpenError> {
        let cached = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        match cached.as_ref() {
            Some((stamp, repo)) if stamp.is_some() && *stamp == self.stamp() => Ok(repo.clone()),
            Some(_) | None => {
                drop(cached);
                self.reopened()
            }
        }
    }

    fn reopened(&self) -> Result<gix::Repository, OpenError> {
        // The stamp is older than what the handle sees, never newer.
        let stamp = self.stamp();
        let options = match self.owner {
            Owner::Ourselves => gix::open::Options::isolated(),
            // The library would leave out the repository's own configuration, filters among it.
            Owner::DeclaredSafe => gix::open::Options::isolated().filter_config_section(|_| true),
        };
        let mut repo = options
            .with(gix::sec::Trust::Full)
            .bail_if_untrusted(self.owner == Owner::Ourselves)
            .strict_config(true)
            .open_path_as_is(true)
            .config_overrides(["core.packedRefsTimeout=15000", "core.filesRefLockTimeout=3000"])
            .open(&self.git_dir)
            .map_err(|e| OpenError::Malformed {
                path: self.git_dir.clone(),
                reason: e.to_string(),
            })?
            .to_thread_local();
        repo.object_cache_size_if_unset(OBJECT_CACHE_BYTES);
        // `refs/replace` puts other bytes in the place of what an id names: nothing here may be told by it.
        repo.objects.ignore_replacements = true;
        let kept = repo.clone();
        *self.handle.lock().unwrap_or_else(PoisonError::into_inner) = Some((stamp, kept));
        Ok(repo)
    }

    fn stamp(&self) -> PackStamp {
        let found = files::look_through(&self.packs).ok().flatten();
        found.map(|m| (m.mtime(), m.mtime_nsec()))
    }

    /// The object as far as one look tells: none when it is missing, or cannot be read at this moment.
    pub(in crate::store) fn find_at_once(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        let repo = self.repo()?;
        match catch_unwind(AssertUnwindSafe(|| read(&repo, id))) {
            Ok(Ok(Some(object))) => object.map(Some),
            Ok(Ok(None) | Err(_)) | Err(_) => Ok(None),
        }
    }

    /// The object, none when the database does not have it.
    pub(in crate::store) fn find(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        let mut missed = false;
        let mut reason = String::new();
        for attempt in 0..READ_TRIES {
            let repo = if attempt == 0 { self.repo()? } else { self.reopened()? };
            match catch_unwind(AssertUnwindSafe(|| read(&repo, id))) {
                Ok(Ok(Some(object))) => return object.map(Some),
                Ok(Ok(None)) if missed => return Ok(None),
                Ok(Ok(None)) => missed = true,
                Ok(Err(e)) => reason = e,
                Err(_) => "the git library gave up".clone_into(&mut reason),
            }
            if !reason.is_empty() {
                std::thread::sleep(Duration::from_millis(2 << attempt));
            }
        }
        Err(StoreError::Unreadable { id: *id, reason })
    }

    /// True when the database has the object; what it holds is not looked at.
    pub(in crate::store) fn has(&self, id: &Oid) -> Result<bool, StoreError> {
        let unreadable = |reason| StoreError::Unreadable { id: *id, reason };
        let wanted =
            gix::ObjectId::try_from(id.as_bytes()).map_err(|e| unreadable(e.to_string()))?;
        for fresh in [false, true] {
            let repo = if fresh { self.reopened()? } else { self.repo()? };
            match catch_unwind(AssertUnwindSafe(|| repo.has_object(wanted))) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(_) if fresh => return Err(unreadable("the git library gave up".to_owned())),
                Err(_) => {}
            }
        }
        Ok(false)
    }
}

type Read = Result<Option<Result<Object, StoreError>>, String>;

fn read(repo: &gix::Repository, id: &Oid) -> Read {
    let wanted = gix::ObjectId::try_from(id.as_bytes()).map_err(|e| e.to_string())?;
    // The library expects ids of the repository's hash and gives up over others.
    if wanted.kind() != repo.object_hash() {
        return Ok(None);
    }
    let Some(found) = repo.try_find_object(wanted).map_err(|e| e.to_string())? else {
        return Ok(None);
    };
    let kind = match found.kind {
        gix::objs::Kind::Blob => Kind::Blob,
        gix::objs::Kind::Tree => Kind::Tree,
        gix::objs::Kind::Commit => Kind::Commit,
        gix::objs::Kind::Tag => {
            let reason = "it is a tag".to_owned();
            return Ok(Some(Err(StoreError::WrongObject {
                id: *id,
                expected: "blob, tree or commit",
                reason,
            })));
        }
    };
    Ok(Some(Ok(Object { kind, id: *id, data: found.detach().data })))
}

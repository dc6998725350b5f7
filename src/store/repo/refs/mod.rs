//! Refs, whatever keeps them: reading, moving by compare-and-swap, deleting.
//!
//! Contract: the one way to refs. A missing ref (none), one that cannot be told (an error) and a value are
//! three different answers. Every change names the value it expects and has a deadline; somebody else's
//! lock is waited for, then named, never removed. [`RefReader`] reads, without any lock or program;
//! [`Refs`] changes, too. The library knows the files backend only: in another repository it sees no ref
//! and writes where git never looks. So nobody asks it for refs at all.

mod files;
mod reftable;
mod table;
mod transaction;

use crate::store::{
    error::StoreError,
    failpoint,
    git::Git,
    location::{Location, OpenError},
    object::hash_of,
};
use crate::{
    code::Code,
    domain::{
        candidate::is_head,
        oid::{HashKind, Oid},
    },
    sys::{env::Env, files as disk},
};
use files::RefFiles;
use reftable::RefTables;
use std::path::{Path, PathBuf};
use transaction::{Change, Transactions};

/// Names that git looks up, from one symbolic ref to the next, before it gives up.
const SYMREF_DEPTH: u32 = 5;
/// Refs below `refs/` that each worktree has of its own.
const PER_WORKTREE: [&str; 3] = ["refs/bisect/", "refs/worktree/", "refs/rewritten/"];

/// What keeps the refs of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefFormat {
    /// One file a ref, and `packed-refs`.
    Files,
    /// A stack of tables.
    Reftable,
}

impl RefFormat {
    /// By the value of `extensions.refStorage`.
    ///
    /// # Errors
    /// This version does not know it.
    pub fn named(value: Option<&str>) -> Result<Self, OpenError> {
        match value {
            None | Some("files") => Ok(Self::Files),
            Some("reftable") => Ok(Self::Reftable),
            Some(other) => Err(OpenError::Unsupported {
                what: format!("the '{other}' ref backend"),
                code: Code::RefStorageUnsupported,
            }),
        }
    }
}

/// What is stored under the name of a ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// An object id.
    Id(Oid),
    /// The name of another ref.
    Symbolic(String),
}

/// Reads the refs of one repository.
#[derive(Clone, Debug)]
pub struct RefReader(Backend);

#[derive(Clone, Debug)]
enum Backend {
    Files(RefFiles),
    Reftable(RefTables),
}

impl RefReader {
    fn new(common: PathBuf, hash: HashKind, format: RefFormat) -> Self {
        Self(match format {
            RefFormat::Files => Backend::Files(RefFiles::new(common, hash)),
            RefFormat::Reftable => Backend::Reftable(RefTables::new(common, hash)),
        })
    }

    /// Of the repository that a library handle is opened on.
    ///
    /// # Errors
    /// Its directory cannot be looked at, or its backend is not known.
    pub fn of(repo: &gix::Repository) -> Result<Self, StoreError> {
        // As git: only the repository itself says how it is made.
        let own = |meta: &gix::config::file::Metadata| meta.source == gix::config::Source::Local;
        let config = repo.config_snapshot();
        let set = config.plumbing().string_filter("extensions.refStorage", own);
        let format = RefFormat::named(set.map(|v| v.to_string()).as_deref())?;
        Ok(Self::new(disk::real(repo.common_dir())?, hash_of(repo), format))
    }

    /// What keeps the refs.
    #[must_use]
    pub fn format(&self) -> RefFormat {
        match &self.0 {
            Backend::Files(_) => RefFormat::Files,
            Backend::Reftable(_) => RefFormat::Reftable,
        }
    }

    /// The value of a ref by its full name, symbolic ones followed; none when it does not exist.
    /// `worktrees/<id>/HEAD` and `main-worktree/HEAD` work, too.
    ///
    /// # Errors
    /// What is there is no object id, or cannot be read.
    pub fn read(&self, full_name: &str) -> Result<Option<Oid>, StoreError> {
        let mut name = full_name.to_owned();
        for _ in 0..SYMREF_DEPTH {
            match self.stored(&name)? {
                Some(Stored::Symbolic(target)) => name = seen_from(&name, target),
                Some(Stored::Id(id)) => return Ok(Some(id)),
                None => return Ok(None),
            }
        }
        Err(broken(full_name, "too many symbolic hops"))
    }

    /// The name of the ref that one finally leads to, which may be itself and need not exist: moving the one moves the
    /// other. None for a name that leads round, or further than git follows.
    ///
    /// # Errors
    /// A name on the way cannot be looked up; a value that is no object id ends the way.
    pub fn leads_to(&self, full_name: &str) -> Result<Option<String>, StoreError> {
        let mut name = full_name.to_owned();
        for _ in 0..SYMREF_DEPTH {
            match self.stored(&name) {
                Ok(Some(Stored::Symbolic(target))) => name = seen_from(&name, target),
                Ok(Some(Stored::Id(_)) | None) | Err(StoreError::BrokenRef { .. }) => {
                    return Ok(Some(name));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// The commit that a branch is at, or the `HEAD` of a worktree that is on none; none for a branch that does not
    /// exist and for a `HEAD` that is on one.
    ///
    /// # Errors
    /// As [`RefReader::read`].
    pub fn tip(&self, full_name: &str) -> Result<Option<Oid>, StoreError> {
        if !is_head(full_name) {
            return self.read(full_name);
        }
        Ok(match self.stored(full_name)? {
            Some(Stored::Id(id)) => Some(id),
            Some(Stored::Symbolic(_)) | None => None,
        })
    }

    /// As [`RefReader::read`], a value that is no object id counting as none: for those who can restore it.
    pub(in crate::store) fn read_sound(&self, full_name: &str) -> Result<Option<Oid>, StoreError> {
        let read = self.read(full_name);
        if matches!(read, Err(StoreError::BrokenRef { .. })) { Ok(None) } else { read }
    }

    /// As [`RefReader::read`], for a ref that always leads somewhere: the name of one that is not there is broken.
    ///
    /// # Errors
    /// As there.
    pub(in crate::store) fn read_leading(
        &self,
        full_name: &str,
    ) -> Result<Option<Oid>, StoreError> {
        let read = self.read(full_name)?;
        match read.map_or_else(|| self.stored(full_name), |_| Ok(None))? {
            Some(Stored::Symbolic(to)) => {
                Err(broken(full_name, &format!("it leads to {to}, which is not there")))
            }
            Some(Stored::Id(_)) | None => Ok(read),
        }
    }

    /// What is stored under the name itself; none when there is nothing.
    ///
    /// # Errors
    /// As [`RefReader::read`].
    pub fn stored(&self, full_name: &str) -> Result<Option<Stored>, StoreError> {
        check_name(full_name)?;
        match &self.0 {
            Backend::Files(backend) => backend.stored(full_name),
            Backend::Reftable(backend) => backend.stored(full_name),
        }
    }

    /// The name of every ref below `prefix` (which ends in a slash), sorted.
    ///
    /// # Errors
    /// They cannot be listed.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        match &self.0 {
            Backend::Files(backend) => backend.names(prefix),
            Backend::Reftable(backend) => backend.names(prefix),
        }
    }

    /// The lock files that can keep git from changing a ref, the most telling one first.
    fn locks(&self, full_name: &str) -> Vec<PathBuf> {
        match &self.0 {
            Backend::Files(backend) => backend.locks(full_name).to_vec(),
            Backend::Reftable(backend) => backend.locks(full_name),
        }
    }

    /// The files of which one is another whenever the ref is.
    #[must_use]
    pub fn shows_in(&self, full_name: &str) -> Vec<PathBuf> {
        match &self.0 {
            Backend::Files(backend) => backend.shows_in(full_name),
            Backend::Reftable(backend) => vec![backend.shows_in(full_name)],
        }
    }

    /// Makes the value of a ref survive a power cut, wherever it is stored, be it under the name of another one.
    ///
    /// # Errors
    /// What holds the ref cannot be synced.
    pub fn sync(&self, full_name: &str) -> Result<(), StoreError> {
        let name = self.leads_to(full_name)?.unwrap_or_else(|| full_name.to_owned());
        let places = match &self.0 {
            Backend::Files(backend) => backend.places(&name),
            Backend::Reftable(backend) => backend.places(&name)?,
        };
        places.iter().try_for_each(|path| match disk::sync_file(path) {
            // A ref is in one of its places, and git may merge tables meanwhile.
            Err(e) if !e.is_missing() => Err(e.into()),
            Ok(()) | Err(_) => Ok(()),
        })
    }
}

/// The name that `HEAD` of the worktree with this git directory has for the whole repository.
///
/// # Errors
/// The directories cannot be looked at, or their names are not UTF-8.
pub fn head_name(repo: &gix::Repository) -> Result<String, StoreError> {
    head_name_of(repo.git_dir(), repo.common_dir())
}

/// As [`head_name`], by directories.
///
/// # Errors
/// As there.
pub fn head_name_of(git_dir: &Path, common_dir: &Path) -> Result<String, StoreError> {
    let git_dir = disk::real(git_dir)?;
    if git_dir == disk::real(common_dir)? {
        return Ok("main-worktree/HEAD".to_owned());
    }
    let id = git_dir.file_name().and_then(|name| name.to_str());
    id.map(|id| format!("worktrees/{id}/HEAD")).ok_or_else(|| {
        let reason = "the worktree's name is not UTF-8".to_owned();
        OpenError::Malformed { path: git_dir.clone(), reason }.into()
    })
}

/// The whole repository's name for what a ref of one worktree points to.
fn seen_from(name: &str, target: String) -> String {
    let own = !target.starts_with("refs/") || PER_WORKTREE.iter().any(|p| target.starts_with(p));
    let id = name.strip_prefix("worktrees/").and_then(|rest| rest.split('/').next());
    match id {
        Some(id) if own => format!("worktrees/{id}/{target}"),
        Some(_) | None => target,
    }
}

/// The refs of one repository: reading and changing them.
pub(in crate::store) struct Refs {
    reader: RefReader,
    git: Transactions,
}

impl std::ops::Deref for Refs {
    type Target = RefReader;

    fn deref(&self) -> &RefReader {
        &self.reader
    }
}

impl Refs {
    pub(in crate::store) fn new(
        location: &Location,
        hash: HashKind,
        format: RefFormat,
        env: &Env,
    ) -> Self {
        Self {
            reader: RefReader::new(location.common_dir.clone(), hash, format),
            git: Transactions::new(location, env),
        }
    }

    /// Moves a ref from `old` to `new`, waiting up to `wait_ms` for a foreign lock. The caller holds the
    /// kernel lock. A present but unreadable value counts as none: only recovery meets one.
    pub(in crate::store) fn swap(
        &self,
        name: &str,
        old: Option<Oid>,
        new: &Oid,
        wait_ms: u64,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        match &self.reader.0 {
            Backend::Files(backend) => {
                backend.swap(name, old, new, wait_ms, || self.reader.read_sound(name))
            }
            Backend::Reftable(_) => {
                let change = Change { name, old, new: Some(*new) };
                self.git.perform(&self.reader, &change, wait_ms)?;
                failpoint::reached("ref moved")
            }
        }
    }

    /// The user's git where the store was opened.
    pub(in crate::store) fn git(&self) -> Result<Git, StoreError> {
        self.git.nearby()
    }

    /// Deletes a ref that is at `old`, loose or packed, waiting up to `wait_ms` for a foreign lock.
    pub(in crate::store) fn delete(
        &self,
        name: &str,
        old: Oid,
        wait_ms: u64,
    ) -> Result<(), StoreError> {
        check_name(name)?;
        let change = Change { name, old: Some(old), new: None };
        self.git.perform(&self.reader, &change, wait_ms)
    }

    /// Makes sure that there is a `packed-refs` file where the backend has one.
    pub(in crate::store) fn ensure_packed(&self) -> Result<(), StoreError> {
        match &self.reader.0 {
            Backend::Files(backend) => backend.ensure_packed(),
            Backend::Reftable(_) => Ok(()),
        }
    }

    /// True when the backend has a `packed-refs` file and it is missing.
    pub(in crate::store) fn lacks_packed(&self) -> Result<bool, StoreError> {
        match &self.reader.0 {
            Backend::Files(backend) => backend.lacks_packed(),
            Backend::Reftable(_) => Ok(false),
        }
    }

    /// What lies in the place of a ref of ours, or of a directory of such, and cannot be one; each by its path.
    pub(in crate::store) fn unfit(&self) -> Result<Vec<(PathBuf, disk::Unfit)>, StoreError> {
        match &self.reader.0 {
            Backend::Files(backend) => backend.unfit(),
            Backend::Reftable(_) => Ok(Vec::new()),
        }
    }

    /// Why git cannot read what it keeps of all refs in one file; none where it can, or keeps no such file.
    pub(in crate::store) fn packed_damage(&self) -> Result<Option<String>, StoreError> {
        match &self.reader.0 {
            Backend::Files(backend) => backend.packed_damage(),
            Backend::Reftable(_) => Ok(None),
        }
    }

    /// What is stored under a name that holds no id, as a file would have it.
    pub(in crate::store) fn bytes(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        check_name(name)?;
        match &self.reader.0 {
            Backend::Files(backend) => backend.bytes(name),
            Backend::Reftable(backend) => Ok(match backend.stored(name)? {
                Some(Stored::Symbolic(to)) => format!("ref: {to}\n").into_bytes(),
                Some(Stored::Id(id)) => format!("{id}\n").into_bytes(),
                None => Vec::new(),
            }),
        }
    }

    /// Removes what dead processes of ours left. The caller holds the kernel lock.
    pub(in crate::store) fn sweep(&self) -> Result<u64, StoreError> {
        match &self.reader.0 {
            Backend::Files(backend) => backend.sweep(),
            // git writes there for us, and takes everything back when we die. What is found is older than a
            // move of the repository from files to tables.
            Backend::Reftable(backend) => backend.as_files().sweep(),
        }
    }
}

/// True if a ref can have this full name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    gix::refs::FullName::try_from(name).is_ok()
}

fn check_name(name: &str) -> Result<(), StoreError> {
    match gix::refs::FullName::try_from(name) {
        Ok(_) => Ok(()),
        Err(e) => Err(broken(name, &e.to_string())),
    }
}

fn broken(name: &str, reason: &str) -> StoreError {
    StoreError::BrokenRef { name: name.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests;

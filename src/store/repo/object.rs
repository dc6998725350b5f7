//! Git objects as plain bytes, before they are written anywhere.

use crate::domain::oid::{HashKind, Oid};

/// Kind of a git object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// File content.
    Blob,
    /// Directory.
    Tree,
    /// Commit.
    Commit,
}

impl Kind {
    /// git's name for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::Commit => "commit",
        }
    }
}

/// An object with its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// What it is.
    pub kind: Kind,
    /// Hash of header and bytes.
    pub id: Oid,
    /// Content without header.
    pub data: Vec<u8>,
}

impl Object {
    /// Hashes `data` as git does in a repository of this hash.
    ///
    /// # Errors
    /// See [`HashError`].
    pub fn new(hash: HashKind, kind: Kind, data: Vec<u8>) -> Result<Self, HashError> {
        let id = self::hash(hash, kind, &data)?;
        Ok(Self { kind, id, data })
    }
}

/// Bytes that get no id, hence are stored nowhere: they carry the mark of a SHA-1 collision attack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no id for these bytes: {reason}")]
pub struct HashError {
    /// The library's words.
    pub reason: String,
}

/// The id of `data` as an object of this kind.
///
/// # Errors
/// See [`HashError`].
pub fn hash(hash: HashKind, kind: Kind, data: &[u8]) -> Result<Oid, HashError> {
    let header = format!("{} {}\0", kind.name(), data.len());
    digest(hash, &[header.as_bytes(), data])
}

/// The checksum of some parts, one after the other.
///
/// # Errors
/// See [`HashError`].
pub(in crate::store) fn digest(hash: HashKind, parts: &[&[u8]]) -> Result<Oid, HashError> {
    let mut hasher = gix::hash::hasher(library_kind(hash));
    parts.iter().for_each(|part| hasher.update(part));
    let id = hasher.try_finalize().map_err(|e| HashError { reason: e.to_string() })?;
    Oid::from_bytes(id.as_slice()).map_err(|e| HashError { reason: e.to_string() })
}

/// The library's name of a hash.
#[must_use]
pub fn library_kind(hash: HashKind) -> gix::hash::Kind {
    match hash {
        HashKind::Sha1 => gix::hash::Kind::Sha1,
        HashKind::Sha256 => gix::hash::Kind::Sha256,
    }
}

/// The hash of an opened repository.
#[must_use]
pub fn hash_of(repo: &gix::Repository) -> HashKind {
    // The library opens repositories of these two only.
    if repo.object_hash() == gix::hash::Kind::Sha256 { HashKind::Sha256 } else { HashKind::Sha1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testlab::TestRepo;

    #[test]
    fn hashes_as_git_does() {
        let id = |of, kind, data: &[u8]| hash(of, kind, data).unwrap().to_string();
        for of in HashKind::ALL {
            let repo = TestRepo::of(of);
            for data in ["", "hello\n"] {
                let git = repo.git_fed(&["hash-object", "--stdin"], data);
                assert_eq!(id(of, Kind::Blob, data.as_bytes()), git);
            }
            assert_eq!(id(of, Kind::Tree, b""), repo.git_fed(&["mktree"], ""));
        }
    }
}

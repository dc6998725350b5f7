//! Git objects as plain bytes, before they are written anywhere.

use crate::domain::oid::Oid;

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
    /// Hashes `data` as git does (SHA-1 repositories).
    #[must_use]
    pub fn new(kind: Kind, data: Vec<u8>) -> Self {
        let id = hash(kind, &data);
        Self { kind, id, data }
    }
}

/// The SHA-1 id of `data` as an object of this kind.
#[must_use]
pub fn hash(kind: Kind, data: &[u8]) -> Oid {
    let mut hasher = gix::hash::hasher(gix::hash::Kind::Sha1);
    hasher.update(format!("{} {}\0", kind.name(), data.len()).as_bytes());
    hasher.update(data);
    match hasher.try_finalize() {
        Ok(id) => Oid::from_bytes(id.as_slice()).unwrap_or_else(|_| Oid::from_sha1([0; 20])),
        // A detected SHA-1 collision attack: no object of ours can be stored under such an id.
        Err(_) => Oid::from_sha1([0; 20]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_git_does() {
        let empty = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
        assert_eq!(hash(Kind::Blob, b"").to_string(), empty);
        assert_eq!(hash(Kind::Tree, b"").to_string(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    }
}

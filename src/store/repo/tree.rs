//! Git trees as raw bytes: read, write, edit.
//!
//! Contract: no index, no object store. [`edit`] asks its caller for the trees it needs and hands back the
//! ones it made; entries nobody named keep their mode and place. Directories left empty vanish, as in git.
//! Where a file and a directory claim one name nothing gives way by itself: that is an error.

use crate::store::object::{HashError, Kind, Object};
use crate::{
    code::Code,
    domain::{
        oid::{HashKind, Oid},
        path::quoted,
    },
};
use std::{cmp::Ordering, collections::BTreeMap};

/// What a tree entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `40000`.
    Tree,
    /// `100644`.
    File,
    /// `100755`.
    Executable,
    /// `120000`.
    Symlink,
    /// `160000`.
    Submodule,
    /// Other permission bits of a regular file, as old tools wrote them (`100664`); kept, never made.
    OldFile(u32),
}

impl Mode {
    /// The mode as git stores it.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::Tree => 0o40_000,
            Self::File => 0o100_644,
            Self::Executable => 0o100_755,
            Self::Symlink => 0o120_000,
            Self::Submodule => 0o160_000,
            Self::OldFile(bits) => bits,
        }
    }

    /// Reads the octal digits of a tree entry; a leading zero is accepted.
    #[must_use]
    pub fn parse(digits: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(digits).ok().filter(|t| !t.starts_with('+'))?;
        match u32::from_str_radix(text, 8).ok()? {
            0o40_000 => Some(Self::Tree),
            0o100_644 => Some(Self::File),
            0o100_755 => Some(Self::Executable),
            0o120_000 => Some(Self::Symlink),
            0o160_000 => Some(Self::Submodule),
            bits if bits & 0o170_000 == 0o100_000 && bits <= 0o107_777 => Some(Self::OldFile(bits)),
            _ => None,
        }
    }
}

/// One line of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub mode: Mode,
    /// Its name, without slash.
    pub name: Vec<u8>,
    /// What it points to.
    pub id: Oid,
}

/// Bytes that are no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a tree: malformed entry at byte {at}")]
pub struct TreeError {
    /// Where the first bad entry starts.
    pub at: usize,
}

impl TreeError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::StoreUnusable
    }
}

/// Reads the entries of a tree of this hash in their stored order.
///
/// # Errors
/// A mode git does not know, an empty name, an entry cut short.
pub fn parse(hash: HashKind, data: &[u8]) -> Result<Vec<Entry>, TreeError> {
    let mut entries = Vec::new();
    let mut rest = data;
    while !rest.is_empty() {
        let at = data.len() - rest.len();
        let (entry, after) = parse_entry(hash, rest).ok_or(TreeError { at })?;
        entries.push(entry);
        rest = after;
    }
    Ok(entries)
}

fn parse_entry(hash: HashKind, data: &[u8]) -> Option<(Entry, &[u8])> {
    let space = data.iter().position(|b| *b == b' ')?;
    let (digits, rest) = (&data[..space], &data[space + 1..]);
    let nul = rest.iter().position(|b| *b == 0).filter(|at| *at > 0)?;
    let (name, rest) = (&rest[..nul], &rest[nul + 1..]);
    let (id, rest) = rest.split_at_checked(hash.id_bytes())?;
    let id = Oid::from_bytes(id).ok()?;
    Some((Entry { mode: Mode::parse(digits)?, name: name.to_vec(), id }, rest))
}

/// Writes entries as a tree, in git's order whatever order they come in.
#[must_use]
pub fn serialize(entries: &[Entry]) -> Vec<u8> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| order(a, b));
    let mut data = Vec::new();
    for entry in sorted {
        data.extend_from_slice(format!("{:o} ", entry.mode.bits()).as_bytes());
        data.extend_from_slice(&entry.name);
        data.push(0);
        data.extend_from_slice(entry.id.as_bytes());
    }
    data
}

/// git sorts a directory as if its name ended in a slash.
fn order(a: &Entry, b: &Entry) -> Ordering {
    let tail = |e: &Entry| (e.mode == Mode::Tree).then_some(b'/');
    a.name.iter().copied().chain(tail(a)).cmp(b.name.iter().copied().chain(tail(b)))
}

/// What one path shall hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The path from the edited tree, `/`-separated.
    pub path: Vec<u8>,
    /// The new entry; none removes what is there. Removing what is not there is fine.
    pub to: Option<(Mode, Oid)>,
}

/// A tree could not be edited. `E` is how the caller's reader fails.
#[derive(Debug, thiserror::Error)]
pub enum TreeEditError<E> {
    /// A tree could not be read.
    #[error(transparent)]
    Load(E),
    /// A tree was read and is none.
    #[error("tree {id}: {source}")]
    Malformed {
        /// Which one.
        id: Oid,
        /// What is wrong with it.
        source: TreeError,
    },
    /// The new tree would have no id.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// A tree holds ids of one hash only.
    #[error("'{}' would hold {id}, an id of another hash", quoted(path))]
    OtherHash {
        /// The path, from the edited tree.
        path: Vec<u8>,
        /// What it would hold.
        id: Oid,
    },
    /// The path has an empty name in it, a NUL, or names a directory as a file's mode.
    #[error("cannot store the path '{}'", quoted(path))]
    BadPath {
        /// The path.
        path: Vec<u8>,
    },
    /// A file and a directory would have the same name.
    #[error("'{}' would be a file and a directory at once", quoted(path))]
    Conflict {
        /// Their name, from the edited tree.
        path: Vec<u8>,
    },
}

impl<E> TreeEditError<E> {
    /// The stable code; `of_load` names the one of a failed read.
    pub fn code(&self, of_load: impl FnOnce(&E) -> Code) -> Code {
        match self {
            Self::Load(e) => of_load(e),
            Self::Malformed { source, .. } => source.code(),
            Self::Hash(_) | Self::OtherHash { .. } => Code::StoreUnusable,
            Self::BadPath { .. } => Code::PathEmpty,
            Self::Conflict { .. } => Code::PathConflicts,
        }
    }
}

/// Applies all changes at once, so their order only matters for one path named twice: the last counts.
/// Answers the new root and every tree that differs from the one it replaces, children first.
///
/// # Errors
/// See [`TreeEditError`]; nothing was made then.
pub fn edit<E>(
    hash: HashKind,
    root: Option<Oid>,
    changes: &[Change],
    load: &mut dyn FnMut(&Oid) -> Result<Vec<u8>, E>,
) -> Result<(Oid, Vec<Object>), TreeEditError<E>> {
    for change in changes {
        if !storable(change) {
            return Err(TreeEditError::BadPath { path: change.path.clone() });
        }
        if let Some((_, id)) = change.to.filter(|(_, id)| id.hash() != hash) {
            return Err(TreeEditError::OtherHash { path: change.path.clone(), id });
        }
    }
    let steps: Vec<Step<'_>> = changes.iter().map(|c| (c.path.as_slice(), c.to)).collect();
    let mut editor = Editor { hash, load, made: Vec::new() };
    let id = match editor.directory(root, &steps, &[])? {
        Some(id) => id,
        None => editor.keep(Vec::new(), root)?,
    };
    Ok((id, editor.made))
}

fn storable(change: &Change) -> bool {
    let names_fit = change.path.split(|b| *b == b'/').all(|n| !n.is_empty() && !n.contains(&0));
    names_fit && change.to.is_none_or(|(mode, _)| mode != Mode::Tree)
}

type Step<'a> = (&'a [u8], Option<(Mode, Oid)>);

/// What the changes say about one name of a directory.
#[derive(Default)]
struct Wanted<'a> {
    itself: Option<Option<(Mode, Oid)>>,
    below: Vec<Step<'a>>,
}

struct Editor<'l, E> {
    hash: HashKind,
    load: &'l mut dyn FnMut(&Oid) -> Result<Vec<u8>, E>,
    made: Vec<Object>,
}

impl<E> Editor<'_, E> {
    /// Edits one directory; none = nothing is left in it.
    fn directory(
        &mut self,
        old: Option<Oid>,
        steps: &[Step<'_>],
        above: &[u8],
    ) -> Result<Option<Oid>, TreeEditError<E>> {
        let mut entries = match old {
            None => Vec::new(),
            Some(id) => {
                let data = (self.load)(&id).map_err(TreeEditError::Load)?;
                parse(self.hash, &data).map_err(|source| TreeEditError::Malformed { id, source })?
            }
        };
        for (name, wanted) in by_name(steps) {
            let path = [above, name].concat();
            let found = entries.iter().position(|e| e.name == name).map(|at| entries.remove(at));
            if let Some((mode, id)) = self.name(found, &wanted, path)? {
                entries.push(Entry { mode, name: name.to_vec(), id });
            }
        }
        if entries.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.keep(serialize(&entries), old)?))
    }

    /// Decides what one name holds in the end.
    fn name(
        &mut self,
        found: Option<Entry>,
        wanted: &Wanted<'_>,
        path: Vec<u8>,
    ) -> Result<Option<(Mode, Oid)>, TreeEditError<E>> {
        let (old_dir, old_file) = match found {
            Some(e) if e.mode == Mode::Tree => (Some(e.id), None),
            Some(e) => (None, Some((e.mode, e.id))),
            None => (None, None),
        };
        let dir = if wanted.below.is_empty() {
            old_dir
        } else {
            self.directory(old_dir, &wanted.below, &[&path, b"/".as_slice()].concat())?
        };
        let file = wanted.itself.unwrap_or(old_file);
        match (dir, file) {
            (Some(_), Some(_)) => Err(TreeEditError::Conflict { path }),
            // Removing a file where a directory stays would leave the caller with a wrong picture.
            (Some(_), None) if wanted.itself.is_some() && old_file.is_none() => {
                Err(TreeEditError::Conflict { path })
            }
            (Some(id), None) => Ok(Some((Mode::Tree, id))),
            (None, file) => Ok(file),
        }
    }

    fn keep(&mut self, data: Vec<u8>, old: Option<Oid>) -> Result<Oid, HashError> {
        let tree = Object::new(self.hash, Kind::Tree, data)?;
        let id = tree.id;
        if old != Some(id) {
            self.made.push(tree);
        }
        Ok(id)
    }
}

fn by_name<'a>(steps: &[Step<'a>]) -> BTreeMap<&'a [u8], Wanted<'a>> {
    let mut names: BTreeMap<&[u8], Wanted<'_>> = BTreeMap::new();
    for (path, to) in steps {
        match path.iter().position(|b| *b == b'/') {
            None => names.entry(path).or_default().itself = Some(*to),
            Some(at) => {
                names.entry(&path[..at]).or_default().below.push((&path[at + 1..], *to));
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const HASH: HashKind = HashKind::Sha256;

    /// Trees in memory, read back as an object store would.
    #[derive(Default)]
    struct Trees(HashMap<Oid, Vec<u8>>);

    impl Trees {
        fn edit(&mut self, root: Option<Oid>, changes: &[Change]) -> Result<Oid, String> {
            let mut load = |id: &Oid| self.0.get(id).cloned().ok_or("missing".to_owned());
            let (id, made) = edit(HASH, root, changes, &mut load).map_err(|e| e.to_string())?;
            self.0.extend(made.into_iter().map(|o| (o.id, o.data)));
            Ok(id)
        }

        fn files(&self, id: Oid, above: &str, into: &mut BTreeMap<String, Oid>) {
            for e in parse(HASH, &self.0[&id]).unwrap() {
                let path = format!("{above}{}", String::from_utf8(e.name).unwrap());
                if e.mode == Mode::Tree {
                    self.files(e.id, &format!("{path}/"), into);
                } else {
                    into.insert(path, e.id);
                }
            }
        }
    }

    fn blob(n: u8) -> Oid {
        Oid::from_bytes(&[n; HASH.id_bytes()]).unwrap()
    }

    fn put(path: &str, n: u8) -> Change {
        Change { path: path.into(), to: Some((Mode::File, blob(n))) }
    }

    fn gone(path: &str) -> Change {
        Change { path: path.into(), to: None }
    }

    #[test]
    fn git_sorts_directories_with_a_slash() {
        let e = |mode, name: &str| Entry { mode, name: name.into(), id: blob(1) };
        let data = serialize(&[e(Mode::Tree, "a"), e(Mode::File, "a0"), e(Mode::File, "a.c")]);
        let names: Vec<_> = parse(HASH, &data).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, [b"a.c".to_vec(), b"a".to_vec(), b"a0".to_vec()]);
    }

    #[test]
    fn unusual_modes_of_untouched_entries_stay() {
        let mut data = b"100664 old\0".to_vec();
        data.extend_from_slice(blob(3).as_bytes());
        let mut trees = Trees::default();
        let root = Object::new(HASH, Kind::Tree, data).unwrap();
        trees.0.insert(root.id, root.data);
        let id = trees.edit(Some(root.id), &[put("new", 1)]).unwrap();
        assert!(trees.0[&id].windows(10).any(|w| w == b"100664 old"));
    }

    #[test]
    fn malformed_trees_are_named_not_guessed() {
        for bad in
            [&b"100644"[..], b"100644 \0", b"100644 a\0short", b"777 a\0aaaaaaaaaaaaaaaaaaaa"]
        {
            assert_eq!(parse(HashKind::Sha1, bad), Err(TreeError { at: 0 }));
        }
    }

    /// A tree read by another hash than its own has other names and ids, or none.
    #[test]
    fn a_tree_holds_ids_of_one_hash() {
        let entry = Entry { mode: Mode::File, name: b"a".to_vec(), id: blob(1) };
        let data = serialize(&[entry]);
        assert_eq!(parse(HASH, &data).unwrap().len(), 1);
        assert_eq!(parse(HashKind::Sha1, &data), Err(TreeError { at: 29 }));
        let other = Some((Mode::File, Oid::from_sha1([1; 20])));
        let change = Change { path: b"a/b".to_vec(), to: other };
        let refused = Trees::default().edit(None, &[change]).unwrap_err();
        assert!(refused.contains("an id of another hash"), "{refused}");
    }

    #[test]
    fn a_file_and_a_directory_never_share_a_name() {
        let mut trees = Trees::default();
        let root = trees.edit(None, &[put("a", 1), put("d/x", 2)]).unwrap();
        let conflict = |p: &str| Err(format!("'{p}' would be a file and a directory at once"));
        assert_eq!(trees.edit(Some(root), &[put("a/b", 1)]), conflict("a"));
        assert_eq!(trees.edit(Some(root), &[put("d", 1)]), conflict("d"));
        assert_eq!(trees.edit(Some(root), &[gone("d")]), conflict("d"));
        let swapped =
            trees.edit(Some(root), &[gone("a"), put("a/b", 1), gone("d/x"), put("d", 4)]).unwrap();
        let mut files = BTreeMap::new();
        trees.files(swapped, "", &mut files);
        assert_eq!(files.keys().collect::<Vec<_>>(), ["a/b", "d"]);
    }

    #[test]
    fn an_empty_tree_is_gits_empty_tree() {
        let mut trees = Trees::default();
        let root = trees.edit(None, &[put("a/b/c", 1)]).unwrap();
        let empty = trees.edit(Some(root), &[gone("a/b/c"), gone("never/there")]).unwrap();
        assert_eq!(empty, crate::store::object::hash(HASH, Kind::Tree, b"").unwrap());
        assert!(matches!(trees.edit(None, &[put("a//b", 1)]), Err(m) if m.contains("a//b")));
    }

    #[test]
    fn an_edit_that_changes_nothing_makes_nothing() {
        let mut trees = Trees::default();
        let root = trees.edit(None, &[put("a/b", 1)]).unwrap();
        let mut load = |id: &Oid| Ok::<_, ()>(trees.0[id].clone());
        let (same, made) = edit(HASH, Some(root), &[put("a/b", 1), gone("z")], &mut load).unwrap();
        assert_eq!((same, made), (root, vec![]));
    }

    proptest! {
        /// Any sequence of edits without conflicts equals the same edits on a flat map.
        #[test]
        fn edits_agree_with_a_flat_map(
            rounds in prop::collection::vec(
                prop::collection::vec(("[ab](/[ab.]x){0,3}f", prop::option::of(1u8..9)), 0..8), 0..6)
        ) {
            let mut trees = Trees::default();
            let mut flat: BTreeMap<String, Oid> = BTreeMap::new();
            let mut root = None;
            for round in rounds {
                let changes: Vec<Change> = round
                    .iter()
                    .map(|(p, n)| n.map_or_else(|| gone(p), |n| put(p, n)))
                    .collect();
                root = Some(trees.edit(root, &changes).unwrap());
                for (path, n) in round {
                    match n {
                        Some(n) => drop(flat.insert(path, blob(n))),
                        None => drop(flat.remove(&path)),
                    }
                }
            }
            let mut files = BTreeMap::new();
            if let Some(root) = root {
                trees.files(root, "", &mut files);
            }
            prop_assert_eq!(files, flat);
        }
    }
}

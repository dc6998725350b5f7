//! What a power cut may leave of a directory: which bytes and which names had been made durable.
//!
//! Contract: bytes are durable as they were at the last fsync of their file, names as they were at the last
//! fsync of their directory; of everything else nothing is promised, and [`Disk::rebuild`] makes the worst of
//! it. What was there before the watch began, and what a program other than this one wrote, counts as synced.

use super::super::files::Op;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Which of the names that were not synced are there afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Names {
    /// None: every directory as at its last fsync.
    Lost,
    /// All.
    Kept,
    /// By chance.
    Mixed,
}

/// What becomes of bytes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bytes {
    /// The file is as at its last fsync, a new one empty.
    Old,
    /// They are zeros.
    Zero,
    /// Some of them, from the front, arrived; the rest is as before.
    Torn,
    /// By chance, file by file.
    Mixed,
}

/// One way to lose power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) names: Names,
    pub(crate) bytes: Bytes,
    pub(crate) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(usize),
}

#[derive(Default)]
struct Content {
    synced: Option<Vec<u8>>,
    /// Written by this program since the watch began.
    touched: bool,
}

/// A directory under watch.
pub(crate) struct Disk {
    root: PathBuf,
    files: Vec<Content>,
    now: BTreeMap<PathBuf, Node>,
    safe: BTreeMap<PathBuf, Node>,
    /// Renames of which no directory was synced yet: file systems do both of its names or neither.
    renames: Vec<[PathBuf; 2]>,
}

/// Numbers that look like chance and are the same at every run.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % most.max(1)
    }
}

impl Disk {
    /// Everything below `root` counts as synced.
    pub(crate) fn watch(root: &Path) -> Self {
        let (now, safe) = (BTreeMap::new(), BTreeMap::new());
        let (files, renames) = (Vec::new(), Vec::new());
        let mut disk = Self { root: root.to_owned(), files, now, safe, renames };
        for (path, is_dir) in walk(root) {
            let node = if is_dir { Node::Dir } else { disk.foreign(&path) };
            disk.now.insert(path, node);
        }
        disk.safe = disk.now.clone();
        disk
    }

    fn new_file(&mut self, content: Content) -> Node {
        self.files.push(content);
        Node::File(self.files.len() - 1)
    }

    /// A file somebody else wrote.
    fn foreign(&mut self, path: &Path) -> Node {
        self.new_file(Content { synced: fs::read(path).ok(), touched: false })
    }

    fn known(&mut self, path: &Path) -> Node {
        match self.now.get(path) {
            Some(node) => *node,
            None if path.is_dir() => Node::Dir,
            None => self.foreign(path),
        }
    }

    /// Takes note of a call that was made.
    pub(super) fn did(&mut self, op: Op, paths: &[&Path]) {
        let Some(last) = paths.last().filter(|p| p.starts_with(&self.root)) else { return };
        let last = last.to_path_buf();
        match op {
            Op::Create | Op::Write | Op::WriteAt => self.wrote(last, op),
            Op::Sync | Op::SyncData if last.is_dir() => self.synced_dir(&last),
            Op::SyncDir => self.synced_dir(&last),
            Op::Sync | Op::SyncData => {
                let foreign = !self.now.contains_key(&last);
                let node = self.known(&last);
                if let Node::File(no) = node {
                    self.files[no].synced = fs::read(&last).ok();
                }
                // What somebody else wrote counts as synced, its name too.
                if foreign {
                    self.safe.insert(last.clone(), node);
                }
                self.now.insert(last, node);
            }
            Op::Rename | Op::Link => {
                let node = match self.now.get(paths[0]) {
                    Some(node) => *node,
                    None => self.foreign(&last),
                };
                if op == Op::Rename {
                    self.now.remove(paths[0]);
                    self.renames.push([paths[0].to_owned(), last.clone()]);
                }
                self.now.insert(last, node);
            }
            Op::Unlink => self.now.retain(|p, _| !p.starts_with(&last)),
            Op::MakeDir => drop(self.now.insert(last, Node::Dir)),
            Op::Lock | Op::Program | Op::Read => {}
        }
    }

    fn wrote(&mut self, path: PathBuf, op: Op) {
        let node = match self.now.get(&path) {
            Some(node) => *node,
            None => self.new_file(Content::default()),
        };
        if let Node::File(no) = node
            && (op != Op::Create || !self.now.contains_key(&path))
        {
            self.files[no].touched = true;
        }
        self.now.insert(path, node);
    }

    fn synced_dir(&mut self, dir: &Path) {
        self.safe.retain(|p, _| p.parent() != Some(dir));
        let here = self.now.iter().filter(|(p, _)| p.parent() == Some(dir));
        self.safe.extend(here.map(|(p, n)| (p.clone(), *n)));
        let is_here = |names: &[PathBuf; 2]| names.iter().any(|p| p.parent() == Some(dir));
        let all = std::mem::take(&mut self.renames).into_iter();
        let (done, left): (Vec<_>, Vec<_>) = all.partition(is_here);
        self.renames = left;
        for name in done.into_iter().flatten() {
            match self.now.get(&name) {
                Some(node) => drop(self.safe.insert(name, *node)),
                None => drop(self.safe.remove(&name)),
            }
        }
    }

    /// Builds at `into` what such a power cut may leave of the directory as it is now.
    pub(crate) fn rebuild(&self, into: &Path, cut: Cut) {
        let mut chance = Chance::new(cut.seed);
        let mut coins: BTreeMap<usize, usize> = BTreeMap::new();
        let mut placed: BTreeMap<usize, PathBuf> = BTreeMap::new();
        let there: BTreeMap<PathBuf, bool> = walk(&self.root).into_iter().collect();
        let all: BTreeSet<&PathBuf> =
            there.keys().chain(self.now.keys()).chain(self.safe.keys()).collect();
        for path in all {
            let (now, safe) = (self.now.get(path), self.safe.get(path));
            let foreign = now.is_none() && safe.is_none();
            let node = match cut.names {
                Names::Lost => safe,
                Names::Kept => now,
                Names::Mixed => {
                    // A rename is done or not done: both of its names share one coin.
                    let of = now.or(safe).copied();
                    let coin = match of {
                        Some(Node::File(no)) => *coins.entry(no).or_insert_with(|| chance.below(2)),
                        Some(Node::Dir) | None => chance.below(2),
                    };
                    [now, safe][coin]
                }
            };
            let target = into.join(path.strip_prefix(&self.root).unwrap());
            if !target.parent().is_some_and(Path::is_dir) {
                continue;
            }
            match node {
                None if foreign && there[path] => fs::create_dir_all(&target).unwrap(),
                None if foreign => drop(fs::copy(path, &target).unwrap()),
                None => {}
                Some(Node::Dir) => fs::create_dir_all(&target).unwrap(),
                Some(Node::File(no)) => match placed.get(no) {
                    Some(other) => fs::hard_link(other, &target).unwrap(),
                    None => {
                        self.file(*no, path, &target, cut, &mut chance);
                        placed.insert(*no, target);
                    }
                },
            }
        }
    }

    fn file(&self, no: usize, path: &Path, target: &Path, cut: Cut, chance: &mut Chance) {
        let at = self.now.iter().find(|(_, n)| **n == Node::File(no)).map(|(p, _)| p);
        let Content { synced, touched } = &self.files[no];
        let place = at.filter(|p| p.is_file());
        if !touched && let Some(place) = place {
            fs::copy(place, target).unwrap();
            return;
        }
        let old = synced.clone().unwrap_or_default();
        let new = place.map_or_else(|| old.clone(), |p| fs::read(p).unwrap());
        let bytes = match cut.bytes {
            Bytes::Mixed => [Bytes::Old, Bytes::Zero, Bytes::Torn][chance.below(3)],
            one @ (Bytes::Old | Bytes::Zero | Bytes::Torn) => one,
        };
        let left = if old == new { new } else { lose(&old, new, bytes, chance) };
        fs::write(target, left).unwrap();
        let mode = place.unwrap_or(&path.to_path_buf()).metadata().map(|m| m.permissions());
        if let Ok(mode) = mode {
            fs::set_permissions(target, mode).unwrap();
        }
    }
}

/// What is left of `new`, written over `old`.
fn lose(old: &[u8], new: Vec<u8>, how: Bytes, chance: &mut Chance) -> Vec<u8> {
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let at = |bytes: &[u8], n: usize| bytes.get(n).copied();
    let end =
        (start..new.len()).rev().find(|n| at(old, *n) != at(&new, *n)).map_or(start, |n| n + 1);
    match how {
        Bytes::Old | Bytes::Mixed => old.to_vec(),
        Bytes::Zero => {
            let mut left = new;
            left[start..end].fill(0);
            left
        }
        Bytes::Torn => {
            let cut = start + chance.below(end - start);
            let mut left = new[..cut].to_vec();
            left.extend_from_slice(old.get(cut..).unwrap_or_default());
            left
        }
    }
}

/// Every path below `root`, directories first, and whether it is one.
fn walk(root: &Path) -> Vec<(PathBuf, bool)> {
    let mut found = vec![(root.to_owned(), true)];
    let mut next = 0;
    while let Some((dir, is_dir)) = found.get(next).cloned() {
        next += 1;
        if is_dir {
            let entries = fs::read_dir(&dir).unwrap().map(|e| e.unwrap());
            found.extend(entries.map(|e| (e.path(), e.file_type().unwrap().is_dir())));
        }
    }
    found.sort();
    found
}

/// Copies a directory with its hard links; the target must not hold anything yet.
pub(crate) fn copy(from: &Path, to: &Path) {
    let mut linked: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for (path, is_dir) in walk(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        if is_dir {
            fs::create_dir_all(target).unwrap();
            continue;
        }
        let found = path.metadata().unwrap();
        if found.nlink() > 1
            && let Some(other) = linked.get(&found.ino())
        {
            fs::hard_link(other, target).unwrap();
            continue;
        }
        fs::copy(path, &target).unwrap();
        linked.insert(found.ino(), target);
    }
}

/// Makes one directory hold what another does, and nothing else.
pub(crate) fn refill(from: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    copy(from, to);
}

/// A temporary directory where an fsync costs nothing, if this machine has such a place.
pub(crate) fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::super::{unwatch, watch};
    use super::*;
    use crate::sys::files::{self, Durable, Log};

    const LOST: Cut = Cut { names: Names::Lost, bytes: Bytes::Old, seed: 1 };
    const KEPT: Cut = Cut { names: Names::Kept, bytes: Bytes::Old, seed: 1 };

    fn after(cut: Cut, work: impl Fn(&Path)) -> Vec<(String, Vec<u8>)> {
        let (dir, left) = (quick_dir(), quick_dir());
        fs::write(dir.path().join("old"), "old").unwrap();
        watch(dir.path());
        work(dir.path());
        unwatch().unwrap().rebuild(left.path(), cut);
        let files = walk(left.path()).into_iter().filter(|(_, is_dir)| !is_dir).map(|(p, _)| p);
        let name = |p: &PathBuf| p.strip_prefix(left.path()).unwrap().display().to_string();
        files.map(|p| (name(&p), fs::read(&p).unwrap())).collect()
    }

    fn is(name: &str, bytes: &[u8]) -> (String, Vec<u8>) {
        (name.to_owned(), bytes.to_vec())
    }

    #[test]
    fn a_name_is_there_after_its_directory_was_synced_and_bytes_after_their_file_was() {
        let new = |durable, sync_dir: bool| {
            move |dir: &Path| {
                files::write_new(&dir.join("new"), b"1234", 0o644, durable).unwrap();
                if sync_dir {
                    files::sync_dir(dir).unwrap();
                }
            }
        };
        let old = is("old", b"old");
        assert_eq!(after(LOST, new(Durable::Yes, false)), std::slice::from_ref(&old));
        assert_eq!(after(LOST, new(Durable::Yes, true)), [is("new", b"1234"), old.clone()]);
        assert_eq!(after(LOST, new(Durable::No, true)), [is("new", b""), old.clone()]);
        let zero = Cut { bytes: Bytes::Zero, ..KEPT };
        assert_eq!(after(zero, new(Durable::No, false)), [is("new", &[0; 4]), old]);
    }

    #[test]
    fn what_somebody_else_wrote_keeps_its_name_though_we_sync_its_bytes() {
        let theirs = |dir: &Path| {
            fs::write(dir.join("theirs"), "theirs").unwrap();
            files::sync_file(&dir.join("theirs")).unwrap();
        };
        assert_eq!(after(LOST, theirs), [is("old", b"old"), is("theirs", b"theirs")]);
    }

    #[test]
    fn a_rename_and_a_removal_that_were_not_synced_may_be_undone() {
        let swap = |dir: &Path| {
            files::write_new(&dir.join("staged"), b"new", 0o644, Durable::Yes).unwrap();
            files::rename(&dir.join("staged"), &dir.join("old")).unwrap();
        };
        assert_eq!(after(LOST, swap), [is("old", b"old")]);
        assert_eq!(after(KEPT, swap), [is("old", b"new")]);
        let gone = |dir: &Path| assert!(files::remove_optional(&dir.join("old")).unwrap());
        assert_eq!(after(LOST, gone), [is("old", b"old")]);
        assert_eq!(after(KEPT, gone), []);
    }

    #[test]
    fn a_rename_is_done_in_both_directories_or_in_none() {
        let moved = |synced: Option<&'static str>| {
            move |dir: &Path| {
                ["a", "b"].iter().for_each(|name| files::make_dirs(&dir.join(name)).unwrap());
                files::write_new(&dir.join("a/f"), b"1", 0o644, Durable::Yes).unwrap();
                ["a", "b", ""].iter().for_each(|name| files::sync_dir(&dir.join(name)).unwrap());
                files::rename(&dir.join("a/f"), &dir.join("b/f")).unwrap();
                if let Some(name) = synced {
                    files::sync_dir(&dir.join(name)).unwrap();
                }
            }
        };
        let old = is("old", b"old");
        assert_eq!(after(LOST, moved(None)), [is("a/f", b"1"), old.clone()]);
        for name in ["a", "b"] {
            assert_eq!(after(LOST, moved(Some(name))), [is("b/f", b"1"), old.clone()]);
        }
    }

    #[test]
    fn what_is_written_in_place_is_lost_from_where_it_differs() {
        let write = |sync: bool| {
            move |dir: &Path| {
                let log = Log::create_new(&dir.join("log"), 0o600).unwrap();
                log.write_at(b"aaaaaaaa", 0).unwrap();
                log.sync_all().unwrap();
                files::sync_dir(dir).unwrap();
                log.write_at(b"bbbb", 2).unwrap();
                if sync {
                    log.sync_data().unwrap();
                }
            }
        };
        let log = |cut, sync| after(cut, write(sync)).remove(0).1;
        assert_eq!(log(KEPT, false), b"aaaaaaaa");
        assert_eq!(log(KEPT, true), b"aabbbbaa");
        assert_eq!(log(Cut { bytes: Bytes::Zero, ..KEPT }, false), b"aa\0\0\0\0aa");
        let torn = (1..9).map(|seed| log(Cut { bytes: Bytes::Torn, seed, ..KEPT }, false));
        let torn: BTreeSet<_> = torn.collect();
        let whole = [&b"aaaaaaaa"[..], b"aabaaaaa", b"aabbaaaa", b"aabbbaaa"];
        assert!(torn.len() > 1 && torn.iter().all(|t| whole.contains(&t.as_slice())), "{torn:?}");
    }
}

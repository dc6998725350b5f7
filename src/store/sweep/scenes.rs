//! What is swept: a prepared repository and something the store does in it.

use super::super::{
    AppendError, Batch, Edit, GitView, NOTES_GATES, NewEntry, Snapshot, Stamp, Store, StoreError,
    commit, discover, testlab::TestRepo, tests::checkpoint_now,
};
use crate::{
    code::Code,
    domain::{oid::Oid, time::Timestamp},
    store::object::Object,
    sys::fault::disk,
};
use std::path::Path;

/// A scenario.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) prepare: fn(&TestRepo),
    pub(super) act: fn(&mut Job<'_>) -> Result<(), Failed>,
}

/// A prepared repository that can be had again and again. Always at the same path: elsewhere it would be a copy,
/// which starts a journal of its own.
pub(super) struct Stage {
    pub(super) repo: TestRepo,
    prepared: tempfile::TempDir,
}

impl Stage {
    pub(super) fn new(scene: &Scene) -> Self {
        let repo = TestRepo::quick();
        (scene.prepare)(&repo);
        let prepared = disk::quick_dir();
        disk::copy(repo.root(), prepared.path());
        Self { repo, prepared }
    }

    /// The repository as it was prepared.
    pub(super) fn fresh(&self) -> &TestRepo {
        self.left_as(self.prepared.path())
    }

    /// The repository as somebody left it elsewhere.
    pub(super) fn left_as(&self, there: &Path) -> &TestRepo {
        disk::refill(there, self.repo.root());
        &self.repo
    }
}

/// How a scenario failed: the stable code and the sentence.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) code: Code,
    pub(super) why: String,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self { code: error.code(), why: error.to_string() }
    }
}

/// What the scenario was told.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Batches in the order they were tried, and whether each was acknowledged.
    pub(super) batches: Vec<(Vec<String>, bool)>,
    /// Lines for the note on `HEAD`, and whether each was acknowledged.
    pub(super) lines: Vec<(String, bool)>,
    /// Commits that must be readable for ever.
    pub(super) kept: Vec<Oid>,
}

/// The store at work, and what it said.
pub(super) struct Job<'a> {
    pub(super) store: &'a Store,
    pub(super) repo: &'a TestRepo,
    pub(super) said: Said,
}

pub(super) fn who() -> Stamp {
    let (name, email) = ("Ada Tester".to_owned(), "ada@example.invalid".to_owned());
    Stamp { name, email, at: Timestamp::from_ms(1_700_000_000_000) }
}

pub(super) fn open(repo: &TestRepo) -> Result<Store, StoreError> {
    let env = repo.env();
    Store::open(discover(&env)?, &env)
}

/// Where the document of an entry is, and its bytes.
pub(super) fn document(label: &str) -> (String, Vec<u8>) {
    let data = format!("{{\"label\":\"{label}\",\"pad\":\"{}\"}}\n", "x".repeat(200));
    (format!("open/{}/{label}.json", label.len() % 7), data.into_bytes())
}

fn entry(seq: u64, label: &str) -> NewEntry {
    let (path, data) = document(label);
    let format = if seq == 1 { "Format: 1\n" } else { "" };
    let message = format!("{label}\n\n{format}Seq: {seq}\nKind: test:did\n").into_bytes();
    NewEntry { message, edits: vec![Edit::Put { path, data }] }
}

impl<'a> Job<'a> {
    pub(super) fn new(store: &'a Store, repo: &'a TestRepo) -> Self {
        Self { store, repo, said: Said::default() }
    }

    pub(super) fn append(&mut self, labels: &[&str], pins: &[Oid]) -> Result<GitView, Failed> {
        let decide = |s: &Snapshot<'_>| {
            let entries = (s.next_seq..).zip(labels).map(|(seq, label)| entry(seq, label));
            Ok::<_, StoreError>(Batch { entries: entries.collect(), pins: pins.to_vec() })
        };
        let labels = labels.iter().map(|l| (*l).to_owned()).collect();
        self.said.batches.push((labels, false));
        match self.store.append(&who(), decide) {
            Ok(done) => {
                self.said.batches.last_mut().unwrap().1 = true;
                self.said.kept.extend(pins);
                Ok(done.git_view)
            }
            Err(AppendError::Store(e) | AppendError::Decide(e)) => Err(e.into()),
        }
    }

    /// As those who write notes do: the line is added unless it is there.
    pub(super) fn note(&mut self, line: &str, before: impl Fn()) -> Result<(), Failed> {
        let target = head(self.repo);
        self.said.lines.push((line.to_owned(), false));
        let add = |old: Option<&[u8]>| {
            before();
            let old = String::from_utf8(old.unwrap_or_default().to_vec()).unwrap();
            let there = old.lines().any(|l| l == line);
            Some(if there { old } else { format!("{old}{line}\n") }.into_bytes())
        };
        self.store.edit_note(&who(), NOTES_GATES, &target, add)?;
        self.said.lines.last_mut().unwrap().1 = true;
        Ok(())
    }

    fn checkpoint(&self) -> Result<(), Failed> {
        Ok(empty_log(self.store)?)
    }

    fn keep(&mut self, object: &Object) -> Result<(), Failed> {
        self.store.write_kept_pack(std::slice::from_ref(object))?;
        self.said.kept.push(object.id);
        Ok(())
    }
}

pub(super) fn head(repo: &TestRepo) -> Oid {
    let path = repo.path().join(".git/refs/heads/main");
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

/// A checkpoint, due or not, if git shows all of the log; then packs are merged.
pub(super) fn empty_log(store: &Store) -> Result<(), StoreError> {
    checkpoint_now(store)?;
    store.merge_packs().map(drop)
}

fn candidate(store: &Store, repo: &TestRepo, message: &str) -> Result<Object, StoreError> {
    let head = head(repo);
    let tree = store.commit_tree(&head)?;
    Ok(commit::encode(&tree, &[head], &who(), message.as_bytes())?)
}

fn nothing(_: &TestRepo) {}

fn some(repo: &TestRepo) {
    let store = open(repo).unwrap();
    let mut job = Job::new(&store, repo);
    ["a", "b", "c"].iter().for_each(|l| drop(job.append(&[l], &[]).unwrap()));
}

fn noted(repo: &TestRepo) {
    some(repo);
    Job::new(&open(repo).unwrap(), repo).note("old", || ()).unwrap();
}

fn packed(repo: &TestRepo) {
    let store = open(repo).unwrap();
    let mut job = Job::new(&store, repo);
    for label in ["a", "b", "c", "d"] {
        job.append(&[label], &[]).unwrap();
        job.checkpoint().unwrap();
    }
}

fn pinned(repo: &TestRepo) {
    some(repo);
    let store = open(repo).unwrap();
    let candidate = candidate(&store, repo, "kept before").unwrap();
    let mut job = Job::new(&store, repo);
    job.keep(&candidate).unwrap();
    job.append(&["d"], &[candidate.id]).unwrap();
}

fn without_our_directory(repo: &TestRepo) {
    some(repo);
    std::fs::remove_dir_all(repo.path().join(".git/agentproto")).unwrap();
}

/// Everything that is swept here; landing has its own repository.
pub(super) fn scenes() -> Vec<Scene> {
    entries().into_iter().chain(notes()).collect()
}

fn entries() -> Vec<Scene> {
    vec![
        Scene {
            name: "first append",
            prepare: nothing,
            act: |job| job.append(&["one"], &[]).map(drop),
        },
        Scene {
            name: "append",
            prepare: some,
            act: |job| {
                job.append(&["one"], &[])?;
                job.append(&["two"], &[]).map(drop)
            },
        },
        Scene {
            name: "batch",
            prepare: some,
            act: |job| job.append(&["one", "two", "three", "four", "five"], &[]).map(drop),
        },
        Scene {
            name: "kept pack and pin",
            prepare: some,
            act: |job| {
                let candidate = candidate(job.store, job.repo, "candidate")?;
                job.keep(&candidate)?;
                job.append(&["one"], &[candidate.id]).map(drop)
            },
        },
        Scene {
            name: "checkpoint",
            prepare: pinned,
            act: |job| {
                job.checkpoint()?;
                job.append(&["one"], &[]).map(drop)
            },
        },
        Scene {
            name: "many packs",
            prepare: packed,
            act: |job| {
                job.append(&["one"], &[])?;
                job.checkpoint()?;
                job.append(&["two"], &[])?;
                job.checkpoint()
            },
        },
        Scene {
            name: "new writer file",
            prepare: without_our_directory,
            act: |job| job.append(&["one"], &[]).map(drop),
        },
    ]
}

fn notes() -> Vec<Scene> {
    vec![
        Scene { name: "first note", prepare: some, act: |job| job.note("one", || ()) },
        Scene {
            name: "note",
            prepare: noted,
            act: |job| {
                job.note("one", || ())?;
                job.checkpoint()?;
                job.note("two", || ())
            },
        },
        Scene {
            name: "note beside a foreign one",
            prepare: noted,
            act: |job| {
                let (repo, done) = (job.repo, std::cell::Cell::new(false));
                job.note("one", || {
                    if !done.replace(true) {
                        repo.git(&["notes", "--ref", "agentproto/gates", "append", "-m", "theirs"]);
                    }
                })
            },
        },
    ]
}

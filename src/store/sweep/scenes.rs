//! What is swept: a prepared repository and something the store does in it.

use super::super::{
    AppendError, Batch, Edit, GitView, NOTES_GATES, NewEntry, Snapshot, Stamp, Store, StoreError,
    commit, discover, testlab::TestRepo, tests::checkpoint_now,
};
use crate::{
    code::Code,
    domain::{oid::Oid, time::Timestamp},
    store::object::Object,
    sys::fault::{self, disk},
};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// A scenario.
pub(super) struct Scene {
    pub(super) name: &'static str,
    /// What keeps the refs; none = what the tester chose.
    pub(super) refs: Option<&'static str>,
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
        let repo = TestRepo::quick(scene.refs);
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
    /// What is wrong with the answers themselves.
    pub(super) odd: Option<String>,
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

fn batch(s: &Snapshot<'_>, labels: &[&str], pins: &[Oid]) -> Batch {
    let entries = (s.next_seq..).zip(labels).map(|(seq, label)| entry(seq, label));
    Batch { entries: entries.collect(), pins: pins.to_vec() }
}

fn until(met: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !met() {
        assert!(Instant::now() < end, "it never came");
        thread::yield_now();
    }
}

impl<'a> Job<'a> {
    pub(super) fn new(store: &'a Store, repo: &'a TestRepo) -> Self {
        Self { store, repo, said: Said::default() }
    }

    pub(super) fn append(&mut self, labels: &[&str], pins: &[Oid]) -> Result<GitView, Failed> {
        let decide = |s: &Snapshot<'_>| Ok::<_, StoreError>(batch(s, labels, pins));
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

    /// Appends of several threads in one frame, those of the last member by this thread: whoever is last in line
    /// writes for all, so what ends this thread ends the group. All are answered the same.
    fn together(&mut self, members: &[&[&str]]) -> Result<(), Failed> {
        let labels = members.iter().copied().flatten().map(|l| (*l).to_owned()).collect();
        self.said.batches.push((labels, false));
        let (store, gone, boot) = (self.store, AtomicBool::new(false), fault::boot_id());
        let (last, others) = members.split_last().unwrap();
        let inside = AtomicBool::new(false);
        let all_wait = || {
            until(|| store.line.waiting() == others.len() || gone.load(Ordering::Relaxed));
        };
        let answers: Vec<_> = thread::scope(|scope| {
            let mut threads = Vec::new();
            for (n, labels) in others.iter().enumerate() {
                let (inside, all_wait, boot) = (&inside, &all_wait, boot.as_deref());
                threads.push(scope.spawn(move || {
                    fault::set_boot(boot);
                    store.append(&who(), |s| {
                        if n == 0 {
                            inside.store(true, Ordering::Relaxed);
                            all_wait();
                        }
                        Ok::<_, StoreError>(batch(s, labels, &[]))
                    })
                }));
                until(|| inside.load(Ordering::Relaxed) && store.line.waiting() == n);
            }
            let own = store.append(&who(), |s| Ok::<_, StoreError>(batch(s, last, &[])));
            gone.store(true, Ordering::Relaxed);
            threads.into_iter().map(|t| t.join().unwrap()).chain([own]).collect()
        });
        let done = answers.iter().filter(|a| a.is_ok()).count();
        if ![0, members.len()].contains(&done) {
            self.said.odd = Some(format!("one group, several answers: {answers:?}"));
        }
        self.said.batches.last_mut().unwrap().1 = done > 0;
        let failed = answers.into_iter().find_map(Result::err);
        match failed {
            Some(AppendError::Store(e) | AppendError::Decide(e)) => Err(e.into()),
            None => Ok(()),
        }
    }

    /// As those who write notes do: the line is added unless it is there.
    pub(super) fn note(&mut self, line: &str, before: impl Fn()) -> Result<(), Failed> {
        let target = self.repo.first();
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

/// A checkpoint, due or not, if git shows all of the log; then packs are merged.
pub(super) fn empty_log(store: &Store) -> Result<(), StoreError> {
    checkpoint_now(store)?;
    store.merge_packs().map(drop)
}

fn candidate(store: &Store, repo: &TestRepo, message: &str) -> Result<Object, StoreError> {
    let head = repo.first();
    let tree = store.commit_tree(&head)?;
    Ok(commit::encode(&tree, &[head], &who(), message.as_bytes())?)
}

fn nothing(_: &TestRepo) {}

fn some(repo: &TestRepo) {
    let store = open(repo).unwrap();
    let mut job = Job::new(&store, repo);
    ["a", "b", "c"].iter().for_each(|l| drop(job.append(&[l], &[]).unwrap()));
}

fn pruned(repo: &TestRepo) {
    some(repo);
    prune(&open(repo).unwrap(), repo).unwrap();
}

/// Takes every loose copy of what is logged, as a prune does that read the refs before they moved.
fn prune(store: &Store, repo: &TestRepo) -> Result<(), Failed> {
    for id in store.logged()?.iter().flat_map(|f| &f.objects).map(|o| o.id.to_string()) {
        let (dir, rest) = id.split_at(2);
        let _ = std::fs::remove_file(repo.path().join(".git/objects").join(dir).join(rest));
    }
    Ok(())
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
    entries().into_iter().chain(prunes()).chain(notes()).chain(elsewhere()).collect()
}

/// The same steps where the other backend keeps the refs.
fn elsewhere() -> Vec<Scene> {
    let of = |name, refs, like: &str| {
        let like = entries().into_iter().chain(notes()).find(|s| s.name == like).unwrap();
        Scene { name, refs: Some(refs), ..like }
    };
    vec![
        of("reftable: pin, checkpoint, append", "reftable", "checkpoint"),
        of("reftable: group", "reftable", "group"),
        of("reftable: note", "reftable", "note"),
    ]
}

fn entries() -> Vec<Scene> {
    vec![
        Scene {
            name: "first append",
            refs: None,
            prepare: nothing,
            act: |job| job.append(&["one"], &[]).map(drop),
        },
        Scene {
            name: "append",
            refs: None,
            prepare: some,
            act: |job| {
                job.append(&["one"], &[])?;
                job.append(&["two"], &[]).map(drop)
            },
        },
        Scene {
            name: "batch",
            refs: None,
            prepare: some,
            act: |job| job.append(&["one", "two", "three", "four", "five"], &[]).map(drop),
        },
        Scene {
            name: "group",
            refs: None,
            prepare: some,
            act: |job| job.together(&[&["one"], &["two", "three"], &["four"], &["five"]]),
        },
        Scene {
            name: "kept pack and pin",
            refs: None,
            prepare: some,
            act: |job| {
                let candidate = candidate(job.store, job.repo, "candidate")?;
                job.keep(&candidate)?;
                job.append(&["one"], &[candidate.id]).map(drop)
            },
        },
        Scene {
            name: "checkpoint",
            refs: None,
            prepare: pinned,
            act: |job| {
                job.checkpoint()?;
                job.append(&["one"], &[]).map(drop)
            },
        },
        Scene {
            name: "many packs",
            refs: None,
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
            refs: None,
            prepare: without_our_directory,
            act: |job| job.append(&["one"], &[]).map(drop),
        },
    ]
}

fn prunes() -> Vec<Scene> {
    vec![Scene {
        name: "append, prune, append",
        refs: None,
        prepare: pruned,
        act: |job| {
            job.append(&["one"], &[])?;
            prune(job.store, job.repo)?;
            job.append(&["two"], &[]).map(drop)
        },
    }]
}

fn notes() -> Vec<Scene> {
    vec![
        Scene { name: "first note", refs: None, prepare: some, act: |job| job.note("one", || ()) },
        Scene {
            name: "note",
            refs: None,
            prepare: noted,
            act: |job| {
                job.note("one", || ())?;
                job.checkpoint()?;
                job.note("two", || ())
            },
        },
        Scene {
            name: "note beside a foreign one",
            refs: None,
            prepare: noted,
            act: |job| {
                let (repo, done) = (job.repo, std::cell::Cell::new(false));
                job.note("one", || {
                    if !done.replace(true) {
                        let notes =
                            ["notes", "--ref", "agentproto/gates", "append", "-m", "theirs"];
                        // At another time it would get another id, and ours other directories.
                        let at = "@1700000000 +0000";
                        let dates = [("GIT_AUTHOR_DATE", at), ("GIT_COMMITTER_DATE", at)];
                        assert!(repo.command(&notes).envs(dates).status().unwrap().success());
                    }
                })
            },
        },
    ]
}

//! The store against plain git: what we write it reads, what it does to us we survive.

mod batches;
mod groups;
mod mending;

use super::{
    checkpoint::Sealing, failpoint::tests as failpoint, names::AGENT_DIR, testlab::TestRepo, *,
};
use crate::{code::Code, domain::time::Timestamp, store::object, sys::files};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

mod pruned;
mod retention;
mod seek;
mod segments;

pub(super) fn who() -> Stamp {
    let (name, email) = ("Ada Tester".to_owned(), "ada@example.invalid".to_owned());
    Stamp { name, email, at: Timestamp::from_ms(1_700_000_000_000) }
}

pub(super) fn open(repo: &TestRepo) -> Store {
    try_open(repo).unwrap()
}

pub(super) fn try_open(repo: &TestRepo) -> Result<Store, StoreError> {
    let env = repo.env();
    Store::open(discover(&env)?, &env)
}

pub(super) fn entry(seq: u64, label: &str) -> NewEntry {
    let path = format!("open/{}/{label}.json", label.len() % 7);
    let data = format!("{{\"label\":\"{label}\",\"pad\":\"{}\",\"n\":{seq}}}\n", "x".repeat(200));
    let format = if seq == 1 { "Format: 1\n" } else { "" };
    NewEntry {
        message: format!("test:did {label}: something\n\n{format}Seq: {seq}\nKind: test:did\n")
            .into_bytes(),
        edits: vec![Edit::Put { path, data: data.into_bytes() }],
    }
}

pub(super) fn append(store: &Store, label: &str) -> Appended {
    append_pinning(store, label, &[])
}

pub(super) fn append_pinning(store: &Store, label: &str, pins: &[Oid]) -> Appended {
    let decide = |s: &Snapshot<'_>| {
        Ok::<_, StoreError>(Batch { entries: vec![entry(s.next_seq, label)], pins: pins.to_vec() })
    };
    store.append(&who(), decide).unwrap()
}

pub(super) fn own_ref(store: &Store) -> String {
    journal_ref(&store.writer().unwrap().unwrap(), Segment::FIRST)
}

/// `Seq`s from the tip to the root as plain git tells them.
fn seqs(repo: &TestRepo, name: &str) -> Vec<u64> {
    let out = repo.git(&["log", "--format=%(trailers:key=Seq,valueonly,separator=)", name]);
    out.lines().map(|l| l.parse().unwrap()).collect()
}

pub(super) fn assert_complete(repo: &TestRepo, name: &str, last: u64) {
    assert_eq!(seqs(repo, name), (1..=last).rev().collect::<Vec<_>>());
    repo.fsck();
}

/// Puts `text` in the place of what a ref holds. In tables a ref is an id or the name of another one, so the
/// twin of a value that is none is the name of a ref that is not there.
fn spoil(repo: &TestRepo, name: &str, text: &str) {
    let id = text.trim_end();
    if !repo.is_reftable() {
        std::fs::write(repo.path().join(".git").join(name), text).unwrap();
    } else if id.parse::<Oid>().is_ok() {
        repo.git(&["update-ref", name, id]);
    } else {
        repo.git(&["symbolic-ref", name, &format!("refs/heads/no{id}")]);
    }
}

/// Removes a ref that was spoilt.
fn unset(repo: &TestRepo, name: &str) {
    if repo.is_reftable() {
        repo.git(&["update-ref", "--no-deref", "-d", name]);
    } else {
        std::fs::remove_file(repo.path().join(".git").join(name)).unwrap();
    }
}

/// No lock, no staged file, nothing temporary is left.
pub(super) fn assert_tidy(repo: &TestRepo) {
    let git = repo.path().join(".git");
    let mut left = Vec::new();
    let mut dirs = vec![git.join("refs"), git.join("reftable"), git.join(AGENT_DIR)];
    while let Some(dir) = dirs.pop() {
        for name in files::names(&dir).unwrap() {
            let path = dir.join(&name);
            let name = name.to_string_lossy();
            let stray =
                name.starts_with("ref.") || name.starts_with("tmp_") || name.ends_with(".lock");
            left.extend(stray.then(|| path.clone()));
            dirs.extend(Some(path).filter(|p| p.is_dir()));
        }
    }
    // Of git's own repacks beside each other some give up and leave `tmp_pack_*` or `.tmp-…-pack-…` here. Ours
    // are staged elsewhere and come under their own name; one without an index would be ours.
    let packs = git.join("objects/pack");
    for name in files::names(&packs).unwrap() {
        if !name.to_string_lossy().starts_with("pack-") {
            continue;
        }
        let path = packs.join(name);
        let pack = path.extension().is_some_and(|e| e == "pack");
        left.extend((pack && !path.with_extension("idx").exists()).then_some(path));
    }
    assert_eq!(left, Vec::<PathBuf>::new());
}

pub(super) fn loose_objects(repo: &TestRepo) -> u64 {
    repo.git(&["count-objects"]).split(' ').next().unwrap().parse().unwrap()
}

pub(super) fn empty_log(store: &Store) {
    checkpoint_now(store).unwrap();
}

/// Packs all frames there are.
pub(super) fn checkpoint_now(store: &Store) -> Result<(), StoreError> {
    let packing = store.require_pack_lock()?;
    store.pack_sealed(&packing)?;
    let journal = store.lock()?;
    let sealing = store.seal(&journal)?;
    drop(journal);
    if sealing == Sealing::Done { store.pack_sealed(&packing) } else { Ok(()) }
}

#[test]
fn reading_a_fresh_repository_finds_nothing_and_makes_nothing() {
    let repo = TestRepo::new();
    let store = open(&repo);
    assert_eq!((store.writer().unwrap(), store.own_tip().unwrap()), (None, None));
    assert_eq!(store.journals().unwrap().tips, []);
    assert_eq!(store.note(NOTES_GATES, &Oid::null(store.hash)).unwrap(), None);
    assert!(!repo.path().join(".git").join(AGENT_DIR).exists());
}

#[test]
fn entries_read_back_through_the_store_and_through_git() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let batch = |s: &Snapshot<'_>| {
        assert_eq!((s.next_seq, s.tip.is_none()), (1, true));
        let mut second = entry(2, "b");
        second.edits.push(Edit::Remove { path: "open/1/a.json".to_owned() });
        Ok::<_, StoreError>(Batch { entries: vec![entry(1, "a"), second], pins: vec![] })
    };
    let done = store.append(&who(), batch).unwrap();
    assert_eq!(done.git_view, GitView::Shown);
    let tip = store.own_tip().unwrap().unwrap();
    assert_eq!((tip.seq, tip.id), (2, done.written[1].id));
    let read = store.entry(&tip.id).unwrap();
    assert_eq!((read.parent, read.author_name.as_str()), (Some(done.written[0].id), "Ada Tester"));
    assert_eq!(store.document(&tip.tree, "open/1/a.json").unwrap(), None);
    let all = store.documents(&tip.tree, "open").unwrap();
    assert_eq!(all.iter().map(|(p, _)| p.as_str()).collect::<Vec<_>>(), ["open/1/b.json"]);
    let name = own_ref(&store);
    assert_eq!(repo.git_raw(&["show", &format!("{name}:open/1/b.json")]), all[0].1);
    assert_complete(&repo, &name, 2);
    assert_eq!(store.journals().unwrap().tips, [tip]);
}

#[test]
fn a_refusal_an_empty_batch_and_a_wrong_number_append_nothing() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let refused = store.append(&who(), |_| Err::<Batch, _>("no"));
    assert!(matches!(refused, Err(AppendError::Decide("no"))));
    let empty = store.append(&who(), |_| Ok::<_, ()>(Batch::default())).unwrap();
    assert_eq!(empty.written, []);
    let wrong =
        store.append(&who(), |_| Ok::<_, ()>(Batch { entries: vec![entry(7, "a")], pins: vec![] }));
    assert!(matches!(wrong, Err(AppendError::Store(StoreError::BadEntry { .. }))));
    assert_eq!(store.own_tip().unwrap(), None);
    assert_eq!(append(&store, "a").written[0].seq, 1);
}

#[test]
fn pins_move_with_their_event_and_keep_commits_alive() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let head: Oid = repo.git(&["rev-parse", "HEAD"]).parse().unwrap();
    let tree: Oid = repo.git(&["rev-parse", "HEAD^{tree}"]).parse().unwrap();
    let candidates: Vec<Object> = ["one\n", "two\n"]
        .iter()
        .map(|m| commit::encode(&tree, &[head], &who(), m.as_bytes()).unwrap())
        .collect();
    for candidate in &candidates {
        let pack = store.write_kept_pack(std::slice::from_ref(candidate)).unwrap();
        assert_eq!(store.write_kept_pack(std::slice::from_ref(candidate)).unwrap(), pack);
    }
    let kept = || {
        let names = files::names(&repo.path().join(".git/objects/pack")).unwrap();
        names.iter().filter(|n| n.to_string_lossy().ends_with(".keep")).count()
    };
    repo.git(&["gc", "-q", "--prune=now"]);
    append_pinning(&store, "a", &[candidates[0].id]);
    assert_eq!(kept(), 2, "the pin is not checkpointed");
    empty_log(&store);
    assert_eq!(kept(), 1, "the other pack is not pinned yet");
    append_pinning(&store, "b", &[candidates[1].id]);
    empty_log(&store);
    assert_eq!(kept(), 0);
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    let writer = store.writer().unwrap().unwrap();
    let story =
        repo.git(&["log", "--first-parent", "--format=%s", &evidence_ref(&writer, Segment::FIRST)]);
    let expected: Vec<String> = candidates.iter().rev().map(|c| format!("pin {}", c.id)).collect();
    assert_eq!(story.lines().take(2).collect::<Vec<_>>(), expected);
    assert!(candidates.iter().all(|c| store.object(&c.id).unwrap() == *c));
    assert_complete(&repo, &own_ref(&store), 2);
    let missing = object::hash(store.hash, Kind::Blob, b"nowhere").unwrap();
    let dangling = store.append(&who(), |s| {
        Ok::<_, ()>(Batch { entries: vec![entry(s.next_seq, "c")], pins: vec![missing] })
    });
    assert!(matches!(dangling, Err(AppendError::Store(StoreError::Missing { .. }))));
}

/// Kills an append at every step; the next process must end where one without the kill does.
#[test]
fn a_kill_at_any_step_leaves_all_or_nothing() {
    let steps: &[(&str, u32, u64)] = &[
        ("before the frame", 1, 1),
        ("frame written", 1, 2),
        ("object written", 1, 2),
        ("object written", 4, 2),
        ("ref locked", 1, 2),
        ("ref moved", 1, 2),
        ("ref locked", 2, 2),
        ("ref moved", 2, 2),
    ];
    for &(step, nth, seq) in steps {
        let repo = TestRepo::new();
        let head: Oid = repo.git(&["rev-parse", "HEAD"]).parse().unwrap();
        let store = open(&repo);
        append_pinning(&store, "a", &[head]);
        failpoint::arm(step, nth);
        let decide = |s: &Snapshot<'_>| {
            Ok::<_, ()>(Batch { entries: vec![entry(s.next_seq, "b")], pins: vec![head] })
        };
        let answered = store.append(&who(), decide);
        assert!(failpoint::disarm(), "{step} {nth} was not reached");
        assert_eq!(answered.is_ok(), seq == 2, "{step} {nth}");
        drop(store);
        let store = open(&repo);
        let name = own_ref(&store);
        assert_eq!(store.own_tip().unwrap().unwrap().seq, seq, "{step} {nth}");
        assert_complete(&repo, &name, seq);
        assert_tidy(&repo);
        assert_eq!(append(&store, "c").written[0].seq, seq + 1);
        assert_complete(&repo, &name, seq + 1);
        let pins = repo.git(&[
            "rev-list",
            "--first-parent",
            "--count",
            &evidence_ref(&store.writer().unwrap().unwrap(), Segment::FIRST),
        ]);
        let with_head: u64 = pins.parse().unwrap();
        assert_eq!(with_head, seq + 1, "{step} {nth}: pins and the pinned chain's first commit");
    }
}

#[test]
fn a_kill_at_any_step_of_a_checkpoint_or_recovery_loses_nothing() {
    let steps: &[(&str, u32)] = &[
        ("sealed", 1),
        ("pack staged", 1),
        ("pack renamed", 1),
        ("pack renamed", 2),
        ("packed", 1),
        ("copy removed", 1),
        ("copy removed", 9),
        ("released", 1),
        ("retired", 1),
    ];
    for &(step, nth) in steps {
        let repo = TestRepo::new();
        let store = open(&repo);
        (0..5).for_each(|n| drop(append(&store, &format!("e{n}"))));
        failpoint::arm(step, nth);
        assert!(matches!(checkpoint_now(&store), Err(StoreError::Stopped)), "{step} {nth}");
        assert!(failpoint::disarm());
        drop(store);
        let store = open(&repo);
        assert_eq!(append(&store, "next").written[0].seq, 6);
        let sealed = store.with_wal(|w| Ok(w.unwrap().sealed_epoch())).unwrap();
        assert_eq!(sealed, None, "{step} {nth}: the next one packed it");
        store.fsck_wal().unwrap();
        assert_complete(&repo, &own_ref(&store), 6);
        assert_tidy(&repo);
        empty_log(&store);
        assert_eq!(loose_objects(&repo), 2, "{step} {nth}: the first commit and its tree");
        assert_complete(&repo, &own_ref(&store), 6);
    }
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    let name = own_ref(&store);
    repo.git(&["update-ref", "-d", &name]);
    for (step, nth) in [("objects recovered", 1), ("ref locked", 1), ("ref moved", 1)] {
        failpoint::arm(step, nth);
        assert!(store.fsck_wal().is_err(), "{step}");
        assert!(failpoint::disarm(), "{step}");
    }
    drop(store);
    assert_eq!(open(&repo).own_tip().unwrap().unwrap().seq, 1);
    assert_complete(&repo, &name, 1);
    assert_tidy(&repo);
}

#[test]
fn checkpoints_happen_by_themselves_and_leave_small_packs() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let last = limits::CHECKPOINT_FRAMES as u64 + 4;
    for n in 0..last {
        let done = append(&store, &format!("e{}", n % 9));
        assert_eq!((done.git_view, done.checkpoint_failed), (GitView::Shown, None));
    }
    let counts = repo.git(&["count-objects", "-v"]);
    let of = |key: &str| -> u64 {
        let line = counts.lines().find(|l| l.starts_with(&format!("{key}: "))).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(of("count") < 100, "{counts}");
    assert_eq!((of("packs"), of("garbage")), (1, 0), "{counts}");
    assert!(of("size-pack") * 1024 < 1000 * last, "{counts}");
    assert_complete(&repo, &own_ref(&store), last);
}

#[test]
fn a_lost_broken_or_old_ref_is_set_right_at_the_next_open() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let ids: Vec<Oid> = (0..4).map(|n| append(&store, &format!("e{n}")).written[0].id).collect();
    let name = own_ref(&store);
    let old = format!("{}\n", ids[1]);
    for checkpointed in [false, true] {
        if checkpointed {
            empty_log(&store);
        }
        for damage in ["", "garbage", &old] {
            spoil(&repo, &name, damage);
            // A reader of the damaged state already knows better, unless it is behind a checkpoint.
            drop(open(&repo));
            let now = repo.git(&["for-each-ref", "--format=%(objectname)%(symref)", &name]);
            assert_eq!(now, ids[3].to_string(), "{damage}");
        }
        repo.git(&["update-ref", "-d", &name]);
        assert_eq!(open(&repo).own_tip().unwrap().unwrap().id, ids[3]);
        assert_complete(&repo, &name, 4);
    }
    let told = store.append(&who(), |s| {
        assert!(s.recovered.as_ref().is_some_and(|r| r.refs.contains(&name)));
        Ok::<_, ()>(Batch { entries: vec![entry(s.next_seq, "z")], pins: vec![] })
    });
    assert_eq!(told.unwrap().written[0].seq, 5);
    store
        .append(&who(), |s| {
            assert_eq!(s.recovered, None);
            Ok::<_, ()>(Batch::default())
        })
        .unwrap();
}

#[test]
fn a_ref_moved_elsewhere_is_diverged_and_left_alone_a_newer_one_is_kept() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    let name = own_ref(&store);
    let tip = store.own_tip().unwrap().unwrap();
    let newer = commit::encode(&tip.tree, &[tip.id], &who(), b"s\n\nSeq: 2\n").unwrap();
    store.loose.write(&newer, files::Durable::No).unwrap();
    repo.git(&["update-ref", &name, &newer.id.to_string()]);
    assert_eq!(append(&open(&repo), "c").written[0].seq, 3);
    assert_complete(&repo, &name, 3);
    let head = repo.git(&["rev-parse", "HEAD"]);
    repo.git(&["update-ref", &name, &head]);
    let refused = try_open(&repo).err().unwrap();
    assert_eq!(refused.code(), Code::JournalDiverged);
    assert_eq!(repo.git(&["rev-parse", &name]), head);
}

#[test]
fn removing_our_directory_loses_nothing() {
    let repo = TestRepo::new();
    let store = open(&repo);
    (0..3).for_each(|n| drop(append(&store, &format!("e{n}"))));
    let (name, writer) = (own_ref(&store), store.writer().unwrap());
    for round in 0..2u64 {
        std::fs::remove_dir_all(repo.path().join(".git").join(AGENT_DIR)).unwrap();
        let fresh = open(&repo);
        assert_eq!(fresh.own_tip().unwrap().unwrap().seq, 3 + round);
        let through = if round == 0 { &fresh } else { &store };
        assert_eq!(append(through, "again").written[0].seq, 4 + round);
        assert_eq!(through.writer().unwrap(), writer);
        assert_complete(&repo, &name, 4 + round);
    }
}

/// Numbers and parents alone say what came first: a clock that was put forward and back again changes nothing.
#[test]
fn a_clock_ten_years_off_reorders_nothing() {
    const TEN_YEARS_MS: i64 = 10 * 366 * 24 * 3_600_000;
    let repo = TestRepo::new();
    let store = open(&repo);
    for (n, off) in [0, TEN_YEARS_MS, -TEN_YEARS_MS, 0].into_iter().enumerate() {
        let at = Timestamp::from_ms(1_700_000_000_000 + off);
        let decide = |s: &Snapshot<'_>| {
            let entries = vec![entry(s.next_seq, &format!("e{n}"))];
            Ok::<_, StoreError>(Batch { entries, pins: Vec::new() })
        };
        let appended = store.append(&Stamp { at, ..who() }, decide).unwrap();
        assert_eq!(appended.written[0].seq, n as u64 + 1);
    }
    let fresh = open(&repo);
    assert_eq!(fresh.own_tip().unwrap().unwrap().seq, 4);
    // A checkpoint and a recovery ask no clock either.
    empty_log(&fresh);
    append(&fresh, "after");
    assert_complete(&repo, &own_ref(&fresh), 5);
}

/// Leaving out of the frame what the object store has already lost entries: a prune may be on its way.
#[test]
fn a_frame_holds_even_what_exists_already() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let Some(Edit::Put { data, path }) = entry(1, "a").edits.pop() else { unreachable!() };
    let there = Object::new(store.hash, Kind::Blob, data.clone()).unwrap();
    // Makes our directories.
    drop(store.lock().unwrap());
    store.loose.write(&there, files::Durable::Yes).unwrap();
    append(&store, "a");
    store.loose.remove(&there.id).unwrap();
    let tree = store.own_tip().unwrap().unwrap().tree;
    assert_eq!(store.document(&tree, &path).unwrap(), Some(data));
    assert_eq!(store.fsck_wal().unwrap().objects, 1);
    repo.fsck();
}

#[test]
fn one_store_serves_several_threads() {
    let repo = TestRepo::new();
    let store = open(&repo);
    thread::scope(|scope| {
        for t in 0..4 {
            let store = &store;
            scope.spawn(move || (0..5).for_each(|n| drop(append(store, &format!("t{t}n{n}")))));
        }
    });
    assert_complete(&repo, &own_ref(&store), 20);
}

#[test]
fn an_emptied_object_is_written_again() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let id = append(&store, "a").written[0].id.to_string();
    let path = repo.path().join(".git/objects").join(&id[..2]).join(&id[2..]);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    assert_eq!(store.own_tip().unwrap().unwrap().seq, 1, "the log has it");
    assert!(store.fsck_wal().unwrap().objects >= 1);
    assert_complete(&repo, &own_ref(&store), 1);
}

/// What a power cut leaves: an emptied loose copy that shadows the good one in our synced pack, emptied
/// refs, and loose objects of the log that never reached the disk.
#[test]
fn after_a_reboot_ghosts_go_and_everything_acknowledged_is_there() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let packed = append(&store, "a").written[0].id;
    empty_log(&store);
    let fresh = append(&store, "b").written[0].id;
    let git = repo.path().join(".git");
    for id in [packed, fresh] {
        let hex = id.to_string();
        let path = git.join("objects").join(&hex[..2]).join(&hex[2..]);
        files::make_dirs(path.parent().unwrap()).unwrap();
        files::remove_optional(&path).unwrap();
        std::fs::write(&path, "").unwrap();
    }
    spoil(&repo, &own_ref(&store), "");
    let frames = store.with_wal(|w| w.unwrap().frames()).unwrap();
    let tips = std::collections::BTreeMap::from([(own_ref(&store), packed)]);
    let boot = Some("another-boot".to_owned());
    let hash = store.hash;
    let head = wal_frame::Head { hash, epoch: 1, seq: 1, boot, refs: tips, sealed: false };
    for path in &store.wal_paths.files {
        files::remove_optional(path).unwrap();
    }
    Wal::create(&store.wal_paths, &head).unwrap();
    store.with_wal(|w| w.unwrap().push(&frames[0])).unwrap();
    drop(store);
    let store = open(&repo);
    assert_complete(&repo, &own_ref(&store), 2);
    let same_boot = store.with_wal(|w| Ok(w.unwrap().is_same_boot())).unwrap();
    let left = store.with_wal(|w| w.unwrap().frames()).unwrap().len();
    assert_eq!((same_boot, left), (true, 0));
}

#[test]
fn a_foreign_ref_lock_delays_gits_view_and_nothing_else() {
    let repo = TestRepo::new();
    let store = open(&repo).waiting_for_refs(100);
    append(&store, "a");
    let name = own_ref(&store);
    let lock = repo.ref_lock(&name);
    std::fs::write(&lock, "").unwrap();
    let done = append(&store, "b");
    assert!(matches!(&done.git_view, GitView::Pending(why) if why.contains(".lock")), "{done:?}");
    let said = store.said().take();
    assert!(matches!(&said[..], [line] if line.contains(lock.to_str().unwrap())), "{said:?}");
    assert_eq!(store.own_tip().unwrap().unwrap().seq, 2);
    assert!(lock.exists());
    std::fs::remove_file(&lock).unwrap();
    drop(open(&repo));
    assert_complete(&repo, &name, 2);
}

#[test]
fn what_a_dead_process_staged_goes_though_nothing_else_is_due() {
    let repo = TestRepo::new();
    append(&open(&repo), "a");
    let agent = repo.path().join(".git").join(AGENT_DIR);
    std::fs::write(agent.join("tmp/tmp_1.7"), "x").unwrap();
    std::fs::write(agent.join("ref.1.8"), "x").unwrap();
    drop(open(&repo));
    assert_tidy(&repo);
}

/// A prune that read the refs before they moved takes what was written meanwhile, and goes on taking loose copies
/// (storage H).
#[test]
fn what_a_prune_took_is_packed_at_the_next_look() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    append(&store, "b");
    let take = |store: &Store| {
        let frames = store.with_wal(|w| w.unwrap().frames()).unwrap();
        let lost: Vec<_> = frames.iter().flat_map(|f| &f.objects).map(|o| o.id).collect();
        lost.iter().for_each(|id| store.loose.remove(id).unwrap());
        assert!(lost.iter().all(|id| store.object(id).is_ok()), "readers do not notice");
        lost
    };
    let is_packed = |lost: Vec<Oid>| {
        lost.iter().all(|id| store.odb.has(id).unwrap() && !store.loose.is_there(id))
    };
    let lost = take(&store);
    drop(open(&repo));
    assert!(!lost.is_empty() && is_packed(lost), "by opening");
    append(&store, "c");
    let lost = take(&store);
    append(&store, "d");
    assert!(is_packed(lost), "by the next append");
    // One older frame: its turn comes.
    let first = append(&store, "e").written[0].id;
    append(&store, "f");
    append(&store, "g");
    store.loose.remove(&first).unwrap();
    let mut turns = 0;
    while !store.odb.has(&first).unwrap() {
        append(&store, "more");
        turns += 1;
        assert!(turns <= limits::HEAL_TURNS);
    }
    repo.git(&["gc", "-q", "--prune=now"]);
    append(&store, "z");
    assert_complete(&repo, &own_ref(&store), store.own_tip().unwrap().unwrap().seq);
}

/// Runs each of these git commands in a loop while `work` goes on. The loops end with it even when it panics: their
/// scope waits for them, and what went wrong would never be shown.
fn beside<T>(repo: &TestRepo, commands: &[&[&str]], work: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for args in commands {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // They get into each other's way; what they do to us is the point.
                    let _ = repo.command(args).output();
                }
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|cause| std::panic::resume_unwind(cause))
    })
}

#[test]
#[should_panic(expected = "the work failed")]
fn work_that_fails_beside_git_is_shown() {
    beside(&TestRepo::new(), &[&["pack-refs", "--all"]], || panic!("the work failed"))
}

#[test]
fn parallel_appends_beside_gc_have_no_gap() {
    const THREADS: usize = 4;
    const EACH: usize = 40;
    let repo = TestRepo::new();
    let write = &|t: usize| {
        let store = open(&repo);
        let appended = (0..EACH).flat_map(|n| append(&store, &format!("t{t}n{}", n % 5)).written);
        appended.map(|w| (w.seq, w.id)).collect::<Vec<_>>()
    };
    let git = [&["gc", "-q", "--prune=now"][..], &["pack-refs", "--all"], &["repack", "-adq"]];
    let acked: BTreeSet<(u64, Oid)> = beside(&repo, &git, || {
        thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS).map(|t| scope.spawn(move || write(t))).collect();
            writers.into_iter().flat_map(|w| w.join().unwrap()).collect()
        })
    });
    let store = open(&repo);
    store.fsck_wal().unwrap();
    let name = own_ref(&store);
    assert_complete(&repo, &name, (THREADS * EACH) as u64);
    let there: BTreeSet<String> =
        repo.git(&["rev-list", &name]).lines().map(str::to_owned).collect();
    assert_eq!(acked.len(), THREADS * EACH);
    assert!(acked.iter().all(|(_, id)| there.contains(&id.to_string())));
    assert_tidy(&repo);
    empty_log(&store);
    assert_complete(&repo, &name, (THREADS * EACH) as u64);
}

/// git refuses to move a ref in tables to an object that is not there. A prune may take it away before git looks.
#[test]
fn what_a_prune_takes_away_before_its_ref_moves_is_written_again() {
    let repo = TestRepo::with_refs("reftable");
    let store = open(&repo).waiting_for_refs(100);
    let (first, name) = (append(&store, "a").written[0].id, own_ref(&store));
    let lock = repo.ref_lock(&name);
    std::fs::write(&lock, "").unwrap();
    let second = append(&store, "b");
    assert!(matches!(second.git_view, GitView::Pending(_)));
    std::fs::remove_file(&lock).unwrap();
    repo.git(&["prune", "--expire=now"]);
    assert!(!store.loose.is_there(&second.written[0].id));
    store.swap_logged(&name, Some(first), &second.written[0].id, 0).unwrap();
    assert_complete(&repo, &name, 2);
    // What the log cannot give is no reason to ask again.
    let nowhere = object::hash(store.hash, Kind::Blob, b"nowhere").unwrap();
    let refused = store.swap_logged(&name, Some(second.written[0].id), &nowhere, 0).unwrap_err();
    assert!(refused.to_string().contains("nonexistent object"), "{refused}");
}

#[test]
fn notes_of_everybody_survive_everybody() {
    let repo = TestRepo::new();
    let targets: Vec<String> = (0..20).map(|n| repo.commit(&format!("c{n}"))).collect();
    let shared = repo.git(&["rev-parse", "HEAD"]);
    let theirs: Vec<String> = (0..10).map(|n| repo.commit(&format!("d{n}"))).collect();
    append(&open(&repo), "a");
    let noted = NOTES_GATES.strip_prefix("refs/notes/").unwrap();
    let edit = |target: &str, line: String| {
        let add =
            move |old: Option<&[u8]>| Some([old.unwrap_or_default(), line.as_bytes()].concat());
        open(&repo).edit_note(&who(), NOTES_GATES, &target.parse().unwrap(), add).unwrap();
    };
    let told_done: Vec<&String> = thread::scope(|scope| {
        let (edit, shared, repo, theirs) = (&edit, &shared, &repo, &theirs);
        for (n, target) in targets.iter().enumerate() {
            scope.spawn(move || {
                edit(target, format!("own {n}\n"));
                edit(shared, format!("shared {n}\n"));
            });
        }
        let add = |t: &str| {
            let args = ["notes", "--ref", noted, "add", "-m", "theirs", t];
            repo.command(&args).output().unwrap().status.success()
        };
        scope.spawn(move || theirs.iter().filter(|t| add(t)).collect()).join().unwrap()
    });
    for target in told_done {
        assert_eq!(repo.git(&["notes", "--ref", noted, "show", target]), "theirs");
    }
    // git's own writer has no compare-and-swap and may drop what we wrote meanwhile; whoever owns the
    // projection repeats it. What must hold: the ref is sound, and a second round makes ours whole.
    let has = |target: &str, line: &str| {
        let note = open(&repo).note(NOTES_GATES, &target.parse().unwrap()).unwrap();
        note.is_some_and(|n| String::from_utf8(n).unwrap().lines().any(|l| l == line))
    };
    for (n, target) in targets.iter().enumerate() {
        if !has(target, &format!("own {n}")) {
            edit(target, format!("own {n}\n"));
        }
        if !has(&shared, &format!("shared {n}")) {
            edit(&shared, format!("shared {n}\n"));
        }
    }
    for (n, target) in targets.iter().enumerate() {
        let shown = repo.git(&["notes", "--ref", noted, "show", target]);
        assert!(shown.lines().any(|l| l == format!("own {n}")), "{shown}");
    }
    let mut lines: Vec<String> =
        repo.git(&["notes", "--ref", noted, "show", &shared]).lines().map(str::to_owned).collect();
    lines.retain(|l| l.starts_with("shared"));
    lines.sort();
    assert_eq!(lines.len(), 20, "{lines:?}");
    repo.fsck();
    assert_tidy(&repo);
}

#[test]
fn our_parallel_notes_never_lose_one_another() {
    let repo = TestRepo::new();
    let target: Oid = repo.git(&["rev-parse", "HEAD"]).parse().unwrap();
    thread::scope(|scope| {
        for n in 0..20 {
            let repo = &repo;
            scope.spawn(move || {
                let line = format!("line {n}\n");
                let add =
                    |old: Option<&[u8]>| Some([old.unwrap_or_default(), line.as_bytes()].concat());
                open(repo).edit_note(&who(), NOTES_ACKS, &target, add).unwrap();
            });
        }
    });
    let note = open(&repo).note(NOTES_ACKS, &target).unwrap().unwrap();
    assert_eq!(note.split(|b| *b == b'\n').filter(|l| !l.is_empty()).count(), 20);
    let before = repo.git(&["rev-parse", NOTES_ACKS]);
    open(&repo).edit_note(&who(), NOTES_ACKS, &target, |old| old.map(<[u8]>::to_vec)).unwrap();
    assert_eq!(repo.git(&["rev-parse", NOTES_ACKS]), before, "an unchanged note writes nothing");
    open(&repo).edit_note(&who(), NOTES_ACKS, &target, |_| None).unwrap();
    assert_eq!(open(&repo).note(NOTES_ACKS, &target).unwrap(), None);
}

#[test]
fn notes_fan_out_as_they_grow_and_git_goes_on_using_them() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let id = |n: u32| object::hash(store.hash, Kind::Blob, &n.to_le_bytes()).unwrap();
    let full = u32::try_from(limits::NOTES_PER_DIRECTORY).unwrap();
    let count = full + 20;
    let text = |n: u32| format!("{n}\n").into_bytes();
    // The first ones as git writes them, in one tree: one by one takes long.
    let blobs: Vec<Object> =
        (0..full - 20).map(|n| Object::new(store.hash, Kind::Blob, text(n)).unwrap()).collect();
    let line = |(n, blob): (u32, &Object)| format!("100644 blob {}\t{}\n", blob.id, id(n));
    let listed: String = (0..).zip(&blobs).map(line).collect();
    drop(store.lock().unwrap());
    blobs.iter().for_each(|blob| store.loose.write(blob, files::Durable::No).unwrap());
    let tree = repo.git_fed(&["mktree"], &listed);
    let notes = repo.git(&["commit-tree", "-m", "notes", &tree]);
    repo.git(&["update-ref", NOTES_GATES, &notes]);
    for n in full - 20..count {
        store.edit_note(&who(), NOTES_GATES, &id(n), |_| Some(text(n))).unwrap();
    }
    let head = repo.git(&["rev-parse", "HEAD"]);
    repo.git(&["notes", "--ref", "agentproto/gates", "add", "-m", "theirs", &head]);
    let listed = repo.git(&["notes", "--ref", "agentproto/gates", "list"]);
    assert_eq!(listed.lines().count(), usize::try_from(count).unwrap() + 1);
    for n in 0..count {
        let note = store.note(NOTES_GATES, &id(n)).unwrap();
        assert_eq!(note, Some(text(n)));
    }
    let tree = repo.git(&["ls-tree", NOTES_GATES]);
    assert!(tree.lines().all(|line| line.starts_with("040000 tree ")), "fanned out: {tree}");
    repo.fsck();
}

//! Checkpoints, merges and repairs against plain git and against kills.

use crate::store::{
    checkpoint::Sealing,
    failpoint::tests as failpoint,
    names::AGENT_DIR,
    testlab::TestRepo,
    tests::{
        append, append_pinning, assert_complete, assert_tidy, empty_log, loose_objects, open,
        own_ref, try_open, who,
    },
    *,
};
use crate::{code::Code, domain::time::Timestamp, sys::files};
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

fn sealed(store: &Store) -> bool {
    store.with_wal(|w| Ok(w.is_some_and(|w| w.sealed_epoch().is_some()))).unwrap()
}

fn seal(store: &Store) {
    let lock = store.lock().unwrap();
    assert_eq!(store.seal(&lock).unwrap(), Sealing::Done);
}

fn pack_names(repo: &TestRepo, extension: &str) -> Vec<String> {
    let names = files::names(&repo.path().join(".git/objects/pack")).unwrap();
    let stem = |n: std::ffi::OsString| Some(n.to_str()?.strip_suffix(extension)?.to_owned());
    names.into_iter().filter_map(stem).collect()
}

fn until(what: &str, met: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !met() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Some packs of ours, one checkpoint each.
fn with_packs(repo: &TestRepo, store: &Store, count: u64) -> u64 {
    for n in 0..count {
        append(store, &format!("p{}", n % 3));
        append(store, &format!("q{n}"));
        empty_log(store);
    }
    assert_eq!(pack_names(repo, ".pack").len() as u64, count);
    2 * count
}

#[test]
fn appends_go_on_beside_a_packer_and_its_staged_files() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    let packer = store.pack_lock(0).unwrap().unwrap();
    let staged = repo.path().join(".git").join(AGENT_DIR).join("packing");
    files::make_dirs(&staged).unwrap();
    std::fs::write(staged.join("tmp_1.1"), "of the packer").unwrap();
    seal(&store);
    for label in ["b", "a", "c"] {
        let done = append(&open(&repo), label);
        assert_eq!((done.git_view, done.checkpoint_failed), (GitView::Shown, None));
    }
    assert!(staged.join("tmp_1.1").exists() && sealed(&store));
    assert_complete(&repo, &own_ref(&store), 4);
    drop(packer);
    append(&store, "d");
    assert!(!sealed(&store), "the packer died; the next append did its work");
    assert_complete(&repo, &own_ref(&store), 5);
    assert_tidy(&repo);
}

/// Its loose copy goes with the packed ones; both the pack and the new frame have it.
#[test]
fn an_equal_object_appended_while_its_pack_is_made_stays_readable() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let first = append(&store, "a");
    let tree = store.own_tip().unwrap().unwrap().tree;
    seal(&store);
    // The state after these two is the first one again, but for the number in the document.
    let back = |s: &Snapshot<'_>| {
        let data = s.document("open/1/a.json").unwrap().unwrap();
        let mut entry = tests::entry(s.next_seq, "a");
        entry.edits = vec![Edit::Put { path: "open/1/a.json".to_owned(), data }];
        Ok::<_, StoreError>(Batch { entries: vec![entry], pins: vec![] })
    };
    let packer = store.pack_lock(0).unwrap().unwrap();
    store.append(&who(), back).unwrap();
    assert_eq!(store.own_tip().unwrap().unwrap().tree, tree, "equal objects");
    store.pack_sealed(&packer).unwrap();
    drop(packer);
    assert!(!store.loose.is_there(&tree) && store.odb.has(&tree).unwrap());
    assert!(store.odb.has(&first.written[0].id).unwrap());
    assert_complete(&repo, &own_ref(&store), 2);
    repo.git(&["gc", "-q", "--prune=now"]);
    append(&store, "b");
    empty_log(&store);
    assert_complete(&repo, &own_ref(&store), 3);
}

#[test]
fn who_appends_more_than_git_should_see_loose_waits_for_the_packer() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    seal(&store);
    let packer = store.pack_lock(0).unwrap().unwrap();
    let full = || store.with_wal(|w| Ok(w.unwrap().is_full())).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let store = open(&repo);
            let mut last = 0;
            while last < limits::CHECKPOINT_OBJECTS_BESIDE {
                last = append(&store, &format!("e{}", last % 9)).written[0].seq;
            }
            last
        });
        until("the log is full", full);
        assert!(sealed(&store) && loose_objects(&repo) <= limits::LOOSE_OBJECTS);
        // It is waiting now, or about to: its next append comes only after a pack.
        let seq = store.own_tip().unwrap().unwrap().seq;
        drop(packer);
        assert!(writer.join().unwrap() > seq);
    });
    assert!(loose_objects(&repo) <= limits::LOOSE_OBJECTS);
    assert_complete(&repo, &own_ref(&store), limits::CHECKPOINT_OBJECTS_BESIDE);
}

#[test]
fn recovery_covers_the_sealed_frames_too() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    append(&store, "b");
    let packer = store.pack_lock(0).unwrap().unwrap();
    seal(&store);
    append(&store, "c");
    let name = own_ref(&store);
    let frames = store.with_wal(|w| w.unwrap().frames()).unwrap();
    let ids: Vec<Oid> = frames.iter().flat_map(|f| &f.objects).map(|o| o.id).collect();
    ids.iter().for_each(|id| store.loose.remove(id).unwrap());
    repo.git(&["update-ref", "-d", &name]);
    assert!(
        store.own_tip().unwrap().unwrap().seq == 3 && ids.iter().all(|i| store.object(i).is_ok())
    );
    drop(open(&repo));
    assert_complete(&repo, &name, 3);
    drop(packer);
    append(&store, "d");
    assert!(!sealed(&store));
    assert_complete(&repo, &name, 4);
}

#[test]
fn a_copied_and_a_moved_repository_go_on() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    let packer = store.pack_lock(0).unwrap().unwrap();
    seal(&store);
    append(&store, "b");
    drop((packer, store));
    let (copy, moved) = (TestRepo::new(), TestRepo::new());
    for target in [&copy, &moved] {
        std::fs::remove_dir_all(target.path().join(".git")).unwrap();
    }
    copy_all(&repo.path().join(".git"), &copy.path().join(".git"));
    std::fs::rename(repo.path().join(".git"), moved.path().join(".git")).unwrap();
    for target in [&copy, &moved] {
        let store = open(target);
        assert_eq!((append(&store, "c").written[0].seq, sealed(&store)), (3, false));
        assert_complete(target, &own_ref(&store), 3);
        assert_tidy(target);
    }
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in files::names(from).unwrap() {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy_all(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

#[test]
fn merging_leaves_one_small_pack_and_every_object() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let last = with_packs(&repo, &store, 5);
    let before = repo.git(&["rev-list", "--objects", "--all"]);
    assert_eq!(store.merge_packs().unwrap(), 5);
    assert_eq!(pack_names(&repo, ".pack").len(), 1);
    assert_eq!(store.merge_packs().unwrap(), 0, "there is nothing left to do");
    assert_eq!(repo.git(&["rev-list", "--objects", "--all"]), before);
    repo.git(&["verify-pack", &format!(".git/objects/pack/{}.idx", pack_names(&repo, ".idx")[0])]);
    assert_complete(&repo, &own_ref(&store), last);
    assert_tidy(&repo);
    // What a foreign repack took away meanwhile is no trouble.
    let last = append(&store, "more").written[0].seq;
    empty_log(&store);
    repo.git(&["repack", "-adq"]);
    assert_eq!(store.merge_packs().unwrap(), 0);
    assert_complete(&repo, &own_ref(&store), last);
}

#[test]
fn packs_that_others_have_an_eye_on_are_not_merged() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let last = with_packs(&repo, &store, 4);
    let all = pack_names(&repo, ".pack");
    let dir = repo.path().join(".git/objects/pack");
    std::fs::write(dir.join(format!("{}.keep", all[0])), "mine").unwrap();
    std::fs::write(dir.join(format!("{}.bitmap", all[1])), "").unwrap();
    assert_eq!(store.merge_packs().unwrap(), 2);
    let left = pack_names(&repo, ".pack");
    assert!(left.len() == 3 && left.contains(&all[0]) && left.contains(&all[1]));
    std::fs::remove_file(dir.join(format!("{}.keep", all[0]))).unwrap();
    std::fs::remove_file(dir.join(format!("{}.bitmap", all[1]))).unwrap();
    repo.git(&["multi-pack-index", "write"]);
    assert_eq!(store.merge_packs().unwrap(), 0);
    assert_complete(&repo, &own_ref(&store), last);
    let indexed = std::fs::read(dir.join("multi-pack-index")).unwrap();
    std::fs::remove_file(dir.join("multi-pack-index")).unwrap();
    std::fs::write(dir.join("multi-pack-index"), &indexed[..20]).unwrap();
    assert_eq!(store.merge_packs().unwrap(), 0, "could not be told");
    std::fs::remove_file(dir.join("multi-pack-index")).unwrap();
    assert_eq!(store.merge_packs().unwrap(), 3);
    assert_complete(&repo, &own_ref(&store), last);
}

#[test]
fn a_damaged_pack_is_left_where_it_is() {
    let repo = TestRepo::new();
    let store = open(&repo);
    with_packs(&repo, &store, 3);
    let all = pack_names(&repo, ".pack");
    let path = repo.path().join(".git/objects/pack").join(format!("{}.pack", all[1]));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[40] ^= 1;
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(store.merge_packs(), Err(StoreError::PackDamaged { .. })));
    assert_eq!(pack_names(&repo, ".pack"), all);
    assert_eq!(store.damaged_packs().unwrap(), [all[1].clone()]);
    append(&store, "on");
    let last = &path.with_file_name(format!("{}.idx", all[2]));
    let mut bytes = std::fs::read(last).unwrap();
    bytes[1100] ^= 1;
    std::fs::remove_file(last).unwrap();
    std::fs::write(last, bytes).unwrap();
    let mut damaged = store.damaged_packs().unwrap();
    damaged.sort();
    assert_eq!(damaged, all[1..]);
    std::fs::remove_file(path).unwrap();
    assert_eq!(store.damaged_packs().unwrap(), [all[2].clone()], "one that git took away");
}

#[test]
fn a_kill_at_any_step_of_a_merge_loses_nothing() {
    let steps: &[(&str, u32)] = &[
        ("pack staged", 1),
        ("pack renamed", 1),
        ("pack renamed", 2),
        ("pack removed", 1),
        ("pack removed", 2),
        ("pack removed", 5),
    ];
    for &(step, nth) in steps {
        let repo = TestRepo::new();
        let store = open(&repo);
        let last = with_packs(&repo, &store, 3);
        failpoint::arm(step, nth);
        assert!(matches!(store.merge_packs(), Err(StoreError::Stopped)), "{step} {nth}");
        assert!(failpoint::disarm());
        drop(store);
        let store = open(&repo);
        assert_complete(&repo, &own_ref(&store), last);
        assert_tidy(&repo);
        append(&store, "next");
        store.finish_packs().unwrap();
        empty_log(&store);
        store.merge_packs().unwrap();
        store.merge_packs().unwrap();
        assert_complete(&repo, &own_ref(&store), last + 1);
        assert_tidy(&repo);
        assert!(pack_names(&repo, ".pack").len() <= 2, "{step} {nth}");
    }
}

/// Damages the log in each way; readers must do, writers be refused, and repair lose nothing.
#[test]
fn a_damaged_log_stops_writers_not_readers_and_can_be_put_aside() {
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 4] = [
        ("empty", |wal| std::fs::write(wal, "").unwrap()),
        ("zeros", |wal| std::fs::write(wal, vec![0; 1 << 20]).unwrap()),
        ("garbage", |wal| std::fs::write(wal, b"not a log\n".repeat(2000)).unwrap()),
        ("first frame", |wal| {
            let mut bytes = std::fs::read(wal).unwrap();
            bytes[8192 + 40] ^= 1;
            std::fs::write(wal, bytes).unwrap();
        }),
    ];
    for (what, damage) in damages {
        let repo = TestRepo::new();
        let store = open(&repo);
        (0..3).for_each(|n| drop(append(&store, &format!("e{n}"))));
        let agent = repo.path().join(".git").join(AGENT_DIR);
        assert_eq!(store.put_log_aside().unwrap(), None, "a sound log stays");
        drop(store);
        damage(&agent.join("wal"));
        let broken = std::fs::read(agent.join("wal")).unwrap();
        let store = open(&repo);
        let tip = store.own_tip().unwrap().unwrap();
        assert_eq!((tip.seq, store.documents(&tip.tree, "open").unwrap().len()), (3, 3), "{what}");
        assert!(store.log_damage().unwrap().is_some(), "{what}");
        let decide = |_: &Snapshot<'_>| Ok::<_, StoreError>(Batch::default());
        let refused = store.append(&who(), decide).unwrap_err();
        assert_eq!(refused.code(StoreError::code), Code::JournalCorrupt, "{what}");
        assert_eq!(store.fsck_wal().unwrap_err().code(), Code::JournalCorrupt, "{what}");
        let aside = store.put_log_aside().unwrap().unwrap();
        assert_eq!(std::fs::read(&aside.files[0]).unwrap(), broken, "{what}: it is kept");
        assert_eq!(append(&store, "next").written[0].seq, 4, "{what}");
        assert_complete(&repo, &own_ref(&store), 4);
        assert_tidy(&repo);
    }
}

/// A log appears as a whole: what a kill or a power cut left of its making is no log.
#[test]
fn a_log_whose_making_was_cut_short_blocks_nobody() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let staged = repo.path().join(".git").join(AGENT_DIR).join("tmp/tmp_wal");
    let leave = || {
        files::make_dirs(staged.parent().unwrap()).unwrap();
        std::fs::write(&staged, [0; 100]).unwrap();
    };
    leave();
    append(&store, "a");
    leave();
    empty_log(&store);
    append(&open(&repo), "b");
    assert_complete(&repo, &own_ref(&store), 2);
    assert_tidy(&repo);
}

/// Frames of both files are in the log alone, the older ones in the second file.
#[test]
fn both_files_of_a_damaged_log_are_shown_in_the_order_they_were_written() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    empty_log(&store);
    append(&store, "b");
    seal(&store);
    append(&store, "c");
    let epochs = store.with_wal(|w| Ok(w.unwrap().newest_first())).unwrap();
    assert_eq!(epochs[0].file_name().unwrap(), "wal", "the first file holds the newer frames");
    let name = own_ref(&store);
    repo.git(&["update-ref", &name, &format!("{name}~2")]);
    for path in epochs {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[..8192].fill(0);
        std::fs::write(path, bytes).unwrap();
    }
    let aside = store.put_log_aside().unwrap().unwrap();
    assert_eq!((aside.files.len(), aside.refs), (2, vec![name.clone(), name.clone()]));
    assert_complete(&repo, &name, 3);
}

/// The last entry is in the log alone: it must not go aside with it.
#[test]
fn what_can_be_read_of_a_damaged_log_is_shown_before_it_is_put_aside() {
    let repo = TestRepo::new();
    let store = open(&repo).waiting_for_refs(100);
    append(&store, "a");
    let name = own_ref(&store);
    let lock = repo.ref_lock(&name);
    std::fs::write(&lock, "").unwrap();
    assert!(matches!(append(&store, "b").git_view, GitView::Pending(_)));
    std::fs::remove_file(&lock).unwrap();
    let frames = store.with_wal(|w| w.unwrap().frames()).unwrap();
    frames[1].objects.iter().for_each(|o| store.loose.remove(&o.id).unwrap());
    let wal = repo.path().join(".git").join(AGENT_DIR).join("wal");
    let mut bytes = std::fs::read(&wal).unwrap();
    bytes[..8192].fill(0);
    std::fs::write(&wal, bytes).unwrap();
    assert_eq!(store.own_tip().unwrap().unwrap().seq, 1, "readers go by the ref");
    let aside = store.put_log_aside().unwrap().unwrap();
    assert_eq!((aside.objects, aside.refs), (frames[1].objects.len() as u64, vec![name.clone()]));
    assert_eq!(store.own_tip().unwrap().unwrap().seq, 2);
    assert_complete(&repo, &name, 2);
}

#[test]
fn a_damaged_log_stays_while_an_entry_cannot_be_read_without_it() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let lost = append(&store, "a").written[0].id;
    append(&store, "b");
    let wal = repo.path().join(".git").join(AGENT_DIR).join("wal");
    std::fs::write(&wal, "").unwrap();
    let bytes = repo.path().join(".git/objects").join(&lost.to_string()[..2]);
    std::fs::remove_dir_all(bytes).unwrap();
    assert!(matches!(store.put_log_aside(), Err(StoreError::Missing { .. })));
    assert!(wal.exists());
    assert!(try_open(&repo).is_ok());
}

#[test]
fn half_a_kept_pack_goes_at_the_next_checkpoint() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    let blob = Object::new(store.hash, Kind::Blob, b"kept".to_vec()).unwrap();
    failpoint::arm("pack renamed", 1);
    let stopped = store.write_kept_pack(std::slice::from_ref(&blob));
    assert!(failpoint::disarm() && matches!(stopped, Err(StoreError::Stopped)));
    drop(store);
    assert_eq!((pack_names(&repo, ".pack").len(), pack_names(&repo, ".idx").len()), (1, 0));
    let store = open(&repo);
    append(&store, "b");
    empty_log(&store);
    assert_eq!((pack_names(&repo, ".pack").len(), pack_names(&repo, ".idx").len()), (1, 1));
    assert_complete(&repo, &own_ref(&store), 2);
    assert_tidy(&repo);
}

#[test]
fn kept_packs_whose_time_is_over_are_let_go() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let head: Oid = repo.git(&["rev-parse", "HEAD"]).parse().unwrap();
    let blob = |text: &str| Object::new(store.hash, Kind::Blob, text.as_bytes().to_vec()).unwrap();
    let listed = store.write_kept_pack(&[blob("listed")]).unwrap().name;
    std::fs::remove_dir_all(repo.path().join(".git").join(AGENT_DIR)).unwrap();
    assert_eq!(store.orphan_packs().unwrap(), std::slice::from_ref(&listed));
    let young = store.write_kept_pack(&[blob("young")]).unwrap().name;
    append_pinning(&store, "a", &[head]);
    assert_eq!(store.orphan_packs().unwrap(), std::slice::from_ref(&listed));
    let foreign = repo.path().join(".git/objects/pack").join(format!("{young}.keep"));
    let now = |ms: u64| {
        let start = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
        Timestamp::from_ms(i64::try_from(start).unwrap()).plus_ms(i64::try_from(ms).unwrap())
    };
    let day = 24 * 3600 * 1000;
    assert_eq!(store.release_stale_packs(now(0), day).unwrap(), Vec::<String>::new());
    let mut both = vec![listed.clone(), young.clone()];
    both.sort();
    let mut gone = store.release_stale_packs(now(2 * day), day).unwrap();
    gone.sort();
    assert_eq!((gone, foreign.exists()), (both, false));
    assert_eq!(store.orphan_packs().unwrap(), Vec::<String>::new());
    assert_eq!(pack_names(&repo, ".pack").len(), 2, "the packs are git's to remove");
    repo.fsck();
}

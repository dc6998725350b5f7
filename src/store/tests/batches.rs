//! Batches as packs: few files, nothing proved by them, nothing left of them.

use super::*;
use crate::sys::fault;
use std::path::Path;

const BATCH: usize = limits::BATCH_ENTRIES as usize;

/// Appends this many entries in one frame; the names of the packs there were before and after.
fn batch(store: &Store, count: usize) -> Appended {
    let decide = |s: &Snapshot<'_>| {
        let labels = (0..count).map(|n| format!("b{n}"));
        let entries = (s.next_seq..).zip(labels).map(|(seq, label)| entry(seq, &label));
        Ok::<_, StoreError>(Batch { entries: entries.collect(), pins: vec![] })
    };
    store.append(&who(), decide).unwrap()
}

fn packs(repo: &TestRepo) -> Vec<String> {
    let names = files::names(&repo.path().join(".git/objects/pack")).unwrap();
    names.into_iter().map(|n| n.into_string().unwrap()).filter(|n| n.ends_with(".pack")).collect()
}

fn pack_of(done: &Appended) -> String {
    format!("pack-{}", done.written.last().unwrap().id)
}

fn file(repo: &TestRepo, name: &str, extension: &str) -> PathBuf {
    repo.path().join(".git/objects/pack").join(format!("{name}.{extension}"))
}

fn recorded(store: &Store) -> Option<u64> {
    store.with_wal(|w| w.unwrap().frames()).unwrap().last().map(|f| f.step.seq)
}

#[test]
fn many_entries_at_once_are_one_pack_until_their_checkpoint() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let before = loose_objects(&repo);
    let done = batch(&store, BATCH);
    assert_eq!((done.git_view.clone(), loose_objects(&repo)), (GitView::Shown, before));
    assert_eq!(packs(&repo), [format!("{}.pack", pack_of(&done))]);
    repo.git(&["verify-pack", file(&repo, &pack_of(&done), "idx").to_str().unwrap()]);
    assert_complete(&repo, &own_ref(&store), 4);
    batch(&store, BATCH - 1);
    assert_eq!(packs(&repo).len(), 1, "few entries are loose");
    assert!(loose_objects(&repo) > before);
    empty_log(&store);
    assert_eq!((packs(&repo).len(), loose_objects(&repo)), (1, before));
    assert!(!file(&repo, &pack_of(&done), "pack").exists(), "it is in the pack of the checkpoint");
    assert!(!file(&repo, &pack_of(&done), "idx").exists());
    assert_complete(&repo, &own_ref(&store), 7);
    repo.git(&["gc", "-q", "--prune=now"]);
    batch(&store, 9);
    assert_complete(&repo, &own_ref(&store), 16);
}

#[test]
fn packs_of_batches_stay_few() {
    let repo = TestRepo::new();
    let store = open(&repo);
    for n in 1..=3 * limits::CHECKPOINT_BATCHES {
        batch(&store, BATCH);
        let most = usize::try_from(limits::CHECKPOINT_BATCHES).unwrap();
        assert!(packs(&repo).len() <= most + 1, "{} packs after {n}", packs(&repo).len());
    }
    assert_complete(&repo, &own_ref(&store), 4 * 3 * limits::CHECKPOINT_BATCHES);
}

/// Ends the appending of a batch, or its checkpoint, at every step.
#[test]
fn a_kill_at_any_step_leaves_all_or_nothing_and_no_half_pack() {
    type Act = fn(&Store) -> bool;
    let append: Act = |store| {
        let decide = |s: &Snapshot<'_>| {
            let entries = (s.next_seq..).zip(["c", "d", "e", "f", "g"]).map(|(n, l)| entry(n, l));
            Ok::<_, StoreError>(Batch { entries: entries.collect(), pins: vec![] })
        };
        store.append(&who(), decide).is_ok()
    };
    let checkpoint: Act = |store| checkpoint_now(store).is_ok();
    let steps: &[(&str, u32, Act, bool, u64)] = &[
        ("before the frame", 1, append, false, 4),
        ("frame written", 1, append, true, 9),
        ("pack staged", 1, append, true, 9),
        ("pack renamed", 1, append, true, 9),
        ("pack renamed", 2, append, true, 9),
        ("ref moved", 1, append, true, 9),
        ("packed", 1, checkpoint, false, 4),
        ("copy removed", 3, checkpoint, false, 4),
        ("pack removed", 1, checkpoint, false, 4),
        ("pack removed", 2, checkpoint, false, 4),
        ("batch removed", 1, checkpoint, false, 4),
        ("released", 1, checkpoint, false, 4),
        ("retired", 1, checkpoint, false, 4),
    ];
    for &(step, nth, act, answered, seq) in steps {
        let repo = TestRepo::new();
        let store = open(&repo);
        batch(&store, BATCH);
        failpoint::arm(step, nth);
        assert_eq!(act(&store), answered, "{step} {nth}");
        assert!(failpoint::disarm(), "{step} {nth} was not reached");
        drop(store);
        let store = open(&repo);
        assert_eq!(store.own_tip().unwrap().unwrap().seq, seq, "{step} {nth}");
        assert_complete(&repo, &own_ref(&store), seq);
        assert_tidy(&repo);
        batch(&store, BATCH);
        store.fsck_wal().unwrap();
        empty_log(&store);
        assert_eq!((recorded(&store), loose_objects(&repo)), (None, 2), "{step} {nth}");
        store.merge_packs().unwrap();
        assert_eq!(packs(&repo).len(), 1, "{step} {nth}: {:?}", packs(&repo));
        assert_complete(&repo, &own_ref(&store), seq + 4);
        assert_tidy(&repo);
    }
}

/// What a power cut can make of files that were never synced.
#[test]
fn what_a_power_cut_left_of_a_batch_is_made_good_from_the_log() {
    type Damage = fn(&TestRepo, &str);
    let damages: [(&str, Damage); 7] = [
        ("empty pack", |repo, name| write(&file(repo, name, "pack"), b"")),
        ("empty index", |repo, name| write(&file(repo, name, "idx"), b"")),
        ("both empty", |repo, name| {
            write(&file(repo, name, "pack"), b"");
            write(&file(repo, name, "idx"), b"");
        }),
        ("zeros", |repo, name| {
            let length = std::fs::metadata(file(repo, name, "pack")).unwrap().len();
            write(&file(repo, name, "pack"), &vec![0; usize::try_from(length).unwrap()]);
        }),
        ("cut short", |repo, name| {
            let bytes = std::fs::read(file(repo, name, "pack")).unwrap();
            write(&file(repo, name, "pack"), &bytes[..bytes.len() / 2]);
        }),
        ("no index", |repo, name| std::fs::remove_file(file(repo, name, "idx")).unwrap()),
        ("no pack", |repo, name| std::fs::remove_file(file(repo, name, "pack")).unwrap()),
    ];
    for (what, damage) in damages {
        let repo = TestRepo::new();
        fault::set_boot(Some("before"));
        let store = open(&repo);
        let name = pack_of(&batch(&store, BATCH));
        drop(store);
        damage(&repo, &name);
        fault::set_boot(Some("after"));
        let store = open(&repo);
        assert_eq!(store.own_tip().unwrap().unwrap().seq, 4, "{what}");
        assert_complete(&repo, &own_ref(&store), 4);
        batch(&store, BATCH);
        assert!(!file(&repo, &name, "pack").exists(), "{what}");
        assert!(!file(&repo, &name, "idx").exists(), "{what}");
        assert_complete(&repo, &own_ref(&store), 8);
        assert_tidy(&repo);
        fault::set_boot(None);
    }
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// A repack that listed the packs before our ref moved drops what it does not know.
#[test]
fn a_batch_that_a_foreign_repack_dropped_is_found_by_the_next_append() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let name = pack_of(&batch(&store, BATCH));
    for extension in ["idx", "pack"] {
        std::fs::remove_file(file(&repo, &name, extension)).unwrap();
    }
    append(&store, "next");
    assert_complete(&repo, &own_ref(&store), 5);
    // One that took everything over is no loss.
    batch(&store, BATCH);
    repo.git(&["repack", "-adq"]);
    let before = packs(&repo);
    append(&store, "next");
    assert_eq!(packs(&repo), before, "no checkpoint was called for");
    assert_complete(&repo, &own_ref(&store), 10);
}

/// Who looks into a multi-pack index must find the packs that it names.
#[test]
fn a_batch_that_others_have_an_eye_on_becomes_a_pack_like_all_others() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let name = pack_of(&batch(&store, BATCH));
    repo.git(&["multi-pack-index", "write"]);
    empty_log(&store);
    assert!(file(&repo, &name, "pack").exists() && file(&repo, &name, "idx").exists());
    repo.git(&["multi-pack-index", "verify"]);
    assert_complete(&repo, &own_ref(&store), 4);
    std::fs::remove_file(repo.path().join(".git/objects/pack/multi-pack-index")).unwrap();
    store.merge_packs().unwrap();
    assert_eq!(packs(&repo).len(), 1);
    assert!(!file(&repo, &name, "pack").exists());
    assert_complete(&repo, &own_ref(&store), 4);
}

/// Where the log goes aside, nothing else proves what was never synced.
#[test]
fn a_batch_outlives_the_log_that_proved_it() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let name = pack_of(&batch(&store, BATCH));
    drop(store);
    let wal = repo.path().join(".git").join(AGENT_DIR).join("wal");
    let mut bytes = std::fs::read(&wal).unwrap();
    bytes[..8192].fill(0);
    std::fs::write(&wal, bytes).unwrap();
    let store = open(&repo);
    store.put_log_aside().unwrap().unwrap();
    assert_complete(&repo, &own_ref(&store), 4);
    let listed = store.packs.mergeable().unwrap();
    assert!(listed.iter().any(|(ours, _)| *ours == name), "it is one of our packs now: {listed:?}");
    append(&store, "next");
    empty_log(&store);
    assert_complete(&repo, &own_ref(&store), 5);
}

//! What a prune took of the log is shown again before anything else is done (storage H).

use super::*;
use std::ffi::OsString;

/// The objects of all frames.
fn logged(store: &Store) -> Vec<Oid> {
    let frames = store.with_wal(|w| w.unwrap().frames()).unwrap();
    frames.iter().flat_map(|f| &f.objects).map(|o| o.id).collect()
}

fn packs(repo: &TestRepo) -> Vec<String> {
    let names = files::names(&repo.path().join(".git/objects/pack")).unwrap();
    let stem = |n: OsString| Some(n.to_str()?.strip_suffix(".pack")?.to_owned());
    let mut stems: Vec<String> = names.into_iter().filter_map(stem).collect();
    stems.sort();
    stems
}

fn pack_of(done: &Appended) -> String {
    format!("pack-{}", done.written.last().unwrap().id)
}

/// Appends while `meanwhile` happens under the lock, after the look of the beginning.
fn append_beside(
    store: &Store,
    labels: &[&str],
    meanwhile: impl Fn(),
) -> Result<Appended, journal::AppendError<StoreError>> {
    store.append(&who(), |s: &Snapshot<'_>| {
        meanwhile();
        let entries = (s.next_seq..).zip(labels).map(|(seq, label)| entry(seq, label));
        Ok::<_, StoreError>(Batch { entries: entries.collect(), pins: vec![] })
    })
}

fn batch(store: &Store) -> Appended {
    append_beside(store, &["b", "c", "d", "e"], || ()).unwrap()
}

/// Takes all that is in the log: loose copies, and packs of batches as a full repack takes them that read the refs
/// before they moved.
fn take(repo: &TestRepo, store: &Store, batches: &[&Appended]) {
    logged(store).iter().for_each(|id| store.loose.remove(id).unwrap());
    for name in batches.iter().map(|b| pack_of(b)) {
        for extension in ["idx", "pack"] {
            std::fs::remove_file(repo.path().join(format!(".git/objects/pack/{name}.{extension}")))
                .unwrap();
        }
    }
}

#[test]
fn what_a_prune_took_is_shown_by_the_next_append_though_a_packer_is_at_work() {
    let repo = TestRepo::new();
    let store = open(&repo);
    let sealed = [append(&store, "a"), batch(&store)];
    let packing = store.pack_lock(0).unwrap().unwrap();
    let lock = store.lock().unwrap();
    assert_eq!(store.seal(&lock).unwrap(), Sealing::Done);
    drop(lock);
    append(&store, "f");
    let active = batch(&store);
    let prune = || take(&repo, &store, &[&sealed[1], &active]);
    let last = append_beside(&store, &["g"], prune).unwrap();
    assert_eq!((&last.git_view, &last.checkpoint_failed), (&GitView::Shown, &None));
    assert_complete(&repo, &own_ref(&store), 11);
    let mut shown = [pack_of(&active), pack_of(&last)];
    shown.sort();
    assert_eq!(
        packs(&repo),
        shown,
        "one pack for all loose copies, and the batch that nobody packs yet"
    );
    drop(packing);
    empty_log(&store);
    assert_complete(&repo, &own_ref(&store), 11);
    assert!(packs(&repo).iter().all(|name| !shown.contains(name)), "they go at their checkpoints");
}

#[test]
fn what_a_prune_took_is_shown_before_anything_is_decided() {
    let repo = TestRepo::new();
    let store = open(&repo);
    append(&store, "a");
    take(&repo, &store, &[]);
    append_beside(&store, &["b"], || assert_complete(&repo, &own_ref(&store), 1)).unwrap();
    assert_complete(&repo, &own_ref(&store), 2);
}

#[test]
fn a_kill_while_it_is_shown_again_loses_nothing_and_leaves_no_half_pack() {
    let steps = [("pack staged", 1), ("pack renamed", 1), ("pack renamed", 2), ("sealed", 1)];
    for ((step, nth), late) in steps.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let repo = TestRepo::new();
        let store = open(&repo);
        append(&store, "a");
        append(&store, "b");
        if !late {
            take(&repo, &store, &[]);
        }
        failpoint::arm(step, nth);
        let done = append_beside(&store, &["c"], || {
            if late {
                take(&repo, &store, &[]);
            }
        });
        assert!(failpoint::disarm(), "{step} {nth} was not reached");
        let last = 2 + u64::from(done.is_ok());
        assert_eq!(done.is_ok(), late, "{step} {nth}: {done:?}");
        drop(store);
        let store = open(&repo);
        assert_complete(&repo, &own_ref(&store), last);
        store.fsck_wal().unwrap();
        empty_log(&store);
        assert_tidy(&repo);
        store.merge_packs().unwrap();
        assert_eq!(packs(&repo).len(), 1, "{step} {nth}: {:?}", packs(&repo));
        assert_complete(&repo, &own_ref(&store), last);
    }
}

//! Letting go of old segments: what goes, what stays, and what an interruption leaves.

use super::{
    segments::{EVENTS, grow, small},
    *,
};
use crate::store::{names::evidence_ref, segments::Standing};

/// Three segments of events, each with something pinned in it, and nothing of the first two left in the log.
fn three(repo: &TestRepo) -> Store {
    let store = small(repo);
    for round in 0..2_u64 {
        pin(&store);
        grow(&store, EVENTS - 1);
        assert_eq!(store.own_tip().unwrap().unwrap().seq, (round + 1) * EVENTS);
    }
    pin(&store);
    grow(&store, 2);
    store.checkpoint().unwrap();
    store
}

fn pin(store: &Store) {
    let head = store.reference("refs/heads/main").unwrap().unwrap();
    let decide = |s: &Snapshot<'_>| {
        Ok::<_, StoreError>(Batch { entries: vec![segments::placed(s, 0)], pins: vec![head] })
    };
    store.append(&who(), decide).unwrap();
}

/// Names of our refs from the word after `agentproto` on, the writer left out.
fn refs(repo: &TestRepo) -> Vec<String> {
    let listed = repo.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto"]);
    let short = |name: &str| {
        let parts: Vec<&str> = name.split('/').collect();
        format!("{}/{}", parts[2], parts[4])
    };
    listed.lines().map(short).collect()
}

fn second(store: &Store) -> Segment {
    let tip = store.own_tip().unwrap().unwrap();
    tip.segment.before().unwrap()
}

const NEWEST: [&str; 2] = ["evidence/0003", "journal/0003"];

#[test]
fn old_segments_go_with_their_evidence_and_are_not_taken_for_lost() {
    let repo = TestRepo::new();
    let store = three(&repo);
    assert_eq!(refs(&repo).len(), 6);
    let tip = store.own_tip().unwrap().unwrap();
    let ends = store.segment_ends(&tip).unwrap();
    assert_eq!(ends.iter().map(|e| e.seq).collect::<Vec<_>>(), [8, 16, 19]);
    assert!(store.drop_segments(tip.segment).is_err(), "the newest stays");
    assert_eq!(store.refs_through(&tip, second(&store)).unwrap().len(), 4);
    assert_eq!(store.drop_segments(second(&store)).unwrap().len(), 4);
    assert_eq!(refs(&repo), NEWEST);
    for store in [&store, &small(&repo)] {
        let finished = store.finished_segments(&tip).unwrap();
        assert!(finished.iter().all(|f| f.standing == Standing::Dropped), "{finished:?}");
        assert_eq!(store.first_kept(&tip).unwrap(), 17);
        assert!(store.damaged_side_files().unwrap().is_empty());
        assert!(!store.restore_segment(&tip.name_of(Segment::FIRST)).unwrap());
    }
    assert_eq!(store.drop_segments(second(&store)).unwrap(), Vec::<String>::new());
    repo.git(&["gc", "-q", "--prune=now"]);
    assert_eq!(grow(&small(&repo), 8).len(), 11);
    repo.fsck();
}

#[test]
fn without_the_memory_that_it_went_a_segment_that_is_still_there_counts_as_lost() {
    let repo = TestRepo::new();
    let store = three(&repo);
    store.drop_segments(Segment::FIRST).unwrap();
    std::fs::remove_file(store.agent.join("dropped")).unwrap();
    let tip = store.own_tip().unwrap().unwrap();
    let first = store.finished_segments(&tip).unwrap().pop().unwrap();
    assert_eq!(first.standing, Standing::Lost);
    assert!(store.restore_segment(&first.name).unwrap());
    assert_eq!(store.first_kept(&tip).unwrap(), 1);
}

#[test]
fn what_the_log_still_proves_stays() {
    let repo = TestRepo::new();
    let store = small(&repo);
    grow(&store, EVENTS + 1);
    assert_eq!(store.drop_segments(Segment::FIRST).unwrap(), Vec::<String>::new());
    assert!(!store.agent.join("dropped").exists());
    store.checkpoint().unwrap();
    assert_eq!(store.drop_segments(Segment::FIRST).unwrap().len(), 1);
}

#[test]
fn a_kill_at_any_step_leaves_evidence_rather_than_events_and_is_finished_later() {
    for (step, nth) in [
        ("drop noted", 1),
        ("segment let go", 1),
        ("segment let go", 2),
        ("segment let go", 3),
        ("segment let go", 4),
    ] {
        let repo = TestRepo::new();
        let store = three(&repo);
        let through = second(&store);
        failpoint::arm(step, nth);
        assert!(store.drop_segments(through).is_err(), "{step} {nth}");
        assert!(failpoint::disarm());
        drop(store);
        let store = small(&repo);
        let left = refs(&repo);
        for name in left.iter().filter_map(|name| name.strip_prefix("journal/")) {
            assert!(left.contains(&format!("evidence/{name}")), "{step} {nth}: {left:?}");
        }
        let tip = store.own_tip().unwrap().unwrap();
        let lost = |f: &crate::store::segments::Finished| f.standing == Standing::Lost;
        assert!(!store.finished_segments(&tip).unwrap().iter().any(lost), "{step} {nth}");
        store.finish_dropping().unwrap();
        let left = refs(&repo);
        let journal = left.iter().filter_map(|name| name.strip_prefix("journal/"));
        let evidence = left.iter().filter_map(|name| name.strip_prefix("evidence/"));
        assert_eq!(journal.collect::<Vec<_>>(), evidence.collect::<Vec<_>>(), "{step} {nth}");
        store.drop_segments(through).unwrap();
        assert_eq!(refs(&repo), NEWEST, "{step} {nth}");
        repo.fsck();
    }
}

#[test]
fn evidence_alone_is_finished_without_asking_for_more() {
    let repo = TestRepo::new();
    let store = three(&repo);
    failpoint::arm("segment let go", 1);
    assert!(store.drop_segments(Segment::FIRST).is_err());
    failpoint::disarm();
    let writer = store.writer().unwrap().unwrap();
    let evidence = evidence_ref(&writer, Segment::FIRST);
    assert_eq!(small(&repo).finish_dropping().unwrap(), [evidence]);
    assert_eq!(refs(&repo).len(), 4);
}

#[test]
fn evidence_of_a_segment_that_is_lost_and_was_not_let_go_stays() {
    let repo = TestRepo::new();
    let store = three(&repo);
    assert_eq!(store.drop_segments(Segment::FIRST).unwrap().len(), 2);
    let tip = store.own_tip().unwrap().unwrap();
    let second = tip.name_of(second(&store));
    repo.git(&["update-ref", "-d", &second]);
    assert_eq!(store.finish_dropping().unwrap(), Vec::<String>::new());
    assert_eq!(refs(&repo), ["evidence/0002", "evidence/0003", "journal/0003"]);
    assert!(store.restore_segment(&second).unwrap());
}

#[test]
fn an_event_that_was_noted_and_let_go_is_not_missed() {
    let repo = TestRepo::new();
    let store = three(&repo);
    let tip = store.own_tip().unwrap().unwrap();
    let old = store.seek_in(&tip, 3).unwrap().unwrap();
    // As another user of this repository, who came by long ago, has it noted.
    store.homes.note_seen(&tip.writer, &Seen { seq: 3, id: old.id });
    assert_eq!(store.end().unwrap(), End::Held);
    store.drop_segments(second(&store)).unwrap();
    repo.git(&["reflog", "expire", "--expire=now", "--all"]);
    repo.git(&["gc", "-q", "--prune=now"]);
    let store = small(&repo);
    assert_eq!(store.find_object(&old.id).unwrap(), None, "still here");
    assert_eq!(store.end().unwrap(), End::Held);
    grow(&store, 1);
    store.homes.note_seen(&tip.writer, &Seen { seq: 18, id: old.id });
    assert_eq!(store.end().unwrap(), End::Lost(Seen { seq: 18, id: old.id }));
}

#[test]
fn a_checkpoint_leaves_nothing_in_the_log() {
    let repo = TestRepo::new();
    let store = open(&repo);
    (0..5).for_each(|n| drop(append(&store, &format!("e{n}"))));
    assert_eq!(store.footprint().unwrap().frames, 5);
    store.checkpoint().unwrap();
    let footprint = store.footprint().unwrap();
    assert_eq!((footprint.frames, footprint.packs), (0, 1));
    assert!(footprint.pack_bytes > 0);
    store.checkpoint().unwrap();
    assert_eq!(store.footprint().unwrap(), footprint);
    repo.fsck();
}

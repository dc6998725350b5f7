//! Segments of eight events: where they begin, what proves them, what is left when they are dropped.

use super::*;
use crate::store::segments::Standing;

pub(super) const EVENTS: u64 = 8;

pub(super) fn small(repo: &TestRepo) -> Store {
    open(repo).with_segments_of(EVENTS)
}

/// The entry `nth` of a batch, with what its place demands.
pub(super) fn placed(s: &Snapshot<'_>, nth: u64) -> NewEntry {
    let mut made = entry(s.next_seq + nth, &format!("e{}", (s.next_seq + nth) % 5));
    if let (Place::Continues { last, .. }, 0) = (s.place, nth) {
        let text = String::from_utf8(made.message).unwrap();
        let lines = format!("\n\nFormat: 1\nContinues: {last}\nSeq: ");
        made.message = text.replacen("\n\nSeq: ", &lines, 1).into_bytes();
    }
    made
}

fn batch(store: &Store, entries: u64, pins: &[Oid]) -> Result<Appended, AppendError<StoreError>> {
    store.append(&who(), |s| {
        let entries = (0..entries).map(|nth| placed(s, nth)).collect();
        Ok(Batch { entries, pins: pins.to_vec() })
    })
}

/// Appends one by one; the ids of all entries of the journal, the first at 0.
pub(super) fn grow(store: &Store, entries: u64) -> Vec<Oid> {
    (0..entries).for_each(|_| drop(batch(store, 1, &[]).unwrap()));
    all(store)
}

fn all(store: &Store) -> Vec<Oid> {
    let tip = store.own_tip().unwrap().unwrap();
    let mut ids: Vec<Oid> =
        store.newest_first(&tip).unwrap().map(|entry| entry.unwrap().id).collect();
    ids.reverse();
    ids
}

fn numbered(store: &Store, text: &str) -> String {
    let writer = store.writer().unwrap().unwrap();
    format!("refs/agentproto/journal/{writer}/{text}")
}

fn logged(store: &Store) -> Vec<String> {
    store.with_wal(|w| Ok(w.unwrap().tips().keys().cloned().collect())).unwrap()
}

/// Every segment by plain git, and the walk over all of them.
fn assert_segments(repo: &TestRepo, store: &Store, expected: &[(&str, u64, u64)]) {
    for (number, first, last) in expected {
        let seqs = seqs(repo, &numbered(store, number));
        assert_eq!(seqs, (*first..=*last).rev().collect::<Vec<_>>(), "{number}");
    }
    let listed = repo.git(&["for-each-ref", "refs/agentproto/journal"]);
    assert_eq!(listed.lines().count(), expected.len(), "{listed}");
    repo.fsck();
}

#[test]
fn a_segment_begins_every_so_often_and_the_journal_reads_as_one() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    assert_eq!(ids.len(), 20);
    assert_segments(&repo, &store, &[("0001", 1, 8), ("0002", 9, 16), ("0003", 17, 20)]);
    let first = store.entry(&ids[8]).unwrap();
    assert_eq!((first.parent, first.continues, first.seq), (None, Some(ids[7]), 9));
    let tip = store.own_tip().unwrap().unwrap();
    assert_eq!((tip.seq, tip.name()), (20, numbered(&store, "0003")));
    // The state goes on where it was: the first entry changed one document of five.
    assert_eq!(store.documents(&first.tree, "").unwrap().len(), 5);
    assert_eq!(store.journals().unwrap().tips, std::slice::from_ref(&tip));
    let kept = store.kept_segments(&tip).unwrap();
    assert_eq!(kept.iter().map(|k| k.last).collect::<Vec<_>>(), [ids[7], ids[15], ids[19]]);
    // Without our directory the refs alone say where it ends, and the next segment begins as ever.
    std::fs::remove_dir_all(repo.path().join(".git").join(AGENT_DIR)).unwrap();
    let again = small(&repo);
    assert_eq!(again.own_tip().unwrap().unwrap(), tip);
    assert_eq!(grow(&again, 5)[..20], ids[..]);
    let expected = [("0001", 1, 8), ("0002", 9, 16), ("0003", 17, 24), ("0004", 25, 25)];
    assert_segments(&repo, &again, &expected);
}

#[test]
fn a_batch_is_never_split_and_never_longer_than_a_segment() {
    let repo = TestRepo::new();
    let store = small(&repo);
    batch(&store, 7, &[]).unwrap();
    batch(&store, 8, &[]).unwrap();
    assert_segments(&repo, &store, &[("0001", 1, 15)]);
    // Longer ones would skip a number.
    let too_long = batch(&store, 9, &[]).unwrap_err();
    assert!(too_long.to_string().contains("a segment has 8"), "{too_long}");
}

#[test]
fn a_segment_that_ran_over_is_followed_by_the_next_number() {
    let repo = TestRepo::new();
    let store = small(&repo);
    batch(&store, 8, &[]).unwrap();
    batch(&store, 7, &[]).unwrap();
    batch(&store, 8, &[]).unwrap();
    batch(&store, 2, &[]).unwrap();
    assert_segments(&repo, &store, &[("0001", 1, 8), ("0002", 9, 23), ("0003", 24, 25)]);
    let tip = store.own_tip().unwrap().unwrap();
    let ids = all(&store);
    for seq in 1..=25 {
        let found = store.seek_in(&tip, seq).unwrap().unwrap();
        assert_eq!(found.id, ids[usize::try_from(seq).unwrap() - 1], "{seq}");
    }
    // What the second ran over by is dropped with it.
    empty_log(&store);
    repo.git(&["update-ref", "-d", &numbered(&store, "0001")]);
    repo.git(&["update-ref", "-d", &numbered(&store, "0002")]);
    assert_eq!(store.first_kept(&tip).unwrap(), 24);
    let refused = store.seek_in(&tip, 23).unwrap_err();
    assert!(matches!(refused, StoreError::SegmentDropped { seq: 23, first: 24 }), "{refused}");
    assert_eq!(store.seek_in(&tip, 24).unwrap().unwrap().id, ids[23]);
}

#[test]
fn a_first_entry_says_what_it_continues_and_no_other_does() {
    let repo = TestRepo::new();
    let store = small(&repo);
    grow(&store, 8);
    let plain = |s: &Snapshot<'_>| {
        Ok::<_, StoreError>(Batch { entries: vec![entry(s.next_seq, "a")], pins: vec![] })
    };
    let refused = store.append(&who(), plain).unwrap_err();
    assert!(refused.to_string().contains("Continues"), "{refused}");
    let twice = |s: &Snapshot<'_>| {
        let mut second = placed(s, 0);
        second.message = String::from_utf8(second.message)
            .unwrap()
            .replace("Seq: 9\n", "Seq: 10\n")
            .into_bytes();
        Ok::<_, StoreError>(Batch { entries: vec![placed(s, 0), second], pins: vec![] })
    };
    assert!(store.append(&who(), twice).is_err());
    assert_eq!(store.own_tip().unwrap().unwrap().seq, 8);
    // Somebody's ref in the place of the next segment is never written over.
    let head = repo.git(&["rev-parse", "HEAD"]);
    repo.git(&["update-ref", &numbered(&store, "0002"), &head]);
    let refused = batch(&store, 1, &[]).unwrap_err();
    assert_eq!(refused.code(|_| Code::Internal), Code::JournalDiverged);
    assert_eq!(repo.git(&["rev-parse", &numbered(&store, "0002")]), head);
}

/// Kills the append that begins a segment at every step.
#[test]
fn a_kill_between_segments_leaves_all_or_nothing() {
    let steps: &[(&str, u32, u64)] = &[
        ("before the frame", 1, 8),
        ("frame written", 1, 9),
        ("object written", 1, 9),
        ("ref locked", 1, 9),
        ("ref moved", 1, 9),
        ("ref locked", 2, 9),
        ("ref moved", 2, 9),
    ];
    for &(step, nth, seq) in steps {
        let repo = TestRepo::new();
        let head: Oid = repo.git(&["rev-parse", "HEAD"]).parse().unwrap();
        let store = small(&repo);
        batch(&store, 1, &[head]).unwrap();
        grow(&store, 7);
        failpoint::arm(step, nth);
        let answered = batch(&store, 1, &[head]);
        assert!(failpoint::disarm(), "{step} {nth} was not reached");
        assert_eq!(answered.is_ok(), seq == 9, "{step} {nth}");
        drop(store);
        let store = small(&repo);
        assert_eq!(store.own_tip().unwrap().unwrap().seq, seq, "{step} {nth}");
        assert_tidy(&repo);
        batch(&store, 1, &[head]).unwrap();
        assert_eq!(all(&store).len() as u64, seq + 1, "{step} {nth}");
        assert_segments(&repo, &store, &[("0001", 1, 8), ("0002", 9, seq + 1)]);
        // Each segment's pins are a chain of their own.
        let writer = store.writer().unwrap().unwrap();
        let chains = store.evidence_tips(&writer).unwrap();
        let pins: Vec<_> = chains.iter().map(|c| store.require(c, Kind::Commit).unwrap()).collect();
        let parents: Vec<usize> =
            pins.iter().map(|p| commit::parse(head.hash(), p).unwrap().parents.len()).collect();
        assert_eq!(parents, [1, if seq == 9 { 2 } else { 1 }], "{step} {nth}");
    }
}

#[test]
fn a_finished_segment_is_proved_by_the_log_until_a_checkpoint_and_then_by_the_next_one() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    let tip = store.own_tip().unwrap().unwrap();
    assert_eq!(logged(&store).len(), 3);
    repo.git(&["update-ref", "-d", &numbered(&store, "0001")]);
    assert_eq!((store.first_kept(&tip).unwrap(), all(&store).len()), (1, 20), "who only reads");
    assert_eq!(store.kept_segments(&tip).unwrap()[0].last, ids[7]);
    drop(small(&repo));
    assert_segments(&repo, &store, &[("0001", 1, 8), ("0002", 9, 16), ("0003", 17, 20)]);
    empty_log(&store);
    assert_eq!(logged(&store), [numbered(&store, "0003")]);

    let standing = |store: &Store| -> Vec<Standing> {
        let finished = store.finished_segments(&tip).unwrap();
        assert_eq!(finished[0].name, numbered(store, "0002"));
        finished.into_iter().map(|f| f.standing).collect()
    };
    assert_eq!(standing(&store), [Standing::Whole, Standing::Whole]);
    let second = numbered(&store, "0002");
    repo.git(&["update-ref", &second, &ids[9].to_string()]);
    assert_eq!(standing(&store), [Standing::Elsewhere { actual: ids[9] }, Standing::Whole]);
    spoil(&repo, &second, "");
    assert_eq!(standing(&store), [Standing::Lost, Standing::Whole]);
    unset(&repo, &second);
    drop(small(&repo));
    assert_eq!(standing(&store), [Standing::Lost, Standing::Whole]);
    assert_eq!(store.first_kept(&tip).unwrap(), 17);
    // What is known is enough to set it again.
    let lost = store.finished_segments(&tip).unwrap().remove(0);
    repo.git(&["update-ref", &lost.name, &lost.last.unwrap().to_string()]);
    assert_eq!(standing(&store), [Standing::Whole, Standing::Whole]);
    assert_eq!(all(&store), ids);
}

#[test]
fn a_dropped_segment_ends_what_is_kept_and_nothing_else() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    empty_log(&store);
    repo.git(&["update-ref", "-d", &numbered(&store, "0001")]);
    for pruned in [false, true] {
        if pruned {
            repo.git(&["reflog", "expire", "--expire=now", "--all"]);
            repo.git(&["gc", "-q", "--prune=now"]);
        }
        let store = small(&repo);
        let tip = store.own_tip().unwrap().unwrap();
        let standing = store.finished_segments(&tip).unwrap()[1].standing;
        assert_eq!(standing, if pruned { Standing::Dropped } else { Standing::Lost });
        assert_eq!(store.first_kept(&tip).unwrap(), 9);
        assert_eq!(all(&store), ids[8..]);
        let refused = store.entries_from(&tip, 8, 3).unwrap_err();
        assert_eq!(refused.code(), Code::SegmentDropped);
        let page = store.entries_from(&tip, 9, 3).unwrap();
        assert_eq!(page.iter().map(|e| e.id).collect::<Vec<_>>(), ids[8..11]);
    }
    assert_eq!(grow(&small(&repo), 5)[..12], ids[8..]);
    repo.fsck();
}

#[test]
fn what_lies_before_a_segment_that_is_missing_belongs_to_nothing() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    empty_log(&store);
    let tip = store.own_tip().unwrap().unwrap();
    repo.git(&["update-ref", "-d", &numbered(&store, "0002")]);
    for pruned in [false, true] {
        if pruned {
            repo.git(&["reflog", "expire", "--expire=now", "--all"]);
            repo.git(&["gc", "-q", "--prune=now"]);
        }
        let store = small(&repo);
        let kept = store.kept_segments(&tip).unwrap();
        assert_eq!(kept.iter().map(|k| k.last).collect::<Vec<_>>(), [ids[19]], "{pruned}");
        assert_eq!((store.first_kept(&tip).unwrap(), all(&store).len()), (17, 4), "{pruned}");
        let refused = store.seek_in(&tip, 5).unwrap_err();
        assert!(matches!(refused, StoreError::SegmentDropped { seq: 5, first: 17 }), "{refused}");
        let finished = store.finished_segments(&tip).unwrap().into_iter();
        let expected = if pruned {
            [Standing::Dropped, Standing::Unproven]
        } else {
            [Standing::Lost, Standing::Whole]
        };
        assert_eq!(finished.map(|f| f.standing).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_segment_that_ran_over_is_put_back_as_the_one_it_is() {
    let repo = TestRepo::new();
    let store = small(&repo);
    batch(&store, 7, &[]).unwrap();
    let older = store.own_tip().unwrap().unwrap().id;
    batch(&store, 8, &[]).unwrap();
    let ids = all(&store);
    std::fs::remove_dir_all(repo.path().join(".git").join(AGENT_DIR)).unwrap();
    repo.git(&["update-ref", &numbered_of(&repo), &older.to_string()]);
    let store = small(&repo);
    assert_eq!(store.own_tip().unwrap().unwrap().seq, 7);
    store.fsck_wal().unwrap();
    assert_eq!(all(&store), ids);
    assert_segments(&repo, &store, &[("0001", 1, 15)]);
}

/// The only ref of the only journal.
fn numbered_of(repo: &TestRepo) -> String {
    repo.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"])
}

#[test]
fn a_journal_of_somebody_else_that_cannot_be_read_takes_nothing_from_the_others() {
    let repo = TestRepo::new();
    let store = small(&repo);
    grow(&store, 10);
    let tip = store.own_tip().unwrap().unwrap();
    let fetched = |writer: &str, number: &str| {
        format!("refs/agentproto/remotes/origin/journal/{writer}/{number}")
    };
    let whole = fetched("aaaaaaaaaaaa", "0002");
    repo.git(&["update-ref", &fetched("aaaaaaaaaaaa", "0001"), &tip.id.to_string()]);
    repo.git(&["update-ref", &whole, &tip.id.to_string()]);
    let head = repo.git(&["rev-parse", "HEAD"]);
    repo.git(&["update-ref", &fetched("bbbbbbbbbbbb", "0001"), &head]);
    repo.git(&["update-ref", &fetched("cccccccccccc", "0001"), &head]);
    spoil(&repo, &fetched("cccccccccccc", "0001"), "garbage");
    repo.git(&["symbolic-ref", &fetched("dddddddddddd", "0001"), "refs/heads/nowhere"]);
    let found = store.journals().unwrap();
    assert_eq!(found.tips.iter().map(Tip::name).collect::<Vec<_>>(), [tip.name(), whole]);
    let unreadable: Vec<_> =
        found.unreadable.iter().map(|u| (u.writer.as_str(), u.id.is_some())).collect();
    let expected = [("bbbbbbbbbbbb", true), ("cccccccccccc", false), ("dddddddddddd", false)];
    assert_eq!(unreadable, expected);
    // Our own is another matter.
    std::fs::remove_dir_all(repo.path().join(".git").join(AGENT_DIR)).unwrap();
    for spoilt in [format!("{head}\n"), "garbage".to_owned()] {
        spoil(&repo, &tip.name(), &spoilt);
        assert!(small(&repo).journals().is_err(), "{spoilt}");
    }
}

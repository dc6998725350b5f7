//! The seek index is a cache: whatever becomes of it, the answers are the same.

use super::{
    segments::{grow, small},
    *,
};

const HEADER: usize = 32;

fn index(repo: &TestRepo, store: &Store) -> PathBuf {
    let writer = store.writer().unwrap().unwrap();
    repo.path().join(".git").join(AGENT_DIR).join("seek").join(writer.as_str())
}

/// All answers are those of the walk.
fn assert_answers(store: &Store, ids: &[Oid], after: &str) {
    let tip = store.own_tip().unwrap().unwrap();
    for seq in (1..=ids.len()).rev() {
        let found = store.seek_in(&tip, seq as u64).unwrap().unwrap();
        assert_eq!((found.id, found.seq), (ids[seq - 1], seq as u64), "{after}");
    }
    for seq in [0, tip.seq + 1, u64::MAX] {
        assert_eq!(store.seek_in(&tip, seq).unwrap(), None, "{after}");
    }
    for (from, most) in [(1, 100), (3, 7), (8, 2), (20, 1), (15, 6)] {
        let page = store.entries_from(&tip, from as u64, most).unwrap();
        let expected = &ids[from - 1..(from - 1 + most).min(ids.len())];
        assert_eq!(page.iter().map(|e| e.id).collect::<Vec<_>>(), expected, "{after}");
    }
    assert_eq!(store.entries_from(&tip, 21, 5).unwrap(), [], "{after}");
    assert_eq!(store.entries_from(&tip, 1, 0).unwrap(), [], "{after}");
}

/// What the index has to hold.
fn expected(ids: &[Oid]) -> Vec<u8> {
    ids.iter().flat_map(Oid::as_bytes).copied().collect()
}

#[test]
fn an_append_writes_down_where_its_entries_are() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    let bytes = std::fs::read(index(&repo, &store)).unwrap();
    assert_eq!(bytes[HEADER..], expected(&ids));
    assert_answers(&store, &ids, "as appended");
    let writer = store.writer().unwrap().unwrap();
    assert_eq!(store.seek(&writer, 5).unwrap().unwrap().id, ids[4]);
    assert_eq!(store.seek(&"aaaaaaaaaaaa".parse().unwrap(), 5).unwrap(), None);
}

#[test]
fn a_wrong_index_is_found_out_and_made_again() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    let width = ids[0].as_bytes().len();
    let path = index(&repo, &store);
    let good = std::fs::read(&path).unwrap();
    let at = |seq: usize| HEADER + (seq - 1) * width;
    let other = grow(&small(&TestRepo::new()), 1)[0];
    let forged = |seqs: std::ops::RangeInclusive<usize>| {
        let mut bytes = good.clone();
        let mut before = ids[seqs.start() - 2];
        let tree = store.own_tip().unwrap().unwrap().tree;
        for seq in seqs {
            let text = format!("another event\n\nSeq: {seq}\n");
            let made = commit::encode(&tree, &[before], &who(), text.as_bytes()).unwrap();
            store.loose.write(&made, files::Durable::No).unwrap();
            bytes[at(seq)..at(seq + 1)].copy_from_slice(made.id.as_bytes());
            before = made.id;
        }
        bytes
    };
    let changed = |from: usize, to: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[from..to].fill(byte);
        bytes
    };
    let mut swapped = good.clone();
    swapped[at(4)..at(5)].copy_from_slice(ids[6].as_bytes());
    let mut foreign = good.clone();
    foreign[at(1)..at(2)].copy_from_slice(other.as_bytes());
    let damages: Vec<(&str, Vec<u8>)> = vec![
        ("empty", vec![]),
        ("header cut", good[..9].to_vec()),
        ("torn", good[..at(13) + 7].to_vec()),
        ("zeroed", changed(HEADER, good.len(), 0)),
        ("a zeroed part", changed(at(5), at(12), 0)),
        ("half an id zeroed", changed(at(5) + 7, at(5) + 15, 0)),
        ("garbage", changed(at(2), at(19), 0xa5)),
        ("of another writer", changed(12, 24, b'a')),
        ("of another version", changed(6, 7, 9)),
        ("another entry of the same journal", swapped),
        ("an entry of another repository", foreign),
        ("a forged entry with the right number", forged(5..=5)),
        ("the last entry forged", forged(20..=20)),
        ("too long", [good.clone(), vec![7; 90]].concat()),
    ];
    for (name, bytes) in damages {
        std::fs::write(&path, bytes).unwrap();
        assert_answers(&store, &ids, name);
        assert_eq!(std::fs::read(&path).unwrap()[..good.len()], good, "{name} is made good");
    }
    // Whole stretches with right numbers and links of their own: who leaves the stretch finds it out, or the ref.
    std::fs::write(&path, forged(5..=7)).unwrap();
    let tip = store.own_tip().unwrap().unwrap();
    let page = store.entries_from(&tip, 5, 10).unwrap();
    assert_eq!(page.iter().map(|e| e.id).collect::<Vec<_>>(), ids[4..14]);
    assert_answers(&store, &ids, "a forged stretch");
    std::fs::write(&path, forged(18..=20)).unwrap();
    assert_eq!(store.seek_in(&tip, 18).unwrap().unwrap().id, ids[17]);
    // A page from an earlier segment that reaches a forged end.
    std::fs::write(&path, forged(20..=20)).unwrap();
    let page = store.entries_from(&tip, 3, 100).unwrap();
    assert_eq!(page.iter().map(|e| e.id).collect::<Vec<_>>(), ids[2..]);
    for gone in [path.clone(), path.parent().unwrap().to_owned()] {
        if gone.is_dir() {
            std::fs::remove_dir_all(gone).unwrap();
        } else {
            std::fs::remove_file(gone).unwrap();
        }
        assert_answers(&store, &ids, "removed");
        assert_eq!(std::fs::read(&path).unwrap(), good);
    }
}

#[test]
fn an_index_that_cannot_be_written_costs_time_only() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    let path = index(&repo, &store);
    std::fs::remove_file(&path).unwrap();
    // Nothing can be written over a directory, whoever runs the test.
    std::fs::create_dir(&path).unwrap();
    assert_answers(&store, &ids, "not writable");
    assert_eq!(grow(&store, 1)[..20], ids);
    std::fs::remove_dir(&path).unwrap();
    // Reading makes nothing where our directory is missing.
    let agent = repo.path().join(".git").join(AGENT_DIR);
    std::fs::remove_dir_all(&agent).unwrap();
    let fresh = small(&repo);
    let tip = fresh.own_tip().unwrap().unwrap();
    assert_eq!(fresh.seek_in(&tip, 3).unwrap().unwrap().id, ids[2]);
    assert!(!agent.exists());
}

#[test]
fn positions_beyond_the_end_are_cut_by_the_next_append() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    let path = index(&repo, &store);
    let mut bytes = std::fs::read(&path).unwrap();
    let again = bytes[HEADER..HEADER + 90].to_vec();
    bytes.extend_from_slice(&again);
    std::fs::write(&path, bytes).unwrap();
    let more = grow(&store, 1);
    assert_eq!(more[..20], ids);
    assert_eq!(std::fs::read(&path).unwrap()[HEADER..], expected(&more));
}

#[test]
fn who_only_looks_neither_fills_nor_removes_it() {
    let repo = TestRepo::new();
    let store = small(&repo);
    let ids = grow(&store, 20);
    let path = index(&repo, &store);
    let looking = small(&repo).looking_only();
    let good = std::fs::read(&path).unwrap();
    for wrong in [vec![0xa5; 90], [good[..HEADER].to_vec(), vec![0xa5; 90]].concat()] {
        std::fs::write(&path, &wrong).unwrap();
        assert_answers(&looking, &ids, "looked at");
        assert_eq!(std::fs::read(&path).unwrap(), wrong);
    }
    std::fs::remove_file(&path).unwrap();
    assert_answers(&looking, &ids, "looked for");
    assert!(!path.exists());
}

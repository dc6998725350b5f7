//! The log hurt in every place: what counts goes on counting, what is damaged is told.

use super::*;
use crate::store::{
    object::Kind,
    salvage::salvaged,
    wal_file::{ALIGN, START},
    wal_frame::{self, Move, Step},
};
use std::os::unix::fs::FileExt as _;

const NAME: &str = "refs/agentproto/x";
const HASH: HashKind = HashKind::Sha256;

fn id(n: u64) -> Oid {
    Object::new(HASH, Kind::Blob, n.to_string().into_bytes()).unwrap().id
}

fn frame(n: u64) -> Frame {
    let old = (n > 1).then(|| id(n - 1));
    let moves = vec![Move { name: NAME.to_owned(), old, new: id(n) }];
    let objects = vec![Object::new(HASH, Kind::Blob, n.to_string().into_bytes()).unwrap()];
    Frame { step: Step { seq: n, entries: 1, moves }, objects }
}

fn push(wal: &mut Wal, numbers: std::ops::RangeInclusive<u64>) {
    numbers.for_each(|n| wal.push(&frame(n)).unwrap());
}

fn seal(wal: &mut Wal) -> bool {
    wal.seal(wal.tips().clone()).unwrap()
}

/// A directory with a log in it.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        let lab = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(lab.0.path().join("tmp")).unwrap();
        let (boot, refs) = (files::boot_id(), BTreeMap::new());
        Wal::create(
            &lab.paths(),
            &Head { hash: HASH, epoch: 1, seq: 0, boot, refs, sealed: false },
        )
        .unwrap();
        lab
    }

    fn paths(&self) -> WalPaths {
        WalPaths::new(self.0.path())
    }

    fn open(&self) -> Wal {
        Wal::open(&self.paths(), HASH).unwrap().unwrap()
    }

    fn refused(&self) -> String {
        let error = Wal::open(&self.paths(), HASH).err().expect("damage is noticed");
        assert_eq!(error.code(), crate::code::Code::JournalCorrupt);
        error.to_string()
    }

    fn file(&self, which: usize) -> std::fs::File {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).open(&self.paths().files[which]).unwrap()
    }

    /// Flips a bit.
    fn flip(&self, which: usize, at: u64) {
        let (file, mut byte) = (self.file(which), [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
    }
}

fn numbers(wal: &Wal) -> Vec<u64> {
    wal.frames().unwrap().iter().map(|f| f.step.seq).collect()
}

#[test]
fn frames_are_read_back_by_others_and_once_retired_no_more() {
    let lab = Lab::new();
    let (mut wal, other) = (lab.open(), lab.open());
    push(&mut wal, 1..=3);
    let other = other.caught_up().unwrap().unwrap();
    assert_eq!((other.seq(), numbers(&other), other.tips()[NAME]), (3, vec![1, 2, 3], id(3)));
    assert!(other.has_passed(NAME, &id(2)) && !other.has_passed(NAME, &id(3)));
    assert_eq!(other.find(&id(2)).unwrap(), Some(frame(2).objects.remove(0)));
    assert!(seal(&mut wal) && !seal(&mut wal), "one at a time");
    push(&mut wal, 4..=4);
    let other = other.caught_up().unwrap().unwrap();
    for wal in [&wal, &other, &lab.open()] {
        assert_eq!((wal.seq(), numbers(wal), wal.sealed_epoch()), (4, vec![1, 2, 3, 4], Some(1)));
        assert_eq!(wal.sealed_frames().unwrap(), [frame(1), frame(2), frame(3)]);
        assert!(wal.has_passed(NAME, &id(3)) && wal.find(&id(2)).unwrap().is_some());
    }
    wal.retire(7).unwrap();
    assert_eq!(wal.sealed_epoch(), Some(1), "another epoch is nobody's business");
    wal.retire(1).unwrap();
    let other = other.caught_up().unwrap().unwrap();
    for wal in [&wal, &other, &lab.open()] {
        assert_eq!((wal.seq(), numbers(wal), wal.sealed_epoch()), (4, vec![4], None));
        assert_eq!((wal.find(&id(2)).unwrap(), wal.tips()[NAME]), (None, id(4)));
    }
    // The first file has its turn again; what it held is never read again.
    assert!(seal(&mut wal));
    push(&mut wal, 5..=5);
    assert_eq!(numbers(&other.caught_up().unwrap().unwrap()), [4, 5]);
    assert_eq!(numbers(&lab.open()), [4, 5]);
}

#[test]
fn sealing_without_frames_only_begins_an_epoch() {
    let lab = Lab::new();
    let mut wal = lab.open();
    assert!(seal(&mut wal));
    assert_eq!((wal.sealed_epoch(), lab.open().sealed_epoch()), (None, None));
    push(&mut wal, 1..=1);
    assert_eq!(lab.open().seq(), 1);
}

#[test]
fn a_torn_tail_is_cut_wherever_it_tore() {
    for sealed in [false, true] {
        let lab = Lab::new();
        let mut wal = lab.open();
        push(&mut wal, 1..=1);
        let which = usize::from(sealed);
        let (start, from) = if sealed { (START, 2) } else { (wal.active.frame_bytes() + START, 1) };
        assert!(!sealed || seal(&mut wal));
        let bytes = wal_frame::encode(&frame(2), HASH, from).unwrap();
        for kept in (1..bytes.len() - ALIGN).step_by(19) {
            lab.file(which).write_all_at(&vec![0; bytes.len()], start).unwrap();
            lab.file(which).write_all_at(&bytes[..kept], start).unwrap();
            let mut again = lab.open();
            assert_eq!(again.seq(), 1, "{kept} bytes kept");
            again.cut_torn().unwrap();
            let mut first = [0; 16];
            lab.file(which).read_exact_at(&mut first, start).unwrap();
            // A shorter one ends before its epoch and is taken for the end of the log.
            assert!(kept < 16 || first == [0; 16], "{kept} bytes kept");
            push(&mut again, 2..=2);
            assert_eq!(lab.open().frames().unwrap(), [frame(1), frame(2)]);
        }
    }
}

#[test]
fn a_valid_frame_behind_a_damaged_one_is_reported() {
    let lab = Lab::new();
    push(&mut lab.open(), 1..=3);
    let second = START + wal_frame::encode(&frame(1), HASH, 1).unwrap().len() as u64;
    for at in [second, second + 20] {
        lab.flip(0, at);
        assert!(lab.refused().contains("followed by a valid one"));
        lab.flip(0, at);
    }
    assert_eq!(lab.open().seq(), 3);
}

/// Each header claims everything to the end of the file.
#[test]
fn a_file_full_of_headers_is_corrupt_before_all_of_it_is_checksummed() {
    let lab = Lab::new();
    push(&mut lab.open(), 1..=1);
    let start = lab.open().active.frame_bytes() + START;
    let size = lab.file(0).metadata().unwrap().len();
    let most = limits::WAL_SEARCH_BYTES / limits::WAL_PREALLOCATED_BYTES;
    for (headers, torn) in [(most / 2, true), (2 * most, false)] {
        for nth in 0..headers {
            let at = start + nth * 16;
            let length = u32::try_from(size - at - 16).unwrap();
            let header = [0x5746_5041, length, 7, 1].map(u32::to_le_bytes).concat();
            lab.file(0).write_all_at(&header, at).unwrap();
        }
        let salvaged = salvaged(&lab.paths().files[0], HASH).unwrap();
        assert_eq!((salvaged.frames, salvaged.ended_at.is_none()), (vec![(1, frame(1))], torn));
        if torn {
            assert_eq!(lab.open().seq(), 1);
        } else {
            assert!(lab.refused().contains("is no torn write"));
        }
    }
    lab.file(0).write_all_at(&vec![0; 2 * usize::try_from(most).unwrap() * 16], start).unwrap();
    assert_eq!(lab.open().seq(), 1);
    // A hole costs nobody a disk.
    lab.file(0).write_all_at(&[7; 16], start).unwrap();
    lab.file(0).set_len(start + limits::WAL_SEARCH_BYTES + 1).unwrap();
    assert!(lab.refused().contains("is no torn write"));
    // What lies beyond any write of ours is nothing of ours.
    lab.file(0).set_len(1 << 40).unwrap();
    let found = salvaged(&lab.paths().files[0], HASH).unwrap();
    assert_eq!(found.frames, [(1, frame(1))]);
    assert_eq!(found.ended_at, Some(start + limits::WAL_SEARCH_BYTES));
}

/// What was sealed was valid to its end: no damage there is a torn write.
#[test]
fn any_damage_to_a_sealed_file_is_reported() {
    let lab = Lab::new();
    let mut wal = lab.open();
    push(&mut wal, 1..=3);
    seal(&mut wal);
    let last = START
        + 2 * wal_frame::encode(&frame(1), HASH, 1).unwrap().len() as u64
        + (wal_frame::encode(&frame(2), HASH, 1).unwrap().len() as u64
            - wal_frame::encode(&frame(1), HASH, 1).unwrap().len() as u64);
    for at in [last, last + 20, START + 20] {
        lab.flip(0, at);
        assert!(lab.refused().contains("the sealed frame at byte"));
        lab.flip(0, at);
    }
    let (file, mut bytes) = (lab.file(0), [0; 16]);
    file.read_exact_at(&mut bytes, last).unwrap();
    file.write_all_at(&[0; 16], last).unwrap();
    assert!(lab.refused().ends_with("frames at its end are missing"));
    file.write_all_at(&bytes, last).unwrap();
    assert_eq!(lab.open().seq(), 3);
    std::fs::rename(&lab.paths().files[0], lab.0.path().join("away")).unwrap();
    assert!(lab.refused().ends_with("is missing"));
}

#[test]
fn a_head_that_tears_leaves_the_one_before() {
    let lab = Lab::new();
    let mut wal = lab.open();
    push(&mut wal, 1..=1);
    seal(&mut wal);
    push(&mut wal, 2..=2);
    wal.retire(1).unwrap();
    // The retired mark lies in the second slot of the second file.
    lab.flip(1, 4096 + 20);
    assert_eq!((numbers(&lab.open()), lab.open().sealed_epoch()), (vec![1, 2], Some(1)));
    lab.flip(1, 4096 + 20);
    // The next head of the first file goes into the slot that is free there.
    seal(&mut wal);
    lab.flip(0, 4096 + 20);
    assert_eq!((numbers(&lab.open()), lab.open().sealed_epoch()), (vec![2], None));
    lab.flip(0, 4096 + 20);
    push(&mut wal, 3..=3);
    assert_eq!(numbers(&lab.open()), [2, 3]);
    // With a frame in it the file is known to have been the newest.
    lab.flip(0, 4096 + 20);
    assert!(lab.refused().contains("later epoch"));
}

#[test]
fn a_file_without_any_head_is_reported_whatever_is_left_of_it() {
    for which in [0, 1] {
        let lab = Lab::new();
        let mut wal = lab.open();
        push(&mut wal, 1..=1);
        seal(&mut wal);
        wal.retire(1).unwrap();
        for length in [0, 100, 1 << 20] {
            lab.file(which).set_len(0).unwrap();
            lab.file(which).set_len(length).unwrap();
            assert!(lab.refused().ends_with("no valid head"), "{length}");
        }
    }
}

#[test]
fn every_frame_has_its_turn_within_a_bounded_number_of_appends() {
    let lab = Lab::new();
    let mut wal = lab.open();
    let turns = limits::HEAL_TURNS as u64;
    push(&mut wal, 1..=3 * turns);
    seal(&mut wal);
    let mut seen = std::collections::HashSet::new();
    for n in 3 * turns + 1..=4 * turns {
        push(&mut wal, n..=n);
        let ids = wal.ids_to_look_for(Look::InTurn, |_| false).unwrap();
        assert!(ids.contains(&id(n)), "the last one each time");
        assert!(ids.len() < 10, "{}", ids.len());
        seen.extend(ids);
    }
    assert!((1..=4 * turns).all(|n| seen.contains(&id(n))));
    assert_eq!(wal.ids_to_look_for(Look::Recent, |_| false).unwrap().len(), limits::HEAL_RECENT);
}

#[test]
fn one_huge_frame_does_not_keep_its_place() {
    let lab = Lab::new();
    let mut wal = lab.open();
    let mut huge = frame(1);
    huge.objects.push(Object::new(HASH, Kind::Blob, vec![b'x'; 6 << 20]).unwrap());
    wal.push(&huge).unwrap();
    assert!(wal.is_full());
    for epoch in [1, 2] {
        seal(&mut wal);
        wal.push(&frame(u64::from(epoch) + 1)).unwrap();
        wal.retire(epoch).unwrap();
    }
    let most = START + limits::WAL_PREALLOCATED_BYTES;
    assert_eq!(lab.file(0).metadata().unwrap().len(), most);
    assert_eq!(numbers(&lab.open()), [3]);
}

#[test]
fn a_log_of_another_hash_is_corrupt_and_left_as_it_is() {
    let lab = Lab::new();
    let mut wal = lab.open();
    push(&mut wal, 1..=1);
    let path = &lab.paths().files[0];
    let before = std::fs::read(path).unwrap();
    let error = Wal::open(&lab.paths(), HashKind::Sha1).err().expect("the width is noticed");
    assert_eq!(error.code(), crate::code::Code::JournalCorrupt);
    assert!(error.to_string().ends_with("it holds sha256 ids, the repository sha1 ids"), "{error}");
    let mut other = frame(2);
    other.step.moves[0].new = Oid::from_sha1([1; 20]);
    assert!(wal.push(&other).unwrap_err().to_string().contains("another hash"));
    assert!(std::fs::read(path).unwrap() == before);
}

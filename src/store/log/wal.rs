//! The write-ahead log: two files that take turns, so that a full one can be packed outside the journal lock.
//!
//! Contract: the file whose head has the highest epoch is written to. [`Wal::seal`] turns to the other file; the
//! frames of the sealed one go on counting (for reads, tips and recovery) until [`Wal::retire`] says that their
//! pack is safe. Whether they count is said by the head of the file written to, and by nothing else. Sealing,
//! retiring and pushing need the journal lock; reading needs none: what looks damaged while the heads
//! change is read again. A file that should be there and is not, or has no valid head, is damage and
//! reported, never guessed around.

use crate::store::{
    error::StoreError,
    object::Object,
    wal_file::{LogFile, Tail},
    wal_frame::{Frame, Head},
};
use crate::{
    domain::oid::{HashKind, Oid},
    limits,
    sys::files,
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Times a log that looks damaged is read: its files may have taken turns meanwhile.
const READ_TRIES: u32 = 3;

/// Where the files of a log are.
#[derive(Clone, Debug)]
pub(in crate::store) struct WalPaths {
    /// The two that take turns.
    pub(in crate::store) files: [PathBuf; 2],
    staged: PathBuf,
}

impl WalPaths {
    /// Below our directory.
    pub(in crate::store) fn new(agent: &Path) -> Self {
        let files = [agent.join("wal"), agent.join("wal2")];
        Self { files, staged: agent.join("tmp/tmp_wal") }
    }

    /// True when there is one of them.
    pub(in crate::store) fn any(&self) -> Result<bool, StoreError> {
        Ok(files::is_there(&self.files[0])? || files::is_there(&self.files[1])?)
    }
}

/// Which frames a look for lost objects covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Look {
    /// The last few.
    Recent,
    /// The last few and those whose turn it is.
    InTurn,
}

/// An open log and how far it was read.
pub(in crate::store) struct Wal {
    paths: WalPaths,
    /// Written to.
    active: LogFile,
    /// Sealed while the active head says so, else waiting for its turn.
    other: Option<LogFile>,
}

impl Wal {
    /// Makes a log that starts from this head.
    pub(in crate::store) fn create(paths: &WalPaths, head: &Head) -> Result<(), StoreError> {
        LogFile::create(&paths.files[0], &paths.staged, head)
    }

    /// Opens the log of a repository of this hash and reads it to its end; none when there is none.
    pub(in crate::store) fn open(
        paths: &WalPaths,
        hash: HashKind,
    ) -> Result<Option<Self>, StoreError> {
        for _ in 1..READ_TRIES {
            match Self::read(paths, hash, Vec::new()) {
                Err(StoreError::CorruptWal { .. }) => {}
                other => return other,
            }
        }
        Self::read(paths, hash, Vec::new())
    }

    /// The log as it is now, whatever others did to it since; none when there is none any more.
    pub(in crate::store) fn caught_up(self) -> Result<Option<Self>, StoreError> {
        let Self { paths, active, other } = self;
        let hash = active.head().hash;
        match Self::read(&paths, hash, [Some(active), other].into_iter().flatten().collect()) {
            Err(StoreError::CorruptWal { .. }) => Self::open(&paths, hash),
            other => other,
        }
    }

    /// Reads both files, going on from where `open` ones were read to.
    fn read(
        paths: &WalPaths,
        hash: HashKind,
        mut open: Vec<LogFile>,
    ) -> Result<Option<Self>, StoreError> {
        open.retain(LogFile::is_current);
        let mut files = Vec::new();
        for path in &paths.files {
            match open.iter().position(|f| f.path() == path) {
                Some(at) => {
                    let mut file = open.swap_remove(at);
                    file.look()?;
                    files.push(file);
                }
                None => files.extend(LogFile::open(path, hash)?),
            }
        }
        files.sort_by_key(|f| f.head().epoch);
        let Some(mut active) = files.pop() else { return Ok(None) };
        let mut other = files.pop();
        active.catch_up(Tail::MayBeTorn)?;
        match &mut other {
            Some(other) => check_beside(other, &active)?,
            None if active.head().sealed => {
                return Err(active.corrupt("the sealed file that it goes on from is missing"));
            }
            None => {}
        }
        Ok(Some(Self { paths: paths.clone(), active, other }))
    }

    /// The file whose frames wait for their pack.
    fn sealed(&self) -> Option<&LogFile> {
        self.other.as_ref().filter(|_| self.active.head().sealed)
    }

    fn live(&self) -> impl Iterator<Item = &LogFile> {
        self.sealed().into_iter().chain([&self.active])
    }

    /// Overwrites the start of a torn frame. Needs the journal lock.
    pub(in crate::store) fn cut_torn(&mut self) -> Result<(), StoreError> {
        self.active.cut_torn()
    }

    /// Appends a frame; it is durable on return. Needs the journal lock.
    pub(in crate::store) fn push(&mut self, frame: &Frame) -> Result<(), StoreError> {
        self.active.push(frame)
    }

    /// Turns to the other file, so that the frames of this one can be packed; false when others still wait for that.
    /// What our refs must hold from now on is `refs`. Needs the journal lock and refs that show the last frame.
    pub(in crate::store) fn seal(
        &mut self,
        refs: BTreeMap<String, Oid>,
    ) -> Result<bool, StoreError> {
        if self.sealed().is_some() {
            return Ok(false);
        }
        let active = &self.active;
        let epoch = active.head().epoch.checked_add(1);
        let head = Head {
            hash: active.head().hash,
            epoch: epoch.ok_or_else(|| active.corrupt("epochs are used up"))?,
            seq: active.seq(),
            boot: files::boot_id(),
            refs,
            sealed: active.frame_count() > 0,
        };
        let mut next = match self.other.take() {
            Some(mut other) => {
                other.set_head(head)?;
                other
            }
            None => self.made_beside(&head)?,
        };
        std::mem::swap(&mut self.active, &mut next);
        self.other = Some(next);
        Ok(true)
    }

    fn made_beside(&self, head: &Head) -> Result<LogFile, StoreError> {
        let [one, two] = &self.paths.files;
        let path = if self.active.path() == one { two } else { one };
        LogFile::create(path, &self.paths.staged, head)?;
        LogFile::open(path, head.hash)?
            .ok_or_else(|| self.active.corrupt("the file beside it was removed"))
    }

    /// Says that the frames sealed in this epoch are in a safe pack; they count no more. Needs the journal lock.
    pub(in crate::store) fn retire(&mut self, epoch: u32) -> Result<(), StoreError> {
        if self.sealed_epoch() != Some(epoch) {
            return Ok(());
        }
        let head = Head { sealed: false, ..self.active.head().clone() };
        self.active.set_head(head)
    }

    /// Epoch of the frames that wait for their pack.
    pub(in crate::store) fn sealed_epoch(&self) -> Option<u32> {
        self.sealed().map(|f| f.head().epoch)
    }

    /// The frames that wait for their pack, with their objects.
    pub(in crate::store) fn sealed_frames(&self) -> Result<Vec<Frame>, StoreError> {
        self.sealed().map_or(Ok(Vec::new()), LogFile::frames)
    }

    /// The frames that are not sealed, with their objects.
    pub(in crate::store) fn active_frames(&self) -> Result<Vec<Frame>, StoreError> {
        self.active.frames()
    }

    /// All frames that count, with their objects.
    pub(in crate::store) fn frames(&self) -> Result<Vec<Frame>, StoreError> {
        let mut frames = self.sealed_frames()?;
        frames.extend(self.active_frames()?);
        Ok(frames)
    }

    /// The objects to look for. Every frame has its turn within [`limits::HEAL_TURNS`] appends: most often the
    /// process that looks knows nothing of those that looked before, so the turn follows from the log.
    /// A batch has all of them in one pack, so it is enough that this one is `seen`.
    pub(in crate::store) fn ids_to_look_for(
        &self,
        look: Look,
        seen: impl Fn(&str) -> bool,
    ) -> Result<Vec<Oid>, StoreError> {
        let turn = self.active.frame_count() % limits::HEAL_TURNS;
        let mut ids = Vec::new();
        for file in self.live() {
            let count = file.frame_count();
            let recent = if file.path() == self.active.path() { limits::HEAL_RECENT } else { 0 };
            for at in 0..count {
                let in_turn = look == Look::InTurn && at % limits::HEAL_TURNS == turn;
                let due = in_turn || at + recent >= count;
                if due && !file.batch(at).is_some_and(&seen) {
                    ids.extend_from_slice(file.ids(at)?);
                }
            }
        }
        Ok(ids)
    }

    /// How many frames count.
    pub(in crate::store) fn frame_count(&self) -> u64 {
        self.live().map(|file| file.frame_count() as u64).sum()
    }

    /// An object of some frame.
    pub(in crate::store) fn find(&self, id: &Oid) -> Result<Option<Object>, StoreError> {
        let found = self.active.find(id)?;
        found.map_or_else(|| self.sealed().map_or(Ok(None), |f| f.find(id)), |o| Ok(Some(o)))
    }

    /// Its files, in an order in which they can be removed: what is left meanwhile is an earlier log.
    pub(in crate::store) fn newest_first(&self) -> Vec<PathBuf> {
        let files = [Some(&self.active), self.other.as_ref()];
        files.into_iter().flatten().map(|f| f.path().to_owned()).collect()
    }

    /// Number of the last journal entry.
    pub(in crate::store) fn seq(&self) -> u64 {
        self.active.seq()
    }

    /// True when the file written to holds as much as one pack should.
    pub(in crate::store) fn is_full(&self) -> bool {
        let most = if self.sealed().is_some() {
            limits::CHECKPOINT_OBJECTS_BESIDE
        } else {
            limits::CHECKPOINT_OBJECTS
        };
        self.active.frame_count() >= limits::CHECKPOINT_FRAMES
            || self.active.frame_bytes() >= limits::CHECKPOINT_BYTES
            || self.active.loose_count() >= most
            || self.active.batch_count() >= limits::CHECKPOINT_BATCHES
    }

    /// What our refs must hold.
    pub(in crate::store) fn tips(&self) -> &BTreeMap<String, Oid> {
        self.active.tips()
    }

    /// True when a frame that counts moved the ref away from this value.
    pub(in crate::store) fn has_passed(&self, name: &str, id: &Oid) -> bool {
        self.live().any(|f| f.has_passed(name, id))
    }

    /// True when it is certain that no reboot happened since this epoch began.
    pub(in crate::store) fn is_same_boot(&self) -> bool {
        let boot = &self.active.head().boot;
        boot.is_some() && *boot == files::boot_id()
    }
}

/// Reads the sealed frames, all of which must be there; of a file that waits for its turn nothing may be newer.
fn check_beside(other: &mut LogFile, active: &LogFile) -> Result<(), StoreError> {
    let head = active.head();
    if other.head().epoch == head.epoch {
        return Err(active.corrupt("both files have one epoch"));
    }
    if !head.sealed {
        return other.require_no_frame_after(head.epoch);
    }
    if other.head().epoch + 1 != head.epoch {
        return Err(other.corrupt("its epoch is not the one that was sealed"));
    }
    other.catch_up(Tail::Whole)?;
    // Refs of finished segments are in the sealed frames only.
    let agrees = |(name, id): (&String, &Oid)| other.tips().get(name) == Some(id);
    if other.seq() != head.seq || !head.refs.iter().all(agrees) {
        return Err(other.corrupt("frames at its end are missing"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
            assert_eq!(
                (wal.seq(), numbers(wal), wal.sealed_epoch()),
                (4, vec![1, 2, 3, 4], Some(1))
            );
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
            let (start, from) =
                if sealed { (START, 2) } else { (wal.active.frame_bytes() + START, 1) };
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
        assert_eq!(
            wal.ids_to_look_for(Look::Recent, |_| false).unwrap().len(),
            limits::HEAL_RECENT
        );
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
        assert!(
            error.to_string().ends_with("it holds sha256 ids, the repository sha1 ids"),
            "{error}"
        );
        let mut other = frame(2);
        other.step.moves[0].new = Oid::from_sha1([1; 20]);
        assert!(wal.push(&other).unwrap_err().to_string().contains("another hash"));
        assert!(std::fs::read(path).unwrap() == before);
    }
}

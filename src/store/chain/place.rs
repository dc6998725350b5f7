//! Which git directory a writer id belongs to: moved repositories, copies, and what was last seen of a journal.
//!
//! Contract: an id is used by one git directory at a time. Beside the id stands the path it was used at, in
//! `agentproto/writer` and, under the id, in the user's state directory; the latter wins, the former decides
//! alone where there is no usable state directory. Another path than ours that leads to the same directory
//! (a bind mount, a link) is ours. Another directory there that still has the id makes us a copy. What cannot
//! be told counts as a copy: a journal too many can be read, one with two heads cannot be mended.
//!
//! The last event appended under an id is noted beside, outside the repository: a journal that was set back does not hold
//! it any more. So is when the git directory was made, which tells it from one made anew at its path.

use crate::store::{
    error::StoreError,
    loose::fresh_name,
    names::{AGENT_DIR, TMP_PREFIX, journal_dir},
};
use crate::{
    domain::{ids::WriterId, oid::Oid},
    limits,
    sys::{
        env::Env,
        files::{self, FileError, FileId, Unfit},
        lock::{KernelLock, LockError},
    },
};
use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Where ids are used, as noted in the user's state directory.
pub(in crate::store) struct Homes(Option<PathBuf>);

/// The last event of a journal that was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number.
    pub seq: u64,
    /// Its commit.
    pub id: Oid,
}

impl Seen {
    /// Number, id and their checksum: a power cut may leave bytes of two notes in one.
    fn encode(&self) -> String {
        let said = format!("{:020} {}", self.seq, self.id);
        let sum = crc32c::crc32c(said.as_bytes());
        format!("{said} {sum:08x}\n")
    }

    fn decode(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?.strip_suffix('\n')?;
        let (said, _) = text.rsplit_once(' ')?;
        let (seq, id) = said.split_once(' ')?;
        let seen = Self { seq: seq.parse().ok()?, id: id.parse().ok()? };
        (seen.encode().as_bytes() == data).then_some(seen)
    }
}

/// What is known outside the repository of the end of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Noted {
    /// No event was noted.
    Nothing,
    /// This one was.
    Event(Seen),
    /// There is a note that nobody can read.
    Unreadable(BadNote),
}

/// A note of the last event of a journal that is there and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadNote {
    /// Where it is.
    pub path: PathBuf,
    /// Why it cannot be read.
    pub why: String,
}

impl std::fmt::Display for BadNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the note of its last event, {}, cannot be read ({})",
            self.path.display(),
            self.why
        )
    }
}

/// The end of our own journal against what was noted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The journal holds what was noted, or nothing was.
    Held,
    /// The event that was noted is not in it.
    Lost(Seen),
    /// It cannot be told.
    Untold(BadNote),
}

/// Whose events were noted outside for a git directory.
#[derive(Debug, Default)]
pub(in crate::store) struct UsedHere {
    /// For this one and no other.
    pub(in crate::store) certain: Vec<WriterId>,
    /// For one at this path; whether it was made anew since cannot be told.
    pub(in crate::store) perhaps: Vec<WriterId>,
}

/// What an id found in a git directory means there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Standing {
    /// It is used here, and written down so.
    Ours,
    /// It was used elsewhere, and nothing there uses it any more: the repository was moved.
    Moved,
    /// Another git directory uses it.
    Copy,
}

/// The id in `agentproto/writer`, and the path it was used at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Local {
    pub(in crate::store) writer: WriterId,
    pub(in crate::store) path: Option<PathBuf>,
}

impl Local {
    /// Reads it; an empty or damaged file is a lost one: there are other witnesses.
    pub(in crate::store) fn load(common_dir: &Path) -> Result<Option<Self>, StoreError> {
        Ok(files::read_own(&common_dir.join(AGENT_DIR).join("writer"), limits::SMALL_FILE_BYTES)?
            .and_then(|data| decode(&data)))
    }
}

/// The id on a line, then the path, which may hold newlines itself.
fn encode(writer: &WriterId, path: &Path) -> Vec<u8> {
    [format!("{writer}\n").as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat()
}

fn decode(data: &[u8]) -> Option<Local> {
    let end = data.iter().position(|b| *b == b'\n').unwrap_or(data.len());
    let writer = std::str::from_utf8(&data[..end]).ok()?.trim().parse().ok()?;
    let path = data.get(end + 1..).and_then(|rest| rest.strip_suffix(b"\n"));
    let path = path.map(|p| PathBuf::from(OsString::from_vec(p.to_vec())));
    Some(Local { writer, path: path.filter(|p| p.is_absolute()) })
}

/// When a git directory was made, as noted.
fn born_in(data: &[u8]) -> Option<u128> {
    std::str::from_utf8(data).ok()?.strip_suffix('\n')?.parse().ok()
}

/// Writes the id and its path down in a git directory.
pub(in crate::store) fn write_local(
    common_dir: &Path,
    writer: &WriterId,
) -> Result<(), StoreError> {
    let agent = common_dir.join(AGENT_DIR);
    let staged = agent.join("tmp").join(fresh_name(TMP_PREFIX));
    Ok(files::replace(&agent.join("writer"), &staged, &encode(writer, common_dir))?)
}

impl Homes {
    pub(in crate::store) fn of(env: &Env) -> Self {
        Self(env.state_dir().map(|dir| dir.join("writers")))
    }

    /// What the id means in this git directory. Nothing is written.
    pub(in crate::store) fn standing(
        &self,
        here: &Path,
        writer: &WriterId,
    ) -> Result<Standing, StoreError> {
        let noted = self.noted(writer)?;
        let local = Local::load(here)?.filter(|l| l.writer == *writer).and_then(|l| l.path);
        Ok(match noted.or(local) {
            Some(path) if path == here => Standing::Ours,
            Some(path) => elsewhere(&path, here, writer),
            // The id alone, in our own directory: nobody else is known to use it.
            None => Standing::Moved,
        })
    }

    /// Where the id was used last, as far as this user knows.
    pub(in crate::store) fn noted(&self, writer: &WriterId) -> Result<Option<PathBuf>, StoreError> {
        let Some(file) = self.file(writer) else { return Ok(None) };
        let data = match files::read_own(&file, limits::SMALL_FILE_BYTES) {
            // A note that is not for us to read is none: the path beside the id decides then.
            Err(e) if e.is_read_only() => None,
            // One that cannot be read just now may be there at the next look, and both answers would go into
            // one journal.
            read => read?,
        };
        let found = data.and_then(|d| decode(&d)).filter(|l| l.writer == *writer);
        Ok(found.and_then(|l| l.path))
    }

    /// Writes down that the id is used here, unless another git directory was quicker.
    pub(in crate::store) fn claim(
        &self,
        here: &Path,
        writer: &WriterId,
    ) -> Result<Standing, StoreError> {
        let lock = self.lock()?;
        match self.standing(here, writer)? {
            Standing::Copy => return Ok(Standing::Copy),
            Standing::Ours | Standing::Moved => {}
        }
        let used = Local { writer: writer.clone(), path: Some(here.to_owned()) };
        if Local::load(here)? != Some(used) {
            write_local(here, writer)?;
        }
        if lock.is_some() {
            // Without the note the path beside the id decides.
            let _ = self.note(here, writer);
        }
        Ok(Standing::Ours)
    }

    /// Ids with events that were noted for this very git directory, and those of which that cannot be told: a path alone
    /// is also that of a repository that was removed and made anew.
    pub(in crate::store) fn used_here(&self, here: &Path) -> Result<UsedHere, StoreError> {
        let mut used = UsedHere::default();
        let Some(dir) = &self.0 else { return Ok(used) };
        let born = files::born(here)?;
        for name in files::names(dir)? {
            let Some(writer) = name.to_str().and_then(|n| n.parse::<WriterId>().ok()) else {
                continue;
            };
            let noted =
                files::read_own(&dir.join(format!("{writer}.born")), limits::SMALL_FILE_BYTES);
            let noted = noted.ok().flatten().and_then(|b| born_in(&b));
            let (certain, here) = match noted.zip(born) {
                Some((noted, born)) => (true, noted == born),
                // A note that cannot be read is told where its id is used.
                None => {
                    (false, self.noted(&writer).is_ok_and(|path| path.as_deref() == Some(here)))
                }
            };
            if here && self.seen(&writer) != Noted::Nothing {
                if certain { &mut used.certain } else { &mut used.perhaps }.push(writer);
            }
        }
        Ok(used)
    }

    /// The last event noted for an id.
    pub(in crate::store) fn seen(&self, writer: &WriterId) -> Noted {
        let Some(path) = self.seen_file(writer) else { return Noted::Nothing };
        let why = match files::read_own(&path, limits::SMALL_FILE_BYTES) {
            Ok(None) => return Noted::Nothing,
            Ok(Some(data)) => match Seen::decode(&data) {
                Some(seen) => return Noted::Event(seen),
                None => "it is damaged".to_owned(),
            },
            Err(e) => e.source.to_string(),
        };
        Noted::Unreadable(BadNote { path, why })
    }

    /// Notes the last event of a journal. Lines have one length, so that one replaces the other in place; neither a
    /// failure nor a power cut harms: an older note says less, and one that is half old and half new is told of. What
    /// is no line at all makes way for one.
    pub(in crate::store) fn note_seen(&self, writer: &WriterId, seen: &Seen) {
        let Some(file) = self.seen_file(writer) else { return };
        let line = seen.encode();
        let fits =
            !matches!(files::look(&file), Ok(Some(there)) if there.len() > line.len() as u64);
        if !fits || files::overwrite(&file, line.as_bytes()).is_err() {
            let staged = file.with_file_name(fresh_name(TMP_PREFIX));
            if files::replace(&file, &staged, line.as_bytes()).is_err() {
                let _ = files::remove_optional(&staged);
            }
        }
    }

    /// The directory of these notes, or the one it is in, where something else lies in its place.
    pub(in crate::store) fn misplaced(&self) -> Result<Option<(PathBuf, Unfit)>, FileError> {
        let Some(dir) = &self.0 else { return Ok(None) };
        for dir in [dir.parent().unwrap_or(dir), dir] {
            let there = files::look_through(dir)?;
            if let Some(unfit) = there.as_ref().and_then(Unfit::as_directory) {
                return Ok(Some((dir.to_owned(), unfit)));
            }
        }
        Ok(None)
    }

    /// Where the last event of an id is noted.
    pub(in crate::store) fn seen_file(&self, writer: &WriterId) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(format!("{writer}.tip")))
    }

    /// Of two copies that go on at once one is first. None where there is no usable state directory.
    fn lock(&self) -> Result<Option<KernelLock>, StoreError> {
        let Some(dir) = &self.0 else { return Ok(None) };
        let made = files::make_dirs(dir).map_err(LockError::from);
        let lock =
            made.and_then(|()| KernelLock::acquire(&dir.join("lock"), limits::CLAIM_LOCK_WAIT_MS));
        match lock {
            Ok(lock) => Ok(Some(lock)),
            Err(LockError::File(_)) => Ok(None),
            Err(e @ LockError::Held { .. }) => Err(e.into()),
        }
    }

    fn note(&self, here: &Path, writer: &WriterId) -> Result<(), StoreError> {
        let Some(file) = self.file(writer) else { return Ok(()) };
        let staged = || file.with_file_name(fresh_name(TMP_PREFIX));
        if let Some(born) = files::born(here)? {
            let path = file.with_file_name(format!("{writer}.born"));
            files::replace(&path, &staged(), format!("{born}\n").as_bytes())?;
        }
        Ok(files::replace(&file, &staged(), &encode(writer, here))?)
    }

    fn file(&self, writer: &WriterId) -> Option<PathBuf> {
        Some(self.0.as_ref()?.join(writer.as_str()))
    }
}

/// The id was used at another path: is that another place, and does it still use the id?
fn elsewhere(path: &Path, here: &Path, writer: &WriterId) -> Standing {
    let place = |path: &Path| FileId::at(path);
    match (place(path), place(here)) {
        (Ok(None), _) => Standing::Moved,
        (Ok(Some(there)), Ok(Some(own))) if there == own => Standing::Ours,
        (Ok(Some(_)), _) => match uses(path, writer) {
            Ok(false) => Standing::Moved,
            Ok(true) | Err(_) => Standing::Copy,
        },
        (Err(_), _) => Standing::Copy,
    }
}

/// True when the git directory at `path` has this id, or, its own file lost, the id's journal.
fn uses(path: &Path, writer: &WriterId) -> Result<bool, StoreError> {
    if let Some(local) = Local::load(path)? {
        return Ok(local.writer == *writer);
    }
    let name = journal_dir(writer);
    if !files::names(&path.join(&name))?.is_empty() {
        return Ok(true);
    }
    let packed = files::read_optional(&path.join("packed-refs"), limits::PACKED_REFS_BYTES)?
        .unwrap_or_default();
    Ok(packed.windows(name.len()).any(|w| w == name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_is_half_of_another_says_nothing() {
        let seen = |seq, digit: &str| Seen { seq, id: digit.repeat(40).parse().unwrap() };
        let (old, new) = (seen(9, "1"), seen(10, "a"));
        assert_eq!(Seen::decode(new.encode().as_bytes()), Some(new));
        let (before, after) = (old.encode().into_bytes(), new.encode().into_bytes());
        for cut in 0..after.len() {
            let torn = [&after[..cut], &before[cut..]].concat();
            let said = Seen::decode(&torn);
            assert!(said.is_none() || said == Some(old) || torn == after, "{cut}: {said:?}");
            assert_eq!(Seen::decode(&after[..cut]), None, "{cut}");
        }
    }

    /// A user's notes and git directories that name one id, which was noted where nothing is any more.
    struct Lab(tempfile::TempDir, Homes, WriterId);

    impl Lab {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let homes = Homes(Some(dir.path().join("writers")));
            std::fs::create_dir(dir.path().join("writers")).unwrap();
            let lab = Self(dir, homes, "0123456789ab".parse().unwrap());
            lab.1.note(&lab.0.path().join("gone"), &lab.2).unwrap();
            lab
        }

        fn dir(&self, name: &str) -> PathBuf {
            let dir = self.0.path().join(name);
            std::fs::create_dir_all(dir.join(AGENT_DIR).join("tmp")).unwrap();
            write_local(&dir, &self.2).unwrap();
            dir
        }

        fn standing(&self, dir: &Path) -> Standing {
            self.1.standing(dir, &self.2).unwrap()
        }
    }

    #[test]
    fn of_two_that_claim_an_id_the_second_is_a_copy() {
        let lab = Lab::new();
        let (a, b) = (lab.dir("a"), lab.dir("b"));
        assert_eq!([lab.standing(&a), lab.standing(&b)], [Standing::Moved; 2]);
        assert_eq!(lab.1.claim(&a, &lab.2).unwrap(), Standing::Ours);
        assert_eq!(lab.1.claim(&b, &lab.2).unwrap(), Standing::Copy);
        assert_eq!(lab.1.noted(&lab.2).unwrap(), Some(a.clone()));
        assert_eq!([lab.standing(&a), lab.standing(&b)], [Standing::Ours, Standing::Copy]);
    }

    #[test]
    fn who_may_still_use_an_id_keeps_it() {
        let lab = Lab::new();
        let (there, here) = (lab.dir("there"), lab.dir("here"));
        lab.1.note(&there, &lab.2).unwrap();
        assert_eq!(lab.standing(&here), Standing::Copy);
        let local = there.join(AGENT_DIR).join("writer");
        std::fs::remove_file(&local).unwrap();
        assert_eq!(lab.standing(&here), Standing::Moved, "nothing there knows the id");
        let name = journal_dir(&lab.2);
        std::fs::create_dir_all(there.join(&name)).unwrap();
        std::fs::write(there.join(&name).join("0001"), "").unwrap();
        assert_eq!(lab.standing(&here), Standing::Copy, "it has the journal");
        std::fs::remove_dir_all(there.join("refs")).unwrap();
        std::fs::write(there.join("packed-refs"), format!("1 {name}0001\n")).unwrap();
        assert_eq!(lab.standing(&here), Standing::Copy, "it has the journal packed");
        std::fs::remove_file(there.join("packed-refs")).unwrap();
        std::fs::create_dir(&local).unwrap();
        assert_eq!(lab.standing(&here), Standing::Copy, "it cannot be told");
        // A note of another id tells nothing of this one.
        let other: WriterId = "ba9876543210".parse().unwrap();
        std::fs::write(lab.1.file(&lab.2).unwrap(), encode(&other, &there)).unwrap();
        assert_eq!(lab.1.noted(&lab.2).unwrap(), None);
        assert_eq!(lab.standing(&here), Standing::Ours, "the path beside the id decides");
    }

    #[test]
    fn an_id_and_its_path_read_back_whatever_the_path_holds() {
        let writer: WriterId = "0123456789ab".parse().unwrap();
        for path in ["/r/.git", "/a\nb/.git", "/end\n"] {
            let local = Local { writer: writer.clone(), path: Some(path.into()) };
            assert_eq!(decode(&encode(&writer, Path::new(path))), Some(local), "{path:?}");
        }
        assert_eq!(decode(b"0123456789ab\n").map(|l| l.path), Some(None));
        assert_eq!(decode(b"not an id\n/r\n"), None);
    }
}

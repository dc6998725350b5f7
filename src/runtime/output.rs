//! `output/<session>/`: what an agent that we run writes, on this machine only, as it comes.
//!
//! Contract: both streams in the order in which they came, in files named by the position of their first byte; the oldest
//! go when there are too many. A position counts every byte that was ever written, so that it never means another place.
//! The runner of the agent is the one writer; readers need no lock, they see the end that is there. It is not synced:
//! losing output loses no fact. The agent can write there, too: no link is followed, no size is believed, and what does not
//! join on is not passed off as if it did.

use crate::{
    limits,
    sys::{
        clock,
        files::{self, FileError, Unfit},
    },
};
use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

/// No file holds more: one that is not full takes what was read at once.
const FILE_MAX_BYTES: u64 = 2 * limits::OUTPUT_FILE_BYTES;

/// Where the output of a session lies.
#[must_use]
pub fn dir_of(agent_dir: &Path, session: &str) -> PathBuf {
    agent_dir.join("output").join(session)
}

/// The writing end.
#[derive(Debug)]
pub struct Ring {
    dir: PathBuf,
    /// Position after the last byte.
    end: u64,
    /// The file written to, with the position of its first byte.
    open: Option<(u64, File)>,
}

/// A piece of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Position of its first byte.
    pub from: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Position after its last byte.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.from.saturating_add(len(&self.bytes))
    }

    /// Without a character at its end that is not all there yet, as long as there is something else.
    #[must_use]
    pub fn of_whole_characters(mut self) -> Self {
        let tail = self.bytes.iter().rev().take(3).position(|byte| *byte >= 0xC0);
        let Some(behind) = tail else { return self };
        let at = self.bytes.len() - behind - 1;
        let wants = match self.bytes[at] {
            0xF0.. => 4,
            0xE0.. => 3,
            _ => 2,
        };
        if behind + 1 < wants && at > 0 {
            self.bytes.truncate(at);
        }
        self
    }
}

impl Ring {
    /// Goes on where the output ends.
    ///
    /// # Errors
    /// The directory cannot be made or read.
    pub fn open(dir: &Path) -> io::Result<Self> {
        make(dir)?;
        let end = end(dir).map_err(|e| e.source)?;
        Ok(Self { dir: dir.to_owned(), end, open: None })
    }

    /// Writes what came.
    ///
    /// # Errors
    /// The file system refuses; what was written before stays.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let full = |start: u64| self.end.saturating_sub(start) >= limits::OUTPUT_FILE_BYTES;
        let file = match self.open.take() {
            Some((start, file)) if !full(start) => (start, file),
            Some(_) | None => {
                // Somebody may have cleared it away meanwhile.
                make(&self.dir)?;
                let file = files::open_record(&self.dir.join(name_of(self.end)))?;
                self.forget()?;
                (self.end, file)
            }
        };
        let (_, file) = self.open.insert(file);
        file.write_all(bytes)?;
        self.end = self.end.saturating_add(len(bytes));
        Ok(())
    }

    /// Removes the oldest files.
    fn forget(&self) -> io::Result<()> {
        let starts = starts(&self.dir).map_err(|e| e.source)?;
        let over = starts.len().saturating_sub(limits::OUTPUT_FILES);
        for start in starts.into_iter().take(over) {
            files::remove_optional(&self.dir.join(name_of(start))).map_err(|e| e.source)?;
        }
        Ok(())
    }
}

/// Directories whose session is over, and into which nothing was written for `keep_ms`. One that cannot be looked at is
/// young.
///
/// # Errors
/// The directory above cannot be read.
pub fn old(
    agent_dir: &Path,
    keep_ms: u64,
    is_over: impl Fn(&str) -> bool,
) -> Result<Vec<PathBuf>, FileError> {
    let above = agent_dir.join("output");
    let oldest_ms = clock::now().ms().saturating_sub_unsigned(keep_ms);
    let mut old = Vec::new();
    for name in files::names(&above)? {
        let dir = above.join(&name);
        let last = starts(&dir).ok().and_then(|starts| starts.last().copied());
        let newest = last.map_or_else(|| dir.clone(), |last| dir.join(name_of(last)));
        let written = files::look(&newest).ok().flatten().map(|meta| meta.mtime());
        let is_old = written.is_some_and(|at| at.saturating_mul(1000) < oldest_ms);
        if is_old && name.to_str().is_some_and(&is_over) {
            old.push(dir);
        }
    }
    Ok(old)
}

fn make(dir: &Path) -> io::Result<()> {
    require_ours(dir).and_then(|()| files::make_private_dirs(dir)).map_err(|e| e.source)
}

/// Neither the directory nor the one above may lead elsewhere.
fn require_ours(dir: &Path) -> Result<(), FileError> {
    for dir in dir.parent().into_iter().chain([dir]) {
        let unfit = files::look(dir)?.as_ref().and_then(Unfit::as_directory);
        if let Some(unfit) = unfit {
            return Err(FileError::new("use", dir, io::Error::other(unfit)));
        }
    }
    Ok(())
}

/// What was written from a position on, at most `most` bytes, as far as it is without a gap; from the first byte that is
/// kept where that is gone.
///
/// # Errors
/// A file cannot be read.
#[expect(clippy::disallowed_methods, reason = "read in place while it is written")]
pub fn read(dir: &Path, from: u64, most: usize) -> Result<Piece, FileError> {
    let starts = starts(dir)?;
    let Some(first) = starts.first() else { return Ok(Piece { from, bytes: vec![] }) };
    let from = from.max(*first);
    let mut piece = Piece { from, bytes: vec![] };
    for (at, start) in starts.iter().enumerate() {
        let is_before = starts.get(at + 1).is_some_and(|next| *next <= piece.from);
        if is_before || piece.bytes.len() >= most {
            continue;
        }
        if piece.next() < *start {
            if !piece.bytes.is_empty() {
                break;
            }
            piece.from = *start;
        }
        let path = dir.join(name_of(*start));
        let failed = |source| FileError::new("read", &path, source);
        let file = match files::open_own(&path) {
            Ok(file) => file,
            // It went in this moment: what was in it is not there to be shown.
            Err(e) if e.is_missing() => continue,
            Err(e) => return Err(e),
        };
        let size = file.metadata().map_err(failed)?.size().min(FILE_MAX_BYTES);
        let skip = piece.next().saturating_sub(*start);
        let room = u64::try_from(most - piece.bytes.len()).unwrap_or(u64::MAX);
        let count = usize::try_from(size.saturating_sub(skip).min(room)).unwrap_or(0);
        let mut bytes = vec![0; count];
        file.read_exact_at(&mut bytes, skip).map_err(failed)?;
        piece.bytes.extend(bytes);
    }
    Ok(piece)
}

/// Position after the last byte; 0 without any.
///
/// # Errors
/// The directory cannot be read.
pub fn end(dir: &Path) -> Result<u64, FileError> {
    let Some(last) = starts(dir)?.last().copied() else { return Ok(0) };
    let path = dir.join(name_of(last));
    let Some(found) = files::look(&path)? else { return Ok(last) };
    match Unfit::as_file(&found) {
        None => Ok(last.saturating_add(found.size().min(FILE_MAX_BYTES))),
        Some(unfit) => Err(FileError::new("use", &path, io::Error::other(unfit))),
    }
}

/// Positions of the first bytes of all files, the oldest first.
fn starts(dir: &Path) -> Result<Vec<u64>, FileError> {
    require_ours(dir)?;
    let names = files::names(dir)?;
    let start = |name: &str| name.parse().ok().filter(|start| name_of(*start) == name);
    let mut starts: Vec<u64> = names.iter().filter_map(|n| start(n.to_str()?)).collect();
    starts.sort_unstable();
    Ok(starts)
}

fn name_of(start: u64) -> String {
    format!("{start:020}")
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_stay_what_they_were_when_the_oldest_output_goes() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("output/ses_x");
        let line = vec![b'x'; usize::try_from(limits::OUTPUT_FILE_BYTES / 4).unwrap()];
        let lines = (limits::OUTPUT_FILES + 2) * 4;
        let mut ring = Ring::open(&dir).unwrap();
        for at in 0..lines {
            // Somebody else goes on in the middle: the next run of the same session.
            if at == 5 {
                ring = Ring::open(&dir).unwrap();
            }
            ring.append(&line).unwrap();
        }
        let all = len(&line) * u64::try_from(lines).unwrap();
        assert_eq!(end(&dir).unwrap(), all);
        let kept = starts(&dir).unwrap();
        assert_eq!(kept.len(), limits::OUTPUT_FILES);
        let old = read(&dir, 3, 10).unwrap();
        assert_eq!((old.from, old.bytes.len()), (kept[0], 10), "from the first byte that is kept");
        let tail = read(&dir, all - 7, usize::MAX).unwrap();
        assert_eq!((tail.from, tail.bytes.len(), tail.next()), (all - 7, 7, all));
        let over_the_edge = read(&dir, kept[1] - 2, 4).unwrap();
        assert_eq!((over_the_edge.from, over_the_edge.bytes.len()), (kept[1] - 2, 4));
        assert_eq!(read(&dir, all, 9).unwrap(), Piece { from: all, bytes: vec![] });
    }

    #[test]
    fn what_goes_is_old_and_of_a_session_that_is_over() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["over", "open"] {
            Ring::open(&dir_of(dir.path(), name)).unwrap().append(b"x").unwrap();
        }
        let old = |keep_ms| old(dir.path(), keep_ms, |name| name == "over").unwrap();
        assert_eq!(old(3_600_000), Vec::<PathBuf>::new());
        let hours_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7_200);
        for name in ["over", "open"] {
            let file = dir_of(dir.path(), name).join(name_of(0));
            std::fs::File::options()
                .write(true)
                .open(file)
                .unwrap()
                .set_modified(hours_ago)
                .unwrap();
        }
        assert_eq!(old(3_600_000), [dir_of(dir.path(), "over")]);
    }

    #[test]
    fn without_output_there_is_nothing_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("nowhere");
        assert_eq!(end(&nowhere).unwrap(), 0);
        assert_eq!(read(&nowhere, 0, 9).unwrap(), Piece::default());
    }
}

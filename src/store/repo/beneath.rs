//! Looking at listed files without ever following a link.
//!
//! Contract: every directory on the way is opened by name relative to the one before, without following
//! links, so a directory swapped for a link between check and use is refused instead of followed
//! (chosen over `openat2`, which only newer Linux has). A nested repository is not entered.

use crate::{code::Code, domain::path::RepoPath, limits, sys::files::Held};
use rustix::{
    fs::{FileType, Mode, Stat},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// The top of a worktree, held open.
#[derive(Debug)]
pub struct Root {
    dir: Held,
    top: PathBuf,
}

/// Paths that are listed together.
pub type Listing<'p> = BTreeSet<&'p RepoPath>;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// The owner's executable bit.
        executable: bool,
        /// Changes when the file is written or replaced.
        stamp: Stamp,
    },
    /// A symbolic link, perhaps dangling.
    Symlink {
        /// Where it points, as written.
        target: Vec<u8>,
    },
    /// A directory.
    Directory {
        /// It is the top of a repository of its own.
        repository: bool,
    },
    /// Fifo, socket or device.
    Special,
}

/// Device, inode, size and both times of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp([i128; 7]);

impl Stamp {
    /// The size of the file, bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        let [_, _, size, ..] = self.0;
        u64::try_from(size).unwrap_or(u64::MAX)
    }
}

/// A path could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// A directory on the way is a link.
    #[error("'{path}': '{at}' is a symbolic link")]
    ThroughSymlink {
        /// The path.
        path: RepoPath,
        /// The link, from the top.
        at: RepoPath,
    },
    /// A directory on the way is the top of another repository.
    #[error("'{path}': '{at}' is a repository of its own")]
    InRepository {
        /// The path.
        path: RepoPath,
        /// Its top.
        at: RepoPath,
    },
    /// It does not fit into memory, see [`limits::CANDIDATE_FILE_BYTES`].
    #[error(
        "'{path}' holds {size_bytes} bytes, at most {} are accepted",
        limits::CANDIDATE_FILE_BYTES
    )]
    TooLarge {
        /// The path.
        path: RepoPath,
        /// Its size, at least.
        size_bytes: u64,
    },
    /// The operating system refused.
    #[error("cannot look at '{path}': {source}")]
    Io {
        /// The path.
        path: RepoPath,
        /// Why not.
        source: std::io::Error,
    },
}

impl LookError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::ThroughSymlink { .. } => Code::PathThroughSymlink,
            Self::InRepository { .. } => Code::PathInSubmodule,
            Self::TooLarge { .. } => Code::FileTooLarge,
            Self::Io { .. } => Code::Io,
        }
    }
}

impl Root {
    /// Opens the top directory of a worktree.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn open(top: &Path) -> std::io::Result<Self> {
        Ok(Self { dir: Held::open(top)?, top: top.to_owned() })
    }

    /// Where it was opened.
    #[must_use]
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Says what is at `path`.
    ///
    /// # Errors
    /// See [`LookError`].
    pub fn look(&self, path: &RepoPath) -> Result<OnDisk, LookError> {
        let Some((dir, name)) = self.parent(path)? else { return Ok(OnDisk::Absent) };
        look_in(dir.as_ref().unwrap_or(&self.dir), name)
            .map_err(|e| LookError::Io { path: path.clone(), source: e.into() })
    }

    /// The same for a path that is listed together with others: of what is tracked below a link that is listed itself
    /// nothing is left, since the link takes the place of its directory.
    ///
    /// # Errors
    /// See [`LookError`].
    pub fn look_among(
        &self,
        (path, tracked): (&RepoPath, bool),
        listed: &Listing<'_>,
    ) -> Result<OnDisk, LookError> {
        match self.look(path) {
            Err(LookError::ThroughSymlink { at, .. }) if tracked && listed.contains(&at) => {
                Ok(OnDisk::Absent)
            }
            found => found,
        }
    }

    /// Reads a regular file of at most [`limits::CANDIDATE_FILE_BYTES`], however fast it grows.
    ///
    /// # Errors
    /// See [`LookError`]; what is no regular file (any more) is an I/O error.
    pub fn read(&self, path: &RepoPath) -> Result<Vec<u8>, LookError> {
        let io = |source| LookError::Io { path: path.clone(), source };
        let gone = || io(std::io::ErrorKind::NotFound.into());
        let (dir, name) = self.parent(path)?.ok_or_else(gone)?;
        let at = dir.as_ref().unwrap_or(&self.dir);
        let mut file = at.file(name).map_err(|e| io(e.into()))?;
        let found = file.look().map_err(io)?;
        if !found.is_file() {
            return Err(io(std::io::ErrorKind::InvalidData.into()));
        }
        require_size(path, found.len())?;
        let bytes = file.read_up_to(limits::CANDIDATE_FILE_BYTES + 1).map_err(io)?;
        require_size(path, u64::try_from(bytes.len()).unwrap_or(u64::MAX))?;
        Ok(bytes)
    }

    /// Opens the directory `path` lies in (none = the top itself) and splits off the last name; nothing
    /// if that directory does not exist.
    #[expect(clippy::type_complexity, reason = "a private pair of optional directory and name")]
    fn parent<'p>(
        &self,
        path: &'p RepoPath,
    ) -> Result<Option<(Option<Held>, &'p [u8])>, LookError> {
        let names: Vec<&[u8]> = path.names().collect();
        let Some((last, dirs)) = names.split_last() else { return Ok(None) };
        let mut dir: Option<Held> = None;
        for (depth, name) in dirs.iter().enumerate() {
            let io = |e: Errno| LookError::Io { path: path.clone(), source: e.into() };
            let at = || path.leading(depth + 1);
            let above = dir.as_ref().unwrap_or(&self.dir);
            match above.dir(name) {
                Ok(inside) => {
                    if is_repository(&inside).map_err(io)? {
                        return Err(LookError::InRepository { path: path.clone(), at: at() });
                    }
                    dir = Some(inside);
                }
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::NOTDIR | Errno::LOOP) => {
                    return match above.stat(name) {
                        Ok(s) if FileType::from_raw_mode(s.st_mode) == FileType::Symlink => {
                            Err(LookError::ThroughSymlink { path: path.clone(), at: at() })
                        }
                        Ok(_) | Err(Errno::NOENT) => Ok(None),
                        Err(e) => Err(io(e)),
                    };
                }
                Err(e) => return Err(io(e)),
            }
        }
        Ok(Some((dir, last)))
    }
}

fn look_in(dir: &Held, name: &[u8]) -> Result<OnDisk, Errno> {
    let stat = match dir.stat(name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(OnDisk::Absent),
        Err(e) => return Err(e),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => OnDisk::File {
            executable: Mode::from_raw_mode(stat.st_mode).contains(Mode::XUSR),
            stamp: stamp(&stat),
        },
        FileType::Symlink => OnDisk::Symlink { target: dir.link(name)? },
        FileType::Directory => OnDisk::Directory { repository: is_repository(&dir.dir(name)?)? },
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => OnDisk::Special,
    })
}

/// Refuses a file that is too large to be read whole.
///
/// # Errors
/// [`LookError::TooLarge`].
pub fn require_size(path: &RepoPath, size_bytes: u64) -> Result<(), LookError> {
    if size_bytes <= limits::CANDIDATE_FILE_BYTES {
        Ok(())
    } else {
        Err(LookError::TooLarge { path: path.clone(), size_bytes })
    }
}

/// A `.git` file counts whatever is in it; a `.git` directory when it has a `HEAD`.
fn is_repository(dir: &Held) -> Result<bool, Errno> {
    let there = |name: &str| match dir.stat(name.as_bytes()) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e),
    };
    match there(".git")? {
        None => Ok(false),
        Some(FileType::Directory) => Ok(there(".git/HEAD")?.is_some()),
        Some(_) => Ok(true),
    }
}

fn stamp(stat: &Stat) -> Stamp {
    Stamp([
        i128::from(stat.st_dev),
        i128::from(stat.st_ino),
        i128::from(stat.st_size),
        i128::from(stat.st_mtime),
        i128::from(stat.st_mtime_nsec),
        i128::from(stat.st_ctime),
        i128::from(stat.st_ctime_nsec),
    ])
}

/// True if a link at `path` with this text points out of the worktree at `top`, judged by the text alone.
#[must_use]
pub fn link_escapes(top: &Path, path: &RepoPath, target: &[u8]) -> bool {
    let (inside, mut depth) = if target.starts_with(b"/") {
        let target = Path::new(std::ffi::OsStr::from_bytes(target));
        let Ok(below) = target.strip_prefix(top) else { return true };
        (below.as_os_str().as_bytes(), 0_usize)
    } else {
        (target, path.names().count().saturating_sub(1))
    };
    for name in inside.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

/// The path of `path` below `top`, for messages and for programs.
#[must_use]
pub fn full(top: &Path, path: &RepoPath) -> PathBuf {
    top.join(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::Repo;
    use std::os::unix::fs::symlink;

    fn path(text: &str) -> RepoPath {
        RepoPath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_directory_swapped_for_a_link_is_refused_for_looking_and_reading() {
        let repo = Repo::new();
        repo.write("d/x", b"inside");
        std::fs::create_dir(repo.beside("out")).unwrap();
        std::fs::write(repo.beside("out").join("x"), b"secret").unwrap();
        let root = Root::open(&repo.top()).unwrap();
        assert_eq!(root.read(&path("d/x")).unwrap(), b"inside");
        std::fs::remove_dir_all(repo.path("d")).unwrap();
        symlink(repo.beside("out"), repo.path("d")).unwrap();
        for error in [root.look(&path("d/x")).unwrap_err(), root.read(&path("d/x")).unwrap_err()] {
            assert_eq!(error.to_string(), "'d/x': 'd' is a symbolic link");
            assert_eq!(error.code(), Code::PathThroughSymlink);
        }
    }

    #[test]
    fn a_link_leaves_the_worktree_by_its_text() {
        let top = Path::new("/w/top");
        for (at, target, leaves) in [
            ("l", "a", false),
            ("l", "..", true),
            ("d/l", "../a", false),
            ("d/l", "../../a", true),
            ("d/l", "x/../../../a", true),
            ("l", "/etc/passwd", true),
            ("l", "/w/top/a", false),
            ("l", "/w/top/../x", true),
            ("l", "/w/topper", true),
            ("l", "..a/.../b", false),
        ] {
            assert_eq!(link_escapes(top, &path(at), target.as_bytes()), leaves, "{at} {target}");
        }
    }

    #[test]
    fn links_are_read_not_followed_and_nested_repositories_not_entered() {
        let repo = Repo::new();
        symlink("/etc/passwd", repo.path("leak")).unwrap();
        repo.git(&["init", "-q", "inner"]);
        let root = Root::open(&repo.top()).unwrap();
        let target = b"/etc/passwd".to_vec();
        assert_eq!(root.look(&path("leak")).unwrap(), OnDisk::Symlink { target });
        assert!(root.read(&path("leak")).is_err());
        assert_eq!(root.look(&path("inner/x")).unwrap_err().code(), Code::PathInSubmodule);
        assert_eq!(root.look(&path("inner")).unwrap(), OnDisk::Directory { repository: true });
        assert_eq!(root.look(&path("no/such/file")).unwrap(), OnDisk::Absent);
        assert_eq!(root.look(&path("leak2/x")).unwrap(), OnDisk::Absent);
    }

    /// Sparse files: their size is read, never they themselves.
    #[test]
    fn what_does_not_fit_is_not_read() {
        let repo = Repo::new();
        let size_bytes = limits::CANDIDATE_FILE_BYTES + 1;
        std::fs::File::create(repo.path("huge")).unwrap().set_len(size_bytes).unwrap();
        let root = Root::open(&repo.top()).unwrap();
        let OnDisk::File { stamp, .. } = root.look(&path("huge")).unwrap() else { panic!() };
        assert_eq!(stamp.size_bytes(), size_bytes);
        let error = root.read(&path("huge")).unwrap_err();
        assert_eq!(error.code(), Code::FileTooLarge);
        let told = "'huge' holds 536870913 bytes, at most 536870912 are accepted";
        assert_eq!(error.to_string(), told);
    }
}

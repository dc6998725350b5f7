//! File content as `git add` would store it.
//!
//! Contract: bytes are hashed here only when provably nothing converts them: no attributes file that
//! could apply and no line-end setting. Else git itself adds the files to a private index with a private
//! object directory (decisions 34), so that filters, line ends, `ident`, encodings and large-file
//! storage are git's own. The private index starts from the parent's entries, which `git add` looks at
//! before it converts line ends; `hash-object`, which has no index, gets that case wrong.
//! The shared index and the real object directory are not written.

use crate::store::{
    beneath::{LookError, Root, full},
    git::{Git, GitError},
    object::{HashError, Kind, Object, hash_of},
    tree::Mode,
    worktree_state::{StateError, exists, git_error, open_index},
};
use crate::{
    code::Code,
    domain::{
        oid::{HashKind, Oid},
        path::RepoPath,
    },
    sys::files::{self, FileError},
};
use gix::bstr::ByteSlice;
use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// Where and with what to convert.
#[derive(Clone, Copy)]
pub struct Filters<'a> {
    /// Opened on the worktree.
    pub repo: &'a gix::Repository,
    /// Bound to the same worktree.
    pub git: &'a Git,
    /// A directory for this run alone; made when needed, gone afterwards. What a killed run left there is
    /// removed first.
    pub scratch: &'a Path,
}

/// Content could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The file could not be read.
    #[error(transparent)]
    Look(#[from] LookError),
    /// Settings or attributes could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// git or a filter refused.
    #[error(transparent)]
    Git(#[from] GitError),
    /// What would be stored has no id.
    #[error("'{path}': {source}")]
    Hash {
        /// Which one.
        path: RepoPath,
        /// Why not.
        source: HashError,
    },
    /// git answered without one of the files.
    #[error("git stored nothing for '{path}'")]
    Missing {
        /// Which one.
        path: RepoPath,
    },
}

impl FilterError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Look(e) => e.code(),
            Self::State(e) => e.code(),
            Self::Git(_) | Self::Hash { .. } | Self::Missing { .. } => Code::CandidateFailed,
        }
    }
}

/// A regular file to store.
#[derive(Clone, Debug)]
pub struct Input {
    /// Which one.
    pub path: RepoPath,
    /// What the parent has there.
    pub before: Option<(Mode, Oid)>,
}

/// The blobs of regular files, in the order of `inputs`. `attributes` are the parent's `.gitattributes`
/// on the way to them, which count where the worktree has none.
///
/// # Errors
/// See [`FilterError`].
pub fn blobs(
    with: Filters<'_>,
    root: &Root,
    inputs: &[Input],
    attributes: &[(RepoPath, (Mode, Oid))],
) -> Result<Vec<Object>, FilterError> {
    if inputs.is_empty() {
        return Ok(Vec::new());
    }
    if !attributes.is_empty() || may_convert(with, inputs)? {
        return Scratch::make(with)?.blobs(inputs, attributes);
    }
    let hash = hash_of(with.repo);
    let read = |i: &Input| {
        let no_id = |source| FilterError::Hash { path: i.path.clone(), source };
        Object::new(hash, Kind::Blob, root.read(&i.path)?).map_err(no_id)
    };
    inputs.iter().map(read).collect()
}

/// False only if no conversion can apply to any of the files.
fn may_convert(with: Filters<'_>, inputs: &[Input]) -> Result<bool, StateError> {
    let config = with.repo.config_snapshot();
    let settings = ["core.autocrlf", "core.eol", "core.attributesFile", "attr.tree"];
    if settings.iter().any(|key| config.string(*key).is_some()) {
        return Ok(true);
    }
    for file in attribute_files(with)? {
        if exists(&file)? {
            return Ok(true);
        }
    }
    let dirs = directories(inputs.iter().map(|i| &i.path));
    let index = open_index(with.repo)?;
    for dir in dirs {
        let name = [dir.as_slice(), b".gitattributes"].concat();
        let tracked = index.as_ref().is_some_and(|i| i.entry_range(name.as_bstr()).is_some());
        let file = RepoPath::new(&name).map_err(|e| git_error("a path")(e.to_string()))?;
        if tracked || exists(&full(&with.git.worktree().top, &file))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Attributes files outside the worktree: the repository's, the user's, the system's (at the two places
/// git is built to look: below `/etc`, or below its own prefix).
fn attribute_files(with: Filters<'_>) -> Result<Vec<PathBuf>, StateError> {
    let bad = git_error("the attributes files");
    let mut files = with.repo.attribute_global_paths().map_err(|e| bad(e.to_string()))?;
    files.push(with.repo.common_dir().join("info/attributes"));
    files.push(with.git.worktree().git_dir.join("info/attributes"));
    files.push("/etc/gitattributes".into());
    let prefix = with.git.program().parent().and_then(Path::parent);
    files.extend(prefix.map(|p| p.join("etc/gitattributes")));
    let home = |name: &str, below: &str| with.git.var(name).map(|d| Path::new(d).join(below));
    files.extend(home("XDG_CONFIG_HOME", "git/attributes"));
    files.extend(home("HOME", ".config/git/attributes"));
    Ok(files)
}

/// Every directory on the way to the paths, as `` or `a/b/`.
pub(in crate::store) fn directories<'p>(
    paths: impl Iterator<Item = &'p RepoPath>,
) -> BTreeSet<Vec<u8>> {
    let mut dirs = BTreeSet::from([Vec::new()]);
    for path in paths {
        let bytes = path.as_bytes();
        let slashes = bytes.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        dirs.extend(slashes.map(|at| bytes[..=at].to_vec()));
    }
    dirs
}

/// A private index and object directory.
struct Scratch<'a> {
    with: Filters<'a>,
    index: PathBuf,
    objects: PathBuf,
    real: PathBuf,
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        // Left behind it is only garbage: the next run with this name clears it.
        let _ = files::remove_tree(self.with.scratch);
    }
}

impl<'a> Scratch<'a> {
    fn make(with: Filters<'a>) -> Result<Self, FilterError> {
        let io = |e: FileError| StateError::Io { path: e.path, source: e.source };
        files::remove_tree(with.scratch).map_err(io)?;
        let (index, objects) = (with.scratch.join("index"), with.scratch.join("objects"));
        files::make_dirs(&objects).map_err(io)?;
        let real = with.repo.common_dir().join("objects");
        let real = files::real(&real).map_err(io)?;
        Ok(Self { with, index, objects, real })
    }

    fn call(&self, args: &[&str], stdin: &[u8]) -> Result<Vec<u8>, GitError> {
        // Programs that repository configuration names for the index have no business here.
        let quiet = ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"];
        let plain = ["-c", "core.splitIndex=false", "-c", "core.untrackedCache=false"];
        let args: Vec<&str> = [&quiet, &plain, args].concat();
        let quoted = quote_alternate(&self.real);
        let extra: [(&str, &OsStr); 4] = [
            // Filters are the user's programs: what they write may depend on the language they are run in.
            ("LC_ALL", self.with.git.var("LC_ALL").unwrap_or_default()),
            ("GIT_INDEX_FILE", self.index.as_os_str()),
            ("GIT_OBJECT_DIRECTORY", self.objects.as_os_str()),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", &quoted),
        ];
        self.with.git.call(&args, stdin, &extra)
    }

    fn blobs(
        &self,
        inputs: &[Input],
        attributes: &[(RepoPath, (Mode, Oid))],
    ) -> Result<Vec<Object>, FilterError> {
        let known = inputs.iter().filter_map(|i| Some((&i.path, i.before?)));
        let known = known.chain(attributes.iter().map(|(p, e)| (p, *e)));
        let known = known.filter(|(_, (mode, _))| *mode != Mode::Tree);
        let lines: Vec<u8> =
            known.flat_map(|(p, (mode, id))| info_line(id.hash(), p, Some((mode, id)))).collect();
        self.call(&["update-index", "-z", "--index-info"], &lines)?;
        let names: Vec<u8> =
            inputs.iter().flat_map(|i| [i.path.as_bytes(), b"\0"].concat()).collect();
        self.call(&["update-index", "--add", "-z", "--stdin"], &names)?;
        let staged = self.call(&["ls-files", "--stage", "-z"], b"")?;
        let ids = parse_staged(&staged).ok_or_else(|| garbled("ls-files"))?;
        let wanted: Vec<Oid> = inputs
            .iter()
            .map(|i| {
                let missing = || FilterError::Missing { path: i.path.clone() };
                ids.get(i.path.as_bytes()).copied().ok_or_else(missing)
            })
            .collect::<Result<_, _>>()?;
        let ask: String = wanted.iter().map(|id| format!("{id}\n")).collect();
        let answer = self.call(&["cat-file", "--batch"], ask.as_bytes())?;
        let objects = parse_batch(&answer, &wanted).ok_or_else(|| garbled("cat-file"))?;
        Ok(objects)
    }
}

fn garbled(command: &str) -> GitError {
    GitError::Garbled { argv: vec![command.to_owned()] }
}

/// A line for `git update-index -z --index-info`; mode 0 removes the entry.
pub(in crate::store) fn info_line(
    hash: HashKind,
    path: &RepoPath,
    entry: Option<(Mode, Oid)>,
) -> Vec<u8> {
    let head = match entry {
        Some((mode, id)) => format!("{:o} {id} 0\t", mode.bits()),
        None => format!("0 {} 0\t", Oid::null(hash)),
    };
    [head.as_bytes(), path.as_bytes(), b"\0"].concat()
}

fn parse_staged(bytes: &[u8]) -> Option<HashMap<&[u8], Oid>> {
    let lines = bytes.split(|b| *b == 0).filter(|l| !l.is_empty());
    lines
        .map(|line| {
            let (head, path) = line.split_once_str("\t")?;
            let id = head.split(|b| *b == b' ').nth(1)?;
            Some((path, std::str::from_utf8(id).ok()?.parse().ok()?))
        })
        .collect()
}

/// Reads `git cat-file --batch` answers and proves each against the id that was asked for.
fn parse_batch(mut bytes: &[u8], wanted: &[Oid]) -> Option<Vec<Object>> {
    let mut objects = Vec::new();
    for id in wanted {
        let (head, rest) = bytes.split_once_str("\n")?;
        let size = head.rsplit(|b| *b == b' ').next()?;
        let size: usize = std::str::from_utf8(size).ok()?.parse().ok()?;
        let (data, rest) = rest.split_at_checked(size)?;
        let object = Object::new(id.hash(), Kind::Blob, data.to_vec()).ok()?;
        if object.id != *id {
            return None;
        }
        objects.push(object);
        bytes = rest.strip_prefix(b"\n")?;
    }
    Some(objects)
}

/// The list of alternates is `:`-separated, with C quoting for what would break it.
fn quote_alternate(path: &Path) -> std::ffi::OsString {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = path.as_os_str().as_bytes();
    let plain = bytes.iter().all(|b| !matches!(b, b':' | b'"' | b'\\' | b'\n'));
    if plain {
        return path.as_os_str().to_owned();
    }
    let mut quoted = vec![b'"'];
    for byte in bytes {
        match byte {
            b'"' | b'\\' => quoted.extend([b'\\', *byte]),
            b'\n' => quoted.extend(b"\\n"),
            _ => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    std::ffi::OsString::from_vec(quoted)
}

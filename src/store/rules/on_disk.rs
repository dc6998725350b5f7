//! What is on disk, held against a tree that is believed.
//!
//! Contract: whoever writes the worktree is the one who is not trusted here. So every file on disk that is asked about
//! is read and held against the tree, whatever the index says of it; a file that is new counts unless a rule ignores it
//! that stands in an ignore file of that tree, or of the person; and a filter that the repository's own configuration
//! names makes nothing equal.

use crate::store::{
    beneath::{LookError, OnDisk, Root},
    candidate::{CandidateError, FixCtx, Load, fix_tree},
    object::{Kind, Object},
    settings,
    tree::{self, Mode},
    worktree_state::{StateError, git_error, open_index, require_rules_files},
};
use crate::{
    domain::{oid::Oid, path::RepoPath},
    limits,
    sys::files,
};
use gix::{
    bstr::{BStr, ByteSlice},
    index::entry,
    worktree::stack::state::ignore::Source,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Says yes or no to a path.
type Says<'q> = &'q dyn Fn(&[u8]) -> bool;

/// What is asked.
pub(super) struct Question<'q> {
    /// Whether a file of this path is asked about. A repository within the worktree has a slash at its end.
    pub(super) covers: Says<'q>,
    /// Whether a path of the tree is somebody else's to judge. With it a repository within the worktree is one path, as
    /// it is to git; without it its files are like any others.
    pub(super) apart: Option<Says<'q>>,
}

impl Question<'_> {
    fn is_apart(&self, path: &[u8]) -> bool {
        self.apart.is_some_and(|apart| apart(path))
    }
}

/// The paths asked about that differ from the tree, in order; `trusted` is its id and its files.
///
/// # Errors
/// It cannot be told.
pub(super) fn differing(
    ctx: FixCtx<'_>,
    (tree, trusted): (Oid, &Files),
    asked: &Question<'_>,
) -> Result<BTreeSet<RepoPath>, CandidateError> {
    let top = &ctx.filters.git.worktree().top;
    let root = Root::open(top).map_err(|source| StateError::Io { path: top.clone(), source })?;
    let mut walk = Walk { top, asked, trusted, odd: BTreeSet::new() };
    let index = open_index(ctx.filters.repo)?.unwrap_or_else(|| empty_index(ctx.filters.repo));
    walk.directory(top, &[], &mut Rules::new(ctx.filters.repo, &index)?)?;
    let mut odd = walk.odd;
    let mut others = Vec::new();
    let mine = trusted.iter().filter(|(path, _)| (asked.covers)(path) && !asked.is_apart(path));
    for (path, held) in mine {
        let path = repo_path(path)?;
        match compared(&root, &path, *held)? {
            Compared::Same => {}
            Compared::OtherBytes => others.push(path),
            Compared::Other => drop(odd.insert(path)),
        }
    }
    // What differs byte for byte may still be what git stores: line ends, encodings.
    let fixed = fix_tree(ctx, tree, &others)?;
    odd.extend(fixed.changes.into_iter().map(|c| c.path));
    if own_filters(ctx.filters.repo) {
        odd.extend(others);
    }
    Ok(odd)
}

/// What is on disk beside what the trusted tree has there.
enum Compared {
    Same,
    /// A file in the place of a file.
    OtherBytes,
    Other,
}

fn compared(root: &Root, path: &RepoPath, held: (Mode, Oid)) -> Result<Compared, CandidateError> {
    let (mode, id) = held;
    let bytes = match root.look(path) {
        Ok(OnDisk::File { .. }) if !matches!(mode, Mode::Symlink | Mode::Submodule) => {
            root.read(path)?
        }
        Ok(OnDisk::Symlink { target }) if mode == Mode::Symlink => target,
        Ok(_) | Err(LookError::ThroughSymlink { .. } | LookError::InRepository { .. }) => {
            return Ok(Compared::Other);
        }
        Err(e) => return Err(e.into()),
    };
    let executable = matches!(root.look(path)?, OnDisk::File { executable: true, .. });
    let same = Object::new(id.hash(), Kind::Blob, bytes)?.id == id;
    // Other bits alone are for git's own comparison, which knows what the file system can tell.
    let same = same && executable == (mode == Mode::Executable);
    Ok(if same { Compared::Same } else { Compared::OtherBytes })
}

pub(super) fn repo_path(path: &[u8]) -> Result<RepoPath, StateError> {
    RepoPath::new(path).map_err(|e| git_error("a path")(e.to_string()))
}

/// True when the repository's own configuration, which is not the person's, names a program that converts files.
fn own_filters(repo: &gix::Repository) -> bool {
    let config = repo.config_snapshot();
    let sections = config.plumbing().sections_by_name("filter").into_iter().flatten();
    let mut own = sections.filter(|s| !settings::is_user_scope(s.meta()));
    own.any(|s| s.value("clean").is_some() || s.value("process").is_some())
}

/// By path.
pub(super) type Files = BTreeMap<Vec<u8>, (Mode, Oid)>;

/// Every file of a tree.
///
/// # Errors
/// A tree of it cannot be read.
pub(super) fn files_of(load: Load<'_>, root: Oid) -> Result<Files, CandidateError> {
    let mut files = Files::new();
    let mut dirs = vec![(Vec::new(), root)];
    while let Some((prefix, id)) = dirs.pop() {
        let failed = |why: String| CandidateError::Load { id, why };
        let data = load(&id).map_err(|e| failed(e.to_string()))?;
        for entry in tree::parse(id.hash(), &data).map_err(|e| failed(e.to_string()))? {
            let path = [&prefix, entry.name.as_slice()].concat();
            if entry.mode == Mode::Tree {
                dirs.push(([path.as_slice(), b"/"].concat(), entry.id));
            } else {
                files.insert(path, (entry.mode, entry.id));
            }
        }
    }
    Ok(files)
}

fn empty_index(repo: &gix::Repository) -> gix::index::File {
    let state = gix::index::State::new(repo.object_hash());
    gix::index::File::from_state(state, repo.index_path())
}

/// Looks for files that the trusted tree does not have.
struct Walk<'a> {
    top: &'a Path,
    asked: &'a Question<'a>,
    trusted: &'a Files,
    odd: BTreeSet<RepoPath>,
}

impl Walk<'_> {
    fn directory(
        &mut self,
        dir: &Path,
        prefix: &[u8],
        rules: &mut Rules<'_>,
    ) -> Result<(), CandidateError> {
        // The library would open a fifo in their place, and wait; the walks of others may not come here.
        require_rules_files(dir)?;
        for name in files::names(dir).map_err(|e| io(&e))? {
            if name == ".git" {
                continue;
            }
            let (full, path) = (dir.join(&name), [prefix, name.as_bytes()].concat());
            let Some(found) = files::look(&full).map_err(|e| io(&e))? else { continue };
            let wanted = found.is_dir() || (self.asked.covers)(&path);
            if !wanted || self.is_ignored(rules, &path, found.is_dir())? {
                continue;
            }
            if found.is_dir() && self.asked.apart.is_some() && self.is_repository(&full, &path)? {
                let whole = [path.as_slice(), b"/"].concat();
                if (self.asked.covers)(&whole) && !self.asked.is_apart(&path) {
                    self.odd.insert(repo_path(&path)?);
                }
            } else if found.is_dir() {
                let below = [path.as_slice(), b"/"].concat();
                self.directory(&full, &below, rules)?;
            } else if !self.trusted.contains_key(&path) {
                self.odd.insert(repo_path(&path)?);
            }
        }
        Ok(())
    }

    /// True for a directory with a repository of its own in it, be it one that the tree links to.
    fn is_repository(&self, dir: &Path, path: &[u8]) -> Result<bool, CandidateError> {
        let linked = self.trusted.get(path).is_some_and(|(mode, _)| *mode == Mode::Submodule);
        Ok(linked || files::is_there(&dir.join(".git")).map_err(|e| io(&e))?)
    }

    /// True when a rule that may be believed ignores it. A path of the trusted tree is never ignored.
    fn is_ignored(
        &self,
        rules: &mut Rules<'_>,
        path: &[u8],
        is_dir: bool,
    ) -> Result<bool, CandidateError> {
        let below = [path, b"/"].concat();
        let next = self.trusted.range(below.clone()..).next();
        let holds = is_dir && next.is_some_and(|(path, _)| path.starts_with(&below));
        if holds || self.trusted.contains_key(path) {
            return Ok(false);
        }
        let Some(file) = rules.ignoring(path, is_dir)? else { return Ok(false) };
        let Ok(rule_file) = file.strip_prefix(self.top) else {
            let file = files::real(&file).map_err(|e| io(&e))?;
            return Ok(rules.persons_count && !file.starts_with(&rules.common_dir));
        };
        let trusted = self.trusted.get(rule_file.as_os_str().as_bytes());
        let Some((_, id)) = trusted else { return Ok(false) };
        let bytes = files::read(&file, limits::SETTINGS_FILE_BYTES).map_err(|e| io(&e))?;
        Ok(Object::new(id.hash(), Kind::Blob, bytes)?.id == *id)
    }
}

fn io(error: &files::FileError) -> CandidateError {
    let source = std::io::Error::new(error.source.kind(), error.source.to_string());
    StateError::Io { path: error.path.clone(), source }.into()
}

/// The ignore rules of the worktree as git reads them.
struct Rules<'r> {
    stack: gix::AttributeStack<'r>,
    /// Whether files outside of worktree and repository say what the person wants.
    persons_count: bool,
    common_dir: PathBuf,
}

impl<'r> Rules<'r> {
    fn new(repo: &'r gix::Repository, index: &gix::index::File) -> Result<Self, StateError> {
        let bad = git_error("the ignore rules");
        let source = Source::WorktreeThenIdMappingIfNotSkipped;
        let stack = repo.excludes(index, None, source).map_err(|e| bad(e.to_string()))?;
        let common_dir = files::real(repo.common_dir())?;
        Ok(Self { stack, persons_count: persons_rules_count(repo), common_dir })
    }

    /// The file with the rule that ignores the path, or a directory above it.
    fn ignoring(&mut self, path: &[u8], is_dir: bool) -> Result<Option<PathBuf>, StateError> {
        let bad = git_error("the ignore rules");
        let mode = if is_dir { entry::Mode::DIR } else { entry::Mode::FILE };
        let relative: &BStr = path.as_bstr();
        let platform = self.stack.at_entry(relative, Some(mode)).map_err(|e| bad(e.to_string()))?;
        let rule = platform.matching_exclude_pattern().filter(|m| !m.pattern.is_negative());
        Ok(rule.and_then(|m| m.source).map(Path::to_owned))
    }
}

/// True when the rules that lie neither in the worktree nor in the repository are those of the person.
fn persons_rules_count(repo: &gix::Repository) -> bool {
    let config = repo.config_snapshot();
    let key = "core.excludesFile";
    let by_person = config.plumbing().string_filter(key, settings::is_user_scope);
    config.plumbing().string(key) == by_person
}

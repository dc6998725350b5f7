//! Parent tree + listed paths = candidate tree.

use crate::{
    code::Code,
    domain::{
        candidate::ChangeKind,
        oid::Oid,
        path::{RepoPath, quoted},
    },
    limits,
    store::{
        beneath::{Listing, LookError, OnDisk, Root, full, link_escapes, require_size},
        filters::{self, FilterError, Filters, Input, directories},
        gitlink::{self, DECLARATIONS, Declared},
        object::{HashError, Kind, Object, hash_of},
        tree::{self, Entry, Mode, TreeEditError, TreeError},
        worktree_state::{StateError, git_error, open_index, setting},
    },
    sys::files,
};
use gix::bstr::ByteSlice;
use std::collections::{BTreeSet, HashMap};

/// How an object reader fails.
pub type LoadError = Box<dyn std::error::Error + Send + Sync>;
/// Reads a tree by its id.
pub type Load<'a> = &'a dyn Fn(&Oid) -> Result<Vec<u8>, LoadError>;

/// What [`fix_tree`] works with.
#[derive(Clone, Copy)]
pub struct FixCtx<'a> {
    /// The worktree, in three forms.
    pub filters: Filters<'a>,
    /// Reads the parent's trees.
    pub load: Load<'a>,
    /// Submodules that `.gitmodules` declares are links to the commit their `HEAD` is at.
    pub allow_submodules: bool,
}

/// A listed path and what a tree holds there; none = nothing.
pub type Listed = (RepoPath, Option<(Mode, Oid)>);

/// A path that differs between parent and candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which path.
    pub path: RepoPath,
    /// How.
    pub kind: ChangeKind,
    /// In the parent.
    pub old: Option<(Mode, Oid)>,
    /// In the candidate.
    pub new: Option<(Mode, Oid)>,
}

/// The tree a gate judges.
#[derive(Clone, Debug)]
pub struct FixedTree {
    /// Its id; equal to the parent's when nothing changed.
    pub tree: Oid,
    /// New blobs and trees, children first.
    pub objects: Vec<Object>,
    /// What differs, by path.
    pub changes: Vec<Change>,
    /// All listed paths as the tree holds them, by path.
    pub listed: Vec<Listed>,
}

/// The candidate's tree cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum CandidateError {
    /// Neither on disk nor tracked.
    #[error("'{0}' neither exists nor is tracked")]
    NoSuchPath(RepoPath),
    /// It cannot be committed any more.
    #[error("'{path}' is {is}")]
    NotAFile {
        /// Which one.
        path: RepoPath,
        /// The stable code.
        code: Code,
        /// What is there.
        is: &'static str,
    },
    /// A file and a directory want the same name (decisions 17).
    #[error("'{path}' would be a file and a directory at once: list the paths that give way, too")]
    Conflict {
        /// Their name.
        path: String,
    },
    /// Together the files are too large, see [`limits::CANDIDATE_BYTES`].
    #[error(
        "the listed files hold {size_bytes} bytes, at most {} are accepted",
        limits::CANDIDATE_BYTES
    )]
    TooLarge {
        /// Their size.
        size_bytes: u64,
    },
    /// A file was written while it was read.
    #[error("'{0}' changed while it was read")]
    Moving(RepoPath),
    /// A file could not be looked at.
    #[error(transparent)]
    Look(#[from] LookError),
    /// Content could not be converted.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Settings or index could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// What would be stored has no id.
    #[error(transparent)]
    Hash(#[from] HashError),
    /// A tree of the parent could not be read.
    #[error("cannot read tree {id}: {why}")]
    Load {
        /// Which one.
        id: Oid,
        /// Why not.
        why: String,
    },
}

impl CandidateError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NoSuchPath(_) => Code::NoSuchPath,
            Self::NotAFile { code, .. } => *code,
            Self::Conflict { .. } => Code::PathConflicts,
            Self::TooLarge { .. } => Code::FileTooLarge,
            Self::Moving(_) => Code::TreeChanged,
            Self::Look(e) => e.code(),
            Self::Filter(e) => e.code(),
            Self::State(e) => e.code(),
            Self::Hash(_) | Self::Load { .. } => Code::CandidateFailed,
        }
    }
}

/// Builds the tree: `parent_tree` with each listed path as it is on disk now.
///
/// # Errors
/// See [`CandidateError`].
pub fn fix_tree(
    ctx: FixCtx<'_>,
    parent_tree: Oid,
    paths: &[RepoPath],
) -> Result<FixedTree, CandidateError> {
    let mut parent = Trees { load: ctx.load, seen: HashMap::new() };
    let top = &ctx.filters.git.worktree().top;
    let root = Root::open(top).map_err(|source| StateError::Io { path: top.clone(), source })?;
    let rules = Rules::read(ctx.filters.repo)?;
    let all: Listing<'_> = paths.iter().collect();
    let mut plans = Vec::new();
    for path in &all {
        let old = parent.find(parent_tree, path)?;
        let found = root.look_among((path, old.is_some()), &all)?;
        let plan = match submodule(ctx, &mut parent, (parent_tree, &all), (path, old, &found))? {
            Some(plan) => plan,
            None => plan(ctx.filters.repo, &rules, &root, (path, old, found))?,
        };
        plans.push((*path, old, plan));
    }
    check_sizes(&plans)?;
    let (contents, mut objects) = store_files(ctx, &root, &mut parent, parent_tree, &plans)?;
    let mut listed = Vec::new();
    for (path, old, plan) in &plans {
        let new = match plan {
            Plan::Gone => None,
            Plan::Keep => *old,
            Plan::Link(blob) => {
                objects.push(blob.clone());
                Some((Mode::Symlink, blob.id))
            }
            Plan::Commit(id) => Some((Mode::Submodule, *id)),
            Plan::File { mode, .. } => contents.get(path).map(|id| (*mode, *id)),
        };
        listed.push(((*path).clone(), keep_old_mode(*old, new)));
    }
    let changes = changes(&plans, &listed);
    let (tree, trees) = edit(&mut parent, parent_tree, &changes)?;
    let news: BTreeSet<Oid> = changes
        .iter()
        .filter(|c| c.new.map(|n| n.1) != c.old.map(|o| o.1))
        .filter_map(|c| Some(c.new?.1))
        .collect();
    let mut seen = BTreeSet::new();
    objects.retain(|o| news.contains(&o.id) && seen.insert(o.id));
    objects.extend(trees.into_iter().filter(|t| seen.insert(t.id)));
    Ok(FixedTree { tree, objects, changes, listed })
}

/// What the listed paths are in `tree`: for landing, where the candidate is known by its id alone.
///
/// # Errors
/// A tree cannot be read.
pub fn listed_at(
    load: Load<'_>,
    tree: Oid,
    paths: &[RepoPath],
) -> Result<Vec<Listed>, CandidateError> {
    let mut trees = Trees { load, seen: HashMap::new() };
    let paths = paths.iter().collect::<BTreeSet<_>>().into_iter();
    paths.map(|p| Ok((p.clone(), trees.find(tree, p)?.filter(|e| e.0 != Mode::Tree)))).collect()
}

/// How a path changed; none if it did not.
#[must_use]
pub fn change_kind(old: Option<(Mode, Oid)>, new: Option<(Mode, Oid)>) -> Option<ChangeKind> {
    let is_link = |mode: Mode| mode == Mode::Symlink;
    match (old, new) {
        (None, None) => None,
        (None, Some(_)) => Some(ChangeKind::Added),
        (Some(_), None) => Some(ChangeKind::Deleted),
        (Some(old), Some(new)) if old == new => None,
        (Some(old), Some(new)) if is_link(old.0) != is_link(new.0) => Some(ChangeKind::TypeChanged),
        (Some(old), Some(new)) if old.1 == new.1 => Some(ChangeKind::ModeChanged),
        (Some(_), Some(_)) => Some(ChangeKind::Modified),
    }
}

/// The settings that say what a mode on disk means.
struct Rules {
    file_mode: bool,
    symlinks: bool,
}

impl Rules {
    fn read(repo: &gix::Repository) -> Result<Self, StateError> {
        Ok(Self {
            file_mode: setting(repo, "core.fileMode", true)?,
            symlinks: setting(repo, "core.symlinks", true)?,
        })
    }

    /// git's `ce_mode_from_stat`, with the parent's entry in place of the index's.
    fn mode(&self, executable: bool, old: Option<(Mode, Oid)>) -> Mode {
        let old = old.map(|(mode, _)| mode);
        if !self.symlinks && old == Some(Mode::Symlink) {
            Mode::Symlink
        } else if self.file_mode {
            if executable { Mode::Executable } else { Mode::File }
        } else {
            let keeps = |mode: &Mode| matches!(mode, Mode::File | Mode::Executable);
            old.filter(keeps).unwrap_or(Mode::File)
        }
    }
}

/// What will be done with one path.
enum Plan {
    /// Nothing is there.
    Gone,
    /// It stays as the parent has it.
    Keep,
    /// A link with this text.
    Link(Object),
    /// A submodule at this commit.
    Commit(Oid),
    /// A file; its content follows.
    File { mode: Mode, found: OnDisk },
}

/// What is done with a submodule and with a repository inside; none when it is neither, or no longer.
fn submodule(
    ctx: FixCtx<'_>,
    parent: &mut Trees<'_>,
    (parent_tree, listed): (Oid, &Listing<'_>),
    (path, old, found): (&RepoPath, Option<(Mode, Oid)>, &OnDisk),
) -> Result<Option<Plan>, CandidateError> {
    let tracked = matches!(old, Some((Mode::Submodule, _)));
    if !tracked && *found != (OnDisk::Directory { repository: true }) {
        return Ok(None);
    }
    let code = Code::PathIsSubmodule;
    let refuse = |is| Err(CandidateError::NotAFile { path: path.clone(), code, is });
    if !ctx.allow_submodules {
        return refuse(if tracked { "a submodule" } else { "a repository of its own" });
    }
    let top = &ctx.filters.git.worktree().top;
    let dir = full(top, path);
    match found {
        OnDisk::Directory { repository: true } => {
            if !declared(ctx, parent, (parent_tree, listed))?.has(path) {
                return refuse("an embedded repository, not a submodule that .gitmodules declares");
            }
            match gitlink::commit_of(ctx.filters.repo, &dir)? {
                Ok(id) => Ok(Some(Plan::Commit(id))),
                Err(_) => refuse("a submodule without a commit to link to"),
            }
        }
        OnDisk::Directory { repository: false } => {
            if files::list(&dir).map_err(StateError::from)?.is_empty() {
                return Ok(Some(Plan::Keep));
            }
            refuse("a submodule with files in place of its repository")
        }
        OnDisk::Absent => Ok(Some(Plan::Gone)),
        OnDisk::File { .. } | OnDisk::Symlink { .. } | OnDisk::Special => Ok(None),
    }
}

/// What `.gitmodules` declares in the candidate: a listed one as it is on disk, else the parent's.
fn declared(
    ctx: FixCtx<'_>,
    parent: &mut Trees<'_>,
    (parent_tree, listed): (Oid, &Listing<'_>),
) -> Result<Declared, CandidateError> {
    let bad = git_error("the declarations of submodules");
    let file = RepoPath::new(DECLARATIONS).map_err(|e| bad(e.to_string()))?;
    if listed.contains(&file) {
        let top = &ctx.filters.git.worktree().top;
        let root =
            Root::open(top).map_err(|source| StateError::Io { path: top.clone(), source })?;
        let there = matches!(root.look(&file)?, OnDisk::File { .. });
        let text = if there { root.read(&file)? } else { Vec::new() };
        return Ok(Declared::parse(&text)?);
    }
    let text = match parent.find(parent_tree, &file)? {
        Some((Mode::File | Mode::Executable | Mode::OldFile(_), id)) => {
            (ctx.load)(&id).map_err(|e| CandidateError::Load { id, why: e.to_string() })?
        }
        Some((Mode::Tree | Mode::Symlink | Mode::Submodule, _)) | None => Vec::new(),
    };
    Ok(Declared::parse(&text)?)
}

fn plan(
    repo: &gix::Repository,
    rules: &Rules,
    root: &Root,
    (path, old, found): (&RepoPath, Option<(Mode, Oid)>, OnDisk),
) -> Result<Plan, CandidateError> {
    let refuse = |code, is| Err(CandidateError::NotAFile { path: path.clone(), code, is });
    // A directory of the parent at this place is no file that could be deleted.
    let old = old.filter(|(mode, _)| *mode != Mode::Tree);
    match found {
        OnDisk::Absent | OnDisk::Directory { repository: false } if old.is_some() => Ok(Plan::Gone),
        OnDisk::Absent if is_staged(repo, path)? => Ok(Plan::Keep),
        OnDisk::Absent => Err(CandidateError::NoSuchPath(path.clone())),
        OnDisk::Directory { .. } => refuse(Code::PathIsDirectory, "a directory"),
        OnDisk::Special => refuse(Code::PathSpecialFile, "no file and no symbolic link"),
        OnDisk::Symlink { target } => {
            let escapes = link_escapes(root.top(), path, &target);
            let blob = Object::new(hash_of(repo), Kind::Blob, target)?;
            if escapes && old != Some((Mode::Symlink, blob.id)) {
                return refuse(Code::PathSymlinkEscapes, "a link that points out of the worktree");
            }
            Ok(Plan::Link(blob))
        }
        found @ OnDisk::File { executable, .. } => {
            Ok(Plan::File { mode: rules.mode(executable, old), found })
        }
    }
}

/// Before anything is read, by us or by git: what is too large is never held in memory.
fn check_sizes(plans: &[Planned<'_>]) -> Result<(), CandidateError> {
    let mut size_bytes = 0_u64;
    for (path, _, plan) in plans {
        if let Plan::File { found: OnDisk::File { stamp, .. }, .. } = plan {
            require_size(path, stamp.size_bytes())?;
            size_bytes = size_bytes.saturating_add(stamp.size_bytes());
        }
    }
    if size_bytes > limits::CANDIDATE_BYTES {
        return Err(CandidateError::TooLarge { size_bytes });
    }
    Ok(())
}

/// Added to the index and then removed from disk: tracked, though in no commit.
fn is_staged(repo: &gix::Repository, path: &RepoPath) -> Result<bool, StateError> {
    Ok(open_index(repo)?.is_some_and(|i| i.entry_range(path.as_bytes().as_bstr()).is_some()))
}

type Planned<'p> = (&'p RepoPath, Option<(Mode, Oid)>, Plan);
type Contents<'p> = (HashMap<&'p RepoPath, Oid>, Vec<Object>);

fn store_files<'p>(
    ctx: FixCtx<'_>,
    root: &Root,
    parent: &mut Trees<'_>,
    parent_tree: Oid,
    plans: &[Planned<'p>],
) -> Result<Contents<'p>, CandidateError> {
    let files = plans.iter().filter_map(|(path, old, plan)| match plan {
        Plan::File { found, .. } => Some((*path, *old, found)),
        Plan::Gone | Plan::Keep | Plan::Link(_) | Plan::Commit(_) => None,
    });
    let files: Vec<_> = files.collect();
    let mut attributes = Vec::new();
    for dir in directories(files.iter().map(|(path, _, _)| *path)) {
        let name = RepoPath::new(&[dir.as_slice(), b".gitattributes"].concat());
        let Ok(name) = name else { continue };
        // A listed one counts as it is on disk: one that is gone says nothing any more.
        let listed = plans.iter().any(|(path, _, _)| **path == name);
        if let Some(entry) = parent.find(parent_tree, &name)?.filter(|_| !listed) {
            attributes.push((name, entry));
        }
    }
    let inputs: Vec<Input> =
        files.iter().map(|(p, old, _)| Input { path: (*p).clone(), before: *old }).collect();
    let blobs = filters::blobs(ctx.filters, root, &inputs, &attributes)?;
    for (path, _, found) in &files {
        if root.look(path)? != **found {
            return Err(CandidateError::Moving((*path).clone()));
        }
    }
    let ids = files.iter().zip(&blobs).map(|((path, _, _), blob)| (*path, blob.id)).collect();
    Ok((ids, blobs))
}

/// Old permission bits (`100664`) of an untouched file are no change.
fn keep_old_mode(old: Option<(Mode, Oid)>, new: Option<(Mode, Oid)>) -> Option<(Mode, Oid)> {
    if let (Some((Mode::OldFile(bits), was)), Some((mode, is))) = (old, new)
        && was == is
        && (bits & 0o100 != 0) == (mode == Mode::Executable)
    {
        return old;
    }
    new
}

fn changes(plans: &[Planned<'_>], listed: &[Listed]) -> Vec<Change> {
    let pairs = plans.iter().zip(listed);
    pairs
        .filter_map(|((_, old, _), (path, new))| {
            let old = old.filter(|(mode, _)| *mode != Mode::Tree);
            let kind = change_kind(old, *new)?;
            Some(Change { path: path.clone(), kind, old, new: *new })
        })
        .collect()
}

fn edit(
    parent: &mut Trees<'_>,
    root: Oid,
    changes: &[Change],
) -> Result<(Oid, Vec<Object>), CandidateError> {
    let edits: Vec<tree::Change> = changes
        .iter()
        .map(|c| tree::Change { path: c.path.as_bytes().to_vec(), to: c.new })
        .collect();
    let edited = tree::edit(root.hash(), Some(root), &edits, &mut |id| {
        (parent.load)(id).map_err(|e| CandidateError::Load { id: *id, why: e.to_string() })
    });
    edited.map_err(|error| match error {
        TreeEditError::Load(e) => e,
        TreeEditError::Malformed { id, source } => malformed(id, &source),
        TreeEditError::Hash(e) => CandidateError::Hash(e),
        TreeEditError::OtherHash { id, .. } => CandidateError::Load { id, why: error.to_string() },
        TreeEditError::Conflict { path } | TreeEditError::BadPath { path } => {
            CandidateError::Conflict { path: quoted(&path) }
        }
    })
}

fn malformed(id: Oid, source: &TreeError) -> CandidateError {
    CandidateError::Load { id, why: source.to_string() }
}

/// Trees read so far.
struct Trees<'a> {
    load: Load<'a>,
    seen: HashMap<Oid, Vec<Entry>>,
}

impl Trees<'_> {
    fn find(&mut self, root: Oid, path: &RepoPath) -> Result<Option<(Mode, Oid)>, CandidateError> {
        let mut at = Some((Mode::Tree, root));
        for name in path.names() {
            let Some((Mode::Tree, id)) = at else { return Ok(None) };
            let found = self.entries(id)?.iter().find(|e| e.name == name);
            at = found.map(|e| (e.mode, e.id));
        }
        Ok(at)
    }

    fn entries(&mut self, id: Oid) -> Result<&[Entry], CandidateError> {
        if !self.seen.contains_key(&id) {
            let load = |why: LoadError| CandidateError::Load { id, why: why.to_string() };
            let data = (self.load)(&id).map_err(load)?;
            let entries = tree::parse(id.hash(), &data).map_err(|e| malformed(id, &e))?;
            self.seen.insert(id, entries);
        }
        Ok(self.seen.get(&id).map_or(&[], Vec::as_slice))
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;

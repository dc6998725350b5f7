//! Counting what differs outside the listed paths, without running any program.

use super::{StateError, git_error, head_tree, oid, open_index, setting};
use crate::{
    code::Code,
    domain::path::RepoPath,
    limits,
    store::object::{Kind, hash},
    sys::files,
};
use gix::bstr::{BStr, ByteSlice};
use std::{
    collections::{HashMap, HashSet},
    io::ErrorKind,
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// How many files outside the listed paths differ from `HEAD` while a gate runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unlisted {
    /// Tracked files that are changed, staged, deleted or unmerged.
    pub tracked: u64,
    /// Untracked files that are not ignored.
    pub untracked: u64,
}

/// Counts changes outside `listed` from stat data, index and `HEAD`'s trees. Racily clean files may be
/// missed (decisions 32). An entry without stat data, as landing leaves it, is compared by its bytes
/// instead, else every landed file would count as changed until somebody runs `git status`.
///
/// # Errors
/// Index, `HEAD` or the worktree cannot be read.
pub fn unlisted_changes(
    repo: &gix::Repository,
    listed: &[RepoPath],
) -> Result<Unlisted, StateError> {
    let (tracked, untracked) = unlisted_paths(repo, listed)?;
    Ok(Unlisted { tracked: tracked.len() as u64, untracked: untracked.len() as u64 })
}

type Paths = Vec<Vec<u8>>;

/// The same by name: tracked ones first, then untracked ones.
///
/// # Errors
/// As [`unlisted_changes`].
pub fn unlisted_paths(
    repo: &gix::Repository,
    listed: &[RepoPath],
) -> Result<(Paths, Paths), StateError> {
    let listed: HashSet<&[u8]> = listed.iter().map(RepoPath::as_bytes).collect();
    let index = match open_index(repo)? {
        Some(index) => index,
        None => gix::index::File::from_state(
            gix::index::State::new(repo.object_hash()),
            repo.index_path(),
        ),
    };
    let mut at_head = head_files(repo)?;
    let mut seen: HashSet<Vec<u8>> = HashSet::new();
    let mut tracked = Paths::new();
    let probe = Probe::new(repo)?;
    for entry in index.entries() {
        let path = entry.path(&index);
        let before = at_head.remove(path.as_bytes());
        if entry.mode.is_submodule() || entry.mode.is_sparse() || !seen.insert(path.to_vec()) {
            continue;
        }
        let staged = before != Some((entry.mode, entry.id)) || entry.stage_raw() != 0;
        if !listed.contains(path.as_bytes()) && (staged || probe.changed(entry, path)?) {
            tracked.push(path.to_vec());
        }
    }
    // What is left of HEAD is deleted from the index (a sparse index has none of its own).
    if !index.is_sparse() {
        let gone = at_head
            .iter()
            .filter(|(path, (mode, _))| !mode.is_submodule() && !listed.contains(path.as_slice()));
        tracked.extend(gone.map(|(path, _)| path.clone()));
    }
    seen.extend(at_head.into_keys());
    let untracked = untracked(repo, &index)?
        .into_iter()
        .filter(|p| !listed.contains(p.as_slice()) && !seen.contains(p))
        .collect();
    Ok((tracked, untracked))
}

pub(super) type Files = HashMap<Vec<u8>, (gix::index::entry::Mode, gix::ObjectId)>;

pub(super) fn head_files(repo: &gix::Repository) -> Result<Files, StateError> {
    let bad = git_error("the tree of HEAD");
    let Some(tree) = head_tree(repo)? else { return Ok(Files::new()) };
    let index = repo.index_from_tree(&tree.id).map_err(|e| bad(e.to_string()))?;
    let entries = index.entries().iter();
    Ok(entries.map(|e| (e.path(&index).to_vec(), (e.mode, e.id))).collect())
}

/// Compares index entries with what is on disk.
struct Probe<'a> {
    top: &'a Path,
    options: gix::index::entry::stat::Options,
    file_mode: bool,
}

impl<'a> Probe<'a> {
    fn new(repo: &'a gix::Repository) -> Result<Self, StateError> {
        let bad = git_error("the configuration");
        let options = repo.stat_options().map_err(|e| bad(e.to_string()))?;
        let top = repo.workdir().ok_or_else(|| bad("there is no worktree".to_owned()))?;
        Ok(Self { top, options, file_mode: setting(repo, "core.fileMode", true)? })
    }

    fn changed(&self, entry: &gix::index::Entry, path: &BStr) -> Result<bool, StateError> {
        let full = self.top.join(std::ffi::OsStr::from_bytes(path));
        let meta = match gix::index::fs::Metadata::from_path_no_follow(&full) {
            Ok(meta) => meta,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                // Outside a sparse checkout files are absent on purpose.
                return Ok(!entry.flags.contains(gix::index::entry::Flags::SKIP_WORKTREE));
            }
            Err(source) => return Err(StateError::Io { path: full, source }),
        };
        if self.mode_differs(entry.mode, &meta) {
            return Ok(true);
        }
        if entry.stat == gix::index::entry::Stat::default() {
            return bytes_differ(&full, &meta, entry);
        }
        let stat = gix::index::entry::Stat::from_fs(&meta)
            .map_err(|e| git_error("a file's times")(e.to_string()))?;
        Ok(!entry.stat.matches(&stat, self.options))
    }

    fn mode_differs(&self, mode: gix::index::entry::Mode, meta: &gix::index::fs::Metadata) -> bool {
        use gix::index::entry::Mode;
        if meta.is_symlink() {
            return mode != Mode::SYMLINK;
        }
        if !meta.is_file() {
            return true;
        }
        match mode {
            Mode::FILE => self.file_mode && meta.is_executable(),
            Mode::FILE_EXECUTABLE => self.file_mode && !meta.is_executable(),
            _ => true,
        }
    }
}

fn bytes_differ(
    path: &Path,
    meta: &gix::index::fs::Metadata,
    entry: &gix::index::Entry,
) -> Result<bool, StateError> {
    let bytes = if meta.is_symlink() {
        files::read_link(path)?.into_os_string().as_bytes().to_vec()
    } else {
        files::read(path, meta.len().max(limits::CANDIDATE_BYTES))?
    };
    let indexed = oid(&entry.id)?;
    let actual = hash(indexed.hash(), Kind::Blob, &bytes);
    Ok(actual.map_err(|e| git_error("a file")(e.to_string()))? != indexed)
}

fn untracked(
    repo: &gix::Repository,
    index: &gix::index::State,
) -> Result<Vec<Vec<u8>>, StateError> {
    let bad = git_error("the worktree");
    let options = repo.dirwalk_options().map_err(|e| bad(e.to_string()))?;
    let options = options.emit_untracked(gix::dir::walk::EmissionMode::Matching);
    let top = repo.workdir().ok_or_else(|| bad("there is no worktree".to_owned()))?;
    require_rules_files(top)?;
    let mut found = Wary { top, found: Vec::new(), unfit: None };
    let never = std::sync::atomic::AtomicBool::new(false);
    let walked = repo.dirwalk(index, None::<&str>, &never, options, &mut found);
    if let Some(unfit) = found.unfit {
        return Err(unfit);
    }
    walked.map_err(|e| bad(e.to_string()))?;
    Ok(found.found)
}

/// Gathers untracked files, and enters no directory in which a fifo lies in the place of rules: the library would open it
/// and wait for ever.
struct Wary<'a> {
    top: &'a Path,
    found: Vec<Vec<u8>>,
    unfit: Option<StateError>,
}

impl gix::dir::walk::Delegate for Wary<'_> {
    fn emit(
        &mut self,
        entry: gix::dir::EntryRef<'_>,
        _: Option<gix::dir::entry::Status>,
    ) -> gix::dir::walk::Action {
        if matches!(entry.status, gix::dir::entry::Status::Untracked) {
            self.found.push(entry.rela_path.to_vec());
        }
        match &self.unfit {
            None => std::ops::ControlFlow::Continue(()),
            Some(_) => std::ops::ControlFlow::Break(()),
        }
    }

    fn can_recurse(
        &mut self,
        entry: gix::dir::EntryRef<'_>,
        for_deletion: Option<gix::dir::walk::ForDeletionMode>,
        is_repository: bool,
    ) -> bool {
        let (status, kind) = (entry.status, entry.disk_kind);
        let may = status.can_recurse(kind, entry.pathspec_match, for_deletion, is_repository);
        if !may || self.unfit.is_some() {
            return false;
        }
        let dir = self.top.join(std::ffi::OsStr::from_bytes(entry.rela_path.as_bytes()));
        self.unfit = require_rules_files(&dir).err();
        self.unfit.is_none()
    }
}

/// Refuses a fifo, socket or device in the place of `.gitignore` or `.gitattributes` of a directory.
pub(in crate::store) fn require_rules_files(dir: &Path) -> Result<(), StateError> {
    for name in [".gitignore", ".gitattributes"] {
        let path = dir.join(name);
        match files::open_regular(&path) {
            // Below a file there is nothing, and a directory holds no rules.
            Err(e)
                if e.code() == Code::NotRegular
                    && e.source.kind() != ErrorKind::NotADirectory
                    && !files::is_dir(&path).unwrap_or(false) =>
            {
                return Err(e.into());
            }
            // What is absent or cannot be opened holds up nobody.
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::{Repo, path};

    /// Older than the index, so that no entry is racily clean.
    fn settle(repo: &Repo) {
        let then =
            std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
        for name in ["a", "b", "c", "d/x"] {
            std::fs::File::options()
                .write(true)
                .open(repo.path(name))
                .unwrap()
                .set_modified(then)
                .unwrap();
        }
        repo.git(&["update-index", "--refresh"]);
    }

    #[test]
    fn unlisted_changes_are_counted_without_the_listed_ones() {
        let repo = Repo::new();
        for name in ["a", "b", "c", "d/x"] {
            repo.write(name, b"1");
        }
        repo.commit_file(".gitignore", b"*.o\n");
        settle(&repo);
        let count = |listed: &[&str]| {
            let listed: Vec<RepoPath> = listed.iter().map(path).collect();
            let found = unlisted_changes(&repo.gix(), &listed).unwrap();
            (found.tracked, found.untracked)
        };
        assert_eq!(count(&[]), (0, 0));
        repo.write("new/u", b"1");
        repo.write("new/v", b"1");
        repo.write("x.o", b"1");
        repo.git(&["init", "-q", "inner"]);
        repo.write("inner/deep", b"1");
        repo.write("a", b"22");
        std::fs::remove_file(repo.path("d/x")).unwrap();
        repo.write("b", b"staged");
        repo.git(&["add", "b"]);
        repo.git(&["rm", "-q", "--cached", "c"]);
        assert_eq!(count(&[]), (4, 3));
        assert_eq!(count(&["a", "b", "new/u"]), (2, 2));
        assert_eq!(count(&["a", "b", "c", "d/x", "new/u", "new/v"]), (0, 1));
    }

    #[test]
    fn an_entry_without_stat_data_is_no_change_by_itself() {
        let repo = Repo::new();
        let id = repo.commit_file("a", b"1");
        let blob = repo.oid(&format!("{id}:a")).to_string();
        std::fs::remove_file(repo.path(".git/index")).unwrap();
        repo.git(&["update-index", "--add", "--cacheinfo", &format!("100644,{blob},a")]);
        assert_eq!(unlisted_changes(&repo.gix(), &[]).unwrap(), Unlisted::default());
        repo.write("a", b"2");
        assert_eq!(unlisted_changes(&repo.gix(), &[]).unwrap().tracked, 1);
    }
}

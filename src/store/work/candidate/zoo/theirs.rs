//! What git makes of listed paths, on an index and in an object directory of its own.

use super::{FixedTree, world::World};
use crate::domain::{oid::Oid, path::RepoPath};
use std::path::{Path, PathBuf};

/// git's side of the comparison.
pub(super) struct Theirs<'w> {
    world: &'w World,
    index: PathBuf,
    fresh: PathBuf,
    objects: PathBuf,
    alternate: PathBuf,
    list: PathBuf,
}

impl<'w> Theirs<'w> {
    /// An index at the parent, to be copied for each question.
    pub(super) fn prepare(world: &'w World) -> Self {
        let repo = &world.repo;
        let [index, fresh] = ["their-index", "fresh-index"].map(|n| repo.beside(n));
        let [objects, list] = ["their-objects", "list"].map(|n| repo.beside(n));
        std::fs::create_dir(&objects).unwrap();
        let alternate = repo.path(".git/objects");
        let theirs = Self { world, index, fresh, objects, alternate, list };
        theirs.git(&["read-tree", "HEAD"]);
        std::fs::rename(&theirs.index, &theirs.fresh).unwrap();
        theirs
    }

    fn git(&self, args: &[&str]) -> String {
        let extra: [(&str, &Path); 4] = [
            ("GIT_INDEX_FILE", &self.index),
            ("GIT_OBJECT_DIRECTORY", &self.objects),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", &self.alternate),
            ("GIT_LITERAL_PATHSPECS", Path::new("1")),
        ];
        self.world.repo.git_at(&self.world.repo.top(), args, &extra)
    }

    fn write_list(&self, paths: &[&RepoPath]) {
        let lines: Vec<&[u8]> = paths.iter().map(|p| p.as_bytes()).collect();
        std::fs::write(&self.list, [lines.join(&0), vec![0]].concat()).unwrap();
    }

    /// The tree after adding exactly these paths, and the paths in which it differs from the parent.
    pub(super) fn add(&self, listed: &[RepoPath]) -> (Oid, Vec<Vec<u8>>) {
        std::fs::copy(&self.fresh, &self.index).unwrap();
        // To git a directory means everything below it; what is listed is the file that was there.
        let (gone, there): (Vec<_>, Vec<_>) =
            listed.iter().partition(|p| self.world.repo.path(p.as_bytes()).is_dir_itself());
        let there: Vec<&RepoPath> =
            there.into_iter().filter(|p| self.world.can_be_added(p.as_bytes())).collect();
        if !gone.is_empty() {
            self.write_list(&gone);
            let args = ["rm", "-q", "--cached", "--ignore-unmatch"];
            let from = format!("--pathspec-from-file={}", self.list.display());
            // `rm` takes what lies below along: only files are in the parent at these names.
            self.git(&[&args[..], &[from.as_str(), "--pathspec-file-nul"]].concat());
        }
        // In one call the attributes would count as they were for names that sort before them, and for all after.
        let (attributes, rest): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|p| p.as_bytes().ends_with(b".gitattributes"));
        for paths in [attributes, rest].iter().filter(|paths| !paths.is_empty()) {
            self.write_list(paths);
            let from = format!("--pathspec-from-file={}", self.list.display());
            self.git(&["add", "-A", &from, "--pathspec-file-nul"]);
        }
        let tree = self.git(&["write-tree"]).trim().to_owned();
        let differs = ["diff-index", "--cached", "--no-renames", "--name-only", "-z", "HEAD"];
        let names = self.raw(&differs);
        (tree.parse().unwrap(), names)
    }

    /// NUL-separated names as bytes: what is not UTF-8 must not be replaced.
    fn raw(&self, args: &[&str]) -> Vec<Vec<u8>> {
        let out = self.world.repo.beside("out");
        let file = format!("--output={}", out.display());
        self.git(&[args, &[file.as_str()]].concat());
        let bytes = std::fs::read(&out).unwrap();
        bytes.split(|b| *b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
    }

    /// What differs between our tree and theirs, for a person.
    pub(super) fn difference(&self, ours: &FixedTree, tree: Oid) -> String {
        self.world.repo.store(&ours.objects);
        let [ours, theirs] = [ours.tree.to_string(), tree.to_string()];
        self.git(&["diff-tree", "-r", "--abbrev", "--no-renames", &ours, &theirs])
    }
}

/// A directory, not a link to one.
trait IsDirItself {
    fn is_dir_itself(&self) -> bool;
}

impl IsDirItself for PathBuf {
    fn is_dir_itself(&self) -> bool {
        std::fs::symlink_metadata(self).is_ok_and(|m| m.is_dir())
    }
}

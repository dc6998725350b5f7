//! The repository id: the root commit of the first-parent line of the trusted branch (design 3.1).
//!
//! Contract: the same in every full clone, whatever remotes and worktrees it has. A history that is cut
//! off has no such commit here: then the journals that were fetched say it, all of them the same, or it is refused by
//! name rather than given another id.

use crate::store::{
    commit,
    names::{JOURNALS, REMOTES, journal_writer},
    refs::RefReader,
};
use crate::{code::Code, domain::oid::Oid};
use std::collections::BTreeSet;

/// Why a repository has no id.
#[derive(Debug, thiserror::Error)]
pub enum RepoIdError {
    /// The history is cut off.
    #[error("the clone is shallow, and neither its first commit nor a journal is here")]
    Shallow,
    /// The history is cut off, and the journals are of several repositories.
    #[error("the clone is shallow, and its journals name different repositories")]
    Disagreeing,
    /// The history is cut off, and a journal cannot be read.
    #[error("the clone is shallow, and a journal cannot be read: {0}")]
    Journal(String),
    /// An object of the first-parent line cannot be read.
    #[error("cannot follow the history of {tip}: {why}")]
    History {
        /// Where the walk began.
        tip: Oid,
        /// Why it stopped.
        why: String,
    },
}

impl RepoIdError {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Shallow | Self::Disagreeing => Code::ShallowUnsupported,
            Self::History { .. } | Self::Journal(_) => Code::StoreUnusable,
        }
    }
}

/// Walks first parents from `tip` to the root. Cost is the length of that line; callers keep the answer
/// (`settings::KnownPath`).
///
/// # Errors
/// The clone is shallow, or a commit cannot be read.
pub fn load_repo_id(repo: &gix::Repository, tip: Oid) -> Result<Oid, RepoIdError> {
    let broken = |why: &dyn std::fmt::Display| RepoIdError::History { tip, why: why.to_string() };
    if repo.is_shallow().map_err(|e| broken(&e))? {
        return from_journals(&real_objects(repo));
    }
    let start = gix::ObjectId::try_from(tip.as_bytes()).map_err(|e| broken(&e))?;
    let repo = real_objects(repo);
    let walk = repo.rev_walk([start]).first_parent_only().all().map_err(|e| broken(&e))?;
    let mut root = start;
    for commit in walk {
        root = commit.map_err(|e| broken(&e))?.id;
    }
    Oid::from_bytes(root.as_slice()).map_err(|e| broken(&e))
}

/// What every journal here says. One that is cut off itself says nothing.
fn from_journals(repo: &gix::Repository) -> Result<Oid, RepoIdError> {
    let failed = |why: &dyn std::fmt::Display| RepoIdError::Journal(why.to_string());
    let refs = RefReader::of(repo).map_err(|e| failed(&e))?;
    let mut names = refs.names(JOURNALS).map_err(|e| failed(&e))?;
    names.extend(refs.names(REMOTES).map_err(|e| failed(&e))?);
    let mut said = BTreeSet::new();
    for name in names.iter().filter(|name| journal_writer(name).is_some()) {
        let Some(tip) = refs.read_leading(name).map_err(|e| failed(&e))? else { continue };
        let mut first = gix::ObjectId::try_from(tip.as_bytes()).map_err(|e| failed(&e))?;
        for entry in repo.rev_walk([first]).first_parent_only().all().map_err(|e| failed(&e))? {
            first = entry.map_err(|e| failed(&e))?.id;
        }
        let first = repo.find_commit(first).map_err(|e| failed(&e))?;
        said.extend(commit::repo_in(first.message_raw().map_err(|e| failed(&e))?));
    }
    match (said.pop_first(), said.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => Err(RepoIdError::Disagreeing),
        (None, _) => Err(RepoIdError::Shallow),
    }
}

/// The same repository without `refs/replace`: anybody who can write a ref could use one to put another
/// commit or rule file in the place of what a trusted id names.
pub(in crate::store) fn real_objects(repo: &gix::Repository) -> gix::Repository {
    let mut repo = repo.clone();
    repo.objects.ignore_replacements = true;
    repo
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{testlab::TestRepo, trusted::testing::Lab};

    #[test]
    fn is_the_root_of_the_first_parent_line() {
        let lab = Lab::new();
        lab.commit("a", "1");
        let root = lab.rev("HEAD");
        lab.git(&["checkout", "-q", "--orphan", "other"]);
        lab.commit("b", "2");
        lab.git(&["checkout", "-q", "main"]);
        lab.git(&["merge", "-q", "--allow-unrelated-histories", "-m", "join", "other"]);
        lab.commit("c", "3");
        assert_eq!(load_repo_id(&lab.open(), lab.rev("HEAD")).unwrap(), root);
        lab.git(&["replace", "--graft", "HEAD"]);
        assert_eq!(load_repo_id(&lab.open(), lab.rev("HEAD")).unwrap(), root);
    }

    #[test]
    fn a_shallow_clone_has_none() {
        let lab = Lab::new();
        lab.commit("a", "1");
        lab.commit("a", "2");
        let url = format!("file://{}", lab.top().display());
        lab.git(&["clone", "-q", "--depth", "1", &url, "cut"]);
        let cut = gix::open(lab.top().join("cut")).unwrap();
        let tip = lab.rev("HEAD");
        assert_eq!(load_repo_id(&cut, tip).unwrap_err().code(), Code::ShallowUnsupported);
    }

    #[test]
    fn the_journals_in_a_shallow_clone_say_it_whatever_keeps_the_refs() {
        for format in ["files", "reftable"] {
            let repo = TestRepo::with_refs(format);
            let (root, tip) = (repo.git(&["rev-parse", "HEAD"]), repo.commit("second"));
            let url = format!("file://{}", repo.path().display());
            let clone = ["clone", "-q", "--depth", "1", "--ref-format", format, &url, "cut"];
            repo.git(&clone);
            let cut = repo.path().join("cut");
            let id = || load_repo_id(&gix::open(&cut).unwrap(), tip.parse().unwrap());
            let fetched = |writer: &str, says: &str| {
                let message = format!("first\n\nFormat: 1\nRepo: {says}\nSeq: 1\n");
                let tree = repo.git(&["rev-parse", "HEAD^{tree}"]);
                let at = ["-C", "cut", "commit-tree", "-m", &message, &tree];
                let entry = repo.git(&at);
                let name = format!("refs/agentproto/remotes/origin/journal/{writer}/0001");
                repo.git(&["-C", "cut", "update-ref", &name, &entry]);
                name
            };
            assert!(matches!(id(), Err(RepoIdError::Shallow)), "{format}");
            let name = fetched("aaaaaaaaaaaa", &root);
            assert_eq!(id().unwrap().to_string(), root, "{format}");
            fetched("bbbbbbbbbbbb", &tip);
            assert!(matches!(id(), Err(RepoIdError::Disagreeing)), "{format}");
            repo.git(&["-C", "cut", "symbolic-ref", &name, "refs/heads/nowhere"]);
            assert!(matches!(id(), Err(RepoIdError::Journal(_))), "{format}");
        }
    }
}

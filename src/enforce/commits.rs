//! The commits that are asked about: which they are, and what they really hold.
//!
//! Contract: every object is hashed again before it counts; no commit-graph file and no replacement is
//! believed. A name that leads to no commit is an error, never an empty range.

use super::{chain::Began, verify::VerifyError};
use crate::{
    domain::oid::Oid,
    store::{
        Store, StoreError,
        object::{Kind, hash, library_kind},
        refs::head_name,
        revision::{self, RevisionError, Revisions},
        tree::{self, Mode},
    },
};
use gix::revision::walk::Sorting;
use std::collections::{BTreeMap, HashSet};

/// What counts of a commit.
pub(super) struct Commit {
    pub(super) tree: Oid,
    pub(super) parents: Vec<Oid>,
    pub(super) message: Vec<u8>,
}

/// One path that differs between two trees.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) path: Vec<u8>,
    /// What it holds afterwards; none when it is gone.
    pub(super) to: Option<(Mode, Oid)>,
}

/// Reads objects and checks that they are what their ids say.
#[derive(Clone, Copy)]
pub(super) struct Objects<'a>(pub(super) &'a Store);

type Names = BTreeMap<Vec<u8>, (Mode, Oid)>;

impl Objects<'_> {
    /// The bytes of an object of this kind.
    pub(super) fn get(self, id: &Oid, kind: Kind) -> Result<Vec<u8>, StoreError> {
        let object = self.0.object(id)?;
        if object.kind != kind {
            return Err(wrong(id, kind, format!("it is a {}", object.kind.name())));
        }
        let actual =
            hash(id.hash(), kind, &object.data).map_err(|e| wrong(id, kind, e.to_string()))?;
        if actual != *id {
            return Err(wrong(id, kind, format!("its bytes are those of {actual}")));
        }
        Ok(object.data)
    }

    pub(super) fn commit(self, id: &Oid) -> Result<Commit, StoreError> {
        let data = self.get(id, Kind::Commit)?;
        let malformed = |why: &dyn std::fmt::Display| wrong(id, Kind::Commit, why.to_string());
        let parsed = gix::objs::CommitRef::from_bytes(&data, library_kind(id.hash()))
            .map_err(|e| malformed(&e))?;
        let plain = |id: gix::ObjectId| Oid::from_bytes(id.as_slice()).map_err(|e| malformed(&e));
        Ok(Commit {
            tree: plain(parsed.tree())?,
            parents: parsed.parents().map(plain).collect::<Result<_, _>>()?,
            message: parsed.message.to_vec(),
        })
    }

    /// Every path that differs, in path order.
    pub(super) fn changed(self, from: &Oid, to: &Oid) -> Result<Vec<Changed>, StoreError> {
        let mut found = Vec::new();
        self.compare(Some(from), Some(to), &[], &mut found)?;
        Ok(found)
    }

    /// Every path of a tree that is no tree itself, in path order.
    pub(super) fn files(self, tree: &Oid) -> Result<Vec<Changed>, StoreError> {
        let mut found = Vec::new();
        self.compare(None, Some(tree), &[], &mut found)?;
        Ok(found)
    }

    fn compare(
        self,
        from: Option<&Oid>,
        to: Option<&Oid>,
        above: &[u8],
        found: &mut Vec<Changed>,
    ) -> Result<(), StoreError> {
        let (old, new) = (self.names(from)?, self.names(to)?);
        let all: std::collections::BTreeSet<&Vec<u8>> = old.keys().chain(new.keys()).collect();
        for name in all {
            let (was, is) = (old.get(name).copied(), new.get(name).copied());
            if was == is {
                continue;
            }
            let path = [above, name].concat();
            let tree = |e: Option<(Mode, Oid)>| e.filter(|e| e.0 == Mode::Tree).map(|e| e.1);
            let (was_tree, is_tree) = (tree(was), tree(is));
            if was_tree.is_some() || is_tree.is_some() {
                let below = [&path, b"/".as_slice()].concat();
                self.compare(was_tree.as_ref(), is_tree.as_ref(), &below, found)?;
            }
            let to = is.filter(|_| is_tree.is_none());
            if to.is_some() || (was.is_some() && was_tree.is_none()) {
                found.push(Changed { path, to });
            }
        }
        Ok(())
    }

    fn names(self, id: Option<&Oid>) -> Result<Names, StoreError> {
        let mut names = Names::new();
        let Some(id) = id else { return Ok(names) };
        let entries = tree::parse(id.hash(), &self.get(id, Kind::Tree)?)
            .map_err(|e| wrong(id, Kind::Tree, e.to_string()))?;
        for entry in entries {
            if names.insert(entry.name, (entry.mode, entry.id)).is_some() {
                return Err(wrong(id, Kind::Tree, "it has one name twice".to_owned()));
            }
        }
        Ok(names)
    }
}

fn wrong(id: &Oid, kind: Kind, reason: String) -> StoreError {
    StoreError::WrongObject { id: *id, expected: kind.name(), reason }
}

/// Which commits are meant.
#[derive(Debug)]
pub(super) enum Meant {
    /// Everything reachable from some and not from others.
    Set { tips: Vec<gix::ObjectId>, hidden: Vec<gix::ObjectId> },
    /// The line of first parents from here back to where governance began.
    Line(gix::ObjectId),
}

/// Reads a revision expression; none is the current branch.
pub(super) fn parse(
    store: &Store,
    repo: &gix::Repository,
    asked: Option<&str>,
) -> Result<Meant, VerifyError> {
    use gix::revision::plumbing::Spec;
    let text = asked.unwrap_or("HEAD");
    let unknown = |why: &dyn std::fmt::Display| VerifyError::NoSuchRevision {
        text: text.to_owned(),
        why: why.to_string(),
    };
    if text.is_empty() {
        return Err(unknown(&"it is empty"));
    }
    if asked.is_none() && store.reference(&head_name(repo)?)?.is_none() {
        return Err(VerifyError::NoCommits);
    }
    let failed = |why: RevisionError| {
        if matches!(why, RevisionError::Unfit { .. }) {
            return VerifyError::Unfit(why);
        }
        unknown(&why)
    };
    let commit = |id: gix::ObjectId| -> Result<gix::ObjectId, VerifyError> {
        let object = repo.find_object(id).map_err(|e| unknown(&e))?;
        Ok(object.peel_to_commit().map_err(|e| unknown(&e))?.id)
    };
    let by_git = revision::by_git(repo, || store.git(), text).map_err(|why| unknown(&why))?;
    if let Some(revisions) = by_git {
        let given = |id: &Oid| -> Result<gix::ObjectId, VerifyError> {
            commit(gix::ObjectId::try_from(id.as_bytes()).map_err(|e| unknown(&e))?)
        };
        let all = |ids: &[Oid]| ids.iter().map(given).collect::<Result<Vec<_>, _>>();
        return Ok(match revisions {
            Revisions::One(id) => Meant::Line(given(&id)?),
            Revisions::Set { tips, hidden } => {
                Meant::Set { tips: all(&tips)?, hidden: all(&hidden)? }
            }
        });
    }
    let parents = |id: gix::ObjectId| -> Result<Vec<gix::ObjectId>, VerifyError> {
        let object = repo.find_commit(commit(id)?).map_err(|e| unknown(&e))?;
        Ok(object.parent_ids().map(gix::Id::detach).collect())
    };
    Ok(match revision::parse(repo, text).map_err(failed)?.detach() {
        Spec::Include(id) => Meant::Line(commit(id)?),
        Spec::Range { from, to } => {
            Meant::Set { tips: vec![commit(to)?], hidden: vec![commit(from)?] }
        }
        Spec::Merge { theirs, ours } => {
            let (theirs, ours) = (commit(theirs)?, commit(ours)?);
            let bases = repo.merge_bases_many(ours, &[theirs]).map_err(|e| unknown(&e))?;
            let hidden = bases.into_iter().map(gix::Id::detach).collect();
            Meant::Set { tips: vec![theirs, ours], hidden }
        }
        Spec::IncludeOnlyParents(id) => Meant::Set { tips: parents(id)?, hidden: vec![] },
        Spec::ExcludeParents(id) => Meant::Set { tips: vec![commit(id)?], hidden: parents(id)? },
        Spec::Exclude(_) => return Err(unknown(&"it only leaves commits out")),
    })
}

/// The commits meant, newest first. `began` says where the governance of each journal began.
pub(super) fn list(
    repo: &gix::Repository,
    objects: Objects<'_>,
    meant: &Meant,
    began: &[Began],
) -> Result<Vec<Oid>, VerifyError> {
    match meant {
        Meant::Set { tips, hidden } => walk(repo, tips, hidden),
        Meant::Line(tip) => line(repo, objects, *tip, began),
    }
}

/// The list of a shallow clone's oldest commits is a file that anybody may write, and a fetch with a depth writes one in a
/// whole clone. It is believed where the parents really are not there: walking meets their absence.
pub(super) fn cut(repo: &gix::Repository, objects: Objects<'_>) -> Result<Option<Oid>, String> {
    let Some(listed) = repo.shallow_commits().map_err(|e| e.to_string())? else { return Ok(None) };
    for id in listed.iter() {
        let id = Oid::from_bytes(id.as_slice()).map_err(|e| e.to_string())?;
        // One that is not here cuts nothing off.
        let Ok(commit) = objects.commit(&id) else { continue };
        if commit.parents.iter().any(|parent| objects.0.object(parent).is_ok()) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// See [`cut`].
pub(super) fn require_uncut(
    repo: &gix::Repository,
    objects: Objects<'_>,
) -> Result<(), VerifyError> {
    match cut(repo, objects).map_err(VerifyError::Walk)? {
        None => Ok(()),
        Some(id) => Err(VerifyError::Cut(id)),
    }
}

fn walk(
    repo: &gix::Repository,
    tips: &[gix::ObjectId],
    hidden: &[gix::ObjectId],
) -> Result<Vec<Oid>, VerifyError> {
    let failed = |why: &dyn std::fmt::Display| VerifyError::Walk(why.to_string());
    let newest = gix::traverse::commit::simple::CommitTimeOrder::NewestFirst;
    let walk = repo
        .rev_walk(tips.iter().copied())
        .with_hidden(hidden.iter().copied())
        .sorting(Sorting::ByCommitTime(newest))
        // A file anybody may write; commits say themselves who their parents are.
        .use_commit_graph(false)
        .all()
        .map_err(|e| failed(&e))?;
    walk.map(|info| plain(info.map_err(|e| failed(&e))?.id)).collect()
}

pub(super) fn plain(id: gix::ObjectId) -> Result<Oid, VerifyError> {
    Oid::from_bytes(id.as_slice()).map_err(|e| VerifyError::Walk(e.to_string()))
}

/// A commit was there before governance if it was there when each journal began: the longest line counts.
/// Where nothing says when that was, only the tip is asked about.
fn line(
    repo: &gix::Repository,
    objects: Objects<'_>,
    tip: gix::ObjectId,
    began: &[Began],
) -> Result<Vec<Oid>, VerifyError> {
    let mut longest: Option<Vec<Oid>> = None;
    for began in began {
        let base = match began {
            Began::NotYet => continue,
            Began::BeforeTheFirstCommit => None,
            Began::At(base) => Some(base).filter(|b| b.hash() == objects.0.hash()),
        };
        // A base that is not in this clone leaves nothing out.
        let base = base.and_then(|b| gix::ObjectId::try_from(b.as_bytes()).ok());
        let hidden: Vec<_> = base.filter(|b| repo.find_commit(*b).is_ok()).into_iter().collect();
        let since = first_parents(repo, objects, tip, &hidden)?;
        if longest.as_ref().is_none_or(|l| l.len() < since.len()) {
            longest = Some(since);
        }
    }
    longest.map_or_else(|| Ok(vec![plain(tip)?]), Ok)
}

fn first_parents(
    repo: &gix::Repository,
    objects: Objects<'_>,
    tip: gix::ObjectId,
    hidden: &[gix::ObjectId],
) -> Result<Vec<Oid>, VerifyError> {
    let visible: HashSet<Oid> = walk(repo, &[tip], hidden)?.into_iter().collect();
    let mut line = Vec::new();
    let mut next = Some(plain(tip)?);
    while let Some(id) = next.filter(|id| visible.contains(id)) {
        next = objects.commit(&id)?.parents.first().copied();
        line.push(id);
    }
    Ok(line)
}

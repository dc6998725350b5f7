//! Random worktrees: whatever is listed, the tree is the one git itself would add.
//!
//! Contract: for each drawn subset of the paths of a drawn worktree git says, on an index of its own that
//! starts at the parent, what adding exactly these paths makes; the candidate's tree has the same id. The one
//! exception is a path that would push unlisted ones out of the tree (decisions 17): that is refused, and only
//! that. Every object the candidate names but its parent lacks is handed back.
//!
//! `AGENTPROTO_FLOOR=long` draws 20,000 trees; `AGENTPROTO_SEED` draws others.

mod filter;
mod theirs;
mod world;

use super::{CandidateError, FixedTree};
use crate::{
    code::Code,
    domain::{
        oid::{HashKind, Oid},
        path::RepoPath,
    },
    store::{paths, sweep},
    sys::fault::disk::Chance,
};
use std::collections::BTreeMap;
use theirs::Theirs;
use world::World;

/// Subsets drawn from each worktree.
const SUBSETS: usize = 12;
/// Trees to compare in each of the two hashes.
const SHORT: usize = 252;
const LONG: usize = 10_000;

/// What was gone through and found.
#[derive(Default)]
struct Tally {
    trees: usize,
    paths: usize,
    by_answer: BTreeMap<&'static str, usize>,
    by_mark: BTreeMap<&'static str, usize>,
    differences: Vec<String>,
}

#[test]
fn over_the_zoo_the_tree_is_the_one_git_add_makes_sha1() {
    compare(HashKind::Sha1, "sha1", 11);
}

#[test]
fn over_the_zoo_the_tree_is_the_one_git_add_makes_sha256() {
    compare(HashKind::Sha256, "sha256", 23);
}

fn compare(hash: HashKind, name: &'static str, salt: u64) {
    let own = format!("over_the_zoo_the_tree_is_the_one_git_add_makes_{name}");
    if filter::serve_if_asked() {
        return;
    }
    let here = module_path!().split_once("::").map_or("", |(_, path)| path);
    let program = filter::command(&format!("{here}::{own}"));
    let most = if sweep::is_long() { LONG } else { SHORT };
    let mut tally = Tally::default();
    let mut state = 0;
    while tally.trees < most {
        let seed = sweep::seed().wrapping_mul(1_000_003).wrapping_add(salt + state * 97);
        one_world(hash, &program, seed, &mut tally);
        state += 1;
    }
    println!(
        "zoo {name}: seed {}, {state} worktrees, {} trees, {} listed paths, {} differences\n  {:?}\n  {:?}",
        sweep::seed(),
        tally.trees,
        tally.paths,
        tally.differences.len(),
        tally.by_answer,
        tally.by_mark,
    );
    assert_eq!(tally.differences.len(), 0, "{}", tally.differences.join("\n"));
    for answer in ["same", "conflict", "unchanged", "no such path", "outside the sparse checkout"] {
        assert!(tally.by_answer.contains_key(answer), "no case ended with '{answer}'");
    }
    for mark in world::MARKS {
        assert!(tally.by_mark.contains_key(mark), "no listed path was '{mark}'");
    }
}

/// Draws a worktree and compares subsets of its paths.
fn one_world(hash: HashKind, filter: &str, seed: u64, tally: &mut Tally) {
    let mut chance = Chance::new(seed);
    let world = World::draw(hash, filter, &mut chance);
    let theirs = Theirs::prepare(&world);
    let mut trees = Vec::new();
    for subset in 0..SUBSETS {
        let listed = world.subset(subset, &mut chance);
        tally.trees += 1;
        tally.paths += listed.len();
        for path in &listed {
            for mark in world.marks(path) {
                *tally.by_mark.entry(mark).or_default() += 1;
            }
        }
        let paths: Vec<RepoPath> = listed.iter().map(|p| RepoPath::new(p).unwrap()).collect();
        match judge(&world, &theirs, &paths) {
            Ok((answer, tree)) => {
                *tally.by_answer.entry(answer).or_default() += 1;
                trees.extend(tree);
            }
            Err(why) => {
                let at = format!("world {seed}, subset {subset}, {paths:?}");
                tally.differences.push(format!("{at}\n    {}\n    {why}", world.told));
            }
        }
    }
    // git's own run keeps its objects elsewhere, so one that was not handed back is missing here.
    world.repo.complete(&trees);
}

/// How a subset ended, in a word, and the tree it made; or what differs from git.
fn judge(
    world: &World,
    theirs: &Theirs<'_>,
    listed: &[RepoPath],
) -> Result<(&'static str, Option<Oid>), String> {
    let problems = paths::check(&world.repo.gix(), listed, paths::Allow::default())
        .map_err(|e| e.to_string())?;
    if let Some(problem) = problems.first() {
        let skipped = world.is_skipped(&problem.path) && !world.is_on_disk(&problem.path);
        let expected = problem.code == Code::PathOutsideSparse && skipped;
        let answer = ("outside the sparse checkout", None);
        return if expected { Ok(answer) } else { Err(format!("refused: {problem}")) };
    }
    let ours = world.repo.fix(listed);
    let unknown = listed.iter().find(|p| !world.is_known(p.as_bytes()));
    if let Some(unknown) = unknown {
        return match ours {
            Err(CandidateError::NoSuchPath(path)) if !world.is_known(path.as_bytes()) => {
                Ok(("no such path", None))
            }
            other => Err(format!("{unknown} is not there: {other:?}")),
        };
    }
    let (tree, changed) = theirs.add(listed);
    let unlisted = changed.iter().any(|path| !listed.iter().any(|l| l.as_bytes() == path));
    match ours {
        Err(CandidateError::Conflict { .. }) if unlisted => Ok(("conflict", None)),
        Ok(ours) if ours.tree == tree => {
            world.repo.store(&ours.objects);
            let answer = if changed.is_empty() { "unchanged" } else { "same" };
            if ours.changes.len() == changed.len() {
                Ok((answer, Some(tree)))
            } else {
                Err(format!("{} changes instead of {changed:?}", ours.changes.len()))
            }
        }
        Ok(ours) => Err(format!("{}: {}", ours.tree, theirs.difference(&ours, tree))),
        Err(error) => Err(format!("ended with {}: {error}", error.code())),
    }
}

//! The judge: what plain git and the tool say of a repository after it was hurt.
//!
//! Contract: recovery is the tool's own `fsck`; everything else is asked of git. A problem is a sentence; no problem
//! means that every acknowledged event is in the chain once, that the chain has no gap and no repeat, that git finds
//! nothing wrong, that nothing of dead processes lies about, and that the next call works.

use crate::{
    lab::{Repo, field},
    scribe::Outcome,
};
use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

/// One event that somebody was told is durable.
#[derive(Clone, Debug)]
pub(crate) struct Ack {
    /// Its `Actor` trailer, unless only its id was told.
    pub(crate) actor: Option<String>,
    /// Its journal commit, unless only its actor is known.
    pub(crate) id: Option<String>,
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) events: u64,
    pub(crate) acked: u64,
    pub(crate) problems: Vec<String>,
}

/// The acknowledgements in a file or in all files of a directory, and what was told beside them. A line without its
/// end was being written when its writer died: nobody has read it.
pub(crate) fn acks(path: &Path) -> Outcome<(Vec<Ack>, Vec<String>)> {
    let (mut acks, mut told) = (Vec::new(), Vec::new());
    for file in files_at(path)? {
        let text = fs::read_to_string(&file)?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            match line.strip_prefix("! ") {
                Some(said) => told.push(said.to_owned()),
                None => acks.push(ack(line)?),
            }
        }
    }
    Ok((acks, told))
}

fn ack(line: &str) -> Outcome<Ack> {
    let (actor, id) = line.split_once(' ').ok_or_else(|| format!("no acknowledgement: {line}"))?;
    let said = |text: &str| Some(text.to_owned()).filter(|t| t != "-");
    Ok(Ack { actor: said(actor), id: said(id) })
}

fn files_at(path: &Path) -> Outcome<Vec<PathBuf>> {
    if path.is_dir() {
        return fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect();
    }
    Ok(if path.exists() { vec![path.to_owned()] } else { vec![] })
}

/// Recovers the repository and judges all of it.
pub(crate) fn judge(repo: &Repo<'_>, acks: &[Ack]) -> Outcome<Verdict> {
    let mut verdict = judge_but_leftovers(repo, acks)?;
    verdict.problems.extend(leftovers(repo)?);
    Ok(verdict)
}

/// The same after git's cleaners were let loose on each other: a `prune` takes the temporary files of a running
/// `repack`, which then fails and leaves the rest in `objects`, without any help of the tool's. Ours never begin there.
pub(crate) fn judge_beside_cleaners(repo: &Repo<'_>, acks: &[Ack]) -> Outcome<Verdict> {
    let mut verdict = judge_but_leftovers(repo, acks)?;
    let objects = repo.git_dir().join("objects");
    let ours = left_in(repo)?.into_iter().filter(|path| !path.starts_with(&objects));
    verdict.problems.extend(ours.map(|path| left_behind(&path)));
    Ok(verdict)
}

fn judge_but_leftovers(repo: &Repo<'_>, acks: &[Ack]) -> Outcome<Verdict> {
    let mut verdict = Verdict { acked: acks.len() as u64, ..Verdict::default() };
    let fsck = repo.tool(&["fsck", "--json"])?;
    if fsck.code != 0 {
        verdict.problems.push(format!("recovery is not content: {fsck}"));
    }
    match chain(repo) {
        Ok(chain) => {
            verdict.events = chain.ids.len() as u64;
            verdict.problems.extend(chain.problems.iter().cloned());
            verdict.problems.extend(lost(&chain, acks));
        }
        Err(e) => {
            let all = acks.len();
            verdict.problems.push(format!("lost all {all} acknowledged events, no journal: {e}"));
        }
    }
    let checked =
        repo.git_done(&["fsck", "--strict", "--full", "--no-dangling", "--no-progress"])?;
    if checked.code != 0 || !checked.err.is_empty() {
        verdict.problems.push(format!("git finds fault: {checked}"));
    }
    verdict.problems.extend(next_calls(repo)?);
    Ok(verdict)
}

/// The journal as git shows it.
pub(crate) struct Chain {
    pub(crate) ids: Vec<String>,
    /// Id of the one event with this actor.
    by_actor: HashMap<String, String>,
    problems: Vec<String>,
}

/// Reads the journal of a clone, all its segments, with git alone.
pub(crate) fn chain(repo: &Repo<'_>) -> Outcome<Chain> {
    let refs = repo.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"])?;
    let mut chain = Chain { ids: vec![], by_actor: HashMap::new(), problems: vec![] };
    let writers: HashSet<&str> = refs.lines().filter_map(|r| r.split('/').nth(3)).collect();
    if writers.len() != 1 {
        chain.problems.push(format!("one journal was to be there, not {writers:?}"));
    }
    let (seq, actor) = (trailer("Seq"), trailer("Actor"));
    let format = format!("--format=%H %P,{seq},{actor}");
    for segment in refs.lines() {
        let mut before = String::new();
        let log = repo.git(&["log", "--first-parent", "--reverse", &format, segment])?;
        for line in log.lines() {
            let mut parts = line.splitn(3, ',');
            let (ids, seq, actor) = (parts.next(), parts.next(), parts.next().unwrap_or_default());
            let (id, parents) = ids.and_then(|i| i.split_once(' ')).ok_or("no id")?;
            let expected = (chain.ids.len() + 1).to_string();
            if seq != Some(expected.as_str()) {
                chain.problems.push(format!("gap or repeat: Seq {seq:?}, expected {expected}"));
            }
            if parents != before {
                chain.problems.push(format!("{id} does not follow {before}"));
            }
            before = id.to_owned();
            chain.ids.push(id.to_owned());
            let own = actor.starts_with("torture:");
            if own && chain.by_actor.insert(actor.to_owned(), id.to_owned()).is_some() {
                chain.problems.push(format!("{actor} is there twice"));
            }
        }
    }
    Ok(chain)
}

fn trailer(name: &str) -> String {
    format!("%(trailers:key={name},valueonly,separator=)")
}

/// Acknowledged events that are not in the chain, as one problem.
pub(crate) fn lost(chain: &Chain, acks: &[Ack]) -> Option<String> {
    let ids: HashSet<&str> = chain.ids.iter().map(String::as_str).collect();
    let is_there = |ack: &&Ack| match (&ack.actor, &ack.id) {
        (Some(actor), None) => chain.by_actor.contains_key(actor),
        (Some(actor), Some(id)) => chain.by_actor.get(actor) == Some(id),
        (None, Some(id)) => ids.contains(id.as_str()),
        (None, None) => false,
    };
    let lost: Vec<&Ack> = acks.iter().filter(|ack| !is_there(ack)).collect();
    let first = lost.first()?;
    Some(format!("lost {} of {} acknowledged events, first {first:?}", lost.len(), acks.len()))
}

/// Locks and temporary files, git's or ours, that no living process owns.
pub(crate) fn leftovers(repo: &Repo<'_>) -> Outcome<Vec<String>> {
    Ok(left_in(repo)?.iter().map(|path| left_behind(path)).collect())
}

fn left_behind(path: &Path) -> String {
    format!("left behind: {}", path.display())
}

fn left_in(repo: &Repo<'_>) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    below(&repo.git_dir(), &mut found)?;
    Ok(found)
}

fn below(dir: &Path, found: &mut Vec<PathBuf>) -> Outcome {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let staged = dir.ends_with("agentproto") && name.starts_with("ref.");
        if path.is_dir() {
            below(&path, found)?;
        } else if staged
            || name.ends_with(".lock")
            || name.starts_with("tmp_")
            || name.starts_with(".tmp")
        {
            found.push(path);
        }
    }
    Ok(())
}

/// A ref of the user's and an event of the tool's can be written.
fn next_calls(repo: &Repo<'_>) -> Outcome<Vec<String>> {
    let mut problems = Vec::new();
    for args in [["update-ref", "refs/x/probe", "HEAD"], ["update-ref", "-d", "refs/x/probe"]] {
        let done = repo.git_done(&args)?;
        if done.code != 0 {
            problems.push(format!("git cannot write a ref: {done}"));
        }
    }
    let done = repo.tool(&["session", "report", &repo.session, "command-done", "--json"])?;
    if let Err(e) = field(&done, "cursor") {
        problems.push(format!("the next call fails: {e}"));
    }
    Ok(problems)
}

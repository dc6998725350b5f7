//! Whether what is left of a scenario is what may be left, and whether the work goes on.

use super::{
    Totals,
    scenes::{Job, Said, document, empty_log, open},
};
use crate::{
    domain::digest::sha256,
    store::{GitView, NOTES_GATES, Store, names::AGENT_DIR, testlab::TestRepo},
    sys::files,
};
use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

/// How the scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The process died: what it was answered last, nobody heard.
    Dead,
    /// It was told of an error, or of success.
    Told,
    /// The power was cut.
    Dark,
}

/// What a judge remembers from one state to the next.
#[derive(Default)]
pub(super) struct Judge {
    pub(super) seen: HashSet<String>,
    pub(super) totals: Totals,
    /// For sweeps of which one difference is expected.
    pub(super) one_is_enough: bool,
}

/// What the journal held before the scenario, and the lines of the note.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) labels: Vec<String>,
    pub(super) lines: Vec<String>,
}

impl Before {
    pub(super) fn of(repo: &TestRepo) -> Self {
        let store = open(repo).unwrap();
        Self { labels: labels(&store).unwrap(), lines: lines(&store, repo).unwrap() }
    }
}

/// Labels of all entries, oldest first; says what is wrong with the chain otherwise.
fn labels(store: &Store) -> Result<Vec<String>, String> {
    let tip = store.own_tip().map_err(|e| format!("the tip: {e}"))?;
    let mut next = tip.as_ref().map(|t| t.id);
    let mut found = Vec::new();
    let mut seqs = Vec::new();
    while let Some(id) = next {
        let entry = store.entry(&id).map_err(|e| format!("an entry: {e}"))?;
        let text = String::from_utf8_lossy(&entry.message).into_owned();
        found.push(text.lines().next().unwrap_or_default().to_owned());
        seqs.push(entry.seq);
        next = entry.parent;
    }
    found.reverse();
    seqs.reverse();
    let wanted: Vec<u64> = (1..).take(found.len()).collect();
    if seqs != wanted {
        return Err(format!("numbers {seqs:?} of {found:?}"));
    }
    let Some(tip) = tip else { return Ok(found) };
    let there = store.documents(&tip.tree, "").map_err(|e| format!("the state: {e}"))?;
    let mut wanted: Vec<(String, Vec<u8>)> = found.iter().map(|l| document(l)).collect();
    wanted.sort();
    if there == wanted { Ok(found) } else { Err(format!("the state of {found:?} is not theirs")) }
}

fn lines(store: &Store, repo: &TestRepo) -> Result<Vec<String>, String> {
    let note = store.note(NOTES_GATES, &repo.first()).map_err(|e| format!("the note: {e}"))?;
    let text = String::from_utf8(note.unwrap_or_default()).map_err(|e| e.to_string())?;
    Ok(text.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect())
}

/// Locks and staged files.
fn leftovers(repo: &TestRepo) -> Vec<PathBuf> {
    let git = repo.path().join(".git");
    let mut left = Vec::new();
    let mut dirs = vec![git.join("refs"), git.join("reftable"), git.join(AGENT_DIR)];
    while let Some(dir) = dirs.pop() {
        for name in files::names(&dir).unwrap() {
            let path = dir.join(&name);
            let name = name.to_string_lossy();
            let stray =
                name.starts_with("ref.") || name.starts_with("tmp_") || name.ends_with(".lock");
            left.extend(stray.then(|| path.clone()));
            dirs.extend(Some(path).filter(|p| p.is_dir()));
        }
    }
    left
}

/// Packs without their index: nobody sees them, and the next checkpoint removes them.
fn half_packs(repo: &TestRepo) -> Vec<PathBuf> {
    let packs = repo.path().join(".git/objects/pack");
    let mut left = Vec::new();
    for name in files::names(&packs).unwrap() {
        let path = packs.join(name);
        let other = match path.extension().and_then(|e| e.to_str()) {
            Some("pack") => "idx",
            Some("idx") => "pack",
            Some(_) | None => continue,
        };
        left.extend((!path.with_extension(other).exists()).then_some(path));
    }
    left
}

/// What git sees, by names, sizes and values.
fn digest(store: &Store, repo: &TestRepo) -> String {
    let git = repo.path().join(".git");
    let mut text = String::new();
    // Names of tables tell nothing.
    for name in store.refs.names("refs/").unwrap().iter().filter(|_| repo.is_reftable()) {
        text += &format!("{name} {:?}\n", store.refs.stored(name));
    }
    let mut dirs = vec![git.join("objects"), git.join("refs")];
    while let Some(dir) = dirs.pop() {
        for name in files::names(&dir).unwrap() {
            let path = dir.join(name);
            if path.is_dir() {
                dirs.push(path);
            } else if path.starts_with(git.join("refs")) {
                text += &format!("{:?} {:?}\n", path.file_name(), std::fs::read(&path).unwrap());
            } else {
                text += &format!("{:?} {}\n", path.file_name(), path.metadata().unwrap().len());
            }
        }
    }
    sha256(text.as_bytes())
}

impl Judge {
    pub(super) fn has_enough(&self) -> bool {
        self.one_is_enough && !self.totals.differences.is_empty()
    }

    /// Judges what is left in `repo`; goes on working there.
    pub(super) fn look(
        &mut self,
        repo: &TestRepo,
        before: &Before,
        said: &Said,
        ended: Ended,
        what: &str,
    ) -> Option<usize> {
        let verdict = catch_unwind(AssertUnwindSafe(|| self.judge(repo, before, said, ended)));
        match verdict {
            Ok(Ok(there)) => Some(there),
            Ok(Err(why)) => {
                self.totals.differences.push(format!("{what}: {why}"));
                None
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                self.totals.differences.push(format!("{what}: panic {text}"));
                None
            }
        }
    }

    fn judge(
        &mut self,
        repo: &TestRepo,
        before: &Before,
        said: &Said,
        ended: Ended,
    ) -> Result<usize, String> {
        if let Some(odd) = &said.odd {
            return Err(odd.clone());
        }
        let store = open(repo).map_err(|e| format!("cannot be opened: {e}"))?;
        let found = labels(&store)?;
        let there = fits(&found, &before.labels, said, ended)?;
        note_fits(&lines(&store, repo)?, before, said, ended)?;
        for id in &said.kept {
            store.object(id).map_err(|e| format!("a kept commit: {e}"))?;
        }
        let mut job = Job::new(&store, repo);
        let view = job.append(&["next"], &[]).map_err(|e| format!("the next append: {e:?}"))?;
        if view != GitView::Shown {
            return Err(format!("the next append: {view:?}"));
        }
        for (line, _) in &said.lines {
            job.note(line, || ()).map_err(|e| format!("the next note: {e:?}"))?;
        }
        // What dead packers left goes when somebody packs again.
        let of_packers = |p: &PathBuf| p.iter().any(|n| n == "packing" || n == "merging");
        let left: Vec<_> = leftovers(repo).into_iter().filter(|p| !of_packers(p)).collect();
        whole_or(&left, "after the next append")?;
        self.ask_git(&store, repo, "after the next append")?;
        empty_log(&store).map_err(|e| format!("the next checkpoint: {e}"))?;
        drop(store);
        let store = open(repo).map_err(|e| format!("cannot be opened again: {e}"))?;
        let last = labels(&store)?;
        if last.strip_suffix(&["next".to_owned()]) != Some(&found) {
            return Err(format!("{found:?} became {last:?}"));
        }
        let noted = lines(&store, repo)?;
        let twice = |line: &String| noted.iter().filter(|l| *l == line).count() != 1;
        if said.lines.iter().any(|(line, _)| twice(line)) {
            return Err(format!("in the end the note is {noted:?}"));
        }
        let left: Vec<_> = leftovers(repo).into_iter().chain(half_packs(repo)).collect();
        whole_or(&left, "after the next checkpoint")?;
        self.ask_git(&store, repo, "after the next checkpoint")?;
        Ok(there)
    }

    /// git finds nothing wrong. Asked once for each state that looks the same.
    fn ask_git(&mut self, store: &Store, repo: &TestRepo, when: &str) -> Result<(), String> {
        if !self.seen.insert(digest(store, repo)) {
            return Ok(());
        }
        self.totals.digests += 1;
        let out = repo.command(&["fsck", "--strict", "--full"]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let bad = said.lines().find(|l| !l.contains("dangling") && !l.contains("Checking"));
        match bad {
            None if out.status.success() => Ok(()),
            None | Some(_) => Err(format!("{when}: git fsck: {said}")),
        }
    }
}

fn whole_or(left: &[PathBuf], when: &str) -> Result<(), String> {
    if left.is_empty() { Ok(()) } else { Err(format!("{when}: left over: {left:?}")) }
}

/// How many of the tried batches are there; they must fit what was answered.
fn fits(found: &[String], before: &[String], said: &Said, ended: Ended) -> Result<usize, String> {
    let wrong = |why: &str| format!("{why}: {found:?} after {before:?} and {said:?}");
    let mut rest = found.strip_prefix(before).ok_or_else(|| wrong("old entries are lost"))?;
    let mut there = 0;
    for (batch, acked) in &said.batches {
        match rest.strip_prefix(batch.as_slice()) {
            Some(left) => {
                if ended == Ended::Told && !acked {
                    return Err(wrong("what was refused is there"));
                }
                rest = left;
                there += 1;
            }
            None if *acked => return Err(wrong("what was acknowledged is lost")),
            None => {}
        }
    }
    if rest.is_empty() { Ok(there) } else { Err(wrong("half a batch, or twice")) }
}

/// Notes can be made again from the journal, so a power cut may take one; what stays must be whole.
fn note_fits(found: &[String], before: &Before, said: &Said, ended: Ended) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("{why}: note {found:?} after {before:?} and {said:?}"));
    let count = |line: &str| found.iter().filter(|l| *l == line).count();
    if ended == Ended::Dark {
        return if found.iter().any(|l| count(l) > 1) { wrong("a line twice") } else { Ok(()) };
    }
    if before.lines.iter().any(|line| count(line) != 1) {
        return wrong("an old line is lost");
    }
    for (line, acked) in &said.lines {
        if count(line) > 1 || (*acked && count(line) == 0) {
            return wrong("a line is lost or twice");
        }
    }
    Ok(())
}

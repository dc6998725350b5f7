//! `live/<effect>`: who performs an effect right now, so that nobody else does.
//!
//! Contract: the kernel lock on the file is the truth, the JSON in it says what to kill. Owner and runner
//! share one lock (one open file description), the gate itself never inherits it, so the lock is free
//! exactly when owner and runner are both gone. Whoever takes it then kills first what the dead ones
//! left: the recorded processes, their descendants, and every process started with the run's mark in its
//! environment (a tree whose runner was killed is scattered over init, the mark finds it again).
//!
//! The file is removed by its owner before the lock is released; a record that cannot be read is an
//! error, never "nothing runs". It is not synced: after a power cut nothing runs any more.

use crate::{
    code::Code,
    domain::time::Timestamp,
    limits,
    sys::{
        clock, files,
        process::{self, Delivery, Liveness, ProcessId},
    },
};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    fs::{File, TryLockError},
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How often a condition that has no event is looked at again.
const POLL: Duration = Duration::from_millis(10);
/// Name of the variable that marks the processes of one run.
const MARK: &str = "AGENTPROTO_RUN";

/// What a live file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The process that performs the effect.
    pub owner: ProcessId,
    /// The runner it started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub runner: Option<ProcessId>,
    /// The gate's main process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub main: Option<ProcessId>,
    /// When the owner took the effect.
    pub started_at: Timestamp,
}

/// What whoever had an effect before left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing is known of anybody.
    Nothing,
    /// It was taken, and nothing was started for it.
    NothingStarted,
    /// Something was started, and is gone.
    Started,
}

/// An effect this process performs; dropping it gives the effect back.
#[derive(Debug)]
pub struct Live {
    file: File,
    path: PathBuf,
    record: Record,
    left: Left,
    /// Its file stays for whoever comes next.
    leaves: bool,
}

/// Answer to the wish to perform an effect.
#[derive(Debug)]
pub enum Acquired {
    /// It is ours; nothing of an earlier run is left.
    Mine(Live),
    /// Another process performs it, or its runner is still clearing away.
    Busy {
        /// Who, for people.
        owner: String,
    },
}

/// Answer to the wish to end an effect of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// Nobody performed it; what a dead run had left was killed.
    NotRunning,
    /// Its runner was told and killed its tree, or was killed with it; either way it is gone.
    Ended,
}

/// An effect could not be taken or ended.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The effect's name cannot be a file name.
    #[error("'{0}' is no name of an effect")]
    BadEffect(String),
    /// The file system refused.
    #[error("cannot use {path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The record cannot be understood, so what it left running is unknown.
    #[error("{path} holds no live record: {because}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        because: String,
    },
    /// Processes cannot be looked at or signalled.
    #[error("cannot check the processes of {effect}: {source}")]
    Processes {
        /// Whose.
        effect: String,
        /// Why.
        source: io::Error,
    },
    /// Killed, yet still there.
    #[error("processes of {effect} outlived SIGKILL by {waited_ms} ms: {pids:?}")]
    Survivors {
        /// Whose.
        effect: String,
        /// How long they were given.
        waited_ms: u64,
        /// Which.
        pids: Vec<u32>,
    },
    /// The performer never named a runner that could be asked to end.
    #[error("{effect} still runs {waited_ms} ms after it was to end")]
    StillRunning {
        /// Which effect.
        effect: String,
        /// How long it was given.
        waited_ms: u64,
    },
}

impl LiveError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::BadEffect(_) => Code::Internal,
            Self::File { source, .. } => files::code_of(source),
            Self::Unreadable { .. } => Code::StoreUnusable,
            Self::Processes { .. } | Self::Survivors { .. } | Self::StillRunning { .. } => {
                Code::RunnerFailed
            }
        }
    }
}

/// Takes an effect, or says who has it. Does not wait.
///
/// # Errors
/// The file cannot be used, or what an earlier run left cannot be identified or killed.
#[expect(clippy::disallowed_methods, reason = "a live file is record and lock in one")]
pub fn acquire(agent_dir: &Path, effect: &str) -> Result<Acquired, LiveError> {
    let path = path_of(agent_dir, effect)?;
    let failed = |source| LiveError::File { path: path.clone(), source };
    let broken = |source| LiveError::Processes { effect: effect.to_owned(), source };
    loop {
        let file = create(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Acquired::Busy { owner: describe(&path) }),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        // The last owner may have removed the file between our open and our lock.
        if !is_at(&file, &path).map_err(failed)? {
            continue;
        }
        let before = load(&path)?;
        if let Some(left) = &before {
            kill_leftovers(effect, left)?;
        }
        let left = before.map_or(Left::Nothing, |before| before.left());
        let record = Record {
            owner: process::own().map_err(broken)?,
            runner: None,
            main: None,
            started_at: clock::now(),
        };
        write(&file, &record).map_err(failed)?;
        return Ok(Acquired::Mine(Live { file, path, record, left, leaves: false }));
    }
}

/// Effects whose owner and runner are both known to be gone, sorted. Nothing is locked by the look. What is no record is
/// nobody known to be gone: `fsck` tells of it.
///
/// # Errors
/// The directory cannot be read.
pub fn abandoned(agent_dir: &Path) -> Result<Vec<String>, LiveError> {
    let mut found = Vec::new();
    for name in names(agent_dir)? {
        let Ok(record) = load(&agent_dir.join("live").join(&name)) else { continue };
        let gone = |who: &ProcessId| process::alive(who) == Liveness::Gone;
        // One without a record may have been begun this moment.
        if record.is_some_and(|r| gone(&r.owner) && r.runner.as_ref().is_none_or(gone)) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Effects that have a live file, sorted: performed now, or left by the dead.
///
/// # Errors
/// The directory cannot be read.
pub fn names(agent_dir: &Path) -> Result<Vec<String>, LiveError> {
    let names = files::names(&agent_dir.join("live"));
    let names = names.map_err(|e| LiveError::File { path: e.path, source: e.source })?;
    let mut names: Vec<String> = names.into_iter().filter_map(|n| n.into_string().ok()).collect();
    names.sort();
    Ok(names)
}

/// Kills what a dead run left and removes its file; false when somebody performs it after all. Of an effect that may
/// be due this is for the performer to do: it would take a moment's hold of ours for a performance.
///
/// # Errors
/// As [`acquire`].
pub fn clear_abandoned(agent_dir: &Path, effect: &str) -> Result<bool, LiveError> {
    match acquire(agent_dir, effect)? {
        Acquired::Mine(live) => {
            drop(live);
            Ok(true)
        }
        Acquired::Busy { .. } => Ok(false),
    }
}

/// Ends an effect that another process performs and waits until its runner is gone. A runner that has not
/// obeyed after [`limits::CANCEL_WAIT_MS`] is killed with everything below it: a gate can stop its runner.
/// Not to be called with a lock the performer needs to finish.
///
/// # Errors
/// It cannot be identified or killed, or no runner showed up that could be.
pub fn request_cancel(agent_dir: &Path, effect: &str) -> Result<Cancelled, LiveError> {
    cancel_within(agent_dir, effect, limits::CANCEL_WAIT_MS)
}

fn cancel_within(agent_dir: &Path, effect: &str, waited_ms: u64) -> Result<Cancelled, LiveError> {
    let path = path_of(agent_dir, effect)?;
    let end = Instant::now() + Duration::from_millis(waited_ms);
    let mut told: Option<ProcessId> = None;
    loop {
        if let Some(runner) = &told
            && process::alive(runner) == Liveness::Gone
        {
            return Ok(Cancelled::Ended);
        }
        if told.is_none() {
            match acquire(agent_dir, effect)? {
                Acquired::Mine(live) => {
                    drop(live);
                    return Ok(Cancelled::NotRunning);
                }
                Acquired::Busy { .. } => told = tell_runner(&path, effect)?,
            }
        }
        if Instant::now() >= end {
            let Some(runner) = told else {
                return Err(LiveError::StillRunning { effect: effect.to_owned(), waited_ms });
            };
            kill_run(&path, effect, runner)?;
            return Ok(Cancelled::Ended);
        }
        std::thread::sleep(POLL);
    }
}

/// Ends one runner as [`request_cancel`] does, and waits until it is gone. The performer may have started another one by
/// then, which is left alone.
///
/// # Errors
/// It cannot be identified, or outlives SIGKILL.
pub fn end_runner(agent_dir: &Path, effect: &str, runner: &ProcessId) -> Result<(), LiveError> {
    let path = path_of(agent_dir, effect)?;
    let broken = |source| LiveError::Processes { effect: effect.to_owned(), source };
    process::send(runner, Signal::TERM).map_err(broken)?;
    process::send(runner, Signal::CONT).map_err(broken)?;
    let end = Instant::now() + Duration::from_millis(limits::CANCEL_WAIT_MS);
    while process::alive(runner) != Liveness::Gone {
        if Instant::now() >= end {
            return kill_run(&path, effect, runner.clone());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Kills every process that was started with this variable (`NAME=value`), and returns when none is left.
///
/// # Errors
/// Processes cannot be looked at, or outlive SIGKILL.
pub fn end_started_with(effect: &str, entry: &str) -> Result<(), LiveError> {
    let broken = |source| LiveError::Processes { effect: effect.to_owned(), source };
    let end = Instant::now() + Duration::from_millis(limits::TREE_KILL_MS);
    loop {
        let mut left = process::started_with(entry.as_bytes()).map_err(broken)?;
        left.retain(|process| process.pid != std::process::id());
        if left.is_empty() {
            return Ok(());
        }
        for process in &left {
            process::send(process, Signal::KILL).map_err(broken)?;
        }
        if Instant::now() >= end {
            return Err(LiveError::Survivors {
                effect: effect.to_owned(),
                waited_ms: limits::TREE_KILL_MS,
                pids: left.iter().map(|p| p.pid).collect(),
            });
        }
        std::thread::sleep(POLL);
    }
}

impl Record {
    /// What it tells of whoever wrote it. The runner is written down before it starts anything.
    fn left(&self) -> Left {
        if self.runner.is_none() && self.main.is_none() {
            Left::NothingStarted
        } else {
            Left::Started
        }
    }
}

/// What the live file of an effect says, if it can be read: performed now, or left by the dead.
#[must_use]
pub fn record(agent_dir: &Path, effect: &str) -> Option<Record> {
    load(&path_of(agent_dir, effect).ok()?).ok()?
}

/// True while a process performs an effect. Nothing is taken by the look.
///
/// # Errors
/// The file cannot be looked at.
pub fn is_held(agent_dir: &Path, effect: &str) -> Result<bool, LiveError> {
    let path = path_of(agent_dir, effect)?;
    let failed = |source| LiveError::File { path: path.clone(), source };
    if !files::is_there(&path).map_err(|e| failed(e.source))? {
        return Ok(false);
    }
    let file = match files::open_regular(&path) {
        Ok(file) => file,
        Err(e) if e.is_missing() => return Ok(false),
        Err(e) => return Err(failed(e.source)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

impl Live {
    /// What whoever had it before left.
    #[must_use]
    pub fn left(&self) -> Left {
        self.left
    }

    /// Says again that it was taken and nothing was started for it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn renew(&self) -> Result<(), LiveError> {
        write(&self.file, &self.record)
            .map_err(|source| LiveError::File { path: self.path.clone(), source })
    }

    /// Gives it back as it was found: taken by somebody who is gone, and nothing was started for it.
    pub fn leave(mut self) {
        self.leaves = true;
    }

    /// The locked file, to be inherited by the runner.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Where the file is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Kills what a failed runner left, and the runner if it still lives: everything a taker would kill.
    ///
    /// # Errors
    /// Processes cannot be looked at, or outlive SIGKILL.
    pub(super) fn clear(&self, runner: Option<ProcessId>) -> Result<(), LiveError> {
        let effect = self.path.file_name().unwrap_or_default().to_string_lossy();
        // The gate may have spoilt the file; what we know ourselves is as good but for the main process,
        // which is found below the runner or by its mark.
        let mut record = load(&self.path).ok().flatten().unwrap_or_else(|| self.record.clone());
        record.owner = self.record.owner.clone();
        record.runner = runner.or(record.runner);
        kill_leftovers(&effect, &record)
    }

    /// What it said when it was taken.
    pub(super) fn record(&self) -> &Record {
        &self.record
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // Removed while locked, and only our own: the folder may have been deleted and made anew. If it
        // fails the record names only processes that are gone.
        if !self.leaves && matches!(is_at(&self.file, &self.path), Ok(true)) {
            let _ = files::remove_optional(&self.path);
        }
    }
}

/// Replaces the record in an open live file.
///
/// # Errors
/// The file cannot be written.
#[expect(clippy::disallowed_methods, reason = "a live file is written in place, by its owner")]
pub(super) fn write(file: &File, record: &Record) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(record)?;
    bytes.push(b'\n');
    // Records only grow while a run starts: no reader sees a new beginning with an old end.
    file.write_all_at(&bytes, 0)?;
    file.set_len(u64::try_from(bytes.len()).map_err(io::Error::other)?)
}

/// The variable every process of this runner's tree is started with.
pub(super) fn mark(runner: &ProcessId) -> (&'static str, String) {
    (MARK, format!("{}-{}-{}", runner.boot, runner.pid, runner.start))
}

fn path_of(agent_dir: &Path, effect: &str) -> Result<PathBuf, LiveError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    if effect.is_empty() || effect.starts_with('.') || !effect.bytes().all(plain) {
        return Err(LiveError::BadEffect(effect.to_owned()));
    }
    Ok(agent_dir.join("live").join(effect))
}

/// A live file is record and lock in one.
fn create(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        files::make_private_dirs(dir).map_err(|e| e.source)?;
    }
    files::open_record(path)
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    let there = files::look_through(path).map_err(|e| e.source)?;
    Ok(there.is_some_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())))
}

/// The record; `None` when the owner died before it wrote one, that is before it started anything.
fn load(path: &Path) -> Result<Option<Record>, LiveError> {
    let bytes = match files::read_own(path, limits::SMALL_FILE_BYTES) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(e) => return Err(LiveError::File { path: path.to_owned(), source: e.source }),
    };
    // A power cut may leave zeros where the record was; nothing runs after one.
    if bytes.iter().all(|b| *b == 0) {
        return Ok(None);
    }
    let unreadable = |e: serde_json::Error| LiveError::Unreadable {
        path: path.to_owned(),
        because: e.to_string(),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(unreadable)
}

fn describe(path: &Path) -> String {
    match load(path) {
        Ok(Some(record)) => {
            format!("process {} since {}", record.owner.pid, record.started_at)
        }
        Ok(None) => "a process that has just begun".to_owned(),
        Err(error) => format!("an unknown process ({error})"),
    }
}

/// Asks the recorded runner to end; `None` when there is none yet.
fn tell_runner(path: &Path, effect: &str) -> Result<Option<ProcessId>, LiveError> {
    // Read without the lock, so a half-written record is possible: the caller looks again.
    let Ok(Some(Record { runner: Some(runner), .. })) = load(path) else { return Ok(None) };
    let told = process::send(&runner, Signal::TERM);
    // A stopped process takes the request when it goes on. One that is stopped again and again is killed.
    match told.and_then(|_| process::send(&runner, Signal::CONT)) {
        Ok(Delivery::Sent) => Ok(Some(runner)),
        // The owner is between two runs or about to finish.
        Ok(Delivery::Gone) => Ok(None),
        Err(source) => Err(LiveError::Processes { effect: effect.to_owned(), source }),
    }
}

/// Kills a runner that does not obey, with all that was started under it.
fn kill_run(path: &Path, effect: &str, runner: ProcessId) -> Result<(), LiveError> {
    let main = load(path).ok().flatten().and_then(|record| record.main);
    let owner = runner.clone();
    let started_at = clock::now();
    kill_leftovers(effect, &Record { owner, runner: Some(runner), main, started_at })
}

fn kill_leftovers(effect: &str, record: &Record) -> Result<(), LiveError> {
    let broken = |source| LiveError::Processes { effect: effect.to_owned(), source };
    if process::boot_id().map_err(broken)? != record.owner.boot {
        return Ok(());
    }
    let end = Instant::now() + Duration::from_millis(limits::TREE_KILL_MS);
    let mut left = HashSet::new();
    loop {
        left = leftovers(record, left).map_err(broken)?;
        if left.is_empty() {
            return Ok(());
        }
        for process in &left {
            process::send(process, Signal::KILL).map_err(broken)?;
        }
        if Instant::now() >= end {
            return Err(LiveError::Survivors {
                effect: effect.to_owned(),
                waited_ms: limits::TREE_KILL_MS,
                pids: left.iter().map(|p| p.pid).collect(),
            });
        }
        std::thread::sleep(POLL);
    }
}

/// What still runs of a run whose owner is dead. Those `seen` before are asked about by name: once their root
/// is gone no search leads to them, though the kernel may not have got round to ending them.
fn leftovers(record: &Record, seen: HashSet<ProcessId>) -> io::Result<HashSet<ProcessId>> {
    let mut left = HashSet::new();
    for root in seen.into_iter().chain(record.runner.clone()).chain(record.main.clone()) {
        match process::alive(&root) {
            Liveness::Alive => {
                left.extend(process::descendants(root.pid)?);
                left.insert(root);
            }
            Liveness::Gone => {}
            Liveness::Unknown => return Err(io::Error::other("process cannot be identified")),
        }
    }
    if let Some(runner) = &record.runner {
        let (name, value) = mark(runner);
        left.extend(process::started_with(format!("{name}={value}").as_bytes())?);
    }
    let me = std::process::id();
    left.retain(|process| process.pid != me);
    Ok(left)
}

#[cfg(test)]
mod tests;

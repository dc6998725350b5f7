//! Changing refs by the user's git: one `git update-ref --stdin` that is talked to as long as the store
//! is open.
//!
//! Contract: started at the first change, bound to the common git directory. Each change is a transaction
//! of its own that states the value it expects. Our own git never leaves a lock behind (`git::RefTalk`), so
//! whatever lock is met is somebody else's: it is waited for up to the deadline, then named.

use super::RefReader;
use crate::{
    domain::oid::Oid,
    limits::REF_RETRY_MS,
    store::{
        Location, StoreError, Worktree, failpoint,
        git::{Git, GitError, RefTalk},
    },
    sys::{env::Env, files},
};
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Waiting is done here, where the deadline is known; reflogs are for what people do.
const SETTINGS: [&str; 4] = [
    "core.logAllRefUpdates=false",
    "core.packedRefsTimeout=0",
    "core.filesRefLockTimeout=0",
    "reftable.lockTimeout=0",
];

/// One change of one ref.
pub(super) struct Change<'a> {
    pub(super) name: &'a str,
    /// What it must hold; none = it must not be there.
    pub(super) old: Option<Oid>,
    /// Where it goes; none = it is deleted.
    pub(super) new: Option<Oid>,
}

impl Change<'_> {
    fn asked(&self) -> String {
        let Self { name, old, new } = self;
        let nothing = || "0".repeat(new.or(*old).map_or(0, |id| id.as_bytes().len() * 2));
        let old = old.map_or_else(nothing, |id| id.to_string());
        match new {
            Some(new) => format!("update {name} {new} {old}\n"),
            None => format!("delete {name} {old}\n"),
        }
    }
}

/// What became of one try.
enum Tried {
    Done,
    /// git did not promise it, and says why.
    Refused(GitError),
    /// git promised it and did not say that it did it.
    InDoubt(GitError),
}

/// Performs changes of refs, one at a time.
pub(super) struct Transactions {
    env: Env,
    near: Worktree,
    common: Worktree,
    running: Mutex<Option<RefTalk>>,
}

impl Transactions {
    pub(super) fn new(location: &Location, env: &Env) -> Self {
        let dir = location.common_dir.clone();
        let common = Worktree { id: ".".to_owned(), top: dir.clone(), git_dir: dir };
        let near = location.worktree.clone().unwrap_or_else(|| common.clone());
        Self { env: env.clone(), near, common, running: Mutex::new(None) }
    }

    /// The user's git where the store was opened.
    pub(super) fn nearby(&self) -> Result<Git, StoreError> {
        Ok(Git::new(&self.env, &self.near)?)
    }

    /// Performs a change, waiting up to `wait_ms` for the lock of somebody else.
    ///
    /// # Errors
    /// The ref holds another value, the lock was not to be had, or git fails otherwise.
    pub(super) fn perform(
        &self,
        refs: &RefReader,
        change: &Change<'_>,
        wait_ms: u64,
    ) -> Result<(), StoreError> {
        let end = Instant::now() + Duration::from_millis(wait_ms);
        loop {
            let tried = self.attempt(change)?;
            if matches!(tried, Tried::Done) {
                return Ok(());
            }
            let actual = refs.read_sound(change.name)?;
            let why = match tried {
                Tried::Done => return Ok(()),
                Tried::InDoubt(_) if actual == change.new => return Ok(()),
                Tried::InDoubt(why) | Tried::Refused(why) => why,
            };
            if actual != change.old {
                let name = change.name.to_owned();
                return Err(StoreError::RefMoved { name, expected: change.old, actual });
            }
            let Some(lock) = held(refs, change.name, &why)? else { return Err(why.into()) };
            if Instant::now() >= end {
                return Err(StoreError::RefLocked { path: lock, waited_ms: wait_ms });
            }
            wait_for(&lock, end)?;
        }
    }

    fn attempt(&self, change: &Change<'_>) -> Result<Tried, StoreError> {
        let asked = change.asked();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut promising = None;
        if let Some(mut talk) = running.take() {
            let promised = talk.prepare(&asked)?;
            // One that was ended while nothing was asked of it says nothing.
            promising = (promised || !talk.is_silent()).then_some((talk, promised));
        }
        let (mut talk, promised) = match promising {
            Some(had) => had,
            None => {
                let mut talk = self.start()?;
                let promised = talk.prepare(&asked)?;
                (talk, promised)
            }
        };
        if !promised {
            return Ok(Tried::Refused(talk.broken_off()));
        }
        failpoint::reached("ref locked")?;
        if !talk.commit()? {
            return Ok(Tried::InDoubt(talk.broken_off()));
        }
        *running = Some(talk);
        Ok(Tried::Done)
    }

    #[cfg(test)]
    pub(super) fn end_it(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_mut().expect("a git that runs").end();
    }

    fn start(&self) -> Result<RefTalk, StoreError> {
        // Found as seen from the worktree, so that no program in it is taken for git.
        let git = self.nearby()?.bound_to(&self.common);
        Ok(git.talk_about_refs(&SETTINGS)?)
    }
}

/// The lock somebody held when git refused; none when it was something else.
fn held(refs: &RefReader, name: &str, why: &GitError) -> Result<Option<PathBuf>, StoreError> {
    let locks = refs.locks(name);
    for lock in &locks {
        if files::is_there(lock)? {
            return Ok(Some(lock.clone()));
        }
    }
    // It may be gone by now: git's own words are the witness, in the one language it is started with.
    let said = why.to_string();
    let told = said.contains("cannot lock") || said.contains("Unable to create");
    Ok(locks.into_iter().next().filter(|_| told))
}

/// Waits until the lock is gone, or the end.
fn wait_for(lock: &Path, end: Instant) -> Result<(), StoreError> {
    loop {
        thread::sleep(Duration::from_millis(REF_RETRY_MS));
        if Instant::now() >= end || !files::is_there(lock)? {
            return Ok(());
        }
    }
}

//! Taking the journal lock: threads of one process in line, processes one after the other.
//!
//! Contract: nobody waits beyond one deadline, and nobody is overtaken for ever. Waiting for a kernel lock is
//! polling, so a process that comes back for it at once would have it nearly always: who has found it taken,
//! and who comes from the line of a process that had it just now, goes through `lock.next` first, which one
//! holds while the lock is waited for.

use crate::store::{
    Store,
    error::StoreError,
    group::{Deciding, Group},
    line::Turn,
};
use crate::{
    limits,
    sys::{
        files,
        lock::{KernelLock, LockError},
    },
};
use std::{
    ops::Deref,
    path::Path,
    time::{Duration, Instant},
};

/// The journal lock, and the turn among the threads of this process.
pub(in crate::store) struct Locked<'a> {
    lock: KernelLock,
    _turn: Turn<'a, Group>,
}

impl Deref for Locked<'_> {
    type Target = KernelLock;

    fn deref(&self) -> &KernelLock {
        &self.lock
    }
}

impl Store {
    /// Takes the journal lock; what other threads have in a group is written first.
    pub(in crate::store) fn lock(&self) -> Result<Locked<'_>, StoreError> {
        let until = self.lock_deadline()?;
        let turn = self.turn(until)?;
        let lock = match turn.take() {
            Some(group) => {
                // What is sealed here waits for whoever packs next.
                let (lock, answers, _sealing) = self.close_group(group);
                answers.tell();
                lock
            }
            None => self.kernel_lock(&turn, until)?,
        };
        Ok(Locked { lock, _turn: turn })
    }

    /// When waiting for the lock ends; refused to a thread that would wait for itself.
    pub(in crate::store) fn lock_deadline(&self) -> Result<Instant, StoreError> {
        Deciding::refuse_again(&self.agent)?;
        Ok(Instant::now() + Duration::from_millis(limits::JOURNAL_LOCK_WAIT_MS))
    }

    /// The turn among the threads of this process.
    pub(in crate::store) fn turn(&self, until: Instant) -> Result<Turn<'_, Group>, StoreError> {
        self.line.turn(until).ok_or_else(|| self.held().into())
    }

    /// Takes the kernel lock; makes our directory where it is missing.
    pub(in crate::store) fn kernel_lock(
        &self,
        turn: &Turn<'_, Group>,
        until: Instant,
    ) -> Result<KernelLock, StoreError> {
        self.require_own_directories()?;
        files::make_dirs(&self.agent.join("tmp"))?;
        let path = self.agent.join("lock");
        if !turn.was_waited_for()
            && let Some(lock) = KernelLock::try_acquire(&path)?
        {
            return Ok(lock);
        }
        let _next = self.acquired(&self.agent.join("lock.next"), until)?;
        self.acquired(&path, until)
    }

    fn acquired(&self, path: &Path, until: Instant) -> Result<KernelLock, StoreError> {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = u64::try_from(left).unwrap_or(limits::JOURNAL_LOCK_WAIT_MS);
        KernelLock::acquire(path, left).map_err(|e| match e {
            LockError::Held { .. } => self.held().into(),
            LockError::File(_) => e.into(),
        })
    }

    fn held(&self) -> LockError {
        let waited_ms = limits::JOURNAL_LOCK_WAIT_MS;
        LockError::Held { path: self.agent.join("lock"), waited_ms }
    }
}

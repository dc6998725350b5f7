//! What a waiter has to look at though nothing is recorded.
//!
//! Contract: who performs may die, a branch may move, a line may come into a note, and time passes; none of it is in the
//! journal. A look costs a few calls of the kernel; only when it finds something is the policy performed again.

use crate::{
    domain::{
        policy::{Policy, Status},
        session::Session,
        time::Timestamp,
    },
    engine,
    ledger::Ledger,
    limits,
    runtime::{
        live,
        perform::{self, PerformError, Progress},
        watch::{Stamps, WatchError},
    },
    store::NOTES_ACKS,
    sys::clock,
};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

/// Everything that has to be looked at.
#[derive(Default)]
pub(super) struct Outside {
    /// Effects that others perform: when one is let go, somebody has to see to it.
    held: BTreeSet<String>,
    agent_dir: PathBuf,
    /// The first time at which a policy is over.
    expires: Option<Timestamp>,
    /// Files that show branches and answers.
    files: BTreeSet<PathBuf>,
    stamps: Stamps,
    /// Something is to be tried again.
    again: bool,
    begun: Option<Instant>,
}

impl Outside {
    /// An agent that dies with whoever holds it tells nobody.
    pub(super) fn session(
        &mut self,
        ledger: &Ledger,
        session: &Session,
    ) -> Result<(), PerformError> {
        if engine::is_session_due(session) {
            self.hold(ledger, [engine::agent_key(&session.session_id)])?;
        }
        Ok(())
    }

    /// What may become of a policy unseen, after it was performed so far.
    pub(super) fn policy(
        &mut self,
        ledger: &Ledger,
        policy: &Policy,
        progress: &Progress,
    ) -> Result<(), PerformError> {
        match progress {
            Progress::Settled => {}
            Progress::Held { .. } => self.hold(ledger, perform::live_names(policy))?,
            Progress::Waiting { .. } => self.again = true,
        }
        if let Some(expires) = policy.spec.expires.filter(|_| !policy.status.is_terminal()) {
            self.expires = Some(self.expires.map_or(expires, |earlier| earlier.min(expires)));
        }
        match policy.status {
            // What signs comes back without a word.
            Status::Signing => self.again = true,
            Status::AwaitingAck => {
                let store = ledger.store();
                self.files.extend(store.ref_shows_in(NOTES_ACKS));
                let branch = policy.spec.commit.iter().map(|commit| &commit.branch);
                self.files.extend(branch.flat_map(|name| store.ref_shows_in(name)));
            }
            Status::Watching
            | Status::Queued
            | Status::Gating
            | Status::Nudging
            | Status::Committing
            | Status::Done
            | Status::Blocked
            | Status::Cancelled => {}
        }
        Ok(())
    }

    fn hold(
        &mut self,
        ledger: &Ledger,
        keys: impl IntoIterator<Item = String>,
    ) -> Result<(), PerformError> {
        self.agent_dir = ledger.store().location().agent_dir();
        let mut any = false;
        for key in keys {
            if live::is_held(&self.agent_dir, &key)? {
                self.held.insert(key);
                any = true;
            }
        }
        // Let go since, or not begun yet.
        self.again |= !any;
        Ok(())
    }

    /// To be called when everything was named.
    pub(super) fn begin(&mut self) -> Result<(), PerformError> {
        let files = std::mem::take(&mut self.files);
        self.stamps = Stamps::of(files.into_iter().collect()).map_err(WatchError::from)?;
        self.begun = Some(Instant::now());
        Ok(())
    }

    /// True when something is other than it was, or is to be tried again.
    pub(super) fn calls(&self) -> Result<bool, PerformError> {
        let Some(begun) = self.begun else { return Ok(false) };
        let passed_ms = begun.elapsed().as_millis();
        let due = self.next_look().is_some() && passed_ms >= limits::WAIT_PERFORM_MS.into();
        if due || (self.again && passed_ms >= limits::WAIT_RETRY_MS.into()) {
            return Ok(true);
        }
        if self.expires.is_some_and(|at| at <= clock::now()) {
            return Ok(true);
        }
        for key in &self.held {
            if !live::is_held(&self.agent_dir, key)? {
                return Ok(true);
            }
        }
        Ok(self.stamps.differ().map_err(WatchError::from)?)
    }

    /// When it is to be looked next; `None` when there is nothing to look at.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let in_ms = |ms| Instant::now() + Duration::from_millis(ms);
        let looks = !self.held.is_empty() || !self.stamps.is_empty();
        let expiry = self.expires.map(|at| {
            let left = at.ms().saturating_sub(clock::now().ms()).max(1);
            u64::try_from(left).unwrap_or(1).min(limits::WAIT_PERFORM_MS)
        });
        let retry = self.again.then_some(limits::WAIT_RETRY_MS);
        let outside = looks.then_some(limits::WAIT_OUTSIDE_MS);
        [retry, outside, expiry].into_iter().flatten().min().map(in_ms)
    }
}

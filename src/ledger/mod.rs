//! The one way in: lock, load, decide, append. Synchronous; needs no supervisor.
//!
//! Contract: every change of the journal comes through [`Ledger::record`] or [`Ledger::record_with`]. The
//! engine decides under the store's lock from what the journal says at that instant; each event is stepped
//! again here before it is written, and one that the machine finds illegal is never written. Reading appends nothing.

mod ack;
mod ack_rules;
mod adopt;
mod agents;
mod attach;
mod commit_rules;
mod error;
mod exec;
mod gates;
#[cfg(test)]
mod lab;
mod leftovers;
mod load;
mod problems;
mod query;
mod receipts;
mod record;
mod remedy;
mod retention;
mod review;
mod setup;
mod upkeep;

pub use ack::{AckAsk, AckGiven};
pub use adopt::AdoptAsk;
pub use agents::{LaunchPlace, StartAsk};
pub use attach::{AttachAsk, CommitAsk, GateAsk, GroupAsk, NextAsk, ShellAsk, TurnsAsk};
pub use error::{LedgerError, Problem};
pub use exec::Runnable;
pub use leftovers::Leftover;
pub use query::{Elsewhere, Listed, Meant, Page, Query, Seen};
pub use receipts::Receipt;
pub use record::{Recording, View};
pub use remedy::Remedy;
pub use retention::{NeededBy, Retention};
pub use review::{Changed, LineCounts, Review, SignersSeen};
pub use setup::{
    AllowCommitted, AllowDone, AllowLanded, InitAsk, InitDone, Lacking, RulesAccepted, WorkingFile,
};

use crate::{
    domain::{candidate::Identity, oid::Oid},
    store::{
        Stamp, Store, Worktree, configured, identity, location,
        settings::KnownPath,
        trusted::{Trust, TrustedError},
        worktree_state::{Head, head},
    },
    sys::{clock, env::Env, trace},
};

/// An open repository, seen through its journal.
pub struct Ledger {
    store: Store,
    env: Env,
    actor: String,
}

impl Ledger {
    /// Opens the repository that `env` stands in. Nothing is written but a due recovery.
    ///
    /// # Errors
    /// Not in a repository, or in one this version refuses by name.
    pub fn open(env: &Env, actor: &str) -> Result<Self, LedgerError> {
        let _step = trace::step(|| "open the repository");
        let location = location::discover(env)?;
        let store = Store::open(location, env)?;
        let ledger = Self { store, env: env.clone(), actor: actor.to_owned() };
        ledger.settle_dead_allows();
        Ok(ledger)
    }

    /// The same as it is, whatever is wrong with it: for those who look into that.
    ///
    /// # Errors
    /// As [`Ledger::open`], but nothing in the journal is an error.
    pub fn open_as_it_is(env: &Env, actor: &str) -> Result<Self, LedgerError> {
        let store = Store::open_as_it_is(location::discover(env)?, env)?;
        Ok(Self { store, env: env.clone(), actor: actor.to_owned() })
    }

    /// The same for who promised to change nothing.
    ///
    /// # Errors
    /// As [`Ledger::open_as_it_is`].
    pub fn open_to_look(env: &Env, actor: &str) -> Result<Self, LedgerError> {
        let Self { store, env, actor } = Self::open_as_it_is(env, actor)?;
        Ok(Self { store: store.looking_only(), env, actor })
    }

    /// The store below.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The environment it was opened in.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The repository of the current worktree (or the bare one) with the person's configuration.
    ///
    /// # Errors
    /// It cannot be opened any more.
    pub fn repo(&self) -> Result<gix::Repository, LedgerError> {
        let location = self.store.location();
        match &location.worktree {
            Some(worktree) => self.repo_in(worktree),
            None => Ok(configured::open(&self.env, &location.common_dir)?),
        }
    }

    /// The repository seen from one of its worktrees.
    ///
    /// # Errors
    /// It cannot be opened any more.
    pub fn repo_in(&self, worktree: &Worktree) -> Result<gix::Repository, LedgerError> {
        Ok(configured::open_worktree(&self.env, worktree)?)
    }

    /// The worktree with this id; `None` when it is gone.
    ///
    /// # Errors
    /// git's record of worktrees cannot be read.
    pub fn worktree(&self, id: &str) -> Result<Option<Worktree>, LedgerError> {
        Ok(self.store.location().worktrees()?.into_iter().find(|w| w.id == id))
    }

    /// Trusted ref, repository id and user settings in force now. Branches that sessions work on are never
    /// chosen as trusted.
    ///
    /// # Errors
    /// There is none, or it cannot be told.
    pub fn trust(&self) -> Result<Trust, LedgerError> {
        let repo = self.repo()?;
        // A path that a person introduced keeps its trusted ref: which branches sessions use does not matter.
        let known = KnownPath::load(&self.env, &self.store.location().common_dir)
            .map_err(TrustedError::from)?;
        let branches = if known.is_some() { vec![] } else { self.session_branches()? };
        Ok(Trust::load(&repo, &self.env, &branches)?)
    }

    /// Full names of the branches checked out in linked worktrees of living sessions.
    fn session_branches(&self) -> Result<Vec<String>, LedgerError> {
        let open = self.open_state()?;
        let mut branches = Vec::new();
        for worktree in self.store.location().worktrees()? {
            let used = worktree.id != "."
                && open.sessions.values().any(|s| !s.is_exited() && s.worktree == worktree.id);
            if used && let Head::Branch { name, .. } = head(&self.repo_in(&worktree)?)? {
                branches.push(name);
            }
        }
        Ok(branches)
    }

    /// The repository id: from the journal's first commit when there is one, else by the rule of design 3.1.
    ///
    /// # Errors
    /// No commit yet, or the history is not whole.
    pub fn repo_id(&self) -> Result<Oid, LedgerError> {
        Ok(self.trust()?.repo_id)
    }

    /// Who records: the person of git's configuration, `unknown <>` without one (decisions 12).
    ///
    /// # Errors
    /// The configuration cannot be read.
    pub fn stamp(&self) -> Result<Stamp, LedgerError> {
        let repo = self.repo()?;
        let person = identity::identity(&repo).ok();
        let unknown = || ("unknown".to_owned(), String::new());
        let (name, email) = person.map_or_else(unknown, |Identity { author, .. }| {
            (author.name().to_owned(), author.email().to_owned())
        });
        Ok(Stamp { name, email, at: clock::now() })
    }
}

//! `verify`: which commits of a range are governed, and whether the journals hold together.
//!
//! Contract: exit 0 only if every commit is governed and every journal is sound; 2 if anything cannot be told;
//! else 1. Signers are read once and every signature is checked in this process.

pub use super::judge::Verified;
use super::{
    chain::Chain,
    commits::{self, Objects},
    judge::{Bench, Outcome},
    replay,
};
use crate::{
    code::{Code, exit},
    domain::{ids::WriterId, oid::Oid},
    ledger::{Ledger, LedgerError},
    sign::choose::SignersInForce,
    store::{StoreError, revision::RevisionError, trusted::Trust},
};

/// What is to be verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyAsk {
    /// A range, or a branch or commit: its first parents since governance began. The current branch when absent.
    pub revisions: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The commits, newest first.
    pub commits: Vec<Verified>,
    /// The journals of this clone, its own first.
    pub journals: Vec<JournalReport>,
    /// Everything is governed.
    pub ok: bool,
    /// The exit code.
    pub exit: u8,
    /// How far the answer can be trusted, as a sentence.
    pub completeness: String,
}

/// How one journal holds together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalReport {
    /// Whose.
    pub writer: WriterId,
    /// Its last entry; none when it cannot be told.
    pub tip: Option<Oid>,
    /// Number of the first event that is here; 1 unless older segments are not kept any more.
    pub from: u64,
    /// Number of the last event that holds; 0 when none does.
    pub events: u64,
    /// All of it holds.
    pub ok: bool,
    /// The entry at which it stops to hold, if that can be told, and why.
    pub problem: Option<(Option<Oid>, String)>,
}

/// Verification could not be done at all.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The name leads to no commit.
    #[error("no such revision '{text}': {why}")]
    NoSuchRevision {
        /// What was asked for.
        text: String,
        /// What the library says.
        why: String,
    },
    /// What the name leads to is no file.
    #[error(transparent)]
    Unfit(RevisionError),
    /// The current branch has no commit.
    #[error("the current branch has no commit yet")]
    NoCommits,
    /// A list of a shallow clone's oldest commits hides parents that are here.
    #[error("the file 'shallow' of the repository ends the history at {0}, whose parents are here")]
    Cut(Oid),
    /// The history cannot be followed.
    #[error("the history cannot be followed: {0}")]
    Walk(String),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl VerifyError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::NoSuchRevision { .. } => Code::NoSuchRevision,
            Self::Unfit(_) => Code::NotRegular,
            Self::NoCommits => Code::NoCommitsYet,
            Self::Cut(_) => Code::HistoryCut,
            Self::Walk(_) => Code::StoreUnusable,
            Self::Store(e) => e.code(),
            Self::Ledger(e) => e.code(),
        }
    }
}

/// Verifies commits and journals. Writes nothing.
///
/// # Errors
/// The revision is not known, or the repository cannot be read.
pub fn verify(ledger: &Ledger, ask: &VerifyAsk) -> Result<Report, VerifyError> {
    let store = ledger.store();
    let objects = Objects(store);
    let repo = store.repo()?;
    commits::require_uncut(&repo, objects)?;
    let meant = commits::parse(store, &repo, ask.revisions.as_deref())?;
    let trust = ledger.trust().map_err(|e| e.to_string());
    let chains = read_journals(ledger, trust.as_ref().ok())?;
    let began: Vec<_> = chains.iter().map(|c| c.began).collect();
    let mut list = commits::list(&repo, objects, &meant, &began)?;
    // Older than governance: who names a commit asks about it all the same.
    if let commits::Meant::Line(tip) = meant
        && list.is_empty()
        && ask.revisions.is_some()
    {
        list.push(commits::plain(tip)?);
    }
    let bench = Bench::new(objects, &chains, signers(ledger, trust));
    let commits: Vec<Verified> = list.into_iter().map(|sha| bench.judge(sha)).collect();
    Ok(report(commits, &chains))
}

/// Reads every journal that is here. One of another repository proves nothing in this one.
pub(super) fn read_journals(
    ledger: &Ledger,
    trust: Option<&Trust>,
) -> Result<Vec<Chain>, StoreError> {
    let objects = Objects(ledger.store());
    let ours = trust.map(|t| t.repo_id.to_string());
    let journals = ledger.store().journals()?;
    let read = |tip| {
        let mut chain = replay::read(objects, tip);
        chain.require_repo(ours.as_deref());
        chain
    };
    let unreadable = journals.unreadable.iter().map(Chain::unreadable);
    let mut chains: Vec<Chain> = journals.tips.iter().map(read).chain(unreadable).collect();
    let own = ledger.store().writer()?;
    let end = ledger.store().end()?;
    if let Some(own) = chains.iter_mut().find(|c| Some(&c.writer) == own.as_ref()) {
        own.require_end(&end);
    }
    chains.extend(ledger.store().gone_journals()?.iter().map(Chain::gone));
    Ok(chains)
}

/// The signers in force now; a sentence when it cannot be told who may sign.
fn signers(ledger: &Ledger, trust: Result<Trust, String>) -> Result<SignersInForce, String> {
    let trust = trust?;
    let repo = ledger.repo().map_err(|e| e.to_string())?;
    SignersInForce::load(&repo, ledger.env(), &trust).map_err(|e| e.to_string())
}

pub(super) fn journal_report(chain: &Chain) -> JournalReport {
    JournalReport {
        writer: chain.writer.clone(),
        tip: chain.tip,
        from: chain.from,
        events: chain.events,
        ok: chain.broken.is_none() && chain.untold.is_none(),
        problem: chain.broken.as_ref().or(chain.untold.as_ref()).map(|b| (b.at, b.why.clone())),
    }
}

fn report(commits: Vec<Verified>, chains: &[Chain]) -> Report {
    let journals: Vec<JournalReport> = chains.iter().map(journal_report).collect();
    let sound = journals.iter().all(|j| j.ok);
    let exit =
        if journals.is_empty() || !sound || commits.iter().any(|c| c.outcome == Outcome::Unknown) {
            exit::BROKEN
        } else if commits.iter().all(|c| c.outcome == Outcome::Governed) {
            exit::DONE
        } else {
            exit::NO
        };
    let whole = journals.iter().all(|j| j.from == 1);
    let completeness = match (journals.is_empty(), sound, whole) {
        (true, _, _) => "no journal here, nothing can be told",
        (false, true, true) => "internally consistent, completeness not provable",
        (false, true, false) => {
            "what is kept is internally consistent, nothing is provable of dropped segments"
        }
        (false, false, _) => "not consistent, see the journals",
    };
    Report {
        commits,
        journals,
        ok: exit == exit::DONE,
        exit,
        completeness: completeness.to_owned(),
    }
}

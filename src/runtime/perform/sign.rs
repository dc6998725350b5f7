//! Having the commit signed that green gates led to, when commits are to be signed here.
//!
//! Contract: what is recorded as the candidate has its signature. Where nobody can be asked it is tried once a call,
//! under a deadline; what fails then waits, for a failure cannot be told from a passphrase that nobody typed. A person
//! finishes it, and so does any performer once an agent holds the key. The words of what signs name places of this machine, so they
//! are said here and recorded nowhere.

use super::{PerformError, Progress, Step, subject::Place};
use crate::{
    code::Code,
    domain::{
        event::Entity,
        ids::PolicyId,
        input::Input,
        policy::{Candidate, Policy, Status, Unsigned},
    },
    engine,
    ledger::{Ledger, LedgerError},
    limits,
    runtime::live::{self, Acquired},
    store::{
        candidate::signing::{Signer, SigningError},
        git::Git,
        identity::identity,
        object::Object,
    },
    sys::spawn::Presence,
};
use std::time::Instant;

/// Recorded when it was not signed.
const WAITS: &str = "what signs commits here did not sign it without a person";

/// Tries to sign what was just made; gives back what came of it.
pub(super) fn fresh(
    place: &Place<'_>,
    signer: &Signer,
    unsigned: &Object,
    attempt: u32,
) -> Result<Object, SigningError> {
    put(place, signer, unsigned, attempt, Presence::Alone)
}

/// What is recorded of a commit that could not be signed, after its reason was said.
pub(super) fn waits(ledger: &Ledger, candidate: Candidate, error: &SigningError) -> Unsigned {
    say(ledger, candidate, error);
    Unsigned { candidate, because: WAITS.to_owned() }
}

fn say(ledger: &Ledger, candidate: Candidate, error: &SigningError) {
    ledger.store().said().add(format!("{} was not signed: {error}", candidate.commit));
}

fn put(
    place: &Place<'_>,
    signer: &Signer,
    unsigned: &Object,
    attempt: u32,
    presence: Presence,
) -> Result<Object, SigningError> {
    let Place { ledger, policy, worktree, .. } = place;
    let git = Git::new(ledger.env(), worktree)?;
    let location = ledger.store().location();
    let dir = location.agent_dir().join("tmp").join(engine::sign_key(&policy.policy_id, attempt));
    let objects = location.common_dir.join("objects");
    signer.sign(&git, (&dir, &objects), unsigned, presence)
}

/// Tries it without a person, once; with an end, for no longer than until then.
pub(super) fn alone(
    ledger: &Ledger,
    policy: &Policy,
    attempt: u32,
    end: Option<Instant>,
) -> Result<Step, PerformError> {
    let left = end.map(|end| end.saturating_duration_since(Instant::now()).as_millis());
    let presence = left.map_or(Presence::Alone, |ms| {
        Presence::Hurried(u64::try_from(ms).unwrap_or(limits::SIGN_ALONE_MS))
    });
    match attend(ledger, policy, attempt, presence)? {
        Attended::Signed => Ok(Step::Again),
        Attended::Failed(candidate, error) => {
            say(ledger, candidate, &error);
            Ok(Step::Done)
        }
        Attended::Gone => Ok(Step::Again),
        Attended::Busy(owner) => Ok(Step::Stop(Progress::Held { owner })),
    }
}

/// Has a person at the terminal sign what waits for it.
///
/// # Errors
/// It was not signed, somebody else is at it, or the store failed.
pub fn with_person(ledger: &Ledger, id: &PolicyId) -> Result<(), PerformError> {
    let policy = ledger.require_policy(id)?;
    let refused = |code, because: String| {
        PerformError::Ledger(LedgerError::refused(code, id.as_str(), because))
    };
    match attend(ledger, &policy, policy.attempt, Presence::Person)? {
        Attended::Signed | Attended::Gone => Ok(()),
        Attended::Failed(candidate, error) => {
            let because = format!("{} was not signed: {error}", candidate.commit);
            Err(refused(error.code(), because))
        }
        Attended::Busy(owner) => {
            Err(refused(Code::SigningNeedsPerson, format!("{owner} is at it at this moment")))
        }
    }
}

/// What a look after a commit that waits led to.
enum Attended {
    /// It is signed, and recorded.
    Signed,
    /// It waits on.
    Failed(Candidate, SigningError),
    /// Nothing waits any more.
    Gone,
    /// Another process is at it.
    Busy(String),
}

fn attend(
    ledger: &Ledger,
    policy: &Policy,
    attempt: u32,
    presence: Presence,
) -> Result<Attended, PerformError> {
    let key = engine::sign_key(&policy.policy_id, attempt);
    let _live = match live::acquire(&ledger.store().location().agent_dir(), &key)? {
        Acquired::Mine(live) => live,
        Acquired::Busy { owner } => return Ok(Attended::Busy(owner)),
    };
    let policy = ledger.require_policy(&policy.policy_id)?;
    let (Status::Signing, Some(waiting)) = (policy.status, policy.unsigned) else {
        return Ok(Attended::Gone);
    };
    let signed = match Place::find(ledger, &policy)? {
        Ok(place) => ask(&place, waiting, attempt, presence)?,
        Err(trouble) => {
            let why = SigningError::Unusable { key: "worktree", why: trouble.because };
            return Ok(Attended::Failed(waiting, why));
        }
    };
    let object = match signed {
        Ok(object) => object,
        Err(error) => return Ok(Attended::Failed(waiting, error)),
    };
    let candidate = Candidate { commit: object.id, ..waiting };
    ledger.store().write_kept_pack(std::slice::from_ref(&object))?;
    let id = policy.policy_id.clone();
    let recorded = ledger.record_with(&[Entity::Policy(id.clone())], vec![object.id], |_| {
        Ok(Input::CommitSigned { policy: id, unsigned: waiting.commit, candidate })
    });
    match recorded {
        Ok(_) => Ok(Attended::Signed),
        // It was cancelled, or gated again, meanwhile.
        Err(LedgerError::Refused(refusal)) if refusal.code == Code::Terminal => Ok(Attended::Gone),
        Err(error) => Err(error.into()),
    }
}

fn ask(
    place: &Place<'_>,
    waiting: Candidate,
    attempt: u32,
    presence: Presence,
) -> Result<Result<Object, SigningError>, PerformError> {
    let unsigned = place.ledger.store().object(&waiting.commit)?;
    let signer = match identity(&place.repo) {
        Ok(who) => place.signer(&who),
        Err(missing) => {
            let why = missing.to_string();
            return Ok(Err(SigningError::Unusable { key: "user.name", why }));
        }
    };
    Ok(signer.and_then(|signer| match signer {
        Some(signer) => put(place, &signer, &unsigned, attempt, presence),
        // The setting was taken back: what was gated under it is not landed without.
        None => {
            let why = "is not set any more; cancel the policy and ask again".to_owned();
            Err(SigningError::Unusable { key: "commit.gpgSign", why })
        }
    }))
}

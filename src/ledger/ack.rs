//! `ack`: signs a person's answer and records what it turned out to be worth.
//!
//! Contract: no program is run but the one that signs, if the key needs one, and no file of a working tree is read. Whatever cannot be signed is refused
//! before anything is recorded; a line that was signed is judged under the lock, against the policy, the branch
//! and the signers as they are at that instant, and a bad one leaves exactly one `ack:refused` (decisions 22).

use super::{Ledger, LedgerError, Recording, View, ack_rules::AckRules};
use crate::{
    code::Code,
    domain::{
        ack::{AckOutcome, AckStatement, Decision},
        event::{Body, Entity, Kind},
        ids::PolicyId,
        input::{Asked, Input, JudgedAck, Signature},
        oid::Oid,
        policy::{AckRecord, Candidate, Policy, Status},
        time::{Timestamp, typed_duration},
    },
    limits,
    sign::{
        self,
        choose::{SignersInForce, load_signing_key},
        exclude::Excluded,
        key::SigningKey,
        program::Program,
    },
    store::{
        candidate,
        settings::{expand_path, user_scope},
        trusted::Trust,
    },
    sys::{clock, spawn::Presence},
    wire::{ack_line::AckLine, gate_line::gates_digest},
};
use std::path::{Path, PathBuf};

/// Set in everything a supervised session starts.
pub(super) const SESSION_VARIABLE: &str = "AGENTPROTO_SESSION_ID";
/// The key that signs when `--key` names none.
pub(super) const SIGNING_KEY: &str = "agentproto.signingKey";

/// An answer as it was typed.
#[derive(Clone, Debug)]
pub struct AckAsk {
    /// Yes or no.
    pub decision: Decision,
    /// Why; empty when nothing was said.
    pub reason: String,
    /// How long it counts, milliseconds.
    pub expires_ms: u64,
    /// The key file that signs.
    pub key: Option<PathBuf>,
    /// The candidate that was reviewed; any when absent.
    pub candidate: Option<Oid>,
    /// Whether what signs can ask somebody.
    pub presence: Presence,
}

/// An answer that was given and accepted.
#[derive(Debug)]
pub struct AckGiven {
    /// What was recorded.
    pub recording: Recording,
    /// Yes or no.
    pub decision: Decision,
    /// The principal it was accepted for.
    pub signer: String,
    /// Fingerprint of the key, `SHA256:…`.
    pub key: String,
    /// The candidate it is about.
    pub candidate: Oid,
}

/// What a policy waits for.
pub(super) struct Request {
    pub(super) id: Oid,
    pub(super) candidate: Candidate,
    pub(super) branch: String,
}

/// What a line is judged by.
pub(super) struct Court {
    repo_id: Oid,
    signers: SignersInForce,
    rules: AckRules,
    excluded: Excluded,
}

impl Ledger {
    /// Signs an answer and records it.
    ///
    /// # Errors
    /// Nothing was recorded when the policy waits for no answer, another candidate is meant or nothing can be
    /// signed. A line that was judged bad is recorded as refused, and the error carries its outcome's code.
    pub fn ack(&self, id: &PolicyId, ask: &AckAsk) -> Result<AckGiven, LedgerError> {
        self.require_outside(Code::AckFromSession, id.as_str())?;
        let policy = self.require_own(id)?;
        let request = self.require_request(&policy)?;
        require_reviewed(&policy, &request, ask)?;
        // What nobody can read any more cannot land, and is not to be approved.
        if ask.decision == Decision::Approve
            && let Some(why) = candidate::whole::damage(&self.store, &request.candidate)?
        {
            let because = format!("its candidate {} is damaged: {why}", request.candidate.commit);
            return Err(LedgerError::refused(Code::CandidateUnreadable, id.as_str(), because));
        }
        let (repo, trust) = (self.repo()?, self.trust()?);
        let key = self.signing_key(&repo, &trust, ask.key.clone())?;
        let court = self.court(&policy)?;
        let email = repo.config_snapshot().string("user.email").map(|email| email.to_string());
        let statement =
            court.statement(&policy, &request, ask, &court.principal(&key, email.as_deref()))?;
        let location = self.store.location();
        let name = format!("ack.{id}.{}", clock::now().ms());
        let dir = location.agent_dir().join("tmp").join(name);
        let top = location.worktree.as_ref().map(|w| w.top.as_path());
        let outside: Vec<&Path> = top.into_iter().chain([location.common_dir.as_path()]).collect();
        let program = Program {
            repo: &repo,
            env: &self.env,
            outside: &outside,
            dir: &dir,
            presence: ask.presence,
        };
        let line = sign::sign(statement, &key, Some(&program))
            .map_err(|e| LedgerError::refused(e.code(), id.as_str(), e.to_string()))?;
        let recording = self.consume(id, &line.encode(), &court)?;
        accepted(recording, id, line, request.candidate.commit)
    }

    /// The key that would sign an answer, in words, where a passphrase or a touch may be asked for it; none where it needs
    /// neither, or where there is none.
    #[must_use]
    pub fn asks_for_key(&self, ask: &AckAsk) -> Option<String> {
        let (repo, trust) = (self.repo().ok()?, self.trust().ok()?);
        let key = self.signing_key(&repo, &trust, ask.key.clone()).ok()?;
        key.needs_program().then(|| key.shown())
    }

    /// The key that commits are signed with, as a person named it; none where git chooses one.
    #[must_use]
    pub fn commit_key(&self) -> Option<String> {
        user_scope(&self.repo().ok()?, "user.signingKey").ok()?.filter(|key| !key.is_empty())
    }

    /// Whose approval of the waiting candidate could still count: name and key of each.
    ///
    /// # Errors
    /// The signers or the rules about answers cannot be read.
    pub fn still_to_answer(&self, policy: &Policy) -> Result<Vec<String>, LedgerError> {
        let (court, at) = (self.court(policy)?, clock::now());
        let signers = &court.signers.signers;
        let mut missing = Vec::new();
        for (fingerprint, key) in court.excluded.left_in(signers, sign::NAMESPACE) {
            let approved = policy.acks.iter().any(|ack| ack.key == fingerprint);
            let Some(name) = signers.principal_for(key, sign::NAMESPACE, None) else { continue };
            if !approved && signers.authorize(key, &name, sign::NAMESPACE, at).is_ok() {
                missing.push(format!("{name} ({fingerprint})"));
            }
        }
        Ok(missing)
    }

    /// Only a person outside sessions may do this.
    pub(super) fn require_outside(&self, code: Code, subject: &str) -> Result<(), LedgerError> {
        match self.env.get(SESSION_VARIABLE) {
            None => Ok(()),
            Some(_) => {
                Err(LedgerError::refused(code, subject, format!("{SESSION_VARIABLE} is set here")))
            }
        }
    }

    /// A policy of this clone; one that another clone's journal tells of is named as such.
    pub(super) fn require_own(&self, id: &PolicyId) -> Result<Policy, LedgerError> {
        if let Some(policy) = self.policy(id)? {
            return Ok(policy);
        }
        self.require_not_foreign(id)?;
        self.require_policy(id)
    }

    /// What the policy asks a person now.
    pub(super) fn require_request(&self, policy: &Policy) -> Result<Request, LedgerError> {
        let id = policy.policy_id.as_str();
        let is = format!("the policy is {}", policy.status.as_str());
        match policy.status {
            Status::AwaitingAck => {}
            Status::Watching
            | Status::Queued
            | Status::Gating
            | Status::Nudging
            | Status::Signing
            | Status::Committing => {
                return Err(LedgerError::refused(Code::NotAwaiting, id, is));
            }
            Status::Done | Status::Blocked | Status::Cancelled => {
                return Err(LedgerError::refused(Code::Terminal, id, is));
            }
        }
        let lost = |what: &str| LedgerError::Corrupt(format!("{id} awaits an ack without {what}"));
        let candidate = policy.candidate.ok_or_else(|| lost("a candidate"))?;
        let commit = policy.spec.commit.as_ref().ok_or_else(|| lost("a branch"))?;
        let seq = policy.request_seq.ok_or_else(|| lost("a request"))?;
        let request = self.at_seq(seq)?.ok_or_else(|| lost(&format!("event {seq}")))?;
        Ok(Request { id: request.id, candidate, branch: commit.branch.clone() })
    }

    /// The key that signs an answer when none is named.
    ///
    /// # Errors
    /// No setting names one, or it cannot sign here.
    pub fn key_in_force(&self) -> Result<SigningKey, LedgerError> {
        self.signing_key(&self.repo()?, &self.trust()?, None)
    }

    /// The key that signs: the one named, else the one set for this repository, else the person's.
    pub(super) fn signing_key(
        &self,
        repo: &gix::Repository,
        trust: &Trust,
        named: Option<PathBuf>,
    ) -> Result<SigningKey, LedgerError> {
        let set = || {
            let value = trust.settings.get(SIGNING_KEY)?;
            value.map(|value| expand_path(&self.env, SIGNING_KEY, &value)).transpose()
        };
        let explicit = match named {
            Some(path) => Some(path),
            None => set().map_err(super::gates::settings_error)?,
        };
        load_signing_key(repo, &self.env, explicit.as_deref())
            .map_err(|e| LedgerError::refused(e.code(), "signing key", e.to_string()))
    }

    /// Who judges the answers to the request that is open now.
    pub(super) fn court(&self, policy: &Policy) -> Result<Court, LedgerError> {
        let (repo, trust) = (self.repo()?, self.trust()?);
        let signers = SignersInForce::load(&repo, &self.env, &trust)
            .map_err(|e| LedgerError::refused(e.code(), "signers", e.to_string()))?;
        let mut rules = self.ack_rules(&repo, &trust)?;
        if let Some(spec) = &policy.spec.commit {
            rules = rules.with(spec);
        }
        let commit = match policy.candidate {
            Some(candidate) => self.store.object(&candidate.commit)?.data,
            None => vec![],
        };
        let excluded = Excluded::new(&rules.exclude, &commit);
        Ok(Court { repo_id: trust.repo_id, signers, rules, excluded })
    }

    /// Judges a line under the lock and records what it turned out to be.
    pub(super) fn consume(
        &self,
        id: &PolicyId,
        text: &str,
        court: &Court,
    ) -> Result<Recording, LedgerError> {
        let line = AckLine::parse(text);
        // What the journal said of a request stays said.
        let asked = line.as_ref().ok().map(|line| self.asked(&line.statement)).transpose()?;
        self.record_with(&[Entity::Policy(id.clone())], vec![], |view: &View<'_>| {
            let policy = view.state.policies.get(id);
            let commit = policy.and_then(|p| p.spec.commit.as_ref());
            let tip = commit.map_or(Ok(None), |c| self.store.tip(&c.branch))?;
            let at = clock::now();
            let (statement, signature) = match &line {
                Ok(line) => court.judge(line, at),
                Err(why) => (Err(why.to_string()), Signature::Forged(why.to_string())),
            };
            let ack = JudgedAck {
                line: text.to_owned(),
                statement,
                signature,
                repo: court.repo_id.to_string(),
                asked: asked.flatten(),
                quorum: court.rules.quorum,
                gates: policy.map(|p| gates_digest(p.gate_lines())).unwrap_or_default(),
                tip,
                at,
            };
            Ok(Input::AckArrived { policy: id.clone(), ack: Box::new(ack) })
        })
    }

    /// The request that a statement names, if it is one of this clone's journal.
    fn asked(&self, said: &AckStatement) -> Result<Option<Asked>, LedgerError> {
        if self.store.find_object(&said.request)?.is_none() {
            return Ok(None);
        }
        let Ok(entry) = self.store.entry(&said.request) else { return Ok(None) };
        let seen = self.at_seq(entry.seq)?.filter(|seen| seen.id == said.request);
        let Some(message) = seen.map(|seen| seen.message) else { return Ok(None) };
        let Some(whose) = message.policy.filter(|_| message.kind == Kind::CommitReady.as_str())
        else {
            return Ok(None);
        };
        let answered = self
            .policy(&whose)?
            .is_some_and(|policy| policy.request_seq == Some(message.seq) && policy.is_answered());
        Ok(Some(Asked { policy: whose, seq: message.seq, answered }))
    }
}

impl Court {
    /// The name to sign under. A key that nobody listed signs all the same, under the person's own name, so
    /// that its refusal is judged and recorded like any other.
    fn principal(&self, key: &SigningKey, email: Option<&str>) -> String {
        let preferred = email.filter(|name| !name.is_empty());
        self.signers
            .signers
            .principal_for(key.public(), sign::NAMESPACE, preferred)
            .or_else(|| preferred.map(str::to_owned))
            .unwrap_or_else(|| "unknown".to_owned())
    }

    fn statement(
        &self,
        policy: &Policy,
        request: &Request,
        ask: &AckAsk,
        signer: &str,
    ) -> Result<AckStatement, LedgerError> {
        let issued = clock::now();
        Ok(AckStatement {
            decision: ask.decision,
            repo: self.repo_id.to_string(),
            policy: policy.policy_id.clone(),
            request: request.id,
            candidate: request.candidate.commit,
            parent: request.candidate.parent,
            tree: request.candidate.tree,
            branch: request.branch.clone(),
            gates: gates_digest(policy.gate_lines()),
            signer: signer.to_owned(),
            key: String::new(),
            issued,
            expires: issued.plus_ms(life(ask.expires_ms)?),
            reason: ask.reason.clone(),
        })
    }

    /// What the line says, and what its signature is worth.
    fn judge(&self, line: &AckLine, at: Timestamp) -> (Result<AckStatement, String>, Signature) {
        let mut statement = Ok(line.statement.clone());
        let signers = &self.signers.signers;
        let signature = match sign::judge(line, signers, at) {
            Ok(()) => match self.excluded.why(&line.statement, signers) {
                Some(why) => Signature::Unauthorized(why),
                None => Signature::Good(self.record(line, at)),
            },
            Err(bad) => match bad.outcome() {
                AckOutcome::Unauthorized => Signature::Unauthorized(bad.to_string()),
                AckOutcome::Malformed => {
                    statement = Err(bad.to_string());
                    Signature::Forged(bad.to_string())
                }
                AckOutcome::Forged
                | AckOutcome::Valid
                | AckOutcome::Replayed
                | AckOutcome::Stale
                | AckOutcome::Expired
                | AckOutcome::Orphan => Signature::Forged(bad.to_string()),
            },
        };
        (statement, signature)
    }

    fn record(&self, line: &AckLine, at: Timestamp) -> AckRecord {
        AckRecord {
            decision: line.statement.decision,
            line: line.encode(),
            signer: line.statement.signer.clone(),
            key: line.statement.key.clone(),
            signers: self.signers.source.as_str().to_owned(),
            signers_digest: self.signers.digest.clone(),
            at,
        }
    }
}

fn require_reviewed(policy: &Policy, request: &Request, ask: &AckAsk) -> Result<(), LedgerError> {
    match ask.candidate {
        Some(reviewed) if reviewed != request.candidate.commit => {
            let because = format!("its candidate is {}, not {reviewed}", request.candidate.commit);
            Err(LedgerError::refused(Code::Stale, policy.policy_id.as_str(), because))
        }
        Some(_) | None => Ok(()),
    }
}

/// The life of an answer; a time nobody will see cannot be written down.
fn life(expires_ms: u64) -> Result<i64, LedgerError> {
    let most = limits::ACK_EXPIRES_MAX_MS;
    let fits = i64::try_from(expires_ms).ok().filter(|_| expires_ms <= most);
    fits.ok_or_else(|| {
        let (asked, most) = (typed_duration(expires_ms), typed_duration(most));
        let because = format!("{asked}, at most {most} is accepted");
        LedgerError::refused(Code::BadTime, "--expires", because)
    })
}

fn accepted(
    recording: Recording,
    id: &PolicyId,
    line: AckLine,
    candidate: Oid,
) -> Result<AckGiven, LedgerError> {
    for (recorded, _) in &recording.events {
        if let Body::AckRefused(refused) = &recorded.event.body {
            let code = refused.outcome.code().unwrap_or(Code::Internal);
            return Err(LedgerError::refused(code, id.as_str(), refused.because.clone()));
        }
    }
    let AckStatement { decision, signer, key, .. } = line.statement;
    Ok(AckGiven { recording, decision, signer, key, candidate })
}

#[cfg(test)]
mod tests;

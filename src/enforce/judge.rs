//! What the journals prove about one commit.
//!
//! Contract: a commit is governed only if one sound journal tells its whole story: the policy, a green run of
//! exactly its gates on exactly this tree, the candidate with this parent and tree, and an approving line that
//! binds all of that, signed by somebody who may sign now. The first link that is missing is the reason given.
//! A question that cannot be answered is `unknown`, never a yes and never a no.

use super::{
    chain::{Acked, Chain, Ready, Story},
    commits::{Commit, Objects},
};
use crate::{
    domain::{
        ack::{AckOutcome, AckStatement, Decision},
        digest::sha256,
        gate::{Gate, GateResult, Verdict},
        ids::PolicyId,
        oid::Oid,
        path::quoted,
        policy::{AckRecord, Candidate, Policy, Status},
    },
    sign::{self, choose::SignersInForce, exclude::Excluded},
    store::object::Kind,
    wire::{
        ack_line::AckLine,
        gate_line::{GateLine, GatedOn, gates_digest},
    },
};
use std::collections::{BTreeSet, HashMap};

/// What is known of one commit, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A green gate, bound by a verified ack.
    Governed,
    /// A green gate; no ack was asked for.
    Gated,
    /// A policy without gates.
    Ungated,
    /// The signature of its ack does not fit.
    Forged,
    /// The ack's principal, key or namespace is not allowed.
    Unauthorized,
    /// Its ack line was consumed before, by another request.
    Replayed,
    /// The ack is for another candidate.
    Stale,
    /// The ack was consumed past its expiry.
    Expired,
    /// The ack answers a request that this journal did not make.
    Orphan,
    /// The ack is no ack line.
    Malformed,
    /// There are records, and none proves this commit.
    Ungoverned,
    /// It cannot be told.
    Unknown,
}

impl Outcome {
    /// Every outcome there is, best first.
    pub const ALL: [Self; 12] = [
        Self::Governed,
        Self::Gated,
        Self::Ungated,
        Self::Forged,
        Self::Unauthorized,
        Self::Replayed,
        Self::Stale,
        Self::Expired,
        Self::Orphan,
        Self::Malformed,
        Self::Ungoverned,
        Self::Unknown,
    ];

    /// The word in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Governed => "governed",
            Self::Gated => "gated",
            Self::Ungated => "ungated",
            Self::Forged => "forged",
            Self::Unauthorized => "unauthorized",
            Self::Replayed => "replayed",
            Self::Stale => "stale",
            Self::Expired => "expired",
            Self::Orphan => "orphan",
            Self::Malformed => "malformed",
            Self::Ungoverned => "ungoverned",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a bad ack is shown. A line recorded as turned down for no reason decides nothing.
fn of_ack(outcome: AckOutcome) -> Outcome {
    match outcome {
        AckOutcome::Valid => Outcome::Unknown,
        AckOutcome::Forged => Outcome::Forged,
        AckOutcome::Unauthorized => Outcome::Unauthorized,
        AckOutcome::Replayed => Outcome::Replayed,
        AckOutcome::Stale => Outcome::Stale,
        AckOutcome::Expired => Outcome::Expired,
        AckOutcome::Orphan => Outcome::Orphan,
        AckOutcome::Malformed => Outcome::Malformed,
    }
}

/// What was found out about one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The commit.
    pub sha: Oid,
    /// What is known of it.
    pub outcome: Outcome,
    /// The policy it came from.
    pub policy: Option<PolicyId>,
    /// Who approved it, as the allowed-signers file names them.
    pub signer: Option<String>,
    /// How its gates were isolated.
    pub isolation: Option<String>,
    /// Files outside the listed paths that were not as committed when its gates ran; none when they were not counted.
    pub unlisted_changes: Option<u64>,
    /// The policy its message names though no journal here knows it. Words of a message prove nothing.
    pub claimed: Option<PolicyId>,
    /// Why it is not governed, or what is odd about it.
    pub reason: Option<String>,
    /// The journal entries that tell of it, in order.
    pub evidence: Vec<Oid>,
}

impl Verified {
    fn bare(sha: Oid, outcome: Outcome, reason: String) -> Self {
        Self {
            sha,
            outcome,
            policy: None,
            signer: None,
            isolation: None,
            unlisted_changes: None,
            claimed: None,
            reason: Some(reason),
            evidence: Vec::new(),
        }
    }
}

/// The policy that the trailers of a message name.
fn policy_named(message: &[u8]) -> Option<PolicyId> {
    let text = std::str::from_utf8(message).ok()?;
    let (_subject, trailers) = text.trim_end().rsplit_once("\n\n")?;
    let named = trailers.lines().rev().find_map(|line| line.strip_prefix("Agentproto-Policy: "));
    named?.parse().ok()
}

/// What a proven commit was not asked for.
fn lacks(outcome: Outcome) -> Option<&'static str> {
    match outcome {
        Outcome::Gated => Some("its gates were green, and nobody was asked to approve it"),
        Outcome::Ungated => Some("its policy has no gates"),
        Outcome::Governed
        | Outcome::Forged
        | Outcome::Unauthorized
        | Outcome::Replayed
        | Outcome::Stale
        | Outcome::Expired
        | Outcome::Orphan
        | Outcome::Malformed
        | Outcome::Ungoverned
        | Outcome::Unknown => None,
    }
}

/// The link that is missing.
type Fault = (Outcome, String);

fn ungoverned(why: impl Into<String>) -> Fault {
    (Outcome::Ungoverned, why.into())
}

fn unreadable(why: &dyn std::fmt::Display) -> Fault {
    (Outcome::Unknown, why.to_string())
}

/// Everything that commits are judged by, prepared once.
pub(super) struct Bench<'a> {
    objects: Objects<'a>,
    chains: &'a [Chain],
    signers: Result<SignersInForce, String>,
    /// Policies of sound journals by the commits they name.
    named: HashMap<Oid, Vec<(&'a Chain, PolicyId)>>,
    /// What was approved, by the tree it leads to.
    approved: HashMap<Oid, (Oid, PolicyId)>,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        objects: Objects<'a>,
        chains: &'a [Chain],
        signers: Result<SignersInForce, String>,
    ) -> Self {
        let mut named: HashMap<Oid, Vec<(&Chain, PolicyId)>> = HashMap::new();
        let mut approved = HashMap::new();
        for chain in chains.iter().filter(|c| c.broken.is_none()) {
            for (id, policy) in &chain.state.policies {
                let mut commits: Vec<Oid> =
                    policy.candidate.map(|c| c.commit).into_iter().collect();
                commits.extend(policy.commit_sha.filter(|c| !commits.contains(c)));
                if let (Some(candidate), Some(commit)) = (policy.candidate, policy.commit_sha) {
                    approved.entry(candidate.tree).or_insert((commit, id.clone()));
                }
                let former = chain.stories.get(id).map_or(&[][..], |s| s.former.as_slice());
                commits.extend(former.iter().map(|(commit, _)| *commit));
                commits.sort();
                commits.dedup();
                for commit in commits {
                    named.entry(commit).or_default().push((chain, id.clone()));
                }
            }
        }
        Self { objects, chains, signers, named, approved }
    }

    /// Judges one commit by the best that any sound journal says of it.
    pub(super) fn judge(&self, sha: Oid) -> Verified {
        let stories = self.named.get(&sha).map_or(&[][..], Vec::as_slice);
        let judged = stories.iter().map(|(chain, id)| self.by_policy(sha, chain, id));
        judged.min_by_key(|v| v.outcome).unwrap_or_else(|| self.unnamed(sha))
    }

    fn unnamed(&self, sha: Oid) -> Verified {
        if self.chains.is_empty() {
            let why = "there is no journal in this clone: its records were not fetched";
            return Verified::bare(sha, Outcome::Unknown, why.to_owned());
        }
        match self.chains.iter().find(|c| c.broken.is_some()) {
            None => self.rewritten(sha).or_else(|| self.elsewhere(sha)).unwrap_or_else(|| {
                let why = "no journal names it".to_owned();
                Verified::bare(sha, Outcome::Ungoverned, why)
            }),
            Some(chain) => {
                let why = format!("the journal of {} does not hold together", chain.writer);
                Verified::bare(sha, Outcome::Unknown, why)
            }
        }
    }

    /// The same content as a commit that landed, as an amend or rebase leaves it: what was said of that one is found, but
    /// does not count for this one.
    fn rewritten(&self, sha: Oid) -> Option<Verified> {
        let commit = self.objects.commit(&sha).ok()?;
        let tree = commit.tree;
        // One that changes nothing has the content of its parent, not that of a commit it was made from.
        if let Some(parent) = commit.parents.first()
            && self.objects.commit(parent).ok()?.tree == tree
        {
            return None;
        }
        let (old, policy) = self.approved.get(&tree)?;
        let why =
            format!("no journal names it; {policy} was for {old}, which has the same content");
        Some(Verified::bare(sha, Outcome::Ungoverned, why))
    }

    /// Its message names a policy that no journal here knows: what another clone recorded may prove it, and anybody can
    /// write such a line.
    fn elsewhere(&self, sha: Oid) -> Option<Verified> {
        let claimed = policy_named(&self.objects.commit(&sha).ok()?.message)?;
        if self.chains.iter().any(|chain| chain.state.policies.contains_key(&claimed)) {
            return None;
        }
        let why = format!(
            "no journal here names it; its message names {claimed}, which may be in the journal of another clone"
        );
        let bare = Verified::bare(sha, Outcome::Ungoverned, why);
        Some(Verified { claimed: Some(claimed), ..bare })
    }

    fn by_policy(&self, sha: Oid, chain: &Chain, id: &PolicyId) -> Verified {
        let Some((policy, story)) = chain.policy(id).filter(|(_, story)| story.whole) else {
            let why = "events that would prove it were in a segment that is not kept any more";
            let bare = Verified::bare(sha, Outcome::Unknown, why.to_owned());
            return Verified { policy: Some(id.clone()), ..bare };
        };
        let lines: Vec<GateLine> =
            policy.gate_lines().filter_map(|line| GateLine::parse(line).ok()).collect();
        let dirty = lines.iter().map(|l| l.dirty).reduce(|a, b| Some(a?.max(b?))).flatten();
        let mut verified = Verified {
            sha,
            outcome: Outcome::Governed,
            policy: Some(id.clone()),
            signer: None,
            isolation: lines.first().map(|l| l.isolation.clone()),
            unlisted_changes: dirty,
            claimed: None,
            reason: None,
            evidence: evidence(story),
        };
        match self.prove(sha, chain, policy, story) {
            Ok((outcome, signer)) => {
                verified.outcome = outcome;
                verified.signer = signer;
                let unsaid = policy.status == Status::Committing;
                let not_yet = "it landed, and its policy:committed is not recorded yet";
                let why = if unsaid { Some(not_yet) } else { lacks(outcome) };
                verified.reason = why.map(str::to_owned);
            }
            Err((outcome, why)) => {
                verified.outcome = outcome;
                verified.reason = Some(why);
            }
        }
        verified
    }

    fn prove(
        &self,
        sha: Oid,
        chain: &Chain,
        policy: &Policy,
        story: &Story,
    ) -> Result<(Outcome, Option<String>), Fault> {
        let commit = self.objects.commit(&sha).map_err(|e| unreadable(&e))?;
        let (candidate, ready) = candidate_of(sha, &commit, policy, story)?;
        was_allowed(policy, story)?;
        self.only_listed(policy, &candidate)?;
        gates_passed(policy, &commit.tree)?;
        let asked = policy.spec.commit.is_some() && policy.spec.needs_ack();
        if asked != ready.ack {
            return Err(ungoverned("its request does not ask for the ack its policy asks for"));
        }
        let signer = if asked { Some(self.acked(chain, policy, story)?) } else { None };
        let outcome = match (policy.spec.gates.is_empty(), asked) {
            (true, _) => Outcome::Ungated,
            (false, true) => Outcome::Governed,
            (false, false) => Outcome::Gated,
        };
        Ok((outcome, signer))
    }

    fn only_listed(&self, policy: &Policy, candidate: &Candidate) -> Result<(), Fault> {
        let parent = self.objects.commit(&candidate.parent).map_err(|e| unreadable(&e))?;
        let changed = self.objects.changed(&parent.tree, &candidate.tree);
        let changed = changed.map_err(|e| unreadable(&e))?;
        let listed = policy.spec.commit.as_ref().map(|c| c.paths.as_slice()).unwrap_or_default();
        let stray = changed.iter().find(|c| listed.iter().all(|p| p.as_bytes() != c.path));
        match stray {
            None => Ok(()),
            Some(stray) => {
                let path = quoted(&stray.path);
                Err(ungoverned(format!("it changes {path}, which is not listed")))
            }
        }
    }

    /// Who approved, when exactly this candidate was approved by as many keys as it takes.
    fn acked(&self, chain: &Chain, policy: &Policy, story: &Story) -> Result<String, Fault> {
        let Some(ready) = story.ready.filter(|_| !policy.acks.is_empty()) else {
            return Err(ungoverned("no ack was consumed"));
        };
        if policy.acks.len() != story.acked.len() {
            return Err(ungoverned("its acks are not those that were consumed"));
        }
        let (mut keys, mut names) = (BTreeSet::new(), Vec::new());
        for (record, event) in policy.acks.iter().zip(&story.acked) {
            let said = self.approved_by((chain, policy), ready, (record, event))?;
            keys.insert(said.key);
            names.push(said.signer);
        }
        let (there, needed) = (keys.len(), policy.approvals_needed());
        if u32::try_from(there).is_ok_and(|there| there < needed) {
            return Err(ungoverned(format!("{there} of {needed} keys approved it")));
        }
        Ok(names.join(", "))
    }

    /// What one consumed line says, when it is an approval of exactly this candidate by somebody who may.
    fn approved_by(
        &self,
        (chain, policy): (&Chain, &Policy),
        ready: Ready,
        (record, event): (&AckRecord, &Acked),
    ) -> Result<AckStatement, Fault> {
        let line = AckLine::parse(&record.line).map_err(|e| (Outcome::Malformed, e.to_string()))?;
        let said = &line.statement;
        if !answers(said, chain, policy, ready.id) {
            return Err(self.misdirected(&record.line, &event.id));
        }
        if said.decision == Decision::Reject {
            return Err(ungoverned("its line is a rejection"));
        }
        let signers = &self.signers.as_ref().map_err(|why| unreadable(why))?.signers;
        sign::judge(&line, signers, event.at)
            .map_err(|why| (of_ack(why.outcome()), why.to_string()))?;
        if let Some(why) = self.excluded(policy, ready)?.why(said, signers) {
            return Err((Outcome::Unauthorized, why));
        }
        as_recorded(record, said)?;
        binds(said, policy)?;
        if let Some(why) = said.out_of_time(event.at) {
            return Err((Outcome::Expired, format!("when it was consumed: {why}")));
        }
        Ok(line.statement)
    }

    /// Whose answer did not count by what the policy was attached with.
    fn excluded(&self, policy: &Policy, ready: Ready) -> Result<Excluded, Fault> {
        let words = policy.spec.commit.as_ref().map_or(&[][..], |c| c.ack_exclude.as_slice());
        if words.is_empty() {
            return Ok(Excluded::default());
        }
        let commit = self.objects.get(&ready.candidate, Kind::Commit);
        Ok(Excluded::new(words, &commit.map_err(|e| unreadable(&e))?))
    }

    /// A line that answers some other request: one that was consumed before, or one not known here.
    fn misdirected(&self, line: &str, event: &Oid) -> Fault {
        let sound = self.chains.iter().filter(|c| c.broken.is_none());
        let mut first = sound.filter_map(|c| c.consumed.get(line));
        if first.any(|first| first != event) {
            return (Outcome::Replayed, "its line was consumed before".to_owned());
        }
        (Outcome::Orphan, "its line answers a request that its policy did not make".to_owned())
    }
}

fn evidence(story: &Story) -> Vec<Oid> {
    let mut ids = vec![story.attached];
    ids.extend(story.passed);
    ids.extend(story.ready.map(|r| r.id));
    ids.extend(story.acked.iter().map(|acked| acked.id));
    ids.extend(story.committed.map(|(id, _)| id));
    ids
}

/// The candidate, if this commit is it in every respect.
fn candidate_of(
    sha: Oid,
    commit: &Commit,
    policy: &Policy,
    story: &Story,
) -> Result<(Candidate, Ready), Fault> {
    if let Some((_, approved)) = story.former.iter().find(|(former, _)| *former == sha)
        && policy.candidate.is_none_or(|c| c.commit != sha)
    {
        let why = "it was gated again on another parent before it could land".to_owned();
        return Err(if *approved { (Outcome::Stale, why) } else { ungoverned(why) });
    }
    let (Some(candidate), Some(ready)) = (policy.candidate, story.ready) else {
        return Err(ungoverned("its policy never had a candidate"));
    };
    if candidate.commit != sha {
        let why = format!("the candidate was {}, this was landed instead", candidate.commit);
        return Err(ungoverned(why));
    }
    if let Some((_, landed)) = story.committed.filter(|(_, landed)| *landed != sha) {
        return Err(ungoverned(format!("{landed} was landed in its place")));
    }
    if commit.parents != [candidate.parent] {
        let why = format!("its parent is not {}, which was gated", candidate.parent);
        return Err(ungoverned(why));
    }
    if commit.tree != candidate.tree {
        let why = format!("its tree is {}, gated was {}", commit.tree, candidate.tree);
        return Err(ungoverned(why));
    }
    Ok((candidate, ready))
}

/// The policy got as far as moving the branch.
fn was_allowed(policy: &Policy, story: &Story) -> Result<(), Fault> {
    let status = policy.status.as_str();
    match policy.status {
        Status::Committing | Status::Done => Ok(()),
        Status::AwaitingAck => match &story.refused {
            Some((outcome, because)) => {
                Err((of_ack(*outcome), format!("the only ack was turned down: {because}")))
            }
            None if policy.approvals() > 0 => {
                let (there, needed) = (policy.approvals(), policy.approvals_needed());
                Err(ungoverned(format!("{there} of {needed} keys approved it so far")))
            }
            None => Err(ungoverned(format!("nobody approved it, its policy is {status}"))),
        },
        Status::Cancelled
        | Status::Blocked
        | Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Signing => {
            let reason = policy.reason.as_deref().unwrap_or("no reason");
            Err(ungoverned(format!("its policy is {status} ({reason}), it must not land")))
        }
    }
}

fn gates_passed(policy: &Policy, tree: &Oid) -> Result<(), Fault> {
    let (gates, results) = (&policy.spec.gates, &policy.results);
    if gates.len() != results.len() {
        let (ran, all) = (results.len(), gates.len());
        return Err(ungoverned(format!("{ran} of its {all} gates ran")));
    }
    for (at, (gate, result)) in gates.iter().zip(results).enumerate() {
        gate_passed(policy, at, gate, result, tree)
            .map_err(|why| ungoverned(format!("gate {at}: {why}")))?;
    }
    Ok(())
}

fn gate_passed(
    policy: &Policy,
    at: usize,
    gate: &Gate,
    result: &GateResult,
    tree: &Oid,
) -> Result<(), String> {
    let line = result.line.as_deref().ok_or("it left no line")?;
    let line = GateLine::parse(line).map_err(|e| e.to_string())?;
    if result.verdict != Verdict::Pass || line.verdict != Verdict::Pass {
        return Err("it did not pass".to_owned());
    }
    if line.tree != Some(*tree) || line.on != GatedOn::Candidate {
        let gated = line.tree.map_or_else(|| "no tree".to_owned(), |t| t.to_string());
        return Err(format!("it ran on {gated}, the commit holds {tree}"));
    }
    let same_run = line.policy == policy.policy_id && line.attempt == policy.attempt;
    if !same_run || usize::try_from(line.gate) != Ok(at) || result.index != at {
        return Err("its line is of another run".to_owned());
    }
    let same_gate = line.def == sha256(gate.canonical().as_bytes())
        && line.argv.iter().map(String::as_str).eq(gate.words())
        && line.program.as_deref() == gate.program();
    if same_gate { Ok(()) } else { Err("its line is of another gate".to_owned()) }
}

/// The line answers this very request of this very journal.
fn answers(said: &AckStatement, chain: &Chain, policy: &Policy, request: Oid) -> bool {
    chain.repo.as_ref() == Some(&said.repo)
        && said.policy == policy.policy_id
        && said.request == request
}

/// What the event says about the line is what the line says.
fn as_recorded(record: &AckRecord, said: &AckStatement) -> Result<(), Fault> {
    let same =
        record.decision == said.decision && record.signer == said.signer && record.key == said.key;
    if same {
        return Ok(());
    }
    Err((Outcome::Forged, "its event says other things than the signed line".to_owned()))
}

/// Candidate, parent, tree, branch and gate results are the ones that were approved.
fn binds(said: &AckStatement, policy: &Policy) -> Result<(), Fault> {
    let approved = Candidate { commit: said.candidate, tree: said.tree, parent: said.parent };
    if policy.candidate != Some(approved) {
        let why = format!("its line approves {}", said.candidate);
        return Err((Outcome::Stale, why));
    }
    if policy.spec.commit.as_ref().map(|c| &c.branch) != Some(&said.branch) {
        return Err((Outcome::Stale, format!("its line approves it for {}", said.branch)));
    }
    if gates_digest(policy.gate_lines()) != said.gates {
        return Err((Outcome::Stale, "its line approves other gate results".to_owned()));
    }
    Ok(())
}

//! Policies: what happens when a session's turn ends.

use super::{
    ack::{AckOutcome, Decision},
    digest::sha256,
    gate::{Gate, GateResult, Verdict},
    ids::{PolicyId, SessionId},
    oid::Oid,
    path::RepoPath,
    time::Timestamp,
};
use crate::limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What a green gate leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Then {
    /// An event.
    Emit,
    /// A governed commit.
    Commit,
}

/// Where a policy is. Only states this version can reach exist (decisions 23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Waiting for the session to finish.
    Watching,
    /// Its gates are to run, and as many as may run at once run already.
    Queued,
    /// Its gates run.
    Gating,
    /// Its gates were red, and its sessions have not been told yet.
    Nudging,
    /// Green, and the commit still has to be signed: what signs it needs a person.
    Signing,
    /// A person is asked.
    AwaitingAck,
    /// The branch is being moved.
    Committing,
    /// Over: what it was for has happened.
    Done,
    /// Over: it could not happen; the reason says why.
    Blocked,
    /// Over: a person stopped it.
    Cancelled,
}

impl Status {
    /// Every state there is.
    pub const ALL: [Self; 10] = [
        Self::Watching,
        Self::Queued,
        Self::Gating,
        Self::Nudging,
        Self::Signing,
        Self::AwaitingAck,
        Self::Committing,
        Self::Done,
        Self::Blocked,
        Self::Cancelled,
    ];

    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Watching => "watching",
            Self::Queued => "queued",
            Self::Gating => "gating",
            Self::Nudging => "nudging",
            Self::Signing => "signing",
            Self::AwaitingAck => "awaiting-ack",
            Self::Committing => "committing",
            Self::Done => "done",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
        }
    }

    /// True when nothing can change it any more.
    #[must_use]
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Done | Self::Blocked | Self::Cancelled => true,
            Self::Watching
            | Self::Queued
            | Self::Gating
            | Self::Nudging
            | Self::Signing
            | Self::AwaitingAck
            | Self::Committing => false,
        }
    }
}

/// How a done policy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// An `emit` policy went green.
    Passed,
    /// The candidate is on its branch.
    Committed,
    /// The listed paths held no change; there is no commit.
    NoOp,
}

impl Outcome {
    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Committed => "committed",
            Self::NoOp => "no-op",
        }
    }
}

/// What becomes of a candidate whose branch moved before it landed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnStale {
    /// The policy is gated on the new tip and asks again.
    #[default]
    Regate,
    /// The policy ends.
    Block,
}

impl OnStale {
    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regate => "regate",
            Self::Block => "block",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which ends of a turn count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnEnd {
    /// Only those by which the agent says that it is finished.
    #[default]
    Finished,
    /// Every end: its work is gated, and a person decides.
    Gate,
}

impl OnEnd {
    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Gate => "gate",
        }
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What red gates lead to, besides the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnFail {
    /// What the sessions are told, with placeholders; our own words when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nudge: Option<String>,
    /// How often at most.
    pub max_retries: u32,
    /// An agent that is one run a turn is run again for it, though it was not started to take prompts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reprompt: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
pub(super) fn is_one(n: &u32) -> bool {
    *n == 1
}

pub(super) fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_nowhere(seq: &u64) -> bool {
    *seq == 0
}

/// The commit part of a policy, fixed at attach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitSpec {
    /// Exactly these files.
    pub paths: Vec<RepoPath>,
    /// The message after cleanup, without our trailers.
    pub message: String,
    /// A person must approve.
    pub require_human_ack: bool,
    /// What moves: the full name of a branch, or of the `HEAD` of one worktree that is on none (`main-worktree/HEAD`,
    /// `worktrees/<id>/HEAD`, as git names them).
    pub branch: String,
    /// Conflict markers in listed files are meant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_markers: bool,
    /// Files that an ignore rule covers are meant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force_ignored: bool,
    /// Submodules that `.gitmodules` declares are meant: the commit each is on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_submodule: bool,
    /// A `HEAD` that is on no branch is meant, if there is one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detached_ok: bool,
    /// Approvals by distinct keys that were required when it was attached. A rule in force later can only raise it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub ack_quorum: u32,
    /// Whose answer did not count when it was attached: `author`, principals, fingerprints of keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ack_exclude: Vec<String>,
}

impl CommitSpec {
    /// A person must approve: asked for, or because it changes the rules others are held to.
    #[must_use]
    pub fn needs_ack(&self) -> bool {
        self.require_human_ack || self.paths.iter().any(RepoPath::is_rule)
    }
}

/// What a person asks for, after everything that can be checked was checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// The name a person gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whose turns it watches: it goes on when all of them are finished.
    pub session_ids: Vec<SessionId>,
    /// Whose worktree the gates run in; that of the first member when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate_session: Option<SessionId>,
    /// What a green gate leads to.
    pub then: Then,
    /// Run in this order; the first that does not pass ends the attempt.
    #[serde(default)]
    pub gates: Vec<Gate>,
    /// Present for [`Then::Commit`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitSpec>,
    /// Covers what ended after this event number.
    pub base: u64,
    /// What becomes of a candidate whose branch moved.
    #[serde(default, skip_serializing_if = "OnStale::is_default")]
    pub on_stale: OnStale,
    /// Which ends of a turn count.
    #[serde(default, skip_serializing_if = "OnEnd::is_default")]
    pub on_end: OnEnd,
    /// What red gates lead to; to the end when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_fail: Option<OnFail>,
    /// Its sessions end with it, or with what follows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_session: bool,
    /// When it ends unless it is over by then; never when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// The policy that is asked for once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<Again>,
    /// What is attached to the same sessions when this one is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Box<NextPolicy>>,
}

/// What a policy is made again from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Again {
    /// The one before.
    pub of: PolicyId,
    /// How many there were before: its generation.
    pub after: u32,
}

/// A policy that is attached when the one before is done. Everything that can be checked was checked with that one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextPolicy {
    /// The id it gets: fixed beforehand, so that the machine needs no chance.
    pub policy_id: PolicyId,
    /// Only turns that end after it is attached count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub next_turn: bool,
    /// What it asks for.
    pub spec: PolicySpec,
}

impl PolicySpec {
    /// The session whose worktree the gates run in; none without members.
    #[must_use]
    pub fn gate_session(&self) -> Option<&SessionId> {
        self.gate_session.as_ref().or(self.session_ids.first())
    }

    /// A person must approve its commit: asked for, or because of what it changes, or because what it gates may not be
    /// finished.
    #[must_use]
    pub fn needs_ack(&self) -> bool {
        self.commit.as_ref().is_none_or(CommitSpec::needs_ack) || self.on_end == OnEnd::Gate
    }
}

/// The commit object built after a green gate, before the ack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The commit.
    pub commit: Oid,
    /// Its tree: what was gated.
    pub tree: Oid,
    /// Its only parent: the branch tip when the gate started.
    pub parent: Oid,
}

/// A commit that is made but for its signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unsigned {
    /// The commit without it.
    pub candidate: Candidate,
    /// Why it has none yet.
    pub because: String,
}

/// A consumed ack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AckRecord {
    /// Yes or no.
    pub decision: Decision,
    /// The signed line.
    pub line: String,
    /// The principal it was accepted for.
    pub signer: String,
    /// Fingerprint of the key, `SHA256:…`.
    pub key: String,
    /// Where the signers came from: `repo-user`, `global` or `trusted-ref`.
    pub signers: String,
    /// SHA-256 of the signers used.
    pub signers_digest: String,
    /// When it was consumed.
    pub at: Timestamp,
}

/// A line that was judged and is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedLine {
    /// The first half of its SHA-256: enough to know it again.
    pub line: String,
    /// What it turned out to be.
    pub outcome: AckOutcome,
}

/// The name under which a judged line is known again: half of its SHA-256, hex.
#[must_use]
pub fn line_digest(line: &str) -> String {
    let mut digest = sha256(line.as_bytes());
    digest.truncate(digest.len() / 2);
    digest
}

/// The whole state of a policy: the document `open/<x>/<id>.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Its id.
    pub policy_id: PolicyId,
    /// What was asked for.
    #[serde(flatten)]
    pub spec: PolicySpec,
    /// Where it is.
    pub status: Status,
    /// 1; a policy made again from another counts on.
    pub generation: u32,
    /// Gate runs so far.
    pub attempt: u32,
    /// Members not finished yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<SessionId>,
    /// Members whose turn ended unfinished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stalled_by: Vec<SessionId>,
    /// All gates of the last attempt said yes; none of them may follow that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub green: bool,
    /// What the gates of the last attempt said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<GateResult>,
    /// Commit that an `emit` policy's gate lines are noted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted_on: Option<Oid>,
    /// Code of why it is blocked, cancelled, or waits to be signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence more than the code says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// The commit as it is to be signed, while that waits for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<Candidate>,
    /// What waits for the ack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Candidate>,
    /// Number of the `policy:commit-ready` event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_seq: Option<u64>,
    /// Consumed acks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acks: Vec<AckRecord>,
    /// The most approvals that a rule in force at one of its acks required.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub quorum: u32,
    /// Lines that were turned down, or that were for a candidate before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub judged: Vec<JudgedLine>,
    /// Times it was gated again by itself: while it was gated or landed, with nobody asked in between.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub regates: u32,
    /// Times its sessions were told of red gates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nudges: u32,
    /// Who was told last, and is waited for; all members when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nudged: Vec<SessionId>,
    /// Covers what ended after this event number, since they were told; 0 before.
    #[serde(default, skip_serializing_if = "is_nowhere")]
    pub nudged_at: u64,
    /// The landed commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_sha: Option<Oid>,
    /// How it ended, when done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Blocked, and a person is done with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dismissed: bool,
    /// In this state since.
    pub since: Timestamp,
    /// Number of its last event.
    pub last: u64,
}

impl Policy {
    /// The verdict of the last attempt: the worst of its gates; `None` before the first.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.results.last().map(|r| r.verdict)
    }

    /// Whom it waits for.
    #[must_use]
    pub fn awaited(&self) -> &[SessionId] {
        if self.nudged.is_empty() { &self.spec.session_ids } else { &self.nudged }
    }

    /// Covers what ended after this event number.
    #[must_use]
    pub fn covers_after(&self) -> u64 {
        self.spec.base.max(self.nudged_at)
    }

    /// True when its time is over at this instant.
    #[must_use]
    pub fn is_expired(&self, at: Timestamp) -> bool {
        !self.status.is_terminal() && self.spec.expires.is_some_and(|expires| expires <= at)
    }

    /// Approvals by distinct keys that it takes to land.
    #[must_use]
    pub fn approvals_needed(&self) -> u32 {
        self.spec.commit.as_ref().map_or(1, |c| c.ack_quorum).max(self.quorum)
    }

    /// Distinct keys that approved the present candidate.
    #[must_use]
    pub fn approvals(&self) -> u32 {
        let approving = self.acks.iter().filter(|ack| ack.decision == Decision::Approve);
        let keys: BTreeSet<&str> = approving.map(|ack| ack.key.as_str()).collect();
        u32::try_from(keys.len()).unwrap_or(u32::MAX)
    }

    /// True when what was answered decides: a no, or as many approvals as it takes.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.acks.iter().any(|ack| ack.decision == Decision::Reject)
            || (!self.acks.is_empty() && self.approvals() >= self.approvals_needed())
    }

    /// True for a line that was consumed or turned down before.
    #[must_use]
    pub fn knows(&self, line: &str) -> bool {
        let digest = line_digest(line);
        self.acks.iter().any(|ack| ack.line == line)
            || self.judged.iter().any(|judged| judged.line == digest)
    }

    /// Remembers a judged line, as long as there is room.
    pub fn remember(&mut self, line: &str, outcome: AckOutcome) {
        if self.judged.len() < limits::JUDGED_LINES {
            self.judged.push(JudgedLine { line: line_digest(line), outcome });
        }
    }

    /// The policy that was attached when this one was done.
    #[must_use]
    pub fn followed_by(&self) -> Option<&PolicyId> {
        let next = self.spec.next.as_ref().filter(|_| self.status == Status::Done);
        next.map(|next| &next.policy_id)
    }

    /// The gate lines of the last attempt, in gate order.
    pub fn gate_lines(&self) -> impl Iterator<Item = &str> {
        self.results.iter().filter_map(|r| r.line.as_deref())
    }
}

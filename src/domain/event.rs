//! Events: facts in the past tense, the closed vocabulary of the journal.

use super::{
    ack::AckOutcome,
    gate::GateResult,
    ids::{PolicyId, SessionId, WriterId},
    oid::Oid,
    policy::{AckRecord, Candidate, Outcome, PolicySpec, Unsigned},
    session::{EndReason, Exit, Launch, Loose, OpenRequest, Prompt, Session},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Whose story an event belongs to: `Prev` and `last` follow this entity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entity {
    /// A session.
    Session(SessionId),
    /// A policy.
    Policy(PolicyId),
}

impl Entity {
    /// When its id was minted.
    #[must_use]
    pub fn minted(&self) -> Timestamp {
        match self {
            Self::Session(id) => id.minted(),
            Self::Policy(id) => id.minted(),
        }
    }
}

impl std::fmt::Display for Entity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session(id) => id.fmt(f),
            Self::Policy(id) => id.fmt(f),
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whose story it belongs to.
    pub subject: Entity,
    /// Sessions it concerns, for the `Session` trailers.
    pub sessions: Vec<SessionId>,
    /// What happened.
    pub body: Body,
}

/// An event in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Its number: no gap, no repeat.
    pub seq: u64,
    /// When, by this clone's clock.
    pub at: Timestamp,
    /// Who recorded it: `cli`, `hook:<agent>`, `acp`, `process`, `supervisor`.
    pub actor: String,
    /// Number of the previous event of the same entity.
    pub prev: Option<u64>,
    /// Version of the state machine that made it.
    pub engine: u32,
    /// What happened.
    pub event: Event,
}

/// What happened, with what the machine needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the kinds are described in spec order below by `Kind`")]
pub enum Body {
    SessionStarted(SessionStarted),
    TurnStarted(TurnStarted),
    TurnEnded(TurnEnded),
    InputAwaited(InputAwaited),
    InputAnswered(InputAnswered),
    Prompted(Prompted),
    Stopping(Stopping),
    SessionExited(SessionExited),
    CommandDone(CommandDone),
    PolicyAttached(PolicyAttached),
    PolicyAdopted(PolicyAdopted),
    GatingStarted(GatingStarted),
    GatingQueued(GatingQueued),
    Nudged(Nudged),
    GatePassed(GatePassed),
    PolicyFailed(PolicyFailed),
    CommitReady(CommitReady),
    PolicyAcked(PolicyAcked),
    Committed(Committed),
    PolicyCancelled(PolicyCancelled),
    PolicyDismissed(PolicyDismissed),
    AckRefused(AckRefused),
}

macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase")]
            pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }

            impl From<$name> for Body {
                fn from(body: $name) -> Self { Self::$name(body) }
            }
        )*
    };
}

bodies! {
    /// `session:started`.
    SessionStarted {
        /// The name a person gave it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// git's worktree id, `.` for the main one.
        worktree: String,
        /// Directory relative to the worktree root.
        cwd: String,
        /// Commit it started from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<Oid>,
        /// Nobody named that commit, and files differed from it already.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dirty_base: bool,
        /// Made by `commit`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        own: bool,
        /// How we start it; absent when somebody else does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        launch: Option<Launch>,
    }
    /// `session:turn-start`.
    TurnStarted {
        /// Its number.
        turn: u64,
        /// What it is begun with, when we begin it and there is something to say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        prompt: Option<Prompt>,
        /// The caller's `--key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// `session:turn-end`.
    TurnEnded {
        /// Its number.
        turn: u64,
        /// Why it ended.
        reason: EndReason,
        /// Follows from something else; nobody said so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inferred: bool,
        /// Questions were open when it ended.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        awaiting_input: bool,
        /// What is left open.
        #[serde(flatten)]
        loose: Loose,
        /// The caller's `--key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// `session:awaiting-input`.
    InputAwaited {
        /// What is asked.
        requests: Vec<OpenRequest>,
        /// The caller's `--key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// `session:input-answered`.
    InputAnswered {
        /// Which request; absent for all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The caller's `--key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// `session:prompted`.
    Prompted {
        /// What is said.
        prompt: Prompt,
        /// The present turn is ended for it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        interrupt: bool,
        /// The caller's `--key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// `session:stopping`.
    Stopping {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
    }
    /// `session:exited`.
    SessionExited {
        /// How.
        exit: Exit,
        /// Nobody saw it end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inferred: bool,
        /// One sentence more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
        /// The caller's `--key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// `session:command-done`.
    CommandDone {
        /// The command.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        argv: Vec<String>,
        /// Its exit code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        /// The caller's `--key`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    }
    /// `policy:attached`.
    PolicyAttached {
        /// All of what was asked for.
        spec: PolicySpec,
    }
    /// `policy:adopted`.
    PolicyAdopted {
        /// Whose it was.
        writer: WriterId,
        /// The last entry of that journal that was looked at.
        entry: Oid,
        /// Gate runs there.
        attempt: u32,
        /// All of what was asked for, checked anew here.
        spec: PolicySpec,
        /// Its sessions, as they were there.
        members: Vec<Session>,
    }
    /// `policy:gating`.
    GatingStarted {
        /// Number of the gate run, from 1.
        attempt: u32,
        /// Why it is gated again, when its turn was gated before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
    }
    /// `policy:queued`.
    GatingQueued {
        /// Number of the gate run that waits.
        attempt: u32,
    }
    /// `policy:nudged`.
    Nudged {
        /// Number of the gate run that was red.
        attempt: u32,
        /// Who is told of it, and works on.
        sessions: Vec<SessionId>,
        /// Code of why it is red.
        reason: String,
        /// One sentence more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
        /// What the gates said.
        results: Vec<GateResult>,
        /// Runs thrown away.
        #[serde(default, skip_serializing_if = "is_zero")]
        voided: u32,
        /// Commit that an `emit` policy's lines are noted on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noted_on: Option<Oid>,
    }
    /// `policy:passed`.
    GatePassed {
        /// Number of the gate run.
        attempt: u32,
        /// Every gate, all green.
        results: Vec<GateResult>,
        /// Runs thrown away because the listed files changed meanwhile.
        #[serde(default, skip_serializing_if = "is_zero")]
        voided: u32,
        /// Set when the policy is over by this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Commit that an `emit` policy's lines are noted on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noted_on: Option<Oid>,
        /// The commit as it is to be signed, when what signs it needs a person.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unsigned: Option<Unsigned>,
    }
    /// `policy:failed`.
    PolicyFailed {
        /// Code of why.
        reason: String,
        /// One sentence more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
        /// What the gates said, when they did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        results: Option<Vec<GateResult>>,
        /// Runs thrown away.
        #[serde(default, skip_serializing_if = "is_zero")]
        voided: u32,
        /// Commit that an `emit` policy's lines are noted on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        noted_on: Option<Oid>,
    }
    /// `policy:commit-ready`.
    CommitReady {
        /// What may land.
        #[serde(flatten)]
        candidate: Candidate,
        /// A person must approve.
        ack: bool,
    }
    /// `policy:acked`.
    PolicyAcked {
        /// The consumed ack.
        #[serde(flatten)]
        ack: AckRecord,
        /// Approvals by distinct keys that the rules required at that instant.
        #[serde(default = "super::policy::one", skip_serializing_if = "super::policy::is_one")]
        quorum: u32,
    }
    /// `policy:committed`.
    Committed {
        /// The commit, now on its branch.
        commit: Oid,
        /// The branch.
        branch: String,
    }
    /// `policy:cancelled`.
    PolicyCancelled {
        /// What the person said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
    }
    /// `policy:dismissed`.
    PolicyDismissed {
        /// What the person said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        because: Option<String>,
    }
    /// `ack:refused`.
    AckRefused {
        /// Why.
        outcome: AckOutcome,
        /// One sentence more.
        because: String,
        /// The line as it came.
        line: String,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// The name of an event in the journal: `family:name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is its own name, listed in `Kind::as_str`")]
pub enum Kind {
    SessionStarted,
    TurnStarted,
    TurnEnded,
    InputAwaited,
    InputAnswered,
    Prompted,
    Stopping,
    SessionExited,
    CommandDone,
    PolicyAttached,
    PolicyAdopted,
    GatingStarted,
    GatingQueued,
    Nudged,
    GatePassed,
    PolicyFailed,
    CommitReady,
    PolicyAcked,
    Committed,
    PolicyCancelled,
    PolicyDismissed,
    AckRefused,
}

impl Kind {
    /// Every kind, in the order of the specification.
    pub const ALL: [Self; 22] = [
        Self::SessionStarted,
        Self::TurnStarted,
        Self::TurnEnded,
        Self::InputAwaited,
        Self::InputAnswered,
        Self::Prompted,
        Self::Stopping,
        Self::SessionExited,
        Self::CommandDone,
        Self::PolicyAttached,
        Self::PolicyAdopted,
        Self::GatingStarted,
        Self::GatingQueued,
        Self::Nudged,
        Self::GatePassed,
        Self::PolicyFailed,
        Self::CommitReady,
        Self::PolicyAcked,
        Self::Committed,
        Self::PolicyCancelled,
        Self::PolicyDismissed,
        Self::AckRefused,
    ];

    /// The name in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SessionStarted => "session:started",
            Self::TurnStarted => "session:turn-start",
            Self::TurnEnded => "session:turn-end",
            Self::InputAwaited => "session:awaiting-input",
            Self::InputAnswered => "session:input-answered",
            Self::Prompted => "session:prompted",
            Self::Stopping => "session:stopping",
            Self::SessionExited => "session:exited",
            Self::CommandDone => "session:command-done",
            Self::PolicyAttached => "policy:attached",
            Self::PolicyAdopted => "policy:adopted",
            Self::GatingStarted => "policy:gating",
            Self::GatingQueued => "policy:queued",
            Self::Nudged => "policy:nudged",
            Self::GatePassed => "policy:passed",
            Self::PolicyFailed => "policy:failed",
            Self::CommitReady => "policy:commit-ready",
            Self::PolicyAcked => "policy:acked",
            Self::Committed => "policy:committed",
            Self::PolicyCancelled => "policy:cancelled",
            Self::PolicyDismissed => "policy:dismissed",
            Self::AckRefused => "ack:refused",
        }
    }

    /// The kind with this name; `None` for one a newer version knows.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.as_str() == text)
    }
}

impl Body {
    /// Which kind of event this is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::SessionStarted(_) => Kind::SessionStarted,
            Self::TurnStarted(_) => Kind::TurnStarted,
            Self::TurnEnded(_) => Kind::TurnEnded,
            Self::InputAwaited(_) => Kind::InputAwaited,
            Self::InputAnswered(_) => Kind::InputAnswered,
            Self::Prompted(_) => Kind::Prompted,
            Self::Stopping(_) => Kind::Stopping,
            Self::SessionExited(_) => Kind::SessionExited,
            Self::CommandDone(_) => Kind::CommandDone,
            Self::PolicyAttached(_) => Kind::PolicyAttached,
            Self::PolicyAdopted(_) => Kind::PolicyAdopted,
            Self::GatingStarted(_) => Kind::GatingStarted,
            Self::GatingQueued(_) => Kind::GatingQueued,
            Self::Nudged(_) => Kind::Nudged,
            Self::GatePassed(_) => Kind::GatePassed,
            Self::PolicyFailed(_) => Kind::PolicyFailed,
            Self::CommitReady(_) => Kind::CommitReady,
            Self::PolicyAcked(_) => Kind::PolicyAcked,
            Self::Committed(_) => Kind::Committed,
            Self::PolicyCancelled(_) => Kind::PolicyCancelled,
            Self::PolicyDismissed(_) => Kind::PolicyDismissed,
            Self::AckRefused(_) => Kind::AckRefused,
        }
    }
}

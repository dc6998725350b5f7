//! Sessions: one agent at work in one worktree. Facts are kept apart, never folded into one word.

use super::{
    ids::{PolicyId, SessionId},
    oid::Oid,
    time::Timestamp,
};
use serde::{Deserialize, Serialize};

/// Why a turn ended (spec journal-and-waiting, Kinds).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// The agent finished by itself.
    Completed,
    /// Cancelled by a person or program.
    Cancelled,
    /// Interrupted.
    Interrupted,
    /// A usage limit.
    Limit,
    /// The model's output limit.
    MaxTokens,
    /// The model refused.
    Refusal,
    /// An error.
    Error,
    /// Nobody knows.
    Unknown,
}

impl EndReason {
    /// Every reason, in the order of the specification.
    pub const ALL: [Self; 8] = [
        Self::Completed,
        Self::Cancelled,
        Self::Interrupted,
        Self::Limit,
        Self::MaxTokens,
        Self::Refusal,
        Self::Error,
        Self::Unknown,
    ];

    /// The word used in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
            Self::Limit => "limit",
            Self::MaxTokens => "max-tokens",
            Self::Refusal => "refusal",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }
}

/// What tells that a turn which ended well is not finished all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loose {
    /// Tasks of the agent that go on in the background, as it declared them.
    #[serde(default, skip_serializing_if = "is_none")]
    pub background: u32,
    /// The agent said and did nothing in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
}

impl Loose {
    /// Nothing is left open.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::default()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_none(n: &u32) -> bool {
    *n == 0
}

/// What is known of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Process {
    /// Nobody told us: somebody else runs it.
    Unknown,
    /// We started it, and it was not seen to end.
    Alive,
    /// Its last run is over, the next prompt starts another one.
    Idle,
    /// Over.
    Exited(Exit),
}

/// How we talk to an agent that we start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adapter {
    /// Any command: one run of it is one turn.
    Process,
}

impl Adapter {
    /// The word used everywhere.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
        }
    }
}

/// An agent that we start ourselves, as a person typed it: no absolute path of ours, nothing of its environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Launch {
    /// How we talk to it.
    pub adapter: Adapter,
    /// Its words.
    pub argv: Vec<String>,
    /// It takes further prompts after a run that ended well, whoever asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reprompt: bool,
}

/// What a turn is begun with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Prompt {
    /// What a person said.
    Text(String),
    /// What a policy has to say about its red gates. The words are made when they are delivered: what gates print is
    /// never under a ref.
    Nudge {
        /// Whose gates.
        policy: PolicyId,
        /// Which run of them.
        attempt: u32,
    },
}

impl Prompt {
    /// The policy that says it.
    #[must_use]
    pub fn policy(&self) -> Option<&PolicyId> {
        match self {
            Self::Text(_) => None,
            Self::Nudge { policy, .. } => Some(policy),
        }
    }
}

/// How a session's process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(String),
    /// It could not be started.
    NotStarted,
    /// It is gone; how is not known.
    Unknown,
}

impl Exit {
    /// True for exit code 0 alone.
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == Self::Code(0)
    }
}

/// The state of the present turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Turn {
    /// No turn yet.
    None,
    /// At work.
    Running,
    /// Over.
    Ended {
        /// Why.
        reason: EndReason,
        /// Nobody said so; it follows from something else.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        inferred: bool,
        /// What is left open.
        #[serde(flatten)]
        loose: Loose,
        /// Number of the event that ended it.
        seq: u64,
    },
}

/// A question the agent waits on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenRequest {
    /// The agent's own name for it.
    pub id: String,
    /// `permission`, `question` or `plan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What it asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Answers offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// A `--key` already seen, with the event it made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenKey {
    /// The caller's key.
    pub key: String,
    /// Number of the event.
    pub seq: u64,
}

/// The whole state of a session: the document `open/<x>/<id>.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// Its id.
    pub session_id: SessionId,
    /// The name a person gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// git's own worktree id, `.` for the main one.
    pub worktree: String,
    /// Directory inside the worktree, relative to its root; `.` is the root.
    pub cwd: String,
    /// The commit it started from; absent on an unborn branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Oid>,
    /// Nobody named that commit, and files differed from it already: what the session changed cannot be told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dirty_base: bool,
    /// Made by `commit`: over when its policy is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own: bool,
    /// How we start it; absent when somebody else does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<Launch>,
    /// What the present turn was begun with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// Prompts that wait for a turn of their own, the next one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<Prompt>,
    /// The present run is to end, and the next prompt begins another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupting: bool,
    /// It is to end for good.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// Its process.
    pub process: Process,
    /// Number of the event that reported the exit; 0 before.
    #[serde(default)]
    pub exit_seq: u64,
    /// Number of the present turn; 0 before the first.
    pub turn: u64,
    /// What that turn does.
    pub turn_state: Turn,
    /// Number of the event that began the present turn; 0 when only its end was reported.
    #[serde(default)]
    pub turn_began: u64,
    /// Number of the event that ended the last turn that is over; 0 before.
    #[serde(default)]
    pub turn_ended: u64,
    /// Questions without an answer. An exit answers none: who died with a question open did not finish.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_requests: Vec<OpenRequest>,
    /// Policies not over yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyId>,
    /// The last keys of `session report`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<SeenKey>,
    /// When it was registered.
    pub since: Timestamp,
    /// Number of its last event.
    pub last: u64,
}

impl Session {
    /// Over for good.
    #[must_use]
    pub fn is_exited(&self) -> bool {
        match self.process {
            Process::Unknown | Process::Alive | Process::Idle => false,
            Process::Exited(_) => true,
        }
    }

    /// True while it can be given a prompt: we started it, and it is not over.
    #[must_use]
    pub fn takes_prompts(&self) -> bool {
        self.launch.is_some() && !self.is_exited() && !self.stopping
    }

    /// Number of the event by which this session counts as finished (spec policies, Finished), if it does.
    #[must_use]
    pub fn finished_at(&self) -> Option<u64> {
        if let Process::Exited(exit) = &self.process
            && exit.is_success()
        {
            return Some(self.exit_seq);
        }
        match self.turn_state {
            Turn::Ended { reason: EndReason::Completed, inferred: false, loose, seq }
                if self.open_requests.is_empty() && loose.is_none() =>
            {
                Some(seq)
            }
            Turn::Ended { .. } | Turn::None | Turn::Running => None,
        }
    }

    /// Number of the event by which its present turn, or its process, ended, however it did.
    #[must_use]
    pub fn ended_at(&self) -> Option<u64> {
        match (&self.process, &self.turn_state) {
            (Process::Exited(_), _) => Some(self.exit_seq),
            (_, Turn::Ended { seq, .. }) => Some(*seq),
            (_, Turn::None | Turn::Running) => None,
        }
    }

    /// Number of the last turn-end; 0 when a turn runs or none ended.
    #[must_use]
    pub fn turn_end_seq(&self) -> u64 {
        match self.turn_state {
            Turn::Ended { seq, .. } => seq,
            Turn::None | Turn::Running => 0,
        }
    }
}

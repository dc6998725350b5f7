//! Inputs: what was observed or asked, before anything is decided.

use super::{
    ack::AckStatement,
    event::{PolicyAdopted, SessionStarted},
    gate::GateResult,
    ids::{PolicyId, SessionId},
    oid::Oid,
    policy::{AckRecord, Candidate, PolicySpec, Unsigned},
    session::{EndReason, Exit, Loose, OpenRequest, Prompt},
    time::Timestamp,
};
use crate::code::Code;

/// What the engine is asked to judge.
#[derive(Clone, Debug)]
pub enum Input {
    /// An agent is to be started, whose first turn begins with a prompt or without one.
    SessionLaunched {
        /// Its fresh id.
        session: SessionId,
        /// What is known of it.
        started: SessionStarted,
        /// What its first turn begins with.
        prompt: Option<Prompt>,
        /// Living sessions of the same worktree.
        busy: Vec<SessionId>,
        /// A policy on it, from its beginning on.
        policy: Option<(PolicyId, PolicySpec)>,
    },
    /// Whoever runs an agent begins its next turn.
    TurnBegun {
        /// Whose.
        session: SessionId,
    },
    /// A run of an agent that we started is over.
    RunEnded {
        /// Whose.
        session: SessionId,
        /// Which turn it was.
        turn: u64,
        /// How it ended.
        end: AgentEnd,
    },
    /// A session is to be told something.
    PromptAsked {
        /// Which.
        session: SessionId,
        /// What.
        text: String,
        /// When it is at work.
        when_busy: WhenBusy,
        /// The caller's idempotence key.
        key: Option<String>,
    },
    /// A session that we started is to end.
    StopAsked {
        /// Which.
        session: SessionId,
        /// Why.
        because: Option<String>,
    },
    /// No gate may begin now: as many as may run at once run already.
    NoSlot {
        /// Whose.
        policy: PolicyId,
        /// Which run of its gates.
        attempt: u32,
    },
    /// What waited for its turn to be gated has it.
    SlotFree {
        /// Whose.
        policy: PolicyId,
    },
    /// Somebody else's session is to be registered.
    SessionAdopted {
        /// Its fresh id.
        session: SessionId,
        /// What is known of it.
        started: SessionStarted,
    },
    /// A session's agent (or its caller) reported something.
    Reported {
        /// Which session.
        session: SessionId,
        /// What.
        report: Report,
        /// The caller's idempotence key.
        key: Option<String>,
    },
    /// A policy is to be attached.
    PolicyAsked {
        /// Its fresh id.
        policy: PolicyId,
        /// What is asked for; `base` is filled in by the engine.
        spec: PolicySpec,
        /// What it covers.
        covers: Covers,
    },
    /// A policy of another clone is to be taken over, with its sessions.
    PolicyAdopted {
        /// Which.
        policy: PolicyId,
        /// All that is recorded of it, but for what the place in this journal decides.
        adopted: Box<PolicyAdopted>,
    },
    /// `commit`: a session of its own, its turn ended, and a policy on it, all at once.
    CommitAsked {
        /// Fresh id of the session.
        session: SessionId,
        /// What is known of it.
        started: SessionStarted,
        /// Fresh id of the policy.
        policy: PolicyId,
        /// What is asked for.
        spec: PolicySpec,
    },
    /// The gates of an attempt ended.
    GatesEnded {
        /// Whose.
        policy: PolicyId,
        /// Which attempt.
        attempt: u32,
        /// With what.
        run: GateRun,
    },
    /// What waited for a signature has it.
    CommitSigned {
        /// Whose.
        policy: PolicyId,
        /// What was to be signed.
        unsigned: Oid,
        /// What came of it.
        candidate: Candidate,
    },
    /// A signed line arrived.
    AckArrived {
        /// For which policy.
        policy: PolicyId,
        /// What is known of the line.
        ack: Box<JudgedAck>,
    },
    /// The branch holds the candidate.
    BranchMoved {
        /// Whose.
        policy: PolicyId,
    },
    /// The branch is not at the candidate's parent any more.
    TipMoved {
        /// Whose.
        policy: PolicyId,
        /// Where the branch is; none when it is gone.
        tip: Option<Oid>,
    },
    /// The time of a policy is over.
    TimeUp {
        /// Whose.
        policy: PolicyId,
    },
    /// The candidate can not land, or can no longer.
    LandingImpossible {
        /// Whose.
        policy: PolicyId,
        /// Why.
        code: Code,
        /// One sentence more.
        because: String,
    },
    /// A person stops a policy.
    CancelAsked {
        /// Which.
        policy: PolicyId,
        /// What the person said.
        because: Option<String>,
    },
    /// A person is done with a policy that is blocked.
    DismissAsked {
        /// Which.
        policy: PolicyId,
        /// What the person said.
        because: Option<String>,
    },
}

/// How a run of an agent ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentEnd {
    /// Of its main process.
    pub exit: Exit,
    /// Nobody saw it: who ran it is gone, and so is it.
    pub inferred: bool,
    /// Who ran it was interrupted, and ended it.
    pub interrupted: bool,
    /// One sentence more.
    pub because: Option<String>,
}

/// What becomes of a prompt for a session that is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenBusy {
    /// It is refused.
    Refuse,
    /// It waits.
    Queue,
    /// The present turn is ended for it.
    Interrupt,
}

/// What `session report` says.
#[derive(Clone, Debug)]
pub enum Report {
    /// A turn began.
    TurnStart {
        /// Its number, when the caller counts.
        turn: Option<u64>,
    },
    /// A turn ended.
    TurnEnd {
        /// Its number, when the caller counts.
        turn: Option<u64>,
        /// Why.
        reason: EndReason,
        /// What is left open.
        loose: Loose,
    },
    /// The agent asks.
    AwaitingInput {
        /// What.
        requests: Vec<OpenRequest>,
    },
    /// A question was answered.
    InputAnswered {
        /// Which; all of them when absent.
        id: Option<String>,
    },
    /// The process is gone.
    Exited {
        /// How.
        exit: Exit,
    },
    /// A command ran.
    CommandDone {
        /// Its words.
        argv: Vec<String>,
        /// Its exit code.
        code: Option<i32>,
    },
}

/// Which turn-ends a policy covers (spec policies, No lost turn).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Covers {
    /// The last one if the session is idle, and what comes.
    LastAndNext,
    /// Only what comes.
    Next,
    /// What came after this event number.
    After(u64),
}

/// How a run of all gates of a policy ended.
#[derive(Clone, Debug)]
pub struct GateRun {
    /// What each gate said, up to the first that did not pass.
    pub results: Vec<GateResult>,
    /// Runs thrown away.
    pub voided: u32,
    /// Commit that an `emit` policy's lines are noted on.
    pub noted_on: Option<Oid>,
    /// What follows.
    pub end: RunEnd,
}

/// What a run of gates leads to.
#[derive(Clone, Debug)]
pub enum RunEnd {
    /// All green, an `emit` policy.
    Green,
    /// All green, and there is something to commit.
    Ready(Candidate),
    /// All green, and what is to be committed waits for a person to sign it.
    Unsigned(Unsigned),
    /// All green, and there is nothing to commit.
    NoChange,
    /// A clear no.
    Red {
        /// Code of why.
        code: Code,
        /// One sentence more.
        because: Option<String>,
    },
    /// The branch moved while they ran: what they said is about a commit that has another parent by now.
    Moved {
        /// One sentence more.
        because: String,
    },
    /// The time of the policy was over before they ended.
    OutOfTime,
    /// It could not be told.
    Broken {
        /// Code of why.
        code: Code,
        /// One sentence more.
        because: Option<String>,
    },
}

/// A line somebody signed, with what was found out about it outside the engine.
#[derive(Clone, Debug)]
pub struct JudgedAck {
    /// The line as it came.
    pub line: String,
    /// What it says; the reason when it is no ack line.
    pub statement: Result<AckStatement, String>,
    /// What its signature is worth.
    pub signature: Signature,
    /// This repository's id.
    pub repo: String,
    /// The request it answers, as this clone's journal knows it; none when it does not.
    pub asked: Option<Asked>,
    /// Approvals by distinct keys that the rules require now.
    pub quorum: u32,
    /// Digest over the gate lines of the green attempt.
    pub gates: String,
    /// Where the policy's branch is now.
    pub tip: Option<Oid>,
    /// Now.
    pub at: Timestamp,
}

/// A `policy:commit-ready` event that a line answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whose request it was.
    pub policy: PolicyId,
    /// Number of the event.
    pub seq: u64,
    /// It got all the answers it needs.
    pub answered: bool,
}

/// What a signature is worth.
#[derive(Clone, Debug)]
pub enum Signature {
    /// Made by an allowed signer; the record to keep.
    Good(AckRecord),
    /// Does not fit what it signs.
    Forged(String),
    /// Made by somebody who may not.
    Unauthorized(String),
}

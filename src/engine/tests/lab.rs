//! A journal in memory, and short ways to say what happens in it.

use crate::{
    code::Code,
    domain::{
        ack::{AckStatement, Decision as Answer},
        event::{Entity, Recorded, SessionStarted},
        gate::{GateEnd, GateResult, Verdict},
        ids::{PolicyId, SessionId},
        input::{AgentEnd, Asked, Covers, GateRun, Input, JudgedAck, Report, RunEnd, Signature},
        oid::Oid,
        path::RepoPath,
        policy::{
            AckRecord, Candidate, CommitSpec, OnEnd, OnFail, OnStale, Policy, PolicySpec, Then,
            Unsigned,
        },
        session::{Adapter, EndReason, Exit, Launch, Loose, Session},
        time::Timestamp,
    },
    engine::{Decision, ENGINE, Effect, Illegal, Now, State, Stepped, decide, due, step},
};

pub(super) const BRANCH: &str = "refs/heads/main";
/// Number of the event by which policy 1 of `policy_in` asks for an ack.
pub(super) const REQUEST_SEQ: u64 = 6;
pub(super) const REPO: &str = "0101010101010101010101010101010101010101";
const START_MS: i64 = 1_700_000_000_000;

/// A journal with the state after its last event.
#[derive(Clone, Default)]
pub(super) struct World {
    pub(super) state: State,
    pub(super) log: Vec<Recorded>,
    /// The clock; a minute into the story when nobody set it.
    pub(super) now: Option<Timestamp>,
}

pub(super) fn ses(n: usize) -> SessionId {
    format!("ses_{n:026}").parse().unwrap()
}

pub(super) fn pol(n: usize) -> PolicyId {
    format!("pol_{n:026}").parse().unwrap()
}

pub(super) fn oid(n: u8) -> Oid {
    Oid::from_sha1([n; 20])
}

/// An instant this many seconds into the story.
pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_ms(START_MS).plus_ms(seconds * 1000)
}

pub(super) fn candidate() -> Candidate {
    Candidate { commit: oid(0xc0), tree: oid(0x7e), parent: oid(0xba) }
}

/// The candidate before it was signed.
pub(super) fn unsigned() -> Unsigned {
    let candidate = Candidate { commit: oid(0xc1), ..candidate() };
    Unsigned { candidate, because: "nobody typed the passphrase".into() }
}

pub(super) fn started() -> SessionStarted {
    SessionStarted {
        label: None,
        worktree: ".".into(),
        cwd: ".".into(),
        base: Some(oid(0xba)),
        dirty_base: false,
        own: false,
        launch: None,
    }
}

/// What is asked for, of sessions by number.
pub(super) fn spec(then: Then, sessions: &[usize]) -> PolicySpec {
    let commit = CommitSpec {
        paths: vec![RepoPath::new(b"a.txt").unwrap()],
        message: "change\n".into(),
        require_human_ack: true,
        branch: BRANCH.into(),
        allow_markers: false,
        force_ignored: false,
        allow_submodule: false,
        detached_ok: false,
        ack_quorum: 1,
        ack_exclude: vec![],
    };
    PolicySpec {
        label: None,
        session_ids: sessions.iter().map(|n| ses(*n)).collect(),
        gate_session: None,
        then,
        gates: vec![],
        commit: (then == Then::Commit).then_some(commit),
        base: 0,
        on_stale: OnStale::Regate,
        on_end: OnEnd::Finished,
        on_fail: None,
        end_session: false,
        expires: None,
        again: None,
        next: None,
    }
}

pub(super) fn result(verdict: Verdict) -> GateResult {
    GateResult {
        index: 0,
        hook: None,
        verdict,
        reason: None,
        because: None,
        end: GateEnd::Exit(0),
        signals: vec![],
        duration_ms: 5,
        log: None,
        unlisted_changes: 0,
        beside: vec![],
        left_behind: 0,
        line: Some("a line".into()),
    }
}

pub(super) fn run(end: RunEnd) -> GateRun {
    GateRun { results: vec![result(Verdict::Pass)], voided: 0, noted_on: None, end }
}

/// A statement that answers the request of policy 1.
pub(super) fn statement(decision: Answer) -> AckStatement {
    AckStatement {
        decision,
        repo: REPO.into(),
        policy: pol(1),
        request: oid(0x4e),
        candidate: candidate().commit,
        parent: candidate().parent,
        tree: candidate().tree,
        branch: BRANCH.into(),
        gates: "9a".repeat(32),
        signer: "ada@example.invalid".into(),
        key: "SHA256:ada".into(),
        issued: at(0),
        expires: at(3600),
        reason: String::new(),
    }
}

/// A good line with this statement, as it is judged when everything fits.
pub(super) fn judged(said: AckStatement) -> JudgedAck {
    let line = format!("{said:?}");
    let asked = (said.request == oid(0x4e)).then(|| Asked {
        policy: pol(1),
        seq: REQUEST_SEQ,
        answered: false,
    });
    let record = AckRecord {
        decision: said.decision,
        line: line.clone(),
        signer: "ada@example.invalid".into(),
        key: "SHA256:ada".into(),
        signers: "repo-user".into(),
        signers_digest: "5d".repeat(32),
        at: at(60),
    };
    JudgedAck {
        line,
        statement: Ok(said),
        signature: Signature::Good(record),
        repo: REPO.into(),
        asked,
        quorum: 1,
        gates: "9a".repeat(32),
        tip: Some(candidate().parent),
        at: at(60),
    }
}

pub(super) fn ack(policy: usize, decision: Answer) -> Input {
    let said = AckStatement { policy: pol(policy), ..statement(decision) };
    let ack = JudgedAck { asked: asked(policy, REQUEST_SEQ), ..judged(said) };
    Input::AckArrived { policy: pol(policy), ack: Box::new(ack) }
}

/// The request of a policy.
pub(super) fn asked(policy: usize, seq: u64) -> Option<Asked> {
    Some(Asked { policy: pol(policy), seq, answered: false })
}

pub(super) fn end_turn(reason: EndReason) -> Report {
    Report::TurnEnd { turn: None, reason, loose: Loose::default() }
}

impl World {
    /// Session 1 is registered.
    pub(super) fn new() -> Self {
        let mut world = Self::default();
        world.adopt(1);
        world
    }

    /// Asks, records what is decided, and says which kinds of events that were: `a+b`, or `already N`.
    pub(super) fn ask(&mut self, input: Input) -> Result<String, Code> {
        let next_seq = self.log.len() as u64 + 1;
        let now = Now { at: self.now.unwrap_or_else(|| at(60)), next_seq };
        let events = match decide(&self.state, input, now).map_err(|refusal| refusal.code)? {
            Decision::Append(events) => events,
            Decision::Already(seq) => return Ok(format!("already {seq}")),
        };
        let mut kinds = Vec::new();
        for (seq, event) in (next_seq..).zip(events) {
            kinds.push(event.body.kind().as_str());
            let recorded = recorded(seq, event);
            let stepped = step(&self.state, &recorded).unwrap();
            assert_effects_are_due(&self.state, &stepped, &recorded.event.subject);
            self.state = stepped.state;
            self.log.push(recorded);
        }
        Ok(kinds.join("+"))
    }

    /// As [`World::ask`], in one string: the code of a refusal, too.
    pub(super) fn answer(&mut self, input: Input) -> String {
        self.ask(input).unwrap_or_else(|code| code.as_str().to_owned())
    }

    pub(super) fn adopt(&mut self, session: usize) {
        self.ask(Input::SessionAdopted { session: ses(session), started: started() }).unwrap();
    }

    /// Asks for an agent that we start, with a policy on it or without.
    pub(super) fn launch(&mut self, session: usize, policy: Option<PolicySpec>) -> String {
        let argv = vec!["agent".to_owned()];
        let launch = Some(Launch { adapter: Adapter::Process, argv, reprompt: false });
        let policy = policy.map(|spec| (pol(session), spec));
        self.answer(Input::SessionLaunched {
            session: ses(session),
            started: SessionStarted { launch, ..started() },
            prompt: None,
            busy: vec![],
            policy,
        })
    }

    /// A run of an agent that we started begins and ends so.
    pub(super) fn run_of(&mut self, session: usize, exit: Exit) -> String {
        let begun = self.answer(Input::TurnBegun { session: ses(session) });
        format!("{begun}; {}", self.ended(session, exit))
    }

    /// The run that goes on ends so.
    pub(super) fn ended(&mut self, session: usize, exit: Exit) -> String {
        let end = AgentEnd { exit, inferred: false, interrupted: false, because: None };
        let turn = self.session(session).turn;
        self.answer(Input::RunEnded { session: ses(session), turn, end })
    }

    pub(super) fn report(&mut self, session: usize, report: Report) -> String {
        self.answer(Input::Reported { session: ses(session), report, key: None })
    }

    pub(super) fn keyed(&mut self, report: Report, key: &str) -> String {
        self.answer(Input::Reported { session: ses(1), report, key: Some(key.into()) })
    }

    pub(super) fn attach(&mut self, policy: usize, spec: PolicySpec, covers: Covers) -> String {
        self.answer(Input::PolicyAsked { policy: pol(policy), spec, covers })
    }

    pub(super) fn gates(&mut self, policy: usize, end: RunEnd) -> String {
        self.answer(Input::GatesEnded { policy: pol(policy), attempt: 1, run: run(end) })
    }

    /// Runs the gates of the present attempt to a new candidate on this parent; answers it.
    pub(super) fn regated(&mut self, parent: u8) -> Candidate {
        let attempt = self.policy(1).attempt;
        let candidate = Candidate { commit: oid(parent + 1), tree: oid(0x7e), parent: oid(parent) };
        let run = run(RunEnd::Ready(candidate));
        self.ask(Input::GatesEnded { policy: pol(1), attempt, run }).unwrap();
        candidate
    }

    pub(super) fn policy(&self, n: usize) -> &Policy {
        &self.state.policies[&pol(n)]
    }

    pub(super) fn session(&self, n: usize) -> &Session {
        &self.state.sessions[&ses(n)]
    }

    pub(super) fn last_seq(&self) -> u64 {
        self.log.len() as u64
    }

    /// Applies an event nobody decided.
    pub(super) fn force(&self, event: crate::domain::event::Event) -> Result<Stepped, Illegal> {
        step(&self.state, &recorded(self.last_seq() + 1, event))
    }
}

fn recorded(seq: u64, event: crate::domain::event::Event) -> Recorded {
    Recorded { seq, at: at(60), actor: "cli".into(), prev: None, engine: ENGINE, event }
}

/// A policy in one of its states, reached by asking: the words of the tables.
pub(super) fn policy_in(state: &str) -> World {
    if state == "nudging" {
        return nudging();
    }
    let mut world = World::new();
    if state == "unknown" {
        return world;
    }
    world.attach(1, spec(Then::Commit, &[1]), Covers::LastAndNext);
    if state == "watching" {
        return world;
    }
    world.report(1, end_turn(EndReason::Completed));
    if state == "gating" {
        return world;
    }
    if state == "queued" {
        world.ask(Input::NoSlot { policy: pol(1), attempt: 1 }).unwrap();
        return world;
    }
    if state == "blocked" {
        world.gates(1, RunEnd::Red { code: Code::GateRed, because: None });
        return world;
    }
    if state == "signing" {
        world.gates(1, RunEnd::Unsigned(unsigned()));
        return world;
    }
    world.gates(1, RunEnd::Ready(candidate()));
    match state {
        "awaiting-ack" => {}
        "cancelled" => drop(world.ask(ack(1, Answer::Reject)).unwrap()),
        "committing" | "done" => drop(world.ask(ack(1, Answer::Approve)).unwrap()),
        other => panic!("no state {other}"),
    }
    if state == "done" {
        world.ask(Input::BranchMoved { policy: pol(1) }).unwrap();
    }
    world
}

/// A policy whose gates were red, on an agent that we start.
fn nudging() -> World {
    let on_fail = Some(OnFail { nudge: None, max_retries: 2, reprompt: true });
    let mut world = World::default();
    world.launch(1, Some(PolicySpec { on_fail, ..spec(Then::Commit, &[1]) }));
    world.run_of(1, Exit::Code(0));
    world.gates(1, RunEnd::Red { code: Code::GateRed, because: None });
    world
}

/// What a step asks for is what the state after it makes due; killing what nobody wants any more comes on top.
fn assert_effects_are_due(before: &State, stepped: &Stepped, subject: &Entity) {
    let Entity::Policy(id) = subject else {
        assert_eq!(stepped.effects, [], "{subject}");
        return;
    };
    let was = before.policies.get(id).map_or("unknown", |p| p.status.as_str());
    let policy = &stepped.state.policies[id];
    let due = due(policy);
    for effect in &stepped.effects {
        let killing = matches!(effect, Effect::KillGates { .. });
        let ended =
            policy.status.as_str() == "cancelled" || policy.reason.as_deref() == Some("expired");
        let stopped = was == "gating" && ended;
        assert!(if killing { stopped } else { due.contains(effect) }, "{was}: {effect:?}");
    }
}

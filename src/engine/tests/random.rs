//! Random stories: whatever is asked in whatever order, what must always hold holds.

use super::lab::{
    World, asked, at, candidate, judged, oid, pol, run, ses, spec, started, statement, unsigned,
};
use crate::{
    code::Code,
    domain::{
        ack::{AckStatement, Decision},
        event::{Body, Entity, Kind, Recorded, SessionStarted},
        ids::PolicyId,
        input::{AgentEnd, Covers, Input, JudgedAck, Report, RunEnd, Signature, WhenBusy},
        policy::{OnEnd, OnFail, OnStale, Outcome, Policy, PolicySpec, Status, Then},
        session::{
            Adapter, EndReason, Exit, Launch, Loose, OpenRequest, Process, Prompt, Session, Turn,
        },
    },
    engine::{Member, State},
    limits,
};
use proptest::prelude::*;

const SESSIONS: usize = 3;
const POLICIES: usize = 5;

/// One thing asked, in numbers that shrink well.
#[derive(Clone, Debug)]
enum Ask {
    Adopt(usize),
    Report(usize, Report, Option<u8>),
    Attach {
        members: Vec<usize>,
        then: Then,
        ack: bool,
        block: bool,
        expires: Option<u8>,
        covers: Covers,
        turns: Turns,
    },
    Launch(usize, bool),
    Begin(usize),
    Ended(usize, Exit, bool),
    Prompt(usize, WhenBusy),
    Stop(usize),
    NoSlot(usize),
    SlotFree(usize),
    Commit(usize),
    Gates {
        policy: usize,
        attempt: u32,
        end: RunEnd,
    },
    Ack {
        policy: usize,
        decision: Decision,
        key: u8,
        quorum: u32,
        wrong: u8,
    },
    Signed(usize, bool),
    Moved(usize),
    Impossible(usize),
    Away(usize, u8),
    Late(usize),
    Clock(u8),
    Cancel(usize),
}

/// What the end of a turn leads to.
#[derive(Clone, Copy, Debug)]
struct Turns {
    gate: bool,
    retries: u32,
    reprompt: bool,
    end_session: bool,
}

impl Turns {
    fn put_into(self, spec: &mut PolicySpec) {
        let Self { gate, retries, reprompt, end_session } = self;
        let told = OnFail { nudge: None, max_retries: retries, reprompt };
        spec.on_end = if gate { OnEnd::Gate } else { OnEnd::Finished };
        spec.on_fail = (retries > 0).then_some(told);
        spec.end_session = end_session;
    }
}

fn turns() -> impl Strategy<Value = Turns> {
    (prop::bool::weighted(0.2), 0u32..3, any::<bool>(), prop::bool::weighted(0.3)).prop_map(
        |(gate, retries, reprompt, end_session)| Turns { gate, retries, reprompt, end_session },
    )
}

fn exit() -> impl Strategy<Value = Exit> {
    prop_oneof![
        6 => Just(Exit::Code(0)),
        1 => Just(Exit::Code(1)),
        1 => Just(Exit::NotStarted),
        1 => Just(Exit::Unknown),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let turn = || prop::option::weighted(0.5, 0u64..5);
    let request =
        |id: u8| OpenRequest { id: id.to_string(), kind: None, text: None, options: vec![] };
    let reason = prop_oneof![4 => Just(EndReason::Completed), 1 => Just(EndReason::Error)];
    let exit = prop_oneof![(0i32..2).prop_map(Exit::Code), Just(Exit::Unknown)];
    prop_oneof![
        4 => turn().prop_map(|turn| Report::TurnStart { turn }),
        8 => (turn(), reason, prop::bool::weighted(0.1)).prop_map(|(turn, reason, empty)| {
            Report::TurnEnd { turn, reason, loose: Loose { background: 0, empty } }
        }),
        1 => (0u8..3).prop_map(move |id| Report::AwaitingInput { requests: vec![request(id)] }),
        1 => prop::option::of(0u8..3)
            .prop_map(|id| Report::InputAnswered { id: id.map(|n| n.to_string()) }),
        1 => exit.prop_map(|exit| Report::Exited { exit }),
        1 => Just(Report::CommandDone { argv: vec![], code: Some(0) }),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let policy = || 0..POLICIES;
    let members = prop::sample::subsequence(vec![0, 1, 2], 1..=SESSIONS);
    let then = prop_oneof![Just(Then::Emit), Just(Then::Commit)];
    let covers = prop_oneof![
        Just(Covers::LastAndNext),
        Just(Covers::Next),
        (0u64..20).prop_map(Covers::After),
    ];
    let end = prop_oneof![
        2 => Just(RunEnd::Green),
        1 => Just(RunEnd::NoChange),
        6 => Just(RunEnd::Ready(candidate())),
        3 => Just(RunEnd::Unsigned(unsigned())),
        1 => Just(RunEnd::Moved { because: "it moved".into() }),
        3 => Just(RunEnd::Red { code: Code::GateRed, because: None }),
        1 => Just(RunEnd::Broken { code: Code::RunnerFailed, because: None }),
    ];
    let when_busy =
        prop_oneof![Just(WhenBusy::Refuse), Just(WhenBusy::Queue), Just(WhenBusy::Interrupt)];
    let decision = prop_oneof![3 => Just(Decision::Approve), 1 => Just(Decision::Reject)];
    prop_oneof![
        2 => (0..SESSIONS).prop_map(Ask::Adopt),
        8 => (0..SESSIONS, report(), prop::option::weighted(0.3, 0u8..4))
            .prop_map(|(s, report, key)| Ask::Report(s, report, key)),
        4 => (members, then, any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 60u8..80), covers, turns())
            .prop_map(|(members, then, ack, block, expires, covers, turns)| {
                Ask::Attach { members, then, ack, block, expires, covers, turns }
            }),
        3 => (0..SESSIONS, any::<bool>()).prop_map(|(s, again)| Ask::Launch(s, again)),
        8 => (0..SESSIONS).prop_map(Ask::Begin),
        8 => (0..SESSIONS, exit(), prop::bool::weighted(0.1)).prop_map(|(s, e, i)| Ask::Ended(s, e, i)),
        2 => (0..SESSIONS, when_busy).prop_map(|(s, when)| Ask::Prompt(s, when)),
        1 => (0..SESSIONS).prop_map(Ask::Stop),
        1 => policy().prop_map(Ask::NoSlot),
        2 => policy().prop_map(Ask::SlotFree),
        1 => (0..SESSIONS).prop_map(Ask::Commit),
        6 => (policy(), prop_oneof![4 => Just(0u32), 1 => Just(2)], end)
            .prop_map(|(policy, attempt, end)| Ask::Gates { policy, attempt, end }),
        9 => (policy(), decision, 0u8..3, 1u32..4, 0u8..12)
            .prop_map(|(policy, decision, key, quorum, wrong)| {
                Ask::Ack { policy, decision, key, quorum, wrong }
            }),
        6 => (policy(), prop::bool::weighted(0.9)).prop_map(|(p, that)| Ask::Signed(p, that)),
        3 => policy().prop_map(Ask::Moved),
        1 => policy().prop_map(Ask::Impossible),
        3 => (policy(), 0u8..8).prop_map(|(policy, tip)| Ask::Away(policy, tip)),
        1 => policy().prop_map(Ask::Late),
        1 => (60u8..80).prop_map(Ask::Clock),
        1 => policy().prop_map(Ask::Cancel),
    ]
}

/// The input, unless it would use an id twice (ids are fresh by construction) or end a run in a way that its
/// policy is not for.
fn input(ask: Ask, state: &State) -> Option<Input> {
    let fresh = (0..POLICIES).map(pol).find(|id| !state.policies.contains_key(id));
    Some(match ask {
        Ask::Adopt(n) => {
            let session = Some(ses(n)).filter(|id| !state.sessions.contains_key(id))?;
            Input::SessionAdopted { session, started: started() }
        }
        Ask::Report(n, report, key) => {
            Input::Reported { session: ses(n), report, key: key.map(|k| k.to_string()) }
        }
        Ask::Launch(..)
        | Ask::Begin(_)
        | Ask::Ended(..)
        | Ask::Prompt(..)
        | Ask::Stop(_)
        | Ask::NoSlot(_)
        | Ask::SlotFree(_) => input_of_agents(ask, state)?,
        Ask::Attach { members, then, ack, block, expires, covers, turns } => {
            let mut spec = spec(then, &members);
            turns.put_into(&mut spec);
            spec.on_stale = if block { OnStale::Block } else { OnStale::Regate };
            spec.expires = expires.map(|seconds| at(seconds.into()));
            if let Some(commit) = &mut spec.commit {
                commit.require_human_ack = ack;
            }
            Input::PolicyAsked { policy: fresh?, spec, covers }
        }
        Ask::Commit(n) => {
            let session = Some(ses(n)).filter(|id| !state.sessions.contains_key(id))?;
            let started = SessionStarted { own: true, ..started() };
            Input::CommitAsked { session, started, policy: fresh?, spec: spec(Then::Commit, &[n]) }
        }
        Ask::Gates { policy, attempt, end } => {
            let then = state.policies.get(&pol(policy)).map_or(Then::Commit, |p| p.spec.then);
            let green = matches!(end, RunEnd::Green);
            let changes = matches!(
                end,
                RunEnd::NoChange | RunEnd::Ready(_) | RunEnd::Unsigned(_) | RunEnd::Moved { .. }
            );
            let present = state.policies.get(&pol(policy)).map_or(1, |p| p.attempt);
            let attempt = if attempt == 0 { present } else { attempt };
            (if then == Then::Emit { !changes } else { !green }).then(|| Input::GatesEnded {
                policy: pol(policy),
                attempt,
                run: run(end),
            })?
        }
        Ask::Ack { policy, decision, key, quorum, wrong } => {
            answer_of(policy, (decision, key), quorum, wrong, state)
        }
        Ask::Signed(n, that) => Input::CommitSigned {
            policy: pol(n),
            unsigned: if that { unsigned().candidate.commit } else { oid(0xee) },
            candidate: candidate(),
        },
        Ask::Moved(n) => Input::BranchMoved { policy: pol(n) },
        Ask::Impossible(n) => Input::LandingImpossible {
            policy: pol(n),
            code: Code::StaleCandidate,
            because: "it moved".into(),
        },
        Ask::Away(n, tip) => Input::TipMoved { policy: pol(n), tip: Some(oid(tip)) },
        Ask::Late(n) => Input::TimeUp { policy: pol(n) },
        Ask::Clock(_) => return None,
        Ask::Cancel(n) => Input::CancelAsked { policy: pol(n), because: None },
    })
}

fn answer_of(
    policy: usize,
    (decision, key): (Decision, u8),
    quorum: u32,
    wrong: u8,
    state: &State,
) -> Input {
    let key = format!("SHA256:{key}");
    let said = AckStatement { policy: pol(policy), key, ..statement(decision) };
    let request = state.policies.get(&pol(policy)).and_then(|p| p.request_seq);
    let mut ack = judged(said.clone());
    if let Signature::Good(record) = &mut ack.signature {
        record.key = said.key;
    }
    // The same key may answer again in other words.
    ack.line.push_str(&format!(" {request:?} {wrong}"));
    (ack.asked, ack.quorum) = (asked(policy, request.unwrap_or(0)), quorum);
    Input::AckArrived { policy: pol(policy), ack: Box::new(spoilt(ack, wrong)) }
}

fn input_of_agents(ask: Ask, state: &State) -> Option<Input> {
    Some(match ask {
        Ask::Launch(n, reprompt) => {
            let session = Some(ses(n)).filter(|id| !state.sessions.contains_key(id))?;
            let argv = vec!["agent".to_owned()];
            let launch = Some(Launch { adapter: Adapter::Process, argv, reprompt });
            let started = SessionStarted { launch, ..started() };
            let (busy, prompt, policy) = (vec![], None, None);
            Input::SessionLaunched { session, started, prompt, busy, policy }
        }
        Ask::Begin(n) => Input::TurnBegun { session: ses(n) },
        Ask::Ended(n, exit, interrupted) => {
            let turn = state.sessions.get(&ses(n))?.turn;
            let inferred = exit == Exit::Unknown;
            let end = AgentEnd { exit, inferred, interrupted, because: None };
            Input::RunEnded { session: ses(n), turn, end }
        }
        Ask::Prompt(n, when_busy) => {
            Input::PromptAsked { session: ses(n), text: "go on".into(), when_busy, key: None }
        }
        Ask::Stop(n) => Input::StopAsked { session: ses(n), because: None },
        Ask::NoSlot(n) => {
            let attempt = state.policies.get(&pol(n))?.attempt;
            Input::NoSlot { policy: pol(n), attempt }
        }
        Ask::SlotFree(n) => Input::SlotFree { policy: pol(n) },
        Ask::Adopt(_)
        | Ask::Report(..)
        | Ask::Attach { .. }
        | Ask::Commit(_)
        | Ask::Gates { .. }
        | Ask::Ack { .. }
        | Ask::Signed(..)
        | Ask::Moved(_)
        | Ask::Impossible(_)
        | Ask::Away(..)
        | Ask::Late(_)
        | Ask::Clock(_)
        | Ask::Cancel(_) => return None,
    })
}

fn spoilt(ack: JudgedAck, wrong: u8) -> JudgedAck {
    match wrong {
        0 => JudgedAck { signature: Signature::Forged("x".into()), ..ack },
        1 => JudgedAck { tip: Some(oid(1)), ..ack },
        2 => JudgedAck { statement: Err("x".into()), ..ack },
        3 => JudgedAck { at: at(9999), ..ack },
        _ => ack,
    }
}

/// What holds after every step, of the state and of the events that made it.
fn check(world: &World) {
    for session in world.state.sessions.values() {
        check_session(world, session);
    }
    for policy in world.state.policies.values() {
        check_policy(world, policy);
    }
}

fn kind_at(world: &World, seq: u64) -> Kind {
    world.log[usize::try_from(seq).unwrap() - 1].event.body.kind()
}

fn check_session(world: &World, session: &Session) {
    let mut open: Vec<_> = world
        .state
        .policies
        .values()
        .filter(|p| !p.status.is_terminal() && p.spec.session_ids.contains(&session.session_id))
        .map(|p| p.policy_id.clone())
        .collect();
    let mut listed = session.policies.clone();
    open.sort();
    listed.sort();
    assert_eq!(listed, open);
    if session.turn_began > 0 {
        assert_eq!(kind_at(world, session.turn_began), Kind::TurnStarted);
    }
    if session.turn_ended > 0 {
        assert_eq!(kind_at(world, session.turn_ended), Kind::TurnEnded);
    }
    if let Turn::Ended { seq, .. } = session.turn_state {
        assert_eq!(seq, session.turn_ended);
    }
    assert!(session.exit_seq == 0 || session.is_exited());
    check_launched(world, session);
    assert_last(world, session.last, &Entity::Session(session.session_id.clone()));
}

/// An agent that we start runs while its turn does, and is kept only for somebody who may tell it more.
fn check_launched(world: &World, session: &Session) {
    let Some(launch) = &session.launch else {
        assert!(matches!(session.process, Process::Unknown | Process::Exited(_)));
        return assert!(session.queue.is_empty() && session.prompt.is_none());
    };
    let runs = session.turn_state == Turn::Running;
    assert_eq!(session.process == Process::Alive, runs);
    assert!(runs || session.prompt.is_none() && !session.interrupting);
    let open = |id: &PolicyId| world.state.policies.get(id).filter(|p| !p.status.is_terminal());
    let told = session.queue.iter().filter_map(Prompt::policy);
    assert!(session.is_exited() || told.clone().all(|id| open(id).is_some()), "told by the dead");
    if session.process == Process::Idle {
        assert!(!session.stopping, "ended, and still there");
        let again = |p: &Policy| p.spec.on_fail.as_ref().is_some_and(|f| f.reprompt);
        let kept = session.policies.iter().filter_map(open).any(again);
        assert!(session.turn == 0 || launch.reprompt || !session.queue.is_empty() || kept);
    }
}

fn policy_events<'a>(
    world: &'a World,
    policy: &Policy,
) -> impl DoubleEndedIterator<Item = &'a Recorded> {
    let subject = Entity::Policy(policy.policy_id.clone());
    world.log.iter().filter(move |r| r.event.subject == subject)
}

fn assert_last(world: &World, last: u64, subject: &Entity) {
    let found = world.log.iter().rev().find(|r| r.event.subject == *subject).unwrap();
    assert_eq!(last, found.seq);
}

fn check_policy(world: &World, policy: &Policy) {
    let standing: Vec<Member> =
        world.state.standing(policy).into_iter().map(|(_, member)| member).collect();
    if policy.status == Status::Watching {
        assert!(standing.iter().any(|m| *m != Member::Finished), "a finished turn is lost");
        assert!(!standing.contains(&Member::Gone), "waits for somebody who is gone");
        assert_eq!(
            policy.pending.len(),
            standing.iter().filter(|m| **m != Member::Finished).count()
        );
    } else {
        assert!(policy.pending.is_empty() && policy.stalled_by.is_empty());
    }
    assert!(policy.regates <= limits::REGATES_MAX);
    assert!(policy.nudges <= policy.spec.on_fail.as_ref().map_or(0, |f| f.max_retries));
    if policy.status == Status::Nudging {
        let told = |id| world.state.is_told(id, policy);
        assert!(!policy.awaited().iter().all(told), "told, and waits for that");
    }
    let (there, needed) = (policy.approvals(), policy.approvals_needed());
    let approvals = policy.acks.iter().filter(|a| a.decision == Decision::Approve).count();
    assert_eq!(u32::try_from(approvals), Ok(there), "a key that counts twice");
    assert!(policy.acks.len() <= approvals + 1 && there <= needed);
    if policy.status == Status::AwaitingAck {
        assert!(there < needed && policy.acks.len() == approvals, "answered, and still waits");
    }
    let landed = policy.outcome == Some(Outcome::Committed);
    assert_eq!(landed, policy.commit_sha.is_some());
    if landed || policy.status == Status::Committing {
        let asked = policy.spec.needs_ack();
        let enough = if asked { there == needed } else { there == 0 };
        assert!(enough, "landed without the answers it needs");
        assert!(policy.green && policy.candidate.is_some());
    }
    if let Some(seq) = policy.request_seq {
        assert_eq!(kind_at(world, seq), Kind::CommitReady);
        let passed = policy_events(world, policy).rfind(|r| r.seq < seq).unwrap();
        assert_eq!(passed.event.body.kind(), Kind::GatePassed);
    }
    assert_eq!(policy.status == Status::Signing, policy.unsigned.is_some());
    if policy.status == Status::Signing {
        assert!(policy.green && policy.candidate.is_none() && policy.request_seq.is_none());
        assert_eq!(policy.reason.as_deref(), Some("signing-needs-person"));
    } else if !policy.status.is_terminal() {
        assert_eq!(policy.reason, None);
    }
    assert_eq!(policy.status == Status::Done, policy.outcome.is_some());
    assert_last(world, policy.last, &Entity::Policy(policy.policy_id.clone()));
}

/// Nothing that is over changes.
fn assert_over_stays_over(before: &State, after: &State) {
    for (id, policy) in &before.policies {
        if policy.status.is_terminal() {
            assert_eq!(after.policies.get(id), Some(policy));
        }
    }
    for (id, session) in &before.sessions {
        if session.is_exited() {
            let now = &after.sessions[id];
            assert_eq!(
                (&now.process, now.turn, &now.turn_state, now.exit_seq, now.last),
                (
                    &session.process,
                    session.turn,
                    &session.turn_state,
                    session.exit_seq,
                    session.last
                )
            );
        }
    }
}

/// `already N` points to an event that said the same about the same session.
fn assert_recorded_before(world: &World, answer: &str, ask: &Ask) {
    let Some(seq) = answer.strip_prefix("already ") else { return };
    let (Ask::Report(session, ..) | Ask::Stop(session)) = ask else {
        panic!("{ask:?} was never asked before")
    };
    let seq: usize = seq.parse().unwrap();
    let event = &world.log[seq - 1].event;
    assert_eq!(event.subject, Entity::Session(ses(*session)));
    assert!(!matches!(event.body, Body::SessionStarted(_)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    /// `World::ask` unwraps every step: an illegal event of our own ends the test.
    #[test]
    fn whatever_is_asked_what_must_hold_holds(asks in prop::collection::vec(ask(), 1..60)) {
        let mut world = World::default();
        for ask in asks {
            if let Ask::Clock(seconds) = ask {
                world.now = Some(at(seconds.into()));
            }
            let Some(input) = input(ask.clone(), &world.state) else { continue };
            let before = world.state.clone();
            match world.ask(input) {
                Ok(answer) => assert_recorded_before(&world, &answer, &ask),
                Err(code) => {
                    assert_ne!(code, Code::Internal, "{ask:?}");
                    assert_eq!(world.state, before);
                }
            }
            assert_over_stays_over(&before, &world.state);
            check(&world);
        }
        let seqs: Vec<u64> = world.log.iter().map(|r| r.seq).collect();
        let gapless: Vec<u64> = (1..=world.last_seq()).collect();
        prop_assert_eq!(seqs, gapless);
    }
}

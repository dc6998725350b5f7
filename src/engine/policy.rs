//! The policy machine: attach, gates, landing, cancel, and what its events change.

use super::{
    decide::{Draft, Refusal, refuse},
    launch,
    state::Member,
    step::Illegal,
};
use crate::{
    code::Code,
    domain::{
        ack::{AckOutcome, Decision},
        candidate::whereabouts,
        event::{
            Body, CommitReady, Committed, Entity, Event, GatePassed, GatingQueued, GatingStarted,
            Nudged, PolicyAcked, PolicyAttached, PolicyCancelled, PolicyDismissed, PolicyFailed,
            Recorded,
        },
        gate::GateResult,
        ids::PolicyId,
        input::{Covers, GateRun, RunEnd},
        oid::Oid,
        policy::{Again, Candidate, OnStale, Outcome, Policy, PolicySpec, Status, Then, Unsigned},
        session::{Exit, Process, Session, Turn},
    },
    limits,
};

/// The policy after one of its events.
pub(super) fn apply(
    before: Option<&Policy>,
    id: &PolicyId,
    recorded: &Recorded,
) -> Result<Policy, Illegal> {
    let body = &recorded.event.body;
    let Some(before) = before else {
        if let Body::PolicyAdopted(e) = body {
            return Ok(Policy { attempt: e.attempt, ..attached(id, recorded, &e.spec) });
        }
        let Body::PolicyAttached(e) = body else { return Err(illegal(id, body, "unknown")) };
        return Ok(attached(id, recorded, &e.spec));
    };
    let mut policy = before.clone();
    policy.last = recorded.seq;
    transition(&mut policy, body, recorded)
        .map_err(|()| illegal(id, body, before.status.as_str()))?;
    if policy.status != before.status {
        policy.since = recorded.at;
    }
    if policy.status != Status::Watching {
        policy.pending.clear();
        policy.stalled_by.clear();
    }
    Ok(policy)
}

fn illegal(id: &PolicyId, body: &Body, state: &str) -> Illegal {
    Illegal { kind: body.kind(), subject: id.to_string(), state: state.to_owned() }
}

/// The table of states and events; what is not in it cannot happen.
fn transition(policy: &mut Policy, body: &Body, recorded: &Recorded) -> Result<(), ()> {
    use Status::{
        AwaitingAck, Blocked, Cancelled, Committing, Done, Gating, Nudging, Queued, Signing,
        Watching,
    };
    match (policy.status, body) {
        (Watching | Gating | Signing | AwaitingAck | Committing, Body::GatingStarted(e))
            if e.attempt == policy.attempt + 1 =>
        {
            gate(policy, e)?;
        }
        // It waited for its turn: the same run, which had not begun.
        (Queued, Body::GatingStarted(e)) if e.attempt == policy.attempt => policy.status = Gating,
        (Gating, Body::GatingQueued(e)) if !policy.green && e.attempt == policy.attempt => {
            policy.status = Queued;
        }
        (Gating, Body::Nudged(e)) if may_nudge(policy, e) => nudged(policy, e, recorded.seq),
        (Gating, Body::GatePassed(e)) if may_pass(policy, e) => passed(policy, e),
        (Gating | Signing, Body::CommitReady(e))
            if policy.green && asks_enough(policy, e.ack) && is_gated(policy, &e.candidate) =>
        {
            settle_signing(policy);
            policy.candidate = Some(e.candidate);
            policy.request_seq = Some(recorded.seq);
            policy.status = if e.ack { AwaitingAck } else { Committing };
        }
        (AwaitingAck, Body::PolicyAcked(e)) if is_new_voice(policy, e) => acked(policy, e),
        (AwaitingAck, Body::AckRefused(e)) => {
            // The first version of the machine kept no account of them.
            if recorded.engine > 1 {
                policy.remember(&e.line, e.outcome);
            }
        }
        (Committing, Body::Committed(e)) if is_promised(policy, e) => {
            policy.status = Done;
            policy.outcome = Some(Outcome::Committed);
            policy.commit_sha = Some(e.commit);
        }
        // Green and still gating is half a batch: its candidate comes next and nothing else.
        (Gating, Body::PolicyFailed(_) | Body::PolicyCancelled(_)) if policy.green => {
            return Err(());
        }
        (
            Watching | Queued | Gating | Nudging | Signing | AwaitingAck | Committing,
            Body::PolicyFailed(e),
        ) => failed(policy, e),
        (
            Watching | Queued | Gating | Nudging | Signing | AwaitingAck,
            Body::PolicyCancelled(e),
        ) => {
            policy.status = Cancelled;
            policy.reason = Some("cancelled".to_owned());
            policy.because.clone_from(&e.because);
        }
        // It stays what it is: nobody is asked about it any more.
        (Blocked, Body::PolicyDismissed(_)) if !policy.dismissed => policy.dismissed = true,
        (
            Watching | Queued | Gating | Nudging | Signing | AwaitingAck | Committing | Done
            | Blocked | Cancelled,
            _,
        ) => {
            return Err(());
        }
    }
    if policy.status != Signing {
        policy.unsigned = None;
    }
    Ok(())
}

/// What is signed is what waited for it, but for the signature.
fn is_gated(policy: &Policy, candidate: &Candidate) -> bool {
    policy.unsigned.is_none_or(|u| (u.tree, u.parent) == (candidate.tree, candidate.parent))
}

/// Why it was not signed yet is of no interest any more.
fn settle_signing(policy: &mut Policy) {
    if policy.status == Status::Signing {
        policy.reason = None;
        policy.because = None;
    }
}

/// A gate run begins. What was said of an earlier candidate does not count for the next one.
fn gate(policy: &mut Policy, event: &GatingStarted) -> Result<(), ()> {
    // Green and still gating is half a batch: its candidate comes next and nothing else.
    let again = policy.status != Status::Watching;
    if again && (policy.spec.commit.is_none() || (policy.status == Status::Gating && policy.green))
    {
        return Err(());
    }
    match policy.status {
        Status::Gating | Status::Committing => policy.regates += 1,
        Status::Watching
        | Status::Queued
        | Status::Nudging
        | Status::Signing
        | Status::AwaitingAck
        | Status::Done
        | Status::Blocked
        | Status::Cancelled => {}
    }
    settle_signing(policy);
    policy.status = Status::Gating;
    policy.attempt = event.attempt;
    policy.green = false;
    if again {
        for ack in std::mem::take(&mut policy.acks) {
            policy.remember(&ack.line, AckOutcome::Stale);
        }
        policy.results.clear();
        policy.candidate = None;
        policy.request_seq = None;
    }
    Ok(())
}

/// One key approves once.
fn is_new_voice(policy: &Policy, event: &PolicyAcked) -> bool {
    event.ack.decision == Decision::Reject || !has_approved(policy, &event.ack.key)
}

/// True when this key approved the present candidate.
pub(super) fn has_approved(policy: &Policy, key: &str) -> bool {
    policy.acks.iter().any(|ack| ack.decision == Decision::Approve && ack.key == key)
}

fn acked(policy: &mut Policy, event: &PolicyAcked) {
    policy.acks.push(event.ack.clone());
    policy.quorum = policy.quorum.max(event.quorum);
    match event.ack.decision {
        Decision::Approve if policy.approvals() >= policy.approvals_needed() => {
            policy.status = Status::Committing;
        }
        Decision::Approve => {}
        Decision::Reject => {
            policy.status = Status::Cancelled;
            policy.reason = Some("rejected".to_owned());
        }
    }
}

/// A green run is of the present attempt, comes once, and its outcome fits what the policy is for.
fn may_pass(policy: &Policy, event: &GatePassed) -> bool {
    let fits = match (policy.spec.then, event.outcome) {
        (Then::Emit, Some(Outcome::Passed)) | (Then::Commit, Some(Outcome::NoOp) | None) => true,
        (Then::Emit, Some(Outcome::NoOp | Outcome::Committed) | None)
        | (Then::Commit, Some(Outcome::Passed | Outcome::Committed)) => false,
    };
    let signs =
        event.unsigned.is_none() || (policy.spec.then == Then::Commit && event.outcome.is_none());
    fits && signs && !policy.green && event.attempt == policy.attempt
}

/// Its sessions are told of the present attempt, as often as was asked for.
fn may_nudge(policy: &Policy, event: &Nudged) -> bool {
    let most = policy.spec.on_fail.as_ref().map_or(0, |f| f.max_retries);
    let member = |id| policy.spec.session_ids.contains(id);
    !policy.green
        && event.attempt == policy.attempt
        && policy.nudges < most
        && !event.sessions.is_empty()
        && event.sessions.iter().all(member)
}

/// Only what those who are told do from now on counts.
fn nudged(policy: &mut Policy, event: &Nudged, seq: u64) {
    policy.status = Status::Nudging;
    policy.nudges += 1;
    policy.nudged.clone_from(&event.sessions);
    policy.nudged_at = seq;
    policy.results.clone_from(&event.results);
    policy.noted_on = event.noted_on;
}

/// A person is asked unless the policy was attached without.
fn asks_enough(policy: &Policy, ack: bool) -> bool {
    policy.spec.commit.is_some() && (ack || !policy.spec.needs_ack())
}

/// What landed is what was approved, where it was meant to.
fn is_promised(policy: &Policy, event: &Committed) -> bool {
    policy.candidate.is_some_and(|c| c.commit == event.commit)
        && policy.spec.commit.as_ref().is_some_and(|c| c.branch == event.branch)
}

fn attached(id: &PolicyId, recorded: &Recorded, spec: &PolicySpec) -> Policy {
    Policy {
        policy_id: id.clone(),
        spec: spec.clone(),
        status: Status::Watching,
        generation: spec.again.as_ref().map_or(1, |again| again.after.saturating_add(1)),
        attempt: 0,
        pending: vec![],
        stalled_by: vec![],
        green: false,
        results: vec![],
        noted_on: None,
        unsigned: None,
        reason: None,
        because: None,
        candidate: None,
        request_seq: None,
        acks: vec![],
        quorum: 1,
        judged: vec![],
        regates: 0,
        nudges: 0,
        nudged: vec![],
        nudged_at: 0,
        commit_sha: None,
        outcome: None,
        dismissed: false,
        since: recorded.at,
        last: recorded.seq,
    }
}

fn passed(policy: &mut Policy, event: &GatePassed) {
    policy.green = true;
    policy.results.clone_from(&event.results);
    policy.noted_on = event.noted_on;
    if let Some(outcome) = event.outcome {
        policy.status = Status::Done;
        policy.outcome = Some(outcome);
    }
    if let Some(Unsigned { candidate, because }) = &event.unsigned {
        policy.status = Status::Signing;
        policy.unsigned = Some(*candidate);
        policy.reason = Some(Code::SigningNeedsPerson.as_str().to_owned());
        policy.because = Some(because.clone());
    }
}

fn failed(policy: &mut Policy, event: &PolicyFailed) {
    policy.status = Status::Blocked;
    policy.reason = Some(event.reason.clone());
    policy.because.clone_from(&event.because);
    if let Some(results) = &event.results {
        policy.results.clone_from(results);
        policy.noted_on = event.noted_on;
    }
}

fn emit(draft: &mut Draft, policy: &Policy, body: Body) -> Result<(), Refusal> {
    draft.push(Event {
        subject: Entity::Policy(policy.policy_id.clone()),
        sessions: policy.spec.session_ids.clone(),
        body,
    })
}

/// Decides an attach.
pub(super) fn attach(
    draft: &mut Draft,
    id: &PolicyId,
    mut spec: PolicySpec,
    covers: Covers,
) -> Result<(), Refusal> {
    require_again(draft, &spec)?;
    let mut bases = Vec::new();
    for member in &spec.session_ids {
        let Some(session) = draft.state().sessions.get(member) else {
            return Err(refuse(Code::NoSuchSession, member, "no session has this id here"));
        };
        let base = base_for(session, covers, draft.last_seq());
        if session.is_exited() && session.finished_at().is_none_or(|seq| seq <= base) {
            return Err(refuse(Code::Terminal, member, "the session has exited"));
        }
        bases.push(base);
    }
    // The lowest: a member at work is not finished by what it did before, so nothing old counts for it.
    spec.base = bases.into_iter().min().unwrap_or_default();
    let sessions = spec.session_ids.clone();
    let body = PolicyAttached { spec }.into();
    draft.push(Event { subject: Entity::Policy(id.clone()), sessions, body })
}

/// What is made again is over, and is counted as it is.
fn require_again(draft: &Draft, spec: &PolicySpec) -> Result<(), Refusal> {
    let Some(Again { of, after }) = &spec.again else { return Ok(()) };
    let old = load(draft, of)?;
    if !old.status.is_terminal() {
        let because = format!("the policy is {}", old.status.as_str());
        return Err(refuse(Code::NotOver, of, because));
    }
    if old.generation == *after {
        return Ok(());
    }
    Err(refuse(Code::Internal, of, format!("it is of generation {}, not {after}", old.generation)))
}

/// Attaches what follows the policies that this batch made done. Nobody is asked any more: what its sessions cannot
/// finish ends it by name, like every other policy.
pub(super) fn attach_next(draft: &mut Draft) -> Result<(), Refusal> {
    for id in draft.policies_told() {
        let Some(done) = draft.state().policies.get(&id).filter(|p| p.status == Status::Done)
        else {
            continue;
        };
        let Some(next) = done.spec.next.clone() else { continue };
        if draft.state().policies.contains_key(&next.policy_id) {
            continue;
        }
        let covers = if next.next_turn { Covers::Next } else { Covers::LastAndNext };
        let last_seq = draft.last_seq();
        let sessions = next.spec.session_ids.clone();
        let members = sessions.iter().filter_map(|member| draft.state().sessions.get(member));
        let base = members.map(|session| base_for(session, covers, last_seq)).min();
        let spec = PolicySpec { base: base.unwrap_or(last_seq), ..next.spec };
        let subject = Entity::Policy(next.policy_id);
        draft.push(Event { subject, sessions, body: PolicyAttached { spec }.into() })?;
    }
    Ok(())
}

/// What was there before counts only when the session is idle after it: a running turn ends later anyway.
pub(super) fn base_for(session: &Session, covers: Covers, last_seq: u64) -> u64 {
    match covers {
        Covers::After(seq) => seq,
        Covers::Next => last_seq,
        Covers::LastAndNext => match session.turn_state {
            Turn::Ended { seq, .. } => seq - 1,
            Turn::None | Turn::Running if session.is_exited() => session.exit_seq - 1,
            Turn::None | Turn::Running => last_seq,
        },
    }
}

/// What follows by itself: a watching policy whose members are finished is gated, one that can never be is blocked.
pub(super) fn follow_up(draft: &mut Draft) -> Result<(), Refusal> {
    let waits = |p: &&Policy| matches!(p.status, Status::Watching | Status::Nudging);
    let waiting: Vec<Policy> = draft.state().policies.values().filter(waits).cloned().collect();
    for policy in waiting {
        if policy.is_expired(draft.at()) {
            expire(draft, &policy)?;
        } else if policy.status == Status::Nudging {
            give_up_nudging(draft, &policy)?;
        } else {
            gate_or_give_up(draft, &policy)?;
        }
    }
    Ok(())
}

fn gate_or_give_up(draft: &mut Draft, policy: &Policy) -> Result<(), Refusal> {
    let members = draft.state().standing(policy);
    if members.iter().all(|(_, m)| *m == Member::Finished) {
        let event = GatingStarted { attempt: policy.attempt + 1, because: None };
        return emit(draft, policy, event.into());
    }
    let Some((gone, _)) = members.iter().find(|(_, m)| *m == Member::Gone) else { return Ok(()) };
    if draft.state().sessions.get(gone).is_some_and(|s| is_not_started(&s.process)) {
        let because = format!("{gone} could not be started");
        let code = if policy.nudges > 0 { Code::NudgeFailed } else { Code::SessionFailed };
        return fail(draft, policy, code, because);
    }
    let because = "the session exited without finishing its turn".to_owned();
    fail(draft, policy, Code::SessionFailed, because)
}

fn is_not_started(process: &Process) -> bool {
    *process == Process::Exited(Exit::NotStarted)
}

/// Who is over before it was told of red gates is never told.
fn give_up_nudging(draft: &mut Draft, policy: &Policy) -> Result<(), Refusal> {
    let state = draft.state();
    let lost = policy.nudged.iter().find(|member| {
        let over = state.sessions.get(*member).is_none_or(|s| s.is_exited() || s.stopping);
        over && !state.is_told(member, policy)
    });
    let Some(lost) = lost else { return Ok(()) };
    let because = format!("{lost} ended before it was told of the red gates");
    fail(draft, policy, Code::NudgeFailed, because)
}

pub(super) fn fail(
    draft: &mut Draft,
    policy: &Policy,
    code: Code,
    because: String,
) -> Result<(), Refusal> {
    let reason = code.as_str().to_owned();
    emit(
        draft,
        policy,
        PolicyFailed { reason, because: Some(because), results: None, voided: 0, noted_on: None }
            .into(),
    )
}

/// The time of a policy is over.
pub(super) fn expire(draft: &mut Draft, policy: &Policy) -> Result<(), Refusal> {
    fail(draft, policy, Code::Expired, out_of_time(policy))
}

fn out_of_time(policy: &Policy) -> String {
    let at = policy.spec.expires.map_or_else(String::new, |at| format!(" at {at}"));
    format!("its time was over{at}")
}

/// What a moved branch leads to: the policy is gated again on the new tip, or it ends. `by_itself` is true where
/// nobody is asked before the next candidate could meet the same.
pub(super) fn moved(
    draft: &mut Draft,
    policy: &Policy,
    because: String,
    by_itself: bool,
) -> Result<(), Refusal> {
    match policy.spec.on_stale {
        OnStale::Block => fail(draft, policy, Code::StaleCandidate, because),
        OnStale::Regate if by_itself && policy.regates >= limits::REGATES_MAX => {
            let because = format!("{because}; it was gated again {} times", policy.regates);
            fail(draft, policy, Code::StaleCandidate, because)
        }
        OnStale::Regate => {
            let because = Some(because);
            emit(draft, policy, GatingStarted { attempt: policy.attempt + 1, because }.into())
        }
    }
}

/// Decides that the branch is not at the candidate's parent any more.
pub(super) fn tip_moved(draft: &mut Draft, id: &PolicyId, tip: Option<Oid>) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    let by_itself = policy.status == Status::Committing;
    match (policy.status, policy.candidate.or(policy.unsigned), &policy.spec.commit) {
        (
            Status::Signing | Status::AwaitingAck | Status::Committing,
            Some(candidate),
            Some(commit),
        ) if tip != Some(candidate.parent) => {
            let at = whereabouts(&commit.branch, tip);
            let because = format!("{at}, not at {}", candidate.parent);
            moved(draft, &policy, because, by_itself)
        }
        (_, _, _) => Err(not_in(&policy, Status::AwaitingAck)),
    }
}

/// Decides that the time of a policy is over.
pub(super) fn time_up(draft: &mut Draft, id: &PolicyId) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    if policy.is_expired(draft.at()) {
        return expire(draft, &policy);
    }
    Err(not_in(&policy, Status::Watching))
}

/// Decides what the end of a gate run leads to.
pub(super) fn gates_ended(
    draft: &mut Draft,
    id: &PolicyId,
    attempt: u32,
    run: GateRun,
) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    if policy.status != Status::Gating || policy.attempt != attempt {
        let because = format!("it is {}, not in gate run {attempt}", policy.status.as_str());
        return Err(refuse(Code::Terminal, id, because));
    }
    let GateRun { results, voided, noted_on, end } = run;
    // Whatever the gates said: what ends in time is decided by the instant at which it is recorded.
    let end = if policy.is_expired(draft.at()) { RunEnd::OutOfTime } else { end };
    let pass = |results: Vec<GateResult>, outcome| {
        Body::from(GatePassed { attempt, results, voided, outcome, noted_on, unsigned: None })
    };
    match end {
        RunEnd::Green => emit(draft, &policy, pass(results, Some(Outcome::Passed))),
        RunEnd::NoChange => emit(draft, &policy, pass(results, Some(Outcome::NoOp))),
        RunEnd::Ready(candidate) => {
            emit(draft, &policy, pass(results, None))?;
            ready(draft, &policy, candidate)
        }
        RunEnd::Unsigned(unsigned) => {
            let (outcome, unsigned) = (None, Some(unsigned));
            let passed = GatePassed { attempt, results, voided, outcome, noted_on, unsigned };
            emit(draft, &policy, passed.into())
        }
        RunEnd::Moved { because } => moved(draft, &policy, because, true),
        RunEnd::OutOfTime => {
            let (reason, because) = (Code::Expired.as_str().to_owned(), Some(out_of_time(&policy)));
            let (results, noted_on) = (Some(results), None);
            emit(draft, &policy, PolicyFailed { reason, because, results, voided, noted_on }.into())
        }
        RunEnd::Red { code, because } if may_be_told(draft, &policy) => {
            let sessions = launch::can_be_told(draft.state(), &policy);
            let reason = code.as_str().to_owned();
            let told = sessions.clone();
            let body = Nudged { attempt, sessions, reason, because, results, voided, noted_on };
            emit(draft, &policy, body.into())?;
            told.iter().try_for_each(|session| launch::nudge(draft, session, id, attempt))
        }
        RunEnd::Red { code, because } | RunEnd::Broken { code, because } => {
            let reason = code.as_str().to_owned();
            let results = Some(results);
            emit(draft, &policy, PolicyFailed { reason, because, results, voided, noted_on }.into())
        }
    }
}

/// Retries are left, and somebody can be told.
fn may_be_told(draft: &Draft, policy: &Policy) -> bool {
    policy.spec.on_fail.as_ref().is_some_and(|f| policy.nudges < f.max_retries)
        && !launch::can_be_told(draft.state(), policy).is_empty()
}

/// Decides that the gates of a policy have to wait for those of others.
pub(super) fn no_slot(draft: &mut Draft, id: &PolicyId, attempt: u32) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    if policy.status != Status::Gating || policy.attempt != attempt || policy.green {
        return Err(not_in(&policy, Status::Gating));
    }
    emit(draft, &policy, GatingQueued { attempt }.into())
}

/// Decides that they need not wait any more.
pub(super) fn slot_free(draft: &mut Draft, id: &PolicyId) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    if policy.status != Status::Queued {
        return Err(not_in(&policy, Status::Queued));
    }
    if policy.is_expired(draft.at()) {
        return expire(draft, &policy);
    }
    emit(draft, &policy, GatingStarted { attempt: policy.attempt, because: None }.into())
}

/// There is a candidate: a person is asked, or it may land.
fn ready(draft: &mut Draft, policy: &Policy, candidate: Candidate) -> Result<(), Refusal> {
    let ack = policy.spec.needs_ack();
    emit(draft, policy, CommitReady { candidate, ack }.into())
}

/// Decides that what waited for a signature has it.
pub(super) fn signed(
    draft: &mut Draft,
    id: &PolicyId,
    unsigned: &Oid,
    candidate: Candidate,
) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    if policy.status != Status::Signing {
        return Err(not_in(&policy, Status::Signing));
    }
    if policy.unsigned.is_none_or(|u| u.commit != *unsigned) || !is_gated(&policy, &candidate) {
        let because = format!("{unsigned} is not what waits to be signed");
        return Err(refuse(Code::Terminal, id, because));
    }
    if policy.is_expired(draft.at()) {
        return expire(draft, &policy);
    }
    ready(draft, &policy, candidate)
}

/// Decides that the branch holds the candidate.
pub(super) fn branch_moved(draft: &mut Draft, id: &PolicyId) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    let (Status::Committing, Some(candidate), Some(commit)) =
        (policy.status, policy.candidate, &policy.spec.commit)
    else {
        return Err(not_in(&policy, Status::Committing));
    };
    let body = Committed { commit: candidate.commit, branch: commit.branch.clone() };
    emit(draft, &policy, body.into())
}

/// Decides that the candidate can not land.
pub(super) fn landing_impossible(
    draft: &mut Draft,
    id: &PolicyId,
    code: Code,
    because: String,
) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    match policy.status {
        Status::Committing | Status::AwaitingAck => fail(draft, &policy, code, because),
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Signing
        | Status::Done
        | Status::Blocked
        | Status::Cancelled => Err(not_in(&policy, Status::Committing)),
    }
}

/// Decides a cancel.
pub(super) fn cancel(
    draft: &mut Draft,
    id: &PolicyId,
    because: Option<String>,
) -> Result<(), Refusal> {
    let policy = load(draft, id)?;
    match policy.status {
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Signing
        | Status::AwaitingAck => emit(draft, &policy, PolicyCancelled { because }.into()),
        Status::Committing => {
            Err(refuse(Code::Committing, id, "it was approved and is being landed"))
        }
        Status::Done | Status::Blocked | Status::Cancelled => Err(terminal(&policy)),
    }
}

/// Decides that nobody needs to be told of a blocked policy any more. `Ok(Some(seq))`: it was recorded before.
pub(super) fn dismiss(
    draft: &mut Draft,
    id: &PolicyId,
    because: Option<String>,
) -> Result<Option<u64>, Refusal> {
    let policy = load(draft, id)?;
    match policy.status {
        // Nothing happens to it after that.
        Status::Blocked if policy.dismissed => Ok(Some(policy.last)),
        Status::Blocked => {
            emit(draft, &policy, PolicyDismissed { because }.into())?;
            Ok(None)
        }
        Status::Done | Status::Cancelled => Err(terminal(&policy)),
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Signing
        | Status::AwaitingAck
        | Status::Committing => {
            let because = format!("the policy is {}, not blocked", policy.status.as_str());
            Err(refuse(Code::NotBlocked, id, because))
        }
    }
}

pub(super) fn load(draft: &Draft, id: &PolicyId) -> Result<Policy, Refusal> {
    let found = draft.state().policies.get(id).cloned();
    found.ok_or_else(|| refuse(Code::NoSuchPolicy, id, "no policy has this id here"))
}

pub(super) fn terminal(policy: &Policy) -> Refusal {
    let because = format!("the policy is {}", policy.status.as_str());
    refuse(Code::Terminal, &policy.policy_id, because)
}

fn not_in(policy: &Policy, wanted: Status) -> Refusal {
    let because = format!("the policy is {}, not {}", policy.status.as_str(), wanted.as_str());
    refuse(Code::Terminal, &policy.policy_id, because)
}

//! The JSON objects of the answers (spec cli, Main JSON answers): every named field, null where not known.

use super::{
    again::{again, tool},
    cx::Cx,
    error::CliError,
    names::Names,
};
use crate::{
    domain::{
        ack::Decision,
        candidate::whereabouts,
        gate::{GateEnd, GateResult},
        oid::Oid,
        path::RepoPath,
        policy::{AckRecord, Policy, Status},
        session::{Exit, Loose, Process, Session, Turn},
    },
    ledger::{Ledger, LedgerError},
    runtime::{agent, gate::log},
    store::candidate::whole,
    sys::clock,
    wire::ack_line::AckLine,
};
use serde_json::{Value, json};

/// What a session inside reads instead of a command only a person may run.
const FOR_A_PERSON: &str = "waiting for a person";
/// How a session came to us that somebody else runs.
const ADAPTER: &str = "observed";

/// A policy in full: answer of `attach`, `commit`, `policy show`, `policy cancel`, `status ID`.
pub(super) fn policy(cx: &Cx, ledger: &Ledger, policy: &Policy) -> Result<Value, CliError> {
    let mut answer = json!({ "schema": "agentproto/policy/1" });
    merge(&mut answer, policy_short(policy, next_step(cx, ledger, policy)?.as_deref()));
    let commit = policy.spec.commit.as_ref();
    let more = json!({
        "pending": policy.pending,
        "stalledBy": policy.stalled_by,
        "gates": gates(ledger, policy),
        "lastGate": last_gate(ledger, policy),
        "because": policy.because,
        "parent": policy.candidate.map(|c| c.parent),
        "tree": policy.candidate.map(|c| c.tree),
        "message": commit.map(|c| c.message.as_str()),
        "requireHumanAck": commit.map(|c| c.require_human_ack),
        "onStale": policy.spec.on_stale,
        "onEnd": policy.spec.on_end,
        "endSession": policy.spec.end_session,
        "maxRetries": policy.spec.on_fail.as_ref().map(|on_fail| on_fail.max_retries),
        "nudges": policy.nudges,
        "nudgedSessionIds": policy.nudged,
        "stale": stale_if_waiting(ledger, policy)?,
        "lost": lost(ledger, policy),
        "acks": policy.acks.iter().map(ack).collect::<Value>(),
        "approvals": policy.approvals(),
        // Unknown under rules that cannot be read: nobody passes then.
        "ackQuorum": commit.and_then(|_| quorum(ledger, policy).ok()),
        "ackExclude": commit.map(|c| &c.ack_exclude),
        "refusedAcks": &policy.judged,
    });
    merge(&mut answer, more);
    Ok(answer)
}

/// The gates with the program file each resolved to at attach; `path` is null where this machine does not know.
fn gates(ledger: &Ledger, policy: &Policy) -> Value {
    let paths = ledger.attached_programs(&policy.policy_id).ok().flatten().unwrap_or_default();
    let mut paths = paths.into_iter();
    let shown = policy.spec.gates.iter().map(|gate| {
        let mut shown = json!(gate);
        if gate.shell().is_some() {
            shown["path"] = paths.next().map(|path| path.display().to_string()).into();
        }
        shown
    });
    shown.collect()
}

fn ack(ack: &AckRecord) -> Value {
    let mut answer = json!(ack);
    answer["reason"] = ack_reason(ack).into();
    answer
}

/// What the person gave as the reason, from the line that was signed; `None` without one.
pub(super) fn ack_reason(ack: &AckRecord) -> Option<String> {
    let said = AckLine::parse(&ack.line).ok()?.statement.reason;
    (!said.is_empty()).then_some(said)
}

/// How a policy was stopped, in a few words: who rejected it and why, or the words of the cancel.
pub(super) fn stopped(policy: &Policy) -> String {
    let with = |what: String, why: Option<String>| match why {
        Some(why) => format!("{what}: {why}"),
        None => what,
    };
    match policy.acks.last().filter(|ack| ack.decision == Decision::Reject) {
        Some(ack) => with(format!("rejected by {}", ack.signer), ack_reason(ack)),
        None => with("cancelled".to_owned(), policy.because.clone()),
    }
}

/// Approvals it takes: what the policy was attached with, or more when the rules are stricter by now.
pub(super) fn quorum(ledger: &Ledger, policy: &Policy) -> Result<u32, CliError> {
    match policy.status {
        Status::AwaitingAck => Ok(ledger.quorum(policy)?),
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Signing
        | Status::Committing
        | Status::Done
        | Status::Blocked
        | Status::Cancelled => Ok(policy.approvals_needed()),
    }
}

fn stale_if_waiting(ledger: &Ledger, policy: &Policy) -> Result<Option<String>, CliError> {
    let waits = matches!(policy.status, Status::Signing | Status::AwaitingAck);
    if waits { stale(ledger, policy) } else { Ok(None) }
}

/// A policy in a list: what its document says, and what to do next.
pub(super) fn policy_short(policy: &Policy, next_step: Option<&str>) -> Value {
    let commit = policy.spec.commit.as_ref();
    json!({
        "policyId": policy.policy_id,
        "label": policy.spec.label,
        "status": policy.status,
        "generation": policy.generation,
        "regateOf": policy.spec.again.as_ref().map(|again| &again.of),
        "sessionIds": policy.spec.session_ids,
        "gateSession": policy.spec.gate_session(),
        "nextPolicyId": policy.followed_by(),
        "attempt": policy.attempt,
        "then": policy.spec.then,
        "reason": policy.reason,
        "branch": commit.map(|c| c.branch.as_str()),
        "paths": commit.map_or(&[] as &[RepoPath], |c| c.paths.as_slice()),
        "candidate": candidate(policy),
        "commitSha": policy.commit_sha,
        "outcome": policy.outcome,
        "dismissed": policy.dismissed,
        "since": policy.since,
        "expires": policy.spec.expires,
        "expired": policy.is_expired(clock::now()),
        "nextStep": next_step,
    })
}

/// The candidate's commit, when there is one.
pub(super) fn candidate(policy: &Policy) -> Option<Oid> {
    policy.candidate.map(|c| c.commit)
}

fn merge(into: &mut Value, more: Value) {
    if let (Value::Object(into), Value::Object(more)) = (into, more) {
        into.extend(more);
    }
}

fn last_gate(ledger: &Ledger, policy: &Policy) -> Value {
    let Some(last) = policy.results.last() else { return Value::Null };
    let (exit_code, signal, timed_out) = match &last.end {
        GateEnd::Exit(code) => (Some(*code), None, false),
        GateEnd::Signal(name) => (None, Some(name.as_str()), false),
        GateEnd::Timeout => (None, None, true),
        GateEnd::NotRun => (None, None, false),
    };
    json!({
        "index": last.index,
        "hook": last.hook,
        "verdict": last.verdict,
        "reason": last.reason,
        "because": last.because,
        "exitCode": exit_code,
        "signal": signal,
        "signals": last.signals,
        "timedOut": timed_out,
        "durationMs": last.duration_ms,
        "tail": tail(ledger, last),
        "unlistedChanges": last.unlisted_changes,
        "beside": last.beside,
        "leftBehind": last.left_behind,
    })
}

/// The end of what a gate wrote; `None` when it is not on this machine (any more), is not what was stored, which is
/// said, or did not run. Everything else that is known is shown all the same.
pub(super) fn tail(ledger: &Ledger, result: &GateResult) -> Option<String> {
    let kept = result.log.as_ref()?;
    let agent_dir = ledger.store().location().agent_dir();
    match log::load_log(&agent_dir, &kept.sha256) {
        Ok(log) => log.map(|log| log::tail_of(&log)),
        Err(e) => {
            ledger.store().said().add(format!(
                "warning: the kept output of a gate is damaged and not shown: {e} [{}]: see git agentproto fsck",
                e.code()
            ));
            None
        }
    }
}

/// What to do next, as a command; `None` when there is nothing to do.
pub(super) fn next_step(
    cx: &Cx,
    ledger: &Ledger,
    policy: &Policy,
) -> Result<Option<String>, CliError> {
    let (name, tool) = (name_of(cx, ledger, policy)?, tool(cx, ledger));
    match policy.status {
        Status::Blocked if policy.dismissed => Ok(None),
        Status::Blocked => again(cx, ledger, policy).map(Some),
        // A command that performs gates it again, or ends it; `ack` would be refused.
        Status::Signing | Status::AwaitingAck
            if policy.is_expired(clock::now()) || stale(ledger, policy)?.is_some() =>
        {
            Ok(Some(format!("{tool} wait {name}")))
        }
        Status::AwaitingAck if lost(ledger, policy).is_some() => {
            Ok(Some(lost_step(cx, &tool, &name)))
        }
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Signing
        | Status::AwaitingAck
        | Status::Committing
        | Status::Done
        | Status::Cancelled => Ok(open_step(cx, &tool, policy, &name)),
    }
}

/// Programs get ids, people what is shorter to type.
fn name_of(cx: &Cx, ledger: &Ledger, policy: &Policy) -> Result<String, CliError> {
    if cx.json {
        return Ok(policy.policy_id.to_string());
    }
    Ok(Names::load(cx, ledger)?.of_policy(policy))
}

/// What to do next about an open policy called `name`, as far as its document alone tells.
pub(super) fn open_step(cx: &Cx, tool: &str, policy: &Policy, name: &str) -> Option<String> {
    match policy.status {
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Committing => Some(format!("{tool} wait {name}")),
        Status::Signing | Status::AwaitingAck if cx.inside_session().is_some() => {
            Some(FOR_A_PERSON.to_owned())
        }
        Status::Signing | Status::AwaitingAck => Some(format!("{tool} ack {name}")),
        Status::Blocked | Status::Done | Status::Cancelled => None,
    }
}

/// Why a candidate can not land any more; `None` while its branch is at its parent.
pub(super) fn stale(ledger: &Ledger, policy: &Policy) -> Result<Option<String>, CliError> {
    let candidate = policy.candidate.or(policy.unsigned);
    let (Some(commit), Some(candidate)) = (&policy.spec.commit, candidate) else {
        return Ok(None);
    };
    let tip = ledger.store().tip(&commit.branch).map_err(LedgerError::from)?;
    Ok(match tip {
        Some(tip) if tip == candidate.parent => None,
        Some(tip) => Some(format!("{} moved to {tip}", commit.branch)),
        None => Some(whereabouts(&commit.branch, None)),
    })
}

/// Why the candidate that waits for an ack cannot be answered, or whether that cannot be told; `None` when it is whole.
/// One whose branch moved is made anew.
pub(super) fn lost(ledger: &Ledger, policy: &Policy) -> Option<String> {
    let candidate = policy.candidate.filter(|_| policy.status == Status::AwaitingAck)?;
    match whole::damage(ledger.store(), &candidate) {
        Ok(None) => None,
        Ok(Some(why)) => Some(format!("its candidate {} is lost: {why}", candidate.commit)),
        Err(e) => Some(format!("its candidate {} cannot be looked at: {e}", candidate.commit)),
    }
}

/// What to do where a candidate is lost, and its objects are nowhere else to be had.
pub(super) fn lost_step(cx: &Cx, tool: &str, name: &str) -> String {
    match cx.inside_session() {
        Some(_) => FOR_A_PERSON.to_owned(),
        None => format!("{tool} policy cancel {name}"),
    }
}

/// A session: answer of `session adopt`, `session show`, `status ID`.
pub(super) fn session(ledger: &Ledger, session: &Session) -> Result<Value, CliError> {
    let mut answer = json!({ "schema": "agentproto/session/1" });
    merge(&mut answer, session_short(session));
    let root = ledger.worktree(&session.worktree)?.map(|w| w.top);
    let cwd = root.as_ref().map(|root| match session.cwd.as_str() {
        "." | "" => root.clone(),
        below => root.join(below),
    });
    merge(
        &mut answer,
        json!({
            "cwd": cwd.map(|c| c.display().to_string()),
            "adapter": session.launch.as_ref().map_or(ADAPTER, |launch| launch.adapter.as_str()),
            "argv": session.launch.as_ref().map(|launch| &launch.argv),
            "pid": pid_of(ledger, session),
            "policies": session.policies,
        }),
    );
    Ok(answer)
}

/// The main process of the agent, while it runs here.
fn pid_of(ledger: &Ledger, session: &Session) -> Option<u32> {
    let runs = session.process == Process::Alive;
    runs.then(|| agent::main_process(ledger, &session.session_id)).flatten().map(|main| main.pid)
}

/// A session in a list.
pub(super) fn session_short(session: &Session) -> Value {
    let (turn_state, reason, inferred) = turn(&session.turn_state);
    let (process, exit) = process(&session.process);
    let loose = match session.turn_state {
        Turn::Ended { loose, .. } => loose,
        Turn::None | Turn::Running => Loose::default(),
    };
    json!({
        "sessionId": session.session_id,
        "label": session.label,
        "worktree": session.worktree,
        "base": session.base,
        "dirtyBase": session.dirty_base,
        "process": process,
        "queued": session.queue.len(),
        "stopping": session.stopping,
        "exit": exit,
        "turn": session.turn,
        "turnState": turn_state,
        "reason": reason,
        "inferred": inferred,
        "background": loose.background,
        "empty": loose.empty,
        "openRequests": session.open_requests,
        "since": session.since,
    })
}

/// The words for what a turn does: state, reason of its end, whether nobody said so.
pub(super) fn turn(turn: &Turn) -> (&'static str, Option<&'static str>, bool) {
    match turn {
        Turn::None => ("none", None, false),
        Turn::Running => ("running", None, false),
        Turn::Ended { reason, inferred, .. } => ("ended", Some(reason.as_str()), *inferred),
    }
}

fn process(process: &Process) -> (&'static str, Value) {
    match process {
        Process::Unknown => ("unknown", Value::Null),
        Process::Exited(Exit::Code(code)) => ("exited", json!({ "code": code })),
        Process::Exited(Exit::Signal(name)) => ("exited", json!({ "signal": name })),
        Process::Alive => ("alive", Value::Null),
        Process::Idle => ("idle", Value::Null),
        Process::Exited(Exit::NotStarted) => ("exited", json!({ "notStarted": true })),
        Process::Exited(Exit::Unknown) => ("exited", Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::again::TOOL;
    use crate::cli::testing::{cx, policy};

    #[test]
    fn the_next_step_is_a_command_outside_and_none_inside() {
        let waiting = policy("awaiting-ack");
        let next = open_step(&cx(&[]), TOOL, &waiting, "nightly");
        assert_eq!(next.as_deref(), Some("git agentproto ack nightly"));
        let inside = cx(&[("AGENTPROTO_SESSION_ID", "ses_x")]);
        assert_eq!(
            open_step(&inside, TOOL, &waiting, "x").as_deref(),
            Some("waiting for a person")
        );
        assert_eq!(open_step(&inside, TOOL, &policy("done"), "x"), None);
    }

    #[test]
    fn a_short_policy_names_every_field_and_null_where_nothing_is_known() {
        let short = policy_short(&policy("watching"), None);
        for field in ["reason", "commitSha", "outcome", "nextStep"] {
            assert_eq!(short[field], Value::Null, "{field}");
            assert!(short.as_object().unwrap().contains_key(field), "{field}");
        }
        assert_eq!(short["status"], "watching");
        assert_eq!(short["paths"], json!(["a b"]));
    }

    #[test]
    fn how_a_session_ended_is_told_apart() {
        assert_eq!(process(&Process::Unknown), ("unknown", Value::Null));
        assert_eq!(process(&Process::Exited(Exit::Code(3))), ("exited", json!({ "code": 3 })));
        assert_eq!(process(&Process::Exited(Exit::Unknown)), ("exited", Value::Null));
    }
}

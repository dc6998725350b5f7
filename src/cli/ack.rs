//! `ack POLICY`: the review screen, then a signed answer.
//!
//! Contract: a person answers. Inside a session nothing is signed; without a terminal nothing is signed
//! unless `--yes` says so; what is signed after a review is bound to the candidate that was shown.

use super::{
    answer, args,
    cx::{Cx, is_yes},
    error::CliError,
    policy::show_text,
    review,
    settle::{Held, exit_of as exit_of_policy, settle, tell},
    text::{self, shown, typed_duration},
    warn,
};
use crate::{
    code::{Code, exit},
    domain::{
        ack::Decision,
        ids::PolicyId,
        oid::Oid,
        policy::{Policy, Status},
    },
    ledger::{AckAsk, AckGiven, Ledger, LedgerError},
    limits,
    runtime::perform::{self, is_due},
    sign::exclude::EXCLUDED,
    sys::spawn::Presence,
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The answer, as typed.
#[derive(clap::Args)]
pub(super) struct AckArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Say no: the policy is cancelled, nothing is committed
    #[arg(long)]
    reject: bool,
    /// Why, in your words; becomes part of what is signed
    #[arg(short, long = "message", value_name = "WHY", allow_hyphen_values = true)]
    message: Option<String>,
    /// How long the answer counts [default: 24h]
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    /// The ssh private key to sign with
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Only if this is still the candidate
    #[arg(long, value_name = "OID")]
    candidate: Option<String>,
    /// Show the whole diff, too
    #[arg(short, long)]
    patch: bool,
    /// Don't ask; what was reviewed is named by --candidate
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(cx: &Cx, args: AckArgs) -> Result<u8, CliError> {
    cx.require_person(Code::AckFromSession, "an ack")?;
    let (yes, patch) = (args.yes, args.patch);
    let wanted = args.policy.clone();
    let mut ask = args.meaning(cx)?;
    let ledger = cx.ledger()?;
    let id = match ledger.find_policy(&wanted) {
        Err(error) => return Err(hint_at_policy(&ledger, &wanted, error)?),
        Ok(id) => id,
    };
    if let Some(exit) = sign_first(cx, &ledger, &id, ask.decision)? {
        return Ok(exit);
    }
    if patch && !cx.json {
        let candidate = ledger.review(&id)?.candidate.commit;
        cx.screen(&review::patch(&ledger, &candidate)?)?;
    }
    if !yes {
        match ask_person(cx, &ledger, &id, &ask)? {
            Some(reviewed) => ask.candidate = ask.candidate.or(Some(reviewed)),
            None => return Ok(exit::PERSON),
        }
    }
    // The review says it, too; who answers without one has to hear it as well.
    let news = || Ok(warn::of_rules(&ledger)?.into_iter().collect());
    let notices = if yes { warn::say(cx, news) } else { vec![] };
    let (given, policy, held) = give(cx, &ledger, &id, &ask)?;
    let mut answer = to_json(&id, &given, &policy, held.as_ref());
    warn::tell(&mut answer, &notices);
    cx.answer(&answer, &to_text(&given, &policy))?;
    Ok(exit_of(&given, &policy))
}

/// Has the commit signed that waits for it. Some when that was all, for nobody is asked: the exit code.
fn sign_first(
    cx: &Cx,
    ledger: &Ledger,
    id: &PolicyId,
    decision: Decision,
) -> Result<Option<u8>, CliError> {
    let signing = |policy: &Policy| policy.status == Status::Signing;
    let waits = ledger.policy(id)?.is_some_and(|policy| signing(&policy));
    if !waits || decision == Decision::Reject {
        return Ok(None);
    }
    sign_now(cx, ledger, id)?;
    let held = settle(cx, ledger, id, false);
    let policy = ledger.require_policy(id)?;
    if policy.status == Status::AwaitingAck {
        return Ok(None);
    }
    let mut answer = answer::policy(cx, ledger, &policy)?;
    tell(&mut answer, held.as_ref());
    cx.answer(&answer, &show_text(cx, ledger, &policy)?)?;
    Ok(Some(exit_of_policy(&policy)))
}

/// Signs what waits for it: asking at the terminal, or else as far as it goes without anybody.
pub(super) fn sign_now(cx: &Cx, ledger: &Ledger, id: &PolicyId) -> Result<(), CliError> {
    if cx.is_interactive() {
        let key = ledger.commit_key();
        let with = key.map_or_else(String::new, |key| format!(", with {}", shown(&key)));
        cx.note(&format!(
            "the gates are green; the commit has to be signed before you are asked{with}"
        ));
        return Ok(perform::sign_with_person(ledger, id)?);
    }
    settle(cx, ledger, id, false);
    if ledger.require_policy(id)?.status == Status::Signing {
        let message = format!("{id}: what signs commits here asks for a person");
        return Err(CliError::new(Code::SigningNeedsPerson, message).about(id.as_str()));
    }
    Ok(())
}

/// When a session was named, its policy may be meant: said, never guessed, for a signature is at stake.
fn hint_at_policy(ledger: &Ledger, typed: &str, error: LedgerError) -> Result<CliError, CliError> {
    let absent = error.code() == Code::NoSuchPolicy;
    let error = CliError::from(error);
    let Ok(session) = ledger.find_session(typed) else { return Ok(error) };
    if !absent {
        return Ok(error);
    }
    let mut waiting = Vec::new();
    for policy in ledger.policies(false)? {
        if policy.status == Status::AwaitingAck && policy.spec.session_ids.contains(&session) {
            waiting.push(policy.policy_id);
        }
    }
    let hint = match waiting.as_slice() {
        [] => "that is a session; none of its policies waits for an ack".to_owned(),
        [one] => format!("that is a session; its policy is {one}: git agentproto ack {one}"),
        many => {
            let ids: Vec<&str> = many.iter().map(PolicyId::as_str).collect();
            format!("that is a session; {} of its policies wait: {}", ids.len(), ids.join(", "))
        }
    };
    Ok(error.with_hint(hint))
}

/// Shows the review and asks, in the middle of another command, and says what came of it; `None` when nothing
/// was signed and the policy is as it was.
pub(super) fn ask_in_place(
    cx: &Cx,
    ledger: &Ledger,
    id: &PolicyId,
) -> Result<Option<String>, CliError> {
    let mut ask = AckAsk {
        decision: Decision::Approve,
        reason: String::new(),
        expires_ms: limits::ACK_EXPIRES_DEFAULT_MS,
        key: None,
        candidate: None,
        presence: presence(cx),
    };
    ask.candidate = ask_person(cx, ledger, id, &ask)?;
    if ask.candidate.is_none() {
        return Ok(None);
    }
    let (given, policy, _) = give(cx, ledger, id, &ask)?;
    Ok(Some(to_text(&given, &policy)))
}

fn give(
    cx: &Cx,
    ledger: &Ledger,
    id: &PolicyId,
    ask: &AckAsk,
) -> Result<(AckGiven, Policy, Option<Held>), CliError> {
    if let Some(key) = ledger.asks_for_key(ask).filter(|_| ask.presence == Presence::Person) {
        cx.note(&format!("your answer is signed with {}", shown(&key)));
    }
    let before = ledger.policy(id)?.and_then(|policy| answer::candidate(&policy));
    let given = match ledger.ack(id, ask) {
        Ok(given) => given,
        Err(error) if error.code() == Code::Unauthorized => {
            return Err(unauthorized(ledger, id, error));
        }
        Err(error) => return Err(turned_down(cx, ledger, (id, before), error)),
    };
    let held = settle(cx, ledger, id, false);
    Ok((given, ledger.require_policy(id)?, held))
}

fn presence(cx: &Cx) -> Presence {
    if cx.is_interactive() { Presence::Person } else { Presence::Alone }
}

/// Whose approval is still missing where some are there; none where that is not the matter, or cannot be told.
fn missing(ledger: &Ledger, id: &PolicyId) -> Option<String> {
    let policy = ledger.policy(id).ok()??;
    if policy.status != Status::AwaitingAck || policy.approvals() == 0 {
        return None;
    }
    let (there, needed) = (policy.approvals(), policy.approvals_needed());
    let names = ledger.still_to_answer(&policy).ok()?;
    let names: Vec<String> = names.iter().map(|name| shown(name)).collect();
    let who = match names.as_slice() {
        [] => "nobody is listed who could give another".to_owned(),
        [one] => format!("{one} is still to answer"),
        many => format!("still to answer, any of: {}", many.join(", ")),
    };
    Some(format!("{there} of {needed} approvals; {who}"))
}

/// A key that is listed and excluded all the same has another remedy than one that is not listed.
fn unauthorized(ledger: &Ledger, id: &PolicyId, error: LedgerError) -> CliError {
    let because = error.to_string();
    let error = CliError::from(error);
    if !because.ends_with(EXCLUDED) {
        return error;
    }
    let names = ledger.policy(id).ok().flatten().and_then(|p| ledger.still_to_answer(&p).ok());
    let names: Vec<String> = names.unwrap_or_default().iter().map(|name| shown(name)).collect();
    error.with_hint(match names.as_slice() {
        [] => "agentproto.ackExclude leaves nobody who could answer: list another person's key in the \
               allowed-signers file"
            .to_owned(),
        [one] => format!("agentproto.ackExclude keeps this key out; {one} can answer"),
        many => format!(
            "agentproto.ackExclude keeps this key out; who can answer, any of: {}",
            many.join(", ")
        ),
    })
}

/// What became of a policy whose branch moved, or whose time was over, under the answer. `before` is the candidate that
/// waited when it was given.
fn turned_down(
    cx: &Cx,
    ledger: &Ledger,
    (id, before): (&PolicyId, Option<Oid>),
    error: LedgerError,
) -> CliError {
    let code = error.code();
    let error = CliError::from(error);
    if code == Code::Replayed {
        return match missing(ledger, id) {
            Some(hint) => error.with_hint(hint),
            None => error,
        };
    }
    if !matches!(code, Code::Stale | Code::Expired) {
        return error;
    }
    if ledger.policy(id).ok().flatten().is_some_and(|policy| is_due(&policy)) {
        settle(cx, ledger, id, false);
    }
    let Ok(Some(policy)) = ledger.policy(id) else { return error };
    match policy.status {
        Status::AwaitingAck if code == Code::Stale && answer::candidate(&policy) == before => error
            .with_hint(format!("review the candidate that waits, then git agentproto ack {id}")),
        Status::AwaitingAck if code == Code::Stale => error.with_hint(format!(
            "it was gated again and waits again: review it, then git agentproto ack {id}"
        )),
        Status::Queued | Status::Gating => {
            error.with_hint(format!("it is gated again: git agentproto wait {id}"))
        }
        Status::Blocked => {
            let reason = policy.reason.unwrap_or_default();
            error.with_hint(format!("it is blocked, {reason}: git agentproto policy show {id}"))
        }
        Status::Done | Status::Cancelled => {
            let how = policy.outcome.map_or("", |outcome| outcome.as_str());
            let state = [policy.status.as_str(), how].join(" ");
            error.with_hint(format!(
                "it is {} now, nothing waits for an answer: git agentproto policy show {id}",
                state.trim_end()
            ))
        }
        Status::AwaitingAck
        | Status::Signing
        | Status::Watching
        | Status::Nudging
        | Status::Committing => error,
    }
}

/// The candidate a person said yes to; `None` for a no.
fn ask_person(
    cx: &Cx,
    ledger: &Ledger,
    id: &PolicyId,
    ask: &AckAsk,
) -> Result<Option<Oid>, CliError> {
    let review = ledger.review(id)?;
    let (decision, candidate) = (ask.decision, review.candidate.commit);
    if !cx.is_interactive() {
        let message = format!("{id}: nobody is here to ask whether to {decision} {candidate}");
        let flags = flags(ask);
        return Err(CliError::new(Code::ConfirmationNeeded, message).about(id.as_str()).with_hint(
            format!(
                "review: {}; then: git agentproto ack {id}{flags} --yes --candidate {candidate}",
                review::look_at(&candidate)
            ),
        ));
    }
    let screen = review::render(cx, ledger, &review)?;
    cx.screen(&text::wrapped(&screen, text::columns_of_stderr(&cx.env)))?;
    let question = match decision {
        Decision::Approve => "Approve? [y/N/d=diff]",
        Decision::Reject => "Reject? [y/N/d=diff]",
    };
    loop {
        match cx.ask(question)?.as_str() {
            "d" | "D" | "diff" => cx.screen(&review::patch(ledger, &candidate)?)?,
            typed if is_yes(typed) => return Ok(Some(candidate)),
            _ => {
                cx.note("nothing was signed; the policy still waits");
                return Ok(None);
            }
        }
    }
}

/// What was typed besides, to be typed again.
fn flags(ask: &AckAsk) -> String {
    let mut words = Vec::new();
    words.extend((ask.decision == Decision::Reject).then(|| "--reject".to_owned()));
    if !ask.reason.is_empty() {
        words.extend(["-m".to_owned(), ask.reason.clone()]);
    }
    if ask.expires_ms != limits::ACK_EXPIRES_DEFAULT_MS {
        words.extend(["--expires".to_owned(), typed_duration(ask.expires_ms)]);
    }
    let key = ask.key.as_ref().map(|key| key.display().to_string());
    words.extend(key.into_iter().flat_map(|key| ["--key".to_owned(), key]));
    words.iter().map(|word| format!(" {}", shell_words::quote(word))).collect()
}

impl AckArgs {
    fn meaning(self, cx: &Cx) -> Result<AckAsk, CliError> {
        let expires = self.expires.as_deref();
        let expires_ms = expires.map(|e| args::duration_ms("--expires", e)).transpose()?;
        Ok(AckAsk {
            decision: if self.reject { Decision::Reject } else { Decision::Approve },
            reason: self.message.unwrap_or_default(),
            expires_ms: expires_ms.unwrap_or(limits::ACK_EXPIRES_DEFAULT_MS),
            key: self.key.map(|key| cx.env.cwd().join(key)),
            candidate: self.candidate.as_deref().map(full_id).transpose()?,
            presence: presence(cx),
        })
    }
}

fn full_id(text: &str) -> Result<Oid, CliError> {
    text.parse().map_err(|_| {
        CliError::new(Code::Usage, format!("--candidate: no full commit id: '{text}'"))
            .about("--candidate")
            .with_hint("take it from git agentproto policy show POLICY --candidate")
    })
}

fn exit_of(given: &AckGiven, policy: &Policy) -> u8 {
    match (given.decision, policy.status) {
        (Decision::Reject, _) | (Decision::Approve, Status::Done) => exit::DONE,
        (Decision::Approve, Status::Blocked | Status::Cancelled) => exit::NO,
        // More people are asked, or the branch moved and all are asked again.
        (Decision::Approve, Status::Signing | Status::AwaitingAck) => exit::PERSON,
        (
            Decision::Approve,
            Status::Watching
            | Status::Queued
            | Status::Gating
            | Status::Nudging
            | Status::Committing,
        ) => exit::BROKEN,
    }
}

fn to_json(id: &PolicyId, given: &AckGiven, policy: &Policy, held: Option<&Held>) -> Value {
    json!({
        "schema": "agentproto/ack/1",
        "policyId": id,
        "decision": given.decision,
        "signer": given.signer,
        "key": given.key,
        "candidate": given.candidate,
        "status": policy.status,
        "reason": held.map(|h| h.code.as_str()).or(policy.reason.as_deref()),
        "commitSha": policy.commit_sha,
        "approvals": policy.approvals(),
        "ackQuorum": policy.approvals_needed(),
    })
}

fn to_text(given: &AckGiven, policy: &Policy) -> String {
    let said = match given.decision {
        Decision::Approve => "approved",
        Decision::Reject => "rejected",
    };
    let mut text = format!("{said} by {} ({})\n", shown(&given.signer), given.key);
    let branch = policy.spec.commit.as_ref().map_or("", |c| c.branch.as_str());
    match policy.commit_sha {
        Some(commit) => text.push_str(&format!("{commit} is on {}\n", shown(branch))),
        None if policy.status == Status::AwaitingAck && policy.approvals() > 0 => {
            let (there, needed) = (policy.approvals(), policy.approvals_needed());
            text.push_str(&format!("{there} of {needed} approvals: the policy still waits\n"));
        }
        None => text.push_str(&format!("the policy is {}\n", policy.status.as_str())),
    }
    text
}

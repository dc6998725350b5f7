//! `policy attach|list|show|wait|ack|cancel|regate|adopt|dismiss`: what happens when a session's turn ends.

use super::{
    ack,
    again::{TOOL, tool},
    answer, attach,
    cx::Cx,
    error::CliError,
    names::Names,
    review,
    settle::settle,
    text::{LABEL_COLUMNS, ago, cut, duration, output, shown, table_with_ids, typed_duration},
    wait,
};
use crate::{
    code::{Code, exit},
    domain::{
        candidate::is_head,
        gate::{Gate, GateEnd, GateResult, Verdict},
        ids::{PolicyId, SessionId},
        input::Input,
        policy::{NextPolicy, OnEnd, OnStale, Policy, PolicySpec, Status},
    },
    engine::{Effect, gate_key},
    ledger::{Ledger, LedgerError},
    limits,
    runtime::live,
    sys::clock,
};
use clap::ValueEnum;
use serde_json::{Value, json};

/// The commands below `policy`.
#[derive(clap::Subcommand)]
pub(super) enum PolicyCommand {
    /// Say what happens when a session's turn ends
    #[command(override_usage = "git agentproto policy attach SESSION... [OPTIONS] [-- GATE...]")]
    Attach(Box<attach::AttachArgs>),
    /// List the policies that are open
    List(ListArgs),
    /// Everything known of one policy
    Show(ShowArgs),
    /// Block until something is true (= wait)
    Wait(wait::WaitArgs),
    /// Review a candidate, then give a signed answer (= ack)
    Ack(ack::AckArgs),
    /// Stop a policy; a running gate is killed
    Cancel(CancelArgs),
    /// Attach once more what is over, of the same turns: a new policy, gated anew
    Regate(RegateArgs),
    /// Take over a policy, and its sessions, from a clone that is gone
    Adopt(AdoptArgs),
    /// Be done with a blocked policy: status tells of it no more
    Dismiss(CancelArgs),
}

/// Which policies to list.
#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// Only those in this state
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<StateArg>,
    /// Only those of this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Also those that are over
    #[arg(long)]
    all: bool,
}

/// The states of the domain, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StateArg(Status);

impl ValueEnum for StateArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [StateArg; Status::ALL.len()] = {
            let mut all = [StateArg(Status::Watching); Status::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = StateArg(Status::ALL[i]);
                i += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.0.as_str()))
    }
}

/// Which policy to show.
#[derive(clap::Args)]
pub(super) struct ShowArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Only the id of its candidate commit
    #[arg(long)]
    candidate: bool,
}

/// Which policy to take over.
#[derive(clap::Args)]
pub(super) struct AdoptArgs {
    /// Id, unique prefix of one, or label, as the journal of that clone has it
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Return at once; a process of its own goes on
    #[arg(long)]
    no_wait: bool,
}

/// Which policy to attach once more.
#[derive(clap::Args)]
pub(super) struct RegateArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Return at once; a process of its own goes on
    #[arg(long)]
    no_wait: bool,
}

/// Which policy to stop or to be done with.
#[derive(clap::Args)]
pub(super) struct CancelArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Why
    #[arg(short, long = "message", value_name = "WHY", allow_hyphen_values = true)]
    message: Option<String>,
}

pub(super) fn run(cx: &Cx, command: PolicyCommand) -> Result<u8, CliError> {
    match command {
        PolicyCommand::Attach(args) => attach::run(cx, *args),
        PolicyCommand::List(args) => list(cx, &args),
        PolicyCommand::Show(args) => {
            let ledger = cx.ledger()?;
            let id = match ledger.find_policy(&args.policy) {
                Ok(id) => id,
                Err(error) => return Err(elsewhere(&ledger, &args.policy, error)?),
            };
            if args.candidate { show_candidate(cx, &ledger, &id) } else { show(cx, &ledger, &id) }
        }
        PolicyCommand::Wait(args) => wait::run(cx, args),
        PolicyCommand::Ack(args) => ack::run(cx, args),
        PolicyCommand::Cancel(args) => cancel(cx, args),
        PolicyCommand::Adopt(args) => {
            cx.require_person(Code::PersonOnly, "taking over a policy")?;
            let ledger = cx.ledger()?;
            if let Ok(ours) = ledger.find_policy(&args.policy) {
                cx.note(&format!("{ours} is this clone's already"));
                return show(cx, &ledger, &ours);
            }
            let adopted = ledger.adopt_policy(&args.policy)?;
            attach::tell_attached(cx, &ledger, (&adopted, false), args.no_wait)
        }
        PolicyCommand::Regate(args) => {
            let ledger = cx.ledger()?;
            let attached = ledger.regate(&ledger.find_policy(&args.policy)?)?;
            attach::tell_attached(cx, &ledger, (&attached, false), args.no_wait)
        }
        PolicyCommand::Dismiss(args) => dismiss(cx, args),
    }
}

fn list(cx: &Cx, args: &ListArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let session = args.session.as_deref().map(|s| ledger.find_session(s)).transpose()?;
    // A state that is over can only be found among those that are.
    let all = args.all || args.state.is_some_and(|s| s.0.is_terminal());
    let mut policies = ledger.policies(all)?;
    policies.retain(|p| wanted(p, args.state, session.as_ref()));
    let answer = json!({
        "schema": "agentproto/policy-list/1",
        "policies": policies.iter().map(|p| short(cx, p)).collect::<Value>(),
    });
    cx.answer(&answer, &rows(cx, &Names::load(cx, &ledger)?, &policies, ""))?;
    Ok(exit::DONE)
}

fn short(cx: &Cx, policy: &Policy) -> Value {
    answer::policy_short(
        policy,
        answer::open_step(cx, TOOL, policy, policy.policy_id.as_str()).as_deref(),
    )
}

fn wanted(policy: &Policy, state: Option<StateArg>, session: Option<&SessionId>) -> bool {
    state.is_none_or(|s| s.0 == policy.status)
        && session.is_none_or(|s| policy.spec.session_ids.contains(s))
}

/// One line a policy: what it is called, its id, its state, since when, what it is for.
pub(super) fn rows(cx: &Cx, names: &Names, policies: &[Policy], indent: &str) -> String {
    let now = clock::now();
    let labelled = policies.iter().any(|p| p.spec.label.is_some());
    let row = |p: &Policy| {
        let label = p.spec.label.as_deref().map(|label| cut(label, LABEL_COLUMNS));
        let label = labelled.then(|| label.unwrap_or_default());
        let id = names.short(p.policy_id.as_str());
        let rest = [id, state_words(p), ago(p.since, now), purpose(p)];
        label.into_iter().chain(rest).collect()
    };
    let rows: Vec<Vec<String>> = policies.iter().map(row).collect();
    let ids = usize::from(labelled) + 1;
    table_with_ids(&rows, indent, cx.columns, ids)
}

fn state_words(policy: &Policy) -> String {
    match (policy.status, &policy.reason) {
        (Status::Cancelled, _) => answer::stopped(policy),
        (status, Some(reason)) if policy.dismissed => {
            format!("{}: {reason}, dismissed", status.as_str())
        }
        (status, Some(reason)) => format!("{}: {reason}", status.as_str()),
        (status, None) if policy.is_expired(clock::now()) => {
            format!("{}, its time is over", status.as_str())
        }
        (status, None) => status.as_str().to_owned(),
    }
}

/// What it is for, in a few words.
fn purpose(policy: &Policy) -> String {
    match &policy.spec.commit {
        Some(commit) => commit.message.lines().next().unwrap_or_default().to_owned(),
        None => gate_list(&policy.spec),
    }
}

fn gate_list(spec: &PolicySpec) -> String {
    spec.gates.iter().map(Gate::shown).collect::<Vec<_>>().join("; ")
}

/// What follows when a policy is done: whoever approves lets that begin, too.
fn follows(next: &NextPolicy) -> String {
    let NextPolicy { next_turn, spec, .. } = next;
    let mut words = Vec::new();
    if let Some(commit) = &spec.commit {
        let paths: Vec<String> = commit.paths.iter().map(|path| format!("'{path}'")).collect();
        let subject = commit.message.lines().next().unwrap_or_default();
        words.push(format!("commit {}: {subject}", paths.join(", ")));
        words.extend((!commit.require_human_ack).then(|| "nobody is asked".to_owned()));
    }
    words.push(match gate_list(spec) {
        gates if gates.is_empty() => "ungated".to_owned(),
        gates => format!("gated by {gates}"),
    });
    words.extend(next_turn.then(|| "after the next turn".to_owned()));
    words.join("; ")
}

/// A policy of another clone that was to be looked at: where plain git shows it.
fn elsewhere(ledger: &Ledger, text: &str, error: LedgerError) -> Result<CliError, CliError> {
    if !matches!(error.code(), Code::NoSuchPolicy | Code::NotOwner) {
        return Ok(error.into());
    }
    let found = ledger.policies_elsewhere(text)?;
    let Some(one) = found.first() else { return Ok(error.into()) };
    let message = format!("{}: it belongs to writer {}", one.id, one.writer);
    let hint = format!("look at what was fetched of it: git show {}", one.document);
    Ok(CliError::new(Code::NotOwner, message).about(one.id.as_str()).with_hint(hint))
}

fn show_candidate(cx: &Cx, ledger: &Ledger, id: &PolicyId) -> Result<u8, CliError> {
    let policy = ledger.require_policy(id)?;
    let Some(candidate) = answer::candidate(&policy) else {
        let message =
            format!("{id}: there is no candidate, the policy is {}", state_words(&policy));
        return Err(CliError::new(Code::NoSuchRevision, message)
            .about(id.as_str())
            .with_hint(format!("see git agentproto policy show {id}")));
    };
    let answer = json!({
        "schema": "agentproto/candidate/1",
        "policyId": id,
        "candidate": candidate,
    });
    cx.answer(&answer, &format!("{candidate}\n"))?;
    Ok(exit::DONE)
}

/// Answers with one policy.
pub(super) fn show(cx: &Cx, ledger: &Ledger, id: &PolicyId) -> Result<u8, CliError> {
    let policy = ledger.require_policy(id)?;
    cx.answer(&answer::policy(cx, ledger, &policy)?, &show_text(cx, ledger, &policy)?)?;
    Ok(exit::DONE)
}

/// A policy for people.
pub(super) fn show_text(cx: &Cx, ledger: &Ledger, policy: &Policy) -> Result<String, CliError> {
    let mut text = head(cx, policy);
    for result in &policy.results {
        if let Some(hook) = &result.hook {
            text.push_str(&format!("  hook      {}: {}\n", shown(hook), gate_words(result)));
        }
    }
    for (index, gate) in policy.spec.gates.iter().enumerate() {
        let result = policy.results.iter().find(|r| r.hook.is_none() && r.index == index);
        let yet = if policy.status == Status::Gating { "not done yet" } else { "not run" };
        let said = result.map_or_else(|| yet.to_owned(), gate_words);
        text.push_str(&format!("  gate      {}: {said}\n", shown(&gate_named(gate))));
    }
    if let Some(last) = policy.results.last().filter(|r| r.verdict != Verdict::Pass) {
        match answer::tail(ledger, last) {
            Some(tail) if tail.trim().is_empty() => {}
            Some(tail) => text.push_str(&output(&tail, limits::TAIL_SHOWN_LINES)),
            // What did not run wrote nothing.
            None if last.log.is_none() => {}
            None => text.push_str("    (its output is not on this machine)\n"),
        }
    }
    if policy.status == Status::AwaitingAck {
        match answer::quorum(ledger, policy) {
            Ok(1) => {}
            Ok(quorum) => {
                text.push_str(&format!("  approvals {} of {quorum}\n", policy.approvals()));
            }
            Err(why) => text.push_str(&format!(
                "  (how many approvals it takes cannot be told: {})\n",
                shown(&why.message)
            )),
        }
        if let Some(stale) = answer::stale(ledger, policy)? {
            text.push_str(&format!("  stale     {}\n", shown(&stale)));
        }
        if let Some(lost) = answer::lost(ledger, policy) {
            text.push_str(&format!("  lost      {}\n", shown(&lost)));
        }
        match ledger.review(&policy.policy_id) {
            Ok(review) => text.push_str(&review::diffstat(cx, &review)),
            // The rest is worth showing.
            Err(e) => text.push_str(&format!(
                "  (what it changes cannot be told: {})\n",
                shown(&e.to_string())
            )),
        }
    }
    if let Some(next) = answer::next_step(cx, ledger, policy)? {
        text.push_str(&format!("  next      {}\n", shown(&next)));
        if policy.status == Status::Blocked && cx.inside_session().is_none() {
            let name = Names::load(cx, ledger)?.of_policy(policy);
            // The right path makes it another question, so asking that does not end this one.
            let stays = policy.reason.as_deref() == Some(Code::NoSuchPath.as_str());
            let row = if stays { "then" } else { "or" };
            let dismissal = dismissal(&tool(cx, ledger), &name);
            text.push_str(&format!("  {row:<9} {}\n", shown(&dismissal)));
        }
    }
    Ok(text)
}

/// The command of somebody who wants nothing more of a blocked policy.
pub(super) fn dismissal(tool: &str, name: &str) -> String {
    format!("{tool} policy dismiss {name}")
}

/// Reason, last output and next step of a blocked policy, for whoever just caused it.
pub(super) fn why_blocked(cx: &Cx, ledger: &Ledger, policy: &Policy) -> Result<String, CliError> {
    let because = policy.because.as_ref().map(|because| format!(": {because}"));
    let why = format!("{}{}", state_words(policy), because.unwrap_or_default());
    let mut text = format!("{}: {}\n", policy.policy_id, shown(&why));
    if let Some(last) = policy.results.last().filter(|r| r.verdict != Verdict::Pass) {
        let tail = answer::tail(ledger, last).unwrap_or_default();
        if !tail.trim().is_empty() {
            text.push_str(&output(&tail, limits::TAIL_BRIEF_LINES));
        }
    }
    if let Some(next) = answer::next_step(cx, ledger, policy)? {
        text.push_str(&format!("next: {}\n", shown(&next)));
    }
    Ok(text)
}

fn head(cx: &Cx, policy: &Policy) -> String {
    let state = shown(&state_words(policy));
    let since = ago(policy.since, clock::now());
    let mut text = format!("policy {}  {}  {since}\n", policy.policy_id, cx.paint.bold(&state));
    let mut rows: Vec<[String; 2]> = Vec::new();
    let mut row = |name: &str, value: String| rows.push([name.to_owned(), value]);
    // How it was stopped stands above already.
    if let Some(because) = policy.because.as_ref().filter(|_| policy.status != Status::Cancelled) {
        row("because", because.clone());
    }
    if let Some(label) = &policy.spec.label {
        row("label", label.clone());
    }
    for session in &policy.spec.session_ids {
        let stalled = policy.stalled_by.contains(session);
        let how = match (stalled, policy.pending.contains(session)) {
            (true, _) => " (its turn ended unfinished)",
            (false, true) if policy.status == Status::Watching => " (awaited)",
            (false, _) => "",
        };
        row("session", format!("{session}{how}"));
    }
    if let Some(commit) = &policy.spec.commit {
        row("branch", branch_words(&commit.branch));
        for path in &commit.paths {
            row("path", path.to_string());
        }
        row("message", commit.message.lines().next().unwrap_or_default().to_owned());
    }
    if let Some(candidate) = &policy.candidate {
        row("candidate", candidate.commit.to_string());
        row("parent", candidate.parent.to_string());
    }
    for (name, value) in binds(policy) {
        row(name, value);
    }
    for ack in &policy.acks {
        let why = answer::ack_reason(ack).map(|why| format!(": {why}")).unwrap_or_default();
        row("ack", format!("{} by {} ({}){why}", ack.decision, ack.signer, ack.key));
    }
    for judged in &policy.judged {
        row("refused", format!("{} (line {})", judged.outcome, judged.line));
    }
    if let Some(told) = told_words(policy) {
        row("retries", told);
    }
    if let Some(commit) = &policy.commit_sha {
        row("commit", commit.to_string());
    }
    if let Some(outcome) = policy.outcome {
        row("outcome", outcome.as_str().to_owned());
    }
    for [name, value] in rows {
        text.push_str(&format!("  {name:<9} {}\n", shown(&value)));
    }
    text
}

/// How often its sessions were told of red gates, where that is asked for.
fn told_words(policy: &Policy) -> Option<String> {
    let on_fail = policy.spec.on_fail.as_ref()?;
    Some(format!("{} of {} told", policy.nudges, on_fail.max_retries))
}

/// A gate with what its run is bound by besides its conditions.
pub(super) fn gate_named(gate: &Gate) -> String {
    let def = match gate {
        Gate::Scope(_) => return gate.shown(),
        Gate::Shell(gate) => &gate.def,
    };
    let place = (def.cwd != ".").then(|| format!("in {}", def.cwd));
    let default = def.timeout_ms == limits::GATE_TIMEOUT_DEFAULT_MS;
    let time = (!default).then(|| format!("at most {}", typed_duration(def.timeout_ms)));
    let more: Vec<String> = place.into_iter().chain(time).collect();
    if more.is_empty() { def.shown() } else { format!("{} ({})", def.shown(), more.join(", ")) }
}

/// What holds beside a green gate, as names and values: conditions of the gates, its end, what is let through.
pub(super) fn binds(policy: &Policy) -> Vec<(&'static str, String)> {
    let mut rows: Vec<(&str, String)> = Vec::new();
    let mut row = |name, value| {
        let row = (name, value);
        if !rows.contains(&row) {
            rows.push(row);
        }
    };
    for def in policy.spec.gates.iter().filter_map(Gate::shell).map(|gate| &gate.def) {
        if let Some(wanted) = &def.require_output {
            let wanted = shell_words::quote(wanted);
            row("output", format!("has to have a line that matches {wanted}"));
        }
        for pattern in &def.protect {
            row("protected", format!("{pattern} (as on the trusted ref)"));
        }
        for (name, value) in &def.env {
            row("gate env", format!("{name}={value}"));
        }
        if def.env_clean {
            row("gate env", "nothing of the environment it is started from".to_owned());
        }
    }
    if let Some(commit) = &policy.spec.commit {
        if !policy.spec.needs_ack() {
            row("no ack", "it lands without being asked about".to_owned());
        }
        for (asked, what) in [
            (commit.allow_markers, "conflict markers"),
            (commit.force_ignored, "ignored files"),
            (commit.allow_submodule, "declared submodules"),
        ] {
            if asked {
                row("allowed", what.to_owned());
            }
        }
        row("on stale", on_stale_words(policy.spec.on_stale).to_owned());
    }
    let spec = &policy.spec;
    for words in on_end_words(spec.on_end).into_iter().chain(spec.end_session.then_some(ENDS)) {
        row("on end", words.to_owned());
    }
    let mut next = policy.spec.next.as_ref();
    while let Some(following) = next {
        row("follows", follows(following));
        next = following.spec.next.as_ref();
    }
    if let Some(expires) = policy.spec.expires {
        let over = if policy.is_expired(clock::now()) { " (over)" } else { "" };
        row("expires", format!("{expires}{over}"));
    }
    rows
}

/// Said of a policy whose sessions end with it.
const ENDS: &str = "ends its sessions";

/// Which ends of a turn count, where it is not those by which the agent is finished.
fn on_end_words(on_end: OnEnd) -> Option<&'static str> {
    match on_end {
        OnEnd::Finished => None,
        OnEnd::Gate => Some("every end"),
    }
}

/// What moves when it lands.
pub(super) fn branch_words(name: &str) -> String {
    if is_head(name) { format!("{name}, on no branch") } else { name.to_owned() }
}

fn on_stale_words(on_stale: OnStale) -> &'static str {
    match on_stale {
        OnStale::Regate => "regate: gated again and asked again",
        OnStale::Block => "block: it ends",
    }
}

/// Verdict, how it ended, how long it took, what it saw besides.
pub(super) fn gate_words(result: &GateResult) -> String {
    let end = match &result.end {
        GateEnd::Exit(code) => format!("exit code {code}"),
        GateEnd::Signal(name) => shown(name),
        // The rest of the record says the same in other words.
        GateEnd::Timeout => {
            let verdict = result.verdict.as_str();
            return format!("{verdict}, out of time after {}", duration(result.duration_ms));
        }
        // Judged without a program.
        GateEnd::NotRun if result.line.is_some() => String::new(),
        GateEnd::NotRun => "not run".to_owned(),
    };
    let mut words = vec![result.verdict.as_str().to_owned(), end, duration(result.duration_ms)];
    words.retain(|word| !word.is_empty());
    words.extend(result.reason.as_deref().map(shown));
    let more = result.because.as_deref().map(shown).filter(|because| !words.contains(because));
    words.extend(more);
    if result.unlisted_changes > 0 {
        let named: Vec<String> =
            result.beside.iter().map(|path| shown(&path.to_string())).collect();
        let more = if named.len() as u64 == result.unlisted_changes { "" } else { ", …" };
        let named =
            if named.is_empty() { String::new() } else { format!(" ({}{more})", named.join(", ")) };
        words.push(format!(
            "uncommitted beside the listed files: {}{named}",
            result.unlisted_changes
        ));
    }
    if result.left_behind > 0 {
        words.push(format!("processes left behind and killed: {}", result.left_behind));
    }
    words.join(", ")
}

fn cancel(cx: &Cx, args: CancelArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let id = ledger.find_policy(&args.policy)?;
    // Recorded first: whoever performs the gate finds its result unwanted, however the kill goes.
    let input = Input::CancelAsked { policy: id.clone(), because: args.message };
    let recording = ledger.record(input).map_err(|error| not_cancelled(&ledger, &id, error))?;
    for effect in &recording.effects {
        if let Effect::KillGates { policy, attempt } = effect {
            let agent_dir = ledger.store().location().agent_dir();
            live::request_cancel(&agent_dir, &gate_key(policy, *attempt))?;
        }
    }
    settle(cx, &ledger, &id, false);
    show(cx, &ledger, &id)
}

/// Who wants to be rid of what is blocked is told how.
fn not_cancelled(ledger: &Ledger, id: &PolicyId, error: LedgerError) -> CliError {
    let is_blocked =
        ledger.policy(id).is_ok_and(|p| p.is_some_and(|p| p.status == Status::Blocked));
    let is_over = error.code() == Code::Terminal;
    let error = CliError::from(error);
    if is_over && is_blocked {
        return error.with_hint(format!("to be done with it: {}", dismissal(TOOL, id.as_str())));
    }
    error
}

/// What a person is done with is a person's to say: an agent must not hide its own red gates.
fn dismiss(cx: &Cx, args: CancelArgs) -> Result<u8, CliError> {
    cx.require_person(Code::PersonOnly, "dismissing a policy")?;
    let ledger = cx.ledger()?;
    let id = ledger.find_policy(&args.policy)?;
    ledger.record(Input::DismissAsked { policy: id.clone(), because: args.message })?;
    show(cx, &ledger, &id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::policy;

    #[test]
    fn a_gate_says_its_end_once() {
        let mut result = policy("blocked").results.remove(0);
        result.verdict = Verdict::Fail;
        result.end = GateEnd::Exit(1);
        result.because = Some("exit code 1".into());
        result.unlisted_changes = 2;
        assert_eq!(
            gate_words(&result),
            "fail, exit code 1, 12 ms, uncommitted beside the listed files: 2"
        );
        result.end = GateEnd::Timeout;
        result.because = Some("killed\u{1b}".into());
        result.unlisted_changes = 0;
        assert_eq!(gate_words(&result), "fail, out of time after 12 ms");
    }

    #[test]
    fn lists_are_filtered_by_state_and_session() {
        let policy = policy("watching");
        let (mine, other) =
            (&policy.spec.session_ids[0], "ses_01arz3ndektsv4rrffq69g5faw".parse().unwrap());
        assert!(wanted(&policy, None, None));
        assert!(wanted(&policy, Some(StateArg(Status::Watching)), Some(mine)));
        assert!(!wanted(&policy, Some(StateArg(Status::Done)), None));
        assert!(!wanted(&policy, None, Some(&other)));
    }
}

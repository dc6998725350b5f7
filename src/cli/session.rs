//! `session adopt|report|list|show`: agents at work, as they or their callers tell of them. Those that we start ourselves
//! are in [`super::agents`].

use super::{
    agents, answer,
    cx::Cx,
    error::CliError,
    names::Names,
    policy,
    settle::settle,
    text::{LABEL_COLUMNS, ago, cut, shown, table, table_with_ids},
    warn,
};
use crate::{
    code::{Code, exit},
    domain::{
        event::{Entity, Kind},
        ids::{PolicyId, SessionId},
        input::{Input, Report},
        policy::Status,
        session::{EndReason, Exit, Loose, OpenRequest, Process, Session, Turn},
    },
    ledger::{AdoptAsk, Ledger, Recording},
    limits,
    runtime::perform::is_due,
    sys::clock,
    wire::sentence::left_open,
};
use clap::ValueEnum;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::PathBuf};

/// The commands below `session`.
#[derive(clap::Subcommand)]
pub(super) enum SessionCommand {
    /// Start an agent: a command whose every run is a turn
    #[command(override_usage = agents::USAGE)]
    Start(agents::StartArgs),
    /// Register a session that somebody else runs
    Adopt(AdoptArgs),
    /// Tell what a session's agent did, and do what follows from it
    Report(ReportArgs),
    /// Tell the agent of a session something, which begins a turn
    Prompt(agents::PromptArgs),
    /// What the agent of a session wrote
    Output(agents::OutputArgs),
    /// End a session and everything its agent started
    Kill(agents::KillArgs),
    /// List the sessions that are alive
    List(ListArgs),
    /// Everything known of one session
    Show(ShowArgs),
}

/// A session to register, as typed.
#[derive(clap::Args)]
pub(super) struct AdoptArgs {
    /// A name for it
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// Where the agent works [default: here]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The revision it started from [default: HEAD there]
    #[arg(long, value_name = "REV")]
    base: Option<String>,
}

/// What happened, as typed.
#[derive(clap::Args)]
pub(super) struct ReportArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "SESSION")]
    session: String,
    /// What happened
    #[arg(value_enum)]
    kind: ReportKind,
    /// Number of the turn; the same end told twice counts once
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
    /// Why the turn ended [default: completed]
    #[arg(long, value_enum, value_name = "REASON")]
    reason: Option<ReasonArg>,
    /// The same key gives the same answer and is recorded once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// What the event needs, as JSON; of a turn-end what is not finished: {"background":N,"empty":true}
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Only record; do nothing that follows from it
    #[arg(long, conflicts_with = "no_wait")]
    no_perform: bool,
    /// Return at once; a process of its own goes on
    #[arg(long)]
    no_wait: bool,
}

/// Kinds that can be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReportKind {
    TurnStart,
    TurnEnd,
    AwaitingInput,
    InputAnswered,
    Exited,
    CommandDone,
}

/// The reasons of the domain, as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReasonArg(EndReason);

impl ValueEnum for ReasonArg {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [ReasonArg; EndReason::ALL.len()] = {
            let mut all = [ReasonArg(EndReason::Completed); EndReason::ALL.len()];
            let mut i = 0;
            while i < all.len() {
                all[i] = ReasonArg(EndReason::ALL[i]);
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

/// Which sessions to list.
#[derive(clap::Args)]
pub(super) struct ListArgs {
    /// Also those that are over
    #[arg(long)]
    all: bool,
}

/// Which session to show.
#[derive(clap::Args)]
pub(super) struct ShowArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "SESSION")]
    session: String,
}

pub(super) fn run(cx: &Cx, command: SessionCommand) -> Result<u8, CliError> {
    match command {
        SessionCommand::Start(args) => agents::start(cx, args),
        SessionCommand::Prompt(args) => agents::prompt(cx, args),
        SessionCommand::Output(args) => agents::output(cx, &args),
        SessionCommand::Kill(args) => agents::kill(cx, args),
        SessionCommand::Adopt(args) => adopt(cx, args),
        SessionCommand::Report(args) => report(cx, args),
        SessionCommand::List(args) => list(cx, &args),
        SessionCommand::Show(args) => {
            let ledger = cx.ledger()?;
            let id = ledger.find_session(&args.session)?;
            show(cx, &ledger, &id)
        }
    }
}

fn adopt(cx: &Cx, args: AdoptArgs) -> Result<u8, CliError> {
    let cwd = args.cwd.map_or_else(|| cx.env.cwd().to_owned(), |dir| cx.env.cwd().join(dir));
    let ledger = cx.ledger()?;
    let (id, _) = ledger.adopt(&AdoptAsk { label: args.label, cwd, base: args.base })?;
    warn::of_session(cx, &ledger, &id);
    show(cx, &ledger, &id)
}

/// Answers with one session.
pub(super) fn show(cx: &Cx, ledger: &Ledger, id: &SessionId) -> Result<u8, CliError> {
    let session = ledger.require_session(id)?;
    let answer = answer::session(ledger, &session)?;
    cx.answer(&answer, &show_text(&session, answer["cwd"].as_str()))?;
    Ok(exit::DONE)
}

pub(super) fn show_text(session: &Session, cwd: Option<&str>) -> String {
    let label = session.label.as_deref().map(|l| format!(" ({})", shown(l))).unwrap_or_default();
    let mut text = format!("session {}{label}\n", session.session_id);
    let mut rows = vec![
        ["worktree".to_owned(), cwd.unwrap_or("unknown: the worktree is gone").to_owned()],
        ["turn".to_owned(), turn_words(session)],
    ];
    rows.extend(
        session.launch.iter().map(|launch| ["agent".to_owned(), shell_words::join(&launch.argv)]),
    );
    rows.extend(process_words(&session.process).map(|words| ["process".to_owned(), words]));
    if session.stopping && !session.is_exited() {
        rows.push(["process".to_owned(), "is being ended".to_owned()]);
    }
    if !session.queue.is_empty() {
        rows.push(["queued".to_owned(), format!("{} to be told", session.queue.len())]);
    }
    let dirty = if session.dirty_base { " (files differed from it already)" } else { "" };
    rows.extend(session.base.map(|base| ["base".to_owned(), format!("{base}{dirty}")]));
    rows.extend(session.open_requests.iter().map(|r| {
        let asks = r.text.as_deref().unwrap_or("(no text)");
        ["asks".to_owned(), format!("{}: {asks}", r.id)]
    }));
    rows.extend(session.policies.iter().map(|p| ["policy".to_owned(), p.to_string()]));
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    text.push_str(&table(&rows, "  ", None));
    text
}

/// How the process ended; nothing is said about one of which nothing is known.
fn process_words(process: &Process) -> Option<String> {
    match process {
        Process::Unknown => None,
        Process::Alive => Some("runs".to_owned()),
        Process::Idle => Some("none; a prompt starts the next run".to_owned()),
        Process::Exited(Exit::Code(code)) => Some(format!("exited with {code}")),
        Process::Exited(Exit::Signal(name)) => Some(format!("killed by {name}")),
        Process::Exited(Exit::NotStarted) => Some("could not be started".to_owned()),
        Process::Exited(Exit::Unknown) => Some("exited".to_owned()),
    }
}

/// The same in one word, for lists.
fn process_word(session: &Session) -> String {
    match session.process {
        Process::Unknown => String::new(),
        Process::Alive => "alive".to_owned(),
        Process::Idle => "idle".to_owned(),
        Process::Exited(_) => "exited".to_owned(),
    }
}

/// What the session's turn does, in a few words.
pub(super) fn turn_words(session: &Session) -> String {
    let (state, reason, inferred) = answer::turn(&session.turn_state);
    let number = session.turn;
    let how = if inferred { ", nobody said so" } else { "" };
    match reason {
        Some(reason) => {
            let rest = match session.turn_state {
                Turn::Ended { loose, .. } => left_open(loose),
                Turn::None | Turn::Running => String::new(),
            };
            format!("turn {number} {state}: {reason}{how}{rest}")
        }
        None if number == 0 => "no turn yet".to_owned(),
        None => format!("turn {number} {state}"),
    }
}

fn list(cx: &Cx, args: &ListArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let sessions = ledger.sessions(args.all)?;
    let answer = json!({
        "schema": "agentproto/session-list/1",
        "sessions": sessions.iter().map(answer::session_short).collect::<Value>(),
    });
    cx.answer(&answer, &rows(cx, &Names::load(cx, &ledger)?, &sessions, ""))?;
    Ok(exit::DONE)
}

/// One line a session.
pub(super) fn rows(cx: &Cx, names: &Names, sessions: &[Session], indent: &str) -> String {
    let now = clock::now();
    let rows: Vec<Vec<String>> = sessions
        .iter()
        .map(|s| {
            let stopping = if s.stopping && !s.is_exited() { "is being ended" } else { "" };
            let queued = match s.queue.len() {
                0 => String::new(),
                n => format!("{n} queued"),
            };
            let open = match s.open_requests.len() {
                0 => String::new(),
                n => format!("{n} open"),
            };
            let label = cut(s.label.as_deref().unwrap_or_default(), LABEL_COLUMNS);
            let state = [turn_words(s), process_word(s), open, queued, stopping.to_owned()];
            let state: Vec<_> = state.into_iter().filter(|w| !w.is_empty()).collect();
            vec![label, names.short(s.session_id.as_str()), state.join(", "), ago(s.since, now)]
        })
        .collect();
    table_with_ids(&rows, indent, cx.columns, 2)
}

fn report(cx: &Cx, args: ReportArgs) -> Result<u8, CliError> {
    let (wanted, key) = (args.session.clone(), args.key.clone());
    let (perform, no_wait) = (!args.no_perform, args.no_wait);
    let kind = args.kind.event();
    let report = args.meaning()?;
    let ledger = cx.ledger()?;
    let session = ledger.find_session(&wanted)?;
    let recording = ledger.record(Input::Reported { session: session.clone(), report, key })?;
    let answer = report_answer(&ledger, &session, kind, &recording)?;
    let mut text = format!("{} {session}\n", kind.as_str());
    let mut blocked = String::new();
    let due = if perform { touched(&recording) } else { BTreeSet::new() };
    for id in due.union(&ended_by(&recording)) {
        if due.contains(id) {
            settle(cx, &ledger, id, no_wait);
        }
        let policy = ledger.require_policy(id)?;
        let names = Names::load(cx, &ledger)?;
        text.push_str(&policy::rows(cx, &names, std::slice::from_ref(&policy), ""));
        if policy.status == Status::Blocked {
            blocked.push_str(&policy::why_blocked(cx, &ledger, &policy)?);
        }
    }
    if kind == Kind::TurnEnded && recording.already.is_none() && !is_watched(&recording, &session) {
        cx.say("no policy watches this session");
    }
    cx.answer(&answer, &text)?;
    if !cx.json {
        cx.screen(&blocked)?;
    }
    Ok(exit::DONE)
}

/// Policies that have something due after what was recorded, now or before.
fn touched(recording: &Recording) -> BTreeSet<PolicyId> {
    let due = recording.state.policies.values().filter(|p| is_due(p));
    let effects = recording.effects.iter().map(|e| e.policy().clone());
    due.map(|p| p.policy_id.clone()).chain(effects).collect()
}

/// Policies that what was recorded has ended by itself.
fn ended_by(recording: &Recording) -> BTreeSet<PolicyId> {
    let over = recording.state.policies.values().filter(|p| p.status.is_terminal());
    let over: BTreeSet<PolicyId> = over.map(|p| p.policy_id.clone()).collect();
    let told = |id: &PolicyId| {
        let subject = Entity::Policy(id.clone());
        recording.events.iter().any(|(recorded, _)| recorded.event.subject == subject)
    };
    over.into_iter().filter(told).collect()
}

/// Whether a living policy watches the session, or one did until what was recorded.
fn is_watched(recording: &Recording, session: &SessionId) -> bool {
    recording.state.policies.values().any(|policy| policy.spec.session_ids.contains(session))
}

/// What was recorded, as an answer.
pub(super) fn report_answer(
    ledger: &Ledger,
    session: &SessionId,
    kind: Kind,
    recording: &Recording,
) -> Result<Value, CliError> {
    let subject = Entity::Session(session.clone());
    let ours = recording
        .events
        .iter()
        .find(|(r, _)| r.event.subject == subject && r.event.body.kind() == kind)
        .map(|(r, id)| (r.seq, *id));
    let (seq, cursor) = match (ours, recording.already) {
        (Some((seq, id)), _) => (seq, Some(id)),
        (None, Some(seq)) => (seq, ledger.at_seq(seq)?.map(|seen| seen.id)),
        (None, None) => {
            let message = format!("{session}: the event was not recorded");
            return Err(CliError::new(Code::Internal, message));
        }
    };
    Ok(json!({
        "schema": "agentproto/report/1",
        "cursor": cursor,
        "seq": seq,
        "sessionId": session,
        "event": kind.as_str(),
    }))
}

impl ReportKind {
    fn event(self) -> Kind {
        match self {
            Self::TurnStart => Kind::TurnStarted,
            Self::TurnEnd => Kind::TurnEnded,
            Self::AwaitingInput => Kind::InputAwaited,
            Self::InputAnswered => Kind::InputAnswered,
            Self::Exited => Kind::SessionExited,
            Self::CommandDone => Kind::CommandDone,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requests {
    requests: Vec<OpenRequest>,
}

/// What an end of a turn leaves open.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Open {
    background: u32,
    empty: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    code: Option<i32>,
    signal: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ran {
    #[serde(default)]
    argv: Vec<String>,
    code: Option<i32>,
}

impl ReportArgs {
    /// What was reported. A flag that means nothing for the kind is refused, never dropped.
    fn meaning(self) -> Result<Report, CliError> {
        let data = self.data.as_deref();
        self.check_flags()?;
        Ok(match self.kind {
            ReportKind::TurnStart => Report::TurnStart { turn: self.turn },
            ReportKind::TurnEnd => {
                let reason = self.reason.map_or(EndReason::Completed, |r| r.0);
                let Open { background, empty } = parse(data)?.unwrap_or_default();
                Report::TurnEnd { turn: self.turn, reason, loose: Loose { background, empty } }
            }
            ReportKind::AwaitingInput => {
                let Some(Requests { requests }) = parse(data)? else {
                    return Err(bad_data("awaiting-input needs {\"requests\":[{\"id\":…}]}"));
                };
                if requests.is_empty() || requests.iter().any(|r| r.id.is_empty()) {
                    return Err(bad_data("every request needs an id"));
                }
                Report::AwaitingInput { requests }
            }
            ReportKind::InputAnswered => {
                let answered: Answered = parse(data)?.unwrap_or_default();
                Report::InputAnswered { id: answered.id }
            }
            ReportKind::Exited => Report::Exited { exit: ended(parse(data)?.unwrap_or_default())? },
            ReportKind::CommandDone => {
                let ran: Ran = parse(data)?.unwrap_or_default();
                Report::CommandDone { argv: ran.argv, code: ran.code }
            }
        })
    }

    fn check_flags(&self) -> Result<(), CliError> {
        let of_turns = matches!(self.kind, ReportKind::TurnStart | ReportKind::TurnEnd);
        for (flag, given, fits) in [
            ("--turn", self.turn.is_some(), of_turns),
            ("--reason", self.reason.is_some(), self.kind == ReportKind::TurnEnd),
            ("--data", self.data.is_some(), self.kind != ReportKind::TurnStart),
        ] {
            if given && !fits {
                let kind = self.kind.event().as_str();
                let message = format!("{flag} says nothing about {kind}");
                return Err(CliError::new(Code::Usage, message).about(flag));
            }
        }
        Ok(())
    }
}

fn ended(ended: Ended) -> Result<Exit, CliError> {
    match ended {
        Ended { code: Some(code), signal: None } => Ok(Exit::Code(code)),
        Ended { code: None, signal: Some(name) } => Ok(Exit::Signal(name)),
        Ended { code: None, signal: None } => Ok(Exit::Unknown),
        Ended { code: Some(_), signal: Some(_) } => Err(bad_data("either a code or a signal")),
    }
}

fn parse<T: DeserializeOwned>(data: Option<&str>) -> Result<Option<T>, CliError> {
    let Some(data) = data else { return Ok(None) };
    if data.len() > limits::REPORT_DATA_BYTES {
        let most = limits::REPORT_DATA_BYTES;
        return Err(bad_data(&format!("{} bytes, at most {most} are taken", data.len())));
    }
    serde_json::from_str(data).map(Some).map_err(|e| bad_data(&e.to_string()))
}

fn bad_data(why: &str) -> CliError {
    CliError::new(Code::BadData, format!("--data: {why}")).about("--data")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(kind: ReportKind, data: Option<&str>) -> ReportArgs {
        ReportArgs {
            session: "s".into(),
            kind,
            turn: None,
            reason: None,
            key: None,
            data: data.map(str::to_owned),
            no_perform: false,
            no_wait: false,
        }
    }

    fn meaning(kind: ReportKind, data: Option<&str>) -> Result<String, Code> {
        typed(kind, data).meaning().map(|r| format!("{r:?}")).map_err(|e| e.code)
    }

    #[test]
    fn data_means_what_its_kind_needs() {
        use ReportKind::{AwaitingInput, CommandDone, Exited, InputAnswered, TurnEnd};
        for (kind, data, want) in [
            (Exited, None, "Exited { exit: Unknown }"),
            (Exited, Some(r#"{"code":3}"#), "Exited { exit: Code(3) }"),
            (Exited, Some(r#"{"signal":"SIGHUP"}"#), r#"Exited { exit: Signal("SIGHUP") }"#),
            (InputAnswered, Some(r#"{"id":"q"}"#), r#"InputAnswered { id: Some("q") }"#),
            (CommandDone, None, "CommandDone { argv: [], code: None }"),
            (
                TurnEnd,
                Some(r#"{"background":2}"#),
                "TurnEnd { turn: None, reason: Completed, loose: Loose { background: 2, empty: false } }",
            ),
            (
                AwaitingInput,
                Some(r#"{"requests":[{"id":"q"}]}"#),
                r#"AwaitingInput { requests: [OpenRequest { id: "q", kind: None, text: None, options: [] }] }"#,
            ),
        ] {
            assert_eq!(meaning(kind, data).as_deref(), Ok(want), "{data:?}");
        }
        for (kind, data) in [
            (Exited, Some("{")),
            (Exited, Some(r#"{"code":1,"signal":"SIGHUP"}"#)),
            (Exited, Some(r#"{"kode":1}"#)),
            (AwaitingInput, None),
            (AwaitingInput, Some(r#"{"requests":[]}"#)),
            (AwaitingInput, Some(r#"{"requests":[{"id":""}]}"#)),
            (CommandDone, Some(r#"["x"]"#)),
            (TurnEnd, Some(r#"{"background":-1}"#)),
            (TurnEnd, Some(r#"{"foreground":1}"#)),
        ] {
            assert_eq!(meaning(kind, data), Err(Code::BadData), "{data:?}");
        }
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(limits::REPORT_DATA_BYTES));
        assert_eq!(meaning(InputAnswered, Some(&long)), Err(Code::BadData));
    }

    #[test]
    fn a_flag_of_another_kind_is_refused() {
        assert_eq!(meaning(ReportKind::TurnStart, Some("{}")), Err(Code::Usage));
        let reasoned = ReportArgs {
            reason: Some(ReasonArg(EndReason::Error)),
            ..typed(ReportKind::TurnStart, None)
        };
        assert_eq!(reasoned.meaning().unwrap_err().code, Code::Usage);
        let numbered = ReportArgs { turn: Some(1), ..typed(ReportKind::Exited, None) };
        assert_eq!(numbered.meaning().unwrap_err().code, Code::Usage);
    }

    #[test]
    fn a_turn_ends_completed_unless_told_otherwise() {
        assert_eq!(
            meaning(ReportKind::TurnEnd, None).as_deref(),
            Ok(
                "TurnEnd { turn: None, reason: Completed, loose: Loose { background: 0, empty: false } }"
            )
        );
    }
}

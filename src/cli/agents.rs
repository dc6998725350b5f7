//! `session start|prompt|output|kill`: agents that we run ourselves.

use super::{
    args,
    cx::Cx,
    error::CliError,
    given,
    progress::{self, Output, Progress},
    session::show,
    warn,
};
use crate::{
    code::{Code, exit},
    domain::{
        ids::{PolicyId, SessionId},
        input::WhenBusy,
        session::{EndReason, Exit, Process, Session, Turn},
    },
    ledger::{Ledger, Recording, StartAsk},
    limits,
    runtime::{
        agent::{self, Guard, HeldBack},
        output::{self as kept, Piece},
    },
    sys::process,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    io::{self, Write as _},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Says where the agent stands.
pub(super) const USAGE: &str = "git agentproto session start [OPTIONS] -- AGENT...";

/// Who records what the holder of an agent does.
const ACTOR: &str = "cli";

/// How an agent is started, as typed.
#[derive(clap::Args)]
pub(super) struct AgentFlags {
    /// Where the agent works [default: here]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The revision it starts from, for scope gates [default: HEAD there]
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// What it is told first: in AGENTPROTO_PROMPT and on its standard input (- reads it from ours)
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    prompt: Option<String>,
    /// A variable for it, beside those of this shell; may repeat
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<OsString>,
    /// Return at once; a process of its own holds the agent
    #[arg(long)]
    pub(super) detach: bool,
}

/// An agent to start, as typed.
#[derive(clap::Args)]
pub(super) struct StartArgs {
    /// A name for the session
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    #[command(flatten)]
    agent: AgentFlags,
    /// It takes further prompts after a run that ended well: each is another run
    #[arg(long)]
    reprompt: bool,
    /// The agent: a program and its arguments, run without a shell; one run is one turn
    #[arg(last = true, required = true, value_name = "AGENT")]
    words: Vec<String>,
}

/// Something to say, as typed.
#[derive(clap::Args)]
pub(super) struct PromptArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "SESSION")]
    session: String,
    /// What to say (- reads it from standard input)
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
    /// When it is at work: let this wait for the end of its turn
    #[arg(long, conflicts_with = "interrupt")]
    queue: bool,
    /// When it is at work: end its turn, then say this
    #[arg(long)]
    interrupt: bool,
    /// The same key gives the same answer and is recorded once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

/// Which output to show, as typed.
#[derive(clap::Args)]
pub(super) struct OutputArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "SESSION")]
    session: String,
    /// Only its last N lines
    #[arg(long, value_name = "N", conflicts_with = "since")]
    last: Option<usize>,
    /// Only what came after this position: `next` of an earlier answer
    #[arg(long, value_name = "POSITION")]
    since: Option<u64>,
    /// Go on with what comes, until the session is over
    #[arg(long)]
    follow: bool,
    /// The bytes as they are; else control characters are shown escaped
    #[arg(long)]
    raw: bool,
}

/// Which session to end, as typed.
#[derive(clap::Args)]
pub(super) struct KillArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "SESSION")]
    session: String,
    /// Between asking it to end and killing it, at most 10m [default: 5s]
    #[arg(long, value_name = "D")]
    grace: Option<String>,
    /// Why, for the journal
    #[arg(short = 'm', long = "message", value_name = "MSG", allow_hyphen_values = true)]
    because: Option<String>,
}

impl AgentFlags {
    /// What the flags mean for an agent of these words.
    ///
    /// # Errors
    /// A variable without a name, or a prompt that cannot be read.
    pub(super) fn ask(
        self,
        cx: &Cx,
        (label, reprompt): (Option<String>, bool),
        argv: Vec<String>,
    ) -> Result<StartAsk, CliError> {
        let cwd = self.cwd.map_or_else(|| cx.env.cwd().to_owned(), |dir| cx.env.cwd().join(dir));
        let env = self.env.iter().map(variable).collect::<Result<_, _>>()?;
        let prompt = self.prompt.map(|text| said(cx, "--prompt", text)).transpose()?;
        Ok(StartAsk { label, cwd, base: self.base, argv, prompt, reprompt, env })
    }
}

fn variable(typed: &OsString) -> Result<(OsString, OsString), CliError> {
    let bytes = typed.as_bytes();
    let at = bytes.iter().position(|b| *b == b'=').filter(|at| *at > 0);
    let Some(at) = at.filter(|_| !bytes.contains(&0)) else {
        let message = format!("--env '{}': no NAME=VALUE", typed.display());
        return Err(CliError::new(Code::Usage, message).about("--env"));
    };
    let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    Ok((part(&bytes[..at]), part(&bytes[at + 1..])))
}

/// What was said, or stands on standard input.
fn said(cx: &Cx, option: &str, text: String) -> Result<String, CliError> {
    if text != "-" {
        return Ok(text);
    }
    let most = u64::try_from(limits::PROMPT_BYTES).unwrap_or(u64::MAX);
    let bytes = given::whole(cx, (option, Code::Usage), Path::new("-"), most)?;
    String::from_utf8(bytes)
        .map_err(|_| CliError::new(Code::Usage, format!("{option} -: not UTF-8")).about(option))
}

pub(super) fn start(cx: &Cx, args: StartArgs) -> Result<u8, CliError> {
    let detach = args.agent.detach;
    let ask = args.agent.ask(cx, (args.label, args.reprompt), args.words)?;
    let ledger = cx.ledger()?;
    let held_back = hold_back()?;
    let (id, _, recording) = ledger.start(&ask, None)?;
    warn::of_session(cx, &ledger, &id);
    if detach {
        agent::detach(&ledger, &id)?;
        return show(cx, &ledger, &id);
    }
    let shows = if cx.json { Output::LastLine } else { Output::All };
    let signal = hold(cx, &ledger, (&id, None), (held_back, &recording), shows)?;
    show(cx, &ledger, &id)?;
    signal.map_or_else(|| exit_of(&ledger, &id), Ok)
}

/// Holds signals back: from here on something is recorded that they have to stop.
///
/// # Errors
/// The kernel refuses.
pub(super) fn hold_back() -> Result<HeldBack, CliError> {
    HeldBack::begin().map_err(|e| no_signals(&e))
}

fn no_signals(error: &io::Error) -> CliError {
    CliError::new(Code::Io, format!("cannot wait for signals: {error}"))
}

/// Holds an agent in the foreground until nothing is due for it; the exit code of a command that was interrupted meanwhile.
///
/// # Errors
/// As [`agent::host`].
pub(super) fn hold(
    cx: &Cx,
    ledger: &Ledger,
    (session, policy): (&SessionId, Option<&PolicyId>),
    (held_back, recording): (HeldBack, &Recording),
    shows: Output,
) -> Result<Option<u8>, CliError> {
    let guard = Guard::set_up(held_back, &cx.env, ACTOR, session, policy);
    let guard = guard.map_err(|e| no_signals(&e))?;
    let after = recording.events.first().map_or(0, |(first, _)| first.seq.saturating_sub(1));
    // Programs that asked for one object get one.
    let quiet = cx.json && policy.is_none();
    let progress = (!quiet).then(|| Progress::begin(cx, (session, policy), after, shows));
    let held = until_over(ledger, session);
    let shown = progress.map_or(Ok(()), Progress::end);
    let signal = guard.signal();
    drop(guard);
    held?;
    shown?;
    Ok(signal.and_then(|number| u8::try_from(128 + number).ok()))
}

/// Another process may hold the agent for a moment, or for good: then this one looks on.
fn until_over(ledger: &Ledger, id: &SessionId) -> Result<(), CliError> {
    loop {
        agent::host_until_idle(ledger, id)?;
        if !crate::engine::is_session_due(&ledger.require_session(id)?) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(limits::WAIT_POLL_MS));
    }
}

/// The exit code of a session's last turn: what was started and ended well is done.
fn exit_of(ledger: &Ledger, id: &SessionId) -> Result<u8, CliError> {
    let session = ledger.require_session(id)?;
    Ok(match (&session.process, &session.turn_state) {
        (Process::Exited(Exit::NotStarted | Exit::Unknown), _) => exit::BROKEN,
        (_, Turn::Ended { reason: EndReason::Completed, .. }) => exit::DONE,
        (_, Turn::None | Turn::Running | Turn::Ended { .. }) => exit::NO,
    })
}

pub(super) fn prompt(cx: &Cx, args: PromptArgs) -> Result<u8, CliError> {
    let text = said(cx, "TEXT", args.text)?;
    let when_busy = match (args.queue, args.interrupt) {
        (_, true) => WhenBusy::Interrupt,
        (true, false) => WhenBusy::Queue,
        (false, false) => WhenBusy::Refuse,
    };
    let ledger = cx.ledger()?;
    let id = ledger.find_session(&args.session)?;
    let recording = ledger.prompt(&id, text, when_busy, args.key)?;
    agent::look_after(&ledger, &id)?;
    let (seq, cursor) = match (recording.events.first(), recording.already) {
        (Some((event, cursor)), _) => (Some(event.seq), Some(*cursor)),
        (None, Some(seq)) => (Some(seq), ledger.at_seq(seq)?.map(|seen| seen.id)),
        (None, None) => (None, None),
    };
    let session = ledger.require_session(&id)?;
    let answer = json!({
        "schema": "agentproto/session-prompt/1",
        "sessionId": id,
        "seq": seq,
        "cursor": cursor,
        "turn": session.turn,
        "queued": session.queue.len(),
    });
    let waits = if session.queue.is_empty() { "is told" } else { "will be told" };
    cx.answer(&answer, &format!("{id} {waits}\n"))?;
    Ok(exit::DONE)
}

pub(super) fn kill(cx: &Cx, args: KillArgs) -> Result<u8, CliError> {
    let grace_ms = match args.grace.as_deref() {
        Some("0") => 0,
        Some(text) => args::duration_ms("--grace", text)?,
        None => limits::AGENT_KILL_GRACE_MS,
    };
    if grace_ms > limits::AGENT_KILL_GRACE_MAX_MS {
        let message = "--grace: at most 10m is accepted";
        return Err(CliError::new(Code::Usage, message).about("--grace"));
    }
    let ledger = cx.ledger()?;
    let id = ledger.find_session(&args.session)?;
    ledger.stop(&id, args.because)?;
    agent::kill(&ledger, &id, grace_ms, &|| false)?;
    let policies = ledger.require_session(&id)?.policies;
    for policy in policies {
        super::settle::settle(cx, &ledger, &policy, false);
    }
    show(cx, &ledger, &id)
}

pub(super) fn output(cx: &Cx, args: &OutputArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let id = ledger.find_session(&args.session)?;
    let session = ledger.require_session(&id)?;
    if session.launch.is_none() {
        let message =
            format!("{id}: it was not started by this program, which sees none of its output");
        return Err(CliError::new(Code::NotLaunched, message)
            .about(id.as_str())
            .with_hint("look where its agent runs"));
    }
    let dir = kept::dir_of(&ledger.store().location().agent_dir(), id.as_str());
    // What is written meanwhile is for who follows: else an agent that writes on and on would keep us here.
    let end = kept::end(&dir)?;
    let mut piece = first(&dir, args)?;
    let parent = process::parent();
    loop {
        // Asked before it is read: what was written until then is read then.
        let is_over = is_over(&ledger, &id)?;
        let next = kept::read(&dir, piece.next(), limits::OUTPUT_SHOWN_BYTES)?;
        let is_last = next.bytes.is_empty() || (!args.follow && (cx.json || piece.next() >= end));
        let more_comes = !next.bytes.is_empty() || (args.follow && !is_over);
        let given = if more_comes { piece.clone().of_whole_characters() } else { piece };
        if !given.bytes.is_empty() || !args.follow {
            give(cx, &id, args, &given)?;
        }
        if is_last && (!args.follow || is_over || process::parent() != parent) {
            return Ok(exit::DONE);
        }
        if is_last {
            super::follow::pause().map_err(|e| CliError::output(&e))?;
        }
        piece = kept::read(&dir, given.next(), limits::OUTPUT_SHOWN_BYTES)?;
    }
}

/// True when nothing more will come: it is over, or whoever held it is gone and nobody has told yet.
fn is_over(ledger: &Ledger, id: &SessionId) -> Result<bool, CliError> {
    let session: Session = ledger.require_session(id)?;
    if agent::is_held(ledger, id)? || !(session.is_exited() || session.process == Process::Alive) {
        return Ok(false);
    }
    // It may have been let go in between, with its end recorded.
    Ok(session.is_exited() || ledger.require_session(id)? == session)
}

/// The piece that comes first: the last lines, what came after a position, or what is kept.
fn first(dir: &Path, args: &OutputArgs) -> Result<Piece, CliError> {
    let Some(lines) = args.last else {
        let since = args.since.unwrap_or(0);
        let end = kept::end(dir)?;
        if since > end {
            let message = format!("--since {since}: the output ends at {end}");
            return Err(CliError::new(Code::NoSuchCursor, message)
                .about("--since")
                .with_hint("take `next` of an earlier answer"));
        }
        return Ok(kept::read(dir, since, limits::OUTPUT_SHOWN_BYTES)?);
    };
    let all = kept::read(dir, 0, usize::MAX)?;
    let body = all.bytes.strip_suffix(b"\n").unwrap_or(&all.bytes);
    let ends = body.iter().enumerate().rev().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1);
    let begin = match lines {
        0 => all.bytes.len(),
        lines => ends.clone().nth(lines - 1).unwrap_or(0),
    };
    let from = all.from + u64::try_from(begin).unwrap_or(0);
    Ok(Piece { from, bytes: all.bytes.get(begin..).unwrap_or_default().to_vec() })
}

fn give(cx: &Cx, id: &SessionId, args: &OutputArgs, piece: &Piece) -> Result<(), CliError> {
    if cx.json {
        return cx.line(&object(id, piece));
    }
    if args.raw {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(&piece.bytes).and_then(|()| stdout.flush());
        return written.map_err(|e| CliError::output(&e));
    }
    cx.out(&progress::as_text(&piece.bytes))
}

fn object(id: &SessionId, piece: &Piece) -> Value {
    let text = match std::str::from_utf8(&piece.bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "b64": BASE64_STANDARD.encode(&piece.bytes) }),
    };
    json!({
        "schema": "agentproto/session-output/1",
        "sessionId": id,
        "from": piece.from,
        "next": piece.next(),
        "output": text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_a_name() {
        let of = |text: &str| variable(&OsString::from(text)).map_err(|e| e.code);
        assert_eq!(of("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert_eq!(of("A="), Ok(("A".into(), "".into())));
        for bad in ["A", "=b", "", "A=\0"] {
            assert_eq!(of(bad), Err(Code::Usage), "{bad:?}");
        }
    }
}

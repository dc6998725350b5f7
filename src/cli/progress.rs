//! What is shown while an agent works: one line that changes on a terminal, one line an event in a pipe, one object an
//! event for programs.
//!
//! Contract: it is narration, so it goes to stderr and nothing depends on it; objects go to stdout, where they are what was
//! asked for. It reads the journal as everybody does and performs nothing.

use super::{
    cx::Cx,
    error::CliError,
    seen,
    text::{columns_of_stderr, cut, short_oid, shown},
};
use crate::{
    domain::{
        cursor::Since,
        event::Kind,
        gate::Gate,
        ids::{PolicyId, SessionId},
        oid::Oid,
        policy::{Policy, Status},
        session::{Session, Turn},
        time::Timestamp,
    },
    ledger::{Ledger, Query},
    limits,
    runtime::output,
    sys::{clock, env::Env},
    wire::message::Message,
};
use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Signs of life, one after the other.
const SPINNER: [char; 4] = ['|', '/', '-', '\\'];
/// Bytes of output in which its last line is looked for.
const LAST_LINE_BYTES: u64 = 4 * 1024;

/// What is shown of an agent's own output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// Its last line, on a terminal.
    LastLine,
    /// All of it.
    All,
}

/// Shows how things go until it is ended.
pub(super) struct Progress {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), CliError>>>,
}

impl Progress {
    /// Begins with the event after `after`.
    pub(super) fn begin(
        cx: &Cx,
        (session, policy): (&SessionId, Option<&PolicyId>),
        after: u64,
        output: Output,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let watch = Watch {
            env: cx.env.clone(),
            json: cx.json,
            over: Arc::clone(&over),
            session: session.clone(),
            policy: policy.cloned(),
            after,
            output,
        };
        // Without a thread nothing is shown, and everything is done.
        let thread = thread::Builder::new().spawn(move || watch.run()).ok();
        Self { over, thread }
    }

    /// Shows what is left to show.
    ///
    /// # Errors
    /// What a program was to be told could not be written.
    pub(super) fn end(mut self) -> Result<(), CliError> {
        self.over.store(true, Ordering::SeqCst);
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(done)) => done,
            Some(Err(_)) | None => Ok(()),
        }
    }
}

struct Watch {
    env: Env,
    json: bool,
    over: Arc<AtomicBool>,
    session: SessionId,
    policy: Option<PolicyId>,
    after: u64,
    output: Output,
}

/// Where a watcher is.
struct At {
    since: Since,
    written: u64,
    round: usize,
    /// When the first event was recorded.
    begun: Option<Timestamp>,
    /// The end of a turn of which all output was shown.
    drained: Option<Oid>,
    /// The line that stands on the terminal.
    line: Option<String>,
    /// Output of the agent stands there that is no whole line yet.
    amid: bool,
    /// Columns of the terminal that stderr is, where one line is shown that changes.
    columns: Option<usize>,
}

impl Watch {
    fn run(self) -> Result<(), CliError> {
        let cx = Cx::new(self.env.clone(), self.json);
        let ledger = cx.ledger()?;
        let dumb = self.env.text("TERM").is_none_or(|term| term == "dumb");
        let live = !self.json && io::stderr().is_terminal() && !dumb;
        let columns = live.then(|| columns_of_stderr(&self.env)).flatten();
        let since = Since::Seq(self.after);
        let (line, begun, drained) = (None, None, None);
        let mut at = At { since, written: 0, round: 0, begun, drained, line, amid: false, columns };
        loop {
            let last = self.over.load(Ordering::SeqCst);
            let shown = self.show(&cx, &ledger, &mut at, last);
            if last || shown.is_err() {
                clear(&mut at);
                return shown;
            }
            thread::sleep(Duration::from_millis(limits::PROGRESS_MS));
        }
    }

    fn show(&self, cx: &Cx, ledger: &Ledger, at: &mut At, last: bool) -> Result<(), CliError> {
        loop {
            let more = self.show_events(cx, ledger, at)?;
            if self.output == Output::All {
                self.show_output(cx, ledger, at, last)?;
            }
            if !more {
                break;
            }
        }
        if at.columns.is_some() && !at.amid && !last {
            self.show_line(ledger, at)?;
        }
        Ok(())
    }

    /// Shows a page of events; true when there are more. What the agent wrote in a turn stands before the end of that turn.
    fn show_events(&self, cx: &Cx, ledger: &Ledger, at: &mut At) -> Result<bool, CliError> {
        let query = Query {
            since: Some(at.since.clone()),
            sessions: vec![self.session.clone()],
            limit: limits::EVENTS_LIMIT_DEFAULT,
            ..Query::default()
        };
        let page = ledger.events(&query)?;
        for seen in &page.events {
            let ends_turn = seen.message.kind == Kind::TurnEnded.as_str();
            if self.output == Output::All && ends_turn && at.drained != Some(seen.id) {
                at.drained = Some(seen.id);
                return Ok(true);
            }
            at.since = Since::Commit(seen.id);
            if self.json {
                cx.line(&seen::stream_object(seen))?;
                continue;
            }
            clear(at);
            let begun = *at.begun.get_or_insert(seen.message.at);
            if at.columns.is_none() {
                cx.say(seen::exact_line(seen).trim_end());
            } else if let Some(line) = brief_line(&seen.message, begun) {
                cx.say(&line);
            }
        }
        if let Some(next) = page.next {
            at.since = Since::Commit(next);
        }
        Ok(page.more)
    }

    /// What the agent wrote since the last look, on stderr: it is no answer of ours.
    fn show_output(
        &self,
        cx: &Cx,
        ledger: &Ledger,
        at: &mut At,
        last: bool,
    ) -> Result<(), CliError> {
        let dir = self.dir(ledger);
        // As far as it goes now: who writes on and on is not to keep us from the rest.
        let end = output::end(&dir)?;
        loop {
            let piece = output::read(&dir, at.written, limits::OUTPUT_SHOWN_BYTES)?;
            let all = last && piece.next() >= end;
            let piece = if all { piece } else { piece.of_whole_characters() };
            if piece.bytes.is_empty() {
                return Ok(());
            }
            erase(at);
            if let Some(gone @ 1..) = piece.from.checked_sub(at.written) {
                clear(at);
                cx.say(&format!("({gone} bytes of its output are not kept)"));
            }
            at.written = piece.next();
            at.amid = piece.bytes.last() != Some(&b'\n');
            cx.screen(&as_text(&piece.bytes))?;
            if at.written >= end {
                return Ok(());
            }
        }
    }

    fn dir(&self, ledger: &Ledger) -> PathBuf {
        output::dir_of(&ledger.store().location().agent_dir(), self.session.as_str())
    }

    fn show_line(&self, ledger: &Ledger, at: &mut At) -> Result<(), CliError> {
        let session = ledger.require_session(&self.session)?;
        let policy = self.policy.as_ref().map(|id| ledger.require_policy(id)).transpose()?;
        let said = if self.output == Output::LastLine { self.last_line(ledger) } else { None };
        at.round += 1;
        let spin = SPINNER[at.round % SPINNER.len()];
        let what = now_doing(&session, policy.as_ref());
        let line = match said.filter(|_| session.turn_state == Turn::Running) {
            Some(said) => format!("{spin} {what} · {said}"),
            None => format!("{spin} {what}"),
        };
        let line = cut(&shown(&line), at.columns.unwrap_or(80).saturating_sub(1));
        // Narration nobody can read is not worth a failure.
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K{line}");
        at.line = Some(line);
        Ok(())
    }

    fn last_line(&self, ledger: &Ledger) -> Option<String> {
        let dir = self.dir(ledger);
        let end = output::end(&dir).ok()?;
        let most = usize::try_from(LAST_LINE_BYTES).ok()?;
        let piece = output::read(&dir, end.saturating_sub(LAST_LINE_BYTES), most).ok()?;
        let text = String::from_utf8_lossy(&piece.bytes).into_owned();
        // Who draws a bar writes one line over and over.
        let mut lines = text.rsplit(['\n', '\r']).map(|line| plain(line).trim().to_owned());
        lines.find(|line| !line.is_empty())
    }
}

/// What happened, for somebody who looks on: how long after the beginning, and the sentence. That a prompt waits is told by
/// the turn it begins.
fn brief_line(message: &Message, begun: Timestamp) -> Option<String> {
    if message.kind == Kind::Prompted.as_str() {
        return None;
    }
    let sentence = message.subject.split_once(": ").map_or("", |(_, sentence)| sentence);
    let words: Vec<&str> = sentence.split(' ').map(short_oid).collect();
    Some(format!("{:>6}  {}", between(begun, message.at), words.join(" ")))
}

/// How long it is from one instant to the other.
fn between(from: Timestamp, to: Timestamp) -> String {
    let seconds = (to.ms() - from.ms()).max(0) / 1000;
    if seconds < 60 {
        format!("{seconds}s")
    } else {
        format!("{}m{:02}s", seconds / 60, seconds % 60)
    }
}

/// What goes on, in a few words.
fn now_doing(session: &Session, policy: Option<&Policy>) -> String {
    let for_seconds = |since: Timestamp| between(since, clock::now());
    match policy.map(|p| (p.status, p)) {
        Some((Status::Gating, p)) => {
            let gate = p.spec.gates.first().map_or_else(String::new, Gate::shown);
            format!("gate {gate} · {}", for_seconds(p.since))
        }
        Some((Status::Queued, p)) => format!("waits for other gates · {}", for_seconds(p.since)),
        Some((Status::Committing, _)) => "commits".to_owned(),
        Some((
            Status::Watching
            | Status::Nudging
            | Status::Signing
            | Status::AwaitingAck
            | Status::Done
            | Status::Blocked
            | Status::Cancelled,
            p,
        )) => format!("turn {} · {}", session.turn, for_seconds(p.since)),
        None => format!("turn {} · {}", session.turn, for_seconds(session.since)),
    }
}

/// What an agent wrote, made safe line by line.
pub(super) fn as_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    // A tab cannot hide anything.
    let safe = |words: &str| shown(&words.replace('\t', "    "));
    text.split_inclusive('\n')
        .map(|line| match line.strip_suffix('\n') {
            Some(words) => format!("{}\n", safe(words.strip_suffix('\r').unwrap_or(words))),
            None => safe(line),
        })
        .collect()
}

/// A line without the colours and movements of a terminal, which say nothing here.
fn plain(line: &str) -> String {
    let (mut text, mut chars) = (String::new(), line.chars().peekable());
    while let Some(c) = chars.next() {
        if c == '\u{1b}' && chars.next_if_eq(&'[').is_some() {
            // Parameters, up to the letter that ends them.
            while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
            chars.next_if(|c| matches!(c, '@'..='~'));
        } else {
            text.push(c);
        }
    }
    text
}

/// Makes room for a line of ours.
fn clear(at: &mut At) {
    if std::mem::take(&mut at.amid) {
        let _ = writeln!(io::stderr().lock());
    }
    erase(at);
}

/// Takes the line that changes off the terminal.
fn erase(at: &mut At) {
    if at.line.take().is_some() {
        let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_line_is_its_words() {
        for (line, words) in [
            ("plain", "plain"),
            ("\u{1b}[1;32mok\u{1b}[0m and", "ok and"),
            ("\u{1b}[2K\u{1b}[", ""),
            ("\u{1b}]0;title", "\u{1b}]0;title"),
        ] {
            assert_eq!(plain(line), words, "{line:?}");
        }
    }

    #[test]
    fn what_an_agent_writes_is_shown_escaped_but_for_its_lines() {
        assert_eq!(as_text(b"a\tb\r\n\x1b[2Jx\n\xff"), "a    b\n\\x1b[2Jx\n\u{fffd}");
    }
}

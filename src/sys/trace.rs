//! `GIT_AGENTPROTO_TRACE`: what this process does and how long it takes, one line each, for whoever looks for a cause.
//!
//! Contract: off unless asked for, and then one look at a static; never on stdout. A line is one write, so that several
//! processes may share a file. Of programs their arguments are told and never their environment or input, and what
//! could command a terminal is escaped. That a line cannot be written fails nothing.
//!
//! The rejected alternative, the crates `tracing` and `tracing-subscriber`, has levels, targets and subscribers for
//! which there is no use here.

use super::{clock, env::Env, spawn::Call};
use std::{
    fmt::Display,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::ExitStatus,
    sync::OnceLock,
    time::Instant,
};

/// The variable that asks for it.
pub const VARIABLE: &str = "GIT_AGENTPROTO_TRACE";

enum Sink {
    Stderr,
    File(File),
}

static SINK: OnceLock<Sink> = OnceLock::new();

/// Begins as the environment asks for: `1`, `2` or `true` to stderr, an absolute path is appended to, anything empty or
/// false is off, as for git's own traces.
///
/// # Errors
/// The value is none of them, or the file cannot be opened: the sentence to warn with.
pub fn begin(env: &Env) -> Result<(), String> {
    let Some(value) = env.get(VARIABLE) else { return Ok(()) };
    let sink = match value.to_str() {
        Some("" | "0" | "false" | "no" | "off") => return Ok(()),
        Some("1" | "2" | "true" | "yes" | "on") => Sink::Stderr,
        _ if Path::new(value).is_absolute() => {
            let file = opened(Path::new(value));
            Sink::File(file.map_err(|e| format!("{VARIABLE}: cannot append to {value:?}: {e}"))?)
        }
        _ => return Err(format!("{VARIABLE}: neither 1 nor an absolute path: {value:?}")),
    };
    // A second beginning in one process changes nothing.
    let _ = SINK.set(sink);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "no file of the store; must not wait for a fifo")]
fn opened(path: &Path) -> io::Result<File> {
    let mut how = OpenOptions::new();
    how.append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK).open(path)
}

/// A piece of work whose end tells how long it took.
#[derive(Debug)]
pub struct Step(Option<(String, Instant)>);

/// Begins a piece of work. The words are made only where somebody reads them.
#[must_use = "a step ends when it is dropped"]
pub fn step<W: Display>(words: impl FnOnce() -> W) -> Step {
    Step(SINK.get().map(|_| (words().to_string(), Instant::now())))
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some((words, begun)) = self.0.take() {
            told(&format!("step {} ms: {words}", millis(begun)));
        }
    }
}

/// A program that was started.
pub(super) fn spawned(call: &Call) {
    if SINK.get().is_some() {
        let words = std::iter::once(call.program.to_string_lossy())
            .chain(call.args.iter().map(|arg| arg.to_string_lossy()));
        told(&format!("run: {}", shell_words::join(words)));
    }
}

/// A program that has ended, or of which nobody knows how.
pub(super) fn ended(call: &Call, begun: Instant, status: Option<ExitStatus>) {
    if SINK.get().is_some() {
        let how = status.map_or_else(|| "lost or killed".to_owned(), |status| status.to_string());
        told(&format!("ended {} ms: {}: {how}", millis(begun), call.program.display()));
    }
}

/// Milliseconds with three digits behind the point.
fn millis(begun: Instant) -> String {
    let micros = begun.elapsed().as_micros();
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

fn told(words: &str) {
    let line = line(&clock::now().to_string(), std::process::id(), words);
    // Nothing depends on it.
    let _ = match SINK.get() {
        Some(Sink::Stderr) => io::stderr().lock().write_all(line.as_bytes()),
        Some(Sink::File(file)) => {
            let mut file = file;
            file.write_all(line.as_bytes())
        }
        None => Ok(()),
    };
}

fn line(at: &str, pid: u32, words: &str) -> String {
    let mut safe = String::with_capacity(words.len());
    for c in words.chars() {
        if c.is_control() { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    format!("{at} agentproto[{pid}] {safe}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn a_line_is_one_line_and_commands_nothing() {
        assert_eq!(line("T", 7, "a\nb\u{1b}[2J"), "T agentproto[7] a\\nb\\u{1b}[2J\n");
    }

    #[test]
    fn what_is_no_place_to_write_to_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let asked =
            |value: OsString| begin(&Env::fixed("/".into(), [(OsString::from(VARIABLE), value)]));
        for value in ["relative", "./x", "3"] {
            assert!(asked(value.into()).unwrap_err().contains("absolute path"), "{value}");
        }
        assert!(asked(dir.path().into()).unwrap_err().contains("cannot append"));
        for off in ["", "0", "false", "off"] {
            assert_eq!(asked(off.into()), Ok(()));
        }
        assert!(SINK.get().is_none());
    }
}

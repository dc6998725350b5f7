//! `logs/<sha256>`: the kept output of gates, on this machine only.
//!
//! Contract: output is never under a ref; what travels is digest and size. The file is what the gate wrote,
//! standard output first, with one line where bytes were dropped; it appears whole or not at all, readable
//! by its owner only, and goes away when it is older than `agentproto.logRetention`. It is not synced: losing a log
//! loses no fact.

use crate::{
    code::Code,
    domain::{digest::is_sha256, gate::LogRef},
    limits,
    runtime::runner::{Captured, Ran},
    sys::{
        clock, digest,
        files::{self, Durable, FileError},
    },
};
use std::{
    fs::Metadata,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// A log could not be stored or loaded.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system refused.
    #[error("cannot use {path}: {source}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The digest is not one.
    #[error("'{0}' is no SHA-256")]
    BadDigest(String),
    /// The file is not what was stored.
    #[error("log {expected} was changed: its digest is {actual}")]
    Changed {
        /// The digest it was stored under.
        expected: String,
        /// The digest it has.
        actual: String,
    },
}

impl LogError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::File { source, .. } => files::code_of(source),
            Self::BadDigest(_) => Code::Internal,
            Self::Changed { .. } => Code::StoreUnusable,
        }
    }
}

/// What is kept of a run's output, as one text: stdout, then stderr.
#[must_use]
pub fn transcript(ran: &Ran) -> Vec<u8> {
    let mut text = Vec::new();
    append(&mut text, &ran.stdout);
    if ran.stderr.total > 0 && text.last().is_some_and(|b| *b != b'\n') {
        text.push(b'\n');
    }
    append(&mut text, &ran.stderr);
    text
}

/// The end of a run's output for answers: at most [`limits::TAIL_SHOWN_BYTES`] of it.
#[must_use]
pub fn shown_tail(ran: &Ran) -> String {
    tail_of(&transcript(ran))
}

/// The same of a loaded log. Bytes that are not UTF-8 are replaced; a character cut in two at the
/// beginning is left out.
#[must_use]
pub fn tail_of(log: &[u8]) -> String {
    let cut = log.len().saturating_sub(limits::TAIL_SHOWN_BYTES);
    let is_continuation = |b: &&u8| (**b & 0xC0) == 0x80;
    let partial =
        if cut == 0 { 0 } else { log[cut..].iter().take(3).take_while(is_continuation).count() };
    String::from_utf8_lossy(&log[cut + partial..]).into_owned()
}

/// Stores the output of a run.
///
/// # Errors
/// The log cannot be written.
pub fn store_log(agent_dir: &Path, ran: &Ran) -> Result<LogRef, LogError> {
    store_text(agent_dir, &transcript(ran))
}

/// Stores what is told in place of the output of a program.
///
/// # Errors
/// The log cannot be written.
pub fn store_text(agent_dir: &Path, text: &[u8]) -> Result<LogRef, LogError> {
    let sha256 = digest::sha256(text);
    let dir = agent_dir.join("logs");
    let path = dir.join(&sha256);
    write(&dir, &path, text).map_err(|e| LogError::File { path: e.path, source: e.source })?;
    let size_bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
    Ok(LogRef { sha256, size_bytes })
}

/// Logs that are older than `keep_ms`, and files that dead writers left beside them.
///
/// # Errors
/// The directory cannot be read.
pub fn old_logs(agent_dir: &Path, keep_ms: u64) -> Result<Vec<PathBuf>, LogError> {
    let dir = agent_dir.join("logs");
    let names =
        files::names(&dir).map_err(|e| LogError::File { path: e.path, source: e.source })?;
    let oldest_ms = clock::now().ms().saturating_sub_unsigned(keep_ms);
    let old = |found: Metadata| found.is_file() && found.mtime().saturating_mul(1000) < oldest_ms;
    let paths = names.into_iter().map(|name| dir.join(name));
    // One that cannot be looked at is young.
    Ok(paths.filter(|p| files::look(p).is_ok_and(|found| found.is_some_and(old))).collect())
}

/// Removes logs that are older than `keep_ms`; gives their number. Those that cannot be removed are left for the
/// next time.
///
/// # Errors
/// The directory cannot be read.
pub fn remove_old_logs(agent_dir: &Path, keep_ms: u64) -> Result<u64, LogError> {
    let removed = |path: &PathBuf| matches!(files::remove_optional(path), Ok(true));
    Ok(old_logs(agent_dir, keep_ms)?.iter().filter(|p| removed(p)).count() as u64)
}

/// A stored log; `None` when it is not on this machine (any more).
///
/// # Errors
/// It cannot be read or is not what was stored.
pub fn load_log(agent_dir: &Path, sha256: &str) -> Result<Option<Vec<u8>>, LogError> {
    if !is_sha256(sha256) {
        return Err(LogError::BadDigest(sha256.to_owned()));
    }
    let path = agent_dir.join("logs").join(sha256);
    let text = match files::read_own(&path, limits::LOG_FILE_BYTES) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(e) => return Err(LogError::File { path, source: e.source }),
    };
    let actual = digest::sha256(&text);
    if actual == sha256 {
        Ok(Some(text))
    } else {
        Err(LogError::Changed { expected: sha256.to_owned(), actual })
    }
}

fn append(text: &mut Vec<u8>, stream: &Captured) {
    text.extend_from_slice(&stream.head);
    if stream.omitted > 0 {
        text.extend_from_slice(format!("\n[{} bytes dropped]\n", stream.omitted).as_bytes());
    }
    text.extend_from_slice(&stream.tail);
}

fn write(dir: &Path, path: &Path, text: &[u8]) -> Result<(), FileError> {
    files::make_private_dirs(dir)?;
    // Random, as a pid comes back and would meet what a dead process left.
    let temporary = dir.join(format!(".new-{}", clock::new_writer_id()));
    let written = files::write_new(&temporary, text, 0o600, Durable::No);
    let done = written.and_then(|()| files::rename(&temporary, path));
    if done.is_err() {
        // The first error is the one to report; a leftover goes with the old logs.
        let _ = files::remove_optional(&temporary);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::runner::Ended;
    use std::fs::{self, File};
    use std::time::{Duration, UNIX_EPOCH};

    fn stream(head: &[u8], omitted: u64, tail: &[u8]) -> Captured {
        Captured { head: head.to_vec(), tail: tail.to_vec(), omitted, total: omitted + 1 }
    }

    fn ran(stdout: Captured, stderr: Captured) -> Ran {
        let (ended, signals) = (Ended::Exited(0), Vec::new());
        Ran { ended, signals, duration_ms: 1, stdout, stderr, cancelled: false, left_behind: 0 }
    }

    #[test]
    fn case_82_says_what_was_dropped() {
        let ran = ran(stream(b"begin", 7, b"end"), stream(b"\xff err\n", 0, b""));
        assert_eq!(transcript(&ran), b"begin\n[7 bytes dropped]\nend\n\xff err\n");
        assert_eq!(shown_tail(&ran), "begin\n[7 bytes dropped]\nend\n\u{fffd} err\n");
    }

    #[test]
    fn the_tail_starts_at_a_character() {
        let log = "é".repeat(limits::TAIL_SHOWN_BYTES);
        let shown = tail_of(&[log.as_bytes(), b"x"].concat());
        assert_eq!(shown.len(), limits::TAIL_SHOWN_BYTES - 1);
        assert!(shown.starts_with('é') && shown.ends_with("éx"));
        assert_eq!(tail_of(b""), "");
    }

    #[test]
    fn stores_privately_and_loads_only_what_was_stored() {
        let dir = tempfile::tempdir().unwrap();
        let log =
            store_log(dir.path(), &ran(stream(b"out\n", 0, b""), Captured::default())).unwrap();
        assert_eq!(log.size_bytes, 4);
        assert_eq!(load_log(dir.path(), &log.sha256).unwrap().unwrap(), b"out\n");
        let path = dir.path().join("logs").join(&log.sha256);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(dir.path().join("logs")).unwrap().count(), 1);
        fs::write(&path, "forged").unwrap();
        assert!(matches!(load_log(dir.path(), &log.sha256), Err(LogError::Changed { .. })));
        assert!(matches!(load_log(dir.path(), "../../config"), Err(LogError::BadDigest(_))));
        assert!(load_log(dir.path(), &"0".repeat(64)).unwrap().is_none());
    }

    #[test]
    fn removes_logs_that_are_too_old() {
        let dir = tempfile::tempdir().unwrap();
        let old = store_log(dir.path(), &ran(stream(b"old", 0, b""), Captured::default())).unwrap();
        let kept =
            store_log(dir.path(), &ran(stream(b"kept", 0, b""), Captured::default())).unwrap();
        let age = |log: &LogRef, seconds: i64| {
            let at = UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap());
            let path = dir.path().join("logs").join(&log.sha256);
            File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
        };
        let limit = i64::try_from(limits::LOG_RETENTION_MS / 1000).unwrap();
        age(&old, clock::now().seconds() - limit - 60);
        age(&kept, clock::now().seconds() - limit + 60);
        assert_eq!(remove_old_logs(dir.path(), limits::LOG_RETENTION_MS).unwrap(), 1);
        assert!(load_log(dir.path(), &old.sha256).unwrap().is_none());
        assert!(load_log(dir.path(), &kept.sha256).unwrap().is_some());
    }
}

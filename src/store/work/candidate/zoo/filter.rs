//! A long-running filter for git: this very test binary, asked by an environment variable.
//!
//! It talks version 2 of git's filter protocol over a descriptor of its own, as the test harness writes to stdout.
//! As `lfs` it stores a pointer and keeps the content aside, as git-lfs does; as `upper` it writes in capitals.

use crate::sys::digest;
use std::{
    fmt::Write as _,
    io::{Read, Write},
};

const ASKED: &str = "ZOO_FILTER";
/// Most bytes of one packet.
const PACKET_BYTES: usize = 65_516;

/// A shell command that serves a filter by running the named test; append the kind of filter to the environment
/// with [`of_kind`].
pub(super) fn command(test: &str) -> String {
    let own = std::env::current_exe().unwrap();
    format!("exec 3>&1 >/dev/null; exec '{}' --exact {test}", own.display())
}

/// The command as one kind of filter.
pub(super) fn of_kind(command: &str, kind: &str) -> String {
    format!("{ASKED}={kind}; export {ASKED}; {command}")
}

/// True after having served as a filter until git closed the pipe.
#[expect(clippy::disallowed_methods, reason = "the role of this process is in its environment")]
pub(super) fn serve_if_asked() -> bool {
    let Ok(kind) = std::env::var(ASKED) else { return false };
    let mut out = std::fs::OpenOptions::new().write(true).open("/dev/fd/3").unwrap();
    let mut git = Talk { input: std::io::stdin().lock(), out: &mut out };
    git.greet();
    while let Some(asked) = git.list() {
        let content = git.content();
        assert!(asked.contains(&"command=clean".to_owned()), "{asked:?}");
        git.answer(&if kind == "lfs" { pointer(content) } else { content.to_ascii_uppercase() });
    }
    true
}

/// What git-lfs stores in place of the content; a pointer stays one.
fn pointer(content: Vec<u8>) -> Vec<u8> {
    if content.is_empty() || content.starts_with(b"version https://git-lfs.github.com/spec/v1\n") {
        return content;
    }
    let mut text = "version https://git-lfs.github.com/spec/v1\n".to_owned();
    writeln!(text, "oid sha256:{}\nsize {}", digest::sha256(&content), content.len()).unwrap();
    text.into_bytes()
}

struct Talk<'a, R> {
    input: R,
    out: &'a mut std::fs::File,
}

impl<R: Read> Talk<'_, R> {
    fn greet(&mut self) {
        assert_eq!(self.list().unwrap(), ["git-filter-client", "version=2"]);
        self.say(&["git-filter-server\n", "version=2\n"]);
        let able = self.list().unwrap();
        assert!(able.contains(&"capability=clean".to_owned()), "{able:?}");
        self.say(&["capability=clean\n"]);
    }

    /// One packet; none for a flush, an error at the end of the pipe.
    fn packet(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut head = [0; 4];
        self.input.read_exact(&mut head)?;
        let size = usize::from_str_radix(std::str::from_utf8(&head).unwrap(), 16).unwrap();
        let Some(size) = size.checked_sub(4) else { return Ok(None) };
        let mut data = vec![0; size];
        self.input.read_exact(&mut data)?;
        Ok(Some(data))
    }

    /// Lines up to a flush; none when git is done.
    fn list(&mut self) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        while let Some(line) = self.packet().ok()? {
            lines.push(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned());
        }
        Some(lines)
    }

    fn content(&mut self) -> Vec<u8> {
        let mut content = Vec::new();
        while let Some(part) = self.packet().unwrap() {
            content.extend(part);
        }
        content
    }

    fn answer(&mut self, content: &[u8]) {
        self.say(&["status=success\n"]);
        content.chunks(PACKET_BYTES).for_each(|part| self.send(part));
        self.flush();
        self.flush();
    }

    fn say(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.send(line.as_bytes()));
        self.flush();
    }

    fn send(&mut self, data: &[u8]) {
        let head = format!("{:04x}", data.len() + 4);
        self.out.write_all(&[head.as_bytes(), data].concat()).unwrap();
    }

    fn flush(&mut self) {
        self.out.write_all(b"0000").unwrap();
    }
}

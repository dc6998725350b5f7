//! Repository paths: literal bytes, relative to the worktree root, never a pattern.
//!
//! What makes a path acceptable is in `spec/commit-and-ack.md`, Paths. This type holds the checks that
//! need no file system; links, submodules and tracked state are the candidate's to judge. Shown to people a
//! path is quoted as git quotes it, so that no two look alike; in JSON it keeps its bytes.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use std::fmt::{self, Write as _};

/// The rules of a repository: this directory and this file at the top of its tree.
pub const RULE_PATHS: [&str; 2] = [".agentproto", "agentproto.json"];

/// A valid repository path: one or more `/`-separated names, no `.`/`..`, nothing git would refuse.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoPath(Vec<u8>);

/// Why bytes are no repository path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// Nothing was given.
    #[error("an empty path names nothing")]
    Empty,
    /// `.` or a trailing slash.
    #[error("a directory is not a file: list the files")]
    Directory,
    /// The top of the worktree.
    #[error("the whole worktree is never listed at once")]
    Top,
    /// `..` beyond the top, or an absolute path outside.
    #[error("the path leaves the worktree")]
    Outside,
    /// `.git` in any case or short form.
    #[error("git's own directory is never committed")]
    GitDir,
    /// A NUL byte.
    #[error("a path cannot hold a NUL byte")]
    Nul,
}

impl RepoPath {
    /// Accepts a path relative to the worktree root, already free of `.` and `..`.
    ///
    /// # Errors
    /// [`BadPath`] says which rule is broken.
    pub fn new(raw: &[u8]) -> Result<Self, BadPath> {
        if raw.is_empty() {
            return Err(BadPath::Empty);
        }
        if raw.contains(&0) {
            return Err(BadPath::Nul);
        }
        if raw[0] == b'/' {
            return Err(BadPath::Outside);
        }
        if raw.ends_with(b"/") {
            return Err(BadPath::Directory);
        }
        for name in raw.split(|b| *b == b'/') {
            match name {
                b"" | b"." => return Err(BadPath::Directory),
                b".." => return Err(BadPath::Outside),
                _ if is_git_dir_name(name) => return Err(BadPath::GitDir),
                _ => {}
            }
        }
        Ok(Self(raw.to_vec()))
    }

    /// Joins a typed path with the directory it is relative to (`prefix`, relative to the worktree root,
    /// empty at the root) and resolves `.` and `..` by name alone.
    ///
    /// # Errors
    /// As [`RepoPath::new`]; also when nothing but the root remains.
    pub fn resolve(prefix: &[u8], typed: &[u8]) -> Result<Self, BadPath> {
        if typed.is_empty() {
            return Err(BadPath::Empty);
        }
        let mut names: Vec<&[u8]> =
            prefix.split(|b| *b == b'/').filter(|n| !n.is_empty()).collect();
        for name in typed.split(|b| *b == b'/') {
            match name {
                b"" | b"." => {}
                b".." => {
                    names.pop().ok_or(BadPath::Outside)?;
                }
                _ => names.push(name),
            }
        }
        if names.is_empty() {
            return Err(BadPath::Top);
        }
        if typed.ends_with(b"/") || typed.ends_with(b"/.") || typed.ends_with(b"/..") {
            return Err(BadPath::Directory);
        }
        Self::new(&names.join(&b'/'))
    }

    /// The path as bytes, `/`-separated, relative to the worktree root.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The names from the root to the file.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }

    /// The path of the first `count` names, at least one: a directory on the way.
    #[must_use]
    pub fn leading(&self, count: usize) -> Self {
        let names: Vec<&[u8]> = self.names().take(count.max(1)).collect();
        Self(names.join(&b'/'))
    }

    /// True for what holds the rules of the repository, [`RULE_PATHS`] and below, and for every spelling that some file
    /// system takes for these: whoever checks it out there would have other rules.
    #[must_use]
    pub fn is_rule(&self) -> bool {
        let Some(top) = self.names().next() else { return false };
        let visible = without_ignorable(top);
        let folded = String::from_utf8_lossy(plain_name(&visible)).to_uppercase();
        RULE_PATHS.iter().any(|rule| rule.to_uppercase() == folded)
    }
}

/// Names git treats as its own directory on some file system: `.git` in any case, with trailing
/// dots or spaces, the NTFS short name `git~1`, streams (`.git:x`), and `.git` spelled with ignorable code points.
fn is_git_dir_name(name: &[u8]) -> bool {
    let visible = without_ignorable(name);
    let base = plain_name(&visible);
    base.eq_ignore_ascii_case(b".git") || base.eq_ignore_ascii_case(b"git~1")
}

/// The name without a stream and without the dots and spaces at its end, which NTFS leaves out.
fn plain_name(name: &[u8]) -> &[u8] {
    let base = name.split(|b| *b == b':').next().unwrap_or(&[]);
    let end = base.iter().rposition(|b| !matches!(b, b' ' | b'.')).map_or(0, |at| at + 1);
    &base[..end]
}

/// Drops the code points HFS+ ignores when it compares names (git's `core.protectHFS` list).
fn without_ignorable(name: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(name) else { return name.to_vec() };
    let ignored = |c: &char| matches!(*c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    text.chars().filter(|c| !ignored(c)).collect::<String>().into_bytes()
}

/// A path as git shows it whatever `core.quotePath` says: as it is, or in double quotes with C escapes where it holds a
/// control character, a quote, a backslash or bytes that are no text.
#[must_use]
pub fn quoted(path: &[u8]) -> String {
    let mut out = String::with_capacity(path.len() + 2);
    for chunk in path.utf8_chunks() {
        chunk.valid().chars().for_each(|c| push_quoted(&mut out, c));
        for byte in chunk.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(out, "\\{byte:03o}");
        }
    }
    if out.as_bytes() == path { out } else { format!("\"{out}\"") }
}

fn push_quoted(out: &mut String, c: char) {
    let named = match c {
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{b}' => 'v',
        '\u{c}' => 'f',
        '\r' => 'r',
        '"' | '\\' => c,
        c if c.is_ascii_control() => {
            let _ = write!(out, "\\{:03o}", u32::from(c));
            return;
        }
        c => return out.push(c),
    };
    out.extend(['\\', named]);
}

/// Undoes [`quoted`]: what is not in double quotes is taken as it is; none when the quoting is broken.
#[must_use]
pub fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    let Some(inner) = text.strip_prefix(b"\"") else { return Some(text.to_vec()) };
    let mut rest = inner.strip_suffix(b"\"")?.iter().copied();
    let mut path = Vec::new();
    while let Some(byte) = rest.next() {
        path.push(match byte {
            b'"' => return None,
            b'\\' => match rest.next()? {
                b'a' => 7,
                b'b' => 8,
                b't' => b'\t',
                b'n' => b'\n',
                b'v' => 11,
                b'f' => 12,
                b'r' => b'\r',
                same @ (b'"' | b'\\') => same,
                first @ b'0'..=b'3' => octal([first, rest.next()?, rest.next()?])?,
                _ => return None,
            },
            plain => plain,
        });
    }
    Some(path)
}

fn octal(digits: [u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 8).ok()
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.0))
    }
}

impl fmt::Debug for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", quoted(&self.0))
    }
}

impl Serialize for RepoPath {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => {
                let mut map = s.serialize_map(Some(1))?;
                map.serialize_entry("b64", &BASE64_STANDARD.encode(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for RepoPath {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Bytes { b64: String },
        }
        let raw = match Form::deserialize(d)? {
            Form::Text(text) => text.into_bytes(),
            Form::Bytes { b64 } => BASE64_STANDARD.decode(b64).map_err(serde::de::Error::custom)?,
        };
        Self::new(&raw).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_lie_at_the_top() {
        for rule in [
            ".agentproto/allowed_signers",
            ".agentproto",
            "agentproto.json",
            ".AgentProto/x",
            "AGENTPROTO.JSON",
            "agentproto.j\u{17f}on",
            ".agent\u{200d}proto/x",
            ".agentproto. /x",
            "agentproto.json::$DATA",
        ] {
            assert!(RepoPath::new(rule.as_bytes()).unwrap().is_rule(), "{rule}");
        }
        for other in ["a/.agentproto/x", ".agentproto2", "agentproto.json5", "a/agentproto.json"] {
            assert!(!RepoPath::new(other.as_bytes()).unwrap().is_rule(), "{other}");
        }
    }

    #[test]
    fn names_are_characters_never_patterns() {
        for name in ["*.txt", ":(glob)*", "-x", "a[1].txt", ":!y", "..foo", "a b", "π"] {
            assert_eq!(
                RepoPath::resolve(b"", name.as_bytes()).unwrap().as_bytes(),
                name.as_bytes()
            );
        }
    }

    #[test]
    fn refuses_what_is_not_a_file_inside() {
        use BadPath::{Directory, Empty, GitDir, Nul, Outside, Top};
        for (typed, why) in [
            ("", Empty),
            (".", Top),
            ("a/", Directory),
            ("a/..", Top),
            ("../x", Outside),
            ("a/../../x", Outside),
            (".git/config", GitDir),
            (".GIT/config", GitDir),
            ("a/.Git. /x", GitDir),
            ("GIT~1/config", GitDir),
            (".git::$INDEX_ALLOCATION/x", GitDir),
            (".g\u{200c}it/config", GitDir),
            ("a\0b", Nul),
        ] {
            assert_eq!(RepoPath::resolve(b"", typed.as_bytes()), Err(why), "{typed:?}");
        }
    }

    #[test]
    fn resolves_against_the_current_directory() {
        assert_eq!(RepoPath::resolve(b"src/cli", b"../x.rs").unwrap().as_bytes(), b"src/x.rs");
        assert_eq!(RepoPath::resolve(b"src", b"../../x"), Err(BadPath::Outside));
    }

    #[test]
    fn people_see_a_path_as_git_quotes_it_and_can_give_it_back() {
        for (path, want) in [
            (&b"plain"[..], "plain"),
            (b" sp ace ", " sp ace "),
            ("\u{fc}n\u{ef}".as_bytes(), "\u{fc}n\u{ef}"),
            (b"a -> b", "a -> b"),
            (b"caf\xe9", r#""caf\351""#),
            (b"n\nl\t\r\x07\x08\x0b\x0c", r#""n\nl\t\r\a\b\v\f""#),
            (b"\x1b[2J\x7f", r#""\033[2J\177""#),
            (b"qu\"ote\\", r#""qu\"ote\\""#),
        ] {
            let shown = RepoPath::new(path).unwrap().to_string();
            assert_eq!(shown, want);
            assert_eq!(unquoted(shown.as_bytes()).as_deref(), Some(path));
        }
        for broken in
            [r#"""#, r#""a"#, r#""a"b""#, r#""\""#, r#""\x""#, r#""\39""#, r#""\4""#, r#""\400""#]
        {
            assert_eq!(unquoted(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn json_keeps_bytes_that_are_not_text() {
        let odd = RepoPath::new(b"a\xff.txt").unwrap();
        let json = serde_json::to_string(&odd).unwrap();
        assert_eq!(json, r#"{"b64":"Yf8udHh0"}"#);
        assert_eq!(serde_json::from_str::<RepoPath>(&json).unwrap(), odd);
    }
}

//! The commit message: cleaned as `git commit -m` cleans it, with our trailers in its last block.

use crate::{
    code::Code,
    domain::ids::{PolicyId, SessionId},
    limits::MESSAGE_BYTES,
};

/// Why a message cannot be committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Nothing is left after cleanup.
    #[error("the commit message is empty")]
    Empty,
    /// It holds a NUL byte, which would cut it short.
    #[error("the commit message holds a NUL byte at {at}")]
    Nul {
        /// Where.
        at: usize,
    },
    /// It is too long.
    #[error("the commit message has {actual} bytes, at most {limit} are accepted")]
    TooLong {
        /// Its size after cleanup, bytes.
        actual: usize,
        /// [`MESSAGE_BYTES`].
        limit: usize,
    },
}

impl MessageError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Empty => Code::EmptyMessage,
            Self::Nul { .. } => Code::Usage,
            Self::TooLong { .. } => Code::TooMany,
        }
    }
}

/// Cleans a message as `git commit -m` does: no white space at line ends, no empty lines at both ends, no
/// two in a row, one line feed at the end. Lines with `#` stay: nobody edited the message. Bytes that are
/// not UTF-8 are taken for Latin-1, as git does when it makes a commit.
///
/// # Errors
/// See [`MessageError`].
pub fn clean(raw: &[u8]) -> Result<Vec<u8>, MessageError> {
    if let Some(at) = raw.iter().position(|b| *b == 0) {
        return Err(MessageError::Nul { at });
    }
    let text = as_utf8(raw);
    let mut out: Vec<u8> = Vec::with_capacity(text.len() + 1);
    let mut gap = false;
    for line in text.as_bytes().split(|b| *b == b'\n') {
        let line = trim_end(line);
        if line.is_empty() {
            gap = !out.is_empty();
            continue;
        }
        if gap {
            out.push(b'\n');
        }
        gap = false;
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    match out.len() {
        0 => Err(MessageError::Empty),
        actual if actual > MESSAGE_BYTES => {
            Err(MessageError::TooLong { actual, limit: MESSAGE_BYTES })
        }
        _ => Ok(out),
    }
}

fn as_utf8(raw: &[u8]) -> String {
    let mut text = String::with_capacity(raw.len());
    for chunk in raw.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().copied().map(char::from));
    }
    text
}

/// What git calls white space (fewer characters than C does).
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn trim_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|b| !is_space(*b)).map_or(0, |at| at + 1);
    &line[..end]
}

/// Adds `Agentproto-Policy` and one `Agentproto-Session` per member to a cleaned message, joining its last
/// trailer block if it has one.
#[must_use]
pub fn with_trailers(cleaned: &[u8], policy: &PolicyId, sessions: &[SessionId]) -> Vec<u8> {
    let mut out = cleaned.to_vec();
    if !ends_in_trailers(cleaned) {
        out.push(b'\n');
    }
    out.extend_from_slice(format!("Agentproto-Policy: {policy}\n").as_bytes());
    for session in sessions {
        out.extend_from_slice(format!("Agentproto-Session: {session}\n").as_bytes());
    }
    out
}

/// True when the last paragraph is what `git interpret-trailers` takes for a trailer block: never the
/// title; either trailers only, or one that git itself writes and at least a quarter trailers. Lines with
/// `#` are passed over.
fn ends_in_trailers(message: &[u8]) -> bool {
    let lines: Vec<&[u8]> =
        message.split(|b| *b == b'\n').filter(|l| !l.starts_with(b"#")).collect();
    let Some(title_end) = lines.iter().position(|l| is_blank(l)) else { return false };
    let Some(last) = lines.iter().rposition(|l| !is_blank(l)) else { return false };
    let before = lines[..last].iter().rposition(|l| is_blank(l));
    match before {
        Some(start) if start >= title_end => counts_as_block(&lines[start + 1..=last]),
        Some(_) | None => false,
    }
}

fn counts_as_block(paragraph: &[&[u8]]) -> bool {
    let (mut trailers, mut others, mut by_git) = (0_usize, 0_usize, false);
    // A continuation belongs to the line above it; one without is prose.
    let mut above_is_trailer = false;
    for line in paragraph {
        let continues = line.first().is_some_and(|b| is_space(*b));
        let git_line = [&b"Signed-off-by: "[..], b"(cherry picked from commit "]
            .iter()
            .any(|prefix| line.starts_with(prefix));
        if git_line || (!continues && has_separator(line)) {
            trailers += 1;
            by_git |= git_line;
            above_is_trailer = true;
        } else if !(continues && above_is_trailer) {
            others += 1;
            above_is_trailer = false;
        }
    }
    if by_git { trailers * 3 >= others } else { trailers > 0 && others == 0 }
}

/// `Token:` or `Token :`, the token of letters, digits and `-`.
fn has_separator(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|b| *b == b':') else { return false };
    let token = trim_end(&line[..colon]);
    !token.is_empty() && token.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|b| is_space(*b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::Repo;

    const POLICY: &str = "pol_01arz3ndektsv4rrffq69g5fav";
    const SESSION: &str = "ses_01arz3ndektsv4rrffq69g5fav";

    const MESSAGES: [&str; 19] = [
        "title",
        "title\n\nbody",
        "title\n\nbody: not\nreally",
        "title\n\nbody\n\nReviewed-by: A <a@example.invalid>",
        "title\n\nReviewed-by: A\nAcked-by: B",
        "Fixes: title only",
        "Fixes: two lines\nAcked-by: title too",
        "title\n\nbody\n\nSigned-off-by: A\nprose\nmore prose\nand more",
        "title\n\nbody\n\nSigned-off-by: A\nprose\nmore\nand\nmuch more",
        "title\n\nbody\n\n(cherry picked from commit 0123456789)",
        "title\n\nLong-one: starts\n here goes on\n and on",
        "title\n\n indented\nKey: value",
        "title\n\nKey: value\n indented\nprose\n more",
        "title\n\nKey two: no token",
        "title\n\n: no key",
        "title\n\nbody\n# a remark\nKey: value",
        "title\n\nKey: v\n\n---\n\nnotes",
        "title\n\n\n\n  trailing space  \n\n\n\nKey: x   \n\n",
        "#12 title\n\nKey: value",
    ];

    #[test]
    fn trailers_join_the_last_block_as_git_interpret_trailers_would() {
        let repo = Repo::new();
        let (policy, session): (PolicyId, SessionId) =
            (POLICY.parse().unwrap(), SESSION.parse().unwrap());
        for message in MESSAGES {
            let cleaned = clean(message.as_bytes()).unwrap();
            repo.write("msg", &cleaned);
            let git = repo.git(&[
                "interpret-trailers",
                "--no-divider",
                "--trailer",
                &format!("Agentproto-Policy: {POLICY}"),
                "--trailer",
                &format!("Agentproto-Session: {SESSION}"),
                "msg",
            ]);
            let ours = with_trailers(&cleaned, &policy, std::slice::from_ref(&session));
            assert_eq!(String::from_utf8(ours).unwrap(), git, "{message:?}");
        }
    }

    /// git joins these, too, but rewrites or reorders lines; here the person's words stay as they are.
    #[test]
    fn joins_a_block_without_rewriting_it() {
        let repo = Repo::new();
        let policy = POLICY.parse().unwrap();
        for block in ["Key : spaced", "http://example.invalid/x", "Key: value\n# a remark"] {
            let ours = with_trailers(format!("title\n\n{block}\n").as_bytes(), &policy, &[]);
            let added = format!("Agentproto-Policy: {POLICY}\n");
            let expected = format!("title\n\n{block}\n{added}");
            assert_eq!(String::from_utf8(ours.clone()).unwrap(), expected);
            repo.write("msg", &ours);
            assert!(repo.git(&["interpret-trailers", "--parse", "msg"]).ends_with(&added));
        }
    }

    #[test]
    fn cleanup_is_that_of_git_commit_m() {
        let repo = Repo::new();
        for message in MESSAGES.iter().chain(&["a \r\n\r\nb\x0b", "\n\n x\n", "a\n\n\n\n#b\n \nc"])
        {
            repo.git(&["commit", "-q", "--allow-empty", "-m", message]);
            let git = repo.git(&["cat-file", "commit", "HEAD"]);
            let (_, body) = git.split_once("\n\n").unwrap();
            assert_eq!(String::from_utf8(clean(message.as_bytes()).unwrap()).unwrap(), body);
        }
    }

    #[test]
    fn what_is_not_utf8_is_read_as_latin_1_like_git_does() {
        let repo = Repo::new();
        let message = b"caf\xe9 \xc3\xa9 \xe2\x82 \xff\n";
        repo.write("msg", message);
        repo.git(&["commit", "-q", "--allow-empty", "--cleanup=whitespace", "-F", "msg"]);
        let git = repo.git(&["cat-file", "commit", "HEAD"]);
        let (_, body) = git.split_once("\n\n").unwrap();
        assert_eq!(String::from_utf8(clean(message).unwrap()).unwrap(), body);
    }

    #[test]
    fn refuses_empty_nul_and_endless_messages() {
        assert_eq!(clean(b" \n\t\n"), Err(MessageError::Empty));
        assert_eq!(clean(b"a\0b"), Err(MessageError::Nul { at: 1 }));
        assert!(clean(&vec![b'x'; MESSAGE_BYTES - 1]).is_ok());
        let (actual, limit) = (MESSAGE_BYTES + 1, MESSAGE_BYTES);
        assert_eq!(clean(&vec![b'x'; limit]), Err(MessageError::TooLong { actual, limit }));
    }
}

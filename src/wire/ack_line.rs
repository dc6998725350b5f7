//! The signed line of one ack in `refs/notes/agentproto/acks` (spec commit-and-ack, Ack).
//!
//! Contract: the common rules are in [`super::signed_line`]. The signed bytes are everything before
//! ` sig=`, without LF; `sig` is the base64 of the binary SSHSIG with its `=` and without line breaks, so
//! the line can be checked with OpenSSH alone. This module does not judge the signature.

use super::signed_line::{LineError, Reader, Writer, bad, require_canonical};
use crate::domain::{
    ack::{AckStatement, Decision},
    candidate::is_head,
    oid::Oid,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};

/// What the first word begins with in every version.
pub const FAMILY: &str = "agentproto-ack/";
/// First word of the line.
pub const MAGIC: &str = "agentproto-ack/1";

/// A statement with its signature, as it was read or is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AckLine {
    /// What is said.
    pub statement: AckStatement,
    /// Base64 of the binary SSHSIG over [`payload`].
    pub sig: String,
}

/// The bytes that are signed.
#[must_use]
pub fn payload(statement: &AckStatement) -> String {
    Writer::new(MAGIC, statement.decision.as_str())
        .field("repo", &statement.repo)
        .field("policy", statement.policy.as_str())
        .field("request", statement.request.to_string())
        .field("candidate", statement.candidate.to_string())
        .field("parent", statement.parent.to_string())
        .field("tree", statement.tree.to_string())
        .field("branch", &statement.branch)
        .field("gates", &statement.gates)
        .field("signer", &statement.signer)
        .field("key", &statement.key)
        .field("issued", statement.issued.to_string())
        .field("expires", statement.expires.to_string())
        .field("reason", &statement.reason)
        .finish()
}

impl AckLine {
    /// The line, without LF.
    #[must_use]
    pub fn encode(&self) -> String {
        format!("{} sig={}", payload(&self.statement), self.sig)
    }

    /// Reads a line without LF.
    ///
    /// # Errors
    /// The line is not exactly what [`AckLine::encode`] writes.
    pub fn parse(line: &str) -> Result<Self, LineError> {
        let (mut fields, verb) = Reader::new(line, MAGIC)?;
        let statement = AckStatement {
            decision: decision(verb.unwrap_or_default())?,
            repo: fields.value::<Oid>("repo")?.to_string(),
            policy: fields.value("policy")?,
            request: fields.value("request")?,
            candidate: fields.value("candidate")?,
            parent: fields.value("parent")?,
            tree: fields.value("tree")?,
            branch: branch(&mut fields)?,
            gates: fields.sha256("gates")?,
            signer: not_empty(&mut fields, "signer")?,
            key: fingerprint(&mut fields)?,
            issued: fields.value("issued")?,
            expires: fields.value("expires")?,
            reason: fields.text("reason")?,
        };
        let sig = signature(&mut fields)?;
        fields.end()?;
        let read = Self { statement, sig };
        require_canonical(line, read.encode())?;
        Ok(read)
    }
}

fn decision(verb: &str) -> Result<Decision, LineError> {
    match verb {
        "approve" => Ok(Decision::Approve),
        "reject" => Ok(Decision::Reject),
        _ => Err(bad("decision", verb)),
    }
}

fn not_empty(fields: &mut Reader<'_>, name: &'static str) -> Result<String, LineError> {
    let text = fields.text(name)?;
    if text.is_empty() { Err(bad(name, "")) } else { Ok(text) }
}

fn branch(fields: &mut Reader<'_>) -> Result<String, LineError> {
    let name = fields.text("branch")?;
    let is_branch = name.strip_prefix("refs/heads/").is_some_and(|short| !short.is_empty());
    if is_branch || is_head(&name) { Ok(name) } else { Err(bad("branch", &name)) }
}

/// 32 bytes of SHA-256 are 43 characters of base64 without padding.
const FINGERPRINT_CHARS: usize = 43;

fn fingerprint(fields: &mut Reader<'_>) -> Result<String, LineError> {
    let text = fields.text("key")?;
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/".contains(&b);
    match text.strip_prefix("SHA256:") {
        Some(hash) if hash.len() == FINGERPRINT_CHARS && hash.bytes().all(is_base64) => Ok(text),
        _ => Err(bad("key", &text)),
    }
}

fn signature(fields: &mut Reader<'_>) -> Result<String, LineError> {
    let raw = fields.raw("sig")?;
    let decoded = BASE64_STANDARD.decode(raw).map_err(|_| bad("sig", raw))?;
    if decoded.is_empty() { Err(bad("sig", raw)) } else { Ok(raw.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::time::Timestamp;
    use proptest::prelude::*;

    fn sample() -> AckLine {
        AckLine {
            statement: AckStatement {
                decision: Decision::Approve,
                repo: "1".repeat(40),
                policy: "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap(),
                request: "2".repeat(40).parse().unwrap(),
                candidate: "3".repeat(40).parse().unwrap(),
                parent: "4".repeat(40).parse().unwrap(),
                tree: "5".repeat(40).parse().unwrap(),
                branch: "refs/heads/main".into(),
                gates: "ab".repeat(32),
                signer: "ada@example.invalid".into(),
                key: format!("SHA256:{}", "A".repeat(FINGERPRINT_CHARS)),
                issued: Timestamp::from_ms(1_700_000_000_000),
                expires: Timestamp::from_ms(1_700_086_400_000),
                reason: String::new(),
            },
            sig: "U1NIU0lH".into(),
        }
    }

    #[test]
    fn the_line_is_pinned() {
        let line = "agentproto-ack/1 approve repo=1111111111111111111111111111111111111111 \
            policy=pol_01arz3ndektsv4rrffq69g5fav request=2222222222222222222222222222222222222222 \
            candidate=3333333333333333333333333333333333333333 \
            parent=4444444444444444444444444444444444444444 \
            tree=5555555555555555555555555555555555555555 branch=refs/heads/main \
            gates=abababababababababababababababababababababababababababababababab \
            signer=ada@example.invalid key=SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA \
            issued=2023-11-14T22:13:20.000Z expires=2023-11-15T22:13:20.000Z reason= sig=U1NIU0lH";
        assert_eq!(sample().encode(), line);
        assert_eq!(AckLine::parse(line), Ok(sample()));
        assert_eq!(payload(&sample().statement), line.split_once(" sig=").unwrap().0);
    }

    #[test]
    fn a_reason_cannot_smuggle_in_a_field() {
        let mut line = sample();
        line.statement.reason = "fine sig=AAAA\nagentproto-ack/1 approve".into();
        let text = line.encode();
        assert_eq!(text.matches(" sig=").count(), 1);
        assert!(!text.contains('\n'));
        assert_eq!(AckLine::parse(&text), Ok(line));
    }

    #[test]
    fn another_spelling_of_the_same_meaning_is_malformed() {
        let good = sample().encode();
        let spellings = [
            ("approve", "Approve"),
            ("approve", "accept"),
            ("reason= ", ""),
            ("ada@", "%61da@"),
            ("branch=refs/heads/main", "branch=main"),
            ("branch=refs/heads/main", "branch=refs/heads/"),
            ("branch=refs/heads/main", "branch=HEAD"),
            ("branch=refs/heads/main", "branch=worktrees//HEAD"),
            ("SHA256:A", "sha256:A"),
            ("SHA256:A", "SHA256:"),
            ("signer=ada@example.invalid", "signer="),
            ("sig=U1NIU0lH", "sig="),
            ("sig=U1NIU0lH", "sig=U1NIU0l"),
            ("sig=U1NIU0lH", "sig=U1NIU0lH="),
            ("sig=U1NIU0lH", "sig=U1NI%550lH"),
            ("sig=U1NIU0lH", "sig=QR=="),
            (".000Z expires", "Z expires"),
            ("agentproto-ack/1", "agentproto-ack/2"),
            ("repo=1", "repo="),
        ];
        for (from, to) in spellings {
            let other = good.replacen(from, to, 1);
            assert_ne!(other, good, "{from}");
            assert!(AckLine::parse(&other).is_err(), "{to}");
        }
        for other in [format!("{good}\n"), format!("{good}\r")] {
            assert!(AckLine::parse(&other).is_err(), "{other:?}");
        }
        let more = AckLine::parse(&format!("{good} x=1"));
        assert_eq!(more, Err(LineError::Trailing("x=1".into())));
    }

    #[test]
    fn a_missing_doubled_or_moved_field_is_malformed() {
        let good = sample().encode();
        let words: Vec<&str> = good.split(' ').collect();
        for at in 0..words.len() {
            let mut missing = words.clone();
            missing.remove(at);
            assert!(AckLine::parse(&missing.join(" ")).is_err(), "without {}", words[at]);
            let mut doubled = words.clone();
            doubled.insert(at, words[at]);
            assert!(AckLine::parse(&doubled.join(" ")).is_err(), "twice {}", words[at]);
            if at + 1 < words.len() {
                let mut moved = words.clone();
                moved.swap(at, at + 1);
                assert!(AckLine::parse(&moved.join(" ")).is_err(), "moved {}", words[at]);
            }
        }
    }

    proptest! {
        #[test]
        fn round_trips(
            reason in any::<String>(),
            signer in ".+",
            branch in "[^\0]+",
            approve in any::<bool>(),
            sig in prop::collection::vec(any::<u8>(), 1..80),
        ) {
            let mut line = sample();
            line.sig = BASE64_STANDARD.encode(sig);
            line.statement.reason = reason;
            line.statement.signer = signer;
            line.statement.branch = format!("refs/heads/{branch}");
            line.statement.decision = if approve { Decision::Approve } else { Decision::Reject };
            prop_assert_eq!(AckLine::parse(&line.encode()), Ok(line));
        }

        #[test]
        fn one_changed_byte_never_reads_as_the_same_line(at in 0usize..700, byte in 0x20u8..0x7f) {
            let good = sample().encode();
            let at = at % good.len();
            let mut other = good.clone().into_bytes();
            prop_assume!(other[at] != byte);
            other[at] = byte;
            let other = String::from_utf8(other).unwrap();
            prop_assert_ne!(AckLine::parse(&other).ok(), Some(sample()));
        }
    }
}

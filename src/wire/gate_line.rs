//! The line of one gate result in `refs/notes/agentproto/gates` (spec gates).
//!
//! Contract: the common rules are in [`super::signed_line`]; what spec leaves open is settled here.
//! - `argv` holds each argument followed by a NUL byte, escaped as a whole, as `/proc/PID/cmdline` does:
//!   `argv=ls%00a.txt%00`. A NUL cannot occur inside an argument, so one value has one reading.
//! - `tree`, `dirty`, `exit` and `program` are `-` when they are not known: an unmerged index has no tree,
//!   a gate that was never started has no exit, a program that was not found has no digest. A scope gate is judged
//!   without any program: its `argv` is the flags that ask for it, `--scope` before each pattern.
//! - `exit=sig:NAME` is written without `SIG`: `sig:KILL`.
//!
//! A gate line is a statement of the machine that wrote it; what vouches for it is the ack that binds it.

use super::signed_line::{LineError, Reader, UNKNOWN, Writer, bad, require_canonical};
use crate::domain::{
    digest::{hex, is_sha256},
    gate::Verdict,
    ids::PolicyId,
    oid::Oid,
    time::Timestamp,
};
use sha2::{Digest, Sha256};
use std::{fmt, str::FromStr};

/// First word of the line.
pub const MAGIC: &str = "agentproto-gate/1";
/// What such lines of every version start with.
pub const FAMILY: &str = "agentproto-gate/";

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// The word in the line.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl FromStr for $name {
            type Err = ();

            fn from_str(text: &str) -> Result<Self, ()> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(()),
                }
            }
        }
    };
}

words! {
    /// What the line is attached to.
    GatedOn {
        /// The candidate of a commit policy.
        Candidate = "candidate",
        /// The commit checked out in a clean worktree.
        Worktree = "worktree",
    }
}

/// How the gate's main process ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum GateExit {
    /// With this exit status.
    Status(i32),
    /// Killed by this signal, named without `SIG`.
    Signal(String),
    /// Stopped at its deadline.
    Timeout,
    /// It never ran.
    NotRun,
}

impl fmt::Display for GateExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(f, "{code}"),
            Self::Signal(name) => write!(f, "sig:{name}"),
            Self::Timeout => f.write_str("timeout"),
            Self::NotRun => f.write_str(UNKNOWN),
        }
    }
}

impl FromStr for GateExit {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(name) = text.strip_prefix("sig:") {
            let fits = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b"+-".contains(&b);
            let named = !name.is_empty() && name.bytes().all(fits);
            return if named { Ok(Self::Signal(name.to_owned())) } else { Err(()) };
        }
        match text {
            "timeout" => Ok(Self::Timeout),
            UNKNOWN => Ok(Self::NotRun),
            number => number.parse().map(Self::Status).map_err(|_| ()),
        }
    }
}

/// One gate result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateLine {
    /// What it said.
    pub verdict: Verdict,
    /// The policy it ran for.
    pub policy: PolicyId,
    /// Attempt of that policy, from 1.
    pub attempt: u32,
    /// Place among the policy's gates, from 0.
    pub gate: u32,
    /// Hex SHA-256 of the gate's definition.
    pub def: String,
    /// What the result is about.
    pub on: GatedOn,
    /// The tree that was gated; none for an unmerged index.
    pub tree: Option<Oid>,
    /// Unlisted changes in the worktree while it ran; none when they could not be counted.
    pub dirty: Option<u64>,
    /// Kind of isolation, one word.
    pub isolation: String,
    /// How it ended.
    pub exit: GateExit,
    /// Hex SHA-256 of the program's file; none when there was no program to read.
    pub program: Option<String>,
    /// Program name as typed and its arguments.
    pub argv: Vec<String>,
    /// How long it took, milliseconds.
    pub ms: u64,
    /// When it ended.
    pub at: Timestamp,
}

fn or_unknown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |v| v.to_string())
}

impl GateLine {
    /// The line, without LF.
    #[must_use]
    pub fn encode(&self) -> String {
        let argv: String = self.argv.iter().flat_map(|arg| [arg.as_str(), "\0"]).collect();
        Writer::new(MAGIC, self.verdict.as_str())
            .field("policy", self.policy.as_str())
            .field("attempt", self.attempt.to_string())
            .field("gate", self.gate.to_string())
            .field("def", &self.def)
            .field("on", self.on.as_str())
            .field("tree", or_unknown(self.tree))
            .field("dirty", or_unknown(self.dirty))
            .field("isolation", &self.isolation)
            .field("exit", self.exit.to_string())
            .field("program", or_unknown(self.program.as_ref()))
            .field("argv", argv)
            .field("ms", self.ms.to_string())
            .field("at", self.at.to_string())
            .finish()
    }

    /// Reads a line without LF.
    ///
    /// # Errors
    /// The line is not exactly what [`GateLine::encode`] writes.
    pub fn parse(line: &str) -> Result<Self, LineError> {
        let (mut fields, verb) = Reader::new(line, MAGIC)?;
        let verb = verb.unwrap_or_default();
        let read = Self {
            verdict: verb.parse().map_err(|()| bad("verdict", verb))?,
            policy: fields.value("policy")?,
            attempt: fields.value("attempt")?,
            gate: fields.value("gate")?,
            def: fields.sha256("def")?,
            on: fields.value("on")?,
            tree: fields.optional("tree")?,
            dirty: fields.optional("dirty")?,
            isolation: word(&mut fields, "isolation")?,
            exit: fields.value("exit")?,
            program: digest(&mut fields, "program")?,
            argv: argv(&mut fields)?,
            ms: fields.value("ms")?,
            at: fields.value("at")?,
        };
        fields.end()?;
        require_canonical(line, read.encode())?;
        Ok(read)
    }
}

fn word(fields: &mut Reader<'_>, name: &'static str) -> Result<String, LineError> {
    let text = fields.text(name)?;
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"+-".contains(&b);
    if !text.is_empty() && text.bytes().all(fits) { Ok(text) } else { Err(bad(name, &text)) }
}

fn digest(fields: &mut Reader<'_>, name: &'static str) -> Result<Option<String>, LineError> {
    match fields.optional::<String>(name)? {
        Some(text) if !is_sha256(&text) => Err(bad(name, &text)),
        known_or_not => Ok(known_or_not),
    }
}

fn argv(fields: &mut Reader<'_>) -> Result<Vec<String>, LineError> {
    let text = fields.text("argv")?;
    let Some(body) = text.strip_suffix('\0') else {
        return if text.is_empty() { Ok(Vec::new()) } else { Err(bad("argv", &text)) };
    };
    Ok(body.split('\0').map(str::to_owned).collect())
}

/// The `gates=` field of an ack: hex SHA-256 over the lines in gate order, each followed by LF.
#[must_use]
pub fn gates_digest<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for line in lines {
        hasher.update(line);
        hasher.update(b"\n");
    }
    hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> GateLine {
        GateLine {
            verdict: Verdict::Pass,
            policy: "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap(),
            attempt: 1,
            gate: 0,
            def: "0f".repeat(32),
            on: GatedOn::Candidate,
            tree: Some("4b825dc642cb6eb9a060e54bf8d69288fbee4904".parse().unwrap()),
            dirty: Some(3),
            isolation: "none".into(),
            exit: GateExit::Status(0),
            program: Some("a1".repeat(32)),
            argv: vec!["ls".into(), "a file,b".into()],
            ms: 12,
            at: Timestamp::from_ms(1_700_000_000_120),
        }
    }

    #[test]
    fn the_line_is_pinned() {
        let line = "agentproto-gate/1 pass policy=pol_01arz3ndektsv4rrffq69g5fav attempt=1 gate=0 \
            def=0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f on=candidate \
            tree=4b825dc642cb6eb9a060e54bf8d69288fbee4904 dirty=3 isolation=none exit=0 \
            program=a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1 \
            argv=ls%00a%20file%2Cb%00 ms=12 at=2023-11-14T22:13:20.120Z";
        assert_eq!(sample().encode(), line);
        assert_eq!(GateLine::parse(line), Ok(sample()));
    }

    #[test]
    fn unknown_is_written_and_read_as_unknown() {
        let line = GateLine {
            verdict: Verdict::Broken,
            tree: None,
            dirty: None,
            exit: GateExit::NotRun,
            program: None,
            argv: Vec::new(),
            ..sample()
        };
        let text = line.encode();
        assert!(text.contains(" tree=- dirty=- ") && text.contains(" exit=- program=- argv= "));
        assert_eq!(GateLine::parse(&text), Ok(line));
    }

    #[test]
    fn another_spelling_of_the_same_meaning_is_malformed() {
        let good = sample().encode();
        let spellings = [
            ("attempt=1", "attempt=01"),
            ("attempt=1", "attempt=+1"),
            ("attempt=1", "attempt=%31"),
            ("%2C", "%2c"),
            ("%2C", ","),
            ("exit=0", "exit=-0"),
            (".120Z", ".12Z"),
            (".120Z", ".120%2B00:00"),
            ("%00 ms", " ms"),
            ("dirty=3", "dirty="),
            ("tree=4b", "tree=4B"),
            ("def=0f", "def=0F"),
            (" on=", "  on="),
        ];
        for (from, to) in spellings {
            let other = good.replacen(from, to, 1);
            assert_ne!(other, good, "{from}");
            assert!(GateLine::parse(&other).is_err(), "{to}");
        }
        for other in [format!("{good}\n"), format!("{good} "), format!(" {good}"), String::new()] {
            assert!(GateLine::parse(&other).is_err(), "{other:?}");
        }
        let more = GateLine::parse(&format!("{good} x=1"));
        assert_eq!(more, Err(LineError::Trailing("x=1".into())));
    }

    #[test]
    fn a_missing_doubled_or_moved_field_is_malformed() {
        let good = sample().encode();
        let words: Vec<&str> = good.split(' ').collect();
        for at in 0..words.len() {
            let mut missing = words.clone();
            missing.remove(at);
            assert!(GateLine::parse(&missing.join(" ")).is_err(), "without {}", words[at]);
            let mut doubled = words.clone();
            doubled.insert(at, words[at]);
            assert!(GateLine::parse(&doubled.join(" ")).is_err(), "twice {}", words[at]);
            if at + 1 < words.len() {
                let mut moved = words.clone();
                moved.swap(at, at + 1);
                assert!(GateLine::parse(&moved.join(" ")).is_err(), "moved {}", words[at]);
            }
        }
    }

    #[test]
    fn the_digest_separates_lines() {
        assert_eq!(gates_digest([]), hex(&Sha256::digest(b"")));
        assert_eq!(gates_digest(["a", "b"]), hex(&Sha256::digest(b"a\nb\n")));
        assert_ne!(gates_digest(["ab"]), gates_digest(["a", "b"]));
    }

    fn exit() -> impl Strategy<Value = GateExit> {
        prop_oneof![
            any::<i32>().prop_map(GateExit::Status),
            "[A-Z]{3,6}".prop_map(GateExit::Signal),
            Just(GateExit::Timeout),
            Just(GateExit::NotRun),
        ]
    }

    proptest! {
        #[test]
        fn round_trips(
            numbers in (any::<u32>(), any::<u32>(), any::<u64>()),
            dirty in any::<Option<u64>>(),
            exit in exit(),
            argv in prop::collection::vec("[^\0]*", 0..4),
        ) {
            let (attempt, gate, ms) = numbers;
            let line = GateLine { attempt, gate, ms, dirty, exit, argv, ..sample() };
            prop_assert_eq!(GateLine::parse(&line.encode()), Ok(line));
        }

        #[test]
        fn one_changed_byte_never_reads_as_the_same_line(at in 0usize..400, byte in 0x20u8..0x7f) {
            let good = sample().encode();
            let at = at % good.len();
            let mut other = good.clone().into_bytes();
            prop_assume!(other[at] != byte);
            other[at] = byte;
            let other = String::from_utf8(other).unwrap();
            prop_assert_ne!(GateLine::parse(&other).ok(), Some(sample()));
        }
    }
}

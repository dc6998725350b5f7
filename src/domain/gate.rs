//! Gates: what is run, what it said.

use super::path::RepoPath;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use std::collections::BTreeMap;

/// The three outcomes of a gate; broken means it could not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It ran and said yes.
    Pass,
    /// It ran and said no.
    Fail,
    /// It could not say.
    Broken,
}

impl Verdict {
    /// The word used in notes and trailers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Broken => "broken",
        }
    }
}

impl std::str::FromStr for Verdict {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Pass, Self::Fail, Self::Broken].into_iter().find(|v| v.as_str() == text).ok_or(())
    }
}

/// A shell gate as a person typed it: no absolute path, nothing of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateDef {
    /// First word: a name found on the fixed PATH, or `./file` of the gate's worktree.
    pub command: String,
    /// The other words, passed as they are.
    pub args: Vec<String>,
    /// Directory relative to the worktree root; `.` is the root.
    pub cwd: String,
    /// Deadline in milliseconds.
    pub timeout_ms: u64,
    /// A regular expression: without a line of output that it matches, a green exit says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_output: Option<String>,
    /// What must be as on the trusted ref, in gitignore syntax; otherwise the gate could have been made green.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protect: Vec<String>,
    /// Variables it gets, recorded as they are.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// It gets nothing of its caller's environment.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub env_clean: bool,
}

impl GateDef {
    /// All words of the command.
    pub fn argv(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.command.as_str()).chain(self.args.iter().map(String::as_str))
    }

    /// The words as a shell user would write them, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        shell_words::join(self.argv())
    }

    /// The text that `def=` of a gate line hashes: compact JSON with sorted keys (decisions 13).
    #[must_use]
    pub fn canonical(&self) -> String {
        let (text, list) = (json_text, json_list);
        let mut all = format!(
            r#"{{"args":[{}],"command":{},"cwd":{}"#,
            list(&self.args),
            text(&self.command),
            text(&self.cwd)
        );
        // What is not asked for is not named, so that definitions of before keep their hash.
        if !self.env.is_empty() {
            let vars = self.env.iter().map(|(k, v)| format!("{}:{}", text(k), text(v)));
            all += &format!(r#","env":{{{}}}"#, vars.collect::<Vec<_>>().join(","));
        }
        if self.env_clean {
            all += r#","envClean":true"#;
        }
        if !self.protect.is_empty() {
            all += &format!(r#","protect":[{}]"#, list(&self.protect));
        }
        if let Some(wanted) = &self.require_output {
            all += &format!(r#","requireOutput":{}"#, text(wanted));
        }
        all + &format!(r#","timeoutMs":{}}}"#, self.timeout_ms)
    }
}

/// A shell gate: its definition and the program it resolved to when it was attached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShellGate {
    /// As typed.
    #[serde(flatten)]
    pub def: GateDef,
    /// SHA-256 of the program file, lower-case hex.
    pub program: String,
}

/// A scope gate: where the worktree may differ from the commit its session started from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeGate {
    /// In gitignore syntax; the last pattern that matches a path or a directory above it decides.
    pub scope: Vec<String>,
}

/// A gate of a policy. In JSON it is known by its fields: only a scope gate has `scope`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Gate {
    /// Judged by us.
    Scope(ScopeGate),
    /// Judged by a program.
    Shell(ShellGate),
}

/// By hand, so that what is wrong with one kind is told in its own words.
impl<'de> Deserialize<'de> for Gate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let fields = serde_json::Value::deserialize(from)?;
        let read = match fields.get("scope") {
            Some(_) => ScopeGate::deserialize(fields).map(Self::Scope),
            None => ShellGate::deserialize(fields).map(Self::Shell),
        };
        read.map_err(D::Error::custom)
    }
}

impl Gate {
    /// The shell gate, if it is one.
    #[must_use]
    pub fn shell(&self) -> Option<&ShellGate> {
        match self {
            Self::Shell(gate) => Some(gate),
            Self::Scope(_) => None,
        }
    }

    /// The text that `def=` of a gate line hashes.
    #[must_use]
    pub fn canonical(&self) -> String {
        match self {
            Self::Shell(gate) => gate.def.canonical(),
            Self::Scope(gate) => format!(r#"{{"scope":[{}]}}"#, json_list(&gate.scope)),
        }
    }

    /// The words of `argv=` of a gate line: those of the command, or the flags that a person would type.
    #[must_use]
    pub fn words(&self) -> Vec<&str> {
        match self {
            Self::Shell(gate) => gate.def.argv().collect(),
            Self::Scope(gate) => gate.words().collect(),
        }
    }

    /// SHA-256 of its program; none where none is run.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.shell().map(|gate| gate.program.as_str())
    }

    /// The words as a shell user would write them, for people.
    #[must_use]
    pub fn shown(&self) -> String {
        shell_words::join(self.words())
    }
}

impl ScopeGate {
    /// The flags that ask for it.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.scope.iter().flat_map(|pattern| ["--scope", pattern.as_str()])
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn json_list(words: &[String]) -> String {
    words.iter().map(|word| json_text(word)).collect::<Vec<_>>().join(",")
}

/// How the main process of a gate ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GateEnd {
    /// By itself, with this code.
    Exit(i32),
    /// By a signal, named like `SIGSEGV`.
    Signal(String),
    /// At its deadline, killed.
    Timeout,
    /// No program ran: it never came to that, or the gate is none.
    NotRun,
}

/// Where the kept output lies in the local logs; the output itself is never under a ref.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogRef {
    /// SHA-256 of the kept log, lower-case hex: its file name.
    pub sha256: String,
    /// Size of the kept log, bytes.
    pub size_bytes: u64,
}

/// What one gate of one attempt said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateResult {
    /// Position in the policy's list, from 0.
    pub index: usize,
    /// Not a gate of the list, but this commit hook of the repository, which ran before them and refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// Code of what went wrong; absent on pass and on a plain non-zero exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence more than the code says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// How it ended.
    pub end: GateEnd,
    /// Signals sent at the deadline, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<String>,
    /// From start to end, milliseconds.
    pub duration_ms: u64,
    /// The kept output; absent when it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRef>,
    /// Changed or untracked files outside the listed paths while it ran.
    pub unlisted_changes: u64,
    /// The first of them, where a gate of a commit did not pass: they may be why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<RepoPath>,
    /// Processes that outlived its main process, and were killed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_behind: u64,
    /// Its line in the gates note; absent when it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_hashes_as_sorted_compact_json() {
        let def = GateDef {
            command: "ls".into(),
            args: vec!["a \"b\"".into()],
            cwd: ".".into(),
            timeout_ms: 600_000,
            require_output: None,
            protect: vec![],
            env: BTreeMap::new(),
            env_clean: false,
        };
        assert_eq!(
            def.canonical(),
            r#"{"args":["a \"b\""],"command":"ls","cwd":".","timeoutMs":600000}"#
        );
        let (require_output, protect) = (Some("^ok".into()), vec!["/tests/".into(), "!x".into()]);
        let env = [("B", "2"), ("A", "\"")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        assert_eq!(
            GateDef { require_output, protect, env, env_clean: true, ..def }.canonical(),
            r#"{"args":["a \"b\""],"command":"ls","cwd":".","env":{"A":"\"","B":"2"},"envClean":true,"protect":["/tests/","!x"],"requireOutput":"^ok","timeoutMs":600000}"#
        );
    }

    #[test]
    fn kinds_of_gates_are_told_apart_by_their_fields() {
        for text in [
            r#"{"scope":["src/**","!*.lock"]}"#,
            r#"{"command":"ls","args":[],"cwd":".","timeoutMs":1,"program":"a1"}"#,
        ] {
            let gate: Gate = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&gate).unwrap(), text);
        }
        let scope: Gate = serde_json::from_str(r#"{"scope":["a b"]}"#).unwrap();
        assert_eq!((scope.canonical().as_str(), scope.program()), (r#"{"scope":["a b"]}"#, None));
        assert_eq!(scope.shown(), "--scope 'a b'");
        let error = serde_json::from_str::<Gate>(r#"{"command":"ls"}"#).unwrap_err().to_string();
        assert!(error.starts_with("missing field"), "{error}");
    }
}

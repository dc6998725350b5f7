//! A policy in JSON: paths from the worktree's top. Every field is described in `docs/policy-file.md`.
//!
//! Contract: a field this version does not know is an error, never passed over: it could be the one that was to hold
//! something back.

use super::{args, cx::Cx, error::CliError, given, turns::require_retries};
use crate::{
    code::Code,
    domain::policy::{OnEnd, OnFail, OnStale},
    ledger::{AttachAsk, CommitAsk, GateAsk, NextAsk, ShellAsk, TurnsAsk},
    limits,
    sys::clock,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::Value;
use std::{collections::BTreeMap, ffi::OsString, fmt, os::unix::ffi::OsStringExt as _, path::Path};

/// Where the fields are described.
const FIELDS: &str = "every field, with examples: git agentproto help policy-file";

/// The whole of a file.
#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a policy: an object with fields"
)]
struct PolicyForm {
    label: Option<String>,
    session_id: Option<String>,
    session_ids: Option<Vec<String>>,
    gate_session: Option<String>,
    then: Option<ThenForm>,
    gate: Option<GateForm>,
    #[serde(default)]
    gates: Vec<GateForm>,
    #[serde(default)]
    ungated: bool,
    require_output: Option<String>,
    #[serde(default)]
    protect: Vec<String>,
    #[serde(default)]
    gate_env_clean: bool,
    commit: Option<CommitForm>,
    on_stale: Option<OnStale>,
    #[serde(default)]
    on_end: OnEnd,
    on_fail: Option<OnFailForm>,
    #[serde(default)]
    end_session: bool,
    expires: Option<String>,
    since: Option<String>,
    #[serde(default)]
    next_turn: bool,
    next: Option<Box<PolicyForm>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ThenForm {
    Emit,
    Commit,
}

/// One of two kinds, told apart by their fields.
#[derive(Debug)]
enum GateForm {
    Scope(ScopeForm),
    Shell(ShellForm),
}

/// Not `untagged`: that says of no mistake what it is.
impl<'de> Deserialize<'de> for GateForm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let form = Value::deserialize(from)?;
        let read = match form.get("scope") {
            Some(_) => ScopeForm::deserialize(form).map(Self::Scope),
            None => ShellForm::deserialize(form).map(Self::Shell),
        };
        read.map_err(D::Error::custom)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a scope: an object with a list \"scope\"")]
struct ScopeForm {
    scope: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a gate: an object with \"command\" and \"args\", or with \"scope\""
)]
struct ShellForm {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    cwd: Option<String>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    protect: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "what red gates lead to: an object"
)]
struct OnFailForm {
    nudge: Option<String>,
    max_retries: Option<u32>,
    #[serde(default)]
    reprompt: bool,
}

impl OnFailForm {
    fn ask(self, name: &str) -> Result<OnFail, CliError> {
        let max_retries = self.max_retries.unwrap_or(limits::RETRIES_DEFAULT);
        require_retries(&format!("{name}: onFail.maxRetries"), max_retries)?;
        Ok(OnFail { nudge: self.nudge, max_retries, reprompt: self.reprompt })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(
    rename_all = "camelCase",
    deny_unknown_fields,
    expecting = "a commit: an object with \"paths\" and \"message\""
)]
struct CommitForm {
    #[serde(default)]
    paths: Vec<PathForm>,
    #[serde(default)]
    message: String,
    require_human_ack: Option<bool>,
    #[serde(default)]
    allow_markers: bool,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    force_ignored: bool,
    #[serde(default)]
    allow_submodule: bool,
    #[serde(default)]
    detached_ok: bool,
}

/// A name as text, or its bytes where it is none.
#[derive(Debug)]
enum PathForm {
    Text(String),
    Bytes { b64: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BytesForm {
    b64: String,
}

/// Not `untagged`: that passes over fields which are not known.
impl<'de> Deserialize<'de> for PathForm {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PathReader)
    }
}

struct PathReader;

impl<'de> Visitor<'de> for PathReader {
    type Value = PathForm;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path: a text, or {\"b64\": …} where its name is none")
    }

    fn visit_str<E>(self, text: &str) -> Result<PathForm, E> {
        Ok(PathForm::Text(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PathForm, A::Error> {
        let form = BytesForm::deserialize(MapAccessDeserializer::new(map))?;
        Ok(PathForm::Bytes { b64: form.b64 })
    }
}

/// A policy with the sessions it is for, as they were named.
pub(super) struct Described {
    pub(super) ask: AttachAsk,
    pub(super) sessions: Vec<String>,
    pub(super) gate_session: Option<String>,
    pub(super) since: Option<String>,
    pub(super) next_turn: bool,
}

/// The policy in a file, `-` for standard input.
///
/// # Errors
/// It cannot be read, or says what no policy says.
pub(super) fn read(cx: &Cx, option: &str, file: &Path) -> Result<Described, CliError> {
    let text = given::whole(cx, (option, Code::Usage), file, limits::POLICY_FILE_BYTES)?;
    let name = format!("{option} {}", file.display());
    let form: PolicyForm = serde_json::from_slice(&text).map_err(|e| misread(&name, &e))?;
    form.described(&name)
}

/// What is wrong with a file, in words of JSON.
fn misread(name: &str, error: &serde_json::Error) -> CliError {
    let what = error.to_string();
    if error.is_syntax() || error.is_eof() {
        return usage(format!("{name}: it is no JSON: {what}"));
    }
    let code = if what.starts_with("unknown field") { Code::UnknownField } else { Code::Usage };
    CliError::new(code, format!("{name}: {what}")).with_hint(FIELDS)
}

/// The policy in a file that is to follow another one.
///
/// # Errors
/// As [`read`]; it names sessions of its own.
pub(super) fn next(cx: &Cx, file: &Path) -> Result<NextAsk, CliError> {
    read(cx, "--next", file)?.following("--next")
}

impl Described {
    fn following(self, name: &str) -> Result<NextAsk, CliError> {
        let own = !self.sessions.is_empty() || self.gate_session.is_some() || self.since.is_some();
        if own {
            let message = format!(
                "{name}: what follows watches the same sessions from then on: no sessionIds, gateSession or since"
            );
            return Err(usage(message));
        }
        Ok(NextAsk { ask: self.ask, next_turn: self.next_turn })
    }
}

impl PolicyForm {
    fn described(self, name: &str) -> Result<Described, CliError> {
        let commits = match self.then {
            Some(ThenForm::Emit) if self.commit.is_some() => {
                return Err(usage(format!("{name}: \"then\": \"emit\" takes no commit")));
            }
            then => then == Some(ThenForm::Commit) || self.commit.is_some(),
        };
        if self.next_turn && self.since.is_some() {
            return Err(usage(format!("{name}: nextTurn and since contradict each other")));
        }
        let commit = if commits { Some(self.commit.unwrap_or_default().ask(name)?) } else { None };
        let end = |text: String| args::end("expires", &text, clock::now());
        let below = |form: Box<Self>| form.described(name)?.following(name).map(Box::new);
        let ask = AttachAsk {
            label: self.label,
            gates: self.gate.into_iter().chain(self.gates).map(GateForm::ask).collect(),
            gate_cwd: None,
            gate_timeout_ms: None,
            require_output: self.require_output,
            protect: self.protect,
            gate_env: BTreeMap::new(),
            gate_env_clean: self.gate_env_clean,
            ungated: self.ungated,
            commit,
            on_stale: self.on_stale,
            turns: TurnsAsk {
                on_end: self.on_end,
                on_fail: self.on_fail.map(|form| form.ask(name)).transpose()?,
                end_session: self.end_session,
            },
            expires: self.expires.map(end).transpose()?,
            again: None,
            next: self.next.map(below).transpose()?,
        };
        let sessions = self.session_id.into_iter().chain(self.session_ids.unwrap_or_default());
        Ok(Described {
            ask,
            sessions: sessions.collect(),
            gate_session: self.gate_session,
            since: self.since,
            next_turn: self.next_turn,
        })
    }
}

impl GateForm {
    fn ask(self) -> GateAsk {
        let form = match self {
            Self::Scope(form) => return GateAsk::Scope(form.scope),
            Self::Shell(form) => form,
        };
        let argv = std::iter::once(form.command).chain(form.args).collect();
        let (cwd, timeout_ms) = (form.cwd.map(OsString::from), form.timeout_ms);
        let ShellForm { protect, env, .. } = form;
        GateAsk::Shell(ShellAsk { argv, cwd, timeout_ms, protect, env })
    }
}

impl CommitForm {
    fn ask(self, name: &str) -> Result<CommitAsk, CliError> {
        let paths = self.paths.into_iter().map(|path| match path {
            PathForm::Text(text) => Ok(text.into()),
            PathForm::Bytes { b64 } => BASE64_STANDARD
                .decode(&b64)
                .map(OsString::from_vec)
                .map_err(|e| usage(format!("{name}: b64 of a path: {e}"))),
        });
        Ok(CommitAsk {
            paths: paths.collect::<Result<_, _>>()?,
            from_top: true,
            message: self.message.into_bytes(),
            no_ack: self.require_human_ack == Some(false),
            allow_markers: self.allow_markers,
            recursive: self.recursive,
            force_ignored: self.force_ignored,
            allow_submodule: self.allow_submodule,
            detached_ok: self.detached_ok,
        })
    }
}

fn usage(message: String) -> CliError {
    CliError::new(Code::Usage, message).with_hint(FIELDS)
}

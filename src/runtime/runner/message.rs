//! What owner and runner say to each other: one line of JSON each way.
//!
//! Private to one version of the binary, hence without a format version: a runner is always the very
//! program that started it. OS strings and output are bytes, written as base64.

use super::{Ran, RunSpec};
use crate::runtime::live::Record;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Owner to runner.
#[derive(Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) live: LiveRef,
    spec: WireSpec,
}

/// The live file: the runner completes its record.
#[derive(Serialize, Deserialize)]
pub(super) struct LiveRef {
    path: Raw,
    /// Number of the inherited descriptor that holds the lock.
    pub(super) fd: i32,
    pub(super) record: Record,
}

/// Runner to owner.
#[derive(Serialize, Deserialize)]
pub(super) enum Reply {
    /// The program ran, or could not be started; either way it is over.
    Ran(Box<Ran>),
    /// The runner could not do its work.
    Failed(String),
}

#[derive(Serialize, Deserialize)]
struct WireSpec {
    effect: String,
    program: Raw,
    args: Vec<Raw>,
    cwd: Raw,
    env: Vec<(Raw, Raw)>,
    timeout_ms: u64,
    stdin: Raw,
    ring: Option<Raw>,
}

impl Request {
    pub(super) fn new(spec: &RunSpec, live: LiveRef) -> Self {
        let env = spec.env.iter().map(|(k, v)| (Raw::new(k), Raw::new(v)));
        let spec = WireSpec {
            effect: spec.effect.clone(),
            program: Raw::new(spec.program.as_os_str()),
            args: spec.args.iter().map(|a| Raw::new(a)).collect(),
            cwd: Raw::new(spec.cwd.as_os_str()),
            env: env.collect(),
            timeout_ms: spec.timeout_ms,
            stdin: Raw(spec.stdin.clone()),
            ring: spec.ring.as_ref().map(|ring| Raw::new(ring.as_os_str())),
        };
        Self { live, spec }
    }

    pub(super) fn into_parts(self) -> (RunSpec, LiveRef) {
        let WireSpec { effect, program, args, cwd, env, timeout_ms, stdin, ring } = self.spec;
        let spec = RunSpec {
            effect,
            program: PathBuf::from(program.into_os()),
            args: args.into_iter().map(Raw::into_os).collect(),
            cwd: PathBuf::from(cwd.into_os()),
            env: env.into_iter().map(|(k, v)| (k.into_os(), v.into_os())).collect(),
            timeout_ms,
            stdin: stdin.0,
            ring: ring.map(|ring| PathBuf::from(ring.into_os())),
        };
        (spec, self.live)
    }
}

impl LiveRef {
    pub(super) fn new(path: &Path, fd: i32, record: Record) -> Self {
        Self { path: Raw::new(path.as_os_str()), fd, record }
    }

    pub(super) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path.0))
    }
}

/// Bytes that are base64 in JSON.
pub(super) struct Raw(pub(super) Vec<u8>);

impl Raw {
    fn new(text: &OsStr) -> Self {
        Self(text.as_bytes().to_vec())
    }

    fn into_os(self) -> OsString {
        OsString::from_vec(self.0)
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        STANDARD.decode(String::deserialize(d)?).map(Self).map_err(D::Error::custom)
    }
}

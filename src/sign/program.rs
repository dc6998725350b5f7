//! The program that signs with keys whose private half is not ours to read: `ssh-keygen -Y sign`, or what a person put in
//! its place.
//!
//! Contract: called as git calls it. It is the one that `gpg.ssh.program` of system or global scope names, else
//! `ssh-keygen` of `PATH`; never one of the repository, and never for checking a signature. It asks at the terminal when a person is there, or
//! nowhere, and not for ever.

use super::{
    NAMESPACE,
    key::{Named, SigningKey, public_words},
};
use crate::{
    code::Code,
    domain::path::quoted,
    limits,
    store::{
        git::find_program,
        settings::{SettingsError, expand_path, user_scope},
    },
    sys::{
        env::Env,
        files::{self, FileError, Scratch},
        spawn::{self, Call, Presence, SpawnError},
    },
};
use ssh_key::SshSig;
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

/// The setting that names it.
const SETTING: &str = "gpg.ssh.program";
const DEFAULT: &str = "ssh-keygen";

/// The program did not sign.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The setting cannot be read.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// There is none.
    #[error("there is no {0} in an absolute directory of PATH outside the worktree")]
    None(String),
    /// What it is given cannot be written, or what it made not read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It could not be run to its end: nobody answered it in time, say.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// It said yes, and what it made is no signature.
    #[error("{program} made no ssh signature but {made}")]
    Garbage {
        /// The program.
        program: PathBuf,
        /// What it made, cut.
        made: String,
    },
}

impl ProgramError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Settings(e) => e.code(),
            Self::File(_) => Code::Io,
            Self::Garbage { .. } => Code::SigningFailed,
            Self::None(_) | Self::Spawn(_) | Self::Refused(_) => Code::SigningNeedsPerson,
        }
    }
}

/// Where and how it is called.
#[derive(Debug)]
pub struct Program<'a> {
    /// The repository whose person's settings count.
    pub repo: &'a gix::Repository,
    /// The caller's environment, the agent's socket included.
    pub env: &'a Env,
    /// Directories that hold nothing to be run: worktree and git directory.
    pub outside: &'a [&'a Path],
    /// A directory for what it is given; used up.
    pub dir: &'a Path,
    /// Whether somebody can be asked.
    pub presence: Presence,
}

/// The beginning of what should have been a signature.
fn cut(made: &[u8]) -> String {
    match made.get(..limits::SHOWN_GARBAGE_BYTES) {
        None if made.is_empty() => "nothing".to_owned(),
        None => quoted(made),
        Some(begin) => format!("{}… ({} bytes)", quoted(begin), made.len()),
    }
}

impl Program<'_> {
    /// The signature over `payload`.
    pub(super) fn sign(&self, key: &SigningKey, payload: &[u8]) -> Result<SshSig, ProgramError> {
        let desk = Scratch::make(self.dir)?;
        let file = desk.path().join("ack");
        files::write_private(&file, payload)?;
        let (program, quiet) = self.find()?;
        let mut args: Vec<OsString> = quiet.into_iter().map(Into::into).collect();
        args.extend(["-Y", "sign", "-n", NAMESPACE, "-f"].map(OsString::from));
        match key.named() {
            Named::File(path) => args.push(path.into()),
            Named::Literal => {
                let public = desk.path().join("key.pub");
                let words =
                    public_words(key.public()).map_err(|e| ProgramError::Refused(e.to_string()))?;
                files::write_private(&public, format!("{words}\n").as_bytes())?;
                args.extend([public.into(), "-U".into()]);
            }
        }
        args.push(file.clone().into());
        let call = Call {
            program: program.clone(),
            args,
            cwd: desk.path().to_owned(),
            env: self.env.vars().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
            stdin: vec![],
            deadline_ms: 0,
        };
        let done = spawn::run_asking(call, self.presence)?;
        if !done.status.success() {
            let said = done.last_words().unwrap_or_else(|| "it was not signed".to_owned());
            return Err(ProgramError::Refused(said));
        }
        let made = files::read_optional(&desk.path().join("ack.sig"), limits::SMALL_FILE_BYTES)?;
        let made = made.unwrap_or(done.stdout);
        SshSig::from_pem(&made).map_err(|_| ProgramError::Garbage { program, made: cut(&made) })
    }

    /// The program, and the flag that keeps it from telling where our files are.
    fn find(&self) -> Result<(PathBuf, Option<&'static str>), ProgramError> {
        let set = user_scope(self.repo, SETTING)?.filter(|name| !name.is_empty());
        let quiet = set.is_none().then_some("-q");
        let name = set.unwrap_or_else(|| DEFAULT.to_owned());
        if !name.contains('/') {
            let found = find_program(self.env, self.outside, &name);
            return Ok((found.ok_or(ProgramError::None(name))?, quiet));
        }
        Ok((expand_path(self.env, SETTING, &name)?, quiet))
    }
}

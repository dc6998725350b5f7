//! Agents that we start: what is asked for, recorded; where their programs lie, on this machine alone.
//!
//! Contract: under a ref goes what a person typed. The absolute path of the program and values of its environment are
//! written into `agentproto/local/<session>.json`, readable by its owner only; where that is gone the program is looked for
//! again, and the values are missing, which is said.

use super::{AttachAsk, Ledger, LedgerError, Recording, adopt::require_label, load};
use crate::{
    code::Code,
    domain::{
        event::SessionStarted,
        ids::{PolicyId, SessionId},
        input::{AgentEnd, Input, WhenBusy},
        session::{Adapter, Launch, Prompt, Session},
    },
    limits,
    store::Snapshot,
    sys::{clock, files},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    os::unix::{
        ffi::{OsStrExt as _, OsStringExt as _},
        fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

/// An agent to be started, as it was typed.
#[derive(Clone, Debug)]
pub struct StartAsk {
    /// The name a person gives the session.
    pub label: Option<String>,
    /// Where the agent works, absolute.
    pub cwd: PathBuf,
    /// The revision it starts from; `HEAD` of the worktree when absent.
    pub base: Option<String>,
    /// Its words.
    pub argv: Vec<String>,
    /// What it is told first.
    pub prompt: Option<String>,
    /// It takes further prompts after a run that ended well.
    pub reprompt: bool,
    /// Variables beside those of the caller.
    pub env: Vec<(OsString, OsString)>,
}

/// Where an agent's program lies on this machine, and what it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlace {
    /// Absolute.
    pub program: PathBuf,
    /// Variables beside those of whoever runs it.
    pub env: Vec<(OsString, OsString)>,
}

#[derive(Serialize, Deserialize)]
struct PlaceForm {
    program: String,
    #[serde(default)]
    env: Vec<(String, String)>,
}

impl Ledger {
    /// Records an agent that is to be started, and a policy on it.
    ///
    /// # Errors
    /// Another agent is at work in the worktree, the program is nowhere, something is no directory, revision or label; for
    /// a policy as [`Ledger::attach`]. Nothing was recorded then.
    pub fn start(
        &self,
        ask: &StartAsk,
        policy: Option<&AttachAsk>,
    ) -> Result<(SessionId, Option<PolicyId>, Recording), LedgerError> {
        require_label(ask.label.as_deref())?;
        check_words(ask)?;
        let (worktree, cwd) = self.place(&ask.cwd)?;
        let base = self.base(&worktree, ask.base.as_deref())?;
        let dirty_base = self.is_dirty_base(&worktree, ask.base.as_deref())?;
        let program = self.find_agent(&ask.argv)?;
        let (adapter, argv, reprompt) = (Adapter::Process, ask.argv.clone(), ask.reprompt);
        let launch = Some(Launch { adapter, argv, reprompt });
        let (label, id) = (ask.label.clone(), worktree.id.clone());
        let (worktree_id, own) = (id.clone(), false);
        let started =
            SessionStarted { label, worktree: worktree_id, cwd, base, dirty_base, own, launch };
        let session = clock::new_session_id();
        let made = match policy {
            Some(asked) => {
                Some(self.policy_of_start(&session, (&worktree, base, dirty_base), asked)?)
            }
            None => None,
        };
        self.keep_place(&session, &LaunchPlace { program, env: ask.env.clone() })?;
        let prompt = ask.prompt.clone().map(Prompt::Text);
        let policy = made.as_ref().map(|(id, _, _)| id.clone());
        let spec = made.as_ref().map(|(id, spec, _)| (id.clone(), spec.clone()));
        let recorded = self.record_with(&[], vec![], |view| {
            let busy = busy(view.snapshot, &id)?;
            let session = session.clone();
            Ok(Input::SessionLaunched { session, started, prompt, busy, policy: spec })
        });
        if recorded.is_err() {
            // Nothing is started, so nobody asks where its program lies.
            let _ = files::remove_optional(&self.place_file(&session));
        }
        let recording = recorded?;
        if let Some((_, _, programs)) = &made {
            self.keep_all(programs);
        }
        Ok((session, policy, recording))
    }

    /// Records that its next turn begins. To be called by who holds the agent.
    ///
    /// # Errors
    /// No turn is due; the journal cannot be written.
    pub fn begin_turn(&self, session: &SessionId) -> Result<Session, LedgerError> {
        self.record(Input::TurnBegun { session: session.clone() })?;
        self.require_session(session)
    }

    /// Records how a run ended.
    ///
    /// # Errors
    /// That turn does not run; the journal cannot be written.
    pub fn run_ended(&self, session: &Session, end: AgentEnd) -> Result<Recording, LedgerError> {
        let (id, turn) = (session.session_id.clone(), session.turn);
        self.record(Input::RunEnded { session: id, turn, end })
    }

    /// Records what a session is to be told.
    ///
    /// # Errors
    /// It takes no prompts, or not now; the journal cannot be written.
    pub fn prompt(
        &self,
        session: &SessionId,
        text: String,
        when_busy: WhenBusy,
        key: Option<String>,
    ) -> Result<Recording, LedgerError> {
        require_prompt(&text)?;
        self.record(Input::PromptAsked { session: session.clone(), text, when_busy, key })
    }

    /// Records that a session is to end.
    ///
    /// # Errors
    /// It is not ours, or over; the journal cannot be written.
    pub fn stop(
        &self,
        session: &SessionId,
        because: Option<String>,
    ) -> Result<Recording, LedgerError> {
        self.record(Input::StopAsked { session: session.clone(), because })
    }

    /// Where the program of an agent lies; looked for again when nobody knows any more.
    ///
    /// # Errors
    /// It is nowhere, or what is written down cannot be read.
    pub fn launch_place(&self, session: &Session) -> Result<LaunchPlace, LedgerError> {
        let path = self.place_file(&session.session_id);
        let bytes = files::read_own(&path, limits::SMALL_FILE_BYTES).map_err(|e| {
            LedgerError::refused(e.code(), &path.display().to_string(), e.to_string())
        })?;
        let form = bytes.and_then(|bytes| serde_json::from_slice::<PlaceForm>(&bytes).ok());
        if let Some(place) = form.and_then(PlaceForm::read) {
            return Ok(place);
        }
        self.store.said().add(format!(
            "warning: where the program of {} lies is not known here any more: it is looked for again, without variables \
             that were given with --env",
            session.session_id
        ));
        let argv = session.launch.as_ref().map(|l| l.argv.as_slice()).unwrap_or_default();
        Ok(LaunchPlace { program: self.find_agent(argv)?, env: vec![] })
    }

    /// Forgets where the programs of agents lie whose session is over, and what they were given. What cannot be told stays.
    pub fn forget_places(&self) {
        let local = self.store.location().agent_dir().join("local");
        for name in files::names(&local).unwrap_or_default() {
            let id = name.to_str().and_then(|name| name.strip_suffix(".json")?.parse().ok());
            let session = id.and_then(|id| self.session(&id).ok().flatten());
            if session.is_some_and(|session| session.is_exited()) {
                let _ = files::remove_optional(&local.join(&name));
            }
        }
    }

    fn place_file(&self, session: &SessionId) -> PathBuf {
        self.store.location().agent_dir().join("local").join(format!("{session}.json"))
    }

    fn keep_place(&self, session: &SessionId, place: &LaunchPlace) -> Result<(), LedgerError> {
        let path = self.place_file(session);
        let text = |bytes: &std::ffi::OsStr| BASE64_STANDARD.encode(bytes.as_bytes());
        let form = PlaceForm {
            program: text(place.program.as_os_str()),
            env: place.env.iter().map(|(name, value)| (text(name), text(value))).collect(),
        };
        let failed = |why: String| LedgerError::refused(Code::Io, &path.display().to_string(), why);
        let bytes = serde_json::to_vec(&form).map_err(|e| failed(e.to_string()))?;
        files::write_private(&path, &bytes).map_err(|e| failed(e.to_string()))
    }

    /// The program of an agent: of a path that file, of a name the first on the caller's own PATH. A person starts it, so no
    /// allowlist is asked.
    fn find_agent(&self, argv: &[String]) -> Result<PathBuf, LedgerError> {
        let name = argv.first().map(String::as_str).unwrap_or_default();
        let refused =
            |why: String| LedgerError::refused(Code::AgentNotFound, &format!("'{name}'"), why);
        if name.contains('/') {
            let path = self.env.cwd().join(name);
            let real = files::real(&path).map_err(|e| refused(e.source.to_string()))?;
            return if is_program(&real) {
                Ok(path)
            } else {
                Err(refused("it is no program".to_owned()))
            };
        }
        let path = self.env.get("PATH").unwrap_or_default();
        let found = std::env::split_paths(path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(name))
            .find(|file| is_program(file));
        found.ok_or_else(|| refused("no directory of PATH holds such a program".to_owned()))
    }
}

impl PlaceForm {
    fn read(self) -> Option<LaunchPlace> {
        let os = |text: &str| BASE64_STANDARD.decode(text).ok().map(OsString::from_vec);
        let env = self.env.iter().map(|(name, value)| Some((os(name)?, os(value)?)));
        Some(LaunchPlace { program: os(&self.program)?.into(), env: env.collect::<Option<_>>()? })
    }
}

fn is_program(path: &Path) -> bool {
    let meta = files::look_through(path).ok().flatten();
    meta.is_some_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
}

/// What may be said to an agent at once.
///
/// # Errors
/// It is nothing, or too much.
fn require_prompt(text: &str) -> Result<(), LedgerError> {
    let refused = |code, why: String| Err(LedgerError::refused(code, "the prompt", why));
    if text.trim().is_empty() {
        return refused(Code::Usage, "it says nothing".to_owned());
    }
    if text.contains('\0') {
        return refused(
            Code::Usage,
            "it holds a NUL byte, which no program can be given".to_owned(),
        );
    }
    let most = limits::PROMPT_BYTES;
    if text.len() > most {
        return refused(
            Code::TooMany,
            format!("{} bytes, at most {most} are accepted", text.len()),
        );
    }
    Ok(())
}

fn check_words(ask: &StartAsk) -> Result<(), LedgerError> {
    let refused = |code, why: &str| Err(LedgerError::refused(code, "the agent", why));
    if ask.argv.first().is_none_or(String::is_empty) {
        return refused(Code::Usage, "no command is named");
    }
    if ask.argv.iter().any(|word| word.contains('\0')) {
        return refused(Code::Usage, "a word holds a NUL byte, which no program can be given");
    }
    if ask.argv.iter().map(String::len).sum::<usize>() > limits::AGENT_ARGV_BYTES {
        return refused(Code::TooMany, "its words are too long");
    }
    ask.prompt.as_deref().map_or(Ok(()), require_prompt)
}

/// Living sessions of a worktree in which an agent is at work, as the journal says it under the lock. What `commit` made
/// for itself is nobody's.
fn busy(snapshot: &Snapshot<'_>, worktree: &str) -> Result<Vec<SessionId>, LedgerError> {
    let mut busy = Vec::new();
    for (path, bytes) in snapshot.documents("open")? {
        let name = path.rsplit('/').next().unwrap_or_default();
        if !name.starts_with(SessionId::PREFIX) {
            continue;
        }
        let session = load::decode::<Session>(&path, &bytes)?.value;
        if session.worktree == worktree && !session.is_exited() && !session.own {
            busy.push(session.session_id);
        }
    }
    Ok(busy)
}

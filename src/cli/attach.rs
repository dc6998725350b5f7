//! `attach SESSION [flags] [-- GATE…]`: what happens when the session's turn ends.

use super::{
    answer, args,
    cx::Cx,
    error::CliError,
    first_steps, given,
    policy::show_text,
    policy_file::{self, Described},
    settle::{settle, tell},
    turns::{SessionFlags, TurnFlags},
    warn,
};
use crate::{
    code::{Code, exit},
    domain::{
        ids::PolicyId,
        input::Covers,
        policy::{OnStale, Status},
    },
    ledger::{AttachAsk, CommitAsk, GateAsk, GroupAsk, Ledger, Recording, TurnsAsk},
    runtime::perform::is_due,
    sys::clock,
};
use std::{ffi::OsString, path::PathBuf};

/// Both commands with gates say where the gate stands.
pub(super) const USAGE: &str = "git agentproto attach SESSION... [OPTIONS] [-- GATE...]";

/// What a file says in place of flags.
const FLAGS: [&str; 32] = [
    "gate_session",
    "then",
    "scope",
    "gates",
    "gate_cwd",
    "gate_timeout",
    "require_output",
    "protect",
    "gate_env",
    "gate_env_clean",
    "ungated",
    "words",
    "paths",
    "paths_from",
    "recursive",
    "force_ignored",
    "allow_submodule",
    "messages",
    "file",
    "no_ack",
    "allow_markers",
    "next_turn",
    "since",
    "label",
    "on_stale",
    "on_end",
    "nudge",
    "max_retries",
    "reprompt",
    "end_session",
    "expires",
    "next",
];

/// The policy flags, as typed.
#[derive(clap::Args)]
pub(super) struct AttachArgs {
    /// Ids, unique prefixes of them, or labels; gated when all of them are finished
    #[arg(value_name = "SESSION", required_unless_present = "policy_file")]
    sessions: Vec<String>,
    /// The whole policy, in JSON, in place of the flags (- is standard input)
    #[arg(long = "file", value_name = "FILE", conflicts_with_all = FLAGS)]
    policy_file: Option<PathBuf>,
    /// In whose worktree the gates run [default: that of the first]
    #[arg(long, value_name = "SESSION")]
    gate_session: Option<String>,
    /// What green gates lead to [default: commit with any commit flag, else emit]
    #[arg(long, value_enum, value_name = "emit|commit", hide_possible_values = true)]
    then: Option<ThenArg>,
    #[command(flatten)]
    gates: GateArgs,
    #[command(flatten)]
    commit: CommitFlags,
    /// Cover only turns that end from now on
    #[arg(long, conflicts_with = "since")]
    next_turn: bool,
    /// Cover what ended after this position of the journal
    #[arg(long, value_name = "CURSOR")]
    since: Option<String>,
    #[command(flatten)]
    turns: TurnFlags,
    #[command(flatten)]
    ends: SessionFlags,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    waits: WaitFlag,
}

/// What green gates lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ThenArg {
    Emit,
    Commit,
}

/// What becomes of a candidate whose branch moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnStaleArg {
    Regate,
    Block,
}

impl From<OnStaleArg> for OnStale {
    fn from(arg: OnStaleArg) -> Self {
        match arg {
            OnStaleArg::Regate => Self::Regate,
            OnStaleArg::Block => Self::Block,
        }
    }
}

/// Gates, where the words after `--` are one.
#[derive(clap::Args)]
pub(super) struct GateArgs {
    #[command(flatten)]
    flags: GateFlags,
    /// The gate: a program and its arguments, run without a shell
    #[arg(last = true, value_name = "GATE")]
    words: Vec<String>,
}

impl GateArgs {
    /// Gates where the words after `--` are something else.
    pub(super) fn without_words(flags: GateFlags) -> Self {
        Self { flags, words: vec![] }
    }
}

/// Flags of gates.
#[derive(clap::Args)]
pub(super) struct GateFlags {
    /// Where files may differ from the commit the session started from, in gitignore syntax; may repeat; judged first
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    scope: Vec<String>,
    /// A gate in one word, split like a shell would; may repeat: they run in this order
    #[arg(long = "gate", value_name = "'CMD ARGS'", allow_hyphen_values = true)]
    gates: Vec<String>,
    /// Directory the gates run in, relative to the worktree
    #[arg(long, value_name = "DIR")]
    gate_cwd: Option<OsString>,
    /// Deadline of each gate, at most 24h [default: 10m]
    #[arg(long, value_name = "DURATION")]
    gate_timeout: Option<String>,
    /// Only a gate that prints a line matching REGEX is green
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    require_output: Option<String>,
    /// What must be as on the trusted ref, in gitignore syntax; may repeat
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    protect: Vec<String>,
    /// A variable that gates get, recorded as it is; may repeat
    #[arg(long, value_name = "NAME=VALUE")]
    gate_env: Vec<String>,
    /// Gates get nothing of the environment they are started from but PATH
    #[arg(long)]
    gate_env_clean: bool,
    /// A commit without a gate; verify says so
    #[arg(long)]
    ungated: bool,
}

/// Flags of a governed commit.
#[derive(clap::Args)]
pub(super) struct CommitFlags {
    /// A file to commit, literally; may repeat
    #[arg(long = "path", value_name = "PATH", allow_hyphen_values = true)]
    paths: Vec<OsString>,
    /// Read paths to commit from FILE, one a line, quoted as git quotes them (- is standard input)
    #[arg(long, value_name = "FILE")]
    paths_from: Option<PathBuf>,
    /// In that file each path ends in a NUL byte and nothing is quoted
    #[arg(short = 'z', long, requires = "paths_from")]
    nul: bool,
    /// A directory stands for what git add would add of it now
    #[arg(long)]
    recursive: bool,
    /// Files that an ignore rule covers are meant
    #[arg(long)]
    force_ignored: bool,
    /// Submodules that .gitmodules declares are meant: the commit each is on
    #[arg(long)]
    allow_submodule: bool,
    /// A HEAD that is on no branch is meant: it moves itself
    #[arg(long)]
    detached_ok: bool,
    /// The commit message; a second one is its next paragraph
    #[arg(short, long = "message", value_name = "MSG", allow_hyphen_values = true)]
    messages: Vec<OsString>,
    /// Read the commit message from FILE (- is standard input)
    #[arg(short = 'F', long = "message-file", value_name = "FILE", conflicts_with = "messages")]
    file: Option<PathBuf>,
    /// Land without an ack, where your own configuration allows it
    #[arg(long)]
    no_ack: bool,
    /// Conflict markers in the files are meant
    #[arg(long)]
    allow_markers: bool,
}

/// Flags of everything that makes a policy.
#[derive(clap::Args)]
pub(super) struct CommonFlags {
    /// A name for the policy
    #[arg(long, value_name = "LABEL")]
    pub(super) label: Option<String>,
    /// When the branch moved before the commit landed: gate and ask again, or end [default: regate]
    #[arg(long, value_enum, value_name = "regate|block", hide_possible_values = true)]
    on_stale: Option<OnStaleArg>,
    /// When it ends by itself: a duration from now, or an RFC 3339 time [default: never]
    #[arg(long, value_name = "WHEN")]
    expires: Option<String>,
    /// Attach the policy in FILE, in JSON, to the same sessions when this one is done (- is standard input)
    #[arg(long, value_name = "FILE")]
    next: Option<PathBuf>,
}

/// Whether the command stays.
#[derive(clap::Args)]
pub(super) struct WaitFlag {
    /// Return at once; a process of its own goes on
    #[arg(long)]
    pub(super) no_wait: bool,
}

pub(super) fn run(cx: &Cx, args: AttachArgs) -> Result<u8, CliError> {
    let no_wait = args.waits.no_wait;
    let Described { ask, sessions, gate_session, since, next_turn } = args.described(cx)?;
    let since = since.map(|text| args::since(&text, clock::now())).transpose()?;
    let ledger = cx.ledger()?;
    let members =
        sessions.iter().map(|text| ledger.find_session(text)).collect::<Result<Vec<_>, _>>()?;
    let gate_session = gate_session.map(|text| ledger.find_session(&text)).transpose()?;
    let covers = match since {
        Some(since) => Covers::After(ledger.position(&since)?),
        None if next_turn => Covers::Next,
        None => Covers::LastAndNext,
    };
    first_steps::offer(cx, &ledger, &ask, gate_session.as_ref().or(members.first()))?;
    let group = GroupAsk { members, gate_session, covers };
    let attached = ledger.attach(&group, &ask)?;
    tell_attached(cx, &ledger, (&attached, covers == Covers::LastAndNext), no_wait)
}

/// Performs what is due for a policy that was just attached, and says what came of it.
pub(super) fn tell_attached(
    cx: &Cx,
    ledger: &Ledger,
    ((id, recording), may_surprise): (&(PolicyId, Recording), bool),
    no_wait: bool,
) -> Result<u8, CliError> {
    let notices = warn::of_policy(cx, ledger, id, &recording.left_out);
    let due = recording.state.policies.get(id).is_some_and(is_due);
    let held = if due { settle(cx, ledger, id, no_wait) } else { None };
    if may_surprise && held.is_none() {
        tell_if_judged(cx, recording, id, no_wait);
    }
    let policy = ledger.require_policy(id)?;
    let mut answer = answer::policy(cx, ledger, &policy)?;
    tell(&mut answer, held.as_ref());
    warn::tell(&mut answer, &notices);
    cx.answer(&answer, &show_text(cx, ledger, &policy)?)?;
    Ok(exit::DONE)
}

/// Says that the last turn is what counted, where whoever attached may have meant the next one.
fn tell_if_judged(cx: &Cx, recording: &Recording, id: &PolicyId, no_wait: bool) {
    let state = &recording.state;
    let Some(policy) = state.policies.get(id).filter(|p| p.status != Status::Watching) else {
        return;
    };
    let is = if no_wait { "is judged" } else { "was judged" };
    let what = match policy.spec.session_ids.as_slice() {
        [session] => match state.sessions.get(session) {
            Some(session) => format!("turn {} had ended already and {is}", session.turn),
            None => return,
        },
        _ => format!("all of them had ended a turn already, which {is}"),
    };
    cx.say(&format!("{what}; --next-turn waits for the next one"));
}

impl AttachArgs {
    /// The policy that the flags, or a file, describe.
    fn described(self, cx: &Cx) -> Result<Described, CliError> {
        if let Some(file) = &self.policy_file {
            let mut described = policy_file::read(cx, "--file", file)?;
            match (described.sessions.is_empty(), self.sessions.is_empty()) {
                (true, true) => {
                    let message = "neither the file nor the command line names a session";
                    return Err(CliError::new(Code::Usage, message));
                }
                (false, false) => {
                    let message = "both the file and the command line name sessions";
                    return Err(CliError::new(Code::Usage, message));
                }
                (true, false) => described.sessions = self.sessions,
                (false, true) => {}
            }
            return Ok(described);
        }
        let wants_commit = self.wants_commit()?;
        Ok(Described {
            ask: AttachAsk {
                turns: self.turns.ask(&self.ends)?,
                ..ask(cx, self.gates, self.commit, (&self.common, wants_commit))?
            },
            sessions: self.sessions,
            gate_session: self.gate_session,
            since: self.since,
            next_turn: self.next_turn,
        })
    }

    /// Whether a governed commit is meant.
    fn wants_commit(&self) -> Result<bool, CliError> {
        match self.then {
            Some(ThenArg::Commit) => Ok(true),
            Some(ThenArg::Emit) if self.commit.is_any() => {
                let message = "--then emit takes no flags of a commit";
                Err(CliError::new(Code::Usage, message).with_hint("leave out --then emit"))
            }
            Some(ThenArg::Emit) => Ok(false),
            None => Ok(self.commit.is_any()),
        }
    }
}

/// What the flags mean.
pub(super) fn ask(
    cx: &Cx,
    gates: GateArgs,
    commit: CommitFlags,
    (common, wants_commit): (&CommonFlags, bool),
) -> Result<AttachAsk, CliError> {
    let GateArgs { flags: gates, words } = gates;
    args::require_program_word(cx, "…", &words, gates.gate_cwd.as_deref())?;
    let (timeout, expires) = (gates.gate_timeout.as_deref(), common.expires.as_deref());
    Ok(AttachAsk {
        label: common.label.clone(),
        gate_timeout_ms: timeout.map(|t| args::duration_ms("--gate-timeout", t)).transpose()?,
        require_output: gates.require_output,
        protect: gates.protect,
        gate_env: args::variables("--gate-env", &gates.gate_env)?,
        gate_env_clean: gates.gate_env_clean,
        ungated: gates.ungated,
        gate_cwd: gates.gate_cwd,
        gates: gate_asks(gates.scope, &gates.gates, words)?,
        commit: if wants_commit { Some(commit.ask(cx)?) } else { None },
        on_stale: common.on_stale.map(OnStale::from),
        turns: TurnsAsk::default(),
        expires: expires.map(|text| args::end("--expires", text, clock::now())).transpose()?,
        again: None,
        next: common
            .next
            .as_ref()
            .map(|file| policy_file::next(cx, file))
            .transpose()?
            .map(Box::new),
    })
}

/// Gates run in the order given, the scope before all others, those in one word before the one after `--`.
fn gate_asks(
    scope: Vec<String>,
    in_one_word: &[String],
    last: Vec<String>,
) -> Result<Vec<GateAsk>, CliError> {
    let mut all = Vec::new();
    if !scope.is_empty() {
        all.push(GateAsk::Scope(scope));
    }
    for text in in_one_word {
        args::require_no_shell("--gate", text)?;
        all.push(GateAsk::of(args::command_words("--gate", text)?));
    }
    if !last.is_empty() {
        all.push(GateAsk::of(last));
    }
    Ok(all)
}

impl CommitFlags {
    pub(super) fn is_any(&self) -> bool {
        !self.paths.is_empty()
            || !self.messages.is_empty()
            || self.file.is_some()
            || self.no_ack
            || self.allow_markers
            || self.paths_from.is_some()
            || self.recursive
            || self.force_ignored
            || self.allow_submodule
            || self.detached_ok
    }

    /// What the flags mean. A message that is missing is an empty one: the ledger tells all problems at once.
    pub(super) fn ask(self, cx: &Cx) -> Result<CommitAsk, CliError> {
        if given::is_stdin(self.file.as_ref()) && given::is_stdin(self.paths_from.as_ref()) {
            let message = "-F - and --paths-from - both read standard input";
            return Err(
                CliError::new(Code::Usage, message).with_hint("name a file for one of them")
            );
        }
        let message = match &self.file {
            Some(file) => given::message(cx, file)?,
            None => paragraphs(&self.messages),
        };
        let mut paths = self.paths;
        if let Some(file) = &self.paths_from {
            paths.extend(given::paths(cx, file, self.nul)?);
        }
        Ok(CommitAsk {
            paths,
            from_top: false,
            message,
            no_ack: self.no_ack,
            allow_markers: self.allow_markers,
            recursive: self.recursive,
            force_ignored: self.force_ignored,
            allow_submodule: self.allow_submodule,
            detached_ok: self.detached_ok,
        })
    }
}

/// Several `-m` are paragraphs, as for `git commit`.
fn paragraphs(messages: &[OsString]) -> Vec<u8> {
    let parts: Vec<&[u8]> = messages.iter().map(|m| m.as_encoded_bytes()).collect();
    parts.join(b"\n\n".as_slice())
}

//! `exec SESSION -- CMD…`: an allowed command in a session's worktree, with the caller's streams, recorded as done.

use super::{args, cx::Cx, error::CliError, session::report_answer};
use crate::{
    code::{Code, exit},
    domain::{
        event::Kind,
        ids::SessionId,
        input::{Input, Report},
    },
    ledger::{Ledger, Runnable},
    limits,
    runtime::{
        gate::environment::{Asked, GateVars, gate_env},
        runner::{Ended, InPlace, run_in_place},
    },
    sys::{process, spawn::Call},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, ffi::OsStr};

/// Where the command stands.
pub(super) const USAGE: &str = "git agentproto exec SESSION [OPTIONS] -- CMD...";
/// What shells add to the number of a signal.
const SIGNALS_FROM: i32 = 128;

/// A command, as typed.
#[derive(clap::Args)]
pub(super) struct ExecArgs {
    /// Id, unique prefix of one, or label
    #[arg(value_name = "SESSION")]
    session: String,
    /// The command: a program and its arguments, run without a shell; its exit code is ours
    #[arg(last = true, required = true, value_name = "CMD")]
    words: Vec<String>,
}

pub(super) fn run(cx: &Cx, args: ExecArgs) -> Result<u8, CliError> {
    let ExecArgs { session, words } = args;
    args::require_program_word(cx, "…", &words, None)?;
    require_recordable(&words)?;
    let ledger = cx.ledger()?;
    let session = ledger.find_session(&session)?;
    let command = ledger.runnable(&session, &words)?;
    let call = call(&ledger, &session, &command, &words)?;
    let InPlace { ended, duration_ms } = run_in_place(&call, cx.json)
        .map_err(|e| CliError::new(Code::RunnerFailed, format!("{}: {e}", words[0])))?;
    let (code, signal) = match ended {
        Ended::Exited(code) => (code, None),
        Ended::Signaled(name) => {
            (SIGNALS_FROM + process::signal_number(&name).unwrap_or_default(), Some(name))
        }
        Ended::NotStarted(why) => {
            let message = format!("{}: cannot be started: {why}", words[0]);
            return Err(CliError::new(Code::GateNotRunnable, message));
        }
        Ended::TimedOut => {
            let message = format!("{}: ended at a deadline it does not have", words[0]);
            return Err(CliError::new(Code::Internal, message));
        }
    };
    let report = Report::CommandDone { argv: words.clone(), code: Some(code) };
    let input = Input::Reported { session: session.clone(), report, key: None };
    let recording = ledger.record(input).map_err(|error| {
        let mut error = CliError::from(error);
        error.message = format!("it ended with {code}, which is not recorded: {}", error.message);
        error
    })?;
    if cx.json {
        let mut answer = report_answer(&ledger, &session, Kind::CommandDone, &recording)?;
        answer["schema"] = "agentproto/exec/1".into();
        answer["argv"] = json!(words);
        answer["code"] = code.into();
        answer["signal"] = signal.map_or(Value::Null, Value::from);
        answer["durationMs"] = duration_ms.into();
        cx.line(&answer)?;
    }
    Ok(u8::try_from(code).unwrap_or(exit::BROKEN))
}

/// What cannot be recorded is not run.
fn require_recordable(words: &[String]) -> Result<(), CliError> {
    let (bytes, most) = (json!(words).to_string().len(), limits::REPORT_DATA_BYTES);
    if bytes <= most {
        return Ok(());
    }
    let message = format!("the command takes {bytes} bytes to record, at most {most} are taken");
    Err(CliError::new(Code::BadData, message).with_hint("put it into a script, and allow that"))
}

/// The command as a gate would be run at the top of the worktree.
fn call(
    ledger: &Ledger,
    session: &SessionId,
    command: &Runnable,
    words: &[String],
) -> Result<Call, CliError> {
    let Runnable { program, worktree } = command;
    let (path, rules) = (ledger.fixed_path(worktree)?, ledger.env_rules(worktree)?);
    let asked = Asked { rules: &rules, set: &BTreeMap::new(), clean: false };
    let own = GateVars { policy: None, session: session.as_str(), worktree: &worktree.top };
    let path = path.as_variable();
    Ok(Call {
        program: program.clone(),
        args: words.iter().skip(1).map(Into::into).collect(),
        cwd: worktree.top.clone(),
        env: gate_env(ledger.env(), OsStr::new(&path), &asked, &own, &worktree.top),
        stdin: vec![],
        deadline_ms: 0,
    })
}

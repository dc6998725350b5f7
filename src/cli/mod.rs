//! The front door: words typed at a terminal in, answers and exit codes out.
//!
//! Contract: thin. What was typed is parsed here and translated once into what it means; every decision is
//! taken below. Results go to stdout, everything else to stderr; with `--json` stdout holds nothing but JSON
//! and an error is one object on stderr. Nothing here panics, prompts without a terminal, or keeps state.
//!
//! One file a command group, each with `…Args` (as typed) and `run(&Cx, …Args) -> Result<u8, CliError>`, the
//! number being the exit code. [`cx`] holds streams and environment, [`error`] the one shape of an error,
//! [`text`] what is safe to show, [`args`] what typed words mean, [`answer`] the JSON objects.

mod ack;
mod again;
mod agents;
mod allow;
mod answer;
mod args;
mod attach;
mod commit;
mod completions;
mod cx;
mod demo;
mod doctor;
mod doubt;
mod error;
mod events;
mod exec;
mod first_steps;
mod follow;
mod fsck;
mod gc;
mod given;
mod help;
mod init;
mod log;
mod man;
mod meaning;
mod names;
mod policy;
mod policy_file;
mod progress;
mod review;
mod run;
mod schema;
mod seen;
mod session;
mod settle;
mod status;
mod supervise;
mod text;
mod trust;
mod turns;
mod verify;
mod wait;
mod warn;

use crate::{
    code::exit,
    domain::ids::{PolicyId, SessionId},
    runtime::{agent, perform, runner},
    sys::{env::Env, trace},
};
use clap::{Parser, Subcommand, error::ErrorKind};
use cx::Cx;
use error::CliError;
use std::{ffi::OsString, path::PathBuf, process::ExitCode};

/// Gates, asks for approval and commits the work of coding agents, inside the repository.
#[derive(Parser)]
#[command(
    name = "git agentproto",
    bin_name = "git agentproto",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    max_term_width = 100
)]
struct Cli {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true, display_order = 900)]
    dir: Option<PathBuf>,
    /// Answer with one JSON object on stdout; errors are one on stderr
    #[arg(long, global = true, display_order = 901)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// Every command, in the order of the help.
#[derive(Subcommand)]
enum Command {
    /// Start an agent, gate its work, tell it what is red, ask, commit: the whole job
    #[command(override_usage = run::USAGE)]
    Run(run::RunArgs),
    /// Gate these files, ask, commit them: the whole job without an agent
    #[command(override_usage = commit::USAGE)]
    Commit(commit::CommitArgs),
    /// Say what happens when a session's turn ends (= policy attach)
    #[command(override_usage = attach::USAGE)]
    Attach(attach::AttachArgs),
    /// What needs you first: acks waiting, blocked, awaiting input; then the rest
    Status(status::StatusArgs),
    /// Review a candidate, then give a signed answer (= policy ack)
    Ack(ack::AckArgs),
    /// The journal for people: one line an event
    Log(log::LogArgs),
    /// The journal for programs: pages with a cursor, or a stream
    Events(events::EventsArgs),
    /// Block until something is true, doing meanwhile what is left to do
    Wait(wait::WaitArgs),
    /// Which commits were gated and approved, and by whom
    Verify(verify::VerifyArgs),
    /// Policies: attach, list, show, wait, ack, cancel, regate, adopt, dismiss
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Sessions: start, adopt, report, prompt, output, kill, list, show
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Run an allowed command in a session's worktree, and record that it is done
    #[command(override_usage = exec::USAGE)]
    Exec(exec::ExecArgs),
    /// Do for every policy what is due, and leave
    Supervise(supervise::SuperviseArgs),
    /// Let a command run as a gate, for you and this repository
    #[command(override_usage = allow::USAGE)]
    Allow(allow::AllowArgs),
    /// Accept the rule files of the trusted ref as they are now
    Trust(trust::TrustArgs),
    /// Set this repository up for you: key, signers, trusted ref
    Init(init::InitArgs),
    /// Whether machine, repository and set-up are fit for work, and what to do where they are not
    Doctor(doctor::DoctorArgs),
    /// Check store, journals and notes; mend what the log proves, with --repair what the journal proves
    Fsck(fsck::FsckArgs),
    /// Pack what waits for it, let go of what is older than you set
    Gc(gc::GcArgs),
    /// The whole job in a directory made for it, explained as it goes
    Demo(demo::DemoArgs),
    /// The JSON Schema of every object that is answered
    Schema(schema::SchemaArgs),
    /// Explain a command, a code, or a topic; alone, say what there is
    Help(help::HelpArgs),
    /// The manual page of a command, or all of them where man finds them
    Man(man::ManArgs),
    /// The script by which a shell completes what is typed
    Completions(completions::CompletionsArgs),
    /// Names of what lives here, for the script of `completions`
    #[command(name = "__complete", hide = true)]
    Live(completions::LiveArgs),
    /// Performs what is due for a policy; started detached by other commands
    #[command(name = "__perform", hide = true)]
    Perform {
        /// The policy
        policy: PolicyId,
    },
    /// Holds the agent of a session while something is due for it; started detached by other commands
    #[command(name = "__session", hide = true)]
    Host {
        /// The session
        session: SessionId,
    },
}

/// Runs the program on the arguments and the environment of the process.
#[must_use]
pub fn run() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // Before anything else: a runner becomes the parent of a process tree while it has one thread.
    if words.get(1).is_some_and(|word| word == runner::COMMAND) {
        return runner::runner_main();
    }
    let json = asks_for_json(&words);
    let (done, columns) = match read_env() {
        Ok(env) => (traced(words, &env), text::columns_of_stderr(&env)),
        Err(error) => (Err(error), None),
    };
    ExitCode::from(done.unwrap_or_else(|error| error.report(json, columns)))
}

/// Runs the words, telling how long that took where somebody wants to know.
fn traced(words: Vec<OsString>, env: &Env) -> Result<u8, CliError> {
    if let Err(why) = trace::begin(env) {
        Cx::new(env.clone(), false).say(&format!("warning: {why}; nothing is traced"));
    }
    let _step = trace::step(|| {
        let words = words.iter().skip(1).map(|word| word.to_string_lossy());
        format!("git agentproto {}", shell_words::join(words))
    });
    run_words(words, env)
}

fn read_env() -> Result<Env, CliError> {
    Env::read().map_err(|e| {
        CliError::new(
            crate::code::Code::NotARepository,
            format!("the current directory cannot be told: {e}"),
        )
    })
}

/// True when `--json` is among the words before `--`, whatever else is wrong with them.
fn asks_for_json(words: &[OsString]) -> bool {
    words.iter().take_while(|w| *w != "--").any(|w| w == "--json")
}

/// Nothing was named that could be done.
fn is_bare(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

fn run_words(words: Vec<OsString>, env: &Env) -> Result<u8, CliError> {
    let json = asks_for_json(&words);
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(e) if matches!(e.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let cx = Cx::new(env.clone(), false);
            cx.out(&text::wrapped(&e.render().to_string(), cx.columns))?;
            return Ok(exit::DONE);
        }
        Err(e) if is_bare(&e) && !json => {
            let help = text::wrapped(&e.render().to_string(), text::columns_of_stderr(env));
            Cx::new(env.clone(), false).screen(&help)?;
            return Ok(exit::USAGE);
        }
        Err(e) => return Err(CliError::usage(&e)),
    };
    let env = match &cli.dir {
        Some(dir) => cx::moved_to(env, dir)?,
        None => env.clone(),
    };
    let cx = Cx::new(env, cli.json);
    let done = dispatch(&cx, cli.command);
    // An error for programs stays alone on stderr.
    if done.is_ok() || !json {
        cx.say_what_was_found();
    }
    done
}

fn dispatch(cx: &Cx, command: Command) -> Result<u8, CliError> {
    match command {
        Command::Run(args) => run::run(cx, args),
        Command::Commit(args) => commit::run(cx, args),
        Command::Attach(args) => attach::run(cx, args),
        Command::Status(args) => status::run(cx, args),
        Command::Ack(args) => ack::run(cx, args),
        Command::Log(args) => log::run(cx, args),
        Command::Events(args) => events::run(cx, &args),
        Command::Wait(args) => wait::run(cx, args),
        Command::Verify(args) => verify::run(cx, args),
        Command::Policy(command) => policy::run(cx, command),
        Command::Session(command) => session::run(cx, command),
        Command::Exec(args) => exec::run(cx, args),
        Command::Supervise(args) => supervise::run(cx, &args),
        Command::Allow(args) => allow::run(cx, &args),
        Command::Trust(args) => trust::run(cx, &args),
        Command::Init(args) => init::run(cx, &args),
        Command::Doctor(args) => doctor::run(cx, &args),
        Command::Fsck(args) => fsck::run(cx, &args),
        Command::Gc(args) => gc::run(cx, &args),
        Command::Demo(args) => demo::run(cx, args),
        Command::Schema(args) => schema::run(cx, &args),
        Command::Help(args) => help::run(cx, &args),
        Command::Man(args) => man::run(cx, &args),
        Command::Completions(args) => completions::run(cx, &args),
        Command::Live(args) => completions::run_live(cx, &args),
        Command::Perform { policy } => {
            perform::policy(&cx.ledger()?, &policy)?;
            Ok(exit::DONE)
        }
        Command::Host { session } => {
            agent::host_until_idle(&cx.ledger()?, &session)?;
            Ok(exit::DONE)
        }
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

//! `completions SHELL`: a script that completes `git-agentproto …` and `git agentproto …`; and the hidden command that
//! the script asks for what lives in this repository.
//!
//! Contract: what is fixed comes from the table of commands; ids and labels are asked for when they are needed. That
//! question is answered quickly or not at all: it fails never, writes nothing, and hands out no name that a shell
//! would take for more than a word.

mod live;

pub(super) use live::{LiveArgs, run as run_live};

use super::{Cli, cx::Cx, error::CliError};
use crate::code::{Code, exit};
use clap::{Command, CommandFactory as _};
use clap_complete::{generate, shells};

/// The name of the program itself.
const PROGRAM: &str = "git-agentproto";

/// What the function for bash is called after. The generator writes a dash in a name in two ways and then finds no
/// subcommand of it; what is completed is the first word of the line, whatever it is.
const BASH_NAME: &str = "agentproto";

/// For which shell.
#[derive(clap::Args)]
pub(super) struct CompletionsArgs {
    /// bash, zsh or fish
    #[arg(value_enum, hide_possible_values = true)]
    shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(super) fn run(cx: &Cx, args: &CompletionsArgs) -> Result<u8, CliError> {
    let script = script(args.shell)?;
    let name = match args.shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let object = serde_json::json!({
        "schema": "agentproto/completions/1",
        "shell": name,
        "script": script,
    });
    if cx.json {
        cx.line(&object)?
    } else {
        cx.out(&script)?
    }
    Ok(exit::DONE)
}

fn script(shell: Shell) -> Result<String, CliError> {
    let name = if shell == Shell::Bash { BASH_NAME } else { PROGRAM };
    let mut command = visible(&Cli::command(), name);
    let mut bytes = Vec::new();
    match shell {
        Shell::Bash => generate(shells::Bash, &mut command, BASH_NAME, &mut bytes),
        Shell::Zsh => generate(shells::Zsh, &mut command, PROGRAM, &mut bytes),
        Shell::Fish => generate(shells::Fish, &mut command, PROGRAM, &mut bytes),
    }
    let fixed = String::from_utf8(bytes);
    let fixed = fixed.map_err(|e| CliError::new(Code::Internal, e.to_string()))?;
    Ok(match shell {
        Shell::Bash => bash(&fixed),
        Shell::Zsh => zsh(&fixed),
        Shell::Fish => fixed + include_str!("../../completions/live.fish"),
    })
}

/// The same commands without those that are nobody's to type.
pub(super) fn visible(command: &Command, name: &'static str) -> Command {
    let mut kept = Command::new(name).args(command.get_arguments().cloned());
    if let Some(about) = command.get_about() {
        kept = kept.about(about.clone());
    }
    kept.disable_help_subcommand(true)
        .subcommands(command.get_subcommands().filter(|below| !below.is_hide_set()).cloned())
}

/// The generated script registers itself; here the functions around it do.
fn bash(fixed: &str) -> String {
    let functions = fixed.split("\nif [[ \"${BASH_VERSINFO").next().unwrap_or(fixed);
    format!("{functions}\n{}", include_str!("../../completions/live.bash"))
}

/// Values of no known kind may be ids: the generated script completes files for all of them.
fn zsh(fixed: &str) -> String {
    let functions = fixed.split("\nif [ \"$funcstack[1]\"").next().unwrap_or(fixed);
    let functions = functions
        .replace("\n_git-agentproto() {", "\n_git-agentproto-fixed() {")
        // A name of two words that is quoted for people would end the quoting around it.
        .replace(":'CMD ARGS':", ":CMD ARGS:")
        .replace(":_default'", ":_git-agentproto-value'");
    format!("{functions}\n{}", include_str!("../../completions/live.zsh"))
}

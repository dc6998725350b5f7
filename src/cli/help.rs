//! `help [WORD…]`: a command, a code, or the exit codes.

use super::{Cli, cx::Cx, error::CliError};
use crate::code::{Code, exit};
use clap::CommandFactory as _;

/// What is to be explained.
#[derive(clap::Args)]
pub(super) struct HelpArgs {
    /// A command (with its subcommand), a code as errors show it, or `exit-codes`
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

/// The one table of exit codes.
const EXIT_CODES: &str = "\
Exit codes of all commands:
    0  done; the awaited condition is true (also a reject, and nothing to commit)
    1  a clear no: gate red, blocked, cancelled, verify found what it must not
    2  broken or cannot tell
    3  time ran out
    4  not found, or the condition can never be true any more
    5  waiting for a person
    6  refused by a rule
  128  fatal: the environment, as git
  129  usage, as git
";

pub(super) fn run(cx: &Cx, args: &HelpArgs) -> Result<u8, CliError> {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let text = match words.as_slice() {
        ["exit-codes"] => EXIT_CODES.to_owned(),
        [word] => match word.parse::<Code>() {
            Ok(code) => explain(code),
            Err(_) => usage_of(&[word])?,
        },
        path => usage_of(path)?,
    };
    cx.out(&super::text::wrapped(&text, cx.columns))?;
    Ok(exit::DONE)
}

fn explain(code: Code) -> String {
    format!("{code} (exit code {})\n  What to do: {}\n", code.exit(), code.hint())
}

fn usage_of(path: &[&str]) -> Result<String, CliError> {
    let mut command = Cli::command();
    // Fills in the full names and the global options of subcommands.
    command.build();
    let mut found = &mut command;
    for word in path {
        found = found.find_subcommand_mut(word).ok_or_else(|| {
            let message = format!("'{word}' is no command and no code");
            let all = Cli::command();
            let names = all.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name());
            let names = names.collect::<Vec<_>>().join(", ");
            CliError::new(Code::Usage, message).with_hint(format!("commands: {names}, exit-codes"))
        })?;
    }
    Ok(found.render_help().to_string())
}

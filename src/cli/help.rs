//! `help [WORD…]`: a command, a code, the exit codes, or the fields of a policy in a file.

use super::{Cli, cx::Cx, error::CliError};
use crate::code::{Code, exit};
use clap::CommandFactory as _;
use serde_json::{Value, json};

/// What is to be explained.
#[derive(clap::Args)]
pub(super) struct HelpArgs {
    /// A command (with its subcommand), a code as errors show it, `exit-codes` or `policy-file`
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

/// The fields of `attach --file` and `--next`.
const POLICY_FILE: &str = include_str!("../../docs/policy-file.md");

pub(super) fn run(cx: &Cx, args: &HelpArgs) -> Result<u8, CliError> {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let (text, code) = match words.as_slice() {
        ["exit-codes"] => (EXIT_CODES.to_owned(), None),
        ["policy-file"] => (POLICY_FILE.to_owned(), None),
        [word] => match word.parse::<Code>() {
            Ok(code) => (explain(code), Some(code)),
            Err(_) => (usage_of(&[word])?, None),
        },
        path => (usage_of(path)?, None),
    };
    cx.answer(&object(&text, code), &text)?;
    Ok(exit::DONE)
}

/// The same for programs; of a code what it is made of, too.
fn object(text: &str, code: Option<Code>) -> Value {
    let mut object = json!({ "schema": "agentproto/help/1", "text": text });
    if let Some(code) = code {
        object["code"] = code.as_str().into();
        object["exitCode"] = code.exit().into();
        object["hint"] = code.hint().into();
    }
    object
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
            CliError::new(Code::Usage, message)
                .with_hint(format!("commands: {names}, exit-codes, policy-file"))
        })?;
    }
    Ok(found.render_help().to_string())
}

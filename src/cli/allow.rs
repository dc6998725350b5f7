//! `allow -- CMD ARGS…`: lets a command run as a gate, for this person and this repository.

use super::{cx::Cx, error::CliError, text::shown};
use crate::code::exit;
use serde_json::json;

/// How it is used; what follows `--` is the command.
pub(super) const USAGE: &str = "git agentproto allow -- CMD [ARGS]…";

/// What may run.
#[derive(clap::Args)]
pub(super) struct AllowArgs {
    /// The program and its first arguments; whatever comes after them is allowed, too
    #[arg(last = true, required = true, value_name = "CMD")]
    argv: Vec<String>,
}

pub(super) fn run(cx: &Cx, args: &AllowArgs) -> Result<u8, CliError> {
    let allowed = cx.ledger()?.allow(&args.argv)?;
    let command = shell_words::join(&args.argv);
    let object = json!({
        "schema": "agentproto/allow/1",
        "argv": args.argv,
        "file": allowed.file.to_string_lossy(),
        "changed": allowed.changed,
    });
    let how = if allowed.changed { "may run as a gate from now on" } else { "was allowed before" };
    let file = allowed.file.to_string_lossy();
    let text =
        format!("{} {how}, for you and this repository ({})\n", shown(&command), shown(&file));
    cx.answer(&object, &text)?;
    Ok(exit::DONE)
}

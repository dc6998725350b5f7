//! `allow -- CMD ARGS…`: lets a command run as a gate, for this person and this repository; `allow` alone tells
//! what may run and which file says so, which is also where it is taken back.

use super::{cx::Cx, error::CliError, text::shown};
use crate::{code::exit, store::allowlist::Listed};
use serde_json::{Value, json};

/// How it is used; what follows `--` is the command.
pub(super) const USAGE: &str = "git agentproto allow [-- CMD [ARGS]…]";

/// What may run.
#[derive(clap::Args)]
pub(super) struct AllowArgs {
    /// The program and its first arguments; whatever comes after them is allowed, too. Without it: what may run
    #[arg(last = true, value_name = "CMD")]
    argv: Vec<String>,
}

pub(super) fn run(cx: &Cx, args: &AllowArgs) -> Result<u8, CliError> {
    if args.argv.is_empty() {
        return list(cx);
    }
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

fn list(cx: &Cx) -> Result<u8, CliError> {
    let listed = cx.ledger()?.allowed()?;
    let entries = listed.iter().map(|l| json!({ "argv": l.argv, "source": l.place }));
    let object =
        json!({ "schema": "agentproto/allow-list/1", "allowed": entries.collect::<Value>() });
    cx.answer(&object, &list_text(&listed))?;
    Ok(exit::DONE)
}

/// The entries below the place they stand in.
fn list_text(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return "nothing may run as a gate; allow it: git agentproto allow -- CMD\n".to_owned();
    }
    let mut text = String::new();
    let mut place = None;
    for entry in listed {
        if place != Some(&entry.place) {
            text.push_str(&format!("{}:\n", shown(&entry.place)));
            place = Some(&entry.place);
        }
        text.push_str(&format!("  {} …\n", shown(&shell_words::join(&entry.argv))));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_run_stands_below_where_it_is_said() {
        let entry = |argv: &[&str], place: &str| Listed {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            place: place.to_owned(),
        };
        let all = [entry(&["make"], "/f"), entry(&["ls", "a b"], "/f"), entry(&["x"], "key")];
        assert_eq!(list_text(&all), "/f:\n  make …\n  ls 'a b' …\nkey:\n  x …\n");
        assert!(list_text(&[]).contains("allow it:"));
    }
}

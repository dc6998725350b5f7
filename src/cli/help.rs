//! `help [WORD…]`: a command, a code, the exit codes, or the fields of a policy in a file; alone, what there is.

use super::{Cli, cx::Cx, error::CliError, meaning::meaning};
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
pub(super) const EXIT_CODES: &str = "\
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

/// What is explained beside commands and codes, each with what it is about.
pub(super) const TOPICS: [(&str, &str); 2] = [
    ("exit-codes", "what the exit code of every command means"),
    ("policy-file", "the JSON of `attach --file` and `--next`"),
];

/// The fields of `attach --file` and `--next`.
const POLICY_FILE: &str = include_str!("../../docs/policy-file.md");

pub(super) fn run(cx: &Cx, args: &HelpArgs) -> Result<u8, CliError> {
    let words: Vec<&str> = args.words.iter().map(String::as_str).collect();
    let (text, code) = match words.as_slice() {
        [] => (usage_of(&[])? + &topics(), None),
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
        object["meaning"] = meaning(code).into();
        object["hint"] = code.hint().into();
    }
    object
}

fn explain(code: Code) -> String {
    format!(
        "{code} (exit code {})\n  {}\n  What to do: {}\n",
        code.exit(),
        meaning(code),
        code.hint()
    )
}

fn topics() -> String {
    let mut text = "\nHelp is there for:\n".to_owned();
    let code =
        ("CODE", "what a code means that stands in brackets behind an error, and what to do");
    let command = ("COMMAND", "each command above, with its own: git agentproto help policy show");
    for (name, about) in [command, code].iter().chain(&TOPICS) {
        text.push_str(&format!("  {name:<12} {about}\n"));
    }
    text
}

fn usage_of(path: &[&str]) -> Result<String, CliError> {
    let mut command = Cli::command();
    // Fills in the full names and the global options of subcommands.
    command.build();
    let mut found = &command;
    for (depth, word) in path.iter().enumerate() {
        let below = found.find_subcommand(word).filter(|below| !below.is_hide_set());
        found = below.ok_or_else(|| unknown(word, found, depth == 0))?;
    }
    Ok(found.clone().render_help().to_string())
}

/// A word that nothing is called, with what comes near it.
fn unknown(word: &str, above: &clap::Command, is_first: bool) -> CliError {
    let commands =
        above.get_subcommands().filter(|c| !c.is_hide_set()).map(clap::Command::get_name);
    let commands: Vec<&str> = commands.collect();
    if !is_first {
        let message = format!("'{word}' is no command of {}", above.get_name());
        let there = match commands.as_slice() {
            [] => format!("it has none: git agentproto help {}", above.get_name()),
            all => format!("there are: {}", all.join(", ")),
        };
        return CliError::new(Code::Usage, message)
            .with_hint(near_miss(word, commands.iter().copied()).unwrap_or(there));
    }
    let codes = Code::ALL.iter().map(|code| code.as_str());
    let topics = TOPICS.iter().map(|(name, _)| *name);
    let all = commands.iter().copied().chain(topics).chain(codes);
    let hint = near_miss(word, all);
    CliError::new(Code::Usage, format!("'{word}' is no command, no code and no topic"))
        .with_hint(hint.unwrap_or_else(|| "see what there is: git agentproto help".to_owned()))
}

/// No more names than these are offered.
const NEAR_MISSES: usize = 3;

/// A question that offers the names nearest to a word; none when nothing comes near.
fn near_miss<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let word = word.to_lowercase();
    let most = (word.chars().count() / 3).max(1);
    let mut near: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let apart = strsim::damerau_levenshtein(&word, name);
            // One of its words may be all that is remembered.
            let is_part = name.split('-').any(|part| part == word);
            (apart <= most || is_part).then_some((apart, name))
        })
        .collect();
    near.sort_unstable();
    let names: Vec<String> =
        near.iter().take(NEAR_MISSES).map(|(_, name)| format!("'{name}'")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_offered_nearest_first() {
        let near = |word: &str, names: &[&str]| near_miss(word, names.iter().copied());
        let names = ["status", "stale", "gate-red", "gate-required", "terminal"];
        for (word, want) in [
            ("statu", Some("did you mean 'status'?")),
            ("STALE", Some("did you mean 'stale'?")),
            ("stael", Some("did you mean 'stale'?")),
            ("gate-rde", Some("did you mean 'gate-red'?")),
            ("red", Some("did you mean 'gate-red'?")),
            ("gate", Some("did you mean 'gate-red' or 'gate-required'?")),
            ("xyz", None),
            ("", None),
        ] {
            assert_eq!(near(word, &names).as_deref(), want, "{word}");
        }
        let many = ["aa", "ab", "ac", "ad", "ae"];
        assert_eq!(near("a", &many).as_deref(), Some("did you mean 'aa' or 'ab' or 'ac'?"));
    }
}

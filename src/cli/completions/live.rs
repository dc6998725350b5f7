//! What lives in this repository, for the word that is being typed.

use super::super::{Cli, CliError, Cx, cx, help::TOPICS};
use crate::{
    code::{Code, exit},
    domain::ids::{PolicyId, SessionId},
    ledger::Ledger,
};
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use std::path::PathBuf;

/// The words of the command line up to the one that is being typed, which is the last.
#[derive(clap::Args)]
pub(in crate::cli) struct LiveArgs {
    /// Words
    #[arg(last = true)]
    words: Vec<String>,
}

pub(in crate::cli) fn run(cx: &Cx, args: &LiveArgs) -> Result<u8, CliError> {
    let mut text = String::new();
    for candidate in candidates(cx, &args.words).iter().filter(|word| is_plain(word)) {
        text.push_str(candidate);
        text.push('\n');
    }
    // Nobody reads an error here, and a shell would show it in the middle of a line.
    let _ = cx.out(&text);
    Ok(exit::DONE)
}

/// What can stand for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Session,
    Policy,
    Either,
    Help,
}

/// Names that no shell takes for anything but one word.
fn is_plain(word: &str) -> bool {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "-_.,/@%+".contains(c);
    !word.is_empty() && !word.starts_with('-') && word.chars().all(is_safe)
}

fn candidates(cx: &Cx, words: &[String]) -> Vec<String> {
    let Some((typed, kind, dir)) = wanted(words) else { return vec![] };
    let mut found = if kind == Kind::Help {
        words_of_help()
    } else {
        // Without a repository nothing lives.
        living(cx, kind, dir, &typed).unwrap_or_default()
    };
    found.retain(|name| name.starts_with(&typed));
    found.sort();
    found.dedup();
    found
}

fn words_of_help() -> Vec<String> {
    let command = Cli::command();
    let commands = command.get_subcommands().filter(|below| !below.is_hide_set());
    let commands = commands.map(|below| below.get_name().to_owned());
    let topics = TOPICS.iter().map(|(name, _)| (*name).to_owned());
    let codes = Code::ALL.iter().map(|code| code.as_str().to_owned());
    commands.chain(topics).chain(codes).collect()
}

fn living(cx: &Cx, kind: Kind, dir: Option<PathBuf>, typed: &str) -> Result<Vec<String>, CliError> {
    let env = match dir {
        Some(dir) => cx::moved_to(&cx.env, &dir)?,
        None => cx.env.clone(),
    };
    let ledger: Ledger = Cx::new(env, false).ledger_to_look()?;
    let (sessions, policies) = match kind {
        Kind::Session => (true, false),
        Kind::Policy => (false, true),
        Kind::Either | Kind::Help => (true, true),
    };
    let mut found = Vec::new();
    let open = ledger.open_state()?;
    if sessions {
        for session in open.sessions.values() {
            found.push(session.session_id.to_string());
            found.extend(session.label.clone());
        }
    }
    if policies {
        for policy in open.policies.values() {
            found.push(policy.policy_id.to_string());
            found.extend(policy.spec.label.clone());
        }
    }
    // What is over is completed for who begins to type an id: it is most of what there is.
    let over = [(sessions, SessionId::PREFIX), (policies, PolicyId::PREFIX)];
    if over.iter().any(|(wanted, prefix)| *wanted && typed.starts_with(prefix)) {
        found.extend(ledger.ids()?);
    }
    Ok(found)
}

/// The word that is being typed, what it can be, and where the command would run.
fn wanted(words: &[String]) -> Option<(String, Kind, Option<PathBuf>)> {
    let (typed, before) = words.split_last()?;
    // bash makes words of their own of `--option=value`.
    let (typed, before) = match (typed.as_str(), before.split_last()) {
        ("=", _) => ("", before),
        (typed, Some((sign, before))) if sign == "=" => (typed, before),
        (typed, _) => (typed, before),
    };
    let mut command = Cli::command();
    command.build();
    let (mut command, mut dir, mut values, mut taken) = (&command, None, None, 0_usize);
    for word in before {
        if let Some(option) = values.take() {
            if is_dir(option) {
                dir = Some(PathBuf::from(word));
            }
        } else if word == "--" {
            // What follows is a command of somebody else.
            return None;
        } else if word.starts_with('-') && word.len() > 1 {
            values = option(command, word);
        } else if let Some(below) = command.find_subcommand(word).filter(|_| taken == 0) {
            command = below;
        } else {
            taken += 1;
        }
    }
    if let Some(option) = values {
        return Some((typed.to_owned(), kind(option)?, dir));
    }
    if let Some((name, value)) = typed.split_once('=') {
        return Some((value.to_owned(), kind(option(command, name)?)?, dir));
    }
    let positionals: Vec<&Arg> =
        command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
    // The last one may repeat.
    let arg = positionals.get(taken).or_else(|| {
        positionals.last().filter(|arg| matches!(arg.get_action(), ArgAction::Append))
    })?;
    Some((typed.to_owned(), kind(arg)?, dir))
}

/// The option a word is, if it takes a value that is still to come.
fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    let takes = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let found = command.get_opts().find(|arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => {
            let short = arg.get_short();
            word.strip_prefix('-').is_some_and(|rest| {
                let mut rest = rest.chars();
                rest.next() == short && rest.next().is_none()
            })
        }
    });
    found.filter(takes)
}

fn is_dir(arg: &Arg) -> bool {
    arg.get_short() == Some('C')
}

/// What a value can be, by what the help calls it.
fn kind(arg: &Arg) -> Option<Kind> {
    let name = arg.get_value_names().and_then(|names| names.first().map(|name| name.as_str()));
    match (name?, arg.get_id().as_str()) {
        ("SESSION", _) | ("ID", "sessions") => Some(Kind::Session),
        ("POLICY", _) | ("ID", "policies") => Some(Kind::Policy),
        ("ID" | "TARGET", _) => Some(Kind::Either),
        ("WORD", _) => Some(Kind::Help),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_on_the_line_wants_what_the_help_calls_it() {
        let is = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            wanted(&words).map(|(typed, kind, dir)| {
                (typed, kind, dir.map(|dir| dir.display().to_string()).unwrap_or_default())
            })
        };
        let some = |typed: &str, kind, dir: &str| Some((typed.to_owned(), kind, dir.to_owned()));
        for (line, want) in [
            ("ack ", some("", Kind::Policy, "")),
            ("ack pol_0", some("pol_0", Kind::Policy, "")),
            ("-C /x ack ", some("", Kind::Policy, "/x")),
            ("ack --reject -m why p", some("p", Kind::Policy, "")),
            ("ack one two", None),
            ("attach a b", some("b", Kind::Session, "")),
            ("attach a --gate-session s", some("s", Kind::Session, "")),
            ("attach a --gate-session = s", some("s", Kind::Session, "")),
            ("attach a --gate-session =", some("", Kind::Session, "")),
            ("attach a --gate-session=s", some("s", Kind::Session, "")),
            ("attach a --path s", None),
            ("attach a -- s", None),
            ("policy show x", some("x", Kind::Policy, "")),
            ("session report s", some("s", Kind::Session, "")),
            ("wait a b", some("b", Kind::Either, "")),
            ("events --policy p", some("p", Kind::Policy, "")),
            ("events --session p", some("p", Kind::Session, "")),
            ("status p", some("p", Kind::Either, "")),
            ("log p", some("p", Kind::Either, "")),
            ("help gate", some("gate", Kind::Help, "")),
            ("statu", None),
            ("", None),
        ] {
            assert_eq!(is(line), want, "{line}");
        }
        assert_eq!(wanted(&[]), None);
    }

    #[test]
    fn names_a_shell_could_take_for_more_are_not_handed_out() {
        for name in ["nightly", "a-b_c.1", "feature/x@2", "pol_01arz3ndektsv4rrffq69g5fav"] {
            assert!(is_plain(name), "{name}");
        }
        for name in ["", "-rf", "a b", "$(x)", "`x`", "a;b", "a'b", "~", "*", "a\\", "é", "a:b"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}

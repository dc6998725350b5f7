//! `allow -- CMD ARGS…`: lets a command run as a gate, for this person and this repository, or with `--commit`
//! for everybody; `allow` alone tells what may run and which file says so, which is also where it is taken back.
//!
//! Contract: what binds everybody is committed by a person at a terminal, never by a program on its own.

use super::{args::require_program_word, cx::Cx, error::CliError, text::shown};
use crate::{
    code::{Code, exit},
    ledger::{AllowCommitted, AllowLanded, WorkingFile},
    store::allowlist::{Listed, RULE_FILE},
};
use serde_json::{Value, json};
use std::io::{self, IsTerminal as _};

/// How it is used; what follows `--` is the command.
pub(super) const USAGE: &str = "git agentproto allow [[--commit] -- CMD [ARGS]…]";

/// What may run.
#[derive(clap::Args)]
pub(super) struct AllowArgs {
    /// For everybody: commit the entry on the local trusted branch; only from a terminal
    #[arg(long, requires = "argv")]
    commit: bool,
    /// The program and its first arguments; whatever comes after them is allowed, too. Without it: what may run
    #[arg(last = true, value_name = "CMD")]
    argv: Vec<String>,
}

pub(super) fn run(cx: &Cx, args: &AllowArgs) -> Result<u8, CliError> {
    if args.argv.is_empty() {
        return list(cx);
    }
    let command =
        if args.commit { "git agentproto allow --commit" } else { "git agentproto allow" };
    require_program_word(cx, command, &args.argv, None)?;
    if args.commit {
        return commit(cx, &args.argv);
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
    if let Some(absent) = &allowed.absent {
        cx.note(&format!("warning: it cannot run now: {absent}"));
    }
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

fn commit(cx: &Cx, argv: &[String]) -> Result<u8, CliError> {
    cx.require_person(Code::PersonOnly, "allow --commit")?;
    if !io::stdin().is_terminal() {
        let why = "--commit changes the rules of everybody and needs a person at a terminal";
        let command = shell_words::join(argv);
        return Err(CliError::new(Code::ConfirmationNeeded, why).with_hint(format!(
            "run it in a terminal, or allow it for yourself: git agentproto allow -- {command}"
        )));
    }
    let done = cx.ledger()?.allow_commit(argv)?;
    cx.answer(&to_json(argv, &done), &to_text(argv, &done))?;
    Ok(exit::DONE)
}

fn to_json(argv: &[String], done: &AllowCommitted) -> Value {
    let landed = done.landed.as_ref();
    let working_file = landed.map(|landed| match landed.working_file {
        WorkingFile::Written => "written",
        WorkingFile::Kept { .. } => "kept",
        WorkingFile::OtherBranch => "other-branch",
    });
    json!({
        "schema": "agentproto/allow/1",
        "argv": argv,
        "file": RULE_FILE,
        "changed": landed.is_some(),
        "trustedRef": done.trusted_ref,
        "commit": landed.map(|landed| landed.commit.to_string()),
        "workingFile": working_file,
        "rulesAccepted": landed.map(|landed| landed.accepted),
    })
}

fn to_text(argv: &[String], done: &AllowCommitted) -> String {
    let (command, branch) = (shell_words::join(argv), shown(&done.trusted_ref));
    let command = shown(&command);
    let Some(AllowLanded { commit, working_file, accepted, hook }) = &done.landed else {
        return format!("{command} was allowed before, by {RULE_FILE} on {branch}\n");
    };
    let mut text = format!(
        "{command} may run as a gate from now on, for everybody\n\
         {RULE_FILE} is committed on {branch}: {commit}\n\
         verify calls that commit ungoverned: no policy made it\n"
    );
    if let WorkingFile::Kept { because } = working_file {
        let because = shown(because);
        text.push_str(&format!("the file here was left alone and shows as modified: {because}\n"));
    }
    if !accepted {
        text.push_str(
            "other changes of the rule files wait: look at them, then git agentproto trust\n",
        );
    }
    if let Some(said) = hook {
        text.push_str(&format!("post-commit failed: {}\n", shown(said)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_and_what_was_left_is_told() {
        let argv = ["make".to_owned(), "check it".to_owned()];
        let commit = "1".repeat(40).parse().unwrap();
        let because = "it was not\u{1b} so".to_owned();
        let landed = AllowLanded {
            commit,
            working_file: WorkingFile::Kept { because },
            accepted: false,
            hook: Some("no".into()),
        };
        let mut done =
            AllowCommitted { trusted_ref: "refs/heads/main".into(), landed: Some(landed) };
        assert_eq!(
            to_text(&argv, &done),
            format!(
                "make 'check it' may run as a gate from now on, for everybody\n\
                 .agentproto/allowed-commands.json is committed on refs/heads/main: {commit}\n\
                 verify calls that commit ungoverned: no policy made it\n\
                 the file here was left alone and shows as modified: it was not\\x1b so\n\
                 other changes of the rule files wait: look at them, then git agentproto trust\n\
                 post-commit failed: no\n"
            )
        );
        let object = to_json(&argv, &done);
        assert_eq!((&object["workingFile"], &object["changed"]), (&json!("kept"), &json!(true)));
        done.landed = None;
        assert_eq!(
            to_text(&argv, &done),
            "make 'check it' was allowed before, by .agentproto/allowed-commands.json on refs/heads/main\n"
        );
        assert_eq!(to_json(&argv, &done)["commit"], Value::Null);
    }

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

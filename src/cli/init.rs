//! `init`: key, signers and trusted ref of this repository, shown before they are made.
//!
//! Contract: writes nothing tracked, no commit and no repository configuration; a second run changes nothing.
//! Without a terminal it acts only when told to by `--yes`.

use super::{args, cx::Cx, error::CliError, text::shown};
use crate::{
    code::{Code, exit},
    ledger::{InitAsk, InitDone},
};
use serde_json::{Value, json};
use std::path::PathBuf;

/// What is set up.
#[derive(clap::Args)]
pub(super) struct InitArgs {
    /// Do it without asking
    #[arg(long)]
    yes: bool,
    /// Sign with this ssh private key
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Allow this command (and all that starts like it) as a gate, for you and this repository
    #[arg(long, value_name = "CMD")]
    allow: Vec<String>,
    /// Only tell what would be done
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

pub(super) fn run(cx: &Cx, args: &InitArgs) -> Result<u8, CliError> {
    let allow = args.allow.iter().map(|text| args::command_words("--allow", text));
    let allow = allow.collect::<Result<Vec<_>, _>>()?;
    let ledger = cx.ledger()?;
    let ask = |dry_run| InitAsk { key: args.key.clone(), allow: allow.clone(), dry_run };
    if !args.yes {
        let planned = ledger.init(&ask(true))?;
        let nothing_to_do = planned.steps.iter().all(|(_, changed)| !changed);
        if args.dry_run || nothing_to_do {
            cx.answer(&object(&planned, args.dry_run), &text(&planned, Tense::Would))?;
            return Ok(exit::DONE);
        }
        if !agree(cx, &planned)? {
            cx.note("nothing was done");
            return Ok(exit::PERSON);
        }
    }
    let done = ledger.init(&ask(false))?;
    cx.answer(&object(&done, false), &text(&done, Tense::Did))?;
    Ok(exit::DONE)
}

/// Shows the plan and asks.
fn agree(cx: &Cx, planned: &InitDone) -> Result<bool, CliError> {
    let refused = |why: &str| {
        CliError::new(Code::ConfirmationNeeded, why)
            .with_hint("look with: git agentproto init --dry-run; then: git agentproto init --yes")
    };
    if !cx.is_interactive() {
        return Err(refused("nobody can be asked without a terminal"));
    }
    for line in text(planned, Tense::Would).lines() {
        cx.note(line);
    }
    cx.confirm("Do this?")
}

/// Whether the steps are planned or done.
#[derive(Clone, Copy)]
enum Tense {
    Would,
    Did,
}

fn object(done: &InitDone, dry_run: bool) -> Value {
    let steps =
        done.steps.iter().map(|(what, changed)| json!({ "what": what, "changed": changed }));
    json!({
        "schema": "agentproto/init/1",
        "dryRun": dry_run,
        "steps": steps.collect::<Vec<_>>(),
        "repoId": done.repo_id.to_string(),
        "trustedRef": done.trusted_ref,
        "key": done.key,
        "signers": done.signers,
        "proposals": done.proposals,
    })
}

fn text(done: &InitDone, tense: Tense) -> String {
    let mut text = String::new();
    for (what, changed) in &done.steps {
        let mark = match (changed, tense) {
            (true, Tense::Would) => "to do",
            (true, Tense::Did) => "done ",
            (false, Tense::Would | Tense::Did) => "kept ",
        };
        text.push_str(&format!("{mark}  {}\n", shown(what)));
    }
    // Which ref is trusted is one of the steps.
    for proposal in &done.proposals {
        text.push_str(&format!("to allow a gate: git agentproto allow -- {}\n", shown(proposal)));
    }
    if done.proposals.is_empty() {
        text.push_str(
            "to allow a gate: git agentproto allow -- CMD; what is allowed: git agentproto allow\n",
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told_apart_from_what_was_so_before() {
        let step = |what: &str, changed| (what.to_owned(), changed);
        let done = InitDone {
            steps: vec![step("a new key", true), step("listed\u{1b}", false)],
            repo_id: "1".repeat(40).parse().unwrap(),
            trusted_ref: "refs/heads/main".into(),
            key: "/k".into(),
            signers: "/s".into(),
            proposals: vec!["cargo".into()],
        };
        let tail = "kept   listed\\x1b\n\
                    to allow a gate: git agentproto allow -- cargo\n";
        assert_eq!(text(&done, Tense::Did), format!("done   a new key\n{tail}"));
        assert_eq!(text(&done, Tense::Would), format!("to do  a new key\n{tail}"));
        let object = object(&done, true);
        assert_eq!((&object["dryRun"], &object["key"]), (&json!(true), &json!("/k")));
        assert_eq!(object["steps"][0], json!({ "what": "a new key", "changed": true }));
    }
}

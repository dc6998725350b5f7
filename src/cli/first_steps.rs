//! What of `init` is missing for a policy, offered in one question before the policy is asked for.
//!
//! Contract: only a person at a terminal outside of sessions is asked, once, and nothing but a clear yes does
//! anything. Whoever says no, or cannot be asked, meets the refusal that names the command. What cannot be told is
//! left to the command itself, which checks everything anew.

use super::{cx::Cx, error::CliError};
use crate::{
    domain::ids::SessionId,
    ledger::{AttachAsk, InitAsk, Lacking, Ledger},
};

/// Offers what is missing for `ask`, whose gates run where `session` works or else here.
pub(super) fn offer(
    cx: &Cx,
    ledger: &Ledger,
    ask: &AttachAsk,
    session: Option<&SessionId>,
) -> Result<(), CliError> {
    if !cx.is_interactive() || cx.inside_session().is_some() {
        return Ok(());
    }
    let Ok(lacking) = ledger.lacking(ask, session) else { return Ok(()) };
    if lacking.is_empty() {
        return Ok(());
    }
    let Ok(plan) = plan(ledger, &lacking) else { return Ok(()) };
    cx.note("not everything is set up for this yet. What can be done now:");
    plan.iter().for_each(|step| cx.note(&format!("to do  {step}")));
    if cx.confirm("Do this and go on?")? { carry_out(cx, ledger, &lacking) } else { Ok(()) }
}

/// What would be done, a sentence a step. Nothing is written.
fn plan(ledger: &Ledger, lacking: &Lacking) -> Result<Vec<String>, CliError> {
    if lacking.init {
        let planned = ledger.init(&ask(lacking, true))?;
        let steps = planned.steps.into_iter().filter(|(_, changes)| *changes);
        return Ok(steps.map(|(step, _)| step).collect());
    }
    let file = ledger.trust()?.settings.allowlist_file();
    let step = |argv: &Vec<String>| {
        format!("{} is allowed in {}", shell_words::join(argv), file.display())
    };
    Ok(lacking.gates.iter().map(step).collect())
}

fn carry_out(cx: &Cx, ledger: &Ledger, lacking: &Lacking) -> Result<(), CliError> {
    if lacking.init {
        let done = ledger.init(&ask(lacking, false))?;
        let steps = done.steps.iter().filter(|(_, changed)| *changed);
        steps.for_each(|(step, _)| cx.note(&format!("done   {step}")));
        return Ok(());
    }
    for argv in &lacking.gates {
        let done = ledger.allow(argv)?;
        let command = shell_words::join(argv);
        cx.note(&format!("done   {command} is allowed in {}", done.file.display()));
    }
    Ok(())
}

fn ask(lacking: &Lacking, dry_run: bool) -> InitAsk {
    InitAsk { key: None, allow: lacking.gates.clone(), dry_run }
}

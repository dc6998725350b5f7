//! `commit --path P… -m MSG [-- GATE…]`: the whole job without an agent.

use super::{
    ack, answer,
    attach::{CommitFlags, CommonFlags, GateArgs, WaitFlag, ask},
    cx::Cx,
    error::CliError,
    first_steps,
    policy::show_text,
    settle::{Held, exit_of, settle, tell},
    text::{shown, wrapped},
    warn::{self, Notice},
};
use crate::{
    code::exit,
    domain::{
        ids::PolicyId,
        policy::{Outcome, Policy, Status},
    },
    ledger::Ledger,
};

/// Says where the gate stands.
pub(super) const USAGE: &str = "git agentproto commit --path PATH... -m MSG [OPTIONS] [-- GATE...]";

/// The flags, as typed.
#[derive(clap::Args)]
pub(super) struct CommitArgs {
    #[command(flatten)]
    commit: CommitFlags,
    #[command(flatten)]
    gates: GateArgs,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    waits: WaitFlag,
}

pub(super) fn run(cx: &Cx, args: CommitArgs) -> Result<u8, CliError> {
    let ask = ask(cx, args.gates, args.commit, (&args.common, true))?;
    let ledger = cx.ledger()?;
    first_steps::offer(cx, &ledger, &ask, None)?;
    let (id, recording) = ledger.commit(&ask)?;
    let notices = warn::of_policy(cx, &ledger, &id, &recording.left_out);
    let held = settle(cx, &ledger, &id, args.waits.no_wait);
    conclude(cx, &ledger, &id, (held.as_ref(), &notices), args.waits.no_wait)
}

/// Asks a person who is there what is to be asked, and answers with the policy as it is then.
pub(super) fn conclude(
    cx: &Cx,
    ledger: &Ledger,
    id: &PolicyId,
    (held, notices): (Option<&Held>, &[Notice]),
    no_wait: bool,
) -> Result<u8, CliError> {
    let mut policy = ledger.require_policy(id)?;
    let alone = no_wait || cx.inside_session().is_some() || !cx.is_interactive();
    if policy.status == Status::Signing && !alone {
        ack::sign_now(cx, ledger, id)?;
        settle(cx, ledger, id, false);
        policy = ledger.require_policy(id)?;
    }
    let asks = policy.status == Status::AwaitingAck && !alone;
    if asks {
        let said = ack::ask_in_place(cx, ledger, id)?;
        policy = ledger.require_policy(id)?;
        if let Some(said) = said {
            cx.out(&wrapped(&said, cx.columns))?;
            return Ok(exit_of(&policy));
        }
    }
    let mut answer = answer::policy(cx, ledger, &policy)?;
    tell(&mut answer, held);
    warn::tell(&mut answer, notices);
    let text = match nothing_to_commit(&policy) {
        Some(said) => said,
        None => show_text(cx, ledger, &policy)?,
    };
    cx.answer(&answer, &text)?;
    // Left to another process, it is only recorded.
    Ok(if no_wait { exit::DONE } else { exit_of(&policy) })
}

/// What a person reads when the listed paths held no change.
fn nothing_to_commit(policy: &Policy) -> Option<String> {
    let commit = policy.spec.commit.as_ref().filter(|_| policy.outcome == Some(Outcome::NoOp))?;
    Some(format!("nothing to commit: the listed paths are as on {}\n", shown(&commit.branch)))
}

//! `run [flags] -- AGENT…`: the whole job. An agent is started, its work is gated, it is told what is red and works on, a
//! person is asked, the commit lands, and the session ends with its policy.

use super::{
    agents::{self, AgentFlags},
    answer,
    attach::{CommitFlags, CommonFlags, GateArgs, GateFlags, ask},
    commit::conclude,
    cx::Cx,
    error::CliError,
    first_steps,
    policy::show_text,
    progress::Output,
    turns::TurnFlags,
    warn,
};
use crate::{code::exit, ledger::AttachAsk, runtime::agent};

/// Says where the agent stands.
pub(super) const USAGE: &str = "git agentproto run [OPTIONS] -- AGENT...";

/// The flags, as typed.
#[derive(clap::Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    gates: GateFlags,
    #[command(flatten)]
    commit: CommitFlags,
    #[command(flatten)]
    turns: TurnFlags,
    #[command(flatten)]
    agent: AgentFlags,
    #[command(flatten)]
    common: CommonFlags,
    /// The agent: a program and its arguments, run without a shell; one run is one turn
    #[arg(last = true, required = true, value_name = "AGENT")]
    words: Vec<String>,
}

pub(super) fn run(cx: &Cx, args: RunArgs) -> Result<u8, CliError> {
    let alone = args.agent.detach;
    let commits = args.commit.is_any();
    let gates = GateArgs::without_words(args.gates);
    let turns = args.turns.ask_of_run()?;
    let asked = ask(cx, gates, args.commit, (&args.common, commits))?;
    // Without a gate nothing can be red.
    let on_fail = turns.on_fail.clone().filter(|_| !asked.gates.is_empty());
    let policy = AttachAsk { turns: crate::ledger::TurnsAsk { on_fail, ..turns }, ..asked };
    let start = args.agent.ask(cx, (None, false), args.words)?;
    let ledger = cx.ledger()?;
    first_steps::offer(cx, &ledger, &policy, None)?;
    let held_back = agents::hold_back()?;
    let (session, policy, recording) = ledger.start(&start, Some(&policy))?;
    let Some(policy) = policy else {
        return Err(CliError::new(crate::code::Code::Internal, "no policy was recorded"));
    };
    let notices = warn::of_policy(cx, &ledger, &policy, &recording.left_out);
    if alone {
        agent::detach(&ledger, &session)?;
        let recorded = ledger.require_policy(&policy)?;
        let mut answer = answer::policy(cx, &ledger, &recorded)?;
        warn::tell(&mut answer, &notices);
        cx.answer(&answer, &show_text(cx, &ledger, &recorded)?)?;
        return Ok(exit::DONE);
    }
    let signal = agents::hold(
        cx,
        &ledger,
        (&session, Some(&policy)),
        (held_back, &recording),
        Output::LastLine,
    )?;
    let ended = conclude(cx, &ledger, &policy, (None, &notices), false)?;
    Ok(signal.unwrap_or(ended))
}

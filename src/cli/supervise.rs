//! `supervise --once`: does what is due, for every policy, and leaves.

use super::{cx::Cx, error::CliError, names::Names, text::shown};
use crate::{
    code::{Code, exit},
    domain::policy::Policy,
    ledger::Ledger,
    runtime::{
        agent,
        perform::{self, Progress},
    },
};
use serde_json::{Value, json};

#[derive(clap::Args)]
pub(super) struct SuperviseArgs {
    /// Do what is due, then leave
    #[arg(long, required = true)]
    once: bool,
}

/// What became of one policy.
struct Told {
    before: Policy,
    after: Policy,
    /// Why something is still due.
    held: Option<(Code, String)>,
}

pub(super) fn run(cx: &Cx, _: &SuperviseArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    // Of sessions that no policy watches, too: what is to begin begins, what is lost is told.
    let mut troubled = false;
    for session in ledger.sessions(false)? {
        if let Err(e) = agent::look_after(&ledger, &session.session_id) {
            let e = CliError::from(e);
            cx.say(&format!("{}: {} [{}]", session.session_id, e.message, e.code));
            troubled = true;
        }
    }
    let mut told = Vec::new();
    for before in ledger.policies(false)? {
        // One that cannot go on holds up no other.
        let held = match perform::policy(&ledger, &before.policy_id) {
            Ok(Progress::Settled) => None,
            Ok(Progress::Waiting { code, because }) => Some((code, because)),
            Ok(Progress::Held { owner: _ }) => {
                Some((Code::Timeout, "another process performs it".to_owned()))
            }
            Err(e) => {
                let e = CliError::from(e);
                Some((e.code, e.message))
            }
        };
        let after = ledger.require_policy(&before.policy_id)?;
        told.push(Told { before, after, held });
    }
    told.retain(|t| t.before.last != t.after.last || t.held.is_some());
    cx.answer(&object(&told), &text(cx, &ledger, &told)?)?;
    let stuck = |t: &Told| t.held.as_ref().is_some_and(|(code, _)| *code != Code::Timeout);
    Ok(if troubled || told.iter().any(stuck) { exit::BROKEN } else { exit::DONE })
}

fn object(told: &[Told]) -> Value {
    let one = |t: &Told| {
        let (code, because) = t.held.clone().unzip();
        json!({
            "policyId": t.after.policy_id,
            "before": t.before.status,
            "status": t.after.status,
            "reason": code.map_or_else(|| t.after.reason.clone(), |c| Some(c.to_string())),
            "because": because.or_else(|| t.after.because.clone()),
            "nextPolicyId": t.after.followed_by(),
        })
    };
    json!({
        "schema": "agentproto/supervise/1",
        "policies": told.iter().map(one).collect::<Vec<_>>(),
    })
}

fn text(cx: &Cx, ledger: &Ledger, told: &[Told]) -> Result<String, CliError> {
    if told.is_empty() {
        return Ok("nothing was due\n".to_owned());
    }
    let names = if cx.json { Names::default() } else { Names::load(cx, ledger)? };
    let mut text = String::new();
    for Told { before, after, held } in told {
        let name = names.of_policy(after);
        let (from, to) = (before.status.as_str(), after.status.as_str());
        let how = if from == to { to.to_owned() } else { format!("{from}, now {to}") };
        text.push_str(&format!("{name}: {how}"));
        if let Some((code, because)) = held {
            text.push_str(&format!(": {} [{code}]", shown(because)));
        } else if let Some(reason) = &after.reason {
            text.push_str(&format!(" [{}]", shown(reason)));
        }
        text.push('\n');
    }
    Ok(text)
}

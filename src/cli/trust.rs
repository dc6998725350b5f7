//! `trust`: accepts the rule files of the trusted ref as they are now.

use super::{cx::Cx, error::CliError, text::shown};
use crate::code::exit;
use serde_json::json;

/// Nothing to choose.
#[derive(clap::Args)]
pub(super) struct TrustArgs {}

pub(super) fn run(cx: &Cx, _args: &TrustArgs) -> Result<u8, CliError> {
    let accepted = cx.ledger()?.accept_rules()?;
    let object = json!({
        "schema": "agentproto/trust/1",
        "trustedRef": accepted.trusted_ref,
        "tip": accepted.tip.to_string(),
        "digest": accepted.digest,
        "changed": accepted.changed,
    });
    let how = if accepted.changed { "accepted now" } else { "accepted before, nothing changed" };
    let text =
        format!("rule files of {} at {}: {how}\n", shown(&accepted.trusted_ref), accepted.tip);
    cx.answer(&object, &text)?;
    Ok(exit::DONE)
}

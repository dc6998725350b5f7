//! `demo [DIR]`: the whole job in a repository made for it, with the real commands, explained as it goes.
//!
//! Contract: everything is inside DIR, the key and the configuration too; nothing in the user's home is read
//! or written. The children see a fixed environment that points into DIR. Works without network, without a
//! git identity, and leaves the current directory as it was but for DIR.

mod stage;
mod story;

use super::{cx::Cx, error::CliError};
use crate::code::exit;
use serde_json::json;
use stage::Stage;
use std::path::PathBuf;

/// Where DIR is when nobody says.
const DEFAULT_DIR: &str = "agentproto-demo";

/// Where the demonstration takes place.
#[derive(clap::Args)]
pub(super) struct DemoArgs {
    /// A directory that does not exist or is empty [default: ./agentproto-demo]
    #[arg(value_name = "DIR")]
    place: Option<PathBuf>,
}

pub(super) fn run(cx: &Cx, args: DemoArgs) -> Result<u8, CliError> {
    let dir = cx.env.cwd().join(args.place.unwrap_or_else(|| DEFAULT_DIR.into()));
    let stage = Stage::make(&cx.env, &dir)?;
    let told = story::tell(cx, &stage)?;
    if cx.json {
        cx.line(&json!({
            "schema": "agentproto/demo/1",
            "path": stage.top().to_string_lossy(),
            "policyId": told.policy,
            "commitSha": told.commit,
        }))?;
    }
    Ok(exit::DONE)
}

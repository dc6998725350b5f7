//! `git-agentproto`: hands the arguments to the library and exits with its code.

use std::process::ExitCode;

fn main() -> ExitCode {
    git_agentproto::cli::run()
}

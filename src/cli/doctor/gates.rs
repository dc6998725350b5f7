//! What may run: allowed commands, where each is found, which of them run anything, and the repository's own hooks.

use super::Findings;
use crate::{
    cli::error::CliError,
    ledger::Ledger,
    store::{allowlist::Listed, hooks},
};
use std::path::Path;

/// Programs that do what a file or an argument tells them.
const INTERPRETERS: [&str; 33] = [
    "ash", "awk", "bash", "bun", "bunx", "busybox", "dash", "deno", "docker", "env", "find",
    "fish", "gmake", "just", "ksh", "lua", "make", "node", "npm", "npx", "perl", "php", "pnpm",
    "podman", "ruby", "sh", "ssh", "sudo", "tclsh", "uv", "xargs", "yarn", "zsh",
];

/// True for a program that runs whatever is in files of the worktree, or in its arguments.
fn runs_anything(argv0: &str) -> bool {
    let name = Path::new(argv0).file_name().and_then(|n| n.to_str()).unwrap_or(argv0);
    // python3.12 and the like.
    let versioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    ["python", "pypy"].contains(&versioned) || INTERPRETERS.contains(&versioned)
}

pub(super) fn allowlist(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let listed = match ledger.allowed() {
        Ok(listed) => listed,
        Err(e) => {
            let error = CliError::from(e);
            findings.problem(error.message, &error.hint);
            return Ok(());
        }
    };
    if listed.is_empty() {
        findings.note("nothing may run as a gate", "allow it: git agentproto allow -- CMD");
        return Ok(());
    }
    let count = listed.len();
    findings.fine(format!("commands that may run as gates: {count}"));
    if let Some(worktree) = &ledger.store().location().worktree {
        let path = ledger.fixed_path(worktree)?;
        for entry in &listed {
            let Some(argv0) = entry.argv.first() else { continue };
            if let Err(e) = path.program(argv0, &worktree.top) {
                findings.note(
                    format!("{} is allowed and could not run here: {e}", words(entry)),
                    "install it, or set agentproto.path in your own settings to where it is",
                );
            }
        }
    }
    for entry in listed.iter().filter(|e| e.argv.first().is_some_and(|a| runs_anything(a))) {
        findings.note(
            format!("{} runs whatever the agent wrote ({})", words(entry), entry.place),
            "a gate is as good as what it runs: --protect holds files to the trusted branch, or allow a program \
             that reads no script of the worktree",
        );
    }
    Ok(())
}

fn words(entry: &Listed) -> String {
    shell_words::join(&entry.argv)
}

pub(super) fn hooks(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let repo = ledger.repo()?;
    let failed =
        |e: crate::store::worktree_state::StateError| CliError::new(e.code(), e.to_string());
    let before = hooks::commit_hooks(&repo).map_err(failed)?;
    let after = hooks::post_commit_hook(&repo).map_err(failed)?;
    if before.is_empty() && after.is_none() {
        findings.fine("the repository has no commit hooks");
    }
    for hook in &before {
        findings.note(
            format!("the hook {} runs before the gates: {}", hook.name, hook.at),
            "what it rewrites in the listed files is what is gated; a refusal counts as a red gate",
        );
    }
    if let Some(hook) = &after {
        findings.note(
            format!("the hook {} runs once a commit has landed: {}", hook.name, hook.at),
            "it cannot undo the commit",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_run_anything_are_known_by_name_and_version() {
        for name in
            ["bash", "/usr/bin/env", "python", "python3", "python3.12", "node", "npm", "./make"]
        {
            assert!(runs_anything(name), "{name}");
        }
        for name in ["cargo", "ls", "pytest", "pythonic", "shfmt", "", "3"] {
            assert!(!runs_anything(name), "{name}");
        }
    }
}

//! Which commands a repository is built with: proposals for a person, never more.
//!
//! Contract: told by files at the top of the worktree, which anybody can write; so a proposal allows nothing, and
//! comes from a list of well-known programs whatever those files say.

use super::Setup;
use crate::{code::Code, ledger::LedgerError, limits, sys::files};
use std::path::Path;

impl Setup<'_> {
    /// Commands that the files at the top of the worktree suggest and no source allows yet.
    pub(super) fn proposals(&mut self) -> Result<Vec<String>, LedgerError> {
        let suggested = suggested(&self.worktree.top);
        let names = || suggested.iter().map(|name| (*name).to_owned());
        match self.ledger.gate_rules(&self.worktree, &self.trust) {
            Ok(rules) => {
                let worktree = &self.worktree;
                // What this very run allows is no proposal any more.
                let planned =
                    |n: &String| self.allowed.iter().any(|argv| argv == std::slice::from_ref(n));
                let lists = |n: &String| rules.lists(std::slice::from_ref(n), worktree);
                Ok(names().filter(|n| !planned(n) && !lists(n)).collect())
            }
            // The rest of the set-up does not depend on it, and the person can correct the list afterwards.
            Err(e) if e.code() == Code::AllowlistInvalid => {
                self.step(false, format!("no command is allowed: {e}"));
                Ok(names().collect())
            }
            Err(e) => Err(e),
        }
    }
}

/// What is built with it, by the files that say so; any of them is enough.
const MARKS: [(&[&str], Built); 5] = [
    (&["Cargo.toml"], Built::By("cargo")),
    (&["package.json"], Built::WithNode),
    (&["pyproject.toml"], Built::WithPython),
    (&["go.mod", "go.work"], Built::By("go")),
    // In the order in which make itself looks.
    (&["GNUmakefile", "makefile", "Makefile"], Built::By("make")),
];

/// Lock files and the program that writes each.
const NODE_LOCKS: [(&str, &str); 4] = [
    ("pnpm-lock.yaml", "pnpm"),
    ("yarn.lock", "yarn"),
    ("package-lock.json", "npm"),
    ("npm-shrinkwrap.json", "npm"),
];

#[derive(Clone, Copy)]
enum Built {
    By(&'static str),
    WithNode,
    WithPython,
}

fn suggested(top: &Path) -> Vec<&'static str> {
    // A file that cannot be looked at suggests nothing.
    let has = |name: &str| files::is_file(&top.join(name)).unwrap_or(false);
    let found = MARKS.iter().filter(|(names, _)| names.iter().any(|name| has(name)));
    let program = |built: &Built| match built {
        Built::By(program) => program,
        Built::WithNode => NODE_LOCKS
            .iter()
            .find(|(lock, _)| has(lock))
            .map_or_else(|| declared_manager(top), |(_, program)| *program),
        Built::WithPython if has("uv.lock") => "uv",
        Built::WithPython => "pytest",
    };
    found.map(|(_, built)| program(built)).collect()
}

/// What `packageManager` of package.json names, where no lock file tells; npm where it names none of them.
fn declared_manager(top: &Path) -> &'static str {
    let read = files::read_optional(&top.join("package.json"), limits::SETTINGS_FILE_BYTES);
    let package = read.ok().flatten();
    let package = package.and_then(|b| serde_json::from_slice::<serde_json::Value>(&b).ok());
    let declared = package.as_ref().and_then(|p| p["packageManager"].as_str()).unwrap_or_default();
    let (name, _version) = declared.split_once('@').unwrap_or((declared, ""));
    ["pnpm", "yarn"].into_iter().find(|known| *known == name).unwrap_or("npm")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_kind_of_build_file_suggests_its_program() {
        for (files, want) in [
            (&["Cargo.toml"] as &[&str], &["cargo"] as &[&str]),
            (&["package.json"], &["npm"]),
            (&["package.json", "package-lock.json"], &["npm"]),
            (&["package.json", "pnpm-lock.yaml"], &["pnpm"]),
            (&["package.json", "yarn.lock"], &["yarn"]),
            (&["yarn.lock"], &[]),
            (&["pyproject.toml"], &["pytest"]),
            (&["pyproject.toml", "uv.lock"], &["uv"]),
            (&["go.mod"], &["go"]),
            (&["makefile"], &["make"]),
            (&["GNUmakefile", "Makefile", "Cargo.toml"], &["cargo", "make"]),
            (&["readme.md"], &[]),
        ] {
            let dir = tempfile::tempdir().unwrap();
            files.iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
            assert_eq!(suggested(dir.path()), want, "{files:?}");
        }
    }

    #[test]
    fn what_package_json_declares_counts_where_no_lock_file_tells() {
        let dir = tempfile::tempdir().unwrap();
        let says = |content: &str| {
            fs::write(dir.path().join("package.json"), content).unwrap();
            suggested(dir.path())
        };
        assert_eq!(says(r#"{"packageManager":"pnpm@9.1.0"}"#), ["pnpm"]);
        assert_eq!(says(r#"{"packageManager":"yarn"}"#), ["yarn"]);
        assert_eq!(says(r#"{"packageManager":"rm -rf /@1"}"#), ["npm"]);
        assert_eq!(says("{"), ["npm"]);
        fs::write(dir.path().join("package-lock.json"), "").unwrap();
        assert_eq!(says(r#"{"packageManager":"pnpm@9.1.0"}"#), ["npm"]);
    }
}

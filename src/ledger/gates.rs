//! What a gate may run and where, judged at attach and again right before each run.

use super::{Ledger, LedgerError, error::Problem};
use crate::{
    code::Code,
    domain::gate::GateDef,
    store::{
        Worktree,
        allowlist::{Allowlist, Denied, LoadError, Place},
        git::Git,
        program::FixedPath,
        settings,
        trusted::Trust,
    },
    sys::digest,
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

/// The programs of a list of gates as they may run now.
#[derive(Clone, Debug)]
pub struct GatePrograms {
    /// Program file and its SHA-256, one for each gate.
    pub programs: Vec<(PathBuf, String)>,
    /// The fixed `PATH` they run with.
    pub path: String,
}

impl Ledger {
    /// Checks each gate against the allowlist and finds its program on the fixed `PATH`.
    ///
    /// # Errors
    /// All gates that may not run, as [`LedgerError::Problems`]; rules that cannot be read.
    pub fn gate_programs(
        &self,
        worktree: &Worktree,
        gates: &[GateDef],
    ) -> Result<GatePrograms, LedgerError> {
        let trust = self.trust()?;
        let repo = self.repo_in(worktree)?;
        let list = Allowlist::load(&repo, &trust).map_err(|e| rules_unreadable(&e))?;
        let path = self.fixed_path(&repo, &trust, worktree)?;
        let user_file = trust.settings.allowlist_file();
        let place = Place { trusted_ref: &trust.trusted_ref, user_file: &user_file };
        let mut programs = Vec::new();
        let mut problems = Vec::new();
        for (index, gate) in gates.iter().enumerate() {
            let argv: Vec<String> = gate.argv().map(str::to_owned).collect();
            let found = list.check(&argv, &worktree.top, &path, &place);
            match found.map_err(|e| denied(index, &e)).and_then(|a| digested(index, a.program)) {
                Ok(found) => programs.push(found),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() {
            Ok(GatePrograms { programs, path: path.as_variable() })
        } else {
            Err(LedgerError::Problems(problems))
        }
    }

    /// The fixed `PATH` of decisions 2: nothing an agent can write is on it.
    fn fixed_path(
        &self,
        repo: &gix::Repository,
        trust: &Trust,
        worktree: &Worktree,
    ) -> Result<FixedPath, LedgerError> {
        let location = self.store.location();
        let mut excluded: Vec<PathBuf> = location.worktrees()?.into_iter().map(|w| w.top).collect();
        excluded.push(location.common_dir.clone());
        let told = Git::new(&self.env, worktree)
            .and_then(|git| git.call(&["--exec-path"], &[], &[]))
            .map_err(|e| LedgerError::refused(e.code(), "git --exec-path", e.to_string()))?;
        let told = OsString::from_vec(told.trim_ascii_end().to_vec());
        excluded.push(PathBuf::from(told));
        let setting = settings::protected(repo, &trust.settings, "agentproto.path")
            .map_err(|e| LedgerError::refused(e.code(), "agentproto.path", e.to_string()))?;
        Ok(FixedPath::new(setting.as_deref(), &excluded))
    }

    /// The directory a gate runs in: its name relative to the worktree root, and its real path. Every link is
    /// resolved, and the result must lie in that worktree.
    ///
    /// # Errors
    /// `cwd-escapes-worktree`, `no-such-cwd`.
    pub fn gate_cwd(
        &self,
        worktree: &Worktree,
        typed: Option<&OsStr>,
    ) -> Result<(String, PathBuf), Problem> {
        let problem = |code: Code, why: String| Problem {
            code,
            field: "gate.cwd".to_owned(),
            why,
            hint: None,
        };
        let typed = typed.unwrap_or(OsStr::new("."));
        let asked = worktree.top.join(typed);
        let shown = typed.to_string_lossy();
        let real = match asked.canonicalize() {
            Ok(real) => real,
            Err(e) if leaves_by_name(typed) => {
                return Err(problem(
                    Code::CwdEscapes,
                    format!("'{shown}' leaves the worktree ({e})"),
                ));
            }
            Err(e) => return Err(problem(Code::NoSuchCwd, format!("'{shown}': {e}"))),
        };
        let Ok(inside) = real.strip_prefix(&worktree.top) else {
            return Err(problem(Code::CwdEscapes, format!("'{shown}' is outside the worktree")));
        };
        if !real.is_dir() {
            return Err(problem(Code::NoSuchCwd, format!("'{shown}' is no directory")));
        }
        let name = match inside.as_os_str().as_bytes() {
            b"" => ".".to_owned(),
            bytes => match std::str::from_utf8(bytes) {
                Ok(text) => text.to_owned(),
                Err(_) => {
                    return Err(problem(Code::NoSuchCwd, format!("'{shown}' is not UTF-8")));
                }
            },
        };
        Ok((name, real))
    }
}

/// True when a path goes above where it starts, by its names alone.
fn leaves_by_name(typed: &OsStr) -> bool {
    let mut depth = 0_i64;
    typed.as_bytes().split(|b| *b == b'/').any(|name| {
        match name {
            b"" | b"." => {}
            b".." => depth -= 1,
            _ => depth += 1,
        }
        depth < 0
    }) || typed.as_bytes().starts_with(b"/")
}

fn rules_unreadable(error: &LoadError) -> LedgerError {
    LedgerError::refused(error.code(), "allowlist", error.to_string())
}

fn denied(index: usize, error: &Denied) -> Problem {
    Problem {
        code: error.code(),
        field: format!("gates[{index}]"),
        why: error.to_string(),
        hint: None,
    }
}

fn digested(index: usize, program: PathBuf) -> Result<(PathBuf, String), Problem> {
    match digest::sha256_file(&program) {
        Ok(sha256) => Ok((program, sha256)),
        Err(e) => Err(Problem {
            code: Code::GateNotRunnable,
            field: format!("gates[{index}]"),
            why: format!("{}: {e}", program.display()),
            hint: None,
        }),
    }
}

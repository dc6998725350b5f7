//! What a gate may run and where: the rules asked at attach and again right before each run.
//!
//! Contract: default deny. The allowlist comes from the trusted ref and from what only the person writes;
//! programs are looked up on the fixed `PATH`, never on the caller's (decisions 1 to 3). Directories are judged
//! by where they really are, every link resolved.

use super::{Ledger, LedgerError, Problem};
use crate::{
    code::Code,
    domain::{gate::GateDef, ids::PolicyId},
    limits,
    store::{
        Worktree,
        allowlist::{Allowlist, Denied, Listed, Place},
        git::{Git, GitError},
        program::{FixedPath, ProgramError},
        settings::{EnvRules, RepoSettings, SettingsError, protected},
        trusted::{Trust, TrustedError},
    },
    sys::{
        digest,
        files::{self, FileError},
    },
};
use std::{
    ffi::OsStr,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// The key of the fixed `PATH`.
pub(super) const PATH_KEY: &str = "agentproto.path";

/// The rules of a repository about programs, as they are now.
pub(super) struct GateRules {
    allowlist: Allowlist,
    path: FixedPath,
    /// What a person says of the environment of gates.
    pub(super) env: EnvRules,
    trusted_ref: String,
    user_file: PathBuf,
    settings_file: PathBuf,
    callers_path: Option<std::ffi::OsString>,
}

impl GateRules {
    /// The file that a command starts in `worktree` and the SHA-256 of it.
    pub(super) fn find(
        &self,
        argv: &[String],
        worktree: &Worktree,
        field: &str,
    ) -> Result<(PathBuf, String), Problem> {
        let place = Place { trusted_ref: &self.trusted_ref, user_file: &self.user_file };
        let allowed = self.allowlist.check(argv, &worktree.top, &self.path, &place);
        let program = allowed.map_err(|denied| self.denied(&denied, argv, field))?.program;
        match digest::sha256_file(&program) {
            Ok(digest) => Ok((program, digest)),
            Err(e) => {
                let why = format!("cannot read {}: {e}", program.display());
                Err(Problem { code: Code::GateNotFound, field: field.to_owned(), why, hint: None })
            }
        }
    }

    /// True when some entry allows the command, be its program there or not.
    pub(super) fn lists(&self, argv: &[String], worktree: &Worktree) -> bool {
        let place = Place { trusted_ref: &self.trusted_ref, user_file: &self.user_file };
        match self.allowlist.check(argv, &worktree.top, &self.path, &place) {
            Ok(_) | Err(Denied::Program(_)) => true,
            Err(Denied::NotListed { .. }) => false,
        }
    }

    fn denied(&self, denied: &Denied, argv: &[String], field: &str) -> Problem {
        let hint = match denied {
            Denied::Program(ProgramError::NotFound { name, .. }) => self.where_it_is(name),
            Denied::Program(ProgramError::NotExecutable(file)) => {
                Some(format!("it is there; make it executable: chmod +x {}", file.display()))
            }
            Denied::Program(ProgramError::Unreadable { .. }) => {
                Some("names with a slash are files seen from the top of the worktree".to_owned())
            }
            Denied::Program(ProgramError::Outside { .. }) => {
                Some("name a file of the worktree, or a program by its bare name".to_owned())
            }
            Denied::Program(ProgramError::Empty) => None,
            // The sentence has the exact command that allows it.
            Denied::NotListed { .. } => needs_a_shell(argv)
                .or_else(|| Some("see what may run: git agentproto allow".into())),
        };
        Problem { code: denied.code(), field: field.to_owned(), why: denied.to_string(), hint }
    }

    /// The caller's `PATH` decides nothing, but it can tell what the fixed one lacks.
    fn where_it_is(&self, name: &str) -> Option<String> {
        let dirs = std::env::split_paths(self.callers_path.as_deref()?);
        let there = |dir: &Path| files::is_file(&dir.join(name)).unwrap_or(false);
        let dir = dirs.into_iter().find(|dir| dir.is_absolute() && there(dir))?;
        let (dir, file) = (dir.display(), self.settings_file.display());
        Some(format!("it is in {dir}: add that to {PATH_KEY} in {file}"))
    }
}

/// Words that mean something to a shell only.
const SHELL_WORDS: [&str; 7] = ["&&", "||", "|", ";", "&", ">", "<"];

/// Allowing such a command would not make it do what is meant.
pub(super) fn needs_a_shell(argv: &[String]) -> Option<String> {
    let word = argv.iter().find(|word| SHELL_WORDS.contains(&word.as_str()))?;
    Some(format!(
        "gates run without a shell, '{word}' would be an argument: name each command with --gate, or allow a script"
    ))
}

impl Ledger {
    /// What may run as a gate, and where it says so.
    ///
    /// # Errors
    /// A source cannot be read or understood.
    pub fn allowed(&self) -> Result<Vec<Listed>, LedgerError> {
        let list = Allowlist::load(&self.repo()?, &self.trust()?);
        let list = list.map_err(|e| LedgerError::refused(e.code(), "allowlist", e.to_string()))?;
        Ok(list.listed())
    }

    /// The rules about programs in force now.
    pub(super) fn gate_rules(
        &self,
        worktree: &Worktree,
        trust: &Trust,
    ) -> Result<GateRules, LedgerError> {
        let repo = self.repo_in(worktree)?;
        let allowlist = Allowlist::load(&repo, trust)
            .map_err(|e| LedgerError::refused(e.code(), "allowlist", e.to_string()))?;
        Ok(GateRules {
            allowlist,
            path: self.fixed_path_with(worktree, trust)?,
            env: EnvRules::load(&repo, &trust.settings).map_err(settings_error)?,
            trusted_ref: trust.trusted_ref.clone(),
            user_file: trust.settings.allowlist_file(),
            settings_file: trust.settings.dir().join("settings"),
            callers_path: self.env.get("PATH").map(OsStr::to_owned),
        })
    }

    /// The directories where programs of gates are found, and the `PATH` that gates get.
    ///
    /// # Errors
    /// The person's settings cannot be read, or git does not say where its own programs are.
    pub fn fixed_path(&self, worktree: &Worktree) -> Result<FixedPath, LedgerError> {
        self.fixed_path_with(worktree, &self.trust()?)
    }

    /// What a person says of the environment of gates.
    ///
    /// # Errors
    /// The settings cannot be read.
    pub fn env_rules(&self, worktree: &Worktree) -> Result<EnvRules, LedgerError> {
        let repo = self.repo_in(worktree)?;
        EnvRules::load(&repo, &self.trust()?.settings).map_err(settings_error)
    }

    fn fixed_path_with(
        &self,
        worktree: &Worktree,
        trust: &Trust,
    ) -> Result<FixedPath, LedgerError> {
        let repo = self.repo_in(worktree)?;
        let setting = protected(&repo, &trust.settings, PATH_KEY).map_err(settings_error)?;
        Ok(FixedPath::new(setting.as_deref(), &self.never_on_path(worktree)?))
    }

    /// Directories whose programs no gate starts by a bare name: what agents write, and git's plumbing.
    pub(super) fn never_on_path(&self, worktree: &Worktree) -> Result<Vec<PathBuf>, LedgerError> {
        let failed =
            |e: &GitError| LedgerError::refused(e.code(), "git --exec-path", e.to_string());
        let git = Git::new(&self.env, worktree).map_err(|e| failed(&e))?;
        let said = git.call(&["--exec-path"], b"", &[]).map_err(|e| failed(&e))?;
        let exec_path = PathBuf::from(std::ffi::OsString::from_vec(said.trim_ascii_end().to_vec()));
        if !exec_path.is_absolute() {
            let because = format!("'{}' is no absolute path", exec_path.display());
            return Err(LedgerError::refused(Code::GitFailed, "git --exec-path", because));
        }
        let location = self.store.location();
        let mut dirs = vec![location.common_dir.clone(), exec_path];
        dirs.extend(location.worktrees()?.into_iter().map(|w| w.top));
        Ok(dirs)
    }

    /// The program of each gate with its SHA-256, resolved anew and held against the allowlist as it is now.
    ///
    /// # Errors
    /// [`LedgerError::Problems`] with every gate that may not or cannot run; the rules cannot be read.
    pub fn gate_programs(
        &self,
        worktree: &Worktree,
        gates: &[GateDef],
    ) -> Result<Vec<(PathBuf, String)>, LedgerError> {
        let rules = self.gate_rules(worktree, &self.trust()?)?;
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for (index, gate) in gates.iter().enumerate() {
            let argv: Vec<String> = gate.argv().map(str::to_owned).collect();
            match rules.find(&argv, worktree, &format!("gates[{index}]")) {
                Ok(program) => found.push(program),
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(found) } else { Err(LedgerError::Problems(problems)) }
    }

    /// The directory a gate runs in, looked at anew: it may have become a link since the attach.
    ///
    /// # Errors
    /// It is gone or leads out of the worktree.
    pub fn gate_dir(&self, worktree: &Worktree, gate: &GateDef) -> Result<PathBuf, LedgerError> {
        let below = anchor(&worktree.top, OsStr::new(&gate.cwd))?;
        // `PWD` is told as a shell would.
        Ok(if below == "." { worktree.top.clone() } else { worktree.top.join(below) })
    }

    /// The programs a policy's gates resolved to on this machine when it was attached; none when nobody
    /// knows any more, which is said when it is because the note is damaged.
    ///
    /// # Errors
    /// They are written down and cannot be read.
    pub fn attached_programs(
        &self,
        policy: &PolicyId,
    ) -> Result<Option<Vec<PathBuf>>, LedgerError> {
        let path = self.programs_file(policy);
        let failed = |e: &dyn std::fmt::Display| {
            LedgerError::refused(Code::Io, &path.display().to_string(), e.to_string())
        };
        let Some(bytes) =
            files::read_own(&path, limits::SMALL_FILE_BYTES).map_err(|e| failed(&e))?
        else {
            return Ok(None);
        };
        match serde_json::from_slice::<Programs>(&bytes) {
            Ok(found) => Ok(Some(found.programs)),
            Err(e) => {
                self.store.said().add(format!(
                    "warning: {} is damaged ({e}); the programs of {policy} are looked for anew",
                    path.display()
                ));
                Ok(None)
            }
        }
    }

    /// Notes on this machine where the programs were found: absolute paths never go under a ref. Losing the
    /// note loses nothing, the programs are resolved again, so that it cannot be written is no failure.
    pub(super) fn keep_programs(&self, policy: &PolicyId, programs: &[PathBuf]) {
        let path = self.programs_file(policy);
        let write = || -> Result<(), FileError> {
            let form = Programs { programs: programs.to_vec() };
            let bytes = serde_json::to_vec(&form).map_err(std::io::Error::from);
            let bytes = bytes.map_err(|e| FileError::new("encode", &path, e))?;
            // As a whole or not at all: half a note would say that there were no programs.
            files::write_private(&path, &bytes)
        };
        // As said above: without the note everything still works.
        let _ = write();
    }

    fn programs_file(&self, policy: &PolicyId) -> PathBuf {
        self.store.location().agent_dir().join("local").join(format!("{policy}.json"))
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Programs {
    programs: Vec<PathBuf>,
}

/// The place of a directory below the top (a real path) of a worktree, `.` for the top itself.
pub(super) fn anchor(top: &Path, typed: &OsStr) -> Result<String, LedgerError> {
    let shown = Path::new(typed).display().to_string();
    let refused = |code, why: &str| LedgerError::refused(code, &shown, why);
    if typed.is_empty() {
        return Err(refused(Code::NoSuchCwd, "an empty name is no directory"));
    }
    let no_such = |e: FileError| refused(Code::NoSuchCwd, &e.source.to_string());
    let real = files::real(&top.join(typed)).map_err(no_such)?;
    let escapes = || refused(Code::CwdEscapes, &format!("it is not inside {}", top.display()));
    let below = real.strip_prefix(top).map_err(|_| escapes())?;
    if below.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(b".git")) {
        return Err(refused(Code::CwdEscapes, "git's own directory is no part of the worktree"));
    }
    if !files::is_dir(&real).map_err(no_such)? {
        return Err(refused(Code::NoSuchCwd, "it is not a directory"));
    }
    match below.to_str() {
        Some("") => Ok(".".to_owned()),
        Some(text) => Ok(text.to_owned()),
        None => Err(refused(Code::NoSuchCwd, "its name is not UTF-8 and cannot be recorded")),
    }
}

/// How many policies may have their gates run at once.
const CONCURRENCY: &str = "agentproto.gateConcurrency";

fn concurrency(value: &str) -> Result<u32, SettingsError> {
    let number = value.parse().ok().filter(|n| (1..=limits::GATE_CONCURRENCY_MAX).contains(n));
    number.ok_or_else(|| SettingsError::Value {
        key: CONCURRENCY.to_owned(),
        value: value.to_owned(),
        why: "not a number from 1 to 1024",
    })
}

impl Ledger {
    /// How many policies may have their gates run at once here: what a person set.
    ///
    /// # Errors
    /// The settings cannot be read or understood.
    pub fn gate_concurrency(&self) -> Result<u32, LedgerError> {
        let settings = RepoSettings::load(&self.env, self.repo_id()?).map_err(settings_error)?;
        let set = protected(&self.repo()?, &settings, CONCURRENCY).map_err(settings_error)?;
        let number = set.map(|text| concurrency(&text)).transpose().map_err(settings_error)?;
        Ok(number.unwrap_or(limits::GATE_CONCURRENCY))
    }
}

/// Settings are part of what is trusted, and so are their errors.
pub(super) fn settings_error(error: SettingsError) -> LedgerError {
    TrustedError::from(error).into()
}

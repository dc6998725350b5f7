//! The machine: git, the operating system, who keeps the deadline of a gate, manual pages.

use super::{Cx, Findings};
use crate::{
    cli::error::CliError,
    code::Code,
    ledger::Ledger,
    limits,
    store::{git::find_program, location::discover},
    sys::{
        env::Env,
        files, process,
        spawn::{self, Call, Done},
    },
};
use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

/// The oldest git that has what is used: `git hook run`.
const OLDEST_GIT: (u32, u32) = (2, 36);
/// The first git that has reftables.
const REFTABLE_GIT: (u32, u32) = (2, 45);
/// The git everything was tested with.
const TESTED_GIT: (u32, u32) = (2, 47);

fn asked(env: &Env, program: &Path, args: &[&str]) -> Result<Done, CliError> {
    let call = Call {
        program: program.to_owned(),
        args: args.iter().map(OsString::from).collect(),
        cwd: "/".into(),
        env: env.vars().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        stdin: vec![],
        deadline_ms: limits::GIT_CALL_MS,
    };
    spawn::run(&call).map_err(|e| CliError::new(Code::GitFailed, e.to_string()))
}

/// A program of the machine, found as everything here finds git: nothing in the worktree is taken for it.
pub(in crate::cli) fn program(env: &Env, name: &str) -> Option<PathBuf> {
    let here = discover(env).ok().and_then(|location| location.worktree);
    let outside = here.as_ref().map(|w| [w.top.as_path(), w.git_dir.as_path()]);
    find_program(env, outside.as_ref().map_or(&[], |dirs| dirs), name)
}

fn git_version(env: &Env) -> Result<(String, Option<(u32, u32)>), CliError> {
    let program = program(env, "git").ok_or_else(|| {
        CliError::new(Code::GitFailed, "there is no git on PATH outside of the worktree")
    })?;
    let said = asked(env, &program, &["--version"])?;
    let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let version = version_of(&said);
    Ok((format!("{said} ({})", program.display()), version))
}

/// Major and minor number in the words `git version 2.47.3 (…)`.
fn version_of(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.split(' ').nth(2)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

pub(super) fn git(cx: &Cx, findings: &mut Findings) -> Result<(), CliError> {
    let (said, version) = git_version(&cx.env)?;
    let Some(version) = version else {
        let message = format!("the version of git cannot be read from: {said}");
        return Err(CliError::new(Code::GitFailed, message));
    };
    if version < OLDEST_GIT {
        findings.problem(said, "install git 2.36 or newer: older ones cannot run hooks for others");
    } else if version < TESTED_GIT {
        findings.note(said, "tested is git 2.47; older ones have what is used, as far as is known");
    } else {
        findings.fine(said);
    }
    Ok(())
}

/// What the repository asks of git.
pub(super) fn refs(ledger: &Ledger, findings: &mut Findings) -> Result<(), CliError> {
    let location = ledger.store().location();
    if !files::is_dir(&location.common_dir.join("reftable")).map_err(|e| of_file(&e))? {
        findings.fine("refs are kept in files");
        return Ok(());
    }
    match git_version(ledger.env())? {
        (_, Some(version)) if version >= REFTABLE_GIT => {
            findings.fine("refs are kept in reftables")
        }
        (said, Some(_)) => findings.problem(
            format!("refs are kept in reftables, which this git cannot read: {said}"),
            "install git 2.45 or newer",
        ),
        (said, None) => {
            let message = format!("the version of git cannot be read from: {said}");
            return Err(CliError::new(Code::GitFailed, message));
        }
    }
    Ok(())
}

pub(super) fn platform(_cx: &Cx, findings: &mut Findings) -> Result<(), CliError> {
    let system = rustix::system::uname();
    let (name, release) = (system.sysname().to_string_lossy(), system.release().to_string_lossy());
    // Gates are watched by what /proc tells of processes.
    process::own().map_err(|e| CliError::new(Code::Io, format!("/proc cannot be read: {e}")))?;
    findings.fine(format!(
        "{name} {release}: supported; the whole process tree of a gate ends with it (child subreaper)"
    ));
    Ok(())
}

/// The directory of this process's own cgroup.
const CGROUPS: &str = "/sys/fs/cgroup";

pub(super) fn deadlines(_cx: &Cx, findings: &mut Findings) -> Result<(), CliError> {
    let own = files::read_optional(Path::new("/proc/self/cgroup"), limits::SETTINGS_FILE_BYTES);
    let own = own.map_err(|e| of_file(&e))?.unwrap_or_default();
    let line = own.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"0::/"));
    let cgroup = match line {
        Some(below) => {
            let dir = Path::new(CGROUPS).join(OsString::from_vec(below.to_vec()));
            let may = if files::is_writable(&dir) { "may" } else { "may not" };
            format!("this user {may} make cgroups here, and none is needed")
        }
        None => "there is no unified cgroup here, and none is needed".to_owned(),
    };
    findings.note(
        format!("a gate's runner keeps its deadline; {cgroup}"),
        "if the runner and who started it are both killed, the next command that performs ends the gate, or \
         git agentproto supervise --once",
    );
    Ok(())
}

/// Where git looks for what `git agentproto --help` shows.
pub(in crate::cli) enum Manual {
    /// There is no `man`.
    NoProgram,
    /// It knows no page of ours.
    NotFound,
    /// It shows this file.
    At(String),
}

/// Asks `man` for the page of the program.
pub(in crate::cli) fn manual_page(env: &Env) -> Result<Manual, CliError> {
    let Some(man) = program(env, "man") else { return Ok(Manual::NoProgram) };
    let found = asked(env, &man, &["-w", "git-agentproto"])?;
    let place = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    Ok(if found.status.success() { Manual::At(place) } else { Manual::NotFound })
}

pub(super) fn manual(cx: &Cx, findings: &mut Findings) -> Result<(), CliError> {
    match manual_page(&cx.env)? {
        Manual::At(place) => findings.fine(format!("git agentproto --help shows {place}")),
        Manual::NoProgram => findings.note(
            "git agentproto --help shows nothing: there is no man program on PATH",
            "git agentproto -h and git agentproto help work",
        ),
        Manual::NotFound => findings.note(
            "git agentproto --help finds no manual page",
            "git agentproto -h and git agentproto help work; to have the pages: git agentproto man --install",
        ),
    }
    Ok(())
}

fn of_file(error: &files::FileError) -> CliError {
    CliError::new(error.code(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_git_says_them() {
        for (said, want) in [
            ("git version 2.47.3", Some((2, 47))),
            ("git version 2.39.5 (Apple Git-154)", Some((2, 39))),
            ("git version 2.50.0.rc1.5.gabc", Some((2, 50))),
            ("git version x", None),
            ("", None),
        ] {
            assert_eq!(version_of(said), want, "{said}");
        }
    }
}

//! The environment of a gate: a keep-list (decision 10), never an inheritance.
//!
//! Contract: a variable reaches a gate because it is named here or in the user's `agentproto.gateEnv`.
//! What redirects git or loads code into every program (`GIT_*`, `LD_*`, `BASH_ENV`, `ENV`) never does,
//! whoever names it: a gate that runs its own git must not hit the supervised repository.

use crate::sys::env::Env;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

const KEPT: [&str; 20] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "GOPATH",
    "GOCACHE",
    "JAVA_HOME",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
const KEPT_PREFIXES: [&str; 6] = ["LC_", "XDG_", "CARGO_", "RUSTUP_", "NVM_", "PYENV_"];
const NEVER: [&str; 2] = ["BASH_ENV", "ENV"];
const NEVER_PREFIXES: [&str; 2] = ["GIT_", "LD_"];

/// What a gate is told about itself.
#[derive(Clone, Copy, Debug)]
pub struct GateVars<'a> {
    /// Policy id.
    pub policy: &'a str,
    /// Session id.
    pub session: &'a str,
    /// Absolute path of the session's worktree.
    pub worktree: &'a Path,
    /// Attempt, from 1.
    pub attempt: u32,
}

/// The whole environment of a gate that runs in `cwd`, sorted by name.
#[must_use]
pub fn gate_env(
    caller: &Env,
    fixed_path: &OsStr,
    extra_names: &[String],
    own: &GateVars<'_>,
    cwd: &Path,
) -> Vec<(OsString, OsString)> {
    let kept = caller.vars().filter(|(name, _)| {
        is_kept(name) || (extra_names.iter().any(|n| OsStr::new(n) == *name) && !is_never(name))
    });
    let mut vars: BTreeMap<OsString, OsString> =
        kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    // Last, so that nothing above can stand in for them.
    let ours: [(&str, OsString); 7] = [
        ("PATH", fixed_path.to_owned()),
        ("PWD", cwd.into()),
        ("CI", "true".into()),
        ("AGENTPROTO_POLICY_ID", own.policy.into()),
        ("AGENTPROTO_SESSION_ID", own.session.into()),
        ("AGENTPROTO_WORKTREE", own.worktree.into()),
        ("AGENTPROTO_ATTEMPT", own.attempt.to_string().into()),
    ];
    vars.extend(ours.map(|(name, value)| (name.into(), value)));
    vars.into_iter().collect()
}

/// Whether a variable may never reach a gate, not by `agentproto.gateEnv` and not by `gate.env`.
#[must_use]
pub fn is_never(name: &OsStr) -> bool {
    matches(name, &NEVER, &NEVER_PREFIXES)
}

fn is_kept(name: &OsStr) -> bool {
    matches(name, &KEPT, &KEPT_PREFIXES)
}

fn matches(name: &OsStr, names: &[&str], prefixes: &[&str]) -> bool {
    names.iter().any(|n| OsStr::new(n) == name)
        || prefixes.iter().any(|p| name.as_bytes().starts_with(p.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(caller: &[(&str, &str)], extra: &[&str], expected: &[(&str, &str)]) {
        let vars = caller.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
        let caller = Env::fixed("/home/t".into(), vars);
        let extra: Vec<String> = extra.iter().map(|n| (*n).to_owned()).collect();
        let own = GateVars { policy: "pol", session: "ses", worktree: Path::new("/w"), attempt: 3 };
        let got = gate_env(&caller, OsStr::new("/usr/bin"), &extra, &own, Path::new("/w/sub"));
        let ours = [
            ("AGENTPROTO_ATTEMPT", "3"),
            ("AGENTPROTO_POLICY_ID", "pol"),
            ("AGENTPROTO_SESSION_ID", "ses"),
            ("AGENTPROTO_WORKTREE", "/w"),
            ("CI", "true"),
            ("PATH", "/usr/bin"),
            ("PWD", "/w/sub"),
        ];
        let mut want: Vec<(OsString, OsString)> =
            ours.iter().chain(expected).map(|(k, v)| ((*k).into(), (*v).into())).collect();
        want.sort();
        assert_eq!(got, want);
    }

    #[test]
    fn keeps_what_is_listed_and_nothing_else() {
        check(
            &[
                ("HOME", "/home/t"),
                ("LC_ALL", "C"),
                ("XDG_CACHE_HOME", "/c"),
                ("https_proxy", "p"),
                ("NO_PROXY", "q"),
                ("CARGO_HOME", "/k"),
                ("API_TOKEN", "s3cr3t"),
                ("LANGUAGE", "x"),
                ("CDPATH", "/x"),
                ("PATH", "/evil"),
                ("PWD", "/else"),
                ("CI", ""),
                ("AGENTPROTO_SESSION_ID", "another"),
                ("HOMEBREW", "x"),
            ],
            &[],
            &[
                ("HOME", "/home/t"),
                ("LC_ALL", "C"),
                ("XDG_CACHE_HOME", "/c"),
                ("https_proxy", "p"),
                ("NO_PROXY", "q"),
                ("CARGO_HOME", "/k"),
            ],
        );
    }

    #[test]
    fn case_93_nothing_of_git_leaks_not_even_by_name() {
        let leaks = [
            ("GIT_DIR", "/r/.git"),
            ("GIT_INDEX_FILE", "i"),
            ("GIT_PREFIX", "x/"),
            ("GIT_EDITOR", ":"),
            ("GIT_CONFIG_PARAMETERS", "'a=b'"),
            ("GIT_AUTHOR_DATE", "1"),
            ("LD_PRELOAD", "l"),
            ("BASH_ENV", "b"),
            ("ENV", "e"),
        ];
        check(&leaks, &[], &[]);
        check(&leaks, &leaks.map(|(name, _)| name), &[]);
    }

    #[test]
    fn gate_env_adds_by_name_but_never_replaces_ours() {
        let caller = [("API_TOKEN", "t"), ("PATH", "/evil"), ("AGENTPROTO_POLICY_ID", "another")];
        check(
            &caller,
            &["API_TOKEN", "PATH", "AGENTPROTO_POLICY_ID", "ABSENT"],
            &[("API_TOKEN", "t")],
        );
    }
}

//! The environment of a gate: a keep-list (decision 10), never an inheritance.
//!
//! Whoever starts the performer chooses the values, and that may be the session whose work is judged. So of the
//! families that are kept, what chooses a program or its flags is left out: a red gate must not turn green
//! by a linker, a flag or a toolchain that the session names. A person who means one names it in
//! `agentproto.gateEnv`. What this does not do is in `docs/adr/0004`.
//!
//! Contract: a variable reaches a gate because it is named here, in the user's `agentproto.gateEnv`,
//! or in the gate's definition, which is recorded and shown to whoever approves. What redirects git or loads code into
//! every program ([`crate::domain::variable::is_never`]) never does, whoever names it.

use crate::{
    domain::variable::{is_never, is_ours},
    store::settings::EnvRules,
    sys::env::Env,
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

const KEPT: [&str; 24] = [
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
    "NVM_DIR",
    "NVM_BIN",
    "NVM_INC",
    "PYENV_ROOT",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
];
const KEPT_PREFIXES: [&str; 4] = ["LC_", "XDG_", "CARGO_", "RUSTUP_"];
/// Of the kept families: what chooses a program, its flags, or the code it is given.
const CHOOSING_PREFIXES: [&str; 9] = [
    "CARGO_ALIAS_",
    "CARGO_BUILD_",
    "CARGO_ENCODED_",
    "CARGO_HOST_",
    "CARGO_PROFILE_",
    "CARGO_SOURCE_",
    "CARGO_TARGET_",
    "CARGO_UNSTABLE_",
    "RUSTUP_TOOLCHAIN",
];
/// Ends of names that choose a program.
const CHOOSING_SUFFIXES: [&str; 2] = ["_CREDENTIAL_PROVIDER", "_CREDENTIAL_PROVIDERS"];
/// One of the family `CARGO_TARGET_*` that only says where files go.
const TARGET_DIR: &str = "CARGO_TARGET_DIR";

/// What a gate is told about itself.
#[derive(Clone, Copy, Debug)]
pub struct GateVars<'a> {
    /// Policy id and attempt, from 1; none where it is no policy's gate.
    pub policy: Option<(&'a str, u32)>,
    /// Session id.
    pub session: &'a str,
    /// Absolute path of the session's worktree.
    pub worktree: &'a Path,
}

/// What is asked for beside the keep-list.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What a person's settings say.
    pub rules: &'a EnvRules,
    /// Variables of the definition, which win over those of the caller.
    pub set: &'a BTreeMap<String, String>,
    /// Nothing of the caller's.
    pub clean: bool,
}

/// The whole environment of a gate that runs in `cwd`, sorted by name.
#[must_use]
pub fn gate_env(
    caller: &Env,
    fixed_path: &OsStr,
    asked: &Asked<'_>,
    own: &GateVars<'_>,
    cwd: &Path,
) -> Vec<(OsString, OsString)> {
    let kept = caller.vars().filter(|(name, _)| !asked.clean && is_inherited(name, asked.rules));
    let mut vars: BTreeMap<OsString, OsString> =
        kept.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let set = asked.set.iter().filter(|(name, _)| !is_never(name.as_bytes()));
    vars.extend(set.map(|(name, value)| (name.into(), value.into())));
    // Last, so that nothing above can stand in for them.
    let ours: [(&str, OsString); 5] = [
        ("PATH", fixed_path.to_owned()),
        ("PWD", cwd.into()),
        ("CI", "true".into()),
        ("AGENTPROTO_SESSION_ID", own.session.into()),
        ("AGENTPROTO_WORKTREE", own.worktree.into()),
    ];
    vars.retain(|name, _| !is_ours(name.as_bytes()));
    vars.extend(ours.map(|(name, value)| (name.into(), value)));
    if let Some((policy, attempt)) = own.policy {
        vars.insert("AGENTPROTO_POLICY_ID".into(), policy.into());
        vars.insert("AGENTPROTO_ATTEMPT".into(), attempt.to_string().into());
    }
    vars.into_iter().collect()
}

/// A variable that a person names reaches a gate even if it is like a secret: that is what it was named for.
fn is_inherited(name: &OsStr, rules: &EnvRules) -> bool {
    let named = rules.named.iter().any(|n| OsStr::new(n) == name);
    (named && !is_never(name.as_bytes())) || (is_kept(name) && !rules.is_secret(name.as_bytes()))
}

fn is_kept(name: &OsStr) -> bool {
    matches(name, &KEPT, &KEPT_PREFIXES) && (name == TARGET_DIR || !chooses(name))
}

fn chooses(name: &OsStr) -> bool {
    let ends = |s: &&str| name.as_bytes().ends_with(s.as_bytes());
    matches(name, &[], &CHOOSING_PREFIXES) || CHOOSING_SUFFIXES.iter().any(ends)
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
        let named = extra.iter().map(|n| (*n).to_owned()).collect();
        let rules = EnvRules { named, secret: vec!["*_secret".into()] };
        let asked = Asked { rules: &rules, set: &BTreeMap::new(), clean: false };
        compare(&caller, &asked, expected);
    }

    fn compare(caller: &Env, asked: &Asked<'_>, expected: &[(&str, &str)]) {
        let own = GateVars { policy: Some(("pol", 3)), session: "ses", worktree: Path::new("/w") };
        let got = gate_env(caller, OsStr::new("/usr/bin"), asked, &own, Path::new("/w/sub"));
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
    fn what_chooses_a_program_or_its_flags_needs_a_persons_word() {
        let choosing = [
            ("CARGO_ALIAS_TEST", "help"),
            ("CARGO_BUILD_RUSTC", "/w/mine"),
            ("CARGO_BUILD_RUSTFLAGS", "--cap-lints=allow"),
            ("CARGO_ENCODED_RUSTFLAGS", "--cap-lints=allow"),
            ("CARGO_HOST_LINKER", "/w/mine"),
            ("CARGO_PROFILE_TEST_DEBUG_ASSERTIONS", "false"),
            ("CARGO_REGISTRIES_OWN_CREDENTIAL_PROVIDER", "/w/mine"),
            ("CARGO_REGISTRY_GLOBAL_CREDENTIAL_PROVIDERS", "/w/mine"),
            ("CARGO_SOURCE_CRATES_IO_REPLACE_WITH", "mine"),
            ("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "true"),
            ("CARGO_UNSTABLE_BUILD_STD", "std"),
            ("NVM_SYMLINK_CURRENT", "true"),
            ("PYENV_VERSION", "mine"),
            ("RUSTUP_TOOLCHAIN", "mine"),
        ];
        check(&choosing, &[], &[]);
        check(&choosing, &choosing.map(|(name, _)| name), &choosing);
        let places = [
            ("CARGO_NET_OFFLINE", "true"),
            ("CARGO_REGISTRIES_OWN_INDEX", "sparse+https://index.example.invalid/"),
            ("CARGO_TARGET_DIR", "/t"),
            ("NVM_DIR", "/n"),
            ("PYENV_ROOT", "/p"),
            ("RUSTUP_HOME", "/r"),
        ];
        check(&places, &[], &places);
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

    #[test]
    fn what_a_person_calls_secret_is_kept_back_unless_it_is_named() {
        let caller = [("CARGO_REGISTRY_SECRET", "t"), ("XDG_SECRETS", "s")];
        check(&caller, &[], &[("XDG_SECRETS", "s")]);
        check(&caller, &["CARGO_REGISTRY_SECRET"], &caller);
    }

    #[test]
    fn the_definition_wins_over_the_caller_but_not_over_us() {
        let caller = [("HOME", "/home/t"), ("LANG", "C"), ("NAMED", "1")];
        let vars = caller.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
        let caller = Env::fixed("/home/t".into(), vars);
        let rules = EnvRules { named: vec!["NAMED".into()], secret: vec![] };
        let set = [("LANG", "de"), ("MODE", "a=b"), ("PATH", "/evil"), ("LD_PRELOAD", "x")];
        let set = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let asked = Asked { rules: &rules, set: &set, clean: false };
        let all = [("HOME", "/home/t"), ("LANG", "de"), ("MODE", "a=b"), ("NAMED", "1")];
        compare(&caller, &asked, &all);
        let clean = Asked { clean: true, ..asked };
        compare(&caller, &clean, &[("LANG", "de"), ("MODE", "a=b")]);
    }
}

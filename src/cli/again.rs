//! Asking for the same once more, after a no: the command as the reader has to type it.
//!
//! Contract: people read paths as seen from where they stand, programs as seen from the worktree's root, which
//! `-C` names. What was wrong in the first place is not repeated.

use super::{cx::Cx, error::CliError, names::Names, text};
use crate::{
    code::Code,
    domain::{
        gate::{Gate, GateDef},
        path::RepoPath,
        policy::{CommitSpec, OnStale, Policy, PolicySpec},
        session::Session,
    },
    ledger::Ledger,
    limits,
    sys::files,
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

/// What a person has to correct before anything can be asked again.
const CHECK_THE_PATH: &str = "check the path, then ask again with the right --path";

/// Where the command will be typed.
#[derive(Debug, Default)]
struct Place {
    /// The directory named by `-C`; none where the reader stands in the worktree.
    dir: Option<String>,
    /// Where the reader stands below the root of the worktree.
    below: Vec<u8>,
}

/// How a command of ours begins where it is typed next to this repository.
pub(super) const TOOL: &str = "git agentproto";

/// The same where the reader stands: elsewhere it names the directory. Programs know where they called.
pub(super) fn tool(cx: &Cx, ledger: &Ledger) -> String {
    let location = ledger.store().location();
    let top = location.worktree.as_ref().map_or(&location.common_dir, |w| &w.top);
    if cx.json || stands_in(cx, top) {
        return TOOL.to_owned();
    }
    format!("{TOOL} -C {}", shell_word(top.as_os_str()))
}

/// The command that asks for the same once more; terminal things never reopen. What no command can say, words do.
pub(super) fn again(cx: &Cx, ledger: &Ledger, policy: &Policy) -> Result<String, CliError> {
    let names = if cx.json { Names::default() } else { Names::load(cx, ledger)? };
    let (mut alive, mut place, mut all_count) = (Vec::new(), Place::default(), true);
    for id in &policy.spec.session_ids {
        let Some(session) = ledger.session(id)? else { continue };
        place = Place::of(cx, ledger, &session.worktree)?;
        all_count &= has_or_may_finish(&session, policy);
        if !session.is_exited() {
            alive.push(names.of_session(&session));
        }
    }
    let regate = format!("{} policy regate {}", tool(cx, ledger), policy.policy_id);
    let has_flags = has_flags(policy, alive.is_empty());
    if policy.reason.as_deref() == Some(Code::NoSuchPath.as_str()) {
        let command = words(policy, &alive, &place).ok().filter(|_| has_flags);
        return Ok(command.map_or(CHECK_THE_PATH.to_owned(), |c| format!("{CHECK_THE_PATH}: {c}")));
    }
    match words(policy, &alive, &place) {
        Ok(command) if has_flags => Ok(command),
        // The same turns are gated again where all of them count.
        Ok(_) | Err(_) if all_count => Ok(regate),
        Ok(_) => Ok(place.begin_anew(None)),
        Err(words) if has_flags => Ok(words),
        Err(_) => Ok(place.begin_anew(None)),
    }
}

/// Whether a policy of the same turns can still get an answer of this session.
fn has_or_may_finish(session: &Session, policy: &Policy) -> bool {
    !session.is_exited() || session.finished_at().is_some_and(|seq| seq > policy.spec.base)
}

/// True when flags can say all of it: what a file said of one gate, or of what follows, they cannot. Where a commit has no
/// session left, none of them is named.
fn has_flags(policy: &Policy, is_alone: bool) -> bool {
    let PolicySpec { gates, gate_session, next, commit, .. } = &policy.spec;
    let alike = |a: &GateDef, b: &GateDef| {
        (&a.cwd, a.timeout_ms, &a.protect, &a.env) == (&b.cwd, b.timeout_ms, &b.protect, &b.env)
    };
    let shells: Vec<&GateDef> = gates.iter().filter_map(Gate::shell).map(|g| &g.def).collect();
    // Flags make one scope, judged first.
    let first = usize::from(matches!(gates.first(), Some(Gate::Scope(_))));
    let same = shells.windows(2).all(|pair| alike(pair[0], pair[1]))
        && gates.len() == shells.len() + first;
    let in_its_place = gate_session.is_none() || (is_alone && commit.is_some());
    same && in_its_place && next.is_none()
}

impl Place {
    fn of(cx: &Cx, ledger: &Ledger, worktree: &str) -> Result<Self, CliError> {
        let location = ledger.store().location();
        let here =
            location.worktree.as_ref().is_some_and(|w| w.id == worktree && stands_in(cx, &w.top));
        if here && !cx.json {
            return Ok(Self { dir: None, below: location.prefix.clone() });
        }
        // A worktree that is gone has no place to name.
        let dir = ledger.worktree(worktree)?.map(|w| w.top.display().to_string());
        Ok(Self { dir, below: Vec::new() })
    }

    /// How a command of ours begins there.
    fn tool(&self) -> String {
        let dir = self.dir.iter().map(|dir| format!(" -C {}", shell_word(OsStr::new(dir))));
        std::iter::once(TOOL.to_owned()).chain(dir).collect()
    }

    /// What to do where no session is left, with the flags that can be told.
    fn begin_anew(&self, flags: Option<&str>) -> String {
        let adopt = format!("adopt a new session ({} session adopt)", self.tool());
        match flags {
            Some("") => format!("{adopt}, then attach to it"),
            Some(flags) => format!("{adopt}, then attach to it with: {flags}"),
            None => format!("{adopt}, then attach to it what was asked here"),
        }
    }

    fn path(&self, path: &RepoPath) -> OsString {
        let below = self.below.split(|b| *b == b'/');
        let from: Vec<&[u8]> = below.filter(|name| !name.is_empty()).collect();
        let to: Vec<&[u8]> = path.names().collect();
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let up = std::iter::repeat_n(&b".."[..], from.len() - common);
        let names: Vec<&[u8]> = up.chain(to.iter().skip(common).copied()).collect();
        OsString::from_vec(names.join(&b'/'))
    }
}

/// False when the reader's shell stands elsewhere: `git -C` and `--git-dir` take us, but not the reader, to the worktree.
fn stands_in(cx: &Cx, top: &Path) -> bool {
    let shell = cx.env.get("PWD").map(Path::new).filter(|dir| dir.is_absolute());
    // A shell that does not say where it is, or says what is not so, is taken to be where we are.
    let Some(Ok(shell)) = shell.map(files::real) else { return true };
    files::real(top).map_or(true, |top| shell.starts_with(top))
}

/// `attach` to the sessions that are left, `commit` when none is; words in place of a command where neither can be.
fn words(policy: &Policy, alive: &[String], place: &Place) -> Result<String, String> {
    let has_left = !alive.is_empty();
    let mut words: Vec<String> = Vec::new();
    // Gates that said no say it again until a turn changed something.
    let red = policy.reason.as_deref() == Some(Code::GateRed.as_str());
    words.extend((red && has_left).then(|| "--next-turn".to_owned()));
    let commits = policy.spec.commit.as_ref().filter(|_| has_left);
    words.extend(commits.iter().flat_map(|_| ["--then".into(), "commit".into()]));
    words.extend(policy.spec.label.iter().flat_map(|l| ["--label".into(), l.clone()]));
    let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
    words.extend(policy.spec.commit.iter().flat_map(|commit| commit_words(commit, place)));
    words.extend(end_words(policy).into_iter().map(OsString::from));
    words.extend(gate_words(policy).into_iter().map(OsString::from));
    let flags = words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ");
    // Names come quoted where they need it.
    let command = match (has_left, &policy.spec.commit) {
        (true, _) => format!("attach {}", alive.join(" ")),
        (false, Some(_)) => "commit".to_owned(),
        (false, None) => return Err(place.begin_anew(Some(&flags))),
    };
    Ok(format!("{} {command} {flags}", place.tool()).trim_end().to_owned())
}

/// A word as a shell has to be given it; with `$'…'` where it holds what no terminal shows.
fn shell_word(word: &OsStr) -> String {
    if let Some(text) = word.to_str().filter(|text| !text.contains(char::is_control)) {
        return shell_words::quote(text).into_owned();
    }
    let mut out = String::from("$'");
    for byte in word.as_bytes() {
        match byte {
            b'\'' | b'\\' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('\'');
    out
}

fn end_words(policy: &Policy) -> Vec<String> {
    let mut words = Vec::new();
    if policy.spec.on_stale != OnStale::default() {
        words.extend(["--on-stale".to_owned(), policy.spec.on_stale.as_str().to_owned()]);
    }
    // A time that is over is what was wrong in the first place.
    let over = policy.reason.as_deref() == Some(Code::Expired.as_str());
    if let Some(expires) = policy.spec.expires.filter(|_| !over) {
        words.extend(["--expires".to_owned(), expires.to_string()]);
    }
    words
}

fn gate_words(policy: &Policy) -> Vec<String> {
    let mut words = Vec::new();
    let gates = &policy.spec.gates;
    words
        .extend((policy.spec.commit.is_some() && gates.is_empty()).then(|| "--ungated".to_owned()));
    for gate in gates {
        match gate {
            Gate::Scope(gate) => {
                words.extend(gate.scope.iter().map(|pattern| format!("--scope={pattern}")));
            }
            Gate::Shell(_) => {}
        }
    }
    let shells: Vec<&GateDef> = gates.iter().filter_map(Gate::shell).map(|g| &g.def).collect();
    let Some((last, before)) = shells.split_last() else { return words };
    if last.cwd != "." {
        words.extend(["--gate-cwd".to_owned(), last.cwd.clone()]);
    }
    if last.timeout_ms != limits::GATE_TIMEOUT_DEFAULT_MS {
        words.extend(["--gate-timeout".to_owned(), text::typed_duration(last.timeout_ms)]);
    }
    words.extend(last.require_output.iter().map(|wanted| format!("--require-output={wanted}")));
    words.extend(last.protect.iter().map(|pattern| format!("--protect={pattern}")));
    words.extend(last.env.iter().map(|(name, value)| format!("--gate-env={name}={value}")));
    words.extend(last.env_clean.then(|| "--gate-env-clean".to_owned()));
    words.extend(before.iter().flat_map(|def| ["--gate".to_owned(), def.shown()]));
    words.push("--".to_owned());
    words.extend(last.argv().map(str::to_owned));
    words
}

fn commit_words(commit: &CommitSpec, place: &Place) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    words.extend(commit.paths.iter().flat_map(|p| ["--path".into(), place.path(p)]));
    words.extend(["-m".into(), commit.message.trim_end().into()]);
    words.extend((!commit.require_human_ack).then(|| "--no-ack".into()));
    for (asked, flag) in [
        (commit.allow_markers, "--allow-markers"),
        (commit.force_ignored, "--force-ignored"),
        (commit.allow_submodule, "--allow-submodule"),
        (commit.detached_ok, "--detached-ok"),
    ] {
        words.extend(asked.then(|| flag.into()));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cli::testing::policy,
        domain::gate::{ScopeGate, ShellGate},
    };

    const FLAGS: &str =
        "--label nightly --path 'a b' -m 'add it' --gate-cwd sub --gate-timeout 2s -- ls 'a b'";

    #[test]
    fn the_same_is_asked_again_with_what_is_left() {
        let (mut blocked, here) = (policy("blocked"), Place::default());
        let alive = ["parser".to_owned()];
        let words = |policy: &Policy, alive: &[String], place: &Place| {
            super::words(policy, alive, place).unwrap_or_else(|words| words)
        };
        assert_eq!(words(&blocked, &[], &here), format!("git agentproto commit {FLAGS}"));
        let attach = format!("git agentproto attach parser --then commit {FLAGS}");
        assert_eq!(words(&blocked, &alive, &here), attach);
        blocked.reason = Some("gate-red".into());
        blocked.spec.commit = None;
        blocked.spec.label = None;
        blocked.spec.gates.clear();
        assert_eq!(words(&blocked, &alive, &here), "git agentproto attach parser --next-turn");
        blocked.reason = Some(Code::StoreUnusable.as_str().into());
        blocked.spec.gates = policy("blocked").spec.gates;
        assert!(
            words(&blocked, &alive, &here).starts_with("git agentproto attach parser --gate-cwd")
        );
        blocked.reason = None;
        blocked.spec.gates.clear();
        assert_eq!(words(&blocked, &alive, &here), "git agentproto attach parser");
        let anew = "adopt a new session (git agentproto session adopt), then attach to it";
        assert_eq!(words(&blocked, &[], &here), anew);
        blocked.spec.gates = policy("blocked").spec.gates;
        let flags = "--gate-cwd sub --gate-timeout 2s -- ls 'a b'";
        assert_eq!(words(&blocked, &[], &here), format!("{anew} with: {flags}"));
    }

    #[test]
    fn conditions_of_the_gates_are_asked_again_too() {
        let mut blocked = policy("blocked");
        let Gate::Shell(ShellGate { def, .. }) = &mut blocked.spec.gates[0] else { panic!() };
        def.require_output = Some("^ok$".into());
        def.protect = vec!["/tests/".into(), "!x".into()];
        def.env = [("MODE".to_owned(), "a b".to_owned())].into();
        def.env_clean = true;
        let line = words(&blocked, &[], &Place::default()).unwrap();
        let flags = "'--require-output=^ok$' '--protect=/tests/' '--protect=!x' \
            '--gate-env=MODE=a b' --gate-env-clean -- ls 'a b'";
        assert!(line.ends_with(flags), "{line}");
        let scope = ScopeGate { scope: vec!["src/**".into(), "!x".into()] };
        blocked.spec.gates.insert(0, Gate::Scope(scope));
        let line = words(&blocked, &[], &Place::default()).unwrap();
        assert!(line.contains(" '--scope=src/**' '--scope=!x' --gate-cwd sub "), "{line}");
        assert!(has_flags(&blocked, true));
        blocked.spec.gates.rotate_left(1);
        assert!(!has_flags(&blocked, true), "flags have it first");
    }

    #[test]
    fn how_it_ends_is_asked_again_but_for_a_time_that_is_over() {
        let mut policy = policy("blocked");
        policy.spec.gates.clear();
        policy.spec.on_stale = OnStale::Block;
        policy.spec.expires = Some(crate::domain::time::Timestamp::from_ms(1_700_000_000_000));
        let here = Place::default();
        let line = words(&policy, &[], &here).unwrap();
        let end = " --on-stale block --expires 2023-11-14T22:13:20.000Z --ungated";
        assert!(line.ends_with(end), "{line}");
        policy.reason = Some("expired".into());
        let line = words(&policy, &[], &here).unwrap();
        assert!(line.ends_with(" --on-stale block --ungated"), "{line}");
    }

    #[test]
    fn programs_are_told_where_the_paths_begin() {
        let place = Place { dir: Some("/a b".into()), below: Vec::new() };
        let line = words(&policy("blocked"), &[], &place).unwrap();
        assert_eq!(line, format!("git agentproto -C '/a b' commit {FLAGS}"));
    }

    #[test]
    fn people_read_paths_from_where_they_stand() {
        for (below, path, want) in [
            ("", "a/b", "a/b"),
            ("a", "a/b", "b"),
            ("a/c", "a/b", "../b"),
            ("x/y", "a/b", "../../a/b"),
            ("a/b", "a/bc/d", "../bc/d"),
        ] {
            let place = Place { dir: None, below: below.into() };
            assert_eq!(place.path(&RepoPath::new(path.as_bytes()).unwrap()), want, "{below}");
        }
    }

    #[test]
    fn a_shell_is_given_every_byte_back() {
        for (word, want) in
            [(&b"a b"[..], "'a b'"), (b"caf\xe9's", r"$'caf\xe9\'s'"), (b"n\nl\\", r"$'n\x0al\\'")]
        {
            assert_eq!(shell_word(OsStr::from_bytes(word)), want);
        }
    }
}

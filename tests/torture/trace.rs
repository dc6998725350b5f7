//! System calls of a program under strace: counted, one of them turned into a kill, one of them held up.
//!
//! Contract: a call is known by its number among the calls of its kind in its own process, which is how strace
//! counts. A kill comes before the call takes effect; a held call takes effect when it is let go.

use crate::{
    lab::{Done, Lab, finish, told, wait_for},
    scribe::Outcome,
};
use std::{
    collections::HashMap,
    fs,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

/// Everything that changes files, as one kind. A question mark: not on every architecture.
pub(crate) const MUTATING: &str = "?open,?creat,openat,write,pwrite64,writev,?rename,renameat,renameat2,?link,linkat,\
    ?unlink,unlinkat,?mkdir,mkdirat,?rmdir,fsync,fdatasync,ftruncate,fallocate,?chmod,fchmod,fchmodat,flock";
/// Kinds for which every single call is a place of its own, those that only look among them.
pub(crate) const KINDS: &[&str] = &[
    "openat",
    "write",
    "pwrite64",
    "?rename,renameat,renameat2",
    "?link,linkat",
    "?unlink,unlinkat",
    "?mkdir,mkdirat",
    "fdatasync",
    "fsync",
    "?chmod,fchmod,fchmodat",
    "flock",
    "close",
    "read,pread64",
    "newfstatat,statx,fstat",
];

/// Longer than any suite waits: a held call is let go, it does not end by itself.
const HELD_US: u64 = 600_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing can be traced here; none when it can.
pub(crate) fn unusable(lab: &Lab) -> Option<String> {
    let mut command =
        lab.command("strace", &lab.path("home"), &["-f", "-qq", "-e", "trace=none", "true"]);
    match command.output() {
        Err(e) => Some(format!("strace cannot be started: {e}")),
        Ok(done) if done.status.success() => None,
        Ok(done) => Some(format!("strace: {}", String::from_utf8_lossy(&done.stderr).trim_end())),
    }
}

/// `inner` under strace, writing to `log`.
fn under(lab: &Lab, inner: &Command, log: &Path, options: &[&str]) -> Command {
    let log = log.display().to_string();
    // With a log file strace shuts itself to signals unless told not to; one of them lets a held program go.
    let mut args = vec!["-I", "1", "-f", "-qq", "-o", &log];
    args.extend(options);
    let program = inner.get_program().to_string_lossy().into_owned();
    args.push(&program);
    let words: Vec<String> = inner.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    args.extend(words.iter().map(String::as_str));
    lab.command("strace", inner.get_current_dir().unwrap_or(Path::new(".")), &args)
}

/// How many calls of each kind the busiest process of a run makes, and how the run ended.
pub(crate) fn calls(lab: &Lab, inner: &Command, kinds: &[&str]) -> Outcome<(Vec<u64>, Done)> {
    let log = lab.path("strace.count");
    let trace = format!("trace={}", kinds.join(","));
    let done = crate::lab::run(under(lab, inner, &log, &["-e", &trace, "-e", "signal=none"]))?;
    let text = fs::read_to_string(&log)?;
    let of_kind = |kind: &&str| {
        let names: Vec<&str> = kind.split(',').map(|n| n.trim_start_matches('?')).collect();
        let mut of_process: HashMap<&str, u64> = HashMap::new();
        for (pid, call) in text.lines().filter_map(call_of) {
            if names.contains(&call) {
                *of_process.entry(pid).or_default() += 1;
            }
        }
        of_process.into_values().max().unwrap_or_default()
    };
    Ok((kinds.iter().map(of_kind).collect(), done))
}

/// Process and name of a call that begins on this line.
fn call_of(line: &str) -> Option<(&str, &str)> {
    let (pid, rest) = line.split_once(' ')?;
    let (call, _) = rest.trim_start().split_once('(')?;
    (!call.contains(' ')).then_some((pid, call))
}

/// Runs it with a kill at the `n`th call of a kind; tells how it ended and whether anything was killed.
pub(crate) fn killed_at(
    lab: &Lab,
    inner: &Command,
    log: &Path,
    (kind, n): (&str, u64),
) -> Outcome<(Done, bool)> {
    let (trace, inject) = (format!("trace={kind}"), format!("inject={kind}:signal=KILL:when={n}"));
    let done = crate::lab::run(under(lab, inner, log, &["-e", &trace, "-e", &inject]))?;
    // strace dies by the signal that killed what it ran; a child of that may be the one that was meant.
    let killed = done.code == 128 + 9 || fs::read_to_string(log)?.contains("killed by SIGKILL");
    Ok((done, killed))
}

/// `inner` with some calls made to look done although they are not.
pub(crate) fn suppressed(lab: &Lab, inner: &Command, log: &Path, kind: &str) -> Command {
    let (trace, inject) = (format!("trace={kind}"), format!("inject={kind}:retval=0"));
    under(lab, inner, log, &["-e", &trace, "-e", &inject])
}

/// A program that stands still in the middle of a system call.
pub(crate) struct Held {
    strace: Child,
    told: String,
}

impl Held {
    /// Starts it and waits until it stands at the `n`th call of this kind.
    pub(crate) fn at(lab: &Lab, inner: &Command, (kind, n): (&str, u64)) -> Outcome<Self> {
        let log = lab.path("held");
        let (trace, inject) =
            (format!("trace={kind}"), format!("inject={kind}:delay_enter={HELD_US}:when={n}"));
        let mut command = under(lab, inner, &log, &["-e", &trace, "-e", &inject]);
        let told = told(&command);
        let mut strace = command.spawn()?;
        wait_for(&format!("held: {told}"), PATIENCE, || {
            if strace.try_wait()?.is_some() {
                return Err(format!("it ended before its call: {told}").into());
            }
            // The beginning of a call is written before its delay, the end of its line after.
            let text = fs::read_to_string(&log).unwrap_or_default();
            let (whole, begun) = text.rsplit_once('\n').unwrap_or(("", &text));
            let seen =
                whole.lines().filter(|l| l.contains('(') && !l.contains(" resumed>")).count();
            Ok((!begun.is_empty() && seen as u64 + 1 >= n).then_some(()))
        })?;
        Ok(Self { strace, told })
    }

    /// Lets it go on and waits for its end.
    pub(crate) fn let_go(self) -> Outcome<Done> {
        let pid = i32::try_from(self.strace.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        finish(self.strace, self.told)
    }
}

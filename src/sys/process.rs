//! Who a process is, whether it lives, who descends from it, and how to signal exactly that one.
//!
//! Contract: a process is its pid, its start time and the boot it belongs to, never the pid alone, so a
//! reused number is a different process. Signals go through a pidfd whose identity was checked after it
//! was opened: nothing is ever sent to a stranger. A zombie counts as gone, it runs nothing any more.
//! Linux only: the truth is `/proc`.
//!
//! A pid recorded inside another pid namespace reads as gone here; whoever needs more holds a kernel lock.

use super::files;
use crate::limits;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashSet,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

const PROC: &str = "/proc";

/// One process, for ever.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Number, reused by the kernel.
    pub pid: u32,
    /// Start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start: u64,
    /// The kernel's id of the boot during which it ran.
    pub boot: String,
}

/// Whether a process still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It runs, or is stopped.
    Alive,
    /// It ended, or its number belongs to another process by now.
    Gone,
    /// `/proc` did not answer.
    Unknown,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel took it.
    Sent,
    /// There is nobody to take it.
    Gone,
}

/// The id of this boot.
///
/// # Errors
/// `/proc` is not there.
pub fn boot_id() -> io::Result<String> {
    files::boot_id().ok_or_else(|| io::Error::other("the kernel does not tell its boot id"))
}

/// Number of the process that started this one; another number means that it is gone.
#[must_use]
pub fn parent() -> Option<i32> {
    rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get())
}

/// This process.
///
/// # Errors
/// `/proc` is not there or cannot be understood.
pub fn own() -> io::Result<ProcessId> {
    of_pid(std::process::id())?.ok_or_else(|| io::Error::other("own process is not in /proc"))
}

/// The process that has this number now; `None` when nobody has or it is a zombie.
///
/// # Errors
/// `/proc` is not there or cannot be understood.
pub fn of_pid(pid: u32) -> io::Result<Option<ProcessId>> {
    let boot = boot_id()?;
    Ok(load_stat(pid)?.filter(Stat::runs).map(|stat| stat.identity(&boot)))
}

/// Whether that very process still runs.
#[must_use]
pub fn alive(who: &ProcessId) -> Liveness {
    match boot_id() {
        Ok(boot) if boot == who.boot => {}
        Ok(_) => return Liveness::Gone,
        Err(_) => return Liveness::Unknown,
    }
    match load_stat(who.pid) {
        Ok(Some(stat)) if stat.runs() && stat.start == who.start => Liveness::Alive,
        Ok(_) => Liveness::Gone,
        Err(_) => Liveness::Unknown,
    }
}

/// Every running process below `pid`, itself not included.
///
/// One pass over `/proc`: processes born meanwhile may be missing, callers repeat until nothing is left.
///
/// # Errors
/// `/proc` cannot be listed or understood.
pub fn descendants(pid: u32) -> io::Result<Vec<ProcessId>> {
    let boot = boot_id()?;
    let all = load_all()?;
    let mut family = HashSet::from([pid]);
    loop {
        let before = family.len();
        family.extend(
            all.iter().filter(|s| family.contains(&s.parent)).map(|s| s.pid).collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    let below = all.iter().filter(|s| s.pid != pid && family.contains(&s.pid) && s.runs());
    Ok(below.map(|stat| stat.identity(&boot)).collect())
}

/// Every running process that was started with the variable `entry` (`NAME=value`), as far as the kernel
/// lets us read: processes of other users are left out.
///
/// # Errors
/// `/proc` cannot be listed or understood.
pub fn started_with(entry: &[u8]) -> io::Result<Vec<ProcessId>> {
    let boot = boot_id()?;
    let marked = |stat: &Stat| {
        files::read(&proc_of(stat.pid).join("environ"), limits::PROC_FILE_BYTES)
            .is_ok_and(|vars| vars.split(|b| *b == 0).any(|var| var == entry))
    };
    let all = load_all()?;
    Ok(all.iter().filter(|s| s.runs() && marked(s)).map(|s| s.identity(&boot)).collect())
}

/// Sends a signal to that very process.
///
/// # Errors
/// The kernel refuses, or the process cannot be identified: then nothing was sent.
pub fn send(who: &ProcessId, signal: Signal) -> io::Result<Delivery> {
    let Some(fd) = open_pidfd(who.pid)? else { return Ok(Delivery::Gone) };
    match alive(who) {
        Liveness::Alive => {}
        Liveness::Gone => return Ok(Delivery::Gone),
        Liveness::Unknown => return Err(io::Error::other("process cannot be identified")),
    }
    match pidfd_send_signal(fd, signal) {
        Ok(()) => Ok(Delivery::Sent),
        Err(rustix::io::Errno::SRCH) => Ok(Delivery::Gone),
        Err(other) => Err(other.into()),
    }
}

/// Makes orphaned descendants children of this process instead of init's, for as long as it lives.
///
/// # Errors
/// The kernel refuses.
pub fn become_subreaper() -> io::Result<()> {
    // Any pid switches it on; the kernel takes the argument as a boolean.
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Of the signals from 1 on.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// The number behind what [`signal_name`] gives.
#[must_use]
pub fn signal_number(name: &str) -> Option<i32> {
    let name = name.strip_prefix("SIG")?;
    let index = NAMES.iter().position(|known| *known == name);
    match index.and_then(|index| i32::try_from(index + 1).ok()) {
        Some(number) => Some(number),
        None => name.parse().ok(),
    }
}

/// The name of a signal, `SIGTERM`; numbers without a name are written `SIG<number>`.
#[must_use]
pub fn signal_name(number: i32) -> String {
    let index = number.checked_sub(1).and_then(|n| usize::try_from(n).ok());
    match index.and_then(|n| NAMES.get(n)) {
        Some(name) => format!("SIG{name}"),
        None => format!("SIG{number}"),
    }
}

/// The fields of `/proc/<pid>/stat` this module lives on.
struct Stat {
    pid: u32,
    state: char,
    parent: u32,
    start: u64,
}

impl Stat {
    fn parse(pid: u32, text: &str) -> Option<Self> {
        // The command name may hold anything, a parenthesis too: fields start after the last one.
        let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let start = fields.nth(17)?.parse().ok()?;
        Some(Self { pid, state, parent, start })
    }

    fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    fn identity(&self, boot: &str) -> ProcessId {
        ProcessId { pid: self.pid, start: self.start, boot: boot.to_owned() }
    }
}

fn proc_of(pid: u32) -> PathBuf {
    Path::new(PROC).join(pid.to_string())
}

fn load_stat(pid: u32) -> io::Result<Option<Stat>> {
    let bytes = match files::read(&proc_of(pid).join("stat"), limits::PROC_FILE_BYTES)
        .map_err(|e| e.source)
    {
        Ok(bytes) => bytes,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Stat::parse(pid, &String::from_utf8_lossy(&bytes))
        .map(Some)
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))
}

/// Only a mounted `/proc` can say that a process is absent.
fn is_absent(error: &io::Error) -> bool {
    let no_such = error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    no_such && files::is_there(&Path::new(PROC).join("self/stat")).unwrap_or(false)
}

fn load_all() -> io::Result<Vec<Stat>> {
    let mut all = Vec::new();
    for name in files::list(Path::new(PROC)).map_err(|e| e.source)? {
        if let Some(pid) = name.to_str().and_then(|text| text.parse().ok()) {
            all.extend(load_stat(pid)?);
        }
    }
    Ok(all)
}

fn open_pidfd(pid: u32) -> io::Result<Option<OwnedFd>> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        None | Some(Err(rustix::io::Errno::SRCH)) => Ok(None),
        Some(Ok(fd)) => Ok(Some(fd)),
        Some(Err(other)) => Err(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    #[expect(clippy::disallowed_methods, reason = "test set-up")]
    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    #[test]
    fn a_process_is_more_than_its_number() {
        let me = own().unwrap();
        assert_eq!(alive(&me), Liveness::Alive);
        assert_eq!(alive(&ProcessId { start: me.start + 1, ..me.clone() }), Liveness::Gone);
        assert_eq!(alive(&ProcessId { boot: "another".into(), ..me.clone() }), Liveness::Gone);
        let stranger = ProcessId { start: me.start + 1, ..me };
        assert_eq!(send(&stranger, Signal::KILL).unwrap(), Delivery::Gone);
    }

    #[test]
    fn a_zombie_is_gone() {
        let mut child = sleeper();
        let id = of_pid(child.id()).unwrap().unwrap();
        assert!(descendants(std::process::id()).unwrap().contains(&id));
        assert_eq!(send(&id, Signal::KILL).unwrap(), Delivery::Sent);
        while alive(&id) == Liveness::Alive {
            std::thread::yield_now();
        }
        assert_eq!(alive(&id), Liveness::Gone);
        assert_eq!(of_pid(child.id()).unwrap(), None);
        child.wait().unwrap();
    }

    #[test]
    fn reads_names_with_parentheses() {
        let line = "7 (a) R 1) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 999";
        let stat = Stat::parse(7, line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.start), ('S', 3, 4242));
        assert!(Stat::parse(7, "7 (half").is_none());
    }

    #[test]
    fn names_signals() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(31), "SIGSYS");
        assert_eq!(signal_name(40), "SIG40");
        assert_eq!(signal_name(0), "SIG0");
        for number in 1..65 {
            assert_eq!(signal_number(&signal_name(number)), Some(number));
        }
        assert_eq!(signal_number("SIGNOTHING"), None);
    }
}

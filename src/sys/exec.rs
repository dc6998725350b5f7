//! How the runner and a gate's main process are started: sessions of their own, nothing inherited by
//! accident.
//!
//! Contract: what happens between `fork` and `exec` is here and nowhere else, and is async-signal-safe:
//! system calls on values made before the fork, no allocation. A program runs only if the kernel can
//! execute it: the C library's habit of handing an unknown format to `/bin/sh` would turn an empty file
//! into a green gate.

use super::{
    files,
    spawn::{Call, bare},
};
use rustix::process::{Pid, Signal};
use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr, OsString, c_char},
    io::{self, Seek as _, Write as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::{Child, Stdio},
    ptr,
};

/// Starts a program in a session of its own with pipes on stdin and stdout, stderr closed to
/// `/dev/null`, and `kept` inherited under the same number.
///
/// # Errors
/// It cannot be started.
pub fn start_in_session(call: &Call, kept: BorrowedFd<'_>) -> io::Result<Child> {
    let mut command = bare(call);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let kept = kept.as_raw_fd();
    let set_up = move || {
        rustix::process::setsid()?;
        keep_over_exec(kept)
    };
    #[expect(unsafe_code, reason = "the only way to act between fork and exec")]
    // SAFETY: the closure makes two system calls and touches no memory but its own copy of a number;
    // the descriptor is open in the parent until `spawn` below has returned.
    unsafe {
        command.pre_exec(set_up);
    }
    command.spawn()
}

/// Starts a program that outlives this one: a session of its own, no terminal, no streams, default signals. `deadline_ms` and
/// `stdin` of the call do not count: nobody waits for it.
///
/// # Errors
/// It cannot be started.
pub fn start_detached(call: &Call) -> io::Result<()> {
    let mut command = bare(call);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    #[expect(unsafe_code, reason = "the only way to act between fork and exec")]
    // SAFETY: the closure makes only system calls and touches no memory but a local set.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            default_signals();
            Ok(())
        });
    }
    command.spawn().map(|_child| ())
}

/// Starts a program in a session of its own, which has no terminal, with pipes on all three streams.
///
/// # Errors
/// It cannot be started.
pub(super) fn start_apart(call: &Call) -> io::Result<Child> {
    let mut command = bare(call);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    #[expect(unsafe_code, reason = "the only way to act between fork and exec")]
    // SAFETY: the closure makes one system call and touches no memory.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(|_| ())?));
    }
    command.spawn()
}

/// Starts the main process of a supervised tree: a session of its own without a terminal, stdin a file with what the
/// call says (nothing: at its end at once), pipes on stdout and stderr, default signals, killed when the calling thread dies.
///
/// # Errors
/// The kernel cannot execute it, the directory is gone, or an argument holds a NUL byte.
pub fn start_tree(call: &Call) -> io::Result<Child> {
    let image = Image::new(call)?;
    let parent = rustix::process::getpid();
    let mut command = bare(call);
    command.stdin(said(&call.stdin)?).stdout(Stdio::piped()).stderr(Stdio::piped());
    let set_up = move || {
        rustix::process::setsid()?;
        die_with(parent)?;
        default_signals();
        Err(image.execute())
    };
    #[expect(unsafe_code, reason = "the only way to act between fork and exec")]
    // SAFETY: the closure makes only system calls, on strings and pointer lists made before the fork.
    unsafe {
        command.pre_exec(set_up);
    }
    command.spawn()
}

/// A stdin that holds these bytes, whoever reads them and when: no pipe, which somebody would have to fill.
fn said(bytes: &[u8]) -> io::Result<Stdio> {
    if bytes.is_empty() {
        return Ok(Stdio::null());
    }
    let file = rustix::fs::memfd_create("stdin", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Starts a program in the place of this one: its terminal, its process group, its streams, standard output as the same
/// stream as standard error if asked to. Default signals, killed when the calling thread dies.
///
/// # Errors
/// As [`start_tree`].
pub fn start_in_place(call: &Call, all_to_stderr: bool) -> io::Result<Child> {
    let image = Image::new(call)?;
    let parent = rustix::process::getpid();
    let mut command = bare(call);
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    if all_to_stderr {
        command.stdout(io::stderr().as_fd().try_clone_to_owned()?);
    }
    let set_up = move || {
        die_with(parent)?;
        default_signals();
        Err(image.execute())
    };
    #[expect(unsafe_code, reason = "the only way to act between fork and exec")]
    // SAFETY: as in `start_tree`.
    unsafe {
        command.pre_exec(set_up);
    }
    command.spawn()
}

/// Marks every descriptor above stderr close-on-exec, those too that this process inherited.
///
/// # Errors
/// `/proc` is not there.
pub fn close_on_exec() -> io::Result<()> {
    for name in files::list(Path::new("/proc/self/fd")).map_err(|e| e.source)? {
        if let Some(fd) = name.to_str().and_then(|n| n.parse::<RawFd>().ok()).filter(|fd| *fd > 2) {
            match set_flags(fd, libc::FD_CLOEXEC) {
                // The one that listed them is closed by now; what is closed is not inherited.
                Err(e) if e.raw_os_error() == Some(libc::EBADF) => {}
                done => done?,
            }
        }
    }
    Ok(())
}

fn keep_over_exec(fd: RawFd) -> io::Result<()> {
    set_flags(fd, 0)
}

fn set_flags(fd: RawFd, flags: libc::c_int) -> io::Result<()> {
    #[expect(unsafe_code, reason = "a descriptor known by its number only")]
    // SAFETY: F_SETFD takes an integer and changes one flag; on a closed number it fails with EBADF.
    let done = unsafe { libc::fcntl(fd, libc::F_SETFD, flags) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks the kernel for SIGKILL when `parent` ends; fails when it has ended before the request.
fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(rustix::io::Errno::SRCH.into())
    }
}

/// Ignored and blocked signals pass through `exec`; a gate must not inherit ours or our caller's.
fn default_signals() {
    #[expect(unsafe_code, reason = "no safe interface to signal dispositions")]
    // SAFETY: async-signal-safe calls on a local set; numbers that cannot be changed are refused by
    // the C library without effect.
    unsafe {
        for number in 1..=libc::SIGRTMAX() {
            libc::signal(number, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// What `execve` takes, made before the fork because nothing may be allocated after it.
struct Image {
    program: CString,
    args: Pointers,
    env: Pointers,
}

impl Image {
    fn new(call: &Call) -> io::Result<Self> {
        let program = CString::new(call.program.as_os_str().as_bytes())?;
        let args =
            std::iter::once(Ok(program.clone())).chain(call.args.iter().map(|a| c_string(a)));
        // As with `Command`, the last value of a name wins.
        let vars: BTreeMap<&OsString, &OsString> = call.env.iter().map(|(k, v)| (k, v)).collect();
        let vars = vars.iter().map(|(k, v)| {
            let entry = [k.as_bytes(), v.as_bytes()].join(&b'=');
            Ok(CString::new(entry)?)
        });
        Ok(Self { args: Pointers::new(args)?, env: Pointers::new(vars)?, program })
    }

    /// Becomes the program; comes back only with the reason why not.
    fn execute(&self) -> io::Error {
        #[expect(unsafe_code, reason = "execve without the C library's fallback to a shell")]
        // SAFETY: both lists end with a null pointer and point into strings owned by `self`.
        unsafe {
            libc::execve(self.program.as_ptr(), self.args.list.as_ptr(), self.env.list.as_ptr());
        }
        io::Error::last_os_error()
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// A null-terminated list of C strings and what it points to.
struct Pointers {
    list: Vec<*const c_char>,
    _strings: Vec<CString>,
}

#[expect(unsafe_code, reason = "raw pointers are not Send or Sync by themselves")]
// SAFETY: the pointers lead into heap memory of the strings beside them, which is never changed.
unsafe impl Send for Pointers {}
#[expect(unsafe_code, reason = "raw pointers are not Send or Sync by themselves")]
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Pointers {}

impl Pointers {
    fn new(strings: impl Iterator<Item = io::Result<CString>>) -> io::Result<Self> {
        let strings = strings.collect::<io::Result<Vec<_>>>()?;
        let list = strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { list, _strings: strings })
    }
}

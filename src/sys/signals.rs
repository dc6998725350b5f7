//! Signals as something to read: a process that supervises others waits for all its news in one `poll`.
//!
//! Contract: after [`receive`] the named signals are blocked in the calling thread and arrive through the
//! descriptor, in a program with one thread all of them. Handlers are not used: nothing runs at a moment
//! nobody chose.

use rustix::process::Signal;
use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

/// Size of one report of the kernel; the signal's number is its first field.
const REPORT_BYTES: usize = size_of::<libc::signalfd_siginfo>();

/// The descriptor through which signals arrive.
#[derive(Debug)]
pub struct Signals(File);

/// Takes over the named signals for this thread.
///
/// # Errors
/// The kernel refuses.
pub fn receive(signals: &[Signal]) -> io::Result<Signals> {
    #[expect(unsafe_code, reason = "no safe interface to signal masks and signalfd")]
    // SAFETY: calls on a local, initialised set; the descriptor is fresh and owned by nobody else.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            // An ignored SIGCHLD, inherited from a caller, would reap children behind our back.
            libc::signal(signal.as_raw(), libc::SIG_DFL);
            libc::sigaddset(&raw mut set, signal.as_raw());
        }
        let error = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(Signals(File::from(OwnedFd::from_raw_fd(fd)))),
        }
    }
}

/// Gives back what [`receive`] took over in this thread: the signals do again what they do by default.
pub fn release(signals: &[Signal]) {
    #[expect(unsafe_code, reason = "no safe interface to signal masks")]
    // SAFETY: calls on a local, initialised set.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, signal.as_raw());
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, ptr::null_mut());
    }
}

/// True when whoever started this process had it ignore a signal, as `nohup` does.
#[must_use]
pub fn is_ignored(signal: Signal) -> bool {
    #[expect(unsafe_code, reason = "no safe interface to signal dispositions")]
    // SAFETY: with a null pointer for the new action the call only fills in the local old one.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let asked = libc::sigaction(signal.as_raw(), ptr::null(), &raw mut now);
        asked == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Ends this process as a signal does that nobody took over.
pub fn die_of(signal: Signal) {
    release(&[signal]);
    // A process that cannot signal itself is not there.
    let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
}

impl Signals {
    /// The numbers of the signals that arrived, without waiting.
    ///
    /// # Errors
    /// The descriptor cannot be read.
    pub fn take(&self) -> io::Result<Vec<i32>> {
        let mut numbers = Vec::new();
        let mut report = [0; REPORT_BYTES];
        loop {
            match (&self.0).read(&mut report) {
                Ok(_) => {
                    let number = [report[0], report[1], report[2], report[3]];
                    numbers.push(i32::from_ne_bytes(number));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(numbers),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

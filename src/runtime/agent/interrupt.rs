//! Ctrl-C and its like, while an agent is held by a process that a person started.
//!
//! Contract: nothing is left behind. The policy that was asked for together with the agent is cancelled, the agent is told
//! to end and killed when it does not, and the journal says so before this process ends. It is done by another thread, with
//! the same means as a person at another terminal would use, so there is one way to stop things and no special one.

use super::kill;
use crate::{
    code::Code,
    domain::{
        ids::{PolicyId, SessionId},
        input::Input,
    },
    engine::{self, Effect},
    ledger::Ledger,
    limits,
    runtime::live,
    sys::{
        env::Env,
        signals::{self, Signals},
    },
};
use rustix::process::Signal;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// What asks this process to end.
const HEEDED: [Signal; 3] = [Signal::INT, Signal::TERM, Signal::HUP];
/// How often it is looked.
const POLL: Duration = Duration::from_millis(50);
/// A signal this soon after another is the same one: `git` passes on to us what the terminal sent to both.
const ECHO: Duration = Duration::from_millis(500);
/// How long the rest of the process has to come to its end once everything is stopped.
const PATIENCE: Duration = Duration::from_secs(3);

/// Signals that ask this process to end, held back until there is something that can be stopped.
pub struct HeldBack {
    signals: Signals,
    release: Release,
}

/// Those that nobody had this process ignore; they do what they do to every process again when it is dropped.
struct Release(Vec<Signal>);

/// While it lives, signals that ask this process to end stop what it holds first.
pub struct Guard {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    _release: Release,
}

struct Shared {
    /// Number of the signal that came; 0 before.
    came: AtomicI32,
    /// Nobody needs the guard any more.
    over: AtomicBool,
}

impl HeldBack {
    /// Takes over the signals of this process. To be called before it starts other threads, which inherit that, and before
    /// something is recorded that a signal is to stop.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn begin() -> io::Result<Self> {
        let heeded: Vec<Signal> =
            HEEDED.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect();
        let signals = signals::receive(&heeded)?;
        Ok(Self { signals, release: Release(heeded) })
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        signals::release(&self.0);
    }
}

impl Guard {
    /// Heeds those that came since they were held back, and those that come.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn set_up(
        held_back: HeldBack,
        env: &Env,
        actor: &str,
        session: &SessionId,
        policy: Option<&PolicyId>,
    ) -> io::Result<Self> {
        let HeldBack { signals, release } = held_back;
        let shared = Arc::new(Shared { came: AtomicI32::new(0), over: AtomicBool::new(false) });
        let watch = Watch {
            signals,
            shared: Arc::clone(&shared),
            env: env.clone(),
            actor: actor.to_owned(),
            session: session.clone(),
            policy: policy.cloned(),
        };
        let thread = thread::Builder::new().spawn(move || watch.run())?;
        Ok(Self { shared, thread: Some(thread), _release: release })
    }

    /// Number of the signal that came, if one did.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        Some(self.shared.came.load(Ordering::SeqCst)).filter(|number| *number != 0)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A watcher that panicked watches nothing any more.
            let _ = thread.join();
        }
    }
}

struct Watch {
    signals: Signals,
    shared: Arc<Shared>,
    env: Env,
    actor: String,
    session: SessionId,
    policy: Option<PolicyId>,
}

impl Watch {
    fn run(self) {
        let mut deadline: Option<Instant> = None;
        while !self.shared.over.load(Ordering::SeqCst) {
            let came = self.signals.take().unwrap_or_default();
            if let Some(number) = came.first() {
                self.shared.came.store(*number, Ordering::SeqCst);
                self.stop(limits::AGENT_KILL_GRACE_MS);
                deadline = Some(Instant::now() + PATIENCE);
            }
            if deadline.is_some_and(|end| Instant::now() >= end) {
                // Whoever still works here works for somebody else's policy, whose gate ends with this process.
                let number = self.shared.came.load(Ordering::SeqCst);
                HEEDED.iter().filter(|s| s.as_raw() == number).for_each(|s| signals::die_of(*s));
            }
            thread::sleep(POLL);
        }
    }

    /// Stops the policy and the agent, at once when it is asked for again. What is over already is so.
    fn stop(&self, grace_ms: u64) {
        let begun = Instant::now();
        let hurry = || {
            let again = self.signals.take().is_ok_and(|came| !came.is_empty());
            again && begun.elapsed() >= ECHO
        };
        let Ok(ledger) = Ledger::open(&self.env, &self.actor) else { return };
        if let Some(policy) = &self.policy {
            self.cancel(&ledger, policy);
        }
        let asked = ledger.stop(&self.session, Some("interrupted".to_owned()));
        let over = asked.is_err_and(|e| e.code() == Code::Terminal);
        if !over {
            let _ = kill(&ledger, &self.session, grace_ms, &hurry);
        }
    }

    fn cancel(&self, ledger: &Ledger, policy: &PolicyId) {
        let because = Some("interrupted".to_owned());
        let Ok(done) = ledger.record(Input::CancelAsked { policy: policy.clone(), because }) else {
            return;
        };
        let agent_dir = ledger.store().location().agent_dir();
        for effect in &done.effects {
            if let Effect::KillGates { policy, attempt } = effect {
                let _ = live::request_cancel(&agent_dir, &engine::gate_key(policy, *attempt));
            }
        }
    }
}

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
/// How long the rest of the process has to come to its end once everything is stopped.
const PATIENCE: Duration = Duration::from_secs(3);

/// While it lives, signals that ask this process to end stop what it holds first.
pub struct Guard {
    shared: Arc<Shared>,
    /// Those that nobody had this process ignore.
    heeded: Vec<Signal>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Number of the signal that came; 0 before.
    came: AtomicI32,
    /// Nobody needs the guard any more.
    over: AtomicBool,
}

impl Guard {
    /// Takes over the signals of this process. To be called before it starts other threads, which inherit that.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_up(
        env: &Env,
        actor: &str,
        session: &SessionId,
        policy: Option<&PolicyId>,
    ) -> io::Result<Self> {
        let heeded: Vec<Signal> =
            HEEDED.into_iter().filter(|signal| !signals::is_ignored(*signal)).collect();
        let signals = signals::receive(&heeded)?;
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
        Ok(Self { shared, heeded, thread: Some(thread) })
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
        // From here on they do what they do to every process.
        signals::release(&self.heeded);
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
                let again = self.shared.came.swap(*number, Ordering::SeqCst) != 0;
                // Asked twice is meant.
                let grace_ms = if again { 0 } else { limits::AGENT_KILL_GRACE_MS };
                self.stop(grace_ms);
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

    /// Stops the policy and the agent. What is over already is so.
    fn stop(&self, grace_ms: u64) {
        let Ok(ledger) = Ledger::open(&self.env, &self.actor) else { return };
        if let Some(policy) = &self.policy {
            self.cancel(&ledger, policy);
        }
        let asked = ledger.stop(&self.session, Some("interrupted".to_owned()));
        let over = asked.is_err_and(|e| e.code() == Code::Terminal);
        if !over {
            let _ = kill(&ledger, &self.session, grace_ms);
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

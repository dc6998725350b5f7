//! Places where a test can end the append protocol as a kill would. Nothing of it is in a shipped binary.

use super::error::StoreError;

/// In a shipped binary: nothing.
#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "the signature the tests' variant needs")]
pub(super) const fn reached(_step: &'static str) -> Result<(), StoreError> {
    Ok(())
}

/// Stops when this thread's test armed the step.
#[cfg(test)]
pub(super) fn reached(step: &'static str) -> Result<(), StoreError> {
    let dead = tests::ARMED.with_borrow(|armed| armed.dead);
    let hit = tests::ARMED.with_borrow_mut(|armed| armed.hit(step));
    if dead || hit { Err(StoreError::Stopped) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    #[derive(Default)]
    pub(crate) struct Armed {
        step: Option<(&'static str, u32)>,
        pub(crate) dead: bool,
    }

    impl Armed {
        pub(crate) fn hit(&mut self, step: &'static str) -> bool {
            match &mut self.step {
                Some((name, left)) if *name == step && *left <= 1 => {
                    self.dead = true;
                    true
                }
                Some((name, left)) if *name == step => {
                    *left -= 1;
                    false
                }
                Some(_) | None => false,
            }
        }
    }

    thread_local! {
        pub(crate) static ARMED: RefCell<Armed> = RefCell::new(Armed::default());
    }

    /// From the `nth` time `step` is reached on this thread, every step stops: the process is "dead".
    pub(crate) fn arm(step: &'static str, nth: u32) {
        ARMED.set(Armed { step: Some((step, nth)), dead: false });
    }

    /// Back to life; true when the armed step had been reached.
    pub(crate) fn disarm() -> bool {
        ARMED.replace(Armed::default()).dead
    }
}

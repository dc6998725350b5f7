//! Threads of one process in line: one has its turn, the others wait in the order they came.
//!
//! Contract: nobody is overtaken, nobody waits without a deadline, and a turn ends however its thread leaves
//! it. Whoever has the turn may leave something to the next in line, but only to one who waits already.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

/// A line whose members may leave a `T` to one another.
pub(in crate::store) struct Line<T> {
    inside: Mutex<Inside<T>>,
}

struct Inside<T> {
    taken: bool,
    left: Option<T>,
    waiting: VecDeque<Arc<Place>>,
}

#[derive(Default)]
struct Place {
    called: AtomicBool,
    bell: Condvar,
}

/// The turn; dropping it calls the next.
pub(in crate::store) struct Turn<'a, T> {
    line: &'a Line<T>,
    waited: bool,
}

impl<T> Line<T> {
    pub(in crate::store) fn new() -> Self {
        let inside = Inside { taken: false, left: None, waiting: VecDeque::new() };
        Self { inside: Mutex::new(inside) }
    }

    fn inside(&self) -> MutexGuard<'_, Inside<T>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn; none when it did not come until then.
    pub(in crate::store) fn turn(&self, until: Instant) -> Option<Turn<'_, T>> {
        let mut inside = self.inside();
        // A turn that nobody has means that nobody waits: whoever ends one calls the next.
        if !inside.taken {
            inside.taken = true;
            return Some(Turn { line: self, waited: false });
        }
        let place = Arc::new(Place::default());
        inside.waiting.push_back(Arc::clone(&place));
        loop {
            if place.called.load(Ordering::Relaxed) {
                return Some(Turn { line: self, waited: true });
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                inside.waiting.retain(|p| !Arc::ptr_eq(p, &place));
                return None;
            }
            let woken = place.bell.wait_timeout(inside, left);
            inside = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub(in crate::store) fn waiting(&self) -> usize {
        self.inside().waiting.len()
    }
}

impl<T> Turn<'_, T> {
    /// True when somebody else had the turn before.
    pub(in crate::store) fn was_waited_for(&self) -> bool {
        self.waited
    }

    /// What the one before left.
    pub(in crate::store) fn take(&self) -> Option<T> {
        self.line.inside().left.take()
    }

    /// Ends the turn and leaves `value` to the next; both come back when nobody waits.
    pub(in crate::store) fn leave(self, value: T) -> Result<(), (Self, T)> {
        let mut inside = self.line.inside();
        if inside.waiting.is_empty() {
            drop(inside);
            return Err((self, value));
        }
        inside.left = Some(value);
        // In one go with leaving it: a moment later the only one who waits may have given up.
        call_next(inside);
        std::mem::forget(self);
        Ok(())
    }
}

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        call_next(self.line.inside());
    }
}

fn call_next<T>(mut inside: MutexGuard<'_, Inside<T>>) {
    let next = inside.waiting.pop_front();
    inside.taken = next.is_some();
    if let Some(next) = &next {
        next.called.store(true, Ordering::Relaxed);
    }
    drop(inside);
    if let Some(next) = next {
        next.bell.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Duration};

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn until(done: impl Fn() -> bool) {
        let end = soon();
        while !done() {
            assert!(Instant::now() < end, "it never came");
            thread::yield_now();
        }
    }

    #[test]
    fn turns_come_in_the_order_of_asking_and_what_is_left_goes_along() {
        let line = Line::new();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let first = line.turn(soon()).unwrap();
            for n in 0..5 {
                let (line, tell) = (&line, tell.clone());
                scope.spawn(move || {
                    let turn = line.turn(soon()).unwrap();
                    let mut seen: Vec<usize> = turn.take().unwrap();
                    seen.push(n);
                    if let Err((_turn, seen)) = turn.leave(seen) {
                        tell.send(seen).unwrap();
                    }
                });
                until(|| line.waiting() == n + 1);
            }
            assert!(first.take().is_none());
            assert!(first.leave(vec![]).is_ok());
        });
        assert_eq!(told.recv().unwrap(), [0, 1, 2, 3, 4]);
        assert!(line.turn(Instant::now()).is_some(), "the turn is free again");
    }

    #[test]
    fn who_gives_up_is_not_called_and_takes_nothing_along() {
        let line = Line::new();
        let first = line.turn(soon()).unwrap();
        assert!(line.turn(Instant::now()).is_none());
        assert_eq!(line.waiting(), 0);
        let (first, kept) = first.leave(7).err().unwrap();
        assert_eq!((kept, first.take()), (7, None));
        drop(first);
        assert!(line.turn(Instant::now()).is_some());
    }
}

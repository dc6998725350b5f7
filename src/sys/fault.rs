//! Faults for tests: every call that [`super::files`] makes can be ended by a kill, an error or a short write.
//!
//! Contract: a plan belongs to the thread that armed it. A "dead" thread fails at every later call, those of
//! clean-up code and destructors too, so the disk stays as the kill left it; its kernel locks go when they are
//! dropped. Nothing of this is in a shipped binary.

pub(crate) mod disk;

use super::files::Op;
use disk::Disk;
use std::{cell::RefCell, io, path::Path};

/// What happens at the planned call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// The process dies before the call.
    KillBefore,
    /// The process dies after the call, before it hears of its outcome.
    KillAfter,
    /// Half of the bytes are written, then the process dies. Of calls that write.
    KillWithin,
    /// The call fails with this number and does nothing.
    Error(i32),
    /// Half of the bytes are written, then the call fails with this number. Of calls that write.
    ErrorWithin(i32),
}

/// What a call may be counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// It changes something.
    Mutating,
    /// It does not.
    Reading,
}

/// One call that was made, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) kind: Kind,
    /// A word for it and the paths it named, the last one's name alone.
    pub(crate) what: String,
    /// Whether bytes were written, so that it can be cut short.
    pub(crate) writes: bool,
}

/// A fault in the program itself, for tests that must notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// fdatasync makes nothing durable.
    IdleSyncData,
    /// fsync of a file makes nothing durable.
    IdleSync,
    /// What is written in place into a file of this name is not written.
    LostWrites(&'static str),
}

#[derive(Default)]
struct State {
    armed: Option<Armed>,
    dead: bool,
    boot: Option<String>,
    disk: Option<Disk>,
    plant: Option<Plant>,
}

struct Armed {
    plan: Option<(Kind, usize, Ending)>,
    mutating: usize,
    reading: usize,
    made: Vec<Made>,
    hit: bool,
}

enum Order {
    Go,
    GoThenDie,
    Half(Option<i32>),
    Refuse(io::Error),
}

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::default());
}

impl Op {
    fn kind(self) -> Kind {
        match self {
            Self::Read => Kind::Reading,
            Self::Create
            | Self::Write
            | Self::WriteAt
            | Self::Sync
            | Self::SyncData
            | Self::SyncDir
            | Self::Rename
            | Self::Link
            | Self::Unlink
            | Self::MakeDir
            | Self::Lock
            | Self::Program => Kind::Mutating,
        }
    }
}

impl State {
    fn order(&mut self, op: Op, paths: &[&Path], writes: bool) -> Order {
        if self.dead {
            return Order::Refuse(gone());
        }
        let Some(armed) = &mut self.armed else { return Order::Go };
        let Some(ending) = armed.count(op, paths, writes) else { return Order::Go };
        self.dead = matches!(ending, Ending::KillBefore | Ending::KillAfter | Ending::KillWithin);
        match ending {
            Ending::KillBefore => Order::Refuse(gone()),
            Ending::KillAfter => Order::GoThenDie,
            Ending::KillWithin if writes => Order::Half(None),
            Ending::ErrorWithin(number) if writes => Order::Half(Some(number)),
            Ending::Error(number) | Ending::ErrorWithin(number) => {
                Order::Refuse(io::Error::from_raw_os_error(number))
            }
            Ending::KillWithin => Order::Refuse(gone()),
        }
    }
}

impl State {
    fn did(&mut self, op: Op, paths: &[&Path]) {
        let idle = match self.plant {
            Some(Plant::IdleSyncData) => op == Op::SyncData,
            Some(Plant::IdleSync) => op == Op::Sync,
            Some(Plant::LostWrites(_)) | None => false,
        };
        if let Some(disk) = self.disk.as_mut().filter(|_| !idle) {
            disk.did(op, paths);
        }
    }

    fn loses(&self, op: Op, path: &Path) -> bool {
        let Some(Plant::LostWrites(name)) = self.plant else { return false };
        op == Op::WriteAt && path.file_name().is_some_and(|n| n == name)
    }
}

impl Armed {
    fn count(&mut self, op: Op, paths: &[&Path], writes: bool) -> Option<Ending> {
        let kind = op.kind();
        let count = match kind {
            Kind::Mutating => &mut self.mutating,
            Kind::Reading => &mut self.reading,
        };
        *count += 1;
        let hit = self.plan.filter(|(k, n, _)| (*k, *n) == (kind, *count));
        self.hit |= hit.is_some();
        let name = |p: &&Path| p.file_name().map(|n| n.to_string_lossy().into_owned());
        let names: Vec<String> = paths.iter().filter_map(name).collect();
        self.made.push(Made { kind, what: format!("{op:?} {}", names.join(" → ")), writes });
        hit.map(|(_, _, ending)| ending)
    }
}

/// What every call of a dead process is answered with; nobody is there to hear it.
fn gone() -> io::Error {
    io::Error::other("the process is dead")
}

fn did(op: Op, paths: &[&Path]) {
    STATE.with_borrow_mut(|s| s.did(op, paths));
}

pub(super) fn access<T>(
    op: Op,
    paths: &[&Path],
    run: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let order = STATE.with_borrow_mut(|s| s.order(op, paths, false));
    let run = || run().inspect(|_| did(op, paths));
    match order {
        Order::Go => run(),
        Order::GoThenDie => {
            let _ = run();
            Err(gone())
        }
        Order::Half(_) => Err(gone()),
        Order::Refuse(error) => Err(error),
    }
}

pub(super) fn written(
    op: Op,
    path: &Path,
    data: &[u8],
    run: impl FnOnce(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let order = STATE.with_borrow_mut(|s| s.order(op, &[path], true));
    let run = |part: &[u8]| {
        if STATE.with_borrow(|s| s.loses(op, path)) {
            return Ok(());
        }
        run(part).inspect(|()| did(op, &[path]))
    };
    match order {
        Order::Go => run(data),
        Order::GoThenDie => {
            let _ = run(data);
            Err(gone())
        }
        Order::Half(error) => {
            let _ = run(&data[..data.len() / 2]);
            Err(error.map_or_else(gone, io::Error::from_raw_os_error))
        }
        Order::Refuse(error) => Err(error),
    }
}

/// Watches what becomes durable below a directory from now on, on this thread.
pub(crate) fn watch(root: &Path) {
    let disk = Disk::watch(root);
    STATE.with_borrow_mut(|s| s.disk = Some(disk));
}

/// Ends the watch.
pub(crate) fn unwatch() -> Option<Disk> {
    STATE.with_borrow_mut(|s| s.disk.take())
}

/// Breaks the program on this thread, none to mend it.
pub(crate) fn plant(plant: Option<Plant>) {
    STATE.with_borrow_mut(|s| s.plant = plant);
}

/// The boot id this thread reads; none = the machine's.
pub(crate) fn boot_id() -> Option<String> {
    STATE.with_borrow(|s| s.boot.clone())
}

/// What the calls of this thread met since it was armed.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Every call up to the end.
    pub(crate) made: Vec<Made>,
    /// The planned call was reached.
    pub(crate) hit: bool,
}

/// From now on the calls of this thread are counted; the `n`th of `kind` (from 1) ends as planned.
pub(crate) fn arm(plan: Option<(Kind, usize, Ending)>) {
    let armed = Armed { plan, mutating: 0, reading: 0, made: Vec::new(), hit: false };
    STATE.with_borrow_mut(|s| (s.armed, s.dead) = (Some(armed), false));
}

/// Ends counting; the thread lives again.
pub(crate) fn disarm() -> Report {
    STATE.with_borrow_mut(|s| {
        s.dead = false;
        s.armed.take().map_or_else(Report::default, |a| Report { made: a.made, hit: a.hit })
    })
}

/// The boot id this thread reads from now on; none = the machine's.
pub(crate) fn set_boot(id: Option<&str>) {
    STATE.with_borrow_mut(|s| s.boot = id.map(str::to_owned));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{
        files::{self, Durable},
        lock::KernelLock,
    };

    fn steps(dir: &Path) -> Result<(), files::FileError> {
        files::write_new(&dir.join("a"), b"0123456789", 0o600, Durable::Yes)?;
        files::rename(&dir.join("a"), &dir.join("b"))
    }

    fn after(ending: Ending, n: usize) -> (Vec<(String, usize)>, Option<i32>) {
        let dir = tempfile::tempdir().unwrap();
        arm(Some((Kind::Mutating, n, ending)));
        let done = steps(dir.path());
        // Whoever cleans up finds that nothing can be changed any more.
        let _ = files::remove_optional(&dir.path().join("b"));
        assert!(disarm().hit);
        let size = |name: &str| std::fs::read(dir.path().join(name)).unwrap().len();
        let names = files::names(dir.path()).unwrap();
        let names = names.iter().map(|n| n.to_str().unwrap().to_owned());
        (names.map(|n| (n.clone(), size(&n))).collect(), done.err().unwrap().source.raw_os_error())
    }

    #[test]
    fn a_kill_leaves_the_disk_as_it_was_at_that_call() {
        let file = |name: &str, size| vec![(name.to_owned(), size)];
        assert_eq!(after(Ending::KillBefore, 1).0, vec![]);
        assert_eq!(after(Ending::KillAfter, 1).0, file("a", 0));
        assert_eq!(after(Ending::KillWithin, 2).0, file("a", 5));
        assert_eq!(after(Ending::KillAfter, 2).0, file("a", 10));
        assert_eq!(after(Ending::KillBefore, 4).0, file("a", 10));
        assert_eq!(after(Ending::KillAfter, 4).0, file("b", 10));
    }

    #[test]
    fn an_error_is_one_and_the_process_goes_on() {
        let (files, error) = after(Ending::Error(libc::ENOSPC), 2);
        assert_eq!((files, error), (vec![("a".to_owned(), 0)], Some(libc::ENOSPC)));
        let (files, error) = after(Ending::ErrorWithin(libc::EIO), 2);
        assert_eq!((files, error), (vec![("a".to_owned(), 5)], Some(libc::EIO)));
    }

    #[test]
    fn a_dead_process_lets_go_of_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = KernelLock::try_acquire(&path).unwrap().unwrap();
        arm(Some((Kind::Mutating, 1, Ending::KillBefore)));
        assert!(files::remove_optional(&path).is_err());
        drop(lock);
        assert!(KernelLock::try_acquire(&path).is_err(), "the dead take none");
        disarm();
        assert!(KernelLock::try_acquire(&path).unwrap().is_some());
    }
}

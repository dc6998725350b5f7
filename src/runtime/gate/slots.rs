//! How many gates run at once: a kernel lock for each that may, held by whoever runs one.
//!
//! Contract: the kernel knows who lives, so a slot is free the moment its holder is gone, however it went. Nobody is
//! promised an order; nobody is dropped. The files are empty and stay.

use crate::sys::{
    files::{self, FileError},
    lock::KernelLock,
};
use std::path::Path;

/// A place in which one policy's gates run; given back when dropped.
#[derive(Debug)]
pub struct Slot(#[expect(dead_code, reason = "held for its lock alone")] KernelLock);

/// Takes a slot of as many as there are; none when all are held.
///
/// # Errors
/// The files cannot be used.
pub fn take(agent_dir: &Path, slots: u32) -> Result<Option<Slot>, FileError> {
    let dir = agent_dir.join("slots");
    files::make_private_dirs(&dir)?;
    for at in 0..slots {
        if let Some(lock) = KernelLock::try_acquire(&dir.join(format!("gate.{at}")))? {
            return Ok(Some(Slot(lock)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_held_as_there_are_and_one_is_free_when_its_holder_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut held: Vec<Slot> = (0..3).map(|_| take(dir.path(), 3).unwrap().unwrap()).collect();
        assert!(take(dir.path(), 3).unwrap().is_none());
        assert!(take(dir.path(), 4).unwrap().is_some(), "a person raised their number");
        held.remove(1);
        assert!(take(dir.path(), 3).unwrap().is_some());
    }
}

//! What a recovery would do, told and not done.
//!
//! Contract: writes nothing in the repository and nothing beside it. What is under way in another process may look
//! as if it had to be mended; where the journal lock is there and can be had, it is waited for.

use super::recovery::require_further;
use crate::store::{
    Store, checkpoint::each_once, error::StoreError, locking::Locked, names::journal_ref,
    place::End, writer,
};
use crate::{code::Code, sys::files};

impl Store {
    /// What the next recovery mends, each as the name of what it concerns and a sentence.
    ///
    /// # Errors
    /// As [`Store::fsck_wal`], but nothing is written.
    pub fn would_mend(&self) -> Result<Vec<(String, String)>, StoreError> {
        // Nobody writes where the lock never was: it is made by whoever takes it.
        let lock = self.agent.join("lock");
        let _lock = if files::is_there(&lock)? { self.lock_to_look()? } else { None };
        let mut all = self.would_move()?;
        if all.is_empty() {
            all.extend(self.would_put_back()?);
        }
        let lost = self.would_rewrite()?;
        if lost > 0 {
            let what = format!("git lacks {lost} objects that the log has: they are written again");
            all.push(("objects of the journal".to_owned(), what));
        }
        Ok(all)
    }

    /// None where nothing can be written, or something else lies in its place: then nobody has it from here.
    fn lock_to_look(&self) -> Result<Option<Locked<'_>>, StoreError> {
        match self.lock() {
            Ok(lock) => Ok(Some(lock)),
            Err(e) if matches!(e.code(), Code::ReadOnly | Code::NotRegular) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Refs that do not show what the log says.
    fn would_move(&self) -> Result<Vec<(String, String)>, StoreError> {
        let tips = self.with_wal(|wal| Ok(wal.map(|w| w.tips().clone()).unwrap_or_default()))?;
        let mut moves = Vec::new();
        for name in self.behind(&tips)? {
            let Some(ours) = tips.get(&name).copied() else { continue };
            let actual = self.refs.read_sound(&name)?;
            let what = match actual {
                Some(actual) if !self.is_older(&name, &actual, &ours)? => {
                    require_further(self, &name, actual, ours)?;
                    format!("it is at {actual}, further than the log, which takes that over")
                }
                Some(actual) => {
                    format!("it is at {actual}, the log says {ours}: it is moved there")
                }
                None => {
                    format!("it is gone or holds no id, the log says {ours}: it is moved there")
                }
            };
            moves.push((name, what));
        }
        Ok(moves)
    }

    /// A journal that was set back, while its end is still here.
    fn would_put_back(&self) -> Result<Option<(String, String)>, StoreError> {
        let (Some(writer), tip) = (self.writer()?, self.own_tip()?) else { return Ok(None) };
        let End::Lost(seen) = writer::end(self, self.homes.seen(&writer), tip.as_ref())? else {
            return Ok(None);
        };
        writer::require_on_line(self, &writer, &seen, tip.as_ref())?;
        let name = journal_ref(&writer, writer::segment_of(self, &seen, tip.as_ref())?);
        let what = format!("it was set back before event {}: it is moved to {}", seen.seq, seen.id);
        Ok(Some((name, what)))
    }

    /// Objects of the log that git has no good copy of.
    fn would_rewrite(&self) -> Result<u64, StoreError> {
        let mut lost = 0;
        for object in each_once(self.logged()?) {
            lost += u64::from(!self.has_good(&object)?);
        }
        Ok(lost)
    }
}

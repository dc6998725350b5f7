//! Remedies: what can be put right, as values. Whoever judges names them, whoever is asked to repair applies them.
//!
//! Contract: each restores what the journal proves, or keeps what is damaged under another name; none guesses, none
//! edits the journal. What is wrong is worked out again when a remedy is applied, so applying it twice, or too late, does
//! nothing. Their order is the order in which they help each other: the log, then refs, then what is told from them.

use super::{Ledger, LedgerError, Receipt};
use crate::{domain::oid::Oid, limits, store::checks::SideFile, sys::clock};
use std::{fmt, path::PathBuf};

/// Something that can be put right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remedy {
    /// Something of another kind lies where a file or directory of ours belongs.
    PutMisplacedAside {
        /// Where it is.
        path: PathBuf,
    },
    /// A file of ours that can be told anew.
    MendSideFile(SideFile),
    /// The write-ahead log does not hold together.
    PutLogAside,
    /// The file that guards refs which git packs at that moment is missing.
    AddPackedRefs,
    /// The ref of a finished segment is lost.
    RestoreSegment {
        /// Its full name.
        name: String,
    },
    /// A commit that the journal names is kept alive by no evidence.
    PinAgain {
        /// Which.
        commit: Oid,
    },
    /// The index of events says something else than the journal.
    RebuildIndex,
    /// Notes cannot be read.
    SetNotesAside {
        /// Full name of the notes ref.
        notes: &'static str,
    },
    /// Lines are not in the notes.
    WriteReceipt(Receipt),
    /// Packs keep out of every repack for nothing.
    ReleasePacks,
    /// A file of ours is of no use.
    PutFileAside {
        /// Where it is.
        path: PathBuf,
    },
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MendSideFile(SideFile::Writer) => {
                f.write_str("keep the file under agentproto/damaged and write the id down anew")
            }
            Self::MendSideFile(SideFile::Packs | SideFile::Kept) => {
                f.write_str("keep a copy under agentproto/damaged and leave the sound lines")
            }
            Self::MendSideFile(SideFile::Recovered | SideFile::Dropped)
            | Self::PutMisplacedAside { .. }
            | Self::PutFileAside { .. } => f.write_str("keep the file under agentproto/damaged"),
            Self::PutLogAside => f.write_str(
                "make everything visible that can be read of the log, and keep its files under agentproto/damaged",
            ),
            Self::AddPackedRefs => f.write_str("make a packed-refs file without refs"),
            Self::RestoreSegment { name } => write!(f, "set {name} again"),
            Self::PinAgain { commit } => write!(f, "pin {commit} in the evidence again"),
            Self::RebuildIndex => f.write_str("make the index anew from the journal"),
            Self::SetNotesAside { notes } => {
                write!(f, "keep what {notes} holds under agentproto/damaged, and begin it anew")
            }
            Self::WriteReceipt(receipt) => {
                write!(f, "add the missing lines to {} on {}", receipt.notes, receipt.target)
            }
            Self::ReleasePacks => f.write_str("let git's own repack have them"),
        }
    }
}

impl Ledger {
    /// Applies a remedy; what was done in one sentence, none when nothing was wrong any more.
    ///
    /// # Errors
    /// It cannot be done: then what was there is still there.
    pub fn apply(&self, remedy: &Remedy) -> Result<Option<String>, LedgerError> {
        let store = self.store();
        let done = match remedy {
            Remedy::MendSideFile(file) => store
                .mend_side_file(*file)?
                .then(|| format!("agentproto/{} was put right", file.file_name())),
            Remedy::PutLogAside => self.put_log_aside()?,
            Remedy::AddPackedRefs => {
                let missing = store.lacks_packed_refs()?;
                store.add_packed_refs()?;
                missing.then(|| "a packed-refs file was made".to_owned())
            }
            Remedy::RestoreSegment { name } => {
                store.restore_segment(name)?.then(|| format!("{name} was set again"))
            }
            Remedy::PinAgain { commit } => {
                let pinned = store.pin_again(&self.stamp()?, commit)?;
                pinned.then(|| format!("{commit} is kept alive by the evidence again"))
            }
            Remedy::RebuildIndex => self.rebuild_index()?,
            Remedy::SetNotesAside { notes } => {
                let kept = store.set_notes_aside(&self.stamp()?, notes)?;
                kept.map(|kept| format!("{notes} was begun anew, {} keeps it", kept.display()))
            }
            Remedy::WriteReceipt(receipt) => {
                let said = || format!("{} on {} is whole", receipt.notes, receipt.target);
                self.write_receipt(receipt)?.then(said)
            }
            Remedy::ReleasePacks => {
                let names = store.release_stale_packs(clock::now(), limits::PACK_STALE_MS)?;
                (!names.is_empty()).then(|| format!("{} packs were released", names.len()))
            }
            Remedy::PutMisplacedAside { path } => {
                let kept = store.put_misplaced_aside(path)?;
                kept.map(|kept| format!("{} is now {}", path.display(), kept.display()))
            }
            Remedy::PutFileAside { path } => {
                let kept = store.put_file_aside(path)?;
                kept.map(|kept| format!("{} is now {}", path.display(), kept.display()))
            }
        };
        Ok(done)
    }

    fn put_log_aside(&self) -> Result<Option<String>, LedgerError> {
        let Some(aside) = self.store.put_log_aside()? else { return Ok(None) };
        let files: Vec<String> = aside.files.iter().map(|f| f.display().to_string()).collect();
        let (objects, refs) = (aside.objects, aside.refs.len());
        let kept = files.join(", ");
        let mut done = format!(
            "the log was put aside ({kept}); {objects} objects and {refs} refs came from it"
        );
        for (path, at) in &aside.unsearched {
            done.push_str(&format!(
                "; behind byte {at} of {} nothing was looked at",
                path.display()
            ));
        }
        Ok(Some(done))
    }

    fn rebuild_index(&self) -> Result<Option<String>, LedgerError> {
        let Some(tip) = self.store.own_tip()? else { return Ok(None) };
        if self.store.index_damage(&tip)?.is_none() {
            return Ok(None);
        }
        self.store.rebuild_index(&tip)?;
        Ok(Some("the index of events was made anew".to_owned()))
    }
}

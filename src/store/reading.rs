//! Reading a journal: its end, its entries, the documents of its state.
//!
//! Contract: nothing here writes or needs the journal lock. What our refs do not show yet and the log holds
//! counts as there.

use super::{
    Store,
    commit::{self, Entry},
    error::StoreError,
    journal::Tip,
    names::{JOURNALS, REMOTES, journal_ref, journal_writer},
    object::Kind,
    tree::{self, Mode},
};
use crate::domain::{ids::WriterId, oid::Oid};

impl Store {
    /// The end of our own journal; none before the first append.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn own_tip(&self) -> Result<Option<Tip>, StoreError> {
        let Some(writer) = self.writer()? else { return Ok(None) };
        let id = self.own_value(&journal_ref(&writer))?;
        id.map(|id| self.tip_at(writer, &id)).transpose()
    }

    /// What one of our refs holds or, where the log knows better, will hold.
    pub(super) fn own_value(&self, name: &str) -> Result<Option<Oid>, StoreError> {
        let actual = self.refs.read(name);
        self.with_wal(|wal| {
            let ours = wal.as_ref().and_then(|w| w.tips().get(name).copied());
            match (ours, actual) {
                (None, actual) => actual,
                (Some(ours), Ok(None) | Err(StoreError::BrokenRef { .. })) => Ok(Some(ours)),
                (Some(ours), Ok(Some(id))) => {
                    let behind = wal.is_some_and(|w| w.has_passed(name, &id));
                    Ok(Some(if behind { ours } else { id }))
                }
                (Some(_), Err(e)) => Err(e),
            }
        })
    }

    fn tip_at(&self, writer: WriterId, id: &Oid) -> Result<Tip, StoreError> {
        let entry = self.entry(id)?;
        Ok(Tip { writer, seq: entry.seq, id: entry.id, tree: entry.tree })
    }

    /// The end of every journal that is here, our own first.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn journals(&self) -> Result<Vec<Tip>, StoreError> {
        let mut tips: Vec<Tip> = self.own_tip()?.into_iter().collect();
        let own = tips.first().map(|t| journal_ref(&t.writer));
        for name in self.refs.names(JOURNALS)?.into_iter().chain(self.refs.names(REMOTES)?) {
            let Some(writer) = journal_writer(&name).filter(|_| Some(&name) != own.as_ref()) else {
                continue;
            };
            if let Some(id) = self.refs.read(&name)? {
                tips.push(self.tip_at(writer, &id)?);
            }
        }
        Ok(tips)
    }

    /// Reads one journal entry.
    ///
    /// # Errors
    /// It is missing, unreadable or no journal entry.
    pub fn entry(&self, id: &Oid) -> Result<Entry, StoreError> {
        commit::entry(&self.object(id)?)
    }

    /// The document at a path of a state tree.
    ///
    /// # Errors
    /// A tree cannot be read, or the path leads to something else than a file.
    pub fn document(&self, tree: &Oid, path: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.at_path(tree, path)? {
            Some((_, id)) => self.require(&id, Kind::Blob).map(Some),
            None => Ok(None),
        }
    }

    /// All documents below a directory of a state tree (`""` = all), in path order.
    ///
    /// # Errors
    /// A tree or document cannot be read.
    pub fn documents(&self, tree: &Oid, dir: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let dir = dir.trim_end_matches('/');
        let mut found = Vec::new();
        let (root, above) = if dir.is_empty() {
            (*tree, String::new())
        } else {
            match self.at_path(tree, dir)? {
                Some((Mode::Tree, id)) => (id, format!("{dir}/")),
                Some(_) | None => return Ok(found),
            }
        };
        self.collect(&root, &above, &mut found)?;
        found.sort();
        Ok(found)
    }

    fn collect(
        &self,
        tree: &Oid,
        above: &str,
        into: &mut Vec<(String, Vec<u8>)>,
    ) -> Result<(), StoreError> {
        for entry in self.tree(tree)? {
            let path = format!("{above}{}", String::from_utf8_lossy(&entry.name));
            if entry.mode == Mode::Tree {
                self.collect(&entry.id, &format!("{path}/"), into)?;
            } else {
                into.push((path, self.require(&entry.id, Kind::Blob)?));
            }
        }
        Ok(())
    }

    fn at_path(&self, tree: &Oid, path: &str) -> Result<Option<(Mode, Oid)>, StoreError> {
        let mut at = (Mode::Tree, *tree);
        for name in path.split('/') {
            if at.0 != Mode::Tree {
                return Ok(None);
            }
            let entries = self.tree(&at.1)?;
            match entries.into_iter().find(|e| e.name == name.as_bytes()) {
                Some(entry) => at = (entry.mode, entry.id),
                None => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Reads a tree.
    pub(super) fn tree(&self, id: &Oid) -> Result<Vec<tree::Entry>, StoreError> {
        let data = self.require(id, Kind::Tree)?;
        tree::parse(self.hash, &data).map_err(|e| StoreError::WrongObject {
            id: *id,
            expected: "tree",
            reason: e.to_string(),
        })
    }
}

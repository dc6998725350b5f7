//! Reading a journal: its end, its entries, the documents of its state.
//!
//! Contract: nothing here writes or needs the journal lock. What our refs do not show yet and the log holds
//! counts as there.

use crate::domain::{ids::WriterId, oid::Oid};
use crate::store::{
    Store,
    commit::{self, Entry},
    error::StoreError,
    journal::Tip,
    names::{JOURNALS, REMOTES, Segment, chain_parts, journal_parts, journal_ref, journal_writer},
    place::End,
    state, tree,
    writer::{self, Gone},
};
use std::{collections::BTreeMap, path::PathBuf};

/// The journals that are here.
#[derive(Debug, Default)]
pub struct Journals {
    /// The end of each, our own first.
    pub tips: Vec<Tip>,
    /// Those of others whose end cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// A journal whose end cannot be read.
#[derive(Debug)]
pub struct Unreadable {
    /// Whose.
    pub writer: WriterId,
    /// Full name of the ref of its newest segment.
    pub name: String,
    /// What the ref holds; none when that cannot be told either.
    pub id: Option<Oid>,
    /// What is wrong.
    pub why: StoreError,
}

impl Store {
    /// The end of our own journal; none before the first append.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn own_tip(&self) -> Result<Option<Tip>, StoreError> {
        let Some(writer) = self.writer()? else { return Ok(None) };
        let Some(segment) = self.own_segment(&writer)? else { return Ok(None) };
        let name = journal_ref(&writer, segment);
        let id = self.own_value(&name)?;
        id.map(|id| self.tip_at(&name, &id)).transpose()
    }

    /// The newest segment of our own journal. Where the log knows one it is asked alone: the list of refs is long
    /// in some repositories, and a newer segment that the log does not know is not ours.
    fn own_segment(&self, writer: &WriterId) -> Result<Option<Segment>, StoreError> {
        let of_writer = |name: &String| {
            chain_parts(name).filter(|(w, _)| w == writer).map(|(_, segment)| segment)
        };
        let logged = self.with_sound_wal(|wal| {
            let journals =
                wal.iter().flat_map(|w| w.tips().keys()).filter(|n| n.starts_with(JOURNALS));
            Ok(journals.filter_map(of_writer).max())
        })?;
        match logged {
            Some(segment) => Ok(Some(segment)),
            None => {
                let names = self.refs.names(&format!("{JOURNALS}{writer}/"))?;
                Ok(names.iter().filter_map(of_writer).max())
            }
        }
    }

    /// What one of our refs holds or, where the log knows better, will hold.
    pub(in crate::store) fn own_value(&self, name: &str) -> Result<Option<Oid>, StoreError> {
        let actual = self.refs.read_leading(name);
        let (ours, behind) = self.with_sound_wal(|wal| {
            let Some(wal) = wal else { return Ok((None, false)) };
            let at = actual.as_ref().ok().copied().flatten();
            let behind = at.is_some_and(|id| wal.has_passed(name, &id));
            Ok((wal.tips().get(name).copied(), behind))
        })?;
        match (ours, actual) {
            (None, actual) => actual,
            (Some(ours), Ok(None) | Err(StoreError::BrokenRef { .. })) => Ok(Some(ours)),
            (Some(ours), Ok(Some(id))) => Ok(Some(if behind { ours } else { id })),
            (Some(_), Err(e)) => Err(e),
        }
    }

    /// The files of which one is another whenever our own journal is: the log, through which every append goes, and
    /// those of its ref, which others can move.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn journal_shows_in(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut files = self.wal_paths.files.to_vec();
        if let Some(writer) = self.writer()?
            && let Some(segment) = self.own_segment(&writer)?
        {
            files.extend(self.refs.shows_in(&journal_ref(&writer, segment)));
        }
        Ok(files)
    }

    /// The same of any ref.
    #[must_use]
    pub fn ref_shows_in(&self, full_name: &str) -> Vec<PathBuf> {
        self.refs.shows_in(full_name)
    }

    fn tip_at(&self, name: &str, id: &Oid) -> Result<Tip, StoreError> {
        let (writer, segment) = journal_parts(name).ok_or_else(|| StoreError::BrokenRef {
            name: name.to_owned(),
            reason: "its name is not that of a journal".to_owned(),
        })?;
        let entry = self.entry(id)?;
        let dir = name.rsplit_once('/').map_or("", |(dir, _)| dir);
        let (dir, seq, id, tree) = (format!("{dir}/"), entry.seq, entry.id, entry.tree);
        Ok(Tip { writer, dir, segment, seq, id, tree })
    }

    /// The end of every journal that is here. One of somebody else that cannot be read is told apart, so that it
    /// takes nothing from the others.
    ///
    /// # Errors
    /// Our own cannot be read, or the refs cannot be listed.
    pub fn journals(&self) -> Result<Journals, StoreError> {
        let mut found = Journals::default();
        found.tips.extend(self.own_tip()?);
        let own = found.tips.first().map(|t| t.dir.clone());
        let mut newest: BTreeMap<String, Segment> = BTreeMap::new();
        for name in self.refs.names(JOURNALS)?.into_iter().chain(self.refs.names(REMOTES)?) {
            let (Some((_, segment)), Some((dir, _))) =
                (journal_parts(&name), name.rsplit_once('/'))
            else {
                continue;
            };
            let at = newest.entry(format!("{dir}/")).or_insert(segment);
            *at = segment.max(*at);
        }
        for (dir, segment) in newest.into_iter().filter(|(dir, _)| Some(dir) != own.as_ref()) {
            self.add_foreign(&format!("{dir}{segment}"), &mut found);
        }
        Ok(found)
    }

    fn add_foreign(&self, name: &str, found: &mut Journals) {
        let Some((writer, _)) = journal_parts(name) else { return };
        let read = self.refs.read_leading(name);
        let id = read.as_ref().ok().copied().flatten();
        match read.and_then(|id| id.map(|id| self.tip_at(name, &id)).transpose()) {
            Ok(tip) => found.tips.extend(tip),
            Err(why) => {
                found.unreadable.push(Unreadable { writer, name: name.to_owned(), id, why });
            }
        }
    }

    /// The end of our own journal against the event noted as its last one.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn end(&self) -> Result<End, StoreError> {
        let Some(writer) = self.writer()? else { return Ok(End::Held) };
        // The note first: somebody may append, and note that, between the two looks.
        let noted = self.homes.seen(&writer);
        writer::end(self, noted, self.own_tip()?.as_ref())
    }

    /// Journals that were written here and of which nothing is here, though something tells of them.
    ///
    /// # Errors
    /// The refs, or the notes of this user, cannot be read.
    pub fn gone_journals(&self) -> Result<Vec<Gone>, StoreError> {
        writer::gone(self)
    }

    /// Journals of which this user's machine noted events at this path, when it cannot be told whether the repository
    /// was made anew since; none of which a ref is here.
    ///
    /// # Errors
    /// The refs, or the notes of this user, cannot be read.
    pub fn perhaps_gone_journals(&self) -> Result<Vec<WriterId>, StoreError> {
        let mut perhaps = self.homes.used_here(&self.location.common_dir)?.perhaps;
        let names = self.refs.names(JOURNALS)?;
        perhaps.retain(|writer| !names.iter().any(|n| journal_writer(n).as_ref() == Some(writer)));
        Ok(perhaps)
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
        state::document(&|id, kind| self.require(id, kind), tree, path)
    }

    /// All documents below a directory of a state tree (`""` = all), in path order.
    ///
    /// # Errors
    /// A tree or document cannot be read.
    pub fn documents(&self, tree: &Oid, dir: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        state::documents(&|id, kind| self.require(id, kind), tree, dir)
    }

    /// Reads a tree.
    pub(in crate::store) fn tree(&self, id: &Oid) -> Result<Vec<tree::Entry>, StoreError> {
        state::entries(&|id, kind| self.require(id, kind), id)
    }
}

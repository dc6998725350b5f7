//! What the journals of other clones tell, for whoever only wants to look. Nothing of it is acted on here.

use super::super::{Ledger, LedgerError, load};
use crate::{
    domain::{
        ids::{PolicyId, WriterId},
        policy::Policy,
    },
    store::Tip,
};

/// A policy that another clone owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The policy.
    pub id: PolicyId,
    /// Whose journal tells of it.
    pub writer: WriterId,
    /// Where its document is, as git names it: a commit of that journal and the path in it.
    pub document: String,
}

impl Ledger {
    /// The newest entries of all journals here that this clone does not write. One that cannot be read is left out:
    /// `verify` and `fsck` tell of it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn journals_elsewhere(&self) -> Result<Vec<Tip>, LedgerError> {
        let own = self.tip()?.map(|tip| tip.writer);
        let mut tips = self.store.journals()?.tips;
        tips.retain(|tip| Some(&tip.writer) != own.as_ref());
        Ok(tips)
    }

    /// The policies of other clones with this id, beginning of an id, or label.
    ///
    /// # Errors
    /// A journal cannot be read.
    pub fn policies_elsewhere(&self, text: &str) -> Result<Vec<Elsewhere>, LedgerError> {
        let mut found = Vec::new();
        for tip in self.journals_elsewhere()? {
            for dir in ["open", "closed"] {
                for (path, bytes) in self.store.documents(&tip.tree, dir)? {
                    if !super::file_name(&path).starts_with(PolicyId::PREFIX) {
                        continue;
                    }
                    let policy: Policy = load::decode(&path, &bytes)?.value;
                    let id = policy.policy_id;
                    let begins =
                        text.starts_with(PolicyId::PREFIX) && id.as_str().starts_with(text);
                    if begins || policy.spec.label.as_deref() == Some(text) {
                        let document = format!("{}:{path}", tip.id);
                        found.push(Elsewhere { id, writer: tip.writer.clone(), document });
                    }
                }
            }
        }
        Ok(found)
    }
}

//! Landed commits against their branches. People rewrite branches, so one that is not there is told, not blamed.
//! A `HEAD` that was on none goes on by itself.

use super::{super::commits, report::Findings};
use crate::{
    domain::{
        candidate::is_head,
        oid::Oid,
        policy::{Outcome, Policy},
    },
    enforce::chain::Chain,
    ledger::Ledger,
};
use std::collections::{BTreeMap, HashMap};

/// Which landed commits are not on their branch any more.
pub(super) fn landed(ledger: &Ledger, own: &Chain, found: &mut Findings) {
    let store = ledger.store();
    if let Ok(repo) = store.repo()
        && let Ok(Some(id)) = commits::cut(&repo, commits::Objects(store))
    {
        let what =
            format!("it ends the history at {id}, whose parents are here; verify cannot tell");
        found.note("shallow", what);
    }
    let mut by_branch: BTreeMap<&str, HashMap<Oid, &Policy>> = BTreeMap::new();
    for policy in own.state.policies.values().filter(|p| p.outcome == Some(Outcome::Committed)) {
        let spec = policy.spec.commit.as_ref().filter(|spec| !is_head(&spec.branch));
        if let (Some(spec), Some(commit)) = (spec, policy.commit_sha) {
            by_branch.entry(&spec.branch).or_default().insert(commit, policy);
        }
    }
    for (branch, commits) in by_branch {
        match ledger.store().reference(branch) {
            Ok(Some(tip)) => match absent(ledger, tip, commits) {
                Ok(absent) => absent.into_iter().for_each(|(commit, policy)| {
                    let what = format!("{branch} does not contain its commit {commit}");
                    found.note(policy.policy_id.as_str(), what);
                }),
                Err(why) => {
                    let what = format!("cannot tell which commits it contains: {why}");
                    found.problem(crate::code::Code::StoreUnusable, branch, what);
                }
            },
            Ok(None) => commits.into_values().for_each(|policy| {
                found.note(policy.policy_id.as_str(), format!("its branch {branch} is gone"));
            }),
            Err(e) => found.store(branch, &e),
        }
    }
}

/// Those of the commits that `tip` does not lead to, in an order that does not change.
fn absent<'a>(
    ledger: &Ledger,
    tip: Oid,
    mut wanted: HashMap<Oid, &'a Policy>,
) -> Result<BTreeMap<Oid, &'a Policy>, String> {
    let repo = ledger.store().repo().map_err(|e| e.to_string())?;
    let start = gix::ObjectId::try_from(tip.as_bytes()).map_err(|e| e.to_string())?;
    let walk = repo.rev_walk([start]).all().map_err(|e| e.to_string())?;
    for commit in walk {
        let commit = commit.map_err(|e| e.to_string())?;
        if let Ok(id) = Oid::from_bytes(commit.id.as_slice()) {
            wanted.remove(&id);
        }
        if wanted.is_empty() {
            break;
        }
    }
    Ok(wanted.into_iter().collect())
}

//! What a thing is called on a terminal: its label where that is enough, else its id.

use super::cx::Cx;
use crate::{
    domain::{policy::Policy, session::Session},
    ledger::{Ledger, LedgerError},
};
use std::collections::{BTreeMap, BTreeSet};

/// Shortest beginning of an id that is shown for it.
const SHORT_ID_CHARS: usize = 12;

/// Every id there is and the labels of what lives, so that what is shown can be typed back.
#[derive(Debug, Default)]
pub(super) struct Names {
    ids: BTreeSet<String>,
    labels: BTreeMap<String, usize>,
    /// Ids are shown by their beginnings.
    pub(super) short: bool,
}

impl Names {
    /// Those of a repository; for programs and pipes ids stay whole.
    pub(super) fn load(cx: &Cx, ledger: &Ledger) -> Result<Self, LedgerError> {
        let mut names = Self { short: cx.columns.is_some(), ..Self::default() };
        names.ids.extend(ledger.ids()?);
        for label in ledger.living_labels()? {
            *names.labels.entry(label).or_default() += 1;
        }
        Ok(names)
    }

    /// The policy as it is typed in a command: its label when that leads to it alone, else its id.
    pub(super) fn of_policy(&self, policy: &Policy) -> String {
        let living = !policy.status.is_terminal();
        self.typed(policy.policy_id.as_str(), policy.spec.label.as_deref().filter(|_| living))
    }

    /// The session as it is typed in a command.
    pub(super) fn of_session(&self, session: &Session) -> String {
        let living = !session.is_exited();
        self.typed(session.session_id.as_str(), session.label.as_deref().filter(|_| living))
    }

    fn typed(&self, id: &str, label: Option<&str>) -> String {
        // A label that looks like an option would not be read as a name.
        let alone = |l: &&str| self.labels.get(*l) == Some(&1) && !l.starts_with('-');
        label.filter(alone).map_or_else(|| id.to_owned(), |l| shell_words::quote(l).into_owned())
    }

    /// The beginning of an id that no other id has, where room is short.
    pub(super) fn short(&self, id: &str) -> String {
        if !self.short {
            return id.to_owned();
        }
        let is_alone = |n: &usize| {
            let begin = id.get(..*n).unwrap_or(id);
            !self.ids.iter().any(|other| other != id && other.starts_with(begin))
        };
        let chars = (SHORT_ID_CHARS..id.len()).find(is_alone).unwrap_or(id.len());
        id.get(..chars).unwrap_or(id).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::testing::policy;

    fn names(ids: &[&str], labels: &[(&str, usize)]) -> Names {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let labels = labels.iter().map(|(label, n)| ((*label).to_owned(), *n)).collect();
        Names { ids, labels, short: true }
    }

    #[test]
    fn ids_are_shortened_to_what_no_other_begins_with() {
        let (one, two) = ("pol_01arz3ndektsv4rrffq69g5fav", "pol_01arz3ndektsv4rrffq69g5faw");
        let far = "pol_01arz3xdektsv4rrffq69g5faw";
        assert_eq!(names(&[one], &[]).short(one), "pol_01arz3nd");
        assert_eq!(names(&[one, far], &[]).short(one), "pol_01arz3nd");
        assert_eq!(names(&[one, two], &[]).short(two), two);
        assert_eq!(Names { short: false, ..names(&[one], &[]) }.short(one), one);
    }

    #[test]
    fn a_label_stands_in_a_command_when_it_leads_to_one_living_thing() {
        let waiting = policy("awaiting-ack");
        let id = waiting.policy_id.as_str();
        assert_eq!(names(&[id], &[("nightly", 1)]).of_policy(&waiting), "nightly");
        assert_eq!(names(&[id], &[("nightly", 2)]).of_policy(&waiting), id);
        assert_eq!(names(&[id], &[("nightly", 1)]).of_policy(&policy("done")), id);
        let mut odd = policy("watching");
        odd.spec.label = Some("two words".into());
        assert_eq!(names(&[id], &[("two words", 1)]).of_policy(&odd), "'two words'");
        odd.spec.label = Some("--yes".into());
        assert_eq!(names(&[id], &[("--yes", 1)]).of_policy(&odd), id);
    }
}

//! How many approvals land a candidate, and whose do not count.
//!
//! Contract: asked of what only a person writes: system and global configuration and the person's settings of the
//! repository. All of them count, the strictest decides; what was in force at the attach holds until the policy is
//! over. A value that cannot be understood is no rule and lets nobody pass.

use super::{Ledger, LedgerError, gates::settings_error};
use crate::{
    domain::policy::{CommitSpec, Policy},
    limits,
    sign::{
        NAMESPACE,
        exclude::{Excluded, SUPERVISOR},
        signers::Signers,
    },
    store::{
        settings::{SettingsError, user_scope_all},
        trusted::Trust,
    },
};

const QUORUM: &str = "agentproto.ackQuorum";
const EXCLUDE: &str = "agentproto.ackExclude";

/// The rules about answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AckRules {
    /// Approvals by distinct keys.
    pub(super) quorum: u32,
    /// `author`, `supervisor`, principals, fingerprints.
    pub(super) exclude: Vec<String>,
}

impl AckRules {
    /// The rules in force now.
    pub(super) fn load(repo: &gix::Repository, trust: &Trust) -> Result<Self, SettingsError> {
        let all = |key| -> Result<Vec<String>, SettingsError> {
            Ok([user_scope_all(repo, key)?, trust.settings.get_all(key)?].concat())
        };
        let mut rules = Self { quorum: 1, exclude: vec![] };
        for value in all(QUORUM)? {
            rules.quorum = rules.quorum.max(quorum(&value)?);
        }
        for value in all(EXCLUDE)? {
            let words = value.split([',', ' ', '\t']).filter(|word| !word.is_empty());
            rules.add(words.map(str::to_owned));
        }
        Ok(rules)
    }

    fn add(&mut self, words: impl IntoIterator<Item = String>) {
        for word in words {
            if !self.exclude.contains(&word) {
                self.exclude.push(word);
            }
        }
    }

    /// The same, made as strict as what a policy was attached with.
    pub(super) fn with(mut self, spec: &CommitSpec) -> Self {
        self.quorum = self.quorum.max(spec.ack_quorum);
        self.add(spec.ack_exclude.iter().cloned());
        self
    }

    /// Keys that could approve a candidate with this commit object.
    pub(super) fn voices(&self, signers: &Signers, commit: &[u8]) -> usize {
        Excluded::new(&self.exclude, commit).left_in(signers, NAMESPACE).len()
    }
}

fn quorum(value: &str) -> Result<u32, SettingsError> {
    let number = value.parse().ok().filter(|n| (1..=limits::ACK_QUORUM_MAX).contains(n));
    number.ok_or_else(|| SettingsError::Value {
        key: QUORUM.to_owned(),
        value: value.to_owned(),
        why: "not a number from 1 to 16",
    })
}

impl Ledger {
    /// Approvals by distinct keys that it takes to land a waiting candidate, by the rules as they are now.
    ///
    /// # Errors
    /// The rules cannot be read or understood.
    pub fn quorum(&self, policy: &Policy) -> Result<u32, LedgerError> {
        let rules = AckRules::load(&self.repo()?, &self.trust()?).map_err(settings_error)?;
        Ok(rules.quorum.max(policy.approvals_needed()))
    }

    /// The rules about answers in force now, and the fingerprint that `supervisor` stands for in them.
    pub(super) fn ack_rules(
        &self,
        repo: &gix::Repository,
        trust: &Trust,
    ) -> Result<AckRules, LedgerError> {
        let mut rules = AckRules::load(repo, trust).map_err(settings_error)?;
        // Written down as the key it means here: what it would mean elsewhere is another key.
        if let Some(at) = rules.exclude.iter().position(|word| word == SUPERVISOR) {
            rules.exclude[at] = self.signing_key(repo, trust, None)?.fingerprint();
        }
        Ok(rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{code::Code, ledger::lab::Lab, sign::key};

    fn rules(lab: &Lab) -> Result<AckRules, LedgerError> {
        let ledger = lab.ledger();
        ledger.ack_rules(&ledger.repo()?, &ledger.trust()?)
    }

    #[test]
    fn without_a_rule_one_answer_of_anybody_is_enough() {
        let lab = Lab::new();
        assert_eq!(rules(&lab).unwrap(), AckRules { quorum: 1, exclude: vec![] });
    }

    #[test]
    fn what_an_agent_can_write_is_no_rule_and_no_leave() {
        let lab = Lab::new();
        lab.set(QUORUM, "3");
        lab.repo.git(&["config", QUORUM, "1"]);
        lab.repo.git(&["config", EXCLUDE, "author"]);
        assert_eq!(rules(&lab).unwrap(), AckRules { quorum: 3, exclude: vec![] });
    }

    #[test]
    fn words_are_told_apart_and_the_supervisor_is_a_key() {
        let lab = Lab::new();
        lab.set(EXCLUDE, "author, supervisor eve@example.invalid");
        let own = key::load(&lab.key("tess")).unwrap().fingerprint();
        let found = rules(&lab).unwrap().exclude;
        assert_eq!(found, ["author".to_owned(), own, "eve@example.invalid".to_owned()]);
    }

    #[test]
    fn the_strictest_of_now_and_then_counts() {
        let mut spec = crate::ledger::lab::commit_spec();
        (spec.ack_quorum, spec.ack_exclude) = (2, vec!["author".into(), "x".into()]);
        let now = |quorum| AckRules { quorum, exclude: vec!["x".into()] };
        let both = vec!["x".to_owned(), "author".to_owned()];
        assert_eq!(now(1).with(&spec), AckRules { quorum: 2, exclude: both.clone() });
        assert_eq!(now(3).with(&spec), AckRules { quorum: 3, exclude: both });
    }

    #[test]
    fn a_number_that_is_none_lets_nobody_pass() {
        for value in ["0", "17", "two", "-1", "", "1.5"] {
            let lab = Lab::new();
            lab.set(QUORUM, value);
            assert_eq!(rules(&lab).unwrap_err().code(), Code::BadSetting, "{value}");
        }
        let lab = Lab::new();
        lab.set(QUORUM, "16");
        assert_eq!(rules(&lab).unwrap().quorum, 16);
    }
}

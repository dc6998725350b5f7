//! What of `init` is still missing for a policy that somebody is about to ask for.
//!
//! Contract: only looks. What would not help when it were done is not named: a gate that is not there, or that a
//! shell would have to read, is refused by its own name, and so is everything that cannot be told.

use super::super::{
    AttachAsk, GateAsk, Ledger, LedgerError,
    gates::{PATH_KEY, needs_a_shell, settings_error},
};
use crate::{
    code::Code,
    domain::ids::SessionId,
    sign::choose::{ChooseKeyError, SignersInForce, SignersInForceError, load_signing_key},
    store::{Worktree, program::FixedPath, settings::protected, trusted::Trust},
};

/// What a person can set up in one go, so that a policy can be attached and answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// What `init` does without being told anything: somebody will be asked and there is no key to answer with or
    /// no file that says whose answer counts; or a gate is where only the person's own `PATH` finds it.
    pub init: bool,
    /// Gates that could run and that nothing allows, as they were typed.
    pub gates: Vec<Vec<String>>,
}

impl Lacking {
    /// Nothing is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.init && self.gates.is_empty()
    }
}

impl Ledger {
    /// What is missing for `ask`, whose gates run in the worktree of `session` or else in the current one.
    ///
    /// # Errors
    /// It cannot be told.
    pub fn lacking(
        &self,
        ask: &AttachAsk,
        session: Option<&SessionId>,
    ) -> Result<Lacking, LedgerError> {
        let worktree = match session {
            Some(id) => self.worktree(&self.require_session(id)?.worktree)?,
            None => self.store.location().worktree.clone(),
        };
        let worktree = worktree.ok_or_else(|| {
            LedgerError::refused(Code::BareUnsupported, "gates", "there is no worktree to run in")
        })?;
        let trust = self.trust()?;
        let mut lacking = self.lacking_gates(ask, &worktree, &trust)?;
        lacking.init |= asks_somebody(ask) && self.lacks_answers(&trust)?;
        Ok(lacking)
    }

    fn lacks_answers(&self, trust: &Trust) -> Result<bool, LedgerError> {
        let repo = self.repo()?;
        let set = trust.settings.get(super::SIGNING_KEY).map_err(settings_error)?;
        let has_no_key = set.is_none()
            && matches!(load_signing_key(&repo, &self.env, None), Err(ChooseKeyError::None(_)));
        let signers = SignersInForce::load(&repo, &self.env, trust);
        Ok(has_no_key || matches!(signers, Err(SignersInForceError::None)))
    }

    fn lacking_gates(
        &self,
        ask: &AttachAsk,
        worktree: &Worktree,
        trust: &Trust,
    ) -> Result<Lacking, LedgerError> {
        let mut lacking = Lacking::default();
        let rules = self.gate_rules(worktree, trust)?;
        let now = self.fixed_path(worktree)?;
        let later = self.path_after_init(worktree, trust)?;
        let finds = |path: &FixedPath, argv0: &String| path.program(argv0, &worktree.top).is_ok();
        let mut next = Some(ask);
        while let Some(ask) = next {
            for argv in ask.gates.iter().filter_map(GateAsk::argv) {
                let Some(argv0) = argv.first().filter(|_| is_plain(argv)) else { continue };
                if !finds(&later, argv0) {
                    continue;
                }
                lacking.init |= !finds(&now, argv0);
                if !rules.lists(argv, worktree) && !lacking.gates.contains(argv) {
                    lacking.gates.push(argv.clone());
                }
            }
            next = ask.next.as_ref().map(|next| &next.ask);
        }
        Ok(lacking)
    }

    /// Where programs of gates are found once `init` was run: it fixes the person's own `PATH` where none is.
    fn path_after_init(
        &self,
        worktree: &Worktree,
        trust: &Trust,
    ) -> Result<FixedPath, LedgerError> {
        let repo = self.repo_in(worktree)?;
        let set = protected(&repo, &trust.settings, PATH_KEY).map_err(settings_error)?;
        let own = || self.env.text("PATH").map(str::to_owned);
        Ok(FixedPath::new(set.or_else(own).as_deref(), &self.never_on_path(worktree)?))
    }
}

/// A program can be given these words, and does with them what was meant.
fn is_plain(argv: &[String]) -> bool {
    needs_a_shell(argv).is_none() && !argv.iter().any(|word| word.contains('\0'))
}

/// Whether the policy, or what follows it, waits for an answer some day.
fn asks_somebody(ask: &AttachAsk) -> bool {
    ask.commit.as_ref().is_some_and(|commit| !commit.no_ack)
        || ask.next.as_ref().is_some_and(|next| asks_somebody(&next.ask))
}

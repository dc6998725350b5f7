//! A policy of another clone, taken over: asked for here as it was there, and checked anew.
//!
//! Contract: of what that journal says only the words of the person who attached it are taken, and what its sessions did.
//! Everything that a person of this clone has to allow is asked of this clone. The journal it is taken from stays as it is:
//! a writer changes its own alone, so the other one learns of it when journals are exchanged.

use super::{AttachAsk, Checked, GroupAsk, check_length};
use crate::{
    code::Code,
    domain::{
        event::{Entity, PolicyAdopted},
        ids::{PolicyId, WriterId},
        input::{Covers, Input},
        oid::Oid,
        policy::Policy,
        session::Session,
    },
    ledger::{Ledger, LedgerError, Recording, load, problems::Problems},
};

/// A policy as another journal has it.
struct There {
    writer: WriterId,
    entry: Oid,
    policy: Policy,
    members: Vec<Session>,
}

impl Ledger {
    /// Takes over the policy that somebody means, with its sessions.
    ///
    /// # Errors
    /// No other journal here knows it, or several things are meant; it is over; the clone that owns it is there; as
    /// [`Ledger::attach`] where what it asks for is not allowed or not possible here.
    pub fn adopt_policy(&self, text: &str) -> Result<(PolicyId, Recording), LedgerError> {
        let There { writer, entry, policy, members } = self.policy_there(text)?;
        let id = policy.policy_id.clone();
        self.require_gone(&writer, &id)?;
        if policy.status.is_terminal() {
            let because = format!("the policy is {}", policy.status.as_str());
            return Err(LedgerError::refused(Code::Terminal, id.as_str(), because));
        }
        let ask =
            AttachAsk { again: policy.spec.again.clone(), ..AttachAsk::from_spec(&policy.spec) };
        let mut problems = Problems::default();
        check_length(&ask, &mut problems);
        let gated =
            policy.spec.gate_session().and_then(|id| members.iter().find(|m| m.session_id == *id));
        let site = gated.and_then(|session| problems.note("worktree", self.site_of(session)));
        let checked: Option<Checked> = self.check(&ask, site.as_ref(), &mut problems);
        let checked = problems.finish(checked)?;
        let group = GroupAsk {
            members: policy.spec.session_ids.clone(),
            gate_session: policy.spec.gate_session.clone(),
            covers: Covers::LastAndNext,
        };
        let mut programs = Vec::new();
        let spec = checked.into_spec(&id, &group, &ask, &mut programs);
        let attempt = policy.attempt;
        let adopted = Box::new(PolicyAdopted { writer, entry, attempt, spec, members });
        let recording = self.record(Input::PolicyAdopted { policy: id.clone(), adopted })?;
        self.keep_all(&programs);
        Ok((id, recording))
    }

    /// The policy with its sessions, by the newest journal that has it.
    fn policy_there(&self, text: &str) -> Result<There, LedgerError> {
        let mut found = self.policies_elsewhere(text)?;
        found.sort_by(|a, b| a.id.cmp(&b.id));
        let Some(first) = found.first() else {
            let because =
                "no journal here knows such a policy: fetch those of the clone that has it";
            return Err(LedgerError::refused(Code::NoSuchPolicy, text, because));
        };
        if let Some(other) = found.iter().find(|other| other.id != first.id) {
            let because = format!("it could be {} or {}", first.id, other.id);
            return Err(LedgerError::refused(Code::Ambiguous, text, because));
        }
        let id = Entity::Policy(first.id.clone());
        let mut best: Option<There> = None;
        for tip in self.journals_elsewhere()? {
            let read = |path: &str| self.store.document(&tip.tree, path).map_err(LedgerError::from);
            let Some(policy) = load::load_one::<Policy>(&id, &read)?.map(|found| found.value)
            else {
                continue;
            };
            if best.as_ref().is_some_and(|best| best.policy.since >= policy.since) {
                continue;
            }
            let mut members = Vec::new();
            for session in &policy.spec.session_ids {
                let entity = Entity::Session(session.clone());
                members.extend(load::load_one::<Session>(&entity, &read)?.map(|found| found.value));
            }
            best = Some(There { writer: tip.writer.clone(), entry: tip.id, policy, members });
        }
        best.ok_or_else(|| {
            LedgerError::refused(Code::NoSuchPolicy, text, "it cannot be read any more")
        })
    }

    /// The owner is not known to be there.
    fn require_gone(&self, writer: &WriterId, id: &PolicyId) -> Result<(), LedgerError> {
        let Some((original, place)) = self.store.copied_from()? else { return Ok(()) };
        if original != *writer {
            return Ok(());
        }
        let place = place.map_or_else(String::new, |place| format!(" in {}", place.display()));
        let because = format!("journal {writer} is written{place}, of which this is a copy");
        Err(LedgerError::refused(Code::WriterLives, id.as_str(), because))
    }
}

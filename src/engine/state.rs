//! The entities an input touches, loaded together.

use crate::domain::{
    ids::{PolicyId, SessionId},
    policy::{Policy, Status},
    session::{Process, Session, Turn},
};
use std::collections::BTreeMap;

/// A part of the writer's state: the entities an input touches and those they name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Sessions by id.
    pub sessions: BTreeMap<SessionId, Session>,
    /// Policies by id.
    pub policies: BTreeMap<PolicyId, Policy>,
}

/// How a member of a policy stands, seen from that policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// Its covered turn ended well.
    Finished,
    /// Nothing covered has ended yet.
    AtWork,
    /// A covered turn ended, but not well, or a question is open.
    Stalled,
    /// Its process is gone without having finished.
    Gone,
}

impl State {
    /// How `session` stands for a policy that covers what ended after event `base`.
    #[must_use]
    pub fn member(&self, session: &SessionId, base: u64) -> Member {
        let Some(session) = self.sessions.get(session) else { return Member::Gone };
        if session.finished_at().is_some_and(|seq| seq > base) {
            return Member::Finished;
        }
        match (&session.process, &session.turn_state) {
            (Process::Exited(_), _) => Member::Gone,
            (Process::Unknown, Turn::Ended { seq, .. }) if *seq > base => Member::Stalled,
            (Process::Unknown, Turn::Ended { .. } | Turn::None | Turn::Running) => Member::AtWork,
        }
    }

    /// Works out again who a watching policy waits for.
    pub(super) fn refresh_members(&mut self, policy: &PolicyId) {
        let Some(current) = self.policies.get(policy) else { return };
        if current.status != Status::Watching {
            return;
        }
        let base = current.spec.base;
        let standing: Vec<(SessionId, Member)> =
            current.spec.session_ids.iter().map(|s| (s.clone(), self.member(s, base))).collect();
        let of = |wanted: &dyn Fn(Member) -> bool| -> Vec<SessionId> {
            standing.iter().filter(|(_, m)| wanted(*m)).map(|(s, _)| s.clone()).collect()
        };
        let pending = of(&|m| m != Member::Finished);
        let stalled_by = of(&|m| matches!(m, Member::Stalled | Member::Gone));
        if let Some(policy) = self.policies.get_mut(policy) {
            policy.pending = pending;
            policy.stalled_by = stalled_by;
        }
    }
}

//! The entities an input touches, loaded together.

use crate::domain::{
    ids::{PolicyId, SessionId},
    policy::{OnEnd, Policy, Status},
    session::{Exit, Process, Session, Turn},
    time::Timestamp,
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
    /// How those stand whom a policy waits for.
    #[must_use]
    pub fn standing(&self, policy: &Policy) -> Vec<(SessionId, Member)> {
        let member = |id: &SessionId| (id.clone(), self.member(id, policy));
        policy.awaited().iter().map(member).collect()
    }

    /// How `session` stands for a policy.
    fn member(&self, session: &SessionId, policy: &Policy) -> Member {
        let after = policy.covers_after();
        let Some(session) = self.sessions.get(session) else { return Member::Gone };
        // What could not be begun has nothing to be gated, whatever counts as an end.
        let began = session.process != Process::Exited(Exit::NotStarted);
        let ended_at = match policy.spec.on_end {
            OnEnd::Finished => session.finished_at(),
            OnEnd::Gate => session.ended_at().filter(|_| began),
        };
        if ended_at.is_some_and(|seq| seq > after) {
            return Member::Finished;
        }
        match (&session.process, &session.turn_state) {
            (Process::Exited(_), _) => Member::Gone,
            (_, Turn::Ended { seq, .. }) if *seq > after => Member::Stalled,
            (_, Turn::Ended { .. } | Turn::None | Turn::Running) => Member::AtWork,
        }
    }

    /// True when a session was told what a policy had to say last: a turn began since, and nothing of it waits.
    #[must_use]
    pub(super) fn is_told(&self, session: &SessionId, policy: &Policy) -> bool {
        let waits = |s: &Session| s.queue.iter().any(|p| p.policy() == Some(&policy.policy_id));
        let session = self.sessions.get(session);
        session.is_some_and(|s| s.turn_began > policy.nudged_at && !waits(s))
    }

    /// Works out again who a watching policy waits for; once all are told of red gates it watches again.
    pub(super) fn refresh_members(&mut self, policy: &PolicyId, at: Timestamp) {
        let Some(current) = self.policies.get(policy) else { return };
        let told = |member| self.is_told(member, current);
        let is_told = current.status == Status::Nudging && current.awaited().iter().all(told);
        if current.status != Status::Watching && !is_told {
            return;
        }
        let standing = self.standing(current);
        let of = |wanted: &dyn Fn(Member) -> bool| -> Vec<SessionId> {
            standing.iter().filter(|(_, m)| wanted(*m)).map(|(s, _)| s.clone()).collect()
        };
        let pending = of(&|m| m != Member::Finished);
        let stalled_by = of(&|m| matches!(m, Member::Stalled | Member::Gone));
        if let Some(policy) = self.policies.get_mut(policy) {
            if is_told {
                (policy.status, policy.since) = (Status::Watching, at);
            }
            policy.pending = pending;
            policy.stalled_by = stalled_by;
        }
    }
}

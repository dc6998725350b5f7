//! What an event changes.

use super::{Effect, State, adopt, effect, policy, session};
use crate::domain::{
    event::{Body, Entity, Kind, Recorded},
    ids::{PolicyId, SessionId},
};

/// The state after an event and what the world is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// The state after it.
    pub state: State,
    /// What follows for the world.
    pub effects: Vec<Effect>,
    /// The entities whose documents it may have changed.
    pub touched: Vec<Entity>,
}

/// An event that cannot happen in the state it is applied to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} cannot happen to {subject} while it is {state}", kind = .kind.as_str())]
pub struct Illegal {
    /// The event's kind.
    pub kind: Kind,
    /// Whose story it was to belong to.
    pub subject: String,
    /// The state it met.
    pub state: String,
}

/// Applies one event.
///
/// # Errors
/// [`Illegal`] when the event cannot happen in this state: the journal was not written by this machine.
pub fn step(state: &State, recorded: &Recorded) -> Result<Stepped, Illegal> {
    match &recorded.event.subject {
        Entity::Session(id) => step_session(state, id, recorded),
        Entity::Policy(id) => step_policy(state, id, recorded),
    }
}

fn step_session(state: &State, id: &SessionId, recorded: &Recorded) -> Result<Stepped, Illegal> {
    let mut state = state.clone();
    let session = session::apply(state.sessions.get(id), id, recorded)?;
    let policies = session.policies.clone();
    state.sessions.insert(id.clone(), session);
    let mut touched = vec![Entity::Session(id.clone())];
    for policy in policies {
        let before = state.policies.get(&policy).cloned();
        state.refresh_members(&policy, recorded.at);
        if state.policies.get(&policy) != before.as_ref() {
            touched.push(Entity::Policy(policy));
        }
    }
    Ok(Stepped { state, effects: vec![], touched })
}

fn step_policy(state: &State, id: &PolicyId, recorded: &Recorded) -> Result<Stepped, Illegal> {
    let before = state.policies.get(id);
    let after = policy::apply(before, id, recorded)?;
    let mut next = state.clone();
    let mut touched = vec![Entity::Policy(id.clone())];
    if let Body::PolicyAdopted(e) = &recorded.event.body {
        adopt::take_sessions(&mut next, e, recorded);
    }
    let attached = matches!(recorded.event.body, Body::PolicyAttached(_) | Body::PolicyAdopted(_));
    let over = after.status.is_terminal();
    for member in after.spec.session_ids.clone() {
        let Some(session) = next.sessions.get_mut(&member) else { continue };
        if attached {
            session.policies.push(id.clone());
        } else if over {
            session::release(session, id, recorded);
        } else {
            continue;
        }
        touched.push(Entity::Session(member));
    }
    next.policies.insert(id.clone(), after);
    next.refresh_members(id, recorded.at);
    let effects = effect::of_change(before, &next, id);
    Ok(Stepped { state: next, effects, touched })
}

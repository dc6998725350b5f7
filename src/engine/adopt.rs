//! Taking over a policy from a clone that is gone, with its sessions.
//!
//! Contract: what was said there counts for nothing here but what a person can see for themselves: that a session is
//! finished. Its gates run again, whoever answered is asked again. Numbers of events are those of another journal, so
//! everything that is told by them is told anew by the number of the event that takes over.

use super::{
    State,
    decide::{Draft, Refusal, refuse},
};
use crate::{
    code::Code,
    domain::{
        event::{Entity, Event, PolicyAdopted, Recorded},
        ids::PolicyId,
        policy::OnEnd,
        session::{Process, Session, Turn},
    },
};

/// Decides to take over a policy. `Ok(Some(seq))`: it is this clone's already.
pub(super) fn adopt(
    draft: &mut Draft,
    id: &PolicyId,
    mut adopted: PolicyAdopted,
) -> Result<Option<u64>, Refusal> {
    if let Some(ours) = draft.state().policies.get(id) {
        return Ok(Some(ours.last));
    }
    let of_spec = |member: &Session| adopted.spec.session_ids.contains(&member.session_id);
    if adopted.members.len() != adopted.spec.session_ids.len()
        || !adopted.members.iter().all(of_spec)
    {
        return Err(refuse(Code::NoSuchSession, id, "that journal does not know all its sessions"));
    }
    // What its sessions did there is told by the event itself; one that is known here did what it did.
    let next = draft.last_seq() + 1;
    let known = adopted.spec.session_ids.iter().filter_map(|s| draft.state().sessions.get(s));
    let known = known.map(|session| match session.ended_at() {
        Some(seq) if session.turn_state != Turn::Running => seq - 1,
        Some(_) | None => next - 1,
    });
    adopted.spec.base = known.min().unwrap_or(next - 1);
    let (subject, sessions) = (Entity::Policy(id.clone()), adopted.spec.session_ids.clone());
    draft.push(Event { subject, sessions, body: adopted.into() })?;
    Ok(None)
}

/// Puts those sessions into the state that are not known here.
pub(super) fn take_sessions(state: &mut State, event: &PolicyAdopted, recorded: &Recorded) {
    for member in &event.members {
        if !state.sessions.contains_key(&member.session_id) {
            let taken = taken(member, event.spec.on_end, recorded);
            state.sessions.insert(member.session_id.clone(), taken);
        }
    }
}

/// A session as this clone knows it: somebody else's, with what it did told by this event.
fn taken(there: &Session, on_end: OnEnd, recorded: &Recorded) -> Session {
    let finished = match on_end {
        OnEnd::Finished => there.finished_at().is_some(),
        OnEnd::Gate => there.ended_at().is_some(),
    };
    let seq = if finished { recorded.seq } else { recorded.seq - 1 };
    let told = |there: u64| if there > 0 { seq } else { 0 };
    let turn_state = match there.turn_state {
        Turn::Ended { reason, inferred, loose, .. } => Turn::Ended { reason, inferred, loose, seq },
        Turn::None => Turn::None,
        Turn::Running => Turn::Running,
    };
    let process = match &there.process {
        Process::Exited(exit) => Process::Exited(exit.clone()),
        // Whoever ran it ran it there.
        Process::Unknown | Process::Alive | Process::Idle => Process::Unknown,
    };
    Session {
        process,
        turn_state,
        launch: None,
        prompt: None,
        queue: vec![],
        interrupting: false,
        stopping: false,
        turn_began: told(there.turn_began),
        turn_ended: told(there.turn_ended),
        exit_seq: told(there.exit_seq),
        policies: vec![],
        keys: vec![],
        last: recorded.seq,
        ..there.clone()
    }
}

//! What an input leads to.

use super::{State, ack, adopt, launch, policy, session, step::step};
use crate::{
    code::Code,
    domain::{
        event::{Entity, Event, Recorded, SessionStarted},
        ids::{PolicyId, SessionId},
        input::{Covers, Input, Report},
        policy::PolicySpec,
        session::{EndReason, Loose},
        time::Timestamp,
    },
};
use std::collections::BTreeSet;

/// Why an input is turned down. Nothing happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject}: {because}")]
pub struct Refusal {
    /// The stable code.
    pub code: Code,
    /// Whom it concerns.
    pub subject: String,
    /// Why, as a fragment.
    pub because: String,
}

pub(super) fn refuse(
    code: Code,
    subject: &dyn std::fmt::Display,
    because: impl Into<String>,
) -> Refusal {
    Refusal { code, subject: subject.to_string(), because: because.into() }
}

/// The instant and the place in the journal at which something is decided.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The clock.
    pub at: Timestamp,
    /// Number of the next event.
    pub next_seq: u64,
}

/// What is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// These events, as one batch.
    Append(Vec<Event>),
    /// Nothing: event `seq` recorded it before.
    Already(u64),
}

/// A batch being made: each event is stepped at once, so that what follows sees it.
pub(super) struct Draft {
    state: State,
    events: Vec<Event>,
    now: Now,
}

impl Draft {
    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// The instant of the decision.
    pub(super) fn at(&self) -> Timestamp {
        self.now.at
    }

    /// Policies that events of this batch are about, each once.
    pub(super) fn policies_told(&self) -> BTreeSet<PolicyId> {
        let told = self.events.iter().filter_map(|event| match &event.subject {
            Entity::Policy(id) => Some(id.clone()),
            Entity::Session(_) => None,
        });
        told.collect()
    }

    /// Number of the last event, those of this batch included.
    pub(super) fn last_seq(&self) -> u64 {
        self.now.next_seq + self.events.len() as u64 - 1
    }

    /// Adds an event. One that cannot happen is a defect of this machine and refuses the whole input.
    pub(super) fn push(&mut self, event: Event) -> Result<(), Refusal> {
        let recorded = Recorded {
            seq: self.last_seq() + 1,
            at: self.now.at,
            actor: String::new(),
            prev: None,
            engine: super::ENGINE,
            event,
        };
        self.state = step(&self.state, &recorded)
            .map_err(|illegal| refuse(Code::Internal, &illegal.subject, illegal.to_string()))?
            .state;
        self.events.push(recorded.event);
        Ok(())
    }
}

/// Decides what an input leads to.
///
/// # Errors
/// [`Refusal`] names the rule that is in the way; nothing happened.
pub fn decide(state: &State, input: Input, now: Now) -> Result<Decision, Refusal> {
    let mut draft = Draft { state: state.clone(), events: Vec::new(), now };
    if let Some(already) = take(&mut draft, input)? {
        return Ok(already);
    }
    // What follows may have something follow in turn: a session that is over ends policies, and these end sessions.
    loop {
        let known = draft.events.len();
        policy::attach_next(&mut draft)?;
        policy::follow_up(&mut draft)?;
        launch::follow_up(&mut draft)?;
        if draft.events.len() == known {
            return Ok(Decision::Append(draft.events));
        }
    }
}

/// Decides what the input itself leads to; set when that was recorded before.
fn take(draft: &mut Draft, input: Input) -> Result<Option<Decision>, Refusal> {
    let already = |seq: Option<u64>| Ok(seq.map(Decision::Already));
    match input {
        Input::SessionLaunched { session, started, prompt, busy, policy } => {
            launch::launch(draft, &session, (started, prompt), &busy)?;
            if let Some((id, spec)) = policy {
                policy::attach(draft, &id, spec, Covers::LastAndNext)?;
            }
        }
        Input::TurnBegun { session } => launch::begin(draft, &session)?,
        Input::RunEnded { session, turn, end } => launch::ended(draft, &session, turn, end)?,
        Input::PromptAsked { session, text, when_busy, key } => {
            return already(launch::prompt(draft, &session, (text, key), when_busy)?);
        }
        Input::StopAsked { session, because } => {
            return already(launch::stop(draft, &session, because)?);
        }
        Input::PolicyAdopted { policy, adopted } => {
            return already(adopt::adopt(draft, &policy, *adopted)?);
        }
        Input::NoSlot { policy, attempt } => policy::no_slot(draft, &policy, attempt)?,
        Input::SlotFree { policy } => policy::slot_free(draft, &policy)?,
        Input::SessionAdopted { session, started } => adopt(draft, &session, started)?,
        Input::Reported { session, report, key } => {
            return already(session::report(draft, &session, report, key)?);
        }
        Input::PolicyAsked { policy, spec, covers } => {
            policy::attach(draft, &policy, spec, covers)?;
        }
        Input::CommitAsked { session, started, policy, spec } => {
            commit(draft, (session, started), &policy, spec)?;
        }
        Input::GatesEnded { policy, attempt, run } => {
            policy::gates_ended(draft, &policy, attempt, run)?;
        }
        Input::CommitSigned { policy, unsigned, candidate } => {
            policy::signed(draft, &policy, &unsigned, candidate)?;
        }
        Input::AckArrived { policy, ack } => ack::arrived(draft, &policy, *ack)?,
        Input::BranchMoved { policy } => policy::branch_moved(draft, &policy)?,
        Input::TipMoved { policy, tip } => policy::tip_moved(draft, &policy, tip)?,
        Input::TimeUp { policy } => policy::time_up(draft, &policy)?,
        Input::LandingImpossible { policy, code, because } => {
            policy::landing_impossible(draft, &policy, code, because)?;
        }
        Input::CancelAsked { policy, because } => policy::cancel(draft, &policy, because)?,
        Input::DismissAsked { policy, because } => {
            return already(policy::dismiss(draft, &policy, because)?);
        }
    }
    Ok(None)
}

fn adopt(draft: &mut Draft, id: &SessionId, started: SessionStarted) -> Result<(), Refusal> {
    let (subject, sessions) = (Entity::Session(id.clone()), vec![id.clone()]);
    draft.push(Event { subject, sessions, body: started.into() })
}

fn commit(
    draft: &mut Draft,
    (session, started): (SessionId, SessionStarted),
    policy: &PolicyId,
    spec: PolicySpec,
) -> Result<(), Refusal> {
    adopt(draft, &session, started)?;
    let ended =
        Report::TurnEnd { turn: None, reason: EndReason::Completed, loose: Loose::default() };
    session::report(draft, &session, ended, None)?;
    policy::attach(draft, policy, spec, Covers::LastAndNext)
}

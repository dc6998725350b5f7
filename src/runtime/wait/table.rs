//! Which state ends which wait, and how.
//!
//! Contract: pure. Exit codes are those of the command: 0 true, 1 a settled no, 3 late, 4 it can never be, 5 a person is
//! needed for what is waited for.

use super::Condition;
use crate::{
    code::exit,
    domain::{
        policy::{Policy, Status},
        session::{Session, Turn},
    },
};

/// How one target stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It may become true.
    Open(Condition),
    /// It is decided.
    Ended { exit: u8, condition: Condition },
}

/// From the worst to the best (spec cli).
const WORST_FIRST: [u8; 6] =
    [exit::BROKEN, exit::NO, exit::NOT_FOUND, exit::PERSON, exit::TIME, exit::DONE];

/// What several targets come to: which one decides, its exit code and condition; `None` when the wait goes on. Where one is
/// enough, those that can never be leave it to the others. `at_end` counts who is open as late.
pub(super) fn of_several<T>(
    all: &[(T, Standing)],
    every: bool,
    at_end: bool,
) -> Option<(&T, u8, Condition)> {
    let mut ended = Vec::new();
    let mut open = Vec::new();
    for (target, standing) in all {
        match standing {
            Standing::Ended { exit, condition } => ended.push((target, *exit, *condition)),
            Standing::Open(condition) => open.push((target, exit::TIME, *condition)),
        }
    }
    let is_over =
        open.is_empty() || (!every && ended.iter().any(|(_, exit, _)| *exit != exit::NOT_FOUND));
    if !is_over && !at_end {
        return None;
    }
    if !is_over {
        ended.append(&mut open);
    }
    // Where one is enough: it is told of what never can be when nothing else can.
    let tells = |exit: u8| every || exit != exit::NOT_FOUND;
    if ended.iter().any(|(_, exit, _)| tells(*exit)) {
        ended.retain(|(_, exit, _)| tells(*exit));
    }
    let rank = |exit: u8| WORST_FIRST.iter().position(|e| *e == exit);
    ended.into_iter().min_by_key(|(_, exit, _)| rank(*exit))
}

/// The first condition that is true; else the first that ends the wait otherwise; else the first, when none can ever be.
pub(super) fn of_conditions(
    conditions: &[Condition],
    of: impl Fn(Condition) -> Option<u8>,
) -> Standing {
    let exits: Vec<(Condition, Option<u8>)> = conditions.iter().map(|c| (*c, of(*c))).collect();
    let met = exits.iter().find(|(_, e)| *e == Some(exit::DONE));
    let no = exits.iter().find(|(_, e)| e.is_some_and(|e| e != exit::NOT_FOUND));
    let never = exits.iter().all(|(_, e)| e.is_some()).then(|| exits.first()).flatten();
    let open = exits.iter().find(|(_, e)| e.is_none());
    match met.or(no).or(never).or(open) {
        Some((condition, Some(exit))) => Standing::Ended { exit: *exit, condition: *condition },
        Some((condition, None)) => Standing::Open(*condition),
        None => Standing::Open(Condition::Any),
    }
}

/// How a policy stands to a condition, `after` a position; `None` while it may become true.
pub(super) fn of_policy(policy: &Policy, condition: Condition, after: u64) -> Option<u8> {
    let over = policy.status.is_terminal();
    let outcome = match policy.status {
        Status::Done => Some(exit::DONE),
        Status::Blocked | Status::Cancelled => Some(exit::NO),
        Status::Signing | Status::AwaitingAck => Some(exit::PERSON),
        Status::Watching
        | Status::Queued
        | Status::Gating
        | Status::Nudging
        | Status::Committing => None,
    };
    match condition {
        Condition::Settled | Condition::Done => outcome,
        Condition::Acked if policy.is_answered() => Some(exit::DONE),
        Condition::Acked if over => Some(exit::NOT_FOUND),
        Condition::Acked => None,
        Condition::Any if policy.last > after => Some(exit::DONE),
        Condition::Any if over => Some(exit::NOT_FOUND),
        Condition::Any => None,
        Condition::TurnEnd | Condition::AwaitingInput | Condition::Exited | Condition::Idle => {
            Some(exit::NOT_FOUND)
        }
    }
}

/// How a session stands to a condition, `after` a position; `ended` says whether a turn ended there.
pub(super) fn of_session(
    session: &Session,
    condition: Condition,
    after: u64,
    ended: bool,
) -> Option<u8> {
    let running = session.turn_state == Turn::Running;
    let met = match condition {
        Condition::TurnEnd => ended,
        Condition::AwaitingInput => !session.open_requests.is_empty(),
        Condition::Exited => session.is_exited(),
        Condition::Idle => !running,
        Condition::Any => session.last > after,
        Condition::Settled | Condition::Done | Condition::Acked => return Some(exit::NOT_FOUND),
    };
    let asks = !session.open_requests.is_empty()
        && matches!(condition, Condition::TurnEnd | Condition::Idle | Condition::Exited);
    match (met, session.is_exited()) {
        (true, _) => Some(exit::DONE),
        (false, true) => Some(exit::NOT_FOUND),
        // Nothing of it comes before somebody answered.
        (false, false) if asks => Some(exit::PERSON),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::session::{EndReason, Exit, Loose, OpenRequest, Process},
        wire::document::decode,
    };
    use Condition::{Acked, Any, AwaitingInput, Done, Exited, Idle, Settled, TurnEnd};

    /// Where the reader stood: the documents end at 6.
    const BEFORE: u64 = 5;
    const AFTER: u64 = 6;

    fn policy(status: Status) -> Policy {
        let written = include_bytes!("../../../fixtures/wire/v1/documents/policy-watching.json");
        Policy { status, last: AFTER, ..decode(written).unwrap().value }
    }

    fn session(turn_state: Turn, process: Process, asks: bool) -> Session {
        let written = include_bytes!("../../../fixtures/wire/v1/documents/session-running.json");
        let asked = OpenRequest { id: "q".into(), kind: None, text: None, options: vec![] };
        let open_requests = if asks { vec![asked] } else { vec![] };
        let session: Session = decode(written).unwrap().value;
        Session { turn_state, process, open_requests, last: AFTER, ..session }
    }

    #[test]
    fn each_state_of_a_policy_ends_each_wait_as_specified() {
        // Settled, done, acked, and any event since; what sessions have no policy ever has.
        let table = [
            (Status::Watching, [None, None, None]),
            (Status::Queued, [None, None, None]),
            (Status::Gating, [None, None, None]),
            (Status::Nudging, [None, None, None]),
            (Status::Signing, [Some(5), Some(5), None]),
            (Status::AwaitingAck, [Some(5), Some(5), None]),
            (Status::Committing, [None, None, None]),
            (Status::Done, [Some(0), Some(0), Some(4)]),
            (Status::Blocked, [Some(1), Some(1), Some(4)]),
            (Status::Cancelled, [Some(1), Some(1), Some(4)]),
        ];
        assert_eq!(table.map(|(status, _)| status), Status::ALL);
        for (status, want) in table {
            let policy = policy(status);
            let of = |condition| of_policy(&policy, condition, BEFORE);
            assert_eq!([Settled, Done, Acked].map(of), want, "{status:?}");
            assert_eq!(of(Any), Some(0), "{status:?}");
            let later = status.is_terminal().then_some(4);
            assert_eq!(of_policy(&policy, Any, AFTER), later, "{status:?}");
            for never in [TurnEnd, AwaitingInput, Exited, Idle] {
                assert_eq!(of(never), Some(4), "{status:?} {never:?}");
            }
        }
    }

    #[test]
    fn an_answer_ends_the_wait_for_one_whatever_became_of_it() {
        let written = include_bytes!("../../../fixtures/wire/v1/documents/policy-committed.json");
        let mut answered: Policy = decode(written).unwrap().value;
        for status in [Status::Committing, Status::Done, Status::Blocked, Status::Cancelled] {
            answered.status = status;
            assert_eq!(of_policy(&answered, Acked, AFTER), Some(0), "{status:?}");
        }
    }

    #[test]
    fn each_state_of_a_session_ends_each_wait_as_specified() {
        let over = Turn::Ended {
            reason: EndReason::Completed,
            inferred: false,
            loose: Loose::default(),
            seq: AFTER,
        };
        let gone = || Process::Exited(Exit::Code(0));
        // Awaiting input, exited, idle, and a turn-end: not since, since.
        let table = [
            ("new", session(Turn::None, Process::Unknown, false), [None, None, Some(0), None]),
            ("at work", session(Turn::Running, Process::Alive, false), [None; 4]),
            (
                "asking",
                session(Turn::Running, Process::Alive, true),
                [Some(0), Some(5), Some(5), Some(5)],
            ),
            ("idle", session(over.clone(), Process::Idle, false), [None, None, Some(0), None]),
            ("exited", session(over, gone(), false), [Some(4), Some(0), Some(0), Some(4)]),
        ];
        for (name, session, want) in table {
            let of = |condition| of_session(&session, condition, AFTER, false);
            assert_eq!([AwaitingInput, Exited, Idle, TurnEnd].map(of), want, "{name}");
            assert_eq!(of_session(&session, TurnEnd, AFTER, true), Some(0), "{name}");
            assert_eq!(of_session(&session, Any, BEFORE, false), Some(0), "{name}");
            assert_eq!(of(Any), session.is_exited().then_some(4), "{name}");
            for never in [Settled, Done, Acked] {
                assert_eq!(of(never), Some(4), "{name} {never:?}");
            }
        }
    }

    #[test]
    fn of_several_conditions_the_first_true_one_counts_and_never_only_when_all_are() {
        let of = |exits: [Option<u8>; 2]| {
            let conditions = [Settled, Acked];
            match of_conditions(&conditions, |c| exits[usize::from(c == Acked)]) {
                Standing::Open(condition) => (None, condition),
                Standing::Ended { exit, condition } => (Some(exit), condition),
            }
        };
        assert_eq!(of([None, Some(0)]), (Some(0), Acked));
        assert_eq!(of([Some(1), Some(0)]), (Some(0), Acked));
        assert_eq!(of([None, Some(5)]), (Some(5), Acked));
        assert_eq!(of([Some(4), None]), (None, Acked));
        assert_eq!(of([Some(4), Some(4)]), (Some(4), Settled));
        assert_eq!(of([None, None]), (None, Settled));
    }

    /// Of targets with these exit codes, `None` for one that is open: the code, and whose it is.
    fn several(exits: &[Option<u8>], every: bool, at_end: bool) -> Option<(u8, usize)> {
        let standing = |exit: &Option<u8>| match exit {
            Some(exit) => Standing::Ended { exit: *exit, condition: Any },
            None => Standing::Open(Any),
        };
        let all: Vec<_> = exits.iter().map(standing).enumerate().collect();
        of_several(&all, every, at_end).map(|(at, exit, _)| (exit, *at))
    }

    #[test]
    fn of_several_targets_the_worst_decides() {
        let all = |exits| several(exits, true, false);
        assert_eq!(all(&[Some(0), None]), None);
        assert_eq!(all(&[Some(0), Some(0)]), Some((0, 0)));
        assert_eq!(all(&[Some(0), Some(5), Some(4), Some(1), Some(2)]), Some((2, 4)));
        assert_eq!(all(&[Some(0), Some(5), Some(4), Some(1)]), Some((1, 3)));
        assert_eq!(all(&[Some(0), Some(5), Some(4)]), Some((4, 2)));
        assert_eq!(all(&[Some(0), Some(5)]), Some((5, 1)));
        // Who is late is better than who said no, and worse than who is done.
        assert_eq!(several(&[Some(0), None], true, true), Some((3, 1)));
        assert_eq!(several(&[Some(1), None], true, true), Some((1, 0)));
        assert_eq!(several(&[None, None], true, true), Some((3, 0)));
    }

    #[test]
    fn where_one_is_enough_those_that_never_can_be_leave_it_to_the_others() {
        let any = |exits| several(exits, false, false);
        assert_eq!(any(&[None, None]), None);
        assert_eq!(any(&[None, Some(0)]), Some((0, 1)));
        assert_eq!(any(&[None, Some(1)]), Some((1, 1)));
        assert_eq!(any(&[Some(4), None]), None);
        assert_eq!(any(&[Some(4), Some(0)]), Some((0, 1)));
        assert_eq!(any(&[Some(4), Some(4)]), Some((4, 0)));
        assert_eq!(several(&[Some(4), None], false, true), Some((3, 1)));
    }
}

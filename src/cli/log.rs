//! `log`: the journal for people, one line an event.
//!
//! Newest first, as `git log`; with `--follow` oldest first, the last few and then what comes, as `tail -f`.
//! For a session or policy it is that entity's own story, found by the `Prev` of each of its events.

use super::{cx::Cx, error::CliError, follow::follow, names::Names, seen};
use crate::{
    code::exit,
    domain::{cursor::Since, event::Entity},
    ledger::{Ledger, LedgerError, Query, Seen},
    sys::clock,
    wire::message::Message,
};

/// Entries shown before the first new one.
const BEFORE_FOLLOWING: usize = 10;

/// Whose story.
#[derive(clap::Args)]
pub(super) struct LogArgs {
    /// A session or policy: id, beginning of an id, or label
    id: Option<String>,
    /// Show the last events, then go on with what comes
    #[arg(long, short)]
    follow: bool,
    /// At most N events [default: all of them]
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "follow")]
    limit: Option<usize>,
}

pub(super) fn run(cx: &Cx, args: LogArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let entity = args.id.map(|id| ledger.find(&id)).transpose()?;
    let names = Names::load(cx, &ledger)?;
    if args.follow {
        go_on(cx, &ledger, entity.as_ref(), &names)?;
    } else {
        for seen in story(&ledger, entity.as_ref())?.take(args.limit.unwrap_or(usize::MAX)) {
            cx.out(&line(cx, &names, &seen?))?;
        }
    }
    Ok(exit::DONE)
}

fn line(cx: &Cx, names: &Names, seen: &Seen) -> String {
    if cx.json {
        return format!("{}\n", seen::stream_object(seen));
    }
    seen::story_line(seen, clock::now(), cx, names)
}

/// The entries of an entity, or all of them, newest first.
fn story<'a>(
    ledger: &'a Ledger,
    entity: Option<&Entity>,
) -> Result<impl Iterator<Item = Result<Seen, LedgerError>> + use<'a>, CliError> {
    let mut wanted = match entity {
        Some(entity) => Wanted::Number(last_of(ledger, entity)?),
        None => Wanted::All,
    };
    Ok(ledger.backwards()?.filter(move |seen| match seen {
        Ok(seen) => wanted.takes(&seen.message),
        Err(_) => true,
    }))
}

/// Which entry of a walk towards the past belongs to the story.
enum Wanted {
    All,
    Number(Option<u64>),
}

impl Wanted {
    fn takes(&mut self, message: &Message) -> bool {
        match self {
            Self::All => true,
            Self::Number(seq) if *seq == Some(message.seq) => {
                *seq = message.prev;
                true
            }
            Self::Number(_) => false,
        }
    }
}

fn last_of(ledger: &Ledger, entity: &Entity) -> Result<Option<u64>, CliError> {
    Ok(match entity {
        Entity::Session(id) => Some(ledger.require_session(id)?.last),
        Entity::Policy(id) => Some(ledger.require_policy(id)?.last),
    })
}

/// The last entries, oldest first, then what comes.
fn go_on(cx: &Cx, ledger: &Ledger, entity: Option<&Entity>, names: &Names) -> Result<(), CliError> {
    // Taken first: what is appended meanwhile is shown by the stream, once.
    let tip = ledger.tip()?;
    let before: Result<Vec<Seen>, LedgerError> = story(ledger, entity)?
        .skip_while(|s| s.as_ref().is_ok_and(|s| Some(s.message.seq) > tip.as_ref().map(|t| t.seq)))
        .take(BEFORE_FOLLOWING)
        .collect();
    for seen in before?.iter().rev() {
        cx.out(&line(cx, names, seen))?;
    }
    let since = tip.map(|t| Since::Commit(t.id));
    let (sessions, policies) = match entity {
        Some(Entity::Session(id)) => (vec![id.clone()], vec![]),
        Some(Entity::Policy(id)) => (vec![], vec![id.clone()]),
        None => (vec![], vec![]),
    };
    let query = Query { since, sessions, policies, ..Query::default() };
    let own = |seen: &Seen| match entity {
        Some(Entity::Session(_)) => seen.message.policy.is_none(),
        Some(Entity::Policy(_)) | None => true,
    };
    follow(
        cx,
        ledger,
        query,
        None,
        |seen| if own(seen) { line(cx, names, seen) } else { String::new() },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::decode;

    #[test]
    fn a_story_follows_prev_and_nothing_else() {
        let entry = |seq: u64, prev: Option<u64>| {
            let prev = prev.map_or(String::new(), |p| format!("Prev: {p}\n"));
            let text = format!(
                "a b: c\n\nSeq: {seq}\nKind: a:b\n{prev}At: 2023-11-14T22:13:20.000Z\nActor: cli\n\
                 Engine: 1\nData: {{}}\n"
            );
            decode(text.as_bytes()).unwrap()
        };
        let entries = [
            entry(6, Some(5)),
            entry(5, Some(2)),
            entry(4, Some(3)),
            entry(2, None),
            entry(1, None),
        ];
        let told = |mut wanted: Wanted| -> Vec<u64> {
            entries.iter().filter(|m| wanted.takes(m)).map(|m| m.seq).collect()
        };
        assert_eq!(told(Wanted::Number(Some(5))), [5, 2]);
        assert_eq!(told(Wanted::Number(None)), [0; 0]);
        assert_eq!(told(Wanted::All), [6, 5, 4, 2, 1]);
    }
}

//! `log`: the journal for people, one line an event.
//!
//! Newest first, as `git log`; with `--follow` oldest first, the last few and then what comes, as `tail -f`.
//! For a session or policy it is that entity's own story, found by the `Prev` of each of its events.

use super::{cx::Cx, doubt, error::CliError, follow::follow, names::Names, seen, text::json_line};
use crate::{
    code::exit,
    domain::{cursor::Since, event::Entity},
    ledger::{Ledger, LedgerError, Query, Seen},
    store::Tip,
    sys::clock,
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
    // Of a stream of events every line is one, so programs hear of it on stderr, too.
    doubt::say(cx, &ledger);
    let entity = args.id.map(|id| ledger.find(&id)).transpose()?;
    let names = Names::load(cx, &ledger)?;
    if args.follow {
        go_on(cx, &ledger, entity.as_ref(), &names)?;
    } else {
        let tip = ledger.tip()?;
        let (mut told, mut set_back) = (None::<Seen>, None);
        let most = args.limit.unwrap_or(usize::MAX);
        for seen in story(&ledger, tip.as_ref(), entity.as_ref())?.take(most) {
            let seen = seen?;
            cx.out(&line(cx, &names, &seen))?;
            if let Some(later) = told.filter(|later| later.is_set_back_from(seen.message.at)) {
                set_back = Some(later.message.seq);
            }
            told = Some(seen);
        }
        if told.is_none() && most > 0 {
            only_others(cx, &ledger)?;
        }
        if let Some(seq) = set_back {
            cx.say(&seen::set_back(seq));
        }
        if args.limit.is_none()
            && let Some(before) = told.and_then(|seen| goes_on_before(&seen, entity.as_ref()))
        {
            cx.note(&format!("what was before event {before} is not kept any more"));
        }
    }
    Ok(exit::DONE)
}

/// Nothing happened in this clone: what others recorded is shown by git.
fn only_others(cx: &Cx, ledger: &Ledger) -> Result<(), CliError> {
    cx.note("nothing was recorded in this clone");
    for tip in ledger.journals_elsewhere()? {
        let (writer, id) = (&tip.writer, tip.id);
        let look = format!("git log --first-parent --format='%ci %s' {id}");
        cx.note(&format!("hint: the journal of {writer} is here, too: {look}"));
    }
    Ok(())
}

/// The number of the oldest event that is shown, when there was an older one.
fn goes_on_before(oldest: &Seen, entity: Option<&Entity>) -> Option<u64> {
    let message = &oldest.message;
    let older = match entity {
        Some(_) => message.prev.is_some(),
        None => message.seq > 1,
    };
    older.then_some(message.seq)
}

fn line(cx: &Cx, names: &Names, seen: &Seen) -> String {
    if cx.json {
        return json_line(&seen::stream_object(seen));
    }
    seen::story_line(seen, clock::now(), cx, names)
}

/// The entries of an entity, or all of them, newest first.
fn story<'a>(
    ledger: &'a Ledger,
    tip: Option<&'a Tip>,
    entity: Option<&Entity>,
) -> Result<Box<dyn Iterator<Item = Result<Seen, LedgerError>> + 'a>, CliError> {
    Ok(match entity {
        Some(entity) => Box::new(ledger.story(tip, entity)?),
        None => Box::new(ledger.backwards(tip)?),
    })
}

/// The last entries, oldest first, then what comes.
fn go_on(cx: &Cx, ledger: &Ledger, entity: Option<&Entity>, names: &Names) -> Result<(), CliError> {
    // Taken first: what is appended meanwhile is shown by the stream, once.
    let tip = ledger.tip()?;
    let before: Result<Vec<Seen>, LedgerError> =
        story(ledger, tip.as_ref(), entity)?.take(BEFORE_FOLLOWING).collect();
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

    fn seen(seq: u64, prev: Option<u64>) -> Seen {
        let prev = prev.map_or(String::new(), |p| format!("Prev: {p}\n"));
        let text = format!(
            "a b: c\n\nSeq: {seq}\nKind: a:b\n{prev}At: 2023-11-14T22:13:20.000Z\nActor: cli\n\
             Engine: 1\nData: {{}}\n"
        );
        let (id, tree) = ("1".repeat(40).parse().unwrap(), "2".repeat(40).parse().unwrap());
        let writer = "0123456789ab".parse().unwrap();
        Seen { id, writer, tree, message: decode(text.as_bytes()).unwrap() }
    }

    #[test]
    fn a_story_whose_beginning_is_missing_says_so() {
        let session = "ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap();
        let entity = Some(Entity::Session(session));
        assert_eq!(goes_on_before(&seen(9, Some(3)), entity.as_ref()), Some(9));
        assert_eq!(goes_on_before(&seen(9, None), entity.as_ref()), None);
        assert_eq!(goes_on_before(&seen(9, None), None), Some(9));
        assert_eq!(goes_on_before(&seen(1, None), None), None);
    }
}

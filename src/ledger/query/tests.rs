//! Cursors, pages and stories over segments of eight events.

use super::*;
use crate::{
    domain::{
        event::{Body, Event, Recorded, TurnStarted},
        input::{Input, Report},
    },
    engine::ENGINE,
    ledger::lab::Lab,
    store::{Batch, NewEntry, Place},
    wire::message::Beside,
};

const HOUR_MS: i64 = 3600 * 1000;
const NOON_MS: i64 = 1_700_000_000_000;

fn small(lab: &Lab) -> Ledger {
    let Ledger { store, env, actor } = lab.ledger();
    Ledger { store: store.with_segments_of(8), env, actor }
}

/// Appends an event of this time, whatever the clock says.
fn at(ledger: &Ledger, ms: i64) {
    let stamp = ledger.stamp().unwrap();
    let session: SessionId = "ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap();
    let append = |s: &crate::store::Snapshot<'_>| {
        let subject = Entity::Session(session.clone());
        let body = Body::TurnStarted(TurnStarted { turn: s.next_seq, prompt: None, key: None });
        let recorded = Recorded {
            seq: s.next_seq,
            at: Timestamp::from_ms(ms),
            actor: "cli".into(),
            prev: (s.next_seq > 1).then(|| s.next_seq - 1),
            engine: ENGINE,
            event: Event { subject, sessions: vec![session.clone()], body },
        };
        let (repo, continues) = match s.place {
            Place::First => (Some("abc"), None),
            Place::Continues { last, .. } => (Some("abc"), Some(last)),
            Place::Within => (None, None),
        };
        let beside = Beside { repo, continues, mended: None };
        let message = message::encode(&recorded, beside).unwrap();
        Ok::<_, ()>(Batch { entries: vec![NewEntry { message, edits: vec![] }], pins: vec![] })
    };
    ledger.store.append(&stamp, append).unwrap();
}

fn position(ledger: &Ledger, ms: i64) -> u64 {
    ledger.position(&Since::Time(Timestamp::from_ms(ms))).unwrap()
}

#[test]
fn nothing_later_than_a_time_is_left_out_though_the_clock_was_set_back() {
    let lab = Lab::new();
    let ledger = small(&lab);
    // A clock that runs about an hour an event and is set back by up to a day now and then.
    let mut times = Vec::new();
    let (mut now, mut seed) = (NOON_MS, 7_u64);
    for _ in 0..60 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let step = i64::try_from((seed >> 33) % 120).unwrap() * HOUR_MS / 60;
        let highest = times.iter().copied().max().unwrap_or(now);
        now = if seed >> 60 == 0 { highest - 23 * HOUR_MS } else { now + step };
        times.push(now);
        at(&ledger, now);
    }
    assert!(times.windows(2).any(|w| w[1] < w[0]), "the clock is set back");
    let around = times.iter().flat_map(|t| [t - 1, *t, t + 1]);
    for asked in around.chain([0, NOON_MS - 100 * HOUR_MS, NOON_MS + 1000 * HOUR_MS]) {
        let first_later = times.iter().position(|t| *t > asked).unwrap_or(times.len());
        assert_eq!(position(&ledger, asked), first_later as u64, "since {asked}");
    }
}

#[test]
fn a_time_before_all_that_is_kept_is_refused_as_a_number_is() {
    let lab = Lab::new();
    let ledger = small(&lab);
    (1..=12).for_each(|n| at(&ledger, NOON_MS + n * HOUR_MS));
    let since = |hours: i64| {
        let at = Timestamp::from_ms(NOON_MS + hours * HOUR_MS);
        ledger.position(&Since::Time(at)).map_err(|e| (e.code(), e.to_string()))
    };
    assert_eq!([since(-1), since(0), since(8), since(9)], [Ok(0), Ok(0), Ok(8), Ok(9)]);
    ledger.store.checkpoint().unwrap();
    assert_eq!(ledger.store.drop_segments(crate::store::Segment::FIRST).unwrap().len(), 1);
    for hours in [-1, 0, 7, 8] {
        let (code, why) = since(hours).unwrap_err();
        assert_eq!(code, Code::SegmentDropped, "{hours}");
        assert!(why.contains("event 8") && why.contains("begins at 9"), "{why}");
    }
    assert_eq!([since(9), since(11), since(12)], [Ok(9), Ok(11), Ok(12)]);
}

#[test]
fn a_clock_set_back_is_told_by_the_page_that_shows_it() {
    let lab = Lab::new();
    let ledger = small(&lab);
    let step = limits::CLOCK_STEP_MS;
    // Event 3 is as late as writers that wait make it; before event 9, the first of a segment, the clock is set back.
    for ms in [0, step, 1, 2, 3, 4, 5, step + 5, 5, 6, 6 - step] {
        at(&ledger, NOON_MS + ms);
    }
    let told = |since: u64, kinds: &[&str], limit: usize| {
        let kinds = kinds.iter().map(|&kind| kind.to_owned()).collect();
        let query = Query { since: Some(Since::Seq(since)), kinds, limit, ..Query::default() };
        ledger.events(&query).unwrap().set_back
    };
    assert_eq!(told(0, &[], 20), Some(9));
    assert_eq!(told(8, &[], 20), Some(9), "the event before the page counts");
    assert_eq!(told(8, &["policy:*"], 20), Some(9), "though it is not shown");
    assert_eq!(told(0, &[], 8), None, "not reached yet");
    assert_eq!(told(9, &[], 1), None);
    assert_eq!(told(9, &[], 20), Some(11));
    assert_eq!(told(11, &[], 20), None);
}

#[test]
fn cursors_of_this_journal_are_known_and_others_refused() {
    let lab = Lab::new();
    let ledger = small(&lab);
    assert_eq!(ledger.position(&Since::Seq(0)).unwrap(), 0);
    (0..20).for_each(|n| at(&ledger, NOON_MS + n));
    let tip = ledger.tip().unwrap().unwrap();
    for seq in 1..=20 {
        let id = ledger.at_seq(seq).unwrap().unwrap().id;
        assert_eq!(ledger.position(&Since::Commit(id)).unwrap(), seq);
        let by_writer = Since::WriterSeq(tip.writer.clone(), seq);
        assert_eq!(ledger.position(&by_writer).unwrap(), seq);
    }
    // An entry with a number that this journal has, too, is still not of this journal.
    let other = Lab::new();
    let foreign = small(&other);
    (0..20).for_each(|n| at(&foreign, NOON_MS + 1 + n));
    let theirs = foreign.at_seq(11).unwrap().unwrap().id;
    let raw = foreign.store.object(&theirs).unwrap();
    ledger.store.write_loose(std::slice::from_ref(&raw)).unwrap();
    for unknown in [
        Since::Commit(theirs),
        Since::Commit(lab.repo.oid("HEAD")),
        Since::Commit(super::super::lab::oid("1")),
        Since::Seq(21),
        Since::WriterSeq(tip.writer.clone(), 21),
        Since::WriterSeq("aaaaaaaaaaaa".parse().unwrap(), 1),
    ] {
        let refused = ledger.position(&unknown).unwrap_err();
        assert_eq!(refused.code(), Code::NoSuchCursor, "{unknown:?}");
    }
    let page =
        ledger.events(&Query { since: Some(Since::Seq(6)), limit: 5, ..Query::default() }).unwrap();
    let seqs: Vec<u64> = page.events.iter().map(|e| e.message.seq).collect();
    assert_eq!((seqs, page.more), (vec![7, 8, 9, 10, 11], true));
    assert_eq!(page.next, page.events.last().map(|e| e.id));
}

#[test]
fn the_ledger_begins_segments_for_the_same_repository_and_stories_go_through_them() {
    let lab = Lab::new();
    let ledger = small(&lab);
    let session = lab.session(&ledger);
    for _ in 0..9 {
        let report = Report::CommandDone { argv: vec![], code: None };
        let input = Input::Reported { session: session.clone(), report, key: None };
        ledger.record(input).unwrap();
    }
    let first = ledger.at_seq(1).unwrap().unwrap().message;
    let ninth = ledger.at_seq(9).unwrap().unwrap().message;
    assert!(first.repo.is_some() && first.continues.is_none());
    assert_eq!((&ninth.repo, ninth.format), (&first.repo, first.format));
    assert_eq!(ninth.continues, Some(ledger.at_seq(8).unwrap().unwrap().id));
    assert_eq!(ledger.at_seq(10).unwrap().unwrap().message.repo, None);
    let tip = ledger.tip().unwrap();
    let told = |seen: Result<Seen, LedgerError>| seen.unwrap().message.seq;
    let story = ledger.story(tip.as_ref(), &Entity::Session(session)).unwrap();
    assert_eq!(story.map(told).collect::<Vec<_>>(), (1..=10).rev().collect::<Vec<_>>());
    let all = ledger.backwards(tip.as_ref()).unwrap();
    assert_eq!(all.map(told).collect::<Vec<_>>(), (1..=10).rev().collect::<Vec<_>>());
}

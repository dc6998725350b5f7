//! `gc`: packs what waits for it and lets go of what is old; the report is numbers.

use super::{cx::Cx, error::CliError, text::shown};
use crate::{
    code::exit,
    runtime::collect::{self, Collected, Stays},
};
use serde_json::{Value, json};

#[derive(clap::Args)]
pub(super) struct GcArgs {
    /// Say what would be done, and do none of it
    #[arg(long, short = 'n')]
    dry_run: bool,
}

pub(super) fn run(cx: &Cx, args: &GcArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let done = if args.dry_run { collect::preview(&ledger)? } else { collect::collect(&ledger)? };
    cx.answer(&object(&done, args.dry_run), &text(&done, args.dry_run))?;
    Ok(exit::DONE)
}

fn object(done: &Collected, dry_run: bool) -> Value {
    let span = |(before, after): (u64, u64)| json!({ "before": before, "after": after });
    let (before, after) = done.footprint;
    let stays = done.stays.as_ref();
    json!({
        "schema": "agentproto/gc/1",
        "dryRun": dry_run,
        "events": span(done.events),
        "segments": span(done.segments),
        "packs": span((before.packs, after.packs)),
        "packBytes": span((before.pack_bytes, after.pack_bytes)),
        "logFrames": span((before.frames, after.frames)),
        "refs": done.refs,
        "stays": stays.map(|(segment, why)| json!({
            "segment": segment.to_string(),
            "because": because(why),
        })),
        "logs": done.logs,
        "packsReleased": done.packs_released,
        "runs": done.runs,
        "leftovers": done.leftovers,
    })
}

fn because(why: &Stays) -> String {
    match why {
        Stays::Needed(entity) => format!("{entity} is open and began there or earlier"),
        Stays::InTheLog => "the write-ahead log still proves its end".to_owned(),
    }
}

fn text(done: &Collected, dry_run: bool) -> String {
    let (before, after) = done.footprint;
    let span = |what: &str, (before, after): (u64, u64)| match before == after {
        true => format!("{what}: {before}\n"),
        false => format!("{what}: {before}, now {after}\n"),
    };
    let mut text = String::new();
    if dry_run {
        text.push_str("a dry run, nothing is changed; what gc would do:\n");
    }
    text.push_str(&span("events", done.events));
    text.push_str(&span("segments", done.segments));
    text.push_str(&span("packs of the journal", (before.packs, after.packs)));
    text.push_str(&span("size of these packs in bytes", (before.pack_bytes, after.pack_bytes)));
    text.push_str(&span("log entries not packed yet", (before.frames, after.frames)));
    for name in &done.refs {
        text.push_str(&format!("{}: {}\n", if dry_run { "would go" } else { "gone" }, shown(name)));
    }
    if let Some((segment, why)) = &done.stays {
        text.push_str(&format!("segment {segment} is old enough and stays: {}\n", because(why)));
    }
    let counts = [
        (done.logs, "logs of gate output removed"),
        (done.packs_released, "packs that git may repack again"),
        (done.runs, "dead runs cleared away"),
        (done.leftovers, "leftovers of killed processes removed"),
    ];
    for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("{what}: {count}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::retention::Footprint;

    #[test]
    fn numbers_that_stay_are_said_once() {
        let same = Footprint { packs: 2, pack_bytes: 900, frames: 3 };
        let done = Collected {
            events: (70, 20),
            segments: (7, 2),
            footprint: (same, Footprint { frames: 0, ..same }),
            refs: vec!["refs/x".to_owned()],
            stays: None,
            logs: 1,
            packs_released: 0,
            runs: 0,
            leftovers: 0,
        };
        assert_eq!(
            text(&done, false),
            "events: 70, now 20\nsegments: 7, now 2\npacks of the journal: 2\n\
             size of these packs in bytes: 900\nlog entries not packed yet: 3, now 0\n\
             gone: refs/x\nlogs of gate output removed: 1\n"
        );
        assert_eq!(object(&done, true)["events"]["after"], 20);
    }
}

//! Following the journal: new entries as they come, until nobody reads any more.
//!
//! Contract: what is written is flushed entry by entry. It ends by itself when the reader of stdout is gone
//! and when the `git` wrapper that started this program is gone; it watches the repository, no process.

use super::{cx::Cx, error::CliError, seen};
use crate::{
    domain::cursor::Since,
    ledger::{Ledger, Query, Seen},
    limits,
    runtime::watch::{Watch, Woken},
    sys::watch::{self, Ends},
};
use std::{
    io,
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

/// Shows every entry that `query` lets through, from where it says on, as they come.
///
/// # Errors
/// An unknown cursor, a store that cannot be read, or nobody to write to.
pub(super) fn follow(
    cx: &Cx,
    ledger: &Ledger,
    mut query: Query,
    most: Option<usize>,
    show: impl Fn(&Seen) -> String,
) -> Result<(), CliError> {
    // A stream may never end.
    cx.say_what_was_found();
    let say = |line: &str| cx.say(line);
    let mut watch = Watch::begin(ledger, &say);
    let stdout = io::stdout();
    let mut left = most.unwrap_or(usize::MAX);
    loop {
        watch.look()?;
        query.limit = left.min(limits::EVENTS_LIMIT_DEFAULT);
        let page = ledger.events(&query)?;
        if let Some(seq) = page.set_back {
            cx.say(&seen::set_back(seq));
        }
        for seen in &page.events {
            cx.out(&show(seen))?;
        }
        left -= page.events.len();
        if left == 0 || watch.is_orphaned() {
            return Ok(());
        }
        if let Some(next) = page.next {
            query.since = Some(Since::Commit(next));
        }
        if page.more {
            continue;
        }
        let far = Instant::now() + Duration::from_millis(limits::WAIT_DEFAULT_MS);
        match watch.wait(far, Some(stdout.as_fd()))? {
            Woken::Perhaps | Woken::Time => {}
            Woken::Orphaned => return Ok(()),
            Woken::Unread => return Err(CliError::output(&io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// Lets [`limits::WAIT_POLL_MS`] pass, or less when the reader of stdout goes away: that is the error.
pub(super) fn pause() -> io::Result<()> {
    let stdout = io::stdout();
    let ends = Ends { reader: Some(stdout.as_fd()), ..Ends::default() };
    match watch::pause(ends, Duration::from_millis(limits::WAIT_POLL_MS))? {
        watch::Woken::Called | watch::Woken::Time => Ok(()),
        watch::Woken::Unread => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

//! Following the journal: new entries as they come, until nobody reads any more.
//!
//! Contract: what is written is flushed entry by entry. It ends by itself when the reader of stdout is gone
//! and when the `git` wrapper that started this program is gone; it watches the repository, no process.

use super::{cx::Cx, error::CliError, seen};
use crate::{
    domain::cursor::Since,
    ledger::{Ledger, Query, Seen},
    limits,
    sys::process,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;

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
    let parent = process::parent();
    let mut left = most.unwrap_or(usize::MAX);
    loop {
        query.limit = left.min(limits::EVENTS_LIMIT_DEFAULT);
        let page = ledger.events(&query)?;
        if let Some(seq) = page.set_back {
            cx.say(&seen::set_back(seq));
        }
        for seen in &page.events {
            cx.out(&show(seen))?;
        }
        left -= page.events.len();
        if left == 0 || process::parent() != parent {
            return Ok(());
        }
        if let Some(next) = page.next {
            query.since = Some(Since::Commit(next));
        }
        if !page.more {
            wait_for_more(ledger, page.next.map(|n| n.to_string()).as_deref(), parent)?;
        }
    }
}

/// Returns when the journal has another tip, or the wrapper is gone.
fn wait_for_more(ledger: &Ledger, last: Option<&str>, parent: Option<i32>) -> Result<(), CliError> {
    loop {
        pause().map_err(|e| CliError::output(&e))?;
        let tip = ledger.tip()?.map(|t| t.id.to_string());
        if tip.as_deref() != last || process::parent() != parent {
            return Ok(());
        }
    }
}

/// Lets [`limits::WAIT_POLL_MS`] pass, or less when the reader of stdout goes away: that is the error.
pub(super) fn pause() -> io::Result<()> {
    let stdout = io::stdout();
    // Asking for no event at all still tells of a closed pipe.
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let time = std::time::Duration::from_millis(limits::WAIT_POLL_MS);
    let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
        Ok(_) => Err(io::ErrorKind::BrokenPipe.into()),
        Err(error) => Err(error.into()),
    }
}

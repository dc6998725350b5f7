//! The worker: this program started again, appending in a loop until it is told to end or is killed.
//!
//! Contract: a line in the acknowledgement file means that the store has answered that event as durable. It is
//! written in one call, so it is there as a whole or not at all, whenever the process dies. Anything that the store
//! did not answer as it should ends the worker with a word on its standard error.

use crate::{
    lab::pass,
    scribe::{self, Line, Outcome},
};
use git_agentproto::{
    domain::ids::SessionId,
    store::{Appended, GitView},
    sys::env::Env,
};
use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

/// What a worker is to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    /// Session its events belong to.
    pub(crate) session: String,
    /// Its name, part of every event's actor.
    pub(crate) name: String,
    /// Where acknowledgements go.
    pub(crate) acks: PathBuf,
    /// Appends; 0 = until killed or told to end.
    pub(crate) count: u64,
    /// Events in one append.
    pub(crate) batch: u64,
    /// Bytes of ballast in one event.
    pub(crate) pad: usize,
    /// Appends after which the store is opened anew; 0 = never.
    pub(crate) reopen: u64,
    /// Milliseconds from one append to the next.
    pub(crate) gap_ms: u64,
    /// It ends when this file is gone.
    pub(crate) until: Option<PathBuf>,
    /// Planted fault: acknowledge first, and die before the last append.
    pub(crate) early: bool,
}

impl Orders {
    /// As arguments after `--worker`.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let until = self.until.as_deref().map_or(String::new(), |p| p.display().to_string());
        vec![
            self.session.clone(),
            self.name.clone(),
            self.acks.display().to_string(),
            self.count.to_string(),
            self.batch.to_string(),
            self.pad.to_string(),
            self.reopen.to_string(),
            self.gap_ms.to_string(),
            until,
            self.early.to_string(),
        ]
    }

    fn from_args(args: &[String]) -> Outcome<Self> {
        let [session, name, acks, count, batch, pad, reopen, gap_ms, until, early] = args else {
            return Err(format!("not the arguments of a worker: {args:?}").into());
        };
        Ok(Self {
            session: session.clone(),
            name: name.clone(),
            acks: acks.into(),
            count: count.parse()?,
            batch: batch.parse()?,
            pad: pad.parse()?,
            reopen: reopen.parse()?,
            gap_ms: gap_ms.parse()?,
            until: Some(PathBuf::from(until)).filter(|p| !p.as_os_str().is_empty()),
            early: early.parse()?,
        })
    }
}

/// Runs a worker to its end.
pub(crate) fn run(args: &[String]) -> Outcome {
    let orders = Orders::from_args(args)?;
    let session: SessionId = orders.session.parse().map_err(|_| "not a session id")?;
    let env = Env::read()?;
    let mut store = scribe::open(&env)?;
    let mut round = 0;
    while (orders.count == 0 || round < orders.count) && is_wanted(orders.until.as_deref()) {
        if orders.reopen > 0 && round > 0 && round % orders.reopen == 0 {
            store = scribe::open(&env)?;
        }
        let first = round * orders.batch;
        let actors = (first..first + orders.batch).map(|n| actor(&orders.name, n));
        let lines: Vec<Line> =
            actors.map(|actor| Line::command_done(&session, actor, orders.pad)).collect();
        round += 1;
        if orders.early {
            acknowledge(&orders.acks, &lines.iter().map(early_line).collect::<String>())?;
            if round == orders.count {
                return Err("planted fault: dead between acknowledgement and append".into());
            }
        }
        let appended = scribe::append(&store, &lines)?;
        if !orders.early {
            acknowledge(&orders.acks, &ack_lines(&lines, &appended)?)?;
        }
        pass(Duration::from_millis(orders.gap_ms));
    }
    Ok(())
}

fn is_wanted(until: Option<&Path>) -> bool {
    until.is_none_or(Path::exists)
}

/// A name that no other event of the repository has: one process has one number.
fn actor(name: &str, n: u64) -> String {
    format!("torture:{name}:{}:{n}", std::process::id())
}

fn early_line(line: &Line) -> String {
    format!("{} -\n", line.actor)
}

/// One line per event; a line that starts with `!` tells of something late.
fn ack_lines(lines: &[Line], appended: &Appended) -> Outcome<String> {
    if lines.len() != appended.written.len() {
        return Err(format!("{} events became {appended:?}", lines.len()).into());
    }
    let mut text = String::new();
    for (line, written) in lines.iter().zip(&appended.written) {
        text.push_str(&format!("{} {}\n", line.actor, written.id));
    }
    if let GitView::Pending(why) = &appended.git_view {
        text.push_str(&format!("! pending: {}\n", why.replace('\n', " ")));
    }
    if let Some(why) = &appended.checkpoint_failed {
        text.push_str(&format!("! checkpoint: {}\n", why.replace('\n', " ")));
    }
    Ok(text)
}

fn acknowledge(path: &Path, text: &str) -> Outcome {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

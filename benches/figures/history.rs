//! Long journals: bytes per event, seeking, appending at the end, loose objects.
//!
//! The journals are made once through the real append in large batches and kept under `target/tmp/figures`; the git
//! side is a chain of commits with the same messages and no files, packed by git, with a commit-graph.
//! `FIGURES_MILLION=1` adds the rows at a million events, which takes long the first time.

use crate::{
    Outcome, alternate, print, ran,
    scribe::{self, Line},
};
use git_agentproto::{
    domain::{cursor::Since, event::SessionStarted, ids::SessionId, input::Input},
    ledger::{Ledger, Query},
    store::Store,
    sys::{clock, env::Env},
};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

/// Events in one batch while a journal is made; divides the length of a segment.
const BATCH: u64 = 256;
/// Events of the short journal that appending to a long one is compared with.
const SHORT: u64 = 1_000;
const LONG: u64 = 100_000;
const MILLION: u64 = 1_000_000;
/// Entries of one page.
const PAGE: usize = 100;
/// Single appends during which loose objects are counted.
const SINGLE: u64 = 1_500;

/// Prints the rows of this file.
pub(crate) fn rows(rounds: usize) -> Outcome {
    let million = std::env::var_os("FIGURES_MILLION").is_some();
    for entities in [50, 1_000] {
        let journal = Journal::made(LONG, entities)?;
        let chain = Chain::made(&journal)?;
        bytes(&journal, &chain)?;
    }
    for events in [LONG, MILLION].into_iter().filter(|n| *n == LONG || million) {
        let journal = Journal::made(events, 50)?;
        let chain = Chain::made(&journal)?;
        seeking(&journal, &chain, rounds.div_ceil(10))?;
        appending(&journal, rounds)?;
    }
    loose()
}

/// A journal of the real program in a place of its own.
struct Journal {
    dir: PathBuf,
    events: u64,
    entities: u64,
}

impl Journal {
    /// The journal kept from an earlier run, or a fresh one.
    fn made(events: u64, entities: u64) -> Outcome<Self> {
        let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join("figures");
        let journal = Self { dir: top.join(format!("{events}-{entities}")), events, entities };
        if journal.dir.join("made").exists() {
            return Ok(journal);
        }
        if journal.dir.exists() {
            fs::remove_dir_all(&journal.dir)?;
        }
        fs::create_dir_all(journal.repo())?;
        let begin = Instant::now();
        journal.write()?;
        println!(
            "({events} events over {entities} sessions made in {:.0} s)",
            begin.elapsed().as_secs_f64()
        );
        fs::write(journal.dir.join("made"), "")?;
        Ok(journal)
    }

    fn repo(&self) -> PathBuf {
        self.dir.join("repo")
    }

    fn git(&self, args: &[&str]) -> Outcome<String> {
        ran(&self.dir, &self.repo(), "git", args)
    }

    fn env(&self) -> Env {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let vars: [(OsString, OsString); 3] = [
            ("PATH".into(), path),
            ("HOME".into(), self.dir.clone().into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ];
        Env::fixed(self.repo(), vars)
    }

    fn store(&self) -> Outcome<Store> {
        scribe::open(&self.env())
    }

    fn write(&self) -> Outcome {
        for args in [
            &["init", "-q", "-b", "main"][..],
            &["config", "user.name", "Ada Example"],
            &["config", "user.email", "ada@example.invalid"],
            &["config", "gc.auto", "0"],
            &["commit", "-q", "--allow-empty", "-m", "init"],
            &["repack", "-adq"],
        ] {
            self.git(args)?;
        }
        let tool = env!("CARGO_BIN_EXE_git-agentproto");
        ran(&self.dir, &self.repo(), tool, &["session", "adopt", "--label", "first"])?;
        let store = self.store()?;
        let sessions: Vec<SessionId> =
            (0..self.entities).map(|_| clock::new_session_id()).collect();
        let mut next = 2;
        while next <= self.events {
            // Batches end where a segment may end.
            let last = next.next_multiple_of(BATCH).min(self.events);
            let lines: Vec<Line> = (next..=last).map(|n| line(&sessions, n - 2)).collect();
            let appended = scribe::append(&store, &lines)?;
            next = appended.written.last().ok_or("nothing was written")?.seq + 1;
        }
        Ok(())
    }

    /// Bytes of everything that belongs to the journal: packs, their indexes, loose objects.
    fn bytes(&self) -> Outcome<u64> {
        size_below(&self.repo().join(".git/objects"))
    }
}

/// The `n`th event: every session begins, then they take turns.
fn line(sessions: &[SessionId], n: u64) -> Line {
    let count = sessions.len() as u64;
    let session = &sessions[usize::try_from(n % count).unwrap_or_default()];
    if n >= count {
        return Line::command_done(session, "cli".into(), 0);
    }
    let started = SessionStarted {
        label: Some(format!("session {n}")),
        worktree: ".".into(),
        cwd: ".".into(),
        base: None,
        dirty_base: false,
        own: false,
        launch: None,
    };
    let input = Input::SessionAdopted { session: session.clone(), started };
    Line { input, actor: "cli".into() }
}

fn size_below(dir: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += if meta.is_dir() { size_below(&entry.path())? } else { meta.len() };
    }
    Ok(bytes)
}

/// The same messages as commits without files, in a repository of git alone.
struct Chain {
    home: PathBuf,
    repo: PathBuf,
}

impl Chain {
    fn made(journal: &Journal) -> Outcome<Self> {
        let chain = Self { home: journal.dir.clone(), repo: journal.dir.join("chain") };
        if chain.repo.join("made").exists() {
            return Ok(chain);
        }
        if chain.repo.exists() {
            fs::remove_dir_all(&chain.repo)?;
        }
        fs::create_dir_all(&chain.repo)?;
        chain.git(&["init", "-q", "-b", "main"])?;
        let stream = chain.repo.join("stream");
        let messages = journal.git(&[
            "log",
            "--reverse",
            "--format=%B%x00",
            "--glob=refs/agentproto/journal",
        ])?;
        let mut out = BufWriter::new(File::create(&stream)?);
        for message in messages.split('\0').map(str::trim_start).filter(|m| !m.is_empty()) {
            let size = message.len();
            writeln!(
                out,
                "commit refs/heads/chain\ncommitter Ada <ada@example.invalid> 1700000000 +0000"
            )?;
            writeln!(out, "data {size}\n{message}")?;
        }
        out.flush()?;
        drop(out);
        let mut import =
            crate::command(&chain.home, &chain.repo, "git", &["fast-import", "--quiet"]);
        let done = import.stdin(File::open(&stream)?).stdout(Stdio::null()).status()?;
        if !done.success() {
            return Err("git fast-import fails".into());
        }
        fs::remove_file(&stream)?;
        chain.git(&["repack", "-adq"])?;
        chain.git(&["commit-graph", "write", "--reachable"])?;
        fs::write(chain.repo.join("made"), "")?;
        Ok(chain)
    }

    fn git(&self, args: &[&str]) -> Outcome<String> {
        ran(&self.home, &self.repo, "git", args)
    }

    fn bytes(&self) -> Outcome<u64> {
        size_below(&self.repo.join(".git/objects/pack"))
    }
}

fn bytes(journal: &Journal, chain: &Chain) -> Outcome {
    let per = |bytes: u64| bytes as f64 / journal.events as f64;
    println!(
        "{} events, {} live sessions: {:.0} bytes an event : messages alone {:.0}",
        journal.events,
        journal.entities,
        per(journal.bytes()?),
        per(chain.bytes()?)
    );
    Ok(())
}

/// The middle of the journal, by number and as a page, and its end.
fn seeking(journal: &Journal, chain: &Chain, rounds: usize) -> Outcome {
    let ledger = Ledger::open(&journal.env(), "cli")?;
    let middle = journal.events / 2;
    let tip = ledger.tip()?.ok_or("the journal is empty")?;
    let seek = || -> Outcome<Duration> {
        let begin = Instant::now();
        let found = ledger.store().seek_in(&tip, middle)?.map(|entry| entry.seq);
        let took = begin.elapsed();
        if found == Some(middle) { Ok(took) } else { Err(format!("{found:?}").into()) }
    };
    let page = || -> Outcome<Duration> {
        let begin = Instant::now();
        let since = Some(Since::Seq(middle));
        let page = ledger.events(&Query { since, limit: PAGE, ..Query::default() })?;
        let took = begin.elapsed();
        let first = page.events.first().map(|e| e.message.seq);
        if first == Some(middle + 1) { Ok(took) } else { Err(format!("{first:?}").into()) }
    };
    let git = |args: &[&str]| -> Outcome<Duration> {
        let begin = Instant::now();
        chain.git(args)?;
        Ok(begin.elapsed())
    };
    let back = format!("chain~{middle}");
    let (a, b) = alternate(rounds, seek, || git(&["rev-parse", &back]))?;
    print(&format!("event by number in {}", journal.events), a, "git rev-parse ref~n", b);
    let skip = format!("--skip={middle}");
    let theirs = ["log", "--format=%H", &skip, "-n", "100", "chain"];
    let (a, b) = alternate(rounds, page, || git(&theirs))?;
    print(&format!("100 events from the middle of {}", journal.events), a, "git log --skip", b);
    let near = journal.events - 100;
    let tool = env!("CARGO_BIN_EXE_git-agentproto");
    let since = near.to_string();
    let call = || -> Outcome<Duration> {
        let begin = Instant::now();
        ran(
            &journal.dir,
            &journal.repo(),
            tool,
            &["events", "--since", &since, "--limit", "100", "--json"],
        )?;
        Ok(begin.elapsed())
    };
    let (a, b) = alternate(rounds, call, || git(&["log", "--format=%B", "-n", "100", "chain"]))?;
    print(&format!("events --since, the last 100 of {}", journal.events), a, "git log -n 100", b);
    Ok(())
}

/// One event more, at the end of a long journal and of a short one.
fn appending(journal: &Journal, rounds: usize) -> Outcome {
    let short = Journal::made(SHORT, 50)?;
    let (long, short) = (Appender::new(journal)?, Appender::new(&short)?);
    let (a, b) = alternate(rounds, || long.timed(), || short.timed())?;
    print(&format!("append at {} events", journal.events), a, &format!("append at {SHORT}"), b);
    Ok(())
}

struct Appender {
    store: Store,
    session: SessionId,
}

impl Appender {
    fn new(journal: &Journal) -> Outcome<Self> {
        let store = journal.store()?;
        let session = clock::new_session_id();
        let lines = [line(std::slice::from_ref(&session), 0)];
        scribe::append(&store, &lines)?;
        Ok(Self { store, session })
    }

    fn timed(&self) -> Outcome<Duration> {
        let begin = Instant::now();
        scribe::append(&self.store, &[Line::command_done(&self.session, "cli".into(), 0)])?;
        Ok(begin.elapsed())
    }
}

/// Loose objects while single events are appended, git's own threshold beside it.
fn loose() -> Outcome {
    let lab = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let journal = Journal { dir: lab.path().to_owned(), events: 1, entities: 1 };
    fs::create_dir(journal.repo())?;
    journal.write()?;
    let appender = Appender::new(&journal)?;
    let mut most = 0;
    for _ in 0..SINGLE {
        appender.timed()?;
        most = most.max(loose_objects(&journal.repo().join(".git/objects"))?);
    }
    println!(
        "loose objects at any time, {SINGLE} single events: {most} : git gc --auto begins near 6700"
    );
    Ok(())
}

fn loose_objects(dir: &Path) -> Outcome<usize> {
    let mut count = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().len() == 2 {
            count += fs::read_dir(entry.path())?.count();
        }
    }
    Ok(count)
}

//! Appending in one process: how far from the disk alone, and how far ahead of git's own plumbing.

use crate::{Outcome, alternate, print};
use git_agentproto::{
    domain::time::Timestamp,
    store::{Batch, Edit, NewEntry, Snapshot, Stamp, Store, discover},
    sys::env::Env,
};
use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const THREADS: usize = 64;
/// Documents the events are about.
const DOCUMENTS: u64 = 50;
const BLOCK_BYTES: usize = 4096;
const BLOCKS: usize = 1024;

/// Prints the rows of this file.
pub(crate) fn rows(rounds: usize) -> Outcome {
    alone(rounds)?;
    in_flight(rounds)
}

/// One append after the other against one `fdatasync` of 4 KiB in the same directory.
fn alone(rounds: usize) -> Outcome {
    let lab = tempfile::tempdir()?;
    let store = opened(lab.path())?;
    let disk = Disk::new(&lab.path().join("blocks"))?;
    let mut block = 0;
    let (ours, theirs) = alternate(
        rounds,
        || timed(|| append(&store)),
        || {
            block += 1;
            timed(|| disk.sync(block))
        },
    )?;
    print("append in one process (durable)", ours, "4 KiB fdatasync", theirs);
    Ok(())
}

/// Appends of many threads at once against one event after the other by four git programs, per event.
fn in_flight(rounds: usize) -> Outcome {
    let (ours, theirs) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let store = opened(ours.path())?;
    opened(theirs.path())?;
    let mut plumbing = Plumbing { dir: theirs.path(), tip: None };
    let (a, b) = alternate(
        rounds.div_ceil(10),
        || Ok(timed(|| everybody(&store, 4))? / 4 / u32::try_from(THREADS)?),
        || timed(|| plumbing.event()),
    )?;
    print("append, 64 in flight (durable)", a, "git plumbing, one by one (not durable)", b);
    Ok(())
}

fn timed(work: impl FnOnce() -> Outcome) -> Outcome<Duration> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed())
}

fn everybody(store: &Store, each: usize) -> Outcome {
    let failed = thread::scope(|scope| {
        let one = || (0..each).filter_map(|_| append(store).err().map(|e| e.to_string())).next();
        let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
        all.into_iter().find_map(|t| t.join().unwrap_or_else(|_| Some("a thread died".to_owned())))
    });
    failed.map_or(Ok(()), |e| Err(e.into()))
}

fn opened(dir: &Path) -> Outcome<Store> {
    let repo = dir.join("repo");
    std::fs::create_dir(&repo)?;
    git(&repo, &["init", "-q", "-b", "main"], "")?;
    git(&repo, &["commit", "-q", "--allow-empty", "-m", "init"], "")?;
    let vars = [("HOME".into(), dir.into()), ("GIT_CONFIG_NOSYSTEM".into(), "1".into())];
    let env = Env::fixed(repo.canonicalize()?, vars);
    Ok(Store::open(discover(&env)?, &env)?)
}

fn append(store: &Store) -> Outcome {
    let at = Timestamp::from_ms(1_700_000_000_000);
    let who = Stamp { name: "Ada Example".into(), email: "ada@example.invalid".into(), at };
    let decide = |s: &Snapshot<'_>| {
        let entries = vec![entry(s.next_seq)];
        s.document(&path_of(s.next_seq)).map(|_| Batch { entries, pins: vec![] })
    };
    store.append(&who, decide).map(drop).map_err(|e| e.to_string().into())
}

fn path_of(seq: u64) -> String {
    let n = seq % DOCUMENTS;
    format!("open/{:x}/pol_{n:012}.json", n % 16)
}

fn document(seq: u64) -> String {
    let n = seq % DOCUMENTS;
    format!("{{\"id\":\"pol_{n:012}\",\"pad\":\"{}\",\"last\":{seq}}}\n", "x".repeat(400))
}

fn message(seq: u64) -> String {
    let format = if seq == 1 { "Format: 1\n" } else { "" };
    format!(
        "bench:did pol_{:012}: something\n\n{format}Seq: {seq}\nKind: bench:did\n",
        seq % DOCUMENTS
    )
}

fn entry(seq: u64) -> NewEntry {
    let put = Edit::Put { path: path_of(seq), data: document(seq).into_bytes() };
    NewEntry { message: message(seq).into_bytes(), edits: vec![put] }
}

/// A file whose blocks are there, so that writing one changes nothing but its bytes.
struct Disk(File);

impl Disk {
    fn new(path: &Path) -> Outcome<Self> {
        let file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all_at(&vec![0; BLOCK_BYTES * BLOCKS], 0)?;
        file.sync_all()?;
        Ok(Self(file))
    }

    fn sync(&self, block: usize) -> Outcome {
        let at = (block % BLOCKS) * BLOCK_BYTES;
        self.0.write_all_at(&[1; BLOCK_BYTES], u64::try_from(at)?)?;
        Ok(self.0.sync_data()?)
    }
}

/// An event as a script would write it: blob, tree, commit, ref, each by a program of its own.
struct Plumbing<'a> {
    dir: &'a Path,
    tip: Option<String>,
}

impl Plumbing<'_> {
    fn event(&mut self) -> Outcome {
        let repo = self.dir.join("repo");
        let blob = git(&repo, &["hash-object", "-w", "--stdin"], &document(1))?;
        let tree = git(&repo, &["mktree"], &format!("100644 blob {blob}\tpol_1.json\n"))?;
        let mut args = vec!["commit-tree", "-m", "bench:did pol_1: something", &tree];
        args.extend(self.tip.iter().flat_map(|tip| ["-p", tip]));
        let new = git(&repo, &args, "")?;
        let old = self.tip.as_deref().unwrap_or_default();
        git(&repo, &["update-ref", "refs/bench/journal", &new, old], "")?;
        self.tip = Some(new);
        Ok(())
    }
}

fn git(repo: &Path, args: &[&str], input: &str) -> Outcome<String> {
    let mut command = Command::new("git");
    command.args(args).current_dir(repo).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", repo);
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Ada Example");
        command.env(format!("GIT_{role}_EMAIL"), "ada@example.invalid");
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no stdin")?.write_all(input.as_bytes())?;
    let out = child.wait_with_output()?;
    if !out.status.success() {
        return Err(format!("git {args:?} failed").into());
    }
    Ok(String::from_utf8(out.stdout)?.trim_end().to_owned())
}

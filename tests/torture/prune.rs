//! Races with git's cleaners, made certain: one system call of git (or of ours) is held up while the others go on.
//!
//! Contract: each race is one that a wrong store loses every time. `prune` has read the refs and stands before its
//! first removal; `repack -a -d` stands before it packs, before it puts its pack in place, or before it removes old
//! ones; our own append stands between its objects and its ref.

use crate::{
    audit::{acks, judge},
    kill::{HEAVY, command},
    lab::{Lab, Repo, run as finish_run},
    report::{Cx, Floor, Report},
    scribe::Outcome,
    trace::{Held, unusable},
    worker::Orders,
};
use std::{fs, io::Write, process::Stdio};

const REMOVAL: &str = "?unlink,unlinkat";
const PLACING: &str = "?rename,renameat,renameat2,?link,linkat,?unlink,unlinkat";
const LINKING: &str = "?link,linkat";
/// Appends that make two checkpoints when they are heavy.
const MANY: u64 = 33;

/// What is held up, what happens meanwhile, and whether the brief floor has no time for it.
type Race = (&'static str, fn(&Yard<'_>) -> Outcome, bool);

const RACES: &[Race] = &[
    ("A2 prune in flight, events packed meanwhile", |y| y.prune_beside(MANY, HEAVY, false), true),
    ("A3 prune in flight, nothing packed", |y| y.prune_beside(10, 0, false), false),
    ("B1 repack about to start its packer", |y| y.repack_beside("execve", 1), true),
    ("B2 repack about to place its pack", |y| y.repack_beside(PLACING, 1), true),
    ("B3 repack about to remove old packs", |y| y.repack_beside(REMOVAL, 1), true),
    ("C a batch before its ref moves, full repack and prune between", |y| y.append_held(6), true),
    (
        "C1 an event before its ref moves, full repack and prune between",
        |y| y.append_held(1),
        false,
    ),
    (
        "D2 a new object equal to an old loose one that prune removes",
        |y| y.equal_object(false),
        false,
    ),
    (
        "D3 a new object equal to an old packed one that repack drops",
        |y| y.equal_object(true),
        true,
    ),
];

/// The suite.
pub(crate) fn run(cx: &Cx) -> Outcome<Report> {
    if let Some(why) = unusable(&Lab::new()?) {
        return Ok(Report::skipped(why));
    }
    let mut report = Report::default();
    let all = RACES.len() as u64;
    let races = RACES.iter().filter(|(_, _, heavy)| cx.floor != Floor::Brief || !heavy);
    for (name, race, _) in races {
        one(name, *race, &mut report)?;
    }
    report.require("races", cx.pick(3, all, all));
    Ok(report)
}

/// The log dropped before anybody looks.
pub(crate) fn planted(_cx: &Cx) -> Outcome<Report> {
    let mut report = Report::default();
    one("log dropped", |y| y.prune_beside(10, 0, true), &mut report)?;
    Ok(report)
}

fn one(name: &str, race: impl Fn(&Yard<'_>) -> Outcome, report: &mut Report) -> Outcome {
    let lab = Lab::new()?;
    let yard = Yard { repo: lab.repo()? };
    yard.write(40, 1, 0)?;
    yard.junk()?;
    race(&yard).map_err(|e| format!("{name}: {e}"))?;
    let (acked, _) = acks(&yard.repo.acks())?;
    let verdict = judge(&yard.repo, &acked)?;
    verdict.problems.iter().for_each(|p| report.problem(name, p));
    report.count("races", 1);
    report.count("events", verdict.events);
    report.count("acknowledged", verdict.acked);
    Ok(())
}

/// A repository with a history and something for a prune to remove first.
struct Yard<'a> {
    repo: Repo<'a>,
}

impl Yard<'_> {
    fn orders(&self, count: u64, batch: u64, pad: usize) -> Orders {
        Orders {
            session: self.repo.session.clone(),
            name: "w".to_owned(),
            acks: self.repo.acks().join("w"),
            count,
            batch,
            pad,
            ..Orders::default()
        }
    }

    fn write(&self, count: u64, batch: u64, pad: usize) -> Outcome {
        finish_run(command(&self.repo, &self.orders(count, batch, pad))?)?.text()?;
        Ok(())
    }

    /// A loose object that nothing names and whose id comes before all others of the repository.
    fn junk(&self) -> Outcome {
        for i in 0..100_000 {
            let text = format!("junk {i}");
            let id = self.hash(&text, false)?;
            if id.starts_with("00") || (i > 400 && id.starts_with('0')) {
                self.hash(&text, true)?;
                return Ok(());
            }
        }
        Err("no junk found".into())
    }

    fn hash(&self, text: &str, write: bool) -> Outcome<String> {
        let args: &[&str] =
            if write { &["hash-object", "-w", "--stdin"] } else { &["hash-object", "--stdin"] };
        let mut child =
            self.repo.lab.command("git", &self.repo.dir, args).stdin(Stdio::piped()).spawn()?;
        child.stdin.take().ok_or("no pipe")?.write_all(text.as_bytes())?;
        crate::lab::finish(child, "git hash-object".to_owned())?.text()
    }

    fn held_git(&self, args: &[&str], at: (&str, u64)) -> Outcome<Held> {
        let git = self.repo.lab.command("git", &self.repo.dir, args);
        Held::at(self.repo.lab, &git, at)
    }

    fn prune_beside(&self, count: u64, pad: usize, drop_log: bool) -> Outcome {
        let held = self.held_git(&["prune", "--expire=now"], (REMOVAL, 1))?;
        self.write(count, 1, pad)?;
        if drop_log {
            for entry in fs::read_dir(self.repo.git_dir().join("agentproto"))? {
                let path = entry?.path();
                if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("wal")) {
                    fs::remove_file(path)?;
                }
            }
        }
        held.let_go().map(drop)
    }

    fn repack_beside(&self, kind: &str, n: u64) -> Outcome {
        self.write(20, 1, HEAVY)?;
        let held = self.held_git(&["repack", "-a", "-d", "-q"], (kind, n))?;
        self.write(MANY, 1, HEAVY)?;
        held.let_go().map(drop)
    }

    /// Our own append stands between objects and ref while git throws away what no ref names.
    fn append_held(&self, batch: u64) -> Outcome {
        let worker = command(&self.repo, &self.orders(1, batch, 0))?;
        let held = Held::at(self.repo.lab, &worker, (LINKING, 1))?;
        self.repo.git(&["repack", "-a", "-d", "-q"])?;
        self.repo.git(&["prune", "--expire=now"])?;
        let told = acks(&self.repo.acks())?.0.len() as u64;
        held.let_go()?;
        let done = acks(&self.repo.acks())?.0.len() as u64;
        if done == told + batch { Ok(()) } else { Err("the append did not come through".into()) }
    }

    /// The document of the next event is known beforehand and lies about as an object that nothing names.
    fn equal_object(&self, packed: bool) -> Outcome {
        let repo = &self.repo;
        repo.shelve("before")?;
        self.write(1, 1, 0)?;
        let last = repo.session.chars().last().ok_or("no session")?;
        let path = format!("{}:open/{last}/{}.json", repo.journal()?, repo.session);
        let (id, text) =
            (repo.git(&["rev-parse", &path])?, repo.git(&["cat-file", "blob", &path])?);
        repo.unshelve("before")?;
        if self.hash(&(text + "\n"), true)? != id {
            return Err("the document was not foretold".into());
        }
        let held = if packed {
            let pack = self.repo.lab.command(
                "sh",
                &self.repo.dir,
                &[
                    "-c",
                    "echo $0 | git pack-objects -q .git/objects/pack/pack && git prune-packed",
                    &id,
                ],
            );
            finish_run(pack)?.text()?;
            self.held_git(&["repack", "-a", "-d", "-q"], (PLACING, 1))?
        } else {
            self.held_git(&["prune", "--expire=now"], (REMOVAL, 1))?
        };
        self.write(1, 1, 0)?;
        if repo.git(&["rev-parse", &path])? != id {
            return Err("the document became another one".into());
        }
        held.let_go().map(drop)
    }
}

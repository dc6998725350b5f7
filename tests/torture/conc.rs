//! Many writers beside everything of git that moves or removes objects and refs, with and without kills.
//!
//! Contract: workers in their own processes, single calls of the tool, and loops of `gc --prune=now`,
//! `prune --expire=now`, `repack -ad`, `pack-refs --all` and ordinary commits run until all of them have come far
//! enough. Then everything is judged. A commit of git's own that is not on its branch yet is what a prune takes
//! away, so one loop makes commits and prunes by turns; the tool's events wait for nobody.

use crate::{
    audit::{self, Ack, judge_beside_cleaners},
    kill::{HEAVY, command},
    lab::{Dice, Lab, Repo, field, finish, pass, told, wait_for},
    report::{Cx, Report},
    scribe::Outcome,
    worker::Orders,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// How far a storm has to come.
struct Plan {
    workers: u64,
    callers: u64,
    /// Events acknowledged to workers and callers together.
    events: u64,
    /// Rounds of each call of git that end well.
    rounds: u64,
    kills: u64,
    /// Milliseconds between two appends of a worker: a journal that grows without end makes each round longer.
    gap_ms: u64,
    early: bool,
    /// Until then it has come so far, or fails.
    longest: Duration,
}

/// Longest life of a worker that will be killed, milliseconds.
const LIFE_MS: u64 = 400;
/// What git does.
const CALLS: &[(&str, &[&str])] = &[
    ("gc", &["gc", "-q", "--prune=now"]),
    ("prune", &["prune", "--expire=now"]),
    ("commits", &["commit", "-q", "--allow-empty", "-m", "ordinary"]),
    ("repack", &["repack", "-adq"]),
    ("pack-refs", &["pack-refs", "--all"]),
];
/// Loops, each of one or several calls.
const LOOPS: &[&[usize]] = &[&[0, 2, 1, 2], &[3], &[4]];

/// Without kills.
pub(crate) fn beside_git(cx: &Cx) -> Outcome<Report> {
    let plan = Plan {
        workers: cx.pick(2, 4, 8),
        callers: 2,
        events: cx.pick(60, 800, 40_000),
        rounds: cx.pick(2, 15, 200),
        kills: 0,
        gap_ms: cx.pick(0, 0, 50),
        early: false,
        longest: Duration::from_secs(cx.pick(120, 240, 7200)),
    };
    floor(storm(cx, &plan)?, &plan)
}

/// With `kill -9` of a worker every few hundred milliseconds.
pub(crate) fn kills_beside_git(cx: &Cx) -> Outcome<Report> {
    let plan = Plan {
        workers: 3,
        callers: 1,
        events: cx.pick(30, 300, 4_000),
        rounds: cx.pick(2, 10, 200),
        kills: cx.pick(4, 40, 600),
        gap_ms: cx.pick(0, 0, 20),
        early: false,
        longest: Duration::from_secs(cx.pick(120, 240, 3600)),
    };
    floor(storm(cx, &plan)?, &plan)
}

/// Workers that answer too early, one of which dies in between.
pub(crate) fn planted(cx: &Cx) -> Outcome<Report> {
    storm(cx, &early(0))
}

/// The same, killed.
pub(crate) fn planted_kills(cx: &Cx) -> Outcome<Report> {
    storm(cx, &early(4))
}

fn early(kills: u64) -> Plan {
    let longest = Duration::from_secs(120);
    Plan { workers: 2, callers: 1, events: 10, rounds: 1, kills, gap_ms: 0, early: true, longest }
}

fn floor(mut report: Report, plan: &Plan) -> Outcome<Report> {
    report.require("acknowledged", plan.events);
    report.require("kills", plan.kills);
    for (name, _) in CALLS {
        report.require(name, plan.rounds);
    }
    Ok(report)
}

/// A storm going on.
struct Storm<'a> {
    repo: &'a Repo<'a>,
    plan: &'a Plan,
    /// While this file is there, everybody goes on.
    flag: PathBuf,
    acks: PathBuf,
    rounds: Vec<AtomicU64>,
    failed: AtomicU64,
    kills: AtomicU64,
    calls: AtomicU64,
    found: Mutex<(Vec<Ack>, Vec<String>)>,
}

fn storm(cx: &Cx, plan: &Plan) -> Outcome<Report> {
    let lab = Lab::new()?;
    let repo = lab.repo()?;
    let (flag, acks) = (lab.path("flag"), repo.acks());
    fs::write(&flag, "")?;
    let storm = Storm {
        repo: &repo,
        plan,
        flag: flag.clone(),
        acks,
        rounds: CALLS.iter().map(|_| AtomicU64::new(0)).collect(),
        failed: AtomicU64::new(0),
        kills: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        found: Mutex::default(),
    };
    let came = thread::scope(|scope| {
        for calls in LOOPS {
            let storm = &storm;
            scope.spawn(move || storm.guarded(|| storm.git_loop(calls)));
        }
        for _ in 0..plan.callers {
            let storm = &storm;
            scope.spawn(move || storm.guarded(|| storm.calls()));
        }
        for slot in 0..plan.workers {
            let (storm, seed) = (&storm, cx.seed.wrapping_add(slot));
            scope.spawn(move || storm.guarded(|| storm.workers(slot, Dice::new(seed))));
        }
        let came = wait_for("the storm came far enough", plan.longest, || storm.is_enough());
        fs::remove_file(&flag).map_err(|e| e.to_string()).and(came.map_err(|e| e.to_string()))
    });
    let mut report = storm.report()?;
    came.err().into_iter().for_each(|e| report.problem("", &e));
    Ok(report)
}

impl Storm<'_> {
    fn goes_on(&self) -> bool {
        self.flag.exists()
    }

    fn tell(&self, problem: String) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).1.push(problem);
    }

    /// What cannot go on is a problem of the whole storm.
    fn guarded(&self, run: impl FnOnce() -> Outcome) {
        if let Err(e) = run() {
            self.tell(e.to_string());
        }
    }

    fn git_loop(&self, calls: &[usize]) -> Outcome {
        for at in calls.iter().cycle().take_while(|_| self.goes_on()) {
            let done = self.repo.git_done(CALLS[*at].1)?;
            // Git is disturbed by its own like and by events not healed yet: such a round is not one of the floor.
            let count = if done.code == 0 { &self.rounds[*at] } else { &self.failed };
            count.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    fn calls(&self) -> Outcome {
        while self.goes_on() {
            let session = &self.repo.session;
            let done = self.repo.tool(&["session", "report", session, "command-done", "--json"])?;
            let cursor = field(&done, "cursor")?;
            self.calls.fetch_add(1, Relaxed);
            let ack = Ack { actor: None, id: Some(cursor) };
            self.found.lock().unwrap_or_else(PoisonError::into_inner).0.push(ack);
        }
        Ok(())
    }

    /// One worker after the other in this slot.
    fn workers(&self, slot: u64, mut dice: Dice) -> Outcome {
        let mut life = 0;
        while self.goes_on() {
            life += 1;
            let name = format!("w{slot}.{life}");
            let orders = Orders {
                session: self.repo.session.clone(),
                acks: self.acks.join(&name),
                name,
                count: self.appends(),
                batch: if slot % 4 == 3 { 6 } else { 1 },
                pad: if slot.is_multiple_of(2) { HEAVY } else { 0 },
                reopen: 50,
                gap_ms: self.plan.gap_ms,
                until: Some(self.flag.clone()),
                early: self.plan.early,
            };
            self.worker(&orders, &mut dice)?;
        }
        Ok(())
    }

    /// Appends of one worker: as many as it comes to before its kill, or as do not outlast the deadline of a child.
    fn appends(&self) -> u64 {
        match self.plan {
            Plan { early: true, .. } => 8,
            Plan { kills: 0, .. } => 200,
            Plan { .. } => 0,
        }
    }

    fn worker(&self, orders: &Orders, dice: &mut Dice) -> Outcome {
        let mut command = command(self.repo, orders)?;
        let told = told(&command);
        let mut child = command.spawn()?;
        if self.plan.kills > 0 {
            let life = Duration::from_millis(100) + dice.moment(LIFE_MS);
            pass(life);
            child.kill()?;
        }
        let ended = finish(child, told)?;
        if ended.code == 128 + 9 {
            self.kills.fetch_add(1, Relaxed);
        } else if ended.code != 0 {
            self.tell(format!("a worker failed: {ended}"));
        }
        Ok(())
    }

    fn is_enough(&self) -> Outcome<Option<()>> {
        // Once somebody cannot go on there is nothing to wait for; a planted fault makes workers fail.
        let stuck = !self.plan.early
            && !self.found.lock().unwrap_or_else(PoisonError::into_inner).1.is_empty();
        let rounds = self.rounds.iter().all(|r| r.load(Relaxed) >= self.plan.rounds);
        let kills = self.kills.load(Relaxed) >= self.plan.kills;
        let enough = stuck || (rounds && kills && self.acknowledged()? >= self.plan.events);
        if !enough {
            pass(Duration::from_millis(100));
        }
        Ok(enough.then_some(()))
    }

    fn acknowledged(&self) -> Outcome<u64> {
        Ok(self.calls.load(Relaxed) + lines_below(&self.acks)?)
    }

    fn report(self) -> Outcome<Report> {
        let mut report = Report::default();
        let (mut acks, problems) = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        problems.iter().for_each(|p| report.problem("", p));
        let (of_workers, told) = audit::acks(&self.acks)?;
        acks.extend(of_workers);
        let verdict = judge_beside_cleaners(self.repo, &acks)?;
        verdict.problems.iter().for_each(|p| report.problem("", p));
        report.count("events", verdict.events);
        report.count("acknowledged", verdict.acked);
        report.count("single calls", self.calls.load(Relaxed));
        report.count("kills", self.kills.load(Relaxed));
        for ((name, _), rounds) in CALLS.iter().zip(&self.rounds) {
            report.count(name, rounds.load(Relaxed));
        }
        report.count("rounds of git that failed", self.failed.load(Relaxed));
        report.count("told late", told.len() as u64);
        Ok(report)
    }
}

fn lines_below(dir: &Path) -> Outcome<u64> {
    let (acks, _) = audit::acks(dir)?;
    Ok(acks.len() as u64)
}

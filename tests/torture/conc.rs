//! Many writers beside everything of git that moves or removes objects and refs, with and without kills.
//!
//! Contract: workers in their own processes, single calls of the tool, and loops of `gc --prune=now`,
//! `prune --expire=now`, `repack -ad`, `pack-refs --all` and ordinary commits run until all of them have come far
//! enough. Then everything is judged. A commit of git's own that is not on its branch yet is what a prune takes
//! away, so one loop makes commits and prunes by turns; the tool's events wait for nobody.
//!
//! Every round of git counts as pressure. Beside no writer none fails. Beside writers some do, nearly all of them for
//! want of an event: a prune that read the refs before the event took its objects, and until the next append has
//! packed them again (storage H) git does not get past them. The totals tell how many.

use crate::{
    audit::{self, Ack, chain, judge_beside_cleaners, lost},
    kill::{HEAVY, command},
    lab::{Dice, Lab, Repo, field, finish, pass, told, wait_for},
    report::{Cx, Report},
    scribe::Outcome,
    worker::Orders,
};
use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
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
    /// Rounds of each call of git, however they end: that is the pressure.
    rounds: u64,
    /// Those of them that end well: git must come through between its own like and us.
    well: u64,
    kills: u64,
    /// Milliseconds between two appends of a worker, or two calls.
    gap_ms: u64,
    early: bool,
    /// Until then it has come so far, or fails.
    longest: Duration,
}

/// Longest life of a worker that will be killed, milliseconds.
const LIFE_MS: u64 = 400;
/// How many times slower a worker is that waits for git's rounds.
const SLOWER: u64 = 10;
/// What git does.
struct Call {
    name: &'static str,
    /// How rounds that end well are called in the totals.
    well: &'static str,
    args: &'static [&'static str],
}

const CALLS: &[Call] = &[
    Call { name: "gc", well: "gc well", args: &["gc", "-q", "--prune=now"] },
    Call { name: "prune", well: "prune well", args: &["prune", "--expire=now"] },
    Call {
        name: "commits",
        well: "commits well",
        args: &["commit", "-q", "--allow-empty", "-m", "ordinary"],
    },
    Call { name: "repack", well: "repack well", args: &["repack", "-adq"] },
    Call { name: "pack-refs", well: "pack-refs well", args: &["pack-refs", "--all"] },
];
/// Loops, each of one or several calls.
const LOOPS: &[&[usize]] = &[&[0, 2, 1, 2], &[3], &[4]];

/// Without kills.
pub(crate) fn beside_git(cx: &Cx) -> Outcome<Report> {
    let plan = Plan {
        workers: cx.pick(2, 4, 8),
        callers: 2,
        events: cx.pick(60, 800, 20_000),
        rounds: cx.pick(2, 15, 200),
        well: cx.pick(1, 3, 40),
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
        well: cx.pick(1, 2, 40),
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
    Plan {
        workers: 2,
        callers: 1,
        events: 10,
        rounds: 1,
        well: 0,
        kills,
        gap_ms: 0,
        early: true,
        longest,
    }
}

fn floor(mut report: Report, plan: &Plan) -> Outcome<Report> {
    report.require("acknowledged", plan.events);
    report.require("kills", plan.kills);
    for call in CALLS {
        report.require(call.name, plan.rounds);
        report.require(call.well, plan.well);
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
    /// Rounds of each call, and those that ended well.
    rounds: Vec<(AtomicU64, AtomicU64)>,
    /// What git said in the others.
    failed: Mutex<Vec<String>>,
    /// A planted fault came to be: an event is acknowledged, its worker dead, and it is not there.
    missed: AtomicBool,
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
        rounds: CALLS.iter().map(|_| Default::default()).collect(),
        failed: Mutex::default(),
        missed: AtomicBool::new(false),
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
            let done = self.repo.git_done(CALLS[*at].args)?;
            let (all, well) = &self.rounds[*at];
            all.fetch_add(1, Relaxed);
            if done.code == 0 {
                well.fetch_add(1, Relaxed);
            } else {
                self.failed.lock().unwrap_or_else(PoisonError::into_inner).push(done.err);
            }
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
            pass(Duration::from_millis(self.gap_ms()?));
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
                gap_ms: self.gap_ms()?,
                until: Some(self.flag.clone()),
                early: self.plan.early,
            };
            self.worker(&orders, &mut dice)?;
        }
        Ok(())
    }

    /// Workers and callers slow down while there are more events than rounds of git, each as a share of the plan: in a journal that
    /// grows without end each round takes longer than the one before.
    fn gap_ms(&self) -> Outcome<u64> {
        if self.plan.gap_ms == 0 {
            return Ok(0);
        }
        let rounds = self.rounds.iter().map(|(all, _)| all.load(Relaxed)).min().unwrap_or(0);
        let ahead = self.acknowledged()? * self.plan.rounds > rounds * self.plan.events;
        Ok(if ahead { self.plan.gap_ms * SLOWER } else { self.plan.gap_ms })
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
        if self.plan.early && self.is_missed(&orders.acks)? {
            self.missed.store(true, Relaxed);
        }
        Ok(())
    }

    /// True when it is certain that a dead worker's acknowledged event is not there: what is in the log counts.
    fn is_missed(&self, acks: &Path) -> Outcome<bool> {
        self.repo.tool(&["fsck", "--json"])?;
        let (acks, _) = audit::acks(acks)?;
        Ok(chain(self.repo).is_ok_and(|chain| lost(&chain, &acks).is_some()))
    }

    fn is_enough(&self) -> Outcome<Option<()>> {
        // Once somebody cannot go on there is nothing to wait for; a planted fault makes workers fail.
        let stuck = !self.plan.early
            && !self.found.lock().unwrap_or_else(PoisonError::into_inner).1.is_empty();
        let came = |(all, well): &(AtomicU64, AtomicU64)| {
            all.load(Relaxed) >= self.plan.rounds && well.load(Relaxed) >= self.plan.well
        };
        let rounds = self.rounds.iter().all(came);
        let missed = !self.plan.early || self.missed.load(Relaxed);
        let kills = self.kills.load(Relaxed) >= self.plan.kills;
        let enough =
            stuck || (rounds && kills && missed && self.acknowledged()? >= self.plan.events);
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
        for (call, (all, well)) in CALLS.iter().zip(&self.rounds) {
            report.count(call.name, all.load(Relaxed));
            report.count(call.well, well.load(Relaxed));
        }
        let failed = self.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let ours = events(self.repo)?;
        let of_ours = failed.iter().filter(|said| names_one_of(said, &ours)).count();
        report.count("failed for want of an event", of_ours as u64);
        report.count("failed otherwise", (failed.len() - of_ours) as u64);
        report.count("told late", told.len() as u64);
        Ok(report)
    }
}

/// Every object of the journals.
fn events(repo: &Repo<'_>) -> Outcome<HashSet<String>> {
    let args = ["rev-list", "--objects", "--no-object-names", "--glob=refs/agentproto/*"];
    Ok(repo.git(&args)?.lines().map(str::to_owned).collect())
}

/// True when git told of one of these objects.
fn names_one_of(said: &str, objects: &HashSet<String>) -> bool {
    said.split(|c: char| !c.is_ascii_hexdigit()).any(|word| objects.contains(word))
}

fn lines_below(dir: &Path) -> Outcome<u64> {
    let (acks, _) = audit::acks(dir)?;
    Ok(acks.len() as u64)
}

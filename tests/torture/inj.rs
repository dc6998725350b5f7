//! A kill at every single system call of an append, a batch, a checkpoint and a merge, and of real commands.
//!
//! Contract: every state begins from the same machine, put back from a shelf. Two forms: the n-th of all calls that
//! change files, and the n-th of one kind of call, those that only look among them. After each: recovery, chain,
//! acknowledgements, locks, temporary files, a ref of git's and the next call. The short floor takes an even sample,
//! drawn by the seed, of what the long floor runs whole.

use crate::{
    audit::{Ack, acks, judge, leftovers},
    commands::{self, Scenario},
    kill::{HEAVY, command},
    lab::{Dice, Lab, Repo, run as run_to_end},
    report::{Cx, Floor, Report},
    scribe::Outcome,
    trace::{KINDS, MUTATING, calls, killed_at, unusable},
    worker::Orders,
};
use std::{
    collections::BTreeSet,
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// Events of the prepared repository beside those that bring it near a checkpoint.
const HISTORY: u64 = 41;
/// Appends within which a checkpoint, and a merge, is to be seen.
const MOST_APPENDS: u64 = 48;
/// Machines that are tried upon at the same time.
const HANDS: usize = 2;
/// Name of the shelf all others are made from.
const PLAIN: &str = "plain";
/// Places of all scenarios together that a floor takes at most.
type Most = u64;

/// The suite over the worker.
pub(crate) fn of_worker(cx: &Cx) -> Outcome<Report> {
    // Coming near a checkpoint and a merge takes longer than the brief floor has.
    let prepare: Prepare = if cx.floor == Floor::Brief { appends } else { of_the_worker };
    let mut report = at_places(cx, prepare, cx.pick(6, 150, 1_500))?;
    if report.skipped.is_none() {
        report.require("states", cx.pick(6, 140, 500));
    }
    Ok(report)
}

/// The suite over the tool's own commands.
pub(crate) fn of_commands(cx: &Cx) -> Outcome<Report> {
    let mut report = at_places(cx, commands::scenarios, cx.pick(6, 180, 3_000))?;
    if report.skipped.is_none() {
        report.require("states", cx.pick(6, 160, 2_500));
    }
    Ok(report)
}

/// A worker that answers too early.
pub(crate) fn planted(_cx: &Cx) -> Outcome<Report> {
    let lab = Lab::new()?;
    let mut report = Report::default();
    let plain = prepared(&lab)?;
    let early = Orders { early: true, ..orders(&plain, 3, 1, 0) };
    let scenario = Scenario::worker("planted", PLAIN, early);
    // Killed where it asks for the lock: it has spoken, and nothing of its event is in the log yet. Later it would
    // be too late for this fault: what was written outlives a kill, synced or not.
    for n in 2..5 {
        at(&scenario, &plain, Place { scenario: 0, kind: "flock", n }, &mut report);
    }
    Ok(report)
}

/// Makes the scenarios of a machine out of its plain shelf.
type Prepare = fn(&Repo<'_>, &str, &mut Report) -> Outcome<Vec<Scenario>>;

fn appends(plain: &Repo<'_>, shelf: &str, _report: &mut Report) -> Outcome<Vec<Scenario>> {
    Ok(vec![
        Scenario::worker("append", shelf, orders(plain, 2, 1, 0)),
        Scenario::worker("batch", shelf, orders(plain, 1, 6, 0)),
    ])
}

fn of_the_worker(plain: &Repo<'_>, shelf: &str, report: &mut Report) -> Outcome<Vec<Scenario>> {
    let mut scenarios = appends(plain, shelf, report)?;
    if before(plain, "checkpoint", HEAVY, |old, new| new.difference(old).next().is_some())? {
        scenarios.push(Scenario::worker("checkpoint", "checkpoint", orders(plain, 1, 1, HEAVY)));
    } else {
        report.problem("", "no checkpoint was seen");
    }
    if before(plain, "merge", HEAVY * 6, |old, new| old.difference(new).next().is_some())? {
        scenarios.push(Scenario::worker("merge", "merge", orders(plain, 1, 1, HEAVY * 6)));
    } else {
        report.problem("", "no merge was seen");
    }
    Ok(scenarios)
}

/// A repository with a history, and the shelf it is put back from.
fn prepared(lab: &Lab) -> Outcome<Repo<'_>> {
    let repo = lab.repo()?;
    run_to_end(command(&repo, &orders(&repo, HISTORY, 1, 0))?)?.text()?;
    repo.shelve(PLAIN)?;
    Ok(repo)
}

fn orders(repo: &Repo<'_>, count: u64, batch: u64, pad: usize) -> Orders {
    Orders {
        session: repo.session.clone(),
        name: "w".to_owned(),
        acks: repo.acks().join("w"),
        count,
        batch,
        pad,
        ..Orders::default()
    }
}

/// Shelves a machine whose next append of this weight does what `seen` tells by the packs before and after; false
/// when no append does.
fn before(
    repo: &Repo<'_>,
    shelf: &str,
    pad: usize,
    seen: impl Fn(&BTreeSet<String>, &BTreeSet<String>) -> bool,
) -> Outcome<bool> {
    let write = |count| run_to_end(command(repo, &orders(repo, count, 1, pad))?)?.text();
    repo.unshelve(PLAIN)?;
    let mut old = packs(repo)?;
    for done in 0..MOST_APPENDS {
        write(1)?;
        let new = packs(repo)?;
        if seen(&old, &new) {
            repo.unshelve(PLAIN)?;
            if done > 0 {
                write(done)?;
            }
            repo.shelve(shelf)?;
            return Ok(true);
        }
        old = new;
    }
    Ok(false)
}

fn packs(repo: &Repo<'_>) -> Outcome<BTreeSet<String>> {
    let names = fs::read_dir(repo.git_dir().join("objects/pack"))?;
    let names = names.map(|e| Ok(e?.file_name().to_string_lossy().into_owned()));
    let names: Outcome<Vec<String>> = names.collect();
    Ok(names?.into_iter().filter(|n| n.ends_with(".pack")).collect())
}

/// Where to kill.
#[derive(Clone, Copy)]
struct Place {
    scenario: usize,
    kind: &'static str,
    n: u64,
}

/// Tries all places on several machines at once: each makes its own scenarios, which are alike.
fn at_places(cx: &Cx, prepare: Prepare, most: Most) -> Outcome<Report> {
    let lab = Lab::new()?;
    if let Some(why) = unusable(&lab) {
        return Ok(Report::skipped(why));
    }
    let mut report = Report::default();
    let plain = prepared(&lab)?;
    let scenarios = prepare(&plain, PLAIN, &mut report)?;
    let places = sampled(cx, &plain, &scenarios, most, &mut report)?;
    let next = AtomicUsize::new(0);
    let found: Vec<Outcome<Report>> = thread::scope(|scope| {
        let hands = if cx.floor == Floor::Brief { 1 } else { HANDS };
        let others = (1..hands).map(|_| {
            scope.spawn(|| {
                let lab = Lab::new().map_err(|e| e.to_string())?;
                let mut report = Report::default();
                let plain = prepared(&lab).map_err(|e| e.to_string())?;
                let own = prepare(&plain, PLAIN, &mut report).map_err(|e| e.to_string())?;
                work_off(&own, &plain, &places, &next, &mut report);
                Ok::<_, String>(report)
            })
        });
        let others: Vec<_> = others.collect();
        work_off(&scenarios, &plain, &places, &next, &mut report);
        let joined = |hand: thread::ScopedJoinHandle<'_, Result<Report, String>>| {
            hand.join().map_err(|_| "a hand of the suite panicked")?.map_err(Into::into)
        };
        others.into_iter().map(joined).collect()
    });
    found.into_iter().try_for_each(|other| other.map(|other| report.add(other)))?;
    Ok(report)
}

fn work_off(
    scenarios: &[Scenario],
    repo: &Repo<'_>,
    places: &[Place],
    next: &AtomicUsize,
    report: &mut Report,
) {
    while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
        at(&scenarios[place.scenario], repo, *place, report);
    }
}

/// All places of all scenarios, or as many of them as asked for.
fn sampled(
    cx: &Cx,
    repo: &Repo<'_>,
    scenarios: &[Scenario],
    most: Most,
    report: &mut Report,
) -> Outcome<Vec<Place>> {
    let mut all: Vec<Vec<Place>> = Vec::new();
    for (scenario, what) in scenarios.iter().enumerate() {
        repo.unshelve(&what.shelf)?;
        let kinds: Vec<&'static str> =
            [MUTATING].into_iter().chain(KINDS.iter().copied()).collect();
        let (found, done) = calls(repo.lab, &what.command(repo)?, &kinds)?;
        if done.code != 0 {
            return Err(format!("{} fails without any kill: {done}", what.name).into());
        }
        let numbers = kinds.into_iter().zip(found);
        let each = numbers.flat_map(|(kind, all)| (1..=all).map(move |n| (kind, n)));
        let places: Vec<Place> = each.map(|(kind, n)| Place { scenario, kind, n }).collect();
        report.count("places", places.len() as u64);
        all.push(places);
    }
    let mut dice = Dice::new(cx.seed);
    let each = most / scenarios.len().max(1) as u64;
    Ok(all.into_iter().flat_map(|places| evenly(&places, each, &mut dice)).collect())
}

/// Every k-th of a list, beginning anywhere.
fn evenly(places: &[Place], most: Most, dice: &mut Dice) -> Vec<Place> {
    let all = places.len() as u64;
    let offset = dice.roll(all);
    let taken = most.min(all);
    let at = |i: u64| usize::try_from((offset + i * all / taken) % all).unwrap_or_default();
    (0..taken).map(|i| places[at(i)]).collect()
}

/// Kills at one place of one scenario and judges what is left.
fn at(what: &Scenario, repo: &Repo<'_>, place: Place, report: &mut Report) {
    let kind = if place.kind == MUTATING { "any" } else { place.kind };
    let name = format!("{} {kind}#{}", what.name, place.n);
    report.count("states", 1);
    if let Err(e) = killed_and_judged(what, repo, place, &name, report) {
        report.problem(&name, &e.to_string());
    }
}

fn killed_and_judged(
    what: &Scenario,
    repo: &Repo<'_>,
    place: Place,
    name: &str,
    report: &mut Report,
) -> Outcome {
    repo.unshelve(&what.shelf)?;
    let log = repo.lab.path("strace");
    let command = what.command(repo)?;
    let (done, killed) = killed_at(repo.lab, &command, &log, (place.kind, place.n))?;
    report.count("killed", u64::from(killed));
    report.count("left by the dead", leftovers(repo)?.len() as u64);
    let mut repo = repo.clone();
    (what.carry_on)(&mut repo, &done)?.iter().for_each(|p| report.problem(name, p));
    let (mut acked, _) = acks(&repo.acks())?;
    let cursor = done.json().ok().and_then(|v| Some(v["cursor"].as_str()?.to_owned()));
    acked.extend(cursor.map(|id| Ack { actor: None, id: Some(id) }));
    judge(&repo, &acked)?.problems.iter().for_each(|p| report.problem(name, p));
    Ok(())
}

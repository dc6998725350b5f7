//! `kill -9` of one worker at random moments, a look after each, the whole judged now and then.
//!
//! Contract: a look by the tool (any command that opens the store) is enough to leave no lock and no temporary file;
//! after every second kill it is the next worker that has to do it.

use crate::{
    audit::{self, judge, leftovers},
    lab::{Dice, Lab, Repo, finish, pass, told, wait_for},
    report::{Cx, Report},
    scribe::Outcome,
    worker::Orders,
};
use git_agentproto::limits;
use std::{
    process::Command,
    time::{Duration, Instant},
};

/// Kills in one repository, then a fresh one: a journal that grows makes every judgement slower.
const KILLS_PER_REPO: u64 = 60;
/// Kills between two judgements.
const KILLS_PER_JUDGEMENT: u64 = 20;
/// Longest life of a worker after its first acknowledgement, milliseconds.
const LIFE_MS: u64 = 60;
/// Until a worker has to acknowledge its first event.
const PATIENCE: Duration = Duration::from_secs(60);
/// Ballast that makes the log full after 16 events.
pub(crate) const HEAVY: usize = (limits::CHECKPOINT_BYTES / 16) as usize;

/// The suite.
pub(crate) fn run(cx: &Cx) -> Outcome<Report> {
    let rounds = cx.pick(8, 60, 720);
    let mut report = kills(cx.seed, rounds, false)?;
    report.require("kills", rounds);
    report.require("acknowledged", rounds);
    Ok(report)
}

/// The suite over workers that answer too early, again until a kill fell between answer and event: on a busy machine
/// the first few may all fall elsewhere.
pub(crate) fn planted(cx: &Cx) -> Outcome<Report> {
    let end = Instant::now() + PATIENCE;
    let mut seed = cx.seed;
    loop {
        let report = kills(seed, 6, true)?;
        if report.problems.iter().any(|p| p.starts_with("lost ")) || Instant::now() > end {
            return Ok(report);
        }
        seed = seed.wrapping_add(1);
    }
}

fn kills(seed: u64, rounds: u64, early: bool) -> Outcome<Report> {
    let mut dice = Dice::new(seed);
    let mut report = Report::default();
    let mut left = rounds;
    while left > 0 {
        let here = left.min(KILLS_PER_REPO);
        let lab = Lab::new()?;
        in_repo(&lab.repo()?, here, early, &mut dice, &mut report)?;
        left -= here;
    }
    Ok(report)
}

fn in_repo(
    repo: &Repo<'_>,
    kills: u64,
    early: bool,
    dice: &mut Dice,
    report: &mut Report,
) -> Outcome {
    for round in 1..=kills {
        let place = format!("kill {round}");
        let orders = Orders {
            session: repo.session.clone(),
            name: format!("k{round}"),
            acks: repo.acks().join(round.to_string()),
            batch: if round % 4 == 0 { 5 } else { 1 },
            pad: if round % 3 == 0 { 0 } else { HEAVY },
            early,
            ..Orders::default()
        };
        kill_one(repo, &orders, dice, report)?;
        report.count("left by the dead", leftovers(repo)?.len() as u64);
        if round % 2 == 0 {
            let look = repo.tool(&["events", "--since", "tip", "--json"])?;
            if look.code != 0 {
                report.problem(&place, &format!("a look fails: {look}"));
            }
            leftovers(repo)?.iter().for_each(|left| report.problem(&place, left));
        }
        if round % KILLS_PER_JUDGEMENT == 0 || round == kills {
            let (acked, told) = audit::acks(&repo.acks())?;
            let verdict = judge(repo, &acked)?;
            verdict.problems.iter().for_each(|p| report.problem(&place, p));
            if round == kills {
                report.count("events", verdict.events);
                report.count("acknowledged", verdict.acked);
                report.count("told late", told.len() as u64);
            }
        }
    }
    Ok(())
}

/// Starts a worker and kills it some time after its first acknowledgement, or rarely before.
fn kill_one(repo: &Repo<'_>, orders: &Orders, dice: &mut Dice, report: &mut Report) -> Outcome {
    let mut command = command(repo, orders)?;
    let told = told(&command);
    let mut child = command.spawn()?;
    if dice.roll(8) > 0 {
        wait_for("a first acknowledgement", PATIENCE, || {
            Ok((orders.acks.exists() || child.try_wait()?.is_some()).then_some(()))
        })?;
    }
    pass(dice.moment(LIFE_MS));
    child.kill()?;
    let ended = finish(child, told)?;
    if ended.code == 128 + 9 {
        report.count("kills", 1);
    } else {
        report.problem(&orders.name, &format!("the worker ended by itself: {ended}"));
    }
    Ok(())
}

/// A worker about to be started.
pub(crate) fn command(repo: &Repo<'_>, orders: &Orders) -> Outcome<Command> {
    let own = std::env::current_exe()?;
    let own = own.to_str().ok_or("this program has a strange path")?;
    let mut args = vec!["--worker".to_owned()];
    args.extend(orders.to_args());
    Ok(repo.lab.command(own, &repo.dir, &args))
}

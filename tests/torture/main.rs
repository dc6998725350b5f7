//! Torture of the store: the real binary and a real worker, real git beside them, `kill -9`, power cuts.
//!
//! Usage: `AGENTPROTO_FLOOR=short|long cargo test --release --test torture [-- SUITE…]`. Without the variable each
//! suite runs just long enough to show that it still works; `AGENTPROTO_SEED` replaces the seed.
//!
//! Contract: the same code and seeds on every floor. A suite prints seed and totals, fails below its floor, and then
//! runs once more with a planted fault that it must catch. What cannot run on a machine is SKIPPED by name, never
//! held; on a floor that was asked for, only power cuts may be skipped. The worker is this program started again.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program of its own: this is its answer"
)]
#![expect(clippy::disallowed_methods, reason = "tests look at the world as it is")]

mod audit;
mod commands;
mod conc;
mod inj;
mod kill;
mod lab;
mod power;
mod prune;
mod report;
mod scribe;
mod trace;
mod worker;
mod worst;

use report::{Cx, Floor, Report};
use scribe::Outcome;
use std::{process::ExitCode, time::Instant};

/// One suite: what it does, and the same with a planted fault.
struct Suite {
    name: &'static str,
    run: Run,
    /// The fault in words, and the run that must catch it.
    planted: (&'static str, Run),
    /// May be skipped on a floor that was asked for.
    optional: bool,
}

const EARLY: &str = "acknowledged before it was appended";
const NO_LOG: &str = "the log dropped before anybody looks";
const NO_SYNC: &str = "a sync that only says so";

const SUITES: &[Suite] = &[
    suite("inj", inj::of_worker, (EARLY, inj::planted)),
    suite("injcli", inj::of_commands, (EARLY, inj::planted)),
    suite("prune", prune::run, (NO_LOG, prune::planted)),
    suite("worst", worst::run, (NO_LOG, worst::planted)),
    suite("kill", kill::run, (EARLY, kill::planted)),
    suite("conc", conc::beside_git, (EARLY, conc::planted)),
    suite("killgc", conc::kills_beside_git, (EARLY, conc::planted_kills)),
    Suite { optional: true, ..suite("power", power::run, (NO_SYNC, power::planted)) },
];

type Run = fn(&Cx) -> Outcome<Report>;

const fn suite(name: &'static str, run: Run, planted: (&'static str, Run)) -> Suite {
    Suite { name, run, planted, optional: false }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--worker") {
        return match worker::run(&args[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    let wanted: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
    let chosen = |suite: &&Suite| wanted.is_empty() || wanted.iter().any(|w| *w == suite.name);
    let chosen: Vec<&Suite> = SUITES.iter().filter(chosen).collect();
    if args.iter().any(|a| a == "--list") {
        chosen.iter().for_each(|suite| println!("{}: test", suite.name));
        return ExitCode::SUCCESS;
    }
    torture(&chosen)
}

fn torture(suites: &[&Suite]) -> ExitCode {
    let cx = match Cx::read() {
        Ok(cx) => cx,
        Err(e) => {
            eprintln!("torture: {e}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    let mut skipped = 0;
    for suite in suites {
        match one(suite, &cx) {
            End::Held => {}
            End::Skipped => skipped += 1,
            End::Failed => failed += 1,
        }
    }
    let held = suites.len() - failed - skipped;
    println!("torture: floor {:?}: {held} held, {failed} FAILED, {skipped} SKIPPED", cx.floor);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

enum End {
    Held,
    Skipped,
    Failed,
}

fn one(suite: &Suite, cx: &Cx) -> End {
    let begin = Instant::now();
    let ran = (suite.run)(cx);
    let took = begin.elapsed().as_secs_f64();
    let report = match ran {
        Ok(report) => report,
        Err(e) => {
            println!("{}: FAILED after {took:.1} s: {e}", suite.name);
            return End::Failed;
        }
    };
    if let Some(why) = &report.skipped {
        println!("{}: SKIPPED: {why}", suite.name);
        let asked = cx.floor != Floor::Brief;
        return if asked && !suite.optional { End::Failed } else { End::Skipped };
    }
    println!("{}: {took:.1} s, seed {:#x}: {}", suite.name, cx.seed, report.totals());
    for problem in report.problems.iter().take(report::SHOWN) {
        println!("{}: PROBLEM: {problem}", suite.name);
    }
    if !report.problems.is_empty() {
        println!("{}: FAILED with {} problems", suite.name, report.problems.len());
        return End::Failed;
    }
    let (fault, planted) = suite.planted;
    match planted(cx).map(|report| report.problems.into_iter().find(|p| p.starts_with("lost "))) {
        Ok(Some(found)) => {
            println!("{}: planted fault, {fault}: CAUGHT: {found}", suite.name);
            End::Held
        }
        Ok(None) => {
            println!("{}: FAILED: planted fault, {fault}: not caught", suite.name);
            End::Failed
        }
        Err(e) => {
            println!("{}: FAILED: planted fault, {fault}: {e}", suite.name);
            End::Failed
        }
    }
}

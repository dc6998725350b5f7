//! Kills and errors at every call that changes something.

use super::{
    Totals, is_long,
    judge::{Before, Ended, Judge},
    sample,
    scenes::{Failed, Job, Said, Scene, Stage, open, scenes},
};
use crate::{
    store::testlab::TestRepo,
    sys::fault::{self, Ending, Kind, Made, Plant},
};
use std::panic::{AssertUnwindSafe, catch_unwind};

const ERRORS: [i32; 4] = [libc::EIO, libc::ENOSPC, libc::EACCES, libc::EMFILE];
/// States of a short run, for each scenario.
const STATES: usize = 22;
/// States that every run reaches; counted, then rounded down.
const FLOOR_SHORT: usize = 300;
const FLOOR_LONG: usize = 3_000;

/// One run of a scenario.
struct Run {
    said: Said,
    made: Vec<Made>,
    hit: bool,
    ended: Result<(), Failed>,
}

/// Runs a scenario in `repo`, ended as planned.
fn run(scene: &Scene, repo: &TestRepo, plan: Option<(Kind, usize, Ending)>) -> Run {
    let mut said = Said::default();
    fault::arm(plan);
    let done = catch_unwind(AssertUnwindSafe(|| {
        let store = open(repo)?;
        let mut job = Job::new(&store, repo);
        let done = (scene.act)(&mut job);
        said = std::mem::take(&mut job.said);
        done
    }));
    let report = fault::disarm();
    let ended = done.unwrap_or_else(|_| {
        Err(Failed { code: crate::code::Code::Internal, why: "a panic".to_owned() })
    });
    Run { said, made: report.made, hit: report.hit, ended }
}

/// Calls worth ending: of many alike in a row (a new log is filled with zeros) the first and the last.
fn places(made: &[Made], kind: Kind) -> Vec<(usize, Made)> {
    let of_kind: Vec<&Made> = made.iter().filter(|m| m.kind == kind).collect();
    let alike = |a: usize, b: usize| of_kind.get(a).is_some_and(|m| of_kind.get(b) == Some(m));
    let inner = |at: usize| at > 0 && alike(at, at - 1) && alike(at, at + 1);
    let outer = (0..of_kind.len()).filter(|at| !inner(*at));
    outer.map(|at| (at + 1, of_kind[at].clone())).collect()
}

fn endings(place: &Made) -> Vec<Ending> {
    let mut all = vec![Ending::KillBefore, Ending::KillAfter];
    all.extend(ERRORS.map(Ending::Error));
    if place.writes {
        all.extend([Ending::KillWithin, Ending::ErrorWithin(libc::ENOSPC)]);
    }
    all
}

fn is_kill(ending: Ending) -> bool {
    match ending {
        Ending::KillBefore | Ending::KillAfter | Ending::KillWithin => true,
        Ending::Error(_) | Ending::ErrorWithin(_) => false,
    }
}

/// How far a killed run came: calls done, counted double so that one cut short lies between.
fn depth(n: usize, ending: Ending) -> Option<usize> {
    match ending {
        Ending::KillBefore => Some(2 * n),
        Ending::KillWithin => Some(2 * n + 1),
        Ending::KillAfter => Some(2 * n + 2),
        Ending::Error(_) | Ending::ErrorWithin(_) => None,
    }
}

/// One ended run, judged; how many batches were there, if that can be said.
fn visit(
    judge: &mut Judge,
    scene: &Scene,
    stage: &Stage,
    before: &Before,
    plan: (Kind, usize, Ending, &Made),
) -> Option<usize> {
    let (kind, n, ending, place) = plan;
    let what = format!("{}, {kind:?} call {n} ({}), {ending:?}", scene.name, place.what);
    let repo = stage.fresh();
    let run = run(scene, repo, Some((kind, n, ending)));
    judge.totals.visited(scene.name);
    let mut differ = |why: String| judge.totals.differences.push(format!("{what}: {why}"));
    if !run.hit {
        differ("was not reached".to_owned());
        return None;
    }
    if let Err(failed) = &run.ended
        && !is_kill(ending)
        && failed.code == crate::code::Code::Internal
    {
        differ(format!("answered {:?}: {}", failed.code, failed.why));
    }
    let ended = if is_kill(ending) { Ended::Dead } else { Ended::Told };
    judge.look(repo, before, &run.said, ended, &what)
}

/// Everything, or a sample of it, in one scenario.
fn sweep(judge: &mut Judge, scene: &Scene, most: usize) {
    let stage = Stage::new(scene);
    let before = Before::of(&stage.repo);
    let clean = run(scene, stage.fresh(), None);
    assert!(clean.ended.is_ok(), "{}: {:?}", scene.name, clean.ended);
    let mut plans = Vec::new();
    for (n, place) in places(&clean.made, Kind::Mutating) {
        plans.extend(endings(&place).into_iter().map(|e| (Kind::Mutating, n, e, place.clone())));
    }
    for (n, place) in places(&clean.made, Kind::Reading) {
        let errors = [libc::EIO, libc::EMFILE].map(Ending::Error);
        plans.extend(errors.map(|e| (Kind::Reading, n, e, place.clone())));
    }
    let salt = scene.name.len() as u64;
    let mut came = Vec::new();
    for (kind, n, ending, place) in
        sample(plans, most, salt, |(kind, _, ending, _)| (*kind, *ending))
    {
        let there = visit(judge, scene, &stage, &before, (kind, n, ending, &place));
        came.extend(depth(n, ending).zip(there));
    }
    came.sort_unstable();
    // One call makes a batch durable: from there on it is there, before it is not.
    if !came.is_sorted_by_key(|(_, there)| *there) {
        judge.totals.differences.push(format!("{}: now there, now not: {came:?}", scene.name));
    }
}

#[test]
fn after_a_kill_or_an_error_at_any_call_nothing_is_lost_and_the_work_goes_on() {
    let mut judge = Judge::default();
    for scene in scenes() {
        sweep(&mut judge, &scene, STATES);
    }
    judge.totals.report("crash sweep", if is_long() { FLOOR_LONG } else { FLOOR_SHORT });
}

#[test]
fn a_group_is_one_frame_of_several_threads() {
    let scene = scenes().into_iter().find(|s| s.name == "group").unwrap();
    let stage = Stage::new(&scene);
    let frames = || open(&stage.repo).unwrap().with_wal(|w| w.unwrap().frames()).unwrap();
    let before = frames().len();
    assert!(run(&scene, &stage.repo, None).ended.is_ok());
    assert_eq!(frames()[before..].iter().map(|f| f.step.entries).collect::<Vec<_>>(), [5]);
}

/// The sweep itself, broken: a log that does not get its frames must be noticed, whoever appends.
#[test]
fn a_log_without_its_frames_is_caught() {
    for name in ["append", "group", "reftable: group"] {
        let scene = scenes().into_iter().find(|s| s.name == name).unwrap();
        assert_caught_without_frames(&scene);
    }
}

fn assert_caught_without_frames(scene: &Scene) {
    let mut totals = Totals::default();
    let stage = Stage::new(scene);
    let before = Before::of(&stage.repo);
    for n in 1..60 {
        let repo = stage.fresh();
        fault::plant(Some(Plant::LostWrites("wal")));
        let run = run(scene, repo, Some((Kind::Mutating, n, Ending::KillBefore)));
        fault::plant(None);
        let mut judge = Judge::default();
        judge.look(repo, &before, &run.said, Ended::Dead, "planted");
        totals.differences.extend(judge.totals.differences);
        if !totals.differences.is_empty() {
            return;
        }
    }
    panic!("{}: a log that loses its frames went unnoticed", scene.name);
}

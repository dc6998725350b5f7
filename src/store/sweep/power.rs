//! Power cuts: the worst that may be left on disk at every call.

use super::{
    is_long,
    judge::{Before, Ended, Judge},
    sample,
    scenes::{Job, Said, Scene, Stage, open, scenes},
};
use crate::{
    store::testlab::TestRepo,
    sys::fault::{
        self, Ending, Kind, Plant,
        disk::{Bytes, Cut, Disk, Names, quick_dir},
    },
};

/// States of a short run, for each scenario.
const STATES: usize = 12;
/// States that every run reaches; counted, then rounded down.
const FLOOR_SHORT: usize = 160;
const FLOOR_LONG: usize = 2_000;

const CUTS: [(Names, Bytes); 6] = [
    (Names::Lost, Bytes::Old),
    (Names::Kept, Bytes::Old),
    (Names::Kept, Bytes::Zero),
    (Names::Kept, Bytes::Torn),
    (Names::Lost, Bytes::Torn),
    (Names::Mixed, Bytes::Mixed),
];

const BEFORE: &str = "boot-before-the-cut";
const AFTER: &str = "boot-after-the-cut";

/// Runs a scenario up to its `n`th change, all of it without one; what was said, what the disk promised, and
/// how many calls there were.
fn run(scene: &Scene, repo: &TestRepo, n: Option<usize>) -> (Said, Disk, usize) {
    fault::watch(repo.root());
    fault::arm(n.map(|n| (Kind::Mutating, n, Ending::KillBefore)));
    let mut said = Said::default();
    if let Ok(store) = open(repo) {
        let mut job = Job::new(&store, repo);
        // Where it ends is the point; what was acknowledged until then is noted.
        let _ = (scene.act)(&mut job);
        said = job.said;
    }
    let made = fault::disarm().made.iter().filter(|m| m.kind == Kind::Mutating).count();
    (said, fault::unwatch().unwrap(), made)
}

fn sweep(judge: &mut Judge, scene: &Scene, most: usize) {
    fault::set_boot(Some(BEFORE));
    let stage = Stage::new(scene);
    let before = Before::of(&stage.repo);
    let (_, _, calls) = run(scene, stage.fresh(), None);
    // After the last call, too: what is acknowledged by then must stay.
    let places: Vec<usize> = (1..=calls + 1).filter(|n| !is_filling(*n, calls)).collect();
    let cuts: Vec<(usize, (Names, Bytes))> =
        places.iter().flat_map(|n| CUTS.map(|cut| (*n, cut))).collect();
    let salt = scene.name.len() as u64;
    for (n, (names, bytes)) in sample(cuts, most, salt, |(_, cut)| *cut) {
        if judge.has_enough() {
            break;
        }
        let (said, disk, _) = run(scene, stage.fresh(), Some(n));
        let left = quick_dir();
        let cut = Cut { names, bytes, seed: n as u64 };
        disk.rebuild(left.path(), cut);
        judge.totals.visited(scene.name);
        let what = format!("{}, before call {n}, {cut:?}", scene.name);
        fault::set_boot(Some(AFTER));
        judge.look(stage.left_as(left.path()), &before, &said, Ended::Dark, &what);
        fault::set_boot(Some(BEFORE));
    }
    fault::set_boot(None);
}

/// A new log is filled with zeros by many calls alike: of those one in a hundred.
fn is_filling(n: usize, calls: usize) -> bool {
    calls > 500 && n > 40 && n < calls - 40 && !n.is_multiple_of(100)
}

#[test]
fn after_a_power_cut_at_any_call_what_was_acknowledged_is_there() {
    let mut judge = Judge::default();
    for scene in scenes() {
        sweep(&mut judge, &scene, STATES);
    }
    judge.totals.report("power cuts", if is_long() { FLOOR_LONG } else { FLOOR_SHORT });
}

/// The sweep itself, broken: disks that lie about fdatasync, or about fsync, must be noticed.
#[test]
fn a_sync_that_does_nothing_is_caught() {
    for (plant, name) in [
        (Plant::IdleSyncData, "append"),
        (Plant::IdleSyncData, "group"),
        (Plant::IdleSyncData, "reftable: group"),
        (Plant::IdleSync, "checkpoint"),
    ] {
        let mut judge = Judge { one_is_enough: true, ..Judge::default() };
        let scene = scenes().into_iter().find(|s| s.name == name).unwrap();
        fault::plant(Some(plant));
        sweep(&mut judge, &scene, 60);
        fault::plant(None);
        assert!(!judge.totals.differences.is_empty(), "{name}: {plant:?} went unnoticed");
    }
}

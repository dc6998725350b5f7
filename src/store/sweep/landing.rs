//! Landing under kills, errors and power cuts.

use super::{Totals, is_long, sample};
use crate::{
    store::{
        landing::{LandError, Landed, land},
        testing::{Ready, Repo},
    },
    sys::fault::{
        self, Ending, Kind, Made, Plant, Report,
        disk::{Bytes, Cut, Names},
    },
};

const STATES: usize = 30;
const FLOOR_SHORT: usize = 60;
const FLOOR_LONG: usize = 250;

/// As the events before every landing have left it.
fn with_events(site: Ready) -> Ready {
    std::fs::create_dir_all(site.repo.path(".git/agentproto/tmp")).unwrap();
    site
}

impl Ready {
    fn land_in(&self, repo: &Repo) -> Result<Landed, LandError> {
        self.with_landing(repo, |ctx| land(ctx, &[repo.worktree()]))
    }

    fn ended(&self, repo: &Repo, plan: (Kind, usize, Ending)) -> (bool, Report) {
        fault::arm(Some(plan));
        let landed = self.land_in(repo);
        let report = fault::disarm();
        (matches!(landed, Ok(Landed::Done)), report)
    }

    /// Somebody lands again; then everything is as after one landing without trouble.
    fn judge(&self, repo: &Repo, acked: bool, totals: &mut Totals, what: &str) {
        let mut differ = |why: String| totals.differences.push(format!("{what}: {why}"));
        let at = repo.oid(self.branch);
        if acked && at != self.candidate {
            differ("the branch is not where it was said to be".to_owned());
        }
        match self.land_in(repo) {
            Ok(Landed::Done) => {}
            other => return differ(format!("landing again: {other:?}")),
        }
        let branch = repo.oid(self.branch);
        let status = repo.git(&["status", "--porcelain", "-uall"]);
        if branch != self.candidate || status != "A  theirs\n" {
            differ(format!("branch {branch}, status {status:?}"));
        }
        let tmp = std::fs::read_dir(repo.path(".git/agentproto/tmp"));
        let left: Vec<_> = tmp.into_iter().flatten().map(|e| e.unwrap().path()).collect();
        if !left.is_empty() || repo.path(".git/index.lock").exists() {
            differ(format!("left over: {left:?}"));
        }
    }
}

fn endings(made: &[Made]) -> Vec<(usize, Ending)> {
    let changes = made.iter().filter(|m| m.kind == Kind::Mutating).enumerate();
    let of = |(at, made): (usize, &Made)| {
        let mut all = vec![Ending::KillBefore, Ending::KillAfter];
        all.extend([libc::EIO, libc::ENOSPC, libc::EACCES, libc::EMFILE].map(Ending::Error));
        all.extend(made.writes.then_some(Ending::KillWithin));
        all.into_iter().map(move |ending| (at + 1, ending)).collect::<Vec<_>>()
    };
    changes.flat_map(of).collect()
}

fn changes(site: &Ready) -> Vec<Made> {
    fault::arm(None);
    assert!(matches!(site.land_in(&site.repo.copied()), Ok(Landed::Done)));
    fault::disarm().made
}

#[test]
fn after_a_kill_or_an_error_at_any_call_landing_again_ends_as_without() {
    hurt(&with_events(Ready::new()), "landing");
}

#[test]
fn on_a_head_without_a_branch_landing_again_ends_as_without() {
    hurt(&with_events(Ready::detached()), "landing on HEAD");
}

fn hurt(site: &Ready, name: &str) {
    let mut totals = Totals::default();
    for (n, ending) in sample(endings(&changes(site)), STATES, 7, |(_, ending)| *ending) {
        let repo = site.repo.copied();
        let (acked, report) = site.ended(&repo, (Kind::Mutating, n, ending));
        let call = report.made.iter().rfind(|m| m.kind == Kind::Mutating);
        totals.visited("kill or error");
        let what = format!("landing, call {n} ({:?}), {ending:?}", call.map(|c| &c.what));
        site.judge(&repo, acked, &mut totals, &what);
    }
    for way in sample(ways(site), STATES, 11, |(_, way)| *way) {
        let (repo, acked, what) = cut(site, way);
        totals.visited("power cut");
        site.judge(&repo, acked, &mut totals, &what);
    }
    totals.report(name, if is_long() { FLOOR_LONG } else { FLOOR_SHORT });
}

/// Before which call, and what becomes of what was not synced.
type Way = (usize, (Names, Bytes));

/// Before each call and after the last.
fn ways(site: &Ready) -> Vec<Way> {
    let calls = changes(site).iter().filter(|m| m.kind == Kind::Mutating).count();
    let ways = [
        (Names::Lost, Bytes::Old),
        (Names::Kept, Bytes::Zero),
        (Names::Kept, Bytes::Torn),
        (Names::Mixed, Bytes::Mixed),
    ];
    (1..=calls + 1).flat_map(|n| ways.map(|way| (n, way))).collect()
}

/// What the power cut leaves, and whether the landing had been acknowledged.
fn cut(site: &Ready, (n, (names, bytes)): Way) -> (Repo, bool, String) {
    let repo = site.repo.copied();
    fault::watch(repo.home());
    let (acked, _) = site.ended(&repo, (Kind::Mutating, n, Ending::KillBefore));
    let disk = fault::unwatch().unwrap();
    let left = Repo::empty();
    let cut = Cut { names, bytes, seed: n as u64 };
    disk.rebuild(left.home(), cut);
    (left, acked, format!("landing, before call {n}, {cut:?}"))
}

/// The sweep itself, broken: an index that is never made durable must be noticed.
#[test]
fn an_index_that_is_not_synced_is_caught() {
    let site = with_events(Ready::new());
    let mut totals = Totals::default();
    for way in ways(&site) {
        fault::plant(Some(Plant::IdleSync));
        let (repo, acked, what) = cut(&site, way);
        fault::plant(None);
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            site.judge(&repo, acked, &mut totals, &what);
        }));
        if judged.is_err() || !totals.differences.is_empty() {
            return;
        }
    }
    panic!("an index without fsync went unnoticed");
}

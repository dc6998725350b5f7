//! Landing under kills, errors and power cuts.

use super::{Totals, is_long, sample};
use crate::{
    domain::{oid::Oid, path::RepoPath, time::Timestamp},
    store::{
        candidate::{Listed, commit_object},
        identity::identity,
        landing::{LandCtx, LandError, Landed, land},
        testing::{Repo, path},
    },
    sys::fault::{
        self, Ending, Kind, Made, Plant, Report,
        disk::{Bytes, Cut, Names},
    },
};

const POLICY: &str = "pol_01arz3ndektsv4rrffq69g5fav";
const STATES: usize = 30;
const FLOOR_SHORT: usize = 60;
const FLOOR_LONG: usize = 250;

/// A candidate over `HEAD`, stored and ready to land; `theirs` is staged by somebody else.
struct Site {
    repo: Repo,
    parent: Oid,
    candidate: Oid,
    listed: Vec<Listed>,
    branch: &'static str,
}

impl Site {
    fn new() -> Self {
        let repo = Repo::new();
        repo.git(&["config", "user.name", "Tess Tester"]);
        repo.git(&["config", "user.email", "tess@example.invalid"]);
        repo.write("gone", b"1\n");
        repo.commit_file("a", b"1\n");
        repo.write("theirs", b"t\n");
        repo.git(&["add", "theirs"]);
        repo.write("a", b"2\n");
        std::fs::remove_file(repo.path("gone")).unwrap();
        repo.write("new/n", b"2\n");
        // As the events before every landing have left it.
        std::fs::create_dir_all(repo.path(".git/agentproto/tmp")).unwrap();
        let paths: Vec<RepoPath> = ["a", "gone", "new/n"].map(path).to_vec();
        let fixed = repo.fix(&paths).unwrap();
        let who = identity(&repo.gix()).unwrap();
        let at = Timestamp::from_ms(1_700_000_100_000);
        let parent = repo.oid("HEAD");
        let commit = commit_object(fixed.tree, parent, &who, at, b"governed\n").unwrap();
        repo.store(&fixed.objects);
        repo.store(std::slice::from_ref(&commit));
        let branch = "refs/heads/main";
        Self { repo, parent, candidate: commit.id, listed: fixed.listed, branch }
    }

    /// The same on a `HEAD` that is on no branch.
    fn detached() -> Self {
        let site = Self::new();
        site.repo.git(&["checkout", "-q", "--detach"]);
        Self { branch: "main-worktree/HEAD", ..site }
    }

    fn land(&self, repo: &Repo) -> Result<Landed, LandError> {
        let gix = repo.gix();
        let ctx = LandCtx {
            repo: &gix,
            git: &|worktree| Ok(repo.program_at(worktree)),
            agent_dir: &repo.path(".git/agentproto"),
            name: POLICY,
            reflog: "agentproto: landed",
            branch: self.branch,
            parent: self.parent,
            candidate: self.candidate,
            listed: &self.listed,
            lock_wait_ms: 50,
        };
        land(ctx, &[repo.worktree()])
    }

    fn ended(&self, repo: &Repo, plan: (Kind, usize, Ending)) -> (bool, Report) {
        fault::arm(Some(plan));
        let landed = self.land(repo);
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
        match self.land(repo) {
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

fn changes(site: &Site) -> Vec<Made> {
    fault::arm(None);
    assert!(matches!(site.land(&site.repo.copied()), Ok(Landed::Done)));
    fault::disarm().made
}

#[test]
fn after_a_kill_or_an_error_at_any_call_landing_again_ends_as_without() {
    hurt(&Site::new(), "landing");
}

#[test]
fn on_a_head_without_a_branch_landing_again_ends_as_without() {
    hurt(&Site::detached(), "landing on HEAD");
}

fn hurt(site: &Site, name: &str) {
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
fn ways(site: &Site) -> Vec<Way> {
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
fn cut(site: &Site, (n, (names, bytes)): Way) -> (Repo, bool, String) {
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
    let site = Site::new();
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

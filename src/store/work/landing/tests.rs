//! Landing in real repositories, with a kill after every step.

use super::*;
use crate::store::testing::{LANDING, Ready as Scene, Repo};
use std::panic::{AssertUnwindSafe, catch_unwind};

const STEPS: [Step; 9] = [
    Step::Settled,
    Step::Recorded,
    Step::Locked,
    Step::Prepared,
    Step::Swapped,
    Step::Moved,
    Step::Durable,
    Step::Installed,
    Step::Unlocked,
];

impl Scene {
    fn agent_dir(&self) -> PathBuf {
        self.repo.path(".git/agentproto")
    }

    fn land_watched(&self, at: &dyn Fn(Step)) -> Result<Landed, LandError> {
        self.with_landing(&self.repo, |ctx| land_watched(ctx, &self.worktrees, at))
    }

    fn land(&self) -> Landed {
        self.land_watched(&|_| {}).unwrap()
    }

    /// Runs until just after `step` and dies there; false = that step was not reached.
    fn killed_after(&self, step: Step) -> bool {
        let die = |at| assert_ne!(at, step, "killed");
        catch_unwind(AssertUnwindSafe(|| self.land_watched(&die))).is_err()
    }

    fn status(&self) -> String {
        self.repo.git(&["status", "--porcelain", "-uall"])
    }

    fn assert_landed(&self, why: &str) {
        assert_eq!(self.repo.oid("refs/heads/main"), self.candidate, "{why}");
        assert_eq!(self.status(), "A  theirs\n", "{why}");
        self.assert_nothing_left(why);
        self.repo.git(&["fsck", "--strict"]);
    }

    fn assert_nothing_left(&self, why: &str) {
        for worktree in &self.worktrees {
            assert!(!worktree.git_dir.join("index.lock").exists(), "{why}");
        }
        let left: Vec<_> = std::fs::read_dir(self.agent_dir().join("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{why}: {left:?}");
    }
}

#[test]
fn listed_files_are_clean_and_what_others_staged_stays_staged() {
    let scene = Scene::new();
    assert_eq!(scene.land(), Landed::Done);
    scene.assert_landed("plain");
    let changed = scene.repo.git(&["show", "--format=", "--name-status", "HEAD"]);
    assert_eq!(changed, "M\ta\nD\tgone\nA\tnew/n\n");
}

#[test]
fn both_reflogs_name_the_policy() {
    let scene = Scene::new();
    scene.land();
    for name in ["main", "HEAD"] {
        let log = scene.repo.git(&["reflog", "-1", "--format=%gs", name]);
        assert_eq!(log, format!("agentproto: policy {LANDING}\n"), "{name}");
    }
}

#[test]
fn a_file_edited_after_the_gate_shows_as_modified() {
    let scene = Scene::new();
    scene.repo.write("a", b"3\n");
    assert_eq!(scene.land(), Landed::Done);
    assert_eq!(scene.status(), " M a\nA  theirs\n");
    assert_eq!(std::fs::read(scene.repo.path("a")).unwrap(), b"3\n");
}

#[test]
fn a_staged_version_of_a_listed_file_gives_way_to_the_candidate() {
    let repo = Repo::new();
    for (key, value) in [("user.name", "Tess"), ("user.email", "tess@example.invalid")] {
        repo.git(&["config", key, value]);
    }
    repo.write("gone", b"1\n");
    repo.commit_file("a", b"1\n");
    repo.write("a", b"BROKEN\n");
    repo.write("theirs", b"t\n");
    repo.git(&["add", "-A"]);
    let scene = Scene::over(repo);
    assert_eq!(scene.land(), Landed::Done);
    scene.assert_landed("staged");
}

#[test]
fn landing_again_after_a_kill_at_any_step_ends_as_without() {
    for step in STEPS {
        let scene = Scene::new();
        assert!(scene.killed_after(step), "{step:?} is never reached");
        assert_eq!(scene.land(), Landed::Done, "{step:?}");
        scene.assert_landed(&format!("{step:?}"));
        assert_eq!(scene.land(), Landed::Done, "{step:?}, once more");
        scene.assert_landed(&format!("{step:?}, once more"));
    }
}

#[test]
fn two_kills_in_a_row_end_as_without() {
    let telling = [Step::Locked, Step::Prepared, Step::Swapped, Step::Moved, Step::Installed];
    for first in telling {
        for second in telling {
            let scene = Scene::new();
            scene.killed_after(first);
            scene.killed_after(second);
            assert_eq!(scene.land(), Landed::Done, "{first:?} {second:?}");
            scene.assert_landed(&format!("{first:?} {second:?}"));
        }
    }
}

#[test]
fn the_index_follows_when_only_the_branch_moved_after_the_kill() {
    // The `git update-ref` of a killed process goes on without it.
    let scene = Scene::new();
    assert!(scene.killed_after(Step::Prepared));
    let update = |step| {
        if step == Step::Settled {
            let new = scene.candidate.to_string();
            scene.repo.git(&["update-ref", "refs/heads/main", &new]);
        }
    };
    assert_eq!(scene.land_watched(&update).unwrap(), Landed::Done);
    scene.assert_landed("late update-ref");
}

#[test]
fn a_lock_removed_by_hand_after_a_kill_does_not_leave_the_old_index() {
    let scene = Scene::new();
    assert!(scene.killed_after(Step::Moved));
    std::fs::remove_file(scene.repo.path(".git/index.lock")).unwrap();
    assert_eq!(scene.land(), Landed::Done);
    scene.assert_landed("removed lock");
}

#[test]
fn case_69_a_foreign_lock_is_respected_and_left_in_place() {
    let scene = Scene::new();
    let lock = scene.repo.path(".git/index.lock");
    std::fs::write(&lock, b"").unwrap();
    assert_eq!(scene.land(), Landed::IndexLocked(lock.clone()));
    assert_eq!(scene.repo.oid("refs/heads/main"), scene.parent);
    assert_eq!(std::fs::read(&lock).unwrap(), b"");
    std::fs::remove_file(&lock).unwrap();
    scene.assert_nothing_left("foreign lock");
    assert_eq!(scene.land(), Landed::Done);
    scene.assert_landed("after the foreign lock");
}

#[test]
fn a_foreign_lock_after_a_kill_is_not_taken_for_ours() {
    let scene = Scene::new();
    assert!(scene.killed_after(Step::Locked));
    let lock = scene.repo.path(".git/index.lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::write(&lock, b"theirs").unwrap();
    assert_eq!(scene.land(), Landed::IndexLocked(lock.clone()));
    assert_eq!(std::fs::read(&lock).unwrap(), b"theirs");
}

#[test]
fn a_moved_branch_is_reported_and_left_alone() {
    let scene = Scene::new();
    scene.repo.git(&["commit", "-q", "--allow-empty", "-m", "elsewhere"]);
    let tip = scene.repo.oid("HEAD");
    let before = std::fs::read(scene.repo.path(".git/index")).unwrap();
    assert_eq!(scene.land(), Landed::Moved { tip: Some(tip) });
    assert_eq!(scene.repo.oid("HEAD"), tip);
    assert_eq!(std::fs::read(scene.repo.path(".git/index")).unwrap(), before);
}

#[test]
fn the_old_index_comes_back_when_the_branch_went_elsewhere_after_the_kill() {
    let scene = Scene::new();
    let before = std::fs::read(scene.repo.path(".git/index")).unwrap();
    assert!(scene.killed_after(Step::Swapped));
    assert_ne!(std::fs::read(scene.repo.path(".git/index")).unwrap(), before);
    let tree = scene.repo.oid("HEAD^{tree}").to_string();
    let parent = scene.parent.to_string();
    let rival = scene.repo.git(&["commit-tree", &tree, "-p", &parent, "-m", "rival"]);
    scene.repo.git(&["update-ref", "refs/heads/main", rival.trim()]);
    assert_eq!(scene.land(), Landed::Moved { tip: Some(scene.repo.oid("HEAD")) });
    assert_eq!(std::fs::read(scene.repo.path(".git/index")).unwrap(), before);
    scene.assert_nothing_left("rival after the swap");
}

#[test]
fn the_branch_is_locked_while_the_index_is_ahead_of_it() {
    let scene = Scene::new();
    let seen = std::cell::Cell::new(false);
    let look = |step| {
        if step == Step::Swapped {
            // What somebody sees who comes just now: the old branch, which git lets nobody move.
            assert_eq!(scene.repo.oid("refs/heads/main"), scene.parent);
            assert!(scene.repo.branch_lock("main").exists());
            seen.set(true);
        }
        if step == Step::Moved {
            assert_eq!(scene.repo.oid("refs/heads/main"), scene.candidate);
            let diff = scene.repo.git(&["diff", "--cached", "--name-only", "HEAD"]);
            assert_eq!(diff, "theirs\n", "as soon as the branch has moved, the index is its own");
        }
    };
    assert_eq!(scene.land_watched(&look).unwrap(), Landed::Done);
    assert!(seen.get());
}

#[test]
fn a_branch_that_moves_under_the_lock_is_noticed_by_the_swap() {
    let scene = Scene::new();
    let rival = || {
        let tree = scene.repo.oid("HEAD^{tree}").to_string();
        let parent = scene.parent.to_string();
        scene.repo.git(&["commit-tree", &tree, "-p", &parent, "-m", "rival"]).trim().to_owned()
    };
    let race = |step| {
        if step == Step::Prepared {
            scene.repo.git(&["update-ref", "refs/heads/main", &rival()]);
        }
    };
    let end = scene.land_watched(&race).unwrap();
    assert_eq!(end, Landed::Moved { tip: Some(scene.repo.oid("HEAD")) });
    scene.assert_nothing_left("lost race");
}

#[test]
fn a_branch_beyond_the_candidate_has_it_and_a_lost_branch_does_not() {
    let scene = Scene::new();
    scene.land();
    scene.repo.git(&["commit", "-q", "-m", "next"]);
    assert_eq!(scene.land(), Landed::Beyond { tip: scene.repo.oid("HEAD") });
    scene.repo.git(&["switch", "-q", "-c", "side"]);
    scene.repo.git(&["branch", "-D", "main"]);
    assert_eq!(scene.land(), Landed::Moved { tip: None });
}

#[test]
fn an_operation_in_progress_stops_it_before_anything() {
    let scene = Scene::new();
    let head = scene.parent.to_string();
    std::fs::write(scene.repo.path(".git/MERGE_HEAD"), format!("{head}\n")).unwrap();
    let busy = |operation| Landed::GitBusy { worktree: ".".to_owned(), operation };
    assert_eq!(scene.land(), busy(Operation::Merge));
    scene.assert_nothing_left("merge");
    std::fs::remove_file(scene.repo.path(".git/MERGE_HEAD")).unwrap();
    scene.repo.write(".git/rebase-merge/head-name", b"refs/heads/main\n");
    assert_eq!(scene.land(), busy(Operation::Rebase));
    std::fs::remove_dir_all(scene.repo.path(".git/rebase-merge")).unwrap();
    let blob = scene.repo.oid("HEAD:a").to_string();
    let list = scene.repo.beside("list");
    std::fs::write(&list, format!("100644 {blob} 2\ta\n100644 {blob} 3\ta\n")).unwrap();
    scene.repo.git(&["rm", "-q", "--cached", "a"]);
    scene.repo.git_fed(&["update-index", "--index-info"], &list);
    assert_eq!(scene.land(), busy(Operation::Conflict));
    assert_eq!(scene.repo.oid("refs/heads/main"), scene.parent);
}

#[test]
fn a_linked_worktree_gets_its_index_and_its_reflog_and_others_are_not_touched() {
    let mut scene = Scene::new();
    scene.repo.git(&["stash", "-qu"]);
    scene.repo.git(&["switch", "-q", "-c", "side"]);
    let top = scene.repo.beside("linked");
    scene.repo.git(&["worktree", "add", "-q", top.to_str().unwrap(), "main"]);
    for (name, data) in [("a", &b"2\n"[..]), ("new/n", b"2\n")] {
        std::fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
        std::fs::write(top.join(name), data).unwrap();
    }
    std::fs::remove_file(top.join("gone")).unwrap();
    let git_dir = scene.repo.path(".git/worktrees/linked");
    scene.worktrees.push(Worktree { id: "linked".to_owned(), top: top.clone(), git_dir });
    let main_index = std::fs::read(scene.repo.path(".git/index")).unwrap();
    for step in STEPS {
        scene.killed_after(step);
    }
    assert_eq!(scene.land(), Landed::Done);
    let at_top = |args: &[&str]| scene.repo.git_at(&top, args, &[]);
    assert_eq!(at_top(&["status", "--porcelain"]), "");
    let log = at_top(&["reflog", "-1", "--format=%gs", "HEAD"]);
    assert_eq!(log, format!("agentproto: policy {LANDING}\n"));
    assert_eq!(std::fs::read(scene.repo.path(".git/index")).unwrap(), main_index);
    assert_eq!(scene.repo.git(&["symbolic-ref", "HEAD"]), "refs/heads/side\n");
    scene.assert_nothing_left("linked");
}

#[test]
fn a_branch_checked_out_nowhere_just_moves() {
    let scene = Scene::new();
    scene.repo.git(&["switch", "-q", "--discard-changes", "-c", "side"]);
    assert_eq!(scene.land(), Landed::Done);
    assert_eq!(scene.repo.oid("refs/heads/main"), scene.candidate);
    assert_eq!(scene.repo.oid("HEAD"), scene.parent);
}

#[test]
fn packed_refs_split_untracked_and_version_4_indexes_work_and_no_program_runs() {
    for setting in [
        ("core.splitIndex", "true"),
        ("core.untrackedCache", "true"),
        ("index.version", "4"),
        ("core.fsmonitor", "touch \"$(git rev-parse --git-dir)/ran\"; false"),
    ] {
        let scene = Scene::new();
        scene.repo.git(&["config", setting.0, setting.1]);
        scene.repo.git(&["update-index", "--force-write-index"]);
        scene.repo.git(&["pack-refs", "--all"]);
        scene.repo.write(".git/hooks/post-index-change", b"#!/bin/sh\ntouch .git/ran\n");
        scene.repo.write(".git/hooks/reference-transaction", b"#!/bin/sh\ntouch .git/ran\n");
        for hook in ["post-index-change", "reference-transaction"] {
            let at = scene.repo.path(format!(".git/hooks/{hook}"));
            std::fs::set_permissions(at, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
        }
        let ran = scene.repo.path(".git/ran");
        let _ = std::fs::remove_file(&ran);
        assert_eq!(scene.land(), Landed::Done, "{setting:?}");
        assert!(!ran.exists(), "{setting:?}");
        scene.assert_landed(setting.0);
    }
}

#[test]
fn the_post_commit_hook_runs_with_the_repositorys_own_settings_and_cannot_fail_a_commit() {
    let repo = Repo::new();
    assert_eq!(post_commit(&repo.program(), 60_000), None);
    let hook = repo.path(".git/hooks/post-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\nenv > env.txt\necho out of luck >&2\nexit 3\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let text = post_commit(&repo.program(), 60_000).unwrap();
    assert!(text.ends_with("ended with exit code 3: out of luck"), "{text}");
    let env = std::fs::read_to_string(repo.path("env.txt")).unwrap();
    assert!(!env.contains("GIT_LITERAL_PATHSPECS") && !env.contains("GIT_OPTIONAL_LOCKS"), "{env}");
    std::fs::write(&hook, "#!/bin/sh\nsleep 1000\n").unwrap();
    let text = post_commit(&repo.program(), 100).unwrap();
    assert!(text.ends_with("did not end within 100 ms and was killed"), "{text}");
}

#[test]
fn a_head_on_no_branch_lands_like_a_branch_after_a_kill_at_any_step() {
    for step in STEPS {
        let scene = Scene::detached();
        assert!(scene.killed_after(step), "{step:?} is never reached");
        assert_eq!(scene.land(), Landed::Done, "{step:?}");
        assert_eq!(scene.repo.oid("HEAD"), scene.candidate, "{step:?}");
        assert_eq!(scene.repo.git(&["branch", "--show-current"]), "", "{step:?}");
        assert_eq!(scene.repo.oid("refs/heads/main"), scene.parent, "{step:?}");
        assert_eq!(scene.status(), "A  theirs\n", "{step:?}");
        scene.assert_nothing_left(&format!("{step:?}"));
    }
}

#[test]
fn a_head_that_is_put_on_a_branch_at_any_moment_is_not_taken_off_it() {
    for moment in [Step::Recorded, Step::Locked, Step::Prepared] {
        let scene = Scene::detached();
        let away = |step| {
            if step == moment {
                // As `git checkout` ends; the same commit, so that comparing it tells nothing.
                scene.repo.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
            }
        };
        assert_eq!(scene.land_watched(&away).unwrap(), Landed::Moved { tip: None }, "{moment:?}");
        assert_eq!(scene.repo.git(&["symbolic-ref", "HEAD"]), "refs/heads/main\n", "{moment:?}");
        assert_eq!(scene.repo.oid("refs/heads/main"), scene.parent, "{moment:?}");
        scene.assert_nothing_left("put on a branch");
    }
}

#[test]
fn a_branch_does_not_move_with_a_head_that_is_on_none() {
    let scene = Scene { branch: "refs/heads/main", ..Scene::detached() };
    let index = std::fs::read(scene.repo.path(".git/index")).unwrap();
    assert_eq!(scene.land(), Landed::Done);
    assert_eq!(scene.repo.oid("HEAD"), scene.parent);
    assert_eq!(scene.repo.oid("refs/heads/main"), scene.candidate);
    assert_eq!(std::fs::read(scene.repo.path(".git/index")).unwrap(), index);
}

/// What `git checkout main` of another branch does, which read where `main` is before anything happened to it.
fn checks_out(scene: &Scene) {
    let old = scene.parent.to_string();
    scene.repo.git(&["read-tree", &old]);
    scene.repo.git(&["symbolic-ref", "HEAD", "refs/heads/main"]);
}

/// A worktree on another branch, with its index as it is there.
fn elsewhere() -> Scene {
    let scene = Scene::new();
    scene.repo.git(&["reset", "-q"]);
    scene.repo.git(&["symbolic-ref", "HEAD", "refs/heads/side"]);
    scene.repo.git(&["update-ref", "refs/heads/side", &scene.parent.to_string()]);
    scene
}

#[test]
fn a_worktree_that_comes_onto_the_branch_at_any_moment_takes_nothing_back() {
    for moment in [Step::Settled, Step::Prepared, Step::Moved, Step::Durable] {
        let scene = elsewhere();
        let came = std::cell::Cell::new(false);
        let come = |step| {
            if step == moment && !came.replace(true) {
                checks_out(&scene);
            }
        };
        assert_eq!(scene.land_watched(&come).unwrap(), Landed::Done, "{moment:?}");
        assert!(came.get(), "{moment:?} is never reached");
        assert_eq!(scene.repo.oid("refs/heads/main"), scene.candidate, "{moment:?}");
        let staged = scene.repo.git(&["diff", "--cached", "--name-status"]);
        assert_eq!(staged, "", "{moment:?}: the next commit would take it back");
        scene.assert_nothing_left(&format!("{moment:?}"));
    }
}

#[test]
fn what_a_latecomer_staged_itself_stays_staged() {
    let scene = elsewhere();
    let come = |step| {
        if step == Step::Moved {
            checks_out(&scene);
            scene.repo.git(&["update-index", "--force-remove", "a"]);
        }
    };
    assert_eq!(scene.land_watched(&come).unwrap(), Landed::Done);
    let staged = scene.repo.git(&["diff", "--cached", "--name-status"]);
    assert!(staged.contains("D\ta\n"), "{staged}");
}

#[test]
fn what_is_at_work_in_other_worktrees_is_waited_for_a_while_and_holds_nobody_up() {
    let scene = elsewhere();
    let lock = scene.repo.path(".git/index.lock");
    std::fs::write(&lock, b"").unwrap();
    assert_eq!(scene.land(), Landed::Done);
    assert!(lock.exists(), "it is somebody else's");
}

/// A second worktree, on a branch that is another name of `main`; its directory.
fn under_another_name(scene: &mut Scene) -> PathBuf {
    let top = scene.repo.beside("linked");
    scene.repo.git(&["branch", "alias"]);
    scene.repo.git(&["worktree", "add", "-q", top.to_str().unwrap(), "alias"]);
    scene.repo.git(&["symbolic-ref", "refs/heads/between", "refs/heads/main"]);
    scene.repo.git(&["symbolic-ref", "refs/heads/alias", "refs/heads/between"]);
    let git_dir = scene.repo.path(".git/worktrees/linked");
    scene.worktrees.push(Worktree { id: "linked".to_owned(), top: top.clone(), git_dir });
    top
}

#[test]
fn a_worktree_on_another_name_of_the_branch_gets_its_index_too() {
    for branch in ["refs/heads/main", "refs/heads/alias"] {
        for step in STEPS {
            let mut scene = Scene { branch, ..Scene::new() };
            let top = under_another_name(&mut scene);
            assert!(scene.killed_after(step), "{branch}: {step:?} is never reached");
            assert_eq!(scene.land(), Landed::Done, "{branch}: {step:?}");
            scene.assert_landed(&format!("{branch}: {step:?}"));
            let staged = ["diff", "--cached", "--name-status", "HEAD"];
            assert_eq!(scene.repo.git_at(&top, &staged, &[]), "", "{branch}: {step:?}");
        }
    }
}

#[test]
fn a_rebase_of_another_name_of_the_branch_stops_it() {
    let mut scene = Scene::new();
    under_another_name(&mut scene);
    scene.repo.git(&["switch", "-q", "--discard-changes", "-c", "side"]);
    scene.repo.write(".git/rebase-merge/head-name", b"refs/heads/alias\n");
    let busy = Landed::GitBusy { worktree: ".".to_owned(), operation: Operation::Rebase };
    assert_eq!(scene.land(), busy);
    assert_eq!(scene.repo.oid("refs/heads/main"), scene.parent);
}

#[test]
fn a_worktree_that_is_led_onto_the_branch_meanwhile_takes_nothing_back() {
    for moment in [Step::Settled, Step::Prepared, Step::Moved, Step::Durable] {
        let scene = elsewhere();
        let lead = |step| {
            if step == moment {
                scene.repo.git(&["symbolic-ref", "refs/heads/side", "refs/heads/main"]);
            }
        };
        assert_eq!(scene.land_watched(&lead).unwrap(), Landed::Done, "{moment:?}");
        let staged = scene.repo.git(&["diff", "--cached", "--name-status"]);
        assert_eq!(staged, "", "{moment:?}: the next commit would take it back");
    }
}

#[test]
fn a_broken_branch_of_another_worktree_holds_nobody_up() {
    let scene = elsewhere();
    if scene.repo.path(".git/reftable").is_dir() {
        return;
    }
    scene.repo.write(".git/refs/heads/side", b"garbage");
    assert_eq!(scene.land(), Landed::Done);
}

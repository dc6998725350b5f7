//! Repositories that are moved, copied, linked, mirrored and replaced: who goes on with which journal.
//!
//! One rule holds in all of them: no two git directories extend the journal of one writer.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

const SAID: &str = "note: this repository is a copy of one that writes journal ";

/// Every journal of a repository and its last entry.
fn journals(env: &TestEnv, dir: &Path) -> BTreeMap<String, String> {
    let format = "--format=%(refname) %(objectname)";
    let refs = env.git_in(dir, &["for-each-ref", format, "refs/agentproto/journal"]);
    refs.lines().filter_map(|l| l.split_once(' ')).map(|(n, id)| (n.into(), id.into())).collect()
}

/// Records something in `dir`.
fn record(env: &TestEnv, dir: &Path) -> Output {
    env.ap_in(dir, &["session", "adopt", "--label", "s", "--cwd", "."])
}

/// Records something, which must work, and gives back the one journal that it extended.
#[track_caller]
fn extended(env: &TestEnv, dir: &Path) -> String {
    let before = journals(env, dir);
    record(env, dir).exits(0);
    only_change(&before, &journals(env, dir))
}

#[track_caller]
fn only_change(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> String {
    let changed: Vec<_> = after.iter().filter(|(n, id)| before.get(*n) != Some(*id)).collect();
    assert_eq!(changed.len(), 1, "{before:?} became {after:?}");
    changed[0].0.clone()
}

fn copy(env: &TestEnv, from: &str, to: &str) -> PathBuf {
    env.run("cp", &["-a", from, to]).dir(env.path("")).done().exits(0);
    env.path(to)
}

fn moved(env: &TestEnv, from: &str, to: &str) -> PathBuf {
    env.run("mv", &[from, to]).dir(env.path("")).done().exits(0);
    env.path(to)
}

#[test]
fn a_moved_repository_goes_on_with_its_journal() {
    let env = TestEnv::new();
    let own = extended(&env, &env.repo());
    let there = moved(&env, "r", "m");
    assert_eq!(extended(&env, &there), own);
    assert_eq!(extended(&env, &moved(&env, "m", "n")), own);
    assert_eq!(journals(&env, &env.path("n")).len(), 1);
    env.ap_in(&env.path("n"), &["fsck"]).exits(0);
}

#[test]
fn a_copy_starts_a_journal_of_its_own_and_says_so_once() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let original = env.journal();
    let copy = copy(&env, "r", "c");
    let tip = journals(&env, &copy)[&original].clone();

    // Before anything is recorded there, what it brought along is somebody else's already.
    let out = env.ap_in(&copy, &["ack", &policy, "--yes"]).exits(6);
    assert!(out.err().contains("not-owner"), "{out}");
    let said = env.ap_in(&copy, &["status"]).exits(0).out();
    let of = env.repo().display().to_string();
    assert!(
        said.starts_with(&format!("this repository is a copy of {of}, where journal ")),
        "{said}"
    );
    assert!(said.contains(&format!("git -C {of} agentproto status\n")), "{said}");
    assert!(!said.contains("nothing is going on here"), "{said}");
    let told = env.ap_in(&copy, &["status", "--json"]).exits(0).json();
    assert_eq!(text(&told["copyOf"], "gitDir"), format!("{of}/.git"));
    assert_eq!(env.ap(&["status", "--json"]).json()["copyOf"], serde_json::Value::Null);
    env.ap_in(&copy, &["wait", &policy, "--until", "done", "--timeout", "1s"]).exits(4);
    assert_eq!(journals(&env, &copy).len(), 1, "looking has minted a writer");

    let out = record(&env, &copy).exits(0);
    assert_eq!(out.err().matches(SAID).count(), 1, "{out}");
    let out = record(&env, &copy).exits(0);
    assert!(!out.err().contains(SAID), "said twice: {out}");
    let both = journals(&env, &copy);
    assert_eq!((both.len(), &both[&original]), (2, &tip));
    env.ap_in(&copy, &["ack", &policy, "--yes"]).exits(6);
    env.ap_in(&copy, &["fsck"]).exits(0);

    // The original knows nothing of all that.
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.journal(), original);
    env.assert_no_gap();
}

#[test]
fn a_copy_shows_what_its_log_holds_and_leaves_that_journal_alone() {
    let env = TestEnv::new();
    let original = extended(&env, &env.repo());
    // Recorded, but git cannot be shown it: somebody holds the ref.
    let lock = env.ref_lock(&env.repo(), &original);
    fs::write(&lock, "").unwrap();
    record(&env, &env.repo()).exits(0);
    let behind = journals(&env, &env.repo());
    let copy = copy(&env, "r", "c");
    fs::remove_file(env.ref_lock(&copy, &original)).unwrap();

    record(&env, &copy).exits(0);
    let there = journals(&env, &copy);
    assert_eq!(there.len(), 2);
    assert_ne!(there[&original], behind[&original], "what the log held is not shown");
    fs::remove_file(&lock).unwrap();
    env.ap(&["status"]).exits(0);
    assert_eq!(journals(&env, &env.repo())[&original], there[&original]);
    let own = extended(&env, &copy);
    assert_ne!(own, original);
    assert_eq!(journals(&env, &copy)[&original], there[&original]);
    env.git_in(&copy, &["fsck", "--strict"]);
}

#[test]
fn the_only_copy_left_is_a_moved_repository() {
    let env = TestEnv::new();
    let own = extended(&env, &env.repo());
    let copy = copy(&env, "r", "c");
    fs::remove_dir_all(env.repo()).unwrap();
    assert_eq!(extended(&env, &copy), own);
}

#[test]
fn a_copy_of_a_copy_has_a_journal_of_its_own() {
    let env = TestEnv::new();
    let first = extended(&env, &env.repo());
    let b = copy(&env, "r", "b");
    let silent = copy(&env, "b", "silent");
    let second = extended(&env, &b);
    let c = copy(&env, "b", "c");
    let third = extended(&env, &c);
    let fourth = extended(&env, &silent);
    let all: std::collections::BTreeSet<_> = [&first, &second, &third, &fourth].into();
    assert_eq!(all.len(), 4);
    for (dir, own) in [("r", &first), ("b", &second), ("c", &third), ("silent", &fourth)] {
        assert_eq!(&extended(&env, &env.path(dir)), own, "{dir}");
    }
}

#[test]
fn of_two_copies_without_an_original_one_goes_on() {
    let env = TestEnv::new();
    let own = extended(&env, &env.repo());
    let copies = [copy(&env, "r", "b"), copy(&env, "r", "c"), copy(&env, "r", "d")];
    fs::remove_dir_all(env.repo()).unwrap();
    let used: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = copies.iter().map(|c| scope.spawn(|| extended(&env, c))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(used.iter().filter(|name| **name == own).count(), 1, "{used:?}");
    for (copy, used) in copies.iter().zip(&used) {
        assert_eq!(extended(&env, copy), *used);
    }
}

#[test]
fn a_copy_put_back_at_the_old_place_and_the_moved_original_do_not_meet() {
    let env = TestEnv::new();
    extended(&env, &env.repo());
    let there = moved(&env, "r", "m");
    let back = copy(&env, "m", "r");
    let used = [extended(&env, &back), extended(&env, &there)];
    assert_ne!(used[0], used[1]);
    assert_eq!([extended(&env, &back), extended(&env, &there)], used);
}

#[test]
fn another_way_to_the_same_place_is_the_same_repository() {
    let env = TestEnv::new();
    let own = extended(&env, &env.repo());
    symlink(env.repo(), env.path("link")).unwrap();
    assert_eq!(extended(&env, &env.path("link")), own);
    let bound = env.path("bound");
    fs::create_dir(&bound).unwrap();
    let repo = env.repo();
    let args = ["--bind", repo.to_str().unwrap(), bound.to_str().unwrap()];
    if env.run("mount", &args).done().code() != 0 {
        crate::house::skipped("bind mounts: this user may not mount");
        return;
    }
    let used = std::panic::catch_unwind(|| {
        (extended(&env, &bound), extended(&env, &env.repo()), record(&env, &bound))
    });
    env.run("umount", &[bound.to_str().unwrap()]).done().exits(0);
    let (through, direct, last) = used.unwrap();
    assert_eq!((through, direct), (own.clone(), own));
    assert!(!last.err().contains(SAID), "{last}");
}

#[test]
fn a_new_repository_at_an_old_path_inherits_nothing() {
    let env = TestEnv::new();
    let old = extended(&env, &env.repo());
    fs::remove_dir_all(env.repo()).unwrap();
    env.make_repo("r");
    let out = record(&env, &env.repo()).exits(0);
    assert!(!out.err().contains(SAID), "{out}");
    assert_ne!(env.journal(), old);
}

#[test]
fn a_mirror_does_not_go_on_with_the_journals_it_mirrors() {
    let env = TestEnv::new();
    let original = extended(&env, &env.repo());
    env.run("git", &["clone", "-q", "--mirror", "r", "m.git"]).dir(env.path("")).done().exits(0);
    env.git_in(&env.path("m.git"), &["worktree", "add", "-q", "-b", "w", "../w"]);
    // Not even where nobody noted whose the journal is.
    for home in ["home", "other-home"] {
        fs::create_dir_all(env.path(home)).unwrap();
        let mut args = env.tool(&["session", "adopt", "--label", "s", "--cwd", "."]);
        args = args.dir(env.path("w")).env("XDG_STATE_HOME", env.path(home).join("state"));
        args.done().exits(0);
        let there = journals(&env, &env.path("m.git"));
        assert_eq!(there.len(), 2, "{there:?}");
        assert_eq!(there[&original], journals(&env, &env.repo())[&original]);
        fs::remove_dir_all(env.path("m.git/agentproto")).unwrap();
        let own = there.keys().find(|name| **name != original).unwrap();
        env.git_in(&env.path("m.git"), &["update-ref", "-d", own]);
    }
}

#[test]
fn without_a_state_directory_the_path_beside_the_id_decides() {
    let env = TestEnv::new();
    let closed = env.path("closed");
    fs::write(&closed, "no directory can be made here\n").unwrap();
    let extended = |dir: &Path| {
        let before = journals(&env, dir);
        let adopt = env.tool(&["session", "adopt", "--label", "s", "--cwd", "."]).dir(dir);
        adopt.env("XDG_STATE_HOME", closed.join("state")).done().exits(0);
        only_change(&before, &journals(&env, dir))
    };
    let own = extended(&env.repo());
    assert_eq!(extended(&env.repo()), own);
    let there = moved(&env, "r", "m");
    assert_eq!(extended(&there), own);
    let copy = copy(&env, "m", "c");
    assert_ne!(extended(&copy), own);
    assert_eq!(extended(&there), own);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(extended(&there), own);
}

#[test]
fn another_home_sees_the_same_repository_and_no_copy_for_the_original() {
    let env = TestEnv::new();
    let own = extended(&env, &env.repo());
    let elsewhere = |dir: &Path| {
        let adopt = env.tool(&["session", "adopt", "--label", "s", "--cwd", "."]).dir(dir);
        let before = journals(&env, dir);
        adopt.env("XDG_STATE_HOME", env.path("container/state")).done().exits(0);
        only_change(&before, &journals(&env, dir))
    };
    assert_eq!(elsewhere(&env.repo()), own);
    let copy = copy(&env, "r", "c");
    let its = elsewhere(&copy);
    assert_ne!(its, own);
    assert_eq!((extended(&env, &env.repo()), extended(&env, &copy)), (own, its));
}

#[test]
fn a_lost_side_directory_of_a_copy_is_restored_as_its_own() {
    let env = TestEnv::new();
    let original = extended(&env, &env.repo());
    let copy = copy(&env, "r", "c");
    let own = extended(&env, &copy);
    for dir in [&env.repo(), &copy] {
        fs::remove_dir_all(dir.join(".git/agentproto")).unwrap();
    }
    assert_eq!(extended(&env, &copy), own);
    assert_eq!(extended(&env, &env.repo()), original);
    let writer = fs::read_to_string(copy.join(".git/agentproto/writer")).unwrap();
    let noted =
        env.home().join(".local/state/agentproto/writers").join(writer.lines().next().unwrap());
    assert_eq!(fs::read(noted).unwrap(), writer.as_bytes());
}

#[test]
fn of_two_journals_that_may_be_its_own_none_goes_on() {
    let env = TestEnv::new();
    extended(&env, &env.repo());
    let copy = copy(&env, "r", "c");
    extended(&env, &copy);
    fs::remove_dir_all(env.repo()).unwrap();
    let there = moved(&env, "c", "m");
    fs::remove_dir_all(there.join(".git/agentproto")).unwrap();
    let before = journals(&env, &there);
    let own = extended(&env, &there);
    assert!(before.len() == 2 && !before.contains_key(&own), "{own} of {before:?}");
}

#[test]
fn a_policy_of_the_original_is_not_answered_in_the_copy_after_it_recorded() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let copy = copy(&env, "r", "c");
    extended(&env, &copy);
    for command in [&["policy", "cancel", &policy][..], &["ack", &policy, "--yes"]] {
        let out = env.ap_in(&copy, command).exits(6);
        assert!(out.err().contains("not-owner"), "{out}");
    }
    assert_eq!(text(&env.policy(&policy), "status"), "awaiting-ack");
}

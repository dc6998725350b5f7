//! Changing refs, against plain git.

use super::{RefReader, Stored};
use crate::{
    code::Code,
    domain::oid::Oid,
    store::{Store, StoreError, discover, failpoint::tests as failpoint, testlab::TestRepo},
};
use std::{fmt::Write as _, path::PathBuf};

const NAME: &str = "refs/agentproto/journal/0123456789ab/0001";

fn open(repo: &TestRepo) -> Store {
    let env = repo.env();
    Store::open(discover(&env).unwrap(), &env).unwrap()
}

fn oid(repo: &TestRepo, revision: &str) -> Oid {
    repo.git(&["rev-parse", revision]).parse().unwrap()
}

#[test]
fn a_ref_is_deleted_from_its_expected_value_only_loose_or_packed() {
    let repo = TestRepo::new();
    let one = oid(&repo, "HEAD");
    let two: Oid = repo.commit("two").parse().unwrap();
    let store = open(&repo);
    for packed in [false, true] {
        repo.git(&["update-ref", NAME, &one.to_string()]);
        if packed {
            repo.git(&["pack-refs", "--all"]);
            repo.git(&["update-ref", NAME, &two.to_string()]);
        }
        let (now, other) = if packed { (two, one) } else { (one, two) };
        let refused = store.delete_reference(NAME, other).unwrap_err();
        let moved =
            StoreError::RefMoved { name: NAME.into(), expected: Some(other), actual: Some(now) };
        assert_eq!(refused.to_string(), moved.to_string());
        store.delete_reference(NAME, now).unwrap();
        assert_eq!(store.reference(NAME).unwrap(), None);
        assert_eq!(repo.git(&["for-each-ref", "refs/agentproto"]), "");
        let gone = store.delete_reference(NAME, now).unwrap_err();
        assert_eq!(gone.to_string(), format!("ref {NAME} is at nothing, expected {now}"));
    }
}

#[test]
fn a_git_that_was_ended_while_idle_is_replaced() {
    let repo = TestRepo::new();
    let (one, store) = (oid(&repo, "HEAD"), open(&repo));
    for _ in 0..2 {
        repo.git(&["update-ref", NAME, &one.to_string()]);
        store.delete_reference(NAME, one).unwrap();
        store.refs.git.end_it();
    }
    assert_eq!(store.reference(NAME).unwrap(), None);
}

fn reader(repo: &TestRepo) -> RefReader {
    RefReader::of(&open(repo).repo().unwrap()).unwrap()
}

/// Every ref below `refs/`, and what git says it holds.
fn git_says(repo: &TestRepo) -> Vec<(String, Stored)> {
    let text = repo.git(&["for-each-ref", "--format=%(refname) %(objectname) %(symref)"]);
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let stored = match words.get(2).copied().unwrap_or_default() {
            "" => Stored::Id(words[1].parse().unwrap()),
            target => Stored::Symbolic(target.to_owned()),
        };
        (words[0].to_owned(), stored)
    };
    text.lines().map(line).collect()
}

fn assert_agrees(repo: &TestRepo) {
    let (refs, said) = (reader(repo), git_says(repo));
    let names: Vec<String> = said.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(refs.names("refs/").unwrap(), names);
    for (name, stored) in &said {
        assert_eq!(refs.stored(name).unwrap().as_ref(), Some(stored), "{name}");
    }
}

/// `update-ref` of so many refs in one transaction.
fn update(repo: &TestRepo, names: impl Iterator<Item = String>, to: &str) {
    let mut lines = String::new();
    for name in names {
        writeln!(lines, "update {name} {to}").unwrap();
    }
    repo.git_fed(&["update-ref", "--stdin"], &lines);
}

#[test]
fn both_backends_are_read_as_git_reads_them() {
    for format in ["files", "reftable"] {
        let repo = TestRepo::with_refs(format);
        let one = repo.git(&["rev-parse", "HEAD"]);
        let two = repo.commit("two");
        assert_agrees(&repo);
        update(&repo, (0..40).map(|n| format!("refs/heads/topic/{n}")), &one);
        update(&repo, (20..60).map(|n| format!("refs/heads/topic/{n}")), &two);
        repo.git(&["tag", "-a", "-m", "annotated", "v1"]);
        repo.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/topic/7"]);
        repo.git(&["update-ref", "-d", "refs/heads/topic/21"]);
        assert_agrees(&repo);
        let refs = reader(&repo);
        assert_eq!(refs.stored("refs/heads/topic/21").unwrap(), None, "{format}");
        assert_eq!(refs.read("refs/heads/topic/99").unwrap(), None, "{format}");
        assert_eq!(refs.names("refs/heads/none/").unwrap(), Vec::<String>::new());
        let followed = refs.read("refs/remotes/origin/HEAD").unwrap();
        assert_eq!(followed, Some(one.parse().unwrap()), "{format}");
        repo.git(&["pack-refs", "--all"]);
        assert_agrees(&repo);
        repo.git(&["symbolic-ref", "refs/heads/a", "refs/heads/b"]);
        repo.git(&["symbolic-ref", "refs/heads/b", "refs/heads/a"]);
        let looped = reader(&repo).read("refs/heads/a").unwrap_err();
        assert_eq!(looped.to_string(), "ref refs/heads/a is broken: too many symbolic hops");
        assert_eq!(reader(&repo).leads_to("refs/heads/a").unwrap(), None, "{format}");
    }
}

#[test]
fn symbolic_refs_are_followed_as_far_as_git_follows_them() {
    for format in ["files", "reftable"] {
        let repo = TestRepo::with_refs(format);
        let tip: Oid = repo.git(&["rev-parse", "HEAD"]).parse().unwrap();
        let end = repo.git(&["symbolic-ref", "HEAD"]);
        let mut to = end.clone();
        for hops in 1..=6 {
            let name = format!("refs/heads/hop{hops}");
            repo.git(&["symbolic-ref", &name, &to]);
            let known = !repo.git_fed(&["cat-file", "--batch-check"], &name).ends_with(" missing");
            let refs = reader(&repo);
            assert_eq!(refs.leads_to(&name).unwrap(), known.then(|| end.clone()), "{hops}");
            assert_eq!(refs.read(&name).ok(), known.then_some(Some(tip)), "{format}: {hops}");
            to = name;
        }
        repo.git(&["symbolic-ref", "refs/heads/early", "refs/heads/later"]);
        let later = Some("refs/heads/later".to_owned());
        assert_eq!(reader(&repo).leads_to("refs/heads/early").unwrap(), later, "{format}");
    }
}

#[test]
fn a_table_so_large_that_its_index_has_levels_is_read_as_git_reads_it() {
    for size in ["0", "256", "4096"] {
        let repo = TestRepo::with_refs("reftable");
        repo.git(&["config", "reftable.blockSize", size]);
        let head = repo.git(&["rev-parse", "HEAD"]);
        update(&repo, (0..3_000).map(|n| format!("refs/heads/{:05}/{n}", n * 7919 % 3_001)), &head);
        repo.git(&["pack-refs", "--all"]);
        let (refs, said) = (reader(&repo), git_says(&repo));
        assert_eq!(refs.names("refs/heads/").unwrap().len(), 3_001);
        for (name, stored) in said.iter().step_by(17).chain(said.last()) {
            assert_eq!(refs.stored(name).unwrap().as_ref(), Some(stored), "{name}");
            assert_eq!(refs.stored(&format!("{name}0")).unwrap(), None);
        }
        let some = refs.names("refs/heads/00500/").unwrap();
        let git = repo.git(&["for-each-ref", "--format=%(refname)", "refs/heads/00500/"]);
        assert_eq!(some.join("\n"), git, "{size}");
    }
}

fn table(repo: &TestRepo) -> PathBuf {
    let dir = repo.path().join(".git/reftable");
    let list = std::fs::read_to_string(dir.join("tables.list")).unwrap();
    dir.join(list.lines().next().unwrap())
}

#[test]
fn a_damaged_table_is_an_error_and_never_a_missing_ref() {
    let repo = TestRepo::with_refs("reftable");
    repo.git(&["pack-refs", "--all"]);
    let (refs, path) = (reader(&repo), table(&repo));
    let whole = std::fs::read(&path).unwrap();
    let now = refs.read("refs/heads/main").unwrap();
    assert!(now.is_some());
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let error = refs.read("refs/heads/main").unwrap_err();
        assert_eq!(error.code(), Code::StoreUnusable, "{length}: {error}");
    }
    // Nothing but the footer has a checksum: what git would believe, so do we.
    let footer = whole.len() - 68;
    for at in (0..24).chain(footer..whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&path, &bytes).unwrap();
        assert!(refs.read("refs/heads/main").is_err(), "byte {at}");
    }
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(refs.read("refs/heads/main").unwrap(), now);
    let list = path.with_file_name("tables.list");
    std::fs::write(&list, "../x\n").unwrap();
    assert!(refs.read("refs/heads/main").unwrap_err().to_string().contains("it is damaged"));
    std::fs::remove_file(&list).unwrap();
    assert!(refs.read("refs/heads/main").unwrap_err().to_string().contains("it is missing"));
}

#[test]
fn a_foreign_lock_on_the_tables_is_waited_for_then_named_and_never_removed() {
    let repo = TestRepo::with_refs("reftable");
    let (one, store) = (oid(&repo, "HEAD"), open(&repo));
    let lock = repo.path().join(".git/reftable/tables.list.lock");
    std::fs::write(&lock, "").unwrap();
    let locked = store.refs.swap(NAME, None, &one, 50).unwrap_err();
    assert_eq!(locked.code(), Code::LockTimeout);
    assert!(locked.to_string().contains("tables.list.lock"), "{locked}");
    assert!(lock.exists());
    std::thread::scope(|scope| {
        let swap = scope.spawn(|| store.refs.swap(NAME, None, &one, 60_000));
        std::fs::remove_file(&lock).unwrap();
        swap.join().unwrap().unwrap();
    });
    assert_eq!(repo.git(&["rev-parse", NAME]), one.to_string());
    let other: Oid = repo.commit("two").parse().unwrap();
    let moved = store.refs.swap(NAME, Some(other), &one, 0).unwrap_err();
    assert_eq!(moved.to_string(), format!("ref {NAME} is at {one}, expected {other}"));
}

#[test]
fn a_promise_that_is_not_kept_leaves_no_lock_and_moves_nothing() {
    let repo = TestRepo::with_refs("reftable");
    let (one, store) = (oid(&repo, "HEAD"), open(&repo));
    failpoint::arm("ref locked", 1);
    let stopped = store.refs.swap(NAME, None, &one, 0);
    assert!(failpoint::disarm() && stopped.is_err());
    assert!(!repo.path().join(".git/reftable/tables.list.lock").exists());
    assert_eq!(store.reference(NAME).unwrap(), None);
    store.refs.swap(NAME, None, &one, 0).unwrap();
    assert_eq!(repo.git(&["rev-parse", NAME]), one.to_string());
}

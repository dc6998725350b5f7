//! What `fsck --repair` makes again from the journal, and what a dry run promises of it.

use crate::{
    env::{TestEnv, is_long},
    fsck::{agent, findings, goes_on, repair, repairs},
    house::text,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

/// The log goes, which would else prove the ref; then the ref goes.
fn lose_evidence(env: &TestEnv) -> String {
    env.ap(&["gc"]).exits(0);
    for log in ["wal", "wal2"] {
        let _ = fs::remove_file(agent(env, log));
    }
    let evidence = env.journal().replace("/journal/", "/evidence/");
    env.git(&["update-ref", "-d", &evidence]);
    evidence
}

#[test]
fn a_candidate_whose_evidence_is_gone_is_pinned_again() {
    let env = TestEnv::new();
    env.governed("landed.txt");
    let policies = ["a.rs", "b.rs"].map(|path| env.awaiting(path));
    let commits = policies.each_ref().map(|p| text(&env.policy(p), "candidate"));
    let evidence = lose_evidence(&env);
    let found = findings(&env, 1);
    assert_eq!(found.len(), 2, "{found:?}");
    for (finding, commit) in found.iter().zip(&commits) {
        assert!(text(finding, "what").contains(commit), "{found:?}");
        assert_eq!(text(finding, "repair"), format!("pin {commit} in the evidence again"));
    }
    repairs(&env, 2);
    for commit in &commits {
        env.git(&["merge-base", "--is-ancestor", commit, &evidence]);
    }
    // Git's own cleaning leaves it alone, and it lands.
    env.git(&["reflog", "expire", "--expire=now", "--all"]);
    env.git(&["gc", "-q", "--prune=now"]);
    env.ap(&["ack", &policies[0], "--yes"]).exits(0);
    goes_on(&env);
}

#[test]
fn a_candidate_that_is_gone_itself_is_told_with_the_way_out() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let commit = text(&env.policy(&policy), "candidate");
    lose_evidence(&env);
    for entry in fs::read_dir(env.repo().join(".git/objects/pack")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "keep") {
            fs::remove_file(path).unwrap();
        }
    }
    env.git(&["reflog", "expire", "--expire=now", "--all"]);
    env.git(&["gc", "-q", "--prune=now"]);
    env.run("git", &["cat-file", "-e", &commit]).done().exits(1);
    let found = findings(&env, 2);
    assert_eq!((found.len(), &found[0]["repair"]), (1, &Value::Null), "{found:?}");
    let what = text(&found[0], "what");
    assert!(what.contains(&format!("object {commit} is missing")), "{what}");
    let advice = format!("git agentproto policy cancel {policy}");
    assert!(what.contains(&advice), "{what}");
    repair(&env).exits(2);
    env.ap(&["policy", "cancel", &policy]).exits(0);
    findings(&env, 0);
    goes_on(&env);
}

#[test]
fn a_log_larger_than_anything_of_ours_is_put_aside_without_being_read_whole() {
    let env = TestEnv::new();
    env.adopt("one");
    let log = agent(&env, "wal");
    let mut bytes = fs::read(&log).unwrap();
    bytes[..8192].fill(0);
    fs::write(&log, bytes).unwrap();
    File::options().write(true).open(&log).unwrap().set_len(1 << 40).unwrap();
    findings(&env, 2);
    repairs(&env, 1);
    assert_eq!(fs::metadata(agent(&env, "damaged/wal.1")).unwrap().len(), 1 << 40);
    fs::remove_file(agent(&env, "damaged/wal.1")).unwrap();
    goes_on(&env);
}

fn clear(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    if found.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

type Put = fn(&TestEnv, &Path);

/// What is put in the place of a file, each by a word.
const IN_PLACE: [(&str, Put); 8] = [
    ("nothing", |_, _| {}),
    ("an empty file", |_, path| fs::write(path, "").unwrap()),
    ("garbage", |_, path| fs::write(path, [0xa5; 9000]).unwrap()),
    ("words", |_, path| fs::write(path, "ref: refs/heads/nowhere\n").unwrap()),
    ("a hole", |_, path| File::create(path).unwrap().set_len(3 << 30).unwrap()),
    ("a directory", |_, path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("in it"), "kept").unwrap();
    }),
    ("a fifo", |env, path| drop(env.run("mkfifo", &[path]).done().exits(0))),
    ("a link", |_, path| symlink("/nonexistent/by/agentproto", path).unwrap()),
];

/// Every fourth of them, for who has no time; over the places each has its turn.
fn due(place: usize) -> impl Iterator<Item = (&'static str, Put)> {
    let all = IN_PLACE.into_iter().enumerate();
    all.filter(move |(at, _)| is_long() || (at + place).is_multiple_of(4)).map(|(_, put)| put)
}

/// The repairs that findings promise, and what they are about.
fn promised(report: &Value) -> BTreeSet<(String, String)> {
    let findings = report["findings"].as_array().unwrap().iter();
    let promise = |f: &Value| Some((text(f, "subject"), f["repair"].as_str()?.to_owned()));
    findings.filter_map(promise).collect()
}

/// What a dry run promises is done, and nothing more than it told of is left.
#[track_caller]
fn does_what_it_promised(env: &TestEnv, what: &str) {
    let told = env.ap(&["fsck", "--repair", "-n", "--json"]).json();
    let promises = promised(&told);
    let done = repair(env);
    let report = done.json();
    assert_eq!(report["notRepaired"], serde_json::json!([]), "{what}: {told}");
    let repaired = report["repaired"].as_array().unwrap().len();
    let repairs: BTreeSet<_> = promises.iter().map(|(_, repair)| repair).collect();
    assert!(repaired >= repairs.len(), "{what}: promised {promises:?}, done {report}");
    assert_eq!(promised(&report), BTreeSet::new(), "{what}: promised {promises:?}");
    let known: BTreeSet<String> =
        told["findings"].as_array().unwrap().iter().map(|f| text(f, "subject")).collect();
    for left in report["findings"].as_array().unwrap() {
        let subject = text(left, "subject");
        assert!(known.contains(&subject), "{what}: not told before: {left}");
        assert!(!promises.iter().any(|(s, _)| *s == subject), "{what}: promised: {left}");
    }
    let again = repair(env).exits(done.code()).json();
    assert_eq!(again["repaired"], serde_json::json!([]), "{what}: {again}");
}

#[test]
fn what_a_dry_run_promises_a_repair_does_whatever_lies_in_the_place_of_our_files() {
    let env = TestEnv::new();
    env.governed("f.txt");
    env.ap(&["gc"]).exits(0);
    env.awaiting("g.txt");
    let files = ["writer", "packs", "kept", "dropped", "recovered", "wal", "wal2", "lock"];
    let dirs = [
        "tmp", "packing", "merging", "seek", "live", "logs", "local", "slots", "output", "damaged",
    ];
    let below = |dir: &str| fs::read_dir(agent(&env, dir)).unwrap().next().unwrap().unwrap().path();
    let inner = [below("logs"), below("local"), below("seek")];
    let mut places: Vec<PathBuf> = files.iter().chain(&dirs).map(|n| agent(&env, n)).collect();
    places.extend(inner);
    for (at, path) in places.into_iter().enumerate() {
        for (word, put) in due(at) {
            let what = format!("{word} for {}", path.display());
            let held = (path.is_file()).then(|| fs::read(&path).unwrap());
            clear(&path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            put(&env, &path);
            does_what_it_promised(&env, &what);
            env.adopt("after");
            env.assert_no_gap();
            let logs = path.parent().is_some_and(|dir| dir.ends_with("logs"));
            if let Some(held) = held.filter(|_| logs || path.parent().unwrap().ends_with("local")) {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                clear(&path);
                fs::write(&path, held).unwrap();
            }
            clear(&agent(&env, "damaged"));
        }
    }
}

/// A repository with a landed and a waiting commit, and the names of its two chains; none where refs are in tables.
fn with_chains() -> Option<(TestEnv, String, String)> {
    let env = TestEnv::new();
    if env.is_reftable() {
        crate::house::skipped("refs are in tables");
        return None;
    }
    env.governed("f.txt");
    env.awaiting("g.txt");
    let journal = env.journal();
    let evidence = journal.replace("/journal/", "/evidence/");
    Some((env, journal, evidence))
}

#[test]
fn what_a_dry_run_promises_a_repair_does_whatever_lies_in_the_place_of_our_refs() {
    let Some((env, journal, evidence)) = with_chains() else { return };
    let notes = ["gates", "acks"].map(|notes| format!("refs/notes/agentproto/{notes}"));
    for with_log in [true, false] {
        for (at, name) in [&journal, &evidence, &notes[0], &notes[1]].into_iter().enumerate() {
            for (word, put) in due(at) {
                if !with_log {
                    ["wal", "wal2"].iter().for_each(|log| clear(&agent(&env, log)));
                }
                let path = env.repo().join(".git").join(name);
                clear(&path);
                put(&env, &path);
                does_what_it_promised(&env, &format!("{word} for {name}, log: {with_log}"));
                findings(&env, 0);
                env.adopt("after");
                env.assert_no_gap();
                clear(&agent(&env, "damaged"));
            }
        }
    }
}

#[test]
fn a_link_that_leads_nowhere_in_the_place_of_a_directory_of_our_refs_is_put_aside() {
    let Some((env, journal, evidence)) = with_chains() else { return };
    let above = |name: &str| name.rsplit_once('/').unwrap().0.to_owned();
    let dirs = ["refs/agentproto".to_owned(), above(&journal), above(&evidence)];
    for name in dirs {
        for to in ["/nonexistent/by/agentproto", "itself"] {
            let path = env.repo().join(".git").join(&name);
            let to = if to == "itself" { path.clone() } else { PathBuf::from(to) };
            clear(&path);
            symlink(&to, &path).unwrap();
            let told = env.ap(&["fsck", "--repair", "-n", "--json"]).json();
            let found = told["findings"].as_array().unwrap().iter();
            let found = found.map(|f| text(f, "what"));
            let is_told = found.filter(|what| what.contains("a symbolic link, not a directory"));
            assert_eq!(is_told.count(), 1, "{name}: {told}");
            does_what_it_promised(&env, &format!("{} for {name}", to.display()));
            let kept = agent(&env, "damaged").join(format!("{}.1", name.replace('/', "-")));
            assert_eq!(fs::read_link(kept).unwrap(), to);
            goes_on(&env);
            clear(&agent(&env, "damaged"));
        }
    }
}

//! `gc`: what the log holds becomes packs, old output goes, and nothing a person did not set is let go.
//!
//! Letting go of segments needs more events than a test makes: it is held by tests of the store and of the plan.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

#[track_caller]
fn gc(env: &TestEnv, args: &[&str]) -> Value {
    env.ap(&[&["gc", "--json"], args].concat()).exits(0).json()
}

fn span(report: &Value, field: &str) -> (u64, u64) {
    let number = |side: &str| report[field][side].as_u64().unwrap();
    (number("before"), number("after"))
}

fn code_of(out: &Output) -> String {
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    text(&error["error"], "code")
}

/// The output of the only gate that ran, made old.
fn old_log(env: &TestEnv) -> PathBuf {
    let dir = env.repo().join(".git/agentproto/logs");
    let path = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let at = SystemTime::now() - Duration::from_secs(10 * 24 * 3600);
    fs::File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
    path
}

#[test]
fn what_the_log_holds_becomes_packs_and_a_dry_run_touches_nothing() {
    let env = TestEnv::new();
    for label in ["one", "two", "three"] {
        env.adopt(label);
    }
    let before = env.snapshot();
    let log = fs::read(env.repo().join(".git/agentproto/wal")).unwrap();
    let told = gc(&env, &["--dry-run"]);
    assert_eq!((&told["dryRun"], span(&told, "logFrames")), (&Value::Bool(true), (3, 3)));
    assert_eq!(fs::read(env.repo().join(".git/agentproto/wal")).unwrap(), log);
    let done = gc(&env, &[]);
    assert_eq!((span(&done, "events"), span(&done, "segments")), ((3, 3), (1, 1)), "{done}");
    assert_eq!((span(&done, "logFrames"), span(&done, "packs").1), ((3, 0), 1), "{done}");
    assert_eq!(done["refs"], serde_json::json!([]));
    let again = gc(&env, &[]);
    assert_eq!(span(&again, "packBytes"), (span(&done, "packBytes").1, span(&done, "packBytes").1));
    before.assert_same(&env.snapshot(), "gc");
    env.adopt("four");
    env.assert_no_gap();
    env.git(&["fsck", "--strict"]);
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn output_of_gates_goes_by_the_age_a_person_set() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let log = old_log(&env);
    assert_eq!(gc(&env, &[])["logs"], 0, "thirty days where nothing is set");
    env.git(&["config", "agentproto.logRetention", "1s"]);
    assert_eq!(gc(&env, &[])["logs"], 0, "the repository has no say");
    env.global("agentproto.logRetention", "7d");
    assert_eq!(gc(&env, &["-n"])["logs"], 1);
    assert!(log.exists());
    assert_eq!(gc(&env, &[])["logs"], 1);
    assert!(!log.exists());
}

#[test]
fn a_dry_run_says_what_goes() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("a.txt", "changed\n");
    env.commit(&["a.txt"], &["true"]).exits(0);
    let (first, _) = env.begin_second_segment();
    env.global("agentproto.retention", "0s");
    let told = gc(&env, &["--dry-run"]);
    assert!(env.git(&["for-each-ref"]).contains(&first), "it went");
    let done = gc(&env, &[]);
    assert_eq!((span(&done, "segments"), span(&done, "events").1), ((2, 1), 1), "{done}");
    let refs = |report: &Value| -> BTreeSet<String> {
        report["refs"].as_array().unwrap().iter().map(Value::to_string).collect()
    };
    assert_eq!((&told["segments"], &told["events"]), (&done["segments"], &done["events"]));
    assert_eq!((refs(&told), refs(&told).len()), (refs(&done), 2));
    assert!(!env.git(&["for-each-ref"]).contains(&first), "it stayed");
}

#[test]
fn the_newest_segment_stays_however_old() {
    let env = TestEnv::new();
    env.governed("f.txt");
    env.global("agentproto.retention", "0s");
    let done = gc(&env, &[]);
    assert_eq!((span(&done, "segments"), &done["refs"]), ((1, 1), &serde_json::json!([])));
    env.ap(&["verify", "HEAD~1..HEAD"]).exits(0);
    env.global("agentproto.retention", "soon");
    assert_eq!(code_of(&env.ap(&["gc", "--json"]).exits(2)), "bad-setting");
}

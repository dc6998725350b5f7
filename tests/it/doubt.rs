//! Reading goes on where something is wrong, and never as if all were well; what is damaged takes nothing else with it.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use serde_json::Value;
use std::{fs, path::PathBuf};

fn agent(env: &TestEnv, below: &str) -> PathBuf {
    env.repo().join(".git/agentproto").join(below)
}

/// `status`, `log` and `events` for people and programs; each must say this on stderr, and answers of one object in it.
#[track_caller]
fn every_reader_says(env: &TestEnv, kind: &str, words: &str) {
    for command in ["status", "log", "events"] {
        for json in [false, true] {
            let mut args = vec![command];
            args.extend(json.then_some("--json"));
            let done = env.ap(&args).exits(0);
            assert!(done.err().contains(words), "{done}");
            if json && command != "log" {
                let told = done.json();
                let kinds: Vec<_> = told["notices"].as_array().unwrap().iter().collect();
                assert!(kinds.iter().any(|n| text(n, "kind") == kind), "{kind}: {told}");
            }
        }
    }
}

#[track_caller]
fn no_reader_says_anything(env: &TestEnv) {
    for command in ["status", "log", "events"] {
        let done = env.ap(&[command, "--json"]).exits(0);
        assert_eq!(done.err(), "", "{done}");
        assert!(!done.out().contains("notices"), "{done}");
    }
}

#[test]
fn a_journal_that_was_set_back_is_read_and_told() {
    let env = TestEnv::new();
    env.adopt("one");
    env.adopt("two");
    no_reader_says_anything(&env);
    let (journal, last) = (env.journal(), env.git(&["rev-parse", &env.journal()]));
    let earlier = env.git(&["rev-parse", &format!("{journal}~1")]);
    fs::remove_dir_all(agent(&env, "")).unwrap();
    env.git(&["update-ref", &journal, &earlier]);
    let words = format!("({last}), noted as its last one, is not in it");
    every_reader_says(&env, "journal-set-back", &words);
    assert!(env.ap(&["log"]).exits(0).out().contains("one"));
    // One that is gone altogether.
    env.spoil_ref(&journal, None);
    every_reader_says(&env, "journal-gone", "is gone: ");
    env.ap(&["fsck"]).exits(0);
    assert_eq!(env.git(&["rev-parse", &journal]), last);
    no_reader_says_anything(&env);
}

#[test]
fn a_log_that_cannot_be_used_is_told_by_whoever_reads_beside_it() {
    let env = TestEnv::new();
    env.adopt("one");
    let good = fs::read(agent(&env, "wal")).unwrap();
    fs::write(agent(&env, "wal"), "garbage").unwrap();
    every_reader_says(&env, "log-damaged", "the write-ahead log cannot be used");
    fs::write(agent(&env, "wal"), good).unwrap();
    no_reader_says_anything(&env);
}

#[test]
fn a_note_of_programs_that_is_empty_or_damaged_is_told_and_looked_for_anew() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--", "true"]);
    let file = agent(&env, "local").join(format!("{policy}.json"));
    let good = fs::read(&file).unwrap();
    assert_eq!(fs::read_dir(agent(&env, "local")).unwrap().count(), 1, "nothing staged is left");
    for damage in ["", "{", "[]"] {
        fs::write(&file, damage).unwrap();
        let shown = env.ap(&["policy", "show", &policy, "--json"]).exits(0);
        assert!(shown.err().contains(file.to_str().unwrap()), "{damage:?}: {shown}");
        assert!(shown.err().contains("is damaged"), "{damage:?}: {shown}");
        assert_eq!(text(&shown.json(), "policyId"), policy);
    }
    assert_eq!(env.turn_end(&session, &policy).code(), 0, "the gate runs all the same");
    fs::write(&file, good).unwrap();
    assert_eq!(env.ap(&["policy", "show", &policy]).exits(0).err(), "");
}

#[test]
fn damaged_output_of_a_gate_is_told_hides_nothing_else_and_is_put_aside() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script("loud", "echo words of the gate; exit 1");
    env.write("f.txt", "changed\n");
    let policy = text(&env.commit(&["f.txt"], &["./loud"]).exits(1).json(), "policyId");
    let log = fs::read_dir(agent(&env, "logs")).unwrap().next().unwrap().unwrap().path();
    env.ap(&["fsck"]).exits(0);
    fs::write(&log, "other words\n").unwrap();
    let show = |args: &[&str]| -> Output { env.ap(&[&["policy", "show", &policy], args].concat()) };
    for args in [&[][..], &["--json"]] {
        let shown = show(args).exits(0);
        let told = shown.err();
        assert!(
            told.contains("is damaged and not shown") && told.contains("its digest is"),
            "{shown}"
        );
        assert!(!shown.out().contains("other words"), "{shown}");
    }
    assert_eq!(show(&["--json"]).json()["lastGate"]["tail"], Value::Null);
    assert_eq!(text(&show(&["--json"]).json(), "reason"), "gate-red");
    let found = env.ap(&["fsck", "--json"]).exits(1).json();
    assert_eq!(text(&found["findings"][0], "subject"), log.display().to_string());
    env.ap(&["fsck", "--repair"]).exits(0);
    assert!(!log.exists());
    let kept =
        agent(&env, "damaged").join(format!("{}.1", log.file_name().unwrap().to_str().unwrap()));
    assert_eq!(fs::read_to_string(kept).unwrap(), "other words\n");
    assert_eq!(show(&[]).exits(0).err(), "");
}

/// The pack that holds an object, without extension.
fn pack_of(env: &TestEnv, object: &str) -> PathBuf {
    let dir = env.repo().join(".git/objects/pack");
    let packs = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path());
    let indices = packs.filter(|p| p.extension().is_some_and(|e| e == "idx"));
    let holds =
        |idx: &PathBuf| env.git(&["verify-pack", "-v", idx.to_str().unwrap()]).contains(object);
    indices.into_iter().find(holds).unwrap().with_extension("")
}

#[test]
fn what_nobody_can_read_is_not_signed_and_does_not_land() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let candidate = text(&env.policy(&policy), "candidate");
    let blob = env.git(&["rev-parse", &format!("{candidate}:f.txt")]);
    let pack = pack_of(&env, &blob).with_extension("pack");
    let (good, index) = (fs::read(&pack).unwrap(), fs::read(pack.with_extension("idx")).unwrap());
    let put = |bytes: Option<&[u8]>| {
        let _ = fs::remove_file(&pack);
        if let Some(bytes) = bytes {
            fs::write(&pack, bytes).unwrap();
            // Half of a pack is swept.
            let _ = fs::remove_file(pack.with_extension("idx"));
            fs::write(pack.with_extension("idx"), &index).unwrap();
        }
    };
    let mut wrong = good.clone();
    let middle = 12..wrong.len() - 20;
    wrong[middle].iter_mut().for_each(|b| *b ^= 0xff);
    let before = env.kinds();
    for damage in [None, Some(wrong.as_slice())] {
        put(damage);
        let found = env.ap(&["fsck", "--json"]).exits(2).json();
        let about =
            |f: &&Value| text(f, "subject") == policy && text(f, "code") == "candidate-unreadable";
        assert!(found["findings"].as_array().unwrap().iter().any(|f| about(&f)), "{found}");
        let refused = env.ap(&["ack", &policy, "--yes"]).exits(2);
        assert!(refused.err().contains("[candidate-unreadable]"), "{refused}");
        let next = format!("git agentproto policy cancel {policy}");
        for look in [&["status"][..], &["policy", "show", &policy]] {
            let said = env.ap(look).exits(0).out();
            assert!(said.contains("is lost: ") && said.contains(&next), "{said}");
        }
        let told = env.ap(&["status", "--json"]).exits(0).json();
        assert!(text(&told["acks"][0], "lost").contains(&candidate), "{told:#}");
        assert_eq!(text(&told["acks"][0], "nextStep"), next);
        assert_eq!(env.kinds(), before, "something was recorded");
    }
    // It is damaged between the answer and the landing.
    put(Some(&good));
    let lock = env.held_landing(&policy);
    let tip = env.git(&["rev-parse", "main"]);
    put(Some(&wrong));
    // The killed landing had got the index.
    fs::remove_file(&lock).unwrap();
    fs::hard_link(agent(&env, &format!("tmp/index-lock.{policy}..")), &lock).unwrap();
    env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(1);
    let shown = env.policy(&policy);
    assert_eq!(
        (text(&shown, "status"), text(&shown, "reason")),
        ("blocked".into(), "candidate-unreadable".into())
    );
    assert!(text(&shown, "because").contains(&candidate), "{shown}");
    assert_eq!(env.git(&["rev-parse", "main"]), tip);
    assert!(!lock.exists(), "the index is locked for ever");
    put(Some(&good));
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn what_a_person_is_told_to_look_at_is_what_would_land() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let candidate = text(&env.policy(&policy), "candidate");
    let lie = env.git(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "harmless"]);
    env.git(&["replace", &candidate, &lie]);
    assert!(env.git(&["show", &candidate]).contains("harmless"));
    let hint = env.ap(&["ack", &policy]).exits(5).err();
    let told = hint.split("review: git ").nth(1).unwrap().split(';').next().unwrap();
    let shown = env.git(&told.split_whitespace().collect::<Vec<_>>());
    assert!(shown.contains("+f.txt") && !shown.contains("harmless"), "{hint}\n{shown}");
}

/// A fetch with a depth writes such a file into a whole clone.
#[test]
fn a_history_that_a_file_cuts_short_is_not_taken_for_all_of_it() {
    let env = TestEnv::new();
    env.governed("one.txt");
    env.write("a.txt", "by hand\n");
    env.git(&["commit", "-qam", "by hand"]);
    env.governed("two.txt");
    env.ap(&["verify", "main"]).exits(1);
    let bare = env.path("bare.git");
    env.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    let url = format!("file://{}", bare.display());
    env.git(&["fetch", "-q", "--depth=1", &url, "main"]);
    assert!(env.repo().join(".git/shallow").exists(), "git wrote none");
    for args in [&["verify"][..], &["verify", "main"], &["verify", "main~1..main"]] {
        let out = env.ap(args).exits(2);
        assert!(out.err().contains("[history-cut]"), "{out}");
    }
    assert!(env.ap(&["fsck"]).exits(0).out().contains("shallow"), "fsck tells of it");
    env.git(&["fetch", "-q", "--unshallow", &url]);
    env.ap(&["verify", "main"]).exits(1);
}

//! Failure cases about the journal and those who wait for it.

use crate::{env::TestEnv, house::text};
use serde_json::Value;
use std::{collections::BTreeSet, fs};

fn events(env: &TestEnv, more: &[&str]) -> Value {
    let args: Vec<_> = ["events", "--json"].iter().chain(more).copied().collect();
    env.ap(&args).exits(0).json()
}

fn seqs(page: &Value) -> Vec<u64> {
    page["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect()
}

/// Appends that many events of a session.
fn report(env: &TestEnv, session: &str, times: usize) {
    (0..times).for_each(|_| drop(env.ap(&["session", "report", session, "command-done"]).exits(0)));
}

#[test]
fn case_135_a_cursor_before_what_is_kept_is_refused() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    report(&env, &session, 4);
    let old = text(&events(&env, &["--limit", "2"]), "next");
    let (first, second) = env.begin_second_segment();
    let all = events(&env, &["--since", &old]);
    assert_eq!(seqs(&all), [3, 4, 5], "both segments read as one journal");
    assert_eq!(env.ap(&["verify", "--json"]).json()["journals"][0]["ok"], true);

    env.git(&["update-ref", "-d", &first]);
    let writer = second.rsplit('/').nth(1).unwrap();
    for since in ["0", "3", &format!("{writer}@2"), &old, "1h"] {
        let out = env.ap(&["events", "--since", since]).exits(4);
        assert!(out.err().contains("segment-dropped"), "--since {since}: {out}");
    }
    for more in [&[][..], &["--since", "4"]] {
        assert_eq!(seqs(&events(&env, more)), [5], "{more:?}");
    }
    let log = env.ap(&["log", &session]).exits(0);
    assert_eq!(log.out().lines().count(), 1, "{log}");
    assert!(log.err().contains("before event 5 is not kept"), "{log}");

    // What is kept holds, and nobody says more than that.
    let journal = &env.ap(&["verify", "--json"]).json()["journals"][0];
    assert_eq!((&journal["ok"], &journal["from"]), (&true.into(), &5.into()));
    let fsck = env.ap(&["fsck"]).exits(1);
    assert!(fsck.out().contains(&first), "its last entry is still here: {fsck}");
    env.git(&["reflog", "expire", "--expire=now", "--all"]);
    env.git(&["gc", "-q", "--prune=now"]);
    env.ap(&["fsck"]).exits(0);
    let out = env.ap(&["events", "--since", &old]).exits(4);
    assert!(out.err().contains("segment-dropped"), "{out}");
    report(&env, &session, 1);
    assert_eq!(seqs(&events(&env, &[])), [5, 6]);
}

#[test]
fn case_137_numbers_go_on_after_kills() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    for _ in 0..10 {
        let mut killed = env.binary(&["session", "report", &session, "command-done"]).start();
        report(&env, &session, 1);
        // It is anywhere between its first step and its end.
        let _ = killed.kill();
        killed.wait().unwrap();
    }
    let seqs = seqs(&events(&env, &[]));
    assert!(seqs.len() >= 11, "{seqs:?}");
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    env.assert_no_gap();
}

#[test]
fn case_138_what_happened_between_the_look_and_the_wait_counts() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let cursor = text(&events(&env, &["--since", "tip"]), "next");
    env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    report(&env, &session, 3);
    let wait = ["wait", &session, "--until", "turn-end", "--timeout", "30s", "--json"];
    let with_cursor: Vec<_> = wait.iter().copied().chain(["--since", &cursor]).collect();
    assert_eq!(env.ap(&with_cursor).exits(0).json()["met"], true);
    assert_eq!(env.ap(&wait).exits(0).json()["met"], true, "already true");
    // The page goes on exactly where the cursor was taken.
    assert_eq!(seqs(&events(&env, &["--since", &cursor])), [2, 3, 4, 5]);
}

#[test]
fn case_140_a_torn_end_hides_nothing() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    report(&env, &session, 3);
    let git = env.repo().join(".git");
    let journal = env.journal();
    let tip = env.git(&["rev-parse", &journal]);
    let writer = journal.rsplit('/').nth(1).unwrap();
    let object = git.join("objects").join(&tip[..2]).join(&tip[2..]);
    env.spoil_ref(&journal, Some(&tip[..33]));
    assert_eq!(seqs(&events(&env, &[])), [1, 2, 3, 4]);
    for path in [git.join("agentproto/seek").join(writer), object] {
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
        assert_eq!(seqs(&events(&env, &[])), [1, 2, 3, 4], "{}", path.display());
    }
    report(&env, &session, 1);
    assert_eq!(seqs(&events(&env, &["--since", "2"])), [3, 4, 5]);
    env.ap(&["fsck"]).exits(0);
    env.assert_no_gap();
}

#[test]
fn case_141_writers_at_once_never_mix() {
    const WRITERS: usize = 8;
    let env = TestEnv::new();
    let worktrees: Vec<_> = (0..2).map(|i| env.worktree(&format!("w{i}"))).collect();
    let sessions: Vec<_> = worktrees
        .iter()
        .map(|w| env.adopt_in(w, w.file_name().unwrap().to_str().unwrap()))
        .collect();
    // Each event is far longer than what a pipe or a page takes at once.
    let long = "x".repeat(12_000);
    std::thread::scope(|scope| {
        for n in 0..WRITERS {
            let (env, long) = (&env, &long);
            let (worktree, session) = (&worktrees[n % 2], &sessions[n % 2]);
            scope.spawn(move || {
                let asked = format!(r#"{{"id":"q{n}","kind":"question","text":"{long}{n}"}}"#);
                let data = format!(r#"{{"requests":[{asked}]}}"#);
                let args = ["session", "report", session, "awaiting-input", "--data", &data];
                env.ap_in(worktree, &args).exits(0);
            });
        }
    });
    let page = events(&env, &["--type", "awaiting-input"]);
    assert_eq!(seqs(&page), (3..3 + WRITERS as u64).collect::<Vec<_>>());
    let asked: BTreeSet<String> =
        page["events"].as_array().unwrap().iter().map(Value::to_string).collect();
    for n in 0..WRITERS {
        // Longer than what an id may end with by chance.
        let whole = format!("{}{n}\"", "x".repeat(100));
        assert_eq!(asked.iter().filter(|e| e.contains(&whole)).count(), 1, "event of writer {n}");
    }
    env.assert_no_gap();
}

#[test]
fn case_143_waiting_for_what_is_over_ends() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    env.ap(&["wait", &session, "--until", "turn-end", "--timeout", "0"]).exits(3);
    let wait = ["wait", &session, "--until", "turn-end", "--timeout", "60s", "--json"];
    let waiter = env.tool(&wait).start();
    env.ap(&["session", "report", &session, "exited"]).exits(0);
    let ended = waiter.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(4));
    let answer: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(text(&answer, "code"), "can-never-be");
    let unknown = env.ap(&["wait", "nosuch", "--timeout", "60s"]).exits(4);
    assert!(unknown.err().contains("no-such-entity"), "{unknown}");
}

#[test]
fn case_144_a_clock_set_back_reorders_nothing() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    report(&env, &session, 2);
    // The clock was an hour behind while the second event was recorded.
    env.rewrite_journal(|at, raw| {
        if at != 1 {
            return raw;
        }
        let line = raw.lines().find(|l| l.starts_with("At: ")).unwrap().to_owned();
        raw.replace(&line, "At: 2020-01-01T00:00:00.000Z")
    });
    let all = events(&env, &[]);
    assert_eq!(seqs(&all), [1, 2, 3]);
    assert_eq!(text(&all["events"][1], "at"), "2020-01-01T00:00:00.000Z");
    // It is said once, by whoever shows the two, and by nobody else.
    let said = "the clock was set back before event 2";
    assert_eq!(all["clockSetBackAt"], 2);
    for args in [&["events"][..], &["log"], &["log", &session], &["events", "--since", "1"]] {
        let out = env.ap(args).exits(0);
        assert_eq!(out.err().matches(said).count(), 1, "{args:?}: {out}");
    }
    let after = events(&env, &["--since", "2"]);
    assert_eq!((seqs(&after), after.get("clockSetBackAt")), (vec![3], None));
    assert!(!env.ap(&["log", "-n", "2"]).exits(0).err().contains("set back"));
}

/// Where the clock was set back, what is later than a time does not lie behind one place of the journal.
#[test]
fn since_a_time_leaves_out_nothing_that_is_later() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    report(&env, &session, 4);
    let hours = [10, 12, 8, 9, 13];
    env.rewrite_journal(|at, raw| {
        let line = raw.lines().find(|l| l.starts_with("At: ")).unwrap().to_owned();
        raw.replace(&line, &format!("At: 2020-01-01T{:02}:00:00.000Z", hours[at]))
    });
    for (hour, first) in [(7, 1), (10, 2), (11, 2), (12, 5)] {
        let since = format!("2020-01-01T{hour:02}:00:00Z");
        let told = seqs(&events(&env, &["--since", &since]));
        assert_eq!(told, (first..=5).collect::<Vec<_>>(), "--since {since}");
    }
    assert_eq!(seqs(&events(&env, &["--since", "2020-01-01T13:00:00Z"])), Vec::<u64>::new());
}

/// An event that names itself as the one before it.
#[test]
fn a_story_that_goes_round_ends_with_a_word() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    report(&env, &session, 1);
    env.rewrite_journal(|_, raw| raw.replace("\nPrev: 1\n", "\nPrev: 2\n"));
    let out = env.ap(&["log", &session]).exits(2);
    assert!(out.err().contains("journal-corrupt"), "{out}");
}

#[test]
fn case_145_a_page_with_a_limit_loses_nothing() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let mut cursor = text(&events(&env, &["--since", "tip"]), "next");
    report(&env, &session, 30);
    let mut read = Vec::new();
    loop {
        let page = events(&env, &["--since", &cursor, "--limit", "7"]);
        let seqs = seqs(&page);
        assert!(seqs.len() <= 7 && (page["more"] == true || seqs.len() < 7), "{page:#}");
        cursor = text(&page, "next");
        read.extend(seqs);
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(read, (2..=31).collect::<Vec<_>>());
    // A filter that lets nothing through has examined all the same, and loses nothing that comes.
    let nothing = events(&env, &["--since", "1", "--type", "turn-end", "--limit", "5"]);
    assert_eq!((seqs(&nothing), text(&nothing, "next")), (vec![], cursor.clone()));
    report(&env, &session, 1);
    assert_eq!(seqs(&events(&env, &["--since", &cursor, "--type", "command-done"])), [32]);
}

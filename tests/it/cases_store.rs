//! Failure cases about keeping records.

use crate::{
    env::{Output, TestEnv},
    house::{text, value},
};
use serde_json::Value;
use std::path::PathBuf;

const PARALLEL: usize = 8;
const FOREIGN_NOTES: usize = 20;

/// A policy that waits for its ack on a branch of its own.
struct Waiting {
    worktree: PathBuf,
    policy: String,
}

fn waiting(env: &TestEnv) -> Vec<Waiting> {
    let prepared: Vec<_> = (0..PARALLEL)
        .map(|i| {
            let worktree = env.worktree(&format!("w{i}"));
            let session = env.adopt_in(&worktree, &format!("s{i}"));
            (worktree, session)
        })
        .collect();
    // Gates end side by side too: their lines meet in one notes ref.
    std::thread::scope(|scope| {
        let running: Vec<_> = prepared
            .into_iter()
            .map(|(worktree, session)| {
                scope.spawn(move || {
                    let policy = env.awaiting_of(&session, &worktree, "f.txt");
                    Waiting { worktree, policy }
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Acks all of them at once; each has to be recorded.
fn ack_all(env: &TestEnv, waiting: &[Waiting]) {
    std::thread::scope(|scope| {
        for w in waiting {
            scope.spawn(|| env.ap_in(&w.worktree, &["ack", &w.policy, "--yes"]).exits(0));
        }
    });
}

fn assert_receipts(env: &TestEnv, waiting: &[Waiting]) {
    for w in waiting {
        let commit = text(&env.policy(&w.policy), "commitSha");
        assert_eq!(env.git_in(&w.worktree, &["rev-parse", "HEAD"]), commit);
        for (name, lead) in
            [("gates", "agentproto-gate/1 pass "), ("acks", "agentproto-ack/1 approve ")]
        {
            let lines = env.note_lines(name, &commit, lead);
            assert_eq!(lines.len(), 1, "{name} note of {commit}: {lines:?}");
            assert!(lines[0].contains(&w.policy), "{}", lines[0]);
        }
    }
    env.assert_no_gap();
    env.git(&["fsck", "--strict"]);
}

/// The worktrees are git's own here: commands that make and remove them, and the records they keep, come with
/// a later unit and bring their part of the case along.
#[test]
fn case_117_tables_packed_refs_and_linked_worktrees_are_seen_as_git_sees_them() {
    for format in ["reftable", "files"] {
        let env = TestEnv::bare();
        env.make_repo_with("r", &["--ref-format", format]);
        env.ap(&["init", "--yes"]).exits(0);
        let before = env.git(&["for-each-ref"]);
        assert!(!before.contains("agentproto"), "init writes no ref: {before}");
        env.git(&["pack-refs", "--all"]);
        let linked = env.worktree("t1");
        for (dir, name) in [(env.repo(), "main"), (linked.clone(), "t1")] {
            let session = env.adopt_in(&dir, name);
            let policy = env.awaiting_of(&session, &dir, "b.txt");
            env.git(&["pack-refs", "--all"]);
            env.ap_in(&dir, &["ack", &policy, "--yes"]).exits(0);
            env.ap_in(&dir, &["wait", &policy, "--until", "done", "--timeout", "60s"]).exits(0);
            let commit = text(&env.policy(&policy), "commitSha");
            assert_eq!(env.git(&["rev-parse", name]), commit, "{format} {name}");
            assert_eq!(env.git_in(&dir, &["status", "--porcelain"]), "", "{format} {name}");
            env.git(&["pack-refs", "--all"]);
            for asked in ["HEAD", "HEAD~1..HEAD"] {
                let told = env.ap_in(&dir, &["verify", asked, "--json"]).exits(0).json();
                assert_eq!(text(&told["commits"][0], "sha"), commit, "{format} {name} {told:#}");
            }
        }
        env.ap(&["verify", "nowhere"]).exits(4);
        env.assert_no_gap();
        env.git(&["fsck", "--strict"]);
        env.git(&["worktree", "remove", linked.to_str().unwrap()]);
        env.ap(&["verify", "t1"]).exits(0);
        // Where the refs are in tables, nothing was written where git does not look.
        let stray = env.repo().join(".git/refs/agentproto").exists();
        assert!(format == "files" || !stray);
    }
}

#[test]
fn case_107_parallel_receipts_are_all_kept() {
    let env = TestEnv::new();
    let waiting = waiting(&env);
    ack_all(&env, &waiting);
    // Nothing is asked for in between: what a command reported is there.
    assert_receipts(&env, &waiting);
}

#[test]
fn case_107_foreign_notes_and_ours_survive_each_other() {
    let env = TestEnv::new();
    let targets: Vec<_> = (0..FOREIGN_NOTES)
        .map(|i| {
            env.git(&["commit", "-q", "--allow-empty", "-m", &format!("c{i}")]);
            env.git(&["rev-parse", "HEAD"])
        })
        .collect();
    let waiting = waiting(&env);
    let written = std::thread::scope(|scope| {
        // git's own writer has no compare-and-swap, so a single one of it runs.
        let foreign = scope.spawn(|| {
            let add = |c: &&String| {
                let args = ["notes", "--ref=agentproto/acks", "add", "-m", "seen by a person", c];
                env.run("git", &args).done().code() == 0
            };
            targets.iter().filter(add).collect::<Vec<_>>()
        });
        ack_all(&env, &waiting);
        foreign.join().unwrap()
    });
    assert!(written.len() >= FOREIGN_NOTES / 2, "only {} foreign notes got through", written.len());
    for commit in written {
        assert_eq!(env.note_lines("acks", commit, "seen by a person").len(), 1, "note of {commit}");
    }
    // What git's writer dropped of ours comes back with the next command that touches the policy.
    for w in &waiting {
        env.ap(&["wait", &w.policy, "--until", "done", "--timeout", "30s"]).exits(0);
    }
    assert_receipts(&env, &waiting);
}

#[test]
fn case_118_ids_of_both_widths_work_whole_and_nothing_matches_by_prefix() {
    for (hash, digits) in [("sha1", 40), ("sha256", 64)] {
        let env = TestEnv::of_hash(hash);
        let policy = env.awaiting("f.txt");
        let candidate = text(&env.policy(&policy), "candidate");
        assert_eq!(candidate.len(), digits, "{candidate}");
        assert_no_other_candidate_is_acked(&env, &policy, &candidate);
        env.ap(&["ack", &policy, "--yes", "--candidate", &candidate]).exits(0);
        env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
        assert_eq!(env.git(&["rev-parse", "main"]), candidate);
        for (name, field) in [("gates", "tree"), ("acks", "candidate")] {
            let line = env.note_lines(name, &candidate, "agentproto-").remove(0);
            assert_eq!(value(&line, field).len(), digits, "{line}");
        }
        for round in ["as written", "after git's own clean-up"] {
            assert_found_by_its_own_digits_alone(&env, &candidate, round);
            env.git(&["gc", "-q", "--prune=now"]);
        }
        env.ap(&["fsck"]).exits(0);
        env.git(&["fsck", "--strict"]);
    }
}

/// The code a refused command says.
fn code_of(out: &Output) -> String {
    let error: Value = serde_json::from_slice(&out.stderr).unwrap_or_else(|e| panic!("{e}: {out}"));
    text(&error["error"], "code")
}

/// Ids that share digits with `id` and are not it: cut short, cut and filled up, of the other width.
fn others(id: &str) -> Vec<String> {
    let fill = |kept: usize, digits: usize| format!("{}{}", &id[..kept], "f".repeat(digits - kept));
    let (own, other) = if id.len() == 40 { (40, 64) } else { (64, 40) };
    vec![fill(39, own), fill(20, own), fill(20, other), fill(39, other), fill(40.min(other), other)]
        .into_iter()
        .filter(|o| !id.starts_with(o.as_str()))
        .collect()
}

fn assert_no_other_candidate_is_acked(env: &TestEnv, policy: &str, candidate: &str) {
    let before = env.snapshot();
    let ack = |id: &str| env.ap(&["ack", policy, "--yes", "--candidate", id, "--json"]);
    for short in [&candidate[..7], &candidate[..39]] {
        assert_eq!(code_of(&ack(short)), "usage", "{short}");
    }
    // All digits of an id of the other width.
    let cut = candidate.get(..40).filter(|cut| *cut != candidate).map(str::to_owned);
    for other in others(candidate).into_iter().chain(cut) {
        assert_eq!(code_of(&ack(&other)), "stale", "{other}");
    }
    before.assert_same(&env.snapshot(), "acks of other ids");
}

fn assert_found_by_its_own_digits_alone(env: &TestEnv, commit: &str, round: &str) {
    for text in [commit, &commit[..12], &commit[..39]] {
        let out = env.ap(&["verify", &format!("{text}^..{text}"), "--json"]).exits(0).json();
        assert_eq!(out["commits"][0]["sha"], commit, "{round}: {text}");
    }
    for text in others(commit).into_iter().chain(["deadbeef".to_owned()]) {
        let out = env.ap(&["verify", &text, "--json"]).exits(4);
        assert_eq!(code_of(&out), "no-such-revision", "{round}: {text}");
    }
    let tip = env.git(&["rev-parse", &env.journal()]);
    env.ap(&["events", "--since", &tip, "--json"]).exits(0);
    for other in others(&tip) {
        let out = env.ap(&["events", "--since", &other, "--json"]);
        assert_eq!(code_of(&out), "no-such-cursor", "{round}: {other}");
    }
}

//! Failure cases about keeping records.

use crate::{env::TestEnv, house::text};
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

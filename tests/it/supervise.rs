//! `supervise --once`: what others left to do is done, once.

use crate::{env::TestEnv, house::text};
use serde_json::json;

/// A policy whose gate is due and that nobody performs.
fn due(env: &TestEnv, label: &str) -> String {
    let session = env.adopt(label);
    let policy = env.attach(&session, &["--label", &format!("p-{label}"), "--", "true"]);
    env.ap(&["session", "report", &session, "turn-end", "--no-perform"]).exits(0);
    assert_eq!(text(&env.policy(&policy), "status"), "gating");
    policy
}

#[test]
fn what_is_due_is_done_for_every_policy_and_told() {
    let env = TestEnv::new();
    let (one, two) = (due(&env, "one"), due(&env, "two"));
    let waiting = env.attach(&env.adopt("three"), &["--", "true"]);
    let told = env.ap(&["supervise", "--once", "--json"]).exits(0).json();
    let mut done: Vec<String> =
        told["policies"].as_array().unwrap().iter().map(|p| text(p, "policyId")).collect();
    done.sort();
    let mut both = vec![one.clone(), two];
    both.sort();
    assert_eq!(done, both, "{told:#}");
    assert_eq!(text(&env.policy(&one), "status"), "done");
    assert_eq!(text(&env.policy(&waiting), "status"), "watching");
    let before = env.snapshot();
    let again = env.ap(&["supervise", "--once", "--json"]).exits(0).json();
    assert_eq!(again["policies"], json!([]));
    assert_eq!(env.ap(&["supervise", "--once"]).exits(0).out(), "nothing was due\n");
    before.assert_same(&env.snapshot(), "nothing was due");
    env.ap(&["supervise"]).exits(129);
}

#[test]
fn two_at_once_do_it_once() {
    let env = TestEnv::new();
    env.script("slow.sh", "sleep 0.3\necho ran >> \"$(git rev-parse --git-common-dir)/ran\"\n");
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--", "./slow.sh"]);
    env.ap(&["session", "report", &session, "turn-end", "--no-perform"]).exits(0);
    let start = || env.tool(&["supervise", "--once"]).start();
    for mut child in [start(), start()] {
        assert!(child.wait().unwrap().success());
    }
    env.ap(&["wait", &policy]).exits(0);
    assert_eq!(std::fs::read_to_string(env.repo().join(".git/ran")).unwrap(), "ran\n");
}

#[test]
fn one_that_cannot_go_on_holds_up_no_other() {
    let env = TestEnv::new();
    let (stuck, free) = (due(&env, "stuck"), due(&env, "free"));
    // In the place of what says who performs it.
    let live = env.repo().join(format!(".git/agentproto/live/gate.{stuck}.1"));
    std::fs::create_dir_all(&live).unwrap();
    let out = env.ap(&["supervise", "--once"]).exits(2);
    assert!(out.out().contains("p-stuck: gating: ") && out.out().contains("[not-a-"), "{out}");
    assert_eq!(text(&env.policy(&free), "status"), "done");
    std::fs::remove_dir(live).unwrap();
    env.ap(&["supervise", "--once"]).exits(0);
    assert_eq!(text(&env.policy(&stuck), "status"), "done");
}

//! The journal as programs and people read it: where a reader begins, what a stream does, when it ends.

use crate::{
    env::{PATIENCE, TestEnv, command_lines, wait_for},
    house::text,
};
use serde_json::Value;
use std::fs;

fn seqs(env: &TestEnv, more: &[&str]) -> Vec<u64> {
    let args: Vec<_> = ["events", "--json"].iter().chain(more).copied().collect();
    let answer = env.ap(&args).exits(0).json();
    answer["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect()
}

#[test]
fn a_reader_begins_where_it_says() {
    let env = TestEnv::new();
    let empty = env.ap(&["events", "--json"]).exits(0).json();
    assert_eq!((&empty["next"], &empty["more"]), (&Value::Null, &Value::Bool(false)));

    let session = env.adopt("s");
    for _ in 0..3 {
        env.ap(&["session", "report", &session, "command-done"]).exits(0);
    }
    let all = env.ap(&["events", "--json"]).exits(0).json();
    let second = text(&all["events"][1], "cursor");
    let third_at = text(&all["events"][2], "at");
    let writer = env.journal();
    let writer = writer.rsplit('/').nth(1).unwrap();
    for (since, want) in [
        (second.as_str(), &[3u64, 4] as &[u64]),
        (&format!("{writer}@2"), &[3, 4]),
        ("2", &[3, 4]),
        ("0", &[1, 2, 3, 4]),
        (&third_at, &[4]),
        ("1h", &[1, 2, 3, 4]),
        ("0s", &[]),
        ("tip", &[]),
    ] {
        assert_eq!(seqs(&env, &["--since", since]), want, "--since {since}");
    }
    assert_eq!(seqs(&env, &["--session", "s", "--limit", "2"]), [1, 2]);
    for unknown in ["99", "aaaaaaaaaaaa@1", &format!("{writer}@99"), &"1".repeat(40)] {
        let out = env.ap(&["events", "--since", unknown]).exits(4);
        assert!(out.err().contains("no-such-cursor"), "{out}");
    }
    // An event of the same number in another journal is no place in this one.
    let raw = env.git(&["cat-file", "commit", &second]).replace("command-done", "turn-start");
    let hash = env.run("git", &["hash-object", "-t", "commit", "-w", "--stdin"]);
    let other = hash.stdin(format!("{raw}\n")).done().exits(0).out();
    assert_ne!(other.trim_end(), second);
    let out = env.ap(&["events", "--since", other.trim_end()]).exits(4);
    assert!(out.err().contains("no-such-cursor"), "{out}");
}

#[test]
fn an_event_says_what_it_is_about() {
    let env = TestEnv::new();
    let (policy, commit) = env.governed("f.txt");
    let all = env.ap(&["events", "--policy", &policy, "--json"]).exits(0).json();
    let of = |kind: &str| {
        let found = all["events"].as_array().unwrap().iter().find(|e| e["kind"] == kind);
        found.unwrap_or_else(|| panic!("no {kind} in {all:#}")).clone()
    };
    for event in all["events"].as_array().unwrap() {
        assert_eq!(
            (text(event, "policyId"), text(event, "source")),
            (policy.clone(), "cli".into())
        );
        assert!(text(event, "sessionId").starts_with("ses_"));
        env.git(&["cat-file", "-e", &text(event, "cursor")]);
    }
    assert_eq!(text(&of("policy:passed"), "verdict"), "pass");
    assert_eq!(text(&of("policy:committed"), "commit"), commit);
    let turn = env.ap(&["events", "--type", "turn-end", "--json"]).exits(0).json();
    assert_eq!(
        (&turn["events"][0]["turn"], &turn["events"][0]["reason"]),
        (&1.into(), &"completed".into())
    );
}

#[test]
fn the_log_of_an_entity_is_its_own_story_newest_first() {
    let env = TestEnv::new();
    let (policy, _) = env.governed("f.txt");
    env.governed("g.txt");
    let kinds = |args: &[&str]| -> Vec<String> {
        let out = env.ap(args).exits(0).out();
        out.lines()
            .map(|l| l.split_whitespace().find(|w| w.contains(':')).unwrap().to_owned())
            .collect()
    };
    let story = ["committed", "acked", "commit-ready", "passed", "gating", "attached"];
    assert_eq!(kinds(&["log", &policy]), story.map(|k| format!("policy:{k}")));
    let mut all = kinds(&["log"]);
    all.reverse();
    assert_eq!(all, env.kinds());
}

/// A follower in the background whose command line holds `mark`; its stdout goes to a file.
fn follower(env: &TestEnv, mark: &str) -> (std::process::Child, std::path::PathBuf) {
    let file = env.path("followed");
    let out = fs::File::create(&file).unwrap();
    let args =
        ["events", "--follow", "--json", "--since", "0", "--type", "session:*", "--type", mark];
    (env.tool(&args).stdout(out).start(), file)
}

#[test]
fn a_stream_shows_what_comes_and_ends_with_its_wrapper() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let mark = format!("mark:{}", std::process::id());
    let (mut wrapper, file) = follower(&env, &mark);
    let lines = || fs::read_to_string(&file).unwrap().lines().count();
    wait_for("the past", PATIENCE, || (lines() == 1).then_some(()));
    env.ap(&["session", "report", &session, "command-done"]).exits(0);
    wait_for("what comes", PATIENCE, || (lines() == 2).then_some(()));
    let last = fs::read_to_string(&file).unwrap();
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    assert_eq!(text(&last, "schema"), "agentproto/event/1");
    assert_eq!(text(&last, "kind"), "session:command-done");

    let ours = || command_lines().iter().any(|l| l.contains("git-agentproto") && l.contains(&mark));
    assert!(ours(), "it does not run");
    wrapper.kill().unwrap();
    wrapper.wait().unwrap();
    wait_for("the follower to be gone", PATIENCE, || (!ours()).then_some(()));
}

#[test]
fn a_stream_ends_quietly_when_nobody_reads_though_nothing_comes() {
    let env = TestEnv::new();
    env.adopt("s");
    for command in [&["events", "--follow", "--since", "tip"] as &[&str], &["log", "--follow"]] {
        let mut child = env.tool(command).start();
        drop(child.stdout.take());
        let ended = wait_for("the end", PATIENCE, || child.try_wait().unwrap());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!(said, "", "{command:?} ended with {ended}");
    }
}

#[test]
fn a_stream_with_a_limit_ends_by_itself() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let out = env.ap(&["events", "--follow", "--limit", "3", "--json"]).exits(0).out();
    assert_eq!(out.lines().count(), 3, "{out}");
}

#[test]
fn waiting_for_all_tells_how_each_stands() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let red = env.attach(&session, &["--", "false"]);
    let green = env.attach(&session, &["--", "true"]);
    env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    let waiting = env.awaiting("f.txt");
    let args = ["wait", "--all", "--timeout", "30s", &green, &waiting, &red];
    let said = env.ap(&args).exits(1).out();
    for line in [
        format!("{red} is blocked"),
        format!("{green} is done"),
        format!("{waiting} is awaiting-ack"),
        format!("next: git agentproto policy show {red}"),
    ] {
        assert!(said.lines().any(|l| l == line), "{line} is not in:\n{said}");
    }
    let told = env.ap(&[&args[..], &["--json"]].concat()).exits(1).json();
    let states = told["targets"].as_array().unwrap();
    let states: Vec<_> = states.iter().map(|t| (text(t, "target"), text(t, "state"))).collect();
    let want = [(green, "done"), (waiting, "awaiting-ack"), (red, "blocked")];
    assert_eq!(states, want.map(|(id, state)| (id, state.to_owned())));
}

#[test]
fn waiting_for_nothing_in_particular_means_the_open_policies() {
    let env = TestEnv::new();
    env.ap(&["wait", "--timeout", "0s"]).exits(4);
    let policy = env.awaiting("f.txt");
    let answer = env.ap(&["wait", "--timeout", "0", "--json"]).exits(5).json();
    assert_eq!((text(&answer, "target"), text(&answer, "state")), (policy, "awaiting-ack".into()));
    env.ap(&["wait", "nobody"]).exits(4);
    env.ap(&["wait", "--until", "finished"]).exits(129);
}

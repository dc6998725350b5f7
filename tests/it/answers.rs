//! Answers and what becomes of them: branches that move under them, several people asked, policies that end by
//! themselves, lines that come by a note.

use crate::{
    env::{PATIENCE, TestEnv, command_lines, wait_for},
    house::{text, value},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{fmt::Write as _, fs, path::Path};

fn status(env: &TestEnv, policy: &str) -> String {
    text(&env.policy(policy), "status")
}

/// An empty commit on `main`.
fn move_main(env: &TestEnv) -> String {
    env.git(&["commit", "-q", "--allow-empty", "-m", "moved"]);
    env.git(&["rev-parse", "main"])
}

/// Events of a policy of one kind.
fn events(env: &TestEnv, policy: &str, kind: &str) -> Vec<Value> {
    let args = ["events", "--policy", policy, "--type", kind, "--json"];
    env.ap(&args).exits(0).json()["events"].as_array().unwrap().clone()
}

/// A line for what a policy waits for, made without this tool: from a line that was consumed before, with what differs
/// replaced, signed by OpenSSH.
pub(crate) fn line(
    env: &TestEnv,
    model: &str,
    policy: &str,
    key: &str,
    changes: &[(&str, &str)],
) -> String {
    let shown = env.policy(policy);
    let candidate = text(&shown, "candidate");
    let request = text(events(env, policy, "policy:commit-ready").last().unwrap(), "cursor");
    let mut gates = Sha256::new();
    for line in env.note_lines("gates", &candidate, "agentproto-gate/1 ") {
        gates.update(format!("{line}\n"));
    }
    let digest = gates.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let print = env.run("ssh-keygen", &["-l", "-f", env.path(key).to_str().unwrap()]);
    let fields = [
        ("policy", policy.to_owned()),
        ("request", request),
        ("candidate", candidate),
        ("parent", text(&shown, "parent")),
        ("tree", text(&shown, "tree")),
        ("gates", digest),
        ("key", print.done().exits(0).out().split(' ').nth(1).unwrap().to_owned()),
    ];
    let mut payload = model.split(" sig=").next().unwrap().to_owned();
    let changes = changes.iter().map(|(name, new)| (*name, (*new).to_owned()));
    for (name, new) in fields.into_iter().chain(changes) {
        if name == "decision" {
            payload = payload.replacen(" approve ", &format!(" {new} "), 1);
            continue;
        }
        let old = format!(" {name}={}", value(&payload, name));
        payload = payload.replacen(&old, &format!(" {name}={new}"), 1);
    }
    sign_line(env, &payload, key, "agentproto-ack")
}

/// Whatever these words say, with the signature of OpenSSH over them.
pub(crate) fn sign_line(env: &TestEnv, payload: &str, key: &str, namespace: &str) -> String {
    let file = env.path("payload");
    fs::write(&file, payload).unwrap();
    let _ = fs::remove_file(env.path("payload.sig"));
    let (key, file) = (env.path(key), file.to_str().unwrap().to_owned());
    let args = ["-q", "-Y", "sign", "-f", key.to_str().unwrap(), "-n", namespace, &file];
    env.run("ssh-keygen", &args).done().exits(0);
    let armour = fs::read_to_string(env.path("payload.sig")).unwrap();
    let sig: String = armour.lines().filter(|l| !l.starts_with("-----")).collect();
    format!("{payload} sig={sig}")
}

/// What somebody does who has never heard of this tool.
pub(crate) fn append(env: &TestEnv, candidate: &str, words: &str) {
    env.git(&["notes", "--ref=agentproto/acks", "append", "-m", words, candidate]);
}

/// The line by which a governed commit landed.
pub(crate) fn model(env: &TestEnv) -> (String, String) {
    let (policy, commit) = env.governed("model.txt");
    (policy, env.note_lines("acks", &commit, "agentproto-ack/1 ").remove(0))
}

pub(crate) fn wait(env: &TestEnv, policy: &str, exit: i32) -> String {
    let out = env.ap(&["wait", policy, "--timeout", "30s"]).exits(exit);
    format!("{}{}", out.out(), out.err())
}

#[test]
fn a_moved_branch_is_gated_again_and_asked_again() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let first = text(&env.policy(&policy), "candidate");
    let tip = move_main(&env);

    // Whoever only looks sees it at once and writes nothing.
    let before = env.snapshot();
    let shown = env.ap(&["status", "--json"]).exits(0).json();
    let stale = format!("refs/heads/main moved to {tip}");
    assert_eq!(shown["acks"][0]["stale"], stale, "{shown:#}");
    let said = env.ap(&["status"]).exits(0).out();
    assert!(said.contains("but stale:") && said.contains("git agentproto wait "), "{said}");
    let told = env.policy(&policy);
    assert_eq!((&told["stale"], &told["onStale"]), (&json!(stale), &json!("regate")));
    assert_eq!(text(&told, "nextStep"), format!("git agentproto wait {policy}"));
    before.assert_same(&env.snapshot(), "a look");

    let out = env.ap(&["ack", &policy, "--yes", "--json"]).exits(6);
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(text(&error["error"], "code"), "stale", "{out}");
    assert!(text(&error["error"], "hint").contains("gated again"), "{out}");
    let refused = events(&env, &policy, "ack:refused");
    assert_eq!((refused.len(), text(&refused[0], "outcome")), (1, "stale".into()));
    let gatings = events(&env, &policy, "policy:gating");
    assert_eq!(gatings.len(), 2);
    assert!(text(&gatings[1], "because").starts_with("the branch is no longer"), "{gatings:#?}");
    wait(&env, &policy, 5);
    let told = env.policy(&policy);
    let second = text(&told, "candidate");
    assert_ne!(second, first);
    assert_eq!((text(&told, "parent"), &told["attempt"]), (tip.clone(), &json!(2)));
    assert_eq!(told["refusedAcks"][0]["outcome"], "stale");
    assert_eq!(env.note_lines("gates", &second, "agentproto-gate/1 pass ").len(), 1);
    assert_eq!(env.git(&["rev-parse", "main"]), tip, "nothing landed");

    env.ap(&["ack", &policy, "--yes", "--candidate", &second]).exits(0);
    assert_eq!(env.git(&["rev-parse", "main", "main^"]), format!("{second}\n{tip}"));
    env.ap(&["verify", "main^..main"]).exits(0);
    env.assert_no_gap();
}

#[test]
fn what_is_said_of_an_answer_that_came_to_nothing_is_true() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    // Another commit was named; nothing was gated again.
    let tip = env.git(&["rev-parse", "main"]);
    let out = env.ap(&["ack", &policy, "--yes", "--candidate", &tip]).exits(6);
    let hint = format!("hint: review the candidate that waits, then git agentproto ack {policy}\n");
    assert!(out.err().ends_with(&hint), "{out}");
    // Its content landed by another way: there is nothing left to answer.
    env.git(&["add", "f.txt"]);
    env.git(&["commit", "-qm", "theirs"]);
    let out = env.ap(&["ack", &policy, "--yes"]).exits(6);
    let hint =
        "hint: it is done no-op now, nothing waits for an answer: git agentproto policy show ";
    assert!(out.err().contains(hint), "{out}");
    // A time that is over is not called a branch that moved.
    let session = env.adopt("s");
    env.write("g.txt", "1\n");
    let flags = ["--then", "commit", "--path", "g.txt", "-m", "m", "--expires", "3s"];
    let policy = env.attach(&session, &[&flags[..], &["--", "true"]].concat());
    env.turn_end(&session, &policy).exits(5);
    let out = wait_for("its time to be over", PATIENCE, || {
        let said = env.ap(&["status"]).exits(0).out();
        (!said.contains("Waiting for your ack:")).then_some(said)
    });
    assert!(
        out.contains("Waiting for an ack, but out of time:") && !out.contains("stale"),
        "{out}"
    );
}

/// No answer is needed for that: any command that performs finds it.
#[test]
fn waiting_finds_a_moved_branch_and_who_asked_to_be_blocked_is() {
    let env = TestEnv::new();
    let regate = env.awaiting("f.txt");
    let block = env.awaiting_with("g.txt", &["--on-stale", "block"]);
    assert_eq!(text(&env.policy(&block), "onStale"), "block");
    move_main(&env);
    wait(&env, &regate, 5);
    assert_eq!(env.policy(&regate)["attempt"], 2);
    wait(&env, &block, 1);
    let told = env.policy(&block);
    assert_eq!(
        (text(&told, "status"), text(&told, "reason")),
        ("blocked".into(), "stale-candidate".into())
    );
    assert!(text(&told, "nextStep").contains("--on-stale block"), "{told:#}");
    // What was done once is not done again.
    let count = env.kinds().len();
    wait(&env, &regate, 5);
    assert_eq!(env.kinds().len(), count);
}

#[test]
fn a_branch_that_moves_under_a_landing_is_gated_and_asked_again() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let lock = env.held_landing(&policy);
    let tree = env.git(&["rev-parse", "main^{tree}"]);
    let tip = env.git(&["commit-tree", &tree, "-p", "main", "-m", "meanwhile"]);
    env.git(&["update-ref", "refs/heads/main", &tip]);
    fs::remove_file(&lock).unwrap();
    wait(&env, &policy, 5);
    let told = env.policy(&policy);
    assert_eq!((text(&told, "parent"), &told["acks"]), (tip.clone(), &json!([])));
    assert_eq!(env.git(&["rev-parse", "main"]), tip);
    let out = env.ap(&["ack", &policy, "--yes", "--json"]).exits(0).json();
    assert_eq!(text(&out, "status"), "done");
    assert_eq!(env.git(&["rev-parse", "main^"]), tip);
    env.ap(&["verify", "main^..main"]).exits(0);
}

#[test]
fn case_134_a_late_yes_lands_what_was_reviewed_or_nothing() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let reviewed = text(&env.policy(&policy), "candidate");
    // Other content on disk: the reviewed bytes land. Another branch checked out: the recorded one moves.
    env.write("f.txt", "later\n");
    env.git(&["switch", "-qc", "elsewhere"]);
    let other = env.awaiting("g.txt");
    env.ap(&["ack", &policy, "--yes", "--candidate", &reviewed]).exits(0);
    assert_eq!(env.git(&["show", "main:f.txt"]), "f.txt");
    // Another HEAD below it: turned down, gated again, and the old yes is worth nothing.
    let reviewed = text(&env.policy(&other), "candidate");
    move_main(&env);
    let tip = env.git(&["rev-parse", "elsewhere"]);
    env.ap(&["ack", &other, "--yes", "--candidate", &reviewed]).exits(6);
    assert_eq!(env.git(&["rev-parse", "elsewhere"]), tip);
    let out = env.ap(&["ack", &other, "--yes", "--candidate", &reviewed]).exits(6);
    assert!(out.err().contains("stale"), "{out}");
    assert_eq!(status(&env, &other), "awaiting-ack");
    assert_eq!(env.git(&["rev-parse", "elsewhere"]), tip);
}

#[test]
fn case_050_a_green_result_covers_no_later_content() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let gated = text(&env.policy(&policy), "tree");
    env.write("f.txt", "edited after the green gate\n");
    // Gated again on another parent: what is there now is what is gated, shown and asked for.
    move_main(&env);
    wait(&env, &policy, 5);
    let told = env.policy(&policy);
    assert_ne!(text(&told, "tree"), gated);
    let line = env.note_lines("gates", &text(&told, "candidate"), "agentproto-gate/1 ").remove(0);
    assert_eq!(value(&line, "tree"), text(&told, "tree"));
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.git(&["show", "main:f.txt"]), "edited after the green gate");
    // Without that, later content stays out.
    let policy = env.awaiting("g.txt");
    env.write("g.txt", "edited\n");
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.git(&["show", "main:g.txt"]), "g.txt");
    // A policy of its own is needed for a touch on top; the last green is none for it.
    assert_eq!(env.git(&["status", "--porcelain", "g.txt"]), " M g.txt");
}

/// A policy that ends soon, and the instant is over.
fn over(env: &TestEnv, policy: &str) {
    wait_for("its time to be over", PATIENCE, || {
        (env.policy(policy)["expired"] == json!(true)).then_some(())
    });
}

#[test]
fn a_policy_ends_by_itself_and_a_look_only_tells() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--expires", "2s", "--", "true"]);
    assert_eq!(
        (status(&env, &policy), &env.policy(&policy)["expired"]),
        ("watching".into(), &json!(false))
    );
    over(&env, &policy);
    let before = env.snapshot();
    let said = env.ap(&["status"]).exits(0).out();
    assert!(said.contains("watching, its time is over"), "{said}");
    before.assert_same(&env.snapshot(), "a look");
    wait(&env, &policy, 1);
    let told = env.policy(&policy);
    assert_eq!(
        (text(&told, "status"), text(&told, "reason")),
        ("blocked".into(), "expired".into())
    );
    assert!(!text(&told, "nextStep").contains("--expires"), "{told:#}");

    // Who waits sees it end.
    let policy = env.attach(&session, &["--next-turn", "--expires", "2s", "--", "true"]);
    env.ap(&["wait", &policy, "--timeout", "30s"]).exits(1);
    assert_eq!(text(&env.policy(&policy), "reason"), "expired");
    // What is over before it begins is refused.
    for when in ["0s", "2020-01-01T00:00:00Z", "soon"] {
        let out = env.ap(&["attach", &session, "--expires", when, "--", "true"]).exits(129);
        assert!(out.err().contains("bad-time"), "{out}");
    }
    let out = env.ap(&["attach", &session, "--on-stale", "block", "--", "true"]).exits(129);
    assert!(out.err().contains("without a commit there is no candidate"), "{out}");
}

#[test]
fn a_running_gate_ends_with_its_policy() {
    let env = TestEnv::new();
    // Performed by the process that notices, and by another one.
    let ends = |no_wait: bool| {
        let seconds = format!("63{}0.{:06}", u8::from(no_wait), std::process::id() % 1_000_000);
        let running =
            || command_lines().iter().any(|line| line.ends_with(&format!("sleep {seconds}")));
        let session = env.adopt("s");
        let policy = env.attach(&session, &["--expires", "4s", "--", "sleep", &seconds]);
        let mut args = vec!["session", "report", &session, "turn-end"];
        args.extend(no_wait.then_some("--no-wait"));
        env.ap(&args).exits(0);
        let told = env.ap(&["wait", &policy, "--timeout", "60s"]).exits(1);
        let shown = env.policy(&policy);
        assert_eq!(text(&shown, "reason"), "expired", "{told}\n{shown:#}");
        wait_for("the gate to be gone", PATIENCE, || (!running()).then_some(()));
    };
    std::thread::scope(|scope| {
        for no_wait in [false, true] {
            scope.spawn(move || ends(no_wait));
        }
    });
}

#[test]
fn an_answer_after_the_end_is_expired_and_nothing_lands() {
    let env = TestEnv::new();
    let policy = env.awaiting_with("f.txt", &["--expires", "6s"]);
    let before = env.git(&["rev-parse", "main"]);
    over(&env, &policy);
    let out = env.ap(&["ack", &policy, "--yes"]).exits(6);
    assert!(out.err().contains("expired"), "{out}");
    assert_eq!(env.kinds()[env.kinds().len() - 2..], ["ack:refused", "policy:failed"]);
    assert_eq!(text(&env.policy(&policy), "reason"), "expired");
    assert_eq!(env.git(&["rev-parse", "main"]), before);
}

/// Only who lands can tell whether it has landed.
#[test]
fn a_landing_whose_time_is_over_ends_unless_it_has_landed() {
    let ends = |landed: bool| {
        let env = TestEnv::new();
        let policy = env.awaiting_with("f.txt", &["--expires", "8s"]);
        let (before, candidate) =
            (env.git(&["rev-parse", "main"]), text(&env.policy(&policy), "candidate"));
        let lock = env.held_landing(&policy);
        if landed {
            env.git(&["update-ref", "refs/heads/main", &candidate]);
        }
        over(&env, &policy);
        wait(&env, &policy, i32::from(!landed));
        let told = env.policy(&policy);
        let (want, tip) = if landed { ("done", candidate) } else { ("blocked", before) };
        assert_eq!(text(&told, "status"), want, "{told:#}");
        assert_eq!(env.git(&["rev-parse", "main"]), tip);
        assert!(lock.exists(), "a lock of somebody else was taken away");
    };
    std::thread::scope(|scope| {
        for landed in [false, true] {
            scope.spawn(move || ends(landed));
        }
    });
}

/// Makes `bob` a second signer.
pub(crate) fn with_bob(env: &TestEnv) {
    env.key("bob", &["-t", "ed25519", "-N", ""]);
    let line = |name: &str, key: &str| {
        format!("{name} namespaces=\"agentproto-ack\" {}\n", env.public_key(key))
    };
    let all = [line("ada@example.invalid", "ada"), line("bob@example.invalid", "bob")];
    fs::write(env.path("allowed"), all.concat()).unwrap();
}

fn as_bob(env: &TestEnv) -> String {
    env.path("bob").to_str().unwrap().to_owned()
}

#[test]
fn as_many_people_as_it_takes_have_to_approve() {
    let env = TestEnv::new();
    with_bob(&env);
    env.global("agentproto.ackQuorum", "2");
    // What an agent can write is no leave.
    env.git(&["config", "agentproto.ackQuorum", "1"]);
    let policy = env.awaiting("f.txt");
    let before = env.git(&["rev-parse", "main"]);
    let told = env.policy(&policy);
    assert_eq!((&told["approvals"], &told["ackQuorum"]), (&json!(0), &json!(2)));

    let out = env.ap(&["ack", &policy, "--yes", "--json"]).exits(5).json();
    assert_eq!((text(&out, "status"), &out["approvals"]), ("awaiting-ack".into(), &json!(1)));
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert!(env.ap(&["policy", "show", &policy]).out().contains("approvals 1 of 2"));
    // The same key is the same person.
    let out = env.ap(&["ack", &policy, "--yes"]).exits(6);
    assert!(out.err().contains("replayed"), "{out}");
    assert!(out.err().contains("1 of 2 approvals; bob@example.invalid (SHA256:"), "{out}");
    assert!(!out.err().contains("; ada@example.invalid"), "{out}");
    assert_eq!(status(&env, &policy), "awaiting-ack");
    // It is not waited for by whom it has.
    env.ap(&["wait", &policy, "--until", "acked", "--timeout", "0s"]).exits(3);
    env.ap(&["ack", &policy, "--yes", "--key", &as_bob(&env)]).exits(0);
    let candidate = text(&env.policy(&policy), "candidate");
    assert_eq!(env.git(&["rev-parse", "main"]), candidate);
    assert_eq!(env.note_lines("acks", &candidate, "agentproto-ack/1 approve ").len(), 2);
    let seen = env.ap(&["verify", "main^..main", "--json"]).exits(0).json();
    assert_eq!(seen["commits"][0]["signer"], "ada@example.invalid, bob@example.invalid");

    // A no of anybody wins as long as somebody is asked.
    let policy = env.awaiting("g.txt");
    env.ap(&["ack", &policy, "--yes"]).exits(5);
    env.ap(&["ack", &policy, "--reject", "--yes", "--key", &as_bob(&env)]).exits(0);
    assert_eq!(status(&env, &policy), "cancelled");

    // The rule becomes stricter while it waits; it never becomes laxer.
    let policy = env.awaiting("h.txt");
    env.unset_global("agentproto.ackQuorum");
    env.ap(&["ack", &policy, "--yes"]).exits(5);
    env.ap(&["ack", &policy, "--yes", "--key", &as_bob(&env)]).exits(0);
    let policy = env.awaiting("i.txt");
    env.global("agentproto.ackQuorum", "2");
    assert_eq!(env.policy(&policy)["ackQuorum"], 2);
    env.ap(&["ack", &policy, "--yes"]).exits(5);
}

#[test]
fn of_two_people_at_once_both_count_and_it_lands_once() {
    let env = TestEnv::new();
    with_bob(&env);
    env.global("agentproto.ackQuorum", "2");
    let policy = env.awaiting("f.txt");
    let keys = ["ada", "bob"].map(|name| env.path(name).to_str().unwrap().to_owned());
    let ack = |key: &str| env.ap(&["ack", &policy, "--yes", "--key", key]).code();
    let codes = std::thread::scope(|scope| {
        let both = [scope.spawn(|| ack(&keys[0])), scope.spawn(|| ack(&keys[1]))];
        both.map(|thread| thread.join().unwrap())
    });
    assert!(codes.contains(&0), "{codes:?}");
    wait(&env, &policy, 0);
    let count = |kind: &str| env.kinds().iter().filter(|k| *k == kind).count();
    assert_eq!((count("policy:acked"), count("policy:committed")), (2, 1));
}

#[test]
fn a_rule_that_nobody_can_meet_or_read_is_refused_at_attach() {
    let env = TestEnv::new();
    env.write("f.txt", "x\n");
    let asked = || env.ap(&["commit", "--path", "f.txt", "-m", "m", "--", "true"]);
    env.global("agentproto.ackQuorum", "2");
    let out = asked().exits(6);
    assert!(out.err().contains("approvals by 2 different keys are asked for, and 1 "), "{out}");
    for value in ["0", "17", "all"] {
        env.global("agentproto.ackQuorum", value);
        let out = asked().exits(2);
        assert!(out.err().contains("bad-setting"), "{out}");
    }
    env.unset_global("agentproto.ackQuorum");
    env.global("agentproto.ackExclude", "author");
    let out = asked().exits(6);
    assert!(out.err().contains("too-few-signers"), "{out}");
    assert_eq!(env.kinds(), Vec::<String>::new());
    asked_in_vain_is_nothing(&env);
}

fn asked_in_vain_is_nothing(env: &TestEnv) {
    env.unset_global("agentproto.ackExclude");
    // A rule that comes while somebody waits, and cannot be read: nobody passes, nothing is recorded.
    let policy = env.awaiting("g.txt");
    env.global("agentproto.ackQuorum", "all");
    let count = env.kinds().len();
    let out = env.ap(&["ack", &policy, "--yes"]).exits(2);
    assert!(out.err().contains("bad-setting"), "{out}");
    assert_eq!(env.kinds().len(), count);
    assert_eq!(env.policy(&policy)["ackQuorum"], Value::Null);
    let shown = env.ap(&["policy", "show", &policy]).exits(0).out();
    assert!(shown.contains("how many approvals it takes cannot be told: "), "{shown}");
}

#[test]
fn case_128_the_author_does_not_approve_under_another_name() {
    let env = TestEnv::new();
    with_bob(&env);
    env.global("agentproto.ackExclude", "author");
    let policy = env.awaiting("f.txt");
    let turned_down = |args: &[&str]| {
        let all: Vec<_> = ["ack", &policy, "--yes"].iter().chain(args).copied().collect();
        let out = env.ap(&all).exits(6);
        assert!(out.err().contains("unauthorized") && out.err().contains("excluded"), "{out}");
        assert!(!out.err().contains("have this one listed"), "it is listed: {out}");
        assert!(out.err().contains("agentproto.ackExclude keeps this key out"), "{out}");
        assert_eq!(status(&env, &policy), "awaiting-ack");
    };
    turned_down(&[]);
    // The same key under a second name, and the name the person goes by now.
    let alias = format!("alias@y {}\n", env.public_key("ada"));
    let signers = fs::read_to_string(env.path("allowed")).unwrap();
    fs::write(env.path("allowed"), format!("{signers}{alias}")).unwrap();
    env.global("user.email", "alias@y");
    turned_down(&[]);
    // Nor does who supervises, named by that word or by key.
    env.global("agentproto.ackExclude", "supervisor");
    turned_down(&[]);
    env.unset_global("agentproto.ackExclude");
    turned_down(&[]);
    let told = env.policy(&policy);
    assert_eq!(told["ackExclude"], json!(["author"]));
    let outcomes = told["refusedAcks"].as_array().unwrap().iter().map(|r| text(r, "outcome"));
    assert_eq!(outcomes.collect::<Vec<_>>(), vec!["unauthorized"; 4]);
    env.ap(&["ack", &policy, "--yes", "--key", &as_bob(&env)]).exits(0);
    let seen = env.ap(&["verify", "main^..main", "--json"]).exits(0).json();
    assert_eq!(seen["commits"][0]["signer"], "bob@example.invalid");
}

#[test]
fn an_answer_in_a_note_counts_like_any_other_and_reading_takes_none() {
    let env = TestEnv::new();
    let (_, model) = model(&env);
    for (decision, exit, want) in [("approve", 0, "done"), ("reject", 1, "cancelled")] {
        let policy = env.awaiting(&format!("{decision}.txt"));
        let candidate = text(&env.policy(&policy), "candidate");
        let yes = line(&env, &model, &policy, "ada", &[("decision", decision)]);
        append(&env, &candidate, "somebody's own words");
        append(&env, &candidate, &yes);
        let before = env.kinds();
        env.ap(&["status"]).exits(0);
        env.ap(&["policy", "show", &policy]).exits(0);
        env.ap(&["log"]).exits(0);
        assert_eq!(env.kinds(), before, "reading took it");
        wait(&env, &policy, exit);
        assert_eq!(status(&env, &policy), want);
        let lines = env.note_lines("acks", &candidate, "agentproto-ack/1 ");
        assert_eq!(lines, [yes.as_str()], "it stands once");
        assert_eq!(env.note_lines("acks", &candidate, "somebody").len(), 1);
        assert_eq!(events(&env, &policy, "ack:refused").len(), 0);
    }
    env.ap(&["verify", "main^..main"]).exits(0);
}

#[test]
fn every_outcome_reaches_a_user_by_its_name() {
    let env = TestEnv::new();
    let (_, old) = model(&env);
    let policy = env.awaiting("f.txt");
    let candidate = |env: &TestEnv| text(&env.policy(&policy), "candidate");
    let unused = line(&env, &old, &policy, "ada", &[]);
    move_main(&env);
    wait(&env, &policy, 5);
    let at = |key: &str, changes: &[(&str, &str)]| line(&env, &old, &policy, key, changes);
    let forged = at("ada", &[]).replacen(" reason=", " reason=better", 1);
    let head = env.git(&["rev-parse", "HEAD"]);
    let rows = [
        ("forged", forged),
        ("unauthorized", at("eve", &[])),
        ("replayed", old.clone()),
        ("stale", unused),
        ("expired", at("ada", &[("expires", "2020-01-01T00:00:00.000Z")])),
        ("orphan", at("ada", &[("request", &head)])),
        ("orphan", at("ada", &[("repo", &head)])),
        ("malformed", "agentproto-ack/1 yes please".to_owned()),
        ("malformed", "agentproto-ack/9 approve repo=x".to_owned()),
    ];
    let before = env.git(&["rev-parse", "main"]);
    for (nth, (outcome, line)) in rows.iter().enumerate() {
        append(&env, &candidate(&env), line);
        let said = wait(&env, &policy, 5);
        assert!(said.contains(&format!("was turned down, {outcome}: ")), "{outcome}: {said}");
        let refused = events(&env, &policy, "ack:refused");
        assert_eq!(refused.len(), nth + 1, "{outcome}");
        let last = refused.last().unwrap();
        assert_eq!((text(last, "outcome"), text(last, "line")), ((*outcome).into(), line.clone()));
        let told = env.policy(&policy);
        assert_eq!(told["refusedAcks"][nth]["outcome"], *outcome);
        assert_eq!((text(&told, "status"), &told["acks"]), ("awaiting-ack".into(), &json!([])));
        assert!(
            env.ap(&["policy", "show", &policy]).out().contains(&format!("refused   {outcome} "))
        );
        assert!(env.ap(&["log", &policy]).out().contains(&format!("{outcome}: ")), "{outcome}");
        // Once is enough, and nobody is told twice.
        assert!(!wait(&env, &policy, 5).contains("turned down"), "{outcome}");
        assert_eq!(events(&env, &policy, "ack:refused").len(), nth + 1, "{outcome}");
        env.ap(&["help", outcome]).exits(0);
    }
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    // `verify` says it of a commit that somebody put on the branch all the same.
    env.git(&["update-ref", "refs/heads/side", &candidate(&env)]);
    let seen = env.ap(&["verify", "side^..side", "--json"]).exits(1).json();
    assert_eq!(text(&seen["commits"][0], "outcome"), "malformed", "{seen:#}");
    // None of it used anything up.
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn a_flood_of_lines_is_judged_a_few_at_a_time_and_never_without_end() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let candidate = text(&env.policy(&policy), "candidate");
    let many: String = (0..300).fold(String::new(), |mut text, n| {
        writeln!(text, "agentproto-ack/1 {n}").unwrap();
        text
    });
    append(&env, &candidate, &many);
    let refused = || events(&env, &policy, "ack:refused").len();
    wait(&env, &policy, 5);
    assert_eq!(refused(), 20);
    wait(&env, &policy, 5);
    assert_eq!(refused(), 40);
    for _ in 0..13 {
        wait(&env, &policy, 5);
    }
    let full = env.kinds().iter().filter(|k| *k == "ack:refused").count();
    assert_eq!(full, 256);
    // The command is another road.
    env.ap(&["ack", &policy, "--yes"]).exits(0);
}

/// A policy that waits for an ack in another repository.
fn next_in(env: &TestEnv, dir: &Path) -> String {
    fs::write(dir.join("next.txt"), "next\n").unwrap();
    let args = ["commit", "--path", "next.txt", "-m", "next", "--json", "--", "ls", "next.txt"];
    text(&env.ap_in(dir, &args).exits(5).json(), "policyId")
}

/// Whatever state the policy is in by then, a line that was made before counts for nothing more.
#[test]
fn a_line_that_was_made_before_never_counts_later() {
    for later in ["committed", "rejected", "blocked", "regated", "other repository"] {
        let env = TestEnv::new();
        let (_, old) = model(&env);
        let policy = env.awaiting("f.txt");
        let unused = line(&env, &old, &policy, "ada", &[]);
        let mut target = env.repo();
        match later {
            "committed" => drop(env.ap(&["ack", &policy, "--yes"]).exits(0)),
            "rejected" => drop(env.ap(&["ack", &policy, "--reject", "--yes"]).exits(0)),
            "blocked" => drop(env.ap(&["policy", "cancel", &policy]).exits(0)),
            "regated" => {
                move_main(&env);
                wait(&env, &policy, 5);
            }
            _ => {
                target = env.make_repo("other");
                fs::write(target.join("own"), "other\n").unwrap();
                env.git_in(&target, &["add", "own"]);
                env.git_in(&target, &["commit", "-q", "--amend", "-m", "another root"]);
                env.ap_in(&target, &["init", "--yes"]).exits(0);
            }
        }
        let next = next_in(&env, &target);
        let show = |policy: &str| {
            env.ap_in(&target, &["policy", "show", policy, "--json"]).exits(0).json()
        };
        let shown = show(&next);
        let before = env.git_in(&target, &["rev-parse", "main"]);
        let mut told = vec![(next, shown)];
        if later == "regated" {
            told.push((policy.clone(), show(&policy)));
        }
        for (id, shown) in told {
            let notes = ["notes", "--ref=agentproto/acks", "append", "-m", &unused];
            let args: Vec<_> =
                notes.into_iter().chain([shown["candidate"].as_str().unwrap()]).collect();
            env.git_in(&target, &args);
            env.ap_in(&target, &["wait", &id, "--timeout", "30s"]).exits(5);
            let now = show(&id);
            assert_eq!(text(&now, "status"), "awaiting-ack", "{later}");
            let want = match later {
                "regated" | "blocked" => "stale",
                "other repository" => "orphan",
                _ => "replayed",
            };
            assert_eq!(now["refusedAcks"][0]["outcome"], want, "{later}: {now:#}");
        }
        assert_eq!(env.git_in(&target, &["rev-parse", "main"]), before, "{later}");
        // Where it is over, nothing is judged any more.
        if ["committed", "rejected", "blocked"].contains(&later) {
            let count = env.kinds().len();
            append(&env, &text(&env.policy(&policy), "candidate"), &format!("{unused} x"));
            env.ap(&["wait", &policy, "--timeout", "5s"]);
            assert_eq!(env.kinds().len(), count, "{later}");
        }
    }
}

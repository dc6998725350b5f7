//! Policies from outside: what a finished turn is, the order of gates, cancelling, rejecting, racing acks.

use crate::{
    env::{PATIENCE, TestEnv, command_lines, wait_for},
    house::text,
};
use serde_json::{Value, json};
use std::{fs, path::Path};

fn status(env: &TestEnv, policy: &str) -> String {
    text(&env.policy(policy), "status")
}

#[test]
fn a_reject_ends_it_and_moves_nothing() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let before = env.git(&["rev-parse", "main"]);
    env.ap(&["ack", &policy, "--reject", "-m", "not like this", "--yes"]).exits(0);
    assert_eq!(status(&env, &policy), "cancelled");
    let said = "rejected by ada@example.invalid: not like this";
    let out = env.ap(&["policy", "show", &policy]).exits(0).out();
    assert!(out.starts_with(&format!("policy {policy}  {said}  ")), "{out}");
    assert!(!out.contains("cancelled"), "{out}");
    assert_eq!(env.policy(&policy)["acks"][0]["reason"], "not like this");
    assert!(env.ap(&["log"]).out().contains(said));
    env.ap(&["wait", &policy, "--timeout", "5s"]).exits(1);
    assert_eq!(env.git(&["rev-parse", "main"]), before);
    assert_eq!(env.git(&["status", "--porcelain"]), "?? f.txt");
    env.ap(&["ack", &policy, "--yes"]).exits(6);
    assert_eq!(env.git(&["rev-parse", "main"]), before);
}

#[test]
fn of_two_acks_at_once_one_is_consumed() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let mut codes = std::thread::scope(|scope| {
        let ack = || env.ap(&["ack", &policy, "--yes"]).code();
        let both = [scope.spawn(ack), scope.spawn(ack)];
        both.map(|thread| thread.join().unwrap())
    });
    codes.sort_unstable();
    assert_eq!(codes, [0, 6]);
    assert_eq!(env.kinds().iter().filter(|k| *k == "policy:acked").count(), 1);
    assert_eq!(status(&env, &policy), "done");
}

#[test]
fn the_recorded_branch_lands_when_another_is_checked_out() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let base = env.git(&["rev-parse", "main"]);
    env.git(&["switch", "-qc", "elsewhere"]);
    env.write("f.txt", "later\n");
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.git(&["rev-parse", "main"]), text(&env.policy(&policy), "candidate"));
    assert_eq!(env.git(&["show", "main:f.txt"]), "f.txt", "the bytes the gate saw");
    assert_eq!(env.git(&["rev-parse", "elsewhere", "HEAD"]), format!("{base}\n{base}"));
    assert_eq!(fs::read_to_string(env.repo().join("f.txt")).unwrap(), "later\n");
    assert_eq!(env.git(&["status", "--porcelain"]), "?? f.txt");
    let reflog = env.git(&["log", "-1", "-g", "--format=%gs", "main"]);
    assert!(reflog.starts_with("agentproto: policy pol_"), "{reflog}");
}

/// The gate sees the whole worktree, so that has to be the branch's commit; its name does not matter.
#[test]
fn a_gate_runs_on_the_commit_of_its_branch_only() {
    let env = TestEnv::new();
    env.git(&["switch", "-qc", "elsewhere"]);
    env.write("other.txt", "other\n");
    env.git(&["add", "other.txt"]);
    env.git(&["commit", "-qm", "other"]);
    env.git(&["switch", "-q", "main"]);
    let main = env.git(&["rev-parse", "main"]);
    let gated_after = |switch: &[&str], exit| {
        let session = env.adopt("s");
        env.write("a.txt", "changed\n");
        let args = ["--then", "commit", "--path", "a.txt", "-m", "m", "--", "true"];
        let policy = env.attach(&session, &args);
        env.git(switch);
        env.turn_end(&session, &policy).exits(exit);
        env.git(&["switch", "-q", "main"]);
        assert_eq!(env.git(&["rev-parse", "main"]), main);
        env.policy(&policy)
    };
    for switch in [&["switch", "-q", "elsewhere"] as &[&str], &["checkout", "-q", "elsewhere^0"]] {
        let told = gated_after(switch, 1);
        assert_eq!(text(&told, "status"), "blocked", "{told:#}");
        assert_eq!(text(&told, "reason"), "branch-switched", "{told:#}");
        let because = text(&told, "because");
        let there = env.git(&["rev-parse", "elsewhere"]);
        let named = [&format!("refs/heads/main at {main}"), &format!(" at {there}")];
        assert!(named.iter().all(|n| because.contains(*n)), "{because}");
        assert_eq!(told["lastGate"], Value::Null, "it did not run: {told:#}");
    }
    for switch in [&["switch", "-qc", "twin"] as &[&str], &["checkout", "-q", "--detach"]] {
        let told = gated_after(switch, 5);
        assert_eq!(text(&told, "status"), "awaiting-ack", "{told:#}");
    }
}

/// Nobody wrote the listed files: it is no case of a tree that changed, and the same run is not repeated.
#[test]
fn a_branch_that_moves_while_its_gate_runs_is_stale() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script("gate.sh", "echo ran >> .git/ran\ngit commit -q --allow-empty -m meanwhile");
    env.write("a.txt", "changed\n");
    let before = env.git(&["rev-parse", "main"]);
    let flags = ["commit", "--no-ack", "--path", "a.txt", "-m", "m", "--json"];
    let block = [&flags[..], &["--on-stale", "block", "--", "./gate.sh"]].concat();
    let told = env.ap(&block).exits(1).json();
    let after = env.git(&["rev-parse", "main"]);
    assert_eq!(text(&told, "reason"), "stale-candidate", "{told:#}");
    let moved = format!("refs/heads/main moved from {before} to {after} while the gate ran");
    assert_eq!(text(&told, "because"), moved);
    assert_eq!(env.git(&["log", "-1", "--format=%s", "main"]), "meanwhile");
    assert_eq!(fs::read_to_string(env.repo().join(".git/ran")).unwrap(), "ran\n");
}

#[test]
fn a_branch_that_moves_while_its_gate_runs_is_gated_again_and_not_for_ever() {
    let env = TestEnv::new();
    env.allow_no_ack();
    // Moves the branch as often as it is told to.
    let body = "echo ran >> .git/ran\n[ $(wc -l < .git/ran) -gt $(cat .git/times) ] || \
                git commit -q --allow-empty -m meanwhile";
    env.script("gate.sh", body);
    let ran = env.repo().join(".git/ran");
    for (times, runs, exit) in [("1", 2, 0), ("5", 6, 0), ("100", 6, 1)] {
        let _ = fs::remove_file(&ran);
        env.write(".git/times", times);
        env.write("a.txt", &format!("changed {times}\n"));
        let told = env.commit(&["a.txt"], &["./gate.sh"]).exits(exit).json();
        assert_eq!(fs::read_to_string(&ran).unwrap().lines().count(), runs, "{told:#}");
        assert_eq!(told["attempt"], runs, "{told:#}");
        if exit == 0 {
            assert_eq!(env.git(&["show", "main:a.txt"]), format!("changed {times}"));
            assert_eq!(env.ap(&["verify", "main^..main"]).code(), 1, "gated: nobody was asked");
        } else {
            assert_eq!(text(&told, "reason"), "stale-candidate");
            assert!(text(&told, "because").ends_with("; it was gated again 5 times"), "{told:#}");
            assert_eq!(env.git(&["log", "-1", "--format=%s", "main"]), "meanwhile");
        }
    }
}

/// The receipt is a projection: who holds its ref back holds back the receipt, not what was approved.
#[test]
fn a_note_that_cannot_be_written_holds_up_no_landing() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let lock = env.repo().join(".git/refs/notes/agentproto/acks.lock");
    // One lock on tables holds up branches, too; a name below that of the notes holds up the notes alone.
    let below = "refs/notes/agentproto/acks/of-somebody";
    let obstacle = if env.is_reftable() {
        env.git(&["update-ref", below, "HEAD"]);
        below
    } else {
        fs::write(&lock, "").unwrap();
        "acks.lock"
    };
    let told = env.ap(&["ack", &policy, "--yes"]).err();
    assert!(told.contains(obstacle), "{told}");
    let shown = env.policy(&policy);
    assert_eq!(text(&shown, "status"), "done");
    let candidate = text(&shown, "candidate");
    assert_eq!(env.git(&["rev-parse", "main"]), candidate);
    assert!(env.note_lines("acks", &candidate, "agentproto-ack/1 ").is_empty());
    if env.is_reftable() {
        env.git(&["update-ref", "-d", below]);
    } else {
        fs::remove_file(&lock).unwrap();
    }
    env.ap(&["wait", &policy]).exits(0);
    assert_eq!(env.note_lines("acks", &candidate, "agentproto-ack/1 approve ").len(), 1);
}

#[test]
fn only_a_finished_turn_is_gated() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--", "true"]);
    env.ap(&["session", "report", &session, "turn-end", "--reason", "error"]).exits(0);
    let shown = env.policy(&policy);
    assert_eq!(text(&shown, "status"), "watching");
    assert_ne!(shown["stalledBy"], json!([]), "{shown:#}");
    env.turn_end(&session, &policy).exits(0);
    assert_eq!(status(&env, &policy), "done");

    // Attached after the turn: gated at once, unless told to wait for the next one.
    let late = env.attach(&session, &["--", "true"]);
    env.ap(&["wait", &late, "--timeout", "30s"]).exits(0);
    let next = env.attach(&session, &["--next-turn", "--", "true"]);
    assert_eq!(status(&env, &next), "watching");
    env.turn_end(&session, &next).exits(0);
}

#[test]
fn the_same_report_twice_counts_once() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let report = |more: &[&str]| {
        let args: Vec<_> =
            ["session", "report", &session, "--json"].iter().chain(more).copied().collect();
        text(&env.ap(&args).exits(0).json(), "cursor")
    };
    let first = report(&["command-done", "--key", "k1"]);
    assert_eq!(report(&["command-done", "--key", "k1"]), first);
    assert_ne!(report(&["command-done", "--key", "k2"]), first);
    let ended = report(&["turn-end", "--turn", "1"]);
    assert_eq!(report(&["turn-end", "--turn", "1"]), ended);
    assert_eq!(env.kinds().iter().filter(|k| *k == "session:turn-end").count(), 1);
    env.assert_no_gap();
}

#[test]
fn gates_run_in_order_and_the_first_no_ends_them() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--gate", "true", "--gate", "false", "--", "ls"]);
    env.turn_end(&session, &policy).exits(1);
    let shown = env.policy(&policy);
    assert_eq!(text(&shown, "reason"), "gate-red");
    assert_eq!(shown["lastGate"]["exitCode"], 1);
    let gates = shown["gates"].as_array().unwrap();
    assert_eq!(gates.len(), 3, "{shown:#}");
    assert!(
        gates.iter().all(|g| std::path::Path::new(&text(g, "path")).is_absolute()),
        "{shown:#}"
    );
    // Where programs lie is this machine's: another one, or this after a clean-up, does not know.
    fs::remove_dir_all(env.repo().join(".git/agentproto/local")).unwrap();
    assert_eq!(env.policy(&policy)["gates"][0]["path"], Value::Null);
    // The worktree was clean, so each gate that ran left its line on HEAD.
    let verdicts: Vec<_> = env
        .note_lines("gates", "HEAD", "agentproto-gate/1 ")
        .iter()
        .map(|line| line.split(' ').nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(verdicts, ["pass", "fail"]);
}

#[test]
fn cancelling_kills_a_running_gate() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let seconds = format!("6200.{:06}", std::process::id() % 1_000_000);
    let policy = env.attach(&session, &["--", "sleep", &seconds]);
    env.ap(&["session", "report", &session, "turn-end", "--no-perform"]).exits(0);
    let waiter = env.tool(&["wait", &policy, "--timeout", "60s"]).start();
    let running = || command_lines().iter().any(|line| line.ends_with(&format!("sleep {seconds}")));
    wait_for("the gate to run", PATIENCE, || running().then_some(()));
    assert_eq!(status(&env, &policy), "gating");
    env.ap(&["policy", "cancel", &policy]).exits(0);
    assert_eq!(status(&env, &policy), "cancelled");
    assert_eq!(waiter.wait_with_output().unwrap().status.code(), Some(1));
    wait_for("the gate to be gone", PATIENCE, || (!running()).then_some(()));
}

#[test]
fn modes_links_and_deletions_are_committed_as_they_are() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write("gone.txt", "x\n");
    env.write("turned.txt", "x\n");
    env.git(&["add", "gone.txt", "turned.txt"]);
    env.git(&["commit", "-qm", "more"]);
    fs::remove_file(env.repo().join("gone.txt")).unwrap();
    fs::remove_file(env.repo().join("turned.txt")).unwrap();
    std::os::unix::fs::symlink("a.txt", env.repo().join("turned.txt")).unwrap();
    std::os::unix::fs::symlink("nowhere at all", env.repo().join("link")).unwrap();
    env.write_script("run.sh", "#!/bin/sh\n");
    env.write("deep/er/file", "x\n");
    let paths = ["gone.txt", "turned.txt", "link", "run.sh", "deep/er/file"];
    env.commit(&paths, &["true"]).exits(0);
    let modes: Vec<_> = env
        .git(&["ls-tree", "-r", "--format=%(objectmode) %(path)", "main"])
        .lines()
        .filter(|line| !line.contains("agentproto"))
        .map(str::to_owned)
        .collect();
    let want = [
        "100644 a.txt",
        "100644 deep/er/file",
        "120000 link",
        "100755 run.sh",
        "120000 turned.txt",
    ];
    assert_eq!(modes, want);
    assert_eq!(env.git(&["show", "main:link"]), "nowhere at all");
    assert_eq!(env.git(&["status", "--porcelain"]), "");
}

#[test]
fn pages_of_events_lose_nothing_and_the_tip_sees_what_comes_after() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let events = |more: &[&str]| {
        let args: Vec<_> = ["events", "--json"].iter().chain(more).copied().collect();
        env.ap(&args).exits(0).json()
    };
    let seqs = |answer: &Value| -> Vec<u64> {
        answer["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect()
    };
    let all = events(&[]);
    let mut paged = Vec::new();
    let mut page = events(&["--limit", "3"]);
    while !seqs(&page).is_empty() {
        assert!(seqs(&page).len() <= 3 && paged.len() <= 100, "{page:#}");
        paged.extend(seqs(&page));
        page = events(&["--limit", "3", "--since", &text(&page, "next")]);
    }
    assert_eq!(paged, seqs(&all));
    let kinds: Vec<_> = all["events"].as_array().unwrap().iter().map(|e| text(e, "kind")).collect();
    assert_eq!(kinds, env.kinds());
    for (filter, count) in [("turn-end", 1), ("session:turn-end", 1), ("policy:*", 6)] {
        assert_eq!(seqs(&events(&["--type", filter])).len(), count, "--type {filter}");
    }

    let tip = events(&["--since", "tip"]);
    assert_eq!((seqs(&tip).len(), &tip["more"]), (0, &Value::Bool(false)));
    env.adopt("later");
    assert_eq!(seqs(&events(&["--since", &text(&tip, "next")])).len(), 1);
}

/// The answer to a typed name is the living thing; twins are told apart by their ids alone.
#[test]
fn a_label_means_what_is_alive() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let attach = |gate: &str| env.attach(&session, &["--label", "check", "--", gate]);
    let shown = |label: &str| env.ap(&["policy", "show", label, "--json"]);
    let first = attach("false");
    env.turn_end(&session, &first).exits(1);
    assert_eq!(text(&shown("check").exits(0).json(), "policyId"), first, "alone, though over");
    let living = env.attach(&session, &["--label", "check", "--next-turn", "--", "true"]);
    assert_eq!(text(&shown("check").exits(0).json(), "policyId"), living);

    let args = ["attach", &session, "--label", "check", "--next-turn", "--", "true"];
    let twin = env.ap(&args).exits(0);
    assert!(twin.err().contains(&format!("warning: {living} is called 'check' too")), "{twin}");
    let ambiguous = env.ap(&["policy", "show", "check"]).exits(6);
    for word in [living.as_str(), "watching", " s ago", "hint: use an id"] {
        assert!(ambiguous.err().contains(word), "'{word}' is not in: {ambiguous}");
    }
    assert!(!ambiguous.err().contains(&first), "what is over is not meant: {ambiguous}");
    env.turn_end(&session, &living).exits(0);
    let newest = env.attach(&session, &["--label", "check", "--", "true"]);
    assert_eq!(text(&shown("check").exits(0).json(), "policyId"), newest, "all are over");

    let out = env.ap(&["session", "adopt", "--label", "s"]).exits(0);
    assert!(out.err().contains(&format!("warning: {session} is called 's' too")), "{out}");
}

#[test]
fn an_ack_of_a_session_names_its_policy() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let out = env.ap(&["ack", "session of f.txt", "--yes"]).exits(4);
    assert!(out.err().contains(&format!("that is a session; its policy is {policy}")), "{out}");
    env.ap(&["policy", "cancel", &policy]).exits(0);
    let out = env.ap(&["ack", "session of f.txt", "--yes"]).exits(4);
    assert!(out.err().contains("none of its policies waits"), "{out}");
}

/// Labels of the blocked policies that `status` tells of.
fn blocked(env: &TestEnv) -> Vec<String> {
    let told = env.ap(&["status", "--json"]).exits(0).json();
    let mut labels: Vec<_> =
        told["blocked"].as_array().unwrap().iter().map(|p| text(p, "label")).collect();
    labels.sort();
    labels
}

#[test]
fn status_tells_of_what_is_blocked_until_somebody_goes_on() {
    let env = TestEnv::new();
    env.allow_no_ack();
    let session = env.adopt("s");
    for label in ["one", "two"] {
        env.attach(&session, &["--label", label, "--", "false"]);
    }
    env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    assert_eq!(blocked(&env), ["one", "two"], "side by side, neither replaces the other");
    env.attach(&session, &["--label", "three", "--next-turn", "--", "true"]);
    assert_eq!(blocked(&env), ["one", "two"], "another gate in that session answers nothing");
    env.attach(&session, &["--label", "two", "--next-turn", "--", "true"]);
    assert_eq!(blocked(&env), ["one"], "two was asked for again by its name");
    env.attach(&session, &["--next-turn", "--", "false"]);
    assert_eq!(blocked(&env), [""; 0], "one was asked for again by its gate");

    for (label, path) in [("four", "a.txt"), ("five", "b.txt")] {
        env.write(path, label);
        let args =
            ["commit", "--no-ack", "--label", label, "--path", path, "-m", "m", "--", "false"];
        env.ap(&args).exits(1);
    }
    assert_eq!(blocked(&env), ["five", "four"]);
    env.commit(&["a.txt"], &["true"]).exits(0);
    assert_eq!(blocked(&env), ["five"], "a.txt was gone on with");

    let gone = env.adopt("gone");
    env.attach(&gone, &["--label", "six", "--", "false"]);
    env.ap(&["session", "report", &gone, "turn-end"]).exits(0);
    assert_eq!(blocked(&env), ["five", "six"]);
    env.ap(&["session", "report", &gone, "exited"]).exits(0);
    assert_eq!(blocked(&env), ["five", "six"], "that its session is over answers nothing");
    env.git(&["switch", "-q", "-c", "other"]);
    env.commit(&["b.txt"], &["true"]).exits(0);
    assert_eq!(blocked(&env), ["five", "six"], "the same path of another branch");
}

#[test]
fn what_is_red_stays_in_status_until_all_its_files_are_asked_for_again() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    for path in ["a.txt", "b.txt", "c.txt"] {
        env.write(path, "new");
    }
    let attach = |label: &str, paths: &[&str], gate: &str| {
        let paths = paths.iter().flat_map(|path| ["--path", path]);
        let args = ["--label", label, "--next-turn", "-m", "m"].into_iter().chain(paths);
        env.attach(&session, &args.chain(["--", gate]).collect::<Vec<_>>());
        env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    };
    attach("red", &["a.txt", "b.txt"], "false");
    attach("other", &["c.txt"], "true");
    let other = ["commit", "--path", "c.txt", "-m", "m", "--", "true"];
    env.ap(&other).exits(5);
    assert_eq!(blocked(&env), ["red"], "other files, in its session and elsewhere");
    attach("half", &["a.txt"], "true");
    assert_eq!(blocked(&env), ["red"], "one of its two files");
    attach("rest", &["b.txt"], "true");
    assert_eq!(blocked(&env), [""; 0], "each of its files was asked for again");
}

#[test]
fn who_is_done_with_a_blocked_policy_says_so_and_the_journal_keeps_it() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy =
        env.attach(&session, &["--label", "typo", "--path", "tpyo.txt", "-m", "m", "--", "true"]);
    env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    assert_eq!(blocked(&env), ["typo"]);
    let way = format!("git agentproto policy dismiss {policy}");
    let said = env.ap(&["policy", "show", "typo"]).exits(0).out();
    assert!(said.contains(&format!("  then      {way}\n")), "{said}");
    let said = env.ap(&["status"]).exits(0).out();
    assert!(said.contains("to be done with one: git agentproto policy dismiss POLICY"), "{said}");

    let out = env.ap(&["policy", "cancel", &policy]).exits(6);
    assert!(out.err().contains(&format!("hint: to be done with it: {way}\n")), "{out}");
    let dismiss = ["policy", "dismiss", "typo", "-m", "misspelt", "--json"];
    let told = env.ap(&dismiss).exits(0).json();
    assert_eq!((text(&told, "status"), &told["dismissed"]), ("blocked".into(), &json!(true)));
    assert_eq!(told["nextStep"], Value::Null);
    assert_eq!(blocked(&env), [""; 0]);
    let events = env.kinds().len();
    env.ap(&dismiss).exits(0);
    assert_eq!(env.kinds().len(), events, "said twice, recorded once");
    let log = env.ap(&["log", &policy]).exits(0).out();
    assert!(log.contains("dismissed: misspelt"), "{log}");
    env.ap(&["wait", &policy, "--timeout", "5s"]).exits(1);
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn a_policy_that_ends_with_its_session_says_so_and_what_to_do() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let policy = env.attach(&session, &["--label", "check", "--", "true"]);
    let out = env.ap(&["session", "report", "s", "exited"]).exits(0);
    for words in
        [&format!("{policy}: blocked: session-failed") as &str, "next: adopt a new session"]
    {
        assert!(out.err().contains(words), "'{words}' is not in: {out}");
    }
    assert!(out.out().contains("session-failed"), "{out}");
    assert_eq!(blocked(&env), ["check"]);
}

/// Whoever attaches late, or reports what nobody waits for, learns it on stderr; answers stay as they are.
#[test]
fn what_was_judged_at_once_and_what_nobody_watches_is_said() {
    let env = TestEnv::new();
    env.adopt("s");
    let nobody = "no policy watches this session";
    let report = |more: &[&str]| {
        let args: Vec<_> =
            ["session", "report", "s", "turn-end"].iter().chain(more).copied().collect();
        env.ap(&args).exits(0)
    };
    assert!(report(&[]).err().contains(nobody));
    let late = "turn 1 had ended already and was judged; --next-turn waits for the next one";
    for more in [&[] as &[&str], &["--json"]] {
        let args = ["attach", "s"].iter().chain(more).chain(&["--", "true"]);
        let out = env.ap(&args.copied().collect::<Vec<_>>()).exits(0);
        assert!(out.err().contains(late) && !out.out().contains(late), "{out}");
    }
    let out = env.ap(&["attach", "s", "--next-turn", "--", "true"]).exits(0);
    assert!(!out.err().contains("had ended"), "{out}");
    let out = report(&["--turn", "2"]);
    assert!(!out.err().contains(nobody), "{out}");
}

#[test]
fn the_command_to_reject_keeps_its_words() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let out = env.ap(&["ack", &policy, "--reject", "-m", "not yet", "--expires", "2h"]).exits(5);
    let again = format!("ack {policy} --reject -m 'not yet' --expires 2h --yes --candidate ");
    assert!(out.err().contains(&again), "{out}");
}

#[test]
fn a_commit_of_nothing_is_one_sentence() {
    let env = TestEnv::new();
    env.allow_no_ack();
    let args = ["commit", "--no-ack", "--path", "a.txt", "-m", "m", "--", "true"];
    let out = env.ap(&args).exits(0);
    assert_eq!(out.out(), "nothing to commit: the listed paths are as on refs/heads/main\n");
}

#[test]
fn a_review_shows_the_diff_without_the_users_programs() {
    let env = TestEnv::new();
    env.global("diff.external", "/bin/false");
    env.global("color.ui", "always");
    let policy = env.awaiting("f.txt");
    let candidate = text(&env.policy(&policy), "candidate");
    let out = env.ap(&["ack", &policy, "-p"]).exits(5);
    for word in [
        "diff --git a/f.txt b/f.txt",
        "+f.txt",
        &format!("review: git --no-replace-objects show {candidate}"),
    ] {
        assert!(out.err().contains(word), "'{word}' is not in: {out}");
    }
    assert!(!out.err().contains('\u{1b}') && out.stdout.is_empty(), "{out}");
    assert!(!env.ap(&["ack", &policy]).exits(5).err().contains("diff --git"));
}

#[test]
fn a_red_report_says_why_and_what_to_do() {
    let env = TestEnv::new();
    let below = env.repo().join("deep");
    fs::create_dir(&below).unwrap();
    env.write("deep/f.txt", "x\n");
    env.adopt("s");
    let args =
        ["attach", "s", "--label", "fix", "--path", "f.txt", "-m", "m", "--gate-timeout", "5s"];
    let args: Vec<_> = args.into_iter().chain(["--", "ls", "nowhere at all"]).collect();
    env.ap_in(&below, &args).exits(0);
    let out = env.ap_in(&below, &["session", "report", "s", "turn-end"]).exits(0);
    let next = "git agentproto attach s --next-turn --then commit --label fix --path f.txt -m m \
                --gate-timeout 5s -- ls 'nowhere at all'";
    for line in
        [": blocked: gate-red", ": cannot access 'nowhere at all'", &format!("next: {next}\n")]
    {
        assert!(out.err().contains(line), "'{line}' is not in: {out}");
    }
    // `git -C` takes the program to the worktree, not the reader.
    let from = env.home().display().to_string();
    let repo = env.repo().display().to_string();
    let show = ["-C", &repo, "agentproto", "policy", "show", "fix"];
    let out = env.run("git", &show).dir(env.home()).env("PWD", &from).done().exits(0);
    let next = format!("git agentproto -C {} attach s --next-turn", env.repo().display());
    assert!(out.out().contains(&next), "'{next}' is not in: {out}");
    let shown = env.ap_in(&below, &["policy", "show", "fix", "--json"]).exits(0).json();
    let step = text(&shown, "nextStep");
    assert!(step.starts_with(&format!("git agentproto -C {} attach ses_", env.repo().display())));
    assert!(step.contains("--path deep/f.txt "), "{step}");
}

/// `git -C` and a shell that stands elsewhere.
#[test]
fn what_is_to_be_typed_can_be_typed_where_the_reader_stands() {
    let env = TestEnv::new();
    let elsewhere = env.path("else where");
    fs::create_dir(&elsewhere).unwrap();
    let (repo, policy) = (env.repo().display().to_string(), env.awaiting("f.txt"));
    env.allow_no_ack();
    env.write("a.txt", "red\n");
    env.commit(&["a.txt"], &["false"]).exits(1);
    let from = |dir: &Path, args: &[&str]| {
        let args = [&["-C", repo.as_str(), "agentproto"], args].concat();
        env.run("git", &args).dir(dir).env("PWD", dir).done().exits(0).out()
    };
    let typed = |said: &str| -> Vec<String> {
        let lines = said.lines().filter_map(|line| line.split_once("git agentproto "));
        lines.map(|(_, rest)| format!("git agentproto {rest}")).collect()
    };
    let commands = typed(&from(&elsewhere, &["status"]));
    assert_eq!(commands.len(), 3, "{commands:?}");
    let away = format!("git agentproto -C {repo} ");
    assert!(commands.iter().all(|command| command.starts_with(&away)), "{commands:?}");
    let here = typed(&from(&env.repo(), &["status"]));
    assert!(here.iter().all(|command| !command.contains(" -C ")), "{here:?}");
    let shown = typed(&from(&elsewhere, &["policy", "show", &policy]));
    assert_eq!(shown, [format!("{away}ack {policy}")]);
    let line = format!("{} --reject --yes", shown[0]);
    env.run("sh", &["-c", &line]).dir(&elsewhere).done().exits(0);
    assert_eq!(status(&env, &policy), "cancelled");
}

#[test]
fn log_shows_the_last_few_when_told() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let all = env.ap(&["log"]).exits(0).out();
    for flag in [&["-n", "3"] as &[&str], &["--limit", "3"]] {
        let args: Vec<_> = ["log"].iter().chain(flag).copied().collect();
        let few = env.ap(&args).exits(0).out();
        assert_eq!(few.lines().count(), 3);
        assert!(
            few.lines().zip(all.lines()).all(|(a, b)| a.contains(b.split("ago").last().unwrap()))
        );
    }
}

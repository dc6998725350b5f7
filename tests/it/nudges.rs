//! What red gates lead to: agents are told, work on, and the policy and its sessions come to their end.

use crate::{env::TestEnv, house::text};
use serde_json::{Value, json};

/// Puts right what is wrong once it is told so, and writes down what it is told.
const LEARNS: &str = "printf '%s\\n--\\n' \"$AGENTPROTO_PROMPT\" >> told; \
                      if [ \"$AGENTPROTO_TURN\" -ge 2 ]; then echo right > f.txt; else echo wrong > f.txt; fi";

impl TestEnv {
    /// `run` with these flags and an agent that is this shell script, programs reading.
    #[track_caller]
    pub(crate) fn run_agent(&self, flags: &[&str], script: &str) -> crate::env::Output {
        let args = [&["run", "--json"], flags, &["--", "sh", "-c", script]].concat();
        self.ap(&args)
    }
}

/// The last line of a stream, which is the policy.
#[track_caller]
pub(crate) fn policy_of(out: &crate::env::Output) -> Value {
    let last = out.out();
    let last = last.lines().last().unwrap_or_else(|| panic!("nothing was answered: {out}"));
    serde_json::from_str(last).unwrap()
}

fn first_of(policy: &Value) -> String {
    policy["sessionIds"][0].as_str().unwrap().to_owned()
}

fn of_kind(env: &TestEnv, kind: &str) -> usize {
    env.kinds().iter().filter(|k| *k == kind).count()
}

#[test]
fn red_is_told_then_green_is_asked_for_lands_and_ends_the_session() {
    let env = TestEnv::new();
    let flags = ["--path", "f.txt", "-m", "f", "--gate", "grep -q right f.txt"];
    let policy = policy_of(&env.run_agent(&flags, LEARNS).exits(5));
    assert_eq!((&policy["status"], &policy["attempt"]), (&json!("awaiting-ack"), &json!(2)));
    assert!(policy["nextStep"].as_str().unwrap().contains("ack"), "{policy:#}");
    let told = env.lines_of("told", 4);
    assert!(told.starts_with("\n--\nThe check `grep -q right f.txt` did not pass"), "{told}");
    let session = first_of(&policy);
    assert_eq!(env.session(&session)["process"], "idle", "it waits for what may come");
    let id = text(&policy, "policyId");
    env.ap(&["ack", &id, "--yes"]).exits(0);
    assert_eq!(env.git(&["show", "main:f.txt"]), "right");
    assert_eq!(env.session(&session)["process"], "exited");
    assert_eq!(of_kind(&env, "policy:nudged"), 1);
    env.assert_no_gap();
}

#[test]
fn retries_are_used_up_and_the_session_ends() {
    let env = TestEnv::new();
    let flags = ["--gate", "false", "--max-retries", "3"];
    let policy = policy_of(&env.run_agent(&flags, "echo x >> log").exits(1));
    assert_eq!((&policy["status"], &policy["reason"]), (&json!("blocked"), &json!("gate-red")));
    assert_eq!((&policy["attempt"], env.lines_of("log", 4).lines().count()), (&json!(4), 4));
    let session = first_of(&policy);
    assert_eq!(env.session(&session)["process"], "exited");
    // And with none it is told nothing.
    let policy = policy_of(&env.run_agent(&["--gate", "false", "--max-retries", "0"], "true"));
    assert_eq!((&policy["status"], &policy["attempt"]), (&json!("blocked"), &json!(1)));
}

#[test]
fn every_place_of_a_nudge_is_filled() {
    let env = TestEnv::new();
    env.script("check.sh", "echo 'what is {code}?'; exit 7");
    let nudge = "{code}|{verdict}|{gate}|{attempt}|{max}|{tail}|{code}{other}{";
    let flags = ["--gate", "./check.sh", "--max-retries", "1", "--nudge", nudge];
    env.run_agent(&flags, "printf '%s\\n' \"$AGENTPROTO_PROMPT\" >> told").exits(1);
    let told = env.lines_of("told", 2);
    let want = "\n7|fail|./check.sh|1|2|what is {code}?\n|7{other}{\n";
    assert_eq!(told, want);
}

#[test]
fn an_agent_that_dies_of_its_nudge_leaves_its_policy_blocked() {
    let env = TestEnv::new();
    let script = "[ -z \"$AGENTPROTO_PROMPT\" ] || kill -KILL $$";
    let policy = policy_of(&env.run_agent(&["--gate", "false"], script).exits(1));
    assert_eq!(
        (&policy["status"], &policy["reason"]),
        (&json!("blocked"), &json!("session-failed"))
    );
    assert_eq!(of_kind(&env, "policy:nudged"), 1);
    let session = first_of(&policy);
    assert_eq!(env.session(&session)["exit"], json!({ "signal": "SIGKILL" }));
}

#[test]
fn a_group_is_told_as_far_as_it_can_hear() {
    let env = TestEnv::new();
    let script = "echo \"$AGENTPROTO_SESSION_ID $AGENTPROTO_PROMPT\" >> told; \
                  while [ ! -e go ]; do sleep 0.05; done";
    let one = env.launch(&["--reprompt"], script);
    let tree = env.worktree("t1");
    let other = env.launch(&["--reprompt", "--cwd", tree.to_str().unwrap()], "true");
    let deaf = env.adopt_in(&env.worktree("t2"), "deaf");
    env.lines_of("told", 1);
    let nudge = ["--nudge", "again", "--max-retries", "1", "--reprompt"];
    let ask = [&["attach", &one, &other, &deaf, "--json", "--no-wait"], &nudge[..]].concat();
    let ask = [&ask[..], &["--", "false"]].concat();
    let id = text(&env.ap(&ask).exits(0).json(), "policyId");
    env.write("go", "");
    env.ap(&["session", "report", &deaf, "turn-end"]).exits(0);
    env.ap(&["wait", &id, "--until", "settled", "--timeout", "60s"]);
    let policy = env.policy(&id);
    assert_eq!((&policy["status"], &policy["reason"]), (&json!("blocked"), &json!("gate-red")));
    assert_eq!((&policy["attempt"], of_kind(&env, "policy:nudged")), (&json!(2), 1));
    assert_eq!(env.lines_of("told", 2), format!("{one} \n{one} again\n"));
    for session in [&one, &other] {
        assert_eq!(env.session(session)["turn"], 2, "both were told");
        env.ap(&["session", "kill", session]).exits(0);
    }
}

#[test]
fn every_end_counts_where_that_is_asked_for_and_a_person_has_to_approve() {
    let env = TestEnv::new();
    env.allow_no_ack();
    let script = "echo right > f.txt; exit 3";
    let flags = ["--path", "f.txt", "-m", "f", "--gate", "true"];
    let policy = policy_of(&env.run_agent(&flags, script).exits(1));
    assert_eq!(policy["reason"], "session-failed", "a failure is no end by itself");
    let gated = [&flags[..], &["--on-end", "gate"]].concat();
    let policy = policy_of(&env.run_agent(&gated, script).exits(5));
    assert_eq!(policy["status"], "awaiting-ack");
    let free = [&gated[..], &["--no-ack"]].concat();
    let refused = env.run_agent(&free, script).exits(6);
    assert!(refused.err().contains("no-ack-not-allowed"), "{refused}");
    assert_eq!(env.git(&["rev-list", "--count", "main"]), "1");
}

#[test]
fn a_session_ends_with_its_policy_however_that_ends() {
    let env = TestEnv::new();
    let script = "echo $AGENTPROTO_TURN > f.txt";
    let waiting = || {
        let flags = ["--path", "f.txt", "-m", "f", "--gate", "true"];
        let policy = policy_of(&env.run_agent(&flags, script).exits(5));
        (text(&policy, "policyId"), first_of(&policy))
    };
    let ended = |session: &str, by: &str| {
        let session = env.session(session);
        assert_eq!(session["process"], "exited", "by {by}: {session:#}");
    };
    let (id, session) = waiting();
    env.ap(&["policy", "cancel", &id]).exits(0);
    ended(&session, "cancel");
    let (id, session) = waiting();
    env.ap(&["ack", &id, "--reject", "--yes"]).exits(0);
    ended(&session, "reject");
    let (id, session) = waiting();
    env.ap(&["ack", &id, "--yes"]).exits(0);
    ended(&session, "ack");
}

#[test]
fn a_session_goes_on_with_what_follows_its_policy() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.write(
        "next.json",
        &json!({ "gates": [{ "command": "true" }], "endSession": true }).to_string(),
    );
    let flags = ["--path", "f.txt", "-m", "f", "--no-ack", "--gate", "true", "--next", "next.json"];
    let policy = policy_of(&env.run_agent(&flags, "echo x > f.txt").exits(0));
    assert_eq!(policy["status"], "done");
    let session = first_of(&policy);
    let next = text(&policy, "nextPolicyId");
    env.ap(&["wait", &next, "--until", "done", "--timeout", "30s"]).exits(0);
    assert_eq!(env.over(&session)["process"], "exited");
}

#[test]
fn what_is_cancelled_or_expires_while_its_nudge_waits_tells_nobody() {
    for ends in ["cancelled", "blocked"] {
        let env = TestEnv::new();
        let hold = env.path("hold");
        let wait = format!("while [ -e {} ]; do sleep 0.05; done; exit 1", hold.display());
        env.script("gate.sh", &wait);
        std::fs::write(&hold, "").unwrap();
        let script = "echo \"$AGENTPROTO_PROMPT\" >> told; case \"$AGENTPROTO_PROMPT\" in \
                      busy) while [ ! -e go ]; do sleep 0.05; done;; esac";
        let id = env.launch(&["--reprompt"], script);
        env.until(&id, "idle", |s| s["turn"] == 1 && s["process"] == "idle");
        let expires: &[&str] = if ends == "blocked" { &["--expires", "4s"] } else { &[] };
        let args =
            [&["--no-wait", "--nudge", "of red", "--reprompt"], expires, &["--", "./gate.sh"]];
        let policy = env.attach(&id, &args.concat());
        // The turn that is over is gated while the next one runs: the nudge has to wait.
        env.ap(&["session", "prompt", &id, "busy"]).exits(0);
        env.lines_of("told", 2);
        std::fs::remove_file(&hold).unwrap();
        env.until(&id, "a nudge waits", |s| s["queued"] == 1);
        if ends == "cancelled" {
            env.ap(&["policy", "cancel", &policy]).exits(0);
        } else {
            env.ap(&["wait", &policy, "--until", "settled", "--timeout", "30s"]);
        }
        assert_eq!(env.policy(&policy)["status"], ends);
        env.write("go", "");
        let session = env.until(&id, "over", |s| s["process"] == "idle" && s["queued"] == 0);
        let told = env.lines_of("told", 2);
        assert!(!told.contains("of red"), "a policy that is {ends} told {told}");
        assert_eq!(session["turn"], 2, "{session:#}");
        env.ap(&["session", "kill", &id]).exits(0);
    }
}

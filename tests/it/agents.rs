//! Agents that we start: begun, told things, and what they wrote.

use crate::{
    env::{Output, PATIENCE, TestEnv, wait_for},
    house::text,
};
use serde_json::{Value, json};
use std::{fs, path::Path};

impl TestEnv {
    /// Starts a detached agent that is this shell script; its id.
    #[track_caller]
    pub(crate) fn launch(&self, flags: &[&str], script: &str) -> String {
        let lead = ["session", "start", "--detach", "--json"];
        let args = [&lead[..], flags, &["--", "sh", "-c", script]].concat();
        text(&self.ap(&args).exits(0).json(), "sessionId")
    }

    /// The same in the foreground, to its end.
    #[track_caller]
    pub(crate) fn launch_here(&self, flags: &[&str], script: &str) -> Output {
        let args = [&["session", "start"], flags, &["--", "sh", "-c", script]].concat();
        self.ap(&args)
    }

    #[track_caller]
    pub(crate) fn session(&self, id: &str) -> Value {
        self.ap(&["session", "show", id, "--json"]).exits(0).json()
    }

    /// Waits until a file of the repository has as many lines; the file.
    #[track_caller]
    pub(crate) fn lines_of(&self, name: &str, count: usize) -> String {
        let file = self.repo().join(name);
        wait_for(&format!("{count} lines in {name}"), PATIENCE, || {
            fs::read_to_string(&file).ok().filter(|text| text.lines().count() >= count)
        })
    }

    /// Waits until the journal says of a session what is asked for.
    #[track_caller]
    pub(crate) fn until(&self, id: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        wait_for(&format!("{id}: {what}"), PATIENCE, || Some(self.session(id)).filter(|s| is(s)))
    }

    /// Waits for the session to be over as anybody would, and gives it.
    #[track_caller]
    pub(crate) fn over(&self, id: &str) -> Value {
        let waited = self.ap(&["wait", id, "--until", "exited", "--timeout", "60s"]);
        assert_eq!(waited.code(), 0, "{waited}");
        self.session(id)
    }
}

/// Processes that were started for a session and still run, runner and all.
pub(crate) fn started_for(session: &str) -> Vec<u32> {
    let entry = format!("AGENTPROTO_SESSION_ID={session}");
    let is_of = |dir: &Path| {
        let vars = fs::read(dir.join("environ")).unwrap_or_default();
        vars.split(|byte| *byte == 0).any(|var| var == entry.as_bytes())
    };
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pid = |e: &fs::DirEntry| e.file_name().to_str()?.parse().ok();
    all.filter_map(|e| Some((pid(&e)?, e.path())))
        .filter(|(_, dir)| is_of(dir))
        .map(|(pid, _)| pid)
        .collect()
}

#[test]
fn in_the_foreground_the_exit_code_is_that_of_the_last_turn() {
    let env = TestEnv::new();
    let done = env.launch_here(&["--json"], "echo out; echo err >&2").exits(0).json();
    assert_eq!((&done["process"], &done["reason"]), (&json!("exited"), &json!("completed")));
    assert_eq!((&done["turn"], &done["exit"]), (&json!(1), &json!({ "code": 0 })));
    let failed = env.launch_here(&["--json"], "exit 3").exits(1).json();
    assert_eq!((&failed["reason"], &failed["exit"]), (&json!("error"), &json!({ "code": 3 })));
    // Killed by somebody else than us.
    let shot = env.launch_here(&["--json"], "kill -KILL $$").exits(1).json();
    assert_eq!(shot["exit"], json!({ "signal": "SIGKILL" }));

    let plain = env.launch_here(&[], "printf 'a\\tb\\033[2J'; printf c >&2; exit 0").exits(0);
    assert!(plain.err().contains("a    b\\x1b[2J"), "{plain}");
    assert!(plain.out().starts_with("session ses_"), "{plain}");
    // A line of ours stands on a line of its own, and what a turn wrote is within it.
    let told = plain.err();
    let at = |what: &str| told.find(what).unwrap_or_else(|| panic!("no {what} in {plain}"));
    assert!(at("session:turn-start") < at("a    b\\x1b"), "{plain}");
    assert!(at("a    b\\x1b") < at("session:turn-end"), "{plain}");
    assert!(told.lines().all(|l| !l.contains("session:") || !l.contains("a    b")), "{plain}");
}

#[test]
fn an_agent_that_cannot_be_started_is_told_apart_from_one_that_failed() {
    let env = TestEnv::new();
    env.write("no-program", "text\n");
    for word in ["no-such-agent", "./no-program"] {
        let refused = env.ap(&["session", "start", "--json", "--", word]).exits(6);
        assert!(refused.err().contains("agent-not-found"), "{refused}");
    }
    assert!(env.kinds().is_empty(), "something was recorded: {:?}", env.kinds());
    // A program in the eyes of everybody but the kernel.
    env.write_script("odd", "#!/no/such/interpreter\n");
    let out = env.ap(&["session", "start", "--json", "--", "./odd"]).exits(2).json();
    assert_eq!(out["process"], "exited", "{out:#}");
    assert_eq!(out["exit"], json!({ "notStarted": true }), "{out:#}");
}

#[test]
fn detached_it_goes_on_and_its_output_is_kept_and_followed() {
    let env = TestEnv::new();
    let id = env.launch(
        &["--label", "writer"],
        "echo one; echo two; while [ ! -e go ]; do sleep 0.05; done; printf 'three\\303\\244\\377'",
    );
    let out =
        |flags: &[&str]| env.ap(&[&["session", "output", "writer", "--json"], flags].concat());
    let piece = wait_for("two lines", PATIENCE, || {
        Some(out(&[]).exits(0).json()).filter(|o| o["output"] == "one\ntwo\n")
    });
    assert_eq!((&piece["from"], &piece["next"]), (&json!(0), &json!(8)));
    assert_eq!(out(&["--last", "1"]).exits(0).json()["output"], "two\n");
    assert_eq!(out(&["--last", "0"]).exits(0).json()["output"], "");
    assert_eq!(out(&["--last", "9"]).exits(0).json()["output"], "one\ntwo\n");
    assert_eq!(out(&["--since", "4"]).exits(0).json()["output"], "two\n");
    assert!(out(&["--since", "9"]).exits(4).err().contains("no-such-cursor"));

    let followed = env.tool(&["session", "output", "writer", "--follow", "--raw"]).start();
    env.write("go", "");
    let over = env.over(&id);
    assert_eq!(over["reason"], "completed", "{over:#}");
    let all = followed.wait_with_output().unwrap();
    assert_eq!(all.stdout, b"one\ntwo\nthree\xc3\xa4\xff");
    assert!(all.status.success());

    let rest = out(&["--since", "8"]).exits(0).json();
    assert_eq!(rest["output"], json!({ "b64": "dGhyZWXDpP8=" }), "not UTF-8");
    let plain = env.ap(&["session", "output", "writer"]).exits(0);
    assert_eq!(plain.out(), "one\ntwo\nthreeä\u{fffd}");
    // Nothing of it is under a ref, and it is nobody else's to read.
    let dir = env.repo().join(".git/agentproto/output").join(&id);
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&dir).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_character_is_never_cut_where_output_is_shown_piece_by_piece() {
    let env = TestEnv::new();
    // One byte, then two-byte characters: every even position is amid one.
    let script = "printf x; i=0; while [ $i -lt 4000 ]; do \
                  printf 'ääääääääääääääääääääääääääääääääääääääääääääääää'; i=$((i+1)); done";
    env.launch_here(&["--label", "w", "--json"], script).exits(0);
    let shown = env.ap(&["session", "output", "w"]).exits(0);
    assert_eq!(shown.out(), format!("x{}", "ä".repeat(48 * 4000)));
    let piece = env.ap(&["session", "output", "w", "--json"]).exits(0).json();
    let next = piece["next"].as_u64().unwrap();
    assert!(piece["output"].as_str().unwrap().chars().skip(1).all(|c| c == 'ä'), "{next}");
    let rest = env.ap(&["session", "output", "w", "--json", "--since", &next.to_string()]);
    assert!(rest.exits(0).json()["output"].as_str().unwrap().starts_with("ää"));
    let plain = env.launch_here(&[], script).exits(0);
    assert!(plain.err().contains(&"ä".repeat(48 * 4000)), "output was lost or cut");
}

#[test]
fn positions_stay_what_they_were_when_old_output_goes() {
    let env = TestEnv::new();
    let script = "i=0; while [ $i -lt 110000 ]; do echo 'line number '$i' of very many that are \
                  written, more than are kept'; i=$((i+1)); done; echo last";
    env.launch_here(&["--label", "w", "--json"], script).exits(0);
    let out = |flags: &[&str]| {
        let args = [&["session", "output", "w", "--json"], flags].concat();
        env.ap(&args).exits(0).json()
    };
    let last = out(&["--last", "1"]);
    let (from, next) = (last["from"].as_u64().unwrap(), last["next"].as_u64().unwrap());
    assert_eq!((last["output"].as_str(), next - from), (Some("last\n"), 5));
    let first = out(&[]);
    assert!(first["from"].as_u64().unwrap() > 0, "nothing went");
    assert_eq!(out(&["--since", &from.to_string()])["output"], "last\n");
    let old = out(&["--since", "3"]);
    assert_eq!(old["from"], first["from"], "what is gone begins with what is kept");
}

#[test]
fn what_is_told_comes_by_variable_and_by_standard_input() {
    let env = TestEnv::new();
    let script = "printf '%s|' \"$AGENTPROTO_PROMPT\" >> log; cat >> log; echo \
                  \"|$AGENTPROTO_TURN|$MINE|$AGENTPROTO_SESSION_ID|$PWD\" >> log";
    let flags = ["--reprompt", "--label", "s", "--env", "MINE=a=b", "--env", "AGENTPROTO_TURN=9"];
    let said = ["--env", "AGENTPROTO_PROMPT=forged", "--prompt", "-"];
    let args = [&["session", "start", "--detach", "--json"], &flags[..], &said].concat();
    let args = [&args[..], &["--", "sh", "-c", script]].concat();
    let id = text(&env.tool(&args).stdin("first\nwords").done().exits(0).json(), "sessionId");
    let top = env.repo().display().to_string();
    let want = format!("first\nwords|first\nwords|1|a=b|{id}|{top}\n");
    assert_eq!(env.lines_of("log", 3), want);
    env.until(&id, "idle", |s| s["process"] == "idle" && s["turn"] == 1);

    env.tool(&["session", "prompt", "s", "-"]).stdin("more").done().exits(0);
    env.until(&id, "turn 2 over", |s| s["turn"] == 2 && s["process"] == "idle");
    assert_eq!(env.lines_of("log", 4), format!("{want}more|more|2|a=b|{id}|{top}\n"));

    for (said, code) in [("", "usage"), (" \n", "usage")] {
        let refused = env.ap(&["session", "prompt", "s", said, "--json"]).exits(129);
        assert!(refused.err().contains(code), "{refused}");
    }
    let large = "x".repeat(1024 * 1024);
    let refused = env.tool(&["session", "prompt", "s", "-", "--json"]).stdin(large).done();
    assert_ne!(refused.code(), 0, "{refused}");
    assert_eq!(env.session(&id)["turn"], 2, "nothing was told");
    // What is secret stands in no ref.
    let all = env.git(&["log", "-p", "--format=%B", &env.journal()]);
    assert!(!all.contains("a=b"), "a value of --env is in the journal");
    env.ap(&["session", "kill", "s"]).exits(0);
}

#[test]
fn who_is_at_work_is_told_later_or_interrupted_and_never_twice() {
    let env = TestEnv::new();
    let script = "echo \"$AGENTPROTO_TURN $AGENTPROTO_PROMPT\" >> log; \
                  case \"$AGENTPROTO_PROMPT\" in wait*) while [ ! -e go ]; do sleep 0.05; done;; esac; \
                  echo over >> log";
    let id = env.launch(&["--reprompt", "--prompt", "wait"], script);
    env.lines_of("log", 1);
    let prompt = |rest: &[&str]| env.ap(&[&["session", "prompt", &id, "--json"], rest].concat());
    assert!(prompt(&["now"]).exits(6).err().contains("mid-turn"));
    let first = prompt(&["later", "--queue", "--key", "k"]).exits(0).json();
    let again = prompt(&["later", "--queue", "--key", "k"]).exits(0).json();
    assert_eq!(first["seq"], again["seq"]);
    assert_eq!(again["queued"], 1);

    // What interrupts is said next; what waits goes on waiting.
    prompt(&["wait more", "--interrupt"]).exits(0);
    let session = env.until(&id, "turn 2", |s| s["turn"] == 2 && s["process"] == "alive");
    assert_eq!(session["queued"], 1);
    assert_eq!(env.lines_of("log", 2), "1 wait\n2 wait more\n");
    env.write("go", "");
    let session = env.until(&id, "turn 3 over", |s| s["turn"] == 3 && s["process"] == "idle");
    assert_eq!(session["reason"], "completed");
    assert_eq!(env.lines_of("log", 5), "1 wait\n2 wait more\nover\n3 later\nover\n");
    env.ap(&["session", "kill", &id]).exits(0);
    let refused = prompt(&["after"]).exits(6);
    assert!(refused.err().contains("terminal"), "{refused}");
    env.assert_no_gap();
}

#[test]
fn a_turn_that_interrupts_another_is_not_ended_with_it() {
    let env = TestEnv::new();
    let script = "echo $AGENTPROTO_TURN >> log; while [ ! -e go$AGENTPROTO_TURN ]; do sleep 0.05; done; \
                  echo over >> log";
    let id = env.launch(&["--reprompt"], script);
    for turn in 1..=4 {
        env.lines_of("log", turn);
        env.until(&id, "at work", |s| s["turn"] == turn && s["process"] == "alive");
        let next = format!("turn {}", turn + 1);
        env.ap(&["session", "prompt", &id, &next, "--interrupt"]).exits(0);
    }
    env.lines_of("log", 5);
    env.write("go5", "");
    let session = env.until(&id, "idle", |s| s["process"] != "alive");
    assert_eq!((&session["turn"], &session["reason"]), (&json!(5), &json!("completed")));
    assert_eq!(env.lines_of("log", 6), "1\n2\n3\n4\n5\nover\n");
    env.ap(&["session", "kill", &id]).exits(0);
}

#[test]
fn as_many_prompts_wait_as_there_is_room_for() {
    let env = TestEnv::new();
    let id = env.launch(&["--reprompt"], "while [ ! -e go ]; do sleep 0.05; done; echo x >> log");
    let mut told = 0;
    let refused = loop {
        let out = env.ap(&["session", "prompt", &id, "more", "--queue", "--json"]);
        if out.code() != 0 {
            break out;
        }
        told += 1;
        assert!(told < 1000, "there is no bound");
    };
    assert!(refused.err().contains("too-many"), "{refused}");
    env.write("go", "");
    env.until(&id, "all told", |s| s["turn"] == told + 1 && s["process"] == "idle");
    assert_eq!(env.lines_of("log", 1).lines().count(), usize::try_from(told + 1).unwrap());
    env.ap(&["session", "kill", &id]).exits(0);
}

#[test]
fn case_166_two_agents_are_never_in_one_worktree() {
    let env = TestEnv::new();
    let tree = env.worktree("t1");
    fs::create_dir(tree.join("below")).unwrap();
    std::os::unix::fs::symlink(&tree, env.path("alias")).unwrap();
    let dir = |path: &str| env.path(path).display().to_string();
    let start = |at: &str| {
        let words = ["session", "start", "--detach", "--json", "--cwd", at, "--", "sleep", "600"];
        env.ap(&words)
    };
    let first = text(&start(&dir("t1")).exits(0).json(), "sessionId");
    for at in ["t1", "t1/.", "t1/below", "alias", "alias/below"] {
        let refused = start(&dir(at)).exits(6);
        assert!(refused.err().contains("worktree-busy"), "{refused}");
        assert!(refused.err().contains(&first), "it is not named: {refused}");
    }
    let run = ["run", "--cwd", &dir("alias"), "--json", "--gate", "true", "--", "true"];
    assert!(env.ap(&run).exits(6).err().contains("worktree-busy"));
    // Who is registered by hand is there already: it is only said.
    let adopted = env.ap(&["session", "adopt", "--cwd", &dir("alias/below")]).exits(0);
    let warning = format!("warning: {first} is in this worktree, too");
    assert!(adopted.err().contains(&warning), "{adopted}");
    let adopted = adopted.out();
    let adopted = adopted.split_whitespace().nth(1).unwrap();
    // Another worktree is free.
    env.launch(&[], "true");
    // One that is over makes room, an adopted one that was never said to be over does not.
    env.ap(&["session", "kill", &first]).exits(0);
    assert!(start(&dir("t1")).exits(6).err().contains(adopted));
    env.ap(&["session", "report", adopted, "exited"]).exits(0);
    let third = text(&start(&dir("alias")).exits(0).json(), "sessionId");
    env.ap(&["session", "kill", &third]).exits(0);
}

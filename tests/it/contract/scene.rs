//! A repository in which everything there is has happened, and one way to call each command in it.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use serde_json::json;
use std::cell::Cell;

/// What clears the line, forges another one, sets the title, begins a colour by a C1 control, reorders and hides.
pub(super) const EVIL: &str =
    "evil\u{1b}[2K\rgreen \u{1b}]0;x\u{7} \u{9b}31m\u{202e}\u{2066}\u{200b}\u{7f}";

/// The populated repository, with names of what is in it.
pub(super) struct Scene {
    pub(super) env: TestEnv,
    /// A session at work, watched by a policy.
    pub(super) session: String,
    /// A policy that is done, and its commit.
    pub(super) done: String,
    /// One whose gate is red.
    pub(super) blocked: String,
    /// One that waits for an ack.
    pub(super) waiting: String,
    /// A session of an agent that was started here, wrote something and is over.
    agent: String,
    made: Cell<u32>,
}

impl Scene {
    pub(super) fn new() -> Self {
        Self::of(TestEnv::new(), "")
    }

    /// The same where every name, message and output that may hold it holds [`EVIL`], on a branch and in a worktree called so.
    pub(super) fn hostile() -> Self {
        let env = TestEnv::new();
        env.script("evil.sh", &format!("printf '%s\\n' '{EVIL}'; exit 1"));
        // git refuses control characters of ASCII in names of branches, and no others.
        let branch = EVIL.replace(|c: char| c.is_ascii_control() || "[] ".contains(c), "");
        env.git(&["switch", "-qc", &branch]);
        Self::of(env, EVIL)
    }

    fn of(env: TestEnv, evil: &str) -> Self {
        env.allow_no_ack();
        let named = |name: &str| format!("{name}{evil}");
        let done = commit_policy(&env, &named("landed"));
        env.ap(&["ack", &done, "--yes", "-m", &named("looks good")]).exits(0);
        let red = env.adopt("red");
        let gate = if evil.is_empty() { "false" } else { "./evil.sh" };
        let blocked = env.attach(&red, &["--label", "never green", "--", gate, &named("x")]);
        env.turn_end(&red, &blocked).exits(1);
        let session = env.adopt("at work");
        env.attach(&session, &["--label", "watched", "--", "ls", "-l"]);
        let key = named("k");
        env.ap(&["session", "report", &session, "turn-start", "--key", &key]).exits(0);
        let asking = env.adopt("asking");
        let request = json!({
            "id": named("1"), "kind": named("question"), "text": named("which?"), "options": [named("a")],
        });
        let data = json!({ "requests": [request] }).to_string();
        env.ap(&["session", "report", &asking, "awaiting-input", "--data", &data]).exits(0);
        let beside = env.path(&named("beside"));
        env.git(&["worktree", "add", "-q", "-b", "beside", beside.to_str().unwrap()]);
        let over = env.adopt_in(&beside, "over");
        env.ap(&["session", "report", &over, "exited", "--data", r#"{"code":3}"#]).exits(0);
        let long = "a label that is longer than any list on any terminal has room for";
        let patient = env.adopt(long);
        env.attach(&patient, &["--label", &long.replace("list", "table"), "--", "ls", long]);
        let stopped = commit_policy(
            &env,
            &named("stopped because its name is longer than a line has room for"),
        );
        env.ap(&["policy", "cancel", &stopped, "-m", &named("why")]).exits(0);
        let waiting = commit_policy(&env, &named("waits"));
        let agent = agent(&env, &named("wrote"));
        Self { env, session, done, blocked, waiting, agent, made: Cell::new(0) }
    }

    /// A name that nothing has yet.
    fn fresh(&self, lead: &str) -> String {
        self.made.set(self.made.get() + 1);
        format!("{lead}-{}", self.made.get())
    }

    /// A policy of its own session, blocked by its gate.
    fn red(&self) -> String {
        let session = self.env.adopt(&self.fresh("red"));
        let policy = self.env.attach(&session, &["--", "false"]);
        self.env.turn_end(&session, &policy).exits(1);
        policy
    }

    /// A worktree in which nobody is at work.
    fn free_worktree(&self) -> String {
        self.env.worktree(&self.fresh("free")).display().to_string()
    }

    /// A session that takes prompts and has nothing to do.
    fn idle(&self) -> String {
        let dir = self.free_worktree();
        let words = ["session", "start", "--json", "--reprompt", "--cwd", &dir, "--", "true"];
        text(&self.env.ap(&words).exits(0).json(), "sessionId")
    }

    /// The words of a call, with more of ours before the gate.
    pub(super) fn call(&self, row: &Row, more: &[&str]) -> Vec<String> {
        let mut words: Vec<String> = row.command.split(' ').map(str::to_owned).collect();
        words.extend((row.words)(self));
        let own = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.splice(own..own, more.iter().map(|word| (*word).to_owned()));
        words
    }

    #[track_caller]
    pub(super) fn run(&self, row: &Row, more: &[&str]) -> Output {
        self.env.ap(&self.call(row, more)).exits(0)
    }
}

/// A policy that waits to commit a new file, whose name is its content, message and gate, too.
fn commit_policy(env: &TestEnv, name: &str) -> String {
    let session = env.adopt("commits");
    std::fs::write(env.repo().join(name), name).unwrap();
    let args = ["--then", "commit", "--path", name, "-m", name];
    let policy = env.attach(&session, &[&args[..], &["--", "ls", name]].concat());
    env.turn_end(&session, &policy).exits(5);
    policy
}

/// A session of an agent that writes what it is told, and is over.
fn agent(env: &TestEnv, said: &str) -> String {
    let dir = env.worktree("of-the-agent").display().to_string();
    let words = ["session", "start", "--json", "--cwd", &dir, "--prompt", said, "--", "cat"];
    text(&env.ap(&words).exits(0).json(), "sessionId")
}

/// One way to call a command, which ends with 0.
pub(super) struct Row {
    /// Its words, joined.
    pub(super) command: &'static str,
    /// The schema of its answer, or of each line of it.
    pub(super) answer: &'static str,
    /// It only looks: its answer is the same each time.
    pub(super) looks: bool,
    words: fn(&Scene) -> Vec<String>,
}

fn words<const N: usize>(all: [&str; N]) -> Vec<String> {
    all.map(str::to_owned).into()
}

const fn looks(
    command: &'static str,
    answer: &'static str,
    words: fn(&Scene) -> Vec<String>,
) -> Row {
    Row { command, answer, looks: true, words }
}

const fn acts(
    command: &'static str,
    answer: &'static str,
    words: fn(&Scene) -> Vec<String>,
) -> Row {
    Row { command, answer, looks: false, words }
}

/// At least one row for every command.
pub(super) const ROWS: &[Row] = &[
    acts("commit", "policy", |s| {
        let file = s.fresh("file");
        s.env.write(&file, "new\n");
        words(["--no-ack", "--path", &file, "-m", "add a file", "--", "true"])
    }),
    acts("attach", "policy", |s| words([&s.session, "--", "true"])),
    acts("run", "event", |s| words(["--gate", "true", "--cwd", &s.free_worktree(), "--", "cat"])),
    looks("status", "status", |_| vec![]),
    looks("status", "policy", |s| words([&s.blocked])),
    looks("status", "session", |s| words([&s.session])),
    acts("ack", "ack", |s| words([&s.env.awaiting(&s.fresh("acked")), "--yes"])),
    looks("log", "event", |_| vec![]),
    looks("log", "event", |s| words([&s.done])),
    looks("events", "events", |_| vec![]),
    looks("events", "event", |_| words(["--follow", "--since", "0", "--limit", "5"])),
    looks("wait", "wait", |s| words([&s.done, "--until", "done", "--timeout", "0s"])),
    looks("verify", "verify", |s| {
        let commit = text(&s.env.policy(&s.done), "commitSha");
        words([&format!("{commit}~1..{commit}")])
    }),
    acts("policy attach", "policy", |s| words([&s.session, "--", "true"])),
    looks("policy list", "policy-list", |_| words(["--all"])),
    looks("policy show", "policy", |s| words([&s.blocked])),
    looks("policy show", "policy", |s| words([&s.done])),
    looks("policy show", "candidate", |s| words([&s.done, "--candidate"])),
    looks("policy wait", "wait", |s| words([&s.done, "--all", "--timeout", "0s"])),
    acts("policy ack", "ack", |s| {
        words([&s.env.awaiting(&s.fresh("rejected")), "--yes", "--reject"])
    }),
    acts("policy cancel", "policy", |s| {
        words([&s.env.attach(&s.session, &["--", "true"]), "-m", "not needed"])
    }),
    acts("policy adopt", "policy", |s| words([&s.red()])),
    acts("policy regate", "policy", |s| words([&s.red()])),
    acts("policy dismiss", "policy", |s| words([&s.red()])),
    acts("session adopt", "session", |s| words(["--label", &s.fresh("new"), "--cwd", "."])),
    acts("session start", "session", |s| words(["--cwd", &s.free_worktree(), "--", "cat"])),
    acts("session prompt", "session-prompt", |s| words([&s.idle(), "go on"])),
    looks("session output", "session-output", |s| words([&s.agent])),
    looks("session output", "session-output", |s| words([&s.agent, "--follow"])),
    acts("session kill", "session", |s| words([&s.idle()])),
    acts("session report", "report", |s| {
        words([&s.session, "command-done", "--data", r#"{"argv":["make"],"code":2}"#])
    }),
    looks("session list", "session-list", |_| words(["--all"])),
    looks("session show", "session", |s| words([&s.session])),
    looks("session show", "session", |s| words([&s.agent])),
    acts("exec", "exec", |s| words([&s.session, "--", "true"])),
    acts("supervise", "supervise", |s| {
        let session = s.env.adopt(&s.fresh("due"));
        s.env.attach(&session, &["--", "true"]);
        let report = ["session", "report", &session, "turn-end", "--no-perform"];
        s.env.ap(&report).exits(0);
        words(["--once"])
    }),
    acts("allow", "allow", |s| words(["--", "ls", &s.fresh("-x")])),
    looks("allow", "allow-list", |_| vec![]),
    acts("trust", "trust", |_| vec![]),
    acts("init", "init", |_| words(["--yes"])),
    looks("fsck", "fsck", |_| vec![]),
    acts("gc", "gc", |_| vec![]),
    acts("demo", "demo", |s| words([&s.fresh("demo")])),
    looks("doctor", "doctor", |_| vec![]),
    looks("completions", "completions", |_| words(["bash"])),
    looks("man", "man", |_| words(["policy", "show"])),
    acts("man", "man-install", |s| {
        let prefix = s.env.path(&s.fresh("prefix"));
        words(["--install", "--prefix", prefix.to_str().unwrap()])
    }),
    looks("schema", "schema-list", |_| vec![]),
    looks("schema", "schema", |_| words(["policy"])),
    looks("help", "help", |_| vec![]),
    looks("help", "help", |_| words(["gate-red"])),
];

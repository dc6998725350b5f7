//! A machine of its own for each test: home, keys, configuration and repositories below one directory.
//!
//! Contract: a child sees only the variables set here; nothing outside the directory is read but programs;
//! no wait is without a deadline. This is the only test module that starts programs, reads the process
//! environment or sleeps.

use crate::schemas;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
    time::{Duration, Instant},
};

/// No child of a test runs longer.
const CHILD_DEADLINE: Duration = Duration::from_secs(120);

/// What `wait_for` waits at most unless told otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Directory of the binary under test.
fn binary_dir() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_git-agentproto")).parent().unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "git and ssh-keygen are found as the tester finds them"
)]
fn search_path() -> OsString {
    let mut path = binary_dir().as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into()));
    path
}

/// What the tester chose for every repository that the tests make: `git init` itself honours these.
#[expect(clippy::disallowed_methods, reason = "the one look at the tester's choice")]
fn chosen() -> impl Iterator<Item = (&'static str, OsString)> {
    let names = ["GIT_DEFAULT_HASH", "GIT_DEFAULT_REF_FORMAT"];
    names.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

/// True where the tester has time (`AGENTPROTO_FLOOR=long`).
#[expect(clippy::disallowed_methods, reason = "the one look at the tester's patience")]
pub(crate) fn is_long() -> bool {
    std::env::var_os("AGENTPROTO_FLOOR").is_some_and(|floor| floor == "long")
}

/// How a program ended and what it printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    told: String,
}

impl Output {
    /// Exit code; a death by signal is 128 + its number, as a shell says it.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().or_else(|| self.status.signal().map(|s| 128 + s)).unwrap()
    }

    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(crate) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Stdout as the one JSON object it has to be.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|e| panic!("stdout is not one JSON object: {e}\n{self}"))
    }

    /// Panics with everything known unless the exit code is `want`.
    #[track_caller]
    pub(crate) fn exits(self, want: i32) -> Self {
        assert_eq!(self.code(), want, "exit code of {self}");
        self
    }
}

impl std::fmt::Display for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\n-- {}\n-- stdout\n{}\n-- stderr\n{}",
            self.told,
            self.status,
            self.out(),
            self.err()
        )
    }
}

/// A command line about to be run.
pub(crate) struct Run {
    command: Command,
    stdin: Vec<u8>,
    told: String,
}

impl Run {
    pub(crate) fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    pub(crate) fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    /// Starts it in a process group of its own and leaves it to the caller.
    pub(crate) fn start(mut self) -> Child {
        self.command.process_group(0).spawn().unwrap()
    }

    /// Runs it to its end.
    #[track_caller]
    pub(crate) fn done(mut self) -> Output {
        if !self.stdin.is_empty() {
            self.command.stdin(Stdio::piped());
        }
        let answers_json = self.answers_json();
        let (told, stdin) = (std::mem::take(&mut self.told), std::mem::take(&mut self.stdin));
        let mut child = self.start();
        let group = rustix::process::Pid::from_child(&child);
        if let Some(mut pipe) = child.stdin.take() {
            // A program that does not read its input is judged by how it ends.
            let _ = std::io::Write::write_all(&mut pipe, &stdin);
        }
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let Ok(ended) = receiver.recv_timeout(CHILD_DEADLINE) else {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            panic!("still running after {CHILD_DEADLINE:?}: {told}");
        };
        let ended = ended.unwrap();
        let output =
            Output { status: ended.status, stdout: ended.stdout, stderr: ended.stderr, told };
        if answers_json {
            hold_to_schemas(&output);
        }
        output
    }

    /// True for a command of ours that is asked for JSON, whatever else is wrong with it.
    fn answers_json(&self) -> bool {
        let own = self.command.get_program() == env!("CARGO_BIN_EXE_git-agentproto");
        let words: Vec<_> = self.command.get_args().take_while(|word| *word != "--").collect();
        let words = match words.iter().position(|word| *word == "agentproto") {
            Some(at) if self.command.get_program() == "git" => &words[at..],
            _ if own => &words[..],
            _ => return false,
        };
        words.iter().any(|word| *word == "--json")
    }
}

/// Panics unless every line on stdout is an object as its schema says, and an error is nothing but one object on stderr.
#[track_caller]
fn hold_to_schemas(output: &Output) {
    let objects = |text: &[u8]| -> Vec<Value> {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let object = |line| {
            serde_json::from_slice(line)
                .unwrap_or_else(|e| panic!("no JSON on a line: {e}\n{output}"))
        };
        lines.map(object).collect()
    };
    let mut told = objects(&output.stdout);
    let by_itself = output.status.code().is_some_and(|code| !matches!(code, 0 | 130 | 141 | 143));
    if by_itself && told.is_empty() {
        told = objects(&output.stderr);
        assert_eq!(told.len(), 1, "not one error: {output}");
    }
    for object in &told {
        let wrong = schemas::complaints(object);
        assert!(wrong.is_empty(), "not as published:\n{}\n{object:#}\n{output}", wrong.join("\n"));
    }
}

/// The schema that the binary prints under this name.
#[expect(clippy::disallowed_methods, reason = "a look at the binary, without a machine of its own")]
pub(crate) fn printed_schema(name: &str) -> Value {
    let printed =
        Command::new(env!("CARGO_BIN_EXE_git-agentproto")).args(["schema", name]).output();
    let printed = printed.unwrap();
    assert!(printed.status.success(), "no schema {name}: {printed:?}");
    serde_json::from_slice(&printed.stdout).unwrap()
}

/// The hermetic machine. Its directory goes when it is dropped.
pub(crate) struct TestEnv {
    root: PathBuf,
    _held: tempfile::TempDir,
}

impl TestEnv {
    /// Home, global configuration, the keys `ada` (a signer) and `eve` (a stranger), allowed signers.
    pub(crate) fn bare() -> Self {
        let held = tempfile::tempdir().unwrap();
        let root = held.path().canonicalize().unwrap();
        let env = Self { root, _held: held };
        fs::create_dir_all(env.home().join(".config")).unwrap();
        env.stock_keys();
        env.write_signers("ada@example.invalid namespaces=\"agentproto-ack\"", "ada");
        let own = |name: &str| env.path(name).display().to_string();
        let config = format!(
            "[user]\n\tname = Ada Example\n\temail = ada@example.invalid\n\
             [init]\n\tdefaultBranch = main\n\
             [protocol \"file\"]\n\tallow = always\n\
             [agentproto]\n\tallowedSignersFile = {}\n\tsigningKey = {}\n",
            own("allowed"),
            own("ada"),
        );
        fs::write(env.home().join(".gitconfig"), config).unwrap();
        env
    }

    /// The same with a repository at `repo()`, an allowlist committed on its `main`, and `init` done.
    pub(crate) fn new() -> Self {
        let env = Self::bare();
        env.make_repo("r");
        env.ap(&["init", "--yes"]).exits(0);
        env
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.path("r")
    }

    /// The same over a repository whose objects are named by `hash`, whatever the tester chose.
    pub(crate) fn of_hash(hash: &str) -> Self {
        let env = Self::bare();
        env.make_repo_with("r", &["--object-format", hash]);
        env.ap(&["init", "--yes"]).exits(0);
        env
    }

    /// Makes a repository with one commit: `a.txt` and an allowlist of harmless programs.
    pub(crate) fn make_repo(&self, name: &str) -> PathBuf {
        self.make_repo_with(name, &[])
    }

    /// The same with options of `git init`.
    pub(crate) fn make_repo_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let dir = self.path(name);
        let args = [&["init", "-q"], options, &[name]].concat();
        self.run("git", &args).dir(&self.root).done().exits(0);
        fs::create_dir(dir.join(".agentproto")).unwrap();
        fs::write(dir.join(".agentproto/allowed-commands.json"), allowlist(&[])).unwrap();
        fs::write(dir.join("a.txt"), "hello\n").unwrap();
        self.git_in(&dir, &["add", "."]);
        self.git_in(&dir, &["commit", "-qm", "init"]);
        dir
    }

    /// The keys every machine has, the same ones in all tests of a run: making a pair takes longer than most
    /// commands under test.
    fn stock_keys(&self) {
        static MADE: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            for name in ["ada", "eve"] {
                self.key(name, &["-t", "ed25519", "-N", ""]);
            }
            let files = ["ada", "ada.pub", "eve", "eve.pub"];
            files.map(|f| (f.to_owned(), fs::read(self.path(f)).unwrap())).into()
        });
        for (name, content) in made {
            let file = self.path(name);
            fs::write(&file, content).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }

    pub(crate) fn key(&self, name: &str, options: &[&str]) -> PathBuf {
        let file = self.path(name);
        let comment = format!("{name}@example.invalid");
        let mut args = vec!["-q", "-C", &comment, "-f", file.to_str().unwrap()];
        args.extend(options);
        self.run("ssh-keygen", &args).dir(&self.root).done().exits(0);
        file
    }

    /// Replaces the allowed-signers file by one line: `lead`, then the public key `key`.
    pub(crate) fn write_signers(&self, lead: &str, key: &str) {
        fs::write(self.path("allowed"), format!("{lead} {}\n", self.public_key(key))).unwrap();
    }

    /// Type and key text of a public key, without its comment.
    pub(crate) fn public_key(&self, name: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("{name}.pub"))).unwrap();
        text.split(' ').take(2).collect::<Vec<_>>().join(" ").trim_end().to_owned()
    }

    pub(crate) fn global(&self, name: &str, value: &str) {
        self.run("git", &["config", "--global", name, value]).dir(&self.root).done().exits(0);
    }

    pub(crate) fn unset_global(&self, name: &str) {
        self.run("git", &["config", "--global", "--unset-all", name])
            .dir(&self.root)
            .done()
            .exits(0);
    }

    /// A program about to be run in the repository, with nothing but this machine's environment.
    #[expect(clippy::disallowed_methods, reason = "the one spawn point of the tests")]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, program: &str, args: &[S]) -> Run {
        let mut command = Command::new(program);
        command.args(args).env_clear().env("PATH", search_path());
        for (name, below) in [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "home/.config"),
            ("XDG_STATE_HOME", "home/.local/state"),
            ("XDG_CACHE_HOME", "home/.cache"),
        ] {
            command.env(name, self.path(below));
        }
        command
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_TERMINAL_PROMPT", "0"), ("TZ", "UTC")])
            .envs([("LANG", "C.UTF-8"), ("SHELL", "/bin/sh")])
            .envs(chosen())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let repo = self.repo();
        command.current_dir(if repo.is_dir() { &repo } else { &self.root });
        let words: Vec<_> =
            args.iter().map(|a| a.as_ref().to_string_lossy().into_owned()).collect();
        Run { command, stdin: Vec::new(), told: format!("{program} {}", shell_words::join(words)) }
    }

    /// `git ARGS…` in the repository, which has to succeed: its stdout without the last newline.
    #[track_caller]
    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.repo(), args)
    }

    #[track_caller]
    pub(crate) fn git_in(&self, dir: &Path, args: &[&str]) -> String {
        let out = self.run("git", args).dir(dir).done().exits(0).out();
        out.strip_suffix('\n').unwrap_or(&out).to_owned()
    }

    /// `git agentproto ARGS…`, as a user types it.
    pub(crate) fn tool<S: AsRef<OsStr>>(&self, args: &[S]) -> Run {
        let mut all: Vec<OsString> = vec!["agentproto".into()];
        all.extend(args.iter().map(|a| a.as_ref().to_owned()));
        self.run("git", &all)
    }

    #[track_caller]
    pub(crate) fn ap<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        self.tool(args).done()
    }

    #[track_caller]
    pub(crate) fn ap_in(&self, dir: &Path, args: &[&str]) -> Output {
        self.tool(args).dir(dir).done()
    }

    /// `git agentproto ARGS…` on a terminal this wide, where stdout and stderr are one.
    #[track_caller]
    pub(crate) fn on_terminal<S: AsRef<OsStr>>(&self, columns: usize, args: &[S]) -> Output {
        self.on_terminal_typing(columns, args, "")
    }

    /// The same with somebody who types these lines.
    #[track_caller]
    pub(crate) fn on_terminal_typing<S: AsRef<OsStr>>(
        &self,
        columns: usize,
        args: &[S],
        typed: &str,
    ) -> Output {
        let args = args.iter().map(|arg| arg.as_ref().to_str().unwrap());
        let command = shell_words::join(["git", "agentproto"].into_iter().chain(args));
        let command = format!("stty cols {columns} rows 50; exec {command}");
        let run = self.run("script", &["-qec", &command, "/dev/null"]).stdin(typed);
        let mut output = run.env("TERM", "xterm").env("COLUMNS", columns.to_string()).done();
        output.stdout = output.out().replace("\r\n", "\n").into_bytes();
        output
    }

    /// `git agentproto ARGS…` at a terminal on which `typed` is typed; all that the terminal shows is its stdout.
    #[track_caller]
    pub(crate) fn at_terminal(&self, args: &[&str], typed: &str) -> Output {
        let words: Vec<&str> = ["git", "agentproto"].iter().chain(args).copied().collect();
        let line = shell_words::join(words);
        self.run("script", &["-qec", &line, "/dev/null"]).stdin(typed).done()
    }

    /// The binary itself, without git in between: the pid is its own.
    pub(crate) fn binary(&self, args: &[&str]) -> Run {
        self.run(env!("CARGO_BIN_EXE_git-agentproto"), args)
    }

    /// Everything of the repository and the home a refused command must leave as it was.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot_of(&self.repo())
    }

    /// The same for the repository at `repo`; a directory that is none contributes its files.
    pub(crate) fn snapshot_of(&self, repo: &Path) -> Snapshot {
        let mut facts = BTreeMap::new();
        digest_below(&self.home(), "home", &mut facts);
        digest_below(&self.path("allowed"), "allowed", &mut facts);
        let git = |args: &[&str]| self.run("git", args).dir(repo).done();
        let common = git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        if common.code() != 0 {
            digest_below(repo, "files", &mut facts);
            return Snapshot(facts);
        }
        let common = PathBuf::from(common.out().trim_end_matches('\n'));
        let refs = git(&["for-each-ref", "--format=%(refname) %(objectname) %(symref)"]).exits(0);
        for line in refs.out().lines() {
            let (name, value) = line.split_once(' ').unwrap();
            facts.insert(format!("ref {name}"), value.to_owned());
        }
        for name in ["HEAD", "config", "index", "MERGE_HEAD", "info"] {
            digest_below(&common.join(name), &format!("git {name}"), &mut facts);
        }
        // Linked worktrees keep their HEAD and index here.
        digest_below(&common.join("worktrees"), "git worktrees", &mut facts);
        let list = git(&["worktree", "list", "--porcelain", "-z"]).exits(0).out();
        // A bare repository is listed too, but has no files of anybody.
        for record in list.split("\0\0").filter(|r| !r.split('\0').any(|line| line == "bare")) {
            if let Some(tree) = record.split('\0').find_map(|l| l.strip_prefix("worktree ")) {
                digest_below(Path::new(tree), &format!("files of {tree}"), &mut facts);
            }
        }
        Snapshot(facts)
    }
}

/// The allowlist document of the tests: harmless programs, `git status`, and the given scripts.
pub(crate) fn allowlist(scripts: &[&str]) -> String {
    let mut commands: Vec<Value> =
        ["ls", "cat", "grep", "true", "false", "sleep"].into_iter().map(Value::from).collect();
    commands.push(serde_json::json!({ "command": "git", "args": ["status"] }));
    commands.extend(scripts.iter().map(|s| serde_json::json!({ "command": s })));
    serde_json::json!({ "version": 1, "commands": commands }).to_string() + "\n"
}

/// Facts about refs, indexes, files and user settings by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot(BTreeMap<String, String>);

impl Snapshot {
    /// The names whose value differs, one line each; empty when nothing changed.
    pub(crate) fn differences(&self, later: &Self) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(later.0.keys()).collect();
        let show = |s: &Self, name| s.0.get(name).map_or_else(|| "absent".to_owned(), Clone::clone);
        names
            .into_iter()
            .filter(|n| self.0.get(*n) != later.0.get(*n))
            .map(|n| format!("{n}: {} became {}", show(self, n), show(later, n)))
            .collect()
    }

    /// The same without the facts whose name starts with one of `prefixes`.
    pub(crate) fn without(mut self, prefixes: &[&str]) -> Self {
        self.0.retain(|name, _| !prefixes.iter().any(|p| name.starts_with(p)));
        self
    }

    #[track_caller]
    pub(crate) fn assert_same(&self, later: &Self, when: &str) {
        let changed = self.differences(later);
        assert!(changed.is_empty(), "{when} changed:\n{}", changed.join("\n"));
    }
}

/// Adds kind, mode and digest of `path` and of all below it. git's own directories are left out: their
/// parts that matter are asked for by name.
fn digest_below(path: &Path, name: &str, facts: &mut BTreeMap<String, String>) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    let mode = meta.mode();
    let value = if meta.is_symlink() {
        format!("{mode:o} -> {}", fs::read_link(path).unwrap().display())
    } else if meta.is_file() {
        format!("{mode:o} {}", hex(&Sha256::digest(fs::read(path).unwrap())))
    } else {
        format!("{mode:o}")
    };
    facts.insert(name.to_owned(), value);
    if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != ".git" {
                let below = String::from_utf8_lossy(entry.file_name().as_bytes()).into_owned();
                digest_below(&entry.path(), &format!("{name}/{below}"), facts);
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Polls until `condition` gives a value, and panics naming `what` when the deadline passes.
#[track_caller]
pub(crate) fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        pause(Duration::from_millis(10));
    }
}

/// Lets time pass: between two looks of `wait_for`, and up to the chosen moment of a kill.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Command lines of all living processes, arguments joined by spaces.
pub(crate) fn command_lines() -> Vec<String> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    pids.filter_map(|p| fs::read(p.path().join("cmdline")).ok())
        .map(|raw| String::from_utf8_lossy(&raw).replace('\0', " ").trim_end().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn a_snapshot_sees_every_kind_of_write() {
    let env = TestEnv::bare();
    let repo = env.make_repo("r");
    let linked = env.path("linked");
    env.git(&["worktree", "add", "-q", "-b", "linked", linked.to_str().unwrap()]);
    let before = env.snapshot();
    before.assert_same(&env.snapshot(), "looking twice");
    let sees = |name: &str, write: &dyn Fn(), undo: &dyn Fn()| {
        write();
        let changed = before.differences(&env.snapshot());
        assert!(changed.iter().any(|line| line.starts_with(name)), "{name}: {changed:?}");
        undo();
        before.assert_same(&env.snapshot(), "undoing");
    };
    let remove = |file: PathBuf| move || fs::remove_file(&file).unwrap();
    let make = |file: PathBuf| move || fs::write(&file, "x").unwrap();
    let git = |args: &'static [&'static str]| {
        let env = &env;
        move || drop(env.git(args))
    };
    for file in
        [repo.join("new"), linked.join("new"), env.home().join("new"), env.path("home/.config/new")]
    {
        let name = if file.starts_with(env.home()) { "home" } else { "files of" };
        sees(name, &make(file.clone()), &remove(file));
    }
    sees(
        "ref refs/agentproto/x",
        &git(&["update-ref", "refs/agentproto/x", "HEAD"]),
        &git(&["update-ref", "-d", "refs/agentproto/x"]),
    );
    sees("git config", &git(&["config", "x.y", "1"]), &git(&["config", "--remove-section", "x"]));
    // Not undone: an index is never byte for byte what it was.
    fs::write(linked.join("a.txt"), "other\n").unwrap();
    env.git_in(&linked, &["add", "a.txt"]);
    env.git(&["update-index", "--chmod=+x", "a.txt"]);
    let changed = before.differences(&env.snapshot());
    for name in ["git index", "git worktrees/linked/index"] {
        assert!(changed.iter().any(|line| line.starts_with(name)), "{name}: {changed:?}");
    }
    // The tool's own side directory may come and go.
    let now = env.snapshot();
    fs::create_dir(repo.join(".git/agentproto")).unwrap();
    now.assert_same(&env.snapshot(), "a side directory");
}

#[test]
#[should_panic(expected = "not within 20ms: the end of days")]
fn a_wait_ends_at_its_deadline() {
    wait_for("the end of days", Duration::from_millis(20), || None::<()>);
}

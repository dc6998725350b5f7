//! A machine of its own for the suites: home, configuration, repositories, programs with a deadline.
//!
//! Contract: a child sees only the variables set here, and whether objects are SHA-1 or SHA-256 and refs are files
//! or a reftable, which the tester chooses by git's own variables. No child is waited for without a deadline.

use crate::scribe::Outcome;
use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

/// No child runs longer.
const CHILD_DEADLINE: Duration = Duration::from_secs(180);
/// What is shelved of a machine.
const PARTS: &[&str] = &["r", "home", "acks"];
/// Between two looks of somebody who waits.
const LOOK: Duration = Duration::from_millis(1);

/// How a program ended and what it printed.
#[derive(Debug)]
pub(crate) struct Done {
    /// Exit code; a death by signal is 128 + its number.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
    told: String,
}

impl Done {
    /// Its stdout without the last newline, if it ended well.
    pub(crate) fn text(&self) -> Outcome<String> {
        if self.code != 0 {
            return Err(self.to_string().into());
        }
        Ok(self.out.strip_suffix('\n').unwrap_or(&self.out).to_owned())
    }

    /// Its stdout as JSON, whatever the exit code.
    pub(crate) fn json(&self) -> Outcome<Value> {
        serde_json::from_str(&self.out).map_err(|e| format!("{e}: {self}").into())
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tail = |text: &str| text.chars().take(600).collect::<String>();
        write!(f, "{} -> {}: {}{}", self.told, self.code, tail(&self.out), tail(&self.err))
    }
}

/// Numbers from a seed: the same seed, the same numbers, for ever.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to `below`, exclusive.
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        // Steele, Lea and Flood's split-mix: one addition and two multiplications a number.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below.max(1)
    }

    /// A moment within the next `ms` milliseconds.
    pub(crate) fn moment(&mut self, ms: u64) -> Duration {
        Duration::from_micros(self.roll(ms * 1000))
    }
}

/// The machine. Its directory goes when it is dropped.
pub(crate) struct Lab {
    root: PathBuf,
    _held: tempfile::TempDir,
}

impl Lab {
    /// With home, configuration, a key that may approve, and a place for acknowledgements.
    pub(crate) fn new() -> Outcome<Self> {
        let held = tempfile::tempdir()?;
        let root = held.path().canonicalize()?;
        let lab = Self { root, _held: held };
        fs::create_dir_all(lab.path("home/.config"))?;
        fs::create_dir(lab.path("acks"))?;
        let own = |name: &str| lab.path(name).display().to_string();
        let config = format!(
            "[user]\n\tname = Ada Example\n\temail = ada@example.invalid\n[init]\n\tdefaultBranch = main\n\
             [gc]\n\tauto = 0\n[agentproto]\n\tallowNoAck = true\n\tallowedSignersFile = {}\n\tsigningKey = {}\n",
            own("allowed"),
            own("ada"),
        );
        fs::write(lab.path("home/.gitconfig"), config)?;
        let key = own("ada");
        let args = ["-q", "-t", "ed25519", "-N", "", "-C", "ada@example.invalid", "-f", &key];
        run(lab.command("ssh-keygen", &lab.root, &args))?.text()?;
        let public = fs::read_to_string(lab.path("ada.pub"))?;
        let key: Vec<&str> = public.split(' ').take(2).collect();
        let line = format!(
            "ada@example.invalid namespaces=\"agentproto-ack\" {}\n",
            key.join(" ").trim_end()
        );
        fs::write(lab.path("allowed"), line)?;
        Ok(lab)
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// A program about to be run in `dir` with nothing but this machine's environment, in a process group of its own.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        program: &str,
        dir: &Path,
        args: &[S],
    ) -> Command {
        let mut command = Command::new(program);
        command.args(args).env_clear().current_dir(dir).process_group(0);
        for name in ["PATH", "GIT_DEFAULT_HASH", "GIT_DEFAULT_REF_FORMAT"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", self.path("home"))
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_TERMINAL_PROMPT", "0"), ("TZ", "UTC")])
            .envs([("LANG", "C.UTF-8"), ("SHELL", "/bin/sh")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A repository with one packed commit, an allowlist, the tool set up, and a session.
    pub(crate) fn repo(&self) -> Outcome<Repo<'_>> {
        self.repo_at(self.path("r"))
    }

    /// The same at another place.
    pub(crate) fn repo_at(&self, dir: PathBuf) -> Outcome<Repo<'_>> {
        fs::create_dir_all(dir.join(".agentproto"))?;
        let mut repo = Repo { lab: self, dir, session: String::new() };
        repo.git(&["init", "-q", "--template=", "-b", "main"])?;
        fs::write(repo.dir.join("a.txt"), "hello\n")?;
        let allowed = "{\"version\":1,\"commands\":[\"ls\",\"true\"]}\n";
        fs::write(repo.dir.join(".agentproto/allowed-commands.json"), allowed)?;
        repo.git(&["add", "."])?;
        repo.git(&["commit", "-qm", "init"])?;
        // What is the user's own is packed: whatever loose object a suite harms is the tool's.
        repo.git(&["repack", "-adq"])?;
        repo.tool(&["init", "--yes"])?.text()?;
        repo.session = repo.adopt("s")?;
        Ok(repo)
    }
}

/// A repository of the machine.
#[derive(Clone)]
pub(crate) struct Repo<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) dir: PathBuf,
    /// A session that is open in it.
    pub(crate) session: String,
}

impl Repo<'_> {
    pub(crate) fn git_dir(&self) -> PathBuf {
        self.dir.join(".git")
    }

    /// `git ARGS…`, which has to succeed: its stdout without the last newline.
    pub(crate) fn git(&self, args: &[&str]) -> Outcome<String> {
        self.git_done(args)?.text()
    }

    pub(crate) fn git_done(&self, args: &[&str]) -> Outcome<Done> {
        run(self.lab.command("git", &self.dir, args))
    }

    /// The tool's own binary, no `git` in between.
    pub(crate) fn tool(&self, args: &[&str]) -> Outcome<Done> {
        run(self.tool_command(args))
    }

    pub(crate) fn tool_command(&self, args: &[&str]) -> Command {
        self.lab.command(env!("CARGO_BIN_EXE_git-agentproto"), &self.dir, args)
    }

    pub(crate) fn adopt(&self, label: &str) -> Outcome<String> {
        field(&self.tool(&["session", "adopt", "--label", label, "--json"])?, "sessionId")
    }

    /// Puts the whole machine on a shelf: repository, home and acknowledgements. A copy elsewhere would be
    /// another clone, with a journal of its own; what comes back from the shelf is the same one.
    pub(crate) fn shelve(&self, name: &str) -> Outcome {
        let shelf = self.lab.path("shelf").join(name);
        fs::create_dir_all(&shelf)?;
        for part in PARTS.iter().filter(|part| self.lab.path(part).exists()) {
            copy_tree(&self.lab.path(part), &shelf.join(part))?;
        }
        Ok(())
    }

    /// Puts the machine back as it was when it was shelved.
    pub(crate) fn unshelve(&self, name: &str) -> Outcome {
        let shelf = self.lab.path("shelf").join(name);
        for part in PARTS {
            if self.lab.path(part).exists() {
                fs::remove_dir_all(self.lab.path(part))?;
            }
            if shelf.join(part).exists() {
                copy_tree(&shelf.join(part), &self.lab.path(part))?;
            }
        }
        Ok(())
    }

    /// Where workers of this repository acknowledge.
    pub(crate) fn acks(&self) -> PathBuf {
        self.lab.path("acks")
    }

    /// Where the one journal of this repository is; a second one is a defect of its own.
    pub(crate) fn journal(&self) -> Outcome<String> {
        let all = self.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"])?;
        all.lines().last().map(str::to_owned).ok_or_else(|| "there is no journal".into())
    }
}

/// A text field of an answer that has to be a good one.
pub(crate) fn field(done: &Done, name: &str) -> Outcome<String> {
    done.text()?;
    let value = done.json()?;
    Ok(value[name].as_str().ok_or_else(|| format!("no {name}: {done}"))?.to_owned())
}

/// Copies files, directories and symbolic links; modes come along.
pub(crate) fn copy_tree(from: &Path, to: &Path) -> Outcome {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Runs a program to its end.
pub(crate) fn run(mut command: Command) -> Outcome<Done> {
    let told = told(&command);
    let child = command.spawn().map_err(|e| format!("{told}: {e}"))?;
    finish(child, told)
}

/// Waits for a program that was started before.
pub(crate) fn finish(child: Child, told: String) -> Outcome<Done> {
    let group = child.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(ended) = receiver.recv_timeout(CHILD_DEADLINE) else {
        kill_group(group);
        return Err(format!("still running after {CHILD_DEADLINE:?}: {told}").into());
    };
    let ended = ended?;
    let code = ended.status.code().or_else(|| ended.status.signal().map(|s| 128 + s));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Done { code: code.unwrap_or(-1), out: text(ended.stdout), err: text(ended.stderr), told })
}

/// Ends a process group that we started.
pub(crate) fn kill_group(leader: u32) {
    let leader = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(leader) = leader {
        // Refused only when nobody of it is left.
        let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
    }
}

/// The command line, for people.
pub(crate) fn told(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Polls until `condition` gives a value.
pub(crate) fn wait_for<T>(
    what: &str,
    longest: Duration,
    mut condition: impl FnMut() -> Outcome<Option<T>>,
) -> Outcome<T> {
    let end = Instant::now() + longest;
    loop {
        if let Some(value) = condition()? {
            return Ok(value);
        }
        if Instant::now() > end {
            return Err(format!("not within {longest:?}: {what}").into());
        }
        std::thread::sleep(LOOK);
    }
}

/// Lets time pass up to the chosen moment of a kill, a cut or the end of a pause.
pub(crate) fn pass(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::sleep(LOOK.min(time));
    }
}

//! Figures: this program and its alternative in one run, printed as ratios.
//!
//! `cargo bench --bench figures` · `ROUNDS=200` sets how often each side runs. Both sides alternate, so that a
//! busy moment of the machine hits both. Absolute times are of this machine alone; trust the ratios.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark starts programs and reads its settings"
)]
#![expect(clippy::print_stdout, reason = "its answer")]

#[path = "figures/append.rs"]
mod append;
#[path = "figures/candidate.rs"]
mod candidate;
#[path = "figures/crowd.rs"]
mod crowd;
#[path = "figures/history.rs"]
mod history;
#[path = "../tests/torture/scribe.rs"]
mod scribe;

use std::{
    error::Error,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|r| r.parse().ok()).unwrap_or(100);
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let parts: [(&str, &dyn Fn() -> Outcome); 5] = [
        ("commands", &|| commands(rounds)),
        ("append", &|| append::rows(rounds)),
        ("candidate", &|| candidate::rows(rounds)),
        ("crowd", &crowd::rows),
        ("history", &|| history::rows(rounds)),
    ];
    if let Some(unknown) = wanted.iter().find(|w| parts.iter().all(|(name, _)| name != w)) {
        return Err(format!("no part of the figures is called {unknown}").into());
    }
    let asked = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    parts.into_iter().filter(|(name, _)| asked(name)).try_for_each(|(_, rows)| rows())
}

/// Single commands beside single commands of git.
fn commands(rounds: usize) -> Outcome {
    let lab = tempfile::tempdir()?;
    let repo = lab.path().join("repo");
    std::fs::create_dir(&repo)?;
    let git = |args: &[&str]| ran(lab.path(), &repo, "git", args);
    git(&["init", "-q", "-b", "main"])?;
    git(&["config", "user.name", "Ada Example"])?;
    git(&["config", "user.email", "ada@example.invalid"])?;
    std::fs::write(repo.join("a.txt"), "hello\n")?;
    git(&["add", "a.txt"])?;
    git(&["commit", "-q", "-m", "init"])?;
    let tool = env!("CARGO_BIN_EXE_git-agentproto");
    let session = field(
        &ran(lab.path(), &repo, tool, &["session", "adopt", "--label", "b", "--json"])?,
        "sessionId",
    )?;
    let policy =
        field(&ran(lab.path(), &repo, tool, &["attach", &session, "--json"])?, "policyId")?;
    let here = |program: &str, args: &[&str]| timed(lab.path(), &repo, program, args);

    let (ours, theirs) = alternate(
        rounds,
        || here(tool, &["policy", "show", &policy, "--json"]),
        || here("git", &["rev-parse", "HEAD"]),
    )?;
    print("policy show", ours, "git rev-parse HEAD", theirs);
    let (ours, theirs) = alternate(
        rounds,
        || here(tool, &["session", "report", &session, "command-done", "--no-perform"]),
        || here("git", &["notes", "append", "-m", "a line", "HEAD"]),
    )?;
    print("session report (durable)", ours, "git notes append (not durable)", theirs);
    Ok(())
}

/// Runs both sides in turn and answers their medians.
fn alternate(
    rounds: usize,
    mut ours: impl FnMut() -> Outcome<Duration>,
    mut theirs: impl FnMut() -> Outcome<Duration>,
) -> Outcome<(Duration, Duration)> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        a.push(ours()?);
        b.push(theirs()?);
    }
    Ok((median(a), median(b)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn print(ours: &str, a: Duration, theirs: &str, b: Duration) {
    let ms = |d: Duration| d.as_secs_f64() * 1000.0;
    let ratio = ms(a) / ms(b).max(f64::MIN_POSITIVE);
    println!("{ours} {:.2} ms : {theirs} {:.2} ms = {ratio:.2}", ms(a), ms(b));
}

fn command(home: &Path, repo: &Path, program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(repo).env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1");
    for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "GIT_DIR", "AGENTPROTO_SESSION_ID"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn ran(home: &Path, repo: &Path, program: &str, args: &[&str]) -> Outcome<String> {
    let done = command(home, repo, program, args).output()?;
    if !done.status.success() {
        return Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(String::from_utf8(done.stdout)?)
}

fn timed(home: &Path, repo: &Path, program: &str, args: &[&str]) -> Outcome<Duration> {
    let begin = Instant::now();
    ran(home, repo, program, args)?;
    Ok(begin.elapsed())
}

fn field(json: &str, name: &str) -> Outcome<String> {
    let value: serde_json::Value = serde_json::from_str(json)?;
    let text = value[name].as_str().ok_or_else(|| format!("no {name} in {json}"))?;
    Ok(text.to_owned())
}

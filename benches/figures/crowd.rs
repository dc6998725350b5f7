//! A crowd of single calls at once: this program against git's plumbing with compare-and-swap, nothing lost on
//! either side.

use crate::{Outcome, field, ran};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Processes at once.
const CROWD: usize = 8;
/// Calls of each, one after the other.
const CALLS: usize = 12;
/// Times each side runs.
const TURNS: usize = 5;

/// Prints the rows of this file.
pub(crate) fn rows() -> Outcome {
    let lab = tempfile::tempdir()?;
    let (ours, theirs) = (made(lab.path(), "ours")?, made(lab.path(), "theirs")?);
    let tool = env!("CARGO_BIN_EXE_git-agentproto");
    let adopted = ran(lab.path(), &ours, tool, &["session", "adopt", "--label", "b", "--json"])?;
    let session = field(&adopted, "sessionId")?;
    let (mut a, mut b) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..TURNS {
        a += crowd(|_| {
            let args = ["session", "report", &session, "command-done", "--no-perform", "--json"];
            ran(lab.path(), &ours, tool, &args).map(drop)
        })?;
        b += crowd(|who| swapped(lab.path(), &theirs, who))?;
    }
    let all = CROWD * CALLS * TURNS;
    let kept = ran(lab.path(), &theirs, "git", &["rev-list", "--count", "refs/x/journal"])?;
    let seen =
        ran(lab.path(), &ours, tool, &["events", "--since", "1", "--limit", "100000", "--json"])?;
    let seen: serde_json::Value = serde_json::from_str(&seen)?;
    let seen = seen["events"].as_array().map_or(0, Vec::len);
    if seen != all || kept.trim() != all.to_string() {
        return Err(format!("of {all} events {seen} are in ours, {} in theirs", kept.trim()).into());
    }
    let per = |time: Duration| time.as_secs_f64() * 1000.0 / all as f64;
    println!(
        "{CROWD} processes at once, {:.2} ms an event : update-ref loops {:.2} ms = {:.2} times as many, nothing lost",
        per(a),
        per(b),
        per(b) / per(a)
    );
    Ok(())
}

fn made(lab: &Path, name: &str) -> Outcome<PathBuf> {
    let repo = lab.join(name);
    std::fs::create_dir(&repo)?;
    for args in [
        &["init", "-q", "-b", "main"][..],
        &["config", "user.name", "Ada Example"],
        &["config", "user.email", "ada@example.invalid"],
        &["config", "gc.auto", "0"],
        &["commit", "-q", "--allow-empty", "-m", "init"],
    ] {
        ran(lab, &repo, "git", args)?;
    }
    Ok(repo)
}

/// How long a crowd takes in which everybody does the same thing again and again.
fn crowd(one: impl Fn(usize) -> Outcome + Sync) -> Outcome<Duration> {
    let begin = Instant::now();
    let failed: Vec<String> = thread::scope(|scope| {
        let hands: Vec<_> = (0..CROWD)
            .map(|who| {
                let one = &one;
                scope
                    .spawn(move || (0..CALLS).try_for_each(|_| one(who).map_err(|e| e.to_string())))
            })
            .collect();
        let ended = hands.into_iter().map(|h| h.join().unwrap_or_else(|_| Err("panicked".into())));
        ended.filter_map(Result::err).collect()
    });
    match failed.first() {
        None => Ok(begin.elapsed()),
        Some(e) => Err(e.clone().into()),
    }
}

/// One event by plumbing: blob, tree and commit over the tip, the ref moved from it; again when somebody was faster.
fn swapped(home: &Path, repo: &Path, who: usize) -> Outcome {
    loop {
        let old =
            ran(home, repo, "git", &["for-each-ref", "--format=%(objectname)", "refs/x/journal"])?;
        let old = old.trim();
        let event = format!("{{\"who\":{who},\"after\":\"{old}\"}}");
        let blob = fed(home, repo, &["hash-object", "-w", "--stdin"], &event)?;
        let tree = fed(home, repo, &["mktree"], &format!("100644 blob {blob}\tevent.json\n"))?;
        let mut commit = vec!["commit-tree", &tree, "-m", "event"];
        commit.extend(if old.is_empty() { vec![] } else { vec!["-p", old] });
        let commit = ran(home, repo, "git", &commit)?;
        let none = "0".repeat(commit.trim().len());
        let expected = if old.is_empty() { none.as_str() } else { old };
        if ran(home, repo, "git", &["update-ref", "refs/x/journal", commit.trim(), expected])
            .is_ok()
        {
            return Ok(());
        }
    }
}

/// A git command with something to read; its stdout.
fn fed(home: &Path, repo: &Path, args: &[&str], input: &str) -> Outcome<String> {
    use std::io::Write as _;
    let mut command: Command = crate::command(home, repo, "git", args);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().ok_or("no pipe")?.write_all(input.as_bytes())?;
    let done = child.wait_with_output()?;
    if !done.status.success() {
        return Err(format!("git {args:?} fails").into());
    }
    Ok(String::from_utf8(done.stdout)?.trim().to_owned())
}

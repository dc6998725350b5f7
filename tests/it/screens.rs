//! Whole screens of `run` at a real terminal, as a person sees them.
//!
//! Contract: a screen is compared with `fixtures/screens/`, times, ids and places replaced. Without `tmux` nothing is
//! compared, and that is said.

use crate::{
    env::{PATIENCE, TestEnv, pause},
    house::skipped,
};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// Stands on the screen once the command is over. That tmux notices by itself is not to be relied on.
const OVER: &str = "the-command-is-over";

/// A terminal with one command on it.
struct Terminal<'a> {
    env: &'a TestEnv,
    socket: String,
}

impl<'a> Terminal<'a> {
    /// None where there is no such program.
    fn begin(env: &'a TestEnv, columns: usize, lead: &str, args: &[&str]) -> Option<Self> {
        if env.run("sh", &["-c", "command -v tmux"]).done().code() != 0 {
            return None;
        }
        let terminal =
            Self { env, socket: env.path(&format!("tmux.{columns}")).display().to_string() };
        let line = shell_words::join(["git", "agentproto"].iter().chain(args));
        let (columns, line) =
            (columns.to_string(), format!("trap : INT; env {lead} {line}; echo {OVER}; exec cat"));
        let size = ["-x", &columns, "-y", "45", &line];
        terminal.tmux(&[&["new-session", "-d"], &size[..]].concat());
        Some(terminal)
    }

    #[track_caller]
    fn tmux(&self, args: &[&str]) -> String {
        let lead = ["-u", "-S", &self.socket, "-f", "/dev/null"];
        self.env.run("tmux", &[&lead[..], args].concat()).done().exits(0).out()
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// The screen once it shows this, without what differs from run to run.
    #[track_caller]
    fn shows(&self, what: &str) -> String {
        let end = Instant::now() + PATIENCE;
        let screen = loop {
            let screen = self.tmux(&["capture-pane", "-p"]);
            if screen.contains(what) {
                break screen;
            }
            assert!(Instant::now() < end, "no '{what}' within {PATIENCE:?} on\n{screen}");
            pause(Duration::from_millis(10));
        };
        let root = self.env.path("").display().to_string();
        let lines = screen.lines().filter(|line| *line != OVER);
        let lines: Vec<String> = lines.map(|l| steady(&l.replace(&root, "/ROOT/"))).collect();
        lines.join("\n").trim_end().to_owned() + "\n"
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let args = ["-S", &self.socket, "kill-server"];
        drop(self.env.run("tmux", &args).done());
    }
}

/// A line with ids, counts of time and the sign of life replaced; what is that is as wide as before.
fn steady(line: &str) -> String {
    let line = match line.split_once(' ') {
        Some(("|" | "/" | "-" | "\\", rest)) => format!("* {rest}"),
        _ => line.to_owned(),
    };
    let mut words: Vec<String> = Vec::new();
    let mut amid_time = false;
    for word in line.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let is_hex = bare.len() >= 7 && bare.bytes().all(|b| b.is_ascii_hexdigit());
        let is_id = bare.len() == 30 && (bare.starts_with("pol_") || bare.starts_with("ses_"));
        let is_seconds = bare.strip_suffix('s').is_some_and(|n| n.parse::<u32>().is_ok());
        let steady = if is_hex {
            word.replace(bare, &"h".repeat(bare.len()))
        } else if is_id {
            word.replace(&bare[4..], &"i".repeat(26))
        } else if is_seconds {
            "Ns".to_owned()
        } else if word.contains("SHA256:") {
            "(SHA256:…)".to_owned()
        } else {
            word.to_owned()
        };
        let counts = matches!(word.trim_end_matches(','), "ms" | "s");
        if counts
            && amid_time
            && let Some(last) = words.last_mut()
        {
            *last = "N".to_owned();
        }
        amid_time = word.parse::<u32>().is_ok();
        words.push(steady);
    }
    words.join(" ")
}

#[track_caller]
fn assert_kept(name: &str, screens: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/screens").join(name);
    let kept = fs::read_to_string(&file).unwrap_or_default();
    assert!(kept == screens, "{name} is kept as\n{kept}\nand shows\n{screens}");
}

const AGENT: &str = "echo thinking; while [ ! -e go ]; do sleep 0.05; done; \
                     if [ $AGENTPROTO_TURN -ge 2 ]; then echo right > f.txt; else echo wrong > f.txt; fi";

fn run_at(columns: usize, lead: &str) -> Option<String> {
    // Names of objects take as much room whatever the tester chose.
    let env = TestEnv::of_hash("sha1");
    env.write("f.txt", "");
    let flags = ["run", "--path", "f.txt", "-m", "the right word", "--gate", "grep -q right f.txt"];
    let terminal =
        Terminal::begin(&env, columns, lead, &[&flags[..], &["--", "sh", "-c", AGENT]].concat())?;
    let mut screens = String::new();
    let mut add = |what: &str, screen: &str| screens.push_str(&format!("== {what}\n{screen}"));
    add("at work", &terminal.shows("thinking"));
    env.write("go", "");
    add("asks", &terminal.shows("Approve?"));
    terminal.keys(&["y", "Enter"]);
    add("landed", &terminal.shows(OVER));
    drop(terminal);

    fs::remove_file(env.repo().join("go")).unwrap();
    let flags = ["run", "--gate", "true", "--", "sh", "-c", AGENT];
    let terminal = Terminal::begin(&env, columns, lead, &flags)?;
    terminal.shows("thinking");
    terminal.keys(&["C-c"]);
    add("interrupted", &terminal.shows(OVER));
    Some(screens)
}

#[test]
fn run_is_shown_as_it_goes_on_wide_and_narrow_terminals() {
    for (columns, lead) in [(100, ""), (60, "NO_COLOR=1")] {
        let Some(screens) = run_at(columns, lead) else {
            return skipped("tmux is not there: no screens are compared");
        };
        assert_kept(&format!("run-{columns}.txt"), &screens);
    }
}

#[test]
fn what_differs_from_run_to_run_is_replaced() {
    for (line, want) in [
        ("| turn 1 · 3s · thinking", "* turn 1 · Ns · thinking"),
        ("    1s  turn 1 began", "    Ns  turn 1 began"),
        ("gate  ls: pass, exit code 0, 12 ms, more", "gate  ls: pass, exit code 0, N ms, more"),
        ("policy pol_01m8qb4cpp6j52a4x9zwa8drm6 is", "policy pol_iiiiiiiiiiiiiiiiiiiiiiiiii is"),
        ("7118aa4ca413 waits", "hhhhhhhhhhhh waits"),
    ] {
        assert_eq!(steady(line), want);
    }
}

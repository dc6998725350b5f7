//! An agent that goes on working in the same worktree while its work is gated, acked and landed: it edits, stages, commits
//! everything, changes branches, stashes, resets and holds the index. Whatever it does, what is landed is what was gated and
//! nothing else, and nothing of its own is lost by us.
//!
//! `AGENTPROTO_FLOOR=long` plays 500 rounds.

use crate::{
    env::{Output, TestEnv, is_long, pause},
    house::{text, value},
};
use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

const BRANCHES: [&str; 3] = ["main", "work", "other"];

/// Between two steps, round by round, milliseconds.
const LEISURE_MS: [u64; 4] = [0, 200, 500, 800];

/// What the agent did and may expect to find again.
#[derive(Default)]
struct Memory {
    /// Subjects of its commits, with the branch it was on.
    commits: Vec<(String, String)>,
    /// What it staged and neither committed nor threw away: content by path.
    staged: BTreeMap<String, String>,
    /// Steps by name and whether they worked.
    done: BTreeMap<(&'static str, bool), usize>,
    steps: usize,
}

/// The worktree that both work in.
struct World {
    env: TestEnv,
    memory: Mutex<Memory>,
    /// Somebody wants to look.
    looks: AtomicBool,
    is_over: AtomicBool,
    /// How long it thinks between two steps.
    leisure_ms: AtomicU64,
}

/// Numbers that look like chance, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

impl World {
    fn new() -> Self {
        let env = TestEnv::new();
        env.write("agent.txt", "begin\n");
        env.write("governed.txt", "begin\n");
        env.git(&["add", "agent.txt", "governed.txt"]);
        env.git(&["commit", "-qm", "begin"]);
        env.git(&["branch", "work"]);
        env.git(&["branch", "other"]);
        let (looks, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        let leisure_ms = AtomicU64::new(0);
        Self { env, memory: Mutex::default(), looks, is_over, leisure_ms }
    }

    fn git(&self, args: &[&str]) -> Output {
        self.env.run("git", args).done()
    }

    /// The agent stands still between two steps.
    fn stand_still(&self) -> MutexGuard<'_, Memory> {
        self.looks.store(true, Ordering::SeqCst);
        let memory = self.memory.lock().unwrap();
        self.looks.store(false, Ordering::SeqCst);
        memory
    }

    fn live(&self) {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
        // Drawn without putting back, so that everything it can do comes soon.
        let mut deck: Vec<u64> = Vec::new();
        while !self.is_over.load(Ordering::SeqCst) {
            while self.looks.load(Ordering::SeqCst) {
                pause(Duration::from_millis(1));
            }
            let mut memory = self.memory.lock().unwrap();
            if deck.is_empty() {
                deck.extend(0..20);
            }
            let at = usize::try_from(dice.below(deck.len() as u64)).unwrap();
            self.step(&mut memory, deck.swap_remove(at), &mut dice);
            drop(memory);
            // In haste no candidate ever stays at the tip of its branch; at leisure some do.
            pause(Duration::from_millis(self.leisure_ms.load(Ordering::SeqCst)));
        }
    }

    fn step(&self, memory: &mut Memory, card: u64, dice: &mut Dice) {
        memory.steps += 1;
        let nth = memory.steps;
        let (name, worked) = match card {
            0..=3 => {
                self.env.write("agent.txt", &format!("edit {nth}\n"));
                ("edit", true)
            }
            4..=8 => ("add", self.stage(memory, nth)),
            9..=10 => ("commit", self.commit(memory, nth, &[])),
            11 => ("commit", self.stage(memory, nth) && self.commit(memory, nth, &[])),
            12..=13 => ("commit -a", self.commit(memory, nth, &["-a"])),
            14 => ("checkout away", self.checkout(memory, BRANCHES[1 + nth % 2])),
            15 => ("checkout main", self.checkout(memory, "main")),
            16 => ("stash", self.throw_away(memory, &["stash", "-q"])),
            17 => ("reset --hard", self.throw_away(memory, &["reset", "-q", "--hard"])),
            18 => ("reset --soft", self.git(&["reset", "-q", "--soft", "HEAD"]).code() == 0),
            _ => ("hold the index", self.hold_index(dice)),
        };
        *memory.done.entry((name, worked)).or_default() += 1;
        // Away from the branch nothing is gated: it comes back soon.
        if name == "checkout away" {
            let _ = self.commit(memory, nth, &["-a", "--allow-empty"]);
            let _ = self.checkout(memory, "main");
        }
    }

    fn stage(&self, memory: &mut Memory, nth: usize) -> bool {
        let (path, content) = (format!("staged{}.txt", nth % 7), format!("content {nth}\n"));
        self.env.write(&path, &content);
        let added = self.git(&["add", &path]).code() == 0;
        if added {
            memory.staged.insert(path, content);
        }
        added
    }

    fn commit(&self, memory: &mut Memory, nth: usize, flags: &[&str]) -> bool {
        let subject = format!("agent {nth} {}", memory.commits.len());
        let branch = self.git(&["branch", "--show-current"]).out().trim().to_owned();
        let args = [&["commit", "-qm", &subject], flags].concat();
        let worked = self.git(&args).code() == 0;
        if worked {
            let found =
                self.git(&["log", "-g", "-1", "--format=%H", "--grep-reflog", &subject, &branch]);
            let commit = found.exits(0).out().trim().to_owned();
            assert_ne!(commit, "", "{subject} is not in the reflog of {branch}");
            if flags.is_empty() {
                self.assert_takes_nothing_back(&commit, &memory.staged);
            }
            for (path, content) in std::mem::take(&mut memory.staged) {
                // What was edited since is in it too, with -a.
                let is = self.git(&["show", &format!("{commit}:{path}")]);
                assert_eq!(is.code(), 0, "{path} was staged and is not in {subject}: {content}");
                if flags.is_empty() {
                    assert_eq!(is.out(), content, "{path} of {subject}");
                }
            }
            memory.commits.push((branch, subject));
        }
        worked
    }

    /// Without `-a` a commit holds what was staged, and never the index of before a landing on top of it.
    fn assert_takes_nothing_back(&self, commit: &str, staged: &BTreeMap<String, String>) {
        let args = ["diff-tree", "-r", "--name-status", "--no-commit-id", "--root", commit];
        for line in self.env.git(&args).lines() {
            let (status, path) = line.split_once('\t').unwrap();
            assert_ne!(status, "D", "{commit} takes {path} back");
            let round = |at: &str| {
                let held = self.git(&["show", &format!("{at}:{path}")]).out();
                held.strip_prefix("round ").and_then(|n| n.trim().parse::<usize>().ok())
            };
            let is_governed = path == "governed.txt" || path.starts_with("new");
            assert!(
                if is_governed {
                    round(commit) >= round(&format!("{commit}^"))
                } else {
                    staged.contains_key(path)
                },
                "{commit} holds {line}, which nobody staged"
            );
        }
    }

    fn checkout(&self, memory: &mut Memory, branch: &str) -> bool {
        let worked = self.git(&["checkout", "-q", branch]).code() == 0;
        if !worked {
            return self.throw_away(memory, &["checkout", "-q", "-f", branch]);
        }
        worked
    }

    fn throw_away(&self, memory: &mut Memory, args: &[&str]) -> bool {
        let worked = self.git(args).code() == 0;
        // Where we hold the index nothing is thrown away.
        if worked {
            memory.staged.clear();
        }
        worked
    }

    fn hold_index(&self, dice: &mut Dice) -> bool {
        let lock = self.env.repo().join(".git/index.lock");
        let take = || fs::OpenOptions::new().write(true).create_new(true).open(&lock).is_ok();
        // Landings hold it for a moment.
        let taken = (0..50).any(|_| {
            take() || {
                pause(Duration::from_millis(2));
                false
            }
        });
        if !taken {
            return false;
        }
        pause(Duration::from_millis(20 + dice.below(180)));
        fs::remove_file(lock).is_ok()
    }

    /// Gates, acks and lands one file beside the agent: the policy, where it came to one.
    fn govern(&self, round: usize) -> Option<(String, String)> {
        let path = if round.is_multiple_of(3) {
            "governed.txt".to_owned()
        } else {
            format!("new{round}.txt")
        };
        self.env.write(&path, &format!("round {round}\n"));
        let flag = format!("--path={path}");
        let message = format!("governed {round}");
        let out = self.env.ap(&["commit", &flag, "-m", &message, "--json", "--", "ls", &path]);
        assert!((0..=6).contains(&out.code()) && !out.err().contains("internal"), "{out}");
        if out.stdout.is_empty() {
            return None;
        }
        let policy = text(&out.json(), "policyId");
        for _ in 0..3 {
            let out = self.env.ap(&["ack", &policy, "--yes"]);
            assert!((0..=6).contains(&out.code()) && !out.err().contains("internal"), "{out}");
            let out = self.env.ap(&["wait", &policy, "--timeout", "20s"]);
            assert!((0..=6).contains(&out.code()) && !out.err().contains("internal"), "{out}");
            if out.code() != 5 {
                break;
            }
        }
        Some((policy, path))
    }

    /// Everything that has to hold, while nobody moves. True when the policy has landed.
    fn judge(&self, memory: &Memory, round: usize, made: Option<&(String, String)>) -> bool {
        let env = &self.env;
        let lock = env.repo().join(".git/index.lock");
        assert!(!lock.exists(), "round {round}: {} is left", lock.display());
        let reflogs: Vec<(&str, String)> = BRANCHES
            .iter()
            .map(|branch| (*branch, env.git(&["log", "-g", "--format=%s %H", branch])))
            .collect();
        for (branch, subject) in &memory.commits {
            let (_, log) = reflogs.iter().find(|(name, _)| name == branch).unwrap();
            let is_there = log.lines().any(|line| line.starts_with(&format!("{subject} ")));
            assert!(is_there, "round {round}: {subject} is lost from {branch}");
        }
        for (path, content) in &memory.staged {
            let is = self.git(&["show", &format!(":{path}")]);
            assert_eq!(is.out(), *content, "round {round}: {path} was staged, {is}");
        }
        env.ap(&["fsck"]).exits(0);
        let Some((policy, path)) = made else { return false };
        let told = env.policy(policy);
        if text(&told, "status") != "done" || told["commitSha"].is_null() {
            return false;
        }
        let commit = text(&told, "commitSha");
        let paths = env.paths_of(&commit);
        assert!(paths.iter().all(|changed| changed == path), "round {round}: {paths:?}");
        // The agent may have put back what was there before, until the gate began.
        let held = env.git(&["show", &format!("{commit}:{path}")]);
        let of = held.strip_prefix("round ").and_then(|n| n.parse::<usize>().ok());
        assert!(of.is_some_and(|of| of <= round), "round {round}: {path} holds {held}");
        let tree = env.git(&["rev-parse", &format!("{commit}^{{tree}}")]);
        let gates = env.note_lines("gates", &commit, "agentproto-gate/1 pass ");
        assert!(gates.iter().any(|line| value(line, "tree") == tree), "round {round}: {gates:?}");
        // The branch that the agent was on when it was asked for.
        let branch = text(&told, "branch");
        let (_, log) = reflogs.iter().find(|(name, _)| branch.ends_with(name)).unwrap();
        assert!(log.contains(&commit), "round {round}: {commit} never was on {branch}");
        env.ap(&["verify", &format!("{commit}^..{commit}")]).exits(0);
        true
    }
}

#[test]
fn an_agent_at_work_beside_us_loses_nothing_and_lands_nothing_that_was_not_gated() {
    let world = World::new();
    let rounds = if is_long() { 500 } else { 16 };
    let landed = std::thread::scope(|scope| {
        let agent = scope.spawn(|| world.live());
        let mut landed = 0;
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..rounds {
                world.leisure_ms.store(LEISURE_MS[round % LEISURE_MS.len()], Ordering::SeqCst);
                let made = world.govern(round);
                let memory = world.stand_still();
                landed += usize::from(world.judge(&memory, round, made.as_ref()));
            }
        }));
        world.is_over.store(true, Ordering::SeqCst);
        agent.join().unwrap();
        played.unwrap_or_else(|told| std::panic::resume_unwind(told));
        landed
    });
    let memory = world.stand_still();
    assert!(landed * 5 >= rounds, "only {landed} of {rounds} landed: {:?}", memory.done);
    assert!(memory.commits.len() >= rounds / 5, "the agent did little: {:?}", memory.done);
    for name in ["add", "commit", "hold the index"] {
        assert!(memory.done.contains_key(&(name, true)), "{name}: {:?}", memory.done);
    }
    world.env.assert_no_gap();
}

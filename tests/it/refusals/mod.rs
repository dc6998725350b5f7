//! Every refusal a user can meet: its code, its exit code, and that nothing was written.
//!
//! `table` has one row per situation. Each is run as text (code on stderr) and with `--json` (one error object
//! on stderr, stdout empty); refs, indexes, working files and user settings are compared before and after.
//! `outcomes` does the same for what ends a policy after it was attached. A last test asks for every code of
//! the program whether it is met here, so that a new one cannot be forgotten.

mod outcomes;
mod table;

use crate::env::{Output, TestEnv};
use git_agentproto::code::Code;
use outcomes::OUTCOMES;
use serde_json::Value;
use std::{collections::BTreeSet, ffi::OsString, path::PathBuf, sync::Mutex};
use table::AREAS;

/// The command of a row: where it runs, with which arguments and variables.
struct Try {
    args: Vec<OsString>,
    dir: Option<PathBuf>,
    vars: Vec<(&'static str, OsString)>,
    config: Option<&'static str>,
}

fn run<S: AsRef<str>>(args: impl IntoIterator<Item = S>) -> Try {
    let args = args.into_iter().map(|a| OsString::from(a.as_ref())).collect();
    Try { args, dir: None, vars: Vec::new(), config: None }
}

impl Try {
    fn at(mut self, dir: PathBuf) -> Self {
        self.dir = Some(dir);
        self
    }

    fn var(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.vars.push((name, value.into()));
        self
    }

    /// `git -c SETTING agentproto …`
    fn with_setting(mut self, setting: &'static str) -> Self {
        self.config = Some(setting);
        self
    }

    fn done(&self, env: &TestEnv, json: bool) -> Output {
        let mut words: Vec<OsString> = Vec::new();
        words.extend(self.config.iter().flat_map(|s| ["-c".into(), OsString::from(s)]));
        words.push("agentproto".into());
        let own = self.args.iter().position(|a| a == "--").unwrap_or(self.args.len());
        words.extend_from_slice(&self.args[..own]);
        words.extend(json.then(|| "--json".into()));
        words.extend_from_slice(&self.args[own..]);
        let mut run = env.run("git", &words);
        for (name, value) in &self.vars {
            run = run.env(name, value);
        }
        if let Some(dir) = &self.dir {
            run = run.dir(dir);
        }
        run.done()
    }
}

/// What a refused command may still write (decisions 22).
enum Writes {
    Nothing,
    /// Exactly these events.
    Events(&'static [&'static str]),
}

struct Row {
    code: &'static str,
    exit: i32,
    writes: Writes,
    set_up: fn(&TestEnv) -> Try,
}

const fn row(code: &'static str, exit: i32, set_up: fn(&TestEnv) -> Try) -> Row {
    Row { code, exit, writes: Writes::Nothing, set_up }
}

const fn answered(
    code: &'static str,
    events: &'static [&'static str],
    set_up: fn(&TestEnv) -> Try,
) -> Row {
    Row { code, exit: 6, writes: Writes::Events(events), set_up }
}

/// What is wrong with one way of running a row.
fn judge(row: &Row, env: &TestEnv, command: &Try, json: bool) -> Vec<String> {
    let dir = command.dir.clone().filter(|d| *d != env.repo());
    let look = || (env.snapshot(), dir.as_deref().map(|d| env.snapshot_of(d)));
    // A moved journal is looked at with git, which does not care.
    let kinds = || match row.writes {
        Writes::Nothing => Vec::new(),
        Writes::Events(_) => env.kinds(),
    };
    let (before, told) = (look(), kinds());
    let out = command.done(env, json);
    let (after, telling) = (look(), kinds());

    let mut wrong = Vec::new();
    if out.code() != row.exit {
        wrong.push(format!("exit {} instead of {}", out.code(), row.exit));
    }
    if !out.stdout.is_empty() {
        wrong.push("stdout is not empty".to_owned());
    }
    if json {
        let code = serde_json::from_slice::<Value>(&out.stderr).map(|v| v["error"]["code"].clone());
        if code.as_ref().ok().and_then(Value::as_str) != Some(row.code) {
            wrong.push(format!("error.code is {code:?}"));
        }
    } else if !out.err().contains(row.code) {
        wrong.push("the code is not said".to_owned());
    }
    let allowed: &[&str] = match row.writes {
        Writes::Nothing => &[],
        Writes::Events(_) => &[
            "ref refs/agentproto/journal/",
            "ref refs/agentproto/evidence/",
            // The last event of the journal is noted here.
            "home/.local/state/agentproto/writers/",
        ],
    };
    let changed = before.0.without(allowed).differences(&after.0.without(allowed));
    wrong.extend(changed.iter().map(|line| format!("written: {line}")));
    if let (Some(before), Some(after)) = (before.1, after.1) {
        wrong
            .extend(before.differences(&after).iter().map(|line| format!("written there: {line}")));
    }
    if let Writes::Events(events) = row.writes {
        let new = telling.get(told.len()..).unwrap_or_default();
        if !new.iter().eq(events) {
            wrong.push(format!("events {new:?} instead of {events:?}"));
        }
    }
    if wrong.is_empty() { wrong } else { vec![format!("{}\n{out}", wrong.join("; "))] }
}

/// Both ways of running a row; one that writes gets a fresh machine for the second.
fn judge_both(row: &Row) -> Vec<String> {
    let env = TestEnv::new();
    let command = (row.set_up)(&env);
    let mut wrong = judge(row, &env, &command, false);
    if let Writes::Nothing = row.writes {
        wrong.extend(judge(row, &env, &command, true));
    } else {
        let env = TestEnv::new();
        let command = (row.set_up)(&env);
        wrong.extend(judge(row, &env, &command, true));
    }
    wrong
}

#[test]
fn every_refusal_says_its_code_and_writes_nothing() {
    let todo: Vec<(&str, &Row)> =
        AREAS.iter().flat_map(|(area, rows)| rows.iter().map(move |row| (*area, row))).collect();
    let next = Mutex::new(todo.iter());
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((area, row)) = next.lock().unwrap().next() else { break };
                    // A set-up that fails is one bad row, not the end of the table.
                    let found = std::panic::catch_unwind(|| judge_both(row))
                        .unwrap_or_else(|_| vec!["its set-up failed, see above".to_owned()]);
                    let found = found.into_iter().map(|w| format!("[{area}] {}: {w}", row.code));
                    wrong.lock().unwrap().extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), 2 * todo.len(), wrong.join("\n\n"));
}

/// Codes this file meets outside its tables, and the test that does.
const MET_ELSEWHERE: &[(&str, &str)] = &[
    ("can-never-be", "wait_and_verify_answer_by_their_exit_code"),
    ("candidate-unreadable", "what_nobody_can_read_is_not_signed_and_does_not_land"),
    ("committing", "a_held_index_keeps_the_branch_until_it_is_free"),
    ("forged", "every_outcome_reaches_a_user_by_its_name"),
    ("file-over-limit", "a_file_without_end_is_not_read_into_memory_and_can_be_put_aside"),
    ("foreign-owned-repository", "refuses_a_repository_of_another_owner"),
    ("index-locked", "a_held_index_keeps_the_branch_until_it_is_free"),
    ("malformed", "every_outcome_reaches_a_user_by_its_name"),
    ("orphan", "every_outcome_reaches_a_user_by_its_name"),
    (
        "not-a-regular-file",
        "a_fifo_in_the_place_of_a_file_of_ours_is_named_by_fsck_and_waited_for_by_nobody",
    ),
    ("not-governed", "wait_and_verify_answer_by_their_exit_code"),
    ("read-only", "a_read_only_repository_is_read_and_never_written"),
    ("repository-format-unsupported", "a_format_of_the_future_is_refused_by_name"),
    ("writer-lives", "a_copy_takes_nothing_over_while_its_original_is_there"),
    ("timeout", "wait_and_verify_answer_by_their_exit_code"),
];

/// Codes a black box cannot bring about, and why.
const NOT_PROVOKED_HERE: &[(&str, &str)] = &[
    ("candidate-failed", "needs an object store that fails between the look and the write"),
    (
        "commit-hooks-unsupported",
        "meets a person at a terminal only; the tests of `allow --commit` bring it about",
    ),
    (
        "commit-signing-unsupported",
        "meets a person at a terminal only; the tests of `allow --commit` bring it about",
    ),
    ("git-failed", "needs a git that breaks half way; the tests of the spawn point bring it about"),
    ("internal-error", "would be a defect"),
    ("io-error", "needs a device that fails"),
    ("landing-refused", "needs a race inside the landing; the store's tests bring it about"),
    ("lock-timeout", "needs a holder of the kernel lock that outlasts the wait"),
    ("notes-contended", "needs two hundred lost races in a row"),
    ("path-has-nul", "an argument cannot hold a NUL; the tests of repository paths judge it"),
    ("protected-setting", "such a value is ignored; the refusal it leads to has its row"),
    (
        "ref-storage-unsupported",
        "a git of today turns an unknown backend down before it starts us; the tests of the store bring it about",
    ),
    (
        "rule-file-staged",
        "meets a person at a terminal only; the tests of `allow --commit` bring it about",
    ),
    ("store-unusable", "needs a damaged log; the store's tests bring it about"),
    (
        "trusted-ref-remote",
        "meets a person at a terminal only; the tests of `allow --commit` bring it about",
    ),
];

#[test]
fn every_code_is_met_or_answered_for() {
    let rows = AREAS.iter().flat_map(|(_, rows)| rows.iter().map(|row| row.code));
    let met: BTreeSet<&str> = rows
        .chain(OUTCOMES.iter().map(|(reason, ..)| *reason))
        .chain(MET_ELSEWHERE.iter().map(|(code, _)| *code))
        .collect();
    let excused: BTreeSet<&str> = NOT_PROVOKED_HERE.iter().map(|(code, _)| *code).collect();
    let all: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let answered: BTreeSet<&str> = met.union(&excused).copied().collect();
    assert_eq!(
        all.difference(&answered).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "codes without a row"
    );
    assert_eq!(
        answered.difference(&all).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "rows without a code"
    );
    assert_eq!(
        met.intersection(&excused).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "excused but met"
    );
    assert!(met.len() >= 60, "only {} codes are met", met.len());
    let sources = [
        include_str!("outcomes.rs"),
        include_str!("../adoption.rs"),
        include_str!("../answers.rs"),
        include_str!("../cli_contract.rs"),
        include_str!("../doubt.rs"),
        include_str!("../hostile.rs"),
        include_str!("../repositories.rs"),
    ]
    .concat();
    for (code, test) in MET_ELSEWHERE {
        assert!(sources.contains(&format!("fn {test}()")), "{code} is not met by {test}");
    }
    for (code, exit) in AREAS.iter().flat_map(|(_, rows)| rows.iter().map(|r| (r.code, r.exit))) {
        assert_eq!(i32::from(code.parse::<Code>().unwrap().exit()), exit, "exit code of {code}");
    }
}

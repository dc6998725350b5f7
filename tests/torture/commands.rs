//! The tool's own commands as scenarios of kills, and how each is carried to its end afterwards.
//!
//! Contract: carrying on uses only what a person would type. What the killed command had answered must hold; what it
//! had not must be free to be done once, and not twice.

use crate::{
    kill,
    lab::{Done, Repo, field},
    report::Report,
    scribe::Outcome,
    worker::Orders,
};
use serde_json::Value;
use std::{fs, process::Command};

/// Brings to its end what was interrupted; problems as sentences.
type CarryOn = fn(&mut Repo<'_>, &Done) -> Outcome<Vec<String>>;

/// Something to be killed in the middle.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The shelf it begins from.
    pub(crate) shelf: String,
    what: What,
    pub(crate) carry_on: CarryOn,
}

enum What {
    Worker(Orders),
    Tool(Vec<String>),
}

impl Scenario {
    /// A worker, which needs nothing to be carried on.
    pub(crate) fn worker(name: &'static str, shelf: &str, orders: Orders) -> Self {
        let carry_on: CarryOn = |_, _| Ok(vec![]);
        Self { name, shelf: shelf.to_owned(), what: What::Worker(orders), carry_on }
    }

    /// The command, in this repository.
    pub(crate) fn command(&self, repo: &Repo<'_>) -> Outcome<Command> {
        match &self.what {
            What::Worker(orders) => kill::command(repo, orders),
            What::Tool(args) => {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                Ok(repo.tool_command(&args))
            }
        }
    }
}

/// Scenarios in the making: each one is shelved when it is ready to begin.
struct Makers<'a> {
    repo: &'a Repo<'a>,
    plain: &'a str,
    made: Vec<Scenario>,
}

impl Makers<'_> {
    /// Makes a machine out of the plain one and shelves it; `prepare` answers with the command to be killed.
    fn add(
        &mut self,
        name: &'static str,
        prepare: impl FnOnce(&Repo<'_>) -> Outcome<Vec<String>>,
        carry_on: CarryOn,
    ) -> Outcome {
        self.repo.unshelve(self.plain)?;
        let what = What::Tool(prepare(self.repo)?);
        self.repo.shelve(name)?;
        self.made.push(Scenario { name, shelf: name.to_owned(), what, carry_on });
        Ok(())
    }
}

fn words(args: &[&str]) -> Vec<String> {
    args.iter().map(|a| (*a).to_owned()).collect()
}

/// Every command the suite knows, each beginning from a repository where it has something to do.
pub(crate) fn scenarios(
    repo: &Repo<'_>,
    plain: &str,
    _report: &mut Report,
) -> Outcome<Vec<Scenario>> {
    let mut makers = Makers { repo, plain, made: vec![] };
    let s = repo.session.as_str();
    makers.add(
        "adopt",
        |repo| {
            fs::remove_dir_all(repo.git_dir().join("agentproto"))?;
            fs::remove_dir_all(repo.acks())?;
            fs::create_dir(repo.acks())?;
            repo.git(&["update-ref", "-d", &repo.journal()?])?;
            Ok(words(&["session", "adopt", "--label", "first", "--json"]))
        },
        adopted,
    )?;
    let report = ["session", "report", s, "command-done", "--json"];
    makers.add("report", |_| Ok(words(&report)), |_, _| Ok(vec![]))?;
    makers.add("attach", |_| Ok(words(&["attach", s, "--json", "--", "ls"])), attached)?;
    makers.add("ack", |repo| Ok(words(&["ack", &awaiting(repo)?, "--yes", "--json"])), acked)?;
    makers.add(
        "commit",
        |repo| {
            fs::write(repo.dir.join("new.txt"), "new\n")?;
            Ok(words(&commit_of("new.txt")))
        },
        committed,
    )?;
    makers.add(
        "cancel",
        |repo| {
            let session = repo.adopt("watched")?;
            let attached = repo.tool(&["attach", &session, "--json", "--", "ls"])?;
            Ok(words(&["policy", "cancel", &field(&attached, "policyId")?, "--json"]))
        },
        cancelled,
    )?;
    Ok(makers.made)
}

fn commit_of(path: &str) -> [&str; 10] {
    ["commit", "--no-ack", "--json", "-m", "m", "--path", path, "--", "ls", path]
}

/// Lets a policy come to where it waits for a person to approve; its id.
fn awaiting(repo: &Repo<'_>) -> Outcome<String> {
    let session = repo.adopt("waiting")?;
    fs::write(repo.dir.join("new.txt"), "new\n")?;
    let attach = ["attach", &session, "--then", "commit", "--path", "new.txt", "-m", "m", "--json"];
    let attach: Vec<&str> = attach.into_iter().chain(["--", "ls"]).collect();
    let policy = field(&repo.tool(&attach)?, "policyId")?;
    repo.tool(&["session", "report", &session, "turn-end"])?.text()?;
    repo.tool(&["wait", &policy, "--until", "settled", "--timeout", "60s"])?;
    Ok(policy)
}

fn policies(repo: &Repo<'_>) -> Outcome<Vec<Value>> {
    let listed = repo.tool(&["policy", "list", "--all", "--json"])?;
    listed.text()?;
    Ok(listed.json()?["policies"].as_array().cloned().unwrap_or_default())
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn is_over(policy: &Value) -> bool {
    ["done", "blocked", "cancelled"].contains(&text(policy, "status").as_str())
}

fn open_policy(repo: &Repo<'_>) -> Outcome<String> {
    let found = policies(repo)?.into_iter().find(|p| !is_over(p));
    found.map(|p| text(&p, "policyId")).ok_or_else(|| "no policy is open".into())
}

/// The journal may or may not have begun; the next session begins or continues it.
fn adopted(repo: &mut Repo<'_>, done: &Done) -> Outcome<Vec<String>> {
    let told = done.json().ok().map(|v| text(&v, "sessionId")).filter(|s| !s.is_empty());
    repo.session = repo.adopt("again")?;
    let mut problems = Vec::new();
    if let Some(session) = told
        && repo.tool(&["session", "show", &session, "--json"])?.code != 0
    {
        problems.push(format!("lost session {session}, which was answered"));
    }
    Ok(problems)
}

fn attached(repo: &mut Repo<'_>, done: &Done) -> Outcome<Vec<String>> {
    let mut problems = Vec::new();
    if let Some(policy) = done.json().ok().map(|v| text(&v, "policyId"))
        && repo.tool(&["policy", "show", &policy, "--json"])?.code != 0
    {
        problems.push(format!("lost policy {policy}, which was answered"));
    }
    let again = repo.tool(&["attach", &repo.session.clone(), "--json", "--", "ls"])?;
    if again.code != 0 {
        problems.push(format!("the next attach fails: {again}"));
    }
    Ok(problems)
}

fn cancelled(repo: &mut Repo<'_>, done: &Done) -> Outcome<Vec<String>> {
    let mut problems = Vec::new();
    let Ok(policy) = open_policy(repo) else { return Ok(problems) };
    if done.code == 0 {
        problems.push(format!("lost the cancellation of {policy}, which was answered: {done}"));
    }
    let again = repo.tool(&["policy", "cancel", &policy, "--json"])?;
    if again.code != 0 {
        problems.push(format!("it cannot be cancelled any more: {again}"));
    }
    Ok(problems)
}

/// An ack that was interrupted is given again when it did not arrive; the commit lands once.
fn acked(repo: &mut Repo<'_>, _done: &Done) -> Outcome<Vec<String>> {
    settle(repo)?;
    if let Ok(policy) = open_policy(repo) {
        repo.tool(&["ack", &policy, "--yes", "--json"])?.text()?;
    }
    settle(repo)?;
    sound(repo, true)
}

/// A commit that was interrupted ends by itself once somebody looks; another one is not in its way.
fn committed(repo: &mut Repo<'_>, _done: &Done) -> Outcome<Vec<String>> {
    settle(repo)?;
    let problems = sound(repo, false)?;
    fs::write(repo.dir.join("other.txt"), "other\n")?;
    repo.tool(&commit_of("other.txt"))?.text()?;
    Ok(problems)
}

/// Carries every open policy to where it goes without a person.
fn settle(repo: &Repo<'_>) -> Outcome {
    for policy in policies(repo)?.iter().filter(|p| !is_over(p)) {
        let id = text(policy, "policyId");
        let done = repo.tool(&["wait", &id, "--until", "settled", "--timeout", "60s"])?;
        if ![0, 5].contains(&done.code) {
            return Err(format!("it does not settle: {done}").into());
        }
    }
    Ok(())
}

/// Each finished policy has exactly one commit on `main`, no other has any, and the index and the files agree.
fn sound(repo: &Repo<'_>, must_be_done: bool) -> Outcome<Vec<String>> {
    let mut problems = Vec::new();
    let format = "--format=%(trailers:key=Agentproto-Policy,valueonly,separator=)";
    let log = repo.git(&["log", format, "main"])?;
    for policy in policies(repo)? {
        let (id, status) = (text(&policy, "policyId"), text(&policy, "status"));
        let commits = log.lines().filter(|l| *l == id).count();
        if commits != usize::from(status == "done") {
            problems.push(format!("policy {id} is {status} and has {commits} commits"));
        }
        if must_be_done && status != "done" {
            problems.push(format!("policy {id} was to be done: {policy}"));
        }
    }
    let status = repo.git(&["status", "--porcelain", "--untracked-files=no"])?;
    if !status.is_empty() {
        problems.push(format!("index or files are not as committed: {status}"));
    }
    Ok(problems)
}

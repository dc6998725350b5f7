//! `verify [RANGE]`: which commits were gated and approved, and by whom.

use super::{
    cx::Cx,
    error::CliError,
    text::{short_oid, shown, table_with_ids},
};
use crate::{
    domain::oid::Oid,
    enforce::{
        Outcome,
        verify::{self, JournalReport, Report, Verified, VerifyAsk, VerifyError},
    },
    ledger::Ledger,
    store::names::fetch_spec,
};
use serde_json::{Value, json};

/// What is verified.
#[derive(clap::Args)]
pub(super) struct VerifyArgs {
    /// A range, branch or commit; without it the current branch since governance began
    #[arg(value_name = "RANGE")]
    range: Option<String>,
}

impl From<VerifyError> for CliError {
    fn from(error: VerifyError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

pub(super) fn run(cx: &Cx, args: VerifyArgs) -> Result<u8, CliError> {
    let ledger = cx.ledger()?;
    let nothing = match args.range {
        Some(_) => "no commit in that range",
        None => "no commit since governance began",
    };
    let report = verify::verify(&ledger, &VerifyAsk { revisions: args.range })?;
    cx.answer(&object(&report), &text(cx, &report, nothing))?;
    if report.journals.is_empty() {
        cx.note(&no_journal(&ledger)?);
    } else if report.commits.iter().any(|c| c.claimed.is_some()) {
        cx.note(&another_journal(&ledger)?);
    }
    Ok(report.exit)
}

/// Without any journal: where the records may be.
fn no_journal(ledger: &Ledger) -> Result<String, CliError> {
    Ok(match fetch(ledger)? {
        None => "hint: nothing was ever recorded here, and there is no remote to ask".to_owned(),
        Some(fetch) => {
            format!("hint: nothing was recorded here; what others recorded may be fetched: {fetch}")
        }
    })
}

/// With journals that do not know the policy a commit names: where another one may be.
fn another_journal(ledger: &Ledger) -> Result<String, CliError> {
    let no_remote =
        "hint: the records of the clone that made it are not here, and there is no remote to ask";
    Ok(match fetch(ledger)? {
        None => no_remote.to_owned(),
        Some(fetch) => format!(
            "hint: once they are pushed, the records of the clone that made it can be fetched: {fetch}"
        ),
    })
}

/// The command that brings the journals of others; none without a remote.
fn fetch(ledger: &Ledger) -> Result<Option<String>, CliError> {
    let repo = ledger.repo()?;
    let remotes = repo.remote_names();
    Ok(remotes.iter().next().map(|remote| {
        let remote = remote.to_string();
        let spec = fetch_spec(&remote);
        format!("git fetch {} '{spec}'", shell_words::quote(&remote))
    }))
}

fn object(report: &Report) -> Value {
    json!({
        "schema": "agentproto/verify/1",
        "commits": report.commits.iter().map(commit).collect::<Vec<_>>(),
        "journals": report.journals.iter().map(journal).collect::<Vec<_>>(),
        "ok": report.ok,
        "completeness": report.completeness,
    })
}

fn commit(commit: &Verified) -> Value {
    let mut fields = json!({ "sha": commit.sha.to_string(), "outcome": commit.outcome.as_str() });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields[name] = value;
        }
    };
    set("policyId", commit.policy.as_ref().map(|p| p.as_str().into()));
    set("signer", commit.signer.as_deref().map(Value::from));
    set("isolation", commit.isolation.as_deref().map(Value::from));
    set("unlistedChanges", commit.unlisted_changes.map(Value::from));
    set("claimedPolicyId", commit.claimed.as_ref().map(|p| p.as_str().into()));
    set("reason", commit.reason.as_deref().map(Value::from));
    set("evidence", Some(commit.evidence.iter().map(Oid::to_string).collect()));
    fields
}

/// A journal, for `verify` and `fsck` alike.
pub(super) fn journal(journal: &JournalReport) -> Value {
    let problem = journal.problem.as_ref();
    json!({
        "writer": journal.writer.as_str(),
        "tip": journal.tip.map(|tip| tip.to_string()),
        "from": journal.from,
        "events": journal.events,
        "ok": journal.ok,
        "problem": problem.map(|(at, why)| json!({ "at": at.map(|at| at.to_string()), "why": why })),
    })
}

/// The line of a journal for people.
pub(super) fn journal_line(journal: &JournalReport) -> String {
    let (writer, from, events) = (&journal.writer, journal.from, journal.events);
    let what =
        if from == 1 { format!("{events} events") } else { format!("events {from} to {events}") };
    let before =
        if from == 1 { "" } else { "; older ones are not kept, nothing is provable of them" };
    match &journal.problem {
        None if journal.ok => format!("journal {writer}: {what}, all hold{before}\n"),
        None => format!("journal {writer}: {what}, not all hold{before}\n"),
        Some((Some(at), why)) => {
            format!("journal {writer}: {what} hold, then {at}: {}{before}\n", shown(why))
        }
        Some((None, why)) => format!("journal {writer} cannot be read: {}\n", shown(why)),
    }
}

fn text(cx: &Cx, report: &Report, nothing: &str) -> String {
    let rows: Vec<Vec<String>> = report.commits.iter().map(|c| row(c, cx.columns)).collect();
    let mut text = table_with_ids(&rows, "", cx.columns, 2);
    if report.commits.is_empty() {
        text.push_str(&format!("{nothing}\n"));
    }
    text.extend(report.journals.iter().map(journal_line));
    let governed = report.commits.iter().filter(|c| c.outcome == Outcome::Governed).count();
    let all = report.commits.len();
    let summary = format!("{governed} of {all} commits governed; {}", report.completeness);
    let summary = if report.ok { summary } else { cx.paint.warn(&summary) };
    text.push_str(&format!("{summary}\n"));
    text
}

/// Outcome, commit, and by whom or why not.
fn row(commit: &Verified, columns: Option<usize>) -> Vec<String> {
    let who = commit.signer.as_ref().map(|signer| format!("approved by {signer}"));
    let changes = commit.unlisted_changes.filter(|n| *n > 0);
    let changes = changes.map(|n| format!("uncommitted beside the listed files: {n}"));
    let parts = [who, commit.reason.clone(), changes];
    let why: Vec<String> = parts.into_iter().flatten().collect();
    let sha = commit.sha.to_string();
    let sha = if columns.is_some() { short_oid(&sha).to_owned() } else { sha };
    vec![commit.outcome.as_str().to_owned(), sha, why.join("; ")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::exit;
    use crate::sys::env::Env;

    fn report(outcome: Outcome) -> Report {
        let sha = "1".repeat(40).parse().unwrap();
        let commit = Verified {
            sha,
            outcome,
            policy: None,
            signer: None,
            isolation: None,
            unlisted_changes: Some(2),
            claimed: None,
            reason: Some("no record names it".into()),
            evidence: vec![],
        };
        let writer = "0123456789ab".parse().unwrap();
        let problem = Some((Some(sha), "sequence\u{1b}".to_owned()));
        Report {
            commits: vec![commit],
            journals: vec![JournalReport {
                writer,
                tip: Some(sha),
                from: 1,
                events: 3,
                ok: false,
                problem,
            }],
            ok: false,
            exit: exit::BROKEN,
            completeness: "not consistent, see the journals".into(),
        }
    }

    #[test]
    fn every_commit_says_why_and_broken_journals_say_where() {
        let cx = Cx::new(Env::fixed("/".into(), []), false);
        let one = "1".repeat(40);
        assert_eq!(
            text(&cx, &report(Outcome::Ungoverned), "none"),
            format!(
                "ungoverned  {one}  no record names it; uncommitted beside the listed files: 2\n\
                 journal 0123456789ab: 3 events hold, then {one}: sequence\\x1b\n\
                 0 of 1 commits governed; not consistent, see the journals\n"
            )
        );
    }

    #[test]
    fn the_object_leaves_out_what_is_not_known() {
        let object = object(&report(Outcome::Unknown));
        assert_eq!(object["commits"][0]["outcome"], "unknown");
        assert_eq!(object["commits"][0].get("signer"), None);
        assert_eq!(object["commits"][0]["evidence"], json!([]));
        assert_eq!(object["journals"][0]["problem"]["why"], "sequence\u{1b}");
    }
}

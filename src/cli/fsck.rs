//! `fsck`: whether store, journals and notes hold together; what the write-ahead log proves is mended, and with
//! `--repair` what the journal proves.

use super::{
    cx::Cx,
    error::CliError,
    text::shown,
    verify::{journal, journal_line},
};
use crate::{
    enforce::fsck::{self, Finding, FsckReport},
    ledger::{Ledger, Remedy},
};
use serde_json::{Value, json};

/// What is to be done beside looking.
#[derive(clap::Args)]
pub(super) struct FsckArgs {
    /// Put right what the journal proves; nothing that is damaged is deleted
    #[arg(long)]
    repair: bool,
    /// With --repair: say what would be put right, and change nothing
    #[arg(long, short = 'n', requires = "repair")]
    dry_run: bool,
}

/// What became of one remedy.
struct Applied {
    remedy: Remedy,
    /// What was done, or why it could not be.
    outcome: Result<String, String>,
}

pub(super) fn run(cx: &Cx, args: &FsckArgs) -> Result<u8, CliError> {
    let ledger = if args.dry_run { cx.ledger_to_look()? } else { cx.ledger_as_it_is()? };
    let mut report = fsck::fsck(&ledger)?;
    let mut applied = Vec::new();
    if args.repair && !args.dry_run {
        applied = repaired(&ledger, &mut report)?;
    }
    cx.answer(&object(&report, &applied, args), &text(&report, &applied, args))?;
    Ok(report.exit)
}

/// Applies every remedy once, and looks again: what is put right lets more be seen.
fn repaired(ledger: &Ledger, report: &mut FsckReport) -> Result<Vec<Applied>, CliError> {
    let mut applied: Vec<Applied> = Vec::new();
    loop {
        let mut remedies = report.remedies();
        remedies.retain(|remedy| applied.iter().all(|done| done.remedy != *remedy));
        if remedies.is_empty() {
            return Ok(applied);
        }
        for remedy in remedies {
            let outcome = match ledger.apply(&remedy) {
                Ok(done) => Ok(done.unwrap_or_else(|| "nothing was wrong any more".to_owned())),
                Err(e) => Err(format!("{e} [{}]", e.code())),
            };
            applied.push(Applied { remedy, outcome });
        }
        let after = fsck::fsck(ledger)?;
        report.take_over(after);
    }
}

fn object(report: &FsckReport, applied: &[Applied], args: &FsckArgs) -> Value {
    let mut object = json!({
        "schema": "agentproto/fsck/1",
        "ok": report.ok,
        "healedObjects": report.healed_objects,
        "healedRefs": report.healed_refs,
        "leftovers": report.leftovers,
        "journals": report.journals.iter().map(journal).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    });
    if args.repair {
        let done = applied.iter().filter_map(|a| a.outcome.as_ref().ok());
        let failed = applied.iter().filter_map(|a| Some((&a.remedy, a.outcome.as_ref().err()?)));
        object["dryRun"] = args.dry_run.into();
        object["repaired"] = done.cloned().collect();
        object["notRepaired"] = failed
            .map(|(remedy, why)| json!({ "repair": remedy.to_string(), "why": why }))
            .collect();
    }
    object
}

fn finding(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.as_str(),
        "code": finding.code.as_str(),
        "subject": finding.subject,
        "what": finding.what,
        "repair": finding.repair.as_ref().map(Remedy::to_string),
    })
}

fn text(report: &FsckReport, applied: &[Applied], args: &FsckArgs) -> String {
    let mut text = String::new();
    for Applied { remedy, outcome } in applied {
        text.push_str(&match outcome {
            Ok(done) => format!("repaired: {}\n", shown(done)),
            Err(why) => format!("not repaired: {}: {}\n", shown(&remedy.to_string()), shown(why)),
        });
    }
    for found in &report.findings {
        let (severity, code) = (found.severity.as_str(), found.code);
        let (subject, what) = (shown(&found.subject), shown(&found.what));
        text.push_str(&format!("{severity}: {subject}: {what} [{code}]\n"));
        if let Some(repair) = found.repair.as_ref().filter(|_| !args.repair || args.dry_run) {
            text.push_str(&format!("  --repair would {}\n", shown(&repair.to_string())));
        }
    }
    text.extend(report.journals.iter().map(journal_line));
    text.push_str(&mended(report));
    text.push_str(if report.ok { "nothing is wrong\n" } else { "not all is well\n" });
    text
}

/// What was put right before anything was looked at, as every command does.
fn mended(report: &FsckReport) -> String {
    let mut text = String::new();
    for name in &report.healed_refs {
        text.push_str(&format!("mended: {} is where the log says again\n", shown(name)));
    }
    let count = |n: u64, one: &str, many: &str| match n {
        0 => String::new(),
        1 => format!("mended: 1 {one}\n"),
        n => format!("mended: {n} {many}\n"),
    };
    let objects =
        ("object was written again from the log", "objects were written again from the log");
    text.push_str(&count(report.healed_objects, objects.0, objects.1));
    let files = ("file of a dead process was removed", "files of dead processes were removed");
    text.push_str(&count(report.leftovers, files.0, files.1));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        code::{Code, exit},
        enforce::fsck::Severity,
    };

    const PLAIN: FsckArgs = FsckArgs { repair: false, dry_run: false };
    const REPAIR: FsckArgs = FsckArgs { repair: true, dry_run: false };

    #[test]
    fn findings_come_first_and_nothing_is_called_fine_beside_them() {
        let finding = Finding {
            severity: Severity::Problem,
            code: Code::StoreUnusable,
            subject: "pol_x".into(),
            what: "1 of its lines is not in the note".into(),
            repair: Some(Remedy::AddPackedRefs),
        };
        let mut report = FsckReport {
            healed_objects: 2,
            healed_refs: vec!["refs/x".into()],
            leftovers: 0,
            journals: vec![],
            findings: vec![finding],
            ok: false,
            exit: exit::NO,
        };
        assert_eq!(
            text(&report, &[], &PLAIN),
            "problem: pol_x: 1 of its lines is not in the note [store-unusable]\n  \
             --repair would make a packed-refs file without refs\n\
             mended: refs/x is where the log says again\n\
             mended: 2 objects were written again from the log\nnot all is well\n"
        );
        assert_eq!(object(&report, &[], &PLAIN)["findings"][0]["severity"], "problem");
        report = FsckReport {
            findings: vec![],
            healed_objects: 0,
            healed_refs: vec![],
            ok: true,
            ..report
        };
        assert_eq!(text(&report, &[], &PLAIN), "nothing is wrong\n");
    }

    #[test]
    fn what_was_and_was_not_repaired_is_told() {
        let report = FsckReport {
            healed_objects: 0,
            healed_refs: vec![],
            leftovers: 0,
            journals: vec![],
            findings: vec![],
            ok: true,
            exit: exit::DONE,
        };
        let applied = [
            Applied { remedy: Remedy::RebuildIndex, outcome: Ok("made anew".into()) },
            Applied { remedy: Remedy::PutLogAside, outcome: Err("no space".into()) },
        ];
        let told = text(&report, &applied, &REPAIR);
        assert!(told.starts_with("repaired: made anew\nnot repaired: make everything "), "{told}");
        let told = object(&report, &applied, &REPAIR);
        assert_eq!((&told["repaired"][0], &told["dryRun"]), (&json!("made anew"), &json!(false)));
        assert_eq!(told["notRepaired"][0]["why"], "no space");
    }
}

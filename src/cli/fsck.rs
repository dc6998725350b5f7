//! `fsck`: whether store, journals and notes hold together; what the write-ahead log proves is mended.

use super::{
    cx::Cx,
    error::CliError,
    text::shown,
    verify::{journal, journal_line},
};
use crate::enforce::fsck::{self, Finding, FsckReport};
use serde_json::{Value, json};

/// Nothing to choose in this version.
#[derive(clap::Args)]
pub(super) struct FsckArgs {}

pub(super) fn run(cx: &Cx, _args: &FsckArgs) -> Result<u8, CliError> {
    let report = fsck::fsck(&cx.ledger()?)?;
    cx.answer(&object(&report), &text(&report))?;
    Ok(report.exit)
}

fn object(report: &FsckReport) -> Value {
    json!({
        "schema": "agentproto/fsck/1",
        "ok": report.ok,
        "healedObjects": report.healed_objects,
        "healedRefs": report.healed_refs,
        "leftovers": report.leftovers,
        "journals": report.journals.iter().map(journal).collect::<Vec<_>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity.as_str(),
        "code": finding.code.as_str(),
        "subject": finding.subject,
        "what": finding.what,
    })
}

fn text(report: &FsckReport) -> String {
    let mut text = String::new();
    for found in &report.findings {
        let (severity, code) = (found.severity.as_str(), found.code);
        let (subject, what) = (shown(&found.subject), shown(&found.what));
        text.push_str(&format!("{severity}: {subject}: {what} [{code}]\n"));
    }
    text.extend(report.journals.iter().map(journal_line));
    let (objects, refs, files) =
        (report.healed_objects, report.healed_refs.len(), report.leftovers);
    if objects > 0 || refs > 0 || files > 0 {
        text.push_str(&format!(
            "mended: {objects} objects, {refs} refs, {files} files left behind\n"
        ));
    }
    text.push_str(if report.ok { "nothing is wrong\n" } else { "not all is well\n" });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        code::{Code, exit},
        enforce::fsck::Severity,
    };

    #[test]
    fn findings_come_first_and_nothing_is_called_fine_beside_them() {
        let finding = Finding {
            severity: Severity::Problem,
            code: Code::StoreUnusable,
            subject: "pol_x".into(),
            what: "1 of its lines is not in the note".into(),
        };
        let mut report = FsckReport {
            healed_objects: 2,
            healed_refs: vec![],
            leftovers: 0,
            journals: vec![],
            findings: vec![finding],
            ok: false,
            exit: exit::NO,
        };
        assert_eq!(
            text(&report),
            "problem: pol_x: 1 of its lines is not in the note [store-unusable]\n\
             mended: 2 objects, 0 refs, 0 files left behind\nnot all is well\n"
        );
        assert_eq!(object(&report)["findings"][0]["severity"], "problem");
        report = FsckReport { findings: vec![], healed_objects: 0, ok: true, ..report };
        assert_eq!(text(&report), "nothing is wrong\n");
    }
}

//! What was found: findings, how bad each is, and what can be done about it.

use crate::{
    code::{Code, exit},
    enforce::{
        chain::Chain,
        verify::{JournalReport, journal_report},
    },
    ledger::Remedy,
    store::{Recovered, StoreError},
};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong with the store; a person may want to know.
    Note,
    /// Can be restored from the journal, or is only in the way.
    Problem,
    /// Answers cannot be relied upon.
    Broken,
}

impl Severity {
    /// The word in answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Problem => "problem",
            Self::Broken => "broken",
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The stable code.
    pub code: Code,
    /// What it concerns: a writer, policy, object or file.
    pub subject: String,
    /// What is wrong, in one sentence.
    pub what: String,
    /// What `--repair` does about it; none when that takes a person.
    pub repair: Option<Remedy>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsckReport {
    /// Objects written again from the write-ahead log.
    pub healed_objects: u64,
    /// Refs set again.
    pub healed_refs: Vec<String>,
    /// Files of dead processes that were removed.
    pub leftovers: u64,
    /// The journals, this clone's own first.
    pub journals: Vec<JournalReport>,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
    /// Nothing is wrong.
    pub ok: bool,
    /// The exit code.
    pub exit: u8,
}

impl FsckReport {
    /// Goes on with what a later look found; what was mended in between counts together.
    pub fn take_over(&mut self, later: Self) {
        let healed_objects = self.healed_objects + later.healed_objects;
        let leftovers = self.leftovers + later.leftovers;
        let mut healed_refs = std::mem::take(&mut self.healed_refs);
        healed_refs.extend(later.healed_refs.iter().cloned());
        *self = Self { healed_objects, healed_refs, leftovers, ..later };
    }

    /// Keeps what a second look finds as well, and what it heard of for the first time as far as nothing is wrong with
    /// that. An index that is wrong goes with the first who reads by it, so one look is enough there.
    pub fn confirm(&mut self, later: Self) {
        let first = std::mem::take(&mut self.findings);
        self.take_over(later);
        let same = |a: &Finding, b: &Finding| (&a.subject, a.code) == (&b.subject, b.code);
        self.findings.retain(|later| {
            later.severity == Severity::Note || first.iter().any(|first| same(first, later))
        });
        let index = first.into_iter().find(|f| f.repair == Some(Remedy::RebuildIndex));
        let told = |f: &Finding| self.findings.iter().any(|there| same(there, f));
        self.findings.extend(index.filter(|f| !told(f)));
        self.findings.sort_by_key(|f| std::cmp::Reverse(f.severity));
        self.exit = exit_of(&self.findings);
        self.ok = self.exit == exit::DONE;
    }

    /// Everything that can be put right, each once, in the order to do it in.
    #[must_use]
    pub fn remedies(&self) -> Vec<Remedy> {
        let mut all: Vec<Remedy> = self.findings.iter().filter_map(|f| f.repair.clone()).collect();
        all.sort();
        all.dedup();
        all
    }
}

/// The exit code of findings, the worst of which is first.
fn exit_of(findings: &[Finding]) -> u8 {
    match findings.first().map(|f| f.severity) {
        None | Some(Severity::Note) => exit::DONE,
        Some(Severity::Problem) => exit::NO,
        Some(Severity::Broken) => exit::BROKEN,
    }
}

#[derive(Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn add(&mut self, severity: Severity, code: Code, subject: &str, what: String) {
        let subject = subject.to_owned();
        self.0.push(Finding { severity, code, subject, what, repair: None });
    }

    pub(super) fn note(&mut self, subject: &str, what: String) {
        self.add(Severity::Note, Code::StoreUnusable, subject, what);
    }

    pub(super) fn problem(&mut self, code: Code, subject: &str, what: String) {
        self.add(Severity::Problem, code, subject, what);
    }

    /// A problem that `--repair` can put right.
    pub(super) fn repairable(&mut self, subject: &str, what: String, repair: Remedy) {
        self.problem(Code::StoreUnusable, subject, what);
        self.offer(repair);
    }

    /// Says what `--repair` does about the last finding.
    pub(super) fn offer(&mut self, repair: Remedy) {
        if let Some(last) = self.0.last_mut() {
            last.repair = Some(repair);
        }
    }

    /// Something of the store that cannot be read makes it broken.
    pub(super) fn store(&mut self, subject: &str, error: &StoreError) {
        self.add(Severity::Broken, error.code(), subject, error.to_string());
    }

    pub(super) fn report(mut self, healed: Recovered, chains: &[Chain]) -> FsckReport {
        self.0.sort_by_key(|f| std::cmp::Reverse(f.severity));
        let exit = exit_of(&self.0);
        FsckReport {
            healed_objects: healed.objects,
            healed_refs: healed.refs,
            leftovers: healed.leftovers,
            journals: chains.iter().map(journal_report).collect(),
            ok: exit == exit::DONE,
            exit,
            findings: self.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::checks::SideFile;

    #[test]
    fn remedies_are_told_once_in_the_order_in_which_they_help_each_other() {
        let mut found = Findings::default();
        let segment = || Remedy::RestoreSegment { name: "refs/x".into() };
        let file = Remedy::MendSideFile(SideFile::Packs);
        for repair in
            [segment(), Remedy::RebuildIndex, segment(), Remedy::PutLogAside, file.clone()]
        {
            found.repairable("x", "wrong".into(), repair);
        }
        let report = found.report(Recovered::default(), &[]);
        let expected = [file, Remedy::PutLogAside, segment(), Remedy::RebuildIndex];
        assert_eq!(report.remedies(), expected);
    }

    #[test]
    fn what_is_gone_at_the_second_look_was_somebody_at_work() {
        let look = |all: &[(&str, Severity)]| {
            let mut found = Findings::default();
            all.iter().for_each(|(s, how)| found.add(*how, Code::StoreUnusable, s, "x".into()));
            found.report(Recovered::default(), &[])
        };
        let (wrong, note) = (Severity::Problem, Severity::Note);
        let mut report = look(&[("stays", Severity::Broken), ("goes", wrong)]);
        report.confirm(look(&[("comes", wrong), ("new", note), ("stays", wrong)]));
        let told: Vec<_> = report.findings.iter().map(|f| f.subject.as_str()).collect();
        assert_eq!((told, report.exit, report.ok), (vec!["stays", "new"], exit::NO, false));
        let mut report = look(&[("goes", wrong)]);
        report.confirm(look(&[("comes", wrong)]));
        assert_eq!((report.findings.len(), report.exit, report.ok), (0, exit::DONE, true));
        let mut found = Findings::default();
        found.problem(Code::StoreUnusable, "x", "wrong".into());
        found.note("index", "wrong".into());
        found.offer(Remedy::RebuildIndex);
        let mut report = found.report(Recovered::default(), &[]);
        report.confirm(look(&[]));
        assert_eq!((report.findings.len(), report.exit), (1, exit::DONE));
    }

    #[test]
    fn what_every_look_mended_counts_and_the_last_one_judges() {
        let look = |objects, name: &str, leftovers| Recovered {
            objects,
            refs: vec![name.to_owned()],
            leftovers,
            pending: None,
        };
        let mut found = Findings::default();
        found.problem(Code::StoreUnusable, "x", "wrong".into());
        let mut report = found.report(look(1, "refs/a", 3), &[]);
        assert_eq!((report.ok, report.exit), (false, exit::NO));
        report.take_over(Findings::default().report(look(2, "refs/b", 4), &[]));
        assert_eq!((report.healed_objects, report.leftovers), (3, 7));
        assert_eq!(report.healed_refs, ["refs/a", "refs/b"]);
        assert_eq!((report.ok, report.exit, report.findings.len()), (true, exit::DONE, 0));
    }
}

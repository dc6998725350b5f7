//! All problems of one request, collected before anything is written.
//!
//! Contract: a check that fails or cannot be made adds its problem and the others go on; [`Problems::finish`]
//! lets nothing pass that has one. The order is that of decisions 28: what was typed wrong, then what is not
//! there, then what a rule refuses, then what could not be told.

use super::{LedgerError, Problem};
use crate::code::{Code, exit};

/// What helps where a text holds a NUL byte: JSON can have one, arguments cannot.
pub(super) const NO_NUL: &str = "leave the NUL byte out";

/// Problems found so far.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    /// Adds one; the same code for the same field counts once.
    pub(super) fn add(&mut self, problem: Problem) {
        if !self.0.iter().any(|p| p.code == problem.code && p.field == problem.field) {
            self.0.push(problem);
        }
    }

    /// Adds one without a hint of its own.
    pub(super) fn say(&mut self, code: Code, field: &str, why: impl Into<String>) {
        self.add(Problem { code, field: field.to_owned(), why: why.into(), hint: None });
    }

    /// Adds those of what lies below a field.
    pub(super) fn add_below(&mut self, field: &str, below: Self) {
        for problem in below.0 {
            self.add(Problem { field: format!("{field}.{}", problem.field), ..problem });
        }
    }

    /// The value of a check; a failed one becomes a problem of `field`.
    pub(super) fn note<T>(&mut self, field: &str, checked: Result<T, LedgerError>) -> Option<T> {
        match checked {
            Ok(value) => Some(value),
            Err(LedgerError::Problems(all)) => {
                all.into_iter().for_each(|p| self.add(p));
                None
            }
            Err(e) => {
                self.say(e.code(), field, e.to_string());
                None
            }
        }
    }

    /// What all checks together made, if none of them found anything.
    pub(super) fn finish<T>(mut self, made: Option<T>) -> Result<T, LedgerError> {
        if self.0.is_empty() {
            let lost =
                || LedgerError::refused(Code::Internal, "checks", "one of them gave nothing");
            return made.ok_or_else(lost);
        }
        self.0.sort_by_key(|p| rank(p.code));
        Err(LedgerError::Problems(self.0))
    }
}

fn rank(code: Code) -> u8 {
    match code.exit() {
        exit::USAGE => 0,
        exit::NOT_FOUND => 1,
        exit::REFUSED => 2,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_comes_first_and_what_cannot_be_told_last() {
        let mut problems = Problems::default();
        problems.say(Code::Io, "a", "a");
        problems.say(Code::DetachedHead, "b", "b");
        problems.say(Code::NoSuchSession, "c", "c");
        problems.say(Code::UnmergedIndex, "d", "d");
        problems.say(Code::NoPaths, "e", "e");
        problems.say(Code::NoPaths, "e", "again");
        let Err(LedgerError::Problems(all)) = problems.finish(Some(())) else { panic!("passed") };
        let order: String = all.iter().map(|p| p.field.as_str()).collect();
        assert_eq!(order, "ecbda");
    }

    #[test]
    fn nothing_found_and_nothing_made_is_no_success() {
        assert!(Problems::default().finish(Some(1)).is_ok());
        let error = Problems::default().finish(None::<u8>).unwrap_err();
        assert_eq!(error.code(), Code::Internal);
    }
}

//! Words about a candidate: who makes it and how a path changes.

use super::oid::Oid;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a listed path differs between parent and candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// Not there before.
    Added,
    /// Other content, perhaps another executable bit, too.
    Modified,
    /// Not there afterwards.
    Deleted,
    /// A file became a symlink or the other way round.
    TypeChanged,
    /// Only the executable bit changed.
    ModeChanged,
}

impl ChangeKind {
    /// git's letter for it, as `git diff --name-status` shows it.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Added => 'A',
            Self::Modified | Self::ModeChanged => 'M',
            Self::Deleted => 'D',
            Self::TypeChanged => 'T',
        }
    }
}

/// True for the name of one worktree's own `HEAD`, as git spells it for the whole repository. No branch has such a name.
#[must_use]
pub fn is_head(name: &str) -> bool {
    let linked = name.strip_prefix("worktrees/").and_then(|rest| rest.strip_suffix("/HEAD"));
    name == "main-worktree/HEAD" || linked.is_some_and(|id| !id.is_empty() && !id.contains('/'))
}

/// Where a branch, or a `HEAD` that was on none, is now; in words.
#[must_use]
pub fn whereabouts(name: &str, tip: Option<Oid>) -> String {
    match tip {
        Some(tip) => format!("{name} is at {tip}"),
        None if is_head(name) => format!("{name} is gone or on a branch"),
        None => format!("{name} is gone"),
    }
}

/// A name and an address, cleaned as git cleans them: neither is empty, neither can break a commit header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    name: String,
    email: String,
}

impl Person {
    /// Cleans both; none if nothing is left of one of them.
    #[must_use]
    pub fn new(name: &str, email: &str) -> Option<Self> {
        let (name, email) = (clean(name), clean(email));
        (!name.is_empty() && !email.is_empty()).then_some(Self { name, email })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address.
    #[must_use]
    pub fn email(&self) -> &str {
        &self.email
    }
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} <{}>", self.name, self.email)
    }
}

/// git drops `<`, `>` and line ends anywhere, and punctuation and control characters at both ends.
fn clean(text: &str) -> String {
    let crud = |c: char| c <= ' ' || ".,:;<>\"\\'".contains(c);
    text.trim_matches(crud).chars().filter(|c| !matches!(c, '<' | '>' | '\n' | '\0')).collect()
}

/// Author and committer of what is made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Whose change it is.
    pub author: Person,
    /// Who commits it.
    pub committer: Person,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worktree_calls_its_head_is_no_branch() {
        for head in ["main-worktree/HEAD", "worktrees/a b/HEAD"] {
            assert!(is_head(head), "{head}");
        }
        for other in
            ["HEAD", "refs/heads/HEAD", "worktrees//HEAD", "worktrees/a/b/HEAD", "worktrees/HEAD"]
        {
            assert!(!is_head(other), "{other}");
        }
    }

    #[test]
    fn people_cannot_break_a_commit_header() {
        let odd = Person::new(" \"Tess, <T>\nTester.\" ", "<tess@example.invalid>\n").unwrap();
        assert_eq!(odd.to_string(), "Tess, TTester <tess@example.invalid>");
        assert_eq!(Person::new(" .,", "tess@example.invalid"), None);
        assert_eq!(Person::new("Tess", "<>"), None);
    }
}

//! Protected paths: what must be on disk exactly as on the trusted ref, so that nobody makes a gate green by changing
//! the gate. How disk and tree are held against each other is in [`super::on_disk`].

use super::on_disk::{self, Question};
use crate::store::candidate::{CandidateError, FixCtx};
use crate::{
    domain::{oid::Oid, path::RepoPath},
    limits,
};
use gix::{bstr::ByteSlice, glob::pattern::Case, ignore::Search};
use std::collections::BTreeSet;

/// Patterns in gitignore syntax, understood.
#[derive(Debug)]
pub struct Protected {
    patterns: Search,
}

impl Protected {
    /// Understands patterns.
    ///
    /// # Errors
    /// One of them says nothing, or there are too many; in words.
    pub fn parse(patterns: &[String]) -> Result<Self, String> {
        let most = limits::PROTECT_PATTERNS;
        if patterns.len() > most {
            return Err(format!("{} patterns, at most {most} are accepted", patterns.len()));
        }
        for pattern in patterns {
            let said = gix::ignore::parse(pattern.as_bytes(), false).count();
            if said != 1 || pattern.contains('\n') {
                return Err(format!("'{}' is no pattern", pattern.escape_debug()));
            }
        }
        let parsing = gix::ignore::search::Ignore { support_precious: false };
        Ok(Self { patterns: Search::from_overrides(patterns, parsing) })
    }

    /// True when a file of this path is covered, by itself or by a directory above it.
    fn covers(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|(_, b)| **b == b'/').map(|(at, _)| at);
        slashes.into_iter().any(|at| self.matches(&path[..at], true)) || self.matches(path, false)
    }

    fn matches(&self, path: &[u8], is_dir: bool) -> bool {
        let found = self.patterns.pattern_matching_relative_path(
            path.as_bstr(),
            Some(is_dir),
            Case::Sensitive,
        );
        found.is_some_and(|m| !m.pattern.is_negative())
    }
}

/// The protected paths that differ from the trusted tree, in order.
///
/// # Errors
/// It cannot be told.
pub fn changed(
    ctx: FixCtx<'_>,
    trusted_tree: Oid,
    protected: &Protected,
) -> Result<BTreeSet<RepoPath>, CandidateError> {
    let trusted = on_disk::files_of(ctx.load, trusted_tree)?;
    let covers = |path: &[u8]| protected.covers(path);
    on_disk::differing(ctx, (trusted_tree, &trusted), &Question { covers: &covers, apart: None })
}

#[cfg(test)]
mod tests;

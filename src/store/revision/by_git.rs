//! Revision expressions, as people type them.
//!
//! Contract: read by the library in process where it knows the refs, else by git, with the same outcome. What
//! it reads there only chooses which commits are looked at; nothing is trusted because of its name.

use crate::domain::oid::Oid;
use crate::store::{
    StoreError,
    git::Git,
    refs::{RefFormat, RefReader},
};

/// What an expression means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revisions {
    /// One object.
    One(Oid),
    /// Everything reachable from some objects and not from others.
    Set {
        /// From these.
        tips: Vec<Oid>,
        /// Not from those.
        hidden: Vec<Oid>,
    },
}

/// Reads an expression where the library cannot, by the user's git; none where it can.
///
/// # Errors
/// In words: it means nothing here, or git fails.
pub fn by_git(
    repo: &gix::Repository,
    git: impl FnOnce() -> Result<Git, StoreError>,
    text: &str,
) -> Result<Option<Revisions>, String> {
    match RefReader::of(repo).map_err(|e| e.to_string())?.format() {
        RefFormat::Files => return Ok(None),
        RefFormat::Reftable => {}
    }
    if text.starts_with('-') {
        return Err("it looks like an option".to_owned());
    }
    let git = git().map_err(|e| e.to_string())?;
    let said = git.call(&["rev-parse", "--revs-only", text, "--"], b"", &[]);
    understood(text, &said.map_err(|e| e.to_string())?).map(Some)
}

fn understood(text: &str, said: &[u8]) -> Result<Revisions, String> {
    let said = std::str::from_utf8(said).map_err(|e| e.to_string())?;
    let (mut tips, mut hidden) = (Vec::new(), Vec::new());
    for line in said.lines() {
        match line.strip_prefix('^') {
            Some(id) => hidden.push(id.parse().map_err(|_| unreadable(line))?),
            None => tips.push(line.parse().map_err(|_| unreadable(line))?),
        }
    }
    match (tips.as_slice(), hidden.is_empty()) {
        ([], true) => Err("it names nothing".to_owned()),
        ([], false) => Err("it only leaves commits out".to_owned()),
        // `X^@` has one line where X has one parent.
        ([one], true) if !text.ends_with("^@") => Ok(Revisions::One(*one)),
        _ => Ok(Revisions::Set { tips, hidden }),
    }
}

fn unreadable(line: &str) -> String {
    format!("git answered '{line}'")
}

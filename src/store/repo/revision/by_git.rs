//! Revision expressions, as people type them.
//!
//! Contract: read by the library in process where it knows the refs, else by git, with the same outcome. What
//! it reads there only chooses which commits are looked at; nothing is trusted because of its name. What needs
//! no guess, `HEAD` and a whole id, needs no git either.

use super::{digits_of, names_in};
use crate::domain::oid::{HashKind, Oid};
use crate::store::{
    StoreError,
    git::Git,
    object::hash_of,
    refs::{RefFormat, RefReader, head_name, is_name},
};

/// What may stand before a name that is typed, as git looks for it, and behind it.
const PLACES: [(&str, &str); 5] = [
    ("refs/", ""),
    ("refs/tags/", ""),
    ("refs/heads/", ""),
    ("refs/remotes/", ""),
    ("refs/remotes/", "/HEAD"),
];

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
    let refs = RefReader::of(repo).map_err(|e| e.to_string())?;
    match refs.format() {
        RefFormat::Files => return Ok(None),
        RefFormat::Reftable => {}
    }
    if let Some(one) = without_git(repo, &refs, text).map_err(|e| e.to_string())? {
        return Ok(Some(Revisions::One(one)));
    }
    for name in names_in(text) {
        require_no_more_digits(hash_of(repo), &refs, name)?;
    }
    if text.starts_with('-') {
        return Err("it looks like an option".to_owned());
    }
    let git = git().map_err(|e| e.to_string())?;
    let said = git.call(&["rev-parse", "--revs-only", text, "--"], b"", &[]);
    understood(text, &said.map_err(|e| e.to_string())?).map(Some)
}

/// A whole id, or what `HEAD` holds; none for everything else, a branch without a commit too.
fn without_git(
    repo: &gix::Repository,
    refs: &RefReader,
    text: &str,
) -> Result<Option<Oid>, StoreError> {
    if matches!(text, "HEAD" | "@") {
        return refs.read(&head_name(repo)?);
    }
    Ok(text.parse::<Oid>().ok().filter(|id| id.hash() == hash_of(repo)))
}

/// git takes what an id has no room for as if it were not there.
fn require_no_more_digits(hash: HashKind, refs: &RefReader, name: &str) -> Result<(), String> {
    let expected = hash.id_digits();
    let Some(digits) = digits_of(name).filter(|d| d.len() > expected) else { return Ok(()) };
    for full in PLACES.map(|(before, after)| format!("{before}{name}{after}")) {
        if is_name(&full) && refs.stored(&full).map_err(|e| e.to_string())?.is_some() {
            return Ok(());
        }
    }
    let actual = digits.len();
    Err(super::RevisionError::TooLong { expected, actual }.to_string())
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

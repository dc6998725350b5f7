//! What a typed revision names.
//!
//! Contract: an id in it may be abbreviated, and means an object only with digits that the object's id begins
//! with; more digits than an id has never do. The library takes up to 40 digits for the start of a SHA-1 id
//! whatever the repository's hash is, finds no loose object by them in a SHA-256 repository, and gives up the
//! process over more digits than an id has. So ids are made whole here before it reads the rest.

mod by_git;

pub use by_git::{Revisions, by_git};

use crate::domain::oid::HashKind;
use crate::limits;
use crate::store::object::hash_of;
use crate::sys::files::{self, Unfit};
use gix::{Repository, revision::Spec};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// The revision cannot be resolved.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// Nothing, or more than one object, begins with these digits.
    #[error("{found} commits here have an id that begins with {digits}")]
    Digits {
        /// What was typed.
        digits: String,
        /// How many there are.
        found: usize,
    },
    /// There are more digits than an id has.
    #[error("an id here has {expected} digits, not {actual}")]
    TooLong {
        /// Digits of an id.
        expected: usize,
        /// Digits typed.
        actual: usize,
    },
    /// What a name leads to is no file, and the library would wait for it.
    #[error("{path}: {unfit}")]
    Unfit {
        /// The file of the ref.
        path: PathBuf,
        /// What it is.
        unfit: Unfit,
    },
    /// The library's words.
    #[error("{0}")]
    Library(String),
}

fn failed(error: &dyn std::fmt::Display) -> RevisionError {
    RevisionError::Library(error.to_string())
}

/// Resolves a revision expression as `git rev-parse` does, for those who look for commits.
///
/// # Errors
/// See [`RevisionError`].
pub fn parse<'r>(repo: &'r Repository, text: &str) -> Result<Spec<'r>, RevisionError> {
    require_files(repo, text)?;
    let whole = with_whole_ids(repo, text)?;
    repo.rev_parse(whole.as_str()).map_err(|e| failed(&e))
}

/// Refuses names of refs whose files are fifos, devices or the like.
fn require_files(repo: &Repository, text: &str) -> Result<(), RevisionError> {
    const PLACES: [&str; 5] = ["", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"];
    for part in text.split("..") {
        let part = part.trim_start_matches(['^', '.']);
        let name = part.split(['^', '~', ':', '@', '{']).next().unwrap_or_default();
        let mut names: Vec<String> = match name {
            "" | "HEAD" => vec!["HEAD".to_owned()],
            name => PLACES.iter().map(|place| format!("{place}{name}")).collect(),
        };
        let mut seen = HashSet::new();
        while let Some(name) = names.pop() {
            for dir in [repo.git_dir(), repo.common_dir()] {
                let path = dir.join(&name);
                // What cannot be looked at is the library's to tell.
                let Ok(Some(found)) = files::look_through(&path) else { continue };
                if let Some(unfit) = Unfit::as_file(&found).filter(|_| !found.is_dir()) {
                    return Err(RevisionError::Unfit { path, unfit });
                }
                // The library would open what it leads to.
                names.extend(led_to(&path).filter(|target| seen.insert(target.clone())));
            }
        }
    }
    Ok(())
}

/// The name in a file of a symbolic ref.
fn led_to(path: &Path) -> Option<String> {
    let held = files::read(path, limits::SMALL_FILE_BYTES).ok()?;
    let name = std::str::from_utf8(&held).ok()?.strip_prefix("ref:")?;
    Some(name.trim().to_owned())
}

/// The expression with every id and every name that could be taken for one written out.
fn with_whole_ids(repo: &Repository, text: &str) -> Result<String, RevisionError> {
    let mut whole = String::new();
    let mut rest = text;
    loop {
        let (lead, after) = rest.split_at(rest.len() - rest.trim_start_matches(['^', '.']).len());
        let (name, after) = after.split_at(name_end(after));
        whole.push_str(lead);
        whole.push_str(&whole_name(repo, name)?);
        // Behind a colon is a path, which may hold anything.
        let next = after.find("..").filter(|_| !after.starts_with(':'));
        let (operators, next) = after.split_at(next.unwrap_or(after.len()));
        whole.push_str(operators);
        if next.is_empty() {
            return Ok(whole);
        }
        rest = next;
    }
}

/// The names in it, each without what navigates from it.
fn names_in(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = Some(text);
    while let Some(text) = rest {
        let text = text.trim_start_matches(['^', '.']);
        let (name, after) = text.split_at(name_end(text));
        names.push(name);
        let next = after.find("..").filter(|_| !after.starts_with(':'));
        rest = next.map(|at| &after[at..]);
    }
    names
}

/// Where a name ends: before what navigates from it, or before the other side of a range.
fn name_end(text: &str) -> usize {
    let ends = ["^", "~", ":", "@{", ".."];
    ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len())
}

fn whole_name(repo: &Repository, name: &str) -> Result<String, RevisionError> {
    let hash = hash_of(repo);
    let Some(digits) = digits_of(name).filter(|d| may_be_misread(hash, d)) else {
        return Ok(name.to_owned());
    };
    if let Some(found) = repo.try_find_reference(name).map_err(|e| failed(&e))? {
        return Ok(found.name().as_bstr().to_string());
    }
    let (expected, actual) = (hash.id_digits(), digits.len());
    if actual > expected {
        return Err(RevisionError::TooLong { expected, actual });
    }
    commit_of(repo, digits)
}

/// The digits of an abbreviated id, or those at the end of what `git describe` prints.
fn digits_of(name: &str) -> Option<&str> {
    let digits = name.rsplit_once("-g").map_or(name, |(_, digits)| digits);
    let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
    (hex && digits.len() >= gix::hash::Prefix::MIN_HEX_LEN).then_some(digits)
}

fn may_be_misread(hash: HashKind, digits: &str) -> bool {
    match hash {
        HashKind::Sha1 => digits.len() > hash.id_digits(),
        HashKind::Sha256 => digits.len() != hash.id_digits(),
    }
}

/// The whole id of the one object that begins like this, of several of the one that leads to a commit.
fn commit_of(repo: &Repository, digits: &str) -> Result<String, RevisionError> {
    let padded = format!("{digits:0<width$}", width = hash_of(repo).id_digits());
    let id = gix::ObjectId::from_hex(padded.as_bytes()).map_err(|e| failed(&e))?;
    let prefix = gix::hash::Prefix::new(&id, digits.len()).map_err(|e| failed(&e))?;
    let mut found = HashSet::default();
    repo.objects.lookup_prefix(prefix, Some(&mut found)).map_err(|e| failed(&e))?;
    let is_commit = |id: &gix::ObjectId| {
        repo.find_object(*id).is_ok_and(|object| object.peel_to_commit().is_ok())
    };
    if found.len() > 1 {
        found.retain(is_commit);
    }
    let mut ids = found.iter();
    match (ids.next(), ids.next()) {
        (Some(one), None) => Ok(one.to_string()),
        (None, _) | (Some(_), Some(_)) => {
            Err(RevisionError::Digits { digits: digits.to_owned(), found: found.len() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::oid::Oid,
        store::{Store, discover, testlab::TestRepo},
    };

    fn opened(repo: &TestRepo) -> Store {
        let env = repo.env();
        Store::open(discover(&env).unwrap(), &env).unwrap()
    }

    /// As those who look for commits ask, whatever keeps the refs.
    fn meant(store: &Store, text: &str) -> Result<Revisions, String> {
        let repo = store.repo().unwrap();
        if let Some(meant) = by_git(&repo, || store.git(), text)? {
            return Ok(meant);
        }
        let id = |id: gix::ObjectId| Oid::from_bytes(id.as_slice()).unwrap();
        let spec = parse(&repo, text).map_err(|e| e.to_string())?;
        if let Some(one) = spec.single() {
            return Ok(Revisions::One(id(one.detach())));
        }
        let gix::revision::plumbing::Spec::Range { from, to } = spec.detach() else {
            return Err("neither one nor a range".to_owned());
        };
        Ok(Revisions::Set { tips: vec![id(to)], hidden: vec![id(from)] })
    }

    /// As git says it; none where git knows no such revision.
    fn resolved(store: &Store, text: &str) -> Option<String> {
        match meant(store, text).ok()? {
            Revisions::One(id) => Some(id.to_string()),
            Revisions::Set { .. } => None,
        }
    }

    #[test]
    fn an_id_is_found_by_its_first_digits_in_loose_objects_and_packs_of_both_hashes() {
        for hash in HashKind::ALL {
            let repo = TestRepo::of(hash);
            let (first, second) = (repo.git(&["rev-parse", "HEAD"]), repo.commit("second"));
            for round in ["loose", "packed"] {
                let store = opened(&repo);
                for digits in [7, 12, 39, 40, 41, 63, hash.id_digits()] {
                    let digits = digits.min(hash.id_digits());
                    let (a, b) = (&first[..digits], &second[..digits]);
                    let found = |text: &str| resolved(&store, text);
                    assert_eq!(found(b), Some(second.clone()), "{round}: {b}");
                    assert_eq!(found(&format!("{b}~1^0")), Some(first.clone()), "{round}: {b}~1");
                    assert_eq!(found(&format!("v1-3-g{a}")), Some(first.clone()), "{round}: {a}");
                    let (tips, hidden) = (second.parse().unwrap(), first.parse().unwrap());
                    let range = Revisions::Set { tips: vec![tips], hidden: vec![hidden] };
                    assert_eq!(meant(&store, &format!("{a}..{b}")), Ok(range));
                }
                repo.git(&["gc", "-q", "--prune=now"]);
            }
        }
    }

    #[test]
    fn digits_that_no_id_begins_with_name_nothing() {
        for hash in HashKind::ALL {
            let repo = TestRepo::of(hash);
            let head = repo.git(&["rev-parse", "HEAD"]);
            for round in ["loose", "packed"] {
                let store = opened(&repo);
                let short = &head[..40];
                let other = if head[40..].starts_with('f') { 'e' } else { 'f' };
                for text in [
                    "deadbeef".to_owned(),
                    "0".repeat(hash.id_digits()),
                    format!("{short}{other}"),
                    format!("{short}{}", "f".repeat(24)),
                    format!("{head}0"),
                    format!("{head}{head}"),
                    format!("HEAD..{short}{}", "f".repeat(24)),
                    format!("^{short}{}", "f".repeat(24)),
                    format!("v1-3-g{short}{}", "f".repeat(24)),
                ] {
                    // git takes any whole id for one, here or not.
                    let here = |id: &String| store.object(&id.parse().unwrap()).is_ok();
                    let found = resolved(&store, &text).filter(here);
                    assert_eq!(found, None, "{round}: {text}");
                }
                repo.git(&["gc", "-q", "--prune=now"]);
            }
        }
    }

    #[test]
    fn a_branch_that_looks_like_an_id_is_meant_and_paths_and_patterns_stay() {
        for hash in HashKind::ALL {
            let repo = TestRepo::of(hash);
            let (first, second) = (repo.git(&["rev-parse", "HEAD"]), repo.commit("second"));
            for name in ["abcdef", &"ab".repeat(28), &format!("x-g{}", "ab".repeat(28))] {
                repo.git(&["branch", name, &first]);
                assert_eq!(resolved(&opened(&repo), name), Some(first.clone()), "{name}");
            }
            let store = opened(&repo);
            let long = "ab".repeat(28);
            for text in ["HEAD^{/second}", "@", "HEAD@{0}", "main", "HEAD^{commit}"] {
                assert_eq!(resolved(&store, text), Some(second.clone()), "{text}");
            }
            for text in [format!("HEAD:{long}"), format!(":/{long}"), format!("HEAD^{{/{long}..}}")]
            {
                let why = meant(&store, &text).unwrap_err();
                assert!(!why.contains("an id here has"), "{text}: {why}");
            }
        }
    }
}

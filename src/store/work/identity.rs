//! Who authors and commits: git's configuration and nothing else.
//!
//! Contract: never guessed from the host or the login name, and never taken from `GIT_AUTHOR_*` or
//! `GIT_COMMITTER_*`: a hook's environment carries those of somebody else's commit.

use crate::{
    code::Code,
    domain::candidate::{Identity, Person},
};
use gix::bstr::ByteSlice;

/// The configuration names nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("git configuration has no usable {role}: set {missing}")]
pub struct IdentityMissing {
    /// `author` or `committer`.
    pub role: &'static str,
    /// The keys that would help.
    pub missing: &'static str,
}

impl IdentityMissing {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::IdentityMissing
    }
}

/// Reads author and committer; `author.*` and `committer.*` win over `user.*`, as in git.
///
/// # Errors
/// Name or address is not set, empty, or not UTF-8.
pub fn identity(repo: &gix::Repository) -> Result<Identity, IdentityMissing> {
    Ok(Identity { author: person(repo, "author")?, committer: person(repo, "committer")? })
}

fn person(repo: &gix::Repository, role: &'static str) -> Result<Person, IdentityMissing> {
    let config = repo.config_snapshot();
    let one = |section: &str, key: &str| config.string(format!("{section}.{key}").as_str());
    let text = |key: &str| {
        let found = one(role, key).or_else(|| one("user", key))?;
        found.to_str().ok().map(str::to_owned)
    };
    let (name, email) = (text("name"), text("email"));
    let missing = match (&name, &email) {
        (None, None) => "user.name and user.email",
        (None, Some(_)) => "user.name",
        (Some(_), None) => "user.email",
        (Some(name), Some(email)) => match Person::new(name, email) {
            Some(person) => return Ok(person),
            None => "user.name and user.email to more than punctuation",
        },
    };
    Err(IdentityMissing { role, missing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::Repo;

    #[test]
    fn missing_identity_is_refused_and_names_the_key() {
        let repo = Repo::new();
        repo.git(&["config", "user.name", "Ann"]);
        let error = identity(&repo.gix()).unwrap_err();
        assert_eq!(error.to_string(), "git configuration has no usable author: set user.email");
        assert_eq!(error.code(), Code::IdentityMissing);
    }

    #[test]
    fn roles_win_over_user() {
        let repo = Repo::new();
        for (key, value) in [
            ("user.name", "Ann"),
            ("user.email", "ann@example.invalid"),
            ("author.name", "Agent"),
            ("committer.email", "bot@example.invalid"),
        ] {
            repo.git(&["config", key, value]);
        }
        let who = identity(&repo.gix()).unwrap();
        assert_eq!(who.author.to_string(), "Agent <ann@example.invalid>");
        assert_eq!(who.committer.to_string(), "Ann <bot@example.invalid>");
    }
}

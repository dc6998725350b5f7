//! The commit object, as bytes.

use crate::{
    domain::{candidate::Identity, oid::Oid, time::Timestamp},
    store::object::{HashError, Kind, Object},
};

/// Makes the commit `git commit` would make from the same parts, dated in UTC.
///
/// # Errors
/// See [`HashError`].
pub fn commit_object(
    tree: Oid,
    parent: Oid,
    who: &Identity,
    at: Timestamp,
    message: &[u8],
) -> Result<Object, HashError> {
    let seconds = at.seconds();
    let Identity { author, committer } = who;
    let head = format!(
        "tree {tree}\nparent {parent}\nauthor {author} {seconds} +0000\ncommitter {committer} {seconds} +0000\n"
    );
    Object::new(tree.hash(), Kind::Commit, [head.as_bytes(), b"\n", message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{identity::identity, testing::Repo};

    #[test]
    fn the_commit_is_the_one_git_makes() {
        let repo = Repo::new();
        let parent = repo.commit_file("a", b"1");
        let git = repo.commit_file("a", b"2");
        let who = identity(&gix_with_home(&repo)).unwrap();
        let at = Timestamp::from_ms(1_700_000_000_999);
        let ours = commit_object(repo.oid("HEAD^{tree}"), parent, &who, at, b"change\n");
        let ours = ours.unwrap();
        assert_eq!(ours.id, git);
    }

    fn gix_with_home(repo: &Repo) -> gix::Repository {
        repo.git(&["config", "user.name", "Tess Tester"]);
        repo.git(&["config", "user.email", "tess@example.invalid"]);
        repo.gix()
    }
}

//! Changing refs, against plain git.

use crate::{
    domain::oid::Oid,
    store::{Store, StoreError, discover, testlab::TestRepo},
};

const NAME: &str = "refs/agentproto/journal/0123456789ab/0001";

fn open(repo: &TestRepo) -> Store {
    let env = repo.env();
    Store::open(discover(&env).unwrap(), &env).unwrap()
}

fn oid(repo: &TestRepo, revision: &str) -> Oid {
    repo.git(&["rev-parse", revision]).parse().unwrap()
}

#[test]
fn a_ref_is_deleted_from_its_expected_value_only_loose_or_packed() {
    let repo = TestRepo::new();
    let one = oid(&repo, "HEAD");
    let two: Oid = repo.commit("two").parse().unwrap();
    let store = open(&repo);
    for packed in [false, true] {
        repo.git(&["update-ref", NAME, &one.to_string()]);
        if packed {
            repo.git(&["pack-refs", "--all"]);
            repo.git(&["update-ref", NAME, &two.to_string()]);
        }
        let (now, other) = if packed { (two, one) } else { (one, two) };
        let refused = store.delete_reference(NAME, other).unwrap_err();
        let moved =
            StoreError::RefMoved { name: NAME.into(), expected: Some(other), actual: Some(now) };
        assert_eq!(refused.to_string(), moved.to_string());
        store.delete_reference(NAME, now).unwrap();
        assert_eq!(store.reference(NAME).unwrap(), None);
        assert_eq!(repo.git(&["for-each-ref", "refs/agentproto"]), "");
        let gone = store.delete_reference(NAME, now).unwrap_err();
        assert_eq!(gone.to_string(), format!("ref {NAME} is at nothing, expected {now}"));
    }
}

#[test]
fn a_git_that_was_ended_while_idle_is_replaced() {
    let repo = TestRepo::new();
    let (one, store) = (oid(&repo, "HEAD"), open(&repo));
    for _ in 0..2 {
        repo.git(&["update-ref", NAME, &one.to_string()]);
        store.delete_reference(NAME, one).unwrap();
        store.refs.git.end_it();
    }
    assert_eq!(store.reference(NAME).unwrap(), None);
}

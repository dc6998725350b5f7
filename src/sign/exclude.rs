//! Whose answer does not count, though an allowed signer gave it: independence is decided by key.
//!
//! Contract: a name stands for every key that the allowed-signers file lists under it, so that no second name of a
//! person makes a second person. What was signed with a key is not approved with it.

use super::{
    key::fingerprint,
    signers::Signers,
    ssh::{FOOT, HEAD},
};
use crate::domain::ack::AckStatement;
use ssh_key::{PublicKey, SshSig};
use std::collections::BTreeMap;

/// The word for the author of the candidate.
pub const AUTHOR: &str = "author";
/// The word for the key that signs on the machine that owns the policy.
pub const SUPERVISOR: &str = "supervisor";

/// How every sentence of [`Excluded::why`] ends.
pub const EXCLUDED: &str = "is excluded from answering";

/// The excluded names and keys of one candidate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excluded {
    names: Vec<String>,
    keys: Vec<String>,
}

impl Excluded {
    /// Works out what the words of a rule mean for a candidate, given the bytes of its commit object. Which key
    /// [`SUPERVISOR`] stands for is for the caller to say, who puts that key in its place.
    #[must_use]
    pub fn new(words: &[String], commit: &[u8]) -> Self {
        let mut found = Self::default();
        for word in words {
            match word.as_str() {
                AUTHOR => {
                    found.names.extend(author(commit));
                    found.keys.extend(signed_with(commit));
                }
                key if key.starts_with("SHA256:") => found.keys.push(key.to_owned()),
                name => found.names.push(name.to_owned()),
            }
        }
        found
    }

    /// Why the answer does not count; none when it does.
    #[must_use]
    pub fn why(&self, said: &AckStatement, signers: &Signers) -> Option<String> {
        if self.keys.contains(&said.key) {
            return Some(format!("{} {EXCLUDED}", said.key));
        }
        let own = |name: &&String| {
            name.eq_ignore_ascii_case(&said.signer)
                || signers.keys_of(name).any(|key| fingerprint(key) == said.key)
        };
        let name = self.names.iter().find(own)?;
        Some(format!("{} is a key of {name}, who {EXCLUDED}", said.key))
    }

    /// The keys of the file that could give an answer that counts, each once, by fingerprint.
    #[must_use]
    pub fn left_in<'s>(
        &self,
        signers: &'s Signers,
        namespace: &'s str,
    ) -> BTreeMap<String, &'s PublicKey> {
        let out: Vec<String> =
            self.names.iter().flat_map(|name| signers.keys_of(name)).map(fingerprint).collect();
        let all = signers.keys_for(namespace).map(|key| (fingerprint(key), key));
        all.filter(|(name, _)| !self.keys.contains(name) && !out.contains(name)).collect()
    }
}

/// The address of the author.
fn author(commit: &[u8]) -> Option<String> {
    let line = headers(commit).find_map(|line| line.strip_prefix(b"author "))?;
    let line = String::from_utf8_lossy(line);
    let (_, rest) = line.rsplit_once('<')?;
    rest.split_once('>').map(|(email, _)| email.to_owned())
}

/// The key of an ssh signature in the commit itself.
fn signed_with(commit: &[u8]) -> Option<String> {
    let text = headers(commit).collect::<Vec<_>>().join(&b'\n');
    let text = String::from_utf8_lossy(&text);
    let (_, rest) = text.split_once(HEAD)?;
    let (body, _) = rest.split_once(FOOT)?;
    // A header of several lines goes on after a space.
    let body = body.replace("\n ", "\n");
    let sig = SshSig::from_pem(format!("{HEAD}{body}{FOOT}\n")).ok()?;
    Some(fingerprint(&PublicKey::from(sig.public_key().clone())))
}

fn headers(commit: &[u8]) -> impl Iterator<Item = &[u8]> {
    commit.split(|b| *b == b'\n').take_while(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ack::Decision,
        sign::{NAMESPACE, key},
    };

    const COMMIT: &str = "tree 0\nauthor Ada <ada@x> 1 +0000\ncommitter C <c@x> 1 +0000\n\n\
                          author Eve <eve@x> in the message\n";

    fn words(all: &[&str]) -> Vec<String> {
        all.iter().map(|w| (*w).to_owned()).collect()
    }

    fn said(signer: &str, key: &str) -> AckStatement {
        let oid = "1".repeat(40).parse().unwrap();
        let at = crate::domain::time::Timestamp::from_ms(0);
        AckStatement {
            decision: Decision::Approve,
            repo: String::new(),
            policy: "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap(),
            request: oid,
            candidate: oid,
            parent: oid,
            tree: oid,
            branch: String::new(),
            gates: String::new(),
            signer: signer.into(),
            key: key.into(),
            issued: at,
            expires: at,
            reason: String::new(),
        }
    }

    #[test]
    fn a_second_name_makes_no_second_person() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let made = key::make(&dir.path().join(name), name).unwrap();
            (key::public_words(made.public()).unwrap(), made.fingerprint())
        };
        let ((ada, ada_key), (bob, bob_key)) = (make("ada"), make("bob"));
        let file =
            format!("ada@x {ada}\nalias@y {ada}\nbob@x {bob}\nbob@x namespaces=\"git\" {ada}\n");
        let signers = Signers::parse(file.as_bytes()).unwrap();
        let rows: [(&[&str], &str, &str, bool); 10] = [
            (&[], "ada@x", &ada_key, false),
            (&[AUTHOR], "ada@x", &ada_key, true),
            (&[AUTHOR], "alias@y", &ada_key, true),
            (&[AUTHOR], "ADA@X", "SHA256:unlisted", true),
            (&[AUTHOR], "bob@x", &bob_key, false),
            (&["alias@y"], "ada@x", &ada_key, true),
            (&[&bob_key], "bob@x", &bob_key, true),
            (&[&bob_key], "ada@x", &ada_key, false),
            (&["Bob@X"], "bob@x", &bob_key, true),
            (&["c@x"], "ada@x", &ada_key, false),
        ];
        for (rule, signer, key, excluded) in rows {
            let found = Excluded::new(&words(rule), COMMIT.as_bytes());
            let why = found.why(&said(signer, key), &signers);
            assert_eq!(why.is_some(), excluded, "{rule:?} {signer}: {why:?}");
        }
        let left = |rule: &[&str]| {
            Excluded::new(&words(rule), COMMIT.as_bytes()).left_in(&signers, NAMESPACE).len()
        };
        assert_eq!((left(&[]), left(&[AUTHOR]), left(&[AUTHOR, &bob_key])), (2, 1, 0));
    }

    #[test]
    fn the_key_that_signed_the_commit_is_the_authors() {
        let dir = tempfile::tempdir().unwrap();
        let made = key::make(&dir.path().join("k"), "k").unwrap();
        let sig = made
            .private()
            .unwrap()
            .sign("git", ssh_key::HashAlg::Sha512, b"x")
            .unwrap()
            .to_pem(ssh_key::LineEnding::LF)
            .unwrap();
        let header = sig.trim_end().replace('\n', "\n ");
        let commit = COMMIT.replacen("\n\n", &format!("\ngpgsig {header}\n\n"), 1);
        let signers = Signers::parse(
            format!("z@z {}\n", key::public_words(made.public()).unwrap()).as_bytes(),
        );
        let found = Excluded::new(&words(&[AUTHOR]), commit.as_bytes());
        let why = found.why(&said("z@z", &made.fingerprint()), &signers.unwrap());
        assert_eq!(why, Some(format!("{} is excluded from answering", made.fingerprint())));
    }
}

//! Signed commits: what signs is a person's own choice, what needs a person waits, and what lands is what was gated.

use crate::{
    env::{Output, TestEnv},
    house::text,
};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

/// A machine on which commits are signed by the ssh key `name`.
fn signing_with(name: &str) -> TestEnv {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.global("commit.gpgSign", "true");
    env.global("gpg.format", "ssh");
    env.global("user.signingKey", env.path(name).to_str().unwrap());
    env
}

/// The same with a key that nobody is there to type the passphrase of.
fn locked() -> TestEnv {
    let env = signing_with("locked");
    env.key("locked", &["-t", "ed25519", "-N", "secret"]);
    env
}

fn changed(env: &TestEnv, flags: &[&str]) -> Output {
    env.write("a.txt", "two\n");
    let args = ["commit", "--json", "--path=a.txt", "-m", "two"];
    env.ap(&[&args[..], flags, &["--", "true"]].concat())
}

/// The ssh key that signed a commit, as `ssh-keygen` alone sees it.
fn signed_by(env: &TestEnv, commit: &str) -> Option<String> {
    let raw = env.git(&["cat-file", "commit", commit]);
    let mut signature = String::new();
    let mut rest = String::new();
    let (head, message) = raw.split_once("\n\n").unwrap();
    let mut inside = false;
    for line in head.lines() {
        let begins = line.starts_with("gpgsig ") || line.starts_with("gpgsig-sha256 ");
        inside = begins || (inside && line.starts_with(' '));
        if inside {
            signature += line.split_once(' ').unwrap().1;
            signature.push('\n');
        } else {
            rest += line;
            rest.push('\n');
        }
    }
    if signature.is_empty() {
        return None;
    }
    let file = env.path("signature");
    fs::write(&file, signature).unwrap();
    let args = ["-Y", "check-novalidate", "-n", "git", "-s", file.to_str().unwrap()];
    let checked = env.run("ssh-keygen", &args).stdin(format!("{rest}\n{message}\n"));
    let said = checked.done().exits(0).out();
    said.split_whitespace().find(|word| word.starts_with("SHA256:")).map(str::to_owned)
}

fn fingerprint(env: &TestEnv, key: &str) -> Option<String> {
    let file = env.path(&format!("{key}.pub"));
    let said = env.run("ssh-keygen", &["-lf", file.to_str().unwrap()]).done().exits(0).out();
    said.split_whitespace().nth(1).map(str::to_owned)
}

#[test]
fn the_candidate_is_signed_before_anybody_is_asked_and_lands_as_it_is() {
    let env = signing_with("eve");
    let out = changed(&env, &[]).exits(5);
    let policy = out.json();
    assert_eq!(policy["status"], "awaiting-ack", "{out}");
    let candidate = text(&policy, "candidate");
    assert_eq!(signed_by(&env, &candidate), fingerprint(&env, "eve"));
    env.ap(&["ack", "--yes", &text(&policy, "policyId")]).exits(0);
    assert_eq!(env.git(&["rev-parse", "main"]), candidate);
    env.ap(&["verify", "main~1..main"]).exits(0);
    env.ap(&["fsck"]).exits(0);
    env.git(&["fsck", "--strict"]);
}

#[test]
fn what_needs_a_person_waits_and_goes_on_once_it_can_be_signed() {
    let env = locked();
    let out = changed(&env, &[]).exits(5);
    let policy = out.json();
    let id = text(&policy, "policyId");
    assert_eq!(policy["status"], "signing", "{out}");
    assert_eq!(policy["reason"], "signing-needs-person", "{out}");
    assert_eq!(policy["nextStep"], format!("git agentproto ack {id}"), "{out}");
    assert_eq!(policy["candidate"], serde_json::Value::Null, "{out}");
    assert!(out.err().contains("was not signed: "), "{out}");
    let recorded = env.git(&["log", "--format=%B", &env.journal()]);
    assert!(!recorded.contains(env.path("").to_str().unwrap()), "{recorded}");

    let seen = env.ap(&["status"]).exits(0);
    assert!(seen.out().contains(&format!("git agentproto ack {id}")), "{seen}");
    env.ap(&["wait", &id, "--timeout", "5s"]).exits(5);
    let refused = env.ap(&["ack", "--yes", &id, "--json"]).exits(5);
    assert!(refused.err().contains("signing-needs-person"), "{refused}");
    let refused = env.ap(&["ack", "--reject", "--yes", &id]).exits(6);
    assert!(refused.err().contains("not-awaiting"), "{refused}");

    // What waits is kept alive by the journal alone.
    env.git(&["gc", "-q", "--prune=now"]);
    env.global("user.signingKey", env.path("eve").to_str().unwrap());
    env.ap(&["wait", &id, "--timeout", "5s"]).exits(5);
    let shown = env.ap(&["policy", "show", &id, "--json"]).exits(0).json();
    assert_eq!(shown["status"], "awaiting-ack", "{shown}");
    assert_eq!(shown["reason"], serde_json::Value::Null, "{shown}");
    env.git(&["gc", "-q", "--prune=now"]);
    env.ap(&["ack", "--yes", &id]).exits(0);
    assert_eq!(signed_by(&env, "main"), fingerprint(&env, "eve"));
    env.ap(&["verify", "main~1..main"]).exits(0);
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn without_an_ack_it_lands_as_soon_as_it_is_signed() {
    let env = locked();
    let out = changed(&env, &["--no-ack"]).exits(5);
    let id = text(&out.json(), "policyId");
    env.global("user.signingKey", env.path("eve").to_str().unwrap());
    env.ap(&["ack", "--yes", &id]).exits(0);
    assert_eq!(signed_by(&env, "main"), fingerprint(&env, "eve"));
}

#[test]
fn what_waits_can_be_cancelled_and_is_gated_again_when_its_branch_moved() {
    let env = locked();
    let id = text(&changed(&env, &[]).exits(5).json(), "policyId");
    let moved = ["-c", "commit.gpgSign=false", "commit", "-q", "--allow-empty", "-m", "moved"];
    env.git(&moved);
    env.ap(&["wait", &id, "--timeout", "5s"]).exits(5);
    let shown = env.ap(&["policy", "show", &id, "--json"]).exits(0).json();
    assert_eq!((shown["status"].as_str(), shown["attempt"].as_u64()), (Some("signing"), Some(2)));
    env.ap(&["policy", "cancel", &id]).exits(0);
    let shown = env.ap(&["policy", "show", &id, "--json"]).exits(0).json();
    assert_eq!(shown["status"], "cancelled", "{shown}");
}

/// Every way in which a repository could choose what is run, or by whom it is signed.
const PLANTED: &[(&str, &str)] = &[
    ("gpg.program", "CANARY"),
    ("gpg.openpgp.program", "CANARY"),
    ("gpg.x509.program", "CANARY"),
    ("gpg.ssh.program", "CANARY"),
    ("gpg.ssh.defaultKeyCommand", "CANARY"),
    ("gpg.format", "openpgp"),
    ("gpg.format", "x509"),
    ("user.signingKey", "KEY"),
    ("commit.gpgSign", "false"),
];

#[test]
fn the_repository_chooses_neither_program_nor_key_and_cannot_waive_the_signature() {
    let env = signing_with("ada");
    env.write_script(".git/canary", &format!("#!/bin/sh\necho ran >> {}\nexit 1\n", hit(&env)));
    let canary = env.repo().join(".git/canary").display().to_string();
    let key = env.path("eve").display().to_string();
    for (name, value) in PLANTED {
        let value = value.replace("CANARY", &canary).replace("KEY", &key);
        env.git(&["config", name, &value]);
        env.write("a.txt", &format!("{name} {value}\n"));
        let args = ["commit", "--no-ack", "--path=a.txt", "-m", "m", "--", "true"];
        env.ap(&args).exits(0);
        assert_eq!(signed_by(&env, "main"), fingerprint(&env, "ada"), "{name}={value}");
        assert!(!env.path("hit").exists(), "{name}={value} was run");
    }
    // The same settings lead git itself astray, so they would have been seen.
    env.git(&["config", "commit.gpgSign", "true"]);
    env.git(&["config", "gpg.format", "ssh"]);
    env.run("git", &["commit", "-q", "--allow-empty", "-m", "astray"]).done().exits(128);
    assert!(env.path("hit").exists());
}

fn hit(env: &TestEnv) -> String {
    env.path("hit").display().to_string()
}

#[test]
fn a_repository_may_ask_for_signatures_that_the_person_can_give() {
    let env = signing_with("ada");
    env.global("commit.gpgSign", "false");
    changed(&env, &["--no-ack"]).exits(0);
    assert_eq!(signed_by(&env, "main"), None);
    env.git(&["config", "commit.gpgSign", "true"]);
    env.write("a.txt", "three\n");
    env.ap(&["commit", "--no-ack", "--path=a.txt", "-m", "m", "--", "true"]).exits(0);
    assert_eq!(signed_by(&env, "main"), fingerprint(&env, "ada"));
}

#[test]
fn a_program_of_another_format_signs_as_git_has_it_sign() {
    let env = signing_with("ada");
    let gpg = env.path("my gpg");
    let body = "#!/bin/sh\n/bin/cat > /dev/null\nprintf '%s\\n' '[GNUPG:] SIG_CREATED ' >&2\n\
                printf '%s\\n%s\\n\\n%s\\n' '-----BEGIN PGP SIGNATURE-----' \"$*\" '-----END PGP SIGNATURE-----'\n";
    fs::write(&gpg, body).unwrap();
    fs::set_permissions(&gpg, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    env.global("gpg.format", "openpgp");
    env.global("gpg.program", gpg.to_str().unwrap());
    env.unset_global("user.signingKey");
    changed(&env, &["--no-ack"]).exits(0);
    let raw = env.git(&["cat-file", "commit", "main"]);
    assert!(raw.contains("BEGIN PGP SIGNATURE"), "{raw}");
    // The key that git takes when it is told nothing.
    assert!(raw.contains("-bsau Ada Example <ada@example.invalid>"), "{raw}");
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn what_can_never_sign_is_refused_before_anything_is_done() {
    let env = signing_with("ada");
    for (name, value, why) in [
        ("gpg.format", "minisign", "no format of git"),
        ("user.signingKey", "keys/ada", "not an absolute path"),
        ("user.signingKey", "/nowhere/ada", "there is no file"),
        ("gpg.ssh.program", "bin/keygen", "not an absolute path"),
        ("gpg.ssh.program", "/nowhere/keygen", "there is no program"),
        ("gpg.ssh.program", "no-such-keygen", "in an absolute directory of PATH"),
    ] {
        let before = env.git(&["config", "--global", "--default", "", name]);
        env.global(name, value);
        let out = changed(&env, &["--no-ack"]);
        assert!(matches!(out.code(), 2 | 6), "{name}={value}: {out}");
        assert!(out.err().contains(why), "{name}={value}: {out}");
        assert_eq!(env.git(&["for-each-ref", "refs/agentproto/journal"]), "", "{name}");
        if before.is_empty() {
            env.unset_global(name);
        } else {
            env.global(name, &before);
        }
    }
    env.global("commit.gpgSign", "perhaps");
    assert!(changed(&env, &["--no-ack"]).exits(2).err().contains("bad-setting"));
    env.global("commit.gpgSign", "true");
    env.unset_global("user.signingKey");
    let out = changed(&env, &["--no-ack"]).exits(6);
    assert!(out.err().contains("commit-signing-unusable"), "{out}");
}

#[test]
fn a_wait_with_little_time_signs_within_it() {
    let env = locked();
    let ids: Vec<String> = ["b.txt", "c.txt", "d.txt"]
        .iter()
        .map(|name| {
            env.write(name, "new\n");
            let args = ["commit", "--json", "--path", name, "-m", "m", "--", "true"];
            text(&env.ap(&args).exits(5).json(), "policyId")
        })
        .collect();
    let hangs = env.path("hangs");
    fs::write(&hangs, "#!/bin/sh\nsleep 1000\n").unwrap();
    fs::set_permissions(&hangs, fs::Permissions::from_mode(0o755)).unwrap();
    env.global("gpg.ssh.program", hangs.to_str().unwrap());
    let mut args = vec!["wait", "--all", "--timeout", "2s"];
    args.extend(ids.iter().map(String::as_str));
    let begun = Instant::now();
    let out = env.ap(&args).exits(5);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}: {out}", begun.elapsed());
    // What lasts no longer than that is signed, however little time there is.
    env.unset_global("gpg.ssh.program");
    env.global("user.signingKey", env.path("eve").to_str().unwrap());
    env.ap(&["wait", &ids[0], "--timeout", "0s"]).exits(5);
    assert_eq!(text(&env.policy(&ids[0]), "status"), "awaiting-ack");
}

#[test]
fn what_the_repository_says_of_signing_is_told_to_have_no_effect() {
    let env = signing_with("ada");
    env.git(&["config", "user.signingKey", env.path("eve").to_str().unwrap()]);
    env.git(&["config", "agentproto.ackQuorum", "1"]);
    let notices = |out: &Output| -> Vec<String> {
        let found = out.json()["notices"].as_array().unwrap().clone();
        let ours = found.iter().filter(|n| text(n, "kind") == "setting-ignored");
        ours.map(|n| text(n, "text").split(' ').next().unwrap().to_owned()).collect()
    };
    let out = changed(&env, &["--no-ack"]).exits(0);
    assert_eq!(notices(&out), ["agentproto.ackQuorum", "user.signingKey"], "{out}");
    assert_eq!(signed_by(&env, "main"), fingerprint(&env, "ada"));
    // Where commits are not signed it is git's own business.
    env.global("commit.gpgSign", "false");
    env.git(&["config", "--unset", "agentproto.ackQuorum"]);
    env.write("b.txt", "new\n");
    let args = ["commit", "--json", "--no-ack", "--path=b.txt", "-m", "b", "--", "true"];
    assert_eq!(notices(&env.ap(&args).exits(0)), [] as [String; 0]);
}

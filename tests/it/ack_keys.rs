//! Keys that answer without lying open in a file: behind a passphrase, in an agent, or through a program of a person's.

use crate::env::{PATIENCE, TestEnv, wait_for};
use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf, process::Child};

/// An agent of the test's own, ended with it.
pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    child: Child,
}

impl Agent {
    /// Starts one that holds the key of this name, whose private file goes.
    pub(crate) fn holding(env: &TestEnv, key: &str) -> Self {
        let socket = env.path("agent");
        let args = ["-D", "-a", socket.to_str().unwrap()];
        let child = env.run("ssh-agent", &args).start();
        wait_for("the agent listens", PATIENCE, || socket.exists().then_some(()));
        let file = env.path(key);
        let add = env.run("ssh-add", &["-q", file.to_str().unwrap()]);
        add.env("SSH_AUTH_SOCK", &socket).done().exits(0);
        fs::remove_file(file).unwrap();
        Self { socket, child }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_done(env: &TestEnv, id: &str) {
    let shown = env.ap(&["policy", "show", id, "--json"]).exits(0).json();
    assert_eq!(shown["status"], "done", "{shown}");
    env.ap(&["verify", "main~1..main"]).exits(0);
}

#[test]
fn an_agent_answers_for_a_key_that_is_in_no_file() {
    let env = TestEnv::new();
    let words = env.public_key("ada");
    let agent = Agent::holding(&env, "ada");
    let public = env.path("ada.pub").display().to_string();
    for (name, value) in
        [("file", public), ("words", words.clone()), ("git's form", format!("key::{words}"))]
    {
        env.global("agentproto.signingKey", &value);
        let id = env.awaiting(name);
        // Without the agent nobody signs, and nothing changes.
        let refused = env.ap(&["ack", "--yes", &id]).exits(5);
        assert!(refused.err().contains("signing-needs-person"), "{name}: {refused}");
        let given = env.tool(&["ack", "--yes", &id]).env("SSH_AUTH_SOCK", &agent.socket);
        given.done().exits(0);
        is_done(&env, &id);
        let left = env.repo().join(".git/agentproto/tmp");
        assert_eq!(fs::read_dir(left).unwrap().count(), 0, "{name}");
    }
}

#[test]
fn a_passphrase_that_nobody_types_holds_up_nothing() {
    let env = TestEnv::new();
    let file = env.key("locked", &["-t", "ed25519", "-N", "secret"]);
    env.write_signers("ada@example.invalid namespaces=\"agentproto-ack\"", "locked");
    env.global("agentproto.signingKey", file.to_str().unwrap());
    let id = env.awaiting("f.txt");
    let events = env.git(&["rev-list", "--count", &env.journal()]);
    // A program that would ask on a screen is not started either.
    let asks = env.path("askpass");
    fs::write(
        &asks,
        format!("#!/bin/sh\necho asked >> {}\necho secret\n", env.path("asked").display()),
    )
    .unwrap();
    fs::set_permissions(&asks, fs::Permissions::from_mode(0o755)).unwrap();
    let run = env.tool(&["ack", "--yes", &id]).env("SSH_ASKPASS", &asks).env("DISPLAY", ":9");
    let refused = run.env("SSH_ASKPASS_REQUIRE", "force").done().exits(5);
    assert!(refused.err().contains("signing-needs-person"), "{refused}");
    assert!(!env.path("asked").exists());
    assert_eq!(env.git(&["rev-list", "--count", &env.journal()]), events);
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn the_program_that_signs_is_a_person_s_choice_and_never_the_repository_s() {
    let env = TestEnv::new();
    env.key("locked", &["-t", "ed25519", "-N", "secret"]);
    env.write_signers("ada@example.invalid namespaces=\"agentproto-ack\"", "locked");
    env.global("agentproto.signingKey", env.path("locked").to_str().unwrap());
    let script = |name: &str, body: &str| {
        let file = env.path(name);
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file.display().to_string()
    };
    // Stands for a vault that knows the passphrase.
    let vault = script(
        "vault",
        "for last; do :; done; key=$(mktemp) && cp \"$6\" \"$key\" && \
         ssh-keygen -q -p -P secret -N '' -f \"$key\" && exec ssh-keygen -Y sign -n \"$4\" -f \"$key\" \"$last\"",
    );
    let canary = script("canary", &format!("echo ran >> {}; exit 1", env.path("hit").display()));
    for key in ["gpg.ssh.program", "gpg.program", "gpg.ssh.defaultKeyCommand", "core.sshCommand"] {
        env.git(&["config", key, &canary]);
    }
    let id = env.awaiting("f.txt");
    env.ap(&["ack", "--yes", &id]).exits(5);
    env.global("gpg.ssh.program", &vault);
    env.ap(&["ack", "--yes", &id]).exits(0);
    is_done(&env, &id);
    assert!(!env.path("hit").exists());
}

#[test]
fn what_is_no_signature_is_shown_and_signs_nothing() {
    let env = TestEnv::new();
    env.key("locked", &["-t", "ed25519", "-N", "secret"]);
    env.write_signers("ada@example.invalid namespaces=\"agentproto-ack\"", "locked");
    env.global("agentproto.signingKey", env.path("locked").to_str().unwrap());
    let id = env.awaiting("f.txt");
    let events = env.git(&["rev-list", "--count", &env.journal()]);
    let last = "for last; do :; done";
    for (body, shown) in [
        (format!("{last}; printf 'no \\033[7m' > \"$last.sig\""), "but \"no \\033[7m\" ["),
        (format!("{last}; yes | head -c 4000 > \"$last.sig\""), "y\\ny\\n\"… (4000 bytes) ["),
        ("echo hello".to_owned(), "but \"hello\\n\" ["),
        ("true".to_owned(), "but nothing ["),
    ] {
        let file = env.path("signs");
        fs::write(&file, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        env.global("gpg.ssh.program", file.to_str().unwrap());
        let refused = env.ap(&["ack", "--yes", &id]).exits(6);
        let said = refused.err();
        assert!(said.contains("[signing-failed]") && said.contains(shown), "{body}: {refused}");
    }
    assert_eq!(env.git(&["rev-list", "--count", &env.journal()]), events);
}

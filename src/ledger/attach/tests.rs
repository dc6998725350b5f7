//! What may be attached, and what is refused with nothing written.

use super::*;
use crate::ledger::{
    AdoptAsk,
    lab::{Lab, commit_of, emit},
};
use crate::{
    domain::path::RepoPath,
    store::settings::write_private,
    sys::fault::{self, Ending, Kind},
};
use std::os::unix::fs::{PermissionsExt, symlink};

/// The codes of a refused request, which must have written nothing.
fn refused(lab: &Lab, ledger: &Ledger, session: &SessionId, ask: &AttachAsk) -> Vec<String> {
    let before = lab.snapshot();
    let error =
        ledger.attach(&crate::ledger::GroupAsk::of(session, Covers::LastAndNext), ask).unwrap_err();
    assert_eq!(before, lab.snapshot(), "something was written");
    let LedgerError::Problems(all) = error else { panic!("not all problems: {error}") };
    all.iter().map(|p| p.code.as_str().to_owned()).collect()
}

fn with_commit(change: impl FnOnce(&mut CommitAsk)) -> AttachAsk {
    let mut ask = commit_of(&["a.txt"]);
    change(ask.commit.as_mut().unwrap());
    ask
}

/// Puts one entry into the person's own allowlist.
fn allow(lab: &Lab, entry: &str) {
    let text = format!(r#"{{"version":1,"commands":[{entry}]}}"#);
    write_private(&lab.settings().allowlist_file(), text.as_bytes()).unwrap();
}

#[test]
fn a_session_is_where_git_says_it_is() {
    let lab = Lab::new();
    let far = lab.repo.beside("elsewhere/far");
    lab.repo.git(&["worktree", "add", "-q", "-b", "far", far.to_str().unwrap()]);
    std::fs::create_dir_all(far.join("..sub")).unwrap();
    let ledger = lab.ledger();
    let ask =
        AdoptAsk { label: Some("s".into()), cwd: far.join("..sub"), base: Some("main".into()) };
    let (id, _) = ledger.adopt(&ask).unwrap();
    let session = ledger.require_session(&id).unwrap();
    assert_eq!((session.worktree.as_str(), session.cwd.as_str()), ("far", "..sub"));
    assert_eq!(session.base, Some(lab.repo.oid("main")));

    let code = |ask: AdoptAsk| ledger.adopt(&ask).unwrap_err().code();
    let at = |cwd| AdoptAsk { cwd, ..ask.clone() };
    assert_eq!(code(at(lab.home())), Code::CwdNotInWorktree);
    assert_eq!(code(at(lab.repo.path("nowhere"))), Code::CwdNotInWorktree);
    assert_eq!(code(at(lab.repo.path(".git"))), Code::CwdNotInWorktree);
    for revision in ["nowhere", "", "main..far", "HEAD^{tree}"] {
        let ask = AdoptAsk { base: Some(revision.into()), ..ask.clone() };
        assert_eq!(code(ask), Code::NoSuchRevision, "{revision}");
    }
    for (label, expected) in
        [("ses_x", Code::LabelLooksLikeId), ("pol_", Code::LabelLooksLikeId), ("", Code::Usage)]
    {
        assert_eq!(code(AdoptAsk { label: Some(label.into()), ..ask.clone() }), expected);
    }
    assert_eq!(lab.kinds(&ledger), ["session:started"]);
}

#[test]
fn a_policy_holds_what_was_found_at_attach() {
    let lab = Lab::new();
    lab.repo.write("sub/..foo/x", b"");
    symlink("sub", lab.repo.path("link")).unwrap();
    let ledger = lab.ledger();
    let session = lab.session(&ledger);
    let mut ask = with_commit(|c| {
        c.paths = ["./a.txt", "new file", "a.txt"].map(Into::into).to_vec();
        c.message = b"  title  \n\n\n\nbody\n".to_vec();
    });
    ask.gate_cwd = Some("link/..foo".into());
    let (id, _) =
        ledger.attach(&crate::ledger::GroupAsk::of(&session, Covers::LastAndNext), &ask).unwrap();
    let spec = ledger.require_policy(&id).unwrap().spec;
    let gate = spec.gates[0].shell().unwrap();
    assert_eq!((gate.def.cwd.as_str(), gate.def.timeout_ms), ("sub/..foo", 600_000));
    let commit = spec.commit.unwrap();
    assert_eq!(commit.branch, "refs/heads/main");
    assert_eq!(commit.message, "  title\n\nbody\n");
    assert!(commit.require_human_ack);
    let paths: Vec<&[u8]> = commit.paths.iter().map(RepoPath::as_bytes).collect();
    assert_eq!(paths, [&b"a.txt"[..], b"new file"]);

    let programs = ledger.attached_programs(&id).unwrap().unwrap();
    assert!(programs[0].is_absolute() && programs[0].ends_with("true"), "{programs:?}");
    assert_eq!(gate.program, crate::sys::digest::sha256_file(&programs[0]).unwrap());
    let told = lab.repo.git(&["log", "-p", "--all", "--format=%B", "--", "open"]);
    assert!(!told.contains(programs[0].to_str().unwrap()), "an absolute path is under a ref");
    std::fs::remove_dir_all(lab.repo.path(".git/agentproto/local")).unwrap();
    assert_eq!(ledger.attached_programs(&id).unwrap(), None);
}

#[test]
fn all_problems_are_told_at_once_and_in_order() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let session = lab.session(&ledger);
    lab.repo.git(&["checkout", "-q", "--detach"]);
    lab.repo.git(&["config", "commit.gpgSign", "perhaps"]);
    lab.set("agentproto.allowNoAck", "perhaps");
    let mut ask = with_commit(|c| {
        c.paths = ["../x", ".git/config", ""].map(Into::into).to_vec();
        c.message = b"\n".to_vec();
        c.no_ack = true;
    });
    ask.label = Some("pol_x".into());
    ask.gates = [["test", "-f"], ["ls", "x"]]
        .map(|argv| GateAsk::of(argv.map(str::to_owned).to_vec()))
        .to_vec();
    ask.gate_cwd = Some("..".into());
    ask.gate_timeout_ms = Some(25 * 3600 * 1000);
    let codes = refused(&lab, &ledger, &session, &ask);
    let expected = [
        "empty-message",
        "label-looks-like-id",
        "detached-head",
        "path-outside-worktree",
        "path-in-git-dir",
        "path-empty",
        "gate-timeout-too-long",
        "cwd-escapes-worktree",
        "not-allowlisted",
        "bad-setting",
        "bad-setting",
    ];
    assert_eq!(codes, expected);
    let unknown = "ses_01arz3ndektsv4rrffq69g5fav".parse().unwrap();
    let codes = refused(&lab, &ledger, &unknown, &with_commit(|c| c.paths.clear()));
    assert_eq!(codes, ["no-paths", "no-such-session"]);
}

#[test]
fn numbers_are_bounded() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let session = lab.session(&ledger);
    let many = AttachAsk { gates: vec![emit(&["true"]).gates[0].clone(); 17], ..emit(&[]) };
    assert_eq!(refused(&lab, &ledger, &session, &many), ["too-many"]);
    let names: Vec<String> = (0..=limits::PATHS_PER_POLICY).map(|i| format!("f{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(refused(&lab, &ledger, &session, &commit_of(&names)), ["too-many"]);
    let long = with_commit(|c| c.message = vec![b'm'; limits::MESSAGE_BYTES + 1]);
    assert_eq!(refused(&lab, &ledger, &session, &long), ["too-many"]);
    let never = AttachAsk { gate_timeout_ms: Some(0), ..emit(&["true"]) };
    assert_eq!(refused(&lab, &ledger, &session, &never), ["usage"]);
}

#[test]
fn a_commit_needs_a_gate_or_the_word_for_none() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let session = lab.session(&ledger);
    let bare = AttachAsk { gates: vec![], ..commit_of(&["a.txt"]) };
    assert_eq!(refused(&lab, &ledger, &session, &bare), ["gate-required"]);
    let both = AttachAsk { ungated: true, ..commit_of(&["a.txt"]) };
    assert_eq!(refused(&lab, &ledger, &session, &both), ["usage"]);
    ledger
        .attach(
            &crate::ledger::GroupAsk::of(&session, Covers::Next),
            &AttachAsk { ungated: true, ..bare },
        )
        .unwrap();
    ledger.attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &emit(&[])).unwrap();
}

#[test]
fn rules_come_from_the_trusted_ref_and_the_person_alone() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let session = lab.session(&ledger);
    lab.repo.write(".agentproto/allowed-commands.json", br#"{"version":1,"commands":["test"]}"#);
    lab.repo.git(&["config", "agentproto.allowedCommand", "test"]);
    lab.repo.git(&["config", "agentproto.allowNoAck", "true"]);
    assert_eq!(refused(&lab, &ledger, &session, &emit(&["test"])), ["not-allowlisted"]);
    let no_ack = || with_commit(|c| c.no_ack = true);
    assert_eq!(refused(&lab, &ledger, &session, &no_ack()), ["no-ack-not-allowed"]);
    allow(&lab, r#"{"command":"test","args":["-d"]}"#);
    lab.set("agentproto.allowNoAck", "true");
    ledger
        .attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &emit(&["test", "-d", "."]))
        .unwrap();
    ledger.attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &no_ack()).unwrap();
    for id in ["ses_x", ""] {
        let inside = lab.ledger_at(&lab.repo.top(), &[("AGENTPROTO_SESSION_ID", id)]);
        assert_eq!(refused(&lab, &inside, &session, &no_ack()), ["no-ack-not-allowed"]);
    }
    for rule in [".agentproto/allowed-commands.json", "agentproto.json"] {
        let ask = with_commit(|c| (c.no_ack, c.paths) = (true, vec![rule.into()]));
        assert_eq!(refused(&lab, &ledger, &session, &ask), ["no-ack-not-allowed"], "{rule}");
    }
    std::fs::remove_file(lab.settings().signers_file()).unwrap();
    assert_eq!(refused(&lab, &ledger, &session, &commit_of(&["a.txt"])), ["signers-missing"]);
}

#[test]
fn programs_are_found_on_the_fixed_path_and_in_the_worktree_of_the_gate() {
    let lab = Lab::new();
    let script = |name: &str, text: &[u8]| {
        lab.repo.write(name, text);
        std::fs::set_permissions(lab.repo.path(name), PermissionsExt::from_mode(0o755)).unwrap();
    };
    script("bin/tool", b"#!/bin/sh\n");
    script("check.sh", b"#!/bin/sh\n");
    std::fs::create_dir(lab.home().join("bin")).unwrap();
    std::fs::copy(lab.repo.path("check.sh"), lab.home().join("bin/tool")).unwrap();
    allow(&lab, r#""tool""#);
    let (inside, outside) = (lab.repo.path("bin"), lab.home().join("bin"));
    let callers = format!("{}:/usr/bin:/bin", outside.display());
    let ledger = lab.ledger_at(&lab.repo.top(), &[("PATH", &callers)]);
    let session = lab.session(&ledger);

    let error = ledger
        .attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &emit(&["tool"]))
        .unwrap_err();
    let LedgerError::Problems(all) = error else { panic!("{error}") };
    assert_eq!(all[0].code, Code::GateNotFound);
    assert!(all[0].hint.as_deref().unwrap().contains(outside.to_str().unwrap()), "{all:?}");

    lab.set("agentproto.path", &format!("{}:{}", inside.display(), outside.display()));
    let worktree = lab.repo.worktree();
    let path = ledger.fixed_path(&worktree).unwrap();
    assert_eq!(path.as_variable(), outside.to_str().unwrap());
    let gates: Vec<GateDef> = ["tool", "./check.sh"]
        .map(|command| GateDef {
            command: command.to_owned(),
            args: vec![],
            cwd: ".".to_owned(),
            timeout_ms: 1,
            require_output: None,
            protect: vec![],
            env: std::collections::BTreeMap::new(),
            env_clean: false,
        })
        .to_vec();
    let found = ledger.gate_programs(&worktree, &gates).unwrap();
    assert_eq!(found[0].0, outside.join("tool"));
    assert_eq!(found[0].1, found[1].1, "the same bytes");
    script("check.sh", b"#!/bin/sh\nexit 0\n");
    let changed = ledger.gate_programs(&worktree, &gates).unwrap();
    assert_ne!(changed[1].1, found[1].1);

    lab.repo.write(".agentproto/allowed-commands.json", b"{");
    lab.repo.commit_file("more", b"");
    let error = ledger.gate_programs(&worktree, &gates).unwrap_err();
    assert_eq!(error.code(), Code::AllowlistInvalid);
}

#[test]
fn a_gate_runs_inside_its_worktree() {
    let lab = Lab::new();
    symlink("/", lab.repo.path("out")).unwrap();
    symlink(".", lab.repo.path("loop")).unwrap();
    std::fs::create_dir(lab.repo.path("sub")).unwrap();
    let top = lab.repo.top();
    let code = |typed: &str| anchor(&top, typed.as_ref()).map_err(|e| e.code());
    assert_eq!(code("."), Ok(".".to_owned()));
    assert_eq!(code("loop/sub/../sub/"), Ok("sub".to_owned()));
    assert_eq!(code(top.join("sub").to_str().unwrap()), Ok("sub".to_owned()));
    for escape in ["..", "../..", "/", "out", "out/tmp", ".git", ".git/refs"] {
        assert_eq!(code(escape), Err(Code::CwdEscapes), "{escape}");
    }
    for missing in ["", "nowhere", "a.txt", "a.txt/x", "\0"] {
        assert_eq!(code(missing), Err(Code::NoSuchCwd), "{missing:?}");
    }
}

#[test]
fn a_path_typed_in_another_worktree_means_the_same_place_in_the_sessions() {
    let lab = Lab::new();
    let far = lab.repo.beside("far");
    lab.repo.git(&["worktree", "add", "-q", "-b", "far", far.to_str().unwrap()]);
    lab.repo.write("sub/keep", b"");
    let ledger = lab.ledger_at(&lab.repo.path("sub"), &[]);
    let ask = AdoptAsk { label: None, cwd: far.clone(), base: None };
    let (session, _) = ledger.adopt(&ask).unwrap();
    let absolute = far.join("b").into_os_string();
    let ask = with_commit(|c| c.paths = vec!["x".into(), "../a.txt".into(), absolute]);
    let (id, _) =
        ledger.attach(&crate::ledger::GroupAsk::of(&session, Covers::Next), &ask).unwrap();
    let commit = ledger.require_policy(&id).unwrap().spec.commit.unwrap();
    let paths: Vec<&[u8]> = commit.paths.iter().map(RepoPath::as_bytes).collect();
    assert_eq!(paths, [&b"sub/x"[..], b"a.txt", b"b"]);
    assert_eq!(commit.branch, "refs/heads/far");
    let main = with_commit(|c| c.paths = vec![lab.repo.path("a.txt").into_os_string()]);
    assert_eq!(refused(&lab, &ledger, &session, &main), ["path-outside-worktree"]);
}

#[test]
fn commit_is_a_session_of_its_own_whose_turn_has_ended() {
    let lab = Lab::new();
    lab.repo.write("sub/b.txt", b"");
    let ledger = lab.ledger_at(&lab.repo.path("sub"), &[]);
    let (id, _) = ledger.commit(&commit_of(&["b.txt"])).unwrap();
    let policy = ledger.require_policy(&id).unwrap();
    assert_eq!(policy.status.as_str(), "gating");
    let session = ledger.require_session(&policy.spec.session_ids[0]).unwrap();
    assert!(session.own);
    assert_eq!(session.cwd, "sub");
    assert_eq!(policy.spec.commit.unwrap().paths[0].as_bytes(), b"sub/b.txt");
    let error = ledger.commit(&emit(&["true"])).unwrap_err();
    assert_eq!(error.code(), Code::NoPaths);
}

#[test]
fn a_kill_leaves_the_note_of_programs_whole_or_none() {
    let lab = Lab::new();
    let ledger = lab.ledger();
    let policy: PolicyId = "pol_01arz3ndektsv4rrffq69g5fav".parse().unwrap();
    let programs = [PathBuf::from("/bin/true")];
    let note = lab.repo.path(format!(".git/agentproto/local/{policy}.json"));
    fault::arm(None);
    ledger.keep_programs(&policy, &programs);
    let calls = fault::disarm().made.iter().filter(|m| m.kind == Kind::Mutating).count();
    assert_eq!(ledger.attached_programs(&policy).unwrap().unwrap(), programs);
    for call in 1..=calls {
        for ending in [Ending::KillBefore, Ending::KillWithin, Ending::KillAfter] {
            std::fs::remove_dir_all(note.parent().unwrap()).unwrap();
            fault::arm(Some((Kind::Mutating, call, ending)));
            ledger.keep_programs(&policy, &programs);
            fault::disarm();
            let there = std::fs::read(&note).ok();
            assert_ne!(there.as_deref(), Some(&b""[..]), "call {call}, {ending:?}");
            let read = ledger.attached_programs(&policy).unwrap();
            assert!(read.is_none_or(|read| read == programs), "call {call}, {ending:?}");
            assert!(ledger.store().said().take().is_empty(), "call {call}, {ending:?}");
            std::fs::create_dir_all(note.parent().unwrap()).unwrap();
        }
    }
}

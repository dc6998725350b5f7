//! Everything can be looked at with plain git: the story, the state, what is alive, the receipts.

use crate::{env::TestEnv, house::text};
use serde_json::Value;
use std::fs;

/// The document of an entity below `dir` in the journal's tree.
fn document(env: &TestEnv, dir: &str, id: &str) -> Option<Value> {
    let journal = env.journal();
    let names = env.git(&["ls-tree", "-r", "--name-only", &journal, dir]);
    let name = names.lines().find(|n| n.ends_with(&format!("/{id}.json")))?.to_owned();
    let shown = env.git(&["show", &format!("{journal}:{name}")]);
    Some(serde_json::from_str(&shown).unwrap())
}

#[test]
fn the_journal_reads_as_a_story() {
    let env = TestEnv::new();
    let (policy, commit) = env.governed("f.txt");
    let log = env.git(&["log", "--reverse", "--format=%s", &env.journal()]);
    let subjects: Vec<_> = log.lines().collect();
    let kinds = env.kinds();
    assert_eq!(subjects.len(), kinds.len());
    for (subject, kind) in subjects.iter().zip(&kinds) {
        let (head, sentence) = subject.split_once(": ").unwrap();
        let (first, entity) = head.split_once(' ').unwrap();
        assert_eq!(first, kind);
        assert!(entity.starts_with("ses_") || entity.starts_with("pol_"), "{subject}");
        assert!(sentence.contains(' '), "no sentence: {subject}");
    }
    let story: Vec<_> = kinds.iter().map(String::as_str).collect();
    for pair in [
        ["session:started", "policy:attached"],
        ["policy:attached", "session:turn-end"],
        ["session:turn-end", "policy:gating"],
        ["policy:gating", "policy:passed"],
        ["policy:passed", "policy:commit-ready"],
        ["policy:commit-ready", "policy:acked"],
        ["policy:acked", "policy:committed"],
    ] {
        let at = |kind| story.iter().position(|k| *k == kind);
        assert!(at(pair[0]).is_some() && at(pair[0]) < at(pair[1]), "{pair:?} in {story:?}");
    }
    env.assert_no_gap();
    assert!(env.trailers("Policy").contains(&policy));
    assert!(env.trailers("Candidate").contains(&commit));
    let format = "--format=%an <%ae>";
    let authors = env.git(&["log", format, &env.journal()]);
    assert!(authors.lines().all(|a| a == "Ada Example <ada@example.invalid>"), "{authors}");
    let first = env.git(&["rev-list", "--max-parents=0", &env.journal()]);
    let message = env.git(&["log", "-1", "--format=%B", &first]);
    for word in ["Repo: ", "Format: 1"] {
        assert!(message.contains(word), "'{word}' is not in: {message}");
    }
}

#[test]
fn the_tree_of_the_journal_is_the_state() {
    let env = TestEnv::new();
    let waiting = env.awaiting("f.txt");
    let state = document(&env, "open/", &waiting).expect("an open policy has a document");
    assert_eq!(state["v"], 1);
    let candidate = text(&env.policy(&waiting), "candidate");
    assert!(state.to_string().contains(&candidate), "{state:#}");
    let x = waiting.chars().last().unwrap();
    env.git(&["cat-file", "-e", &format!("{}:open/{x}/{waiting}.json", env.journal())]);

    env.ap(&["ack", &waiting, "--yes"]).exits(0);
    assert!(document(&env, "open/", &waiting).is_none());
    let state = document(&env, "closed/", &waiting).expect("a closed policy has a document");
    assert!(state.to_string().contains("agentproto-ack/1 approve "), "{state:#}");
    let mut last = waiting.chars().rev();
    let (x, y) = (last.next().unwrap(), last.next().unwrap());
    env.git(&["cat-file", "-e", &format!("{}:closed/{x}/{y}/{waiting}.json", env.journal())]);
}

#[test]
fn log_with_notes_shows_the_receipt_in_place() {
    let env = TestEnv::new();
    let (policy, commit) = env.governed("f.txt");
    let args = ["log", "--notes=agentproto/acks", "--notes=agentproto/gates", "-1", "main"];
    let shown = env.git(&args);
    for word in [
        "Notes (agentproto/acks):",
        "Notes (agentproto/gates):",
        "agentproto-ack/1 approve ",
        "agentproto-gate/1 pass ",
        &format!("policy={policy}"),
        &format!("candidate={commit}"),
        &format!("Agentproto-Policy: {policy}"),
        "Agentproto-Session: ses_",
    ] {
        assert!(shown.contains(word), "'{word}' is not in:\n{shown}");
    }
    env.git(&["merge-base", "--is-ancestor", &format!("{commit}^"), &commit]);
}

#[test]
fn for_each_ref_lists_all_there_is() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let refs = env.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto", "refs/notes"]);
    let refs: Vec<_> = refs.lines().collect();
    let writer = env.journal();
    let writer = writer.strip_prefix("refs/agentproto/journal/").unwrap();
    assert!(writer.ends_with("/0001"), "{writer}");
    let evidence = format!("refs/agentproto/evidence/{writer}");
    let journal = format!("refs/agentproto/journal/{writer}");
    let notes = ["refs/notes/agentproto/acks", "refs/notes/agentproto/gates"];
    assert_eq!(refs, [evidence.as_str(), &journal, notes[0], notes[1]]);
}

#[test]
fn nothing_of_this_machine_and_no_output_is_under_a_ref() {
    let env = TestEnv::new();
    env.allow_no_ack();
    env.script("loud.sh", "echo s3cr3t-word-of-the-gate; pwd");
    env.write("a.txt", "1\n");
    env.commit(&["a.txt"], &["./loud.sh"]).exits(0);
    env.governed("f.txt");
    let lab = env.path("").display().to_string();
    let words = ["s3cr3t-word-of-the-gate", lab.trim_end_matches('/')];
    let hold = |what: &str, text: &str| {
        let lines: Vec<_> = text.lines().filter(|l| words.iter().any(|w| l.contains(w))).collect();
        assert!(
            lines.is_empty(),
            "{what} holds {} such lines, first: {:.300}",
            lines.len(),
            lines[0]
        );
    };
    let refs =
        env.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal", "refs/notes"]);
    for name in refs.lines() {
        hold(name, &env.git(&["log", "-p", "-m", "--format=%B", name]));
    }
}

#[test]
fn the_side_directory_can_go() {
    let env = TestEnv::new();
    let (policy, commit) = env.governed("f.txt");
    let events = |env: &TestEnv| {
        let answer = env.ap(&["events", "--json"]).exits(0).json();
        answer["events"].as_array().unwrap().len()
    };
    let (before, count) = (env.snapshot(), events(&env));
    let journal = env.journal();
    fs::remove_dir_all(env.repo().join(".git/agentproto")).unwrap();
    assert_eq!(text(&env.policy(&policy), "status"), "done");
    assert_eq!(events(&env), count);
    env.ap(&["verify", &format!("{commit}^..{commit}")]).exits(0);
    before.assert_same(&env.snapshot(), "losing the side directory and looking");
    // The same clone goes on writing the same journal.
    env.governed("g.txt");
    assert_eq!(env.journal(), journal);
    env.assert_no_gap();
}

#[test]
fn the_ack_can_be_checked_with_openssh_alone() {
    let env = TestEnv::new();
    let (_, commit) = env.governed("f.txt");
    let line = env.note_lines("acks", &commit, "agentproto-ack/1 ").remove(0);
    let (signed, signature) = line.split_once(" sig=").unwrap();
    let wrapped: Vec<_> = signature.as_bytes().chunks(70).map(String::from_utf8_lossy).collect();
    let armour = |body: &str| {
        format!("-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
    };
    fs::write(env.path("sig"), armour(&wrapped.join("\n"))).unwrap();
    let (allowed, sig) = (env.path("allowed"), env.path("sig"));
    let args = ["-Y", "verify", "-f", allowed.to_str().unwrap(), "-I", "ada@example.invalid"];
    let args: Vec<_> =
        args.into_iter().chain(["-n", "agentproto-ack", "-s", sig.to_str().unwrap()]).collect();
    env.run("ssh-keygen", &args).stdin(signed).done().exits(0);
    let out = env.run("ssh-keygen", &args).stdin(format!("{signed} ")).done();
    assert_ne!(out.code(), 0, "one byte more verifies too: {out}");
}

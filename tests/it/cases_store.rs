//! Failure cases about keeping records.

use crate::{
    env::{Output, TestEnv},
    house::{text, value},
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

const PARALLEL: usize = 8;
const FOREIGN_NOTES: usize = 20;

/// A policy that waits for its ack on a branch of its own.
struct Waiting {
    worktree: PathBuf,
    policy: String,
}

fn waiting(env: &TestEnv) -> Vec<Waiting> {
    let prepared: Vec<_> = (0..PARALLEL)
        .map(|i| {
            let worktree = env.worktree(&format!("w{i}"));
            let session = env.adopt_in(&worktree, &format!("s{i}"));
            (worktree, session)
        })
        .collect();
    // Gates end side by side too: their lines meet in one notes ref.
    std::thread::scope(|scope| {
        let running: Vec<_> = prepared
            .into_iter()
            .map(|(worktree, session)| {
                scope.spawn(move || {
                    let policy = env.awaiting_of(&session, &worktree, "f.txt");
                    Waiting { worktree, policy }
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Acks all of them at once; each has to be recorded.
fn ack_all(env: &TestEnv, waiting: &[Waiting]) {
    std::thread::scope(|scope| {
        for w in waiting {
            scope.spawn(|| env.ap_in(&w.worktree, &["ack", &w.policy, "--yes"]).exits(0));
        }
    });
}

fn assert_receipts(env: &TestEnv, waiting: &[Waiting]) {
    for w in waiting {
        let commit = text(&env.policy(&w.policy), "commitSha");
        assert_eq!(env.git_in(&w.worktree, &["rev-parse", "HEAD"]), commit);
        for (name, lead) in
            [("gates", "agentproto-gate/1 pass "), ("acks", "agentproto-ack/1 approve ")]
        {
            let lines = env.note_lines(name, &commit, lead);
            assert_eq!(lines.len(), 1, "{name} note of {commit}: {lines:?}");
            assert!(lines[0].contains(&w.policy), "{}", lines[0]);
        }
    }
    env.assert_no_gap();
    env.git(&["fsck", "--strict"]);
}

/// The worktrees are git's own here: commands that make and remove them, and the records they keep, come with
/// a later unit and bring their part of the case along.
#[test]
fn case_117_tables_packed_refs_and_linked_worktrees_are_seen_as_git_sees_them() {
    for format in ["reftable", "files"] {
        let env = TestEnv::bare();
        env.make_repo_with("r", &["--ref-format", format]);
        env.ap(&["init", "--yes"]).exits(0);
        let before = env.git(&["for-each-ref"]);
        assert!(!before.contains("agentproto"), "init writes no ref: {before}");
        env.git(&["pack-refs", "--all"]);
        let linked = env.worktree("t1");
        for (dir, name) in [(env.repo(), "main"), (linked.clone(), "t1")] {
            let session = env.adopt_in(&dir, name);
            let policy = env.awaiting_of(&session, &dir, "b.txt");
            env.git(&["pack-refs", "--all"]);
            env.ap_in(&dir, &["ack", &policy, "--yes"]).exits(0);
            env.ap_in(&dir, &["wait", &policy, "--until", "done", "--timeout", "60s"]).exits(0);
            let commit = text(&env.policy(&policy), "commitSha");
            assert_eq!(env.git(&["rev-parse", name]), commit, "{format} {name}");
            assert_eq!(env.git_in(&dir, &["status", "--porcelain"]), "", "{format} {name}");
            env.git(&["pack-refs", "--all"]);
            for asked in ["HEAD", "HEAD~1..HEAD"] {
                let told = env.ap_in(&dir, &["verify", asked, "--json"]).exits(0).json();
                assert_eq!(text(&told["commits"][0], "sha"), commit, "{format} {name} {told:#}");
            }
        }
        env.ap(&["verify", "nowhere"]).exits(4);
        env.assert_no_gap();
        env.git(&["fsck", "--strict"]);
        env.git(&["worktree", "remove", linked.to_str().unwrap()]);
        env.ap(&["verify", "t1"]).exits(0);
        // Where the refs are in tables, nothing was written where git does not look.
        let stray = env.repo().join(".git/refs/agentproto").exists();
        assert!(format == "files" || !stray);
    }
}

#[test]
fn case_107_parallel_receipts_are_all_kept() {
    let env = TestEnv::new();
    let waiting = waiting(&env);
    ack_all(&env, &waiting);
    // Nothing is asked for in between: what a command reported is there.
    assert_receipts(&env, &waiting);
}

#[test]
fn case_107_foreign_notes_and_ours_survive_each_other() {
    let env = TestEnv::new();
    let targets: Vec<_> = (0..FOREIGN_NOTES)
        .map(|i| {
            env.git(&["commit", "-q", "--allow-empty", "-m", &format!("c{i}")]);
            env.git(&["rev-parse", "HEAD"])
        })
        .collect();
    let waiting = waiting(&env);
    let written = std::thread::scope(|scope| {
        // git's own writer has no compare-and-swap, so a single one of it runs.
        let foreign = scope.spawn(|| {
            let add = |c: &&String| {
                let args = ["notes", "--ref=agentproto/acks", "add", "-m", "seen by a person", c];
                env.run("git", &args).done().code() == 0
            };
            targets.iter().filter(add).collect::<Vec<_>>()
        });
        ack_all(&env, &waiting);
        foreign.join().unwrap()
    });
    assert!(written.len() >= FOREIGN_NOTES / 2, "only {} foreign notes got through", written.len());
    for commit in written {
        assert_eq!(env.note_lines("acks", commit, "seen by a person").len(), 1, "note of {commit}");
    }
    // What git's writer dropped of ours comes back with the next command that touches the policy.
    for w in &waiting {
        env.ap(&["wait", &w.policy, "--until", "done", "--timeout", "30s"]).exits(0);
    }
    assert_receipts(&env, &waiting);
}

#[test]
fn case_118_ids_of_both_widths_work_whole_and_nothing_matches_by_prefix() {
    for (hash, digits) in [("sha1", 40), ("sha256", 64)] {
        let env = TestEnv::of_hash(hash);
        let policy = env.awaiting("f.txt");
        let candidate = text(&env.policy(&policy), "candidate");
        assert_eq!(candidate.len(), digits, "{candidate}");
        assert_no_other_candidate_is_acked(&env, &policy, &candidate);
        env.ap(&["ack", &policy, "--yes", "--candidate", &candidate]).exits(0);
        env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
        assert_eq!(env.git(&["rev-parse", "main"]), candidate);
        for (name, field) in [("gates", "tree"), ("acks", "candidate")] {
            let line = env.note_lines(name, &candidate, "agentproto-").remove(0);
            assert_eq!(value(&line, field).len(), digits, "{line}");
        }
        for round in ["as written", "after git's own clean-up"] {
            assert_found_by_its_own_digits_alone(&env, &candidate, round);
            env.git(&["gc", "-q", "--prune=now"]);
        }
        env.ap(&["fsck"]).exits(0);
        env.git(&["fsck", "--strict"]);
    }
}

/// The code a refused command says.
fn code_of(out: &Output) -> String {
    let error: Value = serde_json::from_slice(&out.stderr).unwrap_or_else(|e| panic!("{e}: {out}"));
    text(&error["error"], "code")
}

/// Ids that share digits with `id` and are not it: cut short, cut and filled up, of the other width.
fn others(id: &str) -> Vec<String> {
    let fill = |kept: usize, digits: usize| format!("{}{}", &id[..kept], "f".repeat(digits - kept));
    let (own, other) = if id.len() == 40 { (40, 64) } else { (64, 40) };
    vec![fill(39, own), fill(20, own), fill(20, other), fill(39, other), fill(40.min(other), other)]
        .into_iter()
        .filter(|o| !id.starts_with(o.as_str()))
        .collect()
}

fn assert_no_other_candidate_is_acked(env: &TestEnv, policy: &str, candidate: &str) {
    let before = env.snapshot();
    let ack = |id: &str| env.ap(&["ack", policy, "--yes", "--candidate", id, "--json"]);
    for short in [&candidate[..7], &candidate[..39]] {
        assert_eq!(code_of(&ack(short)), "usage", "{short}");
    }
    // All digits of an id of the other width.
    let cut = candidate.get(..40).filter(|cut| *cut != candidate).map(str::to_owned);
    for other in others(candidate).into_iter().chain(cut) {
        assert_eq!(code_of(&ack(&other)), "stale", "{other}");
    }
    before.assert_same(&env.snapshot(), "acks of other ids");
}

fn assert_found_by_its_own_digits_alone(env: &TestEnv, commit: &str, round: &str) {
    for text in [commit, &commit[..12], &commit[..39]] {
        let out = env.ap(&["verify", &format!("{text}^..{text}"), "--json"]).exits(0).json();
        assert_eq!(out["commits"][0]["sha"], commit, "{round}: {text}");
    }
    for text in others(commit).into_iter().chain(["deadbeef".to_owned()]) {
        let out = env.ap(&["verify", &text, "--json"]).exits(4);
        assert_eq!(code_of(&out), "no-such-revision", "{round}: {text}");
    }
    let tip = env.git(&["rev-parse", &env.journal()]);
    env.ap(&["events", "--since", &tip, "--json"]).exits(0);
    for other in others(&tip) {
        let out = env.ap(&["events", "--since", &other, "--json"]);
        assert_eq!(code_of(&out), "no-such-cursor", "{round}: {other}");
    }
}

/// Exit code of `verify RANGE`, outcome and reason of its first commit.
#[track_caller]
fn verdict(env: &TestEnv, dir: &Path, range: &str) -> (i32, String, String) {
    let out = env.ap_in(dir, &["verify", range, "--json"]);
    let first = &out.json()["commits"][0];
    let reason = first["reason"].as_str().unwrap_or_default().to_owned();
    (out.code(), text(first, "outcome"), reason)
}

#[track_caller]
fn is_governed(env: &TestEnv, dir: &Path, commit: &str) {
    let verdict = verdict(env, dir, &format!("{commit}^..{commit}"));
    assert_eq!((verdict.0, verdict.1.as_str()), (0, "governed"), "{}", verdict.2);
}

const JOURNALS: &str = "refs/agentproto/journal/*:refs/agentproto/remotes/origin/journal/*";

#[test]
fn case_108_a_forced_fetch_of_notes_loses_no_record() {
    let env = TestEnv::new();
    let (policy, commit) = env.governed("f.txt");
    let (hub, other) = (env.path("hub.git"), env.path("other"));
    env.git(&["clone", "-q", "--bare", ".", hub.to_str().unwrap()]);
    env.git(&["remote", "add", "origin", hub.to_str().unwrap()]);
    // Somebody else's notes are on the hub, ours are not.
    env.git(&["clone", "-q", hub.to_str().unwrap(), other.to_str().unwrap()]);
    env.git_in(
        &other,
        &["notes", "--ref=agentproto/acks", "add", "-m", "of another clone", "HEAD"],
    );
    env.git_in(&other, &["push", "-q", "origin", "refs/notes/*:refs/notes/*"]);
    let refspec = || env.git(&["config", "--get-all", "remote.origin.fetch"]);
    let before = refspec();
    env.git(&["fetch", "-q", "origin", "+refs/notes/*:refs/notes/*"]);
    assert_eq!(env.note_lines("acks", &commit, "agentproto-ack/1 ").len(), 0, "not erased");

    // What was recorded is in the journal: it still proves, its loss is told, it comes back beside theirs.
    is_governed(&env, &env.repo(), &commit);
    let fsck = env.ap(&["fsck"]).exits(1);
    assert!(fsck.out().contains(&policy), "{fsck}");
    env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
    assert_eq!(env.note_lines("acks", &commit, "agentproto-ack/1 ").len(), 1);
    assert_eq!(env.note_lines("acks", &commit, "of another clone").len(), 1);
    env.ap(&["fsck"]).exits(0);
    assert_eq!(refspec(), before, "the fetch configuration was changed");

    // Journals travel without force, to a place of their own.
    env.git(&["push", "-q", "origin", "refs/agentproto/journal/*"]);
    let hint = env.ap_in(&other, &["verify", &commit]).exits(2);
    assert!(hint.err().contains(&format!("'{JOURNALS}'")), "{hint}");
    env.git_in(&other, &["fetch", "-q", "origin", JOURNALS]);
    is_governed(&env, &other, &commit);
}

#[test]
fn case_110_a_rewritten_commit_is_ungoverned_and_says_which_one_was_approved() {
    let env = TestEnv::new();
    let (policy, old) = env.governed("f.txt");
    env.git(&["commit", "-q", "--amend", "-m", "reworded"]);
    let (exit, outcome, reason) = verdict(&env, &env.repo(), "HEAD^..HEAD");
    assert_eq!((exit, outcome.as_str()), (1, "ungoverned"));
    assert!(reason.contains(&old) && reason.contains(&policy), "{reason}");
    assert_eq!(env.run("git", &["config", "notes.rewriteRef"]).done().code(), 1, "it was set");

    // On another parent the content is another one: nothing is said about it.
    env.git(&["switch", "-qc", "side", "HEAD~1"]);
    env.write("other.txt", "other\n");
    env.git(&["add", "other.txt"]);
    env.git(&["commit", "-qm", "other"]);
    env.git(&["cherry-pick", &old]);
    let (exit, outcome, reason) = verdict(&env, &env.repo(), "HEAD^..HEAD");
    assert_eq!((exit, outcome.as_str()), (1, "ungoverned"));
    assert!(!reason.contains(&old), "{reason}");
    for name in ["acks", "gates"] {
        assert!(env.note_lines(name, "HEAD", "agentproto-").is_empty(), "{name} were copied");
    }
    is_governed(&env, &env.repo(), &old);
}

#[test]
fn case_111_a_clone_without_records_cannot_tell() {
    let env = TestEnv::new();
    let (_, commit) = env.governed("f.txt");
    let range = format!("{commit}^..{commit}");
    let url = format!("file://{}", env.repo().display());
    let (clone, shallow) = (env.path("clone"), env.path("shallow"));
    env.git(&["clone", "-q", ".", clone.to_str().unwrap()]);
    env.git(&["clone", "-q", "--depth=1", &url, shallow.to_str().unwrap()]);
    for (dir, range) in [(&clone, range.as_str()), (&shallow, "HEAD")] {
        let (exit, outcome, reason) = verdict(&env, dir, range);
        assert_eq!((exit, outcome.as_str()), (2, "unknown"), "{}", dir.display());
        assert!(reason.contains("were not fetched"), "{reason}");
        let out = env.ap_in(dir, &["verify", range]).exits(2);
        assert!(out.err().contains("git fetch origin"), "{out}");
    }
    env.git_in(&clone, &["fetch", "-q", "origin", JOURNALS]);
    is_governed(&env, &clone, &commit);
}

#[test]
fn case_113_foreign_words_in_a_note_are_kept_and_harm_nothing() {
    let env = TestEnv::new();
    let (policy, commit) = env.governed("f.txt");
    let lines = |name: &str| env.note_lines(name, &commit, "agentproto-");
    let own = (lines("gates"), lines("acks"));
    for name in ["gates", "acks"] {
        let notes = format!("--ref=agentproto/{name}");
        env.git(&["notes", &notes, "append", "-m", "human note\n\n{\"not\": ours", &commit]);
    }
    // Something of ours is lost with it and written again: the foreign words stay.
    let shown = env.git(&["notes", "--ref=agentproto/acks", "show", &commit]);
    let rest: Vec<_> = shown.lines().filter(|l| !l.starts_with("agentproto-")).collect();
    let args = ["notes", "--ref=agentproto/acks", "add", "-f", "-m", &rest.join("\n"), &commit];
    env.git(&args);
    env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
    assert_eq!((lines("gates"), lines("acks")), own);
    for name in ["gates", "acks"] {
        assert_eq!(env.note_lines(name, &commit, "human note").len(), 1, "{name}");
        assert_eq!(env.note_lines(name, &commit, "{\"not\": ours").len(), 1, "{name}");
    }
    is_governed(&env, &env.repo(), &commit);
    env.ap(&["fsck"]).exits(0);

    // Glued to another commit by git's own rewriting, our lines prove nothing there.
    env.git(&["config", "notes.rewriteMode", "concatenate"]);
    env.git(&["config", "notes.rewriteRef", "refs/notes/*"]);
    env.git(&["commit", "-q", "--amend", "-m", "z"]);
    assert_eq!(env.note_lines("acks", "HEAD", "agentproto-ack/1 ").len(), 1, "git copied nothing");
    assert_eq!(verdict(&env, &env.repo(), "HEAD^..HEAD").0, 1);
    is_governed(&env, &env.repo(), &commit);
}

#[test]
fn case_116_what_vanished_is_still_on_record_and_kept_by_a_ref() {
    let env = TestEnv::new();
    let (policy, commit) = env.governed("f.txt");
    env.git(&["reset", "-q", "--hard", "HEAD~1"]);
    env.git(&["reflog", "expire", "--expire=now", "--all"]);
    env.git(&["gc", "-q", "--prune=now"]);
    let on_record = || env.git(&["log", "--format=%B", &env.journal()]).matches(&commit).count();
    let before = on_record();
    assert!(before > 0);
    // Held by the evidence ref, not by the text of a note.
    env.git(&["cat-file", "-e", &format!("{commit}^{{tree}}")]);
    is_governed(&env, &env.repo(), &commit);
    env.git(&["notes", "--ref=agentproto/acks", "prune"]);
    env.ap(&["fsck"]).exits(0);

    // A record that is taken out of the notes is missed by name.
    env.git(&["notes", "--ref=agentproto/acks", "remove", &commit]);
    let fsck = env.ap(&["fsck"]).exits(1);
    assert!(fsck.out().contains(&policy) && fsck.out().contains(&commit), "{fsck}");
    assert_eq!(on_record(), before);
    is_governed(&env, &env.repo(), &commit);
}

/// A journal of a few events, set back by one; with or without its log.
fn set_back(env: &TestEnv, keep_log: bool) -> (String, String, String) {
    let session = env.adopt("s");
    env.ap(&["session", "report", &session, "turn-start"]).exits(0);
    env.ap(&["session", "report", &session, "turn-end"]).exits(0);
    let name = env.journal();
    let tip = env.git(&["rev-parse", &name]);
    let older = env.git(&["rev-parse", &format!("{name}~1")]);
    if !keep_log {
        fs::remove_dir_all(env.repo().join(".git/agentproto")).unwrap();
    }
    env.git(&["update-ref", &name, &older]);
    (name, tip, session)
}

fn report(env: &TestEnv, session: &str) -> Output {
    env.ap(&["session", "report", session, "turn-start"])
}

#[test]
fn case_120_a_journal_that_was_set_back_is_restored_or_missed() {
    // The log knows better: the next look restores.
    let env = TestEnv::new();
    let (name, tip, _) = set_back(&env, true);
    env.ap(&["status"]).exits(0);
    assert_eq!(env.git(&["rev-parse", &name]), tip);

    // Without a log the end noted outside the repository is missed, and put back while its objects are here.
    for mend in ["fsck", "append"] {
        let env = TestEnv::new();
        let (name, tip, session) = set_back(&env, false);
        let verify = env.ap(&["verify"]).exits(2);
        assert!(verify.out().contains(&tip) && verify.out().contains("not consistent"), "{verify}");
        match mend {
            "fsck" => drop(env.ap(&["fsck"]).exits(0)),
            _ => drop(report(&env, &session).exits(0)),
        }
        env.git(&["merge-base", "--is-ancestor", &tip, &name]);
        env.assert_no_gap();
        let verify = env.ap(&["verify"]);
        assert!(verify.out().contains("all hold"), "{verify}");
    }

    // With the objects gone nothing goes on in their place.
    let env = TestEnv::new();
    let (name, tip, session) = set_back(&env, false);
    env.git(&["gc", "-q", "--prune=now"]);
    assert_ne!(env.run("git", &["cat-file", "-e", &tip]).done().code(), 0, "still there");
    let refused = report(&env, &session).exits(2);
    assert!(refused.err().contains("[journal-diverged]"), "{refused}");
    let older = env.git(&["rev-parse", &name]);
    let note = env.home().join(".local/state/agentproto/writers");
    let writer = name.split('/').nth(3).unwrap();
    let note = note.join(format!("{writer}.tip"));
    assert!(refused.err().contains(note.to_str().unwrap()), "{refused}");
    env.ap(&["verify"]).exits(2);
    env.ap(&["fsck"]).exits(2);
    assert_eq!(env.git(&["rev-parse", &name]), older);
    // A person gives it up: from here on nothing is missed, and nothing is claimed.
    fs::remove_file(&note).unwrap();
    report(&env, &session).exits(0);
    let verify = env.ap(&["verify"]);
    assert!(verify.out().contains("completeness not provable"), "{verify}");
}

#[test]
fn case_123_the_stored_bytes_are_what_counts_in_every_locale() {
    let env = TestEnv::new();
    let session = env.adopt("z \u{fffd} \u{10000} e\u{301} \u{e9} 1e3");
    let ask = r#"{"requests":[{"id":"q","kind":"k","text":"\u00e9 e\u0301 \ud800\udc00 \ufffd 1.0","options":["b","a"]}]}"#;
    let wait =
        |data: &str| env.ap(&["session", "report", &session, "awaiting-input", "--data", data]);
    wait(ask).exits(0);
    for locale in ["C", "C.UTF-8", "sv_SE.UTF-8", "tr_TR.UTF-8"] {
        let out = env.tool(&["fsck"]).env("LC_ALL", locale).done().exits(0);
        assert!(out.out().contains("all hold"), "{out}");
    }
    let told = env.kinds().len();
    for data in [
        r#"{"requests":[{"id":"a","id":"b","kind":"k","text":"t","options":[]}]}"#,
        r#"{"requests":[],"requests":[]}"#,
        r#"{"requests":[{"id":"r","kind":"k","text":"\ud800","options":[]}]}"#,
    ] {
        let out = wait(data).exits(129);
        assert!(out.err().contains("bad-data"), "{out}");
    }
    assert_eq!(env.kinds().len(), told);
}

/// What is recorded is answered as recorded, and the lock that somebody holds is named and left.
#[test]
fn an_event_behind_a_foreign_lock_is_recorded_and_the_lock_is_named() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let name = env.git(&["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"]);
    let lock = if env.is_reftable() {
        env.repo().join(".git/reftable/tables.list.lock")
    } else {
        env.repo().join(format!(".git/{name}.lock"))
    };
    fs::write(&lock, "").unwrap();
    let before = env.git(&["rev-parse", &name]);
    let done = env.ap(&["session", "report", &session, "command-done", "--json"]).exits(0);
    let cursor = text(&done.json(), "cursor");
    assert!(done.err().contains("recorded") && done.err().contains(".lock"), "{done}");
    assert!(lock.exists());
    assert_eq!(env.git(&["rev-parse", &name]), before);
    // Who reads sees it, and while the lock stays says nothing again.
    let seen = env.ap(&["events", "--json"]).exits(0);
    let last = seen.json()["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(text(&last, "cursor"), cursor, "{last:#}");
    fs::remove_file(&lock).unwrap();
    env.ap(&["status"]).exits(0);
    assert_eq!(env.git(&["rev-parse", &name]), cursor);
}

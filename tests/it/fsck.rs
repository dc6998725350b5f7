//! `fsck` on stores that were hurt: it runs whatever is wrong, says what it would do, and does that once.

use crate::{
    env::{Output, TestEnv},
    house::{text, value},
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::PathBuf};

pub(crate) fn agent(env: &TestEnv, below: &str) -> PathBuf {
    env.repo().join(".git/agentproto").join(below)
}

/// The findings of a look, which ends with this exit code.
#[track_caller]
pub(crate) fn findings(env: &TestEnv, exit: i32) -> Vec<Value> {
    let report = env.ap(&["fsck", "--json"]).exits(exit).json();
    assert!(report.get("repaired").is_none(), "a look repairs nothing: {report}");
    report["findings"].as_array().unwrap().clone()
}

pub(crate) fn repair(env: &TestEnv) -> Output {
    env.ap(&["fsck", "--repair", "--json"])
}

pub(crate) fn count(report: &Value, field: &str) -> usize {
    report[field].as_array().unwrap().len()
}

/// Repairs so many things; afterwards nothing is wrong, and there is nothing left to repair.
#[track_caller]
pub(crate) fn repairs(env: &TestEnv, things: usize) {
    let told = env.ap(&["fsck", "--repair", "--dry-run", "--json"]).json();
    assert_eq!((&told["dryRun"], count(&told, "repaired")), (&Value::Bool(true), 0), "{told}");
    let done = repair(env).exits(0).json();
    assert_eq!((count(&done, "repaired"), count(&done, "notRepaired")), (things, 0), "{done}");
    let again = repair(env).exits(0).json();
    assert_eq!((count(&again, "repaired"), count(&again, "findings")), (0, 0), "{again}");
}

/// Everything goes on: an event is recorded, none is missing, git finds nothing wrong either.
#[track_caller]
pub(crate) fn goes_on(env: &TestEnv) {
    env.adopt("after");
    env.assert_no_gap();
    env.git(&["fsck", "--strict"]);
    findings(env, 0);
}

#[test]
fn a_damaged_log_is_put_aside_when_everything_can_be_read_without_it() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, Damage); 4] = [
        ("cut short", |log| log.truncate(100)),
        ("without a head", |log| log[..8192].fill(0)),
        ("garbage", |log| log.fill(0xa5)),
        ("empty", Vec::clear),
    ];
    for (what, damage) in damages {
        let env = TestEnv::new();
        env.adopt("before");
        let mut log = fs::read(agent(&env, "wal")).unwrap();
        damage(&mut log);
        fs::write(agent(&env, "wal"), &log).unwrap();
        let found = findings(&env, 2);
        assert_eq!(text(&found[0], "code"), "journal-corrupt", "{what}");
        assert!(text(&found[0], "repair").contains("agentproto/damaged"), "{what}");
        assert_eq!(fs::read(agent(&env, "wal")).unwrap(), log, "{what}");
        repairs(&env, 1);
        assert_eq!(fs::read(agent(&env, "damaged/wal.1")).unwrap(), log, "{what}");
        goes_on(&env);
    }
}

#[test]
fn a_log_older_than_the_ref_is_caught_up_without_being_asked() {
    let env = TestEnv::new();
    env.adopt("one");
    let older = fs::read(agent(&env, "wal")).unwrap();
    env.adopt("two");
    fs::write(agent(&env, "wal"), older).unwrap();
    findings(&env, 0);
    goes_on(&env);
}

#[test]
fn a_journal_ref_that_is_lost_comes_back_from_the_log() {
    let env = TestEnv::new();
    env.adopt("one");
    let name = env.journal();
    let tip = env.git(&["rev-parse", &name]);
    for damage in [Some("garbage\n"), Some(""), None] {
        env.spoil_ref(&name, damage);
        let report = env.ap(&["fsck", "--json"]).exits(0).json();
        assert_eq!(report["healedRefs"], serde_json::json!([name]), "{damage:?}");
        assert_eq!(env.git(&["rev-parse", &name]), tip);
    }
    goes_on(&env);
}

/// Every file of the git directory with its bytes, but for the lock that whoever looks takes.
pub(crate) fn all_files(env: &TestEnv) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![env.repo().join(".git")]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                found.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_dry_run_changes_nothing_and_names_what_is_wrong() {
    let env = TestEnv::new();
    env.adopt("one");
    env.governed("f.txt");
    let name = env.journal();
    let tip = env.git(&["rev-parse", &name]);
    let seek = fs::read_dir(agent(&env, "seek")).unwrap().next().unwrap().unwrap().path();
    fs::write(&seek, b"wrong from its first byte on, and longer than a head is").unwrap();
    fs::write(agent(&env, "tmp/apt-left"), b"left").unwrap();
    for damage in [Some("garbage\n"), None] {
        env.spoil_ref(&name, damage);
        let before = all_files(&env);
        let told = env.ap(&["fsck", "--repair", "-n", "--json"]).exits(1).json();
        let said = env.ap(&["fsck", "--repair", "-n"]).exits(1).out();
        let after = all_files(&env);
        let changed: Vec<_> = before.iter().filter(|(p, b)| after.get(*p) != Some(*b)).collect();
        assert!(changed.is_empty() && before.len() == after.len(), "{changed:?}");
        let findings = told["findings"].as_array().unwrap();
        let of_ref = findings.iter().find(|f| f["subject"] == name.as_str()).expect(&said);
        assert!(text(of_ref, "what").contains(&format!("the log says {tip}")), "{of_ref}");
        assert!(said.contains("tmp/apt-left"), "{said}");
        assert!(said.contains(&name) && !said.contains("mended"), "{said}");
        let said = env.ap(&["fsck"]).out();
        assert!(said.contains(&format!("mended: {name} is where the log says again")), "{said}");
        fs::write(&seek, b"wrong from its first byte on, and longer than a head is").unwrap();
    }
    let told = env.ap(&["fsck", "--repair"]).exits(0);
    assert!(told.out().contains("nothing is wrong"), "{told}");
}

#[test]
fn a_journal_that_diverged_is_explained_and_left_alone() {
    let env = TestEnv::new();
    env.adopt("one");
    let (name, tip) = (env.journal(), env.git(&["rev-parse", &env.journal()]));
    let other = env.git(&["rev-parse", "HEAD"]);
    env.git(&["update-ref", &name, &other]);
    env.ap(&["session", "list"]).exits(2);
    let found = findings(&env, 2);
    assert_eq!(text(&found[0], "code"), "journal-diverged");
    let what = text(&found[0], "what");
    let advice = format!("git update-ref {name} {tip} {other}");
    assert!(what.contains(&advice), "{what}");
    assert_eq!(found[0]["repair"], Value::Null);
    let done = repair(&env).exits(2).json();
    assert_eq!(count(&done, "repaired"), 0, "{done}");
    assert_eq!(env.git(&["rev-parse", &name]), other);
    // What it says is what helps.
    let words: Vec<&str> = advice.split(' ').skip(1).collect();
    env.git(&words);
    goes_on(&env);
}

#[test]
fn files_of_ours_that_are_damaged_are_told_anew() {
    let env = TestEnv::new();
    env.adopt("one");
    env.ap(&["gc"]).exits(0);
    let own = env.journal();
    for (file, data) in [("writer", &b""[..]), ("recovered", b"{"), ("packs", b"\xff\n")] {
        fs::write(agent(&env, file), data).unwrap();
        let found = findings(&env, 1);
        assert_eq!(text(&found[0], "subject"), format!("agentproto/{file}"));
        repairs(&env, 1);
        assert_eq!(fs::read(agent(&env, &format!("damaged/{file}.1"))).unwrap(), data);
    }
    let seek = fs::read_dir(agent(&env, "seek")).unwrap().next().unwrap().unwrap().path();
    let good = fs::read(&seek).unwrap();
    let mut forged = good.clone();
    forged[40] ^= 1;
    fs::write(&seek, forged).unwrap();
    let found = findings(&env, 0);
    assert_eq!((found.len(), text(&found[0], "subject")), (1, "the index of events".to_owned()));
    assert_eq!(text(&found[0], "severity"), "note");
    repairs(&env, 1);
    assert_eq!(fs::read(&seek).unwrap(), good);
    assert_eq!(env.journal(), own);
    goes_on(&env);
}

#[test]
fn a_missing_guard_against_packed_refs_is_made_again() {
    let env = TestEnv::new();
    env.adopt("one");
    let file = env.repo().join(".git/packed-refs");
    if !file.exists() {
        return crate::house::skipped("refs are in tables");
    }
    fs::remove_file(file).unwrap();
    assert_eq!(text(&findings(&env, 1)[0], "subject"), "packed-refs");
    repairs(&env, 1);
    goes_on(&env);
}

#[test]
fn lost_and_damaged_notes_are_written_again_from_the_journal() {
    let env = TestEnv::new();
    let (_, commit) = env.governed("f.txt");
    let first = env.git(&["rev-parse", "HEAD~1"]);
    let acks = "refs/notes/agentproto/acks";
    let whole = |env: &TestEnv| {
        assert_eq!(env.note_lines("acks", &commit, "agentproto-ack/1 approve ").len(), 1);
        assert_eq!(env.note_lines("gates", &commit, "agentproto-gate/1 pass ").len(), 1);
    };
    whole(&env);
    // Somebody rewrites our note and has one of their own.
    let add = ["notes", "--ref=agentproto/acks", "add", "-f", "-m"];
    env.git(&[&add[..], &["a person's words", &commit]].concat());
    env.git(&[&add[..], &["on another commit", &first]].concat());
    assert_eq!(text(&findings(&env, 1)[0], "code"), "store-unusable");
    repairs(&env, 1);
    whole(&env);
    assert_eq!(env.note_lines("acks", &commit, "a person's words").len(), 1);
    assert_eq!(env.note_lines("acks", &first, "on another commit").len(), 1);
    // Both refs are gone.
    env.git(&["update-ref", "-d", acks]);
    env.git(&["update-ref", "-d", "refs/notes/agentproto/gates"]);
    repairs(&env, 2);
    whole(&env);
    // What is there is no notes at all.
    let (words, id) = if env.is_reftable() {
        // git lets nobody put an id there that names nothing.
        ("ref: refs/heads/nowhere\n", env.git(&["rev-parse", "HEAD^{tree}"]))
    } else {
        ("garbage\n", "1".repeat(commit.len()))
    };
    for (number, held) in [(1, words.to_owned()), (2, format!("{id}\n"))] {
        env.spoil_ref(acks, Some(&held));
        assert!(findings(&env, 1).iter().any(|f| f["subject"] == acks));
        repairs(&env, 2);
        whole(&env);
        let kept = fs::read_to_string(agent(&env, &format!("damaged/notes-acks.{number}")));
        assert_eq!(kept.unwrap(), held);
    }
    goes_on(&env);
}

#[test]
fn packs_that_cannot_be_merged_are_told_and_appending_goes_on() {
    let env = TestEnv::new();
    for label in ["one", "two"] {
        env.adopt(label);
        env.ap(&["gc"]).exits(0);
    }
    findings(&env, 0);
    let list = fs::read_to_string(agent(&env, "packs")).unwrap();
    let name = list.lines().last().unwrap();
    // All it holds is elsewhere, too.
    env.git(&["repack", "-q", "-a"]);
    let pack = env.repo().join(".git/objects/pack").join(format!("{name}.pack"));
    let mut bytes = fs::read(&pack).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::remove_file(&pack).unwrap();
    fs::write(&pack, bytes).unwrap();
    let found = findings(&env, 1);
    assert_eq!((text(&found[0], "subject").as_str(), found.len()), (name, 1), "{found:?}");
    let what = text(&found[0], "what");
    assert!(what.contains("does not read back") && what.contains("git repack -a -d"), "{what}");
    assert_eq!(found[0]["repair"], Value::Null);
    env.adopt("three");
    env.git(&["repack", "-q", "-a", "-d"]);
    assert!(!pack.exists());
    findings(&env, 0);
    // A merge that fails for another reason.
    let merging = agent(&env, "merging");
    fs::remove_dir_all(&merging).unwrap();
    fs::write(&merging, "").unwrap();
    let found = findings(&env, 1);
    assert_eq!(text(&found[0], "what"), "it is a regular file, not a directory");
    assert!(text(&found[0], "repair").contains("agentproto/damaged"), "{found:?}");
    let what = text(&found[1], "what");
    assert!(what.starts_with("they are not merged: "), "{what}");
    env.adopt("four");
    fs::remove_file(&merging).unwrap();
    goes_on(&env);
}

#[test]
fn a_note_of_the_last_event_that_cannot_be_read_is_never_fine() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let writer = env.journal().split('/').nth(3).unwrap().to_owned();
    let note = env.home().join(format!(".local/state/agentproto/writers/{writer}.tip"));
    let good = fs::read_to_string(&note).unwrap();
    let damages = [
        String::new(),
        "garbage\n".repeat(40),
        good.trim_end().to_owned(),
        good.replacen("00", "01", 1),
        format!("{good}\n"),
    ];
    for damage in damages {
        fs::write(&note, &damage).unwrap();
        let verify = env.ap(&["verify", "--json"]).exits(2).json();
        let journal = &verify["journals"][0];
        assert_eq!((&verify["ok"], &journal["ok"]), (&false.into(), &false.into()), "{damage:?}");
        let why = text(&journal["problem"], "why");
        assert!(why.contains(note.to_str().unwrap()) && why.contains("cannot be told"), "{why}");
        let found = findings(&env, 1);
        assert_eq!((text(&found[0], "subject").as_str(), found.len()), (note.to_str().unwrap(), 1));
        assert_eq!(fs::read_to_string(&note).unwrap(), damage, "a look changes nothing");
        // It is told once more by whoever writes it anew.
        let adopt = env.ap(&["session", "adopt", "--label", "s", "--cwd", "."]).exits(0);
        assert!(adopt.err().contains("it may have been set back"), "{adopt}");
        let tip = env.git(&["rev-parse", &env.journal()]);
        assert!(fs::read_to_string(&note).unwrap().contains(&tip));
        env.ap(&["verify", "HEAD~1..HEAD"]).exits(0);
        let adopt = env.ap(&["session", "adopt", "--label", "s", "--cwd", "."]).exits(0);
        assert!(!adopt.err().contains("set back"), "{adopt}");
    }
    // Nothing takes the place of a directory.
    fs::remove_file(&note).unwrap();
    fs::create_dir(&note).unwrap();
    env.adopt("s");
    env.ap(&["verify"]).exits(2);
    assert_eq!(findings(&env, 1).len(), 1);
    let strays = fs::read_dir(note.parent().unwrap()).unwrap();
    let names: Vec<_> = strays.map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    fs::remove_dir(&note).unwrap();
    goes_on(&env);
}

#[test]
fn without_its_directory_nothing_is_wrong() {
    let env = TestEnv::new();
    env.governed("f.txt");
    fs::remove_dir_all(agent(&env, "")).unwrap();
    findings(&env, 0);
    goes_on(&env);
}

#[test]
fn what_cannot_be_repaired_is_told_and_stays() {
    let env = TestEnv::new();
    env.adopt("one");
    env.git(&["update-ref", "refs/agentproto/mine", "HEAD"]);
    let found = findings(&env, 1);
    assert_eq!(
        (text(&found[0], "subject").as_str(), &found[0]["repair"]),
        ("refs/agentproto/mine", &Value::Null)
    );
    let done = repair(&env).exits(1).json();
    assert_eq!((count(&done, "repaired"), count(&done, "findings")), (0, 1), "{done}");
    env.git(&["rev-parse", "refs/agentproto/mine"]);
    // A look from inside a session changes nothing of trust.
    env.tool(&["fsck", "--repair"]).env("AGENTPROTO_SESSION_ID", "x").done().exits(1);
}

#[test]
fn a_dry_run_belongs_to_a_repair() {
    TestEnv::bare().ap(&["fsck", "--dry-run"]).exits(129);
}

/// Puts a note with this line more on a commit, as anybody can.
fn add_line(env: &TestEnv, name: &str, commit: &str, line: &str) {
    let notes = format!("--ref=agentproto/{name}");
    env.git(&["notes", &notes, "append", "-m", line, commit]);
}

#[test]
fn lines_that_no_journal_tells_of_are_found_and_those_of_others_are_a_note() {
    let env = TestEnv::new();
    let (_, commit) = env.governed("f.txt");
    findings(&env, 0);
    let gate = env.note_lines("gates", &commit, "agentproto-gate/")[0].clone();
    let ack = env.note_lines("acks", &commit, "agentproto-ack/")[0].clone();
    // Words of people are nobody's business.
    add_line(&env, "gates", &commit, "looks good to me");
    assert_eq!(findings(&env, 0).len(), 0);
    let other = env.git(&["rev-parse", &format!("{commit}~1")]);
    let policy = value(&gate, "policy").to_owned();
    let stranger = gate.replace(&policy, "pol_01arz3ndektsv4rrffq69g5fav");
    let unreadable = "agentproto-gate/9 who knows";
    for (line, severity, exit) in [
        (gate.replace(" pass ", " fail "), "problem", 1),
        (stranger, "note", 0),
        (unreadable.to_owned(), "note", 0),
    ] {
        assert_ne!(line, gate);
        add_line(&env, "gates", &other, &line);
        let found = findings(&env, exit);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(text(&found[0], "severity"), severity, "{found:?}");
        assert_eq!(text(&found[0], "subject"), format!("refs/notes/agentproto/gates on {other}"));
        env.git(&["notes", "--ref=agentproto/gates", "remove", &other]);
    }
    let forged = ack.replace("signer=ada", "signer=eve");
    assert_ne!(forged, ack);
    add_line(&env, "acks", &commit, &forged);
    let found = findings(&env, 1);
    assert_eq!((found.len(), text(&found[0], "code").as_str()), (1, "forged"), "{found:?}");
    // A line that the journal tells of, on another commit, is a copy and says nothing new.
    env.git(&["notes", "--ref=agentproto/acks", "remove", &commit]);
    repairs(&env, 1);
    add_line(&env, "gates", &other, &gate);
    findings(&env, 0);
    // The same commits and notes in a clone that has no journal of them.
    add_line(&env, "gates", &commit, &gate.replace(" pass ", " fail "));
    findings(&env, 1);
    env.git_in(&env.path(""), &["clone", "-q", env.repo().to_str().unwrap(), "clone"]);
    let there = env.path("clone");
    env.git_in(&there, &["fetch", "-q", "origin", "refs/notes/*:refs/notes/*"]);
    env.ap_in(&there, &["fsck"]).exits(0);
    // One that fetched the journal knows what was written.
    let remote = "refs/agentproto/journal/*:refs/agentproto/remotes/origin/journal/*";
    env.git_in(&there, &["fetch", "-q", "origin", remote]);
    let report = env.ap_in(&there, &["fsck", "--json"]).exits(0).json();
    assert_eq!(count(&report, "findings"), 1, "only the forged line: {report}");
}

#[test]
fn what_a_landing_needs_to_go_on_is_left_to_it() {
    let env = TestEnv::new();
    let policy = env.awaiting("f.txt");
    let lock = env.held_landing(&policy);
    let record = agent(&env, &format!("tmp/index-lock.{policy}.."));
    fs::write(&record, "what a killed landing left").unwrap();
    let found = findings(&env, 0);
    assert!(found.iter().all(|f| text(f, "severity") == "note"), "{found:?}");
    let about = |f: &Value| text(f, "subject") == record.display().to_string();
    assert_eq!(found.iter().filter(|f| about(f)).count(), 1, "{found:?}");
    repair(&env).exits(0);
    assert!(record.exists(), "a repair took it away");
    fs::remove_file(&lock).unwrap();
    env.ap(&["wait", &policy, "--until", "done", "--timeout", "30s"]).exits(0);
    assert!(!record.exists());
    // Of a policy that is over nobody needs it.
    fs::write(&record, "nobody's").unwrap();
    findings(&env, 1);
    repairs(&env, 1);
    goes_on(&env);
}

#[test]
fn a_state_that_cannot_be_read_whole_is_found_though_no_event_of_late_touched_it() {
    let env = TestEnv::new();
    let old = env.adopt("old");
    for n in 0..6 {
        env.adopt(&format!("later {n}"));
    }
    env.ap(&["gc"]).exits(0);
    let journal = env.journal();
    let path = format!("open/{}/{old}.json", old.chars().last().unwrap());
    let object = env.git(&["rev-parse", &format!("{journal}:{path}")]);
    let packs = env.repo().join(".git/objects/pack");
    let mut hurt = 0;
    for entry in fs::read_dir(&packs).unwrap() {
        let index = entry.unwrap().path();
        if index.extension().is_none_or(|e| e != "idx") {
            continue;
        }
        let listed = env.git(&["verify-pack", "-v", index.to_str().unwrap()]);
        let Some(line) = listed.lines().find(|line| line.starts_with(&object)) else { continue };
        let offset: usize = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        let pack = index.with_extension("pack");
        let mut bytes = fs::read(&pack).unwrap();
        bytes[offset + 3..offset + 9].fill(0xff);
        fs::remove_file(&pack).unwrap();
        fs::write(&pack, bytes).unwrap();
        hurt += 1;
    }
    assert_eq!(hurt, 1, "{object} is in one pack");
    let found = findings(&env, 2);
    let words: Vec<String> = found.iter().map(|f| text(f, "what")).collect();
    assert!(words.iter().any(|w| w.contains("not all of the state after event")), "{words:?}");
}

#[test]
fn what_an_agent_leaves_is_no_finding_and_what_lies_in_its_place_is() {
    let env = TestEnv::new();
    let words = ["session", "start", "--json", "--reprompt", "--prompt", "hello", "--", "cat"];
    let session = text(&env.ap(&words).exits(0).json(), "sessionId");
    assert!(env.ap(&["session", "output", &session]).exits(0).out().contains("hello"));
    findings(&env, 0);

    let place = agent(&env, &format!("local/{session}.json"));
    fs::write(&place, "{}").unwrap();
    let found = findings(&env, 1);
    assert_eq!(text(&found[0], "subject"), place.display().to_string());
    repairs(&env, 1);

    let output = agent(&env, "output");
    for (path, is) in
        [(output.join("stray"), "a regular file"), (output.join(&session).join("0"), "a directory")]
    {
        if is == "a directory" {
            fs::create_dir(&path).unwrap();
        } else {
            fs::write(&path, "kept").unwrap();
        }
        let found = findings(&env, 1);
        assert_eq!(text(&found[0], "subject"), path.display().to_string());
        assert!(text(&found[0], "what").starts_with(&format!("it is {is}, not a")), "{found:?}");
        repairs(&env, 1);
    }
    goes_on(&env);
}

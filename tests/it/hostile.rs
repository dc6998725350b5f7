//! Files of ours in whose place something hostile lies: a fifo that nobody writes to, a directory, a file without end.
//! Every command ends at once and says which file it is; what reads only goes on where it can.

use crate::{
    env::{Output, TestEnv, is_long},
    house::text,
};
use serde_json::Value;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Far above what any command takes here, far below what it takes to wait for somebody.
const AT_ONCE: Duration = Duration::from_secs(20);

fn git_dir(env: &TestEnv, below: &str) -> PathBuf {
    env.repo().join(".git").join(below)
}

fn clear(path: &Path) {
    let Ok(found) = fs::symlink_metadata(path) else { return };
    if found.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

fn put_fifo(env: &TestEnv, path: &Path) {
    clear(path);
    env.run("mkfifo", &[path]).dir(env.path("")).done().exits(0);
}

/// The program itself: git waits for some of its own files, too.
#[track_caller]
fn at_once(env: &TestEnv, args: &[&str], what: &str) -> Output {
    let begun = Instant::now();
    let done = env.binary(args).done();
    assert!(begun.elapsed() < AT_ONCE, "{what}: {args:?} waited\n{done}");
    assert!(done.code() <= 6, "{what}: {done}");
    done
}

const COMMANDS: [&[&str]; 8] = [
    &["status"],
    &["log"],
    &["events", "--json"],
    &["session", "list"],
    &["verify"],
    &["fsck", "--json"],
    &["gc"],
    &["session", "adopt", "--label", "s", "--cwd", "."],
];

/// A store that has every kind of file of ours.
fn lived_in() -> TestEnv {
    let env = TestEnv::new();
    env.governed("f.txt");
    env.ap(&["gc"]).exits(0);
    env.adopt("one");
    env
}

fn writer(env: &TestEnv) -> String {
    env.journal().split('/').nth(3).unwrap().to_owned()
}

fn small_files(env: &TestEnv) -> Vec<PathBuf> {
    let agent = git_dir(env, "agentproto");
    let mut files: Vec<PathBuf> =
        ["writer", "packs", "kept", "dropped", "recovered", "wal", "wal2", "lock", "packing/lock"]
            .iter()
            .map(|name| agent.join(name))
            .collect();
    files.push(agent.join("live/pol_00000000000000000000000000.gate"));
    let seek = fs::read_dir(agent.join("seek")).unwrap();
    files.extend(seek.map(|entry| entry.unwrap().path()));
    files
}

#[test]
fn a_fifo_in_the_place_of_a_file_of_ours_is_named_by_fsck_and_waited_for_by_nobody() {
    let env = lived_in();
    for path in small_files(&env) {
        put_fifo(&env, &path);
        let shown = path.display().to_string();
        for args in COMMANDS {
            at_once(&env, args, &shown);
            // Who writes may put a sound file there: the next one is tried like the first.
            put_fifo(&env, &path);
        }
        let report = env.binary(&["fsck", "--json"]).done();
        assert_ne!(report.code(), 0, "{shown}: {report}");
        let report = report.json();
        let findings = report["findings"].as_array().unwrap();
        let named = findings.iter().find(|f| text(f, "subject") == shown);
        let named = named.unwrap_or_else(|| panic!("{shown} is not named: {report}"));
        assert_eq!(text(named, "code"), "not-a-regular-file");
        assert_eq!(text(named, "what"), "it is a fifo, not a regular file");
        let done = env.binary(&["fsck", "--repair", "--json"]).done().exits(0).json();
        assert_eq!((&done["ok"], &done["notRepaired"]), (&true.into(), &Value::Array(vec![])));
        assert!(!path.exists() || path.is_file(), "{shown} is still in the way");
        env.adopt("after");
        env.assert_no_gap();
        env.ap(&["fsck"]).exits(0);
    }
    let kept = fs::read_dir(git_dir(&env, "agentproto/damaged")).unwrap().count();
    assert!(kept >= small_files(&env).len(), "only {kept} were kept");
}

#[test]
fn a_fifo_in_the_place_of_a_file_of_gits_or_of_a_person_is_named_and_waited_for_by_nobody() {
    let env = lived_in();
    let (tip, state) = (env.journal(), env.home().join(".local/state/agentproto/writers"));
    env.git(&["pack-refs", "--all"]);
    env.adopt("loose");
    let settings = fs::read_dir(env.home().join(".config/agentproto/repos"));
    let mut person: Vec<PathBuf> = settings
        .into_iter()
        .flatten()
        .flat_map(|repo| {
            let dir = repo.unwrap().path();
            ["settings", "allowed_signers", "allowed-commands.json"].map(|name| dir.join(name))
        })
        .collect();
    person.extend([state.join(writer(&env)), state.join(format!("{}.tip", writer(&env)))]);
    let mut gits = vec![git_dir(&env, "HEAD"), git_dir(&env, "index")];
    if !env.is_reftable() {
        gits.extend([git_dir(&env, &tip), git_dir(&env, "packed-refs")]);
    }
    for path in person.into_iter().chain(gits) {
        let held = fs::read(&path).ok();
        let shown = path.display().to_string();
        for args in COMMANDS {
            put_fifo(&env, &path);
            let done = at_once(&env, args, &shown);
            if done.code() != 0 && path.starts_with(env.repo()) {
                let told = done.err() + &done.out();
                assert!(told.contains("not-a-regular-file"), "{shown}: {done}");
                assert!(told.contains(path.file_name().unwrap().to_str().unwrap()), "{done}");
            }
        }
        clear(&path);
        if let Some(held) = held {
            fs::write(&path, held).unwrap();
        }
        env.assert_no_gap();
    }
}

#[test]
fn a_file_without_end_is_not_read_into_memory_and_can_be_put_aside() {
    let env = lived_in();
    for name in ["writer", "packs", "kept", "dropped", "recovered"] {
        let path = git_dir(&env, "agentproto").join(name);
        clear(&path);
        File::create(&path).unwrap().set_len(5 << 30).unwrap();
        let tried = at_once(&env, &["session", "adopt", "--label", "s", "--cwd", "."], name);
        if tried.code() != 0 {
            assert!(tried.err().contains("[file-over-limit]"), "{name}: {tried}");
            assert!(tried.err().contains(path.to_str().unwrap()), "{name}: {tried}");
        }
        clear(&path);
        File::create(&path).unwrap().set_len(5 << 30).unwrap();
        let report = env.ap(&["fsck", "--json"]).json();
        assert_eq!(report["ok"], false, "{name}: {report}");
        let done = env.ap(&["fsck", "--repair", "--json"]).exits(0).json();
        assert_eq!(done["ok"], true, "{name}: {done}");
        env.adopt("after");
        env.assert_no_gap();
    }
}

#[test]
fn a_directory_for_a_file_and_a_file_for_a_directory_are_told_and_put_aside() {
    let env = lived_in();
    let agent = git_dir(&env, "agentproto");
    let files = ["writer", "packs", "kept", "dropped", "recovered", "wal", "lock"];
    let directories = [
        "tmp", "packing", "merging", "seek", "live", "logs", "local", "slots", "output", "damaged",
        "",
    ];
    let places = files.iter().map(|n| (*n, true)).chain(directories.iter().map(|n| (*n, false)));
    for (nth, (name, is_file)) in places.enumerate() {
        let path = if name.is_empty() { agent.clone() } else { agent.join(name) };
        clear(&path);
        let what = if is_file {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("kept"), "kept").unwrap();
            "it is a directory, not a regular file"
        } else {
            fs::write(&path, "kept").unwrap();
            "it is a regular file, not a directory"
        };
        // Each command at some of the places; at all of them on the long floor.
        let mine = |at: usize| is_long() || at % 3 == nth % 3;
        for args in COMMANDS.iter().enumerate().filter(|(at, _)| mine(*at)).map(|(_, args)| args) {
            let done = at_once(&env, args, name);
            let told = done.err() + &done.out();
            let coded = told.contains("not-a-regular-file");
            assert!(done.code() == 0 || coded, "'{name}': {done}");
        }
        let report = env.ap(&["fsck", "--json"]).json();
        let findings = report["findings"].as_array().unwrap();
        let shown = path.display().to_string();
        let named = findings.iter().find(|f| text(f, "subject") == shown);
        let named = named.unwrap_or_else(|| panic!("{shown} is not named: {report}"));
        assert_eq!(
            (text(named, "what").as_str(), text(named, "code").as_str()),
            (what, "not-a-regular-file")
        );
        env.ap(&["fsck", "--repair", "--json"]).exits(0);
        env.adopt("after");
        env.assert_no_gap();
        env.ap(&["fsck"]).exits(0);
        let leaf = path.file_name().unwrap().to_str().unwrap();
        let kept = fs::read_dir(agent.join("damaged")).unwrap();
        let kept =
            kept.filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with(leaf));
        assert!(kept.count() > 0, "{shown} is not kept");
    }
}

#[test]
fn what_a_person_names_may_be_a_pipe() {
    let env = TestEnv::new();
    env.script("ok", "exit 0");
    env.write("f.txt", "changed\n");
    let exe = env!("CARGO_BIN_EXE_git-agentproto");
    let line = format!(
        "printf 'f.txt\\n' | {exe} commit --paths-from /dev/stdin -F <(printf 'from a pipe\\n') --json -- ./ok"
    );
    let done = env.run("bash", &["-c", &line]).done();
    assert_eq!(done.json()["paths"][0], "f.txt", "{done}");
    assert_eq!(done.json()["message"], "from a pipe\n", "{done}");
}

#[test]
fn a_branch_or_tag_that_is_a_fifo_is_refused_by_name_where_a_revision_is_read() {
    let env = TestEnv::new();
    if env.run("git", &["rev-parse", "--show-ref-format"]).done().out().trim() == "reftable" {
        return;
    }
    env.git(&["branch", "side"]);
    for name in ["refs/heads/side", "refs/tags/odd", "refs/heads/main"] {
        let file = env.repo().join(".git").join(name);
        let kept = fs::read(&file).ok();
        let _ = fs::remove_file(&file);
        env.run("mkfifo", &[file.to_str().unwrap()]).done().exits(0);
        let short = name.rsplit('/').next().unwrap();
        for revision in [name, short, &format!("main..{short}"), &format!("{short}~1")] {
            let out = env.ap(&["verify", revision]);
            assert!(!matches!(out.code(), 0 | 1), "{revision}: {out}");
        }
        fs::remove_file(&file).unwrap();
        if let Some(kept) = kept {
            fs::write(&file, kept).unwrap();
        }
    }
    env.git(&["rev-parse", "main"]);
}

#[test]
fn a_fifo_that_head_leads_to_is_named_by_every_command_and_waited_for_by_none() {
    let env = lived_in();
    if env.is_reftable() {
        return;
    }
    let session = env.adopt("two");
    let (main, link) = (git_dir(&env, "refs/heads/main"), git_dir(&env, "refs/heads/link"));
    let held = fs::read(&main).unwrap();
    put_fifo(&env, &main);
    fs::write(link, "ref: refs/heads/main\n").unwrap();
    let flags = ["--path", "a.txt", "-m", "m", "--", "true"];
    let mut commands: Vec<Vec<&str>> = COMMANDS.iter().map(|args| args.to_vec()).collect();
    commands.extend([
        vec!["verify", "HEAD"],
        vec!["verify", "link"],
        vec!["status", &session],
        vec!["allow", "--", "true"],
        [&["commit"], &flags[..]].concat(),
        [&["attach", &session], &flags[..]].concat(),
        vec!["session", "report", &session, "turn-end"],
        vec!["wait", &session, "--timeout", "1s"],
    ]);
    for args in &commands {
        let done = at_once(&env, args, "HEAD leads to a fifo");
        let told = done.err() + &done.out();
        let reads_it = ["verify", "commit", "attach"].contains(&args[0]);
        assert!(!reads_it || told.contains("not-a-regular-file"), "{done}");
        assert!(!reads_it || told.contains("refs/heads/main"), "{done}");
    }
    clear(&main);
    fs::write(&main, held).unwrap();
    env.assert_no_gap();
}

#[test]
fn garbage_in_a_file_of_gits_is_told_by_fsck_and_misleads_nobody() {
    let env = lived_in();
    let side = env.worktree("side");
    env.git(&["pack-refs", "--all"]);
    let mut packed = fs::read(git_dir(&env, "packed-refs")).unwrap_or_default();
    packed.truncate(packed.len().saturating_sub(3));
    let index = fs::read(git_dir(&env, "index")).unwrap();
    let flipped = |at: usize| {
        let mut bytes = index.clone();
        bytes[at] ^= 0x41;
        bytes
    };
    let of_head: Vec<Vec<u8>> =
        vec![b"garbage\n".to_vec(), vec![], vec![0xff; 99], b"ref: x y".to_vec()];
    let mut of_index = vec![b"garbage\n".to_vec(), vec![], b"DIRC".to_vec(), index[..40].to_vec()];
    of_index.extend([4, 11, 20, 70, index.len() - 30, index.len() - 1].map(flipped));
    let mut damages = vec![
        (git_dir(&env, "HEAD"), of_head.clone()),
        (git_dir(&env, "worktrees/side/HEAD"), of_head),
        (git_dir(&env, "index"), of_index.clone()),
        (git_dir(&env, "worktrees/side/index"), of_index),
    ];
    if !env.is_reftable() {
        let words = b"# pack-refs with: peeled\n# not the first line\n".to_vec();
        let packed = vec![b"garbage\n".to_vec(), packed, b"^no\n".to_vec(), vec![0; 99], words];
        damages.push((git_dir(&env, "packed-refs"), packed));
    }
    for (path, all) in damages {
        let held = fs::read(&path).unwrap();
        for (nth, damage) in all.iter().enumerate() {
            let shown = path.display().to_string();
            fs::write(&path, damage).unwrap();
            let report = at_once(&env, &["fsck", "--json"], &shown);
            assert_ne!(report.code(), 0, "{shown} holds {damage:?}: {report}");
            let report = report.json();
            let named = report["findings"].as_array().unwrap().iter();
            let named: Vec<_> = named.filter(|f| text(f, "subject") == shown).collect();
            assert_eq!(named.len(), 1, "{shown} holds {damage:?}: {report}");
            // All of them beside each damage: on the long floor.
            let commands = if nth == 0 || is_long() { &COMMANDS[..] } else { &COMMANDS[..0] };
            for args in commands {
                let done = at_once(&env, args, &shown);
                assert!(!done.err().contains("panicked"), "{shown} holds {damage:?}: {done}");
            }
            fs::write(&path, &held).unwrap();
            env.assert_no_gap();
        }
    }
    env.ap_in(&side, &["fsck"]).exits(0);
}

#[test]
fn a_stray_file_among_the_runs_is_told_by_fsck_put_aside_and_no_matter_for_gc() {
    let env = lived_in();
    let live = git_dir(&env, "agentproto/live");
    let ours = "land.pol_00000000000000000000000000";
    for (name, held) in [("stray", ""), ("no name of ours", "x"), (ours, "garbage"), ("x.y", "{}")]
    {
        let path = live.join(name);
        fs::write(&path, held).unwrap();
        env.ap(&["gc"]).exits(0);
        let report = env.ap(&["fsck", "--json"]).exits(1).json();
        let found = report["findings"].as_array().unwrap();
        assert_eq!((found.len(), text(&found[0], "subject")), (1, path.display().to_string()));
        env.ap(&["fsck", "--repair"]).exits(0);
        assert!(!path.exists(), "{name} is still there");
        assert!(git_dir(&env, &format!("agentproto/damaged/{name}.1")).exists());
    }
    // One of ours without a record was begun this moment.
    fs::write(live.join(ours), "").unwrap();
    fs::write(live.join("agent.ses_00000000000000000000000000"), "").unwrap();
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn what_lies_in_the_place_of_the_notes_outside_holds_up_nothing_and_is_named() {
    let env = lived_in();
    let state = env.home().join(".local/state/agentproto");
    let kept = env.path("kept");
    for dir in [state.clone(), state.join("writers")] {
        fs::rename(&dir, &kept).unwrap();
        let shown = dir.display().to_string();
        put_fifo(&env, &dir);
        for args in COMMANDS {
            let done = at_once(&env, args, &shown);
            assert!(done.code() == 0 || args[0] == "fsck" || args[0] == "verify", "{done}");
        }
        let report = env.ap(&["fsck", "--json"]).exits(1).json();
        let findings = report["findings"].as_array().unwrap();
        let named = findings.iter().find(|f| text(f, "subject") == shown);
        let named = named.unwrap_or_else(|| panic!("{shown} is not named: {report}"));
        assert_eq!(text(named, "code"), "not-a-regular-file");
        assert!(text(named, "what").starts_with("it is a fifo, not a directory"), "{named}");
        clear(&dir);
        fs::rename(&kept, &dir).unwrap();
        env.ap(&["fsck"]).exits(0);
        env.assert_no_gap();
    }
}

#[test]
fn a_fifo_in_the_place_of_rules_about_files_is_named_and_waited_for_by_nobody() {
    let env = lived_in();
    env.write("sub/f.txt", "1\n");
    fs::create_dir(env.repo().join("away")).unwrap();
    let commit = ["commit", "--path", "sub/f.txt", "-m", "m", "--label", "l", "--", "true"];
    for name in
        [".gitignore", ".gitattributes", "sub/.gitignore", "sub/.gitattributes", "away/.gitignore"]
    {
        let fifo = env.repo().join(name);
        put_fifo(&env, &fifo);
        let done = at_once(&env, &commit, name);
        let told = done.err() + &done.out();
        assert!(done.code() == 2 && told.contains("not-a-regular-file"), "{name}: {done}");
        at_once(&env, &["wait", "l", "--timeout", "1s"], name);
        at_once(&env, &["supervise", "--once"], name);
        fs::remove_file(fifo).unwrap();
        env.ap(&["policy", "dismiss", "l"]);
    }
    env.ap(&commit).exits(5);
}

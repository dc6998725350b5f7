//! Every kind of repository and surroundings: the whole job works there, or it is refused by name.
//!
//! "Works" means the main flow: adopt, attach, report, gate, ack, land, and then `verify`, `events`, `fsck` and git's own
//! fsck have nothing to object to, and nothing but the listed file has changed. What this user or machine cannot
//! set up (mounts, foreign owners) is printed as skipped.

use crate::{
    env::{Output, TestEnv},
    house::{skipped, text},
};
use serde_json::{Value, json};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

/// Where and how commands are run.
struct At<'a> {
    env: &'a TestEnv,
    dir: PathBuf,
    vars: Vec<(&'static str, OsString)>,
}

fn at(env: &TestEnv, dir: impl Into<PathBuf>) -> At<'_> {
    At { env, dir: dir.into(), vars: Vec::new() }
}

impl At<'_> {
    fn var(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.vars.push((name, value.into()));
        self
    }

    fn run(&self, program: &str, args: &[&str]) -> Output {
        let mut run = self.env.run(program, args).dir(&self.dir);
        for (name, value) in &self.vars {
            run = run.env(name, value);
        }
        run.done()
    }

    fn ap(&self, args: &[&str]) -> Output {
        self.run("git", &[&["agentproto"], args].concat())
    }

    #[track_caller]
    fn git(&self, args: &[&str]) -> String {
        self.run("git", args).exits(0).out().trim_end().to_owned()
    }

    /// The main flow, over a file of its own.
    #[track_caller]
    fn works(&self) {
        let adopt = self.ap(&["session", "adopt", "--label", "flow", "--cwd", ".", "--json"]);
        let session = text(&adopt.exits(0).json(), "sessionId");
        let name = format!("{}.txt", &session[session.len() - 6..]);
        fs::write(self.dir.join(&name), &session).unwrap();
        let staged = self.git(&["diff", "--cached", "--name-status"]);
        let attach = ["attach", &session, "--then", "commit", "--path", &name, "-m", "m", "--json"];
        let attach = self.ap(&[&attach[..], &["--", "true"]].concat());
        let attached = attach.exits(0).json();
        assert_eq!(attached["notices"], json!([]), "nothing is odd");
        let policy = text(&attached, "policyId");
        self.ap(&["session", "report", &session, "turn-end"]).exits(0);
        self.ap(&["wait", &policy, "--until", "settled", "--timeout", "60s"]).exits(5);
        self.ap(&["ack", &policy, "--yes"]).exits(0);
        self.ap(&["wait", &policy, "--until", "done", "--timeout", "60s"]).exits(0);

        let shown = self.ap(&["policy", "show", &policy, "--json"]).exits(0).json();
        let commit = text(&shown, "commitSha");
        assert_eq!(self.git(&["rev-parse", "HEAD"]), commit);
        let prefix = self.git(&["rev-parse", "--show-prefix"]);
        let changed = self.git(&["diff", "--name-status", &format!("{commit}^"), &commit]);
        assert_eq!(changed, format!("A\t{prefix}{name}"));
        assert_eq!(self.git(&["diff", "--cached", "--name-status"]), staged, "others' staging");
        let range = format!("{commit}^..{commit}");
        let verified = self.ap(&["verify", &range, "--json"]).exits(0).json();
        assert_eq!(verified["commits"][0]["outcome"], "governed", "{verified:#}");
        let events = self.ap(&["events", "--limit", "1000", "--json"]).exits(0).json();
        assert!(events["events"].as_array().unwrap().len() >= 8, "{events:#}");
        self.ap(&["fsck"]).exits(0);
        self.git(&["fsck", "--strict", "--no-dangling"]);
    }

    /// Recording is refused with this code, in one JSON object, and leaves no trace.
    #[track_caller]
    fn refuses(&self, code: &str, exit: i32) {
        let before = self.env.snapshot_of(&self.dir);
        let out =
            self.ap(&["session", "adopt", "--label", "s", "--cwd", ".", "--json"]).exits(exit);
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["error"]["code"], code, "{out}");
        before.assert_same(&self.env.snapshot_of(&self.dir), "a refusal");
    }
}

fn cloned(env: &TestEnv, options: &[&str], name: &str) -> PathBuf {
    let source = format!("file://{}", env.repo().display());
    let args = [&["clone", "-q"], options, &[&source, name]].concat();
    env.run("git", &args).dir(env.path("")).done().exits(0);
    env.path(name)
}

/// A file system of its own, gone at the end whatever happens; none where this user may not mount.
struct Mount<'a> {
    env: &'a TestEnv,
    dir: PathBuf,
}

impl<'a> Mount<'a> {
    fn new(env: &'a TestEnv, name: &str, size: &str) -> Option<Self> {
        let dir = env.path(name);
        fs::create_dir(&dir).unwrap();
        let options = format!("size={size}");
        let mount = ["-t", "tmpfs", "-o", &options, "none", dir.to_str().unwrap()];
        (env.run("mount", &mount).done().code() == 0).then_some(Self { env, dir })
    }

    fn repo(&self) -> PathBuf {
        let to = self.dir.join("r");
        let from = self.env.repo();
        let copy = [OsStr::new("-a"), from.as_os_str(), to.as_os_str()];
        self.env.run("cp", &copy).done().exits(0);
        to
    }
}

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        self.env.run("umount", &["-l", self.dir.to_str().unwrap()]).done();
    }
}

#[test]
fn worktrees_and_git_directories_wherever_they_are() {
    let env = TestEnv::new();
    let linked = env.worktree("linked");
    at(&env, &linked).works();
    fs::create_dir(env.repo().join("deep")).unwrap();
    at(&env, env.repo().join("deep")).works();
    env.run("git", &["init", "-q", "--separate-git-dir", "sep.git", "sep"])
        .dir(env.path(""))
        .done()
        .exits(0);
    let separate = env.make_repo("sep");
    assert!(separate.join(".git").is_file());
    at(&env, &separate).works();
    let beside = env.path("sep-linked");
    env.git_in(&separate, &["worktree", "add", "-q", "-b", "x", beside.to_str().unwrap()]);
    at(&env, &beside).works();
    at(&env, &separate).works();
    let inner = env.make_repo("inner");
    env.git(&["submodule", "add", "-q", inner.to_str().unwrap(), "sub"]);
    env.git(&["commit", "-qm", "sub"]);
    at(&env, env.repo().join("sub")).works();
    assert!(env.repo().join(".git/modules/sub/agentproto/writer").is_file());
    let dash_c = env.run("git", &["-C", "r", "agentproto", "status"]).dir(env.path("")).done();
    dash_c.exits(0);
}

#[test]
fn every_way_to_name_the_repository() {
    let env = TestEnv::new();
    let git_dir = env.repo().join(".git");
    at(&env, env.repo()).var("GIT_DIR", ".git").works();
    at(&env, env.repo()).var("GIT_DIR", &git_dir).var("GIT_WORK_TREE", env.repo()).works();
    let linked = env.worktree("linked");
    at(&env, &linked)
        .var("GIT_DIR", git_dir.join("worktrees/linked"))
        .var("GIT_COMMON_DIR", &git_dir)
        .var("GIT_WORK_TREE", &linked)
        .works();
    // A top that only the environment, then only the configuration, knows.
    let top = env.path("top");
    for (name, configured) in [("by-env", false), ("by-config", true)] {
        let repo = env.make_repo(name);
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(top.join("deep")).unwrap();
        // Below the top: where nobody said which that is, it would be taken for the top.
        let mut there = at(&env, top.join("deep")).var("GIT_DIR", repo.join(".git"));
        if configured {
            env.git_in(&repo, &["config", "core.worktree", top.to_str().unwrap()]);
        } else {
            there = there.var("GIT_WORK_TREE", &top);
        }
        there.git(&["checkout", "-q", "-f", "main"]);
        there.works();
    }
}

#[test]
fn a_foreign_index_or_more_objects_in_the_environment_change_nothing() {
    let env = TestEnv::new();
    let elsewhere = env.path("elsewhere");
    fs::write(&elsewhere, "no index").unwrap();
    let session = env.adopt("s");
    env.write("f.txt", "f\n");
    let foreign = |args: &[&str]| env.tool(args).env("GIT_INDEX_FILE", &elsewhere).done();
    let attach = ["attach", &session, "--then", "commit", "--path", "f.txt", "-m", "m", "--json"];
    let attach = foreign(&[&attach[..], &["--", "ls", "f.txt"]].concat());
    let policy = text(&attach.exits(0).json(), "policyId");
    foreign(&["session", "report", &session, "turn-end"]).exits(0);
    foreign(&["wait", &policy, "--until", "settled", "--timeout", "60s"]).exits(5);
    foreign(&["ack", &policy, "--yes"]).exits(0);
    assert_eq!(fs::read(&elsewhere).unwrap(), b"no index", "another index was written");
    assert_eq!(env.git(&["status", "--porcelain"]), "");

    let other = env.make_repo("other");
    let objects = other.join(".git/objects");
    at(&env, env.repo()).var("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects).works();
}

#[test]
fn a_bare_repository_is_read_and_works_through_its_worktrees() {
    let env = TestEnv::new();
    let bare = cloned(&env, &["--bare"], "b.git");
    at(&env, &bare).refuses("bare-unsupported", 6);
    at(&env, &bare).ap(&["status"]).exits(0);
    // Nothing was ever recorded: not a pass.
    at(&env, &bare).ap(&["verify"]).exits(2);
    // What is called .git may be bare, too; configuration of its own then says so.
    for in_worktree_scope in [false, true] {
        let above = env.path(&format!("above-{in_worktree_scope}"));
        let dot_git = above.join(".git");
        env.git(&["clone", "-q", "--bare", ".", dot_git.to_str().unwrap()]);
        if in_worktree_scope {
            let config = |args: &[&str]| env.git_in(&dot_git, &[&["config"], args].concat());
            config(&["extensions.worktreeConfig", "true"]);
            config(&["--unset", "core.bare"]);
            config(&["--file", "config.worktree", "core.bare", "true"]);
        }
        at(&env, &above).refuses("bare-unsupported", 6);
    }
    env.git_in(&bare, &["worktree", "add", "-q", "-b", "w", "../bw"]);
    let linked = env.path("bw");
    at(&env, &linked).works();
    let seen = at(&env, &bare).ap(&["session", "list", "--json"]).exits(0).out();
    assert!(seen.contains("\"flow\""), "{seen}");
    at(&env, &bare).ap(&["verify", "main..w"]).exits(0);
    at(&env, &bare).ap(&["fsck"]).exits(0);
}

/// The words without those of the form `3 s ago`, which change while one looks.
fn ageless(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    for word in text.split_whitespace() {
        if word == "ago" {
            words.truncate(words.len().saturating_sub(2));
        } else {
            words.push(word);
        }
    }
    words
}

#[test]
fn inside_a_git_directory_everything_can_be_read() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let inside = at(&env, env.repo().join(".git"));
    let outside = at(&env, env.repo());
    for command in [&["session", "list"][..], &["log"], &["events", "--json"], &["verify"]] {
        let (there, here) = (inside.ap(command), outside.ap(command));
        assert_eq!(there.code(), here.code(), "{command:?}");
        assert_eq!(ageless(&there.out()), ageless(&here.out()), "{command:?}");
    }
    inside.refuses("cwd-not-in-worktree", 6);
}

#[test]
fn nothing_is_written_from_within_a_quarantine() {
    let env = TestEnv::new();
    let hub = cloned(&env, &["--bare"], "hub.git");
    let hook = hub.join("hooks/pre-receive");
    fs::create_dir_all(hub.join("hooks")).unwrap();
    fs::write(
        &hook,
        "#!/bin/sh\ngit agentproto session adopt --label s --cwd . >&2\necho rc=$? >&2\n",
    )
    .unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    env.write("a.txt", "pushed\n");
    env.git(&["commit", "-qam", "pushed"]);
    let pushed = env.run("git", &["push", "-q", hub.to_str().unwrap(), "main"]).done().exits(0);
    assert!(pushed.err().contains("[quarantine]") && pushed.err().contains("rc=6"), "{pushed}");
    assert!(!hub.join("agentproto").exists());
}

#[test]
fn borrowed_objects_work_and_their_loss_is_no_pass() {
    let env = TestEnv::new();
    let shared = env.path("shared");
    env.git(&["clone", "-q", "--shared", ".", shared.to_str().unwrap()]);
    at(&env, &shared).works();
    let (objects, gone) = (env.repo().join(".git/objects"), env.path("gone"));
    fs::rename(&objects, &gone).unwrap();
    let verify = at(&env, &shared).ap(&["verify"]).exits(2);
    assert!(verify.err().contains("store-unusable"), "{verify}");
    let fsck = at(&env, &shared).ap(&["fsck"]);
    assert_ne!(fsck.code(), 0, "{fsck}");
    fs::rename(&gone, &objects).unwrap();
    at(&env, &shared).works();
}

#[test]
fn a_shallow_clone_takes_its_id_from_fetched_journals() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let shallow = cloned(&env, &["--depth=1"], "shallow");
    at(&env, &shallow).refuses("shallow-unsupported", 6);
    let spec = "refs/agentproto/journal/*:refs/agentproto/remotes/origin/journal/*";
    env.git_in(&shallow, &["fetch", "-q", "origin", spec]);
    at(&env, &shallow).works();
    let repo_id = |dir: &Path| {
        let names =
            env.git_in(dir, &["for-each-ref", "--format=%(refname)", "refs/agentproto/journal"]);
        let first = env.git_in(dir, &["rev-list", "--max-parents=0", &names]);
        env.git_in(dir, &["log", "-1", "--format=%(trailers:key=Repo,valueonly)", &first])
    };
    assert_eq!(repo_id(&shallow), repo_id(&env.repo()));

    // Journals of two repositories tell nothing.
    let other = env.make_repo("other");
    env.git_in(&other, &["commit", "-q", "--amend", "-m", "another root"]);
    env.ap_in(&other, &["session", "adopt", "--label", "s", "--cwd", "."]).exits(0);
    let spec = "refs/agentproto/journal/*:refs/agentproto/remotes/other/journal/*";
    env.git_in(&shallow, &["fetch", "-q", other.to_str().unwrap(), spec]);
    let out =
        at(&env, &shallow).ap(&["commit", "--path", "a.txt", "-m", "m", "--", "true"]).exits(6);
    assert!(out.err().contains("different repositories"), "{out}");
}

#[test]
fn a_partial_clone_is_refused_by_name_even_for_reading() {
    let env = TestEnv::new();
    env.git(&["config", "uploadpack.allowFilter", "true"]);
    let partial = cloned(&env, &["--filter=blob:none"], "partial");
    at(&env, &partial).refuses("partial-clone-unsupported", 6);
    at(&env, &partial).ap(&["verify"]).exits(6);
}

#[test]
fn a_format_of_the_future_is_refused_by_name() {
    let env = TestEnv::new();
    for (key, value) in [("extensions.noSuchThing", "true"), ("core.repositoryFormatVersion", "7")]
    {
        let repo = env.make_repo(&format!("by-{value}"));
        env.git_in(&repo, &["config", "core.repositoryFormatVersion", "1"]);
        env.git_in(&repo, &["config", key, value]);
        let out = at(&env, &repo).run(
            env!("CARGO_BIN_EXE_git-agentproto"),
            &["session", "adopt", "--label", "s", "--cwd", "."],
        );
        assert!(out.exits(6).err().contains("repository-format-unsupported"));
        assert!(!repo.join(".git/agentproto").exists());
    }
}

/// A name and the git commands that bring a repository into this state.
type Kind = (&'static str, &'static [&'static [&'static str]]);

const KINDS: &[Kind] = &[
    ("cone", &[&["sparse-checkout", "set", "--cone", ".agentproto"]]),
    ("sparse-index", &[&["sparse-checkout", "set", "--cone", "--sparse-index", ".agentproto"]]),
    ("no-cone", &[&["sparse-checkout", "set", "--no-cone", "/*", "!/d"]]),
    ("split-index", &[&["update-index", "--split-index"]]),
    ("untracked-cache", &[&["update-index", "--untracked-cache"]]),
    ("index-v4", &[&["update-index", "--index-version", "4"]]),
    ("fsync-all", &[&["config", "core.fsync", "all"], &["config", "core.fsyncMethod", "batch"]]),
    (
        "precious",
        &[
            &["config", "core.repositoryFormatVersion", "1"],
            &["config", "extensions.preciousObjects", "true"],
        ],
    ),
    ("auto-gc", &[&["config", "gc.auto", "1"], &["config", "gc.autoDetach", "false"]]),
    (
        "graphs",
        &[
            &["repack", "-adbq"],
            &["multi-pack-index", "write", "--bitmap"],
            &["commit-graph", "write", "--reachable"],
        ],
    ),
    ("hooks-nowhere", &[&["config", "core.hooksPath", "nowhere/hooks"]]),
    ("hooks-null", &[&["config", "core.hooksPath", "/dev/null"]]),
    ("packed-refs", &[&["pack-refs", "--all"]]),
];

#[test]
fn sparse_split_cached_and_otherwise_configured_repositories() {
    let env = TestEnv::bare();
    let next = std::sync::Mutex::new(KINDS.iter());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some((name, commands)) = next.lock().unwrap().next() else { break };
                    let repo = env.make_repo(name);
                    fs::create_dir(repo.join("d")).unwrap();
                    fs::write(repo.join("d/x"), "x\n").unwrap();
                    env.git_in(&repo, &["add", "d"]);
                    env.git_in(&repo, &["commit", "-qm", "d"]);
                    for command in *commands {
                        env.git_in(&repo, command);
                    }
                    let index = env.git_in(&repo, &["ls-files", "--sparse", "-s"]);
                    at(&env, &repo).works();
                    at(&env, &repo).works();
                    // Two files more, and everything else of the index as it was.
                    let later = env.git_in(&repo, &["ls-files", "--sparse", "-s"]);
                    let lost: Vec<_> =
                        index.lines().filter(|line| !later.lines().any(|l| l == *line)).collect();
                    assert!(lost.is_empty(), "{name}: {lost:?} in {later}");
                    assert_eq!(later.lines().count(), index.lines().count() + 2, "{name}: {later}");
                    assert_eq!(env.git_in(&repo, &["status", "--porcelain"]), "", "{name}");
                    // Nor was anything beside the listed file taken for changed.
                    let verified = at(&env, &repo).ap(&["verify", "HEAD^..HEAD", "--json"]);
                    let verified = verified.exits(0).json();
                    assert_eq!(verified["commits"][0]["unlistedChanges"], 0, "{name}: {verified}");
                }
            });
        }
    });
}

#[test]
fn worktree_configuration_and_relative_links() {
    let env = TestEnv::new();
    env.git(&["config", "extensions.worktreeConfig", "true"]);
    env.git(&["config", "worktree.useRelativePaths", "true"]);
    let linked = env.worktree("linked");
    // An older git writes whole paths whatever it is told.
    let admin = env.repo().join(".git/worktrees/linked");
    fs::write(admin.join("gitdir"), "../../../../linked/.git\n").unwrap();
    fs::write(linked.join(".git"), "gitdir: ../r/.git/worktrees/linked\n").unwrap();
    env.git_in(&linked, &["config", "--worktree", "user.name", "Ben Other"]);
    at(&env, &linked).works();
    assert_eq!(env.git_in(&linked, &["log", "-1", "--format=%an"]), "Ben Other");
    at(&env, env.repo()).works();
    assert_eq!(env.git(&["log", "-1", "--format=%an"]), "Ada Example");
    assert_eq!(env.git_in(&linked, &["status", "--porcelain"]), "");
}

#[test]
fn a_program_that_watches_files_for_git_is_not_believed_by_verify() {
    let env = TestEnv::new();
    let ran = env.path("ran");
    env.write_script(
        "../fsmonitor",
        &format!("#!/bin/sh\n: > {}\nprintf 'x\\0/\\0'\n", ran.display()),
    );
    env.git(&["config", "core.fsmonitor", env.path("fsmonitor").to_str().unwrap()]);
    at(&env, env.repo()).works();
    let _ = fs::remove_file(&ran);
    for command in [&["verify"][..], &["status"], &["fsck"], &["log"]] {
        env.ap(command).exits(0);
    }
    assert!(!ran.exists(), "repository configuration has run a program");
}

#[test]
fn names_of_directories_are_bytes() {
    let env = TestEnv::new();
    let names: [&[u8]; 5] =
        [b"with space", b"new\nline", b"-dash", b"quote'\"$x", b"bad\xff\xfebytes"];
    for name in names {
        let dir = env.path("").join(OsStr::from_bytes(name));
        fs::create_dir(&dir).unwrap();
        env.run("cp", &[OsStr::new("-a"), env.repo().join(".").as_os_str(), dir.as_os_str()])
            .done()
            .exits(0);
        at(&env, &dir).works();
    }
    let part = "long".repeat(50);
    let mut deep = env.path("");
    while deep.as_os_str().len() < 3_000 {
        deep.push(&part);
    }
    // git and the kernel have a limit of their own near 4,096.
    fs::create_dir_all(&deep).unwrap();
    env.run("cp", &[OsStr::new("-a"), env.repo().as_os_str(), deep.as_os_str()]).done().exits(0);
    at(&env, deep.join("r")).works();
}

#[test]
fn a_worktree_whose_name_cannot_be_written_down_is_refused_alone() {
    let env = TestEnv::new();
    let odd = env.path("").join(OsStr::from_bytes(b"odd\xff"));
    let add = ["worktree", "add", "-q", "-b", "odd"].map(OsStr::new);
    env.run("git", &[&add[..], &[odd.as_os_str()]].concat()).done().exits(0);
    at(&env, &odd).refuses("worktree-name-unsupported", 6);
    at(&env, env.repo()).works();
}

#[test]
fn a_repository_of_another_user_needs_the_persons_word() {
    if !rustix::process::geteuid().is_root() {
        skipped("a repository of another user: only root can make one");
        return;
    }
    let env = TestEnv::new();
    let foreign = env.make_repo("foreign");
    env.run("chown", &["-R", "12345", foreign.to_str().unwrap()]).done().exits(0);
    let refused =
        at(&env, &foreign).ap(&["session", "adopt", "--label", "s", "--cwd", "."]).exits(128);
    assert!(refused.err().contains("foreign-owned-repository"), "{refused}");
    assert!(!foreign.join(".git/agentproto").exists());
    env.global("safe.directory", foreign.to_str().unwrap());
    at(&env, &foreign).works();
}

#[test]
fn a_repository_everybody_may_write_works() {
    let env = TestEnv::new();
    env.run("chmod", &["-R", "a+rwX", "."]).done().exits(0);
    at(&env, env.repo()).works();
}

/// Commands that only look.
const LOOKING: &[&[&str]] = &[
    &["status"],
    &["log"],
    &["events"],
    &["session", "list"],
    &["policy", "list", "--all"],
    &["verify"],
];

/// Ages grow while one looks: all words but those before `ago`.
fn without_ages(text: &str) -> Vec<String> {
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        if word == "ago" {
            let unit = words.pop();
            let number = words.pop().and_then(|n| n.parse::<u64>().ok());
            assert!(unit.is_some() && number.is_some(), "no age: {text}");
        }
        words.push(word);
    }
    words.into_iter().map(str::to_owned).collect()
}

#[test]
fn a_read_only_repository_is_read_and_never_written() {
    let env = TestEnv::new();
    let Some(mount) = Mount::new(&env, "mount", "32m") else {
        skipped("a read-only file system: this user may not mount");
        return;
    };
    let repo = mount.repo();
    let there = at(&env, &repo);
    there.works();
    let answers = || -> Vec<_> {
        let ask = |command: &&'static [&'static str]| {
            let (text, json) = (there.ap(command), there.ap(&[*command, &["--json"]].concat()));
            let told = [&text, &json].map(|o| (o.code(), o.err()));
            (*command, told, without_ages(&text.out()), json.out())
        };
        LOOKING.iter().map(ask).collect()
    };
    let before = answers();
    let remount = |how: &str| {
        let options = format!("remount,{how}");
        env.run("mount", &["-o", &options, mount.dir.to_str().unwrap()]).done().exits(0);
    };
    remount("ro");
    assert_eq!(answers(), before);
    for command in LOOKING {
        there.ap(command).exits(0);
    }
    for command in [
        &["session", "adopt", "--label", "x", "--cwd", "."][..],
        &["session", "report", "flow", "turn-start"],
        &["commit", "--path", "a.txt", "-m", "m", "--ungated"],
    ] {
        let out = there.ap(command).exits(2);
        assert!(out.err().contains("[read-only]"), "{out}");
    }
    there.ap(&["fsck", "--repair", "-n"]).exits(0);
    let fsck = there.ap(&["fsck"]).exits(0);
    assert!(
        fsck.out().contains("nothing could be mended") && fsck.out().contains("all hold"),
        "{fsck}"
    );
    remount("rw");
    there.works();
}

#[test]
fn a_full_disk_loses_nothing() {
    let env = TestEnv::new();
    let Some(mount) = Mount::new(&env, "mount", "12m") else {
        skipped("a full disk: this user may not mount");
        return;
    };
    let repo = mount.repo();
    let there = at(&env, &repo);
    let adopt = |label: &str| there.ap(&["session", "adopt", "--label", label, "--cwd", "."]);
    adopt("before").exits(0);
    let filler = mount.dir.join("filler");
    env.run("dd", &["if=/dev/zero", &format!("of={}", filler.display()), "bs=1k"]).done();
    let full: Vec<Output> = (0..3).map(|i| adopt(&format!("full-{i}"))).collect();
    let recorded: Vec<bool> = full.iter().map(|o| o.code() == 0).collect();
    for out in full.iter().filter(|o| o.code() != 0) {
        assert!(out.code() == 2 && out.err().contains("[io-error]"), "{out}");
    }
    assert!(recorded.contains(&false), "it was not full");
    for command in LOOKING {
        there.ap(command).exits(0);
    }
    fs::remove_file(&filler).unwrap();
    adopt("after").exits(0);
    let list = there.ap(&["session", "list", "--json"]).exits(0).out();
    let known = |label: &str| list.contains(&format!("\"{label}\""));
    assert!(known("before") && known("after"), "{list}");
    for (i, recorded) in recorded.iter().enumerate() {
        assert_eq!(known(&format!("full-{i}")), *recorded, "{list}");
    }
    there.ap(&["fsck"]).exits(0);
    there.works();
}

#[test]
fn without_file_descriptors_it_fails_with_a_word_and_goes_on_later() {
    let env = TestEnv::new();
    env.adopt("before");
    let program = env!("CARGO_BIN_EXE_git-agentproto");
    let mut failed = 0;
    for limit in 4..12 {
        let script =
            format!("ulimit -n {limit}; exec {program} session adopt --label n{limit} --cwd .");
        let out = env.run("sh", &["-c", &script]).done();
        if out.code() != 0 {
            assert!(out.code() == 2 || out.code() == 128 || out.code() == 127, "{out}");
            failed += 1;
        }
        let known = env.ap(&["session", "list"]).exits(0).out().contains(&format!("n{limit} "));
        assert_eq!(known, out.code() == 0, "{out}");
    }
    assert!(failed > 0, "descriptors did not run out");
    env.ap(&["fsck"]).exits(0);
    env.assert_no_gap();
}

#[test]
fn without_git_on_the_path_reading_works_and_a_commit_says_what_is_missing() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let program = env!("CARGO_BIN_EXE_git-agentproto");
    let alone = at(&env, env.repo()).var("PATH", "/nowhere");
    for command in LOOKING {
        alone.run(program, command).exits(0);
    }
    env.write("a.txt", "changed\n");
    let out = alone.run(program, &["commit", "--path", "a.txt", "-m", "m", "--ungated"]).exits(2);
    assert!(format!("{out}").contains("git-failed"), "{out}");
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn without_a_home_reading_works_and_what_needs_settings_is_refused() {
    let env = TestEnv::new();
    env.governed("f.txt");
    let homeless = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"]
        .into_iter()
        .fold(at(&env, env.repo()), |at, name| at.var(name, ""));
    for command in LOOKING.iter().filter(|c| **c != ["verify"]) {
        homeless.ap(command).exits(0);
    }
    let verify = homeless.ap(&["verify"]);
    assert_ne!(verify.code(), 0, "signers cannot be told: {verify}");
    env.write("a.txt", "changed\n");
    let out = homeless.ap(&["commit", "--path", "a.txt", "-m", "m", "--ungated"]).exits(6);
    assert!(out.err().contains("neither HOME nor XDG_CONFIG_HOME"), "{out}");
}

#[test]
fn the_first_append_leaves_a_packed_refs_file_where_refs_are_files() {
    let env = TestEnv::new();
    let packed = env.repo().join(".git/packed-refs");
    let _ = fs::remove_file(&packed);
    fs::remove_dir_all(env.repo().join(".git/agentproto")).ok();
    env.adopt("s");
    if env.is_reftable() {
        assert!(!packed.exists(), "a file that git never looks at");
        return;
    }
    let text = fs::read_to_string(packed).expect("creating refs is only safe beside one");
    assert!(text.starts_with('#'), "{text}");
}

/// A link in the place of one of our directories, or of a file that is written in place: what it leads to is
/// somebody else's, and neither written nor cleared away.
#[test]
fn links_in_the_place_of_our_files_are_not_followed() {
    let env = TestEnv::new();
    let session = env.adopt("s");
    let agent = env.repo().join(".git/agentproto");
    let theirs = env.path("theirs");
    fs::create_dir(&theirs).unwrap();
    let content = |name: &str| fs::read_to_string(theirs.join(name)).unwrap();
    let fill =
        || ["new.txt", "tmp_1.1"].map(|name| fs::write(theirs.join(name), "theirs").unwrap());
    fill();
    for name in ["tmp", "packing", "merging", "logs", "seek", "live", "slots", "output"] {
        let (dir, kept) = (agent.join(name), env.path(&format!("{name}.kept")));
        let there = fs::rename(&dir, &kept).is_ok();
        std::os::unix::fs::symlink(&theirs, &dir).unwrap();
        let refused = [&["gc"][..], &["session", "report", &session, "turn-start"]];
        let told = [&["fsck"][..], &["fsck", "--repair", "-n"]];
        for words in refused.into_iter().chain(told) {
            let out = env.ap(words);
            let said = out.err() + &out.out();
            assert!(out.code() != 0 && said.contains("symbolic link"), "{name} {words:?}: {out}");
        }
        env.ap(&["fsck", "--repair"]).exits(0);
        assert!(fs::symlink_metadata(&dir).map_or(true, |found| found.is_dir()), "{name}");
        let aside = agent.join(format!("damaged/{name}.1"));
        assert_eq!(fs::read_link(aside).ok(), Some(theirs.clone()), "{name}");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 2, "{name}");
        if there {
            let _ = fs::remove_dir_all(&dir);
            fs::rename(&kept, &dir).unwrap();
        }
    }
    let lock = agent.join("lock");
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink(theirs.join("made"), &lock).unwrap();
    assert_ne!(env.ap(&["session", "report", &session, "turn-start"]).code(), 0);
    assert!(!theirs.join("made").exists());
    fs::remove_file(&lock).unwrap();
    for dir in [agent.join("seek"), env.home().join(".local/state/agentproto/writers")] {
        for file in fs::read_dir(&dir).unwrap().map(|f| f.unwrap().path()) {
            if file.file_name().is_some_and(|n| n == "lock") || file.extension().is_none() {
                continue;
            }
            fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink(theirs.join("new.txt"), &file).unwrap();
        }
    }
    env.ap(&["session", "report", &session, "turn-start"]);
    assert_eq!(
        (content("new.txt"), content("tmp_1.1")),
        ("theirs".to_owned(), "theirs".to_owned())
    );
}

#[test]
fn a_worktree_that_was_moved_by_hand_has_its_index_after_a_landing_and_works_once_repaired() {
    let env = TestEnv::new();
    let session = env.adopt_in(&env.worktree("linked"), "s");
    let policy = env.awaiting_of(&session, &env.path("linked"), "f.txt");
    let moved = env.path("moved");
    fs::rename(env.path("linked"), &moved).unwrap();
    for command in [&["ack", &policy, "--yes"] as &[&str], &["status"], &["verify"]] {
        let refused = env.ap_in(&moved, command).exits(128).err();
        assert!(refused.contains("moved by hand: run git worktree repair in it"), "{refused}");
    }
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.git_in(&moved, &["status", "--porcelain"]), "");
    env.git_in(&moved, &["worktree", "repair"]);
    fs::write(moved.join("g.txt"), "g\n").unwrap();
    let args = ["commit", "--json", "--path=g.txt", "-m", "g", "--", "true"];
    let again = text(&env.ap_in(&moved, &args).exits(5).json(), "policyId");
    env.ap_in(&moved, &["ack", &again, "--yes"]).exits(0);
    assert_eq!(env.git_in(&moved, &["status", "--porcelain"]), "");
    env.ap(&["fsck"]).exits(0);
}

#[test]
fn a_worktree_whose_path_holds_a_newline_is_a_worktree() {
    let env = TestEnv::new();
    let odd = env.path("one\ntwo ");
    env.git(&["worktree", "add", "-q", "-b", "odd", odd.to_str().unwrap()]);
    fs::write(odd.join("f.txt"), "f\n").unwrap();
    let args = ["commit", "--json", "--path=f.txt", "-m", "f", "--", "true"];
    let policy = text(&env.ap_in(&odd, &args).exits(5).json(), "policyId");
    env.ap_in(&env.repo(), &["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.git_in(&odd, &["status", "--porcelain"]), "");
    env.ap_in(&odd, &["verify", "odd~1..odd"]).exits(0);
}

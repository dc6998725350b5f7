//! What a repository could plant to have its programs run, or other signers believed, while others are read, verified,
//! acked and landed. Forms are planted and everything is done beside them; git without care runs the same canary.
//!
//! `AGENTPROTO_FLOOR=long` plants each form alone.

use crate::{
    env::{Output, Run, TestEnv, allowlist, is_long},
    house::text,
};
use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt};

/// Most forms planted at once.
const TOGETHER: usize = 4;

/// One form. `CANARY` stands for a program that leaves a trace, `DIR` for a directory outside the repository, `EVE` for
/// a stranger's key, `REPO` for the worktree.
struct Form {
    name: &'static str,
    /// Settings in the repository's own configuration.
    config: &'static [(&'static str, &'static str)],
    /// Files, below the worktree or absolute.
    files: &'static [(&'static str, &'static str)],
    /// Variables of whoever calls.
    vars: &'static [(&'static str, &'static str)],
    /// What plain git is told to show that the form works; none where git asks for a terminal or takes no notice.
    control: &'static [&'static str],
}

const fn config(
    name: &'static str,
    config: &'static [(&'static str, &'static str)],
    control: &'static [&'static str],
) -> Form {
    Form { name, config, files: &[], vars: &[], control }
}

const fn variable(
    name: &'static str,
    vars: &'static [(&'static str, &'static str)],
    control: &'static [&'static str],
) -> Form {
    Form { name, config: &[], files: &[], vars, control }
}

const DIFF: &[&str] = &["diff", "HEAD~1"];
const SSH: &[&str] = &["ls-remote", "ssh://nobody.invalid/x"];
const SIGN: &[&str] = &["commit-tree", "-S", "-m", "x", "HEAD^{tree}"];
const FILL: &[&str] = &["credential", "fill"];
const ALL_X: &[(&str, &str)] = &[(".git/info/attributes", "* diff=x merge=x\n")];

/// While something is read or compared.
const READING: &[Form] = &[
    config("fsmonitor", &[("core.fsmonitor", "CANARY")], &["status"]),
    config(
        "the untracked cache and a monitor",
        &[("core.untrackedCache", "true"), ("core.fsmonitor", "CANARY")],
        &["status"],
    ),
    config("pager", &[("core.pager", "CANARY")], &[]),
    config(
        "pager of each command",
        &[("pager.status", "CANARY"), ("pager.log", "CANARY"), ("pager.diff", "CANARY")],
        &[],
    ),
    config("external diff", &[("diff.external", "CANARY")], DIFF),
    Form { files: ALL_X, ..config("diff driver", &[("diff.x.command", "CANARY")], DIFF) },
    Form {
        files: ALL_X,
        ..config(
            "textconv",
            &[("diff.x.textconv", "CANARY"), ("diff.x.cachetextconv", "true")],
            DIFF,
        )
    },
    Form {
        files: &[("DIR/attributes", "* diff=x\n")],
        ..config(
            "attributes file",
            &[("core.attributesFile", "DIR/attributes"), ("diff.x.command", "CANARY")],
            DIFF,
        )
    },
    Form {
        files: &[("DIR/ignore", "nothing-of-ours\n")],
        ..config(
            "excludes file",
            &[("core.excludesFile", "DIR/ignore"), ("core.fsmonitor", "CANARY")],
            &["status"],
        )
    },
    config(
        "interactive filter",
        &[("interactive.diffFilter", "CANARY"), ("color.ui", "always")],
        &[],
    ),
    config(
        "diff tool",
        &[("diff.tool", "x"), ("difftool.x.cmd", "CANARY"), ("difftool.prompt", "false")],
        &["difftool", "-y", "HEAD~1"],
    ),
    Form {
        files: ALL_X,
        ..config(
            "merge driver",
            &[("merge.x.driver", "CANARY %A")],
            &["merge-tree", "--write-tree", "left", "right"],
        )
    },
    config(
        "gpg while showing",
        &[("log.showSignature", "true"), ("gpg.program", "CANARY")],
        &["log", "-1", "signed"],
    ),
    config(
        "openpgp while showing",
        &[("log.showSignature", "true"), ("gpg.openpgp.program", "CANARY")],
        &["log", "-1", "signed"],
    ),
    config("man viewer", &[("man.viewer", "x"), ("man.x.cmd", "CANARY")], &["help", "-m", "log"]),
    config(
        "browser",
        &[("web.browser", "x"), ("browser.x.cmd", "CANARY")],
        &["web--browse", "http://localhost/"],
    ),
    config(
        "aliases",
        &[
            ("alias.agentproto", "!CANARY"),
            ("alias.canary", "!CANARY"),
            ("alias.status", "!CANARY"),
        ],
        &["canary"],
    ),
    Form {
        files: &[(
            "DIR/included",
            "[core]\n\tfsmonitor = CANARY\n[agentproto]\n\tsigningKey = EVE\n",
        )],
        ..config("include", &[("include.path", "DIR/included")], &["status"])
    },
    Form {
        files: &[("DIR/included", "[core]\n\tfsmonitor = CANARY\n[user]\n\tsigningKey = EVE\n")],
        ..config(
            "conditional include",
            &[("includeIf.gitdir:REPO/.path", "DIR/included")],
            &["status"],
        )
    },
    Form {
        files: &[(
            ".git/config.worktree",
            "[core]\n\tfsmonitor = CANARY\n[agentproto]\n\tsigningKey = EVE\n",
        )],
        ..config("scope of a worktree", &[("extensions.worktreeConfig", "true")], &["status"])
    },
];

/// While something is written, fetched or signed.
const WRITING: &[Form] = &[
    config("editor", &[("core.editor", "CANARY")], &["commit", "--allow-empty"]),
    config("editor of lists", &[("sequence.editor", "CANARY")], &["rebase", "-i", "HEAD~1"]),
    config("ssh", &[("core.sshCommand", "CANARY"), ("ssh.variant", "simple")], SSH),
    config("proxy", &[("core.gitProxy", "CANARY")], &["ls-remote", "git://localhost:1/x"]),
    config("askpass", &[("core.askPass", "CANARY")], FILL),
    config("credential helper", &[("credential.helper", "!CANARY")], FILL),
    config(
        "upload-pack of a remote",
        &[("remote.o.url", "REPO"), ("remote.o.uploadpack", "CANARY")],
        &["ls-remote", "o"],
    ),
    config(
        "receive-pack of a remote",
        &[("remote.o.url", "REPO"), ("remote.o.receivepack", "CANARY")],
        &["push", "o", "HEAD:refs/heads/x"],
    ),
    config(
        "transport",
        &[("remote.o.url", "ext::CANARY"), ("protocol.ext.allow", "always")],
        &["ls-remote", "o"],
    ),
    config(
        "another address",
        &[("url.ext::CANARY x.insteadOf", "foo:"), ("protocol.ext.allow", "always")],
        &["ls-remote", "foo:"],
    ),
    config(
        "remote helper",
        &[("remote.o.vcs", "ext"), ("remote.o.url", "CANARY"), ("protocol.ext.allow", "always")],
        &["ls-remote", "o"],
    ),
    config("pack hook", &[("uploadpack.packObjectsHook", "CANARY")], &[]),
    config(
        "trailer command",
        &[("trailer.x.command", "CANARY"), ("trailer.x.key", "Agentproto-Policy")],
        &["interpret-trailers"],
    ),
    config(
        "trailer cmd",
        &[("trailer.x.cmd", "CANARY"), ("trailer.x.key", "Agentproto-Policy")],
        &["interpret-trailers", "--trailer", "x=1"],
    ),
    config(
        "submodule update",
        &[
            ("submodule.s.update", "!CANARY"),
            ("submodule.s.url", "REPO"),
            ("submodule.recurse", "true"),
        ],
        &[],
    ),
    config(
        "merge of notes",
        &[
            ("notes.mergeStrategy", "ours"),
            ("notes.agentproto/acks.mergeStrategy", "theirs"),
            ("notes.rewriteRef", "refs/notes/*"),
        ],
        &[],
    ),
    config("gpg", &[("gpg.format", "openpgp"), ("gpg.program", "CANARY")], SIGN),
    config(
        "ssh-keygen",
        &[("gpg.format", "ssh"), ("gpg.ssh.program", "CANARY"), ("user.signingKey", "EVE")],
        SIGN,
    ),
    config(
        "command for a key",
        &[("gpg.format", "ssh"), ("gpg.ssh.defaultKeyCommand", "CANARY")],
        SIGN,
    ),
    config("x509", &[("gpg.format", "x509"), ("gpg.x509.program", "CANARY")], SIGN),
    config(
        "maintenance",
        &[
            ("gc.auto", "1"),
            ("maintenance.strategy", "incremental"),
            ("gc.recentObjectsHook", "CANARY"),
        ],
        &[],
    ),
];

/// Other signers and weaker rules.
const RULES: &[Form] = &[
    config("git's key", &[("user.signingKey", "EVE")], &[]),
    config("git's key in an agent", &[("user.signingKey", "key::EVE"), ("gpg.format", "ssh")], &[]),
    config("our key", &[("agentproto.signingKey", "EVE")], &[]),
    Form {
        files: &[("DIR/signers", "SIGNERS")],
        ..config("our signers", &[("agentproto.allowedSignersFile", "DIR/signers")], &[])
    },
    Form {
        files: &[("DIR/signers", "SIGNERS")],
        ..config("git's signers", &[("gpg.ssh.allowedSignersFile", "DIR/signers")], &[])
    },
    Form {
        files: &[(".agentproto/allowed_signers", "SIGNERS")],
        ..config("signers in the worktree", &[], &[])
    },
    config(
        "no ack",
        &[
            ("agentproto.allowNoAck", "true"),
            ("agentproto.ackQuorum", "0"),
            ("agentproto.ackFrom", "any"),
        ],
        &[],
    ),
    config(
        "no rule to be trusted",
        &[("agentproto.trustedRef", "refs/heads/left"), ("agentproto.trustedRules", "0")],
        &[],
    ),
    config(
        "an allowed command",
        &[("agentproto.allowedCommand", "CANARY"), ("agentproto.path", "DIR")],
        &[],
    ),
    Form {
        files: &[
            (
                ".git/config.worktree",
                "[agentproto]\n\tsigningKey = EVE\n\tallowedSignersFile = DIR/signers\n",
            ),
            ("DIR/signers", "SIGNERS"),
        ],
        ..config("key and signers of a worktree", &[("extensions.worktreeConfig", "true")], &[])
    },
];

/// In the environment of whoever calls.
const VARIABLES: &[Form] = &[
    variable("GIT_EXTERNAL_DIFF", &[("GIT_EXTERNAL_DIFF", "CANARY")], DIFF),
    variable("GIT_SSH_COMMAND", &[("GIT_SSH_COMMAND", "CANARY")], SSH),
    variable("GIT_SSH", &[("GIT_SSH", "CANARY"), ("GIT_SSH_VARIANT", "simple")], SSH),
    variable(
        "GIT_PROXY_COMMAND",
        &[("GIT_PROXY_COMMAND", "CANARY")],
        &["ls-remote", "git://localhost:1/x"],
    ),
    variable(
        "editors",
        &[("GIT_EDITOR", "CANARY"), ("EDITOR", "CANARY"), ("VISUAL", "CANARY")],
        &["commit", "--allow-empty"],
    ),
    variable(
        "GIT_SEQUENCE_EDITOR",
        &[("GIT_SEQUENCE_EDITOR", "CANARY")],
        &["rebase", "-i", "HEAD~1"],
    ),
    variable(
        "pagers",
        &[("GIT_PAGER", "CANARY"), ("PAGER", "CANARY"), ("GIT_PAGER_IN_USE", "1")],
        &[],
    ),
    variable(
        "askpass",
        &[("GIT_ASKPASS", "CANARY"), ("SSH_ASKPASS", "CANARY"), ("SSH_ASKPASS_REQUIRE", "force")],
        FILL,
    ),
    variable(
        "counted settings",
        &[
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.fsmonitor"),
            ("GIT_CONFIG_VALUE_0", "CANARY"),
        ],
        &["status"],
    ),
    variable(
        "settings in a word",
        &[("GIT_CONFIG_PARAMETERS", "'core.fsmonitor=CANARY'")],
        &["status"],
    ),
    variable("programs of git", &[("GIT_EXEC_PATH", "DIR/bin")], &["canary"]),
    variable(
        "hooks by settings",
        &[
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "core.hooksPath"),
            ("GIT_CONFIG_VALUE_0", "DIR/hooks"),
        ],
        &["update-ref", "refs/x/y", "HEAD"],
    ),
];

/// The machine with canary, stranger and the commits that the controls need.
struct Garden {
    env: TestEnv,
}

impl Garden {
    fn new() -> Self {
        let env = TestEnv::new();
        let hit = env.path("hit").display().to_string();
        fs::create_dir_all(env.path("dir/bin")).unwrap();
        fs::create_dir_all(env.path("dir/hooks")).unwrap();
        for file in ["canary", "dir/bin/git-canary", "dir/hooks/reference-transaction"] {
            let file = env.path(file);
            fs::write(&file, format!("#!/bin/sh\necho \"$0 $*\" >> '{hit}'\nexit 0\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        env.write("a.txt", "second\n");
        env.git(&["commit", "-qam", "second"]);
        for (branch, words) in [("left", "one\n"), ("right", "two\n")] {
            env.git(&["switch", "-qc", branch, "main"]);
            env.write("a.txt", words);
            env.git(&["commit", "-qam", branch]);
        }
        env.git(&["switch", "-q", "main"]);
        let raw = env.git(&["cat-file", "commit", "main"]);
        let (head, message) = raw.split_once("\n\n").unwrap();
        let sig = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----";
        let raw = format!("{head}\n{sig}\n\n{message}\n");
        let write = env.run("git", &["hash-object", "-t", "commit", "-w", "--stdin"]).stdin(raw);
        let signed = write.done().exits(0).out();
        env.git(&["update-ref", "refs/heads/signed", signed.trim_end()]);
        Self { env }
    }

    fn filled(&self, text: &str) -> String {
        let path = |below: &str| self.env.path(below).display().to_string();
        let signers = format!("* {}\n", self.env.public_key("eve"));
        text.replace("CANARY", &path("canary"))
            .replace("SIGNERS", &signers)
            .replace("DIR", &path("dir"))
            .replace("EVE", &path("eve"))
            .replace("REPO", &path("r"))
    }

    fn with(&self, run: Run, forms: &[&Form]) -> Run {
        let vars = forms.iter().flat_map(|form| form.vars);
        vars.fold(run, |run, (name, value)| run.env(name, self.filled(value)))
    }

    /// The binary itself: what git does on its way to it is not ours.
    fn ours(&self, forms: &[&Form], args: &[&str]) -> Output {
        self.with(self.env.binary(args), forms).done()
    }

    /// Plants the forms, does something beside them and pulls them out.
    fn beside(&self, forms: &[&Form], act: impl FnOnce()) {
        let config = self.env.repo().join(".git/config");
        let kept = fs::read(&config).unwrap();
        for (file, content) in forms.iter().flat_map(|form| form.files) {
            fs::write(self.env.repo().join(self.filled(file)), self.filled(content)).unwrap();
        }
        for (key, value) in forms.iter().flat_map(|form| form.config) {
            self.env.git(&["config", &self.filled(key), &self.filled(value)]);
        }
        let _ = self.hits();
        act();
        fs::write(config, kept).unwrap();
        for (file, _) in forms.iter().flat_map(|form| form.files) {
            fs::remove_file(self.env.repo().join(self.filled(file))).unwrap();
        }
    }

    /// The form works: git without care runs the canary.
    fn control(&self, form: &Form) {
        self.beside(&[form], || {
            let control = self.env.run("git", form.control).stdin("protocol=https\nhost=x\n\n");
            let out = self.with(control, &[form]).done();
            assert_ne!(self.hits(), "", "{}: the canary is none, {out}", form.name);
        });
    }

    fn hits(&self) -> String {
        let file = self.env.path("hit");
        let found = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::remove_file(file);
        found
    }

    /// Everything there is to do beside some forms.
    fn live_beside(&self, nth: usize, forms: &[&Form]) {
        let env = &self.env;
        let name = forms.iter().map(|form| form.name).collect::<Vec<_>>().join(", ");
        let path = format!("file{nth}.txt");
        env.write(&path, "content\n");
        let flag = format!("--path={path}");
        let attach = ["commit", &flag, "-m", "m", "--json", "--", "ls", &path];
        let policy = text(&self.ours(forms, &attach).exits(5).json(), "policyId");
        for args in [
            &["status"][..],
            &["log"],
            &["events"],
            &["policy", "show", &policy],
            &["wait", &policy, "--timeout", "5s"],
            &["ack", "-p", &policy],
        ] {
            let out = self.ours(forms, args);
            assert!([0, 5].contains(&out.code()), "{name}: {out}");
            assert_eq!(self.hits(), "", "{name}: {args:?}");
        }
        let stranger = env.path("eve").display().to_string();
        let out = self.ours(forms, &["ack", &policy, "--yes", "--key", &stranger]).exits(6);
        assert!(out.err().contains("unauthorized"), "{name}: {out}");
        self.ours(forms, &["ack", &policy, "--yes"]).exits(0);
        assert_eq!(self.hits(), "", "{name}: landing");
        let seen = self.ours(forms, &["verify", "main^..main", "--json"]).exits(0).json();
        assert_eq!(text(&seen["commits"][0], "signer"), "ada@example.invalid", "{name}: {seen:#}");
        self.ours(forms, &["fsck"]).exits(0);
        assert_eq!(self.hits(), "", "{name}: judging");
        assert_eq!(env.paths_of("main"), [path], "{name}");
    }
}

/// The forms in their order, as many together as there is time for; none beside another one of the same setting, file or
/// variable.
fn beds(forms: &[Form]) -> Vec<Vec<&Form>> {
    let names = |form: &Form| -> BTreeSet<&str> {
        [form.config, form.files, form.vars].into_iter().flatten().map(|(name, _)| *name).collect()
    };
    let most = if is_long() { 1 } else { TOGETHER };
    let mut beds: Vec<Vec<&Form>> = Vec::new();
    for form in forms {
        let is_free = |bed: &Vec<&Form>| {
            bed.len() < most && bed.iter().all(|other| names(other).is_disjoint(&names(form)))
        };
        match beds.iter_mut().find(|bed| is_free(bed)) {
            Some(bed) => bed.push(form),
            None => beds.push(vec![form]),
        }
    }
    beds
}

fn all_of(forms: &[Form], controls: usize) {
    let garden = Garden::new();
    let working = forms.iter().filter(|form| !form.control.is_empty());
    assert_eq!(working.map(|form| garden.control(form)).count(), controls);
    for (nth, bed) in beds(forms).iter().enumerate() {
        garden.beside(bed, || garden.live_beside(nth, bed));
    }
}

#[test]
fn nothing_planted_for_reading_is_run() {
    all_of(READING, 17);
}

#[test]
fn nothing_planted_for_writing_and_signing_is_run() {
    all_of(WRITING, 17);
}

#[test]
fn no_planted_key_signers_or_rule_is_believed() {
    all_of(RULES, 0);
}

#[test]
fn no_variable_has_a_program_run() {
    all_of(VARIABLES, 11);
}

/// Where git is told to see other objects than there are, what is judged and landed are those that are there.
#[test]
fn replaced_and_grafted_commits_deceive_nobody() {
    let garden = Garden::new();
    let env = &garden.env;
    let policy = env.awaiting("f.txt");
    let candidate = text(&env.policy(&policy), "candidate");
    env.git(&["replace", &candidate, "left"]);
    env.git(&["replace", "main", "right"]);
    let root = env.run("git", &["--no-replace-objects", "rev-parse", "main"]).done().out();
    fs::write(env.repo().join(".git/info/grafts"), root).unwrap();
    assert_eq!(env.git(&["show", "-s", "--format=%s", &candidate]), "left", "git is deceived");
    let shown = env.ap(&["policy", "show", &policy]).exits(0);
    assert!(shown.out().contains(&candidate), "{shown}");
    env.ap(&["status"]).exits(0);
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    assert_eq!(env.git(&["rev-parse", "main"]), candidate);
    env.ap(&["verify", "main^..main"]).exits(0);
    env.ap(&["fsck"]).exits(0);
    let real = ["--no-replace-objects", "diff-tree", "-r", "--name-only", "--no-commit-id", "main"];
    assert_eq!(env.git(&real), "f.txt");
}

/// The user's own wish, which runs by design: filters of a listed path, and the hooks that a commit has. Reading runs none
/// of it.
#[test]
fn filters_and_hooks_run_for_the_commit_and_never_for_a_look() {
    let garden = Garden::new();
    let env = &garden.env;
    let rules = env.repo().join(".agentproto/allowed-commands.json");
    assert_eq!(fs::read_to_string(rules).unwrap(), allowlist(&[]));
    let hit = env.path("hit").display().to_string();
    let script = |file: &str, rest: &str| {
        let file = env.repo().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, format!("#!/bin/sh\necho \"${{0##*/}}\" >> '{hit}'\n{rest}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file.display().to_string()
    };
    let clean = script(".git/clean", "exec cat");
    for name in HOOKS {
        script(&format!(".git/own-hooks/{name}"), "");
    }
    env.git(&["config", "core.hooksPath", ".git/own-hooks"]);
    for key in ["filter.f.clean", "filter.f.smudge"] {
        env.git(&["config", key, &clean]);
    }
    fs::write(env.repo().join(".git/info/attributes"), "*.txt filter=f\n").unwrap();
    let ran = || {
        let mut names: Vec<_> = garden.hits().lines().map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    };
    let _ = ran();
    let policy = env.awaiting("f.txt");
    assert_eq!(ran(), GATING);
    for args in [
        &["status"][..],
        &["log"],
        &["events"],
        &["policy", "show", &policy],
        &["ack", "-p", &policy],
        &["verify"],
        &["fsck"],
    ] {
        env.ap(args);
        assert_eq!(ran(), Vec::<String>::new(), "{args:?}");
    }
    env.ap(&["ack", &policy, "--yes"]).exits(0);
    let mut landing = ran();
    // A file no older than the index is read again, as git does it: its times say nothing.
    landing.retain(|name| name != "clean");
    assert_eq!(landing, LANDING);
    env.ap(&["fsck"]).exits(0);
}

/// Hooks that git knows in a repository at work.
const HOOKS: [&str; 12] = [
    "pre-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "post-checkout",
    "post-merge",
    "post-rewrite",
    "post-index-change",
    "reference-transaction",
    "pre-auto-gc",
    "pre-push",
    "fsmonitor-watchman",
];
/// Those that run before the gate, and the filter.
const GATING: [&str; 4] = ["clean", "commit-msg", "pre-commit", "prepare-commit-msg"];
/// The one that runs once the branch has moved. Those of git's own moves of index and refs do not.
const LANDING: [&str; 1] = ["post-commit"];

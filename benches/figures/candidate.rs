//! A commit of ten files in a repository of twenty thousand: its candidate alone, and the whole governed commit.

use crate::{Outcome, alternate, print, ran};
use git_agentproto::{
    domain::path::RepoPath,
    store::{
        Store,
        candidate::{FixCtx, LoadError, commit_object, fix_tree},
        discover,
        filters::Filters,
        git::Git,
        identity::identity,
    },
    sys::{clock, env::Env},
};
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const DIRS: usize = 200;
const FILES: usize = 100;
/// Files changed for each commit, in as many directories.
const CHANGED: usize = 10;

/// Prints the rows of this file.
pub(crate) fn rows(rounds: usize) -> Outcome {
    let (ours, theirs) = (Big::made()?, Big::made()?);
    let store = Store::open(discover(&ours.env())?, &ours.env())?;
    let rounds = rounds.div_ceil(5);
    let (a, b) = alternate(rounds, || ours.candidate(&store), || theirs.git_commit())?;
    print("candidate of 10 in 20,000 files (durable)", a, "git add, git commit (not durable)", b);
    let (a, b) = alternate(rounds, || ours.governed(), || theirs.git_commit())?;
    print("governed commit of them, gate true", a, "git add, git commit (not durable)", b);
    Ok(())
}

/// A home and a repository of many files.
struct Big {
    lab: tempfile::TempDir,
    round: std::cell::Cell<usize>,
}

impl Big {
    fn made() -> Outcome<Self> {
        let lab = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let big = Self { lab, round: 0.into() };
        for dir in 0..DIRS {
            fs::create_dir_all(big.repo().join(format!("d{dir}")))?;
            for file in 0..FILES {
                fs::write(big.repo().join(format!("d{dir}/f{file}")), format!("{dir} {file}\n"))?;
            }
        }
        let config = "[user]\n\tname = Ada Example\n\temail = ada@example.invalid\n[gc]\n\tauto = 0\n\
                      [agentproto]\n\tallowNoAck = true\n\tallowedCommand = true\n";
        fs::write(big.lab.path().join(".gitconfig"), config)?;
        for args in [&["init", "-q", "-b", "main"][..], &["add", "."], &["commit", "-qm", "init"]] {
            big.git(args)?;
        }
        ran(big.lab.path(), &big.repo(), env!("CARGO_BIN_EXE_git-agentproto"), &["init", "--yes"])?;
        Ok(big)
    }

    fn repo(&self) -> PathBuf {
        self.lab.path().join("repo")
    }

    fn env(&self) -> Env {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let vars: [(OsString, OsString); 3] = [
            ("PATH".into(), path),
            ("HOME".into(), self.lab.path().into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ];
        Env::fixed(self.repo(), vars)
    }

    fn git(&self, args: &[&str]) -> Outcome<String> {
        ran(self.lab.path(), &self.repo(), "git", args)
    }

    /// Changes ten files and names them.
    fn change(&self) -> Outcome<Vec<String>> {
        let round = self.round.replace(self.round.get() + 1);
        let names: Vec<String> = (0..CHANGED)
            .map(|n| format!("d{}/f{}", (round * 7 + n * 19) % DIRS, round % FILES))
            .collect();
        for name in &names {
            fs::write(self.repo().join(name), format!("round {round} of {name}\n"))?;
        }
        Ok(names)
    }

    fn git_commit(&self) -> Outcome<Duration> {
        let names = self.change()?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let begin = Instant::now();
        self.git(&[&["add", "--"][..], &names].concat())?;
        self.git(&["commit", "-qm", "ten files"])?;
        Ok(begin.elapsed())
    }

    /// As a performer builds it: the tree from the files on disk, the commit, both durable and read back.
    fn candidate(&self, store: &Store) -> Outcome<Duration> {
        let names = self.change()?;
        let env = self.env();
        let begin = Instant::now();
        let worktree = store.location().worktree.clone().ok_or("there is no worktree")?;
        let repo = gix::open(&worktree.top)?;
        let git = Git::new(&env, &worktree)?;
        let parent = store.reference("refs/heads/main")?.ok_or("there is no commit")?;
        let load = |id: &_| -> Result<Vec<u8>, LoadError> { Ok(store.object(id)?.data) };
        let scratch = self.lab.path().join("scratch");
        let filters = Filters { repo: &repo, git: &git, scratch: &scratch };
        let paths: Vec<RepoPath> = named(&names)?;
        let ctx = FixCtx { filters, load: &load, allow_submodules: false };
        let tree = fix_tree(ctx, store.commit_tree(&parent)?, &paths)?;
        let who = identity(&repo)?;
        let commit = commit_object(tree.tree, parent, &who, clock::now(), b"ten files\n")?;
        store.write_kept_pack(&tree.objects.into_iter().chain([commit]).collect::<Vec<_>>())?;
        Ok(begin.elapsed())
    }

    /// The whole job by the command line: session, policy, gate, candidate, landing, notes.
    fn governed(&self) -> Outcome<Duration> {
        let names = self.change()?;
        let mut args = vec!["commit", "--no-ack", "-m", "ten files"];
        for name in &names {
            args.extend(["--path", name]);
        }
        args.extend(["--", "true"]);
        let tool = env!("CARGO_BIN_EXE_git-agentproto");
        crate::timed(self.lab.path(), &self.repo(), tool, &args)
    }
}

fn named(names: &[String]) -> Outcome<Vec<RepoPath>> {
    names
        .iter()
        .map(|name| Ok(RepoPath::new(Path::new(name).as_os_str().as_encoded_bytes())?))
        .collect()
}

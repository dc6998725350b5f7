//! What counts as outside, wherever it is changed and whoever tries to hide it.

use super::*;
use crate::store::{
    filters::Filters,
    testing::{Repo, load},
};
use std::os::unix::fs::{PermissionsExt, symlink};

fn scope(patterns: &[&str]) -> Scope {
    Scope::parse(&patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// What differs from the tree of this commit outside of these patterns, in order.
fn beside(repo: &Repo, base: &str, patterns: &[&str]) -> Vec<String> {
    let found = looked(repo, base, patterns).unwrap();
    found.iter().map(ToString::to_string).collect()
}

fn looked(
    repo: &Repo,
    base: &str,
    patterns: &[&str],
) -> Result<BTreeSet<RepoPath>, CandidateError> {
    let gix = repo.gix();
    let git = repo.program();
    let scratch = repo.beside("scratch");
    let read = |id: &Oid| load(&gix, id);
    let filters = Filters { repo: &gix, git: &git, scratch: &scratch };
    let ctx = FixCtx { filters, load: &read, allow_submodules: false };
    let tree = repo.oid(&format!("{base}^{{tree}}"));
    outside(ctx, tree, &scope(patterns))
}

const SRC: &[&str] = &["/src/"];
const NOTHING: [&str; 0] = [];

fn prepared() -> Repo {
    let repo = Repo::new();
    for name in ["src/x", "src/deep/y", "docs/a", "tool.sh", "z"] {
        repo.write(name, b"base\n");
    }
    repo.write(".gitignore", b"*.o\n/build/\n");
    symlink("a", repo.path("docs/link")).unwrap();
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "base"]);
    repo
}

#[test]
fn what_is_inside_and_what_is_ignored_is_not_named() {
    let repo = prepared();
    assert_eq!(beside(&repo, "HEAD", SRC), NOTHING);
    repo.write("src/x", b"other\n");
    repo.write("src/new", b"other\n");
    std::fs::remove_file(repo.path("src/deep/y")).unwrap();
    repo.write("docs/a.o", b"compiled");
    repo.write("build/x", b"made");
    assert_eq!(beside(&repo, "HEAD", SRC), NOTHING);
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "inside"]);
    assert_eq!(beside(&repo, "HEAD~1", SRC), NOTHING);
    assert_eq!(beside(&repo, "HEAD~1", &["/docs/"]), ["src/deep/y", "src/new", "src/x"]);
}

#[test]
fn every_kind_of_change_is_named_whether_on_disk_staged_or_committed() {
    let repo = prepared();
    repo.write("docs/a", b"other\n");
    std::fs::remove_file(repo.path("docs/link")).unwrap();
    symlink("b", repo.path("docs/link")).unwrap();
    std::fs::rename(repo.path("z"), repo.path("zz")).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(repo.path("tool.sh"), executable).unwrap();
    repo.write("new \u{1}\n", b"1");
    let all = ["docs/a", "docs/link", "\"new \\001\\n\"", "tool.sh", "z", "zz"];
    assert_eq!(beside(&repo, "HEAD", SRC), all);
    repo.git(&["add", "-A"]);
    assert_eq!(beside(&repo, "HEAD", SRC), all, "staged");
    repo.git(&["stash", "-q"]);
    assert_eq!(beside(&repo, "HEAD", SRC), NOTHING);
    repo.git(&["stash", "pop", "-q", "--index"]);
    repo.git(&["commit", "-qm", "outside"]);
    assert_eq!(beside(&repo, "HEAD~1", SRC), all, "committed");
    // None of the three hides behind another one.
    repo.git(&["checkout", "-q", "HEAD~1", "--", "docs/a"]);
    assert_eq!(beside(&repo, "HEAD~1", SRC), all, "taken back, but not committed");
}

#[test]
fn what_is_staged_and_taken_back_on_disk_is_named() {
    let repo = prepared();
    repo.write("docs/a", b"other\n");
    repo.git(&["add", "docs/a"]);
    repo.write("docs/a", b"base\n");
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/a"]);
    repo.git(&["reset", "-q", "--hard"]);
    repo.git(&["rm", "-q", "--cached", "docs/a"]);
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/a"]);
    repo.git(&["reset", "-q", "--hard"]);
    repo.write("docs/announced.o", b"1");
    repo.git(&["add", "-fN", "docs/announced.o"]);
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/announced.o"]);
}

/// Each of these makes plain `git status` say that nothing changed.
#[test]
fn what_can_be_hidden_from_git_is_named() {
    let repo = prepared();
    repo.write(".git/info/exclude", b"/docs/hidden\n");
    repo.write("docs/hidden", b"1");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/hidden"]);
    std::fs::remove_file(repo.path("docs/hidden")).unwrap();
    for bit in ["--assume-unchanged", "--skip-worktree"] {
        repo.git(&["update-index", bit, "docs/a"]);
        repo.write("docs/a", b"other\n");
        assert_eq!(repo.git(&["status", "--porcelain"]), "");
        assert_eq!(beside(&repo, "HEAD", SRC), ["docs/a"], "{bit}");
        repo.write("docs/a", b"base\n");
        repo.git(&["update-index", &bit.replace("--", "--no-"), "docs/a"]);
    }
}

#[test]
fn a_fifo_in_the_place_of_rules_is_waited_for_by_nobody() {
    let repo = prepared();
    // Where git does not look.
    repo.write(".git/info/exclude", b"/hidden/\n");
    std::fs::create_dir(repo.path("hidden")).unwrap();
    let fifo = repo.path("hidden/.gitignore");
    rustix::fs::mkfifoat(rustix::fs::CWD, fifo, rustix::fs::Mode::RUSR).unwrap();
    let error = looked(&repo, "HEAD", SRC).unwrap_err();
    assert_eq!(error.code(), crate::code::Code::NotRegular, "{error}");
}

#[test]
fn what_a_sparse_checkout_leaves_out_is_no_change() {
    for index in ["--no-sparse-index", "--sparse-index"] {
        let repo = prepared();
        repo.git(&["sparse-checkout", "set", "--cone", index, "src"]);
        assert!(!repo.path("docs").exists());
        assert_eq!(beside(&repo, "HEAD", SRC), NOTHING, "{index}");
        repo.write("docs/a", b"other\n");
        assert_eq!(beside(&repo, "HEAD", SRC), ["docs/a"], "{index}: brought back");
        std::fs::remove_dir_all(repo.path("docs")).unwrap();
        let blob = repo.git(&["rev-parse", "HEAD:src/x"]);
        let other = repo.git(&["hash-object", "-w", ".gitignore"]);
        assert_ne!(blob, other);
        let entry = format!("100644,{},docs/a", other.trim());
        repo.git(&["update-index", "--cacheinfo", &entry]);
        assert!(beside(&repo, "HEAD", SRC).contains(&"docs/a".to_owned()), "{index}: staged");
    }
}

#[test]
fn a_submodule_is_one_path_and_moves_like_a_file() {
    let repo = prepared();
    let lib = repo.path("docs/lib");
    repo.git(&["init", "-q", "docs/lib"]);
    repo.write("docs/lib/inner", b"1");
    let within = |args: &[&str]| repo.git(&[&["-C", lib.to_str().unwrap()], args].concat());
    within(&["add", "-A"]);
    within(&["commit", "-qm", "inner"]);
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/lib"], "nobody's repository yet");
    repo.git(&["add", "docs/lib"]);
    repo.git(&["commit", "-qm", "linked"]);
    assert_eq!(beside(&repo, "HEAD", SRC), NOTHING);
    repo.write("docs/lib/inner", b"22");
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/lib"], "with changes");
    assert_eq!(beside(&repo, "HEAD", &["docs/lib/"]), NOTHING);
    within(&["commit", "-qam", "moved"]);
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/lib"], "moved");
    repo.git(&["add", "docs/lib"]);
    within(&["checkout", "-q", "HEAD~1"]);
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/lib"], "moved in the index alone");
    repo.git(&["reset", "-q"]);
    assert_eq!(beside(&repo, "HEAD", SRC), NOTHING);
    std::fs::remove_dir_all(&lib).unwrap();
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/lib"], "gone");
    std::fs::create_dir(&lib).unwrap();
    assert_eq!(beside(&repo, "HEAD", SRC), NOTHING, "as a clone leaves it");
    repo.write("docs/lib/stray", b"1");
    assert_eq!(beside(&repo, "HEAD", SRC), ["docs/lib"], "with files of nobody");
}

#[test]
fn the_last_pattern_that_matches_decides_and_a_directory_stands_for_all_below() {
    let some = scope(&["/src/", "*.md", "!/src/gen/", "!secret*", "/src/gen/keep"]);
    for (path, inside) in [
        ("src/a", true),
        ("src/b/c", true),
        ("lib/src/a", false),
        ("README.md", true),
        ("a/b.md", true),
        ("src/gen/a", false),
        ("src/gen/a.md", false),
        ("src/gen/keep", true),
        ("src/secret.rs", false),
        ("secrets/a.md", false),
    ] {
        assert_eq!(some.allows(path.as_bytes()), inside, "{path}");
    }
    // An ignore file would let the files below in again.
    assert!(!scope(&["src/**", "!src/gen/"]).allows(b"src/gen/a"));
    assert!(scope(&["lib/"]).allows(b"lib/") && !scope(&["lib/"]).allows(b"lib"));
}

#[test]
fn patterns_that_say_nothing_are_refused() {
    for bad in [&[""][..], &["# comment"], &["   "], &["a\nb"], &["!a"], &[]] {
        let bad: Vec<String> = bad.iter().map(|p| (*p).to_owned()).collect();
        assert!(Scope::parse(&bad).is_err(), "{bad:?}");
    }
    assert!(Scope::parse(&vec!["x".to_owned(); limits::SCOPE_PATTERNS + 1]).is_err());
}

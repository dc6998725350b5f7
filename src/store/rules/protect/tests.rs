//! What counts as changed, whoever tries to hide it.

use super::*;
use crate::store::{
    filters::Filters,
    testing::{Repo, load},
};
use std::os::unix::fs::{PermissionsExt, symlink};

fn protected(patterns: &[&str]) -> Protected {
    Protected::parse(&patterns.iter().map(|p| (*p).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// What differs from the tree of this commit, in order.
fn differing(repo: &Repo, commit: &str, patterns: &[&str]) -> Vec<String> {
    let gix = repo.gix();
    let git = repo.program();
    let scratch = repo.beside("scratch");
    let read = |id: &Oid| load(&gix, id);
    let filters = Filters { repo: &gix, git: &git, scratch: &scratch };
    let ctx = FixCtx { filters, load: &read, allow_submodules: false };
    let tree = repo.oid(&format!("{commit}^{{tree}}"));
    let found = changed(ctx, tree, &protected(patterns)).unwrap();
    found.iter().map(ToString::to_string).collect()
}

fn prepared() -> Repo {
    let repo = Repo::new();
    for name in ["tests/a", "tests/deep/b", "src/x", "package.json"] {
        repo.write(name, b"trusted\n");
    }
    repo.write(".gitignore", b"*.pyc\n/build/\n");
    symlink("a", repo.path("tests/link")).unwrap();
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "trusted"]);
    repo
}

const TESTS: &[&str] = &["/tests/", "package.json"];

#[test]
fn what_is_as_on_the_trusted_ref_is_not_named() {
    let repo = prepared();
    assert_eq!(differing(&repo, "HEAD", TESTS), [""; 0]);
    repo.write("src/x", b"other\n");
    repo.write("src/new", b"other\n");
    repo.write("tests/a.pyc", b"compiled");
    repo.write("build/tests/x", b"made");
    assert_eq!(
        differing(&repo, "HEAD", TESTS),
        [""; 0],
        "other paths, and what trusted rules ignore"
    );
    assert_eq!(differing(&repo, "HEAD", &["*.pyc", "!/src/", "x"]), ["src/x"]);
}

#[test]
fn every_kind_of_change_is_named() {
    let repo = prepared();
    repo.write("tests/a", b"other\n");
    std::fs::remove_file(repo.path("tests/deep/b")).unwrap();
    repo.write("tests/new", b"new");
    std::fs::remove_file(repo.path("tests/link")).unwrap();
    symlink("deep/b", repo.path("tests/link")).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(repo.path("package.json"), executable).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, repo.path("tests/pipe"), rustix::fs::Mode::RUSR).unwrap();
    let expected =
        ["package.json", "tests/a", "tests/deep/b", "tests/link", "tests/new", "tests/pipe"];
    assert_eq!(differing(&repo, "HEAD", TESTS), expected);
    // Committed or not is the same: what counts is the trusted tree.
    std::fs::remove_file(repo.path("tests/pipe")).unwrap();
    repo.git(&["add", "-A"]);
    repo.git(&["commit", "-qm", "changed"]);
    assert_eq!(differing(&repo, "HEAD~1", TESTS), expected[..5]);
    assert_eq!(differing(&repo, "HEAD", TESTS), [""; 0]);
}

/// Each of these makes plain `git status` say that nothing changed.
#[test]
fn what_an_agent_can_hide_from_git_is_named() {
    let repo = prepared();
    repo.write(".git/info/exclude", b"/tests/hidden\n");
    repo.write("tests/hidden", b"1");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
    assert_eq!(differing(&repo, "HEAD", TESTS), ["tests/hidden"]);
    std::fs::remove_file(repo.path("tests/hidden")).unwrap();

    repo.write("tests/.gitignore", b"*\n");
    repo.write("tests/hidden", b"1");
    assert_eq!(differing(&repo, "HEAD", TESTS), ["tests/.gitignore", "tests/hidden"]);
    std::fs::remove_file(repo.path("tests/.gitignore")).unwrap();
    repo.write(".gitignore", b"*.pyc\n/build/\n/tests/hidden\n");
    assert_eq!(
        differing(&repo, "HEAD", TESTS),
        ["tests/hidden"],
        "the rule is not the trusted one"
    );
    repo.git(&["checkout", "-q", ".gitignore"]);
    let rules = repo.beside("rules");
    std::fs::write(&rules, "hidden\n").unwrap();
    repo.git(&["config", "core.excludesFile", rules.to_str().unwrap()]);
    assert_eq!(differing(&repo, "HEAD", TESTS), ["tests/hidden"]);
    repo.git(&["config", "--unset", "core.excludesFile"]);
    std::fs::remove_file(repo.path("tests/hidden")).unwrap();

    for bit in ["--assume-unchanged", "--skip-worktree"] {
        repo.git(&["update-index", bit, "tests/a"]);
        repo.write("tests/a", b"other\n");
        assert_eq!(repo.git(&["status", "--porcelain"]), "");
        assert_eq!(differing(&repo, "HEAD", TESTS), ["tests/a"], "{bit}");
        repo.write("tests/a", b"trusted\n");
        repo.git(&["update-index", &bit.replace("--", "--no-"), "tests/a"]);
    }

    // A filter that makes everything what it was.
    repo.write(".git/info/attributes", b"tests/a filter=was\n");
    repo.git(&["config", "filter.was.clean", "git cat-file blob HEAD:tests/a"]);
    repo.write("tests/a", b"other\n");
    assert_eq!(differing(&repo, "HEAD", TESTS), ["tests/a"]);
    repo.git(&["config", "--remove-section", "filter.was"]);
    repo.write("tests/a", b"trusted\n");

    repo.git(&["init", "-q", "tests/inner"]);
    repo.write("tests/inner/conftest", b"1");
    assert_eq!(differing(&repo, "HEAD", TESTS), ["tests/inner/conftest"]);
    std::fs::remove_dir_all(repo.path("tests/inner")).unwrap();

    std::fs::rename(repo.path("tests"), repo.path("moved")).unwrap();
    symlink("moved", repo.path("tests")).unwrap();
    assert_eq!(differing(&repo, "HEAD", TESTS), ["tests/a", "tests/deep/b", "tests/link"]);
}

#[test]
fn line_ends_that_git_converts_are_no_change() {
    let repo = prepared();
    repo.write(".git/info/attributes", b"* text=auto\n");
    repo.write("tests/a", b"trusted\r\n");
    assert_eq!(differing(&repo, "HEAD", TESTS), [""; 0]);
}

#[test]
fn patterns_that_say_nothing_are_refused() {
    for bad in ["", "# comment", "   ", "a\nb"] {
        assert!(Protected::parse(&[bad.to_owned()]).is_err(), "{bad:?}");
    }
    assert!(Protected::parse(&vec!["x".to_owned(); limits::PROTECT_PATTERNS + 1]).is_err());
    let some = protected(&["/tests/*", "!/tests/data/", "*.lock"]);
    let covers = ["tests/a", "tests/x/y", "tests/data/x", "a/b.lock", "src/tests/a"];
    assert_eq!(covers.map(|p| some.covers(p.as_bytes())), [true, true, false, true, false]);
}

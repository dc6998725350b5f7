//! Candidate trees against what git itself would add.

use super::*;
use crate::store::testing::{Repo, path};
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

#[derive(Clone, Copy)]
enum Do<'a> {
    Write(&'a [u8], &'a [u8]),
    Mode(&'a [u8], u32),
    Link(&'a str, &'a [u8]),
    Remove(&'a [u8]),
    Config(&'a str, &'a str),
}
use Do::{Config, Link, Mode as Chmod, Remove, Write};

fn perform(repo: &Repo, steps: &[Do<'_>]) {
    for step in steps {
        match step {
            Write(name, data) => repo.write(name, data),
            Chmod(name, bits) => {
                let permissions = std::fs::Permissions::from_mode(*bits);
                std::fs::set_permissions(repo.path(name), permissions).unwrap();
            }
            Link(target, name) => symlink(target, repo.path(name)).unwrap(),
            Remove(name) => {
                let at = repo.path(name);
                if at.is_dir() && !at.is_symlink() {
                    std::fs::remove_dir_all(at).unwrap();
                } else {
                    std::fs::remove_file(at).unwrap();
                }
            }
            Config(key, value) => drop(repo.git(&["config", key, value])),
        }
    }
}

/// The tree of `HEAD` plus `git add` of exactly these paths, in an index of its own.
fn as_git_adds(repo: &Repo, paths: &[&[u8]]) -> Oid {
    let (index, list) = (repo.beside("their-index"), repo.beside("list"));
    let _ = std::fs::remove_file(&index);
    std::fs::write(&list, paths.join(&0)).unwrap();
    let run = |args: &[&str]| {
        repo.git_at(
            &repo.top(),
            args,
            &[("GIT_INDEX_FILE", &index), ("GIT_LITERAL_PATHSPECS", Path::new("1"))],
        )
    };
    run(&["read-tree", "HEAD"]);
    let from = format!("--pathspec-from-file={}", list.display());
    run(&["add", "-A", &from, "--pathspec-file-nul"]);
    run(&["write-tree"]).trim().parse().unwrap()
}

/// A case: what is committed, what changes then, what is listed.
type Case<'a> = (&'a str, &'a [Do<'a>], &'a [Do<'a>], &'a [&'a [u8]]);

const BASE: &[Do<'_>] =
    &[Write(b"a", b"one\n"), Write(b"d/x", b"x\n"), Write(b"d/y", b"y\n"), Write(b"z", b"z\n")];
const UPPER: Do<'_> = Config("filter.up.clean", "tr a-z A-Z");

const CASES: &[Case<'_>] = &[
    ("modified", BASE, &[Write(b"a", b"two\n")], &[b"a"]),
    ("added", BASE, &[Write(b"n", b"new\n")], &[b"n"]),
    ("added deep", BASE, &[Write(b"p/q/r/n", b"new\n")], &[b"p/q/r/n"]),
    ("deleted", BASE, &[Remove(b"a")], &[b"a"]),
    ("directory vanishes", BASE, &[Remove(b"d")], &[b"d/x", b"d/y"]),
    ("half a directory", BASE, &[Remove(b"d")], &[b"d/x"]),
    ("everything vanishes", &[Write(b"a", b"1")], &[Remove(b"a")], &[b"a"]),
    ("unchanged", BASE, &[], &[b"a", b"d/x"]),
    ("rewritten alike", BASE, &[Write(b"a", b"one\n")], &[b"a"]),
    ("unlisted stays out", BASE, &[Write(b"a", b"2"), Write(b"z", b"2")], &[b"a"]),
    ("executable", BASE, &[Chmod(b"a", 0o755)], &[b"a"]),
    ("not executable", &[Write(b"a", b"1"), Chmod(b"a", 0o755)], &[Chmod(b"a", 0o644)], &[b"a"]),
    ("only group executes", BASE, &[Chmod(b"a", 0o654)], &[b"a"]),
    (
        "fileMode off keeps",
        &[Write(b"a", b"1"), Chmod(b"a", 0o755)],
        &[Config("core.fileMode", "false"), Chmod(b"a", 0o644), Write(b"a", b"2")],
        &[b"a"],
    ),
    (
        "fileMode off new",
        &[Write(b"a", b"1"), Config("core.fileMode", "false")],
        &[Write(b"n", b"2"), Chmod(b"n", 0o755)],
        &[b"n"],
    ),
    ("new link", BASE, &[Link("a", b"l")], &[b"l"]),
    ("dangling link", BASE, &[Link("no/such", b"l")], &[b"l"]),
    ("link to directory", BASE, &[Link("d", b"l")], &[b"l"]),
    ("file to link", BASE, &[Remove(b"a"), Link("z", b"a")], &[b"a"]),
    ("link to file", &[Link("x", b"l")], &[Remove(b"l"), Write(b"l", b"x")], &[b"l"]),
    (
        "symlinks off",
        &[Link("x", b"l"), Config("core.symlinks", "false")],
        &[Remove(b"l"), Write(b"l", b"y")],
        &[b"l"],
    ),
    (
        "magic is a name",
        BASE,
        &[Write(b":(exclude)x", b"1"), Write(b":!y", b"2")],
        &[b":(exclude)x", b":!y"],
    ),
    ("option is a name", BASE, &[Write(b"-x", b"1"), Write(b"--all", b"2")], &[b"-x", b"--all"]),
    ("newline and tab", BASE, &[Write(b"n\nl", b"1"), Write(b"t\tb", b"2")], &[b"n\nl", b"t\tb"]),
    (
        "not UTF-8",
        BASE,
        &[Write(b"\xff\xfe", b"1"), Write(b"d/\xe9", b"2")],
        &[b"\xff\xfe", b"d/\xe9"],
    ),
    ("unicode", BASE, &[Write("ünï".as_bytes(), b"1")], &["ünï".as_bytes()]),
    (
        "arrow",
        BASE,
        &[Write(b"a -> b", b"1"), Write(b"back\\slash", b"2")],
        &[b"a -> b", b"back\\slash"],
    ),
    (
        "order of names",
        BASE,
        &[Write(b"d.a", b"1"), Write(b"d0", b"2"), Write(b"d/z", b"3")],
        &[b"d.a", b"d0", b"d/z"],
    ),
    ("crlf without rules", BASE, &[Write(b"c", b"1\r\n")], &[b"c"]),
    (
        "text attribute",
        &[Write(b".gitattributes", b"*.t text\n")],
        &[Write(b"c.t", b"1\r\n")],
        &[b"c.t"],
    ),
    (
        "eol in a directory",
        &[Write(b"s/.gitattributes", b"* text=auto eol=crlf\n")],
        &[Write(b"s/c", b"1\r\n2\r\n"), Write(b"c", b"1\r\n")],
        &[b"s/c", b"c"],
    ),
    (
        "autocrlf",
        &[Write(b"a", b"1"), Config("core.autocrlf", "true")],
        &[Write(b"c", b"1\r\n")],
        &[b"c"],
    ),
    (
        "autocrlf input",
        &[Write(b"a", b"1"), Config("core.autocrlf", "input")],
        &[Write(b"c", b"1\r\n")],
        &[b"c"],
    ),
    (
        "autocrlf leaves committed CRLF",
        &[Write(b"c", b"1\r\n"), Config("core.autocrlf", "false")],
        &[Config("core.autocrlf", "true"), Write(b"c", b"1\r\n2\r\n")],
        &[b"c"],
    ),
    (
        "ident",
        &[Write(b".gitattributes", b"*.i ident\n")],
        &[Write(b"c.i", b"$Id: 12$\n")],
        &[b"c.i"],
    ),
    (
        "clean filter",
        &[UPPER, Write(b".gitattributes", b"*.u filter=up\n")],
        &[Write(b"c.u", b"abc\n"), Write(b"n\nl.u", b"x")],
        &[b"c.u", b"n\nl.u"],
    ),
    (
        "a filter keeps its language",
        &[
            Config("filter.say.clean", "cat; echo \"$LC_ALL\""),
            Write(b".gitattributes", b"*.u filter=say\n"),
        ],
        &[Write(b"c.u", b"abc")],
        &[b"c.u"],
    ),
    (
        "filter on a link",
        &[UPPER, Write(b".gitattributes", b"* filter=up\n")],
        &[Link("abc", b"l")],
        &[b"l"],
    ),
    (
        "encoding",
        &[Write(b".gitattributes", b"*.w working-tree-encoding=UTF-16LE\n")],
        &[Write(b"c.w", b"h\0i\0\n\0")],
        &[b"c.w"],
    ),
    (
        "attributes change with the file",
        &[UPPER, Write(b".gitattributes", b"* -filter\n")],
        &[Write(b".gitattributes", b"*.u filter=up\n"), Write(b"c.u", b"abc")],
        &[b"c.u", b".gitattributes"],
    ),
    (
        "attributes only committed",
        &[UPPER, Write(b".gitattributes", b"*.u filter=up\n")],
        &[Remove(b".gitattributes"), Write(b"c.u", b"abc")],
        &[b"c.u"],
    ),
    (
        "info attributes",
        &[UPPER, Write(b".git/info/attributes", b"*.u filter=up\n"), Write(b"a", b"1")],
        &[Write(b"c.u", b"abc")],
        &[b"c.u"],
    ),
    (
        "executable through git",
        &[Write(b".gitattributes", b"* text\n")],
        &[Write(b"r", b"1\r\n"), Chmod(b"r", 0o755)],
        &[b"r"],
    ),
    (
        "file to directory through git",
        &[Write(b".gitattributes", b"* text\n"), Write(b"a", b"1")],
        &[Remove(b"a"), Write(b"a/b", b"f\r\n")],
        &[b"a", b"a/b"],
    ),
    (
        "directory to file through git",
        &[Write(b".gitattributes", b"* text\n"), Write(b"a/b", b"1")],
        &[Remove(b"a"), Write(b"a", b"f\r\n")],
        &[b"a", b"a/b"],
    ),
];

#[test]
fn the_tree_is_the_one_git_add_makes() {
    for (name, before, after, paths) in CASES {
        let repo = Repo::new();
        perform(&repo, before);
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "before"]);
        perform(&repo, after);
        let listed: Vec<RepoPath> = paths.iter().map(path).collect();
        // Ours first: git's own run writes objects that would hide a missing one.
        let ours = repo.fix(&listed).unwrap_or_else(|e| panic!("{name}: {e}"));
        repo.store(&ours.objects);
        repo.git(&["ls-tree", "-rt", &ours.tree.to_string()]);
        assert_eq!(ours.tree, as_git_adds(&repo, paths), "{name}");
        repo.git(&["rev-list", "--objects", &ours.tree.to_string()]);
        let differs = repo.git(&[
            "diff-tree",
            "-r",
            "--no-renames",
            "--name-only",
            "-z",
            "HEAD",
            &ours.tree.to_string(),
        ]);
        assert_eq!(ours.changes.len(), differs.matches('\0').count(), "{name}");
        assert_eq!(ours.listed.len(), listed.len(), "{name}");
    }
}

#[test]
fn case_51_what_others_staged_does_not_ride_along_and_index_tricks_do_not_matter() {
    let repo = Repo::new();
    repo.write("b", b"1");
    repo.commit_file("a", b"1");
    repo.write("theirs", b"t");
    repo.write("a", b"BROKEN");
    repo.git(&["add", "theirs", "a"]);
    repo.write("a", b"fine");
    repo.git(&["update-index", "--assume-unchanged", "b"]);
    repo.write("b", b"2");
    let before = std::fs::read(repo.path(".git/index")).unwrap();
    let fixed = repo.fix(&[path("a"), path("b")]).unwrap();
    let names: Vec<_> = fixed.changes.iter().map(|c| (c.path.to_string(), c.kind)).collect();
    let modified = ChangeKind::Modified;
    assert_eq!(names, [("a".to_owned(), modified), ("b".to_owned(), modified)]);
    assert!(fixed.objects.iter().any(|o| o.data == b"fine"));
    assert_eq!(std::fs::read(repo.path(".git/index")).unwrap(), before);
}

#[test]
fn kinds_of_change_are_told_apart() {
    let repo = Repo::new();
    for name in ["mod", "del", "type", "mode", "same"] {
        repo.write(name, b"1");
    }
    repo.commit_file("x", b"1");
    repo.write("new", b"1");
    repo.write("mod", b"2");
    perform(&repo, &[Remove(b"del"), Remove(b"type"), Link("x", b"type"), Chmod(b"mode", 0o755)]);
    let all = ["mod", "del", "type", "mode", "same", "new"].map(path);
    let fixed = repo.fix(&all).unwrap();
    let kinds: Vec<_> = fixed.changes.iter().map(|c| format!("{} {:?}", c.path, c.kind)).collect();
    let expected =
        ["del Deleted", "mod Modified", "mode ModeChanged", "new Added", "type TypeChanged"];
    assert_eq!(kinds, expected);
}

#[test]
fn refusals_name_path_and_code() {
    let repo = Repo::new();
    repo.write("d/x", b"1");
    repo.commit_file("a", b"1");
    let fails = |paths: &[&str]| {
        let paths: Vec<RepoPath> = paths.iter().map(path).collect();
        let error = repo.fix(&paths).unwrap_err();
        (error.code().as_str(), error.to_string())
    };
    let no_such = "'nosuch' neither exists nor is tracked".to_owned();
    assert_eq!(fails(&["a", "nosuch"]), ("no-such-path", no_such));
    assert_eq!(fails(&["d"]), ("path-is-directory", "'d' is a directory".to_owned()));
    std::fs::remove_file(repo.path("a")).unwrap();
    repo.write("a/b", b"2");
    let conflict = "'a' would be a file and a directory at once: list the paths that give way, too";
    assert_eq!(fails(&["a/b"]), ("path-conflicts-unlisted", conflict.to_owned()));
    std::fs::remove_dir_all(repo.path("d")).unwrap();
    symlink("/etc", repo.path("d")).unwrap();
    assert_eq!(
        fails(&["d/x"]),
        ("path-through-symlink", "'d/x': 'd' is a symbolic link".to_owned())
    );
}

#[test]
fn a_directory_becomes_a_link_when_both_are_listed() {
    let repo = Repo::new();
    repo.write("d/x", b"1");
    repo.commit_file("e/x", b"1");
    std::fs::remove_dir_all(repo.path("d")).unwrap();
    symlink("e", repo.path("d")).unwrap();
    let listed = ["d", "d/x"].map(path);
    let allow = crate::store::paths::Allow::default();
    assert!(crate::store::paths::check(&repo.gix(), &listed, allow).unwrap().is_empty());
    let fixed = repo.fix(&listed).unwrap();
    let kinds: Vec<_> = fixed.changes.iter().map(|c| format!("{} {:?}", c.path, c.kind)).collect();
    assert_eq!(kinds, ["d Added", "d/x Deleted"]);
    repo.store(&fixed.objects);
    repo.git(&["add", "-A"]);
    assert_eq!(fixed.tree.to_string(), repo.git(&["write-tree"]).trim());
    assert_eq!(repo.fix(&[path("d")]).unwrap_err().code(), Code::PathConflicts);
}

#[test]
fn case_63_a_link_out_of_the_worktree_is_refused_unless_it_was_there_before() {
    let repo = Repo::new();
    symlink("/etc/hosts", repo.path("old")).unwrap();
    repo.commit_file("a", b"1");
    symlink("/etc/passwd", repo.path("leak")).unwrap();
    assert_eq!(repo.fix(&[path("old")]).unwrap().changes.len(), 0);
    let error = repo.fix(&[path("leak"), path("old")]).unwrap_err();
    assert_eq!(error.to_string(), "'leak' is a link that points out of the worktree");
    assert_eq!(error.code(), Code::PathSymlinkEscapes);
}

#[test]
fn case_62_a_declared_submodule_is_the_commit_its_head_is_at() {
    let repo = Repo::new();
    repo.commit_file("a", b"1");
    repo.git(&["init", "-q", "sub"]);
    repo.git(&["-C", "sub", "commit", "-q", "--allow-empty", "-m", "s"]);
    let listed = ["sub", ".gitmodules"].map(path);
    let told = |listed: &[RepoPath]| repo.fix_with(listed, true).unwrap_err().to_string();
    let embedded = "'sub' is an embedded repository, not a submodule that .gitmodules declares";
    assert_eq!(told(&listed[..1]), embedded);
    repo.write(".gitmodules", b"[submodule \"s\"]\n\tpath = sub\n\turl = ../s\n");
    assert_eq!(told(&listed[..1]), embedded, "the commit would not declare it");
    assert_eq!(repo.fix(&listed).unwrap_err().code(), Code::PathIsSubmodule);
    let agree = |why: &str| {
        let fixed = repo.fix_with(&listed, true).unwrap();
        assert_eq!(fixed.tree, as_git_adds(&repo, &[b"sub", b".gitmodules"]), "{why}");
        fixed
    };
    let fixed = agree("new");
    assert_eq!(fixed.changes[1].new, Some((Mode::Submodule, repo.sub_head("sub"))));
    repo.git(&["add", "sub", ".gitmodules"]);
    repo.git(&["commit", "-qm", "sub"]);
    assert_eq!(agree("unchanged").changes.len(), 0);
    repo.write("sub/dirty", b"1");
    assert_eq!(agree("dirty").changes.len(), 0);
    repo.git(&["-C", "sub", "commit", "-q", "--allow-empty", "-m", "t"]);
    assert_eq!(agree("moved").changes[0].kind, ChangeKind::Modified);
    std::fs::remove_dir_all(repo.path("sub")).unwrap();
    std::fs::create_dir(repo.path("sub")).unwrap();
    assert_eq!(agree("not checked out").changes.len(), 0);
    repo.write("sub/x", b"1");
    assert_eq!(told(&listed), "'sub' is a submodule with files in place of its repository");
    std::fs::remove_dir_all(repo.path("sub")).unwrap();
    assert_eq!(agree("given up").changes[0].kind, ChangeKind::Deleted);
    repo.write("sub", b"a file");
    assert_eq!(agree("a file now").changes[0].new.map(|n| n.0), Some(Mode::File));
}

#[test]
fn added_and_removed_again_is_tracked_and_no_change() {
    let repo = Repo::new();
    repo.commit_file("a", b"1");
    repo.write("n", b"1");
    repo.git(&["add", "n"]);
    std::fs::remove_file(repo.path("n")).unwrap();
    let fixed = repo.fix(&[path("n")]).unwrap();
    assert_eq!((fixed.tree, fixed.changes.len()), (repo.oid("HEAD^{tree}"), 0));
}

#[test]
fn conflict_markers_are_found_in_what_would_be_stored() {
    let repo = Repo::new();
    let markers = b"<<<<<<< a\n1\n=======\n2\n>>>>>>> b\n";
    repo.commit_file("old", markers);
    repo.write("new", markers);
    repo.write("doc", b"Title\n=======\n");
    symlink("<<<<<<< a\n=======\n>>>>>>> b", repo.path("link")).unwrap();
    let fixed = repo.fix(&["old", "new", "doc", "link"].map(path)).unwrap();
    assert_eq!(fixed.conflict_markers(), [path("new")]);
}

#[test]
fn what_the_candidate_holds_is_read_back_for_landing() {
    let repo = Repo::new();
    repo.write("d/x", b"1");
    repo.commit_file("a", b"1");
    let gix = repo.gix();
    let load = |id: &Oid| crate::store::testing::load(&gix, id);
    let listed = listed_at(&load, repo.oid("HEAD^{tree}"), &["d/x", "d", "no"].map(path)).unwrap();
    let blob = repo.oid("HEAD:d/x");
    let expected = [(path("d"), None), (path("d/x"), Some((Mode::File, blob))), (path("no"), None)];
    assert_eq!(listed, expected);
}

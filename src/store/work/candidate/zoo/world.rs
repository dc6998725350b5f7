//! A drawn worktree: odd names, all modes, filters and line ends, and an index that tells another story.

use super::filter;
use crate::{domain::oid::HashKind, store::testing::Repo, sys::fault::disk::Chance};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{PermissionsExt, symlink},
};

/// Names without the ending that chooses a conversion.
const NAMES: &[&[u8]] = &[
    b"plain",
    b"sp ace",
    b" lead",
    b"trail ",
    b"qu\"ote",
    b"ap'os",
    b"a -> b",
    b"new\nline",
    b"\n",
    b"tab\t",
    b"\ttab",
    b"back\\slash",
    b"\\",
    b"*",
    b"*.txt",
    b"a[1]",
    b"a1",
    b"?",
    b":(glob)*",
    b":(exclude)x",
    b":!y",
    b":",
    b"-x",
    b"--all",
    b"--",
    b"~",
    b"#c",
    b"!n",
    b"Twin",
    b"twin",
    b"TWIN",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"\xe6\x97\xa5\xe6\x9c\xac",
    b"\xff\xfe",
    b"caf\xe9",
    b"\x01\x7f\x1b[2J",
    b"..foo",
    b"...",
    b"git",
    b".gitx",
    b"CON",
    b"$(id)",
    b"`id`",
    b"%s",
    b"a,b",
    b"a=b",
    b"{0}",
    b"&;|",
    b"\r",
    b"d/x",
    b"d/y",
    b"d.a",
    b"d0",
    b"D/x",
    b"d/e/f",
    b" / ",
    b"-d/-x",
    b"\n/\n",
    b"*/*",
    b"\xff/\xff",
    b":/x",
    b"a -> b/c",
];

/// Endings, each with its line of attributes.
const ENDINGS: &[(&str, &str)] = &[
    (".t", "*.t text"),
    (".auto", "*.auto text=auto"),
    (".crlf", "*.crlf text eol=crlf"),
    (".lf", "*.lf text eol=lf"),
    (".autocr", "*.autocr text=auto eol=crlf"),
    (".bin", "*.bin -text"),
    (".i", "*.i ident"),
    (".it", "*.it ident text"),
    (".up", "*.up filter=up"),
    (".pr", "*.pr filter=pr"),
    (".lfs", "*.lfs filter=lfs diff=lfs merge=lfs -text"),
    (".u16", "*.u16 text working-tree-encoding=UTF-16"),
    (".u16le", "*.u16le working-tree-encoding=UTF-16LE-BOM"),
    (".l1", "*.l1 text working-tree-encoding=ISO-8859-1"),
    ("", "* text=auto"),
];

const TEXTS: &[&[u8]] = &[
    b"one\n",
    b"one\ntwo\n",
    b"one\r\ntwo\r\n",
    b"one\r\ntwo\n",
    b"one\rtwo",
    b"no end",
    b"",
    b"\n",
    b"\r\n",
    b"bin\0ary\r\n",
    b"$Id$\n",
    b"x $Id: 0123 $ y\r\n",
    b"caf\xe9\r\n",
    b"\x1a",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
];

/// States that every run must have listed, each from what [`World::marks`] tells.
pub(super) const MARKS: &[&str] = &[
    "file",
    "executable",
    "link",
    "dangling link",
    "file to link",
    "link to file",
    "file to directory",
    "directory to file",
    "mode changed",
    "deleted",
    "renamed",
    "staged otherwise",
    "partially staged",
    "assume-unchanged",
    "skip-worktree",
    "intent-to-add",
    "staged deletion",
    "staged and gone",
    "not UTF-8",
    "filter=up",
    "filter=pr",
    "filter=lfs",
    "ident",
    "encoding",
    "CRLF in the parent",
    "autocrlf=true",
    "autocrlf=input",
    "autocrlf=false",
    "attributes",
    "very long",
];

/// Lines of attributes whose effect is to be met, and what it is called.
const CONVERSIONS: &[(&str, &str)] = &[
    (".up", "filter=up"),
    (".pr", "filter=pr"),
    (".lfs", "filter=lfs"),
    (".i", "ident"),
    (".u16", "encoding"),
    (".l1", "encoding"),
    (".crlf", "eol=crlf"),
    (".lf", "eol=lf"),
    (".auto", "text=auto"),
];

pub(super) struct World {
    pub(super) repo: Repo,
    /// What was drawn that the paths do not tell.
    pub(super) told: String,
    /// Everything that may be listed.
    paths: BTreeSet<Vec<u8>>,
    marks: BTreeMap<Vec<u8>, BTreeSet<&'static str>>,
    /// Marks of all paths.
    common: Vec<&'static str>,
    lines: Vec<&'static str>,
    parent: BTreeSet<Vec<u8>>,
    index: BTreeSet<Vec<u8>>,
    skipped: BTreeSet<Vec<u8>>,
}

impl World {
    /// Makes a repository with a commit, then changes worktree and index.
    pub(super) fn draw(hash: HashKind, filter: &str, chance: &mut Chance) -> Self {
        let repo = Repo::of_hash(hash);
        for (key, value) in [
            ("filter.up.clean", "tr a-z A-Z".to_owned()),
            ("filter.pr.process", filter::of_kind(filter, "upper")),
            ("filter.lfs.process", filter::of_kind(filter, "lfs")),
            ("filter.lfs.required", "true".to_owned()),
        ] {
            repo.git(&["config", key, &value]);
        }
        let mut world = Self {
            repo,
            told: String::new(),
            paths: BTreeSet::new(),
            marks: BTreeMap::new(),
            common: Vec::new(),
            lines: Vec::new(),
            parent: BTreeSet::new(),
            index: BTreeSet::new(),
            skipped: BTreeSet::new(),
        };
        // Half of the parents have what was typed, whatever conversion is asked for later.
        let raw = chance.below(2) == 0;
        if !raw {
            world.configure(chance);
        }
        let new = world.populate(chance);
        world.repo.git(&["add", "-A"]);
        world.repo.git(&["commit", "-qm", "parent"]);
        world.parent = world.listed_by_git(&["ls-tree", "-r", "-z", "--name-only", "HEAD"]);
        if raw {
            world.configure(chance);
        }
        world.stage_otherwise(&new, chance);
        world.change_files(chance);
        world.write_new(&new, chance);
        world.trick_the_index(&new, chance);
        world.index = world.listed_by_git(&["ls-files", "-z"]);
        world.mark_conversions();
        world
    }

    fn listed_by_git(&self, args: &[&str]) -> BTreeSet<Vec<u8>> {
        let bytes = self.repo.git_bytes(args);
        bytes.split(|b| *b == 0).filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect()
    }

    fn mark(&mut self, path: &[u8], mark: &'static str) {
        self.paths.insert(path.to_vec());
        self.marks.entry(path.to_vec()).or_default().insert(mark);
    }

    pub(super) fn marks(&self, path: &[u8]) -> impl Iterator<Item = &'static str> {
        let own = self.marks.get(path).into_iter().flatten().copied();
        own.chain(self.common.iter().copied())
    }

    pub(super) fn is_on_disk(&self, path: &[u8]) -> bool {
        fs::symlink_metadata(self.repo.path(path)).is_ok()
    }

    /// git takes it for a name of something.
    pub(super) fn can_be_added(&self, path: &[u8]) -> bool {
        self.is_on_disk(path) || self.parent.contains(path)
    }

    /// On disk or tracked.
    pub(super) fn is_known(&self, path: &[u8]) -> bool {
        self.can_be_added(path) || self.index.contains(path)
    }

    pub(super) fn is_skipped(&self, path: &[u8]) -> bool {
        self.skipped.contains(path)
    }

    /// Some of the paths: all that can be listed together; one with a name of nothing; what nobody changed; one
    /// that a sparse checkout left out; few; many.
    pub(super) fn subset(&self, no: usize, chance: &mut Chance) -> Vec<Vec<u8>> {
        let left_out = |p: &Vec<u8>| self.is_skipped(p) && !self.is_on_disk(p);
        let (out, all): (Vec<_>, Vec<_>) =
            self.paths.iter().filter(|p| self.is_known(p)).cloned().partition(left_out);
        let mut draw = |of: &[Vec<u8>], one_in: usize| -> BTreeSet<Vec<u8>> {
            let some = of.iter().filter(|_| chance.below(one_in) == 0).cloned();
            let some: BTreeSet<Vec<u8>> = some.collect();
            if some.is_empty() { of.iter().take(1).cloned().collect() } else { some }
        };
        let mut some = match no {
            0 => draw(&all, 1),
            2 => {
                let same: Vec<Vec<u8>> = all
                    .iter()
                    .filter(|p| self.marks(p).any(|m| m == "unchanged"))
                    .cloned()
                    .collect();
                draw(&same, 4)
            }
            3 => draw(&out, 2),
            _ => draw(&all, [2, 3, 9][no % 3]),
        };
        match no {
            1 => some.extend([b"no such path".to_vec()]),
            3 => some.extend(draw(&all, 9)),
            _ => {}
        }
        some.into_iter().collect()
    }

    /// Settings and attributes.
    fn configure(&mut self, chance: &mut Chance) {
        let mut draw = |of: &[&'static str]| of[chance.below(of.len())];
        let autocrlf = draw(&["", "true", "input", "false"]);
        let eol = draw(&["", "", "lf", "crlf"]);
        let file_mode = draw(&["", "", "", "", "", "false"]);
        // Every fourth worktree converts nothing by attributes.
        let attributes = draw(&["yes", "yes", "yes", ""]);
        let info = draw(&["d/** text eol=lf\n", "", "", "", ""]);
        let nested = draw(&["* -text\n", "", "", "", ""]);
        for (key, value) in
            [("core.autocrlf", autocrlf), ("core.eol", eol), ("core.fileMode", file_mode)]
        {
            if !value.is_empty() {
                self.repo.git(&["config", key, value]);
                self.told.push_str(&format!("{key}={value} "));
            }
        }
        self.common.extend(match autocrlf {
            "true" => Some("autocrlf=true"),
            "input" => Some("autocrlf=input"),
            "false" => Some("autocrlf=false"),
            _ => None,
        });
        if !attributes.is_empty() {
            self.lines = ENDINGS.iter().map(|e| e.1).filter(|_| chance.below(4) > 0).collect();
            self.write(b".gitattributes", (self.lines.join("\n") + "\n").as_bytes());
            self.mark(b".gitattributes", "attributes");
        }
        if !info.is_empty() {
            self.repo.write(b".git/info/attributes", info.as_bytes());
        }
        if !nested.is_empty() {
            self.write(b"d/.gitattributes", nested.as_bytes());
            self.mark(b"d/.gitattributes", "attributes");
        }
        self.told.push_str(&format!("info: {info:?} d: {nested:?} {:?}", self.lines));
    }

    fn write(&self, path: &[u8], data: &[u8]) {
        self.remove(path);
        self.repo.write(path, data);
    }

    fn remove(&self, path: &[u8]) {
        let at = self.repo.path(path);
        match fs::symlink_metadata(&at) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(at).unwrap(),
            Ok(_) => fs::remove_file(at).unwrap(),
            Err(_) => {}
        }
    }

    fn link(&self, path: &[u8], target: &str) {
        self.remove(path);
        let at = self.repo.path(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(target, at).unwrap();
    }

    fn set_mode(&self, path: &[u8], mode: u32) {
        fs::set_permissions(self.repo.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Writes what the parent has, and answers names for what comes later.
    fn populate(&mut self, chance: &mut Chance) -> Vec<Vec<u8>> {
        self.repo.write(b"d/keep", b"1");
        let mut new = Vec::new();
        for path in draw_names(chance) {
            match chance.below(10) {
                0..=3 => new.push(path),
                4 => {
                    self.link(&path, "d/keep");
                    self.mark(&path, "link");
                }
                no => {
                    self.write(&path, &content(&path, chance));
                    self.set_mode(&path, if no == 5 { 0o755 } else { 0o644 });
                    self.mark(&path, "file");
                }
            }
        }
        new
    }

    /// The index gets a content that is in neither the parent nor the worktree.
    fn stage_otherwise(&mut self, new: &[Vec<u8>], chance: &mut Chance) {
        let files: Vec<Vec<u8>> = self.paths.iter().cloned().collect();
        let mut staged = Vec::new();
        for path in files.iter().chain(new.iter()).filter(|p| !p.ends_with(b".gitattributes")) {
            if chance.below(5) == 0 && !self.is_link(path) {
                let before = fs::read(self.repo.path(path)).ok();
                self.write(path, &content(path, chance));
                staged.push((path.clone(), before));
            }
        }
        self.feed(&["update-index", "--add", "-z", "--stdin"], staged.iter().map(|(p, _)| p));
        for (path, before) in staged {
            match before {
                Some(before) if chance.below(2) == 0 => {
                    self.write(&path, &before);
                    self.mark(&path, "staged otherwise");
                }
                Some(_) => self.mark(&path, "partially staged"),
                None => {
                    self.remove(&path);
                    self.mark(&path, "staged and gone");
                }
            }
        }
    }

    fn is_link(&self, path: &[u8]) -> bool {
        fs::symlink_metadata(self.repo.path(path)).is_ok_and(|m| m.is_symlink())
    }

    fn feed<'p>(&self, args: &[&str], paths: impl Iterator<Item = &'p Vec<u8>>) {
        let list = self.repo.beside("fed");
        let lines: Vec<u8> = paths.flat_map(|p| [p.as_slice(), b"\0"].concat()).collect();
        fs::write(&list, lines).unwrap();
        self.repo.git_fed(args, &list);
    }

    /// What happens to the files of the parent.
    fn change_files(&mut self, chance: &mut Chance) {
        let paths: Vec<Vec<u8>> = self.paths.iter().cloned().collect();
        for (no, path) in paths.iter().enumerate() {
            if !self.is_on_disk(path) {
                continue;
            }
            if path.ends_with(b".gitattributes") {
                match chance.below(5) {
                    0 => self.write(path, b"*.t -text\n*.up filter=up\n"),
                    1 => self.remove(path),
                    _ => {}
                }
                continue;
            }
            self.change(no, path, chance);
        }
        if chance.below(4) == 0 {
            let below: Vec<_> =
                self.parent.iter().filter(|p| p.starts_with(b"d/")).cloned().collect();
            below.iter().for_each(|p| self.mark(p, "directory to file"));
            self.write(b"d", b"file\r\n");
            self.mark(b"d", "directory to file");
        }
    }

    fn change(&mut self, no: usize, path: &[u8], chance: &mut Chance) {
        match chance.below(20) {
            0..=5 => self.mark(path, "unchanged"),
            6 | 7 => {
                self.remove(path);
                self.mark(path, "deleted");
            }
            8 | 9 if !self.is_link(path) => {
                self.set_mode(path, [0o755, 0o644, 0o654][chance.below(3)]);
                self.mark(path, "mode changed");
            }
            10 if !self.is_link(path) => {
                self.link(path, "a1");
                self.mark(path, "file to link");
            }
            11 => {
                self.link(path, "no/such");
                self.mark(path, "dangling link");
            }
            12 if path.len() < 200 => {
                self.remove(path);
                let inner = [path, b"/inner.t"].concat();
                self.write(&inner, b"in\r\n");
                self.mark(path, "file to directory");
                self.mark(&inner, "file to directory");
            }
            13 | 14 if !self.is_link(path) => {
                let to = [format!("renamed {no}").as_bytes(), ending_of(path).as_bytes()].concat();
                fs::rename(self.repo.path(path), self.repo.path(&to)).unwrap();
                self.mark(path, "renamed");
                self.mark(&to, "renamed");
            }
            _ => {
                let mark = if self.is_link(path) { "link to file" } else { "file" };
                self.write(path, &content(path, chance));
                self.mark(path, mark);
            }
        }
    }

    /// Files the parent does not have; those staged and gone stay gone.
    fn write_new(&mut self, new: &[Vec<u8>], chance: &mut Chance) {
        for path in new {
            let above_is_file = path.starts_with(b"d/") && !self.repo.path(b"d").is_dir();
            if self.marks.contains_key(path) || above_is_file {
                continue;
            }
            match chance.below(6) {
                0 => {
                    self.link(path, "d");
                    self.mark(path, "link");
                }
                no => {
                    self.write(path, &content(path, chance));
                    self.set_mode(path, if no == 1 { 0o755 } else { 0o644 });
                    self.mark(path, if no == 1 { "executable" } else { "file" });
                }
            }
        }
    }

    /// Bits and entries that make the index tell another story than the files.
    fn trick_the_index(&mut self, new: &[Vec<u8>], chance: &mut Chance) {
        let tracked = self.listed_by_git(&["ls-files", "-z"]);
        let mut some = |of: Vec<&Vec<u8>>| -> Vec<Vec<u8>> {
            of.into_iter().filter(|_| chance.below(8) == 0).cloned().collect()
        };
        let of_parent = || self.parent.iter().filter(|p| tracked.contains(*p)).collect::<Vec<_>>();
        let [assumed, skipped, unstaged] =
            [some(of_parent()), some(of_parent()), some(of_parent())];
        let untracked = new.iter().filter(|p| self.is_on_disk(p) && !tracked.contains(*p));
        let announced = some(untracked.collect());
        for (args, paths, mark) in [
            (
                &["update-index", "--assume-unchanged", "-z", "--stdin"][..],
                &assumed,
                "assume-unchanged",
            ),
            (&["update-index", "--skip-worktree", "-z", "--stdin"], &skipped, "skip-worktree"),
            (&["update-index", "--force-remove", "-z", "--stdin"], &unstaged, "staged deletion"),
            (
                &[
                    "--literal-pathspecs",
                    "add",
                    "-N",
                    "--pathspec-from-file=-",
                    "--pathspec-file-nul",
                ],
                &announced,
                "intent-to-add",
            ),
        ] {
            if !paths.is_empty() {
                self.feed(args, paths.iter());
            }
            paths.iter().for_each(|p| self.mark(p, mark));
        }
        self.skipped = skipped.into_iter().filter(|p| !unstaged.contains(p)).collect();
        for (no, path) in self.skipped.iter().enumerate() {
            if no % 2 == 0 && !self.repo.path(path).is_dir() && self.is_on_disk(path) {
                self.remove(path);
            }
        }
    }

    fn mark_conversions(&mut self) {
        let crlf = self.repo.git_bytes(&["grep", "-lzI", "-e", "\r$", "HEAD", "--"]);
        let crlf: BTreeSet<&[u8]> = crlf.split(|b| *b == 0).collect();
        for path in self.paths.clone() {
            for (ending, mark) in CONVERSIONS {
                let (_, line) = ENDINGS.iter().find(|e| e.0 == *ending).unwrap();
                if ending_of(&path) == *ending && self.lines.contains(line) {
                    self.mark(&path, mark);
                }
            }
            if crlf.contains([b"HEAD:", path.as_slice()].concat().as_slice()) {
                self.mark(&path, "CRLF in the parent");
            }
            if std::str::from_utf8(&path).is_err() {
                self.mark(&path, "not UTF-8");
            }
            if path.len() > 200 {
                self.mark(&path, "very long");
            }
        }
    }
}

/// Names that can be together in one worktree: none is a directory of another.
fn draw_names(chance: &mut Chance) -> Vec<Vec<u8>> {
    let long = [[b'l'; 240].to_vec(), [[b'n'; 200].as_slice(); 10].join(&b'/')];
    let mut drawn: BTreeSet<Vec<u8>> = BTreeSet::new();
    for name in NAMES.iter().map(|n| n.to_vec()).chain(long) {
        let deep = name.len() > 200;
        if chance.below(if deep { 4 } else { 2 }) == 0 {
            let (ending, _) = ENDINGS[chance.below(ENDINGS.len())];
            let path = [name.as_slice(), ending.as_bytes()].concat();
            let inside = |a: &[u8], b: &[u8]| a.starts_with(&[b, b"/"].concat());
            if !drawn.iter().any(|d| inside(d, &path) || inside(&path, d)) {
                drawn.insert(path);
            }
        }
    }
    drawn.into_iter().collect()
}

fn ending_of(path: &[u8]) -> &'static str {
    let known = ENDINGS.iter().map(|e| e.0).filter(|e| path.ends_with(e.as_bytes()));
    known.max_by_key(|e| e.len()).unwrap_or("")
}

/// Bytes that git can convert as the ending asks.
fn content(path: &[u8], chance: &mut Chance) -> Vec<u8> {
    let text = TEXTS[chance.below(TEXTS.len())];
    if !ending_of(path).starts_with(".u16") || text.is_empty() {
        return text.to_vec();
    }
    let units = text.iter().flat_map(|b| u16::from(*b).to_le_bytes());
    b"\xff\xfe".iter().copied().chain(units).collect()
}

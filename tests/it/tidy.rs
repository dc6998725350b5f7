//! Holds the sources to the rules of `ARCHITECTURE.md` that the compiler does not know: arrows between the
//! floors, opening words of modules, file length, where ref names are written, what tests may wait on.
//!
//! Each rule is a function from a [`Source`] to its violations, so that it can be shown to find a planted
//! one; a rule that finds nothing in its own counter-example is a defect.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What each floor may use besides itself, `code` and `limits`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("code", &[]),
    ("limits", &[]),
    ("domain", &[]),
    ("wire", &["domain"]),
    ("engine", &["domain"]),
    ("sys", &["domain"]),
    ("store", &["domain", "wire", "sys"]),
    ("sign", &["domain", "wire", "sys", "store"]),
    ("ledger", &["domain", "wire", "engine", "sys", "store", "sign"]),
    ("enforce", &["domain", "wire", "engine", "sys", "store", "sign", "ledger"]),
    ("runtime", &["domain", "wire", "engine", "sys", "store", "sign", "ledger"]),
    ("cli", &["domain", "wire", "engine", "sys", "store", "sign", "ledger", "enforce", "runtime"]),
];

const MOST_LINES: usize = 1000;
const MOST_LINES_OF_MAIN: usize = 30;

/// A file of the project: path relative to its top, `/`-separated, and text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn planted(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    /// The part that ships, without comments; empty for a file of tests.
    fn shipped(&self) -> String {
        let of_tests = self.path.ends_with("/tests.rs") || self.path.contains("/tests/");
        if of_tests || self.path.starts_with("src/testing") {
            return String::new();
        }
        without_comments(self.text.split("#[cfg(test)]\nmod ").next().unwrap())
    }

    /// The part that is only for tests, without comments.
    fn tests(&self) -> String {
        let all = without_comments(&self.text);
        if self.path.starts_with("tests/") || self.shipped().is_empty() {
            return all;
        }
        all.split_once("#[cfg(test)]\nmod ").map_or_else(String::new, |(_, tail)| tail.to_owned())
    }

    /// Names of the modules from the crate's root to this file; none for `lib.rs` and `main.rs`.
    fn module(&self) -> Vec<&str> {
        let below = self.path.strip_prefix("src/").unwrap_or("").strip_suffix(".rs").unwrap_or("");
        let mut names: Vec<_> = below.split('/').collect();
        if matches!(names.last(), Some(&"mod" | &"lib" | &"main")) {
            names.pop();
        }
        names
    }
}

/// Drops line and block comments; strings, characters and lifetimes are understood, raw strings too.
fn without_comments(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
            continue;
        } else if rest.starts_with("/*") {
            rest = rest[2..].find("*/").map_or("", |end| &rest[end + 4..]);
            continue;
        } else if c == '"' {
            quoted(rest)
        } else if rest.starts_with("r\"") || rest.starts_with("r#") {
            raw(rest).unwrap_or(1)
        } else if rest.starts_with("'\\") {
            rest[3..].find('\'').map_or(rest.len(), |end| end + 4)
        } else if c == '\'' && rest.chars().nth(2) == Some('\'') {
            rest.char_indices().nth(3).map_or(rest.len(), |(at, _)| at)
        } else {
            c.len_utf8()
        };
        kept.push_str(&rest[..skip]);
        rest = &rest[skip..];
    }
    kept
}

/// Length of the string literal at the start of `text`.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of the raw string literal at the start of `text`; `None` for a raw identifier.
fn raw(text: &str) -> Option<usize> {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    let open = 1 + hashes;
    let close = format!("\"{}", "#".repeat(hashes));
    let body = text[open..].strip_prefix('"')?;
    Some(body.find(&close).map_or(text.len(), |end| open + 1 + end + close.len()))
}

/// The floors a file names: what follows `crate::`, or as many `super::` as lead to the root.
fn floors_used(source: &Source) -> Vec<String> {
    let code = source.shipped();
    let depth = source.module().len();
    let climb = format!("{}{}", "super::", "super::".repeat(depth.saturating_sub(1)));
    let mut used = Vec::new();
    for lead in ["crate::", climb.as_str()] {
        if lead != "crate::" && depth == 0 {
            continue;
        }
        for (at, _) in code.match_indices(lead) {
            let longer = code[..at]
                .ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == ':');
            if !longer {
                used.extend(heads(&code[at + lead.len()..]));
            }
        }
    }
    used
}

/// First names of a path: one, or those of a `{…}` group.
fn heads(tail: &str) -> Vec<String> {
    let word = |t: &str| t.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let Some(group) = tail.strip_prefix('{') else { return vec![word(tail)] };
    let (mut depth, mut start, mut found) = (0, true, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = true,
            c if start && !c.is_whitespace() => {
                found.push(word(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
    found
}

fn arrows(source: &Source) -> Vec<String> {
    let Some(own) = source.module().first().map(|m| (*m).to_owned()) else { return Vec::new() };
    let Some((_, allowed)) = MAY_USE.iter().find(|(floor, _)| *floor == own) else {
        return if source.path.starts_with("src/testing") {
            Vec::new()
        } else {
            vec![format!("{}: '{own}' is no floor of the house", source.path)]
        };
    };
    let known = |name: &str| name == "testing" || MAY_USE.iter().any(|(floor, _)| *floor == name);
    floors_used(source)
        .into_iter()
        .filter(|name| known(name) && *name != own && !["code", "limits"].contains(&name.as_str()))
        .filter(|name| !allowed.contains(&name.as_str()))
        .map(|name| format!("{}: '{own}' must not use '{name}'", source.path))
        .collect()
}

fn opening_words(source: &Source) -> Vec<String> {
    if source.text.starts_with("//! ") {
        return Vec::new();
    }
    vec![format!("{}: does not open with `//!`", source.path)]
}

fn length(source: &Source) -> Vec<String> {
    let most = if source.path == "src/main.rs" { MOST_LINES_OF_MAIN } else { MOST_LINES };
    let lines = source.text.lines().count();
    if lines <= most {
        Vec::new()
    } else {
        vec![format!("{}: {lines} lines, at most {most}", source.path)]
    }
}

fn unfinished(source: &Source) -> Vec<String> {
    let marks = ["todo!", "unimplemented!", concat!("TO", "DO"), concat!("FIX", "ME")];
    // Comments count here, so the whole text is read; this file spells the macros only as data.
    let own = source.path == "tests/it/tidy.rs";
    marks
        .into_iter()
        .filter(|mark| !(own && mark.ends_with('!')) && source.text.contains(mark))
        .map(|mark| format!("{}: holds '{mark}'", source.path))
        .collect()
}

fn ref_names(source: &Source) -> Vec<String> {
    if source.path.starts_with("src/store/") || !source.path.starts_with("src/") {
        return Vec::new();
    }
    let code = source.shipped();
    ["refs/agentproto", "refs/notes"]
        .into_iter()
        .filter(|name| code.contains(name))
        .map(|name| format!("{}: writes '{name}', which only src/store may", source.path))
        .collect()
}

/// A sleep of a test that is no pause of a polling loop: one whose function looks at a deadline before it.
fn sleeping_tests(source: &Source) -> Vec<String> {
    let tests = source.tests();
    let sleep = concat!("thread::", "sleep");
    let polls = |at: usize| {
        let function = tests[..at].rfind("fn ").map_or("", |start| &tests[start..at]);
        function.contains("Instant::now() <") || function.contains("Instant::now() >")
    };
    // The one place where a test lets time pass: the chosen moment of a kill.
    if source.path == "tests/it/env.rs" || tests.match_indices(sleep).all(|(at, _)| polls(at)) {
        return Vec::new();
    }
    vec![format!("{}: a test sleeps; wait for a condition with a deadline", source.path)]
}

/// Absolute paths of the machine a file was written on.
fn machine_paths(source: &Source, places: &[String]) -> Vec<String> {
    let inside = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let named = |place: &str| {
        source.text.match_indices(place).any(|(at, _)| {
            let (before, after) = (&source.text[..at], &source.text[at + place.len()..]);
            !before.ends_with(|c| inside(c) || c == '.') && !after.starts_with(inside)
        })
    };
    places
        .iter()
        .filter(|place| named(place))
        .map(|place| format!("{}: names '{place}' of the machine it was written on", source.path))
        .collect()
}

/// The checkout, the directory it lies in and the builder's home, unless every machine has them.
fn places_of_this_machine() -> Vec<String> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let everywhere = ["/", "/tmp", "/home", "/usr/src", "/var/tmp", "/usr", "/opt"];
    [Some(top), top.parent(), option_env!("HOME").map(Path::new)]
        .into_iter()
        .flatten()
        .map(|place| place.display().to_string())
        .filter(|place| !everywhere.contains(&place.as_str()))
        .collect()
}

fn collect(dir: &Path, top: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, top, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
            found.push(Source { path, text });
        }
    }
}

/// All text files below the given directories and files of the project.
fn sources(below: &[&str]) -> Vec<Source> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for name in below {
        let path = top.join(name);
        if path.is_dir() {
            collect(&path, top, &mut found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.push(Source { path: (*name).to_owned(), text });
        }
    }
    found
}

fn hold(below: &[&str], rules: &[fn(&Source) -> Vec<String>]) {
    let files = sources(below);
    assert!(files.len() > 10, "looked at {} files only", files.len());
    let found: Vec<String> =
        files.iter().flat_map(|file| rules.iter().flat_map(move |rule| rule(file))).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn arrows_between_floors_point_down() {
    hold(&["src"], &[arrows]);
}

#[test]
fn modules_say_what_they_are_and_stay_short() {
    hold(&["src", "tests"], &[opening_words, length]);
}

#[test]
fn nothing_is_left_unfinished() {
    hold(&["src", "tests"], &[unfinished]);
}

#[test]
fn ref_names_are_written_in_the_store_only() {
    hold(&["src"], &[ref_names]);
}

#[test]
fn tests_do_not_sleep() {
    hold(&["src", "tests"], &[sleeping_tests]);
}

#[test]
fn no_file_names_the_machine_it_was_written_on() {
    let places = places_of_this_machine();
    let documents = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "Cargo.toml", ".ci", "docs"];
    let below: Vec<_> =
        documents.into_iter().chain(["src", "tests", "hooks", "fixtures"]).collect();
    let found: Vec<_> = sources(&below).iter().flat_map(|s| machine_paths(s, &places)).collect();
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn finds_a_planted_arrow() {
    for (path, text, name) in [
        ("src/domain/ids.rs", "use crate::sys::clock;", "sys"),
        ("src/wire/x.rs", "use crate::{domain::Oid, engine::{self, State}};", "engine"),
        ("src/engine/mod.rs", "fn f() { super::store::open() }", "store"),
        ("src/engine/policy.rs", "fn f() { super::super::wire::read() }", "wire"),
        ("src/sys/lock.rs", "fn f() -> crate::engine::State { todo() }", "engine"),
        ("src/store/a/b.rs", "use super::super::super::ledger::Ledger;", "ledger"),
        ("src/enforce/verify.rs", "use crate::runtime::perform;", "runtime"),
        ("src/runtime/mod.rs", "pub use crate::{\n    cli,\n};", "cli"),
        ("src/ledger.rs", "use crate::runtime;", "runtime"),
        ("src/cli/mod.rs", "use crate::testing::clock;", "testing"),
        ("src/attic/mod.rs", "", "no floor"),
    ] {
        let found = arrows(&Source::planted(path, text));
        assert_eq!(found.len(), 1, "{path}: {found:?}");
        assert!(found[0].contains(name), "{found:?}");
    }
}

#[test]
fn lets_pass_what_is_allowed() {
    for (path, text) in [
        (
            "src/store/log/wal/frame.rs",
            "use super::super::object::Object; use crate::{code::Code, sys, domain};",
        ),
        ("src/domain/ids.rs", "// crate::store decides\n/* crate::cli */ use crate::limits::X;"),
        ("src/domain/ids.rs", "#[cfg(test)]\nmod tests { use crate::cli::run; }"),
        ("src/store/log/wal/tests.rs", "use crate::runtime::x;"),
        (
            "src/domain/x.rs",
            "let q = '\"'; let l: &'a str; // crate::cli\n let s = \"// not a comment\";",
        ),
        ("src/lib.rs", "pub mod cli; use crate::cli::run;"),
    ] {
        assert_eq!(arrows(&Source::planted(path, text)), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn comments_go_and_strings_stay() {
    let text = "a(\"// s\", r#\"/* \"r\" */\"#, '/', '\\'', b'\"') // c\n/* d */b";
    let want = "a(\"// s\", r#\"/* \"r\" */\"#, '/', '\\'', b'\"') \nb";
    assert_eq!(without_comments(text), want);
}

#[test]
fn finds_each_other_planted_violation() {
    let long = "//! x\n".repeat(MOST_LINES + 1);
    let literal = "const R: &str = \"refs/agentproto/journal\";";
    let sleeper = format!(
        "#[cfg(test)]\nmod tests {{ fn f() {{ std::{}(d) }} }}",
        concat!("thread::", "sleep")
    );
    let unsaid = format!("// {}: later", concat!("TO", "DO"));
    type Rule = fn(&Source) -> Vec<String>;
    for (rule, path, text) in [
        (opening_words as Rule, "src/sys/x.rs", "use std::fs;"),
        (length, "src/sys/x.rs", long.as_str()),
        (length, "src/main.rs", &"//! x\n".repeat(MOST_LINES_OF_MAIN + 1)),
        (unfinished, "src/sys/x.rs", "fn f() { todo!() }"),
        (unfinished, "src/sys/x.rs", "fn f() { unimplemented!() }"),
        (unfinished, "src/sys/x.rs", &unsaid),
        (ref_names, "src/cli/x.rs", literal),
        (ref_names, "src/ledger.rs", "let r = r\"refs/notes/agentproto/acks\";"),
        (sleeping_tests, "src/sys/x.rs", &sleeper),
        (sleeping_tests, "tests/it/x.rs", concat!("fn f() { thread::", "sleep(d) }")),
    ] {
        assert_eq!(rule(&Source::planted(path, text)).len(), 1, "{path}: {text:.60}");
    }
    for (rule, path, text) in [
        (ref_names as Rule, "src/store/repo/refs.rs", literal),
        (
            ref_names,
            "src/cli/x.rs",
            "// refs/agentproto\n#[cfg(test)]\nmod tests { \"refs/notes\" }",
        ),
        (sleeping_tests, "src/sys/x.rs", concat!("fn f() { thread::", "sleep(d) }")),
        (
            sleeping_tests,
            "tests/it/x.rs",
            concat!("fn f() { loop { assert!(Instant::now() < end); thread::", "sleep(d) } }"),
        ),
    ] {
        assert!(rule(&Source::planted(path, text)).is_empty(), "{path}: {text}");
    }
}

#[test]
fn finds_a_planted_place() {
    let places = ["/build/area".to_owned()];
    let count = |text: &str| machine_paths(&Source::planted("docs/x.md", text), &places).len();
    assert_eq!([count("see /build/area/notes"), count("`/build/area`")], [1, 1]);
    assert_eq!([count("/build/areas"), count("../build/area"), count("x/build/area")], [0, 0, 0]);
}

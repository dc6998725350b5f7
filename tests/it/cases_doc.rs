//! Holds `docs/cases.md` to its word: every case has exactly one row, and every test it names exists.

use std::{collections::BTreeMap, fs, path::Path};

/// The numbers of the collected failure cases.
const NUMBERS: [u16; 124] = [
    1, 3, 5, 6, 8, 9, 10, 12, 14, 15, 17, 19, 20, 22, 23, 25, 26, 28, 30, 31, 32, 34, 35, 37, 39,
    40, 41, 43, 45, 47, 48, 50, 51, 53, 55, 57, 58, 59, 61, 62, 63, 65, 67, 68, 69, 71, 72, 74, 76,
    77, 78, 79, 81, 82, 83, 84, 86, 88, 89, 90, 91, 93, 95, 96, 98, 100, 101, 102, 104, 106, 107,
    108, 110, 111, 113, 116, 117, 118, 120, 123, 125, 126, 127, 128, 132, 134, 135, 137, 138, 140,
    141, 143, 144, 145, 146, 147, 149, 150, 152, 154, 155, 157, 158, 159, 161, 162, 163, 166, 167,
    169, 171, 173, 174, 175, 177, 178, 180, 181, 183, 185, 186, 188, 190, 192,
];

/// Cases whose tests this version brings.
const TESTED: [u16; 52] = [
    48, 51, 53, 67, 68, 69, 76, 77, 78, 79, 81, 82, 83, 84, 86, 88, 89, 90, 91, 93, 98, 100, 101,
    102, 104, 106, 107, 108, 110, 111, 113, 116, 118, 120, 123, 125, 126, 127, 132, 135, 137, 138,
    140, 141, 143, 144, 145, 185, 186, 188, 190, 192,
];

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Number, title and last column of every row; the heading and the rule are none.
fn rows(document: &str) -> Vec<(u16, String, String)> {
    document
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> =
                line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
            let number = cells[0].parse().ok()?;
            assert_eq!(cells.len(), 3, "a row has three columns: {line}");
            Some((number, cells[1].to_owned(), cells[2].to_owned()))
        })
        .collect()
}

/// What is wrong with the table, in words.
fn complaints(document: &str, tests: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = BTreeMap::<u16, usize>::new();
    for (number, title, answer) in rows(document) {
        *seen.entry(number).or_default() += 1;
        if title.is_empty() {
            found.push(format!("{number} has no title"));
        }
        // A test may be followed by the unit that brings the rest.
        let named = answer.trim_start_matches('`').split('`').next().unwrap_or_default();
        if named.starts_with("case_") {
            if !named.starts_with(&format!("case_{number:03}_")) {
                found.push(format!("{number} names the test of another case: {named}"));
            }
            if !tests.contains(&format!("fn {named}()")) {
                found.push(format!("{number} names a test that does not exist: {named}"));
            }
        } else if TESTED.contains(&number) {
            found.push(format!("{number} names no test: {answer}"));
        } else if !["unit ", "later unit: ", "not applicable: "]
            .iter()
            .any(|w| answer.starts_with(w))
        {
            found.push(format!("{number} says neither test, unit nor reason: {answer}"));
        }
    }
    found.extend(
        NUMBERS.iter().filter(|n| !seen.contains_key(n)).map(|n| format!("{n} has no row")),
    );
    found.extend(seen.iter().filter(|(_, n)| **n > 1).map(|(n, _)| format!("{n} has two rows")));
    found.extend(seen.keys().filter(|n| !NUMBERS.contains(n)).map(|n| format!("{n} is no case")));
    found
}

fn test_sources() -> String {
    let mut sources = String::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            sources.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    sources
}

#[test]
fn every_case_has_one_row_and_every_named_test_exists() {
    let found = complaints(&read("docs/cases.md"), &test_sources());
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn finds_missing_double_strange_and_false_rows() {
    let good = read("docs/cases.md");
    let tests = test_sources();
    let row = "| 1 | t | unit 05 |\n";
    let first = good.lines().find(|l| l.starts_with("| 1 |")).unwrap();
    let count = |document: &str| complaints(document, &tests).len();
    assert_eq!(count(&good.replace(&format!("{first}\n"), "")), 1, "missing");
    assert_eq!(count(&format!("{good}{row}")), 1, "double");
    assert_eq!(count(&format!("{good}| 2 | t | unit 05 |\n")), 1, "strange number");
    assert_eq!(count(&good.replace(first, "| 1 | t | later |")), 1, "no answer");
    assert_eq!(count(&good.replace(first, "| 1 | t | `case_001_not_there` |")), 1, "no such test");
    assert_eq!(count(&good.replace(first, "| 1 |  | unit 05 |")), 1, "no title");
    assert_eq!(count(&good.replace("`case_127_", "`case_048_")), 2, "the test of another case");
}

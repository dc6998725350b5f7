//! What people see: nothing that an agent wrote commands a terminal, and nothing is wider than it.

use super::scene::{EVIL, ROWS, Scene};
use crate::house::text;
use serde_json::Value;

/// Columns of a narrow terminal.
const NARROW: usize = 60;

/// The text without what we tell a terminal: colours, which are bold and one of the eight, and to begin a line anew, which
/// stands for the end of the line that was there.
fn without_ours(text: &str) -> String {
    let text = text.replace("\r\u{1b}[K", "\n");
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut all, part| {
        let coloured = part.strip_prefix('[').and_then(|part| part.split_once('m'));
        match coloured.filter(|(number, _)| ["0", "1", "31", "32", "33"].contains(number)) {
            Some((_, rest)) => all.push_str(rest),
            None => all.extend(["\u{1b}", part]),
        }
        all
    })
}

/// What may be wider than the terminal, each because it is there to be copied or read as it is: a command that is to be typed
/// next (`next`, `or`, `diff` and the lines that are nothing else), and one word alone on its line: a full id, a path, the
/// fingerprint of a key, the list of directories where programs are found.
fn may_be_wide(line: &str) -> bool {
    let said = line.trim_start();
    // The name of a row, as in `  next      git …`, is no more than ten columns wide.
    let row = said.split_once("  ").filter(|(name, _)| name.len() <= 10);
    let said = row.map_or(said, |(_, rest)| rest.trim_start());
    said.starts_with("git ") || !said.contains(' ')
}

/// `demo` is a transcript: commands, and what they print where nobody sits at a terminal. A manual page is laid out by `man`, in
/// its own way. A completion script and a schema are there to be kept as they are.
fn is_laid_out(command: &str) -> bool {
    !["demo", "man", "completions", "schema"].contains(&command)
}

#[test]
fn nothing_is_wider_than_a_narrow_terminal_but_what_is_there_to_be_copied() {
    let scene = Scene::new();
    let mut coloured = false;
    for row in ROWS.iter().filter(|row| is_laid_out(row.command)) {
        let out = scene.env.on_terminal(NARROW, &scene.call(row, &[])).exits(0);
        coloured |= out.out().contains('\u{1b}');
        for line in without_ours(&out.out()).lines() {
            let fits = line.chars().count() <= NARROW || may_be_wide(line);
            assert!(fits, "'{line}' is too wide: {out}");
        }
        let out = scene.env.on_terminal(NARROW, &scene.call(row, &["--json"])).exits(0);
        assert!(!out.out().contains('\u{1b}'), "colour in JSON: {out}");
        for line in out.out().lines() {
            serde_json::from_str::<Value>(line)
                .unwrap_or_else(|e| panic!("{e}: '{line}' in {out}"));
        }
    }
    assert!(coloured, "this was no terminal");
}

/// The first character that commands a terminal, or hides or reorders text.
fn commands_a_terminal(text: &str) -> Option<char> {
    text.chars().find(|c| {
        let reorders = matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}');
        let hides = matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e0fff}');
        reorders || hides || (c.is_control() && *c != '\n')
    })
}

#[test]
fn case_192_what_an_agent_wrote_never_commands_a_terminal() {
    let scene = Scene::hostile();
    let (mut escaped, mut kept) = (0, 0);
    for row in ROWS {
        let out = scene.run(row, &[]);
        for told in [out.out(), out.err()] {
            assert_eq!(commands_a_terminal(&told), None, "{told:?} of {out}");
            escaped += told.matches("\\x1b[2K\\rgreen").count();
        }
        // There `man` shows it, and waits for somebody to read it.
        if row.answer != "man" {
            let shown = scene.env.on_terminal(NARROW, &scene.call(row, &[])).exits(0);
            let plain = without_ours(&shown.out());
            assert_eq!(commands_a_terminal(&plain), None, "{plain:?} of {shown}");
        }
        // JSON keeps the true values, and escapes them as JSON does.
        let out = scene.run(row, &["--json"]);
        let told = out.out();
        assert_eq!(commands_a_terminal(&told), None, "{told:?} of {out}");
        let values = told.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        kept += values.map(|value| texts(&value, EVIL)).sum::<usize>();
    }
    assert!(escaped > 10 && kept > 40, "little was seen of it: {escaped} times, {kept} in JSON");
    let policy = scene.env.policy(&scene.blocked);
    assert_eq!(text(&policy["lastGate"], "tail").trim_end(), EVIL);
    // A label is refused outright, and errors name what was typed.
    for words in
        [&["session", "adopt", "--cwd", "."] as &[&str], &["attach", &scene.session, "--ungated"]]
    {
        scene.env.ap(&[words, &["--label", EVIL]].concat()).exits(129);
    }
    for words in [
        ["policy", "show", EVIL],
        ["session", "show", EVIL],
        ["help", EVIL, "x"],
        ["schema", EVIL, "-C."],
    ] {
        let out = scene.env.ap(&words);
        assert!(out.code() != 0 && !out.err().is_empty(), "{out}");
        assert_eq!(commands_a_terminal(&out.err()), None, "{:?}", out.err());
        let out = scene.env.ap(&[&words[..], &["--json"]].concat());
        assert_eq!(commands_a_terminal(&out.err()), None, "{:?}", out.err());
    }
    // The review and the whole diff, as a person asks for them.
    let words = ["ack", &scene.waiting];
    let shown = scene.env.on_terminal_typing(NARROW, &words, "d\nn\n");
    let plain = without_ours(&shown.out());
    assert!(plain.contains("+++ ") && plain.contains("\\x1b[2K\\rgreen"), "{shown}");
    assert_eq!(commands_a_terminal(&plain), None, "{plain:?}");
}

/// How many texts in a value hold this one.
fn texts(value: &Value, wanted: &str) -> usize {
    match value {
        Value::String(text) => usize::from(text.contains(wanted)),
        Value::Array(all) => all.iter().map(|one| texts(one, wanted)).sum(),
        Value::Object(all) => all.values().map(|one| texts(one, wanted)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

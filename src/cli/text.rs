//! What is safe and fits to show: escaping, colours, widths, tables.
//!
//! Contract: everything that an agent, a gate or a file name can bring goes through [`shown`] or [`block`]
//! before it reaches a terminal; what comes out holds no control character, no escape and no mark that
//! reorders or hides text. The rejected alternative, dropping such characters, would show two different
//! names alike.

use crate::{domain::time::Timestamp, limits, sys::env::Env};

pub(super) use crate::domain::time::{duration, typed_duration};

use serde_json::Value;
use std::{io, os::fd::AsFd};

/// Columns assumed when nobody says.
const COLUMNS: usize = 80;
/// No table is made narrower.
const MIN_COLUMNS: usize = 40;

/// Text on one line with everything escaped that could hide, reorder or command.
pub(super) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        push(&mut out, c);
    }
    out
}

fn push(out: &mut String, c: char) {
    match c {
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
        c if hides(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        c => out.push(c),
    }
}

/// C1 controls, bidi marks and overrides, zero-width and line separators, tags, variation selectors.
fn hides(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// A JSON value on one line, ended by a newline. What [`shown`] escapes is escaped here, too, as JSON does it: a program
/// reads the same value, and a terminal is not commanded by it.
pub(super) fn json_line(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        if c.is_control() || hides(c) {
            let mut units = [0; 2];
            c.encode_utf16(&mut units)
                .iter()
                .for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out.push('\n');
    out
}

/// Digits of an object id on a terminal: enough for git to find it in any but the very largest repositories.
const SHORT_OID_CHARS: usize = 12;

/// The beginning of a word that is a whole object id; any other word as it is.
pub(super) fn short_oid(word: &str) -> &str {
    let is_oid = word.len() == 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
    word.get(..SHORT_OID_CHARS).filter(|_| is_oid).unwrap_or(word)
}

/// Several lines, each escaped and set in by `indent`; a tab becomes spaces, it cannot hide anything.
pub(super) fn block(text: &str, indent: &str) -> String {
    let mut out = String::new();
    for line in text.trim_end_matches('\n').split('\n') {
        let line = shown(&line.trim_end_matches('\r').replace('\t', "    "));
        out.push_str(format!("{indent}{line}").trim_end());
        out.push('\n');
    }
    out
}

/// The last `most` lines of what a gate wrote, for people: no line is longer than a screen bears, nothing commands.
pub(super) fn output(tail: &str, most: usize) -> String {
    let lines: Vec<&str> = tail.trim_end_matches('\n').split('\n').collect();
    let from = lines.len().saturating_sub(most);
    // How much more there is only its log tells: this is the end of it.
    let mut out =
        if from == 0 { String::new() } else { "    (earlier output is not shown)\n".to_owned() };
    for line in &lines[from..] {
        let text = shown(&line.trim_end_matches('\r').replace('\t', "    "));
        out.push_str(format!("    | {}", cut(&text, limits::TAIL_LINE_CHARS)).trim_end());
        out.push('\n');
    }
    out
}

/// Adds a line that is safe to show already.
pub(super) fn line(text: &mut String, words: &str) {
    text.push_str(words);
    text.push('\n');
}

/// Columns of the terminal that stderr is; none in a pipe, where nothing is broken.
pub(super) fn columns_of_stderr(env: &Env) -> Option<usize> {
    let stderr = io::stderr();
    io::IsTerminal::is_terminal(&stderr).then(|| columns_of(env, &stderr))
}

/// Columns of the terminal that stdout is.
pub(super) fn columns(env: &Env) -> usize {
    columns_of(env, io::stdout())
}

fn columns_of(env: &Env, stream: impl AsFd) -> usize {
    let asked = env.text("COLUMNS").and_then(|c| c.parse().ok());
    let known = || rustix::termios::tcgetwinsize(&stream).ok().map(|s| usize::from(s.ws_col));
    asked.or_else(known).filter(|c| *c > 0).unwrap_or(COLUMNS).max(MIN_COLUMNS)
}

/// Cuts text to `width` characters, the last being `…` when something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept.push('…');
    kept
}

/// Text with every line that is wider than the terminal broken between words, set in below what it began with. Never
/// broken are ids, commands, quoted names, paths in a row of their own, and what a gate wrote.
pub(super) fn wrapped(text: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let lines = text.split('\n').map(|line| {
        if width(line) <= columns || is_fixed(line) {
            line.to_owned()
        } else {
            broken(line, columns)
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Characters that a terminal shows: those of a colour of ours are none.
fn width(text: &str) -> usize {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().map_or(0, |part| part.chars().count());
    first
        + parts
            .map(|part| part.split_once('m').map_or(0, |(_, rest)| rest.chars().count()))
            .sum::<usize>()
}

/// There to be copied or read as it is.
fn is_fixed(line: &str) -> bool {
    let words = line.trim_start();
    ["| ", "git ", "path "].iter().any(|start| words.starts_with(start))
}

/// What begins the line of a help that says how a command is called.
const USAGE: &str = "Usage: ";

fn broken(line: &str, columns: usize) -> String {
    if let Some(call) = line.strip_prefix(USAGE) {
        return broken_usage(call, columns);
    }
    let (lead, rest) = line.split_at(begin_of_prose(line));
    let indent = if lead.trim().is_empty() { lead.len() + 4 } else { width(lead) };
    let mut out = lead.to_owned();
    let mut at = width(lead);
    let mut is_first = true;
    for word in unbroken(rest) {
        let room = if is_first { 0 } else { 1 };
        if !is_first && at + room + width(&word) > columns {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            at = indent;
        } else if !is_first {
            out.push(' ');
            at += 1;
        }
        at += width(&word);
        out.push_str(&word);
        is_first = false;
    }
    out
}

/// How a command is called, broken between its parts: an option stays with its value, and what is in brackets together.
fn broken_usage(call: &str, columns: usize) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in call.split(' ') {
        let is_value = word.starts_with(|c: char| c.is_ascii_uppercase());
        let joins = |last: &String| {
            let opened = last.matches('[').count() > last.matches(']').count();
            opened || (is_value && last.starts_with('-'))
        };
        match parts.last_mut().filter(|last| joins(last)) {
            Some(last) => last.push_str(&format!(" {word}")),
            None => parts.push(word.to_owned()),
        }
    }
    let (mut out, mut at) = (USAGE.trim_end().to_owned(), USAGE.len() - 1);
    for part in parts {
        if at + 1 + width(&part) > columns {
            out.push('\n');
            out.push_str(&" ".repeat(USAGE.len() + 3));
            at = USAGE.len() + 3;
        } else {
            out.push(' ');
            at += 1;
        }
        at += width(&part);
        out.push_str(&part);
    }
    out
}

/// Widest beginning below which the rest of a line is set in.
const LEAD_COLUMNS: usize = 12;

/// Where the name of a row ends and what it says begins; the indentation where there is no such name.
fn begin_of_prose(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    let Some(gap) = line[indent..].find("  ").map(|at| indent + at) else { return indent };
    let begin = gap + (line[gap..].len() - line[gap..].trim_start().len());
    if begin <= LEAD_COLUMNS { begin } else { indent }
}

/// The words of a line, those that belong together as one: a command up to where its sentence goes on, a name in quotes,
/// how long ago something was.
fn unbroken(text: &str) -> Vec<String> {
    let ends = |word: &str| word.ends_with([',', ';', ':', ')']);
    let closes = |word: &str| word.trim_end_matches([',', ';', ':', ')', '.']).ends_with('\'');
    let words: Vec<&str> = text.split(' ').collect();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(word) = words.get(at) {
        let rest = &words[at..];
        let is_command = word.trim_start_matches('(') == "git" && rest.len() > 1;
        let count = if is_command {
            rest.iter().position(|w| ends(w)).map_or(rest.len(), |last| last + 1)
        } else if rest.len() > 2 && rest[2] == "ago" {
            3
        } else if word.starts_with('\'') {
            rest.iter().position(|w| closes(w)).map_or(1, |last| last + 1)
        } else {
            1
        };
        all.push(rest[..count].join(" "));
        at += count;
    }
    all
}

/// Most columns a label takes in a list.
pub(super) const LABEL_COLUMNS: usize = 16;

/// Rows in columns two spaces apart, cut where the terminal is too narrow. Cells are escaped here.
pub(super) fn table(rows: &[Vec<String>], indent: &str, columns: Option<usize>) -> String {
    table_with_ids(rows, indent, columns, 1)
}

/// The same; the first `whole` columns are there to be copied and never cut.
pub(super) fn table_with_ids(
    rows: &[Vec<String>],
    indent: &str,
    columns: Option<usize>,
    whole: usize,
) -> String {
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| shown(cell)).collect()).collect();
    let count = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width_of = |i: usize| {
        cells.iter().filter_map(|row| row.get(i)).map(|c: &String| c.chars().count()).max()
    };
    let mut widths: Vec<usize> = (0..count).map(|i| width_of(i).unwrap_or(0)).collect();
    if let Some(columns) = columns {
        fit(&mut widths, columns.saturating_sub(indent.chars().count()), whole);
    }
    let mut out = String::new();
    for row in &cells {
        let mut line = indent.to_owned();
        for (cell, width) in row.iter().zip(&widths) {
            let cell = cut(cell, *width);
            let pad = width - cell.chars().count();
            line.push_str(&cell);
            line.push_str(&" ".repeat(pad + 2));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Narrowest that a middle column is cut to.
const MIN_CELL: usize = 8;

/// The last column gives way first and wholly, then those before it; the first `whole` never.
fn fit(widths: &mut [usize], room: usize, whole: usize) {
    for i in (whole..widths.len()).rev() {
        let total = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
        let over = total.saturating_sub(room);
        let least = if i + 1 == widths.len() { 1 } else { MIN_CELL };
        widths[i] = widths[i].saturating_sub(over).max(least.min(widths[i]));
    }
}

/// How long ago, in the largest unit that is not zero.
pub(super) fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.seconds().saturating_sub(at.seconds()).max(0);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    /// Off in a pipe, in JSON and when the user says so.
    pub(super) on: bool,
}

impl Paint {
    /// Headings.
    pub(super) fn bold(self, text: &str) -> String {
        self.with(anstyle::Style::new().bold(), text)
    }

    /// What a person must look at.
    pub(super) fn warn(self, text: &str) -> String {
        self.with(anstyle::AnsiColor::Yellow.on_default().bold(), text)
    }

    fn with(self, style: anstyle::Style, text: &str) -> String {
        if self.on { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_hides_or_commands_is_shown() {
        for (text, want) in [
            ("plain Ünïcode 日本", "plain Ünïcode 日本"),
            ("\u{1b}[31mred\u{7f}", "\\x1b[31mred\\x7f"),
            ("a\r\n\tb\0", "a\\r\\n\\tb\\x00"),
            ("evil\u{202e}txt.exe", "evil\\u{202e}txt.exe"),
            ("\u{2066}x\u{200b}y\u{9b}", "\\u{2066}x\\u{200b}y\\u{9b}"),
            ("tag\u{e0041}", "tag\\u{e0041}"),
        ] {
            assert_eq!(shown(text), want);
        }
    }

    #[test]
    fn json_keeps_every_value_and_commands_no_terminal() {
        let value = Value::from("\u{1b}[2K\n\u{7f}\u{9b}\u{202e}\u{e0041}é日\"");
        let line = json_line(&value);
        let want = r#""\u001b[2K\n\u007f\u009b\u202e\udb40\udc41é日\"""#;
        assert_eq!(line, format!("{want}\n"));
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn object_ids_and_nothing_else_are_shortened() {
        assert_eq!(short_oid(&"a1".repeat(20)), "a1a1a1a1a1a1");
        for word in ["a1".repeat(19), "g".repeat(40), "é".repeat(20), String::new()] {
            assert_eq!(short_oid(&word), word);
        }
    }

    #[test]
    fn how_a_command_is_called_is_broken_between_its_parts() {
        let usage =
            "Usage: git agentproto commit --path PATH... -m MSG [OPTIONS] [-- GATE...]\n\nx";
        let want = "Usage: git agentproto commit --path PATH... -m MSG [OPTIONS]\n          [-- GATE...]\n\nx";
        assert_eq!(wrapped(usage, Some(60)), want);
        assert_eq!(wrapped(usage, Some(100)), usage);
        let narrow = wrapped(usage, Some(40));
        assert!(narrow.lines().all(|line| line.len() <= 40), "{narrow}");
        assert!(narrow.contains("--path PATH...") && narrow.contains("[-- GATE...]"), "{narrow}");
    }

    #[test]
    fn blocks_keep_their_lines_and_lose_their_escapes() {
        assert_eq!(block("a\tb\r\n\n\u{1b}c\n\n", "  "), "  a    b\n\n  \\x1bc\n");
    }

    #[test]
    fn prose_is_broken_and_nothing_that_is_copied() {
        let id = "pol_01arz3ndektsv4rrffq69g5fav";
        for (line, want) in [
            ("short".to_owned(), "short".to_owned()),
            (format!("policy {id}  8 min ago"), format!("policy {id}\n    8 min ago")),
            (
                "hint: the words of a sentence go on in the next line, set in".to_owned(),
                "hint: the words of a sentence go on in\n    the next line, set in".to_owned(),
            ),
            (
                "  because   one two three four five six seven".to_owned(),
                "  because   one two three four five six\n            seven".to_owned(),
            ),
            (
                "not set up for you yet: run git agentproto init --yes, then go".to_owned(),
                "not set up for you yet: run\n    git agentproto init --yes, then go".to_owned(),
            ),
            (
                format!("     7  2026-01-31T12:00:00.000Z  policy:failed {id}: red"),
                format!(
                    "     7  2026-01-31T12:00:00.000Z\n        policy:failed\n        {id}:\n        red"
                ),
            ),
            (
                "error: 'a name with many words that is long' is no file".to_owned(),
                "error:\n    'a name with many words that is long'\n    is no file".to_owned(),
            ),
        ] {
            assert_eq!(wrapped(&line, Some(40)), want);
            assert_eq!(wrapped(&line, None), line);
        }
        for fixed in
            ["    | ", "      git agentproto ", "  path      ", "  next      git agentproto "]
        {
            let line = format!("{fixed}{}", "word ".repeat(20).trim_end());
            assert_eq!(wrapped(&line, Some(40)), line);
        }
        let painted = Paint { on: true }.warn("exactly forty columns of a warning, dear");
        assert_eq!(wrapped(&painted, Some(40)), painted);
    }

    #[test]
    fn output_is_a_few_lines_and_none_is_endless() {
        assert_eq!(output("a\r\n\tb\x1b[2J\n", 2), "    | a\n    |     b\\x1b[2J\n");
        let thousands: String = (0..3000).map(|n| format!("{n}\n")).collect();
        let last = "    (earlier output is not shown)\n    | 2998\n    | 2999\n";
        assert_eq!(output(&thousands, 2), last);
        assert_eq!(output("1\n2\n3", 3), "    | 1\n    | 2\n    | 3\n");
        let endless = output(&"x".repeat(5000), 2);
        assert_eq!(endless.chars().count(), "    | \n".len() + limits::TAIL_LINE_CHARS);
        assert!(endless.ends_with("x…\n"), "{endless}");
    }

    #[test]
    fn tables_fit_sixty_columns_from_the_right() {
        let row = |cells: &[&str]| cells.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>();
        let rows = [
            row(&["pol_01arz3ndektsv4rrffq69g5fav", "awaiting-ack", &"long message ".repeat(9)]),
            row(&["x", "done", "short"]),
        ];
        assert_eq!(
            table(&rows, "  ", Some(60)),
            "  pol_01arz3ndektsv4rrffq69g5fav  awaiting-ack  long messag…\n\
             \u{20}\u{20}x                               done          short\n"
        );
        let narrow = table(&rows, "", Some(40));
        assert!(narrow.starts_with("pol_01arz3ndektsv4rrffq69g5fav  awaitin…  …\n"), "{narrow}");
        assert!(table(&rows, "", None).contains("message long message"));
    }

    #[test]
    fn times_are_told_in_their_largest_unit() {
        let at = Timestamp::from_ms(0);
        for (seconds, want) in
            [(-5, "0 s ago"), (59, "59 s ago"), (3599, "59 min ago"), (86_400, "1 d ago")]
        {
            assert_eq!(ago(at, Timestamp::from_ms(seconds * 1000)), want);
        }
    }
}

//! From what was typed to what it means: durations, cursors, commands in one word.
//!
//! The argument parser only splits words; their meaning is worked out here, so that each refusal carries its
//! own code instead of the parser's.

use super::{cx::Cx, error::CliError};
use crate::{
    code::Code,
    domain::{
        cursor::Since,
        time::{BadDuration, Timestamp, parse_duration_ms, typed_duration},
    },
    limits,
    sys::files,
};
use std::{collections::BTreeMap, ffi::OsStr, path::Path};

/// A typed duration in milliseconds; `flag` is where it was typed.
pub(super) fn duration_ms(flag: &str, text: &str) -> Result<u64, CliError> {
    parse_duration_ms(text).map_err(|why| {
        let code = match why {
            BadDuration::Syntax(_) => Code::BadTime,
            BadDuration::Ambiguous(_) => Code::AmbiguousDuration,
        };
        CliError::new(code, format!("{flag}: {why}")).about(flag)
    })
}

/// A typed position in the journal: `tip`, a number, a journal commit, `<writer>@<number>`, an RFC 3339 time
/// or a duration ago.
pub(super) fn since(text: &str, now: Timestamp) -> Result<Since, CliError> {
    if text == "tip" {
        return Ok(Since::Tip);
    }
    // A commit id may be all digits, so its length decides first.
    if let Ok(id) = text.parse() {
        return Ok(Since::Commit(id));
    }
    if let Ok(seq) = text.parse() {
        return Ok(Since::Seq(seq));
    }
    if let Some((writer, seq)) = text.split_once('@')
        && let (Ok(writer), Ok(seq)) = (writer.parse(), seq.parse())
    {
        return Ok(Since::WriterSeq(writer, seq));
    }
    if let Ok(at) = text.parse() {
        return Ok(Since::Time(at));
    }
    if let Ok(ago_ms) = parse_duration_ms(text) {
        let ago_ms = i64::try_from(ago_ms).unwrap_or(i64::MAX);
        return Ok(Since::Time(now.plus_ms(-ago_ms)));
    }
    let message = format!("--since: neither a cursor, a number nor a time: '{text}'");
    Err(CliError::new(Code::BadTime, message).about("--since"))
}

/// A typed end: an RFC 3339 time or a duration from now on; `flag` is where it was typed.
pub(super) fn end(flag: &str, text: &str, now: Timestamp) -> Result<Timestamp, CliError> {
    if let Ok(at) = text.parse() {
        return Ok(at);
    }
    let ms = duration_ms(flag, text)?;
    let most = limits::POLICY_LIFE_MAX_MS;
    let fits = i64::try_from(ms).ok().filter(|_| ms <= most);
    fits.map(|ms| now.plus_ms(ms)).ok_or_else(|| {
        let message = format!("{flag}: {text}, at most {} is accepted", typed_duration(most));
        CliError::new(Code::BadTime, message).about(flag)
    })
}

/// Variables written as `NAME=VALUE`; `flag` is where they were typed.
pub(super) fn variables(
    flag: &str,
    texts: &[String],
) -> Result<BTreeMap<String, String>, CliError> {
    let bad =
        |text: &str, why| CliError::new(Code::Usage, format!("{flag} '{text}': {why}")).about(flag);
    let mut all = BTreeMap::new();
    for text in texts {
        let (name, value) = text.split_once('=').ok_or_else(|| bad(text, "write NAME=VALUE"))?;
        if all.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(bad(text, "it is given twice"));
        }
    }
    Ok(all)
}

/// A command written as one word, split as a shell would but run by none.
pub(super) fn command_words(flag: &str, text: &str) -> Result<Vec<String>, CliError> {
    let bad = |why: String| {
        CliError::new(Code::Usage, format!("{flag} '{text}': {why}"))
            .about(flag)
            .with_hint("quote it as a shell would, or write the command after --")
    };
    match shell_words::split(text) {
        Ok(words) if words.is_empty() => Err(bad("no command".into())),
        Ok(words) => Ok(words),
        Err(e) => Err(bad(e.to_string())),
    }
}

/// Refuses a command whose program is several words in one: no program found by its name is called that, and no file where
/// gates run.
pub(super) fn require_program_word(
    cx: &Cx,
    command: &str,
    argv: &[String],
    gate_cwd: Option<&OsStr>,
) -> Result<(), CliError> {
    let Some((program, rest)) = argv.split_first() else { return Ok(()) };
    if !program.contains(char::is_whitespace) {
        return Ok(());
    }
    if program.contains('/') && is_somewhere(cx, Path::new(program), gate_cwd) {
        return Ok(());
    }
    let message = format!("'{program}' is one word, and no program is called that");
    let made = CliError::new(Code::Usage, message);
    Err(match shell_words::split(program) {
        Ok(words) if !words.is_empty() => {
            let all = words.iter().chain(rest).map(String::as_str);
            made.with_hint(format!("without the quotes: {command} -- {}", shell_words::join(all)))
        }
        Ok(_) | Err(_) => {
            made.with_hint("write the program and each argument as a word of its own")
        }
    })
}

/// Whether a file is there, seen from here or from where gates run in any worktree. What cannot be looked at is judged where
/// it is run.
fn is_somewhere(cx: &Cx, program: &Path, gate_cwd: Option<&OsStr>) -> bool {
    let is_there = |dir: &Path| files::is_there(&dir.join(program)).unwrap_or(true);
    let worktrees = cx.ledger().ok().and_then(|l| l.store().location().worktrees().ok());
    let Some(worktrees) = worktrees else { return true };
    let below = |top: &Path| gate_cwd.map_or(top.to_owned(), |cwd| top.join(cwd));
    is_there(cx.env.cwd()) || worktrees.iter().any(|w| is_there(&w.top) || is_there(&below(&w.top)))
}

/// What only a shell would understand, as a word of its own.
const SHELL_OPERATORS: [&str; 14] =
    ["&&", "||", "|", "|&", ";", "&", ">", ">>", "<", "<<", "2>", "2>>", "2>&1", "&>"];

/// Refuses a gate in one word that needs a shell. What is quoted or escaped is meant as a plain word.
pub(super) fn require_no_shell(flag: &str, text: &str) -> Result<(), CliError> {
    let Some(operator) = shell_operator(text) else { return Ok(()) };
    let message = format!("{flag} '{text}': '{operator}' needs a shell, and gates run without one");
    Err(CliError::new(Code::GateNeedsShell, message).about(flag))
}

/// The first word that is an operator of the shell, or that ends with the one that ends a command.
fn shell_operator(text: &str) -> Option<&'static str> {
    let ends = |word: &str| SHELL_OPERATORS.into_iter().find(|operator| *operator == word);
    let semicolon = |word: &str| word.ends_with(';').then_some(";");
    bare_words(text).iter().find_map(|word| ends(word).or_else(|| semicolon(word)))
}

/// The words without any quoted or escaped part.
fn bare_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_bare) = (Vec::new(), String::new(), true);
    let (mut quote, mut chars) = (None, text.chars());
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), _) if open == c => quote = None,
            (None, '\'' | '"') => (quote, is_bare) = (Some(c), false),
            (None | Some('"'), '\\') => {
                is_bare = false;
                chars.next();
            }
            (Some(_), _) => {}
            (None, c) if c.is_whitespace() => {
                words.extend(is_bare.then(|| std::mem::take(&mut word)));
                (word, is_bare) = (String::new(), true);
            }
            (None, c) => word.push(c),
        }
    }
    words.extend(is_bare.then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_refused_by_their_own_code() {
        assert_eq!(duration_ms("--timeout", "2h"), Ok(7_200_000));
        for (text, code) in
            [("30", Code::AmbiguousDuration), ("soon", Code::BadTime), ("", Code::BadTime)]
        {
            assert_eq!(duration_ms("--timeout", text).unwrap_err().code, code, "{text}");
        }
    }

    #[test]
    fn a_variable_is_a_name_and_a_value() {
        let read = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|t| (*t).to_owned()).collect();
            variables("--gate-env", &texts).map(|all| all.into_iter().collect::<Vec<_>>())
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read(&["A=b=c", "B="]), Ok(vec![pair("A", "b=c"), pair("B", "")]));
        for bad in [&["A"][..], &["A=1", "A=1"]] {
            assert_eq!(read(bad).unwrap_err().code, Code::Usage, "{bad:?}");
        }
    }

    #[test]
    fn operators_of_a_shell_are_found_where_they_are_bare_words() {
        for (text, want) in [
            ("a && b", Some("&&")),
            ("a b|c | d", Some("|")),
            ("make; make test", Some(";")),
            ("a > out", Some(">")),
            ("a 2>&1", Some("2>&1")),
            ("a &", Some("&")),
            ("grep '|' f", None),
            ("find . -exec x {} \\;", None),
            ("sh -c 'a && b'", None),
            ("a \"x ; y\"", None),
            ("a b=c|d -- 'it''s'", None),
            ("a ''&& b", None),
        ] {
            assert_eq!(shell_operator(text), want, "{text}");
        }
    }

    #[test]
    fn positions_are_told_apart() {
        let now = Timestamp::from_ms(1_700_000_000_000);
        let id = "1".repeat(40);
        for (text, want) in [
            ("tip", Since::Tip),
            ("17", Since::Seq(17)),
            (&id, Since::Commit(id.parse().unwrap())),
            ("abcdefghij12@3", Since::WriterSeq("abcdefghij12".parse().unwrap(), 3)),
            ("2023-11-14T22:13:20Z", Since::Time(now)),
            ("30s", Since::Time(now.plus_ms(-30_000))),
        ] {
            assert_eq!(since(text, now), Ok(want), "{text}");
        }
        assert_eq!(since("yesterday", now).unwrap_err().code, Code::BadTime);
    }

    #[test]
    fn an_end_is_a_time_or_a_duration_from_now_on() {
        let now = Timestamp::from_ms(1_700_000_000_000);
        assert_eq!(end("--expires", "2023-11-14T22:13:20Z", now), Ok(now));
        assert_eq!(end("--expires", "30s", now), Ok(now.plus_ms(30_000)));
        for (text, code) in [
            ("30", Code::AmbiguousDuration),
            ("tomorrow", Code::BadTime),
            ("9999999d", Code::BadTime),
        ] {
            assert_eq!(end("--expires", text, now).unwrap_err().code, code, "{text}");
        }
    }

    #[test]
    fn a_gate_in_one_word_is_split_without_a_shell() {
        assert_eq!(command_words("--gate", "ls 'a b' $HOME;").unwrap(), ["ls", "a b", "$HOME;"]);
        for text in ["", "  ", "ls 'a"] {
            assert_eq!(command_words("--gate", text).unwrap_err().code, Code::Usage, "{text:?}");
        }
    }
}

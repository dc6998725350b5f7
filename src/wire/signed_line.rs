//! What gate lines and ack lines have in common: one line, a magic word, a verb, `name=value` fields.
//!
//! Contract: fields are separated by exactly one space, stand in a fixed order, each once. Every byte of
//! a value outside `A-Za-z0-9._~/:@+-` is written `%XX` with upper-case hex digits. There is exactly one
//! way to write a value: readers re-encode what they read and refuse a line that differs, so two
//! different lines never mean the same and a signature covers meaning, not spelling.
//! A line ends without LF; what stores it adds one.

use crate::{code::Code, domain::digest::is_sha256, limits::NOTE_ACK_BYTES};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use std::{fmt::Write as _, str::FromStr};

/// Bytes that are escaped in values.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b'@')
    .remove(b'+')
    .remove(b'-');

/// Written for a value that is not known. Never a valid object id, digest or number.
pub const UNKNOWN: &str = "-";

/// The line is not what this format says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Another magic word or version.
    #[error("expected a line starting '{expected}', got '{actual}'")]
    Magic {
        /// The word this reader knows.
        expected: &'static str,
        /// The first word of the line.
        actual: String,
    },
    /// A field is missing, doubled, in another place or unknown.
    #[error("expected field '{expected}=', got '{actual}'")]
    Field {
        /// The field whose turn it is.
        expected: &'static str,
        /// What stands there.
        actual: String,
    },
    /// The value does not fit its field.
    #[error("field '{field}' cannot be '{value}'")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value as written.
        value: String,
    },
    /// Something follows the last field.
    #[error("nothing may follow the last field, got '{0}'")]
    Trailing(String),
    /// The same meaning has another, canonical spelling.
    #[error("not in canonical form, expected '{expected}'")]
    NotCanonical {
        /// The canonical line.
        expected: String,
    },
}

impl LineError {
    /// Every such line is `malformed`.
    #[must_use]
    pub fn code(&self) -> Code {
        Code::Malformed
    }
}

/// Escapes a value.
#[must_use]
pub fn escape(value: &[u8]) -> String {
    percent_encode(value, ESCAPED).to_string()
}

/// The lines of a note, as they are judged, remembered and looked for. They end with LF alone: a CR is part of its line.
/// Of one that is longer than any line may be the beginning is enough to know it again, and a mark keeps it from being
/// read as a whole one.
pub fn lines_of(note: &[u8]) -> impl Iterator<Item = String> {
    note.split(|b| *b == b'\n').map(|line| {
        let kept = String::from_utf8_lossy(&line[..line.len().min(NOTE_ACK_BYTES)]).into_owned();
        if line.len() > NOTE_ACK_BYTES { kept + CUT } else { kept }
    })
}

/// Ends what was cut off. No field holds a space.
const CUT: &str = " ...";

/// Writes a line field by field.
#[derive(Debug)]
pub(super) struct Writer(String);

impl Writer {
    pub(super) fn new(magic: &str, verb: &str) -> Self {
        Self(format!("{magic} {verb}"))
    }

    /// Adds a field whose value is escaped.
    pub(super) fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        // Writing into a String cannot fail.
        let _ = write!(self.0, " {name}={}", percent_encode(value.as_ref(), ESCAPED));
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Reads a line field by field, in the order the writer wrote them.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    words: std::str::Split<'a, char>,
}

impl<'a> Reader<'a> {
    /// Checks the magic word and returns the verb.
    pub(super) fn new(
        line: &'a str,
        magic: &'static str,
    ) -> Result<(Self, Option<&'a str>), LineError> {
        let mut words = line.split(' ');
        match words.next() {
            Some(word) if word == magic => {}
            other => {
                let actual = other.unwrap_or_default().to_owned();
                return Err(LineError::Magic { expected: magic, actual });
            }
        }
        let verb = words.next();
        Ok((Self { words }, verb))
    }

    /// The next field's value as written.
    pub(super) fn raw(&mut self, name: &'static str) -> Result<&'a str, LineError> {
        let word = self.words.next().unwrap_or_default();
        word.strip_prefix(name)
            .and_then(|rest| rest.strip_prefix('='))
            .ok_or_else(|| LineError::Field { expected: name, actual: word.to_owned() })
    }

    /// The next field's value, unescaped; UTF-8 or refused.
    pub(super) fn text(&mut self, name: &'static str) -> Result<String, LineError> {
        let raw = self.raw(name)?;
        percent_decode_str(raw)
            .decode_utf8()
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| bad(name, raw))
    }

    /// The next field's value through its type's own parser.
    pub(super) fn value<T: FromStr>(&mut self, name: &'static str) -> Result<T, LineError> {
        let text = self.text(name)?;
        text.parse().map_err(|_| bad(name, &text))
    }

    /// As [`Reader::value`], with [`UNKNOWN`] for none.
    pub(super) fn optional<T: FromStr>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, LineError> {
        let text = self.text(name)?;
        if text == UNKNOWN {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| bad(name, &text))
    }

    /// A hex SHA-256.
    pub(super) fn sha256(&mut self, name: &'static str) -> Result<String, LineError> {
        let text = self.text(name)?;
        if is_sha256(&text) { Ok(text) } else { Err(bad(name, &text)) }
    }

    /// Nothing is left.
    pub(super) fn end(mut self) -> Result<(), LineError> {
        self.words.next().map_or(Ok(()), |word| Err(LineError::Trailing(word.to_owned())))
    }
}

/// A value that does not fit its field.
pub(super) fn bad(field: &'static str, value: &str) -> LineError {
    LineError::Value { field, value: value.to_owned() }
}

/// The re-encoded line must be the line that was read.
pub(super) fn require_canonical(line: &str, encoded: String) -> Result<(), LineError> {
    if line == encoded { Ok(()) } else { Err(LineError::NotCanonical { expected: encoded }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn keeps_the_safe_set_and_escapes_the_rest_in_upper_case() {
        assert_eq!(escape(b"azAZ09._~/:@+-"), "azAZ09._~/:@+-");
        assert_eq!(escape(b" %,=\n\xff\0"), "%20%25%2C%3D%0A%FF%00");
        assert_eq!(escape("é".as_bytes()), "%C3%A9");
    }

    #[test]
    fn a_line_of_a_note_is_told_whole_or_marked_as_cut() {
        let long = "x".repeat(NOTE_ACK_BYTES);
        let note = format!("a b\r\n\n{long}\n{long}y\nend \u{feff}");
        let lines: Vec<_> = lines_of(note.as_bytes()).collect();
        let cut = format!("{long} ...");
        assert_eq!(lines, ["a b\r", "", long.as_str(), cut.as_str(), "end \u{feff}"]);
        assert_eq!(lines_of(b"\xff=1\n").collect::<Vec<_>>(), ["\u{fffd}=1", ""]);
    }

    proptest! {
        #[test]
        fn a_written_value_is_read_back(value in any::<String>()) {
            let line = Writer::new("magic/1", "verb").field("a", &value).field("b", "").finish();
            prop_assert!(!line.contains('\n'));
            let (mut reader, verb) = Reader::new(&line, "magic/1").unwrap();
            prop_assert_eq!(verb, Some("verb"));
            prop_assert_eq!(reader.text("a").unwrap(), value);
            prop_assert_eq!(reader.text("b").unwrap(), "");
            prop_assert!(reader.end().is_ok());
        }
    }
}

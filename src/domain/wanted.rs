//! The line of output without which a green exit says nothing: the guard against "0 tests ran".
//!
//! Contract: only what was kept of the output is looked at, line by line. A line that was dropped counts as missing, which
//! is the safe side. Expressions take linear time, whatever the gate writes.

use crate::limits;
use regex::bytes::{Regex, RegexBuilder};

/// An expression, understood.
#[derive(Debug)]
pub struct Wanted(Regex);

impl Wanted {
    /// Understands an expression.
    ///
    /// # Errors
    /// It is empty, too long or none; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let most = limits::REQUIRE_OUTPUT_BYTES;
        if text.is_empty() || text.len() > most {
            return Err(format!("{} bytes, 1 to {most} are accepted", text.len()));
        }
        let built =
            RegexBuilder::new(text).size_limit(limits::REQUIRE_OUTPUT_PROGRAM_BYTES).build();
        built.map(Self).map_err(|e| {
            // What is wrong stands in the last line, below a drawing of the place.
            let told = e.to_string();
            let why = told.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("'{text}' is no regular expression: {why}")
        })
    }

    /// True when a line of the output matches.
    #[must_use]
    pub fn is_in(&self, output: &[u8]) -> bool {
        let mut lines = output.split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
        lines.any(|line| self.0.is_match(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_line_is_what_counts() {
        let wanted = Wanted::parse("^[1-9][0-9]* passed$").unwrap();
        assert!(wanted.is_in(b"begin\n12 passed\r\nend"));
        assert!(wanted.is_in(b"no line end\n12 passed"));
        assert!(!wanted.is_in(b"0 passed\n"));
        assert!(!wanted.is_in(b"12\npassed\n"));
        assert!(Wanted::parse("\u{e9}").unwrap().is_in("\u{e9} and \u{fffd}".as_bytes()));
        assert!(Wanted::parse("(?i)OK").unwrap().is_in(b"\xff ok \xff"));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let long = "x".repeat(limits::REQUIRE_OUTPUT_BYTES + 1);
        for bad in ["", "(", "a{1000}{1000}{1000}", &long] {
            assert!(Wanted::parse(bad).is_err(), "{bad:.20}");
        }
    }
}

//! How many lines a change adds and deletes, as `git diff --numstat --minimal` counts them.
//!
//! Only the numbers are wanted, so the length of the shortest edit script is enough: the greedy forward search
//! of Myers without its trace. A difference beyond the bounds is not counted rather than counted badly.

use crate::limits;
use std::collections::HashMap;

/// Lines that a change adds and deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineCounts {
    /// In the new version only.
    pub added: usize,
    /// In the old version only.
    pub deleted: usize,
}

/// git looks for a NUL byte in this many bytes to tell text from what is not.
const LOOKED_AT_BYTES: usize = 8000;

/// Counts; none when a side is not text, or the two are too large or too different.
pub(super) fn count(old: &[u8], new: &[u8]) -> Option<LineCounts> {
    let is_text = |data: &[u8]| !data.iter().take(LOOKED_AT_BYTES).any(|b| *b == 0);
    let is_small = |data: &[u8]| data.len() <= limits::REVIEW_BLOB_BYTES;
    if ![old, new].into_iter().all(|data| is_text(data) && is_small(data)) {
        return None;
    }
    let mut numbers = HashMap::new();
    let (old, new) = (numbered(old, &mut numbers), numbered(new, &mut numbers));
    let (old, new) = without_ends(&old, &new);
    let edits = edit_distance(old, new, limits::REVIEW_LINE_EDITS)?;
    // A script of d edits from n to m lines holds a additions and d - a deletions, and a - (d - a) = m - n.
    let added = (edits + new.len() - old.len()) / 2;
    Some(LineCounts { added, deleted: edits - added })
}

/// Lines as small numbers, equal for equal lines; the line end counts.
fn numbered<'a>(data: &'a [u8], numbers: &mut HashMap<&'a [u8], usize>) -> Vec<usize> {
    let lines = data.split_inclusive(|b| *b == b'\n');
    lines
        .map(|line| {
            let next = numbers.len();
            *numbers.entry(line).or_insert(next)
        })
        .collect()
}

/// Drops what both begin and end with.
fn without_ends<'a>(a: &'a [usize], b: &'a [usize]) -> (&'a [usize], &'a [usize]) {
    let start = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let (a, b) = (&a[start..], &b[start..]);
    let end = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    (&a[..a.len() - end], &b[..b.len() - end])
}

/// Number of insertions and deletions of the shortest edit script; none when it is more than `bound`.
fn edit_distance(a: &[usize], b: &[usize], bound: usize) -> Option<usize> {
    if a.is_empty() || b.is_empty() {
        return Some(a.len() + b.len());
    }
    let most = (a.len() + b.len()).min(bound);
    // furthest[k + most + 1]: how far into `a` a path gets on the diagonal k = x - y.
    let mut furthest = vec![0_usize; 2 * most + 3];
    for edits in 0..=most {
        for at in (most + 1 - edits..=most + 1 + edits).step_by(2) {
            let down = at == most + 1 - edits
                || (at != most + 1 + edits && furthest[at - 1] < furthest[at + 1]);
            let mut x = if down { furthest[at + 1] } else { furthest[at - 1] + 1 };
            // Diagonals that left one of the texts lead nowhere.
            let Some(mut y) = (x + most + 1).checked_sub(at) else { continue };
            while x < a.len() && y < b.len() && a[x] == b[y] {
                (x, y) = (x + 1, y + 1);
            }
            furthest[at] = x;
            if x >= a.len() && y >= b.len() {
                return Some(edits);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts(old: &str, new: &str) -> (usize, usize) {
        let LineCounts { added, deleted } = count(old.as_bytes(), new.as_bytes()).unwrap();
        (added, deleted)
    }

    #[test]
    fn counts_as_git_does() {
        assert_eq!(counts("", ""), (0, 0));
        assert_eq!(counts("", "a\nb\n"), (2, 0));
        assert_eq!(counts("a\nb\n", ""), (0, 2));
        assert_eq!(counts("a\nb\nc\n", "a\nx\nc\n"), (1, 1));
        assert_eq!(counts("a\nb\n", "b\na\n"), (1, 1));
        assert_eq!(counts("a\n", "a"), (1, 1));
        assert_eq!(counts("a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n"), (2, 3));
    }

    #[test]
    fn what_is_no_text_or_too_much_is_not_counted() {
        assert_eq!(count(b"a\0", b"a"), None);
        let (a, b) = ([1, 2, 3], [4, 5, 6]);
        assert_eq!((edit_distance(&a, &b, 6), edit_distance(&a, &b, 5)), (Some(6), None));
        let long = vec![b'\n'; limits::REVIEW_BLOB_BYTES + 1];
        assert_eq!(count(b"", &long), None);
    }

    /// The longest common subsequence by the textbook.
    fn by_table(a: &[u8], b: &[u8]) -> (usize, usize) {
        let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                table[i + 1][j + 1] =
                    if x == y { table[i][j] + 1 } else { table[i][j + 1].max(table[i + 1][j]) };
            }
        }
        let common = table[a.len()][b.len()];
        (b.len() - common, a.len() - common)
    }

    proptest! {
        #[test]
        fn equals_the_textbook(
            a in prop::collection::vec(b'a'..b'e', 0..24),
            b in prop::collection::vec(b'a'..b'e', 0..24),
        ) {
            let text = |lines: &[u8]| lines.iter().map(|l| format!("{}\n", *l as char)).collect::<String>();
            prop_assert_eq!(counts(&text(&a), &text(&b)), by_table(&a, &b));
        }
    }
}

//! Conflict markers in what would be committed (decisions 16).

use super::{Change, FixedTree};
use crate::{domain::path::RepoPath, store::tree::Mode};

/// git's own rule: a NUL this early makes a file binary, bytes.
const TEXT_PROBE_BYTES: usize = 8000;

impl FixedTree {
    /// The changed text files that hold `<<<<<<< `, `=======` and `>>>>>>> ` at line starts, in this order.
    #[must_use]
    pub fn conflict_markers(&self) -> Vec<RepoPath> {
        let marked = |change: &&Change| {
            let Some((mode, id)) = change.new else { return false };
            let content_changed = change.old.is_none_or(|(_, old)| old != id);
            let is_file = matches!(mode, Mode::File | Mode::Executable | Mode::OldFile(_));
            let data = self.objects.iter().find(|o| o.id == id).map(|o| o.data.as_slice());
            content_changed && is_file && data.is_some_and(has_markers)
        };
        self.changes.iter().filter(marked).map(|c| c.path.clone()).collect()
    }
}

fn has_markers(data: &[u8]) -> bool {
    if data.iter().take(TEXT_PROBE_BYTES).any(|b| *b == 0) {
        return false;
    }
    let mut lines = data.split(|b| *b == b'\n');
    [&b"<<<<<<< "[..], b"=======", b">>>>>>> "]
        .iter()
        .all(|marker| lines.any(|line| line.starts_with(marker)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_three_in_order_in_a_text_count() {
        let full = "a\n<<<<<<< ours\nb\n=======\nc\n>>>>>>> theirs\n";
        assert!(has_markers(full.as_bytes()));
        assert!(has_markers(full.replace('\n', "\r\n").as_bytes()));
        for fine in [
            "Title\n=======\n",
            "<<<<<<< ours\n>>>>>>> theirs\n",
            ">>>>>>> t\n=======\n<<<<<<< o\n",
            " <<<<<<< ours\n=======\n>>>>>>> theirs\n",
            "<<<<<<<\n=======\n>>>>>>>\n",
        ] {
            assert!(!has_markers(fine.as_bytes()), "{fine}");
        }
        assert!(!has_markers(format!("\0{full}").as_bytes()));
        let late_nul = format!("{full}{}\0", "x".repeat(TEXT_PROBE_BYTES));
        assert!(has_markers(late_nul.as_bytes()));
    }
}

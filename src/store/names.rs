//! Names of our refs, files and directories: the only place that spells them.

use crate::domain::ids::WriterId;

/// Notes for people: one line per gate result, on the gated commit.
pub const NOTES_GATES: &str = "refs/notes/agentproto/gates";
/// Notes for people: one line per ack, on the acked commit.
pub const NOTES_ACKS: &str = "refs/notes/agentproto/acks";

/// Journals written in this clone.
pub(super) const JOURNALS: &str = "refs/agentproto/journal/";
/// What was fetched from other clones.
pub(super) const REMOTES: &str = "refs/agentproto/remotes/";
/// First (and in this version only) segment of a chain.
const SEGMENT: &str = "0001";

/// Our directory below the common git directory.
pub(super) const AGENT_DIR: &str = "agentproto";
/// What our temporary files in `agentproto/tmp` start with; whoever holds the kernel lock may remove them.
pub(super) const TMP_PREFIX: &str = "tmp_";
/// What our ref lock files in `agentproto` start with (storage L).
pub(super) const REF_TMP_PREFIX: &str = "ref.";

/// The journal of a writer.
#[must_use]
pub fn journal_ref(writer: &WriterId) -> String {
    format!("{JOURNALS}{writer}/{SEGMENT}")
}

/// The chain that keeps alive what a writer's events name.
#[must_use]
pub fn evidence_ref(writer: &WriterId) -> String {
    format!("refs/agentproto/evidence/{writer}/{SEGMENT}")
}

/// The writer a journal ref belongs to, own or fetched; none for any other ref.
#[must_use]
pub fn journal_writer(full_name: &str) -> Option<WriterId> {
    let own = full_name.strip_prefix(JOURNALS);
    let fetched = || full_name.strip_prefix(REMOTES)?.split_once("/journal/").map(|(_, rest)| rest);
    own.or_else(fetched)?.strip_suffix(SEGMENT)?.strip_suffix('/')?.parse().ok()
}

/// What `git fetch REMOTE` takes to bring the journals of others to where they are looked for, never over our own.
#[must_use]
pub fn fetch_spec(remote: &str) -> String {
    format!("{JOURNALS}*:{REMOTES}{remote}/journal/*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_ref_names_its_writer() {
        let writer: WriterId = "0123456789ab".parse().unwrap();
        assert_eq!(journal_writer(&journal_ref(&writer)), Some(writer.clone()));
        let fetched = "refs/agentproto/remotes/origin/journal/0123456789ab/0001";
        assert_eq!(journal_writer(fetched), Some(writer.clone()));
        assert_eq!(journal_writer(&evidence_ref(&writer)), None);
        assert_eq!(journal_writer("refs/agentproto/journal/0123456789ab/0002"), None);
    }
}

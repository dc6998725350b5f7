//! The kept corpus of the fuzz targets, replayed: what once was hard to read stays held in the ordinary run.

#[expect(unreachable_pub, reason = "public in the package of the fuzz targets")]
#[path = "../../fuzz/src/lib.rs"]
mod checks;

use std::{fs, path::Path};

/// Every kept input of a target; a target without any would hold nothing.
fn kept(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = fs::read_dir(dir).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    let all: Vec<Vec<u8>> = files.collect();
    assert!(all.len() > 10, "{target}: only {} inputs are kept", all.len());
    all
}

#[test]
fn kept_messages_read_and_write() {
    kept("journal_message").iter().for_each(|bytes| checks::journal_message(bytes));
}

#[test]
fn kept_documents_read_and_write() {
    kept("state_document").iter().for_each(|bytes| checks::state_document(bytes));
}

#[test]
fn kept_logs_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    kept("wal_frame").iter().for_each(|bytes| checks::wal_frame(bytes, &dir.path().join("wal")));
}

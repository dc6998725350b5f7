//! What the fuzz targets hold, as plain functions: the targets give them new bytes, an ordinary test the kept ones.
//!
//! Contract: a broken promise is a panic; whatever the bytes are, nothing else may be.

use git_agentproto::{
    domain::{oid::HashKind, policy::Policy, session::Session},
    store::read_log,
    wire::{
        document::{self, Document},
        message,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt::Debug, path::Path};

/// An event of a known kind that was read is written so that it reads the same, for ever.
pub fn journal_message(bytes: &[u8]) {
    let Ok(read) = message::decode(bytes) else { return };
    let Ok(Some(event)) = read.recorded() else { return };
    let written = message::encode(&event, read.beside()).expect("what was read can be written");
    let again = message::decode(&written).expect("what was written can be read");
    assert_eq!(again.recorded().as_ref(), Ok(&Some(event.clone())), "{read:?}");
    let beside = |m: &message::Message| (m.repo.clone(), m.beside().continues, m.mended.clone());
    assert_eq!(beside(&again), beside(&read), "{read:?}");
    let twice = message::encode(&event, again.beside()).expect("it can be written again");
    assert_eq!(written, twice, "{read:?}");
}

/// A document that was read keeps all it said when it is written, what this version does not know among it.
pub fn state_document(bytes: &[u8]) {
    document_of::<Session>(bytes);
    document_of::<Policy>(bytes);
}

fn document_of<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    let Ok(read) = document::decode::<T>(bytes) else { return };
    let written = document::encode(&read).expect("what was read can be written");
    let again: Document<T> = document::decode(&written).expect("what was written can be read");
    assert_eq!(again, read);
    let all: serde_json::Value = serde_json::from_slice(&written).expect("it is JSON");
    for (name, value) in &read.extra {
        assert_eq!(all.get(name), Some(value), "an unknown field is kept");
    }
    assert_eq!(document::encode(&again).expect("it can be written again"), written);
}

/// A log of any bytes is read to an end or refused, without a change, and each frame that is taken is one that would
/// be written just so. The bytes stand once for the whole file and once for what is in its frames: no search
/// finds a checksum by itself.
pub fn wal_frame(bytes: &[u8], file: &Path) {
    for hash in HashKind::ALL {
        for log in [bytes.to_vec(), dressed(bytes, hash)] {
            std::fs::write(file, &log).expect("the file can be written");
            if let Ok(Some(content)) = read_log(file, hash) {
                assert!(content.is_as_written, "{content:?} of {hash:?}");
            }
            assert_eq!(std::fs::read(file).expect("it is there"), log, "reading changed the file");
        }
    }
}

const SLOT_BYTES: usize = 4096;
const FRAME_MAGIC: u32 = 0x5746_5041;
const EPOCH: u32 = 1;

/// A log with a valid head whose frames hold pieces of these bytes, each piece led by its length.
fn dressed(mut bytes: &[u8], hash: HashKind) -> Vec<u8> {
    let magic = match hash {
        HashKind::Sha1 => 0x4957_5041,
        HashKind::Sha256 => 0x3357_5041,
    };
    let mut log = vec![0; SLOT_BYTES];
    // Event number, no boot id, no refs, nothing sealed.
    log.extend(sealed(magic, &[0; 15]));
    log.resize(2 * SLOT_BYTES, 0);
    while let [low, high, rest @ ..] = bytes {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(rest.len());
        let (piece, next) = rest.split_at(length);
        log.extend(sealed(FRAME_MAGIC, piece));
        log.resize(log.len().next_multiple_of(8), 0);
        bytes = next;
    }
    log
}

fn sealed(magic: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let crc = crc32c::crc32c_append(EPOCH, payload);
    let header = [magic, length, crc, EPOCH].map(u32::to_le_bytes);
    header.concat().into_iter().chain(payload.iter().copied()).collect()
}

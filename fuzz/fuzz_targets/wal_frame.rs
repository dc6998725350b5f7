//! Any bytes as a write-ahead log. What is held stands with the function that is called.
#![no_main]

use std::{path::PathBuf, sync::LazyLock};

/// Memory, where the machine has files in memory: the disk has nothing to do with this.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared = PathBuf::from("/dev/shm");
    let dir = if shared.is_dir() { shared } else { std::env::temp_dir() };
    dir.join(format!("agentproto-fuzz-{}", std::process::id()))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_agentproto_fuzz::wal_frame(bytes, &FILE));

//! Any bytes as a state document. What is held stands with the function that is called.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| git_agentproto_fuzz::state_document(bytes));

//! What a container sends to the server.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotcell_agent_client::fuzzing::answers(bytes));

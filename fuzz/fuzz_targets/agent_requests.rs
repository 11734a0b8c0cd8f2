//! Gives `hotcell_fuzz::agent_requests` to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotcell_fuzz::agent_requests(bytes));

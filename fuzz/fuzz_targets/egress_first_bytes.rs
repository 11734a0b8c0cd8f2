//! Gives `hotcell_fuzz::egress_first_bytes` to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotcell_fuzz::egress_first_bytes(bytes));

//! Gives `hotcell_fuzz::egress_proxy` to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotcell_fuzz::egress_proxy(bytes));

//! Gives `hotcell_fuzz::image_layers` to the fuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotcell_fuzz::image_layers(bytes));

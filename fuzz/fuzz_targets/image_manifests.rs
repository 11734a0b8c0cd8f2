//! Manifests and configurations that a registry sends.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hotcell_image::fuzzing::manifest(bytes));

//! What a caller sends to the agent.

#![no_main]

use hotcell_agent::files::fuzzing;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzzing::requests(bytes);
    fuzzing::glob(bytes);
});

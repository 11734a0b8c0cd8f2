//! What is typed is a job, or is told what jobs there are. That this is tried with the program
//! itself also makes Cargo build it with everything else, which `./test` counts on.

use std::process::Command;

#[test]
fn an_unknown_job_is_told_which_there_are() {
    let program = env!("CARGO_BIN_EXE_xtask");
    let output = Command::new(program).arg("sweep").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    for job in [
        "bench", "codegen", "promises", "session", "tidy", "programs", "vm",
    ] {
        assert!(said.contains(job), "{job} is not in: {said}");
    }
}

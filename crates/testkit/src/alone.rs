//! Tests that measure their own process (memory, descriptors). Other tests run in the same process
//! at the same time and would be measured too.

use std::process::Command;

/// Set in a process that runs only one test.
const ALONE: &str = "HOTCELL_TEST_ALONE";

/// Whether the calling test has this process to itself. If not, the test has just been run in a
/// process of its own and may return.
///
/// `name` is the test's path in its program, as the harness prints it: `module::test`.
///
/// # Panics
///
/// If the test failed there, or if there is no test of that name.
pub fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("this program has a path");
    let output = Command::new(this)
        .args(["--exact", name])
        .env(ALONE, "1")
        .output()
        .expect("this program starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("test result: ok. 1 passed");
    assert!(
        passed,
        "{name}, alone: {said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_in_a_process_of_its_own() {
        if is_alone("alone::tests::a_test_runs_in_a_process_of_its_own") {
            assert!(std::env::var_os(ALONE).is_some());
        }
    }

    #[test]
    #[should_panic(expected = "alone: ")]
    fn a_test_that_is_not_there_does_not_pass() {
        is_alone("alone::tests::no_such_test");
    }
}

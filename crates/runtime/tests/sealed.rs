//! What a container sees and can do.

mod support;

use support::run;

#[test]
fn init_runs_with_its_descriptors() {
    assert_eq!(run("grep SigIgn /proc/self/status >&3"), "");
}

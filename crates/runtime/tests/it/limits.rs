//! Limits of a container.

use hotcell_runtime::Enforcement;

use crate::support::{TestContainer, launcher};

#[test]
fn a_process_too_many_is_not_started() {
    let mut container = TestContainer::new(
        "n=0; while [ $n -lt 40 ]; do sleep 60 & n=$((n+1)); done 2>/dev/null; echo $n >&3",
    );
    container.spec.limits.pids = 10;
    let launcher = launcher();
    let mut running = container.start(&launcher).unwrap();
    assert_ne!(running.launched.enforced.pids, Enforcement::None);
    // The shell exits when a fork fails.
    assert_ne!(running.line(), "40");
}

#[test]
fn a_process_that_takes_too_much_memory_is_ended() {
    let mut container = TestContainer::new(
        "/usr/bin/python3 -c 'b=bytearray(200<<20); print(len(b))' >&3 2>/dev/null; echo ended $? >&3; read x",
    );
    container.spec.limits.memory_bytes = 64 << 20;
    let launcher = launcher();
    let mut running = container.start(&launcher).unwrap();
    let line = running.line();
    assert!(line.starts_with("ended ") && line != "ended 0", "{line}");
    let by_group = running.launched.enforced.memory == Enforcement::Cgroup;
    assert_eq!(running.launched.cgroup.oom_kills() > 0, by_group);
    assert_eq!(running.launched.cgroup.memory_bytes().is_some(), by_group);
}

#[test]
fn open_files_and_core_dumps_are_limited() {
    let container = TestContainer::new("ulimit -n >&3; ulimit -Hn >&3; ulimit -c >&3");
    assert_eq!(container.output(&launcher()), "256\n256\n0\n");
}

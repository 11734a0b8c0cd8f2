//! Start, failure and end of a container, and that nothing is left behind.

use std::fs;
use std::path::{Path, PathBuf};

use hotcell_runtime::{LaunchError, Root, alive, open_pidfd};

use crate::support::{
    TestContainer, children, descriptors, groups_left, launcher, own, shell, until,
};

#[test]
fn killing_init_ends_everything() {
    let launcher = launcher();
    let container = TestContainer::new("sleep 1000 & sleep 1000 & echo up >&3; wait");
    let mut running = container.start(&launcher).unwrap();
    assert_eq!(running.line(), "up");
    let (pid, start_time) = (running.launched.pid, running.launched.start_time);
    assert!(alive(pid, start_time));
    assert!(open_pidfd(pid, start_time).unwrap().is_some());
    hotcell_runtime::kill(&running.launched.pidfd).unwrap();
    // The pipe ends only when every process that held it has exited.
    assert_eq!(running.finish(), "");
    assert!(!alive(pid, start_time));
    assert!(open_pidfd(pid, start_time).unwrap().is_none());
}

#[test]
fn nothing_is_left_after_many_containers() {
    let launcher = launcher();
    let container = TestContainer::new("exit 0");
    container.output(&launcher);
    let before = (descriptors(launcher.pid()), descriptors(std::process::id()));
    for _ in 0..50 {
        assert_eq!(container.output(&launcher), "");
    }
    // The launcher reaps exited containers before it serves a request.
    assert!(TestContainer::new("").start(&launcher).is_ok());
    // It answers before it has closed the descriptors of the request.
    until("the launcher holds no more than before", || {
        let left = children(launcher.pid());
        left.split_whitespace().count() <= 1 && descriptors(launcher.pid()) <= before.0
    });
    assert_eq!(
        fs::read_to_string("/proc/self/mounts")
            .unwrap()
            .matches("test-")
            .count(),
        0
    );
    let name = &container.spec.name;
    assert!(!groups_left().contains(name));
}

#[test]
fn a_container_outlives_its_launcher_and_another_takes_over() {
    let first = launcher();
    let container = TestContainer::new("echo up >&3; read x </workspace/fifo; echo woken >&3");
    let fifo = container.workspace.path().join("fifo");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
    )
    .unwrap();
    own(&fifo, container.spec.ids);
    let mut running = container.start(&first).unwrap();
    assert_eq!(running.line(), "up");
    let pid = rustix::process::Pid::from_raw(first.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let error = TestContainer::new("exit 0").start(&first).err().unwrap();
    assert!(matches!(error, LaunchError::Gone { .. }), "{error}");
    let error = TestContainer::new("exit 0").start(&first).err().unwrap();
    assert!(matches!(error, LaunchError::Gone { .. }), "{error}");
    drop(first);
    assert_eq!(
        TestContainer::new("echo next >&3").output(&launcher()),
        "next\n"
    );
    assert!(alive(running.launched.pid, running.launched.start_time));
    fs::write(&fifo, "go\n").unwrap();
    assert_eq!(running.finish(), "woken\n");
}

#[test]
fn a_container_whose_launcher_was_dropped_lives_on() {
    let first = launcher();
    let mut running = TestContainer::new("echo up >&3; sleep 1000")
        .start(&first)
        .unwrap();
    drop(first);
    assert_eq!(running.line(), "up");
    assert!(alive(running.launched.pid, running.launched.start_time));
}

#[test]
fn a_failed_start_names_the_step_and_leaves_nothing() {
    let launcher = launcher();
    let mut container = TestContainer::new("exit 0");
    let expect = |container: &TestContainer, expected: &str| {
        let error = container.start(&launcher).err().unwrap();
        assert!(
            matches!(&error, LaunchError::Step { step, .. } if step == expected),
            "{error:?}"
        );
        assert_eq!(children(launcher.pid()), "", "{expected}");
        assert!(!groups_left().contains(&container.spec.name), "{expected}");
    };
    let workspace = std::mem::replace(&mut container.spec.workspace, PathBuf::from("/absent"));
    expect(&container, "open the workspace");
    container.spec.workspace = workspace;
    let lowers = vec![PathBuf::from("/absent")];
    container.spec.root = Root::Overlay {
        lowers,
        scratch: None,
    };
    expect(&container, "open a layer of the image");
    let lowers = vec![PathBuf::from("/etc/passwd")];
    container.spec.root = Root::Overlay {
        lowers,
        scratch: None,
    };
    expect(&container, "open a layer of the image");
}

#[test]
fn a_program_that_cannot_run_is_a_failed_start() {
    let program = Path::new(env!("CARGO_BIN_EXE_hotcell-launcher-test"));
    let launcher = hotcell_runtime::Launcher::start(program, b"no program").unwrap();
    let container = TestContainer::new("");
    let error = container.start(&launcher).err().unwrap();
    assert!(
        matches!(&error, LaunchError::Step { step, source }
            if step == "run the init program" && source.raw_os_error() == Some(libc::ENOEXEC)),
        "{error:?}"
    );
    assert!(!groups_left().contains(&container.spec.name));
}

#[test]
fn a_program_that_is_no_launcher_is_refused() {
    for program in ["/bin/true", "/bin/there-is-none"] {
        let launcher = hotcell_runtime::Launcher::start(Path::new(program), &shell());
        // At the latest when it should start a container.
        let started = launcher.and_then(|launcher| TestContainer::new("").start(&launcher));
        let error = started.err().unwrap();
        assert!(matches!(error, LaunchError::Start { .. }), "{error}");
    }
}

#[test]
fn a_spec_that_cannot_be_is_refused_before_anything_is_made() {
    let launcher = launcher();
    let refused = |change: &dyn Fn(&mut TestContainer)| {
        let mut container = TestContainer::new("exit 0");
        change(&mut container);
        let error = container.start(&launcher).err().unwrap();
        assert!(matches!(error, LaunchError::InvalidSpec { .. }), "{error}");
    };
    refused(&|container| container.spec.name = "../escape".to_owned());
    refused(&|container| container.spec.name = String::new());
    refused(&|container| container.spec.name = "x".repeat(64));
    refused(&|container| container.spec.argv.clear());
    refused(&|container| container.spec.env = vec!["A=\0".to_owned()]);
    refused(&|container| container.spec.env = vec!["A".repeat(200_000)]);
    refused(&|container| container.spec.workspace = PathBuf::from("relative"));
    refused(&|container| {
        container.spec.root = Root::Overlay {
            lowers: Vec::new(),
            scratch: None,
        }
    });
    assert_eq!(
        TestContainer::new("echo fine >&3").output(&launcher),
        "fine\n"
    );
}

#[test]
fn a_name_in_use_is_not_taken_twice() {
    let launcher = launcher();
    let container = TestContainer::new("echo up >&3; sleep 1000");
    let mut running = container.start(&launcher).unwrap();
    assert_eq!(running.line(), "up");
    if !running.launched.cgroup.is_none() {
        assert!(container.start(&launcher).is_err());
    }
    assert!(alive(running.launched.pid, running.launched.start_time));
}

#[test]
fn several_threads_share_one_launcher() {
    let launcher = launcher();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let launcher = &launcher;
            scope.spawn(move || {
                let container = TestContainer::new(&format!("echo {number} >&3"));
                assert_eq!(container.output(launcher), format!("{number}\n"));
            });
        }
    });
}

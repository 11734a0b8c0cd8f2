//! The techniques of docs/ESCAPES.md, tried on every engine: what each needs first is refused, and the page says so.

use std::collections::BTreeMap;
use std::fmt::Write;

use hotcell_engine::docker::Flavor;

use crate::support::attack::{Who, as_root, attack, by_everyone};
use crate::support::{Ran, TestContainer};

const TECHNIQUES: &str = include_str!("escapes.py");
const PAGE: &str = include_str!("../../../../docs/ESCAPES.md");

/// The system calls of the techniques.
#[rustfmt::skip]
const CALLS: &[(&str, i64)] = &[
    ("acct", libc::SYS_acct), ("add_key", libc::SYS_add_key), ("adjtimex", libc::SYS_adjtimex), ("bpf", libc::SYS_bpf),
    ("capset", libc::SYS_capset), ("chroot", libc::SYS_chroot), ("clock_settime", libc::SYS_clock_settime),
    ("clone", libc::SYS_clone), ("clone3", libc::SYS_clone3), ("delete_module", libc::SYS_delete_module),
    ("fanotify_init", libc::SYS_fanotify_init), ("fanotify_mark", libc::SYS_fanotify_mark),
    ("finit_module", libc::SYS_finit_module), ("fsconfig", libc::SYS_fsconfig), ("fsmount", libc::SYS_fsmount),
    ("fsopen", libc::SYS_fsopen), ("fspick", libc::SYS_fspick), ("getpid", libc::SYS_getpid),
    ("init_module", libc::SYS_init_module), ("io_setup", libc::SYS_io_setup), ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_setup", libc::SYS_io_uring_setup), ("kexec_load", libc::SYS_kexec_load), ("keyctl", libc::SYS_keyctl),
    ("migrate_pages", libc::SYS_migrate_pages), ("mount", libc::SYS_mount), ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount), ("move_pages", libc::SYS_move_pages),
    ("name_to_handle_at", libc::SYS_name_to_handle_at), ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree), ("perf_event_open", libc::SYS_perf_event_open),
    ("personality", libc::SYS_personality), ("pidfd_getfd", libc::SYS_pidfd_getfd), ("pidfd_open", libc::SYS_pidfd_open),
    ("pipe2", libc::SYS_pipe2), ("pivot_root", libc::SYS_pivot_root), ("prctl", libc::SYS_prctl),
    ("process_vm_readv", libc::SYS_process_vm_readv), ("process_vm_writev", libc::SYS_process_vm_writev),
    ("quotactl", libc::SYS_quotactl), ("reboot", libc::SYS_reboot), ("request_key", libc::SYS_request_key),
    ("seccomp", libc::SYS_seccomp), ("setdomainname", libc::SYS_setdomainname), ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns), ("settimeofday", libc::SYS_settimeofday), ("socket", libc::SYS_socket),
    ("splice", libc::SYS_splice), ("swapon", libc::SYS_swapon), ("syslog", libc::SYS_syslog), ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare), ("userfaultfd", libc::SYS_userfaultfd),
    #[cfg(target_arch = "x86_64")] ("ioperm", libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")] ("iopl", libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")] ("kexec_file_load", libc::SYS_kexec_file_load),
    #[cfg(target_arch = "x86_64")] ("modify_ldt", libc::SYS_modify_ldt),
    // `getpid` of the table for 32-bit pointers.
    #[cfg(target_arch = "x86_64")] ("x32", 0x4000_0027),
];

/// The columns of the page, after the technique, what stops it and what tries it.
const EMBEDDED: usize = 3;
const DOCKER: usize = 4;
const PODMAN: usize = 5;
const GVISOR: usize = 6;

/// What a technique came to, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// Every step was answered with an error.
    Stopped,
    /// Something worked, and changed nothing but the container itself.
    Harmless,
    Possible,
}

impl Outcome {
    /// Of one answer. The name of an errno is an `E` and capital letters or digits.
    fn of(answer: &str) -> Self {
        let mut rest = answer.bytes().skip(1);
        match answer {
            "harmless" => Self::Harmless,
            _ if answer.starts_with('E')
                && rest.all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) =>
            {
                Self::Stopped
            }
            _ => Self::Possible,
        }
    }

    /// As the page says it. Of root it says it in a note, if that is not the same: `stopped (root: possible)`.
    fn from_cell(cell: &str, is_root: bool) -> Option<Self> {
        let of_root = cell.split_once("(root: ").filter(|_| is_root);
        let word = of_root.map_or(cell, |(_, note)| note);
        let all = [
            ("stopped", Self::Stopped),
            ("harmless", Self::Harmless),
            ("possible", Self::Possible),
        ];
        let said = all.into_iter().find(|(name, _)| word.starts_with(name));
        said.map(|(_, outcome)| outcome)
    }
}

fn script() -> String {
    let mut script = "SYS = {}\n".to_owned();
    for (name, number) in CALLS {
        writeln!(script, "SYS['{name}'] = {number}").expect("memory");
    }
    script + TECHNIQUES
}

/// The names of the techniques in the script.
fn techniques() -> Vec<&'static str> {
    let after = TECHNIQUES.split("\n@technique\ndef ").skip(1);
    after.filter_map(|text| text.split('(').next()).collect()
}

/// The rows of the page that a technique of the script tries, by its name.
fn rows() -> BTreeMap<&'static str, Vec<&'static str>> {
    let rows = PAGE.lines().filter(|line| line.starts_with("| "));
    let cells = rows.map(|line| {
        line.trim_matches('|')
            .split(" | ")
            .map(str::trim)
            .collect::<Vec<_>>()
    });
    let named = cells.filter_map(|cells| {
        let name = cells.get(2)?.strip_prefix('`')?.strip_suffix('`')?;
        (!name.contains("::")).then_some((name, cells))
    });
    let mut rows = BTreeMap::new();
    for (name, cells) in named {
        assert!(rows.insert(name, cells).is_none(), "two rows of {name}");
    }
    rows
}

/// Compares what a run of the script says with a column of the page.
fn expect_column(column: usize, is_root: bool, who: &str, ran: &Ran) {
    let rows = rows();
    let (mut seen, mut wrong) = (0, Vec::new());
    for line in ran.stdout.lines() {
        let (name, answers) = line.split_once(' ').unwrap_or((line, ""));
        let outcome = answers.split(' ').map(Outcome::of).max();
        if name.starts_with("control_") {
            assert_eq!(
                outcome,
                Some(Outcome::Possible),
                "{who}: nothing would be seen: {line}"
            );
            continue;
        }
        seen += 1;
        let told = rows
            .get(name)
            .and_then(|cells| Outcome::from_cell(cells.get(column)?, is_root));
        if told.is_none_or(|told| outcome > Some(told)) {
            wrong.push(line);
        }
    }
    assert!(wrong.is_empty(), "{who}: {wrong:#?}");
    assert_eq!(
        (seen, ran.code()),
        (techniques().len(), 0),
        "{who}: {ran:?}"
    );
}

async fn expect_on(flavor: Flavor, runtime: Option<&str>, column: usize) {
    let users: &[bool] = if runtime.is_none() {
        &[false, true]
    } else {
        &[false]
    };
    for is_root in users.iter().copied() {
        let made = TestContainer::on_runtime(flavor, runtime, |spec| spec.allow_root = is_root);
        let Some(container) = made.await else { return };
        let command = attack(&script());
        let command = if is_root { as_root(command) } else { command };
        let ran = container.run(&command).await;
        let who = format!("{} {runtime:?}, root: {is_root}", flavor.name());
        expect_column(column, is_root, &who, &ran);
        container.answers().await;
        container.remove().await;
    }
}

#[test]
fn each_technique_has_a_row_and_each_row_a_technique() {
    let (mut techniques, rows) = (techniques(), rows());
    techniques.sort_unstable();
    assert_eq!(techniques, rows.keys().copied().collect::<Vec<_>>());
    for (name, cells) in rows {
        for column in [EMBEDDED, DOCKER, PODMAN, GVISOR] {
            let outcome = cells
                .get(column)
                .and_then(|cell| Outcome::from_cell(cell, false));
            assert!(
                outcome.is_some(),
                "{name} has no outcome in column {column}"
            );
        }
        assert!(
            Outcome::from_cell(cells[EMBEDDED], true) < Some(Outcome::Possible),
            "{name}"
        );
    }
}

#[tokio::test]
async fn techniques_of_escape_are_stopped_by_the_embedded_engine() {
    by_everyone(&script(), |who: Who, ran| {
        expect_column(EMBEDDED, who == Who::Root, &format!("{who:?}"), ran);
    })
    .await;
}

#[tokio::test]
async fn techniques_of_escape_are_stopped_on_docker() {
    expect_on(Flavor::Docker, None, DOCKER).await;
}

#[tokio::test]
async fn techniques_of_escape_are_stopped_on_podman() {
    expect_on(Flavor::Podman, None, PODMAN).await;
}

#[tokio::test]
async fn techniques_of_escape_are_stopped_on_gvisor() {
    expect_on(Flavor::Docker, Some("runsc"), GVISOR).await;
}

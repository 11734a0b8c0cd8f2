//! The process tree, from one pass over `/proc`.
//!
//! A pass is not atomic: a process may start, exit or be reparented while it runs. Callers that
//! need certainty repeat it until nothing new appears.

use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;
use std::io;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::process::Pid;

/// Processes per pass; a container's own limit is far lower.
const PROCESSES_MAX: usize = 1 << 16;

/// Enough of `/proc/N/stat` to include the number of threads.
const STAT_BYTES: usize = 512;

/// Enough of `/proc/N/status` to include the tracer.
const STATUS_BYTES: usize = 1024;

/// The position of the number of threads in `/proc/N/stat`, counted from the state.
const THREADS_FIELD: usize = 20 - 3;

/// The position of the kernel's flags, counted likewise.
const FLAGS_FIELD: usize = 9 - 3;

/// The position of the signals that wait for delivery, counted likewise.
const PENDING_FIELD: usize = 31 - 3;

/// The kernel's flag of a process that exits.
const EXITING: u64 = 4;

/// SIGKILL in a set of signals.
const KILL_PENDING: u64 = 1 << (9 - 1);

/// The processes of one pass by parent: running ones, and separately zombies.
#[derive(Debug, Default)]
pub struct Scan {
    children: HashMap<i32, Vec<i32>>,
    dead: HashMap<i32, Vec<i32>>,
}

impl Scan {
    /// Reads all processes in `/proc`.
    pub fn take() -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = openat(CWD, c"/proc", flags, Mode::empty())?;
        let mut scan = Self::default();
        for entry in Dir::read_from(&proc)?.take(PROCESSES_MAX) {
            let entry = entry?;
            let Some(pid) = parse_pid(entry.file_name().to_bytes()) else {
                continue;
            };
            if let Some(stat) = read_stat(&proc, pid) {
                let kind = if stat.is_dead {
                    &mut scan.dead
                } else {
                    &mut scan.children
                };
                kind.entry(stat.parent).or_default().push(pid);
            }
        }
        Ok(scan)
    }

    /// Running children of a process.
    pub fn children(&self, parent: Pid) -> impl Iterator<Item = Pid> {
        let children = self.children.get(&parent.as_raw_nonzero().get());
        children
            .into_iter()
            .flatten()
            .filter_map(|pid| Pid::from_raw(*pid))
    }

    /// Running descendants of the roots, without the roots.
    pub fn descendants(&self, roots: impl Iterator<Item = Pid>) -> BTreeSet<i32> {
        let mut open: Vec<i32> = roots.map(|pid| pid.as_raw_nonzero().get()).collect();
        let mut found = BTreeSet::new();
        // A pid that was reused during the pass can create a cycle, so each is visited once.
        while let Some(parent) = open.pop() {
            for child in self.children.get(&parent).into_iter().flatten() {
                if found.insert(*child) {
                    open.push(*child);
                }
            }
        }
        found
    }

    /// Processes that trace a descendant of `root`, running or zombie, without being `root` or a
    /// descendant. A zombie stays until its tracer has waited for it or exited.
    pub fn foreign_tracers(&self, root: Pid) -> BTreeSet<i32> {
        let mut own = self.descendants(std::iter::once(root));
        own.insert(root.as_raw_nonzero().get());
        let dead = own.iter().filter_map(|parent| self.dead.get(parent));
        let all = own.iter().chain(dead.flatten());
        let tracers = all.filter_map(|pid| tracer(*pid));
        tracers.filter(|pid| !own.contains(pid)).collect()
    }
}

/// Whether a process has exited, is exiting, or has been sent SIGKILL, which on a busy machine it
/// receives only when it is scheduled. Such a process may still look like one that sleeps.
pub fn is_ending(pid: Pid) -> bool {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = CString::new(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let file = path.map(|path| openat(CWD, path, flags, Mode::empty()));
    let Ok(Ok(file)) = file else {
        return true;
    };
    let mut buffer = [0; STAT_BYTES];
    let Ok(count) = rustix::io::read(&file, &mut buffer) else {
        return true;
    };
    // A kernel that tells less is believed to have nothing to tell.
    parse_is_ending(&buffer[..count]) == Some(true)
}

/// `None`: this is no line of `/proc/N/stat`.
fn parse_is_ending(stat: &[u8]) -> Option<bool> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[name_end + 1..].split(|byte| *byte == b' ').skip(1);
    let state = fields.next()?;
    let flags = parse_set(fields.nth(FLAGS_FIELD - 1)?)?;
    let pending = parse_set(fields.nth(PENDING_FIELD - FLAGS_FIELD - 1)?)?;
    let is_dead = matches!(state, b"Z" | b"X" | b"x");
    Some(is_dead || flags & EXITING != 0 || pending & KILL_PENDING != 0)
}

fn parse_set(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The tracer of a process, if it is visible to us.
fn tracer(pid: i32) -> Option<i32> {
    let path = CString::new(format!("/proc/{pid}/status")).ok()?;
    let file = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; STATUS_BYTES];
    let count = rustix::io::read(&file, &mut buffer).ok()?;
    parse_tracer(&buffer[..count])
}

/// Parses the tracer from `/proc/N/status`. The process name is on a line of its own with escaped
/// line breaks, so it cannot imitate another line.
fn parse_tracer(status: &[u8]) -> Option<i32> {
    let mut lines = status.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(b"TracerPid:"))?;
    parse_pid(value.trim_ascii())
}

/// Fields of `/proc/N/stat`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProcStat {
    /// A zombie. A process whose first thread has exited looks like one but runs as long as it has
    /// other threads.
    pub is_dead: bool,
    pub parent: i32,
}

fn read_stat(proc: &rustix::fd::OwnedFd, pid: i32) -> Option<ProcStat> {
    let path = CString::new(format!("{pid}/stat")).ok()?;
    let file = openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; STAT_BYTES];
    let count = rustix::io::read(&file, &mut buffer).ok()?;
    parse_stat(&buffer[..count])
}

/// Parses state and parent from `/proc/N/stat`. The process name may contain spaces, parentheses
/// and digits, so it ends at the last parenthesis.
pub(super) fn parse_stat(stat: &[u8]) -> Option<ProcStat> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[name_end + 1..].split(|byte| *byte == b' ').skip(1);
    let state = fields.next()?;
    let parent = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let threads = fields.nth(THREADS_FIELD - 2).and_then(parse_pid);
    let has_others = threads.is_some_and(|threads| threads > 1);
    Some(ProcStat {
        is_dead: matches!(state, b"Z" | b"X" | b"x") && !has_others,
        parent,
    })
}

fn parse_pid(name: &[u8]) -> Option<i32> {
    std::str::from_utf8(name)
        .ok()?
        .parse()
        .ok()
        .filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_does_not_choose_its_parent() {
        let stat = b"77 (a) S 1 (b) R 2 ) S 42 77 77 0 -1 4194560";
        assert_eq!(
            parse_stat(stat),
            Some(ProcStat {
                is_dead: false,
                parent: 42
            })
        );
        assert_eq!(
            parse_stat(b"8 (x) Z 1 8 8"),
            Some(ProcStat {
                is_dead: true,
                parent: 1
            })
        );
    }

    #[test]
    fn a_process_whose_first_thread_ended_lives_on_with_the_others() {
        let stat = |threads: &str| {
            let line = format!("8 (x) Z 1 8 8 0 -1 4 5 6 7 8 9 10 11 12 20 0 {threads} 0 77");
            parse_stat(line.as_bytes()).unwrap()
        };
        assert!(!stat("2").is_dead);
        assert!(stat("1").is_dead);
    }

    #[test]
    fn a_process_that_was_killed_is_ending_before_it_knows() {
        let stat = |state: &str, flags: u64, pending: u64| {
            let line = format!(
                "8 (x) {state} 1 8 8 0 -1 {flags} 5 6 7 8 9 10 11 12 20 0 1 0 77 1 1 1 1 1 1 1 1 \
                 {pending} 0 0 0"
            );
            parse_is_ending(line.as_bytes())
        };
        assert_eq!(stat("S", 0x40_0140, 0), Some(false));
        assert_eq!(stat("S", 0x40_0140, 256), Some(true));
        assert_eq!(stat("R", 0x40_0144, 0), Some(true));
        assert_eq!(stat("Z", 0, 0), Some(true));
        assert_eq!(parse_is_ending(b"8 (x) S 1 8"), None);
        assert!(!is_ending(rustix::process::getpid()));
    }

    #[test]
    fn a_tracer_is_read_from_its_own_line() {
        let status = b"Name:\tTracerPid:\\nTracerPid:\t9\nState:\tS\nTracerPid:\t42\nUid:\t0\n";
        assert_eq!(parse_tracer(status), Some(42));
        assert_eq!(parse_tracer(b"Name:\tx\nTracerPid:\t0\n"), None);
    }

    #[test]
    fn descendants_are_found_at_any_depth_and_once() {
        let children = HashMap::from([(1, vec![2, 9]), (2, vec![3]), (3, vec![4, 2])]);
        let scan = Scan {
            children,
            ..Scan::default()
        };
        let found = scan.descendants(std::iter::once(Pid::from_raw(2).unwrap()));
        assert_eq!(found, BTreeSet::from([2, 3, 4]));
    }

    #[test]
    fn we_are_a_child_of_our_parent() {
        let parent = rustix::process::getppid().unwrap();
        let scan = Scan::take().unwrap();
        assert!(
            scan.children(parent)
                .any(|pid| pid == rustix::process::getpid())
        );
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_stat_or_none(
            bytes in proptest::collection::vec(0_u8.., 0..STAT_BYTES),
        ) {
            let _ = parse_stat(&bytes);
        }
    }
}

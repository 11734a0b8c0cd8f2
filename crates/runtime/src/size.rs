//! How much memory, how many cores and how many processes containers can use on this host.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::cgroup::{Controller, Mounts};

/// Assumed for a host without `/proc`, so that limits are small rather than absent.
const UNKNOWN: HostSize = HostSize {
    memory_bytes: 1 << 30,
    cores: 1,
    pids: 4096,
};

/// The resources of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSize {
    /// The machine's memory, or the limit of the container in which we run.
    pub memory_bytes: u64,
    /// Cores that are online.
    pub cores: u32,
    /// The most processes and threads that can exist.
    pub pids: u64,
}

impl HostSize {
    /// Reads `/proc` and `/sys`.
    pub fn read() -> Self {
        Self::from_root(Path::new("/"))
    }

    /// Reads the files below `root`, so that tests can bring their own.
    fn from_root(root: &Path) -> Self {
        let mounts = Mounts::read_from(root);
        let memory = memory_total(root)
            .into_iter()
            .chain(memory_limit(root, &mounts));
        let pids = ["pid_max", "threads-max"]
            .iter()
            .filter_map(|name| number(&root.join("proc/sys/kernel").join(name)))
            .chain(pids_limits(root, &mounts));
        Self {
            memory_bytes: memory.min().unwrap_or(UNKNOWN.memory_bytes),
            cores: cores(root).unwrap_or(UNKNOWN.cores),
            pids: pids.min().unwrap_or(UNKNOWN.pids),
        }
    }
}

fn memory_total(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// The limit of the topmost cgroup that we see, which inside a container is the container's own.
fn memory_limit(root: &Path, mounts: &Mounts) -> Option<u64> {
    let top = mounts.top(Controller::Memory)?;
    let top = below(root, top);
    number(&top.join("memory.max")).or_else(|| number(&top.join("memory.limit_in_bytes")))
}

/// The pids limits of our own cgroup and its ancestors.
fn pids_limits(root: &Path, mounts: &Mounts) -> Vec<u64> {
    let Some((top, own)) = mounts
        .top(Controller::Pids)
        .zip(mounts.own(Controller::Pids))
    else {
        return Vec::new();
    };
    let top = below(root, top);
    let own = top.join(own);
    let groups = own.ancestors().take_while(|group| group.starts_with(&top));
    groups
        .filter_map(|group| number(&group.join("pids.max")))
        .collect()
}

/// Parses the list of online cores, such as `0-3,6`.
fn cores(root: &Path) -> Option<u32> {
    let text = fs::read_to_string(root.join("sys/devices/system/cpu/online")).ok()?;
    let mut cores = 0_u32;
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cores = cores.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(cores)
}

/// The number in a file; `None` for `max`.
fn number<T: FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Maps an absolute path to one below `root`.
fn below(root: &Path, path: &Path) -> std::path::PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that contains these files, in place of a host's root.
    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let usual = [
            ("proc/meminfo", "MemTotal:        4096 kB\nMemFree: 1 kB\n"),
            ("proc/sys/kernel/pid_max", "32768\n"),
            ("proc/sys/kernel/threads-max", "20000\n"),
            ("sys/devices/system/cpu/online", "0-3,6\n"),
        ];
        for (path, text) in usual.iter().chain(files) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn size(files: &[(&str, &str)]) -> HostSize {
        HostSize::from_root(host(files).path())
    }

    const V2: (&str, &str) = (
        "proc/self/mountinfo",
        "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );

    #[test]
    fn a_host_without_groups_is_as_large_as_its_kernel_says() {
        let expected = HostSize {
            memory_bytes: 4 << 20,
            cores: 5,
            pids: 20_000,
        };
        assert_eq!(size(&[]), expected);
    }

    #[test]
    fn the_smallest_process_limit_above_us_counts() {
        let own = ("proc/self/cgroup", "0::/a/b\n");
        let size = size(&[
            V2,
            own,
            ("sys/fs/cgroup/a/pids.max", "700\n"),
            ("sys/fs/cgroup/a/b/pids.max", "max\n"),
            ("sys/fs/cgroup/c/pids.max", "5\n"),
        ]);
        assert_eq!(size.pids, 700);
    }

    #[test]
    fn in_a_container_the_limit_of_that_container_is_all_the_memory() {
        let own = ("proc/self/cgroup", "0::/\n");
        let limit = ("sys/fs/cgroup/memory.max", "1048576\n");
        assert_eq!(size(&[V2, own, limit]).memory_bytes, 1 << 20);
        let v1 = (
            "proc/self/mountinfo",
            "33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        );
        let limit = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2097152\n");
        assert_eq!(size(&[v1, limit]).memory_bytes, 2 << 20);
    }

    #[test]
    fn a_host_that_tells_nothing_is_taken_for_a_small_one() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(HostSize::from_root(empty.path()), UNKNOWN);
    }
}

//! Which cgroup hierarchies are mounted, and this process' cgroup in each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::Controller;

/// Which cgroup versions a host has mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Only v1 hierarchies, one or more controllers each.
    V1,
    /// Only the unified hierarchy.
    V2,
    /// v1 hierarchies beside a unified one.
    Hybrid,
    /// No cgroup filesystem is mounted.
    None,
}

/// The mounted hierarchies, from `/proc/self/mountinfo` and `/proc/self/cgroup`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mounts {
    /// Mount points by controller.
    pub v1: BTreeMap<&'static str, PathBuf>,
    pub v2: Option<PathBuf>,
    /// False inside another container, where the mount shows only a subtree.
    pub v2_from_root: bool,
    /// This process' cgroup in the unified hierarchy, relative to the mount point.
    pub v2_own: PathBuf,
    /// This process' cgroups in v1 hierarchies, by controller, relative to their mount points.
    v1_own: BTreeMap<&'static str, PathBuf>,
}

impl Mounts {
    pub(super) fn read() -> Self {
        Self::read_from(Path::new("/"))
    }

    /// Reads the files below `root`, so that tests can bring their own.
    pub(crate) fn read_from(root: &Path) -> Self {
        let read = |path| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (mountinfo, own) = (read("proc/self/mountinfo"), read("proc/self/cgroup"));
        let mut mounts = Self::parse(&mountinfo, &own);
        // The real root cgroup is the only one without this file.
        mounts.v2_from_root = mounts
            .v2
            .as_ref()
            .is_some_and(|root| !root.join("cgroup.type").exists());
        mounts
    }

    fn parse(mountinfo: &str, own: &str) -> Self {
        let mut mounts = Self::default();
        for line in mountinfo.lines() {
            mounts.add(line);
        }
        for line in own.lines() {
            mounts.add_own(line);
        }
        mounts
    }

    /// Parses `0::/path` or `4:cpu,cpuacct:/path`.
    fn add_own(&mut self, line: &str) -> Option<()> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = PathBuf::from(path.strip_prefix('/')?);
        if controllers.is_empty() {
            self.v2_own = path;
            return Some(());
        }
        for controller in Controller::ALL {
            let name = controller.name();
            if controllers.split(',').any(|one| one == name) {
                self.v1_own.insert(name, path.clone());
            }
        }
        Some(())
    }

    /// The mount point of the hierarchy that has this controller.
    pub(crate) fn top(&self, controller: Controller) -> Option<&Path> {
        let v1 = self.v1.get(controller.name());
        v1.or(self.v2.as_ref()).map(PathBuf::as_path)
    }

    /// This process' cgroup in that hierarchy, relative to the mount point.
    pub(crate) fn own(&self, controller: Controller) -> Option<&Path> {
        if self.v1.contains_key(controller.name()) {
            return self.v1_own.get(controller.name()).map(PathBuf::as_path);
        }
        self.v2.as_ref().map(|_| self.v2_own.as_path())
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let (mount, kind) = line.split_once(" - ")?;
        let point = Path::new(mount.split(' ').nth(4)?);
        let mut kind = kind.split(' ');
        match kind.next()? {
            "cgroup2" => {
                self.v2.get_or_insert_with(|| point.to_owned());
            }
            "cgroup" => {
                let options = kind.nth(1)?;
                for controller in Controller::ALL {
                    let name = controller.name();
                    if options.split(',').any(|option| option == name) {
                        self.v1.entry(name).or_insert_with(|| point.to_owned());
                    }
                }
            }
            _ => {}
        }
        Some(())
    }

    pub(super) fn layout(&self) -> Layout {
        match (self.v1.is_empty(), self.v2.is_some()) {
            (true, true) => Layout::V2,
            (false, false) => Layout::V1,
            (false, true) => Layout::Hybrid,
            (true, false) => Layout::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
33 30 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
broken line
";

    #[test]
    fn a_hybrid_host_is_read_from_its_mounts() {
        let mounts = Mounts::parse(HYBRID, "4:memory:/a\n0::/user.slice/b\n");
        assert_eq!(mounts.layout(), Layout::Hybrid);
        assert_eq!(mounts.v1["cpu"], Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(mounts.v1["memory"], Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(mounts.v1.get("pids"), None);
        assert_eq!(mounts.v2_own, Path::new("user.slice/b"));
        assert_eq!(mounts.own(Controller::Memory), Some(Path::new("a")));
        let unified = Some(Path::new("user.slice/b"));
        assert_eq!(mounts.own(Controller::Pids), unified);
    }

    #[test]
    fn a_host_without_groups_has_no_layout() {
        assert_eq!(Mounts::parse("", "").layout(), Layout::None);
    }
}

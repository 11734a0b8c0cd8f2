//! Where this host lets us create cgroups for containers.
//!
//! As root: below `hotcell` at the top of each hierarchy. As an ordinary user: beside this process'
//! own cgroup, if it is delegated to the user and has no other members; else below `hotcell` in the
//! nearest delegated ancestor without members. A controller that is not available is `Missing` with
//! a reason; the other controllers are still used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;

use super::Controller;
use super::container::ContainerCgroups;
use super::layout::{Layout, Mounts};
use crate::spec::{Enforced, Enforcement, Limits};

/// The parent of all containers' cgroups.
const GROUP: &str = "hotcell";
/// The cgroup into which an ordinary user's server moves: in cgroup v2, a cgroup with member
/// processes cannot enable controllers for its children.
const SERVER_GROUP: &str = "hotcell-server";

const CPU_PERIOD_US: u64 = 100_000;
/// The kernel's minimum for a CPU quota.
const CPU_QUOTA_US_MIN: u64 = 1_000;

/// The v1 limit on TCP and UDP socket buffers.
const SOCKET_BUFFERS_V1: &str = "memory.kmem.tcp.limit_in_bytes";
/// On v1, socket buffers are not part of the memory limit; they get a limit of memory divided by
/// this. On v2 they count as memory.
const SOCKET_BUFFER_SHARE: u64 = 4;
/// With less than this, a few connections already block each other.
const SOCKET_BUFFER_BYTES_MIN: u64 = 4 << 20;

/// Where the cgroups of one controller are created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerLocation {
    /// Below this directory of a v1 hierarchy.
    V1(PathBuf),
    /// Below this directory of the unified (v2) hierarchy.
    V2(PathBuf),
    /// Nowhere: this controller limits nothing on this host.
    Missing {
        /// The cause, as `hotcell doctor` shows it.
        reason: String,
    },
}

/// The controllers available for containers on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCgroups {
    /// Which cgroup versions are mounted.
    pub layout: Layout,
    /// The memory controller.
    pub memory: ControllerLocation,
    /// The CPU controller.
    pub cpu: ControllerLocation,
    /// The pids controller.
    pub pids: ControllerLocation,
    /// Further candidates in the unified hierarchy, for the case that the first one has members
    /// that are not ours.
    spare: Vec<PathBuf>,
    /// Whether the host has swap. If so, limiting memory without limiting swap limits nothing.
    has_swap: bool,
}

impl HostCgroups {
    /// A host without usable cgroups; `reason` says why.
    pub fn none(reason: &str) -> Self {
        let location = || ControllerLocation::Missing {
            reason: reason.to_owned(),
        };
        Self {
            layout: Layout::None,
            memory: location(),
            cpu: location(),
            pids: location(),
            spare: Vec::new(),
            has_swap: true,
        }
    }

    /// Reads what is mounted and writable. Changes nothing.
    pub fn detect() -> Self {
        let mounts = Mounts::read();
        let v2 = unified(&mounts);
        let location = |controller| location(controller, &mounts, &v2);
        Self {
            layout: mounts.layout(),
            memory: location(Controller::Memory),
            cpu: location(Controller::Cpu),
            pids: location(Controller::Pids),
            spare: delegated_above(&mounts),
            has_swap: has_swap(),
        }
    }

    /// Creates the parent cgroups and enables controllers in them; a controller for which this
    /// fails becomes missing. The processes in `server` may be moved into a cgroup of their own.
    #[must_use]
    pub fn prepare(mut self, server: &[u32]) -> Self {
        self.choose_unified(server);
        for controller in Controller::ALL {
            let location = self.seat_mut(controller);
            let result = match location {
                ControllerLocation::V1(dir) => make(dir),
                ControllerLocation::V2(dir) => prepare_v2(dir, controller, server),
                ControllerLocation::Missing { .. } => Ok(()),
            };
            if let Err(error) = result {
                let reason = format!(
                    "the {} controller cannot be used: {error}",
                    controller.name()
                );
                *location = ControllerLocation::Missing { reason };
            }
        }
        self
    }

    /// Switches to the first location in the unified hierarchy where all controllers work, if there
    /// is one.
    fn choose_unified(&mut self, server: &[u32]) {
        let wanted = Controller::ALL.map(|controller| match self.location(controller) {
            ControllerLocation::V2(dir) => Some((controller, dir.clone())),
            ControllerLocation::V1(_) | ControllerLocation::Missing { .. } => None,
        });
        let wanted: Vec<_> = wanted.into_iter().flatten().collect();
        let Some((_, first)) = wanted.first() else {
            return;
        };
        let usable = |dir: &PathBuf| {
            let mut controllers = wanted.iter();
            controllers.all(|(controller, _)| prepare_v2(dir, *controller, server).is_ok())
        };
        let places = [vec![first.clone()], self.spare.clone()].concat();
        if let Some(chosen) = places.into_iter().find(usable) {
            for (controller, _) in wanted {
                *self.seat_mut(controller) = ControllerLocation::V2(chosen.clone());
            }
        }
    }

    /// Creates the cgroups of one container and sets its limits. Limits that no cgroup can enforce
    /// are left to rlimits and reported as such. On `Err` nothing is left behind.
    pub(crate) fn create(
        &self,
        name: &str,
        limits: &Limits,
    ) -> io::Result<(ContainerCgroups, Enforced)> {
        let mut cgroups = ContainerCgroups::none();
        let made =
            Controller::ALL.map(|controller| self.limit(&mut cgroups, controller, name, limits));
        let in_use = |made: &io::Result<bool>| matches!(made, Err(error) if error.kind() == io::ErrorKind::AlreadyExists);
        if made.iter().any(in_use) {
            // Created just now and without members, so this cannot wait.
            let _ = cgroups.remove();
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let [memory, cpus, pids] = made.map(|made| made.unwrap_or(false));
        let or = |limited, other| if limited { Enforcement::Cgroup } else { other };
        let enforced = Enforced {
            memory: or(memory, Enforcement::Rlimit),
            cpus: or(cpus, Enforcement::None),
            pids: or(pids, Enforcement::Rlimit),
            disk: Enforcement::None,
        };
        Ok((cgroups, enforced))
    }

    /// What will enforce a container's limits, provided that all its cgroups can be created.
    pub fn promises(&self) -> Enforced {
        let or = |location: &ControllerLocation, other| match location {
            ControllerLocation::V1(_) | ControllerLocation::V2(_) => Enforcement::Cgroup,
            ControllerLocation::Missing { .. } => other,
        };
        let memory = if self.lacks_swap_limit() {
            Enforcement::Rlimit
        } else {
            or(&self.memory, Enforcement::Rlimit)
        };
        Enforced {
            memory,
            cpus: or(&self.cpu, Enforcement::None),
            pids: or(&self.pids, Enforcement::Rlimit),
            disk: Enforcement::None,
        }
    }

    /// True if containers can use swap that no cgroup limits.
    pub fn lacks_swap_limit(&self) -> bool {
        self.has_swap && is_without_swap(&self.memory)
    }

    /// The existing cgroups of the container `name`. Used when the process that created them died
    /// before it could report them.
    pub fn find(&self, name: &str) -> ContainerCgroups {
        let mut cgroups = ContainerCgroups::none();
        if !crate::plan::is_plain_name(name) || name == SERVER_GROUP {
            return cgroups;
        }
        for controller in Controller::ALL {
            match self.location(controller) {
                ControllerLocation::V1(dir) if dir.join(name).is_dir() => {
                    cgroups.add_v1(dir.join(name));
                }
                ControllerLocation::V2(dir) if dir.join(name).is_dir() => {
                    cgroups.v2 = Some(dir.join(name));
                }
                ControllerLocation::V1(_)
                | ControllerLocation::V2(_)
                | ControllerLocation::Missing { .. } => {}
            }
        }
        if let (None, Some(dir)) = (
            &cgroups.v2,
            self.spare.iter().find(|dir| dir.join(name).is_dir()),
        ) {
            cgroups.v2 = Some(dir.join(name));
        }
        cgroups
    }

    /// Names of all cgroups that look like ours.
    pub fn names(&self) -> Vec<String> {
        let dirs =
            Controller::ALL
                .into_iter()
                .filter_map(|controller| match self.location(controller) {
                    ControllerLocation::V1(dir) | ControllerLocation::V2(dir) => Some(dir),
                    ControllerLocation::Missing { .. } => None,
                });
        let mut names: Vec<String> = dirs
            .filter_map(|dir| fs::read_dir(dir).ok())
            .flat_map(Iterator::flatten)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| name != SERVER_GROUP && crate::plan::is_plain_name(name))
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Creates a cgroup and sets a limit. Returns what enforces the limit.
    fn limit(
        &self,
        cgroups: &mut ContainerCgroups,
        controller: Controller,
        name: &str,
        limits: &Limits,
    ) -> io::Result<bool> {
        match self.location(controller) {
            ControllerLocation::Missing { .. } => Ok(false),
            ControllerLocation::V1(base) => {
                let dir = base.join(name);
                if !cgroups.v1.contains(&dir) {
                    make_new(&dir)?;
                    cgroups.add_v1(dir.clone());
                }
                limit_v1(&dir, controller, limits, self.has_swap)
            }
            ControllerLocation::V2(base) => {
                let dir = base.join(name);
                if cgroups.v2.is_none() {
                    make_new(&dir)?;
                    cgroups.v2 = Some(dir.clone());
                }
                limit_v2(&dir, controller, limits, self.has_swap)
            }
        }
    }

    fn location(&self, controller: Controller) -> &ControllerLocation {
        match controller {
            Controller::Memory => &self.memory,
            Controller::Cpu => &self.cpu,
            Controller::Pids => &self.pids,
        }
    }

    fn seat_mut(&mut self, controller: Controller) -> &mut ControllerLocation {
        match controller {
            Controller::Memory => &mut self.memory,
            Controller::Cpu => &mut self.cpu,
            Controller::Pids => &mut self.pids,
        }
    }
}

/// The directory for cgroups in the unified hierarchy, or why there is none.
fn unified(mounts: &Mounts) -> Result<PathBuf, String> {
    let root = mounts.v2.as_ref().ok_or("no cgroup hierarchy has it")?;
    if geteuid().is_root() && mounts.v2_from_root {
        return writable(root).map(|()| root.join(GROUP));
    }
    let own = root.join(&mounts.v2_own);
    let base = match own.file_name() {
        Some(name) if name == SERVER_GROUP => own.parent().unwrap_or(root).to_owned(),
        _ => own,
    };
    if is_delegated(&base) {
        return Ok(base);
    }
    Err(
        "this process' cgroup is not delegated to the user: start it with \
         `systemd-run --user --scope -p Delegate=yes`"
            .to_owned(),
    )
}

/// Candidates in the delegated ancestors of this process' cgroup, nearest first. Only an ancestor
/// without members can enable controllers, which [`prepare_v2`] finds out.
fn delegated_above(mounts: &Mounts) -> Vec<PathBuf> {
    let Some(root) = mounts.v2.as_ref().filter(|_| !geteuid().is_root()) else {
        return Vec::new();
    };
    root.join(&mounts.v2_own)
        .ancestors()
        .skip(1)
        .take_while(|dir| dir.starts_with(root) && is_delegated(dir))
        .map(|dir| dir.join(GROUP))
        .collect()
}

/// Whether this user may create cgroups in `dir` and move its processes into them.
fn is_delegated(dir: &Path) -> bool {
    [
        dir.join("cgroup.procs"),
        dir.join("cgroup.subtree_control"),
        dir.to_owned(),
    ]
    .iter()
    .all(|path| writable(path).is_ok())
}

fn location(
    controller: Controller,
    mounts: &Mounts,
    v2: &Result<PathBuf, String>,
) -> ControllerLocation {
    let name = controller.name();
    if let Some(root) = mounts.v1.get(name) {
        return match writable(root) {
            Ok(()) => ControllerLocation::V1(root.join(GROUP)),
            Err(reason) => ControllerLocation::Missing { reason },
        };
    }
    match v2 {
        Ok(dir) if offers(dir, name) => ControllerLocation::V2(dir.clone()),
        Ok(_) => ControllerLocation::Missing {
            reason: format!("the {name} controller is not available"),
        },
        Err(reason) => ControllerLocation::Missing {
            reason: reason.clone(),
        },
    }
}

/// Whether the cgroup, or its parent if it does not exist yet, has the controller.
fn offers(dir: &Path, controller: &str) -> bool {
    let above = dir.parent().map(|above| above.join("cgroup.controllers"));
    let own = dir.join("cgroup.controllers");
    let is_root_group = dir.file_name().is_some_and(|name| name == GROUP);
    let file = if is_root_group { above } else { Some(own) };
    file.and_then(|file| fs::read_to_string(file).ok())
        .is_some_and(|text| text.split_whitespace().any(|name| name == controller))
}

fn writable(path: &Path) -> Result<(), String> {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)
        .map_err(|errno| format!("{} cannot be written: {errno}", path.display()))
}

fn prepare_v2(dir: &Path, controller: Controller, server: &[u32]) -> io::Result<()> {
    let turn_on = format!("+{}", controller.name());
    if dir.file_name().is_some_and(|name| name == GROUP) {
        let above = dir.parent().unwrap_or(dir);
        fs::write(above.join("cgroup.subtree_control"), &turn_on)?;
        make(dir)?;
        return fs::write(dir.join("cgroup.subtree_control"), &turn_on);
    }
    move_aside(dir, server)?;
    fs::write(dir.join("cgroup.subtree_control"), &turn_on)
}

/// Moves the server's processes into a cgroup of their own; fails if there are other members.
fn move_aside(dir: &Path, server: &[u32]) -> io::Result<()> {
    let members = fs::read_to_string(dir.join("cgroup.procs"))?;
    let members: Vec<u32> = members
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect();
    if !members.iter().all(|pid| server.contains(pid)) {
        return Err(io::Error::other(
            "other processes are in this process' cgroup",
        ));
    }
    if members.is_empty() {
        return Ok(());
    }
    let leaf = dir.join(SERVER_GROUP);
    make(&leaf)?;
    members
        .iter()
        .try_for_each(|pid| fs::write(leaf.join("cgroup.procs"), pid.to_string()))
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Creates an empty cgroup. Replaces a leftover without members; fails if one has members.
fn make_new(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let in_use = |_| io::Error::from(io::ErrorKind::AlreadyExists);
            fs::remove_dir(dir).map_err(in_use)?;
            fs::create_dir(dir)
        }
        other => other,
    }
}

/// The swap limit of each version. Absent if the kernel does not account for swap.
const SWAP_V1: &str = "memory.memsw.limit_in_bytes";
const SWAP_V2: &str = "memory.swap.max";

fn has_swap() -> bool {
    // A heading, then one line per swap device.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().count() > 1
}

/// Whether cgroups at this location certainly cannot limit swap. On v2 only an existing cgroup can
/// tell.
fn is_without_swap(location: &ControllerLocation) -> bool {
    match location {
        ControllerLocation::V1(dir) => dir.parent().is_some_and(|top| !top.join(SWAP_V1).exists()),
        ControllerLocation::V2(dir) => {
            dir.join("memory.max").exists() && !dir.join(SWAP_V2).exists()
        }
        ControllerLocation::Missing { .. } => false,
    }
}

fn limit_v1(
    dir: &Path,
    controller: Controller,
    limits: &Limits,
    has_swap: bool,
) -> io::Result<bool> {
    let set = |file: &str, value: u64| fs::write(dir.join(file), value.to_string());
    match controller {
        Controller::Memory => {
            set("memory.limit_in_bytes", limits.memory_bytes)?;
            // v1 counts TCP and UDP socket buffers only once they are limited, and separately from
            // memory.
            if dir.join(SOCKET_BUFFERS_V1).exists() {
                set(SOCKET_BUFFERS_V1, socket_buffer_bytes(limits))?;
            }
            if !dir.join(SWAP_V1).exists() {
                return Ok(!has_swap);
            }
            set(SWAP_V1, limits.memory_bytes)?;
        }
        Controller::Cpu => {
            set("cpu.cfs_period_us", CPU_PERIOD_US)?;
            set("cpu.cfs_quota_us", cpu_quota_us(limits))?;
        }
        Controller::Pids => set("pids.max", u64::from(limits.pids))?,
    }
    Ok(true)
}

fn limit_v2(
    dir: &Path,
    controller: Controller,
    limits: &Limits,
    has_swap: bool,
) -> io::Result<bool> {
    let set = |file: &str, value: String| fs::write(dir.join(file), value);
    match controller {
        Controller::Memory => {
            set("memory.max", limits.memory_bytes.to_string())?;
            if !dir.join(SWAP_V2).exists() {
                return Ok(!has_swap);
            }
            set(SWAP_V2, "0".to_owned())?;
        }
        Controller::Cpu => set(
            "cpu.max",
            format!("{} {CPU_PERIOD_US}", cpu_quota_us(limits)),
        )?,
        Controller::Pids => set("pids.max", limits.pids.to_string())?,
    }
    Ok(true)
}

fn socket_buffer_bytes(limits: &Limits) -> u64 {
    (limits.memory_bytes / SOCKET_BUFFER_SHARE).max(SOCKET_BUFFER_BYTES_MIN)
}

fn cpu_quota_us(limits: &Limits) -> u64 {
    (u64::from(limits.cpu_millis) * CPU_PERIOD_US / 1000).max(CPU_QUOTA_US_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        memory_bytes: 64 << 20,
        cpu_millis: 1000,
        pids: 32,
        tmp_bytes: 0,
        shm_bytes: 0,
        open_files: 0,
    };

    /// A host whose cgroup directories are plain directories.
    fn host(
        location: impl Fn(PathBuf) -> ControllerLocation,
        top: &Path,
        has_swap: bool,
    ) -> HostCgroups {
        let base = top.join(GROUP);
        fs::create_dir_all(&base).unwrap();
        HostCgroups {
            memory: location(base.clone()),
            cpu: location(base.clone()),
            pids: location(base),
            has_swap,
            ..HostCgroups::none("none")
        }
    }

    #[test]
    fn memory_that_can_go_to_swap_does_not_count_as_limited() {
        for location in [ControllerLocation::V1, ControllerLocation::V2] {
            for (has_swap, by) in [(true, Enforcement::Rlimit), (false, Enforcement::Cgroup)] {
                let top = tempfile::tempdir().unwrap();
                let host = host(location, top.path(), has_swap);
                let (_, enforced) = host.create("box", &LIMITS).unwrap();
                assert_eq!(enforced.memory, by, "{:?}", host.memory);
                assert_eq!(enforced.cpus, Enforcement::Cgroup);
                assert_eq!(enforced.pids, Enforcement::Cgroup);
            }
        }
    }

    #[test]
    fn memory_counts_as_limited_where_swap_is() {
        let dir = tempfile::tempdir().unwrap();
        for swap in [SWAP_V1, SWAP_V2] {
            fs::write(dir.path().join(swap), "max").unwrap();
        }
        let memory = Controller::Memory;
        assert!(limit_v1(dir.path(), memory, &LIMITS, true).unwrap());
        assert!(limit_v2(dir.path(), memory, &LIMITS, true).unwrap());
        let read = |file| fs::read_to_string(dir.path().join(file)).unwrap();
        assert_eq!(read(SWAP_V1), LIMITS.memory_bytes.to_string());
        assert_eq!(read(SWAP_V2), "0");
    }

    #[test]
    fn a_host_promises_no_more_than_its_containers_get() {
        let top = tempfile::tempdir().unwrap();
        let memory = |host: &HostCgroups| host.promises().memory;
        let v1 = host(ControllerLocation::V1, top.path(), true);
        assert_eq!(memory(&v1), Enforcement::Rlimit);
        let v2 = host(ControllerLocation::V2, top.path(), true);
        fs::write(top.path().join(GROUP).join("memory.max"), "max").unwrap();
        assert_eq!(memory(&v2), Enforcement::Rlimit);
        fs::write(top.path().join(SWAP_V1), "").unwrap();
        fs::write(top.path().join(GROUP).join(SWAP_V2), "").unwrap();
        for host in [v1, v2] {
            assert_eq!(memory(&host), Enforcement::Cgroup);
        }
    }
}

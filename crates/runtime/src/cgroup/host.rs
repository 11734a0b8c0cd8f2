//! Where containers' groups are made on this host.
//!
//! As root: below `hotcell` at the top of each hierarchy. As an ordinary user: beside this
//! process' own group, if that was delegated to the user and nobody else is in it, or else
//! below `hotcell` in a delegated group above it that is empty. A controller that cannot be
//! had is missing with its reason, and never keeps the others from being used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;

use super::Controller;
use super::container::ContainerCgroups;
use super::layout::{Layout, Mounts};
use crate::spec::{Enforced, Enforcement, Limits};

/// The group of all containers.
const GROUP: &str = "hotcell";
/// The group into which an ordinary user's server goes, because a group with members of its
/// own cannot limit groups below it.
const SERVER_GROUP: &str = "hotcell-server";

const CPU_PERIOD_US: u64 = 100_000;
/// The kernel takes no less.
const CPU_QUOTA_US_MIN: u64 = 1_000;

/// Where v1 limits the buffers of TCP and UDP sockets.
const SOCKET_BUFFERS_V1: &str = "memory.kmem.tcp.limit_in_bytes";
/// On v1, socket buffers come on top of a container's memory, up to this part of it. The
/// unified hierarchy counts them as memory.
const SOCKET_BUFFER_SHARE: u64 = 4;
/// With less, a few connections would already wait for each other.
const SOCKET_BUFFER_BYTES_MIN: u64 = 4 << 20;

/// Where groups of one controller are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControllerLocation {
    /// In this directory of a v1 hierarchy.
    V1(PathBuf),
    /// In this directory of the unified hierarchy.
    V2(PathBuf),
    /// Nowhere.
    Missing {
        /// Why, for people.
        reason: String,
    },
}

/// What this host can limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCgroups {
    /// Which generations there are.
    pub layout: Layout,
    /// Memory.
    pub memory: ControllerLocation,
    /// Processor time.
    pub cpu: ControllerLocation,
    /// Number of processes.
    pub pids: ControllerLocation,
    /// Where else groups in the unified hierarchy may be, if the first cgroups is not ours
    /// alone.
    spare: Vec<PathBuf>,
    /// Whether memory can go to swap: then a limit of memory alone limits nothing.
    has_swap: bool,
}

impl HostCgroups {
    /// A host on which nothing is limited by groups.
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

    /// Looks, and changes nothing.
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

    /// Makes the groups that hold containers' groups, and turns controllers on for them; a
    /// controller where that fails becomes missing. `server` are the processes that may have to
    /// move into a group of their own.
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

    /// Moves the seats of the unified hierarchy to the first cgroups where all can be used,
    /// if there is one.
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

    /// Makes the groups of one container and sets its limits. What a group cannot limit is
    /// left to rlimits, and said. On `Err` nothing is left behind.
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
            // Only what was made just now; nobody is in it.
            let _ = cgroups.remove();
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let [memory, cpus, pids] = made.map(|made| made.unwrap_or(false));
        let or = |limited, other| if limited { Enforcement::Cgroup } else { other };
        let enforced = Enforced {
            memory: or(memory, Enforcement::Rlimit),
            cpus: or(cpus, Enforcement::None),
            pids: or(pids, Enforcement::Rlimit),
        };
        Ok((cgroups, enforced))
    }

    /// What will stand behind the limits of a container, if every group can be made.
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
        }
    }

    /// Whether memory can go to swap that no group limits.
    pub fn lacks_swap_limit(&self) -> bool {
        self.has_swap && is_without_swap(&self.memory)
    }

    /// The groups that a container of this name has, wherever they exist: for one whose
    /// maker died before it could say where it had put them.
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

    /// Names of all groups that look like containers'.
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

    /// Makes a group and sets a limit; whether that holds, whatever the container does.
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

/// Where groups in the unified hierarchy go, if anywhere.
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

/// Groups for containers in the delegated groups above this process' own, the nearest
/// first. Only an empty group can limit those below it, which [`prepare_v2`] finds out.
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

/// Whether this user may make groups there, and move its processes into them.
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

/// Whether the group, or the one above it if it is not made yet, has the controller.
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

/// Moves the server into a group of its own; refuses to move anybody else.
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

/// Makes a group that nobody is in: one left over from before is replaced, one in use is not.
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

/// What limits swap beside memory, in either generation. It is absent where the kernel does
/// not account for swap.
const SWAP_V1: &str = "memory.memsw.limit_in_bytes";
const SWAP_V2: &str = "memory.swap.max";

/// Whether this host has any swap.
fn has_swap() -> bool {
    // Below the heading is one line for each.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().count() > 1
}

/// Whether groups there are known not to limit swap. In the unified hierarchy only a group
/// that is made already can tell.
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
            // Buffers of TCP and UDP sockets are counted only once they are limited, and apart
            // from the rest.
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

    /// A host whose groups are plain directories.
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

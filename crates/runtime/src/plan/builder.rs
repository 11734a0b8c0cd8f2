//! Collects the steps of a plan in two lists: sources, which are opened while the process still is
//! the caller's user, and the steps that build the root from them.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::overlay::Etc;
use super::{FdSlot, MappedMount, Op, Plan, Step, attr};
use crate::spec::{DiskIds, IdMap, LaunchSpec, Root, Scratch};

/// Names become host names, which the kernel limits to 64 bytes.
const NAME_BYTES_MAX: usize = 63;
/// Overlayfs accepts 500 lower directories.
const LOWERS_MAX: usize = 256;
/// Long enough for a digest.
const NAME_OF_LAYER_MAX: usize = 128;
/// Size of a tmpfs that only holds mount points and small files.
const SMALL_FS_BYTES: u64 = 1 << 20;
/// A sized tmpfs gets one inode per this many bytes.
const BYTES_PER_INODE: u64 = 2048;
const INODES_MIN: u64 = 1024;

/// Where the new root is built, in a private mount namespace.
const STAGING: &CStr = c"/tmp";

/// Why a spec cannot be compiled into a plan.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSpec(pub String);

/// A plan under construction.
#[derive(Default)]
pub(crate) struct Builder {
    sources: Vec<Step>,
    steps: Vec<Step>,
    slots: usize,
    mapped: Vec<MappedMount>,
}

impl Builder {
    /// The steps that mount the root of `spec`, up to and including the pivot.
    pub(crate) fn root(spec: &LaunchSpec) -> Result<Self, InvalidSpec> {
        check(spec)?;
        let mut builder = Self::default();
        builder.staging();
        match &spec.root {
            Root::Host => builder.host_root(spec)?,
            Root::Overlay { lowers, scratch } => builder.overlay_root(lowers, scratch.as_ref())?,
            Root::Layers {
                dir,
                names,
                passwd,
                group,
            } => {
                let etc = Etc {
                    name: &spec.name,
                    passwd,
                    group,
                };
                builder.layers_root(dir, names, &etc)?;
            }
        }
        builder.devices(spec);
        builder.kernel_filesystems();
        builder.writable_directories(spec)?;
        let writable = matches!(
            &spec.root,
            Root::Overlay {
                scratch: Some(_),
                ..
            }
        );
        let read_only = if writable { 0 } else { attr::RDONLY };
        builder.seal(
            "seal the root",
            c".",
            read_only | attr::NOSUID | attr::NODEV,
        );
        builder.step("change the root", Op::Pivot);
        Ok(builder)
    }

    /// Mounts a tmpfs to build on and makes it the current directory.
    fn staging(&mut self) {
        let slot = self.new_fs("make the root", c"tmpfs", small_tmpfs(c"0755"), 0);
        self.step("attach the root", Op::Enter { slot, at: STAGING });
    }

    /// Only the staging tmpfs. For probes.
    pub(crate) fn staging_alone() -> Self {
        let mut builder = Self::default();
        builder.staging();
        builder
    }

    /// Only a `/proc` on the staging tmpfs. For probes.
    pub(crate) fn proc_alone() -> Self {
        let mut builder = Self::default();
        builder.staging();
        builder.mkdir(c"proc", 0o755);
        builder.mount("mount /proc", c"proc", Vec::new(), attr::NOSUID, c"proc");
        builder
    }

    /// A host directory with plain ids at `workspace` on the staging filesystem and nothing else.
    pub(crate) fn mapped_alone(directory: &Path) -> Result<Self, InvalidSpec> {
        let mut builder = Self::default();
        builder.staging();
        builder.mkdir(c"workspace", 0o755);
        builder.workspace(directory, Some(DiskIds::PLAIN))?;
        Ok(builder)
    }

    /// Only an overlay on the staging tmpfs. For probes.
    pub(crate) fn overlay_alone(lower: &Path, scratch: &Scratch) -> Result<Self, InvalidSpec> {
        let mut builder = Self::default();
        builder.staging();
        builder.overlay_root(&[lower.to_owned()], Some(scratch))?;
        Ok(builder)
    }

    /// Orders the steps: `first`, sources, ids, building, `last`.
    pub(crate) fn into_plan(self, first: Vec<Step>, ids: &IdMap, last: Vec<Step>) -> Plan {
        let mut steps = first;
        steps.push(Step {
            name: "make mounts private",
            op: Op::PrivateMounts,
        });
        let op = if self.mapped.is_empty() {
            Op::AwaitGo
        } else {
            let slots = self.mapped.iter().map(|mount| mount.slot).collect();
            Op::AwaitMapped { slots }
        };
        steps.push(Step {
            name: "await the id map",
            op,
        });
        // Once the ids are mapped, sources may lie in directories that only the container's users
        // can search.
        steps.extend(self.sources);
        if ids.has_root() {
            steps.push(Step {
                name: "become the container's root",
                op: Op::BecomeRoot,
            });
        }
        steps.extend(self.steps);
        steps.extend(last);
        Plan {
            steps,
            slots: self.slots,
            mapped: self.mapped,
        }
    }

    pub(super) fn step(&mut self, name: &'static str, op: Op) {
        self.steps.push(Step { name, op });
    }

    fn slot(&mut self) -> FdSlot {
        self.slots += 1;
        FdSlot(self.slots - 1)
    }

    /// Creates a filesystem, not yet attached.
    pub(super) fn new_fs(
        &mut self,
        name: &'static str,
        kind: &'static CStr,
        options: Vec<(&'static CStr, CString)>,
        attributes: u64,
    ) -> FdSlot {
        let slot = self.slot();
        let attributes = u32::try_from(attributes).expect("the kernel defines 32 bits of these");
        self.step(
            name,
            Op::NewFs {
                slot,
                kind,
                options,
                attributes,
            },
        );
        slot
    }

    /// Creates a filesystem and attaches it to an existing directory.
    pub(super) fn mount(
        &mut self,
        name: &'static str,
        kind: &'static CStr,
        options: Vec<(&'static CStr, CString)>,
        attributes: u64,
        at: &CStr,
    ) {
        let slot = self.new_fs(name, kind, options, attributes);
        self.step(
            name,
            Op::Attach {
                slot,
                at: at.to_owned(),
            },
        );
    }

    /// Attaches a recursive bind mount of a host path to an existing path.
    pub(super) fn bind(
        &mut self,
        name: &'static str,
        source: CString,
        at: CString,
        attributes: u64,
    ) {
        let slot = self.slot();
        self.sources.push(Step {
            name,
            op: Op::Open {
                slot,
                path: source,
                attributes,
            },
        });
        self.step(name, Op::Attach { slot, at });
    }

    /// Attaches a host path to an existing path, id-mapped. If the kernel cannot do that and the
    /// map is optional, attaches it unmapped.
    pub(super) fn bind_mapped(
        &mut self,
        name: &'static str,
        source: CString,
        at: CString,
        map: MountMap,
    ) {
        let slot = self.slot();
        let MountMap {
            disk_ids,
            attributes,
            is_required,
        } = map;
        self.mapped.push(MappedMount {
            slot,
            path: source.clone(),
            attributes,
            disk_ids,
            is_required,
        });
        if !is_required {
            self.sources.push(Step {
                name,
                op: Op::OpenUnlessGiven {
                    slot,
                    path: source,
                    attributes,
                },
            });
        }
        self.step(name, Op::Attach { slot, at });
    }

    pub(super) fn mkdir(&mut self, path: &CStr, mode: u32) {
        self.step(
            "make a directory",
            Op::Mkdir {
                path: path.to_owned(),
                mode,
            },
        );
    }

    pub(super) fn file(&mut self, path: &CStr, contents: impl Into<Vec<u8>>) {
        let op = Op::File {
            path: path.to_owned(),
            contents: contents.into(),
            mode: 0o644,
        };
        self.step("make a file", op);
    }

    pub(super) fn symlink(&mut self, path: &CStr, target: &CStr) {
        let op = Op::Symlink {
            path: path.to_owned(),
            target: target.to_owned(),
        };
        self.step("make a link", op);
    }

    /// Changes the attributes of a mount; usually makes it read-only.
    pub(super) fn seal(&mut self, name: &'static str, path: &CStr, attributes: u64) {
        self.step(
            name,
            Op::Seal {
                path: path.to_owned(),
                attributes,
            },
        );
    }
}

/// The id map of one mount.
#[derive(Clone, Copy)]
pub(super) struct MountMap {
    pub(super) disk_ids: DiskIds,
    pub(super) attributes: u64,
    pub(super) is_required: bool,
}

/// Options of a tmpfs of `bytes`, with a matching limit on inodes.
pub(super) fn tmpfs(bytes: u64, mode: &CStr) -> Vec<(&'static CStr, CString)> {
    let inodes = (bytes / BYTES_PER_INODE).max(INODES_MIN);
    vec![
        (c"size", number(bytes)),
        (c"nr_inodes", number(inodes)),
        (c"mode", mode.to_owned()),
    ]
}

/// Options of a tmpfs that only holds mount points.
pub(super) fn small_tmpfs(mode: &CStr) -> Vec<(&'static CStr, CString)> {
    tmpfs(SMALL_FS_BYTES, mode)
}

fn number(value: u64) -> CString {
    CString::new(value.to_string()).expect("digits hold no NUL")
}

/// Converts a path for the kernel; fails on a NUL byte.
pub(super) fn c_path(path: impl AsRef<Path>) -> Result<CString, InvalidSpec> {
    CString::new(path.as_ref().as_os_str().as_bytes())
        .map_err(|_| InvalidSpec("a path holds a NUL byte".to_owned()))
}

/// The type of a host path, symbolic links followed; `None` if it cannot be shown.
pub(super) fn kind_of(path: &Path) -> Option<Kind> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.is_dir() {
        Some(Kind::Directory)
    } else {
        metadata.is_file().then_some(Kind::File)
    }
}

/// The types of host files that can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
}

fn check(spec: &LaunchSpec) -> Result<(), InvalidSpec> {
    let invalid = |reason: &str| Err(InvalidSpec(reason.to_owned()));
    if !is_plain_name(&spec.name) {
        return invalid(
            "the name must be 1 to 63 of a-z A-Z 0-9 . _ - and start with none of the signs",
        );
    }
    if spec.argv.is_empty() {
        return invalid("the init program needs its own name as first argument");
    }
    let mut paths: Vec<&PathBuf> = vec![&spec.workspace];
    if let Root::Overlay { lowers, scratch } = &spec.root {
        if lowers.is_empty() || lowers.len() > LOWERS_MAX {
            return invalid("an overlay has between 1 and 256 lower directories");
        }
        paths.extend(lowers);
        paths.extend(
            scratch
                .iter()
                .flat_map(|scratch| [&scratch.upper, &scratch.work]),
        );
    }
    if let Root::Layers { dir, names, .. } = &spec.root {
        let plain = |name: &String| {
            (1..=NAME_OF_LAYER_MAX).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        if names.is_empty() || names.len() > LOWERS_MAX || !names.iter().all(plain) {
            return invalid("an image has between 1 and 256 layers with plain names");
        }
        paths.push(dir);
    }
    if spec.workspace_ids.is_some() && !matches!(spec.ids, IdMap::Range { .. }) {
        return invalid("only host root can map the ids of a workspace");
    }
    let absolute = |path: &&PathBuf| {
        path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
    };
    if !paths.iter().all(absolute) {
        return invalid("every path must be absolute and without ..");
    }
    Ok(())
}

/// Whether `name` is valid as file name, cgroup name and host name.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

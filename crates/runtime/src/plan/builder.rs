//! Collects steps in the two places where they go: sources, opened while the process is
//! still the caller's user, and the building that follows.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::overlay::Etc;
use super::{FdSlot, MappedMount, Op, Plan, Step, attr};
use crate::spec::{DiskIds, IdMap, LaunchSpec, Root, Scratch};

/// Names of containers are at most this long: they become host names.
const NAME_BYTES_MAX: usize = 63;
/// At most this many lower directories; overlayfs takes 500.
const LOWERS_MAX: usize = 256;
/// Layers are named by digests.
const NAME_OF_LAYER_MAX: usize = 128;
/// Size of a filesystem that only holds mount points and small files.
const SMALL_FS_BYTES: u64 = 1 << 20;
/// One file or directory of a sized filesystem for so many of its bytes.
const BYTES_PER_INODE: u64 = 2048;
const INODES_MIN: u64 = 1024;

/// Where the new root is built; in a mount namespace that nobody else sees.
const STAGING: &CStr = c"/tmp";

/// Why a spec cannot be made into a plan.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSpec(pub String);

/// A plan in the making.
#[derive(Default)]
pub(crate) struct Builder {
    sources: Vec<Step>,
    steps: Vec<Step>,
    slots: usize,
    mapped: Vec<MappedMount>,
}

impl Builder {
    /// The steps that make the mounts of `spec`, up to and including the pivot.
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

    /// A tmpfs on which to build, as the current directory.
    fn staging(&mut self) {
        let slot = self.new_fs("make the root", c"tmpfs", small_tmpfs(c"0755"), 0);
        self.step("attach the root", Op::Enter { slot, at: STAGING });
    }

    /// The staging filesystem and nothing else.
    pub(crate) fn staging_alone() -> Self {
        let mut builder = Self::default();
        builder.staging();
        builder
    }

    /// A `/proc` on the staging filesystem and nothing else: to see whether that can be made.
    pub(crate) fn proc_alone() -> Self {
        let mut builder = Self::default();
        builder.staging();
        builder.mkdir(c"proc", 0o755);
        builder.mount("mount /proc", c"proc", Vec::new(), attr::NOSUID, c"proc");
        builder
    }

    /// An overlay on the staging filesystem and nothing else.
    pub(crate) fn overlay_alone(lower: &Path, scratch: &Scratch) -> Result<Self, InvalidSpec> {
        let mut builder = Self::default();
        builder.staging();
        builder.overlay_root(&[lower.to_owned()], Some(scratch))?;
        Ok(builder)
    }

    /// Puts everything in order: `first`, sources, ids, building, `last`.
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
        // Once the ids are mapped, directories of the container's own users can be walked too.
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

    /// Adds a step.
    pub(super) fn step(&mut self, name: &'static str, op: Op) {
        self.steps.push(Step { name, op });
    }

    fn slot(&mut self) -> FdSlot {
        self.slots += 1;
        FdSlot(self.slots - 1)
    }

    /// Makes a filesystem.
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

    /// Makes a filesystem and attaches it at a directory that exists.
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

    /// Attaches a copy of a host path's mounts at a path that exists.
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

    /// Attaches a host path at a path that exists, with a map of its own. Where the kernel
    /// cannot do that, an optional one is attached as it is.
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

    /// Makes a directory.
    pub(super) fn mkdir(&mut self, path: &CStr, mode: u32) {
        self.step(
            "make a directory",
            Op::Mkdir {
                path: path.to_owned(),
                mode,
            },
        );
    }

    /// Makes a file.
    pub(super) fn file(&mut self, path: &CStr, contents: impl Into<Vec<u8>>) {
        let op = Op::File {
            path: path.to_owned(),
            contents: contents.into(),
            mode: 0o644,
        };
        self.step("make a file", op);
    }

    /// Makes a symbolic link.
    pub(super) fn symlink(&mut self, path: &CStr, target: &CStr) {
        let op = Op::Symlink {
            path: path.to_owned(),
            target: target.to_owned(),
        };
        self.step("make a link", op);
    }

    /// Changes the attributes of a mount.
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

/// How the ids of one mount are mapped.
#[derive(Clone, Copy)]
pub(super) struct MountMap {
    pub(super) disk_ids: DiskIds,
    pub(super) attributes: u64,
    pub(super) is_required: bool,
}

/// Options of a tmpfs of a given size, with a bound on its inodes too.
pub(super) fn tmpfs(bytes: u64, mode: &CStr) -> Vec<(&'static CStr, CString)> {
    let inodes = (bytes / BYTES_PER_INODE).max(INODES_MIN);
    vec![
        (c"size", number(bytes)),
        (c"nr_inodes", number(inodes)),
        (c"mode", mode.to_owned()),
    ]
}

/// Options of a tmpfs for mount points.
pub(super) fn small_tmpfs(mode: &CStr) -> Vec<(&'static CStr, CString)> {
    tmpfs(SMALL_FS_BYTES, mode)
}

fn number(value: u64) -> CString {
    CString::new(value.to_string()).expect("digits hold no NUL")
}

/// A path for the kernel.
pub(super) fn c_path(path: impl AsRef<Path>) -> Result<CString, InvalidSpec> {
    CString::new(path.as_ref().as_os_str().as_bytes())
        .map_err(|_| InvalidSpec("a path holds a NUL byte".to_owned()))
}

/// What a name on the host is, links followed; `None` if it is nothing that can be shown.
pub(super) fn kind_of(path: &Path) -> Option<Kind> {
    let metadata = fs::metadata(path).ok()?;
    if metadata.is_dir() {
        Some(Kind::Directory)
    } else {
        metadata.is_file().then_some(Kind::File)
    }
}

/// What can be shown of the host.
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

/// Whether `name` can be a file name, a cgroup name and a host name.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(plain)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

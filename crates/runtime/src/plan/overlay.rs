//! A root filesystem made of an image's layers, stacked by overlayfs.
//!
//! The topmost lower layer is always ours: a tmpfs with nothing but mount points. So the mount
//! points exist in every image, and none of them is a symbolic link that the image chose.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use super::builder::{Builder, InvalidSpec, MountMap, c_path};
use super::{LAYER_ATTRIBUTES, Op, attr};
use crate::spec::{DiskIds, Scratch};

/// The kernel accepts one page of mount options.
const OPTIONS_BYTES_MAX: usize = 4000;

/// The values of a container's own `/etc` files.
pub(super) struct Etc<'a> {
    pub(super) name: &'a str,
    pub(super) passwd: &'a str,
    pub(super) group: &'a str,
}

impl Builder {
    /// Builds the root in a subdirectory and changes into it.
    pub(super) fn overlay_root(
        &mut self,
        lowers: &[PathBuf],
        scratch: Option<&Scratch>,
    ) -> Result<(), InvalidSpec> {
        self.mount_points();
        // Relative names are short, need no escaping, and need no search permission on the
        // directories above a layer.
        let mut options = "userxattr,lowerdir=points".to_owned();
        for (index, lower) in lowers.iter().enumerate() {
            let at = c_path(index.to_string())?;
            self.mkdir(&at, 0o755);
            self.bind(
                "open a layer of the image",
                c_path(lower)?,
                at,
                LAYER_ATTRIBUTES,
            );
            options.push(':');
            options.push_str(&index.to_string());
        }
        if let Some(scratch) = scratch {
            options.push_str(&self.scratch(scratch)?);
        }
        self.overlay(options, scratch.is_none())
    }

    /// Builds the root from layers in one directory. The directory is mounted once, however many
    /// layers it has.
    pub(super) fn layers_root(
        &mut self,
        dir: &Path,
        names: &[String],
        etc: &Etc<'_>,
    ) -> Result<(), InvalidSpec> {
        self.mount_points();
        self.etc_files(etc);
        self.mkdir(c"layers", 0o755);
        self.bind_mapped(
            "open the layers of the image",
            c_path(dir)?,
            c"layers".to_owned(),
            MountMap {
                disk_ids: DiskIds::PLAIN,
                attributes: LAYER_ATTRIBUTES,
                is_required: false,
            },
        );
        let mut options = "userxattr,lowerdir=points".to_owned();
        for (index, name) in names.iter().enumerate() {
            // Layer names are long, and the kernel accepts one page of options, so short links are
            // used.
            let link = c_path(index.to_string())?;
            self.symlink(&link, &c_path(format!("layers/{name}"))?);
            options.push(':');
            options.push_str(&index.to_string());
        }
        self.overlay(options, true)
    }

    fn mount_points(&mut self) {
        self.mkdir(c"root", 0o755);
        self.mkdir(c"points", 0o755);
        for path in [
            c"points/dev",
            c"points/proc",
            c"points/sys",
            c"points/tmp",
            c"points/workspace",
        ] {
            self.mkdir(path, 0o755);
        }
    }

    /// Creates the `/etc` files that every container has, whatever the image contains.
    fn etc_files(&mut self, etc: &Etc<'_>) {
        let name = etc.name;
        let hosts =
            format!("127.0.0.1 localhost {name}\n::1 localhost ip6-localhost ip6-loopback\n");
        self.mkdir(c"points/etc", 0o755);
        self.file(c"points/etc/passwd", etc.passwd);
        self.file(c"points/etc/group", etc.group);
        self.file(c"points/etc/hosts", hosts);
        self.file(c"points/etc/hostname", format!("{name}\n"));
        self.file(c"points/etc/resolv.conf", Vec::new());
    }

    fn overlay(&mut self, options: String, read_only: bool) -> Result<(), InvalidSpec> {
        if options.len() > OPTIONS_BYTES_MAX {
            return Err(InvalidSpec("an overlay has too many layers".to_owned()));
        }
        let options =
            CString::new(options).map_err(|_| InvalidSpec("a path holds a NUL byte".to_owned()))?;
        self.step(
            "stack the layers",
            Op::Overlay {
                at: c"root".to_owned(),
                options,
                read_only,
            },
        );
        self.step("enter the root", Op::Chdir(c"root".to_owned()));
        Ok(())
    }

    /// Overlayfs requires `upper` and `work` on one mount, so their parent is opened.
    fn scratch(&mut self, scratch: &Scratch) -> Result<String, InvalidSpec> {
        let parent = scratch
            .upper
            .parent()
            .filter(|parent| Some(*parent) == scratch.work.parent());
        let parent = parent
            .ok_or_else(|| InvalidSpec("upper and work must lie in one directory".to_owned()))?;
        let (upper, work) = (plain(&scratch.upper)?, plain(&scratch.work)?);
        self.mkdir(c"scratch", 0o755);
        let attributes = attr::NOSUID | attr::NODEV;
        self.bind(
            "open the scratch",
            c_path(parent)?,
            c"scratch".to_owned(),
            attributes,
        );
        Ok(format!(",upperdir=scratch/{upper},workdir=scratch/{work}"))
    }
}

/// The last component of a path; fails if overlayfs would need it escaped.
fn plain(path: &Path) -> Result<&str, InvalidSpec> {
    path.file_name()
        .and_then(|name| name.to_str())
        .filter(|name| super::builder::is_plain_name(name))
        .ok_or_else(|| InvalidSpec("upper and work must have plain names".to_owned()))
}

//! The workspaces on disk, and their format.
//!
//! ```text
//! TREE/mapped.json    this host has been seen to map ids here since it was started
//! TREE/n_…/           a node: one workspace; 0700, because files in it can have any owner and
//!                     set-user-id bits, and nobody but us may reach them
//!   format.json       what the ids on disk mean, and what `fs` is
//!   fs/               the files
//!   work/             on the same filesystem, for whatever `fs` is made of
//! ```
//!
//! A container's directory is created before its node and removed after it, so every leftover of a
//! crash is either found by its container or is a node without one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hotcell_domain::ContainerId;
use hotcell_runtime::{DiskIds, IdMap, USER_ID, probe};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::home::{boot_id, read_bounded};
use super::remove_tree;

/// The size limit of files that describe a node or a tree, which have one line.
const DESCRIPTION_BYTES_MAX: u64 = 4 << 10;

/// The name suffix of a directory in which quotas are probed.
pub(super) const QUOTA_PROBE: &str = "-quota";

/// Records that ids can be mapped.
const MAPPED: &str = "mapped.json";

/// The name of a workspace: `n_` and the digits of the container that it was created for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct NodeId(ContainerId);

/// How a workspace is stored on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Format {
    pub(super) ids: FileIds,
    pub(super) layer: Layer,
}

/// The user ids that files of a workspace have on disk. They never change for a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileIds {
    /// The ids that they have in the container; the mount maps them to host ids.
    Plain,
    /// The host ids of the container, which has its own range.
    Shifted,
    /// Like `Shifted`, but all containers of a tree share one host id for their user.
    Owner,
}

/// What `fs` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Layer {
    /// A directory with all files.
    Plain,
}

/// All workspaces of a state directory.
#[derive(Debug)]
pub(super) struct Tree {
    path: PathBuf,
    file_ids: OnceLock<FileIds>,
}

/// When and where mapping ids worked. A different kernel or filesystem is probed again.
#[derive(PartialEq, Serialize, Deserialize)]
struct Mapped {
    boot_id: String,
    device: u64,
}

impl Tree {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path)?;
        Ok(Self {
            path: path.to_owned(),
            file_ids: OnceLock::new(),
        })
    }

    /// Opens the tree without creating anything; `None` if it does not exist.
    pub(super) fn to_look_at(path: &Path) -> Option<Self> {
        let file_ids = OnceLock::new();
        let path = path.to_owned();
        path.exists().then_some(Self { path, file_ids })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn directory(&self, node: &NodeId) -> PathBuf {
        self.path.join(node.name())
    }

    /// The directory of a workspace's files.
    pub(super) fn fs(&self, node: &NodeId) -> PathBuf {
        self.directory(node).join("fs")
    }

    /// The format of new workspaces: plain ids if mapping works here, which is probed.
    pub(super) fn file_ids(&self) -> FileIds {
        *self.file_ids.get_or_init(|| {
            // An ordinary user owns everything it creates, and cannot map ids.
            if !geteuid().is_root() {
                return FileIds::Owner;
            }
            match self.try_mapping() {
                Ok(()) => {
                    tracing::info!("workspaces have plain user ids on disk");
                    FileIds::Plain
                }
                Err(error) => {
                    tracing::warn!(
                        %error, cause = %error.source,
                        "user ids cannot be mapped in the state directory: all workspaces \
                         belong to one host user, which all containers run as"
                    );
                    FileIds::Owner
                }
            }
        })
    }

    /// Only success is recorded: a failure may have been temporary.
    fn try_mapping(&self) -> Result<(), probe::ProbeError> {
        let now = Mapped {
            boot_id: boot_id(),
            device: fs::metadata(&self.path).map_or(0, |tree| tree.dev()),
        };
        let path = self.path.join(MAPPED);
        if read_json::<Mapped>(&path).is_ok_and(|known| known == now) {
            return Ok(());
        }
        probe::mapped_ids(&self.path)?;
        if let Err(error) = write_json(&path, &now) {
            tracing::debug!(%error, "the next process tries again to map user ids");
        }
        Ok(())
    }

    /// Creates an empty workspace for a container with these ids.
    pub(super) fn make(&self, node: &NodeId, format: Format, ids: IdMap) -> io::Result<()> {
        let directory = self.directory(node);
        let private = |path: &Path| fs::DirBuilder::new().mode(0o700).create(path);
        private(&directory)?;
        write_json(&directory.join("format.json"), &format)?;
        private(&directory.join("work"))?;
        let fs = self.fs(node);
        fs::DirBuilder::new().mode(0o755).create(&fs)?;
        match (format.ids, ids) {
            // The container's user is our own user.
            (_, IdMap::Single | IdMap::Subordinate { .. }) => Ok(()),
            (FileIds::Plain, IdMap::Range { .. }) => chown(&fs, Some(USER_ID), Some(USER_ID)),
            (FileIds::Shifted | FileIds::Owner, IdMap::Range { .. }) => {
                chown(&fs, ids.host_uid(USER_ID), ids.host_gid(USER_ID))
            }
        }
    }

    pub(super) fn format(&self, node: &NodeId) -> io::Result<Format> {
        read_json(&self.directory(node).join("format.json"))
    }

    /// Removes a workspace. A missing one is fine.
    pub(super) fn remove(&self, node: &NodeId, ids: IdMap) -> io::Result<()> {
        remove_foreign(&self.fs(node), ids)?;
        remove_tree::tree(&self.directory(node))
    }

    pub(super) fn nodes(&self) -> io::Result<Vec<NodeId>> {
        let names = self.names()?;
        Ok(names
            .iter()
            .filter_map(|name| NodeId::parse(name))
            .collect())
    }

    /// Removes directories of probes that died.
    pub(super) fn remove_probes(&self) -> io::Result<()> {
        for name in self.names()? {
            let pid = name.strip_prefix(probe::SCRATCH);
            let pid = pid.map(|pid| pid.strip_suffix(QUOTA_PROBE).unwrap_or(pid));
            let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
            if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                // The probe's child may live a moment longer: the next sweep removes what it
                // created.
                if let Err(error) = remove_tree::tree(&self.path.join(name)) {
                    tracing::debug!(%error, "the directory of a probe stays for now");
                }
            }
        }
        Ok(())
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }
}

impl NodeId {
    /// The node that is created for a container.
    pub(super) fn of(container: &ContainerId) -> Self {
        Self(container.clone())
    }

    /// The container that it was created for.
    pub(super) fn container(&self) -> &ContainerId {
        &self.0
    }

    fn name(&self) -> String {
        self.0.as_str().replacen('c', "n", 1)
    }

    fn parse(name: &str) -> Option<Self> {
        let digits = name.strip_prefix("n_")?;
        ContainerId::parse(&format!("c_{digits}")).ok().map(Self)
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> Self {
        node.name()
    }
}

impl TryFrom<String> for NodeId {
    type Error = &'static str;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::parse(&name).ok_or("no name of a workspace")
    }
}

impl FileIds {
    /// The name in `format.json` and for callers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Shifted => "shifted",
            Self::Owner => "owner",
        }
    }

    /// The ids that the mount of the workspace must map.
    pub(super) fn mapped(self) -> Option<DiskIds> {
        (self == Self::Plain).then_some(DiskIds::PLAIN)
    }
}

/// Removes files that belong to ids as which we cannot remove them directly. Our own files are
/// removed first: if a host forbids user namespaces, there are no others.
pub(super) fn remove_foreign(files: &Path, ids: IdMap) -> io::Result<()> {
    match ids {
        IdMap::Range { .. } | IdMap::Single => Ok(()),
        IdMap::Subordinate { .. } => {
            remove_tree::tree(files).or_else(|_| hotcell_runtime::remove_tree_as(&ids, files))
        }
    }
}

fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(File::create(path)?, value).map_err(Into::into)
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> io::Result<T> {
    let text = read_bounded(path, DESCRIPTION_BYTES_MAX)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_after_its_container_and_nothing_else_is_a_node() {
        let container = ContainerId::from_parts(7, [3; 10]);
        let node = NodeId::of(&container);
        assert!(node.name().starts_with("n_"));
        assert_eq!(NodeId::parse(&node.name()), Some(node.clone()));
        let text = serde_json::to_string(&node).unwrap();
        assert_eq!(serde_json::from_str::<NodeId>(&text).unwrap(), node);
        for odd in ["", "n_", "n_../../etc", container.as_str(), MAPPED] {
            assert_eq!(NodeId::parse(odd), None, "{odd}");
            assert!(serde_json::from_value::<NodeId>(odd.into()).is_err());
        }
    }

    #[test]
    fn a_workspace_belongs_on_disk_to_whom_its_format_says() {
        if !geteuid().is_root() {
            return hotcell_testkit::not_claimed("only root gives files away");
        }
        let (base, user) = (hotcell_runtime::ids::RANGE_FIRST, Some(4711));
        let shifted = base + USER_ID;
        let cases = [
            (FileIds::Plain, None, USER_ID, "plain"),
            (FileIds::Shifted, None, shifted, "shifted"),
            (FileIds::Owner, user, 4711, "owner"),
        ];
        for (ids, user, owner, word) in cases {
            let directory = tempfile::tempdir().unwrap();
            let tree = Tree::open(&directory.path().join("tree")).unwrap();
            let node = NodeId::of(&ContainerId::from_parts(1, [0; 10]));
            let layer = Layer::Plain;
            let map = IdMap::Range { base, user };
            tree.make(&node, Format { ids, layer }, map).unwrap();
            let found = fs::metadata(tree.fs(&node)).unwrap();
            assert_eq!((found.uid(), found.gid()), (owner, owner));
            let format = fs::read_to_string(tree.directory(&node).join("format.json")).unwrap();
            assert_eq!(format, format!(r#"{{"ids":"{word}","layer":"plain"}}"#));
            assert_eq!(ids.as_str(), word);
            assert_eq!(tree.format(&node).unwrap(), Format { ids, layer });
            for private in [tree.path(), &tree.directory(&node)] {
                assert_eq!(fs::metadata(private).unwrap().mode() & 0o777, 0o700);
            }
            tree.remove(&node, map).unwrap();
            assert_eq!(tree.nodes().unwrap(), []);
        }
    }

    #[test]
    fn a_format_that_is_missing_or_unknown_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::open(directory.path()).unwrap();
        let node = NodeId::of(&ContainerId::from_parts(1, [0; 10]));
        assert!(tree.format(&node).is_err());
        fs::create_dir(tree.directory(&node)).unwrap();
        for odd in ["", "{}", r#"{"ids":"odd","layer":"plain"}"#, "[[["] {
            fs::write(tree.directory(&node).join("format.json"), odd).unwrap();
            assert!(tree.format(&node).is_err(), "{odd}");
        }
    }

    #[test]
    fn what_a_probe_left_goes_when_its_process_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::open(directory.path()).unwrap();
        let (dead, alive) = (u32::MAX, std::process::id());
        for pid in [dead, alive] {
            fs::create_dir_all(tree.path().join(format!("probe-{pid}/fs"))).unwrap();
        }
        tree.remove_probes().unwrap();
        assert_eq!(tree.names().unwrap(), [format!("probe-{alive}")]);
    }
}

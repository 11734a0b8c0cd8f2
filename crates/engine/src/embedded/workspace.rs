//! The workspace of a container: its node in the tree, or the directory that containers had before
//! there was a tree.

use std::fs;
use std::io;
use std::path::PathBuf;

use hotcell_domain::{ContainerId, Limits};
use hotcell_runtime::{Enforcement, IdMap, LaunchSpec, ids};

use super::create::EmbeddedInner;
use super::home::Record;
use super::tree::{FileIds, Format, Layer, NodeId, remove_foreign};
use crate::{EngineError, SweepMode};

/// A new workspace, and the ids of its container.
pub(super) struct Workspace {
    pub(super) node: NodeId,
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) ids: IdMap,
    /// What enforces its disk limit.
    pub(super) disk: Enforcement,
}

impl EmbeddedInner {
    /// Creates a container's workspace.
    pub(super) fn make_workspace(
        &self,
        id: &ContainerId,
        limits: &Limits,
    ) -> Result<Workspace, EngineError> {
        let format = Format {
            ids: self.tree().file_ids(),
            layer: Layer::Plain,
        };
        let ids = self.choose_ids(id, format.ids)?;
        let node = NodeId::of(id);
        self.tree()
            .make(&node, format, ids)
            .map_err(EngineError::engine("make the workspace"))?;
        Ok(Workspace {
            disk: self.limit_disk(&node, ids, limits),
            path: self.tree().fs(&node),
            node,
            format,
            ids,
        })
    }

    /// The host ids of the container's users. As root: a range of its own, except for the
    /// container's user if all containers share that.
    fn choose_ids(&self, id: &ContainerId, file_ids: FileIds) -> Result<IdMap, EngineError> {
        match ids::choose(|| ids::RANGE_FIRST) {
            IdMap::Range { .. } => Ok(IdMap::Range {
                base: self.id_ranges().take(id, self.home())?,
                user: match file_ids {
                    FileIds::Plain | FileIds::Shifted => None,
                    FileIds::Owner => Some(self.id_ranges().shared_user(self.home())?),
                },
            }),
            map @ (IdMap::Single | IdMap::Subordinate { .. }) => Ok(map),
        }
    }

    /// The launcher's request for a restart, with the workspace of the record in its existing
    /// format.
    pub(super) fn with_workspace(
        &self,
        launch: LaunchSpec,
        record: &Record,
    ) -> Result<LaunchSpec, EngineError> {
        let Some(node) = &record.node else {
            return Ok(launch);
        };
        let format = self.tree().format(node);
        let format = format.map_err(EngineError::engine("read the workspace's format"))?;
        Ok(LaunchSpec {
            workspace: self.tree().fs(node),
            workspace_ids: format.ids.mapped(),
            ..launch
        })
    }

    /// Whether a container without a record has a workspace.
    pub(super) fn has_workspace(&self, id: &ContainerId) -> bool {
        fs::symlink_metadata(self.tree().directory(&NodeId::of(id))).is_ok()
    }

    /// Removes the workspace of a container that has ended, in either place.
    pub(super) fn remove_workspace(
        &self,
        id: &ContainerId,
        record: Option<&Record>,
    ) -> Result<(), EngineError> {
        let made = NodeId::of(id);
        let (node, ids) = match record {
            Some(record) => (record.node.as_ref(), record.ids),
            None => (Some(&made), ids::choose(|| ids::RANGE_FIRST)),
        };
        let old = self.home().directory(id).join("workspace");
        let remove = || -> io::Result<()> {
            remove_foreign(&old, ids)?;
            node.map_or(Ok(()), |node| self.tree().remove(node, ids))
        };
        remove().map_err(EngineError::engine("remove the workspace"))
    }

    /// Counts or removes workspaces without a container. A failure for one of them is logged and
    /// does not affect the others.
    pub(super) fn sweep_workspaces(&self, mode: SweepMode) -> Result<usize, EngineError> {
        let step = "look for workspaces without a container";
        let nodes = self.tree().nodes().map_err(EngineError::engine(step))?;
        // A container's directory is created before its workspace: a workspace without one is a
        // leftover.
        let is_left = |node: &NodeId| !self.home().directory(node.container()).exists();
        let mut left: Vec<_> = nodes.into_iter().filter(is_left).collect();
        if !left.is_empty() {
            let named = self.named_workspaces()?;
            left.retain(|node| !named.contains(node));
        }
        match mode {
            SweepMode::Count => Ok(left.len()),
            SweepMode::Remove => {
                self.tree()
                    .remove_probes()
                    .map_err(EngineError::engine(step))?;
                Ok(left.iter().filter(|node| self.remove_left(node)).count())
            }
        }
    }

    /// The workspaces that records name.
    fn named_workspaces(&self) -> Result<Vec<NodeId>, EngineError> {
        let mut named = Vec::new();
        for id in self.home().ids()? {
            match self.home().read(&id) {
                Ok(record) => named.extend(record.and_then(|record| record.node)),
                // It was removed meanwhile.
                Err(EngineError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(named)
    }

    fn remove_left(&self, node: &NodeId) -> bool {
        let ids = ids::choose(|| ids::RANGE_FIRST);
        let removed = self.tree().remove(node, ids);
        if let Err(error) = &removed {
            tracing::warn!(container.id = %node.container(), %error, "a workspace without a container stays");
        }
        removed.is_ok()
    }
}

//! The workspace of a container: its node in the tree, or the directory that containers had
//! before there was one.

use std::fs;
use std::io;
use std::path::PathBuf;

use hotcell_domain::{ContainerId, Limits};
use hotcell_runtime::{Enforcement, IdMap, LaunchSpec, ids};

use super::create::EmbeddedInner;
use super::home::Record;
use super::tree::{FileIds, Format, Layer, NodeId, remove_foreign};
use crate::{EngineError, SweepMode};

/// A new workspace, and the ids of the container that may write to it.
pub(super) struct Workspace {
    pub(super) node: NodeId,
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) ids: IdMap,
    /// What limits it.
    pub(super) disk: Enforcement,
}

impl EmbeddedInner {
    /// Makes a container's workspace.
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

    /// Who the container's users are outside: as host root a range of ids of its own, but for
    /// its user where that is one for all.
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

    /// How a container is started again: with the workspace that its record names, in the
    /// format which that has.
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

    /// Removes the workspace of a container that has ended, wherever it is.
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

    /// Counts or removes workspaces that belong to no container. One that cannot be removed is
    /// logged and keeps the others from nothing.
    pub(super) fn sweep_workspaces(&self, mode: SweepMode) -> Result<usize, EngineError> {
        let step = "look for workspaces without a container";
        let nodes = self.tree().nodes().map_err(EngineError::engine(step))?;
        // Their container's directory was made before them: what has none by now is left over.
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
                // It went while we looked.
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

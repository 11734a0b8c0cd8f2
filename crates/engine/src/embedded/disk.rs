//! The disk limit of containers, and their disk usage.
//!
//! If the filesystem of the workspaces has project quotas, the kernel refuses further writes. The
//! project id of a container is the first id of its user id range, which is unique on this host.
//! Otherwise the service measures with [`crate::Engine::disk_use`] and ends execs over the limit.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use hotcell_disk_usage::{Usage, measure};
use hotcell_domain::{ContainerId, Limits};
use hotcell_runtime::disk_quota::{self, ProjectUse};
use hotcell_runtime::{Enforcement, IdMap, open_files, probe};
use rustix::process::geteuid;

use super::create::EmbeddedInner;
use super::home::Record;
use super::tree::{NodeId, QUOTA_PROBE};
use crate::{DiskUse, EngineError};

/// Files that are counted beyond a container's limit, so that growth above the limit is seen.
const FILES_BEYOND: u64 = 10_000;

impl EmbeddedInner {
    /// What enforces the disk limit of new containers.
    pub(super) fn disk_enforcement(&self) -> Enforcement {
        if self.has_disk_quotas() {
            Enforcement::ProjectQuota
        } else {
            Enforcement::Watched
        }
    }

    /// Whether project quotas work here; probed once.
    pub(super) fn has_disk_quotas(&self) -> bool {
        *self.known_disk_quotas().get_or_init(|| {
            // Only root has unique project ids: its user id ranges.
            if !geteuid().is_root() {
                tracing::info!("disk limits are watched: only root can set project quotas");
                return false;
            }
            let name = format!("{}{}{QUOTA_PROBE}", probe::SCRATCH, std::process::id());
            match disk_quota::probe(&self.tree().path().join(name)) {
                Ok(()) => {
                    tracing::info!("disk limits are project quotas");
                    true
                }
                Err(error) => {
                    tracing::info!(
                        %error,
                        "disk limits are watched: the filesystem of the state directory has no project quotas"
                    );
                    false
                }
            }
        })
    }

    /// Sets the limit of a new workspace, if possible; returns what enforces it.
    pub(super) fn limit_disk(&self, node: &NodeId, ids: IdMap, limits: &Limits) -> Enforcement {
        if !self.has_disk_quotas() {
            return Enforcement::Watched;
        }
        let Some(project) = project(ids) else {
            return Enforcement::Watched;
        };
        let limit = ProjectUse {
            bytes: limits.disk.get(),
            files: limits.files(),
        };
        match disk_quota::limit(&self.tree().fs(node), project, limit) {
            Ok(()) => Enforcement::ProjectQuota,
            Err(error) => {
                tracing::warn!(
                    container.id = %node.container(), %error,
                    "could not set a project quota; the container's disk space is watched instead"
                );
                Enforcement::Watched
            }
        }
    }

    /// Sets the limit of an existing workspace again. After a restart of the host, the filesystem
    /// may be mounted without quotas.
    pub(super) fn limit_disk_again(&self, record: &Record) -> Enforcement {
        if record.enforced.disk != Enforcement::ProjectQuota {
            // Its files have no project id.
            return Enforcement::Watched;
        }
        let limits = record.spec.as_ref().map(crate::StoredSpec::limits);
        match (&record.node, limits) {
            (Some(node), Some(limits)) => self.limit_disk(node, record.ids, &limits),
            _ => Enforcement::Watched,
        }
    }

    /// Removes the limit of a container whose workspace is gone. If that fails, the limit is
    /// replaced when the id is used again.
    pub(super) fn lift_disk_limit(&self, record: Option<&Record>) {
        let Some(record) = record else { return };
        if record.enforced.disk == Enforcement::ProjectQuota
            && let Some(project) = project(record.ids)
            && let Err(error) = disk_quota::lift(self.tree().path(), project)
        {
            tracing::debug!(%error, project, "the quota of a removed container stays");
        }
    }

    /// See [`crate::Engine::disk_use`].
    pub(super) fn disk_use(&self, id: &ContainerId) -> Result<DiskUse, EngineError> {
        let Some(record) = self.home().read(id)? else {
            return Err(EngineError::NotFound { id: id.clone() });
        };
        let step = "measure the disk space of the container";
        // Read before the disk is measured: a process that starts meanwhile counts the next time.
        let is_busy = record.is_alive() && open_files::has_children(record.pid);
        let used = match record.enforced.disk {
            Enforcement::ProjectQuota => self.counted(&record, is_busy),
            Enforcement::Cgroup
            | Enforcement::Rlimit
            | Enforcement::Watched
            | Enforcement::None => self.walked(id, &record, is_busy),
        };
        used.map_err(EngineError::engine(step))
    }

    /// The usage that the kernel counts for the quota.
    fn counted(&self, record: &Record, is_busy: bool) -> io::Result<DiskUse> {
        let project = project(record.ids).ok_or(io::ErrorKind::NotFound)?;
        let used = disk_quota::used(self.tree().path(), project)?;
        Ok(DiskUse {
            bytes: used.bytes,
            files: used.files,
            is_beyond_measure: false,
            is_busy,
        })
    }

    fn walked(&self, id: &ContainerId, record: &Record, is_busy: bool) -> io::Result<DiskUse> {
        let files = self.workspace_of(id, record);
        let limits = record.spec.as_ref().map(crate::StoredSpec::limits);
        let files_max = limits.unwrap_or_default().files() + FILES_BEYOND;
        let device = fs::symlink_metadata(&files)?.dev();
        let Usage {
            bytes,
            files,
            is_too_deep,
            is_cut,
            unread,
        } = measure(&files, files_max)?;
        if unread > 0 {
            tracing::debug!(container.id = %id, unread, "directories of a container cannot be measured");
        }
        let deleted = if is_busy {
            open_files::deleted_bytes(record.pid, device)
        } else {
            0
        };
        Ok(DiskUse {
            bytes: bytes.saturating_add(deleted),
            files,
            is_beyond_measure: is_too_deep || is_cut,
            is_busy,
        })
    }

    fn workspace_of(&self, id: &ContainerId, record: &Record) -> PathBuf {
        match &record.node {
            Some(node) => self.tree().fs(node),
            None => self.home().directory(id).join("workspace"),
        }
    }
}

/// The project id of a container.
fn project(ids: IdMap) -> Option<u32> {
    match ids {
        IdMap::Range { base, .. } => Some(base),
        IdMap::Single | IdMap::Subordinate { .. } => None,
    }
}

//! Finds the files that snippets write to `/workspace/artifacts`.
//!
//! The agent lists the directory before and after a snippet runs; files that are new or have another
//! etag are the snippet's. Both listings are bounded. For an agent that is too old for that
//! ([`Feature::Cleanup`]) the directory is listed here.

use std::collections::HashMap;

use hotcell_agent_client::{Agent, Changes, Feature};

use crate::ServiceError;
use crate::container::LiveContainer;
use crate::file::{FileInfo, FileKind, FilePath, once};

/// Most files per listing.
const FILES_MAX: u32 = 1000;

pub(super) const DIRECTORY: &[u8] = b"artifacts";

/// Files that a snippet created or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Artifacts {
    /// Sorted by path, relative to `/workspace`. Only regular files: a link or a pipe is not an
    /// artifact.
    pub files: Vec<FileInfo>,
    /// Whether the directory has more files than were listed.
    pub has_more: bool,
}

/// What to compare with afterwards; nothing if the agent compares by itself.
pub(super) async fn before(container: &LiveContainer) -> Artifacts {
    match container.connection().get().await {
        Ok(connected) if connected.agent.has(Feature::Cleanup) => Artifacts::default(),
        Ok(_) | Err(_) => list(container).await,
    }
}

/// Lists the directory; empty if it does not exist.
pub(super) async fn list(container: &LiveContainer) -> Artifacts {
    let listed = async {
        let path = FilePath::parse(DIRECTORY)?;
        let list = async |agent: Agent| agent.list(DIRECTORY, true, None, FILES_MAX, None).await;
        once(container, &path, list).await
    };
    match listed.await {
        Ok(page) => {
            let mut files = page.entries;
            files.retain(|file| file.kind == FileKind::File);
            Artifacts {
                has_more: page.next_cursor.is_some(),
                files,
            }
        }
        Err(ServiceError::NotFound { .. }) => Artifacts::default(),
        Err(error) => {
            tracing::debug!(%error, "artifacts are not listed");
            Artifacts::default()
        }
    }
}

impl From<&Changes> for Artifacts {
    fn from(changes: &Changes) -> Self {
        Self {
            files: changes.files.clone(),
            has_more: changes.has_more,
        }
    }
}

impl Artifacts {
    /// The files that are not in an earlier listing, or have changed since.
    pub(super) fn since(mut self, before: &Self) -> Self {
        let known = before.files.iter();
        let known: HashMap<_, _> = known.map(|file| (&file.path, &file.etag)).collect();
        self.files
            .retain(|file| known.get(&file.path) != Some(&&file.etag));
        self
    }
}

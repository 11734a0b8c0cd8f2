//! Finds the files that snippets write to `/workspace/artifacts`.
//!
//! The directory is listed before and after a snippet runs; files that are new or have another etag
//! are the snippet's. Both listings are bounded.

use std::collections::HashMap;

use hotcell_agent_client::Agent;

use crate::ServiceError;
use crate::container::LiveContainer;
use crate::file::{FileInfo, FileKind, FilePath, once};

/// Most files per listing.
const FILES_MAX: u32 = 1000;

const DIRECTORY: &[u8] = b"artifacts";

/// Files that a snippet created or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Artifacts {
    /// Sorted by path, relative to `/workspace`. Only regular files: a link or a pipe is not an
    /// artifact.
    pub files: Vec<FileInfo>,
    /// Whether the directory has more files than were listed.
    pub has_more: bool,
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

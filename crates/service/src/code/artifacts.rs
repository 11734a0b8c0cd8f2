//! What snippets put into `/workspace/artifacts`.
//!
//! The directory is listed before and after a snippet runs, and what is new or has another etag
//! is the snippet's. Both listings are bounded, whatever is there.

use std::collections::HashMap;

use hotcell_agent_client::Agent;

use crate::ServiceError;
use crate::container::LiveContainer;
use crate::file::{FileInfo, FileKind, FilePath, once};

/// Files that are looked at.
const FILES_MAX: u32 = 1000;

const DIRECTORY: &[u8] = b"artifacts";

/// Files that a snippet made or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Artifacts {
    /// By path, below `/workspace`. Only plain files: a link or a pipe is nobody's picture.
    pub files: Vec<FileInfo>,
    /// Whether there are more files than are looked at.
    pub has_more: bool,
}

/// Lists what is there; nothing if there is no such directory.
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
    /// Those that are not in an earlier listing, or have changed since.
    pub(super) fn since(mut self, before: &Self) -> Self {
        let known = before.files.iter();
        let known: HashMap<_, _> = known.map(|file| (&file.path, &file.etag)).collect();
        self.files
            .retain(|file| known.get(&file.path) != Some(&&file.etag));
        self
    }
}

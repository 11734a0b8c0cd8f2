//! What an agent does after an exec, and what it finds then.

use hotcell_agent_api::bounds::LIST_ENTRIES_MAX;
use hotcell_agent_api::v1;

use crate::{AgentError, FileInfo, FileKind};

/// The end of a command that leaves nothing behind: the agent ends its background processes, then
/// removes a file and tells what changed in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleanup {
    /// The file to remove, relative to the root.
    pub remove: Option<Vec<u8>>,
    /// The directory whose new and changed regular files [`Exit::changes`](crate::Exit::changes) tells.
    pub report: Option<Vec<u8>>,
}

/// Files that are new or changed since an exec began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Regular files in path order, at most [`LIST_ENTRIES_MAX`].
    pub files: Vec<FileInfo>,
    /// Whether the directory holds more than the agent looked at.
    pub has_more: bool,
}

impl Changes {
    pub(crate) fn parse(changes: v1::Changes) -> Result<Self, AgentError> {
        if changes.files.len() > LIST_ENTRIES_MAX as usize {
            return Err(AgentError::Protocol("an exit tells of too many files"));
        }
        let files = changes.files.into_iter().map(FileInfo::parse);
        let files: Vec<_> = files.collect::<Result<_, _>>()?;
        if files.iter().any(|file| file.kind != FileKind::File) {
            return Err(AgentError::Protocol(
                "an exit tells of files that are not regular",
            ));
        }
        Ok(Self {
            files,
            has_more: changes.more,
        })
    }
}

impl From<Cleanup> for v1::Cleanup {
    fn from(cleanup: Cleanup) -> Self {
        Self {
            remove: cleanup.remove.unwrap_or_default().into(),
            report: cleanup.report.unwrap_or_default().into(),
        }
    }
}

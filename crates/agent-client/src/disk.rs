//! The disk usage of a container, and ending its processes when it is too much.

use hotcell_agent_api::v1::{DiskUseRequest, EndExecsRequest};

use crate::{Agent, AgentError, Feature};

/// The disk usage below the agent's root, as the agent reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Blocks, in bytes.
    pub bytes: u64,
    /// Names of files, directories and links.
    pub files: u64,
    /// Whether there is more than was counted.
    pub is_beyond_measure: bool,
    /// Whether any process of an exec runs, including background processes of ended execs.
    pub is_busy: bool,
}

impl Agent {
    /// Measures what is below the root, at most `files_max` names.
    pub async fn disk_use(&self, files_max: u64) -> Result<DiskUse, AgentError> {
        self.require(Feature::Disk)?;
        let request = DiskUseRequest { files_max };
        let reply = self.calls().disk_use(request).await?.into_inner();
        if reply.files > files_max {
            return Err(AgentError::Protocol("more files than were asked for"));
        }
        Ok(DiskUse {
            bytes: reply.bytes,
            files: reply.files,
            is_beyond_measure: reply.beyond_measure,
            is_busy: reply.busy,
        })
    }

    /// Kills every process of every exec, including ended ones. Returns when they have exited.
    pub async fn end_execs(&self) -> Result<(), AgentError> {
        self.require(Feature::Disk)?;
        self.calls().end_execs(EndExecsRequest {}).await?;
        Ok(())
    }
}

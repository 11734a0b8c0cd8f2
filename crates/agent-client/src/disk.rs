//! What a container takes of the disk, and ending what takes more.

use hotcell_agent_api::v1::{DiskUseRequest, EndExecsRequest};

use crate::{Agent, AgentError, Feature};

/// What is below the agent's root takes of the disk, as the agent tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskUse {
    /// Blocks, in bytes.
    pub bytes: u64,
    /// Names of files, directories and links.
    pub files: u64,
    /// There is more than was looked at.
    pub is_beyond_measure: bool,
    /// A process of an exec runs, perhaps of one that has ended.
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

    /// Kills every process of every exec, also of those that have ended. Returns when they are
    /// gone.
    pub async fn end_execs(&self) -> Result<(), AgentError> {
        self.require(Feature::Disk)?;
        self.calls().end_execs(EndExecsRequest {}).await?;
        Ok(())
    }
}

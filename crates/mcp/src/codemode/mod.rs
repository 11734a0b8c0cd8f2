//! Code mode's ports: what a run needs of the service and of the client that asked for it.

mod ask;
mod running;

use std::sync::Arc;

use async_trait::async_trait;
use hotcell_codemode::{
    CallEnd, CallStart, EarlierCall, EarlierOutcome, Failure, Journal, JournalledCall, Memory,
    MemoryRow, Run, SaveMemory,
};
use hotcell_domain::Caller;
use hotcell_service::{
    CallOutcome, CallRow, McpCall, McpCallEnd, MemorySave, RecordedCall, ScriptHost, ScriptStream,
    Service,
};

pub(crate) use running::Running;

use crate::tools::ToolError;

/// Whom a script talks to.
pub(crate) struct Host(pub(crate) Arc<Run>);

#[async_trait]
impl ScriptHost for Host {
    async fn serve(&self, stream: Box<dyn ScriptStream>) {
        self.0.serve(stream).await;
    }

    async fn until_overdue(&self) {
        self.0.until_overdue().await;
    }

    async fn until_told(&self) {
        self.0.until_told().await;
    }
}

/// Records and memories of a caller, kept by the service.
#[derive(Clone)]
pub(crate) struct Records {
    pub(crate) service: Service,
    pub(crate) caller: Caller,
}

struct Recorded(RecordedCall);

#[async_trait]
impl Journal for Records {
    async fn begin_call(&self, call: CallStart) -> Result<Box<dyn JournalledCall>, Failure> {
        let begun = self.service.begin_call(&self.caller, recorded(call)).await;
        let begun = begun.map_err(failure)?;
        Ok(Box::new(Recorded(begun)))
    }

    async fn refuse_call(&self, call: CallStart, why: &Failure) {
        let call = recorded(call);
        let why = why.message.clone();
        self.service.refuse_call(&self.caller, &call, why).await;
    }
}

#[async_trait]
impl JournalledCall for Recorded {
    async fn end(self: Box<Self>, end: &CallEnd) {
        let end = match end {
            CallEnd::Answered { result, bytes } => McpCallEnd::Answered {
                result: result.clone(),
                bytes: *bytes,
            },
            CallEnd::Failed(_) => McpCallEnd::Failed,
            CallEnd::Unknown(_) => McpCallEnd::Unknown,
        };
        self.0.end(end).await;
    }
}

#[async_trait]
impl Memory for Records {
    async fn save(&self, space: &'static str, row: SaveMemory) -> Result<u64, Failure> {
        let save = MemorySave {
            principal: self.caller.principal.clone(),
            space: space.to_owned(),
            key: row.key,
            value: row.value,
            metadata: row.metadata,
            if_version: row.if_version,
            unix_ms: 0,
        };
        let saved = self.service.save_memory(&self.caller, save).await;
        saved.map_err(failure)
    }

    async fn load(&self, space: &'static str, key: &str) -> Result<Option<MemoryRow>, Failure> {
        let found = self.service.memory(&self.caller, space, key).await;
        Ok(found.map_err(failure)?.map(remembered))
    }

    async fn delete(&self, space: &'static str, key: &str) -> Result<bool, Failure> {
        let deleted = self.service.delete_memory(&self.caller, space, key).await;
        deleted.map_err(failure)
    }

    async fn list(&self, space: &'static str, prefix: &str) -> Result<Vec<MemoryRow>, Failure> {
        let rows = self.service.memories(&self.caller, Some(space), prefix);
        let rows = rows.await.map_err(failure)?;
        Ok(rows.into_iter().map(remembered).collect())
    }
}

/// What a run that continues an earlier one gets of it. A call that was not done is made again.
pub(crate) fn earlier(rows: Vec<CallRow>) -> Vec<EarlierCall> {
    let one = |row: CallRow| {
        let outcome = match (row.outcome, row.result) {
            (Some(CallOutcome::Failed), _) => return None,
            (Some(CallOutcome::Answered), Some(result)) => EarlierOutcome::Answered(result),
            (Some(CallOutcome::Answered) | None, _) => EarlierOutcome::Unknown,
        };
        Some(EarlierCall {
            digest: row.digest,
            outcome,
        })
    };
    rows.into_iter().filter_map(one).collect()
}

fn recorded(call: CallStart) -> McpCall {
    McpCall {
        run: call.run,
        number: call.number,
        server: call.server,
        tool: call.tool,
        argument_names: call.argument_names,
        digest: call.digest,
        bytes: call.bytes,
    }
}

fn remembered(row: hotcell_service::MemoryRow) -> MemoryRow {
    MemoryRow {
        key: row.key,
        value: row.value,
        metadata: row.metadata,
        version: row.version,
        bytes: row.bytes,
        created_unix_ms: row.created_unix_ms,
        updated_unix_ms: row.updated_unix_ms,
    }
}

/// An error of the service as a script sees it.
fn failure(error: hotcell_service::ServiceError) -> Failure {
    let error = ToolError::from(error);
    Failure::new(error.code().as_str(), error.message())
}

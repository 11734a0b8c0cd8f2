//! Calls that scripts make of other MCP servers, and what they remember: on record, and per
//! principal. Who makes the calls is not known here.

use std::sync::Arc;

use hotcell_domain::{Caller, RunId};
use hotcell_store::{
    CallInsert, CallOutcome, CallRow, MemoryLimit, MemoryRow, MemorySave, MemorySaved,
};

use crate::operation::Operation;
use crate::{Action, Inner, Service, ServiceError};

/// Runs of a principal whose calls are kept.
const RUNS_MAX: u32 = 50;

/// What a principal may remember.
const MEMORY: MemoryLimit = MemoryLimit {
    entries_max: 1000,
    bytes_max: 64 << 20,
};

const KEY_CHARS_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 4 << 20;

/// A call that is about to be sent. None of its texts is a secret.
#[derive(Debug, Clone)]
pub struct McpCall {
    /// The run.
    pub run: RunId,
    /// Its number within the run.
    pub number: u64,
    /// The server.
    pub server: String,
    /// The tool.
    pub tool: String,
    /// The names of its arguments.
    pub argument_names: Vec<String>,
    /// Equal for equal calls.
    pub digest: String,
    /// Of its arguments.
    pub bytes: usize,
}

/// A call on record. Dropped, its outcome is unknown.
pub struct RecordedCall {
    operation: Operation,
    inner: Arc<Inner>,
    run: RunId,
    number: u64,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpCallEnd {
    /// With a result; its text, if it is kept.
    Answered {
        /// What the server answered.
        result: Option<String>,
        /// How long that was.
        bytes: usize,
    },
    /// Not done.
    Failed,
    /// Perhaps done.
    Unknown,
}

impl Service {
    /// Writes down a call. On `Err` it must not be sent.
    pub async fn begin_call(
        &self,
        caller: &Caller,
        call: McpCall,
    ) -> Result<RecordedCall, ServiceError> {
        let (mut operation, inner) = self.begin(caller, Action::McpCall, &call.target());
        call.note(&mut operation);
        let (run, number) = (call.run.clone(), call.number);
        let principal = caller.principal.clone();
        let environment = Arc::clone(&inner.environment);
        let noted = async move {
            let insert = CallInsert {
                run: call.run,
                number: call.number,
                principal,
                server: call.server,
                tool: call.tool,
                digest: call.digest,
                began_unix_ms: environment.clock.unix_ms(),
            };
            Ok(environment.store.begin_call(insert, RUNS_MAX).await?)
        };
        let ((), operation) = operation.open(noted).await?;
        Ok(RecordedCall {
            operation,
            inner,
            run,
            number,
        })
    }

    /// Writes down that a call was not sent.
    pub async fn refuse_call(&self, caller: &Caller, call: &McpCall, why: String) {
        let (mut operation, _) = self.begin(caller, Action::McpCall, &call.target());
        call.note(&mut operation);
        operation.fail(&ServiceError::Denied { reason: why });
        operation.recorded().await;
    }

    /// The calls of an earlier run.
    pub async fn calls_of(
        &self,
        caller: &Caller,
        run: &RunId,
    ) -> Result<Vec<CallRow>, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Memory, run);
        let find = async {
            let store = &inner.environment.store;
            let found = store
                .calls_of(caller.principal.clone(), run.clone())
                .await?;
            found.ok_or_else(|| ServiceError::NotFound {
                what: "run with calls",
                name: run.to_string(),
            })
        };
        operation.run(find).await
    }

    /// Remembers something; its new version.
    pub async fn save_memory(
        &self,
        caller: &Caller,
        mut save: MemorySave,
    ) -> Result<u64, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Memory, &save.space);
        let work = async {
            check_key(&save.key)?;
            let bytes = save.value.len() + save.metadata.as_ref().map_or(0, String::len);
            if bytes > VALUE_BYTES_MAX {
                let reason = format!(
                    "a memory may have {VALUE_BYTES_MAX} bytes as JSON, and this has {bytes}"
                );
                return Err(ServiceError::Invalid { reason });
            }
            inner.environment.has_room()?;
            save.principal = caller.principal.clone();
            save.unix_ms = inner.environment.clock.unix_ms();
            match inner.environment.store.save_memory(save, MEMORY).await? {
                MemorySaved::Version(version) => Ok(version),
                MemorySaved::Conflict(version) => Err(ServiceError::Conflict {
                    reason: format!("it has version {version} now"),
                    current_etag: None,
                }),
                MemorySaved::Full => Err(ServiceError::Exhausted {
                    reason: format!(
                        "you may keep {} memories of {} bytes together; delete some first",
                        MEMORY.entries_max, MEMORY.bytes_max
                    ),
                }),
            }
        };
        operation.run(work).await
    }

    /// Something that was remembered.
    pub async fn memory(
        &self,
        caller: &Caller,
        space: &str,
        key: &str,
    ) -> Result<Option<MemoryRow>, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Memory, &space);
        let principal = caller.principal.clone();
        let store = &inner.environment.store;
        let load = async { Ok(store.memory(principal, space.into(), key.into()).await?) };
        operation.run(load).await
    }

    /// All that a caller remembers, without values.
    pub async fn memories(
        &self,
        caller: &Caller,
        space: Option<&str>,
        prefix: &str,
    ) -> Result<Vec<MemoryRow>, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Memory, &space.unwrap_or("all"));
        let principal = caller.principal.clone();
        let store = &inner.environment.store;
        let space = space.map(str::to_owned);
        let list = async { Ok(store.memories(principal, space, prefix.into()).await?) };
        operation.run(list).await
    }

    /// Forgets something; whether it was there.
    pub async fn delete_memory(
        &self,
        caller: &Caller,
        space: &str,
        key: &str,
    ) -> Result<bool, ServiceError> {
        let (operation, inner) = self.begin(caller, Action::Memory, &space);
        let principal = caller.principal.clone();
        let store = &inner.environment.store;
        let delete = async {
            Ok(store
                .delete_memory(principal, space.into(), key.into())
                .await?)
        };
        operation.run(delete).await
    }
}

impl McpCall {
    fn target(&self) -> String {
        format!("{}.{}", self.server, self.tool)
    }

    /// What the ledger keeps of it: the names of its arguments, and no value.
    fn note(&self, operation: &mut Operation) {
        operation.count_bytes(self.bytes);
        operation.note(|arguments| {
            arguments.text("run", self.run.as_str());
            arguments.number("call", self.number);
            arguments.names("arguments", self.argument_names.iter().map(String::as_str));
        });
    }
}

impl RecordedCall {
    /// Writes down how it ended. What cannot be written is logged: the call has been made.
    pub async fn end(mut self, end: McpCallEnd) {
        let environment = &self.inner.environment;
        let now = environment.clock.unix_ms();
        let (outcome, result) = match end {
            McpCallEnd::Answered { result, bytes } => {
                self.operation.count_bytes(bytes);
                (CallOutcome::Answered, result)
            }
            McpCallEnd::Failed => (CallOutcome::Failed, None),
            McpCallEnd::Unknown => {
                let reason = "nobody knows whether it was done".to_owned();
                let unknown = ServiceError::Unavailable {
                    reason,
                    source: None,
                };
                self.operation.fail(&unknown);
                return self.operation.recorded().await;
            }
        };
        let noted = environment
            .store
            .end_call(self.run, self.number, now, outcome, result);
        let operation = self.operation;
        let recorded = async move {
            if outcome == CallOutcome::Answered {
                return operation.end().written().await;
            }
            let mut operation = operation;
            let reason = "the server did not do it".to_owned();
            operation.fail(&ServiceError::Unavailable {
                reason,
                source: None,
            });
            operation.recorded().await;
            Ok(())
        };
        let (noted, recorded) = tokio::join!(noted, recorded);
        if let Err(error) = noted {
            tracing::warn!(%error, "could not note the end of a call");
        }
        if let Err(error) = recorded {
            tracing::warn!(%error, "could not record a call");
        }
    }
}

fn check_key(key: &str) -> Result<(), ServiceError> {
    if key.is_empty() || key.chars().count() > KEY_CHARS_MAX {
        let reason = format!("a key has 1 to {KEY_CHARS_MAX} characters");
        return Err(ServiceError::Invalid { reason });
    }
    Ok(())
}

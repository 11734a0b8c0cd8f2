//! `hotcell/memory`: the request with which `hotcell memory` lists and removes what the caller's
//! scripts remember. It is no tool: scripts have functions for it, and models write scripts.

use hotcell_domain::{Caller, rfc3339};
use hotcell_service::MemoryRow;
use rmcp::ErrorData;
use rmcp::model::CustomResult;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Server;
use crate::tools::ToolError;

/// The name of the request. Its parameters are a [`MemoryRequest`].
pub const MEMORY_METHOD: &str = "hotcell/memory";

/// What to do with what the caller remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum MemoryRequest {
    /// Answers `entries`, without their values.
    List {
        /// How their names begin.
        prefix: String,
    },
    /// Answers whether there was one, as `removed`.
    Remove {
        /// What kind of thing it is.
        kind: MemoryKind,
        /// Its name.
        name: String,
    },
}

/// What scripts keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// A value, by `save_memory`.
    Memory,
    /// A function, by `save_tool`.
    Tool,
}

impl MemoryKind {
    /// The space in which it is kept.
    fn space(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Tool => "tool",
        }
    }
}

/// Answers for the caller's own memories; nobody reaches another's.
pub(crate) async fn answer(
    server: &Server,
    caller: &Caller,
    params: Option<Value>,
) -> Result<CustomResult, ErrorData> {
    let request = serde_json::from_value(params.unwrap_or_default());
    let request = request.map_err(|_| {
        let message = "`op` is `list` with `prefix`, or `remove` with `kind` and `name`";
        ErrorData::invalid_params(message, None)
    })?;
    let service = server.service();
    let answered = match request {
        MemoryRequest::List { prefix } => {
            let rows = service.memories(caller, None, &prefix).await;
            rows.map(|rows| json!({ "entries": rows.iter().map(shown).collect::<Vec<_>>() }))
        }
        MemoryRequest::Remove { kind, name } => {
            let removed = service.delete_memory(caller, kind.space(), &name).await;
            removed.map(|removed| json!({ "removed": removed }))
        }
    };
    let answered = answered.map_err(|error| ToolError::from(error).into_protocol())?;
    Ok(CustomResult(answered))
}

fn shown(row: &MemoryRow) -> Value {
    json!({
        "kind": row.space,
        "name": row.key,
        "version": row.version,
        "bytes": row.bytes,
        "created_at": rfc3339(row.created_unix_ms),
        "updated_at": rfc3339(row.updated_unix_ms),
    })
}

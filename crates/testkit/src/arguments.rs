//! Valid arguments for each tool, except for the ids they name. A new tool needs a line here: with it,
//! its arguments are fuzzed and it is shown that it knows nothing of other principals.

#![expect(missing_docs, reason = "what a test calls reads as what it does")]

use serde_json::{Value, json};

/// Well-formed ids that do not exist.
const NO_CONTAINER: &str = "c_00000000000000000000000000";
const NO_EXEC: &str = "e_00000000000000000000000000";

/// The ids to use in arguments.
#[derive(Clone)]
pub struct Handles {
    pub container: String,
    pub exec: String,
}

/// Valid arguments for a tool.
pub fn base(tool: &str, on: &Handles) -> Option<Value> {
    let (container, exec) = (&on.container, &on.exec);
    Some(match tool {
        "spawn" | "list_containers" | "list_execs" | "system_status" | "metrics" | "reconcile"
        | "garbage_collect" | "sandbox_list_files" => json!({}),
        "execute_code" => json!({"code": "true", "language": "sh"}),
        "run_python" => json!({"code": "1"}),
        "sandbox_read_file" => json!({"path": "d/file"}),
        "sandbox_write_file" => json!({"path": "w", "content": "x"}),
        "attach" => json!({"target": container, "client_name": "fuzz", "session_id": "1"}),
        "kill" | "fs_list" | "fs_export" | "fs_import" => json!({"container_id": container}),
        "exec_start" => json!({"container_id": container, "cmd": ["true"]}),
        "exec_poll" | "exec_cancel" => json!({"exec_id": exec}),
        "exec_input" => json!({"exec_id": exec, "data": "x"}),
        "fs_read" | "fs_stat" => json!({"container_id": container, "path": "d/file"}),
        "fs_delete" => json!({"container_id": container, "path": "no/such"}),
        "fs_write" => {
            json!({"container_id": container, "path": "w", "content": "x", "if_match_etag": "00"})
        }
        "fs_batch" => {
            json!({"container_id": container, "operations": [{"op": "read", "path": "no/such"}]})
        }
        _ => return None,
    })
}

/// Whether a field is an id: an invalid one is reported as not found.
pub fn is_handle(field: &str) -> bool {
    matches!(field, "container_id" | "exec_id" | "target")
}

/// Ids that do not exist.
pub fn nobody() -> Handles {
    Handles {
        container: NO_CONTAINER.to_owned(),
        exec: NO_EXEC.to_owned(),
    }
}

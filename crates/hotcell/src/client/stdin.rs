//! Forwards our stdin to an exec with `exec_input`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use super::connection::{Server, ToolFailure};

/// Bytes per call.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// Copies our stdin to the exec's until either ends.
pub(super) async fn pass_on(server: Server, exec_id: String) {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    loop {
        let read = stdin.read(&mut buffer).await.unwrap_or(0);
        let input = input(&exec_id, &buffer[..read]);
        match server.call::<Value>("exec_input", input).await {
            Ok(_) if read > 0 => {}
            Ok(_) => return,
            // The process has closed its stdin or has ended.
            Err(error) if ToolFailure::is(&error, "conflict") => return,
            Err(error) => {
                tracing::warn!(%error, "our stdin is not passed on any more");
                return;
            }
        }
    }
}

/// Text as it is, anything else as base64; empty data means end of file.
fn input(exec_id: &str, data: &[u8]) -> Value {
    match std::str::from_utf8(data) {
        Ok("") => json!({ "exec_id": exec_id, "eof": true }),
        Ok(text) => json!({ "exec_id": exec_id, "data": text }),
        Err(_) => json!({
            "exec_id": exec_id,
            "data": BASE64_STANDARD.encode(data),
            "encoding": "base64",
        }),
    }
}

//! Our stdin, passed on.

use bytes::Bytes;
use hotcell_agent_client::Agent;
use hotcell_agent_client::bounds::CHUNK_BYTES_MAX;
use tokio::io::AsyncReadExt;

/// Copies our stdin to the exec's until either ends.
pub(super) async fn pass_on(agent: Agent, exec_id: &'static str) {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    let mut offset = 0;
    loop {
        let read = stdin.read(&mut buffer).await.unwrap_or(0);
        let data = Bytes::copy_from_slice(&buffer[..read]);
        // A process that has closed its stdin is none of our business.
        match agent.input(exec_id, offset, data, read == 0).await {
            Ok(accepted) if read > 0 => offset = accepted,
            _ => return,
        }
    }
}

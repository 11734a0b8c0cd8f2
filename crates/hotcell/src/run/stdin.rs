//! Forwards our stdin.

use bytes::Bytes;
use hotcell_service::ExecStdin;
use tokio::io::AsyncReadExt;

/// Bytes per read.
const CHUNK_BYTES_MAX: usize = 32 << 10;

/// Copies our stdin to the exec's until either ends.
pub(super) async fn pass_on(exec: ExecStdin) {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    loop {
        let read = stdin.read(&mut buffer).await.unwrap_or(0);
        let is_end = read == 0;
        let sent = exec.write(Bytes::copy_from_slice(&buffer[..read]), is_end);
        // The process has closed its stdin or has ended.
        if sent.await.is_err() || is_end {
            return;
        }
    }
}

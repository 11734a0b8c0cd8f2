//! Connects a client on our stdio with the server that owns the state directory: forwards bytes in
//! both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

/// Bytes per read.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Forwards bytes until our client has closed its side and the server has answered everything, or
/// until the server is gone.
pub(super) async fn bridge(server: UnixStream) -> Result<()> {
    tracing::info!("another server has the state directory; this client is served by it");
    let (from_server, mut to_server) = server.into_split();
    let client_is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&client_is_gone);
    let asking = tokio::spawn(async move {
        let asked = pass(tokio::io::stdin(), &mut to_server).await;
        // Set before the server is told: it may close the connection at once.
        gone.store(true, Ordering::SeqCst);
        asked.and(to_server.shutdown().await)
    });
    let answered = pass(from_server, &mut tokio::io::stdout()).await;
    asking.abort();
    answered.context("pass answers on")?;
    ensure!(
        client_is_gone.load(Ordering::SeqCst),
        "the server that has the state directory ended; start this one again"
    );
    Ok(())
}

/// Copies until end of file, without buffering.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    to: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let mut buffer = vec![0; PIECE_BYTES_MAX];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..read]).await?;
        to.flush().await?;
    }
}

//! MCP on standard input and output, as desktop clients start a server. Stdout carries only the
//! protocol.

use std::io;
use std::sync::Arc;

use hotcell_domain::Caller;
use rmcp::ServerHandler;
use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::inflight::InFlight;
use super::limits::{REQUESTS_PER_CONNECTION_MAX, STDIO_UNREAD_MAX};
use super::lines::Lines;
use super::write_timeout::WriteTimeout;

/// Serves the client that started us, until it closes our stdin or we are told to stop.
pub async fn serve_stdio<H: ServerHandler>(handler: H, stop: CancellationToken) -> io::Result<()> {
    let (read, write) = stdio_pipes();
    let write = WriteTimeout::new(write, STDIO_UNREAD_MAX);
    let requests = Arc::new(Semaphore::new(REQUESTS_PER_CONNECTION_MAX));
    serve_lines(handler, None, (read, write), requests, stop).await
}

/// Serves one peer that sends one message per line.
///
/// If the transport does not know the `caller`, the handler's default applies.
pub(crate) async fn serve_lines<H, R, W>(
    handler: H,
    caller: Option<Caller>,
    (read, write): (R, W),
    requests: Arc<Semaphore>,
    stop: CancellationToken,
) -> io::Result<()>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let transport = InFlight::new(Lines::new(read, write), requests).of_caller(caller);
    // `rmcp` cancels the token that it is given when this peer is gone, so it gets one of its own.
    let stop = stop.child_token();
    match rmcp::service::serve_server_with_ct(handler, transport, stop).await {
        Ok(running) => {
            let quit = running.waiting().await.map_err(io::Error::other)?;
            tracing::debug!(?quit, "a client is gone");
            Ok(())
        }
        // The peer disconnected before the handshake.
        Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled) => {
            Ok(())
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

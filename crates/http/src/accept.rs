//! The HTTP listener: limits connections, and closes those that stall.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use hotcell_mcp::transport::WriteTimeout;

use crate::identify::PeerAddress;
use crate::limits::{HEAD_BYTES_MAX, HEADERS_MAX, HttpLimits};

/// The pause after a failed accept, for example when out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until told to stop, then lets requests finish for a while.
pub async fn serve_http(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    stop: CancellationToken,
) {
    let permits = Arc::new(Semaphore::new(limits.connections_max));
    let connections = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match (accepted, Arc::clone(&permits).try_acquire_owned()) {
            (Ok((stream, peer)), Ok(permit)) => {
                let (router, limits, stop) = (router.clone(), limits.clone(), stop.clone());
                connections.spawn(async move {
                    if let Err(error) = serve((stream, peer), router, &limits, stop).await {
                        tracing::debug!(%error, "a connection ended badly");
                    }
                    drop(permit);
                });
            }
            (Ok(_), Err(_)) => tracing::warn!("too many connections"),
            (Err(error), _) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn serve(
    (stream, peer): (TcpStream, SocketAddr),
    router: Router,
    limits: &HttpLimits,
    stop: CancellationToken,
) -> io::Result<()> {
    // Otherwise small answers would wait for the acknowledgement of earlier ones (Nagle).
    stream.set_nodelay(true)?;
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.write_idle_timeout));
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer));
        router.clone().oneshot(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(stream, service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let served = stop.run_until_cancelled(connection.as_mut()).await;
    if let Some(ended) = served {
        return ended.map_err(io::Error::other);
    }
    connection.as_mut().graceful_shutdown();
    match timeout(limits.stop_grace, connection).await {
        Ok(ended) => ended.map_err(io::Error::other),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

//! A server with the fixture behind it.

use std::sync::Arc;
use std::time::Duration;

use hotcell_http::{Anonymous, Guard, Http, HttpLimits, HttpSettings, MCP_PATH, serve_http};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fixture::Fixture;

/// The deadline of every wait; only a hanging test reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// A server on a port of its own. Dropping it stops it.
pub(crate) struct Served {
    pub(crate) port: u16,
    pub(crate) fixture: Fixture,
    pub(crate) http: Http,
    stop: CancellationToken,
    serving: Option<JoinHandle<()>>,
}

impl Served {
    /// Serves with default limits.
    pub(crate) async fn start() -> Self {
        Self::with(|_| ()).await
    }

    /// Serves with other limits.
    pub(crate) async fn with(change: impl FnOnce(&mut HttpLimits)) -> Self {
        let mut limits = HttpLimits::default();
        change(&mut limits);
        Self::of(limits, Guard::new(["box.example"]).unwrap()).await
    }

    /// Serves with this guard.
    pub(crate) async fn guarded(guard: Guard) -> Self {
        Self::of(HttpLimits::default(), guard).await
    }

    async fn of(limits: HttpLimits, guard: Guard) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let settings = HttpSettings {
            path: MCP_PATH.to_owned(),
            guard,
            limits: limits.clone(),
            identify: Arc::new(Anonymous::default()),
        };
        let stop = CancellationToken::new();
        let fixture = Fixture::new();
        let http = Http::new(fixture.clone(), axum::Router::new(), &settings, &stop);
        let serving = serve_http(listener, http.router.clone(), limits, stop.clone());
        let serving = Some(tokio::spawn(serving));
        Self {
            port,
            fixture,
            http,
            stop,
            serving,
        }
    }

    /// Stops it and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        let serving = self.serving.take().unwrap();
        tokio::time::timeout(PATIENCE, serving)
            .await
            .expect("it stops")
            .unwrap();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

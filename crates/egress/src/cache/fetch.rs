//! Fetches for the cache: requests that have nothing of a container in them.
//!
//! So connections may be used again for other containers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::key::Key;
use crate::HostName;
use crate::broker::Broker;
use crate::connection::ConnectError;
use crate::http::{Body, Http1, Scheme};

/// How long a host may take to begin its answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections that wait for their next request, per host, and for how long.
const IDLE_MAX: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(15);

const USER_AGENT: &str = concat!("hotcell/", env!("CARGO_PKG_VERSION"));

/// Why a host gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the host did not answer: {0}")]
    Http(#[from] hyper::Error),
    #[error("the host took too long")]
    Timeout,
}

type Host = (Scheme, HostName, u16);

/// Connections that wait for their next request.
#[derive(Default)]
pub(crate) struct Fetcher {
    idle: Mutex<HashMap<Host, Vec<(Instant, Http1)>>>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Asks a host. The connection comes with the answer and goes back with `put_back`.
    pub(crate) async fn fetch(
        &self,
        broker: &Broker,
        key: &Key,
        validators: &HeaderMap,
    ) -> Result<(Response<Incoming>, Http1), FetchError> {
        // One that waited may have been closed by the host in this moment.
        if let Some(mut idle) = self.take(key)
            && let Ok(response) = ask(&mut idle, key, validators).await
        {
            return Ok((response, idle));
        }
        let mut fresh = broker.http1(&key.host, key.port, key.scheme).await?;
        let response = ask(&mut fresh, key, validators).await?;
        Ok((response, fresh))
    }

    fn take(&self, key: &Key) -> Option<Http1> {
        let mut idle = self.idle();
        idle.retain(|_, waiting| {
            waiting.retain(|(since, http1)| since.elapsed() < IDLE_TIME && !http1.is_closed());
            !waiting.is_empty()
        });
        let waiting = idle.get_mut(&(key.scheme, key.host.clone(), key.port))?;
        waiting.pop().map(|(_, http1)| http1)
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn put_back(&self, key: &Key, http1: Http1) {
        let mut idle = self.idle();
        let host = (key.scheme, key.host.clone(), key.port);
        let waiting = idle.entry(host).or_default();
        if waiting.len() < IDLE_MAX && !http1.is_closed() {
            waiting.push((Instant::now(), http1));
        }
    }

    fn idle(&self) -> MutexGuard<'_, HashMap<Host, Vec<(Instant, Http1)>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(
    http1: &mut Http1,
    key: &Key,
    validators: &HeaderMap,
) -> Result<Response<Incoming>, FetchError> {
    let sending = http1.send(request(key, validators));
    let sent = timeout(HEAD_TIMEOUT, sending).await;
    Ok(sent.map_err(|_| FetchError::Timeout)??)
}

fn request(key: &Key, validators: &HeaderMap) -> Request<Body> {
    let body = Empty::<Bytes>::new().map_err(|never| match never {});
    let mut request = Request::new(body.boxed());
    *request.method_mut() = Method::GET;
    if let Ok(path) = key.path.parse() {
        *request.uri_mut() = path;
    }
    let host = if key.port == key.scheme.port() {
        key.host.to_string()
    } else {
        format!("{}:{}", key.host, key.port)
    };
    let encoding = if key.is_gzip { "gzip" } else { "identity" };
    let headers = request.headers_mut();
    headers.extend(validators.clone());
    if let Ok(host) = host.parse() {
        headers.insert(header::HOST, host);
    }
    let accept = HeaderValue::from_static(key.accept.header());
    headers.insert(header::ACCEPT, accept);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    request
}

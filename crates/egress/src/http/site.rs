//! Decides about each request of a connection, and passes it on.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::uri::Authority;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::exchange::{Exchange, Stalled, TimedBody};
use super::headers::{readdress, remove_hop_by_hop};
use super::outside::{Outside, OutsideError};
use super::{Body, boxed, page};
use crate::HostName;
use crate::cache::Key;
use crate::connection::{ConnectError, Connection};
use crate::denial::Reason;
use crate::meter::MeteredBody;
use crate::policy::Grant;
use crate::resolve::DialError;
use crate::secret::{Scrub, ScrubbedBody, Secret, SecretError};

/// What a connection was opened for.
pub(crate) struct Site {
    pub(crate) connection: Arc<Connection>,
    pub(crate) scheme: Scheme,
    upgraded: Mutex<Option<Upgraded>>,
}

/// An upgraded connection, carried until both sides have ended.
type Upgraded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How the host is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub(crate) fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Why a request has no answer of the host.
#[derive(Debug, thiserror::Error)]
enum ForwardError {
    #[error("the host did not answer: {0}")]
    Outside(#[from] OutsideError),
    #[error(
        "the secret `{name}` could not be read; ask the operator to run `hotcell secret test {name}`"
    )]
    Secret { name: String, source: SecretError },
    #[error("the body of the request stopped: {0}")]
    Stalled(Stalled),
    #[error("the host compressed its answer, so that the secret could not be kept out of it")]
    Encoding,
}

impl Site {
    pub(crate) fn new(connection: Arc<Connection>, scheme: Scheme) -> Arc<Self> {
        Arc::new(Self {
            connection,
            scheme,
            upgraded: Mutex::default(),
        })
    }

    pub(super) fn take_upgraded(&self) -> Option<Upgraded> {
        let mut upgraded = self.upgraded.lock().unwrap_or_else(PoisonError::into_inner);
        upgraded.take()
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        outside: &Outside,
    ) -> Response<Body> {
        if !self.is_for_us(&request) {
            return misdirected();
        }
        let grant = match self.check(&request) {
            Ok(grant) => grant,
            Err(reason) => return self.refuse(reason),
        };
        if let Some(response) = self.cached(&request, &grant).await {
            return response;
        }
        match self.forward(request, &grant, outside).await {
            Ok(response) => response,
            Err(ForwardError::Outside(OutsideError::Connect(ConnectError::Dial(
                DialError::Private,
            )))) => self.refuse(Reason::Private),
            Err(error @ ForwardError::Stalled(_)) => self.timed_out(&error),
            Err(error) => self.bad_gateway(&error),
        }
    }

    /// An answer from the cache, or through it. Its bytes count like those of the host.
    async fn cached(&self, request: &Request<Incoming>, grant: &Grant) -> Option<Response<Body>> {
        let Connection {
            guest, name, port, ..
        } = &*self.connection;
        if !grant.cache {
            return None;
        }
        let key = Key::of(self.scheme, name, *port, request)?;
        let broker = &guest.broker;
        let response = broker.cache.answer(broker, &key, request).await?;
        let (meter, traffic) = (Arc::clone(&guest.meter), &self.connection.traffic);
        let metered = |body| MeteredBody::new(body, meter, Arc::clone(traffic)).boxed();
        Some(response.map(metered))
    }

    fn refuse(&self, reason: Reason) -> Response<Body> {
        let denial = self.connection.denial(reason);
        self.connection.guest.record(&denial);
        boxed(denial.page())
    }

    fn bad_gateway(&self, error: &ForwardError) -> Response<Body> {
        let name = &self.connection.name;
        if let ForwardError::Secret {
            name: secret,
            source,
        } = error
        {
            tracing::warn!(host = %name, secret, error = %source, "could not read a secret");
        } else {
            tracing::debug!(host = %name, %error, "a host did not answer a request");
        }
        boxed(page(
            StatusCode::BAD_GATEWAY,
            &format!("egress to {name}: {error}"),
        ))
    }

    /// What is left of the request would be read as the next one.
    fn timed_out(&self, error: &ForwardError) -> Response<Body> {
        let text = format!("egress to {}: {error}", self.connection.name);
        closing(page(StatusCode::REQUEST_TIMEOUT, &text))
    }

    /// Whether each place that names a host names this one.
    fn is_for_us(&self, request: &Request<Incoming>) -> bool {
        let hosts: Vec<_> = request.headers().get_all(header::HOST).iter().collect();
        let is_h2 = request.version() == Version::HTTP_2;
        let count_is_right = if is_h2 {
            hosts.len() <= 1
        } else {
            hosts.len() == 1
        };
        let named = hosts.iter().map(|host| host.to_str().ok()?.parse().ok());
        let in_target = request.uri().authority().cloned().map(Some);
        let mut all = named.chain(in_target).peekable();
        count_is_right
            && all.peek().is_some()
            && all.all(|authority| authority.is_some_and(|authority| self.is_ours(&authority)))
    }

    fn is_ours(&self, authority: &Authority) -> bool {
        let port = authority.port_u16().unwrap_or(self.scheme.port());
        !authority.as_str().contains('@')
            && port == self.connection.port
            && HostName::parse(authority.host()).is_ok_and(|name| name == self.connection.name)
    }

    /// Whether the profile allows the request. A policy that has changed meanwhile decides, and not
    /// the one of the connection's start.
    fn check(&self, request: &Request<Incoming>) -> Result<Arc<Grant>, Reason> {
        let method = request.method();
        if matches!(*method, Method::CONNECT | Method::TRACE) {
            return Err(Reason::Method(method.to_string()));
        }
        let grant = self.connection.decide().map_err(Reason::Policy)?;
        if grant.secret.is_some() && self.scheme != Scheme::Https {
            return Err(Reason::NoServerName);
        }
        if let Some(protocol) = request.headers().get(header::UPGRADE) {
            let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
            // What follows an upgrade is neither checked nor scrubbed.
            if !is_websocket || grant.access.needs_requests() || grant.secret.is_some() {
                return Err(Reason::Method("Upgrade".to_owned()));
            }
        }
        let (path, query) = (request.uri().path(), request.uri().query());
        let has_body = !request.body().is_end_stream();
        if grant.access.allows(method.as_str(), path, query, has_body) {
            return Ok(grant);
        }
        Err(Reason::Request {
            method: method.to_string(),
            path: path.to_owned(),
        })
    }

    async fn forward(
        &self,
        mut request: Request<Incoming>,
        grant: &Grant,
        outside: &Outside,
    ) -> Result<Response<Body>, ForwardError> {
        let upgrade = request.headers().get(header::UPGRADE).cloned();
        let inside = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let scheme = self.scheme.as_str();
        readdress(&mut request, scheme, &self.authority(), outside.is_h2());
        if let Some(protocol) = upgrade {
            let headers = request.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, protocol);
        }
        let scrub = match &grant.secret {
            Some(secret) => Some(set_secret(&mut request, secret).await?),
            None => None,
        };
        let exchange = Exchange::new(&self.connection.name);
        let request = request.map(|body| TimedBody::new(body, &exchange).boxed());
        let sending = outside.send(request, &self.connection, self.scheme);
        let mut response = match sending.await {
            Ok(response) => response,
            Err(OutsideError::Http(_)) if exchange.is_stalled() => {
                return Err(ForwardError::Stalled(Stalled));
            }
            Err(error) => return Err(error.into()),
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(inside) = inside {
                let carried = join(inside, hyper::upgrade::on(&mut response));
                let mut upgraded = self.upgraded.lock().unwrap_or_else(PoisonError::into_inner);
                *upgraded = Some(Box::pin(carried));
            }
            return Ok(response.map(|body| body.map_err(Into::into).boxed()));
        }
        remove_hop_by_hop(response.headers_mut());
        let response = response.map(|body| TimedBody::new(body, &exchange));
        match scrub {
            Some(scrub) => scrubbed(response, scrub),
            None => Ok(response.map(BodyExt::boxed)),
        }
    }

    /// The host as requests name it.
    fn authority(&self) -> String {
        let Connection { name, port, .. } = &*self.connection;
        if *port == self.scheme.port() {
            name.to_string()
        } else {
            format!("{name}:{port}")
        }
    }
}

/// Sets a secret in place of the container's own header of that name. Whatever would keep us from
/// reading the answer is asked away: compression, and ranges, with which a container could have the
/// value piece by piece.
async fn set_secret(
    request: &mut Request<Incoming>,
    secret: &Secret,
) -> Result<Arc<Scrub>, ForwardError> {
    let prepared = secret.prepare().await;
    let prepared = prepared.map_err(|source| ForwardError::Secret {
        name: secret.name().to_string(),
        source,
    })?;
    let headers = request.headers_mut();
    headers.insert(secret.header().name().clone(), prepared.value);
    let identity = HeaderValue::from_static("identity");
    headers.insert(header::ACCEPT_ENCODING, identity);
    headers.remove(header::RANGE);
    headers.remove(header::IF_RANGE);
    Ok(prepared.scrub)
}

fn scrubbed(
    mut response: Response<TimedBody<Incoming>>,
    scrub: Arc<Scrub>,
) -> Result<Response<Body>, ForwardError> {
    let mut encodings = response.headers().get_all(header::CONTENT_ENCODING).iter();
    if !encodings.all(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(ForwardError::Encoding);
    }
    scrub.headers(response.headers_mut());
    // The host chose the words of the status line, too.
    response
        .extensions_mut()
        .remove::<hyper::ext::ReasonPhrase>();
    Ok(response.map(|body| ScrubbedBody::new(body, scrub).boxed()))
}

/// Carries an upgraded connection until both sides have ended.
async fn join(inside: hyper::upgrade::OnUpgrade, outside: hyper::upgrade::OnUpgrade) {
    if let (Ok(inside), Ok(outside)) = (inside.await, outside.await) {
        let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
        let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
    }
}

/// The request is for another host than the connection.
fn misdirected() -> Response<Body> {
    let text = "this connection was opened for another host";
    closing(page(StatusCode::MISDIRECTED_REQUEST, text))
}

/// An answer after which the connection ends.
fn closing(mut response: Response<Full<Bytes>>) -> Response<Body> {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    boxed(response)
}

//! The second door: one port inside ([`PROXY`](crate::PROXY)) that is an HTTP proxy and a SOCKS5 proxy.
//!
//! It is for programs that want a proxy, and for those that trust no loopback address. Whatever comes
//! through becomes a connection to a name, and goes the way of all others from there: a refused
//! host answers inside the tunnel, because programs retry a refused `CONNECT` for seconds.

mod pipe;
mod socks;
mod target;

use std::convert::Infallible;
use std::sync::Arc;

use ::http::uri::Scheme;
use ::http::{Method, Request, Response, StatusCode, header};
use bytes::BytesMut;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Mutex;
use tokio::time::timeout;

pub(crate) use self::pipe::Pipes;
pub(crate) use self::socks::{SocksError, read_greeting, read_request};
pub(crate) use self::target::ProxyTarget;

use self::target::TargetError;
use crate::denial::{Denial, Reason};
use crate::guest::{Guest, REFUSAL_PORTS, Target};
use crate::http::{self, Body};
use crate::policy::Refusal;
use crate::serve::{FIRST_BYTES_TIMEOUT, Prefixed, ServeError, Stream};

impl Guest {
    /// Serves a connection to the proxy port until it ends. Dropping the future ends it.
    pub async fn serve_proxy(self: &Arc<Self>, stream: impl Stream) {
        if let Err(error) = self.serve_either(stream).await {
            tracing::debug!(%error, "a proxy connection ended early");
        }
    }

    async fn serve_either(self: &Arc<Self>, mut stream: impl Stream) -> Result<(), ServeError> {
        let first = timeout(FIRST_BYTES_TIMEOUT, stream.read_u8()).await??;
        let stream = Prefixed::new(BytesMut::from(&[first][..]), stream);
        if first == socks::VERSION {
            return self.serve_socks(stream).await;
        }
        self.serve_http(stream).await
    }

    async fn serve_socks(self: &Arc<Self>, mut stream: impl Stream) -> Result<(), ServeError> {
        let greeting = timeout(FIRST_BYTES_TIMEOUT, read_greeting(&mut stream)).await?;
        if greeting.is_err() {
            stream.write_all(&socks::NO_METHOD).await?;
            return Ok(());
        }
        stream.write_all(&socks::NO_AUTHENTICATION).await?;
        let asked = timeout(FIRST_BYTES_TIMEOUT, read_request(&mut stream)).await?;
        let target = match asked {
            Ok(target) => target,
            Err(error) => {
                if let SocksError::Target(host, port, reason) = &error {
                    self.record(&self.target_denial(host, *port, *reason));
                }
                stream.write_all(&error.reply()).await?;
                return Ok(());
            }
        };
        if let Some(denial) = self.refused_at_the_door(&target) {
            self.record(&denial);
            stream.write_all(&socks::NOT_ALLOWED).await?;
            return Ok(());
        }
        stream.write_all(&socks::SUCCEEDED).await?;
        self.serve(Target::Name(target.name, target.port), stream)
            .await;
        Ok(())
    }

    /// Where nothing inside the tunnel could tell why a connection is refused, the door does.
    fn refused_at_the_door(&self, target: &ProxyTarget) -> Option<Denial> {
        if REFUSAL_PORTS.contains(&target.port) {
            return None;
        }
        let profile = self.broker.profile(&self.profile);
        let decision = profile.map_or(Err(Refusal::NotListed), |profile| {
            profile.decide(&target.name, target.port)
        });
        let refusal = decision.err()?;
        let reason = Reason::Policy(refusal);
        Some(self.denial(target.name.as_str(), target.port, reason))
    }

    fn target_denial(&self, host: &str, port: u16, error: TargetError) -> Denial {
        self.denial(host, port, Reason::Target(error.to_string()))
    }

    async fn serve_http(self: &Arc<Self>, stream: impl Stream) -> Result<(), ServeError> {
        let door = Arc::new(HttpDoor {
            guest: Arc::clone(self),
            tunnel: Mutex::default(),
            pipes: Pipes::new(self),
        });
        let own = Arc::clone(&door);
        let answer = service_fn(move |request| {
            let door = Arc::clone(&own);
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let served = http::http1_server()
            .serve_connection(TokioIo::new(stream), answer)
            .with_upgrades()
            .await;
        served?;
        let tunnel = door.tunnel.lock().await.take();
        if let Some((target, upgrade)) = tunnel {
            let stream = TokioIo::new(upgrade.await?);
            self.serve(Target::Name(target.name, target.port), stream)
                .await;
        }
        Ok(())
    }
}

/// One connection of a program that uses the HTTP proxy.
struct HttpDoor {
    guest: Arc<Guest>,
    /// What `CONNECT` asked for, carried once its answer is written.
    tunnel: Mutex<Option<(ProxyTarget, hyper::upgrade::OnUpgrade)>>,
    pipes: Pipes,
}

impl HttpDoor {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return self.connect(request).await;
        }
        let target = match plain_target(&request) {
            Ok(target) => target,
            Err(error) => return self.refuse(&request, error),
        };
        self.pipes.answer(request, target).await
    }

    async fn connect(&self, mut request: Request<Incoming>) -> Response<Body> {
        let authority = request.uri().authority().cloned();
        let authority = authority.map(|authority| authority.to_string());
        let parsed = ProxyTarget::parse(authority.as_deref().unwrap_or_default());
        let target = match parsed {
            Ok(target) => target,
            Err(error) => return self.refuse(&request, error),
        };
        if let Some(denial) = self.guest.refused_at_the_door(&target) {
            self.guest.record(&denial);
            return http::boxed(denial.page());
        }
        let upgrade = hyper::upgrade::on(&mut request);
        *self.tunnel.lock().await = Some((target, upgrade));
        http::boxed(Response::default())
    }

    /// Refuses what names no host. An address is a denial, because a policy could never allow it.
    fn refuse(&self, request: &Request<Incoming>, error: TargetError) -> Response<Body> {
        let authority = request.uri().authority();
        match (error, authority) {
            (error @ TargetError::Name(_), Some(authority)) => {
                let port = authority.port_u16().unwrap_or(80);
                let denial = self.guest.target_denial(authority.host(), port, error);
                self.guest.record(&denial);
                http::boxed(denial.page())
            }
            (error, _) => http::boxed(http::page(StatusCode::BAD_REQUEST, &error.to_string())),
        }
    }
}

/// The host of a request in absolute form, which its `Host` has to name, too.
fn plain_target(request: &Request<Incoming>) -> Result<ProxyTarget, TargetError> {
    let uri = request.uri();
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err(TargetError::Form);
    };
    if *scheme != Scheme::HTTP {
        return Err(TargetError::Form);
    }
    let target = ProxyTarget::parse_with_default(authority.as_str(), 80)?;
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let named = match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().map_err(|_| TargetError::Host)?,
        _ => return Err(TargetError::Host),
    };
    let named = ProxyTarget::parse_with_default(named, 80);
    if named.ok().as_ref() != Some(&target) {
        return Err(TargetError::Host);
    }
    Ok(target)
}

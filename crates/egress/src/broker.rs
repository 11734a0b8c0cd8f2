//! What all containers of a server share: policy, certificates, resolver, connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::address::AddressRules;
use crate::ask::QUESTIONS_MAX;
use crate::authority::{Authority, AuthorityError};
use crate::cache::Cache;
use crate::connection::ConnectError;
use crate::http::{Http1, Scheme};
use crate::policy::{Policy, Profile, ProfileName};
use crate::resolve::{self, DialError, Dialler};
use crate::serve::{FIRST_BYTES_TIMEOUT, HTTP_1_1, Stream};
use crate::{HostName, own_addresses};

/// Connections of all containers together.
pub const CONNECTIONS_MAX: usize = 512;

/// Where downloads are kept, in the state directory.
const CACHE_DIRECTORY: &str = "cache";

/// How long the list of the host's own addresses is used.
const OWN_ADDRESSES_TIME: Duration = Duration::from_secs(30);

/// Decides, resolves and dials for every container of a server.
#[derive(Debug)]
pub struct Broker {
    policy: watch::Sender<Arc<Policy>>,
    pub(crate) authority: Authority,
    pub(crate) dialler: Dialler,
    pub(crate) connections: Arc<Semaphore>,
    pub(crate) questions: Arc<Semaphore>,
    own: Mutex<Option<(Instant, Vec<IpAddr>)>>,
    /// Loaded when the first connection is opened: reading the host's roots takes milliseconds.
    client_tls: OnceLock<Arc<ClientConfig>>,
    pub(crate) cache: Arc<Cache>,
}

impl Broker {
    /// A broker whose authority and downloads live in `directory`.
    pub fn open(policy: Policy, directory: &Path) -> Result<Self, AuthorityError> {
        Ok(Self {
            policy: watch::Sender::new(Arc::new(policy)),
            authority: Authority::open(directory, SystemTime::now())?,
            dialler: Dialler::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            own: Mutex::default(),
            client_tls: OnceLock::new(),
            cache: Arc::new(Cache::new(directory.join(CACHE_DIRECTORY))),
        })
    }

    /// Trusts these roots towards hosts, instead of the host's own.
    #[must_use]
    pub fn with_roots(mut self, roots: RootCertStore) -> Self {
        self.client_tls = OnceLock::from(Arc::new(client_tls(roots)));
        self
    }

    /// The policy as it is now.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.borrow())
    }

    /// Replaces the policy. New connections and requests are decided by it, and open connections
    /// that it refuses are closed.
    pub fn replace_policy(&self, policy: Policy) {
        self.cache.set_bytes_max(policy.cache_bytes_max());
        self.policy.send_replace(Arc::new(policy));
    }

    /// Each policy that replaces the present one.
    pub(crate) fn policies(&self) -> watch::Receiver<Arc<Policy>> {
        self.policy.subscribe()
    }

    /// The certificate that containers trust, as PEM.
    pub fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// Makes the certificate of a name, which its first connection would wait for.
    pub fn certify(&self, name: &HostName) -> Result<(), AuthorityError> {
        self.authority.certify(name).map(drop)
    }

    pub(crate) fn profile(&self, name: &ProfileName) -> Option<Arc<Profile>> {
        self.policy().profile(name).cloned()
    }

    /// Whether a name that is allowed can be reached at all.
    pub(crate) async fn check_name(&self, name: &HostName) -> Result<(), DialError> {
        let policy = self.policy();
        if policy.is_fixed(name) {
            return Ok(());
        }
        let rules = self.address_rules(&policy);
        self.dialler.resolve(name, &rules).await.map(drop)
    }

    /// Connects to a name. The addresses that were checked are those that are dialled.
    pub(crate) async fn dial(&self, name: &HostName, port: u16) -> Result<TcpStream, DialError> {
        let policy = self.policy();
        if let Some(address) = policy.fixed_address(name, port) {
            return dial_fixed(address).await;
        }
        let rules = self.address_rules(&policy);
        self.dialler.dial(name, port, &rules).await
    }

    /// Connects for HTTP/1.1, over TLS that is verified.
    pub(crate) async fn http1(
        &self,
        name: &HostName,
        port: u16,
        scheme: Scheme,
    ) -> Result<Http1, ConnectError> {
        let outside = self.dial(name, port).await?;
        self.http1_over(outside, name, scheme).await
    }

    /// The same over a connection that is there.
    pub(crate) async fn http1_over(
        &self,
        outside: impl Stream,
        name: &HostName,
        scheme: Scheme,
    ) -> Result<Http1, ConnectError> {
        match scheme {
            Scheme::Http => Ok(Http1::open(outside).await?),
            Scheme::Https => {
                let connecting = self.connect_tls(outside, name, vec![HTTP_1_1.to_vec()]);
                let outside = connecting.await.map_err(ConnectError::Tls)?;
                Ok(Http1::open(outside).await?)
            }
        }
    }

    /// Begins TLS towards a host, with one of these protocols.
    pub(crate) async fn connect_tls<S: Stream>(
        &self,
        outside: S,
        name: &HostName,
        protocols: Vec<Vec<u8>>,
    ) -> io::Result<TlsStream<S>> {
        let mut tls = (*self.client_tls()).clone();
        tls.alpn_protocols = protocols;
        let server_name = name.as_str().to_owned().try_into();
        let server_name = server_name.map_err(io::Error::other)?;
        let connecting = TlsConnector::from(Arc::new(tls)).connect(server_name, outside);
        timeout(FIRST_BYTES_TIMEOUT, connecting).await?
    }

    fn address_rules(&self, policy: &Policy) -> AddressRules {
        AddressRules {
            private: policy.private().to_vec(),
            own: self.own_addresses(),
        }
    }

    fn own_addresses(&self) -> Vec<IpAddr> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        match &*own {
            Some((since, addresses)) if since.elapsed() < OWN_ADDRESSES_TIME => addresses.clone(),
            _ => {
                let addresses = own_addresses::read();
                *own = Some((Instant::now(), addresses.clone()));
                addresses
            }
        }
    }

    /// TLS towards hosts, verified against the host's roots.
    fn client_tls(&self) -> Arc<ClientConfig> {
        let load = || Arc::new(client_tls(native_roots()));
        Arc::clone(self.client_tls.get_or_init(load))
    }
}

async fn dial_fixed(address: SocketAddr) -> Result<TcpStream, DialError> {
    let dialled = resolve::connect(address).await;
    dialled.map_err(|_| DialError::Unreachable)
}

fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "could not read a root certificate of this host");
    }
    roots.add_parsable_certificates(found.certs);
    roots
}

fn client_tls(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    #[expect(clippy::expect_used, reason = "ring supports the default versions")]
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("the provider has the default protocol versions");
    builder.with_root_certificates(roots).with_no_client_auth()
}

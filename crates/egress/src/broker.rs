//! What all containers of a server share: policy, certificates, resolver, connections.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use crate::address::AddressRules;
use crate::authority::{Authority, AuthorityError};
use crate::policy::{Policy, Profile, ProfileName};
use crate::resolve::{self, DialError, Dialler};
use crate::{HostName, own_addresses};

/// Connections of all containers together.
pub const CONNECTIONS_MAX: usize = 512;

/// How long the list of the host's own addresses is used.
const OWN_ADDRESSES_TIME: Duration = Duration::from_secs(30);

/// Decides, resolves and dials for every container of a server.
#[derive(Debug)]
pub struct Broker {
    policy: watch::Sender<Arc<Policy>>,
    pub(crate) authority: Authority,
    dialler: Dialler,
    pub(crate) connections: Arc<Semaphore>,
    own: Mutex<Option<(Instant, Vec<IpAddr>)>>,
    /// Loaded when the first connection is opened: reading the host's roots takes milliseconds.
    client_tls: OnceLock<Arc<ClientConfig>>,
}

impl Broker {
    /// A broker whose authority lives in `directory`.
    pub fn open(policy: Policy, directory: &Path) -> Result<Self, AuthorityError> {
        Ok(Self {
            policy: watch::Sender::new(Arc::new(policy)),
            authority: Authority::open(directory, SystemTime::now())?,
            dialler: Dialler::default(),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            own: Mutex::default(),
            client_tls: OnceLock::new(),
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
    pub(crate) fn client_tls(&self) -> Arc<ClientConfig> {
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

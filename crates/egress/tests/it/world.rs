//! A host with TLS, a broker, and a container's side of it.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use hotcell_egress::{
    Broker, Denial, FixedAddress, Guest, HostName, Listeners, Observer, Opened, Policy,
    ProfileName, ProfileSettings, Question, Settings, Target,
};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

/// What a host answers.
pub(crate) type Handler = Arc<dyn Fn(Request<Bytes>) -> Response<Full<Bytes>> + Send + Sync>;

/// A host that answers with what it was asked, or as a test wants.
pub(crate) struct Origin {
    pub(crate) tls: SocketAddr,
    pub(crate) plain: SocketAddr,
    pub(crate) roots: RootCertStore,
}

impl Origin {
    pub(crate) async fn start(name: &str) -> Self {
        Self::answering(name, echo).await
    }

    pub(crate) async fn answering(
        name: &str,
        handler: impl Fn(Request<Bytes>) -> Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let handler: Handler = Arc::new(handler);
        let answer = move |request: Request<Incoming>| {
            let handler = Arc::clone(&handler);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok(handler(Request::from_parts(head, body)))
            }
        };
        Self::streaming(name, answer).await
    }

    /// A host that answers before it has read, or bit by bit.
    pub(crate) async fn streaming<H, F, B>(name: &str, handler: H) -> Self
    where
        H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = hyper::Result<Response<B>>> + Send + 'static,
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let (certificate, private) = certificate(name);
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], private)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let secure = Arc::clone(&handler);
        let tls = serve(move |stream| {
            let (acceptor, handler) = (acceptor.clone(), Arc::clone(&secure));
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    answer(stream, handler).await;
                }
            }
        });
        let plain = serve(move |stream| answer(stream, Arc::clone(&handler)));
        let (tls, plain) = (tls.await, plain.await);
        Self { tls, plain, roots }
    }
}

fn certificate(name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let key = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
    (key.cert.der().clone(), private)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Accepts connections until the test ends.
pub(crate) async fn serve<F>(handle: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            tokio::spawn(handle(stream));
        }
    });
    address
}

fn echo(request: Request<Bytes>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let (version, method, path) = (head.version, head.method, head.uri.path());
    let text = format!("origin {version:?} {method} {path} {}", body.len());
    Response::new(Full::new(Bytes::from(text)))
}

async fn answer<H, F, B>(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    handler: Arc<H>,
) where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = hyper::Result<Response<B>>> + Send + 'static,
    B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let answer = hyper::service::service_fn(move |request| handler(request));
    let server = auto::Builder::new(TokioExecutor::new());
    let _ = server.serve_connection(TokioIo::new(stream), answer).await;
}

/// What a container's agent and the audit log were told.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) listening: Mutex<Vec<(String, SocketAddrV4)>>,
    pub(crate) events: Mutex<Vec<String>>,
    changed: Notify,
}

impl Seen {
    fn tell(&self, event: String) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_one();
    }
}

#[async_trait]
impl Listeners for Seen {
    async fn listen(&self, name: &HostName, address: SocketAddrV4) -> bool {
        let mut listening = self.listening.lock().unwrap();
        listening.push((name.to_string(), address));
        true
    }
}

impl Observer for Seen {
    fn opened(&self, opened: &Opened) {
        let event = format!("open {}:{} by {}", opened.host, opened.port, opened.rule);
        self.tell(event);
    }

    fn denied(&self, denial: &Denial) {
        self.tell(denial.to_string());
    }

    fn asked(&self, question: &Question) {
        self.tell(format!("asked {}:{}", question.host, question.port));
    }

    fn closed(&self, opened: &Opened, down: u64, up: u64) {
        self.tell(format!("close {} {}", opened.host, down > 0 && up > 0));
    }
}

/// Whether the other side ends a connection, which it has to do soon.
pub(crate) async fn ends(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    let reading = stream.read(&mut byte);
    let read = tokio::time::timeout(Duration::from_secs(10), reading).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

/// A container with a profile, whose names lead to `origin`.
pub(crate) struct World {
    pub(crate) guest: Arc<Guest>,
    pub(crate) seen: Arc<Seen>,
    broker: Arc<Broker>,
    origin: Option<RootCertStore>,
    settings: Settings,
    pub(crate) directory: Directory,
}

/// How long a directory may take to go, and between two tries.
const REMOVAL_MAX: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A directory that is gone with its world: what writes a download to the cache that nobody waits for
/// any more may be at it while the directory is removed.
pub(crate) struct Directory(Option<tempfile::TempDir>);

impl Directory {
    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().expect("it is taken when it goes").path()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let path = self.0.take().expect("it is taken once").keep();
        let deadline = Instant::now() + REMOVAL_MAX;
        while let Err(error) = std::fs::remove_dir_all(&path) {
            if error.kind() == ErrorKind::NotFound {
                return;
            }
            assert!(
                Instant::now() < deadline || std::thread::panicking(),
                "{}: {error}",
                path.display()
            );
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

pub(crate) fn work() -> ProfileName {
    ProfileName::parse("work").unwrap()
}

pub(crate) fn name(text: &str) -> HostName {
    HostName::parse(text).unwrap()
}

impl World {
    pub(crate) fn new(profile: ProfileSettings) -> Self {
        Self::with_hosts(profile, &[], None)
    }

    /// With one host, whose ports 443 and 80 are those of the origin.
    pub(crate) fn with_origin(profile: ProfileSettings, host: &str, origin: &Origin) -> Self {
        let hosts = [(host, 443, origin.tls), (host, 80, origin.plain)];
        Self::with_hosts(profile, &hosts, Some(origin.roots.clone()))
    }

    pub(crate) fn with_hosts(
        profile: ProfileSettings,
        hosts: &[(&str, u16, SocketAddr)],
        origin: Option<RootCertStore>,
    ) -> Self {
        let settings = Settings {
            profiles: [(work(), profile)].into(),
            ..Settings::default()
        };
        Self::with_settings(settings, hosts, origin)
    }

    /// With settings whose profile `work` the container has.
    pub(crate) fn with_settings(
        settings: Settings,
        hosts: &[(&str, u16, SocketAddr)],
        origin: Option<RootCertStore>,
    ) -> Self {
        let directory = Directory(Some(tempfile::tempdir().unwrap()));
        let fixed = hosts.iter().map(|(host, port, address)| {
            let fixed = FixedAddress {
                ip: address.ip(),
                port: Some(address.port()),
            };
            ((name(host), Some(*port)), fixed)
        });
        let settings = Settings {
            hosts: fixed.collect(),
            ..settings
        };
        let policy = Policy::compile(&settings).unwrap();
        let broker = Broker::open(policy, directory.path()).unwrap();
        let roots = origin.clone().unwrap_or_else(RootCertStore::empty);
        let broker = Arc::new(broker.with_roots(roots));
        let seen = Arc::new(Seen::default());
        let guest = Guest::new(Arc::clone(&broker), work(), seen.clone(), seen.clone());
        Self {
            guest: Arc::new(guest),
            seen,
            broker,
            origin,
            settings,
            directory,
        }
    }

    /// Another container of the same server.
    pub(crate) fn neighbour(&self) -> Arc<Guest> {
        let seen = Arc::clone(&self.seen);
        let guest = Guest::new(Arc::clone(&self.broker), work(), seen.clone(), seen);
        Arc::new(guest)
    }

    /// The address that leads into the broker, as an agent's listener would.
    pub(crate) async fn door(&self, target: Target) -> SocketAddr {
        Self::door_of(Arc::clone(&self.guest), target).await
    }

    /// The same of another container.
    pub(crate) async fn door_of(guest: Arc<Guest>, target: Target) -> SocketAddr {
        serve(move |stream| {
            let (guest, target) = (Arc::clone(&guest), target.clone());
            async move { guest.serve(target, stream).await }
        })
        .await
    }

    /// A program inside that trusts the broker's authority and reaches `host` through `door`.
    pub(crate) fn trusting(&self, host: &str, door: SocketAddr) -> reqwest::Client {
        client(self.authority(), host, door)
    }

    /// What a program inside trusts.
    pub(crate) fn authority(&self) -> RootCertStore {
        let pem = self.broker.authority_pem().as_bytes();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
        roots
    }

    /// A program that trusts the authority and the origin, and uses a proxy.
    pub(crate) fn through(&self, proxy: &str) -> reqwest::Client {
        let mut roots = self.origin.clone().unwrap();
        let pem = self.broker.authority_pem().as_bytes();
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
        let proxy = reqwest::Proxy::all(proxy).unwrap();
        builder(roots).proxy(proxy).build().unwrap()
    }

    /// A program that trusts nobody but the origin itself.
    pub(crate) fn pinned(&self, host: &str, door: SocketAddr) -> reqwest::Client {
        client(self.origin.clone().unwrap(), host, door)
    }

    /// The operator changes all settings but the hosts.
    pub(crate) fn replace_settings(&self, settings: Settings) {
        let settings = Settings {
            hosts: self.settings.hosts.clone(),
            ..settings
        };
        self.broker
            .replace_policy(Policy::compile(&settings).unwrap());
    }

    /// The policy as it is now.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.broker.policy()
    }

    /// The operator changes the profile.
    pub(crate) fn replace_profile(&self, profile: ProfileSettings) {
        let settings = Settings {
            profiles: [(work(), profile)].into(),
            ..self.settings.clone()
        };
        let policy = Policy::compile(&settings).unwrap();
        self.broker.replace_policy(policy);
    }

    /// Waits until an event has happened so often.
    pub(crate) async fn events_with(&self, event: &str, count: usize) {
        let seen = || self.events().iter().filter(|own| *own == event).count();
        let waiting = async {
            while seen() < count {
                self.seen.changed.notified().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), waiting).await;
        waited.unwrap_or_else(|_| panic!("{event}: {:?}", self.events()));
    }

    /// The events, once there are so many.
    pub(crate) async fn events_once(&self, count: usize) -> Vec<String> {
        let waiting = async {
            while self.events().len() < count {
                self.seen.changed.notified().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(10), waiting).await;
        waited.unwrap_or_else(|_| panic!("{:?}", self.events()));
        self.events()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.seen.events.lock().unwrap().clone()
    }
}

fn client(roots: RootCertStore, host: &str, door: SocketAddr) -> reqwest::Client {
    let builder = builder(roots).no_proxy();
    builder.resolve(host, door).build().unwrap()
}

fn builder(roots: RootCertStore) -> reqwest::ClientBuilder {
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
    builder.redirect(reqwest::redirect::Policy::none())
}

pub(crate) fn loopback(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 77, 0, last)
}

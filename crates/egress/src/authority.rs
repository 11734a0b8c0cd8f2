//! The server's own certificate authority, for connections that the broker answers or opens itself.
//!
//! Each server has its own. Containers of a server trust it (`trust.rs`), nobody else does; its key
//! stays in the state directory.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::HostName;

const AUTHORITY_LIFETIME: Duration = Duration::from_hours(24 * 365 * 5);
/// An authority with less time than this left is replaced at the next start.
const AUTHORITY_RENEWAL: Duration = Duration::from_hours(24 * 90);
const LEAF_LIFETIME: Duration = Duration::from_hours(24 * 7);
/// A clock inside that is a little behind still accepts a new certificate.
const CLOCK_SKEW: Duration = Duration::from_hours(24);
/// Certificates kept; the oldest go first.
const LEAVES_MAX: usize = 1024;

const KEY_FILE: &str = "authority.key";
const CERTIFICATE_FILE: &str = "authority.pem";
/// Stands before the certificate, where readers of PEM ignore it.
const EXPIRY_LABEL: &str = "Hotcell egress authority, valid until ";

/// Why there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The state directory could not be used.
    #[error("could not {step}")]
    File {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A key or certificate could not be made or read.
    #[error("could not make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// TLS does not accept our own key.
    #[error("could not use the key")]
    Key(#[from] rustls::Error),
}

/// Issues certificates for the names that containers connect to.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    provider: Arc<CryptoProvider>,
    leaf_key: KeyPair,
    leaves: Mutex<HashMap<HostName, Leaf>>,
}

#[derive(Clone)]
struct Leaf {
    certified: Arc<CertifiedKey>,
    issued: SystemTime,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Opens the authority of a state directory, or makes one.
    pub(crate) fn open(directory: &Path, now: SystemTime) -> Result<Self, AuthorityError> {
        let found = read(directory)?.filter(|(_, pem)| is_fresh(pem, now));
        let (key, pem) = match found {
            Some((key, pem)) => (KeyPair::from_pem(&key)?, pem),
            None => create(directory, now)?,
        };
        let issuer = Issuer::new(authority_params(&key, now)?, key);
        Ok(Self {
            issuer,
            pem,
            provider: Arc::new(rustls::crypto::ring::default_provider()),
            leaf_key: KeyPair::generate()?,
            leaves: Mutex::default(),
        })
    }

    /// The certificate that containers trust, as PEM.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate for a name, and its key.
    pub(crate) fn certify(&self, name: &HostName) -> Result<Arc<CertifiedKey>, AuthorityError> {
        let now = SystemTime::now();
        if let Some(leaf) = self.leaves().get(name)
            && now.duration_since(leaf.issued).unwrap_or_default() < LEAF_LIFETIME / 2
        {
            return Ok(Arc::clone(&leaf.certified));
        }
        let certified = Arc::new(self.issue(name, now)?);
        let leaf = Leaf {
            certified: Arc::clone(&certified),
            issued: now,
        };
        let mut leaves = self.leaves();
        if leaves.len() >= LEAVES_MAX {
            let oldest = leaves.iter().min_by_key(|(_, leaf)| leaf.issued);
            if let Some(name) = oldest.map(|(name, _)| name.clone()) {
                leaves.remove(&name);
            }
        }
        leaves.insert(name.clone(), leaf);
        Ok(certified)
    }

    /// TLS of a server with this name, offering these protocols.
    pub(crate) fn server_config(
        &self,
        name: &HostName,
        protocols: Vec<Vec<u8>>,
    ) -> Result<rustls::ServerConfig, AuthorityError> {
        let certified = self.certify(name)?;
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let mut config = builder
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Always(certified)));
        config.alpn_protocols = protocols;
        Ok(config)
    }

    fn issue(&self, name: &HostName, now: SystemTime) -> Result<CertifiedKey, AuthorityError> {
        let mut params = CertificateParams::new([name.as_str().to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.not_before = (now - CLOCK_SKEW).into();
        params.not_after = (now + LEAF_LIFETIME).into();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.leaf_key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der());
        let key = self
            .provider
            .key_provider
            .load_private_key(PrivateKeyDer::Pkcs8(key))?;
        let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
        Ok(CertifiedKey::new(chain, key))
    }

    fn leaves(&self) -> std::sync::MutexGuard<'_, HashMap<HostName, Leaf>> {
        self.leaves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One certificate whatever is asked for: the caller has compared the name before.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// What the authority's certificate says. The name depends on the key, so that a container that
/// trusts two authorities can tell them apart.
fn authority_params(key: &KeyPair, now: SystemTime) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([])?;
    let identifier = params.key_identifier(key);
    let short = identifier
        .first_chunk()
        .copied()
        .map_or(0, u32::from_be_bytes);
    params.distinguished_name = DistinguishedName::new();
    let name = format!("Hotcell egress {short:08x}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (now - CLOCK_SKEW).into();
    params.not_after = (now + AUTHORITY_LIFETIME).into();
    Ok(params)
}

fn read(directory: &Path) -> Result<Option<(String, String)>, AuthorityError> {
    let read = |name: &str| match fs::read_to_string(directory.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(AuthorityError::File {
            step: "read the egress authority",
            source,
        }),
    };
    Ok(read(KEY_FILE)?.zip(read(CERTIFICATE_FILE)?))
}

fn is_fresh(pem: &str, now: SystemTime) -> bool {
    let seconds = pem
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(EXPIRY_LABEL))
        .and_then(|seconds| seconds.parse().ok());
    let expiry = seconds
        .and_then(|seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    expiry.is_some_and(|expiry| now + AUTHORITY_RENEWAL < expiry)
}

fn create(directory: &Path, now: SystemTime) -> Result<(KeyPair, String), AuthorityError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(&key, now)?.self_signed(&key)?;
    let expiry = (now + AUTHORITY_LIFETIME)
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let pem = format!("{EXPIRY_LABEL}{}\n{}", expiry.as_secs(), certificate.pem());
    let file = |step| move |source| AuthorityError::File { step, source };
    fs::create_dir_all(directory).map_err(file("create the directory of the egress authority"))?;
    replace(&directory.join(KEY_FILE), &key.serialize_pem())
        .and_then(|()| replace(&directory.join(CERTIFICATE_FILE), &pem))
        .map_err(file("write the egress authority"))?;
    Ok((key, pem))
}

/// Writes a file that only its owner can read, whole or not at all.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_authority_is_made_once_and_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let first = Authority::open(directory.path(), now).unwrap();
        let again = Authority::open(directory.path(), now).unwrap();
        assert_eq!(first.pem(), again.pem());
        let key = fs::metadata(directory.path().join(KEY_FILE)).unwrap();
        assert_eq!(key.permissions().mode() & 0o777, 0o600);
        let late = now + AUTHORITY_LIFETIME;
        let renewed = Authority::open(directory.path(), late).unwrap();
        assert_ne!(first.pem(), renewed.pem());
    }

    #[test]
    fn a_client_that_trusts_the_authority_accepts_its_certificates() {
        let directory = tempfile::tempdir().unwrap();
        let authority = Authority::open(directory.path(), SystemTime::now()).unwrap();
        // A certificate that was issued by an authority read from its files.
        let authority_again = Authority::open(directory.path(), SystemTime::now()).unwrap();
        let name = HostName::parse("example.com").unwrap();
        let server = authority_again.server_config(&name, Vec::new()).unwrap();
        for (asked, is_accepted) in [("example.com", true), ("example.org", false)] {
            let shaken = shake_hands(&authority, server.clone(), asked);
            assert_eq!(shaken.is_ok(), is_accepted, "{asked}: {shaken:?}");
        }
    }

    fn shake_hands(
        authority: &Authority,
        server: rustls::ServerConfig,
        name: &'static str,
    ) -> Result<(), rustls::Error> {
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
        roots.add(certificate).unwrap();
        let client = rustls::ClientConfig::builder_with_provider(Arc::clone(&authority.provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut client =
            rustls::ClientConnection::new(Arc::new(client), name.try_into().unwrap()).unwrap();
        let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() {
            let mut bytes = Vec::new();
            client.write_tls(&mut bytes).unwrap();
            server.read_tls(&mut &bytes[..]).unwrap();
            server.process_new_packets()?;
            let mut bytes = Vec::new();
            server.write_tls(&mut bytes).unwrap();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                client.read_tls(&mut rest).unwrap();
                client.process_new_packets()?;
            }
        }
        Ok(())
    }
}

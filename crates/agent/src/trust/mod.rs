//! Certificates that programs inside trust: the image's own, and the server's authority.
//!
//! The files stand below the root, so whatever a process inside does to them harms only itself.
//! The image is as untrusted as everything else here: what is read of it is bounded, and what is
//! not a certificate is left out.

mod java;
mod pem;

use std::env;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use hotcell_agent_api::bounds::{AUTHORITY_BYTES_MAX, PATH_BYTES_MAX};
use hotcell_agent_api::v1::batch_operation::Operation;
use hotcell_agent_api::v1::{
    BatchOperation, BatchRequest, BatchWrite, TrustReply, TrustRequest, WriteHeader,
};
use rustix::fs::{Mode, OFlags};
use tonic::Status;

use self::pem::Certificate;
use crate::files::Files;

/// Where distributions keep their certificates in one file, the most usual first.
const BUNDLES: [&str; 7] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/ssl/cert.pem",
];

/// The variable by which an image names another file.
const BUNDLE_VARIABLE: &str = "SSL_CERT_FILE";

/// What is read of an image's bundle. That of Debian has 220 KiB; some describe each certificate.
const BUNDLE_BYTES_MAX: u64 = 2 << 20;

/// Certificates of an image that are taken, so that our files fit into one batch.
const CERTIFICATES_BYTES_MAX: usize = 768 << 10;

const BUNDLE_FILE: &str = "ca-bundle.pem";
const AUTHORITY_FILE: &str = "authority.pem";
const JAVA_FILE: &str = "ca-bundle.jks";

/// Writes the certificates, all files or none, and says where they are.
pub(crate) async fn install(
    files: &Files,
    root: &str,
    request: TrustRequest,
) -> Result<TrustReply, Status> {
    let authority = parse_authority(&request.authority)?;
    if request.directory.is_empty() || request.directory.len() > PATH_BYTES_MAX / 2 {
        return Err(Status::invalid_argument("directory is empty or too long"));
    }
    let merged = tokio::task::spawn_blocking(move || Merged::new(&authority));
    let merged = merged
        .await
        .map_err(|error| Status::internal(error.to_string()))?;
    let inside = |name: &str| [&request.directory[..], b"/", name.as_bytes()].concat();
    let write = |name: &str, data: String| operation(inside(name), data.into_bytes());
    let batch = BatchRequest {
        operations: vec![
            write(BUNDLE_FILE, merged.bundle),
            write(AUTHORITY_FILE, merged.authority),
            operation(inside(JAVA_FILE), merged.java_store),
        ],
        atomic: true,
    };
    files.batch(batch).await?;
    let path = |name: &str| Bytes::from([root.as_bytes(), b"/", &inside(name)].concat());
    Ok(TrustReply {
        bundle: path(BUNDLE_FILE),
        authority: path(AUTHORITY_FILE),
        java_store: path(JAVA_FILE),
    })
}

fn operation(path: Vec<u8>, data: Vec<u8>) -> BatchOperation {
    BatchOperation {
        operation: Some(Operation::Write(BatchWrite {
            header: Some(WriteHeader {
                path: path.into(),
                create_parents: true,
                ..WriteHeader::default()
            }),
            data: data.into(),
        })),
    }
}

fn parse_authority(text: &[u8]) -> Result<Vec<Certificate>, Status> {
    if text.len() > AUTHORITY_BYTES_MAX {
        return Err(Status::invalid_argument("authority is too large"));
    }
    let certificates = pem::certificates(text, AUTHORITY_BYTES_MAX);
    if certificates.is_empty() {
        return Err(Status::invalid_argument("authority has no certificate"));
    }
    Ok(certificates)
}

/// The contents of our files.
struct Merged {
    bundle: String,
    authority: String,
    java_store: Vec<u8>,
}

impl Merged {
    fn new(authority: &[Certificate]) -> Self {
        let named = env::var_os(BUNDLE_VARIABLE).map(PathBuf::from);
        let usual = BUNDLES.into_iter().map(PathBuf::from);
        let image = named.into_iter().chain(usual);
        let image = image
            .filter_map(|path| read(&path).ok())
            .map(|text| pem::certificates(&text, CERTIFICATES_BYTES_MAX))
            .find(|certificates| !certificates.is_empty());
        let mut all = authority.to_vec();
        all.extend(image.unwrap_or_default());
        Self {
            bundle: all.iter().map(Certificate::to_pem).collect(),
            authority: authority.iter().map(Certificate::to_pem).collect(),
            java_store: java::key_store(&all),
        }
    }
}

/// Reads the start of a regular file. Another kind of file could block.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut text = Vec::new();
    file.take(BUNDLE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

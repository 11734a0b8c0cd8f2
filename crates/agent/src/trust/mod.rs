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

use self::java::KeyStore;
use self::pem::Certificates;
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
    let merged = tokio::task::spawn_blocking(move || Merged::new(authority));
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

/// The certificates of the authority, as PEM and nothing else.
fn parse_authority(text: &[u8]) -> Result<String, Status> {
    if text.len() > AUTHORITY_BYTES_MAX {
        return Err(Status::invalid_argument("authority is too large"));
    }
    let mut pem = String::new();
    let mut certificates = Certificates::of(text);
    while let Some(der) = certificates.next() {
        pem::write(der, &mut pem);
    }
    if pem.is_empty() {
        return Err(Status::invalid_argument("authority has no certificate"));
    }
    Ok(pem)
}

/// The contents of our files.
struct Merged {
    bundle: String,
    authority: String,
    java_store: Vec<u8>,
}

impl Merged {
    fn new(authority: String) -> Self {
        let named = env::var_os(BUNDLE_VARIABLE).map(PathBuf::from);
        let usual = BUNDLES.into_iter().map(PathBuf::from);
        let mut images = named.into_iter().chain(usual);
        let image = images.find_map(|path| read(&path).ok().filter(|text| has_any(text)));
        let image = image.unwrap_or_default();
        // Made as large as they get: what grows leaves holes in the memory of an agent.
        let bytes = authority.len() + image.len().min(CERTIFICATES_BYTES_MAX);
        let mut bundle = String::with_capacity(bytes);
        let mut java_store = KeyStore::with_capacity(bytes);
        add(authority.as_bytes(), &mut bundle, &mut java_store);
        add(&image, &mut bundle, &mut java_store);
        Self {
            bundle,
            authority,
            java_store: java_store.finish(),
        }
    }
}

fn has_any(text: &[u8]) -> bool {
    Certificates::of(text).next().is_some()
}

/// Adds the certificates of a text, as many as there may be of one.
fn add(text: &[u8], bundle: &mut String, java_store: &mut KeyStore) {
    let bytes_max = bundle.len() + CERTIFICATES_BYTES_MAX;
    let mut certificates = Certificates::of(text);
    while let Some(der) = certificates.next() {
        if bundle.len() + pem::length_max(der) > bytes_max {
            break;
        }
        pem::write(der, bundle);
        java_store.add(der);
    }
}

/// Reads the start of a regular file. Another kind of file could block.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = metadata.len().min(BUNDLE_BYTES_MAX);
    let mut text = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.take(BUNDLE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_room_for() {
        let mut one = String::new();
        pem::write(
            &[&[0x30, 0x82, 0x04, 0x00][..], &[7; 1024]].concat(),
            &mut one,
        );
        let all = one.repeat(CERTIFICATES_BYTES_MAX / one.len() + 9);
        let (mut bundle, mut java_store) = (String::from("before"), KeyStore::with_capacity(0));
        add(all.as_bytes(), &mut bundle, &mut java_store);
        let taken = bundle.len() - "before".len();
        assert!(taken <= CERTIFICATES_BYTES_MAX, "{taken}");
        assert!(taken + 2 * one.len() > CERTIFICATES_BYTES_MAX, "{taken}");
    }
}

//! Certificates as a Java key store (JKS).
//!
//! A store ends with a digest over its contents and a password. Java checks it only if it is given
//! a password, and by `javax.net.ssl.trustStore` alone it is not, so ours ends with zeros.

use super::pem::Certificate;

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const CERTIFICATE_TYPE: &str = "X.509";
const DIGEST_BYTES: usize = 20;

pub(super) fn key_store(certificates: &[Certificate]) -> Vec<u8> {
    let mut store = Vec::new();
    number(&mut store, MAGIC);
    number(&mut store, VERSION);
    number(&mut store, length(certificates.len()));
    for (index, certificate) in certificates.iter().enumerate() {
        number(&mut store, TRUSTED_CERTIFICATE);
        text(&mut store, &format!("hotcell-{index}"));
        // When it was added, which nobody reads.
        store.extend_from_slice(&0_u64.to_be_bytes());
        text(&mut store, CERTIFICATE_TYPE);
        number(&mut store, length(certificate.as_der().len()));
        store.extend_from_slice(certificate.as_der());
    }
    store.extend_from_slice(&[0; DIGEST_BYTES]);
    store
}

fn number(store: &mut Vec<u8>, value: u32) {
    store.extend_from_slice(&value.to_be_bytes());
}

/// A short text, as Java's `writeUTF` writes it.
fn text(store: &mut Vec<u8>, value: &str) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    store.extend_from_slice(&length.to_be_bytes());
    store.extend_from_slice(value.as_bytes());
}

/// Lengths here have bounds far below this one.
fn length(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

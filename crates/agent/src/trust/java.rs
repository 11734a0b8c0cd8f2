//! Certificates as a Java key store (JKS).
//!
//! A store ends with a digest over its contents and a password. Java checks it only if it is given
//! a password, and by `javax.net.ssl.trustStore` alone it is not, so ours ends with zeros.

const MAGIC: u32 = 0xfeed_feed;
const VERSION: u32 = 2;
const TRUSTED_CERTIFICATE: u32 = 2;
const CERTIFICATE_TYPE: &str = "X.509";
const DIGEST_BYTES: usize = 20;

/// Where the number of entries stands.
const COUNT_AT: usize = 8;

/// A store that certificates are added to.
pub(super) struct KeyStore {
    bytes: Vec<u8>,
    count: u32,
}

impl KeyStore {
    /// An empty one, with room for what is expected.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut store = Vec::with_capacity(bytes);
        number(&mut store, MAGIC);
        number(&mut store, VERSION);
        number(&mut store, 0);
        Self {
            bytes: store,
            count: 0,
        }
    }

    pub(super) fn add(&mut self, der: &[u8]) {
        let store = &mut self.bytes;
        number(store, TRUSTED_CERTIFICATE);
        text(store, &format!("hotcell-{}", self.count));
        // When it was added, which nobody reads.
        store.extend_from_slice(&0_u64.to_be_bytes());
        text(store, CERTIFICATE_TYPE);
        number(store, length(der.len()));
        store.extend_from_slice(der);
        self.count += 1;
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes[COUNT_AT..][..4].copy_from_slice(&self.count.to_be_bytes());
        self.bytes.extend_from_slice(&[0; DIGEST_BYTES]);
        self.bytes
    }
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

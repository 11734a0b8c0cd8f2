//! SHA-256 of content.

use std::io::{self, Read};

use hotcell_domain::Digest;
use sha2::{Digest as _, Sha256};

/// Computes a digest incrementally.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::from_sha256(self.0.finalize().into())
    }
}

pub(crate) fn digest_of(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// Hashes what is read through it.
pub(crate) struct HashingReader<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: Hasher::default(),
        }
    }

    pub(crate) fn finish(self) -> Digest {
        self.hasher.finish()
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..len]);
        Ok(len)
    }
}

//! A signed token in its compact form: header, claims and signature (RFC 7515).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::key::{Algorithm, Key};
use crate::Failure;

/// The longest key id.
const KEY_ID_BYTES_MAX: usize = 256;

/// A well-formed token. Nothing in it can be trusted before [`Self::claims`].
pub(super) struct Jws<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) key_id: Option<String>,
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be supported. We support none.
    crit: Option<serde_json::Value>,
    /// Set in tokens that are encrypted, compressed or not encoded.
    enc: Option<serde_json::Value>,
    zip: Option<serde_json::Value>,
    b64: Option<serde_json::Value>,
}

impl<'a> Jws<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, Failure> {
        let (signed, signature) = token.rsplit_once('.').ok_or(Failure::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(Failure::Malformed)?;
        if claims.contains('.') {
            return Err(Failure::Malformed);
        }
        let header: Header =
            serde_json::from_slice(&decoded(header)?).map_err(|_| Failure::Malformed)?;
        let algorithm = Algorithm::parse(&header.alg).ok_or(Failure::Algorithm)?;
        let extensions = [&header.crit, &header.enc, &header.zip, &header.b64];
        if extensions.iter().any(|extension| extension.is_some()) {
            return Err(Failure::Algorithm);
        }
        if header
            .kid
            .as_ref()
            .is_some_and(|id| id.len() > KEY_ID_BYTES_MAX)
        {
            return Err(Failure::Malformed);
        }
        Ok(Self {
            algorithm,
            key_id: header.kid,
            signed,
            claims,
            signature: decoded(signature)?,
        })
    }

    /// The key in `keys` that this token names as its signing key.
    pub(super) fn key<'k>(&self, keys: &'k [Key]) -> Option<&'k Key> {
        let id = self.key_id.as_deref();
        let mut fitting = keys.iter().filter(|key| key.fits(self.algorithm, id));
        // A token that names no key is accepted only if exactly one key fits.
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// The claims, if `key` has signed them.
    pub(super) fn claims(&self, key: &Key) -> Result<Vec<u8>, Failure> {
        if !key.has_signed(self.algorithm, self.signed.as_bytes(), &self.signature) {
            return Err(Failure::Signature);
        }
        decoded(self.claims)
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, Failure> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Failure::Malformed)
}

//! The public keys of an issuer, and signature verification.
//!
//! There are no symmetric keys and no `none` here: a token that asks for them matches no algorithm,
//! nor does one that names another algorithm than its key is for.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

/// Most keys of one issuer; further ones are ignored.
const KEYS_MAX: usize = 64;

/// Signature algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key {
    id: Option<String>,
    /// The only algorithm that the issuer allows for it, if specified.
    only: Option<Algorithm>,
    material: Material,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// A key in the issuer's format (RFC 7517).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

impl Algorithm {
    pub(super) fn parse(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "PS256" => Some(Self::Ps256),
            "ES256" => Some(Self::Es256),
            "ES384" => Some(Self::Es384),
            "EdDSA" | "Ed25519" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

impl Key {
    /// Parses a key set. Keys for other purposes or algorithms are ignored.
    pub(super) fn parse_set(document: &[u8]) -> Result<Vec<Self>, serde_json::Error> {
        let set: JwkSet = serde_json::from_slice(document)?;
        let parsed = set.keys.into_iter().take(KEYS_MAX);
        let parsed = parsed.filter_map(|value| serde_json::from_value(value).ok());
        Ok(parsed.filter_map(|jwk| Self::of_jwk(&jwk)).collect())
    }

    fn of_jwk(jwk: &Jwk) -> Option<Self> {
        if jwk
            .purpose
            .as_deref()
            .is_some_and(|purpose| purpose != "sig")
        {
            return None;
        }
        let only = match &jwk.alg {
            Some(name) => Some(Algorithm::parse(name)?),
            None => None,
        };
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => Material::Rsa {
                n: bytes(jwk.n.as_ref())?,
                e: bytes(jwk.e.as_ref())?,
            },
            ("EC", Some("P-256")) => Material::P256(point(jwk, 32)?),
            ("EC", Some("P-384")) => Material::P384(point(jwk, 48)?),
            ("OKP", Some("Ed25519")) => Material::Ed25519(bytes(jwk.x.as_ref())?),
            _ => return None,
        };
        Some(Self {
            id: jwk.kid.clone(),
            only,
            material,
        })
    }

    /// Whether a token with this algorithm and key id can be signed by this key. A token without a
    /// key id may be signed by any key.
    pub(super) fn fits(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        let is_named = id.is_none() || self.id.as_deref() == id;
        let is_meant = self.only.is_none_or(|only| only == algorithm);
        is_named && is_meant && self.can(algorithm)
    }

    fn can(&self, algorithm: Algorithm) -> bool {
        match self.material {
            Material::Rsa { .. } => matches!(algorithm, Algorithm::Rs256 | Algorithm::Ps256),
            Material::P256(_) => algorithm == Algorithm::Es256,
            Material::P384(_) => algorithm == Algorithm::Es384,
            Material::Ed25519(_) => algorithm == Algorithm::EdDsa,
        }
    }

    /// Whether this key has signed the message.
    pub(super) fn has_signed(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let verified =
            match (&self.material, algorithm) {
                (Material::Rsa { n, e }, Algorithm::Rs256) => RsaPublicKeyComponents { n, e }
                    .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
                (Material::Rsa { n, e }, Algorithm::Ps256) => RsaPublicKeyComponents { n, e }
                    .verify(&RSA_PSS_2048_8192_SHA256, message, signature),
                (Material::P256(key), Algorithm::Es256) => {
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key).verify(message, signature)
                }
                (Material::P384(key), Algorithm::Es384) => {
                    UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, key).verify(message, signature)
                }
                (Material::Ed25519(key), Algorithm::EdDsa) => {
                    UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
                }
                _ => return false,
            };
        verified.is_ok()
    }
}

fn bytes(text: Option<&String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok()
}

/// An uncompressed point on a curve.
fn point(jwk: &Jwk, coordinate_bytes: usize) -> Option<Vec<u8>> {
    let (x, y) = (bytes(jwk.x.as_ref())?, bytes(jwk.y.as_ref())?);
    let is_whole = x.len() == coordinate_bytes && y.len() == coordinate_bytes;
    is_whole.then(|| [&[4][..], &x, &y].concat())
}

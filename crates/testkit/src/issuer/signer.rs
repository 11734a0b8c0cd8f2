//! Private keys and their signatures.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding,
    RsaKeyPair,
};
use serde_json::{Value, json};

/// A key only for tests: generating one takes a second.
const RSA: &[u8] = include_bytes!("rsa_2048.pk8");

/// A private key, and the algorithm that it signs with.
pub struct Signer {
    pub id: &'static str,
    algorithm: &'static str,
    pair: Pair,
}

enum Pair {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ecdsa(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair),
}

impl Signer {
    pub fn rs256(id: &'static str) -> Self {
        Self::rsa(id, "RS256", &RSA_PKCS1_SHA256)
    }

    pub fn ps256(id: &'static str) -> Self {
        Self::rsa(id, "PS256", &RSA_PSS_SHA256)
    }

    pub fn p256(id: &'static str) -> Self {
        Self::ecdsa(id, "ES256", "P-256", &ECDSA_P256_SHA256_FIXED_SIGNING)
    }

    pub fn p384(id: &'static str) -> Self {
        Self::ecdsa(id, "ES384", "P-384", &ECDSA_P384_SHA384_FIXED_SIGNING)
    }

    pub fn ed25519(id: &'static str) -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap();
        Self {
            id,
            algorithm: "EdDSA",
            pair: Pair::Ed25519(pair),
        }
    }

    fn rsa(id: &'static str, algorithm: &'static str, encoding: &'static dyn RsaEncoding) -> Self {
        let pair = RsaKeyPair::from_pkcs8(RSA).unwrap();
        Self {
            id,
            algorithm,
            pair: Pair::Rsa(pair, encoding),
        }
    }

    fn ecdsa(
        id: &'static str,
        algorithm: &'static str,
        curve: &'static str,
        kind: &'static EcdsaSigningAlgorithm,
    ) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(kind, key.as_ref(), &random).unwrap();
        Self {
            id,
            algorithm,
            pair: Pair::Ecdsa(pair, curve),
        }
    }

    pub fn algorithm(&self) -> &'static str {
        self.algorithm
    }

    pub fn public_key(&self) -> Vec<u8> {
        match &self.pair {
            Pair::Rsa(pair, _) => pair.public_key().as_ref().to_vec(),
            Pair::Ecdsa(pair, _) => pair.public_key().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// The form in which the issuer publishes it, without an algorithm.
    pub fn jwk(&self) -> Value {
        let key = self.public_key();
        let half = key.len() / 2 + 1;
        let mut jwk = match &self.pair {
            Pair::Rsa(pair, _) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "n": encoded(&public.n), "e": encoded(&public.e) })
            }
            Pair::Ecdsa(_, curve) => {
                let (x, y) = (encoded(&key[1..half]), encoded(&key[half..]));
                json!({ "kty": "EC", "crv": curve, "x": x, "y": y })
            }
            Pair::Ed25519(_) => json!({ "kty": "OKP", "crv": "Ed25519", "x": encoded(&key) }),
        };
        jwk["kid"] = self.id.into();
        jwk["use"] = "sig".into();
        jwk
    }

    /// A token with this header and these claims.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let signed = pair.sign(*encoding, &random, message.as_bytes(), &mut signature);
                signed.unwrap();
                signature
            }
            Pair::Ecdsa(pair, _) => {
                let signed = pair.sign(&random, message.as_bytes());
                signed.unwrap().as_ref().to_vec()
            }
            Pair::Ed25519(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", encoded(&signature))
    }

    /// The header of a genuine token.
    pub fn header(&self) -> Value {
        json!({ "alg": self.algorithm, "kid": self.id, "typ": "at+jwt" })
    }

    pub fn token(&self, claims: &Value) -> String {
        self.sign(&self.header(), claims)
    }

    /// A token that names HMAC and is signed with the public key, which everybody knows.
    pub fn confused_token(&self, claims: &Value) -> String {
        let signed = message(&json!({ "alg": "HS256", "kid": self.id }), claims);
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.public_key());
        let tag = ring::hmac::sign(&secret, signed.as_bytes());
        format!("{signed}.{}", encoded(tag.as_ref()))
    }
}

/// The part of a token that is signed.
pub fn message(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| encoded(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

pub fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
